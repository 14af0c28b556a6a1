//! The first records of a new producer, with and without `warm_up`.

use std::time::Duration;

use super::{
    Arm, Arms, Condition, Experiment, Published, Sample, Setting, Testbed, Turn,
    check::{Order, read_back},
    load::{Load, Senders, WarmUp, rehearse},
    testbed::Needs,
};
use crate::{peers::Peer, perf::Result};

const PARTITIONS: i32 = 12;
const REPLICAS: i16 = 3;
const RATE: f64 = 5000.0;
const SIZE: usize = 1000;
/// Measured part of a producer's life.
const FIRST: Duration = Duration::from_secs(2);
/// The slowest record after `warm_up` must be faster than this.
const LIMIT_MS: f64 = 15.0;

const WARM: Arm =
    Arm { name: "warm-up", about: "Producer::warm_up before the first record", properties: &[] };
const COLD: Arm =
    Arm { name: "cold", about: "the first send fetches metadata and connects", properties: &[] };

/// `cold-start`.
pub(super) struct ColdStart;

impl Experiment for ColdStart {
    fn name(&self) -> &'static str {
        "cold-start"
    }

    fn about(&self) -> &'static str {
        "the slowest record of a new producer's first two seconds, with and without warm_up"
    }

    fn source(&self) -> &'static str {
        "KAFKA-13115"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![WARM, COLD]
    }

    fn rounds(&self, setting: &Setting) -> u32 {
        (5.0 * setting.scale).ceil() as u32
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        turn.testbed.create_topic(&topic, PARTITIONS, REPLICAS)?;
        let scale = turn.setting.scale;
        let load = Load {
            config: turn.testbed.producer(),
            records: (RATE * FIRST.as_secs_f64() * scale).ceil() as u64,
            rate: RATE,
            size: SIZE,
            ..Load::new(turn, &topic)?
        };
        // The brokers' own first records must not count for the producer.
        Load { earlier: true, ..load.clone() }.run(|_| Ok(()))?;
        rehearse(&load, turn)?;
        let warm_up =
            if turn.arm.name == WARM.name { WarmUp::Connections } else { WarmUp::Nothing };
        let (sent, ()) =
            turn.send_after(Load { warm_up, ..load }, Senders::default(), |_, _| Ok(()))?;
        let mut sample = sent.sample();
        let first = if turn.arm.name == WARM.name { "after warm_up" } else { "without warm_up" };
        let what = format!("first record of a new producer, {first}");
        sample.mark(sent.start, sent.start, sent.start, what);
        read_back(&sent, Order::Acknowledged, &mut sample)?;
        turn.testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, arm: &Arm, _: Peer) -> Result<(), &'static str> {
        let cold = arm.name == COLD.name;
        cold.then_some(()).ok_or("it has no equivalent of Producer::warm_up")
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        if let Some(sample) = arms.get(WARM.name) {
            let slowest = sample.latency.max().as_secs_f64() * 1000.0;
            conditions.push(Condition::below_ms("slowest record after warm_up", slowest, LIMIT_MS));
        }
        conditions
    }
}
