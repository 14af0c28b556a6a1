//! Common parts of the experiments about durability: a steady load, whose latency counts, and one as fast as
//! possible, whose throughput counts.
//!
//! The set-up is that of "99th Percentile Latency at Scale with Apache Kafka" at a size for one machine:
//! twelve partitions per broker, three producers in place of nine, values of 512 bytes, keys, lz4,
//! `linger.ms=5`. The original adds nine consumers; here they would share two cores with everything else and
//! are left out.

use std::time::Duration;

use super::{
    Arm, Figure, Model, Sample, Setting, Turn, Workload,
    check::{Order, read_back},
    load::{Keys, Load, Senders, with_properties},
    workload::properties,
};
use crate::perf::Result;

/// The blog post behind most of these experiments.
pub(super) const SOURCE: &str = "99th Percentile Latency at Scale with Apache Kafka";

/// The post's example of an end-to-end objective, applied here to producer latency.
pub(super) const TARGET_MS: f64 = 50.0;

/// Bytes of a value.
pub(super) const SIZE: usize = 512;
/// Different keys.
pub(super) const KEYS: u64 = 10_000;

/// Twelve for each of three brokers.
pub(super) const PARTITIONS: i32 = 36;
/// Warm-up, at any scale: connections are opened, and a new topic's replicas begin to follow.
pub(super) const WARMUP: Duration = Duration::from_secs(1);

const PRODUCERS: usize = 3;
const RATE: f64 = 8_000.0;
const STEADY: Duration = Duration::from_secs(10);
/// Records sent as fast as possible.
const FLAT_OUT: f64 = 600_000.0;

/// Client settings that the post's experiments have in common.
const COMMON: &[(&str, &str)] = &[("linger.ms", "5"), ("compression.type", "lz4")];

/// In virtual time, the post's own size: nine brokers, 108 partitions, 90 MB/s.
const POST_BROKERS: u32 = 9;
const POST_PARTITIONS: i32 = 108;
const POST_AGENTS: u32 = 9;
const POST_RATE: f64 = 90.0 * 1024.0 * 1024.0 / SIZE as f64;
/// In virtual time: records sent as fast as possible.
const POST_FLAT_OUT: f64 = 4_000_000.0;
/// In virtual time: one-way delay between zones of a region.
const ZONES: (Duration, Duration) = (Duration::from_micros(300), Duration::from_micros(500));

/// The post's set-up in virtual time, with this number of producers and replicas. Random values are not
/// compressible, so lz4 would not reduce them.
pub(super) fn of_the_post(setting: &Setting, arm: &Arm, producers: u32, replicas: i16) -> Workload {
    let records = POST_RATE * STEADY.mul_f64(setting.scale).as_secs_f64();
    Workload {
        brokers: POST_BROKERS,
        partitions: POST_PARTITIONS,
        replicas,
        producers,
        client_hosts: POST_AGENTS,
        properties: properties(&[("linger.ms", "5")], arm),
        records: records as u64,
        warmup: (records * 0.1) as u64,
        rate: Some(POST_RATE),
        size: SIZE,
        keys: Keys::Cycle(KEYS),
        order: Order::SentInTurn(producers.into()),
        model: Model { latency: ZONES.0, jitter: ZONES.1, ..Model::default() },
        ..Workload::default()
    }
}

/// The same with nine producers, followed by a load as fast as possible.
pub(super) fn both_of_the_post(setting: &Setting, arm: &Arm, replicas: i16) -> Workload {
    let flat_out = Some((POST_FLAT_OUT * setting.scale) as u64);
    Workload { flat_out, ..of_the_post(setting, arm, POST_AGENTS, replicas) }
}

/// Runs both loads with this number of replicas.
///
/// # Errors
/// As [`Load::run`].
pub(super) fn measure(turn: &Turn<'_>, experiment: &str, replicas: i16) -> Result<Sample> {
    let topic = turn.topic(experiment);
    turn.testbed.create_topic(&topic, PARTITIONS, replicas)?;
    let length = (WARMUP + STEADY.mul_f64(turn.setting.scale)).as_secs_f64();
    let base = Load::new(turn, &topic)?;
    let load = Load {
        config: with_properties(base.config.clone(), COMMON)?,
        records: (RATE * length) as u64,
        warmup: (RATE * WARMUP.as_secs_f64()) as u64,
        rate: RATE,
        size: SIZE,
        keys: Keys::Cycle(KEYS),
        ..base
    };
    let flat_out = load.clone();
    let (sent, ()) = turn.send_by(load, Senders::producers(PRODUCERS), |_| Ok(()))?;
    let mut sample = sent.sample();
    let order = Order::SentInTurn(PRODUCERS as u64);
    read_back(&sent, order, &mut sample)?;
    turn.testbed.delete_topic(&topic)?;
    as_fast_as_possible(turn, flat_out, replicas, &mut sample)?;
    Ok(sample)
}

/// Fills a separate topic without a rate limit and adds bytes and time as figures.
fn as_fast_as_possible(
    turn: &Turn<'_>,
    load: Load,
    replicas: i16,
    sample: &mut Sample,
) -> Result<()> {
    let topic = format!("{}-flat-out", load.topic);
    turn.testbed.create_topic(&topic, PARTITIONS, replicas)?;
    let records = (FLAT_OUT * turn.setting.scale) as u64;
    let load = Load { topic: topic.clone(), records, warmup: 0, rate: f64::INFINITY, ..load };
    let (sent, ()) = turn.send_by(load, Senders::producers(PRODUCERS), |_| Ok(()))?;
    let mut fast = sent.sample();
    read_back(&sent, Order::SentInTurn(PRODUCERS as u64), &mut fast)?;
    turn.testbed.delete_topic(&topic)?;
    note_flat_out(sample, fast);
    Ok(())
}

/// Adds bytes, time and errors of a load without a rate limit as figures.
pub(super) fn note_flat_out(sample: &mut Sample, fast: Sample) {
    sample.errors += fast.errors;
    sample.first_error = sample.first_error.take().or(fast.first_error);
    sample.lost += fast.lost;
    sample.duplicated += fast.duplicated;
    sample.reordered += fast.reordered;
    sample.note("flat_out_mb", Figure::Total(fast.bytes as f64 / (1024.0 * 1024.0)));
    sample.note("flat_out_s", Figure::Total(fast.elapsed.as_secs_f64()));
}

/// Throughput without a rate limit, in MB/s.
pub(super) fn flat_out(sample: &Sample) -> f64 {
    sample.figure("flat_out_mb") / sample.figure("flat_out_s")
}

/// A percentile in milliseconds.
pub(super) fn quantile_ms(sample: &Sample, quantile: f64) -> f64 {
    sample.latency.quantile(quantile).as_secs_f64() * 1000.0
}
