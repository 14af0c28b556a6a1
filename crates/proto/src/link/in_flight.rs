//! Requests in flight on one connection.
//!
//! Kafka responds to a connection's requests strictly in order, so the next response must belong to the oldest
//! request. A correlation id that does not match means that the stream is broken for good.

use std::{collections::VecDeque, time::Instant};

/// A request without a response.
#[derive(Debug)]
struct Waiting<T> {
    correlation_id: i32,
    deadline: Instant,
    request: T,
}

/// The response does not belong to the oldest request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("response has correlation id {got}, expected {expected:?}: the connection is out of step")]
pub struct OutOfStep {
    /// Correlation id of the response.
    pub got: i32,
    /// Correlation id of the oldest request; `None` if no request is in flight.
    pub expected: Option<i32>,
}

/// The FIFO of requests in flight on a connection.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    waiting: VecDeque<Waiting<T>>,
    next_correlation_id: i32,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), next_correlation_id: 0 }
    }
}

impl<T> InFlight<T> {
    /// The id to put into the next request's header.
    pub(super) fn next_correlation_id(&self) -> i32 {
        self.next_correlation_id
    }

    /// Records the request written with [`Self::next_correlation_id`].
    pub(super) fn sent(&mut self, request: T, deadline: Instant) {
        let correlation_id = self.next_correlation_id;
        self.skip();
        self.waiting.push_back(Waiting { correlation_id, deadline, request });
    }

    /// Withdraws the newest request; no byte of it was written. The next request gets its correlation id.
    pub(super) fn withdraw(&mut self) -> Option<T> {
        let Waiting { correlation_id, request, .. } = self.waiting.pop_back()?;
        self.next_correlation_id = correlation_id;
        Some(request)
    }

    /// Moves the newest request's deadline, because its last byte was written only now.
    pub(super) fn written(&mut self, deadline: Instant) {
        if let Some(newest) = self.waiting.back_mut() {
            newest.deadline = deadline;
        }
    }

    /// Consumes a correlation id for a request without a response (acks=0).
    pub(super) fn skip(&mut self) {
        self.next_correlation_id = self.next_correlation_id.wrapping_add(1) & i32::MAX;
    }

    /// Returns the request that a response belongs to.
    pub(super) fn answered(&mut self, correlation_id: i32) -> Result<T, OutOfStep> {
        match self.waiting.front() {
            Some(oldest) if oldest.correlation_id == correlation_id => {}
            other => {
                return Err(OutOfStep {
                    got: correlation_id,
                    expected: other.map(|w| w.correlation_id),
                });
            }
        }
        self.waiting
            .pop_front()
            .map(|w| w.request)
            .ok_or(OutOfStep { got: correlation_id, expected: None })
    }

    /// When the oldest request times out.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|w| w.deadline)
    }

    /// The oldest request without a response.
    pub(super) fn oldest(&self) -> Option<&T> {
        self.waiting.front().map(|w| &w.request)
    }

    /// The newest request without a response.
    pub(super) fn newest(&self) -> Option<&T> {
        self.waiting.back().map(|w| &w.request)
    }

    /// The requests without a response, oldest first.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.waiting.iter().map(|w| &w.request)
    }

    /// The requests without a response, oldest first, mutable.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.waiting.iter_mut().map(|w| &mut w.request)
    }

    /// Removes all requests without a response, oldest first, when the connection is lost or closed.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.waiting.drain(..).map(|w| w.request)
    }

    /// Number of requests without a response.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether every request has its response.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_out_of_order_are_refused() {
        let now = Instant::now();
        let mut fifo = InFlight::default();
        for name in ["a", "b"] {
            fifo.sent(name, now);
        }
        assert_eq!(fifo.answered(1), Err(OutOfStep { got: 1, expected: Some(0) }));
        assert_eq!(fifo.answered(0), Ok("a"));
        assert_eq!(fifo.answered(1), Ok("b"));
        assert_eq!(fifo.answered(2), Err(OutOfStep { got: 2, expected: None }));
    }

    #[test]
    fn a_withdrawn_request_leaves_no_gap_in_the_correlation_ids() {
        let now = Instant::now();
        let mut fifo = InFlight::default();
        fifo.sent("a", now);
        fifo.sent("b", now);
        assert_eq!(fifo.withdraw(), Some("b"));
        assert_eq!(fifo.next_correlation_id(), 1);
        fifo.sent("b without its overdue batch", now);
        assert_eq!(fifo.answered(0), Ok("a"));
        assert_eq!(fifo.answered(1), Ok("b without its overdue batch"));
        assert_eq!(fifo.withdraw(), None);
    }

    #[test]
    fn a_request_written_late_gets_its_whole_timeout() {
        let now = Instant::now();
        let second = std::time::Duration::from_secs(1);
        let mut fifo = InFlight::default();
        fifo.sent("a", now + second);
        fifo.written(now + 5 * second);
        assert_eq!(fifo.next_deadline(), Some(now + 5 * second));
    }

    #[test]
    fn correlation_ids_wrap_to_zero_and_stay_positive() {
        let mut fifo = InFlight { waiting: VecDeque::new(), next_correlation_id: i32::MAX };
        fifo.sent((), Instant::now());
        assert_eq!(fifo.next_correlation_id(), 0);
        assert_eq!(fifo.answered(i32::MAX), Ok(()));
    }
}
