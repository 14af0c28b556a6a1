//! Clients with the properties of the command line. Properties that krafka lacks are passed over.

use std::str::FromStr;
use std::time::Duration;

use krafka::Kafka;
use krafka::consumer::{AutoOffsetReset, Consumer, GroupProtocol, IsolationLevel};
use krafka::producer::{Acks, ProducerBuilder};

use crate::args::Args;

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
