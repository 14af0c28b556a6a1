//! `ConsumeBenchSpec`: several consumers, either with assigned partitions or as members of a group.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use curtail::{Consumer, Record, TopicPartition};
use serde::Serialize;
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep_until,
};

use super::{
    Outcome, millis,
    names::Partitions,
    payload::{Generator, Payloads},
    place::{self, Place},
    produce::{ended, now_ms},
    refuse, status,
    track::Track,
    trogdor::{ConsumeBench, PartitionsSpec, Processor, Throttle, TopicsSpec},
};
use crate::{
    latency::Latencies,
    perf::{Error, Event, Progress, Result, produce::client::Client},
    setup::unique,
};

/// Trogdor's status of a consumer. Latencies are from the end of one poll's processing to the next poll's
/// records.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConsumeStatus {
    assigned_partitions: Vec<String>,
    total_messages_received: u64,
    total_bytes_received: u64,
    average_message_size_bytes: u64,
    average_latency_ms: f64,
    p50_latency_ms: u64,
    p95_latency_ms: u64,
    p99_latency_ms: u64,
    record_processor_status: Option<ProcessorStatus>,
}

/// Status of the record processor `timestamp`: latencies from the time in the value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProcessorStatus {
    average_latency_ms: f64,
    p50_latency_ms: i64,
    p95_latency_ms: i64,
    p99_latency_ms: i64,
}

/// Assignment of partitions to consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// The spec names no partitions: consumers join a group.
    Subscribe(Vec<String>),
    /// Each consumer is assigned all of these.
    Assign(Partitions),
}

fn way(spec: &ConsumeBench) -> Result<Way> {
    let topics = spec.partitions()?;
    if topics.is_empty() {
        return refuse("activeTopics names no topic");
    }
    if spec.threads_per_worker == 0 {
        return refuse("threadsPerWorker must be above 0");
    }
    if topics.values().all(Vec::is_empty) {
        return Ok(Way::Subscribe(topics.into_keys().collect()));
    }
    if spec.threads_per_worker > 1 && !spec.consumer_group.is_empty() {
        return refuse(
            "partitions cannot be shared by several consumers of one group: leave consumerGroup out, name topics \
             only, or set threadsPerWorker to 1",
        );
    }
    Ok(Way::Assign(topics))
}

/// Runs the workload until every consumer has its records, or `durationMs` have passed.
pub(super) fn run(
    spec: &ConsumeBench,
    bootstrap: Option<&str>,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    let way = way(spec)?;
    if let Some(processor) = &spec.record_processor {
        Timestamps::new(processor)?;
    }
    let bootstrap = bootstrap.or(spec.bootstrap_servers.as_deref());
    let place = Place::open(bootstrap, 1, progress)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = Builder::new_multi_thread()
        .worker_threads(spec.threads_per_worker.min(cores))
        .thread_name("curtail-client")
        .enable_all()
        .build()
        .map_err(Error::Threads)?;
    let _guard = runtime.enter();
    let shared = !spec.consumer_group.is_empty();
    let filled = if place.is_embedded() {
        progress.on(Event::Preparing("filling the topics"));
        let count = spec.max_messages * if shared { spec.threads_per_worker as u64 } else { 1 };
        fill(&runtime, &place, spec, &way, count)?;
        Some(if shared { count } else { count * spec.threads_per_worker as u64 })
    } else {
        None
    };
    let statuses = runtime.block_on(consume(spec, &place, &way, filled))?;
    let received: u64 = statuses.values().map(|status| status.total_messages_received).sum();
    let failure = (received == 0).then(|| "no record was received within durationMs".to_owned());
    Ok(Outcome {
        status: status(&statuses)?,
        from_send: None,
        from_intended: None,
        notes: vec![
            "latencies are the times between polls, as in Trogdor; recordProcessorStatus has latencies from the send \
             time in the values"
                .to_owned(),
        ],
        failure,
    })
}

