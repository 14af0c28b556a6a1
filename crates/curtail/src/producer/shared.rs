//! State shared by the callers and the lanes of one producer.

use std::{
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use curtail_net::Env;
use curtail_proto::{
    accumulator::{Batch, BatchPolicy, Branch, ProducerIdentity, Readiness},
    backoff::Backoff,
    later::Later,
    metadata::{Leader, Snapshot, Topic},
    path::Trouble,
    plant::{Plant, planted},
};
use curtail_wire::{ErrorCode, cold::messages, compression::Codec};
use imbl::GenericHashMap;
use rustc_hash::FxBuildHasher;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};

use super::{
    deadlines::{self, Deadlines},
    delivery::BatchResult,
    driver,
    identity::Identity,
    interceptor,
    lane::Lane,
    lanes::{Lanes, Phase},
    mailbox::Sender,
    memory::Memory,
    partition::{Awake, Partition, PartitionState, StateGuard},
    ranked::{LANES, Ranked, RankedGuard},
    routing::{self, Reviewed, Routing},
    topic::{Form, TopicState},
    waiting::WaitingRoom,
};
use crate::{
    Error, ProducerConfig, Result,
    config::{Acks, LeaderDiscovery},
    metadata::{AutoCreate, Listener, MetadataHandle},
    metrics::{ProducerMetrics, ProducerStats},
    runtime::Runtime,
    telemetry::{self, Snapshot as Measured, Source},
};

/// Topics by name. Each record looks its topic up, so the hasher is a cheap one. It has no seed: every run of a simulation
/// must iterate in the same order.
pub(super) type Topics =
    GenericHashMap<Arc<str>, Arc<TopicState>, FxBuildHasher, imbl::shared_ptr::DefaultSharedPtr>;

/// The producer behind its handles.
pub(super) struct Shared {
    pub(super) config: ProducerConfig,
    pub(super) policy: BatchPolicy,
    /// The same without `linger.ms`, while a broker's window is full.
    pub(super) at_once: BatchPolicy,
    pub(super) env: Env,
    pub(super) metadata: MetadataHandle,
    pub(super) memory: Memory,
    pub(super) backoff: Backoff,
    pub(super) stats: ProducerStats,
    /// Mailbox of the interceptors' task, if there are interceptors.
    pub(super) outcomes: Option<Sender<interceptor::Outcome>>,
    pub(super) topics: ArcSwap<Topics>,
    pub(super) awake: Awake,
    /// Records for topics that are unknown so far.
    pub(super) room: WaitingRoom,
    /// Notified when a topic has opened.
    opened: Notify,
    /// The producer's runtime, for tasks started by callers outside it.
    pub(super) runtime: Runtime,
    pub(super) routing: Routing,
    pub(super) started: Instant,
    /// Serializes changes of `topics` and `lanes`.
    lanes: Ranked<Lanes, LANES>,
    pub(super) identity: Identity,
    /// Notified when a lane has connected or the identity has arrived.
    pub(super) progress: Notify,
    /// Deadlines of batches, wherever they wait.
    pub(super) deadlines: Deadlines,
    me: Weak<Shared>,
}

/// Most bytes of batches in a request: a frame's length has 31 bits, and its header and names need some room.
const LARGEST_REQUEST: usize = i32::MAX as usize - (64 << 20);

type LanesGuard<'a> = RankedGuard<'a, Lanes, LANES>;

