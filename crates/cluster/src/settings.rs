//! Settings of brokers, groups and client metrics that are changed while the cluster runs (KIP-226, KIP-848, KIP-714).

mod client_metrics;
mod groups;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use curtail_wire::ErrorCode;
use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::{
    config::{ClusterConfig, ConfigError, INERT, Inert},
    controller::Refusal,
    topic_config::{
        ConfigEdit, ConfigEdits, DefaultSetting, Described, Kind, ROLL_HOURS, ROLL_JITTER_HOURS,
        ROLL_JITTER_MS, ROLL_MS, SOURCE_DEFAULT, SOURCE_STATIC, Synonym, appended, without,
    },
};

pub(crate) use client_metrics::{
    DEFAULT_INTERVAL, Subscription, describe_client_metrics, subscriptions,
};
pub(crate) use groups::{describe_group, of_group, of_streams_group};

/// The source of a value, by its code in DescribeConfigs.
pub(crate) const SOURCE_BROKER: i8 = 2;
pub(crate) const SOURCE_BROKERS: i8 = 3;
pub(crate) const SOURCE_CLIENT_METRICS: i8 = 7;
pub(crate) const SOURCE_GROUP: i8 = 8;

/// The owner of settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Whose {
    /// The default of all brokers; a broker's own setting overrides it.
    Brokers,
    Broker(i32),
    Group(String),
    /// A subscription to metrics of clients.
    ClientMetrics(String),
}

/// The overrides of one owner.
pub(crate) type Given = BTreeMap<String, String>;

/// All overrides since the cluster was first started.
pub(crate) type Changed = OrdMap<Whose, Arc<Given>>;

/// Settings that may have no value, and those that apply then, in the order of precedence.
const OPTIONAL: [&[&str]; 4] = [
    &["log.flush.interval.ms"],
    &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
    &[ROLL_JITTER_MS, ROLL_JITTER_HOURS],
    &[ROLL_MS, ROLL_HOURS],
];

const LONGS: [&str; 7] = [
    "connections.max.idle.ms",
    "connections.max.reauth.ms",
    "log.cleaner.backoff.ms",
    "log.flush.scheduler.interval.ms",
    "log.retention.check.interval.ms",
    "offsets.retention.check.interval.ms",
    "replica.lag.time.max.ms",
];
const INTS: [&str; 1] = ["log.retention.minutes"];
const LISTS: [&str; 2] = ["group.consumer.assignors", "sasl.enabled.mechanisms"];
const SHORTS: [&str; 2] =
    ["offsets.topic.replication.factor", "transaction.state.log.replication.factor"];

/// Returns the type of a setting of brokers or groups in Apache Kafka. It follows from the default,
/// because a string such as `broker.rack` may look like a number.
fn kind_of(name: &str, default: &str) -> Kind {
    let of_topics = DefaultSetting::named(name).map(|setting| setting.kind);
    if let Some(kind) = of_topics.or_else(|| Some(Inert::named(name)?.kind)) {
        return kind;
    }
    match default {
        _ if ClusterConfig::is_sensitive(name) => Kind::Password,
        _ if LISTS.contains(&name) => Kind::List,
        _ if SHORTS.contains(&name) => Kind::Short,
        _ if LONGS.contains(&name) => Kind::Long,
        _ if INTS.contains(&name) => Kind::Int,
        "true" | "false" => Kind::Boolean,
        default if default.parse::<i64>().is_ok() => Kind::Int,
        _ => Kind::String,
    }
}

/// Returns whether a broker's setting can change while it runs. Kafka has further ones, which this cluster does not
/// support.
pub(crate) fn is_dynamic(name: &str) -> bool {
    ["log.cleaner.backoff.ms", "max.connections"].contains(&name)
        || DefaultSetting::named(name).is_some_and(|setting| setting.is_dynamic)
        || Inert::named(name).is_some()
}

/// Returns whether a dynamic setting belongs to one broker, as those of its listeners do.
fn is_of_one_broker(name: &str) -> bool {
    name.starts_with("sasl.kerberos.")
}

/// Returns the overrides after some edits.
///
/// # Errors
/// The reason with Kafka's error code: broker settings are refused with INVALID_REQUEST
/// (KAFKA-13609).
pub(crate) fn edited(
    whose: &Whose,
    given: &Given,
    edits: &ConfigEdits,
    config: &ClusterConfig,
) -> Result<Given, Refusal> {
    let mut given = edits.base(given);
    for (name, edit) in &edits.edits {
        let list = || {
            let default = list_of_brokers(whose, name)?;
            Some(given.get(name).cloned().unwrap_or(default))
        };
        let (verb, value) = match edit {
            ConfigEdit::Set(value) => {
                given.insert(name.clone(), value.trim().to_owned());
                continue;
            }
            ConfigEdit::Delete => {
                given.remove(name);
                continue;
            }
            ConfigEdit::Append(more) => ("APPEND to", list().map(|list| appended(&list, more))),
            ConfigEdit::Subtract(less) => {
                ("SUBTRACT from", list().map(|list| without(&list, less)))
            }
        };
        let Some(value) = value else {
            let reason = format!("Can't {verb} key {name} because its type is not LIST.");
            return Err((ErrorCode::INVALID_CONFIG, reason));
        };
        given.insert(name.clone(), value);
    }
    match whose {
        Whose::Brokers | Whose::Broker(_) => {
            let invalid = |reason| (ErrorCode::INVALID_REQUEST, reason);
            if let Some(name) = given.keys().find(|name| is_of_one_broker(name))
                && *whose == Whose::Brokers
            {
                let reason = "Cannot update these configs at default cluster level, broker id must be specified";
                return Err(invalid(format!("{reason}: {name}")));
            }
            with_given(config, &given).map_err(invalid)?;
        }
        Whose::Group(_) => {
            let invalid = |reason| (ErrorCode::INVALID_CONFIG, reason);
            groups::check(&given, config).map_err(invalid)?;
        }
        Whose::ClientMetrics(_) => client_metrics::check(&given)?,
    }
    Ok(given)
}

