//! Latency of `send` calls while the metadata of a large number of partitions keeps changing.
//!
//! A scripted cluster responds to every Metadata request with new epochs for every partition and a new leader
//! for one partition of each topic. Sixteen tasks send records to random partitions. Each has a schedule and
//! a thread, so that a blocked task delays no other.
//!
//! A send is timed from its call to its return, or from its due time if the task's previous send delayed it.
//! Otherwise a long-held lock would hide the sends that it keeps from being called.
//!
//! Three arms run the same load with the same producer; the first two apply equally many metadata updates per
//! second:
//!
//! * `snapshots`: the producer as it is. Its metadata is always older than `metadata.max.age.ms`, so it
//!   requests one group of topics after the other, and every response moves leaders and routes.
//! * `locked`: metadata as the seed's producer kept it ([`locked`]). Before each send the record's partition
//!   is looked up in one cache behind one lock, which every update holds while it rebuilds the cache.
//! * `quiet`: the producer as it is, and nothing changes. Sixteen threads and the brokers share the cores, so
//!   the scheduler may interrupt a send; this arm shows how much of the tail that explains.
//!
//! Java's clients send the same load in a separate process and keep their own metadata age. `snapshots` then
//! stands for `metadata.max.age.ms` alone: java-2.8 has the mutable cache.
//!
//! Before and after each send, the kernel's counters of context switches are read. An involuntary switch
//! counts the send as preempted; a voluntary one counts it as waiting.

mod locked;
mod senders;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use curtail::{Producer, ProducerConfig};

use self::{
    locked::{Fetcher, LockedCache},
    senders::{Load, Senders},
};
use super::{
    Arm, Arms, ClusterKind, Condition, Experiment, Figure, LatencyUntil, Modelled, Published,
    PublishedLatency, Sample, Setting, Testbed, Turn, load::with_properties,
};
use crate::{
    cpu::CpuTime,
    peers::{Driver, Peer, driver::Churn},
    perf::{Error, Result, client_runtime},
    scripted::ScriptedCluster,
};

const TOPICS: usize = 5000;
const PARTITIONS: usize = 50;
/// Period in which every topic is refreshed once; `metadata.max.age.ms` of the first arm.
const REFRESH: Duration = Duration::from_millis(500);
/// Length of the measured part of a turn.
const LENGTH: Duration = Duration::from_secs(10);

/// Limit of the 99th percentile of a send.
const P99_US: f64 = 50.0;
/// Required factor below the locked arm's: the seed's 200 ms to 5 ms.
const FACTOR: f64 = 40.0;
/// Smallest ratio of the two arms' metadata updates that counts as equal.
const AS_MANY: f64 = 0.9;

const SNAPSHOTS: Arm = Arm {
    name: "snapshots",
    about: "immutable snapshots, every topic refreshed twice a second",
    properties: &[("metadata.max.age.ms", "500")],
};
const LOCKED: Arm = Arm {
    name: "locked",
    about: "one lock around a mutable cache, refreshed as often",
    properties: &[],
};
const QUIET: Arm =
    Arm { name: "quiet", about: "immutable snapshots, nothing is refreshed", properties: &[] };

/// Size of an experiment.
#[derive(Clone, Copy, Debug)]
struct Size {
    topics: usize,
    partitions: usize,
    length: Duration,
}

/// `metadata-churn`.
pub(super) struct MetadataChurn;

