//! Kafka's property names: parsing, ranges, and the nearest name for one that does not exist.

use std::{fmt, str::FromStr, time::Duration};

use curtail_wire::records::TimestampType;

use super::{Assignor, ClusterConfig, ReplicaSelector};

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No broker setting has this name.
    #[error("unknown property {name:?}{}", Hint(.nearest))]
    Unknown {
        /// The name given.
        name: String,
        /// The known name nearest to it.
        nearest: Option<&'static str>,
    },
    /// The value is not one the setting takes.
    #[error("{name}={value:?}: {expected}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The value given.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// Two settings do not go together.
    #[error("{0}")]
    Contradiction(String),
}

struct Hint<'a>(&'a Option<&'static str>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "; did you mean {name:?}?"),
            None => Ok(()),
        }
    }
}

type Setter = fn(&mut ClusterConfig, &str) -> Option<()>;
type Getter = fn(&ClusterConfig) -> String;

/// One property: its name, what it takes, how it is set and read.
struct Property {
    name: &'static str,
    expected: &'static str,
    set: Setter,
    get: Getter,
}

fn number<T: FromStr + PartialOrd + Copy>(text: &str, low: T, high: T) -> Option<T> {
    text.trim().parse().ok().filter(|n| *n >= low && *n <= high)
}

fn millis(text: &str, low: u64) -> Option<Duration> {
    number(text, low, i32::MAX as u64).map(Duration::from_millis)
}

fn boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// One rack for each broker; an empty text is no list at all.
fn racks(text: &str) -> Vec<String> {
    let racks = text.split(',').map(|rack| rack.trim().to_owned());
    if text.trim().is_empty() { Vec::new() } else { racks.collect() }
}

/// Kafka's own selectors, by the names of their classes.
fn selector(text: &str) -> Option<ReplicaSelector> {
    match text.trim() {
        "" | "org.apache.kafka.common.replica.LeaderSelector" => Some(ReplicaSelector::Leader),
        RACK_AWARE => Some(ReplicaSelector::RackAware),
        _ => None,
    }
}

const RACK_AWARE: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

macro_rules! property {
    ($name:literal, $expected:literal, $field:ident, $parse:expr, $show:expr) => {
        Property {
            name: $name,
            expected: $expected,
            set: |config, text| {
                config.$field = ($parse)(text)?;
                Some(())
            },
            get: |config| ($show)(&config.$field),
        }
    };
}

const MILLIS: fn(&Duration) -> String = |d| d.as_millis().to_string();

