//! The connection to one broker: the next request, and the next deadline.
//!
//! A [`Link`] holds the partitions that wait, the requests in flight and the model of the broker ([`Path`]). The caller
//! owns the socket, the partitions with their locks, and the bytes: batches are handles here. Time is an argument.
//!
//! One turn of the caller:
//! 1. It reports what has happened: [`Link::handle_work`], [`Link::handle_response`], [`Link::handle_written`],
//!    [`Link::handle_timeout`] and so on.
//! 2. It moves due partitions to the ready list ([`Link::next_due`]).
//! 3. While [`Link::poll_transmit`] permits a request, it takes a batch of each partition of [`Link::next_ready`],
//!    encodes the request under [`Link::next_correlation_id`] and reports it ([`Link::handle_sent`]).
//! 4. It carries out the events ([`Link::poll_event`]) and sets its timer ([`Link::poll_timeout`]).
//!
//! | state | sends | ends with |
//! |---|---|---|
//! | [`State::Down`] | no | [`Link::handle_open`] |
//! | [`State::Open`] | yes | |
//! | [`State::Muted`] | no; the broker throttles (KIP-219) | its time |
//! | [`State::Held`] | no; the SASL session is renewed (KIP-368) | [`Link::handle_release`] |
//! | [`State::Closing`] | no | [`Link::handle_lost`] |
//!
//! # Invariants
//! - A request carries one batch per partition, because a response names only the partition.
//! - A request is built only after all bytes of the one before it were written, so at most one can be withdrawn.
//! - While partitions wait, there is something that makes the caller look again: a time ([`Link::poll_timeout`]), a
//!   request in flight, bytes for the socket, or the end of the states that send nothing.

mod in_flight;
mod request;
mod seat;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use self::{in_flight::InFlight, request::Unsent, seat::Lists};
pub use self::{
    in_flight::OutOfStep,
    request::{Carried, Request, Written},
    seat::{Entry, Seat, Ticket},
};
use crate::{
    accumulator::Readiness,
    later::Later,
    path::{Bounds, Gate, Oldest, Path, Response, SMALL, Trouble},
    plant::{Plant, planted},
};

/// Ready partitions that are checked for a complete batch.
const LOOK_AHEAD: usize = 8;

/// First pause between leader lookups while a broker is suspect; it doubles.
const FIRST_LOOKUP_PAUSE: Duration = Duration::from_millis(50);

/// Longest lookup pause, and so the worst-case delay before an election is noticed.
const LOOKUP_PAUSE_MAX: Duration = Duration::from_millis(200);

/// Settings of a link.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Settings of the model of the broker.
    pub bounds: Bounds,
    /// `request.timeout.ms`.
    pub request_timeout: Duration,
    /// `delivery.timeout.ms`.
    pub delivery_timeout: Duration,
    /// Whether requests have responses (acks other than 0).
    pub has_responses: bool,
    /// How long the connection stays open without a request; `None` for no limit.
    pub closes_after: Option<Duration>,
    /// Origin of the times in the [`Gate`].
    pub began: Instant,
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not connected.
    Down,
    /// Connected.
    Open,
    /// Nothing is sent until this time, when the broker's throttle time ends.
    Muted {
        /// The end.
        until: Instant,
    },
    /// Nothing is sent while the SASL session is renewed.
    Held {
        /// End of a throttle time, which may last longer.
        muted_until: Option<Instant>,
    },
    /// The caller must close the connection.
    Closing(Reason),
}

/// The reason to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A request had no response within `request.timeout.ms`.
    NoResponse,
    /// The socket did not accept a request within `request.timeout.ms`.
    SocketFull,
    /// No request was sent for [`Settings::closes_after`].
    Unused,
    /// The broker is late, and every batch that waited for it has another leader. Later requests would get no response
    /// either.
    Deserted,
    /// The oldest request waits for a replica that is unreachable, and blocks partitions that do not need it.
    Stuck,
    /// The oldest request may wait for a replaced coordinator of its transaction.
    Unverified,
}

/// What the caller must do. It takes all events in the turn in which they arise.
#[derive(Debug)]
pub enum Event<B> {
    /// Fail the batch: `delivery.timeout.ms` has passed.
    Expired {
        /// The batch. Its part of a response is ignored.
        batch: B,
        /// Whether the socket has accepted bytes of this attempt, so that the broker may have it.
        is_begun: bool,
    },
    /// Send the batch to its partition's new leader.
    Moved(B),
    /// Look up the leaders of the partitions in flight: the oldest request is unusually late.
    LookUp {
        /// Whether the suspicion has just begun.
        is_new: bool,
        /// Limit for the broker's response time.
        limit: Duration,
    },
    /// Close the connection.
    Dead(Reason),
}

