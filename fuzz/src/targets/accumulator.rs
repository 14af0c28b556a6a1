//! Operation sequences on a partition's queue, with a broker that checks sequences as Kafka's leaders do.
//!
//! The log must hold every acknowledged record once and in order, and no record that was reported as not written or has
//! moved to another partition.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use curtail_proto::{
    accumulator::{
        self, Batch, BatchPolicy, Branch, CompressionRatio, Idempotence, Incarnation,
        PartitionQueue, Parts, ProducerIdentity, Take,
    },
    classify::{Append, Context, Sequenced, Verdict, classify, may_have_been_written},
};
use curtail_wire::{
    ErrorCode,
    compression::{Codec, Compression},
    records::{self, DecompressLimit, RecordData},
};

use crate::{Input, Target};

pub(super) const TARGET: Target = Target { name: "accumulator", run, seeds, cases: 6_000 };

/// `max.in.flight.requests.per.connection`.
const IN_FLIGHT: usize = 5;

const IDENTITY: ProducerIdentity = ProducerIdentity { id: 7, epoch: 0 };

/// The records of a batch, by their numbers.
type Numbers = Vec<u32>;

/// The leader's state, shared by all brokers, because the log follows the leadership.
#[derive(Default)]
struct Log {
    numbers: Numbers,
    /// Epoch, and its next sequence.
    producer: Option<(i16, i32)>,
    /// The last five batches: epoch and first sequence.
    recent: VecDeque<(i16, i32)>,
}

impl Log {
    fn append(&mut self, bytes: &bytes::Bytes) -> ErrorCode {
        let batch = records::Batch::parse(bytes.clone()).expect("exactly one batch");
        batch.verify_crc().expect("a valid checksum");
        let header = batch.header;
        let at = (header.producer_epoch, header.base_sequence);
        // The leader recognizes duplicates of the last five batches.
        if self.recent.contains(&at) {
            return ErrorCode::NONE;
        }
        match self.producer {
            Some((epoch, _)) if at.0 < epoch => return ErrorCode::INVALID_PRODUCER_EPOCH,
            Some((epoch, _)) if at.0 > epoch && at.1 != 0 => {
                return ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
            }
            Some((epoch, next)) if at.0 == epoch && at.1 != next => {
                return ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
            }
            _ => {}
        }
        if self.producer.is_some_and(|(epoch, _)| epoch != at.0) {
            self.recent.clear();
        }
        self.producer = Some((at.0, at.1 + header.record_count));
        self.recent.push_back(at);
        if self.recent.len() > 5 {
            self.recent.pop_front();
        }
        self.numbers.extend(numbers(&batch));
        ErrorCode::NONE
    }
}

fn numbers(batch: &records::Batch) -> Numbers {
    let records = batch.records(&DecompressLimit::default()).expect("our own records");
    let number = |value: Option<bytes::Bytes>| {
        let value = value.and_then(|value| value.first_chunk().copied());
        u32::from_be_bytes(value.expect("a number first"))
    };
    records.map(|record| number(record.expect("our own record").value)).collect()
}

/// A request's fate, decided when it is sent.
enum Fate {
    /// The response arrives.
    Answered(ErrorCode, Append),
    /// No response arrives: the request or its response is lost.
    Silent,
}

struct Bench {
    queue: PartitionQueue<Numbers>,
    policy: BatchPolicy,
    ratio: Option<Arc<CompressionRatio>>,
    now: Instant,
    broker: i32,
    branch: Branch,
    log: Log,
    in_flight: VecDeque<(Batch<Numbers>, Fate)>,
    next: u32,
    acknowledged: BTreeSet<u32>,
    refused: BTreeSet<u32>,
    unknown: BTreeSet<u32>,
    /// Written to other partitions.
    moved: BTreeSet<u32>,
}

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let mut bench = Bench::new(&mut input);
    while !input.is_empty() {
        bench.operate(&mut input);
    }
    bench.finish();
}

