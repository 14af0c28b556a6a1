//! From measurements to what they mean. Pure: numbers in, findings out.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use curtail::Acks;
use serde::Serialize;

use super::sample::{ClockOffset, Phase, Sample, micros};
use crate::latency::Latencies;

/// Whether one setting is better than another, from runs in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// In every round, and by more than the rounds differ.
    Better,
    /// In every round worse, and by more than the rounds differ.
    Worse,
    /// The rounds differ by more than the settings.
    NoDifference,
}

/// Two settings beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Which one is better.
    pub verdict: Verdict,
    /// How much the mean of the rounds' 99th percentiles fell, of 1; negative where it rose.
    pub gain: f64,
    /// How far the rounds of one and the same setting are apart, of the base's mean.
    pub noise: f64,
}

/// Compares the figures of rounds that ran in turn; less is better.
pub(super) fn compare(base: &[f64], other: &[f64]) -> Comparison {
    let rounds = base.len().min(other.len());
    if rounds == 0 {
        return Comparison { verdict: Verdict::NoDifference, gain: 0.0, noise: 0.0 };
    }
    let (base, other) = (&base[..rounds], &other[..rounds]);
    let differences: Vec<f64> = base.iter().zip(other).map(|(b, o)| b - o).collect();
    let difference = mean(&differences);
    let noise = range(base).max(range(other));
    let verdict = match () {
        () if rounds < 2 || difference.abs() <= noise => Verdict::NoDifference,
        () if differences.iter().all(|d| *d > 0.0) => Verdict::Better,
        () if differences.iter().all(|d| *d < 0.0) => Verdict::Worse,
        () => Verdict::NoDifference,
    };
    let whole = mean(base).max(f64::MIN_POSITIVE);
    Comparison { verdict, gain: difference / whole, noise: noise / whole }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn range(values: &[f64]) -> f64 {
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)));
    if low <= high { high - low } else { 0.0 }
}

/// A phase of the slowest hundredth of records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseShare {
    /// Which.
    pub phase: Phase,
    /// How long it took, the mean of those records. Microseconds.
    pub us: f64,
    /// How wrong that may be, by how the rounds differ and what can be seen from here. Microseconds.
    pub error_us: f64,
    /// Whether it is an estimate: seen from the client's stamps or from probes, not inside the brokers.
    pub estimate: bool,
}

/// What a round trip without waiting for other replicas takes, and one that waits for them, in microseconds, one value a
/// round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probes<'a> {
    pub(super) leader: &'a [f64],
    pub(super) all: &'a [f64],
}

impl Probes<'_> {
    /// The part of a request with `acks=all` that the leader alone takes, and how far the rounds are apart in it.
    fn leader_share(&self) -> (f64, f64) {
        let rounds = self.leader.iter().zip(self.all).filter(|(_, all)| **all > 0.0);
        let shares: Vec<f64> = rounds.map(|(leader, all)| (leader / all).clamp(0.0, 1.0)).collect();
        if shares.is_empty() { (1.0, 1.0) } else { (mean(&shares), range(&shares) / 2.0) }
    }

    /// What the replicas add to a request, and how far the rounds are apart in it.
    fn commit(&self) -> (f64, f64) {
        let added: Vec<f64> =
            self.leader.iter().zip(self.all).map(|(l, a)| (a - l).max(0.0)).collect();
        (mean(&added), range(&added) / 2.0)
    }
}

/// Where the slowest records were, phase by phase.
///
/// A producer sees one request; what of it is publishing and what committing comes from probes with `acks=1` and
/// `acks=all`. With less than `acks=all` the committing is behind the acknowledgement, in what the consumer waits for.
pub(super) fn phases(sample: &Sample, acks: Acks, probes: Probes<'_>) -> [PhaseShare; 5] {
    let part = |of: fn(&super::sample::Parts) -> u64| {
        let rounds: Vec<f64> = sample.slowest.iter().map(|p| of(p) as f64 / 1000.0).collect();
        (mean(&rounds), range(&rounds) / 2.0)
    };
    let (produce, produce_error) = part(|p| p.produce);
    let (request, request_error) = part(|p| p.request);
    let (catch_up, catch_up_error) = part(|p| p.catch_up);
    let (mut fetch, fetch_error) = part(|p| p.fetch);
    let (publish, commit, split_error) = if acks == Acks::All {
        let (share, error) = probes.leader_share();
        (request * share, request * (1.0 - share), request * error)
    } else {
        let (added, error) = probes.commit();
        let commit = added.min(fetch);
        fetch -= commit;
        (request, commit, error)
    };
    let share = |phase, us, error_us, estimate| PhaseShare { phase, us, error_us, estimate };
    [
        share(Phase::Produce, produce, produce_error, false),
        share(Phase::Publish, publish, request_error + split_error, true),
        share(Phase::Commit, commit, request_error + split_error, true),
        share(Phase::CatchUp, catch_up, catch_up_error, true),
        share(Phase::Fetch, fetch, fetch_error, true),
    ]
}

