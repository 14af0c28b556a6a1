//! Limits on fetching ahead of the application (decision 0021).
//!
//! Each lane has a share of `curtail.prefetch.bytes`. A partition has credit while it holds no more bytes than the
//! share has free. A partition that the application does not drain therefore holds at most as much as it leaves to
//! the others. This needs no fixed limit per partition, which would be too small for a single one.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

pub(super) use super::signal::LaneSignal;

#[cfg(test)]
mod tests;

/// Buffered bytes of a partition, from all lanes.
#[derive(Debug, Default)]
pub(super) struct Held(AtomicUsize);

impl Held {
    /// Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// Fetched bytes until they are drained. They count for their partition. They also count for the lane's share until
/// the share is freed early.
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

    /// Bytes of the lease.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frees the lane's share: the bytes of a paused partition have their own limit.
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

/// A snapshot of a lane's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) total: usize,
    pub(super) used: usize,
}

impl Share {
    fn free(self) -> usize {
        self.total.saturating_sub(self.used)
    }

    /// Whether every partition has credit.
    pub(super) fn is_ample(self) -> bool {
        self.used <= self.total / 2
    }

    /// Whether nothing may be requested.
    pub(super) fn is_spent(self) -> bool {
        self.free() == 0
    }

    /// Whether a partition that holds `held` bytes may be fetched.
    pub(super) fn grants(self, held: usize) -> bool {
        held <= self.free() && !self.is_spent()
    }

    /// Bytes to drain until the share is ample.
    pub(super) fn above_half(self) -> usize {
        self.used.saturating_sub(self.total / 2).max(1)
    }

    /// Least bytes to drain before a partition that holds `held` bytes can have credit. Its own drained bytes count
    /// twice.
    pub(super) fn lacking(self, held: usize) -> usize {
        held.saturating_add(self.used).saturating_sub(self.total).div_ceil(2).max(1)
    }

    /// Returns the bytes to request: half of the free bytes. The other half is left for partitions without buffered
    /// records.
    pub(super) fn request(self) -> usize {
        (self.free() / 2).max(1)
    }
}
