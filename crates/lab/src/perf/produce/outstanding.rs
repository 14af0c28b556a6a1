//! In-flight records, in the order in which they were sent.
//!
//! Acknowledgements carry the time at which the client read them, so collecting them late distorts nothing.
//! The sending thread collects them between sends, and no other thread has to wake up for a record.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use curtail::Delivery;

use crate::{
    latency::Latencies,
    perf::{Error, Pacer, Result, Window},
};

/// An in-flight record.
struct Sent {
    delivery: Delivery,
    /// Send time.
    at: u64,
    bytes: u64,
}

/// Outcomes of records.
#[derive(Default)]
pub(super) struct Tally {
    /// From the intended send time; empty without a rate.
    pub(super) intended: Latencies,
    /// From the actual send.
    pub(super) sent: Latencies,
    pub(super) queue: Latencies,
    pub(super) request: Latencies,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<curtail::Error>,
}

impl Tally {
    pub(super) fn add(&mut self, earlier: Self) {
        self.intended.add(&earlier.intended);
        self.sent.add(&earlier.sent);
        self.queue.add(&earlier.queue);
        self.request.add(&earlier.request);
        self.bytes += earlier.bytes;
        self.errors += earlier.errors;
        self.first_error = earlier.first_error.or(self.first_error.take());
    }
}

#[derive(Default)]
struct Recent {
    records: u64,
    bytes: u64,
    sum: u64,
    max: u64,
}

/// Records sent and not yet settled. Times are nanoseconds since the start.
pub(super) struct Outstanding {
    start: Instant,
    pacer: Option<Pacer>,
    sent: VecDeque<Sent>,
    /// Lengths of the runs of consecutive records in one batch, covering all of `sent`. The outcome of a
    /// run's first record holds for all of it, unless the batch is split.
    runs: VecDeque<usize>,
    /// Records settled, and so the index of the first one in flight.
    settled: u64,
    tally: Tally,
    recent: Recent,
}

impl Outstanding {
    pub(super) fn new(start: Instant, pacer: Option<Pacer>) -> Self {
        Self {
            start,
            pacer,
            sent: VecDeque::new(),
            runs: VecDeque::new(),
            settled: 0,
            tally: Tally::default(),
            recent: Recent::default(),
        }
    }

    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Adds a record. Returns `true` for the first record of a batch, a good time to collect
    /// acknowledgements.
    pub(super) fn push(&mut self, delivery: Delivery, sent: u64, bytes: u64) -> bool {
        let last = self.sent.back().map(|last| &last.delivery);
        let joins = last.is_some_and(|last| last.shares_batch_with(&delivery));
        self.sent.push_back(Sent { delivery, at: sent, bytes });
        match self.runs.back_mut() {
            Some(count) if joins => {
                *count += 1;
                false
            }
            _ => {
                self.runs.push_back(1);
                true
            }
        }
    }

    /// Settles records from the front while their outcome is known.
    pub(super) fn settle_resolved(&mut self) {
        while let (Some(first), Some(&run)) = (self.sent.front(), self.runs.front()) {
            // Read once: the client's thread may set the outcome between two reads.
            let Some(outcome) = first.delivery.outcome() else { return };
            let timing = first.delivery.timing();
            let count = self.alike(run);
            match self.runs.front_mut() {
                Some(run) if *run > count => *run -= count,
                _ => drop(self.runs.pop_front()),
            }
            match (outcome, timing) {
                (Ok(_), Some(timing)) => {
                    let since = |at: tokio::time::Instant| {
                        at.into_std().saturating_duration_since(self.start).as_nanos() as u64
                    };
                    let (written, acknowledged) =
                        (since(timing.written), since(timing.acknowledged));
                    self.acknowledged(count, written, acknowledged);
                }
                (outcome, _) => self.failed(count, outcome.err()),
            }
        }
    }

    /// Number of the first `run` records that share the outcome of the first one: all, unless their batch was
    /// split. The records of each part are consecutive.
    fn alike(&self, run: usize) -> usize {
        let first = &self.sent[0].delivery;
        let same = |sent: &&Sent| sent.delivery.shares_batch_with(first);
        match self.sent.get(run - 1).is_none_or(|last| same(&last)) {
            true => run,
            false => self.sent.iter().take(run).take_while(same).count().max(1),
        }
    }

    fn acknowledged(&mut self, count: usize, written: u64, acknowledged: u64) {
        let records = count as u64;
        let bytes = self.sent.range(..count).map(|sent| sent.bytes).sum::<u64>();
        let tally = &mut self.tally;
        tally.bytes += bytes;
        tally.request.record_many(acknowledged.saturating_sub(written), records);
        let stamps = self.sent.range(..count).map(|sent| sent.at);
        tally.sent.record_alike(stamps.clone().map(|sent| acknowledged.saturating_sub(sent)));
        tally.queue.record_alike(stamps.clone().map(|sent| written.saturating_sub(sent)));
        if let Some(pacer) = &self.pacer {
            tally.intended.record_alike((self.settled..self.settled + records).map(|index| {
                let due = pacer.due(index).saturating_duration_since(self.start).as_nanos() as u64;
                acknowledged.saturating_sub(due)
            }));
        }
        for sent in stamps {
            let latency = acknowledged.saturating_sub(sent);
            self.recent.sum += latency;
            self.recent.max = self.recent.max.max(latency);
        }
        self.recent.records += records;
        self.recent.bytes += bytes;
        self.settle(count);
    }

    fn failed(&mut self, count: usize, error: Option<curtail::Error>) {
        self.tally.errors += count as u64;
        self.tally.first_error = self.tally.first_error.take().or(error);
        self.settle(count);
    }

    fn settle(&mut self, count: usize) {
        self.sent.drain(..count);
        self.settled += count as u64;
    }

    /// Records acknowledged since the last call.
    pub(super) fn take_window(&mut self, elapsed: Duration) -> Window {
        let recent = std::mem::take(&mut self.recent);
        Window {
            records: recent.records,
            bytes: recent.bytes,
            elapsed,
            avg: Duration::from_nanos(recent.sum / recent.records.max(1)),
            max: Duration::from_nanos(recent.max),
        }
    }

    /// The tally, once all records are settled.
    ///
    /// # Errors
    /// A record without an outcome after a flush.
    pub(super) fn finish(self) -> Result<Tally> {
        if self.runs.is_empty() {
            return Ok(self.tally);
        }
        let left = self.sent.len();
        Err(Error::Unexpected(format!(
            "{left} records are neither acknowledged nor failed after a flush"
        )))
    }
}
