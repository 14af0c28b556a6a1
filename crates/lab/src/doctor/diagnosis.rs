//! Diagnosis: pure functions from measurements to findings.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use curtail::config::Acks;
use serde::Serialize;

use super::sample::{ClockOffset, Phase, Sample, micros};
use crate::latency::Latencies;

/// Result of comparing two settings that ran in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Better in every round, and by more than the rounds differ.
    Better,
    /// Worse in every round, and by more than the rounds differ.
    Worse,
    /// The rounds differ by more than the settings.
    NoDifference,
}

/// Comparison of two settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Which setting is better.
    pub verdict: Verdict,
    /// Reduction of the mean of the rounds' 99th percentiles, as a share; negative if it rose.
    pub gain: f64,
    /// Spread between rounds of the same setting, as a share of the base's mean.
    pub noise: f64,
}

/// Compares the figures of rounds that ran in turn; lower is better.
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

/// A phase of the slowest 1% of records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseShare {
    /// The phase.
    pub phase: Phase,
    /// Mean duration over those records, in microseconds.
    pub us: f64,
    /// Possible error, from the spread between rounds and from what is observable. Microseconds.
    pub error_us: f64,
    /// Whether it is an estimate, from client timestamps or probes and not from inside the brokers.
    pub estimate: bool,
}

/// Round trips that do not wait for other replicas, and those that do; microseconds, one value per round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probes<'a> {
    pub(super) leader: &'a [f64],
    pub(super) all: &'a [f64],
}

impl Probes<'_> {
    /// The leader's share of a request with `acks=all`, and its spread between rounds.
    fn leader_share(&self) -> (f64, f64) {
        let rounds = self.leader.iter().zip(self.all).filter(|(_, all)| **all > 0.0);
        let shares: Vec<f64> = rounds.map(|(leader, all)| (leader / all).clamp(0.0, 1.0)).collect();
        if shares.is_empty() { (1.0, 1.0) } else { (mean(&shares), range(&shares) / 2.0) }
    }

    /// The replicas' share of a request, and its spread between rounds.
    fn commit(&self) -> (f64, f64) {
        let added: Vec<f64> =
            self.leader.iter().zip(self.all).map(|(l, a)| (a - l).max(0.0)).collect();
        (mean(&added), range(&added) / 2.0)
    }
}

/// The phases of the slowest records.
///
/// A producer observes one request. Probes with `acks=1` and `acks=all` split it into publish and commit.
/// With less than `acks=all`, the commit comes after the acknowledgement and is part of the consumer's wait.
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

/// A limit of the throughput other than a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// This machine's CPUs, or the one sending thread.
    Machine,
    /// The network to the brokers: sockets accept no more.
    Link,
    /// The brokers accept no more.
    Brokers,
}

/// Observations of a load that reveal its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Achieved throughput as a share of the requested one.
    pub(super) reached: f64,
    /// Lateness of sends at the 99th percentile, as a share of the target.
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

    /// Whether the requested throughput was achieved.
    pub(super) fn is_reached(&self) -> bool {
        is_reached(self.reached)
    }

    /// The limit, if there was one.
    pub(super) fn limit(&self) -> Option<Limit> {
        // Without waits for memory, a late sender is late because of this machine.
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

/// Whether this share of the requested throughput counts as achieved.
pub(super) fn is_reached(share: f64) -> bool {
    share >= REACHED
}

/// Share of the requested throughput that counts as achieved: the last record's latency is part of the time.
const REACHED: f64 = 0.95;
/// Lateness of sends that is tolerated, as a share of the target.
const LATE: f64 = 0.25;
/// CPU utilisation from which the machine is the limit.
const BUSY: f64 = 0.9;
/// Share of a request's time before the socket has accepted it, from which the network is the limit.
const MOSTLY_WRITING: f64 = 0.5;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Costs latency or safety.
    Warning,
    /// Worth knowing.
    Note,
}

/// A finding about the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity of the finding.
    pub severity: Severity,
    /// One line.
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

/// Fewest requests of a broker for a finding about its speed.
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
                "broker {id} is slow: its median produce request takes {:.1} ms, that of the other brokers {:.1} ms",
                micros(*median) / 1000.0,
                micros(usual) / 1000.0
            ))
        })
    };
    medians.iter().filter_map(slow).collect()
}

/// Smallest clock offset that is a finding, in milliseconds.
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
            "broker {id}'s clock is {least:.0} to {most:.0} ms {side} this machine's: timestamps, retention and \
             latencies taken from records are off by that"
        )))
    };
    offsets.iter().filter_map(off).collect()
}
