//! SyncGroup, key 14, versions 0 to 5.
//!
//! The leader sends all members' assignments. All members receive their responses once these are
//! stored.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{SyncGroupRequest, SyncGroupResponse},
};

use super::{Answer, Call, Item, text};
use crate::{
    acl::{Operation, Resource},
    coordinator::group::{SyncAnswer, SyncRequest},
};

/// First version that names the protocol.
const NAMES_PROTOCOL: i16 = 5;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: SyncGroupRequest = call.decode(body)?;
    let response = match sync(call, &request).await {
        Ok(synced) if call.version() >= NAMES_PROTOCOL => SyncGroupResponse::default()
            .with_protocol_type(Some(text(&synced.protocol_type)))
            .with_protocol_name(Some(text(&synced.protocol)))
            .with_assignment(synced.assignment),
        Ok(synced) => SyncGroupResponse::default().with_assignment(synced.assignment),
        Err(code) => SyncGroupResponse::default().with_error_code(code.0),
    };
    call.answer(&response, out)
}

async fn sync(call: &Call<'_>, request: &SyncGroupRequest) -> SyncAnswer {
    let group = &request.group_id.0;
    call.require(Operation::Read, Resource::Group(group))?;
    call.injected(Item::Request)?;
    let groups = call.members_groups(group)?;
    let names = call.version() >= NAMES_PROTOCOL;
    // Version 5 requires both.
    if names && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    }
    let assignments = request.assignments.iter();
    let sync = SyncRequest {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.as_ref().map(ToString::to_string),
        generation: request.generation_id,
        protocol_type: request.protocol_type.as_ref().map(ToString::to_string),
        protocol: request.protocol_name.as_ref().map(ToString::to_string),
        assignments: assignments.map(|a| (a.member_id.to_string(), a.assignment.clone())).collect(),
    };
    let answer = groups.run(call.broker, |groups, cx| groups.sync(group, sync, cx))?;
    // The channel closes when the coordinator moves.
    answer.await.map_err(|_| ErrorCode::NOT_COORDINATOR)?
}
