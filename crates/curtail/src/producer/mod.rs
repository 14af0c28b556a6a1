//! Sending records: deliveries, outcomes by tag, partitioners, interceptors and routing metrics.
//!
//! [`Producer`] sends single records and batches them; [`crate::transaction`] has the transactional producer.

// Path of a record: `Producer::send` finds the topic and picks the partition without a lock. It encodes the record into
// the partition's open batch under that partition's lock (`append`). A batch that may be sent goes to the lane of the
// partition's leader. The caller writes the request to an idle socket itself; otherwise the lane's driver writes it. The
// driver reads the responses and resolves one shared result per batch.
//
// Lock order, outermost first: metadata writer, lane link, partition, then the innermost locks of lane inbox, memory,
// buffers and interceptors. `docs/DESIGN.md` has the whole table.

mod append;
mod awaited;
#[cfg(test)]
#[path = "awaited/tests.rs"]
mod awaited_tests;
mod claim;
mod completions;
#[cfg(test)]
#[path = "completions/tests.rs"]
mod completions_tests;
mod deadlines;
mod delivery;
mod demand;
mod door;
mod driver;
mod identity;
mod interceptor;
mod lane;
mod lanes;
mod mailbox;
mod memory;
mod partition;
pub(crate) mod partitioner;
mod ranked;
mod renewal;
mod routing;
mod schedule;
mod settle;
mod shared;
mod standing;
mod topic;
mod trace;
pub(crate) mod transaction;
mod turnstile;
mod waiting;
mod worklist;

/// Synchronisation of [`awaited`], [`demand`], [`door`], [`mailbox`], [`schedule`] and [`turnstile`]. Their loom tests
/// replace it.
mod sync {
    pub(super) use std::sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering},
    };

    pub(super) use parking_lot::Mutex;
    pub(super) use tokio::sync::Notify;

    use super::ranked::{INBOX, LINK, Ranked, RankedGuard};

    pub(super) type LinkLock<T> = Ranked<T, LINK>;
    pub(super) type LinkGuard<'a, T> = RankedGuard<'a, T, LINK>;
    pub(super) type InboxLock<T> = Ranked<T, INBOX>;
}

use std::{sync::Arc, time::Duration};

use curtail_net::Env;
use curtail_proto::{
    later::Later,
    plant::{Plant, planted},
};
use curtail_wire::Uuid;
use tokio::time::{Instant, timeout, timeout_at};

use self::{
    append::{Blocked, Entrance},
    claim::{ByDelivery, ByTag, Claim},
    memory::{Reservation, Wanted},
    shared::Shared,
};
pub use self::{
    completions::{CompletionRun, CompletionSink, Completions},
    delivery::{Delivery, Timing},
    interceptor::{Interceptors, OutgoingHeader, OutgoingRecord, ProducerInterceptor},
    partitioner::{Partitioner, RoundRobinPartitioner, TopicPartitions},
    routing::RoutingMetrics,
};
use crate::{
    ConfigError, Error, ProducerConfig, Record, Result,
    metrics::{ProducerMetrics, ProducerStats},
    runtime::within,
    span::Span,
};

/// Sends records to Kafka, in batches, idempotently and in order unless configured otherwise.
///
/// Clones share one producer. When the last clone is dropped, the producer closes and drops unacknowledged records.
/// Call [`Producer::close`] or [`Producer::flush`] first.
///
/// The producer's tasks run on the tokio runtime on which it was made; its calls may be made anywhere. When that runtime
/// ends, the producer closes: records without an acknowledgement fail, and calls return [`Error::Closed`] instead of
/// waiting. With `curtail.io.thread` the tasks run on a thread of the process instead, which does not end.
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

/// Why a record is not appended at once.
enum Detour {
    Blocked(Blocked),
    /// They see the record first.
    Interceptors,
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

impl Producer {
    /// Creates a producer. Connects to nothing before the first send, [`Producer::connect`] or [`Producer::warm_up`].
    ///
    /// # Errors
    /// [`Error::Config`] for invalid settings. [`Error::Thread`] if `curtail.io.thread` is set and no thread can be started.
    ///
    /// # Panics
    /// Outside a tokio runtime, unless `curtail.io.thread` is set.
    pub fn new(config: ProducerConfig) -> Result<Self> {
        Self::with_env(config, &Env::real())
    }

