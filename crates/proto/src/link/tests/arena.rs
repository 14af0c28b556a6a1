//! The producer's machines in virtual time: real queues, links and models of brokers, against simple brokers.
//!
//! Brokers serve one request after the other, some network away. They freeze, refuse, throttle, lose connections and
//! elections. Senders are paced, bursting, or as fast as the window allows, with keys and without. The driver here does
//! what the client's does, and no more: a link gets a turn only for an event of its connection, for its timer, or for
//! work that is ready. So a missing wake-up shows as a record without an outcome.
//!
//! After each step: one seat for each partition, charges that add up, windows that are kept, and something that will end
//! every wait.
//!
//! A long run, and one seed:
//!
//! ```sh
//! CURTAIL_ARENA_COUNT=2000 cargo test --release -p curtail-proto arena::every -- --nocapture
//! CURTAIL_ARENA_SEED=7 cargo test -p curtail-proto arena::every -- --nocapture
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    compression::{Codec, Compression},
    records::{self, DecompressLimit, RecordData},
};

use super::{MS, settings};
use crate::{
    accumulator::{
        Batch, BatchPolicy, Branch, Idempotence, Incarnation, PartitionQueue, Parts, Placed,
        ProducerIdentity, Readiness, Share, Take, Target,
    },
    classify::{Append, Context, Sequenced, Verdict, classify, may_have_been_written},
    link::{Carried, Entry, Event, Link, Permit, Seat, State},
    path::{Gate, Trouble},
};

mod broker;
mod calm;
mod client;
mod plan;
mod plants;
mod window;

use self::{
    broker::{Bytesful, Log},
    calm::Times,
    plan::{Pattern, Plan, Random, Sender},
    window::{Admission, Allowance},
};

const US: Duration = Duration::from_micros(1);

const IDENTITY: ProducerIdentity = ProducerIdentity { id: 7, epoch: 0 };

/// Most bytes of records without an outcome.
const MEMORY: usize = 4 << 20;

/// The records of a batch, and the bytes that it charges to a broker's gate.
#[derive(Debug)]
struct Receipt {
    numbers: Vec<u32>,
    charged: usize,
    /// Part of the charge that the broker's window has not admitted: it came in a pause, from another broker, or back.
    beyond: usize,
    broker: usize,
}

impl Receipt {
    /// Parts for the shares of a batch.
    fn divide(mut self, shares: &[Share]) -> Vec<Self> {
        let broker = self.broker;
        let mut parts: Vec<Self> = shares
            .iter()
            .map(|share| {
                let rest = self.numbers.split_off(share.records as usize);
                let numbers = std::mem::replace(&mut self.numbers, rest);
                let charged = self.charged.min(share.bytes);
                self.charged -= charged;
                let beyond = self.beyond.min(charged);
                self.beyond -= beyond;
                Self { numbers, charged, beyond, broker }
            })
            .collect();
        if let Some(last) = parts.last_mut() {
            last.charged += self.charged;
            last.beyond += self.beyond;
        }
        parts
    }
}

#[derive(Debug)]
struct Parcel {
    partition: usize,
    broker: usize,
    batch: Batch<Receipt>,
}

impl Carried for Parcel {
    fn created(&self) -> Instant {
        self.batch.created
    }

    fn bytes(&self) -> usize {
        self.batch.payload().len()
    }

    fn reserved(&self) -> usize {
        self.batch.completion.charged
    }

    fn record_bytes(&self) -> usize {
        self.batch.completion.charged
    }
}

struct Partition {
    queue: PartitionQueue<Receipt>,
    seat: Seat,
    /// As the client knows it.
    leader: usize,
    /// As it is.
    elected: usize,
    log: Log,
}

struct Broker {
    link: Link<usize, Parcel, ()>,
    gate: Arc<Gate>,
    /// Number of its connections so far: what belongs to an earlier one is ignored.
    connection: u64,
    /// Bytes that the socket has not accepted.
    unsent: Option<Bytesful>,
    /// When it has served all requests.
    free_at: Instant,
    allowance: Allowance,
}

