//! Settings of a consumer.

use std::time::Duration;

use curtail_wire::fetch::IsolationLevel;

#[cfg(feature = "arms")]
use super::forms::BUFFERED_PARTITIONS;
use super::{
    Assignor, CommonConfig, contradiction,
    forms::{
        ASSIGNORS, BOOLEAN, FETCH_BYTES, GROUP_PROTOCOL, INT_MILLIS, ISOLATION, NAME, OFFSET_RESET,
        POSITIVE_BYTES, POSITIVE_COUNT, POSITIVE_MILLIS,
    },
    table::{Kind, Property, Settings, property, settings},
};
use crate::{
    consumer::{ConsumerInterceptor, ConsumerInterceptors},
    error::ConfigError,
};

/// How a consumer's fetches treat partitions with records in the buffer (KAFKA-17182). Variants other than the
/// default are those that Java's clients have used or considered, for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "arms"),
    expect(dead_code, unreachable_pub, reason = "arms of the laboratory")
)]
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

settings! {
    /// Settings of a [`crate::Consumer`].
    ConsumerConfig, CONSUMER: {
        /// `allow.auto.create.topics`: whether a metadata request may create an unknown topic.
        plain allow_auto_create_topics, get_allow_auto_create_topics: bool = true
            => "allow.auto.create.topics", BOOLEAN;
        /// `auto.commit.interval.ms`: the time between automatic commits.
        plain auto_commit_interval, get_auto_commit_interval: Duration = Duration::from_secs(5)
            => "auto.commit.interval.ms", INT_MILLIS;
        /// `auto.offset.reset`: where to start without a position, or with one outside the log.
        plain auto_offset_reset, get_auto_offset_reset: OffsetReset = OffsetReset::Latest
            => "auto.offset.reset", OFFSET_RESET;
        /// `check.crcs`: whether the checksums of batches are verified.
        plain check_crcs, get_check_crcs: bool = true => "check.crcs", BOOLEAN;
        /// `curtail.buffered.partitions`: how partitions with buffered records are fetched. `credit`: they stay in the fetch
        /// session (decision 0021). For comparison: `omit` (they leave the session, Java before 4.0), `skip-broker` (nothing
        /// is fetched from their broker, Java since 4.0), `skip-all` (nothing is fetched).
        #[cfg(feature = "arms")]
        plain buffered_partitions: BufferedPartitions = BufferedPartitions::Credit
            => "curtail.buffered.partitions", BUFFERED_PARTITIONS;
        /// `curtail.decompressed.batch.max.bytes`: bytes that one batch may decompress to. A larger batch is an error that a
        /// seek can pass (decision 0026). A poll that has records opens no further batch once its batches have decompressed
        /// to this size, so its records hold at most twice this. The limit is per consumer (decision 0056).
        plain max_decompressed_batch, get_max_decompressed_batch: usize = 128 * 1024 * 1024
            => "curtail.decompressed.batch.max.bytes", POSITIVE_BYTES;
        /// `curtail.prefetch.bytes`: bytes fetched ahead of `poll`, for all partitions together. In the Java client
        /// `fetch.max.bytes` and the number of brokers determine the limit.
        plain prefetch_bytes, get_prefetch_bytes: usize = 64 * 1024 * 1024 => "curtail.prefetch.bytes", POSITIVE_BYTES;
        /// `enable.auto.commit`: whether positions are committed automatically. Has no effect without a `group.id`.
        plain enable_auto_commit, get_enable_auto_commit: bool = true => "enable.auto.commit", BOOLEAN;
        /// `exclude.internal.topics`: whether a subscription by pattern excludes Kafka's internal topics.
        plain exclude_internal_topics, get_exclude_internal_topics: bool = true => "exclude.internal.topics", BOOLEAN;
        /// `fetch.max.bytes`: the largest response. A broker returns at least one batch of any size. The client refuses a
        /// response larger than 100 MiB and larger than this setting plus 1 MiB. Polls then return
        /// [`Error::ResponseTooLarge`](crate::Error::ResponseTooLarge).
        plain fetch_max_bytes, get_fetch_max_bytes: i32 = 52_428_800 => "fetch.max.bytes", FETCH_BYTES;
        /// `fetch.max.wait.ms`: the longest time for which a broker delays a response without enough records.
        plain fetch_max_wait, get_fetch_max_wait: Duration = Duration::from_millis(500)
            => "fetch.max.wait.ms", INT_MILLIS;
        /// `fetch.min.bytes`: bytes for which a broker waits before it responds, within `fetch.max.wait.ms`.
        plain fetch_min_bytes, get_fetch_min_bytes: i32 = 1 => "fetch.min.bytes", FETCH_BYTES;
        /// `group.id`: consumers with the same id share the topics to which they subscribe. Required to subscribe and to
        /// commit offsets.
        name group_id, get_group_id: Option<String> = None => "group.id", NAME;
        /// `group.instance.id`: makes the consumer a static member, which keeps its partitions across a restart
        /// (KIP-345).
        name group_instance_id, get_group_instance_id: Option<String> = None => "group.instance.id", NAME;
        /// `group.protocol`: which side computes the assignment of a group.
        plain group_protocol, get_group_protocol: GroupProtocol = GroupProtocol::Classic
            => "group.protocol", GROUP_PROTOCOL;
        /// `group.remote.assignor`: the coordinator's assignor, such as `uniform` or `range`, with
        /// `group.protocol=consumer`. If unset, the brokers' first assignor.
        name group_remote_assignor, get_group_remote_assignor: Option<String> = None => "group.remote.assignor", NAME;
        /// `heartbeat.interval.ms`: the time between heartbeats, usually at most a third of `session.timeout.ms`. With
        /// `group.protocol=classic` only; otherwise the brokers' setting applies.
        plain heartbeat_interval, get_heartbeat_interval: Duration = Duration::from_secs(3)
            => "heartbeat.interval.ms", INT_MILLIS;
        /// `isolation.level`: whether records of aborted and open transactions are left out.
        plain isolation_level, get_isolation_level: IsolationLevel = IsolationLevel::ReadUncommitted
            => "isolation.level", ISOLATION;
        /// `max.partition.fetch.bytes`: the limit for one partition in a response.
        plain max_partition_fetch_bytes, get_max_partition_fetch_bytes: i32 = 1_048_576
            => "max.partition.fetch.bytes", FETCH_BYTES;
        /// `max.poll.interval.ms`: the time without a poll after which the application loses its partitions to other members.
        /// Also the longest wait of a rebalance for its members.
        plain max_poll_interval, get_max_poll_interval: Duration = Duration::from_secs(300)
            => "max.poll.interval.ms", POSITIVE_MILLIS;
        /// `max.poll.records`: the limit for one poll, 1 or more.
        plain max_poll_records, get_max_poll_records: usize = 500 => "max.poll.records", POSITIVE_COUNT;
        /// `partition.assignment.strategy`: supported assignors, the preferred one first. With `group.protocol=classic`
        /// only.
        none partition_assignment_strategy: Vec<Assignor> = vec![Assignor::Range, Assignor::CooperativeSticky]
            => "partition.assignment.strategy", ASSIGNORS;
        /// `session.timeout.ms`: the time without a heartbeat after which a member is considered dead. With
        /// `group.protocol=classic` only; otherwise the brokers' setting applies.
        plain session_timeout, get_session_timeout: Duration = Duration::from_secs(45)
            => "session.timeout.ms", INT_MILLIS;
    }
    without property {
        /// Settings common to all clients.
        common: CommonConfig = CommonConfig::default();
        /// Interceptors, in place of `interceptor.classes`.
        interceptors: ConsumerInterceptors = ConsumerInterceptors::default();
    }
    methods ConsumerConfig []
}

