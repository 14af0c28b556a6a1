//! The outcome of an experiment as `--json` writes it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Arm, Sample};
use crate::{
    latency::{Latencies, Summary},
    peers::Client,
    phases::{self, Estimate, PhaseName, Phases, Probes},
};

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
    pub client: String,
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
    /// Whether phases beyond `produce` are not what each record took, but estimated from probes: of single records in a
    /// cluster without load, publish with the answer's way back; and of what a consumer knew of the high watermark.
    pub phases_estimated: bool,
    /// How far off estimates may be to either side: in 95 of 100 cases they are not further off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_us: Option<PhasesReport>,
    /// From the station that the acknowledgement waits for (with acks=1 the append, with acks=all the commit, the socket
    /// where the brokers cannot be looked into) until it was read.
    pub acknowledge_us: Option<Phase>,
    /// The slowest records, slowest first.
    pub exemplars: Vec<Exemplar>,
    /// Figures of the experiment's own, by name with the unit at its end.
    pub extra: BTreeMap<String, f64>,
}

/// The phases of a record; `null` where a phase could not be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PhasesReport {
    /// From the intended send time until the first request with the batch was handed to the socket.
    pub produce: Option<Phase>,
    /// Until the leader had appended it; requests that failed are in here.
    pub publish: Option<Phase>,
    /// Until the high watermark had passed it.
    pub commit: Option<Phase>,
    /// Until a consumer had read what was before it: until its poll before the one that gave the record out.
    pub catch_up: Option<Phase>,
    /// Until a poll returned it.
    pub fetch: Option<Phase>,
}

/// One phase, in microseconds; NaN (`null`) of what probes are too few for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Phase {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// 99.99th percentile.
    pub p9999: f64,
}

/// One of the slowest records.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exemplar {
    /// The turn, from 0.
    pub round: u32,
    /// When it was meant to be sent, in milliseconds since the turn's first record was.
    pub at_ms: f64,
    /// Its partition.
    pub partition: i32,
    /// Its offset, if it is known.
    pub offset: Option<i64>,
    /// The broker that appended it; where brokers cannot be looked into, the one that led the partition after the run.
    pub leader: Option<i32>,
    /// From the intended send time until it was read where something reads, until it was acknowledged otherwise; in
    /// microseconds.
    pub latency_us: f64,
    /// How long each of its phases took, in microseconds; those that could not be seen are left out.
    pub phases_us: BTreeMap<String, f64>,
    /// The phase that took longest beyond its own median over all records of the arm.
    pub blame: Option<String>,
}

impl Exemplar {
    fn new(exemplar: &phases::Exemplar, usual: &Phases) -> Self {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        let name = |phase: PhaseName| phase.as_str().to_owned();
        let time = |phase| Some((name(phase), micros((*exemplar.phases.get(phase))?)));
        Self {
            round: exemplar.round,
            at_ms: micros(exemplar.at) / 1000.0,
            partition: exemplar.partition,
            offset: exemplar.offset,
            leader: exemplar.leader,
            latency_us: micros(exemplar.latency),
            phases_us: PhaseName::ALL.into_iter().filter_map(time).collect(),
            blame: exemplar.blame(usual).map(name),
        }
    }
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
    pub(super) fn new(arm: &Arm, client: Client, sample: &Sample) -> Self {
        let seconds = sample.elapsed.as_secs_f64();
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let cpu = sample.cpu.total().as_nanos() as f64 / 1000.0;
        let seen = PhasesReport::new(&sample.phases);
        let estimated = PhasesReport::estimated(&sample.probes);
        let (phases_us, error_us) = match estimated {
            Some((values, errors)) => (seen.or(values), Some(errors)),
            None => (seen, None),
        };
        Self {
            name: arm.name,
            client: client.to_string(),
            records: sample.records,
            errors: sample.errors,
            lost: sample.lost,
            duplicated: sample.duplicated,
            reordered: sample.reordered,
            throughput_rps: per_second(sample.records as f64),
            throughput_mbps: per_second(sample.bytes as f64 / (1024.0 * 1024.0)),
            cpu_us_per_record: cpu / sample.records.max(1) as f64,
            latency_us: sample.latency.summary(),
            phases_us,
            phases_estimated: error_us.is_some(),
            error_us,
            acknowledge_us: phase(sample.phases.get(PhaseName::Acknowledge)),
            exemplars: sample
                .exemplars
                .slowest_first()
                .iter()
                .map(|exemplar| Exemplar::new(exemplar, &sample.phases))
                .collect(),
            extra: sample.extra.iter().map(|(name, f)| (name.clone(), f.value())).collect(),
        }
    }
}

impl PhasesReport {
    fn new(phases: &Phases) -> Self {
        let of = |name| phase(phases.get(name));
        Self {
            produce: of(PhaseName::Produce),
            publish: of(PhaseName::Publish),
            commit: of(PhaseName::Commit),
            catch_up: of(PhaseName::CatchUp),
            fetch: of(PhaseName::Fetch),
        }
    }

    /// Values and errors of what probes say.
    fn estimated(probes: &Probes) -> Option<(Self, Self)> {
        let estimates = probes.estimates();
        let of = |name, part: fn(&Estimate) -> f64| {
            let [p50, p99, p999, p9999] = (*estimates.get(name))?.map(|e| part(&e) / 1000.0);
            Some(Phase { p50, p99, p999, p9999 })
        };
        let each = |part| Self {
            publish: of(PhaseName::Publish, part),
            commit: of(PhaseName::Commit, part),
            catch_up: of(PhaseName::CatchUp, part),
            ..Self::default()
        };
        let (values, errors) = (each(|e| e.value), each(|e| e.error));
        (values != Self::default()).then_some((values, errors))
    }

    /// What is missing here from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            produce: self.produce.or(other.produce),
            publish: self.publish.or(other.publish),
            commit: self.commit.or(other.commit),
            catch_up: self.catch_up.or(other.catch_up),
            fetch: self.fetch.or(other.fetch),
        }
    }
}

fn phase(latencies: &Latencies) -> Option<Phase> {
    let of = |quantile| latencies.quantile(quantile).as_nanos() as f64 / 1000.0;
    let phase = || Phase { p50: of(0.5), p99: of(0.99), p999: of(0.999), p9999: of(0.9999) };
    (latencies.count() > 0).then(phase)
}
