//! Batches larger than their topic accepts (`max.message.bytes`) are split, on the embedded cluster and on Apache
//! Kafka.

use std::sync::{Arc, Mutex};

use crate::common::{Backend, producer, read_all};
use curtail::{
    Delivery, Error, ErrorCode, Producer, ProducerConfig, Record, RecordMetadata,
    TransactionalProducer, producer::ProducerInterceptor,
};

/// `max.message.bytes` of the topics.
const LIMIT: usize = 20_000;
/// Batch size of the producers: three times the limit.
const BATCH_SIZE: (&str, &str) = ("batch.size", "60000");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_are_too_large_are_split_embedded() {
    batches_that_are_too_large_are_split(&Backend::embedded(1).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_are_too_large_are_split_apache() {
    let name = "batches_that_are_too_large_are_split_apache";
    let Some(backend) = Backend::shared_apache(name) else { return };
    batches_that_are_too_large_are_split(backend).await;
}

async fn batches_that_are_too_large_are_split(backend: &Backend) {
    for codec in ["none", "gzip", "zstd"] {
        several_batches_in_flight(backend, codec).await;
    }
    without_idempotence(backend).await;
    a_record_that_is_too_large_alone_fails_alone(backend).await;
    in_a_transaction(backend).await;
}

/// A record's timestamp and offset, or its error.
type Note = Result<(i64, Option<i64>), String>;

/// Outcomes of the records, in the order of the interceptor's calls.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

impl ProducerInterceptor for Notes {
    fn on_acknowledgement(&self, topic: &str, outcome: Result<&RecordMetadata, &Error>) {
        assert_eq!(topic, "intercepted");
        let outcome = outcome.map(|written| (written.timestamp, written.offset));
        self.0.lock().expect("notes").push(outcome.map_err(ToString::to_string));
    }
}

/// The parts of a split batch are reported one after the other, each record once with its own outcome.
#[tokio::test]
async fn interceptors_receive_each_record_of_a_split_batch_once() {
    const TOO_LARGE: i64 = 30;
    let backend = Backend::embedded(1).await;
    create(&backend, "intercepted").await;
    let notes = Notes::default();
    let mut config = ProducerConfig::new(backend.bootstrap()).interceptor(notes.clone());
    for (name, value) in [("batch.size", "100000"), ("linger.ms", "60000")] {
        config.set(name, value).expect("a known property");
    }
    let producer = Producer::new(config).expect("usable");
    let mut deliveries = Vec::new();
    for number in 0..50 {
        let size = if number == TOO_LARGE { 30_000 } else { 1000 };
        let value = value(number as u32, size);
        let record = Record::to("intercepted").value(&value).timestamp(1000 + number);
        deliveries.push(producer.send(record).await.expect("sent"));
    }
    producer.flush().await.expect("flushed");
    assert!(producer.metrics().all_brokers().batch_split_total > 0);
    let told = std::mem::take(&mut *notes.0.lock().expect("notes"));
    let (failed, written): (Vec<_>, Vec<_>) = told.into_iter().partition(Result::is_err);
    let written: Vec<_> = written.into_iter().map(|outcome| outcome.expect("written")).collect();
    let numbers = (0..50).filter(|number| *number != TOO_LARGE);
    let expected: Vec<_> = numbers.zip(0..).map(|(n, at)| (1000 + n, Some(at))).collect();
    assert_eq!(written, expected, "in the order of the log, each with its own timestamp");
    let error = deliveries.remove(TOO_LARGE as usize).await.expect_err("too large");
    assert_eq!(failed, [Err(error.to_string())]);
    for (delivery, (timestamp, offset)) in deliveries.into_iter().zip(written) {
        let own = delivery.await.expect("written");
        assert_eq!((own.timestamp, own.offset), (timestamp, offset));
    }
    producer.close().await.expect("closed");
    assert!(notes.0.lock().expect("notes").is_empty(), "nothing is told twice");
}

async fn create(backend: &Backend, topic: &str) {
    let limit = LIMIT.to_string();
    backend.create_topic_with(topic, 1, 1, &[("max.message.bytes", &limit)]).await;
}

/// The record's number, and bytes that no codec can compress.
fn value(number: u32, size: usize) -> Vec<u8> {
    let mut state = u64::from(number) + 1;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    number.to_be_bytes().into_iter().chain(noise).take(size).collect()
}

/// Numbers of the topic's records.
async fn numbers(backend: &Backend, topic: &str) -> Vec<u32> {
    let records = read_all(backend, topic, 1).await.remove(&0).unwrap_or_default();
    let number = |value: &[u8]| u32::from_be_bytes(value[..4].try_into().expect("a number"));
    records.iter().map(|record| number(record.value().expect("a value"))).collect()
}

/// Checks that all records were written, in order, in batches that the topic accepts.
async fn check_written(deliveries: Vec<Delivery>) {
    for (n, mut delivery) in deliveries.into_iter().enumerate() {
        let written = (&mut delivery).await.expect("written");
        assert_eq!(written.offset, Some(n as i64));
        let batch = delivery.batch_outcome().expect("resolved").expect("written");
        assert!(batch.bytes <= LIMIT && batch.records < 20, "{batch:?}");
        assert!(delivery.timing().is_some());
    }
}

async fn several_batches_in_flight(backend: &Backend, codec: &str) {
    let topic = format!("limited-{codec}");
    create(backend, &topic).await;
    let properties = [BATCH_SIZE, ("linger.ms", "5"), ("compression.type", codec)];
    let producer = producer(backend, &properties);
    let mut deliveries = Vec::new();
    for number in 0..300 {
        let value = value(number, 1000);
        deliveries.push(producer.send(Record::to(&topic).value(&value)).await.expect("sent"));
    }
    producer.flush().await.expect("flushed");
    assert!(
        deliveries.iter().all(|delivery| delivery.outcome().is_some()),
        "flush waits for parts"
    );
    check_written(deliveries).await;
    assert_eq!(numbers(backend, &topic).await, (0..300).collect::<Vec<_>>(), "{codec}");
    let metrics = producer.metrics().all_brokers();
    assert!(metrics.batch_split_total > 0 && metrics.record_error_total == 0, "{metrics:?}");
    assert_eq!(metrics.record_send_total, 300);
    assert_eq!(producer.available_memory(), 32 << 20, "everything is given back");
    producer.close().await.expect("closed");
}

async fn without_idempotence(backend: &Backend) {
    create(backend, "plain").await;
    let one = ("max.in.flight.requests.per.connection", "1");
    let plain = producer(backend, &[BATCH_SIZE, one, ("enable.idempotence", "false")]);
    let mut deliveries = Vec::new();
    for number in 0..100 {
        let value = value(number, 1000);
        deliveries.push(plain.send(Record::to("plain").value(&value)).await.expect("sent"));
    }
    check_written(deliveries).await;
    assert!(plain.metrics().all_brokers().batch_split_total > 0);
    assert_eq!(numbers(backend, "plain").await, (0..100).collect::<Vec<_>>());
}

async fn a_record_that_is_too_large_alone_fails_alone(backend: &Backend) {
    create(backend, "alone").await;
    // One batch of all records.
    let producer = producer(backend, &[BATCH_SIZE, ("linger.ms", "60000")]);
    let mut deliveries = Vec::new();
    for number in 0..6 {
        let value = value(number, if number == 3 { 30_000 } else { 1000 });
        deliveries.push(producer.send(Record::to("alone").value(&value)).await.expect("sent"));
    }
    producer.flush().await.expect("flushed");
    for (number, delivery) in deliveries.into_iter().enumerate() {
        let outcome = delivery.await;
        if number != 3 {
            outcome.expect("written");
            continue;
        }
        let error = outcome.expect_err("too large");
        let Error::NotAcknowledged { may_have_been_written: false, cause, .. } = &error else {
            panic!("{error}")
        };
        let Error::Broker { code: ErrorCode::MESSAGE_TOO_LARGE, .. } = **cause else {
            panic!("{error}")
        };
    }
    assert_eq!(numbers(backend, "alone").await, [0, 1, 2, 4, 5]);
}

async fn in_a_transaction(backend: &Backend) {
    create(backend, "transaction").await;
    let mut config = ProducerConfig::new(backend.bootstrap()).transactional_id("split");
    config.set(BATCH_SIZE.0, BATCH_SIZE.1).expect("a known property");
    let mut producer = TransactionalProducer::new(config).expect("a usable configuration");
    producer.init_transactions().await.expect("initialized");
    let transaction = producer.begin_transaction().await.expect("begun");
    let mut deliveries = Vec::new();
    for number in 0..100 {
        let value = value(number, 1000);
        let record = Record::to("transaction").value(&value);
        deliveries.push(transaction.send(record).await.expect("sent"));
    }
    transaction.commit().await.expect("committed");
    check_written(deliveries).await;
    assert_eq!(numbers(backend, "transaction").await, (0..100).collect::<Vec<_>>());
    producer.close().await.expect("closed");
}
