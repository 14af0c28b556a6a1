//! What [`crate::Consumer`] gives out.

use std::{ops::Deref, sync::Arc};

use curtail_wire::records::{RecordRef, Records as WireRecords};

use crate::{ConsumerRecord, Error, Result};

/// Records of one [`crate::Consumer::poll`], in the order of their partitions' logs; empty when the time ran out.
#[derive(Clone, Debug, Default)]
pub struct Records(pub(super) Vec<ConsumerRecord>);

impl Records {
    /// The records themselves.
    pub fn into_vec(self) -> Vec<ConsumerRecord> {
        self.0
    }
}

impl Deref for Records {
    type Target = [ConsumerRecord];

    fn deref(&self) -> &[ConsumerRecord] {
        &self.0
    }
}

impl IntoIterator for Records {
    type Item = ConsumerRecord;
    type IntoIter = std::vec::IntoIter<ConsumerRecord>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = &'a ConsumerRecord;
    type IntoIter = std::slice::Iter<'a, ConsumerRecord>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// One batch as it was produced, read record by record without taking shares of its memory.
#[derive(Debug)]
pub struct RecordBatch {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) records: WireRecords,
}

impl RecordBatch {
    /// Topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Partition.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Offset of the batch's last record, which a compacted topic may no longer have.
    pub fn last_offset(&self) -> i64 {
        self.records.batch_header().last_offset()
    }

    /// The next record, borrowed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the batch's checksum is right and its content is not that of records; the batch
    /// ends there. The consumer has passed it: who wants it reported again seeks back to its offset.
    pub fn next_record(&mut self) -> Option<Result<RecordRef<'_>>> {
        let header = self.records.batch_header();
        let (offset, next_offset) = (header.base_offset, header.last_offset().checked_add(1));
        match self.records.next_ref()? {
            Ok(record) => Some(Ok(record)),
            Err(error) => Some(Err(Error::Corrupt {
                topic: self.topic.clone(),
                partition: self.partition,
                offset,
                next_offset,
                reason: error.to_string().into(),
            })),
        }
    }
}
