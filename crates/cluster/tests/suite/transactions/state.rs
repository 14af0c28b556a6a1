//! The log of transactional ids, `__transaction_state`: expiry, compaction, and loading after a restart.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use curtail_cluster::Storage;
use curtail_net::{Env, WallClock};
use curtail_wire::records::batches;

use super::*;

const EXPIRATION: Duration = Duration::from_secs(3600);

/// A wall clock that the test sets.
struct Clock(AtomicI64);

impl WallClock for Clock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the state of a transactional id and its producer id.
async fn described(cluster: &Cluster, id: &'static str) -> Result<(String, i64), ErrorCode> {
    let mut client = Client::connect(cluster, 1).await;
    let request = DescribeTransactionsRequest::default()
        .with_transactional_ids(vec![TransactionalId(text(id))]);
    patiently(async || {
        let state = client.cold(0, &request).await.transaction_states.remove(0);
        checked(state.error_code)?;
        Ok((state.transaction_state.to_string(), state.producer_id.0))
    })
    .await
}

/// Returns the number of records in a partition of `__transaction_state`, the number of those without
/// a value, and the high watermark.
async fn stored(cluster: &Cluster, partition: i32) -> (i64, i64, i64) {
    let mut client = Client::connect(cluster, 1).await;
    let mut request = fetch_request(STATE, partition, 0);
    request.min_bytes = 0;
    let response = client.fetch_raw(12, &request).await;
    let found = &response.topics[0].partitions[0];
    let (mut records, mut tombstones) = (0, 0);
    for batch in batches(found.records.clone()) {
        let batch = batch.expect("whole batches");
        for record in batch.records(&Default::default()).expect("records") {
            records += 1;
            tombstones += i64::from(record.expect("a record").value.is_none());
        }
    }
    (records, tombstones, found.high_watermark)
}

#[tokio::test]
async fn an_expired_transactional_id_is_unknown_and_stays_so_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(Clock(AtomicI64::new(1_700_000_000_000)));
    let env = || Env { wall: Arc::<Clock>::clone(&clock), ..Env::real() };
    let timeout = 10 * EXPIRATION;
    let lasting = ClusterConfig {
        storage: Storage::Dir(dir.path().to_owned()),
        transaction_max_timeout: timeout,
        ..config(1)
    };
    let expiring = ClusterConfig {
        transactional_id_expiration: EXPIRATION,
        transactional_id_removal_interval: Duration::from_millis(20),
        ..lasting.clone()
    };
    let cluster = soon(Cluster::start(expiring, env())).await.expect("it starts");
    with_coordinators(&cluster).await;
    cluster.create_topic("t", 1, 1, &[]).expect("the topic is new");
    cluster.settled().await;
    let at = ("t", 0);
    let mut idle = Producer::new(&cluster, "idle").await;
    assert_eq!(produce(&cluster, &idle, at, batch("a", idle.at, 0)).await, Ok(0));
    idle.end(true).await;
    assert_eq!(committed(&cluster, at, 2).await, ["a"]);
    let mut open = Producer::new(&cluster, "open").await;
    open.init(timeout.as_millis() as i32).await.expect("a producer id");
    assert_eq!(produce(&cluster, &open, at, batch("b", open.at, 0)).await, Ok(2));

    clock.0.fetch_add(EXPIRATION.as_millis() as i64, Ordering::Relaxed);
    let unknown = Err(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND);
    soon(async { while described(&cluster, "idle").await != unknown {} }).await;
    let unmapped = ErrorCode::INVALID_PRODUCER_ID_MAPPING;
    assert_eq!(produce(&cluster, &idle, at, batch("c", idle.at, 0)).await, Err(unmapped));
    assert_eq!(idle.add("t", 0).await, Err(unmapped));
    assert_eq!(idle.try_end(5, true).await, Err(unmapped));
    let mut tombstones = 0;
    for partition in 0..4 {
        tombstones += stored(&cluster, partition).await.1;
    }
    assert_eq!(tombstones, 1);
    soon(cluster.shutdown()).await;

    // Nothing expires any longer, so that the log decides.
    let cluster = soon(Cluster::start(lasting, env())).await.expect("it starts");
    with_coordinators(&cluster).await;
    assert_eq!(described(&cluster, "idle").await, unknown);
    assert_eq!(described(&cluster, "open").await, Ok(("Ongoing".to_owned(), open.at.0)));
    let again = Producer::new(&cluster, "idle").await;
    assert!(again.at.0 != idle.at.0 && again.at.0 != open.at.0, "{:?}", again.at);
    assert_eq!(again.at.1, 0);
    open.client = Client::connect(&cluster, 1).await;
    open.end(true).await;
    assert_eq!(committed(&cluster, at, 4).await, ["a", "b"]);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn transactions_survive_compaction_of_their_log() {
    // The ids are in the same partition, of four.
    let (partition, done, open) = (2, "done", "open");
    let backoff = Duration::from_millis(20);
    let config =
        ClusterConfig { log_segment_bytes: 600, log_cleaner_backoff: backoff, ..config(1) };
    let cluster = prepared(config).await;
    for topic in ["t", "u"] {
        cluster.create_topic(topic, 1, 1, &[]).expect("the topic is new");
    }
    cluster.settled().await;
    let mut open = Producer::new(&cluster, open).await;
    assert_eq!(produce(&cluster, &open, ("t", 0), batch("a", open.at, 0)).await, Ok(0));
    let mut done = Producer::new(&cluster, done).await;
    for round in 0..20 {
        let sent = produce(&cluster, &done, ("u", 0), batch("b", done.at, 0)).await;
        assert_eq!(sent, Ok(2 * round));
        done.end(round != 19).await;
    }
    assert_eq!(committed(&cluster, ("u", 0), 40).await, ["b"; 19]);
    let aborted = Ok(("CompleteAbort".to_owned(), done.at.0));
    soon(async { while described(&cluster, done.id).await != aborted {} }).await;
    soon(async {
        loop {
            let (records, _, high_watermark) = stored(&cluster, partition).await;
            assert!(high_watermark > 60, "every transaction has three changes");
            if records < high_watermark / 2 {
                return;
            }
        }
    })
    .await;

    cluster.kill(1);
    soon(cluster.restart(1)).await.expect("it starts again");
    assert_eq!(described(&cluster, done.id).await, aborted);
    let next = Producer::new(&cluster, done.id).await;
    assert_eq!(next.at, (done.at.0, done.at.1 + 1));
    assert_eq!(described(&cluster, open.id).await, Ok(("Ongoing".to_owned(), open.at.0)));
    open.client = Client::connect(&cluster, 1).await;
    assert_eq!(produce(&cluster, &open, ("t", 0), batch("c", open.at, 1)).await, Ok(1));
    open.end(true).await;
    assert_eq!(committed(&cluster, ("t", 0), 3).await, ["a", "c"]);
    soon(cluster.shutdown()).await;
}
