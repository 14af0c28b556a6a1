//! The compression ratio that a topic's next batch is expected to have.

use std::sync::atomic::{AtomicU32, Ordering};

use super::BatchPolicy;

/// Ratios are kept in thousandths: compressed bytes per 1,000 bytes.
const WHOLE: u32 = 1000;

/// A better ratio lowers the estimate by this much per batch.
const IMPROVEMENT: u32 = 5;

/// A worse ratio raises the estimate at least by this much.
const DETERIORATION: u32 = 50;

/// Estimate of a topic's compression ratio, as in the Java client (`CompressionRatioEstimator`).
///
/// It follows a worse ratio at once and a better one slowly, because a batch that compresses worse than expected may be
/// too large for the broker. Partitions of a topic share it without a lock; a lost update is repeated by the next batch.
#[derive(Debug)]
pub struct CompressionRatio(AtomicU32);

impl Default for CompressionRatio {
    /// No compression, until a batch shows it.
    fn default() -> Self {
        Self(AtomicU32::new(WHOLE))
    }
}

impl CompressionRatio {
    /// Records a batch's size before and after compression, in bytes.
    pub fn observe(&self, before: usize, after: usize) {
        let observed = (after as u64 * u64::from(WHOLE)).div_ceil(before.max(1) as u64);
        let observed = u32::try_from(observed).unwrap_or(u32::MAX);
        let estimate = self.0.load(Ordering::Relaxed);
        let next = if observed > estimate {
            observed.max(estimate.saturating_add(DETERIORATION))
        } else {
            observed.max(estimate.saturating_sub(IMPROVEMENT))
        };
        if next != estimate {
            self.0.store(next, Ordering::Relaxed);
        }
    }

    /// Returns the bytes before compression that fill a batch, less a reserve of 5%: at most `max.request.size`, and at
    /// least `batch.size`.
    pub(super) fn filling(&self, policy: &BatchPolicy) -> usize {
        let expected = u64::from(self.0.load(Ordering::Relaxed)) * 105;
        let size = policy.batch_size as u64;
        let before = size.saturating_mul(u64::from(WHOLE) * 100) / expected.max(1);
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        before.min(policy.max_request_size).max(policy.batch_size)
    }

    /// Returns the expected size of `bytes` after compression; at most `bytes`.
    pub fn compressed(&self, bytes: u32) -> u32 {
        let ratio = self.0.load(Ordering::Relaxed).min(WHOLE);
        (u64::from(bytes) * u64::from(ratio) / u64::from(WHOLE)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::policy, *};

    fn filling(ratio: &CompressionRatio, batch_size: usize) -> usize {
        let max_request_size = usize::MAX;
        ratio.filling(&BatchPolicy { max_request_size, ..policy(batch_size, 0) })
    }

    #[test]
    fn the_estimate_follows_a_worse_ratio_at_once_and_a_better_one_slowly() {
        let ratio = CompressionRatio::default();
        let mut estimates = Vec::new();
        for (before, after) in
            [(1000, 100), (1000, 100), (1000, 999), (1000, 2000), (0, 0), (1, usize::MAX / 1000)]
        {
            ratio.observe(before, after);
            estimates.push(ratio.0.load(Ordering::Relaxed));
        }
        assert_eq!(estimates, [995, 990, 1040, 2000, 1995, u32::MAX]);
    }

    #[test]
    fn steady_batches_are_estimated_exactly() {
        let ratio = CompressionRatio::default();
        for _ in 0..200 {
            ratio.observe(16_384, 4_096);
        }
        assert_eq!(ratio.0.load(Ordering::Relaxed), 250);
        assert_eq!(filling(&ratio, 16_384), 62_415);
        assert_eq!(ratio.compressed(1000), 250);
    }

    #[test]
    fn a_batch_is_filled_at_least_to_its_size_whatever_the_ratio() {
        let ratio = CompressionRatio::default();
        assert_eq!(filling(&ratio, 16_384), 16_384);
        ratio.observe(1, 10);
        assert_eq!(filling(&ratio, 16_384), 16_384);
        assert_eq!(ratio.compressed(1000), 1000);
        for _ in 0..10_000 {
            ratio.observe(1000, 0);
        }
        assert_eq!(filling(&ratio, 16_384), 1_638_400 * 1000);
        assert_eq!(filling(&ratio, usize::MAX), usize::MAX);
    }
}
