use super::*;
use crate::history::{CommittedElsewhere, Compacted, DroppedCommit, ReadAfar, ReplicaLog};

fn id(producer: u32, number: u32) -> RecordId {
    RecordId { producer, number }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn sent(number: u32, at: Duration, outcome: Outcome) -> Sent {
    Sent { id: id(1, number), at, due: at + ms(20), settled: Some(at + ms(10)), outcome }
}

/// A record sent at `at` and acknowledged 10 ms later.
fn acknowledged(number: u32, at: u64, partition: i32, offset: i64) -> Sent {
    let outcome = Outcome::Acknowledged { at: ms(at + 10), partition, offset: Some(offset) };
    sent(number, ms(at), outcome)
}

fn failed(number: u32, outcome: Outcome) -> Sent {
    sent(number, ms(0), outcome)
}

fn read(number: u32, partition: i32, offset: i64) -> ReadBack {
    ReadBack { partition, offset, id: Some(id(1, number)) }
}

/// Checks a history whose consumer returned exactly the log.
fn judge(sent: Vec<Sent>, read: Vec<ReadBack>) -> Vec<Violation> {
    check(&History { sent, consumed: read.clone(), read, ..History::default() })
}

fn kinds(violations: &[Violation]) -> Vec<&'static str> {
    violations.iter().map(Violation::kind).collect()
}

#[test]
fn a_sound_history_has_no_violation() {
    let unknown_offset = Outcome::Acknowledged { at: ms(5), partition: 1, offset: None };
    let sent = vec![
        acknowledged(0, 0, 0, 0),
        acknowledged(1, 20, 0, 1),
        failed(2, Outcome::NotWritten { error: "expired".into() }),
        failed(3, Outcome::MaybeWritten { error: "no response".into() }),
        failed(4, Outcome::MaybeWritten { error: "no response".into() }),
        failed(5, unknown_offset),
    ];
    let read = vec![read(0, 0, 0), read(1, 0, 1), read(3, 1, 0), read(5, 1, 1)];
    assert_eq!(judge(sent, read), []);
}

#[test]
fn an_acknowledged_record_that_is_absent_is_lost() {
    let violations = judge(vec![acknowledged(0, 0, 2, 7)], vec![]);
    assert_eq!(violations, [Violation::Lost { id: id(1, 0), acknowledged: (2, Some(7)) }]);
}

#[test]
fn an_acknowledged_record_elsewhere_is_misplaced() {
    for elsewhere in [(2, 8), (1, 7)] {
        let violations =
            judge(vec![acknowledged(0, 0, 2, 7)], vec![read(0, elsewhere.0, elsewhere.1)]);
        let expected =
            Violation::Misplaced { id: id(1, 0), acknowledged: (2, Some(7)), found: elsewhere };
        assert_eq!(violations, [expected]);
    }
}

#[test]
fn a_record_read_twice_is_duplicated_with_any_outcome() {
    let outcomes = [
        Outcome::Acknowledged { at: ms(1), partition: 0, offset: Some(3) },
        Outcome::MaybeWritten { error: String::new() },
    ];
    for outcome in outcomes {
        let violations = judge(vec![failed(0, outcome)], vec![read(0, 0, 3), read(0, 0, 4)]);
        let expected = Violation::Duplicated { id: id(1, 0), copies: vec![(0, 3), (0, 4)] };
        assert_eq!(violations, [expected]);
    }
}

#[test]
fn records_of_a_producer_in_another_order_are_reordered() {
    let sent = vec![acknowledged(0, 0, 0, 1), acknowledged(1, 0, 0, 0)];
    let violations = judge(sent, vec![read(1, 0, 0), read(0, 0, 1)]);
    assert_eq!(kinds(&violations), ["reordered"]);
}

#[test]
fn a_record_that_may_change_its_partition_has_no_order_but_is_there_once() {
    let sent = vec![acknowledged(0, 0, 0, 1), acknowledged(1, 0, 0, 0)];
    let read = vec![read(1, 0, 0), read(0, 0, 1)];
    let free = [id(1, 0)].into();
    let history = History { free, sent, consumed: read.clone(), read, ..History::default() };
    assert_eq!(check(&history), []);
    let twice = History { read: [&history.read[..], &history.read[..1]].concat(), ..history };
    assert!(kinds(&check(&twice)).contains(&"duplicated"));
}

