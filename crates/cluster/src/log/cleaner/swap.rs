//! The exchange of segments, in an order that any crash allows.
//!
//! The new segment replaces the first old one by a rename, and that is durable before the others are
//! removed. Until then `cleaner-offset-checkpoint` names the replaced range, so that recovery removes
//! the segments that a crash has kept.

use std::path::PathBuf;

use curtail_wire::Report;

use super::Cleaning;
use crate::disk::DiskFile;
use crate::log::checkpoint::{CleanedTo, write_cleaned};
use crate::log::segment::{Marks, Segment, segment_path};
use crate::log::{LogError, PartitionLog};

/// A segment to take the place of others.
pub struct Cleaned {
    /// Base offsets of the segments to replace.
    pub(super) replaced: Vec<i64>,
    /// Where they end.
    pub(super) end: i64,
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn DiskFile>,
    pub(super) marks: Marks,
    /// The version of the log that the segment was written from.
    pub(super) version: u64,
}

impl PartitionLog {
    /// Exchanges segments. Returns the new version of the log for [`Cleaning::swapped`], or `None` if the
    /// log was cut or segments were deleted since the cleaning began; then nothing changes.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails. If that happens half-way, the log is then offline.
    pub fn swap(&mut self, cleaned: Cleaned) -> Result<Option<u64>, LogError> {
        self.check_online()?;
        let at =
            self.segments.iter().position(|s| Some(&s.base_offset) == cleaned.replaced.first());
        let Some(at) = at.filter(|_| cleaned.version == self.version) else {
            self.discard(&cleaned);
            return Ok(None);
        };
        if let Err(error) = self.prepare_swap(&cleaned) {
            self.discard(&cleaned);
            return Err(error);
        }
        self.all_or_offline(|log| log.exchange(at, cleaned))?;
        self.version += 1;
        Ok(Some(self.version))
    }

    fn discard(&self, cleaned: &Cleaned) {
        // Otherwise the next start of the log removes it.
        if let Err(error) = self.disk.remove_file(&cleaned.path) {
            tracing::warn!(path = %cleaned.path.display(), %error, "an unneeded segment was not removed");
        }
    }

    /// Makes everything durable that recovery needs once the new segment exists.
    fn prepare_swap(&mut self, cleaned: &Cleaned) -> Result<(), LogError> {
        // The first batch of an epoch may be about to go, and with it the epoch's start.
        self.epochs.write(self.disk.as_ref())?;
        let replaced = match cleaned.replaced[..] {
            [from, _, ..] => (from, cleaned.end),
            _ => (0, 0),
        };
        let cleaned_to = CleanedTo { offset: self.cleaned_to, replaced };
        write_cleaned(self.disk.as_ref(), &self.dir, cleaned_to)?;
        self.may_have_gaps = true;
        self.remove_outdated_snapshots(cleaned.end)
    }

    /// Removes the producers' snapshots from which recovery would read the new segment. It may lack the
    /// marker of a transaction that is open in them.
    fn remove_outdated_snapshots(&self, end: i64) -> Result<(), LogError> {
        let first = self.segments[0].base_offset;
        // Producers from before the log's start are only in the snapshot there.
        let stays = !self.has_open_transaction_at(first)?;
        let mut removed = false;
        self.remove_snapshots(|offset| {
            let is_outdated = offset > first && offset < end || offset == first && !stays;
            removed |= is_outdated;
            is_outdated
        })?;
        if removed {
            self.disk.sync_dir(&self.dir).map_err(|source| LogError::io(&self.dir, source))?;
        }
        Ok(())
    }

    fn has_open_transaction_at(&self, offset: i64) -> Result<bool, LogError> {
        let snapshot = self.snapshot_at_or_before(offset)?;
        Ok(snapshot.is_some_and(|(_, producers)| producers.transactions.any_open()))
    }

    fn exchange(&mut self, at: usize, cleaned: Cleaned) -> Result<(), LogError> {
        let Cleaned { replaced, end, path: from, file, marks, .. } = cleaned;
        let path = segment_path(&self.dir, replaced[0], "log");
        let sync = |log: &Self| {
            log.disk.sync_dir(&log.dir).map_err(|source| LogError::io(&log.dir, source))
        };
        self.disk.rename(&from, &path).map_err(|source| LogError::io(&path, source))?;
        sync(self)?;
        let segment =
            Segment { base_offset: replaced[0], file, path, marks, dirty: false, named: true };
        let old: Vec<Segment> =
            self.segments.splice(at..at + replaced.len(), [segment]).skip(1).collect();
        for segment in &old {
            self.remove_segment_files(segment)?;
        }
        if !old.is_empty() {
            sync(self)?;
        }
        if let Err(error) = self.segments[at].marks.restore_files(self.disk.as_ref()) {
            // An incomplete index is rebuilt.
            tracing::warn!(error = %Report::new(&error), "cannot write the index");
        }
        self.cache.drop_before(end);
        Ok(())
    }

    /// Completes a cleaning: its records need no further comparison.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails. The next cleaning then compares them again.
    pub fn finish_cleaning(&mut self, cleaning: &Cleaning) -> Result<(), LogError> {
        self.check_online()?;
        if cleaning.version == self.version {
            self.write_cleaned_to(cleaning.end())?;
        }
        Ok(())
    }

    fn write_cleaned_to(&mut self, offset: i64) -> Result<(), LogError> {
        let cleaned_to = CleanedTo { offset, replaced: (0, 0) };
        write_cleaned(self.disk.as_ref(), &self.dir, cleaned_to)?;
        self.may_have_gaps = true;
        self.cleaned_to = offset;
        Ok(())
    }

    /// Records that the log may have gaps from now on.
    pub(in crate::log) fn allow_gaps(&mut self) -> Result<(), LogError> {
        if self.may_have_gaps { Ok(()) } else { self.write_cleaned_to(self.cleaned_to) }
    }

    /// Lowers the end of the compared records to the end of the log.
    pub(in crate::log) fn cleaned_below(&mut self, end: i64) -> Result<(), LogError> {
        if end >= self.cleaned_to {
            return Ok(());
        }
        if self.may_have_gaps {
            return self.write_cleaned_to(end);
        }
        self.cleaned_to = end;
        Ok(())
    }
}
