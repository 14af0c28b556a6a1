//! Record batches of format version 2 (magic 2), the only one that current brokers write.
//!
//! [`BatchBuilder`] encodes records in place, after the space for the header; [`stamp`] completes a sealed batch with
//! the producer's fields. [`batches`] splits bytes of a Fetch response or of a log segment into [`Batch`]es, whose
//! [`Records`] are read lazily and without copying.
//!
//! The checksum covers a batch from its attributes on: the base offset, the length, the leader epoch
//! and the magic number in front of it belong to the broker and can be rewritten freely
//! ([`set_base_offset_and_epoch`]).

mod builder;
mod compact;
mod control;
mod decode;
mod error;
mod header;
#[cfg(test)]
mod tests;

pub use builder::{
    BatchBuilder, Header, ProducerStamp, RecordData, encoded_len_bound, mark_transactional, stamp,
};
pub use compact::{CompactError, recompress, retain_records};
pub use control::{ControlRecord, EndTxnMarker, encode_end_txn_marker};
pub use decode::{Batch, Batches, HeaderIter, Record, RecordHeaders, RecordRef, Records, batches};
pub use error::RecordError;
pub use header::{
    BATCH_HEADER_LEN, BatchHeader, NO_PARTITION_LEADER_EPOCH, TimestampType,
    set_base_offset_and_epoch, set_log_append_time, set_max_timestamp, set_transactional,
};

pub use crate::compression::{Codec, CompressError, Compression, DecompressError, DecompressLimit};
