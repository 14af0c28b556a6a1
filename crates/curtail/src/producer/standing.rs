//! State of partitions' leaders, and the partition of each broker that is under trial.
//!
//! Every routing of a keyless record reads it without a lock, so the value may be slightly stale. A stale value makes
//! the choice worse, never wrong.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use curtail_proto::partitioner::Standing as Known;

/// Time for which a leader counts as new. Its followers take up to `replica.fetch.backoff.ms` (1,000) if they fetched
/// too early. They take up to `replica.fetch.wait.max.ms` (500) if an earlier fetch still waits.
const SETTLING: Duration = Duration::from_millis(1500);

/// Longest time for which a partition under trial blocks the trial of others. Its record may have gone elsewhere.
const TRIAL: Duration = Duration::from_millis(1000);

const PROVEN: u32 = u32::MAX;

/// State of a partition's leader. Times count from the producer's start.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// [`PROVEN`], or the end of the settling time in milliseconds.
    settles_at: AtomicU32,
}

impl Standing {
    /// Records that the leader has acknowledged a batch. Returns whether this is the first.
    pub(super) fn prove(&self) -> bool {
        self.settles_at.load(Ordering::Relaxed) != PROVEN
            && self.settles_at.swap(PROVEN, Ordering::Relaxed) != PROVEN
    }

    /// Whether the leader has acknowledged a batch.
    pub(super) fn is_proven(&self) -> bool {
        self.settles_at.load(Ordering::Relaxed) == PROVEN
    }

    /// Records that the leader has changed at `now`, or has refused a batch.
    pub(super) fn doubt(&self, now: Duration) {
        let at = u32::try_from(now.saturating_add(SETTLING).as_millis()).unwrap_or(PROVEN - 1);
        self.settles_at.store(at.min(PROVEN - 1), Ordering::Relaxed);
    }

    pub(super) fn at(&self, now: Duration) -> Known {
        match self.settles_at.load(Ordering::Relaxed) {
            PROVEN => Known::Proven,
            at if u128::from(at) <= now.as_millis() => Known::Untried,
            _ => Known::Settling,
        }
    }
}

/// An optional partition index in one atomic word.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Its index plus one; 0 for none.
    word: AtomicU64,
}

impl Slot {
    pub(super) fn get(&self) -> Option<u32> {
        index_of(self.word.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, partition: u32) {
        self.word.store(u64::from(partition) + 1, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> Option<u32> {
        index_of(self.word.swap(0, Ordering::Relaxed))
    }

    /// Empties the slot if it holds this partition.
    pub(super) fn clear(&self, partition: u32) {
        let word = u64::from(partition) + 1;
        let _ = self.word.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Copies the slot for a new list of the broker's partitions.
    pub(super) fn carry_on(&self) -> Self {
        Self { word: AtomicU64::new(self.word.load(Ordering::Relaxed)) }
    }
}

/// The partition of one broker that is under trial.
#[derive(Debug, Default)]
pub(super) struct Trial {
    /// Its index plus one in the high half, and the trial's start in milliseconds in the low half; 0 for none.
    word: AtomicU64,
}

impl Trial {
    pub(super) fn begin(&self, partition: u32, now: Duration) {
        let word = (u64::from(partition) + 1) << 32 | u64::from(now.as_millis() as u32);
        self.word.store(word, Ordering::Relaxed);
    }

    /// Returns the partition, for up to a second.
    pub(super) fn partition(&self, now: Duration) -> Option<u32> {
        let word = self.word.load(Ordering::Relaxed);
        let lasts = (now.as_millis() as u32).wrapping_sub(word as u32);
        index_of(word >> 32).filter(|_| u128::from(lasts) < TRIAL.as_millis())
    }

    /// Returns the partition of the last trial, however long ago it began.
    pub(super) fn last(&self) -> Option<u32> {
        index_of(self.word.load(Ordering::Relaxed) >> 32)
    }

    /// Ends the trial if it is of this partition.
    pub(super) fn end(&self, partition: u32) {
        let word = self.word.load(Ordering::Relaxed);
        if index_of(word >> 32) == Some(partition) {
            let _ = self.word.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Copies the trial for a new list of the broker's partitions.
    pub(super) fn carry_on(&self) -> Self {
        Self { word: AtomicU64::new(self.word.load(Ordering::Relaxed)) }
    }
}

fn index_of(plus_one: u64) -> Option<u32> {
    plus_one.checked_sub(1).map(|index| index as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(60);

    #[test]
    fn a_new_leader_settles_and_an_acknowledgement_proves_it() {
        let standing = Standing::default();
        assert_eq!(standing.at(Duration::ZERO), Known::Untried);
        standing.doubt(NOW);
        assert_eq!(standing.at(NOW), Known::Settling);
        assert_eq!(standing.at(NOW + SETTLING), Known::Untried);
        assert!(standing.prove());
        assert_eq!(standing.at(NOW), Known::Proven);
        standing.doubt(Duration::MAX - SETTLING);
        assert_ne!(standing.at(NOW), Known::Proven);
    }

    #[test]
    fn a_slot_is_cleared_of_its_own_partition_only() {
        let slot = Slot::default();
        assert_eq!(slot.get(), None);
        slot.set(0);
        slot.clear(1);
        assert_eq!((slot.carry_on().get(), slot.get()), (Some(0), Some(0)));
        slot.clear(0);
        assert_eq!(slot.get(), None);
        slot.set(7);
        assert_eq!((slot.take(), slot.take()), (Some(7), None));
    }

    #[test]
    fn a_trial_ends_after_its_time() {
        let trial = Trial::default();
        assert_eq!(trial.partition(NOW), None);
        trial.begin(0, NOW);
        assert_eq!(trial.partition(NOW + TRIAL / 2), Some(0));
        assert_eq!(trial.carry_on().partition(NOW + TRIAL / 2), Some(0));
        assert_eq!((trial.partition(NOW + TRIAL), trial.last()), (None, Some(0)));
    }
}
