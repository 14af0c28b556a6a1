//! One record at a time from the send to the poll, after Kafka's `EndToEndLatency`.

mod stations;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use curtail::{
    Consumer, ConsumerConfig, ConsumerRecord, Delivery, Header, Producer, ProducerConfig, Record,
    RecordMetadata, TopicPartition, config::Acks,
};
use curtail_cluster::Observer;

pub(crate) use self::stations::Leaders;
use self::stations::Seen;
use super::{
    Cost, Error, Event, Payload, PhasesReport, Progress, Report, Result, Target, Topic,
    payload::Values,
    report::{Figures, summary},
    target::{Running, local_runtime},
};
use crate::{
    cpu::CpuTime,
    latency::Latencies,
    over_time::OverTime,
    phases::{Exemplar, Exemplars, PhaseName, Phases, Stations},
};

/// Options of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster.
    pub target: Target,
    /// The topic. No other client may write to it during the run.
    pub topic: Topic,
    /// Settings of the producer. The target sets `bootstrap.servers`, and `linger.ms` is 0.
    pub producer: ProducerConfig,
    /// Settings of the consumer. The target sets `bootstrap.servers`.
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

/// Longest wait for a record to be read back, as in Kafka's tool.
const LONGEST: Duration = Duration::from_secs(60);
/// Records between two progress reports.
const SAMPLE: u64 = 1000;

/// What a run measured.
pub(crate) struct Measured {
    pub(crate) report: Report,
    pub(crate) latencies: Latencies,
    pub(crate) phases: Phases,
    pub(crate) exemplars: Exemplars,
    /// Send time of the first record that counts.
    pub(crate) start: Instant,
    pub(crate) over_time: OverTime,
}

/// Registers an observer at the brokers of a running cluster; returns whether they support it.
pub(crate) type Look<'a> = &'a dyn Fn(Arc<dyn Observer>) -> bool;

/// Sends one record at a time and reads each back before it sends the next.
///
/// The client runs on this thread alone. Phases of a record are measured on an embedded cluster only.
///
/// # Errors
/// An unreachable cluster, and a record that is not read back within a minute or comes back changed.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Report> {
    measure(options, &|_| false, progress).map(|measured| measured.report)
}

/// As [`run`], and returns the distributions themselves.
pub(crate) fn measure(
    options: &Options,
    look: Look<'_>,
    progress: &mut dyn Progress,
) -> Result<Measured> {
    if options.records == 0 {
        return Err(Error::Options("the number of records must be above 0".into()));
    }
    if options.warmup >= options.records {
        return Err(Error::Options("the warm-up must have fewer records than the run".into()));
    }
    let leaders = Arc::new(Leaders::new(&options.topic.name));
    let observer: Arc<dyn Observer> = leaders.clone();
    let running = Running::start(&options.target, &options.topic, Some(observer), progress)?;
    let is_seen = running.is_embedded() || look(leaders.clone());
    let runtime = local_runtime()?;
    let mut producer = options.producer.clone().linger(Duration::ZERO);
    producer.set("bootstrap.servers", running.bootstrap())?;
    let mut consumer = options.consumer.clone();
    consumer.set("bootstrap.servers", running.bootstrap())?;
    runtime.block_on(async {
        running.prepare(&options.topic, options.producer.get_security()).await?;
        let seen = Brokers {
            leaders: is_seen.then_some(&*leaders),
            includes_brokers: running.is_embedded(),
            cpu: CpuTime::now,
        };
        exchange(options, Producer::new(producer)?, Consumer::new(consumer)?, &seen, progress).await
    })
}

/// Observations of the brokers, and the CPU time of the run.
pub(crate) struct Brokers<'a> {
    /// The brokers' phase timestamps, if they are embedded.
    pub(crate) leaders: Option<&'a Leaders>,
    /// Whether the CPU time includes that of the brokers.
    pub(crate) includes_brokers: bool,
    /// Returns the CPU time used so far.
    pub(crate) cpu: fn() -> CpuTime,
}

