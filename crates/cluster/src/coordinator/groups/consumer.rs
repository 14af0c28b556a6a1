//! Handling of groups of the consumer protocol.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use curtail_wire::ErrorCode;

use super::{
    super::{
        consumer::{Beat, ConsumerGroup, Heartbeat, Moment, Refused, Resolved, Topics, resolve},
        group::Group,
        offsets::TopicPartition,
        records::OffsetValue,
        runtime::Cx,
    },
    AnyGroup, CommitBy, Committer, Groups, Left, streams,
};
use crate::{replica::partition::Taken, settings::of_group};

/// First version of OffsetCommit with member epochs.
const MEMBER_EPOCHS: i16 = 9;

impl Groups {
    /// Handles ConsumerGroupHeartbeat. Returns the response and the append to wait for; without
    /// one, wait for all earlier appends.
    pub(crate) fn beat(
        &mut self,
        id: &str,
        request: &Heartbeat,
        cx: &mut Cx<'_, Self>,
    ) -> Result<(Beat, Option<Taken>), Refused> {
        let broker = cx.broker;
        let image = broker.image();
        let topics = Topics { image: &image, config: &broker.config };
        let at = Moment { now: cx.now, now_ms: cx.now_ms() };
        let not_found = || {
            let reason = format!("there is no group {id} of the consumer protocol");
            Refused::new(ErrorCode::GROUP_ID_NOT_FOUND, reason)
        };
        let joins = request.epoch == 0;
        let settings = of_group(&self.settings, &image.settings, id);
        if let Some(group) = self.stored_mut::<ConsumerGroup>(id) {
            group.configure(&settings);
        }
        let new = || ConsumerGroup::new(Arc::clone(&settings));
        let (before, step) = match self.groups.get(id).map(|kept| &kept.group) {
            Some(AnyGroup::Consumer(group)) => (Vec::new(), group.heartbeat(at, &topics, request)),
            // An empty streams group stays one, as in Kafka.
            Some(group @ AnyGroup::Classic(_)) if joins && group.is_unused() => {
                (group.tombstones(id), new().heartbeat(at, &topics, request))
            }
            None if joins => (Vec::new(), new().heartbeat(at, &topics, request)),
            _ => return Err(not_found()),
        };
        let (beat, taken) = self.take_step(id, before, step?, cx)?;
        if let Some(expressions) = beat.resolve.clone() {
            resolve_later(id, expressions, cx);
        }
        Ok((beat, taken))
    }

    /// Removes members of the consumer protocol for a LeaveGroup request, as sent by administrative
    /// tools.
    pub(super) fn leave_consumers(
        &mut self,
        id: &str,
        leaving: &[(String, Option<String>)],
        cx: &mut Cx<'_, Self>,
    ) -> Result<Left, ErrorCode> {
        let broker = cx.broker;
        let image = broker.image();
        let topics = Topics { image: &image, config: &broker.config };
        let Some(group) = self.consumers(id) else { return Ok((Vec::new(), None)) };
        let step = group.leave(&topics, leaving);
        self.take_step(id, Vec::new(), step, cx)
    }

    /// Removes expired members.
    pub(super) fn expire_consumers(&mut self, id: &str, cx: &mut Cx<'_, Self>) {
        let broker = cx.broker;
        let image = broker.image();
        let topics = Topics { image: &image, config: &broker.config };
        let Some(group) = self.consumers(id) else { return };
        let step = group.expire(cx.now, &topics);
        self.take_expiry(id, step, cx);
    }

    /// Applies the topics resolved for a group's regular expressions.
    fn resolved(
        &mut self,
        id: &str,
        version: u64,
        resolved: BTreeMap<String, Resolved>,
        cx: &mut Cx<'_, Self>,
    ) {
        let broker = cx.broker;
        let image = broker.image();
        let topics = Topics { image: &image, config: &broker.config };
        let Some(group) = self.consumers(id) else { return };
        let step = group.resolved(&topics, version, resolved);
        if self.take_step(id, Vec::new(), step, cx).is_err()
            && let Some(group) = self.stored_mut::<ConsumerGroup>(id)
        {
            group.resolve_failed();
        }
    }

