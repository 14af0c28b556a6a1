//! Plays a workload in virtual time: the real client and the real brokers on the machines of a [`World`].
//!
//! All clocks and random numbers are those of the world: the same seed gives the same figures.

mod closed_loop;
mod load;
mod reading;
mod script;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use curtail::error::Report;
use curtail::{
    Consumer, ConsumerConfig, Producer, ProducerConfig, TopicPartition, config::OffsetReset,
};
use curtail_cluster::{Cluster, ClusterConfig, ClusterHandle};
use curtail_sim::world::{self, Handle, HostId, World};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use self::{
    load::{Load, Played, Sender, has_copy},
    reading::Reading,
    script::{Happened, Script},
};
use super::{
    End, Figure, Measured, Model, Sample, Simulated, Workload,
    bystanders::measure_bystanders,
    check::{Found, compare},
    durability::note_flat_out,
    fetch_sessions::note_sessions,
    head_of_line::{measure_quick, note_lookups},
    load::{EARLIER, longest_silence, nanos, number, worst_ms},
    phases::Inside,
    testbed,
    zones::note_across,
};
use crate::{
    latency::Latencies,
    perf::{Error, Result},
};

const TOPIC: &str = "simulated";

/// Time from the end of the set-up until the first record is due.
const LEAD: Duration = Duration::from_millis(50);

/// Time for followers to catch up before the topic is read back: longer than a follower's fetch waits.
const SETTLE: Duration = Duration::from_secs(2);

/// Virtual time after the end of the load at which a run counts as stuck.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Plays a simulation.
///
/// # Errors
/// Invalid settings, a run that does not end.
pub(super) fn play(simulated: Simulated, seed: u64) -> Result<Sample> {
    match simulated {
        Simulated::Load(workload) => play_load(*workload, seed),
        Simulated::ClosedLoop(closed) => closed_loop::play(*closed, seed),
    }
}

fn play_load(workload: Workload, seed: u64) -> Result<Sample> {
    let flat_out = workload.flat_out.map(|records| Workload {
        records,
        warmup: 0,
        rate: None,
        readers: None,
        script: Vec::new(),
        end: End::Records,
        flat_out: None,
        ..workload.clone()
    });
    let mut sample = play_one(workload, seed)?;
    if let Some(flat_out) = flat_out {
        note_flat_out(&mut sample, play_one(flat_out, seed)?);
    }
    Ok(sample)
}

fn play_one(workload: Workload, seed: u64) -> Result<Sample> {
    let length = workload.rate.map_or(0.0, |rate| workload.records as f64 / rate);
    let limit = Duration::from_secs_f64(length) + PATIENCE;
    in_world(workload.model, seed, limit, |handle| Play { workload, handle, seed }.run())
}

/// Runs a future in a new world, for at most this virtual time.
fn in_world<F: Future<Output = Result<Sample>> + Send + 'static>(
    model: Model,
    seed: u64,
    limit: Duration,
    work: impl FnOnce(Handle) -> F,
) -> Result<Sample> {
    let world = World::new(of(model), seed).map_err(Error::Threads)?;
    let work = work(world.handle());
    world.run(async move {
        let played = timeout(limit, work).await;
        played.unwrap_or_else(|_| {
            let text = format!("the run has not ended after {limit:?} of virtual time");
            Err(Error::Unexpected(text))
        })
    })
}

fn of(model: Model) -> world::Model {
    let Model { latency, jitter, zones, bandwidth, socket_buffer, .. } = model;
    let Model { request, append, disk_bandwidth, .. } = model;
    world::Model {
        latency,
        zones,
        jitter,
        bandwidth,
        socket_buffer,
        request,
        append,
        disk_bandwidth,
    }
}

/// The topic of a run.
struct NewTopic<'a> {
    partitions: i32,
    replicas: i16,
    settings: &'a [(&'a str, &'a str)],
}

