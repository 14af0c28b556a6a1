//! Record batches: arbitrary bytes, sections with arbitrary claims under a valid checksum, and round trips.

use bytes::Bytes;
use curtail_wire::{
    compression::{Codec, Compression, DecompressLimit},
    records::{
        BATCH_HEADER_LEN, Batch, BatchBuilder, ControlRecord, Header, ProducerStamp, RecordData,
        RecordError, batches, encoded_len_bound, stamp,
    },
};

use crate::{Input, Target, memory};

pub(super) const TARGET: Target = Target { name: "records", run, seeds, cases: 12_000 };

const LIMIT: DecompressLimit = DecompressLimit { max_bytes: 1 << 20 };

/// Memory of a decompressor besides its output.
const WINDOW: usize = 20 * 1024 * 1024;

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    match input.below(3) {
        0 => arbitrary(input.rest()),
        1 => arbitrary(&claims(&mut input)),
        _ => round_trip(&mut input),
    }
}

/// Reads the batches as a consumer does.
fn arbitrary(bytes: &[u8]) {
    let total = bytes.len();
    let mut split = batches(Bytes::copy_from_slice(bytes));
    let mut taken = 0;
    while let Some(batch) = {
        let _ = split.offset_behind_next();
        split.next()
    } {
        let Ok(batch) = batch else { break };
        taken += batch.raw().len();
        let _ = batch.verify_crc();
        let cap = 3 * LIMIT.max_bytes + WINDOW + 8 * total + memory::SLACK;
        memory::within("a record batch", cap, || read(&batch));
    }
    assert!(taken + split.remaining() == total, "every byte is in a batch or left");
}

fn read(batch: &Batch) {
    let (Ok(owned), Ok(mut borrowed)) = (batch.records(&LIMIT), batch.records(&LIMIT)) else {
        return;
    };
    let mut count = 0;
    for record in owned {
        let same = borrowed.next_ref();
        let (Ok(record), Some(Ok(same))) = (&record, &same) else {
            assert!(record.is_err() && matches!(same, Some(Err(_))), "both ways fail in one place");
            return;
        };
        count += 1;
        assert_eq!((record.offset, record.timestamp), (same.offset, same.timestamp));
        assert_eq!((record.key.as_deref(), record.value.as_deref()), (same.key, same.value));
        assert!(record.headers.iter().eq(same.headers.clone()), "the same headers");
        assert_eq!(record.headers.iter().count(), record.headers.len());
        let offsets = batch.header.base_offset..=batch.header.last_offset();
        assert!(offsets.contains(&record.offset), "an offset of the batch");
        if batch.header.is_control() {
            let _ = ControlRecord::parse(same.key, same.value);
        }
    }
    assert!(borrowed.next_ref().is_none());
    assert_eq!(count, batch.header.record_count, "as many records as the header claims");
}

