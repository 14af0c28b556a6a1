//! Profiles: files of client properties with a name, in the user's configuration folder (decision 0130).

#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::{failure::Failure, names};

/// Name of the profile for commands without `--profile`.
const VARIABLE: &str = "CURTAIL_PROFILE";

/// What a profile's file adds to its name.
const EXTENSION: &str = "properties";

/// The file of the profile that the flag or, without one, the environment names.
pub(crate) fn chosen(flag: Option<&str>) -> Result<Option<PathBuf>, Failure> {
    if flag.is_some() {
        return given(flag);
    }
    let name = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
    let Some(name) = name else { return Ok(None) };
    match file(&name.to_string_lossy()) {
        Ok(path) => Ok(Some(path)),
        Err(Failure::Message(text)) => Err(Failure::new(format!("{VARIABLE}: {text}"))),
        Err(other) => Err(other),
    }
}

/// The file of the profile that the flag names. The environment must not choose the cluster of a command that puts load on
/// it, or that has a file of properties.
pub(crate) fn given(flag: Option<&str>) -> Result<Option<PathBuf>, Failure> {
    flag.map(file).transpose()
}

/// The file of a profile that exists.
fn file(name: &str) -> Result<PathBuf, Failure> {
    find(&folder(|name| std::env::var_os(name))?, name)
}

/// The folder of profiles.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Failure> {
    // The XDG specification ignores relative paths.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))
        .or_else(|| absolute("APPDATA"));
    let text = "no folder for profiles: set HOME or XDG_CONFIG_HOME, or use --command-config FILE";
    config.map(|config| config.join("curtail")).ok_or_else(|| Failure::new(text))
}

fn find(folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
        let text = "a profile is the name of a file without .properties";
        return Err(Failure::new(format!(
            "invalid profile '{name}': {text}; a path is given as --command-config FILE"
        )));
    }
    let path = folder.join(format!("{name}.{EXTENSION}"));
    if path.is_file() {
        return Ok(path);
    }
    let known = known(folder);
    let folder = folder.display();
    if known.is_empty() {
        return Err(Failure::new(format!(
            "no profile '{name}'; create {} with bootstrap.servers and other client properties",
            path.display()
        )));
    }
    let nearest = names::nearest(name, known.iter().map(String::as_str));
    let nearest = nearest.map(|nearest| format!("did you mean '{nearest}'? ")).unwrap_or_default();
    let known = known.join(", ");
    Err(Failure::new(format!("no profile '{name}' in {folder}; {nearest}known profiles: {known}")))
}

/// Names of the profiles in a folder, which may be missing.
fn known(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |path: PathBuf| {
        let is_profile = path.extension().is_some_and(|extension| extension == EXTENSION);
        is_profile
            .then(|| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
            .flatten()
    };
    let mut names: Vec<String> = entries.filter_map(|entry| name(entry.path())).collect();
    names.sort_unstable();
    names
}