async fn start_cluster(
    handle: &Handle,
    brokers: u32,
    properties: &[(&str, String)],
    topic: NewTopic<'_>,
) -> Result<Cluster> {
    let mut config =
        ClusterConfig { brokers, auto_create_topics: false, ..ClusterConfig::default() };
    for (name, value) in properties {
        config.set(name, value).map_err(|error| Error::Cluster(error.to_string()))?;
    }
    let failed =
        |error: curtail_cluster::ClusterError| Error::Cluster(Report::new(&error).to_string());
    let cluster = handle.start_cluster(config).await.map_err(failed)?;
    let NewTopic { partitions, replicas, settings } = topic;
    cluster.create_topic(TOPIC, partitions, replicas, settings).map_err(failed)?;
    cluster.settled().await;
    Ok(cluster)
}

/// Gives each broker its own metadata delay.
fn propagate(handle: &Handle, model: &Model, cluster: &ClusterHandle) -> BTreeMap<i32, Duration> {
    let (shortest, longest) = model.propagation;
    let more = nanos(longest.saturating_sub(shortest));
    let delay = || shortest + Duration::from_nanos(handle.below(more + 1));
    let delays: BTreeMap<i32, Duration> =
        cluster.broker_ids().into_iter().map(|id| (id, delay())).collect();
    for (&broker, &delay) in &delays {
        cluster.set_metadata_delay(broker, delay);
    }
    delays
}

/// Adds a client's machine, in a zone if there are zones.
fn add_host(handle: &Handle, zone: Option<&str>) -> HostId {
    zone.map_or_else(|| handle.add_host(), |zone| handle.add_host_in(zone))
}

/// A topic that is unknown to producers.
fn unknown_topic(number: u32) -> String {
    format!("unknown-{number}")
}

/// Whether every partition has a leader and all its replicas in sync.
fn is_whole(workload: &Workload, cluster: &ClusterHandle) -> bool {
    (0..workload.partitions).all(|partition| {
        let replicas = cluster.isr(TOPIC, partition).map_or(0, |isr| isr.len());
        cluster.leader(TOPIC, partition).is_some()
            && replicas == workload.replicas.unsigned_abs() as usize
    })
}

struct Play {
    workload: Workload,
    handle: Handle,
    seed: u64,
}

