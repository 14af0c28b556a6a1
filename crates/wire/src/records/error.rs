//! Why bytes are not a record batch.

use crate::compression::DecompressError;
use crate::varint::VarintError;

/// Why a record batch, or a record in it, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A message format before version 2, or one not yet known.
    #[error(
        "record batch has format version {0}, only version 2 is supported (Apache Kafka 4 reads \
         and writes no older one; KIP-724)"
    )]
    UnsupportedMagic(i8),
    /// Fewer bytes than a batch header, or than the header's own length demands.
    #[error("record batch is cut off: {needed} bytes needed, {available} present")]
    Truncated {
        /// Bytes that the batch takes.
        needed: usize,
        /// Bytes available.
        available: usize,
    },
    /// The batch length cannot be one.
    #[error("record batch has impossible length {0}")]
    BatchLength(i32),
    /// The record count is negative, or larger than the bytes could hold.
    #[error("record batch claims {count} records in {bytes} bytes")]
    RecordCount {
        /// The claimed count.
        count: i32,
        /// Bytes of all records, decompressed.
        bytes: usize,
    },
    /// The last offset delta is negative, or leads beyond the largest offset.
    #[error("record batch with base offset {base_offset} has impossible last offset delta {delta}")]
    LastOffset {
        /// The first offset of the batch.
        base_offset: i64,
        /// The claimed distance of the last offset.
        delta: i32,
    },
    /// The bytes do not have the checksum that the header states.
    #[error("record batch is corrupt: checksum is {computed:#010x}, header says {stored:#010x}")]
    Crc {
        /// From the header.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// The attributes name a codec that does not exist.
    #[error("record batch has unknown compression codec {0}")]
    UnknownCodec(u8),
    /// Decompression would exceed the limit.
    #[error("decompressed records exceed the limit of {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The records cannot be decompressed.
    #[error(transparent)]
    Decompress(DecompressError),
    /// A number of a record is cut off or too long.
    #[error("invalid record")]
    Varint(#[from] VarintError),
    /// A record's length is negative, goes beyond the end, or differs from its content's.
    #[error("record claims {claimed} bytes where {available} are present")]
    RecordLength {
        /// The claimed length.
        claimed: i32,
        /// Bytes available.
        available: usize,
    },
    /// The length of a key, value or header goes beyond the end of the record, or is negative where null is not
    /// allowed.
    #[error("field of a record claims {claimed} bytes where {available} are present")]
    FieldLength {
        /// The claimed length.
        claimed: i32,
        /// Bytes available.
        available: usize,
    },
    /// The header count is negative, or larger than the bytes could hold.
    #[error("record claims {count} headers in {bytes} bytes")]
    HeaderCount {
        /// The claimed count.
        count: i32,
        /// Bytes of all headers.
        bytes: usize,
    },
    /// A record's offset is outside its batch.
    #[error("record has offset delta {delta} in a batch whose last is {last}")]
    OffsetDelta {
        /// The record's distance from the base offset.
        delta: i32,
        /// The last offset's distance from the base offset.
        last: i32,
    },
    /// Bytes are left over after the last record.
    #[error("{0} bytes left over after the last record of a batch")]
    TrailingBytes(usize),
    /// A control record's key or value is malformed.
    #[error("invalid control record: {0}")]
    Control(&'static str),
}

impl From<DecompressError> for RecordError {
    fn from(error: DecompressError) -> Self {
        match error {
            DecompressError::TooLarge { limit } => Self::TooLarge { limit },
            other => Self::Decompress(other),
        }
    }
}
