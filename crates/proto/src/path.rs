//! How fast a broker takes records, and how many of them may be outstanding.
//!
//! More bytes than a broker takes in a few turns add latency and no throughput. [`Path`] measures its pace from the
//! responses and derives the window: the most record bytes that may wait for the broker, sent or not. [`Gate`] publishes
//! the window to the senders, which wait while it is full.
//!
//! A *turn* is the time for which a request was first in line: from the previous response, or from its own write, to its
//! response. Turns do not overlap, so bytes divided by turns is the delivery rate, however the responses are bunched.
//!
//! # Invariants
//! - The window is at least [`FLOOR`], so a broker always has something to do.
//! - A gate that is closed opens without an event: when the broker pauses ([`Gate::opens_at`]), or with a response.

use std::{
    cmp::Reverse,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// Least window.
pub const FLOOR: usize = 64 << 10;

/// Requests in flight that keep a near broker busy: the broker serves the first, and has received the second.
const NEAR: usize = 2;

/// Full requests that may wait in the client, so that one is ready when a response arrives.
const SPARE: usize = 1;

/// Round trips of a small request in the window, at least. With fewer, requests become so small that their fixed costs
/// limit the throughput, which shrinks the window again. With 16, three quarters of the throughput remain.
const ROUND_TRIPS: u32 = 16;

/// Most bytes of a request that measures the round trip.
pub const SMALL: usize = 64 << 10;

/// Time without a request that had the connection to itself after which the next one must measure the round trip. At
/// full rate that costs one small turn.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The same in round trips, of which a probe costs about one.
const PROBE_ROUND_TRIPS: u32 = 32;

/// How long a measured round trip and a request's number of batches count at least.
const MEMORY: Duration = Duration::from_secs(10);

/// How long the window must have been half full for the queue to count as standing (CoDel's interval, RFC 8289).
const STANDING: Duration = Duration::from_millis(100);

/// Settings that bound the window.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// `curtail.latency.target.ms`: how long an acknowledgement should take.
    pub target: Duration,
    /// Most bytes of a batch.
    pub batch: usize,
    /// Most bytes of a request.
    pub request: usize,
    /// Most requests in flight.
    pub in_flight: usize,
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
    /// Whether it had at most [`SMALL`] bytes on the wire.
    pub is_small: bool,
    /// When the response was read.
    pub now: Instant,
}

/// The pace of one broker. It outlives connections.
#[derive(Debug)]
pub struct Path {
    bounds: Bounds,
    pace: Pace,
    /// Read time of the previous response on this connection.
    last: Option<Instant>,
    /// Shortest response time of a small request that had the connection to itself.
    round_trip: Recent<Duration>,
    /// When a request last had the connection to itself.
    alone_at: Option<Instant>,
    /// Most batches of a request.
    widest: Recent<Reverse<usize>>,
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

/// The least of the values seen in the last ten to twenty seconds. If there are none, the last ones count.
#[derive(Clone, Copy, Debug)]
struct Recent<T> {
    since: Option<Instant>,
    current: Option<T>,
    former: Option<T>,
}

impl<T: Copy + Ord> Recent<T> {
    const NONE: Self = Self { since: None, current: None, former: None };

    fn add(&mut self, value: T, now: Instant) {
        let is_old = |since| now.saturating_duration_since(since) >= MEMORY;
        if self.since.is_none_or(is_old) {
            (self.former, self.current, self.since) = (self.current, None, Some(now));
        }
        self.current = Some(self.current.map_or(value, |least| least.min(value)));
    }

