//! Sends records as fast as possible, or open loop at a rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use crate::Failure;
use crate::args::Args;
use crate::measure::{Cpu, Histogram, Report, payloads, sleep_until};
use crate::properties::{self, Role};

const PAYLOADS: usize = 1024;
const DRAIN_LIMIT: Duration = Duration::from_secs(120);
/// Records sent between two polls for delivery reports.
const POLL_EVERY: u64 = 256;

struct Acks {
    origin: Instant,
    state: Mutex<AckState>,
    /// Intended and actual send time of each record of a throttled run, in nanoseconds since the origin.
    /// Empty in an unthrottled run, where both are equal and passed along with the record.
    intended: Vec<AtomicU64>,
    sent: Vec<AtomicU64>,
}

struct AckState {
    errors: u64,
    first_error: Option<String>,
    latency: Histogram,
    send_latency: Histogram,
}

impl AckState {
    fn new() -> Self {
        let (latency, send_latency) = (Histogram::new(), Histogram::new());
        Self { errors: 0, first_error: None, latency, send_latency }
    }
}

#[derive(Clone)]
struct Context(Arc<Acks>);

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, tag: usize) {
        let acks = &self.0;
        let now = acks.origin.elapsed().as_nanos() as u64;
        let mut state = acks.state.lock().unwrap();
        if let Err((error, _)) = result {
            state.errors += 1;
            state.first_error.get_or_insert_with(|| error.to_string());
            return;
        }
        if acks.sent.is_empty() {
            state.latency.record(now - tag as u64);
            return;
        }
        let intended = acks.intended[tag].load(Ordering::Relaxed);
        let sent = acks.sent[tag].load(Ordering::Relaxed);
        state.latency.record(now - intended);
        state.send_latency.record(now - sent);
    }
}

/// Sends the warm-up, waits for its acks, and then measures the rest.
pub fn run(args: &Args) -> Result<Report, Failure> {
    let mut config = properties::producer(&args.bootstrap);
    properties::apply(&mut config, &args.properties, Role::Producer, false)?;
    properties::settle_idempotence(&mut config);
    let timed = if args.rate.is_some() { args.records as usize } else { 0 };
    let table = || (0..timed).map(|_| AtomicU64::new(0)).collect();
    let acks = Arc::new(Acks {
        origin: Instant::now(),
        state: Mutex::new(AckState::new()),
        intended: table(),
        sent: table(),
    });
    let producer = BaseProducer::from_config_and_context(&config, Context(Arc::clone(&acks)))?;
    let producer: Arc<BaseProducer<Context>> = Arc::new(producer);
    // An unthrottled sender polls the reports itself. A throttled one sleeps, so another thread must collect
    // them.
    let stop = Arc::new(AtomicBool::new(false));
    let poller = args.rate.map(|_| {
        let (producer, stop) = (Arc::clone(&producer), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                producer.poll(Duration::from_millis(100));
            }
        })
    });

    let load = Load {
        args,
        producer: &producer,
        acks: &acks,
        payloads: payloads(PAYLOADS, args.record_size),
    };
    load.send(0, args.warmup)?;
    drain(&producer)?;
    fail_on_errors(&acks)?;
    *acks.state.lock().unwrap() = AckState::new();

    let (cpu, begun) = (Cpu::now()?, Instant::now());
    load.send(args.warmup, args.records)?;
    drain(&producer)?;
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);

    stop.store(true, Ordering::Relaxed);
    if let Some(poller) = poller {
        poller.join().map_err(|_| "the polling thread panicked")?;
    }
    let state = acks.state.lock().unwrap();
    if let Some(error) = &state.first_error {
        eprintln!("first error: {error}");
    }
    let records = args.records - args.warmup - state.errors;
    let send_latency = if timed > 0 { &state.send_latency } else { &state.latency };
    Ok(Report {
        client: properties::CLIENT,
        version: properties::version(),
        tool: "produce",
        records,
        errors: state.errors,
        record_size: args.record_size as f64,
        bytes: records * args.record_size as u64,
        elapsed,
        cpu: (cpu, cpu_end),
        latency: state.latency.clone(),
        send_latency: send_latency.clone(),
    })
}

/// Waits until every record is acknowledged. The crate's own flush polls only every 100 ms, which would count
/// as sending time.
fn drain(producer: &BaseProducer<Context>) -> Result<(), Failure> {
    let begun = Instant::now();
    while producer.in_flight_count() > 0 {
        if begun.elapsed() > DRAIN_LIMIT {
            return Err(format!("records without an ack after {DRAIN_LIMIT:?}").into());
        }
        producer.poll(Duration::from_millis(1));
    }
    Ok(())
}

fn fail_on_errors(acks: &Acks) -> Result<(), Failure> {
    let state = acks.state.lock().unwrap();
    match &state.first_error {
        Some(error) => Err(format!("{} warm-up records failed: {error}", state.errors).into()),
        None => Ok(()),
    }
}

struct Load<'a> {
    args: &'a Args,
    producer: &'a BaseProducer<Context>,
    acks: &'a Acks,
    payloads: Vec<Vec<u8>>,
}

impl Load<'_> {
    /// Sends the records `from..to`.
    fn send(&self, from: u64, to: u64) -> Result<(), Failure> {
        let start = self.acks.origin.elapsed().as_nanos() as u64;
        let interval = self.args.rate.map(|rate| 1e9 / rate);
        for index in from..to {
            let payload = &self.payloads[index as usize % PAYLOADS];
            let tag = match interval {
                Some(interval) => {
                    let intended = start + ((index - from) as f64 * interval) as u64;
                    sleep_until(self.acks.origin, intended);
                    let sent = self.acks.origin.elapsed().as_nanos() as u64;
                    self.acks.intended[index as usize].store(intended, Ordering::Relaxed);
                    self.acks.sent[index as usize].store(sent, Ordering::Relaxed);
                    index as usize
                }
                None => {
                    if index % POLL_EVERY == 0 {
                        self.producer.poll(Duration::ZERO);
                    }
                    self.acks.origin.elapsed().as_nanos() as usize
                }
            };
            self.enqueue(payload, tag)?;
        }
        Ok(())
    }

    /// Waits for room in librdkafka's queue when it is full.
    fn enqueue(&self, payload: &[u8], tag: usize) -> Result<(), Failure> {
        let record = BaseRecord::with_opaque_to(&self.args.topic, tag);
        let mut record: BaseRecord<'_, [u8], [u8], usize> = record.payload(payload);
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), refused)) => {
                    record = refused;
                    self.producer.poll(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
    }
}
