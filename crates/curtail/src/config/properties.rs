//! Java's property names: values, ranges and units, and a helpful error for an unusable name.
//!
//! Names, ranges and defaults are those of `ProducerConfig`, `ConsumerConfig` and `AdminClientConfig` in Apache Kafka
//! 4.3. A property belongs to one of three classes:
//! - supported: the tables below
//! - ignored: it only tunes the Java virtual machine ([`IGNORED_PROPERTIES`])
//! - without effect ([`elsewhere`]): accepted only with Java's default, or a value that describes what Curtail does
//!
//! Any other name is a mistake.

mod elsewhere;
mod from_file;
mod librdkafka;

use std::path::Path;

use super::{
    AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig,
    common::COMMON,
    providers::ConfigProviders,
    redact, security,
    table::{Kind, Property, Settings},
};
use crate::error::ConfigError;

/// Properties of the Java clients that are accepted without effect: they tune Java's metrics.
///
/// Serializers and deserializers are accepted too, but only those that keep the application's bytes or text
/// (`ByteArray`, `ByteBuffer`, `Bytes`, `String`): records are bytes here.
pub const IGNORED_PROPERTIES: &[&str] = &[
    "auto.include.jmx.reporter",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
];

/// Settings that exist with the feature `arms` only.
#[cfg(any(test, not(feature = "arms")))]
pub(super) const ARMS: &[&str] = &[
    "curtail.buffered.partitions",
    "curtail.leader.discovery",
    "curtail.move.refused.batches",
    "curtail.phase.stamps",
    "curtail.prefer.proven.partitions",
    "curtail.separate.unproven.partitions",
];

/// The properties common to all clients, except those that `S` does not have.
fn common<S: Settings>() -> impl Iterator<Item = &'static Property<CommonConfig>> {
    COMMON.iter().chain(security::table()).filter(|p| !S::WITHOUT.contains(&p.name))
}

/// Every property name that `S` supports.
fn supported<S: Settings>() -> impl Iterator<Item = &'static str> {
    common::<S>().map(|p| p.name).chain(S::table().map(|p| p.name))
}

fn set<S: Settings>(config: &mut S, name: &str, value: &str) -> Result<(), ConfigError> {
    let (name, value) = (name.trim(), value.trim());
    if ConfigProviders::configures(name) {
        return config.common_mut().providers.set(name, value);
    }
    if !counts::<S>(name) {
        return without_effect::<S>(name, value);
    }
    match config.common().providers.replace(&redact::name(name), value)? {
        None => set_text(config, name, value),
        Some(text) => {
            set_text(config, name, text.trim()).map_err(|error| without_text::<S>(error, value))
        }
    }
}

/// Whether a client of this kind looks at the value. The variables of others are not looked up: a shared file may name
/// secrets that only another client can read.
fn counts<S: Settings>(name: &str) -> bool {
    supported::<S>().any(|known| known == name)
        || matches!(
            elsewhere::set(S::KIND, name, ""),
            Some(Ok(()) | Err(ConfigError::NotSupported { .. }))
        )
}

/// Removes from an error the text that a config provider has returned: it may be a secret. Quotes the `variable`.
fn without_text<S: Settings>(error: ConfigError, variable: &str) -> ConfigError {
    match error {
        ConfigError::Invalid { name, .. } => {
            let of_client = S::table().find(|p| p.name == name).map(|p| p.expected);
            let expected =
                of_client.or_else(|| common::<S>().find(|p| p.name == name).map(|p| p.expected));
            let reason =
                format!("its text cannot be used; expected {}", expected.unwrap_or_default());
            ConfigError::Invalid { name, value: redact::value(name, variable), reason }
        }
        ConfigError::NotSupported { name, why, .. } => {
            ConfigError::NotSupported { name, value: None, why }
        }
        error => error,
    }
}

/// Sets a property, after the replacement of variables.
fn set_text<S: Settings>(config: &mut S, name: &str, value: &str) -> Result<(), ConfigError> {
    if let Some(property) = S::table().find(|p| p.name == name) {
        property.set(config, value)?;
        config.give(property.name);
        return Ok(());
    }
    if let Some(property) = common::<S>().find(|p| p.name == name) {
        property.set(config.common_mut(), value)?;
        config.give(property.name);
        return Ok(());
    }
    without_effect::<S>(name, value)
}

