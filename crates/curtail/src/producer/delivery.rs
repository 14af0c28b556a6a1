//! Outcomes of records: one shared result per batch, one small handle per record.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    task::{Context, Poll, ready},
};

use curtail_proto::accumulator::Share;
use tokio::time::Instant;

use super::{
    awaited::{Awaited, Slot},
    claim::ByTag,
    completions::{CompletionSink, Tagged},
    interceptor::Interception,
    memory::{ENDED, Reservation},
};
use crate::{
    Error, RecordMetadata, Result, consumer::BatchMetadata, record::offset_in_batch, span::Span,
};

/// Phase timestamps of a batch. They cost one clock reading for the first record, each request and each response.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// Append of the first record.
    pub created: Instant,
    /// Transfer of the first attempt to the socket.
    pub first_written: Instant,
    /// Transfer of the last attempt to the socket: the first one, unless that failed.
    pub written: Instant,
    /// Read of the response.
    pub acknowledged: Instant,
}

/// A batch that is in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    pub(super) base_offset: Option<i64>,
    pub(super) log_append_time: Option<i64>,
    pub(super) records: u32,
    pub(super) bytes: usize,
    pub(super) attempts: u32,
    pub(super) timing: Timing,
}

/// The result of a batch, shared by its records.
#[derive(Debug)]
pub(super) struct BatchResult {
    topic: Arc<str>,
    /// Target partition; final once there is an outcome.
    partition: AtomicI32,
    fate: Awaited<Fate>,
}

/// The end of a batch.
#[derive(Debug)]
enum Fate {
    /// All its records have this outcome.
    Settled(Result<Acknowledged>),
    /// The batch was too large: its records are in smaller batches, in order.
    Split(Box<[Part]>),
}

/// A batch with some records of a split batch.
#[derive(Debug)]
struct Part {
    /// Index of its first record in the original batch.
    first: u32,
    result: Arc<BatchResult>,
}

impl BatchResult {
    pub(super) fn new(topic: Arc<str>, partition: i32) -> Arc<Self> {
        let partition = AtomicI32::new(partition);
        Arc::new(Self { topic, partition, fate: Awaited::new() })
    }

    /// The partition. Relaxed is enough: a reader of the outcome sees all stores before it.
    fn partition(&self) -> i32 {
        self.partition.load(Ordering::Relaxed)
    }

    /// Whether every record has its outcome.
    pub(super) fn is_resolved(&self) -> bool {
        match self.fate.get() {
            None => false,
            Some(Fate::Settled(_)) => true,
            Some(Fate::Split(parts)) => parts.iter().all(|part| part.result.is_resolved()),
        }
    }

    /// The outcome common to the records, if they have one.
    fn outcome(&self) -> Option<&Result<Acknowledged>> {
        match self.fate.get()? {
            Fate::Settled(outcome) => Some(outcome),
            Fate::Split(_) => None,
        }
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn resolve(&self, outcome: Result<Acknowledged>) {
        self.fate.set(Fate::Settled(outcome));
    }

    /// Records that the records are now in these batches, each with its number of records.
    fn became(&self, parts: impl IntoIterator<Item = (u32, Arc<Self>)>) {
        let mut first = 0;
        let parts = parts.into_iter().map(|(records, result)| {
            let part = Part { first, result };
            first += records;
            part
        });
        self.fate.set(Fate::Split(parts.collect()));
    }

    /// Waits for the outcome of every record, success or failure.
    pub(super) async fn resolved(self: Arc<Self>) {
        let mut open = vec![self];
        while let Some(result) = open.pop() {
            if let Fate::Split(parts) = result.fate.wait().await {
                open.extend(parts.iter().map(|part| part.result.clone()));
            }
        }
    }

    /// Translates the outcome for one record: the `index`th of the batch, with `timestamp`.
    pub(super) fn describe(
        &self,
        outcome: &Result<Acknowledged>,
        index: u32,
        timestamp: i64,
    ) -> Result<RecordMetadata> {
        let acknowledged = outcome.as_ref().map_err(Clone::clone)?;
        Ok(RecordMetadata {
            topic: self.topic.clone(),
            partition: self.partition(),
            offset: offset_in_batch(acknowledged.base_offset, index),
            timestamp: acknowledged.log_append_time.unwrap_or(timestamp),
            log_append_time: acknowledged.log_append_time,
        })
    }

    /// Translates the outcome for the batch as a whole.
    fn describe_batch(&self, outcome: &Result<Acknowledged>) -> Result<BatchMetadata> {
        let batch = outcome.as_ref().map_err(Clone::clone)?;
        Ok(BatchMetadata {
            topic: self.topic.clone(),
            partition: self.partition(),
            base_offset: batch.base_offset,
            records: batch.records,
            bytes: batch.bytes,
            attempts: batch.attempts,
            log_append_time: batch.log_append_time,
            timing: batch.timing,
        })
    }
}

/// A split batch and its parts, each with its number of records.
#[derive(Debug)]
#[must_use]
pub(super) struct Divided {
    whole: Arc<BatchResult>,
    parts: Vec<(u32, Arc<BatchResult>)>,
}

impl Divided {
    /// Notifies those who wait for the batch. Not under a partition's lock: it wakes them.
    pub(super) fn tell(self) {
        self.whole.became(self.parts);
    }
}

/// A record that waits for its topic's metadata: its batch, or its error.
#[derive(Debug)]
pub(super) struct Ticket {
    topic: Arc<str>,
    /// -1 if unknown.
    partition: i32,
    placed: Awaited<Result<InBatch>>,
}

impl Ticket {
    pub(super) fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Waits until the record is in a batch, or has failed.
    pub(super) async fn settled(self: Arc<Self>) {
        self.placed.wait().await;
    }
}

/// The sending side of a [`Ticket`]. If dropped, it fails the record, so that no waiter waits indefinitely.
#[derive(Debug)]
pub(super) struct Placement {
    ticket: Arc<Ticket>,
    /// The sink that also receives the outcome.
    tagged: Option<(CompletionSink, u64)>,
}

impl Placement {
    pub(super) fn new(
        topic: Arc<str>,
        partition: i32,
        tagged: Option<(CompletionSink, u64)>,
    ) -> Self {
        Self { ticket: Arc::new(Ticket { topic, partition, placed: Awaited::new() }), tagged }
    }

