//! One record at a time from the send to the poll, after Kafka's `EndToEndLatency`.

mod stations;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use curtail::{
    Consumer, ConsumerConfig, ConsumerRecord, Header, Producer, ProducerConfig, Record,
    RecordMetadata, TopicPartition,
};
use curtail_cluster::Observer;

use self::stations::{Phases, Stations};
use super::{
    Cost, Error, Event, Payload, Progress, Report, Result, Target, Topic,
    payload::Values,
    report::{Figures, summary},
    target::{Running, local_runtime},
};
use crate::{cpu::CpuTime, latency::Latencies};

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub target: Target,
    /// The topic. Nobody else may write to it meanwhile.
    pub topic: Topic,
    /// Settings of the producer; the target decides `bootstrap.servers`, and nothing lingers.
    pub producer: ProducerConfig,
    /// Settings of the consumer; the target decides `bootstrap.servers`.
    pub consumer: ConsumerConfig,
    /// Records to send, the warm-up included.
    pub records: u64,
    /// Records at the start that do not count.
    pub warmup: u64,
    /// Bytes of a value.
    pub record_size: usize,
    /// Bytes of a key; 0 for none.
    pub key_size: usize,
    /// Headers of a record.
    pub headers: usize,
    /// Bytes of a header's key.
    pub header_key_size: usize,
    /// Bytes of a header's value.
    pub header_value_size: usize,
}

/// How long a record may take to come back, as in Kafka's tool.
const LONGEST: Duration = Duration::from_secs(60);
/// Every so many records, progress is told.
const SAMPLE: u64 = 1000;

/// Sends one record after the other and reads each back before the next.
///
/// The client runs on this thread alone. The phases of a record are known where the cluster is embedded.
///
/// # Errors
/// A cluster that cannot be reached, a record that does not come back within a minute or comes back changed.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Report> {
    measure(options, progress).map(|(report, _)| report)
}

/// As [`run`], with the latencies themselves.
pub(crate) fn measure(
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<(Report, Latencies)> {
    if options.records == 0 {
        return Err(Error::Options("the number of records must be above 0".into()));
    }
    if options.warmup >= options.records {
        return Err(Error::Options("the warm-up must have fewer records than the run".into()));
    }
    let stations = Arc::new(Stations::new(&options.topic.name));
    let observer: Arc<dyn Observer> = stations.clone();
    let running = Running::start(&options.target, &options.topic, Some(observer), progress)?;
    let runtime = local_runtime()?;
    let mut producer = options.producer.clone().linger(Duration::ZERO);
    producer.set("bootstrap.servers", running.bootstrap())?;
    let mut consumer = options.consumer.clone();
    consumer.set("bootstrap.servers", running.bootstrap())?;
    runtime.block_on(async {
        running.prepare(&options.topic, &options.producer.common.security).await?;
        let producer = Producer::new(producer)?;
        let mut consumer = Consumer::new(consumer)?;
        producer.connect().await?;
        producer.warm_up(&[&options.topic.name]).await?;
        match options.consumer.group_id {
            Some(_) => subscribe_at_end(&mut consumer, &options.topic.name).await?,
            None => assign_at_end(&mut consumer, &options.topic.name).await?,
        }
        let stations = running.is_embedded().then_some(&*stations);
        let mut loop_ = Loop::new(options, producer, consumer, stations)?;
        let report = loop_.run(options, progress).await;
        loop_.consumer.close().await;
        loop_.producer.close().await?;
        report
    })
}

/// The positions are fixed before the first send: it must not be missed.
async fn assign_at_end(consumer: &mut Consumer, topic: &str) -> Result<()> {
    let partitions = consumer.partitions_for(topic).await?;
    let partitions: Vec<_> =
        partitions.iter().map(|info| TopicPartition::new(topic, info.partition)).collect();
    consumer.assign(partitions.iter().cloned());
    to_end(consumer, &partitions).await
}

/// The only member of its group gets all partitions.
async fn subscribe_at_end(consumer: &mut Consumer, topic: &str) -> Result<()> {
    let all = consumer.partitions_for(topic).await?.len();
    consumer.subscribe([topic])?;
    let begun = Instant::now();
    while consumer.assignment().len() < all {
        if begun.elapsed() > LONGEST {
            return Err(unexpected(format!("the group gave no partitions within {LONGEST:?}")));
        }
        consumer.poll(Duration::from_millis(10)).await?;
    }
    let partitions: Vec<_> = consumer.assignment().into_iter().collect();
    to_end(consumer, &partitions).await
}

async fn to_end(consumer: &mut Consumer, partitions: &[TopicPartition]) -> Result<()> {
    consumer.seek_to_end(partitions)?;
    for partition in partitions {
        consumer.position(partition).await?;
    }
    Ok(())
}

struct Loop<'a> {
    producer: Producer,
    consumer: Consumer,
    topic: &'a str,
    values: Values,
    keys: Option<Values>,
    header_key: String,
    header_value: Vec<u8>,
    headers: usize,
    stations: Option<&'a Stations>,
    /// When the poll before returned: from then on the consumer waited for the next record.
    caught_up: Instant,
}

