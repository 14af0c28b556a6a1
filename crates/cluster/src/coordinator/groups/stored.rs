//! Groups whose state machines return a step per operation.

use curtail_wire::ErrorCode;

use super::{
    super::{
        consumer::ConsumerGroup,
        records::{consumer_record, streams_record},
        runtime::{Cx, StateRecord},
        step::{Machine, Step},
        streams::StreamsGroup,
    },
    AnyGroup, Groups,
};
use crate::replica::partition::Taken;

/// A group that is stored as one record per change.
pub(super) trait StoredGroup: Machine {
    /// Returns the record of a change.
    fn record(id: &str, change: &Self::Change) -> StateRecord;

    fn into_any(self) -> AnyGroup;
}

impl StoredGroup for ConsumerGroup {
    fn record(id: &str, change: &Self::Change) -> StateRecord {
        consumer_record(id, change)
    }

    fn into_any(self) -> AnyGroup {
        AnyGroup::Consumer(self)
    }
}

impl StoredGroup for StreamsGroup {
    fn record(id: &str, change: &Self::Change) -> StateRecord {
        streams_record(id, change)
    }

    fn into_any(self) -> AnyGroup {
        AnyGroup::Streams(self)
    }
}

impl Groups {
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
