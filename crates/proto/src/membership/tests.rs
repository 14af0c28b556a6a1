//! The tests play the coordinator and the clock.

use super::*;
use crate::assignor::Layout;

mod by_coordinator;
mod coordinator;
mod group;
mod racks;

type Machine = Membership<&'static str>;

const SECOND: Duration = Duration::from_secs(1);

struct Member {
    machine: Machine,
    now: Instant,
}

fn settings(assignors: &[Assignor]) -> Settings {
    let backoff = Backoff { initial: SECOND / 10, max: SECOND };
    Settings {
        instance: None,
        max_poll_interval: 300 * SECOND,
        protocol: Protocol::Classic {
            heartbeat_interval: 3 * SECOND,
            assignors: assignors.to_vec(),
        },
        rack: None,
        backoff,
    }
}

fn node(id: i32) -> Node {
    Node { id, host: "h".into(), port: 1, rack: None }
}

fn keys(indexes: &[i32]) -> Vec<Key> {
    indexes.iter().map(|index| ("t".into(), *index)).collect()
}

fn identity(generation: i32, member: &str) -> Identity {
    Identity { generation, member: member.into() }
}

fn refused<T>(code: ErrorCode) -> Result<T, Trouble<&'static str>> {
    Err(Trouble::Refused(code, None))
}

impl Member {
    fn with(settings: Settings) -> Self {
        let now = Instant::now();
        let mut machine = Machine::new(settings, now);
        assert_eq!(machine.next(now), Step::Idle);
        machine.subscribe(["t".into()].into(), now);
        Self { machine, now }
    }

    fn new(assignor: Assignor) -> Self {
        Self::with(settings(&[assignor]))
    }

    fn next(&mut self) -> Step {
        self.machine.next(self.now)
    }

