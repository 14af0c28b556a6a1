//! Reads a topic from its beginning, all partitions, without a group.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::args::Args;
use crate::measure::{Cpu, Histogram, Report};
use crate::settings;

pub const QUIET_LIMIT: Duration = Duration::from_secs(60);

/// Reads at least `--num-records` records; the time begins with the assignment.
pub async fn run(args: &Args) -> Result<Report, Failure> {
    let kafka = settings::connect(args).await?;
    let consumer = settings::consumer(args, &kafka).await?;
    let partitions = settings::partitions(&consumer, &args.topic).await?;
    let (cpu, begun) = (Cpu::now()?, Instant::now());
    consumer.assign(&args.topic, partitions).await?;
    let (mut records, mut bytes) = (0, 0);
    while records < args.records {
        let before = records;
        for record in consumer.poll(QUIET_LIMIT).await? {
            records += 1;
            bytes += record.key.into_iter().chain(record.value).map(|field| field.len() as u64).sum::<u64>();
        }
        if records == before {
            let text = format!("no record for {QUIET_LIMIT:?}; {records} of {} came", args.records);
            return Err(text.into());
        }
    }
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);
    consumer.close().await?;
    Ok(Report {
        client: settings::CLIENT,
        version: settings::VERSION.into(),
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
