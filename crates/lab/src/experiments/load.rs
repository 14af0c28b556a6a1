//! Open-loop load that can identify each of its records afterwards.

mod other;
mod outcomes;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use curtail::{Admin, AdminConfig, Delivery, Producer, ProducerConfig, Record};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::runtime::Runtime;

pub use self::outcomes::Awaits;
use self::outcomes::{Fates, Outcomes};

use super::{
    ClusterKind, Event, Figure, Sample, Testbed, Turn, phases::Observation, readers::Readings,
    runner::Told,
};
use crate::{
    cpu::CpuTime,
    letters::Letters,
    peers::driver::InTurn,
    perf::{Error, Pacer, Result, sleep_precisely},
};

/// Bytes of a value that hold the record's number.
const NUMBER: usize = 8;
/// First record number of an earlier load to the same topic.
pub(super) const EARLIER: u64 = 1 << 40;
/// Outcomes for which space is reserved before the first record.
const MOST_AT_ONCE: usize = 1 << 20;

/// Which records carry a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// None does.
    None,
    /// All do: this number of different keys, in turn.
    Cycle(u64),
}

impl Keys {
    /// The key of a record.
    fn get(self, index: u64) -> Option<[u8; 8]> {
        match self {
            Self::None => None,
            Self::Cycle(count) => Some((index % count).to_be_bytes()),
        }
    }
}

/// The component that chooses the partitions of keyless records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The producer.
    Producer,
    /// The load, as Kafka's partitioner did before KIP-794: one partition until a record opens a new batch in
    /// it, then another one at random.
    ///
    /// Java moves that very record. Here it stays as the first of its batch, and the next record moves.
    StickyByBatch,
}

/// What happens before the first record of a load is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WarmUp {
    /// Nothing: the producer has just been made.
    Nothing,
    /// The producer looks the topic up and connects.
    Connections,
    /// Records are sent to the topic as well, at the rate of the load.
    Records,
}

/// Longest sending before the first record is due, in seconds. A Java virtual machine compiles while it sends, and a
/// topic that is seconds old is slow: each replica of a partition writes files before the first batch.
const WARM_UP_SECONDS: f64 = 5.0;
/// The largest part of a load that is sent before it: one record of this many.
const WARM_UP_SHARE: u64 = 2;

/// Records to send.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// The producer's settings, with `bootstrap.servers`.
    pub(super) config: ProducerConfig,
    /// Target topic, which exists.
    pub(super) topic: String,
    /// Number of records, warm-up included.
    pub(super) records: u64,
    /// Records at the start that are sent and checked but not measured.
    pub(super) warmup: u64,
    /// Records per second.
    pub(super) rate: f64,
    /// Bytes of a value, at least 8.
    pub(super) size: usize,
    /// Keys.
    pub(super) keys: Keys,
    /// The component that chooses the partitions of keyless records.
    pub(super) placement: Placement,
    /// Seed for the values.
    pub(super) seed: u64,
    /// What happens before the first record is due.
    pub(super) warm_up: WarmUp,
    /// Whether another load to the same topic follows, whose check must ignore these records.
    pub(super) earlier: bool,
    /// What it awaits. With [`Placement::StickyByBatch`] that is always the flush, because the load compares
    /// deliveries.
    pub(super) awaits: Awaits,
}

/// Producer and partition of each record of a load, and the end of the load.
#[derive(Clone, Debug)]
pub(super) struct Senders {
    /// Producer and partition of each record, in turn. There is at least one slot.
    pub(super) slots: Vec<Slot>,
    /// Records due at the same time. All are due when the first of them would be due alone.
    pub(super) burst: u64,
    /// Whether the load ends with its script, if its records have not ended earlier.
    pub(super) end_with_script: bool,
}

/// Producer and partition of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Index of the producer. All producers share one event loop.
    pub(super) producer: usize,
    /// Its partition; `None` leaves that to the producer.
    pub(super) partition: Option<i32>,
}

impl Default for Senders {
    fn default() -> Self {
        Self::producers(1)
    }
}

impl Senders {
    /// `count` producers that send in turn.
    pub(super) fn producers(count: usize) -> Self {
        let slot = |producer| Slot { producer, partition: None };
        Self { slots: (0..count).map(slot).collect(), burst: 1, end_with_script: false }
    }

    /// One producer that sends to these partitions in turn.
    pub(super) fn partitions(partitions: impl IntoIterator<Item = i32>) -> Self {
        let slot = |partition| Slot { producer: 0, partition: Some(partition) };
        let slots = partitions.into_iter().map(slot).collect();
        Self { slots, ..Self::default() }
    }

