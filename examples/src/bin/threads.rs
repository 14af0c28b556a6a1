//! Four threads share a producer. Neither they nor the producer need the application's runtime.
#![allow(clippy::print_stdout)]

use std::{error::Error, thread};

use curtail::{ProducerConfig, Record, blocking::Producer};
use curtail_examples::Brokers;
use tokio::runtime::Runtime;

const THREADS: u32 = 4;
const RECORDS: u32 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    // For the embedded cluster only.
    let runtime = Runtime::new()?;
    let brokers = runtime.block_on(Brokers::of_this_program())?;

    let producer = Producer::new(ProducerConfig::new(brokers.bootstrap()))?;
    let written: curtail::Result<Vec<u32>> = thread::scope(|scope| {
        let senders: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| send(&producer))).collect();
        senders.into_iter().map(|sender| sender.join().unwrap_or(Ok(0))).collect()
    });
    println!("{} of {} records written", written?.iter().sum::<u32>(), THREADS * RECORDS);
    producer.close()?;
    Ok(())
}

fn send(producer: &Producer) -> curtail::Result<u32> {
    let mut deliveries = Vec::new();
    for number in 0..RECORDS {
        deliveries.push(producer.send(Record::to("events").value(&number.to_string()))?);
    }
    let mut written = 0;
    for delivery in deliveries {
        delivery.wait()?;
        written += 1;
    }
    Ok(written)
}
