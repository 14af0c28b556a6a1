//! Outcomes by tag within transactions ([`curtail::transaction::Transaction::send_tagged`]), on the embedded cluster. Versions 1 and
//! 2 of transactions differ in what an abort waits for.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    common::{Backend, until},
    completions::{Received, received},
};
use curtail::{
    Consumer, ConsumerConfig, Error, ErrorCode, ProducerConfig, Record, TopicPartition,
    TransactionalProducer, config::IsolationLevel, metrics::ProducerMetrics, producer::Completions,
};
use tokio::time::timeout;

const TOPIC: &str = "tagged";
const PARTITIONS: i32 = 3;
const PATIENT: Duration = Duration::from_secs(600);

/// A cluster with the topic and this version of transactions, and an initialized producer that knows the topic.
async fn ready(version: i16, properties: &[(&str, &str)]) -> (Backend, TransactionalProducer) {
    let backend = Backend::embedded_with(1, |config| {
        config.broker_session_timeout = PATIENT;
        config.transaction_version = version;
        config.transaction_log_partitions = 1;
        config.auto_create_topics = false;
    })
    .await;
    backend.create_topic_with(TOPIC, PARTITIONS, 1, &[("max.message.bytes", "20000")]).await;
    let producer = initialized(&backend, properties).await;
    (backend, producer)
}

async fn initialized(backend: &Backend, properties: &[(&str, &str)]) -> TransactionalProducer {
    let mut config = ProducerConfig::new(backend.bootstrap()).transactional_id("tagged");
    for (name, value) in properties {
        config.set(name, value).expect("a known property");
    }
    let mut producer = TransactionalProducer::new(config).expect("usable");
    producer.init_transactions().await.expect("initialized");
    producer.warm_up(&[TOPIC]).await.expect("warm");
    producer
}

/// The record with this tag as its value.
async fn send(
    transaction: &curtail::transaction::Transaction<'_>,
    tags: impl IntoIterator<Item = u64>,
    sink: &curtail::producer::CompletionSink,
) {
    for tag in tags {
        let value = tag.to_string();
        let record = Record::to(TOPIC).partition(tag as i32 % PARTITIONS).value(&value);
        transaction.send_tagged(record, tag, sink).await.expect("sent");
    }
}

/// Takes the runs that have arrived. No tag may come twice.
fn arrived(completions: &mut Completions, all: &mut Received) {
    while let Some(run) = completions.try_next() {
        all.add(&run);
    }
}

/// Tags of the committed records, by partition and offset.
async fn committed(backend: &Backend) -> BTreeMap<(i32, Option<i64>), u64> {
    let config = ConsumerConfig::new(backend.bootstrap());
    let mut consumer =
        Consumer::new(config.isolation_level(IsolationLevel::ReadCommitted)).expect("usable");
    let all: Vec<_> = (0..PARTITIONS).map(|index| TopicPartition::new(TOPIC, index)).collect();
    let uncommitted = Consumer::new(ConsumerConfig::new(backend.bootstrap())).expect("usable");
    let ends = uncommitted.end_offsets(&all).await.expect("ends");
    consumer.assign(all.iter().cloned());
    consumer.seek_to_beginning(&all).expect("assigned");
    let mut seen = BTreeMap::new();
    let read = async {
        loop {
            let mut is_done = true;
            for partition in &all {
                is_done &= consumer.position(partition).await.expect("one") >= ends[partition];
            }
            if is_done {
                return;
            }
            for record in consumer.poll(Duration::from_millis(100)).await.expect("records") {
                let value = std::str::from_utf8(record.value().expect("a value")).expect("text");
                let at = (record.partition(), Some(record.offset()));
                seen.insert(at, value.parse().expect("a tag"));
            }
        }
    };
    timeout(PATIENT, read).await.expect("the records are readable");
    seen
}

/// Partition and offset, and the tag of the record there.
fn by_place(written: BTreeMap<u64, (i32, Option<i64>)>) -> BTreeMap<(i32, Option<i64>), u64> {
    written.into_iter().map(|(tag, place)| (place, tag)).collect()
}

/// Unwraps the cause of a record that was certainly not written.
fn not_written(error: &Error) -> &Error {
    match error {
        Error::NotAcknowledged { may_have_been_written: false, cause, .. } => cause,
        _ => panic!("{error}"),
    }
}

