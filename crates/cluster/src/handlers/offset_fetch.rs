//! OffsetFetch, key 9, versions 1 to 10; from version 8 on for many groups.
//!
//! All returned offsets are on all in-sync replicas. From version 7 on a consumer may require
//! stable offsets: those with a pending replacement in an open transaction return
//! UNSTABLE_OFFSET_COMMIT (KIP-447). From version 9 on a member of the consumer protocol sends its
//! epoch (KIP-848). From version 10 on topics have ids instead of names. Groups and partitions without
//! an offset return -1, as do partitions whose offset was committed for an earlier topic of the name.

use std::sync::Arc;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Uuid,
    cold::{
        messages::{
            GroupId, OffsetFetchResponse, TopicName,
            offset_fetch_response::{
                OffsetFetchResponseGroup, OffsetFetchResponsePartition,
                OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
            },
        },
        newer::{OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic},
    },
};

use super::{Answer, Call, Item, text};
use crate::{
    acl::{Operation, Resource},
    coordinator::offsets::{Offsets, TopicPartition},
    image::Image,
};

/// First version for many groups.
const BATCHED: i16 = 8;
/// First version that names topics by id.
const TOPIC_IDS: i16 = 10;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: OffsetFetchRequest = call.decode(body)?;
    let stable = request.require_stable;
    call.concerns(request.groups.len());
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in &request.groups {
        groups.push(fetch(call, group, stable).await);
    }
    match groups.first() {
        Some(group) if call.version() < BATCHED => call.answer(&single(call.version(), group), out),
        _ => call.answer(&OffsetFetchResponse::default().with_groups(groups), out),
    }
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
    asked: &OffsetFetchGroup,
    stable: bool,
) -> OffsetFetchResponseGroup {
    let response =
        OffsetFetchResponseGroup::default().with_group_id(GroupId(text(&asked.group_id)));
    match found(call, asked, stable).await {
        Ok(topics) => response.with_topics(topics),
        Err(code) => {
            let topics = asked.topics.iter().flatten().map(|topic| refused(topic, code));
            response.with_error_code(code.0).with_topics(topics.collect())
        }
    }
}

/// A topic whose offsets are read.
struct Read<'a> {
    asked: &'a OffsetFetchTopic,
    /// Its name, or why its offsets are not returned.
    name: Result<Arc<str>, ErrorCode>,
}

impl<'a> Read<'a> {
    fn new(call: &Call<'_>, asked: &'a OffsetFetchTopic) -> Self {
        let name = call.topic_name(TOPIC_IDS, &asked.name, asked.topic_id);
        let name = name.and_then(|name| {
            call.require(Operation::Describe, Resource::Topic(&name)).map(|()| name)
        });
        Self { asked, name }
    }

    fn offsets(&self, offsets: &Offsets, stable: bool) -> OffsetFetchResponseTopics {
        let name = match &self.name {
            Ok(name) => name,
            Err(code) => return refused(self.asked, *code),
        };
        let id = self.asked.topic_id;
        let one = |index: &i32| partition(offsets, &(name.to_string(), *index), id, stable);
        topic_of(name, id, self.asked.partitions.iter().map(one).collect())
    }
}

async fn found(
    call: &Call<'_>,
    asked: &OffsetFetchGroup,
    stable: bool,
) -> Result<Vec<OffsetFetchResponseTopics>, ErrorCode> {
    let id = &asked.group_id;
    call.require(Operation::Describe, Resource::Group(id))?;
    call.injected(Item::Request)?;
    let groups = call.groups(id)?;
    let topics = asked.topics.as_ref();
    let topics: Option<Vec<Read<'_>>> =
        topics.map(|topics| topics.iter().map(|topic| Read::new(call, topic)).collect());
    let mut found = groups.run(call.broker, |groups, _| {
        groups.may_fetch(id, asked.member_id.as_deref(), asked.member_epoch)?;
        let none = Offsets::default();
        let offsets = groups.offsets(id).unwrap_or(&none);
        Ok(match &topics {
            Some(topics) => topics.iter().map(|topic| topic.offsets(offsets, stable)).collect(),
            None => {
                let image = call.broker.image();
                // Versions with ids have only offsets of topics that exist.
                let ids = (call.version() >= TOPIC_IDS).then_some(&**image);
                all(offsets, ids, stable)
            }
        })
    })??;
    if topics.is_none() {
        found.retain(|topic| {
            call.require(Operation::Describe, Resource::Topic(&topic.name.0)).is_ok()
        });
    }
    // Waits until the offsets just read are replicated: the response must stay true if this broker fails.
    groups.settled(call.broker, call.broker.config.offsets_commit_timeout).await?;
    Ok(found)
}

/// Returns all offsets, with the topics' ids if `ids` has them.
fn all(offsets: &Offsets, ids: Option<&Image>, stable: bool) -> Vec<OffsetFetchResponseTopics> {
    let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
    let mut known: Vec<&TopicPartition> = offsets.all().map(|(at, _)| at).collect();
    if stable {
        known.extend(offsets.only_pending());
        known.sort_unstable();
    }
    for at in known {
        let id = match ids {
            None => Uuid::ZERO,
            Some(image) => match image.topic(&at.0) {
                Some(topic) if !is_of_another(offsets, at, topic.id) => topic.id,
                _ => continue,
            },
        };
        let partition = partition(offsets, at, id, stable);
        match topics.last_mut().filter(|topic| topic.name.0.as_str() == at.0) {
            Some(topic) => topic.partitions.push(partition),
            None => topics.push(topic_of(&at.0, id, vec![partition])),
        }
    }
    topics
}

/// Returns whether the committed offset was committed with the id of an earlier topic.
fn is_of_another(offsets: &Offsets, at: &TopicPartition, id: Uuid) -> bool {
    let of = offsets.get(at).map_or(Uuid::ZERO, |value| value.topic_id);
    of != Uuid::ZERO && id != Uuid::ZERO && of != id
}

fn refused(asked: &OffsetFetchTopic, code: ErrorCode) -> OffsetFetchResponseTopics {
    let partitions = asked.partitions.iter().map(|index| nothing(*index, code));
    topic_of(&asked.name, asked.topic_id, partitions.collect())
}

fn topic_of(
    name: &str,
    id: Uuid,
    partitions: Vec<OffsetFetchResponsePartitions>,
) -> OffsetFetchResponseTopics {
    OffsetFetchResponseTopics::default()
        .with_name(TopicName(text(name)))
        .with_topic_id(uuid::Uuid::from_bytes(id.0))
        .with_partitions(partitions)
}

/// Returns a partition's offset. With an id, an offset of another topic of the same name is none.
fn partition(
    offsets: &Offsets,
    at: &TopicPartition,
    id: Uuid,
    stable: bool,
) -> OffsetFetchResponsePartitions {
    if stable && offsets.is_pending(at) {
        return nothing(at.1, ErrorCode::UNSTABLE_OFFSET_COMMIT);
    }
    match offsets.get(at).filter(|_| !is_of_another(offsets, at, id)) {
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
