//! Measurements of one or several turns of an arm.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::report::{FaultSpan, LatencyUntil};
use crate::{
    cpu::CpuTime,
    latency::Latencies,
    over_time::OverTime,
    phases::{Exemplars, Phases, Probes},
    timeline::RecordTimeline,
};

/// A figure specific to an experiment, and how several turns combine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// Turns add up.
    Total(f64),
    /// The largest of all turns counts.
    Worst(f64),
}

impl Figure {
    /// The figure.
    #[must_use]
    pub fn value(self) -> f64 {
        match self {
            Self::Total(value) | Self::Worst(value) => value,
        }
    }

    fn join(&mut self, other: Self) {
        match self {
            Self::Total(value) => *value += other.value(),
            Self::Worst(value) => *value = value.max(other.value()),
        }
    }
}

/// Measurements of one or several turns of an arm.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Records acknowledged in the measured part.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Records that were not acknowledged.
    pub errors: u64,
    /// The first of these errors, in words.
    pub first_error: Option<String>,
    /// Records acknowledged and not found where the acknowledgement said.
    pub lost: u64,
    /// Records found more than once.
    pub duplicated: u64,
    /// Records found after one that had to follow them.
    pub reordered: u64,
    /// Length of the measured part.
    pub elapsed: Duration,
    /// CPU time of this process in the measured part, including the brokers of an embedded cluster.
    pub cpu: CpuTime,
    /// From the intended send time to the acknowledgement; in experiments about `send` itself, to its return.
    pub latency: Latencies,
    /// The same latencies, by due time since the run's first record was due.
    pub over_time: OverTime,
    /// What ends these latencies.
    pub latency_until: LatencyUntil,
    /// The phases of every record acknowledged in the measured part.
    pub phases: Phases,
    /// Probes from outside, for brokers without phase timestamps.
    pub probes: Probes,
    /// The slowest of these records.
    pub exemplars: Exemplars,
    /// Records acknowledged and bytes of their values by broker, those of the warm-up included.
    pub brokers: BTreeMap<i32, (u64, u64)>,
    /// Faults and other changes of the cluster or of the client during the turn.
    pub faults: Vec<FaultSpan>,
    /// Timelines of the slowest records, with `--why`.
    pub timelines: Vec<RecordTimeline>,
    /// Requests that the brokers served, by broker, API and client, with `--why` on Apache Kafka.
    pub requests_served: BTreeMap<String, u64>,
    /// Figures specific to the experiment, by name with the unit at its end.
    pub extra: BTreeMap<String, Figure>,
}

impl Sample {
    /// Adds another turn of the same arm.
    pub fn join(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.elapsed += other.elapsed;
        self.cpu = self.cpu + other.cpu;
        self.latency.add(&other.latency);
        self.phases.add(&other.phases);
        self.probes.add(other.probes);
        self.exemplars.add(other.exemplars);
        self.over_time.add(&other.over_time);
        self.latency_until = other.latency_until;
        for (broker, (records, bytes)) in other.brokers {
            let share = self.brokers.entry(broker).or_default();
            *share = (share.0 + records, share.1 + bytes);
        }
        self.faults.extend(other.faults);
        self.timelines.extend(other.timelines);
        for (name, count) in other.requests_served {
            *self.requests_served.entry(name).or_default() += count;
        }
        for (name, figure) in other.extra {
            self.extra.entry(name).and_modify(|known| known.join(figure)).or_insert(figure);
        }
    }

    /// Adds a fault or change that lasted from `from` to `until`, in a run that began at `start`.
    pub fn mark(&mut self, start: Instant, from: Instant, until: Instant, what: impl Into<String>) {
        let ms = |at: Instant| at.saturating_duration_since(start).as_secs_f64() * 1000.0;
        self.faults.push(FaultSpan { from_ms: ms(from), until_ms: ms(until), what: what.into() });
    }

    /// Adds a figure specific to the experiment.
    pub fn note(&mut self, name: impl Into<String>, figure: Figure) {
        self.extra.insert(name.into(), figure);
    }

    /// A figure specific to the experiment. NaN, which fails every condition, if it was not measured.
    #[must_use]
    pub fn figure(&self, name: &str) -> f64 {
        self.extra.get(name).map_or(f64::NAN, |figure| figure.value())
    }
}
