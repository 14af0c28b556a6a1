//! A lane to a broker: a connection and the partitions with batches for it. A broker has a main lane and a side lane
//! ([`Branch`]).
//!
//! Any task that holds the link's lock may build and write a request. The caller writes to an idle socket itself,
//! which saves a task switch. The driver writes after every response, timer and wake-up.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::poll_fn,
    io::{self, IoSlice},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    time::{Duration, Instant as StdInstant},
};

use bytes::{Buf, Bytes, BytesMut};
use curtail_net::Socket;
use curtail_proto::{
    accumulator::{Batch, Branch, Readiness},
    inflight::InFlight,
    later::Later,
    metadata::Leader,
    path::{AtomicTrouble, Bounds, Gate, Path, SMALL, Suspicion, Trouble},
    plant::{Plant, planted},
};
use curtail_wire::{
    Uuid,
    produce::{OutBatch, RequestHead},
};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

mod collect;
#[cfg(test)]
mod tests;
mod unsent;
mod window;

pub(super) use self::unsent::{Overdue, Waits};
use self::{
    collect::{Collected, Trial},
    unsent::Unsent,
};
use super::{
    delivery::Completion,
    partition::{Partition, PartitionState, Place},
    shared::Shared,
    sync::LinkGuard,
    trace,
    transaction::Stray,
    turnstile::{Armed, Left, Turnstile, Work},
};
use crate::{Acks, ProducerConfig, metrics::BrokerStats};

/// Slices for one vectored write.
const MAX_SLICES: usize = 64;

/// Number of ready partitions checked for a complete batch.
const LOOK_AHEAD: usize = 8;

/// How long the connection of a side lane stays open without a request.
const QUIET: Duration = Duration::from_secs(10);

/// First pause between leader lookups while a broker is suspect; it doubles.
const FIRST_LOOKUP_PAUSE: Duration = Duration::from_millis(50);

/// Longest lookup pause, and so the worst-case delay before an election is noticed.
const LOOKUP_PAUSE_MAX: Duration = Duration::from_millis(200);

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
    /// The producer's start, the origin of times that are read without a lock.
    began: Instant,
    /// Creation of the lane, counted from `began`.
    opened: Duration,
    shared: Weak<Shared>,
    bounds: Bounds,
    pub(super) stats: Arc<BrokerStats>,
    turnstile: Turnstile<Arc<Partition>, Link>,
    /// The model of the broker from the previous connection, until the next one takes it. Innermost lock.
    former_path: Mutex<Option<Path>>,
    /// Notified when partitions move to this broker, so that it is dialled without a backoff.
    expected: Notify,
    /// Set when a batch was refused, its partition is led elsewhere, and other batches of it are still in flight.
    train_left: AtomicBool,
}

/// The connection from its writers' view.
pub(super) enum Link {
    /// Not connected.
    Down,
    /// Connected.
    Up(Box<Up>),
}

/// An open connection.
pub(super) struct Up {
    socket: Arc<dyn Socket>,
    pub(super) version: i16,
    pub(super) in_flight: InFlight<Request>,
    /// The model of the broker.
    path: Path,
    /// Bytes of requests that the socket has not accepted yet, in order.
    outgoing: VecDeque<Bytes>,
    /// The newest request, while bytes of it are in `outgoing`. The next request is built only after that.
    unsent: Option<Unsent>,
    glue: BytesMut,
    /// Bytes of `buffer.memory` held by in-flight requests.
    sent_bytes: usize,
    /// Whether sending is suspended while the connection's SASL session is renewed.
    is_held: bool,
    /// End of the broker's throttle time (KIP-219), before which nothing is sent.
    muted_until: Option<StdInstant>,
    /// Present while the oldest request is unusually late.
    late: Option<Late>,
    /// Time of the last response, or of the connection's start.
    quiet_since: StdInstant,
    /// When the driver's timer fires. A caller with an earlier deadline wakes the driver.
    pub(super) armed: Armed,
}

/// Progress of a suspicion.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// Number of leader lookups during the suspicion.
    lookups: u32,
    /// Time of the next lookup.
    again: StdInstant,
}

/// A suspicion to investigate.
pub(super) struct Suspected {
    /// Topics of the in-flight batches.
    pub(super) topics: BTreeSet<Arc<str>>,
    /// Partitions of the late request.
    pub(super) oldest: Vec<Arc<Partition>>,
    /// Whether the suspicion has just begun.
    pub(super) is_new: bool,
    /// Limit for the broker's response time.
    pub(super) limit: Duration,
}