    /// Producer and partition of a record.
    pub(super) fn slot(&self, index: u64) -> Slot {
        self.slots[(index % self.slots.len() as u64) as usize]
    }

    /// Index of the first record of the same burst.
    fn first_of_burst(&self, index: u64) -> u64 {
        index - index % self.burst
    }

    /// These senders for another client's driver; `None` if it cannot send so.
    fn in_turn(&self) -> Option<InTurn> {
        let partitions: Vec<i32> = self.slots.iter().filter_map(|slot| slot.partition).collect();
        let producers = self.count_producers();
        let one = producers == 1 && partitions.len() == self.slots.len();
        let in_turn = self.slots.iter().enumerate().all(|(at, slot)| slot.producer == at);
        let sendable = !self.end_with_script && (one || in_turn && partitions.is_empty());
        sendable.then_some(InTurn { producers, partitions, burst: self.burst })
    }

    fn count_producers(&self) -> usize {
        self.slots.iter().map(|slot| slot.producer + 1).max().unwrap_or(1)
    }
}

/// Where a record was acknowledged. Times are nanoseconds since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) partition: i32,
    pub(crate) offset: Option<i64>,
    /// When the first request with it was handed to the socket, if the client reports it.
    pub(crate) written: Option<u64>,
    pub(crate) at: u64,
}

/// Outcome of the record with this index; `acknowledged` is `None` if it was not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    pub(crate) sent: u64,
    pub(crate) acknowledged: Option<Acknowledged>,
}

/// A load that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) start: Instant,
    pub(super) fates: Vec<Fate>,
    pub(super) first_error: Option<String>,
    /// Observations of the load, by probes and readers.
    pub(super) observation: Observation,
    pub(super) load: Load,
    /// Produce requests sent, if the client reports them.
    pub(super) requests: u64,
    senders: Senders,
    cpu: CpuTime,
    /// Records acknowledged by each broker.
    brokers: BTreeMap<i32, u64>,
}

impl Load {
    /// A load for a turn with the properties of its arm, without records or keys so far.
    ///
    /// # Errors
    /// Invalid properties.
    pub(super) fn new(turn: &Turn<'_>, topic: &str) -> Result<Self> {
        Ok(Self {
            config: with_properties(turn.testbed.producer(), turn.arm.properties)?,
            topic: topic.to_owned(),
            records: 0,
            warmup: 0,
            rate: 1.0,
            size: NUMBER,
            keys: Keys::None,
            placement: Placement::Producer,
            seed: turn.setting.seed,
            warm_up: WarmUp::Connections,
            earlier: false,
            awaits: turn.awaits,
        })
    }

    /// Sends everything and runs `script` concurrently.
    ///
    /// `script` receives the time at which the first record is due. Returns when every record is acknowledged
    /// or has failed and the script has ended.
    ///
    /// # Errors
    /// An unreachable cluster, and errors of the script.
    pub(super) fn run<T: Send>(
        self,
        script: impl FnOnce(Instant) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        self.run_by(Senders::default(), |start, _| script(start))
    }

    /// As [`Load::run`], with other senders. The script also receives the producers.
    ///
    /// # Errors
    /// As [`Load::run`].
    pub(super) fn run_by<T: Send>(
        self,
        senders: Senders,
        script: impl FnOnce(Instant, &[Producer]) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        self.ready(&senders)?.run(self, senders, script)
    }

    /// Makes the producers and warms them up.
    ///
    /// # Errors
    /// An unreachable cluster.
    pub(super) fn ready(&self, senders: &Senders) -> Result<Ready> {
        let awaits = match self.placement {
            Placement::Producer => self.awaits,
            Placement::StickyByBatch => Awaits::Flush,
        };
        let runtime = awaits.runtime()?;
        let context = runtime.enter();
        let producers = (0..senders.count_producers()).map(|_| Producer::new(self.config.clone()));
        let producers: Vec<Producer> = producers.collect::<Result<_, _>>()?;
        if self.warm_up != WarmUp::Nothing {
            for producer in &producers {
                runtime.block_on(producer.warm_up(&[&self.topic]))?;
            }
        }
        runtime.block_on(self.send_warm_up(&producers, senders))?;
        drop(context);
        let counted = Counted::of(&producers);
        Ok(Ready { awaits, runtime, producers, counted })
    }

