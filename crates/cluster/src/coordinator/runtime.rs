//! One coordinator on one broker: a [`Shard`] of state for each partition of the topic that this
//! broker leads.
//!
//! # Invariants
//! - A shard belongs to one leader epoch. Another epoch has another shard, loaded from the log
//!   again.
//! - A shard's appends pass the partition's check of that epoch. A broker that has lost the
//!   partition therefore cannot append, even if its shard has not noticed yet.
//! - State changes only after its record was appended, under the shard's lock. The log's order is
//!   therefore the state's order.
//! - The lock is never held across an await; it is taken before a partition's lock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Report, Uuid,
    records::{
        BATCH_HEADER_LEN, Batch, BatchBuilder, BatchHeader, Compression, ControlRecord,
        DecompressLimit, EndTxnMarker, ProducerStamp, RecordData, batches, set_transactional,
        stamp,
    },
};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

use super::{Kind, partition_of};
use crate::{
    broker::Broker,
    image::{Image, PartitionKey},
    log::{TxnMarker, VerificationGuard},
    replica::{
        partition::{Ack, NotServed, Partition, Taken},
        purgatory::Wait,
    },
};

/// Bytes of the log replayed before other tasks may run.
const LOAD_BYTES: usize = 1 << 20;
/// Maximum records per batch of [`Cx::append_all`].
const BATCH_RECORDS: usize = 1000;
/// Upper bound of a record's bytes in addition to key and value.
const RECORD_OVERHEAD: usize = 32;

/// An entry of the topic's log, in log order.
pub(crate) enum Entry<'a> {
    /// A record. Within a transaction it takes effect only when a marker commits it.
    Record { batch: &'a BatchHeader, offset: i64, key: &'a [u8], value: Option<&'a [u8]> },
    /// The end of a producer's transaction in this partition.
    Marker { producer_id: i64, marker: EndTxnMarker },
}

/// A record to append; one without a value deletes its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateRecord {
    pub(crate) key: Bytes,
    pub(crate) value: Option<Bytes>,
}

/// The producer of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// The id and the name of a topic that was deleted.
pub(crate) type DeletedTopic = (Uuid, Arc<str>);

