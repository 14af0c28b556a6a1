//! Sends records as fast as possible, or open loop at a rate.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use curtail::{Delivery, Error, Producer, Record, producer::{CompletionSink, Completions}};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::Failure;
use crate::args::Args;
use crate::await_each::AwaitEach;
use crate::measure::{Cpu, Histogram, Report, payloads, sleep_until};
use crate::settings::{self, Outcomes};

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
    /// `None` without a rate: a record is due when it is sent.
    sent: Option<u64>,
}

impl Acks {
    fn new() -> Self {
        let (latency, send_latency) = (Histogram::new(), Histogram::new());
        Self { errors: 0, first_error: None, latency, send_latency }
    }

    fn written(&mut self, times: &Times, now: u64) {
        self.latency.record(now - times.due);
        if let Some(sent) = times.sent {
            self.send_latency.record(now - sent);
        }
    }

    fn failed(&mut self, error: &Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.report().to_string());
    }
}

/// When records are due and were sent, by tag.
struct Schedule {
    origin: Instant,
    /// Start and interval in nanoseconds; `None` without a rate: a tag is the time of the send.
    pace: Option<(u64, f64)>,
    /// At a rate: the time of each record's send.
    sent: Box<[AtomicU64]>,
}

impl Schedule {
    fn new(origin: Instant, rate: Option<f64>, records: u64) -> Self {
        let timed = if rate.is_some() { records } else { 0 };
        let pace = rate.map(|rate| (nanos_since(origin), 1e9 / rate));
        Self { origin, pace, sent: (0..timed).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Waits until the record is due. Returns its tag.
    fn begin(&self, index: u64) -> u64 {
        let Some((start, interval)) = self.pace else { return nanos_since(self.origin) };
        // This thread runs no other task.
        sleep_until(self.origin, due(start, interval, index));
        self.sent[index as usize].store(nanos_since(self.origin), Ordering::Relaxed);
        index
    }

    fn times(&self, tag: u64) -> Times {
        match self.pace {
            None => Times { due: tag, sent: None },
            Some((start, interval)) => {
                let sent = self.sent[tag as usize].load(Ordering::Relaxed);
                Times { due: due(start, interval, tag), sent: Some(sent) }
            }
        }
    }
}

fn due(start: u64, interval: f64, index: u64) -> u64 {
    start + (index as f64 * interval) as u64
}

fn nanos_since(origin: Instant) -> u64 {
    origin.elapsed().as_nanos() as u64
}

/// Where outcomes arrive.
enum Receiver {
    Deliveries(AwaitEach<u64, Delivery>),
    Completions { sink: CompletionSink, task: JoinHandle<()> },
}

impl Receiver {
    fn start(
        producer: &Producer,
        outcomes: Outcomes,
        schedule: &Arc<Schedule>,
        acks: &Arc<Mutex<Acks>>,
    ) -> Self {
        let (schedule, acks) = (Arc::clone(schedule), Arc::clone(acks));
        match outcomes {
            Outcomes::Deliveries => {
                let told = move |tag, outcome| {
                    let now = nanos_since(schedule.origin);
                    let mut acks = acks.lock().unwrap();
                    match outcome {
                        Ok(_) => acks.written(&schedule.times(tag), now),
                        Err(error) => acks.failed(&error),
                    }
                };
                Self::Deliveries(AwaitEach::start(&Handle::current(), told))
            }
            Outcomes::Completions => {
                let (sink, completions) = producer.completions();
                let task = tokio::spawn(take_runs(completions, schedule, acks));
                Self::Completions { sink, task }
            }
        }
    }

    async fn send(&self, producer: &Producer, record: Record<'_>, tag: u64) -> Result<(), Failure> {
        match self {
            Self::Deliveries(awaiting) => awaiting.push(tag, producer.send(record).await?),
            Self::Completions { sink, .. } => producer.send_tagged(record, tag, sink).await?,
        }
        Ok(())
    }

    /// Waits for the last outcome.
    async fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Deliveries(awaiting) => awaiting.finish().await,
            Self::Completions { sink, task } => {
                drop(sink);
                Ok(task.await?)
            }
        }
    }
}

async fn take_runs(
    mut completions: Completions,
    schedule: Arc<Schedule>,
    acks: Arc<Mutex<Acks>>,
) {
    while let Some(run) = completions.next().await {
        let now = nanos_since(schedule.origin);
        let mut acks = acks.lock().unwrap();
        match run.outcome() {
            Ok(_) => run.tags().iter().for_each(|tag| acks.written(&schedule.times(*tag), now)),
            Err(error) => run.tags().iter().for_each(|_| acks.failed(error)),
        }
    }
}

struct Load<'a> {
    args: &'a Args,
    outcomes: Outcomes,
    producer: &'a Producer,
    origin: Instant,
    payloads: Vec<Vec<u8>>,
}

/// Sends the warm-up, waits for its acks, and then measures the rest.
pub async fn run(args: &Args, outcomes: Outcomes) -> Result<Report, Failure> {
    let producer = settings::producer(args, &[])?;
    let payloads = payloads(PAYLOADS, args.record_size);
    let load = Load { args, outcomes, producer: &producer, origin: Instant::now(), payloads };
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
    let send_latency = if args.rate.is_some() { &acks.send_latency } else { &acks.latency };
    Ok(Report {
        client: outcomes.client(),
        version: settings::version(),
        tool: "produce",
        records,
        errors: acks.errors,
        record_size: args.record_size as f64,
        bytes: records * args.record_size as u64,
        elapsed,
        cpu: (cpu, cpu_end),
        send_latency: send_latency.clone(),
        latency: acks.latency,
    })
}

impl Load<'_> {
    /// Sends these records and waits for their acks.
    async fn send(&self, records: Range<u64>) -> Result<Acks, Failure> {
        let acks = Arc::new(Mutex::new(Acks::new()));
        let count = records.end - records.start;
        let schedule = Arc::new(Schedule::new(self.origin, self.args.rate, count));
        let receiver = Receiver::start(self.producer, self.outcomes, &schedule, &acks);
        for index in 0..count {
            let tag = schedule.begin(index);
            let payload = &self.payloads[(records.start + index) as usize % PAYLOADS];
            let record = Record::to(&self.args.topic).value(payload);
            receiver.send(self.producer, record, tag).await?;
        }
        receiver.finish().await?;
        // The task, and with it the other handle, is gone.
        let acks = Arc::into_inner(acks).ok_or("the task that takes the outcomes still runs")?;
        Ok(acks.into_inner()?)
    }
}
