//! One broker's fetch lane: a task with its own connection. It looks up offsets and keeps a fetch in flight while
//! there is room, whether or not the application polls.

mod answers;
mod aside;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use curtail_proto::{
    backoff::Backoff,
    fetch_session::{FetchSession, Naming, Params, SessionPartition, SessionRequest},
    later::Later,
    plant::{Plant, planted},
    position::{FetchFrom, FetchVerdict, Reset, Version, classify},
};
use curtail_wire::{
    ApiKey, ErrorCode, Uuid,
    fetch::{self, FetchRequest},
};
use tokio::time::{Instant, sleep_until, timeout_at};

use self::aside::{Asides, Purpose};
use super::{
    credit::{Held, LaneSignal, Share},
    lookup::{self, Found, Question},
    shared::{Assigned, Shared, State, refused},
};
use crate::{
    Error, Result, TopicPartition,
    config::BufferedPartitions,
    conn::{Connection, connection_error},
    metrics::{Arrival, FetchStats},
};

/// First version with topic ids (KIP-516).
const TOPIC_IDS: i16 = 13;
/// Longest idle time of a session. Brokers may evict a session that was unused for two minutes (KIP-227).
const SESSION_REST: Duration = Duration::from_secs(60);

/// Runs the lane until the consumer closes.
pub(super) async fn run(shared: Arc<Shared>, node: i32, signal: Arc<LaneSignal>) {
    let stats = shared.stats.broker(node);
    let mut lane = Lane {
        shared,
        node,
        signal,
        connection: None,
        proven: false,
        opening_took: Duration::ZERO,
        session: FetchSession::new(Naming::Ids),
        reading: BTreeMap::new(),
        topics: BTreeMap::new(),
        nameless: 0,
        lookups: BTreeMap::new(),
        delayed: BTreeMap::new(),
        failures: 0,
        pause_until: None,
        loaded: BTreeMap::new(),
        ends: BTreeMap::new(),
        resting: BTreeSet::new(),
        omitted: BTreeMap::new(),
        asides: Asides::default(),
        fetching: false,
        overtaken: BTreeSet::new(),
        session_used: Instant::now(),
        stats,
        arrival: None,
    };
    while lane.turn().await {}
    lane.close_session().await;
}

struct Lane {
    shared: Arc<Shared>,
    node: i32,
    signal: Arc<LaneSignal>,
    connection: Option<Connection>,
    /// Whether a request succeeded on the connection.
    proven: bool,
    /// Time that it took to open the connection.
    opening_took: Duration,
    session: FetchSession,
    /// The session's partitions, as the next request names them.
    reading: BTreeMap<TopicPartition, Reading>,
    /// Names of topics that responses identify by id.
    topics: BTreeMap<Uuid, Arc<str>>,
    /// Number of partitions being read whose topics have no id.
    nameless: usize,
    lookups: BTreeMap<TopicPartition, Lookup>,
    /// When to review partitions again.
    delayed: BTreeMap<TopicPartition, Instant>,
    /// Consecutive failures of the whole lane.
    failures: u32,
    pause_until: Option<Instant>,
    /// Partitions that may have records in the buffer.
    loaded: BTreeMap<TopicPartition, Arc<Held>>,
    /// Ends of the readable records, from responses.
    ends: BTreeMap<TopicPartition, i64>,
    /// Paused partitions that are still in the session.
    resting: BTreeSet<TopicPartition>,
    /// With [`BufferedPartitions::Omit`]: partitions that are out of the session while their records are buffered.
    omitted: BTreeMap<TopicPartition, Arc<Held>>,
    asides: Asides,
    /// Whether the session's fetch is in flight.
    fetching: bool,
    /// Partitions already covered by sessionless fetches while the session's fetch is in flight.
    overtaken: BTreeSet<TopicPartition>,
    session_used: Instant,
    stats: Arc<FetchStats>,
    /// Arrival of the response that is being processed.
    arrival: Option<Arrival>,
}

#[derive(Clone, Copy)]
struct Reading {
    from: FetchFrom,
    topic_id: Uuid,
}

#[derive(Clone, Copy)]
struct Lookup {
    version: Version,
    to: Reset,
    leader_epoch: i32,
}

