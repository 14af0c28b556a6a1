//! A rolling restart under load: each broker in turn is stopped in an orderly way and restarted, and the next
//! one follows once all replicas are in sync.
//!
//! The experiment follows the roll simulation of KIP-951 at a size for one machine: six brokers (three with
//! Apache Kafka), 12 and 120 partitions (the KIP does not number its low and high), acks=1 and all, with
//! leader hints and without them. End-to-end latency is measured with acks=all, where every acknowledged
//! record must arrive. With acks=1, records that a stopped leader had acknowledged and no follower had
//! fetched are lost with any client; they are reported and fail no condition.

use std::{thread, time::Duration};

use tokio::sync::watch;

use super::{
    Act, Arm, Arms, Condition, End, Experiment, Figure, Published, PublishedLatency, ReaderLatency,
    Readers, Sample, Setting, Simulated, Testbed, Turn, When, Workload,
    check::{Order, read_back},
    durability::quantile_ms,
    load::{Keys, Load, REHEARSAL, Senders, rehearse_elsewhere, worst_ms},
    readers::{self, Expected},
    testbed::Needs,
    workload::properties,
};
use crate::perf::Result;

const BROKERS: u32 = 6;
const REPLICAS: i16 = 3;
const FEW: i32 = 12;
const MANY: i32 = 120;
const RATE: f64 = 2_000.0;
const SIZE: usize = 1_000;
const KEYS: u64 = 10_000;
/// Downtime of a broker, and the pause before the next one once all replicas are in sync.
const AWAY: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(1);
/// Length of the prepared load.
const LONGEST: Duration = Duration::from_secs(300);

const ONE: &[(&str, &str)] = &[("acks", "1")];
const ALL: &[(&str, &str)] = &[("acks", "all")];
const ONE_BEFORE: &[(&str, &str)] =
    &[("acks", "1"), ("curtail.leader.discovery", "refresh-and-back-off")];
const ALL_BEFORE: &[(&str, &str)] =
    &[("acks", "all"), ("curtail.leader.discovery", "refresh-and-back-off")];

const fn arm(
    name: &'static str,
    about: &'static str,
    properties: &'static [(&'static str, &'static str)],
) -> Arm {
    Arm { name, about, properties }
}

const FEW_ONE: Arm = arm("few-1", "few partitions, acks=1, hints", ONE);
const FEW_ALL: Arm = arm("few-all", "few partitions, acks=all, hints", ALL);
const MANY_ONE: Arm = arm("many-1", "many partitions, acks=1, hints", ONE);
const MANY_ALL: Arm = arm("many-all", "many partitions, acks=all, hints", ALL);
const FEW_ONE_BEFORE: Arm = arm("few-1-baseline", "as before KIP-951", ONE_BEFORE);
const FEW_ALL_BEFORE: Arm = arm("few-all-baseline", "as before KIP-951", ALL_BEFORE);
const MANY_ONE_BEFORE: Arm = arm("many-1-baseline", "as before KIP-951", ONE_BEFORE);
const MANY_ALL_BEFORE: Arm = arm("many-all-baseline", "as before KIP-951", ALL_BEFORE);

const ARMS: [Arm; 8] = [
    FEW_ONE,
    FEW_ONE_BEFORE,
    FEW_ALL,
    FEW_ALL_BEFORE,
    MANY_ONE,
    MANY_ONE_BEFORE,
    MANY_ALL,
    MANY_ALL_BEFORE,
];

/// `roll`.
pub(super) struct Roll;

