mod assignments;
mod bench;
mod properties;
mod topologies;

use std::time::Duration;

use curtail_wire::{
    ErrorCode,
    cold::newer::streams::{Endpoint, GroupStatus},
};

use super::*;
use bench::{Bench, DELAY, SESSION, heartbeat, joining, word_count};

const SECOND: Duration = Duration::from_secs(1);

fn codes(status: &[GroupStatus]) -> Vec<i8> {
    status.iter().map(|status| status.code).collect()
}

#[test]
fn a_new_group_waits_for_more_members_before_its_first_assignment() {
    let mut bench = Bench::counting(4);
    let first = bench.join("a");
    let told = (first.epoch, first.assignment, codes(&first.status));
    assert_eq!(told, (1, Some(Roles::default()), vec![Status::AssignmentDelayed as i8]));
    assert_eq!(first.heartbeat_interval, Some(Duration::from_secs(5)));
    assert_eq!((bench.group.state(), bench.group.epoch()), (StreamsState::Assigning, 2));
    bench.pass(DELAY - SECOND);
    bench.join("b");
    assert_eq!(codes(&bench.beat("a").status), [Status::AssignmentDelayed as i8]);
    bench.pass(SECOND);
    assert_eq!((bench.group.epoch(), bench.group.assignment_epoch()), (3, 3));
    let (a, b) = (bench.beat("a"), bench.beat("b"));
    assert_eq!((a.epoch, b.epoch, a.status, b.status), (3, 3, vec![], vec![]));
    assert_eq!(
        (bench.tasks("a"), bench.tasks("b")),
        ("0[0 2]1[0 2]".into(), "0[1 3]1[1 3]".into())
    );
    assert_eq!(bench.group.state(), StreamsState::Stable);
    // Nothing new.
    assert_eq!(bench.beat("a").assignment, None);
}

#[test]
fn tasks_are_revoked_before_another_member_receives_them() {
    let mut bench = Bench::counting(2);
    bench.join("a");
    bench.pass(DELAY);
    bench.settle();
    assert_eq!(bench.tasks("a"), "0[0 1]1[0 1]");
    bench.pass(SECOND);
    let second = bench.join("b");
    assert_eq!((second.epoch, second.assignment), (3, Some(Roles::default())));
    assert_eq!(bench.current("b").state, MemberState::UnreleasedTasks);
    assert_eq!(bench.group.state(), StreamsState::Reconciling);

    // The first member learns which tasks to keep, and stays in its epoch until it has revoked the others.
    let has_all =
        Heartbeat { epoch: 2, owned: Some(bench.current("a").assigned.roles()), ..heartbeat("a") };
    let told = bench.send(&has_all).unwrap();
    assert_eq!((told.epoch, bench.current("a").state), (2, MemberState::UnrevokedTasks));
    let kept = bench.current("a").assigned.roles();
    assert_eq!(told.assignment.as_ref(), Some(&kept));
    assert_eq!(bench.send(&has_all).unwrap().assignment, None, "it still owns all of them");
    assert_eq!(bench.beat("b").assignment, None, "still held");
    let revoked = bench.beat("a");
    assert_eq!((revoked.epoch, revoked.assignment), (3, None));
    let given = bench.beat("b").assignment.unwrap();
    assert_eq!(bench.group.state(), StreamsState::Stable);
    let count = |roles: &Roles| roles.active.values().map(BTreeSet::len).sum::<usize>();
    assert_eq!((count(&kept), count(&given)), (2, 2));
}