impl Experiment for MetadataChurn {
    fn name(&self) -> &'static str {
        "metadata-churn"
    }

    fn about(&self) -> &'static str {
        "latency of send while 250,000 partitions keep changing"
    }

    fn source(&self) -> &'static str {
        "KAFKA-16259"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![SNAPSHOTS, LOCKED, QUIET]
    }

    fn rounds(&self, setting: &Setting) -> u32 {
        (3.0 * setting.scale).ceil() as u32
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        let of = |arm, p99_ms: f64, note| Published {
            arm,
            source: "KAFKA-16259",
            latency_us: PublishedLatency { p99: Some(p99_ms * 1000.0), ..Default::default() },
            throughput_mbps: None,
            note,
        };
        vec![
            of("snapshots", 5.0, "to produce through Kafka REST Proxy, with the immutable cache"),
            of("locked", 200.0, "the same with the mutable cache of the Java client 2.8"),
        ]
    }

    fn models(&self, _: &Setting) -> Vec<Modelled> {
        vec![
            Modelled::new(
                "the brokers: scripted ones that acknowledge every record and keep none",
                [
                    ("topics", TOPICS.to_string()),
                    ("partitions of each", PARTITIONS.to_string()),
                    ("every topic changes once in", format!("{} ms", REFRESH.as_millis())),
                ],
            ),
            Modelled::new(
                "the locked arm: a cache behind one lock, as Java's client 2.8 kept it",
                [],
            ),
        ]
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        if setting.cluster == ClusterKind::Embedded {
            return Ok(Testbed::none());
        }
        let text = "metadata-churn starts its own brokers; run it without --cluster";
        Err(Error::Options(text.into()))
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let length = LENGTH.mul_f64(turn.setting.scale);
        let size = Size { topics: TOPICS, partitions: PARTITIONS, length };
        // Another random sequence in each round.
        let seed = turn.setting.seed.wrapping_add(u64::from(turn.round) << 32);
        match turn.driver {
            None => run(turn.arm, size, seed),
            Some(driver) => run_by(driver, turn.arm, size, seed),
        }
    }

    fn awaits_deliveries(&self, _: &Arm) -> bool {
        false
    }

    fn admits(&self, arm: &Arm, peer: Peer) -> Result<(), &'static str> {
        if arm.name == LOCKED.name {
            return Err("only Curtail has this arm");
        }
        peer.has_churn().then_some(()).ok_or("only the Java drivers support this load")
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let all = [SNAPSHOTS, LOCKED, QUIET].map(|arm| (arm.name, arms.get(arm.name)));
        let acknowledged = all.into_iter().filter_map(|(name, sample)| {
            let errors = sample?.errors;
            let text = format!("{name}: every record acknowledged ({errors} not)");
            Some(Condition { text, held: errors == 0 })
        });
        let mut conditions: Vec<Condition> = acknowledged.collect();
        let Some(ours) = arms.get(SNAPSHOTS.name) else { return conditions };
        let p99 = ours.latency.summary().p99;
        conditions.push(Condition {
            text: format!("snapshots: p99 of send below {P99_US:.0} us ({p99:.1} us)"),
            held: p99 < P99_US,
        });
        let Some(locked) = arms.get(LOCKED.name) else { return conditions };
        let theirs = locked.latency.summary().p99;
        conditions.push(Condition {
            text: format!(
                "p99 of send at least {FACTOR:.0} times below the locked arm's ({theirs:.0} us, {:.0} times)",
                theirs / p99
            ),
            held: theirs >= FACTOR * p99,
        });
        let (ours, theirs) = (per_second(ours), per_second(locked));
        conditions.push(Condition {
            text: format!(
                "snapshots: as many topics refreshed as in the locked arm ({ours:.0}/s and {theirs:.0}/s)"
            ),
            held: ours >= AS_MANY * theirs,
        });
        conditions
    }
}

const REFRESHED: &str = "topics_refreshed";

fn per_second(sample: &Sample) -> f64 {
    sample.figure(REFRESHED) / sample.elapsed.as_secs_f64()
}

