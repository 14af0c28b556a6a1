//! Records under way, in the order in which they were sent.
//!
//! Acknowledgements carry the time at which the client read them, so collecting them late distorts nothing: the
//! sending thread looks at them between sends, and no other thread has to be woken for a record.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use curtail::Delivery;

use crate::{
    latency::Latencies,
    perf::{Error, Result, Window, pacer::Pacer},
};

/// Records in a row that travel in the same batch: one handle answers for all.
struct Run {
    delivery: Delivery,
    count: u64,
    bytes: u64,
}

/// What became of records.
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
    runs: VecDeque<Run>,
    stamps: VecDeque<u64>,
    /// Records settled: the index of the first stamp.
    settled: u64,
    tally: Tally,
    recent: Recent,
}

impl Outstanding {
    pub(super) fn new(start: Instant, pacer: Option<Pacer>) -> Self {
        Self {
            start,
            pacer,
            runs: VecDeque::new(),
            stamps: VecDeque::new(),
            settled: 0,
            tally: Tally::default(),
            recent: Recent::default(),
        }
    }

    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Adds a record. True when it is the first of a batch, a good moment to look for acknowledgements.
    pub(super) fn push(&mut self, delivery: Delivery, sent: u64, bytes: u64) -> bool {
        self.stamps.push_back(sent);
        if let Some(last) = self.runs.back_mut()
            && last.delivery.shares_batch_with(&delivery)
        {
            last.count += 1;
            last.bytes += bytes;
            return false;
        }
        self.runs.push_back(Run { delivery, count: 1, bytes });
        true
    }

    /// Settles records from the front for as long as their fate is known.
    pub(super) fn settle_resolved(&mut self) {
        while let Some(run) = self.runs.front() {
            // Asked once: between two questions the client's thread may give the answer.
            let Some(outcome) = run.delivery.outcome() else { return };
            let (count, bytes, timing) = (run.count, run.bytes, run.delivery.timing());
            self.runs.pop_front();
            match (outcome, timing) {
                (Ok(_), Some(timing)) => {
                    let since = |at: tokio::time::Instant| {
                        at.into_std().saturating_duration_since(self.start).as_nanos() as u64
                    };
                    let (written, acknowledged) =
                        (since(timing.written), since(timing.acknowledged));
                    self.acknowledged(count, bytes, written, acknowledged);
                }
                (outcome, _) => self.failed(count, outcome.err()),
            }
        }
    }

    fn acknowledged(&mut self, count: u64, bytes: u64, written: u64, acknowledged: u64) {
        let tally = &mut self.tally;
        tally.bytes += bytes;
        tally.request.record_many(acknowledged.saturating_sub(written), count);
        let stamps = self.stamps.range(..count as usize).copied();
        tally.sent.record_alike(stamps.clone().map(|sent| acknowledged.saturating_sub(sent)));
        tally.queue.record_alike(stamps.clone().map(|sent| written.saturating_sub(sent)));
        if let Some(pacer) = &self.pacer {
            tally.intended.record_alike((self.settled..self.settled + count).map(|index| {
                let due = pacer.due(index).saturating_duration_since(self.start).as_nanos() as u64;
                acknowledged.saturating_sub(due)
            }));
        }
        for sent in stamps {
            let latency = acknowledged.saturating_sub(sent);
            self.recent.sum += latency;
            self.recent.max = self.recent.max.max(latency);
        }
        self.stamps.drain(..count as usize);
        self.recent.records += count;
        self.recent.bytes += bytes;
        self.settled += count;
    }

    fn failed(&mut self, count: u64, error: Option<curtail::Error>) {
        self.tally.errors += count;
        self.tally.first_error = self.tally.first_error.take().or(error);
        self.stamps.drain(..count as usize);
        self.settled += count;
    }

    /// What was acknowledged since the last call.
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

    /// The tally, once everything is settled.
    ///
    /// # Errors
    /// A record whose fate is unknown after a flush.
    pub(super) fn finish(self) -> Result<Tally> {
        if self.runs.is_empty() {
            return Ok(self.tally);
        }
        let left = self.stamps.len();
        Err(Error::Unexpected(format!(
            "{left} records are neither acknowledged nor failed after a flush"
        )))
    }
}
