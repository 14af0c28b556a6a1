//! A produce request that waits for a slow replica delays the requests after it on its connection.
//!
//! Brokers serve one request of a connection at a time. One broker falters: it is frozen for a part of each
//! half second, too short for the controller to fence it. Of the records sent to another broker, one in ten
//! goes to a partition that the faltering broker replicates, and its request waits. The others go to
//! partitions without a replica there, and only their latency counts.
//!
//! During the load, the same producer looks up unknown topics over a connection that carries no data.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use curtail::Producer;
use tokio::runtime::Runtime;

use super::{
    Arm, Arms, Condition, Experiment, Figure, Measured, Published, PublishedLatency, Sample,
    SentTo, Setting, Simulated, Testbed, Turn, Workload,
    check::{Order, read_back},
    durability::quantile_ms,
    load::{Load, Senders, Slot, rehearse, sleep_until},
    testbed::{Faltering, Needs},
    workload::{falter, properties, victim},
};
use crate::{
    latency::Latencies,
    over_time::OverTime,
    perf::{Error, Result, client_runtime},
};

/// Enough that one broker leads partitions with each of the others.
const PARTITIONS: i32 = 24;
const RATE: f64 = 2_000.0;
const SIZE: usize = 500;
const RUN: Duration = Duration::from_secs(12);
/// Of this many records, one goes to the partition with the slow replica.
const SLOW_ONE_OF: usize = 10;

const PERIOD: Duration = Duration::from_millis(500);
const FROZEN: Duration = Duration::from_millis(150);
/// Unknown topics that the producer looks up during a run.
const LOOKUPS: u32 = 20;

/// Limit of the p99 with a separate connection, as a multiple of the p99 without a slow replica.
const FACTOR: f64 = 2.0;

const NONE: Arm =
    Arm { name: "none", about: "no replica is slow, one connection", properties: &[] };
const SHARED: Arm = Arm {
    name: "shared",
    about: "slow requests and quick ones on one connection, five in flight",
    properties: &[],
};
const ONE_IN_FLIGHT: Arm = Arm {
    name: "in-flight-1",
    about: "the same with one in flight: delayed records wait in the producer",
    properties: &[("max.in.flight.requests.per.connection", "1")],
};
const APART: Arm = Arm {
    name: "apart",
    about: "slow requests on a separate connection (a second producer)",
    properties: &[],
};

/// `head-of-line`.
pub(super) struct HeadOfLine;

