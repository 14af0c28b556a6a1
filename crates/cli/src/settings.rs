//! Properties from files and flags.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::Args;
use curtail::{
    AdminConfig, ConfigError, ConsumerConfig, ProducerConfig,
    config::{ConfigProviders, load_properties},
};
use curtail_cluster::{ClusterConfig, is_topic_setting};
#[cfg(feature = "perf")]
pub(crate) use curtail_lab::doctor::settings::set_both;

use crate::{failure::Failure, profile};

/// Default address of a command: the one `curtail cluster` listens on.
pub(crate) const DEFAULT_BOOTSTRAP: &str = "localhost:9092";

/// `name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Property {
    pub(crate) name: String,
    pub(crate) value: String,
}

pub(crate) fn property(text: &str) -> Result<Property, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok(Property { name: name.trim().to_owned(), value: value.to_owned() })
        }
        _ => Err("expected name=value".into()),
    }
}

/// `name=value` for `--config`, which was the file of client properties in earlier versions and is in some other tools.
pub(crate) fn config_of_topic(text: &str) -> Result<Property, String> {
    property(text).map_err(|expected| {
        format!("{expected}, a setting of the topic; a file of client properties is --command-config FILE")
    })
}

/// The address and the properties of a client, with the spellings of kcat and of Kafka's tools.
#[derive(Debug, Args)]
pub(crate) struct ClientArguments {
    /// Bootstrap brokers: host:port, separated by commas [default: localhost:9092].
    #[arg(short, long, alias = "broker-list", value_name = "SERVERS")]
    pub(crate) bootstrap_server: Option<String>,
    /// A client property by its Java name. May be given several times.
    #[arg(short = 'X', long = "property", alias = "command-property", value_name = "NAME=VALUE", value_parser = property)]
    pub(crate) properties: Vec<Property>,
    /// A file of client properties.
    #[arg(short = 'F', long, value_name = "FILE")]
    pub(crate) command_config: Option<PathBuf>,
    /// A profile: the client properties of NAME.properties in ~/.config/curtail, or in curtail of XDG_CONFIG_HOME [env:
    /// CURTAIL_PROFILE, ignored with --command-config].
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

impl ClientArguments {
    /// The profile's file. With a file of properties the environment's profile does not count: its password could go to
    /// another cluster.
    fn profile_file(&self) -> Result<Option<PathBuf>, Failure> {
        match self.command_config {
            Some(_) => profile::given(self.profile.as_deref()),
            None => profile::chosen(self.profile.as_deref()),
        }
    }

    /// All properties, to be set in this order, later ones win: the profile, the file, the flags, the address.
    pub(crate) fn all(&self) -> Result<Vec<(String, String)>, Failure> {
        let profile = self.profile_file()?;
        let mut all =
            properties(profile.as_deref(), self.command_config.as_deref(), &self.properties)?;
        if let Some(servers) = &self.bootstrap_server {
            all.push((BOOTSTRAP.into(), servers.clone()));
        }
        if !all.iter().any(|(name, _)| name == BOOTSTRAP) {
            all.push((BOOTSTRAP.into(), DEFAULT_BOOTSTRAP.into()));
        }
        Ok(all)
    }

