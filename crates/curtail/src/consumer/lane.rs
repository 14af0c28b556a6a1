//! One broker's fetch lane: a task that carries out what [`Fetcher`] decides. It looks up offsets and keeps a fetch in
//! flight while there is room, whether or not the application polls.
//!
//! The lane owns the connections. Positions and the buffer are under the lock of the consumer's state
//! ([`Shared::state`]), which is never held across an `await`.

mod answers;
mod aside;
mod lookups;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_proto::{
    TopicPartition,
    backoff::Backoff,
    fetcher::{
        Buffered, Event, Failure, Fetch, Fetcher, Interest, LookUp, Need, Permit, Room, Settings,
        Share, Transmit, Wake, Wanted,
    },
    later::Later,
    path::Suspicion,
    plant::{Plant, planted},
    position::{FetchFrom, FetchVerdict, classify},
};
use curtail_wire::{ApiKey, ErrorCode, fetch::FetchRequest};
use tokio::time::{Instant, sleep_until, timeout_at};

use self::aside::Asides;
use super::{
    credit::{Held, LaneSignal},
    shared::{Assigned, Shared},
};
use crate::{
    ConsumerConfig, Error, Result,
    config::BufferedPartitions,
    conn::{Connection, connection_error},
    metrics::{Arrival, FetchStats},
};

/// Runs the lane until the consumer closes.
pub(super) async fn run(shared: Arc<Shared>, node: i32, signal: Arc<LaneSignal>) {
    let stats = shared.stats.broker(node);
    let fetcher = Fetcher::new(settings(&shared.config), Instant::now().into_std());
    let asides = Asides::new(&shared.runtime);
    let mut lane =
        Lane { shared, node, signal, fetcher, connection: None, asides, stats, arrival: None };
    while let Flow::Continue = lane.turn().await {}
    lane.close_session().await;
}

fn settings(config: &ConsumerConfig) -> Settings {
    let common = &config.common;
    let backoff = |initial: Duration, max: Duration| Backoff { initial, max };
    Settings {
        buffered: match config.buffered_partitions {
            BufferedPartitions::Credit => Buffered::Credit,
            BufferedPartitions::Omit => Buffered::Omit,
            BufferedPartitions::SkipBroker => Buffered::SkipBroker,
            BufferedPartitions::SkipAll => Buffered::SkipAll,
        },
        max_wait: config.fetch_max_wait,
        partition_bytes: config.max_partition_fetch_bytes,
        isolation: config.isolation_level,
        request_timeout: common.request_timeout,
        retry: backoff(common.retry_backoff, common.retry_backoff_max),
        reconnect: backoff(common.reconnect_backoff, common.reconnect_backoff_max),
        suspicion: Suspicion::of_fetches(common.retry_backoff_max),
    }
}

struct Lane {
    shared: Arc<Shared>,
    node: i32,
    signal: Arc<LaneSignal>,
    fetcher: Fetcher<Arc<Held>>,
    /// The session's connection.
    connection: Option<Connection>,
    asides: Asides,
    stats: Arc<FetchStats>,
    /// Arrival of the response that is being processed.
    arrival: Option<Arrival>,
}

/// Whether the lane continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continue,
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

/// What ends the wait for a response, apart from the response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Interrupt,
    TimedOut,
}

impl Lane {
    /// Plans, and performs one exchange with the broker or one wait.
    async fn turn(&mut self) -> Flow {
        if self.plan() == Flow::Closed {
            return Flow::Closed;
        }
        let result = match self.start_beside() {
            None => self.wait().await.map(|()| Flow::Continue),
            Some(Main::LookUp(asked)) => self.look_up(asked).await.map(|()| Flow::Continue),
            Some(Main::Fetch(permit)) => self.fetch(permit).await,
        };
        match result {
            Ok(flow) => flow,
            Err(error) => {
                self.failed(&error);
                Flow::Continue
            }
        }
    }

