//! Kafka's property names: parsing, ranges, and the nearest name for an unknown one.

use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr, time::Duration};

use curtail_wire::records::TimestampType;

use super::{
    Assignor, Authorizer, ClientAuth, ClusterConfig, ListenerName, ListenerProtocols, Listeners,
    Mechanism, Password, ReplicaSelector, foreign,
    listeners::{EXPECTED as LISTENERS, EXPECTED_PROTOCOLS as PROTOCOLS},
};

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No broker setting has this name.
    #[error("the embedded cluster has no property '{name}'{}", Hint(.nearest))]
    Unknown {
        /// The name given.
        name: String,
        /// The known name nearest to it.
        nearest: Option<&'static str>,
    },
    /// Apache Kafka's brokers have this setting, the embedded cluster does not support it.
    #[error("{name}: {reason}")]
    Unsupported {
        /// The setting.
        name: String,
        /// Why, and what to do instead.
        reason: &'static str,
    },
    /// The value is invalid for the setting.
    #[error("{name}={value}: expected {expected}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The value given.
        value: String,
        /// The expected values.
        expected: &'static str,
    },
    /// The value is invalid for the setting, in Kafka's words.
    #[error("{0}")]
    Invalid(String),
    /// Two settings contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

struct Hint<'a>(&'a Option<&'static str>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "; did you mean '{name}'?"),
            None => Ok(()),
        }
    }
}

type Setter = fn(&mut ClusterConfig, &str) -> Option<()>;
type Getter = fn(&ClusterConfig) -> String;

/// One property: its name, its expected values, its setter and getter.
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

/// One rack per broker; an empty text is an empty list.
fn racks(text: &str) -> Vec<String> {
    let racks = text.split(',').map(|rack| rack.trim().to_owned());
    if text.trim().is_empty() { Vec::new() } else { racks.collect() }
}

/// Kafka's own selectors, by class name.
fn selector(text: &str) -> Option<ReplicaSelector> {
    match text.trim() {
        "" | "org.apache.kafka.common.replica.LeaderSelector" => Some(ReplicaSelector::Leader),
        RACK_AWARE => Some(ReplicaSelector::RackAware),
        _ => None,
    }
}

const RACK_AWARE: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

macro_rules! property {
    ($name:expr, $expected:expr, $($field:ident).+, $parse:expr, $show:expr) => {
        Property {
            name: $name,
            expected: $expected,
            set: |config, text| {
                config.$($field).+ = ($parse)(text)?;
                Some(())
            },
            get: |config| ($show)(&config.$($field).+),
        }
    };
}

const UNLIMITED: &str = "a time above 0, or -1 for no limit";

const MILLIS: fn(&Duration) -> String = |d| d.as_millis().to_string();

