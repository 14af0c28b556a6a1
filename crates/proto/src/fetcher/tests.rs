#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{cell::Cell, rc::Rc};

use bytes::Bytes;
use curtail_wire::fetch::{
    EpochEndOffset, FetchPartitionResponse, FetchResponse, FetchTopicResponse, LeaderIdAndEpoch,
};

use super::*;
use crate::{
    metadata::Leader,
    position::{FetchVerdict, Versions},
};

mod operations;
mod policies;
mod transitions;

/// Bytes of the lane's share.
const SHARE: usize = 1_000;
const MAX_WAIT: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const TOPIC: Uuid = Uuid([7; 16]);
const VERSION: i16 = 17;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn settings(buffered: Buffered) -> Settings {
    let backoff = Backoff { initial: ms(100), max: ms(1000) };
    Settings {
        buffered,
        max_wait: MAX_WAIT,
        partition_bytes: 100,
        isolation: IsolationLevel::ReadUncommitted,
        request_timeout: REQUEST_TIMEOUT,
        retry: backoff,
        reconnect: backoff,
        suspicion: Suspicion::of_fetches(LIMIT),
    }
}

fn tp(n: i32) -> TopicPartition {
    TopicPartition::new("t", n)
}

type Handle = Rc<Cell<usize>>;

/// A fetcher with a clock, positions and a buffer.
struct Bench {
    fetcher: Fetcher<Handle>,
    now: Instant,
    versions: Versions,
    positions: BTreeMap<TopicPartition, FetchFrom>,
    held: BTreeMap<TopicPartition, Handle>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Buffered::Credit)
    }

    fn with(buffered: Buffered) -> Self {
        let now = Instant::now();
        Self {
            fetcher: Fetcher::new(settings(buffered), now),
            now,
            versions: Versions::default(),
            positions: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// A bench whose session is open, with these partitions read from offset 0 and a second response behind.
    fn open(partitions: i32) -> Self {
        let mut bench = Self::new();
        (0..partitions).for_each(|n| bench.seek(n));
        bench.exchange(&[]);
        assert_eq!(bench.state(), "Idle");
        bench
    }

    fn state(&self) -> &'static str {
        match self.fetcher.main {
            Main::Closed => "Closed",
            Main::Idle => "Idle",
            Main::Resting => "Resting",
            Main::Sending => "Sending",
            Main::InFlight(_) => "InFlight",
            Main::LookingUp => "LookingUp",
        }
    }

    fn handle(&mut self, n: i32) -> Handle {
        self.held.entry(tp(n)).or_default().clone()
    }

    fn need(&mut self, n: i32, interest: Interest) -> Need<Handle> {
        let held = self.handle(n);
        Need::Fetch(Wanted {
            from: self.positions[&tp(n)],
            topic_id: TOPIC,
            interest,
            review_at: None,
            buffered: (held.get() > 0).then_some(held),
        })
    }

    /// Gives the partition a new position at offset 0.
    fn seek(&mut self, n: i32) {
        let version = self.versions.next_version();
        let from = FetchFrom { version, offset: 0, last_fetched_epoch: -1, leader_epoch: 3 };
        self.positions.insert(tp(n), from);
        self.assign(n, Interest::Wanted);
    }

    fn assign(&mut self, n: i32, interest: Interest) {
        let need = self.need(n, interest);
        self.fetcher.handle_assigned(&tp(n), need);
    }

    fn look_up(&mut self, n: i32) {
        let version = self.versions.next_version();
        let lookup = LookUp { version, to: Reset::Earliest, leader_epoch: 3 };
        self.fetcher.handle_assigned(&tp(n), Need::LookUp(lookup));
    }

    fn used(&self) -> usize {
        self.held.values().map(|held| held.get()).sum()
    }

    fn plan(&mut self) -> Wake {
        let share = Share { total: SHARE, used: self.used() };
        let room = Room { share, all_used: share.used };
        self.fetcher.handle_drained(room, |held| held.get(), self.now)
    }

    /// Plans, and sends the session's fetch, which must be next.
    fn send(&mut self) -> Fetch {
        self.plan();
        let Some(Transmit::Session(permit)) = self.fetcher.poll_transmit() else {
            panic!("not the session's turn: {:?}", self.fetcher);
        };
        if self.fetcher.link == Link::Down {
            self.fetcher.handle_open(ms(2));
        }
        self.fetcher.send(permit, VERSION, self.now)
    }

    /// Plans, and returns the sessionless fetches, with the partitions that they name.
    fn beside(&mut self) -> Vec<(Purpose, Vec<i32>, Fetch)> {
        self.plan();
        let mut fetches = Vec::new();
        while let Some(transmit) = self.fetcher.poll_transmit() {
            let Transmit::Sessionless(purpose, fetch) = transmit else {
                panic!("not sessionless: {transmit:?}");
            };
            assert_eq!((fetch.session.session_id, fetch.session.session_epoch), (0, -1));
            fetches.push((purpose, named(&fetch), fetch));
        }
        fetches
    }

    fn respond(&mut self, response: FetchResponse) -> Vec<Answered> {
        self.fetcher.handle_response(response, self.now, || 0.5);
        self.results()
    }

    fn respond_beside(&mut self, purpose: Purpose, response: FetchResponse) -> Vec<Answered> {
        self.fetcher.handle_sessionless_response(purpose, response, self.now, || 0.5);
        self.results()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.fetcher.poll_event()).collect()
    }

    /// The results of the last response, the only event.
    fn results(&mut self) -> Vec<Answered> {
        let mut results = Vec::new();
        for event in self.events() {
            match event {
                Event::Store(part, _) => results.extend(part),
                other => panic!("{other:?}"),
            }
        }
        results
    }

    /// Stores `bytes` bytes of records of a partition up to `offset`, where the broker's log ends at `end`.
    fn store(&mut self, n: i32, offset: i64, end: i64, bytes: usize) {
        let at = tp(n);
        let held = self.handle(n);
        held.set(held.get() + bytes);
        let from = self.positions.get_mut(&at).unwrap();
        from.offset = offset;
        self.fetcher.handle_end(&at, end);
        self.fetcher.handle_stored(&at, *from, || held);
    }

    /// One exchange of the session, with these results.
    fn exchange(&mut self, results: &[FetchPartitionResponse]) -> Vec<Answered> {
        let fetch = self.send();
        let opening: Vec<_> = named(&fetch).into_iter().map(result).collect();
        let results = if fetch.is_opening { &opening } else { results };
        self.respond(response(results))
    }

    /// Times out at the time that the fetcher names.
    fn time_out(&mut self) -> Vec<Event> {
        self.now = self.fetcher.poll_timeout().unwrap();
        self.fetcher.handle_timeout(self.now);
        self.events()
    }
}