impl Shared {
    pub(super) fn start(mut config: ProducerConfig, env: &Env) -> Result<Arc<Self>> {
        config.max_request_size = config.max_request_size.min(LARGEST_REQUEST);
        if config.acks == Acks::None && planted(Plant::NoExpiryWithoutAcks) {
            config.delivery_timeout = config.delivery_timeout.saturating_mul(1000);
        }
        let started = Instant::now();
        let policy = BatchPolicy {
            batch_size: config.batch_size,
            batch_max_size: config.batch_max_size,
            max_request_size: config.max_request_size,
            linger: config.linger,
            compression: config.compression,
            delivery_timeout: config.delivery_timeout,
            one_in_flight: config.max_in_flight == 1,
            moves_refused: config.move_refused_batches,
            began: started.into_std(),
        };
        let common = &config.common;
        let backoff = Backoff { initial: common.retry_backoff, max: common.retry_backoff_max };
        let idle = Some(config.metadata_max_idle);
        let metadata = MetadataHandle::start_expiring(env, common, AutoCreate::Allowed, idle)?;
        let interceptors = config.interceptors.clone();
        let application = metadata.runtime().of_application();
        let outcomes =
            (!interceptors.is_empty()).then(|| interceptor::start(interceptors, &application));
        let shared = Arc::new_cyclic(|me: &Weak<Self>| Self {
            at_once: BatchPolicy { linger: Duration::ZERO, ..policy.clone() },
            policy,
            env: env.clone(),
            memory: Memory::new(
                config.buffer_memory,
                config.batch_size,
                config.batch_max_size,
                config.broker_memory_percent,
                started,
            ),
            backoff,
            stats: ProducerStats::new(config.common.phase_stamps),
            outcomes: outcomes.clone(),
            topics: ArcSwap::default(),
            awake: Awake::default(),
            room: WaitingRoom::default(),
            opened: Notify::new(),
            runtime: metadata.runtime().clone(),
            routing: Routing::of(&config),
            started,
            lanes: Ranked::default(),
            identity: Identity::new(&config, metadata.runtime()),
            progress: Notify::new(),
            deadlines: Deadlines::new(started),
            me: me.clone(),
            metadata,
            config,
        });
        let listener: Weak<dyn Listener> = shared.me.clone();
        shared.metadata.listen(listener);
        let source: Weak<dyn Source> = shared.me.clone();
        shared.metadata.push_metrics(source);
        Ok(shared)
    }

    /// Returns the topic, if records may enter it.
    pub(super) fn open_topic(&self, name: &str) -> Option<Arc<TopicState>> {
        self.topics.load().get(name).filter(|topic| topic.door.is_open()).cloned()
    }

    /// Returns the topic once records may enter it. Fetches its metadata if needed.
    pub(super) async fn topic(&self, name: &str, deadline: Instant) -> Result<Arc<TopicState>> {
        loop {
            let mut opened = pin!(self.opened.notified());
            opened.as_mut().enable();
            if let Some(topic) = self.open_topic(name) {
                return Ok(topic);
            }
            if self.lanes.lock().phase == Phase::Closed {
                return Err(Error::Closed);
            }
            let known = self.metadata.topic(name, deadline).await?;
            let topic = self.adopt(&known)?;
            if topic.door.is_open() {
                return Ok(topic);
            }
            if timeout_at(deadline, opened).await.is_err() {
                let what = "the wait behind earlier records for buffer.memory (max.block.ms)";
                return Err(Error::Timeout { what, limit: self.config.max_block, last: None });
            }
        }
    }

    /// Opens a topic for which no record waits any longer, if it has metadata.
    pub(super) fn open(&self, name: &str) {
        if self.metadata.snapshot().topic(name).is_some()
            && let Some(topic) = self.topics.load().get(name)
        {
            topic.door.open();
        }
        self.opened.notify_waiters();
    }

    /// Creates or updates the producer's view of a topic, and keeps all its partitions. Takes time proportional to
    /// the topic's size. `known` counts only if the newest metadata lacks the topic.
    pub(super) fn adopt(&self, known: &Topic) -> Result<Arc<TopicState>> {
        let lanes = self.lanes.lock();
        // Loaded under the lock: an older snapshot cannot replace a newer one, whose changes are announced only once.
        let snapshot = self.metadata.snapshot();
        let topic = snapshot.topic(&known.name).map_or(known, |topic| topic);
        self.adopt_from(lanes, &snapshot, topic)
    }

