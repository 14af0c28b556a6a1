//! Reads a topic from its beginning, all partitions, without a group.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{Offset, TopicPartitionList};

use crate::Failure;
use crate::args::Args;
use crate::measure::{Cpu, Histogram, Report};
use crate::properties::{self, Role};

pub const QUIET_LIMIT: Duration = Duration::from_secs(60);

/// Reads at least `--num-records` records; the time begins with the assignment.
pub fn run(args: &Args) -> Result<Report, Failure> {
    let mut config = properties::consumer(&args.bootstrap);
    properties::apply(&mut config, &args.properties, Role::Consumer, false)?;
    properties::settle_fetch_size(&mut config);
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    for partition in partitions(&consumer, &args.topic)? {
        list.add_partition_offset(&args.topic, partition, Offset::Beginning)?;
    }
    let (cpu, begun) = (Cpu::now()?, Instant::now());
    consumer.assign(&list)?;
    let (mut records, mut bytes) = (0, 0);
    while records < args.records {
        let message = consumer.poll(QUIET_LIMIT).ok_or_else(|| {
            format!("no record for {QUIET_LIMIT:?}; {records} of {} came", args.records)
        })??;
        records += 1;
        bytes += (message.payload_len() + message.key_len()) as u64;
    }
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);
    Ok(Report {
        client: properties::CLIENT,
        version: properties::version(),
        tool: "consume",
        records,
        errors: 0,
        record_size: (bytes as f64 / records as f64).round(),
        bytes,
        elapsed,
        cpu: (cpu, cpu_end),
        latency: Histogram::new(),
        send_latency: Histogram::new(),
    })
}

/// The topic's partitions.
pub fn partitions(consumer: &BaseConsumer, topic: &str) -> Result<Vec<i32>, Failure> {
    let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(30))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let ids: Vec<i32> =
        found.map_or_else(Vec::new, |found| found.partitions().iter().map(|p| p.id()).collect());
    if ids.is_empty() {
        return Err(format!("topic {topic} has no partitions; create it first").into());
    }
    Ok(ids)
}
