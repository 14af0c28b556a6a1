//! What one run of a load was like: the way of each record put together from the producer's and the consumer's stamps.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use crate::latency::Latencies;

/// Where a record's time can go, as far as a client sees. In the order in which a record passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// From the intended send time until its batch was handed to the socket: waiting to be sent, lingering, queueing.
    Produce,
    /// Until the leader had it.
    Publish,
    /// Until the other replicas had it.
    Commit,
    /// Until the consumer had read what was before it.
    CatchUp,
    /// Until a poll gave it out.
    Fetch,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Produce, Self::Publish, Self::Commit, Self::CatchUp, Self::Fetch];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Publish => "publish",
            Self::Commit => "commit",
            Self::CatchUp => "catch-up",
            Self::Fetch => "fetch",
        }
    }
}

/// The stations of a record that was read. Nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passage {
    /// It was to be sent.
    pub(super) due: u64,
    /// Its batch was handed to the socket.
    pub(super) written: u64,
    /// Its acknowledgement was read.
    pub(super) acknowledged: u64,
    /// The consumer had given out all it had, the last time before.
    pub(super) drained: u64,
    /// Whether the partition had more than that then, by the position and the high watermark known.
    pub(super) behind: bool,
    /// The first batch since then was there.
    pub(super) fetched: u64,
    /// A poll gave it out.
    pub(super) read: u64,
}

/// How long a record was where. The parts make up the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) produce: u64,
    /// Until the acknowledgement, or until it was read if that was earlier.
    pub(super) request: u64,
    pub(super) catch_up: u64,
    pub(super) fetch: u64,
}

impl Passage {
    pub(super) fn whole(&self) -> u64 {
        self.read.saturating_sub(self.due)
    }

    /// Takes the way apart. A consumer that was at the end when the record was acknowledged waited for it: that is
    /// fetch; while it was behind or busy with what it had, the record waited for it: that is catch-up.
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

/// How far a broker's clock may be ahead of this machine's, in milliseconds, negative where it is behind: what all its
/// append times allow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClockOffset {
    /// The least.
    pub at_least_ms: f64,
    /// The most.
    pub at_most_ms: f64,
}

impl ClockOffset {
    /// From one record: the broker's time of the append, in whole milliseconds, which lies between two moments of this
    /// machine's clock in milliseconds.
    pub(super) fn of(append_ms: i64, written_ms: f64, acknowledged_ms: f64) -> Self {
        let append = append_ms as f64;
        Self { at_least_ms: append - acknowledged_ms, at_most_ms: append + 1.0 - written_ms }
    }

    /// What both allow; the later one where they contradict each other, as after a step of a clock.
    pub(super) fn and(self, other: Self) -> Self {
        let both = Self {
            at_least_ms: self.at_least_ms.max(other.at_least_ms),
            at_most_ms: self.at_most_ms.min(other.at_most_ms),
        };
        if both.at_least_ms <= both.at_most_ms { both } else { other }
    }
}

/// What one run, or several of the same kind, were like.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// From the intended send time to the poll.
    pub(super) end_to_end: Latencies,
    /// From the intended to the actual send: what this machine was late.
    pub(super) lateness: Latencies,
    /// From the socket to the acknowledgement.
    pub(super) request: Latencies,
    /// The same by leader.
    pub(super) by_broker: BTreeMap<i32, Latencies>,
    pub(super) clocks: BTreeMap<i32, ClockOffset>,
    /// The mean parts of the slowest records, one set a run.
    pub(super) slowest: Vec<Parts>,
    /// The 99th percentile of each run.
    pub(super) p99_us: Vec<f64>,
    /// The mean request of each run, in microseconds.
    pub(super) request_us: Vec<f64>,
    /// Bytes a second of each run, from the first record due to the last acknowledgement.
    pub(super) bytes_per_second: Vec<f64>,
    /// Records not acknowledged.
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// Records acknowledged and never read.
    pub(super) missing: u64,
    /// Sends that had to wait for `buffer.memory`.
    pub(super) memory_waits: u64,
    /// Time in which sockets took requests, of all time from requests to answers. Of 1.
    pub(super) write_share: f64,
    /// How busy the machine's processors were. Of 1.
    pub(super) busy: f64,
}

impl Sample {
    /// The records of one run: the slowest hundredth is taken apart.
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

/// The mean parts of the slowest hundredth, at least one record.
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
