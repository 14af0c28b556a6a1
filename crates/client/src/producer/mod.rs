//! The producer: records in, acknowledgements out.
//!
//! The way of a record: [`Producer::send`] finds the topic and picks the partition without a lock, encodes the
//! record into the partition's open batch under that partition's lock alone, and, when the batch may leave, hands
//! the partition to the lane of its leader. If the lane's socket is idle, the caller writes the request itself;
//! otherwise the lane's driver does. The driver reads the answers and resolves one shared result per batch.
//!
//! Lock order, outermost first: metadata writer, lane link, lane work, partition. The append path holds one of
//! them at a time.

mod awaited;
#[cfg(test)]
#[path = "awaited/tests.rs"]
mod awaited_tests;
mod deadlines;
mod delivery;
mod demand;
mod door;
mod driver;
mod identity;
mod interceptor;
mod lane;
mod memory;
mod partition;
pub(crate) mod partitioner;
mod renewal;
mod routing;
mod schedule;
mod settle;
mod shared;
mod standing;
mod topic;
mod trace;
mod transaction;
mod turnstile;
mod waiting;

/// Synchronisation of [`awaited`], [`demand`], [`door`], [`schedule`] and [`turnstile`]. Their loom tests replace it.
mod sync {
    pub(super) use std::sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering},
    };

    pub(super) use parking_lot::{Mutex, MutexGuard};
    pub(super) use tokio::sync::Notify;
}

use std::{sync::Arc, time::Duration};

use curtail_net::Env;
use curtail_proto::{
    accumulator::{PartitionQueue, Placed, Readiness},
    later::Later,
    plant::{Plant, planted},
};
use curtail_wire::records::{RecordData, encoded_len_bound};
use tokio::time::{Instant, timeout, timeout_at};

use self::{
    delivery::Completion,
    interceptor::Interception,
    memory::{NOWHERE, Reservation},
    partition::{Partition, PartitionState, Place},
    shared::Shared,
    topic::{Choice, TopicState},
};
pub use self::{
    delivery::{Delivery, Timing},
    interceptor::{Interceptors, OutgoingHeader, OutgoingRecord, ProducerInterceptor},
    partitioner::{Partitioner, RoundRobinPartitioner, TopicPartitions},
    routing::RoutingMetrics,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata, Transaction, TransactionalProducer},
};
use crate::{
    ConfigError, Error, ProducerConfig, ProducerMetrics, Record, Result, metrics::ProducerStats,
    runtime::within,
};

/// Sends records to Kafka, in batches, idempotently and in order unless configured otherwise.
///
/// Clones share one producer; it closes, dropping what is not yet acknowledged, when the last one goes. Call
/// [`Producer::close`] or [`Producer::flush`] first.
///
/// ```no_run
/// # async fn example() -> curtail::Result<()> {
/// use curtail::{Producer, ProducerConfig, Record};
///
/// let producer = Producer::new(ProducerConfig::new("localhost:9092"))?;
/// let delivery = producer.send(Record::to("payments").key("account-7").value("42.00")).await?;
/// let written = delivery.await?;
/// println!("partition {} offset {:?}", written.partition, written.offset);
/// producer.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
    _guard: Arc<CloseGuard>,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

/// What one partition has acknowledged since the producer's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionMetrics {
    /// Partition index.
    pub partition: i32,
    /// Records.
    pub records: u64,
    /// Bytes of the batches, as compressed.
    pub bytes: u64,
}

/// Stops the lanes when the last clone of the producer goes.
struct CloseGuard(Arc<Shared>);

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// An attempt to append that needs something first.
enum Blocked {
    /// A new batch, and so memory for it.
    Memory { size: usize, broker: i32 },
    /// The topic's metadata, or the end of the records that wait for it.
    Topic,
}

/// How a record comes to its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entrance {
    /// From the application: only while the topic is open.
    Application,
    /// From those that wait for the topic to open, since this time.
    Waiting(Instant),
}

