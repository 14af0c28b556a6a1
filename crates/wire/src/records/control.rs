//! Control batches: markers that brokers write among the records. Clients never show them.

use super::RecordError;
use super::builder::{BatchBuilder, ProducerStamp, RecordData, stamp};
use super::header::{AT_ATTRIBUTES, CONTROL, TRANSACTIONAL, field, put};
use crate::compression::{CompressError, Compression};

const ABORT: i16 = 0;
const COMMIT: i16 = 1;
const LEADER_CHANGE: i16 = 2;
/// The version of keys and of transaction markers' values.
const VERSION: i16 = 0;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndTxnMarker {
    /// Its records must be skipped by readers of committed data.
    Abort,
    /// Its records are committed.
    Commit,
}

/// Contents of a control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    /// The end of a transaction of the batch's producer id.
    EndTxn {
        /// How it ended.
        marker: EndTxnMarker,
        /// Epoch of the coordinator that wrote the marker.
        coordinator_epoch: i32,
    },
    /// A new leader of a Raft quorum's log.
    LeaderChange,
    /// A type that this library has no use for; readers skip it, as later brokers may add some.
    Other(i16),
}

impl ControlRecord {
    /// Reads the key and value of a record in a batch with [`super::BatchHeader::is_control`].
    ///
    /// # Errors
    /// [`RecordError::Control`] where the key, or the value of a transaction marker, is too short or
    /// of a negative version. Later versions only add bytes at the end.
    pub fn parse(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<ControlRecord, RecordError> {
        let key = key.filter(|key| key.len() >= 4).ok_or(RecordError::Control("key too short"))?;
        if i16::from_be_bytes(field(key, 0)) < VERSION {
            return Err(RecordError::Control("negative key version"));
        }
        match i16::from_be_bytes(field(key, 2)) {
            ABORT => Self::parse_end_txn(EndTxnMarker::Abort, value),
            COMMIT => Self::parse_end_txn(EndTxnMarker::Commit, value),
            LEADER_CHANGE => Ok(Self::LeaderChange),
            other => Ok(Self::Other(other)),
        }
    }

    fn parse_end_txn(marker: EndTxnMarker, value: Option<&[u8]>) -> Result<Self, RecordError> {
        let value = value
            .filter(|value| value.len() >= 6)
            .ok_or(RecordError::Control("transaction marker too short"))?;
        if i16::from_be_bytes(field(value, 0)) < VERSION {
            return Err(RecordError::Control("negative transaction marker version"));
        }
        Ok(Self::EndTxn { marker, coordinator_epoch: i32::from_be_bytes(field(value, 2)) })
    }
}

/// Encodes the control batch that ends a transaction, checksum included. `timestamp` is in ms.
///
/// # Errors
/// None in practice: the batch is small and not compressed.
pub fn encode_end_txn_marker(
    marker: EndTxnMarker,
    producer_id: i64,
    producer_epoch: i16,
    coordinator_epoch: i32,
    timestamp: i64,
) -> Result<Vec<u8>, CompressError> {
    let kind = match marker {
        EndTxnMarker::Abort => ABORT,
        EndTxnMarker::Commit => COMMIT,
    };
    let mut key = [0; 4];
    put(&mut key, 0, VERSION.to_be_bytes());
    put(&mut key, 2, kind.to_be_bytes());
    let mut value = [0; 6];
    put(&mut value, 0, VERSION.to_be_bytes());
    put(&mut value, 2, coordinator_epoch.to_be_bytes());
    let mut builder = BatchBuilder::new(Vec::new());
    builder.append(&RecordData { key: Some(&key), value: Some(&value), headers: &[], timestamp });
    let mut batch = builder.seal(&Compression::NONE, &mut Vec::new())?;
    put(&mut batch, AT_ATTRIBUTES, (TRANSACTIONAL | CONTROL).to_be_bytes());
    stamp(&mut batch, ProducerStamp { producer_id, producer_epoch, base_sequence: -1 });
    Ok(batch)
}