/// A request that may be built now.
#[derive(Debug)]
pub struct Permit {
    /// Most bytes of its batches, unless the first is larger.
    most: usize,
    bytes: usize,
    batches: usize,
    /// Partitions left to visit. A partition that stays ready goes to the end of the list, so that each is visited once.
    left: usize,
}

impl Permit {
    /// A permit to look at this many partitions.
    fn new(most: usize, left: usize) -> Self {
        Self { most, bytes: 0, batches: 0, left }
    }

    /// Whether a batch of this size may join the request.
    pub fn admits(&self, bytes: usize) -> bool {
        self.batches == 0 || self.bytes + bytes <= self.most
    }

    /// A batch of this size joins the request.
    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.batches += 1;
    }
}

/// Progress of a suspicion.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// Leader lookups during the suspicion.
    lookups: u32,
    /// Time of the next lookup.
    again: Instant,
}

/// The connection to one broker. It outlives connections of the operating system. `P` is the caller's handle of a
/// partition, `B` that of a batch, and `E` what it keeps with a request.
#[derive(Debug)]
pub struct Link<P, B, E> {
    settings: Settings,
    state: State,
    lists: Lists<P>,
    in_flight: InFlight<Request<B, E>>,
    /// The newest request, while the socket has not accepted all of it.
    unsent: Option<Unsent<B, E>>,
    /// Bytes of `buffer.memory` held by in-flight requests.
    held: usize,
    path: Path,
    gate: Arc<Gate>,
    /// Present while the oldest request is unusually late.
    late: Option<Late>,
    /// Time of the last response, of the last request without one, or of the connection's start.
    quiet_since: Instant,
    events: VecDeque<Event<B>>,
}

/// A request that was withdrawn to be built again without its expired batches.
#[derive(Debug)]
#[must_use]
pub struct Withdrawn<B> {
    /// The remaining batches; none if all have expired.
    pub batches: Vec<B>,
    /// When the request was built first.
    pub built: Instant,
}

/// Inputs.
impl<P, B: Carried, E> Link<P, B, E> {
    /// A link without a connection. It publishes the model of the broker in `gate`.
    pub fn new(settings: Settings, gate: Arc<Gate>) -> Self {
        Self {
            state: State::Down,
            lists: Lists::default(),
            in_flight: InFlight::default(),
            unsent: None,
            held: 0,
            path: Path::new(settings.bounds),
            gate,
            late: None,
            quiet_since: settings.began,
            events: VecDeque::new(),
            settings,
        }
    }

    /// A connection stands.
    pub fn handle_open(&mut self, now: Instant) {
        self.state = State::Open;
        self.in_flight = InFlight::default();
        self.path.connected();
        self.quiet_since = now;
    }

    /// The connection has ended, or never stood. Returns the requests without an outcome, oldest first.
    pub fn handle_lost(&mut self) -> Vec<Request<B, E>> {
        self.state = State::Down;
        self.late = None;
        self.held = 0;
        self.gate.set_idle();
        let unanswered = self.unsent.take().and_then(|unsent| unsent.unanswered);
        let unanswered = unanswered.map(|(request, _)| request);
        unanswered.into_iter().chain(self.in_flight.drain()).collect()
    }

    /// A partition waits: its batch can leave now, or at the given time at the latest. Also puts an entry of
    /// [`Self::next_due`] or [`Self::next_ready`] into a list again.
    pub fn handle_work(&mut self, entry: Entry<P>, readiness: Readiness) {
        self.lists.add(entry, readiness);
    }

    /// Puts an entry of [`Self::next_ready`] back whose batch does not fit into the request.
    pub fn put_back(&mut self, entry: Entry<P>) {
        self.lists.put_back(entry);
    }

    /// Sends nothing from now on, for the renewal of the SASL session.
    pub fn handle_hold(&mut self) {
        self.state = match self.state {
            State::Open => State::Held { muted_until: None },
            State::Muted { until } => State::Held { muted_until: Some(until) },
            state @ (State::Down | State::Held { .. } | State::Closing(_)) => state,
        };
    }

