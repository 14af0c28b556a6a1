//! A partition as the producer sees it: its queue, and where it waits.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use curtail_proto::{accumulator::PartitionQueue, metadata::Leader};
use parking_lot::Mutex;

use super::{
    delivery::{BatchResult, Completion},
    lane::Lane,
    memory::NOWHERE,
    standing::Standing,
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

/// Partitions that may keep, while they have nothing to do, what they need when they have. Those beyond rest
/// ([`Partition::rest`]) and begin with a few allocations again. At about a kilobyte each, that is what makes a
/// difference where there are hundreds of thousands, and costs nothing where there are hundreds.
const AWAKE: usize = 1024;

/// Counts the partitions of a producer that are not at rest.
#[derive(Debug, Default)]
pub(super) struct Awake(Arc<AtomicUsize>);

impl Awake {
    /// Whether partitions are to rest when they can.
    pub(super) fn are_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) > AWAKE
    }

    fn count(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.0.clone())
    }
}

/// One that counts, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One partition of one topic: 120 bytes at rest, because there are hundreds of thousands.
pub(super) struct Partition {
    pub(super) topic: Arc<str>,
    pub(super) index: i32,
    /// What its leader has shown, for the choice of keyless records.
    pub(super) standing: Standing,
    /// What was acknowledged; written under the lock of the state.
    pub(super) counts: Counts,
    pub(super) state: Mutex<PartitionState>,
}

/// What the partition's lock guards. Nothing else is locked while it is held.
pub(super) struct PartitionState {
    pub(super) queue: PartitionQueue<Completion>,
    pub(super) place: Place,
    /// The leader, as last heard.
    pub(super) leader: Leader,
    /// The lane of the leader; `None` while there is no leader.
    pub(super) lane: Option<Arc<Lane>>,
    /// Whether keyless records go elsewhere because of trouble that others do not have.
    pub(super) avoided: bool,
    /// When the newest batch that was sent was begun, in milliseconds of the producer's age. The queue forgets at rest.
    newest_sent_ms: u32,
    /// In a transactional producer: the transaction that it last was part of.
    pub(super) enlisted: Enlisted,
    /// There whenever the queue is not at rest.
    busy: Option<Box<Busy>>,
}

/// What a partition keeps from its first batch until it rests.
struct Busy {
    /// The turn in which a batch was last taken; see [`super::shared::Shared::next_turn`].
    taken_in: u64,
    /// Why the last attempt failed; `None` once a batch was written after it.
    last_error: Option<Error>,
    /// Results of batches that may still be open, oldest first, for flush.
    unresolved: VecDeque<Arc<BatchResult>>,
    _counted: Counted,
}

impl Partition {
    pub(super) fn new(topic: Arc<str>, index: i32, lane: Option<Arc<Lane>>) -> Arc<Self> {
        let state = PartitionState {
            queue: PartitionQueue::default(),
            place: Place::Idle,
            leader: Leader::NONE,
            lane,
            avoided: false,
            newest_sent_ms: 0,
            enlisted: Enlisted::default(),
            busy: None,
        };
        let (standing, counts) = (Standing::default(), Counts::default());
        Arc::new(Self { topic, index, standing, counts, state: Mutex::new(state) })
    }

    /// Gives back what only a partition with something to do needs, if nothing is forgotten by that.
    pub(super) fn rest(&self) {
        let mut state = self.state.lock();
        if state.unresolved().next().is_none() && state.queue.rest() {
            let busy = state.busy.take();
            drop(state);
            drop(busy);
        }
    }
}

impl PartitionState {
    /// There is something to do. To be called before anything enters the queue.
    pub(super) fn wake(&mut self, awake: &Awake) {
        self.busy(awake);
    }

    fn busy(&mut self, awake: &Awake) -> &mut Busy {
        self.busy.get_or_insert_with(|| {
            Box::new(Busy {
                taken_in: 0,
                last_error: None,
                unresolved: VecDeque::new(),
                _counted: awake.count(),
            })
        })
    }

    /// A result for a new batch.
    pub(super) fn new_result(&mut self, partition: &Partition, awake: &Awake) -> Arc<BatchResult> {
        let unresolved = &mut self.busy(awake).unresolved;
        while unresolved.front().is_some_and(|result| result.is_resolved()) {
            unresolved.pop_front();
        }
        let result = BatchResult::new(partition.topic.clone(), partition.index);
        unresolved.push_back(result.clone());
        result
    }

    /// A batch begun at this age of the producer is sent.
    pub(super) fn sends(&mut self, begun: Duration) {
        self.newest_sent_ms = self.newest_sent_ms.max(millis(begun));
    }

    /// Whether a batch begun later than this one, by a millisecond at least, was sent already.
    pub(super) fn has_sent_newer(&self, begun: Duration) -> bool {
        self.newest_sent_ms > millis(begun)
    }

    /// A batch was taken in this turn; see [`super::shared::Shared::next_turn`].
    pub(super) fn taken(&mut self, turn: u64) {
        if let Some(busy) = &mut self.busy {
            busy.taken_in = turn;
        }
    }

    /// Whether a batch was taken in this turn.
    pub(super) fn was_taken_in(&self, turn: u64) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.taken_in == turn)
    }

    /// Why the last attempt failed, unless a batch was written after it.
    pub(super) fn last_error(&self) -> Option<&Error> {
        self.busy.as_ref()?.last_error.as_ref()
    }

    /// Takes note of what became of the last attempt. What is given up already makes no difference.
    pub(super) fn set_last_error(&mut self, error: Option<Error>) {
        if let Some(busy) = &mut self.busy {
            busy.last_error = error;
        }
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

    /// For which broker memory is reserved now.
    pub(super) fn account(&self) -> i32 {
        self.lane.as_ref().map_or(NOWHERE, |lane| lane.broker)
    }

    /// Results without an outcome.
    pub(super) fn unresolved(&self) -> impl Iterator<Item = Arc<BatchResult>> + '_ {
        let unresolved = self.busy.iter().flat_map(|busy| &busy.unresolved);
        unresolved.filter(|result| !result.is_resolved()).cloned()
    }
}

fn millis(age: Duration) -> u32 {
    u32::try_from(age.as_millis()).unwrap_or(u32::MAX)
}
