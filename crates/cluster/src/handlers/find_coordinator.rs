//! FindCoordinator, key 10, versions 0 to 6; one key up to version 3, many from version 4 on.
//!
//! Any broker serves it. The first request creates the internal topic and receives a retriable
//! error. Groups and transactions have coordinators; share groups (key type 2) have none here.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::{
        StrBytes,
        messages::{
            BrokerId, FindCoordinatorRequest, FindCoordinatorResponse,
            find_coordinator_response::Coordinator,
        },
    },
};

use super::{Answer, Call, Item, text};
use crate::{
    acl::{Operation, Resource},
    coordinator::{self, Kind},
};

/// First version with many keys.
const BATCHED: i16 = 4;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: FindCoordinatorRequest = call.decode(body)?;
    if call.version() >= BATCHED {
        call.concerns(request.coordinator_keys.len());
        let found = request.coordinator_keys.iter().map(|key| find(call, key, request.key_type));
        let response = FindCoordinatorResponse::default().with_coordinators(found.collect());
        return call.answer(&response, out);
    }
    let found = find(call, &request.key, request.key_type);
    let response = FindCoordinatorResponse::default()
        .with_error_code(found.error_code)
        .with_error_message(found.error_message)
        .with_node_id(found.node_id)
        .with_host(found.host)
        .with_port(found.port);
    call.answer(&response, out)
}

fn find(call: &Call<'_>, key: &StrBytes, key_type: i8) -> Coordinator {
    let found = match Kind::of_key_type(key_type) {
        Some(kind) => {
            let resource = match kind {
                Kind::Group => Resource::Group(key),
                Kind::Transaction => Resource::TransactionalId(key),
            };
            let allowed = call.require(Operation::Describe, resource);
            let allowed = allowed.and_then(|()| call.injected(Item::Request));
            let found = allowed.and_then(|()| coordinator::find(call.broker, kind, key));
            found.and_then(|broker| {
                let endpoint = broker.endpoint(call.listener).cloned();
                Ok((broker.id, endpoint.ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)?))
            })
        }
        None => {
            call.concerns(0);
            Err(ErrorCode::INVALID_REQUEST)
        }
    };
    let answer = Coordinator::default().with_key(key.clone());
    match found {
        Ok((id, endpoint)) => answer
            .with_node_id(BrokerId(id))
            .with_host(text(endpoint.host()))
            .with_port(i32::from(endpoint.port())),
        Err(code) => answer
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .with_error_code(code.0)
            .with_error_message(Some(text(code.message()))),
    }
}
