//! Crash test: kills brokers and clients with kill -9, many times, and proves what was acknowledged.
//!
//! [`Soak::run`] has two parts. The first one sends keyed and keyless records with acks=all while brokers are killed
//! one after the other. The second one copies a topic exactly once, in separate processes ([`work`]), while brokers and
//! those processes are killed. Afterwards a consumer reads every topic back; on Apache Kafka, Kafka's own
//! DumpLogSegments reads the leaders' log files as well. Both readings are compared with the ledger of
//! acknowledgements.

mod copy;
mod dump;
mod faults;
mod produce;
mod readback;

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

pub use self::copy::{Worker, work};
use self::faults::Killer;
use crate::{
    experiments::{ClusterKind, Environment, Found, Machine, Needs, Testbed, versions},
    perf::{Error, Result},
};

/// Partitions of every topic.
const PARTITIONS: i32 = 12;
/// Replicas of every topic, of which two must be in sync for an acknowledgement.
const REPLICAS: i16 = 3;
const MIN_INSYNC_REPLICAS: &str = "2";
/// Bytes of a value.
const RECORD_SIZE: usize = 100;

/// Faults and load of a run.
#[derive(Clone, Debug)]
pub struct Soak {
    /// Cluster to start and to kill; an existing cluster is refused.
    pub cluster: ClusterKind,
    /// Brokers to kill while keyed and keyless records are sent.
    pub broker_kills: u32,
    /// Brokers to kill during the exactly-once copy; as many of its processes are killed.
    pub copy_kills: u32,
    /// Records per second and topic.
    pub rate: f64,
    /// Seed for victims and moments.
    pub seed: u64,
    /// The command that runs one copying process ([`work`]); it gets the address and the number of the worker as
    /// arguments.
    pub worker: Vec<String>,
}

/// Faults of a run, and the topics compared after it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `embedded` or `apache`.
    pub cluster: String,
    /// Seed for victims and moments.
    pub seed: u64,
    /// Where it ran.
    pub environment: Environment,
    /// Brokers killed under the load of keyed and keyless records.
    pub broker_kills: u32,
    /// Brokers killed during the copy.
    pub copy_broker_kills: u32,
    /// Copying processes killed.
    pub copy_client_kills: u32,
    /// Copying processes that ended without being killed, which none should.
    pub copy_client_failures: u32,
    /// Every topic that was checked.
    pub topics: Vec<TopicReport>,
}

/// Records sent to one topic, and the comparison with each reading of it.
#[derive(Clone, Debug, Serialize)]
pub struct TopicReport {
    /// Topic name.
    pub topic: String,
    /// Records sent, or to be copied.
    pub sent: u64,
    /// Records acknowledged, or committed by the copy.
    pub acknowledged: u64,
    /// Records whose send ended with an error.
    pub failed: u64,
    /// The first such error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Longest time from the intended send to the acknowledgement, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_ms: Option<f64>,
    /// Readings of the topic after the run.
    pub readings: Vec<Reading>,
}

/// A reading of a topic, compared with what was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// `consumer` or `DumpLogSegments`.
    pub by: &'static str,
    /// Records read.
    pub records: u64,
    /// Acknowledged records that are not where they were acknowledged.
    pub lost: u64,
    /// Records that exist more than once.
    pub duplicated: u64,
    /// Records out of the promised order.
    pub reordered: u64,
}

impl Reading {
    fn is_clean(&self) -> bool {
        self.lost == 0 && self.duplicated == 0 && self.reordered == 0
    }
}

impl Report {
    /// Whether nothing was lost, duplicated or reordered, no send failed, and no process ended without being killed.
    #[must_use]
    pub fn held(&self) -> bool {
        self.copy_client_failures == 0
            && self.topics.iter().all(|topic| {
                topic.failed == 0
                    && !topic.readings.is_empty()
                    && topic.readings.iter().all(Reading::is_clean)
            })
    }
}

/// A step of the run, for progress output.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The cluster is being started.
    Starting,
    /// A broker was killed.
    Broker {
        /// Broker id.
        id: i32,
        /// Brokers killed so far in this part.
        done: u32,
        /// Brokers to kill in this part.
        of: u32,
    },
    /// A copying process was killed.
    Worker {
        /// Worker number.
        number: u32,
        /// Processes killed so far.
        done: u32,
        /// Processes to kill.
        of: u32,
    },
    /// A topic is being read back.
    Reading {
        /// Topic name.
        topic: &'a str,
    },
}

