//! `curtail lab publish`: keeps runs, and writes the page of results and the README's picture and table from them.

use std::path::{Path, PathBuf};

use clap::Args;
use curtail_lab::results::{Invalid, Results};

use super::files;
use crate::{failure::Failure, output};

/// Arguments of `curtail lab publish`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Runs to store: files written by `curtail lab run --json` or `curtail lab kills --json`. Without any, the pages are
    /// regenerated from the stored runs.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Directory of the results.
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    dir: PathBuf,
    /// README whose chart and results table are replaced.
    #[arg(long, value_name = "FILE", default_value = "README.md")]
    readme: PathBuf,
    /// Write nothing; exit with code 1 if a file is out of date.
    #[arg(long, conflicts_with = "files")]
    check: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { files: new, dir, readme, check } = arguments;
    if !dir.is_dir() {
        let advice = "run this in the project's checkout, or name it with --dir";
        return Err(Failure::new(format!("{}: no such directory; {advice}", dir.display())));
    }
    let mut results = Results::read(dir).map_err(invalid)?;
    for path in new {
        results.add(&path.display().to_string(), &files::text(path)?).map_err(invalid)?;
    }
    let before = files::text(readme)?;
    let after = results.readme(&readme.display().to_string(), &before).map_err(invalid)?;
    if *check {
        return compare(&results, dir, (before != after).then_some(readme));
    }
    results.save(dir).map_err(invalid)?;
    if before != after {
        files::write(readme, after.as_bytes())?;
    }
    output::line(format_args!("written: {} and {}", dir.display(), readme.display()))
}

fn compare(results: &Results, dir: &Path, readme: Option<&PathBuf>) -> Result<(), Failure> {
    let differences = results.differences(dir).map_err(invalid)?;
    let wrong = readme.cloned().into_iter().chain(differences.iter().map(|path| dir.join(path)));
    let wrong: Vec<String> = wrong.map(|path| path.display().to_string()).collect();
    match &*wrong {
        [] => Ok(()),
        [first, rest @ ..] => {
            let others =
                if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            Err(Failure::new(format!("{first}{others}: out of date; run `curtail lab publish`")))
        }
    }
}

fn invalid(error: Invalid) -> Failure {
    Failure::new(error)
}

/// Returns the commit of the checkout that contains the current directory, with a `+` if files differ from it.
/// Empty outside a checkout of the project.
pub(super) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let out = std::process::Command::new("git").args(arguments).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let top = git(&["rev-parse", "--show-toplevel"]);
    if !top.is_some_and(|top| Path::new(&top).join("crates/lab/Cargo.toml").is_file()) {
        return String::new();
    }
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let mark = if changed.is_some_and(|files| files.is_empty()) { "" } else { "+" };
    git(&["rev-parse", "--short=12", "HEAD"]).map_or_else(String::new, |commit| commit + mark)
}