/// The state of one partition's keys.
pub(crate) trait State: Sized + Send + 'static {
    /// The kind of the state.
    const KIND: Kind;

    /// Returns the state of an empty log.
    fn empty(broker: &Broker, partition: i32) -> Self;

    /// Applies one entry of the log during loading. Unreadable entries are skipped, because a later
    /// version may have written them.
    fn replay(&mut self, entry: &Entry<'_>);

    /// Called after the whole log has been replayed; requests follow.
    fn loaded(&mut self, cx: &mut Cx<'_, Self>);

    /// Called when topics have left the metadata.
    fn topics_deleted(&mut self, _topics: &[DeletedTopic], _cx: &mut Cx<'_, Self>) {}

    /// Returns when [`State::expire`] is due next.
    fn deadline(&self) -> Option<Instant>;

    /// Handles everything due at `cx.now`.
    fn expire(&mut self, cx: &mut Cx<'_, Self>);
}

/// The state of one partition while this broker leads it in one epoch.
pub(crate) struct Shard<S> {
    pub(crate) index: i32,
    pub(crate) leader_epoch: i32,
    partition: Arc<Partition>,
    inner: Mutex<Inner<S>>,
    timer: Arc<Notify>,
}

struct Inner<S> {
    phase: Phase<S>,
    /// The offset after the last entry applied to the state.
    end: i64,
    /// The deadline known to the timer.
    armed: Option<Instant>,
}

enum Phase<S> {
    /// With the topics deleted since, whose records the log may still have.
    Loading(Vec<DeletedTopic>),
    Active(S),
    /// The broker no longer leads the partition in this epoch, or could not read its log.
    Gone,
}

/// The context of an operation on a shard, under the shard's lock.
pub(crate) struct Cx<'a, S> {
    pub(crate) broker: &'a Arc<Broker>,
    pub(crate) shard: &'a Arc<Shard<S>>,
    pub(crate) now: Instant,
    end: &'a mut i64,
}

impl<S: State> Cx<'_, S> {
    /// Wall-clock time in ms since the Unix epoch.
    pub(crate) fn now_ms(&self) -> i64 {
        self.broker.env.wall.now_ms()
    }

    /// Appends records as one batch. The caller changes its state after this returns, and responds
    /// after [`Shard::committed`] returns.
    ///
    /// # Errors
    /// Nothing was appended. The code is for the response, translated as in Kafka's coordinators.
    pub(crate) fn append(&mut self, records: &[StateRecord]) -> Result<Taken, ErrorCode> {
        let mut batch = self.batch(records)?;
        stamp(&mut batch, ProducerStamp::NONE);
        self.append_batch(batch.into(), None)
    }

    /// Like [`Cx::append`], in as many batches as `max.message.bytes` of the log requires. Returns the
    /// last append, the one to wait for.
    ///
    /// # Errors
    /// As [`Cx::append`], except that earlier batches may have been appended.
    pub(crate) fn append_all(
        &mut self,
        mut records: &[StateRecord],
    ) -> Result<Option<Taken>, ErrorCode> {
        let mut last = None;
        while !records.is_empty() {
            let (count, taken) = self.append_first(records)?;
            last = Some(taken);
            records = &records[count..];
        }
        Ok(last)
    }

    /// Appends as many of the first records as one batch has room for. Returns their number.
    ///
    /// # Errors
    /// As [`Cx::append`].
    pub(crate) fn append_first(
        &mut self,
        records: &[StateRecord],
    ) -> Result<(usize, Taken), ErrorCode> {
        let count = fitting(records, self.shard.partition.max_message_bytes());
        Ok((count, self.append(&records[..count])?))
    }

    /// Like [`Cx::append`], as part of a producer's transaction. The first batch of a transaction
    /// needs a `guard` ([`Cx::begin_verification`]).
    pub(crate) fn append_in_transaction(
        &mut self,
        records: &[StateRecord],
        producer: Producer,
        guard: Option<VerificationGuard>,
    ) -> Result<Taken, ErrorCode> {
        let batch = self.transactional(records, producer)?;
        self.append_batch(batch, guard)
    }

    /// Begins the verification of a producer's transaction in this partition; `None` if the
    /// transaction is already known here.
    pub(crate) fn begin_verification(
        &mut self,
        producer: Producer,
    ) -> Result<Option<VerificationGuard>, ErrorCode> {
        let now_ms = self.now_ms();
        let probe = self.transactional(&[], producer)?;
        let guard = self.shard.partition.begin_verification(&probe, now_ms);
        guard.map_err(|refused| append_error(&refused))
    }

    /// Returns whether a guard of [`Cx::begin_verification`] is still valid.
    pub(crate) fn is_verifying(&self, producer_id: i64, guard: VerificationGuard) -> bool {
        self.shard.partition.is_verifying(producer_id, guard)
    }

    /// Appends the marker that ends a producer's transaction.
    pub(crate) fn append_marker(&mut self, marker: &TxnMarker) -> Result<Taken, NotServed> {
        let epoch = Some(self.shard.leader_epoch);
        let taken = self.shard.partition.append_marker(marker, epoch, self.now_ms())?;
        *self.end = taken.appended.last_offset + 1;
        Ok(taken)
    }

    fn transactional(
        &self,
        records: &[StateRecord],
        producer: Producer,
    ) -> Result<Bytes, ErrorCode> {
        let mut batch = self.batch(records)?;
        set_transactional(&mut batch);
        let Producer { id: producer_id, epoch: producer_epoch } = producer;
        stamp(&mut batch, ProducerStamp { producer_id, producer_epoch, base_sequence: -1 });
        Ok(batch.into())
    }

    fn batch(&self, records: &[StateRecord]) -> Result<Vec<u8>, ErrorCode> {
        let timestamp = self.now_ms();
        let mut builder = BatchBuilder::new(Vec::new());
        for StateRecord { key, value } in records {
            let (key, value) = (Some(&key[..]), value.as_deref());
            builder.append(&RecordData { key, value, headers: &[], timestamp });
        }
        let batch = builder.seal(&Compression::NONE, &mut Vec::new());
        batch.map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)
    }

    /// Like [`Cx::append`], with a batch that lacks only its offset and leader epoch.
    pub(crate) fn append_batch(
        &mut self,
        batch: Bytes,
        guard: Option<VerificationGuard>,
    ) -> Result<Taken, ErrorCode> {
        let (now_ms, epoch) = (self.now_ms(), self.shard.leader_epoch);
        let taken = self.shard.partition.append_in_epoch(batch, guard, epoch, now_ms);
        let taken = taken.map_err(|refused| append_error(&refused))?;
        *self.end = taken.appended.last_offset + 1;
        Ok(taken)
    }
}

