//! Processes records concurrently, and those of one key in order. Calls a slow service for each record.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use curtail::{
    Consumer, ConsumerConfig, ConsumerRecord, Producer, ProducerConfig, Record,
    config::OffsetReset, consumer::InKeyOrder,
};
use curtail_examples::Brokers;
use tokio::sync::Notify;

const RECORDS: usize = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::of_this_program().await?;
    fill(brokers.bootstrap()).await?;

    let config = ConsumerConfig::new(brokers.bootstrap())
        .group_id("scoring")
        .auto_offset_reset(OffsetReset::Earliest);
    let mut consumer = Consumer::new(config)?;
    consumer.subscribe(["transfers"])?;

    let (scored, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let stop = {
        let all = all.clone();
        async move { all.notified().await }
    };
    let begun = Instant::now();
    // Up to 64 calls at a time. Auto-commit commits only what is processed.
    InKeyOrder::new(64)
        .run(consumer, stop, move |record| {
            let (scored, all) = (scored.clone(), all.clone());
            async move {
                score(&record).await?;
                if scored.fetch_add(1, Ordering::Relaxed) + 1 == RECORDS {
                    all.notify_one();
                }
                Ok::<(), curtail::Error>(())
            }
        })
        .await?;
    println!("{RECORDS} transfers scored in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// A remote call that takes 10 ms.
async fn score(_: &ConsumerRecord) -> curtail::Result<()> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    Ok(())
}

async fn fill(bootstrap: &str) -> curtail::Result<()> {
    let producer = Producer::new(ProducerConfig::new(bootstrap))?;
    for number in 0..RECORDS {
        let (account, value) = (format!("account-{}", number % 100), number.to_string());
        drop(producer.send(Record::to("transfers").key(&account).value(&value)).await?);
    }
    producer.close().await
}
