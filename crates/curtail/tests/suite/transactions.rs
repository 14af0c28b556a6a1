//! Transactions under `transaction.version` 2 and 1, on the embedded cluster and on Apache Kafka: the same checks on
//! both, with three brokers each.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::common::{self, Backend, raw::committed_offsets};
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Delivery, Error, ErrorCode, ProducerConfig,
    Record, TopicPartition, TransactionalProducer,
    admin::Election,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};

/// Partitions of the topic of each check.
const PARTITIONS: i32 = 3;
/// Partitions of `__transaction_state`, on both kinds of cluster.
const COORDINATOR_PARTITIONS: i32 = 5;
/// Far longer than any check, so that a client that hangs fails.
const LIMIT: Duration = Duration::from_secs(120);

fn transactional(
    backend: &Backend,
    id: &str,
    properties: &[(&str, &str)],
) -> TransactionalProducer {
    let mut config = ProducerConfig::new(backend.bootstrap()).transactional_id(id);
    for (name, value) in properties {
        config.set(name, value).expect("a known property");
    }
    TransactionalProducer::new(config).expect("a usable configuration")
}

pub(crate) async fn initialized(backend: &Backend, id: &str) -> TransactionalProducer {
    let mut producer = transactional(backend, id, &[]);
    producer.init_transactions().await.expect("initialized");
    producer
}

/// The end of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The current last stable offset.
    Stable,
    /// The end of the log, once no transaction is open. The response to a commit or an abort may precede the markers.
    Settled,
}

fn reader(backend: &Backend, isolation: &str) -> Consumer {
    let mut config = ConsumerConfig::new(backend.bootstrap());
    config.set("isolation.level", isolation).unwrap();
    Consumer::new(config).unwrap()
}

/// Values visible at this isolation level, as text, partition by partition.
async fn read(backend: &Backend, topic: &str, isolation: &str, until: Until) -> Vec<String> {
    let all: Vec<_> = (0..PARTITIONS).map(|index| TopicPartition::new(topic, index)).collect();
    let consumer =
        reader(backend, if until == Until::Settled { "read_uncommitted" } else { isolation });
    let ends = consumer.end_offsets(&all).await.expect("end offsets");
    consumer.close().await;
    let mut consumer = reader(backend, isolation);
    consumer.assign(all.iter().cloned());
    consumer.seek_to_beginning(&all).unwrap();
    let mut seen: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    loop {
        let mut done = true;
        for partition in &all {
            done &= consumer.position(partition).await.expect("a position") >= ends[partition];
        }
        if done {
            consumer.close().await;
            return seen.into_values().flatten().collect();
        }
        // A poll without records has passed markers and aborted records.
        for record in consumer.poll(Duration::from_millis(100)).await.expect("records") {
            let value = String::from_utf8(record.value().unwrap().to_vec()).unwrap();
            seen.entry(record.partition()).or_default().push(value);
        }
    }
}

async fn committed(backend: &Backend, topic: &str) -> Vec<String> {
    read(backend, topic, "read_committed", Until::Settled).await
}

async fn send(
    transaction: &curtail::transaction::Transaction<'_>,
    topic: &str,
    values: impl IntoIterator<Item = (i32, String)>,
) {
    for (partition, value) in values {
        let record = Record::to(topic).partition(partition).value(&value);
        drop(transaction.send(record).await.expect("sent"));
    }
}

/// The same values in every partition.
fn everywhere(name: &str, count: usize) -> Vec<(i32, String)> {
    let numbered = (0..count).map(|n| format!("{name}-{n}"));
    numbered.flat_map(|value| (0..PARTITIONS).map(move |p| (p, value.clone()))).collect()
}

/// The same values in reading order, partition by partition.
fn as_read(names: &[&str], count: usize) -> Vec<String> {
    let one: Vec<String> =
        names.iter().flat_map(|name| (0..count).map(move |n| format!("{name}-{n}"))).collect();
    (0..PARTITIONS).flat_map(|_| one.clone()).collect()
}

