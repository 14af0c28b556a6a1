//! OffsetDelete, key 47, version 0. Partitions that do not exist are refused, and so are those of topics to which the
//! group subscribes.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        OffsetDeleteRequest, OffsetDeleteResponse,
        offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic},
    },
};

use super::{Answer, Call};
use crate::{
    acl::{Operation, Resource},
    coordinator::{groups::AnyGroup, offsets::TopicPartition},
};

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: OffsetDeleteRequest = call.decode(body)?;
    let response = match delete(call, &request).await {
        Err(code) => OffsetDeleteResponse::default().with_error_code(code.0),
        Ok(codes) => {
            let mut codes = codes.into_iter();
            let topics = request.topics.iter().map(|topic| {
                let partitions =
                    topic.partitions.iter().zip(&mut codes).map(|(partition, code)| {
                        OffsetDeleteResponsePartition::default()
                            .with_partition_index(partition.partition_index)
                            .with_error_code(code.0)
                    });
                OffsetDeleteResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions.collect())
            });
            OffsetDeleteResponse::default().with_topics(topics.collect())
        }
    };
    call.answer(&response, out)
}

/// Deletes the offsets that may be deleted. Returns the error code of each partition, in the order of the request. As
/// in Kafka, a partition without an offset has no error.
async fn delete(
    call: &Call<'_>,
    request: &OffsetDeleteRequest,
) -> Result<Vec<ErrorCode>, ErrorCode> {
    let id = &request.group_id.0;
    call.require(Operation::Delete, Resource::Group(id))?;
    let asked = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|p| (topic.name.0.to_string(), p.partition_index))
    });
    let asked: Vec<TopicPartition> = asked.collect();
    // Decided once: the metadata may change before the response.
    let checked: Vec<_> = asked.iter().map(|(topic, index)| check(call, topic, *index)).collect();
    let groups = call.groups(id)?;
    let (codes, taken) = groups.run(call.broker, |groups, cx| {
        let group = groups.group(id).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        if let AnyGroup::Classic(group) = group {
            group.may_delete_offsets()?;
        }
        let subscribed = group.subscribed();
        let code = |((topic, _), checked): (&TopicPartition, &Result<(), ErrorCode>)| match checked
        {
            Err(code) => *code,
            Ok(()) if subscribed.as_ref().is_none_or(|topics| topics.contains(topic)) => {
                ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
            }
            Ok(()) => ErrorCode::NONE,
        };
        let codes: Vec<ErrorCode> = asked.iter().zip(&checked).map(code).collect();
        let allowed = asked.iter().zip(&codes).filter(|(_, code)| !code.is_error());
        let allowed: Vec<TopicPartition> = allowed.map(|(at, _)| at.clone()).collect();
        let taken = groups.delete_offsets(id, &allowed, cx)?;
        Ok((codes, taken))
    })??;
    if let Some(taken) = taken {
        let timeout = call.broker.config.offsets_commit_timeout;
        groups.committed(call.broker, &taken, timeout).await?;
    }
    Ok(codes)
}

/// Checks that the client may read the topic, and that the partition exists.
fn check(call: &Call<'_>, topic: &str, index: i32) -> Result<(), ErrorCode> {
    call.require(Operation::Read, Resource::Topic(topic))?;
    match call.broker.image().has_partition(topic, index) {
        true => Ok(()),
        false => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    }
}
