//! Selects the records that compaction keeps, and writes a segment of them.

use std::path::{Path, PathBuf};

use curtail_wire::records::{
    Batch, BatchHeader, CompactError, DecompressLimit, RecordError, retain_records,
};

use super::CLEANED;
use super::keys::NewestOffsets;
use super::swap::Cleaned;
use crate::config::Plant;
use crate::disk::{Disk, DiskFile};
use crate::log::LogError;
use crate::log::producers::LastBatches;
use crate::log::segment::{Marks, segment_path};
use crate::log::transactions::AbortedEntry;

/// What decides about a record.
pub(super) struct Rules<'a> {
    pub(super) newest: &'a NewestOffsets,
    pub(super) producers: &'a LastBatches,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
    pub(super) plant: Option<Plant>,
    pub(super) index_interval: u32,
}

/// The records of a batch that stay.
struct Kept {
    /// For each record, whether it stays.
    flags: Vec<bool>,
    has_tombstone: bool,
}

impl Kept {
    fn any(&self) -> bool {
        self.flags.contains(&true)
    }

    fn all(&self) -> bool {
        !self.flags.contains(&false)
    }
}

impl Rules<'_> {
    /// Whether the batch has the state of its producer.
    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        let Some(last) = self.producers.get(&header.producer_id) else { return false };
        match last.last_offset {
            Some(last) => header.last_offset() == last,
            None => header.is_control() && header.producer_epoch == last.epoch,
        }
    }

    /// Whether the delete horizon of the batch has passed, so that its tombstones or its marker may go.
    fn is_past_horizon(&self, header: &BatchHeader) -> bool {
        header.delete_horizon().is_some_and(|horizon| horizon <= self.now_ms)
    }

    fn keep(&self, batch: &Batch, can_discard: bool) -> Result<Kept, RecordError> {
        let header = &batch.header;
        let count = header.record_count.unsigned_abs() as usize;
        if header.is_control() {
            let is_gone = can_discard && self.is_past_horizon(header);
            return Ok(Kept { flags: vec![!is_gone; count], has_tombstone: false });
        }
        if can_discard {
            return Ok(Kept { flags: vec![false; count], has_tombstone: false });
        }
        let at_once = self.plant == Some(Plant::TombstonesAtOnce);
        let deletes = at_once || self.is_past_horizon(header);
        let mut kept = Kept { flags: Vec::with_capacity(count), has_tombstone: false };
        let mut records = batch.records(&DecompressLimit::default())?;
        while let Some(record) = records.next_ref() {
            let record = record?;
            let is_compared = record.offset < self.newest.end();
            let is_deleted = is_compared && record.value.is_none() && deletes;
            let stays = self.newest.is_newest(record.key, record.offset) && !is_deleted;
            kept.has_tombstone |= stays && record.value.is_none();
            kept.flags.push(stays);
        }
        Ok(kept)
    }
}

/// A segment that replaces others.
pub(super) struct Writer {
    /// Base offsets of the segments that it replaces.
    replaced: Vec<i64>,
    /// Where the segment must end.
    end: i64,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    marks: Marks,
    /// Batches that are not yet in the file.
    pending: Vec<u8>,
    position: u64,
    /// End offset of the last batch.
    written_to: i64,
    changed: bool,
}

impl Writer {
    /// Creates the file of a segment that replaces others, which end at `end`.
    pub(super) fn create(
        disk: &dyn Disk,
        dir: &Path,
        replaced: Vec<i64>,
        end: i64,
    ) -> Result<Self, LogError> {
        let base_offset = replaced.first().copied().unwrap_or(end);
        let mut path = segment_path(dir, base_offset, "log").into_os_string();
        path.push(".");
        path.push(CLEANED);
        let path = PathBuf::from(path);
        let failed = |source| LogError::io(&path, source);
        let mut file = disk.open_append(&path).map_err(failed)?;
        file.truncate(0).map_err(failed)?;
        let marks = Marks::new(dir, base_offset);
        let changed = replaced.len() > 1;
        let (pending, position, written_to) = (Vec::new(), 0, base_offset);
        Ok(Self { replaced, end, path, file, marks, pending, position, written_to, changed })
    }

    /// Adds what stays of a batch.
    pub(super) fn filter(
        &mut self,
        batch: &Batch,
        can_discard: bool,
        rules: &Rules<'_>,
    ) -> Result<(), CompactError> {
        let header = &batch.header;
        let kept = rules.keep(batch, can_discard)?;
        let must_stay = header.last_offset() + 1 == self.end || rules.is_last_of_producer(header);
        if !kept.any() && !must_stay {
            self.changed = true;
            return Ok(());
        }
        // From now on readers have `delete.retention.ms` to see the tombstones, or the marker.
        let begins_horizon = kept.any()
            && !header.has_delete_horizon()
            && (kept.has_tombstone || can_discard && header.is_control());
        if kept.all() && !begins_horizon {
            self.push(header, batch.raw(), rules.index_interval);
            return Ok(());
        }
        self.changed = true;
        let horizon =
            begins_horizon.then(|| rules.now_ms.saturating_add(rules.delete_retention_ms));
        let limit = DecompressLimit::default();
        let bytes = retain_records(batch, &kept.flags, horizon, &limit)?;
        let header = BatchHeader::parse(&bytes)?;
        self.push(&header, &bytes, rules.index_interval);
        Ok(())
    }

    fn push(&mut self, header: &BatchHeader, bytes: &[u8], index_interval: u32) {
        self.marks.track(header, self.position, index_interval);
        self.pending.extend_from_slice(bytes);
        self.position += bytes.len() as u64;
        self.written_to = header.last_offset() + 1;
    }

    /// Writes the pending batches.
    pub(super) fn flush(&mut self) -> Result<(), LogError> {
        if !self.pending.is_empty() {
            self.file.append(&self.pending).map_err(|source| LogError::io(&self.path, source))?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Removes the file.
    pub(super) fn discard(&self, disk: &dyn Disk) {
        // Otherwise the next start of the log removes it.
        if let Err(error) = disk.remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "an unneeded segment was not removed");
        }
    }

    /// Completes the segment. `None` if it would be the same as before.
    pub(super) fn finish(
        mut self,
        aborted: Vec<AbortedEntry>,
        version: u64,
        disk: &dyn Disk,
    ) -> Result<Option<Cleaned>, LogError> {
        if !self.changed {
            self.discard(disk);
            return Ok(None);
        }
        if self.written_to != self.end {
            self.discard(disk);
            let reason = format!("ends at offset {}, not {}", self.written_to, self.end);
            return Err(LogError::invalid(&self.path, reason));
        }
        self.marks.finish();
        aborted.into_iter().for_each(|entry| self.marks.aborted.push(entry));
        if let Err(source) = self.file.sync() {
            self.discard(disk);
            return Err(LogError::io(&self.path, source));
        }
        Ok(Some(Cleaned {
            replaced: self.replaced,
            end: self.end,
            path: self.path,
            file: self.file,
            marks: self.marks,
            version,
        }))
    }
}
