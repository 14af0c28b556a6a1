//! The published part of a broker's model.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{AtomicTrouble, ResponseTime, Trouble};
use crate::plant::{Plant, planted};

/// The published part of a broker's model, for access from any task without a lock. The broker's driver and the
/// holder of the lock of its connection write it. The values are independent of each other and of everything else, so
/// loads and stores are relaxed. Times count from the producer's start.
#[derive(Debug)]
pub struct Gate {
    /// Whether there is a window.
    is_bounded: bool,
    /// Bytes of records without an outcome, sent or not.
    outstanding: AtomicUsize,
    /// Part of them that has gathered in a pause of the broker and does not count.
    ///
    /// **Was a bug:** when these records left for another broker, as many others were admitted before the next response.
    excused: AtomicUsize,
    window: AtomicUsize,
    standing: AtomicBool,
    /// When the turn of the oldest request in flight becomes a pause, in microseconds plus one; 0 if none is in flight.
    pauses_at: AtomicU64,
    /// Whether the broker has responded, or is not expected to.
    has_responded: AtomicBool,
    /// Senders that wait.
    queued: AtomicUsize,
    /// Bytes of `buffer.memory` that records for the broker hold, sent or not.
    held: AtomicUsize,
    /// Bytes held by requests without a response.
    sent: AtomicUsize,
    /// Whether no further request can be sent before a response arrives.
    blocked: AtomicBool,
    /// When the oldest request without a response was written, in microseconds plus one; 0 if every request has its
    /// response.
    waiting_since: AtomicU64,
    trouble: AtomicTrouble,
    /// Mean response time in microseconds; 0 before the first response.
    usual_us: AtomicU64,
    /// Likely time of the next response in microseconds; 0 before the first response.
    likely_us: AtomicU64,
}

impl Gate {
    /// A gate that is closed while this many bytes are outstanding; the window changes with the first response. `None`
    /// for a gate that stays open.
    pub fn new(window: Option<usize>) -> Self {
        Self {
            is_bounded: window.is_some(),
            outstanding: AtomicUsize::new(0),
            excused: AtomicUsize::new(0),
            window: AtomicUsize::new(window.unwrap_or(usize::MAX)),
            standing: AtomicBool::new(false),
            pauses_at: AtomicU64::new(0),
            has_responded: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            waiting_since: AtomicU64::new(0),
            trouble: AtomicTrouble::default(),
            usual_us: AtomicU64::new(0),
            likely_us: AtomicU64::new(0),
        }
    }

    /// The gate if it has a window. Otherwise `buffer.memory` alone bounds the broker's records.
    pub fn if_bounded(self: &Arc<Self>) -> Option<&Arc<Self>> {
        self.is_bounded.then_some(self)
    }

