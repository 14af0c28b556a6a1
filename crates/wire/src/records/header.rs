//! The 61-byte header of a batch, and the fields that a broker rewrites in it.

use super::RecordError;
use crate::compression::Codec;

/// Bytes of a batch header.
pub const BATCH_HEADER_LEN: usize = 61;
/// The leader epoch in a batch that no broker has appended yet.
pub const NO_PARTITION_LEADER_EPOCH: i32 = -1;

pub(super) const MAGIC: i8 = 2;
/// Base offset and length: the part that the batch length does not count.
pub(super) const LOG_OVERHEAD: usize = 12;
/// Shortest message of format 0; anything shorter is no message of any format.
const MIN_MESSAGE_LEN: i32 = 14;

pub(super) const AT_LENGTH: usize = 8;
pub(super) const AT_LEADER_EPOCH: usize = 12;
pub(super) const AT_MAGIC: usize = 16;
pub(super) const AT_CRC: usize = 17;
pub(super) const AT_ATTRIBUTES: usize = 21;
pub(super) const AT_LAST_OFFSET_DELTA: usize = 23;
pub(super) const AT_BASE_TIMESTAMP: usize = 27;
pub(super) const AT_MAX_TIMESTAMP: usize = 35;
pub(super) const AT_PRODUCER_ID: usize = 43;
pub(super) const AT_PRODUCER_EPOCH: usize = 51;
pub(super) const AT_BASE_SEQUENCE: usize = 53;
pub(super) const AT_RECORD_COUNT: usize = 57;

pub(super) const CODEC_MASK: i16 = 0x07;
pub(super) const LOG_APPEND_TIME: i16 = 1 << 3;
pub(super) const TRANSACTIONAL: i16 = 1 << 4;
pub(super) const CONTROL: i16 = 1 << 5;
pub(super) const DELETE_HORIZON: i16 = 1 << 6;

/// Meaning of a batch's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// Set by the producer, one for each record.
    CreateTime,
    /// Set by the broker when it appended the batch, the same for all its records.
    LogAppendTime,
}

/// A decoded batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; 0 in a batch sent to a broker.
    pub base_offset: i64,
    /// Bytes of the batch after this field: [`BatchHeader::size_in_bytes`] less 12.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch, or [`NO_PARTITION_LEADER_EPOCH`].
    pub partition_leader_epoch: i32,
    /// Format version, always 2.
    pub magic: i8,
    /// CRC32C of all bytes from the attributes on.
    pub crc: u32,
    /// Codec, timestamp type and flags; see the methods.
    pub attributes: i16,
    /// Distance of the last offset from the base offset. In a compacted topic the record at that
    /// offset may be gone.
    pub last_offset_delta: i32,
    /// Base of the records' timestamp deltas, in ms. In a batch with a delete horizon it is the horizon (KIP-534).
    pub base_timestamp: i64,
    /// Largest timestamp of the batch in ms.
    pub max_timestamp: i64,
    /// Id of an idempotent or transactional producer, or -1.
    pub producer_id: i64,
    /// Epoch of the producer id, or -1.
    pub producer_epoch: i16,
    /// Sequence number of the first record, or -1.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Decodes the header at the start of `bytes`, which may be longer.
    ///
    /// # Errors
    /// [`RecordError`] if bytes are missing, the format is not version 2, or the length, the last offset delta or the
    /// record count is impossible.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, RecordError> {
        check_magic(bytes)?;
        let head: &[u8; BATCH_HEADER_LEN] = bytes
            .first_chunk()
            .ok_or(RecordError::Truncated { needed: BATCH_HEADER_LEN, available: bytes.len() })?;
        let header = BatchHeader {
            base_offset: i64::from_be_bytes(field(head, 0)),
            batch_length: i32::from_be_bytes(field(head, AT_LENGTH)),
            partition_leader_epoch: i32::from_be_bytes(field(head, AT_LEADER_EPOCH)),
            magic: MAGIC,
            crc: u32::from_be_bytes(field(head, AT_CRC)),
            attributes: i16::from_be_bytes(field(head, AT_ATTRIBUTES)),
            last_offset_delta: i32::from_be_bytes(field(head, AT_LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(field(head, AT_BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(field(head, AT_MAX_TIMESTAMP)),
            producer_id: i64::from_be_bytes(field(head, AT_PRODUCER_ID)),
            producer_epoch: i16::from_be_bytes(field(head, AT_PRODUCER_EPOCH)),
            base_sequence: i32::from_be_bytes(field(head, AT_BASE_SEQUENCE)),
            record_count: i32::from_be_bytes(field(head, AT_RECORD_COUNT)),
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), RecordError> {
        if self.batch_length < (BATCH_HEADER_LEN - LOG_OVERHEAD) as i32 {
            return Err(RecordError::BatchLength(self.batch_length));
        }
        let delta = self.last_offset_delta;
        if delta < 0 || self.base_offset.checked_add(i64::from(delta)).is_none() {
            return Err(RecordError::LastOffset { base_offset: self.base_offset, delta });
        }
        if self.record_count < 0 {
            let bytes = self.size_in_bytes() - BATCH_HEADER_LEN;
            return Err(RecordError::RecordCount { count: self.record_count, bytes });
        }
        Ok(())
    }

    /// The codec of the records.
    ///
    /// # Errors
    /// [`RecordError::UnknownCodec`] for an id that is not assigned.
    pub fn compression(&self) -> Result<Codec, RecordError> {
        let id = (self.attributes & CODEC_MASK) as u8;
        Codec::from_id(id).ok_or(RecordError::UnknownCodec(id))
    }

    /// Meaning of the timestamps.
    #[must_use]
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub const fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Whether the records are markers for clients and brokers, not data.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Whether the base timestamp is the time from which tombstones may be removed (KIP-534).
    #[must_use]
    pub const fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON != 0
    }

    /// The last offset that the batch covers.
    #[must_use]
    pub const fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(self.last_offset_delta as i64)
    }

    /// The sequence number of the last record, which wraps from the largest to 0; -1 without a
    /// producer id.
    #[must_use]
    pub const fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        let sum = self.base_sequence as i64 + self.last_offset_delta as i64;
        (sum % (i32::MAX as i64 + 1)) as i32
    }

    /// Bytes of the whole batch, header included.
    #[must_use]
    pub const fn size_in_bytes(&self) -> usize {
        LOG_OVERHEAD.saturating_add_signed(self.batch_length as isize)
    }
}

