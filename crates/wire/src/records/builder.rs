//! Encoding of record batches.
//!
//! Appending is the hottest code of the producer: it runs under the lock of a partition's queue. It
//! computes a record's length first, so that every byte is written once and in place.

use std::mem;

use super::header::{
    AT_ATTRIBUTES, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_LAST_OFFSET_DELTA, AT_LEADER_EPOCH,
    AT_LENGTH, AT_MAGIC, AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH, AT_PRODUCER_ID, AT_RECORD_COUNT,
    BATCH_HEADER_LEN, LOG_OVERHEAD, MAGIC, NO_PARTITION_LEADER_EPOCH, TRANSACTIONAL, put, seal_crc,
};
use crate::compression::{Codec, CompressError, Compression};
use crate::varint;

/// The timestamp of a batch without records.
const NO_TIMESTAMP: i64 = -1;
/// The encoding of a null key or value: the length -1.
const NULL: u8 = 0x01;

/// A header of a record. Keys may repeat, and their order is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name.
    pub key: &'a str,
    /// The value, which may be null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    /// A header with a value; without one it is `Header { key, value: None }`.
    pub fn new<V: AsRef<[u8]> + ?Sized>(key: &'a str, value: &'a V) -> Self {
        Self { key, value: Some(value.as_ref()) }
    }
}

/// A name with a value, so that `[("id", b"7").into()]` is a list of headers.
impl<'a, V: AsRef<[u8]> + ?Sized> From<(&'a str, &'a V)> for Header<'a> {
    fn from((key, value): (&'a str, &'a V)) -> Self {
        Self::new(key, value)
    }
}

/// A record to encode, borrowed from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordData<'a> {
    /// The key, which may be null.
    pub key: Option<&'a [u8]>,
    /// The value, which may be null (a tombstone in a compacted topic).
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: &'a [Header<'a>],
    /// Time in ms since the Unix epoch.
    pub timestamp: i64,
}

/// Upper bound of the bytes that a batch with only this record takes, uncompressed.
///
/// Compare this size with `max.request.size` and `batch.size`. It is also an upper bound of what the record adds to a
/// batch that has others.
#[must_use]
pub fn encoded_len_bound(r: &RecordData<'_>) -> usize {
    // Length, attributes, timestamp delta, offset delta, key length, value length, header count.
    let fixed = varint::MAX_LEN_32 * 5 + varint::MAX_LEN_64 + 1;
    let mut bytes = BATCH_HEADER_LEN + fixed;
    bytes += r.key.map_or(0, <[u8]>::len) + r.value.map_or(0, <[u8]>::len);
    for header in r.headers {
        bytes += 2 * varint::MAX_LEN_32 + header.key.len() + header.value.map_or(0, <[u8]>::len);
    }
    bytes
}

/// Builds one batch in a buffer that the caller passes in and gets back.
#[derive(Debug)]
pub struct BatchBuilder {
    buf: Vec<u8>,
    count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// Starts a batch in `buf`, whose contents are discarded.
    #[must_use]
    pub fn new(mut buf: Vec<u8>) -> Self {
        buf.clear();
        buf.resize(BATCH_HEADER_LEN, 0);
        Self { buf, count: 0, base_timestamp: NO_TIMESTAMP, max_timestamp: NO_TIMESTAMP }
    }

    /// Continues in another buffer, whose contents are discarded, and returns the previous one.
    #[must_use]
    pub fn move_to(&mut self, mut buf: Vec<u8>) -> Vec<u8> {
        buf.clear();
        buf.extend_from_slice(&self.buf);
        mem::replace(&mut self.buf, buf)
    }

