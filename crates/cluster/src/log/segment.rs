//! One segment: a file of batches and its indexes.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use curtail_wire::records::{
    BATCH_HEADER_LEN, Batch, BatchHeader, EndTxnMarker, RecordError, batches,
};

use super::index::{Entry, Index, OffsetEntry, TimeEntry};
use super::transactions::{AbortedEntry, CompletedTxn};
use super::{LogError, ReadError};
use crate::disk::{Disk, DiskFile};

/// Bytes per read when a segment is scanned.
const SCAN_BYTES: usize = 1 << 20;

/// The timestamp of a segment without records.
pub(super) const NO_TIMESTAMP: i64 = -1;

pub(super) struct Segment {
    pub(super) base_offset: i64,
    pub(super) file: Box<dyn DiskFile>,
    pub(super) path: PathBuf,
    pub(super) marks: Marks,
    /// Whether bytes were appended since the last sync.
    pub(super) dirty: bool,
    /// Whether the directory was synced since the file was opened, so that a crash cannot remove
    /// the file's name.
    pub(super) named: bool,
}

/// Data derived from a segment's content: its indexes and its largest timestamp.
pub(super) struct Marks {
    base_offset: i64,
    pub(super) offsets: Index<OffsetEntry>,
    pub(super) times: Index<TimeEntry>,
    /// Transactions whose abort marker is in this segment.
    pub(super) aborted: Index<AbortedEntry>,
    bytes_since_index: u64,
    /// The largest timestamp, and the last offset of the first batch with it.
    pub(super) max_timestamp: i64,
    pub(super) max_timestamp_offset: i64,
    /// Timestamp of the first batch, once it has been tracked.
    first_timestamp: Option<i64>,
}

/// Returns the path of one of a segment's files.
pub(super) fn segment_path(dir: &Path, base_offset: i64, extension: &str) -> PathBuf {
    dir.join(format!("{base_offset:020}.{extension}"))
}

/// Returns the offset in the name of a file `<offset>.<extension>`.
pub(super) fn offset_in_name(path: &Path, extension: &str) -> Option<i64> {
    let stem = path.file_name()?.to_str()?.strip_suffix(extension)?.strip_suffix('.')?;
    (stem.len() == 20).then(|| stem.parse().ok()).flatten()
}

impl Marks {
    pub(super) fn new(dir: &Path, base_offset: i64) -> Self {
        Self {
            base_offset,
            offsets: Index::new(segment_path(dir, base_offset, "index")),
            times: Index::new(segment_path(dir, base_offset, "timeindex")),
            aborted: Index::new(segment_path(dir, base_offset, "txnindex")),
            bytes_since_index: 0,
            max_timestamp: NO_TIMESTAMP,
            max_timestamp_offset: base_offset,
            first_timestamp: None,
        }
    }

    fn relative(&self, offset: i64) -> u32 {
        u32::try_from(offset.saturating_sub(self.base_offset)).unwrap_or(u32::MAX)
    }

    /// Clears everything before all batches are tracked again.
    pub(super) fn reset(&mut self) {
        self.offsets.truncate(|_| false);
        self.times.truncate(|_| false);
        self.aborted.truncate(|_| false);
        self.first_timestamp = None;
        self.rewind();
    }

    /// Restores the state that the indexes contain.
    fn rewind(&mut self) {
        let last = self.times.last();
        self.bytes_since_index = 0;
        self.max_timestamp = last.map_or(NO_TIMESTAMP, |entry| entry.timestamp);
        self.max_timestamp_offset =
            self.base_offset + last.map_or(0, |entry| i64::from(entry.relative_offset));
    }

    /// Tracks a batch at `position`. As in Kafka, it gets an index entry if more than `interval`
    /// bytes have followed the last entry.
    pub(super) fn track(&mut self, header: &BatchHeader, position: u64, interval: u32) {
        let last_offset = header.last_offset();
        if position == 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        if header.max_timestamp > self.max_timestamp {
            self.max_timestamp = header.max_timestamp;
            self.max_timestamp_offset = last_offset;
        }
        if self.bytes_since_index > u64::from(interval) {
            if let Ok(position) = u32::try_from(position) {
                let relative_offset = self.relative(last_offset);
                self.offsets.push(OffsetEntry { relative_offset, position });
            }
            self.finish();
            self.bytes_since_index = 0;
        }
        self.bytes_since_index += header.size_in_bytes() as u64;
    }

    /// Records a transaction whose marker is in this segment.
    pub(super) fn ended(&mut self, txn: &CompletedTxn, last_stable_offset: i64) {
        if txn.marker == EndTxnMarker::Abort {
            self.aborted.push(AbortedEntry {
                producer_id: txn.producer_id,
                first_offset: txn.first_offset,
                last_offset: txn.last_offset,
                last_stable_offset,
            });
        }
    }

    /// Completes the time index, so that its last entry has the largest timestamp so far.
    pub(super) fn finish(&mut self) {
        if self.max_timestamp > NO_TIMESTAMP {
            let relative_offset = self.relative(self.max_timestamp_offset);
            self.times.push(TimeEntry { timestamp: self.max_timestamp, relative_offset });
        }
    }

