//! A lane to a broker: a connection and the partitions with batches for it. A broker has a main lane and a side lane
//! ([`Branch`]).
//!
//! A lane drives a [`Link`], which decides what is sent and when something else must happen. The lane has the socket,
//! the partitions' locks and the bytes.
//!
//! Any task that holds the link's lock may build and write a request. The caller writes to an idle socket itself,
//! which saves a task switch. The driver writes after every response, timer and wake-up.

use std::{
    collections::BTreeSet,
    future::poll_fn,
    io,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    time::{Duration, Instant as StdInstant},
};

use curtail_net::Socket;
use curtail_proto::{
    accumulator::{Batch, Branch, Readiness},
    link::{self, Carried, Entry, Event, Link, OutOfStep, Reason, Settings, State, Ticket},
    metadata::Leader,
    path::{AtomicTrouble, Bounds, Gate, Path, Suspicion},
    plant::{Plant, planted},
};
use curtail_wire::Uuid;
use tokio::{sync::Notify, time::Instant};

mod collect;
#[cfg(test)]
pub(in crate::producer) mod tests;
mod wire;

use self::wire::Wire;
use super::{
    delivery::Completion,
    partition::Partition,
    shared::Shared,
    sync::LinkGuard,
    trace,
    transaction::Stray,
    turnstile::{Left, Lists, Turnstile},
    worklist::{Effect, Effects},
};
use crate::{ProducerConfig, config::Acks, metrics::BrokerStats, span::Span};

/// How long the connection of a side lane stays open without a request.
const QUIET: Duration = Duration::from_secs(10);

/// A lane to a broker.
pub(super) struct Lane {
    pub(super) broker: i32,
    pub(super) branch: Branch,
    /// The main lane to the broker.
    main: Weak<Lane>,
    /// The side lane to the broker, unless this is it; `None` without `acks=all`.
    side: Option<Arc<Lane>>,
    /// The published part of the broker's model, for readers without a lock.
    pub(super) gate: Arc<Gate>,
    /// The broker's trouble at the last check; see [`Shared::notice`].
    pub(super) seen: AtomicTrouble,
    /// Creation of the lane, counted from the producer's start.
    opened: Duration,
    shared: Weak<Shared>,
    bounds: Bounds,
    pub(super) stats: Arc<BrokerStats>,
    turnstile: Turnstile<Entry<Arc<Partition>>, Line>,
    /// Notified when partitions move to this broker, so that it is dialled without a backoff.
    expected: Notify,
    /// Whether the driver waits for work because the connection was closed as idle.
    is_unused: AtomicBool,
    /// Set when a batch was refused, its partition is led elsewhere, and other batches of it are still in flight.
    train_left: AtomicBool,
}

/// The machine of a lane.
pub(super) type LaneLink = Link<Arc<Partition>, Sent, Envelope>;

/// The machine that decides, and the connection, behind the link's lock.
pub(super) struct Line {
    pub(super) link: LaneLink,
    /// `None` while not connected.
    pub(super) wire: Option<Box<Wire>>,
}

impl Lists<Entry<Arc<Partition>>> for Line {
    fn add_ready(&mut self, entry: Entry<Arc<Partition>>) {
        self.link.handle_work(entry, Readiness::Now);
    }

    fn add_timed(&mut self, at: StdInstant, entry: Entry<Arc<Partition>>) {
        self.link.handle_work(entry, Readiness::At(at));
    }

    fn next_timed(&self) -> Option<StdInstant> {
        self.link.next_timed()
    }
}

/// A suspicion to investigate.
pub(super) struct Suspected {
    /// Topics of the in-flight batches.
    pub(super) topics: BTreeSet<Arc<str>>,
    /// Partitions of the late request.
    pub(super) oldest: Vec<Arc<Partition>>,
    /// When the late request was written.
    pub(super) written: StdInstant,
    /// Whether EndTxn waits for the late request.
    pub(super) has_stray: bool,
    /// Whether the suspicion has just begun.
    pub(super) is_new: bool,
    /// Limit for the broker's response time.
    pub(super) limit: Duration,
}

