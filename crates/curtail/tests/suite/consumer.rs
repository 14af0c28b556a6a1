//! Behaviour of a consumer, on the embedded cluster and on Apache Kafka.

use std::{
    collections::BTreeMap,
    pin::Pin,
    time::{Duration, Instant},
};

use crate::common::{self, Backend};
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, ConsumerRecord, Error, Header, Producer, Record,
    TopicPartition,
    admin::NewTopic,
    config::OffsetReset,
    consumer::{OffsetAndTimestamp, TimestampType},
};
use futures_core::Stream;

/// Longest wait of a case.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs each case on both clusters. Each case creates its own topics.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&super::Backend::embedded(1).await).await;
            })*
        }

        mod apache {
            $(#[tokio::test]
            async fn $case() {
                let Some(backend) = super::Backend::shared_apache(stringify!($case)) else { return };
                super::$case(backend).await;
            })*
        }
    };
}

on_both! {
    reads_everything_in_order,
    seeks_move_the_position,
    records_fetched_before_a_seek_are_discarded,
    paused_partitions_return_no_records,
    offsets_are_looked_up,
    new_assignment_begins_where_the_reset_policy_says,
    position_outside_the_log_is_reset,
    position_outside_the_log_is_reported_without_a_policy,
    reads_every_codec_and_all_fields,
    a_small_budget_delays_but_loses_nothing,
    a_dropped_poll_loses_nothing,
    streams_and_batches_return_the_same_records,
    missing_topics_and_partitions_are_reported,
    topic_created_after_its_assignment_is_read,
    new_records_wake_a_waiting_poll,
}

async fn create(backend: &Backend, topic: &str, partitions: i32) {
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let wanted = NewTopic::new(topic).partitions(partitions).replication_factor(1);
    for (_, result) in admin.create_topics(&[wanted]).await.unwrap() {
        result.unwrap();
    }
}

fn earliest(backend: &Backend) -> ConsumerConfig {
    ConsumerConfig::new(backend.bootstrap()).auto_offset_reset(OffsetReset::Earliest)
}

/// Sends `count` records to each of `partitions` partitions, with their numbers as values and timestamps.
async fn produce(producer: &Producer, topic: &str, partitions: i32, count: usize) {
    let mut sent = Vec::new();
    for n in 0..count {
        for partition in 0..partitions {
            let value = n.to_string();
            let record =
                Record::to(topic).partition(partition).value(&value).timestamp(1_000 + n as i64);
            sent.push(producer.send(record).await.unwrap());
        }
    }
    for delivery in sent {
        delivery.await.unwrap();
    }
}

/// A topic of `partitions` partitions with the records 0 to `count - 1` in each.
async fn filled(backend: &Backend, topic: &str, partitions: i32, count: usize) {
    create(backend, topic, partitions).await;
    produce(&common::producer(backend, &[]), topic, partitions, count).await;
}

fn all(topic: &str, partitions: i32) -> Vec<TopicPartition> {
    (0..partitions).map(|p| TopicPartition::new(topic, p)).collect()
}

/// Polls until `count` records have arrived.
async fn read(consumer: &mut Consumer, count: usize) -> Vec<ConsumerRecord> {
    let deadline = Instant::now() + LIMIT;
    let mut records = Vec::new();
    while records.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "{} of {count} records within {LIMIT:?}", records.len());
        records.extend(consumer.poll(left).await.unwrap());
    }
    records
}

fn number(record: &ConsumerRecord) -> usize {
    std::str::from_utf8(record.value().unwrap()).unwrap().parse().unwrap()
}

/// Offsets and numbers by partition, in reading order.
fn numbers(records: &[ConsumerRecord]) -> BTreeMap<i32, Vec<(i64, usize)>> {
    let mut by_partition: BTreeMap<i32, Vec<(i64, usize)>> = BTreeMap::new();
    for record in records {
        by_partition.entry(record.partition()).or_default().push((record.offset(), number(record)));
    }
    by_partition
}

fn counted(from: usize, to: usize) -> Vec<(i64, usize)> {
    (from..to).map(|n| (n as i64, n)).collect()
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}

