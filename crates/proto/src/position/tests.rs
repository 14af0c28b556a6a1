use proptest::prelude::*;

use super::*;

fn started(offset: i64) -> (Position, Versions) {
    let mut versions = Versions::default();
    let mut position = Position::by_policy(Policy::None, &mut versions);
    position.seek(offset, &mut versions);
    (position, versions)
}

fn spot(offset: i64, epoch: i32) -> Spot {
    Spot { offset, epoch }
}

/// A fetch of a position without a leader epoch.
fn fetch(version: Version, offset: i64) -> FetchFrom {
    FetchFrom { version, offset, last_fetched_epoch: -1, leader_epoch: -1 }
}

fn consumed(position: &Position) -> Option<i64> {
    position.consumed().map(|at| at.offset)
}

#[test]
fn the_policy_decides_where_to_begin() {
    let mut versions = Versions::default();
    let cases = [
        (Policy::Earliest, Reset::Earliest),
        (Policy::Latest, Reset::Latest),
        (Policy::Since(7), Reset::Timestamp(7)),
    ];
    for (policy, reset) in cases {
        let mut position = Position::by_policy(policy, &mut versions);
        let (version, to) = position.lookup().expect("to be looked up");
        assert_eq!(to, reset);
        assert_eq!(position.fetch_from(), None);
        assert!(position.on_lookup(version, 42));
        assert_eq!(consumed(&position), Some(42));
        assert_eq!(position.fetch_from().map(|f| f.offset), Some(42));
    }
    let position = Position::by_policy(Policy::None, &mut versions);
    assert_eq!((position.lookup(), consumed(&position)), (None, None));
}

#[test]
fn a_time_without_records_is_the_end() {
    let (mut position, mut versions) = started(0);
    position.reset(Reset::Timestamp(1_000), &mut versions);
    let (version, _) = position.lookup().expect("to be looked up");
    assert!(position.on_lookup(version, -1));
    assert_eq!(position.lookup(), Some((version, Reset::Latest)));
    assert!(!position.on_lookup(version, -1), "an end is never missing");
    assert!(position.on_lookup(version, 9));
    assert_eq!(consumed(&position), Some(9));
}

#[test]
fn responses_from_before_a_jump_do_not_count() {
    let (mut position, mut versions) = started(10);
    let asked = position.fetch_from().expect("at an offset");
    position.seek(10, &mut versions);
    assert!(
        !position.on_fetched(fetch(asked.version, 10), spot(20, 1)),
        "same offset, older version"
    );
    assert!(!position.on_consumed(asked.version, spot(10, 0)));
    let policy = Policy::Earliest;
    assert_eq!(
        position.on_out_of_range(fetch(asked.version, 10), policy, &mut versions),
        Misfit::Stale
    );
    position.reset(Reset::Latest, &mut versions);
    let (old, _) = position.lookup().expect("to be looked up");
    position.reset(Reset::Latest, &mut versions);
    assert!(!position.on_lookup(old, 5));
}

#[test]
fn fetching_runs_ahead_of_consuming() {
    let (mut position, mut versions) = started(10);
    let version = position.version();
    assert!(position.on_fetched(fetch(version, 10), spot(20, 3)));
    let from = position.fetch_from().expect("at an offset");
    assert_eq!((from.offset, from.last_fetched_epoch), (20, 3));
    assert_eq!(consumed(&position), Some(10));
    assert!(!position.on_consumed(version, spot(21, 0)), "beyond what was fetched");
    assert!(position.on_consumed(version, spot(15, 3)));
    assert!(!position.on_consumed(version, spot(14, 3)), "backwards");
    position.rewind(&mut versions);
    let from = position.fetch_from().expect("at an offset");
    assert_eq!((from.offset, from.last_fetched_epoch), (15, 3));
    assert_ne!(from.version, version);
}