    /// Returns the numbers of entries in both indexes.
    pub(super) fn entry_count(&self) -> (usize, usize) {
        (self.offsets.len(), self.times.len())
    }

    /// Returns whether an index has no room for the entries of another batch. As in Kafka, the last entry
    /// of the time index is for the end of the segment.
    fn are_full(&self, most_bytes: u32) -> bool {
        let most = |size: usize| most_bytes as usize / size;
        self.offsets.len() >= most(OffsetEntry::SIZE)
            || self.times.len() + 1 >= most(TimeEntry::SIZE)
    }

    /// Continues a CRC-32C with the entries of all indexes.
    pub(super) fn checksum(&self, crc: u32) -> u32 {
        self.aborted.checksum(self.times.checksum(self.offsets.checksum(crc)))
    }

    /// Writes the indexes' pending entries.
    pub(super) fn write(&mut self, disk: &dyn Disk) -> Result<(), LogError> {
        self.offsets.write(disk)?;
        self.times.write(disk)?;
        self.aborted.write(disk)
    }

    /// Makes the files equal to the tracked state. Returns whether they differed.
    pub(super) fn restore_files(&mut self, disk: &dyn Disk) -> Result<bool, LogError> {
        let offsets = self.offsets.restore_file(disk)?;
        let times = self.times.restore_file(disk)?;
        let aborted = self.aborted.restore_file(disk)?;
        Ok(offsets || times || aborted)
    }
}

impl Segment {
    /// Opens or creates the segment's log, with empty indexes in memory.
    pub(super) fn open(disk: &dyn Disk, dir: &Path, base_offset: i64) -> Result<Self, LogError> {
        let path = segment_path(dir, base_offset, "log");
        let file = disk.open_append(&path).map_err(|source| LogError::io(&path, source))?;
        let marks = Marks::new(dir, base_offset);
        Ok(Self { base_offset, file, path, marks, dirty: false, named: false })
    }

    /// Loads the indexes from their files. Returns `false` if they are missing or invalid.
    pub(super) fn load_indexes(&mut self, disk: &dyn Disk) -> bool {
        let Marks { offsets, times, aborted, .. } = &mut self.marks;
        if !offsets.load(disk) || !times.load(disk) || !aborted.load(disk) {
            return false;
        }
        let last = self.marks.offsets.last();
        last.is_none_or(|last| u64::from(last.position) < self.size())
    }

    pub(super) fn size(&self) -> u64 {
        self.file.len()
    }

    /// The largest timestamp of the first batch, from which Kafka counts a segment's age; `None` if there
    /// is no batch.
    pub(super) fn first_timestamp(&self) -> Option<i64> {
        if self.size() == 0 {
            return None;
        }
        self.marks.first_timestamp.or_else(|| {
            let bytes = self.file.read_at(0, BATCH_HEADER_LEN).ok()?;
            BatchHeader::parse(&bytes).ok().map(|header| header.max_timestamp)
        })
    }

    pub(super) fn io(&self, source: io::Error) -> LogError {
        LogError::io(&self.path, source)
    }

    /// Syncs the file, if it has changed.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        if self.dirty {
            self.file.sync().map_err(|source| self.io(source))?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Returns whether a batch of `size` bytes ending at `last_offset` fits into this segment.
    pub(super) fn has_room(&self, size: usize, last_offset: i64, segment_bytes: u64) -> bool {
        let limit = segment_bytes.min(i32::MAX as u64);
        // An empty segment accepts any batch. A batch larger than a segment could otherwise never
        // be replicated.
        let fits = self.size() == 0 || self.size() + size as u64 <= limit;
        fits && last_offset - self.base_offset <= i64::from(i32::MAX)
    }

    /// Returns whether the segment has batches and an index of the largest size.
    pub(super) fn has_full_index(&self, most_bytes: u32) -> bool {
        self.size() > 0 && self.marks.are_full(most_bytes)
    }

    /// Restores the derived data from the indexes and the batches after their last entry.
    ///
    /// Returns the end offset, or `None` if these batches do not end exactly at the end of the file
    /// or do not match the index.
    pub(super) fn replay_tail(&mut self, interval: u32) -> Result<Option<i64>, LogError> {
        self.marks.rewind();
        let last = self.marks.offsets.last();
        let from = last.map_or(0, |entry| u64::from(entry.position));
        // The entry belongs to the first scanned batch.
        let mut expected = last.map(|entry| self.base_offset + i64::from(entry.relative_offset));
        let mut end_offset = self.base_offset;
        let end = scan(self.file.as_ref(), from, |position, batch| {
            let last_offset = batch.header.last_offset();
            if expected.take().is_some_and(|expected| expected != last_offset) {
                return ControlFlow::Break(());
            }
            self.marks.track(&batch.header, position, interval);
            end_offset = last_offset.saturating_add(1);
            ControlFlow::Continue(())
        })
        .map_err(|source| LogError::io(&self.path, source))?;
        self.marks.first_timestamp = self.first_timestamp();
        Ok((end == self.size() && expected.is_none()).then_some(end_offset))
    }

