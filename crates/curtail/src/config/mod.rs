//! Settings of the clients, as typed fields or as properties.
//!
//! Names, meanings and defaults follow the Java client. TLS and SASL have their settings in [`crate::security`].

mod builder;
mod file;
mod jaas;
pub(crate) mod oidc;
mod properties;
mod providers;
mod redact;
pub(crate) mod security;
#[cfg(test)]
mod tests;
mod values;

pub use file::{load_properties, parse_properties};
#[cfg(feature = "oidc")]
pub(crate) use oidc::ClientCredentials;
pub use properties::IGNORED_PROPERTIES;
pub use providers::ConfigProviders;
pub(crate) use redact::HIDDEN;
pub(crate) use security::Login;
use security::{
    CipherSuite, HostCheck, Mechanism, Secret, SecurityConfig, SecurityProtocol, SslConfig, Store,
    StoreType, TlsVersion,
};
pub(crate) use values::host_and_port;

use std::{sync::Arc, time::Duration};

pub use curtail_proto::{assignor::Assignor, metadata::recovery::RecoveryStrategy};
pub use curtail_wire::{
    compression::{Codec, Compression},
    fetch::IsolationLevel,
};

use crate::{
    consumer::ConsumerInterceptors,
    producer::{Interceptors, Partitioner},
};

/// Settings common to all clients.
#[derive(Clone, Debug)]
pub struct CommonConfig {
    /// `bootstrap.servers`: `host:port`, at least one.
    pub bootstrap_servers: Vec<String>,
    /// `client.id`.
    pub client_id: String,
    /// `client.rack`; empty for none.
    pub client_rack: String,
    /// `request.timeout.ms`: time limit for a response, after which the connection is closed.
    pub request_timeout: Duration,
    /// `retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// `retry.backoff.max.ms`.
    pub retry_backoff_max: Duration,
    /// `reconnect.backoff.ms`.
    pub reconnect_backoff: Duration,
    /// `reconnect.backoff.max.ms`.
    pub reconnect_backoff_max: Duration,
    /// `socket.connection.setup.timeout.ms`.
    pub connection_setup_timeout: Duration,
    /// `metadata.max.age.ms`.
    pub metadata_max_age: Duration,
    /// `client.dns.lookup`.
    pub dns_lookup: DnsLookup,
    /// `metadata.recovery.strategy` (KIP-899).
    pub metadata_recovery: RecoveryStrategy,
    /// `metadata.recovery.rebootstrap.trigger.ms` (KIP-1102).
    pub metadata_rebootstrap_trigger: Duration,
    /// `send.buffer.bytes`; `None` leaves it to the operating system (-1).
    pub send_buffer: Option<usize>,
    /// `receive.buffer.bytes`; `None` leaves it to the operating system (-1).
    pub receive_buffer: Option<usize>,
    /// Idle time before a connection's first TCP keepalive probe, in whole seconds; zero for no probes. Not a setting
    /// of the Java client, which leaves it to the operating system; property `curtail.tcp.keepalive.idle.seconds`.
    pub tcp_keepalive_idle: Duration,
    /// Time between TCP keepalive probes, in whole seconds; property `curtail.tcp.keepalive.interval.seconds`.
    pub tcp_keepalive_interval: Duration,
    /// How long the peer's kernel may leave written data unacknowledged before the connection is closed; zero leaves
    /// it to the operating system. A producer's connections wait for at least `request.timeout.ms`. Linux only;
    /// property `curtail.tcp.user.timeout.ms`.
    pub tcp_user_timeout: Duration,
    /// `connections.max.idle.ms`: how long a connection without a request stays open; `None` for no limit (-1).
    pub connections_max_idle: Option<Duration>,
    /// `config.providers`: the sources of the texts for variables in values.
    pub providers: ConfigProviders,
    /// `default.api.timeout.ms`: limit of calls without a separate timeout.
    pub default_api_timeout: Duration,
    /// `security.protocol`, `ssl.*`, `sasl.*`.
    pub security: SecurityConfig,
    /// Whether batches and responses receive phase timestamps, for the metrics. Not a setting of the Java client;
    /// property `curtail.phase.stamps`.
    pub phase_stamps: bool,
    /// Whether the client's tasks run on the process's I/O thread, and not on the runtime on which the client is made.
    /// Not a setting of the Java client; property `curtail.io.thread`.
    pub io_thread: bool,
    /// Settings made explicitly, if a default depends on that.
    pub given: Given,
}

