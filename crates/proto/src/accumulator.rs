//! One partition's queue of records to send: the open batch, the sealed batches and the batches to retry.
//!
//! The queue is a plain structure for use under a short lock, one queue per partition. In any interleaving of
//! responses, lost connections and leader changes it guarantees:
//!
//! * Batches leave in the order of their records. A batch keeps its producer id, epoch and sequence over all attempts,
//!   so that the broker can recognize a duplicate.
//! * While a batch of the partition waits for its retry, no later batch leaves.
//! * No batch leaves for a new leader while another is in flight to the previous one. Each must have its response
//!   or have come back ([`PartitionQueue::retry`]); after that, a response of the previous leader must not count.
//! * A batch that may move to another partition is not sent after one that came back, until a batch
//!   is written ([`PartitionQueue::is_doubtful`]). If no batch came back, one of its records tries the leader
//!   ([`Take::Trial`]).
//! * A lost sequence does not block the partition, which continues in the next epoch. A batch that may have been
//!   written under the old epoch is never written under the new one.
//!
//! Method groups: appending ([`PartitionQueue::try_append`], [`PartitionQueue::open`]), sending
//! ([`PartitionQueue::take`]), moving what no broker has written ([`PartitionQueue::take_movable`],
//! [`PartitionQueue::adopt`]), outcomes ([`PartitionQueue::written`], [`PartitionQueue::retry`],
//! [`PartitionQueue::renumber`], [`PartitionQueue::fail`], [`PartitionQueue::split`]), deadlines
//! ([`PartitionQueue::expire`]), the end of a transaction ([`PartitionQueue::give_up`]).

use std::{
    collections::VecDeque,
    num::NonZeroU8,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use curtail_wire::{
    compression::Compression,
    records::{BatchBuilder, ProducerStamp, RecordData},
};

mod knowledge;
mod numbering;
mod order;
mod ratio;
mod split;
#[cfg(test)]
mod tests;

use self::{
    knowledge::{Known, Term},
    numbering::{Numbering, SpentId, take_back},
    order::{NextOrder, Order},
};

pub use self::{
    ratio::CompressionRatio,
    split::{Parts, Share},
};
use crate::{
    later::Later,
    plant::{Plant, planted},
};

/// How batches are formed.
#[derive(Clone, Debug)]
pub struct BatchPolicy {
    /// `batch.size` in bytes: a batch that is expected to have this size after compression is complete.
    pub batch_size: usize,
    /// `batch.max.size` in bytes: the size that a complete batch may grow to while it cannot leave (KIP-782). Has no
    /// effect below `batch_size`.
    pub batch_max_size: usize,
    /// `max.request.size` in bytes: a batch of this size before compression is complete.
    pub max_request_size: usize,
    /// `linger.ms`.
    pub linger: Duration,
    /// `compression.type` and level.
    pub compression: Compression,
    /// `delivery.timeout.ms`, counted from the opening of the batch.
    pub delivery_timeout: Duration,
    /// `max.in.flight.requests.per.connection=1`: a batch waits for the outcome of the one before it. That a connection has one
    /// request in flight does not ensure it: the response to a request with several partitions is settled one partition after
    /// the other, and the next request may be built in between.
    pub one_in_flight: bool,
    /// `curtail.move.refused.batches`: a batch that was sent and that no broker has written may move as if it was never
    /// sent.
    pub moves_refused: bool,
    /// A time before the first batch. Queues count from it when they last wrote.
    pub began: Instant,
}

/// The identity of an idempotent producer (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdentity {
    /// Producer id.
    pub id: i64,
    /// Epoch assigned by the broker.
    pub epoch: i16,
}

/// Whether the producer numbers its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idempotence {
    /// `enable.idempotence=false`.
    Off,
    /// On, and the broker has not assigned an identity yet: no batch can leave.
    Pending,
    /// On, and this is the newest identity. Each partition keeps the identity it began with. After a lost sequence it
    /// continues in a separate epoch.
    As(ProducerIdentity),
    /// On and in a transaction, with this identity for every partition. A new identity restarts the sequences. A lost
    /// sequence ends the transaction, and no further batch leaves under this identity.
    Transaction(ProducerIdentity),
}

/// Distinguishes topics that have had the same name.
///
/// A topic that is deleted and created again has empty logs: its brokers know no producer, whatever the previous
/// topic's brokers knew. Numbers wrap: after 255 topics of one name without a write in between, two topics share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation(NonZeroU8);

impl Incarnation {
    /// The first topic of a name.
    pub const FIRST: Self = Self(NonZeroU8::MIN);

    /// The next topic of the name.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).unwrap_or(NonZeroU8::MIN))
    }
}

