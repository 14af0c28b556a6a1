//! Handling of streams groups.

use std::{sync::Arc, time::Duration};

use curtail_wire::ErrorCode;

use super::{
    super::{
        group::Group,
        offsets::TopicPartition,
        records::OffsetValue,
        runtime::Cx,
        step::{Machine as _, Moment, Refused},
        streams::{Beat, Change, Heartbeat, StreamsGroup},
        topics::Topics,
    },
    AnyGroup, Groups, Kept,
};
use crate::{replica::partition::Taken, settings::of_streams_group};

/// Delay before a failed append is retried.
const RETRY: Duration = Duration::from_millis(500);

impl Groups {
    /// Applies a change from the log.
    pub(super) fn take_on_streams_change(&mut self, id: &str, change: Change) {
        let deletes_group = change == Change::Group(None);
        if !change.is_deletion() && self.streams(id).is_none() {
            let group = AnyGroup::Streams(StreamsGroup::new(self.streams_settings.clone()));
            self.kept(id, -1).group = group;
        }
        let config = self.config;
        let Some(kept) = self.groups.get_mut(id) else { return };
        let AnyGroup::Streams(group) = &mut kept.group else { return };
        group.apply(change);
        if deletes_group {
            kept.group = AnyGroup::Classic(Group::new(config, -1));
            self.drop_if_unused(id);
        }
    }

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
        if let Some(Kept { group: AnyGroup::Streams(group), .. }) = self.groups.get_mut(id) {
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
        if let Err(code) = self.take_step(id, Vec::new(), step, cx) {
            let code = code.name();
            tracing::debug!(group = id, code, "expired members were not removed; retrying");
            if let Some(Kept { group: AnyGroup::Streams(group), .. }) = self.groups.get_mut(id) {
                group.postpone(cx.now, cx.now + RETRY);
            }
            self.arm(id);
        }
    }
}

/// Returns the partitions of a commit.
pub(super) fn committed(
    offsets: &[(TopicPartition, OffsetValue)],
) -> impl Iterator<Item = (&str, i32)> {
    offsets.iter().map(|((topic, partition), _)| (topic.as_str(), *partition))
}
