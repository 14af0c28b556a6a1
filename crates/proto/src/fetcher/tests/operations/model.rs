//! A consumer and a broker around a fetcher. The property test and the fuzz target `fetcher` run sequences of
//! operations on them.
//!
//! After each operation: a connection has one request in flight; no fetch exceeds the credit; work that is in no
//! request has a time or a threshold. In the end, without faults, every partition is read to its end.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Uuid,
    fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse, IsolationLevel},
    records::{BatchBuilder, Codec, Compression, ProducerStamp, RecordData, stamp},
};

use super::names::*;

const PARTITIONS: i32 = 4;
const SHARE: usize = 2_000;
const TOPIC: Uuid = Uuid([7; 16]);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Records of a partition in one response.
const PER_RESPONSE: i64 = 3;
/// Number of different operations.
pub(super) const OPERATIONS: u8 = 18;

/// A partition: the consumer's position and buffer, and the end of the broker's log.
struct Partition {
    is_assigned: bool,
    is_paused: bool,
    version: Version,
    /// The offset to fetch next; `None` if it must be looked up.
    offset: Option<i64>,
    retry_at: Option<Instant>,
    held: Rc<Cell<usize>>,
    end: i64,
}

impl Partition {
    fn from(&self) -> Option<FetchFrom> {
        let offset = self.offset?;
        Some(FetchFrom { version: self.version, offset, last_fetched_epoch: -1, leader_epoch: 1 })
    }
}

/// The request on the session's connection.
enum Line {
    Free,
    /// A fetch, and the broker's session error.
    Fetch(ErrorCode, Named),
    LookUp(BTreeMap<TopicPartition, LookUp>),
}

/// Partitions that the broker fetches, from these offsets.
type Named = BTreeMap<i32, i64>;

#[derive(Default)]
struct Broker {
    /// Id, next epoch and partitions.
    session: Option<(i32, i32, Named)>,
    last_id: i32,
    has_no_slot: bool,
    /// A partition that it refuses.
    refused: Option<i32>,
}

impl Broker {
    /// Receives a request, and returns what it fetches.
    fn receive(&mut self, fetch: &Fetch) -> (ErrorCode, Named) {
        let request = &fetch.session;
        let topics = request.topics.iter().flat_map(|topic| &topic.partitions);
        let named: Named = topics.map(|p| (p.index, p.fetch_offset)).collect();
        match request.session_epoch {
            -1 => return (ErrorCode::NONE, named),
            0 => {
                self.last_id += 1;
                self.session = Some((self.last_id, 1, named.clone()));
                self.session.take_if(|_| self.has_no_slot);
                return (ErrorCode::NONE, named);
            }
            _ => {}
        }
        let Some((id, epoch, held)) = &mut self.session else {
            return (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, Named::new());
        };
        if (*id, *epoch) != (request.session_id, request.session_epoch) {
            return (ErrorCode::INVALID_FETCH_SESSION_EPOCH, Named::new());
        }
        *epoch += 1;
        held.extend(named);
        for partition in request.forgotten.iter().flat_map(|topic| &topic.partitions) {
            assert!(held.remove(partition).is_some(), "forgets a partition that was not named");
        }
        (ErrorCode::NONE, held.clone())
    }
}

/// The fetcher with its consumer and its broker.
pub(super) struct Bench {
    fetcher: Fetcher<Rc<Cell<usize>>>,
    buffered: Buffered,
    now: Instant,
    versions: Versions,
    partitions: Vec<Partition>,
    changed: BTreeSet<TopicPartition>,
    broker: Broker,
    is_connected: bool,
    line: Line,
    beside: BTreeMap<Purpose, Named>,
    wake: Wake,
}

