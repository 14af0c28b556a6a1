//! Latency of partitions on healthy brokers while another broker is frozen or slow.
//!
//! One producer sends to partitions that the impaired broker leads and to partitions without a replica on it;
//! only the latency of the latter counts. The broker is impaired repeatedly within a run. Each impaired
//! period is compared with the period before it, which has the same load. The arm `none` shows how much the
//! two differ by chance.

use std::time::Duration;

use curtail::admin::TopicDescription;

use super::{
    Act, Arm, Arms, Condition, Experiment, Figure, Measured, Published, Sample, SentTo, Setting,
    Simulated, Testbed, Turn, When, Workload,
    check::{Order, read_back},
    durability::quantile_ms,
    load::{Load, Senders},
    testbed::Needs,
    windows::{Part, Windows},
    workload::properties,
};
use crate::{
    latency::Latencies,
    over_time::OverTime,
    peers::Peer,
    perf::{Error, Result},
};

const PARTITIONS: i32 = 12;
const RATE: f64 = 4_000.0;
const SIZE: usize = 1_000;
/// The impaired broker. On Apache Kafka it is the one with the delaying proxy.
const VICTIM: i32 = 1;
/// Additional delay of a slow broker's responses.
const DELAY: Duration = Duration::from_millis(20);

/// Largest ratio of the other partitions' p99.9 to that of the period before.
const FACTOR: f64 = 1.25;

const FROZEN: Arm = Arm {
    name: "frozen",
    about: "the broker is frozen for seconds, too short to be fenced",
    properties: &[],
};
const SLOW: Arm = Arm { name: "slow", about: "the broker responds 20 ms later", properties: &[] };
const NONE: Arm = Arm { name: "none", about: "no fault", properties: &[] };

/// `bystanders`.
pub(super) struct Bystanders;

