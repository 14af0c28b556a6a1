//! Fetch (API key 1), versions 4 to 18: both directions, both sides.

use bytes::Bytes;

pub use crate::produce::{LeaderIdAndEpoch, NodeEndpoint};
use crate::{ErrorCode, Uuid};

mod codec;
#[cfg(test)]
mod tests;

/// Versions encoded and decoded here.
pub const VERSIONS: std::ops::RangeInclusive<i16> = 4..=18;

/// A consumer's or a follower's request for records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The follower's broker id; -1 for consumers. Before version 15 it is the first field, from then on it is in the
    /// tagged replica state.
    pub replica_id: i32,
    /// The follower's broker epoch (version 15 and later), -1 otherwise.
    pub replica_epoch: i64,
    /// How long the broker may wait for `min_bytes`, in milliseconds.
    pub max_wait_ms: i32,
    /// Bytes to gather before the response.
    pub min_bytes: i32,
    /// Soft byte limit of the whole response.
    pub max_bytes: i32,
    /// Whether records of open transactions are withheld.
    pub isolation_level: IsolationLevel,
    /// Fetch session id (version 7 and later), 0 for none.
    pub session_id: i32,
    /// Epoch of the request in its session; -1 closes or goes without, 0 opens a session.
    pub session_epoch: i32,
    /// Partitions to fetch, or to add to and change in the session.
    pub topics: Vec<FetchTopic>,
    /// Partitions to drop from the session (version 7 and later).
    pub forgotten: Vec<ForgottenTopic>,
    /// The consumer's rack (version 11 and later), empty for none.
    pub rack_id: String,
}

/// `isolation.level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Everything up to the high watermark.
    #[default]
    ReadUncommitted,
    /// Only committed records, up to the last stable offset.
    ReadCommitted,
}

/// The partitions of one topic in a [`FetchRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchTopic {
    /// Topic name; empty from version 13, which names topics by id.
    pub name: String,
    /// Topic id; zero before version 13.
    pub topic_id: Uuid,
    /// Partitions.
    pub partitions: Vec<FetchPartition>,
}

/// One partition in a [`FetchRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// Partition index.
    pub index: i32,
    /// The leader epoch the reader knows (version 9 and later), -1 for none.
    pub current_leader_epoch: i32,
    /// First offset to read.
    pub fetch_offset: i64,
    /// Epoch of the reader's last record (version 12 and later), -1 for none.
    pub last_fetched_epoch: i32,
    /// The follower's log start (version 5 and later), -1 for consumers.
    pub log_start_offset: i64,
    /// Soft byte limit of this partition's records.
    pub max_bytes: i32,
}

/// Partitions of one topic dropped from a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgottenTopic {
    /// Topic name; empty from version 13.
    pub name: String,
    /// Topic id; zero before version 13.
    pub topic_id: Uuid,
    /// Partition indices.
    pub partitions: Vec<i32>,
}

/// The response to a [`FetchRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchResponse {
    /// Quota throttle, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole response, such as a session's (version 7 and later).
    pub error: ErrorCode,
    /// Fetch session id, 0 for none (version 7 and later).
    pub session_id: i32,
    /// Results by topic; in a session only changed partitions.
    pub topics: Vec<FetchTopicResponse>,
    /// Endpoints of the leaders named in the response (KIP-951, version 16 and later).
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// The results of one topic in a [`FetchResponse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchTopicResponse {
    /// Topic name; empty from version 13.
    pub name: String,
    /// Topic id; zero before version 13.
    pub topic_id: Uuid,
    /// Results by partition.
    pub partitions: Vec<FetchPartitionResponse>,
}

/// The result of one partition in a [`FetchResponse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartitionResponse {
    /// Partition index.
    pub index: i32,
    /// Outcome of the fetch.
    pub error: ErrorCode,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset, -1 if unknown.
    pub last_stable_offset: i64,
    /// First offset of the log (version 5 and later), -1 if unknown.
    pub log_start_offset: i64,
    /// Where the reader's log diverges from the leader's (KIP-595, version 12 and later).
    pub diverging_epoch: Option<EpochEndOffset>,
    /// The leader as known to the broker (KIP-951; the field exists from version 12).
    pub current_leader: Option<LeaderIdAndEpoch>,
    /// Aborted transactions of the returned range; `None` unless reading committed.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// Replica to prefer (KIP-392, version 11 and later), -1 for none.
    pub preferred_read_replica: i32,
    /// Records section: whole batches, the last one possibly cut.
    pub records: Bytes,
}

/// An epoch and the offset at which it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// Leader epoch.
    pub epoch: i32,
    /// First offset after it.
    pub end_offset: i64,
}

/// An aborted transaction in a [`FetchPartitionResponse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer's id.
    pub producer_id: i64,
    /// First offset of the transaction.
    pub first_offset: i64,
}

/// A consumer's sessionless request, for no partition and without limits.
impl Default for FetchRequest {
    fn default() -> Self {
        Self {
            replica_id: -1,
            replica_epoch: -1,
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: i32::MAX,
            isolation_level: IsolationLevel::ReadUncommitted,
            session_id: 0,
            session_epoch: -1,
            topics: Vec::new(),
            forgotten: Vec::new(),
            rack_id: String::new(),
        }
    }
}

/// Partition 0 from its first offset on, without epochs and limits.
impl Default for FetchPartition {
    fn default() -> Self {
        Self {
            index: 0,
            current_leader_epoch: -1,
            fetch_offset: 0,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            max_bytes: i32::MAX,
        }
    }
}

/// Partition 0 with all values unknown and no records.
impl Default for FetchPartitionResponse {
    fn default() -> Self {
        Self {
            index: 0,
            error: ErrorCode::NONE,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging_epoch: None,
            current_leader: None,
            aborted_transactions: None,
            preferred_read_replica: -1,
            records: Bytes::new(),
        }
    }
}