/// Every property, by name.
static PROPERTIES: &[Property] = &[
    property!(
        "advertised.listeners",
        LISTENERS,
        advertised_listeners,
        |t| optional(t, |t| t.parse().ok()),
        show_optional
    ),
    property!(
        "allow.everyone.if.no.acl.found",
        "true or false",
        security.allow_everyone_if_no_acl,
        boolean,
        bool::to_string
    ),
    property!(
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer, or nothing",
        security.authorizer,
        |t: &str| match t.trim() {
            "" => Some(Authorizer::None),
            STANDARD_AUTHORIZER => Some(Authorizer::Standard),
            _ => None,
        },
        |authorizer: &Authorizer| match authorizer {
            Authorizer::None => String::new(),
            Authorizer::Standard => STANDARD_AUTHORIZER.to_owned(),
        }
    ),
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
        "connection.authentication.timeout.ms",
        "milliseconds, at least 1",
        security.authentication_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "connection.failed.authentication.delay.ms",
        "milliseconds, 0 or more",
        security.failed_authentication_delay,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "connections.max.idle.ms",
        "milliseconds, at least 1",
        connections_max_idle,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "connections.max.reauth.ms",
        "milliseconds, 0 or more",
        security.max_reauth,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "controller.listener.names",
        "names of listeners, separated by commas, or nothing",
        controller_listeners,
        |t: &str| match t.trim() {
            "" => Some(Vec::new()),
            names => names.split(',').map(|name| ListenerName::new(name.trim())).collect(),
        },
        |names: &Vec<ListenerName>| {
            names.iter().map(ListenerName::as_str).collect::<Vec<_>>().join(",")
        }
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
        |t| each_once(t, Assignor::by_name),
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
        "group.streams.assignment.interval.ms",
        "milliseconds, 0 or more",
        group_streams_assignment_interval,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "group.streams.heartbeat.interval.ms",
        "milliseconds, at least 1",
        group_streams_heartbeat_interval,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.streams.initial.rebalance.delay.ms",
        "milliseconds, 0 or more",
        group_streams_initial_rebalance_delay,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "group.streams.max.assignment.interval.ms",
        "milliseconds, 0 or more",
        group_streams_max_assignment_interval,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "group.streams.max.heartbeat.interval.ms",
        "milliseconds, at least 1",
        group_streams_max_heartbeat_interval,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.streams.max.session.timeout.ms",
        "milliseconds, at least 1",
        group_streams_max_session_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.streams.max.size",
        "a count, at least 1",
        group_streams_max_size,
        |t| number(t, 1, i32::MAX as usize),
        usize::to_string
    ),
    property!(
        "group.streams.max.standby.replicas",
        "a count, 0 or more",
        group_streams_max_standby_replicas,
        |t| number(t, 0, i32::MAX as u32),
        u32::to_string
    ),
    property!(
        "group.streams.min.assignment.interval.ms",
        "milliseconds, 0 or more",
        group_streams_min_assignment_interval,
        |t| millis(t, 0),
        MILLIS
    ),
    property!(
        "group.streams.min.heartbeat.interval.ms",
        "milliseconds, at least 1",
        group_streams_min_heartbeat_interval,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.streams.min.session.timeout.ms",
        "milliseconds, at least 1",
        group_streams_min_session_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "group.streams.num.standby.replicas",
        "a count, 0 or more",
        group_streams_num_standby_replicas,
        |t| number(t, 0, i32::MAX as u32),
        u32::to_string
    ),
    property!(
        "group.streams.session.timeout.ms",
        "milliseconds, at least 1",
        group_streams_session_timeout,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "inter.broker.listener.name",
        "the name of a listener, or nothing",
        inter_broker_listener,
        |t| optional(t, ListenerName::new),
        show_optional
    ),
    property!(
        "listener.security.protocol.map",
        PROTOCOLS,
        listener_protocols,
        |t: &str| t.parse().ok(),
        ListenerProtocols::to_string
    ),
    property!(
        "listeners",
        LISTENERS,
        listeners,
        |t: &str| t.trim().parse().ok(),
        Listeners::to_string
    ),
    property!(
        "log.flush.interval.messages",
        "a count, at least 1",
        log_flush_interval_messages,
        |t| number(t, 1, i64::MAX),
        i64::to_string
    ),
    property!(
        "log.flush.scheduler.interval.ms",
        "milliseconds, at least 1",
        log_flush_scheduler_interval,
        |t| number(t, 1, i64::MAX as u64).map(Duration::from_millis),
        MILLIS
    ),
    property!(
        "log.message.timestamp.type",
        "CreateTime or LogAppendTime",
        log_message_timestamp_type,
        timestamp_type,
        timestamp_type_name
    ),
    property!(
        "log.cleaner.backoff.ms",
        "milliseconds, at least 1",
        log_cleaner_backoff,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "log.retention.bytes",
        "bytes, or -1 for no limit",
        log_retention_bytes,
        |t| number(t, i64::MIN, i64::MAX),
        i64::to_string
    ),
    property!(
        "log.retention.hours",
        UNLIMITED,
        log_retention.hours,
        |t| number(t, i32::MIN, i32::MAX).filter(|hours| *hours != 0),
        i32::to_string
    ),
    property!(
        "log.retention.minutes",
        UNLIMITED,
        log_retention.minutes,
        |t| optional(t, |t| number(t, i32::MIN, i32::MAX).filter(|minutes| *minutes != 0)),
        show_optional
    ),
    property!(
        "log.retention.ms",
        UNLIMITED,
        log_retention.ms,
        |t| optional(t, |t| number(t, i64::MIN, i64::MAX).filter(|ms| *ms != 0)),
        show_optional
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
        "offsets.retention.check.interval.ms",
        "milliseconds, at least 1",
        offsets_retention_check_interval,
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
        "log.retention.check.interval.ms",
        "milliseconds, at least 1",
        log_retention_check_interval,
        |t| millis(t, 1),
        MILLIS
    ),
    property!(
        "producer.id.expiration.ms",
        "milliseconds, at least 1",
        producer_id_expiration,
        |t| millis(t, 1),
        MILLIS
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
        "sasl.enabled.mechanisms",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, or some of them, separated by commas",
        security.mechanisms,
        |t| each_once(t, Mechanism::by_name),
        |mechanisms: &Vec<Mechanism>| {
            mechanisms.iter().map(|mechanism| mechanism.name()).collect::<Vec<_>>().join(",")
        }
    ),
    property!(
        "sasl.oauthbearer.allow.unsecured.tokens",
        "true or false",
        security.allow_unsecured_tokens,
        boolean,
        bool::to_string
    ),
    property!(
        "socket.request.max.bytes",
        "bytes, 1 to 104857600",
        socket_request_max_bytes,
        |t| number(t, 1, 100 << 20),
        usize::to_string
    ),
    property!(
        "ssl.client.auth",
        "none, requested or required",
        security.client_auth,
        |t: &str| ClientAuth::by_name(t.trim()),
        |auth: &ClientAuth| auth.name().to_owned()
    ),
    property!(
        KEY_PASSWORD,
        "a password, or nothing",
        security.key_password,
        |t: &str| Some((!t.is_empty()).then(|| Password::new(t))),
        |password: &Option<Password>| {
            password.as_ref().map_or_else(String::new, |_| Password::HIDDEN.to_owned())
        }
    ),
    property!(
        "ssl.keystore.location",
        "a PEM file with a private key and its certificates, or nothing",
        security.key_store,
        path,
        show_path
    ),
    property!(
        "ssl.truststore.location",
        "a PEM file with certificates, or nothing",
        security.trust_store,
        path,
        show_path
    ),
    property!(
        "super.users",
        "principals such as User:admin, separated by semicolons",
        security.super_users,
        principals,
        |users: &Vec<String>| users.join(";")
    ),
    property!(
        "telemetry.max.bytes",
        "bytes, at least 1",
        telemetry_max_bytes,
        |t| number(t, 1, i32::MAX as usize),
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
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "milliseconds, at least 1",
        transactional_id_removal_interval,
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
    property!(
        "transactional.id.expiration.ms",
        "milliseconds, at least 1",
        transactional_id_expiration,
        |t| millis(t, 1),
        MILLIS
    ),
];

