//! Cost of consuming: records per second, CPU time per record, and the time from send to poll.
//!
//! `consume_cost BOOTSTRAP TOPIC RECORDS SIZE [ROUND_TRIPS]` produces the records to the topic, which the brokers may
//! create. It reads them back by records and by batches. Then it sends one record after the other and measures the
//! time until `poll` returns it.

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::time::{Duration, Instant};

use curtail::{Consumer, ConsumerConfig, Producer, ProducerConfig, Record, TopicPartition};

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic, records, size, rest @ ..] = &args[..] else {
        return Err("usage: consume_cost BOOTSTRAP TOPIC RECORDS SIZE [ROUND_TRIPS]".into());
    };
    let (records, size): (u64, usize) = (records.parse()?, size.parse()?);
    let trips: usize = rest.first().map_or(Ok(0), |n| n.parse())?;
    fill(bootstrap, topic, records, size).await?;
    by_records(bootstrap, topic, records).await?;
    by_batches(bootstrap, topic, records).await?;
    round_trips(bootstrap, topic, trips, size).await
}

async fn fill(bootstrap: &str, topic: &str, records: u64, size: usize) -> Result<(), Failure> {
    let producer = Producer::new(ProducerConfig::new(bootstrap))?;
    let value = vec![b'x'; size];
    for _ in 0..records {
        drop(producer.send(Record::to(topic).value(&value)).await?);
    }
    producer.close().await?;
    Ok(())
}

async fn consumer(
    bootstrap: &str,
    topic: &str,
) -> Result<(Consumer, Vec<TopicPartition>), Failure> {
    let mut consumer = Consumer::new(ConsumerConfig::new(bootstrap))?;
    let partitions = consumer.partitions_for(topic).await?;
    let all: Vec<_> = partitions.iter().map(|p| TopicPartition::new(topic, p.partition)).collect();
    consumer.assign(all.iter().cloned());
    Ok((consumer, all))
}

async fn by_records(bootstrap: &str, topic: &str, records: u64) -> Result<(), Failure> {
    let (mut consumer, all) = consumer(bootstrap, topic).await?;
    consumer.seek_to_beginning(&all)?;
    let (begun, cpu) = (Instant::now(), cpu_time());
    let (mut count, mut bytes) = (0, 0);
    while count < records {
        let polled = consumer.poll(Duration::from_secs(5)).await?;
        if polled.is_empty() {
            break;
        }
        for record in &polled {
            count += 1;
            bytes += record.value().map_or(0, <[u8]>::len);
        }
    }
    report("records", count, bytes, begun, cpu);
    Ok(())
}

async fn by_batches(bootstrap: &str, topic: &str, records: u64) -> Result<(), Failure> {
    let (mut consumer, all) = consumer(bootstrap, topic).await?;
    consumer.seek_to_beginning(&all)?;
    let (begun, cpu) = (Instant::now(), cpu_time());
    let (mut count, mut bytes) = (0, 0);
    while count < records {
        let Some(mut batch) = consumer.poll_batch(Duration::from_secs(5)).await? else { break };
        while let Some(record) = batch.next_record() {
            count += 1;
            bytes += record?.value.map_or(0, <[u8]>::len);
        }
    }
    report("batches", count, bytes, begun, cpu);
    Ok(())
}

fn report(how: &str, count: u64, bytes: usize, begun: Instant, cpu: Duration) {
    let (wall, cpu) = (begun.elapsed(), cpu_time() - cpu);
    println!(
        "by {how}: {count} records, {:.0} records/s, {:.1} MB/s, {:.3} us of CPU per record",
        count as f64 / wall.as_secs_f64(),
        bytes as f64 / wall.as_secs_f64() / 1e6,
        cpu.as_secs_f64() * 1e6 / count.max(1) as f64,
    );
}

async fn round_trips(
    bootstrap: &str,
    topic: &str,
    trips: usize,
    size: usize,
) -> Result<(), Failure> {
    let (mut consumer, all) = consumer(bootstrap, topic).await?;
    consumer.seek_to_end(&all)?;
    for partition in &all {
        consumer.position(partition).await?;
    }
    let mut config = ProducerConfig::new(bootstrap);
    config.set("linger.ms", "0")?;
    let producer = Producer::new(config)?;
    let value = vec![b'x'; size];
    let mut times = Vec::with_capacity(trips);
    for _ in 0..trips {
        let begun = Instant::now();
        drop(producer.send(Record::to(topic).value(&value)).await?);
        let polled = consumer.poll(Duration::from_secs(5)).await?;
        times.push(begun.elapsed());
        if polled.len() != 1 {
            return Err(format!("{} records instead of the one sent", polled.len()).into());
        }
    }
    times.sort_unstable();
    if let Some(last) = times.last() {
        let at = |p: f64| times[((times.len() - 1) as f64 * p) as usize];
        println!(
            "send to poll: p50 {:?}, p99 {:?}, p99.9 {:?}, max {last:?}",
            at(0.5),
            at(0.99),
            at(0.999)
        );
    }
    Ok(())
}

/// CPU time of this process, user and system together.
fn cpu_time() -> Duration {
    // utime and stime are the 12th and 13th fields after the name in parentheses, in ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).flat_map(str::parse::<u64>).sum();
    Duration::from_millis(ticks * 10)
}
