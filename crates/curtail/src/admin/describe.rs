//! Read-only calls that Metadata serves: lists and descriptions.

use std::collections::BTreeSet;

use curtail_wire::{
    ApiKey, ErrorCode, Uuid,
    metadata::{
        self, MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponse,
        MetadataTopic,
    },
};

use super::{
    Admin, BrokerDescription, Call, ClusterDescription, Each, PartitionDescription, Target,
    TopicDescription, TopicListing, broker_error, id_error, topic_error,
};
use crate::{Error, Result};

impl Admin {
    /// Returns all topics, by name.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn list_topics(&self) -> Call<'_, Vec<TopicListing>> {
        Box::pin(async move {
            let what = "the list of topics (default.api.timeout.ms)";
            let answer = self.retried(what, |_| self.metadata(None)).await?;
            let mut topics: Vec<TopicListing> = answer
                .topics
                .into_iter()
                .filter(|topic| topic.error.is_none())
                .filter_map(|topic| {
                    Some(TopicListing {
                        name: topic.name?,
                        id: known_id(topic.topic_id),
                        internal: topic.is_internal,
                        partitions: topic.partitions.len(),
                    })
                })
                .collect();
            topics.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(topics)
        })
    }

    /// Returns topics with their partitions, or an error for each topic that cannot be described. A repeated name has one
    /// result.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_topics<'a>(
        &'a self,
        names: &'a [&'a str],
    ) -> Call<'a, Each<String, TopicDescription>> {
        Box::pin(async move {
            let what = "the description of topics (default.api.timeout.ms)";
            let mut answer = self.retried(what, |_| self.metadata(Some(names))).await?;
            let mut take = |name: &str| {
                let at = answer.topics.iter().position(|t| t.name.as_deref() == Some(name));
                match at.map(|at| answer.topics.swap_remove(at)) {
                    Some(topic) if topic.error.is_none() => Ok(describe(name, topic)),
                    Some(topic) => Err(topic_error(name, topic.error, None)),
                    None => Err(topic_error(name, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, None)),
                }
            };
            Ok(once(names).map(|name| ((*name).to_owned(), take(name))).collect())
        })
    }

    /// Returns topics with their partitions by the topics' ids. A topic that was deleted and created again has another
    /// id.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// let topics = admin.list_topics().await?;
    /// let ids: Vec<_> = topics.iter().filter_map(|topic| topic.id).collect();
    /// for (id, topic) in admin.describe_topics_by_id(&ids).await? {
    ///     println!("{id}: {}", topic?.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or the broker has no version 12 of Metadata.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_topics_by_id<'a>(
        &'a self,
        ids: &'a [Uuid],
    ) -> Call<'a, Each<Uuid, TopicDescription>> {
        Box::pin(async move {
            let what = "the description of topics (default.api.timeout.ms)";
            let mut answer = self.retried(what, |_| self.metadata_by_id(ids)).await?;
            let mut take = |id: Uuid| {
                let at = answer.topics.iter().position(|t| t.topic_id == id);
                let Some(at) = at.filter(|_| !id.is_zero()) else {
                    return Err(id_error(id, ErrorCode::UNKNOWN_TOPIC_ID, None));
                };
                let mut topic = answer.topics.swap_remove(at);
                topic.error.ok().map_err(|code| id_error(id, code, None))?;
                let name = topic.name.take().unwrap_or_default();
                Ok(describe(&name, topic))
            };
            Ok(once(ids).map(|id| (*id, take(*id))).collect())
        })
    }

    /// Returns the cluster's id, controller and live brokers.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_cluster(&self) -> Call<'_, ClusterDescription> {
        Box::pin(async move {
            let what = "the description of the cluster (default.api.timeout.ms)";
            Ok(describe_cluster(self.retried(what, |_| self.metadata(Some(&[]))).await?))
        })
    }

    /// Sends one request to any broker; `None` requests all topics. Never creates topics.
    pub(super) async fn metadata(&self, names: Option<&[&str]>) -> Result<MetadataResponse> {
        let topic = |name: &&str| MetadataRequestTopic {
            topic_id: Uuid::ZERO,
            name: Some((*name).to_owned()),
        };
        let topics = names.map(|names| names.iter().map(topic).collect());
        // Before version 1 an empty list requests all topics; before 4 a request creates them.
        self.metadata_of(topics, 4).await
    }

    async fn metadata_by_id(&self, ids: &[Uuid]) -> Result<MetadataResponse> {
        let topic = |id: &Uuid| MetadataRequestTopic { topic_id: *id, name: None };
        // Zero is no id, and brokers refuse the whole request for it.
        let topics = once(ids).filter(|id| !id.is_zero()).map(topic).collect();
        // Versions 10 and 11 have ids in the request, but no broker implements them (MetadataRequest.json).
        self.metadata_of(Some(topics), 12).await
    }

    async fn metadata_of(
        &self,
        topics: Option<Vec<MetadataRequestTopic>>,
        from: i16,
    ) -> Result<MetadataResponse> {
        let request =
            MetadataRequest { topics, allow_auto_topic_creation: false, ..Default::default() };
        let versions = from..=*metadata::VERSIONS.end();
        let mut connection = self.connection(Target::Any, &[]).await?;
        let (version, body) = connection
            .request_hot(ApiKey::METADATA, versions, |version, w| request.encode(version, w))
            .await?;
        let answer =
            MetadataResponse::decode(version, &body).map_err(|e| connection.protocol_error(e))?;
        self.keep(Target::Any, connection);
        match answer.error.ok() {
            Ok(()) => Ok(answer),
            Err(code) => Err(broker_error("metadata", code, None)),
        }
    }

    /// Sends one request. Returns the controller and the cluster's brokers.
    pub(super) async fn controller(&self) -> Result<(i32, Vec<BrokerDescription>)> {
        let cluster = describe_cluster(self.metadata(Some(&[])).await?);
        let error = || {
            broker_error("controller", ErrorCode::NOT_CONTROLLER, Some("no controller is known"))
        };
        Ok((cluster.controller.ok_or_else(error)?, cluster.brokers))
    }
}