#[test]
fn a_response_that_does_not_advance_is_refused() {
    let (mut position, _) = started(10);
    let version = position.version();
    assert!(!position.on_fetched(fetch(version, 10), spot(10, 0)));
    assert!(!position.on_fetched(fetch(version, 9), spot(20, 0)), "not the offset asked for");
}

#[test]
fn out_of_range_waits_for_buffered_records_and_then_resets() {
    let (mut position, mut versions) = started(10);
    let version = position.version();
    position.on_fetched(fetch(version, 10), spot(20, 0));
    let policy = Policy::Earliest;
    let early = position.on_out_of_range(fetch(version, 20), policy, &mut versions);
    assert_eq!(early, Misfit::NotYet);
    position.on_consumed(version, spot(20, 0));
    let late = position.on_out_of_range(fetch(version, 20), policy, &mut versions);
    assert_eq!(late, Misfit::Moved);
    assert_eq!(position.lookup().map(|(_, to)| to), Some(Reset::Earliest));
}

#[test]
fn without_a_policy_the_application_decides() {
    let (mut position, mut versions) = started(10);
    let version = position.version();
    let misfit = position.on_out_of_range(fetch(version, 10), Policy::None, &mut versions);
    assert_eq!(misfit, Misfit::Unresolved(10));
    assert_eq!(consumed(&position), Some(10));
    assert_eq!((position.fetch_from(), position.lookup()), (None, None));
    position.seek(3, &mut versions);
    assert_eq!(position.fetch_from().map(|f| f.offset), Some(3));
}

#[test]
fn a_cut_log_rewinds_to_the_cut() {
    let end = |end_offset| EpochEndOffset { epoch: 1, end_offset };
    let (mut position, mut versions) = started(10);
    let version = position.version();
    position.on_fetched(fetch(version, 10), spot(20, 2));
    position.on_consumed(version, spot(12, 0));
    // The application may be reading the buffered records: moving now would repeat them.
    for to in [15, 5] {
        let misfit =
            position.on_diverging(fetch(version, 20), end(to), Policy::Latest, &mut versions);
        assert_eq!((misfit, position.version()), (Misfit::NotYet, version));
    }
    position.on_consumed(version, spot(20, 2));
    for to in [15, 5] {
        let mut moved = position.clone();
        let misfit = moved.on_diverging(fetch(version, 20), end(to), Policy::Latest, &mut versions);
        let from = moved.fetch_from().map(|from| (from.offset, from.last_fetched_epoch));
        assert_eq!((misfit, from), (Misfit::Moved, Some((to, 1))));
    }
    let misfit = position.on_diverging(fetch(version, 20), end(5), Policy::None, &mut versions);
    let lost = Truncation { at: spot(20, 2), diverges: Some(spot(5, 1)) };
    assert_eq!(misfit, Misfit::Truncated(lost));
    assert_eq!((position.fetch_from(), consumed(&position)), (None, Some(20)));
}

#[test]
fn a_recreated_topic_is_read_from_its_beginning() {
    for policy in [Policy::Earliest, Policy::Latest] {
        let (mut position, mut versions) = started(10);
        assert_eq!(position.on_recreated(policy, &mut versions), Misfit::Moved);
        assert_eq!(position.lookup().map(|(_, to)| to), Some(Reset::Earliest));
        assert_eq!(position.on_recreated(policy, &mut versions), Misfit::Stale);
    }
    let (mut position, mut versions) = started(10);
    let misfit = position.on_recreated(Policy::None, &mut versions);
    assert_eq!(misfit, Misfit::Unresolved(10));
}

#[test]
fn retried_errors_are_retriable() {
    for code in -1..=140 {
        let error = ErrorCode(code);
        let verdict = classify(error);
        assert_eq!(verdict == FetchVerdict::Good, error.is_none());
        let retried =
            matches!(verdict, FetchVerdict::Moved | FetchVerdict::Missing | FetchVerdict::Retry);
        if retried && error != ErrorCode::UNKNOWN_SERVER_ERROR {
            assert!(error.is_retriable(), "{error} is retried but Kafka says it is final");
        }
        if verdict == FetchVerdict::Missing || verdict == FetchVerdict::Moved {
            assert!(error.invalidates_metadata(), "{error}");
        }
    }
}

