//! UnregisterBroker, key 64, version 0 (KIP-631). A running broker stays out until it restarts.

use bytes::Bytes;
use curtail_wire::cold::messages::{UnregisterBrokerRequest, UnregisterBrokerResponse};

use super::{Answer, Call};
use crate::acl::{Operation, Resource};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: UnregisterBrokerRequest = call.decode(body)?;
    let response = UnregisterBrokerResponse::default();
    if let Err(code) = call.require(Operation::Alter, Resource::Cluster) {
        return call.answer(&response.with_error_code(code.0), out);
    }
    match call.broker.controller.unregister(request.broker_id.0) {
        Ok(()) => call.answer(&response, out),
        // Kafka sends no message.
        Err((code, _)) => call.answer(&response.with_error_code(code.0), out),
    }
}
