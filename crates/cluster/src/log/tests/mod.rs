//! Tests of the log: stored records can be read, and the effects of crashes are repaired.

mod append;
mod compaction;
mod crashes;
mod epochs;
mod flush;
mod layout;
mod producers;
mod read;
mod recovery;
mod retention;
mod rolls;
mod transactions;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use curtail_wire::records::{
    BatchBuilder, Codec, Compression, DecompressLimit, ProducerStamp, RecordData, batches,
    set_transactional, stamp,
};

use super::{LogConfig, PartitionLog, Recovery};
use crate::disk::{Disk, MemDisk};

/// The broker's time in all tests, in ms.
const NOW: i64 = 1_000_000;

fn dir() -> PathBuf {
    PathBuf::from("data/topic-0")
}

fn config() -> LogConfig {
    LogConfig { index_interval_bytes: 200, ..LogConfig::default() }
}

fn open(disk: &MemDisk, config: &LogConfig) -> (PartitionLog, Recovery) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    PartitionLog::open(disk, dir(), config.clone()).unwrap()
}

fn fresh(config: &LogConfig) -> (MemDisk, PartitionLog) {
    let disk = MemDisk::new();
    let (log, recovery) = open(&disk, config);
    assert_eq!(recovery, Recovery::default());
    (disk, log)
}

/// A batch as sent by a producer.
#[derive(Clone)]
struct TestBatch {
    values: Vec<Vec<u8>>,
    /// The timestamp of each record.
    timestamps: Vec<i64>,
    codec: Codec,
    producer: ProducerStamp,
    transactional: bool,
}

impl TestBatch {
    /// Returns a batch of `count` records with distinct values.
    fn of(count: usize, tag: usize) -> Self {
        let value = |at: usize| format!("{tag}:{at}:{}", "x".repeat(tag % 50)).into_bytes();
        Self {
            values: (0..count).map(value).collect(),
            timestamps: vec![NOW; count],
            codec: Codec::None,
            producer: ProducerStamp::NONE,
            transactional: false,
        }
    }

    fn at(mut self, timestamps: &[i64]) -> Self {
        self.timestamps = timestamps.to_vec();
        self
    }

    fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    fn from(mut self, producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Self {
        self.producer = ProducerStamp { producer_id, producer_epoch, base_sequence };
        self
    }

    fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    fn build(&self) -> Bytes {
        let mut builder = BatchBuilder::new(Vec::new());
        for (value, &timestamp) in self.values.iter().zip(&self.timestamps) {
            builder.append(&RecordData { key: None, value: Some(value), headers: &[], timestamp });
        }
        let compression = Compression { codec: self.codec, ..Compression::default() };
        let mut sealed = builder.seal(&compression, &mut Vec::new()).unwrap();
        if self.transactional {
            set_transactional(&mut sealed);
        }
        stamp(&mut sealed, self.producer);
        sealed.into()
    }
}

/// Appends as a leader in epoch 0.
fn append(log: &mut PartitionLog, batch: &TestBatch) -> i64 {
    log.append_as_leader(batch.build(), 0, NOW).unwrap().base_offset
}

/// Appends `count` batches of one to three records. Returns their first offsets, and the end.
fn fill(log: &mut PartitionLog, count: usize) -> Vec<i64> {
    let mut bounds = Vec::new();
    for tag in 0..count {
        bounds.push(append(log, &TestBatch::of(1 + tag % 3, tag)));
    }
    bounds.push(log.end_offset());
    bounds
}

/// Returns offsets and values of the records in `bytes`, and verifies every batch's checksum.
fn records(bytes: Bytes) -> Vec<(i64, Bytes)> {
    let mut all = Vec::new();
    for batch in batches(bytes) {
        let batch = batch.unwrap();
        batch.verify_crc().unwrap();
        for record in batch.records(&DecompressLimit::default()).unwrap() {
            let record = record.unwrap();
            all.push((record.offset, record.value.unwrap()));
        }
    }
    all
}

/// Returns everything in a log, read segment by segment.
fn read_all(log: &PartitionLog) -> Vec<(i64, Bytes)> {
    let mut all = Vec::new();
    let mut from = log.start_offset();
    while from < log.end_offset() {
        let part = records(log.read(from, usize::MAX, i64::MAX, true).unwrap());
        let wanted: Vec<_> = part.into_iter().filter(|(offset, _)| *offset >= from).collect();
        from = wanted.last().expect("a read before the end returns something").0 + 1;
        all.extend(wanted);
    }
    let offsets: Vec<i64> = all.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, (log.start_offset()..log.end_offset()).collect::<Vec<_>>());
    all
}

/// Returns all bytes of a log from its first segment's start on.
fn raw(log: &PartitionLog) -> Bytes {
    let mut all = Vec::new();
    for segment in &log.segments {
        all.extend_from_slice(&segment.file.read_at(0, usize::MAX).unwrap());
    }
    all.into()
}