    /// The SASL session has been renewed.
    pub fn handle_release(&mut self) {
        if let State::Held { muted_until } = self.state {
            self.state = muted_until.map_or(State::Open, |until| State::Muted { until });
        }
    }

    /// Sends nothing for the broker's throttle time. It never ends earlier than one announced before.
    pub fn handle_throttle(&mut self, throttle: Duration, now: Instant) {
        if throttle.is_zero() {
            return;
        }
        let end = now.later(throttle);
        self.state = match self.state {
            State::Open => State::Muted { until: end },
            State::Muted { until } => State::Muted { until: until.max(end) },
            State::Held { muted_until } => State::Held { muted_until: muted_until.max(Some(end)) },
            state @ (State::Down | State::Closing(_)) => state,
        };
    }

    /// Makes the caller close the connection.
    pub fn close(&mut self, reason: Reason) {
        if self.state != State::Down {
            self.state = State::Closing(reason);
        }
    }

    /// A request was built with the batches of the permit, under [`Self::next_correlation_id`]. Its bytes wait for the
    /// socket.
    pub fn handle_sent(&mut self, batches: Vec<B>, envelope: E, now: Instant) {
        let is_small = is_small(&batches);
        self.path.sent(self.in_flight.len(), is_small, now);
        self.enqueue(batches, envelope, is_small, now);
    }

    /// The request of [`Self::handle_expiry`] was built again, under [`Self::next_correlation_id`].
    pub fn handle_sent_again(&mut self, withdrawn: Withdrawn<B>, envelope: E) {
        let is_small = is_small(&withdrawn.batches);
        self.enqueue(withdrawn.batches, envelope, is_small, withdrawn.built);
        // The previous request has waited for the socket.
        self.handle_blocked();
    }

    fn enqueue(&mut self, batches: Vec<B>, envelope: E, is_small: bool, built: Instant) {
        let mut deadline = built.later(self.settings.request_timeout);
        if planted(Plant::ExpiryCloses)
            && let Some(oldest) = batches.iter().map(Carried::created).min()
        {
            deadline = deadline.min(oldest.later(self.settings.delivery_timeout));
        }
        let request = Request {
            written: built,
            ahead: self.in_flight.len(),
            envelope,
            reserved: batches.iter().map(Carried::reserved).sum(),
            record_bytes: batches.iter().map(Carried::record_bytes).sum(),
            width: batches.len(),
            is_small,
            batches,
        };
        let mut unsent = Unsent { built, is_begun: false, was_blocked: false, unanswered: None };
        if self.settings.has_responses {
            self.held += request.reserved;
            self.in_flight.sent(request, deadline);
            self.unsent = Some(unsent);
            self.publish();
        } else {
            // There will be no response to count from.
            self.quiet_since = built;
            // A batch counts as written once the socket has accepted it.
            unsent.unanswered = Some((request, deadline));
            self.unsent = Some(unsent);
            self.in_flight.skip();
        }
    }

    /// The socket has accepted bytes of the newest request.
    pub fn handle_begun(&mut self) {
        if let Some(unsent) = &mut self.unsent {
            unsent.is_begun = true;
        }
    }

    /// The socket accepts no bytes at present.
    pub fn handle_blocked(&mut self) {
        if let Some(unsent) = &mut self.unsent {
            unsent.was_blocked = true;
        }
    }

    /// The socket has accepted all bytes. Returns the newest request, unless that was reported before. `now` is read
    /// only if the request had to wait.
    pub fn handle_written(&mut self, now: impl FnOnce() -> Instant) -> Option<Written<B, E>> {
        let Unsent { built, was_blocked, unanswered, .. } = self.unsent.take()?;
        if was_blocked {
            let now = now();
            if unanswered.is_some() {
                self.quiet_since = now;
            }
            // `request.timeout.ms` counts from the write.
            self.in_flight.written(now.later(self.settings.request_timeout));
        }
        Some(Written { built, unanswered: unanswered.map(|(request, _)| request) })
    }

    /// A response has arrived. Returns its request.
    ///
    /// # Errors
    /// [`OutOfStep`] if the response is not that of the oldest request: the stream is broken for good.
    pub fn handle_response(&mut self, id: i32, now: Instant) -> Result<Request<B, E>, OutOfStep> {
        let request = self.in_flight.answered(id)?;
        if !planted(Plant::HeldNotReleased) {
            self.held -= request.reserved;
        }
        self.quiet_since = now;
        let response = Response {
            written: request.written,
            ahead: request.ahead,
            bytes: request.record_bytes,
            batches: request.width,
            is_small: request.is_small,
            now,
        };
        self.path.answered(&response, &self.gate);
        self.publish();
        if self.late.take().is_some() && self.late_at().is_some_and(|at| at <= now) {
            // The next request is late as well: the suspicion continues, and its backoff restarts.
            return Ok(request);
        }
        if !self.gate.is_fine() {
            self.gate.set_trouble(Trouble::Fine);
        }
        Ok(request)
    }

