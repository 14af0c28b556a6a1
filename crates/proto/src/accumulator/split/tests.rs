use std::{collections::VecDeque, time::Instant};

use curtail_wire::{
    ErrorCode,
    compression::{Codec, Compression},
    records::BatchHeader,
};
use proptest::prelude::*;

use super::{
    super::{Idempotence, ProducerIdentity, Take, tests::*},
    *,
};
use crate::classify::{Context, Sequenced, Verdict, classify};

const TRANSACTION: Idempotence = Idempotence::Transaction(ProducerIdentity { id: 9, epoch: 3 });

/// The numbers in the records' values. Only the first four bytes of a value count.
fn numbers(batch: &Batch<u32>) -> Vec<u32> {
    let parsed = records::Batch::parse(batch.payload().clone()).expect("a batch");
    parsed.verify_crc().expect("a good checksum");
    let records = parsed.records(&DecompressLimit::default()).expect("records");
    let number = |record: records::Record| {
        let value = record.value.expect("a value");
        u32::from_be_bytes(value[..4].try_into().expect("a number"))
    };
    records.map(|record| number(record.expect("a record"))).collect()
}

fn numbered(number: u32, size: usize) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(size.max(4), b'x');
    value
}

/// One handle for each part, and none for the batch.
fn handles(shares: usize) -> impl FnOnce(u32) -> Vec<u32> {
    move |_| vec![0; shares]
}

/// Splits a batch in flight as the producer does; the batch must not have been abandoned.
fn split(queue: &mut PartitionQueue<u32>, policy: &BatchPolicy, batch: Batch<u32>) {
    let parts = Parts::of(&batch, policy).expect("its own records");
    let count = parts.shares().len();
    assert!(count > 1 && parts.shares().map(|s| s.records).sum::<u32>() == batch.records);
    assert!(queue.split(batch, parts, handles(count)).is_none());
}

/// A queue with one open batch of these records.
fn one_batch(policy: &BatchPolicy, sizes: &[usize], now: Instant) -> PartitionQueue<u32> {
    let room = BatchPolicy { batch_size: 1 << 20, ..policy.clone() };
    let mut queue = known();
    for (number, size) in (0..).zip(sizes) {
        append(&mut queue, &room, &numbered(number, *size), now);
    }
    queue
}

#[test]
fn parts_have_the_batch_size_or_half_the_batch() {
    let now = Instant::now();
    // batch.size, the sizes of the values, the records of each part.
    let table: &[(usize, &[usize], &[u32])] = &[
        (1000, &[400; 6], &[2, 2, 2]),
        (1000, &[400, 5000, 400, 400], &[1, 1, 2]),
        (100_000, &[400; 6], &[2, 2, 2]),
        (100_000, &[400, 400], &[1, 1]),
        (100_000, &[4, 4000], &[1, 1]),
        (1, &[50; 3], &[1, 1, 1]),
    ];
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for (batch_size, sizes, expected) in table {
            let compression = Compression { codec, level: None };
            let policy = BatchPolicy { compression, ..policy(*batch_size, 0) };
            let mut queue = one_batch(&policy, sizes, now);
            let batch = take(&mut queue, &policy, 1, now);
            assert_eq!(batch.records as usize, sizes.len());
            let parts = Parts::of(&batch, &policy).expect("its own records");
            let records: Vec<u32> = parts.shares().map(|share| share.records).collect();
            assert_eq!(records, *expected, "{codec:?}, {batch_size}, {sizes:?}");
            let uncompressed = codec == Codec::None;
            for share in parts.shares().filter(|share| uncompressed && share.records > 1) {
                assert!(share.bytes <= parts.target, "{share:?} of {}", parts.target);
            }
        }
    }
}

#[test]
fn a_part_has_every_field_of_its_records() {
    let now = Instant::now();
    let headers = [Header { key: "h", value: Some(b"1") }, Header { key: "h", value: None }];
    let record = |timestamp, key, value| RecordData { key, value, headers: &headers, timestamp };
    let sent = [
        record(1000, Some(&b"key"[..]), Some(&b"value"[..])),
        record(900, None, Some(b"")),
        record(2000, Some(b""), None),
    ];
    let policy = policy(1, 0);
    let mut queue = known();
    let room = BatchPolicy { batch_size: 1 << 20, ..policy.clone() };
    queue.open(&room, &sent[0], Vec::new(), 0, None, now);
    for record in &sent[1..] {
        queue.try_append(&room, record).expect("there is room");
    }
    let Take::Batch(batch) = queue.take(&policy, TRANSACTION, to(1), now) else {
        panic!("a batch")
    };
    split(&mut queue, &policy, batch);
    for (expected, sequence) in sent.iter().zip(0..) {
        let Take::Batch(part) = queue.take(&policy, TRANSACTION, to(1), now) else {
            panic!("a part")
        };
        assert_eq!((part.records, part.attempts), (1, 1));
        let header = header(&part);
        assert!(header.is_transactional());
        assert_eq!((header.producer_id, header.producer_epoch), (9, 3));
        assert_eq!(header.base_sequence, sequence);
        assert_eq!((header.base_timestamp, header.max_timestamp), {
            let timestamp = expected.timestamp;
            (timestamp, timestamp)
        });
        let parsed = records::Batch::parse(part.payload().clone()).expect("a batch");
        parsed.verify_crc().expect("a good checksum");
        let read = parsed.records(&DecompressLimit::default()).expect("records").next();
        let read = read.expect("a record").expect("a record");
        assert_eq!((read.key.as_deref(), read.value.as_deref()), (expected.key, expected.value));
        let read: Vec<_> = read.headers.iter().map(|(key, value)| Header { key, value }).collect();
        assert_eq!(read, headers);
        queue.written(&part);
    }
}

