//! One broker's fetches: which request it receives next, and what its responses mean.
//!
//! A machine in the shape of `quinn-proto`: time, random draws and the bytes in the buffer come as arguments. Sockets,
//! the buffer, positions and decompression stay with the caller, which repeats this turn:
//!
//! 1. [`Fetcher::handle_assigned`] for each partition that changed or is due ([`Fetcher::due`]);
//! 2. [`Fetcher::handle_drained`], which plans, then [`Fetcher::poll_event`] and [`Fetcher::poll_transmit`] until both
//!    are empty;
//! 3. a wait for a response, a change, drained bytes or [`Fetcher::poll_timeout`]. While the session's fetch is in
//!    flight, changes go to [`Fetcher::handle_changed`] instead.
//!
//! Three connections serve a broker. The session's carries one request at a time: a fetch of the session or an offset
//! lookup. While the buffered records of a partition forbid another fetch of it, the session rests, and two more
//! connections fetch the other partitions without a session ([`Purpose`], decision 0021).
//!
//! ```text
//!   session      Closed ──▶ Sending ──▶ InFlight ──▶ Idle ──▶ Sending ..
//!                  ▲                        │          │ ▲
//!                  └── lost, refused ───────┘          ▼ │
//!                                                    Resting
//!   sessionless  Closed ──▶ InFlight ◀──▶ Idle
//! ```
//!
//! `Resting` is an open session that must not be used now. An offset lookup (`LookingUp`) takes the place of `Sending`
//! and `InFlight`.
//!
//! # Invariants
//! - A connection has at most one request in flight.
//! - A partition that the session's fetch in flight names does not change before that response, except that a
//!   sessionless response moves it. That partition's result in the session's response is then ignored.
//! - Work that is not requested has a time ([`Fetcher::poll_timeout`]), a threshold ([`Wake`]) or a request in flight
//!   that ends first.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use curtail_wire::{
    ErrorCode, Uuid,
    fetch::{self, IsolationLevel, NodeEndpoint},
};

use self::partitions::{Duty, Entry, Partitions, Read};
use crate::{
    TopicPartition,
    backoff::Backoff,
    fetch_session::{FetchSession, Naming, Params, SessionPartition, SessionRequest},
    later::Later,
    path::{Path, Suspicion},
    position::{FetchFrom, Reset, Version},
};

mod answers;
mod credit;
mod extent;
mod partitions;
mod plan;
mod sessionless;
#[cfg(test)]
mod tests;

use self::sessionless::Sessionless;
pub use self::{
    answers::{Answer, Answered, Ends, Records},
    credit::{Share, Wake},
    extent::Extent,
    plan::{Permit, Room},
    sessionless::Purpose,
};

/// First version with topic ids (KIP-516).
const TOPIC_IDS: i16 = 13;

/// Longest idle time of a session. Brokers may evict a session that was unused for two minutes (KIP-227).
const SESSION_REST: Duration = Duration::from_secs(60);

/// `curtail.buffered.partitions`: what happens to partitions whose records are buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffered {
    /// They stay in the session, and are fetched while they have credit.
    Credit,
    /// They leave the session until they are drained: Java's consumers before 4.0.
    Omit,
    /// Nothing is fetched from their broker: Java's consumers since 4.0.
    SkipBroker,
    /// Nothing is fetched from any broker.
    SkipAll,
}

/// Settings of a fetcher.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `curtail.buffered.partitions`.
    pub buffered: Buffered,
    /// `fetch.max.wait.ms`.
    pub max_wait: Duration,
    /// `max.partition.fetch.bytes`.
    pub partition_bytes: i32,
    /// `isolation.level`.
    pub isolation: IsolationLevel,
    /// `request.timeout.ms`.
    pub request_timeout: Duration,
    /// Backoff after a refused fetch.
    pub retry: Backoff,
    /// Backoff after a lost connection.
    pub reconnect: Backoff,
    /// When the broker is suspected.
    pub suspicion: Suspicion,
}

/// Whether the application wants a partition's records now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// It does.
    Wanted,
    /// It has paused the partition, which stays in the session for as long as the session may stay idle.
    Paused,
}

