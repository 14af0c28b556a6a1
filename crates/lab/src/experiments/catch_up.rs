//! Latency of new records for a consumer that has to read a backlog first.
//!
//! The consumer begins to read when the first new record is due: at the end, or with a backlog in all
//! partitions or in one of them. The backlog comes from the page cache, as for a consumer with a lag of
//! minutes. Older data on slow disks or in remote storage would arrive at their speed.
//!
//! With another client, Curtail sends the load and the other client's consumer reads it.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use curtail::TopicPartition;

use super::{
    Arm, Arms, Backlog, Condition, Experiment, Published, Readers, Sample, SentTo, Setting,
    Simulated, Testbed, Turn, Workload,
    check::{Order, read_back},
    durability::{SOURCE, TARGET_MS, quantile_ms},
    load::{Load, Senders, Sent},
    readers::{self, Expected, Read, Reader, SharedOverTime, followers::Followers},
    testbed::Needs,
    workload::properties,
};
use crate::{
    cpu::CpuTime,
    peers::{Driver, Peer, driver::follow::Wanted},
    perf::{Error, Result},
};

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
        // The arm's properties are the consumer's.
        let arm = Arm { properties: &[], ..*turn.arm };
        let base = Load::new(&Turn { arm: &arm, ..*turn }, &topic)?;
        let load = Load {
            config: base.config.clone().linger(Duration::ZERO),
            records: records(turn.setting).0,
            rate: RATE,
            size: SIZE,
            ..base
        };
        let over_time = SharedOverTime::default();
        let (sent, read, cpu) = match turn.driver {
            None => self::read(turn, load, &over_time)?,
            Some(driver) => read_by(driver, turn, load, &over_time)?,
        };
        let mut sample = sent.sample();
        sample.cpu = sample.cpu + cpu;
        read_back(&sent, Order::Sent, &mut sample)?;
        read.add_to(Order::Sent, &mut sample);
        read.note_caught_up(&mut sample);
        readers::set_latency(&mut sample, read.latency, &over_time);
        turn.testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
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

/// Writes records before the load.
pub(super) fn write_earlier(load: &Load, partitions: Range<i32>, records: u64) -> Result<()> {
    let load = Load { records, rate: f64::INFINITY, earlier: true, ..load.clone() };
    load.run_by(Senders::partitions(partitions), |_, _| Ok(()))?;
    Ok(())
}

/// The records that a consumer expects, of the load and of the backlog.
fn expected(turn: &Turn<'_>, start: Instant, over_time: &SharedOverTime) -> Expected {
    let (records, backlog) = records(turn.setting);
    Expected {
        over_time: over_time.clone(),
        apart: apart(turn.arm.name),
        backlog: if behind(turn.arm.name).is_empty() { 0 } else { backlog },
        ..Expected::new(start, RATE, records)
    }
}

/// Reads with Curtail, whose CPU time is in the load's.
fn read(turn: &Turn<'_>, load: Load, over_time: &SharedOverTime) -> Result<(Sent, Read, CpuTime)> {
    let topic = load.topic.clone();
    let behind = behind(turn.arm.name);
    if !behind.is_empty() {
        write_earlier(&load, behind.clone(), records(turn.setting).1)?;
    }
    let config = readers::with_properties(turn.testbed.consumer(), turn.arm.properties)?;
    let runtime = readers::runtime()?;
    let mut consumer = readers::one_at_end(&runtime, &config, &topic)?;
    let (sent, read) = turn.send_after(load, Senders::partitions(0..PARTITIONS), |start, _| {
        let at = |partition| TopicPartition::new(&*topic, partition);
        let behind: Vec<TopicPartition> = behind.map(at).collect();
        consumer.seek_to_beginning(&behind)?;
        runtime.block_on(Reader::new(expected(turn, start, over_time)).run(consumer))
    })?;
    Ok((sent, read, CpuTime::default()))
}

/// Reads with another client. Its warm-up reads the backlog once, or as many other records.
fn read_by(
    driver: &Driver,
    turn: &Turn<'_>,
    load: Load,
    over_time: &SharedOverTime,
) -> Result<(Sent, Read, CpuTime)> {
    let behind = behind(turn.arm.name);
    let earlier = records(turn.setting).1;
    let places = if behind.is_empty() { 0..PARTITIONS } else { behind.clone() };
    write_earlier(&load, places, earlier)?;
    let wanted = Wanted {
        consumers: 1,
        backlog: if behind.is_empty() { 0 } else { earlier },
        from_beginning: behind.collect(),
        read_first: earlier,
        work: Duration::ZERO,
    };
    let followers = Followers::start(turn, driver, &load, wanted)?;
    let senders = Senders::partitions(0..PARTITIONS);
    let (sent, (mut read, cpu)) = turn.send_followed(load, senders, |start| {
        followers.begin(expected(turn, start, over_time))?.join()
    })?;
    let read = read.pop().ok_or_else(|| Error::Unexpected("no consumer".into()))?;
    Ok((sent, read, cpu))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_runs_the_arms_whose_settings_it_has() {
        let all = [CAUGHT_UP, ALL, SMALL, ONE, ONE_SKIP];
        let of = |peer: Peer| -> Vec<&str> {
            let admitted = |arm: &&Arm| {
                CatchUp.admits(arm, peer).is_ok() && peer.lacks(arm.properties).is_none()
            };
            all.iter().filter(admitted).map(|arm| arm.name).collect()
        };
        for peer in [Peer::Java, Peer::Java39, Peer::Librdkafka, Peer::FranzGo] {
            assert_eq!(of(peer), ["caught-up", "behind", "behind-small", "one-behind"], "{peer:?}");
        }
        assert_eq!(of(Peer::Krafka), ["caught-up", "behind", "one-behind"]);
    }

    #[test]
    fn only_a_backlog_outside_the_measured_partitions_is_apart() {
        let of = |arm: &Arm| (behind(arm.name), apart(arm.name));
        assert_eq!(of(&CAUGHT_UP), (0..0, None));
        assert_eq!(of(&SMALL), (0..PARTITIONS, None));
        assert_eq!(of(&ONE), (0..1, Some(0)));
    }
}