    fn adopt_from(
        &self,
        mut lanes: LanesGuard<'_>,
        snapshot: &Snapshot,
        topic: &Topic,
    ) -> Result<Arc<TopicState>> {
        if lanes.phase == Phase::Closed {
            return Err(Error::Closed);
        }
        if lanes.phase == Phase::New {
            lanes.phase = Phase::Running;
            self.spawn_tasks(&mut lanes);
        }
        let topics = self.topics.load_full();
        let known = topics.get(&topic.name);
        let form = Form::of(topic, known.map(|known| known.form));
        if let Some(known) = known
            && known.form == form
        {
            let known = known.clone();
            self.rehome(&mut lanes, snapshot, &known);
            self.review(&lanes, snapshot, &known);
            self.admit(&known);
            return Ok(known);
        }
        let ever = known.map_or(0, |known| known.partitions.len());
        let partitions = (0..form.count.max(ever))
            .map(|index| match known.and_then(|known| known.partitions.get(index)) {
                Some(partition) if !planted(Plant::PartitionReplaced) => partition.clone(),
                _ => Partition::new(topic.name.clone(), index as i32, None),
            })
            .collect::<Box<[_]>>();
        let (stickiness, draw) = (self.config.batch_size, self.env.entropy.next_u64());
        let ratio = match known {
            Some(known) => known.ratio.clone(),
            None => (self.config.compression.codec != Codec::None).then(Arc::default),
        };
        let state = TopicState::new(topic.name.clone(), form, partitions, stickiness, ratio, draw);
        let state = Arc::new(state);
        // Published before the partitions receive their lanes, which send under the table's topic id. The topic
        // admits no records until they have.
        let mut next = (*topics).clone();
        next.insert(topic.name.clone(), state.clone());
        drop(topics);
        lanes.former.push(self.topics.swap(Arc::new(next)));
        self.rehome(&mut lanes, snapshot, &state);
        for partition in state.vanished() {
            partition.state.lock().set_last_error(Some(Error::UnknownPartition {
                topic: topic.name.clone(),
                partition: partition.index,
                partitions: form.count,
            }));
        }
        self.review(&lanes, snapshot, &state);
        self.admit(&state);
        self.progress.notify_waiters();
        Ok(state)
    }

    /// Opens a topic unless records wait for it.
    fn admit(&self, topic: &TopicState) {
        // No record may start to wait between the check for waiting records and the opening.
        let opens = self.room.while_still(&topic.name, |waited_for| {
            if !waited_for {
                topic.door.open();
            }
            !waited_for
        });
        // Only then: a call that waits behind those records adopts the topic, too, and would wake itself.
        if opens {
            self.opened.notify_waiters();
        }
    }

    /// Whether a new leader is asked at once, without waiting for the current backoff (KIP-951).
    pub(super) fn may_retry_at_once(&self) -> bool {
        self.config.leader_discovery != LeaderDiscovery::RefreshAndBackOff
    }