/// An offset to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// Version of the position.
    pub version: Version,
    /// The offset.
    pub to: Reset,
    /// The known leader epoch; -1 for none.
    pub leader_epoch: i32,
}

/// A partition to fetch.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<H> {
    /// Parameters of the fetch.
    pub from: FetchFrom,
    /// Topic id; zero if the broker has none.
    pub topic_id: Uuid,
    /// Whether its records are wanted now.
    pub interest: Interest,
    /// When to review the partition, even without a change.
    pub review_at: Option<Instant>,
    /// Handle of its records in the buffer, if there are any.
    pub buffered: Option<H>,
}

/// What a partition needs from its broker.
#[derive(Clone, Copy, Debug)]
pub enum Need<H> {
    /// Nothing: it is read elsewhere, or something else comes first.
    Nothing,
    /// Nothing before this time. If it then needs a request, `version` is that of its position.
    Wait {
        /// When to review it.
        until: Instant,
        /// Version of the position to request something for.
        version: Option<Version>,
    },
    /// The offset of a position.
    LookUp(LookUp),
    /// Records.
    Fetch(Wanted<H>),
}

impl<H> Need<H> {
    /// The version that a request must name, and when it is due.
    fn due(&self, now: Instant) -> Option<(Version, Instant)> {
        match self {
            Self::Wait { until, version } => Some(((*version)?, *until)),
            Self::LookUp(lookup) => Some((lookup.version, now)),
            Self::Fetch(Wanted { interest: Interest::Wanted, from, .. }) => {
                Some((from.version, now))
            }
            Self::Nothing | Self::Fetch(_) => None,
        }
    }
}

/// A request to send.
#[derive(Debug)]
pub enum Transmit {
    /// Look up these offsets over the session's connection, and report with [`Fetcher::handle_looked_up`].
    LookUp(BTreeMap<TopicPartition, LookUp>),
    /// Send the session's next fetch, which [`Fetcher::send`] returns once the connection stands.
    Session(Permit),
    /// Send this fetch over the connection for its purpose. A fetch in flight there is abandoned with its connection.
    Sessionless(Purpose, Fetch),
}

/// The parts of a Fetch request that the fetcher decides.
#[derive(Debug)]
pub struct Fetch {
    /// Session, partitions and how they are named.
    pub session: SessionRequest,
    /// Whether topics are named by id.
    pub naming: Naming,
    /// Byte limit of the response.
    pub max_bytes: usize,
    /// How long the broker may wait for records.
    pub max_wait: Duration,
    /// Whether it asks for a session.
    pub is_opening: bool,
}

impl Fetch {
    /// Versions with this naming.
    pub fn versions(&self) -> RangeInclusive<i16> {
        match self.naming {
            Naming::Names => *fetch::VERSIONS.start()..=TOPIC_IDS - 1,
            Naming::Ids => TOPIC_IDS..=*fetch::VERSIONS.end(),
        }
    }
}

/// Something for the caller to do.
#[derive(Debug)]
pub enum Event {
    /// Apply these results to positions and buffer. Report with [`Fetcher::handle_end`] and
    /// [`Fetcher::handle_stored`]. Errors change what a partition needs.
    Store(Vec<Answered>, Vec<NodeEndpoint>),
    /// Request metadata: leaders may have moved.
    Refresh,
    /// Abandon the session's fetch in flight with its connection, and report with [`Fetcher::handle_interrupted`]. If
    /// part of the response has arrived, do nothing.
    Interrupt,
    /// The session's fetch has no response within `request.timeout.ms`: report with [`Fetcher::handle_lost`].
    TimedOut,
    /// The broker refused a fetch as a whole. It is repeated after a backoff.
    Refused(ErrorCode),
    /// A quota makes the lane pause.
    Throttled(Duration),
    /// Drop the connections of the sessionless fetches.
    CloseSessionless,
}

/// How the lane failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A connection was lost or could not be opened.
    Connection,
    /// A response was unusable, or the broker does not serve this client.
    Response,
}

/// The session's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    /// Open, without a response yet.
    Untried,
    /// Open, with a response.
    Proven,
}