    pub(super) fn ticket(&self) -> &Arc<Ticket> {
        &self.ticket
    }

    pub(super) fn tag(&self) -> Option<ByTag<'_>> {
        self.tagged.as_ref().map(|(sink, tag)| ByTag { sink, tag: *tag })
    }

    /// Records that the record is in the batch of `delivery`.
    pub(super) fn placed(self, delivery: &Delivery) {
        if let Place::InBatch(in_batch) = &delivery.place {
            self.ticket.placed.set(Ok(in_batch.clone()));
        }
    }

    /// The error that the record's sender receives.
    pub(super) fn error(&self, cause: Error) -> Error {
        Error::NotAcknowledged {
            topic: self.ticket.topic.clone(),
            partition: self.ticket.partition,
            may_have_been_written: false,
            cause: Arc::new(cause),
        }
    }

    /// Fails the record with such an error. `memory` bounds the failures that no receiver has taken.
    pub(super) fn fail(self, error: Error, memory: Option<Reservation>) {
        self.resolve_failed(error, memory);
    }

    fn resolve_failed(&self, error: Error, memory: Option<Reservation>) {
        if let Some(ByTag { sink, tag }) = self.tag() {
            sink.fail(tag, error.clone(), memory);
        }
        self.ticket.placed.set(Err(error));
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        if self.ticket.placed.get().is_none() {
            self.resolve_failed(self.error(Error::Closed), None);
        }
    }
}

/// The sending side of a [`BatchResult`], with the memory that the batch holds.
///
/// If it is dropped without an outcome, as for in-flight batches of a closed producer, it resolves the batch with
/// [`Error::NotAcknowledged`]. So no waiter waits indefinitely.
#[derive(Debug)]
pub(super) struct Completion {
    result: Arc<BatchResult>,
    memory: Option<Reservation>,
    /// Present if there are interceptors.
    interception: Option<Interception>,
    tagged: Tagged,
}

/// What the end of a batch changes, in this order: memory, runs of its sinks, its result.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) result: Arc<BatchResult>,
    pub(super) outcome: Result<Acknowledged>,
    tagged: Tagged,
    memory: Option<Reservation>,
}

impl Ending {
    /// The batch waits for interceptors: its memory no longer counts in the broker's window.
    pub(super) fn leave_window(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.charge_to(ENDED);
        }
    }

    /// Reports the outcome. Not under a partition's lock: it wakes the waiters.
    pub(super) fn report(self) {
        let Self { result, outcome, tagged, memory } = self;
        // A reader of the outcome must find the memory returned, unless a run keeps it.
        match tagged.is_empty() {
            true => drop(memory),
            false => tagged.report(&result.describe_batch(&outcome), memory),
        }
        result.resolve(outcome);
    }
}

