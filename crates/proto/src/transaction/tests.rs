use std::time::Duration;

use super::*;

mod doubt;

const FIRST: ProducerIdentity = ProducerIdentity { id: 9, epoch: 0 };
const NEXT: ProducerIdentity = ProducerIdentity { id: 9, epoch: 1 };

/// A machine and the time; the test plays the coordinator.
struct Bench {
    machine: Machine<&'static str>,
    now: Instant,
}

fn node(id: i32) -> Node {
    Node { id, host: "localhost".into(), port: 9092, rack: None }
}

fn key(index: i32) -> Key {
    ("t".into(), index)
}

fn offsets(group: &str) -> GroupOffsets {
    GroupOffsets {
        group: group.into(),
        generation: -1,
        member: "".into(),
        instance: None,
        offsets: vec![(
            key(0),
            CommittedOffset { offset: 5, leader_epoch: -1, metadata: "".into() },
        )],
    }
}

impl Bench {
    /// A machine that is initialized with this level of `transaction.version`.
    fn ready(level: i16) -> Self {
        let backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(1) };
        let mut bench = Self { machine: Machine::new(backoff), now: Instant::now() };
        bench.machine.init();
        bench.machine.coordinator_speaks(level);
        assert_eq!(bench.request(), Request::InitProducerId(None));
        bench.answer(&Request::InitProducerId(None), Reply::Identity(FIRST));
        assert_eq!(bench.machine.status(), Status::Ready);
        bench
    }

    fn open(level: i16) -> Self {
        let mut bench = Self::ready(level);
        bench.machine.begin().expect("ready");
        bench
    }

    /// The next step after coordinator lookups and waits.
    fn step(&mut self) -> Step {
        loop {
            match self.machine.next(self.now) {
                Step::Find(coordinator) => {
                    self.machine.found(coordinator, Ok(node(1)), self.now, 0.5);
                }
                Step::Wait(at) => self.now = at,
                step => return step,
            }
        }
    }

    fn request(&mut self) -> Request {
        match self.step() {
            Step::Ask(_, _, request) => request,
            other => panic!("expected a request, got {other:?}"),
        }
    }

    fn answer(&mut self, request: &Request, reply: Reply<&'static str>) -> Vec<Key> {
        let coordinator = match request {
            Request::CommitOffsets(offsets) => Coordinator::Group(offsets.group.clone()),
            _ => Coordinator::Transaction,
        };
        self.machine.answered(&coordinator, request, reply, self.now, 0.5)
    }

    fn expect(&mut self, request: &Request, reply: Reply<&'static str>) -> Vec<Key> {
        assert_eq!(self.request(), *request);
        self.answer(request, reply)
    }

    /// Adds a partition as in version 1.
    fn add(&mut self, index: i32) {
        assert!(!self.machine.enlist(key(index)), "it has to be added first");
        let added = self.expect(
            &Request::AddPartitions(vec![key(index)]),
            Reply::Each(vec![(key(index), ErrorCode::NONE)]),
        );
        assert_eq!(added, [key(index)]);
    }

    fn drain(&mut self, wait_for_in_flight: bool) {
        assert_eq!(self.step(), Step::Drain { wait_for_in_flight });
        self.machine.drained(wait_for_in_flight);
    }
}

const COMMIT: Request = Request::End(Outcome::Commit);
const ABORT: Request = Request::End(Outcome::Abort);

fn refused(code: ErrorCode) -> Reply<&'static str> {
    Reply::Refused(code)
}

#[test]
fn version_1_adds_all_new_partitions_in_one_request_and_keeps_its_epoch() {
    let mut bench = Bench::open(1);
    for index in [2, 0, 1] {
        assert!(!bench.machine.enlist(key(index)));
    }
    let all = vec![key(0), key(1), key(2)];
    let none = all.iter().map(|key| (key.clone(), ErrorCode::NONE)).collect();
    let added = bench.expect(&Request::AddPartitions(all.clone()), Reply::Each(none));
    assert_eq!(added, all);
    assert_eq!(bench.step(), Step::Idle);
    bench.machine.commit().expect("open");
    assert_eq!(bench.machine.stamps(), None, "nothing may be sent");
    bench.expect(&COMMIT, Reply::Done);
    assert_eq!(bench.machine.status(), Status::Ready);
    assert_eq!(bench.machine.identity(), Some(FIRST));
}

