//! CreatePartitions, key 37, versions 0 to 3: adds partitions to topics. Any broker serves it. A
//! topic named twice in one request is refused with INVALID_REQUEST.

use std::collections::BTreeMap;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        CreatePartitionsRequest, CreatePartitionsResponse,
        create_partitions_request::CreatePartitionsTopic,
        create_partitions_response::CreatePartitionsTopicResult,
    },
};

use super::{Answer, Call, Item, text};
use crate::{
    acl::{Operation, Resource},
    controller::{MorePartitions, Refusal},
};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: CreatePartitionsRequest = call.decode(body)?;
    call.concerns(request.topics.len());
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *names.entry(&topic.name.0).or_default() += 1;
    }
    let results = request.topics.iter().map(|topic| {
        let once = names[topic.name.0.as_str()] == 1;
        let done = create(call, topic, once, request.validate_only);
        let result = CreatePartitionsTopicResult::default().with_name(topic.name.clone());
        match done {
            Ok(()) => result,
            Err((code, reason)) => {
                result.with_error_code(code.0).with_error_message(Some(text(&reason)))
            }
        }
    });
    call.answer(&CreatePartitionsResponse::default().with_results(results.collect()), out)
}

fn create(
    call: &Call<'_>,
    topic: &CreatePartitionsTopic,
    once: bool,
    validate_only: bool,
) -> Result<(), Refusal> {
    let allowed = call.require(Operation::Alter, Resource::Topic(&topic.name.0));
    let allowed = allowed.and_then(|()| call.injected(Item::Topic(&topic.name.0)));
    allowed.map_err(|code| (code, code.message().to_owned()))?;
    if !once {
        return Err((ErrorCode::INVALID_REQUEST, "Duplicate topic name.".to_owned()));
    }
    let more = MorePartitions {
        topic: topic.name.0.to_string(),
        total: topic.count,
        replicas: topic.assignments.as_ref().map(|assignments| {
            assignments.iter().map(|a| a.broker_ids.iter().map(|id| id.0).collect()).collect()
        }),
    };
    match validate_only {
        true => call.broker.controller.check_partitions(&more),
        false => call.broker.controller.create_partitions(&more),
    }
}
