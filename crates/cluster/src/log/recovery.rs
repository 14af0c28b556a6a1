//! Opening a log: from its indexes after a clean shutdown, otherwise by reading every batch.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use curtail_wire::records::Batch;

use super::cache::TailCache;
use super::checkpoint::{
    CleanMark, CleanedTo, read_cleaned, read_log_start, read_optional, take_clean_mark,
    write_log_start,
};
use super::cleaner::CLEANED;
use super::epochs::LeaderEpochs;
use super::producers::Producers;
use super::segment::{Segment, offset_in_name, scan, segment_path};
use super::transactions::{LogBatch, Verifications};
use super::{LogConfig, LogError, PartitionLog, Recovery};
use crate::{config::Plant, disk::Disk};

impl PartitionLog {
    /// Opens the log in `dir`, or creates it, and repairs the effects of a crash. A torn or corrupt
    /// batch is cut off with everything after it, indexes are rebuilt, and leader epochs and
    /// producer state are restored.
    ///
    /// After [`PartitionLog::close`] only the last batches and the active segment are read;
    /// otherwise all.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        config: LogConfig,
    ) -> Result<(Self, Recovery), LogError> {
        disk.create_dir_all(&dir).map_err(|source| LogError::io(&dir, source))?;
        let bases = offsets_of(disk.as_ref(), &dir, "log")?;
        let epochs = LeaderEpochs::load(disk.as_ref(), &dir)?;
        let mut log_start = read_log_start(disk.as_ref(), &dir)?;
        if log_start.is_none() {
            log_start = start_without_checkpoint(&bases, &epochs);
            if let Some(start) = log_start {
                // The epochs may change later and then no longer reveal the start.
                write_log_start(disk.as_ref(), &dir, start)?;
            }
        }
        let bases = match config.plant {
            Some(Plant::BeginWithGap) => bases,
            _ => remove_unfounded(disk.as_ref(), &dir, bases, log_start.unwrap_or(0))?,
        };
        let cleaned = read_cleaned(disk.as_ref(), &dir)?;
        let bases = match cleaned {
            Some(CleanedTo { replaced, .. }) => {
                remove_replaced(disk.as_ref(), &dir, bases, replaced)?
            }
            None => bases,
        };
        remove_leftovers(disk.as_ref(), &dir, &bases)?;
        let mark = take_clean_mark(disk.as_ref(), &dir)?;
        let cache = TailCache::new(config.tail_cache_bytes);
        let first = bases.first().copied().or(log_start).unwrap_or(0);
        let mut segments = Vec::with_capacity(bases.len().max(1));
        for base in bases {
            segments.push(Segment::open(disk.as_ref(), &dir, base)?);
        }
        if segments.is_empty() {
            segments.push(Segment::open(disk.as_ref(), &dir, first)?);
        }
        let mut log = Self {
            disk,
            dir,
            config,
            segments,
            start_offset: first,
            end_offset: first,
            epochs,
            producers: Producers::default(),
            verifications: Verifications::default(),
            cache,
            offline: false,
            may_have_gaps: cleaned.is_some(),
            cleaned_to: cleaned.map_or(first, |cleaned| cleaned.offset),
            flushed_to: first,
            flushed_ms: None,
            version: 0,
        };
        let mut recovery = Recovery::default();
        recovery.clean = log.open_clean(mark, &mut recovery)?;
        if recovery.clean {
            log.flushed_to = log.end_offset;
        } else {
            log.recover(&mut recovery)?;
        }
        let start = log_start.unwrap_or(first).max(first);
        if start > log.end_offset {
            // Like Kafka: offsets below the start were assigned before, and the leader has no
            // records there.
            log.truncate_fully_and_start_at(start)?;
        }
        log.start_offset = start;
        if log.cleaned_to > log.end_offset {
            // As in Kafka: records have been lost, so that the rest is compared again.
            log.cleaned_to = start;
        }
        if log.epochs.truncate_from_end(log.end_offset) {
            log.epochs.write(log.disk.as_ref())?;
        }
        let end = log.end_offset;
        log.remove_snapshots(|offset| offset > end)?;
        Ok((log, recovery))
    }

    /// Uses the existing indexes if they match the ends of the segments and the mark of the clean
    /// shutdown.
    fn open_clean(
        &mut self,
        mark: Option<CleanMark>,
        recovery: &mut Recovery,
    ) -> Result<bool, LogError> {
        let Some(mark) = mark else { return Ok(false) };
        let interval = self.config.index_interval_bytes;
        let mut end = self.segments[0].base_offset;
        let last = self.segments.len() - 1;
        for (at, segment) in self.segments.iter_mut().enumerate() {
            if segment.base_offset != end || !segment.load_indexes(self.disk.as_ref()) {
                return Ok(false);
            }
            let entries = segment.marks.entry_count();
            let Some(segment_end) = segment.replay_tail(interval)? else { return Ok(false) };
            if at < last {
                segment.marks.finish();
            }
            if segment.marks.entry_count() != entries {
                // The index files lack entries, so the clean shutdown mark cannot be trusted.
                return Ok(false);
            }
            end = segment_end;
        }
        if (CleanMark { end_offset: end, indexes: self.index_checksum() }) != mark {
            return Ok(false);
        }
        self.end_offset = end;
        let (batches, records) = self.reload_producers()?;
        recovery.batches_scanned = batches;
        recovery.records_scanned = records;
        Ok(true)
    }

    /// Reads every batch from the start and ends the log before the first invalid one.
    fn recover(&mut self, recovery: &mut Recovery) -> Result<(), LogError> {
        let first = self.segments[0].base_offset;
        self.end_offset = first;
        self.producers =
            self.snapshot_at_or_before(first)?.map(|(_, state)| state).unwrap_or_default();
        let mut sound = 0;
        for at in 0..self.segments.len() {
            if self.segments[at].base_offset != self.end_offset {
                break;
            }
            sound = at + 1;
            if !self.recover_segment(at, recovery)? {
                break;
            }
        }
        while self.segments.len() > sound {
            recovery.truncated_bytes += self.active().size();
            self.remove_last_segment()?;
        }
        self.epochs.catch_up(self.disk.as_ref(), self.may_have_gaps)?;
        let last = self.segments.len() - 1;
        for (at, segment) in self.segments.iter_mut().enumerate() {
            if at < last {
                segment.marks.finish();
            }
            let rebuilt = segment.marks.restore_files(self.disk.as_ref())?;
            recovery.indexes_rebuilt += u32::from(rebuilt && segment.size() > 0);
        }
        Ok(())
    }

    /// Reads one segment that starts at the end offset and cuts off everything invalid. Returns
    /// `false` if something was cut off.
    fn recover_segment(&mut self, at: usize, recovery: &mut Recovery) -> Result<bool, LogError> {
        let interval = self.config.index_interval_bytes;
        let verify = self.config.plant != Some(Plant::RecoverWithoutChecksum);
        let limit = self.segments.get(at + 1).map_or(i64::MAX, |next| next.base_offset);
        let gaps = self.may_have_gaps;
        let segment = &mut self.segments[at];
        segment.marks.reset();
        segment.dirty = true;
        let end = scan(segment.file.as_ref(), 0, |position, batch| {
            let base = batch.header.base_offset;
            let expected = match gaps {
                true if base >= self.end_offset && batch.header.last_offset() < limit => base,
                _ => self.end_offset,
            };
            if !is_next(batch, expected, &self.epochs, verify) {
                return ControlFlow::Break(());
            }
            let Ok(known) = LogBatch::of(batch) else { return ControlFlow::Break(()) };
            let header = &known.header;
            segment.marks.track(header, position, interval);
            if let Some((txn, last_stable)) = self.producers.update(&known) {
                segment.marks.ended(&txn, last_stable);
            }
            if self.epochs.latest().is_none_or(|last| last.epoch < header.partition_leader_epoch) {
                self.epochs.assign(header.partition_leader_epoch, header.base_offset);
            }
            self.end_offset = header.last_offset() + 1;
            recovery.batches_scanned += 1;
            recovery.records_scanned += u64::from(header.record_count.unsigned_abs());
            ControlFlow::Continue(())
        })
        .map_err(|source| LogError::io(&segment.path, source))?;
        let excess = segment.size() - end;
        recovery.truncated_bytes += excess;
        segment.file.truncate(end).map_err(|source| LogError::io(&segment.path, source))?;
        Ok(excess == 0)
    }

    /// Restores the producers' state from the newest snapshot before the active segment and the
    /// batches after it. Returns the numbers of batches and records read.
    pub(super) fn reload_producers(&mut self) -> Result<(u64, u64), LogError> {
        let end = self.end_offset;
        self.remove_snapshots(|offset| offset > end)?;
        let snapshot = self.snapshot_at_or_before(self.active().base_offset)?;
        let (from, mut producers) = snapshot.unwrap_or((i64::MIN, Producers::default()));
        let (mut batches, mut records) = (0, 0);
        for (at, segment) in self.segments.iter().enumerate() {
            if self.segments.get(at + 1).is_some_and(|next| next.base_offset <= from) {
                continue;
            }
            scan(segment.file.as_ref(), segment.position_before(from), |_, batch| {
                if batch.header.base_offset >= from {
                    let Ok(known) = LogBatch::of(batch) else { return ControlFlow::Break(()) };
                    producers.update(&known);
                    batches += 1;
                    records += u64::from(batch.header.record_count.unsigned_abs());
                }
                ControlFlow::Continue(())
            })
            .map_err(|source| segment.io(source))?;
        }
        self.producers = producers;
        Ok((batches, records))
    }

    /// Returns the newest readable snapshot of the producers' state at or before an offset, and its
    /// offset.
    pub(super) fn snapshot_at_or_before(
        &self,
        limit: i64,
    ) -> Result<Option<(i64, Producers)>, LogError> {
        let snapshots = offsets_of(self.disk.as_ref(), &self.dir, "snapshot")?;
        for offset in snapshots.into_iter().rev().filter(|&offset| offset <= limit) {
            let path = segment_path(&self.dir, offset, "snapshot");
            let bytes = read_optional(self.disk.as_ref(), &path)?;
            if let Some(producers) = bytes.and_then(|bytes| Producers::decode(&bytes)) {
                return Ok(Some((offset, producers)));
            }
        }
        Ok(None)
    }

    /// Removes the snapshots whose offsets satisfy `doomed`.
    pub(super) fn remove_snapshots(
        &self,
        mut doomed: impl FnMut(i64) -> bool,
    ) -> Result<(), LogError> {
        for offset in offsets_of(self.disk.as_ref(), &self.dir, "snapshot")? {
            if doomed(offset) {
                let path = segment_path(&self.dir, offset, "snapshot");
                self.disk.remove_file(&path).map_err(|source| LogError::io(&path, source))?;
            }
        }
        Ok(())
    }
}