/// Classifies a name that sets nothing: harmless, not supported, or a mistake.
fn without_effect<S: Settings>(name: &str, value: &str) -> Result<(), ConfigError> {
    if IGNORED_PROPERTIES.contains(&name) {
        return Ok(());
    }
    if let Some(set) = elsewhere::set(S::KIND, name, value) {
        return set;
    }
    if let Some(why) = librdkafka::find(name) {
        let (name, value, why) = (redact::name(name), None, why.to_owned());
        return Err(ConfigError::NotSupported { name, value, why });
    }
    #[cfg(not(feature = "arms"))]
    if ARMS.contains(&name) {
        let why = "it is for experiments, and needs the cargo feature `arms`".to_owned();
        return Err(ConfigError::NotSupported { name: name.to_owned(), value: None, why });
    }
    if let Some(clients) = elsewhere::of_other_clients(S::KIND, name) {
        return Err(ConfigError::OfOtherClients { name: redact::name(name), clients });
    }
    let providers = std::iter::once(super::providers::NAME);
    let known = supported::<S>()
        .chain(providers)
        .chain(IGNORED_PROPERTIES.iter().copied())
        .chain(elsewhere::names());
    Err(ConfigError::Unknown { name: redact::name(name), nearest: nearest(name, known) })
}

/// Checks every value against its property's parser, which defines the range. Covers values from setters.
fn check_ranges<S: Settings>(config: &S) -> Result<(), ConfigError> {
    for property in common::<S>() {
        property.check(config.common())?;
    }
    S::table().try_for_each(|property| property.check(config))
}

/// Restores a setting's default.
fn unset<S: Settings>(config: &mut S, name: &str) -> Result<(), ConfigError> {
    let name = name.trim();
    let unset = S::default();
    let name = if let Some(property) = S::table().find(|p| p.name == name) {
        (property.copy)(&unset, config);
        property.name
    } else if let Some(property) = common::<S>().find(|p| p.name == name) {
        (property.copy)(unset.common(), config.common_mut());
        property.name
    } else {
        let nearest = nearest(name, supported::<S>());
        return Err(ConfigError::Unknown { name: redact::name(name), nearest });
    };
    config.common_mut().given.remove(name);
    config.settle();
    Ok(())
}

/// Takes over the common settings that were made explicitly.
pub(super) fn take_over<S: Settings>(config: &mut S, from: &CommonConfig) {
    let made: Vec<_> = common::<S>().filter(|p| from.given.contains(p.name)).collect();
    if made.iter().any(|made| security::table().any(|p| p.name == made.name)) {
        // It has values that are no properties, and a cache that all its clones share.
        config.common_mut().security = from.security.clone();
    }
    for property in made {
        (property.copy)(from, config.common_mut());
        config.common_mut().given.insert(property.name);
    }
    config.settle();
}

/// Returns the value of a setting, or `None` for an unknown name.
fn get<S: Settings>(config: &S, name: &str) -> Option<String> {
    let own = S::table().find(|p| p.name == name).map(|p| (p.get)(config));
    own.or_else(|| common::<S>().find(|p| p.name == name).map(|p| (p.get)(config.common())))
}

fn show<S: Settings>(config: &S) -> Vec<(&'static str, String)> {
    let mut all: Vec<_> = common::<S>().map(|p| (p.name, (p.get)(config.common()))).collect();
    all.extend(S::table().map(|p| (p.name, (p.get)(config))));
    all.sort_unstable();
    all
}