    /// Reviews the partitions that changed, and plans the next requests. Others cost nothing.
    fn plan(&mut self) -> Flow {
        let now = Instant::now();
        // Read before the buffered bytes, so that bytes drained in between wake the lane.
        let drained = self.signal.drained();
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        if state.closed {
            return Flow::Closed;
        }
        let Some(entry) = state.lanes.get_mut(&self.node) else { return Flow::Closed };
        let mut dirty = std::mem::take(&mut entry.dirty);
        self.fetcher.due(now.into_std(), |held| held.bytes(), &mut dirty);
        for at in &dirty {
            shared.back_to_leader(&mut state, at, now);
        }
        for at in &dirty {
            let need = need_of(state.partitions.get(at), self.node, now);
            self.fetcher.handle_assigned(at, need);
        }
        let lanes = state.lanes.values();
        let active = lanes.clone().filter(|lane| lane.partitions > 0).count().max(1);
        let all_used = match shared.config.buffered_partitions {
            BufferedPartitions::SkipAll => lanes.map(|lane| lane.signal.used()).sum(),
            _ => 0,
        };
        drop(state);
        let total = (shared.config.prefetch_bytes / active).max(1);
        let room = Room { share: Share { total, used: self.signal.used() }, all_used };
        match self.fetcher.handle_drained(room, |held| held.bytes(), now.into_std()) {
            Wake::Never => self.signal.never_wake(),
            Wake::After(bytes) => self.signal.wake_after(drained, bytes),
        }
        self.carry_out();
        Flow::Continue
    }

    /// Starts the sessionless fetches that are due. Returns the request for the session's connection.
    fn start_beside(&mut self) -> Option<Main> {
        while let Some(transmit) = self.fetcher.poll_transmit() {
            match transmit {
                Transmit::LookUp(asked) => return Some(Main::LookUp(asked)),
                Transmit::Session(permit) => return Some(Main::Fetch(permit)),
                Transmit::Sessionless(purpose, fetch) => {
                    let versions = fetch.versions();
                    let request = self.request(fetch);
                    self.asides.start(purpose, self.shared.clone(), self.node, versions, request);
                }
            }
        }
        None
    }

