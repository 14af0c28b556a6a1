//! Sequences of operations on one queue, against a broker with the rules of Kafka's producer state.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::classify::{Append, Context, Sequenced, Verdict, classify, may_have_been_written};
use curtail_wire::ErrorCode;

/// Last batches of a producer of which a broker recognizes duplicates.
const REMEMBERED: usize = 5;

/// Most requests in flight.
const IN_FLIGHT: usize = 5;

/// A partition's leader with the rules of `ProducerStateManager` and `ProducerAppendInfo`. It appends in sequence,
/// refuses gaps and recognizes duplicates. It accepts any first sequence of a producer that it does not know.
pub(super) struct Broker {
    incarnation: Incarnation,
    /// The log of each topic that has had the name.
    pub(super) logs: Vec<Vec<u32>>,
    producers: BTreeMap<i64, Producer>,
}

struct Producer {
    epoch: i16,
    /// The next sequence; 0 in an epoch without a batch.
    next: i32,
    /// First sequence and records of the last batches of the epoch.
    recent: VecDeque<(i32, i32)>,
}

impl Producer {
    fn new(epoch: i16, next: i32) -> Self {
        Self { epoch, next, recent: VecDeque::new() }
    }
}

impl Broker {
    pub(super) fn new() -> Self {
        Self { incarnation: Incarnation::FIRST, logs: vec![Vec::new()], producers: BTreeMap::new() }
    }

    /// Deletes the topic and creates it again.
    fn recreate(&mut self) {
        self.incarnation = self.incarnation.next();
        self.logs.push(Vec::new());
        self.producers.clear();
    }

    fn receive(&mut self, batch: &Batch<u32>) -> ErrorCode {
        self.receive_payload(batch.payload())
    }

    pub(super) fn receive_payload(&mut self, payload: &Bytes) -> ErrorCode {
        let header = batches(payload.clone()).next().expect("one batch").expect("whole").header;
        let (epoch, first) = (header.producer_epoch, header.base_sequence);
        if let Some(known) = self.producers.get(&header.producer_id) {
            if known.epoch > epoch {
                return ErrorCode::INVALID_PRODUCER_EPOCH;
            }
            if known.epoch == epoch && known.recent.contains(&(first, header.record_count)) {
                return ErrorCode::NONE;
            }
            let next = if known.epoch == epoch { known.next } else { 0 };
            if first != next {
                return ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
            }
        }
        let producer =
            self.producers.entry(header.producer_id).or_insert_with(|| Producer::new(epoch, first));
        if producer.epoch != epoch {
            *producer = Producer::new(epoch, first);
        }
        producer.next = first + header.record_count;
        producer.recent.push_back((first, header.record_count));
        if producer.recent.len() > REMEMBERED {
            producer.recent.pop_front();
        }
        self.logs.last_mut().expect("a log").extend(numbers_in(payload));
        ErrorCode::NONE
    }

    /// Elects a leader that lacks the last batch (unclean election). Returns the records of that batch.
    fn truncate(&mut self) -> Vec<u32> {
        let Some(producer) = self.producers.values_mut().next_back() else { return Vec::new() };
        // Without its first batch the producer itself would be forgotten, which is another step.
        if producer.recent.len() < 2 {
            return Vec::new();
        }
        let Some((first, records)) = producer.recent.pop_back() else { return Vec::new() };
        producer.next = first;
        let log = self.logs.last_mut().expect("a log");
        log.split_off(log.len() - records as usize)
    }

    /// Applies the marker of an aborted transaction.
    fn abort(&mut self, identity: ProducerIdentity) {
        self.producers.insert(identity.id, Producer::new(identity.epoch, 0));
    }
}

fn numbers(batch: &Batch<u32>) -> Vec<u32> {
    numbers_in(batch.payload())
}

pub(super) fn numbers_in(payload: &Bytes) -> Vec<u32> {
    let parsed = batches(payload.clone()).next().expect("one batch").expect("whole");
    let records = parsed.records(&Default::default()).expect("plain records");
    let number = |value: Bytes| u32::from_be_bytes(value[..].try_into().expect("four bytes"));
    records.map(|record| number(record.expect("whole").value.expect("a value"))).collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append,
    Send(Fate),
    /// The oldest response arrives.
    Answer,
    /// The connection breaks.
    Break,
    /// Another broker becomes the leader; it has the log.
    Move(i32),
    /// The topic is deleted and created again.
    Recreate,
    /// The client learns of the recreated topic.
    Learn,
    /// The oldest batch that is not in flight expires.
    Expire,
    /// All batches get an outcome, and after `delivery.timeout.ms` the brokers forget the producer.
    Forget,
    /// An unclean election loses the last batch.
    Truncate,
    /// What may go to other partitions does.
    Leave,
    Rest,
    /// A transaction is aborted. The next one has the next epoch, or another producer id.
    Abort {
        another_id: bool,
        was_added: bool,
    },
}