/// Runs one arm once, with a new cluster and producer.
fn run(arm: &Arm, size: Size, seed: u64) -> Result<Sample> {
    let cluster = ScriptedCluster::start(size.partitions).map_err(|error| scripted(&error))?;
    let names: Arc<[Arc<str>]> =
        (0..size.topics).map(|n| Arc::from(format!("topic-{n:05}"))).collect();
    // Enough memory to send at once all records that a long wait has delayed.
    let config = ProducerConfig::new(cluster.bootstrap()).buffer_memory(1 << 28);
    let config = with_properties(config, arm.properties)?;
    let runtime = client_runtime()?;
    let context = runtime.enter();
    let producer = Producer::new(config)?;
    drop(context);
    let all: Vec<&str> = names.iter().map(|name| &**name).collect();
    runtime.block_on(producer.warm_up(&all))?;
    let updates = match arm.name == LOCKED.name {
        true => Some(Updates::begin(&cluster, &names).map_err(|error| scripted(&error))?),
        false => None,
    };
    let load = Load {
        producer: producer.clone(),
        cache: updates.as_ref().map(|updates| updates.cache.clone()),
        names,
        partitions: size.partitions,
        length: size.length,
        seed,
    };
    let senders = Senders::start(&load, runtime.handle())?;
    senders.wait_for_start();
    let (before, cpu) = (cluster.topics_answered(), CpuTime::now());
    let mut sample = senders.join()?;
    sample.cpu = CpuTime::now() - cpu;
    let refreshed = cluster.topics_answered() - before;
    sample.note(REFRESHED, Figure::Total(refreshed as f64));
    drop(updates);
    runtime.block_on(producer.close())?;
    Ok(sample)
}

/// Runs one arm once, sent by another client.
fn run_by(driver: &Driver, arm: &Arm, size: Size, seed: u64) -> Result<Sample> {
    let cluster = ScriptedCluster::start(size.partitions).map_err(|error| scripted(&error))?;
    let records = (size.length.as_secs_f64() * senders::RATE).ceil() as u64;
    let churn = Churn {
        bootstrap: cluster.bootstrap(),
        topics: size.topics,
        partitions: size.partitions,
        senders: senders::SENDERS,
        records,
        warmup: (records as f64 * senders::WARMUP) as u64,
        rate: senders::RATE,
        size: senders::SIZE,
        seed,
        properties: arm.properties.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
    };
    let (sending, start) = driver.churn(&churn)?.go()?;
    let begin = start + size.length.mul_f64(senders::WARMUP);
    std::thread::sleep(begin.saturating_duration_since(Instant::now()));
    let (before, cpu) = (cluster.topics_answered(), CpuTime::now());
    let measured = sending.finish()?;
    // The brokers run in this process, as they do for Curtail.
    let cpu = measured.cpu + (CpuTime::now() - cpu);
    let latency_until = LatencyUntil::Returned;
    let mut sample = Sample { cpu, latency_until, ..Sample::default() };
    let refreshed = cluster.topics_answered() - before;
    sample.note(REFRESHED, Figure::Total(refreshed as f64));
    sample.first_error = measured.first_error;
    let first = measured.fates.iter().map(|fate| fate.sent).min().unwrap_or(0);
    let mut last = first;
    for fate in &measured.fates {
        let Some(returned) = &fate.acknowledged else {
            sample.errors += 1;
            continue;
        };
        sample.records += 1;
        let latency = returned.at.saturating_sub(fate.sent);
        sample.latency.record_nanos(latency);
        sample.over_time.record(fate.sent, latency);
        last = last.max(returned.at);
    }
    sample.bytes = sample.records * senders::SIZE as u64;
    sample.elapsed = Duration::from_nanos(last - first);
    Ok(sample)
}

fn scripted(error: &std::io::Error) -> Error {
    Error::Cluster(error.to_string())
}

/// Keeps a locked cache fresh until it is dropped.
struct Updates {
    cache: Arc<LockedCache>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Updates {
    /// Fills the cache before it returns.
    fn begin(cluster: &ScriptedCluster, names: &[Arc<str>]) -> std::io::Result<Self> {
        let mut fetcher = Fetcher::new(cluster, names)?;
        let cache = Arc::new(LockedCache::default());
        cache.update(fetcher.fetch()?);
        let (updated, stop) = (cache.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut next = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                next += REFRESH;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                // Without updates the condition on their number does not hold.
                let Ok(answered) = fetcher.fetch() else { return };
                updated.update(answered);
            }
        });
        Ok(Self { cache, stop, thread: Some(thread) })
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }
}
