//! Records for unknown topics, warm-up, and the limits of both.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::common::{Backend, producer, read_all};
use curtail::{Admin, AdminConfig, Delivery, Error, ErrorCode, Record, admin::NewTopic};
use tokio::time::timeout;

fn run(body: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(body);
}

fn admin(backend: &Backend) -> Admin {
    Admin::new(AdminConfig::new(backend.bootstrap())).expect("a usable configuration")
}

async fn create(admin: &Admin, topic: &str, partitions: i32, replicas: i16) {
    let topic = NewTopic::new(topic).partitions(partitions).replication_factor(replicas);
    for (_, created) in admin.create_topics(&[topic]).await.expect("a response") {
        created.expect("created");
    }
}

/// Records sent before the topic exists arrive in the order of the sends, and before those sent after.
async fn order_is_kept(backend: &Backend) {
    let (topic, keys, records) = ("awaited", 7u32, 2_000u32);
    let producer = producer(backend, &[("linger.ms", "1")]);
    let send = |n: u32| {
        let record = Record::to(topic);
        producer
            .try_send(record.key(&(n % keys).to_be_bytes()).value(&n.to_be_bytes()))
            .expect("taken")
    };
    let mut deliveries: Vec<Delivery> = (0..records / 2).map(send).collect();
    assert!(deliveries.iter().all(|delivery| delivery.outcome().is_none()));
    create(&admin(backend), topic, 3, 1).await;
    deliveries.extend((records / 2..records).map(send));
    let (key, value) = (0u32.to_be_bytes(), records.to_be_bytes());
    let last = Record::to(topic).key(&key).value(&value);
    deliveries.push(producer.send(last).await.expect("sent"));
    producer.flush().await.expect("flushed");
    for delivery in deliveries {
        delivery.outcome().expect("an outcome after flush").expect("written");
    }
    let mut seen = 0;
    let mut by_key: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for record in read_all(backend, topic, 3).await.into_values().flatten() {
        let n = u32::from_be_bytes(record.value().expect("a value").try_into().expect("4 bytes"));
        let before = by_key.insert(record.key().expect("a key").to_vec(), n);
        assert!(before.is_none_or(|before| before < n), "{before:?} before {n}");
        seen += 1;
    }
    assert_eq!(seen, records + 1);
    producer.close().await.expect("closed");
}

/// A topic that was just created can be warmed up, and then accepts a record without a wait.
async fn a_new_topic_is_warmed_up(backend: &Backend, brokers: i16) {
    let admin = admin(backend);
    for round in 0..5 {
        let topic = format!("warm-{round}");
        create(&admin, &topic, 12, brokers).await;
        let producer = producer(backend, &[("linger.ms", "0")]);
        producer.warm_up(&[&topic]).await.expect("warm");
        for partition in 0..12 {
            let record = Record::to(&topic).partition(partition).value("v");
            producer.try_send(record).expect("taken").await.expect("written");
        }
        producer.close().await.expect("closed");
    }
}

#[test]
fn order_and_warm_up_embedded() {
    run(async {
        let backend = Backend::embedded_with(3, |config| config.auto_create_topics = false).await;
        order_is_kept(&backend).await;
        a_new_topic_is_warmed_up(&backend, 3).await;
    });
}

#[test]
fn order_and_warm_up_apache() {
    let Some(backend) = Backend::shared_apache("order_and_warm_up") else { return };
    run(async {
        order_is_kept(backend).await;
        a_new_topic_is_warmed_up(backend, 1).await;
    });
}

#[test]
fn records_for_a_topic_that_never_appears_fail() {
    run(async {
        let backend = Backend::embedded_with(1, |config| config.auto_create_topics = false).await;
        let producer = producer(&backend, &[("max.block.ms", "300")]);
        // On a busy machine the first response with metadata may take longer than `max.block.ms`.
        let with_metadata = async {
            loop {
                let began = Instant::now();
                let record = Record::to("typo").value("v");
                let delivery = producer.try_send(record).expect("taken");
                let error = delivery.await.expect_err("no such topic");
                let Error::NotAcknowledged { may_have_been_written: false, cause, .. } = error
                else {
                    panic!("{error}");
                };
                if !matches!(*cause, Error::Timeout { .. } | Error::Unreachable { .. }) {
                    break (cause, began.elapsed());
                }
            }
        };
        let limit = Duration::from_secs(60);
        let found = timeout(limit, with_metadata).await;
        let (cause, waited) = found.expect("a response with metadata");
        assert!(matches!(&*cause, Error::UnknownTopic(topic) if &**topic == "typo"), "{cause}");
        assert!(waited >= Duration::from_millis(300));
        // A record that is certain to be refused fails without a wait.
        let error = producer
            .try_send(Record::to("not a topic's name").value("v"))
            .expect("taken")
            .await
            .expect_err("an invalid name");
        let Error::NotAcknowledged { cause, .. } = error else { panic!("{error}") };
        let invalid = ErrorCode::INVALID_TOPIC_EXCEPTION;
        assert!(matches!(&*cause, Error::Broker { code, .. } if *code == invalid), "{cause}");
        producer.close().await.expect("closed");
    });
}

