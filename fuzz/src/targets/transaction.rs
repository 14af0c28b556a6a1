//! Operation sequences on the transaction machine, against coordinators that lose requests, lose responses, refuse and lie.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use curtail_proto::{
    accumulator::ProducerIdentity,
    backoff::Backoff,
    metadata::Node,
    transaction::{
        Busy, CommittedOffset, Coordinator, GroupOffsets, Key, Machine, Outcome, Protocol, Reply,
        Request, Severity, Status, Step,
    },
};
use curtail_wire::ErrorCode;

use crate::{Input, Target};

pub(super) const TARGET: Target = Target { name: "transaction", run, seeds, cases: 12_000 };

/// Error codes of coordinators, retriable ones first.
const CODES: [ErrorCode; 16] = [
    ErrorCode::NOT_COORDINATOR,
    ErrorCode::COORDINATOR_NOT_AVAILABLE,
    ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode::CONCURRENT_TRANSACTIONS,
    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode::REQUEST_TIMED_OUT,
    ErrorCode::INVALID_TXN_STATE,
    ErrorCode::INVALID_PRODUCER_ID_MAPPING,
    ErrorCode::INVALID_PRODUCER_EPOCH,
    ErrorCode::PRODUCER_FENCED,
    ErrorCode::TRANSACTION_ABORTABLE,
    ErrorCode::TOPIC_AUTHORIZATION_FAILED,
    ErrorCode::GROUP_AUTHORIZATION_FAILED,
    ErrorCode::OPERATION_NOT_ATTEMPTED,
    ErrorCode::UNKNOWN_MEMBER_ID,
    ErrorCode::UNKNOWN_SERVER_ERROR,
];

/// Codes of a coordinator that did not carry out the request.
const PASSING: usize = 4;

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let mut bench = Bench::new(&mut input);
    while !input.is_empty() {
        bench.operate(&mut input);
        bench.check();
    }
    bench.settle();
}

struct Bench {
    machine: Machine<u32>,
    now: Instant,
    /// Partitions that the application may write to.
    writable: BTreeSet<Key>,
    /// The coordinator's transaction: whether it has begun, and its producer epoch.
    has_begun: bool,
    identity: ProducerIdentity,
    /// The outcome that the application has requested.
    called: Option<Outcome>,
    offsets_taken: u64,
    offsets_done: u64,
}

