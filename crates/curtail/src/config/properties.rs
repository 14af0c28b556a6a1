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
mod range;
mod security;

use std::{path::Path, str::FromStr, time::Duration};

use curtail_wire::compression::{Codec, Compression};

use self::range::{BUFFER_BYTES, INT_BYTES, INT_MILLIS, LONG_BYTES, LONG_MILLIS, bound};
use super::{
    AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig,
    providers::ConfigProviders,
    redact,
    values::{
        acks, assignors, boolean, buffer_size, buffered_partitions, dns_lookup, group_protocol,
        idle_millis, int_millis, isolation, leader_discovery, long_millis, number, offset_reset,
        partitioner_load, recovery, servers, show_acks, show_assignors, show_buffer,
        show_buffered_partitions, show_dns_lookup, show_group_protocol, show_idle_millis,
        show_isolation, show_leader_discovery, show_millis, show_offset_reset,
        show_partitioner_load, show_recovery, show_seconds, text,
    },
};
use crate::{error::ConfigError, producer::partitioner};

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

/// One property: name, accepted values, setter and getter.
struct Property<C: 'static> {
    name: &'static str,
    expected: &'static str,
    set: fn(&mut C, &str) -> Option<()>,
    get: fn(&C) -> String,
}

impl<C: Clone> Property<C> {
    fn set(&self, config: &mut C, value: &str) -> Result<(), ConfigError> {
        if (self.set)(config, value).is_some() {
            return Ok(());
        }
        // For a list, names the unusable entries.
        let bad = |entry: &&str| (self.set)(&mut config.clone(), entry).is_none();
        let entries = value.split(',').map(str::trim);
        let bad: Vec<_> = entries.filter(|_| value.contains(',')).filter(bad).collect();
        let (expected, value) = (self.expected, redact::value(self.name, value));
        let reason = match bad.as_slice() {
            [_, ..] if value != redact::HIDDEN => {
                format!("'{}' cannot be used; expected {expected}", bad.join("', '"))
            }
            _ => format!("expected {}", bound(expected, &value)),
        };
        Err(ConfigError::Invalid { name: self.name, value, reason })
    }

    /// Refuses a number that [`set`] would refuse. Only numbers have ranges.
    fn check(&self, config: &C) -> Result<(), ConfigError> {
        let value = (self.get)(config);
        let is_number = value.parse::<f64>().is_ok();
        if is_number { self.set(&mut config.clone(), &value) } else { Ok(()) }
    }
}

/// A client's settings and their tables.
trait Settings: Clone + 'static {
    /// The client's name in messages.
    const KIND: Kind;
    /// Properties of this client only.
    const TABLE: &'static [Property<Self>];
    /// Common properties that this client lacks.
    const WITHOUT: &'static [&'static str];
    fn common(&self) -> &CommonConfig;
    fn common_mut(&mut self) -> &mut CommonConfig;
    /// Updates settings that follow from others.
    fn settle(&mut self);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Producer,
    Consumer,
    Admin,
}

impl Kind {
    fn plural(self) -> &'static str {
        match self {
            Self::Producer => "producers",
            Self::Consumer => "consumers",
            Self::Admin => "Admin",
        }
    }
}

const BOOLEAN: &str = "true or false";

