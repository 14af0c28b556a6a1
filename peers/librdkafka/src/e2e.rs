//! One record at a time: sent, acknowledged, read back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, ProducerContext};
use rdkafka::{Message as _, Offset, TopicPartitionList};

use crate::Failure;
use crate::args::{Args, Tool};
use crate::consume::{QUIET_LIMIT, partitions};
use crate::measure::{Cpu, Histogram, Report, payloads};
use crate::open_loop::Fates;
use crate::properties::{self, Role};

const PAYLOADS: usize = 1024;
const NEW_TOPIC_LIMIT: Duration = Duration::from_secs(30);
const NEW_TOPIC_PAUSE: Duration = Duration::from_millis(50);

struct Context(Mutex<Sender<Option<String>>>);

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        let error = result.as_ref().err().map(|(error, _)| error.to_string());
        // The receiver is gone after the last record.
        let _ = self.0.lock().unwrap().send(error);
    }
}

/// The latency of a record is from just before its send until it has been read, with its acknowledgement
/// awaited in between, as in Kafka's own tool.
pub fn run(args: &Args) -> Result<Report, Failure> {
    let consumer = consumer_at_end(args, &[("fetch.wait.max.ms", "0")])?;
    let (sender, acks) = channel();
    let mut config = properties::producer(&args.bootstrap);
    config.set("linger.ms", "0").set("acks", args.acks.as_deref().unwrap_or("1"));
    properties::apply(&mut config, &args.properties, Role::Producer, true)?;
    properties::settle_idempotence(&mut config);
    let context = Context(Mutex::new(sender));
    let producer: BaseProducer<Context> = BaseProducer::from_config_and_context(&config, context)?;
    let producers = [Arc::new(producer)];
    polled(&producers, || measure(args, &producers[0], &consumer, &acks))
}

/// Runs a function while a thread for each producer collects its delivery reports.
pub fn polled<C: ProducerContext + 'static, T>(
    producers: &[Arc<BaseProducer<C>>],
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for producer in producers {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    producer.poll(Duration::from_millis(100));
                }
            });
        }
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn measure(
    args: &Args,
    producer: &BaseProducer<Context>,
    consumer: &BaseConsumer,
    acks: &Receiver<Option<String>>,
) -> Result<Report, Failure> {
    let payloads = payloads(PAYLOADS, args.record_size);
    let mut latency = Histogram::new();
    let fates = Fates::new(args.records);
    let mut first = 0;
    let (mut cpu, mut begun) = (Cpu::now()?, Instant::now());
    for index in 0..args.records {
        if index == args.warmup && index > 0 {
            latency = Histogram::new();
            (cpu, begun) = (Cpu::now()?, Instant::now());
            first = fates.now();
        }
        let payload = &payloads[index as usize % PAYLOADS];
        let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&args.topic).payload(payload);
        let sent = fates.now();
        producer.send(record).map_err(|(error, _)| error)?;
        if let Some(error) = acks.recv()? {
            return Err(format!("record {index} was not accepted: {error}").into());
        }
        let message = consumer
            .poll(QUIET_LIMIT)
            .ok_or_else(|| format!("record {index} did not come back in {QUIET_LIMIT:?}"))??;
        let read = fates.now();
        latency.record(read - sent);
        fates.read(index as usize, sent, read, message.partition(), message.offset());
        if message.payload() != Some(&payload[..]) {
            return Err(format!("record {index} came back changed or out of turn").into());
        }
    }
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);
    if let Some(path) = &args.fates {
        fates.write(path, args.warmup, first)?;
    }
    let records = args.records - args.warmup;
    Ok(Report {
        client: properties::CLIENT,
        version: properties::version(),
        tool: "e2e",
        records,
        errors: 0,
        record_size: args.record_size as f64,
        bytes: records * args.record_size as u64,
        elapsed,
        cpu: (cpu, cpu_end),
        send_latency: latency.clone(),
        latency,
    })
}

/// A consumer at the current end of every partition. The properties take precedence over `settings`.
pub fn consumer_at_end(args: &Args, settings: &[(&str, &str)]) -> Result<BaseConsumer, Failure> {
    let mut config = properties::consumer(&args.bootstrap);
    for (name, value) in settings {
        config.set(*name, *value);
    }
    let both = args.tool != Tool::Follow;
    properties::apply(&mut config, &args.properties, Role::Consumer, both)?;
    properties::settle_fetch_size(&mut config);
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    for partition in partitions(&consumer, &args.topic)? {
        let end = end_offset(&consumer, &args.topic, partition)?;
        list.add_partition_offset(&args.topic, partition, Offset::Offset(end))?;
    }
    consumer.assign(&list)?;
    Ok(consumer)
}

/// The partition's end. The leader of a new topic may not know about it yet.
fn end_offset(consumer: &BaseConsumer, topic: &str, partition: i32) -> Result<i64, Failure> {
    let begun = Instant::now();
    loop {
        match consumer.fetch_watermarks(topic, partition, NEW_TOPIC_LIMIT) {
            Ok((_, end)) => return Ok(end),
            Err(error) if is_too_early(&error) && begun.elapsed() < NEW_TOPIC_LIMIT => {
                std::thread::sleep(NEW_TOPIC_PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_too_early(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::UnknownTopicOrPartition
        )
    )
}