macro_rules! by_name {
    ($type:ident, $example:literal) => {
        impl $type {
            /// Reads settings from properties with Java's names. For a repeated name the last value counts; the order
            /// of different names does not matter. A setting of another kind of client is an error here, and skipped
            /// in a file ([`Self::from_file`]).
            ///
            /// # Errors
            /// As [`Self::set`] and [`Self::validate`].
            ///
            /// ```
            #[doc = concat!("use curtail::", stringify!($type), ";")]
            ///
            #[doc = concat!("let config = ", stringify!($type), "::from_properties([")]
            ///     ("bootstrap.servers", "localhost:9092"),
            #[doc = concat!("    ", $example, ",")]
            /// ])?;
            /// # Ok::<(), curtail::ConfigError>(())
            /// ```
            pub fn from_properties<N: AsRef<str>, V: AsRef<str>>(
                properties: impl IntoIterator<Item = (N, V)>,
            ) -> Result<Self, ConfigError> {
                let mut config = Self::default();
                let mut properties: Vec<(N, V)> = properties.into_iter().collect();
                // A stable sort: the last value of a name counts.
                properties.sort_by_key(|(name, _)| !ConfigProviders::configures(name.as_ref()));
                for (name, value) in properties {
                    config.set(name.as_ref(), value.as_ref())?;
                }
                config.validate()?;
                Ok(config)
            }

            /// Reads a `.properties` file, which clients of several kinds may share: settings of other clients are
            /// skipped, and their names are logged at level `INFO`. See [`load_properties`](super::load_properties)
            /// for the syntax.
            ///
            /// # Errors
            /// [`ConfigError::InFile`] with the problem of each line, or, if there is none, with that of
            /// [`Self::validate`]. [`ConfigError::File`] if the file cannot be read.
            pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
                let path = path.as_ref();
                let mut config = Self::default();
                config.set_from_file(path)?;
                config.validate().map_err(|error| from_file::of_whole(path, error))?;
                Ok(config)
            }

            /// Sets the properties of a file as [`Self::from_file`] does, but does not validate their combination, so
            /// that [`Self::set`] can add to them. On an error nothing has changed.
            ///
            /// # Errors
            /// [`ConfigError::InFile`] with the problem of each line. [`ConfigError::File`] if the file cannot be read.
            pub fn set_from_file(&mut self, path: impl AsRef<Path>) -> Result<(), ConfigError> {
                from_file::set_all(self, path.as_ref())
            }

            /// Sets one property by Java's name, for example `request.timeout.ms` to `2000`. Ignores spaces around
            /// name and value.
            ///
            /// Variables `${provider:path:key}` are replaced by the providers that `config.providers` lists (KIP-297).
            /// Here the providers must be set before the properties with variables; in files and in
            /// [`Self::from_properties`] the order does not matter.
            ///
            /// # Errors
            /// An unknown name (with the nearest known one), a value outside the property's range, or an unsupported
            /// property of the Java client. [`IGNORED_PROPERTIES`] are accepted without effect.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
                set(self, name, value)
            }

            /// Refuses numbers that [`Self::set`] would refuse.
            pub(super) fn check_ranges(&self) -> Result<(), ConfigError> {
                check_ranges(self)
            }

            /// Restores the default of a setting, as if it had not been made.
            ///
            /// # Errors
            /// An unknown name, with the nearest known one.
            pub fn unset(&mut self, name: &str) -> Result<(), ConfigError> {
                unset(self, name)
            }

            /// Returns the value of a setting as [`Self::set`] takes it, `[hidden]` for a secret, or `None` for an unknown
            /// name.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<String> {
                get(self, name)
            }

            /// Whether a setting was made explicitly, by its setter, by name or in a file. The defaults of other settings
            /// may follow it.
            #[must_use]
            pub fn is_given(&self, name: &str) -> bool {
                self.common.given.contains(name)
            }

            /// Every supported property and its value, sorted by name.
            #[must_use]
            pub fn properties(&self) -> Vec<(&'static str, String)> {
                show(self)
            }
        }
    };
}

by_name!(ProducerConfig, r#"("linger.ms", "0")"#);
by_name!(ConsumerConfig, r#"("auto.offset.reset", "earliest")"#);
by_name!(AdminConfig, r#"("default.api.timeout.ms", "90000")"#);

/// Returns the name with the smallest edit distance, if a typing error could explain it.
fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let name: Vec<char> =
        name.to_ascii_lowercase().replace(['_', '-'], ".").chars().take(80).collect();
    known
        .map(|candidate| (edit_distance(&name, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .map(|(_, candidate)| candidate)
}

fn edit_distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
