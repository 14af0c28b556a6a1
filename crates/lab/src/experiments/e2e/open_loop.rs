//! Open loop: records are sent when they are due, whether or not earlier ones have been read.

use std::time::Duration;

use curtail::ConsumerConfig;

use super::super::{
    Arm, ClusterKind, LatencyUntil, Readers, Sample, Setting, Turn, Workload,
    check::{Order, read_back},
    load::{Load, sleep_until},
    readers::{self, Expected, SharedOverTime},
    workload::properties,
};
use crate::{cpu::CpuTime, peers::Driver, perf::Result};

const PARTITIONS: i32 = 6;
/// Records per second.
const RATE: f64 = 2_000.0;
const SIZE: usize = 512;
const WARMUP: Duration = Duration::from_secs(5);
/// Warm-up of Apache Kafka's brokers, which keep compiling code for small requests: they pause for 3 to 20 ms
/// ten times a second in the first five seconds, and still twice a second after fifteen.
const WARMUP_OF_A_JVM: Duration = Duration::from_secs(180);
const MEASURED: Duration = Duration::from_secs(30);

/// Runs one producer without linger, and one consumer that reads all partitions without a group. Latencies
/// are from the intended send time until the poll that returned the record.
pub(super) fn run(turn: &Turn<'_>, topic: &str) -> Result<Sample> {
    let testbed = turn.testbed;
    testbed.create_topic(topic, PARTITIONS, 1)?;
    let warmup = match turn.setting.cluster {
        ClusterKind::Apache => WARMUP_OF_A_JVM,
        _ => WARMUP,
    };
    let warmup = records_of(warmup.mul_f64(turn.setting.scale.clamp(0.1, 1.0)));
    let load = Load {
        config: testbed.producer().linger(Duration::ZERO),
        records: records_of(MEASURED.mul_f64(turn.setting.scale)),
        rate: RATE,
        size: SIZE,
        ..Load::new(turn, topic)?
    };
    match turn.driver {
        None => ours(turn, load, warmup),
        Some(driver) => theirs(turn, driver, load, warmup),
    }
}

/// The same workload in virtual time.
pub(super) fn simulated(setting: &Setting, arm: &Arm) -> Workload {
    let warmup = records_of(WARMUP.mul_f64(setting.scale.clamp(0.1, 1.0)));
    Workload {
        brokers: 1,
        partitions: PARTITIONS,
        replicas: 1,
        properties: properties(&[("linger.ms", "0")], arm),
        records: warmup + records_of(MEASURED.mul_f64(setting.scale)),
        warmup,
        rate: Some(RATE),
        size: SIZE,
        order: Order::Acknowledged,
        readers: Some(Readers::default()),
        ..Workload::default()
    }
}

fn records_of(time: Duration) -> u64 {
    (RATE * time.as_secs_f64()).ceil() as u64
}

fn ours(turn: &Turn<'_>, load: Load, warmup: u64) -> Result<Sample> {
    let testbed = turn.testbed;
    let runtime = readers::runtime()?;
    let consumer = ConsumerConfig::new(testbed.bootstrap());
    let consumers = readers::at_end(&runtime, &consumer, &load.topic, 1)?;
    let load = Load { records: warmup + load.records, warmup, ..load };
    let over_time = SharedOverTime::default();
    let records = load.records;
    let (sent, (read, cpu)) = turn.send(load, |start| {
        let expected = Expected {
            warmup,
            over_time: over_time.clone(),
            ..Expected::new(start, RATE, records)
        };
        let reading = readers::read(&runtime, consumers, &expected);
        // CPU time counts after the warm-up, as in the drivers of the other clients.
        sleep_until(start, Duration::from_secs_f64(warmup as f64 / RATE));
        let before = CpuTime::now();
        let read = readers::join(&runtime, reading)?;
        Ok((read, CpuTime::now() - before))
    })?;
    Ok(Sample { cpu, ..readers::sample(sent, Order::Acknowledged, read, &over_time)? })
}

/// Runs producer and consumer of another client.
fn theirs(turn: &Turn<'_>, driver: &Driver, load: Load, warmup: u64) -> Result<Sample> {
    let brokers_here = turn.setting.cluster == ClusterKind::Embedded;
    let sent = load.sent_and_read_by(driver, brokers_here, warmup)?;
    let mut sample = Sample { latency_until: LatencyUntil::Polled, ..sent.sample() };
    read_back(&sent, Order::Sent, &mut sample)?;
    Ok(sample)
}
