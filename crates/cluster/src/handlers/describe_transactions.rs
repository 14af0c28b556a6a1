//! DescribeTransactions, key 65, version 0: the state of transactional ids at their coordinator
//! (KIP-664).

use std::collections::BTreeMap;

use bytes::Bytes;
use curtail_wire::cold::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TransactionalId,
    describe_transactions_response::{TopicData, TransactionState},
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    transaction::{self, Txn},
};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeTransactionsRequest = call.decode(body)?;
    call.concerns(request.transactional_ids.len());
    let states = request.transactional_ids.iter().map(|id| {
        let allowed = call.require(Operation::Describe, Resource::TransactionalId(&id.0));
        let state = match allowed.and_then(|()| transaction::describe(call.broker, &id.0)) {
            Ok(txn) => state(&txn),
            Err(code) => TransactionState::default().with_error_code(code.0),
        };
        state.with_transactional_id(TransactionalId(id.0.clone()))
    });
    let response =
        DescribeTransactionsResponse::default().with_transaction_states(states.collect());
    call.answer(&response, out)
}

fn state(txn: &Txn) -> TransactionState {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, index) in &txn.partitions {
        topics.entry(topic).or_default().push(*index);
    }
    let topics = topics.into_iter().map(|(topic, indexes)| {
        TopicData::default().with_topic(text(topic).into()).with_partitions(indexes)
    });
    TransactionState::default()
        .with_transaction_state(text(txn.phase.name()))
        .with_transaction_timeout_ms(txn.timeout_ms)
        .with_transaction_start_time_ms(txn.started_ms)
        .with_producer_id(txn.producer.id.into())
        .with_producer_epoch(txn.producer.epoch)
        .with_topics(topics.collect())
}