    /// Assigns every partition of the topic to its leader's lane.
    fn rehome(&self, lanes: &mut Lanes, snapshot: &Snapshot, topic: &TopicState) {
        let mut moved = false;
        let now = self.age(Instant::now());
        for partition in &topic.partitions {
            let leader = snapshot.leader(&topic.name, partition.index);
            let main = (leader.id >= 0 && snapshot.node(leader.id).is_some())
                .then(|| self.lane(lanes, leader.id));
            let mut state = partition.state.lock();
            let is_unproven = self.is_unproven(state.leader, leader);
            if is_unproven {
                state.mark_new();
            }
            // While its leader is the same, a partition on the side lane stays there.
            let stays = |lane: &&Arc<Lane>| !is_unproven && lane.broker == leader.id;
            let lane = main.map(|main| state.lane.as_ref().filter(stays).cloned().unwrap_or(main));
            let newer = leader.epoch > state.leader.epoch && leader.id >= 0;
            let elected = newer && self.may_retry_at_once();
            if elected {
                state.queue.leader_is_news();
            }
            state.leader = leader;
            let same = match (&state.lane, &lane) {
                (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                (None, None) => true,
                _ => false,
            };
            if same {
                if elected && state.seat.is_timed() && state.queue.has_complete() {
                    // The backoff has ended; the entry in the timed list no longer counts.
                    state.seat.leave();
                    resubmit(state, partition);
                }
                continue;
            }
            moved = true;
            if state.lane.is_some() {
                partition.standing.doubt(now);
            }
            if lane.is_some() && self.may_retry_at_once() {
                state.queue.leader_is_news();
            }
            if lane.is_some() && self.routing.policy.moves() {
                state.queue.leader_is_untried();
            }
            let regroups = state.queue.is_regrouping();
            let former = state.change_lane(lane.clone());
            let account = state.account();
            state.queue.waiting_mut().for_each(|completion| completion.charge_to(account));
            resubmit(state, partition);
            for lane in [lane.as_ref(), lane.as_ref().and_then(|lane| lane.side())] {
                lane.inspect(|lane| lane.expect_work());
            }
            let Some(former) = former else { continue };
            if regroups {
                self.train_has_left(&former);
            } else if !former.gate.is_fine() {
                // Batches at an unresponsive broker follow the leader; the driver moves them.
                former.wake();
            }
        }
        if moved {
            self.progress.notify_waiters();
        }
    }

    /// Whether a refusal before the append would allow the batch to go to another partition (decision 0107).
    pub(super) fn moves_if_refused<C>(&self, batch: &Batch<C>) -> bool {
        self.routing.policy.moves() && self.policy.moves_refused && batch.moves_if_refused()
    }

    /// Handles a batch that `former`, no longer the leader, has returned. Batches sent after it will be refused as
    /// well, and need not wait for that. Only the sequence numbers of an idempotent producer make that safe (decision
    /// 0014).
    fn train_has_left(&self, former: &Lane) {
        if self.config.idempotence {
            former.let_train_leave();
        }
    }

    /// [`Self::train_has_left`] for the lane to this broker. The caller holds no lock.
    pub(super) fn train_has_left_broker(&self, former: i32) {
        let lanes = self.lanes.lock();
        lanes.to(former).for_each(|lane| self.train_has_left(lane));
    }

    /// Re-evaluates which partitions of a topic keyless records may use.
    fn review(&self, lanes: &Lanes, snapshot: &Snapshot, topic: &TopicState) {
        let Reviewed { left, stuck } = routing::review(self, topic, snapshot, lanes);
        routing::evacuate(self, topic, &left);
        routing::reconsider(self, topic);
        for partition in stuck {
            resubmit(partition.state.lock(), &partition);
        }
    }

    /// Returns the partitions of a side lane to the main one, because it cannot connect: the broker may allow one
    /// connection only. Does nothing for a main lane. The caller holds no lock.
    pub(super) fn close_side(&self, lane: &Arc<Lane>) {
        if lane.branch == Branch::Main {
            return;
        }
        for partition in lane.take_waiting() {
            let mut state = partition.state.lock();
            if state.lane.as_ref().is_some_and(|own| Arc::ptr_eq(own, lane)) {
                state.rejoin();
                resubmit(state, &partition);
            }
        }
    }

    /// Re-routes keyless records if a broker's trouble has begun, ended or changed. Called by the lane's own driver
    /// only: two concurrent callers could each miss the change that the other has seen. The caller holds no lock.
    pub(super) fn notice(&self, lane: &Lane) {
        let trouble = lane.gate.trouble();
        if lane.seen.swap(trouble) == trouble {
            return;
        }
        let lanes = self.lanes.lock();
        let snapshot = self.metadata.snapshot();
        for topic in self.topics.load().values() {
            self.review(&lanes, &snapshot, topic);
        }
        if trouble == Trouble::Unreachable {
            let mut others: Vec<Arc<Lane>> = lanes.all().cloned().collect();
            drop(lanes);
            others.retain(|other| other.broker != lane.broker);
            let now = Instant::now().into_std();
            others.iter().for_each(|other| other.look_again(now));
        }
    }

    /// Returns a weak reference, for tasks that do not keep the producer alive.
    pub(super) fn me(&self) -> Weak<Self> {
        self.me.clone()
    }

    /// Whether a request to `leader` with batches of these partitions waits for an unreachable replica, while other
    /// partitions of the leader do not need that replica. The caller holds no lock.
    pub(super) fn is_stuck_behind_replica(
        &self,
        leader: i32,
        partitions: &[Arc<Partition>],
    ) -> bool {
        if !self.config.idempotence || !self.routing.policy.gives_up_what_waits() {
            return false;
        }
        let lanes = self.lanes.lock();
        let unreachable =
            |broker: &i32| *broker != leader && lanes.trouble(*broker) == Trouble::Unreachable;
        routing::is_stuck(self, leader, partitions, unreachable)
    }

    /// Moves keyless records elsewhere after a batch of a partition came back.
    pub(super) fn came_back(&self, partition: &Arc<Partition>) {
        if let Some(topic) = self.topics.load().get(&partition.topic) {
            routing::refused(topic, partition);
            routing::evacuate(self, topic, [partition]);
        }
    }

    /// Moves movable batches out of a partition whose last attempt failed.
    pub(super) fn evacuate(&self, partition: &Arc<Partition>) {
        if let Some(topic) = self.topics.load().get(&partition.topic) {
            routing::evacuate(self, topic, [partition]);
        }
    }

    /// Handles a partition that accepts records after refusals, or acknowledges for the first time under its leader.
    pub(super) fn reconsider(&self, partition: &Partition, is_first: bool) {
        if let Some(topic) = self.topics.load().get(&partition.topic) {
            if is_first && self.routing.policy.prefers_proven {
                routing::proved(self, topic, partition);
            }
            routing::reconsider(self, topic);
        }
    }

    /// Whether the leader is another one than before, and may acknowledge late.
    fn is_unproven(&self, former: Leader, leader: Leader) -> bool {
        let are_known = former.id >= 0 && leader.id >= 0;
        self.routing.policy.separates_new_leaders && are_known && leader.is_new_since(former)
    }

    /// The main lane to a broker.
    fn lane(&self, lanes: &mut Lanes, broker: i32) -> Arc<Lane> {
        if let Some(lane) = lanes.main(broker) {
            return lane.clone();
        }
        let (stats, separate) = (self.stats.broker(broker), self.routing.policy.separates);
        let main = Lane::new(broker, separate, &self.me, &self.config, &stats, self.started);
        self.memory.open(broker, main.gate.clone());
        for lane in [Some(&main), main.side()].into_iter().flatten() {
            let task = driver::run(lane.clone(), self.me.clone());
            lanes.add(lane.clone(), self.runtime.spawn(task).abort_handle());
        }
        main
    }

    fn spawn_tasks(&self, lanes: &mut Lanes) {
        let Some(me) = self.me.upgrade() else { return };
        if self.identity.is_awaited() {
            lanes.tasks.push(self.runtime.spawn(keep_identity(me.clone())).abort_handle());
        }
        lanes.tasks.push(self.runtime.spawn(deadlines::keep(me)).abort_handle());
    }

    /// Waits until every partition of the topics has a leader, all leaders are connected, and there is an identity if
    /// one is needed.
    pub(super) async fn ready_to_send(&self, names: &[&str]) {
        loop {
            let mut progress = pin!(self.progress.notified());
            progress.as_mut().enable();
            let topics = self.topics.load_full();
            let mut are_connected = true;
            for partition in
                names.iter().filter_map(|name| topics.get(*name)).flat_map(|t| t.current())
            {
                // The link's lock comes before the partition's.
                let lane = partition.state.lock().lane.clone();
                let main = lane.and_then(|lane| lane.main());
                are_connected &= main.is_some_and(|lane| {
                    if lane.is_unused() {
                        lane.expect_work();
                    }
                    lane.is_connected()
                });
            }
            if are_connected && !self.identity.is_awaited() {
                return;
            }
            drop(topics);
            progress.await;
        }
    }

    /// Records that a partition needs another producer id than this one.
    pub(super) fn ask_for_another_id(&self, spent: i64) {
        self.identity.is_spent(spent);
    }

    /// Seals all open batches. Returns the results to wait for.
    pub(super) fn seal_all(&self) -> Vec<Arc<BatchResult>> {
        let mut unresolved = Vec::new();
        for partition in self.topics.load().values().flat_map(|topic| topic.partitions.iter()) {
            let mut state = partition.state.lock();
            unresolved.extend(state.unresolved());
            state.queue.seal_now(&self.policy);
            resubmit(state, partition);
        }
        unresolved
    }

    /// Stops all tasks. Batches without an outcome fail with [`Error::Closed`].
    pub(super) fn stop(&self) {
        self.metadata.end_telemetry();
        let mut lanes = self.lanes.lock();
        lanes.phase = Phase::Closed;
        let stopped = lanes.take();
        for task in lanes.tasks.drain(..) {
            task.abort();
        }
        // A call that already has its partition may still append to it after this. That batch fails when the last
        // table is dropped.
        let former = std::mem::take(&mut lanes.former);
        drop(lanes);
        drop(former);
        self.memory.close();
        self.close_room();
        self.opened.notify_waiters();
        let topics = self.topics.swap(Arc::default());
        for partition in topics.values().flat_map(|topic| topic.partitions.iter()) {
            let mut state = partition.state.lock();
            state.lane = None;
            state.seat.leave();
            let abandoned = state.queue.abandon(&self.policy);
            drop(state);
            for batch in abandoned {
                let unknown = batch.outcome_unknown();
                batch.into_parts().1.fail(Error::Closed, unknown);
            }
        }
        for (lane, task) in stopped {
            task.abort();
            lane.abandon();
        }
    }

    /// Fails a partition's batches that are past `delivery.timeout.ms`, and makes the lane look at the rest. The
    /// caller holds no lock except that of the lanes.
    pub(super) fn expire(&self, partition: &Arc<Partition>, last: Option<&Error>) {
        let state = partition.state.lock();
        let last = last.or_else(|| state.last_error()).cloned();
        self.fail_older(partition, state, Instant::now(), &self.delivery_timeout(last.as_ref()));
        self.let_rest(partition);
    }

    /// Fails all batches of a partition that are not in flight, whatever their age.
    pub(super) fn refuse(&self, partition: &Arc<Partition>, cause: &Error) {
        let all = Instant::now().later(self.config.delivery_timeout);
        self.fail_older(partition, partition.state.lock(), all, cause);
        self.let_rest(partition);
    }

    /// Fails all batches that are not in flight.
    fn refuse_all(&self, cause: &Error) {
        for partition in self.topics.load().values().flat_map(|topic| topic.partitions.iter()) {
            self.refuse(partition, cause);
        }
    }

    /// Fails batches that are past `delivery.timeout.ms` at the time `at`.
    fn fail_older(
        &self,
        partition: &Arc<Partition>,
        mut state: StateGuard<'_>,
        at: Instant,
        error: &Error,
    ) {
        let expired = state.queue.expire(&self.policy, at.into_std());
        let mut lost = Vec::new();
        for batch in &expired {
            self.identity.batch_fails(batch, error);
            lost.extend(state.queue.fail(batch));
        }
        match expired.is_empty() {
            true => drop(state),
            // The rest may have waited for the expired batches.
            false => resubmit(state, partition),
        }
        for batch in expired.into_iter().chain(lost) {
            let unknown = batch.outcome_unknown();
            self.stats.record_errors.add(u64::from(batch.records));
            let (_, completion) = batch.into_parts();
            completion.fail(error.clone(), unknown);
        }
    }

    /// Lets an idle partition rest, if many partitions are not at rest. The caller holds no lock.
    pub(super) fn let_rest(&self, partition: &Partition) {
        if self.awake.are_many() {
            partition.rest();
        }
    }

    /// At the end of a transaction, fails all batches that are not in flight. Returns the results of those in flight.
    pub(super) fn give_up(&self, cause: &Error) -> Vec<Arc<BatchResult>> {
        let mut in_flight = Vec::new();
        for partition in self.topics.load().values().flat_map(|topic| topic.partitions.iter()) {
            let mut state = partition.state.lock();
            let unsent = state.queue.give_up(&self.policy);
            drop(state);
            for batch in unsent {
                // A batch that was sent before leaves a gap in its partition's sequence.
                if batch.producer().is_some() {
                    self.identity.batch_fails(&batch, cause);
                }
                self.stats.record_errors.add(u64::from(batch.records));
                let unknown = batch.outcome_unknown();
                let (payload, completion) = batch.into_parts();
                completion.fail(cause.clone(), unknown);
                self.memory.recycle(payload);
            }
            in_flight.extend(partition.state.lock().unresolved());
            self.let_rest(partition);
        }
        in_flight
    }

    /// Announces the deadline of a batch about to enter the queue of `state`.
    pub(super) fn keeps_deadline_of<C>(&self, batch: &Batch<C>, state: &PartitionState) {
        self.deadlines.announce(batch.created.later(self.policy.delivery_timeout), state);
    }

    /// Returns every lane.
    pub(super) fn all_lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.lock().all().cloned().collect()
    }

