use std::sync::Arc;

use bytes::Bytes;
use curtail_proto::position::Versions;
use curtail_wire::{
    fetch::AbortedTransaction,
    records::{
        BatchBuilder, Codec, Compression, EndTxnMarker, ProducerStamp, RecordData,
        encode_end_txn_marker, set_base_offset_and_epoch, stamp,
    },
};

use super::{
    credit::Lease,
    cursor::{Budget, Cursor, Decoding},
    *,
};
use crate::transaction::ExactlyOnce;

const TRANSACTIONAL: i16 = 1 << 4;

fn decoding() -> Decoding {
    Decoding { check_crcs: true, limit: DecompressLimit { max_bytes: 10_000 } }
}

/// A batch of records whose values are their offsets.
pub(super) fn batch(base: i64, count: i64, codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Vec::new());
    for n in 0..count {
        let value = (base + n).to_string();
        builder.append(&RecordData {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp: 1,
        });
    }
    let mut bytes = builder.seal(&Compression { codec, level: None }, &mut Vec::new()).unwrap();
    let no_producer = ProducerStamp { producer_id: -1, producer_epoch: -1, base_sequence: -1 };
    stamp(&mut bytes, no_producer);
    set_base_offset_and_epoch(&mut bytes, base, 0);
    bytes
}

/// The same batch in a transaction of `producer_id`.
fn in_transaction(producer_id: i64, base: i64, count: i64) -> Vec<u8> {
    let mut bytes = batch(base, count, Codec::None);
    bytes[21..23].copy_from_slice(&TRANSACTIONAL.to_be_bytes());
    stamp(&mut bytes, ProducerStamp { producer_id, producer_epoch: 0, base_sequence: 0 });
    bytes
}

fn marker(kind: EndTxnMarker, producer_id: i64, at: i64) -> Vec<u8> {
    let mut bytes = encode_end_txn_marker(kind, producer_id, 0, 0, 1).unwrap();
    set_base_offset_and_epoch(&mut bytes, at, 0);
    bytes
}

fn cursor(first: i64, parts: &[Vec<u8>], aborted: Option<Vec<(i64, i64)>>) -> Cursor {
    let records = Bytes::from(parts.concat());
    let aborted = aborted.map(|list| {
        let of = |(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset };
        list.into_iter().map(of).collect()
    });
    let version = Versions::default().next_version();
    let lease = Lease::take(&Arc::default(), &Arc::default(), records.len());
    Cursor::new(TopicPartition::new("t", 0), version, first, records, aborted, lease)
}

/// Returns the offsets of the cursor's records, each checked against its value.
fn drain(cursor: &mut Cursor) -> Result<Vec<i64>> {
    let mut offsets = Vec::new();
    while let Some(record) = cursor.next_record(&decoding())? {
        assert_eq!(record.value().unwrap(), record.offset().to_string().as_bytes());
        offsets.push(record.offset());
    }
    Ok(offsets)
}

#[test]
fn records_before_the_requested_offset_are_skipped() {
    let parts = [batch(0, 10, Codec::Zstd), batch(10, 3, Codec::None)];
    let mut cursor = cursor(7, &parts, None);
    assert_eq!(drain(&mut cursor).unwrap(), (7..13).collect::<Vec<_>>());
    assert_eq!(cursor.next_offset(), 13);
}

#[test]
fn a_cut_last_batch_is_left_for_the_next_fetch() {
    let mut cut = batch(10, 3, Codec::None);
    cut.truncate(cut.len() - 1);
    let mut cursor = cursor(0, &[batch(0, 10, Codec::None), cut], None);
    assert_eq!(drain(&mut cursor).unwrap().len(), 10);
    assert_eq!(cursor.next_offset(), 10);
}