/// A response's error, and what it says about the append.
type Told = (ErrorCode, Append);

/// Something that happens at a time.
enum Happens {
    Writable {
        broker: usize,
        connection: u64,
    },
    Arrives {
        broker: usize,
        connection: u64,
        request: Bytesful,
    },
    Served {
        broker: usize,
        connection: u64,
        request: Bytesful,
    },
    Answers {
        broker: usize,
        connection: u64,
        id: i32,
        results: Vec<(usize, Told)>,
        throttle: Duration,
    },
    Connects {
        broker: usize,
        connection: u64,
    },
    Renewed {
        broker: usize,
        connection: u64,
    },
    Learns {
        partition: usize,
    },
    Sends {
        sender: usize,
    },
    LooksForOverdue,
    Fault,
}

/// Work that a turn leaves for later.
enum Effect {
    Turn(usize),
    Expire(usize),
    Evacuate(usize),
    /// Batches leave the requests at this broker, which has refused earlier ones.
    Follow(usize),
}

struct World {
    random: Random,
    began: Instant,
    now: Instant,
    policy: BatchPolicy,
    network: Duration,
    /// Time that a broker takes for a request, without its bytes.
    service: Duration,
    has_faults: bool,
    partitions: Vec<Partition>,
    brokers: Vec<Broker>,
    senders: Vec<Sender>,
    agenda: BTreeMap<(Instant, u64), Happens>,
    entries: u64,
    effects: VecDeque<Effect>,
    /// Whether the brokers work and nothing more is sent.
    is_over: bool,
    steps: u64,
    /// Steps, appended records, and turns at links.
    operations: u64,
    /// Time of the last timer, and how many have fired at this time.
    fired: (Instant, u32),
    records: Vec<Sent>,
    times: Times,
}

/// A record.
struct Sent {
    at: Instant,
    /// The partition, if its key requires one.
    home: Option<usize>,
    /// Whether it is in the log, or unknown.
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Written,
    NotWritten,
    Unknown,
}

impl World {
    fn new(plan: Plan) -> Self {
        let Plan { random, settings, policy, senders, network, service, has_faults, .. } = plan;
        let began = settings.began;
        let brokers = (0..plan.brokers).map(|_| {
            let gate = Gate::new(settings.bounds.target.and(Some(settings.bounds.request)));
            let gate = Arc::new(gate);
            let link = Link::new(settings, gate.clone());
            let allowance = Allowance::new(settings.bounds);
            Broker { link, gate, connection: 0, unsent: None, free_at: began, allowance }
        });
        let partitions = (0..plan.partitions).map(|index| Partition {
            queue: PartitionQueue::default(),
            seat: Seat::default(),
            leader: index % plan.brokers,
            elected: index % plan.brokers,
            log: Log::default(),
        });
        let mut world = Self {
            brokers: brokers.collect(),
            partitions: partitions.collect(),
            random,
            began,
            now: began,
            policy,
            network,
            service,
            has_faults,
            agenda: BTreeMap::new(),
            entries: 0,
            effects: VecDeque::new(),
            is_over: false,
            steps: 0,
            operations: 0,
            fired: (began, 0),
            records: Vec::new(),
            times: Times::default(),
            senders,
        };
        for broker in 0..world.brokers.len() {
            world.plan(MS, Happens::Connects { broker, connection: 0 });
        }
        for sender in 0..world.senders.len() {
            world.plan(MS, Happens::Sends { sender });
        }
        if has_faults {
            world.plan(100 * MS, Happens::Fault);
        }
        world.plan(MS, Happens::LooksForOverdue);
        world
    }

    fn plan(&mut self, after: Duration, what: Happens) {
        self.agenda.insert((self.now + after, self.entries), what);
        self.entries += 1;
    }

    /// Runs with faults and senders.
    fn run(&mut self, length: Length) {
        while match length {
            Length::Until(until) => self.now < self.began + until,
            Length::Steps(steps) => self.steps < steps,
        } {
            self.step();
        }
    }

