mod bench;
mod properties;

use std::{collections::BTreeSet, time::Duration};

use curtail_wire::ErrorCode;

use super::*;
use bench::{Bench, SESSION, topic_id};

#[test]
fn the_metadata_hash_equals_kafkas() {
    let mut bench = Bench::new();
    bench.world.config.racks = vec!["r1".into(), "ä2".into()];
    let mut id = [0; 16];
    (1..=16).zip(&mut id).for_each(|(n, byte)| *byte = n);
    bench.world.add_with("töpic", curtail_wire::Uuid(id), &[&[1], &[2, 1]]);
    // The result of hash4j for Kafka's calls: see Utils.computeTopicHash and computeGroupHash.
    assert_eq!(bench.topics().hash(["gone", "töpic"].into_iter()), HASH);
    assert_eq!(bench.topics().hash(["gone"].into_iter()), 0);
}

const HASH: i64 = 7761286060277237075;

#[test]
fn the_first_member_has_all_partitions_until_a_second_joins() {
    let mut bench = Bench::with_topic("t", 4);
    let first = bench.join("a", &["t"]);
    assert_eq!((first.epoch, first.heartbeat_interval), (2, Some(Duration::from_secs(5))));
    assert_eq!(bench.claims("a"), [0, 1, 2, 3]);
    assert_eq!(bench.group.state(), ConsumerState::Stable);

    // The new member waits for the first member's partitions.
    bench.pass(Duration::from_secs(2));
    let second = bench.join("b", &["t"]);
    assert_eq!((second.epoch, second.assignment), (3, Some(Partitions::new())));
    assert_eq!(bench.state_of("b"), MemberState::UnreleasedPartitions);
    assert_eq!(bench.group.state(), ConsumerState::Reconciling);

    // The first member learns which partitions to keep. It stays in its old epoch until it confirms
    // that it has revoked the rest.
    let told = bench.beat("a").unwrap();
    assert_eq!((told.epoch, bench.state_of("a")), (2, MemberState::UnrevokedPartitions));
    assert_eq!(bench.claims("a"), [0, 1]);
    let again = bench.beat("a").unwrap();
    assert_eq!((again.epoch, again.assignment), (2, None), "nothing new");
    assert_eq!(bench.beat("b").unwrap().assignment, None, "still held");
    let done = bench.beat_owning("a", &[0, 1]).unwrap();
    assert_eq!((done.epoch, done.assignment), (3, None));
    let given = bench.beat("b").unwrap();
    assert_eq!((given.epoch, given.assignment), (3, Some(bench.of("t", &[2, 3]))));
    assert_eq!(bench.group.state(), ConsumerState::Stable);
}

#[test]
fn an_outdated_or_future_epoch_is_fenced() {
    let mut bench = Bench::with_topic("t", 4);
    bench.join("a", &["t"]);
    let at = |epoch| Heartbeat { epoch, ..bench::heartbeat("a") };
    let refused = |bench: &mut Bench, request: Heartbeat| bench.send(request).unwrap_err().code;
    assert_eq!(refused(&mut bench, at(3)), ErrorCode::FENCED_MEMBER_EPOCH);
    assert_eq!(refused(&mut bench, at(1)), ErrorCode::FENCED_MEMBER_EPOCH);
    let stranger = Heartbeat { epoch: 2, ..bench::heartbeat("x") };
    assert_eq!(refused(&mut bench, stranger), ErrorCode::UNKNOWN_MEMBER_ID);
    // The previous epoch without partitions of another member means that the last response was
    // lost.
    let lost = |owned: &[i32]| Heartbeat {
        epoch: 0,
        owned: Some(Partitions::from([(topic_id("t"), owned.iter().copied().collect())])),
        ..bench::heartbeat("a")
    };
    assert!(bench.send(lost(&[])).is_ok(), "joins again");
    bench.pass(Duration::from_secs(2));
    bench.join("b", &["t"]);
    bench.settle();
    assert_eq!(bench.epoch_of("a"), 3);
    let earlier = |owned: &[i32]| Heartbeat { epoch: 2, ..lost(owned) };
    assert_eq!(bench.send(earlier(&[0, 1])).unwrap().epoch, 3);
    assert_eq!(refused(&mut bench, earlier(&[0, 1, 2])), ErrorCode::FENCED_MEMBER_EPOCH);
    let unsaid = Heartbeat { owned: None, ..earlier(&[]) };
    assert_eq!(refused(&mut bench, unsaid), ErrorCode::FENCED_MEMBER_EPOCH);
}

