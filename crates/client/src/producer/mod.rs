//! The producer: records in, acknowledgements out.
//!
//! Path of a record: [`Producer::send`] finds the topic and picks the partition without a lock. It encodes the record
//! into the partition's open batch under that partition's lock. A batch that may be sent goes to the lane of
//! the partition's leader. The caller writes the request to an idle socket itself; otherwise the lane's driver writes
//! it. The driver reads the responses and resolves one shared result per batch.
//!
//! Lock order, outermost first: metadata writer, lane link, lane work, partition, then the innermost locks of
//! memory, buffers and interceptors. `docs/DESIGN.md` has the whole table.

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
    path::Gate,
    plant::{Plant, planted},
};
use curtail_wire::records::{RecordData, encoded_len_bound};
use parking_lot::MutexGuard;
use tokio::time::{Instant, timeout, timeout_at};

use self::{
    delivery::Completion,
    interceptor::Interception,
    lane::Lane,
    memory::{NOWHERE, Reservation, Wanted},
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
/// Clones share one producer. When the last clone is dropped, the producer closes and drops unacknowledged records.
/// Call [`Producer::close`] or [`Producer::flush`] first.
///
/// The producer's tasks run on the tokio runtime on which it was made; its calls may be made anywhere. When that runtime
/// ends, the producer closes: records without an acknowledgement fail, and calls return [`Error::Closed`] instead of
/// waiting.
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

/// Acknowledged records of one partition since the producer's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionMetrics {
    /// Partition index.
    pub partition: i32,
    /// Records.
    pub records: u64,
    /// Bytes of the compressed batches.
    pub bytes: u64,
}

/// Stops the lanes when the last clone of the producer is dropped.
struct CloseGuard(Arc<Shared>);

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What an append needs first.
enum Blocked {
    /// Memory for a new batch.
    Memory { size: usize, broker: i32 },
    /// Room in the broker's window.
    Window { size: usize, broker: i32, is_standing: bool, may_move: bool },
    /// The topic's metadata, or the end of the records that wait for it.
    Topic,
}

/// Origin of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entrance {
    /// The application: admitted only while the topic is open.
    Application,
    /// The records that wait for the topic to open, since this time.
    Waiting(Instant),
}