/// Sends and reads back with existing clients and an existing topic, then closes the clients.
///
/// # Errors
/// As [`run`].
pub(crate) async fn exchange(
    options: &Options,
    producer: Producer,
    mut consumer: Consumer,
    brokers: &Brokers<'_>,
    progress: &mut (impl Progress + ?Sized),
) -> Result<Measured> {
    producer.connect().await?;
    producer.warm_up(&[&options.topic.name]).await?;
    match options.consumer.get_group_id() {
        Some(_) => subscribe_at_end(&mut consumer, &options.topic.name).await?,
        None => assign_at_end(&mut consumer, &options.topic.name).await?,
    }
    let mut loop_ = Loop::new(options, producer, consumer, brokers.leaders)?;
    let measured = loop_.run(options, brokers, progress).await;
    loop_.consumer.close().await;
    loop_.producer.close().await?;
    measured
}

/// Tokio's time: in the simulation it is virtual.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Assigns every partition and fixes the positions before the first send, which must not be missed.
///
/// # Errors
/// A missing topic.
pub(crate) async fn assign_at_end(consumer: &mut Consumer, topic: &str) -> Result<()> {
    let partitions = consumer.partitions_for(topic).await?;
    let partitions: Vec<_> =
        partitions.iter().map(|info| TopicPartition::new(topic, info.partition)).collect();
    consumer.assign(partitions.iter().cloned());
    to_end(consumer, &partitions).await
}

/// Subscribes as the only member of the group, which is assigned all partitions.
async fn subscribe_at_end(consumer: &mut Consumer, topic: &str) -> Result<()> {
    let all = consumer.partitions_for(topic).await?.len();
    consumer.subscribe([topic])?;
    let begun = now();
    while consumer.assignment().len() < all {
        if now().saturating_duration_since(begun) > LONGEST {
            return Err(unexpected(format!("the group assigned no partitions within {LONGEST:?}")));
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
    acks: Acks,
    leaders: Option<&'a Leaders>,
    /// Return of the previous poll. From then on the consumer waited for the next record.
    caught_up: Instant,
}

/// Phase timestamps of one record.
struct Passed {
    sent: Instant,
    read: Instant,
    bytes: u64,
    partition: i32,
    offset: Option<i64>,
    leader: Option<i32>,
    stations: Stations,
}

impl<'a> Loop<'a> {
    fn new(
        options: &'a Options,
        producer: Producer,
        consumer: Consumer,
        leaders: Option<&'a Leaders>,
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
            acks: options.producer.get_acks(),
            leaders,
            caught_up: now(),
        })
    }

    async fn run(
        &mut self,
        options: &Options,
        brokers: &Brokers<'_>,
        progress: &mut (impl Progress + ?Sized),
    ) -> Result<Measured> {
        for index in 0..options.warmup {
            self.one(index).await?;
        }
        let records = options.records - options.warmup;
        progress.on(Event::Started { total: records });
        let (mut latencies, mut phases) = (Latencies::default(), Phases::default());
        let (mut exemplars, mut over_time) = (Exemplars::default(), OverTime::default());
        let mut bytes = 0;
        let (start, cpu) = (now(), (brokers.cpu)());
        for index in 0..records {
            let passed = self.one(options.warmup + index).await?;
            let latency = passed.read.saturating_duration_since(passed.sent);
            latencies.record(latency);
            over_time.record(nanos(passed.sent.saturating_duration_since(start)), nanos(latency));
            phases.record(&passed.stations.times());
            if exemplars.takes(passed.stations.whole()) {
                exemplars.offer(passed.exemplar(start));
            }
            bytes += passed.bytes;
            if index % SAMPLE == 0 {
                progress.on(Event::Sample { index, latency });
                progress.on(Event::Advanced { done: index });
            }
        }
        let elapsed = now().saturating_duration_since(start);
        let cpu = (brokers.cpu)() - cpu;
        progress.on(Event::Advanced { done: records });
        let cost = Cost { cpu, includes_brokers: brokers.includes_brokers };
        // In a closed loop the intended send time is the actual one.
        let latency = summary(&latencies);
        let report = Report {
            latency_us: latency,
            send_latency_us: latency,
            phases_us: phases_report(&phases),
            ..Figures { tool: "e2e", records, bytes, elapsed, cost }.report()
        };
        Ok(Measured { report, latencies, phases, exemplars, start, over_time })
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
        let sent = now();
        let mut delivery = self.producer.send(record).await?;
        let metadata = (&mut delivery).await?;
        let read = self.consumer.poll(LONGEST).await?;
        let now = now();
        let bytes = value.len() as u64;
        let mut records = read.into_iter();
        let Some(record) = records.next() else {
            return Err(unexpected(format!(
                "{}-{}: the record was not read back within {LONGEST:?}",
                self.topic, metadata.partition
            )));
        };
        check(&record, value, &metadata)?;
        if records.next().is_some() {
            return Err(unexpected(format!("more than one record was read back; {ALONE}")));
        }
        let stations = self.stations(sent, now, &delivery, &metadata);
        self.caught_up = now;
        let (partition, offset) = (metadata.partition, metadata.offset);
        let leader = self.seen(&metadata).map(|seen| seen.leader);
        Ok(Passed { sent, read: now, bytes, partition, offset, leader, stations })
    }

    fn seen(&self, written: &RecordMetadata) -> Option<Seen> {
        self.leaders.and_then(|leaders| leaders.seen(written))
    }

    /// Phase timestamps of the record, relative to its send.
    fn stations(
        &self,
        sent: Instant,
        read: Instant,
        delivery: &Delivery,
        written: &RecordMetadata,
    ) -> Stations {
        let since = |at: Instant| nanos(at.saturating_duration_since(sent));
        let timing = delivery.timing();
        let seen = self.seen(written);
        let acknowledged = timing.filter(|_| self.acks != Acks::None);
        let handed = timing.map(|timing| since(timing.first_written.into_std()));
        Stations {
            due: 0,
            handed: handed.unwrap_or_default(),
            appended: seen.map(|seen| since(seen.appended)),
            committed: seen.map(|seen| since(seen.committed)),
            acknowledged: acknowledged
                .map(|timing| (since(timing.acknowledged.into_std()), self.acks == Acks::All)),
            read: Some((since(self.caught_up), since(read))),
        }
    }
}

