//! Damaged and hostile batches.

use super::*;
use crate::varint::{VarintError, push_i32, push_i64};

const LIMIT: DecompressLimit = DecompressLimit { max_bytes: 1 << 20 };

fn samples() -> Vec<Sample> {
    let mut headed = Sample::new("key", "value", 1_700_000_000_000);
    headed.headers = vec![("h1".into(), Some(b"v1".to_vec())), ("h2".into(), None)];
    let plain = Sample { key: None, ..Sample::new("", "another value", 1_700_000_000_500) };
    vec![headed, plain, Sample::new("k", &"x".repeat(100), 1_699_999_999_000)]
}

/// The body of a record after its length, with arbitrary numbers.
fn record(parts: &[i32], tail: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    for &part in parts {
        push_i32(&mut body, part);
    }
    body.extend_from_slice(tail);
    let mut out = Vec::new();
    push_i32(&mut out, body.len() as i32);
    out.extend_from_slice(&body);
    out
}

fn error_of(records: &[u8], count: i32) -> RecordError {
    let batch = wrap(records, count, 9, 0);
    batch.verify_crc().unwrap();
    read(&batch, &LIMIT).unwrap_err()
}

#[test]
fn every_truncation_is_noticed() {
    for codec in Codec::ALL {
        let whole = encode(&samples(), codec);
        for cut in 0..whole.len() {
            let bytes = Bytes::copy_from_slice(&whole[..cut]);
            assert!(batches(bytes.clone()).next().is_none(), "{codec} {cut}");
            let error = Batch::parse(bytes).unwrap_err();
            assert!(matches!(error, RecordError::Truncated { .. }), "{codec} {cut}: {error}");
        }
    }
}

/// The same with the length made to fit, so that only the content can tell.
#[test]
fn every_shortened_section_is_noticed() {
    for codec in Codec::ALL {
        let whole = encode(&samples(), codec);
        let section = &whole[BATCH_HEADER_LEN..];
        for cut in 0..section.len() {
            let batch = wrap(&section[..cut], 3, 2, codec.id().into());
            match read(&batch, &LIMIT) {
                Err(_) => {}
                // An LZ4 frame without its end mark still has all its records.
                Ok(records) => assert!(records.len() == 3 && codec == Codec::Lz4, "{codec} {cut}"),
            }
        }
    }
}

