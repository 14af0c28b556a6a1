use curtail_wire::{
    compression::{Codec, Compression},
    records::{BatchHeader, batches},
};

mod expiry;
mod operations;

use super::*;

pub(super) const IDENTITY: Idempotence = Idempotence::As(ProducerIdentity { id: 7, epoch: 0 });

pub(super) fn policy(batch_size: usize, linger_ms: u64) -> BatchPolicy {
    BatchPolicy {
        batch_size,
        batch_max_size: 0,
        max_request_size: 1 << 20,
        linger: Duration::from_millis(linger_ms),
        compression: Compression { codec: Codec::None, level: None },
        delivery_timeout: Duration::from_secs(120),
        one_in_flight: false,
        moves_refused: true,
        began: Instant::now(),
    }
}

pub(super) fn record(value: &[u8]) -> RecordData<'_> {
    RecordData { key: None, value: Some(value), headers: &[], timestamp: 0 }
}

/// Appends as the producer does; the completion is the batch's number.
pub(super) fn append(
    queue: &mut PartitionQueue<u32>,
    policy: &BatchPolicy,
    value: &[u8],
    now: Instant,
) -> Readiness {
    if let Some(placed) = queue.try_append(policy, &record(value)) {
        return placed.readiness;
    }
    if let Some(growth) = queue.growth(policy, &record(value), false) {
        drop(queue.grow(growth, Vec::new()).expect("there is an open batch"));
        return queue.try_append(policy, &record(value)).expect("there is room now").readiness;
    }
    queue.open(policy, &record(value), Vec::new(), 0, None, now).readiness
}

pub(super) fn take(
    queue: &mut PartitionQueue<u32>,
    policy: &BatchPolicy,
    broker: i32,
    now: Instant,
) -> Batch<u32> {
    match queue.take(policy, IDENTITY, to(broker), now) {
        Take::Batch(batch) => batch,
        other => panic!("expected a batch, got {other:?}"),
    }
}

/// A queue whose broker has written a batch already, so that batches need not go one by one.
pub(super) fn known() -> PartitionQueue<u32> {
    let Idempotence::As(identity) = IDENTITY else { unreachable!() };
    let known_in = Some(Incarnation::FIRST);
    let numbering = Some(Numbering { known_in, ..Numbering::new(identity) });
    PartitionQueue { numbering, ..PartitionQueue::default() }
}

/// A broker with the first topic of the name.
pub(super) fn to(broker: i32) -> Target {
    Target { broker, branch: Branch::Main, incarnation: Incarnation::FIRST }
}

pub(super) fn header(batch: &Batch<u32>) -> BatchHeader {
    BatchHeader::parse(batch.payload()).expect("a whole header")
}

#[test]
fn a_batch_lingers_unless_it_is_full() {
    let (policy, now) = (policy(200, 5), Instant::now());
    let mut queue = known();
    let due = now + policy.linger;
    assert_eq!(append(&mut queue, &policy, b"a", now), Readiness::At(due));
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::At(at) if at == due));
    assert_eq!(append(&mut queue, &policy, &[0; 150], now), Readiness::Now);
    assert_eq!(take(&mut queue, &policy, 1, now).records, 1);
    assert_eq!(take(&mut queue, &policy, 1, due).records, 1);
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), due), Take::Empty));
}

#[test]
fn a_record_larger_than_a_batch_travels_alone() {
    let (policy, now) = (policy(100, 5), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"small", now);
    assert_eq!(append(&mut queue, &policy, &[1; 500], now), Readiness::Now);
    assert_eq!(append(&mut queue, &policy, b"small", now), Readiness::Now);
    let records: Vec<u32> = (0..2).map(|_| take(&mut queue, &policy, 1, now).records).collect();
    assert_eq!(records, [1, 1]);
}

#[test]
fn a_batch_grows_only_while_it_cannot_leave() {
    let now = Instant::now();
    let policy = BatchPolicy { batch_max_size: 800, ..policy(200, 5) };
    let mut queue = known();
    // The first batch is complete when the second record arrives; then both wait, and the second grows.
    for _ in 0..12 {
        append(&mut queue, &policy, &[0; 100], now);
    }
    let sent: Vec<Batch<u32>> = (0..3).map(|_| take(&mut queue, &policy, 1, now)).collect();
    assert_eq!(sent.iter().map(|batch| batch.records).collect::<Vec<_>>(), [1, 6, 5]);
    assert!(sent.iter().all(|batch| batch.payload().len() <= 800));
    // A batch that is taken in time does not grow.
    for _ in 0..3 {
        append(&mut queue, &policy, &[0; 150], now);
        assert_eq!(take(&mut queue, &policy, 1, now + policy.linger).records, 1);
    }
}

