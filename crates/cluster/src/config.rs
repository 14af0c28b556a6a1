//! Settings of a cluster: typed, or by the property names of Apache Kafka's brokers.

mod foreign;
mod inert;
mod listeners;
mod properties;
mod security;
#[cfg(test)]
mod tests;
mod topic_defaults;

pub use foreign::Effect;
pub(crate) use inert::{INERT, Inert};
pub use listeners::{
    Endpoint, Host, Listener, ListenerAddress, ListenerName, ListenerProtocols, Listeners,
    ParseListenersError,
};
pub use properties::ConfigError;
pub use security::{
    Authorizer, ClientAuth, Mechanism, Password, Security, SecurityProtocol, User, UserError,
};

pub use topic_defaults::TopicDefaults;

use std::{fmt, ops::RangeInclusive, path::PathBuf, sync::Arc, time::Duration};

use curtail_wire::records::TimestampType;

pub use crate::coordinator::consumer::Assignor;
use crate::{
    coordinator::{consumer::Settings, streams},
    disk::Disk,
};

/// Kafka's default of `log.flush.scheduler.interval.ms`.
pub(crate) const NEVER: Duration = Duration::from_millis(i64::MAX as u64);

/// The storage of the logs.
#[derive(Clone, Default)]
pub enum Storage {
    /// A temporary directory, removed with the cluster.
    #[default]
    Temp,
    /// A persistent directory; a later cluster on it serves the same data.
    Dir(PathBuf),
    /// One disk per broker, in the order of their ids. The controller's metadata is kept in memory.
    Disks(Vec<Arc<dyn Disk>>),
    /// Like [`Storage::Disks`], with a disk for the controller's metadata.
    Machines {
        /// One disk per broker, in the order of their ids.
        brokers: Vec<Arc<dyn Disk>>,
        /// The controller's disk.
        controller: Arc<dyn Disk>,
    },
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Temp => f.write_str("Temp"),
            Self::Dir(path) => f.debug_tuple("Dir").field(path).finish(),
            Self::Disks(disks) => write!(f, "Disks({})", disks.len()),
            Self::Machines { brokers, .. } => write!(f, "Machines({})", brokers.len()),
        }
    }
}

/// How long topics keep records. As in Kafka, milliseconds count before minutes, and those before
/// hours; a negative number means without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// `log.retention.ms`.
    pub ms: Option<i64>,
    /// `log.retention.minutes`.
    pub minutes: Option<i32>,
    /// `log.retention.hours`.
    pub hours: i32,
}

impl Default for Retention {
    /// A week.
    fn default() -> Self {
        Self { ms: None, minutes: None, hours: 168 }
    }
}

impl Retention {
    /// Returns the time in force in milliseconds; -1 for no limit.
    #[must_use]
    pub fn in_force(&self) -> i64 {
        let from = |count: i32, ms: i64| i64::from(count) * ms;
        let minutes = || self.minutes.map(|minutes| from(minutes, 60_000));
        let ms = self.ms.or_else(minutes).unwrap_or_else(|| from(self.hours, 3_600_000));
        ms.max(-1)
    }
}