    /// As [`Producer::new`], with the caller's network, clock and randomness.
    ///
    /// # Errors
    /// [`Error::Config`] for invalid settings. [`Error::Thread`] if `curtail.io.thread` is set and no thread can be started.
    ///
    /// # Panics
    /// Outside a tokio runtime, unless `curtail.io.thread` is set.
    pub fn with_env(config: ProducerConfig, env: &Env) -> Result<Self> {
        if config.transactional_id.is_some() {
            let text = "transactional.id makes a TransactionalProducer; use that, or leave transactional.id out";
            return Err(ConfigError::Contradiction(text.into()).into());
        }
        Self::start(config, env)
    }

    fn start(config: ProducerConfig, env: &Env) -> Result<Self> {
        config.validate()?;
        let shared = Shared::start(config, env)?;
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
                last: Some(Arc::new(Error::Timeout {
                    what: "a connection (max.block.ms)",
                    limit,
                    last: None,
                })),
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
        let span = Span::send(&self.shared.config.common.client_id, &record);
        // The usual way has no future inside this one: each would cost instructions for every record.
        let sent = match self.append_now(&record, ByDelivery) {
            Ok(Ok(delivery)) => Ok(delivery),
            Ok(Err(detour)) => span.wrap(self.take(detour, record, ByDelivery)).await,
            Err(error) => Err(error),
        };
        span.end_of(&sent);
        let delivery = sent?.with_span(span);
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
        let span = Span::send(&self.shared.config.common.client_id, &record);
        let sent = span.within(|| self.try_send_claimed(&record, ByDelivery));
        span.end_of(&sent);
        Ok(sent?.with_span(span))
    }

    /// Creates a sink for [`Producer::send_tagged`], and the receiver of its outcomes. A program that sends many records
    /// a second pays less CPU time for an outcome by batch than for a [`Delivery`] by record.
    ///
    /// ```no_run
    /// # async fn example(producer: curtail::Producer, payments: Vec<(u64, String)>) -> curtail::Result<()> {
    /// use curtail::Record;
    ///
    /// let (sink, mut completions) = producer.completions();
    /// let watching = tokio::spawn(async move {
    ///     while let Some(run) = completions.next().await {
    ///         match run.outcome() {
    ///             Ok(batch) => println!("partition {}: {} payments", batch.partition, run.tags().len()),
    ///             Err(error) => eprintln!("payments {:?} failed: {}", run.tags(), error.report()),
    ///         }
    ///     }
    /// });
    /// for (id, amount) in &payments {
    ///     producer.send_tagged(Record::to("payments").value(amount), *id, &sink).await?;
    /// }
    /// drop(sink);
    /// producer.flush().await?;
    /// watching.await.expect("the task does not panic");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "without the receiver, outcomes are discarded"]
    pub fn completions(&self) -> (CompletionSink, Completions) {
        completions::pair()
    }

    /// Appends a record, as [`Producer::send`]. Its outcome goes to the receiver of `sink`, with `tag`. Tags need not be
    /// unique; the producer does not interpret them.
    ///
    /// # Errors
    /// As [`Producer::send`]. On any error the record was not appended, and the sink receives nothing.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has not appended the record.
    pub async fn send_tagged(
        &self,
        record: Record<'_>,
        tag: u64,
        sink: &CompletionSink,
    ) -> Result<()> {
        let claim = ByTag { sink, tag };
        match self.append_now(&record, claim)? {
            Ok(()) => Ok(()),
            Err(detour) => self.take(detour, record, claim).await,
        }
    }

    /// Appends a record without waiting, as [`Producer::try_send`]. Its outcome goes to the receiver of `sink`, with
    /// `tag`.
    ///
    /// # Errors
    /// As [`Producer::try_send`]. On any error the sink receives nothing.
    pub fn try_send_tagged(
        &self,
        record: Record<'_>,
        tag: u64,
        sink: &CompletionSink,
    ) -> Result<()> {
        self.try_send_claimed(&record, ByTag { sink, tag })
    }

