use super::*;
use crate::doctor::{
    Comparison,
    units::{duration, throughput},
};

fn asked(target: &str, rate: &str) -> Asked {
    Asked { target: duration(target).unwrap(), rate: throughput(rate).unwrap() }
}

fn tried() -> Tried {
    Tried {
        setting: "linger.ms=0".into(),
        base_p99_us: vec![30_000.0],
        p99_us: vec![11_000.0, 12_340.0],
        bytes_per_second: 512.0 * 1024.0,
        base_busy: 0.31,
        busy: 0.34,
        comparison: Comparison { verdict: Verdict::Better, gain: 0.6, noise: 0.1 },
        holds: true,
        recommended: true,
        caution: Some("a caution"),
    }
}

#[test]
fn a_recommended_setting_has_its_measured_cost_in_the_users_units() {
    assert_eq!(
        remedy(&tried(), asked("50ms", "0.5MB/s")),
        "With linger.ms=0 the target holds: 12.34 ms of 50 ms; cost: throughput 0.500 of 0.5 MB/s, CPU busy 31% -> 34%."
    );
    assert_eq!(
        remedy(&Tried { holds: false, ..tried() }, asked("0.01s", "600KB/s")),
        "With linger.ms=0 the target still does not hold: 0.0123 s of 0.01 s; \
         cost: throughput 512.00 of 600 KB/s, CPU busy 31% -> 34%."
    );
}

#[test]
fn a_setting_without_a_measured_cost_has_its_caution() {
    let tried = Tried { bytes_per_second: 0.0, busy: 0.0, ..tried() };
    assert_eq!(cost(&tried, throughput("1MB/s").unwrap()), "a caution");
}

#[test]
fn a_percentile_of_few_records_is_warned_of() {
    let more = "For a reliable one use a longer duration or a higher throughput.";
    for (records, expected) in [
        (1, format!("WARNING: 1 record measured, too few for a 99th percentile. {more}")),
        (99, format!("WARNING: 99 records measured, too few for a 99th percentile. {more}")),
        (
            199,
            format!(
                "WARNING: 199 records measured: the 99th percentile rests on the slowest one. {more}"
            ),
        ),
        (
            999,
            format!(
                "WARNING: 999 records measured: the 99th percentile rests on the slowest 9. {more}"
            ),
        ),
        (1000, "1000 records measured: the 99th percentile rests on the slowest 10.".to_owned()),
    ] {
        assert_eq!(basis(records), expected);
    }
}
