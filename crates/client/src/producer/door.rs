//! A topic's door, and its partitions whose records stay because no partition is better. The append path reads both without a lock.

use std::collections::BTreeSet;

use super::sync::{AtomicU8, AtomicU64, Mutex, Ordering};

/// Avoided partitions whose keyless records stay because no partition is better.
///
/// A task reads [`Self::ends`] before it searches for a better partition. If a trouble ends after that, [`Self::keep`]
/// says so, or [`Self::take`] returns the kept partition: nothing stays once there is a better place.
///
/// A task that counts the end of a trouble with `ends` must also see that it ended, hence release and acquire. **Was a
/// bug:** both were relaxed. On processors that reorder loads, a search could miss a recovered broker and its records stay.
#[derive(Debug)]
pub(super) struct Kept {
    ends: AtomicU64,
    partitions: Mutex<BTreeSet<u32>>,
}

impl Kept {
    pub(super) fn new() -> Self {
        Self { ends: AtomicU64::new(0), partitions: Mutex::new(BTreeSet::new()) }
    }

    /// How often a trouble has ended. One load on the append path.
    pub(super) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Acquire)
    }

    /// Records stay here. Says whether a trouble has ended since there were `ends`, so that they may not have to.
    pub(super) fn keep(&self, index: u32, ends: u64) -> bool {
        let mut partitions = self.partitions.lock();
        partitions.insert(index);
        self.ends() != ends
    }

    /// A trouble has ended: where to look for what may go elsewhere now.
    pub(super) fn take(&self) -> BTreeSet<u32> {
        let mut partitions = self.partitions.lock();
        self.ends.fetch_add(1, Ordering::Release);
        std::mem::take(&mut partitions)
    }
}

/// Whether records may enter the topic, and whether any have. One relaxed load on the append path.
///
/// Closed while records of the topic wait for its metadata, so that no later one gets ahead of them. Closed as well when the
/// topic has been idle for `metadata.max.idle.ms`: its next record fetches the metadata. Partitions stay, because they hold
/// the producer's sequence numbers.
#[derive(Debug)]
pub(super) struct Door(AtomicU8);

impl Door {
    const UNUSED: u8 = 0;
    const USED: u8 = 1;
    const CLOSED: u8 = 2;

    /// A closed one.
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(Self::CLOSED))
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::CLOSED
    }

    /// A record wants in.
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

    /// Closes it, unless it was used since [`Self::was_used`].
    pub(super) fn close(&self) -> bool {
        self.swap(Self::UNUSED, Self::CLOSED) || !self.is_open()
    }

    /// Whether a record has entered since the last time this was asked.
    pub(super) fn was_used(&self) -> bool {
        self.swap(Self::USED, Self::UNUSED)
    }

    fn swap(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
