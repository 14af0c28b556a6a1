//! Decoding of record batches: lazily, without copying, with every number untrusted.

use std::iter::FusedIterator;
use std::ops::Range;

use bytes::Bytes;

use super::RecordError;
use super::header::{
    AT_ATTRIBUTES, AT_LENGTH, AT_MAGIC, BATCH_HEADER_LEN, BatchHeader, LOG_OVERHEAD, TimestampType,
};
use crate::compression::{self, Codec, DecompressLimit};
use crate::varint::{self, read_i32, read_i64};

/// Bytes of the smallest record: length, attributes, two deltas, two lengths, header count.
const MIN_RECORD_LEN: usize = 7;
/// Bytes of the smallest header: two lengths.
const MIN_HEADER_LEN: usize = 2;

/// Splits the records of a Fetch response or a log segment into batches.
///
/// A truncated last batch ends the iteration without an error: brokers cut a response at its size limit.
/// [`Batches::remaining`] returns how many such bytes are left.
#[must_use]
pub fn batches(data: Bytes) -> Batches {
    Batches { data, failed: false }
}

/// The iterator of [`batches`]. It ends after the first error, as no later batch can be found.
#[derive(Clone, Debug)]
pub struct Batches {
    data: Bytes,
    failed: bool,
}

impl Batches {
    /// Bytes not yet returned as a batch.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.data.len()
    }

    /// Base offset of the batch after the one that [`Iterator::next`] returns or fails at. Only the length of the
    /// first one is read, so that an unreadable batch can be skipped. `None` if the second one is missing.
    #[must_use]
    pub fn offset_behind_next(&self) -> Option<i64> {
        let length: [u8; 4] = self.data.get(AT_LENGTH..)?.first_chunk().copied()?;
        let size = LOG_OVERHEAD.checked_add(usize::try_from(i32::from_be_bytes(length)).ok()?)?;
        let behind = BatchHeader::parse(self.data.get(size..)?).ok()?;
        Some(behind.base_offset)
    }

    fn split_next(&mut self) -> Result<Option<Batch>, RecordError> {
        if self.data.len() <= AT_MAGIC {
            return Ok(None);
        }
        let header = match BatchHeader::parse(&self.data) {
            Ok(header) => header,
            Err(RecordError::Truncated { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let size = header.size_in_bytes();
        if size > self.data.len() {
            return Ok(None);
        }
        Ok(Some(Batch { header, raw: self.data.split_to(size) }))
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.split_next().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

impl FusedIterator for Batches {}

/// One whole batch: its decoded header and all its bytes.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The decoded header.
    pub header: BatchHeader,
    raw: Bytes,
}

impl Batch {
    /// Takes `raw`, which is exactly one batch.
    ///
    /// # Errors
    /// [`RecordError`] if the header is invalid or `raw` is shorter or longer than it states.
    pub fn parse(raw: Bytes) -> Result<Batch, RecordError> {
        let header = BatchHeader::parse(&raw)?;
        let needed = header.size_in_bytes();
        if raw.len() < needed {
            return Err(RecordError::Truncated { needed, available: raw.len() });
        }
        if raw.len() > needed {
            return Err(RecordError::TrailingBytes(raw.len() - needed));
        }
        Ok(Batch { header, raw })
    }

    /// Compares the bytes with the checksum.
    ///
    /// # Errors
    /// [`RecordError::Crc`] if they differ.
    pub fn verify_crc(&self) -> Result<(), RecordError> {
        let computed = crc32c::crc32c(&self.raw[AT_ATTRIBUTES..]);
        let stored = self.header.crc;
        if computed == stored { Ok(()) } else { Err(RecordError::Crc { stored, computed }) }
    }

    /// All bytes of the batch, header included.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The records, decompressed if necessary. Without compression nothing is copied, and the limit does not apply.
    ///
    /// The checksum is not verified; call [`Batch::verify_crc`] first for untrusted bytes.
    ///
    /// # Errors
    /// [`RecordError`] for an unknown codec, data that cannot be decompressed within the limit, or
    /// more records than their bytes can hold.
    pub fn records(&self, limit: &DecompressLimit) -> Result<Records, RecordError> {
        let (data, memory) = match self.header.compression()? {
            Codec::None => (self.raw.slice(BATCH_HEADER_LEN..), 0),
            codec => {
                let data = compression::decompress(codec, &self.raw[BATCH_HEADER_LEN..], limit)?;
                let memory = data.capacity();
                (Bytes::from(data), memory)
            }
        };
        let count = self.header.record_count;
        let remaining = u32::try_from(count)
            .ok()
            .filter(|&count| count as usize <= data.len() / MIN_RECORD_LEN);
        let Some(remaining) = remaining else {
            return Err(RecordError::RecordCount { count, bytes: data.len() });
        };
        let header = self.header;
        Ok(Records { data, memory, at: 0, remaining, header, repaired: Bytes::new() })
    }
}

/// The records of one batch, in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records {
    data: Bytes,
    /// Allocated by decompression.
    memory: usize,
    at: usize,
    remaining: u32,
    header: BatchHeader,
    /// The current record's headers with names repaired to valid UTF-8, if they were invalid.
    repaired: Bytes,
}

/// A record whose fields share the batch's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The offset in the partition.
    pub offset: i64,
    /// Time in ms since the Unix epoch; [`BatchHeader::timestamp_type`] says whose.
    pub timestamp: i64,
    /// The key.
    pub key: Option<Bytes>,
    /// The value.
    pub value: Option<Bytes>,
    /// The headers, decoded when iterated.
    pub headers: RecordHeaders,
}

/// A record borrowed from [`Records`].
#[derive(Clone, Debug)]
pub struct RecordRef<'a> {
    /// The offset in the partition.
    pub offset: i64,
    /// Time in ms since the Unix epoch; [`BatchHeader::timestamp_type`] says whose.
    pub timestamp: i64,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    /// The headers, decoded when iterated.
    pub headers: HeaderIter<'a>,
}