impl Play {
    async fn run(self) -> Result<Sample> {
        let Workload { brokers, partitions, replicas, .. } = self.workload;
        let settings: Vec<(&str, &str)> =
            self.workload.topic_properties.iter().map(|(name, value)| (*name, &**value)).collect();
        let topic = NewTopic { partitions, replicas, settings: &settings };
        let properties = &self.workload.broker_properties;
        let cluster = start_cluster(&self.handle, brokers, properties, topic).await?;
        let cluster = Arc::new(cluster);
        let delays = propagate(&self.handle, &self.workload.model, &cluster);
        let producers = self.producers(&cluster).await?;
        self.create_unknown_topics(&cluster).await?;
        reading::write_backlog(&self.workload, &self.handle, &cluster).await?;
        let consumers = reading::at_end(&self.workload, &self.handle, &cluster).await?;
        let start = self.handle.now() + LEAD;
        let acks = self.config(&cluster)?.get_acks();
        let load = Load::new(&self.workload, acks, &cluster, self.handle.clone(), start)?;
        let load = Arc::new(load);
        let inside = Inside::begin(&cluster, TOPIC, load.records());
        let mut senders = JoinSet::new();
        for (number, producer) in producers.iter().enumerate() {
            let random = self.seed.wrapping_add(number as u64);
            senders.spawn(Sender::new(Arc::clone(&load), producer.clone(), number, random).run());
        }
        let lookups = tokio::spawn(self.look_up(producers[0].clone(), start));
        let reading = Reading::begin(&self.workload, consumers, &self.handle, load.start());
        let script = Script::new(&self.workload, start, self.handle.clone(), Arc::clone(&cluster));
        let happened = script.run().await?;
        if self.workload.end == End::Script {
            load.end();
        }
        let mut played = Played::new(load.records());
        while let Some(sent) = senders.join_next().await {
            let sent = sent.map_err(|_| Error::Unexpected("a producer's task ended".into()))?;
            played.add(sent?);
        }
        let lookups =
            lookups.await.map_err(|_| Error::Unexpected("the lookups' task ended".into()))??;
        for producer in producers {
            producer.close().await?;
        }
        happened.set_right(&cluster).await?;
        cluster.wait_until(|cluster| is_whole(&self.workload, cluster)).await;
        let mut read = reading.end(load.records()).await?;
        sleep(SETTLE).await;
        cluster.stop_observing();
        let mut seen = load.seen(inside);
        seen.read_by(read.readings());
        let mut sample = load.sample(&played, &seen);
        let findings =
            compare(&played.fates, &self.read_back(&cluster).await?, self.workload.order);
        let bundle = u64::from(self.workload.bundle);
        sample.lost = findings.lost * bundle;
        sample.duplicated = findings.duplicated * bundle;
        sample.reordered = findings.reordered * bundle;
        read.add_to(self.workload.order, &mut sample);
        if let Measured::Bystanders { broker, windows } = self.workload.measured {
            let stands_by = |partition| !has_copy(&cluster, broker, partition);
            let records = load.acknowledged(&played);
            measure_bystanders(&mut sample, &windows, stands_by, records);
        }
        if let Measured::Without { broker } = self.workload.measured {
            let is_quick = |partition| !has_copy(&cluster, broker, partition);
            measure_quick(&mut sample, is_quick, load.acknowledged(&played));
        }
        if let Some(zones) = self.workload.zones {
            let size = self.workload.size as u64;
            let share = |(&id, &records): (&i32, &u64)| (id, (records, records * size));
            sample.brokers = played.brokers.iter().map(share).collect();
            note_across(&mut sample, zones, &read.fetches());
        }
        if self.workload.lookups > 0 {
            note_lookups(&mut sample, &lookups);
        }
        sample.note("requests", Figure::Total(played.requests as f64));
        let known = delays.values().max().copied().unwrap_or_default();
        sample.faults = happened.spans(known);
        self.note(&mut sample, &played, &happened, &delays, &cluster);
        Ok(sample)
    }

    fn config(&self, cluster: &ClusterHandle) -> Result<ProducerConfig> {
        let mut config = ProducerConfig::new(cluster.bootstrap());
        for (name, value) in &self.workload.properties {
            config.set(name, value)?;
        }
        Ok(config)
    }

    async fn producers(&self, cluster: &ClusterHandle) -> Result<Vec<Producer>> {
        let count = self.workload.client_hosts.max(1);
        let zone = self.workload.zones.map(|zones| zones.producers);
        let hosts: Vec<HostId> = (0..count).map(|_| add_host(&self.handle, zone)).collect();
        let mut producers = Vec::new();
        for number in 0..self.workload.producers {
            let host = hosts[number as usize % hosts.len()];
            let config = self.config(cluster)?;
            let producer = Producer::with_env(config, &self.handle.env(host))?;
            producer.warm_up(&[TOPIC]).await?;
            producers.push(producer);
        }
        Ok(producers)
    }

    async fn create_unknown_topics(&self, cluster: &ClusterHandle) -> Result<()> {
        for number in 0..self.workload.lookups {
            let created = cluster.create_topic(&unknown_topic(number), 1, 1, &[]);
            created.map_err(|error| Error::Cluster(Report::new(&error).to_string()))?;
        }
        cluster.settled().await;
        Ok(())
    }

