//! The highest sustainable rate, found by the idea of the OpenMessaging Benchmark's controller.
//!
//! The rate grows by a factor while producers send at the full rate and consumers keep up. If either lags by
//! more than a limit, the factor is halved. The next rate is near the achieved one, reduced so that the
//! backlog drains. The steps get smaller, and the rate converges to the highest sustainable one.

use std::time::Duration;

/// Largest lag, in records, that does not count.
const BACKLOG: f64 = 1000.0;
/// The first rate, in records per second.
pub(super) const FIRST: f64 = 10_000.0;
/// Interval between adjustments.
pub(super) const PERIOD: Duration = Duration::from_secs(3);
/// Smallest growth of a step.
const LEAST: f64 = 0.01;
/// Weight of the achieved rate in the next one; the rest is the intended rate less the backlog.
const ACHIEVED: f64 = 0.2;

#[derive(Clone, Debug)]
pub(super) struct RateController {
    growth: f64,
    published: u64,
    received: u64,
}

impl RateController {
    pub(super) fn new() -> Self {
        Self { growth: 1.0, published: 0, received: 0 }
    }

    /// The next rate after a period at `rate`, from the records acknowledged and received since the
    /// beginning. Consumers receive each record `copies` times.
    pub(super) fn next(
        &mut self,
        rate: f64,
        period: Duration,
        published: u64,
        received: u64,
        copies: u64,
    ) -> f64 {
        let seconds = period.as_secs_f64().max(1e-3);
        let expected = rate * seconds;
        let sent = (published - self.published) as f64;
        let read = (received - self.received) as f64 / copies.max(1) as f64;
        self.published = published;
        self.received = received;
        let unread = (published as f64) - received as f64 / copies.max(1) as f64;
        let unsent = expected - sent;
        let (behind, achieved) = match () {
            () if unread > BACKLOG => (unread, read),
            () if unsent > BACKLOG => (unsent, sent),
            () => {
                let next = rate * (1.0 + self.growth);
                self.growth = (self.growth * 2.0).min(1.0);
                return next;
            }
        };
        self.growth = (self.growth / 2.0).max(LEAST);
        let intended = (expected - behind).max(0.0);
        ((ACHIEVED * achieved + (1.0 - ACHIEVED) * intended) / seconds).max(1.0)
    }
}
