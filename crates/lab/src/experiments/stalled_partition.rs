//! One partition is not drained for ten seconds, its records in the buffer: what the others notice.

use std::time::{Duration, Instant};

use curtail::{Consumer, ConsumerConfig, Producer, ProducerConfig, Record, TopicPartition};
use tokio::runtime::Runtime;

use super::{
    Arm, Arms, Condition, Experiment, Published, Sample, Setting, Testbed, Turn,
    check::{Order, read_back},
    load::{EARLIER, Keys, Load, Placement},
    phases::Observe,
    readers::{self, Expected, Read, Reader, SharedOverTime, merged},
    testbed::Needs,
};
use crate::perf::{Error, Result};

const PARTITIONS: i32 = 6;
const RATE: f64 = 1_000.0;
const SIZE: usize = 500;
/// Before the stall.
const WARMUP: Duration = Duration::from_secs(2);
const STALL: Duration = Duration::from_secs(10);
/// How much worse the 99th percentile of the others may be.
const FACTOR: f64 = 1.25;
/// Records that the partition to be stalled has before everything else.
const BACKLOG: usize = 2_000;
/// The partition.
const STALLED: i32 = 0;

const WITH: Arm = Arm {
    name: "stalled",
    about: "one partition is not drained, with records of it in the buffer",
    properties: &[],
};
const WITHOUT: Arm = Arm { name: "drained", about: "all are drained", properties: &[] };

/// `stalled-partition`.
pub(super) struct StalledPartition;

impl Experiment for StalledPartition {
    fn name(&self) -> &'static str {
        "stalled-partition"
    }

    fn about(&self) -> &'static str {
        "one of six partitions is not drained for 10 s: what the others' records wait"
    }

    fn source(&self) -> &'static str {
        "KAFKA-17182; krafka and librdkafka stall in such a case"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![WITH, WITHOUT]
    }

    fn rounds(&self, setting: &Setting) -> u32 {
        (3.0 * setting.scale).ceil() as u32
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        let testbed = turn.testbed;
        testbed.create_topic(&topic, PARTITIONS, 1)?;
        let runtime = readers::runtime()?;
        backlog(&runtime, testbed, &topic)?;
        let mut config = ConsumerConfig::new(testbed.bootstrap());
        // The rest of what was fetched stays in the buffer.
        config.max_poll_records = 10;
        let stalled = TopicPartition::new(&*topic, STALLED);
        let mut consumers = readers::at_end(&runtime, &config, &topic, 1)?;
        let mut consumer =
            consumers.pop().ok_or_else(|| Error::Unexpected("no consumer".into()))?;
        consumer.seek(&stalled, 0)?;
        let stall = STALL.mul_f64(turn.setting.scale);
        let seconds = (WARMUP + stall).as_secs_f64();
        let load = Load {
            config: ProducerConfig::new(testbed.bootstrap()).linger(Duration::ZERO),
            topic: topic.clone(),
            records: (RATE * seconds).ceil() as u64,
            warmup: (RATE * WARMUP.as_secs_f64()) as u64,
            rate: RATE,
            size: SIZE,
            keys: Keys::Cycle(1_000),
            placement: Placement::Producer,
            seed: turn.setting.seed,
            warm_up: true,
            earlier: false,
        };
        let (records, warmup) = (load.records, load.warmup);
        let pauses = turn.arm.name == WITH.name;
        let over_time = SharedOverTime::default();
        let (sent, read) = load.run_observed(testbed, Observe::Phases, |start| {
            let expected = Expected {
                start,
                rate: RATE,
                records,
                warmup,
                work: Duration::ZERO,
                over_time: over_time.clone(),
                apart: Some(STALLED),
            };
            let until = start + WARMUP + stall;
            let reading = consume(consumer, expected, pauses.then_some(stalled), until);
            readers::join(&runtime, vec![runtime.spawn(reading)])
        })?;
        let mut sample = sent.sample();
        read_back(&sent, Order::Sent, &mut sample)?;
        read.iter().for_each(|read| read.add_to(&mut sample));
        let others = read.iter().flat_map(|read| &read.latency);
        let others = others.filter(|(partition, _)| **partition != STALLED);
        let latency = merged(others.map(|(_, latencies)| latencies));
        readers::set_latency(&mut sample, latency, &over_time);
        if pauses {
            let what = format!("partition {STALLED} is not drained");
            sample.mark(sent.start, sent.start, sent.start + WARMUP + stall, what);
        }
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        if let (Some(with), Some(without)) = (arms.get(WITH.name), arms.get(WITHOUT.name)) {
            let p99 = |sample: &Sample| sample.latency.quantile(0.99).as_secs_f64() * 1000.0;
            let (with, without) = (p99(with), p99(without));
            conditions.push(Condition {
                text: format!(
                    "p99 of the others within {FACTOR} times ({with:.2} and {without:.2} ms)"
                ),
                held: with <= FACTOR * without,
            });
        }
        conditions
    }
}

/// Fills the partition that is to be stalled, so that its records are in the buffer from the first answer on.
fn backlog(runtime: &Runtime, testbed: &Testbed, topic: &str) -> Result<()> {
    runtime.block_on(async {
        let producer = Producer::new(ProducerConfig::new(testbed.bootstrap()))?;
        let mut value = [0; SIZE];
        for number in 0..BACKLOG as u64 {
            value[..8].copy_from_slice(&(EARLIER + number).to_be_bytes());
            producer.send(Record::to(topic).partition(STALLED).value(&value)).await?;
        }
        producer.flush().await?;
        Ok(producer.close().await?)
    })
}

/// Reads everything, and leaves one partition alone between its first records and the end of the stall.
async fn consume(
    mut consumer: Consumer,
    expected: Expected,
    stalled: Option<TopicPartition>,
    until: Instant,
) -> Result<Read> {
    let mut reader = Reader::new(expected);
    let mut stalling = stalled.is_some();
    if let Some(at) = &stalled {
        // Until its first records are here, and with them more.
        let mut here = false;
        while !here {
            let records = consumer.poll(readers::PATIENCE).await?;
            here = records.is_empty() || records.iter().any(|r| r.partition() == STALLED);
            reader.take(records);
        }
        consumer.pause([at]);
    }
    while !reader.is_done() {
        let records = consumer.poll(Duration::from_millis(100)).await?;
        if stalling && Instant::now() >= until {
            stalling = false;
            consumer.resume(&stalled);
        }
        let silent = Instant::now() > until + readers::PATIENCE;
        if records.is_empty() && silent {
            break;
        }
        reader.take(records);
    }
    consumer.close().await;
    Ok(reader.finish())
}