    /// Metadata describes these topics.
    fn see(&mut self, layouts: &Topics) {
        if let Some(topics) = self.machine.led_topics() {
            self.machine.look_at_topics(&topics, layouts, self.now);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn find(&mut self, id: i32) {
        assert_eq!(self.next(), Step::Find);
        self.machine.found(Ok(node(id)), self.now, 0.5);
    }

    fn flush(&mut self) {
        assert!(matches!(self.next(), Step::Flush(_)), "{:?}", self.machine);
        self.machine.flushed();
    }

    fn expect_join(&mut self, member: &str) -> Subscription {
        let Step::Join(_, join) = self.next() else { panic!("{:?}", self.machine) };
        assert_eq!(&*join.member, member);
        Subscription::decode(&join.protocols[0].1).expect("well formed")
    }

    /// The coordinator completes the rebalance with another member as the leader.
    fn join_behind(&mut self, generation: i32, member: &str) {
        let protocol = self.machine.settings.protocol.assignors()[0].name().to_owned();
        let reply = JoinReply {
            generation,
            member: member.into(),
            protocol,
            leader: "leader".into(),
            skip_assignment: false,
            members: Vec::new(),
        };
        self.machine.joined(Ok(reply), self.now, 0.5);
    }

    fn given(&mut self, indexes: &[i32]) {
        let Step::Sync(_, sync) = self.next() else { panic!("{:?}", self.machine) };
        assert_eq!(sync.assignments, [], "only a leader assigns");
        let partitions = assignor::by_topic(&keys(indexes));
        let assignment = consumer_protocol::Assignment { partitions, user_data: None };
        self.machine.synced(Ok(assignment.encode(1)), self.now, 0.5);
    }

    fn hand_over(&mut self) -> Handover {
        let handover = self.machine.handover().expect("something to do");
        self.machine.handed_over(self.now);
        handover
    }

    /// Completes the first rebalance, as `m` in generation 1.
    fn settle(&mut self, indexes: &[i32]) {
        self.flush();
        self.find(1);
        self.expect_join("");
        let required = ErrorCode::MEMBER_ID_REQUIRED;
        self.machine.joined(Err(Trouble::Refused(required, Some("m".into()))), self.now, 0.5);
        self.expect_join("m");
        self.join_behind(1, "m");
        self.given(indexes);
        let adopt = Handover::Adopt { revoked: Vec::new(), added: keys(indexes) };
        assert_eq!(self.hand_over(), adopt);
        assert!(self.machine.is_settled());
    }

    fn beat(&mut self, reply: Result<(), Trouble<&'static str>>) {
        self.pass(3 * SECOND);
        self.machine.polled(self.now);
        let Step::Heartbeat(_, of) = self.next() else { panic!("{:?}", self.machine) };
        assert_eq!(Some(of), self.machine.identity());
        self.machine.beaten(reply, self.now, 0.5);
    }
}

#[test]
fn a_member_joins_and_beats() {
    let mut member = Member::new(Assignor::Range);
    member.settle(&[0, 1]);
    assert_eq!(member.machine.standing(), Standing::Member(identity(1, "m")));
    assert_eq!(member.next(), Step::Wait(member.now + 3 * SECOND));
    for _ in 0..3 {
        member.beat(Ok(()));
        assert!(member.machine.is_settled());
    }
}

#[test]
fn the_leader_assigns_and_follows_the_metadata() {
    for skip_assignment in [false, true] {
        let mut member = Member::new(Assignor::Range);
        member.flush();
        member.find(1);
        let ours = member.expect_join("").encode(3);
        let theirs = Subscription { topics: vec!["u".into()], ..Subscription::default() };
        let reply = JoinReply {
            generation: 1,
            member: "m".into(),
            protocol: "range".into(),
            leader: "m".into(),
            skip_assignment,
            members: vec![
                ("m".into(), None, ours),
                ("n".into(), Some("i".into()), theirs.encode(0)),
                ("x".into(), None, Bytes::from_static(b"?")),
            ],
        };
        member.machine.joined(Ok(reply), member.now, 0.5);
        let Step::Assign(Assignor::Range, members) = member.next() else { panic!() };
        let named: Vec<&str> = members.iter().map(|member| &*member.id).collect();
        assert_eq!(named, ["m", "n"]);
        assert!(member.machine.follows("t") && member.machine.follows("u"));
        assert!(!member.machine.follows("v"));
        assert_eq!(member.machine.led_topics(), None, "the assignment is being made");
        let counts: Topics = [("t".into(), 2.into())].into();
        let assignments = Assignor::Range.assign(&counts, &members);
        member.machine.assigned(&assignments, counts);
        let Step::Sync(_, sync) = member.next() else { panic!() };
        assert_eq!(sync.identity, identity(1, "m"));
        assert_eq!(sync.assignments.len(), if skip_assignment { 0 } else { 2 });
        let partitions = assignor::by_topic(&keys(&[0, 1]));
        let assignment = consumer_protocol::Assignment { partitions, user_data: None };
        member.machine.synced(Ok(assignment.encode(3)), member.now, 0.5);
        member.hand_over();
        let see = |count: Option<i32>, member: &mut Member| {
            let layouts = count.map(|count| ("t".into(), count.into()));
            member.see(&layouts.into_iter().collect());
        };
        see(Some(2), &mut member);
        see(None, &mut member);
        assert!(member.machine.is_settled(), "nothing has changed");
        see(Some(3), &mut member);
        assert_eq!(member.hand_over(), Handover::Revoke(keys(&[0, 1])));
        member.flush();
        member.expect_join("m");
    }
}

#[test]
fn an_eager_member_revokes_all_partitions_first() {
    let mut member = Member::new(Assignor::Sticky);
    member.settle(&[0, 1]);
    member.beat(refused(ErrorCode::REBALANCE_IN_PROGRESS));
    // The application takes long to revoke; the member continues its heartbeats and may commit.
    member.beat(refused(ErrorCode::REBALANCE_IN_PROGRESS));
    assert_eq!(member.machine.standing(), Standing::Member(identity(1, "m")));
    assert_eq!(member.hand_over(), Handover::Revoke(keys(&[0, 1])));
    assert_eq!(member.machine.standing(), Standing::Member(identity(1, "m")), "commits go first");
    member.flush();
    let told = member.expect_join("m");
    assert_eq!((told.owned.len(), told.generation), (0, 1));
    let data = told.user_data.expect("sticky tells what it had");
    let data = consumer_protocol::StickyData::decode(&data).expect("well formed");
    assert_eq!(data.partitions, assignor::by_topic(&keys(&[0, 1])));
    assert_eq!(member.machine.standing(), Standing::Rebalancing);
    member.join_behind(2, "m");
    member.given(&[1, 2]);
    let adopt = Handover::Adopt { revoked: Vec::new(), added: keys(&[1, 2]) };
    assert_eq!(member.hand_over(), adopt);
}

#[test]
fn a_cooperative_member_revokes_only_partitions_that_move() {
    let mut member = Member::new(Assignor::CooperativeSticky);
    member.settle(&[0, 1]);
    member.beat(refused(ErrorCode::REBALANCE_IN_PROGRESS));
    assert_eq!(member.machine.handover(), None);
    member.flush();
    let told = member.expect_join("m");
    assert_eq!(told.owned, assignor::by_topic(&keys(&[0, 1])));
    assert_eq!(told.generation, 1);
    member.join_behind(2, "m");
    member.given(&[0]);
    let adopt = Handover::Adopt { revoked: keys(&[1]), added: Vec::new() };
    assert_eq!(member.hand_over(), adopt);
    // The next rebalance assigns the revoked partition.
    member.flush();
    assert_eq!(member.expect_join("m").owned, assignor::by_topic(&keys(&[0])));
    member.join_behind(3, "m");
    member.given(&[0]);
    member.hand_over();
    assert!(member.machine.is_settled());
}

#[test]
fn membership_that_ends_during_a_revocation_loses_all_partitions_at_once() {
    for code in [ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::GROUP_AUTHORIZATION_FAILED] {
        let mut member = Member::new(Assignor::CooperativeSticky);
        member.settle(&[0, 1]);
        member.beat(refused(ErrorCode::REBALANCE_IN_PROGRESS));
        member.flush();
        member.expect_join("m");
        member.join_behind(2, "m");
        member.given(&[0]);
        let adopt = Handover::Adopt { revoked: keys(&[1]), added: Vec::new() };
        assert_eq!(member.machine.handover(), Some(adopt));
        assert_eq!(
            (member.machine.has_ended_in_handover(), member.machine.lost()),
            (false, vec![])
        );
        member.beat(refused(code));
        let lost = (true, keys(&[0, 1]));
        assert_eq!((member.machine.has_ended_in_handover(), member.machine.lost()), lost);
        member.machine.handed_over(member.now);
        assert!(!member.machine.has_ended_in_handover());
        assert_eq!(member.machine.lost(), keys(&[0]));
        assert_eq!(member.hand_over(), Handover::Lose(keys(&[0])));
        assert_eq!(member.machine.lost(), []);
    }
}

#[test]
fn an_offer_that_was_not_taken_is_dropped() {
    for assignor in [Assignor::Range, Assignor::CooperativeSticky] {
        let mut member = Member::new(assignor);
        member.flush();
        member.find(1);
        member.join_behind(1, "m");
        member.given(&[0]);
        member.beat(refused(ErrorCode::REBALANCE_IN_PROGRESS));
        assert_eq!(member.machine.handover(), None);
        member.flush();
        assert_eq!(member.expect_join("m").owned, []);
    }
}

#[test]
fn a_started_handover_is_finished_before_a_later_event_applies() {
    for code in [ErrorCode::REBALANCE_IN_PROGRESS, ErrorCode::UNKNOWN_MEMBER_ID] {
        let mut member = Member::new(Assignor::CooperativeSticky);
        member.flush();
        member.find(1);
        member.join_behind(1, "m");
        member.given(&[0, 1]);
        let adopt = Handover::Adopt { revoked: Vec::new(), added: keys(&[0, 1]) };
        assert!(member.machine.wants_application());
        assert_eq!(member.machine.handover(), Some(adopt));
        assert!(!member.machine.wants_application());
        member.beat(refused(code));
        member.machine.handed_over(member.now);
        if code == ErrorCode::REBALANCE_IN_PROGRESS {
            member.flush();
            assert_eq!(member.expect_join("m").owned, assignor::by_topic(&keys(&[0, 1])));
        } else {
            assert_eq!(member.hand_over(), Handover::Lose(keys(&[0, 1])));
        }
    }
    let mut member = Member::new(Assignor::Range);
    member.settle(&[0]);
    member.beat(refused(ErrorCode::REBALANCE_IN_PROGRESS));
    assert_eq!(member.machine.handover(), Some(Handover::Revoke(keys(&[0]))));
    member.pass(300 * SECOND);
    assert_eq!(member.next(), Step::Leave(node(1), identity(1, "m")));
    member.machine.left();
    assert_eq!((member.machine.standing(), member.next()), (Standing::Outside, Step::Idle));
    member.machine.handed_over(member.now);
    assert_eq!(member.machine.handover(), None, "nothing is left to lose");
    member.expect_join("");
}

#[test]
fn other_topics_need_a_rebalance() {
    for (assignor, revoked) in [(Assignor::Range, 2), (Assignor::CooperativeSticky, 2)] {
        let mut member = Member::new(assignor);
        member.settle(&[0, 1]);
        member.machine.subscribe(["t".into()].into(), member.now);
        assert!(member.machine.is_settled());
        member.machine.subscribe(["u".into()].into(), member.now);
        let Handover::Revoke(keys) = member.hand_over() else { panic!() };
        assert_eq!(keys.len(), revoked);
        member.flush();
        assert_eq!(member.expect_join("m").topics, ["u".into()]);
        // The topics change again during the join: the response is for the previous topics.
        member.machine.subscribe(["v".into()].into(), member.now);
        member.join_behind(2, "m");
        member.given(&[]);
        member.hand_over();
        member.flush();
        assert_eq!(member.expect_join("m").topics, ["v".into()]);
    }
}

#[test]
fn a_member_that_the_coordinator_forgot_has_lost_its_partitions() {
    let cases = [(ErrorCode::UNKNOWN_MEMBER_ID, ""), (ErrorCode::ILLEGAL_GENERATION, "m")];
    for (code, id) in cases {
        for by_commit in [false, true] {
            let mut member = Member::new(Assignor::CooperativeSticky);
            member.settle(&[0, 1]);
            if by_commit {
                let now = member.now;
                assert!(!member.machine.commit_refused(&identity(1, "m"), code, now));
                // A commit of an earlier generation is not evidence.
                assert!(member.machine.commit_refused(&identity(0, "m"), code, now));
            } else {
                member.beat(refused(code));
            }
            assert_eq!(member.machine.standing(), Standing::Outside);
            assert_eq!(member.next(), Step::Idle, "the application has to know first");
            assert_eq!(member.hand_over(), Handover::Lose(keys(&[0, 1])));
            assert_eq!(member.expect_join(id).owned, []);
        }
    }
}

#[test]
fn a_fenced_member_stops() {
    let mut member = Member::new(Assignor::Range);
    member.settle(&[0]);
    member.beat(refused(ErrorCode::FENCED_INSTANCE_ID));
    let expected = Reason::Refused("Heartbeat", ErrorCode::FENCED_INSTANCE_ID, None);
    assert_eq!(member.machine.failure(), Some(&expected));
    assert_eq!(member.hand_over(), Handover::Lose(keys(&[0])));
    assert_eq!((member.machine.handover(), member.next()), (None, Step::Idle));
    member.machine.subscribe(["t".into()].into(), member.now);
    assert_eq!(member.machine.failure(), None);
    member.expect_join("");
}

/// A member whose first JoinGroup was refused.
fn refused_to_join(code: ErrorCode) -> Member {
    let mut member = Member::new(Assignor::Range);
    member.flush();
    member.find(1);
    member.expect_join("");
    member.machine.joined(refused(code), member.now, 0.5);
    member
}

#[test]
fn a_fixable_refusal_is_retried_with_the_next_poll() {
    for (code, lasts) in [
        (ErrorCode::GROUP_AUTHORIZATION_FAILED, false),
        (ErrorCode::GROUP_MAX_SIZE_REACHED, false),
        (ErrorCode::FENCED_INSTANCE_ID, true),
    ] {
        let mut member = refused_to_join(code);
        let reason = Reason::Refused("JoinGroup", code, None);
        assert_eq!(member.machine.complaint(member.now), Some(reason.clone()));
        assert_eq!(member.next(), Step::Idle, "the application has to ask again");
        assert_eq!(member.machine.complaint(member.now), lasts.then_some(reason));
        if lasts {
            continue;
        }
        assert_eq!(member.next(), Step::Wait(member.now + SECOND / 10), "not as fast as it polls");
        member.pass(SECOND / 10);
        member.expect_join("");
    }
}

#[test]
fn a_final_refusal_fails_the_member() {
    let cases = [
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode::INVALID_SESSION_TIMEOUT,
        ErrorCode::GROUP_AUTHORIZATION_FAILED,
        ErrorCode::GROUP_MAX_SIZE_REACHED,
        ErrorCode::INVALID_GROUP_ID,
    ];
    for code in cases {
        let mut member = refused_to_join(code);
        assert_eq!(member.machine.failure(), Some(&Reason::Refused("JoinGroup", code, None)));
        assert_eq!((member.machine.handover(), member.next()), (None, Step::Idle));
    }
}

#[test]
fn a_retriable_refusal_is_retried() {
    let cases = [
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::REBALANCE_IN_PROGRESS,
        ErrorCode::UNKNOWN_SERVER_ERROR,
    ];
    for code in cases {
        let mut member = refused_to_join(code);
        assert_eq!(member.next(), Step::Wait(member.now + SECOND / 10));
        member.pass(SECOND / 10);
        member.expect_join("");
    }
}

#[test]
fn another_coordinator_is_looked_up() {
    let mut member = Member::new(Assignor::Range);
    member.settle(&[0]);
    member.beat(refused(ErrorCode::NOT_COORDINATOR));
    assert_eq!(member.next(), Step::Wait(member.now + SECOND / 10));
    member.pass(SECOND / 10);
    assert_eq!(member.next(), Step::Find);
    member.machine.found(refused(ErrorCode::COORDINATOR_NOT_AVAILABLE), member.now, 0.5);
    assert_eq!(member.next(), Step::Wait(member.now + SECOND / 5));
    member.pass(SECOND / 5);
    member.find(2);
    let Step::Heartbeat(at, _) = member.next() else { panic!() };
    assert_eq!(at.id, 2);
    member.machine.beaten(refused(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS), member.now, 0.5);
    member.beat(Err(Trouble::Lost("gone")));
    member.pass(SECOND);
    member.find(1);
    member.beat(Ok(()));
    assert!(member.machine.is_settled());
}

#[test]
fn a_commit_that_a_join_has_overtaken_costs_no_partition() {
    for (code, stays) in
        [(ErrorCode::ILLEGAL_GENERATION, true), (ErrorCode::UNKNOWN_MEMBER_ID, false)]
    {
        let mut member = Member::new(Assignor::CooperativeSticky);
        member.settle(&[0, 1]);
        member.beat(refused(ErrorCode::REBALANCE_IN_PROGRESS));
        member.flush();
        member.expect_join("m");
        assert_eq!(member.machine.commit_refused(&identity(1, "m"), code, member.now), stays);
        if stays {
            assert_eq!(member.machine.standing(), Standing::Rebalancing);
            member.join_behind(2, "m");
            member.given(&[0, 1]);
            assert_eq!(member.machine.standing(), Standing::Member(identity(2, "m")));
        } else {
            assert_eq!(member.hand_over(), Handover::Lose(keys(&[0, 1])));
        }
    }
}

#[test]
fn a_rebalance_that_fails_on_the_way_begins_again() {
    let mut member = Member::new(Assignor::Range);
    member.settle(&[]);
    member.beat(refused(ErrorCode::REBALANCE_IN_PROGRESS));
    member.flush();
    member.expect_join("m");
    member.machine.joined(Err(Trouble::Lost("gone")), member.now, 0.5);
    member.pass(SECOND);
    member.find(2);
    member.expect_join("m");
    member.join_behind(2, "m");
    member.machine.synced(refused(ErrorCode::REBALANCE_IN_PROGRESS), member.now, 0.5);
    member.expect_join("m");
    member.join_behind(3, "m");
    member.machine.synced(Err(Trouble::Lost("gone")), member.now, 0.5);
    member.pass(SECOND);
    member.find(2);
    member.expect_join("m");
    member.join_behind(4, "m");
    member.given(&[3]);
    assert_eq!(member.machine.standing(), Standing::Member(identity(4, "m")));
}

#[test]
fn an_application_that_does_not_poll_loses_its_partitions() {
    for instance in [None, Some("i".into())] {
        let is_static = instance.is_some();
        let protocol = Protocol::Classic {
            heartbeat_interval: 1000 * SECOND,
            assignors: vec![Assignor::Range],
        };
        let mut member =
            Member::with(Settings { instance, protocol, ..settings(&[Assignor::Range]) });
        member.settle(&[0]);
        member.pass(299 * SECOND);
        member.machine.polled(member.now);
        member.pass(299 * SECOND);
        assert_eq!(member.next(), Step::Wait(member.now + SECOND));
        member.pass(SECOND);
        if !is_static {
            assert_eq!(member.next(), Step::Leave(node(1), identity(1, "m")));
            member.machine.left();
        }
        assert_eq!(member.next(), Step::Idle, "until it polls again");
        assert_eq!(member.machine.standing(), Standing::Outside);
        assert_eq!(member.hand_over(), Handover::Lose(keys(&[0])));
        member.expect_join("");
    }
}

/// The coordinator gives a returning static member its last assignment, and begins no rebalance. No member would read
/// the partitions that it had to revoke in the next one.
#[test]
fn a_static_member_that_lost_partitions_to_revoke_requests_a_rebalance() {
    let instance = Some("static".into());
    let mut member =
        Member::with(Settings { instance, ..settings(&[Assignor::CooperativeSticky]) });
    member.settle(&[0, 1, 2]);
    member.beat(refused(ErrorCode::REBALANCE_IN_PROGRESS));
    member.flush();
    member.expect_join("m");
    member.join_behind(2, "m");
    member.given(&[0]);
    // The application does not take that offer, because it no longer polls.
    member.pass(301 * SECOND);
    member.next();
    assert_eq!(member.hand_over(), Handover::Lose(keys(&[0, 1, 2])));
    assert!(matches!(member.next(), Step::Join(..)), "{:?}", member.machine);
    member.join_behind(2, "n");
    member.given(&[0]);
    assert_eq!(member.hand_over(), Handover::Adopt { revoked: Vec::new(), added: keys(&[0]) });
    member.flush();
    member.expect_join("n");
    member.join_behind(3, "n");
    member.given(&[0]);
    assert_eq!(member.hand_over(), Handover::Adopt { revoked: Vec::new(), added: Vec::new() });
    assert!(member.machine.is_settled(), "once is enough");
}

/// A known member joins again at once. A member that is refused before it has joined backs off.
#[test]
fn a_join_that_is_refused_repeatedly_backs_off() {
    for code in [
        ErrorCode::UNKNOWN_MEMBER_ID,
        ErrorCode::ILLEGAL_GENERATION,
        ErrorCode::FENCED_MEMBER_EPOCH,
    ] {
        let mut member = Member::new(Assignor::Range);
        member.flush();
        member.find(1);
        member.expect_join("");
        member.machine.joined(refused(code), member.now, 0.5);
        let Step::Wait(at) = member.next() else { panic!("{code}: {:?}", member.machine) };
        assert!(at > member.now, "{code}");
    }
    let mut member = Member::new(Assignor::Range);
    member.settle(&[0]);
    member.pass(3 * SECOND);
    member.beat(refused(ErrorCode::UNKNOWN_MEMBER_ID));
    assert_eq!(member.hand_over(), Handover::Lose(keys(&[0])));
    member.expect_join("");
}

#[test]
fn a_member_id_that_is_required_repeatedly_is_requested_with_backoff() {
    let mut member = Member::new(Assignor::Range);
    member.flush();
    member.find(1);
    let required = || Err(Trouble::Refused(ErrorCode::MEMBER_ID_REQUIRED, Some("id".into())));
    member.expect_join("");
    member.machine.joined(required(), member.now, 0.5);
    member.expect_join("id");
    member.machine.joined(required(), member.now, 0.5);
    assert!(matches!(member.next(), Step::Wait(at) if at > member.now), "{:?}", member.machine);
}

#[test]
fn a_leaving_member_sends_leave_group_unless_it_keeps_its_place() {
    for (instance, departure, leaves) in [
        (None, Departure::ByKind, true),
        (Some("i"), Departure::ByKind, false),
        (Some("i"), Departure::Leave, true),
        (None, Departure::Leave, true),
        (None, Departure::Remain, false),
        (Some("i"), Departure::Remain, false),
    ] {
        let instance = instance.map(Arc::from);
        let mut member = Member::with(Settings { instance, ..settings(&[Assignor::Range]) });
        assert_eq!(member.machine.last_member(), None);
        member.settle(&[0]);
        member.machine.leave(departure);
        assert!(member.machine.owned().is_empty());
        assert_eq!(member.machine.last_member().as_deref(), Some("m"));
        if leaves {
            assert_eq!(member.next(), Step::Leave(node(1), identity(1, "m")));
            assert!(member.machine.is_departing());
            member.machine.left();
        }
        assert!(!member.machine.is_departing());
        assert_eq!(member.next(), Step::Idle);
        member.machine.subscribe(["t".into()].into(), member.now);
        member.flush();
        member.expect_join("");
    }
}

#[test]
fn an_enforced_rebalance_revokes_and_joins() {
    let mut member = Member::new(Assignor::Range);
    member.settle(&[0]);
    member.machine.enforce_rebalance(member.now);
    let revoked = Handover::Revoke(vec![("t".into(), 0)]);
    assert_eq!(member.machine.handover(), Some(revoked));
    member.machine.handed_over(member.now);
    member.flush();
    member.expect_join("m");
}

#[test]
fn a_leave_does_not_wait_for_a_coordinator_that_cannot_be_found() {
    let mut member = Member::new(Assignor::Range);
    member.settle(&[0]);
    member.machine.coordinator_lost(&node(1));
    member.machine.leave(Departure::ByKind);
    assert_eq!(member.next(), Step::Find);
    member.machine.found(Err(Trouble::Lost("gone")), member.now, 0.5);
    assert_eq!(member.next(), Step::Idle);
}

#[test]
fn a_member_that_leaves_while_joining_leaves_with_the_assigned_id() {
    let required = |id: &str| Err(Trouble::Refused(ErrorCode::MEMBER_ID_REQUIRED, Some(id.into())));
    for assigned in [true, false] {
        let mut member = Member::new(Assignor::Range);
        member.flush();
        member.find(1);
        member.expect_join("");
        assert!(member.machine.awaits_group() && !member.machine.is_departing());
        member.machine.leave(Departure::ByKind);
        assert!(!member.machine.awaits_group());
        assert!(member.machine.is_departing(), "the coordinator may have assigned an id");
        if assigned {
            member.machine.joined(required("id"), member.now, 0.5);
            assert_eq!(member.next(), Step::Leave(node(1), identity(-1, "id")));
        } else {
            // A coordinator without KIP-394.
            member.join_behind(1, "m");
            assert_eq!(member.next(), Step::Leave(node(1), identity(1, "m")));
        }
        assert!(member.machine.is_departing());
        member.machine.left();
        assert!(!member.machine.is_departing());
        assert_eq!(member.next(), Step::Idle);
    }
}

#[test]
fn a_member_that_joins_again_first_leaves_with_the_id_of_its_first_join() {
    let mut member = Member::new(Assignor::Range);
    member.flush();
    member.find(1);
    member.expect_join("");
    member.machine.leave(Departure::ByKind);
    member.machine.subscribe(["t".into()].into(), member.now);
    let required = ErrorCode::MEMBER_ID_REQUIRED;
    member.machine.joined(Err(Trouble::Refused(required, Some("id".into()))), member.now, 0.5);
    assert_eq!(member.next(), Step::Leave(node(1), identity(-1, "id")));
    member.machine.left();
    member.flush();
    member.expect_join("");
}

#[test]
fn a_member_that_leaves_while_joining_ignores_a_lost_response_and_those_to_an_id() {
    let mut member = Member::new(Assignor::Range);
    member.flush();
    member.find(1);
    member.expect_join("");
    member.machine.leave(Departure::ByKind);
    member.machine.joined(Err(Trouble::Lost("abandoned")), member.now, 0.5);
    assert!(!member.machine.is_departing());
    assert_eq!(member.next(), Step::Idle);

    let mut member = Member::new(Assignor::Range);
    member.flush();
    member.find(1);
    member.expect_join("");
    let required = ErrorCode::MEMBER_ID_REQUIRED;
    member.machine.joined(Err(Trouble::Refused(required, Some("m".into()))), member.now, 0.5);
    member.expect_join("m");
    member.machine.leave(Departure::ByKind);
    assert_eq!(member.next(), Step::Leave(node(1), identity(-1, "m")));
    member.machine.left();
    member.join_behind(1, "m");
    assert_eq!(member.next(), Step::Idle);
}

#[test]
fn a_member_that_keeps_its_place_does_not_wait_for_an_id() {
    for (instance, departure) in [(None, Departure::Remain), (Some("i"), Departure::ByKind)] {
        let instance = instance.map(Arc::from);
        let mut member = Member::with(Settings { instance, ..settings(&[Assignor::Range]) });
        member.flush();
        member.find(1);
        member.expect_join("");
        member.machine.leave(departure);
        assert!(!member.machine.is_departing());
        member.join_behind(1, "m");
        assert_eq!(member.next(), Step::Idle);
    }
}
