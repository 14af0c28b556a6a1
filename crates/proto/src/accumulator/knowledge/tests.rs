use std::time::{Duration, Instant};

use super::super::{
    BatchPolicy, Idempotence, PartitionQueue, ProducerIdentity, Take,
    tests::{IDENTITY, append, policy, take, to},
};
use super::Term;

const TRANSACTION: Idempotence = Idempotence::Transaction(ProducerIdentity { id: 7, epoch: 0 });

/// Whether the second of two batches leaves before the outcome of the first, once a batch was sent `idle` ago and written.
fn pipelines_after(idle: Duration, idempotence: Idempotence, policy: &BatchPolicy) -> bool {
    let begin = policy.began;
    let mut queue = PartitionQueue::default();
    append(&mut queue, policy, b"a", begin);
    let Take::Batch(first) = queue.take(policy, idempotence, to(1), begin) else {
        panic!("the first batch")
    };
    queue.written(&first);
    assert!(queue.rest(begin));
    let now = begin + idle;
    for _ in 0..2 {
        append(&mut queue, policy, b"a", now);
    }
    let mut take = || queue.take(policy, idempotence, to(1), now);
    assert!(matches!(take(), Take::Batch(_)));
    match take() {
        Take::Batch(_) => true,
        Take::AfterOutcome => false,
        other => panic!("{other:?}"),
    }
}

/// A broker that has forgotten the producer accepts any first sequence. If it refuses the first batch and accepts the
/// second, the first is written after it.
#[test]
fn a_partition_idle_for_the_delivery_timeout_sends_its_next_batch_alone() {
    let policy = policy(1, 0);
    let quarters = |n: u32| policy.delivery_timeout / 4 * n;
    let moment = Duration::from_millis(1);
    let day = Duration::from_secs(24 * 3600);
    let cases = [
        (Duration::ZERO, true),
        (quarters(3), true),
        (quarters(4) - moment, true),
        (quarters(4), false),
        (quarters(5), false),
        (day, false),
        (22 * day, false),
        (100 * 365 * day, false),
    ];
    for (idle, pipelines) in cases {
        for idempotence in [IDENTITY, TRANSACTION] {
            let found = pipelines_after(idle, idempotence, &policy);
            assert_eq!(found, pipelines, "{idempotence:?} after {idle:?}");
        }
        assert!(pipelines_after(idle, Idempotence::Off, &policy), "no sequences: {idle:?}");
    }
}

#[test]
fn after_an_idle_time_one_written_batch_makes_the_producer_known_again() {
    let policy = policy(1, 0);
    let mut queue = PartitionQueue::default();
    append(&mut queue, &policy, b"a", policy.began);
    let first = take(&mut queue, &policy, 1, policy.began);
    queue.written(&first);
    let now = policy.began + policy.delivery_timeout;
    for _ in 0..4 {
        append(&mut queue, &policy, b"a", now);
    }
    let refused = take(&mut queue, &policy, 1, now);
    assert!(queue.retry(refused, false, None).is_none());
    let again = take(&mut queue, &policy, 1, now);
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::AfterOutcome));
    queue.written(&again);
    for _ in 0..3 {
        take(&mut queue, &policy, 1, now);
    }
}

/// The time of the attempt counts: after an outage the backlog leaves in a pipeline.
#[test]
fn a_batch_written_long_after_it_was_appended_makes_the_producer_known() {
    let policy = policy(1, 0);
    let mut queue = PartitionQueue::default();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", policy.began);
    }
    let now = policy.began + policy.delivery_timeout - Duration::from_millis(1);
    let first = take(&mut queue, &policy, 1, now);
    queue.written(&first);
    take(&mut queue, &policy, 1, now);
    take(&mut queue, &policy, 1, now);
}

#[test]
fn a_term_is_recent_for_at_most_the_delivery_timeout_whatever_that_is() {
    for timeout in [Duration::ZERO, Duration::from_millis(3), Duration::from_secs(1), Duration::MAX]
    {
        let policy = BatchPolicy { delivery_timeout: timeout, ..policy(1, 0) };
        let at = |after: Duration| Term::at(policy.began + after, &policy);
        assert!(at(Duration::ZERO).is_recent(at(Duration::ZERO)), "{timeout:?}");
        let is_far = timeout > Duration::from_secs(3600);
        let later = timeout.max(Duration::from_millis(4)).min(Duration::from_secs(3600));
        assert_eq!(at(Duration::ZERO).is_recent(at(later)), is_far, "{timeout:?}");
    }
}

#[test]
fn a_time_before_the_producer_began_counts_as_its_begin() {
    let before = Instant::now();
    let policy = policy(1, 0);
    assert_eq!(Term::at(before, &policy), Term::at(policy.began, &policy));
}
