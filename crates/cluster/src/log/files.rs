//! Readers of single files of a log, whole or damaged. They change no file.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use curtail_wire::records::{BATCH_HEADER_LEN, Batch, BatchHeader, RecordError};

use super::LogError;
use super::index::{Entry, OffsetEntry, TimeEntry};
use super::producers::decode_snapshot;
use super::segment::offset_in_name;
use super::transactions::AbortedEntry;

/// Bytes up to and including the magic number. Fewer are no batch of any format.
const MAGIC_END: u64 = 17;

/// A segment (`.log`) or a snapshot of the metadata (`.checkpoint`), read from its start, one batch at a time.
#[derive(Debug)]
pub struct SegmentFile {
    path: PathBuf,
    file: BufReader<File>,
    position: u64,
    end: u64,
}

/// A batch in a [`SegmentFile`]. Its checksum has not been compared with its bytes.
#[derive(Debug, Clone)]
pub struct FileBatch {
    /// Position of its first byte in the file.
    pub position: u64,
    /// The batch.
    pub batch: Batch,
}

impl SegmentFile {
    /// Opens a file. At most its first `limit` bytes are read.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path, limit: u64) -> Result<Self, LogError> {
        let open = || {
            let file = File::open(path)?;
            let end = file.metadata()?.len().min(limit);
            Ok((file, end))
        };
        let (file, end) = open().map_err(|error| LogError::io(path, error))?;
        Ok(Self { path: path.to_owned(), file: BufReader::new(file), position: 0, end })
    }

    /// Continues at a position, where a batch should begin.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn seek(&mut self, position: u64) -> Result<(), LogError> {
        self.position = position;
        let sought = self.file.seek(SeekFrom::Start(position));
        sought.map(drop).map_err(|error| LogError::io(&self.path, error))
    }

    /// Returns the next batch, or `None` if the rest of the file is no whole batch.
    ///
    /// # Errors
    /// If the disk fails, or the bytes are no batch of format 2. The next call reads the same bytes.
    pub fn next_batch(&mut self) -> Result<Option<FileBatch>, LogError> {
        let found = self.read_batch();
        if !matches!(found, Ok(Some(_))) {
            self.seek(self.position)?;
        }
        found
    }

    fn read_batch(&mut self) -> Result<Option<FileBatch>, LogError> {
        if self.unread() < MAGIC_END {
            return Ok(None);
        }
        let mut raw = vec![0; (BATCH_HEADER_LEN as u64).min(self.unread()) as usize];
        self.read(&mut raw)?;
        let needed = match BatchHeader::parse(&raw) {
            Ok(header) => header.size_in_bytes(),
            Err(RecordError::Truncated { .. }) => return Ok(None),
            Err(error) => return Err(self.invalid(&error)),
        };
        if needed as u64 > self.unread() {
            return Ok(None);
        }
        let head = raw.len();
        raw.resize(needed, 0);
        self.read(&mut raw[head..])?;
        let batch = Batch::parse(Bytes::from(raw)).map_err(|error| self.invalid(&error))?;
        let position = self.position;
        self.position += needed as u64;
        Ok(Some(FileBatch { position, batch }))
    }

    /// Bytes after the last batch returned.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), LogError> {
        self.file.read_exact(bytes).map_err(|error| LogError::io(&self.path, error))
    }

    fn invalid(&self, error: &RecordError) -> LogError {
        LogError::invalid(&self.path, format!("no batch at position {}: {error}", self.position))
    }
}

/// An entry of an offset index (`.index`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedOffset {
    /// Last offset of a batch.
    pub offset: i64,
    /// The batch's position in the segment.
    pub position: u32,
}

/// An entry of a time index (`.timeindex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedTime {
    /// Largest timestamp of the segment up to a batch, in ms since the Unix epoch.
    pub timestamp: i64,
    /// Last offset of the batch.
    pub offset: i64,
}

/// An entry of an index of aborted transactions (`.txnindex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// First offset of the transaction.
    pub first_offset: i64,
    /// Offset of the marker that ended it.
    pub last_offset: i64,
    /// The last stable offset after the marker.
    pub last_stable_offset: i64,
}

