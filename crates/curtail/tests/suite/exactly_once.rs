//! Consume, transform, produce in transactions, on the embedded cluster and on Apache Kafka.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use crate::common::{self, Backend};
use curtail::{
    Consumer, ConsumerConfig, Error, ProducerConfig, Record, TopicPartition, TransactionalProducer,
    config::{IsolationLevel, OffsetReset},
    transaction::{Batch, ExactlyOnce},
};
use tokio::{sync::Notify, task::JoinSet, time::timeout};

const LIMIT: Duration = Duration::from_secs(60);
const INPUT: &str = "input";
const OUTPUT: &str = "output";
const PARTITIONS: i32 = 4;

fn consumer(backend: &Backend) -> ConsumerConfig {
    ConsumerConfig::new(backend.bootstrap())
        .group_id("copies")
        .auto_offset_reset(OffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted)
        .enable_auto_commit(false)
        .max_poll_records(7)
}

fn copier(backend: &Backend, id: &str) -> ExactlyOnce {
    let mut consumer = Consumer::new(consumer(backend)).unwrap();
    consumer.subscribe([INPUT]).unwrap();
    let config = ProducerConfig::new(backend.bootstrap()).transactional_id(id);
    ExactlyOnce::new(consumer, TransactionalProducer::new(config).unwrap()).unwrap()
}

async fn copy(batch: &Batch) -> Result<(), Error> {
    for record in batch.records() {
        drop(batch.send(Record::to(OUTPUT).value(record.value().unwrap())).await?);
    }
    Ok(())
}

async fn fill(backend: &Backend, replicas: i16, records: u32) {
    for topic in [INPUT, OUTPUT] {
        backend.create_topic(topic, PARTITIONS, replicas).await;
    }
    let producer = common::producer(backend, &[]);
    let mut sent = Vec::new();
    for number in 0..records {
        let number = number.to_string();
        sent.push(producer.send(Record::to(INPUT).key(&number).value(&number)).await.unwrap());
    }
    for delivery in sent {
        delivery.await.unwrap();
    }
}

/// Reads committed copies until there are `count`, and the end of the log is reached.
async fn copies(backend: &Backend, count: usize) -> BTreeMap<u32, usize> {
    let config = consumer(backend).group_id("audit");
    let mut audit = Consumer::new(config).unwrap();
    audit.subscribe([OUTPUT]).unwrap();
    let mut copies = BTreeMap::new();
    let reading = async {
        while copies.values().sum::<usize>() < count {
            for record in audit.poll(Duration::from_secs(1)).await.unwrap() {
                let number = std::str::from_utf8(record.value().unwrap()).unwrap().parse().unwrap();
                *copies.entry(number).or_default() += 1;
            }
        }
    };
    timeout(LIMIT, reading).await.expect("all copies in time");
    // A duplicate would follow.
    let all: Vec<_> = audit.assignment().into_iter().collect();
    for (at, end) in audit.end_offsets(&all).await.unwrap() {
        while audit.position(&at).await.unwrap() < end {
            let more = audit.poll(Duration::from_millis(100)).await.unwrap();
            assert!(more.is_empty(), "more copies: {more:?}");
        }
    }
    audit.close().await;
    copies
}

fn assert_once(copies: &BTreeMap<u32, usize>, count: u32) {
    assert_eq!(*copies, (0..count).map(|number| (number, 1)).collect::<BTreeMap<_, _>>());
}

/// Two members copy while one comes and one goes. Some transactions fail after they have sent records.
async fn each_record_is_copied_once(backend: &Backend) {
    const RECORDS: u32 = 400;
    fill(backend, 1, RECORDS).await;
    let stop = Arc::new(Notify::new());
    let mut members = JoinSet::new();
    let calls = Arc::new(AtomicU32::new(0));
    for id in ["copier-1", "copier-2"] {
        let (stop, calls) = (stop.clone(), calls.clone());
        let mut copier = copier(backend, id);
        members.spawn(async move {
            let mut failures = 0;
            let stopped = async || stop.notified().await;
            loop {
                let run = copier.run(stopped(), |batch| {
                    let calls = calls.clone();
                    async move {
                        copy(&batch).await?;
                        match calls.fetch_add(1, Ordering::SeqCst) % 5 {
                            3 => Err(Error::IllegalState("the application fails")),
                            _ => Ok(()),
                        }
                    }
                });
                match run.await {
                    Ok(()) => break,
                    Err(error) => assert_eq!(error.to_string(), "the application fails"),
                }
                failures += 1;
            }
            copier.close().await.unwrap();
            failures
        });
    }
    assert_once(&copies(backend, RECORDS as usize).await, RECORDS);
    // A permit for a member that is between two runs.
    let mut failures = 0;
    while !members.is_empty() {
        stop.notify_one();
        if let Ok(Some(ended)) = timeout(Duration::from_millis(100), members.join_next()).await {
            failures += ended.unwrap();
        }
    }
    assert!(failures > 0, "no transaction failed");
}

#[tokio::test]
async fn each_record_is_copied_once_embedded() {
    each_record_is_copied_once(&Backend::embedded(1).await).await;
}