#[test]
fn parts_take_the_place_of_their_batch_in_order_and_sequence() {
    let now = Instant::now();
    let policy = policy(1000, 0);
    let mut queue = one_batch(&policy, &[400; 4], now);
    queue.seal_now(&policy);
    append(&mut queue, &policy, &numbered(4, 400), now);
    let large = take(&mut queue, &policy, 1, now);
    let later = take(&mut queue, &policy, 1, now);
    assert_eq!((large.records, header(&later).base_sequence), (4, 4));
    split(&mut queue, &policy, large);
    // The batch sent after it has to come back first.
    assert!(!queue.is_next(&later));
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::AfterOutcome));
    assert!(queue.retry(later, false, None).is_none());
    let (first, second) = (take(&mut queue, &policy, 1, now), take(&mut queue, &policy, 1, now));
    assert_eq!((numbers(&first), numbers(&second)), (vec![0, 1], vec![2, 3]));
    assert_eq!([&first, &second].map(|part| header(part).base_sequence), [0, 2]);
    // The first part is still too large; the rest waits for its parts.
    split(&mut queue, &policy, first);
    assert!(queue.retry(second, false, None).is_none());
    let sent: Vec<Batch<u32>> = (0..4).map(|_| take(&mut queue, &policy, 1, now)).collect();
    assert_eq!(sent.iter().flat_map(numbers).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let sequences: Vec<i32> = sent.iter().map(|batch| header(batch).base_sequence).collect();
    assert_eq!(sequences, [0, 1, 2, 4]);
    for batch in &sent {
        queue.written(batch);
    }
    assert!(queue.is_idle());
}