/// The way of one record.
struct Passed {
    sent: Instant,
    read: Instant,
    bytes: u64,
    phases: Option<Phases>,
}

impl<'a> Loop<'a> {
    fn new(
        options: &'a Options,
        producer: Producer,
        consumer: Consumer,
        stations: Option<&'a Stations>,
    ) -> Result<Self> {
        let random = |size| Values::prepare(&Payload::Random { size });
        let header_key = random(options.header_key_size)?.get(0).to_vec();
        Ok(Self {
            producer,
            consumer,
            topic: &options.topic.name,
            values: random(options.record_size)?,
            keys: if options.key_size > 0 { Some(random(options.key_size)?) } else { None },
            header_key: String::from_utf8_lossy(&header_key).into_owned(),
            header_value: random(options.header_value_size)?.get(1).to_vec(),
            headers: options.headers,
            stations,
            caught_up: Instant::now(),
        })
    }

    async fn run(
        &mut self,
        options: &Options,
        progress: &mut dyn Progress,
    ) -> Result<(Report, Latencies)> {
        for index in 0..options.warmup {
            self.one(index).await?;
        }
        let records = options.records - options.warmup;
        progress.on(Event::Started { total: records });
        let (mut latencies, mut phases) = (Latencies::default(), stations::Tally::default());
        let mut bytes = 0;
        let (start, cpu) = (Instant::now(), CpuTime::now());
        for index in 0..records {
            let passed = self.one(options.warmup + index).await?;
            let latency = passed.read.saturating_duration_since(passed.sent);
            latencies.record(latency);
            if let Some(passed) = passed.phases {
                phases.add(passed);
            }
            bytes += passed.bytes;
            if index % SAMPLE == 0 {
                progress.on(Event::Sample { index, latency });
                progress.on(Event::Advanced { done: index });
            }
        }
        let (elapsed, cpu) = (start.elapsed(), CpuTime::now() - cpu);
        progress.on(Event::Advanced { done: records });
        let cost = Cost { cpu, includes_brokers: self.stations.is_some() };
        // In a closed loop each record is meant to be sent when it is.
        let latency = summary(&latencies);
        let report = Report {
            latency_us: latency,
            send_latency_us: latency,
            phases_us: phases.report(),
            ..Figures { tool: "e2e", records, bytes, elapsed, cost }.report()
        };
        Ok((report, latencies))
    }

    /// Sends record `index`, waits for its acknowledgement and reads it.
    async fn one(&mut self, index: u64) -> Result<Passed> {
        let header = Header { key: &self.header_key, value: Some(&self.header_value) };
        let headers = vec![header; self.headers];
        let value = self.values.get(index);
        let mut record = Record::to(self.topic).value(value).headers(&headers);
        if let Some(keys) = &mut self.keys {
            record = record.key(keys.get(index));
        }
        let sent = Instant::now();
        let mut delivery = self.producer.send(record).await?;
        let metadata = (&mut delivery).await?;
        let read = self.consumer.poll(LONGEST).await?;
        let now = Instant::now();
        let bytes = value.len() as u64;
        let mut records = read.into_iter();
        let Some(record) = records.next() else {
            return Err(unexpected(format!(
                "{}-{}: the record did not come back within {LONGEST:?}",
                self.topic, metadata.partition
            )));
        };
        check(&record, value, &metadata)?;
        if records.next().is_some() {
            return Err(unexpected(format!("more than one record came back; {ALONE}")));
        }
        let written = delivery.timing().map_or(sent, |timing| timing.written.into_std());
        let phases = self
            .stations
            .and_then(|stations| stations.phases(&metadata, [sent, written, self.caught_up, now]));
        self.caught_up = now;
        Ok(Passed { sent, read: now, bytes, phases })
    }
}

const ALONE: &str = "is another producer writing to the topic?";

fn unexpected(text: String) -> Error {
    Error::Unexpected(text)
}

/// What was read is what was sent, from the place where it was written.
fn check(record: &ConsumerRecord, value: &[u8], written: &RecordMetadata) -> Result<()> {
    let place = (record.partition(), Some(record.offset()));
    if place != (written.partition, written.offset.or(place.1)) {
        return Err(unexpected(format!(
            "expected the record at {}-{} offset {:?}, but offset {} of partition {} came back; {ALONE}",
            written.topic,
            written.partition,
            written.offset,
            record.offset(),
            record.partition()
        )));
    }
    if record.value() != Some(value) {
        return Err(unexpected(format!(
            "the record at {}-{} offset {} came back changed",
            written.topic,
            written.partition,
            record.offset()
        )));
    }
    Ok(())
}