async fn commit_is_visible_and_abort_is_not(backend: &Backend, topic: &str) {
    let mut producer = initialized(backend, topic).await;
    // Many transactions in a row, each directly after the previous one, whose markers the brokers may still be
    // writing.
    let mut names = Vec::new();
    for n in 0..6 {
        let name = format!("{}{n}", if n % 3 == 1 { "aborted" } else { "kept" });
        let transaction = producer.begin_transaction().await.expect("begun");
        send(&transaction, topic, everywhere(&name, 20)).await;
        if n % 3 == 1 {
            transaction.flush().await.expect("written");
            transaction.abort().await.expect("aborted");
        } else {
            transaction.commit().await.expect("committed");
            names.push(name);
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(committed(backend, topic).await, as_read(&names, 20));
    assert_eq!(
        read(backend, topic, "read_uncommitted", Until::Settled).await.len(),
        6 * 20 * PARTITIONS as usize
    );

    // Neither uncommitted records nor records after them are read.
    let open = producer.begin_transaction().await.expect("begun");
    send(&open, topic, everywhere("open", 1)).await;
    open.flush().await.expect("written");
    let plain = common::producer(backend, &[]);
    let delivery = plain.send(Record::to(topic).partition(0).value("plain")).await.unwrap();
    delivery.await.expect("written");
    let stable = read(backend, topic, "read_committed", Until::Stable).await;
    assert_eq!(stable, as_read(&names, 20));
    drop(open);
    // The next transaction aborts the dropped one; it sends no record itself.
    let empty = producer.begin_transaction().await.expect("begun");
    empty.commit().await.expect("an empty transaction");
    let mut expected = as_read(&names, 20);
    expected.insert(expected.len() / PARTITIONS as usize, "plain".into());
    assert_eq!(committed(backend, topic).await, expected);
    producer.close().await.expect("closed");
}

async fn a_second_producer_fences_the_first(backend: &Backend, topic: &str) {
    let mut zombie = initialized(backend, topic).await;
    let transaction = zombie.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("zombie", 1)).await;
    transaction.flush().await.expect("written");

    // The producer that takes over aborts its open transaction.
    let mut successor = initialized(backend, topic).await;
    let late = transaction.send(Record::to(topic).partition(0).value("late")).await;
    let late = late.expect("not known yet").await.expect_err("fenced");
    let Error::NotAcknowledged { may_have_been_written: false, .. } = late else {
        panic!("not written: {late}")
    };
    let error = transaction.commit().await.expect_err("fenced");
    assert!(error.is_abortable() || error.is_fatal(), "{error}");
    let error = zombie.abort_transaction().await.expect_err("fenced");
    assert!(error.is_fatal() && error.is_fenced(), "{error}");
    let error = zombie.begin_transaction().await.expect_err("fenced for good");
    assert!(error.is_fatal() && error.is_fenced(), "{error}");

    let transaction = successor.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("successor", 1)).await;
    transaction.commit().await.expect("committed");
    assert_eq!(committed(backend, topic).await, as_read(&["successor"], 1));
}

