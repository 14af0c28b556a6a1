//! Settings by chained methods, and what must fit together.

use std::{sync::Arc, time::Duration};

use curtail_wire::{compression::Compression, fetch::IsolationLevel};

use super::{
    Acks, AdminConfig, Assignor, BufferedPartitions, CommonConfig, ConsumerConfig, GroupProtocol,
    LeaderDiscovery, OffsetReset, ProducerConfig, RecoveryStrategy, SecurityConfig, host_and_port,
    redact,
};
use crate::{ProducerInterceptor, error::ConfigError, producer::Partitioner};

/// Requests in flight with which a broker still detects duplicates: it keeps the last five batches of a producer.
const MAX_IN_FLIGHT_IDEMPOTENT: usize = 5;

/// The longest time of a setting that is an `int` in Java.
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
                reason: "expected host:port".into(),
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
            /// The default settings for a cluster: `host:port`, one or more separated by commas.
            /// [`Self::validate`] reports a malformed one.
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

            /// Sets `request.timeout.ms`: how long an answer may take before the connection is given up.
            #[must_use]
            pub fn request_timeout(mut self, timeout: Duration) -> Self {
                self.common.request_timeout = timeout;
                self.settle();
                self
            }

            /// Sets `retry.backoff.ms` and `retry.backoff.max.ms`: the first pause before a retry, and the longest.
            #[must_use]
            pub fn retry_backoff(mut self, first: Duration, longest: Duration) -> Self {
                self.common.retry_backoff = first;
                self.common.retry_backoff_max = longest;
                self
            }

            /// Sets `reconnect.backoff.ms` and `reconnect.backoff.max.ms`: the first pause before a new connection
            /// to a broker that could not be reached, and the longest.
            #[must_use]
            pub fn reconnect_backoff(mut self, first: Duration, longest: Duration) -> Self {
                self.common.reconnect_backoff = first;
                self.common.reconnect_backoff_max = longest;
                self
            }

            /// Sets `curtail.phase.stamps`: whether the client takes note of when batches and answers pass their stations,
            /// for its metrics. Of no effect on an [`crate::Admin`].
            #[must_use]
            pub fn phase_stamps(mut self, stamps: bool) -> Self {
                self.common.phase_stamps = stamps;
                self
            }

            /// Sets `security.protocol`, `ssl.*` and `sasl.*`. Configurations that were given clones of one
            /// [`SecurityConfig`] read its files once.
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

            /// Sets `metadata.max.age.ms`: how old metadata gets before it is asked for again without need.
            #[must_use]
            pub fn metadata_max_age(mut self, age: Duration) -> Self {
                self.common.metadata_max_age = age;
                self
            }

            /// Sets `metadata.recovery.strategy`: whether `bootstrap.servers` are asked again when the known
            /// brokers are of no more use.
            #[must_use]
            pub fn metadata_recovery(mut self, strategy: RecoveryStrategy) -> Self {
                self.common.metadata_recovery = strategy;
                self
            }

            /// Sets `metadata.recovery.rebootstrap.trigger.ms`: how long no metadata may come in before only
            /// `bootstrap.servers` are asked.
            #[must_use]
            pub fn metadata_rebootstrap_trigger(mut self, trigger: Duration) -> Self {
                self.common.metadata_rebootstrap_trigger = trigger;
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
    /// Sets `acks`. Anything but [`Acks::All`] switches idempotence off, unless [`Self::idempotence`] asks for it.
    acks: Acks;
    /// Sets `batch.size`: bytes of a batch at which it is sent without waiting for `linger.ms`.
    batch_size: usize;
    /// Sets `batch.max.size`: bytes that a batch may grow to while it cannot leave because others of its partition or
    /// broker are before it. It never makes a record wait. Without effect below `batch.size`. A setting of Curtail,
    /// after KIP-782; topics with `max.message.bytes` below it need a lower one.
    batch_max_size: usize;
    /// Sets `linger.ms`: how long a batch waits for more records. Zero sends at once.
    linger: Duration;
    /// Sets `max.in.flight.requests.per.connection`, 1 or more; at most 5 with idempotence.
    max_in_flight: usize;
    /// Sets `max.request.size`: the largest record and the largest request, in bytes.
    max_request_size: usize;
    /// Sets `buffer.memory`: bytes of records not yet acknowledged, over all partitions.
    buffer_memory: usize;
    /// Sets `max.block.ms`: how long a send may wait for metadata and for memory.
    max_block: Duration;
    /// Sets `metadata.max.idle.ms`: how long a topic that nothing is sent to is kept up to date.
    metadata_max_idle: Duration;
    /// Sets `retries`. Zero switches idempotence off, unless [`Self::idempotence`] asks for it. Better limit
    /// retries by [`Self::delivery_timeout`].
    retries: u32;
    /// Sets `partitioner.ignore.keys`: spread records with keys as those without.
    partitioner_ignore_keys: bool;
    /// Sets `curtail.leader.discovery`: how a leader's move is noticed.
    leader_discovery: LeaderDiscovery;
    /// Sets `curtail.suspicion.enable`: whether a broker whose answer is unusually late is suspected of hanging, so
    /// that the leaders are looked up elsewhere and batches follow a leader that has moved.
    suspicion: bool;
    /// Sets `curtail.suspicion.multiple`: an answer is late after so many times the usual answer time, 1 or more.
    suspicion_multiple: u32;
    /// Sets `curtail.suspicion.min.ms`: no answer is late before this.
    suspicion_min: Duration;
    /// Sets `curtail.suspicion.max.ms`: every answer is late after this.
    suspicion_max: Duration;
    /// Sets `transaction.timeout.ms`: how long a transaction may stay open before its coordinator aborts it. The brokers
    /// refuse more than their `transaction.max.timeout.ms`.
    transaction_timeout: Duration;
    /// Sets `partitioner.adaptive.partitioning.enable`: whether keyless records go to the brokers that answer as soon
    /// as any, or are spread strictly evenly.
    partitioner_adaptive: bool;
    /// Sets `partitioner.availability.timeout.ms`: keyless records leave a broker out whose oldest request has been
    /// without an answer for so long; zero for no such limit.
    partitioner_availability_timeout: Duration;
    /// Sets `partitioner.rack.aware`: whether keyless records go to leaders in [`Self::client_rack`].
    partitioner_rack_aware: bool;
    /// Sets `curtail.route.around.trouble`: whether keyless records leave partitions that cannot acknowledge.
    route_around_trouble: bool;
    /// Sets `curtail.prefer.proven.partitions`: whether keyless records prefer partitions whose current leader has
    /// acknowledged something.
    prefer_proven_partitions: bool;
    /// Sets `curtail.try.leaders.alone`: whether partitions whose current leader has acknowledged nothing share no request with
    /// others, and few with each other, one such request per broker at a time.
    try_leaders_alone: bool;
    /// Sets `curtail.broker.memory.percent`: what one broker's records may hold of `buffer.memory`, in percent of
    /// what is free; 0 for no bound.
    broker_memory_percent: u32;
}

