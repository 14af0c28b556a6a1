//! Transactional ids in the log of `__transaction_state`: Kafka's TransactionLogKey and TransactionLogValue.

use std::collections::BTreeMap;

use bytes::Bytes;
use curtail_wire::{DecodeError, Encoding, Reader, Writer};

use super::machine::{NO_ID, Phase, ProducerEpoch, Txn, Version};

const KEY_VERSION: i16 = 0;
const TAG_PREVIOUS_ID: u32 = 0;
const TAG_NEXT_ID: u32 = 1;
const TAG_CLIENT_VERSION: u32 = 2;

/// The format of values. The flexible one came with `transaction.version` 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Classic,
    Flexible,
}

pub(super) fn encode_key(id: &str) -> Bytes {
    let mut w = Writer::with_capacity(id.len() + 4);
    w.set_encoding(Encoding::Classic);
    w.i16(KEY_VERSION);
    w.string(id);
    w.into_bytes()
}

/// Decodes the transactional id in a key; `None` for a later version.
pub(super) fn decode_key(key: &Bytes) -> Option<&str> {
    let mut r = Reader::new(key, Encoding::Classic);
    (r.i16("key version").ok()? == KEY_VERSION).then(|| r.string("transactional id").ok())?
}

pub(super) fn encode_value(txn: &Txn, format: Format) -> Bytes {
    let mut w = Writer::with_capacity(64);
    let (version, encoding) = match format {
        Format::Classic => (0, Encoding::Classic),
        Format::Flexible => (1, Encoding::Flexible),
    };
    w.i16(version);
    w.set_encoding(encoding);
    w.i64(txn.producer.id);
    w.i16(txn.producer.epoch);
    w.i32(txn.timeout_ms);
    w.i8(txn.phase.id());
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, index) in &txn.partitions {
        by_topic.entry(topic).or_default().push(*index);
    }
    w.nullable_array((txn.phase != Phase::Empty).then_some(by_topic.len()));
    if txn.phase != Phase::Empty {
        for (topic, indexes) in by_topic {
            w.string(topic);
            w.array(indexes.len());
            indexes.into_iter().for_each(|index| w.i32(index));
            w.no_tags();
        }
    }
    w.i64(txn.updated_ms);
    w.i64(txn.started_ms);
    if format == Format::Flexible {
        encode_tags(&mut w, txn);
    }
    w.into_bytes()
}

fn encode_tags(w: &mut Writer, txn: &Txn) {
    let ids = [(TAG_PREVIOUS_ID, txn.previous_id), (TAG_NEXT_ID, txn.next_id)];
    let ids: Vec<_> = ids.into_iter().filter(|(_, id)| *id != NO_ID).collect();
    let bumps = txn.version == Version::Two;
    w.tag_count(ids.len() as u32 + u32::from(bumps));
    for (tag, id) in ids {
        w.tag(tag, |w| w.i64(id));
    }
    if bumps {
        w.tag(TAG_CLIENT_VERSION, |w| w.i16(2));
    }
}

/// Decodes a transactional id's state; `None` for a later version or a malformed value.
pub(super) fn decode_value(value: &Bytes) -> Option<Txn> {
    decode(value).ok().flatten()
}

fn decode(value: &Bytes) -> Result<Option<Txn>, DecodeError> {
    let mut r = Reader::new(value, Encoding::Classic);
    match r.i16("value version")? {
        0 => {}
        1 => r.set_encoding(Encoding::Flexible),
        _ => return Ok(None),
    }
    let mut txn = Txn::new(r.i64("producer id")?, 0, 0);
    txn.producer = ProducerEpoch { epoch: r.i16("producer epoch")?, ..txn.producer };
    txn.timeout_ms = r.i32("timeout")?;
    let Some(phase) = Phase::of_id(r.i8("status")?) else { return Ok(None) };
    txn.phase = phase;
    let topics = r.nullable_array(6, "partitions")?.unwrap_or(0);
    for _ in 0..topics {
        let topic = r.string("topic")?.to_owned();
        for _ in 0..r.array(4, "partition ids")? {
            txn.partitions.insert((topic.clone(), r.i32("partition id")?));
        }
        r.skip_tagged("partitions")?;
    }
    txn.updated_ms = r.i64("last update")?;
    txn.started_ms = r.i64("start")?;
    r.tagged("transaction", |tag, r| {
        match tag {
            TAG_PREVIOUS_ID => txn.previous_id = r.i64("previous producer id")?,
            TAG_NEXT_ID => txn.next_id = r.i64("next producer id")?,
            TAG_CLIENT_VERSION if r.i16("client version")? >= 2 => txn.version = Version::Two,
            _ => {}
        }
        Ok(())
    })?;
    Ok(Some(txn))
}

/// Reads a record, for `crate::fuzzing`.
///
/// # Panics
/// If the record changes when it is written and read again.
pub(crate) fn check_record(key: &Bytes, value: &Bytes) {
    if let Some(id) = decode_key(key) {
        assert_eq!(decode_key(&encode_key(id)), Some(id));
    }
    let Some(txn) = decode_value(value) else { return };
    // The encoding of an empty transaction omits partitions.
    if txn.phase != Phase::Empty || txn.partitions.is_empty() {
        let written = encode_value(&txn, Format::Flexible);
        assert_eq!(decode_value(&written), Some(txn));
    }
}