/// Returns whether a batch on disk is intact and continues the log.
///
/// The checksum does not cover the base offset and the leader epoch, so both are compared with
/// known values. Offsets have no gaps unless the log has been compacted, and the checkpoint contains the
/// epoch of each offset. Only batches after the start of its last epoch may have a later one.
fn is_next(batch: &Batch, expected: i64, epochs: &LeaderEpochs, verify: bool) -> bool {
    let header = &batch.header;
    let follows = header.base_offset == expected && header.last_offset() < i64::MAX;
    if !follows || verify && batch.verify_crc().is_err() {
        return false;
    }
    match epochs.covering(header.base_offset) {
        Some((known, true)) => header.partition_leader_epoch == known.epoch,
        Some((known, false)) => header.partition_leader_epoch >= known.epoch,
        None => true,
    }
}

/// Returns the offsets in the names of files with this extension, in ascending order.
fn offsets_of(disk: &dyn Disk, dir: &Path, extension: &str) -> Result<Vec<i64>, LogError> {
    let paths = disk.list(dir).map_err(|source| LogError::io(dir, source))?;
    let mut offsets: Vec<i64> =
        paths.iter().filter_map(|path| offset_in_name(path, extension)).collect();
    offsets.sort_unstable();
    Ok(offsets)
}