macro_rules! property {
    ($name:literal, $expected:expr, $field:ident, $parse:expr, $show:expr) => {
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

/// Greatest keepalive times of Linux, in seconds.
const KEEPALIVE_MAX: u64 = 32_767;

static COMMON: &[Property<CommonConfig>] = &[
    property!(
        "bootstrap.servers",
        "host:port, separated by commas, with ports of 1 to 65535",
        bootstrap_servers,
        servers,
        |s: &Vec<String>| s.join(",")
    ),
    property!(
        "client.dns.lookup",
        "use_all_dns_ips or resolve_canonical_bootstrap_servers_only",
        dns_lookup,
        dns_lookup,
        show_dns_lookup
    ),
    property!("client.id", "a text", client_id, text, String::clone),
    property!("client.rack", "a text", client_rack, text, String::clone),
    property!(
        "connections.max.idle.ms",
        "milliseconds up to 9223372036854775807, or a negative number for no limit",
        connections_max_idle,
        idle_millis,
        show_idle_millis
    ),
    property!("curtail.io.thread", BOOLEAN, io_thread, boolean, bool::to_string),
    property!("curtail.phase.stamps", BOOLEAN, phase_stamps, boolean, bool::to_string),
    property!(
        "curtail.tcp.keepalive.idle.seconds",
        "seconds up to 32767, 0 for no keepalive",
        tcp_keepalive_idle,
        |t| number(t, 0, KEEPALIVE_MAX).map(Duration::from_secs),
        show_seconds
    ),
    property!(
        "curtail.tcp.keepalive.interval.seconds",
        "seconds, 1 to 32767",
        tcp_keepalive_interval,
        |t| number(t, 1, KEEPALIVE_MAX).map(Duration::from_secs),
        show_seconds
    ),
    property!("curtail.tcp.user.timeout.ms", INT_MILLIS, tcp_user_timeout, int_millis, show_millis),
    Property {
        name: "default.api.timeout.ms",
        expected: INT_MILLIS,
        set: |config, text| {
            config.default_api_timeout = int_millis(text)?;
            config.given.default_api_timeout = true;
            Some(())
        },
        get: |config| show_millis(&config.default_api_timeout),
    },
    property!("metadata.max.age.ms", LONG_MILLIS, metadata_max_age, long_millis, show_millis),
    property!(
        "metadata.recovery.rebootstrap.trigger.ms",
        LONG_MILLIS,
        metadata_rebootstrap_trigger,
        long_millis,
        show_millis
    ),
    property!(
        "metadata.recovery.strategy",
        "rebootstrap or none",
        metadata_recovery,
        recovery,
        show_recovery
    ),
    property!("receive.buffer.bytes", BUFFER_BYTES, receive_buffer, buffer_size, show_buffer),
    property!(
        "reconnect.backoff.max.ms",
        LONG_MILLIS,
        reconnect_backoff_max,
        long_millis,
        show_millis
    ),
    property!("reconnect.backoff.ms", LONG_MILLIS, reconnect_backoff, long_millis, show_millis),
    property!("request.timeout.ms", INT_MILLIS, request_timeout, int_millis, show_millis),
    property!("retry.backoff.max.ms", LONG_MILLIS, retry_backoff_max, long_millis, show_millis),
    property!("retry.backoff.ms", LONG_MILLIS, retry_backoff, long_millis, show_millis),
    property!("send.buffer.bytes", BUFFER_BYTES, send_buffer, buffer_size, show_buffer),
    property!(
        "socket.connection.setup.timeout.ms",
        LONG_MILLIS,
        connection_setup_timeout,
        long_millis,
        show_millis
    ),
];

macro_rules! level {
    ($name:literal, $codec:expr, $expected:literal) => {
        Property {
            name: $name,
            expected: $expected,
            set: |config, text| {
                let level = number(text, i32::MIN, i32::MAX)?;
                Compression::new($codec, Some(level)).ok()?;
                config.common.given.compression_levels[usize::from($codec.id())] = Some(level);
                if config.compression.codec == $codec {
                    config.compression.level = Some(level);
                }
                Some(())
            },
            get: |config| {
                let given = config.common.given.compression_levels[usize::from($codec.id())];
                let set = Some(config.compression).filter(|c| c.codec == $codec);
                let level = set.and_then(|c| c.level).or(given).or($codec.default_level());
                level.unwrap_or_default().to_string()
            },
        }
    };
}

static PRODUCER: &[Property<ProducerConfig>] = &[
    property!("acks", "all, -1, 0 or 1", acks, acks, show_acks),
    property!(
        "batch.max.size",
        INT_BYTES,
        batch_max_size,
        |t| number(t, 0, i32::MAX as usize),
        usize::to_string
    ),
    property!(
        "batch.size",
        INT_BYTES,
        batch_size,
        |t| number(t, 0, i32::MAX as usize),
        usize::to_string
    ),
    property!(
        "buffer.memory",
        LONG_BYTES,
        buffer_memory,
        |t| number(t, 0, i64::MAX as usize),
        usize::to_string
    ),
    property!(
        "curtail.broker.memory.percent",
        "a percentage up to 1000000, 0 for no bound",
        broker_memory_percent,
        |t| number(t, 0, 1_000_000),
        u32::to_string
    ),
    property!("curtail.latency.target.ms", INT_MILLIS, latency_target, int_millis, show_millis),
    property!(
        "curtail.route.around.trouble",
        BOOLEAN,
        route_around_trouble,
        boolean,
        bool::to_string
    ),
    property!(
        "curtail.prefer.proven.partitions",
        BOOLEAN,
        prefer_proven_partitions,
        boolean,
        bool::to_string
    ),
    property!(
        "curtail.move.refused.batches",
        BOOLEAN,
        move_refused_batches,
        boolean,
        bool::to_string
    ),
    property!(
        "curtail.separate.unproven.partitions",
        BOOLEAN,
        separate_unproven_partitions,
        boolean,
        bool::to_string
    ),
    level!("compression.gzip.level", Codec::Gzip, "a level from 1 to 9, or -1"),
    level!("compression.lz4.level", Codec::Lz4, "a level from 1 to 17"),
    Property {
        name: "compression.type",
        expected: "none, gzip, snappy, lz4 or zstd",
        set: |config, text| {
            let codec = Codec::from_str(text).ok()?;
            let level = config.common.given.compression_levels[usize::from(codec.id())];
            config.compression = Compression { codec, level };
            Some(())
        },
        get: |config| config.compression.codec.name().to_owned(),
    },
    level!("compression.zstd.level", Codec::Zstd, "a level from -131072 to 22"),
    property!(
        "curtail.leader.discovery",
        "hint, refresh or refresh-and-back-off",
        leader_discovery,
        leader_discovery,
        show_leader_discovery
    ),
    property!(
        "curtail.partitioner.load",
        "wait or queued-batches",
        partitioner_load,
        partitioner_load,
        show_partitioner_load
    ),
    property!("curtail.suspicion.enable", BOOLEAN, suspicion, boolean, bool::to_string),
    property!("curtail.suspicion.max.ms", INT_MILLIS, suspicion_max, int_millis, show_millis),
    property!("curtail.suspicion.min.ms", INT_MILLIS, suspicion_min, int_millis, show_millis),
    property!(
        "curtail.suspicion.multiple",
        "a count, 1 to 4294967295",
        suspicion_multiple,
        |t| number(t, 1, u32::MAX),
        u32::to_string
    ),
    Property {
        name: "delivery.timeout.ms",
        expected: INT_MILLIS,
        set: |config, text| {
            config.delivery_timeout = int_millis(text)?;
            config.common.given.delivery_timeout = true;
            Some(())
        },
        get: |config| show_millis(&config.delivery_timeout),
    },
    Property {
        name: "enable.idempotence",
        expected: BOOLEAN,
        set: |config, text| {
            config.idempotence = boolean(text)?;
            config.common.given.idempotence = true;
            Some(())
        },
        get: |config| config.idempotence.to_string(),
    },
    property!("linger.ms", LONG_MILLIS, linger, long_millis, show_millis),
    property!("max.block.ms", LONG_MILLIS, max_block, long_millis, show_millis),
    property!(
        "max.in.flight.requests.per.connection",
        "a count, 1 to 2147483647",
        max_in_flight,
        |t| number(t, 1, i32::MAX as usize),
        usize::to_string
    ),
    property!(
        "max.request.size",
        INT_BYTES,
        max_request_size,
        |t| number(t, 0, i32::MAX as usize),
        usize::to_string
    ),
    property!(
        "metadata.max.idle.ms",
        "milliseconds, 5000 to 9223372036854775807",
        metadata_max_idle,
        |t| long_millis(t).filter(|idle| *idle >= Duration::from_secs(5)),
        show_millis
    ),
    property!(
        "partitioner.adaptive.partitioning.enable",
        BOOLEAN,
        partitioner_adaptive,
        boolean,
        bool::to_string
    ),
    property!(
        "partitioner.availability.timeout.ms",
        LONG_MILLIS,
        partitioner_availability_timeout,
        long_millis,
        show_millis
    ),
    property!(
        "partitioner.ignore.keys",
        BOOLEAN,
        partitioner_ignore_keys,
        boolean,
        bool::to_string
    ),
    Property {
        name: "partitioner.class",
        expected: partitioner::CLASSES,
        set: |config, text| {
            config.partitioner = partitioner::of_class(text)?;
            Some(())
        },
        get: |config| config.partitioner.as_ref().map_or("", |p| p.class()).to_owned(),
    },
    property!("partitioner.rack.aware", BOOLEAN, partitioner_rack_aware, boolean, bool::to_string),
    property!(
        "retries",
        "a count, 0 to 2147483647",
        retries,
        |t| number(t, 0, i32::MAX as u32),
        u32::to_string
    ),
    property!("transaction.timeout.ms", INT_MILLIS, transaction_timeout, int_millis, show_millis),
    Property {
        name: "transactional.id",
        expected: NAME,
        set: |config, text| set_name(&mut config.transactional_id, text),
        get: |config| config.transactional_id.clone().unwrap_or_default(),
    },
];

static CONSUMER: &[Property<ConsumerConfig>] = &[
    property!(
        "allow.auto.create.topics",
        BOOLEAN,
        allow_auto_create_topics,
        boolean,
        bool::to_string
    ),
    property!(
        "auto.offset.reset",
        "earliest, latest, none or by_duration: with a duration such as PT1H",
        auto_offset_reset,
        offset_reset,
        show_offset_reset
    ),
    property!("auto.commit.interval.ms", INT_MILLIS, auto_commit_interval, int_millis, show_millis),
    property!("check.crcs", BOOLEAN, check_crcs, boolean, bool::to_string),
    property!(
        "curtail.buffered.partitions",
        "credit, omit, skip-broker or skip-all",
        buffered_partitions,
        buffered_partitions,
        show_buffered_partitions
    ),
    property!(
        "curtail.decompressed.batch.max.bytes",
        "bytes, 1 to 9223372036854775807",
        max_decompressed_batch,
        |t| number(t, 1, i64::MAX as usize),
        usize::to_string
    ),
    property!(
        "curtail.prefetch.bytes",
        "bytes, 1 to 9223372036854775807",
        prefetch_bytes,
        |t| number(t, 1, i64::MAX as usize),
        usize::to_string
    ),
    Property {
        name: "enable.auto.commit",
        expected: BOOLEAN,
        set: |config, text| {
            config.enable_auto_commit = boolean(text)?;
            config.common.given.auto_commit = true;
            Some(())
        },
        get: |config| config.enable_auto_commit.to_string(),
    },
    property!(
        "exclude.internal.topics",
        BOOLEAN,
        exclude_internal_topics,
        boolean,
        bool::to_string
    ),
    property!(
        "fetch.max.bytes",
        INT_BYTES,
        fetch_max_bytes,
        |t| number(t, 0, i32::MAX),
        i32::to_string
    ),
    property!("fetch.max.wait.ms", INT_MILLIS, fetch_max_wait, int_millis, show_millis),
    property!(
        "fetch.min.bytes",
        INT_BYTES,
        fetch_min_bytes,
        |t| number(t, 0, i32::MAX),
        i32::to_string
    ),
    Property {
        name: "group.id",
        expected: NAME,
        set: |config, text| set_name(&mut config.group_id, text),
        get: |config| config.group_id.clone().unwrap_or_default(),
    },
    Property {
        name: "group.instance.id",
        expected: NAME,
        set: |config, text| set_name(&mut config.group_instance_id, text),
        get: |config| config.group_instance_id.clone().unwrap_or_default(),
    },
    property!(
        "group.protocol",
        "classic or consumer",
        group_protocol,
        group_protocol,
        show_group_protocol
    ),
    Property {
        name: "group.remote.assignor",
        expected: NAME,
        set: |config, text| set_name(&mut config.group_remote_assignor, text),
        get: |config| config.group_remote_assignor.clone().unwrap_or_default(),
    },
    Property {
        name: "heartbeat.interval.ms",
        expected: INT_MILLIS,
        set: |config, text| {
            config.heartbeat_interval = int_millis(text)?;
            config.common.given.heartbeat_interval = true;
            Some(())
        },
        get: |config| show_millis(&config.heartbeat_interval),
    },
    property!(
        "isolation.level",
        "read_uncommitted or read_committed",
        isolation_level,
        isolation,
        show_isolation
    ),
    property!(
        "max.partition.fetch.bytes",
        INT_BYTES,
        max_partition_fetch_bytes,
        |t| number(t, 0, i32::MAX),
        i32::to_string
    ),
    property!(
        "max.poll.interval.ms",
        "milliseconds, 1 to 2147483647",
        max_poll_interval,
        |t| int_millis(t).filter(|interval| !interval.is_zero()),
        show_millis
    ),
    property!(
        "max.poll.records",
        "a count, 1 to 2147483647",
        max_poll_records,
        |t| number(t, 1, i32::MAX as usize),
        usize::to_string
    ),
    Property {
        name: "partition.assignment.strategy",
        expected: "range, roundrobin, sticky, cooperative-sticky or Java's classes of these, separated by commas",
        set: |config, text| {
            config.partition_assignment_strategy = assignors(text)?;
            config.common.given.assignment_strategy = true;
            Some(())
        },
        get: |config| show_assignors(&config.partition_assignment_strategy),
    },
    Property {
        name: "session.timeout.ms",
        expected: INT_MILLIS,
        set: |config, text| {
            config.session_timeout = int_millis(text)?;
            config.common.given.session_timeout = true;
            Some(())
        },
        get: |config| show_millis(&config.session_timeout),
    },
];

const NAME: &str = "a text that is not empty";

fn set_name(name: &mut Option<String>, text: &str) -> Option<()> {
    *name = Some(text.to_owned()).filter(|text| !text.is_empty());
    name.as_ref().map(drop)
}

impl Settings for ProducerConfig {
    const KIND: Kind = Kind::Producer;
    const TABLE: &'static [Property<Self>] = PRODUCER;
    const WITHOUT: &'static [&'static str] = &["default.api.timeout.ms"];

    fn common(&self) -> &CommonConfig {
        &self.common
    }

    fn common_mut(&mut self) -> &mut CommonConfig {
        &mut self.common
    }

    fn settle(&mut self) {
        Self::settle(self);
    }
}

impl Settings for ConsumerConfig {
    const KIND: Kind = Kind::Consumer;
    const TABLE: &'static [Property<Self>] = CONSUMER;
    const WITHOUT: &'static [&'static str] = &[];

    fn common(&self) -> &CommonConfig {
        &self.common
    }

    fn common_mut(&mut self) -> &mut CommonConfig {
        &mut self.common
    }

    fn settle(&mut self) {}
}

