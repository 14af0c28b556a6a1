//! A group's member that processes its partitions in parallel, one task for each.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Producer, ProducerConfig, Record,
    admin::NewTopic, config::OffsetReset, consumer::PartitionQueue,
};
use curtail_examples::Brokers;
use tokio::sync::Notify;

const RECORDS: usize = 1_000;

/// Counts processed records.
#[derive(Default)]
struct Progress {
    processed: AtomicUsize,
    all: Notify,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::of_this_program().await?;
    fill(brokers.bootstrap()).await?;

    let config = ConsumerConfig::new(brokers.bootstrap())
        .group_id("metering")
        .auto_offset_reset(OffsetReset::Earliest);
    let mut consumer = Consumer::new(config)?;
    consumer.subscribe(["readings"])?;

    let progress = Arc::new(Progress::default());
    let mut queues = consumer.into_queues();
    loop {
        tokio::select! {
            // Also serves the group, so it must be called all the time.
            queue = queues.next() => {
                tokio::spawn(process(queue?, progress.clone()));
            }
            () = progress.all.notified() => break,
        }
    }
    // Waits for the tasks, commits what they have processed, and leaves the group.
    queues.close().await;
    println!("{} of {RECORDS} records processed", progress.processed.load(Ordering::Relaxed));
    Ok(())
}

/// Ends when the partition is revoked. A new call of `next` says that the records before are processed.
async fn process(mut queue: PartitionQueue, progress: Arc<Progress>) -> curtail::Result<()> {
    println!("task for partition {}", queue.partition().partition);
    while let Some(records) = queue.next().await {
        let records = records?.len();
        if progress.processed.fetch_add(records, Ordering::Relaxed) + records == RECORDS {
            progress.all.notify_one();
        }
    }
    Ok(())
}

async fn fill(bootstrap: &str) -> curtail::Result<()> {
    let admin = Admin::new(AdminConfig::new(bootstrap))?;
    let topic = NewTopic::new("readings").partitions(4);
    // An error if the topic exists.
    drop(admin.create_topics(&[topic]).await?);
    let producer = Producer::new(ProducerConfig::new(bootstrap))?;
    for number in 0..RECORDS {
        let (meter, value) = (format!("meter-{}", number % 50), number.to_string());
        drop(producer.send(Record::to("readings").key(&meter).value(&value)).await?);
    }
    producer.close().await
}
