//! The order of a partition's batches.

/// A position in the partition's order; never reused. The parts of a split batch share its number and follow each
/// other by `record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) batch: u64,
    /// Index of the part's first record in the batch that was split.
    pub(super) record: u32,
}

impl Order {
    /// The order of a batch that was never taken.
    pub(super) const NEVER_TAKEN: Self = Self::whole(u64::MAX);

    pub(super) const fn whole(batch: u64) -> Self {
        Self { batch, record: 0 }
    }
}

/// The next [`Order::batch`]. In 48 bits it lasts nine years at a million batches per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NextOrder([u8; 6]);

impl NextOrder {
    pub(super) fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// Returns the order and advances to the one after it.
    pub(super) fn advance(&mut self) -> u64 {
        let order = self.get();
        let [a, b, c, d, e, f, ..] = (order + 1).to_le_bytes();
        self.0 = [a, b, c, d, e, f];
        order
    }
}