impl Experiment for Roll {
    fn name(&self) -> &'static str {
        "roll"
    }

    fn about(&self) -> &'static str {
        "all brokers restarted in turn under load: few and many partitions, acks 1 and all, with and without hints"
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
        kip_951()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let reader = Readers { latency: ReaderLatency::Beside, ..Readers::default() };
        Ok(Simulated::from(Workload {
            brokers: BROKERS,
            partitions: partitions(arm.name),
            replicas: REPLICAS,
            properties: properties(&[("linger.ms", "0")], arm),
            records: (RATE * LONGEST.as_secs_f64()) as u64,
            rate: Some(RATE),
            size: SIZE,
            keys: Keys::Cycle(KEYS),
            order: Order::Sent,
            readers: committed(arm.name).then_some(reader),
            script: script(AWAY.mul_f64(setting.scale), PAUSE.mul_f64(setting.scale)),
            end: End::Script,
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: BROKERS, faults: true, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        let testbed = turn.testbed;
        let partitions = partitions(turn.arm.name);
        let base = Load::new(turn, &topic)?;
        let load = Load {
            config: base.config.clone().linger(Duration::ZERO),
            records: (RATE * LONGEST.as_secs_f64()) as u64,
            rate: RATE,
            size: SIZE,
            keys: Keys::Cycle(KEYS),
            ..base
        };
        let rehearsal = Load { records: (RATE * REHEARSAL.as_secs_f64()) as u64, ..load.clone() };
        rehearse_elsewhere(&rehearsal, turn, partitions, |_, _| Ok(()))?;
        testbed.create_topic(&topic, partitions, REPLICAS)?;
        let runtime = readers::runtime()?;
        let readers = usize::from(committed(turn.arm.name));
        let mut consumers = readers::at_end(&runtime, &testbed.consumer(), &topic, readers)?;
        let sent_of = watch::Sender::new(None);
        let records = load.records;
        let away = AWAY.mul_f64(turn.setting.scale);
        let pause = PAUSE.mul_f64(turn.setting.scale);
        let senders = Senders { end_with_script: true, ..Senders::default() };
        let (sent, (reader, rolled)) = turn.send_by(load, senders, |start, _| {
            let expected = Expected::new(start, RATE, records);
            let reading = consumers
                .pop()
                .map(|consumer| readers::read_until_told(consumer, expected, sent_of.subscribe()));
            let reader = reading.map(|reading| runtime.spawn(reading));
            roll(testbed, &topic, partitions, away, pause)?;
            Ok((reader, start.elapsed()))
        })?;
        sent_of.send_replace(Some(sent.fates.len() as u64));
        let mut sample = sent.sample();
        read_back(&sent, Order::Sent, &mut sample)?;
        for read in readers::join(&runtime, reader.into_iter().collect())? {
            read.add_to(&mut sample);
            let p99 = read.latency.quantile(0.99);
            sample.note("e2e_p99_ms", Figure::Worst(p99.as_secs_f64() * 1000.0));
        }
        sample.mark(sent.start, sent.start, sent.start + rolled, "brokers are restarted in turn");
        sample.note("rolled_s", Figure::Worst(rolled.as_secs_f64()));
        sample.note("stall_ms", worst_ms(sent.longest_silence(0)));
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact_where(|arm| committed(arm.name));
        for arm in ARMS.iter().filter(|arm| !committed(arm.name)) {
            conditions.extend(arms.get(arm.name).map(|sample| of_leader_only(arm.name, sample)));
        }
        for (hints, before) in [(FEW_ALL, FEW_ALL_BEFORE), (MANY_ALL, MANY_ALL_BEFORE)] {
            let p999 = |arm: Arm| Some(quantile_ms(arms.get(arm.name)?, 0.999));
            if let (Some(hints_ms), Some(before)) = (p999(hints), p999(before)) {
                conditions.push(Condition {
                    text: format!(
                        "{}: p99.9 with hints not above that without ({hints_ms:.1} and {before:.1} ms)",
                        hints.name
                    ),
                    held: hints_ms <= before,
                });
            }
        }
        conditions
    }
}

/// Whether acknowledged records are committed.
fn committed(arm: &str) -> bool {
    [FEW_ALL, FEW_ALL_BEFORE, MANY_ALL, MANY_ALL_BEFORE].iter().any(|all| all.name == arm)
}

fn partitions(arm: &str) -> i32 {
    if arm.starts_with("few") { FEW } else { MANY }
}

/// In virtual time: restarts every broker.
fn script(away: Duration, pause: Duration) -> Vec<(When, Act)> {
    let one = |broker| {
        [
            (When::After(pause), Act::Stop { broker }),
            (When::After(away), Act::Restart { broker }),
            (When::After(Duration::ZERO), Act::AwaitInSync),
        ]
    };
    let all = (1..=BROKERS as i32).flat_map(one);
    all.chain([(When::After(pause), Act::GoOn)]).collect()
}

/// Restarts every broker.
fn roll(
    testbed: &Testbed,
    topic: &str,
    partitions: i32,
    away: Duration,
    pause: Duration,
) -> Result<()> {
    for id in testbed.broker_ids() {
        thread::sleep(pause);
        testbed.stop(id)?;
        thread::sleep(away);
        testbed.restart(id)?;
        testbed.await_healthy(topic, usize::try_from(partitions).unwrap_or(0))?;
    }
    thread::sleep(pause);
    Ok(())
}

fn of_leader_only(arm: &str, sample: &Sample) -> Condition {
    let Sample { errors, lost, duplicated, reordered, .. } = sample;
    Condition {
        text: format!(
            "{arm}: 0 duplicated, 0 reordered, no error ({duplicated}, {reordered}, {errors}; {lost} lost)"
        ),
        held: duplicated + reordered + errors == 0,
    }
}

fn kip_951() -> Vec<Published> {
    let published = |arm, p99_ms: f64, note| Published {
        arm,
        source: "KIP-951, roll simulation",
        latency_us: PublishedLatency { p99: Some(p99_ms * 1000.0), ..Default::default() },
        throughput_mbps: None,
        note,
    };
    vec![
        published(FEW_ONE_BEFORE.name, 3.25, "p99 produce, low partitions, runs 3.3 and 3.2"),
        published(FEW_ONE.name, 2.95, "p99 produce, low partitions, runs 3 and 2.9"),
        published(MANY_ONE_BEFORE.name, 84.7, "p99 produce, high partitions, runs 85.8 and 83.6"),
        published(MANY_ONE.name, 83.3, "p99 produce, high partitions, runs 82.5 and 84.1"),
        published(FEW_ALL_BEFORE.name, 12.5, "p99 end to end, low partitions, runs 13 and 12"),
        published(FEW_ALL.name, 12.5, "p99 end to end, low partitions, runs 11 and 14"),
        published(MANY_ALL_BEFORE.name, 106.5, "p99 end to end, high partitions, runs 111 and 102"),
        published(MANY_ALL.name, 101.0, "p99 end to end, high partitions, runs 104 and 98"),
    ]
}