/// The lane's next step.
enum Plan {
    Close,
    /// Wait until the lane is woken or the time has come.
    Wait(Option<Instant>),
    LookUp,
    /// With `linger` the broker may wait for new records.
    Fetch {
        max_bytes: usize,
        linger: bool,
    },
}

/// Requests that are due but are not part of the fetch in flight.
enum Unasked {
    Nothing,
    At(Instant),
    /// The consumer has closed.
    Closed,
}

/// The end of the wait for a response.
enum Waited {
    Answer(Bytes),
    /// Another request must come first.
    Interrupted,
    Closed,
}

impl Lane {
    /// Performs one exchange with the broker, or one wait. `false` ends the lane.
    async fn turn(&mut self) -> bool {
        let result = match self.plan() {
            Plan::Close => return false,
            Plan::Wait(until) => self.wait(until).await.map(|()| true),
            Plan::LookUp => self.look_up().await,
            Plan::Fetch { max_bytes, linger } => self.fetch(max_bytes, linger).await,
        };
        match result {
            Ok(open) => return open,
            Err(error) => self.failed(&error),
        }
        true
    }

    async fn wait(&mut self, until: Option<Instant>) -> Result<()> {
        tokio::select! {
            biased;
            () = self.signal.wake.notified() => {}
            done = self.asides.done() => return self.digest_beside(done),
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
        }
        Ok(())
    }

    /// Reviews the partitions that changed, and decides on the next step. Others cost nothing.
    fn plan(&mut self) -> Plan {
        let now = Instant::now();
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        if state.closed {
            return Plan::Close;
        }
        let Some(entry) = state.lanes.get_mut(&self.node) else { return Plan::Close };
        let mut dirty = std::mem::take(&mut entry.dirty);
        let due = self.delayed.iter().filter(|(_, at)| **at <= now).map(|(tp, _)| tp.clone());
        dirty.extend(due);
        self.take_back_omitted(&mut dirty);
        for at in &dirty {
            shared.back_to_leader(&mut state, at, now);
        }
        for at in dirty {
            self.review(&at, state.partitions.get(&at), now);
        }
        let lanes = state.lanes.values();
        let active = lanes.clone().filter(|lane| lane.partitions > 0).count().max(1);
        let buffered: usize = match self.shared.config.buffered_partitions {
            BufferedPartitions::SkipAll => lanes.map(|lane| lane.signal.used()).sum(),
            _ => 0,
        };
        drop(state);
        if let Some(until) = self.pause_until.filter(|until| *until > now) {
            return Plan::Wait(Some(until));
        }
        self.pause_until = None;
        if !self.lookups.is_empty() {
            return Plan::LookUp;
        }
        let later = self.delayed.values().min().copied();
        // Each lane has its own share of the budget, so that one broker's records do not block another's.
        let total = (shared.config.prefetch_bytes / active).max(1);
        match self.shared.config.buffered_partitions {
            BufferedPartitions::Credit => self.plan_by_credit(total, later, now),
            BufferedPartitions::Omit => self.plan_without_buffered(total, later),
            BufferedPartitions::SkipBroker => self.plan_when_drained(0, total, later),
            BufferedPartitions::SkipAll => self.plan_when_drained(buffered, total, later),
        }
    }

    /// Plans the next request from the partitions' credit.
    fn plan_by_credit(&mut self, total: usize, later: Option<Instant>, now: Instant) -> Plan {
        let drained = self.signal.drained();
        let share = Share { total, used: self.signal.used() };
        let held_back = self.held_back(share, drained);
        if self.session.is_empty() {
            self.asides.clear();
            return Plan::Wait(later);
        }
        if held_back.is_empty() {
            // Known records arrive at once. Requested here as well, they would arrive twice.
            return match self.asides.is_busy(Purpose::Known) {
                true => Plan::Wait(later),
                false => Plan::Fetch { max_bytes: share.request(), linger: true },
            };
        }
        let used_by = self.session_used.later(SESSION_REST);
        if used_by <= now && self.session.is_open() {
            return self.use_session(later);
        }
        if !share.is_spent() {
            self.ask_beside(&held_back, share);
        }
        let used_by = Some(used_by).filter(|_| self.session.is_open());
        Plan::Wait(later.into_iter().chain(used_by).min())
    }

