//! Requests of WriteTxnMarkers. Version 2 has the version of the transaction (KIP-1228).

use super::{Fields, read_indexes, write_indexes, write_list};
use crate::{DecodeError, Reader, Writer};

/// A coordinator's request to end transactions in their partitions, versions 1 and 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteTxnMarkersRequest {
    /// One marker for each transaction.
    pub markers: Vec<WritableTxnMarker>,
}

/// The end of one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WritableTxnMarker {
    /// Producer id.
    pub producer_id: i64,
    /// Epoch of the marker.
    pub producer_epoch: i16,
    /// Whether the transaction is committed; otherwise it is aborted.
    pub transaction_result: bool,
    /// Partitions by topic.
    pub topics: Vec<WritableTxnMarkerTopic>,
    /// Epoch of the coordinator.
    pub coordinator_epoch: i32,
    /// Version of the transaction (version 2 of the request): with 2 and later each transaction has a separate epoch
    /// (KIP-890). 0 before.
    pub transaction_version: i8,
}

/// Partitions of one topic in a [`WritableTxnMarker`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WritableTxnMarkerTopic {
    /// Topic name.
    pub name: String,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

impl Fields for WriteTxnMarkersRequest {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let markers = r.array_of(17, "markers", |r| WritableTxnMarker::read(version, r))?;
        r.skip_tagged("WriteTxnMarkers request")?;
        Ok(Self { markers })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        write_list(version, &self.markers, w);
        w.no_tags();
    }
}

impl Fields for WritableTxnMarker {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let producer_id = r.i64("producer_id")?;
        let producer_epoch = r.i16("producer_epoch")?;
        let transaction_result = r.bool("transaction_result")?;
        let topics = r.array_of(3, "topics", |r| WritableTxnMarkerTopic::read(version, r))?;
        let coordinator_epoch = r.i32("coordinator_epoch")?;
        let transaction_version = if version >= 2 { r.i8("transaction_version")? } else { 0 };
        r.skip_tagged("markers")?;
        Ok(Self {
            producer_id,
            producer_epoch,
            transaction_result,
            topics,
            coordinator_epoch,
            transaction_version,
        })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.i64(self.producer_id);
        w.i16(self.producer_epoch);
        w.bool(self.transaction_result);
        write_list(version, &self.topics, w);
        w.i32(self.coordinator_epoch);
        if version >= 2 {
            w.i8(self.transaction_version);
        }
        w.no_tags();
    }
}

impl Fields for WritableTxnMarkerTopic {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = r.string("name")?.to_owned();
        let partitions = read_indexes("partition_indexes", r)?;
        r.skip_tagged("topics")?;
        Ok(Self { name, partitions })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.string(&self.name);
        write_indexes(&self.partitions, w);
        w.no_tags();
    }
}