impl Passed {
    fn exemplar(&self, start: Instant) -> Exemplar {
        Exemplar {
            round: 0,
            latency: self.stations.whole(),
            at: nanos(self.sent.saturating_duration_since(start)),
            partition: self.partition,
            offset: self.offset,
            leader: self.leader,
            phases: self.stations.times(),
        }
    }
}

fn phases_report(phases: &Phases) -> PhasesReport {
    let of = |phase| summary(phases.get(phase));
    PhasesReport {
        produce: of(PhaseName::Produce),
        publish: of(PhaseName::Publish),
        commit: of(PhaseName::Commit),
        catch_up: of(PhaseName::CatchUp),
        fetch: of(PhaseName::Fetch),
        ..PhasesReport::default()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const ALONE: &str = "is another producer writing to the topic?";

fn unexpected(text: String) -> Error {
    Error::Unexpected(text)
}

/// Checks that the record read is the record sent, at the offset it was written to.
fn check(record: &ConsumerRecord, value: &[u8], written: &RecordMetadata) -> Result<()> {
    let place = (record.partition(), Some(record.offset()));
    if place != (written.partition, written.offset.or(place.1)) {
        return Err(unexpected(format!(
            "expected the record at {}-{} offset {:?}, but offset {} of partition {} was read back; {ALONE}",
            written.topic,
            written.partition,
            written.offset,
            record.offset(),
            record.partition()
        )));
    }
    if record.value() != Some(value) {
        return Err(unexpected(format!(
            "the record at {}-{} offset {} was read back changed",
            written.topic,
            written.partition,
            record.offset()
        )));
    }
    Ok(())
}