/// An in-flight request.
pub(super) struct Request {
    pub(super) batches: Vec<Sent>,
    pub(super) written: Instant,
    /// Requests in flight when it was written.
    pub(super) ahead: usize,
    /// Version of the request and its response.
    pub(super) version: i16,
    /// Bytes of `buffer.memory` held by its batches.
    reserved: usize,
    /// Bytes of its records, as the gate counts them.
    record_bytes: usize,
    /// Its batches when it was built.
    width: usize,
    /// Whether it was small enough to measure the round trip.
    is_small: bool,
    /// Makes EndTxn wait, if batches of a transaction expired in this request.
    stray: Option<Stray>,
}

/// An in-flight batch.
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

/// Result of a turn of [`Lane::pump`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    /// Nothing more can be sent now: no batch is ready, or too many requests are in flight.
    Done,
    /// The socket is full.
    Blocked,
}

impl Up {
    pub(super) fn new(socket: Arc<dyn Socket>, version: i16, path: Path) -> Self {
        Self {
            socket,
            version,
            in_flight: InFlight::default(),
            path,
            outgoing: VecDeque::new(),
            unsent: None,
            glue: BytesMut::new(),
            is_held: false,
            muted_until: None,
            sent_bytes: 0,
            late: None,
            quiet_since: Instant::now().into_std(),
            armed: Armed::default(),
        }
    }

    /// Suspends sending for the broker's throttle time.
    pub(super) fn mute(&mut self, throttle: Duration, now: StdInstant) {
        if !throttle.is_zero() {
            self.muted_until = self.muted_until.max(Some(now.later(throttle)));
        }
    }

    /// Suspends sending. Returns whether the socket has accepted all requests.
    pub(super) fn hold(&mut self) -> bool {
        self.is_held = true;
        self.outgoing.is_empty()
    }