#[test]
fn version_2_adds_no_partition_and_takes_the_next_epoch_from_the_end() {
    for (outcome, request) in [(Outcome::Commit, COMMIT), (Outcome::Abort, ABORT)] {
        let mut bench = Bench::open(2);
        assert!(bench.machine.enlist(key(0)));
        assert_eq!(bench.step(), Step::Idle);
        match outcome {
            Outcome::Commit => bench.machine.commit().expect("open"),
            Outcome::Abort => {
                bench.machine.abort().expect("open");
                bench.drain(false);
            }
        }
        bench.expect(&request, Reply::Identity(NEXT));
        assert_eq!(bench.machine.status(), Status::Ready);
        assert_eq!(bench.machine.identity(), Some(NEXT));
    }
}

#[test]
fn an_empty_transaction_ends_without_the_coordinator() {
    for level in [1, 2] {
        let mut bench = Bench::open(level);
        bench.machine.commit().expect("open");
        assert_eq!(bench.step(), Step::Idle);
        assert_eq!(bench.machine.status(), Status::Ready);
        bench.machine.begin().expect("ready");
        bench.machine.abort().expect("open");
        bench.drain(level == 1);
        assert_eq!(bench.step(), Step::Idle);
        assert_eq!(bench.machine.status(), Status::Ready);
    }
}

#[test]
fn an_unfinished_previous_transaction_is_waited_for_with_short_backoff() {
    let mut bench = Bench::open(1);
    bench.machine.enlist(key(0));
    let request = Request::AddPartitions(vec![key(0)]);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let reply = Reply::Each(vec![(key(0), ErrorCode::CONCURRENT_TRANSACTIONS)]);
        assert_eq!(bench.expect(&request, reply), []);
        let Step::Wait(at) = bench.machine.next(bench.now) else { panic!("a pause") };
        pauses.push((at - bench.now).as_millis());
    }
    assert_eq!(pauses, [20, 40, 80, 100, 100]);
    let reply = Reply::Each(vec![(key(0), ErrorCode::NONE)]);
    assert_eq!(bench.expect(&request, reply), [key(0)]);
}

#[test]
fn a_coordinator_that_moves_is_found_again() {
    let mut bench = Bench::open(1);
    bench.add(0);
    bench.machine.commit().expect("open");
    bench.expect(&COMMIT, refused(ErrorCode::NOT_COORDINATOR));
    let Step::Wait(at) = bench.machine.next(bench.now) else { panic!("a pause") };
    assert_eq!(bench.machine.next(at), Step::Find(Coordinator::Transaction));
    bench.machine.found(Coordinator::Transaction, Ok(node(3)), at, 0.5);
    assert_eq!(bench.machine.next(at), Step::Ask(node(3), Coordinator::Transaction, COMMIT));
}

#[test]
fn a_coordinator_that_was_replaced_is_no_longer_asked() {
    let mut bench = Bench::open(1);
    bench.add(0);
    bench.machine.commit().expect("open");
    for (replaced, asked) in [(2, 1), (1, 3)] {
        bench.machine.coordinator_moved(replaced, node(3));
        let ask = Step::Ask(node(asked), Coordinator::Transaction, COMMIT);
        assert_eq!(bench.machine.next(bench.now), ask);
    }
}

#[test]
fn an_end_without_a_response_is_repeated_with_the_same_outcome() {
    let mut bench = Bench::open(2);
    bench.machine.enlist(key(0));
    bench.machine.commit().expect("open");
    bench.expect(&COMMIT, Reply::Lost("gone"));
    assert_eq!(bench.machine.last_problem(), Some(&Reason::Reported("gone")));
    assert!(bench.machine.abort().is_err(), "the commit may have been carried out");
    bench.machine.commit().expect("the same call again");
    bench.expect(&COMMIT, Reply::Identity(NEXT));
    assert_eq!(bench.machine.status(), Status::Ready);
}

#[test]
fn a_lost_batch_costs_version_1_a_new_epoch_after_the_abort() {
    let mut bench = Bench::open(1);
    bench.add(0);
    bench.machine.batch_failed(Some(FIRST), Severity::Abortable, "lost");
    assert_eq!(bench.machine.status(), Status::Abortable(Reason::Reported("lost")));
    assert!(bench.machine.commit().is_err());
    bench.drain(false);
    assert_eq!(bench.step(), Step::Idle);
    bench.machine.abort().expect("abortable");
    bench.drain(true);
    bench.expect(&ABORT, Reply::Done);
    assert_eq!(bench.machine.status(), Status::Busy(Busy::Aborting));
    bench.expect(&Request::InitProducerId(Some(FIRST)), Reply::Identity(NEXT));
    assert_eq!(bench.machine.status(), Status::Ready);
    assert_eq!(bench.machine.identity(), Some(NEXT));
}

