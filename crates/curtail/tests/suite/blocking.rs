//! The clients for plain threads.

use std::{thread, time::Duration};

use crate::common::{self, Backend};
use curtail::{
    AdminConfig, ConsumerConfig, Error, ProducerConfig, Record, TopicPartition,
    admin::NewTopic,
    blocking::{Admin, Consumer, Producer, TransactionalProducer},
    config::IsolationLevel,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};
use tokio::runtime::Runtime;

/// A cluster of one broker, and its runtime.
fn cluster(topic: &str, partitions: i32) -> (Runtime, Backend) {
    let runtime = Runtime::new().expect("a runtime");
    let backend = runtime.block_on(async {
        let backend = Backend::embedded(1).await;
        backend.create_topic(topic, partitions, 1).await;
        backend
    });
    (runtime, backend)
}

#[test]
fn threads_send_and_read_without_a_runtime() {
    const RECORDS: i64 = 200;
    let (_runtime, backend) = cluster("blocking", 4);
    let producer = Producer::new(ProducerConfig::new(backend.bootstrap())).expect("usable");
    thread::scope(|scope| {
        for partition in 0..4 {
            let producer = producer.clone();
            scope.spawn(move || {
                let mut deliveries = Vec::new();
                for n in 0..RECORDS {
                    let value = n.to_string();
                    let record = Record::to("blocking").partition(partition).value(&value);
                    deliveries.push(producer.send(record).expect("sent"));
                }
                for (n, delivery) in deliveries.into_iter().enumerate() {
                    assert_eq!(delivery.wait().expect("written").offset, Some(n as i64));
                }
            });
        }
    });
    assert_eq!(producer.metrics().all_brokers().record_send_total, 4 * RECORDS as u64);
    producer.close().expect("closed");

    let mut consumer = Consumer::new(ConsumerConfig::new(backend.bootstrap())).expect("usable");
    let all: Vec<TopicPartition> =
        (0..4).map(|partition| TopicPartition::new("blocking", partition)).collect();
    consumer.assign(all.iter().cloned());
    consumer.seek_to_beginning(&all).expect("assigned");
    assert!(consumer.end_offsets(&all).expect("ends").values().all(|end| *end == RECORDS));
    let mut next = [0; 4];
    let first: Vec<_> = consumer.iter().take(10).map(|record| record.expect("read")).collect();
    let polled = std::iter::from_fn(|| {
        let records = consumer.poll(Duration::from_secs(10)).expect("polled").into_vec();
        (!records.is_empty()).then_some(records)
    });
    for record in first.into_iter().chain(polled.flatten()).take(4 * RECORDS as usize) {
        let next = &mut next[record.partition() as usize];
        assert_eq!(record.value(), Some(next.to_string().as_bytes()));
        *next += 1;
    }
    assert_eq!(next, [RECORDS; 4]);
    assert_eq!(consumer.metrics().records_consumed_total, 4 * RECORDS as u64);
    consumer.close().expect("closed");
}

#[test]
fn send_without_memory_blocks_until_memory_is_free() {
    let (_runtime, backend) = cluster("blocking", 1);
    let config = ProducerConfig::new(backend.bootstrap()).batch_size(1000).buffer_memory(2000);
    let producer = Producer::new(config).expect("usable");
    let value = [0; 600];
    for _ in 0..50 {
        drop(producer.send(Record::to("blocking").value(&value)).expect("sent in the end"));
    }
    producer.flush().expect("flushed");
    let metrics = producer.metrics();
    assert!(metrics.buffer_wait.count() > 0 && metrics.buffer_exhausted_total == 0, "{metrics:?}");
    assert_eq!(metrics.all_brokers().record_send_total, 50);
}

#[test]
fn timed_out_wait_can_be_repeated() {
    let (_runtime, backend) = cluster("blocking", 1);
    let config = ProducerConfig::new(backend.bootstrap()).linger(Duration::from_secs(20));
    let producer = Producer::new(config).expect("usable");
    let mut delivery = producer.send(Record::to("blocking").value("x")).expect("sent");
    assert_eq!(delivery.wait_timeout(Duration::from_millis(1)).expect("no failure"), None);
    producer.flush().expect("flushed");
    assert_eq!(delivery.wait().expect("written").offset, Some(0));
}

