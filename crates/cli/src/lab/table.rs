//! The report of an experiment as text.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Write as _};

use curtail_lab::experiments::{
    ArmReport, Condition, PublishedFigure, Report,
    compare::{legend, within},
};

use super::compare;

/// Columns of the table.
const COLUMNS: usize = 14;

const HEADER: [&str; COLUMNS] = [
    "",
    "records",
    "MB/s",
    "avg ms",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "p99.9 ms",
    "max ms",
    "CPU us/record",
    "lost",
    "dupl.",
    "reord.",
    "errors",
];

/// Formats the conclusion, limits, ratios of the arms, arms, published figures, further figures, and conditions.
pub(super) fn table(report: &Report) -> String {
    let Report { experiment, cluster, scale, seed, .. } = report;
    let mut text = format!("{}\n", report.conclusion());
    text +=
        &format!("{experiment} on {cluster}, scale {scale}, seed {seed} ({})\n", report.source());
    for limit in report.limits() {
        text += &format!("{limit}\n");
    }
    let ratios = within(report);
    if let (Some(first), false) = (report.arms.first(), ratios.is_empty()) {
        text += &format!(
            "ratios to {} of {}; {}:\n{}",
            first.name,
            first.client,
            legend(&ratios),
            compare::ratios(&ratios)
        );
    }
    text += &figures(report);
    for arm in &report.arms {
        if !arm.extra.is_empty() {
            let figures: Vec<String> =
                arm.extra.iter().map(|(name, value)| format!("{name} {}", short(*value))).collect();
            text += &format!("{}: {}\n", report.label(arm), figures.join(", "));
        }
        if let Some((phase, times)) = to_blame(arm) {
            let of = arm.exemplars.len();
            let name = report.label(arm);
            let meaning = curtail_lab::phases::meaning(phase);
            text += &format!(
                "{name}: {phase} to blame for {times} of the {of} slowest records ({meaning})\n"
            );
        }
    }
    text += &timelines(report);
    text + &conditions(report)
}

/// The conditions, with those of integrity that held in one line.
fn conditions(report: &Report) -> String {
    let line = |condition: Condition| {
        let word = if condition.held { "held" } else { "NOT HELD" };
        format!("{word}: {}\n", condition.text)
    };
    report.folded_conditions().into_iter().map(line).collect()
}

/// With `--why`: the timelines of the slowest records, and the requests that the brokers served.
fn timelines(report: &Report) -> String {
    let mut text = String::new();
    for arm in &report.arms {
        let name = report.label(arm);
        for slow in &arm.timelines {
            text += &format!(
                "{name}: why a record of partition {} (offset {}) took {:.1} ms; times in ms since the first record was due:\n",
                slow.partition, slow.offset, slow.latency_ms
            );
            for line in &slow.lines {
                text += &format!("{:>12.1}  {}\n", line.at_ms, line.text);
            }
        }
        for (request, count) in &arm.requests_served {
            text += &format!("{name}: {count:>7} requests, {request}\n");
        }
    }
    text
}

/// The arms, then the published figures.
fn figures(report: &Report) -> String {
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(report.arms.iter().map(|arm| measured(arm, report.label(arm))));
    let published_from = rows.len();
    let others: Vec<&PublishedFigure> = report.published().collect();
    rows.extend(others.iter().copied().map(published));
    let mut text = String::new();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEADER.len()).map(|column| width(column).unwrap_or(0)).collect();
    for (index, row) in rows.iter().enumerate() {
        if index == published_from {
            text += "published:\n";
        }
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            // Writing to memory does not fail.
            let _ = write!(line, "  {cell:>width$}");
        }
        let note = index.checked_sub(published_from).and_then(|at| others.get(at));
        if let Some(PublishedFigure { source, note, .. }) = note {
            let _ = write!(line, "  {source}{}{note}", if note.is_empty() { "" } else { ": " });
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The phase to blame for most of the slowest records, with their number.
fn to_blame(arm: &ArmReport) -> Option<(&str, usize)> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    arm.exemplars.iter().filter_map(|exemplar| exemplar.blame.as_deref()).for_each(|phase| {
        *times.entry(phase).or_default() += 1;
    });
    times.into_iter().max_by_key(|(_, times)| *times)
}

fn measured(arm: &ArmReport, label: String) -> [String; COLUMNS] {
    let latency = &arm.latency_us;
    let counts = [arm.lost, arm.duplicated, arm.reordered, arm.errors].map(|n| n.to_string());
    let [lost, duplicated, reordered, errors] = counts;
    [
        label,
        arm.records.to_string(),
        format!("{:.2}", arm.throughput_mbps),
        millis(latency.avg),
        millis(latency.p50),
        millis(latency.p95),
        millis(latency.p99),
        millis(latency.p999),
        millis(latency.max),
        format!("{:.1}", arm.cpu_us_per_record),
        lost,
        duplicated,
        reordered,
        errors,
    ]
}

fn published(published: &PublishedFigure) -> [String; COLUMNS] {
    let latency = &published.latency_us;
    let known = |micros: Option<f64>| micros.map_or_else(|| "-".to_owned(), millis);
    let mut row = [const { String::new() }; COLUMNS];
    row[0] = published.arm.clone();
    row[2] = published.throughput_mbps.map_or_else(|| "-".to_owned(), |mbps| format!("{mbps:.2}"));
    let figures = [latency.avg, latency.p50, latency.p95, latency.p99, latency.p999, latency.max];
    for (cell, figure) in row[3..].iter_mut().zip(figures) {
        *cell = known(figure);
    }
    row
}

fn millis(micros: f64) -> String {
    let ms = micros / 1000.0;
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.1}") }
}

fn short(value: f64) -> String {
    if value == value.trunc() { format!("{value}") } else { format!("{value:.2}") }
}
