//! ListOffsets, key 2, versions 1 to 11.
//!
//! - Earliest (-2) and the start of the local log (-4): the log start offset, as nothing is tiered.
//! - Latest (-1): the high watermark, or the last stable offset for READ_COMMITTED.
//! - Largest timestamp (-3): the record with it.
//! - A timestamp: the first record at or after it.
//! - The end of the tiered log (-5) and of what awaits its upload (-6, version 11) do not exist.
//!
//! The response of a newly elected leader is OFFSET_NOT_AVAILABLE until its high watermark has
//! passed the start of its epoch (KIP-207); before version 5 it is LEADER_NOT_AVAILABLE.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        ListOffsetsRequest, ListOffsetsResponse,
        list_offsets_request::ListOffsetsPartition,
        list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
    },
    fetch::IsolationLevel,
};

use super::{Answer, Call, Item};
use crate::{
    acl::{Operation, Resource},
    replica::partition::{NotServed, OffsetSpec},
};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: ListOffsetsRequest = call.decode(body)?;
    let isolation = match request.isolation_level {
        1 => IsolationLevel::ReadCommitted,
        _ => IsolationLevel::ReadUncommitted,
    };
    let consumer = (request.replica_id.0 < 0).then_some(isolation);
    call.concerns(request.topics.iter().map(|topic| topic.partitions.len()).sum());
    let topics = request.topics.iter().map(|topic| {
        let partitions =
            topic.partitions.iter().map(|asked| one(call, &topic.name.0, asked, consumer));
        ListOffsetsTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    let response = ListOffsetsResponse::default().with_topics(topics.collect());
    call.answer(&response, out)
}

fn one(
    call: &Call<'_>,
    topic: &str,
    asked: &ListOffsetsPartition,
    consumer: Option<IsolationLevel>,
) -> ListOffsetsPartitionResponse {
    let found = find(call, topic, asked, consumer);
    let response =
        ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
    match found {
        Ok((offset, timestamp, epoch)) => response
            .with_offset(offset)
            .with_timestamp(timestamp)
            .with_leader_epoch(if call.version() >= 4 { epoch } else { -1 }),
        Err(refused) => {
            let code = match refused.code {
                ErrorCode::OFFSET_NOT_AVAILABLE if call.version() < 5 => {
                    ErrorCode::LEADER_NOT_AVAILABLE
                }
                code => code,
            };
            response.with_error_code(code.0).with_offset(-1).with_timestamp(-1)
        }
    }
}

fn find(
    call: &Call<'_>,
    topic: &str,
    asked: &ListOffsetsPartition,
    consumer: Option<IsolationLevel>,
) -> Result<(i64, i64, i32), NotServed> {
    call.require(Operation::Describe, Resource::Topic(topic))?;
    call.injected(Item::Partition(topic, asked.partition_index))?;
    let spec = match asked.timestamp {
        -1 => OffsetSpec::Latest,
        -2 | -4 => OffsetSpec::Earliest,
        -3 => OffsetSpec::MaxTimestamp,
        -5 => return Ok((-1, -1, -1)),
        -6 if call.version() >= 11 => return Ok((-1, -1, -1)),
        at if at >= 0 => OffsetSpec::Timestamp(at),
        _ => return Err(NotServed::code(ErrorCode::UNSUPPORTED_VERSION)),
    };
    let partition = call.replica_by_name(topic, asked.partition_index)?;
    partition.offset_for(spec, asked.current_leader_epoch, consumer)
}