#[test]
fn waiting_records_are_bounded_and_end_with_the_producer() {
    run(async {
        let backend = Backend::embedded_with(1, |config| config.auto_create_topics = false).await;
        let producer = producer(&backend, &[("buffer.memory", "100000")]);
        let value = [0; 1000];
        let mut waiting = Vec::new();
        let refused = loop {
            match producer.try_send(Record::to("typo").value(&value)) {
                Ok(delivery) => waiting.push(delivery),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::BufferFull { .. }), "{refused}");
        assert!((40..=50).contains(&waiting.len()), "half of the memory: {}", waiting.len());
        assert!(producer.available_memory() >= 50_000);
        drop(producer);
        for delivery in waiting {
            let error = delivery.await.expect_err("closed");
            let Error::NotAcknowledged { may_have_been_written: false, cause, .. } = error else {
                panic!("{error}");
            };
            assert!(matches!(*cause, Error::Closed), "{cause}");
        }
    });
}

/// On a runtime of one thread, as it must not occupy it: the records before it are appended by a task.
#[test]
fn send_yields_while_earlier_records_of_its_topic_wait_for_memory() {
    const PRODUCE: i16 = 0;
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let running = std::thread::spawn(move || {
        let brokers = tokio::runtime::Runtime::new().expect("a runtime");
        let backend = brokers.block_on(Backend::embedded(1));
        for topic in ["full", "later"] {
            brokers.block_on(backend.create_topic(topic, 1, 1));
        }
        let mut own = tokio::runtime::Builder::new_current_thread();
        own.enable_all().build().expect("a runtime").block_on(behind_waiting_records(&backend));
        drop(done);
    });
    let hangs = ended.recv_timeout(Duration::from_secs(60));
    assert_ne!(hangs, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "send occupies its thread");
    running.join().expect("no panic");

    async fn behind_waiting_records(backend: &Backend) {
        let Backend::Embedded(cluster) = backend else { return };
        // Batches of one record that do not grow, so that the memory left does not depend on when they leave.
        let memory = [
            ("buffer.memory", "16384"),
            ("batch.size", "1024"),
            ("batch.max.size", "1024"),
            ("max.block.ms", "300"),
        ];
        let producer = producer(backend, &memory);
        producer.warm_up(&["full"]).await.expect("warm");
        cluster.delay(Some(1), Some(PRODUCE), Duration::from_secs(3600));
        // Each needs a batch, and holds less until then: not all of them get one.
        let value = [0; 600];
        let waiting: Vec<Delivery> = (0..4)
            .map(|_| producer.try_send(Record::to("later").value(&value)).expect("taken"))
            .collect();
        while producer.try_send(Record::to("full").value(&value)).is_ok() {}
        let late = producer.send(Record::to("later").value(&value)).await;
        let late = late.expect_err("no memory within max.block.ms");
        assert!(matches!(late, Error::BufferFull { .. } | Error::Timeout { .. }), "{late}");
        drop(producer);
        for delivery in waiting {
            delivery.await.expect_err("no response");
        }
    }
}

#[test]
fn delivery_reports_a_missing_partition() {
    run(async {
        let backend = Backend::embedded_with(1, |config| config.auto_create_topics = false).await;
        let producer = producer(&backend, &[]);
        let delivery =
            producer.try_send(Record::to("later").partition(9).value("v")).expect("taken");
        create(&admin(&backend), "later", 2, 1).await;
        let error = delivery.await.expect_err("partition 9 does not exist");
        let Error::NotAcknowledged { cause, partition: 9, .. } = error else { panic!("{error}") };
        assert!(matches!(&*cause, Error::UnknownPartition { partitions: 2, .. }), "{cause}");
        producer.close().await.expect("closed");
    });
}

#[test]
fn connect_is_bounded_by_max_block() {
    // The port listens, but no process accepts.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    run(async move {
        let mut config = curtail::ProducerConfig::new(address);
        config.set("max.block.ms", "200").expect("a known property");
        let producer = curtail::Producer::new(config).expect("a usable configuration");
        let began = Instant::now();
        let error = producer.connect().await.expect_err("no broker responds");
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(5));
    });
}
