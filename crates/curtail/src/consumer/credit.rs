//! Counts of the bytes fetched ahead of the application. [`curtail_proto::fetcher`] sets the limits (decision 0021).

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
