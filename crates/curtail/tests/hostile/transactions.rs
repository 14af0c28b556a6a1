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
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{
    broker::{Act, Broker, Call, SPOKEN, TOPIC, api_versions},
    deadlines::{REQUEST, config, refused},
    pipe::{PipeNet, Reach},
    *,
};

/// Responses of an obedient coordinator.
pub(crate) fn answer(broker: &Broker, call: &Call, body: Bytes) -> Vec<u8> {
    if call.api == ApiKey::END_TXN {
        let request: messages::EndTxnRequest = cold::decode_request(call.version, body).unwrap();
        broker.model.lock().commits += usize::from(request.committed);
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
        assert_eq!((broker.calls(ApiKey::PRODUCE), broker.model.lock().commits), (0, 0));
    });
}

/// Aborts a transaction whose only batch expires in flight after 10 s. `late` handles the response to its last
/// request, at about 8 s. Returns the time at which EndTxn arrived.
async fn ended_after(late: impl Fn(Vec<u8>) -> Act + Send + 'static) -> Duration {
    let began = Instant::now();
    let ended = Arc::new(Mutex::new(None));
    let at = ended.clone();
    let (broker, env, _) = PipeNet::with(Reach::Open, move |call, honest| match call.api {
        ApiKey::API_VERSIONS => Act::Send(with_transactions(call)),
        ApiKey::PRODUCE if began.elapsed() < Duration::from_secs(8) => refused(call, &honest),
        ApiKey::PRODUCE => late(honest),
        ApiKey::END_TXN => {
            at.lock().get_or_insert(began.elapsed());
            Act::Send(honest)
        }
        _ => Act::Send(honest),
    });
    broker.model.lock().appends_only_after(began + Duration::from_secs(8));
    let config = config().max_block(Duration::from_secs(60));
    let mut producer = TransactionalProducer::with_env(config.transactional_id("g"), &env).unwrap();
    producer.init_transactions().await.expect("an identity");
    let transaction = producer.begin_transaction().await.expect("ready");
    let delivery = transaction.send(Record::to(TOPIC).value("x")).await.expect("queued");
    let error = delivery.await.expect_err("it expires");
    assert!(error.may_have_been_written(), "{error}");
    transaction.abort().await.expect("aborted");
    assert_eq!(broker.model.lock().commits, 0, "nothing here is committed");
    ended.lock().expect("EndTxn arrived")
}

/// The leader may append the batch after the marker of the abort, and block the partition's last stable offset.
#[test]
fn an_abort_in_version_1_waits_for_the_response_to_an_expired_batch() {
    run_virtually(async {
        let response = Duration::from_secs(4);
        let ended = ended_after(move |honest| Act::Later(response, honest)).await;
        assert!(ended >= Duration::from_secs(12), "EndTxn after {ended:?}");
    });
}

#[test]
fn an_abort_in_version_1_waits_for_an_expired_batch_no_longer_than_the_request_timeout() {
    run_virtually(async {
        let ended = ended_after(|_| Act::Swallow).await;
        let closed = Duration::from_secs(8) + REQUEST;
        assert!(
            (closed..closed + Duration::from_secs(1)).contains(&ended),
            "EndTxn after {ended:?}"
        );
    });
}

/// Ends a transaction whose EndTxn response arrives after the call's time limit, and repeats the call after that.
async fn repeated_end(commits: bool) -> Result<(), Error> {
    let late = Duration::from_secs(3);
    let (broker, env, _) = PipeNet::with(Reach::Open, move |call, honest| match call.api {
        ApiKey::API_VERSIONS => Act::Send(with_transactions(call)),
        ApiKey::END_TXN => Act::Later(late, honest),
        _ => Act::Send(honest),
    });
    let config = config().max_block(Duration::from_secs(1));
    let mut producer = TransactionalProducer::with_env(config.transactional_id("g"), &env)?;
    producer.init_transactions().await?;
    let transaction = producer.begin_transaction().await?;
    transaction.send(Record::to(TOPIC).value("x")).await?.await?;
    let ended = match commits {
        true => transaction.commit().await,
        false => transaction.abort().await,
    };
    assert!(matches!(ended, Err(Error::Timeout { .. })), "{ended:?}");
    // The response arrives while no call waits for it.
    tokio::time::sleep(2 * late).await;
    let again = match commits {
        true => producer.commit_transaction().await,
        false => producer.abort_transaction().await,
    };
    assert_eq!(broker.calls(ApiKey::END_TXN), 1, "it is not sent again");
    assert_eq!(broker.model.lock().commits, usize::from(commits));
    // Its outcome is known now: another call has nothing to end.
    let error = producer.commit_transaction().await.expect_err("no transaction is open");
    assert!(matches!(error, Error::IllegalState(_)), "{error}");
    producer.begin_transaction().await?.abort().await?;
    again
}

#[test]
fn a_repeated_commit_that_completed_between_the_calls_succeeds() {
    run_virtually(async { repeated_end(true).await.expect("it was committed") });
}

#[test]
fn a_repeated_abort_that_completed_between_the_calls_succeeds() {
    run_virtually(async { repeated_end(false).await.expect("it was aborted") });
}