/// Checks the length and the magic number, which every format version has at the same place.
fn check_magic(bytes: &[u8]) -> Result<(), RecordError> {
    let Some(&magic) = bytes.get(AT_MAGIC) else {
        return Err(RecordError::Truncated { needed: BATCH_HEADER_LEN, available: bytes.len() });
    };
    let length = i32::from_be_bytes(field(bytes, AT_LENGTH));
    if length < MIN_MESSAGE_LEN {
        return Err(RecordError::BatchLength(length));
    }
    if magic as i8 != MAGIC {
        return Err(RecordError::UnsupportedMagic(magic as i8));
    }
    Ok(())
}

/// The `N` bytes at a position that the caller has checked.
#[inline]
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[inline]
pub(super) fn put<const N: usize>(batch: &mut [u8], at: usize, bytes: [u8; N]) {
    batch[at..at + N].copy_from_slice(&bytes);
}

/// Computes the checksum and writes it into the header.
pub(super) fn seal_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[AT_ATTRIBUTES..]);
    put(batch, AT_CRC, crc.to_be_bytes());
}

/// Sets a batch's position in the log, as a leader does with every batch it appends. The checksum does not cover
/// these fields.
///
/// # Panics
/// If `batch` is shorter than a batch header.
pub fn set_base_offset_and_epoch(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    put(batch, 0, base_offset.to_be_bytes());
    put(batch, AT_LEADER_EPOCH, leader_epoch.to_be_bytes());
}

/// Marks a batch as part of a transaction. The checksum covers the mark, so [`super::stamp`] must follow.
///
/// # Panics
/// If `batch` is shorter than a batch header.
pub fn set_transactional(batch: &mut [u8]) {
    let attributes = i16::from_be_bytes(field(batch, AT_ATTRIBUTES)) | TRANSACTIONAL;
    put(batch, AT_ATTRIBUTES, attributes.to_be_bytes());
}

/// Sets the timestamps of a batch to the log append time `ts` (ms) and renews the checksum, for topics with
/// `message.timestamp.type=LogAppendTime`. `batch` is exactly one whole batch.
///
/// # Panics
/// If `batch` is shorter than a batch header.
pub fn set_log_append_time(batch: &mut [u8], ts: i64) {
    let attributes = i16::from_be_bytes(field(batch, AT_ATTRIBUTES)) | LOG_APPEND_TIME;
    put(batch, AT_ATTRIBUTES, attributes.to_be_bytes());
    put(batch, AT_MAX_TIMESTAMP, ts.to_be_bytes());
    seal_crc(batch);
}

/// Corrects the largest timestamp of a batch, if its producer has set it wrongly. `batch` must begin with a whole
/// header.
pub fn set_max_timestamp(batch: &mut [u8], ts: i64) {
    put(batch, AT_MAX_TIMESTAMP, ts.to_be_bytes());
    seal_crc(batch);
}
