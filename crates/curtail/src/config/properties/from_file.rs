//! Settings from a file that clients of several kinds may share.

use std::path::Path;

use super::{Settings, set};
use crate::{
    config::{ConfigProviders, file},
    error::{ConfigError, FileProblem},
};

/// Sets the properties of a file on `config`, or none if one cannot be used. Settings of other clients are skipped.
pub(super) fn set_all<S: Settings>(config: &mut S, path: &Path) -> Result<(), ConfigError> {
    let mut changed = config.clone();
    let mut problems = Vec::new();
    let mut skipped = Vec::new();
    let mut lines: Vec<file::Line> = file::lines(&file::text(path)?).collect();
    // A stable sort: the last value of a name counts.
    lines.sort_by_key(|line| {
        !line.property.as_ref().is_some_and(|(name, _)| ConfigProviders::configures(name))
    });
    for line in lines {
        let done = match line.property {
            Some((name, value)) => set(&mut changed, &name, &value),
            None => Err(ConfigError::Escape),
        };
        match done {
            Ok(()) => {}
            Err(ConfigError::OfOtherClients { name, .. }) => skipped.push(name),
            Err(error) => problems.push(FileProblem { line: Some(line.number), error }),
        }
    }
    if !problems.is_empty() {
        problems.sort_by_key(|problem| problem.line);
        return Err(within(path, problems));
    }
    if !skipped.is_empty() {
        let file = path.display();
        tracing::info!(%file, settings = skipped.join(", "), "skipped settings of other clients");
    }
    *config = changed;
    Ok(())
}

/// Names the file of an error that concerns all of its settings.
pub(super) fn of_whole(path: &Path, error: ConfigError) -> ConfigError {
    within(path, vec![FileProblem { line: None, error }])
}

fn within(path: &Path, problems: Vec<FileProblem>) -> ConfigError {
    ConfigError::InFile { path: path.display().to_string(), problems }
}