/// Writes the records to read: an embedded cluster begins empty.
fn fill(
    runtime: &Runtime,
    place: &Place,
    spec: &ConsumeBench,
    way: &Way,
    count: u64,
) -> Result<()> {
    let topic = |last: Option<&i32>| match last {
        Some(last) => PartitionsSpec::sized(last + 1),
        None => PartitionsSpec::sized(3),
    };
    let topics: TopicsSpec = match way {
        Way::Subscribe(names) => names.iter().map(|name| (name.clone(), topic(None))).collect(),
        Way::Assign(topics) => {
            topics.iter().map(|(name, numbers)| (name.clone(), topic(numbers.last()))).collect()
        }
    };
    let partitions: Vec<TopicPartition> = match way {
        Way::Subscribe(_) => place::partitions(&topics),
        Way::Assign(named) => {
            let is_read = |at: &TopicPartition| {
                named.get(&*at.topic).is_some_and(|n| n.is_empty() || n.contains(&at.partition))
            };
            place::partitions(&topics).into_iter().filter(is_read).collect()
        }
    };
    let mut values = Payloads::new(&match spec.record_processor {
        Some(_) => Generator::TimestampConstant { size: 512 },
        None => Generator::Constant { size: 512, value: String::new() },
    })?;
    let names: Vec<&str> = topics.keys().map(String::as_str).collect();
    let admin = place.admin([])?;
    runtime.block_on(place::create(&admin, &topics))?;
    let mut client = runtime.block_on(Client::start(place.producer(&[], [])?, &names))?;
    let mut track = Track::default();
    let door = runtime.block_on(client.open())?;
    for number in 0..count {
        let at = &partitions[(number % partitions.len() as u64) as usize];
        let value = values.get(number, now_ms()).unwrap_or_default();
        let record = Record::to(&at.topic).partition(at.partition).value(&value);
        track.send(runtime, &door, record, Instant::now())?;
    }
    runtime.block_on(door.shut())?;
    runtime.block_on(client.close())?;
    match track.take().first_error {
        Some(error) => Err(Error::Unexpected(format!("the topics could not be filled: {error}"))),
        None => Ok(()),
    }
}

/// Runs all consumers concurrently.
async fn consume(
    spec: &ConsumeBench,
    place: &Place,
    way: &Way,
    filled: Option<u64>,
) -> Result<BTreeMap<String, ConsumeStatus>> {
    let end = Instant::now() + Duration::from_millis(spec.duration_ms);
    let left = filled.map(|count| Arc::new(AtomicU64::new(count)));
    let mut tasks = Vec::new();
    for index in 0..spec.threads_per_worker {
        let id = format!("consumer.curtail-{index}");
        let group = match spec.consumer_group.as_str() {
            "" => format!("consume-bench-{}", unique()),
            group => group.to_owned(),
        };
        let defaults = [
            ("client.id", id.as_str()),
            ("group.id", &group),
            ("auto.offset.reset", "earliest"),
            ("max.poll.interval.ms", "100000"),
        ];
        let config =
            place.consumer(&defaults, spec.common_client_conf.iter().chain(&spec.consumer_conf))?;
        let mut consumer = Consumer::new(config)?;
        match way {
            Way::Subscribe(topics) => consumer.subscribe(topics)?,
            Way::Assign(topics) => {
                let partitions = all_partitions(&consumer, topics).await?;
                consumer.assign(partitions);
            }
        }
        let reading = Reading {
            most: spec.max_messages,
            end,
            throttle: (spec.target_messages_per_sec > 0)
                .then(|| Throttle::new(spec.target_messages_per_sec)),
            timestamps: spec.record_processor.as_ref().map(Timestamps::new).transpose()?,
            left: left.clone(),
            latency: Latencies::default(),
            received: 0,
            bytes: 0,
        };
        tasks.push((id, tokio::spawn(reading.run(consumer))));
    }
    let mut statuses = BTreeMap::new();
    for (id, task) in tasks {
        statuses.insert(id, task.await.map_err(|error| ended(&error))??);
    }
    Ok(statuses)
}

/// The partitions named, and all partitions of topics without any.
async fn all_partitions(consumer: &Consumer, topics: &Partitions) -> Result<Vec<TopicPartition>> {
    let mut all = Vec::new();
    for (topic, numbers) in topics {
        if numbers.is_empty() {
            let there = consumer.partitions_for(topic).await?;
            all.extend(
                there.iter().map(|info| TopicPartition::new(topic.as_str(), info.partition)),
            );
        }
        all.extend(numbers.iter().map(|number| TopicPartition::new(topic.as_str(), *number)));
    }
    Ok(all)
}

/// Task and progress of one consumer.
struct Reading {
    most: u64,
    end: Instant,
    throttle: Option<Throttle>,
    timestamps: Option<Timestamps>,
    /// Unread records of all consumers together, if known.
    left: Option<Arc<AtomicU64>>,
    latency: Latencies,
    received: u64,
    bytes: u64,
}

/// The longest single poll.
const POLL: Duration = Duration::from_millis(50);

