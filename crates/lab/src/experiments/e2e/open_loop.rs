//! Records that are sent when they are due, whether the ones before have been read or not.

use std::time::Duration;

use curtail::ConsumerConfig;

use super::super::{
    Sample, Turn,
    check::Order,
    load::Load,
    readers::{self, Expected, SharedOverTime},
};
use crate::perf::Result;

const PARTITIONS: i32 = 6;
/// Records a second.
const RATE: f64 = 2_000.0;
const SIZE: usize = 512;
const WARMUP: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(30);

/// One producer that does not linger, and one consumer that reads all partitions without a group. Latencies are from the
/// intended send time until the poll gave the record out.
pub(super) fn run(turn: &Turn<'_>, topic: &str) -> Result<Sample> {
    let testbed = turn.testbed;
    testbed.create_topic(topic, PARTITIONS, 1)?;
    let runtime = readers::runtime()?;
    let consumers = readers::at_end(&runtime, &ConsumerConfig::new(testbed.bootstrap()), topic, 1)?;
    let measured = MEASURED.mul_f64(turn.setting.scale);
    let warmup = WARMUP.mul_f64(turn.setting.scale.clamp(0.1, 1.0));
    let load = Load {
        config: testbed.producer().linger(Duration::ZERO),
        records: (RATE * (warmup + measured).as_secs_f64()).ceil() as u64,
        warmup: (RATE * warmup.as_secs_f64()) as u64,
        rate: RATE,
        size: SIZE,
        ..Load::new(turn, topic)?
    };
    let over_time = SharedOverTime::default();
    let (records, skipped) = (load.records, load.warmup);
    let (sent, read) = turn.send(load, |start| {
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
    readers::sample(sent, Order::Acknowledged, read, &over_time)
}
