//! OffsetDelete, key 47, version 0. Offsets of topics to which the group subscribes stay.

use std::collections::BTreeSet;

use bytes::{Buf, Bytes};
use curtail_wire::{
    ErrorCode,
    cold::{
        self,
        messages::{
            ConsumerProtocolSubscription, OffsetDeleteRequest, OffsetDeleteResponse,
            offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic},
        },
    },
};

use super::{Answer, Call};
use crate::{
    acl::{Operation, Resource},
    coordinator::{group::Group, groups::AnyGroup, offsets::TopicPartition},
};

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: OffsetDeleteRequest = call.decode(body)?;
    let response = match delete(call, &request).await {
        Err(code) => OffsetDeleteResponse::default().with_error_code(code.0),
        Ok(subscribed) => {
            let topics = request.topics.iter().map(|topic| {
                let code = match allowed(call, &topic.name.0) {
                    Err(code) => code,
                    Ok(()) if subscribed.contains(topic.name.0.as_str()) => {
                        ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
                    }
                    Ok(()) => ErrorCode::NONE,
                };
                let partitions = topic.partitions.iter().map(|partition| {
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

fn allowed(call: &Call<'_>, topic: &str) -> Result<(), ErrorCode> {
    call.require(Operation::Read, Resource::Topic(topic))
}

/// Deletes the offsets that may be deleted. Returns the subscribed topics.
async fn delete(
    call: &Call<'_>,
    request: &OffsetDeleteRequest,
) -> Result<BTreeSet<String>, ErrorCode> {
    let id = &request.group_id.0;
    call.require(Operation::Delete, Resource::Group(id))?;
    let groups = call.groups(id)?;
    let (subscribed, taken) = groups.run(call.broker, |groups, cx| {
        let subscribed = match groups.group(id).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)? {
            AnyGroup::Classic(group) => {
                group.may_delete_offsets()?;
                subscriptions(group)
            }
            AnyGroup::Consumer(group) => {
                group.subscribed().into_iter().map(str::to_owned).collect()
            }
        };
        let topics = request.topics.iter().filter(|t| {
            !subscribed.contains(t.name.0.as_str()) && allowed(call, &t.name.0).is_ok()
        });
        let partitions: Vec<TopicPartition> = topics
            .flat_map(|t| t.partitions.iter().map(|p| (t.name.0.to_string(), p.partition_index)))
            .collect();
        let taken = groups.delete_offsets(id, &partitions, cx)?;
        Ok((subscribed, taken))
    })??;
    if let Some(taken) = taken {
        let timeout = call.broker.config.offsets_commit_timeout;
        groups.committed(call.broker, &taken, timeout).await?;
    }
    Ok(subscribed)
}

/// Returns the subscribed topics of a group of consumers.
fn subscriptions(group: &Group) -> BTreeSet<String> {
    let topics = group.subscriptions().filter_map(|mut metadata| {
        let version = metadata.try_get_i16().ok()?;
        let newest = <ConsumerProtocolSubscription as cold::Message>::VERSIONS.max;
        // Later versions only add fields at the end, which are not needed.
        let version = version.clamp(0, newest);
        let subscription: ConsumerProtocolSubscription = cold::decode(version, metadata).ok()?;
        Some(subscription.topics)
    });
    topics.flatten().map(|topic| topic.to_string()).collect()
}
