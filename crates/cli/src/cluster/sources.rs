//! Server properties from a file and from the environment.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, ffi::OsString, path::Path};

use curtail::config::load_properties;
use curtail_cluster::{ClusterConfig, ConfigError, Effect, Host, ListenerAddress, Listeners};

use super::{ADVERTISED, LISTENERS};
use crate::{failure::Failure, output};

/// A property, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) origin: Origin,
}

/// The source of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The file of `--config`.
    File(String),
    /// An environment variable, by its name.
    Variable(String),
    /// `--property`.
    Flag,
}

impl Given {
    /// The property as the user wrote it.
    pub(super) fn shown(&self) -> String {
        match &self.origin {
            Origin::File(path) => format!("{} in {path}", self.name),
            Origin::Variable(name) => name.clone(),
            Origin::Flag => format!("--property {}", self.name),
        }
    }

    /// The failure of setting it.
    fn failed(&self, error: &ConfigError) -> Failure {
        match (&self.origin, error) {
            (Origin::File(path), error) => Failure::new(format!("{path}: {error}")),
            (Origin::Variable(variable), ConfigError::Unknown { name, nearest }) => {
                let hint = nearest.map(|name| format!("; did you mean {}?", variable_of(name)));
                Failure::new(format!(
                    "{variable}: the embedded cluster has no property '{name}'{}",
                    hint.unwrap_or_default()
                ))
            }
            (Origin::Variable(variable), error) => Failure::new(format!("{variable}: {error}")),
            (Origin::Flag, error) => Failure::new(error),
        }
    }
}

/// Returns the properties of a file.
pub(super) fn file(path: &Path) -> Result<Vec<Given>, Failure> {
    let shown = path.display().to_string();
    let properties = load_properties(path)?;
    let given = |(name, value)| Given { name, value, origin: Origin::File(shown.clone()) };
    Ok(properties.into_iter().map(given).collect())
}

const PREFIX: &str = "KAFKA_";

const CLUSTER_ID: &str = "CLUSTER_ID";

/// Variables of Kafka's images and scripts that are no properties: of the JVM, of logging, and of the
/// images themselves.
const NO_PROPERTIES: &[&str] = &[
    "KAFKA_CLUSTER_ID",
    "KAFKA_DATA_DIRS",
    "KAFKA_DEBUG",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_HOME",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_OPTS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_VERSION",
    "KAFKA_ZOOKEEPER_CLIENT_CNXN_SOCKET",
];

/// Beginnings of such names.
const NO_PROPERTY_PREFIXES: &[&str] = &["KAFKA_JMX_", "KAFKA_LOG4J_"];

fn is_property(variable: &str) -> bool {
    variable.starts_with(PREFIX)
        && !NO_PROPERTIES.contains(&variable)
        && !NO_PROPERTY_PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
        && !is_of_service(variable)
}

/// Returns whether Kubernetes sets the variable for a service, here one whose name is `kafka` or begins
/// with `kafka-`: `_SERVICE_HOST`, `_SERVICE_PORT`, `_SERVICE_PORT_NAME`, `_PORT`, `_PORT_9092_TCP`,
/// `_PORT_9092_TCP_ADDR`. No property has such a name.
fn is_of_service(variable: &str) -> bool {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with('_');
    let is_port = |rest: &str| {
        let Some(rest) = rest.strip_prefix('_') else { return rest.is_empty() };
        let after_number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let protocol = ["_TCP", "_UDP", "_SCTP"].iter().find_map(|p| after_number.strip_prefix(p));
        after_number.len() < rest.len() && protocol.is_some_and(ends)
    };
    let after = |part: &'static str| {
        variable.match_indices(part).map(|(at, _)| &variable[at + part.len()..])
    };
    variable.ends_with("_SERVICE_HOST")
        || after("_SERVICE_PORT").any(ends)
        || after("_PORT").any(is_port)
}

/// Returns the property of a variable, as Kafka's images do: a single underscore is a dot, two are an
/// underscore, and three are a dash.
fn property_of(variable: &str) -> String {
    let name = variable[PREFIX.len()..].to_ascii_lowercase();
    name.replace('_', ".").replace("...", "-").replace("..", "_")
}

/// Returns the variable of a property.
fn variable_of(property: &str) -> String {
    let name = property.replace('_', "__").replace('-', "___").replace('.', "_");
    format!("{PREFIX}{}", name.to_ascii_uppercase())
}

