//! Reports in formats of other tools: OpenMessaging Benchmark's result and HdrHistogram's interval log.
//!
//! Both contain whole distributions, which exist only in the process that measured them.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, SystemTime},
};

use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag},
};
use serde::Serialize;

use super::{ArmReport, LatencyUntil, Report};
use crate::over_time::Distribution;

/// An arm as an OpenMessaging Benchmark result; `null` and empty where nothing was measured. Latencies are in
/// milliseconds, rates in records per second, with one value per slot of each turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OmbResult {
    /// Experiment and arm.
    pub workload: String,
    /// The client, and the cluster.
    pub driver: String,
    /// Records acknowledged.
    pub publish_rate: Vec<f64>,
    /// Records read.
    pub consume_rate: Vec<f64>,
    /// The latencies, each series by its name in the benchmark.
    #[serde(flatten)]
    pub series: BTreeMap<String, Vec<f64>>,
    /// The latencies of the whole run.
    #[serde(flatten)]
    pub aggregated: BTreeMap<String, f64>,
    /// The whole distributions: percentile to milliseconds.
    #[serde(flatten)]
    pub quantiles: BTreeMap<String, BTreeMap<String, f64>>,
}

/// The benchmark's names of quantiles.
const QUANTILES: [(&str, f64); 7] = [
    ("50pct", 0.5),
    ("75pct", 0.75),
    ("95pct", 0.95),
    ("99pct", 0.99),
    ("999pct", 0.999),
    ("9999pct", 0.9999),
    ("99999pct", 0.999_99),
];

/// Converts an arm to an OpenMessaging Benchmark result; `None` if the experiment measures neither
/// acknowledgements nor polls, or nothing over time.
#[must_use]
pub fn omb(report: &Report, arm: &ArmReport) -> Option<OmbResult> {
    let kind = match arm.latency_until {
        LatencyUntil::Acknowledged => "PublishLatency",
        LatencyUntil::Polled => "EndToEndLatency",
        LatencyUntil::Returned => return None,
    };
    let mut result = OmbResult {
        workload: format!("{} {}", report.experiment, arm.name),
        driver: format!("{} on {}", arm.client, report.cluster),
        ..OmbResult::default()
    };
    let mut all = Distribution::default();
    for round in &arm.rounds {
        let seconds = round.distributions.width().as_secs_f64();
        for (_, slot) in round.distributions.iter() {
            let rate = slot.count() as f64 / seconds;
            match arm.latency_until {
                LatencyUntil::Polled => result.consume_rate.push(rate),
                _ => result.publish_rate.push(rate),
            }
            for (name, ms) in figures(slot) {
                result.series.entry(format!("{}{name}", uncapitalised(kind))).or_default().push(ms);
            }
            all.add(slot);
        }
    }
    if all.count() == 0 {
        return None;
    }
    for (name, ms) in figures(&all) {
        result.aggregated.insert(format!("aggregated{kind}{name}"), ms);
    }
    let percentile = |step: u32| {
        let exact = 100.0 * (1.0 - 10f64.powf(-f64::from(step) / 10.0));
        (exact * 1e6).round() / 1e6
    };
    let point = |percentile: f64| (percentile.to_string(), ms(all.quantile(percentile / 100.0)));
    let points = (0..=50).map(percentile).chain([100.0]).map(point).collect();
    result.quantiles.insert(format!("aggregated{kind}Quantiles"), points);
    Some(result)
}

fn figures(of: &Distribution) -> impl Iterator<Item = (&'static str, f64)> {
    let quantiles = QUANTILES.map(|(name, quantile)| (name, ms(of.quantile(quantile))));
    quantiles.into_iter().chain([("Avg", ms(of.mean())), ("Max", ms(of.max()))])
}

fn ms(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

fn uncapitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map(|first| first.to_ascii_lowercase())
        .into_iter()
        .chain(characters)
        .collect()
}

/// Writes every slot of every turn as an interval of one log, tagged `experiment.arm.client`. Values are in
/// nanoseconds, as HdrHistogram's tools expect.
///
/// # Errors
/// Errors of the writer.
pub fn hdr(reports: &[Report], writer: &mut impl io::Write) -> io::Result<()> {
    let mut slots = Vec::new();
    for report in reports {
        for arm in &report.arms {
            let tag = format!("{}.{}.{}", report.experiment, arm.name, arm.client);
            let tag: String =
                tag.chars().map(|c| if " ,\r\n".contains(c) { '_' } else { c }).collect();
            for round in &arm.rounds {
                let width = round.distributions.width();
                let began = Duration::from_millis(round.started_ms);
                for (from, slot) in round.distributions.iter() {
                    slots.push((began + from, width, tag.clone(), slot));
                }
            }
        }
    }
    // Readers expect intervals in time order.
    slots.sort_by_key(|(from, ..)| *from);
    let began = slots.first().map_or(Duration::ZERO, |(from, ..)| *from);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("latencies in nanoseconds by the intended send time")
        .with_start_time(SystemTime::UNIX_EPOCH + began)
        .with_base_time(SystemTime::UNIX_EPOCH + began)
        .with_max_value_divisor(1e6)
        .begin_log_with(writer, &mut serializer)?;
    for (from, width, tag, slot) in slots {
        let written = log.write_histogram(slot.histogram(), from - began, width, Tag::new(&tag));
        written.map_err(|error| match error {
            IntervalLogWriterError::IoError(error) => error,
            IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
        })?;
    }
    Ok(())
}