impl Soak {
    /// Runs both parts, one after the other.
    ///
    /// # Errors
    /// [`Error::Options`] for a cluster that cannot be killed, and whatever keeps the run from its verdict. Records that
    /// were lost are part of the report.
    pub fn run(&self, told: &mut dyn FnMut(Event<'_>)) -> Result<Report> {
        if !matches!(self.cluster, ClusterKind::Embedded | ClusterKind::Apache) {
            let text = "this command kills brokers; use --cluster embedded or apache";
            return Err(Error::Options(text.into()));
        }
        told(Event::Starting);
        let machine = Machine::now();
        let testbed = Testbed::on(&self.cluster, &needs())?;
        let mut killer = Killer::new(&testbed, self.seed);
        let mut topics = Vec::new();
        if self.broker_kills > 0 {
            topics.extend(produce::run(self, &mut killer, told)?);
        }
        let mut copied = copy::Kills::default();
        if self.copy_kills > 0 {
            let (topic, kills) = copy::run(self, &mut killer, told)?;
            topics.push(topic);
            copied = kills;
        }
        Ok(Report {
            cluster: self.cluster.to_string(),
            seed: self.seed,
            environment: machine.until_now(&self.cluster, versions(&self.cluster)),
            broker_kills: self.broker_kills,
            copy_broker_kills: copied.brokers,
            copy_client_kills: copied.workers,
            copy_client_failures: copied.failures,
            topics,
        })
    }
}

/// Three brokers that notice a dead one after 3 s, so that a hundred kills take minutes and not an hour.
fn needs() -> Needs {
    Needs {
        brokers: 3,
        faults: true,
        properties: vec![
            ("broker.session.timeout.ms", "3000".into()),
            ("broker.heartbeat.interval.ms", "500".into()),
            ("offsets.topic.num.partitions", "3".into()),
            ("offsets.topic.replication.factor", "3".into()),
            ("transaction.state.log.num.partitions", "3".into()),
            ("transaction.state.log.replication.factor", "3".into()),
            ("transaction.state.log.min.isr", "2".into()),
            ("group.initial.rebalance.delay.ms", "0".into()),
        ],
        ..Needs::default()
    }
}

fn create_topic(testbed: &Testbed, name: &str) -> Result<()> {
    let settings = [("min.insync.replicas", MIN_INSYNC_REPLICAS)];
    testbed.create_topic_with(name, PARTITIONS, REPLICAS, &settings)
}

/// The value of a record: its number in twelve digits, filled up with dots. DumpLogSegments prints it as it is.
fn value(number: u64) -> Vec<u8> {
    let mut value = format!("{number:0width$}", width = DIGITS).into_bytes();
    value.resize(RECORD_SIZE, b'.');
    value
}

const DIGITS: usize = 12;

/// The number in a value; `None` for a value that this run did not write.
fn number(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value.get(..DIGITS)?).ok()?;
    digits.parse().ok()
}

/// Log files of each partition of a topic at its leader; `None` where the brokers' files cannot be read.
fn leaders_files(testbed: &Testbed, topic: &str) -> Result<Option<BTreeMap<i32, Vec<PathBuf>>>> {
    let mut files = BTreeMap::new();
    for partition in testbed.describe(topic)?.partitions {
        let Some(leader) = partition.leader else {
            let text = format!("{topic}-{} has no leader", partition.partition);
            return Err(Error::Unexpected(text));
        };
        match testbed.log_files(leader, topic, partition.partition)? {
            Some(of) => files.insert(partition.partition, of),
            None => return Ok(None),
        };
    }
    Ok(Some(files))
}

/// Compares both readings of a topic with its fates.
fn readings(
    testbed: &Testbed,
    topic: &str,
    check: impl Fn(&'static str, &Found) -> Reading,
    wanted: usize,
) -> Result<Vec<Reading>> {
    let read = readback::read(testbed, topic, wanted)?;
    let mut readings = vec![check("consumer", &read)];
    if let Some(files) = leaders_files(testbed, topic)? {
        readings.push(check("DumpLogSegments", &dump::read(testbed, &files)?));
    }
    Ok(readings)
}

fn count(found: &Found) -> u64 {
    found.values().map(|records| records.len() as u64).sum()
}
