//! A partition that is not drained does not affect the others of its broker.

use std::time::Duration;

use crate::common::{self, Backend};
use curtail::{Consumer, ConsumerConfig, Producer, Record, TopicPartition, config::OffsetReset};
use curtail_cluster::SessionMetrics;
use tokio::time::{Instant, sleep};

const LIMIT: Duration = Duration::from_secs(30);
/// Bytes of a record's value.
const VALUE: usize = 1_000;
/// Bytes of one partition in a response.
const PER_ANSWER: i32 = 20_000;
/// Bytes of all partitions.
const BUDGET: usize = 200_000;

/// A topic of two partitions, the first with far more than the consumer may prefetch.
async fn backlog(backend: &Backend, topic: &str) -> (Producer, Consumer, [TopicPartition; 2]) {
    backend.create_topic(topic, 2, 1).await;
    let producer = common::producer(backend, &[("linger.ms", "0"), ("batch.size", "4000")]);
    let value = [b'v'; VALUE];
    let mut sent = Vec::new();
    for _ in 0..2 * BUDGET / VALUE {
        sent.push(producer.send(Record::to(topic).partition(0).value(&value)).await.unwrap());
    }
    for delivery in sent {
        delivery.await.unwrap();
    }
    let config = ConsumerConfig::new(backend.bootstrap())
        .auto_offset_reset(OffsetReset::Earliest)
        .prefetch_bytes(BUDGET)
        .max_partition_fetch_bytes(PER_ANSWER)
        .max_poll_records(1);
    let mut consumer = Consumer::new(config).unwrap();
    let both = [TopicPartition::new(topic, 0), TopicPartition::new(topic, 1)];
    consumer.assign(both.clone());
    (producer, consumer, both)
}

/// Waits until fetch responses have reported that the partition ends at `end`, without a poll.
async fn fetched(consumer: &Consumer, at: &TopicPartition, end: i64) {
    let deadline = Instant::now() + LIMIT;
    while consumer.high_watermark(at) != Some(end) {
        assert!(Instant::now() < deadline, "{at} ends at {:?}", consumer.high_watermark(at));
        sleep(Duration::from_millis(1)).await;
    }
}

fn sessions(backend: &Backend) -> SessionMetrics {
    let Backend::Embedded(cluster) = backend else { unreachable!("made so") };
    cluster.fetch_sessions(1).unwrap()
}

/// One session in which every partition has stayed.
fn session_of(partitions: usize) -> SessionMetrics {
    SessionMetrics { sessions: 1, partitions, evictions: 0, forgotten: 0 }
}

async fn send(producer: &Producer, at: &TopicPartition) {
    let record = Record::to(&at.topic).partition(at.partition).value("late");
    producer.send(record).await.unwrap().await.unwrap();
}

#[tokio::test]
async fn other_partitions_are_fetched_and_returned() {
    let backend = Backend::embedded(1).await;
    let (producer, mut consumer, [full, quiet]) = backlog(&backend, "undrained").await;
    // The application drains no record, so the first partition takes its whole share. Before that, one response may
    // carry both.
    let is_beside = || consumer.metrics().all_brokers().fetch_beside_session_total > 0;
    common::until("the other partition is fetched without the session", is_beside).await;
    for n in 1..=20 {
        send(&producer, &quiet).await;
        fetched(&consumer, &quiet, n).await;
    }
    let metrics = consumer.metrics();
    assert!(metrics.partitions[&full].buffered_bytes > BUDGET / 3, "{metrics:?}");
    assert!(metrics.partitions[&full].buffered_bytes <= BUDGET, "{metrics:?}");
    assert_eq!(metrics.partitions[&quiet].lag, Some(20));
    assert!(metrics.all_brokers().fetch_beside_session_total >= 19, "{metrics:?}");
    // The latest fetched record waits for no more than one response's records of the other partition.
    let mut given = [0_u64, 0];
    while given[1] == 0 {
        for record in consumer.poll(LIMIT).await.unwrap() {
            given[record.partition() as usize] += 1;
        }
    }
    assert!(given[0] <= PER_ANSWER as u64 / VALUE as u64, "{given:?}");
    assert_eq!(sessions(&backend), session_of(2));
    let metrics = consumer.metrics();
    assert_eq!(metrics.records_consumed_total, given[0] + given[1]);
    assert_eq!(metrics.records_lag_max(), Some((2 * BUDGET / VALUE) as i64 - given[0] as i64));
    let named = metrics.named();
    let named =
        |name: &str| named.iter().find(|m| m.name == name && m.tags.len() == 1).unwrap().value;
    assert_eq!(named("records-consumed-total"), (given[0] + given[1]) as f64);
    assert!(
        named("fetch-latency-avg") > 0.0 && named("fetch-size-max") > f64::from(PER_ANSWER) / 2.0
    );
    assert_eq!(named("fetch-session-open-total"), 1.0);
    // The first partition continues as it is drained.
    while consumer.position(&full).await.unwrap() < 2 * (BUDGET / VALUE) as i64 {
        consumer.poll(LIMIT).await.unwrap();
    }
    consumer.close().await;
}

#[tokio::test]
async fn paused_partition_with_buffered_records_does_not_block_the_others() {
    let backend = Backend::embedded(1).await;
    let (producer, mut consumer, [full, quiet]) = backlog(&backend, "undrained-paused").await;
    let first = consumer.poll(LIMIT).await.unwrap();
    assert_eq!((first[0].partition(), first[0].offset()), (0, 0));
    consumer.pause([&full]);
    for n in 1..=20 {
        send(&producer, &quiet).await;
        fetched(&consumer, &quiet, n).await;
        let records = consumer.poll(LIMIT).await.unwrap();
        assert_eq!((records[0].partition(), records[0].offset()), (1, n - 1));
    }
    assert_eq!(sessions(&backend), session_of(2));
    consumer.resume([&full]);
    let next = consumer.poll(LIMIT).await.unwrap();
    assert_eq!((next[0].partition(), next[0].offset()), (0, 1), "nothing is lost");
    consumer.close().await;
}