    /// A timer has fired. Emits [`Event::LookUp`] at the start of a suspicion, and then with growing pauses while it
    /// lasts, and [`Event::Dead`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.state, State::Down | State::Closing(_)) {
            return;
        }
        if self.closes_at().is_some_and(|at| at <= now) {
            return self.dies(Reason::Unused);
        }
        self.suspect(now);
        if self.next_deadline().is_some_and(|at| at <= now) {
            let waits_for_socket = self.unsent.is_some() && self.in_flight.len() <= 1;
            self.dies(if waits_for_socket { Reason::SocketFull } else { Reason::NoResponse });
        }
    }

    fn dies(&mut self, reason: Reason) {
        self.close(reason);
        self.events.push_back(Event::Dead(reason));
    }

    /// Makes the broker suspect if its oldest request is unusually late.
    fn suspect(&mut self, now: Instant) {
        let Some(limit) = self.path.limit() else { return };
        if self.late_at().is_none_or(|at| at > now) {
            return;
        }
        let lookups = self.late.map_or(0, |late| late.lookups);
        let pause = FIRST_LOOKUP_PAUSE.saturating_mul(1 << lookups.min(8)).min(LOOKUP_PAUSE_MAX);
        self.late = Some(Late { lookups: lookups + 1, again: now.later(pause) });
        let is_new = lookups == 0;
        if is_new {
            self.gate.set_trouble(Trouble::Suspect);
        }
        self.events.push_back(Event::LookUp { is_new, limit });
    }

    /// Another broker has turned out to be unreachable, for which this one may only wait: the next lookup is due now.
    /// Returns whether the broker is suspect.
    pub fn look_again(&mut self, now: Instant) -> bool {
        if let Some(late) = &mut self.late {
            late.again = late.again.min(now);
        }
        self.is_suspect()
    }

    /// Takes batches whose partition has another leader out of the in-flight requests, oldest first, and emits
    /// [`Event::Moved`]. Applies if their responses are useless: this broker is suspect, or it has refused an earlier
    /// batch (`has_refused`). Responses that still arrive are ignored.
    ///
    /// These requests hold every in-flight batch of such a partition. The whole train therefore moves, and the
    /// partition is free to send to its new leader. `moves` is asked for each batch, and whether the broker is suspect.
    pub fn handle_moved(&mut self, has_refused: bool, mut moves: impl FnMut(&B, bool) -> bool) {
        let is_suspect = self.is_suspect();
        if !has_refused && !is_suspect {
            return;
        }
        let before = self.events.len();
        for request in self.in_flight.iter_mut() {
            let moved = request.batches.extract_if(.., |batch| moves(batch, is_suspect));
            self.events.extend(moved.map(Event::Moved));
        }
        let is_deserted = self.in_flight.iter().all(|request| request.batches.is_empty());
        if is_suspect && is_deserted && self.events.len() > before {
            self.dies(Reason::Deserted);
        }
    }

    /// Emits [`Event::Expired`] for batches past `delivery.timeout.ms`, those with bytes at the socket first. Their
    /// requests stay in flight, and the matching parts of a response are ignored: `loses` is called for each. If the
    /// socket has accepted no byte of the newest request, it is withdrawn: the caller drops its bytes, and builds it
    /// again if a batch remains ([`Self::handle_sent_again`]).
    pub fn handle_expiry(
        &mut self,
        now: Instant,
        mut loses: impl FnMut(&mut E),
    ) -> Option<Withdrawn<B>> {
        let timeout = self.settings.delivery_timeout;
        let is_over = |batch: &B| batch.created().later(timeout) <= now;
        let untouched = self.unsent_request().filter(|_| self.is_untouched());
        let must_shrink = untouched.is_some_and(|request| request.batches.iter().any(is_over));
        let mut withdrawn = if must_shrink { self.withdraw() } else { None };
        let unanswered = self.unsent.iter_mut().flat_map(|unsent| &mut unsent.unanswered);
        for request in self.in_flight.iter_mut().chain(unanswered.map(|(request, _)| request)) {
            let before = request.batches.len();
            let over = request.batches.extract_if(.., |batch| is_over(batch));
            self.events.extend(over.map(|batch| Event::Expired { batch, is_begun: true }));
            if request.batches.len() < before {
                loses(&mut request.envelope);
            }
        }
        if let Some(withdrawn) = &mut withdrawn {
            let over = withdrawn.batches.extract_if(.., |batch| is_over(batch));
            self.events.extend(over.map(|batch| Event::Expired { batch, is_begun: false }));
        }
        withdrawn
    }

    /// Withdraws the newest request if no byte was written.
    fn withdraw(&mut self) -> Option<Withdrawn<B>> {
        let unsent = self.unsent.take()?;
        let request = match unsent.unanswered {
            Some((request, _)) => request,
            None => {
                let request = self.in_flight.withdraw()?;
                self.held -= request.reserved;
                request
            }
        };
        self.publish();
        Some(Withdrawn { batches: request.batches, built: request.written })
    }
}

