//! Requests that may have added something to the transaction, although no response said so.

use proptest::prelude::*;

use super::*;

/// A request that adds something to a transaction of version 1.
#[derive(Clone, Copy, Debug)]
enum Adding {
    Partitions,
    Group,
}

impl Adding {
    fn begin(self, bench: &mut Bench) {
        match self {
            Self::Partitions => assert!(!bench.machine.enlist(key(0))),
            Self::Group => drop(bench.machine.add_offsets(offsets("g")).expect("open")),
        }
    }

    fn request(self) -> Request {
        match self {
            Self::Partitions => Request::AddPartitions(vec![key(0)]),
            Self::Group => Request::AddOffsets("g".into()),
        }
    }

    fn reply(self, code: ErrorCode) -> Reply<&'static str> {
        match (self, code) {
            (Self::Partitions, code) => Reply::Each(vec![(key(0), code)]),
            (Self::Group, ErrorCode::NONE) => Reply::Done,
            (Self::Group, code) => Reply::Refused(code),
        }
    }
}

/// Codes that refuse one attempt and leave the producer usable, and whether each proves that nothing was added. Kafka's
/// coordinator maps a failed append to one of the last three.
const REFUSALS: [(ErrorCode, bool); 7] = [
    (ErrorCode::CONCURRENT_TRANSACTIONS, true),
    (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, true),
    (ErrorCode::TOPIC_AUTHORIZATION_FAILED, true),
    (ErrorCode::GROUP_AUTHORIZATION_FAILED, true),
    (ErrorCode::NOT_COORDINATOR, false),
    (ErrorCode::COORDINATOR_NOT_AVAILABLE, false),
    (ErrorCode::REQUEST_TIMED_OUT, false),
];

/// Aborts, and returns whether the coordinator received the end of the transaction. InitProducerId with the identity
/// ends it as well: the coordinator aborts an open transaction before it returns the next epoch (KIP-360).
fn abort_ends_it(bench: &mut Bench, adding: Adding) -> bool {
    bench.machine.abort().expect("open or abortable");
    let mut ended = false;
    loop {
        match bench.step() {
            Step::Drain { wait_for_in_flight } => bench.machine.drained(wait_for_in_flight),
            Step::Idle => break,
            Step::Ask(_, _, ABORT) => {
                ended = true;
                bench.answer(&ABORT, Reply::Done);
            }
            Step::Ask(_, _, request @ Request::InitProducerId(Some(_))) => {
                ended = true;
                bench.answer(&request, Reply::Identity(NEXT));
            }
            Step::Ask(_, _, request) => {
                assert_eq!(request, adding.request());
                bench.answer(&request, adding.reply(ErrorCode::NONE));
            }
            other => panic!("unexpected step {other:?}"),
        }
    }
    assert_eq!(bench.machine.status(), Status::Ready);
    ended
}

#[test]
fn refusal_after_a_lost_response_does_not_cancel_the_end_of_the_transaction() {
    for adding in [Adding::Partitions, Adding::Group] {
        for (code, _) in REFUSALS {
            let mut bench = Bench::open(1);
            adding.begin(&mut bench);
            bench.expect(&adding.request(), Reply::Lost("gone"));
            bench.expect(&adding.request(), adding.reply(code));
            assert!(abort_ends_it(&mut bench, adding), "{adding:?}: lost, then {code}");
        }
    }
}

#[test]
fn refusal_during_the_abort_does_not_cancel_the_end_of_the_transaction() {
    for adding in [Adding::Partitions, Adding::Group] {
        for (code, _) in REFUSALS {
            let mut bench = Bench::open(1);
            adding.begin(&mut bench);
            bench.expect(&adding.request(), Reply::Lost("gone"));
            bench.machine.abort().expect("open");
            bench.drain(true);
            bench.expect(&adding.request(), adding.reply(code));
            assert!(abort_ends_it(&mut bench, adding), "{adding:?}: lost, abort, then {code}");
        }
    }
}

#[test]
fn first_refusal_needs_an_end_unless_it_proves_that_nothing_was_added() {
    for adding in [Adding::Partitions, Adding::Group] {
        for (code, proves) in REFUSALS {
            let mut bench = Bench::open(1);
            adding.begin(&mut bench);
            bench.expect(&adding.request(), adding.reply(code));
            assert_eq!(abort_ends_it(&mut bench, adding), !proves, "{adding:?}: {code}");
        }
    }
}