#[test]
fn fill_stops_at_the_maximum_and_continues_there() {
    let mut cursor = cursor(0, &[batch(0, 5, Codec::None), batch(5, 5, Codec::None)], None);
    let (mut out, mut budget) = (Vec::new(), Budget::new(&decoding()));
    assert!(cursor.fill(&mut out, 3, &mut budget, &decoding()).unwrap());
    assert_eq!((out.len(), cursor.next_offset()), (3, 3));
    assert!(!cursor.fill(&mut out, 100, &mut budget, &decoding()).unwrap());
    let offsets: Vec<i64> = out.iter().map(ConsumerRecord::offset).collect();
    assert_eq!(offsets, (0..10).collect::<Vec<_>>());
}

#[test]
fn the_rest_of_a_batch_can_be_taken_whole() {
    let mut cursor = cursor(2, &[batch(0, 5, Codec::Lz4)], None);
    assert_eq!(cursor.next_record(&decoding()).unwrap().unwrap().offset(), 2);
    let mut rest = cursor.take_batch(&decoding()).unwrap().unwrap();
    let mut offsets = Vec::new();
    while let Some(record) = rest.next_ref() {
        offsets.push(record.unwrap().offset);
    }
    assert_eq!(offsets, [3, 4]);
    assert_eq!(cursor.next_offset(), 5);
    assert!(cursor.take_batch(&decoding()).unwrap().is_none());
}

#[test]
fn damaged_batch_is_reported_after_the_records_before_it() {
    let mut damaged = batch(5, 5, Codec::None);
    let at = damaged.len() - 2;
    damaged[at] ^= 1;
    let parts = [batch(0, 5, Codec::None), damaged];
    let mut first = cursor(0, &parts, None);
    let (mut out, mut budget) = (Vec::new(), Budget::new(&decoding()));
    let error = first.fill(&mut out, 100, &mut budget, &decoding()).unwrap_err();
    assert_eq!((out.len(), first.next_offset()), (5, 5), "the position stays before the damage");
    let Error::Corrupt { offset: 5, partition: 0, next_offset: Some(10), .. } = error else {
        panic!("{error}")
    };
    // Without the checksum check, the damaged batch is read.
    let mut second = cursor(0, &parts, None);
    let trusting = Decoding { check_crcs: false, ..decoding() };
    assert!(!second.fill(&mut out, 100, &mut budget, &trusting).unwrap());
}

/// The last offset comes from the header, which may be the damaged part. The next batch's base offset limits it.
#[test]
fn damage_ends_where_the_next_batch_begins() {
    const AT_LAST_OFFSET_DELTA: usize = 23;
    let mut damaged = batch(5, 5, Codec::None);
    damaged[AT_LAST_OFFSET_DELTA] ^= 1;
    let parts = [damaged, batch(10, 5, Codec::None)];
    let error = cursor(5, &parts, None).next_record(&decoding()).unwrap_err();
    let Error::Corrupt { offset: 5, next_offset: Some(10), .. } = error else { panic!("{error}") };
    // A broker that trusts the header returns the damaged batch again for the position after it.
    assert_eq!(drain(&mut cursor(10, &parts, None)).unwrap(), (10..15).collect::<Vec<_>>());
}

#[test]
fn a_batch_beyond_the_decompression_limit_is_refused() {
    let mut builder = BatchBuilder::new(Vec::new());
    let value = vec![b'x'; 20_000];
    let data = RecordData { key: None, value: Some(&value), headers: &[], timestamp: 1 };
    builder.append(&data);
    let compression = Compression { codec: Codec::Gzip, level: None };
    let mut bytes = builder.seal(&compression, &mut Vec::new()).unwrap();
    stamp(&mut bytes, ProducerStamp { producer_id: -1, producer_epoch: -1, base_sequence: -1 });
    let error = cursor(0, &[bytes], None).next_record(&decoding()).unwrap_err();
    assert!(error.to_string().contains("limit of 10000"), "{error}");
}

#[test]
fn control_records_are_never_returned() {
    let parts = [
        in_transaction(1, 0, 2),
        marker(EndTxnMarker::Commit, 1, 2),
        batch(3, 1, Codec::None),
        marker(EndTxnMarker::Abort, 9, 4),
    ];
    for aborted in [None, Some(vec![])] {
        let mut cursor = cursor(0, &parts, aborted);
        assert_eq!(drain(&mut cursor).unwrap(), [0, 1, 3]);
        assert_eq!(cursor.next_offset(), 5, "a marker at the end is passed, too");
    }
}

