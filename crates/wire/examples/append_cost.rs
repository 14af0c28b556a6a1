//! Measures the cost of appending, stamping and decoding a record of 100 bytes.
//!
//! ```text
//! cargo run --release -p curtail-wire --example append_cost
//! ```

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use curtail_wire::records::{
    BatchBuilder, Codec, Compression, DecompressLimit, Header, ProducerStamp, RecordData, batches,
    stamp,
};

const BATCHES: usize = 20_000;
const BATCH_SIZE: usize = 16 * 1024;
const ROUNDS: usize = 5;

/// Fastest of a few rounds, in ns per unit of work; `round` returns the units it has done.
fn best(mut round: impl FnMut() -> usize) -> f64 {
    let time = |_| {
        let start = Instant::now();
        let units = round();
        start.elapsed().as_nanos() as f64 / units as f64
    };
    (0..ROUNDS).map(time).fold(f64::INFINITY, f64::min)
}

/// The records of one batch, as the producer fills it: room is checked before each record.
fn fill(buf: Vec<u8>, record: &RecordData<'_>) -> BatchBuilder {
    let mut builder = BatchBuilder::new(buf);
    let mut time = record.timestamp;
    while builder.size_with(black_box(record)) <= BATCH_SIZE {
        builder.append(black_box(&RecordData { timestamp: time, ..*record }));
        time += 1;
    }
    builder
}

fn append(record: &RecordData<'_>) -> f64 {
    let mut buf = Vec::with_capacity(BATCH_SIZE);
    best(|| {
        let mut units = 0;
        for _ in 0..BATCHES {
            let builder = fill(std::mem::take(&mut buf), record);
            units += builder.count() as usize;
            buf = builder.into_buffer();
        }
        units
    })
}

fn sealed(record: &RecordData<'_>, codec: Codec) -> Vec<u8> {
    let builder = fill(Vec::new(), record);
    let mut batch = builder.seal(&Compression::from(codec), &mut Vec::new()).unwrap();
    stamp(&mut batch, ProducerStamp::NONE);
    batch
}

fn report_append(value: &[u8]) {
    let header = [Header { key: "trace", value: Some(b"0123456789abcdef") }];
    let plain =
        RecordData { key: None, value: Some(value), headers: &[], timestamp: 1_700_000_000_000 };
    let keyed = RecordData { key: Some(b"key-0123"), ..plain };
    let headed = RecordData { headers: &header, ..keyed };
    println!("append, value only      {:8.1} ns/record", append(&plain));
    println!("append, key and value   {:8.1} ns/record", append(&keyed));
    println!("append, with a header   {:8.1} ns/record", append(&headed));
}

fn report_codecs(record: &RecordData<'_>) {
    for codec in Codec::ALL {
        let records = fill(Vec::new(), record).count() as usize;
        let mut buf = Vec::new();
        let mut scratch = Vec::new();
        let seal = best(|| {
            for _ in 0..BATCHES / 20 {
                let builder = fill(std::mem::take(&mut buf), record);
                buf = builder.seal(&Compression::from(codec), &mut scratch).unwrap();
            }
            BATCHES / 20 * records
        });
        let batch = batches(sealed(record, codec).into()).next().unwrap().unwrap();
        let limit = DecompressLimit::default();
        let decode = best(|| {
            for _ in 0..BATCHES / 20 {
                let mut all = batch.records(&limit).unwrap();
                while let Some(record) = all.next_ref() {
                    black_box(record.unwrap());
                }
            }
            BATCHES / 20 * records
        });
        let size = batch.raw().len();
        println!("{codec:7} fill and seal {seal:8.1}, decode {decode:8.1} ns/record, {size} bytes");
    }
}

fn main() {
    let value: Vec<u8> = (0..100u32).map(|n| b'a' + (n * n % 23) as u8).collect();
    report_append(&value);

    let record =
        RecordData { key: None, value: Some(&value), headers: &[], timestamp: 1_700_000_000_000 };
    let mut batch = sealed(&record, Codec::None);
    let records = fill(Vec::new(), &record).count() as usize;
    let bytes = batch.len();
    let per_record = best(|| {
        for sequence in 0..BATCHES as i32 {
            let producer =
                ProducerStamp { producer_id: 7, producer_epoch: 0, base_sequence: sequence };
            stamp(black_box(&mut batch), producer);
        }
        BATCHES * records
    });
    println!("stamp (checksum)        {per_record:8.1} ns/record, batches of {bytes} bytes");

    let data = Bytes::from(batch);
    let limit = DecompressLimit::default();
    let verify = best(|| {
        for _ in 0..BATCHES {
            for batch in batches(black_box(data.clone())) {
                batch.unwrap().verify_crc().unwrap();
            }
        }
        BATCHES * records
    });
    println!("split and verify        {verify:8.1} ns/record");
    let owned = best(|| {
        for _ in 0..BATCHES {
            for batch in batches(black_box(data.clone())) {
                for record in batch.unwrap().records(&limit).unwrap() {
                    black_box(record.unwrap());
                }
            }
        }
        BATCHES * records
    });
    println!("decode, sharing memory  {owned:8.1} ns/record");
    report_codecs(&record);
}
