//! Log directories of brokers, features of the cluster and its metadata quorum.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use curtail_wire::{ErrorCode, cold::messages};
use messages::{
    AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, ApiVersionsRequest,
    ApiVersionsResponse, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeQuorumRequest,
    DescribeQuorumResponse, UnregisterBrokerRequest, UnregisterBrokerResponse,
    UpdateFeaturesRequest, UpdateFeaturesResponse,
    alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic},
    describe_quorum_request, describe_quorum_response,
    update_features_request::FeatureUpdateKey,
};

use super::{Admin, Call, Each, Mode, broker_error, text, topics_of};
use crate::{Result, TopicPartition};

/// A directory of a broker's logs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogDir {
    /// Path on the broker.
    pub path: String,
    /// Whether the broker can use it.
    pub state: Result<()>,
    /// Replicas in the directory. A replica that moves between directories is in both.
    pub replicas: BTreeMap<TopicPartition, LogDirReplica>,
    /// Bytes of the disk, if the broker reports them.
    pub total_bytes: Option<u64>,
    /// Bytes that are free for the broker, if it reports them.
    pub usable_bytes: Option<u64>,
}

/// A replica in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogDirReplica {
    /// Bytes of its segments.
    pub size: u64,
    /// Offsets between its end and the high watermark. For a future replica, offsets between its end and the end of
    /// the replica that it will replace.
    pub offset_lag: i64,
    /// Whether it will replace the replica in another directory.
    pub is_future: bool,
}

/// The features of a cluster (KIP-584).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// Finalized level of each feature.
    pub finalized: BTreeMap<String, i16>,
    /// Epoch of the finalized levels, which grows with every change; `None` if the broker does not report it.
    pub epoch: Option<i64>,
    /// Lowest and highest level of each feature that the responding broker supports.
    pub supported: BTreeMap<String, (i16, i16)>,
}

/// A change of a feature's finalized level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeatureUpdate {
    /// To a higher level.
    Upgrade(i16),
    /// To a lower level, if nothing is lost.
    SafeDowngrade(i16),
    /// To a lower level, even if metadata are lost.
    UnsafeDowngrade(i16),
}

impl FeatureUpdate {
    /// The level, and Kafka's number of the kind of update.
    fn wire(self) -> (i16, i8) {
        match self {
            Self::Upgrade(level) => (level, 1),
            Self::SafeDowngrade(level) => (level, 2),
            Self::UnsafeDowngrade(level) => (level, 3),
        }
    }
}

/// The move of a replica to another directory of its broker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct LogDirMove {
    /// The broker's id.
    pub broker: i32,
    /// The replica's partition.
    pub partition: TopicPartition,
    /// The new directory, by its path on the broker.
    pub path: String,
}

impl LogDirMove {
    /// A move of a broker's replica to this directory.
    pub fn new(broker: i32, partition: TopicPartition, path: impl Into<String>) -> Self {
        Self { broker, partition, path: path.into() }
    }
}

impl fmt::Display for LogDirMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} of broker {}", self.partition, self.path, self.broker)
    }
}

/// The controllers of a cluster (KIP-595).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuorumDescription {
    /// Id of the active controller.
    pub leader: i32,
    /// Leader epoch, which grows with every election.
    pub leader_epoch: i32,
    /// High watermark of the metadata log.
    pub high_watermark: i64,
    /// Voters.
    pub voters: Vec<QuorumReplica>,
    /// Observers, such as brokers, which follow without a vote.
    pub observers: Vec<QuorumReplica>,
}

/// A replica of the metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuorumReplica {
    /// Node id.
    pub id: i32,
    /// End offset of its metadata log.
    pub log_end_offset: i64,
    /// Time when it was last caught up, in milliseconds since 1970-01-01 UTC, if known.
    pub last_caught_up: Option<i64>,
}

