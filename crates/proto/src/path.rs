//! The model of a broker: how fast it takes records, how many may be outstanding, and how late its responses are.
//!
//! Four questions have their answers here, and nowhere else:
//! 1. May one more request leave ([`Path::allows`], [`Path::is_late`])?
//! 2. How many bytes of records may be outstanding, sent or not ([`Gate::window`])? More than a broker takes in a few
//!    turns add latency and no throughput.
//! 3. How long must a record expect to wait ([`Gate::expected_wait`])?
//! 4. Is the broker late, or even suspected of being unresponsive ([`Path::late_after`], [`Path::limit`])?
//!
//! [`Path`] measures from the responses, under the lock of the connection. [`Gate`] publishes the results to the
//! senders. A connection without records asks only the fourth question ([`Path::of_exchanges`]); its limits are in
//! [`policy`].
//!
//! A *turn* is the time for which a request was first in line: from the previous response, or from its own write, to
//! its response. Turns do not overlap, so bytes divided by turns is the delivery rate, however the responses are
//! bunched.
//!
//! # Invariants
//! - The window is at least [`FLOOR`], so a broker always has something to do.
//! - A gate that is closed opens without an event: when the broker pauses ([`Gate::opens_at`]), or with a response.

mod gate;
mod pipelining;
pub mod policy;
mod response_time;
mod trouble;

use std::time::{Duration, Instant};

pub(crate) use self::gate::Flight;
use self::pipelining::Pipelining;
pub use self::{
    gate::Gate,
    policy::Suspicion,
    response_time::ResponseTime,
    trouble::{AtomicTrouble, Trouble},
};
use crate::{
    later::Later,
    plant::{Plant, planted},
};

/// Least window. It does not hold up an application at a pace of 4 MB/s whose broker becomes 20 ms slower, before the
/// model has learned how slow the broker is.
pub const FLOOR: usize = 256 << 10;

/// Requests in flight that keep a near broker busy: the broker serves the first, and has received the second.
const NEAR: usize = 2;

/// Full requests that may wait in the client, so that one is ready when a response arrives.
const SPARE: usize = 1;

/// Round trips of a small request in the window, at least. With fewer, requests become so small that their fixed costs
/// limit the throughput, which shrinks the window again. With 16, three quarters of the throughput remain.
const ROUND_TRIPS: u32 = 16;

/// Most bytes of a request that measures the round trip, unless it is a single batch.
pub const SMALL: usize = 64 << 10;

/// Time without a request that measures the round trip after which the next one must.
/// At full rate that costs one small turn.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The same in round trips, of which a probe costs about one.
const PROBE_ROUND_TRIPS: u32 = 32;

/// How long a request's number of batches counts at least.
const MEMORY: Duration = Duration::from_secs(10);

/// How long the window must have been half full for the queue to count as standing (CoDel's interval, RFC 8289).
const STANDING: Duration = Duration::from_millis(100);

/// How long a broker's first response may take before the gate opens. The followers of a new topic take up to a second for
/// the first commits, which says nothing about the broker's pace.
const FIRST_RESPONSE: Duration = Duration::from_millis(100);

/// Settings of the model.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// `curtail.latency.target.ms`: how long an acknowledgement should take; `None` without a window.
    pub target: Option<Duration>,
    /// Most bytes of a batch.
    pub batch: usize,
    /// Most bytes of a request.
    pub request: usize,
    /// Most requests in flight.
    pub in_flight: usize,
    /// When a response is unusually late; `None` if none ever is (`curtail.suspicion.enable`).
    pub suspicion: Option<Suspicion>,
}

/// The oldest request in flight.
#[derive(Clone, Copy, Debug)]
pub struct Oldest {
    /// When it was written.
    pub written: Instant,
    /// Bytes of its records, as [`Gate::charge`] counts them.
    pub bytes: usize,
}

/// A response to a request.
#[derive(Clone, Copy, Debug)]
pub struct Response {
    /// When the request was written.
    pub written: Instant,
    /// Requests that were in flight then.
    pub ahead: usize,
    /// Bytes of its records, as [`Gate::charge`] counts them.
    pub bytes: usize,
    /// Number of its batches.
    pub batches: usize,
    /// Whether it had at most [`SMALL`] bytes on the wire, or a single batch.
    pub is_small: bool,
    /// When the response was read.
    pub now: Instant,
}

