//! OffsetFetch, key 9, versions 1 to 9; from version 8 on for many groups.
//!
//! All returned offsets are on all in-sync replicas. From version 7 on a consumer may require
//! stable offsets: those with a pending replacement in an open transaction return
//! UNSTABLE_OFFSET_COMMIT (KIP-447). From version 9 on a member of the consumer protocol sends its
//! epoch (KIP-848). Groups and partitions without an offset return -1.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        GroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName,
        offset_fetch_request::OffsetFetchRequestTopics,
        offset_fetch_response::{
            OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
            OffsetFetchResponseTopic, OffsetFetchResponseTopics,
        },
    },
};

use super::{Answer, Call, Item, text};
use crate::{
    acl::{Operation, Resource},
    coordinator::offsets::{Offsets, TopicPartition},
};

/// The requesting member's id and epoch, or none and -1.
type Member = (Option<String>, i32);

/// First version for many groups.
const BATCHED: i16 = 8;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: OffsetFetchRequest = call.decode(body)?;
    let stable = request.require_stable;
    if call.version() >= BATCHED {
        call.concerns(request.groups.len());
        let mut groups = Vec::with_capacity(request.groups.len());
        for group in request.groups {
            let member = (group.member_id.as_deref().map(str::to_owned), group.member_epoch);
            groups.push(fetch(call, group.group_id, group.topics, member, stable).await);
        }
        return call.answer(&OffsetFetchResponse::default().with_groups(groups), out);
    }
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| {
            OffsetFetchRequestTopics::default()
                .with_name(topic.name)
                .with_partition_indexes(topic.partition_indexes)
        });
        topics.collect()
    });
    let group = fetch(call, request.group_id, topics, (None, -1), stable).await;
    call.answer(&single(call.version(), &group), out)
}

/// Returns the response in the format before version 8.
fn single(version: i16, group: &OffsetFetchResponseGroup) -> OffsetFetchResponse {
    let partition = |p: &OffsetFetchResponsePartitions| {
        OffsetFetchResponsePartition::default()
            .with_partition_index(p.partition_index)
            .with_committed_offset(p.committed_offset)
            .with_committed_leader_epoch(p.committed_leader_epoch)
            .with_metadata(p.metadata.clone())
            .with_error_code(p.error_code)
    };
    let topics = group.topics.iter().map(|topic| {
        OffsetFetchResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(topic.partitions.iter().map(partition).collect())
    });
    let response = OffsetFetchResponse::default().with_topics(topics.collect());
    // Version 1 has errors of partitions only.
    if version >= 2 { response.with_error_code(group.error_code) } else { response }
}

async fn fetch(
    call: &Call<'_>,
    id: GroupId,
    topics: Option<Vec<OffsetFetchRequestTopics>>,
    member: Member,
    stable: bool,
) -> OffsetFetchResponseGroup {
    let response = OffsetFetchResponseGroup::default().with_group_id(id.clone());
    match found(call, &id, topics.as_deref(), &member, stable).await {
        Ok(topics) => response.with_topics(topics),
        Err(code) => {
            let asked = topics.unwrap_or_default();
            let topics = asked.iter().map(|topic| {
                let none = |index: &i32| nothing(*index, code);
                topic_of(&topic.name.0, topic.partition_indexes.iter().map(none).collect())
            });
            response.with_error_code(code.0).with_topics(topics.collect())
        }
    }
}

async fn found(
    call: &Call<'_>,
    id: &GroupId,
    topics: Option<&[OffsetFetchRequestTopics]>,
    (member_id, epoch): &Member,
    stable: bool,
) -> Result<Vec<OffsetFetchResponseTopics>, ErrorCode> {
    call.require(Operation::Describe, Resource::Group(&id.0))?;
    call.injected(Item::Request)?;
    let groups = call.groups(&id.0)?;
    let mut found = groups.run(call.broker, |groups, _| {
        groups.may_fetch(&id.0, member_id.as_deref(), *epoch)?;
        let none = Offsets::default();
        let offsets = groups.offsets(&id.0).unwrap_or(&none);
        Ok(match topics {
            Some(topics) => topics
                .iter()
                .map(|topic| {
                    let one = |index: &i32| {
                        partition(offsets, &(topic.name.0.to_string(), *index), stable)
                    };
                    topic_of(&topic.name.0, topic.partition_indexes.iter().map(one).collect())
                })
                .collect(),
            None => all(offsets, stable),
        })
    })??;
    let allowed = |topic: &str| call.require(Operation::Describe, Resource::Topic(topic));
    if topics.is_none() {
        found.retain(|topic| allowed(&topic.name.0).is_ok());
    }
    for topic in &mut found {
        if let Err(code) = allowed(&topic.name.0) {
            let asked = topic.partitions.iter().map(|partition| partition.partition_index);
            topic.partitions = asked.map(|index| nothing(index, code)).collect();
        }
    }
    // Waits until the offsets just read are replicated: the response must stay true if this broker fails.
    groups.settled(call.broker, call.broker.config.offsets_commit_timeout).await?;
    Ok(found)
}

fn all(offsets: &Offsets, stable: bool) -> Vec<OffsetFetchResponseTopics> {
    let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
    let mut known: Vec<&TopicPartition> = offsets.all().map(|(at, _)| at).collect();
    if stable {
        known.extend(offsets.only_pending());
        known.sort_unstable();
    }
    for at in known {
        let partition = partition(offsets, at, stable);
        match topics.last_mut().filter(|topic| topic.name.0.as_str() == at.0) {
            Some(topic) => topic.partitions.push(partition),
            None => topics.push(topic_of(&at.0, vec![partition])),
        }
    }
    topics
}

fn topic_of(
    name: &str,
    partitions: Vec<OffsetFetchResponsePartitions>,
) -> OffsetFetchResponseTopics {
    OffsetFetchResponseTopics::default()
        .with_name(TopicName(text(name)))
        .with_partitions(partitions)
}

fn partition(
    offsets: &Offsets,
    at: &TopicPartition,
    stable: bool,
) -> OffsetFetchResponsePartitions {
    if stable && offsets.is_pending(at) {
        return nothing(at.1, ErrorCode::UNSTABLE_OFFSET_COMMIT);
    }
    match offsets.get(at) {
        None => nothing(at.1, ErrorCode::NONE),
        Some(value) => OffsetFetchResponsePartitions::default()
            .with_partition_index(at.1)
            .with_committed_offset(value.offset)
            .with_committed_leader_epoch(value.leader_epoch)
            .with_metadata(Some(text(&value.metadata))),
    }
}

fn nothing(index: i32, code: ErrorCode) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions::default()
        .with_partition_index(index)
        .with_committed_offset(-1)
        .with_committed_leader_epoch(-1)
        .with_metadata(Some(text("")))
        .with_error_code(code.0)
}
