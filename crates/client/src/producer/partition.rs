//! A partition as the producer sees it: its queue, and where it waits.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use curtail_proto::{accumulator::PartitionQueue, metadata::Leader};
use parking_lot::Mutex;
use std::collections::VecDeque;

use super::{
    delivery::{BatchResult, Completion},
    lane::Lane,
    memory::NOWHERE,
    transaction::Enlisted,
};
use crate::Error;

/// Where a partition waits. An entry in a lane's lists counts only while the partition still has that place and
/// that lane; an entry that has been overtaken is dropped when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In no list: nothing to send, or waiting for an outcome, an identity or a leader.
    Idle,
    /// In its lane's timed list, for linger or back-off.
    Timed,
    /// In its lane's ready list.
    Ready,
}

/// What a partition has acknowledged. Never goes back.
#[derive(Debug, Default)]
pub(super) struct Counts {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Counts {
    /// Adds a batch. Callers take turns.
    pub(super) fn add(&self, records: u32, bytes: usize) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.records, u64::from(records));
        add(&self.bytes, bytes as u64);
    }

    /// Records and bytes so far.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// One partition of one topic.
pub(super) struct Partition {
    pub(super) topic: Arc<str>,
    pub(super) index: i32,
    /// What was acknowledged; written under the lock of the state.
    pub(super) counts: Counts,
    pub(super) state: Mutex<PartitionState>,
}

/// What the partition's lock guards. Nothing else is locked while it is held.
pub(super) struct PartitionState {
    pub(super) queue: PartitionQueue<Completion>,
    pub(super) place: Place,
    /// The turn in which a batch was last taken; see [`super::shared::Shared::next_turn`].
    pub(super) taken_in: u64,
    /// The leader, as last heard.
    pub(super) leader: Leader,
    /// The lane of the leader; `None` while there is no leader.
    pub(super) lane: Option<Arc<Lane>>,
    /// Whether keyless records go elsewhere because of trouble that others do not have.
    pub(super) avoided: bool,
    /// Why the last attempt failed; `None` once a batch was written after it.
    pub(super) last_error: Option<Error>,
    /// In a transactional producer: the transaction that it last was part of.
    pub(super) enlisted: Enlisted,
    /// Results of batches that may still be open, oldest first, for flush.
    unresolved: VecDeque<Arc<BatchResult>>,
}

impl Partition {
    pub(super) fn new(topic: Arc<str>, index: i32, lane: Option<Arc<Lane>>) -> Arc<Self> {
        let state = PartitionState {
            queue: PartitionQueue::default(),
            place: Place::Idle,
            taken_in: 0,
            leader: Leader::NONE,
            lane,
            avoided: false,
            last_error: None,
            enlisted: Enlisted::default(),
            unresolved: VecDeque::new(),
        };
        Arc::new(Self { topic, index, counts: Counts::default(), state: Mutex::new(state) })
    }
}

impl PartitionState {
    /// A result for a new batch.
    pub(super) fn new_result(&mut self, partition: &Partition) -> Arc<BatchResult> {
        while self.unresolved.front().is_some_and(|result| result.is_resolved()) {
            self.unresolved.pop_front();
        }
        let result = BatchResult::new(partition.topic.clone(), partition.index);
        self.unresolved.push_back(result.clone());
        result
    }

    /// Whether there is a leader that is news to a batch sent to `former`: only then it is sent again at once. A
    /// newer epoch is news, even of the same broker; the same epoch is not (KIP-951). Where brokers tell no epochs,
    /// another broker is.
    pub(super) fn is_led_anew_since(&self, former: Leader) -> bool {
        let known = former.epoch >= 0 && self.leader.epoch >= 0;
        let anew =
            if known { self.leader.epoch > former.epoch } else { self.leader.id != former.id };
        anew && self.lane.is_some()
    }

    /// Whether keyless records do better elsewhere: others are healthier, or what is here waits for another attempt.
    pub(super) fn is_to_be_avoided(&self) -> bool {
        self.avoided || self.queue.failures() > 0 && !self.queue.is_idle()
    }

    /// For which broker memory is reserved now.
    pub(super) fn account(&self) -> i32 {
        self.lane.as_ref().map_or(NOWHERE, |lane| lane.broker)
    }

    /// Results without an outcome.
    pub(super) fn unresolved(&self) -> impl Iterator<Item = Arc<BatchResult>> + '_ {
        self.unresolved.iter().filter(|result| !result.is_resolved()).cloned()
    }
}
