//! Reading records: polls, streams, groups and their rebalances.
//!
//! A [`Consumer`] reads each assigned partition in log order.

mod buffer;
mod claims;
mod close;
mod control;
mod credit;
mod cursor;
mod group;
mod handle;
mod idle;
mod in_key_order;
mod interceptor;
mod lane;
mod lookup;
mod queues;
mod reading;
mod records;
mod shared;
mod signal;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;
mod topics;
mod validate;

/// Synchronisation of [`signal`]. Its loom test replaces it.
mod sync {
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};

    pub(super) use tokio::sync::Notify;
}

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use curtail_net::Env;
#[cfg(feature = "plants")]
use curtail_proto::plant::{Plant, planted};
use curtail_proto::{
    later::Later,
    membership::Handover,
    position::{Position, Reset, Spot, Versions},
};
use curtail_wire::{Uuid, records::DecompressLimit};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::{
    cursor::Decoding,
    idle::Idle,
    reading::{Reading, Source},
    shared::Shared,
};
pub use curtail_wire::records::{HeaderIter, RecordRef, TimestampType};

pub use crate::record::BatchMetadata;

pub use self::{
    close::{CloseOptions, GroupMembership},
    group::{PendingCommit, Rebalance, RebalanceListener},
    handle::ConsumerHandle,
    in_key_order::InKeyOrder,
    interceptor::{ConsumerInterceptor, ConsumerInterceptors},
    queues::{PartitionQueue, PartitionQueues},
    records::{RecordBatch, Records},
    stream::{IntoStream, RecordStream},
    topics::PartitionInfo,
};
use crate::{
    ConsumerConfig, ConsumerRecord, Error, Result, TopicPartition,
    metadata::{AutoCreate, MetadataHandle},
    metrics::ConsumerMetrics,
    runtime::{Runtime, within},
    span::Span,
    transaction::OffsetAndMetadata,
};

/// Records in a row that interceptors may remove before a stream yields to the caller's other futures.
const REMOVED_IN_A_TURN: usize = 128;

/// Reads records of the partitions assigned to it.
///
/// One task per broker keeps a fetch in flight within `curtail.prefetch.bytes`, so records are usually buffered
/// before the application asks for them. [`Consumer::poll`] verifies checksums and decompresses, on the caller's
/// task.
///
/// With a `group.id` it can [`Consumer::subscribe`] and share topics with the group's other members, Java consumers
/// included. A separate task maintains the membership. Partitions are assigned and revoked only inside `poll`.
///
/// Dropping the consumer ends its tasks; [`Consumer::close`] also waits until the brokers know. The membership of a
/// dropped consumer ends only after `session.timeout.ms`.
///
/// When the tokio runtime on which it was made ends, so do its tasks. Calls then return [`Error::Closed`]
/// instead of waiting; polls first return the records that are buffered. With `curtail.io.thread` its tasks run on a
/// thread of the process: an application that blocks its runtime keeps its session in the group, up to
/// `max.poll.interval.ms`.
pub struct Consumer {
    shared: Arc<Shared>,
    reading: Reading,
    /// A handover of the group that waits for queues to end.
    held: Option<Handover>,
    /// The lock is never taken: it lets calls by shared reference be made from several threads.
    listener: Option<Mutex<Box<dyn RebalanceListener>>>,
}

/// The source of the assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Choice {
    /// The application, with [`Consumer::assign`].
    #[default]
    Assigned,
    /// The group, for [`Consumer::subscribe`].
    Subscribed,
}

/// The first record with a given timestamp or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAndTimestamp {
    /// Offset of the record.
    pub offset: i64,
    /// Timestamp of the record, in milliseconds since 1970-01-01 UTC.
    pub timestamp: i64,
}

impl Consumer {
    /// Creates a consumer without an assignment. Sends no request yet.
    ///
    /// # Errors
    /// [`Error::Config`] if the settings contradict each other. [`Error::Thread`] if `curtail.io.thread` is set and no
    /// thread can be started.
    ///
    /// # Panics
    /// Outside a tokio runtime, unless `curtail.io.thread` is set.
    pub fn new(config: ConsumerConfig) -> Result<Self> {
        Self::with_env(config, &Env::real())
    }