/// The sticky partitioner moves on only after a complete batch. The batches before an incomplete one say nothing about it.
#[test]
fn a_batch_behind_complete_ones_is_not_complete_itself() {
    let (policy, now) = (BatchPolicy { batch_max_size: 200, ..policy(200, 5) }, Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, &[0; 130], now);
    let data = record(&[0; 60]);
    assert!(queue.try_append(&policy, &data).is_none());
    let opened = queue.open(&policy, &data, Vec::new(), 0, None, now);
    assert_eq!((opened.readiness, opened.is_complete), (Readiness::Now, false));
    let second = queue.try_append(&policy, &data).expect("there is room");
    assert_eq!((second.readiness, second.is_complete), (Readiness::Now, false));

    // A new batch waits for nothing if it is complete, or with linger.ms=0.
    let large = queue.open(&policy, &record(&[0; 300]), Vec::new(), 0, None, now);
    assert!(large.is_complete);
    let policy = BatchPolicy { linger: Duration::ZERO, ..policy };
    assert!(queue.open(&policy, &data, Vec::new(), 0, None, now).is_complete);
}

#[test]
fn an_incomplete_batch_grows_for_a_record_that_does_not_fit_only_while_the_broker_is_blocked() {
    let policy = BatchPolicy { batch_max_size: 800, ..policy(200, 5) };
    let mut queue = known();
    append(&mut queue, &policy, &[0; 100], Instant::now());
    let large = [0; 150];
    assert!(queue.try_append(&policy, &record(&large)).is_none());
    assert!(queue.growth(&policy, &record(&large), false).is_none());
    let growth = queue.growth(&policy, &record(&large), true).expect("it cannot leave");
    drop(queue.grow(growth, Vec::new()));
    let placed = queue.try_append(&policy, &record(&large)).expect("there is room now");
    assert_eq!(placed.readiness, Readiness::Now);
}

/// Fills one batch with records of 100 bytes and returns their number.
fn fill(
    queue: &mut PartitionQueue<u32>,
    policy: &BatchPolicy,
    ratio: &Arc<CompressionRatio>,
    mut value: impl FnMut() -> [u8; 100],
) -> u32 {
    let now = Instant::now();
    loop {
        let value = value();
        let data = record(&value);
        let mut placed = queue.try_append(policy, &data).map(|placed| placed.readiness);
        if placed.is_none()
            && let Some(growth) = queue.growth(policy, &data, false)
        {
            drop(queue.grow(growth, Vec::new()).expect("there is an open batch"));
            placed = queue.try_append(policy, &data).map(|placed| placed.readiness);
        }
        let open = || queue.open(policy, &data, Vec::new(), 0, Some(ratio.clone()), now).readiness;
        if placed.unwrap_or_else(open) == Readiness::Now {
            return take(queue, policy, 1, now).records;
        }
    }
}

#[test]
fn a_batch_fills_to_its_size_after_compression_but_at_most_to_max_request_size() {
    let compression = Compression { codec: Codec::Zstd, level: None };
    let policy = BatchPolicy { compression, max_request_size: 3000, ..policy(1000, 5) };
    let (ratio, mut queue) = (Arc::default(), known());
    let equal: Vec<u32> =
        (0..200).map(|_| fill(&mut queue, &policy, &ratio, || [0; 100])).collect();
    assert!(equal.is_sorted(), "{equal:?}");
    assert_eq!((equal[0], equal[199]), (8, 26));
    let mut draw = 1u64;
    let mut noise = || {
        [(); 100].map(|()| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (draw >> 56) as u8
        })
    };
    let noisy: Vec<u32> = (0..3).map(|_| fill(&mut queue, &policy, &ratio, &mut noise)).collect();
    assert_eq!(noisy, [26, 8, 8], "a ratio that is worse counts from the next batch");
}

#[test]
fn a_batch_that_has_grown_complete_does_not_wait_for_a_response() {
    let now = Instant::now();
    let policy = BatchPolicy { batch_max_size: 4000, ..policy(200, 5) };
    let mut queue = known();
    append(&mut queue, &policy, &[0; 100], now);
    assert!(!queue.has_complete());
    append(&mut queue, &policy, &[0; 100], now);
    take(&mut queue, &policy, 1, now);
    assert!(!queue.has_complete(), "the open one is small");
    append(&mut queue, &policy, &[0; 20], now);
    append(&mut queue, &policy, &[0; 5], now);
    assert!(queue.has_complete());
}

#[test]
fn no_batch_leaves_before_the_identity_is_known() {
    let (policy, now) = (policy(100, 0), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    assert!(matches!(queue.take(&policy, Idempotence::Pending, to(1), now), Take::AfterIdentity));
    assert_eq!(header(&take(&mut queue, &policy, 1, now)).base_sequence, 0);
}

/// A broker accepts any first sequence from a producer it does not know. If the second batch arrived before the
/// first, the first could never be written.
#[test]
fn until_one_batch_is_written_the_next_one_waits() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = PartitionQueue::default();
    append(&mut queue, &policy, b"a", now);
    append(&mut queue, &policy, b"b", now);
    let first = take(&mut queue, &policy, 1, now);
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::AfterOutcome));
    queue.written(&first);
    take(&mut queue, &policy, 1, now);
}

