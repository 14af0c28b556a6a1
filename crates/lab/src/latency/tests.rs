use std::time::Duration;

use super::{Latencies, Point, Summary, few_behind_p999};

#[test]
fn figures_are_those_of_the_distribution() {
    let mut latencies = Latencies::default();
    for us in 1..=1000 {
        latencies.record(Duration::from_micros(us));
    }
    let summary = latencies.summary();
    assert_eq!(latencies.count(), 1000);
    assert!((summary.avg - 500.5).abs() < 1e-9, "the mean is exact: {}", summary.avg);
    for (got, expected) in [
        (summary.p50, 500.0),
        (summary.p95, 950.0),
        (summary.p99, 990.0),
        (summary.p999, 999.0),
        (summary.max, 1000.0),
    ] {
        assert!((got - expected).abs() <= expected * 0.001, "{got} for {expected}");
    }
}

#[test]
fn extremes_neither_panic_nor_vanish() {
    let mut latencies = Latencies::default();
    assert_eq!(latencies.summary(), Summary::default());
    latencies.record(Duration::ZERO);
    latencies.record(Duration::from_secs(1 << 40));
    assert_eq!(latencies.count(), 2);
    assert!(latencies.max() >= Duration::from_secs(24 * 3600));
}

#[test]
fn sums_are_those_of_the_parts() {
    let (mut a, mut b) = (Latencies::default(), Latencies::default());
    a.record_many(1_000_000, 3);
    b.record(Duration::from_millis(5));
    a.add(&b);
    assert_eq!((a.count(), a.mean()), (4, Duration::from_millis(2)));
    assert!(a.max() >= Duration::from_millis(5) && a.max() < Duration::from_micros(5_006));
}

#[test]
fn alike_ones_are_counted_as_each_by_itself() {
    let values: Vec<u64> =
        (0..5000u64).map(|n| (n * n * 7919) % 1_000_003 + n / 100 * 100_000).collect();
    let (mut together, mut apart) = (Latencies::default(), Latencies::default());
    together.record_alike(values.iter().copied());
    for &value in &values {
        apart.record_nanos(value);
    }
    assert_eq!((together.count(), together.mean()), (apart.count(), apart.mean()));
    for quantile in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999] {
        let (one, other) = (together.quantile(quantile), apart.quantile(quantile));
        assert!(one.abs_diff(other) <= other / 500, "{quantile}: {one:?} {other:?}");
    }
}

#[test]
fn a_curve_tells_as_many_nines_apart_as_there_are_records_for() {
    let mut latencies = Latencies::default();
    assert!(latencies.curve().is_empty());
    for us in 1..=10_000 {
        latencies.record(Duration::from_micros(us));
    }
    let curve = latencies.curve();
    assert_eq!(curve.len(), 82, "four nines in twentieths, and the longest");
    assert!(curve.is_sorted_by_key(|point| point.us) && curve[0].quantile == 0.0);
    let near = |point: &Point, us: f64| (point.us - us).abs() <= us * 0.002;
    assert!(near(&curve[20], 9_000.0) && near(&curve[40], 9_900.0), "{curve:?}");
    assert!(near(&curve[80], 9_999.0) && curve[81].quantile == 1.0, "{curve:?}");
}

#[test]
fn a_p999_of_few_records_is_said_to_be_noise() {
    let said = |records| few_behind_p999("p99.9 of a", records);
    let text = |slowest, of| {
        format!("p99.9 of a rests on the slowest {slowest} of {of} records: it may be noise.")
    };
    assert_eq!(said(999), Some(text(1, 999)));
    assert_eq!(said(9_999), Some(text(9, 9_999)));
    assert_eq!((said(10_000), said(0)), (None, None));
}