/// A connection to a broker. There are two, because a broker serves the requests of a connection one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Branch {
    /// For all partitions whose leader acknowledges, as far as is known.
    Main,
    /// For partitions whose leader may acknowledge late, because a request with acks=all waits for the followers: one is
    /// unreachable, or they take up to a second to turn to a new leader.
    Side,
}

/// Where a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The leader.
    pub broker: i32,
    /// The connection to it.
    pub branch: Branch,
    /// The topic that the request names.
    pub incarnation: Incarnation,
}

/// A complete batch. `C` is the caller's handle for the tasks that wait for the outcome.
#[derive(Debug)]
pub struct Batch<C> {
    payload: Bytes,
    /// Records in it.
    pub records: u32,
    /// When its first record arrived.
    pub created: Instant,
    /// Sends so far.
    pub attempts: u32,
    /// When it was first taken to be sent. The parts of a split batch keep the time of the whole.
    pub first_taken: Option<Instant>,
    /// Handle for the tasks that wait for the outcome.
    pub completion: C,
    /// Set when it is first taken.
    order: Order,
    /// Whether a record in it belongs to this partition, by its key or by the caller's choice.
    bound: bool,
    stamp: Option<ProducerStamp>,
    /// Topic and time of the last attempt: known to the broker once the batch is written.
    sent: Option<Known>,
    /// Whether an attempt ended without a response.
    outcome_unknown: bool,
}

impl<C> Batch<C> {
    fn never_taken(
        payload: Bytes,
        records: u32,
        created: Instant,
        completion: C,
        bound: bool,
    ) -> Self {
        Self {
            payload,
            records,
            created,
            attempts: 0,
            first_taken: None,
            completion,
            order: Order::NEVER_TAKEN,
            bound,
            stamp: None,
            sent: None,
            outcome_unknown: false,
        }
    }

    /// The encoded batch. A clone keeps the buffer alive until the socket is done with it.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Takes the batch apart: the buffer for reuse, and the handle.
    pub fn into_parts(self) -> (Bytes, C) {
        (self.payload, self.completion)
    }

    /// Identity with which it was sent; `None` before it is sent, and without idempotence.
    pub fn producer(&self) -> Option<ProducerIdentity> {
        let stamp = self.stamp.filter(|stamp| stamp.producer_id >= 0)?;
        Some(ProducerIdentity { id: stamp.producer_id, epoch: stamp.producer_epoch })
    }

    /// Producer epoch and first sequence number, which a batch keeps over all attempts; `None` as for
    /// [`Self::producer`].
    pub fn first_sequence(&self) -> Option<(i16, i32)> {
        let stamp = self.stamp.filter(|stamp| stamp.producer_id >= 0)?;
        Some((stamp.producer_epoch, stamp.base_sequence))
    }

    /// Whether it could move once a broker has refused it without appending it: no record is bound to this partition, and
    /// no earlier attempt may have been written.
    pub fn moves_if_refused(&self) -> bool {
        !self.bound && !self.outcome_unknown
    }

    /// Whether an attempt without a response may have reached the log.
    pub fn outcome_unknown(&self) -> bool {
        self.outcome_unknown
    }
}

#[derive(Debug)]
struct OpenBatch<C> {
    builder: BatchBuilder,
    /// Bytes that it may hold at present; see [`PartitionQueue::growth`].
    room: usize,
    /// Bytes at which it is complete. All sizes here are before compression.
    complete_at: usize,
    /// Receives the ratio of the batch; `None` without compression.
    ratio: Option<Arc<CompressionRatio>>,
    created: Instant,
    completion: C,
    bound: bool,
}

impl<C> OpenBatch<C> {
    /// The place of the record just appended. `is_behind` means that complete batches wait before this one.
    fn placed(
        &mut self,
        index: u32,
        bytes: usize,
        is_behind: bool,
        policy: &BatchPolicy,
    ) -> Placed<'_, C> {
        let own = if self.builder.len() >= self.complete_at {
            Readiness::Now
        } else {
            due(self.created, policy)
        };
        Placed {
            index,
            bytes,
            completion: &mut self.completion,
            readiness: if is_behind { Readiness::Now } else { own },
            is_complete: own == Readiness::Now,
        }
    }
}

/// A record's place in the open batch.
#[derive(Debug)]
pub struct Placed<'a, C> {
    /// Index in the batch.
    pub index: u32,
    /// Encoded bytes it added.
    pub bytes: usize,
    /// The batch's handle.
    pub completion: &'a mut C,
    /// What the queue needs now.
    pub readiness: Readiness,
    /// Whether the open batch itself waits for no further record. [`Self::readiness`] also counts the batches before it.
    pub is_complete: bool,
}

