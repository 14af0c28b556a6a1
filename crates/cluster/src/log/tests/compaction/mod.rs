//! Log compaction: the records that stay, and everything that must tolerate the gaps.

mod crashes;
mod gaps;
mod rules;
mod transactions;

use std::collections::BTreeMap;

use super::*;
use crate::log::{Compaction, Step};

/// A record of a compacted log; without a value it is a tombstone.
type Keyed = (i64, Vec<u8>, Option<Vec<u8>>);

fn compacted() -> LogConfig {
    let compaction = Compaction { min_dirty_ratio: 0.0, ..Compaction::default() };
    LogConfig { segment_bytes: 400, compacted: true, compaction, ..config() }
}

fn builder(records: &[(&str, Option<&str>)], timestamp: i64) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Vec::new());
    for (key, value) in records {
        let (key, value) = (Some(key.as_bytes()), value.map(str::as_bytes));
        builder.append(&RecordData { key, value, headers: &[], timestamp });
    }
    builder
}

/// Returns a batch of records with keys.
fn keyed(records: &[(&str, Option<&str>)], producer: ProducerStamp, codec: Codec) -> Bytes {
    let compression = Compression { codec, ..Compression::default() };
    let mut sealed = builder(records, NOW).seal(&compression, &mut Vec::new()).unwrap();
    stamp(&mut sealed, producer);
    sealed.into()
}

fn keyed_at(records: &[(&str, Option<&str>)], timestamp: i64) -> Bytes {
    let mut sealed = builder(records, timestamp).seal(&Compression::NONE, &mut Vec::new()).unwrap();
    stamp(&mut sealed, ProducerStamp::NONE);
    sealed.into()
}

/// Appends records with keys, in one batch of a producer that is not idempotent.
fn put(log: &mut PartitionLog, records: &[(&str, Option<&str>)]) -> i64 {
    let batch = keyed(records, ProducerStamp::NONE, Codec::None);
    log.append_as_leader(batch, 0, NOW).unwrap().base_offset
}

/// Cleans the log, if it is due. Returns whether it was.
fn clean(log: &mut PartitionLog, now_ms: i64, last_stable: i64) -> bool {
    let Some(mut cleaning) = log.clean(now_ms, last_stable).unwrap() else { return false };
    loop {
        match cleaning.step().unwrap() {
            Step::More => {}
            Step::Swap(cleaned) => cleaning.swapped(log.swap(*cleaned).unwrap().unwrap()),
            Step::Done => {
                log.finish_cleaning(&cleaning).unwrap();
                return true;
            }
        }
    }
}

/// Reads a log as a consumer does: from each position the next batches, then from the end of the last one.
/// Every read below the end must return something that ends after the position.
fn read_keyed(log: &PartitionLog) -> Vec<Keyed> {
    let mut all = Vec::new();
    let mut from = log.start_offset();
    while from < log.end_offset() {
        let bytes = log.read(from, usize::MAX, i64::MAX, true).unwrap();
        let position = from;
        for batch in batches(bytes) {
            let batch = batch.unwrap();
            batch.verify_crc().unwrap();
            assert!(batch.header.last_offset() >= from, "not behind the position");
            from = batch.header.last_offset() + 1;
            if batch.header.is_control() {
                continue;
            }
            for record in batch.records(&DecompressLimit::default()).unwrap() {
                let record = record.unwrap();
                let value = record.value.map(|value| value.to_vec());
                all.push((record.offset, record.key.unwrap().to_vec(), value));
            }
        }
        assert!(from > position, "no batch at {position}");
    }
    assert_eq!(from, log.end_offset());
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
    all.retain(|(offset, ..)| *offset >= log.start_offset());
    all
}

/// The newest record of each key.
fn newest(records: &[Keyed]) -> BTreeMap<Vec<u8>, (i64, Option<Vec<u8>>)> {
    records.iter().map(|(offset, key, value)| (key.clone(), (*offset, value.clone()))).collect()
}

fn offsets(log: &PartitionLog) -> Vec<i64> {
    read_keyed(log).into_iter().map(|(offset, ..)| offset).collect()
}
