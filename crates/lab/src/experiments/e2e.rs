//! Latency from the send to the poll: one record at a time, as measured in the pull request for KAFKA-17182,
//! and at a steady rate.

mod java;
mod open_loop;
#[cfg(test)]
mod tests;

use std::time::Instant;

use curtail::{ConsumerConfig, ProducerConfig};

use super::{
    Arm, Arms, ClosedLoop, ClusterKind, Condition, Experiment, LatencyUntil, Model, Published,
    PublishedLatency, Sample, Setting, Simulated, Testbed, Turn, load::warm_brokers,
    phases::Prober, readers, testbed::Needs, workload::properties,
};
use crate::{
    cpu::CpuTime,
    latency::Latencies,
    peers::{Driver, Peer, driver::RoundTrips},
    perf::{
        Error, Event, Progress, Result, Target, Topic,
        e2e::{self, Measured},
    },
};

const RECORDS: f64 = 100_000.0;
const SIZE: usize = 128;
const PARTITIONS: i32 = 30;
/// Warm-up records. Kafka's tool has none, but a cluster that has just started is not what is measured.
const WARMUP: u64 = 1_000;

/// Records of the rehearsal on Apache Kafka.
const REHEARSAL: f64 = 30_000.0;

/// A test of this experiment.
struct Test {
    arm: Arm,
    brokers: u32,
    pace: Pace,
    /// Release of the Java client for the run of Kafka's tool, if not that of the brokers.
    java: Option<&'static str>,
    limits: Limits,
}

/// Upper limits of average and 50th, 99th and 99.9th percentile, in ms.
enum Limits {
    /// Figures of [`PUBLISHED`], and a note on them.
    Published([f64; 4], &'static str),
    /// Aims of this project for a workload that no document has published. The results page has the same ones.
    Aims([Option<f64>; 4]),
}

impl Limits {
    fn figures(&self) -> [Option<f64>; 4] {
        match *self {
            Self::Published(figures, _) => figures.map(Some),
            Self::Aims(figures) => figures,
        }
    }

    /// Requires that no figure is above its limit.
    fn condition(&self, arm: &str, seen: [f64; 4]) -> Condition {
        let limits = self.figures();
        let whose = match self {
            Self::Published(..) => "the published figures".to_owned(),
            Self::Aims(_) => format!("the aims, {}", in_words(limits)),
        };
        Condition {
            text: format!("{arm}: not above {whose} ({})", in_words(seen.map(Some))),
            held: seen
                .iter()
                .zip(limits)
                .all(|(seen, limit)| limit.is_none_or(|limit| *seen <= limit)),
        }
    }
}

/// Average and percentiles in words: `avg 0.77, p99 3.62 ms`.
fn in_words(figures: [Option<f64>; 4]) -> String {
    let names = ["avg", "p50", "p99", "p99.9"].into_iter();
    let known = names.zip(figures).filter_map(|(name, ms)| Some(format!("{name} {:.2}", ms?)));
    format!("{} ms", known.collect::<Vec<_>>().join(", "))
}

/// Send times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Closed loop: the next record is sent once the previous one has been read.
    OneAtATime,
    /// Open loop, at a steady rate.
    OpenLoop,
}

/// Release of the Java client that completes the consumer protocol's test.
///
/// `EndToEndLatency` with 4.3.0 or 4.3.2 stops after a few hundred records: its poll waits until it times
/// out. 4.2.1 and 4.4.0 complete. The cause is probably KAFKA-20915: responses that wake no thread.
const JAVA_THAT_GOES_ON: Option<&str> = Some("4.4.0");

const PUBLISHED: &str = "pull request 18795, EndToEndLatency";

const CLASSIC: &[(&str, &str)] = &[("group.protocol", "classic")];
const CONSUMER: &[(&str, &str)] = &[("group.protocol", "consumer")];

const TESTS: &[Test] = &[
    Test {
        arm: Arm {
            name: "classic-3",
            about: "classic protocol, three brokers and replicas",
            properties: CLASSIC,
        },
        brokers: 3,
        pace: Pace::OneAtATime,
        java: None,
        limits: Limits::Published([1.4871, 1.0, 3.0, 6.0], "before the change 1.4901, 1, 3, 6"),
    },
    Test {
        arm: Arm {
            name: "consumer-3",
            about: "consumer protocol, three brokers and replicas",
            properties: CONSUMER,
        },
        brokers: 3,
        pace: Pace::OneAtATime,
        java: JAVA_THAT_GOES_ON,
        limits: Limits::Published([1.4807, 1.0, 3.0, 7.0], "before the change 1.4704, 1, 3, 6"),
    },
    Test {
        arm: Arm { name: "classic-1", about: "classic protocol, one broker", properties: CLASSIC },
        brokers: 1,
        pace: Pace::OneAtATime,
        java: None,
        limits: Limits::Published([1.0193, 1.0, 2.0, 4.0], "before the change 1.0777, 1, 2, 5"),
    },
    Test {
        arm: Arm {
            name: "consumer-1",
            about: "consumer protocol, one broker",
            properties: CONSUMER,
        },
        brokers: 1,
        pace: Pace::OneAtATime,
        java: JAVA_THAT_GOES_ON,
        limits: Limits::Published([1.0503, 1.0, 2.0, 4.0], "before the change 1.0937, 1, 2, 4"),
    },
    Test {
        arm: Arm {
            name: "open-1",
            about: "2,000 records/s of 512 bytes, one broker",
            properties: &[],
        },
        brokers: 1,
        pace: Pace::OpenLoop,
        java: None,
        limits: Limits::Aims([None, Some(0.32), Some(0.7), None]),
    },
];

