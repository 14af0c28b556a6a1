//! Settings of one topic.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use curtail_wire::{
    compression::{Codec, Compression},
    records::TimestampType,
};

use crate::{
    config::{ClusterConfig, TopicDefaults},
    log::{Compaction, LogConfig},
    settings::BrokerSettings,
};

/// The source of a value, by its code in DescribeConfigs.
pub(crate) const SOURCE_TOPIC: i8 = 1;
pub(crate) const SOURCE_STATIC: i8 = 4;
pub(crate) const SOURCE_DEFAULT: i8 = 5;

const CLEANUP_POLICY: &str = "cleanup.policy";
const MIN_LAG: &str = "min.compaction.lag.ms";
const MAX_LAG: &str = "max.compaction.lag.ms";
const RETENTION: &str = "retention.ms";
const SEGMENT_JITTER: &str = "segment.jitter.ms";
const SEGMENT_MS: &str = "segment.ms";
const FLUSH_MS: &str = "flush.ms";
const REMOTE_STORAGE: &str = "remote.storage.enable";
/// The name is the same for topics and brokers.
pub(crate) const UNCLEAN_ELECTION: &str = "unclean.leader.election.enable";
/// Brokers' settings for the time after which a segment ends. The first takes precedence.
pub(crate) const ROLL_MS: &str = "log.roll.ms";
pub(crate) const ROLL_HOURS: &str = "log.roll.hours";
/// Brokers' settings for the time by which a segment may end earlier. The first takes precedence.
pub(crate) const ROLL_JITTER_MS: &str = "log.roll.jitter.ms";
pub(crate) const ROLL_JITTER_HOURS: &str = "log.roll.jitter.hours";

/// The overrides of a topic, validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicConfig {
    given: BTreeMap<String, String>,
}

/// The type of a setting, with its code in DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean = 1,
    String = 2,
    Int = 3,
    Short = 4,
    Long = 5,
    Double = 6,
    List = 7,
    Password = 9,
}

/// A setting of topics.
struct Setting {
    name: &'static str,
    /// The broker setting in force for topics without an override.
    brokers: Option<&'static str>,
    kind: Kind,
    check: Check,
}

impl Setting {
    fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }
}

const fn setting(
    name: &'static str,
    brokers: Option<&'static str>,
    kind: Kind,
    check: Check,
) -> Setting {
    Setting { name, brokers, kind, check }
}

const BYTES: Check = Check::Range(0, i32::MAX as i64);

/// Topic settings without an effect; `docs/embedded-cluster.md` has the reasons (decision 0137). [`REMOTE_STORAGE`] is not among
/// them: it is refused.
const WITHOUT_EFFECT: [&str; 9] = [
    "compression.lz4.level",
    "file.delete.delay.ms",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
];