/// A produce request.
pub(super) type Request = link::Request<Sent, Envelope>;

/// What the lane keeps with a request.
pub(super) struct Envelope {
    /// Version of the request and its response.
    pub(super) version: i16,
    /// Makes EndTxn wait, if batches of a transaction expired in this request.
    stray: Option<Stray>,
    pub(super) span: Span,
}

/// A batch of a request.
pub(super) struct Sent {
    /// Metrics of the receiving broker.
    pub(super) stats: Arc<BrokerStats>,
    pub(super) partition: Arc<Partition>,
    pub(super) batch: Batch<Completion>,
    pub(super) topic_id: Uuid,
    /// The receiving leader.
    pub(super) leader: Leader,
}

impl Sent {
    /// The partition's name, for errors.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.partition.topic, self.partition.index)
    }
}

impl Carried for Sent {
    fn created(&self) -> StdInstant {
        self.batch.created
    }

    fn bytes(&self) -> usize {
        self.batch.payload().len()
    }

    fn reserved(&self) -> usize {
        self.batch.completion.reserved()
    }

    fn record_bytes(&self) -> usize {
        self.batch.completion.record_bytes()
    }
}

/// Result of a turn of [`Lane::pump`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    /// Nothing more can be sent now: no batch is ready, or too many requests are in flight.
    Done,
    /// The socket is full.
    Blocked,
}

/// Sent batches past `delivery.timeout.ms`.
#[derive(Default)]
pub(super) struct Overdue {
    /// Each with whether bytes of this attempt were written, so that the broker may have it.
    pub(super) batches: Vec<(Sent, bool)>,
    /// Expiry of the oldest remaining batch.
    pub(super) next: Option<StdInstant>,
}

/// Whether a partition has a batch that need not wait for more records.
fn has_complete(partition: &Arc<Partition>) -> bool {
    partition.state.lock().queue.has_complete()
}

/// The partitions of in-flight batches that a refusal would not set free.
fn fixed(link: &LaneLink, shared: &Shared) -> Vec<Arc<Partition>> {
    let in_flight = link.in_flight().flat_map(|request| &request.batches);
    let fixed = in_flight.filter(|sent| !shared.moves_if_refused(&sent.batch));
    fixed.map(|sent| sent.partition.clone()).collect()
}

impl Lane {
    /// The main lane to a broker, and its side lane if batches `separate`.
    pub(super) fn new(
        broker: i32,
        separate: bool,
        shared: &Weak<Shared>,
        config: &ProducerConfig,
        stats: &Arc<BrokerStats>,
        began: Instant,
    ) -> Arc<Self> {
        // Without responses there is no pace to measure.
        let is_bounded = !config.latency_target.is_zero() && config.acks != Acks::None;
        let bounds = Bounds {
            target: is_bounded.then_some(config.latency_target),
            batch: config.largest_batch(),
            request: config.max_request_size,
            in_flight: config.max_in_flight,
            suspicion: config.suspicion.then(|| {
                let (floor, ceiling) = (config.suspicion_min, config.suspicion_max);
                Suspicion::of_produce(config.suspicion_multiple, floor, ceiling)
            }),
        };
        let lane = |branch: Branch, main: &Weak<Self>, side: Option<Arc<Self>>, bounds: Bounds| {
            let gate = Arc::new(Gate::new(bounds.target.and(Some(bounds.request))));
            let settings = Settings {
                bounds,
                request_timeout: config.common.request_timeout,
                delivery_timeout: config.delivery_timeout,
                has_responses: config.acks != Acks::None,
                closes_after: match branch {
                    Branch::Main => config.common.connections_max_idle,
                    Branch::Side => Some(QUIET),
                },
                began: began.into_std(),
            };
            let line = Line { link: Link::new(settings, gate.clone()), wire: None };
            Self {
                broker,
                branch,
                main: main.clone(),
                side,
                gate,
                seen: AtomicTrouble::default(),
                opened: Instant::now().saturating_duration_since(began),
                shared: shared.clone(),
                bounds,
                stats: stats.clone(),
                turnstile: Turnstile::new(line),
                expected: Notify::new(),
                is_unused: AtomicBool::new(false),
                train_left: AtomicBool::new(false),
            }
        };
        Arc::new_cyclic(|main| {
            // Followers that turn to a new leader do not show the broker's pace.
            let unbounded = Bounds { target: None, ..bounds };
            let side = separate.then(|| Arc::new(lane(Branch::Side, main, None, unbounded)));
            lane(Branch::Main, main, side, bounds)
        })
    }