    /// The settings of one client, later ones win: `defaults`, the profile, the file, the flags, the address, `fixed`.
    /// Settings of other clients are errors in flags, but not in files.
    pub(crate) fn config<C: ByName>(
        &self,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<C, Failure> {
        let profile = self.profile_file()?;
        self.config_with(profile.as_deref(), defaults, fixed)
    }

    /// As [`Self::config`], with the file of a profile.
    pub(crate) fn config_with<C: ByName>(
        &self,
        profile: Option<&Path>,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<C, Failure> {
        let mut config = C::default();
        for (name, value) in defaults {
            config.set(name, value)?;
        }
        let flags = pairs(&self.properties);
        // The variables of the files may need them.
        for (name, value) in providers(&flags) {
            config.set(name, value)?;
        }
        if let Some(path) = profile {
            config.set_from_file(path)?;
        }
        match &self.command_config {
            Some(path) if !path.exists() => return Err(no_file(path)),
            Some(path) => config.set_from_file(path)?,
            None => {}
        }
        for (name, value) in &flags {
            config.set(name, value)?;
        }
        if let Some(servers) = &self.bootstrap_server {
            config.set(BOOTSTRAP, servers)?;
        }
        if !config.is_given(BOOTSTRAP) {
            config.set(BOOTSTRAP, DEFAULT_BOOTSTRAP)?;
        }
        for (name, value) in fixed {
            config.set(name, value)?;
        }
        config.validate()?;
        Ok(config)
    }
}

/// Settings of a client, from a file that clients of several kinds may share, and by name.
pub(crate) trait ByName: Default {
    fn set_from_file(&mut self, path: &Path) -> Result<(), ConfigError>;
    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError>;
    fn validate(&self) -> Result<(), ConfigError>;
    fn is_given(&self, name: &str) -> bool;
}

macro_rules! by_name {
    ($($config:ty),*) => {$(
        impl ByName for $config {
            fn set_from_file(&mut self, path: &Path) -> Result<(), ConfigError> {
                <$config>::set_from_file(self, path)
            }

            fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
                <$config>::set(self, name, value)
            }

            fn validate(&self) -> Result<(), ConfigError> {
                <$config>::validate(self)
            }

            fn is_given(&self, name: &str) -> bool {
                <$config>::is_given(self, name)
            }
        }
    )*};
}

by_name!(ProducerConfig, ConsumerConfig, AdminConfig);

pub(crate) const BOOTSTRAP: &str = "bootstrap.servers";

/// Returns the properties of a profile's file, of a file and then of flags, to be set in this order. The last value of a
/// name wins.
///
/// In each source the config providers come first, because the variables of its other properties may need them. Config
/// providers of flags come before the files as well. [`ClientArguments::config`] has the same order.
pub(crate) fn properties(
    profile: Option<&Path>,
    file: Option<&Path>,
    flags: &[Property],
) -> Result<Vec<(String, String)>, Failure> {
    if let Some(path) = file.filter(|path| !path.exists()) {
        return Err(no_file(path));
    }
    let flags = pairs(flags);
    let mut all: Vec<_> = providers(&flags).cloned().collect();
    for path in [profile, file].into_iter().flatten() {
        let mut properties = load_properties(path)?;
        providers_first(&mut properties);
        all.extend(properties);
    }
    all.extend(flags);
    Ok(all)
}

/// The properties of flags, config providers first.
fn pairs(flags: &[Property]) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = flags.iter().map(|p| (p.name.clone(), p.value.clone())).collect();
    providers_first(&mut pairs);
    pairs
}

/// Stable, so that the last value of a name stays the last.
fn providers_first(properties: &mut [(String, String)]) {
    properties.sort_by_key(|(name, _)| !ConfigProviders::configures(name));
}

fn providers(properties: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    properties.iter().filter(|(name, _)| ConfigProviders::configures(name))
}

/// The failure for a file of properties that does not exist. Its name may be a setting, which other flags take.
fn no_file(path: &Path) -> Failure {
    let text = path.to_string_lossy();
    // A value may be a secret and is not shown.
    match text.split_once('=') {
        Some((name, _)) if is_topic_setting(name) => Failure::new(format!(
            "{}; --command-config is a file of client properties",
            topic_setting(name)
        )),
        Some((name, _)) => Failure::new(format!(
            "--command-config is a file of client properties; set one property with --command-property {name}=VALUE"
        )),
        None => Failure::new(format!("cannot read properties from {text}: no such file")),
    }
}

fn topic_setting(name: &str) -> String {
    format!(
        "{name} is a setting of topics; use `curtail topics create --config {name}=VALUE` or \
         `curtail configs alter --topic NAME --add {name}=VALUE`"
    )
}

/// Properties of Kafka's console tools, and the flags here.
const CONSOLE: &[(&str, &str)] = &[
    ("print.key", "--key-delimiter TEXT, or %k in --format"),
    ("print.value", "%s in --format"),
    ("print.timestamp", "%T in --format"),
    ("print.partition", "%p in --format"),
    ("print.offset", "%o in --format"),
    ("print.headers", "%h in --format"),
    ("line.separator", "--delimiter TEXT"),
    ("null.literal", "--null"),
    ("null.marker", "--null"),
    ("parse.key", "--key-delimiter TEXT"),
    ("key.separator", "--key-delimiter TEXT"),
    ("parse.headers", "--header NAME=VALUE"),
];

/// Where a property belongs that no client has.
pub(crate) fn of_others(name: &str) -> Option<String> {
    if let Some((_, flag)) = CONSOLE.iter().find(|(known, _)| *known == name) {
        return Some(format!("{name} is a property of Kafka's console tools; use {flag}"));
    }
    if is_topic_setting(name) {
        return Some(topic_setting(name));
    }
    let brokers = ClusterConfig::default();
    brokers.properties().any(|(known, _)| known == name).then(|| {
        format!(
            "{name} is a setting of brokers; use `curtail configs alter --all-brokers --add {name}=VALUE`, or \
             `curtail cluster --property {name}=VALUE`"
        )
    })
}
