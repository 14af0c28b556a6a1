//! Clients whose tasks run on the process's I/O thread (`curtail.io.thread`), while the application blocks its runtime.

use std::{
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use crate::common::Backend;
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, Producer, ProducerConfig, Record,
    RecordMetadata, TopicPartition, producer::ProducerInterceptor, transaction::OffsetAndMetadata,
};
use tokio::runtime::{Builder, Runtime};

const TOPIC: &str = "blocked";
const PATIENT: Duration = Duration::from_secs(60);
/// The least session timeout that the test's cluster accepts, and the consumer's.
const SESSION: Duration = Duration::from_secs(2);

/// A cluster whose runtime the application does not block.
fn cluster() -> (Runtime, Backend) {
    let runtime = Runtime::new().expect("a runtime");
    let backend = runtime.block_on(async {
        let backend =
            Backend::embedded_with(1, |config| config.group_min_session_timeout = SESSION).await;
        backend.create_topic(TOPIC, 1, 1).await;
        backend
    });
    (runtime, backend)
}

/// An application with one thread.
fn application() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn producer_config(backend: &Backend, io_thread: &str) -> ProducerConfig {
    let mut config = ProducerConfig::new(backend.bootstrap());
    for (name, value) in [("curtail.io.thread", io_thread), ("linger.ms", "50")] {
        config.set(name, value).expect("a known property");
    }
    config
}

/// Sends a record and occupies the application's only thread until the record is acknowledged, or for `most`. Returns
/// whether it was.
async fn acknowledged_while_blocked(config: ProducerConfig, most: Duration) -> bool {
    let producer = Producer::new(config).expect("usable");
    producer.warm_up(&[TOPIC]).await.expect("warm");
    let delivery = producer.send(Record::to(TOPIC).value("v")).await.expect("sent");
    let began = Instant::now();
    while delivery.outcome().is_none() && began.elapsed() < most {
        thread::yield_now();
    }
    let is_acknowledged = delivery.outcome().is_some();
    delivery.await.expect("written in the end");
    is_acknowledged
}

#[test]
fn a_blocked_application_delays_no_record_with_an_io_thread() {
    let (_servers, backend) = cluster();
    let blocked = |io_thread, most| {
        let config = producer_config(&backend, io_thread);
        application().block_on(acknowledged_while_blocked(config, most))
    };
    assert!(blocked("true", PATIENT), "lingers and is acknowledged on the I/O thread");
    assert!(!blocked("false", Duration::from_millis(500)), "waits for the application's thread");
}

/// Joins a group and blocks the application's only thread for two session timeouts. Returns whether the consumer is
/// still the same member.
async fn keeps_its_session(backend: &Backend, io_thread: &str) -> bool {
    let mut config = ConsumerConfig::new(backend.bootstrap());
    for (name, value) in [
        ("curtail.io.thread", io_thread),
        ("group.id", "billing"),
        ("session.timeout.ms", "2000"),
        ("heartbeat.interval.ms", "100"),
        ("enable.auto.commit", "false"),
    ] {
        config.set(name, value).expect("a known property");
    }
    let mut consumer = Consumer::new(config).expect("usable");
    consumer.subscribe([TOPIC]).expect("subscribed");
    while consumer.assignment().is_empty() {
        consumer.poll(Duration::from_millis(10)).await.expect("polled");
    }
    let partition = TopicPartition::new(TOPIC, 0);
    consumer.position(&partition).await.expect("a position to commit");
    // The subject of the test, not a wait for something.
    thread::sleep(2 * SESSION);
    let offset = [(partition, OffsetAndMetadata::new(0))];
    let is_same = consumer.commit_offsets(offset).await.is_ok();
    consumer.close().await;
    is_same
}

#[test]
fn a_blocked_application_keeps_its_session_with_an_io_thread() {
    let (_servers, backend) = cluster();
    for (io_thread, keeps) in [("true", true), ("false", false)] {
        let kept = application().block_on(keeps_its_session(&backend, io_thread));
        assert_eq!(kept, keeps, "curtail.io.thread={io_thread}");
    }
}

/// The clients need no runtime of the application.
#[test]
fn clients_with_an_io_thread_are_made_outside_a_runtime() {
    let (_servers, backend) = cluster();
    let producer = Producer::new(producer_config(&backend, "true")).expect("usable");
    let admin = AdminConfig::new(backend.bootstrap()).io_thread(true);
    let admin = Admin::new(admin).expect("usable");
    // An executor without timers and sockets.
    let without_drivers = Builder::new_current_thread().build().expect("a runtime");
    without_drivers.block_on(async {
        let delivery = producer.send(Record::to(TOPIC).value("v")).await.expect("sent");
        assert_eq!(delivery.await.expect("written").offset, Some(0));
        let topics = admin.describe_topics(&[TOPIC]).await.expect("described");
        assert_eq!(topics.len(), 1);
        producer.close().await.expect("closed");
    });
}

/// When the application's runtime ends, the producer continues.
#[test]
fn a_producer_with_an_io_thread_outlives_the_runtime_on_which_it_was_made() {
    let (_servers, backend) = cluster();
    let first = application();
    let producer = {
        let _entered = first.enter();
        Producer::new(producer_config(&backend, "true")).expect("usable")
    };
    drop(first);
    application().block_on(async {
        let delivery = producer.send(Record::to(TOPIC).value("v")).await.expect("sent");
        delivery.await.expect("written");
        producer.close().await.expect("closed");
    });
}

/// Notes the threads on which outcomes arrive.
#[derive(Clone, Default)]
struct Threads(Arc<Mutex<Vec<ThreadId>>>);

impl ProducerInterceptor for Threads {
    fn on_acknowledgement(&self, _topic: &str, _outcome: Result<&RecordMetadata, &Error>) {
        self.0.lock().expect("threads").push(thread::current().id());
    }
}

/// A slow interceptor must not hold up the I/O thread.
#[test]
fn interceptors_run_on_the_applications_runtime() {
    let (_servers, backend) = cluster();
    let threads = Threads::default();
    application().block_on(async {
        let config = producer_config(&backend, "true").interceptor(threads.clone());
        let producer = Producer::new(config).expect("usable");
        let delivery = producer.send(Record::to(TOPIC).value("v")).await.expect("sent");
        delivery.await.expect("written");
        // Fails before it is in a batch.
        let queued =
            producer.try_send(Record::to("not a topic's name").value("v")).expect("queued");
        queued.await.expect_err("an invalid name");
        producer.close().await.expect("closed");
    });
    assert_eq!(*threads.0.lock().expect("threads"), [thread::current().id(); 2]);
}
