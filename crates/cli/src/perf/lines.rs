//! The lines of Kafka's tools, character for character, and Curtail's additional ones.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use curtail::metrics::NamedMetric;
use curtail_lab::{
    latency::Summary,
    perf::{Interval, Report, Window},
    phases::meaning,
};

const MB: f64 = 1024.0 * 1024.0;

fn ms(micros: f64) -> f64 {
    micros / 1000.0
}

/// Whole milliseconds, truncated as the tools' clocks do.
fn whole_ms(micros: f64) -> u64 {
    ms(micros) as u64
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A producer's reporting interval.
pub(super) fn produce_window(window: &Window) -> String {
    let seconds = window.elapsed.as_secs_f64();
    format!(
        "{} records sent, {:.1} records/sec ({:.2} MB/sec), {:.1} ms avg latency, {:.1} ms max latency.",
        window.records,
        window.records as f64 / seconds,
        window.bytes as f64 / MB / seconds,
        millis(window.avg),
        millis(window.max),
    )
}

/// A producer's last line; latencies are those from the actual send, as in Kafka's tool.
pub(super) fn produce_total(report: &Report, steady: bool) -> String {
    let latency = report.send_latency_us.unwrap_or_default();
    format!(
        "{}{} records sent, {:.6} records/sec ({:.2} MB/sec), {:.2} ms avg latency, {:.2} ms max latency, \
         {} ms 50th, {} ms 95th, {} ms 99th, {} ms 99.9th.",
        report.records,
        if steady { " steady state" } else { "" },
        report.throughput_rps,
        report.throughput_mbps,
        ms(latency.avg),
        ms(latency.max),
        whole_ms(latency.p50),
        whole_ms(latency.p95),
        whole_ms(latency.p99),
        whole_ms(latency.p999),
    )
}

/// All figures of a distribution, in milliseconds.
pub(super) fn distribution(latency: &Summary) -> String {
    let Summary { avg, p50, p95, p99, p999, max } = latency;
    format!(
        "{:.3} ms avg, {:.3} ms 50th, {:.3} ms 95th, {:.3} ms 99th, {:.3} ms 99.9th, {:.3} ms max",
        ms(*avg),
        ms(*p50),
        ms(*p95),
        ms(*p99),
        ms(*p999),
        ms(*max)
    )
}

/// The open-loop figures: latencies from the intended send time.
pub(super) fn open_loop(report: &Report) -> Option<String> {
    let rate = report.target_rps?;
    let latency = report.latency_us?;
    Some(format!(
        "Latency from the intended send time at {rate} records/sec: {}.",
        distribution(&latency)
    ))
}

/// The CPU time per record.
pub(super) fn cpu(report: &Report) -> String {
    if report.cpu_us_per_record == 0.0 {
        return "CPU: this system does not report it.".to_owned();
    }
    let records = report.records.max(1) as f64;
    let brokers =
        if report.cpu_includes_brokers { ", the brokers in this process included" } else { "" };
    format!(
        "CPU: {:.3} us per record ({:.3} user, {:.3} system){brokers}.",
        report.cpu_us_per_record,
        report.cpu_user_us / records,
        report.cpu_system_us / records
    )
}

/// A table of the phases, if any are known.
pub(super) fn phases(report: &Report) -> Option<String> {
    let mut table = format!(
        "{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "Phase, ms", "avg", "50th", "99th", "99.9th", "max"
    );
    let mut any = false;
    for (name, phase) in report.phases_us.iter() {
        any = true;
        let figures = [phase.avg, phase.p50, phase.p99, phase.p999, phase.max];
        let _ = write!(table, "\n{name:<12}");
        for figure in figures {
            let _ = write!(table, "{:>10.3}", ms(figure));
        }
        let _ = write!(table, "  {}", meaning(name));
    }
    any.then_some(table)
}

/// The part of an end-to-end latency that cannot be separated into phases, on a cluster outside this process.
pub(super) fn unseparated(report: &Report) -> Option<String> {
    let (latency, produce) = (report.latency_us?, report.phases_us.produce?);
    report.phases_us.publish.is_none().then(|| {
        format!(
            "The other {:.3} ms of the average are publish, commit, catch_up and fetch, which cannot be separated on a cluster \
             outside this process.",
            ms(latency.avg - produce.avg)
        )
    })
}

/// Every thousandth record of an end-to-end run.
pub(super) fn e2e_sample(index: u64, latency: Duration) -> String {
    format!("{index}\t{}", latency.as_nanos() as f64 / 1e6)
}

/// The two lines of Kafka's tool at the end of an end-to-end run.
pub(super) fn e2e_total(report: &Report) -> String {
    let latency = report.latency_us.unwrap_or_default();
    format!(
        "Avg latency: {:.4} ms\nPercentiles: 50th = {}, 99th = {}, 99.9th = {}",
        ms(latency.avg),
        whole_ms(latency.p50),
        whole_ms(latency.p99),
        whole_ms(latency.p999)
    )
}

/// A client's metrics as Kafka's tools print them: an empty line, a header, and each one in the order of its name.
pub(super) fn metrics(metrics: &[NamedMetric]) -> String {
    let name = |metric: &NamedMetric| {
        let tags: Vec<String> =
            metric.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{}:{}:{{{}}}", metric.group, metric.name, tags.join(", "))
    };
    let sorted: BTreeMap<String, f64> = metrics.iter().map(|m| (name(m), m.value)).collect();
    let width = sorted.keys().map(|name| name.chars().count()).max().unwrap_or_default();
    let mut text = format!("\n{:width$}   Value", "Metric Name");
    for (name, value) in sorted {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{name:width$} : {value:.3}");
    }
    text
}

const CONSUME_FIELDS: &str = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
                              rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec";

/// A consumer's header.
pub(super) fn consume_header(detailed: bool) -> String {
    let first = if detailed { "time, threadId" } else { "start.time, end.time" };
    format!("{first}, {CONSUME_FIELDS}")
}

/// A consumer's row: the time it begins with, and the figures.
pub(super) struct ConsumeRow {
    pub(super) bytes: u64,
    pub(super) records: u64,
    pub(super) elapsed: Duration,
    pub(super) rebalance: Duration,
}

impl ConsumeRow {
    pub(super) fn total(&self, start: &str, end: &str) -> String {
        let seconds = self.elapsed.as_secs_f64();
        self.line(&format!("{start}, {end}"), self.bytes, self.records, seconds)
    }

    /// A reporting interval: the sums so far, the rates of the interval.
    pub(super) fn interval(interval: &Interval, rebalance: Duration, time: &str) -> String {
        let row = Self {
            bytes: interval.bytes,
            records: interval.records,
            elapsed: interval.elapsed,
            rebalance,
        };
        let seconds = interval.elapsed.as_secs_f64();
        row.line(&format!("{time}, 0"), interval.new_bytes, interval.new_records, seconds)
    }

    fn line(&self, first: &str, bytes: u64, records: u64, seconds: f64) -> String {
        let fetching = self.elapsed.saturating_sub(self.rebalance);
        let rate = |amount: f64, seconds: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let (mb, count) = (bytes as f64 / MB, records as f64);
        format!(
            "{first}, {:.4}, {:.4}, {}, {:.4}, {}, {}, {:.4}, {:.4}",
            self.bytes as f64 / MB,
            rate(mb, seconds),
            self.records,
            rate(count, seconds),
            self.rebalance.as_millis(),
            fetching.as_millis(),
            rate(mb, fetching.as_secs_f64()),
            rate(count, fetching.as_secs_f64())
        )
    }
}
