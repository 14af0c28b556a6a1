//! The sixteen tasks that send, and their observations.

use std::{
    hint::black_box,
    sync::{Arc, Barrier},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use curtail::{Delivery, Producer, Record};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use tokio::runtime::Handle;

use super::{
    super::{Figure, LatencyUntil, Sample, load::nanos},
    locked::LockedCache,
};
use crate::{
    cpu::Switches,
    latency::Latencies,
    over_time::OverTime,
    perf::{Error, Pacer, Result, sleep_precisely},
};

/// Tasks.
pub(super) const SENDERS: u32 = 16;
/// Records per second of each.
pub(super) const RATE: f64 = 250.0;
pub(super) const SIZE: usize = 100;
/// Warm-up of each sender, as a part of its measured records, so that the first updates are complete.
pub(super) const WARMUP: f64 = 0.1;

/// State that all senders share.
#[derive(Clone)]
pub(super) struct Load {
    pub(super) producer: Producer,
    /// Cache in which to look up the partition before each send.
    pub(super) cache: Option<Arc<LockedCache>>,
    pub(super) names: Arc<[Arc<str>]>,
    pub(super) partitions: usize,
    /// Length of the measured part.
    pub(super) length: Duration,
    pub(super) seed: u64,
}

/// Running tasks.
pub(super) struct Senders {
    threads: Vec<JoinHandle<Result<Seen>>>,
    begin: Instant,
}

/// Observations of one task.
#[derive(Default)]
struct Seen {
    records: u64,
    errors: u64,
    first_error: Option<String>,
    elapsed: Duration,
    send: Latencies,
    over_time: OverTime,
    /// Latencies of sends that were not preempted.
    undisturbed: Latencies,
    preempted: u64,
    waited: u64,
}

impl Senders {
    pub(super) fn start(load: &Load, runtime: &Handle) -> Result<Self> {
        let warmup = load.length.mul_f64(WARMUP);
        // All threads are running before the first record is due.
        let ready = Arc::new(Barrier::new(SENDERS as usize + 1));
        let start = Instant::now() + Duration::from_millis(50);
        let threads = (0..SENDERS).map(|number| {
            let (load, ready, runtime) = (load.clone(), ready.clone(), runtime.clone());
            let thread = std::thread::Builder::new().name(format!("sender-{number}"));
            thread.spawn(move || {
                ready.wait();
                load.send(number, start, &runtime)
            })
        });
        let threads = threads.collect::<std::io::Result<Vec<_>>>().map_err(Error::Threads)?;
        ready.wait();
        Ok(Self { threads, begin: start + warmup })
    }

    /// Waits until the measured part begins.
    pub(super) fn wait_for_start(&self) {
        std::thread::sleep(self.begin.saturating_duration_since(Instant::now()));
    }

    /// Waits until the last record has its outcome.
    pub(super) fn join(self) -> Result<Sample> {
        let mut sample = Sample { latency_until: LatencyUntil::Returned, ..Sample::default() };
        let mut undisturbed = Latencies::default();
        let (mut preempted, mut waited) = (0, 0);
        for thread in self.threads {
            let failed = |_| Error::Unexpected("a sender has panicked".into());
            let seen = thread.join().map_err(failed)??;
            sample.records += seen.records;
            sample.bytes += seen.records * SIZE as u64;
            sample.errors += seen.errors;
            sample.first_error = sample.first_error.or(seen.first_error);
            sample.elapsed = sample.elapsed.max(seen.elapsed);
            sample.latency.add(&seen.send);
            sample.over_time.add(&seen.over_time);
            undisturbed.add(&seen.undisturbed);
            preempted += seen.preempted;
            waited += seen.waited;
        }
        sample.note("sends_preempted", Figure::Total(preempted as f64));
        sample.note("sends_that_waited", Figure::Total(waited as f64));
        let p99 = undisturbed.summary().p99;
        sample.note("p99_of_sends_not_preempted_us", Figure::Worst(p99));
        Ok(sample)
    }
}

impl Load {
    fn send(&self, number: u32, start: Instant, runtime: &Handle) -> Result<Seen> {
        sleep_precisely();
        let mut random = SmallRng::seed_from_u64(self.seed.wrapping_add(u64::from(number)));
        // Spreads the tasks evenly between each other's records.
        let offset = Duration::from_secs_f64(f64::from(number) / (RATE * f64::from(SENDERS)));
        let pacer = Pacer::new(start + offset, RATE);
        let measured = (self.length.as_secs_f64() * RATE).ceil() as u64;
        let warmup = (measured as f64 * WARMUP) as u64;
        let value = [b'v'; SIZE];
        let mut seen = Seen::default();
        let mut deliveries: Vec<Delivery> = Vec::with_capacity((warmup + measured) as usize);
        let mut returned = start;
        for index in 0..warmup + measured {
            let topic = &self.names[random.random_range(0..self.names.len())];
            let partition = random.random_range(0..self.partitions);
            let record = Record::to(topic).partition(partition as i32).value(&value);
            let (due, _) = pacer.wait(index);
            let before = Switches::of_this_thread();
            // A late timer is not the send's fault, but a slow previous send is.
            let called = if returned > due { due } else { Instant::now() };
            if let Some(cache) = &self.cache {
                black_box(cache.look_up(topic, partition));
            }
            let delivery = runtime.block_on(self.producer.send(record));
            returned = Instant::now();
            let switches = Switches::of_this_thread() - before;
            deliveries.push(delivery?);
            if index >= warmup {
                seen.note(due - start, returned - called, switches);
            }
        }
        seen.elapsed = returned.saturating_duration_since(pacer.due(warmup));
        for delivery in deliveries.drain(..).skip(warmup as usize) {
            seen.settled(runtime.block_on(delivery));
        }
        Ok(seen)
    }
}

impl Seen {
    fn note(&mut self, due: Duration, send: Duration, switches: Switches) {
        self.send.record(send);
        self.over_time.record(nanos(due), nanos(send));
        self.waited += u64::from(switches.waits > 0);
        if switches.preemptions > 0 {
            self.preempted += 1;
        } else {
            self.undisturbed.record(send);
        }
    }

    fn settled(&mut self, outcome: curtail::Result<curtail::RecordMetadata>) {
        match outcome {
            Ok(_) => self.records += 1,
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| error.report().to_string());
            }
        }
    }
}