/// Positions of the parts of one record; all lengths are checked.
struct Layout {
    offset: i64,
    timestamp: i64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: Range<usize>,
    header_count: u32,
    headers_valid: bool,
}

impl Records {
    /// Returns the next record, borrowed from the batch. Calls may be mixed with [`Iterator::next`].
    #[inline]
    pub fn next_ref(&mut self) -> Option<Result<RecordRef<'_>, RecordError>> {
        let layout = match self.advance()? {
            Ok(layout) => layout,
            Err(error) => return Some(Err(error)),
        };
        let headers = if layout.headers_valid {
            &self.data[layout.headers]
        } else {
            self.repaired = repair(&self.data[layout.headers], layout.header_count);
            &self.repaired[..]
        };
        Some(Ok(RecordRef {
            offset: layout.offset,
            timestamp: layout.timestamp,
            key: layout.key.map(|range| &self.data[range]),
            value: layout.value.map(|range| &self.data[range]),
            headers: HeaderIter { bytes: headers, left: layout.header_count },
        }))
    }

    /// Bytes that decompression allocated for the batch, 0 without compression. Each [`Record`] of the batch keeps
    /// all of them in memory.
    #[must_use]
    pub fn decompressed_memory(&self) -> usize {
        self.memory
    }

    /// All encoded records, decompressed.
    #[must_use]
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// All encoded records, decompressed.
    pub(super) fn into_data(self) -> Bytes {
        self.data
    }

    /// The header of the records' batch.
    #[must_use]
    pub fn batch_header(&self) -> &BatchHeader {
        &self.header
    }

    #[inline]
    fn advance(&mut self) -> Option<Result<Layout, RecordError>> {
        if self.remaining == 0 {
            let left = self.data.len() - self.at;
            self.at = self.data.len();
            return (left > 0).then_some(Err(RecordError::TrailingBytes(left)));
        }
        let layout = self.parse_one();
        if layout.is_ok() {
            self.remaining -= 1;
        } else {
            self.remaining = 0;
            self.at = self.data.len();
        }
        Some(layout)
    }

    #[inline]
    fn parse_one(&mut self) -> Result<Layout, RecordError> {
        let data = &self.data[..];
        let mut at = self.at;
        let claimed = read_i32(data, &mut at)?;
        let available = data.len() - at;
        let end = usize::try_from(claimed)
            .ok()
            .filter(|&len| len <= available)
            .map(|len| at + len)
            .ok_or(RecordError::RecordLength { claimed, available })?;
        // No read of this record can reach into the next one.
        let record = &data[..end];
        at += 1; // Attributes: none is defined. An `at` beyond the end fails in the next read.
        let timestamp_delta = read_i64(record, &mut at)?;
        let delta = read_i32(record, &mut at)?;
        if delta < 0 || delta > self.header.last_offset_delta {
            return Err(RecordError::OffsetDelta { delta, last: self.header.last_offset_delta });
        }
        let key = read_nullable(record, &mut at)?;
        let value = read_nullable(record, &mut at)?;
        let count = read_i32(record, &mut at)?;
        let bytes = end - at;
        let header_count = u32::try_from(count)
            .ok()
            .filter(|&count| count as usize <= bytes / MIN_HEADER_LEN)
            .ok_or(RecordError::HeaderCount { count, bytes })?;
        let headers = at..end;
        let headers_valid = check_headers(record, &mut at, header_count)?;
        if at != end {
            return Err(RecordError::RecordLength {
                claimed,
                available: at - (end - claimed as usize),
            });
        }
        self.at = end;
        Ok(Layout {
            // The header's check makes the last offset a valid sum, and so every earlier one.
            offset: self.header.base_offset + i64::from(delta),
            timestamp: match self.header.timestamp_type() {
                TimestampType::CreateTime => {
                    self.header.base_timestamp.wrapping_add(timestamp_delta)
                }
                TimestampType::LogAppendTime => self.header.max_timestamp,
            },
            key,
            value,
            headers,
            header_count,
            headers_valid,
        })
    }
}