/// Names, types and bounds of all topic settings of Apache Kafka 4.3.
const SETTINGS: &[Setting] = &[
    setting(
        CLEANUP_POLICY,
        Some("log.cleanup.policy"),
        Kind::List,
        Check::OneOf(&["compact", "delete"]),
    ),
    setting(
        "compression.gzip.level",
        Some("compression.gzip.level"),
        Kind::Int,
        Check::Level { default: -1, low: 1, high: 9 },
    ),
    setting(
        "compression.lz4.level",
        Some("compression.lz4.level"),
        Kind::Int,
        Check::Level { default: 9, low: 1, high: 17 },
    ),
    setting(
        "compression.type",
        Some("compression.type"),
        Kind::String,
        Check::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
    ),
    setting(
        "compression.zstd.level",
        Some("compression.zstd.level"),
        Kind::Int,
        Check::Level { default: 3, low: -131_072, high: 22 },
    ),
    setting(
        "delete.retention.ms",
        Some("log.cleaner.delete.retention.ms"),
        Kind::Long,
        Check::Range(0, i64::MAX),
    ),
    setting(
        "file.delete.delay.ms",
        Some("log.segment.delete.delay.ms"),
        Kind::Long,
        Check::Range(0, i64::MAX),
    ),
    setting(
        "flush.messages",
        Some("log.flush.interval.messages"),
        Kind::Long,
        Check::Range(1, i64::MAX),
    ),
    setting(FLUSH_MS, Some("log.flush.interval.ms"), Kind::Long, Check::Range(0, i64::MAX)),
    setting("follower.replication.throttled.replicas", None, Kind::List, Check::Throttled),
    setting("index.interval.bytes", Some("log.index.interval.bytes"), Kind::Int, BYTES),
    setting("leader.replication.throttled.replicas", None, Kind::List, Check::Throttled),
    setting(
        "local.retention.bytes",
        Some("log.local.retention.bytes"),
        Kind::Long,
        Check::Range(-2, i64::MAX),
    ),
    setting(
        "local.retention.ms",
        Some("log.local.retention.ms"),
        Kind::Long,
        Check::Range(-2, i64::MAX),
    ),
    setting(
        MAX_LAG,
        Some("log.cleaner.max.compaction.lag.ms"),
        Kind::Long,
        Check::Range(1, i64::MAX),
    ),
    setting("max.message.bytes", Some("message.max.bytes"), Kind::Int, BYTES),
    setting(
        "message.timestamp.after.max.ms",
        Some("log.message.timestamp.after.max.ms"),
        Kind::Long,
        Check::Range(0, i64::MAX),
    ),
    setting(
        "message.timestamp.before.max.ms",
        Some("log.message.timestamp.before.max.ms"),
        Kind::Long,
        Check::Range(0, i64::MAX),
    ),
    setting(
        "message.timestamp.type",
        Some("log.message.timestamp.type"),
        Kind::String,
        Check::OneOf(&["CreateTime", "LogAppendTime"]),
    ),
    setting(
        "min.cleanable.dirty.ratio",
        Some("log.cleaner.min.cleanable.ratio"),
        Kind::Double,
        Check::Ratio,
    ),
    setting(
        MIN_LAG,
        Some("log.cleaner.min.compaction.lag.ms"),
        Kind::Long,
        Check::Range(0, i64::MAX),
    ),
    setting(
        "min.insync.replicas",
        Some("min.insync.replicas"),
        Kind::Int,
        Check::Range(1, i32::MAX as i64),
    ),
    setting("preallocate", Some("log.preallocate"), Kind::Boolean, Check::Boolean),
    setting("remote.log.copy.disable", None, Kind::Boolean, Check::Boolean),
    setting("remote.log.delete.on.disable", None, Kind::Boolean, Check::Boolean),
    setting(REMOTE_STORAGE, None, Kind::Boolean, Check::Boolean),
    setting(
        "retention.bytes",
        Some("log.retention.bytes"),
        Kind::Long,
        Check::Range(i64::MIN, i64::MAX),
    ),
    setting(RETENTION, Some("log.retention.ms"), Kind::Long, Check::Range(-1, i64::MAX)),
    setting(
        "segment.bytes",
        Some("log.segment.bytes"),
        Kind::Int,
        Check::Range(1 << 20, i32::MAX as i64),
    ),
    setting(
        "segment.index.bytes",
        Some("log.index.size.max.bytes"),
        Kind::Int,
        Check::Range(4, i32::MAX as i64),
    ),
    setting(SEGMENT_JITTER, Some(ROLL_JITTER_MS), Kind::Long, Check::Range(0, i64::MAX)),
    setting(SEGMENT_MS, Some(ROLL_MS), Kind::Long, Check::Range(1, i64::MAX)),
    setting(UNCLEAN_ELECTION, Some(UNCLEAN_ELECTION), Kind::Boolean, Check::Boolean),
];

/// A broker setting for topics without an override.
pub(crate) struct DefaultSetting {
    pub(crate) name: &'static str,
    /// Empty for none: another setting applies then. Not for fields of [`ClusterConfig`].
    pub(crate) default: &'static str,
    pub(crate) kind: Kind,
    /// Whether a running broker changes it.
    pub(crate) is_dynamic: bool,
    /// Whether clients can see it.
    pub(crate) has_effect: bool,
    check: &'static Check,
}