/// Kafka's `CurrentAssignmentBuilder` does not wait for the revocation of partitions that the member does not own.
#[test]
fn partitions_that_a_heartbeat_does_not_report_are_free_at_once() {
    let mut bench = Bench::with_topic("t", 4);
    bench.join("a", &["t"]);
    bench.pass(Duration::from_secs(2));
    bench.join("b", &["t"]);

    // Member a has not begun with its partitions, and sends a complete heartbeat after a lost one.
    let complete = |owned: &[i32]| Heartbeat {
        epoch: 2,
        owned: Some(Partitions::from([(topic_id("t"), owned.iter().copied().collect())])),
        ..bench::joining("a", &["t"])
    };
    let told = bench.send(complete(&[])).unwrap();
    assert_eq!((told.epoch, bench.state_of("a")), (3, MemberState::Stable));
    assert_eq!(told.assignment, Some(bench.of("t", &[0, 1])));
    assert_eq!(bench.beat("b").unwrap().assignment, Some(bench.of("t", &[2, 3])));

    // Without that response member a is still in epoch 2.
    assert_eq!(bench.send(complete(&[])).unwrap(), told);
    let took_all = bench.send(complete(&[0, 1, 2, 3])).unwrap_err();
    assert_eq!(took_all.code, ErrorCode::FENCED_MEMBER_EPOCH);
    assert_eq!(bench.claims("b"), [2, 3]);
}

#[test]
fn members_without_heartbeats_or_revocations_are_removed() {
    let mut bench = Bench::with_topic("t", 4);
    bench.join("a", &["t"]);
    bench.pass(Duration::from_secs(2));
    bench.join("b", &["t"]);
    bench.settle();
    // Only b sends heartbeats.
    bench.pass(SESSION - Duration::from_secs(1));
    bench.beat("b").unwrap();
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.members(), ["b"]);
    assert_eq!(bench.beat("b").unwrap().assignment, Some(bench.of("t", &[0, 1, 2, 3])));

    // Member b is told to revoke partitions for c. It sends heartbeats but does not revoke.
    bench.join("c", &["t"]);
    bench.pass(Duration::from_secs(2));
    bench.beat("c").unwrap();
    assert_eq!(bench.beat("b").unwrap().assignment, Some(bench.of("t", &[0, 1])));
    for _ in 0..29 {
        bench.pass(Duration::from_secs(1));
        bench.beat("b").unwrap();
        bench.beat("c").unwrap();
    }
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.members(), ["c"], "the rebalance timeout is 30 s");
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.beat("c").unwrap().assignment, Some(bench.of("t", &[0, 1, 2, 3])));
}

#[test]
fn a_member_that_leaves_empties_the_group() {
    let mut bench = Bench::with_topic("t", 2);
    bench.join("a", &["t"]);
    let epoch = bench.group.epoch();
    let left = bench.send(Heartbeat { epoch: LEFT, ..bench::heartbeat("a") }).unwrap();
    assert_eq!((left.epoch, left.heartbeat_interval, left.assignment), (LEFT, None, None));
    assert_eq!((bench.group.state(), bench.group.epoch()), (ConsumerState::Empty, epoch + 1));
    let again = bench.send(Heartbeat { epoch: LEFT, ..bench::heartbeat("a") });
    assert_eq!(again.unwrap_err().code, ErrorCode::UNKNOWN_MEMBER_ID);
    assert!(bench.group.deadline().is_none(), "nothing is left to wait for");
}

#[test]
fn static_members_keep_their_partitions_while_they_are_away() {
    let mut bench = Bench::with_topic("t", 4);
    let named = |id: &str, instance: &str| Heartbeat {
        instance_id: Some(instance.into()),
        ..bench::joining(id, &["t"])
    };
    let refused = |bench: &mut Bench, request: Heartbeat| bench.send(request).unwrap_err().code;
    bench.send(named("a", "one")).unwrap();
    bench.pass(Duration::from_secs(2));
    bench.send(named("b", "two")).unwrap();
    bench.settle();
    let (epoch, mine) = (bench.group.epoch(), bench.claims("a"));

    assert_eq!(refused(&mut bench, named("c", "one")), ErrorCode::UNRELEASED_INSTANCE_ID);
    let wrong = Heartbeat { epoch, ..named("b", "one") };
    assert_eq!(refused(&mut bench, wrong), ErrorCode::FENCED_INSTANCE_ID);
    let unknown = Heartbeat { epoch, ..named("b", "three") };
    assert_eq!(refused(&mut bench, unknown), ErrorCode::UNKNOWN_MEMBER_ID);

    let away = Heartbeat { epoch: LEFT_FOR_NOW, ..named("a", "one") };
    assert_eq!(bench.send(away).unwrap().epoch, LEFT_FOR_NOW);
    assert_eq!(bench.beat("b").unwrap().assignment, None);
    // It returns under another id, keeps its partitions, and starts no new epoch of the group.
    let back = bench.send(named("c", "one")).unwrap();
    assert_eq!((back.epoch, bench.group.epoch()), (epoch, epoch));
    assert_eq!(back.assignment, Some(bench.of("t", &mine)));
    let old = Heartbeat { epoch, ..named("a", "one") };
    assert_eq!(refused(&mut bench, old), ErrorCode::FENCED_INSTANCE_ID);

    // A static member that does not return in time is removed.
    bench.send(Heartbeat { epoch: LEFT_FOR_NOW, ..named("c", "one") }).unwrap();
    bench.pass(SESSION - Duration::from_secs(1));
    bench.beat("b").unwrap();
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.members(), ["b"]);
    // A tool removes the other one by its instance id.
    let step = bench.group.leave(
        &bench.topics(),
        &[(String::new(), Some("two".into())), ("b".into(), Some("none".into()))],
    );
    assert_eq!(step.answer, [Ok(()), Err(ErrorCode::UNKNOWN_MEMBER_ID)]);
    bench.take(step.group, &step.changes);
    assert!(bench.group.is_empty());
}

