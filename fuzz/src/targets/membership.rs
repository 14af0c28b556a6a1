//! Operation sequences on a group member of either protocol, against a coordinator with arbitrary responses.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use curtail_proto::{
    assignor::{Assignments, Assignor, Key, Topics},
    backoff::Backoff,
    membership::{
        Departure, GroupReply, Handover, Identity, JoinReply, Membership, Protocol, Settings,
        Standing, Step, Trouble,
    },
    metadata::Node,
};
use curtail_wire::{
    ErrorCode, Uuid,
    consumer_protocol::{Assignment, Subscription},
};

use crate::{Input, Target};

pub(super) const TARGET: Target = Target { name: "membership", run, seeds, cases: 10_000 };

const CODES: [ErrorCode; 14] = [
    ErrorCode::NOT_COORDINATOR,
    ErrorCode::COORDINATOR_NOT_AVAILABLE,
    ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode::REBALANCE_IN_PROGRESS,
    ErrorCode::UNKNOWN_MEMBER_ID,
    ErrorCode::ILLEGAL_GENERATION,
    ErrorCode::FENCED_MEMBER_EPOCH,
    ErrorCode::UNRELEASED_INSTANCE_ID,
    ErrorCode::MEMBER_ID_REQUIRED,
    ErrorCode::REQUEST_TIMED_OUT,
    ErrorCode::UNKNOWN_SERVER_ERROR,
    ErrorCode::GROUP_AUTHORIZATION_FAILED,
    ErrorCode::FENCED_INSTANCE_ID,
    ErrorCode::INVALID_GROUP_ID,
];

const MAX_POLL_INTERVAL: Duration = Duration::from_secs(300);

struct Bench {
    machine: Membership<u32>,
    now: Instant,
    /// The application's handover in progress.
    doing: Option<Handover>,
    /// Partitions that the application reads.
    reads: BTreeSet<Key>,
    is_classic: bool,
    epoch: i32,
}

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let mut bench = Bench::new(&mut input);
    while !input.is_empty() {
        bench.operate(&mut input);
        bench.check();
    }
    bench.settle();
}