/// Settings made explicitly, if the default of another setting depends on that.
///
/// As in Java, `acks=1` disables idempotence unless it was enabled explicitly, and a long `linger.ms` extends
/// `delivery.timeout.ms` unless that was set. Each codec has a separate level. [`ProducerConfig::set`] and the
/// builder methods maintain these flags. Direct assignment to a field bypasses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// `enable.idempotence` was set.
    pub idempotence: bool,
    /// `enable.idempotence` was not set, and `acks` or `retries` switched it off.
    pub idempotence_switched_off: bool,
    /// `delivery.timeout.ms` was set.
    pub delivery_timeout: bool,
    /// `default.api.timeout.ms` was set.
    pub default_api_timeout: bool,
    /// `enable.auto.commit` was set.
    pub auto_commit: bool,
    /// `session.timeout.ms` was set.
    pub session_timeout: bool,
    /// `heartbeat.interval.ms` was set.
    pub heartbeat_interval: bool,
    /// `partition.assignment.strategy` was set.
    pub assignment_strategy: bool,
    /// `compression.<codec>.level`, by the codec's id.
    pub compression_levels: [Option<i32>; 5],
}

/// `client.dns.lookup` (KIP-235).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnsLookup {
    /// Names are dialled as they are written: all addresses of a name are tried.
    #[default]
    UseAllDnsIps,
    /// The canonical names of the addresses of `bootstrap.servers` replace them, also in TLS (decision 0118). Brokers that
    /// the cluster names are dialled by that name.
    ResolveCanonicalBootstrapServersOnly,
}

impl Default for CommonConfig {
    fn default() -> Self {
        Self {
            bootstrap_servers: Vec::new(),
            client_id: "curtail".into(),
            client_rack: String::new(),
            request_timeout: Duration::from_secs(30),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(1),
            reconnect_backoff: Duration::from_millis(50),
            reconnect_backoff_max: Duration::from_secs(1),
            connection_setup_timeout: Duration::from_secs(10),
            metadata_max_age: Duration::from_secs(300),
            dns_lookup: DnsLookup::default(),
            metadata_recovery: RecoveryStrategy::Rebootstrap,
            metadata_rebootstrap_trigger: Duration::from_secs(300),
            send_buffer: None,
            receive_buffer: None,
            tcp_keepalive_idle: Duration::from_secs(10),
            tcp_keepalive_interval: Duration::from_secs(5),
            tcp_user_timeout: Duration::from_secs(2),
            connections_max_idle: Some(Duration::from_secs(540)),
            providers: ConfigProviders::default(),
            default_api_timeout: Duration::from_secs(60),
            security: SecurityConfig::default(),
            phase_stamps: true,
            io_thread: false,
            given: Given::default(),
        }
    }
}

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

/// How a consumer's fetches treat partitions with records in the buffer (KAFKA-17182). Variants other than the
/// default are those that Java's clients have used or considered, for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferedPartitions {
    /// They stay in the fetch session. A partition with more bytes than the broker's share has free is not fetched.
    #[default]
    Credit,
    /// They leave the fetch session until they are drained: Java's consumers before 4.0.
    Omit,
    /// Nothing is fetched from a broker while its records are buffered: Java's consumers since 4.0.
    SkipBroker,
    /// Nothing is fetched from any broker while records are buffered.
    SkipAll,
}

