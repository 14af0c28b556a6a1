//! Settings of a producer.

use std::{str::FromStr, sync::Arc, time::Duration};

use curtail_wire::compression::{Codec, Compression};

#[cfg(feature = "arms")]
use super::forms::LEADER_DISCOVERY;
use super::{
    CommonConfig, INT_MAX_MILLIS, contradiction,
    forms::{
        ACKS, BOOLEAN, COUNT, IDLE_METADATA, INT_BYTES, INT_MILLIS, LONG_BYTES, LONG_MILLIS,
        MULTIPLE, NAME, PARTITIONER, PARTITIONER_LOAD, PERCENT, POSITIVE_COUNT, number,
    },
    table::{Kind, Property, Settings, property, settings},
};
use crate::{
    error::ConfigError,
    producer::{Interceptors, Partitioner, ProducerInterceptor},
};

/// Largest number of in-flight requests with which a broker still detects duplicates: it keeps a producer's last five
/// batches.
const MAX_IN_FLIGHT_IDEMPOTENT: usize = 5;

/// The default of `delivery.timeout.ms`, unless `linger.ms` and `request.timeout.ms` need more.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(120);

/// `acks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// 0: no acknowledgement.
    None,
    /// 1: the leader has written the batch.
    Leader,
    /// all (-1): every in-sync replica has written the batch.
    All,
}

impl Acks {
    pub(crate) fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// How a producer detects a leader change. A new leader counts only with a newer epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "arms"),
    expect(dead_code, unreachable_pub, reason = "arms of the laboratory")
)]
pub enum LeaderDiscovery {
    /// From the response that refuses a batch, which names the new leader (KIP-951), or else from metadata. The batch
    /// goes to the new leader immediately.
    #[default]
    Hint,
    /// From metadata alone. The batch goes to the new leader as soon as metadata names it, an alternative that
    /// KIP-951 rejected.
    Refresh,
    /// From metadata alone, and the batch still waits for `retry.backoff.ms`: clients before KIP-951.
    RefreshAndBackOff,
}

/// How the adaptive partitioner tells which partitions to prefer for keyless records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartitionerLoad {
    /// The partitions of the brokers at which a record waits least for its acknowledgement. A slow broker gets nothing
    /// while another one is fast.
    #[default]
    Wait,
    /// The partitions with the fewest queued batches, as in the Java client (KIP-794). A slow broker keeps its share
    /// while its queue does not grow.
    QueuedBatches,
}

