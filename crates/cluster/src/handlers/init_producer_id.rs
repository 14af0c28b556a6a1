//! InitProducerId, key 22, versions 0 to 5.
//!
//! Gives idempotent producers ids that are unique in the cluster, at epoch 0. A producer that asks to go on with an id
//! gets a new one, which is always right for idempotence. Transactions are not served: a transactional id is
//! answered with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one error clients take as final.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId},
};

use super::{Answer, Call};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: InitProducerIdRequest = call.decode(body)?;
    let (error, id, epoch) = match request.transactional_id {
        Some(_) => (ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1),
        None => (ErrorCode::NONE, call.broker.controller.next_producer_id(), 0),
    };
    let response = InitProducerIdResponse::default()
        .with_error_code(error.0)
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(epoch);
    call.answer(&response, out)
}
