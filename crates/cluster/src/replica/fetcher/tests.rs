use std::time::Duration;

use curtail_wire::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::{
    PartitionKey,
    delays::Delays,
    task::{Failure, not_taken, refused},
};
use crate::log::AppendError;

const BACKOFF: Duration = Duration::from_secs(1);

fn key(index: i32) -> PartitionKey {
    PartitionKey { topic: Uuid([1; 16]), index }
}

#[test]
fn a_delay_lasts_for_the_backoff() {
    let begin = Instant::now();
    let mut delays = Delays::default();
    delays.add(key(0), 3, BACKOFF, begin);
    for (after, delayed) in [(0, true), (999, true), (1000, false), (1001, false)] {
        let now = begin + Duration::from_millis(after);
        assert_eq!(delays.has(key(0), 3, now), delayed, "after {after} ms");
    }
    assert!(!delays.has(key(1), 3, begin), "another partition");
}

#[test]
fn a_failure_neither_extends_a_running_delay_nor_doubles_the_next() {
    let begin = Instant::now();
    let mut delays = Delays::default();
    delays.add(key(0), 3, BACKOFF, begin);
    delays.add(key(0), 3, BACKOFF, begin + BACKOFF / 2);
    assert!(!delays.has(key(0), 3, begin + BACKOFF));
    delays.add(key(0), 3, BACKOFF, begin + BACKOFF);
    assert!(delays.has(key(0), 3, begin + BACKOFF * 2 - Duration::from_millis(1)));
    assert!(!delays.has(key(0), 3, begin + BACKOFF * 2));
}

#[test]
fn a_delay_is_void_in_another_leader_epoch() {
    let begin = Instant::now();
    let mut delays = Delays::default();
    delays.add(key(0), 3, BACKOFF, begin);
    assert!(!delays.has(key(0), 4, begin));
    delays.add(key(0), 4, BACKOFF, begin + BACKOFF / 2);
    assert!(delays.has(key(0), 4, begin + BACKOFF));
    delays.expire(begin + BACKOFF * 3 / 2);
    assert!(!delays.has(key(0), 4, begin + BACKOFF));
}

#[test]
fn every_refusal_except_a_fenced_epoch_delays_the_fetch() {
    for code in [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
        ErrorCode::UNKNOWN_TOPIC_ID,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::INCONSISTENT_TOPIC_ID,
        ErrorCode::OFFSET_OUT_OF_RANGE,
        ErrorCode::KAFKA_STORAGE_ERROR,
    ] {
        assert_eq!(refused(code), Failure::Delay(code.name().to_owned()));
    }
    let code = ErrorCode::FENCED_LEADER_EPOCH;
    assert_eq!(refused(code), Failure::GiveUp(code.name().to_owned()));
}

#[test]
fn damaged_batches_are_fetched_again_and_a_failed_log_is_not() {
    for (code, again) in [
        (ErrorCode::CORRUPT_MESSAGE, true),
        (ErrorCode::INVALID_RECORD, true),
        (ErrorCode::KAFKA_STORAGE_ERROR, false),
        (ErrorCode::OFFSET_OUT_OF_RANGE, false),
    ] {
        let failure = not_taken(AppendError::new(code, "x"));
        assert_eq!(matches!(failure, Failure::Delay(_)), again, "{}", code.name());
    }
}
