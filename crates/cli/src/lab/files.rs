//! Output and input files of a run.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use curtail_lab::{
    experiments::{ArmReport, Report, export},
    page::page,
};

use super::RunArguments;
use crate::{
    failure::Failure,
    json_file::{JsonFile, create, unwritable},
};

/// Output files of a run. All are created before the run begins.
pub(super) struct Outputs<'a> {
    json: JsonFile<'a>,
    html: Option<&'a Path>,
    omb: Option<&'a Path>,
    hdr: Option<&'a Path>,
}

impl<'a> Outputs<'a> {
    pub(super) fn create(arguments: &'a RunArguments) -> Result<Self, Failure> {
        let RunArguments { json, html, omb, hdr, .. } = arguments;
        for path in [html, omb, hdr].into_iter().flatten() {
            create(path)?;
        }
        let json = JsonFile::create(json.as_deref())?;
        Ok(Self { json, html: html.as_deref(), omb: omb.as_deref(), hdr: hdr.as_deref() })
    }

    /// Writes the report of one experiment at once, so that it survives a later failure.
    pub(super) fn add(&mut self, report: &Report) -> Result<(), Failure> {
        self.json.add(report)
    }

    /// Writes the files that contain all experiments.
    pub(super) fn finish(self, reports: &[Report]) -> Result<(), Failure> {
        if let Some(path) = self.html {
            write(path, page(reports).as_bytes())?;
        }
        if let Some(path) = self.hdr {
            let mut log = Vec::new();
            export::hdr(reports, &mut log).map_err(|error| unwritable(path, &error))?;
            write(path, &log)?;
        }
        if let Some(path) = self.omb {
            write_omb(path, reports)?;
        }
        Ok(())
    }
}

/// Writes one result per file, as the benchmark does.
fn write_omb(path: &Path, reports: &[Report]) -> Result<(), Failure> {
    let arms = reports.iter().flat_map(|report| report.arms.iter().map(move |arm| (report, arm)));
    let results: Vec<_> =
        arms.filter_map(|(report, arm)| Some((report, arm, export::omb(report, arm)?))).collect();
    if results.is_empty() {
        let text = "no figure of this run is in the format of OpenMessaging Benchmark; omit --omb";
        return Err(Failure::new(text));
    }
    let alone = results.len() == 1;
    for (report, arm, result) in &results {
        let text = serde_json::to_vec_pretty(result).map_err(Failure::new)?;
        let path = if alone { path.to_owned() } else { beside(path, report, arm) };
        write(&path, &text)?;
    }
    if alone {
        return Ok(());
    }
    // The empty file that `create` made to check the path.
    std::fs::remove_file(path).map_err(|error| unwritable(path, &error))
}

/// The path with experiment, arm and client before its extension.
fn beside(path: &Path, report: &Report, arm: &ArmReport) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    let part = format!("-{}-{}-{}", report.experiment, arm.name, arm.client);
    name.push(part.replace(['/', '\\'], "_"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Writes a whole file.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|error| unwritable(path, &error))
}

/// Reads a whole file.
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))
}

/// Reads reports of `curtail lab run --json`.
pub(super) fn read(path: &Path) -> Result<Vec<Report>, Failure> {
    let name = path.display();
    let text = text(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(at, line)| {
        serde_json::from_str(line).map_err(|error| {
            Failure::new(format!(
                "{name}, line {}: not in the format of `curtail lab run --json`: {error}",
                at + 1
            ))
        })
    });
    let reports: Vec<Report> = parsed.collect::<Result<_, _>>()?;
    if reports.is_empty() {
        return Err(Failure::new(format!("{name} contains no experiment")));
    }
    Ok(reports)
}

/// Options of `curtail lab run` that name files for its output. A report leaves them out of its command: they belong to the
/// machine, and a run that follows the command would write over them.
pub(super) const OUTPUTS: [&str; 4] = ["--json", "--html", "--omb", "--hdr"];

/// The arguments without some options and their values, as in `--json FILE` or `--json=FILE`.
pub(super) fn without(
    arguments: impl IntoIterator<Item = String>,
    options: &[&str],
) -> impl Iterator<Item = String> {
    let mut arguments = arguments.into_iter();
    std::iter::from_fn(move || {
        loop {
            let argument = arguments.next()?;
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument.as_str(), None),
            };
            if !options.contains(&name) {
                return Some(argument);
            }
            if value.is_none() {
                arguments.next();
            }
        }
    })
}

/// Flags of client properties, whose values may be passwords.
const PROPERTIES: [&str; 3] = ["-X", "--property", "--command-property"];

/// The arguments without the values of client properties, which a report must not contain.
pub(super) fn hidden(arguments: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut follows = false;
    arguments.map(move |argument| {
        let is_value = std::mem::replace(&mut follows, PROPERTIES.contains(&argument.as_str()));
        let flag = PROPERTIES.iter().find(|flag| argument.starts_with(*flag));
        let start = match flag {
            _ if is_value => 0,
            Some(flag) if !follows => {
                flag.len() + usize::from(argument[flag.len()..].starts_with('='))
            }
            _ => return argument,
        };
        match argument[start..].find('=') {
            Some(end) => format!("{}=[hidden]", &argument[..start + end]),
            None => argument,
        }
    })
}

/// Quotes the command for a shell, with the program by its name.
pub(super) fn command(arguments: impl Iterator<Item = String>) -> String {
    let arguments = std::iter::once("curtail".to_owned()).chain(arguments.skip(1).map(quoted));
    arguments.collect::<Vec<_>>().join(" ")
}

fn quoted(argument: String) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:,=+@%".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument,
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

/// The words of a command of [`command`], without their quotes.
pub(super) fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None;
    let (mut quoted, mut escaped) = (false, false);
    for character in command.chars() {
        match character {
            ' ' if !quoted && !escaped => words.extend(word.take()),
            '\'' if !escaped => {
                quoted = !quoted;
                // A pair of quotes is an empty word.
                word.get_or_insert_default();
            }
            '\\' if !quoted && !escaped => {
                escaped = true;
                continue;
            }
            _ => word.get_or_insert_with(String::new).push(character),
        }
        escaped = false;
    }
    words.extend(word);
    words
}
