//! Builder methods for settings, and checks of their combinations.

use std::{sync::Arc, time::Duration};

use curtail_wire::{compression::Compression, fetch::IsolationLevel};

use super::{
    Acks, AdminConfig, Assignor, BufferedPartitions, CommonConfig, ConsumerConfig, DnsLookup,
    GroupProtocol, LeaderDiscovery, OffsetReset, PartitionerLoad, ProducerConfig, RecoveryStrategy,
    SecurityConfig, host_and_port, redact,
};
use crate::{
    consumer::ConsumerInterceptor,
    error::ConfigError,
    producer::{Partitioner, ProducerInterceptor},
};

/// Largest number of in-flight requests with which a broker still detects duplicates: it keeps a producer's last five
/// batches.
const MAX_IN_FLIGHT_IDEMPOTENT: usize = 5;

/// Largest duration of a setting that is an `int` in Java.
const INT_MAX_MILLIS: Duration = Duration::from_millis(i32::MAX as u64);

impl CommonConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        if self.bootstrap_servers.is_empty() {
            return Err(ConfigError::Missing("bootstrap.servers"));
        }
        self.security.validate()?;
        match self.bootstrap_servers.iter().find(|s| host_and_port(s).is_none()) {
            None => Ok(()),
            Some(server) => Err(ConfigError::Invalid {
                name: "bootstrap.servers",
                value: redact::value("bootstrap.servers", server),
                reason: "expected host:port, with a port of 1 to 65535".into(),
            }),
        }
    }
}

fn contradiction(text: String) -> Result<(), ConfigError> {
    Err(ConfigError::Contradiction(text))
}

