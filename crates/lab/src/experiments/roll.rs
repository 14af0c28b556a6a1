//! A rolling restart under load: each broker in turn is stopped in an orderly way and restarted, and the next
//! one follows once all replicas are in sync.
//!
//! The experiment follows the roll simulation of KIP-951 at a size for one machine: six brokers (three with
//! Apache Kafka), 12 and 120 partitions (the KIP does not number its low and high), acks=1 and all, with
//! leader hints and without them. End-to-end latency is measured with acks=all, where every acknowledged
//! record must arrive. With acks=1, records that a stopped leader had acknowledged and no follower had
//! fetched are lost with any client; they are reported and fail no condition.

use std::{
    thread,
    time::{Duration, Instant},
};

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
use crate::{
    peers::Peer,
    perf::{Error, Result},
};

const BROKERS: u32 = 6;
pub(super) const REPLICAS: i16 = 3;
const FEW: i32 = 12;
const MANY: i32 = 120;
pub(super) const RATE: f64 = 2_000.0;
pub(super) const SIZE: usize = 1_000;
const KEYS: u64 = 10_000;
/// Downtime of a broker, and the pause before the next one once all replicas are in sync.
const AWAY: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(1);
/// Length of the prepared load, which ends with the last restart.
const LONGEST: Duration = Duration::from_secs(300);
/// Length of the load per broker if other clients take part, whose drivers cannot end early. Apache Kafka's brokers need 15 to
/// 20 s on two cores until all replicas are in sync.
const PER_BROKER: Duration = Duration::from_secs(30);

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
const FEW_KEYLESS: Arm = arm("few-all-keyless", "few partitions, acks=all, hints, no keys", ALL);
const MANY_KEYLESS: Arm = arm("many-all-keyless", "many partitions, acks=all, hints, no keys", ALL);
const MANY_ONE: Arm = arm("many-1", "many partitions, acks=1, hints", ONE);
const MANY_ALL: Arm = arm("many-all", "many partitions, acks=all, hints", ALL);
const FEW_ONE_BEFORE: Arm = arm("few-1-baseline", "as before KIP-951", ONE_BEFORE);
const FEW_ALL_BEFORE: Arm = arm("few-all-baseline", "as before KIP-951", ALL_BEFORE);
const MANY_ONE_BEFORE: Arm = arm("many-1-baseline", "as before KIP-951", ONE_BEFORE);
const MANY_ALL_BEFORE: Arm = arm("many-all-baseline", "as before KIP-951", ALL_BEFORE);

const ARMS: [Arm; 10] = [
    FEW_ONE,
    FEW_ONE_BEFORE,
    FEW_ALL,
    FEW_ALL_BEFORE,
    FEW_KEYLESS,
    MANY_ONE,
    MANY_ONE_BEFORE,
    MANY_ALL,
    MANY_ALL_BEFORE,
    MANY_KEYLESS,
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
            keys: keys(arm.name),
            order: order(arm.name),
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
        let with_others = turn.has_others();
        let brokers = testbed.broker_ids().len() as u32;
        let length = if with_others { PER_BROKER * brokers } else { LONGEST };
        let base = Load::new(turn, &topic)?;
        let load = Load {
            config: base.config.clone().linger(Duration::ZERO),
            records: (RATE * length.as_secs_f64()) as u64,
            rate: RATE,
            size: SIZE,
            keys: keys(turn.arm.name),
            ..base
        };
        let rehearsal = Load { records: (RATE * REHEARSAL.as_secs_f64()) as u64, ..load.clone() };
        rehearse_elsewhere(&rehearsal, turn, partitions, |_, _| Ok(()))?;
        testbed.create_topic(&topic, partitions, REPLICAS)?;
        let runtime = readers::runtime()?;
        // A consumer of Curtail would take CPU time from the other clients.
        let readers = usize::from(committed(turn.arm.name) && !with_others);
        let mut consumers = readers::at_end(&runtime, &testbed.consumer(), &topic, readers)?;
        let sent_of = watch::Sender::new(None);
        let records = load.records;
        let restart_all = |start: Instant| {
            let away = AWAY.mul_f64(turn.setting.scale);
            let pause = PAUSE.mul_f64(turn.setting.scale);
            roll(testbed, &topic, partitions, away, pause).map(|()| start.elapsed())
        };
        let (sent, (reader, rolled)) = if with_others {
            turn.send(load, |start| Ok((None, restart_all(start)?)))?
        } else {
            let senders = Senders { end_with_script: true, ..Senders::default() };
            turn.send_after(load, senders, |start, _| {
                let expected = Expected::new(start, RATE, records);
                let reading = consumers.pop().map(|consumer| {
                    readers::read_until_told(consumer, expected, sent_of.subscribe())
                });
                Ok((reading.map(|reading| runtime.spawn(reading)), restart_all(start)?))
            })?
        };
        if rolled > length {
            return Err(Error::Unexpected(format!(
                "restarting the brokers took {} s, longer than the load of {} s",
                rolled.as_secs(),
                length.as_secs()
            )));
        }
        sent_of.send_replace(Some(sent.fates.len() as u64));
        let mut sample = sent.sample();
        read_back(&sent, order(turn.arm.name), &mut sample)?;
        for read in readers::join(&runtime, reader.into_iter().collect())? {
            read.add_to(order(turn.arm.name), &mut sample);
            let p99 = read.latency.quantile(0.99);
            sample.note("e2e_p99_ms", Figure::Worst(p99.as_secs_f64() * 1000.0));
        }
        sample.mark(sent.start, sent.start, sent.start + rolled, "brokers are restarted in turn");
        sample.note("rolled_s", Figure::Worst(rolled.as_secs_f64()));
        sample.note("stall_ms", worst_ms(sent.longest_silence(0)));
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
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
    ARMS.iter().any(|all| all.name == arm && all.properties.contains(&ALL[0]))
}

pub(super) fn keys(arm: &str) -> Keys {
    if arm.ends_with("keyless") { Keys::None } else { Keys::Cycle(KEYS) }
}

/// Keyless records may move to another partition.
pub(super) fn order(arm: &str) -> Order {
    if arm.ends_with("keyless") { Order::Acknowledged } else { Order::Sent }
}

pub(super) fn partitions(arm: &str) -> i32 {
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