async fn reads_everything_in_order(backend: &Backend) {
    let topic = "reads-everything";
    filled(backend, topic, 3, 2_000).await;
    let mut consumer = Consumer::new(earliest(backend)).unwrap();
    consumer.assign(all(topic, 3));
    let records = read(&mut consumer, 6_000).await;
    for (partition, read) in numbers(&records) {
        assert_eq!(read, counted(0, 2_000), "partition {partition}");
        let at = TopicPartition::new(topic, partition);
        assert_eq!(consumer.position(&at).await.unwrap(), 2_000);
        assert_eq!(consumer.high_watermark(&at), Some(2_000));
        assert_eq!(consumer.current_lag(&at), Some(0));
        consumer.seek(&at, 1_500).unwrap();
        assert_eq!(consumer.current_lag(&at), Some(500));
        consumer.seek(&at, 2_000).unwrap();
    }
    assert!(consumer.poll(Duration::from_millis(20)).await.unwrap().is_empty());
    assert_eq!(consumer.assignment().len(), 3);
    consumer.close().await;
}

async fn seeks_move_the_position(backend: &Backend) {
    let topic = "goes-where";
    filled(backend, topic, 1, 500).await;
    let at = TopicPartition::new(topic, 0);
    let mut consumer = Consumer::new(earliest(backend)).unwrap();
    assert!(matches!(consumer.seek(&at, 3), Err(Error::IllegalState(_))));
    consumer.assign([at.clone()]);
    consumer.seek(&at, 123).unwrap();
    assert_eq!(consumer.position(&at).await.unwrap(), 123);
    assert_eq!(number(&read(&mut consumer, 1).await[0]), 123);
    consumer.seek_to_beginning([&at]).unwrap();
    assert_eq!(number(&read(&mut consumer, 1).await[0]), 0);
    consumer.seek_to_timestamp(&at, 1_000 + 77).unwrap();
    assert_eq!(number(&read(&mut consumer, 1).await[0]), 77);
    consumer.seek_to_end([&at]).unwrap();
    assert_eq!(consumer.position(&at).await.unwrap(), 500);
    consumer.seek_to_timestamp(&at, i64::MAX).unwrap();
    assert_eq!(consumer.position(&at).await.unwrap(), 500, "no record of that time");
    assert!(consumer.seek(&at, -1).is_err());
}

async fn records_fetched_before_a_seek_are_discarded(backend: &Backend) {
    let topic = "discards";
    filled(backend, topic, 1, 1_000).await;
    let at = TopicPartition::new(topic, 0);
    let config = earliest(backend).max_poll_records(3);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign([at.clone()]);
    for target in [900, 5, 5, 999, 0, 400] {
        // Here the consumer holds the rest of a partly read response.
        read(&mut consumer, 1).await;
        consumer.seek(&at, target).unwrap();
        let records = read(&mut consumer, 1).await;
        assert_eq!(number(&records[0]), target as usize);
        assert_eq!(consumer.position(&at).await.unwrap(), target + records.len() as i64);
        consumer.seek(&at, 0).unwrap();
    }
}

async fn paused_partitions_return_no_records(backend: &Backend) {
    let topic = "paused";
    filled(backend, topic, 2, 300).await;
    let both = all(topic, 2);
    let config = earliest(backend).max_poll_records(10);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign(both.clone());
    // The records being read and all fetched records stay in the consumer.
    let mut before = read(&mut consumer, 1).await;
    consumer.pause([&both[0]]);
    let seen = before.iter().filter(|r| r.partition() == 1).count();
    let during = read(&mut consumer, 300 - seen).await;
    assert!(during.iter().all(|r| r.partition() == 1));
    before.extend(during);
    consumer.resume([&both[0]]);
    let left = 600 - before.len();
    before.extend(read(&mut consumer, left).await);
    for (partition, read) in numbers(&before) {
        assert_eq!(read, counted(0, 300), "partition {partition}");
    }
}

async fn offsets_are_looked_up(backend: &Backend) {
    let topic = "knows-offsets";
    filled(backend, topic, 2, 50).await;
    let both = all(topic, 2);
    let consumer = Consumer::new(earliest(backend)).unwrap();
    let first = consumer.beginning_offsets(&both).await.unwrap();
    assert_eq!(first.values().copied().collect::<Vec<_>>(), [0, 0]);
    let end = consumer.end_offsets(&both).await.unwrap();
    assert_eq!(end.values().copied().collect::<Vec<_>>(), [50, 50]);
    let times = [(both[0].clone(), 1_020), (both[1].clone(), 9_000_000_000_000)];
    let found = consumer.offsets_for_times(times).await.unwrap();
    assert_eq!(found[&both[0]], Some(OffsetAndTimestamp { offset: 20, timestamp: 1_020 }));
    assert_eq!(found[&both[1]], None);
    let partitions = consumer.partitions_for(topic).await.unwrap();
    assert_eq!(partitions.len(), 2);
    assert!(partitions.iter().all(|p| p.leader.is_some() && p.leader_epoch.is_some()));
}

