//! The window of a broker (`curtail.latency.target.ms`), against an embedded cluster whose broker takes 50 ms for each
//! request.

use std::time::Duration;

use crate::common::{Backend, producer, read_all, until};
use curtail::{Delivery, Error, Producer, Record};
use tokio::time::timeout;

const TOPIC: &str = "windowed";
const PRODUCE: i16 = 0;
const SLOW: Duration = Duration::from_millis(50);
/// Bytes of a record. `buffer.memory` holds about 3,300.
const SIZE: usize = 10_000;
const PATIENT: Duration = Duration::from_secs(600);

async fn slow_broker() -> Backend {
    let backend = Backend::embedded(1).await;
    backend.create_topic(TOPIC, 2, 1).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    cluster.delay(None, Some(PRODUCE), SLOW);
    backend
}

fn used(producer: &Producer) -> usize {
    producer.metrics().buffer_total_bytes - producer.available_memory()
}

async fn acknowledged(deliveries: Vec<Delivery>) {
    for delivery in deliveries {
        timeout(PATIENT, delivery).await.expect("no record waits").expect("written");
    }
}

/// Sends records as fast as it can. Returns the most memory that they took.
async fn outrun(producer: &Producer, records: usize) -> (usize, Vec<Delivery>) {
    let value = vec![b'x'; SIZE];
    let (mut most, mut deliveries) = (0, Vec::new());
    for _ in 0..records {
        deliveries.push(producer.send(Record::to(TOPIC).value(&value)).await.expect("sent"));
        most = most.max(used(producer));
    }
    (most, deliveries)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_outruns_a_broker_waits_in_front_of_it() {
    const RECORDS: usize = 1000;
    let backend = slow_broker().await;
    for (target, least, most) in [("10", 0, 4 << 20), ("0", 6 << 20, usize::MAX)] {
        let properties = [("curtail.latency.target.ms", target), ("batch.size", "16384")];
        let producer = producer(&backend, &properties);
        producer.warm_up(&[TOPIC]).await.expect("the leaders answer");
        let (took, deliveries) = outrun(&producer, RECORDS).await;
        assert!((least..=most).contains(&took), "{took} bytes with a target of {target} ms");
        let has_waited = producer.metrics().window_wait.count() > 0;
        assert_eq!(has_waited, target != "0", "the waits are counted");
        acknowledged(deliveries).await;
        assert_eq!(used(&producer), 0);
        producer.close().await.expect("closed");
    }
    let read = read_all(&backend, TOPIC, 2).await;
    assert_eq!(read.values().map(Vec::len).sum::<usize>(), 2 * RECORDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_that_is_dropped_while_it_waits_has_appended_nothing() {
    const ROUNDS: usize = 400;
    let backend = slow_broker().await;
    let producer = producer(&backend, &[]);
    producer.warm_up(&[TOPIC]).await.expect("the leaders answer");
    // Until the first response, only one request may be outstanding.
    backend.freeze(1);
    let value = vec![b'x'; SIZE];
    let (mut deliveries, mut dropped) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        // Polled once: it has appended the record, or waits.
        let send = producer.send(Record::to(TOPIC).value(&value));
        match timeout(Duration::ZERO, send).await {
            Ok(sent) => deliveries.push(sent.expect("sent")),
            Err(_) => dropped += 1,
        }
    }
    assert!(dropped > 0, "some had to wait");
    backend.thaw(1);
    let sent = deliveries.len();
    acknowledged(deliveries).await;
    // A sender behind those that have left is served.
    acknowledged(outrun(&producer, 200).await.1).await;
    producer.close().await.expect("closed");
    let read = read_all(&backend, TOPIC, 2).await;
    assert_eq!(read.values().map(Vec::len).sum::<usize>(), sent + 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_send_fails_only_while_the_queue_is_standing() {
    let backend = slow_broker().await;
    let producer = producer(&backend, &[("batch.size", "16384")]);
    producer.warm_up(&[TOPIC]).await.expect("the leaders answer");
    acknowledged(outrun(&producer, 10).await.1).await;
    let value = vec![b'x'; SIZE];
    let record = || Record::to(TOPIC).value(&value);
    // A burst of several windows. Without responses the queue is not standing.
    backend.freeze(1);
    let mut deliveries = Vec::new();
    for _ in 0..400 {
        deliveries.push(producer.try_send(record()).expect("memory bounds a burst"));
    }
    backend.thaw(1);
    let refused = async {
        loop {
            match producer.try_send(record()) {
                Ok(delivery) => deliveries.push(delivery),
                Err(Error::BufferFull { .. }) if used(&producer) < 16 << 20 => return,
                Err(Error::BufferFull { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENT, refused).await.expect("a queue that stands refuses");
    acknowledged(deliveries).await;
    // Drained, it accepts again.
    acknowledged(vec![producer.try_send(record()).expect("accepted")]).await;
}

/// A broker that pauses must not stop an application that keeps its pace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_broker_holds_up_no_send() {
    let backend = Backend::embedded_with(1, |config| config.broker_session_timeout = PATIENT).await;
    backend.create_topic(TOPIC, 2, 1).await;
    let producer =
        producer(&backend, &[("delivery.timeout.ms", "600000"), ("request.timeout.ms", "300000")]);
    producer.warm_up(&[TOPIC]).await.expect("the leaders answer");
    acknowledged(outrun(&producer, 10).await.1).await;
    backend.freeze(1);
    let (took, deliveries) = timeout(PATIENT, outrun(&producer, 500)).await.expect("no send waits");
    assert!(took > 4 << 20, "{took} bytes: far more than a window");
    backend.thaw(1);
    acknowledged(deliveries).await;
    until("everything is returned", || used(&producer) == 0).await;
}

/// No record can join a batch while the window of its broker is full, so lingering would only idle the broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_lingers_while_a_window_is_full() {
    const PARTITIONS: i32 = 120;
    let backend = Backend::embedded(1).await;
    backend.create_topic(TOPIC, PARTITIONS, 1).await;
    let properties = [("linger.ms", "500000"), ("delivery.timeout.ms", "600000")];
    let producer = producer(&backend, &properties);
    producer.warm_up(&[TOPIC]).await.expect("the leaders answer");
    // One record is no complete batch; all of them are more than may be outstanding before the first response.
    let value = vec![b'x'; SIZE];
    for partition in 0..PARTITIONS {
        let record = Record::to(TOPIC).partition(partition).value(&value);
        let sent = timeout(Duration::from_secs(60), producer.send(record)).await;
        drop(sent.expect("no send waits for linger.ms").expect("sent"));
    }
    producer.close().await.expect("closed");
    let read = read_all(&backend, TOPIC, PARTITIONS).await;
    assert!(read.values().all(|records| records.len() == 1), "each is there once");
}