/// A batch with a valid length and checksum around a section and counts of the input's choice. A hostile broker can
/// send it; network damage cannot produce it.
fn claims(input: &mut Input<'_>) -> Vec<u8> {
    let codec = *input.pick(&Codec::ALL);
    let is_compressed_here = input.flag();
    let flags = i16::from(input.byte() & 0x78);
    let (count, last_delta) = (input.number_i32(), input.number_i32());
    let base_offset = input.number();
    let mut section = input.rest().to_vec();
    if is_compressed_here {
        let plain = std::mem::take(&mut section);
        Compression::from(codec)
            .compress(&plain, &mut section)
            .expect("any bytes can be compressed");
    }
    let mut batch = vec![0; BATCH_HEADER_LEN];
    batch[..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[8..12].copy_from_slice(&((BATCH_HEADER_LEN - 12 + section.len()) as i32).to_be_bytes());
    batch[16] = 2;
    batch[21..23].copy_from_slice(&(flags | i16::from(codec.id())).to_be_bytes());
    batch[23..27].copy_from_slice(&last_delta.to_be_bytes());
    batch[57..61].copy_from_slice(&count.to_be_bytes());
    batch.extend_from_slice(&section);
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

type Owned = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>, i64);

fn round_trip(input: &mut Input<'_>) {
    let codec = *input.pick(&Codec::ALL);
    let producer = ProducerStamp {
        producer_id: input.number(),
        producer_epoch: input.u16() as i16,
        base_sequence: input.number_i32(),
    };
    let mut records = Vec::new();
    while !input.is_empty() && records.len() < 64 {
        records.push(record(input));
    }
    let mut builder = BatchBuilder::new(Vec::new());
    for record in &records {
        append(&mut builder, record);
    }
    let sealed = builder.seal(&Compression::from(codec), &mut Vec::new());
    let mut bytes = sealed.expect("a small batch with a default level");
    stamp(&mut bytes, producer);
    let batch = match Batch::parse(bytes.into()) {
        Ok(batch) => batch,
        // A batch without records has no last offset.
        Err(RecordError::LastOffset { .. }) if records.is_empty() => return,
        Err(error) => panic!("our own batch: {error}"),
    };
    batch.verify_crc().expect("our own checksum");
    assert_eq!(batch.header.producer_id, producer.producer_id);
    assert_eq!(batch.header.base_sequence, producer.base_sequence);
    let got: Vec<Owned> = batch
        .records(&DecompressLimit::default())
        .expect("our own section")
        .map(|record| {
            let record = record.expect("our own record");
            let headers = record.headers.iter();
            let headers = headers.map(|(k, v)| (k.to_owned(), v.map(<[u8]>::to_vec))).collect();
            let bytes = |part: Option<Bytes>| part.map(|part| part.to_vec());
            (bytes(record.key), bytes(record.value), headers, record.timestamp)
        })
        .collect();
    assert_eq!(got, records, "{codec}");
}

fn append(builder: &mut BatchBuilder, (key, value, headers, timestamp): &Owned) {
    let headers: Vec<Header<'_>> =
        headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
    let record = RecordData {
        key: key.as_deref(),
        value: value.as_deref(),
        headers: &headers,
        timestamp: *timestamp,
    };
    let (before, size) = (builder.len(), builder.size_with(&record));
    builder.append(&record);
    assert_eq!(builder.len(), size, "the size is known before");
    assert!(size - before <= encoded_len_bound(&record), "and bounded");
}

fn record(input: &mut Input<'_>) -> Owned {
    let part = |input: &mut Input<'_>| {
        let length = input.byte();
        (length != 255).then(|| input.take(usize::from(length)).to_vec())
    };
    let (key, value) = (part(input), part(input));
    let headers = (0..input.below(4)).map(|_| {
        let name = String::from_utf8_lossy(&part(input).unwrap_or_default()).into_owned();
        (name, part(input))
    });
    let headers = headers.collect();
    (key, value, headers, input.number())
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (i, codec) in Codec::ALL.into_iter().enumerate() {
        let headers = [Header { key: "h", value: Some(b"v") }, Header { key: "n", value: None }];
        let mut builder = BatchBuilder::new(Vec::new());
        for timestamp in 1_700_000_000_000..1_700_000_000_003 {
            let (key, value) = (Some(&b"key"[..]), Some(&b"value value value"[..]));
            builder.append(&RecordData { key, value, headers: &headers, timestamp });
        }
        let sealed = builder.seal(&Compression::from(codec), &mut Vec::new()).expect("small");
        // The same batch unchanged, as a section with arbitrary claims, and compressed there.
        seeds.push([&[0][..], &sealed, &sealed].concat());
        let section = &sealed[BATCH_HEADER_LEN..];
        seeds.push([&[1, i as u8, 0, 0, 3, 2, 0][..], section].concat());
        seeds
            .push([&[2, i as u8, 1, 0, 0, 0][..], b"\x03key\x05value\x01\x01h\x02vv\x07"].concat());
    }
    let mut plain = BatchBuilder::new(Vec::new());
    plain.append(&RecordData { key: None, value: Some(&[0; 300]), headers: &[], timestamp: 5 });
    let plain = plain.seal(&Compression::NONE, &mut Vec::new()).expect("small");
    for codec in 0..Codec::ALL.len() as u8 {
        seeds.push([&[1, codec, 1, 0x20, 1, 0, 0][..], &plain[BATCH_HEADER_LEN..]].concat());
    }
    seeds
}
