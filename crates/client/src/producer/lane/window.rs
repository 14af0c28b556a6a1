//! The broker's window and its pace (decision 0098).

use std::time::Instant as StdInstant;

use curtail_proto::{
    later::Later,
    path::{Response, SMALL},
    suspicion::Trouble,
};
use tokio::time::Instant;

use super::{Lane, Request, Up};
use crate::producer::shared::Shared;

impl Lane {
    /// Whether the broker's window is full.
    pub(super) fn is_full(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.is_full())
    }

    /// Makes the driver send what lingers, because a sender waits for room.
    pub(in crate::producer) fn hurry(&self) {
        // Otherwise the next response makes it look.
        if self.gate.as_ref().is_some_and(|gate| gate.is_idle()) {
            self.wake();
        }
    }

    /// Whether the requests in flight keep the broker busy, or the next one should measure the round trip alone.
    pub(super) fn keeps_busy(&self, in_flight: usize, now: StdInstant) -> bool {
        if self.gate.is_none() {
            return false;
        }
        let path = self.path.lock();
        in_flight >= path.depth() || path.wants_probe(now)
    }

    /// Most bytes of the next request, unless its first batch is larger.
    pub(super) fn next_request_limit(&self, up: &Up, shared: &Shared, now: StdInstant) -> usize {
        let most = shared.config.max_request_size;
        let is_probe =
            self.gate.is_some() && up.in_flight.is_empty() && self.path.lock().wants_probe(now);
        if is_probe { most.min(SMALL) } else { most }
    }

    /// Publishes the in-flight load for the routing of records.
    pub(super) fn publish_load(&self, up: &Up) {
        let oldest = up.in_flight.oldest();
        let since = oldest.map(|request| request.written.saturating_duration_since(self.began));
        let Some(gate) = &self.gate else {
            let is_full = up.in_flight.len() >= self.max_in_flight;
            return self.load.set_sent(up.sent_bytes, is_full, since);
        };
        let path = self.path.lock();
        self.load.set_sent(up.sent_bytes, up.in_flight.len() >= path.depth(), since);
        let pauses_at = oldest.map(|request| {
            let began = path.turn_began(request.written.into_std());
            let at = began.later(path.patience(request.record_bytes));
            Instant::from_std(at).saturating_duration_since(self.began)
        });
        gate.set_turn(pauses_at);
    }

    /// Takes the broker's pace from a response, and sets the window.
    pub(super) fn measure(&self, request: &Request, now: Instant) {
        let Some(gate) = &self.gate else { return };
        let response = Response {
            written: request.written.into_std(),
            ahead: request.ahead,
            bytes: request.record_bytes,
            batches: request.width,
            is_small: request.is_small,
            now: now.into_std(),
        };
        self.path.lock().answered(&response, gate);
    }

    /// Records that the broker completes no handshake.
    pub(in crate::producer) fn set_unreachable(&self) {
        if let Some(gate) = &self.gate {
            gate.give_up();
        }
        self.health.set(Trouble::Unreachable);
    }
}
