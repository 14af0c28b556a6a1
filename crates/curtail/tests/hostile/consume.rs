//! Brokers with invalid responses to Fetch and ListOffsets: delivered records and errors.

use std::pin::Pin;

use bytes::Bytes;
use curtail::{config::Codec, error::BatchProblem};
use curtail_wire::{
    ApiKey,
    compression::Compression,
    records::{self, BatchBuilder, ProducerStamp, RecordData},
};
use futures_core::Stream as _;

use crate::{
    broker::{Act, Broker, batch},
    *,
};

const AT_RECORD_COUNT: usize = 57;
const HEADER: usize = 61;

async fn storing(stored: Vec<u8>) -> (std::sync::Arc<Broker>, Consumer) {
    let broker = Broker::honest().await;
    broker.model.lock().stored = Bytes::from(stored);
    let consumer = consumer(&broker);
    (broker, consumer)
}

async fn poll(consumer: &mut Consumer) -> Result<Vec<(i64, Vec<u8>)>, Error> {
    let records = ends("poll", consumer.poll(Duration::from_secs(2))).await?;
    Ok(records.into_iter().map(|r| (r.offset(), r.value().unwrap_or_default().to_vec())).collect())
}

/// Checks that no record is delivered, and that the error names the first offset of the batch. Returns where to continue.
async fn is_refused(stored: Vec<u8>, expected: BatchProblem, reason: &str) -> Option<i64> {
    let (_broker, mut consumer) = storing(stored).await;
    let mut next = None;
    for _ in 0..2 {
        let error = poll(&mut consumer).await.expect_err(reason);
        check_error(&error);
        let Error::Corrupt { topic, partition: 0, offset: 0, next_offset, problem, .. } = &error
        else {
            panic!("{error}")
        };
        next = *next_offset;
        assert_eq!((&**topic, *problem), ("t", expected), "{error}");
        assert!(error.report().to_string().contains(reason), "{error}");
    }
    assert_eq!(ends("position", consumer.position(&partition(0))).await.unwrap(), 0);
    ends("close", consumer.close()).await;
    next
}

#[test]
fn a_flipped_byte_is_never_delivered() {
    run(async {
        let whole = batch(0, Codec::None, &[b"first", b"second"]);
        // The checksum and all bytes that it covers.
        for at in 17..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            is_refused(damaged, BatchProblem::Damaged, "").await;
        }
    });
}

#[test]
fn damage_in_the_second_batch_is_reported_after_the_first() {
    run(async {
        let mut stored = batch(0, Codec::None, &[b"first"]);
        stored.extend(batch(1, Codec::None, &[b"second"]));
        *stored.last_mut().unwrap() ^= 1;
        let (_broker, mut consumer) = storing(stored).await;
        assert_eq!(poll(&mut consumer).await.unwrap(), [(0, b"first".to_vec())]);
        // From offset 1 on the broker has no complete batch: the prefetched bytes contain the damage.
        let error = poll(&mut consumer).await.unwrap_err();
        assert!(matches!(error, Error::Corrupt { partition: 0, offset: 1, .. }), "{error}");
    });
}

/// A consumer that has sought past damage receives no error for it.
#[test]
fn damage_before_a_seek_target_is_not_reported() {
    run(async {
        let mut stored = batch(0, Codec::None, &[b"first"]);
        stored.extend(batch(1, Codec::None, &[b"second"]));
        *stored.last_mut().unwrap() ^= 1;
        let (broker, mut consumer) = storing(stored).await;
        broker.model.lock().stored_later = batch(2, Codec::None, &[b"third"]).into();
        assert_eq!(poll(&mut consumer).await.unwrap(), [(0, b"first".to_vec())]);
        consumer.seek(&partition(0), 2).unwrap();
        assert_eq!(poll(&mut consumer).await.unwrap(), [(2, b"third".to_vec())]);
    });
}

/// A stream returns the error each time, like polls, and continues after a seek.
#[test]
fn stream_repeats_the_damage_until_a_seek() {
    async fn next(consumer: &mut Consumer) -> Result<i64, Error> {
        let mut stream = consumer.stream();
        let next = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx));
        ends("stream", next).await.expect("it never ends").map(|record| record.offset())
    }
    run(async {
        let mut stored = batch(0, Codec::None, &[b"first", b"second"]);
        *stored.last_mut().unwrap() ^= 1;
        let (broker, mut consumer) = storing(stored).await;
        broker.model.lock().stored_later = batch(2, Codec::None, &[b"third"]).into();
        for _ in 0..2 {
            let error = next(&mut consumer).await.unwrap_err();
            let Error::Corrupt { offset: 0, next_offset: Some(2), .. } = error else {
                panic!("{error}")
            };
        }
        consumer.seek(&partition(0), 2).unwrap();
        assert_eq!(next(&mut consumer).await.unwrap(), 2);
    });
}

