//! Faults in the content of responses: damaged records and wrong leaders.

use bytes::{Bytes, BytesMut};
use curtail_wire::{
    ErrorCode,
    produce::{LeaderIdAndEpoch, NodeEndpoint},
    records::batches,
};

use super::WrongLeader;

/// Returns the length of the first batch, if the records have all of it: a batch that does not end in the
/// response is no damage to its reader.
pub(crate) fn first_batch_end(records: &Bytes) -> Option<usize> {
    Some(batches(records.clone()).next()?.ok()?.header.size_in_bytes())
}

/// Returns the records with a flipped bit in the first batch, which ends at `end`.
pub(crate) fn damaged(records: &Bytes, end: usize) -> Bytes {
    let mut records = BytesMut::from(&records[..]);
    // The CRC covers the end of a batch.
    records[end - 1] ^= 1;
    records.freeze()
}

/// Whether a response names the leader with this error.
pub(crate) fn names_leader(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH)
}

impl WrongLeader {
    /// Returns the leader to name instead of the right one, and its endpoint if the fault has one.
    pub(crate) fn misname(
        &self,
        right: LeaderIdAndEpoch,
    ) -> (LeaderIdAndEpoch, Option<NodeEndpoint>) {
        let leader = LeaderIdAndEpoch {
            leader_id: self.leader.unwrap_or(right.leader_id),
            leader_epoch: right.leader_epoch.saturating_add(self.epoch_shift),
        };
        let endpoint = self.address.map(|address| NodeEndpoint {
            node_id: leader.leader_id,
            host: address.ip().to_string(),
            port: i32::from(address.port()),
            rack: None,
        });
        (leader, endpoint)
    }
}
