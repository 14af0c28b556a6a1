//! Settings of one topic.

use std::collections::BTreeMap;

use curtail_wire::records::TimestampType;

use crate::{config::ClusterConfig, log::LogConfig, settings::BrokerSettings};

/// The source of a value, by its code in DescribeConfigs.
pub(crate) const SOURCE_TOPIC: i8 = 1;
pub(crate) const SOURCE_STATIC: i8 = 4;
pub(crate) const SOURCE_DEFAULT: i8 = 5;

const CLEANUP_POLICY: &str = "cleanup.policy";
const UNCLEAN_ELECTION: &str = "unclean.leader.election.enable";

/// The overrides of a topic, validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicConfig {
    given: BTreeMap<String, String>,
}

/// The name of each topic setting, the name of its broker default, and the check of its value.
const SETTINGS: &[(&str, Option<&str>, Check)] = &[
    (CLEANUP_POLICY, None, Check::ListOf(&["compact", "delete"])),
    ("compression.type", None, Check::OneOf(&["producer"])),
    ("flush.messages", None, Check::Range(1, i64::MAX)),
    ("index.interval.bytes", None, Check::Range(0, i32::MAX as i64)),
    ("max.message.bytes", Some("message.max.bytes"), Check::Range(0, i32::MAX as i64)),
    ("message.timestamp.after.max.ms", None, Check::Range(0, i64::MAX)),
    (
        "message.timestamp.type",
        Some("log.message.timestamp.type"),
        Check::OneOf(&["CreateTime", "LogAppendTime"]),
    ),
    ("min.insync.replicas", Some("min.insync.replicas"), Check::Range(1, i16::MAX as i64)),
    ("retention.bytes", None, Check::Range(-1, i64::MAX)),
    ("retention.ms", None, Check::Range(-1, i64::MAX)),
    ("segment.bytes", Some("log.segment.bytes"), Check::Range(1 << 20, i32::MAX as i64)),
    (UNCLEAN_ELECTION, None, Check::OneOf(&["true", "false"])),
];

/// An edit of one setting (KIP-339).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigEdit {
    Set(String),
    /// Restores the broker's value.
    Delete,
    /// Adds values to a list.
    Append(String),
    /// Removes values from a list.
    Subtract(String),
}

/// Changes to the overrides of one topic, broker or group.
#[derive(Clone, Debug)]
pub(crate) struct ConfigEdits {
    /// Whether overrides without an edit are deleted, as AlterConfigs does.
    pub(crate) replaces: bool,
    pub(crate) edits: Vec<(String, ConfigEdit)>,
}

impl ConfigEdits {
    /// Returns the overrides that the edits start from.
    pub(crate) fn base(&self, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        if self.replaces { BTreeMap::new() } else { given.clone() }
    }
}

#[cfg(test)]
impl<const N: usize> From<[(String, ConfigEdit); N]> for ConfigEdits {
    fn from(edits: [(String, ConfigEdit); N]) -> Self {
        Self { replaces: false, edits: edits.into() }
    }
}

enum Check {
    Range(i64, i64),
    OneOf(&'static [&'static str]),
    /// Any number of these values, separated by commas.
    ListOf(&'static [&'static str]),
}

impl Check {
    /// Checks the value of the setting `name`.
    fn check(&self, name: &str, value: &str) -> Result<(), String> {
        let (wrong, reason) = match self {
            Self::Range(low, high) => {
                let holds = value.parse::<i64>().is_ok_and(|n| (*low..=*high).contains(&n));
                ((!holds).then(|| value.to_owned()), String::new())
            }
            Self::OneOf(values) => {
                ((!values.contains(&value)).then(|| value.to_owned()), String::new())
            }
            Self::ListOf(values) => (
                split(value).find(|item| !values.contains(&item.as_str())),
                format!(": String must be one of: {}", values.join(", ")),
            ),
        };
        match wrong {
            Some(wrong) => Err(format!("Invalid value {wrong} for configuration {name}{reason}")),
            None => Ok(()),
        }
    }
}

impl TopicConfig {
    /// Checks names and values.
    ///
    /// # Errors
    /// The reason, for the response's error message.
    pub(crate) fn new(given: BTreeMap<String, String>) -> Result<Self, String> {
        for (name, value) in &given {
            let Some((_, _, check)) = SETTINGS.iter().find(|(known, ..)| known == name) else {
                return Err(format!("Unknown topic config name: {name}"));
            };
            check.check(name, value)?;
        }
        Ok(Self { given })
    }