settings! {
    /// Settings of a [`crate::Producer`].
    ProducerConfig, PRODUCER: {
        /// `acks`: the replicas that must have written a batch. Any value but `all` disables idempotence, unless
        /// `enable.idempotence` was set.
        plain acks, get_acks: Acks = Acks::All => "acks", ACKS;
        /// `batch.max.size`: the size in bytes up to which a batch grows while earlier batches of its partition or
        /// broker delay it. It never delays a record. Values below `batch.size` have no effect. A setting of
        /// Curtail, after KIP-782. Topics with a smaller `max.message.bytes` need a smaller value.
        plain batch_max_size, get_batch_max_size: usize = 65_536 => "batch.max.size", INT_BYTES;
        /// `batch.size`: the size in bytes at which a batch is sent before `linger.ms` ends.
        plain batch_size, get_batch_size: usize = 16_384 => "batch.size", INT_BYTES;
        /// `buffer.memory`: bytes for unacknowledged records of all partitions.
        plain buffer_memory, get_buffer_memory: usize = 33_554_432 => "buffer.memory", LONG_BYTES;
        /// `curtail.broker.memory.percent`: limit on `buffer.memory` for one broker's records while other brokers are in
        /// use, in percent of the free memory. With 100, a broker that does not acknowledge holds at most half of the
        /// memory. 0 for no limit (decision 0064).
        plain broker_memory_percent, get_broker_memory_percent: u32 = 100 => "curtail.broker.memory.percent", PERCENT;
        /// `curtail.latency.target.ms`: how long an acknowledgement should take. A send waits while more record bytes are
        /// outstanding for its broker than the broker takes in this time, or in 16 round trips if these take longer. No
        /// bound with `acks=0`. Zero for no such bound, as in the Java client (decision 0098).
        plain latency_target, get_latency_target: Duration = Duration::from_millis(10)
            => "curtail.latency.target.ms", INT_MILLIS;
        /// `curtail.leader.discovery`: how the producer finds a new leader: `hint` (from the response that refuses the batch,
        /// KIP-951, or else from metadata), `refresh` (from metadata alone), or `refresh-and-back-off` (also waits for
        /// `retry.backoff.ms`).
        #[cfg(feature = "arms")]
        plain leader_discovery: LeaderDiscovery = LeaderDiscovery::Hint
            => "curtail.leader.discovery", LEADER_DISCOVERY;
        /// `curtail.move.refused.batches`: whether batches that no broker has written leave a partition that refuses them, if
        /// their records are bound to no partition (decision 0107).
        #[cfg(feature = "arms")]
        plain move_refused_batches: bool = true => "curtail.move.refused.batches", BOOLEAN;
        /// `curtail.partitioner.load`: what adaptive partitioning of keyless records goes by: `wait` (how long a record waits
        /// for its acknowledgement; a slow broker gets nothing while another one is fast) or `queued-batches` (as in the
        /// Java client; a slow broker keeps its share while its queue does not grow). With `queued-batches`,
        /// records do not prefer partitions whose leader has acknowledged a batch (decision 0013).
        plain partitioner_load, get_partitioner_load: PartitionerLoad = PartitionerLoad::Wait
            => "curtail.partitioner.load", PARTITIONER_LOAD;
        /// `curtail.prefer.proven.partitions`: whether keyless records prefer partitions whose current leader has
        /// acknowledged a batch. While a broker has no such partition, one of its partitions takes all its keyless records
        /// (decision 0053).
        #[cfg(feature = "arms")]
        plain prefer_proven_partitions: bool = true
            => "curtail.prefer.proven.partitions", BOOLEAN;
        /// `curtail.route.around.trouble`: whether keyless records move from partitions that cannot acknowledge to others
        /// (decision 0061). In the Java client they wait.
        plain route_around_trouble, get_route_around_trouble: bool = true => "curtail.route.around.trouble", BOOLEAN;
        /// `curtail.separate.unproven.partitions`: whether keyless records for a new leader have a separate connection until
        /// it has acknowledged a batch. Its followers may take a second to turn to it, and Kafka serves one request of a
        /// connection at a time. With `acks=all` only (decision 0104).
        #[cfg(feature = "arms")]
        plain separate_unproven_partitions: bool = true
            => "curtail.separate.unproven.partitions", BOOLEAN;
        /// `curtail.suspicion.enable`: whether an unusually late response makes its broker suspect. The leaders are
        /// then looked up through another broker, and batches follow a leader that has moved. The Java client waits for
        /// `request.timeout.ms` (decision 0014).
        plain suspicion, get_suspicion: bool = true => "curtail.suspicion.enable", BOOLEAN;
        /// `curtail.suspicion.max.ms`: the time after which every response is late.
        plain suspicion_max, get_suspicion_max: Duration = Duration::from_secs(2)
            => "curtail.suspicion.max.ms", INT_MILLIS;
        /// `curtail.suspicion.min.ms`: the time before which no response is late.
        plain suspicion_min, get_suspicion_min: Duration = Duration::from_millis(200)
            => "curtail.suspicion.min.ms", INT_MILLIS;
        /// `curtail.suspicion.multiple`: the multiple of the usual response time after which a response is late, 1 or more.
        plain suspicion_multiple, get_suspicion_multiple: u32 = 4 => "curtail.suspicion.multiple", MULTIPLE;
        /// `delivery.timeout.ms`: the time after its send in which a record may still be retried and acknowledged.
        plain delivery_timeout, get_delivery_timeout: Duration = DELIVERY_TIMEOUT
            => "delivery.timeout.ms", INT_MILLIS;
        /// `enable.idempotence`: each record is written once and in order, however often a request is retried.
        plain idempotence, get_idempotence: bool = true => "enable.idempotence", BOOLEAN;
        /// `linger.ms`: the time that a batch waits for more records. Zero sends immediately.
        plain linger, get_linger: Duration = Duration::from_millis(5) => "linger.ms", LONG_MILLIS;
        /// `max.block.ms`: the longest wait of a send for metadata, for memory and for room in a broker's window.
        plain max_block, get_max_block: Duration = Duration::from_secs(60) => "max.block.ms", LONG_MILLIS;
        /// `max.in.flight.requests.per.connection`: 1 or more; at most 5 with idempotence.
        plain max_in_flight, get_max_in_flight: usize = 5 => "max.in.flight.requests.per.connection", POSITIVE_COUNT;
        /// `max.request.size`: the largest record and the largest request, in bytes.
        plain max_request_size, get_max_request_size: usize = 1_048_576 => "max.request.size", INT_BYTES;
        /// `metadata.max.idle.ms`: the time after its last record for which a topic's metadata is refreshed.
        plain metadata_max_idle, get_metadata_max_idle: Duration = Duration::from_secs(300)
            => "metadata.max.idle.ms", IDLE_METADATA;
        /// `partitioner.adaptive.partitioning.enable`: whether keyless records prefer the brokers that respond fastest, or are
        /// distributed evenly (KIP-794).
        plain partitioner_adaptive, get_partitioner_adaptive: bool = true
            => "partitioner.adaptive.partitioning.enable", BOOLEAN;
        /// `partitioner.availability.timeout.ms`: keyless records avoid a broker whose oldest request has waited this long for
        /// its response. Zero disables the limit.
        plain partitioner_availability_timeout, get_partitioner_availability_timeout: Duration = Duration::ZERO
            => "partitioner.availability.timeout.ms", LONG_MILLIS;
        /// `partitioner.class`: the application's partitioner, or one of the Java client's by its class.
        none partitioner: Option<Arc<dyn Partitioner>> = None => "partitioner.class", PARTITIONER;
        /// `partitioner.ignore.keys`: whether records with keys are distributed like keyless ones.
        plain partitioner_ignore_keys, get_partitioner_ignore_keys: bool = false => "partitioner.ignore.keys", BOOLEAN;
        /// `partitioner.rack.aware`: whether keyless records go to leaders in `client.rack` (KIP-1123).
        plain partitioner_rack_aware, get_partitioner_rack_aware: bool = false => "partitioner.rack.aware", BOOLEAN;
        /// `retries`: how often a request is sent again. Zero disables idempotence, unless `enable.idempotence` was
        /// set. Prefer to limit retries by `delivery.timeout.ms`.
        plain retries, get_retries: u32 = i32::MAX as u32 => "retries", COUNT;
        /// `transaction.timeout.ms`: the time after which the coordinator aborts an open transaction. The brokers
        /// refuse more than their `transaction.max.timeout.ms`.
        plain transaction_timeout, get_transaction_timeout: Duration = Duration::from_secs(60)
            => "transaction.timeout.ms", INT_MILLIS;
        /// `transactional.id`: required for a [`crate::TransactionalProducer`], refused for a [`crate::Producer`]. Only one
        /// producer at a time may write transactions under an id. A restarted producer keeps its id.
        name transactional_id, get_transactional_id: Option<String> = None => "transactional.id", NAME;
    }
    without property {
        /// Settings common to all clients.
        common: CommonConfig = CommonConfig::default();
        /// `compression.type`, `compression.*.level`.
        compression: Compression = Compression { codec: Codec::None, level: None };
        /// Interceptors, in place of `interceptor.classes`.
        interceptors: Interceptors = Interceptors::default();
    }
    methods ProducerConfig []
}

