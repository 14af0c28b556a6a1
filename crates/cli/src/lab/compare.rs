//! `curtail lab compare`: comparison of two runs.

use std::path::PathBuf;

use clap::Args;
use curtail_lab::experiments::compare::{Comparison, Metric, Row, Verdict, between, legend};

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
        output::print(&text(comparison))?;
    }
    Ok(())
}

fn text(comparison: &Comparison) -> String {
    let Comparison { experiment, notes, rows } = comparison;
    let mut text = format!("{experiment}: ratio of the second run to the first\n");
    for note in notes {
        text += &format!("note: {note}\n");
    }
    text += &ratios(rows);
    text += &format!("{}\n{}\n", legend(rows), chance(experiment, rows));
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

/// Significance of the verdicts, in words.
fn chance(experiment: &str, rows: &[Row]) -> String {
    let verdicts = rows.iter().flat_map(|row| &row.ratios).map(|ratio| ratio.verdict);
    let chances = verdicts.filter_map(|verdict| match verdict {
        Verdict::Apart(chance) => Some(chance),
        Verdict::Single | Verdict::Noise => None,
    });
    match chances.reduce(f64::max) {
        Some(chance) => format!(
            "equal arms differ like this by chance in up to {:.1}% of such comparisons",
            100.0 * chance
        ),
        None => format!(
            "no difference is beyond the noise; for an answer, repeat the runs at full length: \
             curtail lab run {experiment} --json FILE"
        ),
    }
}
