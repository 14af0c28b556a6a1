//! Deadlines that cannot overflow.
//!
//! A caller may pass any [`Duration`], up to [`Duration::MAX`], and brokers name durations too. An instant that far ahead
//! does not exist, and `Instant + Duration` panics. The lint `arithmetic_side_effects` keeps that operator out of the
//! crates that hold deadlines; [`Later::later`] takes its place.

use std::{ops::Add, time::Duration};

/// Longest time to a deadline: a hundred years. A longer one counts as an indefinite wait.
pub const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// An instant, of `std` or of tokio.
pub trait Later: Add<Duration, Output = Self> + Sized {
    /// The instant `wait` later, or [`FAR`] later if `wait` is longer.
    #[must_use]
    fn later(self, wait: Duration) -> Self;
}

impl<T: Add<Duration, Output = T>> Later for T {
    #[expect(clippy::arithmetic_side_effects, reason = "the one bounded addition")]
    fn later(self, wait: Duration) -> Self {
        self + wait.min(FAR)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn deadlines_of_any_duration_exist_and_keep_their_order() {
        let now = Instant::now();
        let day = Duration::from_secs(24 * 3600);
        let waits = [Duration::ZERO, Duration::from_nanos(1), day, FAR, Duration::MAX];
        let deadlines = waits.map(|wait| now.later(wait));
        assert!(deadlines.is_sorted());
        assert_eq!(deadlines[2], now + day);
        assert_eq!(deadlines[4], now + FAR);
        assert_eq!(deadlines[4].later(Duration::MAX), now + 2 * FAR, "a deadline may be moved");
    }
}