/// The session, and the request on its connection.
#[derive(Debug)]
enum Main {
    /// The broker keeps no session, as far as known.
    Closed,
    /// The broker keeps a session.
    Idle,
    /// As `Idle`, and it must not be used now: some partitions are held back.
    Resting,
    /// The caller opens the connection, if necessary, and then calls [`Fetcher::send`].
    Sending,
    /// The session's fetch is in flight.
    InFlight(Flight),
    /// An offset lookup is in flight.
    LookingUp,
}

/// The session's fetch in flight.
#[derive(Debug)]
struct Flight {
    sent: Instant,
    /// How long the broker may wait for records.
    max_wait: Duration,
    /// When to request metadata from other brokers.
    suspect_at: Instant,
    /// When a partition needs something that this fetch does not name.
    unasked: Option<Instant>,
    /// Partitions that sessionless responses have moved since.
    overtaken: BTreeSet<TopicPartition>,
}

/// The decisions about one broker's fetches. `H` is the caller's handle of a partition's buffered bytes.
#[derive(Debug)]
pub struct Fetcher<H> {
    settings: Settings,
    /// The model of the broker's response times, without the waits that requests allow.
    path: Path,
    link: Link,
    /// Time that it took to open the connection.
    opening_took: Duration,
    main: Main,
    session: FetchSession,
    /// Last use of the session.
    used: Instant,
    partitions: Partitions<H>,
    /// Names of topics that responses identify by id.
    topics: BTreeMap<Uuid, Arc<str>>,
    /// Number of partitions being read whose topics have no id.
    nameless: usize,
    sessionless: Sessionless,
    /// Consecutive failures of the whole lane.
    failures: u32,
    pause_until: Option<Instant>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl<H> Fetcher<H> {
    /// Creates a fetcher without partitions.
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self {
            settings,
            path: Path::of_exchanges(settings.suspicion),
            link: Link::Down,
            opening_took: Duration::ZERO,
            main: Main::Closed,
            session: FetchSession::new(Naming::Ids),
            used: now,
            partitions: Partitions::default(),
            topics: BTreeMap::new(),
            nameless: 0,
            sessionless: Sessionless::default(),
            failures: 0,
            pause_until: None,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Adds the partitions to review at this time to `to`: their time has come, or their buffered records, because of
    /// which they were omitted, are drained. `bytes_of` returns the buffered bytes of a handle.
    pub fn due(
        &self,
        now: Instant,
        bytes_of: impl Fn(&H) -> usize,
        to: &mut BTreeSet<TopicPartition>,
    ) {
        to.extend(self.partitions.due(now).cloned());
        to.extend(self.partitions.drained(bytes_of).cloned());
    }

    /// Sets what a partition needs. While the session's fetch is in flight, [`Fetcher::handle_changed`] takes its place.
    pub fn handle_assigned(&mut self, at: &TopicPartition, need: Need<H>) {
        debug_assert!(!matches!(self.main, Main::InFlight(_)), "changes what a fetch names");
        match need {
            Need::Nothing => self.put(at, None),
            Need::Wait { until, version } => {
                let duty = Duty::Wait(version);
                self.put(at, Some(Entry { review_at: Some(until), duty }));
            }
            Need::LookUp(lookup) => {
                self.put(at, Some(Entry { review_at: None, duty: Duty::LookUp(lookup) }));
            }
            Need::Fetch(wanted) => self.want(at, wanted),
        }
    }

    fn want(&mut self, at: &TopicPartition, wanted: Wanted<H>) {
        let Wanted { from, topic_id, interest, review_at, buffered } = wanted;
        let before = self.partitions.read(at);
        let may_rest = self.settings.buffered == Buffered::Credit && before.is_some();
        if interest == Interest::Paused && !may_rest {
            return self.stop(at, review_at);
        }
        let duty = match buffered {
            Some(_) if self.settings.buffered == Buffered::Omit => Duty::Omit,
            _ => {
                let end = before.and_then(|before| before.end);
                Duty::Read(Read { from, topic_id, interest, end })
            }
        };
        self.put(at, Some(Entry { review_at, duty }));
        if let Some(held) = buffered {
            self.partitions.hold(at, || held);
        }
    }

    /// Takes a partition out of the session.
    fn stop(&mut self, at: &TopicPartition, review_at: Option<Instant>) {
        let waits = review_at.map(|_| Entry { review_at, duty: Duty::Wait(None) });
        self.put(at, waits);
    }

    /// Replaces a partition's duty, and adjusts the session.
    fn put(&mut self, at: &TopicPartition, entry: Option<Entry>) {
        let read = entry.and_then(|entry| match entry.duty {
            Duty::Read(read) => Some(read),
            _ => None,
        });
        let before = self.partitions.put(at, entry);
        let id = read.map(|read| read.topic_id);
        if let Some(before) = before.filter(|before| Some(before.topic_id) != id) {
            self.nameless -= usize::from(before.topic_id == Uuid::ZERO);
            self.session.unwant(&session_key(at, before.topic_id));
        }
        let Some(read) = read else { return };
        if before.is_none_or(|before| before.topic_id != read.topic_id) {
            self.nameless += usize::from(read.topic_id == Uuid::ZERO);
            self.topics.entry(read.topic_id).or_insert_with(|| at.topic.clone());
        }
        self.session.want(session_key(at, read.topic_id), self.params(read.from));
    }

    fn params(&self, from: FetchFrom) -> Params {
        Params {
            fetch_offset: from.offset,
            current_leader_epoch: from.leader_epoch,
            last_fetched_epoch: from.last_fetched_epoch,
            max_bytes: self.settings.partition_bytes,
        }
    }

    /// Looks for partitions that need something that the session's fetch in flight does not name. The broker may hold
    /// that fetch back for `fetch.max.wait.ms`, and they would wait as long: one assigned, moved here or sought since.
    ///
    /// `changed` are the partitions whose needs, from `need_of`, have not been passed to [`Self::handle_assigned`].
    pub fn handle_changed(
        &mut self,
        changed: &BTreeSet<TopicPartition>,
        need_of: impl Fn(&TopicPartition) -> Need<H>,
        now: Instant,
    ) {
        let Main::InFlight(flight) = &mut self.main else { return };
        let partitions = &self.partitions;
        let due = changed.iter().filter_map(|at| {
            let (version, due) = need_of(at).due(now)?;
            let asked = partitions.read(at).map(|read| read.from.version);
            (asked != Some(version)).then_some(due)
        });
        let mut waiting = partitions.waiting().filter(|(_, at)| !changed.contains(*at));
        flight.unasked = due.chain(waiting.next().map(|(due, _)| due)).min();
    }

    /// Versions in which the session's next fetch may be sent. Topics without an id are named.
    pub fn versions(&self) -> RangeInclusive<i16> {
        let newest = if self.nameless > 0 { TOPIC_IDS - 1 } else { *fetch::VERSIONS.end() };
        *fetch::VERSIONS.start()..=newest
    }

    /// The session's connection stands; opening it took this long.
    pub fn handle_open(&mut self, took: Duration) {
        self.link = Link::Untried;
        self.opening_took = took;
    }

    /// Returns the session's next fetch, which is sent at this time in this version.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is used once")]
    pub fn send(&mut self, permit: Permit, version: i16, now: Instant) -> Fetch {
        let naming = if version >= TOPIC_IDS { Naming::Ids } else { Naming::Names };
        self.session.set_naming(naming);
        // The broker responds to a session's first request at once, see `FetchSession::is_opening`.
        let is_opening = self.session.is_opening();
        let max_wait = if is_opening { Duration::ZERO } else { permit.max_wait };
        self.used = now;
        self.main = Main::InFlight(Flight {
            sent: now,
            max_wait,
            suspect_at: now.later(max_wait).later(self.patience()),
            unasked: None,
            overtaken: BTreeSet::new(),
        });
        let session = self.session.next_request();
        Fetch { session, naming, max_bytes: permit.max_bytes, max_wait, is_opening }
    }

    /// How late a response on the session's connection may be before its broker is suspected. An unresponsive broker
    /// reports no leader change, so the other brokers are asked.
    pub fn patience(&self) -> Duration {
        self.limit().max(self.opening_took)
    }

    fn limit(&self) -> Duration {
        self.path.limit().unwrap_or(Duration::MAX)
    }

    /// The session's fetch was abandoned with its connection: the next one names what this one did not.
    pub fn handle_interrupted(&mut self) {
        self.link = Link::Down;
        self.session.on_abandoned();
        self.main = self.unused();
    }

    /// The offset lookup in flight was answered, and its results were applied to the positions.
    pub fn handle_looked_up(&mut self) {
        self.worked();
        self.main = self.unused();
    }

    /// A complete response has arrived on the session's connection.
    fn worked(&mut self) {
        self.link = Link::Proven;
        self.failures = 0;
    }

    /// A connection failed, or a response was unusable: all connections are dropped, and opened again after a
    /// backoff. `unit` is a random draw from `[0, 1)`.
    pub fn handle_lost(&mut self, failure: Failure, now: Instant, unit: f64) {
        // A working connection that was lost is replaced at once. An unusable response backs off, because the next
        // one would be the same.
        if self.link != Link::Proven || failure != Failure::Connection {
            self.failures += 1;
        }
        self.link = Link::Down;
        self.session.on_lost();
        self.main = self.unused();
        self.transmits.clear();
        self.close_sessionless();
        self.pause_until = Some(now.later(self.settings.reconnect.after(self.failures, unit)));
    }

    /// The session while its connection has no request in flight.
    fn unused(&self) -> Main {
        if self.session.is_open() { Main::Idle } else { Main::Closed }
    }

    fn close_sessionless(&mut self) {
        if self.sessionless.close() {
            self.events.push_back(Event::CloseSessionless);
        }
    }

    /// Handles the times that have come. Only [`Fetcher::handle_drained`] handles those of partitions, of a pause and
    /// of a resting session.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.sessionless.suspect(now, self.limit()) {
            self.events.push_back(Event::Refresh);
        }
        let (urgent_at, patience) = (self.urgent_at(), self.patience());
        let Main::InFlight(flight) = &mut self.main else { return };
        if urgent_at.is_some_and(|at| at <= now) {
            flight.unasked = None;
            self.events.push_back(Event::Interrupt);
            return;
        }
        if flight.suspect_at <= now {
            flight.suspect_at = flight.suspect_at.later(patience);
            self.events.push_back(Event::Refresh);
        }
        if flight.sent.later(self.settings.request_timeout) <= now {
            self.events.push_back(Event::TimedOut);
        }
    }

