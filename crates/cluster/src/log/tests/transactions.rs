//! Transactions: begin, end, fencing, and the visibility for `read_committed` readers.

use curtail_wire::ErrorCode;
use curtail_wire::fetch::AbortedTransaction;
use curtail_wire::records::EndTxnMarker;

use super::*;
use crate::log::{AppendError, Origin, TxnMarker};

const COMMIT: EndTxnMarker = EndTxnMarker::Commit;
const ABORT: EndTxnMarker = EndTxnMarker::Abort;

/// An operation on a log.
#[derive(Debug, Clone, Copy)]
enum Do {
    /// A verified batch of one record: producer, epoch, sequence.
    Send(i64, i16, i32),
    /// Like `Send`, without verification by the coordinator.
    Unverified(i64, i16, i32),
    /// A batch outside a transaction.
    Plain(i64, i16, i32),
    /// A marker: producer, epoch, kind, coordinator epoch.
    End(i64, i16, EndTxnMarker, i32),
    /// Like `End`, where every transaction has a separate epoch.
    EndBumped(i64, i16, EndTxnMarker),
}

use Do::{End, EndBumped, Plain, Send, Unverified};

fn transactional(id: i64, epoch: i16, sequence: i32) -> Bytes {
    TestBatch::of(1, 3).from(id, epoch, sequence).transactional().build()
}

fn act(log: &mut PartitionLog, what: Do) -> Result<i64, ErrorCode> {
    let marker = |producer_id, producer_epoch, result, coordinator_epoch, bumped| TxnMarker {
        producer_id,
        producer_epoch,
        result,
        coordinator_epoch,
        bumped,
    };
    let appended = match what {
        Send(id, epoch, sequence) => {
            let batch = transactional(id, epoch, sequence);
            let guard = log.begin_verification(&batch, NOW);
            log.append_from(Origin::Client, batch, guard, 0, NOW)
        }
        Unverified(id, epoch, sequence) => {
            log.append_as_leader(transactional(id, epoch, sequence), 0, NOW)
        }
        Plain(id, epoch, sequence) => {
            log.append_as_leader(TestBatch::of(1, 3).from(id, epoch, sequence).build(), 0, NOW)
        }
        End(id, epoch, result, coordinator) => {
            log.append_marker(&marker(id, epoch, result, coordinator, false), 0, NOW)
        }
        EndBumped(id, epoch, result) => {
            log.append_marker(&marker(id, epoch, result, 0, true), 0, NOW)
        }
    };
    appended.map(|appended| appended.base_offset).map_err(|error: AppendError| error.code)
}

type Steps = &'static [(Do, Result<i64, ErrorCode>)];

const NO_TXN: Result<i64, ErrorCode> = Err(ErrorCode::INVALID_TXN_STATE);
const OLD_EPOCH: Result<i64, ErrorCode> = Err(ErrorCode::INVALID_PRODUCER_EPOCH);
const GAP: Result<i64, ErrorCode> = Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);

/// Name, steps with expected results, and the first unstable offset at the end.
const CASES: &[(&str, Steps, Option<i64>)] = &[
    (
        "a transaction is open from its first record to its marker",
        &[
            (Plain(9, 0, 0), Ok(0)),
            (Send(1, 0, 0), Ok(1)),
            (Send(1, 0, 1), Ok(2)),
            (End(1, 0, COMMIT, 0), Ok(3)),
            (Send(1, 0, 2), Ok(4)),
        ],
        Some(1),
    ),
    (
        "only the coordinator's word begins one; then it goes on without",
        &[
            (Unverified(1, 0, 0), NO_TXN),
            (Send(1, 0, 0), Ok(0)),
            (Unverified(1, 0, 1), Ok(1)),
            (End(1, 0, ABORT, 0), Ok(2)),
            (Unverified(1, 0, 2), NO_TXN),
        ],
        Some(0),
    ),
    (
        "nothing else comes from its producer while it is open",
        &[(Send(1, 0, 0), Ok(0)), (Plain(1, 0, 1), NO_TXN), (Plain(2, 0, 0), Ok(1))],
        Some(0),
    ),
    (
        "a marker of a new epoch fences the old one and begins the sequence anew",
        &[
            (Send(1, 0, 0), Ok(0)),
            (EndBumped(1, 1, ABORT), Ok(1)),
            (Send(1, 0, 1), OLD_EPOCH),
            (Send(1, 1, 1), GAP),
            (Send(1, 1, 0), Ok(2)),
            (End(1, 0, COMMIT, 0), OLD_EPOCH),
        ],
        Some(0),
    ),
    (
        "a marker that comes late ends no later transaction",
        &[
            (Send(1, 0, 0), Ok(0)),
            (EndBumped(1, 1, COMMIT), Ok(1)),
            (EndBumped(1, 1, COMMIT), Ok(2)),
            (Send(1, 1, 0), Ok(3)),
            (EndBumped(1, 1, COMMIT), OLD_EPOCH),
        ],
        Some(0),
    ),
    (
        "an older coordinator is fenced",
        &[
            (Send(1, 0, 0), Ok(0)),
            (End(1, 0, COMMIT, 3), Ok(1)),
            (End(1, 0, COMMIT, 2), Err(ErrorCode::TRANSACTION_COORDINATOR_FENCED)),
            (End(1, 0, COMMIT, 3), Ok(2)),
        ],
        Some(0),
    ),
    ("a marker without a transaction decides nothing", &[(End(1, 0, ABORT, 0), Ok(0))], None),
    (
        "the sequence goes on behind a marker of the same epoch",
        &[
            (Send(1, 4, 0), Ok(0)),
            (End(1, 4, COMMIT, 0), Ok(1)),
            (Send(1, 4, 2), GAP),
            (Send(1, 4, 1), Ok(2)),
            (Send(1, 4, 1), Ok(2)),
        ],
        Some(0),
    ),
];

