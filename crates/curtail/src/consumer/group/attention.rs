//! Calls of a group for the application's side, which runs inside polls only.
//!
//! # Invariants
//! - A call is stored before the application's waker is taken, and a poll keeps its waker before it looks for a call:
//!   the poll sees the call, or its waker is woken.
//! - [`Attention::begin`] clears the call before the poll looks for work. A later call stays set, and the poll sees
//!   the work of every earlier call.

use super::sync::{AtomicBool, Ordering};

/// Pending calls, and whether the application polls.
pub(super) struct Attention {
    called: AtomicBool,
    /// Whether the next poll commits positions.
    commit_due: AtomicBool,
    /// Whether the application has polled since the driver last looked.
    polled: AtomicBool,
}

impl Attention {
    pub(super) fn new() -> Self {
        Self {
            called: AtomicBool::new(false),
            commit_due: AtomicBool::new(false),
            polled: AtomicBool::new(false),
        }
    }

    /// Calls for the next poll. The caller then wakes a waiting poll.
    pub(super) fn call(&self) {
        self.called.swap(true, Ordering::AcqRel);
    }

    /// As [`Self::call`], for a commit of positions.
    pub(super) fn call_for_commit(&self) {
        self.commit_due.store(true, Ordering::Relaxed);
        self.call();
    }

    /// Whether a call is pending.
    pub(super) fn is_called(&self) -> bool {
        self.called.load(Ordering::Acquire)
    }

    /// As [`Self::is_called`], from a poll.
    #[inline]
    pub(super) fn poll(&self) -> bool {
        self.polled.store(true, Ordering::Relaxed);
        self.is_called()
    }

    /// Whether the application has polled since the previous call of this function.
    pub(super) fn was_polled(&self) -> bool {
        self.polled.swap(false, Ordering::Relaxed)
    }

    /// Clears the call at the start of a poll, which then sees the reason of the call. [`Self::call`] and this are
    /// swaps, which read the value that they replace: the later one stands.
    pub(super) fn begin(&self) {
        self.called.swap(false, Ordering::AcqRel);
    }

    /// Whether this poll commits positions. Read after [`Self::begin`], which orders these accesses.
    pub(super) fn take_commit(&self) -> bool {
        self.commit_due.load(Ordering::Relaxed) && self.commit_due.swap(false, Ordering::Relaxed)
    }
}
