//! Consuming a backlog from one broker as fast as possible: all partitions, without a group.

use std::time::{Duration, Instant};

use curtail::{Consumer, TopicPartition};

use super::{
    Arm, Arms, Awaits, ClusterKind, Condition, Experiment, LatencyUntil, Published, Sample,
    Setting, Testbed, Turn,
    load::{Load, nanos},
    readers::with_properties,
    testbed::Needs,
};
use crate::{
    cpu::CpuTime,
    peers::{
        Driver, Peer,
        driver::{Drained, Reading},
    },
    perf::{Error, Result, application_runtime},
};

const PARTITIONS: i32 = 6;
/// Longest wait for a record.
const QUIET_LIMIT: Duration = Duration::from_secs(60);

struct Case {
    arm: Arm,
    /// Records at scale 1.
    records: f64,
    size: usize,
}

const CASES: [Case; 2] = [
    case("backlog-100", "a backlog of records of 100 bytes", 1e7, 100),
    case("backlog-1000", "a backlog of records of 1000 bytes", 2e6, 1000),
];

const fn case(name: &'static str, about: &'static str, records: f64, size: usize) -> Case {
    Case { arm: Arm { name, about, properties: &[] }, records, size }
}

/// `consume`.
pub(super) struct Consume;

impl Experiment for Consume {
    fn name(&self) -> &'static str {
        "consume"
    }

    fn about(&self) -> &'static str {
        "a consumer reads a backlog from one broker as fast as possible"
    }

    fn source(&self) -> &'static str {
        "kafka-consumer-perf-test, with each client's default settings"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        CASES.iter().map(|case| case.arm).collect()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        3
    }

    /// Figures of other machines would not compare.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 1, one_is_enough: true, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let case = CASES.iter().find(|case| case.arm.name == turn.arm.name);
        let case = case.ok_or_else(|| Error::Options(format!("no arm {}", turn.arm.name)))?;
        let topic = turn.topic(self.name());
        turn.testbed.create_topic(&topic, PARTITIONS, 1)?;
        let records = (case.records * turn.setting.scale).ceil() as u64;
        fill(turn, &topic, records, case.size)?;
        let read = match turn.driver {
            None => read(turn, &topic, records)?,
            Some(driver) => read_by(driver, turn, &topic, records)?,
        };
        turn.testbed.delete_topic(&topic)?;
        Ok(sample(&read))
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn awaits_deliveries(&self, _: &Arm) -> bool {
        false
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        arms.intact()
    }
}

/// Writes the backlog with Curtail, whichever client reads it.
fn fill(turn: &Turn<'_>, topic: &str, records: u64, size: usize) -> Result<()> {
    let base = Load::new(turn, topic)?;
    let load = Load { records, rate: f64::INFINITY, size, awaits: Awaits::Flush, ..base };
    let (sent, ()) = load.run(|_| Ok(()))?;
    match sent.first_error {
        Some(error) => Err(Error::Unexpected(format!("the backlog was not written: {error}"))),
        None => Ok(()),
    }
}

/// Reads as an application does: polls on tokio's multi-thread runtime, and looks at each record. The time begins with
/// the assignment.
fn read(turn: &Turn<'_>, topic: &str, records: u64) -> Result<Drained> {
    let runtime = application_runtime()?;
    let config = with_properties(turn.testbed.consumer(), turn.arm.properties)?;
    runtime.block_on(async {
        let mut consumer = Consumer::new(config)?;
        consumer.connect().await?;
        let (cpu, begun) = (CpuTime::now(), Instant::now());
        let partitions: Vec<TopicPartition> =
            (0..PARTITIONS).map(|partition| TopicPartition::new(topic, partition)).collect();
        consumer.assign(partitions.clone());
        consumer.seek_to_beginning(&partitions)?;
        let (mut seen, mut bytes) = (0, 0);
        while seen < records {
            let polled = consumer.poll(QUIET_LIMIT).await?;
            let before = seen;
            for record in polled {
                seen += 1;
                bytes += record.value().map_or(0, <[u8]>::len) as u64;
            }
            if seen == before {
                let text = format!("no record for {QUIET_LIMIT:?}; {seen} of {records} came");
                return Err(Error::Unexpected(text));
            }
        }
        let (elapsed, cpu) = (begun.elapsed(), CpuTime::now() - cpu);
        consumer.close().await;
        Ok(Drained { records: seen, bytes, elapsed, cpu })
    })
}

/// Read by another client. The CPU time of brokers in this process counts too, as it does for Curtail.
fn read_by(driver: &Driver, turn: &Turn<'_>, topic: &str, records: u64) -> Result<Drained> {
    let bootstrap = turn.testbed.bootstrap().to_owned();
    let before = CpuTime::now();
    let mut read = driver.read(&Reading { bootstrap, topic: topic.to_owned(), records })?;
    if turn.setting.cluster == ClusterKind::Embedded {
        read.cpu = read.cpu + (CpuTime::now() - before);
    }
    Ok(read)
}

/// The one latency is the time until the last record was read.
fn sample(read: &Drained) -> Sample {
    let mut sample = Sample {
        records: read.records,
        bytes: read.bytes,
        elapsed: read.elapsed,
        cpu: read.cpu,
        latency_until: LatencyUntil::Polled,
        ..Sample::default()
    };
    sample.latency.record_nanos(nanos(read.elapsed));
    sample.over_time.record(0, nanos(read.elapsed));
    sample
}
