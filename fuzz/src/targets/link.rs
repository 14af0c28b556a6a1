//! Operation sequences on the links of two brokers, with partitions that wait, move and expire.
//!
//! Each batch has one outcome, each partition one seat, and no partition waits for nothing.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use curtail_proto::{
    accumulator::Readiness,
    link::{Carried, Entry, Event, Link, Seat, Settings, State},
    path::{Bounds, Gate, Suspicion},
};

use crate::{Input, Target};

pub(super) const TARGET: Target = Target { name: "link", run, seeds, cases: 6_000 };

const MS: Duration = Duration::from_millis(1);

const BROKERS: usize = 2;

const PARTITIONS: usize = 4;

/// `delivery.timeout.ms`.
const DELIVERY: Duration = Duration::from_secs(5);

/// A batch by its number.
#[derive(Clone, Debug)]
struct Parcel {
    number: usize,
    partition: usize,
    created: Instant,
}

impl Carried for Parcel {
    fn created(&self) -> Instant {
        self.created
    }

    fn bytes(&self) -> usize {
        400
    }

    fn reserved(&self) -> usize {
        500
    }

    fn record_bytes(&self) -> usize {
        400
    }
}

#[derive(Default)]
struct Partition {
    /// In the order in which they must leave.
    waiting: VecDeque<Parcel>,
    seat: Seat,
    leader: usize,
    not_before: Option<Instant>,
}

struct Bench {
    now: Instant,
    linger: Duration,
    links: Vec<Link<usize, Parcel, u8>>,
    /// Correlation id of each link's next response.
    next_ids: [i32; BROKERS],
    partitions: Vec<Partition>,
    /// Outcomes so far, by batch.
    outcomes: Vec<u32>,
    has_responses: bool,
}

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let mut bench = Bench::new(&mut input);
    while !input.is_empty() {
        bench.operate(&mut input);
        bench.check();
    }
    bench.finish();
}

impl Bench {
    fn new(input: &mut Input<'_>) -> Self {
        let now = Instant::now();
        let has_responses = *input.pick(&[true, true, false]);
        let settings = Settings {
            bounds: Bounds {
                target: has_responses.then_some(10 * MS),
                batch: 400,
                request: *input.pick(&[1 << 20, 1000]),
                in_flight: *input.pick(&[1, 2, 5]),
                suspicion: input.flag().then_some(Suspicion::of_produce(4, 200 * MS, 2000 * MS)),
            },
            request_timeout: Duration::from_secs(3),
            delivery_timeout: DELIVERY,
            has_responses,
            closes_after: input.flag().then_some(500 * MS),
            began: now,
        };
        let linger = *input.pick(&[0, 5]) * MS;
        let link = |_| {
            let gate = Gate::new(settings.bounds.target.and(Some(settings.bounds.request)));
            Link::new(settings, Arc::new(gate))
        };
        Self {
            now,
            linger,
            links: (0..BROKERS).map(link).collect(),
            next_ids: [0; BROKERS],
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            outcomes: Vec::new(),
            has_responses,
        }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        let (broker, index) = (input.below(BROKERS), input.below(PARTITIONS));
        match input.below(18) {
            0..=3 => self.append(index),
            4..=6 => self.turn(broker, input.below(3)),
            7 => self.written(broker),
            8..=9 => self.answer(broker, input.flag()),
            10 => self.lose(broker),
            11 if self.links[broker].state() == State::Down => {
                self.links[broker].handle_open(self.now);
            }
            11 => {}
            12 => self.lead(index, broker),
            13 => self.now += u32::from(input.byte()) * MS,
            14 => self.pass(input.below(20) as u32 * 100 * MS),
            15 => self.expire(),
            16 if input.flag() => self.links[broker].handle_hold(),
            16 => self.links[broker].handle_release(),
            _ => self.links[broker].handle_throttle(u32::from(input.byte()) * MS, self.now),
        }
    }

    fn append(&mut self, partition: usize) {
        let number = self.outcomes.len();
        self.outcomes.push(0);
        let at = &mut self.partitions[partition];
        let is_first = at.waiting.is_empty();
        at.waiting.push_back(Parcel { number, partition, created: self.now });
        let lingers = is_first && !self.linger.is_zero();
        let until = self.now + self.linger;
        self.queue(partition, if lingers { Readiness::At(until) } else { Readiness::Now });
    }

