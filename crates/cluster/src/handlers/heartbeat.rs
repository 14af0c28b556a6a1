//! Heartbeat, key 12, versions 0 to 4.
//!
//! REBALANCE_IN_PROGRESS tells the member to rejoin.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{HeartbeatRequest, HeartbeatResponse},
};

use super::{Answer, Call, Item};
use crate::{
    acl::{Operation, Resource},
    coordinator::groups::Committer,
};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: HeartbeatRequest = call.decode(body)?;
    let code = heartbeat(call, &request).err().unwrap_or(ErrorCode::NONE);
    call.answer(&HeartbeatResponse::default().with_error_code(code.0), out)
}

fn heartbeat(call: &Call<'_>, request: &HeartbeatRequest) -> Result<(), ErrorCode> {
    let group = &request.group_id.0;
    call.require(Operation::Read, Resource::Group(group))?;
    call.injected(Item::Request)?;
    let member = Committer {
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id,
    };
    call.members_groups(group)?
        .run(call.broker, |groups, cx| groups.heartbeat(group, member, cx))?
}
