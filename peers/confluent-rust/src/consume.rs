//! Reads a topic from its beginning, all partitions, without a group.

use std::time::{Duration, Instant};

use confluent_kafka::consumer::Consumer as _;

use crate::Failure;
use crate::args::Args;
use crate::measure::{Cpu, Histogram, Report};
use crate::settings;

pub const QUIET_LIMIT: Duration = Duration::from_secs(60);

/// Reads at least `--num-records` records; the time begins with the assignment.
pub async fn run(args: &Args) -> Result<Report, Failure> {
    let mut consumer = settings::consumer(args, &[])?;
    let partitions = settings::partitions(&mut consumer, &args.topic).await?;
    let (cpu, begun) = (Cpu::now()?, Instant::now());
    consumer.assign(partitions.clone()).await?;
    consumer.seek_to_beginning(&partitions).await?;
    let (mut records, mut bytes) = (0, 0);
    while records < args.records {
        let polled = consumer.poll(QUIET_LIMIT).await?;
        if polled.is_empty() {
            let text = format!("no record for {QUIET_LIMIT:?}; {records} of {} came", args.records);
            return Err(text.into());
        }
        for record in &polled {
            records += 1;
            bytes += (record.key().map_or(0, Vec::len) + record.value().map_or(0, Vec::len)) as u64;
        }
    }
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);
    consumer.close().await?;
    Ok(Report {
        client: settings::CLIENT,
        version: settings::version(),
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