    /// Records sent before the first one is due; other clients send as many.
    fn warm_up_records(&self) -> u64 {
        match self.warm_up {
            WarmUp::Records => {
                ((self.rate * WARM_UP_SECONDS) as u64).min(self.records / WARM_UP_SHARE)
            }
            WarmUp::Nothing | WarmUp::Connections => 0,
        }
    }

    async fn send_warm_up(&self, producers: &[Producer], senders: &Senders) -> Result<()> {
        let mut values = Values::new(self.size, self.seed, EARLIER);
        let pacer = Pacer::new(Instant::now(), self.rate);
        for index in 0..self.warm_up_records() {
            pacer.wait(senders.first_of_burst(index));
            let Slot { producer, partition } = senders.slot(index);
            let key = self.keys.get(index);
            let record = self.record(key.as_ref(), values.get(index), partition);
            // The flush awaits it, and the load shows whether the cluster fails records.
            drop(producers[producer].send(record).await?);
        }
        flush(producers).await
    }

    fn record<'a>(
        &'a self,
        key: Option<&'a [u8; 8]>,
        value: &'a [u8],
        partition: Option<i32>,
    ) -> Record<'a> {
        let mut record = Record::to(&self.topic).value(value);
        if let Some(key) = key {
            record = record.key(key);
        }
        match partition {
            Some(partition) => record.partition(partition),
            None => record,
        }
    }

    /// Sends from the thread that runs this, which sleeps until records are due: the runtime has others.
    async fn send_all(
        &self,
        sending: &Sending<'_>,
        mut values: Values,
        partitions: i32,
        ended: impl Fn() -> bool,
    ) -> Result<Fates> {
        let start = sending.start;
        let pacer = Pacer::new(start, self.rate);
        let mut sticky = match self.placement {
            Placement::Producer => None,
            Placement::StickyByBatch => Some(StickyByBatch::new(partitions, self.seed)),
        };
        let most = usize::try_from(self.records).unwrap_or(0).min(MOST_AT_ONCE);
        let mut outcomes = Outcomes::new(sending.awaits, &sending.producers[0], start, most);
        for index in 0..self.records {
            let (_, now) = pacer.wait(sending.senders.first_of_burst(index));
            if ended() {
                break;
            }
            let Slot { producer, partition } = sending.senders.slot(index);
            let producer = &sending.producers[producer];
            let key = self.keys.get(index);
            let partition = sticky.as_ref().map(|sticky| sticky.current).or(partition);
            let record = self.record(key.as_ref(), values.get(index), partition);
            // The rate is kept as far as memory allows; a record that waits for memory is late.
            let sent = nanos(now.saturating_duration_since(start));
            outcomes.send(producer, record, sent).await?;
            if let (Some(sticky), Some([earlier @ .., (_, Ok(delivery))])) =
                (&mut sticky, outcomes.kept())
            {
                sticky.sent(delivery, earlier.len(), |index| earlier.get(index)?.1.as_ref().ok());
            }
        }
        if sending.awaits == Awaits::Flush {
            flush(sending.producers).await?;
        }
        Ok(outcomes.fates(start).await)
    }

    async fn count_partitions(&self) -> Result<i32> {
        let config = AdminConfig::new(self.config.get_bootstrap_servers().join(","));
        let admin = Admin::new(config.security(self.config.get_security().clone()))?;
        let mut described = admin.describe_topics(&[&self.topic]).await?;
        let topic = described.pop().map(|(_, topic)| topic).transpose()?;
        Ok(topic.map_or(0, |topic| topic.partitions.len() as i32))
    }
}

/// Producers that are ready to send a load.
#[derive(Debug)]
pub(super) struct Ready {
    awaits: Awaits,
    runtime: Runtime,
    producers: Vec<Producer>,
    /// What they have sent so far.
    counted: Counted,
}