    /// Appends a record at once, if nothing is in the way.
    fn append_now<C: Claim>(
        &self,
        record: &Record<'_>,
        claim: C,
    ) -> Result<std::result::Result<C::Receipt, Detour>> {
        if !self.shared.config.interceptors.is_empty() {
            return Ok(Err(Detour::Interceptors));
        }
        Ok(self.try_append(record, claim)?.map_err(Detour::Blocked))
    }

    async fn take<C: Claim>(
        &self,
        detour: Detour,
        record: Record<'_>,
        claim: C,
    ) -> Result<C::Receipt> {
        match detour {
            Detour::Blocked(blocked) => self.append_when_possible(record, claim, blocked).await,
            // Boxed, so that the future of a send without interceptors stays small.
            Detour::Interceptors => Box::pin(self.send_intercepted(record, claim)).await,
        }
    }

    async fn send_intercepted<C: Claim>(&self, record: Record<'_>, claim: C) -> Result<C::Receipt> {
        let interceptors = &self.shared.config.interceptors;
        let changed = interceptors.on_send(&record);
        let headers = changed.header_list();
        let record = changed.as_record(&headers);
        let sent = match self.try_append(&record, claim) {
            Ok(Err(blocked)) => self.append_when_possible(record, claim, blocked).await,
            Ok(Ok(receipt)) => Ok(receipt),
            Err(error) => Err(error),
        };
        if let Err(error) = &sent {
            interceptors.on_acknowledgement(&changed.topic, Err(error));
        }
        sent
    }

    fn try_send_claimed<C: Claim>(&self, record: &Record<'_>, claim: C) -> Result<C::Receipt> {
        let interceptors = &self.shared.config.interceptors;
        if interceptors.is_empty() {
            return self.try_send_as_is(record, claim);
        }
        let changed = interceptors.on_send(record);
        let headers = changed.header_list();
        let sent = self.try_send_as_is(&changed.as_record(&headers), claim);
        if let Err(error) = &sent {
            interceptors.on_acknowledgement(&changed.topic, Err(error));
        }
        sent
    }

    fn try_send_as_is<C: Claim>(&self, record: &Record<'_>, claim: C) -> Result<C::Receipt> {
        loop {
            let (size, broker) = match self.try_append(record, claim)? {
                Ok(receipt) => return Ok(receipt),
                Err(Blocked::Topic) => match self.shared.keep_waiting(record, claim)? {
                    Some(receipt) => return Ok(receipt),
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
            match self.shared.append(record, claim, Some(memory), Entrance::Application)? {
                Ok(receipt) => return Ok(receipt),
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
    /// If brokers have asked for the producer's metrics (`enable.metrics.push`), it sends them a last time, which takes at
    /// most a second.
    ///
    /// # Cancel safety
    /// Cancel safe: if dropped early, the producer stays open while other clones exist.
    pub async fn close(self) -> Result<()> {
        self.flush().await?;
        self.shared.metadata.close_telemetry(Duration::MAX).await;
        self.shared.stop();
        Ok(())
    }

    /// Returns the id that a broker has assigned to this producer for its metrics (KIP-714). Waits for it up to `timeout`,
    /// and connects if the producer has not connected yet.
    ///
    /// # Errors
    /// [`Error::IllegalState`] with `enable.metrics.push=false`. [`Error::Timeout`] if no broker has assigned an id: those
    /// of Apache Kafka do so with a plugin that receives metrics.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[doc(alias = "clientInstanceId")]
    pub async fn client_instance_id(&self, timeout: Duration) -> Result<Uuid> {
        self.shared.metadata.client_instance_id(timeout).await
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

    /// Bytes of `buffer.memory` that no batch uses, and no [`CompletionRun`] that was not dropped.
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

    async fn append_when_possible<C: Claim>(
        &self,
        record: Record<'_>,
        claim: C,
        mut blocked: Blocked,
    ) -> Result<C::Receipt> {
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
            match self.shared.append(&record, claim, memory, Entrance::Application)? {
                Ok(receipt) => return Ok(receipt),
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

    fn try_append<C: Claim>(
        &self,
        record: &Record<'_>,
        claim: C,
    ) -> Result<std::result::Result<C::Receipt, Blocked>> {
        self.shared.append(record, claim, None, Entrance::Application)
    }
}