/// A position at `at` that a leader of `epoch` must validate.
fn unvalidated(at: Spot, epoch: i32) -> (Position, Versions) {
    let (mut position, mut versions) = started(0);
    position.seek_to(at, &mut versions);
    position.on_leader(epoch);
    (position, versions)
}

fn end(epoch: i32, end_offset: i64) -> EpochEndOffset {
    EpochEndOffset { epoch, end_offset }
}

#[test]
fn leader_response_to_a_validation_decides() {
    let lost = |diverges| Err(Misfit::Truncated(Truncation { at: spot(20, 5), diverges }));
    // The response, the result without a policy, and where a policy resets to.
    let cases = [
        (end(5, 20), Ok(()), Some(spot(20, 5))),
        (end(5, 30), Ok(()), Some(spot(20, 5))),
        (end(4, 20), Ok(()), Some(spot(20, 5))),
        (end(5, 19), lost(Some(spot(19, 5))), Some(spot(19, 5))),
        (end(3, 7), lost(Some(spot(7, 3))), Some(spot(7, 3))),
        (end(-1, -1), lost(None), None),
        (end(-1, 30), lost(None), None),
        (end(5, -1), lost(None), None),
    ];
    for (end, verdict, reset) in cases {
        let (mut position, mut versions) = unvalidated(spot(20, 5), 6);
        assert_eq!((position.fetch_from(), position.confirmed()), (None, None));
        let asked = position.validation().expect("it has an epoch");
        assert_eq!((asked.spot, asked.leader_epoch), (spot(20, 5), 6));
        let mut with_policy = position.clone();
        assert_eq!(position.on_validated(asked, end, Policy::None, &mut versions), verdict);
        assert_eq!(position.consumed(), Some(spot(20, 5)), "{end:?}");
        assert_eq!(position.fetch_from().is_some(), verdict.is_ok(), "{end:?}");
        let result = with_policy.on_validated(asked, end, Policy::Latest, &mut versions);
        assert_eq!(result, verdict.map_err(|_| Misfit::Moved));
        assert_eq!(with_policy.consumed(), reset, "{end:?}");
        assert_eq!(
            with_policy.lookup().map(|(_, to)| to),
            reset.is_none().then_some(Reset::Latest)
        );
        assert_eq!(with_policy.validation(), None);
    }
}

#[test]
fn seek_discards_the_validation_in_flight() {
    let (mut position, mut versions) = unvalidated(spot(20, 5), 6);
    let asked = position.validation().expect("due");
    for to in [spot(20, 5), spot(20, -1), spot(3, 5)] {
        position.seek_to(to, &mut versions);
        let before = format!("{position:?}");
        let late = position.on_validated(asked, end(3, 1), Policy::Latest, &mut versions);
        assert_eq!(late, Err(Misfit::Stale));
        assert!(!position.on_unsupported(asked));
        assert_eq!(format!("{position:?}"), before);
    }
}

#[test]
fn new_leader_epoch_discards_the_validation_in_flight() {
    let (mut position, mut versions) = unvalidated(spot(20, 5), 6);
    let asked = position.validation().expect("due");
    position.on_leader(7);
    let late = position.on_validated(asked, end(5, 30), Policy::Latest, &mut versions);
    assert_eq!((late, position.fetch_from()), (Err(Misfit::Stale), None));
    let again = position.validation().expect("still due");
    assert_eq!((again.spot, again.leader_epoch), (asked.spot, 7));
}

#[test]
fn epoch_newer_than_the_metadata_is_named_to_the_leader() {
    let (position, _) = unvalidated(spot(20, 9), 6);
    assert_eq!(position.validation().map(|asked| asked.leader_epoch), Some(9));
}