/// The checksum does not cover the first 17 bytes; in them, a changed offset or leader epoch is a
/// valid batch that is a different one.
#[test]
fn every_changed_bit_is_noticed() {
    for codec in Codec::ALL {
        let whole = encode(&samples(), codec);
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let caught = match batches(bytes.into()).next() {
                    None | Some(Err(_)) => true,
                    Some(Ok(batch)) => {
                        let _ = read(&batch, &LIMIT);
                        batch.verify_crc().is_err()
                    }
                };
                let free = (0..8).contains(&at) || (12..16).contains(&at);
                // The sign bit of the offset leaves the range of valid sums or stays inside it.
                assert!(caught != free || at == 0, "{codec}: byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn batches_of_unsupported_formats_are_refused() {
    let whole = encode(&samples(), Codec::None);
    for magic in [0, 1, 3, -1] {
        let mut bytes = whole.clone();
        put(&mut bytes, AT_MAGIC, i8::to_be_bytes(magic));
        assert_eq!(BatchHeader::parse(&bytes), Err(RecordError::UnsupportedMagic(magic)));
        let mut split = batches(bytes.into());
        assert_eq!(split.next().unwrap().unwrap_err(), RecordError::UnsupportedMagic(magic));
        assert!(split.next().is_none(), "no batch can be found after it");
    }
    // The smallest message of format 0: it is shorter than a batch header.
    let mut message = vec![0; 26];
    put(&mut message, AT_LENGTH, 14i32.to_be_bytes());
    assert_eq!(
        batches(message.into()).next().unwrap().unwrap_err(),
        RecordError::UnsupportedMagic(0)
    );
}

#[test]
fn headers_with_impossible_fields_are_refused() {
    let whole = encode(&samples(), Codec::None);
    let changed = |at, value: i32| {
        let mut bytes = whole.clone();
        put(&mut bytes, at, value.to_be_bytes());
        BatchHeader::parse(&bytes).unwrap_err()
    };
    for length in [i32::MIN, -1, 0, 48] {
        assert_eq!(changed(AT_LENGTH, length), RecordError::BatchLength(length));
    }
    for count in [-1, i32::MIN] {
        let bytes = whole.len() - BATCH_HEADER_LEN;
        assert_eq!(changed(AT_RECORD_COUNT, count), RecordError::RecordCount { count, bytes });
    }
    let error = RecordError::LastOffset { base_offset: 0, delta: -1 };
    assert_eq!(changed(AT_LAST_OFFSET_DELTA, -1), error);

    let mut last = whole.clone();
    set_base_offset_and_epoch(&mut last, i64::MAX - 2, 0);
    assert_eq!(BatchHeader::parse(&last).unwrap().last_offset(), i64::MAX);
    assert_eq!(decode(&last)[2].offset, i64::MAX);
    set_base_offset_and_epoch(&mut last, i64::MAX - 1, 0);
    let error = RecordError::LastOffset { base_offset: i64::MAX - 1, delta: 2 };
    assert_eq!(BatchHeader::parse(&last), Err(error));
}

#[test]
fn batches_with_an_unknown_codec_are_refused() {
    for id in 5..8 {
        assert_eq!(
            wrap(&[], 0, 0, id).records(&LIMIT).unwrap_err(),
            RecordError::UnknownCodec(id as u8)
        );
    }
}

#[test]
fn batches_with_false_record_counts_are_refused() {
    let one = record(&[0, 0, -1, -1, 0], &[]);
    assert_eq!(read(&wrap(&one, 1, 0, 0), &LIMIT).unwrap().len(), 1);
    assert_eq!(one.len(), 7, "the smallest record");
    assert_eq!(error_of(&one, 2), RecordError::RecordCount { count: 2, bytes: 7 });
    assert_eq!(error_of(&one, i32::MAX), RecordError::RecordCount { count: i32::MAX, bytes: 7 });
    assert_eq!(error_of(&one, 0), RecordError::TrailingBytes(7));
    let padded = [&one[..], &[0; 7]].concat();
    assert_eq!(error_of(&padded, 1), RecordError::TrailingBytes(7));
}

#[test]
fn records_with_false_lengths_are_refused() {
    let good = record(&[0, 0, -1, -1, 0], &[1, 2, 3, 4]);
    assert!(matches!(error_of(&good, 1), RecordError::RecordLength { claimed: 10, available: 6 }));
    for claimed in [-1, i32::MIN, i32::MAX, 11] {
        let mut bytes = Vec::new();
        push_i32(&mut bytes, claimed);
        bytes.extend_from_slice(&[0; 10]);
        assert_eq!(error_of(&bytes, 1), RecordError::RecordLength { claimed, available: 10 });
    }
    // A record that ends inside itself must not be read on into the next one.
    for claimed in 0..6 {
        let bytes = [&[claimed * 2][..], &record(&[0, 0, -1, -1, 0], &[])[1..]].concat();
        assert_eq!(error_of(&bytes, 1), RecordError::Varint(VarintError::Truncated), "{claimed}");
    }
}

#[test]
fn fields_with_false_lengths_are_refused() {
    for claimed in [-2, i32::MIN, 7, i32::MAX] {
        for parts in [&[0, 0, claimed][..], &[0, 0, -1, claimed]] {
            let error = error_of(&record(parts, &[0; 6]), 1);
            assert_eq!(error, RecordError::FieldLength { claimed, available: 6 }, "{parts:?}");
        }
        let error = error_of(&record(&[0, 0, -1, -1, 1, claimed], &[0; 6]), 1);
        assert_eq!(error, RecordError::FieldLength { claimed, available: 6 });
    }
    let null_name = error_of(&record(&[0, 0, -1, -1, 1, -1, -1], &[]), 1);
    assert_eq!(null_name, RecordError::FieldLength { claimed: -1, available: 2 });
}

#[test]
fn records_with_false_header_counts_are_refused() {
    for count in [-1, i32::MIN, 4, i32::MAX] {
        let error = error_of(&record(&[0, 0, -1, -1, count], &[0; 7]), 1);
        assert_eq!(error, RecordError::HeaderCount { count, bytes: 7 });
    }
}

#[test]
fn records_with_offsets_outside_the_batch_are_refused() {
    for delta in [-1, 10, i32::MAX] {
        let error = error_of(&record(&[0, delta, -1, -1, 0], &[]), 1);
        assert_eq!(error, RecordError::OffsetDelta { delta, last: 9 });
    }
}

#[test]
fn records_with_overlong_varints_are_refused() {
    let long = [0xff; 11];
    assert_eq!(error_of(&long, 1), RecordError::Varint(VarintError::Overlong));
    let mut body = vec![22, 0];
    body.extend_from_slice(&long[..10]);
    assert_eq!(error_of(&body, 1), RecordError::Varint(VarintError::Overlong));
}

/// Timestamps are sums that a peer can make overflow; they wrap, as in Java.
#[test]
fn timestamps_that_overflow_wrap_as_in_java() {
    let mut body = vec![0];
    push_i64(&mut body, i64::MAX);
    for part in [0, -1, -1, 0] {
        push_i32(&mut body, part);
    }
    let mut bytes = Vec::new();
    push_i32(&mut bytes, body.len() as i32);
    bytes.extend_from_slice(&body);
    let mut batch = wrap(&bytes, 1, 0, 0);
    batch.header.base_timestamp = 1;
    assert_eq!(read(&batch, &LIMIT).unwrap()[0].timestamp, i64::MIN);
}

#[test]
fn no_record_follows_an_error() {
    let bytes = [record(&[0, 0, -1, -1, 0], &[]), record(&[0, 99, -1, -1, 0], &[])].concat();
    let bytes = [&bytes[..], &record(&[0, 2, -1, -1, 0], &[])].concat();
    let mut records = wrap(&bytes, 3, 9, 0).records(&LIMIT).unwrap();
    assert!(records.next().unwrap().is_ok());
    assert!(records.next().unwrap().is_err());
    assert!(records.next().is_none());
}

#[test]
fn bombs_stop_at_the_limit() {
    let value = "\0".repeat(8 << 20);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = Batch::parse(encode(&[Sample::new("k", &value, 0)], codec).into()).unwrap();
        assert!(batch.raw().len() < value.len() / 16, "{codec}");
        let error = batch.records(&LIMIT).unwrap_err();
        assert_eq!(error, RecordError::TooLarge { limit: LIMIT.max_bytes }, "{codec}");
    }
}

/// Bytes that often look like records: small numbers, among them -1, and few large ones.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![6 => 0u8..8, 2 => 8u8..64, 1 => any::<u8>()];
    proptest::collection::vec(byte, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for batch in batches(bytes.into()).flatten() {
            let _ = (batch.verify_crc(), read(&batch, &LIMIT));
        }
    }

    #[test]
    fn arbitrary_bytes_after_a_header_are_read_or_refused(
        start in proptest::collection::vec(any::<u8>(), 61),
        rest in plausible(),
        length in 0i32..400,
    ) {
        let mut bytes = [start, rest].concat();
        put(&mut bytes, AT_LENGTH, length.to_be_bytes());
        put(&mut bytes, AT_MAGIC, MAGIC.to_be_bytes());
        let total = bytes.len();
        let mut split = batches(bytes.into());
        let mut taken = 0;
        for batch in split.by_ref().flatten() {
            taken += batch.raw().len();
            if let Ok(records) = read(&batch, &LIMIT) {
                prop_assert_eq!(records.len(), batch.header.record_count as usize);
            }
        }
        prop_assert_eq!(taken + split.remaining(), total);
    }

    #[test]
    fn arbitrary_records_are_read_or_refused(bytes in plausible(), count in 0i32..40, attributes in 0i16..128) {
        let batch = wrap(&bytes, count, 63, attributes);
        if let Ok(records) = read(&batch, &LIMIT) {
            prop_assert_eq!(records.len(), count as usize);
            prop_assert!(records.iter().all(|record| (0..64).contains(&record.offset)));
        }
    }

    /// Valid records with a few bytes changed, compressed under a valid checksum. A hostile peer can send them;
    /// network damage cannot produce them.
    #[test]
    fn changed_records_under_a_valid_checksum_are_all_read_or_refused(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        codec in proptest::sample::select(&Codec::ALL[..]),
    ) {
        let mut section = encode(&samples(), Codec::None).split_off(BATCH_HEADER_LEN);
        for (at, byte) in flips {
            let at = at.index(section.len());
            section[at] = byte;
        }
        let mut packed = Vec::new();
        Compression::from(codec).compress(&section, &mut packed).unwrap();
        let batch = wrap(&packed, 3, 2, codec.id().into());
        if let Ok(records) = read(&batch, &LIMIT) {
            prop_assert_eq!(records.len(), 3);
        }
    }
}
