//! Producing on one broker: as fast as possible, and at a rate that every client can keep.

use super::{
    Arm, Arms, Condition, Experiment, Published, Sample, Setting, Testbed, Turn,
    check::{Order, read_back},
    load::{Load, with_properties},
    testbed::Needs,
};
use crate::{
    peers::Peer,
    perf::{Error, Result},
};

const PARTITIONS: i32 = 6;
/// Part of the records, at the start, that is not measured: 1 / 10.
const WARMUP: u64 = 10;

struct Case {
    arm: Arm,
    /// Records of the measured part and the warm-up at scale 1.
    records: f64,
    rate: f64,
    size: usize,
}

const CASES: [Case; 3] = [
    fast("max-100", "records of 100 bytes, as fast as possible", 6e6, 100),
    fast("max-1000", "records of 1000 bytes, as fast as possible", 1.2e6, 1000),
    Case {
        arm: Arm {
            name: "rate-10000",
            about: "10,000 records/s of 1000 bytes, linger.ms=0",
            properties: &[("linger.ms", "0")],
        },
        records: 2e5,
        rate: 10_000.0,
        size: 1000,
    },
];

const fn fast(name: &'static str, about: &'static str, records: f64, size: usize) -> Case {
    Case { arm: Arm { name, about, properties: &[] }, records, rate: f64::INFINITY, size }
}

/// `produce`.
pub(super) struct Produce;

impl Experiment for Produce {
    fn name(&self) -> &'static str {
        "produce"
    }

    fn about(&self) -> &'static str {
        "a producer on one broker: as fast as possible, and 10,000 records/s"
    }

    fn source(&self) -> &'static str {
        "kafka-producer-perf-test, with each client's default settings"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        CASES.iter().map(|case| case.arm).collect()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        3
    }

    /// Figures of other machines would not compare.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 1, one_is_enough: true, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let case = CASES.iter().find(|case| case.arm.name == turn.arm.name);
        let case = case.ok_or_else(|| Error::Options(format!("no arm {}", turn.arm.name)))?;
        let topic = turn.topic(self.name());
        turn.testbed.create_topic(&topic, PARTITIONS, 1)?;
        let records = (case.records * turn.setting.scale).ceil() as u64;
        let config = turn.testbed.producer();
        let load = Load {
            config: with_properties(config, turn.arm.properties)?,
            records,
            warmup: records / WARMUP,
            rate: case.rate,
            size: case.size,
            ..Load::new(turn, &topic)?
        };
        let (sent, ()) = turn.send(load, |_| Ok(()))?;
        let mut sample = sent.sample();
        read_back(&sent, Order::Sent, &mut sample)?;
        turn.testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        arms.intact()
    }
}