/// Each item once, in order.
fn once<T: Ord>(items: &[T]) -> impl Iterator<Item = &T> {
    let mut seen = BTreeSet::new();
    items.iter().filter(move |item| seen.insert(*item))
}

pub(super) fn describe_cluster(answer: MetadataResponse) -> ClusterDescription {
    let mut brokers: Vec<BrokerDescription> = answer
        .brokers
        .into_iter()
        .filter_map(|broker| {
            Some(BrokerDescription {
                id: broker.node_id,
                host: broker.host,
                port: u16::try_from(broker.port).ok()?,
                rack: broker.rack,
            })
        })
        .collect();
    brokers.sort_by_key(|broker| broker.id);
    ClusterDescription {
        cluster_id: answer.cluster_id,
        controller: known(answer.controller_id),
        brokers,
    }
}

fn describe(name: &str, topic: MetadataTopic) -> TopicDescription {
    let mut partitions: Vec<PartitionDescription> =
        topic.partitions.into_iter().map(describe_partition).collect();
    partitions.sort_by_key(|partition| partition.partition);
    TopicDescription {
        name: name.to_owned(),
        id: known_id(topic.topic_id),
        internal: topic.is_internal,
        partitions,
    }
}

fn describe_partition(partition: MetadataPartition) -> PartitionDescription {
    PartitionDescription {
        partition: partition.index,
        leader: known(partition.leader_id),
        leader_epoch: known(partition.leader_epoch),
        replicas: partition.replicas,
        isr: partition.isr,
        offline: partition.offline_replicas,
    }
}

fn known(id: i32) -> Option<i32> {
    (id >= 0).then_some(id)
}

fn known_id(id: Uuid) -> Option<Uuid> {
    (!id.is_zero()).then_some(id)
}

/// The leader in a description.
pub(super) fn leader_of(topic: &MetadataTopic, partition: i32) -> Result<i32> {
    let name = topic.name.as_deref().unwrap_or_default();
    if topic.error.is_error() {
        return Err(topic_error(name, topic.error, None));
    }
    let Some(found) = topic.partitions.iter().find(|p| p.index == partition) else {
        let partitions = topic.partitions.len();
        return Err(Error::UnknownPartition { topic: name.into(), partition, partitions });
    };
    known(found.leader_id).ok_or_else(|| {
        broker_error(&format!("{name}-{partition}"), ErrorCode::LEADER_NOT_AVAILABLE, None)
    })
}
