//! ConsumerGroupDescribe, key 69, versions 0 and 1: groups of the consumer protocol (KIP-848). For
//! other groups the response is GROUP_ID_NOT_FOUND.
//!
//! All described state is on all in-sync replicas.

use std::collections::BTreeSet;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Uuid,
    cold::messages::{
        ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, GroupId, TopicName,
        consumer_group_describe_response::{Assignment, DescribedGroup, Member, TopicPartitions},
    },
};

use super::{
    Answer, Call,
    describe_groups::{ALL_GROUP_OPERATIONS, NOT_ASKED},
    text,
};
use crate::{
    acl::{Operation, Resource},
    coordinator::consumer::{self, ConsumerGroup, Partitions, partitions},
    image::Image,
};

/// First version with the protocols of members.
const MEMBER_TYPES: i16 = 1;
/// A member of the consumer protocol.
const CONSUMER: i8 = 1;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: ConsumerGroupDescribeRequest = call.decode(body)?;
    call.concerns(request.group_ids.len());
    let operations = match request.include_authorized_operations {
        true => Some(ALL_GROUP_OPERATIONS),
        false => None,
    };
    let mut groups = Vec::with_capacity(request.group_ids.len());
    for id in &request.group_ids {
        let group = match describe(call, id).await {
            Ok(group) => {
                let allowed = operations.map(|all| call.operations(all, Resource::Group(&id.0)));
                group.with_authorized_operations(allowed.unwrap_or(NOT_ASKED))
            }
            Err(code) => DescribedGroup::default()
                .with_error_code(code.0)
                .with_error_message(Some(text(code.message())))
                .with_authorized_operations(NOT_ASKED),
        };
        groups.push(group.with_group_id(id.clone()));
    }
    call.answer(&ConsumerGroupDescribeResponse::default().with_groups(groups), out)
}

async fn describe(call: &Call<'_>, id: &GroupId) -> Result<DescribedGroup, ErrorCode> {
    call.require(Operation::Describe, Resource::Group(&id.0))?;
    let groups = call.members_groups(&id.0)?;
    let described = groups.run(call.broker, |groups, _| {
        let group = groups.consumers(&id.0).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        Ok(described(call, group))
    })??;
    groups.settled(call.broker, call.broker.config.offsets_commit_timeout).await?;
    Ok(described)
}

fn described(call: &Call<'_>, group: &ConsumerGroup) -> DescribedGroup {
    let image = call.broker.image();
    let members = group.members().map(|(id, member)| {
        let described = described_member(&image, id, member, &group.target(id));
        match call.version() {
            ..MEMBER_TYPES => described,
            _ => described.with_member_type(CONSUMER),
        }
    });
    DescribedGroup::default()
        .with_group_state(text(group.state().name()))
        .with_group_epoch(group.epoch())
        .with_assignment_epoch(group.assignment_epoch())
        .with_assignor_name(text(group.assignor().name()))
        .with_members(members.collect())
}

fn described_member(
    image: &Image,
    id: &str,
    member: &consumer::Member,
    target: &Partitions,
) -> Member {
    let profile = &member.profile;
    // A member is responsible for revoked partitions as long as it holds them.
    let mut held = partitions(&member.current.assigned);
    for (topic, partitions) in partitions(&member.current.revoking) {
        held.entry(topic).or_default().extend(partitions);
    }
    let topics = profile.topics.iter().map(|topic| TopicName(text(topic)));
    Member::default()
        .with_member_id(text(id))
        .with_instance_id(profile.instance_id.as_deref().map(text))
        .with_rack_id(profile.rack_id.as_deref().map(text))
        .with_member_epoch(member.current.epoch)
        .with_client_id(text(&profile.client_id))
        .with_client_host(text(&profile.client_host))
        .with_subscribed_topic_names(topics.collect())
        .with_subscribed_topic_regex(Some(text(&profile.regex)))
        .with_assignment(assignment(image, &held))
        .with_target_assignment(assignment(image, target))
}

/// Returns the partitions of topics that exist.
fn assignment(image: &Image, partitions: &Partitions) -> Assignment {
    let topic = |(id, partitions): (&Uuid, &BTreeSet<i32>)| {
        let topic = image.topic_by_id(id)?;
        let described = TopicPartitions::default()
            .with_topic_id(uuid::Uuid::from_bytes(id.0))
            .with_topic_name(TopicName(text(&topic.name)))
            .with_partitions(partitions.iter().copied().collect());
        Some(described)
    };
    Assignment::default().with_topic_partitions(partitions.iter().filter_map(topic).collect())
}