#[test]
fn version_1_renews_its_epoch_when_the_abort_loses_batches_in_flight() {
    let mut bench = Bench::open(1);
    bench.add(0);
    bench.machine.abort().expect("open");
    assert_eq!(bench.step(), Step::Drain { wait_for_in_flight: true });
    bench.machine.batch_failed(Some(FIRST), Severity::Abortable, "no response");
    bench.machine.drained(true);
    bench.expect(&ABORT, Reply::Done);
    bench.expect(&Request::InitProducerId(Some(FIRST)), Reply::Identity(NEXT));
}

#[test]
fn an_abort_while_a_failed_transaction_is_drained_still_waits_for_batches_in_flight() {
    let mut bench = Bench::open(1);
    bench.add(0);
    bench.machine.batch_failed(Some(FIRST), Severity::Abortable, "lost");
    assert_eq!(bench.step(), Step::Drain { wait_for_in_flight: false });
    bench.machine.abort().expect("abortable");
    bench.machine.drained(false);
    bench.drain(true);
    assert_eq!(bench.request(), ABORT);
}

#[test]
fn a_batch_of_an_earlier_transaction_does_not_affect_this_one() {
    let mut bench = Bench::open(2);
    bench.machine.enlist(key(0));
    bench.machine.abort().expect("open");
    bench.drain(false);
    bench.expect(&ABORT, Reply::Identity(NEXT));
    bench.machine.begin().expect("ready");
    bench.machine.batch_failed(Some(FIRST), Severity::Fatal, "late and fenced");
    assert_eq!(bench.machine.status(), Status::Open);
    bench.machine.batch_failed(None, Severity::Abortable, "expired before it was sent");
    assert_eq!(
        bench.machine.status(),
        Status::Abortable(Reason::Reported("expired before it was sent"))
    );
}

#[test]
fn additions_in_doubt_are_settled_before_the_abort() {
    let mut bench = Bench::open(1);
    bench.machine.enlist(key(0));
    let request = Request::AddPartitions(vec![key(0)]);
    bench.expect(&request, Reply::Lost("gone"));
    bench.machine.abort().expect("open");
    bench.drain(true);
    bench.expect(&request, Reply::Each(vec![(key(0), ErrorCode::NONE)]));
    bench.expect(&ABORT, Reply::Done);
    assert_eq!(bench.machine.status(), Status::Ready);

    bench.machine.begin().expect("ready");
    bench.machine.add_offsets(offsets("g")).expect("open");
    bench.expect(&Request::AddOffsets("g".into()), Reply::Lost("gone"));
    bench.machine.abort().expect("open");
    bench.drain(true);
    bench.expect(&Request::AddOffsets("g".into()), Reply::Done);
    bench.expect(&ABORT, Reply::Done);
}

