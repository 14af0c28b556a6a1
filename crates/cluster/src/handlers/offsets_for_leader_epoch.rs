//! OffsetsForLeaderEpoch, key 23, versions 2 to 4.
//!
//! Returns the largest epoch up to the requested one and its end offset, or -1 and -1 if there is
//! none (KIP-320).

use bytes::Bytes;
use curtail_wire::cold::messages::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
};

use super::{Answer, Call, Item};
use crate::acl::{Operation, Resource};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: OffsetForLeaderEpochRequest = call.decode(body)?;
    call.concerns(request.topics.iter().map(|topic| topic.partitions.len()).sum());
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let allowed = call.require(Operation::Describe, Resource::Topic(&topic.topic.0));
            let found = allowed
                .and_then(|()| call.injected(Item::Partition(&topic.topic.0, asked.partition)))
                .map_err(Into::into)
                .and_then(|()| call.replica_by_name(&topic.topic.0, asked.partition))
                .and_then(|partition| {
                    partition.end_of_epoch(asked.leader_epoch, asked.current_leader_epoch)
                });
            let response = EpochEndOffset::default().with_partition(asked.partition);
            match found {
                Ok((epoch, end)) => response.with_leader_epoch(epoch).with_end_offset(end),
                Err(refused) => response
                    .with_error_code(refused.code.0)
                    .with_leader_epoch(-1)
                    .with_end_offset(-1),
            }
        });
        OffsetForLeaderTopicResult::default()
            .with_topic(topic.topic.clone())
            .with_partitions(partitions.collect())
    });
    let response = OffsetForLeaderEpochResponse::default().with_topics(topics.collect());
    call.answer(&response, out)
}