impl Bench {
    fn new(input: &mut Input<'_>) -> Self {
        let is_classic = input.flag();
        let assignors = match input.below(3) {
            0 => vec![Assignor::Range, Assignor::CooperativeSticky],
            1 => vec![Assignor::CooperativeSticky],
            _ => vec![Assignor::Sticky],
        };
        let protocol = match is_classic {
            true => Protocol::Classic { heartbeat_interval: Duration::from_secs(3), assignors },
            false => Protocol::Consumer { member: "own".into(), assignor: None },
        };
        let settings = Settings {
            instance: input.flag().then(|| "i".into()),
            max_poll_interval: MAX_POLL_INTERVAL,
            protocol,
            rack: None,
            backoff: Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(1) },
        };
        let now = Instant::now();
        let mut machine = Membership::new(settings, now);
        machine.subscribe(topics(3), now);
        Self { machine, now, doing: None, reads: BTreeSet::new(), is_classic, epoch: 0 }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        let now = self.now;
        match input.below(17) {
            0 => self.machine.subscribe(topics(input.byte()), now),
            1 if !self.is_classic => self.machine.subscribe_pattern("t.*".into(), now),
            // Also while a handover waits for queues.
            2 => {
                let ways = [Departure::ByKind, Departure::Leave, Departure::Remain];
                self.machine.leave(*input.pick(&ways));
                self.doing = None;
                self.reads.clear();
            }
            3 => self.machine.polled(now),
            4 => self.now += Duration::from_secs(u64::from(input.byte()) * 2),
            5 => {
                let count = input.below(5) as i32;
                if let Some(led) = self.machine.led_topics() {
                    let known = led.iter().filter(|_| count > 0);
                    let layouts = known.map(|topic| (topic.clone(), count.into())).collect();
                    self.machine.look_at_topics(&led, &layouts, now);
                }
            }
            6 => {
                let code = *input.pick(&CODES);
                if let Standing::Member(identity) = self.machine.standing() {
                    self.machine.commit_refused(&identity, code, now);
                }
            }
            7 => drop(self.machine.complaint(now)),
            8 | 9 => self.hand_over(),
            10 => self.machine.enforce_rebalance(now),
            _ => self.step(input),
        }
    }

    /// Begins or finishes the application's handover.
    fn hand_over(&mut self) {
        match self.doing.take() {
            None => {
                let wants = self.machine.wants_application();
                self.doing = self.machine.handover();
                assert_eq!(wants, self.doing.is_some(), "says that there is something to do");
            }
            Some(done) => {
                match &done {
                    Handover::Revoke(keys) | Handover::Lose(keys) => {
                        assert!(
                            keys.iter().all(|key| self.reads.contains(key)),
                            "takes what is read"
                        );
                        self.reads.retain(|key| !keys.contains(key));
                    }
                    Handover::Adopt { revoked, added } => {
                        assert!(revoked.iter().all(|key| self.reads.contains(key)));
                        self.reads.retain(|key| !revoked.contains(key));
                        for key in added {
                            assert!(self.reads.insert(key.clone()), "{key:?} was read already");
                        }
                    }
                }
                self.machine.handed_over(self.now);
            }
        }
    }

    fn check(&mut self) {
        if self.doing.is_none() {
            assert_eq!(*self.machine.owned(), self.reads, "the member knows what is read");
        }
        let identity = self.machine.identity();
        if let Standing::Member(standing) = self.machine.standing() {
            assert_eq!(Some(standing), identity);
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let now = self.now;
        let step = self.machine.next(now);
        // A lookup that fails ends a departure; the next lookup is for another purpose.
        let was_departing = self.machine.is_departing();
        let failed = match &step {
            Step::Idle => return,
            Step::Wait(at) | Step::Flush(at) => {
                assert!(*at > now, "waits for the past");
                if input.flag() {
                    self.machine.flushed();
                }
                self.now = if input.flag() { *at } else { now };
                return;
            }
            Step::Find => {
                let found = self.reply(input, |_, _| Some(node()));
                let failed = found.is_err();
                self.machine.found(found, now, 0.5);
                failed
            }
            Step::Join(_, join) => {
                let id = join.member.clone();
                let reply = self.reply(input, |bench, input| Some(bench.join(&id, input)));
                let failed = reply.is_err();
                self.machine.joined(reply, now, 0.5);
                failed
            }
            Step::Assign(assignor, members) => {
                let counts: Topics =
                    [("t0".into(), 3.into()), ("t1".into(), (input.below(4) as i32).into())].into();
                let assignments: Assignments = assignor.assign(&counts, members);
                self.machine.assigned(&assignments, counts);
                false
            }
            Step::Sync(..) => {
                let reply = self.reply(input, |_, input| Some(assignment(input)));
                let failed = reply.is_err();
                self.machine.synced(reply, now, 0.5);
                failed
            }
            Step::Heartbeat(..) => {
                let reply = self.reply(input, |_, _| Some(()));
                let failed = reply.is_err();
                self.machine.beaten(reply, now, 0.5);
                failed
            }
            Step::GroupHeartbeat(..) => {
                let reply = self.reply(input, |bench, input| Some(bench.beat(input)));
                let failed = !matches!(&reply, Ok(reply) if reply.epoch > 0);
                self.machine.group_beaten(reply, now, 0.5);
                failed
            }
            Step::Resolve(ids, _) => {
                let names: Vec<(Uuid, Arc<str>)> = ids
                    .iter()
                    .filter(|_| input.flag())
                    .map(|id| (*id, format!("t{}", id.0[0] % 3).into()))
                    .collect();
                let failed = names.is_empty();
                self.machine.resolved(names, now);
                failed
            }
            Step::Leave(_, identity) => {
                assert!(self.machine.is_departing());
                let Identity { member, .. } = identity;
                assert!(!member.is_empty(), "a departing member has an id");
                self.machine.left();
                false
            }
        };
        assert!(
            !failed || was_departing || self.machine.next(now) != step,
            "repeated without a pause: {step:?}"
        );
    }

    fn reply<T>(
        &mut self,
        input: &mut Input<'_>,
        good: impl FnOnce(&mut Self, &mut Input<'_>) -> Option<T>,
    ) -> Result<T, Trouble<u32>> {
        let words = || Some(Arc::from("id"));
        match input.byte() {
            0..=169 => good(self, input).ok_or(Trouble::Lost(1)),
            170..=189 => Err(Trouble::Lost(1)),
            190 => Err(Trouble::Impossible(2)),
            191..=205 => Err(Trouble::Refused(ErrorCode::MEMBER_ID_REQUIRED, words())),
            code => Err(Trouble::Refused(CODES[usize::from(code) % CODES.len()], None)),
        }
    }

    fn join(&mut self, member: &Arc<str>, input: &mut Input<'_>) -> JoinReply {
        self.epoch += 1;
        let member: Arc<str> = if member.is_empty() { "given".into() } else { member.clone() };
        let is_leader = input.flag();
        let mut members = vec![(member.clone(), None, subscription(input))];
        for other in 0..input.below(3) {
            let metadata = match input.flag() {
                true => subscription(input),
                false => Bytes::copy_from_slice(input.section()),
            };
            members.push((format!("m{other}").into(), None, metadata));
        }
        if input.below(8) == 0 {
            // The coordinator names one member twice.
            members.extend_from_within(..1);
        }
        let names = ["range", "cooperative-sticky", "sticky", "unheard-of"];
        JoinReply {
            generation: if input.below(8) == 0 { input.number_i32() } else { self.epoch },
            leader: if is_leader { member.clone() } else { "m0".into() },
            member,
            protocol: (*input.pick(&names)).to_owned(),
            skip_assignment: input.below(8) == 0,
            members: if is_leader { members } else { Vec::new() },
        }
    }

    fn beat(&mut self, input: &mut Input<'_>) -> GroupReply {
        self.epoch += 1;
        let epoch = if input.below(8) == 0 { input.number_i32() } else { self.epoch };
        let interval = Duration::from_millis(input.number_i32().max(0).unsigned_abs().into());
        let topic = |input: &mut Input<'_>| {
            let indexes = (0..input.below(4)).map(|_| input.below(6) as i32).collect();
            (Uuid([input.below(4) as u8; 16]), indexes)
        };
        let assignment: Option<BTreeMap<_, _>> =
            input.flag().then(|| (0..input.below(4)).map(|_| topic(input)).collect());
        GroupReply { epoch, interval, assignment }
    }

    /// After any sequence, a member that leaves owns nothing and becomes idle.
    fn settle(&mut self) {
        if self.doing.is_some() {
            self.hand_over();
        }
        self.machine.leave(Departure::ByKind);
        assert!(self.machine.owned().is_empty());
        for _ in 0..4 {
            match self.machine.next(self.now) {
                Step::Idle => return,
                Step::Wait(at) => self.now = at,
                Step::Find => self.machine.found(Ok(node()), self.now, 0.5),
                Step::Leave(..) => self.machine.left(),
                step => panic!("a member that has left does {step:?}"),
            }
        }
        panic!("never leaves");
    }
}