/// A step of an open batch's growth, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Bytes to add.
    pub more: usize,
    /// Bytes it may hold afterwards.
    pub room: usize,
}

/// When the partition next has a batch to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A batch can leave now.
    Now,
    /// The open batch can leave at this time at the latest.
    At(Instant),
}

/// Result of [`PartitionQueue::take`].
#[derive(Debug)]
pub enum Take<C> {
    /// Send this one.
    Batch(Batch<C>),
    /// It is not known whether the leader acknowledges anything, and one record shows it as well as many. Put this
    /// batch back in these parts ([`PartitionQueue::put_back`]) and ask again.
    Trial(Batch<C>, Parts),
    /// There is nothing to send.
    Empty,
    /// Ask again at this time: the open batch lingers or the partition backs off.
    At(Instant),
    /// Ask again after the outcome of a batch in flight.
    AfterOutcome,
    /// Ask again once the producer has its identity.
    AfterIdentity,
    /// Ask again once the producer has a new id; this one's epochs are exhausted.
    AfterAnotherId(i64),
}

/// One partition's queue. At rest ([`Self::rest`]) it is 32 bytes, because there are hundreds of thousands.
#[derive(Debug)]
pub struct PartitionQueue<C> {
    /// `None` at rest: no batch, failure, backoff or gap to remember.
    work: Option<Box<Work<C>>>,
    next_order: NextOrder,
    /// When the batch that made the producer known was sent; meaningless while it is unknown.
    known_since: Term,
    numbering: Option<Numbering>,
}

/// State that only a partition with unfinished batches needs, besides its next sequence.
#[derive(Debug)]
struct Work<C> {
    open: Option<OpenBatch<C>>,
    sealed: VecDeque<Batch<C>>,
    /// Batches to retry, in order; all of them precede `sealed`.
    again: VecDeque<Batch<C>>,
    /// Orders of the batches without an outcome, ascending.
    in_flight: VecDeque<Order>,
    /// Where the batches in flight are; stale while there are none.
    sent_to: Option<Target>,
    /// A batch came back while others were in flight: wait for those, then retry in order.
    regrouping: bool,
    not_before: Option<Instant>,
    failures: u32,
    /// A batch came back or the leader changed, and no batch was written since.
    doubtful: bool,
    /// Batches of a lower order were abandoned; the outcome of those still in flight changes nothing in the queue.
    given_up: Order,
    /// Order of the first batch whose sequence is lost; meaningless without a gap.
    gap_at: Order,
    /// Bytes that a batch may hold before compression, since the broker refused a larger one. Lost at rest: one more
    /// refusal sets it again.
    largest: usize,
}

impl<C> Default for PartitionQueue<C> {
    fn default() -> Self {
        Self {
            work: None,
            next_order: NextOrder::default(),
            known_since: Term::default(),
            numbering: None,
        }
    }
}

impl<C> Work<C> {
    /// Starts a queue that was at rest. Any batch still in flight was abandoned.
    fn new(next_order: u64) -> Self {
        Self {
            open: None,
            sealed: VecDeque::new(),
            again: VecDeque::new(),
            in_flight: VecDeque::new(),
            sent_to: None,
            regrouping: false,
            not_before: None,
            failures: 0,
            doubtful: false,
            given_up: Order::whole(next_order),
            gap_at: Order::whole(0),
            largest: usize::MAX,
        }
    }

    /// Completes the open batch.
    fn seal(&mut self, policy: &BatchPolicy) {
        let Some(open) = self.open.take() else { return };
        let (records, before) = (open.builder.count(), open.builder.len());
        // Levels are checked when the policy is made, and a batch is far below 2 GiB, so sealing cannot fail.
        let sealed = open.builder.seal(&policy.compression, &mut Vec::new());
        let payload =
            Bytes::from(sealed.expect("a valid compression level and a batch below 2 GiB"));
        if let Some(ratio) = open.ratio {
            ratio.observe(before, payload.len());
        }
        self.sealed.push_back(Batch::never_taken(
            payload,
            records,
            open.created,
            open.completion,
            open.bound,
        ));
    }

    fn landed(&mut self, order: Order) {
        self.in_flight.retain(|&other| other != order);
        if self.in_flight.is_empty() {
            self.regrouping = false;
        }
    }

    /// Whether a batch that comes back must fail: it was abandoned, or it may be in the log after a lost one.
    fn has_no_way_back(&self, batch: &Batch<C>, numbering: Option<Numbering>) -> bool {
        let is_lost = batch.outcome_unknown
            && batch.order > self.gap_at
            && numbering.is_some_and(|numbering| numbering.has_gap);
        batch.order < self.given_up || is_lost
    }