impl Admin {
    /// Returns the log directories of brokers with their replicas, with a result for each broker.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_log_dirs<'a>(&'a self, brokers: &'a [i32]) -> Call<'a, Each<i32, Vec<LogDir>>> {
        self.rounds(
            "describing log directories (default.api.timeout.ms)",
            brokers,
            move |open, _| {
                self.at_brokers(open, |admin, broker| async move {
                    let request = DescribeLogDirsRequest::default().with_topics(None);
                    let answer: DescribeLogDirsResponse =
                        admin.ask(&broker, 1..=4, |_| request).await?;
                    let what = format!("log directories of broker {}", broker.id);
                    ErrorCode(answer.error_code)
                        .ok()
                        .map_err(|code| broker_error(&what, code, None))?;
                    Ok(log_dirs(answer))
                })
            },
        )
    }

    /// Returns the finalized features, and those that a broker supports.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_features(&self) -> Call<'_, Features> {
        let what = "describing features (default.api.timeout.ms)";
        self.retried(what, move |_| self.describe_features_once())
    }

    async fn describe_features_once(&self) -> Result<Features> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name("curtail".into())
            .with_client_software_version(env!("CARGO_PKG_VERSION").into());
        let answer: ApiVersionsResponse = self.ask_any(3..=4, |_| request).await?;
        ErrorCode(answer.error_code).ok().map_err(|code| broker_error("features", code, None))?;
        let finalized = answer.finalized_features.into_iter();
        let supported = answer.supported_features.into_iter();
        Ok(Features {
            finalized: finalized.map(|f| (f.name.to_string(), f.max_version_level)).collect(),
            epoch: Some(answer.finalized_features_epoch).filter(|epoch| *epoch >= 0),
            supported: supported
                .map(|f| (f.name.to_string(), (f.min_version, f.max_version)))
                .collect(),
        })
    }

    /// Changes finalized levels of features (KIP-584). All change, or none.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// use curtail::admin::{FeatureUpdate, Mode};
    ///
    /// admin.update_features(&[("transaction.version", FeatureUpdate::Upgrade(2))], Mode::Apply).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or the controller refuses an update.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn update_features<'a>(
        &'a self,
        updates: &'a [(&'a str, FeatureUpdate)],
        mode: Mode,
    ) -> Call<'a, ()> {
        let what = "updating features (default.api.timeout.ms)";
        self.retried(what, move |timeout_ms| self.update_features_once(updates, mode, timeout_ms))
    }

    async fn update_features_once(
        &self,
        updates: &[(&str, FeatureUpdate)],
        mode: Mode,
        timeout_ms: i32,
    ) -> Result<()> {
        let updates = updates.iter().map(|(name, update)| {
            let (level, kind) = update.wire();
            FeatureUpdateKey::default()
                .with_feature(text(name))
                .with_max_version_level(level)
                .with_upgrade_type(kind)
        });
        let request = UpdateFeaturesRequest::default()
            .with_timeout_ms(timeout_ms)
            .with_feature_updates(updates.collect())
            .with_validate_only(mode.validates());
        // Before version 1 there was no dry run.
        let answer: UpdateFeaturesResponse = self.ask_any(1..=2, |_| request).await?;
        let message = answer.error_message.as_deref();
        let error = |code| broker_error("features", code, message);
        ErrorCode(answer.error_code).ok().map_err(error)?;
        // Before version 2 each feature has its own result.
        answer.results.iter().try_for_each(|result| {
            let what = format!("feature '{}'", &*result.feature);
            let message = result.error_message.as_deref();
            ErrorCode(result.error_code).ok().map_err(|code| broker_error(&what, code, message))
        })
    }

    /// Removes the registration of a broker that has been shut down for good (KIP-631). Its replicas stay assigned to it.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or no broker with this id is registered. If a response is lost, the
    /// repeated request may find the registration gone, and fail with BROKER_ID_NOT_REGISTERED.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn unregister_broker(&self, id: i32) -> Call<'_, ()> {
        let what = "unregistering a broker (default.api.timeout.ms)";
        self.retried(what, move |_| self.unregister_once(id))
    }

    async fn unregister_once(&self, id: i32) -> Result<()> {
        let request = UnregisterBrokerRequest::default().with_broker_id(id.into());
        let answer: UnregisterBrokerResponse = self.ask_any(0..=0, |_| request).await?;
        let message = answer.error_message.as_deref();
        let error = |code| broker_error(&format!("broker {id}"), code, message);
        ErrorCode(answer.error_code).ok().map_err(error)
    }

    /// Moves replicas between the directories of their brokers, with a result for each. Success means that the broker has begun to
    /// copy; [`Admin::describe_log_dirs`] shows the progress. REPLICA_NOT_AVAILABLE means that the broker has no such replica yet,
    /// and will create it in this directory.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn alter_replica_log_dirs<'a>(
        &'a self,
        moves: &'a [LogDirMove],
    ) -> Call<'a, Each<LogDirMove, ()>> {
        Box::pin(async move {
            let what = "moving replicas between directories (default.api.timeout.ms)";
            let moved = self.rounds(what, moves, |open, _| self.move_replicas_once(open)).await?;
            Ok(moved
                .into_iter()
                .map(|(to, result)| (to, result.and_then(|answer| answer)))
                .collect())
        })
    }

    /// The inner results are the brokers' answers. They are final: a repeated request would not change them.
    async fn move_replicas_once(
        &self,
        open: BTreeSet<LogDirMove>,
    ) -> Result<Each<LogDirMove, Result<()>>> {
        let live = self.brokers().await?;
        let mut results = Each::new();
        let mut parts: BTreeMap<i32, Vec<LogDirMove>> = BTreeMap::new();
        let mut named = BTreeSet::new();
        for to in open {
            if !named.insert((to.broker, to.partition.clone())) {
                let reason = Some("a replica can move to one directory only");
                let error = broker_error(&to.to_string(), ErrorCode::INVALID_REQUEST, reason);
                results.push((to, Err(error)));
                continue;
            }
            parts.entry(to.broker).or_default().push(to);
        }
        let moved = self.fan_out_to(&live, parts, |admin, broker, part| async move {
            let answer: AlterReplicaLogDirsResponse =
                admin.ask(&broker, 1..=2, |_| move_request(&part)).await?;
            let mut results = BTreeMap::new();
            for topic in &answer.results {
                for partition in &topic.partitions {
                    let name = topic.topic_name.as_str();
                    let at = TopicPartition::new(name, partition.partition_index);
                    results.insert(at, partition.error_code);
                }
            }
            let result = |to: LogDirMove| {
                let code = ErrorCode(*results.get(&to.partition)?);
                let result = code.ok().map_err(|code| broker_error(&to.to_string(), code, None));
                Some((to, Ok(result)))
            };
            Ok(part.into_iter().filter_map(result).collect())
        });
        results.extend(moved.await);
        Ok(results)
    }

    /// Returns the metadata quorum of a KRaft cluster.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or the cluster has no such quorum.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_metadata_quorum(&self) -> Call<'_, QuorumDescription> {
        let what = "describing the metadata quorum (default.api.timeout.ms)";
        self.retried(what, move |_| self.describe_quorum_once())
    }

    async fn describe_quorum_once(&self) -> Result<QuorumDescription> {
        use describe_quorum_request::{PartitionData, TopicData};
        let partition = PartitionData::default().with_partition_index(0);
        let topic = TopicData::default()
            .with_topic_name(text("__cluster_metadata").into())
            .with_partitions(vec![partition]);
        let request = DescribeQuorumRequest::default().with_topics(vec![topic]);
        let answer: DescribeQuorumResponse = self.ask_any(0..=2, |_| request).await?;
        let error = |code: i16, message: Option<&str>| {
            ErrorCode(code).ok().map_err(|code| broker_error("metadata quorum", code, message))
        };
        error(answer.error_code, answer.error_message.as_deref())?;
        let partition = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
        let Some(partition) = partition else {
            let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            return Err(broker_error("metadata quorum", code, None));
        };
        error(partition.error_code, partition.error_message.as_deref())?;
        let replicas = |states: Vec<describe_quorum_response::ReplicaState>| {
            let replica = |state: describe_quorum_response::ReplicaState| QuorumReplica {
                id: state.replica_id.0,
                log_end_offset: state.log_end_offset,
                last_caught_up: Some(state.last_caught_up_timestamp).filter(|at| *at >= 0),
            };
            states.into_iter().map(replica).collect()
        };
        Ok(QuorumDescription {
            leader: partition.leader_id.0,
            leader_epoch: partition.leader_epoch,
            high_watermark: partition.high_watermark,
            voters: replicas(partition.current_voters),
            observers: replicas(partition.observers),
        })
    }
}

