//! Expiry of transactional ids (`transactional.id.expiration.ms`).

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::{
    ClusterConfig,
    coordinator::{
        Kind,
        bench::{Bench, Home},
        runtime::State,
    },
    transaction::{Added, Transactions, add, describe, end, init},
};

const EXPIRATION: Duration = Duration::from_secs(3600);
const INTERVAL: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);
/// Timeout of transactions, after which none of these tests looks.
const TIMEOUT: Duration = Duration::from_secs(10 * 3600);
const TIMEOUT_MS: i32 = 10 * 3_600_000;

async fn start(config: ClusterConfig) -> Bench {
    let config = ClusterConfig {
        transactional_id_expiration: EXPIRATION,
        transactional_id_removal_interval: INTERVAL,
        transaction_max_timeout: TIMEOUT,
        ..config
    };
    Bench::start(Kind::Transaction, config).await
}

async fn home(bench: &Bench, id: &str) -> Home<Transactions> {
    bench.home(|broker| &broker.transactions, id).await
}

/// Removes the expired ids of the partition of this id.
async fn remove(bench: &Bench, id: &str) {
    home(bench, id).await.run(Transactions::remove_expired);
}

async fn begin(bench: &Bench, id: &str) -> ProducerEpoch {
    let broker = home(bench, id).await.broker;
    init(&broker, id, TIMEOUT_MS, None).await.expect("a producer id")
}

/// Adds a partition of a topic that does not exist, whose markers need no leader.
async fn added(bench: &Bench, id: &str, producer: ProducerEpoch) -> Result<(), ErrorCode> {
    let broker = home(bench, id).await.broker;
    add(&broker, id, &Added { producer, partitions: [partition()].into() }).await
}

async fn ended(
    bench: &Bench,
    id: &str,
    producer: ProducerEpoch,
) -> Result<ProducerEpoch, ErrorCode> {
    let broker = home(bench, id).await.broker;
    end(&broker, id, producer, EndTxnMarker::Commit, Version::Two).await
}

async fn phase(bench: &Bench, id: &str) -> Result<Phase, ErrorCode> {
    let broker = home(bench, id).await.broker;
    describe(&broker, id).map(|txn| txn.phase)
}

#[test]
fn ids_without_an_open_transaction_expire_after_their_last_change() {
    for (phase, expires) in [
        (Phase::Empty, true),
        (Phase::Ongoing, false),
        (Phase::PrepareCommit, false),
        (Phase::PrepareAbort, false),
        (Phase::CompleteCommit, true),
        (Phase::CompleteAbort, true),
    ] {
        for version in [Version::One, Version::Two] {
            let txn = txn(phase, version);
            assert_eq!(txn.expired(NOW), expires, "{phase:?}");
            assert!(!txn.expired(NOW - 1), "{phase:?}");
        }
    }
}

#[tokio::test]
async fn an_expired_id_is_removed_from_the_log_and_begins_again_with_another_producer_id() {
    let bench = start(ClusterConfig::default()).await;
    let (idle, open, done) = ("idle", "open", "done");
    let producer = begin(&bench, idle).await;
    let of_open = begin(&bench, open).await;
    added(&bench, open, of_open).await.unwrap();
    let of_done = begin(&bench, done).await;
    added(&bench, done, of_done).await.unwrap();
    let of_done = ended(&bench, done, of_done).await.unwrap();
    let completed = async {
        while phase(&bench, done).await != Ok(Phase::CompleteCommit) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), completed).await.expect("markers are written");

    bench.pass(EXPIRATION - MS);
    for id in [idle, open, done] {
        remove(&bench, id).await;
        assert!(phase(&bench, id).await.is_ok(), "{id}");
    }
    bench.pass(MS);
    for id in [idle, open, done] {
        remove(&bench, id).await;
    }
    let unknown = ErrorCode::INVALID_PRODUCER_ID_MAPPING;
    for (id, producer) in [(idle, producer), (done, of_done)] {
        assert_eq!(phase(&bench, id).await, Err(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND), "{id}");
        assert_eq!(added(&bench, id, producer).await, Err(unknown), "{id}");
        assert_eq!(ended(&bench, id, producer).await, Err(unknown), "{id}");
        let (tombstones, _) = home(&bench, id).await.tombstones(0);
        assert!(tombstones.contains(&encode_key(id)), "{id}");
    }
    assert_eq!(phase(&bench, open).await, Ok(Phase::Ongoing));

    bench.restart().await;
    assert_eq!(phase(&bench, done).await, Err(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND));
    assert_eq!(phase(&bench, open).await, Ok(Phase::Ongoing));
    let again = begin(&bench, idle).await;
    assert!(again.id > producer.id, "{again:?}");
    assert_eq!(again.epoch, 0);
    assert_eq!(added(&bench, idle, producer).await, Err(unknown), "the previous producer's id");
    added(&bench, idle, again).await.unwrap();
    assert!(ended(&bench, open, of_open).await.is_ok());
}

/// In Kafka a producer that recovers from an error (KIP-360) also begins again.
#[tokio::test]
async fn a_producer_that_recovers_with_an_expired_id_gets_another_producer_id() {
    let bench = start(ClusterConfig::default()).await;
    let producer = begin(&bench, "t").await;
    bench.pass(EXPIRATION);
    remove(&bench, "t").await;
    let broker = home(&bench, "t").await.broker;
    let again = init(&broker, "t", TIMEOUT_MS, Some(producer)).await.unwrap();
    assert!(again.id > producer.id);
    assert_eq!(again.epoch, 0);
}

#[tokio::test]
async fn every_change_of_an_id_extends_its_life() {
    let bench = start(ClusterConfig::default()).await;
    begin(&bench, "t").await;
    bench.pass(EXPIRATION / 2);
    let producer = begin(&bench, "t").await;
    bench.pass(EXPIRATION - MS);
    remove(&bench, "t").await;
    let broker = home(&bench, "t").await.broker;
    assert_eq!(describe(&broker, "t").map(|txn| txn.producer), Ok(producer));
}

#[tokio::test]
async fn ids_expire_at_the_interval() {
    let bench = start(ClusterConfig::default()).await;
    begin(&bench, "t").await;
    bench.pass(EXPIRATION);
    let home = home(&bench, "t").await;
    home.run(|state, cx| {
        let check = state.next_removal.expect("the log has been read");
        assert!(check <= cx.now + INTERVAL);
        assert_eq!(state.deadline(), Some(check));
        cx.now = check - MS;
        state.expire(cx);
        assert_eq!(state.by_id.len(), 1);
        cx.now = check;
        state.expire(cx);
        assert!(state.by_id.is_empty());
        assert_eq!(state.deadline(), Some(check + INTERVAL));
    });
}

#[tokio::test]
async fn tombstones_fit_into_the_batches_that_the_log_accepts() {
    let config = ClusterConfig {
        message_max_bytes: 300,
        transaction_log_partitions: 1,
        ..Default::default()
    };
    let bench = start(config).await;
    let ids: Vec<String> = (0..20).map(|number| format!("{number:050}")).collect();
    for id in &ids {
        begin(&bench, id).await;
    }
    bench.pass(EXPIRATION);
    remove(&bench, "any").await;
    let mut found = home(&bench, "any").await.tombstones(0).0;
    found.sort_unstable();
    let expected: Vec<Bytes> = ids.iter().map(|id| encode_key(id)).collect();
    assert_eq!(found, expected);
    assert!(home(&bench, "any").await.run(|state, _| state.by_id.is_empty()));
}