async fn offsets_are_committed_with_the_transaction(backend: &Backend, topic: &str) {
    let group = ConsumerGroupMetadata::new(format!("group-of-{topic}"));
    let mut producer = initialized(backend, topic).await;
    let offsets = |offset| {
        (0..2).map(move |index| {
            let offset = OffsetAndMetadata::new(offset + i64::from(index));
            (TopicPartition::new(topic, index), offset)
        })
    };
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("kept", 1)).await;
    transaction.send_offsets_to_transaction(offsets(5), &group).await.expect("added");
    transaction.commit().await.expect("committed");

    let transaction = producer.begin_transaction().await.expect("begun");
    transaction.send_offsets_to_transaction(offsets(70), &group).await.expect("added");
    transaction.abort().await.expect("aborted");
    until_offsets(backend, &group.group_id, topic, &[(0, 5), (1, 6)]).await;

    // A transaction may consist of offsets only.
    let transaction = producer.begin_transaction().await.expect("begun");
    transaction.send_offsets_to_transaction(offsets(8), &group).await.expect("added");
    transaction.commit().await.expect("committed");
    until_offsets(backend, &group.group_id, topic, &[(0, 8), (1, 9)]).await;

    // A member that the group does not have cannot commit.
    let stranger =
        ConsumerGroupMetadata { generation_id: 3, member_id: "stranger".into(), ..group.clone() };
    let transaction = producer.begin_transaction().await.expect("begun");
    let refused = transaction.send_offsets_to_transaction(offsets(90), &stranger).await;
    let error = refused.expect_err("no such member");
    assert!(error.is_abortable(), "{error}");
    let error = transaction.send(Record::to(topic).value("x")).await.expect_err("failed before");
    assert!(error.is_abortable(), "{error}");
    transaction.abort().await.expect("aborted");
    let transaction = producer.begin_transaction().await.expect("begun");
    transaction.send_offsets_to_transaction(offsets(10), &group).await.expect("added");
    transaction.commit().await.expect("committed");
    until_offsets(backend, &group.group_id, topic, &[(0, 10), (1, 11)]).await;
}

/// Repeats until the group's offsets are these; the markers that commit them follow the response to the commit.
async fn until_offsets(backend: &Backend, group: &str, topic: &str, expected: &[(i32, i64)]) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let seen = committed_offsets(backend, group, topic, PARTITIONS).await;
        if seen.as_deref() == Some(expected) {
            return;
        }
        assert!(Instant::now() < deadline, "{seen:?} instead of {expected:?}");
    }
}

/// Broker ids start at 1.
async fn leader(backend: &Backend, topic: &str, partition: i32) -> i32 {
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let mut topics = admin.describe_topics(&[topic]).await.unwrap();
    let topic = topics.remove(0).1.unwrap();
    let found = topic.partitions.iter().find(|p| p.partition == partition).unwrap();
    found.leader.expect("a leader")
}

async fn a_broker_is_killed_within_a_transaction(backend: &Backend, topic: &str) {
    let mut producer = initialized(backend, topic).await;
    let victim = leader(backend, topic, 1).await;
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("before", 10)).await;
    transaction.flush().await.expect("written");
    send(&transaction, topic, everywhere("under-way", 10)).await;
    backend.kill(victim);
    send(&transaction, topic, everywhere("after", 10)).await;
    transaction.commit().await.expect("committed over the new leaders");
    assert_eq!(committed(backend, topic).await, as_read(&["before", "under-way", "after"], 10));
    backend.restart(victim).await;
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("lost", 1)).await;
    transaction.abort().await.expect("aborted");
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("again", 1)).await;
    transaction.commit().await.expect("committed");
    let seen = committed(backend, topic).await;
    assert_eq!(seen.iter().filter(|value| *value == "again-0").count(), PARTITIONS as usize);
    assert!(!seen.iter().any(|value| value == "lost-0"));
}

/// The partition of `__transaction_state` for an id, as brokers compute it (Java's `String.hashCode`).
fn coordinator_partition(transactional_id: &str, partitions: i32) -> i32 {
    let hash = transactional_id
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    (hash & i32::MAX) % partitions
}

/// Waits until the coordinators have all their replicas again. Otherwise the next check's fault may leave one with too
/// few to write.
async fn replicas_return(backend: &Backend) {
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let deadline = Instant::now() + LIMIT;
    loop {
        let topics = ["__transaction_state", "__consumer_offsets"];
        let described = admin.describe_topics(&topics).await.unwrap();
        let topics =
            described.into_iter().map(|(_, topic)| topic.expect("an earlier check needed it"));
        let lacking: Vec<_> =
            topics.flat_map(|topic| topic.partitions).filter(|p| p.isr.len() < 3).collect();
        if lacking.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{lacking:?}");
    }
}

