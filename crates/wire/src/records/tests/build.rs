//! The sizes that the builder reports, and the header that it writes.

use super::*;

#[test]
fn header_of_a_batch_without_a_producer_has_the_expected_fields() {
    let samples =
        [Sample::new("a", "1", 500), Sample::new("b", "2", 700), Sample::new("c", "3", 600)];
    let batch = encode(&samples, Codec::None);
    let header = BatchHeader::parse(&batch).unwrap();
    assert_eq!(
        header,
        BatchHeader {
            base_offset: 0,
            batch_length: batch.len() as i32 - 12,
            partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
            magic: 2,
            crc: crc32c::crc32c(&batch[21..]),
            attributes: 0,
            last_offset_delta: 2,
            base_timestamp: 500,
            max_timestamp: 700,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 3,
        }
    );
    assert_eq!(header.size_in_bytes(), batch.len());
    assert_eq!(header.timestamp_type(), TimestampType::CreateTime);
    assert!(!header.is_control() && !header.is_transactional() && !header.has_delete_horizon());
}

/// The bytes of one record, written out by hand from the format's description.
#[test]
fn a_record_encodes_to_the_bytes_of_the_specification() {
    let mut sample = Sample::new("k", "va", 1000);
    sample.headers = vec![("h".into(), Some(b"x".to_vec())), ("h".into(), None)];
    let batch = encode(&[sample], Codec::None);
    let record = [
        0x20, // length 16
        0x00, // attributes
        0x00, // timestamp delta
        0x00, // offset delta
        0x02, b'k', // key
        0x04, b'v', b'a', // value
        0x04, // two headers
        0x02, b'h', 0x02, b'x', //
        0x02, b'h', 0x01, // null
    ];
    assert_eq!(batch[BATCH_HEADER_LEN..], record);
}

#[test]
fn a_stamp_can_be_repeated() {
    let mut batch = encode(&[Sample::new("k", "v", 0)], Codec::None);
    let without = batch.clone();
    let producer = ProducerStamp { producer_id: 1 << 40, producer_epoch: 3, base_sequence: 99 };
    stamp(&mut batch, producer);
    let read = Batch::parse(batch.clone().into()).unwrap();
    read.verify_crc().unwrap();
    let header = read.header;
    assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (1 << 40, 3, 99));
    stamp(&mut batch, ProducerStamp::NONE);
    assert_eq!(batch, without);
}

#[test]
fn broker_fields_are_outside_the_checksum() {
    let mut batch = encode(&[Sample::new("a", "1", 5), Sample::new("b", "2", 6)], Codec::Lz4);
    set_base_offset_and_epoch(&mut batch, 1_000_000_000_000, 17);
    let read = Batch::parse(batch.clone().into()).unwrap();
    read.verify_crc().unwrap();
    assert_eq!(read.header.partition_leader_epoch, 17);
    assert_eq!(read.header.last_offset(), 1_000_000_000_001);
    let offsets: Vec<_> = decode(&batch).iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [1_000_000_000_000, 1_000_000_000_001]);
}

#[test]
fn log_append_time_replaces_every_timestamp() {
    let mut batch = encode(&[Sample::new("a", "1", 5), Sample::new("b", "2", 9)], Codec::Zstd);
    set_log_append_time(&mut batch, 777);
    let header = BatchHeader::parse(&batch).unwrap();
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.compression(), Ok(Codec::Zstd));
    assert_eq!((header.base_timestamp, header.max_timestamp), (5, 777));
    assert!(decode(&batch).iter().all(|record| record.timestamp == 777));
}

#[test]
fn sequence_numbers_wrap_to_zero() {
    let mut header = BatchHeader::parse(&encode(&[], Codec::None)).unwrap();
    header.last_offset_delta = 4;
    for (base, last) in
        [(-1, -1), (0, 4), (i32::MAX - 4, i32::MAX), (i32::MAX - 3, 0), (i32::MAX, 3)]
    {
        header.base_sequence = base;
        assert_eq!(header.last_sequence(), last);
    }
}

#[test]
fn an_empty_batch_is_valid() {
    for codec in Codec::ALL {
        let batch = encode(&[], codec);
        assert_eq!(decode(&batch), []);
        let header = BatchHeader::parse(&batch).unwrap();
        assert_eq!((header.base_timestamp, header.max_timestamp), (-1, -1));
    }
}

/// Appending to a buffer with room allocates no new one, and sealing returns both buffers.
#[test]
fn buffers_are_reused() {
    let buf = Vec::with_capacity(64 * 1024);
    let place = buf.as_ptr();
    let mut builder = BatchBuilder::new(buf);
    for _ in 0..500 {
        Sample::new("key", "value of some length", 1).with(|record| builder.append(record));
    }
    let mut scratch = Vec::with_capacity(64 * 1024);
    let scratch_place = scratch.as_ptr();
    let mut batch = builder.seal(&Codec::Snappy.into(), &mut scratch).unwrap();
    assert_eq!((batch.as_ptr(), scratch.as_ptr()), (scratch_place, place));
    stamp(&mut batch, ProducerStamp::NONE);
    assert_eq!(decode(&batch).len(), 500);

    let builder = BatchBuilder::new(scratch);
    assert_eq!((builder.len(), builder.count()), (BATCH_HEADER_LEN, 0));
    let buf = builder.into_buffer();
    assert_eq!(buf.as_ptr(), place);
}

#[test]
fn a_level_out_of_range_is_refused() {
    let wrong = Compression { codec: Codec::Gzip, level: Some(77) };
    let sealed = build(&[Sample::new("k", "v", 0)]).seal(&wrong, &mut Vec::new());
    assert_eq!(sealed, Err(CompressError::Level { codec: Codec::Gzip, level: 77 }));
}

proptest! {
    #[test]
    fn sizes_are_exact_and_bounded(samples in proptest::collection::vec(any_sample(), 1..80)) {
        let mut builder = BatchBuilder::new(Vec::new());
        for (index, sample) in samples.iter().enumerate() {
            let before = builder.len();
            let (expected, bound) = sample.with(|r| (builder.size_with(r), encoded_len_bound(r)));
            prop_assert_eq!(sample.with(|r| builder.append(r)) as usize, index);
            prop_assert_eq!(builder.len(), expected);
            prop_assert!(builder.len() - before + BATCH_HEADER_LEN <= bound);
        }
        let times = || samples.iter().map(|sample| sample.timestamp);
        prop_assert_eq!(builder.count() as usize, samples.len());
        prop_assert_eq!(Some(builder.base_timestamp()), times().next());
        prop_assert_eq!(Some(builder.max_timestamp()), times().max());
    }
}