    /// Uses the session so that it is not evicted, although some partitions must not be read. Paused partitions leave
    /// it first; the others receive at most one batch.
    fn use_session(&mut self, later: Option<Instant>) -> Plan {
        for at in std::mem::take(&mut self.resting) {
            self.stop_reading(&at);
        }
        if self.session.is_empty() {
            return Plan::Wait(later);
        }
        Plan::Fetch { max_bytes: 1, linger: false }
    }

    /// Returns the session's partitions that must not be fetched now. The lane is woken when that may have changed.
    fn held_back(&mut self, share: Share, drained: usize) -> BTreeSet<TopicPartition> {
        let mut held_back = self.resting.clone();
        if share.is_ample() {
            self.signal.never_wake();
            return held_back;
        }
        self.loaded.retain(|_, held| held.bytes() > 0);
        let mut lacking = if share.is_spent() { Some(share.lacking(0)) } else { None };
        for (at, held) in &self.loaded {
            let Some(reading) = self.reading.get(at) else { continue };
            // A partition with records both here and at the broker waits until there is room for a large response.
            let more = self.ends.get(at).is_some_and(|end| *end > reading.from.offset);
            let held = held.bytes();
            if more || !share.grants(held) {
                held_back.insert(at.clone());
                let needs = if more { share.above_half() } else { share.lacking(held) };
                lacking = Some(lacking.map_or(needs, |least| least.min(needs)));
            }
        }
        match lacking {
            Some(bytes) => self.signal.wake_after(drained, bytes),
            None => self.signal.never_wake(),
        }
        if share.is_spent() {
            held_back.extend(self.reading.keys().cloned());
        }
        held_back
    }

    /// Sends sessionless fetches for the partitions that have credit and are in no request yet.
    fn ask_beside(&mut self, held_back: &BTreeSet<TopicPartition>, share: Share) {
        let (mut known, mut coming) = (BTreeMap::new(), BTreeMap::new());
        let mut unasked = false;
        for (at, reading) in &self.reading {
            if held_back.contains(at) {
                continue;
            }
            let asked = self.asides.asks(at, reading);
            if self.ends.get(at).is_some_and(|end| *end > reading.from.offset) {
                if !asked {
                    known.insert(at.clone(), *reading);
                }
            } else {
                unasked |= !asked;
                coming.insert(at.clone(), *reading);
            }
        }
        if !known.is_empty() && !self.asides.is_busy(Purpose::Known) {
            self.start_beside(Purpose::Known, known, share);
        }
        if !unasked {
            return;
        }
        // A request without all of them would delay the rest by up to its own wait at the broker.
        self.asides.give_up_if_busy(Purpose::Coming);
        self.start_beside(Purpose::Coming, coming, share);
    }

    fn start_beside(
        &mut self,
        purpose: Purpose,
        asked: BTreeMap<TopicPartition, Reading>,
        share: Share,
    ) {
        let list = asked
            .iter()
            .map(|(at, reading)| (session_key(at, reading.topic_id), self.params(reading)));
        let session = self.session.request_without_session(list);
        let max_wait = match purpose {
            Purpose::Known => Duration::ZERO,
            Purpose::Coming => self.shared.config.fetch_max_wait,
        };
        let request = self.request(session, share.request(), max_wait);
        let versions = match self.session.naming() {
            Naming::Names => *fetch::VERSIONS.start()..=TOPIC_IDS - 1,
            Naming::Ids => TOPIC_IDS..=*fetch::VERSIONS.end(),
        };
        self.asides.start(purpose, self.shared.clone(), self.node, versions, request, asked);
    }

    /// With [`BufferedPartitions::Omit`].
    fn plan_without_buffered(&mut self, total: usize, later: Option<Instant>) -> Plan {
        let drained = self.signal.drained();
        self.loaded.retain(|_, held| held.bytes() > 0);
        for (at, held) in self.loaded.clone() {
            self.stop_reading(&at);
            self.omitted.insert(at, held);
        }
        if !self.omitted.is_empty() {
            self.signal.wake_after(drained, 1);
        }
        if self.session.is_empty() {
            return Plan::Wait(later);
        }
        let share = Share { total, used: self.signal.used() };
        Plan::Fetch { max_bytes: share.request(), linger: true }
    }

