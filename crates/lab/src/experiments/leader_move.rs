//! Leaders move under load: the effect of the leader hints of KIP-951.
//!
//! - Embedded: the KIP's micro benchmark at a size for one machine, with six brokers and 100 partitions. Each leader moves to
//!   the next replica in turn. The propagation of a move is a model: the partition's three replicas learn about it at once,
//!   the other brokers' metadata is late by [`CONVERGENCE`].
//! - Apache Kafka: without a model, after rehearsals in another topic. All leaders of a new topic move at once, twice, or
//!   one after the other.
//! - Virtual time: the KIP's benchmark at its full size. All leaders move at once in the middle.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use curtail::admin::TopicDescription;

use super::{
    Act, Arm, Arms, ClusterKind, Condition, Experiment, Figure, Model, Modelled, Published,
    PublishedLatency, Sample, Setting, Simulated, Testbed, Turn, When, Workload,
    check::{Order, read_back},
    load::{Keys, Load, rehearse_elsewhere, sleep_until, with_properties, worst_ms},
    observer::{Seen, watch},
    testbed::Needs,
    workload::properties,
};
use crate::{peers::Peer, perf::Result};

const RATE: f64 = 5000.0;
const SIZE: usize = 1000;
const REPLICAS: i16 = 3;

/// Embedded: brokers and partitions of the KIP.
const BROKERS: u32 = 6;
const PARTITIONS: i32 = 100;
/// Embedded: length of a run.
const RUN: Duration = Duration::from_secs(12);
/// Embedded: metadata delay of brokers without a replica of the partition. On Apache Kafka 4.3, every broker's metadata named
/// the new leaders 54 to 129 ms after the election was requested.
const CONVERGENCE: Duration = Duration::from_millis(100);

/// In virtual time: the KIP's number of records, and its records per second.
const KIP_RECORDS: f64 = 40e6;
const KIP_RATE: f64 = 100_000.0;
/// In virtual time: records that are sent as one, which fills a batch of the KIP's `batch.size`.
const KIP_BUNDLE: u32 = 16;
/// In virtual time: metadata delay of the brokers. The KIP attributes the remaining latency to this delay without a figure.
/// Its run with the hints' best 99.9th percentile has 125 ms, that with the worst 346 ms.
const KIP_PROPAGATION: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(350));

/// Apache Kafka: length of a run, and when all leaders move, as parts of it.
const APACHE_RUN: Duration = Duration::from_secs(15);
const MOVES: [f64; 2] = [0.35, 0.7];
/// Apache Kafka: when leaders move one after the other, as parts of a run.
const MOVING: [f64; 2] = [0.3, 0.9];
const MOVE_LIMIT: Duration = Duration::from_secs(20);

/// Apache Kafka: length of a rehearsal, in a separate topic. A broker is slow before its code is compiled (JIT), and a topic
/// with earlier moves would hide the latency of a new one.
const REHEARSAL: Duration = Duration::from_secs(5);

/// Isolates the mechanism: records wait in their partition instead of going to another one.
const STAY: (&str, &str) = ("curtail.route.around.trouble", "false");
const ANY_LEADER: (&str, &str) = ("curtail.prefer.proven.partitions", "false");

const HINTS: Arm = Arm {
    name: "hints",
    about: "the error response names the next leader, and the batch goes there at once (KIP-951)",
    properties: &[("curtail.leader.discovery", "hint"), STAY, ANY_LEADER],
};
const REFRESH: Arm = Arm {
    name: "refresh",
    about: "a full metadata refresh without backoff (the KIP's rejected alternative)",
    properties: &[("curtail.leader.discovery", "refresh"), STAY, ANY_LEADER],
};
const BASELINE: Arm = Arm {
    name: "baseline",
    about: "a full metadata refresh with backoff: clients before KIP-951",
    properties: &[("curtail.leader.discovery", "refresh-and-back-off"), STAY, ANY_LEADER],
};

const EVERYTHING: Arm = Arm { name: "default", about: "everything on", properties: &[] };

const FEW: Arm = Arm { name: "6-partitions", about: "everything on", properties: &[] };
const MANY: Arm = Arm { name: "100-partitions", about: "everything on", properties: &[] };
const FEW_ANY: Arm = Arm { name: "any-leader-6-partitions", ..MANY_ANY };
const MANY_ANY: Arm = Arm {
    name: "any-leader-100-partitions",
    about: "keyless records go to new leaders as to others (decision 0053)",
    properties: &[ANY_LEADER],
};
const FEW_BASELINE: Arm = Arm { name: "baseline-6-partitions", ..BASELINE };
const MANY_BASELINE: Arm = Arm { name: "baseline-100-partitions", ..BASELINE };
const KEYED: Arm = Arm {
    name: "keyed-100-partitions",
    about: "everything on, records with keys",
    properties: &[],
};
const ONE_BY_ONE: Arm = Arm {
    name: "one-by-one",
    about: "everything on, 100 partitions, one leader moves after the other",
    properties: &[],
};
const KEYED_ONE_BY_ONE: Arm = Arm {
    name: "keyed-one-by-one",
    about: "everything on, 100 partitions, records with keys, one leader moves after the other",
    properties: &[],
};
/// Different keys of the keyed arms.
const KEYS: u64 = 10_000;