impl Completion {
    pub(super) fn new(
        result: Arc<BatchResult>,
        memory: Reservation,
        interception: Option<Interception>,
    ) -> Self {
        Self { result, memory: Some(memory), interception, tagged: Tagged::default() }
    }

    /// Adds the memory of a batch that has grown.
    pub(super) fn hold(&mut self, more: Reservation) {
        match &mut self.memory {
            Some(memory) => memory.add(more),
            None => self.memory = Some(more),
        }
    }

    /// Bytes of `buffer.memory` that the batch holds.
    pub(super) fn reserved(&self) -> usize {
        self.memory.as_ref().map_or(0, Reservation::bytes)
    }

    /// Bytes of the records, as the broker's gate counts them.
    pub(super) fn record_bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, Reservation::record_bytes)
    }

    /// Whether the batch waits for something else than its broker's pace.
    pub(super) fn set_parked(&mut self, is_parked: bool) {
        if let Some(memory) = &mut self.memory {
            memory.set_parked(is_parked);
        }
    }

    /// Accounts the batch's memory to another broker.
    pub(super) fn charge_to(&mut self, broker: i32) {
        if let Some(memory) = &mut self.memory {
            memory.charge_to(broker);
        }
    }

    /// Moves the batch to another partition, whose leader is `broker`.
    pub(super) fn moved_to(&mut self, partition: i32, broker: i32) {
        self.result.partition.store(partition, Ordering::Relaxed);
        self.charge_to(broker);
    }

    pub(super) fn result(&self) -> &Arc<BatchResult> {
        &self.result
    }

    /// Records that a record with `timestamp` has joined the batch, so that interceptors receive its outcome.
    pub(super) fn joined(&mut self, timestamp: i64, bytes: usize) {
        if let Some(memory) = &mut self.memory {
            memory.add_record(bytes);
        }
        if let Some(interception) = &self.interception {
            interception.joined(timestamp);
        }
    }

    /// Reports the outcome of the batch's `index`th record to a sink.
    pub(super) fn tag(&mut self, tag: ByTag<'_>, index: u32) {
        self.tagged.add(tag, index);
    }

    /// Splits the batch: returns one completion per share of records and bytes, with that share of the memory. The
    /// waiters must still be notified.
    pub(super) fn divide(mut self, shares: &[Share]) -> (Vec<Self>, Divided) {
        let mut memory = self.memory.take();
        let mut interception = self.interception.take();
        let mut parts: Vec<Self> = shares
            .iter()
            .map(|share| Self {
                result: BatchResult::new(self.result.topic.clone(), self.result.partition()),
                memory: memory.as_mut().map(|all| all.split_off(share.bytes)),
                interception: interception.as_mut().map(|all| all.split_off(share.records)),
                tagged: self.tagged.split_off(share.records),
            })
            .collect();
        if let (Some(last), Some(rest)) = (parts.last_mut(), memory) {
            last.hold(rest);
        }
        let records = shares.iter().map(|share| share.records);
        let results = records.zip(parts.iter().map(|part| part.result.clone())).collect();
        (parts, Divided { whole: self.result.clone(), parts: results })
    }

    pub(super) fn acknowledge(mut self, acknowledged: Acknowledged) {
        self.resolve(Ok(acknowledged));
    }

    pub(super) fn fail(mut self, cause: Error, may_have_been_written: bool) {
        self.resolve_failed(cause, may_have_been_written);
    }

    fn resolve_failed(&mut self, cause: Error, may_have_been_written: bool) {
        self.resolve(Err(Error::NotAcknowledged {
            topic: self.result.topic.clone(),
            partition: self.result.partition(),
            may_have_been_written,
            cause: Arc::new(cause),
        }));
    }

    fn resolve(&mut self, outcome: Result<Acknowledged>) {
        let (memory, tagged) = (self.memory.take(), std::mem::take(&mut self.tagged));
        let ending = Ending { result: self.result.clone(), outcome, tagged, memory };
        match self.interception.take() {
            Some(interception) => interception.tell(ending),
            None => ending.report(),
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        // A completion that was resolved has no memory left.
        if self.memory.is_some() && !self.result.is_resolved() {
            self.resolve_failed(Error::Closed, true);
        }
    }
}

/// The acknowledgement of one record, to be awaited or polled.
///
/// Dropping it does not cancel the record. [`crate::Producer::flush`] then waits for the record, but does not report its
/// failure.
///
/// # Cancel safety
/// Cancel safe: `&mut delivery` can be awaited any number of times before it is ready. Awaiting by value consumes it.
#[derive(Debug)]
#[must_use = "only the delivery reports a record that failed; await it, or drop it to ignore failures"]
pub struct Delivery {
    place: Place,
    /// Its waker's slot in the batch or the ticket of `place`.
    slot: Slot,
    span: Span,
}