impl DefaultSetting {
    /// Checks a value.
    ///
    /// # Errors
    /// The value and the reason, worded as by Kafka.
    pub(crate) fn check(&self, value: &str) -> Result<(), String> {
        check(self.name, self.kind, self.check, value)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        defaults_of_brokers().find(|setting| setting.name == name)
    }
}

/// Returns the broker settings for topics without an override.
pub(crate) fn defaults_of_brokers() -> impl Iterator<Item = DefaultSetting> {
    let of_topics = SETTINGS.iter().filter_map(|setting| {
        let name = setting.brokers?;
        let default = match name {
            ROLL_MS | "log.flush.interval.ms" | ROLL_JITTER_MS => "",
            _ => built_in(setting.name),
        };
        let (kind, check) = (setting.kind, &setting.check);
        let has_effect = !WITHOUT_EFFECT.contains(&setting.name);
        Some(DefaultSetting { name, default, kind, is_dynamic: true, has_effect, check })
    });
    of_topics.chain([
        in_hours(ROLL_HOURS, "168", &Check::Range(1, i32::MAX as i64)),
        in_hours(ROLL_JITTER_HOURS, "0", &Check::Range(0, i32::MAX as i64)),
    ])
}

/// Returns a setting that stands in for one in milliseconds. Kafka cannot change it while a broker runs.
fn in_hours(name: &'static str, default: &'static str, check: &'static Check) -> DefaultSetting {
    DefaultSetting { name, default, kind: Kind::Int, is_dynamic: false, has_effect: true, check }
}

/// Returns whether topics of Apache Kafka have a setting of this name.
#[must_use]
pub fn is_topic_setting(name: &str) -> bool {
    Setting::named(name).is_some()
}

/// A name, its value and the code of the value's source.
pub(crate) type Synonym = (&'static str, String, i8);

/// A setting for DescribeConfigs.
pub(crate) struct Described {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) source: i8,
    pub(crate) kind: Kind,
    /// All values, the one in force first.
    pub(crate) synonyms: Vec<Synonym>,
}

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

/// Changes to the overrides of one topic, broker, group or subscription to client metrics.
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
    /// The default, or a level in this range.
    Level {
        default: i64,
        low: i64,
        high: i64,
    },
    /// `*`, or a list of `PARTITION:BROKER`.
    Throttled,
    /// From 0 to 1.
    Ratio,
    Boolean,
    /// The value, or each item of a list, is one of these.
    OneOf(&'static [&'static str]),
}

/// Checks a value of a setting.
///
/// # Errors
/// The value and the reason, worded as by Kafka.
fn check(name: &str, kind: Kind, check: &Check, value: &str) -> Result<(), String> {
    let mut wrong = value.to_owned();
    let reason = match *check {
        Check::Range(low, high) => out_of_range(kind, value, low, high),
        Check::Level { default, low, high } => {
            let level = value.parse::<i64>().ok();
            let is_known = level == Some(default);
            match level {
                None => Some("Not a number of type INT".to_owned()),
                Some(level) if is_known || (low..=high).contains(&level) => None,
                Some(_) => {
                    Some(format!("Value must be between {low} and {high} or equal to {default}"))
                }
            }
        }
        Check::Throttled => {
            let number =
                |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let is_replica =
                |item: &str| item.split_once(':').is_some_and(|(at, id)| number(at) && number(id));
            let items: Vec<String> = split(value).collect();
            let valid = items == ["*"] || items.iter().all(|item| is_replica(item));
            let reason = "must be the literal '*' or a list of replicas in the following \
                          format: [partitionId]:[brokerId],[partitionId]:[brokerId],...";
            (!valid).then(|| reason.to_owned())
        }
        Check::Ratio => no_ratio(value),
        Check::Boolean => {
            let known = ["true", "false"].iter().any(|known| value.eq_ignore_ascii_case(known));
            (!known).then(|| "Expected value to be either true or false".to_owned())
        }
        Check::OneOf(values) => {
            let mut items: Vec<String> = match kind {
                Kind::List => split(value).collect(),
                _ => vec![value.to_owned()],
            };
            items.retain(|item| !values.contains(&item.as_str()));
            items.into_iter().next().map(|item| {
                wrong = item;
                format!("String must be one of: {}", values.join(", "))
            })
        }
    };
    match reason {
        Some(reason) => Err(format!("Invalid value {wrong} for configuration {name}: {reason}")),
        None => Ok(()),
    }
}

