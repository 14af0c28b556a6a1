//! OffsetCommit, key 8, versions 2 to 10; from version 10 on topics have ids instead of names (KIP-848).
//!
//! The response follows once all in-sync replicas have the offsets. Partitions that do not exist
//! and metadata that is too long are refused individually; a refusal of the group applies to the
//! rest. The retention time of versions 2 to 4 is ignored in favour of `offsets.retention.minutes`
//! (KIP-211).

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Uuid,
    cold::{
        messages::{
            OffsetCommitResponse, TopicName,
            offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
        },
        newer::OffsetCommitRequest,
    },
};

use super::{Answer, Call, Item, text};
use crate::{
    acl::{Operation, Resource},
    coordinator::{groups::Committer, offsets::TopicPartition, records::OffsetValue},
};

/// First version that names topics by id.
const TOPIC_IDS: i16 = 10;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: OffsetCommitRequest = call.decode(body)?;
    let group = call.require(Operation::Read, Resource::Group(&request.group_id));
    let mut offsets = Vec::new();
    // The error of each partition, in the order of the request.
    let mut refused = Vec::new();
    for topic in &request.topics {
        let name = call.topic_name(TOPIC_IDS, &topic.name, topic.topic_id);
        for partition in &topic.partitions {
            let checked = group.and(name.as_deref().map_err(|code| *code)).and_then(|name| {
                let asked = Asked {
                    topic: name,
                    topic_id: topic.topic_id,
                    index: partition.index,
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.as_deref(),
                };
                check(call, &asked)
            });
            refused.push(checked.as_ref().err().copied());
            offsets.extend(checked);
        }
    }
    let committed = match group {
        Ok(()) => commit(call, &request, offsets).await.err().unwrap_or(ErrorCode::NONE),
        Err(code) => code,
    };
    let mut refused = refused.into_iter();
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let code = refused.next().flatten().unwrap_or(committed);
            OffsetCommitResponsePartition::default()
                .with_partition_index(partition.index)
                .with_error_code(code.0)
        });
        OffsetCommitResponseTopic::default()
            .with_name(TopicName(text(&topic.name)))
            .with_topic_id(uuid::Uuid::from_bytes(topic.topic_id.0))
            .with_partitions(partitions.collect())
    });
    let topics = topics.collect();
    call.answer(&OffsetCommitResponse::default().with_topics(topics), out)
}

/// An offset to commit, from the request.
pub(super) struct Asked<'a> {
    pub(super) topic: &'a str,
    /// Zero if the request has the name.
    pub(super) topic_id: Uuid,
    pub(super) index: i32,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) metadata: Option<&'a str>,
}

/// Returns the offset to store, unless its partition does not exist or its metadata is too long.
pub(super) fn check(
    call: &Call<'_>,
    asked: &Asked<'_>,
) -> Result<(TopicPartition, OffsetValue), ErrorCode> {
    call.require(Operation::Read, Resource::Topic(asked.topic))?;
    call.injected(Item::Partition(asked.topic, asked.index))?;
    if !call.broker.image().has_partition(asked.topic, asked.index) {
        return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    let metadata = asked.metadata.unwrap_or_default();
    if metadata.len() > call.broker.config.offset_metadata_max_bytes {
        return Err(ErrorCode::OFFSET_METADATA_TOO_LARGE);
    }
    let value = OffsetValue {
        offset: asked.offset,
        leader_epoch: asked.leader_epoch,
        metadata: metadata.to_owned(),
        commit_timestamp: call.broker.env.wall.now_ms(),
        topic_id: asked.topic_id,
    };
    Ok(((asked.topic.to_owned(), asked.index), value))
}

async fn commit(
    call: &Call<'_>,
    request: &OffsetCommitRequest,
    offsets: Vec<(TopicPartition, OffsetValue)>,
) -> Result<(), ErrorCode> {
    let group = &request.group_id;
    let committer = Committer {
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id_or_member_epoch,
    };
    let groups = call.groups(group)?;
    let version = call.version();
    let taken = groups
        .run(call.broker, |groups, cx| groups.commit(group, committer, version, offsets, cx))??;
    let Some(taken) = taken else { return Ok(()) };
    groups.committed(call.broker, &taken, call.broker.config.offsets_commit_timeout).await
}
