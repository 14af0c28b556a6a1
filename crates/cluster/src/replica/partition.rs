//! One replica of one partition: its log, its role, and the requests that wait for it.
//!
//! # Invariants (all under the one lock)
//! - The role follows the newest partition epoch seen, from the broker's metadata or from the
//!   controller's response to a change of the in-sync replicas.
//! - The high watermark never decreases while the replica leads.
//! - A waiting request is registered under the same lock acquisition that last checked its
//!   condition.

mod cleaning;
mod deletions;
mod following;
mod reading;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Report,
    fetch::IsolationLevel,
    produce::{BatchIndexError, LeaderIdAndEpoch},
    records::{ProducerStamp, stamp},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

pub(crate) use self::{
    deletions::Deletion,
    following::FollowerPosition,
    reading::{OffsetSpec, ReadBy, ReadSpec},
};
use super::{
    progress::Progress,
    purgatory::{AckWaits, FetchWaits, Reader, Wait},
};
use crate::{
    config::Plant,
    controller::{AlterPartition, Controller},
    image::{PartitionImage, PartitionKey},
    log::{
        ActiveProducer, AppendError, Appended, Origin, PartitionLog, TxnMarker, VerificationGuard,
    },
    observer::Observers,
};

/// State shared by all partitions of a broker's incarnation.
pub(crate) struct Owner {
    pub(crate) broker: i32,
    pub(crate) broker_epoch: i64,
    pub(crate) controller: Arc<Controller>,
    pub(crate) observers: Arc<Observers>,
    pub(crate) plant: Option<Plant>,
}

/// A broker's replica of one partition.
pub(crate) struct Partition {
    pub(crate) key: PartitionKey,
    pub(crate) topic: Arc<str>,
    owner: Arc<Owner>,
    inner: Mutex<Inner>,
}

struct Inner {
    log: PartitionLog,
    image: PartitionImage,
    min_isr: usize,
    /// Followers' progress; `None` while this replica does not lead.
    leading: Option<Progress>,
    high_watermark: i64,
    acks: AckWaits,
    fetches: FetchWaits,
    /// DeleteRecords requests that wait for the log starts of the followers.
    deletions: AckWaits,
    gone: Option<Gone>,
}

/// Why a replica no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Its topic was deleted.
    Topic,
    /// The partition has moved to other brokers.
    Elsewhere,
}

/// Why a request cannot be served here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotServed {
    pub(crate) code: ErrorCode,
    pub(crate) message: Option<String>,
    /// The partition's leader, as far as this replica knows (KIP-951).
    pub(crate) leader: Option<LeaderIdAndEpoch>,
    /// The records for which a batch was refused.
    pub(crate) records: Vec<BatchIndexError>,
}

impl NotServed {
    pub(crate) fn code(code: ErrorCode) -> Self {
        Self { code, message: None, leader: None, records: Vec::new() }
    }

    pub(crate) fn led_by(code: ErrorCode, leader: LeaderIdAndEpoch) -> Self {
        Self { leader: Some(leader), ..Self::code(code) }
    }
}

impl From<ErrorCode> for NotServed {
    fn from(code: ErrorCode) -> Self {
        Self::code(code)
    }
}

impl From<AppendError> for NotServed {
    fn from(error: AppendError) -> Self {
        let AppendError { code, message, records } = error;
        Self { message: Some(message), records, ..Self::code(code) }
    }
}

/// A batch appended by the leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) appended: Appended,
    pub(crate) log_start: i64,
    /// The epoch of the append. The append is acknowledged only if the leader is still in this
    /// epoch.
    pub(crate) leader_epoch: i32,
}

impl Taken {
    /// Returns a placeholder for everything before `end`, to wait for all of it.
    pub(crate) fn up_to(end: i64, leader_epoch: i32) -> Self {
        let appended = Appended {
            base_offset: end - 1,
            last_offset: end - 1,
            log_append_time_ms: -1,
            duplicate: false,
        };
        Self { appended, log_start: 0, leader_epoch }
    }
}

