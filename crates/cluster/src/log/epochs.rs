//! The leader epochs of a log and their start offsets (KIP-101, KIP-279).
//!
//! An append does not write a new epoch to the file: creating a file would cost more than the
//! append, for each partition whose leader moves. The batches contain their epochs, and recovery
//! reads every batch anyway.
//!
//! A removal of epochs, by deletion or truncation, is written durably at once. Otherwise the file
//! would contradict the next batches, and recovery would truncate them. The file of a log with gaps is
//! written durably too: compaction may have removed the first batches of an epoch.

use std::path::PathBuf;

use super::LogError;
use super::checkpoint::{parse_lines, read_optional, render_lines};
use crate::disk::Disk;

const FILE_NAME: &str = "leader-epoch-checkpoint";

/// The result for an unknown epoch.
pub(super) const UNDEFINED: (i32, i64) = (-1, -1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EpochStart {
    pub(super) epoch: i32,
    pub(super) start_offset: i64,
}

/// Epochs with their start offsets; both strictly increase from entry to entry.
#[derive(Debug)]
pub(super) struct LeaderEpochs {
    path: PathBuf,
    entries: Vec<EpochStart>,
    /// Whether batches have started epochs that are not in the file yet.
    ahead: bool,
}

impl LeaderEpochs {
    /// Reads the checkpoint. A missing or malformed one counts as empty and is rebuilt from
    /// batches.
    pub(super) fn load(disk: &dyn Disk, dir: &std::path::Path) -> Result<Self, LogError> {
        let path = dir.join(FILE_NAME);
        let entries = read_optional(disk, &path)?
            .and_then(|bytes| parse_lines(&bytes, 2))
            .map(|lines| lines.iter().map(|line| entry_of(line)).collect::<Option<Vec<_>>>())
            .unwrap_or_default()
            .filter(|entries| entries.windows(2).all(|pair| grows(pair[0], pair[1])))
            .unwrap_or_default();
        Ok(Self { path, entries, ahead: false })
    }

    pub(super) fn first(&self) -> Option<EpochStart> {
        self.entries.first().copied()
    }

    pub(super) fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// Returns the last epoch that starts at or before `offset`, and whether a later one is known.
    pub(super) fn covering(&self, offset: i64) -> Option<(EpochStart, bool)> {
        let count = self.entries.partition_point(|entry| entry.start_offset <= offset);
        let entry = self.entries.get(count.checked_sub(1)?)?;
        Some((*entry, count < self.entries.len()))
    }

    /// Records that `epoch` starts at `start_offset`, and removes contradicting entries.
    /// [`LeaderEpochs::catch_up`] writes it to the file.
    pub(super) fn assign(&mut self, epoch: i32, start_offset: i64) {
        if epoch < 0 || start_offset < 0 {
            return;
        }
        if let Some(last) = self.latest()
            && last.epoch == epoch
            && last.start_offset <= start_offset
        {
            return;
        }
        self.entries.retain(|entry| entry.epoch < epoch && entry.start_offset < start_offset);
        self.entries.push(EpochStart { epoch, start_offset });
        self.ahead = true;
    }

    /// Returns the end of `epoch` in a log that ends at `end_offset`: the largest known epoch up to
    /// the requested one, and the first offset of a later one.
    pub(super) fn end_offset_for(&self, epoch: i32, end_offset: i64) -> (i32, i64) {
        if epoch < 0 {
            return UNDEFINED;
        }
        if self.latest().is_some_and(|last| last.epoch == epoch) {
            return (epoch, end_offset);
        }
        let count = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let Some(higher) = self.entries.get(count) else { return UNDEFINED };
        let floor = count.checked_sub(1).map_or(epoch, |at| self.entries[at].epoch);
        (floor, higher.start_offset)
    }

    /// Removes the epochs that start at or after the log's new end. Returns whether anything
    /// changed.
    pub(super) fn truncate_from_end(&mut self, end_offset: i64) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.start_offset < end_offset);
        self.entries.len() != before
    }

    /// Removes the epochs that end before the log's new start, and moves the start of the epoch
    /// that covers it. Returns whether anything changed.
    pub(super) fn truncate_from_start(&mut self, start_offset: i64) -> bool {
        let below = self.entries.partition_point(|entry| entry.start_offset < start_offset);
        let Some(covering) = below.checked_sub(1) else { return false };
        let superseded =
            self.entries.get(below).is_some_and(|next| next.start_offset == start_offset);
        self.entries[covering].start_offset = start_offset;
        self.entries.drain(..if superseded { below } else { covering });
        true
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Writes the file if it lacks epochs that batches have started, durably on request.
    pub(super) fn catch_up(&mut self, disk: &dyn Disk, durable: bool) -> Result<(), LogError> {
        if !self.ahead {
            return Ok(());
        }
        let content = self.render();
        let written = match durable {
            true => disk.write_durable(&self.path, &content),
            false => disk.write_atomic(&self.path, &content),
        };
        written.map_err(|source| LogError::io(&self.path, source))?;
        self.ahead = false;
        Ok(())
    }

    /// Durably replaces the file after a removal of entries.
    pub(super) fn write(&mut self, disk: &dyn Disk) -> Result<(), LogError> {
        let written = disk.write_durable(&self.path, &self.render());
        written.map_err(|source| LogError::io(&self.path, source))?;
        self.ahead = false;
        Ok(())
    }

    fn render(&self) -> Vec<u8> {
        let lines = self.entries.iter().map(|entry| [i64::from(entry.epoch), entry.start_offset]);
        render_lines(lines)
    }
}

fn entry_of(line: &[i64]) -> Option<EpochStart> {
    let &[epoch, start_offset] = line else { return None };
    let epoch = i32::try_from(epoch).ok()?;
    (epoch >= 0 && start_offset >= 0).then_some(EpochStart { epoch, start_offset })
}

fn grows(before: EpochStart, after: EpochStart) -> bool {
    before.epoch < after.epoch && before.start_offset < after.start_offset
}
