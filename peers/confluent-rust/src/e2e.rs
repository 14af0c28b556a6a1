//! One record at a time: sent, acknowledged, read back.

use std::time::Instant;

use confluent_kafka::consumer::Consumer as _;
use confluent_kafka::producer::{Producer as _, ProducerRecord};

use crate::Failure;
use crate::args::Args;
use crate::consume::QUIET_LIMIT;
use crate::measure::{Cpu, Histogram, Report, payloads};
use crate::open_loop::Fates;
use crate::settings::{self, Consumer, Producer};

const PAYLOADS: usize = 1024;

/// The latency of a record is from just before its send until it has been read, its ack being awaited in between, as in
/// Kafka's own tool.
pub async fn run(args: &Args) -> Result<Report, Failure> {
    let mut consumer = settings::consumer_at_end(args, &[("fetch.max.wait.ms", "0")]).await?;
    let acks = args.acks.as_deref().unwrap_or("1");
    let producer = settings::producer(args, &[("acks", acks), ("linger.ms", "0")])?;
    let report = measure(args, &producer, &mut consumer).await?;
    producer.close().await?;
    consumer.close().await?;
    Ok(report)
}

async fn measure(
    args: &Args,
    producer: &Producer,
    consumer: &mut Consumer,
) -> Result<Report, Failure> {
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
        let record = ProducerRecord::new(args.topic.clone(), Some(payload));
        Producer::send(producer, record, None).await?.get().await?;
        let records = consumer.poll(QUIET_LIMIT).await?;
        let read = fates.now();
        latency.record(read - sent);
        let record = (&records).into_iter().next();
        let record =
            record.ok_or_else(|| format!("record {index} did not come back in {QUIET_LIMIT:?}"))?;
        if records.count() != 1 || record.value().map(Vec::as_slice) != Some(payload) {
            return Err(format!("record {index} came back changed or out of turn").into());
        }
        fates.read(index as usize, sent, read, record.partition(), record.offset());
    }
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);
    if let Some(path) = &args.fates {
        fates.write(path, args.warmup, first)?;
    }
    let records = args.records - args.warmup;
    Ok(Report {
        client: settings::CLIENT,
        version: settings::version(),
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
