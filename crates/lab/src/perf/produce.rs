//! Producing at a rate or as fast as it goes, after `kafka-producer-perf-test`.

pub(crate) mod client;
mod outstanding;

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use curtail::{Delivery, ProducerConfig, Record, metrics::ProducerMetrics};
use tokio::runtime::Runtime;

use self::{
    client::{Client, Door},
    outstanding::{Outstanding, Tally},
};
use super::{
    Cost, Error, Event, Payload, PhasesReport, Progress, Report, Result, Target, Topic,
    client_runtime,
    payload::Values,
    report::{Figures, summary},
    target::Running,
};
use crate::{
    cpu::CpuTime,
    latency::Latencies,
    pacer::{self, Pacer},
};

/// Options of a run that produces.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster.
    pub target: Target,
    /// The topic.
    pub topic: Topic,
    /// Settings of the producer. The target sets `bootstrap.servers`. With a `transactional.id` the records
    /// are sent in transactions.
    pub config: ProducerConfig,
    /// Length of a transaction. It ends with the first record that is sent this long after its beginning.
    pub transaction_duration: Duration,
    /// Records to send, the warm-up included.
    pub records: u64,
    /// Content of the records.
    pub payload: Payload,
    /// Records per second; `None` for as fast as possible.
    pub rate: Option<f64>,
    /// Records at the start that the steady-state report leaves out.
    pub warmup: u64,
    /// Length of a reporting interval.
    pub interval: Duration,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Report of all records.
    pub whole: Report,
    /// Report of the records after the warm-up, if there was one.
    pub steady: Option<Report>,
    /// The producer's metrics of the whole run.
    pub metrics: ProducerMetrics,
}

impl Outcome {
    /// Returns the report of the records after the warm-up, or of all records without a warm-up.
    #[must_use]
    pub fn measured(&self) -> &Report {
        self.steady.as_ref().unwrap_or(&self.whole)
    }
}

/// Produces, on this thread, until everything is acknowledged or failed.
///
/// The thread sends: with a rate it sleeps until a record is due, and it waits while `buffer.memory` is full.
/// The client's own work runs on another thread. Records that are not acknowledged are counted in the report.
/// With transactions nothing is sent during a commit; the delay counts as latency from the intended send
/// time.
///
/// # Errors
/// Invalid options, an unreachable cluster, a missing topic, a record that is too large, a transaction that
/// cannot be committed.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Outcome> {
    options.check()?;
    let runtime = client_runtime()?;
    let running = Running::start(&options.target, &options.topic, None, progress)?;
    let mut config = options.config.clone();
    config.set("bootstrap.servers", running.bootstrap())?;
    runtime.block_on(running.prepare(&options.topic, options.config.get_security()))?;

    let values = Values::prepare(&options.payload)?;
    let guard = runtime.enter();
    let client = runtime.block_on(Client::start(config, &[&options.topic.name]))?;
    let mut sender = Sender { options, runtime: &runtime, client, values, progress };
    let measured = sender.run();
    let metrics = sender.client.metrics();
    // After an error the outcome of the other records does not matter, but brokers and sockets still close in
    // order.
    let closed = runtime.block_on(sender.client.close());
    drop(guard);
    let measured = measured?;
    closed?;
    let includes_brokers = running.is_embedded();
    drop(running);
    Ok(measured.outcome(options, includes_brokers, metrics))
}

impl Options {
    fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::Options(text.into()));
        if self.records == 0 {
            return refuse("the number of records must be above 0");
        }
        if self.warmup >= self.records {
            return refuse("the warm-up must have fewer records than the run");
        }
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return refuse("the throughput must be above 0, or -1 for no limit");
        }
        if self.interval.is_zero() {
            return refuse("the reporting interval must be above 0 ms");
        }
        if self.transaction_duration.is_zero() {
            return refuse("the duration of a transaction must be above 0 ms");
        }
        Ok(())
    }
}

struct Sender<'a> {
    options: &'a Options,
    runtime: &'a Runtime,
    client: Client,
    values: Values,
    progress: &'a mut dyn Progress,
}

/// Interval of progress events.
const PROGRESS: Duration = Duration::from_millis(100);

/// When the next progress event and window are due, in nanoseconds since the start.
struct Due {
    progress: u64,
    window: u64,
    window_began: u64,
}

/// A part of a run: the warm-up or the rest.
#[derive(Default)]
struct Part {
    tally: Tally,
    elapsed: Duration,
    cpu: CpuTime,
}

/// Measurements of a run, before they become a report.
struct Measured {
    warm: Option<Part>,
    rest: Part,
}