/// Returns how many of the records, at least one, fit into a batch of this size.
fn fitting(records: &[StateRecord], most_bytes: usize) -> usize {
    let sizes = records.iter().map(|StateRecord { key, value }| {
        RECORD_OVERHEAD + key.len() + value.as_ref().map_or(0, Bytes::len)
    });
    let ends = sizes.scan(BATCH_HEADER_LEN, |end, size| {
        *end += size;
        Some(*end)
    });
    ends.take(BATCH_RECORDS).take_while(|end| *end <= most_bytes).count().max(1)
}

/// Translates a refused append into the coordinator's response code.
fn append_error(refused: &NotServed) -> ErrorCode {
    match refused.code {
        ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::FENCED_LEADER_EPOCH
        | ErrorCode::KAFKA_STORAGE_ERROR => ErrorCode::NOT_COORDINATOR,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | ErrorCode::REQUEST_TIMED_OUT => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::MESSAGE_TOO_LARGE
        | ErrorCode::RECORD_LIST_TOO_LARGE
        | ErrorCode::INVALID_FETCH_SIZE => ErrorCode::UNKNOWN_SERVER_ERROR,
        // Errors about the producer or its transaction go to the client unchanged.
        code => code,
    }
}

impl<S: State> Shard<S> {
    /// Runs an operation on the state.
    ///
    /// # Errors
    /// COORDINATOR_LOAD_IN_PROGRESS before the log has been read, NOT_COORDINATOR after the
    /// partition has moved.
    pub(crate) fn run<R>(
        self: &Arc<Self>,
        broker: &Arc<Broker>,
        operation: impl FnOnce(&mut S, &mut Cx<'_, S>) -> R,
    ) -> Result<R, ErrorCode> {
        let mut inner = self.inner.lock();
        let Inner { phase, end, armed } = &mut *inner;
        let state = match phase {
            Phase::Loading(_) => return Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
            Phase::Gone => return Err(ErrorCode::NOT_COORDINATOR),
            Phase::Active(state) => state,
        };
        let mut cx = Cx { broker, shard: self, now: Instant::now(), end };
        let result = operation(state, &mut cx);
        let deadline = state.deadline();
        if deadline.is_some_and(|deadline| armed.is_none_or(|armed| deadline < armed)) {
            *armed = deadline;
            self.timer.notify_one();
        }
        Ok(result)
    }

    /// Waits up to `timeout` until all in-sync replicas have the appended records.
    ///
    /// # Errors
    /// The code for the response. The record may still become committed later.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn committed(
        &self,
        broker: &Broker,
        taken: &Taken,
        timeout: Duration,
    ) -> Result<(), ErrorCode> {
        // The append itself cannot wait: it happens under the lock of the state.
        broker.slow_disk_turn(1).await;
        match self.wait(broker, taken, timeout).await {
            Ack::Done => Ok(()),
            Ack::Open => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Ack::Failed(refused) => Err(append_error(&refused)),
        }
    }

