//! What a leader checks before it appends a producer's batch.

use bytes::{Bytes, BytesMut};
use curtail_wire::ErrorCode;
use curtail_wire::records::{
    Batch, BatchHeader, Codec, DecompressLimit, RecordError, TimestampType,
};

use super::{AppendError, LogConfig, Origin};

/// Checks everything that does not depend on the log's content.
pub(super) fn validate(
    bytes: &Bytes,
    config: &LogConfig,
    now_ms: i64,
    origin: Origin,
) -> Result<BatchHeader, AppendError> {
    let batch = Batch::parse(bytes.clone()).map_err(|error| match error {
        RecordError::Truncated { .. } | RecordError::BatchLength(_) => {
            AppendError::new(ErrorCode::CORRUPT_MESSAGE, error.to_string())
        }
        _ => invalid(error.to_string()),
    })?;
    if bytes.len() > config.max_message_bytes {
        let message = format!(
            "a batch of {} bytes is larger than max.message.bytes {}",
            bytes.len(),
            config.max_message_bytes
        );
        return Err(AppendError::new(ErrorCode::MESSAGE_TOO_LARGE, message));
    }
    if bytes.len() as u64 > config.segment_bytes {
        let message = format!("a batch of {} bytes does not fit into a segment", bytes.len());
        return Err(AppendError::new(ErrorCode::RECORD_LIST_TOO_LARGE, message));
    }
    batch
        .verify_crc()
        .map_err(|error| AppendError::new(ErrorCode::CORRUPT_MESSAGE, error.to_string()))?;
    check_header(&batch.header, origin)?;
    check_timestamp(&batch.header, config, now_ms)?;
    check_records(&batch)?;
    Ok(batch.header)
}

fn invalid(message: impl Into<String>) -> AppendError {
    AppendError::new(ErrorCode::INVALID_RECORD, message)
}

fn check_header(header: &BatchHeader, origin: Origin) -> Result<(), AppendError> {
    if header.base_offset != 0 {
        return Err(invalid(format!("base offset {} instead of 0", header.base_offset)));
    }
    if header.record_count < 1 || header.last_offset_delta != header.record_count - 1 {
        return Err(invalid(format!(
            "{} records with a last offset delta of {}",
            header.record_count, header.last_offset_delta
        )));
    }
    if header.is_control() {
        return Err(invalid("control batches are for brokers to write"));
    }
    let numbered = header.base_sequence >= 0 || origin == Origin::Coordinator;
    if header.producer_id >= 0 && !(numbered && header.producer_epoch >= 0) {
        return Err(invalid(format!(
            "producer {} with epoch {} and sequence {}",
            header.producer_id, header.producer_epoch, header.base_sequence
        )));
    }
    if header.is_transactional() && header.producer_id < 0 {
        return Err(invalid("a transactional batch without a producer id"));
    }
    Ok(())
}

fn check_timestamp(
    header: &BatchHeader,
    config: &LogConfig,
    now_ms: i64,
) -> Result<(), AppendError> {
    if config.timestamp_type == TimestampType::LogAppendTime {
        return Ok(());
    }
    let error = |message| Err(AppendError::new(ErrorCode::INVALID_TIMESTAMP, message));
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return error("a producer must not claim log append time".to_owned());
    }
    match config.timestamp_after_max_ms {
        Some(after) if header.max_timestamp > now_ms.saturating_add(after) => error(format!(
            "timestamp {} is more than {after} ms after the broker's time {now_ms}",
            header.max_timestamp
        )),
        _ => Ok(()),
    }
}

/// Walks the records of an uncompressed batch: their lengths must fit and their offsets count up by one.
/// Compressed ones are taken as they are, under the checksum, rather than decompressed for every append.
fn check_records(batch: &Batch) -> Result<(), AppendError> {
    let codec = batch.header.compression().map_err(|error| invalid(error.to_string()))?;
    if codec != Codec::None {
        return Ok(());
    }
    let no_limit = DecompressLimit::default();
    let mut records = batch.records(&no_limit).map_err(|error| invalid(error.to_string()))?;
    let mut expected = batch.header.base_offset;
    while let Some(record) = records.next_ref() {
        let offset = record.map_err(|error| invalid(error.to_string()))?.offset;
        if offset != expected {
            return Err(invalid(format!("record {expected} has offset delta {offset}")));
        }
        expected += 1;
    }
    Ok(())
}

/// The batch as bytes of our own, to be changed in place: without copying where nobody else holds them and
/// they are most of their allocation, since the cache will keep that alive.
pub(super) fn own(batch: Bytes) -> BytesMut {
    match batch.try_into_mut() {
        Ok(owned) if owned.capacity() <= owned.len() + owned.len() / 4 => owned,
        Ok(shared) => BytesMut::from(&shared[..]),
        Err(shared) => BytesMut::from(&shared[..]),
    }
}