impl Bench {
    fn new(input: &mut Input<'_>) -> Self {
        let policy = BatchPolicy {
            batch_size: *input.pick(&[90, 200, 1]),
            batch_max_size: *input.pick(&[0, 360]),
            max_request_size: *input.pick(&[1 << 20, 400]),
            linger: Duration::from_millis(*input.pick(&[0, 5])),
            compression: Compression::from(*input.pick(&[Codec::None, Codec::Lz4])),
            delivery_timeout: Duration::from_secs(120),
            one_in_flight: false,
            moves_refused: true,
            began: Instant::now(),
        };
        Self {
            queue: PartitionQueue::default(),
            ratio: (policy.compression.codec != Codec::None).then(Arc::default),
            policy,
            now: Instant::now(),
            broker: 1,
            branch: Branch::Main,
            log: Log::default(),
            in_flight: VecDeque::new(),
            next: 0,
            acknowledged: BTreeSet::new(),
            refused: BTreeSet::new(),
            unknown: BTreeSet::new(),
            moved: BTreeSet::new(),
        }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.below(17) {
            0..=3 => self.append(input),
            4..=7 => {
                let fate = input.byte();
                self.send(fate);
            }
            8..=10 => self.answer(),
            11 => self.lose_connection(),
            12 => {
                let n = input.below(6) as i32;
                self.broker = 1 + n / 2;
                self.branch = if n % 2 == 0 { Branch::Main } else { Branch::Side };
                self.queue.leader_is_untried();
                if input.flag() {
                    self.queue.leader_is_news();
                }
            }
            13 => self.now += Duration::from_millis(input.byte().into()),
            14 => {
                self.now += Duration::from_secs(input.below(90) as u64);
                self.expire();
            }
            15 => {
                for batch in self.queue.take_movable(&self.policy) {
                    assert!(!batch.outcome_unknown() && batch.first_sequence().is_none());
                    self.moved.extend(contents(&batch));
                }
            }
            _ => {
                if self.queue.rest(self.now) {
                    assert!(self.queue.is_idle() && self.in_flight.is_empty(), "rests with work");
                }
            }
        }
    }

    fn append(&mut self, input: &mut Input<'_>) {
        let mut value = self.next.to_be_bytes().to_vec();
        value.resize(4 + input.below(100), b'x');
        let record = RecordData { key: None, value: Some(&value), headers: &[], timestamp: 0 };
        if self.queue.try_append(&self.policy, &record).is_none() {
            let growth = self.queue.growth(&self.policy, &record, input.flag());
            let grown = growth.and_then(|growth| self.queue.grow(growth, Vec::new()));
            if grown.is_some() {
                let placed = self.queue.try_append(&self.policy, &record);
                assert!(placed.is_some(), "a batch that has grown has room");
            } else {
                let (ratio, now) = (self.ratio.clone(), self.now);
                let placed =
                    self.queue.open(&self.policy, &record, Vec::new(), Vec::new(), ratio, now);
                assert_eq!(placed.index, 0);
            }
        }
        if input.flag() {
            self.queue.bind();
        }
        self.next += 1;
    }

