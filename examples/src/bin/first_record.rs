//! Sends one record with a key and headers, and reads it back.
#![allow(clippy::print_stdout)]

use std::{error::Error, time::Duration};

use curtail::{Consumer, ConsumerConfig, Header, Producer, ProducerConfig, Record, TopicPartition};
use curtail_examples::Brokers;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::of_this_program().await?;

    let producer = Producer::new(ProducerConfig::new(brokers.bootstrap()))?;
    let headers = [Header::new("trace-id", "7f3a"), Header { key: "retried", value: None }];
    let record = Record::to("first-record").key("account-7").value("42.00").headers(&headers);
    // The record is in its batch after the first await, and acknowledged after the second.
    let written = producer.send(record).await?.await?;
    println!("written to partition {} at offset {:?}", written.partition, written.offset);
    producer.close().await?;

    let mut consumer = Consumer::new(ConsumerConfig::new(brokers.bootstrap()))?;
    let partition = TopicPartition::new("first-record", written.partition);
    consumer.assign([partition.clone()]);
    consumer.seek(&partition, written.offset.unwrap_or(0))?;
    let records = consumer.poll(Duration::from_secs(10)).await?;
    for record in records.into_iter().take(1) {
        let value = String::from_utf8_lossy(record.value().unwrap_or_default());
        println!("read {value} at offset {}", record.offset());
        for (name, value) in record.headers() {
            println!("header {name}={:?}", value.map(String::from_utf8_lossy));
        }
    }
    consumer.close().await;
    Ok(())
}