macro_rules! common_methods {
    ($type:ident) => {
        impl $type {
            /// Creates the default settings for a cluster: `host:port`, one or more separated by commas.
            /// [`Self::validate`] reports a malformed address.
            #[must_use]
            pub fn new(bootstrap_servers: impl AsRef<str>) -> Self {
                let servers = bootstrap_servers.as_ref().split(',').map(str::trim);
                let mut config = Self::default();
                config.common.bootstrap_servers =
                    servers.filter(|s| !s.is_empty()).map(str::to_owned).collect();
                config
            }

            /// Sets `client.id`: the name that brokers see in requests.
            #[must_use]
            pub fn client_id(mut self, id: impl Into<String>) -> Self {
                self.common.client_id = id.into();
                self
            }

            /// Sets `request.timeout.ms`: the time limit for a response, after which the connection is closed.
            #[must_use]
            pub fn request_timeout(mut self, timeout: Duration) -> Self {
                self.common.request_timeout = timeout;
                self.settle();
                self
            }

            /// Sets `retry.backoff.ms` and `retry.backoff.max.ms`: the first and the longest backoff between retries.
            #[must_use]
            pub fn retry_backoff(mut self, first: Duration, longest: Duration) -> Self {
                self.common.retry_backoff = first;
                self.common.retry_backoff_max = longest;
                self
            }

            /// Sets `reconnect.backoff.ms` and `reconnect.backoff.max.ms`: the first and the longest backoff before
            /// another connection attempt to an unreachable broker.
            #[must_use]
            pub fn reconnect_backoff(mut self, first: Duration, longest: Duration) -> Self {
                self.common.reconnect_backoff = first;
                self.common.reconnect_backoff_max = longest;
                self
            }

            /// Sets `curtail.phase.stamps`: whether batches and responses receive phase timestamps for the metrics.
            /// Has no effect on an [`crate::Admin`].
            #[must_use]
            pub fn phase_stamps(mut self, stamps: bool) -> Self {
                self.common.phase_stamps = stamps;
                self
            }

            /// Sets `curtail.io.thread`: whether the client's tasks run on a thread that all such clients of the process
            /// share. Then an application that blocks its runtime delays no heartbeat, deadline, retry or queued send,
            /// and a client may be made and used outside a tokio runtime.
            ///
            /// Some code of the application may run on that thread, and must not block it: an OAuth callback; a
            /// partitioner, for records that [`crate::Producer::try_send`] queued before their topic was known; and, if
            /// the client was made outside a tokio runtime, interceptors. Other interceptors run on the runtime on which
            /// the client was made, and acknowledgements wait for them.
            #[must_use]
            pub fn io_thread(mut self, io_thread: bool) -> Self {
                self.common.io_thread = io_thread;
                self
            }

            /// Sets `security.protocol`, `ssl.*` and `sasl.*`. Configurations with clones of one [`SecurityConfig`]
            /// read its files once.
            #[must_use]
            pub fn security(mut self, security: SecurityConfig) -> Self {
                self.common.security = security;
                self
            }

            /// Sets `socket.connection.setup.timeout.ms`.
            #[must_use]
            pub fn connection_setup_timeout(mut self, timeout: Duration) -> Self {
                self.common.connection_setup_timeout = timeout;
                self
            }

            /// Sets `metadata.max.age.ms`: the age at which metadata is refreshed without other cause.
            #[must_use]
            pub fn metadata_max_age(mut self, age: Duration) -> Self {
                self.common.metadata_max_age = age;
                self
            }

            /// Sets `client.dns.lookup`.
            #[must_use]
            pub fn dns_lookup(mut self, lookup: DnsLookup) -> Self {
                self.common.dns_lookup = lookup;
                self
            }

            /// Sets `metadata.recovery.strategy`: whether the client returns to `bootstrap.servers` when no known
            /// broker responds.
            #[must_use]
            pub fn metadata_recovery(mut self, strategy: RecoveryStrategy) -> Self {
                self.common.metadata_recovery = strategy;
                self
            }

            /// Sets `metadata.recovery.rebootstrap.trigger.ms`: the time without metadata after which only
            /// `bootstrap.servers` are asked.
            #[must_use]
            pub fn metadata_rebootstrap_trigger(mut self, trigger: Duration) -> Self {
                self.common.metadata_rebootstrap_trigger = trigger;
                self
            }

            /// Sets `connections.max.idle.ms`: how long a connection without a request stays open; `None` for no limit.
            #[must_use]
            pub fn connections_max_idle(mut self, limit: Option<Duration>) -> Self {
                self.common.connections_max_idle = limit;
                self
            }

            /// Sets `send.buffer.bytes` and `receive.buffer.bytes`; `None` leaves them to the operating system.
            #[must_use]
            pub fn socket_buffers(mut self, send: Option<usize>, receive: Option<usize>) -> Self {
                self.common.send_buffer = send;
                self.common.receive_buffer = receive;
                self
            }
        }
    };
}

common_methods!(ProducerConfig);
common_methods!(ConsumerConfig);
common_methods!(AdminConfig);

