//! ListTransactions, key 66, versions 0 to 2: the transactional ids that this broker coordinates,
//! filtered by state, producer id and, from version 1 on, by the duration of their transaction
//! (KIP-664, KIP-994). From version 2 on a regular expression filters the ids (KIP-1152).

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        ListTransactionsRequest, ListTransactionsResponse, TransactionalId,
        list_transactions_response::TransactionState,
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    coordinator::consumer::compile_regex,
    transaction::{self, Phase, Txn},
};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: ListTransactionsRequest = call.decode(body)?;
    let pattern = request.transactional_id_pattern.as_deref().filter(|pattern| !pattern.is_empty());
    let pattern = match pattern.map(compile_regex).transpose() {
        Ok(pattern) => pattern,
        Err(refused) => {
            call.concerns(0);
            let response = ListTransactionsResponse::default().with_error_code(refused.code.0);
            return call.answer(&response, out);
        }
    };
    let unknown = request.state_filters.iter().filter(|name| !Phase::is_name(name));
    let response =
        ListTransactionsResponse::default().with_unknown_state_filters(unknown.cloned().collect());
    let wanted = |id: &str, txn: &Txn, now_ms: i64| {
        let states = &request.state_filters;
        let ids = &request.producer_id_filters;
        let open_for = now_ms.saturating_sub(txn.started_ms);
        call.may(Operation::Describe, Resource::TransactionalId(id))
            && pattern.as_ref().is_none_or(|pattern| pattern.is_match(id))
            && (states.is_empty() || states.iter().any(|name| **name == *txn.phase.name()))
            && (ids.is_empty() || ids.iter().any(|id| id.0 == txn.producer.id))
            && (request.duration_filter < 0
                || (txn.phase == Phase::Ongoing && open_for > request.duration_filter))
    };
    let response = match transaction::list(call.broker, wanted) {
        Ok(found) => {
            call.concerns(found.len());
            let states = found.into_iter().map(|(id, producer, phase)| {
                TransactionState::default()
                    .with_transactional_id(TransactionalId(text(&id)))
                    .with_producer_id(producer.into())
                    .with_transaction_state(text(phase.name()))
            });
            response.with_transaction_states(states.collect())
        }
        Err(code) => {
            call.concerns(0);
            debug_assert_ne!(code, ErrorCode::NONE);
            response.with_error_code(code.0)
        }
    };
    call.answer(&response, out)
}