#[test]
fn a_partition_that_was_refused_needs_no_end() {
    let mut bench = Bench::open(1);
    bench.machine.enlist(key(0));
    let reply = Reply::Each(vec![
        (key(1), ErrorCode::OPERATION_NOT_ATTEMPTED),
        (key(0), ErrorCode::TOPIC_AUTHORIZATION_FAILED),
    ]);
    bench.expect(&Request::AddPartitions(vec![key(0)]), reply);
    let Status::Abortable(Reason::Refused { about, code, .. }) = bench.machine.status() else {
        panic!("abortable")
    };
    assert_eq!((about.as_str(), code), ("t-0", ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    bench.machine.abort().expect("abortable");
    bench.drain(true);
    assert_eq!(bench.step(), Step::Idle);
    assert_eq!(bench.machine.status(), Status::Ready);
}

#[test]
fn offsets_name_their_group_first_in_version_1_only() {
    for level in [1, 2] {
        let mut bench = Bench::open(level);
        let ticket = bench.machine.add_offsets(offsets("g")).expect("open");
        if level == 1 {
            bench.expect(&Request::AddOffsets("g".into()), Reply::Done);
        }
        let request = Request::CommitOffsets(Arc::new(offsets("g")));
        let Step::Ask(_, coordinator, asked) = bench.step() else { panic!("a request") };
        assert_eq!((&coordinator, &asked), (&Coordinator::Group("g".into()), &request));
        bench.answer(&asked, Reply::Each(vec![(key(0), ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)]));
        assert!(bench.machine.offsets_done() < ticket);
        let asked = bench.request();
        bench.answer(&asked, Reply::Each(vec![(key(0), ErrorCode::NONE)]));
        assert_eq!(bench.machine.offsets_done(), ticket);
        bench.machine.commit().expect("open");
        assert_eq!(bench.request(), COMMIT, "offsets alone make a transaction");
    }
}

#[test]
fn a_member_that_left_its_group_makes_the_transaction_abortable() {
    let mut bench = Bench::open(2);
    let ticket = bench.machine.add_offsets(offsets("g")).expect("open");
    let asked = bench.request();
    bench.answer(&asked, Reply::Each(vec![(key(0), ErrorCode::ILLEGAL_GENERATION)]));
    assert!(matches!(bench.machine.status(), Status::Abortable(_)));
    assert_eq!(bench.machine.offsets_done(), ticket, "the waiting call has ended");
    bench.machine.abort().expect("abortable");
    bench.drain(false);
    assert_eq!(bench.request(), ABORT);
}

#[test]
fn a_fencing_error_is_fatal_from_any_source() {
    for code in [ErrorCode::INVALID_PRODUCER_EPOCH, ErrorCode::PRODUCER_FENCED] {
        let mut bench = Bench::open(1);
        bench.machine.enlist(key(0));
        let adding = Request::AddPartitions(vec![key(0)]);
        bench.expect(&adding, Reply::Each(vec![(key(0), code)]));
        assert!(matches!(bench.machine.status(), Status::Fatal(_)));
        bench.drain(false);
        assert_eq!(bench.step(), Step::Idle);
        assert!(bench.machine.abort().is_err());
        assert!(bench.machine.begin().is_err());

        let mut bench = Bench::open(2);
        bench.machine.enlist(key(0));
        bench.machine.commit().expect("open");
        bench.expect(&COMMIT, refused(code));
        assert!(matches!(bench.machine.status(), Status::Fatal(_)));
    }
}

#[test]
fn a_stale_epoch_at_a_leader_is_not_fatal_by_itself() {
    let code = Some(ErrorCode::INVALID_PRODUCER_EPOCH);
    assert_eq!(severity_of_batch(code), Severity::Abortable);
    assert_eq!(severity_of_batch(Some(ErrorCode::PRODUCER_FENCED)), Severity::Fatal);
    assert_eq!(severity_of_batch(None), Severity::Abortable);
}

#[test]
fn a_commit_refused_as_abortable_can_be_aborted() {
    let mut bench = Bench::open(2);
    bench.machine.enlist(key(0));
    bench.machine.commit().expect("open");
    bench.expect(&COMMIT, refused(ErrorCode::TRANSACTION_ABORTABLE));
    assert!(matches!(bench.machine.status(), Status::Abortable(_)));
    bench.machine.abort().expect("abortable");
    bench.drain(false);
    bench.expect(&ABORT, Reply::Identity(NEXT));
    assert_eq!(bench.machine.status(), Status::Ready);
}

#[test]
fn a_coordinator_that_has_forgotten_the_producer_assigns_a_new_identity() {
    let mut bench = Bench::open(1);
    bench.add(0);
    bench.machine.commit().expect("open");
    bench.expect(&COMMIT, refused(ErrorCode::INVALID_PRODUCER_ID_MAPPING));
    bench.machine.abort().expect("abortable");
    bench.drain(true);
    bench.expect(&Request::InitProducerId(Some(FIRST)), Reply::Identity(NEXT));
    assert_eq!(bench.machine.status(), Status::Ready);
}

#[test]
fn init_that_is_refused_may_be_called_again() {
    let backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(1) };
    let mut bench = Bench { machine: Machine::new(backoff), now: Instant::now() };
    bench.machine.init();
    let init = Request::InitProducerId(None);
    bench.expect(&init, refused(ErrorCode::CONCURRENT_TRANSACTIONS));
    bench.expect(&init, refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED));
    assert!(matches!(bench.machine.status(), Status::New(Some(_))));
    bench.machine.init();
    bench.expect(&init, Reply::Identity(FIRST));
    assert_eq!(bench.machine.status(), Status::Ready);
}

/// These codes concern a transaction, so they can only make an open one abortable.
#[test]
fn a_coordinator_lookup_that_is_refused_repeatedly_backs_off() {
    for code in [ErrorCode::TRANSACTION_ABORTABLE, ErrorCode::GROUP_AUTHORIZATION_FAILED] {
        let backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(1) };
        let mut machine = Machine::<&str>::new(backoff);
        let now = Instant::now();
        machine.init();
        assert_eq!(machine.next(now), Step::Find(Coordinator::Transaction));
        machine.found(Coordinator::Transaction, Err(refused(code)), now, 0.5);
        let step = machine.next(now);
        assert!(matches!(step, Step::Wait(at) if at > now), "{code}: {step:?}");
    }
}