impl Settings for ConsumerConfig {
    const KIND: Kind = Kind::Consumer;
    const TABLES: &'static [&'static [Property<Self>]] = &[CONSUMER];
    const WITHOUT: &'static [&'static str] = &[];

    fn common(&self) -> &CommonConfig {
        &self.common
    }

    fn common_mut(&mut self) -> &mut CommonConfig {
        &mut self.common
    }
}

impl ConsumerConfig {
    /// Adds an interceptor after the existing ones (`interceptor.classes` names Java classes).
    #[must_use]
    pub fn interceptor(mut self, interceptor: impl ConsumerInterceptor) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Sets `partition.assignment.strategy`, the preferred assignor first. With `group.protocol=classic` only.
    #[must_use]
    pub fn partition_assignment_strategy(
        mut self,
        assignors: impl IntoIterator<Item = Assignor>,
    ) -> Self {
        self.partition_assignment_strategy = assignors.into_iter().collect();
        self.give("partition.assignment.strategy");
        self
    }

    /// Returns `partition.assignment.strategy`.
    #[must_use]
    pub fn get_partition_assignment_strategy(&self) -> &[Assignor] {
        &self.partition_assignment_strategy
    }

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
        if self.group_id.is_none()
            && self.common.given.contains("enable.auto.commit")
            && self.enable_auto_commit
        {
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
            GroupProtocol::Consumer if given.contains("partition.assignment.strategy") => (
                "consumer",
                Some("partition.assignment.strategy"),
                "the brokers assign partitions; leave it out, or choose one of their assignors with group.remote.assignor",
            ),
            GroupProtocol::Consumer => {
                let session = given.contains("session.timeout.ms").then_some("session.timeout.ms");
                let heartbeat =
                    given.contains("heartbeat.interval.ms").then_some("heartbeat.interval.ms");
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