macro_rules! level {
    ($name:literal, $codec:expr, $expected:literal, $about:literal) => {
        Property {
            name: $name,
            about: $about,
            is_arm: false,
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
            copy: |from, to| {
                let level = from.common.given.compression_levels[usize::from($codec.id())];
                to.common.given.compression_levels[usize::from($codec.id())] = level;
                if to.compression.codec == $codec {
                    to.compression.level = level;
                }
            },
        }
    };
}

/// One field for four properties: the levels of codecs that are not in use are kept, for `compression.type` may follow.
static COMPRESSION: &[Property<ProducerConfig>] = &[
    level!(
        "compression.gzip.level",
        Codec::Gzip,
        "a level from 1 to 9, or -1",
        "the level of gzip"
    ),
    level!("compression.lz4.level", Codec::Lz4, "a level from 1 to 17", "the level of lz4"),
    Property {
        name: "compression.type",
        about: "the codec of batches",
        is_arm: false,
        expected: "none, gzip, snappy, lz4 or zstd",
        set: |config, text| {
            let codec = Codec::from_str(text).ok()?;
            let level = config.common.given.compression_levels[usize::from(codec.id())];
            config.compression = Compression { codec, level };
            Some(())
        },
        get: |config| config.compression.codec.name().to_owned(),
        copy: |from, to| {
            let codec = from.compression.codec;
            let level = to.common.given.compression_levels[usize::from(codec.id())];
            to.compression = Compression { codec, level };
        },
    },
    level!(
        "compression.zstd.level",
        Codec::Zstd,
        "a level from -131072 to 22",
        "the level of zstd"
    ),
];