/// Batches that overtake each other at a broker that does not know the producer lose the first one.
#[test]
fn in_a_recreated_topic_one_batch_goes_alone_until_it_is_written() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..4 {
        append(&mut queue, &policy, b"a", now);
    }
    let before = take(&mut queue, &policy, 1, now);
    let recreated =
        Target { broker: 1, branch: Branch::Main, incarnation: Incarnation::FIRST.next() };
    let is_held = |queue: &mut PartitionQueue<u32>| {
        matches!(queue.take(&policy, IDENTITY, recreated, now), Take::AfterOutcome)
    };
    assert!(is_held(&mut queue), "a batch is with the previous topic");
    queue.written(&before);
    let Take::Batch(first) = queue.take(&policy, IDENTITY, recreated, now) else {
        panic!("a batch")
    };
    assert_eq!(header(&first).base_sequence, 1, "the sequence continues");
    assert!(is_held(&mut queue), "what the previous topic's broker has written says nothing");
    queue.written(&first);
    for sequence in [2, 3] {
        let Take::Batch(next) = queue.take(&policy, IDENTITY, recreated, now) else {
            panic!("a batch")
        };
        assert_eq!(header(&next).base_sequence, sequence);
    }
}

#[test]
fn under_a_new_producer_id_one_batch_of_a_transaction_goes_alone_until_it_is_written() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let another = Idempotence::Transaction(ProducerIdentity { id: 8, epoch: 0 });
    let mut take = || queue.take(&policy, another, to(1), now);
    let Take::Batch(first) = take() else { panic!("a batch") };
    assert!(matches!(take(), Take::AfterOutcome));
    queue.written(&first);
    let mut take = || queue.take(&policy, another, to(1), now);
    assert!(matches!((take(), take()), (Take::Batch(_), Take::Batch(_))));
}

fn transaction(epoch: i16) -> Idempotence {
    Idempotence::Transaction(ProducerIdentity { id: 7, epoch })
}

#[test]
fn a_transaction_marks_its_batches_and_a_new_identity_restarts_the_sequences() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    let mut seen = Vec::new();
    for epoch in [0, 0, 1, 1] {
        append(&mut queue, &policy, b"a", now);
        let Take::Batch(batch) = queue.take(&policy, transaction(epoch), to(1), now) else {
            panic!("a batch")
        };
        batches(batch.payload().clone()).next().unwrap().unwrap().verify_crc().unwrap();
        let header = header(&batch);
        assert!(header.is_transactional() && !header.is_control());
        seen.push((header.producer_epoch, header.base_sequence));
        queue.written(&batch);
    }
    assert_eq!(seen, [(0, 0), (0, 1), (1, 0), (1, 1)]);
}

#[test]
fn after_a_lost_batch_a_transaction_sends_no_batch_until_the_next_identity() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..2 {
        append(&mut queue, &policy, b"a", now);
    }
    let Take::Batch(first) = queue.take(&policy, transaction(0), to(1), now) else {
        panic!("a batch")
    };
    assert!(queue.fail(&first).is_empty());
    assert!(matches!(queue.take(&policy, transaction(0), to(1), now), Take::AfterIdentity));
    assert_eq!(queue.give_up(&policy).len(), 1);
    append(&mut queue, &policy, b"b", now);
    let Take::Batch(next) = queue.take(&policy, transaction(1), to(1), now) else {
        panic!("a batch")
    };
    assert_eq!((header(&next).producer_epoch, header(&next).base_sequence), (1, 0));
}

/// With transactions of version 2 an abort does not wait for batches in flight: their epoch keeps them out of the log.
#[test]
fn an_abandoned_batch_in_flight_has_no_effect_when_its_outcome_arrives() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = PartitionQueue::default();
    append(&mut queue, &policy, b"a", now);
    let Take::Batch(late) = queue.take(&policy, transaction(0), to(1), now) else {
        panic!("a batch")
    };
    assert!(queue.give_up(&policy).is_empty());
    append(&mut queue, &policy, b"b", now);
    let Take::Batch(next) = queue.take(&policy, transaction(1), to(2), now) else {
        panic!("nothing to wait for")
    };
    assert!(queue.retry(late, true, None).is_some(), "not to be sent again");
    assert_eq!(queue.failures(), 0);
    append(&mut queue, &policy, b"c", now);
    assert!(matches!(queue.take(&policy, transaction(1), to(2), now), Take::AfterOutcome));
    queue.written(&next);
    let Take::Batch(last) = queue.take(&policy, transaction(1), to(2), now) else {
        panic!("a batch")
    };
    assert_eq!((header(&last).producer_epoch, header(&last).base_sequence), (1, 1));
}