#[test]
fn a_member_that_leaves_or_is_silent_is_replaced() {
    let mut bench = Bench::counting(2);
    ["a", "b", "c"].iter().for_each(|id| drop(bench.join(id)));
    bench.pass(DELAY);
    bench.settle();
    let left = bench.send(Heartbeat { epoch: -1, ..heartbeat("a") }).unwrap();
    let told = (left.epoch, left.heartbeat_interval, left.assignment, left.endpoints);
    assert_eq!(told, (-1, None, None, None));
    let again = bench.send(Heartbeat { epoch: -1, ..heartbeat("a") });
    assert_eq!(again.unwrap_err().code, ErrorCode::UNKNOWN_MEMBER_ID);
    bench.pass(SESSION - SECOND);
    bench.beat("b");
    bench.pass(2 * SECOND);
    assert_eq!(bench.members(), ["b"]);
    bench.settle();
    assert_eq!(bench.tasks("b"), "0[0 1]1[0 1]");
    bench.send(Heartbeat { epoch: -1, ..heartbeat("b") }).unwrap();
    assert_eq!(bench.group.state(), StreamsState::Empty);
    assert_eq!(bench.group.deadline(), None, "nothing is left to wait for");
    // The topology stays, and a group that was empty waits again.
    assert!(bench.group.topology().is_some());
    assert_eq!(codes(&bench.join("d").status), [Status::AssignmentDelayed as i8]);
}