impl Ready {
    /// As [`Load::run_by`], with the load and the senders that these producers are for.
    ///
    /// # Errors
    /// As [`Load::run_by`].
    pub(super) fn run<T: Send>(
        self,
        load: Load,
        senders: Senders,
        script: impl FnOnce(Instant, &[Producer]) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        let Self { awaits, runtime, producers, counted } = self;
        let _context = runtime.enter();
        let values = Values::new(load.size, load.seed, if load.earlier { EARLIER } else { 0 });
        let partitions = match load.placement {
            Placement::Producer => 0,
            Placement::StickyByBatch => runtime.block_on(load.count_partitions())?,
        };
        sleep_precisely();
        let start = Instant::now();
        let cpu = CpuTime::now();
        let (sent, scripted) = thread::scope(|scope| {
            let script = scope.spawn(|| script(start, &producers));
            let ended = || senders.end_with_script && script.is_finished();
            let sending = Sending { producers: &producers, senders: &senders, awaits, start };
            let sent = runtime.block_on(load.send_all(&sending, values, partitions, ended));
            let scripted = script.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (sent, scripted)
        });
        let Fates { all: fates, first_error } = sent?;
        let scripted = scripted?;
        runtime.block_on(flush(&producers))?;
        let cpu = CpuTime::now() - cpu;
        let Counted { requests, brokers } = Counted::of(&producers).since(&counted);
        for producer in producers {
            runtime.block_on(producer.close())?;
        }
        let observation = Observation::default();
        let sent =
            Sent { start, fates, first_error, observation, load, requests, senders, cpu, brokers };
        Ok((sent, scripted))
    }
}

/// What producers have sent, by their metrics.
#[derive(Debug, Default)]
struct Counted {
    /// Produce requests.
    requests: u64,
    /// Acknowledged records, by broker.
    brokers: BTreeMap<i32, u64>,
}

impl Counted {
    fn of(producers: &[Producer]) -> Self {
        let mut counted = Self::default();
        for producer in producers {
            let metrics = producer.metrics();
            counted.requests += metrics.all_brokers().request_total;
            for (id, broker) in &metrics.brokers {
                *counted.brokers.entry(*id).or_default() += broker.record_send_total;
            }
        }
        counted
    }

    fn since(mut self, earlier: &Self) -> Self {
        self.requests -= earlier.requests;
        for (id, records) in &mut self.brokers {
            *records -= earlier.brokers.get(id).copied().unwrap_or(0);
        }
        self
    }
}

/// What sends a load.
struct Sending<'a> {
    producers: &'a [Producer],
    senders: &'a Senders,
    awaits: Awaits,
    start: Instant,
}

async fn flush(producers: &[Producer]) -> Result<()> {
    for producer in producers {
        producer.flush().await?;
    }
    Ok(())
}

/// Length of a run that warms up the brokers, and the largest number of such runs.
const WARM_RUN: Duration = Duration::from_secs(5);
const WARM_RUNS_MAX: u32 = 24;

/// The brokers are warm after this many consecutive runs whose median was at least this share of the best
/// one.
const NO_BETTER: u32 = 3;
const NO_BETTER_SHARE: f64 = 0.9;

/// Repeats a run, which returns its median latency, until the median stops falling.
pub(super) fn until_no_faster(
    told: Told<'_>,
    mut run: impl FnMut() -> Result<Duration>,
) -> Result<()> {
    let (mut best, mut no_better) = (Duration::MAX, 0);
    for number in 1..=WARM_RUNS_MAX {
        told(Event::Rehearsing { run: number, at_most: WARM_RUNS_MAX });
        let median = run()?;
        no_better = if median < best.mul_f64(NO_BETTER_SHARE) { 0 } else { no_better + 1 };
        best = best.min(median);
        if no_better == NO_BETTER {
            break;
        }
    }
    Ok(())
}

/// Length of one rehearsal of a run.
pub(super) const REHEARSAL: Duration = Duration::from_secs(5);

/// Apache Kafka: writes to the topic of a run until that gets no faster.
///
/// Replicas of partitions that are seconds old are still being set up, and brokers that have just started
/// still compile (JIT).
///
/// # Errors
/// As [`Load::run`].
pub(super) fn rehearse(load: &Load, turn: &Turn<'_>) -> Result<()> {
    if turn.setting.cluster != ClusterKind::Apache {
        return Ok(());
    }
    let records = (load.rate * REHEARSAL.as_secs_f64()) as u64;
    let rehearsal =
        Load { records, warmup: 0, warm_up: WarmUp::Connections, earlier: true, ..load.clone() };
    until_no_faster(turn.told, || Ok(rehearsal.clone().run(|_| Ok(()))?.0.median()))
}

