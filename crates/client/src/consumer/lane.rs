//! One broker's fetch lane: a task with a connection of its own that looks offsets up and keeps a fetch
//! outstanding for as long as there is room, whether or not the application polls.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_proto::{
    backoff::Backoff,
    fetch_session::{FetchSession, Naming, Outcome, Params, SessionPartition, SessionRequest},
    metadata::{Hint, Leader, Node},
    position::{FetchFrom, FetchVerdict, Misfit, Reset, Version, classify},
};
use curtail_wire::{
    ApiKey, ErrorCode, Uuid,
    fetch::{self, FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse},
    header,
    records::{RecordError, batches},
};
use tokio::time::{Instant, sleep_until};

use super::{
    cursor::{Cursor, LaneSignal, Lease},
    lookup::{self, Found, Question},
    shared::{Assigned, Shared, State, out_of_range, refused},
};
use crate::{
    Error, IsolationLevel, Result, TopicPartition,
    conn::{Connection, connection_error},
};

/// First version that names topics by id (KIP-516).
const TOPIC_IDS: i16 = 13;

/// Runs the lane until the consumer closes.
pub(super) async fn run(shared: Arc<Shared>, node: i32, signal: Arc<LaneSignal>) {
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
    };
    while lane.turn().await {}
    lane.close_session().await;
}

struct Lane {
    shared: Arc<Shared>,
    node: i32,
    signal: Arc<LaneSignal>,
    connection: Option<Connection>,
    /// Whether the connection has answered a request.
    proven: bool,
    /// How long it took to open the connection.
    opening_took: Duration,
    session: FetchSession,
    /// What the session reads, as the next request asks for it.
    reading: BTreeMap<TopicPartition, Reading>,
    /// Names of the topics that answers name by id.
    topics: BTreeMap<Uuid, Arc<str>>,
    /// Partitions being read whose topics have no id.
    nameless: usize,
    lookups: BTreeMap<TopicPartition, Lookup>,
    /// Partitions to look at again later.
    delayed: BTreeMap<TopicPartition, Instant>,
    /// Failures of the whole lane in a row.
    failures: u32,
    pause_until: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Reading {
    from: FetchFrom,
    topic_id: Uuid,
    leader_epoch: i32,
}

#[derive(Clone, Copy)]
struct Lookup {
    version: Version,
    to: Reset,
    leader_epoch: i32,
}

/// What to do next.
enum Plan {
    Close,
    /// Nothing, before the lane is woken or the time has come.
    Wait(Option<Instant>),
    LookUp,
    Fetch {
        max_bytes: usize,
    },
}

/// What a request under way leaves out.
enum Unasked {
    Nothing,
    At(Instant),
    /// And nothing will be asked any more.
    Closed,
}

/// How waiting for an answer ended.
enum Waited {
    Answer(Bytes),
    /// Something else has to be asked first.
    Interrupted,
    Closed,
}

impl Lane {
    /// One exchange with the broker, or one wait. `false` ends the lane.
    async fn turn(&mut self) -> bool {
        let result = match self.plan() {
            Plan::Close => return false,
            Plan::Wait(until) => {
                self.wait(until).await;
                return true;
            }
            Plan::LookUp => self.look_up().await,
            Plan::Fetch { max_bytes } => self.fetch(max_bytes).await,
        };
        match result {
            Ok(open) => return open,
            Err(error) => self.failed(&error),
        }
        true
    }

    async fn wait(&self, until: Option<Instant>) {
        let woken = self.signal.wake.notified();
        match until {
            None => woken.await,
            Some(until) => tokio::select! {
                biased;
                () = woken => {}
                () = sleep_until(until) => {}
            },
        }
    }