/// Settings of a [`crate::Producer`].
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// Settings common to all clients.
    pub common: CommonConfig,
    /// `acks`.
    pub acks: Acks,
    /// `enable.idempotence`.
    pub idempotence: bool,
    /// `batch.size` in bytes.
    pub batch_size: usize,
    /// `batch.max.size` in bytes. A setting of Curtail, after KIP-782.
    pub batch_max_size: usize,
    /// `linger.ms`.
    pub linger: Duration,
    /// `compression.type`, `compression.*.level`.
    pub compression: Compression,
    /// `max.in.flight.requests.per.connection`.
    pub max_in_flight: usize,
    /// `max.request.size` in bytes.
    pub max_request_size: usize,
    /// `buffer.memory` in bytes.
    pub buffer_memory: usize,
    /// How long an acknowledgement should take: a send waits while more record bytes are outstanding for its broker than
    /// the broker takes in this time. Zero for no such bound, as in the Java client; property
    /// `curtail.latency.target.ms`.
    pub latency_target: Duration,
    /// `max.block.ms`.
    pub max_block: Duration,
    /// `metadata.max.idle.ms`: the time after its last record for which a topic's metadata is refreshed.
    pub metadata_max_idle: Duration,
    /// `delivery.timeout.ms`.
    pub delivery_timeout: Duration,
    /// `retries`.
    pub retries: u32,
    /// `partitioner.ignore.keys`.
    pub partitioner_ignore_keys: bool,
    /// How the producer detects a leader change. Not a setting of the Java client; property
    /// `curtail.leader.discovery`: `hint`, `refresh` or `refresh-and-back-off`.
    pub leader_discovery: LeaderDiscovery,
    /// Whether an unusually late response makes its broker suspect. Not a setting of the Java client, which waits for
    /// `request.timeout.ms`; property `curtail.suspicion.enable`.
    pub suspicion: bool,
    /// Multiple of the usual response time after which a response is late; property `curtail.suspicion.multiple`.
    pub suspicion_multiple: u32,
    /// Time before which no response is late; property `curtail.suspicion.min.ms`.
    pub suspicion_min: Duration,
    /// Time after which every response is late; property `curtail.suspicion.max.ms`.
    pub suspicion_max: Duration,
    /// Interceptors, in place of `interceptor.classes`.
    pub interceptors: Interceptors,
    /// `transactional.id`: `None` for a [`crate::Producer`], required for a [`crate::TransactionalProducer`].
    pub transactional_id: Option<String>,
    /// `transaction.timeout.ms`: time after which the coordinator aborts an open transaction.
    pub transaction_timeout: Duration,
    /// `partitioner.adaptive.partitioning.enable`: keyless records prefer the brokers that respond fastest (KIP-794).
    pub partitioner_adaptive: bool,
    /// What adaptive partitioning goes by. Not a setting of the Java client; property `curtail.partitioner.load`: `wait`
    /// or `queued-batches`.
    pub partitioner_load: PartitionerLoad,
    /// `partitioner.availability.timeout.ms`; zero for none.
    pub partitioner_availability_timeout: Duration,
    /// `partitioner.rack.aware`: keyless records go to leaders in `client.rack` (KIP-1123).
    pub partitioner_rack_aware: bool,
    /// The application's partitioner. Java's `partitioner.class`.
    pub partitioner: Option<Arc<dyn Partitioner>>,
    /// Whether keyless records move from partitions that cannot acknowledge to others that can. Not a setting of the
    /// Java client, where the records wait; property `curtail.route.around.trouble`.
    pub route_around_trouble: bool,
    /// Whether keyless records prefer partitions whose current leader has acknowledged something, and try the others of a
    /// broker one at a time; as a property `curtail.prefer.proven.partitions`.
    pub prefer_proven_partitions: bool,
    /// Whether keyless records for a new leader have a separate connection until the leader has acknowledged a batch. Its
    /// followers may take a second to turn to it, and Kafka serves one request of a connection at a time. With `acks=all`
    /// only; property `curtail.separate.unproven.partitions`.
    pub separate_unproven_partitions: bool,
    /// Whether batches that no broker has written leave a partition that refuses them, if their records are bound to no
    /// partition; property `curtail.move.refused.batches`.
    pub move_refused_batches: bool,
    /// Limit on `buffer.memory` for one broker's records while other brokers are in use, in percent of the free
    /// memory. With 100, a broker that does not acknowledge holds at most half of the memory. 0 for no limit.
    /// Property `curtail.broker.memory.percent`.
    pub broker_memory_percent: u32,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            common: CommonConfig::default(),
            acks: Acks::All,
            idempotence: true,
            batch_size: 16_384,
            batch_max_size: 65_536,
            linger: Duration::from_millis(5),
            compression: Compression { codec: Codec::None, level: None },
            max_in_flight: 5,
            max_request_size: 1_048_576,
            buffer_memory: 33_554_432,
            latency_target: Duration::from_millis(10),
            max_block: Duration::from_secs(60),
            metadata_max_idle: Duration::from_secs(300),
            delivery_timeout: Duration::from_secs(120),
            retries: i32::MAX as u32,
            partitioner_ignore_keys: false,
            leader_discovery: LeaderDiscovery::Hint,
            suspicion: true,
            suspicion_multiple: 4,
            suspicion_min: Duration::from_millis(200),
            suspicion_max: Duration::from_secs(2),
            interceptors: Interceptors::default(),
            transactional_id: None,
            transaction_timeout: Duration::from_secs(60),
            partitioner_adaptive: true,
            partitioner_load: PartitionerLoad::Wait,
            partitioner_availability_timeout: Duration::ZERO,
            partitioner_rack_aware: false,
            partitioner: None,
            route_around_trouble: true,
            prefer_proven_partitions: true,
            separate_unproven_partitions: true,
            move_refused_batches: true,
            broker_memory_percent: 100,
        }
    }
}

/// `auto.offset.reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffsetReset {
    /// Start at the first offset.
    Earliest,
    /// Start at the end.
    Latest,
    /// Start at the first record that is no older than this, or at the end if there is none (KIP-1106).
    ByDuration(Duration),
    /// Report an error.
    None,
}

/// `group.protocol`: which side computes the assignment of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// A member, in rebalances that involve all members.
    #[default]
    Classic,
    /// The coordinator (KIP-848, Kafka 4.0 and later): only moving partitions are interrupted.
    Consumer,
}

