//! `curtail lab compare`: comparison of two runs.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::Args;
use curtail_lab::experiments::{
    Report,
    compare::{Comparison, Metric, Row, Verdict, between, legend},
};

use super::files;
use crate::{failure::Failure, output};

/// Arguments of `curtail lab compare`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Output of `curtail lab run --json` of the first run.
    #[arg(value_name = "A.json")]
    first: PathBuf,
    /// Output of the second run.
    #[arg(value_name = "B.json")]
    second: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (first, second) = (files::read(&arguments.first)?, files::read(&arguments.second)?);
    let comparisons = between(&first, &second).map_err(Failure::new)?;
    for comparison in &comparisons {
        let of = |report: &&Report| report.experiment == comparison.experiment;
        let command = second.iter().find(of).map(again).unwrap_or_default();
        output::print(&text(comparison, &command))?;
    }
    Ok(())
}

fn text(comparison: &Comparison, again: &str) -> String {
    let Comparison { experiment, notes, rows } = comparison;
    let mut text = format!("{experiment}: ratio of the second run to the first\n");
    for note in notes {
        text += &format!("note: {note}\n");
    }
    text += &ratios(rows);
    text += &format!("{}\n{}\n", legend(rows), chance(rows, again));
    text
}

/// A table of ratios.
pub(super) fn ratios(rows: &[Row]) -> String {
    let columns = ["", "client"].into_iter().chain(Metric::ALL.map(Metric::name));
    let columns: Vec<&str> = columns.collect();
    let cells = |row: &Row| {
        let names = [row.arm.clone(), row.client.clone()].into_iter();
        names.chain(row.cells(rows)).collect()
    };
    output::table(&columns, &rows.iter().map(cells).collect::<Vec<Vec<String>>>())
}

/// Significance of the verdicts, in words. `again` is a command whose result is clearer.
fn chance(rows: &[Row], again: &str) -> String {
    let verdicts = || rows.iter().flat_map(|row| &row.ratios).map(|ratio| ratio.verdict);
    let chances = verdicts().filter_map(|verdict| match verdict {
        Verdict::Apart(chance) => Some(chance),
        Verdict::Single | Verdict::Noise => None,
    });
    match chances.reduce(f64::max) {
        Some(chance) => format!(
            "equal arms differ like this by chance in up to {:.1}% of such comparisons",
            100.0 * chance
        ),
        None if verdicts().all(|verdict| verdict == Verdict::Single) => {
            format!("each arm ran once, so no difference can be judged; run: {again}")
        }
        None => format!("no difference exceeds the noise; for a clearer result run: {again}"),
    }
}

/// Rounds that tell small differences from noise.
const ROUNDS: u32 = 5;

/// The command of a report with more rounds and another file. A report without a command has one of its experiment.
fn again(report: &Report) -> String {
    let command = match &*report.command {
        "" => format!("curtail lab run {} --cluster {}", report.experiment, report.cluster),
        command => command.to_owned(),
    };
    let words = files::without(files::words(&command), &files::OUTPUTS);
    let words = files::without(words, &["--rounds"]);
    let rounds = ROUNDS.to_string();
    files::command(words.chain(["--rounds", &rounds, "--json", "FILE"].map(str::to_owned)))
}
