//! Metadata, key 3, versions 0 to 13.
//!
//! The response comes from the broker's own copy, which may be outdated. Missing topics are created
//! if both the request and `auto.create.topics.enable` allow it. As in Kafka, the response to that
//! request still reports them as unknown; a later one contains them. From version 12 topics can be
//! requested by id.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    metadata::{
        MetadataBroker, MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponse,
        MetadataTopic,
    },
};

use super::{Answer, Call, Item};
use crate::{
    acl::{Operation, Resource},
    broker::Broker,
    controller::{CONTROLLER_ID, TopicSpec, valid_name},
    coordinator::Kind,
    image::{Image, NO_LEADER, PartitionImage, TopicImage},
};

/// The bit field of operations if they were not requested.
const NOT_ASKED: i32 = i32::MIN;
/// All operations on a topic: read, write, create, delete, alter, describe and their configs.
const ALL_TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// All operations on the cluster: create, alter, describe, act as a broker, configs, idempotent
/// writes.
const ALL_CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;
/// First version in which the request can forbid creation.
const FORBIDS_CREATION: i16 = 4;

pub(super) fn handle(
    call: &Call<'_>,
    body: &Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request =
        MetadataRequest::decode(call.version(), body).map_err(|error| error.to_string())?;
    let image = call.broker.image();
    let operations = |topic: &str| match request.include_topic_authorized_operations {
        true => topic_operations(call, topic),
        false => NOT_ASKED,
    };
    let shown = |topic: &str| call.may(Operation::Describe, Resource::Topic(topic));
    let may_create = call.broker.config.auto_create_topics
        && (call.version() < FORBIDS_CREATION || request.allow_auto_topic_creation);
    let topics = match &request.topics {
        None => {
            call.concerns(image.topics.len());
            let topics = image.topics.values().filter(|topic| shown(&topic.name));
            let one = |topic: &Arc<TopicImage>| match call.injected(Item::Topic(&topic.name)) {
                Ok(()) => describe(&image, topic, operations(&topic.name)),
                Err(error) => MetadataTopic {
                    error,
                    name: Some(topic.name.to_string()),
                    topic_id: topic.id,
                    ..MetadataTopic::default()
                },
            };
            topics.map(one).collect()
        }
        Some(asked) => {
            call.concerns(asked.len());
            // A topic that is requested twice is described once.
            let mut seen = BTreeSet::new();
            let once = asked.iter().filter(|topic| seen.insert((&topic.name, topic.topic_id)));
            let answers = once.map(|topic| {
                let answer = one(call, &image, topic, may_create);
                let name = answer.name.as_deref().unwrap_or_default();
                MetadataTopic { authorized_operations: operations(name), ..answer }
            });
            answers.collect()
        }
    };
    let response = MetadataResponse {
        throttle_time_ms: 0,
        brokers: brokers(call, &image),
        cluster_id: Some(image.cluster_id.to_string()),
        controller_id: controller_id(&image),
        topics,
        cluster_authorized_operations: cluster_operations(
            call,
            request.include_cluster_authorized_operations,
        ),
        error: ErrorCode::NONE,
    };
    Ok(call.answer_with(out, |w| response.encode(call.version(), w)))
}

/// Returns the bit field of allowed operations on a topic.
pub(super) fn topic_operations(call: &Call<'_>, topic: &str) -> i32 {
    call.operations(ALL_TOPIC_OPERATIONS, Resource::Topic(topic))
}

/// Returns the bit field of allowed operations on the cluster.
pub(super) fn cluster_operations(call: &Call<'_>, asked: bool) -> i32 {
    if asked { call.operations(ALL_CLUSTER_OPERATIONS, Resource::Cluster) } else { NOT_ASKED }
}

/// Returns the broker that clients should use as the controller: any live one can serve them.
pub(super) fn controller_id(image: &Image) -> i32 {
    let live = |id: &i32| image.live_broker(*id).is_some();
    Some(CONTROLLER_ID)
        .filter(live)
        .or_else(|| image.brokers.keys().copied().find(live))
        .unwrap_or(-1)
}

