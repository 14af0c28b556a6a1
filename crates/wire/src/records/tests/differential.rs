//! Comparison with the encoder and decoder of the crate kafka-protocol, written by others.

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records as other;

use super::*;

const PRODUCER: ProducerStamp =
    ProducerStamp { producer_id: 4711, producer_epoch: 2, base_sequence: 1000 };
const BASE_OFFSET: i64 = 123_456_789;
const LEADER_EPOCH: i32 = 5;

fn convert(sample: &Sample, index: usize) -> other::Record {
    let header = |(name, value): &(String, Option<Vec<u8>>)| {
        (StrBytes::from_string(name.clone()), value.clone().map(Bytes::from))
    };
    other::Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: LEADER_EPOCH,
        producer_id: PRODUCER.producer_id,
        producer_epoch: PRODUCER.producer_epoch,
        timestamp_type: other::TimestampType::Creation,
        offset: BASE_OFFSET + index as i64,
        sequence: PRODUCER.base_sequence + index as i32,
        timestamp: sample.timestamp,
        key: sample.key.clone().map(Bytes::from),
        value: sample.value.clone().map(Bytes::from),
        headers: sample.headers.iter().map(header).collect(),
    }
}

fn theirs(records: &[other::Record]) -> Vec<u8> {
    let mut out = BytesMut::new();
    let options = other::RecordEncodeOptions { version: 2, compression: other::Compression::None };
    other::RecordBatchEncoder::encode(&mut out, records, &options).unwrap();
    out.to_vec()
}

fn ours(samples: &[Sample]) -> Vec<u8> {
    let mut batch = build(samples).seal(&Compression::NONE, &mut Vec::new()).unwrap();
    stamp(&mut batch, PRODUCER);
    set_base_offset_and_epoch(&mut batch, BASE_OFFSET, LEADER_EPOCH);
    batch
}

/// Samples that both can express. The other implementation needs unique header names, and its base timestamp is the
/// smallest one; ours, like the Java client's, is the first.
fn common_samples() -> impl Strategy<Value = Vec<Sample>> {
    proptest::collection::vec(any_sample(), 1..40).prop_map(|mut samples| {
        let mut time = 1_700_000_000_000;
        for sample in &mut samples {
            time += sample.timestamp.rem_euclid(5000);
            sample.timestamp = time;
            sample.headers.sort_by(|a, b| a.0.cmp(&b.0));
            sample.headers.dedup_by(|a, b| a.0 == b.0);
        }
        samples
    })
}

proptest! {
    #[test]
    fn the_same_bytes_and_the_same_records(samples in common_samples()) {
        let converted: Vec<_> =
            samples.iter().enumerate().map(|(index, sample)| convert(sample, index)).collect();
        let batch = ours(&samples);
        prop_assert_eq!(&batch, &theirs(&converted));

        let set = other::RecordBatchDecoder::decode(&mut Bytes::from(batch.clone())).unwrap();
        prop_assert_eq!(set.records, converted);
        let back: Vec<Sample> = decode(&batch).into_iter().map(Sample::from).collect();
        prop_assert_eq!(back, samples);
    }
}
