//! Benchmarks of other projects: Trogdor's task specifications (`ProduceBenchSpec`, `ConsumeBenchSpec`,
//! `RoundTripWorkloadSpec`) and workloads of the OpenMessaging Benchmark, with their status and result
//! formats.
//!
//! Their latencies are measured as in the originals, which leave out the wait before the send. Where an
//! intended send time is known, the latency from then is reported as well.

mod consume;
mod names;
mod omb;
mod payload;
mod place;
mod produce;
mod round_trip;
#[cfg(test)]
mod tests;
mod track;
mod trogdor;

use std::{fs, path::Path, time::Duration};

use curtail::error::Report;
use serde::Serialize;
use serde_json::Value;

use self::trogdor::Task;
use crate::{
    latency::{Latencies, Summary},
    perf::{Error, Progress, Result},
};

/// A parsed benchmark.
#[derive(Clone, Debug)]
pub struct Bench(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Trogdor(Box<Task>),
    Omb(Box<omb::Workload>, omb::Driver),
}

/// Result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The original status or result, with its field names.
    pub status: Value,
    /// Latencies as in the original, with a finer resolution. Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_send: Option<Figures>,
    /// Latencies from the intended send time. Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_intended: Option<Figures>,
    /// Notes on the figures.
    pub notes: Vec<String>,
    /// Reason of a failed run, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A distribution and the interval it measures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The interval, in words.
    pub measured: &'static str,
    /// Latencies in microseconds.
    #[serde(flatten)]
    pub latency_us: Summary,
}

impl Figures {
    fn of(latencies: &Latencies, measured: &'static str) -> Option<Self> {
        (latencies.count() > 0).then(|| Self { measured, latency_us: latencies.summary() })
    }
}

impl Bench {
    /// Reads a file. JSON is a Trogdor task; everything else is a workload of the OpenMessaging Benchmark,
    /// with an optional driver file.
    ///
    /// # Errors
    /// A file that cannot be read; unknown, invalid or unsupported content, by name.
    pub fn load(file: &Path, driver: Option<&Path>) -> Result<Self> {
        let named = |path: &Path| {
            let shown = path.display().to_string();
            move |error: Error| Error::Options(format!("{shown}: {}", Report::new(&error)))
        };
        let text = read(file)?;
        let driver = match driver {
            Some(path) => Some(omb::Driver::parse(&read(path)?).map_err(named(path))?),
            None => None,
        };
        Self::parse(&text, driver).map_err(named(file))
    }

    fn parse(text: &str, driver: Option<omb::Driver>) -> Result<Self> {
        let mut lines = text.lines().filter(|line| !trogdor::is_comment(line));
        let first = lines.find_map(|line| line.trim_start().chars().next());
        if first != Some('{') {
            let workload = omb::Workload::parse(text)?;
            return Ok(Self(Kind::Omb(Box::new(workload), driver.unwrap_or_default())));
        }
        if driver.is_some() {
            return refuse("a driver is for workloads of the OpenMessaging Benchmark only");
        }
        let task = Task::parse(text)?;
        task.check()?;
        Ok(Self(Kind::Trogdor(Box::new(task))))
    }

    /// Runs the benchmark on this thread. The cluster is `bootstrap`, else the address in the file, else an
    /// embedded one.
    ///
    /// # Errors
    /// An unreachable cluster, mismatching topics, unknown settings. Records that were lost or not
    /// acknowledged are part of the outcome.
    pub fn run(&self, bootstrap: Option<&str>, progress: &mut dyn Progress) -> Result<Outcome> {
        match &self.0 {
            Kind::Trogdor(task) => match &**task {
                Task::Produce(spec) => produce::run(spec, bootstrap, progress),
                Task::Consume(spec) => consume::run(spec, bootstrap, progress),
                Task::RoundTrip(spec) => round_trip::run(spec, bootstrap, progress),
            },
            Kind::Omb(workload, driver) => omb::run(workload, driver, bootstrap, progress),
        }
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .map_err(|error| Error::Options(format!("cannot read {}: {error}", path.display())))
}

/// Converts a status to JSON.
fn status(status: &impl Serialize) -> Result<Value> {
    serde_json::to_value(status).map_err(|error| Error::Unexpected(error.to_string()))
}

fn refuse<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Options(text.into()))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
