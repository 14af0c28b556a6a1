use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use curtail_wire::ErrorCode;
use tokio::time::Instant;

use super::*;

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);

/// A group under test: its state machine, the time, and its outputs.
struct Bench {
    group: Group,
    now: Instant,
    next: Waiter,
    joined: BTreeMap<Waiter, JoinAnswer>,
    synced: BTreeMap<Waiter, SyncAnswer>,
    stores: Vec<(GroupValue, Stored)>,
}

impl Bench {
    fn new(delay: Duration) -> Self {
        Self {
            group: Group::new(GroupConfig { initial_rebalance_delay: delay }, 0),
            now: Instant::now(),
            next: 0,
            joined: BTreeMap::new(),
            synced: BTreeMap::new(),
            stores: Vec::new(),
        }
    }

    fn take(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Joined { waiter, answer } => {
                    assert!(self.joined.insert(waiter, answer).is_none(), "answered twice");
                }
                Output::Synced { waiter, answer } => {
                    assert!(self.synced.insert(waiter, answer).is_none(), "answered twice");
                }
                Output::Store { value, then } => self.stores.push((value, then)),
            }
        }
    }

    fn join(&mut self, join: Join) -> Waiter {
        self.next += 1;
        let outputs = self.group.join(self.now, 0, join, self.next);
        self.take(outputs);
        self.next
    }

    fn sync(&mut self, id: &str, generation: i32, assignments: &[(&str, &str)]) -> Waiter {
        self.next += 1;
        let request = SyncRequest {
            member_id: id.into(),
            instance_id: None,
            generation,
            protocol_type: Some("consumer".into()),
            protocol: None,
            assignments: assignments
                .iter()
                .map(|(id, what)| ((*id).to_owned(), Bytes::from((*what).to_owned())))
                .collect(),
        };
        let outputs = self.group.sync(self.now, request, self.next);
        self.take(outputs);
        self.next
    }

    /// Completes the oldest store.
    fn stored(&mut self, result: Result<(), ErrorCode>) -> GroupValue {
        let (value, then) = self.stores.remove(0);
        let outputs = self.group.stored(self.now, 0, then, result);
        self.take(outputs);
        value
    }

    fn leave(&mut self, leaving: &[(&str, Option<&str>)]) -> Vec<Result<(), ErrorCode>> {
        let leaving: Vec<_> = leaving
            .iter()
            .map(|(id, instance)| ((*id).to_owned(), instance.map(str::to_owned)))
            .collect();
        let (results, outputs) = self.group.leave(self.now, 0, &leaving);
        self.take(outputs);
        results
    }

    fn heartbeat(&mut self, id: &str, generation: i32) -> Result<(), ErrorCode> {
        self.group.heartbeat(self.now, id, None, generation)
    }

    /// Advances the time and handles everything as it becomes due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.group.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let outputs = self.group.expire(self.now, 0);
            self.take(outputs);
        }
        self.now = end;
    }

    #[track_caller]
    fn joined(&mut self, waiter: Waiter) -> Joined {
        self.joined.remove(&waiter).expect("a response").expect("joined")
    }

    #[track_caller]
    fn refused(&mut self, waiter: Waiter) -> ErrorCode {
        self.joined.remove(&waiter).expect("a response").expect_err("a refusal").0
    }

    #[track_caller]
    fn assignment(&mut self, waiter: Waiter) -> Bytes {
        self.synced.remove(&waiter).expect("a response").expect("an assignment").assignment
    }

    /// Returns a stable group with these dynamic members in its first generation; the first member
    /// leads.
    fn stable(ids: &[&str]) -> Self {
        let mut bench = Self::new(Duration::from_secs(3));
        let joins: Vec<_> = ids.iter().map(|id| bench.join(member(id))).collect();
        bench.pass(Duration::from_secs(6));
        for waiter in joins {
            assert_eq!(bench.joined(waiter).generation, 1);
        }
        let assignments: Vec<_> = ids.iter().map(|id| (*id, *id)).collect();
        let syncs: Vec<_> = ids.iter().map(|id| bench.sync(id, 1, &assignments)).collect();
        bench.stored(Ok(()));
        for (waiter, id) in syncs.into_iter().zip(ids) {
            assert_eq!(bench.assignment(waiter), id.as_bytes());
        }
        assert_eq!(bench.group.state(), GroupState::Stable);
        bench
    }
}

