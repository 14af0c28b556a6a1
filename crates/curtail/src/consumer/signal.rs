//! Bytes that a lane has fetched ahead, and the wake-up of the lane once enough of them are drained.
//!
//! # Invariants
//! - [`LaneSignal::wake_after`] stores its threshold before it reads the drained bytes, and [`LaneSignal::give_back`]
//!   counts before it reads the threshold. Both are read-modify-writes of the same word, so at least one of the two
//!   sees the other.

use super::sync::{AtomicUsize, Notify, Ordering};

/// Bytes in a lane's share, and the wake-up of the lane when they are drained.
#[derive(Debug)]
pub(super) struct LaneSignal {
    /// Wakes the lane for work, for room or to end.
    pub(super) wake: Notify,
    used: AtomicUsize,
    /// Total bytes drained, modulo the word size.
    drained: AtomicUsize,
    /// Value of `drained` at which the lane is woken.
    wake_at: AtomicUsize,
}

impl Default for LaneSignal {
    fn default() -> Self {
        Self {
            wake: Notify::new(),
            used: AtomicUsize::new(0),
            drained: AtomicUsize::new(0),
            wake_at: AtomicUsize::new(usize::MAX),
        }
    }
}

impl LaneSignal {
    /// Bytes in use of the lane's share.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Total bytes drained. Read it before the values that a decision depends on, and pass it to
    /// [`Self::wake_after`].
    pub(super) fn drained(&self) -> usize {
        self.drained.load(Ordering::Acquire)
    }

    /// Wakes the lane once `bytes` more than `since` are drained; immediately if they already are.
    pub(super) fn wake_after(&self, since: usize, bytes: usize) {
        let at = since.saturating_add(bytes);
        self.wake_at.store(at, Ordering::Release);
        if self.drained.fetch_add(0, Ordering::AcqRel) >= at {
            self.wake.notify_one();
        }
    }

    /// Cancels the wake-up: no decision depends on drained bytes.
    pub(super) fn never_wake(&self) {
        self.wake_at.store(usize::MAX, Ordering::Release);
    }

    /// Takes bytes of the lane's share.
    pub(super) fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Frees drained bytes of the lane's share.
    pub(super) fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
        self.drain(bytes);
    }

    /// Counts drained bytes, and wakes the lane if they are enough.
    pub(super) fn drain(&self, bytes: usize) {
        let before = self.drained.fetch_add(bytes, Ordering::AcqRel);
        let at = self.wake_at.load(Ordering::Acquire);
        if before < at && before.saturating_add(bytes) >= at {
            self.wake.notify_one();
        }
    }
}
