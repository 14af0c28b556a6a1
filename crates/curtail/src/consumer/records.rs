//! Results of polls of [`crate::Consumer`].

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use bytes::Bytes;
use curtail_wire::records::{RecordError, RecordRef, Records as WireRecords, TimestampType};

use super::cursor;
use crate::{ConsumerRecord, Error, Result, TopicPartition, transaction::OffsetAndMetadata};

/// Records of one [`crate::Consumer::poll`], in log order per partition; empty after the timeout.
#[derive(Clone, Debug, Default)]
pub struct Records(pub(super) Vec<ConsumerRecord>);

impl Records {
    /// Returns the records as a vector.
    pub fn into_vec(self) -> Vec<ConsumerRecord> {
        self.0
    }

    /// Returns, for each partition, the offset after the last record, with that record's leader epoch. Commit these
    /// offsets once the records are processed (KIP-1094).
    pub fn next_offsets(&self) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
        let mut next = BTreeMap::new();
        let mut last: Option<&ConsumerRecord> = None;
        for record in self.0.iter().rev() {
            // Records of one partition are adjacent.
            if last.is_some_and(|last| {
                last.partition == record.partition && last.topic == record.topic
            }) {
                continue;
            }
            last = Some(record);
            next.entry(record.topic_partition()).or_insert_with(|| record.next_offset());
        }
        next
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

/// One batch as it was produced. It is read record by record, without a reference count per record.
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

    /// Records that its header claims, markers of transactions included.
    pub(super) fn count(&self) -> usize {
        usize::try_from(self.records.batch_header().record_count).unwrap_or(0)
    }

    /// Offset of the batch's last record. Compaction may have removed that record.
    pub fn last_offset(&self) -> i64 {
        self.records.batch_header().last_offset()
    }

    /// Epoch of the leader that appended the batch; `None` if the brokers keep no epochs.
    pub fn leader_epoch(&self) -> Option<i32> {
        let epoch = self.records.batch_header().partition_leader_epoch;
        (epoch >= 0).then_some(epoch)
    }

    /// Whether the timestamps are the producer's time or the broker's append time.
    pub fn timestamp_type(&self) -> TimestampType {
        self.records.batch_header().timestamp_type()
    }

    /// The encoded records, decompressed. Keys and values are slices of it.
    pub fn data(&self) -> &Bytes {
        self.records.data()
    }

    /// Returns the next record, borrowed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the checksum is valid but the content is not. The batch ends there, and the consumer's
    /// position is after it. To get the error again, seek back to the batch's offset.
    pub fn next_record(&mut self) -> Option<Result<RecordRef<'_>>> {
        let Self { topic, partition, records } = self;
        let extent = extent(records);
        Some(records.next_ref()?.map_err(|error| corrupt(topic, *partition, extent, &error)))
    }

    /// Returns the next record as polls return it: it keeps [`Self::data`] in memory. Calls may be mixed with
    /// [`Self::next_record`].
    ///
    /// # Errors
    /// As [`Self::next_record`].
    pub fn next_shared(&mut self) -> Option<Result<ConsumerRecord>> {
        let header = self.records.batch_header();
        let (timestamp_type, leader_epoch) =
            (header.timestamp_type(), header.partition_leader_epoch);
        let extent = extent(&self.records);
        Some(match self.records.next()? {
            Ok(record) => Ok(ConsumerRecord {
                topic: self.topic.clone(),
                partition: self.partition,
                leader_epoch,
                offset: record.offset,
                timestamp: record.timestamp,
                timestamp_type,
                key: record.key,
                value: record.value,
                headers: record.headers,
            }),
            Err(error) => Err(corrupt(&self.topic, self.partition, extent, &error)),
        })
    }
}

/// The error for a record that cannot be read.
fn corrupt(
    topic: &Arc<str>,
    partition: i32,
    (offset, next_offset): Extent,
    error: &RecordError,
) -> Error {
    cursor::corrupt(&TopicPartition::new(topic.clone(), partition), offset, next_offset, error)
}

/// The offset of a batch, and the offset after it.
type Extent = (i64, Option<i64>);

fn extent(records: &WireRecords) -> Extent {
    let header = records.batch_header();
    (header.base_offset, header.last_offset().checked_add(1))
}
