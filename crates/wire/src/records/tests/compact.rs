//! Rewritten batches. After compaction the records that stay are as before, and the header names the same range. With another
//! codec all records and the whole header are.

use super::*;

const STAMP: ProducerStamp =
    ProducerStamp { producer_id: 7, producer_epoch: 3, base_sequence: i32::MAX - 1 };

fn batch_of(samples: &[Sample], codec: Codec) -> Batch {
    let mut bytes = build(samples).seal(&codec.into(), &mut Vec::new()).unwrap();
    set_transactional(&mut bytes);
    stamp(&mut bytes, STAMP);
    set_base_offset_and_epoch(&mut bytes, 100, 9);
    Batch::parse(bytes.into()).unwrap()
}

fn retain(batch: &Batch, kept: &[bool], horizon: Option<i64>) -> Batch {
    let bytes = retain_records(batch, kept, horizon, &DecompressLimit::default()).unwrap();
    let batch = Batch::parse(bytes.into()).unwrap();
    batch.verify_crc().unwrap();
    batch
}

fn range_of(header: &BatchHeader) -> impl PartialEq + std::fmt::Debug {
    (
        (header.base_offset, header.last_offset(), header.partition_leader_epoch),
        (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence()),
        (header.is_transactional(), header.is_control(), header.timestamp_type()),
    )
}

proptest! {
    #[test]
    fn retained_records_are_those_of_the_original_batch(
        samples in proptest::collection::vec(any_sample(), 1..20),
        flags in proptest::collection::vec(any::<bool>(), 20),
        horizons in proptest::collection::vec(proptest::option::of(any_timestamp()), 2),
        codec in proptest::sample::select(Codec::ALL.to_vec()),
    ) {
        let mut batch = batch_of(&samples, codec);
        let all = read(&batch, &DecompressLimit::default()).unwrap();
        let kept = &flags[..samples.len()];
        let expected: Vec<Record> =
            all.into_iter().zip(kept).filter(|(_, kept)| **kept).map(|(record, _)| record).collect();
        let original = batch.header;
        // The second pass starts from a batch that may have a horizon.
        let passes = [(kept, horizons[0]), (&[true; 20][..], horizons[1])];
        for (kept, horizon) in passes {
            let before = batch.header.delete_horizon();
            batch = retain(&batch, kept, horizon);
            prop_assert_eq!(range_of(&batch.header), range_of(&original));
            prop_assert_eq!(&read(&batch, &DecompressLimit::default()).unwrap(), &expected);
            let latest = expected.iter().map(|record| record.timestamp).max();
            let (horizon, latest) = match latest {
                Some(latest) => (horizon.or(before), latest),
                None => (None, original.max_timestamp),
            };
            prop_assert_eq!(batch.header.delete_horizon(), horizon);
            prop_assert_eq!(batch.header.max_timestamp, latest);
        }
    }
}

proptest! {
    #[test]
    fn records_and_header_stay_with_another_codec(
        samples in proptest::collection::vec(any_sample(), 1..20),
        codecs in proptest::collection::vec(proptest::sample::select(Codec::ALL.to_vec()), 2),
    ) {
        let batch = batch_of(&samples, codecs[0]);
        let limit = DecompressLimit::default();
        let records = batch.records(&limit).unwrap();
        let bytes = recompress(&batch, &records, &codecs[1].into()).unwrap();
        let other = Batch::parse(bytes.into()).unwrap();
        other.verify_crc().unwrap();
        prop_assert_eq!(other.header.compression().unwrap(), codecs[1]);
        prop_assert_eq!(read(&other, &limit).unwrap(), read(&batch, &limit).unwrap());
        let (attributes, batch_length, crc) =
            (batch.header.attributes, batch.header.batch_length, batch.header.crc);
        let header = BatchHeader { attributes, batch_length, crc, ..other.header };
        prop_assert_eq!(header, batch.header);
        prop_assert_eq!(range_of(&other.header), range_of(&batch.header));
    }
}

#[test]
fn an_emptied_batch_is_a_header_without_a_codec() {
    for codec in Codec::ALL {
        let batch = batch_of(&[Sample::new("k", "v", 5), Sample::new("l", "w", 6)], codec);
        let empty = retain(&batch, &[false, false], Some(1000));
        assert_eq!(empty.raw().len(), BATCH_HEADER_LEN);
        assert_eq!(empty.header.compression().unwrap(), Codec::None);
        assert_eq!((empty.header.record_count, empty.header.max_timestamp), (0, 6));
        assert_eq!(range_of(&empty.header), range_of(&batch.header));
        assert_eq!(read(&empty, &DecompressLimit::default()).unwrap(), []);
    }
}

#[test]
fn log_append_time_stays() {
    let mut bytes = encode(&[Sample::new("k", "v", 5), Sample::new("l", "w", 6)], Codec::None);
    set_log_append_time(&mut bytes, 77);
    let batch = Batch::parse(bytes.into()).unwrap();
    let one = retain(&batch, &[true, false], Some(1000));
    let records = read(&one, &DecompressLimit::default()).unwrap();
    assert_eq!((records.len(), records[0].timestamp, one.header.max_timestamp), (1, 77, 77));
}

#[test]
fn a_batch_that_claims_too_much_is_refused() {
    let batch = batch_of(&[Sample::new("k", "v", 5)], Codec::None);
    let mut bytes = batch.raw().to_vec();
    bytes[BATCH_HEADER_LEN] = 0x7e;
    seal_crc(&mut bytes);
    let batch = Batch::parse(bytes.into()).unwrap();
    let error = retain_records(&batch, &[true], None, &DecompressLimit::default()).unwrap_err();
    assert!(matches!(error, CompactError::Record(RecordError::RecordLength { .. })), "{error}");
}
