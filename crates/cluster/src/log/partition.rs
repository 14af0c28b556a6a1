//! [`PartitionLog`]: appending, rolling, truncating and deleting.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use curtail_wire::records::{
    Batch, BatchHeader, EndTxnMarker, TimestampType, batches, encode_end_txn_marker,
    set_base_offset_and_epoch, set_log_append_time,
};
use curtail_wire::{ErrorCode, Report};

use super::cache::TailCache;
use super::checkpoint::{CleanMark, write_clean_mark, write_log_start};
use super::epochs::LeaderEpochs;
use super::producers::{ActiveProducer, Origin, Producers};
use super::segment::{NO_TIMESTAMP, Segment, segment_path};
use super::transactions::{EndTxn, LogBatch, VerificationGuard, Verifications};
use super::{AppendError, Appended, FollowerAppended, LogConfig, LogError, append};
use crate::{config::Plant, disk::Disk};

/// The end of a transaction, as sent by its coordinator to the leaders of its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxnMarker {
    /// The producer of the transaction.
    pub producer_id: i64,
    /// The producer's epoch from then on.
    pub producer_epoch: i16,
    /// Commit or abort.
    pub result: EndTxnMarker,
    /// The coordinator's epoch.
    pub coordinator_epoch: i32,
    /// Whether the producer's epoch increases with every transaction (transaction version 2).
    pub bumped: bool,
}

/// The log of one partition.
///
/// All methods block on the disk. A failed write is undone. If undoing it fails too, or a change of
/// several files stops half-way, the log goes offline: it can be read, refuses every change, and is
/// repaired when it is reopened.
pub struct PartitionLog {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) config: LogConfig,
    /// By base offset, without gaps; never empty. Appends go to the last one.
    pub(super) segments: Vec<Segment>,
    pub(super) start_offset: i64,
    pub(super) end_offset: i64,
    pub(super) epochs: LeaderEpochs,
    pub(super) producers: Producers,
    pub(super) verifications: Verifications,
    pub(super) cache: TailCache,
    pub(super) offline: bool,
    /// Whether compaction, here or on another replica, may have left gaps between batches.
    pub(super) may_have_gaps: bool,
    /// Records below this offset have been compared by the cleaner.
    pub(super) cleaned_to: i64,
    /// Records below this offset have been synced.
    pub(super) flushed_to: i64,
    /// When [`PartitionLog::flush_if_due`] last flushed, or was first called after another sync.
    pub(super) flushed_ms: Option<i64>,
    /// Increases when segments are removed or cut, so that a cleaning notices it.
    pub(super) version: u64,
}

impl std::fmt::Debug for PartitionLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionLog")
            .field("dir", &self.dir)
            .field("start_offset", &self.start_offset)
            .field("end_offset", &self.end_offset)
            .field("segments", &self.segments.len())
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