#[tokio::test]
async fn each_record_is_copied_once_apache() {
    let Some(backend) = Backend::shared_apache("each_record_is_copied_once_apache") else { return };
    each_record_is_copied_once(backend).await;
}

/// A broker dies and returns while records are copied.
#[tokio::test]
async fn copies_are_complete_after_brokers_have_died() {
    const RECORDS: u32 = 600;
    let backend = Backend::embedded_with(3, |config| config.min_insync_replicas = 2).await;
    fill(&backend, 3, RECORDS).await;
    let done = Arc::new(Notify::new());
    let mut copier = copier(&backend, "copier");
    let (calls, stop) = (AtomicU32::new(0), done.clone());
    let (calls, backend) = (&calls, &backend);
    let copying = copier.run(async move { stop.notified().await }, |batch| async move {
        match calls.fetch_add(1, Ordering::SeqCst) {
            5 => backend.kill(1),
            25 => backend.restart(1).await,
            30 => backend.kill(2),
            _ => {}
        }
        copy(&batch).await
    });
    let checking = async {
        let copies = copies(backend, RECORDS as usize).await;
        done.notify_one();
        copies
    };
    let (copied, copies) = tokio::join!(copying, checking);
    copied.unwrap();
    assert_once(&copies, RECORDS);
    copier.close().await.unwrap();
}

#[tokio::test]
async fn a_batch_that_outlives_its_transaction_sends_nothing() {
    let backend = Backend::embedded(1).await;
    fill(&backend, 1, 1).await;
    let (kept, stop) = (Arc::new(Mutex::new(None)), Arc::new(Notify::new()));
    let mut copier = copier(&backend, "copier");
    let stopped = async { stop.notified().await };
    let run = copier.run(stopped, |batch| {
        *kept.lock().unwrap() = Some(batch);
        stop.notify_one();
        async { Ok::<(), Error>(()) }
    });
    timeout(LIMIT, run).await.expect("ends in time").unwrap();
    let batch = kept.lock().unwrap().take().unwrap();
    let refused = copy(&batch).await.unwrap_err();
    assert!(matches!(refused, Error::IllegalState(_)), "{refused}");
    drop(batch);
    copier.close().await.unwrap();
    let all: Vec<_> = (0..PARTITIONS).map(|index| TopicPartition::new(OUTPUT, index)).collect();
    let ends = Consumer::new(consumer(&backend)).unwrap().end_offsets(&all).await.unwrap();
    assert!(ends.values().all(|end| *end == 0), "{ends:?}");
}

/// A send waits for metadata when the function that received the batch returns.
#[tokio::test]
async fn a_send_that_outlives_its_transaction_fails() {
    const LATE: &str = "late";
    let backend = Backend::embedded_with(1, |config| {
        config.set("auto.create.topics.enable", "false").unwrap();
    })
    .await;
    fill(&backend, 1, 2).await;
    let mut copier = copier(&backend, "copier");
    let stop = Notify::new();
    let begun = AtomicU32::new(0);
    let sending = Mutex::new(None);
    let run = copier.run(async { stop.notified().await }, |batch| {
        let (backend, stop, begun, sending) = (&backend, &stop, &begun, &sending);
        async move {
            if begun.fetch_add(1, Ordering::SeqCst) == 0 {
                let mut send =
                    Box::pin(
                        async move { batch.send(Record::to(LATE).value("late")).await.map(drop) },
                    );
                let polled = poll_fn(|cx| Poll::Ready(send.as_mut().poll(cx))).await;
                assert!(polled.is_pending(), "{polled:?}");
                *sending.lock().unwrap() = Some(tokio::spawn(send));
                // Another transaction follows.
                common::producer(backend, &[]).send(Record::to(INPUT).value("2")).await?.await?;
                return Ok(());
            }
            backend.create_topic(LATE, 1, 1).await;
            let sent = sending.lock().unwrap().take().expect("only two transactions");
            let refused = timeout(LIMIT, sent).await.expect("ends in time").unwrap().unwrap_err();
            assert!(matches!(refused, Error::IllegalState(_)), "{refused}");
            stop.notify_one();
            Ok::<(), Error>(())
        }
    });
    timeout(LIMIT, run).await.expect("ends in time").unwrap();
    copier.close().await.unwrap();
}

#[tokio::test]
async fn settings_that_would_repeat_or_lose_records_are_refused() {
    let backend = Backend::embedded(1).await;
    let right = consumer(&backend);
    let without_group = {
        let mut config = right.clone();
        config.unset("group.id").unwrap();
        config
    };
    for (config, setting) in [
        (without_group, "group.id"),
        (right.clone().enable_auto_commit(true), "enable.auto.commit"),
        (right.clone().isolation_level(IsolationLevel::ReadUncommitted), "isolation.level"),
    ] {
        let producer = ProducerConfig::new(backend.bootstrap()).transactional_id("t");
        let producer = TransactionalProducer::new(producer).unwrap();
        let refused = ExactlyOnce::new(Consumer::new(config).unwrap(), producer).unwrap_err();
        assert!(refused.to_string().contains(setting), "{refused}");
    }
}