/// A producer in a snapshot of a log's producers (`.snapshot`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotProducer {
    /// Producer id.
    pub id: i64,
    /// Epoch of the latest batch.
    pub epoch: i16,
    /// Epoch of the coordinator that sent the last marker, or -1.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction.
    pub open_since: Option<i64>,
    /// Timestamp of the latest batch or marker, in ms since the Unix epoch.
    pub last_timestamp: i64,
    /// The latest batch with sequence numbers.
    pub last_batch: Option<SnapshotBatch>,
}

/// The latest batch of a [`SnapshotProducer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotBatch {
    /// Sequence number of the first record.
    pub first_sequence: i32,
    /// Sequence number of the last record.
    pub last_sequence: i32,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Distance of the last offset from the first.
    pub offset_delta: i32,
    /// Largest timestamp of the batch, in ms since the Unix epoch.
    pub timestamp: i64,
}

/// Reads an offset index. A broker allocates an index at its full size and cuts it when it closes the segment: in an
/// active one, entries of zeros follow the last entry.
///
/// # Errors
/// If the file cannot be read, its name has no offset, or its length is no multiple of an entry's.
pub fn offset_index(path: &Path) -> Result<Vec<IndexedOffset>, LogError> {
    let base = base_offset(path, "index")?;
    let absolute = |entry: OffsetEntry| IndexedOffset {
        offset: base.saturating_add(entry.relative_offset.into()),
        position: entry.position,
    };
    Ok(entries(path)?.into_iter().map(absolute).collect())
}

/// Reads a time index. Zeros may follow its last entry, as in an [`offset_index`].
///
/// # Errors
/// As [`offset_index`].
pub fn time_index(path: &Path) -> Result<Vec<IndexedTime>, LogError> {
    let base = base_offset(path, "timeindex")?;
    let absolute = |entry: TimeEntry| IndexedTime {
        timestamp: entry.timestamp,
        offset: base.saturating_add(entry.relative_offset.into()),
    };
    Ok(entries(path)?.into_iter().map(absolute).collect())
}

/// Reads an index of aborted transactions.
///
/// # Errors
/// If the file cannot be read, its length is no multiple of an entry's, or an entry has another version than Kafka's 0.
pub fn transaction_index(path: &Path) -> Result<Vec<AbortedTransaction>, LogError> {
    let aborted = |entry: AbortedEntry| AbortedTransaction {
        producer_id: entry.producer_id,
        first_offset: entry.first_offset,
        last_offset: entry.last_offset,
        last_stable_offset: entry.last_stable_offset,
    };
    Ok(entries(path)?.into_iter().map(aborted).collect())
}

/// Reads a snapshot of producers, in their order there.
///
/// # Errors
/// If the file cannot be read, its checksum does not match, or it has another version than Kafka's 1.
pub fn producer_snapshot(path: &Path) -> Result<Vec<SnapshotProducer>, LogError> {
    let damaged = || LogError::invalid(path, "damaged, or no snapshot of version 1");
    decode_snapshot(&read(path)?).ok_or_else(damaged)
}

/// Returns the offset in the name of a file `<offset>.<extension>`.
///
/// # Errors
/// If the name has another form.
pub fn base_offset(path: &Path, extension: &str) -> Result<i64, LogError> {
    let named = || LogError::invalid(path, format!("not named <20 digits>.{extension}"));
    offset_in_name(path, extension).ok_or_else(named)
}

fn read(path: &Path) -> Result<Vec<u8>, LogError> {
    std::fs::read(path).map_err(|error: io::Error| LogError::io(path, error))
}

fn entries<E: Entry>(path: &Path) -> Result<Vec<E>, LogError> {
    let bytes = read(path)?;
    if bytes.len() % E::SIZE != 0 {
        let reason = format!("{} bytes are no whole entries of {}", bytes.len(), E::SIZE);
        return Err(LogError::invalid(path, reason));
    }
    let decoded = bytes.chunks(E::SIZE).map(E::decode).collect::<Option<_>>();
    decoded.ok_or_else(|| LogError::invalid(path, "an entry has an unknown version"))
}