    fn take_back_omitted(&mut self, dirty: &mut BTreeSet<TopicPartition>) {
        self.omitted.retain(|at, held| {
            let buffered = held.bytes() > 0;
            if !buffered {
                dirty.insert(at.clone());
            }
            buffered
        });
    }

    /// With [`BufferedPartitions::SkipBroker`] and [`BufferedPartitions::SkipAll`].
    fn plan_when_drained(
        &mut self,
        elsewhere: usize,
        total: usize,
        later: Option<Instant>,
    ) -> Plan {
        let drained = self.signal.drained();
        let used = self.signal.used();
        if used > 0 {
            self.signal.wake_after(drained, used);
        }
        if self.session.is_empty() || used > 0 || elsewhere > 0 {
            return Plan::Wait(later);
        }
        Plan::Fetch { max_bytes: Share { total, used }.request(), linger: true }
    }

    /// Matches the lane's requests to the partition's state.
    fn review(&mut self, at: &TopicPartition, assigned: Option<&Assigned>, now: Instant) {
        self.lookups.remove(at);
        self.delayed.remove(at);
        self.resting.remove(at);
        let mine = assigned.filter(|assigned| assigned.lane == Some(self.node));
        let Some(assigned) = mine else { return self.stop_reading(at) };
        if assigned.held.bytes() > 0 {
            self.loaded.insert(at.clone(), assigned.held.clone());
        }
        if let Some(retry_at) = assigned.retry_at.filter(|retry_at| *retry_at > now) {
            self.delayed.insert(at.clone(), retry_at);
            return self.stop_reading(at);
        }
        if let Some((version, to)) = assigned.position.lookup() {
            let leader_epoch = assigned.position.leader_epoch().unwrap_or(-1);
            self.lookups.insert(at.clone(), Lookup { version, to, leader_epoch });
            return self.stop_reading(at);
        }
        if let Some((_, until)) = assigned.preferred {
            self.delayed.insert(at.clone(), until);
        }
        match fetch_from(assigned) {
            Some(_) if self.omitted.contains_key(at) => self.stop_reading(at),
            // A paused partition stays in the session for as long as the session may stay idle.
            Some(from) if assigned.paused && self.may_rest(at) => {
                self.resting.insert(at.clone());
                self.read(at, Reading { from, topic_id: assigned.topic_id });
            }
            Some(from) if !assigned.paused && !assigned.halted => {
                self.read(at, Reading { from, topic_id: assigned.topic_id });
            }
            _ => self.stop_reading(at),
        }
    }

    fn read(&mut self, at: &TopicPartition, reading: Reading) {
        let before = self.reading.insert(at.clone(), reading);
        let id = reading.topic_id;
        if before.is_none_or(|before| before.topic_id != id) {
            if let Some(before) = before {
                self.forget(at, before.topic_id);
            }
            self.nameless += usize::from(id == Uuid::ZERO);
            self.topics.entry(id).or_insert_with(|| at.topic.clone());
        }
        self.session.want(session_key(at, id), self.params(&reading));
    }

    fn params(&self, reading: &Reading) -> Params {
        Params {
            fetch_offset: reading.from.offset,
            current_leader_epoch: reading.from.leader_epoch,
            last_fetched_epoch: reading.from.last_fetched_epoch,
            max_bytes: self.shared.config.max_partition_fetch_bytes,
        }
    }

    /// Whether a paused partition stays in the session.
    fn may_rest(&self, at: &TopicPartition) -> bool {
        self.shared.config.buffered_partitions == BufferedPartitions::Credit
            && self.reading.contains_key(at)
    }

    fn stop_reading(&mut self, at: &TopicPartition) {
        self.ends.remove(at);
        self.loaded.remove(at);
        if let Some(reading) = self.reading.remove(at) {
            self.forget(at, reading.topic_id);
        }
    }

    fn forget(&mut self, at: &TopicPartition, topic_id: Uuid) {
        self.nameless -= usize::from(topic_id == Uuid::ZERO);
        self.session.unwant(&session_key(at, topic_id));
    }

