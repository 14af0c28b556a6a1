//! When a silent broker counts as being in trouble.
//!
//! A broker that hangs sends no error: its connection stays open and its answers stay away, and waiting for
//! `request.timeout.ms` costs half a minute. What can be known earlier is how long its answers usually take
//! ([`AnswerTime`], smoothed as TCP smooths the round trip, RFC 6298), and so from when on one is unusually late
//! ([`Suspicion::limit`]). The driver of a connection keeps [`Health`] up to date; whoever places records reads it
//! without a lock.

use std::{
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
    time::Duration,
};

/// The limit while no answer has come yet, within floor and ceiling (RFC 6298, 2.1).
const UNTRIED: Duration = Duration::from_secs(1);

/// So many answers in a row that take longer are needed until most of that is taken for usual.
const HINDRANCES: u32 = 64;

/// When an answer is unusually late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Times the usual answer time, deviation included.
    pub multiple: u32,
    /// No answer is late before this.
    pub floor: Duration,
    /// Every answer is late after this.
    pub ceiling: Duration,
}

impl Suspicion {
    /// How old the oldest unanswered request may get before its broker is suspected.
    pub fn limit(&self, usual: &AnswerTime) -> Duration {
        let limit = usual.at_most().map_or(UNTRIED, |most| most.saturating_mul(self.multiple));
        limit.min(self.ceiling).max(self.floor)
    }
}

/// How long a broker's answers usually take: a smoothed mean and a smoothed deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerTime {
    mean: Option<Duration>,
    deviation: Duration,
    last: Duration,
    /// What one takes that has nothing in its way: shorter ones count soon, longer ones late.
    unhindered: Duration,
    was_late: bool,
}

impl AnswerTime {
    /// Takes note of an answer. Times beyond `ceiling` count as `ceiling`: one answer that a frozen broker gave
    /// when it went on must not make the next freeze look usual.
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

    /// The smoothed mean; `None` before the first answer.
    pub fn mean(&self) -> Option<Duration> {
        self.mean
    }

    /// What the next answer is likely to take: the mean, or the last answer where that came sooner. One slow answer says
    /// little, and a broker that has recovered shows it with its first one. `None` before the first answer.
    pub fn likely(&self) -> Option<Duration> {
        self.mean.map(|mean| mean.min(self.last))
    }

    /// Whether the last answer took twice as long as one with nothing in its way. What is only more than nearly all take can be
    /// a matter of microseconds, and says nothing of the next one.
    pub fn was_late(&self) -> bool {
        self.was_late
    }

    /// What hardly any answer exceeds: the mean and four deviations. `None` before the first answer.
    pub fn at_most(&self) -> Option<Duration> {
        self.mean.map(|mean| mean.saturating_add(self.deviation.saturating_mul(4)))
    }

    /// From when on a request had better wait for the answer of the one before it: that answer takes longer than nearly all, or
    /// twice as long as one with nothing in its way. `None` before the first answer.
    ///
    /// Whatever is sent then gains the network's time at most, and has waited for as long as that already. The second bound
    /// holds where the first has risen with the last few answers: a cluster that elects leaders is slow before it
    /// refuses, and what is sent meanwhile is bound to partitions that are about to move.
    pub fn late_after(&self) -> Option<Duration> {
        self.at_most().map(|most| most.min(self.hindered()))
    }

    /// Longer than that takes no answer with nothing in its way.
    fn hindered(&self) -> Duration {
        self.unhindered.saturating_mul(2)
    }
}

/// Whether a broker can be expected to acknowledge; the less so, the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Trouble {
    /// Nothing is known against it.
    #[default]
    Fine = 0,
    /// Its oldest unanswered request is older than the limit. It may hang, or only wait for a replica that does.
    Suspect = 1,
    /// It does not shake hands: it refused the connection, closed or reset it, or hangs, and no new connection stands yet.
    Unreachable = 2,
}

impl Trouble {
    fn of(code: u8) -> Self {
        match code {
            0 => Self::Fine,
            1 => Self::Suspect,
            _ => Self::Unreachable,
        }
    }
}

/// A [`Trouble`] to be read and changed from any task without a lock; relaxed.
#[derive(Debug, Default)]
pub struct AtomicTrouble(AtomicU8);

impl AtomicTrouble {
    /// The trouble now.
    pub fn load(&self) -> Trouble {
        Trouble::of(self.0.load(Ordering::Relaxed))
    }

    /// Changes it; gives the former one.
    pub fn swap(&self, trouble: Trouble) -> Trouble {
        Trouble::of(self.0.swap(trouble as u8, Ordering::Relaxed))
    }
}