/// Settings of a [`crate::Consumer`].
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// Settings common to all clients.
    pub common: CommonConfig,
    /// Interceptors, in place of `interceptor.classes`.
    pub interceptors: ConsumerInterceptors,
    /// `group.id`: required to subscribe and to commit offsets.
    pub group_id: Option<String>,
    /// `group.instance.id`: makes the consumer a static member, which keeps its partitions across a restart
    /// (KIP-345).
    pub group_instance_id: Option<String>,
    /// `group.protocol`.
    pub group_protocol: GroupProtocol,
    /// `group.remote.assignor`: the coordinator's assignor, such as `uniform` or `range`, with
    /// `group.protocol=consumer`. If unset, the brokers' first assignor.
    pub group_remote_assignor: Option<String>,
    /// `session.timeout.ms`: time without a heartbeat after which a member is considered dead. With
    /// `group.protocol=consumer` the brokers' setting applies.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`. With `group.protocol=consumer` the brokers' setting applies.
    pub heartbeat_interval: Duration,
    /// `max.poll.interval.ms`: time without a poll after which the application loses its partitions to other members.
    /// Also the longest wait of a rebalance for its members.
    pub max_poll_interval: Duration,
    /// `partition.assignment.strategy`: supported assignors, the preferred one first. Unused with
    /// `group.protocol=consumer`.
    pub partition_assignment_strategy: Vec<Assignor>,
    /// `enable.auto.commit`: whether positions are committed automatically. Has no effect without a `group.id`.
    pub enable_auto_commit: bool,
    /// `auto.commit.interval.ms`.
    pub auto_commit_interval: Duration,
    /// `exclude.internal.topics`: whether a subscription by pattern excludes Kafka's internal topics.
    pub exclude_internal_topics: bool,
    /// `auto.offset.reset`.
    pub auto_offset_reset: OffsetReset,
    /// `fetch.min.bytes`.
    pub fetch_min_bytes: i32,
    /// `fetch.max.bytes`. A broker returns at least one batch of any size. The client refuses a response larger than
    /// 100 MiB and larger than this setting plus 1 MiB. Polls then return
    /// [`Error::ResponseTooLarge`](crate::Error::ResponseTooLarge).
    pub fetch_max_bytes: i32,
    /// `fetch.max.wait.ms`.
    pub fetch_max_wait: Duration,
    /// `max.partition.fetch.bytes`.
    pub max_partition_fetch_bytes: i32,
    /// `max.poll.records`.
    pub max_poll_records: usize,
    /// `isolation.level`.
    pub isolation_level: IsolationLevel,
    /// `check.crcs`.
    pub check_crcs: bool,
    /// `allow.auto.create.topics`.
    pub allow_auto_create_topics: bool,
    /// Bytes fetched ahead of `poll`, for all partitions together. Not a setting of the Java client, where
    /// `fetch.max.bytes` and the number of brokers determine the limit; property `curtail.prefetch.bytes`.
    pub prefetch_bytes: usize,
    /// `curtail.buffered.partitions`: `credit`, `omit`, `skip-broker` or `skip-all`. Not a setting of the Java client.
    pub buffered_partitions: BufferedPartitions,
    /// Limit for one decompressed batch, in bytes; property `curtail.decompressed.batch.max.bytes`.
    pub max_decompressed_batch: usize,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            common: CommonConfig::default(),
            interceptors: ConsumerInterceptors::default(),
            group_id: None,
            group_instance_id: None,
            group_protocol: GroupProtocol::Classic,
            group_remote_assignor: None,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            max_poll_interval: Duration::from_secs(300),
            partition_assignment_strategy: vec![Assignor::Range, Assignor::CooperativeSticky],
            enable_auto_commit: true,
            auto_commit_interval: Duration::from_secs(5),
            exclude_internal_topics: true,
            auto_offset_reset: OffsetReset::Latest,
            fetch_min_bytes: 1,
            fetch_max_bytes: 52_428_800,
            fetch_max_wait: Duration::from_millis(500),
            max_partition_fetch_bytes: 1_048_576,
            max_poll_records: 500,
            isolation_level: IsolationLevel::ReadUncommitted,
            check_crcs: true,
            allow_auto_create_topics: true,
            prefetch_bytes: 64 * 1024 * 1024,
            buffered_partitions: BufferedPartitions::Credit,
            max_decompressed_batch: 128 * 1024 * 1024,
        }
    }
}

/// Settings of an [`crate::Admin`].
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Settings common to all clients.
    pub common: CommonConfig,
}

impl Default for AdminConfig {
    fn default() -> Self {
        // Shorter than that of the other clients, as in Java.
        let connections_max_idle = Some(Duration::from_secs(300));
        Self { common: CommonConfig { connections_max_idle, ..CommonConfig::default() } }
    }
}