/// Every property, by name.
static PROPERTIES: &[Property] = &[
    property!(
        "auto.create.topics.enable",
        "true or false",
        auto_create_topics,
        boolean,
        bool::to_string
    ),
    property!(
        "broker.heartbeat.interval.ms",
        "milliseconds, at least 1",
        broker_heartbeat_interval,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "broker.rack",
        "the brokers' racks, separated by commas",
        racks,
        |t| Some(racks(t)),
        |racks: &Vec<String>| racks.join(",")
    ),
    property!(
        "broker.session.timeout.ms",
        "milliseconds, at least 1",
        broker_session_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "default.replication.factor",
        "a count, at least 1",
        default_replication_factor,
        |t| number(t, 1, i16::MAX),
        i16::to_string
    ),
    property!(
        "fetch.max.bytes",
        "bytes, at least 1024",
        fetch_max_bytes,
        |t| number(t, 1024, i32::MAX),
        i32::to_string
    ),
    property!(
        "group.consumer.assignment.interval.ms",
        "milliseconds, 0 or more",
        group_consumer_assignment_interval,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "group.consumer.assignors",
        "uniform and range, or one of them, separated by commas",
        group_consumer_assignors,
        assignors,
        |assignors: &Vec<Assignor>| {
            assignors.iter().map(|assignor| assignor.name()).collect::<Vec<_>>().join(",")
        }
    ),
    property!(
        "group.consumer.heartbeat.interval.ms",
        "milliseconds, at least 1",
        group_consumer_heartbeat_interval,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.consumer.max.heartbeat.interval.ms",
        "milliseconds, at least 1",
        group_consumer_max_heartbeat_interval,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.consumer.max.session.timeout.ms",
        "milliseconds, at least 1",
        group_consumer_max_session_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.consumer.max.size",
        "a count, at least 1",
        group_consumer_max_size,
        |t| number(t, 1, i32::MAX as usize),
        usize::to_string
    ),
    property!(
        "group.consumer.min.heartbeat.interval.ms",
        "milliseconds, at least 1",
        group_consumer_min_heartbeat_interval,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.consumer.min.session.timeout.ms",
        "milliseconds, at least 1",
        group_consumer_min_session_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.consumer.regex.refresh.interval.ms",
        "milliseconds, at least 10000",
        group_consumer_regex_refresh_interval,
        |t| millis(t, 10_000),
        MILLIS
    ),
    property!(
        "group.consumer.session.timeout.ms",
        "milliseconds, at least 1",
        group_consumer_session_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.initial.rebalance.delay.ms",
        "milliseconds, 0 or more",
        group_initial_rebalance_delay,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "group.max.session.timeout.ms",
        "milliseconds, at least 1",
        group_max_session_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.min.session.timeout.ms",
        "milliseconds, at least 1",
        group_min_session_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "log.flush.interval.messages",
        "1 (sync every append) or 9223372036854775807 (leave it to the operating system)",
        log_flush_each,
        |t| match number(t, 1, i64::MAX)? {
            1 => Some(true),
            i64::MAX => Some(false),
            _ => None,
        },
        |each: &bool| if *each { "1".to_owned() } else { i64::MAX.to_string() }
    ),
    property!(
        "log.message.timestamp.type",
        "CreateTime or LogAppendTime",
        log_message_timestamp_type,
        timestamp_type,
        timestamp_type_name
    ),
    property!(
        "log.segment.bytes",
        "bytes, 1048576 to 2147483647",
        log_segment_bytes,
        |t| number(t, 1 << 20, i32::MAX as u64),
        u64::to_string
    ),
    property!(
        "max.connections",
        "a count, at least 1",
        max_connections,
        |t| number(t, 1, i32::MAX as usize),
        usize::to_string
    ),
    property!(
        "max.incremental.fetch.session.cache.slots",
        "a count, 0 or more",
        fetch_session_cache_slots,
        |t| number(t, 0, i32::MAX as usize),
        usize::to_string
    ),
    property!(
        "message.max.bytes",
        "bytes, 0 or more",
        message_max_bytes,
        |t| number(t, 0, i32::MAX as usize),
        usize::to_string
    ),
    property!(
        "metadata.propagation.delay.ms",
        "milliseconds, 0 or more",
        metadata_propagation_delay,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "min.incremental.fetch.session.eviction.ms",
        "milliseconds, 0 or more",
        fetch_session_eviction,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "min.insync.replicas",
        "a count, at least 1",
        min_insync_replicas,
        |t| number(t, 1, i16::MAX),
        i16::to_string
    ),
    property!(
        "num.partitions",
        "a count, at least 1",
        num_partitions,
        |t| number(t, 1, i32::MAX),
        i32::to_string
    ),
    property!(
        "offset.metadata.max.bytes",
        "bytes, 0 to 32767",
        offset_metadata_max_bytes,
        |t| number(t, 0, i16::MAX as usize),
        usize::to_string
    ),
    property!(
        "offsets.commit.timeout.ms",
        "milliseconds, at least 1",
        offsets_commit_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "offsets.retention.minutes",
        "minutes, at least 1",
        offsets_retention_minutes,
        |t| number(t, 1, i32::MAX),
        i32::to_string
    ),
    property!(
        "offsets.topic.num.partitions",
        "a count, at least 1",
        offsets_topic_partitions,
        |t| number(t, 1, 1000),
        i32::to_string
    ),
    property!(
        "offsets.topic.replication.factor",
        "a count, at least 1",
        offsets_topic_replication_factor,
        |t| number(t, 1, i16::MAX),
        i16::to_string
    ),
    property!(
        "replica.fetch.backoff.ms",
        "milliseconds, 0 or more",
        replica_fetch_backoff,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "replica.fetch.max.bytes",
        "bytes, 0 or more",
        replica_fetch_max_bytes,
        |t| number(t, 0, i32::MAX),
        i32::to_string
    ),
    property!(
        "replica.fetch.response.max.bytes",
        "bytes, 0 or more",
        replica_fetch_response_max_bytes,
        |t| number(t, 0, i32::MAX),
        i32::to_string
    ),
    property!(
        "replica.fetch.wait.max.ms",
        "milliseconds, 0 or more",
        replica_fetch_wait_max,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "replica.lag.time.max.ms",
        "milliseconds, at least 1",
        replica_lag_time_max,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "replica.selector.class",
        "org.apache.kafka.common.replica.RackAwareReplicaSelector, or nothing",
        replica_selector,
        selector,
        |selector: &ReplicaSelector| match selector {
            ReplicaSelector::Leader => String::new(),
            ReplicaSelector::RackAware => RACK_AWARE.to_owned(),
        }
    ),
    property!(
        "socket.request.max.bytes",
        "bytes, 1 to 104857600",
        socket_request_max_bytes,
        |t| number(t, 1, 100 << 20),
        usize::to_string
    ),
    property!(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "milliseconds, at least 1",
        transaction_abort_interval,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "transaction.max.timeout.ms",
        "milliseconds, at least 1",
        transaction_max_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "transaction.state.log.min.isr",
        "a count, at least 1",
        transaction_log_min_isr,
        |t| number(t, 1, i16::MAX),
        i16::to_string
    ),
    property!(
        "transaction.state.log.num.partitions",
        "a count, at least 1",
        transaction_log_partitions,
        |t| number(t, 1, 1000),
        i32::to_string
    ),
    property!(
        "transaction.state.log.replication.factor",
        "a count, at least 1",
        transaction_log_replication_factor,
        |t| number(t, 1, i16::MAX),
        i16::to_string
    ),
    property!(
        "transaction.version",
        "0, 1 or 2",
        transaction_version,
        |t| number(t, 0, 2),
        i16::to_string
    ),
];

