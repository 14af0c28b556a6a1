//! One broker responds 20 ms later than the others: distribution and latency of keyless records.

use std::{collections::BTreeMap, time::Duration};

use curtail::ProducerConfig;

use super::{
    Act, Arm, Arms, ClusterKind, Condition, Experiment, Figure, Modelled, Published,
    PublishedLatency, Sample, Setting, Simulated, Testbed, Turn, When, Workload,
    check::{Order, read_back},
    load::{Load, Placement, rehearse, with_properties},
    testbed::Needs,
    workload::properties,
};
use crate::{
    peers::Peer,
    perf::{Error, Result},
};

const RECORDS: f64 = 122_880.0;
const SIZE: usize = 512;
const PARTITIONS: i32 = 3;
/// The slow broker, the first one as in the KIP.
const SLOW: i32 = 1;
const DELAY: Duration = Duration::from_millis(20);

/// Limit of the 99th percentile in the default arms.
const P99_MS: f64 = 5.0;
/// Largest share of the records on the slow broker in the default arms.
const SHARE_PERCENT: f64 = 0.5;

const OFF: &[(&str, &str)] = &[("partitioner.adaptive.partitioning.enable", "false")];

const TIMEOUT: &[(&str, &str)] = &[("partitioner.availability.timeout.ms", "5")];

/// An arm of the KIP's table at one of its rates.
struct Case {
    arm: Arm,
    rate: f64,
    placement: Placement,
    /// Whether the published figures must be met.
    default: bool,
}

const fn case(name: &'static str, about: &'static str, rate: f64) -> Case {
    let arm = Arm { name, about, properties: &[] };
    Case { arm, rate, placement: Placement::Producer, default: false }
}

const QUEUED: &[(&str, &str)] = &[("curtail.partitioner.load", "queued-batches")];

static CASES: [Case; 10] = [
    old("sticky-2048", 2048.0),
    uniform("uniform-2048", 2048.0),
    default("default-2048", 2048.0),
    available("available-2048", 2048.0),
    queued("queued-2048", 2048.0),
    old("sticky-4096", 4096.0),
    uniform("uniform-4096", 4096.0),
    default("default-4096", 4096.0),
    available("available-4096", 4096.0),
    queued("queued-4096", 4096.0),
];

const fn old(name: &'static str, rate: f64) -> Case {
    let case = case(name, "the partition changes with every new batch, as before KIP-794", rate);
    Case { placement: Placement::StickyByBatch, ..case }
}

const fn uniform(name: &'static str, rate: f64) -> Case {
    let mut case = case(name, "partitioner.adaptive.partitioning.enable=false", rate);
    case.arm.properties = OFF;
    case
}

const fn default(name: &'static str, rate: f64) -> Case {
    Case { default: true, ..case(name, "all default settings", rate) }
}

const fn available(name: &'static str, rate: f64) -> Case {
    let mut case = case(name, "partitioner.availability.timeout.ms=5", rate);
    case.arm.properties = TIMEOUT;
    case
}

const fn queued(name: &'static str, rate: f64) -> Case {
    let about = "curtail.partitioner.load=queued-batches, as the Java client chooses";
    let mut case = case(name, about, rate);
    case.arm.properties = QUEUED;
    case
}

fn case_of(arm: &Arm) -> Result<&'static Case> {
    let case = CASES.iter().find(|case| case.arm.name == arm.name);
    case.ok_or_else(|| Error::Options(format!("no arm {}", arm.name)))
}

/// `slow-broker`.
pub(super) struct SlowBroker;

