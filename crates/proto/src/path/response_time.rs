//! A broker's usual response time, and when a response is unusually late.
//!
//! An unresponsive broker sends no error: its connection stays open without responses, and waiting for
//! `request.timeout.ms` costs half a minute. The usual response time is known earlier ([`ResponseTime`], smoothed as
//! TCP smooths the round trip, RFC 6298). It shows from when on a response is unusually late
//! ([`super::Suspicion::limit`]).

use std::time::Duration;

use crate::plant::{Plant, planted};

/// Weight of `ResponseTime::unhindered`: about this many slower responses in a row make most of their time usual.
const HINDRANCES: u32 = 64;

/// A broker's usual response time: a smoothed mean and a smoothed deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseTime {
    mean: Option<Duration>,
    deviation: Duration,
    last: Duration,
    /// Response time of an unobstructed request: shorter times count soon, longer ones late.
    unhindered: Duration,
    was_late: bool,
}

impl ResponseTime {
    /// Records a response. Times beyond `ceiling` count as `ceiling`: one response from a frozen broker that has
    /// resumed must not make the next freeze look usual.
    pub fn answered(&mut self, took: Duration, ceiling: Duration) {
        let took = took.min(ceiling);
        self.last = took;
        self.was_late = self.mean.is_some() && took > self.hindered();
        let Some(mean) = self.mean else {
            self.mean = Some(took);
            self.deviation = took / 2;
            self.unhindered = took;
            return;
        };
        self.deviation = self.deviation.saturating_mul(3).saturating_add(mean.abs_diff(took)) / 4;
        self.mean = Some(mean.saturating_mul(7).saturating_add(took) / 8);
        self.unhindered = match took.checked_sub(self.unhindered) {
            Some(longer) => self.unhindered.saturating_add(longer / HINDRANCES),
            None => self.unhindered.saturating_mul(7).saturating_add(took) / 8,
        };
    }

    /// The smoothed mean; `None` before the first response.
    pub fn mean(&self) -> Option<Duration> {
        self.mean
    }

    /// Likely time of the next response: the mean, or the last response time if that is shorter. One slow response
    /// says little, and a broker that has recovered shows it with its first response. `None` before the first
    /// response.
    pub fn likely(&self) -> Option<Duration> {
        self.mean.map(|mean| mean.min(self.last))
    }

    /// Whether the last response took twice as long as an unobstructed one. The bound of [`Self::at_most`] may be
    /// exceeded by microseconds, which does not predict the next response.
    pub fn was_late(&self) -> bool {
        self.was_late
    }

    /// Upper bound of nearly all response times: the mean and four deviations. `None` before the first response.
    pub fn at_most(&self) -> Option<Duration> {
        self.mean.map(|mean| mean.saturating_add(self.deviation.saturating_mul(4)))
    }

    /// From when on a request should wait for the response to the previous one: that response takes longer than
    /// nearly all, or twice as long as an unobstructed one. `None` before the first response.
    ///
    /// A request sent then saves at most the network's time, and it has waited longer than that already. The second
    /// bound matters when the first has risen with the last few responses: a cluster that elects leaders is slow
    /// before it refuses, and records sent in that time are bound to partitions that are about to move.
    pub fn late_after(&self) -> Option<Duration> {
        self.at_most().map(|most| most.min(self.hindered()))
    }

    /// Upper bound on the response time of an unobstructed request.
    fn hindered(&self) -> Duration {
        match planted(Plant::LateByLastResponses) {
            true => Duration::MAX,
            false => self.unhindered.saturating_mul(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Suspicion;

    const POLICY: Suspicion = Suspicion {
        multiple: 4,
        untried: Duration::from_secs(1),
        floor: Duration::from_millis(200),
        ceiling: Duration::from_secs(2),
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn after(answers: impl IntoIterator<Item = u64>) -> ResponseTime {
        let mut usual = ResponseTime::default();
        for took in answers {
            usual.answered(ms(took), POLICY.ceiling);
        }
        usual
    }

    #[test]
    fn an_untried_broker_gets_a_second() {
        assert_eq!(POLICY.limit(&ResponseTime::default()), ms(1000));
        let impatient = Suspicion { ceiling: ms(300), ..POLICY };
        assert_eq!(impatient.limit(&ResponseTime::default()), ms(300));
    }

    #[test]
    fn the_limit_is_a_multiple_of_the_usual_time_within_floor_and_ceiling() {
        assert_eq!(POLICY.limit(&after([3; 100])), POLICY.floor);
        let limit = POLICY.limit(&after([100; 200]));
        assert!(limit >= ms(400) && limit < ms(410), "{limit:?}");
        assert_eq!(POLICY.limit(&after([1000; 100])), POLICY.ceiling);
    }

    #[test]
    fn varying_responses_raise_the_limit() {
        let steady = POLICY.limit(&after([100; 100]));
        let varying = POLICY.limit(&after((0..100).map(|n| if n % 2 == 0 { 50 } else { 150 })));
        assert!(varying > steady + ms(400), "{varying:?} {steady:?}");
    }

    #[test]
    fn one_slow_response_says_little_and_one_quick_one_shows_a_recovery() {
        let mut usual = after([2; 100]);
        usual.answered(ms(100), POLICY.ceiling);
        assert!(usual.likely() < Some(ms(15)), "{usual:?}");
        let mut usual = after([20; 100]);
        usual.answered(ms(1), POLICY.ceiling);
        assert_eq!(usual.likely(), Some(ms(1)));
    }

    /// The mean and the deviation of a dozen slow responses would make every further one usual.
    #[test]
    fn a_response_is_late_at_twice_the_usual_time_until_most_take_longer() {
        assert_eq!(ResponseTime::default().late_after(), None);
        let mut usual = after([2; 100]);
        assert!(
            usual.late_after() < Some(ms(3)) && !usual.was_late(),
            "steady responses: {usual:?}"
        );
        for _ in 0..12 {
            usual.answered(ms(20), POLICY.ceiling);
            assert!(usual.was_late(), "{usual:?}");
        }
        assert!(usual.late_after() < Some(ms(11)) && usual.at_most() > Some(ms(30)), "{usual:?}");
        usual.answered(ms(3), POLICY.ceiling);
        assert!(!usual.was_late(), "{usual:?}");
        let mut slower = after([2; 100]);
        let answers = (0..200).filter(|_| {
            slower.answered(ms(20), POLICY.ceiling);
            slower.was_late()
        });
        assert!((20..100).contains(&answers.count()), "{slower:?}");
    }

    #[test]
    fn one_freeze_is_forgotten_within_forty_responses() {
        let mut usual = after([5; 100]);
        usual.answered(ms(20_000), POLICY.ceiling);
        assert_eq!(POLICY.limit(&usual), POLICY.ceiling);
        for _ in 0..40 {
            usual.answered(ms(5), POLICY.ceiling);
        }
        assert_eq!(POLICY.limit(&usual), POLICY.floor);
    }

    #[test]
    fn a_ceiling_below_the_floor_is_ignored() {
        let policy = Suspicion { ceiling: ms(100), ..POLICY };
        assert_eq!(policy.limit(&after([1])), POLICY.floor);
    }
}