#[test]
fn aborted_records_are_hidden_from_read_committed() {
    // Two producers interleave. One aborts, then begins a second transaction and commits it.
    let parts = [
        in_transaction(1, 0, 2),
        in_transaction(2, 2, 2),
        batch(4, 1, Codec::None),
        in_transaction(1, 5, 1),
        marker(EndTxnMarker::Abort, 1, 6),
        in_transaction(1, 7, 1),
        marker(EndTxnMarker::Commit, 2, 8),
        marker(EndTxnMarker::Commit, 1, 9),
    ];
    let committed = drain(&mut cursor(0, &parts, Some(vec![(1, 0)]))).unwrap();
    assert_eq!(committed, [2, 3, 4, 7]);
    let everything = drain(&mut cursor(0, &parts, None)).unwrap();
    assert_eq!(everything, [0, 1, 2, 3, 4, 5, 7]);
    // A response lists the aborted transaction also to a reader that begins inside it.
    let late = drain(&mut cursor(5, &parts[3..], Some(vec![(1, 0)]))).unwrap();
    assert_eq!(late, [7]);
    // The list of aborted transactions may have any order.
    let parts = [
        in_transaction(1, 0, 1),
        marker(EndTxnMarker::Abort, 1, 1),
        in_transaction(2, 2, 1),
        marker(EndTxnMarker::Abort, 2, 3),
        batch(4, 1, Codec::None),
    ];
    assert_eq!(drain(&mut cursor(0, &parts, Some(vec![(2, 2), (1, 0)]))).unwrap(), [4]);
}

#[test]
fn receive_limit_follows_from_the_settings() {
    const MIB: usize = 1024 * 1024;
    let limit = |fetch_max_bytes| {
        super::shared::receive_limit(&ConsumerConfig {
            fetch_max_bytes,
            ..ConsumerConfig::new("127.0.0.1:9092")
        })
    };
    // A small limit does not make brokers return less than one batch.
    for small in [0, 1, 52_428_800, 100 << 20] {
        assert!(limit(small) >= 100 * MIB, "{small}");
    }
    for large in [200 << 20, i32::MAX] {
        let records = usize::try_from(large).unwrap();
        assert!(limit(large) > records, "no room for what is not records beside {large}");
    }
}

/// Consumers and the futures of their calls can move to other threads.
#[test]
fn everything_is_send() {
    fn send<T: Send>(_: impl Fn() -> T) {}
    fn polling(consumer: &mut Consumer) -> impl Future + Send {
        consumer.poll(Duration::ZERO)
    }
    fn asking(consumer: &Consumer) -> impl Future + Send {
        consumer.end_offsets(&[])
    }
    fn closing(consumer: Consumer) -> impl Future + Send {
        consumer.close()
    }
    fn queues(queues: &mut PartitionQueues) -> impl Future + Send {
        queues.next()
    }
    fn queue(queue: &mut PartitionQueue) -> impl Future + Send {
        queue.next()
    }
    fn keyed(consumer: Consumer, state: Arc<()>) -> impl Future + Send {
        let handler = move |record| {
            let state = state.clone();
            async move {
                drop((record, state));
                Ok::<(), Error>(())
            }
        };
        InKeyOrder::new(1).run(consumer, std::future::pending(), handler)
    }
    fn once(once: &mut ExactlyOnce, state: Arc<()>) -> impl Future + Send {
        let transform = move |batch| {
            let state = state.clone();
            async move {
                drop((batch, state));
                Ok::<(), Error>(())
            }
        };
        once.run(std::future::pending(), transform)
    }
    let _ = (polling, asking, closing, queues, queue, keyed, once);
    send(|| -> Consumer { unreachable!("never called") });
    send(|| -> IntoStream { unreachable!("never called") });
}
