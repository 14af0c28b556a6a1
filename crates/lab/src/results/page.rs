//! The page: claims by cluster, charts, and the runs behind them.

use std::collections::BTreeMap;

use super::{
    Cluster,
    claims::{CLAIMS, Claim},
    date, kills,
    number::{Unit, thousands},
    report,
    rows::{self, CURTAIL, Row},
    store::{KillsRun, Results, Run},
};
use crate::experiments::{self, Arm, ArmReport, Environment, Report, Setting};

const HEAD: &str = "\
# Results

`curtail lab publish` writes this page from the JSON of the runs, and with `--check` fails if the two differ.

- A row is one claim: the median of the last turns, and in brackets the least and the most.
- A turn is one pass of one client. Turns of arms and clients alternate. A row has the turns of at most five runs.
- Curtail's load is an ordinary program: default settings, tokio's multi-thread runtime, one delivery awaited for each record.
- *Best other client*: the best median in the same runs. *Held*: the turns in which the aim held.
- *Records behind it*: the slowest thousandth of a turn, where it has fewer than 10 records. Such a p99.9 may be noise.
- The date leads to the full report.
";

/// The whole page.
pub(super) fn page(results: &Results) -> String {
    let all: Vec<Row<'_>> =
        Cluster::ALL.into_iter().flat_map(|cluster| rows(results, cluster)).collect();
    let mut text = HEAD.to_owned();
    let kills: Vec<bool> =
        results.kills.values().filter_map(|runs| Some(runs.last()?.kills.held())).collect();
    text += &format!("\n{}\n", summary(&all, &kills));
    for cluster in Cluster::ALL {
        text += &section(results, cluster);
    }
    text
}

fn summary(rows: &[Row<'_>], kills: &[bool]) -> String {
    let states = || rows.iter().map(Row::is_held).chain(kills.iter().copied().map(Some));
    let count = |state| states().filter(|of_row| *of_row == state).count();
    let (held, not, unjudged) = (count(Some(true)), count(Some(false)), count(None));
    let mut text =
        format!("{} claims: {held} held in every turn, {not} did not.", states().count());
    if unjudged > 0 {
        text += &format!(
            " {unjudged} could not be judged: their runs lack other clients, or the arm to compare with."
        );
    }
    text
}

/// The rows of a cluster in the order of the claims.
pub(super) fn rows(results: &Results, cluster: Cluster) -> Vec<Row<'_>> {
    let here = CLAIMS.iter().filter(|claim| claim.clusters.contains(&cluster));
    here.flat_map(|claim| rows::rows(claim, cluster, results.of(cluster, claim.experiment)))
        .collect()
}

fn section(results: &Results, cluster: Cluster) -> String {
    let rows = rows(results, cluster);
    let kills = results.kills.get(&cluster).and_then(|runs| runs.last());
    let here = runs_in_order(results, cluster);
    if here.is_empty() && kills.is_none() {
        return String::new();
    }
    let held: Vec<bool> = kills.iter().map(|run| run.kills.held()).collect();
    let crash_test = kills.map(|run| kills_row(cluster, run)).unwrap_or_default();
    let mut charts = String::new();
    for runs in &here {
        let experiment = &runs[0].report.experiment;
        if is_charted(results, cluster, experiment) {
            let path = format!("{}/{experiment}", cluster.name());
            charts += &format!("\n[![{experiment}]({path}/chart.svg)]({path}/README.md)\n");
        }
    }
    let mut runs = String::new();
    if !here.is_empty() {
        let lines: String = here.into_iter().map(|runs| runs_line(cluster, runs)).collect();
        let title = "Runs: date, commit, machine, integrity, conditions, command";
        runs = folded(title, &format!("\n{lines}"));
    }
    let (title, summary) = (cluster.title(), summary(&rows, &held));
    match cluster {
        // Real brokers and other clients are what readers come for.
        Cluster::Apache => {
            let (least, ours): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(|row| row.client != CURTAIL);
            let (settings, ours): (Vec<_>, Vec<_>) =
                ours.into_iter().partition(|row| FOLDED.contains(&row.claim.experiment));
            let mut text = format!("\n## {title}\n\n{}{crash_test}", table(&ours, ""));
            if !settings.is_empty() {
                let summary = "Reading, settings, replicas, bursts, bystanders of a fault and leaders that return. "
                    .to_owned()
                    + &self::summary(&settings, &[]);
                text += &folded(&summary, &format!("\n{}", table(&settings, "")));
            }
            if !least.is_empty() {
                let words = "With `curtail-completions`, the load that costs least. ";
                let summary = words.to_owned() + &self::summary(&least, &[]);
                text += &folded(&summary.replace('`', ""), &format!("\n{}", table(&least, "")));
            }
            text + &charts + &runs
        }
        Cluster::Embedded | Cluster::Sim => {
            let all = format!("\n{}{crash_test}{charts}{runs}", table(&rows, ""));
            format!("\n## {title}\n{}", folded(&summary, &all))
        }
    }
}

