//! InitProducerId, key 22, versions 0 to 5.
//!
//! - Without a transactional id: returns an id that is unique in the cluster, at epoch 0. A
//!   producer that asks to continue with an id gets a new one, which is always correct for
//!   idempotence.
//! - With a transactional id: only its coordinator serves the request, and returns a new epoch that
//!   fences the previous producer. From version 3 on a producer sends its id and epoch to recover
//!   from an error (KIP-360). Before version 4 PRODUCER_FENCED is INVALID_PRODUCER_EPOCH.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId},
};

use super::{Answer, Call, Item};
use crate::{
    acl::{Operation, Resource, ResourceType},
    transaction::{self, ProducerEpoch},
};

/// First version with PRODUCER_FENCED.
const FENCED: i16 = 4;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: InitProducerIdRequest = call.decode(body)?;
    let given = match &request.transactional_id {
        None => idempotent(call),
        Some(id) => transactional(call, &id.0, &request).await,
    };
    let response = match given {
        Ok(ProducerEpoch { id, epoch }) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(id))
            .with_producer_epoch(epoch),
        Err(code) => InitProducerIdResponse::default()
            .with_error_code(call.fenced_code(code, FENCED).0)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    };
    call.answer(&response, out)
}

/// Returns an id for an idempotent producer. Permission to write to any topic suffices (KIP-679).
fn idempotent(call: &Call<'_>) -> Result<ProducerEpoch, ErrorCode> {
    if !call.may_with_any(Operation::Write, ResourceType::Topic) {
        call.require(Operation::IdempotentWrite, Resource::Cluster)?;
    }
    call.injected(Item::Request)?;
    let epoch = call.broker.config.first_producer_epoch;
    Ok(ProducerEpoch { id: call.broker.controller.next_producer_id()?, epoch })
}

async fn transactional(
    call: &Call<'_>,
    id: &str,
    request: &InitProducerIdRequest,
) -> Result<ProducerEpoch, ErrorCode> {
    call.require(Operation::Write, Resource::TransactionalId(id))?;
    call.injected(Item::Request)?;
    let expected = match (request.producer_id.0, request.producer_epoch) {
        (-1, -1) => None,
        (-1, _) | (_, -1) => return Err(ErrorCode::INVALID_REQUEST),
        (id, epoch) => Some(ProducerEpoch { id, epoch }),
    };
    transaction::init(call.broker, id, request.transaction_timeout_ms, expected).await
}
