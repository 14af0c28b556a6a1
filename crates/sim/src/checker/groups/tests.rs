use super::*;
use crate::history::ReadBack;

/// A hand-made group history: one millisecond between its events.
#[derive(Default)]
struct Told {
    history: History,
    now: u64,
}

impl Told {
    fn new() -> Self {
        let history = History { group: Some(GroupHistory::default()), ..History::default() };
        Self { history, now: 0 }
    }

    fn group(&mut self) -> &mut GroupHistory {
        self.history.group.as_mut().expect("a group")
    }

    fn pass(&mut self) -> Duration {
        self.now += 1;
        Duration::from_millis(self.now)
    }

    fn deed(mut self, member: u32, what: What) -> Self {
        let at = self.pass();
        self.group().deeds.push(Deed { at, member, what });
        self
    }

    fn written(mut self, what: Written) -> Self {
        let at_ms = self.pass().as_millis() as i64;
        self.group().log.push(GroupRecord { at_ms, what });
        self
    }

    fn generation(self, number: i32, members: &[(u32, &[i32])]) -> Self {
        let members = members.iter().map(|(member, given)| (*member, given.to_vec())).collect();
        self.written(Written::Generation(number, members))
    }

    fn offset(self, partition: i32, offset: i64) -> Self {
        self.written(Written::Offset(partition, offset))
    }

    fn given(self, member: u32, partition: i32, offsets: std::ops::Range<i64>) -> Self {
        offsets.fold(self, |told, offset| told.deed(member, What::Given(partition, offset)))
    }

    fn kinds(&self) -> Vec<&'static str> {
        check(&self.history).iter().map(Violation::kind).collect()
    }
}

/// Member 1 has partition 0, has received three records and committed two of them.
fn one_reader() -> Told {
    Told::new()
        .generation(1, &[(1, &[0])])
        .deed(1, What::Assigned(vec![0]))
        .given(1, 0, 0..3)
        .deed(1, What::Polls)
        .offset(0, 2)
        .deed(1, What::Committed(vec![(0, 2)]))
}

#[test]
fn a_handover_in_order_is_fine() {
    let told = one_reader()
        .deed(1, What::Revoked(vec![0]))
        .offset(0, 3)
        .generation(2, &[(1, &[]), (2, &[0])])
        .deed(2, What::Assigned(vec![0]))
        .given(2, 0, 3..5);
    assert_eq!(told.kinds(), [""; 0]);
    assert_eq!(one_reader().kinds(), [""; 0]);
}

#[test]
fn two_members_of_a_generation_do_not_read_the_same() {
    let two = |second: &[(u32, &[i32])]| {
        one_reader().generation(2, second).deed(2, What::Assigned(vec![0])).given(2, 0, 2..3)
    };
    assert_eq!(two(&[(1, &[]), (2, &[0])]).kinds(), ["read-by-two"; 2]);
    // Member 1 was evicted: it reads on until it is notified.
    assert_eq!(two(&[(2, &[0])]).given(1, 0, 3..4).kinds(), [""; 0]);
    // A late static member is not removed from the group.
    let mut late = two(&[(1, &[]), (2, &[0])]);
    late.group().statics.insert(1);
    assert_eq!(late.kinds(), ["read-by-two"; 2], "it has no reason to be late");
    late.group().trouble.push((Duration::ZERO, Duration::from_millis(1)));
    assert_eq!(late.kinds(), [""; 0]);
}

#[test]
fn a_member_reads_only_its_assignment() {
    let told = Told::new().generation(1, &[(1, &[1])]).deed(1, What::Assigned(vec![0]));
    assert_eq!(told.kinds(), ["never-assigned"]);
    let told = Told::new().generation(1, &[(1, &[0]), (2, &[0])]);
    assert_eq!(told.kinds(), ["assigned-twice"]);
    let told = one_reader().deed(1, What::Revoked(vec![0])).given(1, 0, 3..4);
    assert_eq!(told.kinds(), ["given-after-all"]);
    assert_eq!(one_reader().deed(1, What::Ended).given(1, 0, 3..4).kinds(), ["given-after-all"]);
}

#[test]
fn a_member_reads_without_gaps_from_the_committed_offset_on() {
    assert_eq!(one_reader().given(1, 0, 4..5).kinds(), ["given-out-of-order"]);
    assert_eq!(one_reader().given(1, 0, 2..3).kinds(), ["given-out-of-order"]);
    let next = |from: i64| {
        one_reader()
            .deed(1, What::Ended)
            .generation(2, &[(2, &[0])])
            .deed(2, What::Assigned(vec![0]))
            .given(2, 0, from..from + 1)
    };
    assert_eq!(next(2).kinds(), [""; 0]);
    for elsewhere in [0, 1, 3] {
        assert_eq!(next(elsewhere).kinds(), ["began-elsewhere"], "{elsewhere}");
    }
}

#[test]
fn partitions_are_lost_for_a_reason() {
    let lost = |told: Told| told.deed(1, What::Lost(vec![0])).kinds();
    assert_eq!(lost(one_reader()), ["lost-for-no-reason"]);
    assert_eq!(lost(one_reader().deed(1, What::Neglects)), [""; 0]);
    let mut troubled = one_reader();
    troubled.group().trouble.push((Duration::ZERO, Duration::from_millis(2)));
    assert_eq!(lost(troubled), [""; 0]);
    let mut later = one_reader();
    later.group().trouble.push((Duration::from_secs(1), Duration::from_secs(2)));
    assert_eq!(lost(later), ["lost-for-no-reason"]);
}

#[test]
fn a_commit_covers_only_returned_records() {
    assert_eq!(one_reader().offset(0, 3).kinds(), [""; 0]);
    assert_eq!(one_reader().offset(0, 4).kinds(), ["committed-ahead"]);
    // Auto-commit covers only completed records.
    let mut automatic = one_reader();
    automatic.group().automatic.insert(1);
    let automatic = automatic.given(1, 0, 3..5).offset(0, 3);
    assert_eq!(automatic.kinds(), [""; 0]);
    assert_eq!(automatic.offset(0, 4).kinds(), ["committed-ahead"]);
    let automatic = || {
        let mut automatic = one_reader();
        automatic.group().automatic.insert(1);
        automatic.given(1, 0, 3..5)
    };
    let queues = |partition| automatic().deed(1, What::Finishes(partition)).offset(0, 5).kinds();
    assert_eq!(queues(0), [""; 0], "its queue has asked for more");
    assert_eq!(queues(1), ["committed-ahead"], "another queue has");
    assert_eq!(one_reader().generation(2, &[]).offset(0, 3).kinds(), ["committed-by-nobody"]);
}

#[test]
fn a_commit_goes_back_only_within_a_generation() {
    assert_eq!(one_reader().offset(0, 1).kinds(), [""; 0]);
    let next = one_reader().generation(2, &[(1, &[0])]);
    assert_eq!(next.offset(0, 1).kinds(), ["set-back"]);
}

#[test]
fn an_acknowledged_commit_is_in_the_log() {
    let told = |offset| one_reader().deed(1, What::Committed(vec![(0, offset)])).kinds();
    assert_eq!(told(2), [""; 0]);
    assert_eq!(told(1), [""; 0], "a later one has taken its place");
    assert_eq!(told(3), ["commit-gone"]);
}

#[test]
fn every_record_is_returned_to_a_member() {
    let mut told = one_reader();
    for offset in 0..4 {
        told.history.read.push(ReadBack { partition: 0, offset, id: None });
    }
    assert_eq!(told.kinds(), ["never-given"]);
}