fn move_request(moves: &[LogDirMove]) -> AlterReplicaLogDirsRequest {
    let mut dirs: BTreeMap<&str, Vec<TopicPartition>> = BTreeMap::new();
    for to in moves {
        dirs.entry(&to.path).or_default().push(to.partition.clone());
    }
    let dirs = dirs.into_iter().map(|(path, partitions)| {
        let topics = topics_of(&partitions, |index, _| index).into_iter().map(|(name, parts)| {
            AlterReplicaLogDirTopic::default().with_name(name).with_partitions(parts)
        });
        AlterReplicaLogDir::default().with_path(text(path)).with_topics(topics.collect())
    });
    AlterReplicaLogDirsRequest::default().with_dirs(dirs.collect())
}

fn log_dirs(answer: DescribeLogDirsResponse) -> Vec<LogDir> {
    let dirs = answer.results.into_iter().map(|dir| {
        let path = dir.log_dir.to_string();
        let mut replicas = BTreeMap::new();
        for topic in &dir.topics {
            for partition in &topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                let replica = LogDirReplica {
                    size: u64::try_from(partition.partition_size).unwrap_or(0),
                    offset_lag: partition.offset_lag,
                    is_future: partition.is_future_key,
                };
                replicas.insert(at, replica);
            }
        }
        LogDir {
            state: ErrorCode(dir.error_code).ok().map_err(|code| broker_error(&path, code, None)),
            path,
            replicas,
            total_bytes: u64::try_from(dir.total_bytes).ok(),
            usable_bytes: u64::try_from(dir.usable_bytes).ok(),
        }
    });
    dirs.collect()
}