/// Experiments on Apache Kafka whose claims are folded: those on what a setting costs, on bystanders, and on a part of a rolling
/// restart. The page stays short enough to be read.
const FOLDED: [&str; 15] = [
    "acks",
    "bystanders",
    "catch-up",
    "consume",
    "fetch-sessions",
    "fetch-wait",
    "head-of-line",
    "latency-throughput",
    "linger",
    "metadata-churn",
    "micro-burst",
    "min-isr",
    "preferred-return",
    "replication-factor",
    "stalled-partition",
];

/// A block that opens with a click.
fn folded(summary: &str, content: &str) -> String {
    format!("\n<details><summary>{summary}</summary>\n{content}\n</details>\n")
}

/// The runs of each experiment, in the order of the first claims about them.
fn runs_in_order(results: &Results, cluster: Cluster) -> Vec<&[Run]> {
    let first_claim = |name: &str| CLAIMS.iter().position(|claim| claim.experiment == name);
    let mut all = experiments::all();
    all.sort_by_key(|experiment| first_claim(experiment.name()).unwrap_or(CLAIMS.len()));
    let runs = all.into_iter().map(|experiment| results.of(cluster, experiment.name()));
    runs.filter(|runs| !runs.is_empty()).collect()
}

/// The page has one chart per experiment: that of the first cluster with runs. The others are in the reports.
fn is_charted(results: &Results, cluster: Cluster, experiment: &str) -> bool {
    let has_chart = |cluster: &Cluster| {
        let runs = results.of(*cluster, experiment);
        !runs.is_empty() && report::chart(*cluster, runs).is_some()
    };
    Cluster::ALL.iter().find(|cluster| has_chart(cluster)) == Some(&cluster)
}

const UNITS: [&str; 4] = ["ms", "us", "s", "MB/s"];

const COLUMNS: &str = "\
| claim | Curtail | best other client | aim | held | run |
|---|---|---|---|---|---|
";