    /// Returns a position at or before the first batch that ends at or after `offset`.
    pub(super) fn position_before(&self, offset: i64) -> u64 {
        let relative = self.marks.relative(offset.max(self.base_offset));
        let entry = self.marks.offsets.floor(|entry| entry.relative_offset <= relative);
        entry.map_or(0, |entry| u64::from(entry.position))
    }

    /// Finds the first batch from `position` on for which `wanted` holds.
    pub(super) fn find(
        &self,
        position: u64,
        readahead: usize,
        wanted: impl Fn(&BatchHeader) -> bool,
    ) -> Result<Option<Found>, ReadError> {
        let mut found = Found {
            window: self.read(position, readahead.max(BATCH_HEADER_LEN))?,
            window_at: position,
            position,
            header: None,
        };
        while let Some(header) = self.header_at(&mut found, readahead)? {
            if wanted(&header) {
                found.header = Some(header);
                return Ok(Some(found));
            }
            found.position += header.size_in_bytes() as u64;
        }
        Ok(None)
    }

    /// Returns the header at the position, and refills the window if it ends before; `None` at the
    /// end.
    fn header_at(
        &self,
        found: &mut Found,
        readahead: usize,
    ) -> Result<Option<BatchHeader>, ReadError> {
        if found.position >= self.size() {
            return Ok(None);
        }
        if found.rest().len() < BATCH_HEADER_LEN {
            found.window = self.read(found.position, readahead.max(BATCH_HEADER_LEN))?;
            found.window_at = found.position;
        }
        Ok(Some(BatchHeader::parse(&found.rest())?))
    }

    /// Ensures that the whole found batch is in the window.
    pub(super) fn load_batch(&self, found: &mut Found) -> Result<Batch, ReadError> {
        let needed = found.size();
        if found.rest().len() < needed {
            found.window = self.read(found.position, needed)?;
            found.window_at = found.position;
        }
        let rest = found.rest();
        if rest.len() < needed {
            return Err(RecordError::Truncated { needed, available: rest.len() }.into());
        }
        Ok(Batch::parse(rest.slice(..needed))?)
    }

    fn read(&self, position: u64, len: usize) -> Result<Bytes, LogError> {
        self.file.read_at(position, len).map_err(|source| self.io(source))
    }

    /// Cuts the segment so that it ends before the batch that contains `offset`. Returns the new
    /// end offset.
    pub(super) fn truncate_to(&mut self, offset: i64, interval: u32) -> Result<i64, ReadError> {
        let found = self.find(self.position_before(offset), 8 * 1024, |header| {
            header.last_offset() >= offset
        })?;
        if let Some(found) = found {
            self.file.truncate(found.position).map_err(|source| self.io(source))?;
            let size = found.position;
            let relative = self.marks.relative(offset);
            self.marks.offsets.truncate(|entry| u64::from(entry.position) < size);
            self.marks.times.truncate(|entry| entry.relative_offset < relative);
            self.marks.aborted.truncate(|entry| entry.last_offset < offset);
            self.dirty = true;
        }
        self.replay_tail(interval)?.ok_or_else(|| {
            LogError::invalid(&self.path, "the batches before the cut do not match the index")
                .into()
        })
    }
}

/// A batch found by [`Segment::find`], with the bytes read around it.
pub(super) struct Found {
    window: Bytes,
    window_at: u64,
    pub(super) position: u64,
    header: Option<BatchHeader>,
}

impl Found {
    /// Returns the bytes in memory from the batch on.
    pub(super) fn rest(&self) -> Bytes {
        let skip = usize::try_from(self.position - self.window_at).unwrap_or(usize::MAX);
        self.window.slice(skip.min(self.window.len())..)
    }

    fn size(&self) -> usize {
        self.header.map_or(0, |header| header.size_in_bytes())
    }
}

/// Visits the batches from `position` on, until one is cut off or has an invalid header, or the
/// visitor breaks.
///
/// Returns the end of the last batch for which the visitor continued.
pub(super) fn scan(
    file: &dyn DiskFile,
    mut position: u64,
    mut visit: impl FnMut(u64, &Batch) -> ControlFlow<()>,
) -> io::Result<u64> {
    let mut wanted = SCAN_BYTES;
    loop {
        let chunk = file.read_at(position, wanted)?;
        let whole = chunk.len();
        let mut rest = batches(chunk.clone());
        let mut used = 0;
        while let Some(batch) = rest.next() {
            let Ok(batch) = batch else { return Ok(position + used as u64) };
            if visit(position + used as u64, &batch).is_break() {
                return Ok(position + used as u64);
            }
            used = whole - rest.remaining();
        }
        position += used as u64;
        if used > 0 {
            wanted = SCAN_BYTES;
            continue;
        }
        // Not one whole batch: the end, a torn batch, or a batch larger than the chunk.
        let Ok(header) = BatchHeader::parse(&chunk) else { return Ok(position) };
        let size = header.size_in_bytes();
        if size <= wanted || size as u64 > file.len().saturating_sub(position) {
            return Ok(position);
        }
        wanted = size;
    }
}