/// The model of one broker. It outlives connections.
#[derive(Debug)]
pub struct Path {
    bounds: Bounds,
    response_time: ResponseTime,
    /// Of this connection.
    pipelining: Pipelining,
    pace: Pace,
    /// Read time of the previous response on this connection.
    last: Option<Instant>,
    round_trips: RoundTrips,
    /// When a request that measures the round trip was last sent.
    alone_at: Option<Instant>,
    widest: Widest,
    half_full_since: Option<Instant>,
}

/// Bytes and time of the last few turns. Each response reduces the weight of the earlier ones by a quarter.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    bytes: f64,
    seconds: f64,
    turns: f64,
}

impl Pace {
    fn add(&mut self, bytes: usize, turn: Duration) {
        self.bytes = 0.75 * self.bytes + bytes as f64;
        self.seconds = 0.75 * self.seconds + turn.as_secs_f64();
        self.turns = 0.75 * self.turns + 1.0;
    }

    /// Bytes that the broker takes in this time; `None` before the first turn.
    fn bytes_in(&self, time: Duration) -> Option<usize> {
        (self.seconds > 0.0).then(|| (self.bytes / self.seconds * time.as_secs_f64()) as usize)
    }

    /// Time that the broker takes for these bytes.
    fn time_for(&self, bytes: usize) -> Duration {
        let seconds = if self.bytes > 0.0 { self.seconds / self.bytes * bytes as f64 } else { 0.0 };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    fn turn(&self) -> Duration {
        Duration::from_secs_f64(if self.turns > 0.0 { self.seconds / self.turns } else { 0.0 })
    }
}

/// The last response times of requests that measure the round trip ([`Path::measures_round_trip`]).
///
/// They are counted, not timed: a sender whose requests are small shows within a few of them that its broker became
/// slow. Their median counts. The shortest would leave out what a commit usually takes, and the longest may have met a
/// pause.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTrips {
    last: [Duration; 5],
    count: usize,
}

impl RoundTrips {
    fn add(&mut self, took: Duration) {
        self.last.rotate_right(1);
        self.last[0] = took;
        self.count = self.last.len().min(self.count + 1);
    }

    /// The median; `None` before the first.
    fn usual(&self) -> Option<Duration> {
        let mut known = self.last;
        let known = &mut known[..self.count];
        known.sort_unstable();
        known.get(self.count.saturating_sub(1) / 2).copied()
    }
}

/// Most batches of a request in the last ten to twenty seconds. If there was none, the last ones count.
#[derive(Clone, Copy, Debug, Default)]
struct Widest {
    since: Option<Instant>,
    current: Option<usize>,
    former: Option<usize>,
}

impl Widest {
    fn add(&mut self, batches: usize, now: Instant) {
        let is_old = |since| now.saturating_duration_since(since) >= MEMORY;
        if self.since.is_none_or(is_old) {
            (self.former, self.current, self.since) = (self.current, None, Some(now));
        }
        self.current = self.current.max(Some(batches));
    }

    fn most(&self) -> Option<usize> {
        self.current.max(self.former)
    }
}