    async fn connected(&mut self) -> Result<&mut Connection> {
        if self.connection.is_none() {
            self.proven = false;
            let begun = Instant::now();
            self.connection = Some(self.shared.connect(self.node).await?);
            self.opening_took = begun.elapsed();
        }
        match &mut self.connection {
            Some(connection) => Ok(connection),
            None => Err(Error::Closed),
        }
    }

    /// Handles a failed connection or an unusable response: reconnects after a backoff, and refreshes the metadata in
    /// case leaders have moved.
    fn failed(&mut self, error: &Error) {
        tracing::debug!(node = self.node, %error, "fetch lane failed");
        self.shared.report_refusal(error);
        // A working connection that was lost is replaced at once. An unusable response backs off, because the next
        // one would be the same.
        let is_lost = matches!(error, Error::Connection { .. }) && self.connection.is_some();
        if !(self.proven && is_lost) {
            self.failures += 1;
        }
        self.connection = None;
        self.leave_followed();
        self.session.on_lost();
        self.asides.clear();
        self.shared.metadata.request_refresh_avoiding(None, self.node);
        let common = &self.shared.config.common;
        let backoff =
            Backoff { initial: common.reconnect_backoff, max: common.reconnect_backoff_max };
        self.pause(backoff.after(self.failures, self.shared.env.entropy.unit()));
    }

    /// Returns to the leader all partitions that are read here only because the leader named this replica.
    fn leave_followed(&self) {
        if self.shared.config.common.client_rack.is_empty() {
            return;
        }
        let mut state = self.shared.state.lock();
        for at in self.reading.keys() {
            if let Some(assigned) = state.partitions.get_mut(at)
                && assigned.preferred.take_if(|(id, _)| *id == self.node).is_some()
            {
                self.shared.reroute(&mut state, at);
            }
        }
    }

    fn pause(&mut self, pause: Duration) {
        self.pause_until = Some(Instant::now().later(pause));
    }

    async fn look_up(&mut self) -> Result<bool> {
        let isolation = self.shared.config.isolation_level;
        let asked = self.lookups.clone();
        let questions: Vec<Question> = asked
            .iter()
            .map(|(at, lookup)| Question {
                at: at.clone(),
                leader_epoch: lookup.leader_epoch,
                timestamp: lookup::timestamp_of(lookup.to),
            })
            .collect();
        let (shared, node) = (self.shared.clone(), self.node);
        let exchange = async {
            let connection = self.connected().await?;
            lookup::ask(connection, &questions, isolation).await
        };
        let mut found = shared.suspecting(node, shared.patience(), exchange).await?;
        self.worked();
        let mut state = shared.state.lock();
        let mut refresh = false;
        for (at, lookup) in asked {
            let missing =
                Found { error: ErrorCode::UNKNOWN_SERVER_ERROR, offset: -1, timestamp: -1 };
            let found = found.remove(&at).unwrap_or(missing);
            refresh |= self.looked_up(&mut state, &at, lookup, found);
        }
        drop(state);
        shared.settled.notify_waiters();
        if refresh {
            shared.metadata.request_refresh(None);
        }
        Ok(true)
    }

    /// Processes one looked-up offset. Returns whether the metadata may be stale.
    fn looked_up(
        &mut self,
        state: &mut State,
        at: &TopicPartition,
        lookup: Lookup,
        found: Found,
    ) -> bool {
        let Some(assigned) = state.partitions.get_mut(at) else { return false };
        if assigned.position.version() != lookup.version {
            return false;
        }
        match classify(found.error) {
            FetchVerdict::Good => {
                if assigned.position.on_lookup(lookup.version, found.offset) {
                    assigned.failures = 0;
                    assigned.retry_at = None;
                } else {
                    self.retry_later(assigned);
                }
                let assigned = state.partitions.get(at);
                self.review(at, assigned, Instant::now());
                false
            }
            FetchVerdict::Report | FetchVerdict::OutOfRange => {
                self.retry_later(assigned);
                state.fail(at, refused(at, found.error));
                state.touch(at);
                false
            }
            verdict => {
                self.shared.pause_after(found.error, assigned);
                state.touch(at);
                verdict != FetchVerdict::Retry
            }
        }
    }