/// The record's current place.
#[derive(Debug)]
enum Place {
    InBatch(InBatch),
    /// Its topic is unknown so far.
    Waiting(Arc<Ticket>),
}

/// A record of a batch.
#[derive(Clone, Debug)]
struct InBatch {
    result: Arc<BatchResult>,
    index: u32,
    timestamp: i64,
}

impl InBatch {
    /// Returns the record's current batch, and its index there.
    fn now(&self) -> (&Arc<BatchResult>, u32) {
        let (mut result, mut index) = (&self.result, self.index);
        while let Some(Fate::Split(parts)) = result.fate.get() {
            let Some(part) = parts.iter().rfind(|part| part.first <= index) else { break };
            (result, index) = (&part.result, index - part.first);
        }
        (result, index)
    }

    /// Returns the record's place in its current batch.
    fn followed(&self) -> Self {
        let (result, index) = self.now();
        Self { result: result.clone(), index, timestamp: self.timestamp }
    }
}

impl Delivery {
    /// Creates the handle of a batch's `index`th record, with `timestamp`.
    pub(super) fn new(result: Arc<BatchResult>, index: u32, timestamp: i64) -> Self {
        let place = Place::InBatch(InBatch { result, index, timestamp });
        Self { place, slot: Slot::NONE, span: Span::NONE }
    }

    pub(super) fn waiting(ticket: Arc<Ticket>) -> Self {
        Self { place: Place::Waiting(ticket), slot: Slot::NONE, span: Span::NONE }
    }

    /// The span of the send ends with the outcome.
    pub(super) fn with_span(mut self, span: Span) -> Self {
        self.span = span;
        self
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<RecordMetadata>> {
        loop {
            let next = match &self.place {
                Place::Waiting(ticket) => {
                    match ready!(ticket.placed.poll(cx, &mut self.slot)).clone() {
                        Ok(in_batch) => in_batch,
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                Place::InBatch(in_batch) => {
                    let InBatch { result, index, timestamp } = in_batch;
                    match ready!(result.fate.poll(cx, &mut self.slot)) {
                        Fate::Settled(outcome) => {
                            return Poll::Ready(result.describe(outcome, *index, *timestamp));
                        }
                        Fate::Split(_) => in_batch.followed(),
                    }
                }
            };
            self.place = Place::InBatch(next);
        }
    }

    fn in_batch(&self) -> Option<&InBatch> {
        match &self.place {
            Place::InBatch(in_batch) => Some(in_batch),
            Place::Waiting(ticket) => ticket.placed.get()?.as_ref().ok(),
        }
    }

    /// Returns the outcome, if there is one.
    pub fn outcome(&self) -> Option<Result<RecordMetadata>> {
        if let Place::Waiting(ticket) = &self.place
            && let Some(Err(error)) = ticket.placed.get()
        {
            return Some(Err(error.clone()));
        }
        let in_batch = self.in_batch()?;
        let (result, index) = in_batch.now();
        Some(result.describe(result.outcome()?, index, in_batch.timestamp))
    }

    /// Returns the phase timestamps of the record's batch; `None` before the acknowledgement, and for a failed batch.
    pub fn timing(&self) -> Option<Timing> {
        let outcome = self.in_batch()?.now().0.outcome()?;
        outcome.as_ref().ok().map(|acknowledged| acknowledged.timing)
    }

    /// Whether both records are in the same batch, and so share outcome and timing. A batch that is too large for its
    /// topic is split; then a later call compares the parts. A record whose topic is unknown so far is in no batch.
    pub fn shares_batch_with(&self, other: &Self) -> bool {
        match (self.in_batch(), other.in_batch()) {
            (Some(own), Some(other)) => Arc::ptr_eq(own.now().0, other.now().0),
            _ => false,
        }
    }

    /// Returns the outcome of the record's whole batch, if there is one: the same for all its records.
    pub fn batch_outcome(&self) -> Option<Result<BatchMetadata>> {
        let result = self.in_batch()?.now().0;
        Some(result.describe_batch(result.outcome()?))
    }
}

impl Future for Delivery {
    type Output = Result<RecordMetadata>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.poll_outcome(cx));
        self.span.delivered(&outcome);
        Poll::Ready(outcome)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        match &self.place {
            Place::Waiting(ticket) => ticket.placed.leave(&mut self.slot),
            Place::InBatch(in_batch) => in_batch.result.fate.leave(&mut self.slot),
        }
    }
}
