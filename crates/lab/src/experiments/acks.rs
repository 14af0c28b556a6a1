//! Cost of waiting for more replicas: `acks` 0, 1 and all, in latency at a steady rate and in throughput
//! without a limit.

use super::{
    Arm, Arms, Condition, Experiment, Published, PublishedLatency, Sample, Setting, Simulated,
    Testbed, Turn,
    durability::{SOURCE, TARGET_MS, both_of_the_post, flat_out, measure, quantile_ms},
    testbed::Needs,
};
use crate::{peers::Peer, perf::Result};

const REPLICAS: i16 = 3;
/// Required throughput with all, relative to that with 1: the post's 161 of 195 MB/s.
const SHARE: f64 = 161.0 / 195.0;

const NONE: Arm = Arm {
    name: "0",
    about: "no acknowledgement: produce time alone",
    properties: &[("acks", "0")],
};
const LEADER: Arm = Arm {
    name: "1",
    about: "the leader acknowledges: publish time, too",
    properties: &[("acks", "1")],
};
const ALL: Arm = Arm {
    name: "all",
    about: "acknowledged by all in-sync replicas: commit time, too",
    properties: &[("acks", "all")],
};

/// `acks`.
pub(super) struct Acks;

impl Experiment for Acks {
    fn name(&self) -> &'static str {
        "acks"
    }

    fn about(&self) -> &'static str {
        "acks 0, 1 and all: latency at a steady rate, throughput without a limit"
    }

    fn source(&self) -> &'static str {
        SOURCE
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![NONE, LEADER, ALL]
    }

    fn rounds(&self, setting: &Setting) -> u32 {
        (3.0 * setting.scale).ceil() as u32
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        let published = |arm, mbps| Published {
            arm,
            source: SOURCE,
            latency_us: PublishedLatency::default(),
            throughput_mbps: Some(mbps),
            note: "without a limit: nine producers, nine consumers, nine r5.xlarge in three zones, SASL_SSL, lz4",
        };
        vec![published(LEADER.name, 195.0), published(ALL.name, 161.0)]
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        Ok(both_of_the_post(setting, arm, REPLICAS).into())
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        measure(turn, self.name(), REPLICAS)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        if let Some(all) = arms.get(ALL.name) {
            let p99 = quantile_ms(all, 0.99);
            conditions.push(Condition::below_ms("acks=all: p99", p99, TARGET_MS));
        }
        if let (Some(leader), Some(all)) = (arms.get(LEADER.name), arms.get(ALL.name)) {
            let median = |sample| quantile_ms(sample, 0.5);
            let (sooner, later) = (median(leader), median(all));
            conditions.push(Condition {
                text: format!(
                    "acks=all waits for the commit: p50 {later:.2} ms, acks=1 {sooner:.2} ms"
                ),
                held: later > sooner,
            });
            let (leader, all) = (flat_out(leader), flat_out(all));
            conditions.push(Condition {
                text: format!(
                    "throughput with acks=all at least {:.0}% of that with acks=1 ({all:.1} and {leader:.1} MB/s)",
                    100.0 * SHARE
                ),
                held: all >= SHARE * leader,
            });
        }
        conditions
    }
}