    async fn wait(&mut self) -> Result<()> {
        let until = self.fetcher.poll_timeout().map(Instant::from_std);
        let closes_at = self.connection.as_ref().and_then(Connection::closes_at);
        let done = tokio::select! {
            biased;
            () = self.signal.wake.notified() => None,
            done = self.asides.done() => Some(done),
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                self.fetcher.handle_timeout(Instant::now().into_std());
                self.carry_out();
                None
            }
            () = sleep_until(closes_at.unwrap_or_else(Instant::now)), if closes_at.is_some() => {
                tracing::debug!(node = self.node, "closed as idle (connections.max.idle.ms)");
                self.connection = None;
                None
            }
        };
        // The broker may have closed it as idle. A lane that fetches without a wait need not look.
        self.connection.take_if(|connection| !connection.is_usable());
        done.map_or(Ok(()), |done| self.digest_beside(done))
    }

    async fn connected(&mut self) -> Result<&mut Connection> {
        if self.connection.is_none() {
            let begun = Instant::now();
            self.connection = Some(self.shared.connect(self.node).await?);
            self.fetcher.handle_open(begun.elapsed());
        }
        self.connection.as_mut().ok_or(Error::Closed)
    }

    /// Sends the session's next fetch, and processes its response.
    async fn fetch(&mut self, permit: Permit) -> Result<Flow> {
        let ours = self.fetcher.versions();
        let version = self.connected().await?.negotiate(ApiKey::FETCH, ours)?;
        let sent = Instant::now();
        let fetch = self.fetcher.send(permit, version, sent.into_std());
        if fetch.is_opening {
            self.stats.opening();
        }
        let request = self.request(fetch);
        let span = self.connected().await?.span(ApiKey::FETCH);
        let exchange = async {
            let correlation_id = self.write(version, &request, sent).await?;
            self.answer(correlation_id).await
        };
        let waited = span.wrap(exchange).await;
        span.end_of(&waited);
        span.end();
        match waited? {
            Waited::Answer(answer) => {
                self.arrival = self.stats.answered(sent, answer.len());
                self.digest(version, &answer)?;
            }
            Waited::Interrupted => {
                self.connection = None;
                self.fetcher.handle_interrupted();
            }
            Waited::Closed => return Ok(Flow::Closed),
        }
        Ok(Flow::Continue)
    }

    fn request(&self, fetch: Fetch) -> FetchRequest {
        let config = &self.shared.config;
        let max_bytes = i32::try_from(fetch.max_bytes).unwrap_or(i32::MAX);
        FetchRequest {
            replica_id: -1,
            replica_epoch: -1,
            max_wait_ms: i32::try_from(fetch.max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: config.fetch_min_bytes,
            max_bytes: max_bytes.min(config.fetch_max_bytes),
            isolation_level: config.isolation_level,
            session_id: fetch.session.session_id,
            session_epoch: fetch.session.session_epoch,
            topics: fetch.session.topics,
            forgotten: fetch.session.forgotten,
            // The leader may name a nearer replica instead of returning records (KIP-392).
            rack_id: match planted(Plant::RackNotNamed) {
                true => String::new(),
                false => config.common.client_rack.clone(),
            },
        }
    }

    /// Writes a fetch over the session's connection, and returns its correlation id.
    async fn write(&mut self, version: i16, request: &FetchRequest, sent: Instant) -> Result<i32> {
        let Some(connection) = &mut self.connection else { return Err(Error::Closed) };
        let correlation_id = connection.next_correlation_id();
        let frame = connection
            .frame(ApiKey::FETCH, version, correlation_id, |w| request.encode(version, w));
        let limit = self.shared.config.common.request_timeout;
        let written = timeout_at(sent.later(limit), connection.write(&frame));
        let patience = self.fetcher.patience();
        if let Ok(written) = self.shared.suspecting(self.node, patience, written).await {
            return written.map(|()| correlation_id);
        }
        let millis = limit.as_millis();
        let reason = format!(
            "the broker does not read: a request was not written within request.timeout.ms={millis}"
        );
        Err(connection_error(connection.peer(), reason))
    }

    /// Waits for the response to the session's fetch.
    async fn answer(&mut self, correlation_id: i32) -> Result<Waited> {
        let Some(mut connection) = self.connection.take() else { return Ok(Waited::Closed) };
        let mut flow = self.look();
        let waited = loop {
            let until = self.fetcher.poll_timeout().map(Instant::from_std);
            tokio::select! {
                biased;
                answer = connection.read_answer(correlation_id) => break answer.map(Waited::Answer),
                done = self.asides.done() => {
                    if let Err(error) = self.digest_beside(done) {
                        break Err(error);
                    }
                }
                () = self.signal.wake.notified() => flow = self.look(),
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    self.fetcher.handle_timeout(Instant::now().into_std());
                }
            }
            match self.carry_out() {
                _ if flow == Flow::Closed => break Ok(Waited::Closed),
                Some(Stop::Interrupt) if connection.is_between_frames() => {
                    break Ok(Waited::Interrupted);
                }
                Some(Stop::TimedOut) => {
                    let limit = self.shared.config.common.request_timeout.as_millis();
                    let reason = format!("no response within request.timeout.ms={limit}");
                    break Err(connection_error(connection.peer(), reason));
                }
                Some(Stop::Interrupt) | None => {}
            }
        };
        self.connection = Some(connection);
        waited
    }

    /// Looks for partitions that need something that the fetch in flight does not name.
    fn look(&mut self) -> Flow {
        let now = Instant::now();
        let state = self.shared.state.lock();
        if state.closed {
            return Flow::Closed;
        }
        if let Some(entry) = state.lanes.get(&self.node) {
            let need = |at: &TopicPartition| need_of(state.partitions.get(at), self.node, now);
            self.fetcher.handle_changed(&entry.dirty, need, now.into_std());
        }
        Flow::Continue
    }

    /// Carries out the fetcher's events. Returns the one that ends the wait for a response, if there is one.
    fn carry_out(&mut self) -> Option<Stop> {
        let mut stop = None;
        while let Some(event) = self.fetcher.poll_event() {
            match event {
                Event::Store(results, endpoints) => self.take_in(results, &endpoints),
                Event::Refresh => self.shared.metadata.request_refresh(None),
                Event::Interrupt => stop = Some(Stop::Interrupt),
                Event::TimedOut => stop = Some(Stop::TimedOut),
                Event::Refused(error) => self.refused(error),
                Event::Throttled(throttle) => self.stats.throttled(throttle),
                Event::CloseSessionless => self.asides.close(),
            }
        }
        stop
    }

    /// Reports a refused fetch if only an operator can remove the cause.
    fn refused(&self, error: ErrorCode) {
        tracing::debug!(node = self.node, %error, "fetch refused");
        if classify(error) == FetchVerdict::Report && !error.is_retriable() {
            self.shared.report(Error::Broker {
                what: format!("Fetch of broker {}", self.node).into(),
                code: error,
                message: Some(error.message().into()),
            });
        }
    }

    /// Handles a failed connection or an unusable response: reconnects after a backoff, and refreshes the metadata in
    /// case leaders have moved.
    fn failed(&mut self, error: &Error) {
        tracing::debug!(node = self.node, error = %error.report(), "fetch lane failed");
        self.shared.report_refusal(error);
        let failure = match error {
            Error::Connection { .. } => Failure::Connection,
            _ => Failure::Response,
        };
        self.connection = None;
        self.leave_followed();
        self.shared.metadata.request_refresh_avoiding(None, self.node);
        let unit = self.shared.env.entropy.unit();
        self.fetcher.handle_lost(failure, Instant::now().into_std(), unit);
        self.carry_out();
    }

    /// Returns to the leader all partitions that are read here only because the leader named this replica.
    fn leave_followed(&self) {
        if self.shared.config.common.client_rack.is_empty() {
            return;
        }
        let mut state = self.shared.state.lock();
        for at in self.fetcher.reads() {
            if let Some(assigned) = state.partitions.get_mut(at)
                && assigned.preferred.take_if(|(id, _)| *id == self.node).is_some()
            {
                self.shared.reroute(&mut state, at);
            }
        }
    }

    /// Frees the session's slot on the broker, if possible. A request may still be in flight on the old connection,
    /// so this one uses a new connection. Sessions do not belong to connections.
    async fn close_session(&mut self) {
        self.connection = None;
        let Some(fetch) = self.fetcher.close() else { return };
        let newest = *fetch.versions().end();
        let request = self.request(fetch);
        let farewell = async {
            let ours = *curtail_wire::fetch::VERSIONS.start()..=newest;
            let mut connection = self.shared.connect(self.node).await?;
            connection.request_hot(ApiKey::FETCH, ours, |v, w| request.encode(v, w)).await
        };
        if let Err(error) = farewell.await {
            tracing::debug!(node = self.node, error = %error.report(), "fetch session not closed");
        }
    }
}

