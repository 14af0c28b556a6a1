//! The committed offsets of a group, and the pending offsets of open transactions. Pure.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::Uuid;

use super::records::OffsetValue;

/// A topic's name and a partition index.
pub(crate) type TopicPartition = (String, i32);

/// A committed offset and the log position of its commit. Of two commits the one later in the log
/// wins, even if the earlier one takes effect later as part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) value: OffsetValue,
    pub(crate) log_offset: i64,
}

/// The offsets of one group.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    committed: BTreeMap<TopicPartition, Commit>,
    /// Pending offsets by the producer id of the transaction.
    pending: BTreeMap<i64, BTreeMap<TopicPartition, Commit>>,
}

impl Offsets {
    /// Returns whether there are neither committed nor pending offsets.
    pub(crate) fn is_empty(&self) -> bool {
        self.committed.is_empty() && self.pending.is_empty()
    }

    /// Returns whether these committed offsets are all there is.
    pub(crate) fn are_all(&self, committed: &[TopicPartition]) -> bool {
        self.pending.is_empty() && self.committed.len() == committed.len()
    }

    pub(crate) fn commit(&mut self, at: TopicPartition, commit: Commit) {
        let newer = |known: &Commit| known.log_offset > commit.log_offset;
        if !self.committed.get(&at).is_some_and(newer) {
            self.committed.insert(at, commit);
        }
    }

    pub(crate) fn remove(&mut self, at: &TopicPartition) {
        self.committed.remove(at);
        for pending in self.pending.values_mut() {
            pending.remove(at);
        }
        self.pending.retain(|_, offsets| !offsets.is_empty());
    }

    pub(crate) fn get(&self, at: &TopicPartition) -> Option<&OffsetValue> {
        self.committed.get(at).map(|commit| &commit.value)
    }

    /// Returns the committed offsets, ordered by topic and partition.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&TopicPartition, &OffsetValue)> {
        self.committed.iter().map(|(at, commit)| (at, &commit.value))
    }

    /// Returns the partitions of a deleted topic whose committed or pending offsets are its own: those
    /// committed with its id, or by its name only.
    pub(crate) fn of_deleted(&self, name: &str, id: Uuid) -> BTreeSet<TopicPartition> {
        let pending = self.pending.values().flatten();
        let own = self.committed.iter().chain(pending).filter(|((topic, _), commit)| {
            topic == name && [Uuid::ZERO, id].contains(&commit.value.topic_id)
        });
        own.map(|(at, _)| at.clone()).collect()
    }

    /// Returns whether an open transaction has a pending offset for this partition.
    pub(crate) fn is_pending(&self, at: &TopicPartition) -> bool {
        self.pending.values().any(|offsets| offsets.contains_key(at))
    }

    /// Returns the partitions whose only offsets are pending.
    pub(crate) fn only_pending(&self) -> BTreeSet<&TopicPartition> {
        let pending = self.pending.values().flat_map(BTreeMap::keys);
        pending.filter(|at| !self.committed.contains_key(*at)).collect()
    }

    /// Records an offset that takes effect when the producer's transaction is committed.
    pub(crate) fn prepare(&mut self, producer_id: i64, at: TopicPartition, commit: Commit) {
        self.pending.entry(producer_id).or_default().insert(at, commit);
    }

    /// Ends a producer's transaction.
    pub(crate) fn complete(&mut self, producer_id: i64, committed: bool) {
        let Some(offsets) = self.pending.remove(&producer_id) else { return };
        if committed {
            for (at, commit) in offsets {
                self.commit(at, commit);
            }
        }
    }

    /// Returns offsets committed at or before this time, in ms since the Unix epoch, without a
    /// pending replacement.
    pub(crate) fn committed_until(&self, time_ms: i64) -> Vec<TopicPartition> {
        let old = self.committed.iter().filter(|(at, commit)| {
            commit.value.commit_timestamp <= time_ms && !self.is_pending(at)
        });
        old.map(|(at, _)| at.clone()).collect()
    }
}
