//! Rewritten batches: without some of their records, as log compaction leaves them, or with another codec.

use super::RecordError;
use super::decode::{Batch, Records};
use super::header::{
    AT_ATTRIBUTES, AT_BASE_TIMESTAMP, AT_LENGTH, AT_MAX_TIMESTAMP, AT_RECORD_COUNT,
    BATCH_HEADER_LEN, BatchHeader, CODEC_MASK, DELETE_HORIZON, LOG_OVERHEAD, TimestampType, put,
    seal_crc,
};
use crate::compression::{Codec, CompressError, Compression, DecompressLimit};
use crate::varint::{self, read_i32, read_i64};

/// The base timestamp of a batch without records.
const NO_TIMESTAMP: i64 = -1;

/// Why a batch cannot be rewritten.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// The batch cannot be decoded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The remaining records cannot be compressed.
    #[error(transparent)]
    Compress(#[from] CompressError),
}

/// Returns a batch with only the records whose place in `kept` is `true`. It has the offsets, sequence
/// numbers, producer, leader epoch and codec of the original one.
///
/// `delete_horizon` is the time in ms from which tombstones and markers of the batch may be removed
/// (KIP-534). It replaces the base timestamp. `None` keeps the horizon that the batch has.
///
/// A batch without records is not compressed and has no horizon. Its largest timestamp stays.
///
/// # Errors
/// [`CompactError`] if the batch cannot be decoded or compressed.
pub fn retain_records(
    batch: &Batch,
    kept: &[bool],
    delete_horizon: Option<i64>,
    limit: &DecompressLimit,
) -> Result<Vec<u8>, CompactError> {
    let header = &batch.header;
    let base = delete_horizon.unwrap_or(header.base_timestamp);
    let mut records = Vec::new();
    let (count, latest) = copy_records(batch, kept, base, limit, &mut records)?;
    let mut out = batch.raw()[..BATCH_HEADER_LEN].to_vec();
    let mut attributes = header.attributes;
    let mut base_timestamp = base;
    if count == 0 {
        attributes &= !(CODEC_MASK | DELETE_HORIZON);
        base_timestamp = NO_TIMESTAMP;
    } else {
        if delete_horizon.is_some() {
            attributes |= DELETE_HORIZON;
        }
        match header.compression()? {
            Codec::None => out.extend_from_slice(&records),
            codec => {
                Compression { codec, ..Compression::default() }.compress(&records, &mut out)?;
            }
        }
        if header.timestamp_type() == TimestampType::CreateTime {
            put(&mut out, AT_MAX_TIMESTAMP, latest.to_be_bytes());
        }
    }
    put(&mut out, AT_BASE_TIMESTAMP, base_timestamp.to_be_bytes());
    put(&mut out, AT_RECORD_COUNT, count.to_be_bytes());
    seal(&mut out, attributes)?;
    Ok(out)
}

/// Returns a batch with the same header and records, compressed with another codec. `records` are those of the batch, read
/// or not.
///
/// # Errors
/// [`CompressError`] if the records cannot be compressed.
pub fn recompress(
    batch: &Batch,
    records: &Records,
    compression: &Compression,
) -> Result<Vec<u8>, CompressError> {
    let mut out = batch.raw()[..BATCH_HEADER_LEN].to_vec();
    match compression.codec {
        Codec::None => out.extend_from_slice(records.data()),
        _ => compression.compress(records.data(), &mut out)?,
    }
    let codec = i16::from(compression.codec.id());
    seal(&mut out, batch.header.attributes & !CODEC_MASK | codec)?;
    Ok(out)
}

/// Writes the length, the attributes and the checksum of a rewritten batch.
fn seal(batch: &mut [u8], attributes: i16) -> Result<(), CompressError> {
    let length = i32::try_from(batch.len() - LOG_OVERHEAD)
        .map_err(|_| CompressError::BatchTooLong { bytes: batch.len() })?;
    put(batch, AT_LENGTH, length.to_be_bytes());
    put(batch, AT_ATTRIBUTES, attributes.to_be_bytes());
    seal_crc(batch);
    Ok(())
}

/// Copies the kept records, with timestamps relative to `base`. Returns their number and their largest
/// timestamp.
fn copy_records(
    batch: &Batch,
    kept: &[bool],
    base: i64,
    limit: &DecompressLimit,
    out: &mut Vec<u8>,
) -> Result<(i32, i64), RecordError> {
    let data = batch.records(limit)?.into_data();
    let (mut at, mut count, mut latest) = (0, 0, i64::MIN);
    for index in 0..batch.header.record_count.unsigned_abs() as usize {
        let claimed = read_i32(&data, &mut at)?;
        let available = data.len() - at;
        let body = usize::try_from(claimed)
            .ok()
            .and_then(|len| data.get(at..at.checked_add(len)?))
            .ok_or(RecordError::RecordLength { claimed, available })?;
        at += body.len();
        if !kept.get(index).copied().unwrap_or(false) {
            continue;
        }
        let Some(&attributes) = body.first() else {
            return Err(RecordError::RecordLength { claimed, available });
        };
        let mut field = 1;
        let timestamp = batch.header.base_timestamp.wrapping_add(read_i64(body, &mut field)?);
        let delta = varint::zigzag_64(timestamp.wrapping_sub(base));
        let rest = &body[field..];
        varint::push_i32(out, (1 + varint::len_u64(delta) + rest.len()) as i32);
        out.push(attributes);
        varint::push_i64(out, timestamp.wrapping_sub(base));
        out.extend_from_slice(rest);
        count += 1;
        latest = latest.max(timestamp);
    }
    Ok((count, latest))
}

impl BatchHeader {
    /// The time in ms from which tombstones and markers of the batch may be removed (KIP-534), once
    /// compaction has set it.
    #[must_use]
    pub const fn delete_horizon(&self) -> Option<i64> {
        if self.has_delete_horizon() { Some(self.base_timestamp) } else { None }
    }
}
