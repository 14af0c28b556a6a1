//! The result of an experiment, as `--json` writes it and `curtail lab compare` reads it.

mod environment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub use self::environment::Environment;
pub(crate) use self::environment::Machine;
pub(super) use self::environment::now_ms;
use super::{Arm, Sample};
use crate::{
    latency::{Latencies, Point, Summary, few_behind_p999},
    over_time::{OverTime, OverTimeReport},
    peers::Client,
    phases::{self, Estimate, PhaseName, Phases, Probes},
    timeline::RecordTimeline,
};

/// One experiment on one cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: String,
    /// Source of the workload and of the published figures.
    pub source: String,
    /// `embedded`, `apache`, or the address of the cluster.
    pub cluster: String,
    /// Length of the run, as a part of the full one.
    pub scale: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// The command line; empty if it is unknown.
    #[serde(default)]
    pub command: String,
    /// The machine and the versions.
    #[serde(default)]
    pub environment: Environment,
    /// Modelled parts of the run.
    #[serde(default)]
    pub models: Vec<Modelled>,
    /// Results of the arms.
    pub arms: Vec<ArmReport>,
    /// Published figures to compare with.
    pub published: Vec<PublishedFigure>,
    /// Conditions of the experiment.
    pub conditions: Vec<Condition>,
}

impl Report {
    /// Whether every condition held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.conditions.iter().all(|condition| condition.held)
    }

    /// Whether the conditions hold, in one sentence.
    #[must_use]
    pub fn conclusion(&self) -> String {
        let failed: Vec<&Condition> = self.conditions.iter().filter(|c| !c.held).collect();
        match (self.conditions.len(), &*failed) {
            (0, _) => "No condition was set.".to_owned(),
            (1, []) => "The condition holds.".to_owned(),
            (1, [failed]) => format!("The condition does not hold: {}.", failed.text),
            (all, []) => format!("All {all} conditions hold."),
            (all, [first, ..]) => {
                format!("{} of {all} conditions do not hold, first {}.", failed.len(), first.text)
            }
        }
    }

    /// Returns the conditions for readers: one line stands for all conditions of integrity that held, then the others.
    #[must_use]
    pub fn folded_conditions(&self) -> Vec<Condition> {
        let is_intact = |condition: &Condition| condition.held && condition.is_integrity();
        let intact = self.conditions.iter().filter(|condition| is_intact(condition)).count();
        let arms = if intact == 1 { "arm" } else { "arms" };
        let text =
            format!("no record lost, duplicated or reordered, and no error ({intact} {arms})");
        let folded = (intact > 0).then_some(Condition { text, held: true });
        let others = self.conditions.iter().filter(|condition| !is_intact(condition)).cloned();
        folded.into_iter().chain(others).collect()
    }

    /// The published figures. Runs before 2026-11-26 also have figures of other clients that no run on file backs;
    /// these are left out.
    pub fn published(&self) -> impl Iterator<Item = &PublishedFigure> {
        let typed = ["measured on", "best peer"];
        let is_typed = move |figure: &PublishedFigure| {
            typed.iter().any(|begin| figure.source.starts_with(begin))
        };
        self.published.iter().filter(move |figure| !is_typed(figure))
    }

    /// The source of the workload and of [`Report::published`].
    #[must_use]
    pub fn source(&self) -> &str {
        self.source.split("; peers measured on").next().unwrap_or_default()
    }

    /// An arm's name, followed by its client if clients other than Curtail took part.
    #[must_use]
    pub fn label(&self, arm: &ArmReport) -> String {
        match self.arms.iter().any(|arm| arm.client != Client::Curtail.name()) {
            true => format!("{} ({})", arm.name, arm.client),
            false => arm.name.clone(),
        }
    }

    /// Limits of the figures, which a reader must know first; a sentence each.
    #[must_use]
    pub fn limits(&self) -> Vec<String> {
        let Environment { cores, shares_machine, load_before, load_after, .. } = self.environment;
        let mut limits = Vec::new();
        if shares_machine {
            limits.push(format!(
                "The brokers, the clients and the load share one machine with {cores} cores: ratios are more reliable than \
                 absolute figures."
            ));
        }
        if let (Some(before), Some(after)) = (load_before, load_after) {
            let Environment { busy_percent, stolen_percent, .. } = self.environment;
            let busy = busy_percent.map(|busy| format!(", {busy:.0}% of its CPU time was used"));
            let stolen = stolen_percent.filter(|stolen| *stolen >= 0.5);
            let stolen = stolen.map(|stolen| format!(", {stolen:.0}% went to other machines"));
            limits.push(format!(
                "The machine's load was {before:.2} before the run and {after:.2} after it{}{}.",
                busy.unwrap_or_default(),
                stolen.unwrap_or_default()
            ));
        }
        if self.environment.started_ms > 0 && !self.environment.release_build {
            let text = "Not a release build: the figures say nothing about speed.";
            limits.push(text.to_owned());
        }
        if self.scale < 1.0 {
            limits.push(format!("Runs were shortened to {} of their full length.", self.scale));
        }
        if self.arms.iter().any(|arm| arm.rounds.len() == 1) {
            limits.push("Each arm ran once, so differences between arms may be noise.".to_owned());
        }
        limits.extend(self.arms.iter().filter_map(|arm| {
            few_behind_p999(&format!("p99.9 of {}", self.label(arm)), arm.records)
        }));
        limits
    }
}

