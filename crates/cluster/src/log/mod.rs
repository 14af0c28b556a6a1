//! The log of one partition, on Kafka's own on-disk layout.
//!
//! A log is a directory `<topic>-<partition>` of segments. Each segment is a `.log` file of record batches
//! named after its first offset, with an offset index, a time index and an index of the transactions aborted in it
//! (`.txnindex`, where there are any) that are rebuilt whenever they are missing or wrong. Beside them lie the
//! leader epochs (`leader-epoch-checkpoint`, behind the batches until a flush or a new segment), snapshots of the
//! producers' state (`.snapshot`), the topic's id (`partition.metadata`), and two files of our own: `log-start-offset`
//! once records have been deleted, and `clean-shutdown` while the log is closed.
//!
//! [`PartitionLog`] is synchronous, reads no clock and starts no thread: the caller passes the time and
//! decides when to flush, delete and close.
//!
//! What recovery relies on: batches follow each other without gaps in offsets, so a batch that is torn,
//! corrupt or out of place ends the log there. Producer state is exact for the batches that have been scanned
//! (at least the active segment) and holds the last batch of each producer for older ones, as in Kafka. Open
//! transactions are exact always.

mod append;
mod cache;
mod checkpoint;
mod epochs;
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

use curtail_wire::ErrorCode;
use curtail_wire::produce::BatchIndexError;
use curtail_wire::records::RecordError;
pub use curtail_wire::records::TimestampType;

use crate::config::Plant;

pub use checkpoint::{read_partition_metadata, write_partition_metadata};
pub use partition::{PartitionLog, TxnMarker};
pub use producers::{ActiveProducer, Origin};
pub use transactions::VerificationGuard;

/// How a log is kept. The defaults are Kafka's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is closed before it would grow beyond this. At most 2 GiB - 1, as positions
    /// in the offset index are 32 bits.
    pub segment_bytes: u64,
    /// `index.interval.bytes`: one index entry for about this many bytes of log.
    pub index_interval_bytes: u32,
    /// `retention.bytes`: [`PartitionLog::apply_retention`] deletes old segments while the rest is this large.
    pub retention_bytes: Option<u64>,
    /// `retention.ms`: [`PartitionLog::apply_retention`] deletes segments whose newest record is older.
    pub retention_ms: Option<i64>,
    /// Whether `cleanup.policy` contains `compact`: every record needs a key then.
    pub compacted: bool,
    /// `max.message.bytes`: the largest batch that a producer may append.
    pub max_message_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.after.max.ms`: how far a producer's timestamp may lie in the future.
    pub timestamp_after_max_ms: Option<i64>,
    /// `producer.id.expiration.ms`: how long the state of a silent idempotent producer is kept.
    pub producer_id_expiration_ms: i64,
    /// Sync after every append (Kafka's `flush.messages=1`).
    pub flush_each: bool,
    /// Bytes of the newest batches kept in memory, so that reading at the end needs no file.
    pub tail_cache_bytes: usize,
    /// A bug for the simulation to find.
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
            compacted: false,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_after_max_ms: Some(3_600_000),
            producer_id_expiration_ms: 24 * 3600 * 1000,
            flush_each: false,
            tail_cache_bytes: 1 << 20,
            plant: None,
        }
    }
}

/// What opening a log found and repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the log had been closed by [`PartitionLog::close`].
    pub clean: bool,
    /// Bytes of torn or corrupt batches, and of everything behind them, that were cut off.
    pub truncated_bytes: u64,
    /// Batches that were read.
    pub batches_scanned: u64,
    /// Records in these batches.
    pub records_scanned: u64,
    /// Segments whose indexes were written anew.
    pub indexes_rebuilt: u32,
}

/// What an append of one batch by the leader did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the batch's first record.
    pub base_offset: i64,
    /// Offset of the batch's last record.
    pub last_offset: i64,
    /// The time given to the records in ms, or -1 where they keep their own.
    pub log_append_time_ms: i64,
    /// The batch had been appended before; these are the offsets it got then, and nothing was written.
    pub duplicate: bool,
}

/// What an append of replicated batches did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerAppended {
    /// Offset of the first record, or the unchanged end offset when there was no whole batch.
    pub base_offset: i64,
    /// The new end offset.
    pub end_offset: i64,
    /// Bytes appended; less than given where the last batch was cut off.
    pub bytes: usize,
    /// Batches appended.
    pub batches: usize,
}

/// A log that cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// A file's content is not what it must be, and cannot be rebuilt.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The log has been closed, or an earlier write failed and could not be undone; it must be opened again.
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

/// An append that was refused; the log is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AppendError {
    /// What to answer to the one who asked for it.
    pub code: ErrorCode,
    /// The reason, for the answer's error message and for the log of the broker.
    pub message: String,
    /// The records that the batch was refused for, where these can be named.
    pub records: Vec<BatchIndexError>,
}

impl AppendError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), records: Vec::new() }
    }
}

impl From<LogError> for AppendError {
    fn from(error: LogError) -> Self {
        Self::new(ErrorCode::KAFKA_STORAGE_ERROR, error.to_string())
    }
}

/// A read that cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is before the start of the log or beyond its end (OFFSET_OUT_OF_RANGE).
    #[error("offset {offset} is outside of {start}..={end}")]
    OffsetOutOfRange {
        /// The offset asked for.
        offset: i64,
        /// First offset of the log.
        start: i64,
        /// End offset of the log, which may be asked for and yields nothing.
        end: i64,
    },
    /// The disk failed (KAFKA_STORAGE_ERROR).
    #[error(transparent)]
    Storage(#[from] LogError),
    /// Bytes in a segment are not the batch that must be there (CORRUPT_MESSAGE).
    #[error("corrupt batch: {0}")]
    Corrupt(#[from] RecordError),
}

impl ReadError {
    /// What to answer to the one who asked.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
            Self::Storage(_) => ErrorCode::KAFKA_STORAGE_ERROR,
            Self::Corrupt(_) => ErrorCode::CORRUPT_MESSAGE,
        }
    }
}