#[test]
fn sequences_count_records_and_survive_retries() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let sent: Vec<Batch<u32>> = (0..3).map(|_| take(&mut queue, &policy, 1, now)).collect();
    assert_eq!(sent.iter().map(|b| header(b).base_sequence).collect::<Vec<_>>(), [0, 1, 2]);
    // All three fail, with responses out of order over two connections. They leave again unchanged and in order.
    let payloads: Vec<Bytes> = sent.iter().map(|b| b.payload().clone()).collect();
    for batch in sent.into_iter().rev() {
        assert!(queue.retry(batch, true, None).is_none());
    }
    let later = now + Duration::from_millis(5);
    for payload in payloads {
        let again = take(&mut queue, &policy, 2, later);
        assert_eq!(again.payload(), &payload);
        assert_eq!((again.attempts, again.first_taken), (2, Some(now)));
    }
}

#[test]
fn no_batch_overtakes_a_retried_batch() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
        queue.bind();
    }
    let first = take(&mut queue, &policy, 1, now);
    let second = take(&mut queue, &policy, 1, now);
    assert!(queue.is_next(&first) && !queue.is_next(&second));
    assert!(queue.retry(first, false, None).is_none());
    assert!(!queue.is_next(&second));
    // The first batch waits for the outcome of the second, which is in flight; the third waits for the first.
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::AfterOutcome));
    assert!(queue.retry(second, false, None).is_none());
    let order: Vec<i32> =
        (0..3).map(|_| header(&take(&mut queue, &policy, 1, now)).base_sequence).collect();
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn with_one_request_in_flight_a_batch_waits_for_the_outcome_of_the_one_before() {
    let policy = BatchPolicy { one_in_flight: true, ..policy(90, 0) };
    let (mut queue, now) = (known(), Instant::now());
    for value in [[b'a'; 50], [b'b'; 50]] {
        append(&mut queue, &policy, &value, now);
    }
    let next = |queue: &mut PartitionQueue<u32>| queue.take(&policy, Idempotence::Off, to(1), now);
    let Take::Batch(first) = next(&mut queue) else { panic!("nothing is in flight") };
    assert!(matches!(next(&mut queue), Take::AfterOutcome));
    assert!(queue.retry(first, false, None).is_none());
    let Take::Batch(again) = next(&mut queue) else { panic!("it came back") };
    assert_eq!(again.attempts, 2);
    queue.written(&again);
    assert!(matches!(next(&mut queue), Take::Batch(second) if second.attempts == 1));
}

#[test]
fn a_new_leader_waits_for_the_outcomes_of_the_old_one() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    append(&mut queue, &policy, b"b", now);
    let first = take(&mut queue, &policy, 1, now);
    assert!(matches!(queue.take(&policy, IDENTITY, to(2), now), Take::AfterOutcome));
    queue.written(&first);
    assert_eq!(header(&take(&mut queue, &policy, 2, now)).base_sequence, 1);
}

/// The leader is unresponsive and another one is elected. All batches in flight move in order, with their sequences.
/// A later response of the previous leader has no effect.
#[test]
fn all_batches_in_flight_follow_a_new_leader_without_responses_of_the_previous_one() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..7 {
        append(&mut queue, &policy, b"a", now);
    }
    let sent: Vec<Batch<u32>> = (0..5).map(|_| take(&mut queue, &policy, 1, now)).collect();
    assert!(matches!(queue.take(&policy, IDENTITY, to(2), now), Take::AfterOutcome));
    for batch in sent {
        assert!(queue.retry(batch, true, None).is_none());
    }
    // A second move overlaps: two batches are in flight to the second leader when a third one takes over.
    let again: Vec<Batch<u32>> = (0..2).map(|_| take(&mut queue, &policy, 2, now)).collect();
    assert!(matches!(queue.take(&policy, IDENTITY, to(3), now), Take::AfterOutcome));
    for batch in again {
        assert!(queue.retry(batch, true, None).is_none());
    }
    let third: Vec<Batch<u32>> = (0..5).map(|_| take(&mut queue, &policy, 3, now)).collect();
    assert_eq!(third.iter().map(|b| header(b).base_sequence).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(third.iter().map(|b| b.attempts).collect::<Vec<_>>(), [3, 3, 2, 2, 2]);
    for batch in &third {
        queue.written(batch);
    }
    let rest: Vec<i32> =
        (0..2).map(|_| header(&take(&mut queue, &policy, 3, now)).base_sequence).collect();
    assert_eq!(rest, [5, 6]);
}