/// A planted bug, which proves that the simulation's checker detects it. For no other purpose.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The leader acknowledges `acks=all` before the followers have the batch.
    AckBeforeReplication,
    /// The leader appends duplicate batches again.
    NoSequenceCheck,
    /// A follower keeps the records after its divergence from the leader's log.
    NoTruncation,
    /// When a partition moves to another leader, the previous leader acknowledges the waiting
    /// requests with `acks=all`.
    AckOnMove,
    /// A record counts as committed when all in-sync replicas except one have it.
    CommitByMajority,
    /// A newly elected leader loses the producer state of the log.
    ForgetProducersWhenElected,
    /// A produce response for several partitions of a topic swaps the first two base offsets.
    MixUpAnswers,
    /// `read_committed` fetches omit the list of aborted transactions.
    HideAborted,
    /// A group's coordinator accepts commits from any client, member or not.
    TakeAnyCommit,
    /// A new coordinator of a group loses the previously committed offsets.
    ForgetCommits,
    /// A rebalance does not wait: members that have not rejoined immediately are removed.
    RebalanceWithoutWaiting,
    /// The coordinator confirms offset commits that exist only in its memory.
    CommitInMemory,
    /// The recovery of a log accepts batches without checking their checksums.
    RecoverWithoutChecksum,
    /// A log that lost its first segments in a crash starts with the next one.
    BeginWithGap,
    /// The controller acknowledges changes that it has not synced.
    JournalUnsynced,
    /// A restarted controller assigns producer ids that were assigned before.
    ReuseProducerIds,
    /// A broker continues after its disk has failed.
    ServeOnFailedDisk,
    /// A follower appends batches without checking their checksums.
    ReplicateCorruptBatches,
    /// The controller elects out-of-sync replicas regardless of `unclean.leader.election.enable`.
    ElectUncleanly,
    /// A follower serves uncommitted records to consumers.
    ServeUncommitted,
    /// Retention that deletes any segment deletes all but the active one.
    RetainTooLittle,
    /// A controller that was stuck counts that time as missed heartbeats.
    CountStandstill,
    /// An append that a full disk refuses is answered as done.
    AckRefused,
    /// A producer that adds partitions before the markers of its previous transaction are written is fenced.
    FenceUnsettled,
    /// A broker's timers follow its wall clock.
    TimersByWallClock,
    /// Brokers do not sync appends, whatever `log.flush.interval.messages` says.
    SkipFlush,
    /// Compaction does not stop at the last stable offset.
    CompactUnstable,
    /// Compaction removes tombstones without waiting for `delete.retention.ms`.
    TombstonesAtOnce,
}

/// Whether a cluster may use a directory of a cluster with another number of brokers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resize {
    /// Refuses the directory.
    #[default]
    Refuse,
    /// Accepts the directory if every partition keeps an in-sync replica. New brokers start without
    /// replicas; the logs of removed brokers stay on disk.
    Allow,
}

/// The replica that consumers read from (KIP-392).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicaSelector {
    /// The leader.
    #[default]
    Leader,
    /// A replica in the consumer's rack that has the requested offset: the leader if it is in that
    /// rack, otherwise the replica with the largest end offset.
    RackAware,
}

