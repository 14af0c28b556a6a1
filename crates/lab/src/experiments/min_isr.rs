//! `min.insync.replicas` decides whether records are acknowledged, not how fast: with all three replicas in
//! sync, with one of them slow, and with one of them stopped.
//!
//! A slow replica is frozen for a part of each half second, as by garbage collection, and stays in sync.
//! Records go to partitions that it follows. A stopped replica shuts down in an orderly way, so it leaves the
//! in-sync replicas at once.

use std::time::{Duration, Instant};

use super::{
    Act, Arm, Arms, ClusterKind, Condition, End, Experiment, Published, Sample, SentTo, Setting,
    Simulated, Testbed, Turn, When, Workload,
    check::{Order, read_back},
    durability::{SIZE, SOURCE, quantile_ms},
    load::{Load, Senders, nanos, sleep_until, worst_ms},
    testbed::{Faltering, Needs},
    workload::{falter, properties, victim},
};
use crate::{
    peers::Peer,
    perf::{Error, Result},
};

const PARTITIONS: i32 = 12;
const RATE: f64 = 2_000.0;
/// Length of a run.
const RUN: Duration = Duration::from_secs(8);
/// When a replica begins to stop, and how long it is away after that, as parts of the run.
const STOPS: f64 = 0.25;
const AWAY: f64 = 0.5;
/// The freezes of a slow replica.
const PERIOD: Duration = Duration::from_millis(500);
const FROZEN: Duration = Duration::from_millis(100);
/// Length of the prepared load, if a broker is slow to come back.
const LONGEST: Duration = Duration::from_secs(90);
/// Length of the load after the run if other clients take part, whose drivers cannot end early.
const RETURN: Duration = Duration::from_secs(4);

/// Largest ratio of the same percentile between values of the setting.
const FACTOR: f64 = 1.25;
/// A partition that continues when a replica leaves does so within this time.
const STALL_MS: f64 = 500.0;

/// State of one of the three replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replica {
    Whole,
    Slow,
    Gone,
}

/// A value of the setting, and the state of a replica.
struct Case {
    arm: Arm,
    min_isr: &'static str,
    replica: Replica,
}

const fn case(name: &'static str, min_isr: &'static str, replica: Replica) -> Case {
    let about = match replica {
        Replica::Whole => "all replicas in sync",
        Replica::Slow => "one replica is frozen for 100 ms of each 500",
        Replica::Gone => "one replica is stopped and restarted",
    };
    Case { arm: Arm { name, about, properties: &[] }, min_isr, replica }
}

static CASES: [Case; 9] = [
    case("1", "1", Replica::Whole),
    case("2", "2", Replica::Whole),
    case("3", "3", Replica::Whole),
    case("1-slow", "1", Replica::Slow),
    case("2-slow", "2", Replica::Slow),
    case("3-slow", "3", Replica::Slow),
    case("1-gone", "1", Replica::Gone),
    case("2-gone", "2", Replica::Gone),
    case("3-gone", "3", Replica::Gone),
];

/// `min-isr`.
pub(super) struct MinIsr;

impl Experiment for MinIsr {
    fn name(&self) -> &'static str {
        "min-isr"
    }

    fn about(&self) -> &'static str {
        "min.insync.replicas 1, 2 and 3: with all replicas in sync, a slow one, and a stopped one"
    }

    fn source(&self) -> &'static str {
        SOURCE
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        CASES.iter().map(|case| case.arm).collect()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    /// The source describes the setting and gives no figures.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let case = case_of(arm)?;
        let run = length(setting);
        let victim = victim(setting);
        Ok(Simulated::from(Workload {
            brokers: 3,
            partitions: PARTITIONS,
            replicas: 3,
            topic_properties: vec![("min.insync.replicas", case.min_isr.to_owned())],
            properties: properties(&[("linger.ms", "0")], arm),
            records: (RATE * (run + LONGEST).as_secs_f64()) as u64,
            warmup: (RATE * run.as_secs_f64() * 0.1) as u64,
            rate: Some(RATE),
            size: SIZE,
            sent_to: SentTo::NotLedBy(victim),
            order: Order::Sent,
            script: script(case.replica, victim, run),
            end: End::Script,
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, faults: true, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let case = case_of(turn.arm)?;
        let topic = turn.topic(self.name());
        let (testbed, victim) = (turn.testbed, turn.victim());
        let settings = [("min.insync.replicas", case.min_isr)];
        testbed.create_topic_with(&topic, PARTITIONS, 3, &settings)?;
        let others = followed_by(testbed, &topic, victim)?;
        let run = length(turn.setting);
        let with_others = turn.has_others();
        let longest = if with_others { run + RETURN } else { run + LONGEST };
        let base = Load::new(turn, &topic)?;
        let load = Load {
            config: base.config.clone().linger(Duration::ZERO),
            records: (RATE * longest.as_secs_f64()) as u64,
            warmup: (RATE * run.as_secs_f64() * 0.1) as u64,
            rate: RATE,
            size: SIZE,
            ..base
        };
        let senders = Senders { end_with_script: !with_others, ..Senders::partitions(others) };
        let (sent, gone) =
            turn.send_by(load, senders, |start| happen(testbed, case.replica, victim, start, run))?;
        testbed.await_healthy(&topic, PARTITIONS as usize)?;
        let mut sample = sent.sample();
        read_back(&sent, Order::Sent, &mut sample)?;
        if let Some((from, until)) = gone {
            sample.mark(sent.start, from, until, "a replica is stopped");
            sample.note("gone_ms", worst_ms(nanos(until - from)));
            sample.note("stall_ms", worst_ms(sent.longest_silence(nanos(from - sent.start))));
        }
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, setting: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        conditions.extend(alike(arms, Replica::Whole, 0.5));
        conditions.extend(alike(arms, Replica::Slow, 0.99));
        for case in CASES.iter().filter(|case| case.replica == Replica::Slow) {
            let Some(sample) = arms.get(case.arm.name) else { continue };
            let p99 = quantile_ms(sample, 0.99);
            let half = FROZEN.as_secs_f64() * 500.0;
            conditions.push(Condition {
                text: format!("{}: waits for the slow replica (p99 {p99:.1} ms)", case.arm.name),
                held: p99 > half,
            });
        }
        for case in CASES.iter().filter(|case| case.replica == Replica::Gone) {
            let Some(sample) = arms.get(case.arm.name) else { continue };
            conditions.push(without_one(case, sample, setting));
        }
        conditions
    }
}

fn case_of(arm: &Arm) -> Result<&'static Case> {
    let case = CASES.iter().find(|case| case.arm.name == arm.name);
    case.ok_or_else(|| Error::Options(format!("no arm {}", arm.name)))
}

