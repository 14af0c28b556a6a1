//! A histogram that any number of tasks write concurrently without locks.
//!
//! Log-linear: every power of two has [`STEPS`] buckets of equal width, so the relative error is at most 1/32. A
//! record costs two relaxed additions and one maximum per value. The size is fixed, and snapshots can be added and
//! subtracted by bucket.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

#[cfg(test)]
mod tests;

const STEP_BITS: u32 = 5;
/// Buckets per power of two.
const STEPS: u64 = 1 << STEP_BITS;
/// Larger values are clamped to this: 73 minutes in nanoseconds, or 4 TiB.
const LARGEST: u64 = (1 << 42) - 1;
const BUCKETS: usize = bucket(LARGEST) + 1;

/// Returns the bucket of a value.
const fn bucket(value: u64) -> usize {
    let value = if value > LARGEST { LARGEST } else { value };
    let shift = (value | (STEPS - 1)).ilog2() + 1 - STEP_BITS;
    let shift = shift.saturating_sub(1);
    ((shift as usize) << STEP_BITS) + (value >> shift) as usize
}

/// Returns the lowest and the highest value of a bucket.
const fn range(bucket: usize) -> (u64, u64) {
    if bucket < 2 * STEPS as usize {
        return (bucket as u64, bucket as u64);
    }
    let shift = (bucket >> STEP_BITS) - 1;
    let low = ((bucket - (shift << STEP_BITS)) as u64) << shift;
    (low, low + (1 << shift) - 1)
}

/// The recording side. The first value allocates the buckets, so an unused histogram costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: OnceLock<Box<[AtomicU64]>>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    /// Adds a value `count` times.
    pub(crate) fn record(&self, value: u64, count: u64) {
        let buckets =
            self.buckets.get_or_init(|| (0..BUCKETS).map(|_| AtomicU64::new(0)).collect());
        buckets[bucket(value)].fetch_add(count, Relaxed);
        self.sum.fetch_add(value.min(LARGEST).wrapping_mul(count), Relaxed);
        // Few values are a new maximum: a load is cheaper than a read-modify-write.
        if value > self.max.load(Relaxed) {
            self.max.fetch_max(value, Relaxed);
        }
    }

    /// Returns all values so far. Concurrent values may be missing.
    pub(crate) fn snapshot(&self) -> Distribution {
        let Some(buckets) = self.buckets.get() else { return Distribution::default() };
        let mut counts: Vec<u64> = buckets.iter().map(|count| count.load(Relaxed)).collect();
        while counts.last() == Some(&0) {
            counts.pop();
        }
        Distribution { counts, sum: self.sum.load(Relaxed), max: self.max.load(Relaxed) }
    }
}

/// A distribution of recorded values. Times are in nanoseconds, sizes in bytes.
///
/// A quantile is the upper edge of a bucket that is at most 1/32 wide: up to 3.1% too high, never too low. Count,
/// sum, mean and maximum are exact. After [`Self::since`], the maximum is the later snapshot's, limited to the
/// highest bucket of the period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Up to the last non-empty bucket.
    counts: Vec<u64>,
    sum: u64,
    max: u64,
}

impl Distribution {
    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The mean; 0 without values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let count = self.count();
        if count == 0 {
            return 0.0;
        }
        self.sum as f64 / count as f64
    }

    /// The sum of all values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The value that a fraction of `quantile`, from 0 to 1, does not exceed; 0 without values.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let count = self.count();
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return range(bucket).1.min(self.max);
            }
        }
        0
    }

    /// The median.
    #[must_use]
    pub fn p50(&self) -> u64 {
        self.quantile(0.5)
    }

    /// The 99th percentile.
    #[must_use]
    pub fn p99(&self) -> u64 {
        self.quantile(0.99)
    }

    /// The 99.9th percentile.
    #[must_use]
    pub fn p999(&self) -> u64 {
        self.quantile(0.999)
    }

    /// The 99.99th percentile.
    #[must_use]
    pub fn p9999(&self) -> u64 {
        self.quantile(0.9999)
    }

    /// The largest value; 0 without values.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the non-empty buckets in ascending order: the highest value that each may have, and its number of values.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (range(bucket).1, *count))
    }

    /// Returns the values recorded after `earlier`, a snapshot of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        let mut counts: Vec<u64> =
            self.counts.iter().zip(before).map(|(now, then)| now.saturating_sub(then)).collect();
        while counts.last() == Some(&0) {
            counts.pop();
        }
        let max = counts.len().checked_sub(1).map_or(0, |last| range(last).1.min(self.max));
        Self { counts, sum: self.sum.wrapping_sub(earlier.sum), max }
    }

    /// Adds the values of another distribution, for example of another broker or client. The result equals one
    /// histogram of all values.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (sum, n) in self.counts.iter_mut().zip(&other.counts) {
            *sum += n;
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }
}