/// Partitions that a fetch names.
fn named(fetch: &Fetch) -> Vec<i32> {
    let topics = fetch.session.topics.iter();
    topics.flat_map(|topic| topic.partitions.iter().map(|p| p.index)).collect()
}

/// A partition's result without records.
fn result(n: i32) -> FetchPartitionResponse {
    FetchPartitionResponse {
        index: n,
        error: ErrorCode::NONE,
        high_watermark: 0,
        last_stable_offset: 0,
        log_start_offset: 0,
        diverging_epoch: None,
        current_leader: None,
        aborted_transactions: None,
        preferred_read_replica: -1,
        records: Bytes::new(),
    }
}

/// A response of session 5.
fn response(results: &[FetchPartitionResponse]) -> FetchResponse {
    let partitions = results.to_vec();
    let topic = FetchTopicResponse { topic_id: TOPIC, partitions, ..Default::default() };
    FetchResponse { session_id: 5, topics: vec![topic], ..Default::default() }
}

fn refusal(error: ErrorCode) -> FetchResponse {
    FetchResponse { error, ..Default::default() }
}

/// A partition whose duty is of this kind.
fn duty(bench: &Bench, n: i32) -> Option<Duty> {
    bench.fetcher.partitions.entry(&tp(n)).map(|entry| entry.duty)
}
