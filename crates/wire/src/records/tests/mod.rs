//! Tests of record batches; the helpers that several of them share.

mod build;
mod compact;
mod control;
mod differential;
mod hostile;
mod kafka;
mod round_trip;

use bytes::Bytes;
use proptest::prelude::*;

use super::header::{
    AT_ATTRIBUTES, AT_LAST_OFFSET_DELTA, AT_LENGTH, AT_MAGIC, AT_RECORD_COUNT, MAGIC, put, seal_crc,
};
use super::*;

/// An owned record, to generate and to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp: i64,
}

impl Sample {
    fn new(key: &str, value: &str, timestamp: i64) -> Sample {
        let bytes = |text: &str| Some(text.as_bytes().to_vec());
        Sample { key: bytes(key), value: bytes(value), headers: Vec::new(), timestamp }
    }

    fn headers(&self) -> Vec<Header<'_>> {
        self.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect()
    }

    fn with<R>(&self, use_it: impl FnOnce(&RecordData<'_>) -> R) -> R {
        use_it(&RecordData {
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &self.headers(),
            timestamp: self.timestamp,
        })
    }
}

impl From<Record> for Sample {
    fn from(record: Record) -> Self {
        let owned = |(key, value): (&str, Option<&[u8]>)| (key.to_owned(), value.map(Vec::from));
        Sample {
            key: record.key.as_deref().map(Vec::from),
            value: record.value.as_deref().map(Vec::from),
            headers: record.headers.iter().map(owned).collect(),
            timestamp: record.timestamp,
        }
    }
}

fn build(samples: &[Sample]) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Vec::new());
    for sample in samples {
        sample.with(|record| builder.append(record));
    }
    builder
}

fn encode(samples: &[Sample], codec: Codec) -> Vec<u8> {
    let mut batch = build(samples).seal(&codec.into(), &mut Vec::new()).unwrap();
    stamp(&mut batch, ProducerStamp::NONE);
    batch
}

/// Reads a batch both ways, which must agree, up to its first error.
fn read(batch: &Batch, limit: &DecompressLimit) -> Result<Vec<Record>, RecordError> {
    let owned: Vec<_> = batch.records(limit)?.collect();
    let mut lent = batch.records(limit)?;
    for record in &owned {
        match (lent.next_ref().unwrap(), record) {
            (Ok(lent), Ok(record)) => assert_same(lent, record),
            (lent, record) => assert_eq!(lent.err(), record.clone().err()),
        }
    }
    assert!(lent.next_ref().is_none());
    owned.into_iter().collect()
}

fn assert_same(lent: RecordRef<'_>, record: &Record) {
    assert_eq!((lent.offset, lent.timestamp), (record.offset, record.timestamp));
    assert_eq!((lent.key, lent.value), (record.key.as_deref(), record.value.as_deref()));
    assert_eq!(lent.headers.len(), record.headers.len());
    assert!(lent.headers.eq(&record.headers));
}

fn decode(bytes: &[u8]) -> Vec<Record> {
    let batch = Batch::parse(Bytes::copy_from_slice(bytes)).unwrap();
    batch.verify_crc().unwrap();
    read(&batch, &DecompressLimit::default()).unwrap()
}

/// A batch with a valid header and checksum around the given bytes.
fn wrap(records: &[u8], count: i32, last_delta: i32, attributes: i16) -> Batch {
    let mut batch = vec![0; BATCH_HEADER_LEN];
    batch.extend_from_slice(records);
    let length = (batch.len() - 12) as i32;
    put(&mut batch, AT_LENGTH, length.to_be_bytes());
    put(&mut batch, AT_MAGIC, MAGIC.to_be_bytes());
    put(&mut batch, AT_ATTRIBUTES, attributes.to_be_bytes());
    put(&mut batch, AT_LAST_OFFSET_DELTA, last_delta.to_be_bytes());
    put(&mut batch, AT_RECORD_COUNT, count.to_be_bytes());
    seal_crc(&mut batch);
    Batch::parse(batch.into()).unwrap()
}

fn any_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(prop_oneof![
        9 => proptest::collection::vec(any::<u8>(), 0..100),
        1 => proptest::collection::vec(Just(7u8), 8000..20_000),
    ])
}

fn any_timestamp() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 1_700_000_000_000..1_700_000_100_000i64, 1 => any::<i64>()]
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let headers = proptest::collection::vec((".{0,8}", any_bytes()), 0..4);
    (any_bytes(), any_bytes(), headers, any_timestamp())
        .prop_map(|(key, value, headers, timestamp)| Sample { key, value, headers, timestamp })
}