    /// Sends the queue's next batch, a trial in parts first.
    fn send(&mut self, fate: u8) {
        if self.in_flight.len() == IN_FLIGHT {
            return;
        }
        let taken = self.take();
        let Some(batch) = taken else { return };
        let breaks = self.in_flight.iter().any(|(_, fate)| matches!(fate, Fate::Silent));
        let after_append = |log: &mut Log, refusal| match log.append(batch.payload()) {
            ErrorCode::NONE => (refusal, Append::Possible),
            code => (code, Append::Possible),
        };
        let (code, append) = match fate {
            // After a lost request, no later request on that connection arrives.
            _ if breaks => return self.in_flight.push_back((batch, Fate::Silent)),
            0..=149 => (self.log.append(batch.payload()), Append::Possible),
            150..=169 => return self.in_flight.push_back((batch, Fate::Silent)),
            170..=189 => {
                self.log.append(batch.payload());
                return self.in_flight.push_back((batch, Fate::Silent));
            }
            190..=194 => (ErrorCode::NOT_LEADER_OR_FOLLOWER, Append::Possible),
            195..=204 => (ErrorCode::NOT_LEADER_OR_FOLLOWER, Append::Excluded),
            205..=209 => after_append(&mut self.log, ErrorCode::NOT_LEADER_OR_FOLLOWER),
            210..=224 => (ErrorCode::NOT_ENOUGH_REPLICAS, Append::Excluded),
            225..=234 => after_append(&mut self.log, ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND),
            235..=244 => (ErrorCode::MESSAGE_TOO_LARGE, Append::Excluded),
            245..=249 => (ErrorCode::UNKNOWN_PRODUCER_ID, Append::Excluded),
            _ => (ErrorCode::INVALID_RECORD, Append::Excluded),
        };
        self.in_flight.push_back((batch, Fate::Answered(code, append)));
    }

    fn take(&mut self) -> Option<Batch<Numbers>> {
        let idempotence = Idempotence::As(IDENTITY);
        for _ in 0..2 {
            let (broker, branch) = (self.broker, self.branch);
            let to = accumulator::Target { broker, branch, incarnation: Incarnation::FIRST };
            match self.queue.take(&self.policy, idempotence, to, self.now) {
                Take::Batch(batch) => {
                    assert!(batch.records > 0);
                    return Some(batch);
                }
                Take::Trial(batch, parts) => {
                    let count = parts.shares().len();
                    assert_eq!(
                        parts.shares().map(|share| share.records).sum::<u32>(),
                        batch.records
                    );
                    self.queue.put_back(batch, parts, |_| vec![Vec::new(); count]);
                }
                Take::At(at) => {
                    assert!(at > self.now, "waits for the past");
                    return None;
                }
                Take::AfterOutcome => {
                    assert!(
                        !self.in_flight.is_empty(),
                        "waits for an outcome with nothing in flight"
                    );
                    return None;
                }
                Take::Empty => {
                    assert!(self.queue.is_drained(), "nothing to send, and not drained");
                    return None;
                }
                Take::AfterIdentity | Take::AfterAnotherId(_) => return None,
            }
        }
        panic!("a trial was taken and given back twice");
    }

    /// Receives the oldest response, or loses the connection if that response never arrives.
    fn answer(&mut self) {
        match self.in_flight.pop_front() {
            Some((batch, Fate::Answered(code, append))) => self.settle(batch, code, append),
            Some(silent) => {
                self.in_flight.push_front(silent);
                self.lose_connection();
            }
            None => {}
        }
    }

    fn lose_connection(&mut self) {
        let backoff = self.now + Duration::from_millis(50);
        while let Some((batch, _)) = self.in_flight.pop_front() {
            if let Some(lost) = self.queue.retry(batch, true, Some(backoff)) {
                self.fail(&lost, true);
            }
        }
    }

    fn settle(&mut self, batch: Batch<Numbers>, code: ErrorCode, append: Append) {
        let is_next = self.queue.is_next(&batch);
        let sequenced = Sequenced::Idempotent;
        let context = Context { sequenced, is_next, records: batch.records };
        let backoff = self.now + Duration::from_millis(100);
        let given_back = match classify(code, context) {
            Verdict::Written | Verdict::WrittenBefore => {
                self.acknowledged.extend(contents(&batch));
                self.queue.written(&batch);
                None
            }
            Verdict::Retry { .. } | Verdict::Moved => {
                let unknown = may_have_been_written(code, append);
                self.queue.retry(batch, unknown, Some(backoff))
            }
            Verdict::Split => {
                let parts = Parts::of(&batch, &self.policy).expect("our own batch");
                let count = parts.shares().len();
                self.queue.split(batch, parts, |_| vec![Vec::new(); count])
            }
            Verdict::RetryInNextEpoch => {
                for lost in self.queue.renumber(batch, Some(backoff)) {
                    self.unknown.extend(contents(&lost));
                }
                None
            }
            Verdict::Fail | Verdict::FailAndBumpEpoch => {
                let unknown = batch.outcome_unknown() || may_have_been_written(code, append);
                self.fail(&batch, unknown);
                None
            }
        };
        if let Some(batch) = given_back {
            let unknown = batch.outcome_unknown();
            self.fail(&batch, unknown);
        }
    }