impl Producer {
    /// A producer in the real world. Nothing is connected before the first send, [`Producer::connect`] or
    /// [`Producer::warm_up`].
    ///
    /// # Errors
    /// [`Error::Config`] for settings that cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(config: ProducerConfig) -> Result<Self> {
        Self::with_env(config, &Env::real())
    }

    /// A producer on a network, clock and randomness of the caller's choosing.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_env(config: ProducerConfig, env: &Env) -> Result<Self> {
        if config.transactional_id.is_some() {
            let text = "transactional.id makes a TransactionalProducer; use that, or leave transactional.id out";
            return Err(ConfigError::Contradiction(text.into()).into());
        }
        Self::start(config, env)
    }

    fn start(config: ProducerConfig, env: &Env) -> Result<Self> {
        config.validate()?;
        let shared = Shared::start(config, env);
        Ok(Self { shared: shared.clone(), _guard: Arc::new(CloseGuard(shared)) })
    }

    /// Connects to one of the bootstrap servers, to fail early and clearly where none can be used. Bounded by
    /// `max.block.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(&self) -> Result<()> {
        let limit = self.shared.config.max_block;
        let connecting = async { timeout(limit, self.shared.metadata.connect_any()).await };
        match within(&self.shared.runtime, connecting).await {
            Ok(connected) => connected.map(drop),
            Err(_) => Err(Error::Unreachable {
                bootstrap: self.shared.config.common.bootstrap_servers.join(",").into(),
                reason: format!("no connection within max.block.ms={}", limit.as_millis()).into(),
            }),
        }
    }

    /// Fetches the topics' metadata, waits until every partition has a leader, connects to the leaders and obtains
    /// the producer id, so that the first record does not wait for any of it. A topic that was created in this
    /// moment, or that the brokers create when asked for it, is waited for. Bounded by `max.block.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe; what has begun goes on.
    pub async fn warm_up(&self, topics: &[&str]) -> Result<()> {
        within(&self.shared.runtime, self.warm_up_here(topics)).await
    }

    async fn warm_up_here(&self, topics: &[&str]) -> Result<()> {
        let limit = self.shared.config.max_block;
        let deadline = Instant::now().later(limit);
        // All of them at once, so that they share requests.
        for topic in topics {
            self.shared.metadata.request_refresh(Some(topic));
        }
        for topic in topics {
            self.shared.topic(topic, deadline).await?;
        }
        match timeout_at(deadline, self.shared.ready_to_send(topics)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Error::Timeout {
                what: "connecting to the leaders (max.block.ms)",
                limit,
                last: None,
            }),
        }
    }

    /// Appends a record to its partition's batch, waiting up to `max.block.ms` for the topic's metadata and for
    /// room in `buffer.memory`. The acknowledgement is awaited on the [`Delivery`].
    ///
    /// Records with a key or an explicit partition keep the order in which `send` was called, within their partition. So do
    /// others, except those of a batch that moved because its partition could not acknowledge: at its new partition it goes
    /// before batches that were begun later, but behind those already sent.
    ///
    /// # Errors
    /// Nothing was sent: the record is too large, the topic or partition does not exist, memory stayed full, or
    /// the producer is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has not appended the record.
    pub async fn send(&self, record: Record<'_>) -> Result<Delivery> {
        if self.shared.config.interceptors.is_empty() {
            return self.send_as_is(record).await;
        }
        // Boxed, so that a send without interceptors stays as small as it is.
        Box::pin(self.send_intercepted(record)).await
    }

    async fn send_intercepted(&self, record: Record<'_>) -> Result<Delivery> {
        let interceptors = &self.shared.config.interceptors;
        let changed = interceptors.on_send(&record);
        let headers = changed.header_list();
        let sent = self.send_as_is(changed.as_record(&headers)).await;
        if let Err(error) = &sent {
            interceptors.on_acknowledgement(&changed.topic, Err(error));
        }
        sent
    }

    async fn send_as_is(&self, record: Record<'_>) -> Result<Delivery> {
        let delivery = match self.try_append(&record)? {
            Ok(delivery) => delivery,
            Err(blocked) => {
                let appended = self.append_when_possible(record, blocked);
                within(&self.shared.runtime, appended).await?
            }
        };
        #[cfg(feature = "plants")]
        if planted(Plant::SendAwaitsAfterAppend) {
            tokio::task::yield_now().await;
        }
        Ok(delivery)
    }

    /// Appends a record without waiting for anything.
    ///
    /// A record whose topic is not known yet is kept until the metadata has come, in order with the other records
    /// of the topic, and fails if that takes longer than `max.block.ms`. Such records hold at most half of
    /// `buffer.memory`. In a transaction nothing is kept: there it is [`Error::IllegalState`].
    ///
    /// # Errors
    /// As [`Producer::send`]; [`Error::BufferFull`] when `buffer.memory` has no room now. To interceptors each of
    /// these is a send that failed. What is wrong with the topic or the partition of a record that is kept, its
    /// [`Delivery`] tells.
    pub fn try_send(&self, record: Record<'_>) -> Result<Delivery> {
        let interceptors = &self.shared.config.interceptors;
        if interceptors.is_empty() {
            return self.try_send_as_is(record);
        }
        let changed = interceptors.on_send(&record);
        let headers = changed.header_list();
        let sent = self.try_send_as_is(changed.as_record(&headers));
        if let Err(error) = &sent {
            interceptors.on_acknowledgement(&changed.topic, Err(error));
        }
        sent
    }

    fn try_send_as_is(&self, record: Record<'_>) -> Result<Delivery> {
        loop {
            let (size, broker) = match self.try_append(&record)? {
                Ok(delivery) => return Ok(delivery),
                Err(Blocked::Topic) => match self.shared.keep_waiting(&record)? {
                    Some(delivery) => return Ok(delivery),
                    None => continue,
                },
                Err(Blocked::Memory { size, broker }) => (size, broker),
            };
            let Some(memory) = self.shared.memory.try_reserve(broker, size) else {
                return Err(self.shared.buffer_full());
            };
            match self.shared.append(&record, Some(memory), Entrance::Application)? {
                Ok(delivery) => return Ok(delivery),
                Err(Blocked::Topic) => {}
                Err(Blocked::Memory { .. }) => return Err(self.shared.buffer_full()),
            }
        }
    }

    /// Sends everything appended so far without lingering and waits until all of it is acknowledged or failed.
    /// Bounded by `delivery.timeout.ms`, like every record.
    ///
    /// # Cancel safety
    /// Cancel safe; what has begun goes on.
    pub async fn flush(&self) -> Result<()> {
        let began = Instant::now();
        for ticket in self.shared.room.tickets() {
            ticket.settled().await;
        }
        for result in self.shared.seal_all() {
            if planted(Plant::FlushEarly) {
                break;
            }
            result.resolved().await;
        }
        ProducerStats::waited(&self.shared.stats.flush_time, began);
        Ok(())
    }

    /// Flushes and closes. Other clones fail with [`Error::Closed`] from here on.
    ///
    /// # Cancel safety
    /// Cancel safe; dropped before it is done, the producer stays open if other clones remain.
    pub async fn close(self) -> Result<()> {
        self.flush().await?;
        self.shared.stop();
        Ok(())
    }

    /// What the producer has measured since it was made. The copy looks at every partition once, for the bytes that
    /// wait there, and takes a few hundred kilobytes at most for each broker.
    ///
    /// ```no_run
    /// # async fn example(producer: curtail::Producer) {
    /// use std::time::Duration;
    ///
    /// let before = producer.metrics();
    /// tokio::time::sleep(Duration::from_secs(10)).await;
    /// for (id, broker) in &producer.metrics().since(&before).brokers {
    ///     let p999 = Duration::from_nanos(broker.request_latency.p999());
    ///     println!("broker {id}: p99.9 {p999:?}, {} requests in flight", broker.requests_in_flight);
    /// }
    /// for metric in producer.metrics().named() {
    ///     println!("{} {} {:?} {}", metric.group, metric.name, metric.tags, metric.value);
    /// }
    /// # }
    /// ```
    pub fn metrics(&self) -> ProducerMetrics {
        self.shared.metrics()
    }

    /// Bytes of `buffer.memory` not in use by batches.
    pub fn available_memory(&self) -> usize {
        self.shared.memory.available()
    }

    /// What each partition of a topic has acknowledged, by partition; empty before the first send to the topic.
    pub fn partition_metrics(&self, topic: &str) -> Vec<PartitionMetrics> {
        let topics = self.shared.topics.load();
        let partitions = topics.get(topic).map_or(&[][..], |topic| topic.current());
        let read = partitions.iter().map(|partition| {
            let (records, bytes) = partition.counts.read();
            PartitionMetrics { partition: partition.index, records, bytes }
        });
        read.collect()
    }

    /// How keyless records were routed.
    pub fn routing_metrics(&self) -> RoutingMetrics {
        self.shared.routing.counters.read()
    }

    /// Number of partitions of a topic, waiting up to `max.block.ms` for its metadata.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn partitions_for(&self, topic: &str) -> Result<usize> {
        let deadline = Instant::now().later(self.shared.config.max_block);
        let known = within(&self.shared.runtime, self.shared.topic(topic, deadline)).await;
        Ok(known?.form.count)
    }

    async fn append_when_possible(
        &self,
        record: Record<'_>,
        mut blocked: Blocked,
    ) -> Result<Delivery> {
        let max_block = self.shared.config.max_block;
        let began = Instant::now();
        let deadline = began.later(max_block);
        let stats = &self.shared.stats;
        loop {
            let memory = match blocked {
                Blocked::Memory { size, broker } => {
                    let memory = &self.shared.memory;
                    let memory = memory.reserve(broker, size, deadline, max_block).await;
                    ProducerStats::waited(&stats.buffer_wait, began);
                    Some(memory.inspect_err(|_| stats.buffer_exhausted.add(1))?)
                }
                Blocked::Topic => {
                    let topic = self.shared.topic(record.topic, deadline).await;
                    ProducerStats::waited(&stats.metadata_wait, began);
                    topic?;
                    None
                }
            };
            match self.shared.append(&record, memory, Entrance::Application)? {
                Ok(delivery) => return Ok(delivery),
                Err(still) => blocked = still,
            }
        }
    }

    fn try_append(&self, record: &Record<'_>) -> Result<std::result::Result<Delivery, Blocked>> {
        self.shared.append(record, None, Entrance::Application)
    }
}

