//! Executes commands from standard input and prints every result, for cases that script the network (see
//! `museum/`).

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::util::Timeout;

use crate::Failure;
use crate::args::Args;
use crate::membership::say;
use crate::properties;

/// Kafka's names and librdkafka's. Other properties are ignored.
const NAMES: &[(&str, &[&str])] = &[
    ("acks", &["acks"]),
    ("linger.ms", &["linger.ms"]),
    ("batch.size", &["batch.size"]),
    ("compression.type", &["compression.type"]),
    ("max.in.flight.requests.per.connection", &["max.in.flight.requests.per.connection"]),
    ("enable.idempotence", &["enable.idempotence"]),
    ("request.timeout.ms", &["request.timeout.ms", "socket.timeout.ms"]),
    ("delivery.timeout.ms", &["delivery.timeout.ms"]),
    ("retry.backoff.ms", &["retry.backoff.ms"]),
    ("retry.backoff.max.ms", &["retry.backoff.max.ms"]),
    ("reconnect.backoff.ms", &["reconnect.backoff.ms"]),
    ("reconnect.backoff.max.ms", &["reconnect.backoff.max.ms"]),
    ("metadata.max.age.ms", &["topic.metadata.refresh.interval.ms"]),
    ("send.buffer.bytes", &["socket.send.buffer.bytes"]),
    ("transactional.id", &["transactional.id"]),
    ("fetch.max.wait.ms", &["fetch.wait.max.ms"]),
    ("max.partition.fetch.bytes", &["max.partition.fetch.bytes"]),
    ("group.id", &["group.id"]),
    ("group.protocol", &["group.protocol"]),
    ("heartbeat.interval.ms", &["heartbeat.interval.ms"]),
    ("max.poll.interval.ms", &["max.poll.interval.ms"]),
    ("auto.commit.interval.ms", &["auto.commit.interval.ms"]),
    ("enable.auto.commit", &["enable.auto.commit"]),
    ("auto.offset.reset", &["auto.offset.reset"]),
    ("isolation.level", &["isolation.level"]),
    ("client.rack", &["client.rack"]),
];

/// Most records of one poll, unless `max.poll.records` is set, as in the Java client.
const MAX_POLL_RECORDS: usize = 500;

/// Kafka's minimum is that of the session; librdkafka requires a poll interval above the session timeout.
const SESSION_TIMEOUT_MS: &str = "1000";

pub fn run(args: &Args) -> Result<(), Failure> {
    say(&format!("version {} {}", properties::CLIENT, properties::version()));
    match args.role.as_str() {
        "producer" => produce(args),
        _ => consume(args),
    }
}

fn property<'a>(args: &'a Args, name: &str) -> Option<&'a str> {
    let found = args.properties.iter().rev().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

fn configured(args: &Args, mut config: ClientConfig) -> ClientConfig {
    for (name, value) in &args.properties {
        let native = NAMES.iter().find(|(java, _)| java == name).map(|(_, native)| *native);
        native.into_iter().flatten().for_each(|name| _ = config.set(*name, value));
    }
    config
}

fn commands() -> impl Iterator<Item = String> {
    std::io::stdin().lock().lines().map_while(Result::ok)
}

fn line(error: &impl std::fmt::Display) -> String {
    error.to_string().replace('\n', " ")
}

fn reply(outcome: Result<(), KafkaError>) {
    match outcome {
        Ok(()) => say("done"),
        Err(error) => say(&format!("error {}", line(&error))),
    }
}

// ---- producer ------------------------------------------------------------------------------------

struct Outcomes;

impl ClientContext for Outcomes {}

impl ProducerContext for Outcomes {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        match result {
            Ok(message) => {
                let (partition, offset) = (message.partition(), message.offset());
                say(&format!("acknowledged {number} {partition} {offset}"));
            }
            Err((error, _)) => say(&format!("failed {number} {}", line(error))),
        }
    }
}

type Sender = ThreadedProducer<Outcomes>;

fn produce(args: &Args) -> Result<(), Failure> {
    let mut config = configured(args, properties::producer(&args.bootstrap));
    properties::settle_idempotence(&mut config);
    let producer = Sender::from_config_and_context(&config, Outcomes)?;
    let mut sent = 0;
    for command in commands() {
        let (word, rest) = command.split_once(' ').unwrap_or((&command, ""));
        match word {
            "send" => {
                send(&producer, &args.topic, sent, rest)?;
                sent += 1;
            }
            "flush" => reply(producer.flush(Timeout::Never)),
            "init" => reply(producer.init_transactions(Timeout::Never)),
            "begin" => reply(producer.begin_transaction()),
            "commit" => reply(producer.commit_transaction(Timeout::Never)),
            "abort" => reply(producer.abort_transaction(Timeout::Never)),
            "close" => {
                // The documented way to end: flush, then destroy.
                let flushed = producer.flush(Timeout::Never);
                drop(producer);
                reply(flushed);
                return Ok(());
            }
            _ => return Err(format!("unknown command {word}").into()),
        }
    }
    Ok(())
}