/// Returns the reason to refuse a number.
fn out_of_range(kind: Kind, value: &str, low: i64, high: i64) -> Option<String> {
    match value.parse::<i64>() {
        Ok(number) if number < low => Some(format!("Value must be at least {low}")),
        Ok(number) if number <= high => None,
        _ => {
            let kind = if kind == Kind::Int { "INT" } else { "LONG" };
            Some(format!("Not a number of type {kind}"))
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
            let Some(setting) = Setting::named(name) else {
                return Err(format!("Unknown topic config name: {name}"));
            };
            check(name, setting.kind, &setting.check, value)?;
        }
        let config = Self { given };
        let no_defaults = TopicDefaults::default();
        let own = config.with(&no_defaults);
        if own.is_on(REMOTE_STORAGE) {
            return Err("Tiered Storage functionality is disabled in the broker. Topic cannot be \
                        configured with remote log storage."
                .to_owned());
        }
        let Compaction { min_lag_ms, max_lag_ms, .. } = own.compaction();
        if min_lag_ms > max_lag_ms {
            return Err(format!(
                "conflict topic config setting {MIN_LAG} ({min_lag_ms}) > {MAX_LAG} ({max_lag_ms})"
            ));
        }
        Ok(config)
    }

    /// Returns these settings with edits applied.
    ///
    /// # Errors
    /// The reason, for the response's error message.
    pub(crate) fn edited(&self, edits: &ConfigEdits) -> Result<Self, String> {
        let mut given = edits.base(&self.given);
        for (name, edit) in &edits.edits {
            let is_list = Setting::named(name).is_some_and(|setting| setting.kind == Kind::List);
            let list = || self.given.get(name).map_or(built_in(name), String::as_str);
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
                ConfigEdit::Append(more) => appended(list(), more),
                ConfigEdit::Subtract(less) => without(list(), less),
            };
            given.insert(name.clone(), value);
        }
        Self::new(given)
    }

    pub(crate) fn given(&self) -> &BTreeMap<String, String> {
        &self.given
    }

    /// Returns these settings above the brokers'.
    fn with<'a>(&'a self, defaults: &'a TopicDefaults) -> InForce<'a> {
        InForce { own: &self.given, defaults }
    }

    /// Returns whether old records may be deleted, by retention or on request.
    pub(crate) fn deletes(&self, defaults: &TopicDefaults) -> bool {
        self.with(defaults).cleanup("delete")
    }

    /// Returns whether an out-of-sync replica may be elected while no in-sync replica is alive, if the topic says so. It
    /// loses records.
    pub(crate) fn elects_uncleanly(&self) -> Option<bool> {
        self.given.get(UNCLEAN_ELECTION).map(|value| is_true(value))
    }

    pub(crate) fn min_insync_replicas(&self, cluster: &ClusterConfig) -> usize {
        let own = self.given.get("min.insync.replicas").and_then(|number| number.parse().ok());
        own.unwrap_or(cluster.min_insync_replicas as usize)
    }

    pub(crate) fn log_config(&self, cluster: &ClusterConfig) -> LogConfig {
        let defaults = LogConfig::default();
        let own = self.with(&cluster.topic_defaults);
        let unsigned = |name| own.number(name).and_then(|n| u64::try_from(n).ok());
        let timestamp_type = match own.get("message.timestamp.type") {
            Some("LogAppendTime") => TimestampType::LogAppendTime,
            Some(_) => TimestampType::CreateTime,
            None => cluster.log_message_timestamp_type,
        };
        // Without `delete`, only a newer record of the same key may remove a record.
        let deletes = own.cleanup("delete");
        let retention_bytes = own.number("retention.bytes").unwrap_or(cluster.log_retention_bytes);
        let retention_ms =
            own.number(RETENTION).unwrap_or_else(|| cluster.log_retention.in_force());
        LogConfig {
            segment_bytes: unsigned("segment.bytes").unwrap_or(cluster.log_segment_bytes),
            index_interval_bytes: unsigned("index.interval.bytes")
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(defaults.index_interval_bytes),
            retention_bytes: u64::try_from(retention_bytes).ok().filter(|_| deletes),
            retention_ms: (retention_ms >= 0 && deletes).then_some(retention_ms),
            segment_ms: own
                .number(SEGMENT_MS)
                .or_else(|| cluster.topic_defaults.roll_hours_ms())
                .unwrap_or(defaults.segment_ms),
            compacted: own.cleanup("compact"),
            compaction: own.compaction(),
            producer_id_expiration_ms: cluster.producer_id_expiration.as_millis() as i64,
            max_message_bytes: unsigned("max.message.bytes")
                .map_or(cluster.message_max_bytes, |n| n as usize),
            compression: own.compression(),
            timestamp_type,
            timestamp_after_max_ms: own
                .number("message.timestamp.after.max.ms")
                .unwrap_or(defaults.timestamp_after_max_ms),
            timestamp_before_max_ms: own
                .number("message.timestamp.before.max.ms")
                .unwrap_or(defaults.timestamp_before_max_ms),
            segment_jitter_ms: own
                .number(SEGMENT_JITTER)
                .or_else(|| cluster.topic_defaults.roll_jitter_hours_ms())
                .unwrap_or(defaults.segment_jitter_ms),
            index_bytes: unsigned("segment.index.bytes")
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(defaults.index_bytes),
            flush_messages: own
                .number("flush.messages")
                .unwrap_or(cluster.log_flush_interval_messages),
            flush_ms: own.number(FLUSH_MS).unwrap_or_else(|| flush_ms_of_brokers(cluster)),
            tail_cache_bytes: cluster.log_tail_cache_bytes,
            plant: cluster.plant,
        }
    }

    /// Returns every setting.
    pub(crate) fn describe(&self, brokers: &BrokerSettings) -> Vec<Described> {
        let of_brokers = &brokers.config.topic_defaults;
        let one = |setting: &Setting| {
            let or_built_in = |given: Option<i64>| {
                given.map_or_else(|| built_in(setting.name).to_owned(), |ms| ms.to_string())
            };
            let own = self.given.get(setting.name);
            let own = own.map(|value| (setting.name, value.clone(), SOURCE_TOPIC));
            let default = match setting.name {
                // As in Kafka, minutes and hours alone are no synonyms.
                RETENTION => brokers.config.log_retention.in_force().to_string(),
                SEGMENT_MS => or_built_in(of_brokers.roll_hours_ms()),
                SEGMENT_JITTER => or_built_in(of_brokers.roll_jitter_hours_ms()),
                FLUSH_MS => flush_ms_of_brokers(&brokers.config).to_string(),
                name => built_in(name).to_owned(),
            };
            let others = setting.brokers.into_iter().flat_map(|name| brokers.synonyms(name));
            let synonyms: Vec<Synonym> = own.into_iter().chain(others).collect();
            let applies = synonyms.first().map(|(_, value, source)| (value.clone(), *source));
            let (value, source) = applies.unwrap_or((default, SOURCE_DEFAULT));
            Described { name: setting.name, value, source, kind: setting.kind, synonyms }
        };
        SETTINGS.iter().map(one).collect()
    }
}

