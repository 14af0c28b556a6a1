use std::collections::BTreeSet;

use super::*;

#[test]
fn each_arm_is_one_case_at_one_rate() {
    let arms = LatencyThroughput.arms(&Setting::new(ClusterKind::Embedded));
    let found: BTreeSet<_> = arms
        .iter()
        .filter_map(|arm| {
            let (case, rate) = find(arm.name).ok()?;
            arm.name.ends_with(&format!("-{:.0}", mbps(rate))).then_some((case.about, rate as u64))
        })
        .collect();
    assert_eq!((arms.len(), found.len()), (24, 24));
    assert_eq!(LatencyThroughput.arms(&Setting::new(ClusterKind::Apache)).len(), 18);
    assert!(find("default-3").is_err());
}

#[test]
fn the_bend_is_where_the_objective_ends() {
    let bends = |p99| of_curve("x", p99);
    let condition = bends([1.0, 49.0, 51.0]);
    assert!(condition.held && condition.text.contains("up to 10 MB/s"), "{}", condition.text);
    assert!(bends([1.0, 2.0, 3.0]).text.contains("up to 40 MB/s"));
    let condition = bends([1.0, 50.0, 3.0]);
    assert!(!condition.held && condition.text.contains("up to 2 MB/s"), "{}", condition.text);
    assert!(bends([f64::NAN, 1.0, 1.0]).text.contains("nowhere"));
}