impl Bench {
    pub(super) fn new(buffered: Buffered) -> Self {
        let now = Instant::now();
        let backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(1) };
        let settings = Settings {
            buffered,
            max_wait: Duration::from_millis(500),
            partition_bytes: 1 << 20,
            isolation: IsolationLevel::ReadUncommitted,
            request_timeout: REQUEST_TIMEOUT,
            retry: backoff,
            reconnect: backoff,
            suspicion: Suspicion::of_fetches(Duration::from_secs(1)),
        };
        let mut versions = Versions::default();
        let mut partition = |_| Partition {
            is_assigned: false,
            is_paused: false,
            version: versions.next_version(),
            offset: None,
            retry_at: None,
            held: Rc::default(),
            end: 0,
        };
        Self {
            fetcher: Fetcher::new(settings, now),
            buffered,
            now,
            partitions: (0..PARTITIONS).map(&mut partition).collect(),
            versions,
            changed: BTreeSet::new(),
            broker: Broker::default(),
            is_connected: false,
            line: Line::Free,
            beside: BTreeMap::new(),
            wake: Wake::Never,
        }
    }

    /// One operation, then the fetcher's turn.
    pub(super) fn operate(&mut self, operation: u8, argument: u8) {
        let n = usize::from(argument) % self.partitions.len();
        match operation % OPERATIONS {
            0..=2 => self.respond(),
            3 => self.respond_beside(Purpose::Known),
            4 => self.respond_beside(Purpose::Coming),
            5 | 6 => self.partitions[n].end += 1 + i64::from(argument >> 4),
            7 => self.drain(n),
            8 => (0..self.partitions.len()).for_each(|n| self.drain(n)),
            9 => self.change(n, |partition, _| partition.is_assigned = true),
            10 => self.change(n, |partition, versions| {
                partition.is_assigned = false;
                partition.version = versions.next_version();
                partition.held.set(0);
            }),
            11 => self.change(n, |partition, versions| {
                partition.version = versions.next_version();
                partition.offset = (argument & 16 == 0).then_some(0);
                partition.retry_at = None;
                partition.held.set(0);
            }),
            12 => self.change(n, |partition, _| partition.is_paused = !partition.is_paused),
            13 => self.lose(),
            14 => self.now += Duration::from_millis(u64::from(argument) * 10),
            15 => self.now += Duration::from_secs(u64::from(argument)),
            16 => self.broker.session = None,
            _ => {
                self.broker.has_no_slot = argument & 1 == 1;
                self.broker.refused = (argument & 2 == 2).then_some(n as i32);
            }
        }
        self.turn();
    }

    fn change(&mut self, n: usize, change: impl FnOnce(&mut Partition, &mut Versions)) {
        change(&mut self.partitions[n], &mut self.versions);
        self.changed.insert(at(n as i32));
    }

    fn drain(&mut self, n: usize) {
        self.partitions[n].held.set(0);
    }

    fn used(&self) -> usize {
        self.partitions.iter().map(|partition| partition.held.get()).sum()
    }

    fn turn(&mut self) {
        if self.fetcher.poll_timeout().is_some_and(|at| at <= self.now) {
            self.fetcher.handle_timeout(self.now);
        }
        self.carry_out();
        match self.line {
            Line::Free => self.plan(),
            Line::Fetch(..) | Line::LookUp(_) => {
                let (partitions, now) = (&self.partitions, self.now);
                let need = |at: &TopicPartition| need_of(&partitions[at.partition as usize], now);
                self.fetcher.handle_changed(&self.changed, need, now);
            }
        }
        self.check();
    }

    fn plan(&mut self) {
        let bytes_of = |held: &Rc<Cell<usize>>| held.get();
        let mut changed = std::mem::take(&mut self.changed);
        self.fetcher.due(self.now, bytes_of, &mut changed);
        for at in changed {
            let need = need_of(&self.partitions[at.partition as usize], self.now);
            self.fetcher.handle_assigned(&at, need);
        }
        let share = Share { total: SHARE, used: self.used() };
        let room = Room { share, all_used: share.used };
        self.wake = self.fetcher.handle_drained(room, bytes_of, self.now);
        self.carry_out();
        while let Some(transmit) = self.fetcher.poll_transmit() {
            self.send(transmit);
        }
    }

    fn send(&mut self, transmit: Transmit) {
        match transmit {
            Transmit::Sessionless(purpose, fetch) => {
                let (_, named) = self.broker.receive(&fetch);
                self.check_credit(&fetch, &named);
                let before = self.beside.insert(purpose, named);
                assert!(purpose == Purpose::Coming || before.is_none(), "a second request");
            }
            Transmit::Session(permit) => {
                assert!(matches!(self.line, Line::Free), "a second request");
                if !std::mem::replace(&mut self.is_connected, true) {
                    self.fetcher.handle_open(Duration::from_millis(2));
                }
                let version = *self.fetcher.versions().end();
                let fetch = self.fetcher.send(permit, version, self.now);
                let (error, named) = self.broker.receive(&fetch);
                self.check_credit(&fetch, &named);
                self.line = Line::Fetch(error, named);
            }
            Transmit::LookUp(asked) => {
                assert!(matches!(self.line, Line::Free), "a second request");
                assert!(!asked.is_empty());
                if !std::mem::replace(&mut self.is_connected, true) {
                    self.fetcher.handle_open(Duration::from_millis(2));
                }
                self.line = Line::LookUp(asked);
            }
        }
    }

    /// A fetch asks for at most half of what is free, and names no partition without credit.
    fn check_credit(&self, fetch: &Fetch, named: &Named) {
        let used = self.used();
        let free = SHARE.saturating_sub(used);
        assert!(fetch.max_bytes <= (free / 2).max(1), "asks for too much");
        let is_to_keep_the_session = fetch.session.session_epoch > 0 && fetch.max_bytes == 1;
        for n in named.keys() {
            let partition = &self.partitions[*n as usize];
            let held = partition.held.get();
            match self.buffered {
                Buffered::Credit if is_to_keep_the_session => {}
                Buffered::Credit => {
                    assert!(used <= SHARE / 2 || free > 0 && held <= free, "without credit");
                    assert!(!partition.is_paused || self.changed.contains(&at(*n)), "paused");
                }
                Buffered::Omit => assert_eq!(held, 0, "buffered"),
                Buffered::SkipBroker | Buffered::SkipAll => assert_eq!(used, 0, "buffered"),
            }
        }
    }

    fn carry_out(&mut self) {
        while let Some(event) = self.fetcher.poll_event() {
            match event {
                Event::Store(results, _) => results.into_iter().for_each(|r| self.store(r)),
                Event::CloseSessionless => self.beside.clear(),
                Event::Interrupt => {
                    assert!(matches!(self.line, Line::Fetch(..)), "nothing to interrupt");
                    self.line = Line::Free;
                    self.is_connected = false;
                    self.fetcher.handle_interrupted();
                }
                Event::TimedOut => self.lose(),
                Event::Refresh | Event::Refused(_) | Event::Throttled(_) => {}
            }
        }
    }

    fn lose(&mut self) {
        self.line = Line::Free;
        self.is_connected = false;
        self.fetcher.handle_lost(Failure::Connection, self.now, 0.5);
        self.carry_out();
        assert!(self.beside.is_empty(), "their connections must be closed");
    }

    fn respond(&mut self) {
        match std::mem::replace(&mut self.line, Line::Free) {
            Line::Free => {}
            Line::Fetch(error, named) => {
                let session = self.broker.session.as_ref();
                let session_id = session.map_or(0, |(id, ..)| *id);
                let response = self.response(error, session_id, &named);
                self.fetcher.handle_response(response, self.now, || 0.5);
            }
            Line::LookUp(asked) => {
                self.fetcher.handle_looked_up();
                for (at, lookup) in asked {
                    let partition = &mut self.partitions[at.partition as usize];
                    if partition.version == lookup.version {
                        partition.offset = Some(0);
                    }
                    self.changed.insert(at);
                }
            }
        }
        self.carry_out();
    }

    fn respond_beside(&mut self, purpose: Purpose) {
        let Some(named) = self.beside.remove(&purpose) else { return };
        let response = self.response(ErrorCode::NONE, 0, &named);
        self.fetcher.handle_sessionless_response(purpose, response, self.now, || 0.5);
        self.carry_out();
    }

    fn response(&self, error: ErrorCode, session_id: i32, named: &Named) -> FetchResponse {
        let result = |(n, from): (&i32, &i64)| {
            let is_refused = self.broker.refused == Some(*n);
            let end = self.partitions[*n as usize].end;
            let count = (end - from).clamp(0, PER_RESPONSE);
            FetchPartitionResponse {
                index: *n,
                error: if is_refused { ErrorCode::NOT_LEADER_OR_FOLLOWER } else { ErrorCode::NONE },
                high_watermark: end,
                last_stable_offset: end,
                log_start_offset: 0,
                diverging_epoch: None,
                current_leader: None,
                aborted_transactions: None,
                preferred_read_replica: -1,
                records: if is_refused || count == 0 { Bytes::new() } else { batch(*from, count) },
            }
        };
        let partitions =
            if error.is_error() { Vec::new() } else { named.iter().map(result).collect() };
        let topic = FetchTopicResponse { topic_id: TOPIC, partitions, ..Default::default() };
        FetchResponse { error, session_id, topics: vec![topic], ..Default::default() }
    }

    fn store(&mut self, result: Answered) {
        let Answered { at, from, answer } = result;
        let partition = &mut self.partitions[at.partition as usize];
        if !partition.is_assigned || partition.from() != Some(from) {
            return;
        }
        let Answer::Records(ends, records) = answer else {
            partition.retry_at = Some(self.now + Duration::from_millis(100));
            self.changed.insert(at);
            return;
        };
        self.fetcher.handle_end(&at, ends.readable);
        let next = records.extent.next.offset;
        if next > from.offset {
            partition.offset = Some(next);
            partition.held.set(partition.held.get() + records.bytes.len());
            let held = partition.held.clone();
            self.fetcher.handle_stored(&at, FetchFrom { offset: next, ..from }, || held);
        }
    }

    /// Work that is in no request has a time or a threshold.
    fn check(&self) {
        let is_waiting = |partition: &Partition| match need_of(partition, self.now) {
            Need::Nothing => false,
            Need::Wait { .. } | Need::LookUp(_) => true,
            Need::Fetch(wanted) => wanted.interest == Interest::Wanted,
        };
        let is_in_flight = !matches!(self.line, Line::Free) || !self.beside.is_empty();
        let is_woken = self.fetcher.poll_timeout().is_some() || self.wake != Wake::Never;
        let has_work = self.partitions.iter().any(is_waiting);
        assert!(!has_work || is_in_flight || is_woken, "forgotten: {:?}", self.fetcher);
    }

    /// From here on there are no faults, the application drains, and every partition is read to its end.
    pub(super) fn finish(&mut self) {
        self.broker.has_no_slot = false;
        self.broker.refused = None;
        for n in 0..self.partitions.len() {
            self.change(n, |partition, _| {
                (partition.is_assigned, partition.is_paused) = (true, false);
            });
        }
        let records: i64 = self.partitions.iter().map(|partition| partition.end).sum();
        for _ in 0..100 + 4 * records {
            (0..self.partitions.len()).for_each(|n| self.drain(n));
            self.now += Duration::from_millis(50);
            self.turn();
            let is_idle = matches!(self.line, Line::Free) && self.beside.is_empty();
            if let Some(at) = self.fetcher.poll_timeout().filter(|at| is_idle && *at > self.now) {
                self.now = at;
            }
            self.respond();
            self.respond_beside(Purpose::Known);
            self.respond_beside(Purpose::Coming);
            if self.partitions.iter().all(|partition| partition.offset >= Some(partition.end)) {
                return;
            }
        }
        panic!("a partition is not read: {:?}", self.fetcher);
    }
}

