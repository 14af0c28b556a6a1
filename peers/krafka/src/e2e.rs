//! One record at a time: sent, acknowledged, read back.

use std::time::Instant;

use krafka::consumer::Consumer;
use krafka::producer::Producer;

use crate::Failure;
use crate::args::Args;
use crate::consume::QUIET_LIMIT;
use crate::measure::{Cpu, Histogram, Report, payloads};
use crate::open_loop::Fates;
use crate::settings;

const PAYLOADS: usize = 1024;

/// The latency of a record is from just before its send until it has been read, its ack being awaited in between, as in
/// Kafka's own tool.
pub async fn run(args: &Args) -> Result<Report, Failure> {
    let mut args = args.clone();
    let acks = args.acks.clone().unwrap_or_else(|| "1".into());
    let own = [("fetch.max.wait.ms", "0"), ("acks", &acks), ("linger.ms", "0")];
    // The command line's properties follow and so override these.
    args.properties.splice(0..0, own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let kafka = settings::connect(&args).await?;
    let consumer = settings::consumer_at_end(&args, &kafka).await?;
    let producer = settings::producer(&args, &kafka).build().await?;
    let report = measure(&args, &producer, &consumer).await?;
    producer.close().await?;
    consumer.close().await?;
    Ok(report)
}

async fn measure(args: &Args, producer: &Producer, consumer: &Consumer) -> Result<Report, Failure> {
    let payloads = payloads(PAYLOADS, args.record_size);
    let (mut latency, fates, mut first) = (Histogram::new(), Fates::new(args.records), 0);
    let (mut cpu, mut begun) = (Cpu::now()?, Instant::now());
    for index in 0..args.records {
        if index == args.warmup && index > 0 {
            latency = Histogram::new();
            (cpu, begun) = (Cpu::now()?, Instant::now());
            first = fates.now();
        }
        let payload = &payloads[index as usize % PAYLOADS][..];
        let sent = fates.now();
        let _written = producer.send(settings::record(args, None, payload)).await?;
        let mut records = consumer.poll(QUIET_LIMIT).await?.into_iter();
        let read = fates.now();
        latency.record(read - sent);
        let record = records
            .next()
            .ok_or_else(|| format!("record {index} did not come back in {QUIET_LIMIT:?}"))?;
        if records.next().is_some() || record.value.as_deref() != Some(payload) {
            return Err(format!("record {index} came back changed or out of turn").into());
        }
        fates.read(index as usize, sent, read, record.partition, record.offset);
    }
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);
    if let Some(path) = &args.fates {
        fates.write(path, args.warmup, first)?;
    }
    let records = args.records - args.warmup;
    Ok(Report {
        client: settings::CLIENT,
        version: settings::VERSION.into(),
        tool: "e2e",
        records,
        errors: 0,
        record_size: args.record_size as f64,
        bytes: records * args.record_size as u64,
        elapsed,
        cpu: (cpu, cpu_end),
        send_latency: latency.clone(),
        latency,
    })
}
