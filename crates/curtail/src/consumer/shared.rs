//! State shared by the application's side and the lanes, under one short lock: assignments, lanes and the buffer.
//!
//! Lock order: the metadata writer's lock, then [`Shared::state`], then the lists of wanted topics. No caller holds
//! the state lock while it takes the writer's lock.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use curtail_net::Env;
use curtail_proto::{
    backoff::Backoff,
    later::Later,
    metadata::Snapshot,
    path::policy,
    position::{Misfit, Policy, Position, Truncation, Version, Versions, is_soon_over},
};
use curtail_wire::{ErrorCode, Uuid, frame};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinHandle},
    time::{Instant, sleep_until},
};

use super::{
    Choice,
    buffer::{Buffer, Chunk, Queue, Taken},
    claims::{Seat, Split},
    credit::{Held, LaneSignal},
    cursor::Cursor,
    group::{Group, place},
    lane, validate,
};
use crate::{
    ConsumerConfig, Error, Result, TopicPartition,
    config::OffsetReset,
    conn::{Connection, connection_error},
    metadata::{Listener, MetadataHandle},
    metrics::ConsumerStats,
    runtime::Runtime,
    telemetry::Source,
};

/// Room in a fetch response for everything but records.
const RESPONSE_OVERHEAD: usize = 1024 * 1024;

/// Largest response that the settings request. A broker returns at least one batch of any size. A batch beyond the
/// limit is reported with the setting that makes room for it.
pub(super) fn receive_limit(config: &ConsumerConfig) -> usize {
    let asked = usize::try_from(config.fetch_max_bytes).unwrap_or(0);
    asked.saturating_add(RESPONSE_OVERHEAD).max(frame::DEFAULT_LIMIT)
}

/// The consumer, except for the parts that only its owner touches.
pub(super) struct Shared {
    pub(super) env: Env,
    pub(super) config: ConsumerConfig,
    pub(super) metadata: MetadataHandle,
    pub(super) stats: ConsumerStats,
    /// `None` without a `group.id`.
    pub(super) group: Option<Arc<Group>>,
    pub(super) state: Mutex<State>,
    /// Notified when positions become known, or never will.
    pub(super) settled: Notify,
    pub(super) runtime: Runtime,
    /// Number of changes by handles.
    outside: AtomicU64,
    pub(super) me: Weak<Shared>,
}

/// The state under the lock.
#[derive(Default)]
pub(super) struct State {
    pub(super) versions: Versions,
    pub(super) partitions: BTreeMap<TopicPartition, Assigned>,
    pub(super) choice: Choice,
    /// `None` while polls return the records.
    pub(super) split: Option<Split>,
    /// By broker id. A lane stays when its last partition leaves: the partition may come back.
    pub(super) lanes: BTreeMap<i32, LaneEntry>,
    pub(super) buffer: Buffer,
    /// Partitions whose position may need validation by the leader.
    pub(super) unvalidated: BTreeSet<TopicPartition>,
    /// Wakes the validation task.
    pub(super) validator: Arc<Notify>,
    /// Partitions without a position. A poll reports them to the application.
    pub(super) unplaced: BTreeSet<TopicPartition>,
    /// Errors of no place in the buffer.
    errors: VecDeque<Error>,
    pub(super) waker: Option<Waker>,
    /// Tasks that wait for topics to appear or for offsets; they end with the consumer.
    watchers: Vec<AbortHandle>,
    pub(super) closed: bool,
    /// Whether the runtime has ended. No further record arrives.
    pub(super) cut_off: bool,
}