#[test]
fn position_without_an_epoch_is_fetched_at_once() {
    for (at, epoch) in [(spot(20, -1), 6), (spot(20, 5), -1)] {
        let (mut position, _) = unvalidated(at, epoch);
        assert_eq!(position.validation(), None);
        let from = position.fetch_from().expect("nothing to validate");
        assert_eq!((from.offset, from.leader_epoch), (20, epoch));
        position.on_leader(7);
        assert_eq!(position.validation().is_some(), at.epoch >= 0);
    }
}

#[test]
fn leader_that_cannot_validate_is_fetched_from() {
    let (mut position, _) = unvalidated(spot(20, 5), 6);
    let asked = position.validation().expect("due");
    assert!(position.on_unsupported(asked));
    assert_eq!(position.fetch_from().map(|from| from.last_fetched_epoch), Some(5));
}

#[test]
fn fetch_response_while_a_validation_is_due_is_discarded() {
    let (mut position, mut versions) = started(10);
    position.on_leader(1);
    let version = position.version();
    let from = position.fetch_from().expect("nothing to validate");
    assert!(position.on_fetched(from, spot(20, 1)));
    position.on_leader(2);
    let late = FetchFrom { last_fetched_epoch: 1, leader_epoch: 2, ..fetch(version, 20) };
    assert!(!position.on_fetched(late, spot(30, 1)));
    let policy = Policy::Latest;
    let stale = position.on_out_of_range(late, policy, &mut versions);
    assert_eq!(stale, Misfit::Stale);
    let stale = position.on_diverging(late, end(1, 5), policy, &mut versions);
    assert_eq!(stale, Misfit::Stale);
    // Buffered records reach the application, and then the result counts.
    let asked = position.validation().expect("due");
    let cut = end(1, 15);
    let early = position.on_validated(asked, cut, policy, &mut versions);
    assert_eq!((early, position.confirmed()), (Err(Misfit::NotYet), Some(spot(10, -1))));
    assert!(position.on_consumed(version, spot(20, 1)));
    assert_eq!(position.confirmed(), None);
    let late = position.on_validated(asked, cut, policy, &mut versions);
    assert_eq!((late, position.consumed()), (Err(Misfit::Moved), Some(spot(15, 1))));
}

#[test]
fn truncation_without_a_policy_is_found_again() {
    let (mut position, mut versions) = unvalidated(spot(20, 5), 6);
    for _ in 0..2 {
        let asked = position.validation().expect("due");
        let result = position.on_validated(asked, end(5, 10), Policy::None, &mut versions);
        assert!(matches!(result, Err(Misfit::Truncated(_))), "{result:?}");
        assert_eq!((position.validation(), position.fetch_from()), (None, None));
        position.rewind(&mut versions);
    }
    position.seek_to(spot(10, 5), &mut versions);
    assert!(position.validation().is_some(), "a seek decides");
}

#[test]
fn nothing_before_offset_0_is_truncated() {
    for policy in [Policy::None, Policy::Latest] {
        let (mut position, mut versions) = unvalidated(spot(0, 5), 6);
        let asked = position.validation().expect("due");
        let unknown = position.on_validated(asked, end(-1, -1), policy, &mut versions);
        assert_eq!(unknown, Err(Misfit::Moved));
        assert_eq!(position.validation(), None);
        assert_eq!(position.fetch_from().map(|from| from.offset), Some(0));
    }
}

#[test]
fn recreated_topic_has_epochs_of_another_log() {
    let (mut position, mut versions) = unvalidated(spot(20, 5), 6);
    position.on_recreated(Policy::None, &mut versions);
    assert_eq!(position.consumed(), Some(spot(20, -1)));
    position.rewind(&mut versions);
    position.on_leader(0);
    assert_eq!((position.validation(), position.fetch_from()), (None, None));
}

