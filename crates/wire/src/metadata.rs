//! Metadata (API key 3), versions 0 to 13: both directions, both sides.

use crate::{ErrorCode, Uuid};

mod codec;
#[cfg(test)]
mod tests;

/// Versions encoded and decoded here.
pub const VERSIONS: std::ops::RangeInclusive<i16> = 0..=13;

/// A client's request for metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataRequest {
    /// `None` requests every topic, an empty list none.
    pub topics: Option<Vec<MetadataRequestTopic>>,
    /// Whether a broker with auto-creation enabled may create missing topics (version 4 and later).
    pub allow_auto_topic_creation: bool,
    /// Version 8 to 10.
    pub include_cluster_authorized_operations: bool,
    /// Version 8 and later.
    pub include_topic_authorized_operations: bool,
}

/// One requested topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataRequestTopic {
    /// Topic id (version 10 and later), zero to request by name.
    pub topic_id: Uuid,
    /// Topic name; `None` to request by id.
    pub name: Option<String>,
}

/// A broker's view of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataResponse {
    /// Quota throttle, in milliseconds.
    pub throttle_time_ms: i32,
    /// Live brokers.
    pub brokers: Vec<MetadataBroker>,
    /// Cluster id.
    pub cluster_id: Option<String>,
    /// Controller's broker id, -1 if unknown.
    pub controller_id: i32,
    /// Requested topics.
    pub topics: Vec<MetadataTopic>,
    /// Bit field, `i32::MIN` if not requested (version 8 to 10).
    pub cluster_authorized_operations: i32,
    /// Error of the whole response (version 13, KIP-1102).
    pub error: ErrorCode,
}

/// A broker in a [`MetadataResponse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataBroker {
    /// Broker id.
    pub node_id: i32,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: i32,
    /// Rack, if configured.
    pub rack: Option<String>,
}

/// A topic in a [`MetadataResponse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataTopic {
    /// Error of the topic.
    pub error: ErrorCode,
    /// Name; `None` only if requested by an unknown id (version 12 and later).
    pub name: Option<String>,
    /// Topic id (version 10 and later), zero if unknown.
    pub topic_id: Uuid,
    /// Whether the topic belongs to Kafka itself.
    pub is_internal: bool,
    /// Partitions, in the broker's order.
    pub partitions: Vec<MetadataPartition>,
    /// Bit field, `i32::MIN` if not requested.
    pub authorized_operations: i32,
}

/// A partition in a [`MetadataTopic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPartition {
    /// Error of the partition.
    pub error: ErrorCode,
    /// Partition index.
    pub index: i32,
    /// Leader's broker id, -1 for none.
    pub leader_id: i32,
    /// Leader epoch (version 7 and later), -1 if unknown.
    pub leader_epoch: i32,
    /// Replicas' broker ids, preferred leader first.
    pub replicas: Vec<i32>,
    /// In-sync replicas' broker ids.
    pub isr: Vec<i32>,
    /// Offline replicas' broker ids (version 5 and later).
    pub offline_replicas: Vec<i32>,
}

/// Bit field of authorized operations that were not requested.
pub const NO_OPERATIONS: i32 = i32::MIN;

/// No broker, no topic, no controller.
impl Default for MetadataResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            brokers: Vec::new(),
            cluster_id: None,
            controller_id: -1,
            topics: Vec::new(),
            cluster_authorized_operations: NO_OPERATIONS,
            error: ErrorCode::NONE,
        }
    }
}

/// No name, no id, no partition.
impl Default for MetadataTopic {
    fn default() -> Self {
        Self {
            error: ErrorCode::NONE,
            name: None,
            topic_id: Uuid::ZERO,
            is_internal: false,
            partitions: Vec::new(),
            authorized_operations: NO_OPERATIONS,
        }
    }
}

/// Partition 0 without leader, epoch and replicas.
impl Default for MetadataPartition {
    fn default() -> Self {
        Self {
            error: ErrorCode::NONE,
            index: 0,
            leader_id: -1,
            leader_epoch: -1,
            replicas: Vec::new(),
            isr: Vec::new(),
            offline_replicas: Vec::new(),
        }
    }
}