    pub(super) fn delivery_timeout(&self, last: Option<&Error>) -> Error {
        Error::Timeout {
            what: "delivery (delivery.timeout.ms)",
            limit: self.config.delivery_timeout,
            last: last.cloned().map(Arc::new),
        }
    }

    /// [`Self::adopt`] with metadata from no broker.
    #[cfg(test)]
    pub(super) fn adopt_snapshot(
        &self,
        snapshot: &Snapshot,
        topic: &Topic,
    ) -> Result<Arc<TopicState>> {
        self.adopt_from(self.lanes.lock(), snapshot, topic)
    }

    /// Returns a snapshot of the metrics, and of queued and in-flight bytes.
    pub(super) fn metrics(&self) -> ProducerMetrics {
        let taken = Instant::now();
        let mut brokers = self.stats.snapshot();
        for lane in self.all_lanes() {
            brokers.entry(lane.broker).or_default().requests_in_flight += lane.requests_in_flight();
        }
        let mut leaderless_bytes = 0;
        for partition in self.topics.load().values().flat_map(|topic| topic.partitions.iter()) {
            let state = partition.state.lock();
            match &state.lane {
                Some(lane) => {
                    brokers.entry(lane.broker).or_default().queue_bytes +=
                        state.queue.waiting_bytes();
                }
                None => leaderless_bytes += state.queue.waiting_bytes(),
            }
        }
        ProducerMetrics {
            client_id: self.config.common.client_id.clone(),
            taken,
            period: taken.duration_since(self.stats.started),
            buffer_total_bytes: self.config.buffer_memory,
            buffer_available_bytes: self.memory.available(),
            buffer_wait: self.stats.buffer_wait.snapshot(),
            window_wait: self.stats.window_wait.snapshot(),
            buffer_exhausted_total: self.stats.buffer_exhausted.get(),
            metadata_wait: self.stats.metadata_wait.snapshot(),
            flush_time: self.stats.flush_time.snapshot(),
            record_error_total: self.stats.record_errors.get(),
            leaderless_bytes,
            certificates_outdated: self.config.common.security.certificates_outdated().is_some(),
            brokers,
        }
    }
}