    /// As [`Consumer::new`], with the caller's network, clock and randomness.
    ///
    /// # Errors
    /// [`Error::Config`] if the settings contradict each other. [`Error::Thread`] if `curtail.io.thread` is set and no
    /// thread can be started.
    ///
    /// # Panics
    /// Outside a tokio runtime, unless `curtail.io.thread` is set.
    pub fn with_env(config: ConsumerConfig, env: &Env) -> Result<Self> {
        config.validate()?;
        let auto_create =
            if config.allow_auto_create_topics { AutoCreate::Allowed } else { AutoCreate::Never };
        let metadata = MetadataHandle::start(env, &config.common, auto_create)?;
        let decoding = Decoding {
            check_crcs: config.check_crcs,
            limit: DecompressLimit { max_bytes: config.max_decompressed_batch },
        };
        let shared = Shared::new(config, env.clone(), metadata);
        let reading = Reading::new(Source::Turns, decoding);
        Ok(Self { shared, reading, held: None, listener: None })
    }

    /// Replaces the assignment and ends a subscription. Partitions that stay assigned keep their positions. A new
    /// partition begins at the group's committed offset, if there is a `group.id`. Otherwise it begins as
    /// `auto.offset.reset` says, unless [`Consumer::seek`] follows.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = TopicPartition>) {
        self.unsubscribe();
        self.commit_positions();
        self.save_position();
        self.shared.assign(partitions.into_iter().collect());
        self.drop_stale_cursor();
    }

    /// The assigned partitions.
    pub fn assignment(&self) -> BTreeSet<TopicPartition> {
        self.shared.assignment()
    }

    /// Continues a partition at `offset`.
    ///
    /// # Errors
    /// [`Error::IllegalState`] if the partition is not assigned or the offset is negative.
    pub fn seek(&mut self, partition: &TopicPartition, offset: i64) -> Result<()> {
        if offset < 0 {
            return Err(Error::IllegalState("the offset is negative"));
        }
        self.jump(partition, |position, versions| position.seek(offset, versions))
    }

    /// As [`Consumer::seek`], with the leader epoch of the record before the offset, if known. The leader then
    /// validates the position before anything is fetched. If an unclean election lost that record, the position is
    /// reset as `auto.offset.reset` says, or polls return [`Error::LogTruncated`] (KIP-320).
    ///
    /// # Errors
    /// As [`Consumer::seek`], and if the epoch is negative.
    ///
    /// ```
    /// # fn example(consumer: &mut curtail::Consumer, orders: curtail::TopicPartition) -> curtail::Result<()> {
    /// use curtail::transaction::OffsetAndMetadata;
    ///
    /// // The record at offset 41 was read in leader epoch 3.
    /// let next = OffsetAndMetadata { leader_epoch: Some(3), ..OffsetAndMetadata::new(42) };
    /// consumer.seek_to(&orders, &next)
    /// # }
    /// ```
    pub fn seek_to(&mut self, partition: &TopicPartition, to: &OffsetAndMetadata) -> Result<()> {
        let spot = valid_spot(to)?;
        self.jump(partition, |position, versions| position.seek_to(spot, versions))
    }

    fn jump(
        &mut self,
        partition: &TopicPartition,
        jump: impl FnOnce(&mut Position, &mut Versions),
    ) -> Result<()> {
        let jumped = self.shared.jump(partition, jump);
        self.drop_stale_cursor();
        jumped
    }

    /// Continues each of the partitions at its first offset.
    ///
    /// # Errors
    /// [`Error::IllegalState`] if one of them is not assigned.
    pub fn seek_to_beginning<'a>(
        &mut self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<()> {
        self.reset(partitions, Reset::Earliest)
    }

    /// Continues each of the partitions at its end.
    ///
    /// # Errors
    /// [`Error::IllegalState`] if one of them is not assigned.
    pub fn seek_to_end<'a>(
        &mut self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<()> {
        self.reset(partitions, Reset::Latest)
    }

    /// Continues a partition at its first record with this timestamp (milliseconds since 1970-01-01 UTC) or a later
    /// one. Without such a record, continues at the end.
    ///
    /// # Errors
    /// [`Error::IllegalState`] if the partition is not assigned.
    pub fn seek_to_timestamp(&mut self, partition: &TopicPartition, timestamp: i64) -> Result<()> {
        self.reset([partition], Reset::Timestamp(timestamp))
    }

    fn reset<'a>(
        &mut self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
        to: Reset,
    ) -> Result<()> {
        let all = self.shared.reset(partitions, to);
        self.drop_stale_cursor();
        all
    }

    /// Stops returning and fetching records of the partitions until they are resumed. Ignores unassigned partitions.
    pub fn pause<'a>(&mut self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        self.save_position();
        let mut state = self.shared.state.lock();
        for at in partitions {
            let reading = self.reading.take_if_of(at);
            state.pause(at, reading, self.shared.config.prefetch_bytes);
        }
    }

    /// Resumes paused partitions.
    pub fn resume<'a>(&mut self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        self.shared.resume(partitions);
    }

    /// The paused partitions.
    pub fn paused(&self) -> BTreeSet<TopicPartition> {
        self.shared.paused()
    }

    /// Returns the offset of the next record of a partition that [`Consumer::poll`] would return. Waits up to
    /// `default.api.timeout.ms` while the offset is looked up, or validated after a leader change.
    ///
    /// # Errors
    /// If the partition is not assigned, or its offset is still unknown at the timeout.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn position(&self, partition: &TopicPartition) -> Result<i64> {
        let limit = self.shared.config.common.default_api_timeout;
        let deadline = Instant::now().later(limit);
        loop {
            let mut settled = std::pin::pin!(self.shared.settled.notified());
            // Registered before the look, so that a response in between is not missed.
            settled.as_mut().enable();
            if let Some(at) = self.position_now(partition, Position::confirmed)? {
                return Ok(at);
            }
            let settled = async { timeout_at(deadline, settled).await };
            if within(&self.shared.runtime, settled).await?.is_err() {
                let what = "the position of a partition (default.api.timeout.ms)";
                return Err(Error::Timeout { what, limit, last: None });
            }
        }
    }

    fn position_now(
        &self,
        partition: &TopicPartition,
        of: impl FnOnce(&Position) -> Option<Spot>,
    ) -> Result<Option<i64>> {
        let state = self.shared.state.lock();
        let Some(assigned) = state.partitions.get(partition) else {
            return Err(Error::IllegalState("the partition is not assigned to this consumer"));
        };
        let position = &assigned.position;
        let reading = self.reading.next_offset(partition, position.version());
        Ok(reading.or_else(|| of(position).map(|at| at.offset)))
    }

    /// High watermark of a partition at its last fetch; `None` before the first response.
    pub fn high_watermark(&self, partition: &TopicPartition) -> Option<i64> {
        self.shared.state.lock().partitions.get(partition)?.high_watermark
    }

    /// Records of a partition that polls have not returned yet, up to its end at the last fetch. The end is the high
    /// watermark, or with `isolation.level=read_committed` the last stable offset. `None` before the first response,
    /// and for a partition that is not assigned.
    pub fn current_lag(&self, partition: &TopicPartition) -> Option<i64> {
        let end = self.shared.state.lock().partitions.get(partition)?.end?;
        let position = self.position_now(partition, Position::consumed).ok()??;
        Some(end.saturating_sub(position).max(0))
    }

    /// What the consumer has measured since it was made.
    ///
    /// ```
    /// # fn example(consumer: &curtail::Consumer, before: &curtail::metrics::ConsumerMetrics) {
    /// let metrics = consumer.metrics().since(before);
    /// println!("lag {:?}, {} records", metrics.records_lag_max(), metrics.records_consumed_total);
    /// # }
    /// ```
    pub fn metrics(&self) -> ConsumerMetrics {
        self.shared.metrics(self.reading.not_counted(), |at| self.current_lag(at))
    }

    /// The broker that each assigned partition is read from: its leader, or with `client.rack` a replica that is nearer
    /// (KIP-392); `None` while there is none.
    pub fn read_from(&self) -> BTreeMap<TopicPartition, Option<i32>> {
        let state = self.shared.state.lock();
        state.partitions.iter().map(|(at, assigned)| (at.clone(), assigned.lane)).collect()
    }

    /// Returns buffered records, or the first ones that arrive within `timeout`: at most `max.poll.records`, none at
    /// the timeout.
    ///
    /// # Errors
    /// An error that keeps a partition from being read, such as [`Error::Corrupt`], [`Error::OffsetOutOfRange`] or
    /// [`Error::LogTruncated`]. Other partitions are not affected, and polls may continue. The affected position
    /// stays where it is, and later polls return the error again until a seek or until the partition becomes
    /// readable. For a damaged batch, seek to the `next_offset` of [`Error::Corrupt`].
    ///
    /// Unreachable brokers are no error here: the consumer keeps trying. A membership that has ended for good fails
    /// every poll until the next subscription. One cause is a newer consumer with the same `group.instance.id`
    /// ([`Error::is_fenced`]).
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has taken no records. Dropping it, for example in `tokio::select!`, takes the place
    /// of Java's `wakeup`.
    #[doc(alias = "wakeup")]
    pub async fn poll(&mut self, timeout: Duration) -> Result<Records> {
        let max = self.shared.config.max_poll_records;
        let span = self.poll_span();
        let polled = self.until_timeout(timeout, |consumer, cx| consumer.poll_records(cx, max));
        let polled = span.wrap(polled).await;
        span.end_of(&polled);
        let records = polled?;
        span.received(records.as_ref().map_or(0, Vec::len));
        #[cfg(feature = "plants")]
        if planted(Plant::PollAwaitsAfterTake) {
            tokio::task::yield_now().await;
        }
        Ok(Records(records.unwrap_or_default()))
    }

    /// Returns the next batch as it was produced, if one is buffered or arrives within `timeout`. Costs the least CPU
    /// time per record. All records of the batch count as returned. May be mixed with [`Consumer::poll`].
    ///
    /// # Errors
    /// As [`Consumer::poll`].
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has taken no records.
    pub async fn poll_batch(&mut self, timeout: Duration) -> Result<Option<RecordBatch>> {
        let span = self.poll_span();
        let polled = span.wrap(self.until_timeout(timeout, Self::poll_next_batch)).await;
        span.end_of(&polled);
        let batch = polled?;
        span.received(batch.as_ref().map_or(0, RecordBatch::count));
        Ok(batch)
    }

    fn poll_span(&self) -> Span {
        let config = &self.shared.config;
        Span::poll(&config.common.client_id, config.group_id.as_deref())
    }

    /// Returns the records as a stream, which never ends: it returns errors as items, and continues after them like
    /// polls. Dropping the stream leaves the remaining records in the consumer.
    pub fn stream(&mut self) -> RecordStream<'_> {
        RecordStream::new(self)
    }

    /// As [`Consumer::stream`], but owns the consumer.
    pub fn into_stream(self) -> IntoStream {
        IntoStream::new(self)
    }

    /// The first offset of each partition.
    ///
    /// # Errors
    /// If a partition does not exist, or its leader does not respond within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn beginning_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, i64>> {
        self.offsets(partitions, lookup::EARLIEST).await
    }

    /// The end of each partition, where its next record will be written: the high watermark, or with
    /// `isolation.level=read_committed` the last stable offset.
    ///
    /// # Errors
    /// As [`Consumer::beginning_offsets`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn end_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, i64>> {
        self.offsets(partitions, lookup::LATEST).await
    }

    async fn offsets(
        &self,
        partitions: &[TopicPartition],
        timestamp: i64,
    ) -> Result<BTreeMap<TopicPartition, i64>> {
        let wanted = partitions.iter().map(|at| (at.clone(), timestamp)).collect();
        let found = within(&self.shared.runtime, lookup::ask_all(&self.shared, wanted)).await??;
        Ok(found.into_iter().map(|(at, found)| (at, found.offset)).collect())
    }

    /// For each partition, the first record with the given timestamp (milliseconds since 1970-01-01 UTC) or a later
    /// one; `None` if there is none.
    ///
    /// # Errors
    /// As [`Consumer::beginning_offsets`]; and [`Error::IllegalState`] for a negative time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn offsets_for_times(
        &self,
        times: impl IntoIterator<Item = (TopicPartition, i64)>,
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndTimestamp>>> {
        let wanted: BTreeMap<TopicPartition, i64> = times.into_iter().collect();
        if wanted.values().any(|time| *time < 0) {
            return Err(Error::IllegalState("the timestamp is negative"));
        }
        let found = within(&self.shared.runtime, lookup::ask_all(&self.shared, wanted)).await??;
        let found = found.into_iter().map(|(at, found)| {
            let record = OffsetAndTimestamp { offset: found.offset, timestamp: found.timestamp };
            (at, (found.offset >= 0).then_some(record))
        });
        Ok(found.collect())
    }

    /// Connects to a bootstrap server, to fail early and clearly if none is usable.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if one round over the bootstrap servers fails.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(&self) -> Result<()> {
        within(&self.shared.runtime, self.shared.metadata.connect_any()).await?.map(drop)
    }

    /// Returns the id that a broker has assigned to this consumer for its metrics (KIP-714). Waits for it up to `timeout`,
    /// and connects if the consumer has not connected yet.
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

    /// Runs `step` until it is ready or the time is up. Buffered records are taken without setting a timer.
    async fn until_timeout<T>(
        &mut self,
        timeout: Duration,
        mut step: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<Result<T>>,
    ) -> Result<Option<T>> {
        let deadline = Instant::now().later(timeout);
        let runtime = self.shared.runtime.clone();
        // Only the timer is polled under the runtime's lock: a step calls the application's listener.
        let over = within(&runtime, async { sleep_until(deadline).await });
        let mut idle = Idle::default();
        tokio::select! {
            biased;
            result = poll_fn(|cx| {
                // An application that always finds records must not keep the lanes from running.
                let proceed = ready!(tokio::task::coop::poll_proceed(cx));
                let entered = runtime.enter_from_outside();
                let result = step(self, cx);
                let result = idle.after(&self.shared, result);
                drop(entered);
                if result.is_ready() {
                    proceed.made_progress();
                }
                result
            }) => result.map(Some),
            over = over => over.map(|()| None),
        }
    }

    pub(crate) fn config(&self) -> &ConsumerConfig {
        &self.shared.config
    }

    /// The backoff after this number of failures, and the runtime on which to wait.
    pub(crate) fn pause_after(&self, failures: u32) -> (Runtime, Duration) {
        (self.shared.runtime.clone(), self.shared.backoff(failures))
    }

    fn poll_records(&mut self, cx: &Context<'_>, max: usize) -> Poll<Result<Vec<ConsumerRecord>>> {
        let taken = ready!(self.attending(|me| me.reading.take_records(&me.shared, cx, max)));
        Poll::Ready(taken.map(|records| self.shared.config.interceptors.on_consume(records)))
    }

    /// Runs `step` after the group's calls are served, and again if a call arrives while `step` is pending. A later
    /// call wakes the kept waker; an earlier call is seen here.
    fn attending<T>(&mut self, mut step: impl FnMut(&mut Self) -> Poll<T>) -> Poll<T> {
        loop {
            if self.is_called() {
                self.attend();
            }
            let polled = step(self);
            if polled.is_ready() || !self.is_called() {
                return polled;
            }
        }
    }

    fn poll_one(&mut self, cx: &Context<'_>) -> Poll<Result<ConsumerRecord>> {
        for _ in 0..REMOVED_IN_A_TURN {
            let record = ready!(self.attending(|me| me.reading.take_one(&me.shared, cx)))?;
            if let Some(record) = self.shared.config.interceptors.on_consume_one(record) {
                return Poll::Ready(Ok(record));
            }
        }
        // The caller's other futures have a turn, too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_next_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<RecordBatch>> {
        self.attending(|me| me.reading.take_batch(&me.shared, cx))
    }

    fn save_position(&mut self) {
        self.reading.save_position(&self.shared);
    }

    fn drop_stale_cursor(&mut self) {
        self.reading.drop_stale_cursor(&self.shared);
    }
}

/// Validates the application's position.
fn valid_spot(to: &OffsetAndMetadata) -> Result<Spot> {
    if to.offset < 0 {
        return Err(Error::IllegalState("the offset is negative"));
    }
    if to.leader_epoch.is_some_and(|epoch| epoch < 0) {
        return Err(Error::IllegalState("the leader epoch is negative"));
    }
    Ok(to.spot())
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // The lanes end without being awaited.
        drop(self.shared.state.lock().close());
        if let Some(group) = &self.shared.group {
            group.stop();
        }
        self.shared.settled.notify_waiters();
        self.shared.metadata.end_telemetry();
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("assignment", &self.assignment()).finish_non_exhaustive()
    }
}