    /// Begins the backoff of batches that come back, or ends it if the leader is new.
    fn fails_once(&mut self, is_first_to_come_back: bool, not_before: Option<Instant>) {
        match not_before {
            None => {
                self.not_before = None;
                self.failures = 0;
            }
            Some(_) => {
                // Batches that come back together count as one failure.
                self.failures += u32::from(is_first_to_come_back);
                self.not_before = self.not_before.max(not_before);
            }
        }
        self.doubtful = true;
    }

    /// Queues a batch for its retry, in its place.
    fn comes_back(&mut self, batch: Batch<C>) {
        self.regrouping = !self.in_flight.is_empty();
        if planted(Plant::RetryOutOfOrder) {
            return self.sealed.push_back(batch);
        }
        let at = self.again.partition_point(|other| other.order < batch.order);
        self.again.insert(at, batch);
    }

    /// Whether the next batch could move to another partition and an outcome will soon show whether the broker
    /// acknowledges anything. Once sent, the batch would be bound to a partition that may stay unwritable for long.
    fn is_tested_before_next(&self) -> bool {
        self.doubtful && !self.in_flight.is_empty() && !self.is_next_bound()
    }

    /// The batch to send next, unless that is the open one.
    fn next_complete(&self) -> Option<&Batch<C>> {
        self.again.front().or_else(|| self.sealed.front())
    }

    /// Whether the next batch cannot move: a record in it belongs to this partition, or it was sent before.
    fn is_next_bound(&self) -> bool {
        match (self.again.front(), self.sealed.front(), &self.open) {
            (Some(_), ..) => true,
            (None, Some(batch), _) => batch.bound,
            (None, None, open) => open.as_ref().is_none_or(|open| open.bound),
        }
    }

    /// Takes the next batch if it would try the broker with more than one record, and could move to another partition.
    fn take_trial(&mut self, policy: &BatchPolicy) -> Option<(Batch<C>, Parts)> {
        if !self.doubtful || !self.in_flight.is_empty() || !self.again.is_empty() {
            return None;
        }
        let first = self.sealed.front().filter(|batch| !batch.bound && batch.records > 1)?;
        let parts = Parts::first_alone(first, policy).ok()?;
        Some((self.sealed.pop_front()?, parts))
    }

    fn is_drained(&self) -> bool {
        self.open.is_none() && self.sealed.is_empty() && self.again.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.is_drained() && self.in_flight.is_empty()
    }
}

impl<C> PartitionQueue<C> {
    fn work(&mut self) -> &mut Work<C> {
        self.work.get_or_insert_with(|| Box::new(Work::new(self.next_order.get())))
    }

    /// Frees the memory that only a queue with unfinished batches needs, if that loses no state: no batch waits or is
    /// in flight, the partition does not back off at `now`, and no sequence was lost. Returns whether it rests now.
    pub fn rest(&mut self, now: Instant) -> bool {
        let Some(work) = &self.work else { return true };
        let has_gap = self.numbering.is_some_and(|numbering| numbering.has_gap);
        if !work.is_idle() || work.not_before.is_some_and(|at| at > now) || has_gap {
            return false;
        }
        self.work = None;
        true
    }

