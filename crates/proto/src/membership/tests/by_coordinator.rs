//! A member of the consumer protocol; the test plays the coordinator.

use std::collections::BTreeMap;

use super::*;

const INTERVAL: Duration = Duration::from_secs(5);

pub(super) fn settings_of(member: &str, instance: Option<&str>) -> Settings {
    let protocol = Protocol::Consumer { member: member.into(), assignor: Some("uniform".into()) };
    Settings { instance: instance.map(Arc::from), protocol, ..settings(&[]) }
}

pub(super) fn topic_id(topic: &str) -> Uuid {
    let mut id = [7; 16];
    id[0] = topic.as_bytes()[0];
    Uuid(id)
}

/// Partitions of the topic `t`, by its id.
fn ids(indexes: &[i32]) -> TopicIds {
    let indexes: BTreeSet<i32> = indexes.iter().copied().collect();
    [(topic_id("t"), indexes)].into_iter().filter(|(_, indexes)| !indexes.is_empty()).collect()
}

fn reply(epoch: i32, assignment: Option<&[i32]>) -> Result<GroupReply, Trouble<&'static str>> {
    Ok(GroupReply { epoch, interval: INTERVAL, assignment: assignment.map(ids) })
}

impl Member {
    fn of_coordinator(instance: Option<&str>) -> Self {
        Self::with(settings_of("m", instance))
    }

    /// A member with partitions 0 and 1 in its target, none of them taken, and a heartbeat in flight that frees none.
    fn offered() -> Self {
        let mut member = Self::of_coordinator(None);
        member.flush();
        member.find(1);
        member.heartbeat();
        member.answer(reply(1, Some(&[0, 1])));
        member.name_topic();
        member.pass(INTERVAL);
        assert_eq!(member.heartbeat().owned, None);
        member
    }

    fn heartbeat(&mut self) -> GroupHeartbeat {
        match self.next() {
            Step::GroupHeartbeat(_, heartbeat) => heartbeat,
            step => panic!("{step:?} of {:?}", self.machine),
        }
    }

    fn answer(&mut self, reply: Result<GroupReply, Trouble<&'static str>>) {
        self.machine.group_beaten(reply, self.now, 0.5);
    }

    fn name_topic(&mut self) {
        assert!(matches!(self.next(), Step::Resolve(..)), "{:?}", self.machine);
        self.machine.resolved([(topic_id("t"), "t".into())], self.now);
    }

    /// Joins in epoch 1, with these partitions of `t`.
    fn settle_at_coordinator(&mut self, indexes: &[i32]) {
        self.flush();
        self.find(1);
        let join = self.heartbeat();
        assert_eq!((join.epoch, join.owned), (0, Some(TopicIds::new())));
        self.answer(reply(1, Some(indexes)));
        self.name_topic();
        let adopt = Handover::Adopt { revoked: Vec::new(), added: keys(indexes) };
        assert_eq!(self.hand_over(), adopt);
        let word = self.heartbeat();
        assert_eq!((word.epoch, word.owned.as_ref()), (1, Some(&ids(indexes))));
        self.answer(reply(1, None));
        assert!(self.machine.is_settled());
        assert_eq!(self.next(), Step::Wait(self.now + INTERVAL));
    }
}

#[test]
fn a_member_that_is_fenced_before_it_has_joined_backs_off() {
    for code in [ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::FENCED_MEMBER_EPOCH] {
        let mut member = Member::of_coordinator(None);
        member.flush();
        member.find(1);
        member.heartbeat();
        member.answer(refused(code));
        assert!(matches!(member.next(), Step::Wait(at) if at > member.now), "{:?}", member.machine);
    }
    let mut member = Member::of_coordinator(None);
    member.settle_at_coordinator(&[0]);
    member.pass(INTERVAL);
    member.heartbeat();
    member.answer(refused(ErrorCode::FENCED_MEMBER_EPOCH));
    assert_eq!(member.hand_over(), Handover::Lose(keys(&[0])));
    assert_eq!(member.heartbeat().epoch, 0, "at once");
}