macro_rules! setters {
    ($type:ident: $($(#[$doc:meta])* $field:ident: $value:ty;)*) => {
        impl $type {
            $($(#[$doc])*
            #[must_use]
            pub fn $field(mut self, $field: $value) -> Self {
                self.$field = $field;
                self.settle();
                self
            })*
        }
    };
}

setters! { ProducerConfig:
    /// Sets `acks`. Any value but [`Acks::All`] disables idempotence, unless [`Self::idempotence`] enables it.
    acks: Acks;
    /// Sets `batch.size`: the size in bytes at which a batch is sent before `linger.ms` ends.
    batch_size: usize;
    /// Sets `batch.max.size`: the size in bytes up to which a batch grows while earlier batches of its partition or
    /// broker delay it. It never delays a record. Values below `batch.size` have no effect. A setting of
    /// Curtail, after KIP-782. Topics with a smaller `max.message.bytes` need a smaller value.
    batch_max_size: usize;
    /// Sets `linger.ms`: the time that a batch waits for more records. Zero sends immediately.
    linger: Duration;
    /// Sets `max.in.flight.requests.per.connection`, 1 or more; at most 5 with idempotence.
    max_in_flight: usize;
    /// Sets `max.request.size`: the largest record and the largest request, in bytes.
    max_request_size: usize;
    /// Sets `buffer.memory`: bytes for unacknowledged records of all partitions.
    buffer_memory: usize;
    /// Sets `curtail.latency.target.ms`: how long an acknowledgement should take. A send waits while more bytes are
    /// outstanding for its broker than the broker takes in this time; zero for no such bound.
    latency_target: Duration;
    /// Sets `max.block.ms`: the longest wait of a send for metadata, for memory and for room in a broker's window.
    max_block: Duration;
    /// Sets `metadata.max.idle.ms`: the time after its last record for which a topic's metadata is refreshed.
    metadata_max_idle: Duration;
    /// Sets `retries`. Zero disables idempotence, unless [`Self::idempotence`] enables it. Prefer to limit retries by
    /// [`Self::delivery_timeout`].
    retries: u32;
    /// Sets `partitioner.ignore.keys`: whether records with keys are distributed like keyless ones.
    partitioner_ignore_keys: bool;
    /// Sets `curtail.leader.discovery`: how the producer detects a leader change.
    leader_discovery: LeaderDiscovery;
    /// Sets `curtail.suspicion.enable`: whether an unusually late response makes its broker suspect. The leaders are
    /// then looked up elsewhere, and batches follow a leader that has moved.
    suspicion: bool;
    /// Sets `curtail.suspicion.multiple`: the multiple of the usual response time after which a response is late, 1
    /// or more.
    suspicion_multiple: u32;
    /// Sets `curtail.suspicion.min.ms`: the time before which no response is late.
    suspicion_min: Duration;
    /// Sets `curtail.suspicion.max.ms`: the time after which every response is late.
    suspicion_max: Duration;
    /// Sets `transaction.timeout.ms`: the time after which the coordinator aborts an open transaction. The brokers
    /// refuse more than their `transaction.max.timeout.ms`.
    transaction_timeout: Duration;
    /// Sets `partitioner.adaptive.partitioning.enable`: whether keyless records prefer the brokers that respond
    /// fastest, or are distributed evenly.
    partitioner_adaptive: bool;
    /// Sets `curtail.partitioner.load`: how the producer tells which brokers to prefer.
    partitioner_load: PartitionerLoad;
    /// Sets `partitioner.availability.timeout.ms`: keyless records avoid a broker whose oldest request has waited
    /// this long for its response. Zero disables the limit.
    partitioner_availability_timeout: Duration;
    /// Sets `partitioner.rack.aware`: whether keyless records go to leaders in [`Self::client_rack`].
    partitioner_rack_aware: bool;
    /// Sets `curtail.route.around.trouble`: whether keyless records move away from partitions that cannot
    /// acknowledge.
    route_around_trouble: bool;
    /// Sets `curtail.prefer.proven.partitions`: whether keyless records prefer partitions whose current leader has
    /// acknowledged a batch.
    prefer_proven_partitions: bool;
    /// Sets `curtail.move.refused.batches`: whether batches that no broker has written leave a partition that refuses
    /// them.
    move_refused_batches: bool;
    /// Sets `curtail.separate.unproven.partitions`: whether keyless records for a new leader have a separate connection
    /// until it has acknowledged a batch. With `acks=all` only.
    separate_unproven_partitions: bool;
    /// Sets `curtail.broker.memory.percent`: the share of `buffer.memory` for one broker's records, in percent of the
    /// free memory; 0 for no limit.
    broker_memory_percent: u32;
}

impl ProducerConfig {
    /// Bytes that a batch may grow to.
    pub(crate) fn largest_batch(&self) -> usize {
        self.batch_max_size.max(self.batch_size)
    }

    /// Sets `client.rack`, for [`Self::partitioner_rack_aware`].
    #[must_use]
    pub fn client_rack(mut self, rack: impl Into<String>) -> Self {
        self.common.client_rack = rack.into();
        self
    }

    /// Sets the application's partitioner (Java's `partitioner.class`).
    #[must_use]
    pub fn partitioner(mut self, partitioner: impl Partitioner + 'static) -> Self {
        self.partitioner = Some(Arc::new(partitioner));
        self
    }

    /// Sets `enable.idempotence`: each record is written once and in order, however often a request is retried.
    #[must_use]
    pub fn idempotence(mut self, idempotence: bool) -> Self {
        self.idempotence = idempotence;
        self.common.given.idempotence = true;
        self
    }

    /// Sets `transactional.id`, for a [`crate::TransactionalProducer`]. Only one producer at a time may write
    /// transactions under an id. A restarted producer keeps its id.
    #[must_use]
    pub fn transactional_id(mut self, id: impl Into<String>) -> Self {
        self.transactional_id = Some(id.into());
        self
    }

    /// Sets `delivery.timeout.ms`: the time after its send in which a record may still be retried and acknowledged.
    #[must_use]
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.delivery_timeout = timeout;
        self.common.given.delivery_timeout = true;
        self
    }

    /// Sets `compression.type`, and the codec's level with `compression.<codec>.level`.
    #[must_use]
    pub fn compression(mut self, compression: impl Into<Compression>) -> Self {
        let compression = compression.into();
        self.compression = compression;
        self.common.given.compression_levels[usize::from(compression.codec.id())] =
            compression.level;
        self
    }

    /// Adds an interceptor after the existing ones (`interceptor.classes` names Java classes).
    #[must_use]
    pub fn interceptor(mut self, interceptor: impl ProducerInterceptor) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Updates settings that follow from others; see [`super::Given`].
    pub(super) fn settle(&mut self) {
        let possible = self.acks == Acks::All && self.retries > 0;
        let given = &mut self.common.given;
        if !given.idempotence && self.idempotence != possible {
            if possible && given.idempotence_switched_off {
                self.idempotence = true;
                given.idempotence_switched_off = false;
            } else if !possible {
                self.idempotence = false;
                given.idempotence_switched_off = true;
            }
        }
        if !given.delivery_timeout {
            let least = self.least_delivery_timeout();
            self.delivery_timeout = self.delivery_timeout.max(least);
        }
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
        let asked = self.idempotence || !self.common.given.idempotence;
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

setters! { ConsumerConfig:
    /// Sets `group.protocol`.
    group_protocol: GroupProtocol;
    /// Sets `max.poll.interval.ms`: the time without a poll after which the application loses its partitions to other
    /// members.
    max_poll_interval: Duration;
    /// Sets `auto.commit.interval.ms`.
    auto_commit_interval: Duration;
    /// Sets `exclude.internal.topics`: whether a subscription by pattern excludes Kafka's internal topics.
    exclude_internal_topics: bool;
    /// Sets `auto.offset.reset`: where to start without a position, or with one outside the log.
    auto_offset_reset: OffsetReset;
    /// Sets `fetch.min.bytes`: bytes for which a broker waits before it responds, within `fetch.max.wait.ms`.
    fetch_min_bytes: i32;
    /// Sets `fetch.max.bytes`: the largest response.
    fetch_max_bytes: i32;
    /// Sets `fetch.max.wait.ms`: the longest time for which a broker delays a response without enough records.
    fetch_max_wait: Duration;
    /// Sets `max.partition.fetch.bytes`: the limit for one partition in a response.
    max_partition_fetch_bytes: i32;
    /// Sets `max.poll.records`: the limit for one poll, 1 or more.
    max_poll_records: usize;
    /// Sets `isolation.level`.
    isolation_level: IsolationLevel;
    /// Sets `check.crcs`.
    check_crcs: bool;
    /// Sets `allow.auto.create.topics`: whether a metadata request may create an unknown topic.
    allow_auto_create_topics: bool;
    /// Sets the bytes fetched ahead of polls, for all partitions together (`curtail.prefetch.bytes`).
    prefetch_bytes: usize;
    /// Sets how fetches treat partitions with records in the buffer (`curtail.buffered.partitions`).
    buffered_partitions: BufferedPartitions;
    /// Sets the limit for one decompressed batch, in bytes (`curtail.decompressed.batch.max.bytes`).
    max_decompressed_batch: usize;
}

impl ConsumerConfig {
    /// Adds an interceptor after the existing ones (`interceptor.classes` names Java classes).
    #[must_use]
    pub fn interceptor(mut self, interceptor: impl ConsumerInterceptor) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Sets `group.id`: consumers with the same id share the topics to which they subscribe.
    #[must_use]
    pub fn group_id(mut self, id: impl Into<String>) -> Self {
        self.group_id = Some(id.into());
        self
    }

    /// Sets `group.instance.id`: makes the consumer a static member.
    #[must_use]
    pub fn group_instance_id(mut self, id: impl Into<String>) -> Self {
        self.group_instance_id = Some(id.into());
        self
    }

    /// Sets `group.remote.assignor`: the coordinator's assignor, with [`GroupProtocol::Consumer`].
    #[must_use]
    pub fn group_remote_assignor(mut self, assignor: impl Into<String>) -> Self {
        self.group_remote_assignor = Some(assignor.into());
        self
    }

    /// Sets `session.timeout.ms`: the time without a heartbeat after which a member is considered dead. With
    /// [`GroupProtocol::Classic`] only.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self.common.given.session_timeout = true;
        self
    }

    /// Sets `heartbeat.interval.ms`, usually at most a third of `session.timeout.ms`. With [`GroupProtocol::Classic`]
    /// only.
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = interval;
        self.common.given.heartbeat_interval = true;
        self
    }

    /// Sets `partition.assignment.strategy`, the preferred assignor first. With [`GroupProtocol::Classic`] only.
    #[must_use]
    pub fn partition_assignment_strategy(
        mut self,
        assignors: impl IntoIterator<Item = Assignor>,
    ) -> Self {
        self.partition_assignment_strategy = assignors.into_iter().collect();
        self.common.given.assignment_strategy = true;
        self
    }

    /// Sets `enable.auto.commit`: whether positions are committed automatically.
    #[must_use]
    pub fn enable_auto_commit(mut self, enable: bool) -> Self {
        self.enable_auto_commit = enable;
        self.common.given.auto_commit = true;
        self
    }

    /// Sets `client.rack`, for reads from a nearby replica.
    #[must_use]
    pub fn client_rack(mut self, rack: impl Into<String>) -> Self {
        self.common.client_rack = rack.into();
        self
    }

    /// Sets `default.api.timeout.ms`: the limit of calls without a separate timeout.
    #[must_use]
    pub fn default_api_timeout(mut self, timeout: Duration) -> Self {
        self.common.default_api_timeout = timeout;
        self.common.given.default_api_timeout = true;
        self
    }

    /// A consumer has no setting that follows from others.
    #[expect(clippy::unused_self, reason = "the builder methods call it for each kind of client")]
    fn settle(&mut self) {}

    /// Checks combinations of settings. Stricter than Java in one point: a broker that may delay a response for
    /// `request.timeout.ms` would be considered dead.
    ///
    /// # Errors
    /// Names the settings that contradict each other, and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.common.validate()?;
        self.check_ranges()?;
        if self.fetch_max_wait >= self.common.request_timeout {
            return contradiction(format!(
                "fetch.max.wait.ms={} must be below request.timeout.ms={}",
                self.fetch_max_wait.as_millis(),
                self.common.request_timeout.as_millis()
            ));
        }
        if self.max_poll_records == 0 {
            return contradiction("max.poll.records must be at least 1".into());
        }
        if self.prefetch_bytes == 0 || self.max_decompressed_batch == 0 {
            return contradiction(
                "curtail.prefetch.bytes and curtail.decompressed.batch.max.bytes must be at least 1".into(),
            );
        }
        self.validate_group()?;
        let sizes = [self.fetch_min_bytes, self.fetch_max_bytes, self.max_partition_fetch_bytes];
        if sizes.iter().any(|bytes| *bytes < 0) {
            return contradiction(
                "fetch.min.bytes, fetch.max.bytes and max.partition.fetch.bytes must not be negative".into(),
            );
        }
        Ok(())
    }
}

impl ConsumerConfig {
    fn validate_group(&self) -> Result<(), ConfigError> {
        let texts = [
            ("group.id", &self.group_id),
            ("group.instance.id", &self.group_instance_id),
            ("group.remote.assignor", &self.group_remote_assignor),
        ];
        for (name, id) in texts {
            if id.as_ref().is_some_and(String::is_empty) {
                let reason = "expected a text that is not empty".into();
                return Err(ConfigError::Invalid { name, value: String::new(), reason });
            }
        }
        if self.group_id.is_none() && self.common.given.auto_commit && self.enable_auto_commit {
            return contradiction(
                "enable.auto.commit=true needs a group.id; set one or leave enable.auto.commit out"
                    .into(),
            );
        }
        self.validate_protocol()?;
        if self.heartbeat_interval >= self.session_timeout {
            return contradiction(format!(
                "heartbeat.interval.ms={} must be below session.timeout.ms={}",
                self.heartbeat_interval.as_millis(),
                self.session_timeout.as_millis()
            ));
        }
        if self.max_poll_interval.is_zero() {
            return contradiction("max.poll.interval.ms must be at least 1".into());
        }
        if self.partition_assignment_strategy.is_empty() {
            return contradiction("partition.assignment.strategy needs at least one".into());
        }
        Ok(())
    }

    /// As in the Java client, a setting of the other protocol is refused, not ignored.
    fn validate_protocol(&self) -> Result<(), ConfigError> {
        let given = &self.common.given;
        let (protocol, foreign, instead) = match self.group_protocol {
            GroupProtocol::Classic => {
                let assignor = self.group_remote_assignor.as_ref().map(|_| "group.remote.assignor");
                ("classic", assignor, "leave it out or set group.protocol=consumer")
            }
            GroupProtocol::Consumer if given.assignment_strategy => (
                "consumer",
                Some("partition.assignment.strategy"),
                "the brokers assign partitions; leave it out, or choose one of their assignors with group.remote.assignor",
            ),
            GroupProtocol::Consumer => {
                let session = given.session_timeout.then_some("session.timeout.ms");
                let heartbeat = given.heartbeat_interval.then_some("heartbeat.interval.ms");
                ("consumer", session.or(heartbeat), "the brokers set it; leave it out")
            }
        };
        match foreign {
            None => Ok(()),
            Some(name) => contradiction(format!(
                "{name} cannot be set with group.protocol={protocol}: {instead}"
            )),
        }
    }
}

impl AdminConfig {
    /// Sets `default.api.timeout.ms`: the limit of calls without a separate timeout.
    #[must_use]
    pub fn default_api_timeout(mut self, timeout: Duration) -> Self {
        self.common.default_api_timeout = timeout;
        self.common.given.default_api_timeout = true;
        self
    }

    pub(super) fn settle(&mut self) {
        if !self.common.given.default_api_timeout {
            let default = CommonConfig::default().default_api_timeout;
            self.common.default_api_timeout = default.max(self.common.request_timeout);
        }
    }

    /// Checks combinations of settings, like the Java client.
    ///
    /// # Errors
    /// Names the settings that contradict each other, and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.common.validate()?;
        self.check_ranges()?;
        if self.common.default_api_timeout < self.common.request_timeout {
            return contradiction(format!(
                "default.api.timeout.ms={} is below request.timeout.ms={}; raise it or lower request.timeout.ms",
                self.common.default_api_timeout.as_millis(),
                self.common.request_timeout.as_millis()
            ));
        }
        Ok(())
    }
}