/// The settings of a topic above those of the brokers.
struct InForce<'a> {
    own: &'a BTreeMap<String, String>,
    defaults: &'a TopicDefaults,
}

impl<'a> InForce<'a> {
    /// Returns a value that the topic or the brokers have been given.
    fn get(&self, name: &str) -> Option<&'a str> {
        let own = self.own.get(name).map(String::as_str);
        if own.is_some() || self.defaults.is_empty() {
            return own;
        }
        self.defaults.given(Setting::named(name)?.brokers?)
    }

    fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(is_true)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }

    fn compaction(&self) -> Compaction {
        let defaults = Compaction::default();
        let ratio = self.get("min.cleanable.dirty.ratio");
        Compaction {
            min_dirty_ratio: ratio
                .and_then(|ratio| ratio.parse().ok())
                .unwrap_or(defaults.min_dirty_ratio),
            min_lag_ms: self.number(MIN_LAG).unwrap_or(defaults.min_lag_ms),
            max_lag_ms: self.number(MAX_LAG).unwrap_or(defaults.max_lag_ms),
            delete_retention_ms: self
                .number("delete.retention.ms")
                .unwrap_or(defaults.delete_retention_ms),
        }
    }

    /// Returns whether `cleanup.policy` contains a policy.
    fn cleanup(&self, policy: &str) -> bool {
        let policies = self.get(CLEANUP_POLICY).unwrap_or(built_in(CLEANUP_POLICY));
        split(policies).any(|item| item == policy)
    }

    /// The codec for the batches of producers with another one; `None` for `producer`.
    fn compression(&self) -> Option<Compression> {
        let codec = match self.get("compression.type") {
            None | Some("producer") => return None,
            Some("uncompressed") => Codec::None,
            Some(name) => name.parse().ok()?,
        };
        let level = codec.levels().and_then(|_| self.number(&format!("compression.{codec}.level")));
        let level = level.and_then(|level| i32::try_from(level).ok());
        Compression::new(codec, level).ok()
    }
}

