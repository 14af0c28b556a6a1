//! Consuming as fast as possible, after `kafka-consumer-perf-test`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use curtail::{
    Consumer, ConsumerConfig, Producer, ProducerConfig, Record, TopicPartition,
    consumer::RecordBatch, metrics::ConsumerMetrics,
};
use tokio::runtime::Runtime;

use super::{
    Cost, Error, Event, Interval, Payload, Progress, Report, Result, Target, Topic, client_runtime,
    payload::Values, report::Figures, target::Running,
};
use crate::cpu::CpuTime;

/// Start position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// At the first offset of each partition.
    Earliest,
    /// At the end of each partition.
    Latest,
}

/// Options of a run that consumes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster.
    pub target: Target,
    /// The topic.
    pub topic: Topic,
    /// Settings of the consumer. The target sets `bootstrap.servers`.
    pub config: ConsumerConfig,
    /// Records to read.
    pub records: u64,
    /// Start position.
    pub from: From,
    /// Longest wait for the next record before the run ends early.
    pub timeout: Duration,
    /// Length of a reporting interval.
    pub interval: Duration,
    /// Value size in bytes of the records written to the topic before the run, as many as the run reads. An
    /// embedded cluster starts empty and needs this.
    pub fill: Option<usize>,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures.
    pub report: Report,
    /// Wall-clock time of the start, in milliseconds since 1970-01-01 UTC.
    pub start_ms: i64,
    /// Wall-clock time of the end.
    pub end_ms: i64,
    /// Time from the start until the partitions were assigned and their positions known.
    pub assigning: Duration,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Whether the run ended because no record came within the timeout.
    pub timed_out: bool,
    /// The consumer's metrics at the end.
    pub metrics: ConsumerMetrics,
}

/// Consumes, on this thread, until the records are read or none arrives within the timeout.
///
/// # Errors
/// Invalid options, an unreachable cluster, a missing topic.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Outcome> {
    if options.records == 0 {
        return Err(Error::Options("the number of records must be above 0".into()));
    }
    let runtime = client_runtime()?;
    let running = Running::start(&options.target, &options.topic, None, progress)?;
    let mut config = options.config.clone();
    config.set("bootstrap.servers", running.bootstrap())?;
    runtime.block_on(running.prepare(&options.topic, options.config.get_security()))?;
    if let Some(size) = options.fill {
        progress.on(Event::Preparing("filling the topic"));
        fill(&runtime, running.bootstrap(), options, size)?;
    }
    runtime.block_on(async {
        let mut consumer = Consumer::new(config)?;
        consumer.connect().await?;
        let outcome = read(&mut consumer, options, running.is_embedded(), progress).await;
        consumer.close().await;
        outcome
    })
}

/// Writes the records to read. Its cost is not part of the run.
fn fill(runtime: &Runtime, bootstrap: &str, options: &Options, size: usize) -> Result<()> {
    let mut values = Values::prepare(&Payload::Random { size })?;
    let config = ProducerConfig::new(bootstrap).security(options.config.get_security().clone());
    runtime.block_on(async {
        let producer = Producer::new(config)?;
        let mut last: Option<curtail::Delivery> = None;
        for index in 0..options.records {
            let record = Record::to(&options.topic.name).value(values.get(index));
            let delivery = producer.send(record).await?;
            // Checking one record per batch finds any error.
            if let Some(before) = last.replace(delivery)
                && let Some(Err(error)) = before.outcome()
            {
                return Err(error.into());
            }
        }
        producer.flush().await?;
        if let Some(last) = last {
            last.await?;
        }
        Ok(producer.close().await?)
    })
}

async fn read(
    consumer: &mut Consumer,
    options: &Options,
    includes_brokers: bool,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    progress.on(Event::Started { total: options.records });
    let start_ms = now_ms();
    let (start, cpu) = (Instant::now(), CpuTime::now());
    assign(consumer, &options.topic.name, options.from).await?;
    let assigning = start.elapsed();

    let mut count = Count::new(start, options.interval);
    let mut last_record = Instant::now();
    let mut timed_out = false;
    while count.records < options.records {
        let left = options.timeout.saturating_sub(last_record.elapsed());
        let before = count.records;
        if let Some(batch) = consumer.poll_batch(left.min(POLL)).await? {
            count.add(batch)?;
        }
        let now = Instant::now();
        if count.records > before {
            last_record = now;
        } else if now.saturating_duration_since(last_record) >= options.timeout {
            timed_out = true;
            break;
        }
        count.tell(now, progress);
    }
    let elapsed = start.elapsed();
    let cpu = CpuTime::now() - cpu;
    progress.on(Event::Advanced { done: count.records });
    let cost = Cost { cpu, includes_brokers };
    let (records, bytes) = (count.records, count.bytes);
    let report = Figures { tool: "consume", records, bytes, elapsed, cost }.report();
    let metrics = consumer.metrics();
    Ok(Outcome { report, start_ms, end_ms: now_ms(), assigning, bytes, timed_out, metrics })
}

/// Longest single poll, so that interval reports are on time.
const POLL: Duration = Duration::from_millis(100);

async fn assign(consumer: &mut Consumer, topic: &str, from: From) -> Result<()> {
    let partitions = consumer.partitions_for(topic).await?;
    let partitions: Vec<_> =
        partitions.iter().map(|info| TopicPartition::new(topic, info.partition)).collect();
    consumer.assign(partitions.iter().cloned());
    match from {
        From::Earliest => consumer.seek_to_beginning(&partitions)?,
        From::Latest => consumer.seek_to_end(&partitions)?,
    }
    for partition in &partitions {
        consumer.position(partition).await?;
    }
    Ok(())
}

/// Records read and reported so far.
struct Count {
    records: u64,
    bytes: u64,
    interval: Duration,
    told: (u64, u64, Instant),
    advanced: Instant,
}

impl Count {
    fn new(start: Instant, interval: Duration) -> Self {
        Self { records: 0, bytes: 0, interval, told: (0, 0, start), advanced: start }
    }

    fn add(&mut self, mut batch: RecordBatch) -> Result<()> {
        while let Some(record) = batch.next_record() {
            let record = record?;
            let size = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            self.records += 1;
            self.bytes += size as u64;
        }
        Ok(())
    }

    fn tell(&mut self, now: Instant, progress: &mut dyn Progress) {
        if now.saturating_duration_since(self.advanced) >= POLL {
            self.advanced = now;
            progress.on(Event::Advanced { done: self.records });
        }
        let (records, bytes, since) = self.told;
        let elapsed = now.saturating_duration_since(since);
        if elapsed < self.interval {
            return;
        }
        progress.on(Event::Interval(&Interval {
            at_ms: now_ms(),
            records: self.records,
            bytes: self.bytes,
            new_records: self.records - records,
            new_bytes: self.bytes - bytes,
            elapsed,
        }));
        self.told = (self.records, self.bytes, now);
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}