#[test]
fn a_member_that_does_not_revoke_in_time_is_removed() {
    let mut bench = Bench::counting(2);
    bench.join("a");
    bench.pass(DELAY);
    bench.settle();
    bench.pass(SECOND);
    bench.join("b");
    let owned = Some(bench.current("a").assigned.roles());
    let has_all = Heartbeat { epoch: 2, owned, ..heartbeat("a") };
    for _ in 0..30 {
        bench.send(&has_all).unwrap();
        bench.beat("b");
        assert_eq!(bench.members(), ["a", "b"]);
        bench.pass(SECOND);
    }
    assert_eq!(bench.members(), ["b"], "the rebalance timeout is 30 s");
    let fenced = bench.send(&has_all).unwrap_err();
    assert_eq!(fenced.code, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn an_outdated_or_future_epoch_is_fenced() {
    let mut bench = Bench::counting(2);
    bench.join("a");
    bench.join("b");
    bench.pass(DELAY);
    bench.settle();
    assert_eq!(bench.current("a").epoch, 3);
    let refused = |bench: &mut Bench, request: Heartbeat| bench.send(request).unwrap_err().code;
    let at = |epoch| Heartbeat { epoch, ..heartbeat("a") };
    assert_eq!(refused(&mut bench, at(4)), ErrorCode::FENCED_MEMBER_EPOCH);
    assert_eq!(refused(&mut bench, at(1)), ErrorCode::FENCED_MEMBER_EPOCH);
    let stranger = Heartbeat { epoch: 3, ..heartbeat("x") };
    assert_eq!(refused(&mut bench, stranger), ErrorCode::UNKNOWN_MEMBER_ID);
    // The previous epoch without tasks of another member means that the last response was lost.
    let previous = bench.current("a").previous_epoch;
    let lost = |owned| Heartbeat { owned, ..at(previous) };
    assert_eq!(refused(&mut bench, lost(None)), ErrorCode::FENCED_MEMBER_EPOCH);
    let others = Some(bench.current("b").assigned.roles());
    assert_eq!(refused(&mut bench, lost(others)), ErrorCode::FENCED_MEMBER_EPOCH);
    let own = Some(bench.current("a").assigned.roles());
    assert_eq!(bench.send(lost(own)).unwrap().epoch, 3);
}

#[test]
fn unknown_tasks_are_refused() {
    let mut bench = Bench::counting(2);
    bench.join("a");
    bench.pass(DELAY);
    bench.settle();
    for (subtopology, partition) in [("7", 0), ("0", 2), ("0", -1)] {
        let active = Tasks::from([(subtopology.to_owned(), [partition].into())]);
        let owned = Some(Roles { active, ..Roles::default() });
        let refused = bench.send(Heartbeat { epoch: 2, owned, ..heartbeat("a") }).unwrap_err();
        assert_eq!(refused.code, ErrorCode::INVALID_REQUEST, "{subtopology}-{partition}");
    }
}

#[test]
fn the_topology_of_a_group_stays() {
    let mut bench = Bench::counting(2);
    let of = |epoch| Topology { epoch, ..word_count() };
    bench.send(joining("a", &of(5))).unwrap();
    bench.pass(DELAY + SECOND);
    // An older one is told to be stale, another one is refused.
    let stale = bench.send(joining("b", &of(4))).unwrap();
    assert_eq!(codes(&stale.status), [Status::StaleTopology as i8]);
    let mut other = of(5);
    other.subtopologies.remove(0);
    for topology in [other, of(6)] {
        let refused = bench.send(joining("c", &topology)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::INVALID_REQUEST);
    }
    let mut reordered = of(5);
    reordered.subtopologies.reverse();
    assert!(bench.send(joining("c", &reordered)).is_ok());
}

#[test]
fn standby_tasks_go_to_other_processes() {
    let mut bench = Bench::counting(2);
    bench.set(|settings| settings.standbys = 1);
    ["a1", "a2", "b1"].iter().for_each(|id| drop(bench.join(id)));
    bench.pass(DELAY);
    bench.settle();
    let all: Vec<String> = ["a1", "a2", "b1"].iter().map(|id| bench.tasks(id)).collect();
    for partition in 0..2 {
        let has = |id: &str, of: fn(&Roles) -> &Tasks| {
            let roles = bench.current(id).assigned.roles();
            of(&roles).get("1").is_some_and(|tasks| tasks.contains(&partition))
        };
        let active_on_b = has("b1", |roles| &roles.active);
        let standby_on_b = has("b1", |roles| &roles.standby);
        assert!(active_on_b != standby_on_b, "{all:?}");
    }
    // More standby tasks than other processes: as many as possible.
    bench.set(|settings| settings.standbys = 2);
    bench.pass(SECOND);
    bench.settle();
    let standbys = ["a1", "a2", "b1"].iter().map(|id| bench.current(id).assigned.standby.clone());
    let count = standbys.flat_map(|tasks| tasks.into_values().flatten()).count();
    assert_eq!(count, 2);
    bench.set(|settings| settings.standbys = 0);
    bench.pass(SECOND);
    bench.settle();
    assert!(["a1", "a2", "b1"].iter().all(|id| bench.current(id).assigned.standby.is_empty()));
}

#[test]
fn a_request_to_shut_down_reaches_all_members_until_the_group_is_empty() {
    let mut bench = Bench::counting(2);
    bench.join("a");
    bench.join("b");
    bench.pass(DELAY);
    bench.settle();
    let epoch = bench.current("a").epoch;
    bench.send(Heartbeat { epoch, shutdown: true, ..heartbeat("a") }).unwrap();
    let told = bench.beat("b").status;
    assert_eq!(codes(&told), [Status::ShutdownApplication as i8]);
    assert!(told[0].detail.contains(" a "), "{told:?}");
    bench.send(Heartbeat { epoch: -1, ..heartbeat("a") }).unwrap();
    bench.pass(SECOND);
    assert_eq!(codes(&bench.beat("b").status), [Status::ShutdownApplication as i8]);
    bench.send(Heartbeat { epoch: -1, ..heartbeat("b") }).unwrap();
    assert_eq!(codes(&bench.join("c").status), [Status::AssignmentDelayed as i8]);
}

#[test]
fn a_full_group_refuses_new_members() {
    let mut bench = Bench::counting(2);
    bench.set(|settings| settings.max_size = 1);
    bench.join("a");
    let refused = bench.send(joining("b", &word_count())).unwrap_err();
    assert_eq!(refused.code, ErrorCode::GROUP_MAX_SIZE_REACHED);
    assert!(bench.send(Heartbeat { epoch: 1, ..heartbeat("a") }).is_ok());
}

#[test]
fn members_learn_the_partitions_behind_endpoints() {
    let mut bench = Bench::counting(2);
    bench.set(|settings| settings.initial_delay = Duration::ZERO);
    let endpoint = |host: &str| Some(Endpoint { host: host.to_owned(), port: 80 });
    let with =
        |id: &str, host| Heartbeat { user_endpoint: endpoint(host), ..joining(id, &word_count()) };
    let first = bench.send(with("a", "one")).unwrap();
    assert_eq!(first.endpoint_epoch, 0, "a group that is not stored has no epoch yet");
    let behind = &first.endpoints.unwrap()[0];
    let topics: Vec<_> =
        behind.active_partitions.iter().map(|of| (&*of.topic, of.partitions.clone())).collect();
    assert_eq!(
        (&*behind.user_endpoint.host, topics),
        ("one", vec![("lines", vec![0, 1]), ("words", vec![0, 1])],)
    );
    assert_eq!(bench.beat("a").endpoints, None, "nothing new");
    bench.pass(SECOND);
    let second = bench.send(with("b", "two")).unwrap();
    assert_eq!((second.endpoint_epoch, second.endpoints.unwrap().len()), (1, 2));
    let told = bench.beat("a");
    assert!(told.endpoint_epoch == 2 && told.endpoints.is_some(), "{told:?}");
}

#[test]
fn a_commit_needs_a_member_in_a_valid_epoch() {
    let mut bench = Bench::counting(2);
    let (unknown, stale) = (ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::STALE_MEMBER_EPOCH);
    assert_eq!(bench.group.may_commit("", -1, [("lines", 0)]), Ok(()), "the group has no members");
    assert_eq!(bench.group.may_commit("a", 2, [("lines", 0)]), Err(unknown));
    bench.join("a");
    bench.pass(DELAY);
    bench.settle();
    bench.pass(SECOND);
    bench.join("b");
    bench.settle();
    assert_eq!((bench.current("a").epoch, bench.tasks("b")), (3, "0[1]1[1]".to_owned()));
    let cases = [
        ("a", 3, ("lines", 0), Ok(())),
        ("a", 4, ("lines", 0), Err(stale)),
        // It had the task in epoch 2, too.
        ("a", 2, ("lines", 0), Ok(())),
        ("a", 2, ("words", 0), Ok(())),
        ("a", 2, ("lines", 1), Err(stale)),
        ("a", 1, ("lines", 0), Err(stale)),
        ("a", 2, ("other", 0), Err(stale)),
        ("b", 2, ("lines", 1), Err(stale)),
        ("b", 3, ("lines", 1), Ok(())),
        ("c", 3, ("lines", 1), Err(unknown)),
        ("", -1, ("lines", 0), Err(unknown)),
    ];
    for (id, epoch, at, expected) in cases {
        assert_eq!(bench.group.may_commit(id, epoch, [at]), expected, "{id} {epoch} {at:?}");
    }
    let may_fetch = |id, epoch| bench.group.may_fetch(id, epoch);
    assert_eq!(may_fetch(None, -1), Ok(()));
    assert_eq!(may_fetch(Some("a"), 3), Ok(()));
    assert_eq!(may_fetch(Some("a"), 2), Err(stale));
    assert_eq!(may_fetch(Some("x"), 2), Err(unknown));
}

#[test]
fn another_coordinator_continues_with_the_same_tasks() {
    let mut bench = Bench::counting(2);
    bench.join("a");
    bench.join("b");
    bench.pass(DELAY);
    bench.settle();
    let before = (bench.tasks("a"), bench.tasks("b"), bench.group.epoch());
    bench.move_on();
    assert_eq!((bench.beat("a").assignment, bench.beat("b").assignment), (None, None));
    assert_eq!((bench.tasks("a"), bench.tasks("b"), bench.group.epoch()), before);
    bench.pass(SESSION - SECOND);
    bench.beat("a");
    bench.pass(SECOND);
    assert_eq!(bench.members(), ["a"], "the sessions of loaded members expire");
}
