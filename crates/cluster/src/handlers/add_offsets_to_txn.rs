//! AddOffsetsToTxn, key 25, versions 0 to 4: adds the partition of a group's offsets to a
//! transaction. Before version 2 PRODUCER_FENCED is INVALID_PRODUCER_EPOCH.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse},
};

use super::{Answer, Call, Item};
use crate::{
    acl::{Operation, Resource},
    coordinator::{self, Kind},
    transaction::{self, Added, ProducerEpoch},
};

/// First version with PRODUCER_FENCED.
const FENCED: i16 = 2;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: AddOffsetsToTxnRequest = call.decode(body)?;
    let code = match add(call, &request).await {
        Ok(()) => ErrorCode::NONE,
        Err(code) => call.fenced_code(code, FENCED),
    };
    call.answer(&AddOffsetsToTxnResponse::default().with_error_code(code.0), out)
}

async fn add(call: &Call<'_>, request: &AddOffsetsToTxnRequest) -> Result<(), ErrorCode> {
    call.require(Operation::Write, Resource::TransactionalId(&request.transactional_id.0))?;
    call.require(Operation::Read, Resource::Group(&request.group_id.0))?;
    call.injected(Item::Request)?;
    // Creates the offsets topic if it does not exist.
    coordinator::find(call.broker, Kind::Group, &request.group_id.0)?;
    let index = coordinator::partition_of(&call.broker.image(), Kind::Group, &request.group_id.0);
    let index = index.ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)?;
    let producer = ProducerEpoch { id: request.producer_id.0, epoch: request.producer_epoch };
    let partitions = [(Kind::Group.topic().to_owned(), index)].into();
    transaction::add(call.broker, &request.transactional_id.0, &Added { producer, partitions })
        .await
}