/// Outputs.
impl<P, B: Carried, E> Link<P, B, E> {
    /// The next partition whose time has come, or any timed one while the broker's window is full: no record can join
    /// those batches. It goes to the ready list ([`Self::handle_work`]) if its entry counts. `None` while nothing can
    /// be sent: due partitions then wait for a response or the socket.
    pub fn next_due(&mut self, now: Instant) -> Option<Entry<P>> {
        let is_kept = planted(Plant::DueEntryKept)
            && !self.in_flight.is_empty()
            && !self.path.allows(self.in_flight.len(), false, now);
        if is_kept || !self.may_send(now) {
            return None;
        }
        if self.gate.is_full() { self.lists.pop_timed() } else { self.lists.pop_due(now) }
    }

    /// Permits one more request, or returns `None` until something happens.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        has_complete: impl FnMut(&P) -> bool,
    ) -> Option<Permit> {
        if !self.may_send(now) || self.waits_for_response(now, has_complete) {
            return None;
        }
        let most = self.settings.bounds.request;
        let is_probe = self.in_flight.is_empty() && self.path.wants_probe(now);
        let most = if is_probe { most.min(SMALL) } else { most };
        Some(Permit::new(most, self.lists.ready().len()))
    }

    /// The next partition to take a batch from. Its entry is out of the lists.
    pub fn next_ready(&mut self, permit: &mut Permit) -> Option<Entry<P>> {
        permit.left = permit.left.checked_sub(1)?;
        self.lists.pop_ready()
    }

    /// Whether the connection, its socket and `max.in.flight.requests.per.connection` allow a request.
    fn may_send(&mut self, now: Instant) -> bool {
        if self.unsent.is_some() || self.in_flight.len() >= self.settings.bounds.in_flight {
            return false;
        }
        if matches!(self.state, State::Muted { until } if until <= now) {
            self.state = State::Open;
        }
        self.state == State::Open
    }

    /// Whether ready batches should wait for the response to an in-flight request, after which the caller looks again.
    /// They wait if none is complete and the broker is busy, or if that response is late, so that a request sent now
    /// would only wait in the broker.
    pub fn waits_for_response(&self, now: Instant, has_complete: impl FnMut(&P) -> bool) -> bool {
        let Some(oldest) = self.in_flight.oldest() else { return false };
        if self.path.is_late(oldest.written, self.gate.waiting(), now) {
            return true;
        }
        let mut ready = self.lists.ready();
        if ready.len() == 0 {
            return false;
        }
        // No record can join a batch while the window is full.
        let is_complete = self.gate.is_full() || ready.by_ref().take(LOOK_AHEAD).any(has_complete);
        !self.path.allows(self.in_flight.len(), is_complete, now)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event<B>> {
        self.events.pop_front()
    }

    /// When the caller must look again without another event: it then calls [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let muted_until = match self.state {
            State::Down | State::Closing(_) => return None,
            State::Held { .. } => return self.response_timeout(),
            State::Open => None,
            State::Muted { until } => Some(until).filter(|_| !planted(Plant::NoTimerForThrottle)),
        };
        let is_blocked = self.unsent.is_some() && !planted(Plant::TimerWhileBlocked);
        if is_blocked || self.in_flight.len() >= self.settings.bounds.in_flight {
            // Due partitions must wait for a response, or for the socket.
            return self.response_timeout();
        }
        let due = self.lists.next_due();
        let due = match muted_until {
            Some(until) if self.lists.ready().len() == 0 => due.map(|due| due.max(until)),
            Some(until) => Some(until),
            None => due,
        };
        earlier(self.response_timeout(), due)
    }

    /// The same without the partitions that wait.
    fn response_timeout(&self) -> Option<Instant> {
        earlier(earlier(self.next_deadline(), self.late_at()), self.closes_at())
    }

    /// When the connection is closed because a request takes too long: for its response, or for the socket.
    pub fn next_deadline(&self) -> Option<Instant> {
        let unanswered = self.unsent.as_ref().and_then(|unsent| unsent.unanswered.as_ref());
        earlier(self.in_flight.next_deadline(), unanswered.map(|(_, deadline)| *deadline))
    }

    /// When the oldest request becomes unusually late, or the suspicion needs the next lookup.
    fn late_at(&self) -> Option<Instant> {
        let oldest = self.in_flight.oldest()?;
        let limit = self.path.limit()?;
        Some(self.late.map_or(oldest.written.later(limit), |late| late.again))
    }

    /// When the connection closes if nothing is queued before.
    fn closes_at(&self) -> Option<Instant> {
        let after = self.settings.closes_after?;
        let is_unused = self.is_idle() && self.lists.is_empty();
        is_unused.then(|| self.quiet_since.later(after))
    }

    /// When the oldest batch expires that was sent and has no outcome.
    pub fn next_expiry(&self) -> Option<Instant> {
        let unanswered = self.unsent.as_ref().and_then(|unsent| unsent.unanswered.as_ref());
        let requests = self.in_flight.iter().chain(unanswered.map(|(request, _)| request));
        let created = requests.flat_map(|request| &request.batches).map(Carried::created);
        created.min().map(|created| created.later(self.settings.delivery_timeout))
    }

    /// Publishes the requests in flight, for the routing of records and the window.
    fn publish(&self) {
        let oldest = self.in_flight.oldest();
        let oldest =
            oldest.map(|request| Oldest { written: request.written, bytes: request.record_bytes });
        let requests = self.in_flight.len();
        self.path.publish(requests, self.held, oldest, self.settings.began, &self.gate);
    }
}

