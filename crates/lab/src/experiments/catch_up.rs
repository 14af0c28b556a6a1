//! Latency of new records for a consumer that has to read a backlog first.
//!
//! The consumer begins to read when the first new record is due: at the end, or with a backlog in all
//! partitions or in one of them. The backlog comes from the page cache, as for a consumer with a lag of
//! minutes. Older data on slow disks or in remote storage would arrive at their speed.

use std::{ops::Range, time::Duration};

use curtail::TopicPartition;

use super::{
    Arm, Arms, Backlog, Condition, Experiment, Published, Readers, Sample, SentTo, Setting,
    Simulated, Testbed, Turn, Workload,
    check::{Order, read_back},
    durability::{SOURCE, TARGET_MS, quantile_ms},
    load::{Load, Senders},
    readers::{self, Expected, Reader, SharedOverTime},
    testbed::Needs,
    workload::properties,
};
use crate::perf::Result;

const PARTITIONS: i32 = 12;
const RATE: f64 = 2_000.0;
const SIZE: usize = 1_000;
const RUN: Duration = Duration::from_secs(8);
/// Records of the backlog, all partitions together.
const BACKLOG: f64 = 300_000.0;
/// The partition with the backlog in the arm where only one has it.
const BEHIND: i32 = 0;

const CAUGHT_UP: Arm =
    Arm { name: "caught-up", about: "the consumer is at the end", properties: &[] };
const ALL: Arm = Arm { name: "behind", about: "a backlog in every partition", properties: &[] };
const SMALL: Arm = Arm {
    name: "behind-small",
    about: "the same, fetched 16 KiB at a time",
    properties: &[("fetch.max.bytes", "16384"), ("max.partition.fetch.bytes", "16384")],
};
const ONE: Arm = Arm {
    name: "one-behind",
    about: "the backlog in one partition: latency of the others",
    properties: &[],
};
const ONE_SKIP: Arm = Arm {
    name: "one-behind-skip-broker",
    about: "the same, without fetches from a broker while records of it are buffered, as in Java",
    properties: &[("curtail.buffered.partitions", "skip-broker")],
};

/// `catch-up`.
pub(super) struct CatchUp;

impl Experiment for CatchUp {
    fn name(&self) -> &'static str {
        "catch-up"
    }

    fn about(&self) -> &'static str {
        "a consumer with a backlog: latency of new records in the same partitions and in the others"
    }

    fn source(&self) -> &'static str {
        SOURCE
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![CAUGHT_UP, ALL, SMALL, ONE, ONE_SKIP]
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    /// The source describes the effect and gives no figures.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let (records, backlog) = records(setting);
        let partitions = behind(arm.name);
        let producers = Arm { properties: &[], ..*arm };
        Ok(Simulated::from(Workload {
            brokers: 3,
            partitions: PARTITIONS,
            replicas: 1,
            properties: properties(&[("linger.ms", "0")], &producers),
            records,
            rate: Some(RATE),
            size: SIZE,
            sent_to: SentTo::Each,
            order: Order::Sent,
            readers: Some(Readers {
                properties: properties(&[], arm),
                backlog: (!partitions.is_empty())
                    .then_some(Backlog { records: backlog, partitions }),
                apart: apart(arm.name),
                ..Readers::default()
            }),
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        turn.testbed.create_topic(&topic, PARTITIONS, 1)?;
        let behind = behind(turn.arm.name);
        // The arm's properties are the consumer's.
        let arm = Arm { properties: &[], ..*turn.arm };
        let base = Load::new(&Turn { arm: &arm, ..*turn }, &topic)?;
        let (records, backlog) = records(turn.setting);
        let load = Load {
            config: base.config.clone().linger(Duration::ZERO),
            records,
            rate: RATE,
            size: SIZE,
            ..base
        };
        let backlog = if behind.is_empty() { 0 } else { backlog };
        if backlog > 0 {
            let load =
                Load { records: backlog, rate: f64::INFINITY, earlier: true, ..load.clone() };
            load.run_by(Senders::partitions(behind.clone()), |_, _| Ok(()))?;
        }
        let config = readers::with_properties(turn.testbed.consumer(), turn.arm.properties)?;
        let runtime = readers::runtime()?;
        let mut consumer = readers::one_at_end(&runtime, &config, &topic)?;
        let over_time = SharedOverTime::default();
        let (sent, read) =
            turn.send_after(load, Senders::partitions(0..PARTITIONS), |start, _| {
                let at = |partition| TopicPartition::new(&*topic, partition);
                let behind: Vec<TopicPartition> = behind.map(at).collect();
                consumer.seek_to_beginning(&behind)?;
                let expected = Expected {
                    over_time: over_time.clone(),
                    apart: apart(turn.arm.name),
                    backlog,
                    ..Expected::new(start, RATE, records)
                };
                runtime.block_on(Reader::new(expected).run(consumer))
            })?;
        let mut sample = sent.sample();
        read_back(&sent, Order::Sent, &mut sample)?;
        read.add_to(Order::Sent, &mut sample);
        read.note_caught_up(&mut sample);
        readers::set_latency(&mut sample, read.latency, &over_time);
        turn.testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        let p99 = |arm: &Arm| Some(quantile_ms(arms.get(arm.name)?, 0.99));
        if let Some(p99) = p99(&CAUGHT_UP) {
            conditions.push(Condition::below_ms("caught up: p99", p99, TARGET_MS));
        }
        if let (Some(end), Some(all)) = (p99(&CAUGHT_UP), p99(&ALL)) {
            conditions.push(Condition {
                text: format!(
                    "behind: new records wait for the backlog (p99 {all:.1} and {end:.1} ms)"
                ),
                held: all > end,
            });
        }
        let caught_up = |arm: &Arm| Some(arms.get(arm.name)?.figure("caught_up_ms"));
        if let (Some(large), Some(small)) = (caught_up(&ALL), caught_up(&SMALL)) {
            conditions.push(Condition {
                text: format!(
                    "larger fetches catch up sooner ({large:.0} ms, {small:.0} with small ones)"
                ),
                held: large < small,
            });
        }
        if let Some(p99) = p99(&ONE) {
            let what = "one behind: p99 of the other partitions";
            conditions.push(Condition::below_ms(what, p99, TARGET_MS));
        }
        conditions
    }
}

/// The partitions with a backlog.
fn behind(arm: &str) -> Range<i32> {
    match (arm == CAUGHT_UP.name, apart(arm)) {
        (true, _) => 0..0,
        (false, Some(one)) => one..one + 1,
        (false, None) => 0..PARTITIONS,
    }
}

/// The partition whose new records do not count, if any.
fn apart(arm: &str) -> Option<i32> {
    [ONE.name, ONE_SKIP.name].contains(&arm).then_some(BEHIND)
}

/// New records, and records of the backlog.
fn records(setting: &Setting) -> (u64, u64) {
    let length = RUN.mul_f64(setting.scale).as_secs_f64();
    ((RATE * length).ceil() as u64, (BACKLOG * setting.scale) as u64)
}
