//! Distributions as exponential histograms in seconds: Prometheus' native and OpenTelemetry's exponential ones.
//!
//! Bucket `index` has the values above 2^((index - 1)/16) s, up to and including 2^(index/16) s. That is schema 4, whose buckets
//! are 4.4% wide. Buckets of [`Distribution`] are up to 1/32 = 3.1% wide, and schema 5 would have 2.2%: more detail than was
//! recorded.
//!
//! # Invariants
//! - The values of one bucket of [`Distribution`] stay together, in the bucket that contains the highest value that it may have. So
//!   a value counts in the bucket that contains it, or lies below the bucket in which it counts by at most 1/32 of the value. It
//!   never lies above.
//! - Placement depends on nothing else, so no count ever decreases. A decrease would look like a reset of the counters.

#[cfg(test)]
pub(super) mod tests;

use super::{Distribution, families::NANOS_IN_S};

/// Prometheus' schema and OpenTelemetry's scale.
pub(super) const SCHEMA: i32 = 4;

/// Buckets per power of two.
const PER_POWER: f64 = (1 << SCHEMA) as f64;

/// Empty buckets that may stand between others of a span. A new span takes more bytes than two empty buckets.
const MOST_EMPTY: u32 = 2;

/// The counts of an exponential histogram.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Exponential {
    /// Values that are zero.
    pub(super) zeros: u64,
    /// Index of the first count, by Prometheus' numbering. OpenTelemetry's is lower by one.
    pub(super) first: i32,
    /// By bucket, without a gap. Neither the first nor the last is zero.
    pub(super) counts: Vec<u64>,
}

/// Counts as differences, in runs of consecutive buckets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Spans {
    /// Distance from the end of the previous span, or the index of the first bucket, and number of buckets.
    pub(super) spans: Vec<(i32, u32)>,
    /// Each bucket's count less the one before it.
    pub(super) deltas: Vec<i64>,
}

impl Exponential {
    /// Converts a distribution of nanoseconds.
    pub(super) fn of(times: &Distribution) -> Self {
        let mut all = Self::default();
        for (highest, count) in times.buckets() {
            let Some(index) = index(highest) else {
                all.zeros += count;
                continue;
            };
            if all.counts.is_empty() {
                all.first = index;
            }
            // In ascending order, so this is the last bucket or a later one.
            let at = (index - all.first) as usize;
            all.counts.resize(at + 1, 0);
            all.counts[at] += count;
        }
        all
    }

    /// Returns the number of values.
    pub(super) fn count(&self) -> u64 {
        self.zeros + self.counts.iter().sum::<u64>()
    }

    /// Returns the counts without long runs of empty buckets.
    pub(super) fn spans(&self) -> Spans {
        let Spans { mut spans, mut deltas } = Spans::default();
        let (mut empty, mut before) = (0_u32, 0_i64);
        for count in self.counts.iter().map(|count| *count as i64) {
            if count == 0 {
                empty += 1;
                continue;
            }
            match spans.last_mut() {
                None => spans.push((self.first, 1)),
                Some((_, length)) if empty <= MOST_EMPTY => {
                    *length += empty + 1;
                    for _ in 0..empty {
                        deltas.push(-before);
                        before = 0;
                    }
                }
                Some(_) => spans.push((empty as i32, 1)),
            }
            deltas.push(count - before);
            (empty, before) = (0, count);
        }
        Spans { spans, deltas }
    }
}

/// Returns the bucket that contains a time; `None` for zero.
fn index(nanos: u64) -> Option<i32> {
    let powers = (nanos as f64 / NANOS_IN_S).log2();
    (nanos > 0).then(|| (powers * PER_POWER).ceil() as i32)
}
