//! Consumes orders and produces invoices. Invoices and the offsets of their orders are committed in one transaction.
#![allow(clippy::print_stdout)]

use std::{error::Error, time::Duration};

use curtail::{
    Consumer, ConsumerConfig, Producer, ProducerConfig, Record, TransactionalProducer,
    config::{IsolationLevel, OffsetReset},
};
use curtail_examples::Brokers;

const ORDERS: usize = 100;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::of_this_program().await?;
    fill(brokers.bootstrap()).await?;
    bill(brokers.bootstrap()).await?;

    let config = ConsumerConfig::new(brokers.bootstrap())
        .group_id("audit")
        .auto_offset_reset(OffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted);
    let mut invoices = Consumer::new(config)?;
    invoices.subscribe(["invoices"])?;
    let mut read = 0;
    while read < ORDERS {
        read += invoices.poll(Duration::from_secs(1)).await?.into_iter().count();
    }
    println!("{read} invoices for {ORDERS} orders");
    invoices.close().await;
    Ok(())
}

async fn bill(bootstrap: &str) -> Result<(), Box<dyn Error>> {
    let config = ConsumerConfig::new(bootstrap)
        .group_id("billing")
        .auto_offset_reset(OffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted)
        .enable_auto_commit(false);
    let mut orders = Consumer::new(config)?;
    orders.subscribe(["orders"])?;
    let config = ProducerConfig::new(bootstrap).transactional_id("billing-1");
    let mut producer = TransactionalProducer::new(config)?;
    producer.init_transactions().await?;

    let mut billed = 0;
    while billed < ORDERS {
        let records = orders.poll(Duration::from_secs(1)).await?;
        let next = records.next_offsets();
        // The group refuses the offsets of a member that has lost its partitions.
        let Some(member) = orders.group_metadata().filter(|_| !next.is_empty()) else { continue };
        let transaction = producer.begin_transaction().await?;
        let mut count = 0;
        for order in records {
            let invoice = [b"invoice for ", order.value().unwrap_or_default()].concat();
            // A record that fails also fails the commit.
            drop(transaction.send(Record::to("invoices").value(&invoice)).await?);
            count += 1;
        }
        transaction.send_offsets_to_transaction(next, &member).await?;
        transaction.commit().await?;
        billed += count;
    }
    orders.close().await;
    producer.close().await?;
    Ok(())
}

async fn fill(bootstrap: &str) -> curtail::Result<()> {
    let producer = Producer::new(ProducerConfig::new(bootstrap))?;
    for number in 0..ORDERS {
        producer.send(Record::to("orders").value(&number.to_string())).await?.await?;
    }
    producer.close().await
}