    fn retry_later(&self, assigned: &mut Assigned) {
        self.shared.pause(assigned, self.shared.pauses());
    }

    /// Records a complete response on the connection.
    fn worked(&mut self) {
        self.proven = true;
        self.failures = 0;
    }

    async fn fetch(&mut self, max_bytes: usize, linger: bool) -> Result<bool> {
        let newest = if self.nameless > 0 { TOPIC_IDS - 1 } else { *fetch::VERSIONS.end() };
        let ours = *fetch::VERSIONS.start()..=newest;
        self.overtaken.clear();
        let version = self.connected().await?.negotiate(ApiKey::FETCH, ours)?;
        let naming = if version >= TOPIC_IDS { Naming::Ids } else { Naming::Names };
        self.session.set_naming(naming);
        // The broker responds to a session's first request at once, see `FetchSession::is_opening`.
        let config = &self.shared.config;
        let max_wait = match linger && !self.session.is_opening() {
            true => config.fetch_max_wait,
            false => Duration::ZERO,
        };
        self.session_used = Instant::now();
        if self.session.is_opening() {
            self.stats.opening();
        }
        let session = self.session.next_request();
        let request = self.request(session, max_bytes, max_wait);
        let Some(connection) = &mut self.connection else { return Ok(true) };
        let correlation_id = connection.next_correlation_id();
        let frame = connection
            .frame(ApiKey::FETCH, version, correlation_id, |w| request.encode(version, w));
        let sent = Instant::now();
        let (shared, limit) = (self.shared.clone(), self.shared.config.common.request_timeout);
        let written = timeout_at(sent.later(limit), connection.write(&frame));
        let patience = shared.patience().max(self.opening_took);
        match shared.suspecting(self.node, patience, written).await {
            Ok(written) => written?,
            Err(_) => {
                let millis = limit.as_millis();
                let reason = format!("no room for a request within request.timeout.ms={millis}");
                return Err(connection_error(connection.peer(), reason));
            }
        }
        self.fetching = true;
        let waited = self.answer(correlation_id, sent, max_wait).await;
        self.fetching = false;
        match waited? {
            Waited::Answer(answer) => {
                self.arrival = self.stats.answered(sent, answer.len());
                self.digest(version, &answer)?;
            }
            Waited::Interrupted => {
                self.connection = None;
                self.overtaken.clear();
                self.session.on_abandoned();
            }
            Waited::Closed => return Ok(false),
        }
        Ok(true)
    }

