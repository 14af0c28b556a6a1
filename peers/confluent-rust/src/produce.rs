//! Sends records as fast as possible, or open loop at a rate.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use confluent_kafka::producer::{Producer as _, ProducerRecord, callback};
use tokio::runtime::Runtime;

use crate::Failure;
use crate::args::Args;
use crate::measure::{Cpu, Histogram, Report, payloads, sleep_until};
use crate::settings::{self, Producer};

const PAYLOADS: usize = 1024;

/// Outcomes of the sends.
struct Acks {
    errors: u64,
    first_error: Option<String>,
    latency: Histogram,
    send_latency: Histogram,
}

impl Acks {
    fn new() -> Arc<Mutex<Self>> {
        let (latency, send_latency) = (Histogram::new(), Histogram::new());
        Arc::new(Mutex::new(Self { errors: 0, first_error: None, latency, send_latency }))
    }
}

struct Load<'a> {
    args: &'a Args,
    runtime: &'a Runtime,
    producer: &'a Producer,
    origin: Instant,
    payloads: Vec<Vec<u8>>,
}

/// Sends the warm-up, waits for its acks, and then measures the rest.
pub fn run(args: &Args, runtime: &Runtime) -> Result<Report, Failure> {
    let context = runtime.enter();
    let producer = settings::producer(args, &[])?;
    drop(context);
    let payloads = payloads(PAYLOADS, args.record_size);
    let load = Load { args, runtime, producer: &producer, origin: Instant::now(), payloads };
    let warmup = Acks::new();
    load.send(0..args.warmup, &warmup)?;
    let warmup = warmup.lock().unwrap();
    if let Some(error) = &warmup.first_error {
        return Err(format!("{} warm-up records failed: {error}", warmup.errors).into());
    }
    let acks = Acks::new();
    let (cpu, begun) = (Cpu::now()?, Instant::now());
    load.send(args.warmup..args.records, &acks)?;
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);
    runtime.block_on(producer.close())?;
    let acks = acks.lock().unwrap();
    if let Some(error) = &acks.first_error {
        eprintln!("first error: {error}");
    }
    let records = args.records - args.warmup - acks.errors;
    Ok(Report {
        client: settings::CLIENT,
        version: settings::version(),
        tool: "produce",
        records,
        errors: acks.errors,
        record_size: args.record_size as f64,
        bytes: records * args.record_size as u64,
        elapsed,
        cpu: (cpu, cpu_end),
        latency: acks.latency.clone(),
        send_latency: acks.send_latency.clone(),
    })
}

impl Load<'_> {
    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Sends these records and waits for their acks.
    fn send(&self, records: Range<u64>, acks: &Arc<Mutex<Acks>>) -> Result<(), Failure> {
        let start = self.now();
        let interval = self.args.rate.map(|rate| 1e9 / rate);
        for index in records.clone() {
            let due = interval.map(|nanos| start + ((index - records.start) as f64 * nanos) as u64);
            if let Some(due) = due {
                sleep_until(self.origin, due);
            }
            let sent = self.now();
            self.send_one(index, due.unwrap_or(sent), sent, Arc::clone(acks))?;
        }
        Ok(self.runtime.block_on(self.producer.flush())?)
    }

    fn send_one(
        &self,
        index: u64,
        due: u64,
        sent: u64,
        acks: Arc<Mutex<Acks>>,
    ) -> Result<(), Failure> {
        let origin = self.origin;
        let done = callback::new(move |_, error| {
            let now = origin.elapsed().as_nanos() as u64;
            let mut acks = acks.lock().unwrap();
            if let Some(error) = error {
                acks.errors += 1;
                acks.first_error.get_or_insert_with(|| error.to_string());
                return;
            }
            acks.latency.record(now - due);
            acks.send_latency.record(now - sent);
        });
        let payload = &self.payloads[index as usize % PAYLOADS][..];
        let record = ProducerRecord::new(self.args.topic.clone(), Some(payload));
        self.runtime.block_on(Producer::send(self.producer, record, Some(Box::new(done))))?;
        Ok(())
    }
}