/// Readings.
impl<P, B, E> Link<P, B, E> {
    /// The state of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// The id to put into the next request's header.
    pub fn next_correlation_id(&self) -> i32 {
        self.in_flight.next_correlation_id()
    }

    /// Whether one more request in flight is forbidden, or the SASL session is renewed: the next response, or the end
    /// of the renewal, makes the caller look again.
    pub fn is_exhausted(&self) -> bool {
        let is_held = matches!(self.state, State::Held { .. });
        is_held || self.in_flight.len() >= self.settings.bounds.in_flight
    }

    /// Whether nothing is in flight and no byte waits for the socket.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.unsent.is_none()
    }

    /// Whether the socket has accepted every request.
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_none()
    }

    /// Whether the oldest request is unusually late.
    pub fn is_suspect(&self) -> bool {
        self.late.is_some()
    }

    /// The requests in flight, oldest first.
    pub fn in_flight(&self) -> impl ExactSizeIterator<Item = &Request<B, E>> {
        self.in_flight.iter()
    }

    /// The partitions that wait.
    pub fn waiting(&self) -> impl Iterator<Item = &Entry<P>> {
        self.lists.iter()
    }

    /// When the earliest partition of the timed list is due.
    pub fn next_timed(&self) -> Option<Instant> {
        self.lists.next_due()
    }

    /// Takes out every partition that waits.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = Entry<P>> + use<P, B, E> {
        std::mem::take(&mut self.lists).into_entries()
    }

    /// Whether no byte of the newest request was written.
    fn is_untouched(&self) -> bool {
        self.unsent.as_ref().is_some_and(|unsent| !unsent.is_begun)
    }

    /// The newest request, if bytes of it wait for the socket.
    fn unsent_request(&self) -> Option<&Request<B, E>> {
        let unsent = self.unsent.as_ref()?;
        unsent.unanswered.as_ref().map(|(request, _)| request).or_else(|| self.in_flight.newest())
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Whether a request with these batches measures the round trip if it goes alone: it has at most [`SMALL`] bytes, or
/// cannot be smaller.
fn is_small<B: Carried>(batches: &[B]) -> bool {
    batches.len() == 1 || batches.iter().map(Carried::bytes).sum::<usize>() <= SMALL
}
