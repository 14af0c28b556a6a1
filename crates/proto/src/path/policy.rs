//! When a response is late, by kind of traffic.
//!
//! Each kind has its own [`super::Path`] or, where no response times are kept, only the limit.
//!
//! | traffic | limit | at the limit |
//! |---|---|---|
//! | produce | [`Suspicion::of_produce`] | the broker is suspected (0014) |
//! | fetches, lookups, validations | [`Suspicion::of_fetches`], after the wait allowed | metadata is requested, repeatedly |
//! | one metadata request | [`Suspicion::of_metadata`] | a second broker is asked as well |
//! | all of a metadata refresh | [`attempt`] | it has failed, and is repeated |
//! | admin's leaders and successors of coordinators | [`attempt`], or [`LEAST_LOOKUP`] | they are looked up again |

use std::time::Duration;

use super::ResponseTime;

/// Limit for a produce request before the first response, within floor and ceiling (RFC 6298, 2.1).
const UNTRIED_PRODUCE: Duration = Duration::from_secs(1);

/// Limit for a metadata request before the first response.
const UNTRIED_METADATA: Duration = Duration::from_millis(200);

/// Least limit for a metadata request, however fast the earlier responses were.
const LEAST_METADATA: Duration = Duration::from_millis(50);

/// Least limit of an attempt: with `retry.backoff.max.ms=0` requests would follow each other without a backoff.
const LEAST_ATTEMPT: Duration = Duration::from_millis(10);

/// Least time for a broker to name leaders while a call of the admin client waits for another broker.
pub const LEAST_LOOKUP: Duration = Duration::from_secs(1);

/// Least time before the successor of an unresponsive coordinator is looked up.
pub const LEAST_SUCCESSION: Duration = Duration::from_millis(100);

/// When a response is unusually late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Multiple of the usual response time, deviation included.
    pub multiple: u32,
    /// The limit before the first response, within floor and ceiling.
    pub untried: Duration,
    /// No response is late before this.
    pub floor: Duration,
    /// Every response is late after this.
    pub ceiling: Duration,
}

impl Suspicion {
    /// Of produce requests, from `curtail.suspicion.multiple`, `curtail.suspicion.min.ms` and
    /// `curtail.suspicion.max.ms`.
    pub fn of_produce(multiple: u32, floor: Duration, ceiling: Duration) -> Self {
        Self { multiple, untried: UNTRIED_PRODUCE, floor, ceiling }
    }

    /// Of fetches, offset lookups and validations: a fixed limit. A fetch that reads from disk or waits for a replica
    /// takes long at a healthy broker, so the usual time says little.
    pub fn of_fetches(retry_backoff_max: Duration) -> Self {
        let limit = attempt(retry_backoff_max, 0, Duration::MAX);
        Self { multiple: 1, untried: limit, floor: limit, ceiling: limit }
    }

    /// Of metadata requests: longer than nearly all.
    pub fn of_metadata() -> Self {
        Self {
            multiple: 1,
            untried: UNTRIED_METADATA,
            floor: LEAST_METADATA,
            ceiling: Duration::MAX,
        }
    }

    /// How old the oldest request in flight may get before its broker is suspected.
    pub fn limit(&self, usual: &ResponseTime) -> Duration {
        let limit = usual.at_most().map_or(self.untried, |most| most.saturating_mul(self.multiple));
        limit.min(self.ceiling).max(self.floor)
    }
}

/// How long an attempt may take after this many failures in a row: `retry.backoff.max.ms`, doubled with each failure
/// up to `request.timeout.ms`. An unresponsive broker must not delay the responses of the others, so the first
/// attempts are short.
pub fn attempt(retry_backoff_max: Duration, failures: u32, request_timeout: Duration) -> Duration {
    let first = retry_backoff_max.max(LEAST_ATTEMPT);
    first.saturating_mul(1 << failures.min(16)).min(request_timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn fetches_have_a_fixed_limit() {
        let mut usual = ResponseTime::default();
        for (backoff, limit) in [(1000, 1000), (0, 10), (50, 50)] {
            let policy = Suspicion::of_fetches(ms(backoff));
            assert_eq!(policy.limit(&ResponseTime::default()), ms(limit));
            usual.answered(ms(5), ms(5));
            assert_eq!(policy.limit(&usual), ms(limit));
        }
    }

    #[test]
    fn metadata_is_late_beyond_nearly_all_responses() {
        let policy = Suspicion::of_metadata();
        let mut usual = ResponseTime::default();
        assert_eq!(policy.limit(&usual), ms(200));
        usual.answered(ms(1), ms(1000));
        assert_eq!(policy.limit(&usual), ms(50));
        for _ in 0..100 {
            usual.answered(ms(100), ms(1000));
        }
        assert!(policy.limit(&usual) >= ms(100) && policy.limit(&usual) < ms(110), "{usual:?}");
    }

    #[test]
    fn attempts_double_with_each_failure_up_to_the_timeout() {
        let limits = [0, 1, 2, 5, 40].map(|n| attempt(ms(1000), n, ms(30_000)));
        assert_eq!(limits, [1000, 2000, 4000, 30_000, 30_000].map(ms));
        assert_eq!(attempt(ms(0), 0, ms(30_000)), ms(10));
        assert_eq!(attempt(ms(1000), 0, ms(200)), ms(200));
    }
}