/// An assigned partition.
pub(super) struct Assigned {
    pub(super) position: Position,
    /// Versions before and after the last rewinds that a handle caused. Records of the first may have been returned and
    /// not counted.
    pub(super) rewound: Option<(Version, Version)>,
    /// Last known committed offset of the group.
    pub(super) committed: Option<i64>,
    pub(super) topic_id: Uuid,
    /// The broker from which it is read, once known.
    pub(super) lane: Option<i32>,
    /// The replica that the leader has named, and when it expires (KIP-392).
    pub(super) preferred: Option<(i32, Instant)>,
    pub(super) paused: bool,
    /// Whether a failure is in the buffer. Nothing is fetched before the application has seen it.
    pub(super) halted: bool,
    pub(super) failures: u32,
    /// Start of the leaders' refusals to validate the position.
    pub(super) refused_since: Option<Instant>,
    /// Start of the next request at the earliest.
    pub(super) retry_at: Option<Instant>,
    pub(super) high_watermark: Option<i64>,
    /// End of the readable records, from the last response.
    pub(super) end: Option<i64>,
    /// Whether the missing partition was reported to the application.
    reported_missing: bool,
    /// Fetched records that were not returned yet.
    pub(super) queue: Queue,
    pub(super) seat: Seat,
    /// Bytes counted against the partition's credit: the queue, and the records that the application is reading.
    pub(super) held: Arc<Held>,
}

/// A lane from outside.
pub(super) struct LaneEntry {
    pub(super) signal: Arc<LaneSignal>,
    /// Partitions to review before the next request.
    pub(super) dirty: BTreeSet<TopicPartition>,
    /// Number of partitions read by the lane.
    pub(super) partitions: usize,
    pub(super) task: Option<JoinHandle<()>>,
}

/// The next item in the buffer.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
pub(super) enum Next {
    Cursor(Cursor),
    Failure(Error),
    Nothing,
}

impl Shared {
    pub(super) fn new(config: ConsumerConfig, env: Env, metadata: MetadataHandle) -> Arc<Self> {
        let stamps = config.common.phase_stamps;
        let shared = Arc::new_cyclic(|me| Self {
            group: Group::of(&config, &env, metadata.runtime()),
            env,
            config,
            runtime: metadata.runtime().clone(),
            metadata,
            stats: ConsumerStats::new(stamps),
            state: Mutex::default(),
            settled: Notify::new(),
            outside: AtomicU64::new(0),
            me: me.clone(),
        });
        let listener: Weak<dyn Listener> = shared.me.clone();
        shared.metadata.listen(listener);
        let source: Weak<dyn Source> = shared.me.clone();
        shared.metadata.push_metrics(source);
        shared.watch(validate::run(shared.clone()));
        if let Some(group) = &shared.group {
            group.start(&shared);
        }
        shared
    }

    pub(super) fn policy(&self) -> Policy {
        match self.config.auto_offset_reset {
            OffsetReset::Earliest => Policy::Earliest,
            OffsetReset::Latest => Policy::Latest,
            OffsetReset::ByDuration(age) => {
                let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                Policy::Since(self.env.wall.now_ms().saturating_sub(age).max(0))
            }
            OffsetReset::None => Policy::None,
        }
    }

    pub(super) fn backoff(&self, failures: u32) -> Duration {
        self.pauses().after(failures, self.env.entropy.unit())
    }

    /// Counts a failure of a partition, and makes it back off.
    pub(super) fn pause(&self, assigned: &mut Assigned, pauses: Backoff) {
        assigned.failures += 1;
        let pause = pauses.after(assigned.failures, self.env.entropy.unit());
        assigned.retry_at = Some(Instant::now().later(pause));
    }

    /// As [`Self::pause`], after a refusal with this error.
    pub(super) fn pause_after(&self, error: ErrorCode, assigned: &mut Assigned) {
        let pauses = self.pauses();
        self.pause(assigned, if is_soon_over(error) { pauses.soon() } else { pauses });
    }

    pub(super) fn pauses(&self) -> Backoff {
        let common = &self.config.common;
        Backoff { initial: common.retry_backoff, max: common.retry_backoff_max }
    }

