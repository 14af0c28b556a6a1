//! The application's views of its records other than deliveries: interceptors and metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{Backend, producer, read_all};
use curtail::{
    Consumer, ConsumerConfig, ConsumerRecord, Error, Producer, ProducerConfig, Record,
    RecordMetadata, TopicPartition,
    consumer::ConsumerInterceptor,
    producer::{OutgoingRecord, ProducerInterceptor},
    transaction::OffsetAndMetadata,
};
use futures_util::StreamExt;

/// A topic, and the outcome of a record for it.
type Note = (String, Result<RecordMetadata, String>);

/// Records the interceptor's calls.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

impl ProducerInterceptor for Notes {
    fn on_send(&self, record: &mut OutgoingRecord<'_>) {
        record.push_header("seen", b"yes");
        record.value = record.value.take().map(|value| [&value[..], b"!"].concat().into());
    }

    fn on_acknowledgement(&self, topic: &str, outcome: Result<&RecordMetadata, &Error>) {
        let outcome = outcome.cloned().map_err(ToString::to_string);
        self.0.lock().expect("notes").push((topic.to_owned(), outcome));
    }
}

impl Notes {
    fn taken(&self) -> Vec<Note> {
        std::mem::take(&mut *self.0.lock().expect("notes"))
    }
}

/// Changes the record, and then panics.
struct Panics;

impl ProducerInterceptor for Panics {
    fn on_send(&self, record: &mut OutgoingRecord<'_>) {
        record.value = None;
        panic!("planted");
    }

    fn on_acknowledgement(&self, _: &str, _: Result<&RecordMetadata, &Error>) {
        panic!("planted");
    }
}

#[tokio::test]
async fn interceptors_change_records_and_receive_outcomes_in_order() {
    let backend = Backend::embedded(1).await;
    backend.create_topic("intercepted", 1, 1).await;
    let notes = Notes::default();
    let config = ProducerConfig::new(backend.bootstrap())
        .interceptor(Panics)
        .interceptor(notes.clone())
        .interceptor(Panics);
    let producer = Producer::new(config).expect("usable");
    let mut deliveries = Vec::new();
    for n in 0..50 {
        let record = Record::to("intercepted").value("v").timestamp(1000 + n);
        deliveries.push(producer.send(record).await.expect("sent"));
    }
    for (n, delivery) in deliveries.into_iter().enumerate() {
        assert_eq!(delivery.await.expect("written").offset, Some(n as i64));
        // Interceptors receive the outcome before the delivery.
        assert!(notes.0.lock().expect("notes").len() > n);
    }
    let told = notes.taken();
    assert_eq!(told.len(), 50);
    for (n, (topic, outcome)) in told.iter().enumerate() {
        let written = outcome.as_ref().expect("written");
        assert_eq!((topic.as_str(), written.offset), ("intercepted", Some(n as i64)));
        assert_eq!(written.timestamp, 1000 + n as i64);
    }
    let read = read_all(&backend, "intercepted", 1).await.remove(&0).expect("partition 0");
    for record in &read {
        assert_eq!(record.value(), Some(&b"v!"[..]));
        assert_eq!(record.headers().collect::<Vec<_>>(), [("seen", Some(&b"yes"[..]))]);
    }
    producer.close().await.expect("closed");
}

#[tokio::test]
async fn interceptors_receive_failed_sends_and_records_dropped_by_a_close() {
    let backend = Backend::embedded(1).await;
    backend.create_topic("intercepted", 1, 1).await;
    let notes = Notes::default();
    let config = ProducerConfig::new(backend.bootstrap())
        .linger(Duration::from_secs(60))
        .delivery_timeout(Duration::from_secs(120))
        .interceptor(notes.clone());
    let producer = Producer::new(config).expect("usable");
    let record = Record::to("intercepted").partition(7).value("x");
    let error = producer.send(record).await.expect_err("no such partition");
    assert!(!error.may_have_been_written());
    assert_eq!(notes.taken(), [("intercepted".to_owned(), Err(error.to_string()))]);
    let lingering = producer.send(Record::to("intercepted").value("x")).await.expect("sent");
    drop(producer);
    let error = lingering.await.expect_err("closed before it was sent");
    assert!(!error.may_have_been_written(), "{error}");
    let Error::NotAcknowledged { cause, .. } = &error else { panic!("{error}") };
    assert!(matches!(**cause, Error::Closed), "{error}");
    assert_eq!(notes.taken(), [("intercepted".to_owned(), Err(error.to_string()))]);
}

const MEASURING: [(&str, &str); 3] =
    [("client.id", "measuring"), ("batch.size", "1000"), ("batch.max.size", "1000")];