/// Returns the properties in the variables that begin with `KAFKA_`, by name.
pub(super) fn environment(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<Given>, Failure> {
    let mut given = Vec::new();
    for (variable, value) in variables {
        let Some(variable) = variable.to_str().filter(|name| is_property(name)) else { continue };
        let value = value.into_string();
        let value = value.map_err(|_| not_utf_8(variable))?;
        let name = property_of(variable);
        // As in Kafka's images, whose users keep such variables in files of `docker compose`.
        if value.is_empty() && [LISTENERS, ADVERTISED].contains(&name.as_str()) {
            continue;
        }
        let origin = Origin::Variable(variable.to_owned());
        given.push(Given { name, value, origin });
    }
    given.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(given)
}

/// Returns the id of the cluster, which Kafka's images format their storage with.
pub(super) fn cluster_id(
    variable: impl FnOnce(&'static str) -> Option<OsString>,
) -> Result<Option<String>, Failure> {
    let Some(value) = variable(CLUSTER_ID).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let id = value.into_string();
    id.map(Some).map_err(|_| not_utf_8(CLUSTER_ID))
}

fn not_utf_8(variable: &str) -> Failure {
    Failure::new(format!("{variable} is not UTF-8"))
}

/// Returns `listeners` if only `advertised.listeners` is given: on every address, on the advertised
/// ports, as in Kafka's images.
pub(super) fn opened_as_advertised(given: &[Given]) -> Option<Given> {
    if given.iter().any(|given| given.name == LISTENERS) {
        return None;
    }
    let advertised = given.iter().rfind(|given| given.name == ADVERTISED)?;
    let every = |list: Vec<ListenerAddress>| {
        list.into_iter().map(|entry| ListenerAddress { host: Host::Every, ..entry }).collect()
    };
    // What cannot be parsed is refused when it is set.
    let listeners = match advertised.value.parse().ok()? {
        Listeners::From(list) => Listeners::From(every(list)),
        Listeners::Each(lists) => Listeners::Each(lists.into_iter().map(every).collect()),
    };
    Some(Given {
        name: LISTENERS.to_owned(),
        value: listeners.to_string(),
        origin: advertised.origin.clone(),
    })
}

/// Returns the last value of each property, in the order of the values.
pub(super) fn in_force(given: Vec<Given>) -> Vec<Given> {
    let mut seen = BTreeSet::new();
    let mut last: Vec<Given> = given.into_iter().rev().collect();
    last.retain(|given| seen.insert(given.name.trim().to_owned()));
    last.reverse();
    last
}

/// Sets properties. Returns those without effect, by name, with the flag to use instead. A flag without
/// effect is refused. `keeps_data` is whether that flag of a directory is given.
pub(super) fn apply(
    config: &mut ClusterConfig,
    given: &[Given],
    keeps_data: bool,
) -> Result<Vec<String>, Failure> {
    let mut without_effect = BTreeSet::new();
    for given in given {
        let effect = config.set_server_property(&given.name, &given.value);
        match effect.map_err(|error| given.failed(&error))? {
            Effect::Set => {}
            Effect::None { .. } if given.origin == Origin::Flag => {
                config.set(&given.name, &given.value).map_err(|error| given.failed(&error))?;
            }
            Effect::None { instead: Some(flag), .. } if !keeps_data => {
                without_effect.insert(format!("{} (use {flag})", given.name));
            }
            Effect::None { difference: Some(difference), .. } => {
                without_effect.insert(format!("{} ({difference})", given.name));
            }
            Effect::None { .. } => {
                without_effect.insert(given.name.clone());
            }
        }
    }
    Ok(without_effect.into_iter().collect())
}

/// Prints that variables with properties of the cluster are not read.
pub(super) fn remind_of_environment(variables: impl IntoIterator<Item = (OsString, OsString)>) {
    let config = ClusterConfig::default();
    let is_known = |name: &str| {
        is_property(name) && {
            let property = property_of(name);
            config.properties().any(|(known, _)| known == property)
        }
    };
    let names = variables.into_iter().filter_map(|(name, _)| name.into_string().ok());
    let mut set: Vec<String> = names.filter(|name| is_known(name)).collect();
    set.sort();
    match set.as_slice() {
        [] => {}
        [one] => output::note(format_args!("{one} of the environment is not read; --env reads it")),
        [first, more @ ..] => output::note(format_args!(
            "{first} and {} more variables of the environment are not read; --env reads them",
            more.len()
        )),
    }
}
