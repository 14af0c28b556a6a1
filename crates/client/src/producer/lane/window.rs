//! The broker's window and its pace (decision 0098).

use std::time::Instant as StdInstant;

use curtail_proto::path::{Oldest, Response, SMALL};
use tokio::time::Instant;

use super::{Lane, Request, Up};
use crate::producer::shared::Shared;

impl Lane {
    /// Makes the driver send what lingers, because a sender waits for room.
    pub(in crate::producer) fn hurry(&self) {
        // Otherwise the next response makes it look.
        if self.gate.is_idle() {
            self.wake();
        }
    }

    /// Most bytes of the next request, unless its first batch is larger.
    pub(super) fn next_request_limit(&self, up: &Up, shared: &Shared, now: StdInstant) -> usize {
        let most = shared.config.max_request_size;
        let is_probe = up.in_flight.is_empty() && up.path.wants_probe(now);
        if is_probe { most.min(SMALL) } else { most }
    }

    /// Publishes the requests in flight, for the routing of records and the window.
    pub(super) fn publish_load(&self, up: &Up) {
        let oldest = up.in_flight.oldest();
        let oldest = oldest.map(|request| Oldest {
            written: request.written.into_std(),
            bytes: request.record_bytes,
        });
        let (requests, began) = (up.in_flight.len(), self.began.into_std());
        up.path.publish(requests, up.sent_bytes, oldest, began, &self.gate);
    }

    /// Takes the broker's pace from a response.
    pub(super) fn measure(&self, up: &mut Up, request: &Request, now: Instant) {
        let response = Response {
            written: request.written.into_std(),
            ahead: request.ahead,
            bytes: request.record_bytes,
            batches: request.width,
            is_small: request.is_small,
            now: now.into_std(),
        };
        up.path.answered(&response, &self.gate);
    }
}