impl Iterator for Records {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let layout = match self.advance()? {
            Ok(layout) => layout,
            Err(error) => return Some(Err(error)),
        };
        let bytes = match (layout.header_count, layout.headers_valid) {
            (0, _) => Bytes::new(),
            (_, true) => self.data.slice(layout.headers),
            (count, false) => repair(&self.data[layout.headers], count),
        };
        Some(Ok(Record {
            offset: layout.offset,
            timestamp: layout.timestamp,
            key: layout.key.map(|range| self.data.slice(range)),
            value: layout.value.map(|range| self.data.slice(range)),
            headers: RecordHeaders { bytes, count: layout.header_count },
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // One more than the records, for an error about the bytes after them.
        (0, Some(self.remaining as usize + 1))
    }
}

impl FusedIterator for Records {}

/// Reads a length of -1 (null) or more and skips that number of bytes.
#[inline]
fn read_nullable(record: &[u8], at: &mut usize) -> Result<Option<Range<usize>>, RecordError> {
    let claimed = read_i32(record, at)?;
    if claimed == -1 {
        return Ok(None);
    }
    let available = record.len() - *at;
    let len = usize::try_from(claimed)
        .ok()
        .filter(|&len| len <= available)
        .ok_or(RecordError::FieldLength { claimed, available })?;
    let start = *at;
    *at += len;
    Ok(Some(start..*at))
}

/// Walks the headers, so that iterating over them later cannot fail. Returns `false` if a name is not UTF-8.
#[inline]
fn check_headers(record: &[u8], at: &mut usize, count: u32) -> Result<bool, RecordError> {
    let mut valid = true;
    for _ in 0..count {
        let available = record.len() - *at;
        let name = read_nullable(record, at)?
            .ok_or(RecordError::FieldLength { claimed: -1, available })?;
        valid &= std::str::from_utf8(&record[name]).is_ok();
        read_nullable(record, at)?;
    }
    Ok(valid)
}

/// Encodes headers again with invalid parts of their names replaced by U+FFFD, as the Java client shows them: one
/// such name must not make a partition unreadable.
#[cold]
fn repair(headers: &[u8], count: u32) -> Bytes {
    let mut out = Vec::with_capacity(headers.len());
    let mut rest = HeaderIter { bytes: headers, left: count };
    while let Some((name, value)) = rest.next_raw() {
        let name = String::from_utf8_lossy(name);
        varint::push_i32(&mut out, name.len() as i32);
        out.extend_from_slice(name.as_bytes());
        varint::push_i32(&mut out, value.map_or(-1, |value| value.len() as i32));
        out.extend_from_slice(value.unwrap_or_default());
    }
    out.into()
}

/// The headers of a [`Record`], kept encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordHeaders {
    bytes: Bytes,
    count: u32,
}

impl RecordHeaders {
    /// The headers in order, repeated names included.
    #[must_use]
    pub fn iter(&self) -> HeaderIter<'_> {
        HeaderIter { bytes: &self.bytes, left: self.count }
    }

    /// As [`Self::iter`]. The values share the batch's memory.
    pub fn shared(&self) -> impl ExactSizeIterator<Item = (&str, Option<Bytes>)> {
        self.iter().map(|(name, value)| (name, value.map(|value| self.bytes.slice_ref(value))))
    }

    /// Number of headers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the record has no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> IntoIterator for &'a RecordHeaders {
    type Item = (&'a str, Option<&'a [u8]>);
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

/// Names and values of a record's headers, in order, repeated names included.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    /// Encoded headers, checked when the record was read.
    bytes: &'a [u8],
    left: u32,
}

impl<'a> HeaderIter<'a> {
    fn next_raw(&mut self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        self.left = self.left.checked_sub(1)?;
        let mut at = 0;
        let name = read_nullable(self.bytes, &mut at).ok()??;
        let value = read_nullable(self.bytes, &mut at).ok()?;
        let bytes = self.bytes;
        self.bytes = &bytes[at..];
        Some((&bytes[name], value.map(|range| &bytes[range])))
    }
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.next_raw()?;
        Some((std::str::from_utf8(name).unwrap_or_default(), value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for HeaderIter<'_> {}