/// The request for the session's connection.
enum Main {
    LookUp(BTreeMap<TopicPartition, LookUp>),
    Fetch(Permit),
}

/// What a partition needs from the broker `node`.
fn need_of(assigned: Option<&Assigned>, node: i32, now: Instant) -> Need<Arc<Held>> {
    let Some(assigned) = assigned.filter(|assigned| assigned.lane == Some(node)) else {
        return Need::Nothing;
    };
    let position = &assigned.position;
    // A failure in the buffer halts a partition. Pausing it then changes nothing.
    let interest = match (assigned.paused, assigned.halted) {
        (true, _) => Some(Interest::Paused),
        (false, true) => None,
        (false, false) => Some(Interest::Wanted),
    };
    if let Some(retry_at) = assigned.retry_at.filter(|retry_at| *retry_at > now) {
        let is_wanted = interest == Some(Interest::Wanted) && position.fetch_from().is_some();
        let has_work = is_wanted || position.lookup().is_some();
        let version = has_work.then(|| position.version());
        return Need::Wait { until: retry_at.into_std(), version };
    }
    if let Some((version, to)) = position.lookup() {
        let leader_epoch = position.leader_epoch().unwrap_or(-1);
        return Need::LookUp(LookUp { version, to, leader_epoch });
    }
    let review_at = assigned.preferred.map(|(_, until)| until.into_std());
    match (fetch_from(assigned), interest) {
        (Some(from), Some(interest)) => Need::Fetch(Wanted {
            from,
            topic_id: assigned.topic_id,
            interest,
            review_at,
            buffered: (assigned.held.bytes() > 0).then(|| assigned.held.clone()),
        }),
        _ => review_at.map_or(Need::Nothing, |until| Need::Wait { until, version: None }),
    }
}

/// Returns the position for the next fetch. A follower may lack records and epochs of its leader, so it cannot tell
/// whether the logs diverge.
fn fetch_from(assigned: &Assigned) -> Option<FetchFrom> {
    let from = assigned.position.fetch_from()?;
    match assigned.preferred {
        Some(_) => Some(FetchFrom { last_fetched_epoch: -1, ..from }),
        None => Some(from),
    }
}