/// The fate of a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    /// Not appended, as the response states for certain.
    Refused,
    /// Not appended, with an error that may also follow an append, and with or without word of that.
    NotLeader(Append),
    /// Appended, and then refused with an error that may also precede the append.
    LeadsNoMore,
    /// Not appended: the broker responds that it lost the producer.
    Unknown,
    /// Not appended if it has several records. The limit is the same for every attempt.
    TooLarge,
}

fn step(transactional: bool) -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        8 => Just(Fate::Arrives),
        2 => Just(Fate::Lost),
        2 => Just(Fate::Refused),
        1 => Just(Fate::NotLeader(Append::Possible)),
        3 => Just(Fate::NotLeader(Append::Excluded)),
        1 => Just(Fate::LeadsNoMore),
        1 => Just(Fate::Unknown),
        1 => Just(Fate::TooLarge),
    ];
    let abort = (any::<bool>(), any::<bool>())
        .prop_map(|(another_id, was_added)| Step::Abort { another_id, was_added });
    let step = prop_oneof![
        8 => Just(Step::Append),
        8 => fate.prop_map(Step::Send),
        6 => Just(Step::Answer),
        2 => Just(Step::Break),
        1 => (1..4i32).prop_map(Step::Move),
        1 => Just(Step::Recreate),
        2 => Just(Step::Learn),
        1 => Just(Step::Expire),
        1 => Just(Step::Forget),
        1 => Just(Step::Rest),
    ];
    match transactional {
        true => prop_oneof![12 => step, 1 => abort].boxed(),
        false => prop_oneof![20 => step, 1 => Just(Step::Truncate), 2 => Just(Step::Leave)].boxed(),
    }
}

/// The outcome that the sender of a record receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Written,
    NotWritten,
    Unknown,
    /// Another partition has it.
    Moved,
}

/// A response's error, and what it says about the append.
type Told = (ErrorCode, Append);

struct World {
    policy: BatchPolicy,
    now: Instant,
    queue: PartitionQueue<u32>,
    idempotence: Idempotence,
    broker: Broker,
    target: Target,
    /// `None` if the request is lost, with all later ones on the connection.
    in_flight: VecDeque<(Batch<u32>, Option<Told>)>,
    appended: u32,
    outcomes: BTreeMap<u32, Outcome>,
    /// Whether the oldest batch may be out of order. That is so if a batch has expired, or if a topic was deleted
    /// with a batch that the next topic lacks, between two that it has.
    excused: bool,
    /// Records that an unclean election lost.
    truncated: BTreeSet<u32>,
}

impl World {
    fn new(transactional: bool, batch_max_size: usize) -> Self {
        let identity = ProducerIdentity { id: 7, epoch: 0 };
        Self {
            policy: BatchPolicy { batch_max_size, ..policy(90, 0) },
            now: Instant::now(),
            queue: PartitionQueue::default(),
            idempotence: match transactional {
                true => Idempotence::Transaction(identity),
                false => Idempotence::As(identity),
            },
            broker: Broker::new(),
            target: to(1),
            in_flight: VecDeque::new(),
            appended: 0,
            outcomes: BTreeMap::new(),
            excused: false,
            truncated: BTreeSet::new(),
        }
    }

    fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Append => {
                append(&mut self.queue, &self.policy, &self.appended.to_be_bytes(), self.now);
                self.appended += 1;
            }
            Step::Send(fate) => self.send(fate),
            Step::Answer => return self.answer(),
            Step::Break => self.lose_connection(),
            Step::Move(broker) => self.target.broker = broker,
            Step::Recreate => {
                self.excused |= self.has_hole();
                self.broker.recreate();
            }
            Step::Learn => self.target.incarnation = self.broker.incarnation,
            Step::Expire => self.expire(),
            Step::Forget => {
                self.finish()?;
                self.now += self.policy.delivery_timeout;
                self.broker.producers.clear();
            }
            Step::Truncate => {
                let lost = self.broker.truncate();
                self.excused |= !lost.is_empty();
                self.truncated.extend(lost);
            }
            Step::Rest => {
                self.queue.rest(self.now);
            }
            Step::Leave => {
                for batch in self.queue.take_movable(&self.policy) {
                    prop_assert!(!batch.outcome_unknown() && batch.first_sequence().is_none());
                    self.settle(&batch, Outcome::Moved)?;
                }
            }
            Step::Abort { another_id, was_added } => self.abort(another_id, was_added),
        }
        Ok(())
    }

    /// Whether the log has a batch after one without an outcome. The batch is acknowledged already, or by a response
    /// in flight.
    fn has_hole(&self) -> bool {
        let written = self.outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Written);
        let last_written = written.map(|(&number, _)| number).max().unwrap_or(0);
        let is_written = |r: Option<Told>| r.is_some_and(|r| r.0 == ErrorCode::NONE);
        let confirmed = self.in_flight.iter().filter(|(_, r)| is_written(*r));
        let confirmed: BTreeSet<u32> = confirmed.flat_map(|(batch, _)| numbers(batch)).collect();
        let last = confirmed.last().copied().unwrap_or(0).max(last_written);
        let mut open = (0..last).filter(|number| !self.outcomes.contains_key(number));
        open.any(|number| number < last_written || !confirmed.contains(&number))
    }

    fn send(&mut self, fate: Fate) {
        if self.in_flight.len() == IN_FLIGHT {
            return;
        }
        let taken = self.queue.take(&self.policy, self.idempotence, self.target, self.now);
        match taken {
            Take::Batch(batch) => {
                let response = self.deliver(&batch, fate);
                self.in_flight.push_back((batch, response));
            }
            Take::Trial(batch, parts) => {
                self.queue.put_back(batch, parts, |completion| vec![completion; 2]);
            }
            _ => {}
        }
    }

    fn deliver(&mut self, batch: &Batch<u32>, fate: Fate) -> Option<Told> {
        if self.in_flight.iter().any(|(_, response)| response.is_none()) {
            return None;
        }
        let error = match fate {
            Fate::Lost => return None,
            Fate::Refused => ErrorCode::NOT_ENOUGH_REPLICAS,
            Fate::NotLeader(append) => return Some((ErrorCode::NOT_LEADER_OR_FOLLOWER, append)),
            Fate::Unknown => {
                self.excused = true;
                ErrorCode::UNKNOWN_PRODUCER_ID
            }
            Fate::TooLarge if batch.records > 1 && batch.attempts == 1 => {
                ErrorCode::MESSAGE_TOO_LARGE
            }
            _ if self.target.incarnation != self.broker.incarnation => ErrorCode::UNKNOWN_TOPIC_ID,
            Fate::LeadsNoMore => match self.broker.receive(batch) {
                ErrorCode::NONE => ErrorCode::NOT_LEADER_OR_FOLLOWER,
                error => error,
            },
            _ => self.broker.receive(batch),
        };
        Some((error, Append::Possible))
    }

    /// Settles a response as the producer does.
    fn answer(&mut self) -> Result<(), TestCaseError> {
        let Some((batch, response)) = self.in_flight.pop_front() else { return Ok(()) };
        let Some((error, append)) = response else {
            self.in_flight.push_front((batch, response));
            return Ok(());
        };
        let is_next = self.queue.is_next(&batch);
        let sequenced = match self.idempotence {
            Idempotence::Transaction(_) => Sequenced::Transactional,
            _ => Sequenced::Idempotent,
        };
        let context = Context { sequenced, is_next, records: batch.records };
        match classify(error, context) {
            Verdict::Written | Verdict::WrittenBefore => {
                self.queue.written(&batch);
                self.settle(&batch, Outcome::Written)?;
            }
            Verdict::Moved | Verdict::Retry { .. } => {
                let returned = self.queue.retry(batch, may_have_been_written(error, append), None);
                returned.map_or(Ok(()), |batch| self.settle(&batch, Outcome::Unknown))?;
            }
            Verdict::Split => {
                let parts = Parts::of(&batch, &self.policy).expect("a batch");
                let count = parts.shares().len();
                let returned = self.queue.split(batch, parts, |completion| vec![completion; count]);
                returned.map_or(Ok(()), |batch| self.fail(&batch))?;
            }
            Verdict::RetryInNextEpoch => {
                prop_assert!(self.excused, "{error}, without a reason");
                let lost = self.queue.renumber(batch, None);
                lost.iter().try_for_each(|batch| self.settle(batch, Outcome::Unknown))?;
            }
            Verdict::Fail | Verdict::FailAndBumpEpoch => {
                let is_stale = batch.producer() != Some(self.identity());
                let is_late = matches!(self.idempotence, Idempotence::Transaction(_)) && is_stale;
                prop_assert!(self.excused || is_late, "{error}, without a reason");
                self.fail_in_queue(&batch)?;
            }
        }
        Ok(())
    }

    fn identity(&self) -> ProducerIdentity {
        match self.idempotence {
            Idempotence::As(identity) | Idempotence::Transaction(identity) => identity,
            Idempotence::Off | Idempotence::Pending => unreachable!("idempotent"),
        }
    }

    fn lose_connection(&mut self) {
        while let Some((batch, _)) = self.in_flight.pop_front() {
            if let Some(batch) = self.queue.retry(batch, true, None) {
                self.settle(&batch, Outcome::Unknown).expect("one outcome");
            }
        }
    }

    fn expire(&mut self) {
        let expired = self.queue.expire(&self.policy, self.now + self.policy.delivery_timeout);
        self.excused |= !expired.is_empty();
        for batch in expired {
            self.fail_in_queue(&batch).expect("one outcome");
        }
    }

    fn fail_in_queue(&mut self, batch: &Batch<u32>) -> Result<(), TestCaseError> {
        let lost = self.queue.fail(batch);
        self.fail(batch)?;
        lost.iter().try_for_each(|batch| self.settle(batch, Outcome::Unknown))
    }

    fn fail(&mut self, batch: &Batch<u32>) -> Result<(), TestCaseError> {
        let unknown = batch.outcome_unknown();
        self.settle(batch, if unknown { Outcome::Unknown } else { Outcome::NotWritten })
    }

    fn abort(&mut self, another_id: bool, was_added: bool) {
        let ProducerIdentity { id, epoch } = self.identity();
        for batch in self.queue.give_up(&self.policy) {
            self.fail(&batch).expect("one outcome");
        }
        let next = match another_id {
            true => ProducerIdentity { id: id + 1, epoch: 0 },
            false => ProducerIdentity { id, epoch: epoch + 1 },
        };
        if was_added {
            self.broker.abort(ProducerIdentity { id, epoch: epoch + 1 });
        }
        self.idempotence = Idempotence::Transaction(next);
    }

    fn settle(&mut self, batch: &Batch<u32>, outcome: Outcome) -> Result<(), TestCaseError> {
        for number in numbers(batch) {
            let before = self.outcomes.insert(number, outcome);
            prop_assert_eq!(before, None, "two outcomes of record {}", number);
        }
        Ok(())
    }

    /// Continues without faults until every record has its outcome.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        self.lose_connection();
        self.target.incarnation = self.broker.incarnation;
        for _ in 0..10 * (1 + self.appended) {
            if self.queue.is_idle() && self.in_flight.is_empty() {
                break;
            }
            if let Idempotence::Transaction(identity) = self.idempotence
                && self.queue.has_gap_under(identity)
            {
                self.abort(false, true);
            }
            self.send(Fate::Arrives);
            self.answer()?;
        }
        prop_assert!(self.queue.is_idle() && self.in_flight.is_empty(), "records hang");
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.outcomes.len() as u32, self.appended, "records without an outcome");
        let with = |wanted: Outcome| {
            let of = self.outcomes.iter().filter(move |(_, outcome)| **outcome == wanted);
            of.map(|(&number, _)| number).collect::<BTreeSet<u32>>()
        };
        for log in &self.broker.logs {
            let distinct: BTreeSet<&u32> = log.iter().collect();
            prop_assert_eq!(distinct.len(), log.len(), "repeated: {:?}", log);
            prop_assert!(log.is_sorted(), "out of order: {:?}", log);
        }
        let present: BTreeSet<u32> = self.broker.logs.iter().flatten().copied().collect();
        let kept: BTreeSet<u32> = present.union(&self.truncated).copied().collect();
        prop_assert!(with(Outcome::Written).is_subset(&kept), "acknowledged and not there");
        prop_assert!(with(Outcome::NotWritten).is_disjoint(&present), "refused and there");
        prop_assert!(with(Outcome::Moved).is_disjoint(&kept), "moved and there");
        Ok(())
    }
}

fn check(transactional: bool, steps: Vec<Step>, size: usize) -> Result<(), TestCaseError> {
    let mut world = World::new(transactional, size);
    steps.into_iter().try_for_each(|step| world.run(step))?;
    world.finish()?;
    world.check()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Lost requests and responses, refusals, moves, expiries and recreated topics in any order. Each record has one
    /// outcome. Each log has the acknowledged records once and in order, and none that is reported as unwritten or went
    /// to another partition. No batch fails without a reason, and none hangs.
    #[test]
    fn acknowledged_records_are_in_the_log_once_and_in_order(
        steps in prop::collection::vec(step(false), 1..150),
        batch_max_size in prop::sample::select(vec![0, 360]),
    ) {
        check(false, steps, batch_max_size)?;
    }

    /// The same with aborted transactions, each under another epoch or producer id than the one before.
    #[test]
    fn transactions_write_acknowledged_records_once_and_in_order(
        steps in prop::collection::vec(step(true), 1..150),
        batch_max_size in prop::sample::select(vec![0, 360]),
    ) {
        check(true, steps, batch_max_size)?;
    }
}
