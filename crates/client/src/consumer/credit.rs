//! How far lanes may fetch ahead of the application (decision 0021).
//!
//! A lane has a share of `curtail.prefetch.bytes`, and a partition has credit while it holds no more of the share than
//! is free. One that the application does not drain so holds at most what it leaves to the others, however many there
//! are, without a limit for each that would be too small for one alone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

pub(super) use super::signal::LaneSignal;

#[cfg(test)]
mod tests;

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
        signal.take(bytes);
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
            self.signal.give_back(self.bytes);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes, SeqCst);
        match self.shared {
            true => self.signal.give_back(self.bytes),
            false => self.signal.drain(self.bytes),
        }
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