impl ProducerConfig {
    /// Sets `client.rack`, for [`Self::partitioner_rack_aware`].
    #[must_use]
    pub fn client_rack(mut self, rack: impl Into<String>) -> Self {
        self.common.client_rack = rack.into();
        self
    }

    /// Chooses partitions in the application's own way (Java's `partitioner.class`).
    #[must_use]
    pub fn partitioner(mut self, partitioner: impl Partitioner + 'static) -> Self {
        self.partitioner = Some(Arc::new(partitioner));
        self
    }

    /// Sets `enable.idempotence`: each record once and in order, however often a request is retried.
    #[must_use]
    pub fn idempotence(mut self, idempotence: bool) -> Self {
        self.idempotence = idempotence;
        self.common.given.idempotence = true;
        self
    }

    /// Sets `transactional.id`, for a [`crate::TransactionalProducer`]: the name under which one producer at a time
    /// may write transactions, also after a restart.
    #[must_use]
    pub fn transactional_id(mut self, id: impl Into<String>) -> Self {
        self.transactional_id = Some(id.into());
        self
    }

    /// Sets `delivery.timeout.ms`: how long after its send a record may still be acknowledged or retried.
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

    /// Adds an interceptor behind those that are there (`interceptor.classes` names Java classes).
    #[must_use]
    pub fn interceptor(mut self, interceptor: impl ProducerInterceptor) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Brings what follows other settings up to date; see [`super::Given`].
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