    /// Makes the next poll return the error if only the application or an operator can remove its cause.
    pub(super) fn report_refusal(&self, error: &Error) {
        let lasts = matches!(error, Error::UnsupportedVersion(_) | Error::ResponseTooLarge { .. });
        if lasts || error.needs_other_settings() {
            self.report(error.clone());
        }
    }

    /// Makes the next poll return the error.
    pub(super) fn report(&self, error: Error) {
        let mut state = self.state.lock();
        state.report(error);
        state.wake_application();
    }

    /// Connects to a broker by its id.
    pub(super) async fn connect(&self, node: i32) -> Result<Connection> {
        let snapshot = self.metadata.snapshot();
        let Some(known) = snapshot.node(node) else {
            self.metadata.request_refresh(None);
            let broker = format!("broker {node}").into();
            return Err(connection_error(&broker, "its address is not known"));
        };
        let common = &self.config.common;
        let mut connection = Connection::open(&self.env, common, &known.host, known.port).await?;
        connection.set_receive_limit(receive_limit(&self.config), "fetch.max.bytes");
        self.stats.connections.add(1);
        Ok(connection)
    }

    /// Time a broker gets for a response before newer leaders are looked up elsewhere.
    pub(super) fn patience(&self) -> Duration {
        policy::attempt(self.config.common.retry_backoff_max, 0, Duration::MAX)
    }

    /// Runs an exchange with a broker. While it takes longer than `patience`, asks the others for newer leaders.
    pub(super) async fn suspecting<T>(
        &self,
        node: i32,
        patience: Duration,
        exchange: impl Future<Output = T>,
    ) -> T {
        let mut exchange = pin!(exchange);
        let mut suspect_at = Instant::now().later(patience);
        loop {
            tokio::select! {
                biased;
                done = &mut exchange => return done,
                () = sleep_until(suspect_at) => {
                    self.metadata.request_refresh_avoiding(None, node);
                    suspect_at = suspect_at.later(patience);
                }
            }
        }
    }

    /// Replaces the assignment. Partitions that stay assigned keep their positions and their records in the buffer.
    pub(super) fn assign(self: &Arc<Self>, wanted: BTreeSet<TopicPartition>) {
        let state = self.state.lock();
        let gone = state.partitions.keys().filter(|at| !wanted.contains(at)).cloned().collect();
        drop(state);
        self.drop_partitions(&gone);
        let wanted: Vec<TopicPartition> = wanted.into_iter().collect();
        let awaited = self.add_partitions(&wanted);
        if let Some(group) = &self.group {
            place(self, group, awaited);
        }
    }

    /// Takes partitions out of the assignment.
    pub(super) fn drop_partitions(&self, gone: &BTreeSet<TopicPartition>) {
        let mut state = self.state.lock();
        for at in gone {
            state.leave_lane(at);
            state.unplaced.remove(at);
            if let Some(mut assigned) = state.partitions.remove(at) {
                state.buffer.clear(&mut assigned.queue);
                assigned.seat.wake();
            }
        }
        drop(state);
        // Callers that wait for the position of a removed partition must fail now.
        self.settled.notify_waiters();
    }

    /// Adds the partitions that are not assigned yet. In a group their positions await the committed offsets;
    /// otherwise the reset policy places them.
    pub(super) fn add_partitions(
        &self,
        wanted: &[TopicPartition],
    ) -> Vec<(TopicPartition, Version)> {
        let mut state = self.state.lock();
        let snapshot = self.metadata.snapshot();
        let mut awaited = Vec::new();
        let mut unknown = BTreeSet::new();
        for at in wanted {
            if !state.partitions.contains_key(at) {
                let position = self.first_position(&mut state, at);
                if self.group.is_some() {
                    awaited.push((at.clone(), position.version()));
                }
                state.partitions.insert(at.clone(), Assigned::new(position));
                state.offer(at);
            }
            if snapshot.topic(&at.topic).is_none() {
                unknown.insert(at.topic.clone());
            }
            self.route(&mut state, &snapshot, at);
        }
        drop(state);
        for topic in unknown {
            self.watch_unknown(topic);
        }
        awaited
    }

