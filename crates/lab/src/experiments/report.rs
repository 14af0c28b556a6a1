//! The outcome of an experiment as `--json` writes it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Arm, Sample};
use crate::latency::{Latencies, Summary};

/// One experiment on one cluster.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name.
    pub experiment: &'static str,
    /// Where workload and published figures come from.
    pub source: &'static str,
    /// `embedded`, `apache`, or the address of the cluster.
    pub cluster: String,
    /// The length of the run as a part of the full one.
    pub scale: f64,
    /// What was left to chance came from this.
    pub seed: u64,
    /// What was measured.
    pub arms: Vec<ArmReport>,
    /// Figures to compare with.
    pub published: Vec<Published>,
    /// What must hold.
    pub conditions: Vec<Condition>,
}

impl Report {
    /// Whether every condition held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.conditions.iter().all(|condition| condition.held)
    }
}

/// One arm, all its turns together.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    /// Its name.
    pub name: &'static str,
    /// The client that was measured.
    pub client: &'static str,
    /// Records acknowledged in the measured part.
    pub records: u64,
    /// Records that were not acknowledged.
    pub errors: u64,
    /// Records acknowledged and not found.
    pub lost: u64,
    /// Records found more than once.
    pub duplicated: u64,
    /// Records found behind one that had to follow them.
    pub reordered: u64,
    /// Records a second.
    pub throughput_rps: f64,
    /// Bytes of values a second, in units of 1024 * 1024.
    pub throughput_mbps: f64,
    /// Processor time of a record, user and system, in microseconds; of an embedded cluster's brokers too.
    pub cpu_us_per_record: f64,
    /// From the intended send time to the acknowledgement; where an experiment is about `send` itself, of that.
    pub latency_us: Summary,
    /// Where the time went, as far as it could be seen.
    pub phases_us: PhasesReport,
    /// Figures of the experiment's own, by name with the unit at its end.
    pub extra: BTreeMap<String, f64>,
}

/// The phases of a record; `null` where a phase could not be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PhasesReport {
    /// From the intended send time until the batch was handed to the socket.
    pub produce: Option<Phase>,
    /// Until the leader had appended it.
    pub publish: Option<Phase>,
    /// Until the high watermark had passed it.
    pub commit: Option<Phase>,
    /// Until a consumer had read what was before it.
    pub catch_up: Option<Phase>,
    /// Until a poll returned it.
    pub fetch: Option<Phase>,
}

/// One phase, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Phase {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
}

/// A figure of others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// The arm it compares with, or the client it was measured of.
    pub arm: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// Latencies.
    pub latency_us: PublishedLatency,
    /// Throughput in units of 1024 * 1024 bytes a second.
    pub throughput_mbps: Option<f64>,
    /// What else is to be known.
    pub note: &'static str,
}

/// Those latencies that were published, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PublishedLatency {
    /// Mean.
    pub avg: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Longest.
    pub max: Option<f64>,
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// What, with the figures seen.
    pub text: String,
    /// Whether it did.
    pub held: bool,
}

impl Condition {
    /// `seen` is below `limit`, both in milliseconds. A figure that is not there (NaN) is not below.
    #[must_use]
    pub fn below_ms(what: &str, seen: f64, limit: f64) -> Self {
        Self { text: format!("{what} below {limit:.1} ms ({seen:.1} ms)"), held: seen < limit }
    }
}

impl ArmReport {
    pub(super) fn new(arm: &Arm, sample: &Sample) -> Self {
        let seconds = sample.elapsed.as_secs_f64();
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let cpu = sample.cpu.total().as_nanos() as f64 / 1000.0;
        let produce = phase(&sample.produce);
        Self {
            name: arm.name,
            client: "curtail",
            records: sample.records,
            errors: sample.errors,
            lost: sample.lost,
            duplicated: sample.duplicated,
            reordered: sample.reordered,
            throughput_rps: per_second(sample.records as f64),
            throughput_mbps: per_second(sample.bytes as f64 / (1024.0 * 1024.0)),
            cpu_us_per_record: cpu / sample.records.max(1) as f64,
            latency_us: sample.latency.summary(),
            phases_us: PhasesReport { produce, ..PhasesReport::default() },
            extra: sample.extra.iter().map(|(name, f)| (name.clone(), f.value())).collect(),
        }
    }
}

fn phase(latencies: &Latencies) -> Option<Phase> {
    let Summary { p50, p99, p999, .. } = latencies.summary();
    (latencies.count() > 0).then_some(Phase { p50, p99, p999 })
}