async fn new_assignment_begins_where_the_reset_policy_says(backend: &Backend) {
    let topic = "begins";
    filled(backend, topic, 1, 5).await;
    let at = TopicPartition::new(topic, 0);
    for (policy, begin) in [(OffsetReset::Earliest, 0), (OffsetReset::Latest, 5)] {
        let config = earliest(backend).auto_offset_reset(policy);
        let mut consumer = Consumer::new(config).unwrap();
        consumer.assign([at.clone()]);
        assert_eq!(consumer.position(&at).await.unwrap(), begin);
        // Partitions that stay assigned keep their positions.
        consumer.seek(&at, 3).unwrap();
        consumer.assign([at.clone()]);
        assert_eq!(consumer.position(&at).await.unwrap(), 3);
    }
}

async fn position_outside_the_log_is_reset(backend: &Backend) {
    let topic = "reset";
    filled(backend, topic, 1, 20).await;
    let at = TopicPartition::new(topic, 0);
    let mut consumer = Consumer::new(earliest(backend)).unwrap();
    consumer.assign([at.clone()]);
    consumer.seek(&at, 1_000).unwrap();
    assert_eq!(numbers(&read(&mut consumer, 20).await)[&0], counted(0, 20));
}

async fn position_outside_the_log_is_reported_without_a_policy(backend: &Backend) {
    let topic = "reported";
    filled(backend, topic, 2, 20).await;
    let both = all(topic, 2);
    let config = earliest(backend).auto_offset_reset(OffsetReset::None);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign(both.clone());
    consumer.seek(&both[1], 0).unwrap();
    let unplaced = consumer.poll(LIMIT).await.unwrap_err();
    assert!(matches!(unplaced, Error::OffsetOutOfRange { partition: 0, offset: -1, .. }));
    consumer.seek(&both[0], 1_000).unwrap();
    let (mut errors, mut records) = (Vec::new(), Vec::new());
    while errors.is_empty() || records.len() < 20 {
        match consumer.poll(LIMIT).await {
            Ok(more) => records.extend(more),
            Err(error) => errors.push(error),
        }
    }
    assert!(records.iter().all(|r| r.partition() == 1), "the other partition is not affected");
    assert_eq!(errors.len(), 1);
    assert!(
        matches!(&errors[0], Error::OffsetOutOfRange { partition: 0, offset: 1_000, .. }),
        "{errors:?}"
    );
    assert_eq!(consumer.position(&both[0]).await.unwrap(), 1_000);
    consumer.seek(&both[0], 10).unwrap();
    assert_eq!(numbers(&read(&mut consumer, 10).await)[&0], counted(10, 20));
}

async fn reads_every_codec_and_all_fields(backend: &Backend) {
    let topic = "codecs";
    create(backend, topic, 1).await;
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    let long = "long ".repeat(2_000);
    for codec in codecs {
        let producer = common::producer(backend, &[("compression.type", codec)]);
        let headers = [
            Header { key: "same", value: Some(b"1") },
            Header { key: "same", value: Some(b"2") },
            Header { key: "none", value: None },
        ];
        let record = Record::to(topic).key(codec).value(&long).headers(&headers).timestamp(7);
        producer.send(record).await.unwrap().await.unwrap();
        producer.send(Record::to(topic).key("tombstone")).await.unwrap().await.unwrap();
    }
    let mut consumer = Consumer::new(earliest(backend)).unwrap();
    consumer.assign(all(topic, 1));
    let records = read(&mut consumer, 2 * codecs.len()).await;
    for (pair, codec) in records.chunks(2).zip(codecs) {
        assert_eq!(pair[0].key(), Some(codec.as_bytes()));
        assert_eq!(pair[0].value(), Some(long.as_bytes()), "{codec}");
        assert_eq!(pair[0].timestamp(), 7);
        assert_eq!(pair[0].timestamp_type(), TimestampType::CreateTime);
        assert_eq!(pair[0].topic_partition(), TopicPartition::new(topic, 0));
        assert_eq!(pair[0].next_offset().offset, pair[1].offset());
        assert_eq!(pair[0].header("same"), Some(b"2".as_slice()), "the last one");
        assert_eq!((pair[0].header("none"), pair[0].header("missing")), (None, None));
        let shared: Vec<_> = pair[0].headers_bytes().map(|(_, value)| value).collect();
        assert_eq!(shared, [Some("1".into()), Some("2".into()), None]);
        // No copy: the values lie where the record's do.
        assert_eq!(pair[0].value_bytes().unwrap().as_ptr(), pair[0].value().unwrap().as_ptr());
        let first = pair[0].headers().next().and_then(|(_, value)| value).unwrap();
        assert_eq!(shared[0].as_ref().unwrap().as_ptr(), first.as_ptr());
        let headers: Vec<_> = pair[0].headers().collect();
        let expected: [(&str, Option<&[u8]>); 3] =
            [("same", Some(b"1")), ("same", Some(b"2")), ("none", None)];
        assert_eq!(headers, expected, "{codec}");
        assert_eq!(pair[1].value(), None);
    }
}