#[test]
fn created_grown_and_deleted_topics_begin_new_epochs() {
    let mut bench = Bench::new();
    let first = bench.join("a", &["t", "u"]);
    assert_eq!((first.epoch, first.assignment), (2, Some(Partitions::new())));
    assert_eq!(bench.beat("a").unwrap().epoch, 2);
    bench.add_topic("x", 1);
    assert_eq!(bench.beat("a").unwrap().epoch, 2, "a topic without subscribers");
    bench.pass(Duration::from_secs(2));
    bench.add_topic("t", 2);
    let beat = bench.beat("a").unwrap();
    assert_eq!((beat.epoch, beat.assignment), (3, Some(bench.of("t", &[0, 1]))));
    bench.pass(Duration::from_secs(2));
    bench.add_topic("t", 3);
    let beat = bench.beat("a").unwrap();
    assert_eq!((beat.epoch, beat.assignment), (4, Some(bench.of("t", &[0, 1, 2]))));
    bench.pass(Duration::from_secs(2));
    bench.remove_topic("t");
    bench.settle();
    assert_eq!((bench.epoch_of("a"), bench.claims("a")), (5, vec![]));
}

#[test]
fn targets_are_computed_once_per_interval() {
    let mut bench = Bench::with_topic("t", 3);
    bench.join("a", &["t"]);
    let waits = bench.join("b", &["t"]);
    assert_eq!((waits.epoch, bench.group.epoch(), bench.group.assignment_epoch()), (2, 3, 2));
    assert_eq!(bench.group.state(), ConsumerState::Assigning);
    bench.pass(Duration::from_millis(999));
    bench.beat("a").unwrap();
    assert_eq!(bench.group.assignment_epoch(), 2);
    bench.pass(Duration::from_millis(1));
    bench.beat("a").unwrap();
    assert_eq!(bench.group.assignment_epoch(), 3);
}

#[test]
fn a_changed_subscription_revokes_at_once_and_assigns_after_the_interval() {
    let mut bench = Bench::with_topic("t", 2);
    bench.add_topic("u", 2);
    bench.join("a", &["t"]);
    // Within the interval there is no new target, but partitions of unsubscribed topics are revoked
    // at once.
    let wants = |topics: &[&str]| {
        Some(topics.iter().map(|topic| (*topic).to_owned()).collect::<BTreeSet<_>>())
    };
    let change = Heartbeat { epoch: 2, topics: wants(&["u"]), ..bench::heartbeat("a") };
    let beat = bench.send(change).unwrap();
    assert_eq!((beat.epoch, beat.assignment), (2, Some(Partitions::new())));
    assert_eq!(bench.state_of("a"), MemberState::UnrevokedPartitions);
    bench.pass(Duration::from_secs(1));
    let beat = bench.beat_owning("a", &[]).unwrap();
    assert_eq!((beat.epoch, beat.assignment), (3, Some(bench.of("u", &[0, 1]))));
    // Repeating the subscription is not a change.
    let same = Heartbeat { epoch: 3, topics: wants(&["u"]), ..bench::heartbeat("a") };
    assert_eq!(bench.send(same).unwrap().epoch, 3);
    assert_eq!(bench.group.epoch(), 3);
}

