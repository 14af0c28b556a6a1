//! Completions: outcomes of records by tag, for each batch at once, without a future per record.
//!
//! A batch keeps the tags of its records. When it ends, each sink receives a [`CompletionRun`] with the tags and the
//! batch's outcome.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use curtail_proto::plant::{Plant, planted};

use super::{
    claim::ByTag,
    mailbox::{Receiver, Sender, mailbox},
    memory::{ENDED, Reservation},
};
use crate::{Error, Result, consumer::BatchMetadata, record::offset_in_batch};

/// Number of a batch's sinks that a record looks through for its own, newest first. Beyond it, a sink receives the
/// batch in several runs. This bounds the cost of a record, however many sinks there are.
const SINKS_LOOKED_AT: usize = 4;

/// The sending side of [`Completions`]: names the receiver in [`Producer::send_tagged`](super::Producer::send_tagged)
/// and [`Transaction::send_tagged`](crate::transaction::Transaction::send_tagged), and in those of
/// [`blocking`](crate::blocking).
///
/// Clones name the same receiver. One sink for many senders is cheaper than one for each. A sink belongs to no
/// producer: any of them may send with it, and each run counts in the `buffer.memory` of the one that sent its records.
#[derive(Clone, Debug)]
pub struct CompletionSink(Sender<CompletionRun>);

/// Outcomes of the records that were sent with a [`CompletionSink`], made by
/// [`Producer::completions`](super::Producer::completions).
///
/// Each record appears in exactly one run. While a partition keeps its leader, runs of its written batches arrive in
/// the order of its log. When [`Producer::flush`](super::Producer::flush) or
/// [`Transaction::commit`](crate::transaction::Transaction::commit) succeeds, the runs of all records sent before it
/// have arrived. If the producer is closed or dropped, its open records fail, and their runs arrive.
///
/// A batch holds its part of `buffer.memory` until its last run is dropped, so a task that sends must not be the only one
/// to receive. The receiver needs no runtime, and may outlive the producer.
///
/// Dropping it discards the outcomes, and cancels no record.
#[derive(Debug)]
pub struct Completions(Receiver<CompletionRun>);

/// Creates a sink and its receiver.
pub(super) fn pair() -> (CompletionSink, Completions) {
    let (to, runs) = mailbox();
    (CompletionSink(to), Completions(runs))
}

impl Completions {
    /// Waits for the next run. `None` once all sinks are dropped and no record of theirs is open.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call takes no run.
    pub async fn next(&mut self) -> Option<CompletionRun> {
        self.0.recv().await
    }

    /// Returns the next run, if there is one. See [`Self::is_ended`].
    pub fn try_next(&mut self) -> Option<CompletionRun> {
        self.0.try_recv()
    }

    /// Whether no run is left and none will come: all sinks are dropped, and no record of theirs is open.
    pub fn is_ended(&self) -> bool {
        self.0.is_ended()
    }
}

impl futures_core::Stream for Completions {
    type Item = CompletionRun;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<CompletionRun>> {
        self.0.poll_recv(cx)
    }
}

/// Records of one batch, by their tags, with the batch's outcome.
///
/// A batch that was too large for its topic is split, and each part is a run. A record that failed before it was in a
/// batch, because its topic stayed unknown, is a separate run.
#[derive(Debug)]
pub struct CompletionRun {
    outcome: Result<BatchMetadata>,
    /// In the order of the batch.
    tags: Vec<u64>,
    /// Index in the batch for each tag; empty for a record that was in no batch.
    indexes: Vec<u32>,
    /// Shared by the runs of the batch.
    _memory: Option<Arc<Reservation>>,
}

impl CompletionRun {
    /// The outcome, common to all records of the run.
    ///
    /// # Errors
    /// [`Error::NotAcknowledged`], as for a [`Delivery`](super::Delivery).
    pub fn outcome(&self) -> Result<&BatchMetadata, &Error> {
        self.outcome.as_ref()
    }

    /// Tags of the records, in the order of their sends.
    pub fn tags(&self) -> &[u64] {
        &self.tags
    }

    /// Tags and offsets of the records, in the order of their sends. An offset is `None` as in
    /// [`RecordMetadata::offset`](crate::RecordMetadata::offset), and for a failed record.
    pub fn records(&self) -> impl ExactSizeIterator<Item = (u64, Option<i64>)> + '_ {
        let base = self.outcome.as_ref().ok().and_then(|batch| batch.base_offset);
        self.tags.iter().enumerate().map(move |(at, tag)| {
            (*tag, self.indexes.get(at).and_then(|&index| offset_in_batch(base, index)))
        })
    }
}

impl CompletionSink {
    /// Reports a record that failed before it was in a batch.
    pub(super) fn fail(&self, tag: u64, error: Error, memory: Option<Reservation>) {
        self.report(CompletionRun {
            outcome: Err(error),
            tags: vec![tag],
            indexes: Vec::new(),
            _memory: memory.map(Arc::new),
        });
    }

    fn report(&self, run: CompletionRun) {
        // Without a receiver the outcome is discarded.
        self.0.send(run);
    }
}

/// The tagged records of one batch, by sink.
#[derive(Debug, Default)]
pub(super) struct Tagged(Vec<Tags>);

/// Records of one sink, in the order of the batch.
#[derive(Debug)]
struct Tags {
    sink: CompletionSink,
    tags: Vec<u64>,
    indexes: Vec<u32>,
}

impl Tagged {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the batch's `index`th record.
    pub(super) fn add(&mut self, ByTag { sink, tag }: ByTag<'_>, index: u32) {
        let mut newest = self.0.iter_mut().rev().take(SINKS_LOOKED_AT);
        match newest.find(|tags| tags.sink.0.is_same(&sink.0)) {
            Some(tags) => tags.add(tag, index),
            None => {
                let sink = sink.clone();
                self.0.push(Tags { sink, tags: vec![tag], indexes: vec![index] });
            }
        }
    }

    /// Splits off the first `records` records of the batch.
    pub(super) fn split_off(&mut self, records: u32) -> Self {
        let split = self.0.iter_mut().filter_map(|tags| tags.split_off(records)).collect();
        self.0.retain(|tags| !tags.tags.is_empty());
        Self(split)
    }

    /// Reports the outcome to each sink. The runs keep the batch's memory.
    pub(super) fn report(self, outcome: &Result<BatchMetadata>, memory: Option<Reservation>) {
        if outcome.is_err() && planted(Plant::FailedRunDropped) {
            return;
        }
        let memory = memory.map(|mut memory| {
            memory.charge_to(ENDED);
            Arc::new(memory)
        });
        for Tags { sink, tags, indexes } in self.0 {
            let (outcome, memory) = (outcome.clone(), memory.clone());
            sink.report(CompletionRun { outcome, tags, indexes, _memory: memory });
        }
    }
}

impl Tags {
    fn add(&mut self, tag: u64, index: u32) {
        self.tags.push(tag);
        self.indexes.push(index);
    }

    /// Splits off those of the batch's first `records` records, if there are any.
    fn split_off(&mut self, records: u32) -> Option<Self> {
        let split = self.indexes.partition_point(|&index| index < records);
        let tags: Vec<u64> = self.tags.drain(..split).collect();
        let indexes = self.indexes.drain(..split).collect();
        self.indexes.iter_mut().for_each(|index| *index -= records);
        (!tags.is_empty()).then(|| Self { sink: self.sink.clone(), tags, indexes })
    }
}