/// Five batches that fail together count as one failure: the next backoff is the second, not the sixth.
#[test]
fn batches_that_come_back_together_count_as_one_failure() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..5 {
        append(&mut queue, &policy, b"a", now);
    }
    for round in 1..=2 {
        let sent: Vec<Batch<u32>> = (0..5).map(|_| take(&mut queue, &policy, 1, now)).collect();
        for batch in sent {
            assert!(queue.retry(batch, false, Some(now)).is_none());
        }
        assert_eq!(queue.failures(), round);
    }
}

#[test]
fn a_new_leader_ends_the_backoff() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    let batch = take(&mut queue, &policy, 1, now);
    let later = now + Duration::from_millis(100);
    assert!(queue.retry(batch, false, Some(later)).is_none());
    assert!(matches!(queue.take(&policy, IDENTITY, to(2), now), Take::At(at) if at == later));
    queue.leader_is_news();
    take(&mut queue, &policy, 2, now);
    assert_eq!(queue.failures(), 0);
}

/// A record appended after a batch that the broker refuses would wait as long as that batch.
#[test]
fn a_partition_is_doubtful_from_a_failure_to_the_next_write_under_any_leader() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    append(&mut queue, &policy, b"b", now);
    let (first, second) = (take(&mut queue, &policy, 1, now), take(&mut queue, &policy, 1, now));
    assert!(!queue.is_doubtful(), "nothing has come back");
    assert!(queue.retry(first, false, None).is_none());
    assert!(queue.retry(second, false, None).is_none());
    assert!(queue.is_doubtful(), "the outcome at the new leader is unknown");
    let refused = take(&mut queue, &policy, 2, now);
    assert!(queue.retry(refused, false, Some(now)).is_none());
    queue.leader_is_news();
    assert!(queue.is_doubtful(), "the next leader has taken nothing either");
    let (first, second) = (take(&mut queue, &policy, 3, now), take(&mut queue, &policy, 3, now));
    queue.written(&first);
    assert!(!queue.is_doubtful());
    let lost = queue.retry(second, true, Some(now));
    assert!(lost.is_none() && queue.is_doubtful());
    let lost = queue.expire(&policy, now + policy.delivery_timeout);
    queue.fail(&lost[0]);
    assert!(queue.is_idle() && !queue.is_doubtful(), "nothing is in the way");
}

/// After a batch that is refused repeatedly it would be stuck as well.
#[test]
fn one_batch_that_is_not_bound_tries_a_new_leader() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    let first = take(&mut queue, &policy, 1, now);
    queue.written(&first);
    queue.leader_is_untried();
    assert!(!queue.is_doubtful(), "there is nothing to wait behind");
    append(&mut queue, &policy, b"b", now);
    append(&mut queue, &policy, b"c", now);
    assert!(queue.is_doubtful());
    let tries = take(&mut queue, &policy, 2, now);
    assert!(matches!(queue.take(&policy, IDENTITY, to(2), now), Take::AfterOutcome));
    assert_eq!(queue.take_movable(&policy).len(), 1, "the other one may go elsewhere");
    queue.written(&tries);
    for value in [b"d", b"e"] {
        append(&mut queue, &policy, value, now);
    }
    assert!(!queue.is_doubtful(), "it does acknowledge");
    take(&mut queue, &policy, 2, now);
    take(&mut queue, &policy, 2, now);
}

#[test]
fn an_unbound_batch_does_not_follow_one_that_came_back_until_a_write() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    let first = take(&mut queue, &policy, 1, now);
    assert!(queue.retry(first, false, None).is_none());
    append(&mut queue, &policy, b"b", now);
    queue.bind();
    for unbound in [b"c", b"d"] {
        append(&mut queue, &policy, unbound, now);
    }
    let (first, bound) = (take(&mut queue, &policy, 2, now), take(&mut queue, &policy, 2, now));
    assert_eq!(header(&bound).base_sequence, 1, "the record that is bound does not wait");
    assert!(matches!(queue.take(&policy, IDENTITY, to(2), now), Take::AfterOutcome));
    assert!(queue.retry(first, false, Some(now)).is_none());
    assert!(queue.retry(bound, false, Some(now)).is_none());
    assert_eq!(queue.take_movable(&policy).len(), 2, "both may go elsewhere");
    append(&mut queue, &policy, b"e", now);
    let (first, bound) = (take(&mut queue, &policy, 2, now), take(&mut queue, &policy, 2, now));
    queue.written(&first);
    queue.written(&bound);
    assert_eq!(header(&take(&mut queue, &policy, 2, now)).base_sequence, 2);
}

#[test]
fn backoff_holds_the_partition_and_success_ends_it() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    let batch = take(&mut queue, &policy, 1, now);
    let later = now + Duration::from_millis(100);
    assert!(queue.retry(batch, false, Some(later)).is_none());
    assert_eq!(queue.failures(), 1);
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::At(at) if at == later));
    let batch = take(&mut queue, &policy, 1, later);
    queue.written(&batch);
    assert_eq!(queue.failures(), 0);
    assert!(queue.is_idle());
}