#[test]
fn the_first_heartbeat_has_all_fields_and_later_ones_the_changes() {
    let mut member = Member::of_coordinator(Some("i"));
    member.flush();
    member.find(1);
    let join = GroupHeartbeat {
        member: "m".into(),
        epoch: 0,
        rebalance_timeout: Some(300 * SECOND),
        rack: None,
        assignor: Some("uniform".into()),
        topics: Some(vec!["t".into()]),
        pattern: None,
        owned: Some(TopicIds::new()),
    };
    assert_eq!(member.heartbeat(), join);
    assert_eq!(member.machine.standing(), Standing::Rebalancing);
    member.answer(reply(3, None));
    assert_eq!(member.machine.standing(), Standing::Member(identity(3, "m")));
    member.pass(INTERVAL);
    let nothing = GroupHeartbeat::farewell(&identity(3, "m"));
    assert_eq!(member.heartbeat(), nothing);
    member.answer(reply(3, None));
    // A change of topics is reported at once.
    member.machine.subscribe(["u".into()].into(), member.now);
    let told = GroupHeartbeat { topics: Some(vec!["u".into()]), ..nothing.clone() };
    assert_eq!(member.heartbeat(), told);
    member.answer(reply(4, None));
    member.machine.subscribe_pattern("a.*".into(), member.now);
    let told = member.heartbeat();
    assert_eq!((told.topics, told.pattern), (Some(Vec::new()), Some("a.*".into())));
    member.answer(reply(5, None));
    member.machine.subscribe(["t".into()].into(), member.now);
    let told = member.heartbeat();
    assert_eq!((told.topics, told.pattern), (Some(vec!["t".into()]), Some("".into())));
    // The coordinator may not have seen a heartbeat without a response.
    member.answer(Err(Trouble::Lost("gone")));
    member.pass(SECOND);
    member.find(2);
    let full = GroupHeartbeat { epoch: 5, pattern: Some("".into()), ..join };
    assert_eq!(member.heartbeat(), full);
    member.answer(refused(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
    assert!(matches!(member.next(), Step::Wait(_)));
    member.pass(SECOND);
    assert_eq!(member.heartbeat(), full);
    member.answer(reply(5, None));
    assert_eq!(member.next(), Step::Wait(member.now + INTERVAL));
}

#[test]
fn a_revocation_is_acknowledged_after_its_commits_have_a_response() {
    let mut member = Member::of_coordinator(None);
    member.settle_at_coordinator(&[0, 1]);
    member.pass(INTERVAL);
    member.heartbeat();
    member.answer(reply(1, Some(&[1])));
    assert_eq!(member.next(), Step::Wait(member.now + INTERVAL), "nothing is revoked yet");
    assert_eq!(member.hand_over(), Handover::Revoke(keys(&[0])));
    // The member continues its heartbeats without reporting what it owns.
    member.pass(INTERVAL);
    assert_eq!(member.heartbeat(), GroupHeartbeat::farewell(&identity(1, "m")));
    member.answer(reply(1, None));
    assert_eq!(member.machine.standing(), Standing::Member(identity(1, "m")));
    member.flush();
    let word = member.heartbeat();
    assert_eq!((word.epoch, word.owned), (1, Some(ids(&[1]))));
    member.answer(reply(2, Some(&[1, 2])));
    let adopt = Handover::Adopt { revoked: Vec::new(), added: keys(&[2]) };
    assert_eq!(member.hand_over(), adopt);
    assert_eq!(member.heartbeat().owned, Some(ids(&[1, 2])));
}

#[test]
fn commits_without_a_response_do_not_hold_partitions_indefinitely() {
    let mut member = Member::of_coordinator(None);
    member.settle_at_coordinator(&[0]);
    member.pass(INTERVAL);
    member.heartbeat();
    member.answer(reply(1, Some(&[])));
    assert_eq!(member.hand_over(), Handover::Revoke(keys(&[0])));
    for _ in 0..60 {
        member.pass(INTERVAL);
        member.machine.polled(member.now);
        if let Step::GroupHeartbeat(_, heartbeat) = member.next() {
            if heartbeat.owned == Some(TopicIds::new()) {
                return;
            }
            member.answer(reply(1, None));
        }
    }
    panic!("{:?}", member.machine);
}

#[test]
fn an_offer_that_is_withdrawn_is_acknowledged_at_once() {
    let mut member = Member::offered();
    member.answer(reply(1, Some(&[0])));
    assert_eq!(
        member.heartbeat().owned,
        Some(TopicIds::new()),
        "the application has taken no partition"
    );
    // The coordinator may assign to others what this heartbeat reports as not owned, so the application must wait.
    assert_eq!(member.machine.handover(), None);
    member.answer(reply(2, None));
    let adopt = Handover::Adopt { revoked: Vec::new(), added: keys(&[0]) };
    assert_eq!(member.hand_over(), adopt);
}

#[test]
fn an_offer_waits_until_the_coordinator_responds_to_what_is_owned() {
    let gone = || Err(Trouble::Lost("gone"));
    // The coordinator refuses a request whose append has timed out, and keeps the assignment that it has appended.
    let timed_out = || refused(ErrorCode::COORDINATOR_NOT_AVAILABLE);
    for trouble in [gone, timed_out] {
        let mut member = Member::offered();
        member.answer(trouble());
        assert!(member.machine.wants_application(), "that heartbeat has freed no partition");
        member.pass(SECOND);
        member.find(1);
        assert_eq!(member.heartbeat().owned, Some(TopicIds::new()));
        member.answer(trouble());
        assert_eq!(member.machine.handover(), None, "another member may have partition 1");
        member.pass(SECOND);
        member.find(1);
        assert_eq!(member.heartbeat().owned, Some(TopicIds::new()));
        assert_eq!(member.machine.handover(), None);
        member.answer(reply(2, Some(&[0])));
        let adopt = Handover::Adopt { revoked: Vec::new(), added: keys(&[0]) };
        assert_eq!(member.hand_over(), adopt);
        assert_eq!(member.heartbeat().owned, Some(ids(&[0])));
    }
}

#[test]
fn partitions_that_the_application_begins_to_take_count_as_owned() {
    let mut member = Member::of_coordinator(None);
    member.flush();
    member.find(1);
    member.heartbeat();
    member.answer(reply(1, Some(&[0, 1])));
    member.name_topic();
    assert!(member.machine.handover().is_some());
    assert_eq!(member.heartbeat().owned, Some(ids(&[0, 1])));
    member.answer(reply(1, Some(&[0])));
    assert!(!member.machine.wants_application());
    member.machine.handed_over(member.now);
    assert_eq!(member.hand_over(), Handover::Revoke(keys(&[1])));
    member.flush();
    assert_eq!(member.heartbeat().owned, Some(ids(&[0])));
}

#[test]
fn topics_are_taken_when_their_names_are_known() {
    let mut member = Member::of_coordinator(None);
    member.flush();
    member.find(1);
    member.heartbeat();
    let mut wanted = ids(&[0]);
    wanted.insert(topic_id("u"), [4].into());
    let assignment = Some(wanted.clone());
    member.answer(Ok(GroupReply { epoch: 1, interval: INTERVAL, assignment }));
    let Step::Resolve(unknown, until) = member.next() else { panic!("{:?}", member.machine) };
    assert_eq!(unknown, [topic_id("t"), topic_id("u")]);
    assert_eq!(until, member.now + INTERVAL, "heartbeats do not wait for names");
    member.machine.resolved([(topic_id("t"), "t".into()), (topic_id("x"), "x".into())], member.now);
    let adopt = Handover::Adopt { revoked: Vec::new(), added: keys(&[0]) };
    assert_eq!(member.hand_over(), adopt);
    assert_eq!(member.heartbeat().owned, Some(ids(&[0])));
    member.answer(reply(1, None));
    assert_eq!(member.next(), Step::Wait(member.now + SECOND));
    member.pass(SECOND);
    assert!(matches!(member.next(), Step::Resolve(unknown, _) if unknown == [topic_id("u")]));
    member.machine.resolved([(topic_id("u"), "u".into())], member.now);
    let adopt = Handover::Adopt { revoked: Vec::new(), added: vec![("u".into(), 4)] };
    assert_eq!(member.hand_over(), adopt);
    assert_eq!(member.heartbeat().owned, Some(wanted));
}

#[test]
fn a_topic_that_was_recreated_is_claimed_by_its_new_id() {
    let mut member = Member::of_coordinator(None);
    member.settle_at_coordinator(&[0]);
    member.pass(INTERVAL);
    member.heartbeat();
    let recreated = Uuid([9; 16]);
    let assignment: TopicIds = [(recreated, [0].into())].into();
    let again = GroupReply { epoch: 2, interval: INTERVAL, assignment: Some(assignment.clone()) };
    member.answer(Ok(again));
    assert_eq!(member.hand_over(), Handover::Revoke(keys(&[0])));
    assert!(matches!(member.next(), Step::Resolve(..)), "{:?}", member.machine);
    member.machine.resolved([(recreated, "t".into())], member.now);
    member.heartbeat();
    member.answer(reply(2, None));
    member.flush();
    assert_eq!(member.heartbeat().owned, Some(TopicIds::new()));
    member.answer(reply(2, None));
    let adopt = Handover::Adopt { revoked: Vec::new(), added: keys(&[0]) };
    assert_eq!(member.hand_over(), adopt);
    assert_eq!(member.heartbeat().owned, Some(assignment));
}

#[test]
fn a_member_that_is_fenced_joins_again_as_itself() {
    for code in [ErrorCode::FENCED_MEMBER_EPOCH, ErrorCode::UNKNOWN_MEMBER_ID] {
        for handing in [false, true] {
            let mut member = Member::of_coordinator(None);
            member.settle_at_coordinator(&[0, 1]);
            let former = identity(1, "m");
            member.pass(INTERVAL);
            member.heartbeat();
            member.answer(reply(1, Some(&[0])));
            if handing {
                assert_eq!(member.machine.handover(), Some(Handover::Revoke(keys(&[1]))));
            }
            member.pass(INTERVAL);
            member.heartbeat();
            member.answer(refused(code));
            assert_eq!(member.machine.successor(&former), None);
            let left = if handing {
                member.machine.handed_over(member.now);
                keys(&[0])
            } else {
                keys(&[0, 1])
            };
            assert_eq!(member.machine.standing(), Standing::Outside);
            assert_eq!(member.next(), Step::Idle, "the application has to know first");
            assert_eq!(member.hand_over(), Handover::Lose(left));
            let join = member.heartbeat();
            assert_eq!((&*join.member, join.epoch), ("m", 0));
            assert_eq!(join.owned, Some(TopicIds::new()));
            member.answer(reply(7, Some(&[])));
            assert_eq!(member.machine.successor(&former), None, "it was not a member all the time");
            assert_eq!(member.machine.standing(), Standing::Member(identity(7, "m")));
        }
    }
}

#[test]
fn a_commit_of_an_earlier_epoch_is_tried_again() {
    let mut member = Member::of_coordinator(None);
    member.settle_at_coordinator(&[0]);
    member.pass(INTERVAL);
    member.heartbeat();
    let stale = ErrorCode::STALE_MEMBER_EPOCH;
    assert!(member.machine.commit_refused(&identity(1, "m"), stale, member.now));
    member.answer(reply(4, None));
    assert!(member.machine.commit_refused(&identity(1, "m"), stale, member.now));
    assert_eq!(member.machine.successor(&identity(1, "m")), Some(identity(4, "m")));
    assert_eq!(member.machine.successor(&identity(1, "n")), None);
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
    assert!(!member.machine.commit_refused(&identity(4, "m"), unknown, member.now));
    assert!(!member.machine.commit_refused(&identity(4, "m"), stale, member.now));
    assert_eq!(member.hand_over(), Handover::Lose(keys(&[0])));
}

#[test]
fn a_response_after_the_end_of_the_membership_is_ignored() {
    let mut member = Member::of_coordinator(None);
    member.settle_at_coordinator(&[0]);
    member.pass(INTERVAL);
    member.heartbeat();
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
    assert!(!member.machine.commit_refused(&identity(1, "m"), unknown, member.now));
    member.answer(reply(2, Some(&[0, 1])));
    assert_eq!(member.hand_over(), Handover::Lose(keys(&[0])));
    assert_eq!(member.heartbeat().epoch, 0);
    // A response of the epoch that means "left" is ignored too.
    member.answer(reply(-1, None));
    assert_eq!(member.machine.standing(), Standing::Rebalancing);
    member.pass(SECOND);
    assert_eq!(member.heartbeat().epoch, 0);
}

#[test]
fn the_epoch_of_a_leave_shows_whether_the_member_is_static() {
    for (instance, epoch) in [(None, -1), (Some("i"), -2)] {
        for joined in [false, true] {
            let mut member = Member::of_coordinator(instance);
            if joined {
                member.settle_at_coordinator(&[0]);
            } else {
                member.flush();
                member.find(1);
                member.heartbeat();
            }
            member.machine.leave(Departure::ByKind);
            member.answer(reply(2, Some(&[1])));
            assert_eq!(member.next(), Step::Leave(node(1), identity(epoch, "m")));
            member.machine.left();
            assert_eq!(member.next(), Step::Idle);
            member.machine.leave(Departure::ByKind);
            assert_eq!(member.next(), Step::Idle, "once");
            member.machine.subscribe(["t".into()].into(), member.now);
            member.flush();
            assert_eq!(member.heartbeat().epoch, 0);
        }
    }
    let mut member = Member::of_coordinator(None);
    member.machine.leave(Departure::ByKind);
    assert_eq!(member.next(), Step::Idle, "the coordinator does not know the member");
}

#[test]
fn a_member_may_leave_although_it_is_static_and_stay_although_it_is_dynamic() {
    for (instance, departure, epoch) in [
        (Some("i"), Departure::Leave, Some(-1)),
        (None, Departure::Leave, Some(-1)),
        (Some("i"), Departure::Remain, Some(-2)),
        (None, Departure::Remain, None),
    ] {
        let mut member = Member::of_coordinator(instance);
        member.settle_at_coordinator(&[0]);
        member.machine.leave(departure);
        let expected = epoch.map_or(Step::Idle, |epoch| Step::Leave(node(1), identity(epoch, "m")));
        assert_eq!(member.next(), expected, "{instance:?} {departure:?}");
    }
}

#[test]
fn an_application_that_does_not_poll_leaves() {
    for (instance, epoch) in [(None, -1), (Some("i"), -2)] {
        let mut member = Member::of_coordinator(instance);
        member.settle_at_coordinator(&[0]);
        member.pass(300 * SECOND);
        assert_eq!(member.next(), Step::Leave(node(1), identity(epoch, "m")));
        member.machine.left();
        assert_eq!(member.next(), Step::Idle, "until it polls again");
        assert_eq!(member.hand_over(), Handover::Lose(keys(&[0])));
        assert_eq!(member.heartbeat().epoch, 0);
    }
}

#[test]
fn a_refusal_fails_the_member_and_a_missing_permission_is_retried() {
    let cases = [
        (ErrorCode::UNRELEASED_INSTANCE_ID, true),
        (ErrorCode::FENCED_INSTANCE_ID, true),
        (ErrorCode::UNSUPPORTED_ASSIGNOR, true),
        (ErrorCode::INVALID_REGULAR_EXPRESSION, true),
        (ErrorCode::GROUP_MAX_SIZE_REACHED, true),
        (ErrorCode::UNSUPPORTED_VERSION, true),
        (ErrorCode::INVALID_REQUEST, true),
        (ErrorCode::GROUP_AUTHORIZATION_FAILED, false),
        (ErrorCode::TOPIC_AUTHORIZATION_FAILED, false),
    ];
    for (code, lasts) in cases {
        let mut member = Member::of_coordinator(None);
        member.settle_at_coordinator(&[0]);
        member.pass(INTERVAL);
        member.heartbeat();
        member.answer(Err(Trouble::Refused(code, Some("words".into()))));
        let reason = Reason::Refused("ConsumerGroupHeartbeat", code, Some("words".into()));
        assert_eq!(member.machine.failure(), Some(&reason));
        assert_eq!(member.hand_over(), Handover::Lose(keys(&[0])));
        assert_eq!(member.machine.complaint(member.now), Some(reason.clone()));
        assert_eq!(member.machine.complaint(member.now), lasts.then_some(reason));
        if lasts {
            assert_eq!(member.next(), Step::Idle);
            member.machine.subscribe(["t".into()].into(), member.now);
        }
        member.pass(SECOND);
        assert_eq!(member.heartbeat().epoch, 0);
    }
}

#[test]
fn names_are_those_of_the_target() {
    let mut member = Member::of_coordinator(None);
    member.settle_at_coordinator(&[0]);
    member.machine.resolved(BTreeMap::from([(topic_id("z"), "z".into())]), member.now);
    member.pass(INTERVAL);
    member.heartbeat();
    let assignment = Some([(topic_id("z"), BTreeSet::from([0]))].into());
    member.answer(Ok(GroupReply { epoch: 2, interval: INTERVAL, assignment }));
    assert!(
        matches!(member.next(), Step::Resolve(..)),
        "a name that was not requested is not kept"
    );
}
