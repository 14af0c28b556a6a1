//! Due times of an open loop.

#[cfg(test)]
mod tests;

use std::{
    thread,
    time::{Duration, Instant},
};

/// Record `i` is due at `start + i / rate`, independent of the records before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    start: Instant,
    rate: f64,
}

impl Pacer {
    /// `rate` in records a second, above 0.
    pub(crate) fn new(start: Instant, rate: f64) -> Self {
        Self { start, rate }
    }

    pub(crate) fn due(&self, index: u64) -> Instant {
        // Computed from the index, because accumulated steps would drift.
        self.start + Duration::from_nanos((index as f64 * 1e9 / self.rate) as u64)
    }

    /// Sleeps until record `index` is due; returns the due time and the current time. Returns at once if it
    /// is late.
    pub(crate) fn wait(&self, index: u64) -> (Instant, Instant) {
        let due = self.due(index);
        let mut now = Instant::now();
        while now < due {
            thread::sleep(due - now);
            now = Instant::now();
        }
        (due, now)
    }
}

/// Makes this thread's sleeps end on time. The kernel otherwise adds up to 50 us to each to save wake-ups.
pub(crate) fn sleep_precisely() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if nix::sys::prctl::set_timerslack(1).is_err() {
        // Sleeps are then slightly longer. The figures count from the intended time and stay correct.
    }
}