    /// The main lane to this broker; `None` once the producer has dropped it.
    pub(super) fn main(&self) -> Option<Arc<Self>> {
        self.main.upgrade()
    }

    /// The side lane to this broker, if this is the main lane and there is one.
    pub(super) fn side(&self) -> Option<&Arc<Self>> {
        self.side.as_ref()
    }

    /// Queues a partition that has taken a seat here. The caller holds no lock except that of the lanes.
    pub(super) fn submit(&self, partition: &Arc<Partition>, ticket: Ticket, readiness: Readiness) {
        let entry = Entry { partition: partition.clone(), ticket };
        match readiness {
            Readiness::At(at) if planted(Plant::DriverNotWoken) => {
                self.turnstile.add_timed(at, entry);
            }
            Readiness::At(at) => self.turnstile.push_timed(at, entry),
            Readiness::Now => {
                let shared = self.shared.upgrade();
                let mut effects = Effects::default();
                self.turnstile.push(entry, |line| match (line.wire.is_some(), &shared) {
                    (true, Some(shared)) => self.send_if_idle(line, shared, &mut effects),
                    _ if planted(Plant::DriverNotWoken) => Left::Nothing,
                    _ => Left::ToDriver,
                });
                if let Some(shared) = shared {
                    effects.apply(&shared);
                }
            }
        }
    }

    /// Sends from the caller's task if the connection is idle. Otherwise leaves it to the driver.
    fn send_if_idle(&self, line: &mut Line, shared: &Shared, effects: &mut Effects) -> Left {
        if line.link.is_exhausted() {
            // The next response makes the driver look into the inbox.
            return Left::Nothing;
        }
        if !line.link.is_idle() && !shared.policy.linger.is_zero() {
            let now = Instant::now().into_std();
            self.receive(line, now);
            let waits = line.link.waits_for_response(now, has_complete);
            return if waits { Left::Nothing } else { Left::ToDriver };
        }
        let outcome = self.pump(line, shared, effects);
        // The driver's timer may be set for later than this turn's deadlines: a response to wait for, or a partition
        // that must back off.
        let next = self.next_deadline(line);
        let is_armed = line.wire.as_ref().is_some_and(|wire| wire.armed.covers(next));
        if is_armed && matches!(outcome, Ok(Pumped::Done)) { Left::Nothing } else { Left::ToDriver }
    }

    /// Runs [`Self::pump`] for the driver.
    pub(super) fn transmit(&self, shared: &Shared) -> io::Result<Pumped> {
        let mut effects = Effects::default();
        let outcome = self.pump(&mut self.line(), shared, &mut effects);
        effects.apply(shared);
        outcome
    }