/// The acknowledgement of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// Pending.
    Open,
    /// Acknowledged by enough replicas.
    Done,
    /// Will never be acknowledged.
    Failed(NotServed),
}

impl Partition {
    pub(crate) fn new(
        key: PartitionKey,
        topic: Arc<str>,
        log: PartitionLog,
        min_isr: usize,
        owner: Arc<Owner>,
    ) -> Self {
        let high_watermark = log.start_offset();
        let unknown = PartitionImage {
            leader: -1,
            leader_epoch: -1,
            partition_epoch: -1,
            isr: Arc::default(),
            replicas: Arc::default(),
            adding: Arc::default(),
            removing: Arc::default(),
        };
        let inner = Inner {
            log,
            image: unknown,
            min_isr,
            leading: None,
            high_watermark,
            acks: AckWaits::default(),
            fetches: FetchWaits::default(),
            deletions: AckWaits::default(),
            gone: None,
        };
        Self { key, topic, owner, inner: Mutex::new(inner) }
    }

    /// Applies the metadata, unless it is older than the known one.
    pub(crate) fn apply(&self, image: &PartitionImage, now: Instant) {
        let mut inner = self.inner.lock();
        self.apply_locked(&mut inner, image, now);
    }

    fn apply_locked(&self, inner: &mut Inner, image: &PartitionImage, now: Instant) {
        if image.partition_epoch <= inner.image.partition_epoch {
            return;
        }
        let me = self.owner.broker;
        let new_epoch = image.leader_epoch != inner.image.leader_epoch;
        inner.image = image.clone();
        if image.leader != me {
            inner.leading = None;
            inner.acks.all();
            inner.deletions.all();
            inner.fetches.news();
            return;
        }
        if new_epoch && self.owner.plant == Some(Plant::ForgetProducersWhenElected) {
            inner.log.expire_producers(i64::MAX);
        }
        let followers = image.replicas.iter().copied().filter(|id| *id != me);
        match &mut inner.leading {
            Some(progress) if !new_epoch => progress.assign(followers, now),
            _ => {
                inner.leading = Some(Progress::new(followers, inner.log.end_offset(), now));
                self.owner.observers.tell(|o, at| {
                    o.leads(me, &self.topic, self.key.index, image.leader_epoch, at);
                });
                inner.acks.all();
                inner.deletions.all();
                inner.fetches.news();
            }
        }
        Self::answer_deletions(inner, me);
        self.advance(inner);
    }

    /// Advances the high watermark if the in-sync replicas allow it, and wakes the requests waiting
    /// for it. It does not advance below `min.insync.replicas` (KIP-966).
    fn advance(&self, inner: &mut Inner) {
        let Some(progress) = &inner.leading else { return };
        if inner.image.isr.len() < inner.min_isr {
            return;
        }
        let me = self.owner.broker;
        let committed = match self.owner.plant {
            Some(Plant::CommitByMajority) => {
                progress.committed_without_slowest(me, inner.log.end_offset(), &inner.image.isr)
            }
            _ => progress.committed(me, inner.log.end_offset(), &inner.image.isr),
        };
        if committed <= inner.high_watermark {
            return;
        }
        inner.high_watermark = committed;
        inner.log.committed_to(committed);
        self.owner
            .observers
            .tell(|o, at| o.committed(me, &self.topic, self.key.index, committed, at));
        inner.acks.reached(committed);
        inner.fetches.news_for(Reader::Consumer);
    }

    /// Returns the last stable offset.
    fn last_stable(inner: &Inner) -> i64 {
        let high_watermark = inner.high_watermark;
        let first =
            inner.log.first_unstable_offset().map(|first| first.max(inner.log.start_offset()));
        first.map_or(high_watermark, |first| first.min(high_watermark))
    }