/// Returns the first join of a dynamic member with an old client version; the member receives this
/// id.
fn member(id: &str) -> Join {
    Join {
        member_id: String::new(),
        new_id: id.into(),
        instance_id: None,
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        session_timeout: SESSION,
        rebalance_timeout: REBALANCE,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Bytes::from_static(b"topics"))],
        needs_known_id: false,
        may_skip_assignment: false,
    }
}

fn again(id: &str) -> Join {
    Join { member_id: id.into(), ..member("unused") }
}

fn static_member(id: &str, instance: &str) -> Join {
    Join { instance_id: Some(instance.into()), may_skip_assignment: true, ..member(id) }
}

fn speaking(id: &str, protocols: &[&str]) -> Join {
    let protocols = protocols.iter().map(|p| ((*p).to_owned(), Bytes::new())).collect();
    Join { protocols, ..member(id) }
}

#[test]
fn a_dynamic_member_must_rejoin_with_its_assigned_id() {
    let mut bench = Bench::new(Duration::ZERO);
    let first = bench.join(Join { needs_known_id: true, ..member("a") });
    assert_eq!(
        bench.joined.remove(&first),
        Some(Err((ErrorCode::MEMBER_ID_REQUIRED, "a".to_owned())))
    );
    assert!(!bench.group.is_unused(), "it is expected to come");
    let second = bench.join(Join { needs_known_id: true, ..again("a") });
    let joined = bench.joined(second);
    assert_eq!((joined.generation, joined.leader.as_str()), (1, "a"));
    assert_eq!(joined.members, [("a".to_owned(), None, Bytes::from_static(b"topics"))]);

    // A pending id expires if it does not join. An id that was never assigned is unknown.
    let mut bench = Bench::new(Duration::ZERO);
    bench.join(Join { needs_known_id: true, ..member("a") });
    bench.pass(SESSION);
    assert!(bench.group.is_unused());
    let late = bench.join(again("a"));
    assert_eq!(bench.refused(late), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn the_first_rebalance_waits_while_members_join() {
    let mut bench = Bench::new(Duration::from_secs(3));
    let a = bench.join(member("a"));
    bench.pass(Duration::from_secs(2));
    let b = bench.join(member("b"));
    bench.pass(Duration::from_secs(2));
    assert!(bench.joined.is_empty(), "a member joined, so it waits again");
    bench.pass(Duration::from_secs(2));
    let (a, b) = (bench.joined(a), bench.joined(b));
    assert_eq!((a.generation, b.generation), (1, 1));
    assert_eq!((a.leader.as_str(), b.leader.as_str()), ("a", "a"));
    assert_eq!((a.members.len(), b.members.len()), (2, 0), "only the leader learns of all");
}

#[test]
fn the_assignment_is_sent_once_it_is_stored() {
    let mut bench = Bench::stable(&["a", "b"]);
    assert_eq!(bench.heartbeat("a", 1), Ok(()));
    assert_eq!(bench.heartbeat("a", 0), Err(ErrorCode::ILLEGAL_GENERATION));
    assert_eq!(bench.heartbeat("x", 1), Err(ErrorCode::UNKNOWN_MEMBER_ID));
    let repeated = bench.sync("b", 1, &[]);
    assert_eq!(bench.assignment(repeated), "b");

    // The leader triggers a new assignment that cannot be stored: all members rejoin.
    let a = bench.join(again("a"));
    assert_eq!(bench.heartbeat("b", 1), Err(ErrorCode::REBALANCE_IN_PROGRESS));
    let b = bench.join(again("b"));
    assert_eq!((bench.joined(a).generation, bench.joined(b).generation), (2, 2));
    let b = bench.sync("b", 2, &[]);
    let a = bench.sync("a", 2, &[("b", "new")]);
    assert!(bench.synced.is_empty());
    let value = bench.stored(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
    assert_eq!((value.generation, value.members[1].assignment.as_ref()), (2, &b"new"[..]));
    for waiter in [a, b] {
        let answer = bench.synced.remove(&waiter);
        assert_eq!(answer, Some(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)));
    }
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn an_assignment_of_an_earlier_generation_changes_nothing() {
    let mut bench = Bench::stable(&["a"]);
    let a = bench.join(again("a"));
    bench.joined(a);
    let early = bench.sync("a", 2, &[("a", "two")]);
    let a =
        bench.join(Join { protocols: speaking("", &["range", "other"]).protocols, ..again("a") });
    assert_eq!(bench.synced.remove(&early), Some(Err(ErrorCode::REBALANCE_IN_PROGRESS)));
    assert_eq!(bench.joined(a).generation, 3);
    let current = bench.sync("a", 3, &[("a", "three")]);
    bench.stored(Ok(()));
    assert_eq!(bench.group.state(), GroupState::CompletingRebalance, "generation 2 is over");
    bench.stored(Ok(()));
    assert_eq!(bench.assignment(current), "three");
}

#[test]
fn protocols_are_chosen_by_votes() {
    let cases: &[(&[&[&str]], Option<&str>)] = &[
        (&[&["range"]], Some("range")),
        (&[&["a", "b"], &["b", "a"], &["b", "a"]], Some("b")),
        (&[&["a", "b", "c"], &["c", "b"], &["b", "c"]], Some("b")),
        (&[&["a", "b"], &["c", "b"]], Some("b")),
        (&[&["a"], &["b"]], None),
    ];
    for (members, expected) in cases {
        let mut bench = Bench::new(Duration::from_secs(3));
        let joins: Vec<_> = members
            .iter()
            .enumerate()
            .map(|(n, protocols)| bench.join(speaking(&n.to_string(), protocols)))
            .collect();
        let Some(expected) = expected else {
            let last = bench.refused(joins[joins.len() - 1]);
            assert_eq!(last, ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
            continue;
        };
        bench.pass(Duration::from_secs(10));
        for waiter in joins {
            assert_eq!(bench.joined(waiter).protocol, *expected, "{members:?}");
        }
    }
    let mut bench = Bench::stable(&["a"]);
    let other = bench.join(Join { protocol_type: "connect".into(), ..member("b") });
    assert_eq!(bench.refused(other), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
}

#[test]
fn members_that_do_not_rejoin_are_removed_at_the_rebalance_timeout() {
    let mut bench = Bench::stable(&["a", "b"]);
    let c = bench.join(member("c"));
    let b = bench.join(again("b"));
    // Member a still sends heartbeats, so only the rebalance timeout removes it.
    for _ in 0..12 {
        bench.pass(Duration::from_secs(5) - Duration::from_millis(1));
        assert_eq!(bench.heartbeat("a", 1), Err(ErrorCode::REBALANCE_IN_PROGRESS));
        assert!(bench.joined.is_empty());
    }
    bench.pass(Duration::from_secs(1));
    let (b, c) = (bench.joined(b), bench.joined(c));
    assert_eq!((b.generation, b.leader.as_str(), b.members.len()), (2, "b", 2));
    assert_eq!((c.generation, c.members.len()), (2, 0));
    assert_eq!(bench.heartbeat("a", 1), Err(ErrorCode::UNKNOWN_MEMBER_ID));
}

#[test]
fn a_member_without_heartbeats_is_removed_and_the_others_rebalance() {
    let mut bench = Bench::stable(&["a", "b"]);
    bench.pass(SESSION - Duration::from_millis(1));
    assert_eq!(bench.heartbeat("b", 1), Ok(()));
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    let b = bench.join(again("b"));
    let joined = bench.joined(b);
    assert_eq!((joined.generation, joined.leader.as_str()), (2, "b"));

    // It does not request its assignment. Heartbeats keep its session, but the rebalance timeout
    // still removes it.
    for _ in 0..12 {
        bench.pass(Duration::from_secs(5) - Duration::from_millis(1));
        assert_eq!(bench.heartbeat("b", 2), Ok(()));
    }
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.group.state(), GroupState::Empty);
    assert_eq!(bench.stored(Ok(())).generation, 3);
    assert!(bench.group.is_unused() && bench.group.deadline().is_none());
}

#[test]
fn a_waiting_member_keeps_its_session_but_a_new_one_is_removed_after_300_seconds() {
    let mut bench = Bench::stable(&["a", "b"]);
    bench.group.members.values_mut().for_each(|m| m.rebalance_timeout = Duration::from_secs(1000));
    let c = bench.join(Join { rebalance_timeout: Duration::from_secs(1000), ..member("c") });
    let b = bench.join(again("b"));
    let mut passed = Duration::ZERO;
    while !bench.joined.contains_key(&c) {
        passed += Duration::from_secs(5);
        bench.pass(Duration::from_secs(5));
        let _ = bench.heartbeat("a", 1);
        assert!(!bench.joined.contains_key(&b), "b waits");
    }
    assert_eq!(
        (bench.refused(c), passed),
        (ErrorCode::UNKNOWN_MEMBER_ID, Duration::from_secs(300))
    );
}

#[test]
fn several_members_leave_in_one_request() {
    let mut bench = Bench::stable(&["a", "b"]);
    let results = bench.leave(&[("x", None), ("a", None)]);
    assert_eq!(results, [Err(ErrorCode::UNKNOWN_MEMBER_ID), Ok(())]);
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    assert_eq!(bench.leave(&[("b", None)]), [Ok(())]);
    assert_eq!(bench.group.state(), GroupState::Empty);
    let (value, _) = bench.stores.remove(0);
    assert_eq!((value.generation, value.members.len(), value.leader), (2, 0, None));
    assert_eq!(value.protocol_type, "consumer");
}

#[test]
fn a_restarted_static_member_keeps_its_assignment() {
    let mut bench = Bench::new(Duration::from_secs(3));
    let a = bench.join(static_member("i1-a", "i1"));
    let b = bench.join(static_member("i2-b", "i2"));
    bench.pass(Duration::from_secs(6));
    assert_eq!(bench.joined(a).leader, "i1-a");
    bench.joined(b);
    let a = bench.sync("i1-a", 1, &[("i1-a", "one"), ("i2-b", "two")]);
    bench.stored(Ok(()));
    assert_eq!(bench.assignment(a), "one");

    // The leader is restarted: no rebalance, the assignment stays, the previous member is fenced.
    let restarted = bench.join(static_member("i1-c", "i1"));
    assert!(bench.joined.is_empty(), "not before it is stored");
    let value = bench.stored(Ok(()));
    assert_eq!(value.members[0].id, "i1-c");
    assert_eq!(value.members[0].assignment.as_ref(), b"one");
    let joined = bench.joined(restarted);
    assert_eq!((joined.generation, joined.leader.as_str()), (1, "i1-c"));
    assert!(joined.skip_assignment && joined.members.len() == 2);
    assert_eq!(bench.group.state(), GroupState::Stable);
    let fenced = bench.group.heartbeat(bench.now, "i1-a", Some("i1"), 1);
    assert_eq!(fenced, Err(ErrorCode::FENCED_INSTANCE_ID));
    assert_eq!(bench.group.heartbeat(bench.now, "i1-c", Some("i1"), 1), Ok(()));
    let unknown = bench.group.heartbeat(bench.now, "i1-c", Some("i9"), 1);
    assert_eq!(unknown, Err(ErrorCode::UNKNOWN_MEMBER_ID));

    // An older client is not told that it leads, so that it computes no assignment.
    let old = Join { may_skip_assignment: false, ..static_member("i1-d", "i1") };
    let restarted = bench.join(old);
    bench.stored(Ok(()));
    let joined = bench.joined(restarted);
    assert_eq!((joined.leader.as_str(), joined.members.len()), ("i1-c", 0));

    // A change of protocols triggers a rebalance.
    let mut other = static_member("i2-e", "i2");
    other.protocols.insert(0, ("sticky".into(), Bytes::new()));
    other.protocols.pop();
    let incompatible = bench.join(other);
    assert_eq!(bench.refused(incompatible), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);

    // A tool removes the member by its instance id.
    assert_eq!(bench.leave(&[("", Some("i2"))]), [Ok(())]);
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    assert_eq!(bench.leave(&[("x", Some("i1"))]), [Err(ErrorCode::FENCED_INSTANCE_ID)]);
}

#[test]
fn a_static_member_that_does_not_rejoin_stays_in_the_generation() {
    let mut bench = Bench::new(Duration::from_secs(3));
    bench.join(Join { session_timeout: Duration::from_secs(600), ..static_member("s", "i") });
    bench.join(member("a"));
    bench.pass(Duration::from_secs(6));
    bench.sync("s", 1, &[]);
    bench.sync("a", 1, &[]);
    bench.stored(Ok(()));
    bench.joined.clear();
    let a = bench.join(Join { protocols: speaking("", &["range", "x"]).protocols, ..again("a") });
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    bench.pass(REBALANCE);
    let joined = bench.joined(a);
    assert_eq!((joined.leader.as_str(), joined.members.len()), ("a", 2));
}

#[test]
fn a_commit_needs_the_current_generation_and_a_known_member() {
    let mut bench = Bench::new(Duration::ZERO);
    let now = bench.now;
    let none = |group: &mut Group| group.may_commit(now, "", None, -1);
    assert_eq!(
        none(&mut bench.group),
        Ok(()),
        "a group without members keeps offsets for every client"
    );
    let mut bench = Bench::stable(&["a"]);
    let now = bench.now;
    let cases = [
        (("a", 1), Ok(())),
        (("a", 2), Err(ErrorCode::ILLEGAL_GENERATION)),
        (("x", 1), Err(ErrorCode::UNKNOWN_MEMBER_ID)),
        (("", -1), Err(ErrorCode::UNKNOWN_MEMBER_ID)),
    ];
    for ((id, generation), expected) in cases {
        assert_eq!(bench.group.may_commit(now, id, None, generation), expected, "{id}");
    }
    assert_eq!(bench.group.may_commit_in_transaction("", None, -1), Ok(()));
    let a = bench.join(again("a"));
    bench.joined(a);
    let refused = bench.group.may_commit(now, "a", None, 2);
    assert_eq!(refused, Err(ErrorCode::REBALANCE_IN_PROGRESS));
    assert_eq!(bench.group.may_commit_in_transaction("a", None, 2), Ok(()));
}

#[test]
fn a_loaded_group_continues_with_new_sessions() {
    let mut before = Bench::stable(&["a", "b"]);
    before.join(again("a"));
    let b = before.join(again("b"));
    before.joined(b);
    before.sync("a", 2, &[("a", "1"), ("b", "2")]);
    let value = before.stored(Ok(()));
    let config = GroupConfig { initial_rebalance_delay: Duration::from_secs(3) };
    let mut bench = Bench::new(Duration::ZERO);
    bench.group = Group::load(config, value);
    bench.group.resume(bench.now);
    assert_eq!(bench.group.state(), GroupState::Stable);
    assert_eq!(bench.heartbeat("b", 2), Ok(()));
    let b = bench.sync("b", 2, &[]);
    assert_eq!(bench.assignment(b), "2");
    let described = bench.group.describe();
    assert_eq!((described[0].id.as_str(), described[0].assignment.as_ref()), ("a", &b"1"[..]));
    // The sessions have restarted.
    bench.pass(SESSION);
    assert_eq!(bench.group.state(), GroupState::Empty);
}
