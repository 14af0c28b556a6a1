use proptest::prelude::*;

use super::*;

fn started(offset: i64) -> (Position, Versions) {
    let mut versions = Versions::default();
    let mut position = Position::by_policy(Policy::None, &mut versions);
    position.seek(offset, &mut versions);
    (position, versions)
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
        assert_eq!(position.consumed(), Some(42));
        assert_eq!(position.fetch_from().map(|f| f.offset), Some(42));
    }
    let position = Position::by_policy(Policy::None, &mut versions);
    assert_eq!((position.lookup(), position.consumed()), (None, None));
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
    assert_eq!(position.consumed(), Some(9));
}

#[test]
fn answers_from_before_a_jump_do_not_count() {
    let (mut position, mut versions) = started(10);
    let asked = position.fetch_from().expect("at an offset");
    position.seek(10, &mut versions);
    assert!(!position.on_fetched(asked.version, 10, 20, 1), "same offset, older version");
    assert!(!position.on_consumed(asked.version, 10));
    let policy = Policy::Earliest;
    assert_eq!(position.on_out_of_range(asked.version, 10, policy, &mut versions), Misfit::Stale);
    position.reset(Reset::Latest, &mut versions);
    let (old, _) = position.lookup().expect("to be looked up");
    position.reset(Reset::Latest, &mut versions);
    assert!(!position.on_lookup(old, 5));
}

#[test]
fn fetching_runs_ahead_of_consuming() {
    let (mut position, mut versions) = started(10);
    let version = position.version();
    assert!(position.on_fetched(version, 10, 20, 3));
    let from = position.fetch_from().expect("at an offset");
    assert_eq!((from.offset, from.last_fetched_epoch), (20, 3));
    assert_eq!(position.consumed(), Some(10));
    assert!(!position.on_consumed(version, 21), "beyond what was fetched");
    assert!(position.on_consumed(version, 15));
    assert!(!position.on_consumed(version, 14), "backwards");
    position.rewind(&mut versions);
    let from = position.fetch_from().expect("at an offset");
    assert_eq!((from.offset, from.last_fetched_epoch), (15, -1));
    assert_ne!(from.version, version);
}

#[test]
fn an_answer_that_does_not_advance_is_refused() {
    let (mut position, _) = started(10);
    let version = position.version();
    assert!(!position.on_fetched(version, 10, 10, 0));
    assert!(!position.on_fetched(version, 9, 20, 0), "not the offset asked for");
}

#[test]
fn out_of_range_waits_for_what_was_fetched_and_then_resets() {
    let (mut position, mut versions) = started(10);
    let version = position.version();
    position.on_fetched(version, 10, 20, 0);
    let policy = Policy::Earliest;
    let early = position.on_out_of_range(version, 20, policy, &mut versions);
    assert_eq!(early, Misfit::NotYet);
    position.on_consumed(version, 20);
    let late = position.on_out_of_range(version, 20, policy, &mut versions);
    assert_eq!(late, Misfit::Moved);
    assert_eq!(position.lookup().map(|(_, to)| to), Some(Reset::Earliest));
}

#[test]
fn without_a_policy_the_application_decides() {
    let (mut position, mut versions) = started(10);
    let version = position.version();
    let misfit = position.on_out_of_range(version, 10, Policy::None, &mut versions);
    assert_eq!(misfit, Misfit::Unresolved(10));
    assert_eq!(position.consumed(), Some(10));
    assert_eq!((position.fetch_from(), position.lookup()), (None, None));
    position.seek(3, &mut versions);
    assert_eq!(position.fetch_from().map(|f| f.offset), Some(3));
}

#[test]
fn a_cut_log_rewinds_to_the_cut() {
    let end = |end_offset| EpochEndOffset { epoch: 1, end_offset };
    let (mut position, mut versions) = started(10);
    let version = position.version();
    position.on_fetched(version, 10, 20, 2);
    position.on_consumed(version, 12);
    // Cut behind what the application has: the fetched rest is asked for again.
    let mut kept = position.clone();
    let misfit = kept.on_diverging(version, 20, end(15), Policy::None, &mut versions);
    assert_eq!((misfit, kept.fetch_from().map(|f| f.offset)), (Misfit::Moved, Some(12)));
    // Cut before it.
    let mut moved = position.clone();
    let misfit = moved.on_diverging(version, 20, end(5), Policy::Latest, &mut versions);
    assert_eq!((misfit, moved.fetch_from().map(|f| f.offset)), (Misfit::Moved, Some(5)));
    let misfit = position.on_diverging(version, 20, end(5), Policy::None, &mut versions);
    assert_eq!(misfit, Misfit::Unresolved(20));
}

#[test]
fn a_topic_made_anew_is_read_from_its_beginning() {
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
            assert!(error.is_retriable(), "{error} is tried again but Kafka says it is final");
        }
        if verdict == FetchVerdict::Missing || verdict == FetchVerdict::Moved {
            assert!(error.invalidates_metadata(), "{error}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask,
    /// The outstanding answer brings so many offsets.
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
    /// Offsets reach the application without a gap and without a repetition between two jumps.
    #[test]
    fn nothing_is_skipped_or_repeated(steps in prop::collection::vec(step(), 1..100)) {
        let (mut position, mut versions) = started(0);
        let mut asked = None;
        // What lies in the buffer: version and the offsets.
        let mut buffer: std::collections::VecDeque<(Version, i64)> = Default::default();
        let mut expected = 0;
        for step in steps {
            match step {
                Step::Ask => asked = position.fetch_from(),
                Step::Answer(count) => {
                    let Some(from) = asked.take() else { continue };
                    let next = from.offset + count;
                    if position.on_fetched(from.version, from.offset, next, 0) {
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
                        prop_assert!(position.on_consumed(version, expected));
                    }
                }
                Step::Seek(to) => {
                    position.seek(to, &mut versions);
                    expected = to;
                }
                Step::Rewind => position.rewind(&mut versions),
            }
            prop_assert_eq!(position.consumed(), Some(expected));
        }
    }
}