async fn a_small_budget_delays_but_loses_nothing(backend: &Backend) {
    let topic = "budget";
    filled(backend, topic, 3, 3_000).await;
    let config = earliest(backend)
        .prefetch_bytes(2_000)
        .max_partition_fetch_bytes(1_000)
        .max_poll_records(7);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign(all(topic, 3));
    let records = read(&mut consumer, 9_000).await;
    for (partition, read) in numbers(&records) {
        assert_eq!(read, counted(0, 3_000), "partition {partition}");
    }
}

async fn a_dropped_poll_loses_nothing(backend: &Backend) {
    let topic = "dropped";
    filled(backend, topic, 2, 500).await;
    let config = earliest(backend).max_poll_records(1);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign(all(topic, 2));
    let deadline = Instant::now() + LIMIT;
    let mut records = Vec::new();
    while records.len() < 1_000 {
        assert!(Instant::now() < deadline, "{} of 1000 records", records.len());
        tokio::select! {
            biased;
            polled = consumer.poll(LIMIT) => records.extend(polled.unwrap()),
            () = tokio::task::yield_now() => {}
        }
    }
    for (partition, read) in numbers(&records) {
        assert_eq!(read, counted(0, 500), "partition {partition}");
    }
}

async fn streams_and_batches_return_the_same_records(backend: &Backend) {
    let topic = "streams";
    filled(backend, topic, 1, 900).await;
    let at = TopicPartition::new(topic, 0);
    let mut consumer = Consumer::new(earliest(backend)).unwrap();
    consumer.assign([at.clone()]);
    let mut seen = Vec::new();
    let mut stream = consumer.stream();
    for _ in 0..100 {
        seen.push(next(&mut stream).await.unwrap().unwrap().offset());
    }
    assert_eq!(
        consumer.position(&at).await.unwrap(),
        100,
        "the stream takes no more than it gives"
    );
    consumer.seek(&at, 105).unwrap();
    seen.extend(100..105);
    while *seen.last().unwrap() < 500 {
        let mut batch = consumer.poll_batch(LIMIT).await.unwrap().expect("a batch");
        let last = batch.last_offset();
        let data = batch.data().clone();
        // Borrowed and shared records, mixed.
        while let Some(record) = batch.next_record() {
            let record = record.unwrap();
            assert_eq!(record.value.unwrap(), record.offset.to_string().as_bytes());
            seen.push(record.offset);
            let Some(record) = batch.next_shared() else { break };
            let record = record.unwrap();
            let value = record.value_bytes().unwrap();
            assert_eq!(value, record.offset().to_string().as_bytes());
            assert!(
                data.as_ptr_range().contains(&value.as_ptr()),
                "the value is no slice of the batch"
            );
            assert_eq!(record.topic_partition(), at);
            assert!(record.leader_epoch().is_some());
            seen.push(record.offset());
        }
        assert_eq!(consumer.position(&at).await.unwrap(), last + 1);
    }
    let handle = consumer.handle();
    let mut stream = consumer.into_stream();
    while seen.len() < 900 {
        seen.push(next(&mut stream).await.unwrap().unwrap().offset());
    }
    assert_eq!(seen, (0..900).collect::<Vec<i64>>());
    let mut consumer = stream.into_inner();
    assert_eq!(consumer.position(&at).await.unwrap(), 900);
    // The records of a stream count in the handle's metrics once the next ones are looked for.
    assert!(consumer.poll(Duration::ZERO).await.unwrap().is_empty());
    let (metrics, of_handle) = (consumer.metrics(), handle.metrics().unwrap());
    assert_eq!(metrics.records_consumed_total, of_handle.records_consumed_total);
    assert_eq!(metrics.partitions, of_handle.partitions);
    drop(consumer);
    assert!(handle.metrics().is_none(), "the consumer is dropped");
}