async fn a_coordinator_is_frozen_before_the_commit(backend: &Backend, topic: &str) {
    let mut producer = transactional(backend, topic, &[("max.block.ms", "1000")]);
    while let Err(error) = producer.init_transactions().await {
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
    }
    common::until_in_time(async || producer.warm_up(&[topic]).await).await;
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("kept", 5)).await;
    transaction.flush().await.expect("written");
    let partition = coordinator_partition(topic, COORDINATOR_PARTITIONS);
    let coordinator = leader(backend, "__transaction_state", partition).await;
    backend.freeze(coordinator);
    let frozen = Instant::now();
    let error = transaction.commit().await.expect_err("the coordinator does not respond");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let error = producer.abort_transaction().await.expect_err("a commit cannot be reverted");
    assert!(matches!(error, Error::IllegalState(_)), "{error}");
    while let Err(error) = producer.commit_transaction().await {
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
    }
    let took = frozen.elapsed();
    backend.thaw(coordinator);
    // The cluster moves the coordinator's partition to another broker within 3 s. A client that did not notice would
    // wait for request.timeout.ms, 30 s.
    assert!(took < Duration::from_secs(25), "took {took:?}");
    replicas_return(backend).await;
    drop(producer);
    let mut producer = initialized(backend, topic).await;
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("next", 5)).await;
    transaction.commit().await.expect("committed");
    assert_eq!(committed(backend, topic).await, as_read(&["kept", "next"], 5));
}

/// A transaction whose coordinator is frozen before its first record or offset. Leaders and a group's coordinator ask
/// it before they append these (KIP-890), for up to `request.timeout.ms` of brokers, 30 s.
async fn is_committed_by_the_successor(
    backend: &Backend,
    topic: &str,
    has_records: bool,
    has_offsets: bool,
) {
    let mut producer = initialized(backend, topic).await;
    let partition = coordinator_partition(topic, COORDINATOR_PARTITIONS);
    let coordinator = leader(backend, "__transaction_state", partition).await;
    let mut led_by_others = Vec::new();
    for partition in 0..PARTITIONS {
        if has_records && leader(backend, topic, partition).await != coordinator {
            led_by_others.push(partition);
        }
    }
    assert_ne!(led_by_others.is_empty(), has_records);
    let group = group_not_at(backend, topic, coordinator).await;
    let offset = [(TopicPartition::new(topic, 0), OffsetAndMetadata::new(5))];
    let transaction = producer.begin_transaction().await.expect("begun");
    backend.freeze(coordinator);
    let frozen = Instant::now();
    for partition in &led_by_others {
        let record = Record::to(topic).partition(*partition).value("kept-0");
        drop(transaction.send(record).await.expect("appended"));
    }
    if has_offsets {
        transaction.send_offsets_to_transaction(offset, &group).await.expect("added");
    }
    transaction.commit().await.expect("committed by the successor");
    let took = frozen.elapsed();
    backend.thaw(coordinator);
    // The cluster has another coordinator within 3 s.
    assert!(took < Duration::from_secs(25), "took {took:?}");
    assert_eq!(committed(backend, topic).await, vec!["kept-0"; led_by_others.len()]);
    if has_offsets {
        until_offsets(backend, &group.group_id, topic, &[(0, 5)]).await;
    }
    replicas_return(backend).await;
}

async fn a_coordinator_is_frozen_before_the_first_record(backend: &Backend, topic: &str) {
    is_committed_by_the_successor(backend, topic, true, false).await;
}

async fn a_coordinator_is_frozen_before_the_offsets(backend: &Backend, topic: &str) {
    is_committed_by_the_successor(backend, topic, false, true).await;
}

async fn a_coordinator_is_frozen_before_records_and_offsets(backend: &Backend, topic: &str) {
    is_committed_by_the_successor(backend, topic, true, true).await;
}