    /// Builds and writes requests until nothing is ready, too many are in flight, or the socket is full. The caller
    /// applies the effects after it has released the link.
    fn pump(&self, line: &mut Line, shared: &Shared, effects: &mut Effects) -> io::Result<Pumped> {
        loop {
            let Line { link, wire: Some(wire) } = &mut *line else { return Ok(Pumped::Done) };
            if wire.flush(link)? == Pumped::Blocked {
                return Ok(Pumped::Blocked);
            }
            self.written(link, effects);
            if link.is_exhausted() {
                return Ok(Pumped::Done);
            }
            let now = Instant::now();
            self.receive(line, now.into_std());
            let Line { link, wire: Some(wire) } = &mut *line else { return Ok(Pumped::Done) };
            let Some(permit) = link.poll_transmit(now.into_std(), has_complete) else {
                return Ok(Pumped::Done);
            };
            let batches = self.collect(link, shared, permit, now.into_std(), effects);
            if batches.is_empty() {
                return Ok(Pumped::Done);
            }
            self.count_taken(&batches, now);
            let (envelope, bytes) = wire.encode(link, shared, &batches);
            self.stats.request_built(bytes);
            trace::sent(self, link, &batches);
            link.handle_sent(batches, envelope, now.into_std());
        }
    }

    /// Moves new work to the link's lists, and due partitions to its ready list.
    fn receive(&self, line: &mut Line, now: StdInstant) {
        self.turnstile.receive(line);
        while let Some(entry) = line.link.next_due(now) {
            let counts = entry.partition.state.lock().seat.falls_due(entry.ticket);
            if counts {
                line.link.handle_work(entry, Readiness::Now);
            }
        }
    }

    fn count_taken(&self, batches: &[Sent], now: Instant) {
        let first = |sent: &&Sent| sent.batch.attempts == 1;
        for Sent { batch, .. } in batches.iter().filter(first) {
            let queued = now.into_std().saturating_duration_since(batch.created);
            self.stats.batch_taken(queued, batch.payload().len(), batch.records);
        }
    }

    /// Records that the socket has accepted all bytes of a request.
    fn written(&self, link: &mut LaneLink, effects: &mut Effects) {
        let Some(written) = link.handle_written(|| Instant::now().into_std()) else { return };
        if self.stats.stamps() {
            self.stats.drained(Instant::from_std(written.built).elapsed());
        }
        if let Some(request) = written.unanswered {
            effects.push(Effect::Written(request));
        }
    }

    /// Removes batches past `delivery.timeout.ms`. If the socket has accepted no byte of a request, the request is
    /// rebuilt without them.
    pub(super) fn take_overdue(&self, shared: &Shared, now: StdInstant) -> Overdue {
        let mut overdue = Overdue::default();
        let mut line = self.line();
        let Line { link, wire: Some(wire) } = &mut *line else { return overdue };
        let withdrawn = link.handle_expiry(now, |envelope| {
            if envelope.stray.is_none() {
                envelope.stray = shared.identity.control().map(|control| control.strays.count());
            }
        });
        let is_withdrawn = withdrawn.is_some();
        if let Some(withdrawn) = withdrawn {
            wire.drop_unsent();
            if !withdrawn.batches.is_empty() {
                let (envelope, _) = wire.encode(link, shared, &withdrawn.batches);
                trace::sent(self, link, &withdrawn.batches);
                link.handle_sent_again(withdrawn, envelope);
            }
        }
        while let Some(event) = link.poll_event() {
            if let Event::Expired { batch, is_begun } = event {
                overdue.batches.push((batch, is_begun));
            }
        }
        overdue.next = link.next_expiry();
        drop(line);
        if is_withdrawn {
            // Another request may fit now.
            self.wake();
        }
        overdue
    }

    /// Expected time until a record added now is acknowledged. `now` counts from the producer's start.
    pub(super) fn expected_wait(&self, now: Duration) -> Duration {
        let usual = self.gate.likely();
        // A broker with work that has never responded must not look like the fastest one.
        let untried = || self.gate.is_busy().then(|| now.saturating_sub(self.opened));
        self.gate.expected_wait(usual.or_else(untried), now)
    }

    /// Makes the driver send what lingers, because a sender waits for room.
    pub(super) fn hurry(&self) {
        // Otherwise the next response makes it look.
        if self.gate.is_idle() {
            self.wake();
        }
    }

    /// Number of in-flight requests.
    pub(super) fn requests_in_flight(&self) -> usize {
        self.line().link.in_flight().len()
    }

