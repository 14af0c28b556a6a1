//! The report of an experiment on a cluster: its claims, and everything that its newest run measured.

use super::{
    Cluster,
    chart::{Panel, draw},
    claims::{Aim, CLAIMS, Claim, Metric},
    number::{Unit, thousands, with_unit, without_unit},
    page::{self, cell, command, commit, escaped, is_variant, machine, ms, when},
    rows::{self, Row},
    store::Run,
};
use crate::experiments::{self, ArmReport, PublishedFigure, Report};

/// The report of these runs, oldest first.
pub(super) fn report(cluster: Cluster, runs: &[Run]) -> String {
    let Some(newest) = runs.last() else { return String::new() };
    let report = &newest.report;
    let about = experiments::find(&report.experiment).map_or("", |found| found.about());
    let claims = claims(cluster, &report.experiment);
    let rows: Vec<_> = claims.flat_map(|claim| rows::rows(claim, cluster, runs)).collect();
    let mut text = format!(
        "# {}, {}: {}\n\n{} {}\n\nSource: {}. Written by `curtail lab publish`.\n",
        report.experiment,
        cluster.title(),
        found(report, &rows),
        sentence(about),
        escaped(&report.conclusion()),
        report.source().trim_end_matches('.')
    );
    if chart(cluster, runs).is_some() {
        text += "\n![Chart of the claims](chart.svg)\n";
    }
    if !rows.is_empty() {
        text += &format!("\n{}", page::table(&rows, "../../"));
    }
    text += &run_text(newest);
    if runs.len() > 1 {
        text += "\n## Earlier runs\n\n";
        for run in runs.iter().rev().skip(1) {
            let environment = &run.report.environment;
            let command = command(&run.report.command);
            let (when, commit) = (when(run), commit(environment));
            text += &format!("- [{when}]({}): {commit}; `{command}`\n", run.file);
        }
    }
    text
}

/// How many claims held in every turn; without a claim that was judged, how many conditions held.
fn found(report: &Report, rows: &[Row<'_>]) -> String {
    let judged: Vec<bool> = rows.iter().filter_map(Row::is_held).collect();
    let of = |held: usize, all: usize, things: &str| format!("{held} of {all} {things} held");
    if judged.is_empty() {
        let held = report.conditions.iter().filter(|condition| condition.held).count();
        return of(held, report.conditions.len(), "conditions");
    }
    of(judged.iter().filter(|held| **held).count(), judged.len(), "claims")
}

/// A chart of the latencies and throughputs with claims: Curtail, the arms it is compared with, and the other clients.
pub(super) fn chart(cluster: Cluster, runs: &[Run]) -> Option<String> {
    let experiment = &runs.last()?.report.experiment;
    let mut panels: Vec<(&str, Metric)> = Vec::new();
    let is_charted = |claim: &&Claim| matches!(claim.metric.unit(), Unit::Ms | Unit::Mbps);
    for claim in claims(cluster, experiment).filter(is_charted) {
        if !panels.contains(&(claim.arm, claim.metric)) {
            panels.push((claim.arm, claim.metric));
        }
    }
    let panels = panels.into_iter().filter_map(|(arm, metric)| panel(cluster, runs, arm, metric));
    let panels: Vec<Panel> = panels.collect();
    let title = format!("{experiment}: {}", cluster.title());
    (!panels.is_empty()).then(|| draw(&title, &panels))
}

fn panel(cluster: Cluster, all: &[Run], arm: &str, metric: Metric) -> Option<Panel> {
    let runs = rows::last(all, arm);
    let experiment = &runs.last()?.report.experiment;
    let same = |claim: &&Claim| claim.arm == arm && claim.metric == metric;
    let mut claims = claims(cluster, experiment).filter(same).peekable();
    let better = if metric.more_is_better() { " (more is better)" } else { "" };
    let title = format!("{}: {}{better}", claims.peek()?.sentence.replace('`', ""), metric.name());
    let mut panel = Panel::new(title, metric.unit());
    panel.client("Curtail", rows::ours(arm, metric, &runs));
    for claim in claims {
        if let Aim::Arm { arm, .. } = claim.aim {
            panel.client(format!("Curtail, {arm}"), rows::ours(arm, metric, &runs));
        }
    }
    for other in rows::others(arm, metric, &runs) {
        panel.client(other.client, Some(other.spread));
    }
    (!panel.is_empty()).then_some(panel)
}

fn claims(cluster: Cluster, experiment: &str) -> impl Iterator<Item = &'static Claim> {
    CLAIMS
        .iter()
        .filter(move |claim| claim.experiment == experiment && claim.clusters.contains(&cluster))
}