/// Hands a partition with records to send to its lane, unless it is in the ready list.
pub(super) fn resubmit(mut state: StateGuard<'_>, partition: &Arc<Partition>) {
    state.step_aside();
    if state.seat.is_ready() || state.queue.is_drained() {
        return;
    }
    let Some(lane) = state.lane.clone() else { return };
    let Some(ticket) = state.seat.take(Readiness::Now) else { return };
    drop(state);
    lane.submit(partition, ticket, Readiness::Now);
}

impl Listener for Shared {
    fn changed(&self, snapshot: &Arc<Snapshot>, topics: &[Arc<str>]) {
        let known = self.topics.load();
        for name in topics.iter().filter(|name| known.contains_key(&**name)) {
            if let Some(topic) = snapshot.topic(name) {
                // Fails only if the producer has closed, when nothing remains to update.
                let _ = self.adopt(topic);
            }
        }
    }

    fn uses(&self, name: &str) -> bool {
        if self.room.has(name) {
            return true;
        }
        let topics = self.topics.load();
        let Some(topic) = topics.get(name) else { return false };
        // Interceptors may report a batch's outcome after the partition settled the batch.
        topic.partitions.iter().for_each(|partition| self.let_rest(partition));
        let unsettled =
            |partition: &Arc<Partition>| partition.state.lock().unresolved().next().is_some();
        topic.door.was_used() || topic.partitions.iter().any(unsettled)
    }

