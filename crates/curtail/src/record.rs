//! Records that the application sends and receives.

use std::sync::Arc;

use bytes::Bytes;
pub use curtail_proto::TopicPartition;
pub use curtail_wire::records::Header;
use curtail_wire::records::{RecordHeaders, TimestampType};

use crate::{producer::Timing, transaction::OffsetAndMetadata};

/// A record to send, borrowed: [`crate::Producer::send`] encodes it in place and retains no reference.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: Option<i32>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: &'a [Header<'a>],
    pub(crate) timestamp: Option<i64>,
}

impl<'a> Record<'a> {
    /// A record for `topic` with neither key nor value.
    pub fn to(topic: &'a str) -> Self {
        Self { topic, partition: None, key: None, value: None, headers: &[], timestamp: None }
    }

    /// Sets the key. Records with equal keys go to the same partition, in order.
    #[must_use]
    pub fn key<K: AsRef<[u8]> + ?Sized>(mut self, key: &'a K) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// Sets the value. A record without one is a tombstone in a compacted topic.
    #[must_use]
    pub fn value<V: AsRef<[u8]> + ?Sized>(mut self, value: &'a V) -> Self {
        self.value = Some(value.as_ref());
        self
    }

    /// Sets the partition, which bypasses the partitioner.
    #[must_use]
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The topic.
    pub fn topic(&self) -> &'a str {
        self.topic
    }

    /// The key, if there is one.
    pub fn key_bytes(&self) -> Option<&'a [u8]> {
        self.key
    }

    /// The value, if there is one.
    pub fn value_bytes(&self) -> Option<&'a [u8]> {
        self.value
    }

    /// Sets the headers; order and duplicates are kept.
    ///
    /// ```
    /// use curtail::{Header, Record};
    ///
    /// let headers = [Header::new("trace", "7f"), ("source", b"pos").into()];
    /// let record = Record::to("payments").value("42.00").headers(&headers);
    /// # assert_eq!(headers[1].value, Some(&b"pos"[..]));
    /// ```
    #[must_use]
    pub fn headers(mut self, headers: &'a [Header<'a>]) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the timestamp in milliseconds since 1970-01-01 UTC; the time of the send by default.
    #[must_use]
    pub fn timestamp(mut self, ms: i64) -> Self {
        self.timestamp = Some(ms);
        self
    }
}

/// Position of an acknowledged record in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Offset. `None` with `acks=0`. Also `None` if an earlier attempt wrote the record, its response was lost, and
    /// the broker no longer knows the offset.
    pub offset: Option<i64>,
    /// The record's timestamp in the log, in milliseconds since 1970-01-01 UTC. The broker's append time if the topic
    /// says so, and otherwise the timestamp of the send.
    pub timestamp: i64,
    /// The broker's append time for topics with `message.timestamp.type=LogAppendTime`, in milliseconds.
    pub log_append_time: Option<i64>,
}

/// Metadata of an acknowledged batch: [`RecordMetadata`] for all its records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BatchMetadata {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Offset of the first record; the others follow without gaps. `None` as in [`RecordMetadata::offset`].
    pub base_offset: Option<i64>,
    /// Number of records.
    pub records: u32,
    /// Encoded bytes, compressed.
    pub bytes: usize,
    /// Number of requests with the batch, at least one.
    pub attempts: u32,
    /// As [`RecordMetadata::log_append_time`].
    pub log_append_time: Option<i64>,
    /// Phase timestamps.
    pub timing: Timing,
}

/// Offset of the `index`th record of a batch. `None` without a base offset, or with one so large that it is not valid.
pub(crate) fn offset_in_batch(base_offset: Option<i64>, index: u32) -> Option<i64> {
    base_offset?.checked_add(i64::from(index))
}

/// A fetched record. Key, value and headers are slices of the fetched batch: a retained record keeps its batch in
/// memory.
#[derive(Clone, Debug)]
pub struct ConsumerRecord {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// -1 if unknown.
    pub(crate) leader_epoch: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) timestamp_type: TimestampType,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: RecordHeaders,
}

impl ConsumerRecord {
    /// Topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Topic and partition. Costs a reference count, no copy of the name.
    pub fn topic_partition(&self) -> TopicPartition {
        TopicPartition { topic: self.topic.clone(), partition: self.partition }
    }

    /// Partition.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Offset.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Epoch of the leader that appended the record; `None` if the brokers keep no epochs. An offset committed with
    /// it lets a restarted consumer detect that the record was lost (KIP-320).
    pub fn leader_epoch(&self) -> Option<i32> {
        (self.leader_epoch >= 0).then_some(self.leader_epoch)
    }

    /// The offset to commit once this record is processed: the next one, with this record's leader epoch.
    pub fn next_offset(&self) -> OffsetAndMetadata {
        OffsetAndMetadata {
            leader_epoch: self.leader_epoch(),
            ..OffsetAndMetadata::new(self.offset.saturating_add(1))
        }
    }

    /// Timestamp in milliseconds since 1970-01-01 UTC. [`ConsumerRecord::timestamp_type`] says which time it is.
    pub fn timestamp(&self) -> i64 {
        self.timestamp
    }

    /// Whether the timestamp is the producer's time or the broker's append time (`message.timestamp.type`).
    pub fn timestamp_type(&self) -> TimestampType {
        self.timestamp_type
    }

    /// The key.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// The value.
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// Replaces the key. For a [`ConsumerInterceptor`](crate::consumer::ConsumerInterceptor), for example one that
    /// decrypts.
    pub fn set_key(&mut self, key: Option<Bytes>) {
        self.key = key;
    }

    /// Replaces the value. For a [`ConsumerInterceptor`](crate::consumer::ConsumerInterceptor), for example one that
    /// decrypts.
    pub fn set_value(&mut self, value: Option<Bytes>) {
        self.value = value;
    }

    /// The key as [`Bytes`]. A clone copies nothing and keeps the batch in memory.
    pub fn key_bytes(&self) -> Option<&Bytes> {
        self.key.as_ref()
    }

    /// The value as [`Bytes`]. A clone copies nothing and keeps the batch in memory.
    ///
    /// ```
    /// # fn example(record: curtail::ConsumerRecord) -> Option<bytes::Bytes> {
    /// record.value_bytes().cloned()
    /// # }
    /// ```
    pub fn value_bytes(&self) -> Option<&Bytes> {
        self.value.as_ref()
    }

    /// The headers, in order, duplicates included.
    pub fn headers(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.headers.iter()
    }

    /// As [`ConsumerRecord::headers`], with the values as [`Bytes`] that share the batch's memory.
    pub fn headers_bytes(&self) -> impl Iterator<Item = (&str, Option<Bytes>)> {
        self.headers.shared()
    }

    /// The value of the last header of this name; `None` without the header, and for a header without a value.
    #[doc(alias = "lastHeader")]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().filter(|(at, _)| *at == name).last()?.1
    }
}