    /// The link and its connection, for the driver.
    pub(super) fn line(&self) -> LinkGuard<'_, Line> {
        self.turnstile.link()
    }

    /// Whether the connection is open.
    pub(super) fn is_connected(&self) -> bool {
        self.line().wire.is_some()
    }

    /// Whether the responses to come are those of a renewal of the SASL session.
    pub(super) fn is_renewing(&self) -> bool {
        let line = self.line();
        matches!(line.link.state(), State::Held { .. }) && line.link.in_flight().len() == 0
    }

    /// Stores the driver's waker.
    pub(super) fn register(&self, waker: &Waker) {
        self.turnstile.register(waker);
    }

    pub(super) fn wake(&self) {
        self.turnstile.wake();
    }

    /// Time at which the driver must look at the lane again without another event.
    pub(super) fn next_deadline(&self, line: &mut Line) -> Option<StdInstant> {
        self.turnstile.receive(line);
        line.link.poll_timeout()
    }

    /// Puts a connection into use.
    pub(super) fn open(&self, socket: Arc<dyn Socket>, version: i16) {
        let mut line = self.line();
        line.link.handle_open(Instant::now().into_std());
        line.wire = Some(Box::new(Wire::new(socket, version)));
    }

    /// Records a response of this many bytes. Returns its request.
    pub(super) fn answered(
        &self,
        id: i32,
        bytes: usize,
        now: Instant,
    ) -> Result<Request, OutOfStep> {
        let request = self.line().link.handle_response(id, now.into_std())?;
        let took = now.saturating_duration_since(Instant::from_std(request.written));
        self.stats.answered(took, bytes);
        Ok(request)
    }

    /// The driver's timer has fired. Returns a suspicion to investigate, and the reason to close the connection.
    pub(super) fn timed_out(&self, now: StdInstant) -> (Option<Suspected>, Option<Reason>) {
        let mut line = self.line();
        self.turnstile.receive(&mut line);
        let Line { link, wire: Some(wire) } = &mut *line else { return (None, None) };
        wire.armed.fired();
        link.handle_timeout(now);
        let (mut suspected, mut dead) = (None, None);
        while let Some(event) = link.poll_event() {
            match event {
                Event::LookUp { is_new, limit } => {
                    let partitions = |request: &Request| -> Vec<Arc<Partition>> {
                        request.batches.iter().map(|sent| sent.partition.clone()).collect()
                    };
                    let topics = link.in_flight().flat_map(partitions);
                    let oldest = link.in_flight().next();
                    suspected = Some(Suspected {
                        topics: topics.map(|partition| partition.topic.clone()).collect(),
                        oldest: oldest.map(partitions).unwrap_or_default(),
                        written: oldest.map_or(now, |request| request.written),
                        has_stray: oldest.is_some_and(|request| request.envelope.stray.is_some()),
                        is_new,
                        limit,
                    });
                }
                Event::Dead(reason) => dead = Some(reason),
                Event::Expired { .. } | Event::Moved(_) => {}
            }
        }
        (suspected, dead)
    }

    /// Takes batches whose partition has another leader out of the in-flight requests, oldest first, if their responses
    /// are useless. Also returns the reason to close the connection. A batch without attempts left stays. So do those of
    /// a partition whose batches can all move once they are refused, the one that came back as well (decision 0107).
    pub(super) fn take_moved(&self, shared: &Shared) -> (Vec<Sent>, Option<Reason>) {
        let has_refused = self.train_left.swap(false, Ordering::Relaxed);
        let (mut moved, mut dead) = (Vec::new(), None);
        let mut line = self.line();
        let fixed = if has_refused { fixed(&line.link, shared) } else { Vec::new() };
        line.link.handle_moved(has_refused, |sent, is_suspect| {
            let state = sent.partition.state.lock();
            let elsewhere = state.lane.as_ref().is_some_and(|lane| lane.broker != self.broker);
            let waits_to_move = || {
                state.queue.next_moves_if_refused()
                    && !fixed.iter().any(|partition| Arc::ptr_eq(partition, &sent.partition))
            };
            let in_vain = is_suspect || (state.queue.is_regrouping() && !waits_to_move());
            elsewhere && in_vain && sent.batch.attempts <= shared.config.retries
        });
        while let Some(event) = line.link.poll_event() {
            match event {
                Event::Moved(sent) => moved.push(sent),
                Event::Dead(reason) => dead = Some(reason),
                Event::Expired { .. } | Event::LookUp { .. } => {}
            }
        }
        (moved, dead)
    }

    /// Limit for the first response of an untried broker, such as that to the handshake.
    pub(super) fn patience(&self) -> Duration {
        Path::new(self.bounds).limit().unwrap_or(Duration::MAX)
    }

    /// Marks the broker unreachable because it does not complete a handshake. Ignored if it has responded since. The
    /// driver then reports the change.
    pub(super) fn mark_unreachable(&self) {
        let line = self.line();
        if line.link.is_suspect() {
            self.gate.set_unreachable();
            drop(line);
            self.wake();
        }
    }

    /// Investigates a suspected broker at once, because another broker has turned out to be unreachable. This one may
    /// only wait for that one.
    pub(super) fn look_again(&self, now: StdInstant) {
        let is_suspect = self.line().link.look_again(now);
        if is_suspect {
            self.wake();
        }
    }

    /// Every partition that waits, to expire its batches.
    pub(super) fn waiting(&self) -> Vec<Arc<Partition>> {
        let mut line = self.line();
        self.turnstile.receive(&mut line);
        line.link.waiting().map(|entry| entry.partition.clone()).collect()
    }

    /// Takes out every partition that waits.
    pub(super) fn take_waiting(&self) -> impl Iterator<Item = Arc<Partition>> + use<> {
        let mut line = self.line();
        self.turnstile.receive(&mut line);
        line.link.take_waiting().map(|entry| entry.partition)
    }

    /// Makes the driver take back the batches of [`Self::take_moved`].
    pub(super) fn let_train_leave(&self) {
        self.train_left.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Ends the driver's backoff, so that it dials now.
    pub(super) fn expect_work(&self) {
        self.expected.notify_one();
    }

    /// Waits until a partition is queued, while there should be no connection.
    pub(super) async fn work_queued(&self) {
        poll_fn(|cx| {
            self.register(cx.waker());
            let mut line = self.line();
            self.turnstile.receive(&mut line);
            if line.link.waiting().next().is_none() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Whether the driver waits for work because the connection was closed as idle.
    pub(super) fn is_unused(&self) -> bool {
        self.is_unused.load(Ordering::Acquire)
    }

    /// The connection was closed as idle. Earlier calls of [`Self::expect_work`] do not open it again.
    pub(super) fn rest(&self) {
        pin!(self.expected.notified()).enable();
        self.is_unused.store(true, Ordering::Release);
    }

    /// Waits for a queued partition or for [`Self::expect_work`], if the connection was closed as idle.
    pub(super) async fn needed(&self) {
        if !self.is_unused() {
            return;
        }
        tokio::select! {
            biased;
            () = self.work_queued() => {}
            () = self.work_expected() => {}
        }
        self.is_unused.store(false, Ordering::Release);
    }

    /// Waits for [`Self::expect_work`].
    pub(super) async fn work_expected(&self) {
        self.expected.notified().await;
    }

    /// Closes the connection. Returns the in-flight requests, oldest first.
    pub(super) fn take_down(&self) -> Vec<Request> {
        let mut line = self.line();
        let wire = line.wire.take();
        let requests = line.link.handle_lost();
        drop(line);
        drop(wire);
        requests
    }

    /// Drops everything. Waiters learn that the producer is closed.
    pub(super) fn abandon(&self) {
        drop(self.take_down());
        drop(self.take_waiting());
    }
}
