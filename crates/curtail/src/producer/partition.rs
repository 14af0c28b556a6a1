//! The producer's view of a partition: its queue, and its place in a lane.

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

use curtail_proto::{
    accumulator::{Branch, PartitionQueue},
    link::Seat,
    metadata::Leader,
    path::Gate,
};
use tokio::time::Instant;

use super::{
    delivery::{BatchResult, Completion},
    lane::Lane,
    memory::NOWHERE,
    ranked::{Ranked, RankedGuard, STATE},
    standing::Standing,
    transaction::Enlisted,
};
use crate::Error;

/// Acknowledged records of a partition. Never decreases.
#[derive(Debug, Default)]
pub(super) struct Counts {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Counts {
    /// Adds a batch. Callers must serialize.
    pub(super) fn add(&self, records: u32, bytes: usize) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.records, u64::from(records));
        add(&self.bytes, bytes as u64);
    }

    /// Returns records and bytes so far.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// Number of partitions that may keep their working state while idle. Partitions beyond it rest ([`Partition::rest`])
/// and allocate again when used. The state takes about a kilobyte, which matters for hundreds of thousands of
/// partitions, but not for hundreds.
const AWAKE: usize = 1024;

/// Counts the producer's partitions that are not at rest.
#[derive(Debug, Default)]
pub(super) struct Awake(Arc<AtomicUsize>);

impl Awake {
    /// Whether partitions should rest when they can.
    pub(super) fn are_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) > AWAKE
    }

    fn count(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.0.clone())
    }
}

/// A counted partition, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A partition of a topic: 120 bytes at rest, because there may be hundreds of thousands.
pub(super) struct Partition {
    pub(super) topic: Arc<str>,
    pub(super) index: i32,
    /// State of its leader, for the routing of keyless records.
    pub(super) standing: Standing,
    /// Acknowledged records; written under the lock of the state.
    pub(super) counts: Counts,
    pub(super) state: Ranked<PartitionState, STATE>,
}

/// Holds a partition's lock.
pub(super) type StateGuard<'a> = RankedGuard<'a, PartitionState, STATE>;

/// The state under the partition's lock. Only the innermost locks are taken while it is held: memory, buffers,
/// interceptors.
pub(super) struct PartitionState {
    pub(super) queue: PartitionQueue<Completion>,
    /// Where it waits in its lane's lists.
    pub(super) seat: Seat,
    /// The last known leader.
    pub(super) leader: Leader,
    /// The lane to the leader; `None` while there is no leader.
    pub(super) lane: Option<Arc<Lane>>,
    flags: Flags,
    /// When the newest batch that was sent was begun, in milliseconds of the producer's age. The queue forgets at rest.
    newest_sent_ms: u32,
    /// In a transactional producer: the last transaction of the partition.
    pub(super) enlisted: Enlisted,
    /// Present whenever the queue is not at rest.
    busy: Option<Box<Busy>>,
}

/// Flags of a partition, in one byte.
#[derive(Clone, Copy, Debug, Default)]
struct Flags(u8);

impl Flags {
    /// Whether the leader waits for an in-sync replica that is unreachable. All batches have the side lane.
    const STUCK: u8 = 1;
    /// Whether keyless records go elsewhere because of a broker's trouble that other partitions lack.
    const AVOIDED: u8 = 2;
    /// Whether its batches do not count in the broker's window: one was refused, and until the next attempt they wait
    /// for something else than the broker's pace. Otherwise they would hold up the other partitions' records.
    const PARKED: u8 = 4;
    /// Whether the leader is new and has acknowledged nothing. Batches without a record of this partition have the side
    /// lane.
    const NEW: u8 = 8;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    /// Returns the previous value.
    fn set(&mut self, flag: u8, value: bool) -> bool {
        let former = self.has(flag);
        self.0 = if value { self.0 | flag } else { self.0 & !flag };
        former
    }
}

/// A partition's state from its first batch until it rests.
struct Busy {
    /// Error of the last attempt; `None` once a batch was written after it.
    last_error: Option<Error>,
    /// Results of batches that may still be open, oldest first, for flush.
    unresolved: VecDeque<Arc<BatchResult>>,
    _counted: Counted,
}

impl Partition {
    pub(super) fn new(topic: Arc<str>, index: i32, lane: Option<Arc<Lane>>) -> Arc<Self> {
        let state = PartitionState {
            queue: PartitionQueue::default(),
            seat: Seat::default(),
            leader: Leader::NONE,
            lane,
            flags: Flags::default(),
            newest_sent_ms: 0,
            enlisted: Enlisted::default(),
            busy: None,
        };
        let (standing, counts) = (Standing::default(), Counts::default());
        Arc::new(Self { topic, index, standing, counts, state: Ranked::new(state) })
    }

    /// Frees the working state of an idle partition, if that loses no information.
    pub(super) fn rest(&self) {
        let mut state = self.state.lock();
        if state.unresolved().next().is_none() && state.queue.rest(Instant::now().into_std()) {
            let busy = state.busy.take();
            drop(state);
            drop(busy);
        }
    }
}