impl Sender<'_> {
    /// Runs the warm-up and the rest. All records are acknowledged in between, so that neither part contains
    /// work or delays of the other.
    fn run(&mut self) -> Result<Measured> {
        let Options { records, warmup, .. } = *self.options;
        self.progress.on(Event::Started { total: records });
        if self.options.rate.is_some() {
            pacer::sleep_precisely();
        }
        let warm = if warmup > 0 { Some(self.part(0..warmup)?) } else { None };
        let rest = self.part(warmup..records)?;
        self.progress.on(Event::Advanced { done: records });
        Ok(Measured { warm, rest })
    }

    fn part(&mut self, indices: Range<u64>) -> Result<Part> {
        let Options { rate, interval, transaction_duration, .. } = *self.options;
        let Self { runtime, client, .. } = self;
        let cpu = CpuTime::now();
        let start = Instant::now();
        let pacer = rate.map(|rate| Pacer::new(start, rate));
        let interval = nanos(interval);
        let mut course = Course {
            options: self.options,
            runtime,
            values: &mut self.values,
            progress: &mut *self.progress,
            start,
            pacer,
            first: indices.start,
            outstanding: Outstanding::new(start, pacer),
            due: Due { progress: nanos(PROGRESS), window: interval, window_began: 0 },
        };
        let mut left = indices;
        while !left.is_empty() {
            let door = runtime.block_on(client.open())?;
            let opened = Instant::now();
            let until = door.is_transaction().then(|| opened + transaction_duration);
            course.send(&door, &mut left, until)?;
            runtime.block_on(door.shut())?;
        }
        course.outstanding.settle_resolved();
        let (elapsed, cpu) = (start.elapsed(), CpuTime::now() - cpu);
        Ok(Part { tally: course.outstanding.finish()?, elapsed, cpu })
    }
}

/// A part in progress.
struct Course<'a> {
    options: &'a Options,
    runtime: &'a Runtime,
    values: &'a mut Values,
    progress: &'a mut dyn Progress,
    start: Instant,
    pacer: Option<Pacer>,
    /// Index of its first record.
    first: u64,
    outstanding: Outstanding,
    due: Due,
}

impl Course<'_> {
    /// Sends records of `left` until one was sent at or after `until`, or none is left.
    fn send(
        &mut self,
        door: &Door<'_>,
        left: &mut Range<u64>,
        until: Option<Instant>,
    ) -> Result<()> {
        for index in left {
            let now = match &self.pacer {
                Some(pacer) => pacer.wait(index - self.first).1,
                None => Instant::now(),
            };
            let sent = nanos(now.saturating_duration_since(self.start));
            let value = self.values.get(index);
            let record = Record::to(&self.options.topic.name).value(value);
            let bytes = value.len() as u64;
            let delivery = send(door, self.runtime, record, &mut self.outstanding)?;
            if self.outstanding.push(delivery, sent, bytes) {
                self.outstanding.settle_resolved();
            }
            if sent >= self.due.progress {
                self.tell(sent);
            }
            if until.is_some_and(|until| now >= until) {
                break;
            }
        }
        Ok(())
    }

    fn tell(&mut self, now: u64) {
        let due = &mut self.due;
        due.progress = now + nanos(PROGRESS);
        self.progress.on(Event::Advanced { done: self.first + self.outstanding.settled() });
        if now < due.window {
            return;
        }
        let elapsed = Duration::from_nanos(now - due.window_began);
        self.progress.on(Event::Window(&self.outstanding.take_window(elapsed)));
        due.window_began = now;
        due.window = now + nanos(self.options.interval);
    }
}

/// Sends without waiting if possible. Before it waits for memory, it settles acknowledged records.
fn send(
    door: &Door<'_>,
    runtime: &Runtime,
    record: Record<'_>,
    outstanding: &mut Outstanding,
) -> Result<Delivery> {
    match door.try_send(record) {
        Ok(delivery) => Ok(delivery),
        Err(curtail::Error::BufferFull { .. } | curtail::Error::IllegalState(_)) => {
            outstanding.settle_resolved();
            Ok(runtime.block_on(door.send(record))?)
        }
        Err(error) => Err(error.into()),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Measured {
    fn outcome(
        self,
        options: &Options,
        includes_brokers: bool,
        metrics: ProducerMetrics,
    ) -> Outcome {
        let report = |part: &Part| {
            let cost = Cost { cpu: part.cpu, includes_brokers };
            report(&part.tally, options, part.elapsed, cost)
        };
        let Some(warm) = self.warm else {
            return Outcome { whole: report(&self.rest), steady: None, metrics };
        };
        let steady = report(&self.rest);
        let mut all = self.rest;
        all.tally.add(warm.tally);
        all.elapsed += warm.elapsed;
        all.cpu = all.cpu + warm.cpu;
        Outcome { whole: report(&all), steady: Some(steady), metrics }
    }
}

fn report(tally: &Tally, options: &Options, elapsed: Duration, cost: Cost) -> Report {
    let records = tally.sent.count();
    // Without a rate the intended send time is the actual one.
    let intended: &Latencies = if options.rate.is_some() { &tally.intended } else { &tally.sent };
    Report {
        errors: tally.errors,
        first_error: tally.first_error.as_ref().map(|error| error.report().to_string()),
        target_rps: options.rate,
        latency_us: summary(intended),
        send_latency_us: summary(&tally.sent),
        phases_us: PhasesReport {
            produce: summary(&tally.queue),
            acknowledge: summary(&tally.request),
            ..PhasesReport::default()
        },
        ..Figures { tool: "produce", records, bytes: tally.bytes, elapsed, cost }.report()
    }
}