/// Returns the start of a log that begins above 0 without a file `log-start-offset`, such as one
/// written by Kafka. It is the first segment, if the leader epochs begin there or later. Epochs
/// that begin earlier belong to lost segments.
fn start_without_checkpoint(bases: &[i64], epochs: &LeaderEpochs) -> Option<i64> {
    let first = bases.first().copied().filter(|first| *first > 0)?;
    epochs.first().filter(|epoch| epoch.start_offset >= first).map(|_| first)
}

/// Removes the segments that cannot belong to a log that starts at `start`. Returns the base
/// offsets of the others.
///
/// Segments wholly before the start were deleted, and a crash has restored them. If no segment
/// reaches down to the start, records have been lost. A replica that kept the rest could be
/// elected, and all replicas would then lose those records.
fn remove_unfounded(
    disk: &dyn Disk,
    dir: &Path,
    mut bases: Vec<i64>,
    start: i64,
) -> Result<Vec<i64>, LogError> {
    let below = bases.partition_point(|base| *base <= start);
    let sound = match below.checked_sub(1) {
        Some(first) => bases.split_off(first),
        None => Vec::new(),
    };
    if !bases.is_empty() {
        tracing::warn!(dir = %dir.display(), start, segments = ?bases, "segments removed that the log's start does not reach");
    }
    for base in bases {
        let path = segment_path(dir, base, "log");
        disk.remove_file(&path).map_err(|source| LogError::io(&path, source))?;
    }
    Ok(sound)
}