    fn least(&self) -> Option<T> {
        self.current.into_iter().chain(self.former).min()
    }
}

impl Path {
    /// A path whose broker has not responded yet.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            pace: Pace::default(),
            last: None,
            round_trip: Recent::NONE,
            alone_at: None,
            widest: Recent::NONE,
            half_full_since: None,
        }
    }

    /// A new connection: its first turn begins with its first request.
    pub fn connected(&mut self) {
        self.last = None;
    }

    /// When the oldest request in flight, written at this time, became the first in line.
    pub fn turn_began(&self, written: Instant) -> Instant {
        self.last.map_or(written, |last| last.max(written))
    }

    /// Whether the next request should wait until none is in flight, and have at most [`SMALL`] bytes: nothing else
    /// shows the round trip while requests queue.
    pub fn wants_probe(&self, now: Instant) -> bool {
        let round_trip = self.round_trip.least().unwrap_or_default();
        let pause = PROBE_EVERY.max(round_trip.saturating_mul(PROBE_ROUND_TRIPS));
        self.alone_at.is_none_or(|at| now.saturating_duration_since(at) >= pause)
    }

    /// Records that a request was sent while no other was in flight.
    pub fn sent_alone(&mut self, now: Instant) {
        self.alone_at = Some(now);
    }

    /// Records a response, before its bytes are released, and publishes the new window.
    pub fn answered(&mut self, response: &Response, gate: &Gate) {
        let Response { written, ahead, bytes, batches, is_small, now } = *response;
        let turn = now.saturating_duration_since(self.turn_began(written));
        self.last = Some(now);
        if ahead == 0 && is_small {
            self.round_trip.add(now.saturating_duration_since(written), now);
        }
        self.widest.add(Reverse(batches), now);
        let patience = self.patience(bytes);
        let is_late = turn > patience;
        // A longer turn is a pause, which does not show the pace afterwards.
        self.pace.add(bytes, turn.min(patience));
        let window = self.window();
        let left = gate.counted().saturating_sub(bytes);
        let is_standing = self.is_standing(is_late, left > window / 2, now);
        gate.has_responded.store(true, Ordering::Relaxed);
        gate.window.store(window, Ordering::Relaxed);
        gate.standing.store(is_standing, Ordering::Relaxed);
        gate.excuse(is_late && !is_standing, bytes);
    }

    /// How long a turn with these bytes may take before it counts as a pause.
    pub fn patience(&self, bytes: usize) -> Duration {
        self.horizon().saturating_add(self.pace.time_for(bytes))
    }

    /// How long the outstanding bytes may take.
    fn horizon(&self) -> Duration {
        let round_trip = self.round_trip.least().unwrap_or_default();
        self.bounds.target.max(round_trip.saturating_mul(ROUND_TRIPS))
    }

    /// As many bytes as the broker takes within the horizon, but no more than full requests need to keep it busy.
    fn window(&self) -> usize {
        let horizon = self.horizon();
        let batches = self.widest.least().map_or(1, |Reverse(batches)| batches);
        let full = self.bounds.batch.saturating_mul(batches).min(self.bounds.request);
        let most = full.saturating_mul(self.depth() + SPARE);
        self.pace.bytes_in(horizon).map_or(self.bounds.request, |bytes| bytes.min(most)).max(FLOOR)
    }

    /// Requests in flight that keep the broker busy: two, and as many more as fit into the round trip.
    pub fn depth(&self) -> usize {
        let Some(round_trip) = self.round_trip.least() else { return self.bounds.in_flight };
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

/// A broker's window and the bytes outstanding for it, for lock-free access from any task. The values are independent
/// of each other and of everything else, so loads and stores are relaxed. Times count from the producer's start.
#[derive(Debug)]
pub struct Gate {
    /// Bytes of records without an outcome, sent or not.
    outstanding: AtomicUsize,
    /// Part of them that has gathered in a pause of the broker and does not count.
    excused: AtomicUsize,
    window: AtomicUsize,
    standing: AtomicBool,
    /// When the turn of the oldest request in flight becomes a pause, in microseconds plus one; 0 if none is in flight.
    pauses_at: AtomicU64,
    /// Whether the broker has responded, or is not expected to.
    has_responded: AtomicBool,
    /// Senders that wait.
    queued: AtomicUsize,
}

impl Gate {
    /// A gate that is closed while this many bytes are outstanding; the window changes with the first response.
    pub fn new(window: usize) -> Self {
        Self {
            outstanding: AtomicUsize::new(0),
            excused: AtomicUsize::new(0),
            window: AtomicUsize::new(window),
            standing: AtomicBool::new(false),
            pauses_at: AtomicU64::new(0),
            has_responded: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
        }
    }

    /// Adds bytes of records.
    pub fn charge(&self, bytes: usize) {
        self.outstanding.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes bytes away that were added.
    pub fn release(&self, bytes: usize) {
        self.outstanding.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of records without an outcome.
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// The window, in bytes.
    pub fn window(&self) -> usize {
        self.window.load(Ordering::Relaxed)
    }

    /// Whether a record may be appended now. Reads the clock only if the window is full.
    pub fn is_open(&self, now: impl FnOnce() -> Duration) -> bool {
        !self.is_full() || self.opens_at().is_some_and(|at| at <= now())
    }

    /// Whether a new sender may append, too: none waits before it.
    pub fn admits(&self, now: impl FnOnce() -> Duration) -> bool {
        self.queued.load(Ordering::Relaxed) == 0 && self.is_open(now)
    }

    /// When a full window opens unless a response comes: the broker pauses. An application that keeps its pace must not
    /// wait for one broker and so send late to all others; its burst goes to memory. But if the queue is standing, the
    /// sender is faster than the broker and gains nothing by it. `None` if only a response opens the window.
    pub fn opens_at(&self) -> Option<Duration> {
        if self.is_standing() || !self.has_responded.load(Ordering::Relaxed) {
            return None;
        }
        let at = self.pauses_at.load(Ordering::Relaxed).checked_sub(1);
        // Without a request in flight the records wait for something else than the broker's pace.
        Some(at.map_or(Duration::ZERO, Duration::from_micros))
    }

    /// Whether the window is full.
    pub fn is_full(&self) -> bool {
        self.counted() >= self.window()
    }

    /// Whether no request is in flight.
    pub fn is_idle(&self) -> bool {
        self.pauses_at.load(Ordering::Relaxed) == 0
    }

    /// Whether the queue does not come from a pause of the broker.
    pub fn is_standing(&self) -> bool {
        self.standing.load(Ordering::Relaxed)
    }

    /// Records when the turn of the oldest request in flight becomes a pause; `None` if none is in flight.
    pub fn set_turn(&self, pauses_at: Option<Duration>) {
        let at = pauses_at.map_or(0, |at| micros(at).saturating_add(1));
        self.pauses_at.store(at, Ordering::Relaxed);
    }

    /// The broker cannot be reached: until it responds, memory alone bounds its records.
    pub fn give_up(&self) {
        self.standing.store(false, Ordering::Relaxed);
        self.pauses_at.store(0, Ordering::Relaxed);
        self.has_responded.store(true, Ordering::Relaxed);
    }

    /// Returns the number of waiting senders.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Records the number of waiting senders. Callers must not run concurrently.
    pub fn set_queued(&self, senders: usize) {
        self.queued.store(senders, Ordering::Relaxed);
    }

    fn counted(&self) -> usize {
        self.outstanding().saturating_sub(self.excused.load(Ordering::Relaxed))
    }

    /// After a pause, what has gathered does not count; each later response reduces it.
    fn excuse(&self, paused: bool, bytes: usize) {
        let excused = match paused {
            true => self.outstanding(),
            false => self.excused.load(Ordering::Relaxed).min(self.outstanding()),
        };
        self.excused.store(excused.saturating_sub(bytes), Ordering::Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
