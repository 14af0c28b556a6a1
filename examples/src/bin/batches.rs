//! Keeps many records in flight. One task sends; another awaits each delivery.
#![allow(clippy::print_stdout)]

use std::error::Error;

use curtail::{Delivery, Producer, ProducerConfig, Record, config::Codec};
use curtail_examples::Brokers;
use tokio::sync::mpsc;

const RECORDS: u32 = 10_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::of_this_program().await?;
    let config = ProducerConfig::new(brokers.bootstrap()).compression(Codec::Lz4);
    let producer = Producer::new(config)?;

    let (deliveries, awaited) = mpsc::channel(RECORDS as usize);
    let outcomes = tokio::spawn(count(awaited));
    for number in 0..RECORDS {
        let (key, value) = (format!("sensor-{}", number % 100), number.to_string());
        // Waits while the brokers are slower than this loop.
        let delivery = producer.send(Record::to("readings").key(&key).value(&value)).await?;
        deliveries.send((number, delivery)).await?;
    }
    drop(deliveries);
    let written = outcomes.await?;
    println!("{written} of {RECORDS} records written");
    producer.close().await?;
    Ok(())
}

async fn count(mut deliveries: mpsc::Receiver<(u32, Delivery)>) -> u32 {
    let mut written = 0;
    while let Some((number, delivery)) = deliveries.recv().await {
        match delivery.await {
            Ok(_) => written += 1,
            Err(error) if error.may_have_been_written() => {
                println!("record {number}: look before sending it again: {}", error.report());
            }
            Err(error) => println!("record {number} can be sent again: {}", error.report()),
        }
    }
    written
}