#[test]
fn regular_expressions_are_resolved_at_a_bounded_rate() {
    let mut bench = Bench::with_topic("t1", 1);
    bench.add_topic("other", 1);
    let joining = |id: &str, regex: &str| Heartbeat {
        topics: None,
        regex: Some(regex.into()),
        ..bench::joining(id, &[])
    };
    for invalid in ["(", "a)(b", "(?x)t #c", "[z-a]"] {
        let refused = bench.send(joining("a", invalid)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::INVALID_REGULAR_EXPRESSION, "{invalid}");
    }
    assert!(bench.group.is_empty());
    let beat = bench.send(joining("a", "t.|x")).unwrap();
    assert_eq!((beat.epoch, beat.assignment), (1, Some(Partitions::new())));
    let asked = beat.resolve.expect("something to resolve");
    assert_eq!(bench.beat("a").unwrap().resolve, None, "the lookup is in flight");
    bench.resolve(&asked);
    let beat = bench.beat("a").unwrap();
    assert_eq!((beat.epoch, beat.assignment), (2, Some(bench.of("t1", &[0]))));

    // The expression must match whole names. Created topics are resolved after 10 s at the
    // earliest.
    bench.add_topic("t2", 1);
    bench.add_topic("at3", 1);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.beat("a").unwrap().resolve, None);
    bench.pass(Duration::from_secs(1));
    let asked = bench.beat("a").unwrap().resolve.expect("topics have come");
    bench.resolve(&asked);
    let expected: Partitions =
        bench.of("t1", &[0]).into_iter().chain(bench.of("t2", &[0])).collect();
    assert_eq!(bench.beat("a").unwrap().assignment, Some(expected));
    bench.pass(Duration::from_secs(11));
    assert_eq!(bench.beat("a").unwrap().resolve, None, "nothing has come");

    // The expression is removed with its last subscriber.
    bench.send(joining("b", "t.|x")).unwrap();
    bench.send(Heartbeat { epoch: LEFT, ..bench::heartbeat("a") }).unwrap();
    assert_eq!(bench.group.regexes.len(), 1);
    bench.send(Heartbeat { epoch: LEFT, ..bench::heartbeat("b") }).unwrap();
    assert_eq!((bench.group.regexes.len(), bench.group.subscribed().len()), (0, 0));
}

#[test]
fn a_full_group_refuses_new_members() {
    let mut bench = Bench::with_topic("t", 2);
    bench.join("a", &["t"]);
    Arc::make_mut(&mut bench.group.settings).max_size = 1;
    let refused = bench.send(bench::joining("b", &["t"])).unwrap_err();
    assert_eq!(refused.code, ErrorCode::GROUP_MAX_SIZE_REACHED);
    assert!(bench.send(bench::joining("a", &["t"])).is_ok());
}

#[test]
fn a_commit_needs_a_member_in_a_valid_epoch() {
    let mut bench = Bench::with_topic("t", 4);
    let at = |partition| [Some((topic_id("t"), partition))];
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
    let stale = ErrorCode::STALE_MEMBER_EPOCH;
    assert_eq!(bench.group.may_commit("", -1, at(0)), Ok(()), "the group has no members");
    assert_eq!(bench.group.may_commit("a", 2, at(0)), Err(unknown));
    bench.join("a", &["t"]);
    bench.pass(Duration::from_secs(2));
    bench.join("b", &["t"]);
    bench.settle();
    assert_eq!(bench.epoch_of("a"), 3);
    let cases = [
        ("a", 3, 0, Ok(())),
        ("a", 4, 0, Err(stale)),
        ("a", 2, 0, Ok(())),
        ("a", 2, 3, Err(stale)),
        ("a", 1, 0, Err(stale)),
        ("b", 2, 3, Err(stale)),
        ("b", 3, 3, Ok(())),
        ("c", 3, 3, Err(unknown)),
        ("", -1, 0, Err(unknown)),
    ];
    for (id, epoch, partition, expected) in cases {
        assert_eq!(bench.group.may_commit(id, epoch, at(partition)), expected, "{id} {epoch}");
    }
    assert_eq!(bench.group.may_commit("a", 2, [None]), Err(stale), "a topic that is gone");
    let may_fetch = |id, epoch| bench.group.may_fetch(id, epoch);
    assert_eq!(may_fetch(None, -1), Ok(()));
    assert_eq!(may_fetch(Some("a"), 3), Ok(()));
    assert_eq!(may_fetch(Some("a"), 2), Err(stale));
    assert_eq!(may_fetch(Some("x"), 2), Err(unknown));
}

#[test]
fn the_assignor_is_the_most_requested_one() {
    let mut bench = Bench::with_topic("t", 4);
    let asking = |id: &str, assignor: Option<&str>| Heartbeat {
        assignor: assignor.map(str::to_owned),
        ..bench::joining(id, &["t"])
    };
    bench.send(asking("a", None)).unwrap();
    assert_eq!(bench.group.assignor(), Assignor::Uniform);
    bench.send(asking("b", Some("range"))).unwrap();
    assert_eq!(bench.group.assignor(), Assignor::Range);
    bench.send(asking("c", Some("uniform"))).unwrap();
    assert_eq!(bench.group.assignor(), Assignor::Uniform, "as many, and the default");
}