/// `e2e`.
pub(super) struct EndToEnd;

impl Experiment for EndToEnd {
    fn name(&self) -> &'static str {
        "e2e"
    }

    fn about(&self) -> &'static str {
        "from send to poll on one broker and three: one record at a time (acks=1, 30 partitions), and a steady rate"
    }

    fn source(&self) -> &'static str {
        "KAFKA-17182, pull request 18795, EndToEndLatency"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        // A client without the protocol has no arm for it.
        let known =
            |arm: &Arm| readers::with_properties(ConsumerConfig::default(), arm.properties).is_ok();
        TESTS.iter().map(|test| test.arm).filter(known).collect()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        let published = |test: &Test| {
            let Limits::Published(figures, note) = test.limits else { return None };
            let [avg, p50, p99, p999] = figures.map(|ms| Some(ms * 1000.0));
            Some(Published {
                arm: test.arm.name,
                source: PUBLISHED,
                latency_us: PublishedLatency { avg, p50, p99, p999, ..PublishedLatency::default() },
                throughput_mbps: None,
                note,
            })
        };
        TESTS.iter().filter_map(published).collect()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let test = test_of(arm)?;
        if test.pace == Pace::OpenLoop {
            return Ok(open_loop::simulated(setting, arm).into());
        }
        let group = [("group.id", "readers"), ("enable.auto.commit", "false")];
        Ok(Simulated::ClosedLoop(Box::new(ClosedLoop {
            brokers: test.brokers,
            partitions: PARTITIONS,
            replicas: test.brokers as i16,
            producer: vec![("acks", "1".into()), ("linger.ms", "0".into())],
            consumer: properties(&group, arm),
            records: (RECORDS * setting.scale).ceil() as u64,
            warmup: WARMUP,
            size: SIZE,
            model: Model::default(),
        })))
    }

    /// Each test has its own cluster, as in the published run.
    fn start(&self, setting: &Setting) -> Result<Testbed> {
        match &setting.cluster {
            ClusterKind::Bootstrap(_) => Err(Error::Options(
                "e2e starts a cluster for each arm; use --cluster embedded, sim or apache".into(),
            )),
            _ => Ok(Testbed::none()),
        }
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let test = test_of(turn.arm)?;
        let needs =
            Needs { brokers: test.brokers, one_is_enough: test.brokers == 1, ..Needs::default() };
        let testbed = Testbed::start(turn.setting, &needs)?;
        if turn.setting.cluster == ClusterKind::Apache {
            warm_brokers(&testbed, turn.setting.seed, turn.told)?;
        }
        let topic = turn.topic(self.name());
        if test.pace == Pace::OpenLoop {
            return open_loop::run(&Turn { testbed: &testbed, ..*turn }, &topic);
        }
        testbed.create_topic(&topic, PARTITIONS, test.brokers as i16)?;
        if turn.setting.cluster == ClusterKind::Apache {
            // The rehearsal keeps the brokers' JIT compilation out of every figure.
            let records = (REHEARSAL * turn.setting.scale).ceil() as u64;
            ours(turn, &testbed, &topic, records)?;
        }
        let records = (RECORDS * turn.setting.scale).ceil() as u64;
        if let Some(driver) = turn.driver {
            return theirs(turn, driver, &testbed, topic, records);
        }
        beside_java(turn, test, &testbed, &topic, records)
    }

    fn awaits_deliveries(&self, arm: &Arm) -> bool {
        TESTS.iter().any(|test| test.arm.name == arm.name && test.pace == Pace::OpenLoop)
    }

    fn admits(&self, arm: &Arm, peer: Peer) -> Result<(), &'static str> {
        let test = TESTS.iter().find(|test| test.arm.name == arm.name);
        if test.is_some_and(|test| test.java.is_some()) && peer == Peer::Java {
            return Err("its consumer stops with the consumer protocol in this release");
        }
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        for test in TESTS {
            let Some(sample) = arms.get(test.arm.name) else { continue };
            conditions.push(test.limits.condition(test.arm.name, in_ms(&sample.latency)));
            conditions.extend(java::condition(test, sample));
        }
        conditions
    }
}

