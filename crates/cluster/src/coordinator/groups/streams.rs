//! Handling of streams groups.

use std::sync::Arc;

use curtail_wire::ErrorCode;

use super::{
    super::{
        offsets::TopicPartition,
        records::OffsetValue,
        runtime::Cx,
        step::{Moment, Refused},
        streams::{Beat, Heartbeat, StreamsGroup},
        topics::Topics,
    },
    AnyGroup, Groups,
};
use crate::{replica::partition::Taken, settings::of_streams_group};

impl Groups {
    /// Returns the group, if it exists and uses the streams protocol.
    pub(crate) fn streams(&self, id: &str) -> Option<&StreamsGroup> {
        match self.group(id)? {
            AnyGroup::Streams(group) => Some(group),
            AnyGroup::Classic(_) | AnyGroup::Consumer(_) => None,
        }
    }

    /// Handles StreamsGroupHeartbeat. Returns the response and the append to wait for; without one, wait for all
    /// earlier appends.
    pub(crate) fn streams_beat(
        &mut self,
        id: &str,
        request: &Heartbeat,
        cx: &mut Cx<'_, Self>,
    ) -> Result<(Beat, Option<Taken>), Refused> {
        let broker = cx.broker;
        let image = broker.image();
        let topics = Topics { image: &image, config: &broker.config };
        let at = Moment { now: cx.now, now_ms: cx.now_ms() };
        let joins = request.epoch == 0;
        let settings = of_streams_group(&self.streams_settings, &image.settings, id);
        if let Some(group) = self.stored_mut::<StreamsGroup>(id) {
            group.configure(&settings);
        }
        let new = || StreamsGroup::new(Arc::clone(&settings));
        let (before, step) = match self.group(id) {
            Some(AnyGroup::Streams(group)) => {
                (Vec::new(), group.heartbeat(at, &topics, request, false))
            }
            // An empty group of the consumer protocol stays one, as in Kafka.
            Some(group @ AnyGroup::Classic(_)) if joins && group.is_unused() => {
                (group.tombstones(id), new().heartbeat(at, &topics, request, true))
            }
            None if joins => (Vec::new(), new().heartbeat(at, &topics, request, true)),
            _ => {
                let reason = format!("there is no streams group {id}");
                return Err(Refused::new(ErrorCode::GROUP_ID_NOT_FOUND, reason));
            }
        };
        Ok(self.take_step(id, before, step?, cx)?)
    }

    /// Removes expired members, and computes targets that were delayed.
    pub(super) fn expire_streams(&mut self, id: &str, cx: &mut Cx<'_, Self>) {
        let Some(group) = self.streams(id) else { return };
        let step = group.expire(Moment { now: cx.now, now_ms: cx.now_ms() });
        self.take_expiry(id, step, cx);
    }
}

/// Returns the partitions of a commit.
pub(super) fn committed(
    offsets: &[(TopicPartition, OffsetValue)],
) -> impl Iterator<Item = (&str, i32)> {
    offsets.iter().map(|((topic, partition), _)| (topic.as_str(), *partition))
}
