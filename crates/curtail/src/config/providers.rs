//! Config providers (KIP-297): variables `${provider:path:key}` in values, replaced by texts from the environment, from
//! property files or from files of a directory.
//!
//! Rules of Java's `ConfigTransformer`: a replacement is not searched for variables; a variable of an unknown provider,
//! or without a value, stays as it is.
//!
//! # Invariants
//! - No error quotes a replacement: it may be a secret.

mod allowlist;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    env::VarError,
    fmt,
    path::{Component, Path, PathBuf},
};

use self::allowlist::Allowlist;
use super::file;
use crate::error::ConfigError;

/// The property that lists the providers, and the prefix of their classes and parameters.
pub(super) const NAME: &str = "config.providers";

/// The providers of a client's settings: `config.providers`, and `config.providers.NAME.*`.
#[derive(Clone, Default)]
pub struct ConfigProviders {
    names: Vec<String>,
    /// `config.providers.NAME.class`.
    classes: BTreeMap<String, String>,
    /// `config.providers.NAME.param.PARAMETER`, by both names.
    params: BTreeMap<(String, String), String>,
}

/// Omits the values of parameters: a provider that is not built in may have secrets there.
impl fmt::Debug for ConfigProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigProviders")
            .field("names", &self.names)
            .field("classes", &self.classes)
            .field("params", &self.params.keys())
            .finish()
    }
}

/// A class of Apache Kafka.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Env,
    File,
    Directory,
}

/// A variable in a value.
#[derive(Debug, PartialEq, Eq)]
struct Variable<'a> {
    provider: &'a str,
    path: &'a str,
    key: &'a str,
}

impl Class {
    fn of(name: &str) -> Option<Self> {
        match name.strip_prefix("org.apache.kafka.common.config.provider.")? {
            "EnvVarConfigProvider" => Some(Self::Env),
            "FileConfigProvider" => Some(Self::File),
            "DirectoryConfigProvider" => Some(Self::Directory),
            _ => None,
        }
    }
}