impl Experiment for SlowBroker {
    fn name(&self) -> &'static str {
        "slow-broker"
    }

    fn about(&self) -> &'static str {
        "one of three brokers 20 ms slower: five partitioners at two rates"
    }

    fn source(&self) -> &'static str {
        "KIP-794, test results"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        CASES.iter().map(|case| case.arm).collect()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        kip_794()
    }

    fn models(&self, setting: &Setting) -> Vec<Modelled> {
        let how = match setting.cluster {
            ClusterKind::Apache => "a TCP proxy in front of the broker delays its responses",
            _ => "the broker waits before each response to a produce request",
        };
        let delay = format!("{} ms", DELAY.as_millis());
        vec![Modelled::new(format!("the slow broker: {how}"), [("delay", delay)])]
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let case = case_of(arm)?;
        Ok(Simulated::from(Workload {
            brokers: 3,
            partitions: PARTITIONS,
            replicas: 1,
            properties: properties(&[("linger.ms", "0")], arm),
            records: (RECORDS * setting.scale).ceil() as u64,
            rate: Some(case.rate),
            size: SIZE,
            placement: case.placement,
            order: Order::Acknowledged,
            script: vec![(When::At(Duration::ZERO), Act::Slow { broker: SLOW, by: DELAY })],
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        let needs = Needs { brokers: 3, faults: true, slow: Some(SLOW), ..Needs::default() };
        Testbed::start(setting, &needs)
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let case = case_of(turn.arm)?;
        let topic = turn.topic(self.name());
        let testbed = turn.testbed;
        testbed.create_topic(&topic, PARTITIONS, 1)?;
        let leaders = leaders(testbed, &topic)?;
        // linger.ms was 0 by default when the figures were published.
        let config = ProducerConfig::new(testbed.bootstrap()).linger(Duration::ZERO);
        let load = Load {
            config: with_properties(config, turn.arm.properties)?,
            records: (RECORDS * turn.setting.scale).ceil() as u64,
            rate: case.rate,
            size: SIZE,
            placement: case.placement,
            ..Load::new(turn, &topic)?
        };
        rehearse(&load, turn)?;
        // Only from the start: requests of the client's set-up must not reveal the slow broker.
        let sent = turn.send(load, |_| testbed.slow(SLOW, DELAY));
        testbed.slow(SLOW, Duration::ZERO)?;
        let (sent, ()) = sent?;
        let mut sample = sent.sample();
        let what = format!("broker {SLOW} responds {} ms late", DELAY.as_millis());
        sample.mark(sent.start, sent.start, sent.end(), what);
        read_back(&sent, Order::Acknowledged, &mut sample)?;
        note_shares(&mut sample, &sent.bytes_by_partition(), &leaders);
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, arm: &Arm, peer: Peer) -> Result<(), &'static str> {
        match (arm.name.starts_with("sticky-"), peer.sticks_by_batch()) {
            (true, false) => Err("it lacks the partitioner of before KIP-794"),
            (false, true) => Err("its partitioner is that of the sticky arms"),
            _ => Ok(()),
        }
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        for case in CASES.iter().filter(|case| case.default) {
            if let Some(sample) = arms.get(case.arm.name) {
                conditions.extend(of_default(case.arm.name, sample));
            }
        }
        conditions
    }
}

/// Leader of each partition: one partition per broker.
fn leaders(testbed: &Testbed, topic: &str) -> Result<BTreeMap<i32, i32>> {
    let described = testbed.describe(topic)?;
    let leaders: BTreeMap<i32, i32> =
        described.partitions.iter().filter_map(|p| Some((p.leader?, p.partition))).collect();
    if leaders.len() != PARTITIONS as usize {
        return Err(Error::Unexpected(format!("{topic} is not spread over the three brokers")));
    }
    Ok(leaders)
}

fn note_shares(sample: &mut Sample, bytes: &BTreeMap<i32, u64>, leaders: &BTreeMap<i32, i32>) {
    let total: u64 = bytes.values().sum();
    for (broker, partition) in leaders {
        let bytes = bytes.get(partition).copied().unwrap_or(0);
        sample.note(format!("broker_{broker}_bytes"), Figure::Total(bytes as f64));
        if *broker == SLOW {
            let percent = 100.0 * bytes as f64 / total.max(1) as f64;
            sample.note("slow_share_percent", Figure::Worst(percent));
        }
    }
}

fn of_default(name: &'static str, sample: &Sample) -> Vec<Condition> {
    let share = sample.figure("slow_share_percent");
    let ours = sample.latency.summary();
    let mut conditions = vec![
        Condition::below_ms(&format!("{name}: p99"), ours.p99 / 1000.0, P99_MS),
        Condition {
            text: format!("{name}: below {SHARE_PERCENT}% to the slow broker ({share:.2}%)"),
            held: share < SHARE_PERCENT,
        },
    ];
    if let Some(published) = kip_794().iter().find(|published| published.arm == name) {
        let theirs = &published.latency_us;
        let better = |ours: f64, theirs: Option<f64>| theirs.is_none_or(|theirs| ours <= theirs);
        let seconds = sample.elapsed.as_secs_f64();
        let mbps = sample.bytes as f64 / (1024.0 * 1024.0) / seconds;
        conditions.push(Condition {
            text: format!(
                "{name}: no cell worse than published ({mbps:.2} MB/s, avg {:.2}, p99 {:.2}, p99.9 {:.2} ms)",
                ours.avg / 1000.0,
                ours.p99 / 1000.0,
                ours.p999 / 1000.0
            ),
            // Published throughput has two decimals.
            held: published.throughput_mbps.is_none_or(|theirs| mbps >= theirs - 0.005)
                && better(ours.avg, theirs.avg)
                && better(ours.p99, theirs.p99)
                && better(ours.p999, theirs.p999),
        });
    }
    conditions
}

fn kip_794() -> Vec<Published> {
    // Throughput in MB/s; average, median, 95th, 99th, 99.9th percentile and maximum in ms.
    let lines: [(&'static str, f64, [f64; 6], &'static str); 6] = [
        (
            "sticky-2048",
            0.84,
            [4072.74, 3870.0, 10_221.0, 10_992.0, 11_214.0, 11_246.0],
            "bytes by broker, the slow one first: 46,826,262, 9,207,276, 9,004,193",
        ),
        (
            "uniform-2048",
            1.0,
            [49.92, 8.0, 150.0, 214.0, 422.0, 795.0],
            "22,237,614, 21,606,034, 22,152,273",
        ),
        (
            "default-2048",
            1.0,
            [40.06, 7.0, 141.0, 154.0, 220.0, 817.0],
            "19,244,362, 23,589,010, 23,321,818",
        ),
        (
            "available-2048",
            1.0,
            [36.29, 6.0, 138.0, 150.0, 184.0, 809.0],
            "17,431,944, 25,781,879, 22,977,244",
        ),
        (
            "uniform-4096",
            1.85,
            [426.24, 8.0, 2065.0, 2408.0, 2468.0, 2506.0],
            "22,396,882, 21,652,393, 21,355,134",
        ),
        (
            "default-4096",
            1.99,
            [34.66, 4.0, 143.0, 167.0, 297.0, 785.0],
            "14,866,064, 25,176,418, 25,581,116",
        ),
    ];
    let line =
        |(arm, mbps, [avg, p50, p95, p99, p999, max], note): (_, _, [f64; 6], _)| Published {
            arm,
            source: "KIP-794",
            latency_us: PublishedLatency {
                avg: Some(avg * 1000.0),
                p50: Some(p50 * 1000.0),
                p95: Some(p95 * 1000.0),
                p99: Some(p99 * 1000.0),
                p999: Some(p999 * 1000.0),
                max: Some(max * 1000.0),
            },
            throughput_mbps: Some(mbps),
            note,
        };
    lines.map(line).into()
}