impl Experiment for HeadOfLine {
    fn name(&self) -> &'static str {
        "head-of-line"
    }

    fn about(&self) -> &'static str {
        "a produce request waits for a slow replica: latency of later requests on its connection and on another one"
    }

    fn source(&self) -> &'static str {
        "99th Percentile Latency at Scale with Apache Kafka; KIP-951, motivation"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![NONE, SHARED, ONE_IN_FLIGHT, APART]
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        vec![Published {
            arm: "metadata behind produce",
            source: "KIP-951",
            latency_us: PublishedLatency::default(),
            throughput_mbps: None,
            note: "a Metadata request behind slow produce requests: a few 100 ms in extreme cases",
        }]
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let (victim, run) = (victim(setting), length(setting));
        let (warmup, records) = records(run);
        let apart = arm.name == APART.name;
        Ok(Simulated::from(Workload {
            brokers: 3,
            partitions: PARTITIONS,
            replicas: 2,
            producers: if apart { 2 } else { 1 },
            properties: properties(&[("linger.ms", "0")], arm),
            records,
            warmup,
            rate: Some(RATE),
            size: SIZE,
            sent_to: SentTo::Beside { follower: victim, one_of: SLOW_ONE_OF, apart },
            order: Order::Sent,
            measured: Measured::Without { broker: victim },
            lookups: LOOKUPS,
            script: match arm.name == NONE.name {
                true => Vec::new(),
                false => falter(victim, run, PERIOD, FROZEN),
            },
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, faults: true, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        let (testbed, victim) = (turn.testbed, turn.victim());
        testbed.create_topic(&topic, PARTITIONS, 2)?;
        let described = testbed.describe(&topic)?;
        let copies = described.partitions.iter();
        let copies = copies.filter_map(|p| Some((p.partition, p.leader?, p.replicas.clone())));
        let places = Places::find(copies, victim)?;
        let unknown = lookup_topics(testbed, &topic)?;
        let run = length(turn.setting);
        let (warmup, records) = records(run);
        let base = Load::new(turn, &topic)?;
        let load = Load {
            config: base.config.clone().linger(Duration::ZERO),
            records,
            warmup,
            rate: RATE,
            size: SIZE,
            ..base
        };
        rehearse(&load, turn)?;
        let senders = places.senders(SLOW_ONE_OF, turn.arm.name == APART.name);
        let falters = turn.arm.name != NONE.name;
        let (sent, lookups) = turn.send_after(load, senders, |start, producers| {
            std::thread::scope(|scope| {
                let runtime = client_runtime()?;
                let lookups =
                    scope.spawn(move || look_up(&runtime, producers, &unknown, start, run));
                if falters {
                    let until = start + run;
                    let faltering =
                        Faltering { from: start, until, period: PERIOD, frozen: FROZEN };
                    testbed.falter(victim, &faltering)?;
                }
                lookups.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        testbed.await_healthy(&topic, PARTITIONS as usize)?;
        let mut sample = sent.sample();
        read_back(&sent, Order::Sent, &mut sample)?;
        let quick: BTreeSet<i32> = places.quick.iter().copied().collect();
        measure_quick(&mut sample, |partition| quick.contains(&partition), sent.acknowledged());
        note_lookups(&mut sample, &lookups);
        testbed.delete_topic(&topic)?;
        for index in 0..LOOKUPS {
            testbed.delete_topic(&lookup_topic(&topic, index))?;
        }
        Ok(sample)
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        let p99 = |arm: &Arm| Some(quantile_ms(arms.get(arm.name)?, 0.99));
        if let (Some(none), Some(shared)) = (p99(&NONE), p99(&SHARED)) {
            let half = FROZEN.as_secs_f64() * 500.0;
            conditions.push(Condition {
                text: format!("the effect exists: p99 {shared:.1} ms after slow requests, {none:.1} ms without"),
                held: shared > none && shared > half,
            });
        }
        if let (Some(none), Some(apart)) = (p99(&NONE), p99(&APART)) {
            conditions.push(Condition {
                text: format!(
                    "on separate connections: p99 within {FACTOR} times that without ({apart:.2} and {none:.2} ms)"
                ),
                held: apart <= FACTOR * none,
            });
        }
        if let Some(shared) = arms.get(SHARED.name) {
            let what = "metadata while produce requests wait: median";
            let limit = FROZEN.as_secs_f64() * 500.0;
            conditions.push(Condition::below_ms(what, shared.figure("lookup_p50_ms"), limit));
        }
        conditions
    }
}

fn length(setting: &Setting) -> Duration {
    RUN.mul_f64(setting.scale).max(PERIOD * 2)
}

/// Records of the warm-up, and of the whole load.
fn records(run: Duration) -> (u64, u64) {
    let records = RATE * run.as_secs_f64();
    ((records * 0.1) as u64, records as u64)
}

fn worst(latency: &Latencies, quantile: f64) -> Figure {
    Figure::Worst(latency.quantile(quantile).as_secs_f64() * 1000.0)
}

/// Adds the latency of unknown-topic lookups to the sample.
pub(super) fn note_lookups(sample: &mut Sample, lookups: &Latencies) {
    sample.note("lookup_p50_ms", worst(lookups, 0.5));
    sample.note("lookup_p90_ms", worst(lookups, 0.9));
}

/// Makes the latency of the quick partitions the sample's, and adds that of the others as figures. Each
/// record is given as its due time, its partition and its latency.
pub(super) fn measure_quick(
    sample: &mut Sample,
    is_quick: impl Fn(i32) -> bool,
    records: impl Iterator<Item = (u64, i32, u64)>,
) {
    let (mut quick, mut slow) = (Latencies::default(), Latencies::default());
    let mut over_time = OverTime::default();
    for (due, partition, took) in records {
        if is_quick(partition) {
            over_time.record(due, took);
            quick.record_nanos(took);
        } else {
            slow.record_nanos(took);
        }
    }
    (sample.latency, sample.over_time) = (quick, over_time);
    sample.note("slow_p99_ms", worst(&slow, 0.99));
}

/// Target partitions, all led by one broker.
pub(super) struct Places {
    /// Partitions without a replica on the faltering broker.
    quick: Vec<i32>,
    /// A partition that the faltering broker replicates.
    slow: i32,
}

impl Places {
    /// Finds them among partitions, each with its leader and its replicas.
    ///
    /// # Errors
    /// Replicas that are not spread like that.
    pub(super) fn find(
        copies: impl Iterator<Item = (i32, i32, Vec<i32>)>,
        victim: i32,
    ) -> Result<Self> {
        let copies: Vec<_> = copies.collect();
        let leaders: BTreeSet<i32> = copies.iter().map(|(_, leader, _)| *leader).collect();
        let led_by = |leader: i32| {
            let led = copies.iter().filter(move |(_, by, _)| *by == leader);
            let (slow, quick): (Vec<_>, Vec<_>) = led.partition(|(.., all)| all.contains(&victim));
            let quick: Vec<i32> = quick.iter().map(|(partition, ..)| *partition).collect();
            let slow = slow.first().map(|(partition, ..)| *partition);
            Some(Self { slow: slow.filter(|_| !quick.is_empty())?, quick })
        };
        let found = leaders.into_iter().filter(|leader| *leader != victim).find_map(led_by);
        found.ok_or_else(|| {
            Error::Unexpected(format!(
                "no broker leads partitions with broker {victim} and without"
            ))
        })
    }

    /// Sends to the quick partitions in turn and one record in `one_of` to the slow one, by a second producer
    /// if `apart`.
    pub(super) fn senders(&self, one_of: usize, apart: bool) -> Senders {
        let length = self.quick.len() * one_of;
        let slot = |index: usize| match (index + 1) % one_of {
            0 => Slot { producer: usize::from(apart), partition: Some(self.slow) },
            _ => Slot { producer: 0, partition: Some(self.quick[index % self.quick.len()]) },
        };
        Senders { slots: (0..length).map(slot).collect(), ..Senders::default() }
    }
}

fn lookup_topic(topic: &str, index: u32) -> String {
    format!("{topic}-unknown-{index}")
}

/// Topics that are unknown to the producer.
fn lookup_topics(testbed: &Testbed, topic: &str) -> Result<Vec<String>> {
    let topics: Vec<String> = (0..LOOKUPS).map(|index| lookup_topic(topic, index)).collect();
    for topic in &topics {
        testbed.create_topic(topic, 1, 1)?;
    }
    Ok(topics)
}

/// Looks up one topic after the other with the first producer, evenly over the run.
fn look_up(
    runtime: &Runtime,
    producers: &[Producer],
    topics: &[String],
    start: Instant,
    run: Duration,
) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    let pause = run / (topics.len().max(1) as u32 + 1);
    for (topic, after) in topics.iter().zip(1..) {
        sleep_until(start, pause * after);
        let asked = Instant::now();
        runtime.block_on(producers[0].partitions_for(topic))?;
        latencies.record(asked.elapsed());
    }
    Ok(latencies)
}
