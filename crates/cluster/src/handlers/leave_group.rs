//! LeaveGroup, key 13, versions 0 to 5; from version 3 on for many members, static ones by their
//! instance id.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{LeaveGroupRequest, LeaveGroupResponse, leave_group_response::MemberResponse},
};

use super::{Answer, Call, Item, text};
use crate::acl::{Operation, Resource};

/// First version with many members.
const BATCHED: i16 = 3;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: LeaveGroupRequest = call.decode(body)?;
    let leaving: Vec<(String, Option<String>)> = match call.version() {
        ..BATCHED => vec![(request.member_id.to_string(), None)],
        _ => request
            .members
            .iter()
            .map(|m| {
                (m.member_id.to_string(), m.group_instance_id.as_ref().map(ToString::to_string))
            })
            .collect(),
    };
    let response = LeaveGroupResponse::default();
    let response = match leave(call, &request, &leaving).await {
        Err(code) => response.with_error_code(code.0),
        Ok(results) if call.version() < BATCHED => {
            let code = results.first().and_then(|result| result.err());
            response.with_error_code(code.unwrap_or(ErrorCode::NONE).0)
        }
        Ok(results) => {
            let members = leaving.iter().zip(results).map(|((id, instance_id), result)| {
                MemberResponse::default()
                    .with_member_id(text(id))
                    .with_group_instance_id(instance_id.as_deref().map(text))
                    .with_error_code(result.err().unwrap_or(ErrorCode::NONE).0)
            });
            response.with_members(members.collect())
        }
    };
    call.answer(&response, out)
}

async fn leave(
    call: &Call<'_>,
    request: &LeaveGroupRequest,
    leaving: &[(String, Option<String>)],
) -> Result<Vec<Result<(), ErrorCode>>, ErrorCode> {
    let group = &request.group_id.0;
    call.require(Operation::Read, Resource::Group(group))?;
    call.injected(Item::Request)?;
    let groups = call.members_groups(group)?;
    let (results, taken) =
        groups.run(call.broker, |groups, cx| groups.leave(group, leaving, cx))??;
    if let Some(taken) = taken {
        let timeout = call.broker.config.offsets_commit_timeout;
        groups.committed(call.broker, &taken, timeout).await?;
    }
    Ok(results)
}