fn send(producer: &Sender, topic: &str, number: usize, rest: &str) -> Result<(), Failure> {
    let (partition, value) = rest.split_once(' ').ok_or("send needs a partition and a value")?;
    let partition: i32 = partition.parse()?;
    let mut record: BaseRecord<'_, (), str, usize> =
        BaseRecord::with_opaque_to(topic, number).payload(value);
    if partition >= 0 {
        record = record.partition(partition);
    }
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err((error, _)) => {
                say(&format!("failed {number} {}", line(&error)));
                return Ok(());
            }
        }
    }
}

// ---- consumer ------------------------------------------------------------------------------------

fn consume(args: &Args) -> Result<(), Failure> {
    let mut config = configured(args, properties::consumer(&args.bootstrap));
    // Offsets are stored when the records have been processed, as the documentation advises.
    config.set("enable.auto.offset.store", "false");
    match property(args, "group.protocol") {
        Some("consumer") => _ = config.remove("heartbeat.interval.ms"),
        _ => _ = config.set("session.timeout.ms", SESSION_TIMEOUT_MS),
    }
    if config
        .get("max.poll.interval.ms")
        .is_some_and(|ms| ms.parse::<u32>().is_ok_and(|ms| ms < 1000))
    {
        config.set("max.poll.interval.ms", "1000");
    }
    let max = property(args, "max.poll.records").and_then(|max| max.parse().ok());
    let consumer: BaseConsumer = config.create()?;
    let mut driven = Driven {
        topic: &args.topic,
        consumer,
        max: max.unwrap_or(MAX_POLL_RECORDS),
        processed: TopicPartitionList::new(),
    };
    for command in commands() {
        let words: Vec<&str> = command.split(' ').collect();
        if words == ["close"] {
            driven.store();
            drop(driven);
            say("done");
            return Ok(());
        }
        let outcome = driven.obey(&words)?;
        reply(outcome);
    }
    Ok(())
}

struct Driven<'a> {
    topic: &'a str,
    consumer: BaseConsumer,
    max: usize,
    /// Positions after the records of the last poll.
    processed: TopicPartitionList,
}

impl Driven<'_> {
    fn obey(&mut self, words: &[&str]) -> Result<Result<(), KafkaError>, Failure> {
        Ok(match *words {
            ["subscribe"] => self.consumer.subscribe(&[self.topic]),
            ["unsubscribe"] => {
                self.consumer.unsubscribe();
                Ok(())
            }
            ["assign", count] => {
                let mut list = TopicPartitionList::new();
                for partition in 0..count.parse()? {
                    list.add_partition_offset(self.topic, partition, Offset::Beginning)?;
                }
                self.consumer.assign(&list)
            }
            ["seek", partition, offset] => {
                let (partition, offset) = (partition.parse()?, Offset::Offset(offset.parse()?));
                self.processed = TopicPartitionList::new();
                self.consumer.seek(self.topic, partition, offset, Duration::from_secs(10))
            }
            ["pause", partition] => self.consumer.pause(&self.one(partition.parse()?)),
            ["resume", partition] => self.consumer.resume(&self.one(partition.parse()?)),
            ["poll", wait] => self.poll(Duration::from_millis(wait.parse()?)),
            ["commit"] => {
                self.store();
                match self.consumer.commit_consumer_state(CommitMode::Sync) {
                    // There is nothing to commit.
                    Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => Ok(()),
                    outcome => outcome,
                }
            }
            _ => return Err(format!("unknown command {words:?}").into()),
        })
    }

    fn one(&self, partition: i32) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        list.add_partition(self.topic, partition);
        list
    }

    fn store(&mut self) {
        if self.processed.count() > 0 {
            // A partition that was revoked cannot be stored, and need not be.
            let _ = self.consumer.store_offsets(&self.processed);
            self.processed = TopicPartitionList::new();
        }
    }

    fn poll(&mut self, wait: Duration) -> Result<(), KafkaError> {
        self.store();
        let until = Instant::now() + wait;
        let mut returned = 0;
        while returned < self.max {
            let left = match returned {
                0 => until.saturating_duration_since(Instant::now()),
                _ => Duration::ZERO,
            };
            match self.consumer.poll(left) {
                Some(Ok(message)) => {
                    let value = String::from_utf8_lossy(message.payload().unwrap_or_default());
                    say(&format!("record {} {} {value}", message.partition(), message.offset()));
                    let next = Offset::Offset(message.offset() + 1);
                    let topic = self.topic;
                    let mut known = self.processed.find_partition(topic, message.partition());
                    match &mut known {
                        Some(known) => known.set_offset(next)?,
                        None => {
                            self.processed.add_partition_offset(
                                topic,
                                message.partition(),
                                next,
                            )?;
                        }
                    }
                    returned += 1;
                }
                // librdkafka reports what it retries, too.
                Some(Err(error)) => eprintln!("poll: {}", line(&error)),
                None if left.is_zero() || Instant::now() >= until => break,
                None => {}
            }
        }
        let assignment = self.consumer.assignment()?;
        let partitions = assignment.elements();
        let indexes: Vec<String> = partitions.iter().map(|p| p.partition().to_string()).collect();
        say(format!("assignment {}", indexes.join(" ")).trim_end());
        Ok(())
    }
}