    fn queue(&mut self, index: usize, readiness: Readiness) {
        let Partition { waiting, seat, leader, .. } = &mut self.partitions[index];
        if !waiting.is_empty()
            && let Some(ticket) = seat.take(readiness)
        {
            self.links[*leader].handle_work(Entry { partition: index, ticket }, readiness);
        }
    }

    /// Sends what may leave. The socket accepts all of a request, some of it, or nothing.
    fn turn(&mut self, broker: usize, accepts: usize) {
        let Self { links, partitions, now, .. } = self;
        let link = &mut links[broker];
        while let Some(entry) = link.next_due(*now) {
            if partitions[entry.partition].seat.falls_due(entry.ticket) {
                link.handle_work(entry, Readiness::Now);
            }
        }
        let has_complete = |index: &usize| partitions[*index].waiting.len() > 1;
        let Some(mut permit) = link.poll_transmit(*now, has_complete) else { return };
        let mut parcels = Vec::new();
        while let Some(entry) = link.next_ready(&mut permit) {
            let Partition { waiting, seat, leader, not_before } = &mut partitions[entry.partition];
            if !seat.holds(entry.ticket) {
                continue;
            }
            assert_eq!(*leader, broker, "an entry counts at a former leader");
            if let Some(at) = not_before.filter(|at| at > now) {
                seat.is_put_off();
                link.handle_work(entry, Readiness::At(at));
                continue;
            }
            if !permit.admits(400) {
                link.put_back(entry);
                break;
            }
            parcels.extend(waiting.pop_front());
            permit.add(400);
            match waiting.is_empty() {
                true => seat.leave(),
                false => link.handle_work(entry, Readiness::Now),
            }
        }
        if parcels.is_empty() {
            return;
        }
        let mut once: Vec<usize> = parcels.iter().map(|parcel| parcel.partition).collect();
        once.dedup();
        assert_eq!(once.len(), parcels.len(), "two batches of a partition in one request");
        link.handle_sent(parcels, 0, *now);
        match accepts {
            0 => link.handle_blocked(),
            1 => link.handle_begun(),
            _ => self.written(broker),
        }
    }

    fn written(&mut self, broker: usize) {
        let now = self.now;
        if let Some(written) = self.links[broker].handle_written(|| now)
            && let Some(request) = written.unanswered
        {
            request.batches.iter().for_each(|parcel| self.conclude(parcel));
        }
    }

    fn answer(&mut self, broker: usize, is_written: bool) {
        let link = &mut self.links[broker];
        if link.in_flight().len() <= usize::from(!link.is_flushed()) {
            return;
        }
        let id = self.next_ids[broker];
        assert!(link.handle_response(id + 1, self.now).is_err(), "not the oldest request");
        let request = link.handle_response(id, self.now).expect("the oldest request");
        self.next_ids[broker] += 1;
        for parcel in request.batches {
            match is_written {
                true => self.conclude(&parcel),
                false => self.come_back(parcel),
            }
        }
    }

    fn come_back(&mut self, parcel: Parcel) {
        let index = parcel.partition;
        let partition = &mut self.partitions[index];
        partition.not_before = Some(self.now + 50 * MS);
        let at = partition.waiting.partition_point(|other| other.number < parcel.number);
        partition.waiting.insert(at, parcel);
        self.queue(index, Readiness::Now);
    }

    fn conclude(&mut self, parcel: &Parcel) {
        self.outcomes[parcel.number] += 1;
    }

    fn lose(&mut self, broker: usize) {
        self.next_ids[broker] = 0;
        for parcel in self.links[broker].handle_lost().into_iter().flat_map(|lost| lost.batches) {
            self.come_back(parcel);
        }
    }

