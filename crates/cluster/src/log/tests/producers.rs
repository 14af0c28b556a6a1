//! Idempotence: duplicates, gaps, epochs, and the state across restarts.

use curtail_wire::ErrorCode;

use super::*;
use crate::log::producers::Producers;

/// The expected result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// Appended at this offset.
    At(i64),
    /// Recognized as a duplicate of the batch at this offset.
    Duplicate(i64),
    Refused(ErrorCode),
}

use Expect::{At, Duplicate, Refused};

const OUT_OF_ORDER: Expect = Refused(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
const FENCED: Expect = Refused(ErrorCode::INVALID_PRODUCER_EPOCH);

fn send(log: &mut PartitionLog, id: i64, epoch: i16, sequence: i32, count: usize) -> Expect {
    let batch = TestBatch::of(count, 3).from(id, epoch, sequence).build();
    match log.append_as_leader(batch, 0, NOW) {
        Ok(appended) => {
            assert_eq!(appended.last_offset, appended.base_offset + count as i64 - 1);
            if appended.duplicate {
                Duplicate(appended.base_offset)
            } else {
                At(appended.base_offset)
            }
        }
        Err(error) => Refused(error.code),
    }
}

/// Steps of `(producer id, epoch, first sequence, records)` with the expected results.
type Steps = &'static [(i64, i16, i32, usize, Expect)];

const CASES: &[(&str, Steps)] = &[
    ("in order", &[(1, 0, 0, 2, At(0)), (1, 0, 2, 1, At(2)), (1, 0, 3, 3, At(3))]),
    ("a gap", &[(1, 0, 0, 2, At(0)), (1, 0, 3, 1, OUT_OF_ORDER), (1, 0, 2, 1, At(2))]),
    ("an unknown producer may start anywhere", &[(1, 3, 77, 2, At(0)), (1, 3, 79, 1, At(2))]),
    ("producers are independent", &[(1, 0, 0, 2, At(0)), (2, 0, 0, 1, At(2)), (1, 0, 2, 1, At(3))]),
    (
        "the last five are recognised, older ones are out of order",
        &[
            (1, 0, 0, 1, At(0)),
            (1, 0, 1, 2, At(1)),
            (1, 0, 3, 1, At(3)),
            (1, 0, 4, 1, At(4)),
            (1, 0, 5, 1, At(5)),
            (1, 0, 0, 1, Duplicate(0)),
            (1, 0, 6, 1, At(6)),
            (1, 0, 0, 1, OUT_OF_ORDER),
            (1, 0, 1, 2, Duplicate(1)),
            (1, 0, 6, 1, Duplicate(6)),
            (1, 0, 7, 1, At(7)),
            (1, 0, 1, 2, OUT_OF_ORDER),
        ],
    ),
    (
        "only the same range is a duplicate",
        &[
            (1, 0, 0, 4, At(0)),
            (1, 0, 0, 3, OUT_OF_ORDER),
            (1, 0, 1, 3, OUT_OF_ORDER),
            (1, 0, 0, 5, OUT_OF_ORDER),
            (1, 0, 0, 4, Duplicate(0)),
        ],
    ),
    (
        "a new epoch starts at 0 and fences the old one",
        &[
            (1, 0, 0, 2, At(0)),
            (1, 1, 2, 1, OUT_OF_ORDER),
            (1, 1, 0, 1, At(2)),
            (1, 0, 2, 1, FENCED),
            (1, 0, 0, 2, FENCED),
            (1, 1, 0, 1, Duplicate(2)),
            (1, 1, 1, 1, At(3)),
        ],
    ),
    (
        "sequences wrap to 0",
        &[
            (1, 0, i32::MAX - 1, 2, At(0)),
            (1, 0, 0, 1, At(2)),
            (1, 0, i32::MAX - 1, 2, Duplicate(0)),
            (1, 0, 1, 1, At(3)),
        ],
    ),
    (
        "sequences wrap inside of a batch",
        &[
            (1, 0, i32::MAX - 1, 4, At(0)),
            (1, 0, i32::MAX - 1, 4, Duplicate(0)),
            (1, 0, 1, 1, OUT_OF_ORDER),
            (1, 0, 2, 1, At(4)),
        ],
    ),
    ("without an id nothing is checked", &[(-1, -1, -1, 1, At(0)), (-1, -1, -1, 1, At(1))]),
];

#[test]
fn sequence_numbers_are_checked_as_in_kafka() {
    for (what, steps) in CASES {
        let (disk, mut log) = fresh(&config());
        for (at, &(id, epoch, sequence, count, expected)) in steps.iter().enumerate() {
            assert_eq!(send(&mut log, id, epoch, sequence, count), expected, "{what}: step {at}");
        }
        // Neither a clean nor an unclean restart loses state.
        let known = log.producers.clone();
        drop(log);
        let (mut log, _) = open(&disk, &config());
        assert_eq!(log.producers, known, "{what}: after a kill");
        log.close().unwrap();
        let (log, recovery) = open(&disk, &config());
        assert!(recovery.clean);
        assert_eq!(log.producers, known, "{what}: after a clean shutdown");
    }
}

#[test]
fn truncation_restores_the_earlier_producer_state() {
    let small = LogConfig { segment_bytes: 300, ..config() };
    let (_, mut log) = fresh(&small);
    let mut states = vec![(0, log.producers.clone())];
    for step in 0..40 {
        let id = i64::from(step % 3);
        let sent = send(&mut log, id, 0, step / 3, 1);
        assert_eq!(sent, At(i64::from(step)));
        states.push((log.end_offset(), log.producers.clone()));
    }
    assert!(log.segment_count() > 3);
    for (offset, state) in states.iter().rev() {
        log.truncate_to(*offset).unwrap();
        assert_eq!(log.end_offset(), *offset);
        // Before the active segment only the last batch of each producer is known.
        assert_eq!(log.producers.encode(), state.encode(), "truncated to {offset}");
    }
}

#[test]
fn a_truncated_batch_can_be_appended_again() {
    let (_, mut log) = fresh(&config());
    send(&mut log, 1, 0, 0, 2);
    send(&mut log, 1, 0, 2, 2);
    log.truncate_to(2).unwrap();
    assert_eq!(send(&mut log, 1, 0, 0, 2), Duplicate(0));
    assert_eq!(send(&mut log, 1, 0, 4, 1), OUT_OF_ORDER);
    assert_eq!(send(&mut log, 1, 0, 2, 2), At(2));
}

#[test]
fn producer_state_survives_the_deletion_of_its_batches() {
    let small = LogConfig { segment_bytes: 300, ..config() };
    let (disk, mut log) = fresh(&small);
    send(&mut log, 1, 0, 0, 2);
    while log.segment_count() < 4 {
        append(&mut log, &TestBatch::of(1, 1));
    }
    log.delete_before(log.end_offset()).unwrap();
    assert_eq!(log.segment_count(), 1);
    drop(log);
    let (mut log, _) = open(&disk, &small);
    assert_eq!(send(&mut log, 1, 0, 0, 2), Duplicate(0));
    let end = log.end_offset();
    assert_eq!(send(&mut log, 1, 0, 2, 1), At(end));
}

#[test]
fn inactive_producers_expire() {
    let (_, mut log) = fresh(&config());
    send(&mut log, 1, 0, 0, 1);
    let old = log.config().producer_id_expiration_ms;
    assert_eq!(log.expire_producers(NOW + old - 1), 0);
    assert_eq!(log.expire_producers(NOW + old), 1);
    assert_eq!(log.producer_count(), 0);
    assert_eq!(send(&mut log, 1, 0, 9, 1), At(1));
}

#[test]
fn a_damaged_snapshot_is_rejected() {
    let (_, mut log) = fresh(&config());
    for id in 0..3 {
        send(&mut log, id, 2, 5, 2);
    }
    let bytes = log.producers.encode();
    let decoded = Producers::decode(&bytes).unwrap();
    assert_eq!(decoded, log.producers);
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        assert!(Producers::decode(&bad).is_none(), "byte {at}");
        assert!(Producers::decode(&bytes[..at]).is_none(), "{at} bytes");
    }
}
