//! The outcome of an experiment as text.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Write as _};

use curtail_lab::experiments::{ArmReport, Published, Report};

/// Columns of the table.
const COLUMNS: usize = 14;

const HEADER: [&str; COLUMNS] = [
    "", "records", "MB/s", "avg ms", "p50", "p95", "p99", "p99.9", "max", "CPU us", "lost",
    "dupl.", "reord.", "errors",
];

/// The arms, then the published figures, then what else was measured, then the conditions.
pub(super) fn table(report: &Report) -> String {
    let mut rows = vec![HEADER.map(str::to_owned)];
    let named = report.arms.iter().any(|arm| arm.client != "curtail");
    rows.extend(report.arms.iter().map(|arm| measured(arm, label(arm, named))));
    let published_from = rows.len();
    rows.extend(report.published.iter().map(published));
    let mut text = String::new();
    let Report { experiment, cluster, scale, seed, source, .. } = report;
    // Writing to memory does not fail.
    let _ = writeln!(text, "{experiment} on {cluster}, scale {scale}, seed {seed} ({source})");
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEADER.len()).map(|column| width(column).unwrap_or(0)).collect();
    for (index, row) in rows.iter().enumerate() {
        if index == published_from {
            let _ = writeln!(text, "published or measured of others:");
        }
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let note = index.checked_sub(published_from).and_then(|at| report.published.get(at));
        if let Some(Published { source, note, .. }) = note {
            let _ = write!(line, "  {source}{}{note}", if note.is_empty() { "" } else { ": " });
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for arm in &report.arms {
        if !arm.extra.is_empty() {
            let figures: Vec<String> =
                arm.extra.iter().map(|(name, value)| format!("{name} {}", short(*value))).collect();
            let _ = writeln!(text, "{}: {}", label(arm, named), figures.join(", "));
        }
        if let Some((phase, times)) = to_blame(arm) {
            let of = arm.exemplars.len();
            let _ = writeln!(
                text,
                "{}: {phase} to blame for {times} of the {of} slowest",
                label(arm, named)
            );
        }
    }
    for condition in &report.conditions {
        let word = if condition.held { "held" } else { "NOT HELD" };
        let _ = writeln!(text, "{word}: {}", condition.text);
    }
    text
}

/// The phase that most of the slowest records have to blame, and how many.
fn to_blame(arm: &ArmReport) -> Option<(&str, usize)> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    arm.exemplars.iter().filter_map(|exemplar| exemplar.blame.as_deref()).for_each(|phase| {
        *times.entry(phase).or_default() += 1;
    });
    times.into_iter().max_by_key(|(_, times)| *times)
}

/// An arm's name, with its client where there are others than Curtail.
fn label(arm: &ArmReport, named: bool) -> String {
    if named { format!("{} ({})", arm.name, arm.client) } else { arm.name.to_owned() }
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

fn published(published: &Published) -> [String; COLUMNS] {
    let latency = &published.latency_us;
    let known = |micros: Option<f64>| micros.map_or_else(|| "-".to_owned(), millis);
    let mut row = [const { String::new() }; COLUMNS];
    row[0] = published.arm.to_owned();
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
