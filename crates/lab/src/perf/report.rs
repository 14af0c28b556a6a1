//! Progress and report of a run.

use std::time::Duration;

use serde::Serialize;

use crate::{
    cpu::CpuTime,
    latency::{Latencies, Summary},
};

/// Receives the progress of a run. Called from the measuring thread, so it must be quick.
pub trait Progress {
    /// Handles an event.
    fn on(&mut self, event: Event<'_>);
}

impl<F: FnMut(Event<'_>)> Progress for F {
    fn on(&mut self, event: Event<'_>) {
        self(event);
    }
}

/// An event of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A preparation before the measured part, named in words.
    Preparing(&'a str),
    /// The measured part begins.
    Started {
        /// Records it will have.
        total: u64,
    },
    /// Records done so far; sent about ten times per second.
    Advanced {
        /// Records acknowledged or read so far.
        done: u64,
    },
    /// A reporting interval of a producer has ended.
    Window(&'a Window),
    /// A reporting interval of a consumer has ended.
    Interval(&'a Interval),
    /// Every thousandth record of an end-to-end run.
    Sample {
        /// Number of the record.
        index: u64,
        /// Latency of the record.
        latency: Duration,
    },
}

/// Records acknowledged in one reporting interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Records acknowledged.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Length of the interval.
    pub elapsed: Duration,
    /// Mean latency from the actual send.
    pub avg: Duration,
    /// Longest latency from the actual send.
    pub max: Duration,
}

/// Records read up to the end of one reporting interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Wall-clock time of its end, in milliseconds since 1970-01-01 UTC.
    pub at_ms: i64,
    /// Records read since the start.
    pub records: u64,
    /// Bytes of keys and values read since the start.
    pub bytes: u64,
    /// Records of the interval.
    pub new_records: u64,
    /// Bytes of the interval.
    pub new_bytes: u64,
    /// Length of the interval.
    pub elapsed: Duration,
}

/// CPU time of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Used in the measured part, by the whole process.
    pub cpu: CpuTime,
    /// Whether the brokers ran in the same process, so that their CPU time is included.
    pub includes_brokers: bool,
}

/// The figures of a run, as `--json` writes them. Latencies are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `produce`, `consume` or `e2e`.
    pub tool: &'static str,
    /// The client that was measured.
    pub client: &'static str,
    /// Version of the client.
    pub version: &'static str,
    /// Records acknowledged or read in the measured part.
    pub records: u64,
    /// Records that were not acknowledged.
    pub errors: u64,
    /// The first error, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Mean size of a record's value (of key and value when consuming), in bytes.
    pub record_size: u64,
    /// Length of the measured part.
    pub seconds: f64,
    /// Records per second.
    pub throughput_rps: f64,
    /// Bytes per second, in units of 1024 * 1024.
    pub throughput_mbps: f64,
    /// The target rate; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_rps: Option<f64>,
    /// CPU time per record, user and system, in microseconds.
    pub cpu_us_per_record: f64,
    /// User time of the measured part, in microseconds.
    pub cpu_user_us: f64,
    /// System time of the measured part, in microseconds.
    pub cpu_system_us: f64,
    /// Whether the brokers ran in this process, so that their CPU time is included.
    pub cpu_includes_brokers: bool,
    /// Latencies from the intended send time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Summary>,
    /// Latencies from the actual send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_latency_us: Option<Summary>,
    /// The phases of the records' latency.
    pub phases_us: PhasesReport,
}

/// The time of each phase that could be observed.
///
/// The phases of a record follow each other: produce, publish, commit, catch-up and fetch make up its latency.
/// A producer alone sees `produce` and `acknowledge` only: it cannot look into the brokers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PhasesReport {
    /// From the send until the batch was handed to the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produce: Option<Summary>,
    /// Until the leader had appended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<Summary>,
    /// Until the high watermark had passed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Summary>,
    /// Until the consumer had read the records before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<Summary>,
    /// Until a poll returned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch: Option<Summary>,
    /// From the socket until the acknowledgement was read, in a run that only produces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge: Option<Summary>,
}

impl PhasesReport {
    /// The observed phases by name, in the order in which a record passes them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Summary)> {
        [
            ("produce", self.produce),
            ("publish", self.publish),
            ("commit", self.commit),
            ("catch_up", self.catch_up),
            ("fetch", self.fetch),
            ("acknowledge", self.acknowledge),
        ]
        .into_iter()
        .filter_map(|(name, summary)| Some((name, summary?)))
    }
}

/// Summary of latencies, if there are any.
pub(super) fn summary(latencies: &Latencies) -> Option<Summary> {
    (latencies.count() > 0).then(|| latencies.summary())
}

/// Figures common to all reports.
pub(super) struct Figures {
    pub(super) tool: &'static str,
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
    pub(super) cost: Cost,
}

impl Figures {
    pub(super) fn report(self) -> Report {
        let seconds = self.elapsed.as_secs_f64();
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let cpu = self.cost.cpu;
        Report {
            tool: self.tool,
            client: "curtail",
            version: env!("CARGO_PKG_VERSION"),
            records: self.records,
            errors: 0,
            first_error: None,
            record_size: self.bytes / self.records.max(1),
            seconds,
            throughput_rps: per_second(self.records as f64),
            throughput_mbps: per_second(self.bytes as f64 / (1024.0 * 1024.0)),
            target_rps: None,
            cpu_us_per_record: micros(cpu.total()) / self.records.max(1) as f64,
            cpu_user_us: micros(cpu.user),
            cpu_system_us: micros(cpu.system),
            cpu_includes_brokers: self.cost.includes_brokers,
            latency_us: None,
            send_latency_us: None,
            phases_us: PhasesReport::default(),
        }
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}
