//! A consumer alongside a load, which reads records as they are written.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use curtail::{Consumer, ConsumerConfig, ConsumerRecord, TopicPartition};
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::{
    experiments::{
        check,
        load::Load,
        readers::{self, Expected, Reader, Readings},
    },
    latency::Latencies,
    perf::{Error, Result},
};

/// Interval of the reader's checks for the end of the load while no records arrive.
const LOOK: Duration = Duration::from_millis(100);

/// A consumer at the end of every partition.
pub(super) struct Tail {
    runtime: Runtime,
    consumer: Consumer,
    topic: String,
    rate: f64,
    warmup: u64,
}

/// A running reader.
pub(super) struct Reading {
    runtime: Runtime,
    load_is_over: Arc<AtomicBool>,
    task: JoinHandle<Result<Tailed>>,
}

/// Readings of the reader.
pub(super) struct Tailed {
    pub(super) readings: Readings,
    /// See [`Probes::catch_up`](crate::phases::Probes::catch_up).
    pub(super) catch_up: Latencies,
    /// See [`Probes::looks`](crate::phases::Probes::looks).
    pub(super) looks: Latencies,
}

impl Tail {
    /// # Errors
    /// A missing topic.
    pub(super) fn at_end(load: &Load) -> Result<Self> {
        let runtime = readers::runtime()?;
        let config = ConsumerConfig::default().common(load.config.get_common());
        let consumer = readers::one_at_end(&runtime, &config, &load.topic)?;
        Ok(Self {
            runtime,
            consumer,
            topic: load.topic.clone(),
            rate: load.rate,
            warmup: load.warmup,
        })
    }

    /// Reads from now on; the first of `records` is due at `start`.
    pub(super) fn begin(self, start: Instant, records: u64) -> Reading {
        let Self { runtime, consumer, topic, rate, warmup } = self;
        let reader = Reader::new(Expected { warmup, ..Expected::new(start, rate, records) });
        let load_is_over = Arc::new(AtomicBool::new(false));
        let task = runtime.spawn(read(consumer, topic, reader, load_is_over.clone()));
        Reading { runtime, load_is_over, task }
    }
}

impl Reading {
    /// Ends the reader after the load: reads the remaining records and returns all readings.
    ///
    /// # Errors
    /// Errors of the reader.
    pub(super) fn end(self) -> Result<Tailed> {
        self.load_is_over.store(true, Ordering::Release);
        let ended = self.runtime.block_on(self.task);
        ended.unwrap_or_else(|error| Err(Error::Unexpected(format!("a reader failed: {error}"))))
    }
}

async fn read(
    mut consumer: Consumer,
    topic: String,
    mut reader: Reader,
    load_is_over: Arc<AtomicBool>,
) -> Result<Tailed> {
    let partitions: Vec<TopicPartition> = readers::partitions(&consumer, &topic).await?;
    let mut lags = Lags::default();
    let mut over_since = None;
    while !reader.is_done() {
        let over = load_is_over.load(Ordering::Acquire);
        let records = consumer.poll(LOOK).await?;
        if records.is_empty() && over {
            let since = *over_since.get_or_insert_with(Instant::now);
            // Bounds the wait for a partition that has lost its leader.
            if since.elapsed() > readers::PATIENCE || check::at_end(&consumer, &partitions).await? {
                break;
            }
        }
        let now = Instant::now();
        for part in records.chunk_by(|a, b| a.partition() == b.partition()) {
            let [first, ..] = part else { continue };
            let at = TopicPartition::new(&*topic, first.partition());
            let offsets = part.iter().map(ConsumerRecord::offset);
            lags.look(at.partition, offsets, consumer.high_watermark(&at), now);
        }
        reader.take(records);
    }
    consumer.close().await;
    Ok(Tailed { readings: reader.finish().readings, catch_up: lags.catch_up, looks: lags.looks })
}

/// High watermarks kept per partition until they have been read.
const REMEMBERED: usize = 1024;

/// The consumer's position relative to the high watermark that fetch responses carry.
#[derive(Default)]
struct Lags {
    partitions: BTreeMap<i32, Lag>,
    catch_up: Latencies,
    looks: Latencies,
}

#[derive(Default)]
struct Lag {
    /// High watermarks after the position, and when each was first seen.
    ahead: VecDeque<(i64, Instant)>,
    /// The previous poll that returned records.
    polled: Option<Instant>,
}

impl Lags {
    /// Records the result of a poll of a partition at `now`, with the high watermark known then.
    fn look(
        &mut self,
        partition: i32,
        offsets: impl Iterator<Item = i64>,
        high_watermark: Option<i64>,
        now: Instant,
    ) {
        let lag = self.partitions.entry(partition).or_default();
        let before = lag.polled.replace(now);
        if let Some(before) = before {
            self.looks.record(now.saturating_duration_since(before));
        }
        let mut read = None;
        for offset in offsets {
            read = Some(offset + 1);
            while lag.ahead.front().is_some_and(|(high, _)| *high <= offset) {
                lag.ahead.pop_front();
            }
            let known = lag.ahead.front().map(|(_, since)| *since).zip(before);
            let behind = known.map(|(since, before)| before.saturating_duration_since(since));
            self.catch_up.record(behind.unwrap_or_default());
        }
        let newest = lag.ahead.back().map(|(high, _)| *high);
        if let Some(high) = high_watermark
            && newest.max(read) < Some(high)
            && lag.ahead.len() < REMEMBERED
        {
            lag.ahead.push_back((high, now));
        }
    }
}
