//! Transaction coordinators whose responses get lost.

use std::sync::Arc;

use bytes::Bytes;
use curtail::{ErrorCode, TransactionalProducer};
use curtail_wire::{
    ApiKey,
    cold::{self, messages},
};
use messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult as PartitionResult,
    AddPartitionsToTxnTopicResult as TopicResult,
};
use tokio::sync::Notify;

use crate::{
    broker::{Act, Broker, Call, SPOKEN, TOPIC, api_versions},
    *,
};

/// Responses of a coordinator that does as asked.
pub(crate) fn answer(call: &Call, body: Bytes) -> Vec<u8> {
    if call.api == ApiKey::END_TXN {
        let request: messages::EndTxnRequest = cold::decode_request(call.version, body).unwrap();
        assert!(!request.committed, "nothing here is committed");
        let answer = messages::EndTxnResponse::default();
        return cold::encode_response(call.api, call.version, call.correlation_id, &answer)
            .unwrap();
    }
    added(call, ErrorCode::NONE)
}

/// The response to AddPartitionsToTxn for partition 0.
fn added(call: &Call, code: ErrorCode) -> Vec<u8> {
    let partition = PartitionResult::default().with_partition_error_code(code.0);
    let topic = TopicResult::default()
        .with_name(cold::StrBytes::from_static_str(TOPIC).into())
        .with_results_by_partition(vec![partition]);
    let answer = messages::AddPartitionsToTxnResponse::default()
        .with_results_by_topic_v3_and_below(vec![topic]);
    cold::encode_response(call.api, call.version, call.correlation_id, &answer).unwrap()
}

fn with_transactions(call: &Call) -> Vec<u8> {
    let mut spoken = SPOKEN.to_vec();
    spoken.extend([(ApiKey::ADD_PARTITIONS_TO_TXN, 0, 3), (ApiKey::END_TXN, 0, 4)]);
    api_versions(call, &spoken)
}

#[test]
fn abort_after_a_lost_response_and_refusals_ends_the_transaction_at_the_coordinator() {
    run(async {
        let refused = Arc::new(Notify::new());
        let seen = refused.clone();
        let broker = Broker::start(move |call, honest| match (call.api, call.nth) {
            (ApiKey::API_VERSIONS, _) => Act::Send(with_transactions(call)),
            // Carried out, but the response is lost.
            (ApiKey::ADD_PARTITIONS_TO_TXN, 0) => Act::Cut(Vec::new()),
            (ApiKey::ADD_PARTITIONS_TO_TXN, 1..5) => {
                seen.notify_one();
                Act::Send(added(call, ErrorCode::CONCURRENT_TRANSACTIONS))
            }
            _ => Act::Send(honest),
        })
        .await;
        let config = producer_config(&broker.address.to_string()).transactional_id("g");
        let mut producer = TransactionalProducer::with_env(config, &broker.env()).unwrap();
        ends("init", producer.init_transactions()).await.expect("an identity");
        let transaction = ends("begin", producer.begin_transaction()).await.expect("ready");
        let delivery = transaction.send(Record::to(TOPIC).value("x")).await.expect("queued");
        ends("the refusal", refused.notified()).await;
        ends("abort", transaction.abort()).await.expect("aborted");
        ends("delivery", delivery).await.expect_err("it was not sent");
        assert_eq!(broker.calls(ApiKey::END_TXN), 1, "the coordinator still holds it open");
        assert_eq!(broker.calls(ApiKey::PRODUCE), 0);
    });
}
