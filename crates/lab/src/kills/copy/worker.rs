//! One copying process: consume, produce and commit in transactions, until it is killed.

use std::{collections::BTreeMap, time::Duration};

use curtail::{
    Consumer, ConsumerConfig, Error, ProducerConfig, Record, Result, TopicPartition,
    TransactionalProducer,
    config::{IsolationLevel, OffsetReset},
    consumer::Records,
    transaction::{OffsetAndMetadata, Transaction},
};

use super::{GROUP, INPUT, OUTPUT};

/// A copying process.
#[derive(Clone, Debug)]
pub struct Worker {
    /// `bootstrap.servers`.
    pub bootstrap: String,
    /// Its number; the process that takes the number over fences the previous one.
    pub number: u32,
}

/// Copies until the process is killed. Returns only on an error that needs a new process.
///
/// # Errors
/// Any error that is neither abortable nor a timeout.
pub async fn work(worker: &Worker) -> Result<()> {
    let config = ConsumerConfig::new(&worker.bootstrap)
        .group_id(GROUP)
        .enable_auto_commit(false)
        .isolation_level(IsolationLevel::ReadCommitted)
        .auto_offset_reset(OffsetReset::Earliest)
        .session_timeout(Duration::from_secs(6))
        .heartbeat_interval(Duration::from_secs(1));
    let mut consumer = Consumer::new(config)?;
    consumer.subscribe([INPUT])?;
    let id = format!("{GROUP}-{}", worker.number);
    let mut producer =
        TransactionalProducer::new(ProducerConfig::new(&worker.bootstrap).transactional_id(id))?;
    producer.init_transactions().await?;
    loop {
        let records = consumer.poll(Duration::from_millis(200)).await?;
        if records.is_empty() {
            continue;
        }
        match copy(&consumer, &mut producer, records).await {
            Ok(()) => {}
            Err(error) if error.is_abortable() => {
                producer.abort_transaction().await?;
                go_back(&mut consumer).await?;
            }
            // The outcome of the commit is open: the same call leads to it.
            Err(Error::Timeout { .. }) => producer.commit_transaction().await?,
            Err(error) => return Err(error),
        }
    }
}

async fn copy(
    consumer: &Consumer,
    producer: &mut TransactionalProducer,
    records: Records,
) -> Result<()> {
    let Some(group) = consumer.group_metadata() else {
        return Err(Error::IllegalState("the consumer has no group"));
    };
    let transaction = producer.begin_transaction().await?;
    let next = send(&transaction, records).await?;
    transaction.send_offsets_to_transaction(next, &group).await?;
    transaction.commit().await
}

async fn send(
    transaction: &Transaction<'_>,
    records: Records,
) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>> {
    let mut next = BTreeMap::new();
    for record in records {
        let partition = TopicPartition::new(INPUT, record.partition());
        next.insert(partition, OffsetAndMetadata::new(record.offset() + 1));
        let value = record.value().unwrap_or_default();
        let copy = Record::to(OUTPUT).partition(record.partition()).value(value);
        // A record that fails also fails the commit.
        drop(transaction.send(copy).await?);
    }
    Ok(next)
}

/// Returns to what is committed, after an abort.
async fn go_back(consumer: &mut Consumer) -> Result<()> {
    let partitions: Vec<TopicPartition> = consumer.assignment().into_iter().collect();
    for (partition, committed) in consumer.committed(&partitions).await? {
        let offset = committed.map_or(0, |committed| committed.offset);
        consumer.seek(&partition, offset)?;
    }
    Ok(())
}