/// As [`rehearse`], in a separate topic with this number of partitions, deleted afterwards, with a script that is given
/// the start of each run and the topic: the brokers are warm, and the topic of the run is new. They still are in later
/// turns, so only the first turn rehearses.
///
/// # Errors
/// As [`Load::run`].
pub(super) fn rehearse_elsewhere(
    load: &Load,
    turn: &Turn<'_>,
    partitions: i32,
    script: impl Fn(Instant, &str) -> Result<()> + Sync,
) -> Result<()> {
    if turn.setting.cluster != ClusterKind::Apache || !turn.is_first {
        return Ok(());
    }
    let topic = format!("{}-rehearsal", load.topic);
    turn.testbed.create_topic(
        &topic,
        partitions,
        turn.testbed.broker_ids().len().clamp(1, 3) as i16,
    )?;
    let rehearsal =
        Load { topic: topic.clone(), warmup: 0, warm_up: WarmUp::Connections, ..load.clone() };
    until_no_faster(turn.told, || {
        Ok(rehearsal.clone().run(|start| script(start, &topic))?.0.median())
    })?;
    turn.testbed.delete_topic(&topic)
}

/// Loads brokers that have just started, unmeasured, until they get no faster.
///
/// A Java virtual machine compiles while it serves, and that time says nothing about the client.
///
/// # Errors
/// As [`Load::run`].
pub(super) fn warm_brokers(testbed: &Testbed, seed: u64, told: Told<'_>) -> Result<()> {
    let topic = "lab-warm-up";
    let replicas = testbed.broker_ids().len().clamp(1, 3) as i16;
    testbed.create_topic(topic, 12, replicas)?;
    let load = Load {
        config: ProducerConfig::new(testbed.bootstrap()),
        topic: topic.into(),
        records: (5000.0 * WARM_RUN.as_secs_f64()) as u64,
        warmup: 0,
        rate: 5000.0,
        size: 1000,
        keys: Keys::None,
        placement: Placement::Producer,
        seed,
        warm_up: WarmUp::Connections,
        earlier: false,
        awaits: Awaits::default(),
    };
    until_no_faster(told, || Ok(load.clone().run(|_| Ok(()))?.0.median()))?;
    testbed.delete_topic(topic)
}

impl Sent {
    /// The topic of the load.
    pub(super) fn topic(&self) -> &str {
        &self.load.topic
    }

    /// The producer's settings.
    pub(super) fn config(&self) -> &ProducerConfig {
        &self.load.config
    }

    /// When a record was due, in nanoseconds since the start; without a rate, when it was sent.
    pub(super) fn due(&self, index: usize) -> u64 {
        if self.load.rate.is_infinite() {
            return self.fates.get(index).map_or(0, |fate| fate.sent);
        }
        let first = self.senders.first_of_burst(index as u64);
        nanos(Pacer::new(self.start, self.load.rate).due(first) - self.start)
    }

    /// The figures of the records after the warm-up.
    pub(super) fn sample(&self) -> Sample {
        let warmup = usize::try_from(self.load.warmup).unwrap_or(usize::MAX);
        let probes = self.observation.probes();
        let mut sample = Sample { cpu: self.cpu, probes, ..Sample::default() };
        let mut end = 0;
        for (index, fate) in self.fates.iter().enumerate().skip(warmup) {
            let Some(acknowledged) = fate.acknowledged else {
                sample.errors += 1;
                continue;
            };
            let due = self.due(index);
            sample.records += 1;
            let latency = acknowledged.at.saturating_sub(due);
            sample.latency.record_nanos(latency);
            sample.over_time.record(due, latency);
            let acks = self.load.config.get_acks();
            self.observation.note(index, due, &acknowledged, acks, &mut sample);
            end = end.max(acknowledged.at);
        }
        sample.bytes = sample.records * self.load.size as u64;
        let share = |(&id, &records)| (id, (records, records * self.load.size as u64));
        sample.brokers = self.brokers.iter().map(share).collect();
        sample.elapsed = Duration::from_nanos(end.saturating_sub(self.due(warmup)));
        sample.first_error.clone_from(&self.first_error);
        let failed = self.fates.iter().take(warmup).filter(|fate| fate.acknowledged.is_none());
        sample.errors += failed.count() as u64;
        self.observation.explain(&mut sample);
        sample
    }

    /// Adds a consumer's readings, so that the phases extend to the poll.
    pub(super) fn read_by(&mut self, readings: Readings) {
        self.observation.read_by(readings);
    }

    /// When the last record of all was acknowledged; the start if none was.
    pub(super) fn end(&self) -> Instant {
        let acknowledged = self.fates.iter().filter_map(|fate| fate.acknowledged);
        let last = acknowledged.map(|acknowledged| acknowledged.at).max().unwrap_or(0);
        self.start + Duration::from_nanos(last)
    }

