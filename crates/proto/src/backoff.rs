//! Exponential backoff with jitter (KIP-580).

use std::time::Duration;

use crate::later::FAR;

/// How long to wait before the n-th attempt: `initial * 2^n`, at most `max`, give or take 20%.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// `retry.backoff.ms`: the wait after the first failure.
    pub initial: Duration,
    /// `retry.backoff.max.ms`: the longest wait, before jitter.
    pub max: Duration,
}

/// First wait before a retry after CONCURRENT_TRANSACTIONS, when the previous transaction is still completing. The
/// Java client waits as long (KAFKA-5477): the markers of a transaction take milliseconds.
const SOON: Duration = Duration::from_millis(20);

impl Backoff {
    /// The same backoff with a first wait of 20 ms, for a situation that usually ends within milliseconds.
    ///
    /// The waits double up to the same maximum: no wait is longer than the time since the first failure plus 20 ms,
    /// and a lasting situation does not cause a storm of requests.
    #[must_use]
    pub fn soon(&self) -> Self {
        Self { initial: SOON.min(self.initial), ..*self }
    }

    /// Shorter waits, for one small request that must wait for others, usually for milliseconds: from 20 ms up to the
    /// first wait of this backoff.
    #[must_use]
    pub fn brief(&self) -> Self {
        Self { max: self.initial, ..self.soon() }
    }

    /// Returns the wait after `failures` failures in a row; zero for 0. `unit` is a random draw from `[0, 1)`.
    pub fn after(&self, failures: u32, unit: f64) -> Duration {
        if failures == 0 {
            return Duration::ZERO;
        }
        let doubled = self.initial.saturating_mul(1u32 << (failures - 1).min(20));
        doubled.min(self.max.max(self.initial)).min(FAR).mul_f64(0.8 + 0.4 * unit.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KAFKA: Backoff =
        Backoff { initial: Duration::from_millis(100), max: Duration::from_millis(1000) };

    #[test]
    fn doubles_up_to_the_maximum() {
        let middle: Vec<u64> = (0..8).map(|n| KAFKA.after(n, 0.5).as_millis() as u64).collect();
        assert_eq!(middle, [0, 100, 200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(KAFKA.after(u32::MAX, 0.5), Duration::from_secs(1));
    }

    #[test]
    fn a_lasting_situation_is_retried_at_the_longest_interval_after_soon_too() {
        let waits: Vec<u64> =
            (1..9).map(|n| KAFKA.soon().after(n, 0.5).as_millis() as u64).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        let impatient = Backoff { initial: Duration::from_millis(5), ..KAFKA };
        assert_eq!(impatient.soon(), impatient);
    }

    #[test]
    fn jitter_is_a_fifth_either_way() {
        assert_eq!(KAFKA.after(1, 0.0), Duration::from_millis(80));
        assert_eq!(KAFKA.after(1, 1.0), Duration::from_millis(120));
    }
}
