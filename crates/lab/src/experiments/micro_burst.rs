//! Many clients that happen to send at the same time: the requests of a burst queue up at the brokers, and
//! the last ones wait longest. A small linger reduces their number.
//!
//! All producers have records at the same time, for many partitions. The same records spread evenly over time
//! show the cost of the burst.

use std::time::Duration;

use super::{
    Arm, Arms, Condition, Experiment, Published, Sample, Setting, Simulated, Testbed, Turn,
    Workload,
    check::{Order, read_back},
    durability::{KEYS, PARTITIONS, SOURCE, WARMUP, quantile_ms},
    load::{Keys, Load, Senders},
    testbed::Needs,
    workload::properties,
};
use crate::{peers::Peer, perf::Result};

const PRODUCERS: usize = 24;
const REPLICAS: i16 = 3;
const SIZE: usize = 100;
/// Bursts per second, and records per burst: ten from each producer.
const BURSTS: f64 = 10.0;
const BURST: u64 = 240;
const RUN: Duration = Duration::from_secs(15);

const LINGER: f64 = 5.0;
/// Largest ratio of the requests with a linger to those without.
const REQUESTS: f64 = 0.8;

const EVEN: Arm = Arm {
    name: "even",
    about: "linger.ms=0, the records evenly spread",
    properties: &[("linger.ms", "0")],
};
const BURSTING: Arm = Arm {
    name: "burst",
    about: "linger.ms=0, all producers at the same time",
    properties: &[("linger.ms", "0")],
};
const LINGERING: Arm = Arm {
    name: "burst-linger",
    about: "the same with linger.ms=5",
    properties: &[("linger.ms", "5")],
};

/// `micro-burst`.
pub(super) struct MicroBurst;

impl Experiment for MicroBurst {
    fn name(&self) -> &'static str {
        "micro-burst"
    }

    fn about(&self) -> &'static str {
        "24 producers that send at the same time: the tail of a burst, with and without a small linger"
    }

    fn source(&self) -> &'static str {
        SOURCE
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![EVEN, BURSTING, LINGERING]
    }

    fn rounds(&self, setting: &Setting) -> u32 {
        (2.0 * setting.scale).ceil() as u32
    }

    /// The source describes the effect and gives no figures.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let (warmup, records) = records(setting);
        Ok(Simulated::from(Workload {
            brokers: 3,
            partitions: PARTITIONS,
            replicas: REPLICAS,
            producers: PRODUCERS as u32,
            client_hosts: PRODUCERS as u32,
            properties: properties(&[], arm),
            records,
            warmup,
            rate: Some(BURSTS * BURST as f64),
            size: SIZE,
            burst: burst(arm),
            keys: Keys::Cycle(KEYS),
            order: Order::SentInTurn(PRODUCERS as u64),
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        turn.testbed.create_topic(&topic, PARTITIONS, REPLICAS)?;
        let (warmup, records) = records(turn.setting);
        let load = Load {
            records,
            warmup,
            rate: BURSTS * BURST as f64,
            size: SIZE,
            keys: Keys::Cycle(KEYS),
            ..Load::new(turn, &topic)?
        };
        let senders = Senders { burst: burst(turn.arm), ..Senders::producers(PRODUCERS) };
        let (sent, ()) = turn.send_by(load, senders, |_| Ok(()))?;
        let mut sample = sent.sample();
        sent.note_requests(&mut sample);
        read_back(&sent, Order::SentInTurn(PRODUCERS as u64), &mut sample)?;
        turn.testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        let Some(burst) = arms.get(BURSTING.name) else { return conditions };
        let p99 = quantile_ms(burst, 0.99);
        if let Some(even) = arms.get(EVEN.name) {
            let even = quantile_ms(even, 0.5);
            let median = quantile_ms(burst, 0.5);
            conditions.push(Condition {
                text: format!(
                    "the effect exists: p50 {median:.2} ms at the same time, {even:.2} ms evenly spread"
                ),
                held: median > even,
            });
        }
        if let Some(linger) = arms.get(LINGERING.name) {
            let what = "p99 with a linger, compared with that without plus the linger:";
            let limit = p99 + LINGER;
            conditions.push(Condition::below_ms(what, quantile_ms(linger, 0.99), limit));
            let (few, many) = (linger.figure("requests"), burst.figure("requests"));
            conditions.push(Condition {
                text: format!(
                    "at most {:.0}% of the requests with a linger ({few:.0} of {many:.0})",
                    100.0 * REQUESTS
                ),
                held: few <= REQUESTS * many,
            });
        }
        conditions
    }
}

/// Records of the warm-up, and of the whole load.
fn records(setting: &Setting) -> (u64, u64) {
    let before = (BURSTS * WARMUP.as_secs_f64()) as u64;
    let bursts = (BURSTS * RUN.as_secs_f64() * setting.scale).ceil() as u64;
    (BURST * before, BURST * (before + bursts))
}

/// Number of records due at the same time.
fn burst(arm: &Arm) -> u64 {
    if arm.name == EVEN.name { 1 } else { BURST }
}