fn test_of(arm: &Arm) -> Result<&'static Test> {
    let test = TESTS.iter().find(|test| test.arm.name == arm.name);
    test.ok_or_else(|| Error::Options(format!("no arm {}", arm.name)))
}

/// Average, 50th, 99th and 99.9th percentile.
fn in_ms(latency: &Latencies) -> [f64; 4] {
    let figures = latency.summary();
    [figures.avg, figures.p50, figures.p99, figures.p999].map(|us| us / 1000.0)
}

/// Discards progress.
struct Quiet;

impl Progress for Quiet {
    fn on(&mut self, _: Event<'_>) {}
}

/// Runs Kafka's tool between two halves of our own, if it is installed: brokers get faster for minutes after
/// their start.
fn beside_java(
    turn: &Turn<'_>,
    test: &Test,
    testbed: &Testbed,
    topic: &str,
    records: u64,
) -> Result<Sample> {
    let (start, mut sample) = ours(turn, testbed, topic, records.div_ceil(2))?;
    let from = Instant::now();
    java::beside(test, testbed, topic, records, &mut sample)?;
    let until = Instant::now();
    if records > 1 {
        let (again, mut rest) = ours(turn, testbed, topic, records / 2)?;
        let over_time = std::mem::take(&mut rest.over_time);
        sample.join(rest);
        sample.over_time.add_later(&over_time, again - start);
        sample.mark(start, from, until, "a new client, on Apache Kafka after its EndToEndLatency");
    }
    Ok(sample)
}

/// Runs Curtail; also returns when its first record was sent.
fn ours(
    turn: &Turn<'_>,
    testbed: &Testbed,
    topic: &str,
    records: u64,
) -> Result<(Instant, Sample)> {
    let mut producer = ProducerConfig::new(testbed.bootstrap());
    producer.set("acks", "1").map_err(Error::from)?;
    // Kafka's tool sets fetch.max.wait.ms to 0. A record ends the wait at once (fetch.min.bytes is 1).
    // Without a wait, a consumer keeps sending fetches and takes CPU time from the followers it waits for.
    let consumer =
        ConsumerConfig::default().group_id(format!("{topic}-readers")).enable_auto_commit(false);
    let consumer = readers::with_properties(consumer, turn.arm.properties)?;
    let options = e2e::Options {
        target: Target::Bootstrap(testbed.bootstrap()),
        topic: Topic { name: topic.to_owned(), create: None },
        producer: producer.clone(),
        consumer,
        records: records + WARMUP,
        warmup: WARMUP,
        record_size: SIZE,
        key_size: 0,
        headers: 0,
        header_key_size: 0,
        header_value_size: 0,
    };
    let prober = match turn.setting.cluster {
        ClusterKind::Embedded => None,
        _ => Some(Prober::new(testbed, &producer, topic, SIZE)?),
    };
    let mut probes = prober.as_ref().map(Prober::before).transpose()?.unwrap_or_default();
    let cpu = CpuTime::now();
    let measured = e2e::measure(&options, &|observer| testbed.observe(observer), &mut Quiet);
    testbed.stop_observing();
    let cpu = CpuTime::now() - cpu;
    if let Some(prober) = prober {
        probes.add(prober.after()?);
    }
    let Measured { latencies: latency, phases, exemplars, start, over_time, .. } = measured?;
    let sample = sample_of(records, SIZE, latency, cpu);
    Ok((start, Sample { phases, probes, exemplars, over_time, ..sample }))
}

/// Runs another client, whose driver reads all partitions without a group.
fn theirs(
    turn: &Turn<'_>,
    driver: &Driver,
    testbed: &Testbed,
    topic: String,
    records: u64,
) -> Result<Sample> {
    let properties = turn.arm.properties.iter();
    let before = CpuTime::now();
    let measured = driver.round_trips(&RoundTrips {
        bootstrap: testbed.bootstrap(),
        topic,
        records,
        warmup: WARMUP,
        size: SIZE,
        acks: "1",
        properties: properties.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
    })?;
    let mut cpu = measured.cpu;
    if turn.setting.cluster == ClusterKind::Embedded {
        // CPU time of the brokers, as for Curtail.
        cpu = cpu + (CpuTime::now() - before);
    }
    let mut latency = Latencies::default();
    for fate in measured.fates {
        let read = fate.acknowledged.map(|place| place.at.saturating_sub(fate.sent));
        latency.record_nanos(read.ok_or_else(|| {
            Error::Unexpected(format!("{}: a record was not read", driver.peer().name()))
        })?);
    }
    Ok(sample_of(records, SIZE, latency, cpu))
}

/// The sample of a run with one record at a time.
pub(super) fn sample_of(records: u64, size: usize, latency: Latencies, cpu: CpuTime) -> Sample {
    let elapsed = latency.mean() * u32::try_from(records).unwrap_or(u32::MAX);
    let bytes = records * size as u64;
    let latency_until = LatencyUntil::Polled;
    Sample { records, bytes, elapsed, cpu, latency, latency_until, ..Sample::default() }
}