/// Settings of an embedded cluster.
///
/// The fields are public; [`ClusterConfig::set`] sets the same values by Kafka's property names.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Number of brokers; their ids are 1 and up.
    pub brokers: u32,
    /// Id of the cluster, which Kafka's images take from `CLUSTER_ID`. `None` for the stored id, or
    /// a random one in a new cluster. Another id than the stored one is refused.
    pub cluster_id: Option<String>,
    /// `listeners`: where brokers listen, by the names of listeners. By default one listener,
    /// PLAINTEXT on a free loopback port.
    pub listeners: Listeners,
    /// `advertised.listeners`: the hosts and ports that clients receive, each those of the listener
    /// that it came by; `None` if they are the same as in `listeners`.
    pub advertised_listeners: Option<Listeners>,
    /// `listener.security.protocol.map`: the protocols of the listeners.
    pub listener_protocols: ListenerProtocols,
    /// `inter.broker.listener.name`: the listener that brokers use among themselves if its protocol
    /// is PLAINTEXT and there is no authorizer. Otherwise, they have a separate one on loopback.
    /// `None` for the first PLAINTEXT listener.
    pub inter_broker_listener: Option<ListenerName>,
    /// `controller.listener.names`: entries of `listeners` without effect, because this cluster's
    /// controller has no listener.
    pub controller_listeners: Vec<ListenerName>,
    /// `broker.rack`: one per broker, in the order of their ids; an empty one means no rack. An
    /// empty list means no racks at all.
    pub racks: Vec<String>,
    /// `replica.selector.class`: the replica to which leaders send consumers with a rack (KIP-392).
    pub replica_selector: ReplicaSelector,
    /// The storage of the logs.
    pub storage: Storage,
    /// Whether the directory of [`Storage::Dir`] may come from a cluster with another number of
    /// brokers.
    pub resize: Resize,
    /// `num.partitions`: partitions of a topic created without a count.
    pub num_partitions: i32,
    /// `default.replication.factor`: replicas of a topic created without a count.
    pub default_replication_factor: i16,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i16,
    /// `message.max.bytes`: the largest batch accepted, in bytes.
    pub message_max_bytes: usize,
    /// `log.segment.bytes`: size at which a log starts another segment file, in bytes.
    pub log_segment_bytes: u64,
    /// `log.flush.interval.messages`: number of records after which a log is synced. By default the operating
    /// system decides.
    pub log_flush_interval_messages: i64,
    /// `log.flush.scheduler.interval.ms`: interval between searches for logs that have not been synced for
    /// `flush.ms`. By default there is no search.
    pub log_flush_scheduler_interval: Duration,
    /// `log.retention.ms`, `log.retention.minutes`, `log.retention.hours`: how long topics without a
    /// `retention.ms` keep records.
    pub log_retention: Retention,
    /// `log.retention.bytes`: size beyond which partitions of topics without a `retention.bytes`
    /// delete old segments, in bytes; negative for no limit.
    pub log_retention_bytes: i64,
    /// `log.retention.check.interval.ms`: interval between removals of old segments and inactive
    /// producers.
    pub log_retention_check_interval: Duration,
    /// `log.cleaner.backoff.ms`: interval between compactions of logs.
    pub log_cleaner_backoff: Duration,
    /// `producer.id.expiration.ms`: how long a partition keeps the state of an inactive producer.
    pub producer_id_expiration: Duration,
    /// Epoch of each new producer id. A high one lets a test exhaust the epochs.
    #[doc(hidden)]
    pub first_producer_epoch: i16,
    /// `log.message.timestamp.type`.
    pub log_message_timestamp_type: TimestampType,
    /// `replica.lag.time.max.ms`: how long a follower may lag and stay in sync.
    pub replica_lag_time_max: Duration,
    /// `replica.fetch.wait.max.ms`: how long a follower's fetch waits for data.
    pub replica_fetch_wait_max: Duration,
    /// `replica.fetch.max.bytes`: bytes per partition in a follower's fetch.
    pub replica_fetch_max_bytes: i32,
    /// `replica.fetch.response.max.bytes`: bytes of a follower's fetch response.
    pub replica_fetch_response_max_bytes: i32,
    /// `replica.fetch.backoff.ms`: backoff after a failed fetch.
    pub replica_fetch_backoff: Duration,
    /// `broker.session.timeout.ms`: how long the controller waits for a heartbeat before it fences a broker.
    pub broker_session_timeout: Duration,
    /// `broker.heartbeat.interval.ms`.
    pub broker_heartbeat_interval: Duration,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_cache_slots: usize,
    /// `min.incremental.fetch.session.eviction.ms`.
    pub fetch_session_eviction: Duration,
    /// `fetch.max.bytes`: the largest fetch response to a consumer, in bytes.
    pub fetch_max_bytes: i32,
    /// `socket.request.max.bytes`: the largest request, in bytes.
    pub socket_request_max_bytes: usize,
    /// `telemetry.max.bytes`: the largest payload of metrics that a client may push (KIP-714), in bytes.
    pub telemetry_max_bytes: usize,
    /// `max.connections`: open connections per broker. A connection beyond this limit replaces the
    /// oldest unauthenticated one; if all have authenticated, it is closed immediately.
    pub max_connections: usize,
    /// `connections.max.idle.ms`: how long a connection may be without a request.
    pub connections_max_idle: Duration,
    /// `group.initial.rebalance.delay.ms`: how long the first rebalance of a group waits for more
    /// members. Kafka's default is 3 s. The default here is 0, as in Kafka's `server.properties`
    /// for development.
    pub group_initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`: the shortest session timeout a member may request.
    pub group_min_session_timeout: Duration,
    /// `group.max.session.timeout.ms`: the longest session timeout a member may request.
    pub group_max_session_timeout: Duration,
    /// `group.consumer.session.timeout.ms`: time without heartbeats after which a member of the
    /// consumer protocol is removed.
    pub group_consumer_session_timeout: Duration,
    /// `group.consumer.min.session.timeout.ms`: lower bound of that timeout.
    pub group_consumer_min_session_timeout: Duration,
    /// `group.consumer.max.session.timeout.ms`: upper bound of that timeout.
    pub group_consumer_max_session_timeout: Duration,
    /// `group.consumer.heartbeat.interval.ms`: heartbeat interval sent to members of the consumer
    /// protocol.
    pub group_consumer_heartbeat_interval: Duration,
    /// `group.consumer.min.heartbeat.interval.ms`: lower bound of that interval.
    pub group_consumer_min_heartbeat_interval: Duration,
    /// `group.consumer.max.heartbeat.interval.ms`: upper bound of that interval.
    pub group_consumer_max_heartbeat_interval: Duration,
    /// `group.consumer.max.size`: the largest number of members in a group of the consumer
    /// protocol.
    pub group_consumer_max_size: usize,
    /// `group.consumer.assignors`: the assignors available to members of the consumer protocol; the
    /// first one is the default.
    pub group_consumer_assignors: Vec<Assignor>,
    /// `group.consumer.assignment.interval.ms`: the shortest interval between two target
    /// assignments of a group (KIP-1263).
    pub group_consumer_assignment_interval: Duration,
    /// `group.consumer.regex.refresh.interval.ms`: how long the topics resolved for a regular
    /// expression stay valid while no topic is created.
    pub group_consumer_regex_refresh_interval: Duration,
    /// `group.streams.session.timeout.ms`: time without heartbeats after which a member of a streams
    /// group is removed.
    pub group_streams_session_timeout: Duration,
    /// `group.streams.min.session.timeout.ms`: lower bound of that timeout.
    pub group_streams_min_session_timeout: Duration,
    /// `group.streams.max.session.timeout.ms`: upper bound of that timeout.
    pub group_streams_max_session_timeout: Duration,
    /// `group.streams.heartbeat.interval.ms`: heartbeat interval sent to members of streams groups.
    pub group_streams_heartbeat_interval: Duration,
    /// `group.streams.min.heartbeat.interval.ms`: lower bound of that interval.
    pub group_streams_min_heartbeat_interval: Duration,
    /// `group.streams.max.heartbeat.interval.ms`: upper bound of that interval.
    pub group_streams_max_heartbeat_interval: Duration,
    /// `group.streams.max.size`: the largest number of members in a streams group.
    pub group_streams_max_size: usize,
    /// `group.streams.num.standby.replicas`: the standby tasks of each task with state.
    pub group_streams_num_standby_replicas: u32,
    /// `group.streams.max.standby.replicas`: upper bound of that number for a group.
    pub group_streams_max_standby_replicas: u32,
    /// `group.streams.initial.rebalance.delay.ms`: how long a new streams group waits for further
    /// members before its first assignment.
    pub group_streams_initial_rebalance_delay: Duration,
    /// `group.streams.assignment.interval.ms`: the shortest interval between two target
    /// assignments of a streams group.
    pub group_streams_assignment_interval: Duration,
    /// `group.streams.min.assignment.interval.ms`: lower bound of that interval.
    pub group_streams_min_assignment_interval: Duration,
    /// `group.streams.max.assignment.interval.ms`: upper bound of that interval.
    pub group_streams_max_assignment_interval: Duration,
    /// `offset.metadata.max.bytes`: the longest metadata of a committed offset, in bytes.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.commit.timeout.ms`: how long a commit waits for the in-sync replicas.
    pub offsets_commit_timeout: Duration,
    /// `offsets.retention.minutes`: how long a group without members keeps its offsets.
    pub offsets_retention_minutes: i32,
    /// `offsets.retention.check.interval.ms`: interval between removals of expired offsets.
    pub offsets_retention_check_interval: Duration,
    /// `offsets.topic.num.partitions`: partitions of `__consumer_offsets`, which distributes the
    /// groups among the brokers. Kafka's default is 50.
    pub offsets_topic_partitions: i32,
    /// `offsets.topic.replication.factor`: replicas of `__consumer_offsets`, at most the number of
    /// brokers.
    pub offsets_topic_replication_factor: i16,
    /// `transaction.version`: the finalized feature of that name, 0 to 2. Version 2 bumps the
    /// producer's epoch with every transaction, and Produce adds partitions to it (KIP-890). In
    /// Kafka it is a feature rather than a setting.
    pub transaction_version: i16,
    /// `transaction.max.timeout.ms`: the longest transaction timeout a producer may request.
    pub transaction_max_timeout: Duration,
    /// `transaction.abort.timed.out.transaction.cleanup.interval.ms`: interval between searches for
    /// timed-out transactions.
    pub transaction_abort_interval: Duration,
    /// `transactional.id.expiration.ms`: how long a transactional id without an open transaction is
    /// kept after its last change.
    pub transactional_id_expiration: Duration,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`: interval between removals of
    /// expired transactional ids.
    pub transactional_id_removal_interval: Duration,
    /// `transaction.state.log.num.partitions`: partitions of `__transaction_state`. Kafka's default is 50.
    pub transaction_log_partitions: i32,
    /// `transaction.state.log.replication.factor`: replicas of `__transaction_state`, at most the
    /// number of brokers.
    pub transaction_log_replication_factor: i16,
    /// `transaction.state.log.min.isr`: its `min.insync.replicas`, at most its number of replicas.
    pub transaction_log_min_isr: i16,
    /// `metadata.propagation.delay.ms`: how long a change of the cluster's metadata takes to reach
    /// a broker. Specific to Curtail; see also
    /// [`ClusterHandle::set_metadata_delay`](crate::ClusterHandle::set_metadata_delay).
    pub metadata_propagation_delay: Duration,
    /// Authentication of clients and their permissions.
    pub security: Security,
    /// Further settings for topics without an override, by the names of Kafka's brokers.
    pub topic_defaults: TopicDefaults,
    /// A planted bug, for tests.
    #[doc(hidden)]
    pub plant: Option<Plant>,
    /// Bytes of each log's newest batches cached in memory; the simulation reads from disks.
    #[doc(hidden)]
    pub log_tail_cache_bytes: usize,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            brokers: 3,
            cluster_id: None,
            listeners: Listeners::default(),
            advertised_listeners: None,
            listener_protocols: ListenerProtocols::default(),
            inter_broker_listener: None,
            controller_listeners: Vec::new(),
            racks: Vec::new(),
            replica_selector: ReplicaSelector::Leader,
            storage: Storage::default(),
            resize: Resize::default(),
            num_partitions: 1,
            default_replication_factor: 1,
            auto_create_topics: true,
            min_insync_replicas: 1,
            message_max_bytes: 1_048_588,
            log_segment_bytes: 1 << 30,
            log_flush_interval_messages: i64::MAX,
            log_flush_scheduler_interval: NEVER,
            log_retention: Retention::default(),
            log_retention_bytes: -1,
            log_retention_check_interval: Duration::from_secs(300),
            log_cleaner_backoff: Duration::from_secs(15),
            producer_id_expiration: Duration::from_secs(86_400),
            first_producer_epoch: 0,
            log_message_timestamp_type: TimestampType::CreateTime,
            replica_lag_time_max: Duration::from_secs(30),
            replica_fetch_wait_max: Duration::from_millis(500),
            replica_fetch_max_bytes: 1 << 20,
            replica_fetch_response_max_bytes: 10 << 20,
            replica_fetch_backoff: Duration::from_secs(1),
            broker_session_timeout: Duration::from_secs(9),
            broker_heartbeat_interval: Duration::from_secs(2),
            fetch_session_cache_slots: 1000,
            fetch_session_eviction: Duration::from_secs(120),
            fetch_max_bytes: 55 << 20,
            socket_request_max_bytes: 100 << 20,
            telemetry_max_bytes: 1 << 20,
            max_connections: 10_000,
            connections_max_idle: Duration::from_secs(600),
            group_initial_rebalance_delay: Duration::ZERO,
            group_min_session_timeout: Duration::from_secs(6),
            group_max_session_timeout: Duration::from_secs(1800),
            group_consumer_session_timeout: Duration::from_secs(45),
            group_consumer_min_session_timeout: Duration::from_secs(45),
            group_consumer_max_session_timeout: Duration::from_secs(60),
            group_consumer_heartbeat_interval: Duration::from_secs(5),
            group_consumer_min_heartbeat_interval: Duration::from_secs(5),
            group_consumer_max_heartbeat_interval: Duration::from_secs(15),
            group_consumer_max_size: i32::MAX as usize,
            group_consumer_assignors: vec![Assignor::Uniform, Assignor::Range],
            group_consumer_assignment_interval: Duration::from_secs(1),
            group_consumer_regex_refresh_interval: Duration::from_secs(600),
            group_streams_session_timeout: Duration::from_secs(45),
            group_streams_min_session_timeout: Duration::from_secs(45),
            group_streams_max_session_timeout: Duration::from_secs(60),
            group_streams_heartbeat_interval: Duration::from_secs(5),
            group_streams_min_heartbeat_interval: Duration::from_secs(5),
            group_streams_max_heartbeat_interval: Duration::from_secs(15),
            group_streams_max_size: i32::MAX as usize,
            group_streams_num_standby_replicas: 0,
            group_streams_max_standby_replicas: 2,
            group_streams_initial_rebalance_delay: Duration::from_secs(3),
            group_streams_assignment_interval: Duration::from_secs(1),
            group_streams_min_assignment_interval: Duration::ZERO,
            group_streams_max_assignment_interval: Duration::from_secs(15),
            offset_metadata_max_bytes: 4096,
            offsets_commit_timeout: Duration::from_secs(5),
            offsets_retention_minutes: 7 * 24 * 60,
            offsets_retention_check_interval: Duration::from_secs(600),
            offsets_topic_partitions: 4,
            offsets_topic_replication_factor: 3,
            transaction_version: 2,
            transaction_max_timeout: Duration::from_secs(900),
            transaction_abort_interval: Duration::from_secs(10),
            transactional_id_expiration: Duration::from_secs(7 * 86_400),
            transactional_id_removal_interval: Duration::from_secs(3600),
            transaction_log_partitions: 4,
            transaction_log_replication_factor: 3,
            transaction_log_min_isr: 2,
            metadata_propagation_delay: Duration::ZERO,
            security: Security::default(),
            topic_defaults: TopicDefaults::default(),
            plant: None,
            log_tail_cache_bytes: 1 << 20,
        }
    }
}

impl ClusterConfig {
    /// The ids of the brokers, 1 and up.
    pub fn broker_ids(&self) -> impl Iterator<Item = i32> + use<> {
        1..=i32::try_from(self.brokers).unwrap_or(i32::MAX)
    }

    /// The rack of a broker.
    pub(crate) fn rack(&self, id: i32) -> Option<&str> {
        let at = usize::try_from(id).ok()?.checked_sub(1)?;
        self.racks.get(at).map(String::as_str).filter(|rack| !rack.is_empty())
    }

    /// Returns the settings for groups of the consumer protocol.
    pub(crate) fn consumer_groups(&self) -> Settings {
        Settings {
            session_timeout: self.group_consumer_session_timeout,
            heartbeat_interval: self.group_consumer_heartbeat_interval,
            max_size: self.group_consumer_max_size,
            assignors: self.group_consumer_assignors.clone(),
            assignment_interval: self.group_consumer_assignment_interval,
            regex_refresh_interval: self.group_consumer_regex_refresh_interval,
        }
    }

    /// Returns the settings for streams groups.
    pub(crate) fn streams_groups(&self) -> streams::Settings {
        streams::Settings {
            session_timeout: self.group_streams_session_timeout,
            heartbeat_interval: self.group_streams_heartbeat_interval,
            max_size: self.group_streams_max_size,
            standbys: self.group_streams_num_standby_replicas,
            initial_delay: self.group_streams_initial_rebalance_delay,
            assignment_interval: self.group_streams_assignment_interval,
        }
    }

    fn validate_consumer_groups(&self) -> Result<(), ConfigError> {
        check_times(
            "consumer",
            self.group_consumer_session_timeout,
            self.group_consumer_min_session_timeout..=self.group_consumer_max_session_timeout,
            self.group_consumer_heartbeat_interval,
            self.group_consumer_min_heartbeat_interval..=self.group_consumer_max_heartbeat_interval,
        )
    }

    fn validate_streams_groups(&self) -> Result<(), ConfigError> {
        check_times(
            "streams",
            self.group_streams_session_timeout,
            self.group_streams_min_session_timeout..=self.group_streams_max_session_timeout,
            self.group_streams_heartbeat_interval,
            self.group_streams_min_heartbeat_interval..=self.group_streams_max_heartbeat_interval,
        )?;
        let fail = |text: &str| Err(ConfigError::Contradiction(text.to_owned()));
        let intervals =
            self.group_streams_min_assignment_interval..=self.group_streams_max_assignment_interval;
        if !intervals.contains(&self.group_streams_assignment_interval) {
            return fail(
                "group.streams.assignment.interval.ms must be from group.streams.min.assignment.interval.ms to \
                 group.streams.max.assignment.interval.ms",
            );
        }
        if self.group_streams_num_standby_replicas > self.group_streams_max_standby_replicas {
            return fail(
                "group.streams.num.standby.replicas must be at most group.streams.max.standby.replicas",
            );
        }
        Ok(())
    }

    /// Checks settings that depend on each other.
    ///
    /// # Errors
    /// Names the contradicting settings.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError::Contradiction(text));
        self.validate_times()?;
        if self.brokers == 0 || self.brokers > 1000 {
            return fail(format!("a cluster has 1 to 1000 brokers, not {}", self.brokers));
        }
        if let Some(id) = self.cluster_id.as_ref().filter(|id| id.trim().is_empty()) {
            return fail(format!("the cluster id '{id}' is blank"));
        }
        if i64::from(self.default_replication_factor) > i64::from(self.brokers) {
            return fail(format!(
                "default.replication.factor is {}, more than the number of brokers, {}",
                self.default_replication_factor, self.brokers
            ));
        }
        if self.broker_heartbeat_interval >= self.broker_session_timeout {
            return fail(
                "broker.heartbeat.interval.ms must be below broker.session.timeout.ms".into(),
            );
        }
        if self.replica_fetch_wait_max > self.replica_lag_time_max {
            return fail(
                "replica.fetch.wait.max.ms must not be above replica.lag.time.max.ms".into(),
            );
        }
        self.validate_consumer_groups()?;
        self.validate_streams_groups()?;
        self.validate_listeners()?;
        for id in self.broker_ids() {
            self.security.validate_reach(&self.listeners_of(id)?)?;
        }
        self.security.validate(&self.listeners_of(1)?)?;
        let count = self.brokers as usize;
        if !self.racks.is_empty() && self.racks.len() != count {
            return fail(format!("broker.rack has {} racks for {count} brokers", self.racks.len()));
        }
        match &self.storage {
            Storage::Disks(disks) | Storage::Machines { brokers: disks, .. }
                if disks.len() != count =>
            {
                fail(format!("{} disks for {count} brokers", disks.len()))
            }
            _ => Ok(()),
        }
    }
}

/// Checks the session timeout and the heartbeat interval of groups of a protocol.
fn check_times(
    of: &str,
    session: Duration,
    sessions: RangeInclusive<Duration>,
    heartbeat: Duration,
    heartbeats: RangeInclusive<Duration>,
) -> Result<(), ConfigError> {
    let bounded = |value, range: RangeInclusive<Duration>, what| match range.contains(&value) {
        true => Ok(()),
        false => Err(ConfigError::Contradiction(format!(
            "group.{of}.{what}.ms must be from group.{of}.min.{what}.ms to group.{of}.max.{what}.ms"
        ))),
    };
    bounded(session, sessions, "session.timeout")?;
    bounded(heartbeat, heartbeats, "heartbeat.interval")?;
    if heartbeat >= session {
        return Err(ConfigError::Contradiction(format!(
            "group.{of}.heartbeat.interval.ms must be below group.{of}.session.timeout.ms"
        )));
    }
    Ok(())
}