    /// Returns the end of the records visible to a consumer with this isolation level.
    fn visible_to(inner: &Inner, isolation: IsolationLevel) -> i64 {
        match isolation {
            IsolationLevel::ReadUncommitted => inner.high_watermark,
            IsolationLevel::ReadCommitted => Self::last_stable(inner),
        }
    }

    fn not_led(inner: &Inner) -> NotServed {
        if inner.gone == Some(Gone::Topic) {
            return NotServed::code(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        Self::with_leader(inner, ErrorCode::NOT_LEADER_OR_FOLLOWER)
    }

    fn with_leader(inner: &Inner, code: ErrorCode) -> NotServed {
        let leader = LeaderIdAndEpoch {
            leader_id: inner.image.leader,
            leader_epoch: inner.image.leader_epoch,
        };
        NotServed::led_by(code, leader)
    }

    fn check_epoch(inner: &Inner, asked: i32) -> Result<(), NotServed> {
        match asked {
            epoch if epoch < 0 || epoch == inner.image.leader_epoch => Ok(()),
            epoch if epoch < inner.image.leader_epoch => {
                Err(Self::with_leader(inner, ErrorCode::FENCED_LEADER_EPOCH))
            }
            _ => Err(NotServed::code(ErrorCode::UNKNOWN_LEADER_EPOCH)),
        }
    }

    /// Begins the verification of a batch that would begin a transaction here. `None` means that
    /// none seems necessary; the append decides finally.
    pub(crate) fn begin_verification(
        &self,
        batch: &[u8],
        now_ms: i64,
    ) -> Result<Option<VerificationGuard>, NotServed> {
        let mut inner = self.inner.lock();
        if inner.leading.is_none() {
            return Err(Self::not_led(&inner));
        }
        Ok(inner.log.begin_verification(batch, now_ms))
    }

    /// Forgets the producers outside a transaction, as after `producer.id.expiration.ms`. Returns their
    /// number.
    pub(crate) fn forget_producers(&self) -> usize {
        self.inner.lock().log.forget_producers()
    }

    /// Returns whether a guard of [`Partition::begin_verification`] is still valid.
    pub(crate) fn is_verifying(&self, producer_id: i64, guard: VerificationGuard) -> bool {
        self.inner.lock().log.is_verifying(producer_id, guard)
    }

    /// Appends a batch as the leader. `guard` proves that the coordinator knows the transaction
    /// that the batch begins.
    pub(crate) fn append(
        &self,
        origin: Origin,
        mut batch: Bytes,
        guard: Option<VerificationGuard>,
        all_replicas: bool,
        now_ms: i64,
    ) -> Result<Taken, NotServed> {
        if self.owner.plant == Some(Plant::NoSequenceCheck)
            && batch.len() >= curtail_wire::records::BATCH_HEADER_LEN
        {
            let mut anonymous = Vec::from(batch);
            stamp(&mut anonymous, ProducerStamp::NONE);
            batch = anonymous.into();
        }
        self.append_locked(None, all_replicas, |log, leader_epoch| {
            log.append_from(origin, batch, guard, leader_epoch, now_ms)
        })
    }

    /// Appends a coordinator's batch, which needs enough in-sync replicas, only as the leader of
    /// this epoch. A batch that begins a transaction here needs `guard`.
    pub(crate) fn append_in_epoch(
        &self,
        batch: Bytes,
        guard: Option<VerificationGuard>,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Taken, NotServed> {
        self.append_locked(Some(leader_epoch), true, |log, leader_epoch| {
            log.append_from(Origin::Coordinator, batch, guard, leader_epoch, now_ms)
        })
    }

    /// Appends the marker of a transaction as the leader; if an epoch is given, only as the leader
    /// of that epoch.
    pub(crate) fn append_marker(
        &self,
        marker: &TxnMarker,
        leader_epoch: Option<i32>,
        now_ms: i64,
    ) -> Result<Taken, NotServed> {
        self.append_locked(leader_epoch, true, |log, leader_epoch| {
            log.append_marker(marker, leader_epoch, now_ms)
        })
    }

    fn append_locked(
        &self,
        only_in: Option<i32>,
        all_replicas: bool,
        append: impl FnOnce(&mut PartitionLog, i32) -> Result<Appended, AppendError>,
    ) -> Result<Taken, NotServed> {
        let mut inner = self.inner.lock();
        Self::check_epoch(&inner, only_in.unwrap_or(-1))?;
        if inner.leading.is_none() {
            return Err(Self::not_led(&inner));
        }
        if all_replicas && inner.image.isr.len() < inner.min_isr {
            let message = format!(
                "The in-sync replicas of {}-{} are {:?}, fewer than min.insync.replicas={}",
                self.topic, self.key.index, inner.image.isr, inner.min_isr
            );
            let code = ErrorCode::NOT_ENOUGH_REPLICAS;
            return Err(NotServed { message: Some(message), ..NotServed::code(code) });
        }
        let leader_epoch = inner.image.leader_epoch;
        let appended = append(&mut inner.log, leader_epoch)?;
        let taken = Taken { appended, log_start: inner.log.start_offset(), leader_epoch };
        if !appended.duplicate {
            self.owner.observers.tell(|o, at| {
                let Appended { base_offset, last_offset, .. } = appended;
                let broker = self.owner.broker;
                o.appended(broker, &self.topic, self.key.index, base_offset, last_offset, at);
            });
            self.advance(&mut inner);
            inner.fetches.news_for(Reader::Follower);
        }
        Ok(taken)
    }

    /// Registers a wait for all in-sync replicas to have the batch, if that is still pending.
    pub(crate) fn wait_for_ack(&self, taken: &Taken, id: u64, wait: &Arc<Wait>) -> Ack {
        let mut inner = self.inner.lock();
        let ack = Self::ack_locked(&inner, taken);
        if ack == Ack::Open {
            inner.acks.add(taken.appended.last_offset + 1, id, wait);
        }
        ack
    }

    /// Returns the acknowledgement of a batch, and removes the registration `id`.
    pub(crate) fn ack(&self, taken: &Taken, id: u64) -> Ack {
        let mut inner = self.inner.lock();
        inner.acks.remove(taken.appended.last_offset + 1, id);
        match Self::ack_locked(&inner, taken) {
            Ack::Failed(_) if self.owner.plant == Some(Plant::AckOnMove) => Ack::Done,
            ack => ack,
        }
    }

    fn ack_locked(inner: &Inner, taken: &Taken) -> Ack {
        if inner.leading.is_none() || inner.image.leader_epoch != taken.leader_epoch {
            return Ack::Failed(Self::not_led(inner));
        }
        if inner.high_watermark <= taken.appended.last_offset {
            return Ack::Open;
        }
        if inner.image.isr.len() < inner.min_isr {
            return Ack::Failed(NotServed::code(ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND));
        }
        Ack::Done
    }

    fn follower_fetched(
        &self,
        inner: &mut Inner,
        id: i32,
        spec: &ReadSpec,
        broker_epoch: Option<i64>,
        now: Instant,
    ) {
        let end = inner.log.end_offset();
        let high_watermark = inner.high_watermark;
        let Some(progress) = &mut inner.leading else { return };
        let has = (spec.log_start, spec.fetch_offset);
        progress.fetched(id, has, end, broker_epoch, now);
        Self::answer_deletions(inner, self.owner.broker);
        let Some(progress) = &mut inner.leading else { return };
        if inner.image.isr.contains(&id) {
            self.advance(inner);
            return;
        }
        if progress.may_join(id, high_watermark) {
            let mut isr = inner.image.isr.to_vec();
            isr.push(id);
            self.change_isr(inner, &isr, now);
        }
    }

    /// Requests other in-sync replicas from the controller. A refusal is no error, because newer
    /// metadata is in flight.
    fn change_isr(&self, inner: &mut Inner, isr: &[i32], now: Instant) {
        let Some(progress) = &inner.leading else { return };
        let alter = AlterPartition {
            broker: self.owner.broker,
            broker_epoch: self.owner.broker_epoch,
            key: self.key,
            leader_epoch: inner.image.leader_epoch,
            partition_epoch: inner.image.partition_epoch,
            isr: isr.iter().map(|id| (*id, progress.broker_epoch(*id))).collect(),
        };
        match self.owner.controller.alter_partition(&alter) {
            Ok(image) => {
                tracing::debug!(topic = %self.topic, partition = self.key.index, isr = ?image.isr, "in-sync replicas changed");
                self.apply_locked(inner, &image, now);
            }
            Err(code) => {
                tracing::debug!(topic = %self.topic, partition = self.key.index, code = code.name(), "change of in-sync replicas refused");
            }
        }
    }

    /// Removes followers that have lagged for `lag` from the in-sync replicas.
    pub(crate) fn shrink_isr(&self, lag: Duration, now: Instant) {
        let mut inner = self.inner.lock();
        let Some(progress) = &inner.leading else { return };
        let late = progress.lagging(&inner.image.isr, inner.log.end_offset(), lag, now);
        if late.is_empty() {
            return;
        }
        let isr: Vec<i32> =
            inner.image.isr.iter().copied().filter(|id| !late.contains(id)).collect();
        self.change_isr(&mut inner, &isr, now);
    }

    /// Registers a wait for any change.
    pub(crate) fn wait_for_news(&self, reader: Reader, id: u64, wait: &Arc<Wait>) {
        self.inner.lock().fetches.add(reader, id, wait);
    }

    /// Removes a registration.
    pub(crate) fn stop_waiting(&self, id: u64) {
        self.inner.lock().fetches.remove(id);
    }

    /// Applies retention and removes inactive producers.
    pub(crate) fn upkeep(&self, now_ms: i64) {
        let mut inner = self.inner.lock();
        inner.log.expire_producers(now_ms);
        let up_to = inner.high_watermark;
        if let Err(error) = inner.log.apply_retention(now_ms, up_to) {
            tracing::error!(topic = %self.topic, partition = self.key.index, error = %Report::new(&error), "old segments were not deleted");
        }
    }

    /// Syncs the log if `flush.ms` have passed since the last time.
    pub(crate) fn flush_if_due(&self, now_ms: i64) {
        let mut inner = self.inner.lock();
        if inner.gone.is_some() || inner.log.is_offline() {
            return;
        }
        if let Err(error) = inner.log.flush_if_due(now_ms) {
            tracing::error!(topic = %self.topic, partition = self.key.index, error = %Report::new(&error), "log was not flushed");
        }
    }

    /// `max.message.bytes` of the log.
    pub(crate) fn max_message_bytes(&self) -> usize {
        self.inner.lock().log.config().max_message_bytes
    }

    /// The log start offset.
    pub(crate) fn log_start(&self) -> i64 {
        self.inner.lock().log.start_offset()
    }

    /// Returns the state of its producers, as the leader (DescribeProducers).
    pub(crate) fn active_producers(&self) -> Result<Vec<ActiveProducer>, NotServed> {
        let inner = self.inner.lock();
        if inner.leading.is_none() {
            return Err(Self::not_led(&inner));
        }
        Ok(inner.log.active_producers().collect())
    }

    /// Ends the replica: all waiting requests are woken, and its files may be removed.
    pub(crate) fn delete(&self, why: Gone) {
        let mut inner = self.inner.lock();
        inner.gone = Some(why);
        inner.leading = None;
        inner.acks.all();
        inner.deletions.all();
        inner.fetches.news();
    }

    /// Writes everything that a clean shutdown preserves.
    pub(crate) fn close(&self) -> Result<(), AppendError> {
        let mut inner: MutexGuard<'_, Inner> = self.inner.lock();
        inner.log.close()?;
        Ok(())
    }
}
