//! The log of one partition, in Kafka's on-disk layout.
//!
//! A log is a directory `<topic>-<partition>` of segments. Each segment is a `.log` file of record
//! batches, named after its first offset. It has an offset index, a time index and, if needed, an
//! index of aborted transactions (`.txnindex`); missing or wrong indexes are rebuilt.
//!
//! The directory also contains:
//!
//! - the leader epochs (`leader-epoch-checkpoint`), up to date after a flush or a new segment,
//! - snapshots of the producers' state (`.snapshot`),
//! - the topic's id (`partition.metadata`),
//! - `cleaner-offset-checkpoint` once the log may have gaps (Kafka has one such file per data directory),
//! - two files that Kafka does not have: `log-start-offset` once records have been deleted, and
//!   `clean-shutdown` while the log is closed.
//!
//! [`PartitionLog`] is synchronous, reads no clock and starts no thread: the caller passes the time
//! and decides when to flush, delete and close.
//!
//! # Invariants for recovery
//! - Batches follow each other without gaps in offsets, except in a log with a
//!   `cleaner-offset-checkpoint`. There too each segment ends where the next one begins. A batch that is
//!   torn, corrupt or out of place therefore ends the log.
//! - Producer state is exact for the batches that have been scanned, at least those of the active
//!   segment. For older ones it contains the last batch of each producer, as in Kafka.
//! - Open transactions are always exact.

mod append;
mod cache;
mod checkpoint;
mod cleaner;
mod epochs;
pub mod files;
mod index;
mod partition;
mod producers;
mod read;
mod recovery;
mod segment;
#[cfg(test)]
mod tests;
mod transactions;

use std::io;
use std::path::PathBuf;

use curtail_wire::compression::Compression;
use curtail_wire::produce::BatchIndexError;
use curtail_wire::records::RecordError;
pub use curtail_wire::records::TimestampType;
use curtail_wire::{ErrorCode, Report};

use crate::config::Plant;

pub use checkpoint::{read_partition_metadata, write_partition_metadata};
pub use cleaner::{Cleaned, Cleaning, Compaction, Step};
pub use partition::{PartitionLog, TxnMarker};
pub use producers::{ActiveProducer, Origin};
pub use transactions::VerificationGuard;

/// Settings of a log. The defaults are Kafka's.
#[derive(Debug, Clone, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is closed before it would exceed this size. At most 2 GiB - 1,
    /// because positions in the offset index have 32 bits.
    pub segment_bytes: u64,
    /// `index.interval.bytes`: bytes of log per index entry, approximately.
    pub index_interval_bytes: u32,
    /// `retention.bytes`: [`PartitionLog::apply_retention`] deletes old segments while the rest has
    /// at least this size.
    pub retention_bytes: Option<u64>,
    /// `retention.ms`: [`PartitionLog::apply_retention`] deletes segments whose newest record is older.
    pub retention_ms: Option<i64>,
    /// `segment.ms`: an append starts a new segment if its timestamp is later than that of the first
    /// batch by more than this.
    pub segment_ms: i64,
    /// Whether `cleanup.policy` contains `compact`: then every record needs a key.
    pub compacted: bool,
    /// Settings of compaction.
    pub compaction: Compaction,
    /// `max.message.bytes`: the largest batch that a producer may append.
    pub max_message_bytes: usize,
    /// `compression.type`: the codec of the batches of producers that use another one. `None` keeps theirs.
    pub compression: Option<Compression>,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.after.max.ms`: how far a producer's timestamp may be in the future.
    pub timestamp_after_max_ms: i64,
    /// `message.timestamp.before.max.ms`: how far a producer's timestamp may be in the past.
    pub timestamp_before_max_ms: i64,
    /// `producer.id.expiration.ms`: how long the state of an inactive idempotent producer is kept.
    pub producer_id_expiration_ms: i64,
    /// `segment.jitter.ms`: a segment may end earlier than after `segment_ms` by up to this time, so that
    /// logs do not start new segments all at once.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`: an append starts a new segment if an index has reached this size.
    pub index_bytes: u32,
    /// `flush.messages`: an append that leaves at least this many records without a sync syncs the log.
    pub flush_messages: i64,
    /// `flush.ms`: [`PartitionLog::flush_if_due`] syncs the log after this time.
    pub flush_ms: i64,
    /// Bytes of the newest batches cached in memory, so that reads at the end need no file.
    pub tail_cache_bytes: usize,
    /// A planted bug that the simulation must find.
    #[doc(hidden)]
    pub plant: Option<Plant>,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            index_interval_bytes: 4096,
            retention_bytes: None,
            retention_ms: Some(7 * 24 * 3600 * 1000),
            segment_ms: 7 * 24 * 3600 * 1000,
            compacted: false,
            compaction: Compaction::default(),
            max_message_bytes: 1_048_588,
            compression: None,
            timestamp_type: TimestampType::CreateTime,
            timestamp_after_max_ms: 3_600_000,
            timestamp_before_max_ms: i64::MAX,
            producer_id_expiration_ms: 24 * 3600 * 1000,
            segment_jitter_ms: 0,
            index_bytes: 10 << 20,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            tail_cache_bytes: 1 << 20,
            plant: None,
        }
    }
}

