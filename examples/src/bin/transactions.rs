//! Two records of different topics become visible together, or not at all.
#![allow(clippy::print_stdout)]

use std::{error::Error, time::Duration};

use curtail::{
    Consumer, ConsumerConfig, ProducerConfig, Record, TransactionalProducer,
    config::{IsolationLevel, OffsetReset},
};
use curtail_examples::Brokers;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::of_this_program().await?;
    let config = ProducerConfig::new(brokers.bootstrap()).transactional_id("transfers-1");
    let mut producer = TransactionalProducer::new(config)?;
    // Fences an earlier producer with this id, and ends the transaction that it left open.
    producer.init_transactions().await?;

    for (amount, is_covered) in [("10.00", true), ("99.00", false), ("20.00", true)] {
        let transaction = producer.begin_transaction().await?;
        // A record that cannot be written fails the commit.
        drop(transaction.send(Record::to("debits").key("alice").value(amount)).await?);
        drop(transaction.send(Record::to("credits").key("bob").value(amount)).await?);
        if is_covered {
            transaction.commit().await?;
        } else {
            transaction.abort().await?;
        }
    }
    producer.close().await?;

    for topic in ["debits", "credits"] {
        let amounts = read(brokers.bootstrap(), topic).await?;
        println!("{topic}: {}", amounts.join(" "));
    }
    Ok(())
}

/// The committed records of a topic.
async fn read(bootstrap: &str, topic: &str) -> curtail::Result<Vec<String>> {
    let config = ConsumerConfig::new(bootstrap)
        .group_id(format!("audit-of-{topic}"))
        .auto_offset_reset(OffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted);
    let mut consumer = Consumer::new(config)?;
    consumer.subscribe([topic])?;
    let mut amounts = Vec::new();
    while amounts.len() < 2 {
        let records = consumer.poll(Duration::from_secs(1)).await?;
        let values = records.iter().filter_map(|record| record.value());
        amounts.extend(values.map(|value| String::from_utf8_lossy(value).into_owned()));
    }
    consumer.close().await;
    Ok(amounts)
}
