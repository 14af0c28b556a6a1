//! Clients with the properties of the command line. A case that drives the client passes over properties that krafka
//! lacks; the other tools refuse them.

use std::str::FromStr;
use std::time::Duration;

use krafka::consumer::{AutoOffsetReset, Consumer, GroupProtocol, IsolationLevel};
use krafka::producer::{Acks, ProducerBuilder};
use krafka::{Kafka, Record};

use crate::Failure;
use crate::args::{Args, Tool};

pub const CLIENT: &str = "krafka";

/// The crate does not report its version.
pub const VERSION: &str = "0.28.1";

/// Properties that the loads may set.
const KNOWN: &[&str] = &[
    "acks",
    "batch.size",
    "client.rack",
    "delivery.timeout.ms",
    "enable.idempotence",
    "fetch.max.wait.ms",
    "isolation.level",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "max.poll.records",
    "metadata.max.age.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
];

/// krafka's default, which must not exceed the request timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub fn property<'a>(args: &'a Args, name: &str) -> Option<&'a str> {
    let found = args.properties.iter().rev().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

fn parsed<T: FromStr>(args: &Args, name: &str) -> Option<T> {
    property(args, name).and_then(|value| value.parse().ok())
}

fn milliseconds(args: &Args, name: &str) -> Option<Duration> {
    parsed(args, name).map(Duration::from_millis)
}

/// Refuses unknown properties of a load.
pub fn check(args: &Args) -> Result<(), Failure> {
    let unknown = args.properties.iter().find(|(name, _)| !KNOWN.contains(&name.as_str()));
    match unknown {
        Some((name, _)) if args.tool != Tool::Drive => {
            Err(format!("unknown property {name}").into())
        }
        _ => Ok(()),
    }
}

pub async fn connect(args: &Args) -> krafka::Result<Kafka> {
    let mut builder = Kafka::builder(&args.bootstrap);
    if let Some(timeout) = milliseconds(args, "request.timeout.ms") {
        builder = builder.request_timeout(timeout).connect_timeout(timeout.min(CONNECT_TIMEOUT));
    }
    if let Some(age) = milliseconds(args, "metadata.max.age.ms") {
        builder = builder.metadata_max_age(age);
    }
    if let Some(bytes) = parsed(args, "send.buffer.bytes") {
        builder = builder.socket_send_buffer(Some(bytes));
    }
    if let Some(most) = parsed(args, "max.in.flight.requests.per.connection") {
        builder = builder.max_in_flight_requests(most);
    }
    builder.connect().await
}

pub fn record(args: &Args, key: Option<&[u8]>, value: &[u8]) -> Record {
    let record = Record::new(&args.topic, value.to_vec());
    match key {
        Some(key) => record.key(key.to_vec()),
        None => record,
    }
}

pub fn producer(args: &Args, kafka: &Kafka) -> ProducerBuilder {
    let mut builder = kafka.producer();
    let acks = match property(args, "acks") {
        Some("0") => Acks::None,
        Some("1") => Acks::Leader,
        _ => Acks::All,
    };
    let idempotent = parsed(args, "enable.idempotence").unwrap_or(acks == Acks::All);
    builder = builder.acks(acks).idempotent(idempotent);
    if let Some(linger) = milliseconds(args, "linger.ms") {
        builder = builder.linger(linger);
    }
    if let Some(bytes) = parsed(args, "batch.size") {
        builder = builder.batch_size(bytes);
    }
    if let Some(timeout) = milliseconds(args, "delivery.timeout.ms") {
        builder = builder.delivery_timeout(timeout);
    }
    if let Some(backoff) = milliseconds(args, "retry.backoff.ms") {
        builder = builder.retry_backoff(backoff);
    }
    if let Some(longest) = milliseconds(args, "max.block.ms") {
        builder = builder.max_block(longest);
    }
    builder
}

pub async fn consumer(args: &Args, kafka: &Kafka) -> krafka::Result<Consumer> {
    let mut builder = match property(args, "group.id") {
        Some(group) => kafka.consumer(group),
        None => kafka.consumer_without_group(),
    };
    builder = builder.auto_offset_reset(AutoOffsetReset::Earliest);
    if property(args, "group.protocol") == Some("consumer") {
        builder = builder.group_protocol(GroupProtocol::Consumer);
    }
    if property(args, "isolation.level") == Some("read_committed") {
        builder = builder.isolation_level(IsolationLevel::ReadCommitted);
    }
    if let Some(commits) = parsed(args, "enable.auto.commit") {
        builder = builder.enable_auto_commit(commits);
    }
    if let Some(interval) = milliseconds(args, "auto.commit.interval.ms") {
        builder = builder.auto_commit_interval(interval);
    }
    if let Some(interval) = milliseconds(args, "heartbeat.interval.ms") {
        builder = builder.heartbeat_interval(interval);
    }
    if let Some(interval) = milliseconds(args, "max.poll.interval.ms") {
        builder = builder.max_poll_interval(interval);
    }
    if let Some(wait) = milliseconds(args, "fetch.max.wait.ms") {
        builder = builder.fetch_max_wait(wait);
    }
    if let Some(bytes) = parsed(args, "max.partition.fetch.bytes") {
        builder = builder.max_partition_fetch_bytes(bytes);
    }
    if let Some(most) = parsed(args, "max.poll.records") {
        builder = builder.max_poll_records(most);
    }
    if let Some(rack) = property(args, "client.rack") {
        builder = builder.client_rack(rack);
    }
    builder.build().await
}

/// The topic's partitions.
pub async fn partitions(consumer: &Consumer, topic: &str) -> Result<Vec<i32>, Failure> {
    let found = consumer.fetch_metadata(Some(topic)).await?;
    let infos = found.topics.iter().flat_map(|topic| topic.partitions_iter());
    let mut partitions: Vec<i32> = infos.map(|info| info.partition).collect();
    if partitions.is_empty() {
        return Err(format!("topic {topic} has no partitions; create it first").into());
    }
    partitions.sort_unstable();
    Ok(partitions)
}

/// A consumer at the current end of every partition.
pub async fn consumer_at_end(args: &Args, kafka: &Kafka) -> Result<Consumer, Failure> {
    let consumer = consumer(args, kafka).await?;
    let partitions = partitions(&consumer, &args.topic).await?;
    consumer.assign(&args.topic, partitions.clone()).await?;
    for partition in partitions {
        consumer.seek_to_end(&args.topic, partition).await?;
        // Resolves the end now.
        consumer.position(&args.topic, partition).await.ok_or("a partition has no position")?;
    }
    Ok(consumer)
}
