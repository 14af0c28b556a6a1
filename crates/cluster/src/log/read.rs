//! Reading a log by offset and by time.

use bytes::Bytes;
use curtail_wire::fetch::AbortedTransaction;
use curtail_wire::records::{BATCH_HEADER_LEN, Batch, BatchHeader, DecompressLimit, RecordError};

use super::segment::{NO_TIMESTAMP, Segment};
use super::{PartitionLog, ReadError};

/// Maximum bytes of one read, whatever the caller requests (except for a larger batch).
const READ_LIMIT: usize = 64 << 20;

/// Bytes per read in the search for one batch.
const READAHEAD: usize = 16 * 1024;

impl PartitionLog {
    /// Reads whole batches, starting with the one that contains `from`, that end before the offset
    /// `up_to` and together have at most `max_bytes`. With `min_one_batch` the first batch may be
    /// larger.
    ///
    /// Returns batches from one segment, or nothing if there are none. The newest batches come from
    /// memory. `up_to` is the high watermark for consumers, the last stable offset for
    /// `read_committed` consumers, and [`i64::MAX`] for followers.
    ///
    /// # Errors
    /// [`ReadError::OffsetOutOfRange`] for an offset before the start or after the end of the log,
    /// and other [`ReadError`]s if the disk fails.
    pub fn read(
        &self,
        from: i64,
        max_bytes: usize,
        up_to: i64,
        min_one_batch: bool,
    ) -> Result<Bytes, ReadError> {
        if from < self.start_offset || from > self.end_offset {
            let (start, end) = (self.start_offset, self.end_offset);
            return Err(ReadError::OffsetOutOfRange { offset: from, start, end });
        }
        if from >= up_to.min(self.end_offset) {
            return Ok(Bytes::new());
        }
        let max_bytes = max_bytes.min(READ_LIMIT);
        if let Some(bytes) = self.cache.read(from, max_bytes, up_to, min_one_batch) {
            return Ok(bytes);
        }
        self.read_file(from, max_bytes, up_to, min_one_batch)
    }

    fn read_file(
        &self,
        from: i64,
        max_bytes: usize,
        up_to: i64,
        min_one_batch: bool,
    ) -> Result<Bytes, ReadError> {
        let segment = self.segment_of(from);
        let readahead = max_bytes.saturating_add(self.config.index_interval_bytes as usize);
        let position = segment.position_before(from);
        let found = segment.find(position, readahead, |header| header.last_offset() >= from)?;
        // Every offset before the end is in some batch, unless the file has changed since it was
        // opened.
        let Some(mut found) = found else {
            return Err(RecordError::Truncated { needed: BATCH_HEADER_LEN, available: 0 }.into());
        };
        let first = BatchHeader::parse(&found.rest())?;
        let too_large = first.size_in_bytes() > max_bytes && !min_one_batch;
        if too_large || first.last_offset() >= up_to {
            return Ok(Bytes::new());
        }
        segment.load_batch(&mut found)?;
        let bytes = found.rest();
        let mut end = first.size_in_bytes();
        while let Ok(header) = BatchHeader::parse(&bytes[end..]) {
            let next = end + header.size_in_bytes();
            if next > max_bytes || next > bytes.len() || header.last_offset() >= up_to {
                break;
            }
            end = next;
        }
        Ok(bytes.slice(..end))
    }

    /// Returns the aborted transactions with records in `from..end`, ordered by the offsets of
    /// their markers. `end` is the end of a `read_committed` read.
    pub fn aborted_in(&self, from: i64, end: i64) -> Vec<AbortedTransaction> {
        let mut found = Vec::new();
        let first = self.segments.partition_point(|segment| segment.base_offset <= from);
        for segment in &self.segments[first.saturating_sub(1)..] {
            for entry in segment.marks.aborted.entries() {
                if entry.last_offset >= from && entry.first_offset < end {
                    found.push(AbortedTransaction {
                        producer_id: entry.producer_id,
                        first_offset: entry.first_offset,
                    });
                }
                // Transactions that end later begin at or after this offset.
                if entry.last_stable_offset >= end {
                    return found;
                }
            }
        }
        found
    }