    fn lacks(&self, snapshot: &Snapshot, name: &str) -> bool {
        let topics = self.topics.load();
        let (Some(topic), Some(known)) = (topics.get(name), snapshot.topic(name)) else {
            return false;
        };
        let hidden = topic.partitions.get(known.leaders.len()..).unwrap_or_default();
        hidden.iter().any(|partition| !partition.state.lock().queue.is_drained())
    }

    fn expired(&self, names: &[Arc<str>]) {
        let topics = self.topics.load();
        for topic in names.iter().filter_map(|name| topics.get(name)) {
            if !topic.door.close() {
                // Used at this moment.
                self.metadata.request_refresh(Some(&topic.name));
            }
        }
    }

    fn tidy(&self) {
        let unread = self.lanes.lock().former.unread();
        drop(unread);
    }

    fn runtime_ended(&self) {
        self.stop();
    }
}

impl Source for Shared {
    fn snapshot(&self) -> Measured {
        Measured::Producer(self.metrics().into())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = telemetry::common_attributes(&self.config.common);
        attributes.extend(self.config.transactional_id.clone().map(|id| ("transactional_id", id)));
        attributes
    }
}

/// Requests a producer id (KIP-98), and another one whenever a partition has exhausted its epochs. Ends when the
/// producer stops.
async fn keep_identity(shared: Arc<Shared>) {
    loop {
        obtain_identity(&shared).await;
        shared.identity.until_another_is_needed().await;
    }
}

