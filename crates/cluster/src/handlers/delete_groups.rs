//! DeleteGroups, key 42, versions 0 to 2: deletes groups without members, with all their offsets.

use std::collections::BTreeSet;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        DeleteGroupsRequest, DeleteGroupsResponse, GroupId,
        delete_groups_response::DeletableGroupResult,
    },
};

use super::{Answer, Call};
use crate::acl::{Operation, Resource};

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: DeleteGroupsRequest = call.decode(body)?;
    call.concerns(request.groups_names.len());
    let mut results = Vec::with_capacity(request.groups_names.len());
    let mut seen = BTreeSet::new();
    for id in request.groups_names.iter().filter(|id| seen.insert(id.as_str())) {
        let code = delete(call, id).await.err().unwrap_or(ErrorCode::NONE);
        results.push(
            DeletableGroupResult::default().with_group_id(id.clone()).with_error_code(code.0),
        );
    }
    call.answer(&DeleteGroupsResponse::default().with_results(results), out)
}

async fn delete(call: &Call<'_>, id: &GroupId) -> Result<(), ErrorCode> {
    call.require(Operation::Delete, Resource::Group(&id.0))?;
    let groups = call.groups(&id.0)?;
    let taken = groups.run(call.broker, |groups, cx| groups.delete(&id.0, cx))??;
    let Some(taken) = taken else { return Ok(()) };
    groups.committed(call.broker, &taken, call.broker.config.offsets_commit_timeout).await
}
