//! A topic's door, and its kept partitions. The append path reads both without a lock.

use std::collections::BTreeSet;

use super::sync::{AtomicU8, AtomicU64, Mutex, Ordering};

/// Avoided partitions whose keyless records stay because no partition is better.
///
/// A task reads [`Self::ends`] before it searches for a better partition. If a broker's trouble ends after
/// that, [`Self::keep`] returns true, or [`Self::take`] returns the kept partition: no record stays once there is a
/// better place.
///
/// A task that counts the end of a broker's trouble with `ends` must also see that it ended, hence release and acquire.
/// **Was a bug:** both were relaxed. On processors that reorder loads, a search could miss a recovered broker and its
/// records stay.
#[derive(Debug)]
pub(super) struct Kept {
    ends: AtomicU64,
    partitions: Mutex<BTreeSet<u32>>,
}

impl Kept {
    pub(super) fn new() -> Self {
        Self { ends: AtomicU64::new(0), partitions: Mutex::new(BTreeSet::new()) }
    }

    /// Number of troubles that have ended. One load on the append path.
    pub(super) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Acquire)
    }

    /// Keeps a partition's records. Returns whether a trouble has ended since `ends`, so that another place may be
    /// better.
    pub(super) fn keep(&self, index: u32, ends: u64) -> bool {
        let mut partitions = self.partitions.lock();
        partitions.insert(index);
        self.ends() != ends
    }

    /// Counts the end of a broker's trouble. Returns the partitions whose records may now move.
    pub(super) fn take(&self) -> BTreeSet<u32> {
        let mut partitions = self.partitions.lock();
        self.ends.fetch_add(1, Ordering::Release);
        std::mem::take(&mut partitions)
    }
}

/// Whether records may enter the topic, and whether any have. One relaxed load on the append path.
///
/// Closed while records of the topic wait for its metadata, so that no later record overtakes them. Also closed when
/// the topic has been idle for `metadata.max.idle.ms`: its next record fetches the metadata. Partitions stay, because
/// they hold the producer's sequence numbers.
#[derive(Debug)]
pub(super) struct Door(AtomicU8);

impl Door {
    const UNUSED: u8 = 0;
    const USED: u8 = 1;
    const CLOSED: u8 = 2;

    /// Creates a closed door.
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(Self::CLOSED))
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::CLOSED
    }

    /// Admits a record if the door is open.
    pub(super) fn enter(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Self::USED => true,
            Self::UNUSED => self.swap(Self::UNUSED, Self::USED) || self.is_open(),
            _ => false,
        }
    }

    pub(super) fn open(&self) {
        self.swap(Self::CLOSED, Self::UNUSED);
    }

    /// Closes the door, unless it was used since [`Self::was_used`].
    pub(super) fn close(&self) -> bool {
        self.swap(Self::UNUSED, Self::CLOSED) || !self.is_open()
    }

    /// Whether a record has entered since the previous call.
    pub(super) fn was_used(&self) -> bool {
        self.swap(Self::USED, Self::UNUSED)
    }

    fn swap(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