/// Asks any broker until one returns a producer id.
async fn obtain_identity(shared: &Shared) {
    let mut failures = 0;
    loop {
        match init_producer_id(shared).await {
            Ok(identity) => {
                shared.identity.arrived(identity);
                shared.progress.notify_waiters();
                for partition in
                    shared.topics.load().values().flat_map(|topic| topic.partitions.iter())
                {
                    resubmit(partition.state.lock(), partition);
                }
                return;
            }
            Err(error) => {
                tracing::debug!(error = %error.report(), "no producer id yet");
                let lasts = matches!(
                    error,
                    Error::Broker { code: ErrorCode::CLUSTER_AUTHORIZATION_FAILED, .. }
                        | Error::UnsupportedVersion(_)
                );
                if lasts && shared.identity.is_awaited() {
                    // A permission or the API is missing: waiting does not help.
                    shared.refuse_all(&error);
                }
                failures += 1;
                sleep(shared.backoff.after(failures, shared.env.entropy.unit())).await;
            }
        }
    }
}

async fn init_producer_id(shared: &Shared) -> Result<ProducerIdentity> {
    let mut connection = shared.metadata.connect_any().await?;
    let answer: messages::InitProducerIdResponse = connection
        .request(0..=4, |_| {
            messages::InitProducerIdRequest::default()
                .with_transactional_id(None)
                .with_transaction_timeout_ms(i32::MAX)
                .with_producer_id((-1).into())
                .with_producer_epoch(-1)
        })
        .await?;
    match ErrorCode(answer.error_code) {
        ErrorCode::NONE => {
            Ok(ProducerIdentity { id: answer.producer_id.0, epoch: answer.producer_epoch })
        }
        code => Err(Error::Broker { what: crate::error::PRODUCER_ID.into(), code, message: None }),
    }
}

/// Returns the address of a broker, from the snapshot.
pub(super) fn address_of(shared: &Shared, broker: i32) -> Option<(String, u16)> {
    let snapshot = shared.metadata.snapshot();
    snapshot.node(broker).map(|node| (node.host.clone(), node.port))
}