/// Returns the default of a list among the settings of brokers. In Kafka there are also lists of client metrics.
fn list_of_brokers(whose: &Whose, name: &str) -> Option<String> {
    if !matches!(whose, Whose::Brokers | Whose::Broker(_)) {
        return None;
    }
    let default = default_of(name)?;
    (kind_of(name, &default) == Kind::List).then_some(default)
}

/// Returns the default of a broker setting.
fn default_of(name: &str) -> Option<String> {
    let inert = Inert::named(name).map(|setting| setting.default.to_owned());
    inert.or_else(|| ClusterConfig::default().property(name))
}

/// Returns a broker's settings with overrides applied.
fn with_given(config: &ClusterConfig, given: &Given) -> Result<ClusterConfig, String> {
    let mut config = config.clone();
    let mut fixed = Vec::new();
    for (name, value) in given {
        set(&mut config, name, value).map_err(|error| error.to_string())?;
        if !is_dynamic(name) {
            fixed.push(name.as_str());
        }
    }
    match fixed.is_empty() {
        true => Ok(config),
        false => Err(format!("Cannot update these configs dynamically: {}", fixed.join(", "))),
    }
}

fn set(config: &mut ClusterConfig, name: &str, value: &str) -> Result<(), ConfigError> {
    // An empty value restores a default in a file. At run time that takes a deletion.
    if let Some(setting) = DefaultSetting::named(name).filter(|_| value.is_empty()) {
        setting.check(value).map_err(ConfigError::Invalid)?;
    }
    match Inert::named(name) {
        Some(setting) => setting.check(value),
        None => config.set(name, value),
    }
}

/// The settings in force on one broker.
pub(crate) struct BrokerSettings {
    pub(crate) config: ClusterConfig,
    /// The settings that the broker was started with.
    started: ClusterConfig,
    of_all: Arc<Given>,
    own: Arc<Given>,
}

impl BrokerSettings {
    /// Creates the settings of a broker started with `config`.
    pub(crate) fn new(config: &ClusterConfig, broker: i32, changed: &Changed) -> Self {
        let given = |whose| changed.get(&whose).cloned().unwrap_or_default();
        let (of_all, own) = (given(Whose::Brokers), given(Whose::Broker(broker)));
        let mut all = (*of_all).clone();
        all.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
        // The controller has validated the overrides. An override from an earlier version may be
        // unknown now; then none of them applies.
        let mut started = config.clone();
        started.narrow_to(broker);
        let config = with_given(&started, &all).unwrap_or_else(|reason| {
            tracing::warn!(broker, reason, "changed settings are not used");
            started.clone()
        });
        Self { config, started, of_all, own }
    }

    /// Returns the source of a setting's value.
    pub(crate) fn source(&self, name: &str, is_default: bool) -> i8 {
        match name {
            name if self.own.contains_key(name) => SOURCE_BROKER,
            name if self.of_all.contains_key(name) => SOURCE_BROKERS,
            _ if is_default => SOURCE_DEFAULT,
            _ => SOURCE_STATIC,
        }
    }

    /// Returns every setting.
    pub(crate) fn describe(&self) -> Vec<Described> {
        let defaults = ClusterConfig::default();
        let values = self.config.properties().zip(defaults.properties());
        let values = values.map(|((name, value), (_, default))| (name, value, default));
        let inert = INERT.iter().map(|setting| {
            let value = self.layers(setting.name).remove(0).0;
            (setting.name, value, setting.default.to_owned())
        });
        let one = |(name, value, default): (&'static str, String, String)| {
            let source = self.source(name, value == default);
            let synonyms = self.synonyms(name);
            Described { name, kind: kind_of(name, &default), value, source, synonyms }
        };
        values.chain(inert).map(one).collect()
    }

    /// Returns the values of a setting and of those that stand in for it, from the one in force on. As in
    /// Kafka, a setting without a value has no synonyms, not even those that then apply.
    pub(crate) fn synonyms(&self, name: &'static str) -> Vec<Synonym> {
        let of =
            |name| self.layers(name).into_iter().map(move |(value, source)| (name, value, source));
        let Some(family) = OPTIONAL.iter().find(|family| family.contains(&name)) else {
            return of(name).collect();
        };
        let given = family.iter().copied().flat_map(of).filter(|(_, value, _)| !value.is_empty());
        let mut all: Vec<Synonym> = given.collect();
        // The codes are in the order of precedence.
        all.sort_by_key(|(.., source)| *source);
        all.into_iter().skip_while(|(known, ..)| *known != name).collect()
    }

    /// Returns the values of a setting with the codes of their sources, the one in force first and
    /// the default last. Empty for an unknown name.
    pub(crate) fn layers(&self, name: &str) -> Vec<(String, i8)> {
        let default = default_of(name);
        let changed = |given: &Given, source| given.get(name).map(|value| (value.clone(), source));
        let started = self.started.property(name).filter(|value| Some(value) != default.as_ref());
        [
            changed(&self.own, SOURCE_BROKER),
            changed(&self.of_all, SOURCE_BROKERS),
            started.map(|value| (value, SOURCE_STATIC)),
            default.map(|value| (value, SOURCE_DEFAULT)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
