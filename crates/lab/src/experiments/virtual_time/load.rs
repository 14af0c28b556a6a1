//! The producers of a workload.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use curtail::{Delivery, Error as ClientError, Producer, Record, config::Acks};
use curtail_cluster::ClusterHandle;
use curtail_sim::world::Handle;
use tokio::time::Instant;

use super::TOPIC;
use crate::{
    experiments::{
        Keys, Placement, Sample, SentTo, Workload,
        head_of_line::Places,
        load::{Acknowledged, Fate, Senders, Slot, StickyByBatch, nanos},
        phases::{Inside, Observation},
    },
    perf::Result,
};

/// State that all producers share.
pub(super) struct Load {
    handle: Handle,
    /// Due time of the first record, in simulated time and in tokio's.
    start: Duration,
    start_instant: Instant,
    /// Records of the workload that one sent record stands for.
    bundle: u64,
    /// Records of the workload, if the load is not ended earlier.
    planned: u64,
    /// Number of records sent.
    records: AtomicU64,
    warmup: u64,
    rate: Option<f64>,
    burst: u64,
    acks: Acks,
    size: usize,
    senders: Senders,
    keys: Keys,
    placement: Placement,
    partitions: i32,
}

/// Outcomes of the records of one producer.
#[derive(Default)]
pub(super) struct Sent {
    fates: Vec<(u64, Fate)>,
    first_error: Option<String>,
    requests: u64,
    /// Records acknowledged by each broker.
    brokers: BTreeMap<i32, u64>,
}

/// Outcomes of all records, by number.
pub(super) struct Played {
    pub(super) fates: Vec<Fate>,
    first_error: Option<String>,
    /// Produce requests sent.
    pub(super) requests: u64,
    /// Records acknowledged by each broker.
    pub(super) brokers: BTreeMap<i32, u64>,
}

impl Played {
    pub(super) fn new(records: u64) -> Self {
        let none = Fate { sent: 0, acknowledged: None };
        let fates = vec![none; usize::try_from(records).unwrap_or(0)];
        Self { fates, first_error: None, requests: 0, brokers: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, sent: Sent) {
        for (number, fate) in sent.fates {
            self.fates[number as usize] = fate;
        }
        self.first_error = self.first_error.take().or(sent.first_error);
        self.requests += sent.requests;
        for (broker, records) in sent.brokers {
            *self.brokers.entry(broker).or_default() += records;
        }
    }
}

impl Load {
    /// Call it inside the simulation, `start` before the first record is due.
    pub(super) fn new(
        workload: &Workload,
        acks: Acks,
        cluster: &ClusterHandle,
        handle: Handle,
        start: Duration,
    ) -> Result<Self> {
        let ahead = start.saturating_sub(handle.now());
        let bundle = u64::from(workload.bundle.max(1));
        Ok(Self {
            handle,
            start,
            start_instant: Instant::now() + ahead,
            bundle,
            planned: workload.records,
            records: AtomicU64::new(workload.records.div_ceil(bundle)),
            warmup: workload.warmup,
            rate: workload.rate,
            burst: workload.burst.max(1),
            acks,
            size: workload.size,
            senders: senders(workload, cluster)?,
            keys: workload.keys,
            placement: workload.placement,
            partitions: workload.partitions,
        })
    }

    /// Numbers of the records of one producer.
    fn numbers_of(&self, producer: usize) -> impl Iterator<Item = u64> + use<> {
        let slots = &self.senders.slots;
        let length = slots.len() as u64;
        let own = (0..).zip(slots).filter(|(_, slot)| slot.producer == producer);
        let own: Vec<u64> = own.map(|(turn, _)| turn).collect();
        let count = own.len() as u64;
        (0..).map_while(move |index: u64| {
            let turn = own[index.checked_rem(count)? as usize];
            Some(index / count * length + turn)
        })
    }

    /// Number of records to send.
    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Ends the load: only records that are due by now are still sent.
    pub(super) fn end(&self) {
        let now = self.handle.now();
        let due = (0..self.records()).take_while(|number| self.leaves(*number) <= now).count();
        self.records.store(due as u64, Ordering::Relaxed);
    }

    /// Waits until a record is due; returns `false` if the load has ended before.
    async fn comes(&self, number: u64) -> bool {
        if number < self.records() {
            self.handle.until(self.leaves(number)).await;
        }
        number < self.records()
    }

    /// Due time of the first record on tokio's clock.
    pub(super) fn start(&self) -> std::time::Instant {
        self.start_instant.into_std()
    }