/// `leader-move`.
pub(super) struct LeaderMove;

impl Experiment for LeaderMove {
    fn name(&self) -> &'static str {
        "leader-move"
    }

    fn about(&self) -> &'static str {
        "all leaders move under load: hints, full refresh without backoff, neither"
    }

    fn source(&self) -> &'static str {
        "KIP-951, micro benchmark"
    }

    fn arms(&self, setting: &Setting) -> Vec<Arm> {
        match setting.cluster {
            ClusterKind::Apache => vec![
                FEW,
                FEW_ANY,
                FEW_BASELINE,
                MANY,
                MANY_ANY,
                MANY_BASELINE,
                KEYED,
                ONE_BY_ONE,
                KEYED_ONE_BY_ONE,
            ],
            _ => vec![HINTS, REFRESH, BASELINE, EVERYTHING],
        }
    }

    fn rounds(&self, setting: &Setting) -> u32 {
        let full = if setting.cluster == ClusterKind::Apache { 2.0 } else { 3.0 };
        (full * setting.scale).ceil() as u32
    }

    fn published(&self, setting: &Setting) -> Vec<Published> {
        match setting.cluster {
            // The KIP's workload does not run there.
            ClusterKind::Apache => Vec::new(),
            _ => kip_951(),
        }
    }

    fn models(&self, setting: &Setting) -> Vec<Modelled> {
        if setting.cluster != ClusterKind::Embedded {
            return Vec::new();
        }
        let what =
            "propagation of a move: at once to the partition's replicas, late to the other brokers";
        vec![Modelled::new(what, [("late by", format!("{} ms", CONVERGENCE.as_millis()))])]
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let records = (KIP_RECORDS * setting.scale).ceil();
        let middle = Duration::from_secs_f64(records / KIP_RATE / 2.0);
        Ok(Simulated::from(Workload {
            brokers: BROKERS,
            partitions: PARTITIONS,
            replicas: REPLICAS,
            properties: properties(
                &[("acks", "all"), ("linger.ms", "0"), ("batch.size", "16384")],
                arm,
            ),
            records: records as u64,
            rate: Some(KIP_RATE),
            size: SIZE,
            bundle: KIP_BUNDLE,
            order: Order::Acknowledged,
            script: vec![(When::At(middle), Act::RotateLeaders)],
            model: Model { propagation: KIP_PROPAGATION, ..Model::default() },
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        let needs = Needs { brokers: BROKERS, faults: true, ..Needs::default() };
        Testbed::start(setting, &needs)
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        match turn.setting.cluster {
            ClusterKind::Apache => on_apache(self.name(), turn),
            _ => one_by_one(self.name(), turn),
        }
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, setting: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let p999 = |sample: &Sample| sample.latency.quantile(0.999).as_secs_f64() * 1000.0;
        let mut conditions = arms.intact();
        if setting.cluster == ClusterKind::Apache {
            for (arm, limit) in [(FEW, 250.0), (MANY, 1000.0)] {
                if let Some(sample) = arms.get(arm.name) {
                    let what = format!("{}: p99.9", arm.name);
                    conditions.push(Condition::below_ms(&what, p999(sample), limit));
                }
            }
            return conditions;
        }
        if let (Some(hints), Some(baseline)) = (arms.get(HINTS.name), arms.get(BASELINE.name)) {
            let less = 100.0 * (1.0 - p999(hints) / p999(baseline));
            conditions.push(Condition {
                text: format!("p99.9 with hints at least 88% below the baseline ({less:.1}%)"),
                held: less >= 88.0,
            });
        }
        if let (Some(hints), Some(refresh)) = (arms.get(HINTS.name), arms.get(REFRESH.name)) {
            let what = "p99.9 with hints, compared with a full refresh without backoff:";
            conditions.push(Condition::below_ms(what, p999(hints), p999(refresh)));
        }
        conditions
    }
}

/// Embedded: each leader moves once, one after the other over the middle of the run.
fn one_by_one(name: &str, turn: &Turn<'_>) -> Result<Sample> {
    let topic = turn.topic(name);
    let testbed = turn.testbed;
    testbed.create_topic(&topic, PARTITIONS, REPLICAS)?;
    let run = RUN.mul_f64(turn.setting.scale.max(0.1));
    let config = testbed.producer().linger(Duration::ZERO);
    let load = Load {
        config: with_properties(config, turn.arm.properties)?,
        records: (RATE * run.as_secs_f64()) as u64,
        rate: RATE,
        size: SIZE,
        ..Load::new(turn, &topic)?
    };
    let (sent, (first, last)) = turn.send(load, |start| {
        let pause = run.mul_f64(0.8) / PARTITIONS as u32;
        sleep_until(start, run.mul_f64(0.1));
        let first = Instant::now();
        for partition in 0..PARTITIONS {
            sleep_until(start, run.mul_f64(0.1) + pause * partition as u32);
            move_one(testbed, &topic, partition)?;
        }
        Ok((first, Instant::now()))
    })?;
    testbed.set_metadata_delays(&delays(testbed, &[], Duration::ZERO))?;
    let mut sample = sent.sample();
    sample.mark(sent.start, first, last, format!("{PARTITIONS} leaders move, one by one"));
    read_back(&sent, Order::Acknowledged, &mut sample)?;
    sample.note("leaders_moved", Figure::Total(f64::from(PARTITIONS)));
    sample.note("model_convergence_ms", Figure::Worst(CONVERGENCE.as_secs_f64() * 1000.0));
    testbed.delete_topic(&topic)?;
    Ok(sample)
}

fn move_one(testbed: &Testbed, topic: &str, partition: i32) -> Result<()> {
    let replicas = testbed.next_leaders(topic, partition)?;
    testbed.set_metadata_delays(&delays(testbed, &replicas, CONVERGENCE))?;
    testbed.move_leader(topic, partition, replicas[0])
}

/// Metadata delays: none for the brokers with a replica, `late` for the others.
fn delays(testbed: &Testbed, concerned: &[i32], late: Duration) -> BTreeMap<i32, Duration> {
    let delay = |id: i32| if concerned.contains(&id) { Duration::ZERO } else { late };
    testbed.broker_ids().into_iter().map(|id| (id, delay(id))).collect()
}

/// Leaders that have moved.
struct Moved {
    /// When the brokers knew, at worst, if that was observed.
    seen: Option<Seen>,
    /// Start and end of each disturbance.
    times: Vec<(Instant, Instant)>,
    what: &'static str,
}

/// Apache Kafka: all leaders move at the same time, twice, or one after the other.
fn on_apache(name: &str, turn: &Turn<'_>) -> Result<Sample> {
    let topic = turn.topic(name);
    let testbed = turn.testbed;
    let keyed = [KEYED.name, KEYED_ONE_BY_ONE.name].contains(&turn.arm.name);
    let few = [FEW.name, FEW_ANY.name, FEW_BASELINE.name].contains(&turn.arm.name);
    let partitions = if few { 6 } else { 100 };
    let run = APACHE_RUN.mul_f64(turn.setting.scale.max(0.2));
    let config = testbed.producer().linger(Duration::from_millis(5));
    let load = Load {
        config: with_properties(config, turn.arm.properties)?,
        records: (RATE * run.as_secs_f64()) as u64,
        // Excludes the time in which the JVM of a broker that has just started compiles its code (JIT).
        warmup: (RATE * run.as_secs_f64() * 0.2) as u64,
        rate: RATE,
        size: SIZE,
        keys: if keyed { Keys::Cycle(KEYS) } else { Keys::None },
        ..Load::new(turn, &topic)?
    };
    let records = (RATE * REHEARSAL.as_secs_f64()) as u64;
    rehearse_elsewhere(&Load { records, ..load.clone() }, turn, partitions, |start, topic| {
        sleep_until(start, REHEARSAL / 2);
        move_all(testbed, topic).map(drop)
    })?;
    testbed.create_topic(&topic, partitions, REPLICAS)?;
    let one_by_one = [ONE_BY_ONE.name, KEYED_ONE_BY_ONE.name].contains(&turn.arm.name);
    let (sent, moved) = turn.send(load, |start| match one_by_one {
        true => one_after_the_other(testbed, &topic, (start, run), partitions),
        false => all_at_once(testbed, &topic, (start, run)),
    })?;
    let mut sample = sent.sample();
    for (asked, known) in moved.times {
        sample.mark(sent.start, asked, known, moved.what);
    }
    let order = if keyed { Order::Sent } else { Order::Acknowledged };
    read_back(&sent, order, &mut sample)?;
    if let Some(seen) = moved.seen {
        sample.note("first_broker_knows_ms", Figure::Worst(seen.first.as_secs_f64() * 1000.0));
        sample.note("all_brokers_know_ms", Figure::Worst(seen.all.as_secs_f64() * 1000.0));
    }
    sample.note("stall_ms", worst_ms(sent.longest_silence(0)));
    testbed.delete_topic(&topic)?;
    Ok(sample)
}

fn all_at_once(testbed: &Testbed, topic: &str, (start, run): (Instant, Duration)) -> Result<Moved> {
    let (mut worst, mut times) = (Seen::default(), Vec::new());
    for part in MOVES {
        sleep_until(start, run.mul_f64(part));
        let (asked, seen) = move_all(testbed, topic)?;
        times.push((asked, asked + seen.all));
        worst = worst.max(seen);
    }
    let what = "all leaders move, until every broker knows";
    Ok(Moved { seen: Some(worst), times, what })
}

fn one_after_the_other(
    testbed: &Testbed,
    topic: &str,
    (start, run): (Instant, Duration),
    partitions: i32,
) -> Result<Moved> {
    let former = testbed.describe(topic)?;
    let [from, until] = MOVING.map(|part| run.mul_f64(part));
    let pause = (until - from) / partitions as u32;
    let move_next = |partition: i32| {
        sleep_until(start, from + pause * partition as u32);
        testbed.rotate_leaders(topic, Some(partition))
    };
    (0..partitions - 1).try_for_each(move_next)?;
    let (brokers, last) = (testbed.broker_ids(), |_| move_next(partitions - 1));
    let moved = |now: &TopicDescription| have_moved(&former, now);
    let (asked, done, seen) = watch(testbed, &brokers, topic, MOVE_LIMIT, moved, last)?;
    done?;
    let times = vec![(start + from, asked + seen?.all)];
    Ok(Moved { seen: None, times, what: "leaders move, one after the other" })
}

/// Whether every partition has another leader.
fn have_moved(former: &TopicDescription, now: &TopicDescription) -> bool {
    let pairs = now.partitions.iter().zip(&former.partitions);
    now.partitions.len() == former.partitions.len()
        && pairs.into_iter().all(|(now, old)| now.leader.is_some() && now.leader != old.leader)
}

/// Moves every leader; returns when the move was requested, and when the brokers' metadata showed it.
fn move_all(testbed: &Testbed, topic: &str) -> Result<(Instant, Seen)> {
    let former = testbed.describe(topic)?;
    let moved = |now: &TopicDescription| have_moved(&former, now);
    let brokers = testbed.broker_ids();
    let rotate = |_| testbed.rotate_leaders(topic, None);
    let (asked, rotated, seen) = watch(testbed, &brokers, topic, MOVE_LIMIT, moved, rotate)?;
    rotated?;
    Ok((asked, seen?))
}

fn kip_951() -> Vec<Published> {
    // Run lines of the KIP: average, median, 95th, 99th, 99.9th percentile and maximum, in milliseconds.
    let runs: [(&'static str, [[f64; 6]; 3]); 3] = [
        (
            BASELINE.name,
            [
                [12.56, 6.0, 8.0, 12.0, 2967.0, 8087.0],
                [15.51, 6.0, 8.0, 13.0, 859.0, 11_652.0],
                [8.63, 6.0, 8.0, 14.0, 1201.0, 3224.0],
            ],
        ),
        (
            HINTS.name,
            [
                [8.51, 6.0, 8.0, 15.0, 346.0, 2949.0],
                [15.11, 6.0, 8.0, 12.0, 174.0, 11_118.0],
                [11.71, 6.0, 8.0, 15.0, 125.0, 6933.0],
            ],
        ),
        (
            REFRESH.name,
            [
                [9.77, 6.0, 8.0, 14.0, 1781.0, 6756.0],
                [11.07, 5.0, 7.0, 11.0, 1934.0, 7409.0],
                [16.26, 6.0, 9.0, 16.0, 5352.0, 14_211.0],
            ],
        ),
    ];
    let line = |arm, [avg, p50, p95, p99, p999, max]: [f64; 6]| Published {
        arm,
        source: "KIP-951",
        latency_us: PublishedLatency {
            avg: Some(avg * 1000.0),
            p50: Some(p50 * 1000.0),
            p95: Some(p95 * 1000.0),
            p99: Some(p99 * 1000.0),
            p999: Some(p999 * 1000.0),
            max: Some(max * 1000.0),
        },
        throughput_mbps: Some(95.37),
        note: "40,000,000 records at 100,000/s, 6 brokers and a client on m5.xlarge",
    };
    runs.into_iter().flat_map(|(arm, runs)| runs.map(|run| line(arm, run))).collect()
}