#[test]
fn rewind_keeps_the_epoch_of_the_last_record_consumed() {
    let (mut position, mut versions) = started(10);
    position.on_leader(3);
    let version = position.version();
    let from = position.fetch_from().expect("nothing to validate");
    position.on_fetched(from, spot(20, 3));
    position.on_consumed(version, spot(15, 2));
    position.rewind(&mut versions);
    let from = position.fetch_from().expect("validated by this leader");
    assert_eq!((from.offset, from.last_fetched_epoch, from.leader_epoch), (15, 2, 3));
}

#[derive(Clone, Debug)]
enum Step {
    Ask,
    /// The outstanding response has this many offsets.
    Answer(i64),
    Consume(i64),
    Seek(i64),
    Rewind,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Ask),
        4 => (1i64..5).prop_map(Step::Answer),
        4 => (1i64..5).prop_map(Step::Consume),
        1 => (0i64..30).prop_map(Step::Seek),
        1 => Just(Step::Rewind),
    ]
}

proptest! {
    /// Between two jumps, offsets reach the application without a gap and without a repetition.
    #[test]
    fn nothing_is_skipped_or_repeated(steps in prop::collection::vec(step(), 1..100)) {
        let (mut position, mut versions) = started(0);
        let mut asked = None;
        // Buffered responses: version and offset.
        let mut buffer: std::collections::VecDeque<(Version, i64)> = Default::default();
        let mut expected = 0;
        for step in steps {
            match step {
                Step::Ask => asked = position.fetch_from(),
                Step::Answer(count) => {
                    let Some(from) = asked.take() else { continue };
                    let next = from.offset + count;
                    if position.on_fetched(from, spot(next, 0)) {
                        buffer.extend((from.offset..next).map(|o| (from.version, o)));
                    }
                }
                Step::Consume(count) => {
                    for _ in 0..count {
                        let Some((version, offset)) = buffer.pop_front() else { break };
                        if version != position.version() {
                            continue;
                        }
                        prop_assert_eq!(offset, expected);
                        expected += 1;
                        prop_assert!(position.on_consumed(version, spot(expected, 0)));
                    }
                }
                Step::Seek(to) => {
                    position.seek(to, &mut versions);
                    expected = to;
                }
                Step::Rewind => position.rewind(&mut versions),
            }
            prop_assert_eq!(consumed(&position), Some(expected));
        }
    }
}

/// Steps of the validation machine. Responses may come late, twice or out of order.
#[derive(Clone, Debug)]
enum Op {
    Fetch,
    Fetched { which: usize, count: i64 },
    Consume(i64),
    SeekTo(i64, i32),
    Leader(i32),
    Validate,
    Validated { which: usize, epoch: i32, end: i64 },
    Diverging { which: usize, epoch: i32, end: i64 },
    Rewind,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Fetch),
        4 => (0usize..4, 1i64..5).prop_map(|(which, count)| Op::Fetched { which, count }),
        4 => (1i64..5).prop_map(Op::Consume),
        1 => (0i64..30, -1i32..6).prop_map(|(to, epoch)| Op::SeekTo(to, epoch)),
        2 => (0i32..3).prop_map(Op::Leader),
        4 => Just(Op::Validate),
        4 => (0usize..4, -1i32..8, -1i64..40)
            .prop_map(|(which, epoch, end)| Op::Validated { which, epoch, end }),
        1 => (0usize..4, -1i32..8, -1i64..40)
            .prop_map(|(which, epoch, end)| Op::Diverging { which, epoch, end }),
        1 => Just(Op::Rewind),
    ]
}

