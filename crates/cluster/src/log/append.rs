//! Checks before a leader appends a producer's batch, with the error codes of Kafka's LogValidator.
//!
//! Every record is visited, which requires decompression, as in Kafka. Kafka also rewrites batches
//! with non-consecutive offsets. No producer of this format sends such batches, and they are
//! refused here. A batch is rewritten if the topic has another codec (`compression.type`).

use std::path::Path;

use bytes::{Bytes, BytesMut};
use curtail_wire::produce::BatchIndexError;
use curtail_wire::records::{
    Batch, BatchHeader, DecompressLimit, RecordError, RecordRef, Records, TimestampType,
    recompress, set_max_timestamp,
};
use curtail_wire::{ErrorCode, Report};

use super::{AppendError, LogConfig, Origin, segment::NO_TIMESTAMP};

/// Maximum number of record errors in the message of a refused batch.
const SHOWN_ERRORS: usize = 3;

/// Checks everything that does not depend on the log's content. Returns the batch with the latest
/// timestamp in its header corrected. `partition` is for messages.
pub(super) fn validate(
    mut bytes: Bytes,
    dir: &Path,
    config: &LogConfig,
    now_ms: i64,
    origin: Origin,
) -> Result<(BatchHeader, Bytes), AppendError> {
    let batch = Batch::parse(bytes.clone()).map_err(|error| match error {
        RecordError::BatchLength(_) => {
            AppendError::new(ErrorCode::CORRUPT_MESSAGE, error.to_string())
        }
        _ => invalid(Report::new(&error).to_string()),
    })?;
    check_size(bytes.len(), config)?;
    batch
        .verify_crc()
        .map_err(|error| AppendError::new(ErrorCode::CORRUPT_MESSAGE, error.to_string()))?;
    check_header(&batch.header, origin)?;
    if config.timestamp_type == TimestampType::CreateTime
        && batch.header.timestamp_type() == TimestampType::LogAppendTime
    {
        let message = "a producer must not claim log append time";
        return Err(AppendError::new(ErrorCode::INVALID_TIMESTAMP, message));
    }
    let (records, latest) = check_records(&batch, dir, config, now_ms)?;
    let mut header = batch.header;
    if let Some(compressed) = recompressed(&batch, &records, config)? {
        check_size(compressed.len(), config)?;
        bytes = Bytes::from(compressed);
        header = BatchHeader::parse(&bytes).map_err(unreadable)?;
    }
    // They share the bytes, which would be copied to be changed.
    drop((batch, records));
    if config.timestamp_type == TimestampType::LogAppendTime || header.max_timestamp == latest {
        return Ok((header, bytes));
    }
    header.max_timestamp = latest;
    let mut bytes = own(bytes);
    set_max_timestamp(&mut bytes, latest);
    Ok((header, bytes.freeze()))
}

fn check_size(bytes: usize, config: &LogConfig) -> Result<(), AppendError> {
    if bytes > config.max_message_bytes {
        let most = config.max_message_bytes;
        let message = format!("a batch of {bytes} bytes is larger than max.message.bytes {most}");
        return Err(AppendError::new(ErrorCode::MESSAGE_TOO_LARGE, message));
    }
    if bytes as u64 > config.segment_bytes {
        let message = format!("a batch of {bytes} bytes does not fit into a segment");
        return Err(AppendError::new(ErrorCode::RECORD_LIST_TOO_LARGE, message));
    }
    Ok(())
}