    /// Due time of a record of the workload, in nanoseconds since the start; 0 without a rate.
    fn due(&self, record: u64) -> u64 {
        let first = record - record % self.burst;
        self.rate.map_or(0, |rate| (first as f64 * 1e9 / rate) as u64)
    }

    /// Send time of a record: when the last record that it stands for is due.
    fn leaves(&self, number: u64) -> Duration {
        let last = (number * self.bundle + self.bundle - 1).min(self.planned - 1);
        self.start + Duration::from_nanos(self.due(last))
    }

    fn since_start(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.start_instant))
    }

    /// Due time, partition and latency until the acknowledgement, for each acknowledged record after the
    /// warm-up.
    ///
    /// Times are nanoseconds; the due time counts from the start.
    pub(super) fn acknowledged(&self, played: &Played) -> impl Iterator<Item = (u64, i32, u64)> {
        let warmup = usize::try_from(self.warmup / self.bundle).unwrap_or(usize::MAX);
        (0..).zip(&played.fates).skip(warmup).filter_map(|(number, fate)| {
            let (due, acknowledged) = (self.due(number * self.bundle), fate.acknowledged?);
            Some((due, acknowledged.partition, acknowledged.at.saturating_sub(due)))
        })
    }

    /// Phase timestamps taken inside the brokers.
    pub(super) fn seen(&self, inside: Inside) -> Observation {
        inside.end(self.start())
    }

    /// The figures of the records after the warm-up.
    pub(super) fn sample(&self, played: &Played, seen: &Observation) -> Sample {
        let mut sample = Sample::default();
        let mut end = 0;
        for record in 0..(self.records() * self.bundle).min(self.planned) {
            let fate = &played.fates[(record / self.bundle) as usize];
            let Some(acknowledged) = fate.acknowledged else {
                sample.errors += 1;
                continue;
            };
            if record < self.warmup {
                continue;
            }
            let due = if self.rate.is_some() { self.due(record) } else { fate.sent };
            sample.records += 1;
            let latency = acknowledged.at.saturating_sub(due);
            sample.latency.record_nanos(latency);
            sample.over_time.record(due, latency);
            seen.note((record / self.bundle) as usize, due, &acknowledged, self.acks, &mut sample);
            end = end.max(acknowledged.at);
        }
        sample.bytes = sample.records * self.size as u64;
        sample.elapsed = Duration::from_nanos(end.saturating_sub(self.due(self.warmup)));
        sample.first_error.clone_from(&played.first_error);
        sample
    }
}

/// Whether a broker has a replica of a partition. Valid only while all replicas are in sync.
pub(super) fn has_copy(cluster: &ClusterHandle, broker: i32, partition: i32) -> bool {
    cluster.isr(TOPIC, partition).is_some_and(|in_sync| in_sync.contains(&broker))
}

/// Producer and partition of each record.
fn senders(workload: &Workload, cluster: &ClusterHandle) -> Result<Senders> {
    if let SentTo::Beside { follower, one_of, apart } = workload.sent_to {
        let copies = (0..workload.partitions).filter_map(|partition| {
            let (leader, _) = cluster.leader(TOPIC, partition)?;
            Some((partition, leader, cluster.isr(TOPIC, partition)?))
        });
        return Ok(Places::find(copies, follower)?.senders(one_of, apart));
    }
    let producers = workload.producers.max(1) as usize;
    let in_turn = in_turn(workload, cluster);
    if in_turn.is_empty() {
        return Ok(Senders::producers(producers));
    }
    let slots = (0..producers * in_turn.len()).map(|turn| Slot {
        producer: turn % producers,
        partition: Some(in_turn[turn % in_turn.len()]),
    });
    Ok(Senders { slots: slots.collect(), ..Senders::default() })
}

/// Target partitions in turn; empty if keys and placement decide.
fn in_turn(workload: &Workload, cluster: &ClusterHandle) -> Vec<i32> {
    let leads =
        |broker, partition| cluster.leader(TOPIC, partition).is_some_and(|(id, _)| id == broker);
    let has = |broker, partition| has_copy(cluster, broker, partition);
    let sent_to = |partition: &i32| match workload.sent_to {
        SentTo::All | SentTo::Beside { .. } => false,
        SentTo::Each => true,
        SentTo::NotLedBy(broker) => !leads(broker, *partition),
        SentTo::WithoutOrLedBy(broker) => !has(broker, *partition) || leads(broker, *partition),
    };
    (0..workload.partitions).filter(sent_to).collect()
}