impl Shared {
    /// `buffer.memory` has no room for a call that does not wait.
    fn buffer_full(&self) -> Error {
        self.stats.buffer_exhausted.add(1);
        Error::BufferFull { waited: Duration::ZERO }
    }

    /// The append path. With a reservation it is not blocked by memory; one that turns out unneeded is given back.
    fn append(
        &self,
        record: &Record<'_>,
        mut memory: Option<Reservation>,
        entrance: Entrance,
    ) -> Result<std::result::Result<Delivery, Blocked>> {
        let shared = self;
        let topics = shared.topics.load();
        let Some(topic) = topics.get(record.topic) else { return Ok(Err(Blocked::Topic)) };
        if !topic.door.enter() && entrance == Entrance::Application {
            return Ok(Err(Blocked::Topic));
        }
        let (mut partition, choice) = topic.pick(record, &shared.config)?;
        let data = RecordData {
            key: record.key,
            value: record.value,
            headers: record.headers,
            timestamp: record.timestamp.unwrap_or_else(|| shared.env.wall.now_ms()),
        };
        let size = encoded_len_bound(&data);
        if size > shared.config.max_request_size {
            return Err(Error::RecordTooLarge { size, limit: shared.config.max_request_size });
        }
        let mut tries = if choice == Choice::Sticky { routing::TRIES } else { 0 };
        let mut passed = routing::Passed::default();
        let ends = topic.kept.ends();
        loop {
            let target = Target { topic, partition, choice, may_leave: tries > 0, entrance };
            match target.append(shared, &data, size, &mut memory) {
                Appended::Done(delivery) => {
                    if choice == Choice::Sticky && tries == 0 {
                        routing::keep(shared, topic, partition, ends);
                    }
                    return Ok(Ok(delivery));
                }
                Appended::Blocked(blocked) => return Ok(Err(blocked)),
                Appended::BetterElsewhere
                    if routing::leave(shared, topic, partition, &mut passed) =>
                {
                    tries = tries.saturating_sub(1);
                }
                Appended::BetterElsewhere => tries = 0,
            }
            let current = topic.current().get(topic.sticky.current() as usize);
            if let Some(current) = current.filter(|_| choice == Choice::Sticky) {
                partition = current;
            }
        }
    }
}

