//! Preferred leaders return: what the last step of a rolling restart costs.
//!
//! A broker that has restarted leads nothing until an election gives it back the partitions of which it is the first replica
//! (`kafka-leader-election --election-type preferred`, or `auto.leader.rebalance.enable`). The broker is healthy and in sync, so
//! nothing in the cluster fails. The cost is that of the move itself, and is compared with the time before it. The load is that of
//! [`roll`](super::roll).

use std::time::{Duration, Instant};

use curtail::admin::{PartitionDescription, TopicDescription};

use super::{
    Arm, Arms, Condition, Experiment, Figure, Published, Sample, Setting, Testbed, Turn,
    check::read_back,
    load::{Load, nanos, rehearse_elsewhere, sleep_until, worst_ms},
    observer::watch,
    roll::{RATE, REPLICAS, SIZE, keys, order, partitions},
    testbed::Needs,
};
use crate::{
    latency::Latencies,
    peers::Peer,
    perf::{Error, Result},
};

const BROKERS: u32 = 3;
/// The measured parts of a run: before the leaders return, and from then on.
const STEADY: Duration = Duration::from_secs(10);
const RETURN: Duration = Duration::from_secs(5);
/// Largest p99 while the leaders return, as a multiple of that before.
const FACTOR: f64 = 1.5;
/// Longest time until every broker's metadata names the preferred leaders.
const LIMIT: Duration = Duration::from_secs(20);

const FEW_KEYLESS: Arm = arm("few-keyless", "12 partitions, no keys");
const FEW_KEYED: Arm = arm("few-keyed", "12 partitions, keys");
const MANY_KEYLESS: Arm = arm("many-keyless", "120 partitions, no keys");
const MANY_KEYED: Arm = arm("many-keyed", "120 partitions, keys");
const ARMS: [Arm; 4] = [FEW_KEYLESS, FEW_KEYED, MANY_KEYLESS, MANY_KEYED];

const fn arm(name: &'static str, about: &'static str) -> Arm {
    Arm { name, about, properties: &[] }
}

/// `preferred-return`.
pub(super) struct PreferredReturn;

impl Experiment for PreferredReturn {
    fn name(&self) -> &'static str {
        "preferred-return"
    }

    fn about(&self) -> &'static str {
        "a restarted broker leads its partitions again: latency during the move, compared with that before"
    }

    fn source(&self) -> &'static str {
        "KIP-951, roll simulation"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        ARMS.to_vec()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: BROKERS, faults: true, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        let testbed = turn.testbed;
        let partitions = partitions(turn.arm.name);
        let steady = STEADY.mul_f64(turn.setting.scale.max(0.1));
        let until = steady + RETURN.mul_f64(turn.setting.scale.max(0.1));
        let base = Load::new(turn, &topic)?;
        let load = Load {
            config: base.config.clone().linger(Duration::ZERO),
            records: (RATE * until.as_secs_f64()) as u64,
            rate: RATE,
            size: SIZE,
            keys: keys(turn.arm.name),
            ..base
        };
        rehearse_elsewhere(&load, turn, partitions, |_, _| Ok(()))?;
        testbed.create_topic(&topic, partitions, REPLICAS)?;
        let led_before = take_leaders(testbed, &topic, partitions)?;
        let (sent, (asked, known)) = turn.send(load, |start| {
            sleep_until(start, steady);
            bring_back(testbed, &topic)
        })?;
        let mut sample = sent.sample();
        sample.mark(sent.start, asked, known, "preferred leaders return, until every broker knows");
        read_back(&sent, order(turn.arm.name), &mut sample)?;
        let before = nanos(steady);
        compare(&mut sample, sent.acknowledged().map(|(due, _, took)| (due < before, took)));
        sample.note("leaders_returned", Figure::Total(led_before as f64));
        sample.note("stall_ms", worst_ms(sent.longest_silence(0)));
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        for arm in ARMS {
            let Some(sample) = arms.get(arm.name) else { continue };
            let factor = sample.figure("p99_factor");
            conditions.push(Condition {
                text: format!(
                    "{}: p99 while leaders return at most {FACTOR} times that before ({factor:.2})",
                    arm.name
                ),
                held: factor <= FACTOR,
            });
        }
        conditions
    }
}

/// Restarts a broker, which then leads nothing. Returns how many partitions it led.
fn take_leaders(testbed: &Testbed, topic: &str, partitions: i32) -> Result<usize> {
    let all = usize::try_from(partitions).unwrap_or(0);
    testbed.await_healthy(topic, all)?;
    let ids = testbed.broker_ids();
    let id = *ids.first().ok_or_else(|| Error::Options("no broker can be restarted".into()))?;
    testbed.stop(id)?;
    testbed.restart(id)?;
    testbed.await_healthy(topic, all)?;
    let described = testbed.describe(topic)?.partitions;
    match described.iter().filter(|p| !has_preferred_leader(p)).count() {
        0 => Err(Error::Unexpected(format!("broker {id} kept its leaders"))),
        moved => Ok(moved),
    }
}

/// Elects the preferred leaders. Returns when that was requested, and when every broker's metadata named them.
fn bring_back(testbed: &Testbed, topic: &str) -> Result<(Instant, Instant)> {
    let brokers = testbed.broker_ids();
    let preferred = |now: &TopicDescription| now.partitions.iter().all(has_preferred_leader);
    let elect = |_| testbed.elect_preferred(topic);
    let (asked, elected, seen) = watch(testbed, &brokers, topic, LIMIT, preferred, elect)?;
    elected?;
    Ok((asked, asked + seen?.all))
}

fn has_preferred_leader(partition: &PartitionDescription) -> bool {
    partition.leader.is_some() && partition.leader == partition.replicas.first().copied()
}

/// Adds the percentiles of both parts. Each record is given as whether it was due before the return, and its latency.
fn compare(sample: &mut Sample, records: impl Iterator<Item = (bool, u64)>) {
    let (mut before, mut during) = (Latencies::default(), Latencies::default());
    for (is_before, took) in records {
        let latencies = if is_before { &mut before } else { &mut during };
        latencies.record_nanos(took);
    }
    let ms = |latencies: &Latencies, quantile| latencies.quantile(quantile).as_secs_f64() * 1e3;
    let (steady_ms, return_ms) = (ms(&before, 0.99), ms(&during, 0.99));
    sample.note("steady_p99_ms", Figure::Worst(steady_ms));
    sample.note("return_p99_ms", Figure::Worst(return_ms));
    sample.note("return_p999_ms", Figure::Worst(ms(&during, 0.999)));
    sample.note("p99_factor", Figure::Worst(return_ms / steady_ms));
}
