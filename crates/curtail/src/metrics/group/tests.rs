use super::*;

fn value(metrics: &GroupMetrics, name: &str) -> f64 {
    let mut named = Vec::new();
    let mut group = Group { group: "g", tags: Vec::new(), seconds: 1800.0, out: &mut named };
    metrics.list(&mut group, 3);
    assert!(named.iter().all(|metric| metric.value.is_finite()));
    let mut found = named.iter().filter(|metric| metric.name == name);
    let value = found.next().unwrap_or_else(|| panic!("no {name}")).value;
    assert!(found.next().is_none(), "{name} twice");
    value
}

#[test]
fn a_rebalance_lasts_from_its_first_step_until_the_member_is_settled() {
    let stats = GroupStats::default();
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    for (course, ms) in [
        (Course::Rebalancing, 0),
        (Course::Rebalancing, 10),
        (Course::Settled, 40),
        (Course::Settled, 1000),
        // The membership ends during the second rebalance; the third begins there.
        (Course::Rebalancing, 2000),
        (Course::Losing, 2100),
        (Course::Rebalancing, 2150),
        (Course::Settled, 2200),
        // Lost without a rebalance in progress.
        (Course::Losing, 3000),
        (Course::Settled, 3080),
        (Course::Rebalancing, 4000),
        (Course::Failed, 4001),
        (Course::Outside, 4002),
    ] {
        stats.is_at(course, at(ms), Span::default);
    }
    let metrics = stats.snapshot(at(5080));
    assert_eq!(value(&metrics, "rebalance-total"), 3.0);
    assert_eq!(value(&metrics, "rebalance-rate-per-hour"), 6.0);
    assert_eq!(value(&metrics, "failed-rebalance-total"), 2.0);
    assert_eq!(value(&metrics, "rebalance-latency-max"), 100.0);
    assert!((value(&metrics, "rebalance-latency-total") - 220.0).abs() < 10.0);
    assert_eq!(value(&metrics, "last-rebalance-seconds-ago"), 2.0);
    assert_eq!(value(&metrics, "assigned-partitions"), 3.0);
    assert_eq!(metrics.since_heartbeat, None);
}

#[test]
fn a_period_has_only_what_happened_in_it() {
    let stats = GroupStats::default();
    stats.commits.record(nanos(Duration::from_millis(50)), 1);
    stats.is_at(Course::Rebalancing, Instant::now(), Span::default);
    stats.is_at(Course::Failed, Instant::now(), Span::default);
    let before = stats.snapshot(Instant::now());
    stats.commits.record(nanos(Duration::from_millis(2)), 1);
    let mut after = stats.snapshot(Instant::now());
    assert_eq!((after.commit_latency.count(), after.failed_rebalance_total), (2, 1));
    after.subtract(&before);
    assert_eq!((after.commit_latency.count(), after.failed_rebalance_total), (1, 0));
    assert_eq!(value(&after, "commit-total"), 1.0);
    assert!(value(&after, "commit-latency-max") < 3.0);
}