    fn first_position(&self, state: &mut State, at: &TopicPartition) -> Position {
        if self.group.is_some() {
            return Position::awaited(&mut state.versions);
        }
        if self.policy() == Policy::None {
            state.unplaced.insert(at.clone());
        }
        Position::by_policy(self.policy(), &mut state.versions)
    }

    /// Reports to the application a topic that stays unknown for `default.api.timeout.ms`.
    fn watch_unknown(&self, topic: Arc<str>) {
        let me = self.me.clone();
        let metadata = self.metadata.clone();
        let deadline = Instant::now().later(self.config.common.default_api_timeout);
        self.watch(async move {
            if let Err(error) = metadata.topic(&topic, deadline).await
                && let Some(shared) = me.upgrade()
            {
                let mut state = shared.state.lock();
                if state.partitions.keys().any(|at| at.topic == topic) {
                    state.errors.push_back(error);
                    state.wake_application();
                }
                drop(state);
                shared.settled.notify_waiters();
            }
        });
    }

    /// Runs a task that ends with the consumer.
    pub(super) fn watch(&self, task: impl Future<Output = ()> + Send + 'static) {
        let watcher = self.runtime.spawn(task);
        let mut state = self.state.lock();
        state.watchers.retain(|watcher| !watcher.is_finished());
        state.watchers.push(watcher.abort_handle());
    }

    /// Assigns a partition to the lane of its leader, or of its preferred replica. The caller loads the snapshot
    /// under the lock, so that an older snapshot cannot replace a newer one.
    fn route(&self, state: &mut State, snapshot: &Snapshot, at: &TopicPartition) {
        let Some(topic) = snapshot.topic(&at.topic) else {
            state.leave_lane(at);
            return;
        };
        self.check_topic_id(state, topic.id, at);
        let leader = usize::try_from(at.partition).ok().and_then(|i| topic.leaders.get(i)).copied();
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        let Some(leader) = leader else {
            // A group assigns only partitions that exist: this broker's metadata lags.
            if !assigned.reported_missing && self.group.is_none() {
                assigned.reported_missing = true;
                state.errors.push_back(Error::UnknownPartition {
                    topic: at.topic.clone(),
                    partition: at.partition,
                    partitions: topic.leaders.len(),
                });
                state.wake_application();
            }
            state.leave_lane(at);
            self.metadata.request_refresh(Some(&at.topic));
            return;
        };
        if leader.id < 0 {
            state.leave_lane(at);
            self.metadata.request_refresh(Some(&at.topic));
            return;
        }
        let preferred = assigned.preferred.filter(|(id, _)| snapshot.node(*id).is_some());
        let to = preferred.map_or(leader.id, |(id, _)| id);
        let moved = assigned.lane != Some(to);
        if !moved && assigned.position.leader_epoch() == Some(leader.epoch) {
            return;
        }
        // A new leader or leader epoch: earlier failures are irrelevant.
        assigned.position.on_leader(leader.epoch);
        assigned.retry_at = None;
        assigned.failures = 0;
        assigned.refused_since = None;
        if moved {
            state.leave_lane(at);
            self.enter_lane(state, to, at);
        }
        state.touch(at);
    }

    /// Moves a partition to the lane of the broker from which it must now be read.
    pub(super) fn reroute(&self, state: &mut State, at: &TopicPartition) {
        let snapshot = self.metadata.snapshot();
        self.route(state, &snapshot, at);
    }

    /// Returns a partition from its preferred replica to the leader, once the preference has expired or an offset
    /// lookup is due.
    pub(super) fn back_to_leader(&self, state: &mut State, at: &TopicPartition, now: Instant) {
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        let over =
            |(_, until): (i32, Instant)| until <= now || assigned.position.lookup().is_some();
        if assigned.preferred.is_some_and(over) {
            assigned.preferred = None;
            self.reroute(state, at);
        }
    }