/// A group whose coordinator is another broker.
async fn group_not_at(backend: &Backend, topic: &str, broker: i32) -> ConsumerGroupMetadata {
    const OFFSETS: &str = "__consumer_offsets";
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut topics = admin.describe_topics(&[OFFSETS]).await.unwrap();
        let described = topics.remove(0).1.expect("an earlier check has committed offsets");
        let partitions = described.partitions;
        let is_elsewhere = |group: &String| {
            let partition = coordinator_partition(group, partitions.len() as i32);
            partitions.iter().any(|p| p.partition == partition && p.leader != Some(broker))
        };
        let mut groups = (0..1000).map(|n| format!("group-{n}-of-{topic}"));
        if let Some(group) = groups.find(is_elsewhere) {
            return ConsumerGroupMetadata::new(group);
        }
        // One broker was left by the faults of earlier checks.
        assert!(Instant::now() < deadline, "{partitions:?}");
        let all: Vec<_> =
            partitions.iter().map(|p| TopicPartition::new(OFFSETS, p.partition)).collect();
        admin.elect_leaders(Election::Preferred, &all).await.expect("elected");
    }
}

/// A record that cannot be written makes the transaction abortable. The next transaction starts new sequences.
async fn a_lost_record_ends_its_transaction_only(backend: &Backend, topic: &str) {
    let mut producer = transactional(backend, topic, &[("linger.ms", "0")]);
    producer.init_transactions().await.expect("initialized");
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("first", 3)).await;
    transaction.flush().await.expect("written");
    // Larger than the topic accepts (max.message.bytes), smaller than the producer's limit (max.request.size).
    let huge = vec![b'x'; 40_000];
    let record = Record::to(topic).partition(0).value(&huge);
    let error = transaction.send(record).await.expect("appended").await.expect_err("refused");
    let Error::NotAcknowledged { cause, .. } = &error else { panic!("{error}") };
    let Error::Broker { code: ErrorCode::MESSAGE_TOO_LARGE, .. } = **cause else {
        panic!("{error}")
    };
    let error = transaction.commit().await.expect_err("it lacks a record");
    assert!(error.is_abortable(), "{error}");
    let error = producer.commit_transaction().await.expect_err("it still does");
    assert!(error.is_abortable(), "{error}");
    producer.abort_transaction().await.expect("aborted");
    let transaction = producer.begin_transaction().await.expect("begun");
    send(&transaction, topic, everywhere("second", 3)).await;
    transaction.commit().await.expect("committed");
    assert_eq!(committed(backend, topic).await, as_read(&["second"], 3));
}

async fn within_limit<F: Future<Output = ()>>(name: &str, check: F) {
    let done = tokio::time::timeout(LIMIT, check).await;
    assert!(done.is_ok(), "{name} takes more than {LIMIT:?}");
}

