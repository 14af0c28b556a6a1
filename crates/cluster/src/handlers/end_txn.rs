//! EndTxn, key 26, versions 0 to 5.
//!
//! The response follows once the end is decided and cannot be lost. The markers are written
//! afterwards; until then the next transaction gets CONCURRENT_TRANSACTIONS. From version 5 on
//! every transaction bumps its producer's epoch, and the response contains the new one (KIP-890).
//! Before version 2 PRODUCER_FENCED is INVALID_PRODUCER_EPOCH.

use bytes::Bytes;
use curtail_wire::{
    cold::messages::{EndTxnRequest, EndTxnResponse, ProducerId},
    records::EndTxnMarker,
};

use super::{Answer, Call, Item};
use crate::{
    acl::{Operation, Resource},
    transaction::{self, ProducerEpoch, Version},
};

/// First version with PRODUCER_FENCED.
const FENCED: i16 = 2;
/// First version of transaction version 2.
const BUMPED: i16 = 5;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: EndTxnRequest = call.decode(body)?;
    let producer = ProducerEpoch { id: request.producer_id.0, epoch: request.producer_epoch };
    let result = if request.committed { EndTxnMarker::Commit } else { EndTxnMarker::Abort };
    let client = if call.version() >= BUMPED { Version::Two } else { Version::One };
    let id = &request.transactional_id.0;
    let allowed = call.require(Operation::Write, Resource::TransactionalId(id));
    let ended = match allowed.and_then(|()| call.injected(Item::Request)) {
        Ok(()) => transaction::end(call.broker, id, producer, result, client).await,
        Err(code) => Err(code),
    };
    let response = match ended {
        Ok(after) if client == Version::Two => EndTxnResponse::default()
            .with_producer_id(ProducerId(after.id))
            .with_producer_epoch(after.epoch),
        Ok(_) => EndTxnResponse::default(),
        Err(code) => EndTxnResponse::default().with_error_code(call.fenced_code(code, FENCED).0),
    };
    call.answer(&response, out)
}