/// Everything that a run measured.
fn run_text(run: &Run) -> String {
    let report = &run.report;
    let environment = &report.environment;
    let mut text = format!(
        "\n## Run of {}\n\n`{}`\n\n- {}; {}; {}\n",
        when(run),
        command(&report.command),
        commit(environment),
        machine(environment),
        versions(report),
    );
    for limit in report.limits() {
        text += &format!("- {limit}\n");
    }
    for model in &report.models {
        let parameters = model.parameters.iter().map(|(name, value)| format!("{name} {value}"));
        let parameters = parameters.collect::<Vec<_>>().join(", ");
        let parameters =
            if parameters.is_empty() { parameters } else { format!(" ({parameters})") };
        text += &format!("- Model: {}{parameters}\n", model.what);
    }
    text += &format!("- [JSON]({})\n", run.file);
    text += &arms(report);
    text += &extra(report);
    text += &published(report);
    text += "\n### Conditions\n\n";
    for condition in report.folded_conditions() {
        let state = if condition.held { "held" } else { "not held" };
        text += &format!("- {state}: {}\n", condition.text.replace('<', "&lt;"));
    }
    text
}

fn versions(report: &Report) -> String {
    let versions =
        report.environment.versions.iter().map(|(name, version)| format!("{name} {version}"));
    let versions = versions.collect::<Vec<_>>().join(", ");
    if versions.is_empty() { "versions not recorded".to_owned() } else { versions }
}

fn arms(report: &Report) -> String {
    let until = report.arms.first().map(|arm| arm.latency_until).unwrap_or_default();
    let variants = match report.arms.iter().any(is_variant) {
        true => {
            " An arm that ends with `+NAME` also had the properties of `--variant NAME` in the command."
        }
        false => "",
    };
    let mut text = format!(
        "\n### Measured in this run\n\n\
         Latency {}, all turns together. CPU is user and system time per record. Wrong records were lost, \
         duplicated, reordered or refused.{variants}\n\n\
         | arm | client | turns | records | MB/s | p50 | p99 | p99.9 | slowest | CPU | wrong records |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        until.words()
    );
    text.extend(report.arms.iter().map(arm_line));
    text
}

fn arm_line(arm: &ArmReport) -> String {
    let latency = &arm.latency_us;
    let cells = [
        arm.name.clone(),
        arm.client.clone(),
        arm.rounds.len().max(1).to_string(),
        thousands(arm.records as i64),
        without_unit(arm.throughput_mbps, Unit::Mbps),
        ms(latency.p50),
        ms(latency.p99),
        ms(latency.p999),
        ms(latency.max),
        with_unit(arm.cpu_us_per_record, Unit::Us),
        wrong(arm),
    ];
    format!("| {} |\n", cells.map(|text| cell(&text)).join(" | "))
}

/// Records that did not arrive as they were sent, by what happened to them.
fn wrong(arm: &ArmReport) -> String {
    let counts = [
        (arm.lost, "lost"),
        (arm.duplicated, "duplicated"),
        (arm.reordered, "reordered"),
        (arm.errors, "refused"),
    ];
    let seen = counts.into_iter().filter(|(count, _)| *count > 0);
    let seen: Vec<String> =
        seen.map(|(count, word)| format!("{} {word}", thousands(count as i64))).collect();
    if seen.is_empty() { "none".to_owned() } else { seen.join(", ") }
}

fn extra(report: &Report) -> String {
    let line = |arm: &ArmReport| {
        let figures = arm.extra.iter().map(|(name, value)| {
            let value = if value.is_finite() { format!("{value:.3}") } else { "not seen".into() };
            let value = match value.contains('.') {
                true => value.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => value,
            };
            format!("`{name}` {value}")
        });
        let figures = figures.collect::<Vec<_>>().join(", ");
        format!("- {}, {}: {figures}\n", arm.name, arm.client)
    };
    let lines: String = report.arms.iter().filter(|arm| !arm.extra.is_empty()).map(line).collect();
    if lines.is_empty() { lines } else { format!("\n### Other figures of this run\n\n{lines}") }
}

fn published(report: &Report) -> String {
    let line = |figure: &PublishedFigure| {
        let latency = &figure.latency_us;
        let figures = [
            ("average", latency.avg),
            ("p50", latency.p50),
            ("p95", latency.p95),
            ("p99", latency.p99),
            ("p99.9", latency.p999),
            ("slowest", latency.max),
        ];
        let figures =
            figures.into_iter().filter_map(|(name, us)| Some(format!("{name} {}", ms(us?))));
        let mbps = figure.throughput_mbps.map(|mbps| with_unit(mbps, Unit::Mbps));
        let note = (!figure.note.is_empty()).then(|| figure.note.clone());
        let parts: Vec<String> = figures.chain(mbps).chain(note).collect();
        format!("- {} ({}): {}\n", figure.arm, figure.source, parts.join(", "))
    };
    let lines: String = report.published().map(line).collect();
    let head = "\n### Published figures\n\n";
    if lines.is_empty() { lines } else { format!("{head}{lines}") }
}

/// A text with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}