    /// Resumes sending.
    pub(super) fn release(&mut self) {
        self.is_held = false;
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    fn is_muted(&mut self) -> bool {
        let Some(until) = self.muted_until else { return false };
        if until <= Instant::now().into_std() {
            self.muted_until = None;
        }
        self.muted_until.is_some()
    }

    /// Whether the oldest request is unusually late.
    pub(super) fn is_late(&self) -> bool {
        self.late.is_some()
    }

    /// Whether no response can have an effect any longer.
    pub(super) fn awaits_nothing(&self) -> bool {
        self.in_flight.iter().all(|request| request.batches.is_empty())
    }

    /// Partitions of the oldest in-flight request.
    pub(super) fn oldest_partitions(&self) -> Vec<Arc<Partition>> {
        let batches = self.in_flight.oldest().into_iter().flat_map(|request| &request.batches);
        batches.map(|sent| sent.partition.clone()).collect()
    }

    /// Topics of the in-flight requests.
    pub(super) fn topics_in_flight(&self) -> BTreeSet<Arc<str>> {
        let batches = self.in_flight.iter().flat_map(|request| &request.batches);
        batches.map(|sent| sent.partition.topic.clone()).collect()
    }

    /// Time at which the connection is closed because a request takes too long: for its response, or for the socket.
    pub(super) fn next_deadline(&self) -> Option<StdInstant> {
        earlier(self.in_flight.next_deadline(), self.unsent.as_ref().and_then(Unsent::deadline))
    }

    /// Writes as much as the socket accepts.
    fn flush(&mut self) -> io::Result<Pumped> {
        while !self.outgoing.is_empty() {
            let slices = self.outgoing.len().min(MAX_SLICES);
            let mut io = [IoSlice::new(&[]); MAX_SLICES];
            for (slot, bytes) in io.iter_mut().zip(&self.outgoing) {
                *slot = IoSlice::new(bytes);
            }
            match self.socket.try_write_vectored(&io[..slices]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.consume(written),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(unsent) = &mut self.unsent {
                        unsent.was_blocked = true;
                    }
                    return Ok(Pumped::Blocked);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Pumped::Done)
    }

    fn consume(&mut self, mut written: usize) {
        if let Some(unsent) = &mut self.unsent {
            unsent.is_begun = true;
        }
        while let Some(front) = self.outgoing.front_mut() {
            if written < front.len() {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.outgoing.pop_front();
        }
    }
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
        let lane =
            |branch: Branch, main: &Weak<Self>, side: Option<Arc<Self>>, bounds: Bounds| Self {
                broker,
                branch,
                main: main.clone(),
                side,
                gate: Arc::new(Gate::new(bounds.target.and(Some(bounds.request)))),
                seen: AtomicTrouble::default(),
                began,
                opened: Instant::now().saturating_duration_since(began),
                shared: shared.clone(),
                bounds,
                stats: stats.clone(),
                turnstile: Turnstile::new(Link::Down),
                former_path: Mutex::default(),
                expected: Notify::new(),
                train_left: AtomicBool::new(false),
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

    /// Queues a partition on this lane's ready or timed list. The caller holds no lock.
    pub(super) fn submit(self: &Arc<Self>, partition: &Arc<Partition>, readiness: Readiness) {
        match readiness {
            Readiness::At(at) if planted(Plant::DriverNotWoken) => {
                self.turnstile.work().add_timed(at, partition.clone());
            }
            Readiness::At(at) => self.turnstile.push_timed(at, partition.clone()),
            Readiness::Now => {
                let shared = self.shared.upgrade();
                self.turnstile.push(partition.clone(), |link| match (link, &shared) {
                    (Link::Up(up), Some(shared)) => self.send_if_idle(up, shared),
                    _ if planted(Plant::DriverNotWoken) => Left::Nothing,
                    _ => Left::ToDriver,
                });
            }
        }
    }

    /// Sends from the caller's task if the connection is idle. Otherwise leaves it to the driver.
    fn send_if_idle(self: &Arc<Self>, up: &mut Up, shared: &Shared) -> Left {
        if up.in_flight.len() >= self.bounds.in_flight || up.is_held {
            // The next response makes the driver look at the ready list.
            return Left::Nothing;
        }
        let idle = up.outgoing.is_empty() && up.in_flight.is_empty();
        if !idle && !shared.policy.linger.is_zero() {
            let waits = self.waits_for_answer(up, Instant::now());
            return if waits { Left::Nothing } else { Left::ToDriver };
        }
        let outcome = self.pump(up, shared);
        // The driver's timer may be set for later than this turn's deadlines: a response to wait for, or a partition
        // that must back off.
        let is_armed = up.armed.covers(self.next_deadline(up));
        if is_armed && matches!(outcome, Ok(Pumped::Done)) { Left::Nothing } else { Left::ToDriver }
    }

    /// Builds and writes requests until nothing is ready, too many are in flight, or the socket is full.
    pub(super) fn pump(self: &Arc<Self>, up: &mut Up, shared: &Shared) -> io::Result<Pumped> {
        loop {
            if up.flush()? == Pumped::Blocked {
                return Ok(Pumped::Blocked);
            }
            if let Some(unsent) = up.unsent.take() {
                self.written(up, shared, unsent);
            }
            if up.in_flight.len() >= self.bounds.in_flight || up.is_held || up.is_muted() {
                return Ok(Pumped::Done);
            }
            let now = Instant::now();
            if self.waits_for_answer(up, now) {
                return Ok(Pumped::Done);
            }
            let most = self.next_request_limit(up, shared, now.into_std());
            let collected = self.collect(shared, now.into_std(), most);
            let Collected { batches, trials, overdue } = collected;
            let is_done = batches.is_empty() && overdue.is_empty();
            if !batches.is_empty() {
                self.enqueue(up, shared, batches, now);
            }
            for partition in overdue {
                shared.expire(&partition, None);
            }
            for Trial { partition, whole } in trials {
                whole.tell();
                shared.evacuate(&partition);
            }
            if is_done {
                return Ok(Pumped::Done);
            }
        }
    }

    /// Whether ready batches should wait for the response to an in-flight request, after which the driver looks
    /// again. They wait if none is complete and the broker is busy, or if that response is overdue.
    ///
    /// Also moves due partitions to the ready list: a due entry in the timed list would make the driver look again at
    /// once, indefinitely.
    fn waits_for_answer(self: &Arc<Self>, up: &Up, now: Instant) -> bool {
        let in_flight = up.in_flight.len();
        if in_flight == 0 {
            return false;
        }
        let mut work = self.turnstile.work();
        if !work.timed.is_empty() {
            work.promote(self, now.into_std());
        }
        if self.is_late(up, now) {
            return true;
        }
        let complete = |partition: &Arc<Partition>| partition.state.lock().queue.has_complete();
        // No record can join a batch while the window is full.
        let is_complete = self.gate.is_full() || work.ready.iter().take(LOOK_AHEAD).any(complete);
        !work.ready.is_empty() && !up.path.allows(in_flight, is_complete, now.into_std())
    }

    /// Whether a response is late, so that a request sent now would only wait in the broker.
    fn is_late(&self, up: &Up, now: Instant) -> bool {
        let Some(oldest) = up.in_flight.oldest() else { return false };
        up.path.is_late(oldest.written.into_std(), self.gate.waiting(), now.into_std())
    }

    fn enqueue(&self, up: &mut Up, shared: &Shared, batches: Vec<Sent>, now: Instant) {
        up.path.sent(up.in_flight.len(), now.into_std());
        let first = |sent: &&Sent| sent.batch.attempts == 1;
        for Sent { batch, .. } in batches.iter().filter(first) {
            let queued = now.into_std().saturating_duration_since(batch.created);
            self.stats.batch_taken(queued, batch.payload().len(), batch.records);
        }
        let bytes = self.build(up, shared, batches, now);
        self.stats.request_built(bytes);
    }

    /// Builds a request and queues its bytes for the socket. Returns their number. The request's deadline counts from
    /// `built` until the bytes are written.
    fn build(&self, up: &mut Up, shared: &Shared, batches: Vec<Sent>, built: Instant) -> usize {
        let config = &shared.config;
        let out: Vec<OutBatch<'_>> = batches
            .iter()
            .map(|sent| OutBatch {
                topic: &sent.partition.topic,
                topic_id: sent.topic_id,
                partition: sent.partition.index,
                payload: match sent.batch.attempts > 1 && planted(Plant::BufferReused) {
                    true => batches[0].batch.payload(),
                    false => sent.batch.payload(),
                },
            })
            .collect();
        let timeout = config.common.request_timeout;
        let (transactional_id, version) = shared.identity.head(up.version);
        let head = RequestHead {
            version,
            correlation_id: up.in_flight.next_correlation_id(),
            client_id: Some(&config.common.client_id),
            transactional_id,
            acks: config.acks.code(),
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
        };
        let mut frame = Vec::with_capacity(2 * out.len() + 1);
        head.encode_frame(&out, &mut up.glue, &mut frame);
        let bytes = frame.iter().map(Bytes::len).sum();
        up.outgoing.extend(frame);
        let mut deadline = built.into_std().later(timeout);
        if planted(Plant::ExpiryCloses)
            && let Some(oldest) = batches.iter().map(|sent| sent.batch.created).min()
        {
            deadline = deadline.min(oldest.later(config.delivery_timeout));
        }
        let ahead = up.in_flight.len();
        let reserved = batches.iter().map(|sent| sent.batch.completion.reserved()).sum();
        let record_bytes = batches.iter().map(|sent| sent.batch.completion.record_bytes()).sum();
        let width = batches.len();
        let payloads = batches.iter().map(|sent| sent.batch.payload().len()).sum::<usize>();
        let request = Request {
            batches,
            written: built,
            ahead,
            version,
            reserved,
            record_bytes,
            width,
            is_small: payloads <= SMALL,
            stray: None,
        };
        trace::sent(self.broker, up.in_flight.next_correlation_id(), &request);
        if config.acks == Acks::None {
            // Kafka sends no response: a batch counts as written once the socket has accepted it.
            up.unsent = Some(Unsent::unanswered(request, deadline));
            up.in_flight.skip();
            return bytes;
        }
        up.unsent = Some(Unsent::new(built));
        up.sent_bytes += reserved;
        up.in_flight.sent(request, deadline);
        self.publish_load(up);
        bytes
    }

    /// Expected time until a record added now is acknowledged. `now` counts from the producer's start.
    pub(super) fn expected_wait(&self, now: Duration) -> Duration {
        let usual = self.gate.likely();
        // A broker with work that has never responded must not look like the fastest one.
        let untried = || self.gate.is_busy().then(|| now.saturating_sub(self.opened));
        self.gate.expected_wait(usual.or_else(untried), now)
    }

    /// Number of in-flight requests.
    pub(super) fn requests_in_flight(&self) -> usize {
        match &*self.turnstile.link() {
            Link::Up(up) => up.in_flight.len(),
            Link::Down => 0,
        }
    }

    /// The link, for the driver.
    pub(super) fn link(&self) -> LinkGuard<'_, Link> {
        self.turnstile.link()
    }

    /// Whether the connection is open.
    pub(super) fn is_connected(&self) -> bool {
        matches!(&*self.turnstile.link(), Link::Up(_))
    }

    /// Stores the driver's waker.
    pub(super) fn register(&self, waker: &Waker) {
        self.turnstile.register(waker);
    }

    pub(super) fn wake(&self) {
        self.turnstile.wake();
    }

    /// Time at which the connection closes if nothing is queued before. The main one stays open.
    fn closes_at(&self, up: &Up) -> Option<StdInstant> {
        let may_close = self.branch == Branch::Side && up.in_flight.is_empty();
        let is_unused = may_close && self.turnstile.work().is_empty();
        is_unused.then(|| up.quiet_since.later(QUIET))
    }

    /// Whether the connection is no longer needed.
    pub(super) fn is_useless(&self, up: &Up, now: StdInstant) -> bool {
        self.closes_at(up).is_some_and(|at| at <= now)
    }

    /// Time at which the driver must look at the lane again without another event.
    pub(super) fn next_deadline(&self, up: &Up) -> Option<StdInstant> {
        let answer = earlier(up.next_deadline(), self.late_at(up));
        let answer = earlier(answer, self.closes_at(up));
        if up.in_flight.len() >= self.bounds.in_flight || up.is_held || !up.outgoing.is_empty() {
            // Due partitions must wait for a response, or for the socket.
            return answer;
        }
        let work = self.turnstile.work();
        let due = work.timed.first_key_value().map(|((at, _), _)| *at);
        let due = match up.muted_until {
            Some(until) if work.ready.is_empty() => due.map(|due| due.max(until)),
            Some(until) => Some(until),
            None => due,
        };
        earlier(answer, due)
    }

    /// Records a response: its time, and whether the broker is no longer late.
    pub(super) fn answered(&self, up: &mut Up, request: &Request, bytes: usize, now: Instant) {
        up.sent_bytes -= request.reserved;
        up.quiet_since = now.into_std();
        self.measure(up, request, now);
        self.publish_load(up);
        self.stats.answered(now.saturating_duration_since(request.written), bytes);
        if up.late.take().is_some() && self.late_at(up).is_some_and(|at| at <= now.into_std()) {
            // The next request is late as well: the suspicion continues, and its backoff restarts.
            return;
        }
        if !self.gate.is_fine() {
            self.gate.set_trouble(Trouble::Fine);
        }
    }

    /// Limit for the first response of an untried broker, such as that to the handshake.
    pub(super) fn patience(&self) -> Duration {
        Path::new(self.bounds).limit().unwrap_or(Duration::MAX)
    }

    /// Time at which the oldest request becomes unusually late, or at which the suspicion needs the next lookup.
    fn late_at(&self, up: &Up) -> Option<StdInstant> {
        let oldest = up.in_flight.oldest()?;
        let limit = up.path.limit()?;
        Some(up.late.map_or(oldest.written.into_std().later(limit), |late| late.again))
    }

    /// Makes the broker suspect if its oldest request is unusually late. Returns what to investigate: at the start of
    /// a suspicion, and then with growing pauses while it lasts.
    pub(super) fn suspect_if_late(&self, up: &mut Up, now: StdInstant) -> Option<Suspected> {
        if self.late_at(up).is_none_or(|at| at > now) {
            return None;
        }
        let lookups = up.late.map_or(0, |late| late.lookups);
        let pause = FIRST_LOOKUP_PAUSE.saturating_mul(1 << lookups.min(8)).min(LOOKUP_PAUSE_MAX);
        up.late = Some(Late { lookups: lookups + 1, again: now.later(pause) });
        if lookups == 0 {
            self.gate.set_trouble(Trouble::Suspect);
        }
        Some(Suspected {
            topics: up.topics_in_flight(),
            oldest: up.oldest_partitions(),
            is_new: lookups == 0,
            limit: up.path.limit()?,
        })
    }

    /// Marks the broker unreachable because it does not complete a handshake. Ignored if it has responded since. The
    /// driver then reports the change.
    pub(super) fn mark_unreachable(&self) {
        if matches!(&*self.link(), Link::Up(up) if up.late.is_some()) {
            self.gate.set_unreachable();
            self.wake();
        }
    }

    /// Investigates a suspected broker at once, because another broker has turned out to be unreachable. This one may
    /// only wait for that one.
    pub(super) fn look_again(&self, now: StdInstant) {
        if let Link::Up(up) = &mut *self.link()
            && let Some(late) = &mut up.late
        {
            late.again = late.again.min(now);
            self.wake();
        }
    }

    /// Every partition in the lists, to expire its batches.
    pub(super) fn waiting(&self) -> Vec<Arc<Partition>> {
        let work = self.turnstile.work();
        work.ready.iter().chain(work.timed.values()).cloned().collect()
    }

    /// Takes every partition out of the lists.
    pub(super) fn take_waiting(&self) -> impl Iterator<Item = Arc<Partition>> {
        let Work { ready, timed, .. } = std::mem::take(&mut *self.turnstile.work());
        ready.into_iter().chain(timed.into_values())
    }

    /// Makes the driver take back the batches of [`Self::take_moved`].
    pub(super) fn let_train_leave(&self) {
        self.train_left.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Takes batches whose partition has another leader out of the in-flight requests, oldest first. Applies if their
    /// responses are useless: this broker is suspect, or it has refused an earlier batch. Responses that still arrive
    /// are ignored.
    ///
    /// These requests hold every in-flight batch of such a partition. The whole train therefore moves, and the
    /// partition is free to send to its new leader. A batch without attempts left stays.
    pub(super) fn take_moved(self: &Arc<Self>, up: &mut Up, retries: u32) -> Vec<Sent> {
        let is_late = up.is_late();
        if !self.train_left.swap(false, Ordering::Relaxed) && !is_late {
            return Vec::new();
        }
        let moved_on = |sent: &mut Sent| {
            let state = sent.partition.state.lock();
            let elsewhere = state.lane.as_ref().is_some_and(|lane| lane.broker != self.broker);
            let in_vain = is_late || state.queue.is_regrouping();
            elsewhere && in_vain && sent.batch.attempts <= retries
        };
        let requests = up.in_flight.iter_mut();
        requests.flat_map(|request| request.batches.extract_if(.., moved_on)).collect()
    }

    /// Ends the driver's backoff, so that it dials now.
    pub(super) fn expect_work(&self) {
        self.expected.notify_one();
    }

    /// Waits until a partition is queued, for a side lane.
    pub(super) async fn work_queued(&self) {
        poll_fn(|cx| {
            self.register(cx.waker());
            if self.turnstile.work().is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Waits for [`Self::expect_work`].
    pub(super) async fn work_expected(&self) {
        self.expected.notified().await;
    }

    /// Closes the connection. Returns the in-flight requests, oldest first.
    pub(super) fn take_down(&self) -> Vec<Request> {
        let former = std::mem::replace(&mut *self.turnstile.link(), Link::Down);
        self.gate.set_idle();
        match former {
            Link::Down => Vec::new(),
            Link::Up(mut up) => {
                let unsent = up.unsent.take().and_then(Unsent::into_unanswered);
                let requests = unsent.into_iter().chain(up.in_flight.drain()).collect();
                *self.former_path.lock() = Some(up.path);
                requests
            }
        }
    }

    /// The model of the broker, for a new connection.
    pub(super) fn path(&self) -> Path {
        let former = self.former_path.lock().take();
        let mut path = former.unwrap_or_else(|| Path::new(self.bounds));
        path.connected();
        path
    }

    /// Drops everything. Waiters learn that the producer is closed.
    pub(super) fn abandon(&self) {
        drop(self.take_down());
        *self.turnstile.work() = Work::default();
    }
}

fn earlier(a: Option<StdInstant>, b: Option<StdInstant>) -> Option<StdInstant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Work<Arc<Partition>> {
    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.timed.is_empty()
    }

    /// Moves due partitions to the ready list, or all of them while the broker's window is full: no record can join their
    /// batches then. `lane` owns these lists.
    fn promote(&mut self, lane: &Arc<Lane>, now: StdInstant) {
        let later = match lane.gate.is_full() {
            true => BTreeMap::new(),
            false => self.timed.split_off(&(now, u64::MAX)),
        };
        for partition in std::mem::replace(&mut self.timed, later).into_values() {
            let mut state = partition.state.lock();
            if state.is_in(lane, Place::Timed) {
                state.place = Place::Ready;
                drop(state);
                self.ready.push_back(partition);
            }
        }
    }
}

impl PartitionState {
    /// Whether an entry in that list of `lane` still counts. A stale entry of the previous lane must not change the
    /// place. Otherwise the partition would seem to be in a list that it is not in, and would never be sent.
    fn is_in(&self, lane: &Arc<Lane>, place: Place) -> bool {
        self.place == place && self.lane.as_ref().is_some_and(|own| Arc::ptr_eq(own, lane))
    }
}