    /// Appends a record and returns its index, which is also its offset's distance from the batch's
    /// base offset.
    ///
    /// The caller must keep a batch below 2 GiB; [`BatchBuilder::seal`] refuses a longer one.
    pub fn append(&mut self, r: &RecordData<'_>) -> u32 {
        let index = self.count;
        if index == 0 {
            self.base_timestamp = r.timestamp;
            self.max_timestamp = r.timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(r.timestamp);
        self.count = index + 1;
        let timestamp_delta = varint::zigzag_64(r.timestamp.wrapping_sub(self.base_timestamp));
        let offset_delta = varint::zigzag_32(index as i32);
        let body = body_len(r, timestamp_delta, offset_delta);
        self.buf.reserve(body + PREFIX + SUFFIX);

        let mut prefix = Prefix::default();
        prefix.put_u32(length(body));
        prefix.put_byte(0); // Attributes: none is defined.
        prefix.put_u64(timestamp_delta);
        prefix.put_u32(offset_delta);
        if let Some(key) = r.key {
            prefix.put_u32(length(key.len()));
            prefix.flush(&mut self.buf);
            self.buf.extend_from_slice(key);
        } else {
            prefix.put_byte(NULL);
        }
        if let Some(value) = r.value {
            prefix.put_u32(length(value.len()));
            prefix.flush(&mut self.buf);
            self.buf.extend_from_slice(value);
        } else {
            prefix.put_byte(NULL);
            prefix.flush(&mut self.buf);
        }
        if r.headers.is_empty() {
            self.buf.push(0);
        } else {
            push_headers(&mut self.buf, r.headers);
        }
        index
    }

    /// The exact size of the batch in bytes, uncompressed, if `r` were appended.
    #[must_use]
    pub fn size_with(&self, r: &RecordData<'_>) -> usize {
        let base = if self.count == 0 { r.timestamp } else { self.base_timestamp };
        let timestamp_delta = varint::zigzag_64(r.timestamp.wrapping_sub(base));
        let body = body_len(r, timestamp_delta, varint::zigzag_32(self.count as i32));
        self.buf.len() + varint::len_u32(length(body)) + body
    }

    /// Bytes of the batch so far, uncompressed and with its header.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "the header alone makes it non-empty")]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Records so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Timestamp of the first record in ms, -1 without records.
    #[must_use]
    pub fn base_timestamp(&self) -> i64 {
        self.base_timestamp
    }

    /// Largest timestamp in ms, -1 without records.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// Discards the batch and returns its buffer, for a pool.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.buf
    }

    /// Ends the batch: compresses its records if requested, and fills in the header. [`stamp`] then sets the
    /// producer's fields and the checksum. The leader epoch is -1, the base offset 0.
    ///
    /// With a codec, the batch is built in `scratch` and the two buffers are swapped: afterwards `scratch` is the
    /// buffer of the uncompressed bytes. A batch is sent compressed even if that makes it longer, so that its codec
    /// is the configured one.
    ///
    /// # Errors
    /// [`CompressError`] for a level out of range, an error of the codec, or a batch beyond 2 GiB.
    pub fn seal(
        mut self,
        compression: &Compression,
        scratch: &mut Vec<u8>,
    ) -> Result<Vec<u8>, CompressError> {
        if compression.codec != Codec::None {
            scratch.clear();
            scratch.resize(BATCH_HEADER_LEN, 0);
            compression.compress(&self.buf[BATCH_HEADER_LEN..], scratch)?;
            mem::swap(&mut self.buf, scratch);
        }
        let batch_length = i32::try_from(self.buf.len() - LOG_OVERHEAD)
            .map_err(|_| CompressError::BatchTooLong { bytes: self.buf.len() })?;
        let batch = &mut self.buf[..];
        put(batch, AT_LENGTH, batch_length.to_be_bytes());
        put(batch, AT_LEADER_EPOCH, NO_PARTITION_LEADER_EPOCH.to_be_bytes());
        put(batch, AT_MAGIC, MAGIC.to_be_bytes());
        put(batch, AT_ATTRIBUTES, i16::from(compression.codec.id()).to_be_bytes());
        put(batch, AT_LAST_OFFSET_DELTA, self.count.saturating_sub(1).to_be_bytes());
        put(batch, AT_BASE_TIMESTAMP, self.base_timestamp.to_be_bytes());
        put(batch, AT_MAX_TIMESTAMP, self.max_timestamp.to_be_bytes());
        put(batch, AT_RECORD_COUNT, self.count.to_be_bytes());
        Ok(self.buf)
    }
}

