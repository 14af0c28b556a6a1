//! Arguments and results of [`crate::Admin`].

use std::collections::BTreeMap;

use curtail_wire::Uuid;

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewTopic {
    /// Name.
    pub name: String,
    /// Number of partitions; -1 for the brokers' `num.partitions`.
    pub partitions: i32,
    /// Number of replicas of each partition; -1 for the brokers' `default.replication.factor`.
    pub replication_factor: i16,
    /// Settings of the topic by name, such as `retention.ms`.
    pub configs: BTreeMap<String, String>,
}

impl NewTopic {
    /// A topic with the brokers' defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), partitions: -1, replication_factor: -1, configs: BTreeMap::new() }
    }

    /// Sets the number of partitions.
    #[must_use]
    pub fn partitions(mut self, partitions: i32) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets the number of replicas of each partition.
    #[must_use]
    pub fn replication_factor(mut self, replicas: i16) -> Self {
        self.replication_factor = replicas;
        self
    }

    /// Sets one of the topic's settings.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.insert(name.into(), value.into());
        self
    }
}

/// Whether a call applies changes or only validates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Applies the changes.
    Apply,
    /// Validates, and changes nothing.
    Validate,
}

impl Mode {
    pub(super) fn validates(self) -> bool {
        self == Self::Validate
    }
}

/// Additional partitions for a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewPartitions {
    /// The topic.
    pub topic: String,
    /// New total number of partitions, including the existing ones.
    pub total: i32,
    /// Broker ids of the replicas of each added partition, the preferred leader first. The brokers place the replicas
    /// if `None`.
    pub replicas: Option<Vec<Vec<i32>>>,
}

impl NewPartitions {
    /// Partitions whose replicas the brokers place.
    pub fn new(topic: impl Into<String>, total: i32) -> Self {
        Self { topic: topic.into(), total, replicas: None }
    }

    /// Sets the replicas of each added partition.
    #[must_use]
    pub fn replicas(mut self, replicas: impl IntoIterator<Item = Vec<i32>>) -> Self {
        self.replicas = Some(replicas.into_iter().collect());
        self
    }
}

/// A topic in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicListing {
    /// Name.
    pub name: String,
    /// Id; `None` if the brokers keep none.
    pub id: Option<Uuid>,
    /// Whether the topic is internal to Kafka.
    pub internal: bool,
    /// Number of partitions.
    pub partitions: usize,
}

/// A topic described.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Name.
    pub name: String,
    /// Id; `None` if the brokers keep none.
    pub id: Option<Uuid>,
    /// Whether the topic is internal to Kafka.
    pub internal: bool,
    /// Partitions by index.
    pub partitions: Vec<PartitionDescription>,
}

/// A partition described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDescription {
    /// Partition index.
    pub partition: i32,
    /// Broker id of the leader; `None` while the partition has no leader.
    pub leader: Option<i32>,
    /// Leader epoch; `None` if the brokers do not report it.
    pub leader_epoch: Option<i32>,
    /// Broker ids of the replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Broker ids of the in-sync replicas.
    pub isr: Vec<i32>,
    /// Broker ids of the offline replicas.
    pub offline: Vec<i32>,
}

/// The cluster described.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterDescription {
    /// The cluster's id, if it has one.
    pub cluster_id: Option<String>,
    /// Broker id of the controller, or of a broker that forwards requests to it; `None` while there is none.
    pub controller: Option<i32>,
    /// Live brokers by id.
    pub brokers: Vec<BrokerDescription>,
}

/// A broker described.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerDescription {
    /// Broker id.
    pub id: i32,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Rack, if configured.
    pub rack: Option<String>,
}
