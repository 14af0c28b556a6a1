//! ElectLeaders, key 43, versions 0 to 2 (KIP-460): preferred and unclean elections. Any broker
//! serves it. A request for all partitions returns only those that needed an election.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        ElectLeadersRequest, ElectLeadersResponse, TopicName,
        elect_leaders_response::{PartitionResult, ReplicaElectionResult},
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    controller::Election,
};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: ElectLeadersRequest = call.decode(body)?;
    if let Err(refused) = call.require(Operation::Alter, Resource::Cluster) {
        return call.answer(&ElectLeadersResponse::default().with_error_code(refused.0), out);
    }
    let election = match request.election_type {
        0 => Election::Preferred,
        1 => Election::Unclean,
        _ => {
            let code = ErrorCode::INVALID_REQUEST.0;
            return call.answer(&ElectLeadersResponse::default().with_error_code(code), out);
        }
    };
    let controller = &call.broker.controller;
    let all = request.topic_partitions.is_none();
    let asked: Vec<(String, Vec<i32>)> = match request.topic_partitions {
        Some(topics) => {
            topics.into_iter().map(|topic| (topic.topic.0.to_string(), topic.partitions)).collect()
        }
        None => controller.all_partitions().into_iter().collect(),
    };
    let topics = asked.iter().map(|(topic, indexes)| {
        let results = indexes.iter().filter_map(|index| {
            let result = PartitionResult::default().with_partition_id(*index);
            match controller.elect_leader(topic, *index, election) {
                Ok(()) => Some(result),
                Err((ErrorCode::ELECTION_NOT_NEEDED, _)) if all => None,
                Err((code, reason)) => {
                    Some(result.with_error_code(code.0).with_error_message(Some(text(&reason))))
                }
            }
        });
        ReplicaElectionResult::default()
            .with_topic(TopicName(text(topic)))
            .with_partition_result(results.collect())
    });
    let topics = topics.filter(|topic| !topic.partition_result.is_empty()).collect();
    call.answer(&ElectLeadersResponse::default().with_replica_election_results(topics), out)
}