    /// Handles a response that does not fit the partition's position.
    pub(super) fn misfit(&self, state: &mut State, at: &TopicPartition, misfit: Misfit) {
        match misfit {
            Misfit::Stale => {}
            Misfit::Moved => {
                state.drop_buffered(at);
                if let Some(assigned) = state.partitions.get_mut(at) {
                    assigned.seat.moved(&assigned.position);
                }
            }
            Misfit::NotYet => {
                if let Some(assigned) = state.partitions.get_mut(at) {
                    self.pause(assigned, self.pauses());
                }
            }
            Misfit::Unresolved(offset) => state.fail(at, out_of_range(at, offset)),
            Misfit::Truncated(truncation) => state.fail(at, truncated(at, truncation)),
        }
        if matches!(misfit, Misfit::Unresolved(_) | Misfit::Truncated(_)) {
            self.settled.notify_waiters();
        }
    }

    fn check_topic_id(&self, state: &mut State, id: Uuid, at: &TopicPartition) {
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        if assigned.topic_id == id {
            return;
        }
        let recreated = assigned.topic_id != Uuid::ZERO && id != Uuid::ZERO;
        assigned.topic_id = id;
        if recreated {
            let misfit = assigned.position.on_recreated(self.policy(), &mut state.versions);
            state.drop_buffered(at);
            self.misfit(state, at, misfit);
        }
        state.touch(at);
    }

    fn enter_lane(&self, state: &mut State, node: i32, at: &TopicPartition) {
        if let Some(assigned) = state.partitions.get_mut(at) {
            assigned.lane = Some(node);
        }
        let lane = state.lanes.entry(node).or_insert_with(|| {
            let signal = Arc::new(LaneSignal::default());
            let task = self
                .me
                .upgrade()
                .map(|shared| self.runtime.spawn(lane::run(shared, node, signal.clone())));
            LaneEntry { signal, dirty: BTreeSet::new(), partitions: 0, task }
        });
        lane.partitions += 1;
    }