    fn segment_of(&self, offset: i64) -> &Segment {
        let count = self.segments.partition_point(|segment| segment.base_offset <= offset);
        &self.segments[count.saturating_sub(1)]
    }

    /// Returns the first record whose timestamp is at least `timestamp` (ms), as `(its timestamp,
    /// its offset)`.
    ///
    /// # Errors
    /// [`ReadError`] if the disk fails or a batch cannot be decoded.
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<(i64, i64)>, ReadError> {
        for segment in &self.segments {
            if segment.marks.max_timestamp < timestamp || segment.size() == 0 {
                continue;
            }
            let entry = segment.marks.times.floor(|entry| entry.timestamp <= timestamp);
            let offset = segment.base_offset + entry.map_or(0, |at| i64::from(at.relative_offset));
            let mut position = segment.position_before(offset.max(self.start_offset));
            let wanted = |header: &BatchHeader| {
                header.max_timestamp >= timestamp && header.last_offset() >= self.start_offset
            };
            while let Some(mut found) = segment.find(position, READAHEAD, wanted)? {
                let batch = segment.load_batch(&mut found)?;
                let first = first_record(&batch, |record_time, offset| {
                    record_time >= timestamp && offset >= self.start_offset
                })?;
                if first.is_some() {
                    return Ok(first);
                }
                position = found.position + batch.raw().len() as u64;
            }
        }
        Ok(None)
    }

    /// Returns the first record with the largest timestamp of the log, as `(its timestamp, its
    /// offset)` (ListOffsets with timestamp -3, KIP-734).
    ///
    /// # Errors
    /// [`ReadError`] if the disk fails or a batch cannot be decoded.
    pub fn max_timestamp_offset(&self) -> Result<Option<(i64, i64)>, ReadError> {
        let mut newest: Option<&Segment> = None;
        for segment in &self.segments {
            if segment.marks.max_timestamp
                > newest.map_or(NO_TIMESTAMP, |best| best.marks.max_timestamp)
            {
                newest = Some(segment);
            }
        }
        let Some(segment) = newest else { return Ok(None) };
        let (largest, last_offset) =
            (segment.marks.max_timestamp, segment.marks.max_timestamp_offset);
        let position = segment.position_before(last_offset);
        let found =
            segment.find(position, READAHEAD, |header| header.last_offset() >= last_offset)?;
        let Some(mut found) = found else { return Ok(None) };
        let batch = segment.load_batch(&mut found)?;
        let record = first_record(&batch, |timestamp, offset| {
            timestamp == largest && offset >= self.start_offset
        })?;
        match record {
            Some(record) => Ok(Some(record)),
            // The record has been deleted but its segment has not: search the remaining records.
            None => self.max_timestamp_by_scan(),
        }
    }

    fn max_timestamp_by_scan(&self) -> Result<Option<(i64, i64)>, ReadError> {
        let mut best: Option<(i64, i64)> = None;
        for segment in &self.segments {
            let mut position = 0;
            let wanted = |header: &BatchHeader| header.last_offset() >= self.start_offset;
            while let Some(mut found) = segment.find(position, READAHEAD, wanted)? {
                let batch = segment.load_batch(&mut found)?;
                position = found.position + batch.raw().len() as u64;
                let mut floor = best.map_or(NO_TIMESTAMP, |(timestamp, _)| timestamp);
                if batch.header.max_timestamp <= floor {
                    continue;
                }
                first_record(&batch, |timestamp, offset| {
                    if timestamp > floor && offset >= self.start_offset {
                        floor = timestamp;
                        best = Some((timestamp, offset));
                    }
                    false
                })?;
            }
        }
        Ok(best)
    }
}

/// Returns the first record of a batch that is `wanted` by its timestamp and offset.
fn first_record(
    batch: &Batch,
    mut wanted: impl FnMut(i64, i64) -> bool,
) -> Result<Option<(i64, i64)>, ReadError> {
    let limit = DecompressLimit::default();
    let mut records = batch.records(&limit)?;
    while let Some(record) = records.next_ref() {
        let record = record?;
        if wanted(record.timestamp, record.offset) {
            return Ok(Some((record.timestamp, record.offset)));
        }
    }
    Ok(None)
}
