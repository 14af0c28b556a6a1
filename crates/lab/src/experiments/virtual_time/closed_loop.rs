//! Closed loop: one record at a time.

use std::sync::Arc;

use curtail::{Consumer, ConsumerConfig, Producer, ProducerConfig};
use curtail_sim::world::Handle;

use super::{NewTopic, PATIENCE, TOPIC, in_world, propagate, start_cluster};
use crate::{
    cpu::CpuTime,
    experiments::{ClosedLoop, Sample, e2e::sample_of, load, readers},
    perf::{
        Event, Progress, Result, Target, Topic,
        e2e::{Brokers, Leaders, Measured, Options, exchange},
    },
};

/// Plays the closed loop.
///
/// # Errors
/// Invalid settings, a record that is not read back.
pub(super) fn play(closed: ClosedLoop, seed: u64) -> Result<Sample> {
    in_world(closed.model, seed, PATIENCE, |handle| run(closed, handle))
}

async fn run(closed: ClosedLoop, handle: Handle) -> Result<Sample> {
    let ClosedLoop { brokers, partitions, replicas, records, warmup, size, .. } = closed;
    let topic = NewTopic { partitions, replicas, settings: &[] };
    let cluster = start_cluster(&handle, brokers, &[], topic).await?;
    propagate(&handle, &closed.model, &cluster);
    let producer = ProducerConfig::new(cluster.bootstrap());
    let producer = load::with_properties(producer, &closed.producer)?;
    let consumer = ConsumerConfig::new(cluster.bootstrap());
    let consumer = readers::with_properties(consumer, &closed.consumer)?;
    let options = Options {
        target: Target::Bootstrap(cluster.bootstrap()),
        topic: Topic { name: TOPIC.into(), create: None },
        producer: producer.clone(),
        consumer: consumer.clone(),
        records: records + warmup,
        warmup,
        record_size: size,
        key_size: 0,
        headers: 0,
        header_key_size: 0,
        header_value_size: 0,
    };
    let host = handle.add_host();
    let producer = Producer::with_env(producer, &handle.env(host))?;
    let consumer = Consumer::with_env(consumer, &handle.env(host))?;
    let leaders = Arc::new(Leaders::new(TOPIC));
    cluster.observe(leaders.clone());
    let cpu = CpuTime::default;
    let seen = Brokers { leaders: Some(&*leaders), includes_brokers: false, cpu };
    let measured = exchange(&options, producer, consumer, &seen, &mut Quiet).await?;
    let Measured { latencies, phases, exemplars, over_time, .. } = measured;
    let sample = sample_of(records, size, latencies, CpuTime::default());
    Ok(Sample { phases, exemplars, over_time, ..sample })
}

struct Quiet;

impl Progress for Quiet {
    fn on(&mut self, _: Event<'_>) {}
}