    /// When the session's fetch in flight should be abandoned for a partition that it does not name. It first waits
    /// for as long as a connection takes to open, so that a busy lane, whose response comes anyway, is left alone.
    fn urgent_at(&self) -> Option<Instant> {
        let Main::InFlight(flight) = &self.main else { return None };
        let is_worth_it = self.opening_took < flight.max_wait;
        let due = flight.unasked.filter(|_| is_worth_it)?;
        Some(due.max(flight.sent.later(self.opening_took)))
    }

    /// When to continue even if nothing happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let main = match &self.main {
            Main::InFlight(flight) => {
                let limit = flight.sent.later(self.settings.request_timeout);
                Some(flight.suspect_at.min(limit)).into_iter().chain(self.urgent_at()).min()
            }
            // The exchange has its own limits.
            Main::Sending | Main::LookingUp => None,
            Main::Closed | Main::Idle | Main::Resting if self.pause_until.is_some() => {
                self.pause_until
            }
            Main::Closed | Main::Idle => self.partitions.next_review(),
            Main::Resting => {
                let used_by = self.used.later(SESSION_REST);
                self.partitions.next_review().into_iter().chain([used_by]).min()
            }
        };
        main.into_iter().chain(self.sessionless.suspect_at()).min()
    }

    /// The next request to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next thing to do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Partitions that are in the session.
    pub fn reads(&self) -> impl Iterator<Item = &TopicPartition> {
        self.partitions.reads().map(|(at, _)| at)
    }

    /// Returns the request that frees the session's slot on the broker, if the broker can be expected to take it.
    pub fn close(&self) -> Option<Fetch> {
        let session = self.session.close_request().filter(|_| self.link == Link::Proven)?;
        let naming = self.session.naming();
        Some(Fetch { session, naming, max_bytes: 0, max_wait: Duration::ZERO, is_opening: false })
    }
}

fn session_key(at: &TopicPartition, topic_id: Uuid) -> SessionPartition {
    SessionPartition { topic: at.topic.clone(), topic_id, partition: at.partition }
}