/// What one attempt to append came to.
enum Appended {
    Done(Delivery),
    Blocked(Blocked),
    /// Nothing is appended: another partition would do better.
    BetterElsewhere,
}

/// Where a record is to be appended.
struct Target<'a> {
    topic: &'a TopicState,
    partition: &'a Arc<Partition>,
    choice: Choice,
    /// Whether another partition would do as well.
    may_leave: bool,
    entrance: Entrance,
}

impl Target<'_> {
    fn append(
        &self,
        shared: &Shared,
        data: &RecordData<'_>,
        size: usize,
        memory: &mut Option<Reservation>,
    ) -> Appended {
        let partition = self.partition;
        let mut guard = partition.state.lock();
        let state = &mut *guard;
        // Looked at under the lock: whoever marks a partition takes out what was appended before.
        let around = self.may_leave && shared.routing.policy.around_trouble;
        if around && routing::avoids(shared, self.topic, partition, state) {
            return Appended::BetterElsewhere;
        }
        let placed = match state.queue.try_append(&shared.policy, data) {
            Some(placed) => placed,
            None => {
                let now = Instant::now();
                if self.may_leave && routing::is_slow(shared, self.topic, state, now) {
                    return Appended::BetterElsewhere;
                }
                match self.place(shared, state, data, (size, now), memory) {
                    Ok(placed) => placed,
                    Err(appended) => return appended,
                }
            }
        };
        placed.completion.joined(data.timestamp);
        let result = placed.completion.result().clone();
        let delivery = Delivery::new(result, placed.index, data.timestamp);
        let (bytes, readiness) = (placed.bytes as u32, placed.readiness);
        let waits_for_leader = placed.index == 0 && state.lane.is_none();
        if self.choice == Choice::Fixed {
            state.queue.bind();
        }
        if let Entrance::Waiting(since) = self.entrance {
            state.queue.backdate(since.into_std());
            let expires = since.later(shared.config.delivery_timeout).into_std();
            shared.deadlines.announce(expires, state);
        }
        let handover = match (readiness, state.place) {
            (_, Place::Ready) | (Readiness::At(_), Place::Timed) => None,
            (Readiness::Now, _) => {
                state.place = Place::Ready;
                state.lane.clone()
            }
            (Readiness::At(_), Place::Idle) => {
                state.place = Place::Timed;
                state.lane.clone()
            }
        };
        drop(guard);

        if waits_for_leader {
            // The metadata may lack the partition; a lagging broker may have sent it.
            shared.metadata.request_refresh(Some(&partition.topic));
        }
        if let Some(lane) = handover {
            lane.submit(partition, readiness);
        }
        if self.choice == Choice::Sticky {
            let complete = readiness == Readiness::Now;
            let index = partition.index as u32;
            let next = |probe_due| routing::next(shared, self.topic, probe_due);
            self.topic.sticky.sent(index, bytes, complete, next);
        }
        Appended::Done(delivery)
    }

    /// Makes room for the record: in the open batch, or by opening the next one.
    fn place<'s>(
        &self,
        shared: &Shared,
        state: &'s mut PartitionState,
        data: &RecordData<'_>,
        (size, now): (usize, Instant),
        memory: &mut Option<Reservation>,
    ) -> std::result::Result<Placed<'s, Completion>, Appended> {
        let broker = state.account();
        if grow(shared, &mut state.queue, data, broker).is_none() {
            let memory = self.memory_for(shared, broker, size, memory)?;
            let interception = shared.outcomes.clone().map(Interception::new);
            let result = state.new_result(self.partition, &shared.awake);
            let completion = Completion::new(result, memory, interception);
            let buffer = shared.memory.buffer();
            return Ok(state.queue.open(&shared.policy, data, buffer, completion, now.into_std()));
        }
        // Room has just been made for it.
        state.queue.try_append(&shared.policy, data).ok_or(Appended::BetterElsewhere)
    }

    /// Memory for a new batch: what the caller has waited for, or what there is.
    fn memory_for(
        &self,
        shared: &Shared,
        broker: i32,
        size: usize,
        reserved: &mut Option<Reservation>,
    ) -> std::result::Result<Reservation, Appended> {
        if let Some(mut memory) = reserved.take() {
            memory.charge_to(broker);
            return Ok(memory);
        }
        match (shared.memory.try_reserve(broker, size), self.choice) {
            (Some(memory), _) => Ok(memory),
            (None, _) if self.may_leave => Err(Appended::BetterElsewhere),
            // Whichever broker has room first will do.
            (None, Choice::Sticky) => {
                Err(Appended::Blocked(Blocked::Memory { size, broker: NOWHERE }))
            }
            (None, Choice::Fixed) => Err(Appended::Blocked(Blocked::Memory { size, broker })),
        }
    }
}

/// Makes room in the open batch, if it waits anyway and there is memory for it.
fn grow(
    shared: &Shared,
    queue: &mut PartitionQueue<Completion>,
    record: &RecordData<'_>,
    broker: i32,
) -> Option<()> {
    let growth = queue.growth(&shared.policy, record)?;
    let memory = shared.memory.try_reserve_exactly(broker, growth.more)?;
    let (former, completion) = queue.grow(growth, shared.memory.buffer_of(growth.room))?;
    completion.hold(memory);
    shared.memory.keep(former);
    Some(())
}
