//! A member of a consumer group. Commits after the work is done, and leaves the group in order.
#![allow(clippy::print_stdout)]

use std::{error::Error, time::Duration};

use curtail::{
    Consumer, ConsumerConfig, Producer, ProducerConfig, Record, TopicPartition,
    config::{Assignor, OffsetReset},
    consumer::{Rebalance, RebalanceListener},
};
use curtail_examples::Brokers;

const RECORDS: usize = 100;

/// Prints which partitions come and go.
struct Log;

impl RebalanceListener for Log {
    fn on_partitions_assigned(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        println!("assigned {} partitions", partitions.len());
    }

    fn on_partitions_revoked(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        println!("revoked {} partitions", partitions.len());
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::of_this_program().await?;
    fill(brokers.bootstrap()).await?;

    let config = ConsumerConfig::new(brokers.bootstrap())
        .group_id("billing")
        .auto_offset_reset(OffsetReset::Earliest)
        .partition_assignment_strategy([Assignor::CooperativeSticky])
        .enable_auto_commit(false);
    let mut consumer = Consumer::new(config)?;
    consumer.set_rebalance_listener(Log);
    consumer.subscribe(["payments"])?;

    let mut done = 0;
    while done < RECORDS {
        // A dropped poll loses no record.
        let records = tokio::select! {
            records = consumer.poll(Duration::from_secs(1)) => records?,
            _ = tokio::signal::ctrl_c() => break,
        };
        done += records.into_iter().count();
        consumer.commit().await?;
    }
    println!("{done} records done and committed");
    // Revokes the partitions and leaves the group, so that others take over at once.
    consumer.close().await;
    Ok(())
}

async fn fill(bootstrap: &str) -> curtail::Result<()> {
    let producer = Producer::new(ProducerConfig::new(bootstrap))?;
    for number in 0..RECORDS {
        let value = number.to_string();
        producer.send(Record::to("payments").key(&value).value(&value)).await?.await?;
    }
    producer.close().await
}