/// Removes the segments that a compacted one has replaced but a crash has kept. Returns the base offsets
/// of the others.
fn remove_replaced(
    disk: &dyn Disk,
    dir: &Path,
    bases: Vec<i64>,
    (from, to): (i64, i64),
) -> Result<Vec<i64>, LogError> {
    let is_within = |base: &i64| from < *base && *base < to;
    if bases.binary_search(&from).is_err() || !bases.iter().any(is_within) {
        return Ok(bases);
    }
    let segment = Segment::open(disk, dir, from)?;
    let mut end = from;
    scan(segment.file.as_ref(), 0, |_, batch| {
        end = batch.header.last_offset().saturating_add(1);
        ControlFlow::Continue(())
    })
    .map_err(|source| segment.io(source))?;
    if end != to {
        // The crash came before the replacement.
        return Ok(bases);
    }
    let (replaced, kept): (Vec<i64>, Vec<i64>) = bases.into_iter().partition(is_within);
    for base in replaced {
        let path = segment_path(dir, base, "log");
        disk.remove_file(&path).map_err(|source| LogError::io(&path, source))?;
    }
    disk.sync_dir(dir).map_err(|source| LogError::io(dir, source))?;
    Ok(kept)
}

/// Removes the remains of an interrupted change: unfinished files, and indexes without a segment.
fn remove_leftovers(disk: &dyn Disk, dir: &Path, bases: &[i64]) -> Result<(), LogError> {
    for path in disk.list(dir).map_err(|source| LogError::io(dir, source))? {
        let index =
            ["index", "timeindex", "txnindex"].iter().find_map(|name| offset_in_name(&path, name));
        let stray = index.is_some_and(|offset| bases.binary_search(&offset).is_err());
        let unfinished = path.extension().is_some_and(|ext| ext == "tmp" || ext == CLEANED);
        if stray || unfinished {
            disk.remove_file(&path).map_err(|source| LogError::io(&path, source))?;
        }
    }
    Ok(())
}