#[test]
fn no_batch_grows_to_a_size_that_was_refused() {
    let now = Instant::now();
    let policy = BatchPolicy { batch_max_size: 8000, ..policy(1000, 0) };
    let mut queue = known();
    for number in 0..30 {
        append(&mut queue, &policy, &numbered(number, 300), now);
    }
    assert_eq!(take(&mut queue, &policy, 1, now).records, 3, "complete before another waited");
    let grown = take(&mut queue, &policy, 1, now);
    assert!(grown.payload().len() > 4000, "{}", grown.payload().len());
    split(&mut queue, &policy, grown);
    for number in 30..60 {
        append(&mut queue, &policy, &numbered(number, 300), now);
    }
    while !queue.is_idle() {
        match queue.take(&policy, IDENTITY, to(1), now) {
            Take::Batch(batch) if numbers(&batch)[0] >= 30 => {
                assert!(batch.payload().len() <= 1000, "{}", batch.payload().len());
                queue.written(&batch);
            }
            Take::Batch(batch) => queue.written(&batch),
            // The first batch is in flight.
            Take::AfterOutcome => {
                let work = queue.work();
                work.in_flight.clear();
                work.regrouping = false;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_abandoned_batch_is_not_split() {
    let now = Instant::now();
    let policy = policy(1000, 0);
    let mut queue = one_batch(&policy, &[400; 4], now);
    let batch = take(&mut queue, &policy, 1, now);
    assert!(queue.give_up(&policy).is_empty());
    let parts = Parts::of(&batch, &policy).expect("its own records");
    let refused = queue.split(batch, parts, |_| unreachable!("an abandoned batch yields no parts"));
    assert_eq!(refused.map(|batch| batch.records), Some(4));
    assert!(queue.is_idle());
}

/// Puts a batch back in parts as the producer does.
fn put_back(queue: &mut PartitionQueue<u32>, batch: Batch<u32>, parts: Parts) {
    let count = parts.shares().len();
    queue.put_back(batch, parts, handles(count));
}

#[test]
fn one_record_tries_a_new_leader_and_the_rest_may_go_elsewhere() {
    let now = Instant::now();
    let policy = policy(1000, 0);
    let mut queue = one_batch(&policy, &[200; 4], now);
    queue.leader_is_untried();
    let Take::Trial(batch, parts) = queue.take(&policy, IDENTITY, to(2), now) else {
        panic!("a trial")
    };
    assert_eq!(parts.shares().map(|share| share.records).collect::<Vec<_>>(), [1, 3]);
    put_back(&mut queue, batch, parts);
    let tries = take(&mut queue, &policy, 2, now);
    assert_eq!(numbers(&tries), [0]);
    assert!(matches!(queue.take(&policy, IDENTITY, to(2), now), Take::AfterOutcome));
    queue.written(&tries);
    let rest = take(&mut queue, &policy, 2, now);
    assert_eq!(numbers(&rest), [1, 2, 3], "it takes records");
    assert_eq!(BatchHeader::parse(rest.payload()).expect("a header").base_sequence, 1);
}

#[test]
fn a_bound_or_retried_batch_tries_a_new_leader_as_a_whole() {
    let now = Instant::now();
    let policy = policy(1000, 0);
    let mut bound = one_batch(&policy, &[200; 4], now);
    bound.bind();
    bound.leader_is_untried();
    assert_eq!(take(&mut bound, &policy, 2, now).records, 4);
    let mut came_back = one_batch(&policy, &[200; 4], now);
    let batch = take(&mut came_back, &policy, 1, now);
    came_back.leader_is_untried();
    assert!(came_back.retry(batch, false, None).is_none());
    assert_eq!(take(&mut came_back, &policy, 2, now).records, 4);
}

/// A broker that refuses batches beyond a size limit, and checks the sequences of the others.
struct Broker {
    limit: usize,
    epoch: i16,
    next: i32,
    log: Vec<u32>,
}

impl Broker {
    fn answer(&mut self, batch: &Batch<u32>) -> ErrorCode {
        if batch.payload().len() > self.limit {
            return ErrorCode::MESSAGE_TOO_LARGE;
        }
        let header = BatchHeader::parse(batch.payload()).expect("a header");
        let expected = if header.producer_epoch > self.epoch { 0 } else { self.next };
        if header.producer_epoch < self.epoch || header.base_sequence != expected {
            return ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
        }
        self.epoch = header.producer_epoch;
        self.next = sequence_after(expected, batch.records);
        self.log.extend(numbers(batch));
        ErrorCode::NONE
    }
}

proptest! {
    /// For any limit, every record that fits alone is written once and in order, and only the others fail.
    #[test]
    fn every_record_that_fits_alone_is_written_in_order(
        sizes in prop::collection::vec(4usize..3000, 1..60),
        limit in 80usize..3000,
        batch_size in 100usize..4000,
        grows in prop::bool::ANY,
        in_flight in 1usize..=5,
        untried in prop::bool::ANY,
    ) {
        let now = Instant::now();
        let batch_max_size = if grows { batch_size * 8 } else { 0 };
        let policy = BatchPolicy { batch_max_size, ..policy(batch_size, 0) };
        let mut queue = PartitionQueue::default();
        let mut expected = (Vec::new(), Vec::new());
        for (number, size) in (0..).zip(&sizes) {
            append(&mut queue, &policy, &numbered(number, *size), now);
            let alone = one_batch(&policy, &[*size], now);
            let fits = alone.next_len() <= limit;
            if fits { expected.0.push(number) } else { expected.1.push(number) }
        }
        if untried {
            queue.leader_is_untried();
        }
        let mut broker = Broker { limit, epoch: -1, next: 0, log: Vec::new() };
        let (mut sent, mut failed) = (VecDeque::new(), Vec::new());
        loop {
            while sent.len() < in_flight {
                match queue.take(&policy, IDENTITY, to(1), now) {
                    Take::Batch(batch) => sent.push_back(batch),
                    Take::Trial(batch, parts) => put_back(&mut queue, batch, parts),
                    _ => break,
                }
            }
            let Some(batch) = sent.pop_front() else { break };
            let context = Context {
                sequenced: Sequenced::Idempotent,
                is_next: queue.is_next(&batch),
                records: batch.records,
            };
            match classify(broker.answer(&batch), context) {
                Verdict::Written => queue.written(&batch),
                Verdict::Split => split(&mut queue, &policy, batch),
                Verdict::Retry { .. } => prop_assert!(queue.retry(batch, false, None).is_none()),
                Verdict::FailAndBumpEpoch => {
                    failed.extend(numbers(&batch));
                    prop_assert!(queue.fail(&batch).is_empty());
                }
                other => panic!("{other:?}"),
            }
        }
        prop_assert!(queue.is_idle());
        failed.sort_unstable();
        prop_assert_eq!((broker.log, failed), expected);
    }
}