/// Its length is enough to find the next batch.
#[test]
fn batch_with_an_invalid_header_can_be_passed_by_a_seek() {
    run(async {
        let mut stored = with_count(-1);
        stored.extend(batch(2, Codec::None, &[b"third"]));
        let (broker, mut consumer) = storing(stored).await;
        let error = poll(&mut consumer).await.unwrap_err();
        let Error::Corrupt { offset: 0, next_offset: Some(2), .. } = error else {
            panic!("{error}")
        };
        broker.model.lock().stored_later = batch(2, Codec::None, &[b"third"]).into();
        consumer.seek(&partition(0), 2).unwrap();
        assert_eq!(poll(&mut consumer).await.unwrap(), [(2, b"third".to_vec())]);
    });
}

#[test]
fn unknown_formats_and_codecs_are_no_damage() {
    const AT_MAGIC: usize = 16;
    const AT_CODEC: usize = 22;
    run(async {
        let whole = batch(0, Codec::None, &[b"first", b"second"]);
        for magic in [0, 1, 3] {
            let mut other = whole.clone();
            other[AT_MAGIC] = magic;
            is_refused(other, BatchProblem::UnknownFormat, "format version").await;
        }
        let mut other = whole;
        other[AT_CODEC] |= 7;
        records::stamp(&mut other, ProducerStamp::NONE);
        let next = is_refused(other, BatchProblem::UnknownFormat, "codec 7").await;
        assert_eq!(next, Some(2), "its header is intact");
    });
}

/// A batch whose header has another number of records, with a valid checksum.
fn with_count(count: i32) -> Vec<u8> {
    let mut batch = batch(0, Codec::None, &[b"first", b"second"]);
    batch[AT_RECORD_COUNT..HEADER].copy_from_slice(&count.to_be_bytes());
    records::stamp(&mut batch, ProducerStamp::NONE);
    batch
}

#[test]
fn impossible_record_counts_are_refused() {
    run(async {
        is_refused(with_count(-1), BatchProblem::Damaged, "record").await;
        is_refused(with_count(i32::MIN), BatchProblem::Damaged, "record").await;
        is_refused(with_count(i32::MAX), BatchProblem::Damaged, "record").await;
    });
}

#[test]
fn a_decompression_bomb_is_not_inflated() {
    run(async {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let value = vec![0; 20 << 20];
            let mut builder = BatchBuilder::new(Vec::new());
            let record = RecordData { key: None, value: Some(&value), headers: &[], timestamp: 1 };
            builder.append(&record);
            let compression = Compression { codec, level: None };
            let mut bomb = builder.seal(&compression, &mut Vec::new()).unwrap();
            records::stamp(&mut bomb, ProducerStamp::NONE);
            records::set_base_offset_and_epoch(&mut bomb, 0, 5);
            let broker = Broker::honest().await;
            broker.model.lock().stored = bomb.into();
            let config =
                consumer_config(&broker.address.to_string()).max_decompressed_batch(1 << 20);
            let mut consumer = Consumer::with_env(config, &broker.env()).unwrap();
            consumer.assign([partition(0)]);
            let error = poll(&mut consumer).await.unwrap_err();
            check_error(&error);
            let at = (broker::TOPIC, 0);
            let Error::Corrupt { topic, partition, offset: 0, next_offset, problem, .. } = &error
            else {
                panic!("{error}")
            };
            assert_eq!((&**topic, *partition), at);
            assert_eq!((*next_offset, *problem), (Some(1), BatchProblem::TooLarge));
            let text = error.report().to_string();
            assert!(text.contains("1048576"), "{error}");
            assert!(text.contains("curtail.decompressed.batch.max.bytes"), "{error}");
            // The application may continue after it.
            broker.model.lock().stored_later = batch(1, codec, &[b"after"]).into();
            ends("poll", consumer.poll(Duration::from_secs(2))).await.unwrap_err();
            consumer.seek(&TopicPartition::new(at.0, at.1), 1).unwrap();
            assert_eq!(poll(&mut consumer).await.unwrap(), [(1, b"after".to_vec())]);
        }
    });
}

#[test]
fn gaps_between_offsets_are_passed() {
    run(async {
        let mut stored = batch(3, Codec::Lz4, &[b"three", b"four"]);
        stored.extend(batch(1000, Codec::None, &[b"thousand"]));
        let (_broker, mut consumer) = storing(stored).await;
        let expected = [(3, "three"), (4, "four"), (1000, "thousand")];
        let mut got = Vec::new();
        while got.len() < 3 {
            got.extend(poll(&mut consumer).await.unwrap());
        }
        assert_eq!(got, expected.map(|(offset, value)| (offset, value.as_bytes().to_vec())));
        assert_eq!(ends("position", consumer.position(&partition(0))).await.unwrap(), 1001);
    });
}