    /// Runs without faults and senders until every record has its outcome.
    fn finish(&mut self) {
        self.is_over = true;
        for index in 0..self.partitions.len() {
            self.learn(index);
        }
        let deadline = self.now + 120_000 * MS;
        while self.partitions.iter().any(|partition| !partition.queue.is_idle()) {
            assert!(self.now < deadline, "a record has no outcome: {}", self.describe());
            self.step();
        }
        self.judge();
    }

    /// Goes to the next time at which something happens, and lets it happen.
    fn step(&mut self) {
        self.steps += 1;
        self.operations += 1;
        let timers = self.brokers.iter().enumerate();
        let timers = timers.filter_map(|(nth, broker)| Some((broker.link.poll_timeout()?, nth)));
        let timer = timers.min();
        let planned = self.agenda.first_key_value().map(|((at, _), _)| *at);
        match (timer, planned) {
            (Some((at, broker)), planned) if planned.is_none_or(|planned| at < planned) => {
                self.now = self.now.max(at);
                let (last, times) = self.fired;
                self.fired = (self.now, if last == self.now { times + 1 } else { 1 });
                assert!(self.fired.1 < 20, "a timer fires without an end: {}", self.describe());
                self.brokers[broker].link.handle_timeout(self.now);
                self.carry_out(broker);
                self.effects.push_back(Effect::Turn(broker));
            }
            _ => {
                let ((at, _), what) = self.agenda.pop_first().expect("something is planned");
                self.now = self.now.max(at);
                self.happen(what);
            }
        }
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                Effect::Turn(broker) => self.turn(broker),
                Effect::Expire(partition) => self.expire(partition),
                Effect::Evacuate(partition) => self.evacuate(partition),
                Effect::Follow(broker) => self.follow(broker, true),
            }
        }
        self.check();
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Writable { broker, connection } => {
                if self.is_current(broker, connection)
                    && let Some(request) = self.brokers[broker].unsent.take()
                {
                    let now = self.now;
                    self.brokers[broker].link.handle_begun();
                    self.brokers[broker].link.handle_written(|| now);
                    self.plan(self.network, Happens::Arrives { broker, connection, request });
                    self.effects.push_back(Effect::Turn(broker));
                }
            }
            Happens::Arrives { broker, connection, request } => {
                let bytes: usize = request.1.iter().map(|(_, payload)| payload.len()).sum();
                let takes = self.service + US * (bytes as u32 / 100);
                let free_at = self.brokers[broker].free_at.max(self.now) + takes;
                self.brokers[broker].free_at = free_at;
                self.plan(free_at - self.now, Happens::Served { broker, connection, request });
            }
            Happens::Served { broker, connection, request } => {
                self.serve(broker, connection, request);
            }
            Happens::Answers { broker, connection, id, results, throttle } => {
                if self.is_current(broker, connection) {
                    self.answered(broker, id, &results, throttle);
                }
            }
            Happens::Connects { broker, connection } if self.is_current(broker, connection) => {
                let Broker { link, gate, allowance, .. } = &mut self.brokers[broker];
                link.handle_open(self.now);
                gate.set_trouble(Trouble::Fine);
                allowance.connected();
                self.effects.push_back(Effect::Turn(broker));
            }
            Happens::Renewed { broker, connection } if self.is_current(broker, connection) => {
                self.brokers[broker].link.handle_release();
                self.effects.push_back(Effect::Turn(broker));
            }
            Happens::Connects { .. } | Happens::Renewed { .. } => {}
            Happens::Learns { partition } => self.learn(partition),
            Happens::Sends { sender } => self.send(sender),
            Happens::LooksForOverdue => {
                for partition in 0..self.partitions.len() {
                    self.expire(partition);
                }
                for broker in 0..self.brokers.len() {
                    self.take_overdue(broker);
                }
                self.plan(250 * MS, Happens::LooksForOverdue);
            }
            Happens::Fault => self.fault(),
        }
    }

    fn is_current(&self, broker: usize, connection: u64) -> bool {
        self.brokers[broker].connection == connection
    }

    fn fault(&mut self) {
        if self.is_over {
            return;
        }
        let broker = self.random.below(self.brokers.len());
        match self.random.below(5) {
            0 => self.lose(broker),
            1 => {
                let until = self.now + self.random.between(50 * MS, 3000 * MS);
                let free_at = self.brokers[broker].free_at;
                self.brokers[broker].free_at = free_at.max(until);
            }
            2 if self.brokers[broker].link.state() == State::Open => {
                self.brokers[broker].link.handle_hold();
                let connection = self.brokers[broker].connection;
                let takes = self.random.between(MS, 50 * MS);
                self.plan(takes, Happens::Renewed { broker, connection });
            }
            _ => {
                let partition = self.random.below(self.partitions.len());
                self.partitions[partition].elected = broker;
                let after = self.random.between(Duration::ZERO, 100 * MS);
                self.plan(after, Happens::Learns { partition });
            }
        }
        let next = self.random.between(10 * MS, 400 * MS);
        self.plan(next, Happens::Fault);
    }

    /// A sender appends what it has by now, as far as the windows and the memory admit it.
    fn send(&mut self, sender: usize) {
        if self.is_over {
            return;
        }
        let (records, next) = match self.senders[sender].pattern {
            Pattern::Paced(every) => (1, every),
            Pattern::Bursts { every, records } => (records, every),
            Pattern::Unthrottled => (64, 500 * US),
        };
        for _ in 0..records {
            let outstanding: usize = self.brokers.iter().map(|b| b.gate.outstanding()).sum();
            let current = self.senders[sender].current;
            let admission = self.admission(self.partitions[current].leader);
            if outstanding < MEMORY && admission != Admission::Refused {
                self.append(current, self.senders[sender].has_keys, admission);
            }
            let moves_on = self.senders[sender].has_keys || self.random.one_in(20);
            let others = self.partitions.len();
            self.senders[sender].current = (current + usize::from(moves_on)) % others;
        }
        self.plan(next, Happens::Sends { sender });
    }

    /// What must hold after every step.
    fn check(&mut self) {
        let mut charges = vec![0; self.brokers.len()];
        let mut beyond = vec![0; self.brokers.len()];
        let mut in_flight = vec![false; self.partitions.len()];
        let mut seats = vec![None; self.partitions.len()];
        for (nth, Broker { link, .. }) in self.brokers.iter().enumerate() {
            let held: usize = link.in_flight().map(|request| request.reserved).sum();
            assert_eq!(link.held, held, "bytes in flight at broker {nth}");
            for parcel in link.in_flight().flat_map(|request| &request.batches) {
                let receipt = &parcel.batch.completion;
                charges[receipt.broker] += receipt.charged;
                beyond[receipt.broker] += receipt.beyond;
                in_flight[parcel.partition] = true;
            }
            let mut waits = false;
            for Entry { partition, ticket } in link.waiting() {
                if self.partitions[*partition].seat.holds(*ticket) {
                    assert_eq!(seats[*partition].replace(nth), None, "{partition} has two seats");
                    waits = true;
                }
            }
            let will_look = match link.state() {
                // Planned in the agenda.
                State::Down | State::Held { .. } => true,
                State::Open | State::Muted { .. } => {
                    link.poll_timeout().is_some() || !link.is_idle()
                }
                State::Closing(_) => false,
            };
            assert!(
                !waits || will_look,
                "nothing ends the wait at broker {nth}: {}",
                self.describe()
            );
        }
        for (nth, partition) in self.partitions.iter_mut().enumerate() {
            let Partition { queue, seat, leader, .. } = partition;
            let has_seat = seat.is_ready() || seat.is_timed();
            assert_eq!(seats[nth], has_seat.then_some(*leader), "the seat of partition {nth}");
            let is_awaited = has_seat || in_flight[nth];
            assert!(queue.is_drained() || is_awaited, "partition {nth} waits for nothing");
            for receipt in queue.waiting_mut() {
                charges[receipt.broker] += receipt.charged;
                beyond[receipt.broker] += receipt.beyond;
            }
        }
        for (nth, Broker { gate, allowance, .. }) in self.brokers.iter().enumerate() {
            assert_eq!(gate.outstanding(), charges[nth], "charges of broker {nth}");
            gate.set_held(charges[nth]);
            allowance.check(charges[nth], beyond[nth]);
        }
    }

    /// What must hold in the end.
    fn judge(&self) {
        let mut in_log = BTreeSet::new();
        for (index, partition) in self.partitions.iter().enumerate() {
            let mut last = None;
            for &number in &partition.log.numbers {
                assert!(in_log.insert(number), "record {number} is in the logs twice");
                if let Some(home) = self.records[number as usize].home {
                    assert_eq!(home, index, "record {number} is in another partition");
                    assert!(last < Some(number), "{number} follows {last:?} in partition {index}");
                    last = Some(number);
                }
            }
        }
        for (number, Sent { outcome, .. }) in self.records.iter().enumerate() {
            let is_written = in_log.contains(&(number as u32));
            match outcome.expect("each record has an outcome") {
                Outcome::Written => assert!(is_written, "record {number} is lost"),
                Outcome::NotWritten => assert!(!is_written, "record {number} is written after all"),
                Outcome::Unknown => {}
            }
        }
    }

    fn describe(&self) -> String {
        let links = self.brokers.iter().map(|broker| {
            let link = &broker.link;
            let (state, timeout) = (link.state(), link.poll_timeout());
            let timeout = timeout.map(|at| at.saturating_duration_since(self.now));
            format!("{state:?} {} in flight, timer in {timeout:?}; ", link.in_flight().len())
        });
        let stuck = self.partitions.iter().enumerate();
        let stuck = stuck.filter(|(_, partition)| !partition.queue.is_idle());
        let stuck = stuck.map(|(nth, p)| format!("{nth} at {}: {:?}; ", p.leader, p.seat));
        links.chain(stuck).collect()
    }
}

