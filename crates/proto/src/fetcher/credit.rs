//! How far a lane may fetch ahead of the application (decision 0021).
//!
//! Each lane has a share of `curtail.prefetch.bytes`. A partition has credit while it holds no more bytes than the
//! share has free. A partition that the application does not drain therefore holds at most as much as it leaves to
//! the others. This needs no fixed limit per partition, which would be too small for a single one.

use std::collections::BTreeSet;

use crate::TopicPartition;

/// A lane's share, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Size of the share.
    pub total: usize,
    /// Fetched bytes that are not drained.
    pub used: usize,
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

/// Drained bytes after which the lane must plan again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// No decision depends on drained bytes.
    Never,
    /// Once this many more bytes are drained.
    After(usize),
}

impl Wake {
    /// The sooner of the two.
    pub(super) fn or_after(self, bytes: usize) -> Self {
        match self {
            Self::Never => Self::After(bytes),
            Self::After(before) => Self::After(before.min(bytes)),
        }
    }
}

/// Partitions of the session that must not be fetched now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeldBack {
    /// Only these, perhaps none.
    Some(BTreeSet<TopicPartition>),
    /// The share is spent.
    All,
}

impl HeldBack {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Some(partitions) if partitions.is_empty())
    }

    pub(super) fn contains(&self, at: &TopicPartition) -> bool {
        match self {
            Self::Some(partitions) => partitions.contains(at),
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_partition_holds_at_most_half_of_a_share() {
        let share = |used| Share { total: 1_000, used };
        assert!(share(500).is_ample() && !share(501).is_ample());
        assert_eq!((share(501).above_half(), share(900).above_half()), (1, 400));
        assert!(share(500).grants(500), "alone it may be read on up to half");
        assert!(!share(501).grants(501));
        assert!(share(501).grants(0), "one with nothing may be read");
        // Each of two partitions holds a third.
        assert!(share(666).grants(333) && !share(668).grants(334));
        assert!(share(999).grants(0) && !share(1_000).grants(0) && !share(2_000).grants(0));
        // A granted request asks for at least one byte and never for more than are free.
        let mut used = 0;
        while share(used).grants(0) {
            let asked = share(used).request();
            assert!(used + asked <= 1_000 && asked > 0);
            used += asked;
            if asked == 1 {
                break;
            }
        }
    }

    #[test]
    fn bytes_to_drain_are_never_overestimated() {
        for used in 500..1_200 {
            for held in [0, used / 3, used / 2, used] {
                let share = Share { total: 1_000, used };
                if share.grants(held) {
                    continue;
                }
                let drained = share.lacking(held) - 1;
                let own = drained.min(held);
                let then = Share { total: 1_000, used: used - drained };
                assert!(!then.grants(held - own), "{used} {held}");
            }
        }
    }
}
