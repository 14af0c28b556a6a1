//! The indexes of a segment in Kafka's format: the offset index, the time index, and the index of
//! aborted transactions, whose entries are defined in [`super::transactions`].
//!
//! They are sparse and fully in memory. The files are written in groups of entries, because they
//! can be rebuilt from the log. A failed write of an index therefore never fails an append: the
//! entries stay pending.

use std::path::PathBuf;

use super::LogError;
use crate::disk::Disk;

/// Entries per write to the file.
const BUNCH: usize = 64;

/// An entry of an index, encoded big-endian with a fixed size.
pub(super) trait Entry: Copy + Eq {
    /// Bytes of an encoded entry.
    const SIZE: usize;
    /// Whether an index without entries has no file.
    const MAY_BE_MISSING: bool = false;
    fn encode(self, out: &mut Vec<u8>);
    fn decode(bytes: &[u8]) -> Option<Self>;
    /// Returns whether `self` may directly precede `next`.
    fn precedes(self, next: Self) -> bool;
}

/// The last offset of a batch, relative to the segment's base, and the batch's position in the
/// file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OffsetEntry {
    pub(super) relative_offset: u32,
    pub(super) position: u32,
}

/// The largest timestamp so far, and the last offset of its batch, relative to the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeEntry {
    pub(super) timestamp: i64,
    pub(super) relative_offset: u32,
}

impl Entry for OffsetEntry {
    const SIZE: usize = 8;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (relative, position) = bytes.split_first_chunk()?;
        Some(Self {
            relative_offset: u32::from_be_bytes(*relative),
            position: u32::from_be_bytes(position.try_into().ok()?),
        })
    }

    fn precedes(self, next: Self) -> bool {
        self.relative_offset < next.relative_offset && self.position < next.position
    }
}

impl Entry for TimeEntry {
    const SIZE: usize = 12;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (timestamp, relative) = bytes.split_first_chunk()?;
        Some(Self {
            timestamp: i64::from_be_bytes(*timestamp),
            relative_offset: u32::from_be_bytes(relative.try_into().ok()?),
        })
    }

    fn precedes(self, next: Self) -> bool {
        self.timestamp < next.timestamp && self.relative_offset < next.relative_offset
    }
}

/// An index: its entries in memory, and the number of them in the file.
#[derive(Debug)]
pub(super) struct Index<E> {
    path: PathBuf,
    entries: Vec<E>,
    /// Number of entries in memory that the file starts with.
    written: usize,
    /// Whether the file may have further entries after these.
    stale: bool,
}

impl<E: Entry> Index<E> {
    /// Creates an index without entries. Its first write clears an existing file.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, entries: Vec::new(), written: 0, stale: true }
    }

    /// Loads the entries from the file. Returns `false`, without loading any, if the file is
    /// missing or invalid.
    pub(super) fn load(&mut self, disk: &dyn Disk) -> bool {
        let Some(entries) = self.read_file(disk) else { return false };
        self.written = entries.len();
        self.stale = false;
        self.entries = entries;
        true
    }

    fn read_file(&self, disk: &dyn Disk) -> Option<Vec<E>> {
        if E::MAY_BE_MISSING && !disk.exists(&self.path) {
            return Some(Vec::new());
        }
        let bytes = disk.read_all(&self.path).ok()?;
        if bytes.len() % E::SIZE != 0 {
            return None;
        }
        let entries: Vec<E> = bytes.chunks(E::SIZE).map(E::decode).collect::<Option<_>>()?;
        entries.windows(2).all(|pair| pair[0].precedes(pair[1])).then_some(entries)
    }

    /// Makes the file equal to the entries in memory. Returns whether it differed.
    pub(super) fn restore_file(&mut self, disk: &dyn Disk) -> Result<bool, LogError> {
        if self.read_file(disk).is_some_and(|entries| entries == self.entries) {
            self.written = self.entries.len();
            self.stale = false;
            return Ok(false);
        }
        self.written = 0;
        self.stale = true;
        self.write(disk)?;
        Ok(true)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entries(&self) -> &[E] {
        &self.entries
    }

    /// Continues a CRC-32C with the entries.
    pub(super) fn checksum(&self, crc: u32) -> u32 {
        let mut bytes = Vec::with_capacity(self.entries.len() * E::SIZE);
        self.entries.iter().for_each(|entry| entry.encode(&mut bytes));
        crc32c::crc32c_append(crc, &bytes)
    }

    pub(super) fn last(&self) -> Option<E> {
        self.entries.last().copied()
    }

    /// Returns the last entry for which `below` holds. It must hold for a prefix of the entries.
    pub(super) fn floor(&self, below: impl Fn(E) -> bool) -> Option<E> {
        let count = self.entries.partition_point(|&entry| below(entry));
        Some(self.entries[count.checked_sub(1)?])
    }

    /// Adds an entry, unless it cannot follow the last one.
    pub(super) fn push(&mut self, entry: E) {
        if self.last().is_none_or(|last| last.precedes(entry)) {
            self.entries.push(entry);
        }
    }

    /// Returns whether enough entries are pending for a write.
    pub(super) fn wants_write(&self) -> bool {
        self.entries.len() >= self.written + BUNCH
    }

    /// Returns whether the file has all entries.
    pub(super) fn is_written(&self) -> bool {
        self.entries.len() == self.written && !self.stale
    }

    /// Keeps the prefix of entries for which `keep` holds.
    pub(super) fn truncate(&mut self, keep: impl Fn(E) -> bool) {
        self.entries.truncate(self.entries.partition_point(|&entry| keep(entry)));
        if self.written > self.entries.len() {
            self.written = self.entries.len();
            self.stale = true;
        }
    }

    /// Writes the pending entries to the file.
    pub(super) fn write(&mut self, disk: &dyn Disk) -> Result<(), LogError> {
        let exists = disk.exists(&self.path);
        if E::MAY_BE_MISSING && self.entries.is_empty() && !exists {
            self.stale = false;
            return Ok(());
        }
        if self.is_written() && exists {
            return Ok(());
        }
        let io = |source| LogError::io(&self.path, source);
        let keep = self.written;
        let mut file = disk.open_append(&self.path).map_err(io)?;
        file.truncate((keep * E::SIZE) as u64).map_err(io)?;
        // If the file was shortened by something else, the entries would be written at the wrong
        // position.
        let keep = (file.len() as usize) / E::SIZE;
        file.truncate((keep * E::SIZE) as u64).map_err(io)?;
        let mut bytes = Vec::with_capacity((self.entries.len() - keep) * E::SIZE);
        self.entries[keep..].iter().for_each(|entry| entry.encode(&mut bytes));
        if let Err(source) = file.append(&bytes) {
            // The next write cuts off a partial one.
            self.written = keep;
            self.stale = true;
            return Err(io(source));
        }
        self.written = self.entries.len();
        self.stale = false;
        Ok(())
    }
}