    /// Due time, partition and latency until the acknowledgement, for each acknowledged record after the
    /// warm-up.
    ///
    /// Times are nanoseconds; the due time counts from the start.
    pub(super) fn acknowledged(&self) -> impl Iterator<Item = (u64, i32, u64)> {
        let warmup = usize::try_from(self.load.warmup).unwrap_or(usize::MAX);
        self.fates.iter().enumerate().skip(warmup).filter_map(|(index, fate)| {
            let (due, acknowledged) = (self.due(index), fate.acknowledged?);
            Some((due, acknowledged.partition, acknowledged.at.saturating_sub(due)))
        })
    }

    /// Adds the number of produce requests to the sample, if the client reports it.
    pub(super) fn note_requests(&self, sample: &mut Sample) {
        if self.requests == 0 {
            return;
        }
        sample.note("requests", Figure::Total(self.requests as f64));
    }

    /// The median latency of the records after the warm-up.
    pub(super) fn median(&self) -> Duration {
        self.sample().latency.quantile(0.5)
    }

    /// See [`longest_silence`].
    pub(super) fn longest_silence(&self, from: u64) -> u64 {
        longest_silence(&self.fates, from)
    }

    /// Acknowledged bytes of values, by partition.
    pub(super) fn bytes_by_partition(&self) -> BTreeMap<i32, u64> {
        let mut bytes = BTreeMap::new();
        for acknowledged in self.fates.iter().filter_map(|fate| fate.acknowledged) {
            *bytes.entry(acknowledged.partition).or_default() += self.load.size as u64;
        }
        bytes
    }
}

/// The longest time without an acknowledgement, of those that ended after `from`. Nanoseconds; `from` counts
/// from the start.
pub(super) fn longest_silence(fates: &[Fate], from: u64) -> u64 {
    let acknowledged = fates.iter().filter_map(|fate| fate.acknowledged);
    let mut times: Vec<u64> = acknowledged.map(|acknowledged| acknowledged.at).collect();
    times.sort_unstable();
    let pairs = times.windows(2).filter(|pair| pair[1] > from);
    pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

/// See [`Placement::StickyByBatch`].
pub(super) struct StickyByBatch {
    /// Partition of the next record.
    pub(super) current: i32,
    partitions: i32,
    /// Index of the last record of each partition.
    last: BTreeMap<i32, usize>,
    random: SmallRng,
}

impl StickyByBatch {
    pub(super) fn new(partitions: i32, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let current = random.random_range(0..partitions.max(1));
        Self { current, partitions, last: BTreeMap::new(), random }
    }

    /// Records the partition of the record with this index. `earlier` returns an earlier delivery by its
    /// index; `None` if it was not sent or its batch is closed.
    pub(super) fn sent<'a>(
        &mut self,
        delivery: &Delivery,
        index: usize,
        earlier: impl FnOnce(usize) -> Option<&'a Delivery>,
    ) {
        let last = self.last.insert(self.current, index).and_then(earlier);
        let new_batch = !last.is_some_and(|last| last.shares_batch_with(delivery));
        if new_batch && self.partitions > 1 {
            let step = self.random.random_range(1..self.partitions);
            self.current = (self.current + step) % self.partitions;
        }
    }
}

/// Values: the record's number, then letters.
struct Values {
    first: u64,
    letters: Letters,
    value: Vec<u8>,
}

impl Values {
    fn new(size: usize, seed: u64, first: u64) -> Self {
        let rest = size.saturating_sub(NUMBER);
        Self { first, letters: Letters::new(rest, seed), value: vec![0; NUMBER + rest] }
    }

    fn get(&mut self, index: u64) -> &[u8] {
        let (number, rest) = self.value.split_at_mut(NUMBER);
        number.copy_from_slice(&(self.first + index).to_be_bytes());
        rest.copy_from_slice(self.letters.get(index));
        &self.value
    }
}

/// The number of the record that has this value.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*value.first_chunk::<NUMBER>()?))
}

/// Sleeps until this long after `start`.
pub(super) fn sleep_until(start: Instant, after: Duration) {
    thread::sleep((start + after).saturating_duration_since(Instant::now()));
}

/// Milliseconds as a figure that keeps the largest value over all turns.
pub(super) fn worst_ms(nanos: u64) -> Figure {
    Figure::Worst(nanos as f64 / 1e6)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Adds properties to the settings of a producer.
pub(super) fn with_properties(
    mut config: ProducerConfig,
    properties: &[(&str, impl AsRef<str>)],
) -> Result<ProducerConfig> {
    for (name, value) in properties {
        config.set(name, value.as_ref()).map_err(Error::from)?;
    }
    Ok(config)
}
