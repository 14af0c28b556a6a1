//! Completions: outcomes of records by tag, for each batch at once, without a future per record.
//!
//! A batch keeps the tags of its records. When it ends, each sink receives one [`CompletionRun`] with the tags and the
//! batch's outcome.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use curtail_proto::plant::{Plant, planted};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    claim::ByTag,
    memory::{NOWHERE, Reservation},
};
use crate::{BatchMetadata, Error, Result};

/// Number of a batch's sinks that a record looks through for its own, newest first. Beyond it, a sink receives the
/// batch in several runs. This bounds the cost of a record, however many sinks there are.
const SINKS_LOOKED_AT: usize = 4;

/// The sending side of [`Completions`]: names the receiver in
/// [`Producer::send_tagged`](super::Producer::send_tagged).
///
/// Clones name the same receiver. One sink for many senders is cheaper than one for each.
#[derive(Clone, Debug)]
pub struct CompletionSink(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    to: UnboundedSender<CompletionRun>,
    /// Tags of the last run, to allocate as much for the next one.
    last: AtomicUsize,
}

/// Outcomes of the records that were sent with a [`CompletionSink`], made by
/// [`Producer::completions`](super::Producer::completions).
///
/// Each record appears in exactly one run. Runs of one partition arrive in the order of its log; those of failed
/// batches and of several partitions have no common order. A run's records hold their part of `buffer.memory` until the
/// run is dropped, so a task that sends must not be the only one to receive.
///
/// Dropping it discards the outcomes, and cancels no record.
#[derive(Debug)]
pub struct Completions(UnboundedReceiver<CompletionRun>);

/// Creates a sink and its receiver.
pub(super) fn pair() -> (CompletionSink, Completions) {
    let (to, runs) = unbounded_channel();
    (CompletionSink(Arc::new(Inner { to, last: AtomicUsize::new(0) })), Completions(runs))
}

impl Completions {
    /// Waits for the next run. `None` once all sinks are dropped and no record of theirs is open.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call takes no run.
    pub async fn next(&mut self) -> Option<CompletionRun> {
        self.0.recv().await
    }

    /// Returns the next run, if there is one.
    pub fn try_next(&mut self) -> Option<CompletionRun> {
        self.0.try_recv().ok()
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
/// batch, because its topic stayed unknown, is a run of its own.
#[derive(Debug)]
pub struct CompletionRun {
    outcome: Result<BatchMetadata>,
    /// In the order of the batch.
    tags: Vec<u64>,
    /// Index in the batch for each tag; empty for a record that was in no batch.
    indexes: Vec<u32>,
    _memory: Option<Reservation>,
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
            let index = self.indexes.get(at).copied().map(i64::from);
            // A base offset so large that the record's offset overflows is not valid.
            (*tag, base.zip(index).and_then(|(base, index)| base.checked_add(index)))
        })
    }
}

impl CompletionSink {
    /// Reports a record that failed before it was in a batch.
    pub(super) fn fail(&self, tag: u64, error: Error) {
        let run = CompletionRun {
            outcome: Err(error),
            tags: vec![tag],
            indexes: Vec::new(),
            _memory: None,
        };
        self.report(run);
    }

    fn report(&self, run: CompletionRun) {
        // Nobody receives after the receiver was dropped.
        let _ = self.0.to.send(run);
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
        match newest.find(|tags| Arc::ptr_eq(&tags.sink.0, &sink.0)) {
            Some(tags) => tags.add(tag, index),
            None => {
                let mut tags = Tags::for_sink(sink.clone());
                tags.add(tag, index);
                self.0.push(tags);
            }
        }
    }

    /// Splits off the first `records` records of the batch.
    pub(super) fn split_off(&mut self, records: u32) -> Self {
        let split = self.0.iter_mut().filter_map(|tags| tags.split_off(records)).collect();
        self.0.retain(|tags| !tags.tags.is_empty());
        Self(split)
    }

    /// Reports the outcome to each sink. The last run keeps the batch's memory, which no longer counts in the broker's
    /// window.
    pub(super) fn report(self, outcome: &Result<BatchMetadata>, mut memory: Option<Reservation>) {
        if outcome.is_err() && planted(Plant::FailedRunDropped) {
            return;
        }
        if let Some(memory) = &mut memory {
            memory.charge_to(NOWHERE);
        }
        let last = self.0.len().saturating_sub(1);
        for (at, Tags { sink, tags, indexes }) in self.0.into_iter().enumerate() {
            sink.0.last.store(tags.len(), Ordering::Relaxed);
            let memory = if at == last { memory.take() } else { None };
            sink.report(CompletionRun { outcome: outcome.clone(), tags, indexes, _memory: memory });
        }
    }
}

impl Tags {
    fn for_sink(sink: CompletionSink) -> Self {
        let expected = sink.0.last.load(Ordering::Relaxed);
        let (tags, indexes) = (Vec::with_capacity(expected), Vec::with_capacity(expected));
        Self { sink, tags, indexes }
    }

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
