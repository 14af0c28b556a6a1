//! Topics and their partitions, as the brokers describe them.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use curtail_proto::{later::Later, metadata::Leader};
use curtail_wire::{
    ApiKey, Uuid,
    metadata::{self, MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponse},
};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Consumer, shared::Shared};
use crate::{Error, Result, runtime::within};

/// A partition as [`Consumer::partitions_for`] describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionInfo {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition index.
    pub partition: i32,
    /// Broker id of the leader; `None` while the partition has no leader.
    pub leader: Option<i32>,
    /// Leader epoch; `None` if the brokers do not report it.
    pub leader_epoch: Option<i32>,
}

impl Consumer {
    /// The partitions of a topic.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`] or [`Error::Unreachable`] after `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn partitions_for(&self, topic: &str) -> Result<Vec<PartitionInfo>> {
        let deadline = Instant::now().later(self.shared.config.common.default_api_timeout);
        let known = self.shared.metadata.topic(topic, deadline);
        let topic = within(&self.shared.runtime, known).await??;
        let describe = |(index, leader): (usize, &Leader)| PartitionInfo {
            topic: topic.name.clone(),
            partition: index as i32,
            leader: (leader.id >= 0).then_some(leader.id),
            leader_epoch: (leader.epoch >= 0).then_some(leader.epoch),
        };
        Ok(topic.leaders.iter().enumerate().map(describe).collect())
    }

    /// All topics that the client may describe, with their partitions.
    ///
    /// # Errors
    /// [`Error::Timeout`] if no broker responds within `default.api.timeout.ms`, with the last error.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn list_topics(&self) -> Result<BTreeMap<Arc<str>, Vec<PartitionInfo>>> {
        let answer = within(&self.shared.runtime, list_until_deadline(&self.shared)).await??;
        let topics = answer.topics.into_iter().filter(|topic| topic.error.is_none());
        let described = topics.filter_map(|topic| {
            let name: Arc<str> = topic.name?.into();
            let described = |partition: &MetadataPartition| PartitionInfo {
                topic: name.clone(),
                partition: partition.index,
                leader: (partition.leader_id >= 0).then_some(partition.leader_id),
                leader_epoch: (partition.leader_epoch >= 0).then_some(partition.leader_epoch),
            };
            let partitions = topic.partitions.iter().map(described).collect();
            Some((name.clone(), partitions))
        });
        Ok(described.collect())
    }
}

async fn list_until_deadline(shared: &Shared) -> Result<MetadataResponse> {
    let limit = shared.config.common.default_api_timeout;
    let deadline = Instant::now().later(limit);
    let (mut failures, mut last) = (0, None);
    loop {
        match timeout_at(deadline, list(shared)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if error.needs_other_settings() => return Err(error),
            Ok(Err(error)) => last = Some(Arc::new(error)),
            Err(_) => {}
        }
        failures += 1;
        let pause = shared.backoff(failures);
        if Instant::now().later(pause) >= deadline {
            let what = "Metadata of all topics (default.api.timeout.ms)";
            return Err(Error::Timeout { what, limit, last });
        }
        sleep(pause).await;
    }
}

/// Lists all topics.
pub(super) async fn list(shared: &Shared) -> Result<MetadataResponse> {
    ask_for_topics(shared, metadata::VERSIONS, &MetadataRequest::default()).await
}

/// Returns the names of topics that the brokers know.
pub(super) async fn names_of(shared: &Shared, ids: &[Uuid]) -> Result<Vec<(Uuid, Arc<str>)>> {
    /// First version in which a request by id may omit the name.
    const BY_ID: i16 = 12;
    let topics = ids.iter().map(|id| MetadataRequestTopic { topic_id: *id, name: None }).collect();
    let request = MetadataRequest { topics: Some(topics), ..MetadataRequest::default() };
    let answer = ask_for_topics(shared, BY_ID..=*metadata::VERSIONS.end(), &request).await?;
    let named = answer.topics.into_iter().filter(|topic| topic.error.is_none());
    Ok(named.filter_map(|topic| Some((topic.topic_id, topic.name?.into()))).collect())
}

async fn ask_for_topics(
    shared: &Shared,
    versions: RangeInclusive<i16>,
    request: &MetadataRequest,
) -> Result<MetadataResponse> {
    let mut connection = shared.metadata.connect_any().await?;
    let (version, body) = connection
        .request_hot(ApiKey::METADATA, versions, |version, w| request.encode(version, w))
        .await?;
    MetadataResponse::decode(version, &body).map_err(|e| connection.protocol_error(e))
}
