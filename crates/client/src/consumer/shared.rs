//! What the application's side and the lanes share, under one short lock: who is read where, and the buffer.
//!
//! Lock order: the metadata writer's lock, then [`Shared::state`], then the lists of wanted topics. Nothing that
//! takes the writer's lock is called with the state locked.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    sync::{Arc, Weak},
    task::Waker,
    time::Duration,
};

use curtail_net::Env;
use curtail_proto::{
    backoff::Backoff,
    metadata::Snapshot,
    position::{Misfit, Policy, Position, Version, Versions},
};
use curtail_wire::{ErrorCode, Uuid};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::Notify,
    task::{AbortHandle, JoinHandle},
    time::Instant,
};

use super::{
    cursor::{Cursor, LaneSignal},
    group::{Group, place},
    lane,
};
use crate::{
    ConsumerConfig, Error, Result, TopicPartition,
    config::OffsetReset,
    conn::Connection,
    metadata::{Listener, MetadataHandle},
};

/// The consumer, less what only its owner touches.
pub(super) struct Shared {
    pub(super) env: Env,
    pub(super) config: ConsumerConfig,
    pub(super) metadata: MetadataHandle,
    /// `None` without a `group.id`.
    pub(super) group: Option<Arc<Group>>,
    pub(super) state: Mutex<State>,
    /// Told when positions become known, or never will.
    pub(super) settled: Notify,
    runtime: Handle,
    me: Weak<Shared>,
}

/// Behind the lock.
#[derive(Default)]
pub(super) struct State {
    pub(super) versions: Versions,
    pub(super) partitions: BTreeMap<TopicPartition, Assigned>,
    /// By broker id. Lanes stay when their last partition leaves: it may come back.
    pub(super) lanes: BTreeMap<i32, LaneEntry>,
    buffer: VecDeque<Chunk>,
    /// Bytes of answers set aside because their partitions are paused.
    parked_bytes: usize,
    /// Partitions that nobody has given a position, told to the application if it polls all the same.
    unplaced: BTreeSet<TopicPartition>,
    /// Errors that belong to no place in the buffer.
    errors: VecDeque<Error>,
    waker: Option<Waker>,
    /// Tasks that wait for topics to appear or for offsets; they end with the consumer.
    watchers: Vec<AbortHandle>,
    pub(super) closed: bool,
}

/// A place in the buffer.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
pub(super) enum Chunk {
    /// Records to read.
    Records(Cursor),
    /// What the application is told after everything before it.
    Failure {
        /// The partition; it is fetched again after the application was told.
        at: TopicPartition,
        /// Version of its position.
        version: Version,
        /// What happened.
        error: Error,
    },
}

/// An assigned partition.
pub(super) struct Assigned {
    pub(super) position: Position,
    /// What the group is known to have committed.
    pub(super) committed: Option<i64>,
    pub(super) topic_id: Uuid,
    pub(super) leader_epoch: i32,
    /// The broker that it is read from, once known.
    pub(super) lane: Option<i32>,
    pub(super) paused: bool,
    /// A failure is in the buffer: nothing is fetched before the application has seen it.
    pub(super) halted: bool,
    pub(super) failures: u32,
    /// Nothing is asked before this moment.
    pub(super) retry_at: Option<Instant>,
    pub(super) high_watermark: Option<i64>,
    /// Whether the application was told that there is no such partition.
    reported_missing: bool,
    parked: VecDeque<Cursor>,
}

/// A lane as seen from outside.
pub(super) struct LaneEntry {
    pub(super) signal: Arc<LaneSignal>,
    /// Partitions to look at before the next request.
    pub(super) dirty: BTreeSet<TopicPartition>,
    /// How many partitions are read there.
    pub(super) partitions: usize,
    pub(super) task: Option<JoinHandle<()>>,
}

/// What the buffer has for the application.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
pub(super) enum Next {
    Cursor(Cursor),
    Failure(Error),
    Nothing,
}

impl Shared {
    pub(super) fn new(
        config: ConsumerConfig,
        env: Env,
        metadata: MetadataHandle,
        runtime: Handle,
    ) -> Arc<Self> {
        let shared = Arc::new_cyclic(|me| Self {
            env,
            group: Group::of(&config),
            config,
            metadata,
            state: Mutex::default(),
            settled: Notify::new(),
            runtime,
            me: me.clone(),
        });
        let listener: Weak<dyn Listener> = shared.me.clone();
        shared.metadata.listen(listener);
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
        let common = &self.config.common;
        Backoff { initial: common.retry_backoff, max: common.retry_backoff_max }
            .after(failures, self.env.entropy.unit())
    }