#[test]
fn after_an_unwritten_batch_the_rest_continues_in_the_next_epoch() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let sent: Vec<Batch<u32>> = (0..2).map(|_| take(&mut queue, &policy, 1, now)).collect();
    let [too_large, behind] = <[_; 2]>::try_from(sent).expect("two");
    assert!(queue.fail(&too_large).is_empty());
    // The batch after the gap must be refused and renumbered before the third batch may leave: the broker would
    // refuse the third as well.
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::AfterOutcome));
    assert!(queue.retry(behind, false, None).is_none());
    let behind = header(&take(&mut queue, &policy, 1, now));
    assert_eq!((behind.producer_epoch, behind.base_sequence), (1, 0));
}

/// The broker refuses it as out of order, and would do so indefinitely under this epoch. The batch itself is intact.
#[test]
fn a_batch_after_a_lost_one_waits_for_the_next_epoch() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let [written, lost, behind] = [(); 3].map(|()| take(&mut queue, &policy, 1, now));
    queue.written(&written);
    assert!(queue.is_next(&lost) && !queue.is_next(&behind));
    assert!(queue.fail(&lost).is_empty());
    assert!(!queue.is_next(&behind));
    assert!(queue.retry(behind, false, None).is_none());
    let again = take(&mut queue, &policy, 1, now);
    assert_eq!((header(&again).producer_epoch, header(&again).base_sequence), (1, 0));
    assert!(queue.is_next(&again));
}

#[test]
fn a_batch_that_may_be_written_before_a_lost_one_keeps_its_sequence() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let unanswered = take(&mut queue, &policy, 1, now);
    let too_large = take(&mut queue, &policy, 1, now);
    let sequence = header(&unanswered).base_sequence;
    assert!(queue.retry(unanswered, true, None).is_none());
    assert!(queue.fail(&too_large).is_empty());
    // Under the next epoch the broker could not recognize the first batch as a duplicate.
    let again = take(&mut queue, &policy, 1, now);
    assert_eq!((header(&again).producer_epoch, header(&again).base_sequence), (0, sequence));
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::AfterOutcome));
    queue.written(&again);
    let third = header(&take(&mut queue, &policy, 1, now));
    assert_eq!((third.producer_epoch, third.base_sequence), (1, 0));
}

#[test]
fn a_gap_of_unknown_outcome_fails_later_batches_that_may_have_been_written() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..4 {
        append(&mut queue, &policy, b"a", now);
    }
    let mut sent: VecDeque<Batch<u32>> =
        (0..3).map(|_| take(&mut queue, &policy, 1, now)).collect();
    let first = sent.pop_front().expect("three were sent");
    let second = sent.pop_front().expect("three were sent");
    let third = sent.pop_front().expect("three were sent");
    assert!(queue.retry(second, true, None).is_none());
    let lost = queue.fail(&first);
    assert_eq!(
        lost.len(),
        1,
        "the second may have been written and cannot be told under a new epoch"
    );
    assert!(queue.retry(third, true, None).is_some(), "so may the third");
    let fourth = header(&take(&mut queue, &policy, 1, now));
    assert_eq!((fourth.producer_epoch, fourth.base_sequence), (1, 0));
}

#[test]
fn expiry_spares_batches_in_flight() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let _in_flight = take(&mut queue, &policy, 1, now);
    assert!(queue.expire(&policy, now).is_empty());
    let later = now + policy.delivery_timeout;
    assert_eq!(queue.next_expiry(&policy), Some(later));
    assert_eq!(queue.expire(&policy, later).len(), 2);
    assert!(queue.is_drained() && !queue.is_idle());
}

#[test]
fn a_batch_counts_as_sent_until_its_outcome() {
    let policy = BatchPolicy { moves_refused: true, ..policy(1, 0) };
    let now = Instant::now();
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    append(&mut queue, &policy, b"b", now);
    assert!(!queue.has_sent(), "both wait");
    let first = take(&mut queue, &policy, 1, now);
    assert!(queue.has_sent(), "one is in flight");
    assert!(queue.retry(first, false, Some(now)).is_none());
    assert!(queue.has_sent(), "it will be sent again");
    assert_eq!(queue.take_unsent(&policy).len(), 1, "the other one");
    assert!(queue.has_sent() && queue.take_unsent(&policy).is_empty());
    assert_eq!(queue.take_movable(&policy).len(), 1, "a refused one may leave, too");
    assert!(!queue.has_sent() && queue.is_idle());
}