    /// Waits up to `timeout` until the whole state is committed, so that a response derived from it
    /// cannot be lost with this broker. Also checks that no other broker has become the
    /// coordinator.
    ///
    /// # Errors
    /// As [`Shard::committed`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn settled(
        &self,
        broker: &Broker,
        timeout: Duration,
    ) -> Result<(), ErrorCode> {
        self.is_current(broker)?;
        let end = self.inner.lock().end;
        let taken = Taken::up_to(end, self.leader_epoch);
        match self.wait(broker, &taken, timeout).await {
            Ack::Done => Ok(()),
            // Every replica that was in sync has the record, so a reader may see it.
            Ack::Failed(NotServed {
                code: ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND, ..
            }) => Ok(()),
            Ack::Open => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Ack::Failed(refused) => Err(append_error(&refused)),
        }
    }

    /// Waits for an append as [`Shard::committed`] does, or without one for all earlier ones as [`Shard::settled`] does.
    ///
    /// # Errors
    /// As [`Shard::committed`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn stored(
        &self,
        broker: &Broker,
        taken: Option<&Taken>,
        timeout: Duration,
    ) -> Result<(), ErrorCode> {
        match taken {
            Some(taken) => self.committed(broker, taken, timeout).await,
            None => self.settled(broker, timeout).await,
        }
    }

    /// Asks the controller whether this broker leads the partition in this epoch. Only reads need
    /// this check: the other replicas reject appends from a previous leader.
    ///
    /// # Errors
    /// NOT_COORDINATOR if another broker leads the partition and the metadata here is outdated;
    /// COORDINATOR_NOT_AVAILABLE if the controller is unreachable.
    pub(crate) fn is_current(&self, broker: &Broker) -> Result<(), ErrorCode> {
        let key = self.partition.key;
        match broker.controller.leader_of(broker.id, key) {
            None => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Some(leader) if leader == (broker.id, self.leader_epoch) => Ok(()),
            Some(_) => Err(ErrorCode::NOT_COORDINATOR),
        }
    }

    async fn wait(&self, broker: &Broker, taken: &Taken, timeout: Duration) -> Ack {
        let (id, wait) = (broker.wait_ids.next(), Wait::for_all(1));
        let ack = self.partition.wait_for_ack(taken, id, &wait);
        if ack != Ack::Open {
            return ack;
        }
        // The partition, not this result, shows whether the wait timed out.
        let _ = timeout_at(Instant::now() + timeout, wait.done()).await;
        self.partition.ack(taken, id)
    }

    /// Drops the state, which notifies the requests waiting in it.
    fn end(&self) {
        self.inner.lock().phase = Phase::Gone;
    }
}

/// A coordinator: the shards of the partitions this broker leads.
pub(crate) struct Coordinator<S> {
    shards: Mutex<BTreeMap<i32, Arc<Shard<S>>>>,
    timer: Arc<Notify>,
}

impl<S> Default for Coordinator<S> {
    fn default() -> Self {
        Self { shards: Mutex::default(), timer: Arc::default() }
    }
}

impl<S: State> Coordinator<S> {
    /// Returns the shard with a key's state.
    ///
    /// # Errors
    /// NOT_COORDINATOR if another broker has it.
    pub(crate) fn shard(&self, broker: &Broker, key: &str) -> Result<Arc<Shard<S>>, ErrorCode> {
        let index = partition_of(&broker.image(), S::KIND, key);
        index.and_then(|index| self.shard_at(index)).ok_or(ErrorCode::NOT_COORDINATOR)
    }

    /// Returns the shard of a partition, if this broker leads it.
    pub(crate) fn shard_at(&self, index: i32) -> Option<Arc<Shard<S>>> {
        self.shards.lock().get(&index).cloned()
    }

    /// Returns all shards of this broker.
    pub(crate) fn shards(&self) -> Vec<Arc<Shard<S>>> {
        self.shards.lock().values().cloned().collect()
    }

    /// Creates shards for the partitions that this broker now leads, and drops the others. The
    /// replicas must already have assumed their roles.
    pub(crate) fn apply(&self, broker: &Arc<Broker>, image: &Image) {
        let mut shards = self.shards.lock();
        let topic = image.topic(S::KIND.topic());
        let led: BTreeMap<i32, i32> = topic
            .iter()
            .flat_map(|topic| topic.partitions.iter().zip(0..))
            .filter(|(partition, _)| partition.leader == broker.id)
            .map(|(partition, index)| (index, partition.leader_epoch))
            .collect();
        shards.retain(|index, shard| {
            let stays = led.get(index) == Some(&shard.leader_epoch);
            if !stays {
                shard.end();
            }
            stays
        });
        let Some(topic) = topic else { return };
        for (index, leader_epoch) in led {
            if shards.contains_key(&index) {
                continue;
            }
            let key = PartitionKey { topic: topic.id, index };
            // A missing partition means an offline log, which has been reported.
            let Some(partition) = broker.partition(key) else { continue };
            let inner = Inner { phase: Phase::Loading(Vec::new()), end: 0, armed: None };
            let timer = Arc::clone(&self.timer);
            let shard = Shard { index, leader_epoch, partition, inner: Mutex::new(inner), timer };
            let shard = Arc::new(shard);
            shards.insert(index, Arc::clone(&shard));
            broker.spawn(load(Arc::clone(broker), shard));
        }
    }

    /// Passes on that topics have left the metadata.
    pub(crate) fn topics_deleted(&self, broker: &Arc<Broker>, topics: &[DeletedTopic]) {
        if topics.is_empty() {
            return;
        }
        for shard in self.shards() {
            if let Phase::Loading(deleted) = &mut shard.inner.lock().phase {
                deleted.extend_from_slice(topics);
                continue;
            }
            // A shard that has ended has a successor.
            let _ = shard.run(broker, |state, cx| state.topics_deleted(topics, cx));
        }
    }