/// A poll, one that is dropped, and a stream.
#[tokio::test]
async fn idle_time_grows_only_while_a_poll_or_a_stream_waits() {
    let backend = Backend::embedded(1).await;
    backend.create_topic("idle", 1, 1).await;
    let mut consumer = Consumer::new(earliest(&backend)).unwrap();
    consumer.assign([TopicPartition::new("idle", 0)]);
    let handle = consumer.handle();
    let idle = || handle.metrics().unwrap().poll_idle_time;
    let (wait, least) = (Duration::from_millis(100), Duration::from_millis(50));
    assert_eq!(idle(), Duration::ZERO);

    assert!(consumer.poll(wait).await.unwrap().is_empty());
    let polled = idle();
    assert!(polled >= least, "{polled:?}");
    tokio::time::timeout(wait, consumer.poll(LIMIT)).await.unwrap_err();
    let dropped = idle();
    assert!(dropped >= polled + least, "{dropped:?}");
    tokio::time::timeout(wait, next(&mut consumer.stream())).await.unwrap_err();
    let streamed = idle();
    assert!(streamed >= dropped + least, "{streamed:?}");
    assert_eq!(idle(), streamed, "nothing waits");

    // The present wait counts.
    let waits = common::until("the idle time grows", || idle() > streamed);
    tokio::select! {
        polled = consumer.poll(LIMIT) => panic!("{polled:?}"),
        () = waits => {}
    }
    let named = consumer.metrics().named();
    let ratio = named.iter().find(|metric| metric.name == "poll-idle-ratio-avg").unwrap();
    assert!(ratio.value > 0.0 && ratio.value <= 1.0, "{ratio:?}");
}

async fn missing_topics_and_partitions_are_reported(backend: &Backend) {
    let topic = "exists";
    filled(backend, topic, 1, 1).await;
    let config = earliest(backend)
        .default_api_timeout(Duration::from_secs(2))
        .request_timeout(Duration::from_secs(1))
        .allow_auto_create_topics(false);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign([
        TopicPartition::new("exists-not", 0),
        TopicPartition::new(topic, 0),
        TopicPartition::new(topic, 5),
    ]);
    let mut errors = Vec::new();
    let mut count = 0;
    while errors.len() < 2 || count < 1 {
        match consumer.poll(LIMIT).await {
            Ok(records) => count += records.len(),
            Err(error) => errors.push(error),
        }
    }
    assert!(
        errors.iter().any(|e| matches!(e, Error::UnknownPartition { partition: 5, .. })),
        "{errors:?}"
    );
    assert!(errors.iter().any(|e| matches!(e, Error::UnknownTopic(_))), "{errors:?}");
    let unknown = consumer.partitions_for("exists-not").await.unwrap_err();
    assert!(matches!(unknown, Error::UnknownTopic(_)), "{unknown}");
    let unknown = consumer.end_offsets(&all(topic, 2)).await.unwrap_err();
    assert!(matches!(unknown, Error::UnknownPartition { partition: 1, .. }), "{unknown}");
}

async fn topic_created_after_its_assignment_is_read(backend: &Backend) {
    let topic = "later";
    let config = earliest(backend).allow_auto_create_topics(false);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign(all(topic, 1));
    assert!(consumer.poll(Duration::from_millis(50)).await.unwrap().is_empty());
    filled(backend, topic, 1, 3).await;
    assert_eq!(numbers(&read(&mut consumer, 3).await)[&0], counted(0, 3));
}

async fn new_records_wake_a_waiting_poll(backend: &Backend) {
    let topic = "wakes";
    filled(backend, topic, 1, 1).await;
    let mut consumer = Consumer::new(earliest(backend)).unwrap();
    consumer.assign(all(topic, 1));
    read(&mut consumer, 1).await;
    let producer = common::producer(backend, &[("linger.ms", "0")]);
    for n in 1..20 {
        let begun = Instant::now();
        let value = n.to_string();
        let (sent, polled) = tokio::join!(
            async {
                let record = Record::to(topic).partition(0).value(&value);
                producer.send(record).await.unwrap().await.unwrap()
            },
            consumer.poll(LIMIT),
        );
        assert_eq!(sent.offset, Some(n));
        assert_eq!(numbers(&polled.unwrap())[&0], [(n, n as usize)]);
        assert!(begun.elapsed() < LIMIT / 2, "woken by the record, not by the time limit");
    }
}