/// When a commit returns, all runs have arrived. An abort fails unsent records; those written before keep their
/// offsets.
async fn each_tag_has_one_outcome_with_commit_and_abort(version: i16) {
    let (backend, mut producer) = ready(version, &[("linger.ms", "60000")]).await;
    let (sink, mut completions) = producer.completions();
    let mut all = Received::default();

    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, 0..30, &sink).await;
    assert!(completions.try_next().is_none(), "the records linger");
    transaction.commit().await.expect("committed");
    arrived(&mut completions, &mut all);
    assert_eq!(all.written.len(), 30, "{all:?}");

    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, 100..130, &sink).await;
    transaction.flush().await.expect("flushed");
    arrived(&mut completions, &mut all);
    assert_eq!(all.written.len(), 60, "{all:?}");
    send(&transaction, 200..230, &sink).await;
    transaction.abort().await.expect("aborted");
    arrived(&mut completions, &mut all);
    assert_eq!(all.written.len(), 60, "{all:?}");
    assert!(all.failed.keys().copied().eq(200..230), "{all:?}");
    for error in all.failed.values() {
        let cause = not_written(error);
        assert!(matches!(cause, Error::TransactionAborted), "{cause}");
    }

    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, 300..330, &sink).await;
    drop(sink);
    transaction.commit().await.expect("committed");
    arrived(&mut completions, &mut all);
    assert!(completions.is_ended());
    all.written.retain(|tag, _| !(100..130).contains(tag));
    assert_eq!(by_place(all.written), committed(&backend).await);
    producer.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tag_has_one_outcome_with_commit_and_abort_version_1() {
    each_tag_has_one_outcome_with_commit_and_abort(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tag_has_one_outcome_with_commit_and_abort_version_2() {
    each_tag_has_one_outcome_with_commit_and_abort(2).await;
}

/// A transaction ends while its records are in flight, by a dropped handle and the next begin. The records of the next
/// transaction share sink and partitions.
async fn records_in_flight_of_a_dropped_transaction_have_one_outcome(version: i16) {
    let (backend, mut producer) = ready(version, &[("linger.ms", "0")]).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let (sink, completions) = producer.completions();
    // Produce responses.
    cluster.delay(None, Some(0), Duration::from_millis(300));
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, 0..300, &sink).await;
    drop(transaction);
    let transaction = producer.begin_transaction().await.expect("begun");
    cluster.clear_delays();
    send(&transaction, 300..600, &sink).await;
    drop(sink);
    transaction.commit().await.expect("committed");
    let all = received(completions).await;
    assert_eq!(all.written.len() + all.failed.len(), 600);
    for tag in 300..600 {
        assert!(all.written.contains_key(&tag), "{tag}: {:?}", all.failed.get(&tag));
    }
    let kept = all.written.into_iter().filter(|(tag, _)| *tag >= 300).collect();
    assert_eq!(by_place(kept), committed(&backend).await);
    producer.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_in_flight_of_a_dropped_transaction_have_one_outcome_version_1() {
    records_in_flight_of_a_dropped_transaction_have_one_outcome(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_in_flight_of_a_dropped_transaction_have_one_outcome_version_2() {
    records_in_flight_of_a_dropped_transaction_have_one_outcome(2).await;
}

/// A record that cannot be written fails the transaction. Later sends are refused, and their tags never arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_transaction_reports_each_tag_and_refuses_more() {
    let properties = [("linger.ms", "60000"), ("batch.size", "16384")];
    let (backend, mut producer) = ready(2, &properties).await;
    let (sink, mut completions) = producer.completions();
    let transaction = producer.begin_transaction().await.expect("begun");
    // The queued records of the other partitions fail with the transaction.
    send(&transaction, [1, 2], &sink).await;
    // Larger than the topic accepts, smaller than the producer's limit: full, so it leaves at once.
    let huge = vec![b'x'; 40_000];
    let record = Record::to(TOPIC).partition(0).value(&huge);
    transaction.send_tagged(record, 0, &sink).await.expect("appended");
    let first = timeout(PATIENT, completions.next()).await.expect("in time").expect("a run");
    assert_eq!(first.tags(), [0]);
    let cause = not_written(first.outcome().expect_err("too large"));
    let too_large = ErrorCode::MESSAGE_TOO_LARGE;
    assert!(matches!(cause, Error::Broker { code, .. } if *code == too_large), "{cause}");
    let record = Record::to(TOPIC).partition(0).value("late");
    let refused = transaction.send_tagged(record, 3, &sink).await.expect_err("it has failed");
    assert!(refused.is_abortable(), "{refused}");
    let refused = transaction.try_send_tagged(record, 4, &sink).expect_err("it has failed");
    assert!(refused.is_abortable(), "{refused}");
    // A task fails the queued records. With an abort before it they would have another cause.
    let mut others = BTreeMap::new();
    while others.len() < 2 {
        let run = timeout(PATIENT, completions.next()).await.expect("in time").expect("a run");
        let error = run.outcome().expect_err("the transaction has failed");
        others.extend(run.tags().iter().map(|tag| (*tag, not_written(error).is_abortable())));
    }
    assert_eq!(others, BTreeMap::from([(1, true), (2, true)]));
    let error = transaction.commit().await.expect_err("it lacks a record");
    assert!(error.is_abortable(), "{error}");
    producer.abort_transaction().await.expect("aborted");

    let transaction = producer.begin_transaction().await.expect("begun");
    let record = Record::to("missing").value("v");
    let refused = transaction.try_send_tagged(record, 5, &sink).expect_err("unknown topic");
    assert!(matches!(refused, Error::IllegalState(_)), "{refused}");
    send(&transaction, [6], &sink).await;
    drop(sink);
    transaction.commit().await.expect("committed");
    let Received { written, failed } = received(completions).await;
    assert!(failed.is_empty(), "each record has one run: {failed:?}");
    assert!(written.keys().copied().eq([6]), "{written:?}");
    assert_eq!(by_place(written), committed(&backend).await);
}

/// A fenced producer reports the records that its successor did not let through.
async fn a_fenced_transaction_reports_each_tag(version: i16) {
    let (backend, mut zombie) = ready(version, &[("linger.ms", "60000")]).await;
    let (sink, completions) = zombie.completions();
    let transaction = zombie.begin_transaction().await.expect("begun");
    send(&transaction, 0..10, &sink).await;
    transaction.flush().await.expect("written");
    let mut successor = initialized(&backend, &[]).await;
    send(&transaction, 10..20, &sink).await;
    drop(sink);
    let error = transaction.commit().await.expect_err("fenced");
    assert!(error.is_abortable() || error.is_fatal(), "{error}");
    let error = zombie.abort_transaction().await.expect_err("fenced");
    assert!(error.is_fenced(), "{error}");
    // The producer is still there.
    let Received { written, failed } = received(completions).await;
    assert!(written.keys().copied().eq(0..10), "{written:?}");
    assert!(failed.keys().copied().eq(10..20), "{failed:?}");
    for error in failed.values() {
        not_written(error);
    }
    drop(zombie);

    // Nothing ties a sink to a producer: the successor may use one that the zombie could have made.
    let (sink, completions) = successor.completions();
    let transaction = successor.begin_transaction().await.expect("begun");
    send(&transaction, 20..23, &sink).await;
    drop(sink);
    transaction.commit().await.expect("committed");
    assert_eq!(by_place(received(completions).await.written), committed(&backend).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_transaction_reports_each_tag_version_1() {
    a_fenced_transaction_reports_each_tag(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_transaction_reports_each_tag_version_2() {
    a_fenced_transaction_reports_each_tag(2).await;
}

/// Records in flight and queued, when the producer is dropped, and when it is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_ends_reports_each_tag_of_its_open_transaction() {
    for closes in [false, true] {
        let properties = [("linger.ms", "0"), ("max.in.flight.requests.per.connection", "1")];
        let (backend, mut producer) = ready(2, &properties).await;
        let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
        cluster.delay(None, Some(0), PATIENT);
        let (sink, completions) = producer.completions();
        let transaction = producer.begin_transaction().await.expect("begun");
        send(&transaction, 0..30, &sink).await;
        drop((transaction, sink));
        match closes {
            true => producer.close().await.expect("closed"),
            false => drop(producer),
        }
        let Received { written, failed } = received(completions).await;
        assert!(written.is_empty(), "{written:?}");
        assert!(failed.keys().copied().eq(0..30), "{failed:?}");
    }
}

/// Runs that no receiver has taken hold `buffer.memory`: a send finds none. Commit and abort need none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undrained_runs_bound_the_memory_and_stop_neither_commit_nor_abort() {
    let properties =
        [("buffer.memory", "655360"), ("batch.size", "16384"), ("curtail.latency.target.ms", "0")];
    let (_backend, mut producer) = ready(2, &properties).await;
    let (sink, mut completions) = producer.completions();
    let value = vec![b'x'; 10_000];
    let mut sent = 0;
    let mut taken = 0;
    for commits in [true, false] {
        let transaction = producer.begin_transaction().await.expect("begun");
        let (before, mut is_flushed) = (sent, false);
        loop {
            assert!(sent < 1000, "nothing bounds the memory");
            let record = Record::to(TOPIC).partition(0).value(&value);
            match transaction.try_send_tagged(record, sent, &sink) {
                Ok(()) => (sent, is_flushed) = (sent + 1, false),
                // Nothing is queued or in flight: the runs hold the memory.
                Err(Error::BufferFull { .. }) if is_flushed => break,
                Err(Error::BufferFull { .. }) => {
                    transaction.flush().await.expect("flushed");
                    is_flushed = true;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(sent > before);
        match commits {
            true => transaction.commit().await.expect("needs no memory"),
            false => transaction.abort().await.expect("needs no memory"),
        }
        if commits {
            // A dropped run makes room for a batch of the next transaction.
            let run = completions.try_next().expect("committed, so the runs have arrived");
            taken = run.tags().len();
        }
    }
    drop(sink);
    // Runs outlive the producer.
    producer.close().await.expect("closed");
    let Received { written, failed } = received(completions).await;
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(written.len() + taken, usize::try_from(sent).expect("fits"));
}

/// Without a receiver the outcomes are discarded, with their memory. The transaction does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_commits_without_the_receiver() {
    let (backend, mut producer) = ready(2, &[]).await;
    let (sink, completions) = producer.completions();
    drop(completions);
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, 0..30, &sink).await;
    transaction.commit().await.expect("committed");
    assert_eq!(committed(&backend).await.len(), 30);
    let is_free =
        |metrics: ProducerMetrics| metrics.buffer_available_bytes == metrics.buffer_total_bytes;
    until("all memory is returned", || is_free(producer.metrics())).await;
}