impl Reading {
    async fn run(mut self, mut consumer: Consumer) -> Result<ConsumeStatus> {
        let start = Instant::now();
        let mut worked_until = start;
        let mut assigned = Vec::new();
        while self.received < self.most && Instant::now() < self.end && !self.is_empty() {
            let records = consumer.poll(POLL).await?;
            if records.is_empty() {
                continue;
            }
            let elapsed = worked_until.elapsed();
            self.take_off(records.len());
            assigned = consumer.assignment().iter().map(ToString::to_string).collect();
            let now = now_ms();
            for record in records {
                if self.received == self.most {
                    break;
                }
                if let Some(timestamps) = &mut self.timestamps {
                    timestamps.add(record.value(), now);
                }
                let size =
                    record.key().map_or(0, <[u8]>::len) + record.value().map_or(0, <[u8]>::len);
                self.received += 1;
                self.bytes += size as u64;
                self.latency.record(elapsed);
                if let Some(throttle) = self.throttle {
                    let due = start + throttle.due(self.received);
                    sleep_until(due.min(self.end).into()).await;
                }
            }
            worked_until = Instant::now();
        }
        consumer.close().await;
        Ok(self.status(assigned))
    }

    /// Subtracts the records of a poll, including those after the last one that counts, from those left for
    /// the group.
    fn take_off(&self, records: usize) {
        let Some(left) = &self.left else { return };
        let less = |left: u64| Some(left.saturating_sub(records as u64));
        // `less` always returns a value.
        let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn is_empty(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }

    fn status(self, assigned_partitions: Vec<String>) -> ConsumeStatus {
        let at = |quantile| self.latency.quantile(quantile).as_millis() as u64;
        ConsumeStatus {
            assigned_partitions,
            total_messages_received: self.received,
            total_bytes_received: self.bytes,
            average_message_size_bytes: self.bytes / self.received.max(1),
            average_latency_ms: millis(self.latency.mean()),
            p50_latency_ms: at(0.5),
            p95_latency_ms: at(0.95),
            p99_latency_ms: at(0.99),
            record_processor_status: self.timestamps.as_ref().map(Timestamps::status),
        }
    }
}

/// The record processor `timestamp`: a histogram with steps and bounds.
#[derive(Clone, Debug)]
struct Timestamps {
    min: i64,
    step: i64,
    /// Count of each step; the last one includes all longer latencies.
    counts: Vec<u64>,
}

impl Timestamps {
    fn new(processor: &Processor) -> Result<Self> {
        let Processor::Timestamp { histogram_max_ms, histogram_min_ms, histogram_step_ms } =
            *processor;
        let steps = histogram_max_ms
            .checked_sub(histogram_min_ms)
            .and_then(|range| range.checked_div(histogram_step_ms))
            .and_then(|steps| usize::try_from(steps).ok())
            .filter(|steps| (1..=10_000_000).contains(steps));
        let Some(steps) = steps else {
            return refuse(
                "recordProcessor: histogramMaxMs must be at least one histogramStepMs above histogramMinMs, with at \
                 most 10000000 steps",
            );
        };
        let counts = vec![0; steps + 1];
        Ok(Self { min: histogram_min_ms, step: histogram_step_ms, counts })
    }

    /// Adds the latency of a record. A value too short for a timestamp is skipped.
    fn add(&mut self, value: Option<&[u8]>, now_ms: i64) {
        let Some(time) = value.and_then(|value| value.first_chunk()) else { return };
        let latency = now_ms.saturating_sub(i64::from_le_bytes(*time));
        let step = (latency.saturating_sub(self.min) / self.step).max(0);
        let last = self.counts.len() - 1;
        self.counts[usize::try_from(step).unwrap_or(last).min(last)] += 1;
    }

    fn status(&self) -> ProcessorStatus {
        let count: u64 = self.counts.iter().sum();
        let value = |step: usize| step as i64 * self.step + self.min;
        let quantile = |quantile: f64| {
            let rank = ((count as f64 * quantile).ceil() as u64).max(1);
            let mut seen = 0;
            let found = self.counts.iter().position(|n| {
                seen += n;
                seen >= rank
            });
            found.map_or(self.min, value)
        };
        let sum: f64 =
            self.counts.iter().enumerate().map(|(step, n)| value(step) as f64 * *n as f64).sum();
        ProcessorStatus {
            average_latency_ms: if count == 0 { 0.0 } else { sum / count as f64 },
            p50_latency_ms: quantile(0.5),
            p95_latency_ms: quantile(0.95),
            p99_latency_ms: quantile(0.99),
        }
    }
}
