//! `metadata-churn` (KAFKA-16259): what a send takes while the metadata of very many partitions changes all the time.
//!
//! A scripted cluster answers every Metadata request with new epochs for every partition and a new leader for one
//! partition of each topic. Sixteen threads send records to random partitions on a schedule. A send is timed from its
//! call to its return, and one that a former send of its thread has delayed from when it was due: a lock that is held
//! for long would otherwise hide the sends that it keeps from being called.
//!
//! Two arms, with the same load, the same producer and as many refreshes:
//!
//! * [`Arm::Snapshots`]: the producer as it is, its metadata refreshed through `metadata.max.age.ms`;
//! * [`Arm::Locked`]: before each send the record's partition is looked up in one map behind one lock, which every
//!   refresh holds while it rebuilds the map, as Java's producer did; the producer's own metadata stays as it is.

mod broker;
mod locked;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

pub use self::broker::ScriptedCluster;
use self::locked::{Fetcher, LockedCache};
use crate::latency::{Latencies, Summary};
use curtail::{Producer, ProducerConfig, Record};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde::Serialize;
use tokio::runtime::Handle;

/// How metadata is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Immutable snapshots that share what does not change.
    Snapshots,
    /// One mutable map behind one lock.
    Locked,
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// Topics.
    pub topics: usize,
    /// Partitions of each topic.
    pub partitions: usize,
    /// Threads that send.
    pub senders: usize,
    /// Records per second of each thread.
    pub rate: u32,
    /// Every topic is refreshed once in this time.
    pub refresh: Duration,
    /// How long to measure.
    pub duration: Duration,
}

impl Default for Churn {
    /// 250,000 partitions over 5,000 topics, 16 threads with 250 records/s each, two full refreshes a second.
    fn default() -> Self {
        Self {
            topics: 5_000,
            partitions: 50,
            senders: 16,
            rate: 250,
            refresh: Duration::from_millis(500),
            duration: Duration::from_secs(20),
        }
    }
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ChurnReport {
    /// The arm.
    pub arm: Arm,
    /// Sends measured.
    pub sends: u64,
    /// Topics refreshed while it was measured, per second.
    pub topics_per_second: f64,
    /// From the call of `send` to its return, in microseconds.
    pub send: Summary,
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ChurnError {
    /// The client failed.
    #[error(transparent)]
    Client(#[from] curtail::Error),
    /// The scripted cluster failed.
    #[error("the scripted cluster: {0}")]
    Cluster(#[from] io::Error),
    /// A sender ended early.
    #[error("a sender ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Runs one arm. Needs a runtime with more than one worker thread for figures that mean something.
///
/// # Errors
/// The client or the scripted cluster failed.
pub async fn run(arm: Arm, churn: Churn) -> Result<ChurnReport, ChurnError> {
    let cluster = Arc::new(ScriptedCluster::start(churn.partitions)?);
    let names: Arc<[Arc<str>]> =
        (0..churn.topics).map(|n| Arc::from(format!("topic-{n:05}"))).collect();
    // In the locked arm the refreshes are those of the locked map.
    let age = if arm == Arm::Snapshots { churn.refresh } else { Duration::from_secs(300) };
    // Enough that what a long wait has held up can be sent at once.
    let config =
        ProducerConfig::new(cluster.bootstrap()).metadata_max_age(age).buffer_memory(1 << 28);
    let producer = Producer::new(config)?;
    let all: Vec<&str> = names.iter().map(|name| &**name).collect();
    producer.warm_up(&all).await?;

    let stop = Arc::new(AtomicBool::new(false));
    let cache = match arm {
        Arm::Snapshots => None,
        Arm::Locked => Some(keep_locked(&cluster, &names, churn.refresh, &stop)?),
    };
    let before = cluster.topics_answered();
    let began = Instant::now();
    let senders: Vec<_> = (0..churn.senders)
        .map(|seed| {
            let (producer, names, cache) = (producer.clone(), names.clone(), cache.clone());
            let send = move || send(&producer, &names, cache.as_deref(), churn, seed as u64);
            tokio::task::spawn_blocking(send)
        })
        .collect();
    let mut latencies = Latencies::default();
    for sender in senders {
        latencies.add(&sender.await??);
    }
    let elapsed = began.elapsed().as_secs_f64();
    let topics = cluster.topics_answered() - before;
    stop.store(true, Ordering::Relaxed);
    producer.close().await?;
    Ok(ChurnReport {
        arm,
        sends: latencies.count(),
        topics_per_second: topics as f64 / elapsed,
        send: latencies.summary(),
    })
}

/// Fills the locked map, and starts the thread that refreshes it.
fn keep_locked(
    cluster: &ScriptedCluster,
    names: &[Arc<str>],
    every: Duration,
    stop: &Arc<AtomicBool>,
) -> io::Result<Arc<LockedCache>> {
    let mut fetcher = Fetcher::new(cluster, names)?;
    let cache = Arc::new(LockedCache::default());
    cache.update(fetcher.fetch()?);
    let (updated, stop) = (cache.clone(), stop.clone());
    std::thread::spawn(move || {
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            next += every;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let Ok(answered) = fetcher.fetch() else { return };
            updated.update(answered);
        }
    });
    Ok(cache)
}

fn send(
    producer: &Producer,
    names: &[Arc<str>],
    cache: Option<&LockedCache>,
    churn: Churn,
    seed: u64,
) -> Result<Latencies, curtail::Error> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut latencies = Latencies::default();
    let step = Duration::from_secs(1) / churn.rate.max(1);
    let value = [b'v'; 100];
    let began = Instant::now();
    let mut due = began + step * seed as u32 / churn.senders.max(1) as u32;
    let mut returned = began;
    let mut last = None;
    while due < began + churn.duration {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let topic = &names[random.random_range(0..names.len())];
        let index = random.random_range(0..churn.partitions);
        let record = Record::to(topic).partition(index as i32).value(&value);
        // A timer that fires late is no fault of the send.
        let called = if returned > due { due } else { Instant::now() };
        if let Some(cache) = cache {
            std::hint::black_box(cache.look_up(topic, index));
        }
        last = Some(producer.try_send(record)?);
        returned = Instant::now();
        latencies.record(returned - called);
        due += step;
    }
    if let Some(last) = last {
        Handle::current().block_on(last)?;
    }
    Ok(latencies)
}
