//! Partitions whose records go to queues ([`super::PartitionQueues`]) instead of polls.
//!
//! # Invariants
//! - A commit of positions covers no record that a queue has returned and its task has not finished: while the seat is
//!   busy, [`Assigned::to_commit`] is the position before these records.
//! - A partition is revoked only when its seat is not busy, or its queue is dropped.
//! - Records that a task still has when the position jumps keep the seat busy, but do not count: a finish that was
//!   requested for earlier records than [`Seat::since`] moves no position.
//! - A queue that ends or finishes its records wakes the consumer if it was told to end.

use std::{
    collections::BTreeSet,
    task::{Context, Poll, Waker},
};

use curtail_proto::position::{Position, Spot, Version, Versions};

use super::{
    buffer::{Chunk, Taken},
    shared::{Assigned, Next, Shared, State},
};
use crate::{Error, Result, TopicPartition};

/// A queue's claim to a partition, for one assignment of it.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) at: TopicPartition,
    id: u64,
}

/// Partitions without a queue, once the consumer has been turned into queues.
#[derive(Debug, Default)]
pub(super) struct Split {
    unclaimed: BTreeSet<TopicPartition>,
    /// Number of claims so far.
    ids: u64,
}

/// The place of a partition's queue.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// Id of the claim.
    holder: Option<u64>,
    /// Whether the queue must end: its partition is being revoked.
    ending: bool,
    work: Work,
    /// Version of the position after its last jump. Records of earlier versions do not count. `None` before a jump.
    since: Option<Version>,
    waker: Option<Waker>,
}

/// The last jump of a position. Records count only for the position that they were read for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Jump(Option<Version>);

/// State of the records returned earlier, when a queue requests more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    /// They are finished.
    Finished,
    /// They stay unfinished.
    Open,
}

/// Records that the queue has returned.
#[derive(Clone, Copy, Debug, Default)]
enum Work {
    /// All are finished.
    #[default]
    Idle,
    /// Some are not finished. The position to commit is before the first of them that counts; `None` while it is
    /// unknown.
    Busy(Option<Spot>),
}

impl Seat {
    fn is_busy(&self) -> bool {
        matches!(self.work, Work::Busy(_))
    }

    fn is_read_by(&self, claim: &Claim) -> bool {
        self.holder == Some(claim.id) && !self.ending
    }

    /// Wakes the queue.
    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Follows a position that the brokers moved. Unfinished records still count, but no position after the new one is
    /// committed.
    pub(super) fn moved(&mut self, position: &Position) {
        if let Work::Busy(first) = &mut self.work {
            *first = earlier(*first, position.consumed());
        }
    }

    /// Follows a jump of the position: unfinished records do not count any longer.
    pub(super) fn jumped(&mut self, position: &Position) {
        self.since = Some(position.version());
        if let Work::Busy(first) = &mut self.work {
            *first = position.consumed();
        }
    }
}

/// The earlier of two positions; `None` if one is unknown.
fn earlier(one: Option<Spot>, other: Option<Spot>) -> Option<Spot> {
    let (one, other) = (one?, other?);
    Some(if one.offset <= other.offset { one } else { other })
}

impl Assigned {
    /// The position to commit.
    pub(super) fn to_commit(&self) -> Option<Spot> {
        match self.seat.work {
            Work::Idle => self.position.consumed(),
            Work::Busy(first) => first,
        }
    }
}

impl Assigned {
    /// The next records are not finished, and perhaps not the earlier ones.
    fn start_work(&mut self) {
        if let Work::Idle | Work::Busy(None) = self.seat.work {
            self.seat.work = Work::Busy(self.position.consumed());
        }
    }
}

impl State {
    /// Hands all partitions to queues, from now on.
    pub(super) fn split(&mut self) {
        let mut split = Split::default();
        for (at, assigned) in &mut self.partitions {
            assigned.queue.read_alone();
            split.unclaimed.insert(at.clone());
        }
        self.split = Some(split);
    }

    /// Offers a new partition to a queue, if there are queues.
    pub(super) fn offer(&mut self, at: &TopicPartition) {
        let Some(split) = &mut self.split else { return };
        if let Some(assigned) = self.partitions.get_mut(at) {
            assigned.queue.read_alone();
            split.unclaimed.insert(at.clone());
        }
    }

