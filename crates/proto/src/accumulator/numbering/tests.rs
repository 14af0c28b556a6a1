use std::time::Instant;

use super::super::{
    Idempotence, PartitionQueue, ProducerIdentity, Take,
    tests::{IDENTITY, append, header, known, policy, take, to},
};

const LAST: Idempotence = Idempotence::As(ProducerIdentity { id: 7, epoch: i16::MAX });
const ANOTHER: Idempotence = Idempotence::As(ProducerIdentity { id: 8, epoch: 0 });

fn stamp(taken: &Take<u32>) -> (i64, i16, i32) {
    let Take::Batch(batch) = taken else { panic!("expected a batch, got {taken:?}") };
    let header = header(batch);
    (header.producer_id, header.producer_epoch, header.base_sequence)
}

#[test]
fn after_the_last_epoch_a_partition_continues_with_another_id() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = PartitionQueue::default();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let Take::Batch(lost) = queue.take(&policy, LAST, to(1), now) else { panic!("the first") };
    assert!(queue.fail(&lost).is_empty());
    // Epoch 0 of the same id stays fenced indefinitely.
    for _ in 0..2 {
        assert!(matches!(queue.take(&policy, LAST, to(1), now), Take::AfterAnotherId(7)));
    }
    let second = queue.take(&policy, ANOTHER, to(1), now);
    assert_eq!(stamp(&second), (8, 0, 0));
    // The broker does not know this id in this partition: one batch goes alone first.
    assert!(matches!(queue.take(&policy, ANOTHER, to(1), now), Take::AfterOutcome));
    let Take::Batch(second) = second else { unreachable!() };
    queue.written(&second);
    assert_eq!(stamp(&queue.take(&policy, ANOTHER, to(1), now)), (8, 0, 1));
}

/// The retriable batch before it ends under the old epoch, in which the renumbered one can never be written.
#[test]
fn a_renumbered_batch_waits_for_the_outcomes_of_earlier_batches() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let [first, unknown, doubtful] = [(); 3].map(|()| take(&mut queue, &policy, 1, now));
    assert!(queue.retry(first, false, None).is_none());
    assert!(queue.renumber(unknown, None).is_empty());
    assert!(
        queue.retry(doubtful, true, None).is_some(),
        "it could be a duplicate in the next epoch"
    );
    let first = take(&mut queue, &policy, 1, now);
    assert_eq!((header(&first).producer_epoch, header(&first).base_sequence), (0, 0));
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::AfterOutcome));
    queue.written(&first);
    let second = take(&mut queue, &policy, 1, now);
    assert_eq!((header(&second).producer_epoch, header(&second).base_sequence), (1, 0));
}

#[test]
fn a_renumbered_batch_of_unknown_outcome_fails_with_those_after_it() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let [first, second] = [(); 2].map(|()| take(&mut queue, &policy, 1, now));
    assert!(queue.retry(first, true, None).is_none());
    assert!(queue.retry(second, true, None).is_none());
    let first = take(&mut queue, &policy, 1, now);
    let lost: Vec<i32> =
        queue.renumber(first, None).iter().map(|batch| header(batch).base_sequence).collect();
    assert_eq!(lost, [0, 1]);
    let third = take(&mut queue, &policy, 1, now);
    assert_eq!((header(&third).producer_epoch, header(&third).base_sequence), (1, 0));
}

#[test]
fn a_partition_with_epochs_left_keeps_its_id() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = PartitionQueue::default();
    for _ in 0..2 {
        append(&mut queue, &policy, b"a", now);
    }
    let before = Idempotence::As(ProducerIdentity { id: 7, epoch: i16::MAX - 1 });
    let Take::Batch(lost) = queue.take(&policy, before, to(1), now) else { panic!("the first") };
    assert!(queue.fail(&lost).is_empty());
    assert_eq!(stamp(&queue.take(&policy, ANOTHER, to(1), now)), (7, i16::MAX, 0));
}