impl Path {
    /// A path whose broker has not responded yet.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            response_time: ResponseTime::default(),
            pipelining: Pipelining::default(),
            pace: Pace::default(),
            last: None,
            round_trips: RoundTrips::default(),
            alone_at: None,
            widest: Widest::default(),
            half_full_since: None,
        }
    }

    /// A path without records, for one request at a time: fetches and control requests.
    pub fn of_exchanges(suspicion: Suspicion) -> Self {
        let suspicion = Some(suspicion);
        Self::new(Bounds { target: None, batch: 0, request: 0, in_flight: 1, suspicion })
    }

    /// Records an exchange whose request allowed the broker to wait for `allowed`. That wait is no part of its turn.
    pub fn exchanged(&mut self, took: Duration, allowed: Duration) {
        let turn = took.saturating_sub(allowed);
        let ceiling = self.bounds.suspicion.map_or(turn, |suspicion| suspicion.ceiling);
        self.response_time.answered(turn, ceiling);
    }

    /// A new connection: its first turn begins with its first request.
    pub fn connected(&mut self) {
        self.last = None;
        self.pipelining = Pipelining::default();
    }

    /// When the oldest request in flight, written at this time, became the first in line.
    fn turn_began(&self, written: Instant) -> Instant {
        self.last.map_or(written, |last| last.max(written))
    }

    /// Whether the next request should wait until none is in flight, and have at most [`SMALL`] bytes: nothing else
    /// shows the round trip while requests queue, and the window depends on it.
    pub fn wants_probe(&self, now: Instant) -> bool {
        self.bounds.target.is_some() && self.lacks_round_trip(now)
    }

    /// Whether no request that measures the round trip was sent for a while.
    fn lacks_round_trip(&self, now: Instant) -> bool {
        let round_trip = self.round_trips.usual().unwrap_or_default();
        let pause = PROBE_EVERY.max(round_trip.saturating_mul(PROBE_ROUND_TRIPS));
        let is_due = self.alone_at.is_none_or(|at| now.saturating_duration_since(at) >= pause);
        is_due && !planted(Plant::RoundTripNotMeasured)
    }

    /// Whether one more request may leave, as far as the broker's pace is concerned. One with a complete batch may
    /// while fewer are in flight than keep the broker busy ([`Self::depth`]). Others should wait for more records
    /// unless the broker would be idle.
    ///
    /// Both wait for an idle connection if nothing has measured the round trip for a while; the first only with a window,
    /// which depends on it. A broker's first response is slow. Taken for the round trip, it would keep many small
    /// requests in flight for good, each behind the others in the broker.
    pub fn allows(&self, in_flight: usize, is_complete: bool, now: Instant) -> bool {
        match is_complete {
            true => in_flight < self.depth() && !self.wants_probe(now),
            false => {
                let round_trip = self.round_trips.usual();
                self.pipelining.allows(in_flight, round_trip, now) && !self.lacks_round_trip(now)
            }
        }
    }

    /// Records that a request was sent, with this many in flight before it. `is_small` as in [`Response::is_small`].
    pub fn sent(&mut self, in_flight: usize, is_small: bool, now: Instant) {
        self.pipelining.sent(in_flight, self.round_trips.usual(), now);
        if self.measures_round_trip(in_flight, is_small) {
            self.alone_at = Some(now);
        }
    }

    /// Whether a request measures the round trip: it has the connection to itself, and its time depends little on its
    /// bytes. Without a window no request is kept small for that, so all that go alone count.
    fn measures_round_trip(&self, ahead: usize, is_small: bool) -> bool {
        ahead == 0 && (is_small || self.bounds.target.is_none())
    }

    /// Records a response, before its bytes are released, and publishes what it shows.
    pub fn answered(&mut self, response: &Response, gate: &Gate) {
        let Response { written, ahead, is_small, now, .. } = *response;
        let took = now.saturating_duration_since(written);
        if self.measures_round_trip(ahead, is_small) {
            self.round_trips.add(took);
        }
        self.pipelining.answered(written, ahead, self.round_trips.usual(), now);
        let ceiling = self.bounds.suspicion.map_or(took, |suspicion| suspicion.ceiling);
        self.response_time.answered(took, ceiling);
        gate.set_usual(&self.response_time);
        if self.bounds.target.is_some() {
            self.measure(response, gate);
        }
    }

    /// Takes the broker's pace from a response, and sets the window.
    fn measure(&mut self, response: &Response, gate: &Gate) {
        let Response { written, bytes, batches, now, .. } = *response;
        let turn = now.saturating_duration_since(self.turn_began(written));
        self.last = Some(now);
        self.widest.add(batches, now);
        let patience = self.patience(bytes);
        let is_late = turn > patience;
        // A longer turn is a pause, which does not show the pace afterwards.
        self.pace.add(bytes, turn.min(patience));
        let window = self.window();
        let left = gate.counted().saturating_sub(bytes);
        let is_standing = self.is_standing(is_late, left > window / 2, now);
        gate.set_window(window, is_standing);
        gate.excuse(is_late && !is_standing, bytes);
    }

    /// Publishes the requests in flight: their number, the bytes of `buffer.memory` that they hold, and the oldest.
    /// Times in the gate count from `began`.
    pub fn publish(
        &self,
        requests: usize,
        held: usize,
        oldest: Option<Oldest>,
        began: Instant,
        gate: &Gate,
    ) {
        let age = |at: Instant| at.saturating_duration_since(began);
        let bounded = oldest.filter(|_| self.bounds.target.is_some());
        let pauses_at = bounded.map(|Oldest { written, bytes }| {
            let patience = match self.response_time.mean() {
                None => FIRST_RESPONSE,
                Some(_) => self.patience(bytes),
            };
            age(self.turn_began(written).later(patience))
        });
        gate.set_flight(&Flight {
            held,
            is_full: requests >= self.depth(),
            oldest: oldest.map(|oldest| age(oldest.written)),
            pauses_at,
        });
    }

    /// How old the oldest request in flight may get before nothing is sent behind it; `None` before the first response,
    /// or if no response is ever late ([`ResponseTime::late_after`]).
    pub fn late_after(&self) -> Option<Duration> {
        self.bounds.suspicion.and(self.response_time.late_after())
    }

    /// Whether the broker is late, with the oldest request written at this time, and `waiting` bytes for it that are
    /// not in flight.
    ///
    /// A broker serves one request of a connection at a time. Batches sent after a late request only wait there,
    /// while batches kept in the client can still move. After a late response the broker stays late until one is on
    /// time. But if more bytes wait than a request can carry, they are the cause of the delay, and only the age of the
    /// oldest request counts.
    pub fn is_late(&self, oldest: Instant, waiting: usize, now: Instant) -> bool {
        let Some(late) = self.late_after() else { return false };
        let is_overdue = now.saturating_duration_since(oldest) > late;
        is_overdue || self.response_time.was_late() && waiting <= self.bounds.request
    }

    /// How old the oldest request in flight may get before the broker is suspected; `None` if it never is.
    pub fn limit(&self) -> Option<Duration> {
        self.bounds.suspicion.map(|suspicion| suspicion.limit(&self.response_time))
    }

    /// How long a turn with these bytes may take before it counts as a pause.
    fn patience(&self, bytes: usize) -> Duration {
        self.horizon().saturating_add(self.pace.time_for(bytes))
    }

    /// How long the outstanding bytes may take.
    fn horizon(&self) -> Duration {
        let target = self.bounds.target.unwrap_or_default();
        let round_trip = self.round_trips.usual().unwrap_or_default();
        target.max(round_trip.saturating_mul(ROUND_TRIPS))
    }

    /// As many bytes as the broker takes within the horizon, but no more than full requests need to keep it busy.
    fn window(&self) -> usize {
        let horizon = self.horizon();
        let batches = self.widest.most().unwrap_or(1);
        let full = self.bounds.batch.saturating_mul(batches).min(self.bounds.request);
        let most = full.saturating_mul(self.depth() + SPARE);
        self.pace.bytes_in(horizon).map_or(self.bounds.request, |bytes| bytes.min(most)).max(FLOOR)
    }

    /// Requests in flight that keep the broker busy: two, and as many more as fit into the round trip. Without a
    /// window, as many as are allowed.
    pub fn depth(&self) -> usize {
        let round_trip = self.bounds.target.and(self.round_trips.usual());
        let Some(round_trip) = round_trip else { return self.bounds.in_flight };
        let turn = self.pace.turn().as_nanos().max(1);
        let on_their_way = usize::try_from(round_trip.as_nanos() / turn).unwrap_or(usize::MAX);
        NEAR.saturating_add(on_their_way).min(self.bounds.in_flight)
    }

    /// Whether the queue does not come from a pause of the broker: the window was half full for a while, although the
    /// responses were on time.
    fn is_standing(&mut self, is_late: bool, is_half_full: bool, now: Instant) -> bool {
        if !is_half_full {
            self.half_full_since = None;
        } else if self.half_full_since.is_none() && !is_late {
            self.half_full_since = Some(now);
        }
        self.half_full_since.is_some_and(|since| now.saturating_duration_since(since) >= STANDING)
    }
}

#[cfg(test)]
mod tests;