    /// Runs the timers of all shards for the broker's lifetime.
    pub(crate) async fn run_timers(&self, broker: &Arc<Broker>) {
        loop {
            let mut next: Option<Instant> = None;
            for shard in self.shards() {
                if let Some(deadline) = expire(&shard, broker) {
                    next = Some(next.map_or(deadline, |next| next.min(deadline)));
                }
            }
            match next {
                Some(next) => tokio::select! {
                    biased;
                    () = self.timer.notified() => {}
                    () = sleep_until(next) => {}
                },
                None => self.timer.notified().await,
            }
        }
    }
}

/// Handles everything due in a shard and returns the next deadline.
fn expire<S: State>(shard: &Arc<Shard<S>>, broker: &Arc<Broker>) -> Option<Instant> {
    let mut inner = shard.inner.lock();
    let Inner { phase, end, armed } = &mut *inner;
    let Phase::Active(state) = phase else { return None };
    let mut cx = Cx { broker, shard, now: Instant::now(), end };
    if state.deadline().is_some_and(|deadline| deadline <= cx.now) {
        state.expire(&mut cx);
    }
    *armed = state.deadline();
    *armed
}

/// Replays a partition's log and activates its shard.
async fn load<S: State>(broker: Arc<Broker>, shard: Arc<Shard<S>>) {
    let mut state = S::empty(&broker, shard.index);
    let topic = S::KIND.topic();
    match replay(&shard, &mut state).await {
        Ok(end) => {
            let mut inner = shard.inner.lock();
            let Inner { phase: Phase::Loading(deleted), end: applied, .. } = &mut *inner else {
                return;
            };
            *applied = end;
            let mut cx = Cx { broker: &broker, shard: &shard, now: Instant::now(), end: applied };
            state.loaded(&mut cx);
            state.topics_deleted(deleted, &mut cx);
            inner.phase = Phase::Active(state);
            drop(inner);
            shard.timer.notify_one();
            tracing::debug!(
                broker = broker.id,
                topic,
                partition = shard.index,
                end,
                "coordinator state loaded"
            );
        }
        Err(reason) => {
            tracing::error!(
                broker = broker.id,
                topic,
                partition = shard.index,
                reason,
                "coordinator state was not loaded"
            );
            shard.end();
        }
    }
}

/// Replays the whole log, including uncommitted records, which the new leader's followers will
/// replicate.
async fn replay<S: State>(shard: &Shard<S>, state: &mut S) -> Result<i64, String> {
    let mut offset = None;
    loop {
        let read = shard.partition.read_in_epoch(shard.leader_epoch, offset, LOAD_BYTES);
        let (at, records) = match read {
            Ok(read) => read,
            // The partition has moved; its next leader loads it.
            Err(NotServed {
                code:
                    ErrorCode::NOT_LEADER_OR_FOLLOWER
                    | ErrorCode::FENCED_LEADER_EPOCH
                    | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                ..
            }) => {
                shard.end();
                return Ok(0);
            }
            Err(refused) => return Err(refused.code.name().to_owned()),
        };
        if records.is_empty() {
            return Ok(at);
        }
        let mut next = at;
        for batch in batches(records) {
            let batch = batch.map_err(|error| Report::new(&error).to_string())?;
            replay_batch(&batch, state).map_err(|error| Report::new(&error).to_string())?;
            next = batch.header.last_offset() + 1;
        }
        offset = Some(next);
        tokio::task::yield_now().await;
    }
}

fn replay_batch<S: State>(
    batch: &Batch,
    state: &mut S,
) -> Result<(), curtail_wire::records::RecordError> {
    let header = &batch.header;
    let mut records = batch.records(&DecompressLimit::default())?;
    while let Some(record) = records.next_ref() {
        let record = record?;
        if header.is_control() {
            let parsed = ControlRecord::parse(record.key, record.value)?;
            if let ControlRecord::EndTxn { marker, .. } = parsed {
                state.replay(&Entry::Marker { producer_id: header.producer_id, marker });
            }
            continue;
        }
        let Some(key) = record.key else { continue };
        state.replay(&Entry::Record {
            batch: header,
            offset: record.offset,
            key,
            value: record.value,
        });
    }
    Ok(())
}
