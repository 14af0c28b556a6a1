//! Report of the doctor.

use serde::Serialize;

use super::{
    Change, ClockOffset, Comparison, Finding, Limit, Options, Phase, PhaseShare, ROUNDS, SHORTEST,
    Verdict,
    candidates::MOST,
    diagnosis::{self, Load},
    sample::{Sample, micros},
};
use crate::latency::Summary;

/// The planned examination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Name of the topic that is created and deleted.
    pub topic: String,
    /// Partitions of the topic.
    pub partitions: i32,
    /// Live brokers.
    pub brokers: usize,
    /// Bytes of values per second.
    pub bytes_per_second: f64,
    /// Records per second.
    pub records_per_second: f64,
    /// Length of one run in seconds.
    pub run_s: f64,
    /// Number of runs if the target holds.
    pub runs: usize,
    /// Largest number of runs, with every candidate setting.
    pub runs_at_most: usize,
    /// Largest number of bytes written, before replication.
    pub bytes_at_most: f64,
}

impl Plan {
    pub(super) fn new(options: &Options, partitions: i32, brokers: usize, topic: String) -> Self {
        // Warm-up, base and probe; then the base again and the candidates.
        let runs = 1 + ROUNDS * 2;
        let runs_at_most = runs + ROUNDS * (1 + MOST);
        let run = (options.duration / runs_at_most as u32).max(SHORTEST);
        let run_s = run.as_secs_f64();
        Self {
            topic,
            partitions,
            brokers,
            bytes_per_second: options.throughput,
            records_per_second: options.rate(),
            run_s,
            runs,
            runs_at_most,
            bytes_at_most: options.throughput * run_s * runs_at_most as f64,
        }
    }
}

/// A candidate setting that was run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Name and value.
    pub setting: String,
    /// 99th percentile of each round without it, in microseconds.
    pub base_p99_us: Vec<f64>,
    /// 99th percentile of each round with it, in microseconds.
    pub p99_us: Vec<f64>,
    /// Bytes per second with it, the mean of the rounds.
    pub bytes_per_second: f64,
    /// CPU utilisation of this machine without it, from 0 to 1.
    pub base_busy: f64,
    /// CPU utilisation of this machine with it.
    pub busy: f64,
    /// Comparison of the two.
    pub comparison: Comparison,
    /// Whether the target holds with it, in each round and at the requested throughput.
    pub holds: bool,
    /// Whether it is recommended: better beyond the noise, without a loss of durability.
    pub recommended: bool,
    /// Caution to read before it is applied.
    pub caution: Option<&'static str>,
}

impl Tried {
    pub(super) fn new(change: &Change, base: &Sample, sample: &Sample, options: &Options) -> Self {
        let mut comparison = diagnosis::compare(&base.p99_us, &sample.p99_us);
        let throughput = diagnosis::mean(&sample.bytes_per_second);
        // Lower latency on fewer records is no improvement.
        let fewer = throughput < 0.95 * diagnosis::mean(&base.bytes_per_second);
        if comparison.verdict == Verdict::Better && (fewer || sample.errors > base.errors) {
            comparison.verdict = Verdict::NoDifference;
        }
        let is_durability = matches!(change, Change::Producer("acks", _));
        let reached = diagnosis::is_reached(throughput / options.throughput);
        let worst = sample.p99_us.iter().copied().fold(0.0, f64::max);
        Self {
            setting: change.text(),
            base_p99_us: base.p99_us.clone(),
            p99_us: sample.p99_us.clone(),
            bytes_per_second: throughput,
            base_busy: base.busy,
            busy: sample.busy,
            comparison,
            holds: reached && worst <= micros(options.target),
            recommended: comparison.verdict == Verdict::Better && !is_durability,
            caution: change.caution(),
        }
    }

    /// The highest 99th percentile of a round with this setting, in microseconds.
    #[must_use]
    pub fn worst_p99_us(&self) -> f64 {
        self.p99_us.iter().copied().fold(0.0, f64::max)
    }
}

/// Observations of one broker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BrokerReport {
    /// Broker id.
    pub id: i32,
    /// Records that it acknowledged.
    pub records: u64,
    /// From the write to the socket until the acknowledgement, in microseconds.
    pub request_us: Summary,
    /// Offset of its clock, if its append times are known.
    pub clock: Option<ClockOffset>,
}

/// Result of an examination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Target of the 99th percentile, in microseconds.
    pub target_p99_us: f64,
    /// The plan that was carried out.
    pub plan: Plan,
    /// Whether the target holds at the throughput, without a missing record.
    pub holds: bool,
    /// Latencies from the intended send time to the poll with the current settings, in microseconds.
    pub latency_us: Summary,
    /// 99th percentile of each round, in microseconds.
    pub rounds_p99_us: Vec<f64>,
    /// Bytes per second, the mean of the rounds.
    pub bytes_per_second: f64,
    /// Records that were not acknowledged.
    pub errors: u64,
    /// The first error of a record that was not acknowledged.
    pub first_error: Option<String>,
    /// Records that were acknowledged and not read.
    pub missing: u64,
    /// Phases of the slowest 1% of records.
    pub phases: [PhaseShare; 5],
    /// The phase that takes most of their time.
    pub blamed: Phase,
    /// A limit of the load other than settings.
    pub limit: Option<Limit>,
    /// CPU utilisation of this machine, from 0 to 1.
    pub busy: f64,
    /// Candidate settings that were run.
    pub tried: Vec<Tried>,
    /// Observations of each broker that leads a partition.
    pub brokers: Vec<BrokerReport>,
    /// Findings about the cluster.
    pub findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(
        options: &Options,
        plan: &Plan,
        base: &Sample,
        phases: [PhaseShare; 5],
        tried: Vec<Tried>,
        mut findings: Vec<Finding>,
    ) -> Self {
        let load = Load::of(base, options.throughput, options.target);
        let intact = base.errors == 0 && base.missing == 0;
        findings.sort_by_key(|finding| finding.severity);
        let broker = |(id, latencies): (&i32, &crate::latency::Latencies)| BrokerReport {
            id: *id,
            records: latencies.count(),
            request_us: latencies.summary(),
            clock: base.clocks.get(id).copied(),
        };
        Self {
            target_p99_us: micros(options.target),
            plan: plan.clone(),
            holds: load.is_reached() && !load.missed && intact,
            latency_us: base.end_to_end.summary(),
            rounds_p99_us: base.p99_us.clone(),
            bytes_per_second: diagnosis::mean(&base.bytes_per_second),
            errors: base.errors,
            first_error: base.first_error.clone(),
            missing: base.missing,
            blamed: diagnosis::blame(&phases),
            phases,
            limit: load.limit(),
            busy: base.busy,
            tried,
            brokers: base.by_broker.iter().map(broker).collect(),
            findings,
        }
    }

    /// Recommended settings, the largest gain first.
    #[must_use]
    pub fn recommended(&self) -> Vec<&Tried> {
        let mut all: Vec<&Tried> = self.tried.iter().filter(|tried| tried.recommended).collect();
        all.sort_by(|a, b| b.comparison.gain.total_cmp(&a.comparison.gain));
        all
    }
}