/// A modelled part of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modelled {
    /// The modelled part.
    pub what: String,
    /// Its parameters by name, with their units.
    pub parameters: BTreeMap<String, String>,
}

impl Modelled {
    /// A model and its parameters.
    pub fn new<'a>(
        what: impl Into<String>,
        parameters: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Self {
        let parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), value));
        Self { what: what.into(), parameters: parameters.collect() }
    }
}

/// End of a record's latency. It begins with the intended send time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencyUntil {
    /// The acknowledgement.
    #[default]
    Acknowledged,
    /// The poll that returns the record.
    Polled,
    /// The return of the `send` call. This latency begins with the call.
    Returned,
}

impl LatencyUntil {
    /// Words for a heading.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Acknowledged => "from the intended send time to the acknowledgement",
            Self::Polled => "from the intended send time to the poll that returns the record",
            Self::Returned => "from the call that sends a record to its return",
        }
    }
}

/// Result of one arm, all its turns together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArmReport {
    /// Name of the arm.
    pub name: String,
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
    /// Records stored after a record that was sent later.
    pub reordered: u64,
    /// Records per second.
    pub throughput_rps: f64,
    /// Throughput of record values in MiB per second.
    pub throughput_mbps: f64,
    /// CPU time per record, user and system, in microseconds; includes the brokers of an embedded cluster.
    pub cpu_us_per_record: f64,
    /// Whether the CPU time includes the brokers.
    #[serde(default)]
    pub cpu_includes_brokers: bool,
    /// Latencies from the intended send time.
    pub latency_us: Summary,
    /// End of these latencies.
    #[serde(default)]
    pub latency_until: LatencyUntil,
    /// Distribution of these latencies.
    #[serde(default)]
    pub latency_curve: Vec<Point>,
    /// Phases of these latencies, as far as they were observed.
    pub phases_us: PhasesReport,
    /// Whether the phases after `produce` are estimates instead of per-record measurements.
    ///
    /// Publish (with the one-way delay of the response) and commit come from probes with single records in a
    /// cluster without load. Catch-up and fetch come from the high watermark that a consumer knew.
    #[serde(default)]
    pub phases_estimated: bool,
    /// Possible error of the estimates to either side, relative to the phases in a cluster without load. It
    /// holds in 95 of 100 cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_us: Option<PhasesReport>,
    /// From the last phase timestamp that the acknowledgement waits for until the acknowledgement was read.
    /// That timestamp is the append with acks=1 and the commit with acks=all; without timestamps inside the
    /// brokers it is the write to the socket.
    #[serde(default)]
    pub acknowledge_us: Option<Phase>,
    /// The slowest records, slowest first; empty if single records were not observed.
    #[serde(default)]
    pub exemplars: Vec<Exemplar>,
    /// Timelines of the slowest records; empty without `--why`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timelines: Vec<RecordTimeline>,
    /// Requests that the brokers served, by broker, API and client; empty without `--why` or without Apache
    /// Kafka.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests_served: BTreeMap<String, u64>,
    /// Records by broker; empty if unknown.
    #[serde(default)]
    pub brokers: Vec<BrokerShare>,
    /// Each turn separately: the spread between them is noise.
    #[serde(default)]
    pub rounds: Vec<RoundReport>,
    /// Figures specific to the experiment, by name with the unit at its end.
    #[serde(deserialize_with = "figures")]
    pub extra: BTreeMap<String, f64>,
}