    /// Adds a record to the open batch, or returns `None` if a new batch must be opened.
    pub fn try_append(
        &mut self,
        policy: &BatchPolicy,
        record: &RecordData<'_>,
    ) -> Option<Placed<'_, C>> {
        let work = &mut **self.work.as_mut()?;
        let open = work.open.as_mut()?;
        let before = open.builder.len();
        let after = open.builder.size_with(record);
        if after > open.room && open.builder.count() > 0 {
            return None;
        }
        let index = open.builder.append(record);
        let is_behind = !work.sealed.is_empty();
        Some(open.placed(index, after - before, is_behind, policy))
    }

    /// Returns how much the open batch should grow to take a record that does not fit, if it should.
    ///
    /// It grows until it is complete. Beyond that it grows while it cannot leave: batches before it wait, or it is
    /// complete itself and has not left, or the broker is blocked (takes no further request). Then another batch of the
    /// partition would only leave later. Larger batches cost the broker and the client less per record, which shortens
    /// the queue.
    pub fn growth(
        &self,
        policy: &BatchPolicy,
        record: &RecordData<'_>,
        is_blocked: bool,
    ) -> Option<Growth> {
        let work = self.work.as_ref()?;
        let open = work.open.as_ref()?;
        let twice = open.room * 2;
        let room = if open.room < open.complete_at {
            twice.min(open.complete_at)
        } else if twice <= policy.batch_max_size && (is_blocked || self.has_complete()) {
            twice
        } else {
            return None;
        };
        let fits = room <= work.largest && open.builder.size_with(record) <= room;
        fits.then_some(Growth { more: room.saturating_sub(open.room), room })
    }

    /// Moves the open batch to a larger buffer. Returns the previous buffer and the batch's handle.
    pub fn grow(&mut self, growth: Growth, buffer: Vec<u8>) -> Option<(Vec<u8>, &mut C)> {
        let open = self.work.as_mut()?.open.as_mut()?;
        open.room = growth.room;
        Some((open.builder.move_to(buffer), &mut open.completion))
    }

    /// Opens a batch in `buffer` with its first record, sealing the one before it. A record larger than
    /// `batch.size` gets a separate batch.
    pub fn open(
        &mut self,
        policy: &BatchPolicy,
        record: &RecordData<'_>,
        buffer: Vec<u8>,
        completion: C,
        ratio: Option<Arc<CompressionRatio>>,
        now: Instant,
    ) -> Placed<'_, C> {
        let work = self.work();
        work.seal(policy);
        let mut builder = BatchBuilder::new(buffer);
        let before = builder.len();
        builder.append(record);
        let bytes = builder.len() - before;
        let complete_at = match &ratio {
            Some(ratio) => ratio.filling(policy),
            None => policy.batch_size,
        };
        let is_behind = !work.sealed.is_empty();
        let room = policy.batch_size.min(work.largest).max(1);
        let open = work.open.insert(OpenBatch {
            builder,
            room,
            complete_at,
            ratio,
            created: now,
            completion,
            bound: false,
        });
        open.placed(0, bytes, is_behind, policy)
    }

    /// Binds the open batch to this partition: the record just appended may be written nowhere else.
    pub fn bind(&mut self) {
        if let Some(open) = self.work.as_mut().and_then(|work| work.open.as_mut()) {
            open.bound = true;
        }
    }

    /// Takes out every batch that may move to another partition, for that queue's [`Self::adopt`]. No broker has written
    /// such a batch, and none of its records is bound to this partition.
    pub fn take_movable(&mut self, policy: &BatchPolicy) -> Vec<Batch<C>> {
        if policy.moves_refused {
            self.release_refused();
        }
        self.take_unsent(policy)
    }

    /// As [`Self::take_movable`], but keeps refused batches, which wait for their retry here.
    pub fn take_unsent(&mut self, policy: &BatchPolicy) -> Vec<Batch<C>> {
        let Some(work) = &mut self.work else { return Vec::new() };
        if work.open.as_ref().is_some_and(|open| !open.bound) {
            work.seal(policy);
        }
        let is_movable = |batch: &Batch<C>| !batch.bound && batch.order == Order::NEVER_TAKEN;
        let (movable, kept): (Vec<_>, Vec<_>) = work.sealed.drain(..).partition(is_movable);
        work.sealed.extend(kept);
        movable
    }

    /// Takes back the last sequences from batches that came back and that no broker has written. They then count as
    /// never sent.
    ///
    /// A batch without a response may be written, and so may one in flight, which is not among those that came back. What
    /// precedes either keeps its sequence.
    fn release_refused(&mut self) {
        let Some(work) = &mut self.work else { return };
        while let Some(last) = work.again.back() {
            if last.bound || last.outcome_unknown || !take_back(&mut self.numbering, last) {
                return;
            }
            let Some(mut batch) = work.again.pop_back() else { return };
            (batch.stamp, batch.sent) = (None, None);
            batch.order = Order::NEVER_TAKEN;
            work.sealed.push_front(batch);
        }
    }

    /// Takes in a batch from another queue's [`Self::take_movable`]. It goes before batches that were opened later,
    /// so that batches still expire in order.
    pub fn adopt(&mut self, batch: Batch<C>) {
        let sealed = &mut self.work().sealed;
        let at = sealed.partition_point(|other| other.created <= batch.created);
        sealed.insert(at, batch);
    }

    /// Handles of the batches that are not in flight.
    pub fn waiting_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.work.iter_mut().flat_map(|work| {
            let open = work.open.iter_mut().map(|open| &mut open.completion);
            let complete = work.again.iter_mut().chain(&mut work.sealed);
            open.chain(complete.map(|batch| &mut batch.completion))
        })
    }

    /// Returns the next batch for `to`, stamped and counted as in flight; or the reason why there is none.
    pub fn take(
        &mut self,
        policy: &BatchPolicy,
        idempotence: Idempotence,
        to: Target,
        now: Instant,
    ) -> Take<C> {
        let sent = Known { topic: to.incarnation, since: Term::at(now, policy) };
        let is_unknown_to_broker = self.is_unknown_to_broker(idempotence, sent);
        let Some(work) = self.work.as_mut().filter(|work| !work.is_drained()) else {
            return Take::Empty;
        };
        if idempotence == Idempotence::Pending {
            return Take::AfterIdentity;
        }
        let alone = work.regrouping
            || work.sent_to != Some(to)
            || is_unknown_to_broker
            || policy.one_in_flight;
        if !work.in_flight.is_empty() && alone {
            return Take::AfterOutcome;
        }
        if let Some(at) = work.not_before.filter(|&at| at > now) {
            return Take::At(at);
        }
        match idempotence {
            Idempotence::Off | Idempotence::Pending => {}
            Idempotence::As(newest) => {
                if let Err(SpentId(id)) = self.begin_next_epoch(newest) {
                    return Take::AfterAnotherId(id);
                }
                if self.waits_for_next_epoch() {
                    return Take::AfterOutcome;
                }
            }
            Idempotence::Transaction(identity) => {
                if self.has_gap_under(identity) {
                    return Take::AfterIdentity;
                }
            }
        }
        let work = self.work();
        if work.is_tested_before_next() {
            return Take::AfterOutcome;
        }
        if let Some((batch, parts)) = work.take_trial(policy) {
            return Take::Trial(batch, parts);
        }
        let Some(mut batch) = work.again.pop_front().or_else(|| work.sealed.pop_front()) else {
            return self.take_open(policy, idempotence, to, now);
        };
        self.number(&mut batch, idempotence);
        if batch.order == Order::NEVER_TAKEN {
            batch.order = Order::whole(self.next_order.advance());
        }
        batch.attempts += 1;
        batch.first_taken.get_or_insert(now);
        batch.sent = Some(sent);
        let work = self.work();
        work.in_flight.push_back(batch.order);
        work.sent_to = Some(to);
        Take::Batch(batch)
    }

    fn take_open(
        &mut self,
        policy: &BatchPolicy,
        idempotence: Idempotence,
        to: Target,
        now: Instant,
    ) -> Take<C> {
        let work = self.work();
        let Some(open) = &work.open else { return Take::Empty };
        let full = open.builder.len() >= open.complete_at;
        match due(open.created, policy) {
            Readiness::At(at) if !full && at > now => Take::At(at),
            _ => {
                work.seal(policy);
                self.take(policy, idempotence, to, now)
            }
        }
    }

    /// Reports the outcome of a batch in flight: it is in the log.
    pub fn written(&mut self, batch: &Batch<C>) {
        let Some(work) = &mut self.work else { return };
        work.landed(batch.order);
        if batch.order < work.given_up {
            return;
        }
        if let Some(numbering) = &mut self.numbering
            && let Some(sent) = batch.sent
            && batch.producer().is_some_and(|producer| producer.id == numbering.id)
        {
            numbering.known_in = Some(sent.topic);
            self.known_since = sent.since;
        }
        work.failures = 0;
        work.doubtful = false;
        work.not_before = None;
    }

    /// Reports the outcome of a batch in flight: retry it, not before `not_before`, or at once because the leader is
    /// new.
    ///
    /// `outcome_unknown` means that there was no response, so that the broker may have written the batch. A returned
    /// batch must fail: it was abandoned, or it followed a lost batch and could be written twice under the new epoch.
    #[must_use]
    pub fn retry(
        &mut self,
        mut batch: Batch<C>,
        outcome_unknown: bool,
        not_before: Option<Instant>,
    ) -> Option<Batch<C>> {
        batch.outcome_unknown |= outcome_unknown && !planted(Plant::DoubtForgotten);
        let Some(work) = &mut self.work else { return Some(batch) };
        let is_first_to_come_back = !work.regrouping;
        work.landed(batch.order);
        if work.has_no_way_back(&batch, self.numbering) {
            return Some(batch);
        }
        work.fails_once(is_first_to_come_back, not_before);
        work.comes_back(batch);
        None
    }

    /// Reports the outcome of a batch in flight: not written, because the broker lacks the batches before it or the
    /// producer.
    ///
    /// The batch is sent again in the next epoch, not before `not_before`. The returned batches must fail, as in
    /// [`Self::fail`]: in the next epoch the broker could not recognize a duplicate. The batch itself is among them
    /// if an earlier attempt of it had no response.
    #[must_use]
    pub fn renumber(&mut self, batch: Batch<C>, not_before: Option<Instant>) -> Vec<Batch<C>> {
        let is_first_to_come_back = self.work.as_ref().is_some_and(|work| !work.regrouping);
        let mut lost = self.fail(&batch);
        match &mut self.work {
            Some(work) if batch.order >= work.given_up && !batch.outcome_unknown => {
                work.fails_once(is_first_to_come_back, not_before);
                work.comes_back(batch);
            }
            _ => lost.insert(0, batch),
        }
        lost
    }

    /// Ends the backoff, because there is a leader that has not been tried (KIP-951).
    pub fn leader_is_news(&mut self) {
        self.numbering = self.numbering.filter(|_| !planted(Plant::SequenceRestarted));
        if let Some(work) = &mut self.work {
            work.not_before = None;
            work.failures = 0;
        }
    }

    /// Records a leader change: until the new leader acknowledges a batch, it is unknown whether it can. A follower
    /// that fetched from it too early returns only after `replica.fetch.backoff.ms`, and batches sent by then wait
    /// for that.
    pub fn leader_is_untried(&mut self) {
        if let Some(work) = &mut self.work {
            work.doubtful = true;
        }
    }

    /// Reports that a batch in flight, or one that expired, will not be sent again. Returns the batches that must
    /// fail with it: their own outcome is unknown, and under a new epoch they could be written twice.
    ///
    /// This holds even if the lost batch is certainly not in the log. A broker refuses sequences after a gap only while
    /// it knows the producer. After `producer.id.expiration.ms` it has forgotten it, and accepts any first sequence.
    pub fn fail(&mut self, batch: &Batch<C>) -> Vec<Batch<C>> {
        let Some(work) = &mut self.work else { return Vec::new() };
        work.landed(batch.order);
        let is_of_no_concern = batch.producer().is_none() || batch.order < work.given_up;
        if is_of_no_concern || planted(Plant::NoGapOnExpiry) {
            return Vec::new();
        }
        if let Some(numbering) = &mut self.numbering {
            work.gap_at = match numbering.has_gap {
                false => batch.order,
                true => work.gap_at.min(batch.order),
            };
            numbering.has_gap = true;
        }
        let gap_at = work.gap_at;
        let is_lost = |other: &Batch<C>| other.outcome_unknown && other.order > gap_at;
        let (lost, kept): (Vec<_>, Vec<_>) = work.again.drain(..).partition(is_lost);
        work.again.extend(kept);
        lost
    }

    /// Takes out every batch past `delivery.timeout.ms` that is not in flight. Call [`Self::fail`] for each one.
    ///
    /// The owner of the request fails a batch in flight: [`Self::fail`], with an unknown outcome.
    pub fn expire(&mut self, policy: &BatchPolicy, now: Instant) -> Vec<Batch<C>> {
        let mut expired = Vec::new();
        let Some(work) = &mut self.work else { return expired };
        let is_over = |created: Instant| created.later(policy.delivery_timeout) <= now;
        if work.open.as_ref().is_some_and(|open| is_over(open.created)) {
            work.seal(policy);
        }
        for queue in [&mut work.again, &mut work.sealed] {
            // A batch that moved here may be older than those before it.
            if !queue.iter().any(|batch| is_over(batch.created)) {
                continue;
            }
            let (over, kept): (Vec<_>, Vec<_>) =
                queue.drain(..).partition(|batch| is_over(batch.created));
            expired.extend(over);
            queue.extend(kept);
        }
        expired
    }

    /// When the oldest batch that is not in flight expires. Scans all batches.
    pub fn next_expiry(&self, policy: &BatchPolicy) -> Option<Instant> {
        let work = self.work.as_ref()?;
        let complete = work.again.iter().chain(&work.sealed).map(|batch| batch.created);
        let oldest = complete.chain(work.open.as_ref().map(|open| open.created)).min();
        oldest.map(|created| created.later(policy.delivery_timeout))
    }

    /// Counts the delivery timeout of the open batch from `created`, if it was opened later: the record just appended
    /// waited elsewhere before.
    pub fn backdate(&mut self, created: Instant) {
        if let Some(open) = self.work.as_mut().and_then(|work| work.open.as_mut()) {
            open.created = open.created.min(created);
        }
    }

    /// Whether the batch that [`Self::take`] would return is overdue.
    pub fn is_next_overdue(&self, policy: &BatchPolicy, now: Instant) -> bool {
        let Some(work) = &self.work else { return false };
        let complete = work.next_complete().map(|batch| batch.created);
        let next = complete.or_else(|| work.open.as_ref().map(|open| open.created));
        next.is_some_and(|created| created.later(policy.delivery_timeout) <= now)
    }

    /// Whether the broker has everything before this batch: each batch of a lower order was written. It does not if one
    /// of them was lost or has no outcome yet.
    pub fn is_next(&self, batch: &Batch<C>) -> bool {
        // At rest there is no gap, and nothing without an outcome.
        let Some(work) = &self.work else { return true };
        let has_gap = self.numbering.is_some_and(|numbering| numbering.has_gap);
        work.in_flight.front().is_none_or(|&order| order >= batch.order)
            && work.again.front().is_none_or(|other| other.order > batch.order)
            && !(has_gap && work.gap_at < batch.order)
    }

    /// Failures in a row since the last batch was written or the leader changed.
    pub fn failures(&self) -> u32 {
        self.work.as_ref().map_or(0, |work| work.failures)
    }

    /// Whether records appended now wait for a batch that came back or that tries a new leader, and none was written
    /// since. Only an acknowledgement ends that, not a new leader: until then it is unknown whether the leader can
    /// write.
    pub fn is_doubtful(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.doubtful && !work.is_idle())
    }

    /// Whether a batch came back while batches sent after it have no outcome yet.
    pub fn is_regrouping(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.regrouping)
    }

    /// Whether a batch is complete or waits for its retry, so that it need not wait for more records.
    pub fn has_complete(&self) -> bool {
        let full = |open: &OpenBatch<C>| open.builder.len() >= open.complete_at;
        self.work.as_ref().is_some_and(|work| {
            !work.sealed.is_empty()
                || !work.again.is_empty()
                || work.open.as_ref().is_some_and(full)
        })
    }

    /// Whether a record in the next batch belongs to this partition, by its key or by the caller's choice.
    pub fn is_next_of_this_partition(&self) -> bool {
        let Some(work) = &self.work else { return false };
        let complete = work.next_complete().map(|batch| batch.bound);
        complete.or_else(|| work.open.as_ref().map(|open| open.bound)).unwrap_or(false)
    }

    /// Whether the next batch has not been sent, or could move once a broker has refused it.
    pub fn next_moves_if_refused(&self) -> bool {
        let next = self.work.as_ref().and_then(|work| work.next_complete());
        !self.is_next_of_this_partition() && next.is_none_or(Batch::moves_if_refused)
    }

    /// Bytes of the batch that [`Self::take`] would return, 0 if there is none; before compression if it is still open.
    pub fn next_len(&self) -> usize {
        let Some(work) = &self.work else { return 0 };
        let complete = work.next_complete().map(|batch| batch.payload.len());
        complete.or_else(|| work.open.as_ref().map(|open| open.builder.len())).unwrap_or(0)
    }

    /// Encoded bytes of all batches that are not in flight; the open batch counts uncompressed.
    pub fn waiting_bytes(&self) -> usize {
        let Some(work) = &self.work else { return 0 };
        let open = work.open.as_ref().map_or(0, |open| open.builder.len());
        let complete = work.again.iter().chain(&work.sealed).map(|batch| batch.payload.len());
        open + complete.sum::<usize>()
    }

    /// Number of batches that are not in flight, with the open one.
    pub fn waiting_batches(&self) -> usize {
        let Some(work) = &self.work else { return 0 };
        work.again.len() + work.sealed.len() + usize::from(work.open.is_some())
    }

    /// Whether there is nothing to send, now or later.
    pub fn is_drained(&self) -> bool {
        self.work.as_ref().is_none_or(|work| work.is_drained())
    }

    /// Whether a batch was sent and has no outcome yet, be it in flight or to be sent again.
    pub fn has_sent(&self) -> bool {
        let has_sent = |work: &Work<C>| !work.in_flight.is_empty() || !work.again.is_empty();
        self.work.as_deref().is_some_and(has_sent)
    }

    /// Whether every record has its outcome.
    pub fn is_idle(&self) -> bool {
        self.work.as_ref().is_none_or(|work| work.is_idle())
    }

    /// Seals the open batch so that it does not linger (flush).
    pub fn seal_now(&mut self, policy: &BatchPolicy) {
        if let Some(work) = &mut self.work {
            work.seal(policy);
        }
    }

    /// Takes out everything that is not in flight (close without waiting).
    pub fn abandon(&mut self, policy: &BatchPolicy) -> Vec<Batch<C>> {
        let Some(work) = &mut self.work else { return Vec::new() };
        work.seal(policy);
        work.again.drain(..).chain(work.sealed.drain(..)).collect()
    }

    /// Takes out every batch that is not in flight and forgets the others: their transaction ends without them. The
    /// owner of a batch in flight still reports its outcome, which has no effect here.
    pub fn give_up(&mut self, policy: &BatchPolicy) -> Vec<Batch<C>> {
        let unsent = self.abandon(policy);
        let given_up = Order::whole(self.next_order.get());
        if let Some(work) = &mut self.work {
            work.given_up = given_up;
            work.in_flight.clear();
            work.regrouping = false;
            work.not_before = None;
            work.failures = 0;
            work.doubtful = false;
        }
        unsent
    }
}

fn due(created: Instant, policy: &BatchPolicy) -> Readiness {
    if policy.linger.is_zero() {
        Readiness::Now
    } else {
        Readiness::At(created.later(policy.linger))
    }
}