    fn fail(&mut self, batch: &Batch<Numbers>, written_unknown: bool) {
        let numbers = contents(batch);
        if written_unknown {
            self.unknown.extend(numbers);
        } else {
            self.refused.extend(numbers);
        }
        for lost in self.queue.fail(batch) {
            self.fail(&lost, true);
        }
    }

    fn expire(&mut self) {
        for batch in self.queue.expire(&self.policy, self.now) {
            let unknown = batch.outcome_unknown();
            self.fail(&batch, unknown);
        }
        let next = self.queue.next_expiry(&self.policy);
        assert!(next.is_none_or(|at| at > self.now), "expires in the past");
    }

    /// From here on there are no faults, and every record gets an outcome.
    fn finish(&mut self) {
        for _ in 0..4 * self.next + 40 {
            self.now += Duration::from_millis(200);
            self.send(0);
            self.answer();
        }
        assert!(self.queue.is_idle(), "a record has no outcome: {:?}", self.queue);
        let log = &self.log.numbers;
        assert!(log.is_sorted_by(|a, b| a < b), "out of order or twice: {log:?}");
        let log: BTreeSet<u32> = log.iter().copied().collect();
        assert!(self.acknowledged.is_subset(&log), "acknowledged and not written");
        assert!(self.refused.is_disjoint(&log), "reported as not written, and written");
        assert!(self.moved.is_disjoint(&log), "written to another partition, and here");
        let settled = [&self.acknowledged, &self.refused, &self.unknown, &self.moved];
        let outcomes: usize = settled.map(BTreeSet::len).iter().sum();
        assert_eq!(outcomes, self.next as usize, "each record has one outcome");
    }
}

fn contents(batch: &Batch<Numbers>) -> Numbers {
    numbers(&records::Batch::parse(batch.payload().clone()).expect("our own batch"))
}

fn seeds() -> Vec<Vec<u8>> {
    let append = [0, 30, 1];
    let mut seeds = Vec::new();
    for size in 0..3u8 {
        let head = [size, 0, 0, 0];
        let sent = [&append.repeat(6)[..], &[4, 0, 8, 4, 0, 4, 0, 4, 0]].concat();
        for trouble in [
            &[4, 150, 11, 4, 0, 8, 4, 0, 8][..],
            &[4, 170, 4, 0, 11, 13, 90, 4, 0, 8],
            &[4, 190, 8, 12, 1, 1, 4, 0, 8, 8],
            &[4, 235, 8, 8, 4, 0, 8, 4, 0, 8],
            &[4, 250, 8, 8, 13, 200, 4, 0, 8],
            &[4, 245, 4, 150, 8, 8, 13, 200, 4, 0, 8],
            &[4, 150, 11, 13, 90, 4, 245, 8, 13, 200, 4, 0, 8],
            &[11, 14, 89, 14, 89, 4, 0, 8],
            &[4, 225, 8, 13, 200, 4, 0, 8, 16],
            &[4, 195, 4, 195, 8, 8, 15, 0, 30, 0, 4, 0, 8],
            &[4, 205, 4, 195, 8, 8, 15, 4, 0, 8],
        ] {
            seeds.push([&head[..], &sent, trouble].concat());
            seeds.push([&head[..], &append.repeat(3), trouble, &append].concat());
        }
    }
    seeds
}
