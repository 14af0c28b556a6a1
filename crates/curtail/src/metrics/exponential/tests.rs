use proptest::prelude::*;

use super::*;
use crate::metrics::Histogram;

/// The largest value that a histogram distinguishes, in nanoseconds.
const LARGEST: u64 = (1 << 42) - 1;

fn recorded(values: &[u64]) -> Distribution {
    let histogram = Histogram::default();
    values.iter().for_each(|value| histogram.record(*value, 1));
    histogram.snapshot()
}

/// The upper bound of a bucket, in nanoseconds.
fn bound(index: i32) -> f64 {
    2_f64.powf(f64::from(index) / 16.0) * 1e9
}

/// The counts that a reader of spans and deltas finds, by index.
pub(in crate::metrics) fn counts(
    spans: &[(i32, u32)],
    deltas: impl IntoIterator<Item = i64>,
) -> Vec<(i32, u64)> {
    let (mut index, mut count) = (0, 0);
    let mut deltas = deltas.into_iter();
    let mut counts = Vec::new();
    for (offset, length) in spans {
        index += offset;
        for _ in 0..*length {
            count += deltas.next().expect("a delta for each bucket");
            counts.push((index, u64::try_from(count).expect("no negative count")));
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None, "a bucket for each delta");
    counts
}

/// A value of any magnitude.
fn value() -> impl Strategy<Value = u64> {
    (0..=42_u32, any::<u64>()).prop_map(|(bits, value)| value & ((1 << bits) - 1))
}

#[test]
fn bucket_contains_the_highest_value_of_each_of_ours() {
    let mut highest = 0;
    let mut before = i32::MIN;
    while highest < LARGEST {
        // The next bucket's highest value: one value alone has its bucket's as its quantile, if the maximum allows.
        let next = highest + 1;
        let mut both = recorded(&[next]);
        both.merge(&recorded(&[LARGEST]));
        highest = both.p50();
        let at = index(highest).expect("not zero");
        let (lower, upper) = (bound(at - 1), bound(at));
        // So close to a bound, the rounding of a logarithm would decide.
        let margin = highest as f64 * 1e-9;
        let value = highest as f64;
        assert!(lower + margin < value && value < upper - margin, "{highest} in {at}");
        assert!(at >= before, "{highest}");
        before = at;
    }
    assert_eq!((index(0), index(1), index(1_000_000_000)), (None, Some(-478), Some(0)));
    assert_eq!(before, 194);
}

proptest! {
    /// The total is equal, and each value is in the bucket that contains it, or below its bucket by at most 1/32.
    #[test]
    fn values_are_at_most_a_32nd_below_their_bucket(values in prop::collection::vec(value(), 0..50)) {
        let times = recorded(&values);
        let all = Exponential::of(&times);
        prop_assert_eq!(all.count(), values.len() as u64);
        prop_assert_eq!(all.zeros, values.iter().filter(|value| **value == 0).count() as u64);
        prop_assert!(all.counts.first() != Some(&0) && all.counts.last() != Some(&0));
        let mut sorted: Vec<u64> = values.iter().copied().filter(|value| *value > 0).collect();
        sorted.sort_unstable();
        let mut sorted = sorted.into_iter();
        // Buckets keep the order of values.
        for (at, count) in all.counts.iter().enumerate() {
            let index = all.first + at as i32;
            for value in sorted.by_ref().take(*count as usize) {
                let value = value as f64;
                prop_assert!(value <= bound(index), "{value} above {index}");
                prop_assert!(value * (1.0 + 1.0 / 32.0) > bound(index - 1), "{value} below {index}");
            }
        }
    }

    #[test]
    fn later_values_decrease_no_count(
        before in prop::collection::vec(value(), 0..20),
        after in prop::collection::vec(value(), 0..20),
    ) {
        let earlier = Exponential::of(&recorded(&before));
        let later = Exponential::of(&recorded(&[before, after].concat()));
        prop_assert!(later.zeros >= earlier.zeros);
        for (at, count) in earlier.counts.iter().enumerate() {
            let at = earlier.first + at as i32 - later.first;
            prop_assert!(later.counts[usize::try_from(at).unwrap()] >= *count);
        }
    }

    #[test]
    fn spans_have_all_counts(values in prop::collection::vec(value(), 0..50)) {
        let all = Exponential::of(&recorded(&values));
        let Spans { spans, deltas } = all.spans();
        let read: Vec<_> = counts(&spans, deltas).into_iter().filter(|(_, count)| *count > 0).collect();
        let expected = all.counts.iter().enumerate().map(|(at, count)| (all.first + at as i32, *count));
        let expected: Vec<_> = expected.filter(|(_, count)| *count > 0).collect();
        prop_assert_eq!(read, expected);
        prop_assert!(spans.iter().skip(1).all(|(offset, _)| *offset > MOST_EMPTY as i32));
    }
}

#[test]
fn two_empty_buckets_are_part_of_a_span_and_three_end_it() {
    let all = Exponential { zeros: 1, first: -3, counts: vec![5, 0, 0, 2, 0, 0, 0, 1] };
    let expected = Spans { spans: vec![(-3, 4), (3, 1)], deltas: vec![5, -5, 0, 2, -1] };
    assert_eq!(all.spans(), expected);
    assert_eq!(Exponential::default().spans(), Spans::default());
}