/// Returns `flush.ms` of topics if neither they nor `log.flush.interval.ms` have a value.
fn flush_ms_of_brokers(cluster: &ClusterConfig) -> i64 {
    cluster.log_flush_scheduler_interval.as_millis() as i64
}

/// Returns whether a valid boolean is true.
pub(crate) fn is_true(value: &str) -> bool {
    value.eq_ignore_ascii_case("true")
}

/// Returns the value of a setting that neither the topic nor the brokers have been given, unless it is a field of
/// [`ClusterConfig`].
fn built_in(name: &str) -> &'static str {
    match name {
        CLEANUP_POLICY => "delete",
        "compression.gzip.level" => "-1",
        "compression.lz4.level" => "9",
        "compression.type" => "producer",
        "compression.zstd.level" => "3",
        "delete.retention.ms" => "86400000",
        "file.delete.delay.ms" => "60000",
        "follower.replication.throttled.replicas" | "leader.replication.throttled.replicas" => "",
        "index.interval.bytes" => "4096",
        "local.retention.bytes" | "local.retention.ms" => "-2",
        "message.timestamp.after.max.ms" => "3600000",
        "min.cleanable.dirty.ratio" => "0.5",
        MIN_LAG => "0",
        SEGMENT_MS => "604800000",
        "segment.index.bytes" => "10485760",
        SEGMENT_JITTER => "0",
        "preallocate"
        | "remote.log.copy.disable"
        | "remote.log.delete.on.disable"
        | REMOTE_STORAGE
        | UNCLEAN_ELECTION => "false",
        _ => "9223372036854775807",
    }
}

/// Returns the reason to refuse a ratio.
fn no_ratio(value: &str) -> Option<String> {
    match value.parse::<f64>() {
        Ok(ratio) if ratio < 0.0 => Some("Value must be at least 0".to_owned()),
        Ok(ratio) if ratio > 1.0 => Some("Value must be no more than 1".to_owned()),
        Ok(ratio) if !ratio.is_nan() => None,
        _ => Some("Not a number of type DOUBLE".to_owned()),
    }
}

/// Returns the values of a list.
pub(crate) fn split(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned)
}

/// Returns a list with further values, each of which it has once.
pub(crate) fn appended(list: &str, more: &str) -> String {
    let mut items: Vec<String> = split(list).collect();
    let new: Vec<String> = split(more).filter(|item| !items.contains(item)).collect();
    items.extend(new);
    items.join(",")
}

/// Returns a list without some values.
pub(crate) fn without(list: &str, less: &str) -> String {
    let less: Vec<String> = split(less).collect();
    let left: Vec<String> = split(list).filter(|item| !less.contains(item)).collect();
    left.join(",")
}