/// Batches that go backwards, and repeated batches: each offset is delivered once.
#[test]
fn records_below_the_position_are_left_out() {
    run(async {
        let mut stored = batch(4, Codec::None, &[b"four", b"five"]);
        stored.extend(batch(2, Codec::None, &[b"two"]));
        stored.extend(batch(4, Codec::None, &[b"again", b"again"]));
        stored.extend(batch(6, Codec::None, &[b"six"]));
        let (_broker, mut consumer) = storing(stored).await;
        let mut offsets = Vec::new();
        while offsets.len() < 3 {
            offsets.extend(poll(&mut consumer).await.unwrap().into_iter().map(|(at, _)| at));
        }
        assert_eq!(offsets, [4, 5, 6]);
    });
}

/// A response with only old records does not move the position. The consumer fetches again, but not in a storm.
#[test]
fn responses_with_only_old_records_cause_no_storm() {
    run(async {
        let broker = Broker::honest().await;
        broker.model.lock().stored_later = batch(10, Codec::None, &[b"old"]).into();
        let mut consumer = consumer(&broker);
        consumer.seek(&partition(0), 50).unwrap();
        let records = ends("poll", consumer.poll(Duration::from_millis(500))).await.unwrap();
        assert!(records.is_empty());
        assert_eq!(ends("position", consumer.position(&partition(0))).await.unwrap(), 50);
        let asked = broker.calls(ApiKey::FETCH);
        assert!((2..100).contains(&asked), "{asked} fetches in half a second");
    });
}

/// A broker cuts a response at its limit. Complete batches are delivered. An incomplete first batch could never be
/// delivered, so it is an error.
#[test]
fn records_cut_at_every_byte() {
    run(async {
        let first = batch(0, Codec::None, &[b"first"]);
        let second = batch(1, Codec::None, &[b"second"]);
        for length in 1..second.len() {
            let stored = [&first[..], &second[..length]].concat();
            let (_broker, mut consumer) = storing(stored).await;
            assert_eq!(poll(&mut consumer).await.unwrap(), [(0, b"first".to_vec())], "{length}");
        }
        for length in 1..first.len() {
            is_refused(first[..length].to_vec(), BatchProblem::Damaged, "complete batch").await;
        }
    });
}

#[test]
fn offsets_at_the_largest_value_are_refused() {
    run(async {
        // The checksum does not cover the offset.
        let (_broker, mut consumer) = storing(batch(i64::MAX, Codec::None, &[b"last"])).await;
        let error = poll(&mut consumer).await.unwrap_err();
        check_error(&error);
        assert!(matches!(error, Error::Corrupt { partition: 0, .. }), "{error}");
        let (_broker, mut consumer) = storing(batch(i64::MAX, Codec::None, &[b"last"])).await;
        let error = ends("poll", consumer.poll_batch(Duration::from_secs(2))).await.unwrap_err();
        assert!(matches!(error, Error::Corrupt { partition: 0, .. }), "{error}");
    });
}

#[test]
fn a_fetch_reset_at_every_byte_delivers_once() {
    run(async {
        let broker = Broker::honest().await;
        broker.model.lock().stored = batch(0, Codec::None, &[b"first", b"second"]).into();
        let probe = std::sync::Arc::new(parking_lot::Mutex::new(0));
        let seen = probe.clone();
        broker.script(move |call, frame| {
            if call.api == ApiKey::FETCH {
                *seen.lock() = frame.len();
            }
            Act::Send(frame)
        });
        let mut whole = consumer(&broker);
        poll(&mut whole).await.unwrap();
        ends("close", whole.close()).await;
        let length = *probe.lock();
        for n in 0..length {
            let first = broker.calls(ApiKey::FETCH);
            broker.script(move |call, frame| match call.api {
                ApiKey::FETCH if call.nth == first => Act::Cut(frame[..n].to_vec()),
                _ => Act::Send(frame),
            });
            let mut consumer = consumer(&broker);
            let expected = [(0, b"first".to_vec()), (1, b"second".to_vec())];
            assert_eq!(poll(&mut consumer).await.unwrap(), expected, "cut at {n}");
            ends("close", consumer.close()).await;
        }
    });
}

#[test]
fn invalid_looked_up_offsets_are_no_positions() {
    run(async {
        let broker = Broker::start(|call, frame| match call.api {
            ApiKey::LIST_OFFSETS => Act::Send(crate::broker::frame(call, |w| w.raw(&[0xff; 40]))),
            _ => Act::Send(frame),
        })
        .await;
        let consumer = consumer(&broker);
        for error in [
            ends("position", consumer.position(&partition(0))).await.unwrap_err(),
            ends("end offsets", consumer.end_offsets(&[partition(0)])).await.unwrap_err(),
        ] {
            check_error(&error);
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
        }
        ends("close", consumer.close()).await;
    });
}
