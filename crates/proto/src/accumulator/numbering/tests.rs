use std::time::Instant;

use super::super::{
    Idempotence, PartitionQueue, ProducerIdentity, Take,
    tests::{append, header, policy, to},
};

const LAST: Idempotence = Idempotence::As(ProducerIdentity { id: 7, epoch: i16::MAX });
const ANOTHER: Idempotence = Idempotence::As(ProducerIdentity { id: 8, epoch: 0 });

fn stamp(taken: &Take<u32>) -> (i64, i16, i32) {
    let Take::Batch(batch) = taken else { panic!("expected a batch, got {taken:?}") };
    let header = header(batch);
    (header.producer_id, header.producer_epoch, header.base_sequence)
}

#[test]
fn after_the_last_epoch_a_partition_goes_on_with_another_id() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = PartitionQueue::default();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let Take::Batch(lost) = queue.take(&policy, LAST, to(1), now) else { panic!("the first") };
    assert!(queue.fail(&lost).is_empty());
    // Epoch 0 of the same id is fenced, however long one waits.
    for _ in 0..2 {
        assert!(matches!(queue.take(&policy, LAST, to(1), now), Take::AfterAnotherId(7)));
    }
    let second = queue.take(&policy, ANOTHER, to(1), now);
    assert_eq!(stamp(&second), (8, 0, 0));
    // The broker knows nothing of this id in this partition: one batch goes alone first.
    assert!(matches!(queue.take(&policy, ANOTHER, to(1), now), Take::AfterOutcome));
    let Take::Batch(second) = second else { unreachable!() };
    queue.written(&second);
    assert_eq!(stamp(&queue.take(&policy, ANOTHER, to(1), now)), (8, 0, 1));
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