/// Fate of one request at the coordinator.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Carried,
    /// Whether the request was carried out before its response was lost.
    Lost(bool),
    /// The index of the code in [`REFUSALS`], and whether the request was carried out if the code leaves that open.
    Refused(usize, bool),
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        2 => Just(Fate::Carried),
        2 => any::<bool>().prop_map(Fate::Lost),
        3 => (0..REFUSALS.len(), any::<bool>()).prop_map(|(nth, done)| Fate::Refused(nth, done)),
    ];
    prop::collection::vec(fate, 0..12)
}

/// The transaction's state at Kafka's coordinator.
#[derive(Default)]
struct Coordinates {
    /// A partition or group was added, and the transaction has not ended.
    open: bool,
    /// A transaction of this epoch was aborted: another EndTxn that aborts succeeds.
    aborted: bool,
}

impl Coordinates {
    fn reply(&mut self, request: &Request, fate: Fate) -> Reply<&'static str> {
        let (carried, reply) = match fate {
            Fate::Carried => (true, None),
            Fate::Lost(carried) => (carried, Some(Reply::Lost("gone"))),
            Fate::Refused(nth, carried) => {
                let (code, proves) = REFUSALS[nth];
                (carried && !proves, Some(Reply::Refused(code)))
            }
        };
        let answer = if carried { Some(self.carry_out(request)) } else { None };
        reply.or(answer).unwrap_or(Reply::Lost("gone"))
    }

    fn carry_out(&mut self, request: &Request) -> Reply<&'static str> {
        match request {
            Request::AddPartitions(keys) => {
                self.open = true;
                Reply::Each(keys.iter().map(|key| (key.clone(), ErrorCode::NONE)).collect())
            }
            Request::AddOffsets(_) => {
                self.open = true;
                Reply::Done
            }
            Request::CommitOffsets(offsets) => {
                let each = offsets.offsets.iter().map(|(key, _)| (key.clone(), ErrorCode::NONE));
                Reply::Each(each.collect())
            }
            Request::InitProducerId(_) => {
                *self = Self::default();
                Reply::Identity(NEXT)
            }
            Request::End(Outcome::Abort) if self.open || self.aborted => {
                *self = Self { open: false, aborted: true };
                Reply::Done
            }
            Request::End(Outcome::Abort) => Reply::Refused(ErrorCode::INVALID_TXN_STATE),
            Request::End(Outcome::Commit) => {
                self.open = false;
                Reply::Done
            }
        }
    }
}

proptest! {
    /// After the abort, the coordinator has no open transaction, and it was never asked to end one that it does not
    /// know.
    #[test]
    fn abort_leaves_nothing_open_at_the_coordinator(
        fates in fates(),
        partitions in 0..3_i32,
        groups in 0..3_usize,
        abort_after in 0..12_usize,
    ) {
        let mut bench = Bench::open(1);
        let mut coordinator = Coordinates::default();
        for index in 0..partitions {
            bench.machine.enlist(key(index));
        }
        for group in 0..groups {
            bench.machine.add_offsets(offsets(&format!("g{group}"))).expect("open");
        }
        let mut fates = fates.into_iter();
        for asked in 0..200 {
            if asked >= abort_after || matches!(bench.machine.status(), Status::Abortable(_)) {
                bench.machine.abort().ok();
            }
            match bench.step() {
                Step::Drain { wait_for_in_flight } => bench.machine.drained(wait_for_in_flight),
                Step::Idle => {}
                Step::Ask(_, _, request) => {
                    let ends = !matches!(
                        request,
                        Request::AddPartitions(_) | Request::AddOffsets(_)
                    );
                    let fate = fates.next().filter(|fate| !ends || !matches!(fate, Fate::Refused(..)));
                    let reply = coordinator.reply(&request, fate.unwrap_or(Fate::Carried));
                    bench.answer(&request, reply);
                }
                other => prop_assert!(false, "unexpected step {other:?}"),
            }
            if bench.machine.status() == Status::Ready {
                break;
            }
        }
        prop_assert_eq!(bench.machine.status(), Status::Ready);
        prop_assert!(!coordinator.open, "the transaction stays open until its timeout");
    }
}
