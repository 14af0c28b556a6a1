//! The highest rate that can be kept: where the controller of the OpenMessaging Benchmark gets to, by the same idea.
//!
//! The rate grows by a factor as long as producers send all that they are to and consumers keep up. When either falls
//! behind by more than a limit, the factor is halved, and the next rate is near what was achieved, less what it takes to
//! work the backlog off. So the steps get smaller, and the rate comes to rest around the highest one.

use std::time::Duration;

/// Records that may be behind before it counts.
const BACKLOG: f64 = 1000.0;
/// The first rate to try, records a second.
pub(super) const FIRST: f64 = 10_000.0;
/// How often the rate is looked at.
pub(super) const PERIOD: Duration = Duration::from_secs(3);
/// The least growth of a step.
const LEAST: f64 = 0.01;
/// Of the next rate, how much is what was achieved; the rest is what was intended less the backlog.
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

    /// The next rate after a period at `rate`, from the records acknowledged and received since the beginning, where each
    /// record is to be received `copies` times.
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
