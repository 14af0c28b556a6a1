//! CreateTopics, key 19, versions 2 to 7.
//!
//! Any broker serves it. The response follows the controller's decision; brokers learn the topic
//! after their metadata's delay. `validate_only` checks and creates nothing. A topic named twice in
//! one request is refused with INVALID_REQUEST.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Uuid,
    cold::messages::{
        CreateTopicsRequest, CreateTopicsResponse,
        create_topics_request::CreatableTopic,
        create_topics_response::{CreatableTopicConfigs, CreatableTopicResult},
    },
};

use super::{Answer, Call, Item, text};
use crate::{
    acl::{Operation, Resource},
    controller::{Refusal, TopicSpec},
};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: CreateTopicsRequest = call.decode(body)?;
    call.concerns(request.topics.len());
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *names.entry(&topic.name.0).or_default() += 1;
    }
    let mut seen = BTreeSet::new();
    let topics = request
        .topics
        .iter()
        .filter(|topic| seen.insert(topic.name.as_str()))
        .map(|topic| {
            let created = if let Err(refused) = may_create(call, &topic.name.0) {
                Err(refused)
            } else if let Err(code) = call.injected(Item::Topic(&topic.name.0)) {
                Err((code, code.message().to_owned()))
            } else if names[topic.name.0.as_str()] > 1 {
                Err((ErrorCode::INVALID_REQUEST, "Duplicate topic name.".to_owned()))
            } else {
                create(call, topic, request.validate_only)
            };
            result(call, topic, created)
        })
        .collect();
    call.answer(&CreateTopicsResponse::default().with_topics(topics), out)
}

/// Checks the permission to create a topic. Permission to create in the cluster covers every topic.
fn may_create(call: &Call<'_>, topic: &str) -> Result<(), Refusal> {
    if call.may(Operation::Create, Resource::Cluster) {
        return Ok(());
    }
    let refused = call.require(Operation::Create, Resource::Topic(topic));
    refused.map_err(|code| (code, "Authorization failed.".to_owned()))
}

/// A topic's id, partitions, replication factor and settings.
type Created = (Uuid, i32, i16, Vec<CreatableTopicConfigs>);

fn create(
    call: &Call<'_>,
    topic: &CreatableTopic,
    validate_only: bool,
) -> Result<Created, Refusal> {
    let ids = |ids: &[curtail_wire::cold::messages::BrokerId]| ids.iter().map(|id| id.0).collect();
    let spec = TopicSpec {
        name: topic.name.0.to_string(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignment: topic
            .assignments
            .iter()
            .map(|a| (a.partition_index, ids(&a.broker_ids)))
            .collect(),
        configs: topic
            .configs
            .iter()
            .filter_map(|c| Some((c.name.to_string(), c.value.as_ref()?.to_string())))
            .collect(),
    };
    let controller = &call.broker.controller;
    if validate_only {
        let (partitions, factor) = controller.check_topic(&spec)?;
        return Ok((Uuid::ZERO, partitions, factor, Vec::new()));
    }
    let created = controller.create_topic(&spec)?;
    let factor = created.partitions.front().map_or(0, |p| p.replicas.len() as i16);
    let configs = created.config.describe(&call.broker.settings()).into_iter();
    let configs = configs.map(|setting| {
        CreatableTopicConfigs::default()
            .with_name(text(setting.name))
            .with_value(Some(text(&setting.value)))
            .with_config_source(setting.source)
    });
    Ok((created.id, created.partitions.len() as i32, factor, configs.collect()))
}

fn result(
    call: &Call<'_>,
    topic: &CreatableTopic,
    created: Result<Created, Refusal>,
) -> CreatableTopicResult {
    let result =
        CreatableTopicResult::default().with_name(topic.name.clone()).with_error_message(None);
    match created {
        Ok(_) if call.version() < 5 => result,
        Ok((id, partitions, factor, configs)) => {
            let result = result
                .with_num_partitions(partitions)
                .with_replication_factor(factor)
                .with_configs(Some(configs));
            match call.version() {
                ..7 => result,
                _ => result.with_topic_id(uuid::Uuid::from_bytes(id.0)),
            }
        }
        Err((code, reason)) => {
            let result = result.with_error_code(code.0).with_error_message(Some(text(&reason)));
            if call.version() >= 5 { result.with_configs(None) } else { result }
        }
    }
}
