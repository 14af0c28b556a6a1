//! Produce (API key 0), versions 3 to 13: both directions, both sides.

use bytes::Bytes;

use crate::{ErrorCode, Uuid};

mod codec;
mod frame;
#[cfg(test)]
pub(crate) mod tests;

pub use frame::{OutBatch, RequestHead};

/// Versions encoded and decoded here.
pub const VERSIONS: std::ops::RangeInclusive<i16> = 3..=13;

/// A client's request to append records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceRequest {
    /// `None` outside transactions.
    pub transactional_id: Option<String>,
    /// 0, 1 or -1 (all in-sync replicas).
    pub acks: i16,
    /// How long the leader may wait for its followers, in milliseconds.
    pub timeout_ms: i32,
    /// Topics in the order of the request.
    pub topics: Vec<ProduceTopic>,
}

/// The partitions of one topic in a [`ProduceRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceTopic {
    /// Topic name; empty from version 13, which names topics by id.
    pub name: String,
    /// Topic id; zero before version 13.
    pub topic_id: Uuid,
    /// Batches by partition.
    pub partitions: Vec<ProducePartition>,
}

/// One partition's batch in a [`ProduceRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducePartition {
    /// Partition index.
    pub index: i32,
    /// The records section: exactly one v2 batch from version 3 on. `None` is legal on the wire.
    pub records: Option<Bytes>,
}

/// The response to a [`ProduceRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceResponse {
    /// Results by topic.
    pub topics: Vec<ProduceTopicResponse>,
    /// Quota throttle, in milliseconds.
    pub throttle_time_ms: i32,
    /// Endpoints of the leaders named in the response (KIP-951, version 10 and later).
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// The results of one topic in a [`ProduceResponse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceTopicResponse {
    /// Topic name; empty from version 13.
    pub name: String,
    /// Topic id; zero before version 13.
    pub topic_id: Uuid,
    /// Results by partition.
    pub partitions: Vec<ProducePartitionResponse>,
}

/// The result of one partition in a [`ProduceResponse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducePartitionResponse {
    /// Partition index.
    pub index: i32,
    /// Outcome of the batch.
    pub error: ErrorCode,
    /// Offset of the batch's first record, -1 on error.
    pub base_offset: i64,
    /// Append time in milliseconds for `LogAppendTime` topics, -1 otherwise.
    pub log_append_time_ms: i64,
    /// First offset of the log (version 5 and later), -1 if unknown.
    pub log_start_offset: i64,
    /// Records that caused the broker to refuse the batch (version 8 and later).
    pub record_errors: Vec<BatchIndexError>,
    /// Why the broker refused the batch (version 8 and later).
    pub error_message: Option<String>,
    /// The leader as known to the broker (KIP-951, version 10 and later).
    pub current_leader: Option<LeaderIdAndEpoch>,
}

/// One refused record in a [`ProducePartitionResponse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchIndexError {
    /// Index of the record in its batch.
    pub batch_index: i32,
    /// Why it was refused.
    pub message: Option<String>,
}

/// A partition's leader and its epoch, in a response with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH (KIP-951).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderIdAndEpoch {
    /// Broker id, -1 if unknown.
    pub leader_id: i32,
    /// Leader epoch, -1 if unknown.
    pub leader_epoch: i32,
}

/// Endpoint of a broker named in a response (KIP-951).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// Broker id.
    pub node_id: i32,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: i32,
    /// Rack, if configured.
    pub rack: Option<String>,
}

/// Partition 0 with all values unknown.
impl Default for ProducePartitionResponse {
    fn default() -> Self {
        Self {
            index: 0,
            error: ErrorCode::NONE,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }
}