    /// Adds bytes of records.
    pub fn charge(&self, bytes: usize) {
        self.outstanding.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes bytes away that were added.
    pub fn release(&self, bytes: usize) {
        let left = self.outstanding.fetch_sub(bytes, Ordering::Relaxed).saturating_sub(bytes);
        if self.excused.load(Ordering::Relaxed) > left {
            self.excused.fetch_min(left, Ordering::Relaxed);
        }
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
        let has_room = !self.is_full() || planted(Plant::WindowNotKept);
        has_room || self.opens_at().is_some_and(|at| at <= now())
    }

    /// Whether a new sender may append, too: none waits before it.
    pub fn admits(&self, now: impl FnOnce() -> Duration) -> bool {
        self.queued.load(Ordering::Relaxed) == 0 && self.is_open(now)
    }

    /// When a full window opens unless a response comes: the broker pauses. An application that keeps its pace must not
    /// wait for one broker and so send late to all others; its burst goes to memory. But if the queue is standing, the
    /// sender is faster than the broker and gains nothing by it. `None` if only a response or the first request opens the
    /// window.
    pub fn opens_at(&self) -> Option<Duration> {
        if self.is_standing() {
            return None;
        }
        match self.pauses_at.load(Ordering::Relaxed).checked_sub(1) {
            Some(at) => Some(Duration::from_micros(at)),
            // Without a request in flight the records wait for something else than the broker's pace. A broker that has never
            // responded may still be connecting.
            None => self.has_responded.load(Ordering::Relaxed).then_some(Duration::ZERO),
        }
    }

    /// Whether the window is full.
    pub fn is_full(&self) -> bool {
        self.counted() >= self.window()
    }

    /// Whether no request is in flight.
    pub fn is_idle(&self) -> bool {
        self.waiting_since.load(Ordering::Relaxed) == 0
    }

    /// Whether the queue does not come from a pause of the broker.
    pub fn is_standing(&self) -> bool {
        self.standing.load(Ordering::Relaxed)
    }

    /// Publishes the requests in flight.
    pub(crate) fn set_flight(&self, flight: &Flight) {
        let at = |at: Option<Duration>| at.map_or(0, |at| micros(at).saturating_add(1));
        self.sent.store(flight.held, Ordering::Relaxed);
        self.blocked.store(flight.is_full, Ordering::Relaxed);
        self.waiting_since.store(at(flight.oldest), Ordering::Relaxed);
        self.pauses_at.store(at(flight.pauses_at), Ordering::Relaxed);
    }

    /// The connection is lost: no request is in flight.
    pub fn set_idle(&self) {
        self.set_flight(&Flight::default());
    }

    /// Publishes the window after a response.
    pub(super) fn set_window(&self, window: usize, is_standing: bool) {
        self.has_responded.store(true, Ordering::Relaxed);
        self.window.store(window, Ordering::Relaxed);
        self.standing.store(is_standing, Ordering::Relaxed);
    }

    /// The broker cannot be reached: until it responds, memory alone bounds its records.
    pub fn set_unreachable(&self) {
        self.trouble.swap(Trouble::Unreachable);
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

    pub(super) fn counted(&self) -> usize {
        self.outstanding().saturating_sub(self.excused.load(Ordering::Relaxed))
    }

    /// After a pause, what has gathered does not count; each later response reduces it.
    pub(super) fn excuse(&self, paused: bool, bytes: usize) {
        let excused = match paused {
            true => self.outstanding(),
            false => self.excused.load(Ordering::Relaxed).min(self.outstanding()),
        };
        self.excused.store(excused.saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Bytes of `buffer.memory` that records for the broker hold.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Sets [`Self::held`]. Callers must not run concurrently.
    pub fn set_held(&self, bytes: usize) {
        self.held.store(bytes, Ordering::Relaxed);
    }

    /// Bytes held by records that are not in flight.
    pub fn waiting(&self) -> usize {
        self.held().saturating_sub(self.sent.load(Ordering::Relaxed))
    }

    /// Whether no further request can be sent before a response arrives.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Whether records for the broker are in flight or waiting.
    pub fn is_busy(&self) -> bool {
        !self.is_idle() || self.held() != 0
    }

    /// Age of the oldest request without a response.
    pub fn unanswered(&self, now: Duration) -> Option<Duration> {
        match self.waiting_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Duration::from_micros(micros(now).saturating_sub(since - 1))),
        }
    }

    /// Time until a record added now is acknowledged, with `usual` the broker's response time.
    ///
    /// While more can be sent, that is the response time, or the age of a response that is overdue. Otherwise waiting
    /// records go first, at the pace of the bytes in flight: by Little's law the broker takes `sent` bytes in one
    /// response time. Records that merely linger while more can be sent delay nothing.
    pub fn expected_wait(&self, usual: Option<Duration>, now: Duration) -> Duration {
        let answer = usual.unwrap_or_default().max(self.unanswered(now).unwrap_or_default());
        if !self.is_blocked() {
            return answer;
        }
        let sent = self.sent.load(Ordering::Relaxed).max(1);
        let turns = (self.held().max(sent) / sent).min(1 << 20);
        answer.saturating_mul(turns as u32)
    }

    /// Whether the broker can be expected to acknowledge.
    pub fn trouble(&self) -> Trouble {
        self.trouble.load()
    }

    /// Whether there is no trouble.
    pub fn is_fine(&self) -> bool {
        self.trouble() == Trouble::Fine
    }

    /// Sets the trouble and returns the previous one.
    pub fn set_trouble(&self, trouble: Trouble) -> Trouble {
        self.trouble.swap(trouble)
    }

    /// The broker's mean response time; `None` before the first response.
    pub fn usual(&self) -> Option<Duration> {
        time_of(&self.usual_us)
    }

    /// Likely time of the next response ([`ResponseTime::likely`]); `None` before the first response.
    pub fn likely(&self) -> Option<Duration> {
        time_of(&self.likely_us)
    }

    /// Publishes the response time.
    pub(super) fn set_usual(&self, usual: &ResponseTime) {
        let at_least_one = |time: Option<Duration>| time.map_or(0, |time| micros(time).max(1));
        self.usual_us.store(at_least_one(usual.mean()), Ordering::Relaxed);
        self.likely_us.store(at_least_one(usual.likely()), Ordering::Relaxed);
    }
}

/// The requests in flight, for [`Gate`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flight {
    /// Bytes of `buffer.memory` that they hold.
    pub(crate) held: usize,
    /// Whether no further request can be sent.
    pub(crate) is_full: bool,
    /// When the oldest was written.
    pub(crate) oldest: Option<Duration>,
    /// When the turn of the oldest becomes a pause.
    pub(crate) pauses_at: Option<Duration>,
}

fn time_of(us: &AtomicU64) -> Option<Duration> {
    match us.load(Ordering::Relaxed) {
        0 => None,
        us => Some(Duration::from_micros(us)),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn flight(held: usize, is_full: bool, oldest: Duration) -> Flight {
        Flight { held, is_full, oldest: Some(oldest), pauses_at: None }
    }

    #[test]
    fn an_idle_broker_takes_its_usual_time() {
        let gate = Gate::new(None);
        assert_eq!(gate.expected_wait(None, ms(5)), Duration::ZERO);
        assert_eq!(gate.expected_wait(Some(ms(3)), ms(5)), ms(3));
        assert!(!gate.is_busy());
    }

    #[test]
    fn an_overdue_response_counts_from_its_request() {
        let gate = Gate::new(None);
        gate.set_flight(&flight(100, false, Duration::ZERO));
        assert!(gate.is_busy());
        assert_eq!(gate.expected_wait(Some(ms(3)), ms(2)), ms(3));
        assert_eq!(gate.expected_wait(Some(ms(3)), ms(70)), ms(70));
        gate.set_idle();
        assert_eq!(gate.expected_wait(Some(ms(3)), ms(70)), ms(3));
    }

    #[test]
    fn a_backlog_that_has_left_makes_no_room() {
        let gate = Gate::new(Some(1000));
        gate.charge(5000);
        gate.excuse(true, 0);
        assert!(!gate.is_full(), "it does not count");
        gate.release(5000);
        gate.charge(1000);
        assert!(gate.is_full(), "these records came after the pause");
    }

    #[test]
    fn a_queue_counts_only_while_no_more_can_be_sent() {
        let gate = Gate::new(None);
        gate.set_held(10_000);
        gate.set_flight(&flight(1_000, false, ms(10)));
        assert_eq!(gate.expected_wait(Some(ms(4)), ms(10)), ms(4));
        gate.set_flight(&flight(1_000, true, ms(10)));
        assert_eq!(gate.expected_wait(Some(ms(4)), ms(10)), ms(40));
        assert_eq!(gate.waiting(), 9_000);
    }

    #[test]
    fn a_gate_without_a_window_stays_open() {
        let gate = Arc::new(Gate::new(None));
        gate.charge(usize::MAX / 2);
        assert!(gate.if_bounded().is_none() && gate.admits(|| Duration::ZERO));
    }

    #[test]
    fn trouble_and_response_time_are_what_was_set_last() {
        let gate = Gate::new(None);
        assert!(gate.is_fine());
        assert_eq!(gate.usual(), None);
        for trouble in [Trouble::Suspect, Trouble::Unreachable, Trouble::Fine] {
            let former = gate.trouble();
            assert_eq!(gate.set_trouble(trouble), former);
            assert_eq!(gate.trouble(), trouble);
        }
        let mut usual = ResponseTime::default();
        usual.answered(ms(7), ms(1000));
        gate.set_usual(&usual);
        assert_eq!(gate.usual(), Some(ms(7)));
    }
}