impl Producer {
    /// Creates a producer. Connects to nothing before the first send, [`Producer::connect`] or [`Producer::warm_up`].
    ///
    /// # Errors
    /// [`Error::Config`] for invalid settings.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(config: ProducerConfig) -> Result<Self> {
        Self::with_env(config, &Env::real())
    }

    /// As [`Producer::new`], with the caller's network, clock and randomness.
    ///
    /// # Errors
    /// [`Error::Config`] for invalid settings.
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

    /// Connects to a bootstrap server, to fail early and clearly if none is usable. Limited by `max.block.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(&self) -> Result<()> {
        let limit = self.shared.config.max_block;
        let connecting = async { timeout(limit, self.shared.metadata.connect_any()).await };
        match within(&self.shared.runtime, connecting).await? {
            Ok(connected) => connected.map(drop),
            Err(_) => Err(Error::Unreachable {
                bootstrap: self.shared.config.common.bootstrap_servers.join(",").into(),
                reason: format!("no connection within max.block.ms={}", limit.as_millis()).into(),
            }),
        }
    }

    /// Prepares sends, so that the first record does not wait. Fetches the topics' metadata, waits until every
    /// partition has a leader, connects to the leaders and obtains the producer id. Also waits for a topic that is
    /// being created, or that the brokers create on request. Limited by `max.block.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe; requests in progress continue.
    pub async fn warm_up(&self, topics: &[&str]) -> Result<()> {
        within(&self.shared.runtime, self.warm_up_here(topics)).await?
    }

    async fn warm_up_here(&self, topics: &[&str]) -> Result<()> {
        let limit = self.shared.config.max_block;
        let deadline = Instant::now().later(limit);
        // Requested together, so that they share requests.
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

    /// Appends a record to its partition's batch. Waits up to `max.block.ms` for the topic's metadata and for space
    /// in `buffer.memory`. Also waits while the broker has as many bytes outstanding as it takes in
    /// `curtail.latency.target.ms`; that wait never fails the record. The [`Delivery`] returns the acknowledgement.
    ///
    /// Records with a key or an explicit partition keep the order of the `send` calls within their partition. So do
    /// keyless records, except in a batch that moved because its partition could not acknowledge. At its new
    /// partition that batch precedes batches that were opened later, and follows those already sent.
    /// # Errors
    /// The record is too large, the topic or partition does not exist, memory stayed full, or the producer is closed.
    /// On any error the record was not appended.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has not appended the record.
    pub async fn send(&self, record: Record<'_>) -> Result<Delivery> {
        if self.shared.config.interceptors.is_empty() {
            return self.send_as_is(record).await;
        }
        // Boxed, so that the future of a send without interceptors stays small.
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
            Err(blocked) => self.append_when_possible(record, blocked).await?,
        };
        #[cfg(feature = "plants")]
        if planted(Plant::SendAwaitsAfterAppend) {
            tokio::task::yield_now().await;
        }
        Ok(delivery)
    }

    /// Appends a record without waiting.
    ///
    /// A record of an unknown topic is queued until the metadata arrives, in order with the topic's other records. It
    /// fails after `max.block.ms`. Queued records hold at most half of `buffer.memory`. A transaction queues no
    /// records: there the call is [`Error::IllegalState`].
    ///
    /// # Errors
    /// As [`Producer::send`]; [`Error::BufferFull`] if `buffer.memory` has no space now, or if records have been sent
    /// faster than the broker takes them for a while (`curtail.latency.target.ms`). Interceptors see each of
    /// these as a failed send. For a queued record, the [`Delivery`] reports topic and partition errors.
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
                Err(Blocked::Window { is_standing: true, .. }) => {
                    return Err(self.shared.buffer_full());
                }
                // Memory bounds a burst.
                Err(Blocked::Memory { size, broker } | Blocked::Window { size, broker, .. }) => {
                    (size, broker)
                }
            };
            let Some(memory) = self.shared.memory.try_reserve(broker, size) else {
                return Err(self.shared.buffer_full());
            };
            match self.shared.append(&record, Some(memory), Entrance::Application)? {
                Ok(delivery) => return Ok(delivery),
                Err(Blocked::Topic) => {}
                Err(Blocked::Memory { .. } | Blocked::Window { .. }) => {
                    return Err(self.shared.buffer_full());
                }
            }
        }
    }

    /// Sends all appended records without lingering, and waits until each is acknowledged or failed. Limited by
    /// `delivery.timeout.ms`, like every record.
    ///
    /// # Cancel safety
    /// Cancel safe; requests in progress continue.
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

    /// Flushes and closes the producer. Other clones then fail with [`Error::Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: if dropped early, the producer stays open while other clones exist.
    pub async fn close(self) -> Result<()> {
        self.flush().await?;
        self.shared.stop();
        Ok(())
    }

    /// Returns the metrics since the producer's creation. The copy reads every partition once, for its queued bytes,
    /// and takes up to a few hundred kilobytes per broker.
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

    /// Bytes of `buffer.memory` that no batch uses.
    pub fn available_memory(&self) -> usize {
        self.shared.memory.available()
    }

    /// Acknowledged records of a topic, by partition; empty before the first send to the topic.
    pub fn partition_metrics(&self, topic: &str) -> Vec<PartitionMetrics> {
        let topics = self.shared.topics.load();
        let partitions = topics.get(topic).map_or(&[][..], |topic| topic.current());
        let read = partitions.iter().map(|partition| {
            let (records, bytes) = partition.counts.read();
            PartitionMetrics { partition: partition.index, records, bytes }
        });
        read.collect()
    }

    /// Returns how keyless records were routed.
    pub fn routing_metrics(&self) -> RoutingMetrics {
        self.shared.routing.counters.read()
    }

    /// Returns the number of partitions of a topic. Waits up to `max.block.ms` for its metadata.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn partitions_for(&self, topic: &str) -> Result<usize> {
        let deadline = Instant::now().later(self.shared.config.max_block);
        let known = within(&self.shared.runtime, self.shared.topic(topic, deadline)).await;
        Ok(known??.form.count)
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
        let wanted =
            |broker, size, for_window| Wanted { broker, size, for_window, deadline, max_block };
        loop {
            let memory = match blocked {
                Blocked::Memory { size, broker } => {
                    self.reserve(wanted(broker, size, false), || false).await?
                }
                Blocked::Window { size, broker, may_move, .. } => {
                    let elsewhere = || may_move && routing::has_room(&self.shared, record.topic);
                    self.reserve(wanted(broker, size, true), elsewhere).await?
                }
                Blocked::Topic => {
                    let topic = self.shared.topic(record.topic, deadline);
                    let topic = within(&self.shared.runtime, topic).await?;
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

    /// [`memory::Memory::reserve`], counted.
    async fn reserve(
        &self,
        wanted: Wanted,
        has_room_elsewhere: impl Fn() -> bool,
    ) -> Result<Option<Reservation>> {
        let stats = &self.shared.stats;
        let waits = if wanted.for_window { &stats.window_wait } else { &stats.buffer_wait };
        let began = Instant::now();
        let memory = self.shared.memory.reserve(wanted, has_room_elsewhere);
        let memory = within(&self.shared.runtime, memory).await?;
        ProducerStats::waited(waits, began);
        memory.inspect_err(|_| stats.buffer_exhausted.add(1))
    }

    fn try_append(&self, record: &Record<'_>) -> Result<std::result::Result<Delivery, Blocked>> {
        self.shared.append(record, None, Entrance::Application)
    }
}

impl Shared {
    /// Whether the window of the partition's broker admits a record.
    fn has_room(&self, state: &PartitionState) -> bool {
        let gate = state.gate().filter(|_| !state.is_parked());
        gate.is_none_or(|gate| gate.admits(|| self.age(Instant::now())))
    }

    /// The error of a call that does not wait when `buffer.memory` is full.
    fn buffer_full(&self) -> Error {
        self.stats.buffer_exhausted.add(1);
        Error::BufferFull { waited: Duration::ZERO }
    }

    /// The append path. With a reservation, memory does not block it; an unused reservation is returned.
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
        // A caller that has waited has its room. Records that wait for their topic were accepted before.
        let needs_room = memory.is_none() && entrance == Entrance::Application;
        let mut tries = if choice == Choice::Sticky { routing::TRIES } else { 0 };
        let mut passed = routing::Passed::default();
        let ends = topic.kept.ends();
        loop {
            let may_leave = tries > 0;
            let target = Target { topic, partition, choice, may_leave, entrance, needs_room };
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
                Appended::MovedOn => tries = tries.saturating_sub(1),
            }
            let current = topic.current().get(topic.sticky.current() as usize);
            if let Some(current) = current.filter(|_| choice == Choice::Sticky) {
                partition = current;
            }
        }
    }
}