proptest! {
    /// No fetch is sent while a validation is due, and no request names an epoch below the position's. Between two
    /// jumps the consumed offset never goes back.
    #[test]
    fn validation_guards_every_fetch(
        ops in prop::collection::vec(op(), 1..120),
        reset in prop::bool::ANY,
    ) {
        let policy = if reset { Policy::Latest } else { Policy::None };
        let (mut position, mut versions) = started(0);
        let mut leader = 0;
        position.on_leader(leader);
        let (mut fetches, mut validations) = (Vec::<FetchFrom>::new(), Vec::<Validation>::new());
        // Versions and leader epochs under which the leader has confirmed the position, or under which it had no epoch.
        let mut confirmed = (position.version(), leader);
        for op in ops {
            let (version, consumed_before) = (position.version(), position.consumed());
            match op {
                Op::Fetch => fetches.extend(position.fetch_from()),
                Op::Fetched { which, count } => {
                    let Some(&from) = fetches.get(which) else { continue };
                    let next = spot(from.offset + count, from.leader_epoch);
                    if position.on_fetched(from, next) {
                        prop_assert_eq!(from.leader_epoch, leader.max(from.last_fetched_epoch));
                        confirmed = (position.version(), leader);
                    }
                }
                Op::Consume(count) => {
                    let Some(at) = position.consumed() else { continue };
                    let next = spot(at.offset + count, leader.min(at.epoch.max(0)));
                    position.on_consumed(position.version(), next);
                }
                Op::SeekTo(to, epoch) => {
                    position.seek_to(spot(to, epoch), &mut versions);
                    prop_assert_eq!(position.consumed(), Some(spot(to, epoch)));
                    for asked in &validations {
                        let late = position.on_validated(*asked, end(0, 0), policy, &mut versions);
                        prop_assert_eq!(late, Err(Misfit::Stale));
                    }
                    prop_assert_eq!(position.consumed(), Some(spot(to, epoch)));
                    if epoch < 0 {
                        confirmed = (position.version(), leader);
                    }
                }
                Op::Leader(ahead) => {
                    leader += ahead;
                    position.on_leader(leader);
                }
                Op::Validate => {
                    let asked = position.validation();
                    prop_assert!(asked.is_none() || position.fetch_from().is_none());
                    validations.extend(asked);
                }
                Op::Validated { which, epoch, end: end_offset } => {
                    let Some(&asked) = validations.get(which) else { continue };
                    let answer = end(epoch, end_offset);
                    match position.on_validated(asked, answer, policy, &mut versions) {
                        Ok(()) => {
                            prop_assert!(end_offset >= asked.spot.offset);
                            confirmed = (position.version(), leader);
                        }
                        Err(Misfit::Moved) => {
                            // Nothing before offset 0 can be lost.
                            prop_assert!(reset || asked.spot.offset == 0);
                            confirmed = (position.version(), leader);
                        }
                        Err(Misfit::Truncated(lost)) => {
                            prop_assert!(!reset);
                            prop_assert_eq!(lost.at.offset, asked.spot.offset);
                        }
                        Err(_) => prop_assert_eq!(position.version(), version),
                    }
                }
                Op::Diverging { which, epoch, end: end_offset } => {
                    let Some(&from) = fetches.get(which) else { continue };
                    let answer = end(epoch, end_offset);
                    let misfit = position
                        .on_diverging(from, answer, policy, &mut versions);
                    if misfit == Misfit::Moved {
                        confirmed = (position.version(), leader);
                    }
                }
                Op::Rewind => {
                    let passed = position.fetch_from().is_some();
                    position.rewind(&mut versions);
                    if passed {
                        confirmed = (position.version(), leader);
                    }
                }
            }
            if let Some(from) = position.fetch_from() {
                prop_assert!(from.last_fetched_epoch <= from.leader_epoch);
                prop_assert!(
                    from.last_fetched_epoch < 0 || confirmed == (position.version(), leader),
                    "a fetch of an unvalidated position: {:?}", position
                );
            }
            if let Some(asked) = position.validation() {
                prop_assert!(asked.spot.epoch <= asked.leader_epoch);
            }
            if position.version() == version
                && let (Some(before), Some(after)) = (consumed_before, position.consumed())
            {
                prop_assert!(after.offset >= before.offset);
            }
        }
    }
}