/// The producer of a batch, from which the broker detects duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStamp {
    /// The producer's id.
    pub producer_id: i64,
    /// The epoch of that id.
    pub producer_epoch: i16,
    /// The sequence number of the batch's first record.
    pub base_sequence: i32,
}

impl ProducerStamp {
    /// The stamp of a producer that is not idempotent.
    pub const NONE: ProducerStamp =
        ProducerStamp { producer_id: -1, producer_epoch: -1, base_sequence: -1 };
}

impl Default for ProducerStamp {
    fn default() -> Self {
        Self::NONE
    }
}

/// Writes the producer's fields and then the checksum into a sealed batch. May be repeated, for example if a producer
/// gets a new epoch before the batch is sent.
///
/// # Panics
/// If `batch` is shorter than a batch header.
pub fn stamp(batch: &mut [u8], stamp: ProducerStamp) {
    put(batch, AT_PRODUCER_ID, stamp.producer_id.to_be_bytes());
    put(batch, AT_PRODUCER_EPOCH, stamp.producer_epoch.to_be_bytes());
    put(batch, AT_BASE_SEQUENCE, stamp.base_sequence.to_be_bytes());
    seal_crc(batch);
}

/// Marks a sealed batch as part of a transaction. [`stamp`] must follow, for the checksum.
///
/// # Panics
/// If `batch` is shorter than a batch header.
pub fn mark_transactional(batch: &mut [u8]) {
    let attributes = i16::from_be_bytes([batch[AT_ATTRIBUTES], batch[AT_ATTRIBUTES + 1]]);
    put(batch, AT_ATTRIBUTES, (attributes | TRANSACTIONAL).to_be_bytes());
}

/// Bytes in front of a record's key, at most: length, attributes, two deltas, key length and, without
/// a key, value length; rounded up to a size that is copied in two instructions.
const PREFIX: usize = 32;
/// Bytes of a record that its body's length does not count: its length field.
const SUFFIX: usize = varint::MAX_LEN_32;

/// A few small fields, collected on the stack and written in one copy of constant size.
#[derive(Default)]
struct Prefix {
    bytes: [u8; PREFIX],
    len: usize,
}

impl Prefix {
    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.len += varint::put_u32(&mut self.bytes[self.len..], value);
    }

    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.len += varint::put_u64(&mut self.bytes[self.len..], value);
    }

    /// Copies the whole array, whose size is a constant, and cuts off the unused part.
    #[inline]
    fn flush(&mut self, out: &mut Vec<u8>) {
        let end = out.len() + self.len;
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
        self.len = 0;
    }
}

/// A length as the zigzag number in front of a field. Lengths beyond the format's range make a batch that
/// [`BatchBuilder::seal`] refuses, so truncating them here does no harm.
#[inline]
const fn length(bytes: usize) -> u32 {
    varint::zigzag_32(bytes as i32)
}

#[inline]
fn field_len(bytes: Option<&[u8]>) -> usize {
    match bytes {
        None => 1,
        Some(bytes) => varint::len_u32(length(bytes.len())) + bytes.len(),
    }
}

/// Bytes of a record after its length.
#[inline]
fn body_len(r: &RecordData<'_>, timestamp_delta: u64, offset_delta: u32) -> usize {
    let deltas = varint::len_u64(timestamp_delta) + varint::len_u32(offset_delta);
    let headers = if r.headers.is_empty() { 1 } else { headers_len(r.headers) };
    1 + deltas + field_len(r.key) + field_len(r.value) + headers
}

fn headers_len(headers: &[Header<'_>]) -> usize {
    let mut bytes = varint::len_u32(length(headers.len()));
    for header in headers {
        bytes += field_len(Some(header.key.as_bytes())) + field_len(header.value);
    }
    bytes
}

fn push_headers(out: &mut Vec<u8>, headers: &[Header<'_>]) {
    varint::push_u32(out, length(headers.len()));
    for header in headers {
        varint::push_u32(out, length(header.key.len()));
        out.extend_from_slice(header.key.as_bytes());
        let Some(value) = header.value else {
            out.push(NULL);
            continue;
        };
        varint::push_u32(out, length(value.len()));
        out.extend_from_slice(value);
    }
}