fn topics(choice: u8) -> BTreeSet<Arc<str>> {
    (0..3)
        .filter(|topic| choice >> topic & 1 == 1)
        .map(|topic| format!("t{topic}").into())
        .collect()
}

fn subscription(input: &mut Input<'_>) -> Bytes {
    let topics = topics(input.byte()).into_iter().collect();
    let owned = (0..input.below(3)).map(|t| (format!("t{t}").into(), vec![input.number_i32()]));
    let subscription = Subscription { topics, owned: owned.collect(), ..Subscription::default() };
    subscription.encode(3)
}

fn assignment(input: &mut Input<'_>) -> Bytes {
    if input.below(8) == 0 {
        return Bytes::copy_from_slice(input.section());
    }
    let topic = |t| {
        (Arc::from(format!("t{t}")), (0..input.below(4)).map(|_| input.below(6) as i32).collect())
    };
    let partitions = (0..2).map(topic).collect();
    Assignment { partitions, user_data: None }.encode(1)
}

fn node() -> Node {
    Node { id: 1, host: "h".into(), port: 9092, rack: None }
}

fn seeds() -> Vec<Vec<u8>> {
    let find = [10, 0];
    let mut seeds = Vec::new();
    for assignors in 0..3u8 {
        let join = [10, 0, 1, 0, 3, 0, 1, 9, assignors, 9];
        let sync = [10, 0, 1, 2, 0, 1, 1, 3];
        let joined =
            [&[1, assignors, 0][..], &[10, 1, 0], &find, &join, &[10, 2], &sync, &[8, 8]].concat();
        seeds.push(
            [&joined[..], &[4, 2, 10, 0, 4, 2, 10, 207, 8, 8, 10, 1, 0], &join, &[10, 2], &sync]
                .concat(),
        );
        seeds.push([&joined[..], &[2, 10, 0]].concat());
        seeds.push([&joined[..], &[4, 200, 10, 8, 8, 3, 10, 0]].concat());
        let beat = [10, 0, 1, 5, 1, 2, 1, 2, 3, 1, 2];
        let counted =
            [&[0, assignors, 1][..], &[10, 1, 0], &find, &beat, &[10, 1, 10, 1, 8, 8]].concat();
        seeds.push([&counted[..], &beat, &[8, 8, 10, 0], &beat, &[2, 10, 0]].concat());
        seeds.push([&counted[..], &[10, 206, 8, 8, 10, 1, 0], &beat].concat());
    }
    seeds
}
