//! AlterPartitionReassignments, key 45, versions 0 and 1, and ListPartitionReassignments, key 46,
//! version 0 (KIP-455).
//!
//! Any broker serves them. A reassignment begins with the controller's decision, and ends when the
//! added replicas are in sync. Without `allow_replication_factor_change` (version 1) the number of
//! replicas stays (KIP-860).

use bytes::Bytes;
use curtail_wire::cold::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, BrokerId,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, TopicName,
    alter_partition_reassignments_request::ReassignablePartition,
    alter_partition_reassignments_response::{
        ReassignablePartitionResponse, ReassignableTopicResponse,
    },
    list_partition_reassignments_response::{
        OngoingPartitionReassignment, OngoingTopicReassignment,
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    controller::Move,
};

pub(super) fn alter(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: AlterPartitionReassignmentsRequest = call.decode(body)?;
    let response = AlterPartitionReassignmentsResponse::default().with_error_message(None);
    if let Err(refused) = call.require(Operation::Alter, Resource::Cluster) {
        let message = Some(text(refused.message()));
        let response = response.with_error_code(refused.0).with_error_message(message);
        return call.answer(&response, out);
    }
    let another_number = request.allow_replication_factor_change;
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let to = wanted(asked, another_number);
            let done = call.broker.controller.reassign(&topic.name.0, asked.partition_index, &to);
            let answer = ReassignablePartitionResponse::default()
                .with_partition_index(asked.partition_index)
                .with_error_message(None);
            match done {
                Ok(()) => answer,
                Err((code, reason)) => {
                    answer.with_error_code(code.0).with_error_message(Some(text(&reason)))
                }
            }
        });
        ReassignableTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    let response = response.with_responses(topics.collect());
    // Version 0 lacks this field.
    let response = match call.version() {
        0 => response,
        _ => response.with_allow_replication_factor_change(another_number),
    };
    call.answer(&response, out)
}

fn wanted(asked: &ReassignablePartition, another_number: bool) -> Move {
    match &asked.replicas {
        Some(replicas) => {
            let replicas = replicas.iter().map(|id| id.0).collect();
            Move::To { replicas, another_number }
        }
        None => Move::Back,
    }
}

pub(super) fn list(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: ListPartitionReassignmentsRequest = call.decode(body)?;
    let response = ListPartitionReassignmentsResponse::default().with_error_message(None);
    if let Err(refused) = call.require(Operation::Describe, Resource::Cluster) {
        let message = Some(text(refused.message()));
        let response = response.with_error_code(refused.0).with_error_message(message);
        return call.answer(&response, out);
    }
    let asked: Option<Vec<(String, Vec<i32>)>> = request.topics.map(|topics| {
        topics
            .into_iter()
            .map(|topic| (topic.name.0.to_string(), topic.partition_indexes))
            .collect()
    });
    let mut topics: Vec<OngoingTopicReassignment> = Vec::new();
    for moving in call.broker.controller.reassignments(asked.as_deref()) {
        let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect();
        let partition = OngoingPartitionReassignment::default()
            .with_partition_index(moving.index)
            .with_replicas(ids(&moving.partition.replicas))
            .with_adding_replicas(ids(&moving.partition.adding))
            .with_removing_replicas(ids(&moving.partition.removing));
        match topics.last_mut().filter(|topic| topic.name.0.as_str() == moving.topic) {
            Some(topic) => topic.partitions.push(partition),
            None => topics.push(
                OngoingTopicReassignment::default()
                    .with_name(TopicName(text(&moving.topic)))
                    .with_partitions(vec![partition]),
            ),
        }
    }
    call.answer(&response.with_topics(topics), out)
}