impl Bench {
    fn new(input: &mut Input<'_>) -> Self {
        let backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(1) };
        let mut machine = Machine::new(backoff);
        machine.coordinator_speaks(if input.flag() { 2 } else { 1 });
        machine.init();
        Self {
            machine,
            now: Instant::now(),
            writable: BTreeSet::new(),
            has_begun: false,
            identity: ProducerIdentity { id: 7, epoch: -1 },
            called: None,
            offsets_taken: 0,
            offsets_done: 0,
        }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0 => {
                let was = self.machine.serial();
                if self.machine.begin().is_ok() {
                    assert_eq!(self.machine.serial(), was + 1);
                    self.called = None;
                    self.writable.clear();
                }
            }
            1 | 2 => {
                let key = key(input);
                if self.machine.enlist(key.clone()) {
                    // With version 2 the write adds the partition.
                    assert_eq!(self.machine.protocol(), Protocol::V2);
                    self.has_begun = true;
                    self.writable.insert(key);
                }
            }
            3 => self.add_offsets(input),
            4 => {
                if self.machine.commit().is_ok() {
                    self.called = Some(Outcome::Commit);
                }
            }
            5 => {
                let committing = matches!(self.machine.status(), Status::Busy(Busy::Committing));
                if self.machine.abort().is_ok() {
                    assert!(!committing, "an outcome that is fixed was changed");
                    self.called = Some(Outcome::Abort);
                }
            }
            6 => {
                let stamped = input.flag().then_some(self.identity);
                let severity =
                    if input.below(8) == 0 { Severity::Fatal } else { Severity::Abortable };
                self.machine.batch_failed(stamped, severity, 1);
            }
            7 => self.machine.coordinator_speaks(1 + input.below(2) as i16),
            8 => self.machine.init(),
            _ => {
                let reply = input.byte();
                self.step(reply);
            }
        }
    }

    fn add_offsets(&mut self, input: &mut Input<'_>) {
        let offset = CommittedOffset { offset: 5, leader_epoch: -1, metadata: "".into() };
        let offsets = GroupOffsets {
            group: format!("g{}", input.below(2)).into(),
            generation: -1,
            member: "".into(),
            instance: None,
            offsets: (0..input.below(3)).map(|_| (key(input), offset.clone())).collect(),
        };
        if let Ok(ticket) = self.machine.add_offsets(offsets) {
            assert!(ticket >= self.offsets_taken || ticket == self.machine.offsets_done());
            self.offsets_taken = self.offsets_taken.max(ticket);
        }
    }

    fn step(&mut self, choice: u8) {
        match self.machine.next(self.now) {
            Step::Idle => assert!(
                !matches!(self.machine.status(), Status::Busy(_)),
                "busy with nothing to do: {:?}",
                self.machine.status()
            ),
            Step::Wait(at) => {
                assert!(at > self.now, "waits for the past");
                self.now = at;
            }
            Step::Drain { wait_for_in_flight } => self.machine.drained(wait_for_in_flight),
            Step::Find(coordinator) => self.find(coordinator, choice),
            Step::Ask(_, coordinator, request) => self.ask(&coordinator, &request, choice),
        }
    }

    fn find(&mut self, coordinator: Coordinator, choice: u8) {
        let found = match choice {
            0..=199 => Ok(node()),
            200..=219 => Err(Reply::Lost(2)),
            220 => Err(Reply::Impossible(3)),
            _ => Err(Reply::Refused(CODES[usize::from(choice) % CODES.len()])),
        };
        let failed = found.is_err();
        self.machine.found(coordinator.clone(), found, self.now, 0.5);
        let again = self.machine.next(self.now) == Step::Find(coordinator);
        assert!(!(failed && again), "looks for a coordinator without a pause");
    }

    fn ask(&mut self, coordinator: &Coordinator, request: &Request, choice: u8) {
        if let Request::End(outcome) = request {
            assert_eq!(self.called, Some(*outcome), "ends as the application has called for");
        }
        let reply = match choice {
            0..=119 => self.serve(request),
            // The request is served and its response is lost.
            120..=149 => {
                self.serve(request);
                Reply::Lost(4)
            }
            150..=169 => Reply::Lost(5),
            170..=209 => Reply::Refused(CODES[usize::from(choice) % PASSING]),
            210..=239 => self.refuse(request, CODES[usize::from(choice) % CODES.len()]),
            _ => Reply::Impossible(6),
        };
        let progresses = matches!(reply, Reply::Identity(_) | Reply::Done | Reply::Each(_));
        let added = self.machine.answered(coordinator, request, reply, self.now, 0.5);
        if let Request::AddPartitions(asked) = request {
            assert!(added.iter().all(|key| asked.contains(key)), "adds what was asked for");
        }
        self.writable.extend(added);
        let again =
            matches!(self.machine.next(self.now), Step::Ask(_, _, next) if next == *request);
        assert!(progresses || !again, "asks {} again without a pause", request.name());
    }

    /// Carries out a request at the coordinator and returns its response.
    fn serve(&mut self, request: &Request) -> Reply<u32> {
        let each = |keys: &mut dyn Iterator<Item = &Key>| {
            Reply::Each(keys.map(|key| (key.clone(), ErrorCode::NONE)).collect())
        };
        match request {
            Request::InitProducerId(_) => {
                self.has_begun = false;
                self.next_epoch()
            }
            Request::AddPartitions(keys) => {
                self.has_begun = true;
                each(&mut keys.iter())
            }
            Request::AddOffsets(_) => {
                self.has_begun = true;
                Reply::Done
            }
            Request::CommitOffsets(offsets) => {
                self.has_begun |= self.machine.protocol() == Protocol::V2;
                each(&mut offsets.offsets.iter().map(|(key, _)| key))
            }
            Request::End(_) => {
                self.has_begun = false;
                match self.machine.protocol() {
                    Protocol::V1 => Reply::Done,
                    Protocol::V2 => self.next_epoch(),
                }
            }
        }
    }

    fn next_epoch(&mut self) -> Reply<u32> {
        self.identity.epoch += 1;
        Reply::Identity(self.identity)
    }

    /// A refusal that fits the coordinator's state.
    fn refuse(&mut self, request: &Request, code: ErrorCode) -> Reply<u32> {
        match code {
            // It has forgotten the producer, and so its transaction.
            ErrorCode::INVALID_PRODUCER_ID_MAPPING => self.has_begun = false,
            // In response to an end, there is no transaction; in response to any other request, it is being ended.
            ErrorCode::INVALID_TXN_STATE | ErrorCode::TRANSACTION_ABORTABLE => {
                self.has_begun &= !matches!(request, Request::End(_));
            }
            _ => {}
        }
        Reply::Refused(code)
    }

    fn check(&mut self) {
        let status = self.machine.status();
        let may_write = self.machine.stamps().is_some();
        assert_eq!(may_write, status == Status::Open && self.machine.identity().is_some());
        let done = self.machine.offsets_done();
        assert!((self.offsets_done..=self.offsets_taken).contains(&done), "offsets done went back");
        self.offsets_done = done;
        if status == Status::Ready {
            assert!(!self.has_begun, "a transaction was left open");
            self.called = None;
        }
        if let Status::Abortable(_) = status {
            self.called = None;
        }
    }

    /// Once coordinators respond, every operation ends within a few steps.
    fn settle(&mut self) {
        for _ in 0..60 + 6 * self.offsets_taken {
            match self.machine.status() {
                Status::Open | Status::Abortable(_) => {
                    self.machine.abort().expect("an open transaction can be aborted");
                    self.called = Some(Outcome::Abort);
                }
                Status::Busy(_) => self.step(0),
                Status::New(_) | Status::Ready | Status::Fatal(_) => return,
            }
            self.check();
        }
        panic!("never ends: {:?}", self.machine.status());
    }
}

fn key(input: &mut Input<'_>) -> Key {
    (Arc::from("t"), input.below(4) as i32)
}

fn node() -> Node {
    Node { id: 1, host: "h".into(), port: 9092, rack: None }
}

fn seeds() -> Vec<Vec<u8>> {
    let step = [9, 0];
    let ready = step.repeat(3);
    let mut seeds = Vec::new();
    for level in 1..3u8 {
        let begun = [&[level - 1][..], &ready, &[0, 1, 0, 1, 1, 3, 0, 1, 2], &step].concat();
        for end in [4, 5] {
            seeds.push([&begun[..], &step.repeat(4), &[end], &step.repeat(6), &[0]].concat());
            seeds.push([&begun[..], &[9, 130, 9, 0, 9, 0, end], &step.repeat(6)].concat());
            seeds.push([&begun[..], &[6, 1, 9, end], &step.repeat(6)].concat());
        }
    }
    seeds
}