/// Length of a run, with at least two freezes of a slow replica.
fn length(setting: &Setting) -> Duration {
    RUN.mul_f64(setting.scale).max(PERIOD * 2)
}

/// In virtual time: the acts on the replica, and the end of the run.
fn script(replica: Replica, victim: i32, run: Duration) -> Vec<(When, Act)> {
    let broker = victim;
    let mut script = match replica {
        Replica::Whole => Vec::new(),
        Replica::Slow => falter(broker, run, PERIOD, FROZEN),
        Replica::Gone => vec![
            (When::At(run.mul_f64(STOPS)), Act::Stop { broker }),
            (When::At(run.mul_f64(STOPS + AWAY)), Act::Restart { broker }),
        ],
    };
    script.push((When::At(run), Act::GoOn));
    script
}

/// Partitions whose leader is another broker.
fn followed_by(testbed: &Testbed, topic: &str, broker: i32) -> Result<Vec<i32>> {
    let described = testbed.describe(topic)?;
    let followed = described.partitions.iter().filter(|p| p.leader != Some(broker));
    let followed: Vec<i32> = followed.map(|p| p.partition).collect();
    if followed.is_empty() {
        return Err(Error::Unexpected(format!("broker {broker} leads all of {topic}")));
    }
    Ok(followed)
}

/// When a replica was stopped, and when its restart began.
type Absence = (Instant, Instant);

fn happen(
    testbed: &Testbed,
    replica: Replica,
    victim: i32,
    start: Instant,
    run: Duration,
) -> Result<Option<Absence>> {
    match replica {
        Replica::Whole => sleep_until(start, run),
        Replica::Slow => {
            let until = start + run;
            let faltering = Faltering { from: start, until, period: PERIOD, frozen: FROZEN };
            testbed.falter(victim, &faltering)?;
            sleep_until(start, run);
        }
        Replica::Gone => {
            sleep_until(start, run.mul_f64(STOPS));
            testbed.stop(victim)?;
            // An orderly stop of Apache Kafka takes seconds, and what is asked of the others begins with its end.
            let from = Instant::now();
            sleep_until(from, run.mul_f64(AWAY));
            let until = Instant::now();
            testbed.restart(victim)?;
            sleep_until(start, run);
            return Ok(Some((from, until)));
        }
    }
    Ok(None)
}

/// Condition: the same percentile for every value of the setting.
fn alike(arms: &Arms<'_>, replica: Replica, quantile: f64) -> Option<Condition> {
    let cases = CASES.iter().filter(|case| case.replica == replica);
    let seen: Vec<f64> =
        cases.filter_map(|case| Some(quantile_ms(arms.get(case.arm.name)?, quantile))).collect();
    let least = seen.iter().copied().reduce(f64::min).filter(|_| seen.len() > 1)?;
    let most = seen.iter().copied().fold(0.0, f64::max);
    let what = if replica == Replica::Slow { "a slow replica" } else { "all replicas" };
    Some(Condition {
        text: format!(
            "{what}: p{:.0} within {FACTOR} times, whatever the setting ({seen:.2?} ms)",
            quantile * 100.0
        ),
        held: most <= FACTOR * least,
    })
}

/// Condition: with a replica stopped, a setting of 1 or 2 continues and 3 waits.
fn without_one(case: &Case, sample: &Sample, setting: &Setting) -> Condition {
    let (stall, gone) = (sample.figure("stall_ms"), sample.figure("gone_ms"));
    let name = case.arm.name;
    if case.min_isr == "3" {
        let text =
            format!("{name}: no acknowledgement while it is stopped ({stall:.0} of {gone:.0} ms)");
        return Condition { text, held: stall >= gone };
    }
    // Brokers of Apache Kafka stop and start on the same two cores.
    let limit = if setting.cluster == ClusterKind::Apache { 4.0 * STALL_MS } else { STALL_MS };
    Condition::below_ms(
        &format!("{name}: continues without it, longest time without an acknowledgement"),
        stall,
        limit,
    )
}