    /// Prepares a group for a member of the classic protocol with this id; an empty id is a new
    /// member.
    ///
    /// # Errors
    /// INCONSISTENT_GROUP_PROTOCOL while the group has members of another protocol,
    /// UNKNOWN_MEMBER_ID for a member id in a group that is not a classic one.
    pub(super) fn make_classic(
        &mut self,
        id: &str,
        member_id: &str,
        cx: &mut Cx<'_, Self>,
    ) -> Result<(), ErrorCode> {
        let group = match self.group(id) {
            Some(AnyGroup::Classic(_)) => return Ok(()),
            Some(group) if !group.is_unused() => {
                return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
            }
            _ if !member_id.is_empty() => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            None => return Ok(()),
            Some(group) => group,
        };
        cx.append(&group.tombstones(id))?;
        let (config, now_ms) = (self.config, cx.now_ms());
        self.kept(id, now_ms).group = AnyGroup::Classic(Group::new(config, now_ms));
        self.arm(id);
        Ok(())
    }

    /// Checks the committer if there is no group of the classic protocol.
    pub(super) fn may_commit(
        &self,
        id: &str,
        committer: Committer<'_>,
        by: CommitBy,
        offsets: &[(TopicPartition, OffsetValue)],
        cx: &Cx<'_, Self>,
    ) -> Result<(), ErrorCode> {
        let Committer { member_id, instance_id, generation: epoch } = committer;
        let group = match self.group(id) {
            Some(group @ (AnyGroup::Consumer(_) | AnyGroup::Streams(_))) => group,
            Some(AnyGroup::Classic(_)) | None => {
                return match by {
                    _ if epoch < 0 => Ok(()),
                    CommitBy::Request(MEMBER_EPOCHS..) => Err(ErrorCode::GROUP_ID_NOT_FOUND),
                    _ => Err(ErrorCode::ILLEGAL_GENERATION),
                };
            }
        };
        let anonymous = epoch == -1 && member_id.is_empty() && instance_id.is_none();
        if by == CommitBy::Transaction && anonymous {
            return Ok(());
        }
        let image = cx.broker.image();
        let ids = offsets
            .iter()
            .map(|((topic, partition), _)| image.topic(topic).map(|topic| (topic.id, *partition)));
        let may = match group {
            AnyGroup::Consumer(group) => group.may_commit(member_id, epoch, ids),
            AnyGroup::Streams(group) => {
                group.may_commit(member_id, epoch, streams::committed(offsets))
            }
            AnyGroup::Classic(_) => Ok(()),
        };
        match (may, by) {
            (Err(ErrorCode::STALE_MEMBER_EPOCH), CommitBy::Transaction) => {
                Err(ErrorCode::ILLEGAL_GENERATION)
            }
            (Ok(()) | Err(ErrorCode::STALE_MEMBER_EPOCH), CommitBy::Request(..MEMBER_EPOCHS))
                if !group.is_unused() =>
            {
                Err(ErrorCode::UNSUPPORTED_VERSION)
            }
            (may, _) => may,
        }
    }

    /// Checks the sender of an offset lookup.
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    pub(crate) fn may_fetch(
        &self,
        id: &str,
        member_id: Option<&str>,
        epoch: i32,
    ) -> Result<(), ErrorCode> {
        match self.group(id) {
            Some(AnyGroup::Consumer(group)) => group.may_fetch(member_id, epoch),
            Some(AnyGroup::Streams(group)) => group.may_fetch(member_id, epoch),
            Some(AnyGroup::Classic(_)) | None => Ok(()),
        }
    }
}

/// Resolves regular expressions in a background task, because there may be many topics.
fn resolve_later(id: &str, expressions: BTreeSet<String>, cx: &Cx<'_, Groups>) {
    let (broker, shard) = (cx.broker.clone(), cx.shard.clone());
    let id = id.to_owned();
    cx.broker.spawn(async move {
        let image = Arc::clone(&broker.image());
        let resolved = resolve(&expressions, &image, broker.env.wall.now_ms());
        // If the shard has ended, so has the group.
        let _ = shard.run(&broker, |groups, cx| {
            groups.resolved(&id, image.version, resolved, cx);
        });
    });
}