#[test]
fn a_buffer_that_a_socket_holds_is_not_changed() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    append(&mut queue, &policy, b"b", now);
    let first = take(&mut queue, &policy, 1, now);
    let second = take(&mut queue, &policy, 1, now);
    let held = second.payload().clone();
    let before = held.to_vec();
    assert!(queue.fail(&first).is_empty());
    assert!(queue.retry(second, false, None).is_none());
    let again = take(&mut queue, &policy, 1, now);
    assert_eq!(header(&again).producer_epoch, 1);
    assert_eq!(held, before);
}

#[test]
fn a_queue_at_rest_is_small() {
    assert_eq!(size_of::<PartitionQueue<u32>>(), 32);
}

#[test]
fn a_queue_rests_only_when_that_loses_no_state() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    assert!(!queue.rest(now), "a batch waits");
    let batch = take(&mut queue, &policy, 1, now);
    assert!(!queue.rest(now), "a batch is in flight");
    assert!(queue.retry(batch, false, Some(now)).is_none());
    let batch = take(&mut queue, &policy, 1, now);
    assert!(queue.fail(&batch).is_empty());
    assert!(!queue.rest(now), "a sequence was lost");
    append(&mut queue, &policy, b"b", now);
    let batch = take(&mut queue, &policy, 1, now);
    queue.written(&batch);
    assert!(queue.rest(now));
    assert!(queue.is_idle() && queue.is_drained() && queue.waiting_bytes() == 0);
    append(&mut queue, &policy, b"c", now);
    let after = take(&mut queue, &policy, 1, now);
    let (before, after) = (header(&batch), header(&after));
    assert_eq!((before.producer_epoch, before.base_sequence), (1, 0), "the next epoch");
    assert_eq!((after.producer_epoch, after.base_sequence), (1, 1), "its place is kept");
}

#[test]
fn a_batch_abandoned_before_the_queue_rested_has_no_effect_either() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = PartitionQueue::default();
    append(&mut queue, &policy, b"a", now);
    let Take::Batch(late) = queue.take(&policy, transaction(0), to(1), now) else {
        panic!("a batch")
    };
    assert!(queue.give_up(&policy).is_empty());
    assert!(queue.rest(now));
    queue.written(&late);
    assert!(queue.retry(late, true, None).is_some(), "not to be sent again");
    append(&mut queue, &policy, b"b", now);
    let Take::Batch(next) = queue.take(&policy, transaction(1), to(2), now) else {
        panic!("a batch")
    };
    assert_eq!((header(&next).producer_epoch, header(&next).base_sequence), (1, 0));
    append(&mut queue, &policy, b"c", now);
    assert!(
        matches!(queue.take(&policy, transaction(1), to(2), now), Take::AfterOutcome),
        "an abandoned batch does not add the partition to the transaction"
    );
}

#[test]
fn only_unsent_unbound_batches_move() {
    let now = Instant::now();
    let policy = policy(60, 0);
    let (mut from, mut to) = (known(), known());
    for n in 0..4u8 {
        append(&mut from, &policy, &[n; 40], now);
        if n == 2 {
            from.bind();
        }
    }
    let sent = take(&mut from, &policy, 1, now);
    assert!(from.retry(sent, true, None).is_none());
    let moved = from.take_movable(&policy);
    assert_eq!(moved.len(), 2, "not the one sent, not the bound one");
    for batch in moved {
        to.adopt(batch);
    }
    let sequences = |queue: &mut PartitionQueue<u32>| {
        let mut sequences = Vec::new();
        while let Take::Batch(batch) = queue.take(&policy, IDENTITY, super::tests::to(1), now) {
            sequences.push(header(&batch).base_sequence);
        }
        sequences
    };
    assert_eq!(sequences(&mut from), [0, 1], "no number is missing where they were");
    assert_eq!(sequences(&mut to), [0, 1]);
    assert!(from.is_drained() && to.is_drained());
}

#[test]
fn a_moved_batch_keeps_its_expiry_time() {
    let now = Instant::now();
    let policy = policy(60, 0);
    let later = now + Duration::from_secs(60);
    let (mut from, mut to) = (known(), known());
    append(&mut from, &policy, &[1; 40], now);
    append(&mut to, &policy, &[2; 40], later);
    append(&mut to, &policy, &[3; 40], later);
    for batch in from.take_movable(&policy) {
        to.adopt(batch);
    }
    assert_eq!(to.next_expiry(&policy), Some(now + policy.delivery_timeout));
    assert_eq!(to.expire(&policy, now + policy.delivery_timeout).len(), 1);
    assert_eq!(to.expire(&policy, now + policy.delivery_timeout).len(), 0);
}

/// Sequences of the batches that the queue sends now.
fn sequences(queue: &mut PartitionQueue<u32>, policy: &BatchPolicy, now: Instant) -> Vec<i32> {
    let mut sequences = Vec::new();
    while let Take::Batch(batch) = queue.take(policy, IDENTITY, to(1), now) {
        sequences.push(header(&batch).base_sequence);
        queue.written(&batch);
    }
    sequences
}

