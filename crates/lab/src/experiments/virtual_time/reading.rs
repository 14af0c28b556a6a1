//! The consumers of a workload.

use std::time::Instant;

use curtail::{Consumer, ConsumerConfig, Producer, ProducerConfig, Record, TopicPartition};
use curtail_cluster::ClusterHandle;
use curtail_sim::world::Handle;
use tokio::{sync::watch, task::JoinHandle, time::sleep_until};

use super::{TOPIC, add_host};
use crate::{
    experiments::{
        Backlog, End, Figure, Order, ReaderLatency, Readers, Sample, Workload,
        load::EARLIER,
        readers::{
            self, Expected, Read, Reader, Readings, SharedOverTime, Work, fetches::Fetches, merged,
            read_until_told,
        },
    },
    perf::{Error, Result, e2e::assign_at_end},
};

/// Creates the consumers, each on its own machine and at the end of every partition.
///
/// # Errors
/// Invalid settings; readers of a load without a rate, in bursts, or with bundled records.
pub(super) async fn at_end(
    workload: &Workload,
    handle: &Handle,
    cluster: &ClusterHandle,
) -> Result<Vec<Consumer>> {
    let Some(readers) = &workload.readers else { return Ok(Vec::new()) };
    if workload.bundle > 1 || workload.burst > 1 || workload.rate.is_none() {
        let text = "readers have to know when each of the records was due";
        return Err(Error::Options(text.into()));
    }
    let config = ConsumerConfig::new(cluster.bootstrap());
    let config = readers::with_properties(config, &readers.properties)?;
    let zone = workload.zones.map(|zones| zones.readers);
    let mut consumers = Vec::new();
    for _ in 0..readers.count {
        let env = handle.env(add_host(handle, zone));
        let mut consumer = Consumer::with_env(config.clone(), &env)?;
        assign_at_end(&mut consumer, TOPIC).await?;
        consumers.push(consumer);
    }
    Ok(consumers)
}

/// Writes the backlog that consumers have to catch up with, from an extra machine.
///
/// # Errors
/// A record that is not acknowledged.
pub(super) async fn write_backlog(
    workload: &Workload,
    handle: &Handle,
    cluster: &ClusterHandle,
) -> Result<()> {
    let backlog = workload.readers.as_ref().and_then(|readers| readers.backlog.as_ref());
    let Some(Backlog { records, partitions }) = backlog else { return Ok(()) };
    let env = handle.env(handle.add_observer());
    let producer = Producer::with_env(ProducerConfig::new(cluster.bootstrap()), &env)?;
    let mut value = vec![0; workload.size];
    let mut deliveries = Vec::new();
    for (number, partition) in (0..*records).zip(partitions.clone().cycle()) {
        value[..8].copy_from_slice(&(EARLIER + number).to_be_bytes());
        let record = Record::to(TOPIC).partition(partition).value(&value);
        deliveries.push(producer.send(record).await?);
    }
    producer.flush().await?;
    for delivery in deliveries {
        delivery.await?;
    }
    Ok(producer.close().await?)
}

/// Running consumers.
pub(super) struct Reading {
    tasks: Vec<JoinHandle<Result<Read>>>,
    /// Sends the number of records once it is known.
    sent: watch::Sender<Option<u64>>,
    over_time: SharedOverTime,
    latency: ReaderLatency,
    fetches: bool,
}

impl Reading {
    /// Starts the consumers. The first record is due at `start`.
    pub(super) fn begin(
        workload: &Workload,
        consumers: Vec<Consumer>,
        handle: &Handle,
        start: Instant,
    ) -> Self {
        let readers = workload.readers.clone().unwrap_or_default();
        let Readers { latency, apart, backlog: ref behind, cooldown, fetches, .. } = readers;
        let sent = watch::Sender::new(None);
        let over_time = SharedOverTime::default();
        let expected = Expected {
            warmup: workload.warmup,
            cooldown,
            work: work(&readers, handle),
            over_time: over_time.clone(),
            apart,
            backlog: behind.as_ref().map_or(0, |backlog| backlog.records),
            ..Expected::new(start, workload.rate.unwrap_or(f64::INFINITY), workload.records)
        };
        let read = |consumer| match workload.end {
            End::Records => tokio::spawn(read_from(consumer, behind.clone(), expected.clone())),
            End::Script => {
                tokio::spawn(read_until_told(consumer, expected.clone(), sent.subscribe()))
            }
        };
        let tasks = consumers.into_iter().map(read).collect();
        Self { tasks, sent, over_time, latency, fetches }
    }

    /// Waits until all consumers have read this many records, or no more arrive.
    ///
    /// # Errors
    /// Errors of a consumer.
    pub(super) async fn end(self, records: u64) -> Result<Finished> {
        self.sent.send_replace(Some(records));
        let mut read = Vec::new();
        for task in self.tasks {
            let ended =
                task.await.map_err(|_| Error::Unexpected("a reader's task ended".into()))?;
            read.push(ended?);
        }
        let Self { over_time, latency, fetches, .. } = self;
        Ok(Finished { read, over_time, latency, fetches })
    }
}

/// Reads everything. With a backlog it starts when the first record is due.
async fn read_from(
    mut consumer: Consumer,
    behind: Option<Backlog>,
    expected: Expected,
) -> Result<Read> {
    if let Some(Backlog { partitions, .. }) = behind {
        sleep_until(expected.start.into()).await;
        let partitions: Vec<TopicPartition> =
            partitions.map(|partition| TopicPartition::new(TOPIC, partition)).collect();
        consumer.seek_to_beginning(&partitions)?;
    }
    Reader::new(expected).run(consumer).await
}

fn work(readers: &Readers, handle: &Handle) -> Work {
    match readers.work {
        (_, longest) if longest.is_zero() => Work::Nothing,
        (least, longest) => {
            Work::Drawn { handle: handle.clone(), least, more: longest.saturating_sub(least) }
        }
    }
}

/// Readings of all consumers.
pub(super) struct Finished {
    read: Vec<Read>,
    over_time: SharedOverTime,
    latency: ReaderLatency,
    fetches: bool,
}

impl Finished {
    /// Readings of one consumer: all read the same records.
    pub(super) fn readings(&mut self) -> Readings {
        self.read.first_mut().map(|read| std::mem::take(&mut read.readings)).unwrap_or_default()
    }

    /// Fetches of all consumers.
    pub(super) fn fetches(&self) -> Fetches {
        Fetches::of(&self.read)
    }

    /// Adds the records that any consumer missed, received twice or received out of order, and the latencies
    /// until the polls.
    pub(super) fn add_to(&self, order: Order, sample: &mut Sample) {
        if self.read.is_empty() {
            return;
        }
        self.read.iter().for_each(|read| read.add_to(order, sample));
        self.read.iter().for_each(|read| read.note_caught_up(sample));
        if self.fetches {
            self.fetches().note(sample);
        }
        let latency = merged(self.read.iter().map(|read| &read.latency));
        match self.latency {
            ReaderLatency::Measured => readers::set_latency(sample, latency, &self.over_time),
            ReaderLatency::Beside => {
                let p99 = latency.quantile(0.99).as_secs_f64() * 1000.0;
                sample.note("e2e_p99_ms", Figure::Worst(p99));
            }
        }
    }
}