impl PartitionLog {
    /// First offset that may be read.
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// The offset of the next record.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// Bytes of all segments, without indexes.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(Segment::size).sum()
    }

    /// Number of segments.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The directory of the log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The settings of the log.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Replaces the settings. They apply from the next operation on, except for the size of the
    /// tail cache.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config;
    }

    /// Whether the log refuses changes after a failed write.
    pub fn is_offline(&self) -> bool {
        self.offline
    }

    /// The latest leader epoch in the log.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.latest().map(|entry| entry.epoch)
    }

    /// Returns the end of `epoch` in this log, as in OffsetsForLeaderEpoch (KIP-320): the largest
    /// known epoch up to the requested one and its end offset, or `(-1, -1)` if the end is unknown.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i32, i64) {
        self.epochs.end_offset_for(epoch, self.end_offset)
    }

    /// Returns the epoch of the record at `offset`, or `None` if it precedes every known epoch.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.epochs.covering(offset).map(|(entry, _)| entry.epoch)
    }

    /// Number of known idempotent producers.
    pub fn producer_count(&self) -> usize {
        self.producers.len()
    }

    /// Removes producers that have been inactive for `producer.id.expiration.ms` outside a
    /// transaction. Returns their number.
    pub fn expire_producers(&mut self, now_ms: i64) -> usize {
        self.verifications.expire(now_ms, self.config.producer_id_expiration_ms);
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
    }

    /// Removes all producers outside a transaction. Verifications in progress stay. Returns the number of the producers.
    pub fn forget_producers(&mut self) -> usize {
        self.producers.expire(i64::MAX, self.config.producer_id_expiration_ms)
    }

    /// Returns the state of each producer (DescribeProducers).
    pub fn active_producers(&self) -> impl Iterator<Item = ActiveProducer> {
        self.producers.active()
    }

    /// The first offset in an open transaction, or in one whose marker is not known to be
    /// committed; `None` if there is no such transaction. `read_committed` readers see nothing from
    /// this offset on.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        self.producers.transactions.first_unstable().map(|first| first.max(self.start_offset))
    }

    /// Records that everything below `high_watermark` is committed, including the markers there.
    pub fn committed_to(&mut self, high_watermark: i64) {
        self.producers.transactions.committed_to(high_watermark);
    }

    /// Begins the verification of the first batch of a transaction in this partition. The returned
    /// guard allows the append. `None` means that there is nothing to verify: the batch is not
    /// transactional or invalid, or its transaction is already open.
    pub fn begin_verification(&mut self, batch: &[u8], now_ms: i64) -> Option<VerificationGuard> {
        let header = BatchHeader::parse(batch).ok()?;
        let needed = header.is_transactional()
            && header.producer_id >= 0
            && !self.producers.has_open(header.producer_id, header.producer_epoch);
        needed.then(|| self.verifications.begin(&header, now_ms))
    }

    /// Returns whether a guard is still valid: the producer has not appended and no marker has
    /// arrived since.
    pub fn is_verifying(&self, producer_id: i64, guard: VerificationGuard) -> bool {
        self.verifications.holds(producer_id, Some(guard))
    }

    /// Appends one batch from a producer with the next offsets and `leader_epoch`.
    ///
    /// The batch is checked (format, checksum, counts, sequence numbers) before anything is
    /// written. A duplicate returns the earlier append's offsets without writing again. Costs one
    /// write to the file.
    ///
    /// # Errors
    /// [`AppendError`] with the code for the response; the log is unchanged.
    pub fn append_as_leader(
        &mut self,
        batch: Bytes,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.append_from(Origin::Client, batch, None, leader_epoch, now_ms)
    }

    /// Like [`PartitionLog::append_as_leader`], for a batch of any origin. A batch that begins a
    /// transaction here needs the guard of its verification ([`PartitionLog::begin_verification`]).
    ///
    /// # Errors
    /// [`AppendError`] with the code for the response; the log is unchanged.
    pub fn append_from(
        &mut self,
        origin: Origin,
        batch: Bytes,
        guard: Option<VerificationGuard>,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.check_leader_epoch(leader_epoch)?;
        let (header, batch) = append::validate(batch, &self.dir, &self.config, now_ms, origin)?;
        let earlier = self.producers.check(&header, origin, guard, &self.verifications)?;
        if let Some(earlier) = earlier {
            let stamps_time = self.config.timestamp_type == TimestampType::LogAppendTime;
            return Ok(Appended {
                base_offset: earlier.base_offset(),
                last_offset: earlier.last_offset,
                log_append_time_ms: if stamps_time { earlier.timestamp } else { -1 },
                duplicate: true,
            });
        }
        let appended =
            self.append_checked(LogBatch { header, end: None }, batch, leader_epoch, now_ms)?;
        if header.is_transactional() {
            self.verifications.end(header.producer_id);
        }
        Ok(appended)
    }

    /// Appends the marker that ends a producer's transaction. A marker without an open transaction
    /// is appended too, because it raises the producer's epoch.
    ///
    /// # Errors
    /// [`AppendError`]: INVALID_PRODUCER_EPOCH for an epoch older than the producer's, or with
    /// `bumped` for a transaction that has already ended
    /// ([KIP-890](https://cwiki.apache.org/confluence/x/B40ODg)). TRANSACTION_COORDINATOR_FENCED
    /// for an older coordinator. Otherwise a failure of the disk.
    pub fn append_marker(
        &mut self,
        marker: &TxnMarker,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.check_leader_epoch(leader_epoch)?;
        let TxnMarker { producer_id, producer_epoch, result, coordinator_epoch, bumped } = *marker;
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, bumped)?;
        let invalid = |text: String| AppendError::new(ErrorCode::INVALID_RECORD, text);
        let bytes =
            encode_end_txn_marker(result, producer_id, producer_epoch, coordinator_epoch, now_ms)
                .map_err(|error| invalid(error.to_string()))?;
        let header = BatchHeader::parse(&bytes).map_err(|error| invalid(error.to_string()))?;
        let end = Some(EndTxn { marker: result, coordinator_epoch });
        let batch = LogBatch { header, end };
        let appended = self.append_checked(batch, bytes.into(), leader_epoch, now_ms)?;
        self.verifications.end(producer_id);
        Ok(appended)
    }

    fn check_leader_epoch(&self, leader_epoch: i32) -> Result<(), AppendError> {
        self.check_online()?;
        if self.latest_epoch().is_some_and(|latest| leader_epoch < latest) {
            let message =
                format!("leader epoch {leader_epoch} has ended: {:?}", self.latest_epoch());
            return Err(AppendError::new(ErrorCode::FENCED_LEADER_EPOCH, message));
        }
        Ok(())
    }

    /// Assigns the next offsets to a batch and writes it.
    fn append_checked(
        &mut self,
        mut batch: LogBatch,
        bytes: Bytes,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        let stamps_time = self.config.timestamp_type == TimestampType::LogAppendTime;
        let header = &mut batch.header;
        if self.end_offset.checked_add(i64::from(header.record_count)).is_none() {
            return Err(AppendError::new(ErrorCode::INVALID_RECORD, "the log is out of offsets"));
        }
        header.base_offset = self.end_offset;
        header.partition_leader_epoch = leader_epoch;
        let mut bytes = append::own(bytes);
        set_base_offset_and_epoch(&mut bytes, self.end_offset, leader_epoch);
        if stamps_time {
            set_log_append_time(&mut bytes, now_ms);
            header.max_timestamp = now_ms;
        }
        self.epochs.assign(leader_epoch, self.end_offset);
        let bytes = bytes.freeze();
        self.write(&[batch], &bytes)?;
        self.cache.push(&batch.header, bytes);
        Ok(Appended {
            base_offset: batch.header.base_offset,
            last_offset: batch.header.last_offset(),
            log_append_time_ms: if stamps_time { now_ms } else { -1 },
            duplicate: false,
        })
    }

    /// Appends the batches of a leader's Fetch response unchanged. A last batch that is cut off is
    /// ignored.
    ///
    /// # Errors
    /// [`AppendError`] if a batch is corrupt (CORRUPT_MESSAGE), does not continue the log
    /// (OFFSET_OUT_OF_RANGE), or cannot be written. Earlier batches may have been appended: see
    /// [`PartitionLog::end_offset`].
    pub fn append_as_follower(&mut self, records: Bytes) -> Result<FollowerAppended, AppendError> {
        self.check_online()?;
        let start = self.start_offset;
        self.begin_before_the_start(&records)?;
        let base_offset = self.end_offset;
        let mut appended =
            FollowerAppended { base_offset, end_offset: base_offset, bytes: 0, batches: 0 };
        let limit = self.config.segment_bytes.min(i32::MAX as u64);
        // Batches for the same segment share one write.
        let mut run: Vec<LogBatch> = Vec::new();
        let (mut run_start, mut run_end) = (0, 0);
        let mut outcome = Ok(());
        let mut expected = base_offset;
        let all = records.clone();
        for batch in batches(records) {
            let verify = self.config.plant != Some(Plant::ReplicateCorruptBatches);
            let latest = self.latest_epoch();
            let checked = check_replicated(batch, expected, latest, run.last(), verify);
            let batch = match checked {
                Ok(batch) => batch,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            let header = batch.header;
            if header.base_offset > expected {
                self.allow_gaps()?;
            }
            let size = header.size_in_bytes();
            let epoch_changes = run.last().map(|last| last.header.partition_leader_epoch)
                != Some(header.partition_leader_epoch);
            let run_bytes = run_end - run_start;
            let overflows = self.active().size() + (run_bytes + size) as u64 > limit;
            if !run.is_empty() && (epoch_changes || overflows) {
                self.write_run(&mut run, &all.slice(run_start..run_end), &mut appended)?;
                run_start = run_end;
            }
            run.push(batch);
            run_end += size;
            expected = header.last_offset() + 1;
        }
        self.write_run(&mut run, &all.slice(run_start..run_end), &mut appended)?;
        self.delete_before(start)?;
        outcome.map(|()| appended)
    }

    /// Moves an empty log's start back to the base offset of the first fetched batch if the start
    /// lies within that batch. A leader sends whole batches, but DeleteRecords may have moved the
    /// log start into the middle of one. Kafka's followers do the same.
    fn begin_before_the_start(&mut self, records: &Bytes) -> Result<(), LogError> {
        if self.start_offset < self.end_offset {
            return Ok(());
        }
        let Some(Ok(first)) = batches(records.clone()).next() else { return Ok(()) };
        let header = first.header;
        if header.base_offset < self.start_offset && self.start_offset <= header.last_offset() {
            self.truncate_fully_and_start_at(header.base_offset)?;
        }
        Ok(())
    }

    fn write_run(
        &mut self,
        run: &mut Vec<LogBatch>,
        bytes: &[u8],
        appended: &mut FollowerAppended,
    ) -> Result<(), AppendError> {
        let Some(LogBatch { header: first, .. }) = run.first() else { return Ok(()) };
        self.epochs.assign(first.partition_leader_epoch, first.base_offset);
        self.write(run, bytes)?;
        self.cache.extend_copied(run, bytes);
        appended.end_offset = self.end_offset;
        appended.bytes += bytes.len();
        appended.batches += run.len();
        run.clear();
        Ok(())
    }

    /// Writes checked batches to one segment with one write.
    fn write(&mut self, batches: &[LogBatch], bytes: &[u8]) -> Result<(), LogError> {
        let last_offset = batches.last().map_or(self.end_offset, |last| last.header.last_offset());
        let segment_bytes = self.config.segment_bytes;
        let has_room = self.active().has_room(bytes.len(), last_offset, segment_bytes);
        let is_full = self.active().has_full_index(self.config.index_bytes);
        if !has_room || is_full || self.is_of_age(batches) {
            self.roll()?;
        }
        let mut position = self.active().size();
        self.write_bytes(bytes, last_offset + 1)?;
        let interval = self.config.index_interval_bytes;
        let Some(active) = self.segments.last_mut() else { return Ok(()) };
        for batch in batches {
            active.marks.track(&batch.header, position, interval);
            if let Some((txn, last_stable)) = self.producers.update(batch) {
                active.marks.ended(&txn, last_stable);
            }
            position += batch.size_in_bytes() as u64;
        }
        self.end_offset = last_offset + 1;
        if active.marks.offsets.wants_write() {
            // An incomplete index is rebuilt, so its failure must not refuse the records.
            if let Err(error) = active.marks.write(self.disk.as_ref()) {
                tracing::warn!(error = %Report::new(&error), "cannot write the index");
            }
        }
        Ok(())
    }

    /// Whether the active segment is too old for these batches (`segment.ms`). In a compacted log no
    /// record may wait longer than `max.compaction.lag.ms` for the end of its segment.
    fn is_of_age(&self, batches: &[LogBatch]) -> bool {
        let most = match (self.config.compacted, self.config.compaction.max_lag_ms) {
            (true, lag) if lag > 0 => lag.min(self.config.segment_ms),
            _ => self.config.segment_ms,
        };
        let latest = batches.iter().map(|batch| batch.header.max_timestamp).max();
        let (Some(latest), Some(first)) = (latest, self.active().first_timestamp()) else {
            return false;
        };
        first >= 0 && latest.saturating_sub(first) > most - self.jitter_ms()
    }

    /// Returns the part of `segment.jitter.ms` by which the active segment ends earlier. It follows from
    /// the names of the log and the segment, so that a restart does not change it.
    pub(super) fn jitter_ms(&self) -> i64 {
        let most = self.config.segment_jitter_ms.min(self.config.segment_ms);
        if most <= 0 {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (self.dir.file_name(), self.active().base_offset).hash(&mut hasher);
        (hasher.finish() % most.unsigned_abs()) as i64
    }

    /// Writes bytes whose records end before `end`.
    fn write_bytes(&mut self, bytes: &[u8], end: i64) -> Result<(), LogError> {
        let unflushed = end - self.flushed_to.min(self.end_offset);
        let flush =
            unflushed >= self.config.flush_messages && self.config.plant != Some(Plant::SkipFlush);
        let Some(active) = self.segments.last_mut() else { return Ok(()) };
        let before = active.size();
        active.dirty = true;
        let appended = active.file.append(bytes).map_err(|source| active.io(source));
        let written =
            appended.and_then(|()| if flush { self.sync_or_offline(end) } else { Ok(()) });
        let (Err(error), Some(active)) = (written, self.segments.last_mut()) else { return Ok(()) };
        active.dirty = true;
        if let Err(undo) = active.file.truncate(before) {
            tracing::error!(%undo, dir = %self.dir.display(), "log goes offline");
            self.offline = true;
        }
        Err(error)
    }

    /// Syncs the files of all records, which end before `end`. If records were accepted without a sync and
    /// this one fails, the log goes offline: the system may have dropped them, and a later sync would
    /// succeed. A broker ends with its disk (decision 0046), but not at once, and not if the disk is full.
    fn sync_or_offline(&mut self, end: i64) -> Result<(), LogError> {
        let synced = self.sync_segments(end);
        self.offline |= synced.is_err() && self.flushed_to < self.end_offset;
        synced
    }

    /// Syncs the files of all records, which end before `end`.
    fn sync_segments(&mut self, end: i64) -> Result<(), LogError> {
        self.segments.iter_mut().try_for_each(Segment::sync)?;
        self.sync_names()?;
        self.flushed_to = end;
        self.flushed_ms = None;
        Ok(())
    }

    /// Syncs the directory if it has the name of a segment that was not synced with it. As in Kafka after
    /// a roll: a synced file whose directory entry is not durable can still be lost.
    fn sync_names(&mut self) -> Result<(), LogError> {
        if self.segments.iter().any(|segment| !segment.named && segment.size() > 0) {
            self.disk.sync_dir(&self.dir).map_err(|source| LogError::io(&self.dir, source))?;
            self.segments.iter_mut().for_each(|segment| segment.named = true);
        }
        Ok(())
    }

    /// Starts a new segment at the end of the log.
    pub(super) fn roll(&mut self) -> Result<(), LogError> {
        let snapshot = segment_path(&self.dir, self.end_offset, "snapshot");
        self.disk
            .write_atomic(&snapshot, &self.producers.encode())
            .map_err(|source| LogError::io(&snapshot, source))?;
        self.epochs.catch_up(self.disk.as_ref(), self.may_have_gaps)?;
        let next = Segment::open(self.disk.as_ref(), &self.dir, self.end_offset)?;
        if let Some(active) = self.segments.last_mut() {
            active.marks.finish();
            if let Err(error) = active.marks.write(self.disk.as_ref()) {
                tracing::warn!(error = %Report::new(&error), "cannot write the index");
            }
        }
        self.segments.push(next);
        Ok(())
    }

    pub(super) fn active(&self) -> &Segment {
        // `segments` is never empty.
        &self.segments[self.segments.len() - 1]
    }

    pub(super) fn check_online(&self) -> Result<(), LogError> {
        if self.offline { Err(LogError::Offline { path: self.dir.clone() }) } else { Ok(()) }
    }

    /// Runs a change of several files. If it stops half-way, the log goes offline.
    pub(super) fn all_or_offline<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        self.check_online()?;
        let result = change(self);
        self.offline |= result.is_err();
        result
    }

    /// Syncs all appended bytes, and writes the indexes and the leader epochs.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails. The durable content is then unknown.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.check_online()?;
        for segment in &mut self.segments {
            segment.sync()?;
            segment.marks.write(self.disk.as_ref())?;
        }
        self.epochs.catch_up(self.disk.as_ref(), self.may_have_gaps)?;
        self.sync_names()?;
        self.flushed_to = self.end_offset;
        Ok(())
    }

    /// Flushes the log if `flush.ms` have passed since the last sync, or since the first call after it.
    /// Returns whether it did.
    ///
    /// # Errors
    /// As [`PartitionLog::flush`]; the log is then offline.
    pub fn flush_if_due(&mut self, now_ms: i64) -> Result<bool, LogError> {
        let since = *self.flushed_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since) < self.config.flush_ms {
            return Ok(false);
        }
        self.all_or_offline(Self::flush)?;
        self.flushed_ms = Some(now_ms);
        Ok(true)
    }

    /// Flushes the log and marks it as cleanly closed, so that opening it need not verify every
    /// batch. The log refuses changes afterwards.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails. The next opening then verifies every batch.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.flush()?;
        self.offline = true;
        let mark = CleanMark { end_offset: self.end_offset, indexes: self.index_checksum() };
        write_clean_mark(self.disk.as_ref(), &self.dir, mark)
    }

    /// Returns the CRC-32C of the index entries of all segments that the next opening keeps.
    pub(super) fn index_checksum(&self) -> u32 {
        let below = self.segments.partition_point(|next| next.base_offset <= self.start_offset);
        let kept = &self.segments[below.saturating_sub(1)..];
        kept.iter().fold(0, |crc, segment| segment.marks.checksum(crc))
    }

    /// Removes all records from `offset` on, in whole batches: the log ends with the last batch that
    /// ends before it. Epochs and producer state are truncated too. Returns the new end offset.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails; the log is then offline.
    pub fn truncate_to(&mut self, offset: i64) -> Result<i64, LogError> {
        self.check_online()?;
        if offset >= self.end_offset {
            return Ok(self.end_offset);
        }
        if offset <= self.segments[0].base_offset {
            self.truncate_fully_and_start_at(offset)?;
            return Ok(self.end_offset);
        }
        self.all_or_offline(|log| log.cut_at(offset))?;
        Ok(self.end_offset)
    }

    fn cut_at(&mut self, offset: i64) -> Result<(), LogError> {
        // From the end, so that a crash in between leaves no gap.
        while self.segments.len() > 1 && self.active().base_offset > offset {
            self.remove_last_segment()?;
        }
        let interval = self.config.index_interval_bytes;
        let Some(active) = self.segments.last_mut() else { return Ok(()) };
        self.end_offset = active.truncate_to(offset, interval).map_err(|error| match error {
            super::ReadError::Storage(error) => error,
            other => LogError::invalid(&active.path, Report::new(&other).to_string()),
        })?;
        if self.start_offset > self.end_offset {
            write_log_start(self.disk.as_ref(), &self.dir, self.end_offset)?;
            self.start_offset = self.end_offset;
        }
        self.version += 1;
        self.flushed_to = self.flushed_to.min(self.end_offset);
        self.cleaned_below(self.end_offset)?;
        self.cache.truncate_to(self.end_offset);
        if self.epochs.truncate_from_end(self.end_offset) {
            self.epochs.write(self.disk.as_ref())?;
        }
        self.verifications.clear();
        self.reload_producers()?;
        Ok(())
    }

    pub(super) fn remove_last_segment(&mut self) -> Result<(), LogError> {
        let Some(segment) = self.segments.pop() else { return Ok(()) };
        self.remove_segment_files(&segment)
    }

    pub(super) fn remove_segment_files(&self, segment: &Segment) -> Result<(), LogError> {
        for extension in ["log", "index", "timeindex", "txnindex"] {
            let path = segment_path(&self.dir, segment.base_offset, extension);
            if self.disk.exists(&path) {
                self.disk.remove_file(&path).map_err(|source| LogError::io(&path, source))?;
            }
        }
        Ok(())
    }

    /// Removes every record; the empty log then starts at `offset`. A follower needs this if its
    /// leader no longer has the follower's next records.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails; the log is then offline.
    pub fn truncate_fully_and_start_at(&mut self, offset: i64) -> Result<(), LogError> {
        self.all_or_offline(|log| {
            // First the new start: with it, recovery discards segments that a crash restores.
            write_log_start(log.disk.as_ref(), &log.dir, offset)?;
            while !log.segments.is_empty() {
                log.remove_last_segment()?;
            }
            log.cache.truncate_to(i64::MIN);
            log.epochs.clear();
            log.epochs.write(log.disk.as_ref())?;
            log.producers = Producers::default();
            log.verifications.clear();
            log.remove_snapshots(|_| true)?;
            log.version += 1;
            log.start_offset = offset;
            log.end_offset = offset;
            log.flushed_to = offset;
            log.cleaned_below(offset)?;
            log.segments.push(Segment::open(log.disk.as_ref(), &log.dir, offset)?);
            Ok(())
        })
    }

    /// Makes `offset` the first readable one (at most the end offset, never moving back) and
    /// removes the segments that end before it. Returns the new start offset.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails.
    pub fn delete_before(&mut self, offset: i64) -> Result<i64, LogError> {
        self.check_online()?;
        let offset = offset.min(self.end_offset);
        if offset <= self.start_offset {
            return Ok(self.start_offset);
        }
        // First the new start: readers must not see the records even if removing files fails.
        write_log_start(self.disk.as_ref(), &self.dir, offset)?;
        self.start_offset = offset;
        if self.epochs.truncate_from_start(offset) {
            self.epochs.write(self.disk.as_ref())?;
        }
        while self.segments.get(1).is_some_and(|next| next.base_offset <= offset) {
            let first = self.segments.remove(0);
            self.version += 1;
            self.remove_segment_files(&first)?;
        }
        let first_base = self.segments[0].base_offset;
        self.remove_snapshots(|snapshot| snapshot < first_base)?;
        Ok(self.start_offset)
    }

    /// Deletes the oldest segments that exceed `retention.ms` or `retention.bytes`, but none with
    /// offsets at or above `up_to` (the high watermark). Returns their number.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails.
    pub fn apply_retention(&mut self, now_ms: i64, up_to: i64) -> Result<usize, LogError> {
        self.check_online()?;
        let mut excess =
            self.config.retention_bytes.map_or(0, |kept| self.size_bytes().saturating_sub(kept));
        let mut delete = 0;
        for (at, segment) in self.segments.iter().enumerate() {
            let end = self.segments.get(at + 1).map_or(self.end_offset, |next| next.base_offset);
            let expired = self.config.retention_ms.is_some_and(|kept| {
                segment.marks.max_timestamp > NO_TIMESTAMP
                    && now_ms.saturating_sub(segment.marks.max_timestamp) > kept
            });
            let too_many = excess > 0 && excess >= segment.size();
            if segment.size() == 0 || end > up_to || !(expired || too_many) {
                break;
            }
            excess = excess.saturating_sub(segment.size());
            delete = at + 1;
        }
        if delete == 0 {
            return Ok(0);
        }
        if self.config.plant == Some(Plant::RetainTooLittle) {
            delete = delete.max(self.segments.len() - 1);
        }
        if delete == self.segments.len() {
            self.roll()?;
        }
        let new_start = self.segments[delete].base_offset;
        self.delete_before(new_start)?;
        Ok(delete)
    }
}