#[tokio::test]
async fn metrics_count_every_record_once_and_time_every_phase() {
    const RECORDS: u64 = 500;
    let backend = Backend::embedded(2).await;
    backend.create_topic("measured", 4, 1).await;
    let producer = producer(&backend, &MEASURING);
    let value = [0; 100];
    for n in 0..RECORDS {
        let key = n.to_string();
        let record = Record::to("measured").key(&key).value(&value);
        drop(producer.send(record).await.expect("sent"));
    }
    producer.flush().await.expect("flushed");
    let first = producer.metrics();
    let all = first.all_brokers();
    assert_eq!(all.record_send_total, RECORDS);
    assert_eq!(all.delivery_time.count(), RECORDS);
    assert_eq!((all.record_retry_total, all.record_error_total), (0, 0));
    assert_eq!((all.requests_in_flight, all.queue_bytes), (0, 0));
    assert_eq!(first.brokers.len(), 2);
    assert_eq!(all.connection_count, 2);
    assert_eq!(all.request_latency.count(), all.request_total);
    assert!(all.request_latency.p50() > 0 && all.delivery_time.max() >= all.queue_time.p50());
    assert!(all.batch_size.max() <= 1000 && all.records_per_batch.mean() > 1.0, "{all:?}");
    assert!(all.outgoing_byte_total > RECORDS * 100);
    assert_eq!(first.buffer_available_bytes, first.buffer_total_bytes);
    let named: BTreeMap<String, f64> = first
        .named()
        .into_iter()
        .filter(|metric| metric.group == "producer-metrics")
        .inspect(|metric| assert_eq!(metric.tags, [("client-id", "measuring".to_owned())]))
        .map(|metric| (metric.name, metric.value))
        .collect();
    assert_eq!(named["record-send-total"], RECORDS as f64);
    assert!(named["request-latency-avg"] > 0.0 && named["batch-size-avg"] > 0.0);

    producer.send(Record::to("measured").value("x")).await.expect("sent").await.expect("written");
    assert_eq!(producer.metrics().since(&first).all_brokers().record_send_total, 1);
    assert_eq!(producer.metrics().since(&first).all_brokers().request_total, 1);
    producer.close().await.expect("closed");
}

#[tokio::test]
async fn metrics_show_bytes_queued_for_a_dead_broker() {
    let backend = Backend::embedded(1).await;
    backend.create_topic("measured", 1, 1).await;
    let producer = producer(&backend, &[("linger.ms", "0")]);
    producer.send(Record::to("measured").value("x")).await.expect("sent").await.expect("written");
    backend.kill(1);
    let value = [0; 2000];
    let waiting = producer.send(Record::to("measured").value(&value)).await.expect("sent");
    let metrics = producer.metrics();
    let all = metrics.all_brokers();
    let queued = all.queue_bytes + metrics.leaderless_bytes;
    // Either still queued, or in flight on a connection that has not failed yet.
    assert!(queued > 2000 || all.requests_in_flight == 1, "{all:?}");
    assert!(metrics.buffer_available_bytes < metrics.buffer_total_bytes);
    drop(producer);
    let error = waiting.await.expect_err("closed");
    assert!(matches!(error, Error::NotAcknowledged { .. }), "{error}");
}

/// Notes the calls of a consumer's interceptor. Removes records with the value `drop`, and marks the others.
#[derive(Clone, Default)]
struct Marks(Arc<Mutex<Vec<String>>>);

impl ConsumerInterceptor for Marks {
    fn on_consume(&self, records: &mut Vec<ConsumerRecord>) {
        records.retain(|record| record.value() != Some(b"drop"));
        for record in records {
            let marked = [record.value().expect("a value"), b"!"].concat();
            record.set_value(Some(marked.into()));
        }
    }

    fn on_commit(&self, offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>) {
        let offsets = offsets.iter().map(|(at, to)| format!("{at}@{}", to.offset));
        self.0.lock().expect("marks").extend(offsets);
    }
}

/// Removes all records, and then panics.
struct PanicsAfterRemoval;

impl ConsumerInterceptor for PanicsAfterRemoval {
    fn on_consume(&self, records: &mut Vec<ConsumerRecord>) {
        records.clear();
        panic!("planted");
    }

    fn on_commit(&self, _: &BTreeMap<TopicPartition, OffsetAndMetadata>) {
        panic!("planted");
    }
}

#[tokio::test]
async fn consumer_interceptors_change_records_of_polls_streams_and_queues_and_see_commits() {
    let backend = Backend::embedded(1).await;
    backend.create_topic("consumed", 1, 1).await;
    let producer = producer(&backend, &[]);
    for value in ["a", "drop", "b"] {
        producer.send(Record::to("consumed").value(value)).await.unwrap().await.unwrap();
    }
    let marks = Marks::default();
    let consumer = || {
        let config = ConsumerConfig::new(backend.bootstrap())
            .group_id("consumed")
            .enable_auto_commit(false)
            .interceptor(PanicsAfterRemoval)
            .interceptor(marks.clone());
        let mut consumer = Consumer::new(config).unwrap();
        let at = TopicPartition::new("consumed", 0);
        consumer.assign([at.clone()]);
        consumer.seek(&at, 0).unwrap();
        consumer
    };
    let text = |record: &ConsumerRecord| String::from_utf8(record.value().unwrap().into()).unwrap();

    let mut polled = consumer();
    let mut values = Vec::new();
    while values.len() < 2 {
        values.extend(polled.poll(Duration::from_secs(10)).await.unwrap().iter().map(text));
    }
    assert_eq!(values, ["a!", "b!"]);
    polled.commit().await.unwrap();
    assert_eq!(*marks.0.lock().unwrap(), ["consumed-0@3"], "the removed record counts as returned");
    polled.close().await;

    let mut streamed = consumer();
    let records: Vec<_> = streamed.stream().take(2).collect().await;
    let values: Vec<_> = records.into_iter().map(|record| text(&record.unwrap())).collect();
    assert_eq!(values, ["a!", "b!"]);
    streamed.close().await;

    let mut queues = consumer().into_queues();
    let mut queue = queues.next().await.unwrap();
    let mut values = Vec::new();
    while values.len() < 2 {
        values.extend(queue.next().await.unwrap().unwrap().iter().map(text));
    }
    assert_eq!(values, ["a!", "b!"]);
}