#[test]
fn threads_share_a_transaction_and_readers_see_what_was_committed() {
    let (runtime, backend) = cluster("blocking", 4);
    let config = ProducerConfig::new(backend.bootstrap()).transactional_id("blocking");
    let mut producer = TransactionalProducer::new(config).expect("usable");
    let early = producer.begin_transaction().expect_err("the id is not initialized yet");
    assert!(matches!(early, Error::IllegalState(_)), "{early}");
    producer.init_transactions().expect("initialized");
    let group = ConsumerGroupMetadata::new("readers");
    for (n, value) in ["first", "aborted", "last"].into_iter().enumerate() {
        let transaction = producer.begin_transaction().expect("begun");
        let written = |record| transaction.send(record).expect("sent").wait().expect("written");
        thread::scope(|scope| {
            for partition in 0..4 {
                let record = Record::to("blocking").partition(partition).value(value);
                scope.spawn(move || written(record));
            }
        });
        let next = (TopicPartition::new("blocking", 0), OffsetAndMetadata::new(n as i64));
        transaction.send_offsets_to_transaction([next], &group).expect("added");
        match value {
            "aborted" => transaction.abort().expect("aborted"),
            _ => transaction.commit().expect("committed"),
        }
    }
    // Closing the producer aborts a transaction that is still open.
    let open = producer.begin_transaction().expect("begun");
    drop(open.try_send(Record::to("blocking").partition(0).value("open")).expect("sent"));
    open.flush().expect("flushed");
    drop(open);
    producer.close().expect("closed");

    let config = ConsumerConfig::new(backend.bootstrap());
    let config = config.isolation_level(IsolationLevel::ReadCommitted);
    let mut consumer = Consumer::new(config).expect("usable");
    let all: Vec<TopicPartition> =
        (0..4).map(|partition| TopicPartition::new("blocking", partition)).collect();
    consumer.assign(all.iter().cloned());
    consumer.seek_to_beginning(&all).expect("assigned");
    let mut seen: Vec<(i32, String)> = consumer
        .iter()
        .take(8)
        .map(|record| {
            let record = record.expect("read");
            let value = record.value().expect("a value").to_vec();
            (record.partition(), String::from_utf8(value).expect("text"))
        })
        .collect();
    // Within a partition the order is the log's.
    seen.sort_by_key(|(partition, _)| *partition);
    let expected = (0..4).flat_map(|p| ["first", "last"].map(|value| (p, value.to_owned())));
    assert_eq!(seen, expected.collect::<Vec<_>>());
    consumer.close().expect("closed");
    let committed = async {
        loop {
            let seen = common::raw::committed_offsets(&backend, "readers", "blocking", 1).await;
            // The markers that commit them follow the response to the commit.
            if seen == Some(vec![(0, 2)]) {
                return;
            }
        }
    };
    let limit = Duration::from_secs(30);
    runtime.block_on(async { tokio::time::timeout(limit, committed).await }).expect("committed");
}

#[test]
fn an_async_context_is_refused_with_a_clear_error() {
    let (runtime, backend) = cluster("blocking", 1);
    let refused = |error: Error| {
        assert!(matches!(error, Error::IllegalState(_)), "{error}");
        assert!(error.to_string().contains("async context"), "{error}");
    };
    let producer = Producer::new(ProducerConfig::new(backend.bootstrap())).expect("usable");
    let mut consumer = Consumer::new(ConsumerConfig::new(backend.bootstrap())).expect("usable");
    let delivery = producer.send(Record::to("blocking").value("x")).expect("sent");
    runtime.block_on(async {
        refused(Producer::new(ProducerConfig::new("localhost:9092")).expect_err("refused"));
        refused(Consumer::new(ConsumerConfig::new("localhost:9092")).expect_err("refused"));
        let transactional = ProducerConfig::new("localhost:9092").transactional_id("x");
        refused(TransactionalProducer::new(transactional).expect_err("refused"));
        refused(producer.send(Record::to("blocking").value("x")).expect_err("refused"));
        refused(producer.flush().expect_err("refused"));
        refused(consumer.poll(Duration::ZERO).expect_err("refused"));
        // Calls that do not wait still work, and dropping a client is no blocking call.
        drop(producer.try_send(Record::to("blocking").value("x")).expect("sent"));
        drop(producer.clone());
    });
    delivery.wait().expect("written");
    producer.run(async |producer| producer.flush().await).expect("not refused").expect("flushed");
    producer.close().expect("closed");
    runtime.block_on(async { drop(consumer) });
}

#[test]
fn threads_administer_without_a_runtime() {
    let (runtime, backend) = cluster("blocking", 1);
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).expect("usable");
    let topic = NewTopic::new("made").partitions(3).replication_factor(1);
    for (_, made) in admin.create_topics(&[topic]).expect("answered") {
        made.expect("created");
    }
    // The broker learns of it a moment after the controller has created it.
    let ask = |_| match admin.describe_topics(&["made"]).expect("answered").remove(0).1 {
        Err(Error::UnknownTopic(_)) => None,
        described => Some(described.expect("described")),
    };
    let described = (0..100_000).find_map(ask).expect("the broker knows it");
    assert_eq!(described.partitions.len(), 3);
    let both = admin.run(async |admin| tokio::join!(admin.list_topics(), admin.describe_cluster()));
    let (topics, cluster) = both.expect("outside a runtime");
    assert_eq!((topics.expect("listed").len(), cluster.expect("described").brokers.len()), (2, 1));
    let refused = runtime.block_on(async { admin.list_topics().map(drop) });
    assert!(matches!(refused, Err(Error::IllegalState(_))), "{refused:?}");
}

/// `blocking::Admin` has every request of `Admin`.
#[test]
fn the_blocking_admin_is_complete() -> std::io::Result<()> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let blocking = std::fs::read_to_string(format!("{source}/blocking/admin.rs"))?;
    let mut requests = 0;
    for file in std::fs::read_dir(format!("{source}/admin"))? {
        let text = std::fs::read_to_string(file?.path())?;
        let methods =
            text.split("    pub fn ").skip(1).filter_map(|method| method.split_once(" {"));
        for (signature, _) in methods.filter(|(signature, _)| signature.contains("-> Call<")) {
            let name = signature.split(['(', '<']).next().unwrap_or_default();
            assert!(blocking.contains(&format!("pub fn {name}(")), "{name}");
            requests += 1;
        }
    }
    assert!(requests > 30, "{requests}");
    Ok(())
}
