//! ConsumerGroupHeartbeat, key 68, versions 0 and 1 (KIP-848). From version 1 on a member chooses
//! its id, and may subscribe to a regular expression.
//!
//! The response follows once the resulting change, or all earlier ones, are on all in-sync
//! replicas.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Uuid,
    cold::{
        StrBytes,
        messages::{
            ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
            consumer_group_heartbeat_request::TopicPartitions as Owned,
            consumer_group_heartbeat_response::{Assignment, TopicPartitions},
        },
    },
};

use super::{Answer, Call, Item, MAX_STRING, text};
use crate::{
    acl::{Operation, Resource},
    controller::random_id,
    coordinator::consumer::{Beat, Heartbeat, LEFT, LEFT_FOR_NOW, Refused},
};

/// First version whose members choose their ids.
const OWN_ID: i16 = 1;
/// An unspecified value.
const NOT_TOLD: i32 = -1;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: ConsumerGroupHeartbeatRequest = call.decode(body)?;
    let response = match beat(call, &request).await {
        Ok(beat) => respond(beat),
        Err(Refused { code, reason }) => ConsumerGroupHeartbeatResponse::default()
            .with_error_code(code.0)
            .with_error_message(Some(text(&reason))),
    };
    call.answer(&response, out)
}

async fn beat(call: &Call<'_>, request: &ConsumerGroupHeartbeatRequest) -> Result<Beat, Refused> {
    let group = &request.group_id.0;
    call.require(Operation::Read, Resource::Group(group))?;
    call.injected(Item::Request)?;
    check(call, request)?;
    for topic in request.subscribed_topic_names.iter().flatten() {
        call.require(Operation::Describe, Resource::Topic(&topic.0))?;
    }
    let groups = call.groups(group)?;
    let heartbeat = heartbeat(call, request);
    let (beat, taken) =
        groups.run(call.broker, |groups, cx| groups.beat(group, &heartbeat, cx))??;
    let timeout = call.broker.config.offsets_commit_timeout;
    groups.stored(call.broker, taken.as_ref(), timeout).await?;
    Ok(beat)
}

/// Checks the request independently of the group.
fn check(call: &Call<'_>, request: &ConsumerGroupHeartbeatRequest) -> Result<(), Refused> {
    let invalid = |reason: &str| Err(Refused::new(ErrorCode::INVALID_REQUEST, reason));
    let empty = |value: &str| value.trim().is_empty();
    let epoch = request.member_epoch;
    let needs_id = call.version() >= OWN_ID || epoch > 0 || epoch == LEFT;
    if needs_id && empty(&request.member_id) {
        return invalid("the member id is empty");
    }
    if empty(&request.group_id.0) {
        return invalid("the group id is empty");
    }
    for (name, value) in [("instance", &request.instance_id), ("rack", &request.rack_id)] {
        if value.as_deref().is_some_and(empty) {
            return invalid(&format!("the {name} id is empty"));
        }
    }
    if epoch < LEFT_FOR_NOW {
        return invalid("the member epoch is not valid");
    }
    if epoch == LEFT_FOR_NOW && request.instance_id.is_none() {
        return invalid("only a static member leaves with this epoch");
    }
    if epoch == 0 {
        check_join(request)?;
    }
    let strings = [Some(&request.member_id), request.subscribed_topic_regex.as_ref()];
    if strings.into_iter().flatten().any(|string| string.len() > MAX_STRING) {
        return invalid("an id or the regular expression is too long");
    }
    let assignors = &call.broker.config.group_consumer_assignors;
    match request.server_assignor.as_deref() {
        Some(asked) if assignors.iter().all(|assignor| assignor.name() != asked) => {
            let names: Vec<_> = assignors.iter().map(|assignor| assignor.name()).collect();
            let names = names.join(", ");
            let reason = format!("unknown assignor {asked:?}; known are {names}");
            Err(Refused::new(ErrorCode::UNSUPPORTED_ASSIGNOR, reason))
        }
        _ => Ok(()),
    }
}

/// Checks a join: the member has no partitions and sends all its properties.
fn check_join(request: &ConsumerGroupHeartbeatRequest) -> Result<(), Refused> {
    let invalid = |reason| Err(Refused::new(ErrorCode::INVALID_REQUEST, reason));
    if request.rebalance_timeout_ms == NOT_TOLD {
        return invalid("a joining member must send its rebalance timeout");
    }
    if request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
        return invalid("a joining member must send an empty list of owned partitions");
    }
    if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
        return invalid("a joining member must send its subscription");
    }
    Ok(())
}

fn heartbeat(call: &Call<'_>, request: &ConsumerGroupHeartbeatRequest) -> Heartbeat {
    let text = |value: &Option<StrBytes>| value.as_ref().map(ToString::to_string);
    let names = request.subscribed_topic_names.as_ref();
    let topics = names.map(|names| names.iter().map(|name| name.0.to_string()).collect());
    let owned = |owned: &Owned| {
        (Uuid(*owned.topic_id.as_bytes()), owned.partitions.iter().copied().collect())
    };
    let owned = request.topic_partitions.as_ref().map(|of| of.iter().map(owned).collect());
    Heartbeat {
        member_id: request.member_id.to_string(),
        new_id: random_id(&call.broker.env.entropy).to_string(),
        epoch: request.member_epoch,
        instance_id: text(&request.instance_id),
        rack_id: text(&request.rack_id),
        client_id: call.header.client_id.unwrap_or_default().to_owned(),
        client_host: format!("/{}", call.peer),
        rebalance_timeout_ms: Some(request.rebalance_timeout_ms).filter(|ms| *ms != NOT_TOLD),
        topics,
        regex: text(&request.subscribed_topic_regex),
        assignor: text(&request.server_assignor),
        owned,
    }
}

fn respond(beat: Beat) -> ConsumerGroupHeartbeatResponse {
    let interval = beat.heartbeat_interval.unwrap_or_default().as_millis();
    let assignment = beat.assignment.map(|assigned| {
        let topics = assigned.into_iter().map(|(topic, partitions)| {
            TopicPartitions::default()
                .with_topic_id(uuid::Uuid::from_bytes(topic.0))
                .with_partitions(partitions.into_iter().collect())
        });
        Assignment::default().with_topic_partitions(topics.collect())
    });
    ConsumerGroupHeartbeatResponse::default()
        .with_member_id(Some(text(&beat.member_id)))
        .with_member_epoch(beat.epoch)
        .with_heartbeat_interval_ms(i32::try_from(interval).unwrap_or(i32::MAX))
        .with_assignment(assignment)
}