    /// Checks what must fit together, as the Java client does and in one point earlier: a batch that cannot fit
    /// into `buffer.memory` is refused here, and not in each send.
    ///
    /// # Errors
    /// Names the settings that contradict each other, and what to do.
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
        match Compression::new(codec, level) {
            Ok(_) => Ok(()),
            Err(error) => contradiction(error.to_string()),
        }
    }

    /// `linger.ms` and `request.timeout.ms`, as far as `delivery.timeout.ms` reaches: an `int` in Java.
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
        // Java rejects too many requests in flight even where acks or retries switch idempotence off, unless it
        // was switched off by name.
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
    /// Sets `max.poll.interval.ms`: an application that has not polled for so long loses its partitions to others.
    max_poll_interval: Duration;
    /// Sets `auto.commit.interval.ms`.
    auto_commit_interval: Duration;
    /// Sets `exclude.internal.topics`: whether a subscription by pattern passes over Kafka's own topics.
    exclude_internal_topics: bool;
    /// Sets `auto.offset.reset`: where to start without a position, or with one outside the log.
    auto_offset_reset: OffsetReset;
    /// Sets `fetch.min.bytes`: what a broker gathers before it answers, within `fetch.max.wait.ms`.
    fetch_min_bytes: i32;
    /// Sets `fetch.max.bytes`: the most one answer carries.
    fetch_max_bytes: i32;
    /// Sets `fetch.max.wait.ms`: how long a broker holds an answer back while there is nothing to send.
    fetch_max_wait: Duration;
    /// Sets `max.partition.fetch.bytes`: the most of one partition in an answer.
    max_partition_fetch_bytes: i32;
    /// Sets `max.poll.records`: the most one poll returns, 1 or more.
    max_poll_records: usize;
    /// Sets `isolation.level`.
    isolation_level: IsolationLevel;
    /// Sets `check.crcs`.
    check_crcs: bool;
    /// Sets `allow.auto.create.topics`: whether asking for an unknown topic may create it.
    allow_auto_create_topics: bool;
    /// Sets the bytes fetched ahead of polls, over all partitions (`curtail.prefetch.bytes`).
    prefetch_bytes: usize;
    /// Sets what fetches do about partitions whose records wait in the buffer (`curtail.buffered.partitions`).
    buffered_partitions: BufferedPartitions;
    /// Sets the bytes one batch may decompress to (`curtail.decompressed.batch.max.bytes`).
    max_decompressed_batch: usize;
}

impl ConsumerConfig {
    /// Sets `group.id`: the consumers with the same one share the topics they subscribe to.
    #[must_use]
    pub fn group_id(mut self, id: impl Into<String>) -> Self {
        self.group_id = Some(id.into());
        self
    }

    /// Sets `group.instance.id`: makes a static member.
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

    /// Sets `session.timeout.ms`: a member from which nothing was heard for so long is taken for dead. With
    /// [`GroupProtocol::Classic`] only.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self.common.given.session_timeout = true;
        self
    }

    /// Sets `heartbeat.interval.ms`, at most a third of `session.timeout.ms` by rule of thumb. With
    /// [`GroupProtocol::Classic`] only.
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = interval;
        self.common.given.heartbeat_interval = true;
        self
    }

    /// Sets `partition.assignment.strategy`, the preferred one first. With [`GroupProtocol::Classic`] only.
    #[must_use]
    pub fn partition_assignment_strategy(
        mut self,
        assignors: impl IntoIterator<Item = Assignor>,
    ) -> Self {
        self.partition_assignment_strategy = assignors.into_iter().collect();
        self.common.given.assignment_strategy = true;
        self
    }

    /// Sets `enable.auto.commit`: whether positions are committed without being asked.
    #[must_use]
    pub fn enable_auto_commit(mut self, enable: bool) -> Self {
        self.enable_auto_commit = enable;
        self.common.given.auto_commit = true;
        self
    }

    /// Sets `client.rack`, for reading from a near replica.
    #[must_use]
    pub fn client_rack(mut self, rack: impl Into<String>) -> Self {
        self.common.client_rack = rack.into();
        self
    }

    /// Sets `default.api.timeout.ms`: the limit of calls without one of their own.
    #[must_use]
    pub fn default_api_timeout(mut self, timeout: Duration) -> Self {
        self.common.default_api_timeout = timeout;
        self.common.given.default_api_timeout = true;
        self
    }

    /// Nothing follows from other settings in a consumer.
    #[expect(clippy::unused_self, reason = "the builder methods call it for each kind of client")]
    fn settle(&mut self) {}

    /// Checks what must fit together. Stricter than Java in one point: a broker that may hold an answer back for
    /// as long as `request.timeout.ms` would be taken for dead.
    ///
    /// # Errors
    /// Names the settings that contradict each other, and what to do.
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

    /// As in the Java client, a setting of the other protocol is refused and not ignored.
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
                "the brokers assign; leave it out, or choose among theirs with group.remote.assignor",
            ),
            GroupProtocol::Consumer => {
                let session = given.session_timeout.then_some("session.timeout.ms");
                let heartbeat = given.heartbeat_interval.then_some("heartbeat.interval.ms");
                ("consumer", session.or(heartbeat), "the brokers decide on it; leave it out")
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
    /// Sets `default.api.timeout.ms`: the limit of calls without one of their own.
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

    /// Checks what must fit together, as the Java client does.
    ///
    /// # Errors
    /// Names the settings that contradict each other, and what to do.
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