/// Reads figures; NaN and infinity are written as `null`.
fn figures<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let figures = BTreeMap::<String, Option<f64>>::deserialize(from)?;
    Ok(figures.into_iter().map(|(name, figure)| (name, figure.unwrap_or(f64::NAN))).collect())
}

/// Result of one turn of an arm.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RoundReport {
    /// Start of the turn, in milliseconds since 1970-01-01 UTC.
    pub started_ms: u64,
    /// Records acknowledged in the measured part.
    pub records: u64,
    /// Records that were not acknowledged.
    pub errors: u64,
    /// Records per second.
    pub throughput_rps: f64,
    /// Throughput of record values in MiB per second.
    pub throughput_mbps: f64,
    /// CPU time per record, as for the arm.
    pub cpu_us_per_record: f64,
    /// Latencies, as for the arm.
    pub latency_us: Summary,
    /// Latencies by the records' intended send time; `null` if they were not recorded over time.
    pub over_time: Option<OverTimeReport>,
    /// Faults and other changes of the cluster or of the client during the turn.
    pub faults: Vec<FaultSpan>,
    /// The distributions behind `over_time`, for export formats that need them.
    #[serde(skip)]
    pub distributions: OverTime,
}

/// A fault or another change of the cluster or of the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultSpan {
    /// Start, in milliseconds since the run's first record was due.
    pub from_ms: f64,
    /// End; equal to the start if the change takes no time.
    pub until_ms: f64,
    /// Description.
    pub what: String,
}

/// Records that one broker acknowledged, warm-up included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerShare {
    /// Broker id.
    pub broker: i32,
    /// Records.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

/// A slow record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exemplar {
    /// The turn, from 0.
    pub round: u32,
    /// Intended send time, in milliseconds since the turn's first record was due.
    pub at_ms: f64,
    /// Partition of the record.
    pub partition: i32,
    /// Its offset, if it is known.
    pub offset: Option<i64>,
    /// The broker that appended it; without phase timestamps inside brokers, the leader after the run.
    pub leader: Option<i32>,
    /// From the intended send time until it was read, or acknowledged if there is no reader; in microseconds.
    pub latency_us: f64,
    /// Duration of each phase, in microseconds, without the phases that were not observed.
    pub phases_us: BTreeMap<String, f64>,
    /// The phase that exceeds its median over all records of the arm by most.
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

/// The names of the phases in the order in which a record passes them.
pub const PHASES: [&str; 5] = ["produce", "publish", "commit", "catch_up", "fetch"];

/// The phases of records; `null` for a phase that was not observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhasesReport {
    /// From the intended send time until the first request with the batch was handed to the socket.
    pub produce: Option<Phase>,
    /// Until the leader had appended it, failed requests included.
    pub publish: Option<Phase>,
    /// Until the high watermark had passed it.
    pub commit: Option<Phase>,
    /// Until a consumer had read the records before it: until the partition's poll before the one that
    /// returned it.
    pub catch_up: Option<Phase>,
    /// Until a poll returned it.
    pub fetch: Option<Phase>,
}

impl PhasesReport {
    /// The phases in the order in which a record passes them.
    #[must_use]
    pub fn in_order(&self) -> [(&'static str, Option<Phase>); 5] {
        let Self { produce, publish, commit, catch_up, fetch } = *self;
        let phases = [produce, publish, commit, catch_up, fetch];
        std::array::from_fn(|at| (PHASES[at], phases[at]))
    }
}

/// One phase, in microseconds; NaN (`null`) where probes are too few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenPhase")]
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

/// The JSON form of a phase.
#[derive(Deserialize)]
struct WrittenPhase {
    p50: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    p9999: Option<f64>,
}

impl From<WrittenPhase> for Phase {
    fn from(WrittenPhase { p50, p99, p999, p9999 }: WrittenPhase) -> Self {
        let [p50, p99, p999, p9999] = [p50, p99, p999, p9999].map(|us| us.unwrap_or(f64::NAN));
        Self { p50, p99, p999, p9999 }
    }
}

/// A published figure, as an experiment states it.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The arm to compare with, or the client that was measured.
    pub arm: &'static str,
    /// Source of the figure.
    pub source: &'static str,
    /// Latencies.
    pub latency_us: PublishedLatency,
    /// Throughput in units of 1024 * 1024 bytes per second.
    pub throughput_mbps: Option<f64>,
    /// Note on the figure.
    pub note: &'static str,
}