    /// Connects to a broker by its id.
    pub(super) async fn connect(&self, node: i32) -> Result<Connection> {
        let snapshot = self.metadata.snapshot();
        let Some(known) = snapshot.node(node) else {
            self.metadata.request_refresh(None);
            let broker = format!("broker {node}").into();
            return Err(Error::Connection { broker, reason: "its address is not known".into() });
        };
        Connection::open(&self.env, &self.config.common, &known.host, known.port).await
    }

    /// Replaces the assignment. Partitions that stay keep their positions and their records in the buffer.
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
            if let Some(assigned) = state.partitions.remove(at) {
                state.parked_bytes -= parked_bytes(&assigned);
            }
        }
        drop(state);
        // Who waits for a position of one of them waits in vain.
        self.settled.notify_waiters();
    }

    /// Adds partitions to the assignment, those that are not there yet. In a group they wait for their committed
    /// offsets, as the answer says; otherwise they begin where the policy says.
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

    /// Tells the application if the topic stays unknown for `default.api.timeout.ms`.
    fn watch_unknown(&self, topic: Arc<str>) {
        let me = self.me.clone();
        let metadata = self.metadata.clone();
        let deadline = Instant::now() + self.config.common.default_api_timeout;
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

    /// Brings a partition to its leader's lane. The snapshot is one loaded under the lock, so that an older one
    /// cannot win over a newer one.
    fn route(&self, state: &mut State, snapshot: &Snapshot, at: &TopicPartition) {
        let Some(topic) = snapshot.topic(&at.topic) else {
            state.leave_lane(at);
            return;
        };
        self.check_topic_id(state, topic.id, at);
        let leader = usize::try_from(at.partition).ok().and_then(|i| topic.leaders.get(i)).copied();
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        let Some(leader) = leader else {
            if !assigned.reported_missing {
                assigned.reported_missing = true;
                state.errors.push_back(Error::UnknownPartition {
                    topic: at.topic.clone(),
                    partition: at.partition,
                    partitions: topic.leaders.len(),
                });
                state.wake_application();
            }
            state.leave_lane(at);
            return;
        };
        if leader.id < 0 {
            state.leave_lane(at);
            self.metadata.request_refresh(Some(&at.topic));
            return;
        }
        let moved = assigned.lane != Some(leader.id);
        if !moved && assigned.leader_epoch == leader.epoch {
            return;
        }
        // A new leader, or a new term of the old one: what failed before says nothing about it.
        assigned.leader_epoch = leader.epoch;
        assigned.retry_at = None;
        if moved {
            state.leave_lane(at);
            self.enter_lane(state, leader.id, at);
        }
        state.touch(at);
    }

    fn check_topic_id(&self, state: &mut State, id: Uuid, at: &TopicPartition) {
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        if assigned.topic_id == id {
            return;
        }
        let recreated = assigned.topic_id != Uuid::ZERO && id != Uuid::ZERO;
        assigned.topic_id = id;
        if recreated
            && let Misfit::Unresolved(offset) =
                assigned.position.on_recreated(self.policy(), &mut state.versions)
        {
            state.fail(at, out_of_range(at, offset));
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

    /// Takes the next thing for the application out of the buffer. With `waker`, an empty buffer keeps it.
    /// Failures stay where they are unless they are wanted.
    pub(super) fn next(&self, failures: bool, waker: Option<&Waker>) -> Next {
        let mut state = self.state.lock();
        if failures && let Some(error) = state.errors.pop_front() {
            return Next::Failure(error);
        }
        if failures && let Some(at) = state.unplaced.pop_first() {
            return Next::Failure(out_of_range(&at, -1));
        }
        while let Some(chunk) = state.buffer.pop_front() {
            match chunk {
                Chunk::Records(cursor) => {
                    let Some(assigned) = state.partitions.get(&cursor.at) else { continue };
                    if assigned.position.version() != cursor.version {
                        continue;
                    }
                    if assigned.paused {
                        state.park(cursor, self.config.prefetch_bytes);
                        continue;
                    }
                    return Next::Cursor(cursor);
                }
                Chunk::Failure { at, version, error } => {
                    let Some(assigned) = state.partitions.get(&at) else { continue };
                    if assigned.position.version() != version {
                        continue;
                    }
                    if !failures {
                        state.buffer.push_front(Chunk::Failure { at, version, error });
                        return Next::Nothing;
                    }
                    self.fetch_again(&mut state, &at);
                    return Next::Failure(error);
                }
            }
        }
        if let Some(waker) = waker {
            match &mut state.waker {
                Some(kept) => kept.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        Next::Nothing
    }

    /// Fetches a partition again from where the application stands, after a pause.
    pub(super) fn fetch_again(&self, state: &mut State, at: &TopicPartition) {
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        assigned.halted = false;
        assigned.failures += 1;
        assigned.retry_at = Some(Instant::now() + self.backoff(assigned.failures));
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
            let count_of = |topic: &str| i32::try_from(snapshot.topic(topic)?.leaders.len()).ok();
            group.look_at_topics(count_of);
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

    /// What is assigned is in use; the rest leaves nothing behind.
    fn expired(&self, _: &[Arc<str>]) {}

    fn tidy(&self) {}
}

impl State {
    /// Has the partition's lane look at it before its next request.
    pub(super) fn touch(&mut self, at: &TopicPartition) {
        let node = self.partitions.get(at).and_then(|assigned| assigned.lane);
        if let Some(lane) = node.and_then(|node| self.lanes.get_mut(&node)) {
            lane.dirty.insert(at.clone());
            lane.signal.wake.notify_one();
        }
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

    pub(super) fn push(&mut self, cursor: Cursor) {
        self.buffer.push_back(Chunk::Records(cursor));
    }

    /// Puts a failure behind what the partition has in the buffer, and fetches nothing until it is seen.
    pub(super) fn fail(&mut self, at: &TopicPartition, error: Error) {
        let Some(assigned) = self.partitions.get_mut(at) else { return };
        assigned.halted = true;
        let version = assigned.position.version();
        self.buffer.push_back(Chunk::Failure { at: at.clone(), version, error });
        self.wake_application();
    }

    /// Has the next poll end with an error. One that is there already is not repeated.
    pub(super) fn report(&mut self, error: Error) {
        if self.errors.is_empty() {
            self.errors.push_back(error);
        }
    }

    /// Has the application told that nobody has given this partition a position.
    pub(super) fn unplaced(&mut self, at: &TopicPartition) {
        self.unplaced.insert(at.clone());
        self.wake_application();
    }

    /// Whether a poll is waiting for records.
    pub(super) fn is_application_waiting(&self) -> bool {
        self.waker.is_some()
    }

    pub(super) fn wake_application(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ends all tasks; gives those that still have something to say to their brokers.
    pub(super) fn close(&mut self) -> Vec<JoinHandle<()>> {
        self.closed = true;
        self.buffer.clear();
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

    /// Sets records of a paused partition aside. Beyond `limit` bytes they are given up and fetched again later,
    /// so that a paused partition neither holds up others nor takes memory without end.
    pub(super) fn park(&mut self, mut cursor: Cursor, limit: usize) {
        let Some(assigned) = self.partitions.get_mut(&cursor.at) else { return };
        if self.parked_bytes + cursor.bytes() > limit {
            self.parked_bytes -= parked_bytes(assigned);
            assigned.parked.clear();
            assigned.position.rewind(&mut self.versions);
            return;
        }
        cursor.release();
        self.parked_bytes += cursor.bytes();
        assigned.parked.push_back(cursor);
    }

    /// Pauses or resumes a partition.
    pub(super) fn set_paused(&mut self, at: &TopicPartition, paused: bool) {
        let Some(assigned) = self.partitions.get_mut(at) else { return };
        assigned.paused = paused;
        if !paused {
            self.parked_bytes -= parked_bytes(assigned);
            // Before everything fetched later, in the order of the log.
            for cursor in std::mem::take(&mut assigned.parked).into_iter().rev() {
                self.buffer.push_front(Chunk::Records(cursor));
            }
            self.wake_application();
        }
        self.touch(at);
    }

    /// Makes a jump: what is under way or buffered for the partition no longer counts.
    pub(super) fn jump(
        &mut self,
        at: &TopicPartition,
        jump: impl FnOnce(&mut Position, &mut Versions),
    ) -> Result<()> {
        let Some(assigned) = self.partitions.get_mut(at) else {
            return Err(Error::IllegalState("the partition is not assigned to this consumer"));
        };
        jump(&mut assigned.position, &mut self.versions);
        self.unplaced.remove(at);
        self.parked_bytes -= parked_bytes(assigned);
        assigned.parked.clear();
        assigned.halted = false;
        assigned.failures = 0;
        assigned.retry_at = None;
        self.touch(at);
        Ok(())
    }
}

impl Assigned {
    fn new(position: Position) -> Self {
        Self {
            position,
            committed: None,
            topic_id: Uuid::ZERO,
            leader_epoch: -1,
            lane: None,
            paused: false,
            halted: false,
            failures: 0,
            retry_at: None,
            high_watermark: None,
            reported_missing: false,
            parked: VecDeque::new(),
        }
    }
}

fn parked_bytes(assigned: &Assigned) -> usize {
    assigned.parked.iter().map(Cursor::bytes).sum()
}

pub(super) fn out_of_range(at: &TopicPartition, offset: i64) -> Error {
    Error::OffsetOutOfRange { topic: at.topic.clone(), partition: at.partition, offset }
}

/// A fetch or a lookup that the broker refused.
pub(super) fn refused(at: &TopicPartition, code: ErrorCode) -> Error {
    super::lookup::partition_error(at, code)
}
