//! What the doctor says.

use serde::Serialize;

use super::{
    Change, ClockOffset, Comparison, Finding, Limit, Options, Phase, PhaseShare, ROUNDS, SHORTEST,
    Verdict,
    candidates::MOST,
    diagnosis::{self, Load},
    sample::{Sample, micros},
};
use crate::latency::Summary;

/// What will be done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The topic that is created and deleted.
    pub topic: String,
    /// Its partitions.
    pub partitions: i32,
    /// Live brokers.
    pub brokers: usize,
    /// Bytes of values a second.
    pub bytes_per_second: f64,
    /// Records a second.
    pub records_per_second: f64,
    /// Length of one run in seconds.
    pub run_s: f64,
    /// Runs if the target holds.
    pub runs: usize,
    /// Runs at most, with everything that is tried.
    pub runs_at_most: usize,
    /// Bytes written at most, before replication.
    pub bytes_at_most: f64,
}

impl Plan {
    pub(super) fn new(options: &Options, partitions: i32, brokers: usize, topic: String) -> Self {
        // Warm-up, base and probe; then the base again and what is tried.
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

/// A setting that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Which.
    pub setting: String,
    /// The 99th percentile of each round as it is set. Microseconds.
    pub base_p99_us: Vec<f64>,
    /// The 99th percentile of each round with it. Microseconds.
    pub p99_us: Vec<f64>,
    /// Bytes a second with it, the mean of the rounds.
    pub bytes_per_second: f64,
    /// How they compare.
    pub comparison: Comparison,
    /// Whether it is recommended: better beyond the noise, and not at the price of durability.
    pub recommended: bool,
    /// What there is to know before it is followed.
    pub caution: Option<&'static str>,
}

impl Tried {
    pub(super) fn new(change: &Change, base: &Sample, sample: &Sample) -> Self {
        let mut comparison = diagnosis::compare(&base.p99_us, &sample.p99_us);
        let throughput = diagnosis::mean(&sample.bytes_per_second);
        // Quick for the records it let through, and fewer of them.
        let fewer = throughput < 0.95 * diagnosis::mean(&base.bytes_per_second);
        if comparison.verdict == Verdict::Better && (fewer || sample.errors > base.errors) {
            comparison.verdict = Verdict::NoDifference;
        }
        let is_durability = matches!(change, Change::Producer("acks", _));
        Self {
            setting: change.text(),
            base_p99_us: base.p99_us.clone(),
            p99_us: sample.p99_us.clone(),
            bytes_per_second: throughput,
            comparison,
            recommended: comparison.verdict == Verdict::Better && !is_durability,
            caution: change.caution(),
        }
    }
}

/// What was seen of one broker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BrokerReport {
    /// Its id.
    pub id: i32,
    /// Records that it acknowledged.
    pub records: u64,
    /// From the socket to the acknowledgement. Microseconds.
    pub request_us: Summary,
    /// How far its clock is ahead, where it says when it appends.
    pub clock: Option<ClockOffset>,
}

/// The outcome of a visit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The 99th percentile not to be exceeded, in microseconds.
    pub target_p99_us: f64,
    /// What was done.
    pub plan: Plan,
    /// Whether the target holds at the throughput, with every record there.
    pub holds: bool,
    /// From the intended send time to the poll, as it is set. Microseconds.
    pub latency_us: Summary,
    /// The 99th percentile of each round. Microseconds.
    pub rounds_p99_us: Vec<f64>,
    /// Bytes a second, the mean of the rounds.
    pub bytes_per_second: f64,
    /// Records that were not acknowledged.
    pub errors: u64,
    /// The first of their errors.
    pub first_error: Option<String>,
    /// Records that were acknowledged and not read.
    pub missing: u64,
    /// Where the slowest hundredth of records was.
    pub phases: [PhaseShare; 5],
    /// The phase that takes most of their time.
    pub blamed: Phase,
    /// What holds the load up, other than settings.
    pub limit: Option<Limit>,
    /// How busy this machine was, of 1.
    pub busy: f64,
    /// What was tried.
    pub tried: Vec<Tried>,
    /// What was seen of each broker that leads a partition.
    pub brokers: Vec<BrokerReport>,
    /// What stands out in the cluster.
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

    /// What is recommended, the largest gain first.
    #[must_use]
    pub fn recommended(&self) -> Vec<&Tried> {
        let mut all: Vec<&Tried> = self.tried.iter().filter(|tried| tried.recommended).collect();
        all.sort_by(|a, b| b.comparison.gain.total_cmp(&a.comparison.gain));
        all
    }
}
