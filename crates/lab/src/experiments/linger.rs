//! Ninety producers share a modest throughput, so that each has little to put into a batch: the effect of a
//! small linger on requests and on the tail.
//!
//! The set-up is that of the post with a twelfth of its 90 MB/s and 36 of its 108 partitions: three brokers
//! in place of nine, and producers on the same machine. At that rate a producer rarely has two records for
//! one partition within the linger. The records are therefore keyless: each producer fills one partition at a
//! time.
//!
//! The post states neither its three configurations nor figures. The arms are its default of 0, and both ends
//! of the 5 to 10 ms that it recommends. In virtual time, brokers, partitions and throughput are the post's
//! own.

use std::time::Duration;

use super::{
    Arm, Arms, Condition, Experiment, Published, Sample, Setting, Simulated, Testbed, Turn,
    Workload,
    check::{Order, read_back},
    durability::{PARTITIONS, SIZE, SOURCE, WARMUP, of_the_post, quantile_ms},
    load::{Keys, Load, Senders},
    testbed::Needs,
};
use crate::{peers::Peer, perf::Result};

const PRODUCERS: usize = 90;
const REPLICAS: i16 = 3;
/// Rate of all producers together: 7.9 MB/s.
const RATE: f64 = 16_200.0;
const RUN: Duration = Duration::from_secs(15);

const NONE: Arm =
    Arm { name: "0", about: "linger.ms=0, the post's default", properties: &[("linger.ms", "0")] };
const FIVE: Arm =
    Arm { name: "5", about: "linger.ms=5, today's default", properties: &[("linger.ms", "5")] };
const TEN: Arm = Arm { name: "10", about: "linger.ms=10", properties: &[("linger.ms", "10")] };

/// `linger`.
pub(super) struct Linger;

impl Experiment for Linger {
    fn name(&self) -> &'static str {
        "linger"
    }

    fn about(&self) -> &'static str {
        "90 producers share a capped throughput: linger.ms 0, 5 and 10"
    }

    fn source(&self) -> &'static str {
        SOURCE
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![NONE, FIVE, TEN]
    }

    fn rounds(&self, setting: &Setting) -> u32 {
        (2.0 * setting.scale).ceil() as u32
    }

    /// The post shows its figures only as a picture.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let post = of_the_post(setting, arm, PRODUCERS as u32, REPLICAS);
        Ok(Simulated::from(Workload { keys: Keys::None, order: Order::Acknowledged, ..post }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        turn.testbed.create_topic(&topic, PARTITIONS, REPLICAS)?;
        let length = (WARMUP + RUN.mul_f64(turn.setting.scale)).as_secs_f64();
        let load = Load {
            records: (RATE * length) as u64,
            warmup: (RATE * WARMUP.as_secs_f64()) as u64,
            rate: RATE,
            size: SIZE,
            ..Load::new(turn, &topic)?
        };
        let (sent, ()) = turn.send_by(load, Senders::producers(PRODUCERS), |_| Ok(()))?;
        let mut sample = sent.sample();
        sent.note_requests(&mut sample);
        read_back(&sent, Order::Acknowledged, &mut sample)?;
        turn.testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        let Some(none) = arms.get(NONE.name) else { return conditions };
        for (arm, linger) in [(FIVE, 5.0), (TEN, 10.0)] {
            let Some(some) = arms.get(arm.name) else { continue };
            let limit = quantile_ms(none, 0.99) + linger;
            let what = format!(
                "linger {}: p99, compared with that of linger 0 plus the linger:",
                arm.name
            );
            conditions.push(Condition::below_ms(&what, quantile_ms(some, 0.99), limit));
        }
        conditions
    }
}
