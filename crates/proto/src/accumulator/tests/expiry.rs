//! Delivery timeouts: batches that wait, and batches in flight whose connection stays open.

use std::collections::BTreeSet;

use curtail_wire::ErrorCode;
use proptest::prelude::*;

use super::{
    operations::{Broker, numbers_in as values},
    *,
};

#[test]
fn expiry_takes_every_overdue_batch_at_any_position() {
    let now = Instant::now();
    let policy = policy(60, 1_000);
    let (mut from, mut to) = (known(), known());
    let younger = now + Duration::from_secs(30);
    append(&mut from, &policy, &[1; 40], younger);
    append(&mut to, &policy, b"old", now);
    for batch in from.take_movable(&policy) {
        to.adopt(batch);
    }
    let first = now + policy.delivery_timeout;
    assert_eq!(to.next_expiry(&policy), Some(first), "the open batch is the older one");
    assert_eq!(to.expire(&policy, first).len(), 1);
    assert_eq!(to.next_expiry(&policy), Some(younger + policy.delivery_timeout));
    assert!(!to.is_next_overdue(&policy, first));
    assert!(to.is_next_overdue(&policy, younger + policy.delivery_timeout));
}

#[test]
fn an_overdue_batch_after_a_younger_one_that_came_back_expires() {
    let now = Instant::now();
    let policy = policy(1, 0);
    let (mut from, mut to) = (known(), known());
    let younger = now + Duration::from_secs(30);
    append(&mut to, &policy, b"younger", younger);
    let first = take(&mut to, &policy, 1, younger);
    append(&mut from, &policy, b"older", now);
    for batch in from.take_movable(&policy) {
        to.adopt(batch);
    }
    let second = take(&mut to, &policy, 1, younger);
    assert!(to.retry(first, false, None).is_none());
    assert!(to.retry(second, false, None).is_none());
    assert_eq!(to.next_expiry(&policy), Some(now + policy.delivery_timeout));
    assert_eq!(to.expire(&policy, now + policy.delivery_timeout).len(), 1);
}

#[test]
fn after_an_expiry_in_flight_new_batches_wait_for_outcomes_and_the_next_epoch() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let (overdue, behind) = (take(&mut queue, &policy, 1, now), take(&mut queue, &policy, 1, now));
    assert!(queue.fail(&overdue).is_empty());
    assert!(matches!(queue.take(&policy, IDENTITY, to(1), now), Take::AfterOutcome));
    queue.written(&behind);
    let next = header(&take(&mut queue, &policy, 1, now));
    assert_eq!((next.producer_epoch, next.base_sequence), (1, 0));
}

#[test]
fn a_batch_before_an_expired_one_keeps_its_sequence_and_is_retried() {
    let (policy, now) = (policy(1, 0), Instant::now());
    let mut queue = known();
    for _ in 0..3 {
        append(&mut queue, &policy, b"a", now);
    }
    let (before, overdue) = (take(&mut queue, &policy, 1, now), take(&mut queue, &policy, 1, now));
    assert!(queue.fail(&overdue).is_empty());
    assert!(queue.retry(before, true, None).is_none(), "nothing before it is lost");
    let again = take(&mut queue, &policy, 1, now);
    assert_eq!((header(&again).producer_epoch, header(&again).base_sequence), (0, 0));
    queue.written(&again);
    let next = header(&take(&mut queue, &policy, 1, now));
    assert_eq!((next.producer_epoch, next.base_sequence), (1, 0));
}

/// A request on a connection. The broker reads requests of one connection in order.
struct Request {
    /// Taken out once it is overdue, or once its partition has another leader.
    batch: Option<Batch<u32>>,
    payload: Bytes,
    to: i32,
    /// `None` until the broker has read it.
    arrived: Option<ErrorCode>,
}

/// The client, its connection, and the broker.
struct World {
    policy: BatchPolicy,
    now: Instant,
    queue: PartitionQueue<u32>,
    broker: Broker,
    leader: i32,
    connection: VecDeque<Request>,
    /// Requests of lost connections that a broker may read later.
    stray: Vec<Request>,
    next: u32,
    written: Vec<u32>,
    failed: Vec<u32>,
    perhaps: Vec<u32>,
}

impl World {
    fn new() -> Self {
        let policy = BatchPolicy { delivery_timeout: Duration::from_secs(12), ..policy(90, 0) };
        Self {
            policy,
            now: Instant::now(),
            queue: PartitionQueue::default(),
            broker: Broker::new(),
            leader: 1,
            connection: VecDeque::new(),
            stray: Vec::new(),
            next: 0,
            written: Vec::new(),
            failed: Vec::new(),
            perhaps: Vec::new(),
        }
    }

    fn append(&mut self) {
        append(&mut self.queue, &self.policy, &self.next.to_be_bytes(), self.now);
        self.next += 1;
    }

    fn send(&mut self) {
        if self.connection.len() >= 5 {
            return;
        }
        match self.queue.take(&self.policy, IDENTITY, super::to(self.leader), self.now) {
            Take::Batch(batch) => {
                let payload = batch.payload().clone();
                let (batch, to) = (Some(batch), self.leader);
                self.connection.push_back(Request { batch, payload, to, arrived: None });
            }
            Take::Trial(batch, parts) => {
                let shares = parts.shares().count();
                self.queue.put_back(batch, parts, |_| vec![0; shares]);
                self.send();
            }
            _ => {}
        }
    }

    fn read(broker: &mut Broker, request: &mut Request, leader: i32, refuses: bool) {
        request.arrived = Some(match request.to == leader && !refuses {
            false => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            true => broker.receive_payload(&request.payload),
        });
    }