impl ConfigProviders {
    /// Whether a property configures providers: `config.providers`, or one whose name begins with `config.providers.`.
    ///
    /// A variable is replaced when its property is set, so these properties must be set before all others.
    #[must_use]
    pub fn configures(name: &str) -> bool {
        let rest = name.trim().strip_prefix(NAME);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Sets one of the properties that configure providers.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let mut changed = self.clone();
        let Some(rest) = name.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('.')) else {
            let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
            changed.names = names.map(str::to_owned).collect();
            changed.check()?;
            *self = changed;
            return Ok(());
        };
        if let Some((provider, parameter)) = rest.split_once(".param.") {
            changed.params.insert((provider.to_owned(), parameter.to_owned()), value.to_owned());
        } else if let Some(provider) = rest.strip_suffix(".class") {
            changed.classes.insert(provider.to_owned(), value.to_owned());
        } else {
            // As in Java, other names have no effect.
            return Ok(());
        }
        changed.check()?;
        *self = changed;
        Ok(())
    }

    /// Checks the classes and parameters of the listed providers. Java ignores those that are not listed.
    fn check(&self) -> Result<(), ConfigError> {
        for provider in &self.names {
            let Some(class) = self.classes.get(provider) else { continue };
            match Class::of(class) {
                Some(Class::Env) => drop(self.allowlist(provider)?),
                Some(Class::File | Class::Directory) => drop(self.allowed_paths(provider)?),
                None => {
                    let why = "only EnvVarConfigProvider, FileConfigProvider and DirectoryConfigProvider of \
                         org.apache.kafka.common.config.provider are built in";
                    return Err(ConfigError::NotSupported {
                        name: format!("{NAME}.{provider}.class"),
                        value: Some(class.clone()),
                        why: why.into(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Replaces the variables in a value. `None` if nothing was replaced.
    ///
    /// # Errors
    /// [`ConfigError::Provider`] if a provider cannot read. It names the property and the variable.
    pub(super) fn replace(&self, name: &str, value: &str) -> Result<Option<String>, ConfigError> {
        if self.names.is_empty() {
            return Ok(None);
        }
        let (mut replaced, mut rest, mut changed) = (String::new(), value, false);
        while let Some((start, end, variable)) = find(rest) {
            let found = self.look_up(&variable).map_err(|reason| ConfigError::Provider {
                name: name.to_owned(),
                variable: rest[start..end].to_owned(),
                reason,
            })?;
            replaced.push_str(&rest[..start]);
            match found {
                Some(text) => {
                    replaced.push_str(&text);
                    changed = true;
                }
                None => {
                    let variable = &rest[start..end];
                    tracing::warn!(name, variable, "no config provider has a value for a variable");
                    replaced.push_str(variable);
                }
            }
            rest = &rest[end..];
        }
        replaced.push_str(rest);
        Ok(changed.then_some(replaced))
    }

    fn look_up(&self, variable: &Variable<'_>) -> Result<Option<String>, String> {
        let Variable { provider, path, key } = *variable;
        if !self.names.iter().any(|name| name == provider) {
            return Ok(None);
        }
        let Some(class) = self.classes.get(provider).and_then(|class| Class::of(class)) else {
            return Ok(None);
        };
        match class {
            Class::Env if !path.is_empty() => {
                Err("EnvVarConfigProvider supports no path; write ${provider:VARIABLE}".into())
            }
            Class::Env => {
                let allowlist = self.allowlist(provider).map_err(|error| error.to_string())?;
                if allowlist.is_some_and(|allowlist| !allowlist.matches(key)) {
                    return Ok(None);
                }
                environment(key)
            }
            Class::File | Class::Directory => {
                let allowed = self.allowed_paths(provider).map_err(|error| error.to_string())?;
                let Some(path) = permitted(path, allowed.as_deref()) else { return Ok(None) };
                if class == Class::File { property_of(&path, key) } else { file_in(&path, key) }
            }
        }
    }

    fn param(&self, provider: &str, parameter: &str) -> Option<&str> {
        let key = (provider.to_owned(), parameter.to_owned());
        self.params.get(&key).map(String::as_str)
    }

    /// `allowlist.pattern`; `None` for all variables.
    fn allowlist(&self, provider: &str) -> Result<Option<Allowlist>, ConfigError> {
        let Some(pattern) = self.param(provider, "allowlist.pattern") else { return Ok(None) };
        Allowlist::parse(pattern).map(Some).map_err(|why| ConfigError::NotSupported {
            name: format!("{NAME}.{provider}.param.allowlist.pattern"),
            value: Some(pattern.to_owned()),
            why,
        })
    }

    /// `allowed.paths`; `None` for all paths.
    fn allowed_paths(&self, provider: &str) -> Result<Option<Vec<PathBuf>>, ConfigError> {
        let paths = self.param(provider, "allowed.paths").filter(|paths| !paths.is_empty());
        let Some(paths) = paths else { return Ok(None) };
        let unusable = |path: &Path, why: &str| ConfigError::NotSupported {
            name: format!("{NAME}.{provider}.param.allowed.paths"),
            value: Some(path.display().to_string()),
            why: why.into(),
        };
        let usable = |path: &str| {
            let path = normalized(Path::new(path.trim()));
            match (path.is_absolute(), path.exists()) {
                (false, _) => Err(unusable(&path, "the path is not absolute")),
                (true, false) => Err(unusable(&path, "the path does not exist")),
                (true, true) => Ok(path),
            }
        };
        paths.split(',').map(usable).collect::<Result<_, _>>().map(Some)
    }
}

/// Finds the first variable, and where it begins and ends: Java's `\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}`.
fn find(text: &str) -> Option<(usize, usize, Variable<'_>)> {
    let mut from = 0;
    loop {
        let start = from + text[from..].find("${")?;
        let inner = start + 2;
        let end = inner + text[inner..].find('}')?;
        if let Some((provider, rest)) = text[inner..end].split_once(':') {
            let (path, key) = path_and_key(rest);
            return Some((start, end + 1, Variable { provider, path, key }));
        }
        from = inner;
    }
}

/// Separates the path from the key at the first colon. On Windows that of a drive belongs to the path, unlike in Java.
fn path_and_key(text: &str) -> (&str, &str) {
    let is_drive = |bytes: &[u8]| matches!(bytes, [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic());
    let from = if cfg!(windows) && is_drive(text.as_bytes()) { 2 } else { 0 };
    match text[from..].find(':') {
        Some(at) => (&text[..from + at], &text[from + at + 1..]),
        None => ("", text),
    }
}

fn environment(key: &str) -> Result<Option<String>, String> {
    // The standard library panics on names that no variable can have.
    if key.is_empty() || key.contains(['=', '\0']) {
        return Ok(None);
    }
    match std::env::var(key) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err("the environment variable is not UTF-8".into()),
    }
}

/// The value of a key in a property file. The last one counts.
fn property_of(path: &Path, key: &str) -> Result<Option<String>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    let mut value = None;
    for line in file::lines(&text) {
        let Some((name, text)) = line.property else {
            return Err(format!("line {}: {}", line.number, ConfigError::Escape));
        };
        if name == key {
            value = Some(text);
        }
    }
    Ok(value)
}

/// The content of a file in a directory.
fn file_in(directory: &Path, key: &str) -> Result<Option<String>, String> {
    // Only names of files in the directory itself.
    let mut parts = Path::new(key).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(name)), None) if name == key)
    {
        return Ok(None);
    }
    let path = directory.join(key);
    if !path.is_file() {
        return Ok(None);
    }
    std::fs::read_to_string(&path).map(Some).map_err(|error| format!("cannot read it: {error}"))
}

/// The path to read; `None` if there is none, or if it is not allowed.
fn permitted(path: &str, allowed: Option<&[PathBuf]>) -> Option<PathBuf> {
    if path.is_empty() {
        return None;
    }
    let Some(allowed) = allowed else { return Some(path.into()) };
    let path = normalized(Path::new(path));
    allowed.iter().any(|allowed| path.starts_with(allowed)).then_some(path)
}

/// Removes `.` and `..` without a look at the file system, as Java's `Path.normalize`.
fn normalized(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(normal.components().next_back(), Some(Component::Normal(_))) =>
            {
                normal.pop();
            }
            // The parent of the root is the root.
            Component::ParentDir if normal.has_root() => {}
            part => normal.push(part),
        }
    }
    normal
}
