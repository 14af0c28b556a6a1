//! How many bytes may be outstanding for a broker, computed from its responses alone.
//!
//! The gate opens for fewer reasons than this upper bound allows: it also knows whether a queue is standing, and how long
//! the bytes of a request may take.

use super::*;
use crate::{
    link::Request,
    path::{Bounds, FLOOR},
};

/// How long a broker's first response may take before the gate opens.
const FIRST_RESPONSE: Duration = Duration::from_millis(100);

/// Most encoded bytes of a record.
const RECORD: usize = 1 << 10;

/// Why a record may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Refused,
    /// The window has room.
    Window,
    /// The broker pauses, so that memory alone bounds its records.
    Lifted,
}

/// The most that may be outstanding for one broker.
#[derive(Debug)]
pub(super) struct Allowance {
    bounds: Bounds,
    /// Upper bound of the bytes that gathered in a pause and do not count.
    excused: usize,
    /// All bytes that were outstanding after a pause, as far as as many still are.
    backlog: usize,
    /// Batches of the widest request that has a response.
    widest: usize,
    /// Largest window that has admitted a record.
    window: usize,
    has_responded: bool,
    was_lost: bool,
    /// Time of the last response on this connection.
    last: Option<Instant>,
}

impl Allowance {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            excused: 0,
            backlog: 0,
            widest: 1,
            window: 0,
            has_responded: false,
            was_lost: false,
            last: None,
        }
    }

    pub(super) fn connected(&mut self) {
        self.last = None;
    }

    pub(super) fn lost(&mut self) {
        self.was_lost = true;
    }

    /// A response, with the bytes that are outstanding before its batches have their outcomes.
    pub(super) fn answered<B, E>(
        &mut self,
        request: &Request<B, E>,
        outstanding: usize,
        now: Instant,
    ) {
        let Some(target) = self.bounds.target else { return };
        let turn = now - self.turn_began(request.written);
        let may_be_late = turn > target;
        if may_be_late {
            (self.excused, self.backlog) = (outstanding, outstanding);
        }
        self.excused = self.excused.min(outstanding).saturating_sub(request.record_bytes);
        self.backlog = self.backlog.min(outstanding);
        self.widest = self.widest.max(request.width);
        self.has_responded = true;
        self.last = Some(now);
    }

    fn turn_began(&self, written: Instant) -> Instant {
        self.last.map_or(written, |last| last.max(written))
    }

    /// Whether memory alone may bound the records, with the oldest request in flight written then.
    fn is_lifted(&self, oldest: Option<Instant>, now: Instant) -> bool {
        let Some(oldest) = oldest else { return self.has_responded || self.was_lost };
        let patience = match self.has_responded {
            true => self.bounds.target.unwrap_or_default(),
            false => FIRST_RESPONSE,
        };
        // The gate counts in whole microseconds.
        now - self.turn_began(oldest) + US >= patience
    }

    /// Bounds of the window.
    fn windows(&self) -> std::ops::RangeInclusive<usize> {
        let Bounds { batch, request, in_flight, .. } = self.bounds;
        if !self.has_responded {
            return request..=request;
        }
        let full = request.min(batch * self.widest);
        FLOOR..=FLOOR.max(full * (in_flight + 1))
    }

    /// What must hold after every step. No window has admitted the bytes `beyond` it, which are outstanding too.
    pub(super) fn check(&self, outstanding: usize, beyond: usize) {
        if self.bounds.target.is_some() {
            let most = self.window + RECORD + self.backlog + beyond;
            assert!(outstanding <= most, "{outstanding} bytes exceed the window: {self:?}");
        }
    }
}

impl World {
    /// Whether the broker's gate admits a record, and why.
    pub(super) fn admission(&mut self, broker: usize) -> Admission {
        let (now, age) = (self.now, self.now - self.began);
        let Broker { link, gate, allowance, .. } = &mut self.brokers[broker];
        let is_admitted = gate.admits(|| age);
        if allowance.bounds.target.is_none() {
            assert!(is_admitted, "a gate without a window is closed");
            return Admission::Lifted;
        }
        let (outstanding, window) = (gate.outstanding(), gate.window());
        let windows = allowance.windows();
        assert!(windows.contains(&window), "a window of {window} bytes: {allowance:?}");
        let has_room = outstanding < window + allowance.excused;
        let is_lifted = allowance.is_lifted(link.in_flight().next().map(|r| r.written), now);
        match is_admitted {
            true if has_room => {
                allowance.window = allowance.window.max(window);
                Admission::Window
            }
            true => {
                assert!(is_lifted, "{outstanding} bytes fill the window: {allowance:?}");
                Admission::Lifted
            }
            false => {
                assert!(outstanding >= window, "a window with room is closed: {allowance:?}");
                Admission::Refused
            }
        }
    }
}