/// The only property that is never shown.
const KEY_PASSWORD: &str = "ssl.key.password";

const STANDARD_AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

/// Parses a list of names: at least one, without duplicates.
fn each_once<T: PartialEq>(text: &str, by_name: fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut found = Vec::new();
    for name in text.split(',') {
        let one = by_name(name.trim())?;
        if found.contains(&one) {
            return None;
        }
        found.push(one);
    }
    Some(found)
}

/// An empty text means no value.
fn optional<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    match text.trim() {
        "" => Some(None),
        text => parse(text).map(Some),
    }
}

fn show_optional<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(String::new, T::to_string)
}

fn path(text: &str) -> Option<Option<PathBuf>> {
    optional(text, |text| Some(text.into()))
}

fn show_path(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| path.display().to_string())
}

/// Principals are separated by semicolons, because a name may contain commas.
fn principals(text: &str) -> Option<Vec<String>> {
    let names = text.split(';').map(str::trim).filter(|name| !name.is_empty());
    let user = |name: &str| name.strip_prefix("User:").is_some_and(|name| !name.is_empty());
    names.map(|name| user(name).then(|| name.to_owned())).collect()
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

/// Returns whether a property is a field of [`ClusterConfig`].
pub(super) fn is_field(name: &str) -> bool {
    PROPERTIES.iter().any(|property| property.name == name)
}

impl ClusterConfig {
    /// Sets one value by the name Kafka's brokers give it, for example `min.insync.replicas` to `2`.
    ///
    /// # Errors
    /// An unknown name (with the nearest known one), a setting of Apache Kafka that would have no
    /// effect here, or a value out of the setting's range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let Some(property) = PROPERTIES.iter().find(|p| p.name == name.trim()) else {
            let topics = self.topic_defaults.set(name.trim(), value);
            let refused = || Err(foreign::refusal(name, self.properties().map(|(name, _)| name)));
            return topics.map_or_else(refused, |set| set.map_err(ConfigError::Invalid));
        };
        (property.set)(self, value).ok_or_else(|| ConfigError::Value {
            name: property.name,
            value: value.into(),
            expected: property.expected,
        })
    }

    /// Checks that every duration is within its property's range, including those assigned to a
    /// field. Deadlines too far ahead overflow the clock.
    pub(super) fn validate_times(&self) -> Result<(), ConfigError> {
        for property in PROPERTIES.iter().filter(|p| p.name.ends_with(".ms")) {
            let value = (property.get)(self);
            let is_long = value.parse::<u128>().is_ok_and(|ms| ms > i32::MAX as u128);
            if is_long && (property.set)(&mut self.clone(), &value).is_none() {
                let (name, expected) = (property.name, property.expected);
                return Err(ConfigError::Value { name, value, expected });
            }
        }
        Ok(())
    }

    /// Returns whether a property's value must not be shown.
    pub(crate) fn is_sensitive(name: &str) -> bool {
        name == KEY_PASSWORD
    }

    /// Returns the value of a property.
    pub(crate) fn property(&self, name: &str) -> Option<String> {
        match PROPERTIES.iter().find(|property| property.name == name) {
            Some(property) => Some((property.get)(self)),
            None => self.topic_defaults.get(name).map(str::to_owned),
        }
    }

    /// Returns every property and its value, by name; `[hidden]` replaces a password.
    pub fn properties(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let fields = PROPERTIES.iter().map(|p| (p.name, (p.get)(self)));
        fields.chain(self.topic_defaults.values()).collect::<BTreeMap<_, _>>().into_iter()
    }
}

/// Returns the name with the smallest edit distance, if a typing error could explain it.
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