#[test]
fn records_of_other_producers_and_partitions_have_no_order() {
    let mut other = acknowledged(1, 0, 0, 0);
    other.id.producer = 2;
    let sent = vec![acknowledged(0, 0, 0, 1), acknowledged(1, 0, 1, 0), other];
    let from_other = ReadBack { partition: 0, offset: 0, id: Some(id(2, 1)) };
    assert_eq!(judge(sent, vec![from_other, read(0, 0, 1), read(1, 1, 0)]), []);
}

#[test]
fn a_record_said_not_to_be_written_must_not_be_there() {
    let sent = vec![failed(0, Outcome::NotWritten { error: "expired".into() })];
    let violations = judge(sent, vec![read(0, 0, 0)]);
    assert_eq!(kinds(&violations), ["written-after-all"]);
}

#[test]
fn an_offset_below_one_acknowledged_before_the_send_is_a_regression() {
    let sent = vec![acknowledged(0, 0, 0, 5), acknowledged(1, 11, 0, 4)];
    let violations = judge(sent, vec![read(1, 0, 4), read(0, 0, 5)]);
    assert!(kinds(&violations).contains(&"offset-regression"), "{violations:?}");
}

#[test]
fn sends_that_overlap_may_be_acknowledged_in_any_order() {
    let mut other = acknowledged(0, 5, 0, 4);
    other.id.producer = 2;
    let sent = vec![acknowledged(0, 0, 0, 5), other];
    let from_other = ReadBack { partition: 0, offset: 4, id: Some(id(2, 0)) };
    assert_eq!(judge(sent, vec![from_other, read(0, 0, 5)]), []);
}

#[test]
fn a_record_that_no_producer_sent_is_unknown() {
    let stranger = ReadBack { partition: 0, offset: 0, id: None };
    let violations = judge(vec![], vec![stranger, read(9, 0, 1)]);
    assert_eq!(kinds(&violations), ["unknown-record", "unknown-record"]);
}

#[test]
fn offsets_that_do_not_ascend_are_reported() {
    let sent = vec![acknowledged(0, 0, 0, 0), acknowledged(1, 0, 0, 1)];
    let violations = judge(sent, vec![read(1, 0, 1), read(0, 0, 0)]);
    assert_eq!(kinds(&violations), ["read-out-of-order"]);
}

#[test]
fn a_record_without_an_outcome_is_reported() {
    assert_eq!(kinds(&judge(vec![failed(0, Outcome::Pending)], vec![])), ["no-outcome"]);
}

#[test]
fn a_consumer_that_skips_repeats_or_stops_early_is_reported() {
    let sent: Vec<Sent> = (0..3).map(|n| acknowledged(n, 0, 0, i64::from(n))).collect();
    let log: Vec<ReadBack> = (0..3).map(|n| read(n, 0, i64::from(n))).collect();
    let consumed = [
        (vec![log[0], log[2]], Some((2, log[2].id)), Some((1, log[1].id))),
        (vec![log[0], log[0], log[1], log[2]], Some((0, log[0].id)), Some((1, log[1].id))),
        (vec![log[0], log[1]], None, Some((2, log[2].id))),
        (vec![], None, Some((0, log[0].id))),
    ];
    for (consumed, given, next) in consumed {
        let history =
            History { sent: sent.clone(), read: log.clone(), consumed, ..History::default() };
        assert_eq!(check(&history), [Violation::ConsumedDiffers { partition: 0, given, next }]);
    }
}

#[test]
fn each_further_consumer_is_compared_with_the_log() {
    let sent: Vec<Sent> = (0..2).map(|n| acknowledged(n, 0, 0, i64::from(n))).collect();
    let log: Vec<ReadBack> = (0..2).map(|n| read(n, 0, i64::from(n))).collect();
    let mut history = History { sent, read: log.clone(), ..History::default() };
    for consumer in 0..3 {
        *history.consumed_by(consumer) = log.clone();
    }
    assert_eq!(check(&history), []);
    history.consumed_by(2).pop();
    assert_eq!(kinds(&check(&history)), ["consumed-differs"]);
    history.read_afar.push(ReadAfar { partition: 0, rack: "near", from: Some(2) });
    assert_eq!(kinds(&check(&history)), ["consumed-differs", "read-afar"]);
}