    /// Claims a partition without a queue.
    pub(super) fn claim(&mut self) -> Option<Claim> {
        let split = self.split.as_mut()?;
        while let Some(at) = split.unclaimed.pop_first() {
            let Some(assigned) = self.partitions.get_mut(&at) else { continue };
            if assigned.seat.ending {
                continue;
            }
            split.ids += 1;
            assigned.seat.holder = Some(split.ids);
            return Some(Claim { at, id: split.ids });
        }
        None
    }

    /// Tells the queues of these partitions to end. Returns whether all have finished their records.
    pub(super) fn release<'a>(
        &mut self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> bool {
        let mut finished = true;
        for at in partitions {
            let Some(assigned) = self.partitions.get_mut(at) else { continue };
            assigned.seat.ending = true;
            assigned.seat.wake();
            finished &= assigned.seat.holder.is_none() || !assigned.seat.is_busy();
        }
        finished
    }

    /// Ends the queues of lost partitions, if there are queues.
    pub(super) fn end_queues(&mut self, lost: &[TopicPartition]) {
        if self.split.is_some() {
            self.release(lost);
        }
    }

    fn seat_of(&mut self, claim: &Claim) -> Option<&mut Assigned> {
        let assigned = self.partitions.get_mut(&claim.at)?;
        (assigned.seat.holder == Some(claim.id)).then_some(assigned)
    }

    /// Counts the returned records as finished. Returns whether the consumer waits for that.
    fn finish(&mut self, claim: &Claim) -> bool {
        let Some(assigned) = self.seat_of(claim) else { return false };
        let was_busy = assigned.seat.is_busy();
        assigned.seat.work = Work::Idle;
        was_busy && assigned.seat.ending
    }

    /// Ends a claim. Records that are not finished are read again by the partition's next queue. Returns whether the
    /// consumer waits for the end.
    fn give_back(&mut self, claim: &Claim) -> bool {
        let Some(assigned) = self.seat_of(claim) else { return false };
        assigned.seat.holder = None;
        assigned.seat.waker = None;
        if assigned.seat.ending {
            // The seat stays busy: the position to commit is before the unfinished records.
            return assigned.seat.is_busy();
        }
        let work = std::mem::take(&mut assigned.seat.work);
        let again = |position: &mut Position, versions: &mut Versions| match work {
            Work::Busy(Some(first)) => position.seek_to(first, versions),
            Work::Busy(None) | Work::Idle => position.rewind(versions),
        };
        // The partition is assigned.
        let _ = self.jump(&claim.at, again);
        // No record arrives after the runtime's end: a new queue would end at once, and so on.
        if let Some(split) = self.split.as_mut().filter(|_| !self.cut_off) {
            split.unclaimed.insert(claim.at.clone());
        }
        true
    }
}