    /// The broker reads the oldest request that it has not read.
    fn arrive(&mut self, refuses: bool) {
        if let Some(request) = self.connection.iter_mut().find(|r| r.arrived.is_none()) {
            Self::read(&mut self.broker, request, self.leader, refuses);
        }
    }

    fn arrive_late(&mut self, nth: usize) {
        if !self.stray.is_empty() {
            let mut request = self.stray.remove(nth % self.stray.len());
            Self::read(&mut self.broker, &mut request, self.leader, false);
        }
    }

    /// The client reads the oldest response.
    fn respond(&mut self) {
        if self.connection.front().is_none_or(|request| request.arrived.is_none()) {
            return;
        }
        let Some(Request { batch: Some(batch), arrived, .. }) = self.connection.pop_front() else {
            return;
        };
        match arrived {
            Some(ErrorCode::NONE) => {
                self.written.extend(values(batch.payload()));
                self.queue.written(&batch);
            }
            Some(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER) if self.queue.is_next(&batch) => {
                for lost in self.queue.renumber(batch, None) {
                    self.perhaps.extend(values(lost.payload()));
                }
            }
            _ => self.come_back(batch, false),
        }
    }

    fn come_back(&mut self, batch: Batch<u32>, unknown: bool) {
        if let Some(refused) = self.queue.retry(batch, unknown, None) {
            self.perhaps.extend(values(refused.payload()));
        }
    }

    fn fail(&mut self, batch: &Batch<u32>, unknown: bool) {
        let told = if unknown { &mut self.perhaps } else { &mut self.failed };
        told.extend(values(batch.payload()));
        for lost in self.queue.fail(batch) {
            self.perhaps.extend(values(lost.payload()));
        }
    }

    fn lose_connection(&mut self) {
        for mut request in std::mem::take(&mut self.connection) {
            if let Some(batch) = request.batch.take() {
                self.come_back(batch, true);
            }
            if request.arrived.is_none() {
                self.stray.push(request);
            }
        }
    }

    /// Another broker becomes the leader. Batches in flight may follow it without waiting for their responses.
    fn move_leader(&mut self, to: i32, follows: bool) {
        self.leader = to;
        if follows {
            for at in 0..self.connection.len() {
                if let Some(batch) = self.connection[at].batch.take() {
                    self.come_back(batch, true);
                }
            }
        }
        // From here on, the previous leader has a separate connection.
        let previous = self.connection.iter().all(|request| request.batch.is_none());
        if previous {
            self.stray.extend(self.connection.drain(..).filter(|r| r.arrived.is_none()));
        }
    }

    fn expire(&mut self) {
        for batch in self.queue.expire(&self.policy, self.now) {
            let unknown = batch.outcome_unknown();
            self.fail(&batch, unknown);
        }
        for at in 0..self.connection.len() {
            let overdue =
                |batch: &mut Batch<u32>| batch.created + self.policy.delivery_timeout <= self.now;
            if let Some(batch) = self.connection[at].batch.take_if(overdue) {
                self.fail(&batch, true);
            }
        }
    }

    /// Rebuilds the newest request without its overdue batch, because no byte of it was written.
    fn withdraw(&mut self) {
        let Some(newest) = self.connection.back_mut() else { return };
        let overdue =
            |batch: &mut Batch<u32>| batch.created + self.policy.delivery_timeout <= self.now;
        if newest.arrived.is_none()
            && let Some(batch) = newest.batch.take_if(overdue)
        {
            self.connection.pop_back();
            let unknown = batch.outcome_unknown();
            self.fail(&batch, unknown);
        }
    }

    fn step(&mut self, step: u8, choice: usize) {
        match step {
            0..=2 => self.append(),
            3..=5 => self.send(),
            6 | 7 => self.arrive(choice == 0),
            8 | 9 => self.respond(),
            10 => self.lose_connection(),
            11 => self.move_leader(1 + choice as i32 % 3, choice.is_multiple_of(2)),
            12 => self.arrive_late(choice),
            13 => {
                self.queue.rest(self.now);
            }
            _ => {
                self.now += Duration::from_secs(choice as u64);
                self.withdraw();
                self.expire();
            }
        }
    }

    /// From here on, the broker works without faults.
    fn settle(&mut self) {
        self.lose_connection();
        for _ in 0..1000 {
            self.send();
            self.arrive(false);
            self.respond();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Batches expire in every state, also in flight on a connection that stays open, and requests reach a broker
    /// late. Every record has one outcome. The log has acknowledged records once and in order, and none reported as
    /// unwritten.
    #[test]
    fn each_record_has_one_true_outcome_though_batches_expire_in_flight(
        steps in prop::collection::vec((0..18u8, 0..6usize), 1..160),
    ) {
        let mut world = World::new();
        for (step, choice) in steps {
            world.step(step, choice);
        }
        world.settle();
        prop_assert!(world.queue.is_idle());
        prop_assert_eq!(world.queue.next_expiry(&world.policy), None);
        let known = world.next;
        world.append();
        world.settle();
        prop_assert!(world.written.contains(&known), "the partition sends again");
        while !world.stray.is_empty() {
            world.arrive_late(0);
        }
        let log = world.broker.logs.concat();
        prop_assert!(log.is_sorted_by(|a, b| a < b), "{log:?}");
        let present: BTreeSet<u32> = log.into_iter().collect();
        prop_assert!(world.written.iter().all(|value| present.contains(value)));
        prop_assert!(world.failed.iter().all(|value| !present.contains(value)));
        let mut told = [&world.written[..], &world.failed, &world.perhaps].concat();
        told.sort_unstable();
        prop_assert_eq!(told, (0..world.next).collect::<Vec<_>>());
    }
}