    /// Returns these settings with edits applied.
    ///
    /// # Errors
    /// The reason, for the response's error message.
    pub(crate) fn edited(&self, edits: &ConfigEdits) -> Result<Self, String> {
        let mut given = edits.base(&self.given);
        for (name, edit) in &edits.edits {
            let is_list = SETTINGS
                .iter()
                .any(|(known, _, check)| known == name && matches!(check, Check::ListOf(_)));
            let list = || -> Vec<String> {
                split(self.given.get(name).map_or(built_in(name), String::as_str)).collect()
            };
            let value = match edit {
                ConfigEdit::Set(value) => value.clone(),
                ConfigEdit::Delete => {
                    given.remove(name);
                    continue;
                }
                ConfigEdit::Append(_) if !is_list => {
                    return Err(format!(
                        "Can't APPEND to key {name} because its type is not LIST."
                    ));
                }
                ConfigEdit::Subtract(_) if !is_list => {
                    let verb = "SUBTRACT from";
                    return Err(format!("Can't {verb} key {name} because its type is not LIST."));
                }
                ConfigEdit::Append(more) => {
                    let mut list = list();
                    list.extend(
                        split(more).filter(|item| !list.contains(item)).collect::<Vec<_>>(),
                    );
                    list.join(",")
                }
                ConfigEdit::Subtract(less) => {
                    let less: Vec<String> = split(less).collect();
                    let left: Vec<String> =
                        list().into_iter().filter(|item| !less.contains(item)).collect();
                    left.join(",")
                }
            };
            given.insert(name.clone(), value);
        }
        Self::new(given)
    }

    pub(crate) fn given(&self) -> &BTreeMap<String, String> {
        &self.given
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.given.get(name)?.parse().ok()
    }

    /// Returns whether `cleanup.policy` contains a policy.
    fn cleanup(&self, policy: &str) -> bool {
        let given = self.given.get(CLEANUP_POLICY).map_or(built_in(CLEANUP_POLICY), String::as_str);
        split(given).any(|item| item == policy)
    }

    /// Returns whether old records may be deleted, by retention or on request.
    pub(crate) fn deletes(&self) -> bool {
        self.cleanup("delete")
    }

    /// Returns whether an out-of-sync replica may be elected while no in-sync replica is alive. It
    /// loses records.
    pub(crate) fn elects_uncleanly(&self) -> bool {
        self.given.get(UNCLEAN_ELECTION).is_some_and(|value| value == "true")
    }

    pub(crate) fn min_insync_replicas(&self, cluster: &ClusterConfig) -> usize {
        let default = i64::from(cluster.min_insync_replicas);
        usize::try_from(self.number("min.insync.replicas").unwrap_or(default)).unwrap_or(1)
    }

    pub(crate) fn log_config(&self, cluster: &ClusterConfig) -> LogConfig {
        let defaults = LogConfig::default();
        let unsigned = |name| self.number(name).and_then(|n| u64::try_from(n).ok());
        let timestamp_type = match self.given.get("message.timestamp.type").map(String::as_str) {
            Some("LogAppendTime") => TimestampType::LogAppendTime,
            Some(_) => TimestampType::CreateTime,
            None => cluster.log_message_timestamp_type,
        };
        // Without `delete`, only a newer record of the same key may remove a record.
        let deletes = self.deletes();
        LogConfig {
            segment_bytes: unsigned("segment.bytes").unwrap_or(cluster.log_segment_bytes),
            index_interval_bytes: unsigned("index.interval.bytes")
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(defaults.index_interval_bytes),
            retention_bytes: unsigned("retention.bytes").filter(|_| deletes),
            retention_ms: self
                .number("retention.ms")
                .map_or(defaults.retention_ms, |ms| (ms >= 0).then_some(ms))
                .filter(|_| deletes),
            compacted: self.cleanup("compact"),
            producer_id_expiration_ms: cluster.producer_id_expiration.as_millis() as i64,
            max_message_bytes: unsigned("max.message.bytes")
                .map_or(cluster.message_max_bytes, |n| n as usize),
            timestamp_type,
            timestamp_after_max_ms: self
                .number("message.timestamp.after.max.ms")
                .or(defaults.timestamp_after_max_ms),
            flush_each: self
                .number("flush.messages")
                .map_or(cluster.log_flush_each, |messages| messages == 1),
            tail_cache_bytes: cluster.log_tail_cache_bytes,
            plant: cluster.plant,
        }
    }

    /// Returns every setting with its value and the code of its source.
    pub(crate) fn describe(&self, brokers: &BrokerSettings) -> Vec<(&'static str, String, i8)> {
        let one = |(name, broker_name, _): &(&'static str, Option<&str>, Check)| {
            let own = self.given.get(*name).map(|value| (value.clone(), SOURCE_TOPIC));
            let or_brokers = || brokers.get((*broker_name)?);
            let (value, source) = own
                .or_else(or_brokers)
                .unwrap_or_else(|| (built_in(name).to_owned(), SOURCE_DEFAULT));
            (*name, value, source)
        };
        SETTINGS.iter().map(one).collect()
    }
}

/// Returns the value of a setting without a broker default.
fn built_in(name: &str) -> &'static str {
    match name {
        CLEANUP_POLICY => "delete",
        "compression.type" => "producer",
        "index.interval.bytes" => "4096",
        "message.timestamp.after.max.ms" => "3600000",
        "retention.bytes" => "-1",
        "retention.ms" => "604800000",
        UNCLEAN_ELECTION => "false",
        _ => "9223372036854775807",
    }
}

/// Returns the values of a list.
fn split(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned)
}