/// A published figure in a report; see [`Published`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    /// The arm to compare with, or the client that was measured.
    pub arm: String,
    /// Source of the figure.
    pub source: String,
    /// Latencies.
    pub latency_us: PublishedLatency,
    /// Throughput in units of 1024 * 1024 bytes per second.
    pub throughput_mbps: Option<f64>,
    /// Note on the figure.
    pub note: String,
}

impl From<Published> for PublishedFigure {
    fn from(stated: Published) -> Self {
        let Published { arm, source, latency_us, throughput_mbps, note } = stated;
        let [arm, source, note] = [arm, source, note].map(str::to_owned);
        Self { arm, source, latency_us, throughput_mbps, note }
    }
}

/// Published latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// A condition that must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The condition, with the measured figures.
    pub text: String,
    /// Whether it did.
    pub held: bool,
}

impl Condition {
    /// Phrase of the conditions about lost, duplicated and reordered records.
    pub(super) const INTEGRITY: &str = "0 lost, 0 duplicated, 0 reordered, no error";

    /// Whether this is about lost, duplicated or reordered records of an arm.
    #[must_use]
    pub fn is_integrity(&self) -> bool {
        self.text.contains(Self::INTEGRITY)
    }

    /// Requires `seen` to be below `limit`, both in milliseconds. A missing figure (NaN) is not below.
    #[must_use]
    pub fn below_ms(what: &str, seen: f64, limit: f64) -> Self {
        Self { text: format!("{what} below {limit:.1} ms ({seen:.1} ms)"), held: seen < limit }
    }
}

/// Throughput and CPU time of a sample.
struct Rates {
    rps: f64,
    mbps: f64,
    cpu: f64,
}

impl Rates {
    fn of(sample: &Sample) -> Self {
        let seconds = sample.elapsed.as_secs_f64();
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        Self {
            rps: per_second(sample.records as f64),
            mbps: per_second(sample.bytes as f64 / (1024.0 * 1024.0)),
            cpu: sample.cpu.total().as_nanos() as f64 / 1000.0 / sample.records.max(1) as f64,
        }
    }
}

impl RoundReport {
    /// The result of a turn that began at this time. Takes the turn's faults and latencies over time out of
    /// the sample.
    pub(super) fn new(started_ms: u64, sample: &mut Sample) -> Self {
        let rates = Rates::of(sample);
        Self {
            started_ms,
            records: sample.records,
            errors: sample.errors,
            throughput_rps: rates.rps,
            throughput_mbps: rates.mbps,
            cpu_us_per_record: rates.cpu,
            latency_us: sample.latency.summary(),
            over_time: sample.over_time.summary(),
            faults: std::mem::take(&mut sample.faults),
            distributions: std::mem::take(&mut sample.over_time),
        }
    }
}

impl ArmReport {
    /// The result of an arm from the sample of all its turns.
    pub(super) fn new(
        arm: &Arm,
        client: Client,
        sample: &Sample,
        rounds: Vec<RoundReport>,
    ) -> Self {
        let rates = Rates::of(sample);
        let seen = PhasesReport::new(&sample.phases);
        let estimated = PhasesReport::estimated(&sample.probes);
        let (phases_us, error_us) = match estimated {
            Some((values, errors)) => (seen.or(values), Some(errors)),
            None => (seen, None),
        };
        let share = |(&broker, &(records, bytes))| BrokerShare { broker, records, bytes };
        Self {
            name: arm.name.to_owned(),
            client: client.to_string(),
            records: sample.records,
            errors: sample.errors,
            lost: sample.lost,
            duplicated: sample.duplicated,
            reordered: sample.reordered,
            throughput_rps: rates.rps,
            throughput_mbps: rates.mbps,
            cpu_us_per_record: rates.cpu,
            cpu_includes_brokers: false,
            latency_us: sample.latency.summary(),
            latency_until: sample.latency_until,
            latency_curve: sample.latency.curve(),
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
            timelines: sample.timelines.clone(),
            requests_served: sample.requests_served.clone(),
            brokers: sample.brokers.iter().map(share).collect(),
            rounds,
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

    /// Values and errors estimated from probes.
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

    /// Fills missing phases from `other`.
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