    /// Looks up one unknown topic after the other with a producer.
    fn look_up(
        &self,
        producer: Producer,
        start: Duration,
    ) -> impl Future<Output = Result<Latencies>> + Send + 'static {
        let Workload { records, rate, lookups, .. } = self.workload;
        let length = rate.map_or(0.0, |rate| records as f64 / rate);
        let pause = Duration::from_secs_f64(length) / (lookups + 1);
        let handle = self.handle.clone();
        async move {
            let mut latencies = Latencies::default();
            for number in 0..lookups {
                handle.until(start + pause * (number + 1)).await;
                let asked = handle.now();
                producer.partitions_for(&unknown_topic(number)).await?;
                latencies.record(handle.now() - asked);
            }
            Ok(latencies)
        }
    }

    /// Reads the topic back from an extra machine.
    async fn read_back(&self, cluster: &ClusterHandle) -> Result<Found> {
        let config = ConsumerConfig::new(cluster.bootstrap()).auto_offset_reset(OffsetReset::None);
        let env = self.handle.env(self.handle.add_observer());
        let mut consumer = Consumer::with_env(config, &env)?;
        let partitions: Vec<TopicPartition> =
            (0..self.workload.partitions).map(|p| TopicPartition::new(TOPIC, p)).collect();
        consumer.assign(partitions.iter().cloned());
        for partition in &partitions {
            consumer.seek(partition, 0)?;
        }
        let ends = consumer.end_offsets(&partitions).await?;
        let mut left: i64 = ends.values().sum();
        let mut found = Found::new();
        while left > 0 {
            for record in consumer.poll(Duration::from_secs(60)).await? {
                let number = record.value().and_then(number).ok_or_else(|| {
                    Error::Unexpected("a record that this run has not sent".into())
                })?;
                left -= 1;
                if number >= EARLIER {
                    continue;
                }
                found.entry(record.partition()).or_default().push((record.offset(), number));
            }
        }
        consumer.close().await;
        Ok(found)
    }

    fn note(
        &self,
        sample: &mut Sample,
        played: &Played,
        happened: &Happened,
        delays: &BTreeMap<i32, Duration>,
        cluster: &ClusterHandle,
    ) {
        if let [(from, before), .., (until, after)] = happened.sessions[..] {
            note_sessions(sample, testbed::Sessions::default(), before, after, until - from);
        }
        let Some(first) = happened.first() else { return };
        let stall = longest_silence(&played.fates, nanos(first));
        sample.note("stall_ms", worst_ms(stall));
        if happened.leaders_moved > 0 {
            sample.note("leaders_moved", Figure::Total(happened.leaders_moved as f64));
        }
        if let Some((broker, dropped)) = happened.dropped {
            let others = || delays.iter().filter(|(id, _)| **id != broker).map(|(_, by)| *by);
            let told = dropped.saturating_sub(first);
            let all = nanos(told + others().max().unwrap_or_default());
            sample.note(
                "election_first_broker_ms",
                worst_ms(nanos(told + others().min().unwrap_or_default())),
            );
            sample.note("election_all_brokers_ms", worst_ms(all));
            let beyond = (stall as f64 - all as f64) / 1e6;
            sample.note("stall_beyond_election_ms", Figure::Worst(beyond));
        }
        if let Some(rolled) = happened.rolled(&cluster.broker_ids()) {
            sample.note("rolled_s", Figure::Worst(rolled.as_secs_f64()));
        }
        if let Some(gone) = happened.gone() {
            sample.note("gone_ms", worst_ms(nanos(gone)));
        }
        if let Some(slow) = happened.slowed {
            self.note_shares(sample, played, slow, cluster);
        }
    }

    /// Adds the records and bytes of each broker, by the leaders at the end.
    fn note_shares(
        &self,
        sample: &mut Sample,
        played: &Played,
        slow: i32,
        cluster: &ClusterHandle,
    ) {
        let mut bytes: BTreeMap<i32, u64> = BTreeMap::new();
        for acknowledged in played.fates.iter().filter_map(|fate| fate.acknowledged) {
            if let Some((leader, _)) = cluster.leader(TOPIC, acknowledged.partition) {
                let size = self.workload.size as u64 * u64::from(self.workload.bundle);
                *bytes.entry(leader).or_default() += size;
            }
        }
        let total: u64 = bytes.values().sum();
        for broker in cluster.broker_ids() {
            let bytes = bytes.get(&broker).copied().unwrap_or(0);
            sample.note(format!("broker_{broker}_bytes"), Figure::Total(bytes as f64));
            if broker == slow {
                let percent = 100.0 * bytes as f64 / total.max(1) as f64;
                sample.note("slow_share_percent", Figure::Worst(percent));
            }
        }
    }
}