/// Checks that a batch from a leader is whole and intact, and continues the log.
fn check_replicated(
    batch: Result<Batch, curtail_wire::records::RecordError>,
    expected: i64,
    latest_epoch: Option<i32>,
    before: Option<&LogBatch>,
    verify: bool,
) -> Result<LogBatch, AppendError> {
    let corrupt = |message: String| AppendError::new(ErrorCode::CORRUPT_MESSAGE, message);
    let batch = batch.map_err(|error| corrupt(Report::new(&error).to_string()))?;
    if verify {
        batch.verify_crc().map_err(|error| corrupt(error.to_string()))?;
    }
    let header = batch.header;
    if header.last_offset() == i64::MAX {
        return Err(corrupt("the last offset has no successor".to_owned()));
    }
    // The leader's log may have gaps: it sends the next batch.
    if header.base_offset < expected {
        let message = format!("batch at offset {}, expected {expected}", header.base_offset);
        return Err(AppendError::new(ErrorCode::OFFSET_OUT_OF_RANGE, message));
    }
    let epoch = before.map_or(latest_epoch, |before| Some(before.header.partition_leader_epoch));
    if epoch.is_some_and(|epoch| header.partition_leader_epoch < epoch) {
        return Err(corrupt(format!(
            "batch of leader epoch {} after epoch {epoch:?}",
            header.partition_leader_epoch
        )));
    }
    LogBatch::of(&batch).map_err(|error| corrupt(Report::new(&error).to_string()))
}