    fn lead(&mut self, index: usize, leader: usize) {
        let partition = &mut self.partitions[index];
        partition.leader = leader;
        partition.not_before = None;
        partition.seat.leave();
        self.queue(index, Readiness::Now);
        for broker in 0..BROKERS {
            let partitions = &self.partitions;
            let has_left = |parcel: &Parcel| partitions[parcel.partition].leader != broker;
            self.links[broker].handle_moved(leader == 0, |parcel, _| has_left(parcel));
            self.carry_out(broker);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for broker in 0..BROKERS {
            self.links[broker].handle_timeout(self.now);
            self.carry_out(broker);
        }
    }

    fn expire(&mut self) {
        let is_over = |parcel: &Parcel| parcel.created + DELIVERY <= self.now;
        let waiting = self.partitions.iter_mut().map(|partition| &mut partition.waiting);
        let over = waiting.flat_map(|waiting| {
            let (over, rest): (Vec<_>, Vec<_>) = waiting.drain(..).partition(is_over);
            waiting.extend(rest);
            over
        });
        for parcel in over.collect::<Vec<_>>() {
            self.conclude(&parcel);
        }
        for broker in 0..BROKERS {
            let link = &mut self.links[broker];
            let mut lost = 0;
            if let Some(withdrawn) = link.handle_expiry(self.now, |envelope| lost += 1 + *envelope)
                && !withdrawn.batches.is_empty()
            {
                link.handle_sent_again(withdrawn, 0);
            }
            assert!(link.next_expiry().is_none_or(|at| at > self.now), "expires in the past");
            self.carry_out(broker);
        }
    }

    fn carry_out(&mut self, broker: usize) {
        while let Some(event) = self.links[broker].poll_event() {
            match event {
                Event::Expired { batch, .. } => self.conclude(&batch),
                Event::Moved(parcel) => self.come_back(parcel),
                Event::LookUp { .. } => {}
                Event::Dead(reason) => {
                    assert_eq!(self.links[broker].state(), State::Closing(reason));
                    self.lose(broker);
                }
            }
        }
    }

    fn check(&self) {
        let mut seats = [0; PARTITIONS];
        for (broker, link) in self.links.iter().enumerate() {
            let mut waits = !link.is_idle();
            for Entry { partition, ticket } in link.waiting() {
                if self.partitions[*partition].seat.holds(*ticket) {
                    assert_eq!(self.partitions[*partition].leader, broker);
                    seats[*partition] += 1;
                    waits = true;
                }
            }
            let is_open = matches!(link.state(), State::Open | State::Muted { .. });
            let has_ready = (0..PARTITIONS).any(|index| {
                let Partition { seat, leader, .. } = &self.partitions[index];
                seat.is_ready() && *leader == broker
            });
            // Ready partitions have their turn with the event that made them so.
            if waits && is_open && !has_ready {
                assert!(link.poll_timeout().is_some(), "nothing ends the wait");
            }
        }
        for (index, Partition { waiting, seat, .. }) in self.partitions.iter().enumerate() {
            let has_seat = seat.is_ready() || seat.is_timed();
            assert_eq!(seats[index], u32::from(has_seat), "partition {index}");
            assert!(has_seat || waiting.is_empty(), "partition {index} waits without a seat");
        }
    }

    /// From here on there are no faults, and every batch gets an outcome.
    fn finish(&mut self) {
        for broker in 0..BROKERS {
            self.lose(broker);
            self.links[broker].handle_open(self.now);
        }
        for _ in 0..2 * self.outcomes.len() + 10 {
            self.now += 60 * MS;
            for broker in 0..BROKERS {
                if self.links[broker].state() == State::Down {
                    self.links[broker].handle_open(self.now);
                }
                self.turn(broker, 2);
                if self.has_responses {
                    self.answer(broker, true);
                }
            }
            self.check();
        }
        let all = self.outcomes.iter().all(|outcomes| *outcomes == 1);
        assert!(all, "each batch has one outcome: {:?}", self.outcomes);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let operation = |broker: u8, partition: u8, rest: &[u8]| [&[broker, partition], rest].concat();
    let head = [0, 0, 1, 1, 1, 0];
    let begin = [operation(0, 0, &[11]), operation(1, 0, &[11])].concat();
    let append: Vec<u8> = (0..4).flat_map(|partition| operation(0, partition, &[0])).collect();
    let send = operation(0, 0, &[4, 2]);
    let troubles = [
        operation(0, 0, &[8, 1]),
        operation(0, 0, &[8, 0]),
        operation(0, 0, &[10]),
        operation(1, 0, &[12]),
        operation(0, 0, &[14, 19]),
        [operation(0, 0, &[14, 19]).repeat(3), operation(0, 0, &[15])].concat(),
        [operation(0, 0, &[16, 1]), operation(0, 0, &[17, 90])].concat(),
    ];
    let mut seeds = Vec::new();
    for trouble in &troubles {
        for accepts in 0..3 {
            let blocked = operation(0, 0, &[4, accepts]);
            let body = [&append[..], &blocked, trouble, &append, &send, trouble].concat();
            seeds.push([&head[..], &begin, &body].concat());
        }
    }
    seeds
}
