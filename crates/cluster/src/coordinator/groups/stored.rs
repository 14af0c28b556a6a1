//! Groups whose state machines return a step per operation.

use std::{sync::Arc, time::Duration};

use curtail_wire::ErrorCode;
use tokio::time::Instant;

use super::{
    super::{
        consumer::{self, ConsumerGroup},
        group::Group,
        records::{consumer_record, streams_record},
        runtime::{Cx, StateRecord},
        step::{Machine, Step},
        streams::{self, StreamsGroup},
    },
    AnyGroup, Groups,
};
use crate::replica::partition::Taken;

/// Delay before a failed append is retried.
const RETRY: Duration = Duration::from_millis(500);

/// A group that is stored as one record per change.
pub(super) trait StoredGroup: Machine {
    /// Returns a group without members.
    fn empty(groups: &Groups) -> Self;

    /// Returns the record of a change.
    fn record(id: &str, change: &Self::Change) -> StateRecord;

    fn is_deletion(change: &Self::Change) -> bool;

    /// Whether the change deletes the group itself.
    fn deletes_group(change: &Self::Change) -> bool;

    /// Postpones everything due to this time, after storing it has failed.
    fn postpone(&mut self, now: Instant, until: Instant);

    fn into_any(self) -> AnyGroup;

    fn of(any: &mut AnyGroup) -> Option<&mut Self>;
}

impl StoredGroup for ConsumerGroup {
    fn empty(groups: &Groups) -> Self {
        Self::new(Arc::clone(&groups.settings))
    }

    fn record(id: &str, change: &Self::Change) -> StateRecord {
        consumer_record(id, change)
    }

    fn is_deletion(change: &Self::Change) -> bool {
        change.is_deletion()
    }

    fn deletes_group(change: &Self::Change) -> bool {
        matches!(change, consumer::Change::Group(None))
    }

    fn postpone(&mut self, now: Instant, until: Instant) {
        Self::postpone(self, now, until);
    }

    fn into_any(self) -> AnyGroup {
        AnyGroup::Consumer(self)
    }

    fn of(any: &mut AnyGroup) -> Option<&mut Self> {
        match any {
            AnyGroup::Consumer(group) => Some(group),
            _ => None,
        }
    }
}

impl StoredGroup for StreamsGroup {
    fn empty(groups: &Groups) -> Self {
        Self::new(Arc::clone(&groups.streams_settings))
    }

    fn record(id: &str, change: &Self::Change) -> StateRecord {
        streams_record(id, change)
    }

    fn is_deletion(change: &Self::Change) -> bool {
        change.is_deletion()
    }

    fn deletes_group(change: &Self::Change) -> bool {
        matches!(change, streams::Change::Group(None))
    }

    fn postpone(&mut self, now: Instant, until: Instant) {
        Self::postpone(self, now, until);
    }

    fn into_any(self) -> AnyGroup {
        AnyGroup::Streams(self)
    }

    fn of(any: &mut AnyGroup) -> Option<&mut Self> {
        match any {
            AnyGroup::Streams(group) => Some(group),
            _ => None,
        }
    }
}

impl Groups {
    /// Applies a change from the log.
    pub(super) fn take_on_change<G: StoredGroup>(&mut self, id: &str, change: G::Change) {
        let deletes_group = G::deletes_group(&change);
        if !G::is_deletion(&change) && self.stored_mut::<G>(id).is_none() {
            let group = G::empty(self).into_any();
            self.kept(id, -1).group = group;
        }
        let Some(group) = self.stored_mut::<G>(id) else { return };
        group.apply(change);
        if deletes_group {
            self.kept(id, -1).group = AnyGroup::Classic(Group::new(self.config, -1));
            self.drop_if_unused(id);
        }
    }

    /// Returns the group to change, if it exists and is of this kind.
    pub(super) fn stored_mut<G: StoredGroup>(&mut self, id: &str) -> Option<&mut G> {
        G::of(&mut self.groups.get_mut(id)?.group)
    }

    /// Stores what has expired, or tries again later.
    pub(super) fn take_expiry<G: StoredGroup>(
        &mut self,
        id: &str,
        step: Step<G, ()>,
        cx: &mut Cx<'_, Self>,
    ) {
        let Err(code) = self.take_step(id, Vec::new(), step, cx) else { return };
        let code = code.name();
        tracing::debug!(group = id, code, "expired members were not removed; retrying");
        if let Some(group) = self.stored_mut::<G>(id) {
            group.postpone(cx.now, cx.now + RETRY);
        }
        self.arm(id);
    }

    /// Appends a step's changes after the given records, and replaces the group with the step's
    /// result.
    pub(super) fn take_step<G: StoredGroup, T>(
        &mut self,
        id: &str,
        mut records: Vec<StateRecord>,
        step: Step<G, T>,
        cx: &mut Cx<'_, Self>,
    ) -> Result<(T, Option<Taken>), ErrorCode> {
        records.extend(step.changes.iter().map(|change| G::record(id, change)));
        let taken = match records.is_empty() {
            true => None,
            false => Some(cx.append(&records)?),
        };
        let now_ms = cx.now_ms();
        self.kept(id, now_ms).group = step.group.into_any();
        self.arm(id);
        Ok((step.answer, taken))
    }
}