#[test]
fn batches_that_no_broker_has_written_move_and_give_their_sequences_back() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let later = now + Duration::from_millis(100);
    let (mut from, mut to) = (known(), known());
    for value in [b"a", b"b", b"c"] {
        append(&mut from, &policy, value, now);
    }
    let first = take(&mut from, &policy, 1, now);
    let second = take(&mut from, &policy, 1, now);
    assert!(from.retry(first, false, Some(later)).is_none());
    assert_eq!(from.take_movable(&policy).len(), 1, "the second one may be written");
    assert!(from.retry(second, false, Some(later)).is_none());
    let moved = from.take_movable(&policy);
    assert!(from.is_idle() && moved.iter().all(|batch| batch.first_sequence().is_none()));
    for batch in moved {
        to.adopt(batch);
    }
    assert_eq!(sequences(&mut to, &policy, now), [0, 1]);
    assert!(!from.rest(now) && from.rest(later), "the backoff outlives the batches");
    append(&mut from, &policy, b"d", later);
    assert_eq!(sequences(&mut from, &policy, later), [0], "no sequence is missing");
}

#[test]
fn a_batch_keeps_its_sequence_if_it_or_a_later_one_may_be_written() {
    let (policy, now) = (policy(1, 0), Instant::now());
    // Whether the first of three batches may be written, the second and the third; and how many stay.
    for (unknown, kept) in [([true, false, false], 1), ([false, true, false], 2), ([false; 3], 0)] {
        let mut queue = known();
        for value in [b"a", b"b", b"c"] {
            append(&mut queue, &policy, value, now);
        }
        let sent = [(); 3].map(|()| take(&mut queue, &policy, 1, now));
        for (batch, unknown) in sent.into_iter().zip(unknown) {
            assert!(queue.retry(batch, unknown, None).is_none());
        }
        assert_eq!(queue.take_movable(&policy).len(), 3 - kept, "{unknown:?}");
        append(&mut queue, &policy, b"d", now);
        let all: Vec<i32> = (0..=kept as i32).collect();
        assert_eq!(sequences(&mut queue, &policy, now), all, "{unknown:?}");
    }
}

/// Batches in flight wait for their refusals only if the one that came back could then move (decision 0014).
#[test]
fn a_batch_that_came_back_may_move_unless_it_is_bound_or_may_be_written() {
    let (policy, now) = (policy(1, 0), Instant::now());
    for (is_bound, unknown, moves) in
        [(false, false, true), (true, false, false), (false, true, false)]
    {
        let mut queue = known();
        append(&mut queue, &policy, b"a", now);
        if is_bound {
            queue.bind();
        }
        append(&mut queue, &policy, b"b", now);
        let [first, second] = [(); 2].map(|()| take(&mut queue, &policy, 1, now));
        assert!(queue.retry(first, unknown, None).is_none());
        assert_eq!(queue.next_moves_if_refused(), moves, "bound: {is_bound}, unknown: {unknown}");
        assert!(second.moves_if_refused());
    }
}

#[test]
fn refused_batches_stay_if_they_are_bound_or_if_it_is_switched_off() {
    let now = Instant::now();
    let on = policy(1, 0);
    let off = BatchPolicy { moves_refused: false, ..on.clone() };
    for (policy, is_bound, moved) in [(&on, false, 1), (&on, true, 0), (&off, false, 0)] {
        let mut queue = known();
        append(&mut queue, policy, b"a", now);
        if is_bound {
            queue.bind();
        }
        let batch = take(&mut queue, policy, 1, now);
        assert!(queue.retry(batch, false, None).is_none());
        assert_eq!(queue.take_movable(policy).len(), moved, "{policy:?}");
    }
}

#[test]
fn a_batch_that_tries_a_leader_after_refusals_keeps_its_attempts() {
    let (policy, now) = (policy(200, 0), Instant::now());
    let later = now + Duration::from_millis(100);
    let mut queue = known();
    append(&mut queue, &policy, b"a", now);
    append(&mut queue, &policy, b"b", now);
    let batch = take(&mut queue, &policy, 1, now);
    assert_eq!((batch.records, batch.attempts), (2, 1));
    assert!(queue.retry(batch, false, None).is_none());
    for batch in queue.take_movable(&policy) {
        queue.adopt(batch);
    }
    let Take::Trial(batch, parts) = queue.take(&policy, IDENTITY, to(2), later) else {
        panic!("one record tries the leader")
    };
    queue.put_back(batch, parts, |completion| vec![completion; 2]);
    let first = take(&mut queue, &policy, 2, later);
    assert_eq!((first.records, first.attempts, first.first_taken), (1, 2, Some(now)));
    queue.written(&first);
    let rest = take(&mut queue, &policy, 2, later);
    assert_eq!((rest.records, rest.attempts, rest.first_taken), (1, 2, Some(now)));
}