/// The property of a codec's level.
fn level_of(codec: Codec) -> Option<&'static str> {
    match codec {
        Codec::Gzip => Some("compression.gzip.level"),
        Codec::Lz4 => Some("compression.lz4.level"),
        Codec::Zstd => Some("compression.zstd.level"),
        _ => None,
    }
}

impl Settings for ProducerConfig {
    const KIND: Kind = Kind::Producer;
    const TABLES: &'static [&'static [Property<Self>]] = &[PRODUCER, COMPRESSION];
    const WITHOUT: &'static [&'static str] = &["default.api.timeout.ms"];

    fn common(&self) -> &CommonConfig {
        &self.common
    }

    fn common_mut(&mut self) -> &mut CommonConfig {
        &mut self.common
    }

    /// See [`super::Given`].
    fn settle(&mut self) {
        let given = &self.common.given;
        if !given.contains("enable.idempotence") {
            self.idempotence = self.acks == Acks::All && self.retries > 0;
        }
        if !given.contains("delivery.timeout.ms") {
            self.delivery_timeout = DELIVERY_TIMEOUT.max(self.least_delivery_timeout());
        }
    }
}

impl ProducerConfig {
    /// Bytes that a batch may grow to.
    pub(crate) fn largest_batch(&self) -> usize {
        self.batch_max_size.max(self.batch_size)
    }

    /// Sets the application's partitioner (Java's `partitioner.class`).
    #[must_use]
    pub fn partitioner(mut self, partitioner: impl Partitioner + 'static) -> Self {
        self.partitioner = Some(Arc::new(partitioner));
        self.give("partitioner.class");
        self
    }

    /// Returns the application's partitioner, or that of `partitioner.class`.
    #[must_use]
    pub fn get_partitioner(&self) -> Option<&dyn Partitioner> {
        self.partitioner.as_deref()
    }

    /// Sets `compression.type`, and the codec's level with `compression.<codec>.level`.
    #[must_use]
    pub fn compression(mut self, compression: impl Into<Compression>) -> Self {
        let compression = compression.into();
        let Compression { codec, level } = compression;
        self.compression = compression;
        self.common.given.compression_levels[usize::from(codec.id())] = level;
        self.give("compression.type");
        if let Some(name) = level_of(codec) {
            match level {
                Some(_) => self.give(name),
                None => self.common.given.remove(name),
            }
        }
        self
    }