/// A broker's state as its driver sees it, to be read from any task without a lock. The values are independent of
/// one another and of everything else: relaxed loads and stores.
#[derive(Debug, Default)]
pub struct Health {
    trouble: AtomicTrouble,
    /// Mean answer time in microseconds; 0 before the first answer.
    usual_us: AtomicU64,
    /// What the next answer is likely to take in microseconds; 0 before the first answer.
    likely_us: AtomicU64,
}

impl Health {
    /// The state now.
    pub fn trouble(&self) -> Trouble {
        self.trouble.load()
    }

    /// Whether there is no trouble.
    pub fn is_fine(&self) -> bool {
        self.trouble() == Trouble::Fine
    }

    /// Changes the state; gives the former one.
    pub fn set(&self, trouble: Trouble) -> Trouble {
        self.trouble.swap(trouble)
    }

    /// The broker's mean answer time; `None` before the first answer.
    pub fn usual(&self) -> Option<Duration> {
        match self.usual_us.load(Ordering::Relaxed) {
            0 => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    /// What the next answer is likely to take ([`AnswerTime::likely`]); `None` before the first answer.
    pub fn likely(&self) -> Option<Duration> {
        match self.likely_us.load(Ordering::Relaxed) {
            0 => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    /// Publishes the answer time.
    pub fn set_usual(&self, usual: &AnswerTime) {
        let micros = |time: Option<Duration>| {
            time.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1))
        };
        self.usual_us.store(micros(usual.mean()), Ordering::Relaxed);
        self.likely_us.store(micros(usual.likely()), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Suspicion = Suspicion {
        multiple: 4,
        floor: Duration::from_millis(200),
        ceiling: Duration::from_secs(2),
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn after(answers: impl IntoIterator<Item = u64>) -> AnswerTime {
        let mut usual = AnswerTime::default();
        for took in answers {
            usual.answered(ms(took), POLICY.ceiling);
        }
        usual
    }

    #[test]
    fn an_untried_broker_gets_a_second() {
        assert_eq!(POLICY.limit(&AnswerTime::default()), ms(1000));
        let impatient = Suspicion { ceiling: ms(300), ..POLICY };
        assert_eq!(impatient.limit(&AnswerTime::default()), ms(300));
    }

    #[test]
    fn the_limit_is_a_multiple_of_what_is_usual_within_floor_and_ceiling() {
        assert_eq!(POLICY.limit(&after([3; 100])), POLICY.floor);
        let limit = POLICY.limit(&after([100; 200]));
        assert!(limit >= ms(400) && limit < ms(410), "{limit:?}");
        assert_eq!(POLICY.limit(&after([1000; 100])), POLICY.ceiling);
    }

    #[test]
    fn answers_that_vary_are_waited_for_longer() {
        let steady = POLICY.limit(&after([100; 100]));
        let varying = POLICY.limit(&after((0..100).map(|n| if n % 2 == 0 { 50 } else { 150 })));
        assert!(varying > steady + ms(400), "{varying:?} {steady:?}");
    }

    #[test]
    fn one_slow_answer_says_little_and_one_quick_one_shows_a_recovery() {
        let mut usual = after([2; 100]);
        usual.answered(ms(100), POLICY.ceiling);
        assert!(usual.likely() < Some(ms(15)), "{usual:?}");
        let mut usual = after([20; 100]);
        usual.answered(ms(1), POLICY.ceiling);
        assert_eq!(usual.likely(), Some(ms(1)));
    }

    /// The mean and the deviation of a dozen slow answers would take every further one for usual.
    #[test]
    fn an_answer_is_late_at_twice_what_is_usual_until_most_take_longer() {
        assert_eq!(AnswerTime::default().late_after(), None);
        let mut usual = after([2; 100]);
        assert!(usual.late_after() < Some(ms(3)) && !usual.was_late(), "steady answers: {usual:?}");
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
    fn one_freeze_is_forgotten_within_some_dozen_answers() {
        let mut usual = after([5; 100]);
        usual.answered(ms(20_000), POLICY.ceiling);
        assert_eq!(POLICY.limit(&usual), POLICY.ceiling);
        for _ in 0..40 {
            usual.answered(ms(5), POLICY.ceiling);
        }
        assert_eq!(POLICY.limit(&usual), POLICY.floor);
    }

    #[test]
    fn a_ceiling_below_the_floor_gives_way() {
        let policy = Suspicion { ceiling: ms(100), ..POLICY };
        assert_eq!(policy.limit(&after([1])), POLICY.floor);
    }

    #[test]
    fn health_is_what_was_set_last() {
        let health = Health::default();
        assert!(health.is_fine());
        assert_eq!(health.usual(), None);
        for trouble in [Trouble::Suspect, Trouble::Unreachable, Trouble::Fine] {
            let former = health.trouble();
            assert_eq!(health.set(trouble), former);
            assert_eq!(health.trouble(), trouble);
        }
        health.set_usual(&after([7]));
        assert_eq!(health.usual(), Some(ms(7)));
    }
}