/// Returns the live brokers with the endpoints of the client's listener.
fn brokers(call: &Call<'_>, image: &Image) -> Vec<MetadataBroker> {
    let live = image.brokers.values().filter(|b| !b.fenced);
    let of_listener = live.filter_map(|b| {
        let endpoint = b.endpoint(call.listener)?;
        Some(MetadataBroker {
            node_id: b.id,
            host: endpoint.host().to_owned(),
            port: i32::from(endpoint.port()),
            rack: call.broker.config.rack(b.id).map(str::to_owned),
        })
    });
    of_listener.collect()
}

fn one(
    call: &Call<'_>,
    image: &Image,
    asked: &MetadataRequestTopic,
    may_create: bool,
) -> MetadataTopic {
    let by_id = !asked.topic_id.is_zero();
    // Java's clients request topic ids with an empty name.
    let name = asked.name.as_ref().filter(|_| !by_id);
    let failed = |error| MetadataTopic {
        error,
        name: name.cloned(),
        topic_id: asked.topic_id,
        ..MetadataTopic::default()
    };
    let allowed = |operation, name: &str| call.require(operation, Resource::Topic(name));
    let Some(name) = name else {
        // A client without permission must not learn whether the topic exists.
        let known = call.topic_by_id(asked.topic_id).ok();
        return match known.filter(|topic| allowed(Operation::Describe, &topic.name).is_ok()) {
            Some(topic) => match call.injected(Item::Topic(&topic.name)) {
                Ok(()) => describe(image, &topic, NOT_ASKED),
                Err(code) => failed(code),
            },
            None => failed(ErrorCode::UNKNOWN_TOPIC_ID),
        };
    };
    if let Err(code) = allowed(Operation::Describe, name) {
        return failed(code);
    }
    if let Err(code) = call.injected(Item::Topic(name)) {
        return failed(code);
    }
    if let Some(topic) = image.topic(name) {
        return describe(image, topic, NOT_ASKED);
    }
    if !valid_name(name) {
        return failed(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    if may_create {
        if !call.may(Operation::Create, Resource::Cluster)
            && let Err(code) = allowed(Operation::Create, name)
        {
            return failed(code);
        }
        return failed(create(call.broker, name));
    }
    failed(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

fn create(broker: &Broker, name: &str) -> ErrorCode {
    let spec = match Kind::of_topic(name) {
        Some(kind) => kind.topic_spec(&broker.config),
        None => TopicSpec {
            name: name.to_owned(),
            partitions: -1,
            replication_factor: -1,
            ..TopicSpec::default()
        },
    };
    match broker.controller.create_topic(&spec) {
        Ok(_) | Err((ErrorCode::TOPIC_ALREADY_EXISTS, _)) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        Err((code, reason)) => {
            tracing::info!(topic = name, code = code.name(), reason, "topic was not created");
            code
        }
    }
}

fn describe(image: &Image, topic: &TopicImage, operations: i32) -> MetadataTopic {
    let partitions = topic.partitions.iter().zip(0..).map(|(p, index)| partition(image, p, index));
    MetadataTopic {
        error: ErrorCode::NONE,
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: Kind::of_topic(&topic.name).is_some(),
        partitions: partitions.collect(),
        authorized_operations: operations,
    }
}

fn partition(image: &Image, p: &PartitionImage, index: i32) -> MetadataPartition {
    let error = match image.live_broker(p.leader) {
        Some(_) => ErrorCode::NONE,
        None => ErrorCode::LEADER_NOT_AVAILABLE,
    };
    let offline = p.replicas.iter().copied().filter(|id| image.live_broker(*id).is_none());
    MetadataPartition {
        error,
        index,
        leader_id: if error.is_none() { p.leader } else { NO_LEADER },
        leader_epoch: p.leader_epoch,
        replicas: p.replicas.to_vec(),
        isr: p.isr.to_vec(),
        offline_replicas: offline.collect(),
    }
}
