//! How far lanes may fetch ahead of the application (decision 0021).
//!
//! A lane has a share of `curtail.prefetch.bytes`, and a partition has credit while it holds no more of the share than
//! is free. One that the application does not drain so holds at most what it leaves to the others, however many there
//! are, without a limit for each that would be too small for one alone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::Notify;

#[cfg(test)]
mod tests;

/// What a lane has fetched and the application has not drained, and how the lane hears that it was drained.
#[derive(Debug)]
pub(super) struct LaneSignal {
    /// Wakes the lane: work, room, or the end.
    pub(super) wake: Notify,
    used: AtomicUsize,
    /// Bytes ever drained, modulo the word.
    drained: AtomicUsize,
    /// The lane is woken when so much has been drained.
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
    /// Bytes of the lane's share that are taken.
    pub(super) fn used(&self) -> usize {
        self.used.load(SeqCst)
    }

    /// Bytes ever drained. Read before what a decision depends on, and handed to [`Self::wake_after`].
    pub(super) fn drained(&self) -> usize {
        self.drained.load(SeqCst)
    }

    /// Has the lane woken when `bytes` more than `since` have been drained, at once if they already have.
    pub(super) fn wake_after(&self, since: usize, bytes: usize) {
        let at = since.saturating_add(bytes);
        // Stored before the look, so that what is drained in between is not missed.
        self.wake_at.store(at, SeqCst);
        if self.drained() >= at {
            self.wake.notify_one();
        }
    }

    /// Nothing depends on what is drained.
    pub(super) fn never_wake(&self) {
        self.wake_at.store(usize::MAX, SeqCst);
    }

    fn drain(&self, bytes: usize) {
        let before = self.drained.fetch_add(bytes, SeqCst);
        let at = self.wake_at.load(SeqCst);
        if before < at && before.saturating_add(bytes) >= at {
            self.wake.notify_one();
        }
    }
}

/// What a partition has in the buffer, whichever lane brought it.
#[derive(Debug, Default)]
pub(super) struct Held(AtomicUsize);

impl Held {
    /// Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// Fetched bytes until they are drained: they count for their partition, and for the lane's share until the share is
/// given back early.
#[derive(Debug)]
pub(super) struct Lease {
    signal: Arc<LaneSignal>,
    held: Arc<Held>,
    bytes: usize,
    shared: bool,
}

impl Lease {
    pub(super) fn take(signal: &Arc<LaneSignal>, held: &Arc<Held>, bytes: usize) -> Self {
        signal.used.fetch_add(bytes, SeqCst);
        held.0.fetch_add(bytes, SeqCst);
        Self { signal: signal.clone(), held: held.clone(), bytes, shared: true }
    }

    /// Bytes it stands for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the share back: the records are kept at somebody else's expense.
    pub(super) fn give_share_back(&mut self) {
        if std::mem::take(&mut self.shared) {
            self.signal.used.fetch_sub(self.bytes, SeqCst);
            self.signal.drain(self.bytes);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes, SeqCst);
        if self.shared {
            self.signal.used.fetch_sub(self.bytes, SeqCst);
        }
        self.signal.drain(self.bytes);
    }
}

/// A lane's share at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) total: usize,
    pub(super) used: usize,
}

impl Share {
    fn free(self) -> usize {
        self.total.saturating_sub(self.used)
    }

    /// Whether no partition can be without credit.
    pub(super) fn is_ample(self) -> bool {
        self.used <= self.total / 2
    }

    /// Whether anything may be asked at all.
    pub(super) fn is_spent(self) -> bool {
        self.free() == 0
    }

    /// Whether a partition that holds so much may be asked for more.
    pub(super) fn grants(self, held: usize) -> bool {
        held <= self.free() && !self.is_spent()
    }

    /// How much must be drained until the share is ample.
    pub(super) fn above_half(self) -> usize {
        self.used.saturating_sub(self.total / 2).max(1)
    }

    /// How much must at least be drained before a partition that holds so much can have credit: what it drains
    /// itself counts twice.
    pub(super) fn lacking(self, held: usize) -> usize {
        held.saturating_add(self.used).saturating_sub(self.total).div_ceil(2).max(1)
    }

    /// Bytes to ask for. Half of what is free stays free, for partitions that have nothing yet.
    pub(super) fn request(self) -> usize {
        (self.free() / 2).max(1)
    }
}