    /// Takes in what changed and decides. Cheap: it looks only at partitions that changed.
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
        for at in dirty {
            self.review(&at, state.partitions.get(&at), now);
        }
        let active = state.lanes.values().filter(|lane| lane.partitions > 0).count().max(1);
        drop(state);
        if let Some(until) = self.pause_until.filter(|until| *until > now) {
            return Plan::Wait(Some(until));
        }
        self.pause_until = None;
        if !self.lookups.is_empty() {
            return Plan::LookUp;
        }
        let later = self.delayed.values().min().copied();
        if self.session.is_empty() {
            return Plan::Wait(later);
        }
        // Each lane has its share of the budget, so that no broker's data holds another's up. A fetch is asked for
        // when at least half of it is free: the other half may still be read.
        let share = (shared.config.prefetch_bytes / active).max(1);
        if !self.signal.has_room(share / 2) {
            return Plan::Wait(later);
        }
        Plan::Fetch { max_bytes: share.saturating_sub(self.signal.used()).max(1) }
    }

    /// Brings what the lane asks for in line with what the partition needs.
    fn review(&mut self, at: &TopicPartition, assigned: Option<&Assigned>, now: Instant) {
        self.lookups.remove(at);
        self.delayed.remove(at);
        let mine = assigned.filter(|assigned| assigned.lane == Some(self.node));
        let Some(assigned) = mine else { return self.stop_reading(at) };
        if let Some(retry_at) = assigned.retry_at.filter(|retry_at| *retry_at > now) {
            self.delayed.insert(at.clone(), retry_at);
            return self.stop_reading(at);
        }
        if let Some((version, to)) = assigned.position.lookup() {
            let leader_epoch = assigned.leader_epoch;
            self.lookups.insert(at.clone(), Lookup { version, to, leader_epoch });
            return self.stop_reading(at);
        }
        match assigned.position.fetch_from() {
            Some(from) if !assigned.paused && !assigned.halted => {
                let (topic_id, leader_epoch) = (assigned.topic_id, assigned.leader_epoch);
                self.read(at, Reading { from, topic_id, leader_epoch });
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
        let params = Params {
            fetch_offset: reading.from.offset,
            current_leader_epoch: reading.leader_epoch,
            last_fetched_epoch: reading.from.last_fetched_epoch,
            max_bytes: self.shared.config.max_partition_fetch_bytes,
        };
        self.session.want(session_key(at, id), params);
    }

    fn stop_reading(&mut self, at: &TopicPartition) {
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

    /// The connection or the whole answer failed: connect again after a pause, and find out whether the leaders
    /// have moved meanwhile.
    fn failed(&mut self, error: &Error) {
        tracing::debug!(node = self.node, %error, "fetch lane failed");
        // A connection that has worked and was lost is replaced at once.
        if !(self.proven && self.connection.is_some()) {
            self.failures += 1;
        }
        self.connection = None;
        self.session.on_lost();
        self.shared.metadata.request_refresh(None);
        let common = &self.shared.config.common;
        let backoff =
            Backoff { initial: common.reconnect_backoff, max: common.reconnect_backoff_max };
        self.pause(backoff.after(self.failures, self.shared.env.entropy.unit()));
    }

    fn pause(&mut self, pause: Duration) {
        self.pause_until = Some(Instant::now() + pause);
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
        let connection = self.connected().await?;
        let mut found = lookup::ask(connection, &questions, isolation).await?;
        self.worked();
        let shared = self.shared.clone();
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

    /// Takes one looked-up offset in. Whether the metadata may be old.
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
                self.retry_later(assigned);
                state.touch(at);
                verdict != FetchVerdict::Retry
            }
        }
    }

    fn retry_later(&self, assigned: &mut Assigned) {
        assigned.failures += 1;
        assigned.retry_at = Some(Instant::now() + self.shared.backoff(assigned.failures));
    }

    /// The connection gave a whole answer.
    fn worked(&mut self) {
        self.proven = true;
        self.failures = 0;
    }

    async fn fetch(&mut self, max_bytes: usize) -> Result<bool> {
        let newest = if self.nameless > 0 { TOPIC_IDS - 1 } else { *fetch::VERSIONS.end() };
        let ours = *fetch::VERSIONS.start()..=newest;
        let version = self.connected().await?.negotiate(ApiKey::FETCH, ours)?;
        let naming = if version >= TOPIC_IDS { Naming::Ids } else { Naming::Names };
        self.session.set_naming(naming);
        // The first request of a session is answered at once, see `FetchSession::is_opening`.
        let config = &self.shared.config;
        let max_wait =
            if self.session.is_opening() { Duration::ZERO } else { config.fetch_max_wait };
        let session = self.session.next_request();
        let request = self.request(session, max_bytes, max_wait);
        let Some(connection) = &mut self.connection else { return Ok(true) };
        let correlation_id = connection.next_correlation_id();
        let frame = connection
            .frame(ApiKey::FETCH, version, correlation_id, |w| request.encode(version, w));
        connection.write(&frame).await?;
        match self.answer(correlation_id, max_wait).await? {
            Waited::Answer(answer) => self.digest(version, &answer)?,
            Waited::Interrupted => {
                self.connection = None;
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
            // A broker that knows the rack may answer with a nearer replica instead of records (KIP-392), which
            // nothing here follows.
            rack_id: String::new(),
        }
    }

    /// Waits for the answer.
    ///
    /// The broker may hold it back for `max_wait`, and a partition that the request does not name, because it was
    /// assigned, moved here or sought meanwhile, would have to wait as long. Then the request is given up for one
    /// over a new connection; but not before it has waited for as long as a connection takes to open, so that a
    /// busy lane, whose answer comes anyway, is left alone.
    async fn answer(&mut self, correlation_id: i32, max_wait: Duration) -> Result<Waited> {
        let Some(mut connection) = self.connection.take() else { return Ok(Waited::Closed) };
        let limit = self.shared.config.common.request_timeout;
        let sent = Instant::now();
        // When something has to be asked that the request does not ask for.
        let mut due = match self.unasked() {
            Unasked::At(at) => Some(at),
            Unasked::Nothing | Unasked::Closed => None,
        };
        let worth_it = self.opening_took < max_wait;
        // A broker that hangs says nothing. Whether somebody else leads by now is asked of the others.
        let patience = self.shared.config.common.retry_backoff_max.max(self.opening_took);
        let mut suspect_at = sent + max_wait + patience;
        let waited = loop {
            let urgent = due
                .filter(|_| worth_it && connection.is_between_frames())
                .map(|due| due.max(sent + self.opening_took));
            tokio::select! {
                biased;
                answer = connection.read_answer(correlation_id) => {
                    break answer.map(Waited::Answer);
                }
                () = self.signal.wake.notified() => match self.unasked() {
                    Unasked::Closed => break Ok(Waited::Closed),
                    Unasked::Nothing => due = None,
                    Unasked::At(at) => due = Some(at),
                },
                () = sleep_until(urgent.unwrap_or(sent)), if urgent.is_some() => {
                    // Part of the answer may have come since the loop began.
                    if connection.is_between_frames() {
                        break Ok(Waited::Interrupted);
                    }
                    due = None;
                }
                () = sleep_until(suspect_at) => {
                    self.shared.metadata.request_refresh(None);
                    suspect_at += patience;
                }
                () = sleep_until(sent + limit) => {
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

    /// Whether, and from when on, a partition needs something that the request under way does not ask for.
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

    fn digest(&mut self, version: i16, frame: &Bytes) -> Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let answer = header::response_body(frame, ApiKey::FETCH, version)
            .and_then(|body| FetchResponse::decode(version, &body))
            .map_err(|e| connection.protocol_error(e))?;
        let results = answer.topics.iter().map(|t| t.partitions.len()).sum();
        match self.session.on_answer(answer.error, answer.session_id, results) {
            Outcome::Results => {}
            Outcome::StartedOver => return Ok(()),
            Outcome::Refused(error) => {
                tracing::debug!(node = self.node, %error, "fetch refused");
                self.failures += 1;
                self.shared.metadata.request_refresh(None);
                self.pause(self.shared.backoff(self.failures));
                return Ok(());
            }
        }
        self.worked();
        if let Ok(throttle @ 1..) = u64::try_from(answer.throttle_time_ms) {
            self.pause(
                Duration::from_millis(throttle).min(self.shared.config.common.request_timeout),
            );
        }
        self.take_in(answer);
        Ok(())
    }

    /// Hands the answer to the application and moves on to what comes after it.
    fn take_in(&mut self, answer: FetchResponse) {
        let results = self.results(answer.topics);
        if results.is_empty() {
            return;
        }
        let mut hints = Vec::new();
        let mut refresh = false;
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        for result in results {
            refresh |= self.take_in_one(&mut state, result, &mut hints);
        }
        let waker = state.take_waker();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if !hints.is_empty() {
            let endpoints: Vec<Node> =
                answer.node_endpoints.iter().filter_map(Node::from_endpoint).collect();
            let taken = shared.metadata.apply_hints(&hints, &endpoints);
            refresh |= taken.len() < hints.len();
        }
        if refresh {
            shared.metadata.request_refresh(None);
        }
    }

    /// What the answer says of partitions that are being read.
    fn results(&self, topics: Vec<FetchTopicResponse>) -> Vec<Answered> {
        let mut results = Vec::new();
        for topic in topics {
            let name = match self.session.naming() {
                Naming::Ids => self.topics.get(&topic.topic_id).cloned(),
                Naming::Names => Some(topic.name.as_str().into()),
            };
            let Some(name) = name else { continue };
            for partition in topic.partitions {
                let at = TopicPartition { topic: name.clone(), partition: partition.index };
                let Some((at, reading)) = self.reading.get_key_value(&at) else { continue };
                results.push(Answered {
                    at: at.clone(),
                    reading: *reading,
                    fetched: Fetched::of(&partition.records, reading.from.offset),
                    partition,
                });
            }
        }
        results
    }

    /// Takes one partition's result in. Whether the metadata may be old.
    fn take_in_one(&mut self, state: &mut State, result: Answered, hints: &mut Vec<Hint>) -> bool {
        let Answered { at, reading, fetched, partition } = result;
        let from = reading.from;
        let Some(assigned) = state.partitions.get_mut(&at) else { return false };
        if assigned.position.version() != from.version || assigned.lane != Some(self.node) {
            return false;
        }
        let verdict = classify(partition.error);
        if verdict == FetchVerdict::Good {
            self.take_in_records(state, at, reading, &fetched, partition);
            return false;
        }
        match verdict {
            FetchVerdict::Good => {}
            FetchVerdict::OutOfRange => {
                let policy = self.shared.policy();
                let misfit = assigned.position.on_out_of_range(
                    from.version,
                    from.offset,
                    policy,
                    &mut state.versions,
                );
                self.misfit(state, &at, misfit);
            }
            FetchVerdict::Report => {
                self.retry_later(assigned);
                state.fail(&at, refused(&at, partition.error));
            }
            FetchVerdict::Moved | FetchVerdict::Missing | FetchVerdict::Retry => {
                self.retry_later(assigned);
            }
        }
        state.touch(&at);
        match (verdict, partition.current_leader) {
            (FetchVerdict::Moved, Some(leader)) if leader.leader_id >= 0 => {
                hints.push(Hint {
                    topic: at.topic.clone(),
                    partition: at.partition,
                    leader: Leader { id: leader.leader_id, epoch: leader.leader_epoch },
                });
                false
            }
            (FetchVerdict::Moved | FetchVerdict::Missing, _) => true,
            _ => false,
        }
    }

    fn take_in_records(
        &mut self,
        state: &mut State,
        at: TopicPartition,
        reading: Reading,
        fetched: &Fetched,
        partition: FetchPartitionResponse,
    ) {
        let from = reading.from;
        let Some(assigned) = state.partitions.get_mut(&at) else { return };
        assigned.high_watermark = Some(partition.high_watermark);
        let failures = std::mem::take(&mut assigned.failures);
        if let Some(end) = partition.diverging_epoch {
            let misfit = assigned.position.on_diverging(
                from.version,
                from.offset,
                end,
                self.shared.policy(),
                &mut state.versions,
            );
            self.misfit(state, &at, misfit);
            state.touch(&at);
            return;
        }
        if assigned.position.on_fetched(from.version, from.offset, fetched.next, fetched.epoch) {
            let lease = Lease::take(&self.signal, partition.records.len());
            let aborted = match self.shared.config.isolation_level {
                IsolationLevel::ReadUncommitted => None,
                IsolationLevel::ReadCommitted => {
                    Some(partition.aborted_transactions.unwrap_or_default())
                }
            };
            if let Some(from) = assigned.position.fetch_from() {
                self.read(&at, Reading { from, ..reading });
            }
            state.push(Cursor::new(
                at,
                from.version,
                from.offset,
                partition.records,
                aborted,
                lease,
            ));
        } else if let Some(reason) = fetched.why_nothing(&partition.records) {
            let error = Error::Corrupt {
                topic: at.topic.clone(),
                partition: at.partition,
                offset: from.offset,
                reason: reason.into(),
            };
            state.fail(&at, error);
            state.touch(&at);
        } else if !partition.records.is_empty() {
            // Only records from before the position. Asked at once again, the broker would give them again.
            assigned.failures = failures;
            self.retry_later(assigned);
            state.touch(&at);
        }
    }

    fn misfit(&self, state: &mut State, at: &TopicPartition, misfit: Misfit) {
        match misfit {
            Misfit::Stale | Misfit::Moved => {}
            Misfit::NotYet => {
                if let Some(assigned) = state.partitions.get_mut(at) {
                    self.retry_later(assigned);
                }
            }
            Misfit::Unresolved(offset) => {
                state.fail(at, out_of_range(at, offset));
                self.shared.settled.notify_waiters();
            }
        }
    }

    /// Frees the session's slot on the broker, as far as that can be done: a request may still be under way on
    /// the old connection, so the farewell goes over another one. Sessions do not belong to connections.
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

fn session_key(at: &TopicPartition, topic_id: Uuid) -> SessionPartition {
    SessionPartition { topic: at.topic.clone(), topic_id, partition: at.partition }
}

/// One partition's result, with what was asked.
struct Answered {
    at: TopicPartition,
    reading: Reading,
    fetched: Fetched,
    partition: FetchPartitionResponse,
}

/// How far a partition's records reach, from the batches' headers alone.
struct Fetched {
    /// The offset after the last whole batch.
    next: i64,
    /// Leader epoch of that batch.
    epoch: i32,
    /// Whether there is a whole batch.
    whole: bool,
    /// Why no batch could be found after it, if the bytes are not batches.
    damage: Option<RecordError>,
}

impl Fetched {
    fn of(records: &Bytes, asked: i64) -> Self {
        let mut fetched = Self { next: asked, epoch: -1, whole: false, damage: None };
        for batch in batches(records.clone()) {
            match batch {
                Ok(batch) => {
                    fetched.whole = true;
                    fetched.next = fetched.next.max(batch.header.last_offset().saturating_add(1));
                    fetched.epoch = batch.header.partition_leader_epoch;
                }
                Err(error) => {
                    fetched.damage = Some(error);
                    break;
                }
            }
        }
        fetched
    }
    /// What is wrong with records that bring the reader no further, if anything is. Since KIP-74 a broker gives the
    /// first batch whole, however large.
    fn why_nothing(&self, records: &Bytes) -> Option<String> {
        match &self.damage {
            Some(error) => Some(error.to_string()),
            None if !self.whole && !records.is_empty() => {
                Some(format!("the {} bytes fetched hold no whole batch", records.len()))
            }
            None => None,
        }
    }
}
