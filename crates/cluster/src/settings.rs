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
    config::ClusterConfig,
    controller::Refusal,
    topic_config::{
        ConfigEdit, ConfigEdits, Described, Kind, SOURCE_DEFAULT, SOURCE_STATIC, Synonym,
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

/// Settings that can change while a broker runs. Kafka has further ones, which this cluster does
/// not support.
const OF_BROKERS: [&str; 8] = [
    "log.flush.interval.messages",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.ms",
    "log.segment.bytes",
    "max.connections",
    "message.max.bytes",
    "min.insync.replicas",
];

/// The settings of one time, in the order of precedence.
const RETENTION: [&str; 3] = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];

const LONGS: [&str; 8] = [
    "connections.max.idle.ms",
    "connections.max.reauth.ms",
    "log.cleaner.backoff.ms",
    "log.flush.interval.messages",
    "log.retention.bytes",
    "log.retention.check.interval.ms",
    "log.retention.ms",
    "replica.lag.time.max.ms",
];
const INTS: [&str; 1] = ["log.retention.minutes"];
const LISTS: [&str; 2] = ["group.consumer.assignors", "sasl.enabled.mechanisms"];
const SHORTS: [&str; 2] =
    ["offsets.topic.replication.factor", "transaction.state.log.replication.factor"];

/// Returns the type of a setting of brokers or groups in Apache Kafka. It follows from the default,
/// because a string such as `broker.rack` may look like a number.
fn kind_of(name: &str, default: &str) -> Kind {
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

/// Returns whether a broker's setting can change while it runs.
pub(crate) fn is_dynamic(name: &str) -> bool {
    OF_BROKERS.contains(&name)
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
        let verb = match edit {
            ConfigEdit::Set(value) => {
                given.insert(name.clone(), value.clone());
                continue;
            }
            ConfigEdit::Delete => {
                given.remove(name);
                continue;
            }
            // In Kafka also for lists of client metrics.
            ConfigEdit::Append(_) => "APPEND to",
            ConfigEdit::Subtract(_) => "SUBTRACT from",
        };
        let reason = format!("Can't {verb} key {name} because its type is not LIST.");
        return Err((ErrorCode::INVALID_CONFIG, reason));
    }
    match whose {
        Whose::Brokers | Whose::Broker(_) => {
            let invalid = |reason| (ErrorCode::INVALID_REQUEST, reason);
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

/// Returns a broker's settings with overrides applied.
fn with_given(config: &ClusterConfig, given: &Given) -> Result<ClusterConfig, String> {
    let mut config = config.clone();
    let mut fixed = Vec::new();
    for (name, value) in given {
        config.set(name, value).map_err(|error| error.to_string())?;
        if !is_dynamic(name) {
            fixed.push(name.as_str());
        }
    }
    match fixed.is_empty() {
        true => Ok(config),
        false => Err(format!("Cannot update these configs dynamically: {}", fixed.join(", "))),
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
        started.narrow_listeners_to(broker);
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
        let one = |((name, value), (_, default)): ((&'static str, String), (_, String))| {
            let source = self.source(name, value == default);
            let synonyms = self.synonyms(name);
            Described { name, kind: kind_of(name, &default), value, source, synonyms }
        };
        values.map(one).collect()
    }

    /// Returns the values of a setting and of those that stand in for it, from the one in force on. As in
    /// Kafka, a setting without a value has no synonyms, not even those that then apply.
    pub(crate) fn synonyms(&self, name: &'static str) -> Vec<Synonym> {
        let of =
            |name| self.layers(name).into_iter().map(move |(value, source)| (name, value, source));
        if !RETENTION.contains(&name) {
            return of(name).collect();
        }
        let given = RETENTION.into_iter().flat_map(of).filter(|(_, value, _)| !value.is_empty());
        let mut all: Vec<Synonym> = given.collect();
        // The codes are in the order of precedence.
        all.sort_by_key(|(.., source)| *source);
        all.into_iter().skip_while(|(known, ..)| *known != name).collect()
    }

    /// Returns the values of a setting with the codes of their sources, the one in force first and
    /// the default last. Empty for an unknown name.
    pub(crate) fn layers(&self, name: &str) -> Vec<(String, i8)> {
        let value_of = |config: &ClusterConfig| {
            config.properties().find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let default = value_of(&ClusterConfig::default());
        let changed = |given: &Given, source| given.get(name).map(|value| (value.clone(), source));
        let started = value_of(&self.started).filter(|value| Some(value) != default.as_ref());
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