fn at(n: i32) -> TopicPartition {
    TopicPartition::new("t", n)
}

fn need_of(partition: &Partition, now: Instant) -> Need<Rc<Cell<usize>>> {
    if !partition.is_assigned {
        return Need::Nothing;
    }
    if let Some(until) = partition.retry_at.filter(|until| *until > now) {
        let version = (!partition.is_paused).then_some(partition.version);
        return Need::Wait { until, version };
    }
    let Some(from) = partition.from() else {
        return Need::LookUp(LookUp {
            version: partition.version,
            to: Reset::Earliest,
            leader_epoch: 1,
        });
    };
    let interest = if partition.is_paused { Interest::Paused } else { Interest::Wanted };
    let buffered = (partition.held.get() > 0).then(|| partition.held.clone());
    Need::Fetch(Wanted { from, topic_id: TOPIC, interest, review_at: None, buffered })
}

/// A batch of records of 100 bytes.
fn batch(base: i64, count: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Vec::new());
    for _ in 0..count {
        let value = Some(&[b'v'; 100][..]);
        builder.append(&RecordData { key: None, value, headers: &[], timestamp: 1 });
    }
    let compression = Compression { codec: Codec::None, level: None };
    let mut bytes = builder.seal(&compression, &mut Vec::new()).expect("a batch");
    stamp(&mut bytes, ProducerStamp { producer_id: -1, producer_epoch: -1, base_sequence: -1 });
    curtail_wire::records::set_base_offset_and_epoch(&mut bytes, base, 1);
    bytes.into()
}
