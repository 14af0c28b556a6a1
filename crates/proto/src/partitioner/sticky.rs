//! The current partition of keyless records, and how long they stay with it.

use super::sync::{AtomicU64, Ordering};

/// Records per probe. A probe is one record to a broker that is avoided for being slow, to measure whether it still
/// is. Probes are rare enough not to affect the 99.9th percentile.
pub const PROBE_EVERY: u64 = 2048;

/// The next choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The partition.
    pub partition: u32,
    /// Whether it gets only one record for now.
    pub probe: bool,
}

/// The sticky choice of one topic, shared by every sender without a lock.
///
/// The partition and the bytes it has received since it was chosen live in one word, so that senders see both
/// change together.
#[derive(Debug)]
pub struct Sticky {
    /// Partition in the high half, bytes in the low half.
    state: AtomicU64,
    stickiness: u32,
    /// Bytes of all choices that have ended since the last probe.
    since_probe: AtomicU64,
}

impl Sticky {
    /// Starts at `first`. `stickiness` is `batch.size` in bytes.
    pub fn new(first: u32, stickiness: u32) -> Self {
        Self {
            state: AtomicU64::new(u64::from(first) << 32),
            stickiness: stickiness.max(1),
            since_probe: AtomicU64::new(0),
        }
    }

    /// The partition for the next keyless record.
    pub fn current(&self) -> u32 {
        (self.state.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Records `bytes` sent to `partition`. `batch_leaves` means that the record filled a batch and the broker takes
    /// it now. Only then the choice moves on, so that a switch does not cut a batch short, or keep a waiting one from
    /// growing. After twice the stickiness it moves on in any case.
    ///
    /// `next` is called only when the choice moves on. Its argument is whether a probe is due.
    pub fn sent(
        &self,
        partition: u32,
        bytes: u32,
        batch_leaves: bool,
        next: impl FnOnce(bool) -> Next,
    ) {
        let before = self.state.load(Ordering::Relaxed);
        if (before >> 32) as u32 != partition {
            return;
        }
        let produced = (before as u32).saturating_add(bytes);
        let due = produced >= self.stickiness && batch_leaves || produced >= self.most();
        let after = if due {
            self.move_on(produced, bytes, next)
        } else {
            before & !u64::from(u32::MAX) | u64::from(produced)
        };
        // A sender that loses the race has its bytes uncounted: at most one record's, and only under contention.
        let _ = self.state.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether one more record of `bytes` would use up the choice of `partition`, or the choice has moved already.
    ///
    /// To be asked when that record fits no open batch of the partition. It then goes to the next choice: a batch for it
    /// alone would be a request with one record, sent when `linger.ms` ends.
    pub fn ends_before(&self, partition: u32, bytes: u32) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let produced = state as u32;
        let is_used_up = produced.saturating_add(bytes) >= self.stickiness;
        (state >> 32) as u32 != partition || produced > 0 && produced < self.most() && is_used_up
    }

    /// Moves on from `partition` as if records had used it up, if it is still the choice. `bytes` is the size of a
    /// record, and `next` as for [`Self::sent`].
    pub fn end(&self, partition: u32, bytes: u32, next: impl FnOnce(bool) -> Next) {
        let before = self.state.load(Ordering::Relaxed);
        if (before >> 32) as u32 != partition {
            return;
        }
        let after = self.move_on(before as u32, bytes, next);
        let _ = self.state.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the choice is a probe, which ends with the next record.
    pub fn is_probing(&self) -> bool {
        self.state.load(Ordering::Relaxed) as u32 >= self.most()
    }

    /// Moves on from `partition` now, if it is still the choice: it no longer takes keyless records.
    pub fn leave(&self, partition: u32, next: impl FnOnce(bool) -> Next) {
        if self.current() != partition {
            return;
        }
        // This choice is no probe, because the one it ends may be.
        let after = u64::from(next(false).partition) << 32;
        // Senders may add bytes to the same choice at the same time.
        let mut before = self.state.load(Ordering::Relaxed);
        while (before >> 32) as u32 == partition {
            let left =
                self.state.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
            let Err(now) = left else { return };
            before = now;
        }
    }

    fn most(&self) -> u32 {
        self.stickiness.saturating_mul(2)
    }

    fn move_on(&self, produced: u32, bytes: u32, next: impl FnOnce(bool) -> Next) -> u64 {
        let since = self.since_probe.load(Ordering::Relaxed).saturating_add(u64::from(produced));
        let next = next(since >= PROBE_EVERY * u64::from(bytes));
        self.since_probe.store(if next.probe { 0 } else { since }, Ordering::Relaxed);
        // A probe starts with its bytes used up, so that the choice moves on after one record.
        let used = if next.probe { self.most() } else { 0 };
        u64::from(next.partition) << 32 | u64::from(used)
    }
}