impl Shared {
    /// Claims a partition without a queue, or returns an error of the whole consumer. Otherwise the state keeps the
    /// waker.
    pub(super) fn poll_claim(&self, cx: &Context<'_>) -> Poll<Result<Claim>> {
        let mut state = self.state.lock();
        if let Some(error) = state.next_error() {
            return Poll::Ready(Err(error));
        }
        if let Some(claim) = state.claim() {
            return Poll::Ready(Ok(claim));
        }
        if state.cut_off {
            return Poll::Ready(Err(Error::Closed));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ends all queues. Ready once they have finished their records; otherwise the state keeps the waker.
    pub(super) fn poll_finished(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let all: Vec<TopicPartition> = state.partitions.keys().cloned().collect();
        if state.release(&all) {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Prepares to return records. `reading`: some of the partition's records are with the queue and will be returned
    /// next. `false`: the queue has ended.
    pub(super) fn begin(&self, claim: &Claim, reading: bool, earlier: Earlier) -> bool {
        let mut state = self.state.lock();
        let awaited = earlier == Earlier::Finished && state.finish(claim);
        let is_open = match state.seat_of(claim) {
            Some(assigned) if !assigned.seat.ending => {
                if reading {
                    assigned.start_work();
                }
                true
            }
            _ => false,
        };
        drop(state);
        if awaited {
            self.call_application();
        }
        is_open
    }

    /// Counts the claim's returned records as finished.
    pub(super) fn finish(&self, claim: &Claim) {
        let awaited = self.state.lock().finish(claim);
        if awaited {
            self.call_application();
        }
    }

    /// Counts the claim's records before this position as finished, or with `None` all returned ones, unless the
    /// position has jumped since. The seat stays busy.
    pub(super) fn finish_to(&self, claim: &Claim, jump: Jump, first: Option<Spot>) {
        let mut state = self.state.lock();
        if let Some(assigned) = state.seat_of(claim)
            && assigned.seat.is_busy()
            && assigned.seat.since == jump.0
        {
            let returned = assigned.position.consumed();
            // The brokers may have moved the position back.
            assigned.seat.work = Work::Busy(earlier(first.or(returned), returned));
        }
    }

    /// The last jump of the claim's position; `None` if its queue must end.
    pub(super) fn standing(&self, claim: &Claim) -> Option<Jump> {
        let mut state = self.state.lock();
        let assigned = state.seat_of(claim).filter(|assigned| !assigned.seat.ending)?;
        Some(Jump(assigned.seat.since))
    }

    /// The last jump of the claim's position; `None` if records of this version were read before it.
    pub(super) fn jump_before(&self, claim: &Claim, version: Version) -> Option<Jump> {
        let mut state = self.state.lock();
        let since = state.seat_of(claim)?.seat.since;
        (since <= Some(version)).then_some(Jump(since))
    }

    /// The position after the records returned for the claim; inside `None` while it is unknown.
    ///
    /// # Errors
    /// [`Error::Closed`] if the claim has ended.
    pub(super) fn returned(&self, claim: &Claim) -> Result<Option<Spot>> {
        let mut state = self.state.lock();
        let assigned = state.seat_of(claim).ok_or(Error::Closed)?;
        Ok(assigned.position.consumed())
    }

    /// Whether the claim's queue must end.
    pub(super) fn has_ended(&self, claim: &Claim) -> bool {
        self.state.lock().seat_of(claim).is_none_or(|assigned| assigned.seat.ending)
    }

    /// Ready once the claim's queue must end; otherwise the seat keeps the waker.
    pub(super) fn poll_ended(&self, claim: &Claim, cx: &Context<'_>) -> Poll<()> {
        match self.state.lock().seat_of(claim) {
            Some(assigned) if !assigned.seat.ending => {
                assigned.seat.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Ends a claim.
    pub(super) fn give_back(&self, claim: &Claim) {
        let awaited = self.state.lock().give_back(claim);
        if awaited {
            self.call_application();
        }
    }

    /// As [`Shared::next`], for the partition of a claim. The records count as returned and not finished.
    pub(super) fn next_of(&self, claim: &Claim, failures: bool, waker: Option<&Waker>) -> Next {
        let state = &mut *self.state.lock();
        let State { partitions, buffer, .. } = state;
        let assigned = partitions.get_mut(&claim.at);
        let Some(assigned) = assigned.filter(|assigned| assigned.seat.is_read_by(claim)) else {
            // The queue has ended since its call began. It looks again.
            if let Some(waker) = waker {
                waker.wake_by_ref();
            }
            return Next::Nothing;
        };
        if !assigned.paused {
            let version = assigned.position.version();
            match buffer.take(claim.at.clone(), &mut assigned.queue, version, failures) {
                Taken::Chunk(Chunk::Records(cursor)) => {
                    assigned.start_work();
                    return Next::Cursor(cursor);
                }
                Taken::Chunk(Chunk::Failure { error, .. }) => {
                    self.fetch_again(state, &claim.at);
                    return Next::Failure(error);
                }
                Taken::Unwanted | Taken::Nothing => {}
            }
        }
        if failures && state.cut_off {
            return Next::Failure(Error::Closed);
        }
        if let Some(waker) = waker
            && let Some(assigned) = state.partitions.get_mut(&claim.at)
        {
            assigned.seat.waker = Some(waker.clone());
        }
        Next::Nothing
    }
}
