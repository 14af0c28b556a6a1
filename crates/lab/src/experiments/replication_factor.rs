//! Cost of each further replica: one, two and three replicas with acks=all.

use super::{
    Arm, Arms, Condition, Experiment, Published, Sample, Setting, Simulated, Testbed, Turn,
    durability::{SOURCE, TARGET_MS, both_of_the_post, flat_out, measure, quantile_ms},
    testbed::Needs,
};
use crate::{
    peers::Peer,
    perf::{Error, Result},
};

const ONE: Arm = Arm { name: "1", about: "the leader alone", properties: &[] };
const TWO: Arm = Arm { name: "2", about: "one follower", properties: &[] };
const THREE: Arm =
    Arm { name: "3", about: "two followers: the slower one decides", properties: &[] };

/// `replication-factor`.
pub(super) struct ReplicationFactor;

impl Experiment for ReplicationFactor {
    fn name(&self) -> &'static str {
        "replication-factor"
    }

    fn about(&self) -> &'static str {
        "one, two and three replicas: latency at a steady rate, throughput without a limit"
    }

    fn source(&self) -> &'static str {
        SOURCE
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![ONE, TWO, THREE]
    }

    fn rounds(&self, setting: &Setting) -> u32 {
        (3.0 * setting.scale).ceil() as u32
    }

    /// The source describes the effect and gives no figures.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        Ok(both_of_the_post(setting, arm, replicas(arm)?).into())
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        measure(turn, self.name(), replicas(turn.arm)?)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        if let Some(three) = arms.get(THREE.name) {
            let p99 = quantile_ms(three, 0.99);
            conditions.push(Condition::below_ms("three replicas: p99", p99, TARGET_MS));
        }
        if let (Some(one), Some(three)) = (arms.get(ONE.name), arms.get(THREE.name)) {
            let (sooner, later) = (quantile_ms(one, 0.5), quantile_ms(three, 0.5));
            conditions.push(Condition {
                text: format!(
                    "replicas take time: p50 {later:.2} ms with three, {sooner:.2} with one"
                ),
                held: later > sooner,
            });
            let (one, three) = (flat_out(one), flat_out(three));
            conditions.push(Condition {
                text: format!(
                    "replicas take throughput, which is not divided by more than their number \
                     ({three:.1} MB/s with three, {one:.1} with one)"
                ),
                held: three < one && 3.0 * three >= one,
            });
        }
        conditions
    }
}

/// Number of replicas, which is the arm's name.
fn replicas(arm: &Arm) -> Result<i16> {
    arm.name.parse().map_err(|_| Error::Options(format!("no arm {}", arm.name)))
}