    /// Takes the next item for the application out of the buffer. An empty buffer keeps the `waker`, if given.
    /// Failures stay in the buffer unless requested.
    pub(super) fn next(&self, failures: bool, waker: Option<&Waker>) -> Next {
        let state = &mut *self.state.lock();
        if failures && let Some(error) = state.next_error() {
            return Next::Failure(error);
        }
        while let Some(at) = state.buffer.next_ready() {
            let State { partitions, buffer, .. } = state;
            let Some(assigned) = partitions.get_mut(&at) else { continue };
            let version = assigned.position.version();
            if assigned.paused {
                buffer.pass_over(&mut assigned.queue);
                continue;
            }
            match buffer.take(at.clone(), &mut assigned.queue, version, failures) {
                Taken::Chunk(Chunk::Records(cursor)) => return Next::Cursor(cursor),
                Taken::Chunk(Chunk::Failure { error, .. }) => {
                    self.fetch_again(state, &at);
                    return Next::Failure(error);
                }
                Taken::Unwanted => return Next::Nothing,
                Taken::Nothing => {}
            }
        }
        if failures && state.cut_off {
            return Next::Failure(Error::Closed);
        }
        if let Some(waker) = waker {
            match &mut state.waker {
                Some(kept) => kept.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        Next::Nothing
    }

    /// Makes the application's side look at the group, and a waiting call look at the state.
    pub(super) fn call_application(&self) {
        match &self.group {
            Some(group) => group.call_application(self),
            None => self.state.lock().wake_application(),
        }
    }

    /// Makes the readers compare the records that they are reading with the state.
    pub(super) fn change_from_outside(&self) {
        self.outside.fetch_add(1, Ordering::Release);
    }

    /// Number of changes by handles.
    #[inline]
    pub(super) fn outside(&self) -> u64 {
        self.outside.load(Ordering::Acquire)
    }

    /// Fetches a partition again from the application's position, after a backoff.
    pub(super) fn fetch_again(&self, state: &mut State, at: &TopicPartition) {
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        state.buffer.clear(&mut assigned.queue);
        assigned.halted = false;
        self.pause(assigned, self.pauses());
        assigned.position.rewind(&mut state.versions);
        state.touch(at);
    }
}

impl Listener for Shared {
    fn changed(&self, _: &Arc<Snapshot>, topics: &[Arc<str>]) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        let snapshot = self.metadata.snapshot();
        let mut gone = Vec::new();
        for topic in topics {
            let first = TopicPartition { topic: topic.clone(), partition: i32::MIN };
            let affected: Vec<_> = state
                .partitions
                .range(first..)
                .take_while(|(at, _)| at.topic == *topic)
                .map(|(at, _)| at.clone())
                .collect();
            if !affected.is_empty() && snapshot.topic(topic).is_none() {
                gone.push(topic.clone());
            }
            for at in &affected {
                self.route(&mut state, &snapshot, at);
            }
        }
        drop(state);
        for topic in gone {
            self.watch_unknown(topic);
        }
        if let Some(group) = &self.group
            && topics.iter().any(|topic| group.follows(topic))
        {
            group.look_at_topics(&snapshot);
        }
    }

    fn uses(&self, topic: &str) -> bool {
        let first = TopicPartition { topic: topic.into(), partition: i32::MIN };
        let state = self.state.lock();
        let next = state.partitions.range(first..).next();
        let assigned = next.is_some_and(|(at, _)| *at.topic == *topic);
        drop(state);
        assigned || self.group.as_ref().is_some_and(|group| group.follows(topic))
    }

    fn lacks(&self, snapshot: &Snapshot, topic: &str) -> bool {
        let Some(known) = snapshot.topic(topic) else { return false };
        let count = i32::try_from(known.leaders.len()).unwrap_or(i32::MAX);
        let first = TopicPartition { topic: topic.into(), partition: count };
        let state = self.state.lock();
        let next = state.partitions.range(first..).next();
        next.is_some_and(|(at, _)| *at.topic == *topic)
    }

    /// Assigned topics are in use, and the others have no state here.
    fn expired(&self, _: &[Arc<str>]) {}

    fn tidy(&self) {}

    fn runtime_ended(&self) {
        if let Some(group) = &self.group {
            group.cut_off();
        }
        let mut state = self.state.lock();
        state.cut_off = true;
        state.partitions.values_mut().for_each(|assigned| assigned.seat.wake());
        let waker = state.take_waker();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// Makes the partition's lane look at it before its next request, and the validator if its position needs that.
    pub(super) fn touch(&mut self, at: &TopicPartition) {
        let Some(assigned) = self.partitions.get(at) else { return };
        let node = assigned.lane;
        if assigned.position.validation().is_some() {
            self.unvalidated.insert(at.clone());
            self.validator.notify_one();
        }
        if let Some(lane) = node.and_then(|node| self.lanes.get_mut(&node)) {
            lane.dirty.insert(at.clone());
            lane.signal.wake.notify_one();
        }
    }

    /// Makes every lane look at the buffer again.
    pub(super) fn wake_lanes(&self) {
        self.lanes.values().for_each(|lane| lane.signal.wake.notify_one());
    }

    fn leave_lane(&mut self, at: &TopicPartition) {
        let Some(assigned) = self.partitions.get_mut(at) else { return };
        let Some(node) = assigned.lane.take() else { return };
        if let Some(lane) = self.lanes.get_mut(&node) {
            lane.partitions -= 1;
            lane.dirty.insert(at.clone());
            lane.signal.wake.notify_one();
        }
    }

    /// Appends records to the partition's buffer.
    pub(super) fn push(&mut self, cursor: Cursor, park_limit: usize) {
        let Some(assigned) = self.partitions.get_mut(&cursor.at) else { return };
        if assigned.paused {
            let at = cursor.at.clone();
            self.park(&at, None, Some(cursor), park_limit);
            return;
        }
        let at = cursor.at.clone();
        self.buffer.push(&at, &mut assigned.queue, Chunk::Records(cursor));
        assigned.seat.wake();
    }

    /// Appends a failure to the partition's buffer, and stops fetching until the application has seen it.
    pub(super) fn fail(&mut self, at: &TopicPartition, error: Error) {
        let Some(assigned) = self.partitions.get_mut(at) else { return };
        assigned.halted = true;
        let version = assigned.position.version();
        self.buffer.push(at, &mut assigned.queue, Chunk::Failure { version, error });
        assigned.seat.wake();
        self.wake_application();
    }

    /// Makes the next poll return the error. Only the first pending error is kept.
    pub(super) fn report(&mut self, error: Error) {
        if self.errors.is_empty() {
            self.errors.push_back(error);
        }
    }

    /// Takes an error of no place in the buffer.
    pub(super) fn next_error(&mut self) -> Option<Error> {
        let unplaced = |at: TopicPartition| out_of_range(&at, -1);
        self.errors.pop_front().or_else(|| self.unplaced.pop_first().map(unplaced))
    }

    /// Makes the next poll report that the partition has no position.
    pub(super) fn unplaced(&mut self, at: &TopicPartition) {
        self.unplaced.insert(at.clone());
        self.wake_application();
    }

    pub(super) fn wake_application(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ends all tasks. Returns those that still have requests to send to their brokers.
    pub(super) fn close(&mut self) -> Vec<JoinHandle<()>> {
        self.closed = true;
        self.buffer = Buffer::default();
        self.partitions.values_mut().for_each(|assigned| assigned.seat.wake());
        self.partitions.clear();
        for watcher in self.watchers.drain(..) {
            watcher.abort();
        }
        let lanes = self.lanes.values_mut();
        lanes
            .filter_map(|lane| {
                lane.signal.wake.notify_one();
                lane.task.take()
            })
            .collect()
    }

    /// Takes the application's waker, to be woken after the lock is released.
    pub(super) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Drops a partition's buffered records, which are obsolete.
    pub(super) fn drop_buffered(&mut self, at: &TopicPartition) {
        if let Some(assigned) = self.partitions.get_mut(at) {
            self.buffer.clear(&mut assigned.queue);
            assigned.halted = false;
        }
    }
}

impl Assigned {
    fn new(position: Position) -> Self {
        Self {
            position,
            rewound: None,
            committed: None,
            topic_id: Uuid::ZERO,
            lane: None,
            preferred: None,
            paused: false,
            halted: false,
            failures: 0,
            refused_since: None,
            retry_at: None,
            high_watermark: None,
            end: None,
            reported_missing: false,
            queue: Queue::default(),
            seat: Seat::default(),
            held: Arc::default(),
        }
    }
}

pub(super) fn out_of_range(at: &TopicPartition, offset: i64) -> Error {
    Error::OffsetOutOfRange { topic: at.topic.clone(), partition: at.partition, offset }
}

fn truncated(at: &TopicPartition, truncation: Truncation) -> Error {
    let Truncation { at: lost, diverges } = truncation;
    Error::LogTruncated {
        topic: at.topic.clone(),
        partition: at.partition,
        offset: lost.offset,
        leader_epoch: lost.epoch,
        divergent_offset: diverges.map(|spot| spot.offset),
        divergent_epoch: diverges.map(|spot| spot.epoch),
    }
}

/// The error for a fetch or a lookup that the broker refused.
pub(super) fn refused(at: &TopicPartition, code: ErrorCode) -> Error {
    super::lookup::partition_error(at, code)
}