/// Result of one attempt to append.
enum Appended {
    Done(Delivery),
    Blocked(Blocked),
    /// Not appended: another partition is better.
    BetterElsewhere,
    /// Not appended: it is the turn of another partition.
    MovedOn,
}

/// Target of an append.
struct Target<'a> {
    topic: &'a TopicState,
    partition: &'a Arc<Partition>,
    choice: Choice,
    /// Whether another partition is acceptable.
    may_leave: bool,
    entrance: Entrance,
    /// Whether the record must find room in the window of the partition's broker.
    needs_room: bool,
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
        // Read under the lock: a task that marks a partition moves the records that were appended before.
        let around = self.may_leave && shared.routing.policy.around_trouble;
        if around && routing::avoids(shared, self.topic, partition, state) {
            return Appended::BetterElsewhere;
        }
        if self.needs_room && !shared.has_room(state) {
            return self.finds_no_room(shared, guard, size);
        }
        let is_parked = state.is_parked();
        let placed = match state.queue.try_append(&shared.policy, data) {
            Some(placed) => placed,
            None => {
                let now = Instant::now();
                if self.may_leave && routing::is_slow(shared, self.topic, state, now) {
                    return Appended::BetterElsewhere;
                }
                let bytes = u32::try_from(size).unwrap_or(u32::MAX);
                if self.may_leave && self.ends_turn(shared, state, data, bytes) {
                    self.end_turn(shared, guard, bytes);
                    return Appended::MovedOn;
                }
                match self.place(shared, state, data, (size, now), memory) {
                    Ok(placed) => placed,
                    Err(appended) => return appended,
                }
            }
        };
        placed.completion.joined(data.timestamp, placed.bytes);
        if is_parked && placed.index == 0 {
            placed.completion.set_parked(true);
        }
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
        let handover = hand_over(state, readiness);
        drop(guard);

        if waits_for_leader {
            // The metadata may lack the partition: a lagging broker may have sent it.
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

    /// The window of the partition's broker is full.
    fn finds_no_room(
        &self,
        shared: &Shared,
        state: MutexGuard<'_, PartitionState>,
        size: usize,
    ) -> Appended {
        if self.may_leave && routing::admits(shared, self.topic) {
            return Appended::BetterElsewhere;
        }
        let is_standing = state.gate().is_some_and(Gate::is_standing);
        let (broker, lane) = (state.account(), state.lane.clone());
        drop(state);
        if let Some(lane) = lane {
            lane.hurry();
        }
        let may_move = self.choice == Choice::Sticky;
        Appended::Blocked(Blocked::Window { size, broker, is_standing, may_move })
    }

    /// Whether a record that fits no open batch goes to another partition: this one has had its share, and its batch
    /// does not grow.
    fn ends_turn(
        &self,
        shared: &Shared,
        state: &PartitionState,
        data: &RecordData<'_>,
        bytes: u32,
    ) -> bool {
        self.topic.sticky.ends_before(self.partition.index as u32, bytes)
            && state.queue.growth(&shared.policy, data).is_none()
    }

    /// Sends the open batch and moves the choice on.
    fn end_turn(&self, shared: &Shared, mut state: MutexGuard<'_, PartitionState>, bytes: u32) {
        state.queue.seal_now(&shared.policy);
        let is_ready = !state.queue.is_drained();
        let lane = if is_ready { hand_over(&mut state, Readiness::Now) } else { None };
        drop(state);
        if let Some(lane) = lane {
            lane.submit(self.partition, Readiness::Now);
        }
        let next = |probe_due| routing::next(shared, self.topic, probe_due);
        self.topic.sticky.end(self.partition.index as u32, bytes, next);
    }

    /// Makes room for the record: in the open batch, or in a new one.
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
        // The batch has just grown for it.
        state.queue.try_append(&shared.policy, data).ok_or(Appended::BetterElsewhere)
    }

    /// Returns memory for a new batch: the caller's reservation, or free memory.
    fn memory_for(
        &self,
        shared: &Shared,
        broker: i32,
        size: usize,
        reserved: &mut Option<Reservation>,
    ) -> std::result::Result<Reservation, Appended> {
        if let Some(mut memory) = reserved.take() {
            memory.charge_to(broker);
            memory.begin_batch();
            return Ok(memory);
        }
        match (shared.memory.try_reserve(broker, size), self.choice) {
            (Some(memory), _) => Ok(memory),
            (None, _) if self.may_leave => Err(Appended::BetterElsewhere),
            // The first broker with free memory will do.
            (None, Choice::Sticky) => {
                Err(Appended::Blocked(Blocked::Memory { size, broker: NOWHERE }))
            }
            (None, Choice::Fixed) => Err(Appended::Blocked(Blocked::Memory { size, broker })),
        }
    }
}

/// Determines the partition's place in its lane. Returns the lane if it must be told.
fn hand_over(state: &mut PartitionState, readiness: Readiness) -> Option<Arc<Lane>> {
    let place = match (readiness, state.place) {
        (_, Place::Ready) | (Readiness::At(_), Place::Timed) => return None,
        (Readiness::Now, _) => Place::Ready,
        (Readiness::At(_), Place::Idle) => Place::Timed,
    };
    state.place = place;
    state.lane.clone()
}

/// Makes room in the open batch, if it waits anyway and there is memory.
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