/// The batch with the topic's codec, if it has another one.
fn recompressed(
    batch: &Batch,
    records: &Records,
    config: &LogConfig,
) -> Result<Option<Vec<u8>>, AppendError> {
    let codec = batch.header.compression().map_err(unreadable)?;
    let Some(compression) = config.compression.filter(|wanted| wanted.codec != codec) else {
        return Ok(None);
    };
    recompress(batch, records, &compression).map(Some).map_err(|error| {
        AppendError::new(ErrorCode::UNKNOWN_SERVER_ERROR, Report::new(&error).to_string())
    })
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

/// Visits the records: their lengths must fit, and their offsets must increase by one. Returns them
/// and the latest timestamp.
fn check_records(
    batch: &Batch,
    dir: &Path,
    config: &LogConfig,
    now_ms: i64,
) -> Result<(Records, i64), AppendError> {
    let mut records = batch.records(&DecompressLimit::default()).map_err(unreadable)?;
    let mut refused = Refused::default();
    let mut latest = i64::MIN;
    let mut expected = batch.header.base_offset;
    while let Some(record) = records.next_ref() {
        let record = record.map_err(unreadable)?;
        if record.offset != expected {
            let offset = record.offset;
            return Err(invalid(format!("record {expected} has offset delta {offset}")));
        }
        latest = latest.max(record.timestamp);
        if let Some(error) = check_record(&record, dir, config, now_ms) {
            refused.push(record.offset as i32, error);
        }
        expected += 1;
    }
    refused.into_result().map(|()| (records, latest))
}

/// Returns code and message of the error for which a record is refused.
fn check_record(
    record: &RecordRef<'_>,
    dir: &Path,
    config: &LogConfig,
    now_ms: i64,
) -> Option<(ErrorCode, String)> {
    if config.compacted && record.key.is_none() {
        let partition = dir.file_name().unwrap_or_default().display();
        let message = format!(
            "Compacted topic cannot accept message without key in topic partition {partition}"
        );
        return Some((ErrorCode::INVALID_RECORD, message));
    }
    if config.timestamp_type != TimestampType::CreateTime || record.timestamp == NO_TIMESTAMP {
        return None;
    }
    let least = now_ms.saturating_sub(config.timestamp_before_max_ms);
    let most = now_ms.saturating_add(config.timestamp_after_max_ms);
    (record.timestamp < least || record.timestamp > most).then(|| {
        let message = format!(
            "Timestamp {} of message with offset {} is out of range. The timestamp should be within [{least}, {most}]",
            record.timestamp, record.offset
        );
        (ErrorCode::INVALID_TIMESTAMP, message)
    })
}

/// Returns the error for undecodable records. Like Kafka's brokers, it uses UNKNOWN_SERVER_ERROR if
/// a codec fails: producers do not retry it, whereas they would retry CORRUPT_MESSAGE.
fn unreadable(error: RecordError) -> AppendError {
    match error {
        RecordError::UnknownCodec(_) | RecordError::Decompress(_) => {
            AppendError::new(ErrorCode::UNKNOWN_SERVER_ERROR, Report::new(&error).to_string())
        }
        error => invalid(Report::new(&error).to_string()),
    }
}

/// The records for which a batch is refused.
#[derive(Default)]
struct Refused {
    records: Vec<BatchIndexError>,
    by_timestamp: bool,
}

impl Refused {
    #[cold]
    fn push(&mut self, batch_index: i32, (code, message): (ErrorCode, String)) {
        self.by_timestamp |= code == ErrorCode::INVALID_TIMESTAMP;
        self.records.push(BatchIndexError { batch_index, message: Some(message) });
    }

    fn into_result(self) -> Result<(), AppendError> {
        if self.records.is_empty() {
            return Ok(());
        }
        let error = match self.by_timestamp {
            true => AppendError::new(
                ErrorCode::INVALID_TIMESTAMP,
                "One or more records have been rejected due to invalid timestamp",
            ),
            false => invalid(self.message()),
        };
        Err(AppendError { records: self.records, ..error })
    }

    fn message(&self) -> String {
        let shown: Vec<String> = self
            .records
            .iter()
            .take(SHOWN_ERRORS)
            .map(|record| {
                let message = record.message.as_deref().unwrap_or_default();
                format!("RecordError(batchIndex={}, message='{message}')", record.batch_index)
            })
            .collect();
        format!(
            "One or more records have been rejected due to {} record errors in total, and only showing the first three \
             errors at most: [{}]",
            self.records.len(),
            shown.join(", ")
        )
    }
}

/// Returns the batch as owned bytes, to be changed in place. It is not copied if nothing else
/// shares it and it fills most of its allocation, since the cache keeps the allocation alive.
pub(super) fn own(batch: Bytes) -> BytesMut {
    match batch.try_into_mut() {
        Ok(owned) if owned.capacity() <= owned.len() + owned.len() / 4 => owned,
        Ok(shared) => BytesMut::from(&shared[..]),
        Err(shared) => BytesMut::from(&shared[..]),
    }
}
