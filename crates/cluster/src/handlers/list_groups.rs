//! ListGroups, key 16, versions 0 to 5: the groups this broker coordinates, from version 4 on
//! filtered by state (KIP-518), from version 5 on by type (KIP-848).

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        GroupId, ListGroupsRequest, ListGroupsResponse, list_groups_response::ListedGroup,
    },
};

use super::{Answer, Call, text};
use crate::acl::{Operation, Resource};

/// First version with states.
const STATES: i16 = 4;
/// First version with types.
const TYPES: i16 = 5;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: ListGroupsRequest = call.decode(body)?;
    let response = match list(call, &request) {
        Ok(groups) => ListGroupsResponse::default().with_groups(groups),
        Err(code) => ListGroupsResponse::default().with_error_code(code.0),
    };
    call.answer(&response, out)
}

fn list(call: &Call<'_>, request: &ListGroupsRequest) -> Result<Vec<ListedGroup>, ErrorCode> {
    let among = |filter: &[curtail_wire::cold::StrBytes], name: &str| {
        filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
    };
    let all = call.may(Operation::Describe, Resource::Cluster);
    let shown = |id: &str| all || call.may(Operation::Describe, Resource::Group(id));
    let mut listed = Vec::new();
    for shard in call.broker.groups.shards() {
        let groups = shard.run(call.broker, |groups, _| {
            let groups = groups.all().filter(|(id, group)| {
                shown(id)
                    && among(&request.states_filter, group.state_name())
                    && among(&request.types_filter, group.type_name())
            });
            groups
                .map(|(id, group)| {
                    let listed = ListedGroup::default()
                        .with_group_id(GroupId(text(id)))
                        .with_protocol_type(text(group.protocol_type()));
                    let listed = match call.version() {
                        ..STATES => listed,
                        _ => listed.with_group_state(text(group.state_name())),
                    };
                    match call.version() {
                        ..TYPES => listed,
                        _ => listed.with_group_type(text(group.type_name())),
                    }
                })
                .collect::<Vec<_>>()
        });
        match groups {
            Ok(groups) => listed.extend(groups),
            // The partition has just moved to another broker, which lists its groups.
            Err(ErrorCode::NOT_COORDINATOR) => {}
            Err(code) => return Err(code),
        }
    }
    Ok(listed)
}