/// The phase that takes most.
pub(super) fn blame(phases: &[PhaseShare; 5]) -> Phase {
    let most = phases.iter().reduce(|most, next| if next.us > most.us { next } else { most });
    most.map_or(Phase::Produce, |most| most.phase)
}

/// What keeps the throughput from being reached, other than a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// This machine's processors, or the one thread that sends.
    Machine,
    /// The way to the brokers: sockets do not take more.
    Link,
    /// The brokers take no more.
    Brokers,
}

/// How a load went, as far as it says what held it up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Bytes a second reached, of those asked for.
    pub(super) reached: f64,
    /// What sends were late at the 99th percentile, of the target.
    pub(super) late: f64,
    pub(super) memory_waits: u64,
    pub(super) write_share: f64,
    pub(super) busy: f64,
    /// Whether the target was missed.
    pub(super) missed: bool,
}

impl Load {
    pub(super) fn of(sample: &Sample, asked: f64, target: Duration) -> Self {
        Self {
            reached: mean(&sample.bytes_per_second) / asked,
            late: sample.lateness.quantile(0.99).as_secs_f64() / target.as_secs_f64(),
            memory_waits: sample.memory_waits,
            write_share: sample.write_share,
            busy: sample.busy,
            missed: sample.end_to_end.quantile(0.99) > target,
        }
    }

    /// Whether the throughput asked for was there.
    pub(super) fn is_reached(&self) -> bool {
        self.reached >= REACHED
    }

    /// What the limit was, if there was one.
    pub(super) fn limit(&self) -> Option<Limit> {
        // A sender that is late without waiting for memory is late because of this machine.
        let slow_sender = self.memory_waits == 0 && self.late > LATE;
        match () {
            () if self.is_reached() && !self.missed => None,
            () if self.busy >= BUSY => Some(Limit::Machine),
            () if !self.is_reached()
                && self.memory_waits > 0
                && self.write_share >= MOSTLY_WRITING =>
            {
                Some(Limit::Link)
            }
            () if slow_sender => Some(Limit::Machine),
            () if !self.is_reached() => Some(Limit::Brokers),
            () => None,
        }
    }
}

/// Of the throughput asked for, what counts as reached: the last record's way is part of the time.
const REACHED: f64 = 0.95;
/// Of the target, what sends may be late.
const LATE: f64 = 0.25;
/// A machine that is so busy is the limit.
const BUSY: f64 = 0.9;
/// Of a request's time, how much goes by before the socket has taken it when the link is the limit.
const MOSTLY_WRITING: f64 = 0.5;

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It costs latency or safety.
    Warning,
    /// Worth knowing.
    Note,
}

/// Something about the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How severe.
    pub severity: Severity,
    /// What, in one line.
    pub text: String,
}

impl Finding {
    pub(super) fn warning(text: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, text: text.into() }
    }

    pub(super) fn note(text: impl Into<String>) -> Self {
        Self { severity: Severity::Note, text: text.into() }
    }
}

/// Requests of a broker that are too few to say something of it.
const FEW: u64 = 50;

/// Brokers that take twice as long as the others, and at least a millisecond more.
pub(super) fn slow_brokers(brokers: &BTreeMap<i32, Latencies>) -> Vec<Finding> {
    let medians: BTreeMap<i32, Duration> = brokers
        .iter()
        .filter(|(_, latencies)| latencies.count() >= FEW)
        .map(|(id, latencies)| (*id, latencies.quantile(0.5)))
        .collect();
    let slow = |(id, median): (&i32, &Duration)| {
        let mut others: Vec<Duration> =
            medians.iter().filter(|(other, _)| *other != id).map(|(_, median)| *median).collect();
        others.sort_unstable();
        let usual = *others.get(others.len() / 2)?;
        let is_slow = *median > usual * 2 && *median > usual + Duration::from_millis(1);
        is_slow.then(|| {
            Finding::warning(format!(
                "broker {id} is slow: half of its produce requests take {:.1} ms and more, the others' {:.1} ms",
                micros(*median) / 1000.0,
                micros(usual) / 1000.0
            ))
        })
    };
    medians.iter().filter_map(slow).collect()
}

/// A clock that is off by less is as good as right, in milliseconds.
const CLOCK_MS: f64 = 10.0;

/// Brokers whose clocks differ from this machine's.
pub(super) fn clocks(offsets: &BTreeMap<i32, ClockOffset>) -> Vec<Finding> {
    let off = |(id, offset): (&i32, &ClockOffset)| {
        let ClockOffset { at_least_ms: low, at_most_ms: high } = *offset;
        let (least, most, side) = match () {
            () if low > CLOCK_MS => (low, high, "ahead of"),
            () if high < -CLOCK_MS => (-high, -low, "behind"),
            () => return None,
        };
        Some(Finding::warning(format!(
            "broker {id}'s clock is {least:.0} to {most:.0} ms {side} this machine's: time-stamps, retention and \
             latencies taken from records are off by that"
        )))
    };
    offsets.iter().filter_map(off).collect()
}