/// The findings and repairs of opening a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the log had been closed by [`PartitionLog::close`].
    pub clean: bool,
    /// Bytes of torn or corrupt batches, and of everything after them, that were cut off.
    pub truncated_bytes: u64,
    /// Batches read.
    pub batches_scanned: u64,
    /// Records in these batches.
    pub records_scanned: u64,
    /// Segments whose indexes were rewritten.
    pub indexes_rebuilt: u32,
}

/// The result of a leader's append of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the batch's first record.
    pub base_offset: i64,
    /// Offset of the batch's last record.
    pub last_offset: i64,
    /// The timestamp set on the records in ms, or -1 if they keep their own.
    pub log_append_time_ms: i64,
    /// Whether the batch is a duplicate. The offsets are then those of the first append, and
    /// nothing was written.
    pub duplicate: bool,
}

/// The result of an append of replicated batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerAppended {
    /// Offset of the first record, or the unchanged end offset if there was no whole batch.
    pub base_offset: i64,
    /// The new end offset.
    pub end_offset: i64,
    /// Bytes appended; fewer than given if the last batch was cut off.
    pub bytes: usize,
    /// Batches appended.
    pub batches: usize,
}

/// Why a log cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk failed.
    #[error("the disk failed at {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The disk's error.
        source: io::Error,
    },
    /// A file is malformed and cannot be rebuilt.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The log has been closed, or a failed write could not be undone. It must be reopened.
    #[error("{}: closed, or offline after a failed write", path.display())]
    Offline {
        /// The directory of the log.
        path: PathBuf,
    },
}

impl LogError {
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    pub(crate) fn invalid(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), reason: reason.into() }
    }
}

/// Why an append was refused; the log is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AppendError {
    /// The error code for the response.
    pub code: ErrorCode,
    /// The reason, for the response's error message and the broker's log.
    pub message: String,
    /// The records for which the batch was refused, if they are known.
    pub records: Vec<BatchIndexError>,
}

impl AppendError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), records: Vec::new() }
    }
}

impl From<LogError> for AppendError {
    fn from(error: LogError) -> Self {
        Self::new(ErrorCode::KAFKA_STORAGE_ERROR, Report::new(&error).to_string())
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is before the start of the log or beyond its end (OFFSET_OUT_OF_RANGE).
    #[error("offset {offset} is outside of {start}..={end}")]
    OffsetOutOfRange {
        /// The requested offset.
        offset: i64,
        /// First offset of the log.
        start: i64,
        /// End offset of the log. It may be requested and yields nothing.
        end: i64,
    },
    /// The disk failed (KAFKA_STORAGE_ERROR).
    #[error(transparent)]
    Storage(#[from] LogError),
    /// Bytes in a segment are not the expected batch (CORRUPT_MESSAGE).
    #[error("corrupt batch")]
    Corrupt(#[from] RecordError),
}

impl ReadError {
    /// Returns the error code for the response.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
            Self::Storage(_) => ErrorCode::KAFKA_STORAGE_ERROR,
            Self::Corrupt(_) => ErrorCode::CORRUPT_MESSAGE,
        }
    }
}
