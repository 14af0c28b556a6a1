//! Latency of the other partitions while one partition is paused with records in the consumer's buffer.
//!
//! The consumer pauses and resumes the partition repeatedly, as an application does that limits the flow of
//! one partition. The others' latency during a pause is compared with their latency while no partition is
//! paused, in windows of the same run. Between separate runs, other work of the machine varied more than the
//! effect.

use std::time::{Duration, Instant};

use curtail::{Consumer, ConsumerRecord, TopicPartition};

use super::{
    Arm, Arms, Condition, Experiment, Figure, Published, Sample, Setting, Testbed, Turn,
    check::{Order, read_back},
    durability::quantile_ms,
    load::{Keys, Load, nanos, number},
    readers::{self, Expected, Read, Reader, SharedOverTime},
    testbed::Needs,
    windows::{Part, Windows},
};
use crate::{
    latency::Latencies,
    perf::{Pacer, Result},
};

const PARTITIONS: i32 = 6;
const RATE: f64 = 2_000.0;
const SIZE: usize = 500;
/// Length of each quiet and each paused window.
const WINDOW: Duration = Duration::from_millis(250);
const ROUNDS: f64 = 60.0;
/// Largest ratio of the others' 99th percentile.
const FACTOR: f64 = 1.25;
/// The partition that is paused.
const STALLED: i32 = 0;

const CREDIT: Arm = Arm {
    name: "credit",
    about: "the others are still fetched: curtail.buffered.partitions=credit, the default",
    properties: &[("curtail.buffered.partitions", "credit")],
};
const ARMS: [Arm; 3] = [
    CREDIT,
    Arm {
        name: "omit",
        about: "buffered partitions leave the session: option 1 of the pull request",
        properties: &[("curtail.buffered.partitions", "omit")],
    },
    Arm {
        name: "skip-broker",
        about: "no fetch from a broker while anything of it is buffered: option 4, which was taken",
        properties: &[("curtail.buffered.partitions", "skip-broker")],
    },
];

/// `stalled-partition`.
pub(super) struct StalledPartition;

impl Experiment for StalledPartition {
    fn name(&self) -> &'static str {
        "stalled-partition"
    }

    fn about(&self) -> &'static str {
        "one of six partitions is paused repeatedly: latency of the other five"
    }

    fn source(&self) -> &'static str {
        "KAFKA-17182; krafka and librdkafka stall in such a case"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        ARMS.to_vec()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
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
        // The arm's properties are the consumer's.
        let config = readers::with_properties(testbed.consumer(), turn.arm.properties)?;
        let arm = Arm { properties: &[], ..*turn.arm };
        let consumer = readers::one_at_end(&runtime, &config, &topic)?;
        let windows = windows(turn.setting);
        let base = Load::new(&Turn { arm: &arm, ..*turn }, &topic)?;
        let load = Load {
            config: base.config.clone().linger(Duration::ZERO),
            records: (RATE * windows.whole().as_secs_f64()).ceil() as u64,
            rate: RATE,
            size: SIZE,
            keys: Keys::Cycle(1_000),
            ..base
        };
        let records = load.records;
        let over_time = SharedOverTime::default();
        let stalled = TopicPartition::new(&*topic, STALLED);
        let (sent, (read, others)) = turn.send(load, |start| {
            let expected = Expected {
                over_time: over_time.clone(),
                apart: Some(STALLED),
                ..Expected::new(start, RATE, records)
            };
            runtime.block_on(consume(consumer, expected, &stalled, &windows))
        })?;
        let mut sample = sent.sample();
        read_back(&sent, Order::Sent, &mut sample)?;
        read.add_to(Order::Sent, &mut sample);
        let drained = others.drained.quantile(0.99).as_secs_f64() * 1000.0;
        readers::set_latency(&mut sample, others.stalled, &over_time);
        windows.mark(&mut sample, sent.start, &format!("partition {STALLED} is paused"));
        sample.note("drained_p99_ms", Figure::Worst(drained));
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        if let Some(sample) = arms.get(CREDIT.name) {
            let (with, without) = (quantile_ms(sample, 0.99), sample.figure("drained_p99_ms"));
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

fn windows(setting: &Setting) -> Windows {
    Windows {
        warmup: Duration::from_secs_f64(2.0 * setting.scale),
        quiet: WINDOW,
        fault: WINDOW,
        rest: WINDOW / 5,
        rounds: (ROUNDS * setting.scale).ceil() as u32,
    }
}

/// Latencies of the other partitions, from the intended send time until the poll that returned the record.
#[derive(Default)]
struct Others {
    /// Records due while the partition was paused.
    stalled: Latencies,
    /// Records due while no partition was paused.
    drained: Latencies,
}

/// Reads everything and pauses one partition in the windows for it.
async fn consume(
    mut consumer: Consumer,
    expected: Expected,
    stalled: &TopicPartition,
    windows: &Windows,
) -> Result<(Read, Others)> {
    let (start, pacer) = (expected.start, Pacer::new(expected.start, expected.rate));
    let mut others = Others::default();
    let mut reader = Reader::new(expected);
    let mut paused = false;
    let mut last = Instant::now();
    while !reader.is_done() && last.elapsed() < readers::PATIENCE {
        let at = nanos(start.elapsed());
        let pause = windows.part(at) == Part::Fault;
        if pause && !paused {
            consumer.pause([stalled]);
        } else if paused && !pause {
            consumer.resume([stalled]);
        }
        paused = pause;
        let wait = windows.left(at).unwrap_or(WINDOW);
        let records = consumer.poll(wait).await?;
        if !records.is_empty() {
            last = Instant::now();
        }
        for record in records.iter().filter(|record| record.partition() != STALLED) {
            others.take(record, last, &pacer, windows);
        }
        reader.take(records);
    }
    consumer.close().await;
    Ok((reader.finish(), others))
}

impl Others {
    fn take(&mut self, record: &ConsumerRecord, now: Instant, pacer: &Pacer, windows: &Windows) {
        let Some(number) = record.value().and_then(number) else { return };
        let latency = now.saturating_duration_since(pacer.due(number));
        match windows.part(nanos(pacer.due(number) - pacer.due(0))) {
            Part::Fault => self.stalled.record(latency),
            Part::Quiet => self.drained.record(latency),
            Part::Rest => {}
        }
    }
}
