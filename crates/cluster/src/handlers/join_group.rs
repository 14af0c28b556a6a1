//! JoinGroup, key 11, versions 0 to 9.
//!
//! The response follows at the end of the rebalance. From version 4 a dynamic member without an id
//! receives one and must rejoin with it (KIP-394). From version 5 members may be static (KIP-345).
//! From version 9 a static leader that rejoined is told to skip the assignment (KIP-814).

use std::time::Duration;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        JoinGroupRequest, JoinGroupResponse, join_group_response::JoinGroupResponseMember,
    },
};

use super::{Answer, Call, Item, MAX_STRING, text};
use crate::{
    acl::{Operation, Resource},
    controller::random_id,
    coordinator::group::{Join, JoinAnswer, Joined},
};

/// First version whose dynamic members must know their id.
const KNOWN_ID: i16 = 4;
/// First version whose errors have a null protocol instead of an empty one.
const NO_PROTOCOL: i16 = 7;
/// First version that can skip the assignment.
const SKIPS_ASSIGNMENT: i16 = 9;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: JoinGroupRequest = call.decode(body)?;
    let member_id = request.member_id.to_string();
    let answer = match join(call, &request).await {
        Ok(answer) => answer,
        Err(code) => Err((code, member_id)),
    };
    call.answer(&respond(call.version(), answer), out)
}

async fn join(call: &Call<'_>, request: &JoinGroupRequest) -> Result<JoinAnswer, ErrorCode> {
    call.require(Operation::Read, Resource::Group(&request.group_id.0))?;
    call.injected(Item::Request)?;
    let join = check(call, request)?;
    let groups = call.members_groups(&request.group_id.0)?;
    let answer =
        groups.run(call.broker, |groups, cx| groups.join(&request.group_id.0, join, cx))?;
    // The channel closes when the coordinator moves.
    answer.await.map_err(|_| ErrorCode::NOT_COORDINATOR)
}

fn check(call: &Call<'_>, request: &JoinGroupRequest) -> Result<Join, ErrorCode> {
    if request.group_id.is_empty() {
        return Err(ErrorCode::INVALID_GROUP_ID);
    }
    let config = &call.broker.config;
    let millis = |ms: i32| u64::try_from(ms).ok().map(Duration::from_millis);
    let allowed = config.group_min_session_timeout..=config.group_max_session_timeout;
    let session_timeout = millis(request.session_timeout_ms)
        .filter(|timeout| allowed.contains(timeout))
        .ok_or(ErrorCode::INVALID_SESSION_TIMEOUT)?;
    let client_id = call.header.client_id.unwrap_or_default();
    let instance_id = request.group_instance_id.as_ref().map(ToString::to_string);
    let prefix = instance_id.as_deref().unwrap_or(client_id);
    let unique = uuid::Uuid::from_bytes(random_id(&call.broker.env.entropy).0);
    let new_id = format!("{prefix}-{unique}");
    let protocols = request.protocols.iter();
    let join = Join {
        member_id: request.member_id.to_string(),
        new_id,
        instance_id,
        client_id: client_id.to_owned(),
        client_host: format!("/{}", call.peer),
        session_timeout,
        // Version 0 lacks this field, which decodes as -1.
        rebalance_timeout: millis(request.rebalance_timeout_ms).unwrap_or(session_timeout),
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols.map(|p| (p.name.to_string(), p.metadata.clone())).collect(),
        needs_known_id: call.version() >= KNOWN_ID,
        may_skip_assignment: call.version() >= SKIPS_ASSIGNMENT,
    };
    let mut strings = vec![&join.new_id, &join.member_id, &join.protocol_type];
    strings.extend(join.protocols.iter().map(|(name, _)| name));
    if strings.iter().any(|string| string.len() > MAX_STRING) {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    Ok(join)
}

fn respond(version: i16, answer: JoinAnswer) -> JoinGroupResponse {
    let some = |value: &str| Some(text(value));
    let response = JoinGroupResponse::default();
    match answer {
        Ok(joined) => accepted(version, joined),
        Err((code, member_id)) => response
            .with_error_code(code.0)
            .with_generation_id(-1)
            .with_protocol_type(None)
            .with_protocol_name(if version >= NO_PROTOCOL { None } else { some("") })
            .with_member_id(text(&member_id)),
    }
}

fn accepted(version: i16, joined: Joined) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|(id, instance_id, metadata)| {
        let member =
            JoinGroupResponseMember::default().with_member_id(text(&id)).with_metadata(metadata);
        match version {
            ..5 => member,
            _ => member.with_group_instance_id(instance_id.as_deref().map(text)),
        }
    });
    let response = JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_name(Some(text(&joined.protocol)))
        .with_leader(text(&joined.leader))
        .with_member_id(text(&joined.member_id))
        .with_members(members.collect());
    let response = match version {
        ..NO_PROTOCOL => response.with_protocol_type(None),
        _ => response.with_protocol_type(Some(text(&joined.protocol_type))),
    };
    response.with_skip_assignment(version >= SKIPS_ASSIGNMENT && joined.skip_assignment)
}
