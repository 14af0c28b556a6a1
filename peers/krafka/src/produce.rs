//! Sends records as fast as possible, or open loop at a rate.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use krafka::producer::{Producer, RecordMetadata};
use tokio::runtime::Handle;

use crate::Failure;
use crate::args::Args;
use crate::await_each::AwaitEach;
use crate::measure::{Cpu, Histogram, Report, payloads, sleep_until};
use crate::settings;

const PAYLOADS: usize = 1024;

/// Outcomes of the sends.
struct Acks {
    errors: u64,
    first_error: Option<String>,
    latency: Histogram,
    send_latency: Histogram,
}

/// Nanoseconds since the origin.
struct Times {
    due: u64,
    sent: u64,
}

impl Acks {
    fn new() -> Self {
        let (latency, send_latency) = (Histogram::new(), Histogram::new());
        Self { errors: 0, first_error: None, latency, send_latency }
    }

    fn settled(&mut self, times: &Times, now: u64, outcome: krafka::Result<RecordMetadata>) {
        match outcome {
            Ok(_) => {
                self.latency.record(now - times.due);
                self.send_latency.record(now - times.sent);
            }
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

struct Load<'a> {
    args: &'a Args,
    producer: &'a Producer,
    origin: Instant,
    payloads: Vec<Vec<u8>>,
}

/// Sends the warm-up, waits for its acks, and then measures the rest.
pub async fn run(args: &Args) -> Result<Report, Failure> {
    let kafka = settings::connect(args).await?;
    let producer = settings::producer(args, &kafka).build().await?;
    let payloads = payloads(PAYLOADS, args.record_size);
    let load = Load { args, producer: &producer, origin: Instant::now(), payloads };
    let warmup = load.send(0..args.warmup).await?;
    if let Some(error) = &warmup.first_error {
        return Err(format!("{} warm-up records failed: {error}", warmup.errors).into());
    }
    let (cpu, begun) = (Cpu::now()?, Instant::now());
    let acks = load.send(args.warmup..args.records).await?;
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);
    producer.close().await?;
    if let Some(error) = &acks.first_error {
        eprintln!("first error: {error}");
    }
    let records = args.records - args.warmup - acks.errors;
    Ok(Report {
        client: settings::CLIENT,
        version: settings::VERSION.into(),
        tool: "produce",
        records,
        errors: acks.errors,
        record_size: args.record_size as f64,
        bytes: records * args.record_size as u64,
        elapsed,
        cpu: (cpu, cpu_end),
        latency: acks.latency,
        send_latency: acks.send_latency,
    })
}

impl Load<'_> {
    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Sends these records and waits for their acks.
    async fn send(&self, records: Range<u64>) -> Result<Acks, Failure> {
        let acks = Arc::new(Mutex::new(Acks::new()));
        let told = {
            let (acks, origin) = (Arc::clone(&acks), self.origin);
            move |times: Times, outcome| {
                let now = origin.elapsed().as_nanos() as u64;
                acks.lock().unwrap().settled(&times, now, outcome);
            }
        };
        let awaiting = AwaitEach::start(&Handle::current(), told);
        let (start, interval) = (self.now(), self.args.rate.map(|rate| 1e9 / rate));
        for index in records.clone() {
            let due = interval.map(|nanos| start + ((index - records.start) as f64 * nanos) as u64);
            if let Some(due) = due {
                // This thread runs no other task.
                sleep_until(self.origin, due);
            }
            let sent = self.now();
            let payload = &self.payloads[index as usize % PAYLOADS];
            let record = settings::record(self.args, None, payload);
            let times = Times { due: due.unwrap_or(sent), sent };
            awaiting.push(times, self.producer.enqueue(record).await?);
        }
        awaiting.finish().await?;
        // The task, and with it the other handle, is gone.
        let acks = Arc::into_inner(acks).ok_or("the task that takes the outcomes still runs")?;
        Ok(acks.into_inner()?)
    }
}
