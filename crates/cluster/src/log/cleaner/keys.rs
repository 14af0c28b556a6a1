//! The newest offset of each key.

use std::collections::HashMap;

use curtail_wire::records::{Batch, DecompressLimit, RecordError};

/// Memory for the keys of one cleaning, in bytes: as much as Kafka's `log.cleaner.dedupe.buffer.size`.
const MOST_BYTES: usize = 128 << 20;

/// Memory per key in addition to its bytes, approximately.
const ENTRY_BYTES: usize = 64;

/// The newest offset of each key in the compared records. Its order is never used.
#[derive(Default)]
pub(super) struct NewestOffsets {
    by_key: HashMap<Box<[u8]>, i64>,
    bytes: usize,
    /// Records from this offset on have not been compared.
    end: i64,
}

impl NewestOffsets {
    /// Adds the keys of a batch, except those of records before `from`.
    pub(super) fn add(&mut self, batch: &Batch, from: i64) -> Result<(), RecordError> {
        let mut records = batch.records(&DecompressLimit::default())?;
        while let Some(record) = records.next_ref() {
            let record = record?;
            let Some(key) = record.key.filter(|_| record.offset >= from) else { continue };
            if let Some(newest) = self.by_key.get_mut(key) {
                *newest = record.offset;
                continue;
            }
            self.bytes += key.len() + ENTRY_BYTES;
            self.by_key.insert(key.into(), record.offset);
        }
        Ok(())
    }

    /// Whether no further batch may be added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES
    }

    pub(super) fn end_at(&mut self, end: i64) {
        self.end = end;
    }

    pub(super) fn end(&self) -> i64 {
        self.end
    }

    /// Whether the record is the newest of its key, as far as records have been compared. As in Kafka, a
    /// record without a key is not.
    pub(super) fn is_newest(&self, key: Option<&[u8]>, offset: i64) -> bool {
        if offset >= self.end {
            return true;
        }
        key.is_some_and(|key| self.by_key.get(key).is_none_or(|newest| offset >= *newest))
    }
}