/// How long a world runs with faults and senders, from its begin.
#[derive(Clone, Copy, Debug)]
enum Length {
    Until(Duration),
    Steps(u64),
}

/// A number from the environment.
fn given(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Seeds 0 to 14, or those of the environment:
/// - `CURTAIL_ARENA_SEED`: the first seed, and the only one unless there is a count.
/// - `CURTAIL_ARENA_COUNT`: how many seeds.
/// - `CURTAIL_ARENA_STEPS`: steps of each seed before the end of its faults, instead of three seconds of virtual time.
#[test]
fn every_record_has_one_outcome_in_order_and_no_wait_lacks_an_end() {
    let [seed, count, steps] =
        ["SEED", "COUNT", "STEPS"].map(|name| given(&format!("CURTAIL_ARENA_{name}")));
    let (first, is_ordinary) = (seed.unwrap_or(0), seed.or(count).or(steps).is_none());
    let seeds = first..first + count.unwrap_or(if seed.is_some() { 1 } else { 15 });
    let length = steps.map_or(Length::Until(3000 * MS), Length::Steps);
    let began = Instant::now();
    let (mut steps, mut operations, mut records) = (0, 0, 0);
    let mut outcomes = BTreeMap::new();
    for seed in seeds.clone() {
        let mut world = World::new(Plan::mixed(seed));
        let run = AssertUnwindSafe(|| {
            world.run(length);
            world.finish();
        });
        if let Err(panic) = catch_unwind(run) {
            eprintln!("seed {seed}, step {}; again with CURTAIL_ARENA_SEED={seed}", world.steps);
            resume_unwind(panic);
        }
        steps += world.steps;
        operations += world.operations;
        records += world.records.len();
        for Sent { outcome, .. } in &world.records {
            *outcomes.entry(outcome.expect("judged")).or_insert(0) += 1;
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!("seeds {seeds:?}: {steps} steps, {records} records, {outcomes:?}");
    println!("{operations} operations in {took:.2} s, {:.0} a second", operations as f64 / took);
    // The faults and the senders must have been worth the name.
    if is_ordinary {
        assert!(steps > 25_000 && records > 12_000, "{steps} steps, {records} records");
        assert_eq!(outcomes.len(), 3, "{outcomes:?}");
    }
}