/// Runs checks one after the other. Each has a separate topic, whose name is also the transactional id.
macro_rules! check {
    ($backend:expr, $version:ident: $($check:ident),* $(,)?) => {$(
        let topic = format!("v{}-{}", $version, stringify!($check));
        let configs = [("max.message.bytes", "20000")];
        $backend.create_topic_with(&topic, PARTITIONS, 3, &configs).await;
        within_limit(&topic, $check($backend, &topic)).await;
    )*};
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Runs all checks; `version` is the cluster's transaction.version.
async fn checks_of_version(version: i16, backend: &Backend) {
    check!(backend, version:
        commit_is_visible_and_abort_is_not,
        a_second_producer_fences_the_first,
        offsets_are_committed_with_the_transaction,
        a_lost_record_ends_its_transaction_only,
        a_broker_is_killed_within_a_transaction,
        a_coordinator_is_frozen_before_the_commit,
        a_coordinator_is_frozen_before_the_first_record,
        a_coordinator_is_frozen_before_the_offsets,
        a_coordinator_is_frozen_before_records_and_offsets,
    );
}

#[test]
fn transactions_on_apache() {
    let Some(backend) = Backend::apache("transactions_on_apache", 3) else { return };
    runtime().block_on(async {
        checks_of_version(2, &backend).await;
        lower_transaction_version(&backend);
        checks_of_version(1, &backend).await;
    });
}

#[test]
fn transactions_of_version_2_embedded() {
    runtime().block_on(async { checks_of_version(2, &embedded(2).await).await });
}

#[test]
fn transactions_of_version_1_embedded() {
    runtime().block_on(async { checks_of_version(1, &embedded(1).await).await });
}

async fn embedded(transaction_version: i16) -> Backend {
    Backend::embedded_with(3, |config| {
        // As with Apache Kafka: long enough for a machine that is busy with other tests.
        config.broker_session_timeout = Duration::from_secs(3);
        config.broker_heartbeat_interval = Duration::from_millis(500);
        config.transaction_version = transaction_version;
        config.transaction_log_partitions = COORDINATOR_PARTITIONS;
    })
    .await
}

/// Makes the cluster run transactions as before KIP-890.
fn lower_transaction_version(backend: &Backend) {
    let Backend::Apache(cluster) = backend else { unreachable!("made for Apache Kafka") };
    let bootstrap = cluster.bootstrap();
    let args =
        ["--bootstrap-server", &bootstrap, "downgrade", "--feature", "transaction.version=1"];
    let output = cluster.run_tool("org.apache.kafka.tools.FeatureCommand", &args, b"");
    let output = output.expect("the tool runs");
    assert!(output.success(), "{}{}", output.stdout, output.stderr);
}

/// Recreates a topic with fewer partitions while a transaction has records for a missing partition: the first in
/// flight, the second in the queue. Returns the transaction's producer, once it knows, and the deliveries.
async fn with_records_of_a_vanished_partition(
    backend: &Backend,
    topic: &str,
) -> (TransactionalProducer, [Delivery; 2]) {
    let Backend::Embedded(cluster) = backend else { unreachable!("its responses are delayed") };
    cluster.create_topic(topic, 2, 1, &[]).unwrap();
    cluster.settled().await;
    let properties = [
        ("metadata.max.age.ms", "20"),
        ("linger.ms", "0"),
        // One batch per record.
        ("batch.size", "1"),
        ("request.timeout.ms", "1000"),
        ("delivery.timeout.ms", "2000"),
    ];
    let mut producer = transactional(backend, topic, &properties);
    producer.init_transactions().await.unwrap();
    let (leader, _) = cluster.leader(topic, 1).unwrap();
    cluster.delay(Some(leader), Some(0), LIMIT);
    let transaction = producer.begin_transaction().await.unwrap();
    let record = |value| Record::to(topic).partition(1).value(value);
    let first = transaction.send(record("first")).await.unwrap();
    let second = transaction.send(record("second")).await.unwrap();
    drop(transaction);
    assert!(cluster.delete_topic(topic));
    cluster.create_topic(topic, 1, 1, &[]).unwrap();
    cluster.settled().await;
    let known = async {
        while producer.partitions_for(topic).await.unwrap() != 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, known).await.expect("the producer learns of the new topic");
    (producer, [first, second])
}

#[test]
fn a_transaction_does_not_commit_without_the_records_of_a_vanished_partition() {
    runtime().block_on(async {
        let backend = embedded(2).await;
        let (mut producer, sent) = with_records_of_a_vanished_partition(&backend, "commit").await;
        let error = producer.commit_transaction().await.unwrap_err();
        assert!(error.is_abortable(), "{error}");
        producer.abort_transaction().await.unwrap();
        for delivery in sent {
            delivery.outcome().expect("an outcome after the abort").unwrap_err();
        }
    });
}

#[test]
fn an_abort_ends_the_records_of_a_vanished_partition() {
    runtime().block_on(async {
        let backend = embedded(2).await;
        let (mut producer, sent) = with_records_of_a_vanished_partition(&backend, "abort").await;
        producer.abort_transaction().await.unwrap();
        let [first, second] = sent;
        second.outcome().expect("an outcome after the abort").unwrap_err();
        first.await.unwrap_err();
        let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
        cluster.clear_delays();
        let transaction = producer.begin_transaction().await.unwrap();
        drop(transaction.send(Record::to("abort").value("next")).await.unwrap());
        transaction.commit().await.unwrap();
    });
}