/// Assignors by their names, each once.
fn assignors(text: &str) -> Option<Vec<Assignor>> {
    let mut assignors = Vec::new();
    for name in text.split(',') {
        let assignor = Assignor::by_name(name.trim())?;
        if assignors.contains(&assignor) {
            return None;
        }
        assignors.push(assignor);
    }
    Some(assignors)
}

fn timestamp_type(text: &str) -> Option<TimestampType> {
    match text.trim() {
        "CreateTime" => Some(TimestampType::CreateTime),
        "LogAppendTime" => Some(TimestampType::LogAppendTime),
        _ => None,
    }
}

fn timestamp_type_name(value: &TimestampType) -> String {
    match value {
        TimestampType::CreateTime => "CreateTime".into(),
        TimestampType::LogAppendTime => "LogAppendTime".into(),
    }
}

impl ClusterConfig {
    /// Sets one value by the name Kafka's brokers give it, for example `min.insync.replicas` to `2`.
    ///
    /// # Errors
    /// An unknown name (with the nearest known one), or a value out of the setting's range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let Some(property) = PROPERTIES.iter().find(|p| p.name == name.trim()) else {
            let nearest = nearest(name.trim(), PROPERTIES.iter().map(|p| p.name));
            return Err(ConfigError::Unknown { name: name.into(), nearest });
        };
        (property.set)(self, value).ok_or_else(|| ConfigError::Value {
            name: property.name,
            value: value.into(),
            expected: property.expected,
        })
    }

    /// Every property and its value, by name.
    pub fn properties(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        PROPERTIES.iter().map(|p| (p.name, (p.get)(self)))
    }
}

/// The name with the smallest edit distance, if a slip of the keyboard could explain it.
pub(crate) fn nearest(
    name: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let name: String = name.chars().take(80).collect();
    known
        .map(|candidate| (edit_distance(&name, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .map(|(_, candidate)| candidate)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