/// A table of rows. `to` leads to the directory of the results.
pub(super) fn table(rows: &[Row<'_>], to: &str) -> String {
    let lines = rows.iter().map(|row| {
        let claim = row.claim;
        let cells = [
            claimed(row),
            ours(row),
            other(row),
            claim.aim.text(claim.metric),
            held(row),
            format!("{}, {}", link(row, to, &newest(row)), turns(row)),
        ];
        format!("| {} |\n", cells.map(|text| cell(&text)).join(" | "))
    });
    COLUMNS.to_owned() + &lines.collect::<String>()
}

/// The claim in words, with its metric.
pub(super) fn claimed(row: &Row<'_>) -> String {
    let Claim { sentence, metric, .. } = row.claim;
    match row.client {
        CURTAIL => format!("{sentence}: {}", metric.name()),
        client => format!("{sentence}, `{client}`: {}", metric.name()),
    }
}

/// The figures of Curtail. A 99.9th percentile that few records are behind is marked.
pub(super) fn ours(row: &Row<'_>) -> String {
    let unit = row.claim.metric.unit();
    let figures = row.ours.map_or_else(|| "not seen".to_owned(), |spread| spread.text(unit));
    match row.few_behind() {
        Some(1) => format!("{figures}; 1 record behind it"),
        Some(few) => format!("{figures}; {few} records behind it"),
        None => figures,
    }
}

pub(super) fn other(row: &Row<'_>) -> String {
    let unit = row.claim.metric.unit();
    let text =
        |other: &super::rows::Other<'_>| format!("{}: {}", other.client, other.spread.text(unit));
    row.other.as_ref().map_or_else(|| "none".to_owned(), text)
}

pub(super) fn held(row: &Row<'_>) -> String {
    let Row { held, judged, .. } = row;
    match row.is_held() {
        None => "not judged".to_owned(),
        Some(true) => format!("held, {held}\u{a0}of\u{a0}{judged}"),
        Some(false) => format!("not held, {held}\u{a0}of\u{a0}{judged}"),
    }
}

/// A text that leads to the report.
pub(super) fn link(row: &Row<'_>, to: &str, text: &str) -> String {
    format!("[{text}]({to}{}/{}/README.md)", row.cluster.name(), row.claim.experiment)
}

fn newest(row: &Row<'_>) -> String {
    row.runs.last().map_or_else(String::new, |run| when(run))
}

/// The date of a run; the seed of one in virtual time, which gives the same figures at any date.
pub(super) fn when(run: &Run) -> String {
    match run.report.environment.started_ms {
        0 => format!("seed {}", run.report.seed),
        started => date::day(started),
    }
}

fn turns(row: &Row<'_>) -> String {
    let scale = row.runs.last().map_or(1.0, |run| run.report.scale);
    let of = if scale < 1.0 { format!(" at scale {scale}") } else { String::new() };
    let (turns, runs) = (row.turns, row.runs.len());
    match (turns, runs) {
        (1, _) => format!("1 turn{of}"),
        (_, 1) => format!("{turns} turns{of}"),
        _ => format!("{turns} turns{of} in {runs} runs"),
    }
}

fn kills_row(cluster: Cluster, run: &KillsRun) -> String {
    let kills = &run.kills;
    let (violations, all) = (kills.violations() as i64, kills.acknowledged() as i64);
    let state = if kills.held() { "held, 1\u{a0}of\u{a0}1" } else { "not held, 0\u{a0}of\u{a0}1" };
    let (day, path) = (date::day(kills.environment.started_ms), cluster.name());
    format!(
        "| {}: records lost, duplicated, reordered or refused | {} of {} | none | none | {state} | [{day}]({path}/{}/README.md), \
         1 turn |\n",
        kills.faults(),
        thousands(violations),
        thousands(all),
        kills::NAME,
    )
}

fn runs_line(cluster: Cluster, runs: &[Run]) -> String {
    let Some(newest) = runs.last() else { return String::new() };
    let report = &newest.report;
    let conditions = report.conditions.len();
    let held = report.conditions.iter().filter(|condition| condition.held).count();
    format!(
        "- [{0}]({1}/{0}/README.md): {2}, {3}; {4}; {5}; {held} of {conditions} conditions held; `{6}`\n",
        report.experiment,
        cluster.name(),
        when(newest),
        commit(&report.environment),
        machine(&report.environment),
        integrity(cluster, report),
        command(&report.command),
    )
}

/// Records of Curtail that did not arrive as they were sent. Lost records count only where delivery is promised.
pub(super) fn integrity(cluster: Cluster, report: &Report) -> String {
    // A variant may have other properties, such as acks.
    let arms = || report.arms.iter().filter(|arm| arm.client == CURTAIL && !is_variant(arm));
    let may_lose = arms_without_promise(cluster, &report.experiment);
    let promised = |arm: &ArmReport| !may_lose.iter().any(|(name, _)| *name == arm.name);
    let wrong = |arm: &ArmReport| {
        let lost = if promised(arm) { arm.lost } else { 0 };
        lost + arm.duplicated + arm.reordered + arm.errors
    };
    let all: u64 = arms().map(|arm| arm.records).sum();
    let mut text = format!(
        "{} of {} records of Curtail lost, duplicated, reordered or refused",
        thousands(arms().map(wrong).sum::<u64>() as i64),
        thousands(all as i64)
    );
    let mut allowed: BTreeMap<&str, u64> = BTreeMap::new();
    for arm in arms().filter(|arm| arm.lost > 0) {
        if let Some((_, acks)) = may_lose.iter().find(|(name, _)| *name == arm.name) {
            *allowed.entry(acks).or_default() += arm.lost;
        }
    }
    for (acks, lost) in allowed {
        let lost = thousands(lost as i64);
        text += &format!(" (acks={acks}: lost records are allowed, {lost} were)");
    }
    text
}

/// Whether an arm has properties of `--variant` as well.
pub(super) fn is_variant(arm: &ArmReport) -> bool {
    arm.name.contains('+')
}

/// The arms of an experiment that promise no delivery, with their `acks`.
fn arms_without_promise(cluster: Cluster, experiment: &str) -> Vec<(&'static str, &'static str)> {
    let Ok(experiment) = experiments::find(experiment) else { return Vec::new() };
    let arms = experiment.arms(&Setting::new(cluster.kind())).into_iter();
    let acks = |arm: &Arm| arm.properties.iter().find(|(name, _)| *name == "acks").copied();
    let promised = ["all", "-1"];
    arms.filter_map(|arm| Some((arm.name, acks(&arm)?.1)))
        .filter(|(_, acks)| !promised.contains(acks))
        .collect()
}

pub(super) fn commit(environment: &Environment) -> String {
    match &*environment.commit {
        "" => "commit not recorded".to_owned(),
        commit => format!("commit {commit}"),
    }
}

/// The machine in a few words.
pub(super) fn machine(environment: &Environment) -> String {
    if environment.cores == 0 {
        return "virtual time".to_owned();
    }
    let memory = environment.memory_bytes.map(|bytes| {
        let gib = bytes as f64 / f64::from(1 << 30);
        format!(", {} GiB", thousands(gib.round() as i64))
    });
    let processor = match environment.processor.trim() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    format!("{} cores{processor}{}", environment.cores, memory.unwrap_or_default())
}

/// A command without the file that it wrote.
pub(super) fn command(command: &str) -> String {
    let mut words = command.split(' ').peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--json" => drop(words.next()),
            word if word.starts_with("--json=") => {}
            word => kept.push(word),
        }
    }
    let kept = kept.join(" ");
    if kept.is_empty() { "command not recorded".to_owned() } else { kept }
}

/// A text as a cell of a table. Its figures stay on one line with their units.
pub(super) fn cell(text: &str) -> String {
    let text = escaped(text);
    let mut words = text.split(' ');
    let mut cell = words.next().unwrap_or_default().to_owned();
    for word in words {
        let is_unit = UNITS.contains(&word.trim_end_matches([')', ',', ';']));
        let bound = is_unit && cell.ends_with(|last: char| last.is_ascii_digit());
        cell.push(if bound { '\u{a0}' } else { ' ' });
        cell.push_str(word);
    }
    cell
}

/// A text without characters that Markdown reads as marks in a table.
pub(super) fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

/// A figure for the reports.
pub(super) fn ms(us: f64) -> String {
    super::number::with_unit(us / 1000.0, Unit::Ms)
}
