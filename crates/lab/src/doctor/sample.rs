//! Result of one run of a load: phases of each record, from the producer's and the consumer's timestamps.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use crate::latency::Latencies;

/// A phase of a record's latency, as seen by clients. In the order in which a record passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// From the intended send time until its batch was handed to the socket: waiting to be sent, lingering, queueing.
    Produce,
    /// Until the leader had appended it.
    Publish,
    /// Until the other replicas had it.
    Commit,
    /// Until the consumer had read the records before it.
    CatchUp,
    /// Until a poll returned it.
    Fetch,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 5] =
        [Self::Produce, Self::Publish, Self::Commit, Self::CatchUp, Self::Fetch];

    /// Name of the phase.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Publish => "publish",
            Self::Commit => "commit",
            Self::CatchUp => "catch_up",
            Self::Fetch => "fetch",
        }
    }
}

/// Phase timestamps of a record that was read. Nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passage {
    /// Intended send time.
    pub(super) due: u64,
    /// When its batch was handed to the socket.
    pub(super) written: u64,
    /// When its acknowledgement was read.
    pub(super) acknowledged: u64,
    /// When the consumer had last returned all records it held.
    pub(super) drained: u64,
    /// Whether the partition had more records then, by the position and the known high watermark.
    pub(super) behind: bool,
    /// When the first batch after that had arrived.
    pub(super) fetched: u64,
    /// When a poll returned it.
    pub(super) read: u64,
}

/// Durations of a record's phases, which add up to its latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) produce: u64,
    /// From the socket until the acknowledgement, or until the record was read if that was earlier.
    pub(super) request: u64,
    pub(super) catch_up: u64,
    pub(super) fetch: u64,
}

impl Passage {
    pub(super) fn whole(&self) -> u64 {
        self.read.saturating_sub(self.due)
    }

    /// Splits the latency into phases.
    ///
    /// A consumer at the end of the partition at the acknowledgement waited for the record: the rest is
    /// fetch. While the consumer lagged or was busy with other records, the record waited: that part is
    /// catch-up.
    pub(super) fn parts(&self) -> Parts {
        let written = self.written.clamp(self.due, self.read.max(self.due));
        let acknowledged = self.acknowledged.clamp(written, self.read.max(written));
        let rest = self.read.saturating_sub(acknowledged);
        let waited = match self.behind {
            true => 0,
            false => self.fetched.saturating_sub(acknowledged.max(self.drained)),
        };
        let fetch = waited.min(rest);
        Parts {
            produce: written - self.due,
            request: acknowledged - written,
            catch_up: rest - fetch,
            fetch,
        }
    }
}

/// Bounds of a broker's clock offset from this machine's, in milliseconds, which all its append times allow.
/// Negative: the broker's clock is late.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClockOffset {
    /// Lower bound.
    pub at_least_ms: f64,
    /// Upper bound.
    pub at_most_ms: f64,
}

impl ClockOffset {
    /// Bounds from one record: the broker's append time, in whole milliseconds, lies between two times of
    /// this machine's clock in milliseconds.
    pub(super) fn of(append_ms: i64, written_ms: f64, acknowledged_ms: f64) -> Self {
        let append = append_ms as f64;
        Self { at_least_ms: append - acknowledged_ms, at_most_ms: append + 1.0 - written_ms }
    }

    /// Intersection of both bounds; the later one if they contradict each other, as after a clock step.
    pub(super) fn and(self, other: Self) -> Self {
        let both = Self {
            at_least_ms: self.at_least_ms.max(other.at_least_ms),
            at_most_ms: self.at_most_ms.min(other.at_most_ms),
        };
        if both.at_least_ms <= both.at_most_ms { both } else { other }
    }
}

/// Result of one run, or of several of the same kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// From the intended send time to the poll.
    pub(super) end_to_end: Latencies,
    /// From the intended to the actual send: the delay on this machine.
    pub(super) lateness: Latencies,
    /// From the socket to the acknowledgement.
    pub(super) request: Latencies,
    /// The same by leader.
    pub(super) by_broker: BTreeMap<i32, Latencies>,
    pub(super) clocks: BTreeMap<i32, ClockOffset>,
    /// The mean phases of the slowest records, one entry per run.
    pub(super) slowest: Vec<Parts>,
    /// The 99th percentile of each run.
    pub(super) p99_us: Vec<f64>,
    /// The mean request of each run, in microseconds.
    pub(super) request_us: Vec<f64>,
    /// Bytes per second of each run, from the first due time to the last acknowledgement.
    pub(super) bytes_per_second: Vec<f64>,
    /// Records not acknowledged.
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// Records acknowledged and never read.
    pub(super) missing: u64,
    /// Sends that had to wait for `buffer.memory`.
    pub(super) memory_waits: u64,
    /// Share (0 to 1) of the time from requests to responses in which sockets accepted requests.
    pub(super) write_share: f64,
    /// CPU utilisation of the machine, from 0 to 1.
    pub(super) busy: f64,
}

impl Sample {
    /// Builds the sample of one run, with the phases of its slowest 1% of records.
    pub(super) fn of(passages: &[Passage]) -> Self {
        let mut sample = Self::default();
        for passage in passages {
            sample.end_to_end.record_nanos(passage.whole());
            sample.request.record_nanos(passage.acknowledged.saturating_sub(passage.written));
        }
        sample.slowest.push(slowest(passages));
        sample.p99_us.push(micros(sample.end_to_end.quantile(0.99)));
        sample.request_us.push(micros(sample.request.mean()));
        sample
    }

    /// Adds a later run of the same kind.
    pub(super) fn join(&mut self, later: Self) {
        let (before, runs) = (self.p99_us.len() as f64, (self.p99_us.len() + 1) as f64);
        let mean = |sum: f64, next: f64| (sum * before + next) / runs;
        self.write_share = mean(self.write_share, later.write_share);
        self.busy = mean(self.busy, later.busy);
        self.end_to_end.add(&later.end_to_end);
        self.lateness.add(&later.lateness);
        self.request.add(&later.request);
        for (broker, latencies) in &later.by_broker {
            self.by_broker.entry(*broker).or_default().add(latencies);
        }
        for (broker, offset) in later.clocks {
            let known = self.clocks.entry(broker).or_insert(offset);
            *known = known.and(offset);
        }
        self.slowest.extend(later.slowest);
        self.p99_us.extend(later.p99_us);
        self.request_us.extend(later.request_us);
        self.bytes_per_second.extend(later.bytes_per_second);
        self.errors += later.errors;
        self.first_error = self.first_error.take().or(later.first_error);
        self.missing += later.missing;
        self.memory_waits += later.memory_waits;
    }
}

/// The mean phases of the slowest 1% of records, at least one.
fn slowest(passages: &[Passage]) -> Parts {
    if passages.is_empty() {
        return Parts::default();
    }
    let mut all: Vec<&Passage> = passages.iter().collect();
    let count = (all.len() / 100).max(1);
    let border = all.len() - count;
    all.select_nth_unstable_by_key(border, |passage| passage.whole());
    let sum =
        all[border..].iter().map(|passage| passage.parts()).fold(Parts::default(), |sum, parts| {
            Parts {
                produce: sum.produce + parts.produce,
                request: sum.request + parts.request,
                catch_up: sum.catch_up + parts.catch_up,
                fetch: sum.fetch + parts.fetch,
            }
        });
    let count = count as u64;
    Parts {
        produce: sum.produce / count,
        request: sum.request / count,
        catch_up: sum.catch_up / count,
        fetch: sum.fetch / count,
    }
}

pub(super) fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}