    fn request(
        &self,
        session: SessionRequest,
        max_bytes: usize,
        max_wait: Duration,
    ) -> FetchRequest {
        let config = &self.shared.config;
        let max_bytes = i32::try_from(max_bytes).unwrap_or(i32::MAX).min(config.fetch_max_bytes);
        FetchRequest {
            replica_id: -1,
            replica_epoch: -1,
            max_wait_ms: i32::try_from(max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: config.fetch_min_bytes,
            max_bytes,
            isolation_level: config.isolation_level,
            session_id: session.session_id,
            session_epoch: session.session_epoch,
            topics: session.topics,
            forgotten: session.forgotten,
            // The leader may name a nearer replica instead of returning records (KIP-392).
            rack_id: match planted(Plant::RackNotNamed) {
                true => String::new(),
                false => config.common.client_rack.clone(),
            },
        }
    }

    /// Waits for the response.
    ///
    /// The broker may hold it back for `max_wait`. A partition that the request does not name would wait as long: one
    /// assigned, moved here or sought since. The request is then abandoned, and the next one uses a new connection.
    /// It first waits for as long as a connection takes to open, so that a busy lane, whose response comes anyway, is
    /// left alone.
    async fn answer(
        &mut self,
        correlation_id: i32,
        sent: Instant,
        max_wait: Duration,
    ) -> Result<Waited> {
        let Some(mut connection) = self.connection.take() else { return Ok(Waited::Closed) };
        let limit = self.shared.config.common.request_timeout;
        // When a partition needs something that the request does not name.
        let mut due = match self.unasked() {
            Unasked::At(at) => Some(at),
            Unasked::Nothing | Unasked::Closed => None,
        };
        let worth_it = self.opening_took < max_wait;
        // An unresponsive broker reports no leader change, so the other brokers are asked.
        let patience = self.shared.patience().max(self.opening_took);
        let mut suspect_at = sent.later(max_wait).later(patience);
        let waited = loop {
            let urgent = due
                .filter(|_| worth_it && connection.is_between_frames())
                .map(|due| due.max(sent.later(self.opening_took)));
            tokio::select! {
                biased;
                answer = connection.read_answer(correlation_id) => {
                    break answer.map(Waited::Answer);
                }
                done = self.asides.done() => {
                    if let Err(error) = self.digest_beside(done) {
                        break Err(error);
                    }
                }
                () = self.signal.wake.notified() => match self.unasked() {
                    Unasked::Closed => break Ok(Waited::Closed),
                    Unasked::Nothing => due = None,
                    Unasked::At(at) => due = Some(at),
                },
                () = sleep_until(urgent.unwrap_or(sent)), if urgent.is_some() => {
                    // Part of the response may have arrived since the loop began.
                    if connection.is_between_frames() {
                        break Ok(Waited::Interrupted);
                    }
                    due = None;
                }
                () = sleep_until(suspect_at) => {
                    self.shared.metadata.request_refresh(None);
                    suspect_at = suspect_at.later(patience);
                }
                () = sleep_until(sent.later(limit)) => {
                    break Err(connection_error(
                        connection.peer(),
                        format!("no answer within request.timeout.ms={}", limit.as_millis()),
                    ));
                }
            }
        };
        self.connection = Some(connection);
        waited
    }

    /// Finds partitions that need something that the fetch in flight does not name, and the time when it is due.
    fn unasked(&self) -> Unasked {
        let now = Instant::now();
        let state = self.shared.state.lock();
        if state.closed {
            return Unasked::Closed;
        }
        let Some(entry) = state.lanes.get(&self.node) else { return Unasked::Nothing };
        let changed = entry.dirty.iter().chain(self.delayed.keys());
        let due = changed.filter_map(|at| {
            let assigned = state.partitions.get(at).filter(|a| a.lane == Some(self.node))?;
            let position = &assigned.position;
            let asked = self.reading.get(at).map(|reading| reading.from.version);
            let fetchable = position.fetch_from().is_some() && !assigned.paused && !assigned.halted;
            let wanted = position.lookup().is_some() || fetchable;
            (wanted && asked != Some(position.version())).then(|| assigned.retry_at.unwrap_or(now))
        });
        due.min().map_or(Unasked::Nothing, Unasked::At)
    }

    /// Frees the session's slot on the broker, if possible. A request may still be in flight on the old connection,
    /// so this one uses a new connection. Sessions do not belong to connections.
    async fn close_session(&mut self) {
        let proven = self.proven && self.connection.take().is_some();
        let Some(session) = self.session.close_request().filter(|_| proven) else { return };
        let request = self.request(session, 0, Duration::ZERO);
        let farewell = async {
            let newest = match self.session.naming() {
                Naming::Ids => *fetch::VERSIONS.end(),
                Naming::Names => TOPIC_IDS - 1,
            };
            let ours = *fetch::VERSIONS.start()..=newest;
            let mut connection = self.shared.connect(self.node).await?;
            connection.request_hot(ApiKey::FETCH, ours, |v, w| request.encode(v, w)).await
        };
        if let Err(error) = farewell.await {
            tracing::debug!(node = self.node, %error, "fetch session not closed");
        }
    }
}

/// Returns the position for the next fetch. A follower may lack records and epochs of its leader, so it cannot tell
/// whether the logs diverge.
pub(super) fn fetch_from(assigned: &Assigned) -> Option<FetchFrom> {
    let from = assigned.position.fetch_from()?;
    match assigned.preferred {
        Some(_) => Some(FetchFrom { last_fetched_epoch: -1, ..from }),
        None => Some(from),
    }
}

fn session_key(at: &TopicPartition, topic_id: Uuid) -> SessionPartition {
    SessionPartition { topic: at.topic.clone(), topic_id, partition: at.partition }
}