#[test]
fn a_committed_offset_that_no_call_explains_is_reported() {
    let elsewhere = CommittedElsewhere { at: ms(5), committed: Some(3), acknowledged: Some(4) };
    let dropped = DroppedCommit { at: ms(9), offset: 7 };
    let history = History {
        committed_elsewhere: vec![elsewhere],
        dropped_commits: vec![dropped],
        ..History::default()
    };
    assert_eq!(kinds(&check(&history)), ["committed-elsewhere", "commit-dropped"]);
}

fn replica(broker: i32, batches: &[(i64, u64)], end_offset: i64) -> ReplicaLog {
    ReplicaLog { broker, partition: 0, start_offset: 0, batches: batches.to_vec(), end_offset }
}

fn judge_replicas(replicas: Vec<ReplicaLog>) -> Vec<Violation> {
    check(&History { replicas, ..History::default() })
}

#[test]
fn replicas_with_the_same_batches_agree() {
    let log = [(0, 11), (3, 12)];
    assert_eq!(judge_replicas(vec![replica(1, &log, 5), replica(2, &log, 5)]), []);
}

#[test]
fn replicas_with_other_content_or_length_differ() {
    let reference = replica(1, &[(0, 11), (3, 12)], 5);
    let others = [
        (replica(2, &[(0, 11), (3, 99)], 5), 3),
        (replica(2, &[(0, 11)], 3), 3),
        (replica(2, &[(0, 11), (2, 12)], 5), 2),
    ];
    for (other, offset) in others {
        let violations = judge_replicas(vec![reference.clone(), other]);
        let expected = Violation::ReplicasDiffer { partition: 0, brokers: (1, 2), offset };
        assert_eq!(violations, [expected]);
    }
}

#[test]
fn only_records_before_the_start_of_a_log_may_be_missing() {
    let lost_with = |start: Option<i64>| {
        let sent = vec![acknowledged(0, 0, 0, 3)];
        let starts = start.map(|start| (0, start)).into_iter().collect();
        check(&History { sent, starts, ..History::default() })
    };
    let lost = Violation::Lost { id: id(1, 0), acknowledged: (0, Some(3)) };
    for (start, expected) in [(None, vec![lost.clone()]), (Some(3), vec![lost]), (Some(4), vec![])]
    {
        assert_eq!(lost_with(start), expected);
    }
}

#[test]
fn replicas_that_start_at_different_offsets_are_compared_from_the_later_start() {
    let mut shorter = replica(2, &[(5, 50), (9, 90)], 12);
    shorter.start_offset = 7;
    let whole = replica(1, &[(0, 1), (5, 50), (9, 90)], 12);
    let differs = |log: ReplicaLog| {
        let replicas = vec![whole.clone(), log];
        !check(&History { replicas, ..History::default() }).is_empty()
    };
    assert!(!differs(shorter.clone()));
    shorter.batches[1].1 = 91;
    assert!(differs(shorter));
}

/// Records 0 and 2 have one key, record 1 has another.
#[test]
fn compaction_may_remove_replaced_records_only() {
    let partition = PLACES;
    let log = [read(0, partition, 0), read(1, partition, 1), read(2, partition, 2)];
    let judged = |read: &[ReadBack], viewed: &[ReadBack], replica: &[ReadBack]| {
        let sent = (0..3).map(|n| acknowledged(n, 20 * u64::from(n), partition, n.into()));
        let compacted = Compacted {
            keys: [(id(1, 0), 7), (id(1, 1), 8), (id(1, 2), 7)].into(),
            viewed: viewed.to_vec(),
            replicas: [(1, log.to_vec()), (2, replica.to_vec())].into(),
            ..Compacted::default()
        };
        let (sent, read, compacted) = (sent.collect(), read.to_vec(), Some(compacted));
        kinds(&check(&History { sent, read, compacted, ..History::default() }))
    };
    assert_eq!(judged(&log, &log, &log), [""; 0]);
    assert_eq!(judged(&log[1..], &log[1..], &log[1..]), [""; 0]);
    assert_eq!(judged(&log[2..], &log[2..], &log[1..]), ["lost"]);
    assert_eq!(judged(&log, &log[2..], &log[1..]), ["compacted-away"]);
    assert_eq!(judged(&log, &log, &log[..2]), ["compacted-away"]);
    let moved = [read(2, partition, 1), read(1, partition, 2)];
    let found = judged(&log, &log, &moved);
    assert_eq!(found, ["compacted-away", "compacted-away", "replicas-differ"]);
}