impl Settings for AdminConfig {
    const KIND: Kind = Kind::Admin;
    const TABLE: &'static [Property<Self>] = &[];
    const WITHOUT: &'static [&'static str] = &["client.rack", "curtail.phase.stamps"];

    fn common(&self) -> &CommonConfig {
        &self.common
    }

    fn common_mut(&mut self) -> &mut CommonConfig {
        &mut self.common
    }

    fn settle(&mut self) {
        Self::settle(self);
    }
}

/// The properties common to all clients.
fn common() -> impl Iterator<Item = &'static Property<CommonConfig>> {
    COMMON.iter().chain(security::table())
}

/// Every property name that `S` supports.
fn supported<S: Settings>() -> impl Iterator<Item = &'static str> {
    let common = common().map(|p| p.name).filter(|n| !S::WITHOUT.contains(n));
    common.chain(S::TABLE.iter().map(|p| p.name))
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
            let of_client = S::TABLE.iter().find(|p| p.name == name).map(|p| p.expected);
            let expected =
                of_client.or_else(|| common().find(|p| p.name == name).map(|p| p.expected));
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
    if let Some(property) = S::TABLE.iter().find(|p| p.name == name) {
        property.set(config, value)?;
        config.settle();
        return Ok(());
    }
    let common = common().find(|p| p.name == name && !S::WITHOUT.contains(&p.name));
    if let Some(property) = common {
        property.set(config.common_mut(), value)?;
        config.settle();
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

/// Checks every value against its property's parser, which defines the range. Covers values from builder methods and
/// from assignments to fields.
fn check_ranges<S: Settings>(config: &S) -> Result<(), ConfigError> {
    let common = common().filter(|property| !S::WITHOUT.contains(&property.name));
    for property in common {
        property.check(config.common())?;
    }
    S::TABLE.iter().try_for_each(|property| property.check(config))
}

fn show<S: Settings>(config: &S) -> Vec<(&'static str, String)> {
    let common = common().filter(|p| !S::WITHOUT.contains(&p.name));
    let mut all: Vec<_> = common.map(|p| (p.name, (p.get)(config.common()))).collect();
    all.extend(S::TABLE.iter().map(|p| (p.name, (p.get)(config))));
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
