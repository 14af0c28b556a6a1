//! Compacted topics: the embedded cluster removes the records that Apache Kafka removes, and consumers pass the gaps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use curtail::{Consumer, ConsumerConfig, Producer, Record, TopicPartition};

use crate::{
    common::{self, Backend},
    transactions::initialized,
};

const LIMIT: Duration = Duration::from_secs(60);
const TOPIC: &str = "compacted";
/// Compaction as soon as possible. Tombstones go in the first cleaning after the one that has seen them.
const SETTINGS: [(&str, &str); 5] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0"),
    ("min.compaction.lag.ms", "0"),
    ("delete.retention.ms", "0"),
    ("segment.ms", "500"),
];
/// Later than the record before by more than `segment.ms`, so that each record begins a segment.
const STEP_MS: i64 = 1000;

/// Key, value and offset of a record.
type Kept = (&'static str, Option<&'static str>, i64);

fn at() -> TopicPartition {
    TopicPartition::new(TOPIC, 0)
}

/// Aborts a transaction that writes the first two records of the topic and its marker.
async fn abort_two(backend: &Backend) {
    let mut producer = initialized(backend, "aborts").await;
    let transaction = producer.begin_transaction().await.unwrap();
    for key in ["a", "b"] {
        let record = Record::to(TOPIC).key(key).value("aborted");
        transaction.send(record).await.unwrap().await.unwrap();
    }
    transaction.abort().await.unwrap();
    producer.close().await.unwrap();
    // The response to an abort may precede the marker.
    let consumer = Consumer::new(ConsumerConfig::new(backend.bootstrap())).unwrap();
    let written = async { while consumer.end_offsets(&[at()]).await.unwrap()[&at()] < 3 {} };
    tokio::time::timeout(LIMIT, written).await.expect("the marker is written");
    consumer.close().await;
}

/// Appends records that each begin a segment.
struct Log {
    producer: Producer,
    timestamp: i64,
}

impl Log {
    async fn append(&mut self, key: &str, value: Option<&str>) -> i64 {
        self.timestamp += STEP_MS;
        let record = Record::to(TOPIC).key(key).timestamp(self.timestamp);
        let record = match value {
            Some(value) => record.value(value),
            None => record,
        };
        self.producer.send(record).await.unwrap().await.unwrap().offset.unwrap()
    }
}

async fn read(backend: &Backend) -> Vec<(String, Option<String>, i64)> {
    let mut all = common::read_all(backend, TOPIC, 1).await;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let records = all.remove(&0).unwrap_or_default();
    let kept = records.iter().map(|r| (text(r.key().unwrap()), r.value().map(text), r.offset()));
    kept.collect()
}

/// Waits until the topic has exactly these records.
async fn must_become(backend: &Backend, expected: &[Kept]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(key, value, offset)| ((*key).to_owned(), value.map(str::to_owned), *offset))
        .collect();
    let mut last = Vec::new();
    let reached = async {
        while last != expected {
            last = read(backend).await;
        }
    };
    if tokio::time::timeout(LIMIT, reached).await.is_err() {
        panic!("{last:?} instead of {expected:?}");
    }
}

/// A consumer passes the gaps from every offset.
async fn gaps_are_passed(backend: &Backend, offsets: &[i64]) {
    let mut consumer = Consumer::new(ConsumerConfig::new(backend.bootstrap())).unwrap();
    consumer.assign([at()]);
    assert_eq!(consumer.beginning_offsets(&[at()]).await.unwrap()[&at()], 0);
    for from in 0..=*offsets.last().expect("a record") {
        consumer.seek(&at(), from).unwrap();
        let expected: Vec<i64> = offsets.iter().copied().filter(|offset| *offset >= from).collect();
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            let records = consumer.poll(LIMIT).await.unwrap();
            assert!(!records.is_empty(), "only {seen:?} from {from}");
            seen.extend(records.into_iter().map(|record| record.offset()));
        }
        assert_eq!(seen, expected, "from {from}");
    }
    consumer.close().await;
}

async fn compaction_removes_what_kafka_removes(backend: Backend) {
    backend.create_topic_with(TOPIC, 1, 1, &SETTINGS).await;
    abort_two(&backend).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let producer = common::producer(&backend, &[("linger.ms", "0")]);
    // Later than the marker, whose timestamp is the time of the abort.
    let mut log = Log { producer, timestamp: now + 10_000 };
    let records = [
        ("k0", Some("v3")),
        ("k1", Some("v4")),
        ("k2", Some("v5")),
        ("k0", Some("v6")),
        ("k1", Some("v7")),
        ("k2", None),
        ("end", Some("v9")),
    ];
    for (offset, (key, value)) in (3..).zip(records) {
        assert_eq!(log.append(key, value).await, offset);
    }
    let newest = [("k0", Some("v6"), 6), ("k1", Some("v7"), 7)];
    let with_tombstone = [newest[0], newest[1], ("k2", None, 8), ("end", Some("v9"), 9)];
    must_become(&backend, &with_tombstone).await;

    log.append("end", Some("v10")).await;
    let without = [newest[0], newest[1], ("end", Some("v9"), 9), ("end", Some("v10"), 10)];
    must_become(&backend, &without).await;
    gaps_are_passed(&backend, &[6, 7, 9, 10]).await;
    log.producer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn compacted_topic_keeps_the_records_that_kafka_keeps() {
    let backoff = |config: &mut curtail_cluster::ClusterConfig| {
        config.log_cleaner_backoff = Duration::from_millis(50);
    };
    compaction_removes_what_kafka_removes(Backend::embedded_with(1, backoff).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_keeps_the_same_records_of_a_compacted_topic() {
    let name = "kafka_keeps_the_same_records_of_a_compacted_topic";
    let backend =
        Backend::apache_with(name, 1, |builder| builder.property("log.cleaner.backoff.ms", "50"));
    let Some(backend) = backend else { return };
    compaction_removes_what_kafka_removes(backend).await;
}
