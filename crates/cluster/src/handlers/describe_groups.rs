//! DescribeGroups, key 15, versions 0 to 6. Members' subscriptions and assignments are included for
//! stable groups only. A group that does not exist, or uses another protocol, is Dead, from
//! version 6 on with GROUP_ID_NOT_FOUND (KIP-1043).

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        DescribeGroupsRequest, DescribeGroupsResponse, GroupId,
        describe_groups_response::{DescribedGroup, DescribedGroupMember},
    },
};

use super::{Answer, Call, text};
use crate::acl::{Operation, Resource};
use crate::coordinator::{
    group::{Group, GroupState},
    records::MemberValue,
};

/// All operations on a group: read, delete, describe, describe and alter its settings.
pub(super) const ALL_GROUP_OPERATIONS: i32 = 0b1101_0100_1000;
/// The value if operations were not requested.
pub(super) const NOT_ASKED: i32 = i32::MIN;
/// First version with static members.
const STATIC_MEMBERS: i16 = 4;
/// First version that reports unknown groups.
const NOT_FOUND: i16 = 6;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeGroupsRequest = call.decode(body)?;
    call.concerns(request.groups.len());
    let operations = match request.include_authorized_operations {
        true => Some(ALL_GROUP_OPERATIONS),
        false => None,
    };
    let groups = request.groups.iter().map(|id| {
        let described = describe(call, id).unwrap_or_else(|code| failed(call, code));
        let asked = operations.filter(|_| described.error_code == ErrorCode::NONE.0);
        let allowed = asked.map(|all| call.operations(all, Resource::Group(&id.0)));
        let described = described.with_authorized_operations(allowed.unwrap_or(NOT_ASKED));
        described.with_group_id(id.clone())
    });
    let groups = groups.collect();
    call.answer(&DescribeGroupsResponse::default().with_groups(groups), out)
}

fn failed(call: &Call<'_>, code: ErrorCode) -> DescribedGroup {
    let none = DescribedGroup::default();
    match code {
        ErrorCode::GROUP_ID_NOT_FOUND if call.version() >= NOT_FOUND => none
            .with_group_state(text("Dead"))
            .with_error_code(code.0)
            .with_error_message(Some(text(code.message()))),
        ErrorCode::GROUP_ID_NOT_FOUND => none.with_group_state(text("Dead")),
        _ => none.with_error_code(code.0),
    }
}

fn describe(call: &Call<'_>, id: &GroupId) -> Result<DescribedGroup, ErrorCode> {
    call.require(Operation::Describe, Resource::Group(&id.0))?;
    let groups = call.groups(&id.0)?;
    groups.run(call.broker, |groups, _| {
        let group = groups.classic(&id.0).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        Ok(described(call.version(), group))
    })?
}

fn described(version: i16, group: &Group) -> DescribedGroup {
    let member = |value: MemberValue| {
        let member = DescribedGroupMember::default()
            .with_member_id(text(&value.id))
            .with_client_id(text(&value.client_id))
            .with_client_host(text(&value.client_host))
            .with_member_metadata(value.subscription)
            .with_member_assignment(value.assignment);
        match version {
            ..STATIC_MEMBERS => member,
            _ => member.with_group_instance_id(value.instance_id.as_deref().map(text)),
        }
    };
    let stable = group.state() == GroupState::Stable;
    DescribedGroup::default()
        .with_group_state(text(group.state().name()))
        .with_protocol_type(text(group.protocol_type()))
        .with_protocol_data(text(if stable { group.protocol() } else { "" }))
        .with_members(group.describe().into_iter().map(member).collect())
}