impl Experiment for Bystanders {
    fn name(&self) -> &'static str {
        "bystanders"
    }

    fn about(&self) -> &'static str {
        "one of three brokers frozen or slow: p99.9 of partitions without a replica on it"
    }

    fn source(&self) -> &'static str {
        "Curtail; librdkafka#2677"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![FROZEN, SLOW, NONE]
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let windows = windows(setting);
        Ok(Simulated::from(Workload {
            brokers: 3,
            partitions: PARTITIONS,
            replicas: 2,
            properties: properties(&[("linger.ms", "0")], arm),
            records: (RATE * windows.whole().as_secs_f64()) as u64,
            rate: Some(RATE),
            size: SIZE,
            sent_to: SentTo::WithoutOrLedBy(VICTIM),
            order: Order::Sent,
            measured: Measured::Bystanders { broker: VICTIM, windows },
            script: script(arm, &windows),
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        let needs = Needs { brokers: 3, faults: true, slow: Some(VICTIM), ..Needs::default() };
        Testbed::start(setting, &needs)
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        let testbed = turn.testbed;
        testbed.create_topic(&topic, PARTITIONS, 2)?;
        let places = Places::find(&testbed.describe(&topic)?)?;
        let windows = windows(turn.setting);
        let base = Load::new(turn, &topic)?;
        let load = Load {
            config: base.config.clone().linger(Duration::ZERO),
            records: (RATE * windows.whole().as_secs_f64()) as u64,
            rate: RATE,
            size: SIZE,
            ..base
        };
        let all = places.healthy.iter().chain(&places.victims).copied();
        let (sent, ()) =
            turn.send_by(load, Senders::partitions(all), |start| match turn.arm.name {
                name if name == FROZEN.name => {
                    windows.run(start, || testbed.freeze(VICTIM), || testbed.thaw(VICTIM))
                }
                name if name == SLOW.name => {
                    let slow = |delay| move || testbed.slow(VICTIM, delay);
                    windows.run(start, slow(DELAY), slow(Duration::ZERO))
                }
                _ => windows.run(start, || Ok(()), || Ok(())),
            })?;
        testbed.await_healthy(&topic, PARTITIONS as usize)?;
        let mut sample = sent.sample();
        read_back(&sent, Order::Sent, &mut sample)?;
        let stands_by = |partition| places.healthy.contains(&partition);
        measure_bystanders(&mut sample, &windows, stands_by, sent.acknowledged());
        if turn.arm.name != NONE.name {
            windows.mark(&mut sample, sent.start, turn.arm.name);
        }
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        for arm in [FROZEN, SLOW] {
            let Some(sample) = arms.get(arm.name) else { continue };
            let (with, before) = (quantile_ms(sample, 0.999), sample.figure("before_p999_ms"));
            conditions.push(Condition {
                text: format!(
                    "{}: p99.9 of the others at most {FACTOR} times that before ({with:.2} and {before:.2} ms)",
                    arm.name
                ),
                held: with <= FACTOR * before,
            });
        }
        conditions
    }
}

/// Makes the sample's latency that of the partitions without a replica on the broker, while it is impaired.
/// Each record is given as its due time, its partition and its latency.
pub(super) fn measure_bystanders(
    sample: &mut Sample,
    windows: &Windows,
    stands_by: impl Fn(i32) -> bool,
    records: impl Iterator<Item = (u64, i32, u64)>,
) {
    let (mut with, mut before) = (Latencies::default(), Latencies::default());
    let mut victims = Latencies::default();
    let mut over_time = OverTime::default();
    for (due, partition, took) in records {
        let part = windows.part(due);
        if stands_by(partition) {
            over_time.record(due, took);
        }
        match (part, stands_by(partition)) {
            (Part::Fault, true) => with.record_nanos(took),
            (Part::Fault, false) => victims.record_nanos(took),
            (Part::Quiet, true) => before.record_nanos(took),
            (Part::Quiet, false) | (Part::Rest, _) => {}
        }
    }
    (sample.latency, sample.over_time) = (with, over_time);
    for (name, latency) in [("before_p999_ms", before), ("victims_p999_ms", victims)] {
        let p999 = latency.quantile(0.999).as_secs_f64() * 1000.0;
        sample.note(name, Figure::Worst(p999));
    }
}

/// In virtual time: the acts on the broker.
fn script(arm: &Arm, windows: &Windows) -> Vec<(When, Act)> {
    let broker = VICTIM;
    let acts = match arm.name {
        name if name == FROZEN.name => [Act::Freeze { broker }, Act::Thaw { broker }],
        name if name == SLOW.name => [DELAY, Duration::ZERO].map(|by| Act::Slow { broker, by }),
        _ => return Vec::new(),
    };
    let [come, go] = acts;
    let fault = |(from, until)| [(When::At(from), come), (When::At(until), go)];
    windows.faults().flat_map(fault).collect()
}

/// Windows of a run: four rounds at full size. Brokers are fenced after nine seconds without a heartbeat.
fn windows(setting: &Setting) -> Windows {
    let scaled =
        |seconds: f64, least: f64| Duration::from_secs_f64((seconds * setting.scale).max(least));
    let long = (4.0 * setting.scale).ceil();
    let part = scaled(16.0, 0.5).div_f64(long);
    Windows {
        warmup: scaled(2.0, 0.2),
        quiet: part,
        fault: part,
        rest: part / 4,
        rounds: long as u32,
    }
}

/// Target partitions.
struct Places {
    /// Partitions without a replica on the impaired broker.
    healthy: Vec<i32>,
    /// Partitions that it leads.
    victims: Vec<i32>,
}

impl Places {
    fn find(topic: &TopicDescription) -> Result<Self> {
        let numbers = |wanted: &dyn Fn(&curtail::admin::PartitionDescription) -> bool| -> Vec<i32> {
            topic.partitions.iter().filter(|p| wanted(p)).map(|p| p.partition).collect()
        };
        let healthy = numbers(&|p| !p.replicas.contains(&VICTIM));
        let victims = numbers(&|p| p.leader == Some(VICTIM));
        if healthy.is_empty() || victims.is_empty() {
            let text = format!("the replicas are not spread as needed: {topic:?}");
            return Err(Error::Unexpected(text));
        }
        Ok(Self { healthy, victims })
    }
}
