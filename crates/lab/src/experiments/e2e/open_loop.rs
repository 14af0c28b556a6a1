//! Records that are sent when they are due, whether the ones before have been read or not.

use std::time::Duration;

use curtail::{ConsumerConfig, ProducerConfig};

use super::super::{
    Sample, Testbed, Turn,
    check::{Order, read_back},
    load::{Keys, Load, Placement},
    phases::Observe,
    readers::{self, Expected, SharedOverTime, merged},
};
use crate::perf::Result;

pub(super) const PARTITIONS: i32 = 6;
/// Records a second.
const RATE: f64 = 2_000.0;
const SIZE: usize = 512;
const WARMUP: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(30);

/// One producer that does not linger, and one consumer that reads all partitions without a group with the arm's settings. Latencies are from the intended send time until the poll gave the record out.
pub(super) fn run(turn: &Turn<'_>, testbed: &Testbed, topic: &str) -> Result<Sample> {
    let config = ConsumerConfig::new(testbed.bootstrap());
    let config = readers::with_properties(config, turn.arm.properties)?;
    let runtime = readers::runtime()?;
    let consumers = readers::at_end(&runtime, &config, topic, 1)?;
    let measured = MEASURED.mul_f64(turn.setting.scale);
    let warmup = WARMUP.mul_f64(turn.setting.scale.clamp(0.1, 1.0));
    let load = Load {
        config: ProducerConfig::new(testbed.bootstrap()).linger(Duration::ZERO),
        topic: topic.to_owned(),
        records: (RATE * (warmup + measured).as_secs_f64()).ceil() as u64,
        warmup: (RATE * warmup.as_secs_f64()) as u64,
        rate: RATE,
        size: SIZE,
        keys: Keys::None,
        placement: Placement::Producer,
        seed: turn.setting.seed,
        warm_up: true,
        earlier: false,
    };
    let over_time = SharedOverTime::default();
    let (records, skipped) = (load.records, load.warmup);
    let (mut sent, mut read) = load.run_observed(testbed, Observe::Phases, |start| {
        let expected = Expected {
            start,
            rate: RATE,
            records,
            warmup: skipped,
            work: Duration::ZERO,
            over_time: over_time.clone(),
            apart: None,
        };
        readers::join(&runtime, readers::read(&runtime, consumers, &expected))
    })?;
    if let Some(first) = read.first_mut() {
        sent.read_by(std::mem::take(&mut first.readings));
    }
    let mut sample = sent.sample();
    read_back(&sent, Order::Acknowledged, &mut sample)?;
    read.iter().for_each(|read| read.add_to(&mut sample));
    let latency = merged(read.iter().flat_map(|read| read.latency.values()));
    readers::set_latency(&mut sample, latency, &over_time);
    Ok(sample)
}
