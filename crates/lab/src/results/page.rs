//! The page: claims by cluster, charts, and the runs behind them.

use super::{
    Cluster,
    claims::{CLAIMS, Claim},
    date, kills,
    number::{Unit, thousands},
    report,
    rows::{self, CURTAIL, Row},
    store::{KillsRun, Results, Run},
};
use crate::experiments::{self, Environment, Report};

const HEAD: &str = "\
# Results

`curtail lab publish` writes this page from the JSON of the runs in this directory. `curtail lab publish --check` fails if the
two differ.

- A row is one claim. Its figures are the median of the last turns, and in brackets the least and the most.
- A turn is one measured pass of one client. The turns of arms and clients alternate. A row has the turns of at most five runs.
- Curtail's load is an ordinary program: default settings, tokio's multi-thread runtime, one delivery awaited for each record.
  With `curtail-completions` it receives the outcomes of a batch's records at once, by their tags, which costs least.
- *Best other client*: the client with the best median in the same runs; none if Curtail ran alone.
- *Held*: the turns in which the aim held.
- The date leads to the full report of the experiment: all arms, all clients, conditions, command and machine.
";

/// The whole page.
pub(super) fn page(results: &Results) -> String {
    let all: Vec<Row<'_>> =
        Cluster::ALL.into_iter().flat_map(|cluster| rows(results, cluster)).collect();
    let mut text = HEAD.to_owned();
    let kills: Vec<bool> =
        results.kills.values().filter_map(|runs| Some(is_held(runs.last()?))).collect();
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
    let mut text = format!("\n## {}\n\n{}", cluster.title(), table(&rows, ""));
    text += &kills.map(|run| kills_row(cluster, run)).unwrap_or_default();
    for runs in &here {
        let experiment = &runs[0].report.experiment;
        if is_charted(results, cluster, experiment) {
            let path = format!("{}/{experiment}", cluster.name());
            text += &format!("\n[![{experiment}]({path}/chart.svg)]({path}/README.md)\n");
        }
    }
    if !here.is_empty() {
        text += "\n<details><summary>Runs: date, commit, machine, integrity, conditions, command</summary>\n\n";
        text.extend(here.into_iter().map(|runs| runs_line(cluster, runs)));
        text += "\n</details>\n";
    }
    text
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

pub(super) fn ours(row: &Row<'_>) -> String {
    let unit = row.claim.metric.unit();
    row.ours.map_or_else(|| "not seen".to_owned(), |spread| spread.text(unit))
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

fn is_held(run: &KillsRun) -> bool {
    run.kills.violations() == 0 && run.kills.copy_client_failures == 0
}

fn kills_row(cluster: Cluster, run: &KillsRun) -> String {
    let kills = &run.kills;
    let (violations, all) = (kills.violations() as i64, kills.acknowledged() as i64);
    let brokers = kills.broker_kills + kills.copy_broker_kills;
    let state = if is_held(run) { "held, 1\u{a0}of\u{a0}1" } else { "not held, 0\u{a0}of\u{a0}1" };
    let (day, path) = (date::day(kills.environment.started_ms), cluster.name());
    format!(
        "| {brokers} brokers and {} clients killed: records lost, duplicated, reordered or refused | {} of {} | none | none \
         | {state} | [{day}]({path}/{}/{}), 1 turn |\n",
        kills.copy_client_kills,
        thousands(violations),
        thousands(all),
        kills::NAME,
        run.file
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
        integrity(report),
        command(&report.command),
    )
}

/// Records of Curtail that did not arrive as they were sent.
fn integrity(report: &Report) -> String {
    let arms = || report.arms.iter().filter(|arm| arm.client == CURTAIL);
    let wrong: u64 = arms().map(|arm| arm.lost + arm.duplicated + arm.reordered + arm.errors).sum();
    let all: u64 = arms().map(|arm| arm.records).sum();
    let (wrong, all) = (thousands(wrong as i64), thousands(all as i64));
    format!("{wrong} of {all} records of Curtail lost, duplicated, reordered or refused")
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