/// A producer and its unsettled records.
pub(super) struct Sender {
    load: Arc<Load>,
    producer: Producer,
    number: usize,
    value: Vec<u8>,
    sticky: Option<StickyByBatch>,
    /// Records without an outcome, and records after one without an outcome.
    pending: VecDeque<Pending>,
    /// Number of records that have left `pending`.
    settled: usize,
    sent: Sent,
}

struct Pending {
    number: u64,
    sent: u64,
    delivery: Result<Delivery, ClientError>,
}

impl Sender {
    pub(super) fn new(load: Arc<Load>, producer: Producer, number: usize, seed: u64) -> Self {
        let sticky = (load.placement == Placement::StickyByBatch)
            .then(|| StickyByBatch::new(load.partitions, seed));
        // Zeros take no space on the disks. Without compression the content does not matter.
        let value = vec![0; load.size * load.bundle as usize];
        Self {
            load,
            producer,
            number,
            value,
            sticky,
            pending: VecDeque::new(),
            settled: 0,
            sent: Sent::default(),
        }
    }

    pub(super) async fn run(mut self) -> Result<Sent> {
        let load = Arc::clone(&self.load);
        for number in load.numbers_of(self.number) {
            if !load.comes(number).await {
                break;
            }
            self.send(number).await?;
            self.settle();
        }
        self.producer.flush().await?;
        self.settle();
        let metrics = self.producer.metrics();
        self.sent.requests = metrics.all_brokers().request_total;
        let acknowledged = metrics.brokers.iter().map(|(id, of)| (*id, of.record_send_total));
        self.sent.brokers = acknowledged.collect();
        Ok(self.sent)
    }

    async fn send(&mut self, number: u64) -> Result<()> {
        let Self { load, producer, value, .. } = self;
        value[..8].copy_from_slice(&number.to_be_bytes());
        let key = match load.keys {
            Keys::None => None,
            Keys::Cycle(count) => Some((number % count).to_be_bytes()),
        };
        let mut record = Record::to(TOPIC).value(value);
        if let Some(key) = &key {
            record = record.key(key);
        }
        let Slot { partition, .. } = load.senders.slot(number);
        if let Some(partition) = self.sticky.as_ref().map(|sticky| sticky.current).or(partition) {
            record = record.partition(partition);
        }
        let sent = load.since_start(Instant::now());
        let delivery = match producer.try_send(record) {
            // The rate is kept as far as memory allows; a record that waits for memory is late.
            Err(ClientError::BufferFull { .. } | ClientError::IllegalState(_)) => {
                producer.send(record).await
            }
            other => other,
        };
        if let Err(error @ (ClientError::Closed | ClientError::RecordTooLarge { .. })) = delivery {
            return Err(error.into());
        }
        if let (Some(sticky), Ok(delivery)) = (&mut self.sticky, &delivery) {
            let (pending, settled) = (&self.pending, self.settled);
            // A settled record's batch is closed.
            sticky.sent(delivery, settled + pending.len(), |index| {
                pending.get(index.checked_sub(settled)?)?.delivery.as_ref().ok()
            });
        }
        self.pending.push_back(Pending { number, sent, delivery });
        Ok(())
    }

    /// Takes outcomes in order, up to the first record without one.
    fn settle(&mut self) {
        while let Some(Pending { number, sent, delivery }) = self.pending.pop_front() {
            let outcome = match delivery {
                Err(error) => Err(error),
                Ok(delivery) => match (delivery.outcome(), delivery.timing()) {
                    (None, _) => {
                        let delivery = Ok(delivery);
                        self.pending.push_front(Pending { number, sent, delivery });
                        return;
                    }
                    (Some(outcome), timing) => outcome
                        .and_then(|metadata| Ok((metadata, timing.ok_or(ClientError::Closed)?))),
                },
            };
            let acknowledged = match outcome {
                Ok((metadata, timing)) => Some(Acknowledged {
                    partition: metadata.partition,
                    offset: metadata.offset,
                    written: Some(self.load.since_start(timing.first_written)),
                    at: self.load.since_start(timing.acknowledged),
                }),
                Err(error) => {
                    self.sent.first_error.get_or_insert_with(|| error.report().to_string());
                    None
                }
            };
            self.settled += 1;
            self.sent.fates.push((number, Fate { sent, acknowledged }));
        }
    }
}