    /// Returns `compression.type`, with the codec's level if it was set.
    #[must_use]
    pub fn get_compression(&self) -> Compression {
        self.compression
    }

    /// Adds an interceptor after the existing ones (`interceptor.classes` names Java classes).
    #[must_use]
    pub fn interceptor(mut self, interceptor: impl ProducerInterceptor) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Checks combinations of settings like the Java client. One check comes earlier: a batch that cannot fit into
    /// `buffer.memory` is refused here, and not in each send.
    ///
    /// # Errors
    /// Names the settings that contradict each other, and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.common.validate()?;
        self.check_ranges()?;
        if self.max_in_flight == 0 {
            return contradiction(
                "max.in.flight.requests.per.connection must be at least 1".into(),
            );
        }
        self.validate_idempotence()?;
        if self.suspicion_multiple == 0 || self.suspicion_min > self.suspicion_max {
            return contradiction(
                "curtail.suspicion.multiple must be at least 1, and curtail.suspicion.min.ms at most \
                 curtail.suspicion.max.ms"
                    .into(),
            );
        }
        self.validate_transactions()?;
        let least = self.least_delivery_timeout();
        if self.delivery_timeout < least {
            return contradiction(format!(
                "delivery.timeout.ms={} is below linger.ms + request.timeout.ms={}; raise it or lower them",
                self.delivery_timeout.as_millis(),
                least.as_millis()
            ));
        }
        if self.batch_size > self.buffer_memory {
            return contradiction(format!(
                "batch.size={} is above buffer.memory={}; lower it or raise buffer.memory",
                self.batch_size, self.buffer_memory
            ));
        }
        let Compression { codec, level } = self.compression;
        if !codec.is_built() {
            return Err(ConfigError::NotSupported {
                name: format!("compression.type={codec}"),
                value: None,
                why: "this build does not have the codec; add the feature of its name to the dependency curtail".into(),
            });
        }
        match Compression::new(codec, level) {
            Ok(_) => Ok(()),
            Err(error) => contradiction(error.to_string()),
        }
    }

    /// `linger.ms` plus `request.timeout.ms`, limited to the range of `delivery.timeout.ms`, an `int` in Java.
    fn least_delivery_timeout(&self) -> Duration {
        self.linger.saturating_add(self.common.request_timeout).min(INT_MAX_MILLIS)
    }

    fn validate_transactions(&self) -> Result<(), ConfigError> {
        let Some(id) = &self.transactional_id else { return Ok(()) };
        if id.is_empty() {
            return Err(ConfigError::Invalid {
                name: "transactional.id",
                value: String::new(),
                reason: "expected a text that is not empty".into(),
            });
        }
        if !self.idempotence {
            return contradiction(
                "transactional.id needs enable.idempotence=true, acks=all and retries above 0; leave these out or \
                 leave transactional.id out"
                    .into(),
            );
        }
        Ok(())
    }

    fn validate_idempotence(&self) -> Result<(), ConfigError> {
        // Java refuses too many in-flight requests even if acks or retries disable idempotence. It accepts them only
        // if idempotence was disabled by name.
        let asked = self.idempotence || !self.common.given.contains("enable.idempotence");
        if asked && self.max_in_flight > MAX_IN_FLIGHT_IDEMPOTENT {
            return contradiction(format!(
                "max.in.flight.requests.per.connection={} is above 5, the most that enable.idempotence allows; \
                 lower it or set enable.idempotence=false",
                self.max_in_flight
            ));
        }
        if self.idempotence && self.acks != Acks::All {
            return contradiction(
                "enable.idempotence=true needs acks=all; set acks=all or enable.idempotence=false"
                    .into(),
            );
        }
        if self.idempotence && self.retries == 0 {
            return contradiction(
                "enable.idempotence=true needs retries above 0; leave retries out or set \
                 enable.idempotence=false"
                    .into(),
            );
        }
        Ok(())
    }
}
