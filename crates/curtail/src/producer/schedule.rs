//! Time of the next look for overdue records, brought forward from any task.
//!
//! # Invariants
//! - [`Schedule::begin`] comes before the look. A deadline that is announced under the lock of the record's queue is
//!   either kept for the next look, or the running look finds the record.

use std::future::Future;

use super::sync::{AtomicU64, Notify, Ordering};

/// The time of the next look, in the caller's units.
pub(super) struct Schedule {
    /// [`NEVER`] during a look.
    next: AtomicU64,
    is_sooner: Notify,
}

pub(super) const NEVER: u64 = u64::MAX;

impl Schedule {
    /// The first look is due at 0.
    pub(super) fn new() -> Self {
        Self { next: AtomicU64::new(0), is_sooner: Notify::new() }
    }

    /// Schedules a look at this time at the latest.
    pub(super) fn no_later_than(&self, at: u64) {
        if self.next.fetch_min(at, Ordering::AcqRel) > at {
            self.is_sooner.notify_one();
        }
    }

    /// Begins a look: later deadlines count for the next look.
    pub(super) fn begin(&self) {
        self.next.store(NEVER, Ordering::Release);
    }

    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Waits until a look is due. One task calls this.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn due<S: Future<Output = ()>>(&self, sleep_until: impl Fn(u64) -> S) {
        loop {
            tokio::select! {
                biased;
                () = sleep_until(self.next()) => return,
                () = self.is_sooner.notified() => {}
            }
        }
    }
}
