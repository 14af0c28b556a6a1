use proptest::prelude::*;

use super::*;

fn recorded(values: &[u64]) -> Distribution {
    let histogram = Histogram::default();
    values.iter().for_each(|value| histogram.record(*value, 1));
    histogram.snapshot()
}

#[test]
fn buckets_follow_each_other_without_gap() {
    let mut next = 0;
    for at in 0..BUCKETS {
        let (low, high) = range(at);
        assert_eq!(low, next, "bucket {at}");
        assert_eq!((bucket(low), bucket(high)), (at, at));
        next = high + 1;
    }
    assert_eq!(next, LARGEST + 1);
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
}

#[test]
fn nothing_recorded_is_zero_everywhere() {
    let none = recorded(&[]);
    assert_eq!((none.count(), none.p50(), none.p999(), none.max()), (0, 0, 0, 0));
    assert_eq!(none.mean(), 0.0);
}

#[test]
fn a_value_beyond_the_largest_keeps_its_maximum() {
    let far = recorded(&[u64::MAX]);
    assert_eq!((far.count(), far.max()), (1, u64::MAX));
    assert_eq!(far.p50(), LARGEST);
}

#[test]
fn a_difference_has_only_what_came_after() {
    let histogram = Histogram::default();
    histogram.record(1_000_000, 5);
    let before = histogram.snapshot();
    histogram.record(10, 2);
    let after = histogram.snapshot().since(&before);
    assert_eq!((after.count(), after.max(), after.p999(), after.sum()), (2, 10, 10, 20));
    assert_eq!(histogram.snapshot().since(&histogram.snapshot()), Distribution::default());
}

proptest! {
    #[test]
    fn quantiles_are_at_most_a_bucket_above_the_exact_ones(
        mut values in prop::collection::vec(0u64..=LARGEST, 1..300),
        quantile in 0.0..=1.0f64,
    ) {
        let distribution = recorded(&values);
        values.sort_unstable();
        let rank = ((quantile * values.len() as f64).ceil() as usize).max(1);
        let exact = values[rank - 1];
        let told = distribution.quantile(quantile);
        prop_assert!(told >= exact && told <= exact + exact / STEPS, "{told} for {exact}");
        let mean = values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64;
        prop_assert!((distribution.mean() - mean).abs() <= mean * 1e-9);
        prop_assert!(distribution.p9999() >= distribution.p999());
    }

    #[test]
    fn sums_of_parts_are_the_whole(
        first in prop::collection::vec(any::<u64>(), 0..50),
        second in prop::collection::vec(any::<u64>(), 0..50),
    ) {
        let mut sum = recorded(&first);
        sum.merge(&recorded(&second));
        prop_assert_eq!(sum, recorded(&[first, second].concat()));
    }
}