#[test]
fn transactions_are_validated_as_in_kafka() {
    for (what, steps, unstable) in CASES {
        let (disk, mut log) = fresh(&config());
        for (at, (step, expected)) in steps.iter().enumerate() {
            assert_eq!(act(&mut log, *step), *expected, "{what}: step {at}, {step:?}");
        }
        assert_eq!(log.first_unstable_offset(), *unstable, "{what}");
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
fn a_marker_invalidates_the_verification_before_it() {
    let (_, mut log) = fresh(&config());
    let batch = transactional(1, 0, 0);
    let guard = log.begin_verification(&batch, NOW);
    assert!(log.is_verifying(1, guard.unwrap()));
    // The coordinator aborts the transaction during the verification.
    assert_eq!(act(&mut log, End(1, 0, ABORT, 0)), Ok(0));
    let late = log.append_from(Origin::Client, batch.clone(), guard, 0, NOW).unwrap_err();
    assert_eq!(late.code, ErrorCode::INVALID_TXN_STATE);
    let again = log.begin_verification(&batch, NOW);
    assert_ne!(guard, again);
    assert!(!log.is_verifying(1, guard.unwrap()) && log.is_verifying(1, again.unwrap()));
    log.append_from(Origin::Client, batch.clone(), again, 0, NOW).unwrap();
    assert_eq!(log.begin_verification(&batch, NOW), None, "the transaction is open");
}

#[test]
fn the_batch_seen_first_is_appended_first() {
    let (_, mut log) = fresh(&config());
    let (first, second) = (transactional(1, 0, 0), transactional(1, 0, 1));
    let guard = log.begin_verification(&second, NOW);
    assert_eq!(log.begin_verification(&first, NOW), guard, "one verification for both");
    let early = log.append_from(Origin::Client, second.clone(), guard, 0, NOW).unwrap_err();
    assert_eq!(early.code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    log.append_from(Origin::Client, first, guard, 0, NOW).unwrap();
    log.append_from(Origin::Client, second, None, 0, NOW).unwrap();
}

#[test]
fn coordinators_append_without_sequence_numbers() {
    let (_, mut log) = fresh(&config());
    for offset in 0..3 {
        let batch = transactional(1, 0, -1);
        let guard = log.begin_verification(&batch, NOW);
        assert_eq!(guard.is_some(), offset == 0);
        let appended = log.append_from(Origin::Coordinator, batch, guard, 0, NOW).unwrap();
        assert_eq!((appended.base_offset, appended.duplicate), (offset, false));
    }
    let unnumbered = log.append_as_leader(transactional(1, 0, -1), 0, NOW).unwrap_err();
    assert_eq!(unnumbered.code, ErrorCode::INVALID_RECORD);
}

#[test]
fn a_transaction_is_stable_once_its_marker_is_committed() {
    let (_, mut log) = fresh(&config());
    for step in [Send(1, 0, 0), Send(2, 0, 0), End(1, 0, COMMIT, 0)] {
        act(&mut log, step).unwrap();
    }
    assert_eq!(log.first_unstable_offset(), Some(0));
    log.committed_to(2);
    assert_eq!(log.first_unstable_offset(), Some(0), "the marker at 2 is not committed");
    log.committed_to(3);
    assert_eq!(log.first_unstable_offset(), Some(1), "the second one is open");
    act(&mut log, End(2, 0, ABORT, 0)).unwrap();
    log.committed_to(4);
    assert_eq!(log.first_unstable_offset(), None);
}

fn aborted(log: &PartitionLog, from: i64, end: i64) -> Vec<(i64, i64)> {
    let pair = |txn: AbortedTransaction| (txn.producer_id, txn.first_offset);
    log.aborted_in(from, end).into_iter().map(pair).collect()
}

/// Every third transaction commits, several are open at a time, over many segments.
fn busy(log: &mut PartitionLog) -> Vec<(i64, i64, i64)> {
    let mut ended = Vec::new();
    let mut first = [None; 3];
    let mut sequence = [0; 3];
    for step in 0..120_usize {
        let id = step % 3;
        if step % 7 == 6
            && let Some(begun) = first[id].take()
        {
            let result = if step % 3 == 0 { COMMIT } else { ABORT };
            let at = act(log, End(id as i64, 0, result, 0)).unwrap();
            if result == ABORT {
                ended.push((id as i64, begun, at));
            }
            continue;
        }
        let at = act(log, Send(id as i64, 0, sequence[id])).unwrap();
        sequence[id] += 1;
        first[id].get_or_insert(at);
    }
    ended
}

#[test]
fn readers_receive_exactly_the_aborted_transactions_in_their_range() {
    let small = LogConfig { segment_bytes: 500, ..config() };
    let (disk, mut log) = fresh(&small);
    let all = busy(&mut log);
    assert!(log.segment_count() > 5 && all.len() > 5);
    let check = |log: &PartitionLog, all: &[(i64, i64, i64)], what: &str| {
        let log_end = log.end_offset();
        for from in 0..log_end {
            for end in [from + 1, from + 5, log_end] {
                let expected: Vec<(i64, i64)> = all
                    .iter()
                    .filter(|(_, first, last)| *last >= from && *first < end)
                    .map(|(id, first, _)| (*id, *first))
                    .collect();
                assert_eq!(aborted(log, from, end), expected, "{what}: {from}..{end}");
            }
        }
    };
    check(&log, &all, "live");
    drop(log);
    let (mut log, _) = open(&disk, &small);
    check(&log, &all, "after a kill");
    log.close().unwrap();
    let (mut log, recovery) = open(&disk, &small);
    assert!(recovery.clean);
    check(&log, &all, "after a clean shutdown");
    let cut = log.end_offset() / 2;
    log.truncate_to(cut).unwrap();
    let left: Vec<_> = all.iter().copied().filter(|(_, _, last)| *last < cut).collect();
    check(&log, &left, "after a truncation");
    log.close().unwrap();
    let (log, recovery) = open(&disk, &small);
    assert!(recovery.clean);
    check(&log, &left, "closed after a truncation");
}

/// Index files are not synced: a crash of the machine after a clean shutdown may lose them and keep
/// the mark.
#[test]
fn aborted_transactions_survive_the_loss_of_their_index_after_a_clean_shutdown() {
    let (disk, mut log) = fresh(&config());
    busy(&mut log);
    let end = log.end_offset();
    let known = aborted(&log, 0, end);
    assert!(known.len() > 5);
    log.close().unwrap();
    disk.remove_file(&dir().join("00000000000000000000.txnindex")).unwrap();
    let (log, recovery) = open(&disk, &config());
    assert_eq!(aborted(&log, 0, end), known);
    assert!(!recovery.clean);
}

#[test]
fn a_follower_has_the_producer_state_of_its_leader() {
    let small = LogConfig { segment_bytes: 500, ..config() };
    let (_, mut leader) = fresh(&small);
    busy(&mut leader);
    let (_, mut follower) = fresh(&small);
    follower.append_as_follower(raw(&leader)).unwrap();
    assert_eq!(follower.producers.encode(), leader.producers.encode());
    assert_eq!(follower.first_unstable_offset(), leader.first_unstable_offset());
    let end = leader.end_offset();
    assert_eq!(aborted(&follower, 0, end), aborted(&leader, 0, end));
}

#[test]
fn truncation_of_a_marker_reopens_its_transaction() {
    let small = LogConfig { segment_bytes: 300, ..config() };
    let (_, mut log) = fresh(&small);
    act(&mut log, Send(1, 0, 0)).unwrap();
    for sequence in 0..10 {
        act(&mut log, Plain(2, 0, sequence)).unwrap();
    }
    let marker = act(&mut log, End(1, 0, ABORT, 0)).unwrap();
    log.committed_to(marker + 1);
    assert_eq!(log.first_unstable_offset(), None);
    log.truncate_to(marker).unwrap();
    assert_eq!(log.first_unstable_offset(), Some(0));
    assert_eq!(aborted(&log, 0, marker), []);
    assert_eq!(act(&mut log, Unverified(1, 0, 1)), Ok(marker), "it goes on");
}

#[test]
fn an_open_transaction_keeps_its_producer() {
    let (_, mut log) = fresh(&config());
    act(&mut log, Send(1, 0, 0)).unwrap();
    act(&mut log, Plain(2, 0, 0)).unwrap();
    let late = NOW + 2 * log.config().producer_id_expiration_ms;
    assert_eq!(log.expire_producers(late), 1);
    assert_eq!(act(&mut log, Unverified(1, 0, 1)), Ok(2));
    let batch = transactional(3, 0, 0);
    let guard = log.begin_verification(&batch, NOW);
    log.expire_producers(late);
    let forgotten = log.append_from(Origin::Client, batch, guard, 0, NOW).unwrap_err();
    assert_eq!(forgotten.code, ErrorCode::INVALID_TXN_STATE, "verified too long ago");
}