impl PartitionState {
    /// Ensures the working state. Must be called before any batch enters the queue.
    pub(super) fn wake(&mut self, awake: &Awake) {
        self.busy(awake);
    }

    fn busy(&mut self, awake: &Awake) -> &mut Busy {
        self.busy.get_or_insert_with(|| {
            Box::new(Busy {
                last_error: None,
                unresolved: VecDeque::new(),
                _counted: awake.count(),
            })
        })
    }

    /// Creates the result of a new batch.
    pub(super) fn new_result(&mut self, partition: &Partition, awake: &Awake) -> Arc<BatchResult> {
        let unresolved = &mut self.busy(awake).unresolved;
        while unresolved.front().is_some_and(|result| result.is_resolved()) {
            unresolved.pop_front();
        }
        let result = BatchResult::new(partition.topic.clone(), partition.index);
        unresolved.push_back(result.clone());
        result
    }

    /// Whether the partition's batches count in the broker's window. The batch being sent, if any, is in no queue.
    pub(super) fn set_parked(&mut self, is_parked: bool) {
        if self.flags.set(Flags::PARKED, is_parked) != is_parked {
            self.queue.waiting_mut().for_each(|completion| completion.set_parked(is_parked));
        }
    }

    pub(super) fn is_parked(&self) -> bool {
        self.flags.has(Flags::PARKED)
    }

    /// Whether batches may have the side lane.
    pub(super) fn is_apart(&self) -> bool {
        self.flags.has(Flags::STUCK | Flags::NEW)
    }

    /// The leader waits for an unreachable replica. Returns whether that was known.
    pub(super) fn mark_stuck(&mut self) -> bool {
        self.flags.set(Flags::STUCK, true)
    }

    /// The leader is new.
    pub(super) fn mark_new(&mut self) {
        self.flags.set(Flags::NEW, true);
    }

    /// Whether keyless records go elsewhere; see [`Flags::AVOIDED`].
    pub(super) fn is_avoided(&self) -> bool {
        self.flags.has(Flags::AVOIDED)
    }

    pub(super) fn set_avoided(&mut self, is_avoided: bool) {
        self.flags.set(Flags::AVOIDED, is_avoided);
    }

    /// Whether the leader's broker takes no further request before it responds.
    pub(super) fn is_blocked(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.gate.is_blocked())
    }

    /// The gate of the leader's broker; `None` without a leader, or without a window.
    pub(super) fn gate(&self) -> Option<&Gate> {
        self.lane.as_ref()?.gate.if_bounded().map(|gate| &**gate)
    }

    /// A batch begun at this age of the producer is sent.
    pub(super) fn sends(&mut self, begun: Duration) {
        self.newest_sent_ms = self.newest_sent_ms.max(millis(begun));
    }

    /// Whether a batch begun later than this one, by a millisecond at least, was sent already.
    pub(super) fn has_sent_newer(&self, begun: Duration) -> bool {
        self.newest_sent_ms > millis(begun)
    }

    /// Returns to the main lane: the leader acknowledges, or there is no second connection.
    pub(super) fn rejoin(&mut self) {
        self.flags.set(Flags::STUCK | Flags::NEW, false);
        self.set_parked(false);
        if let Some(lane) = self.lane.clone()
            && lane.branch == Branch::Side
        {
            self.change_lane(lane.main());
        }
    }

    /// Leaves the main lane if the next batch should have the side lane.
    pub(super) fn step_aside(&mut self) {
        let moves = self.flags.has(Flags::STUCK)
            || self.flags.has(Flags::NEW) && !self.queue.is_next_of_this_partition();
        if !moves || self.queue.is_drained() {
            return;
        }
        if let Some(side) = self.lane.as_ref().and_then(|lane| lane.side()).cloned() {
            // It waits for something else than the broker's pace.
            self.set_parked(true);
            self.change_lane(Some(side));
        }
    }

    /// Moves to another lane. Returns the previous lane, whose entries for this partition no longer count.
    pub(super) fn change_lane(&mut self, lane: Option<Arc<Lane>>) -> Option<Arc<Lane>> {
        self.seat.leave();
        std::mem::replace(&mut self.lane, lane)
    }

    /// Error of the last attempt, unless a batch was written after it.
    pub(super) fn last_error(&self) -> Option<&Error> {
        self.busy.as_ref()?.last_error.as_ref()
    }

    /// Records the outcome of the last attempt. Ignored for a partition at rest.
    pub(super) fn set_last_error(&mut self, error: Option<Error>) {
        if let Some(busy) = &mut self.busy {
            busy.last_error = error;
        }
    }

    /// Whether the leader is new to a batch sent to `former`, which is then retried at once.
    pub(super) fn has_new_leader_since(&self, former: Leader) -> bool {
        self.leader.is_new_since(former) && self.lane.is_some()
    }

    /// The broker to which reserved memory is accounted now.
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
