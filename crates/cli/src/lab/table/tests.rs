use curtail_lab::experiments::{
    Condition, Environment, Exemplar, LatencyUntil, PhasesReport, PublishedLatency, RoundReport,
};
use curtail_lab::latency::Summary;

use super::*;

#[test]
fn arms_stand_above_the_published_figures_and_conditions_below() {
    let latency =
        Summary { avg: 1500.0, p50: 1000.0, p95: 2000.0, p99: 3000.0, p999: 12_345.0, max: 2e4 };
    let exemplar = |phase: &str| Exemplar {
        round: 0,
        at_ms: 1.0,
        partition: 0,
        offset: Some(7),
        leader: Some(1),
        latency_us: 2e4,
        phases_us: [(phase.to_owned(), 2e4)].into(),
        blame: Some(phase.to_owned()),
    };
    let arm = |name: &str, p50| ArmReport {
        name: name.into(),
        client: "curtail".into(),
        records: 300_000,
        errors: 0,
        lost: 0,
        duplicated: 0,
        reordered: 0,
        throughput_rps: 5000.0,
        throughput_mbps: 4.77,
        cpu_us_per_record: 30.0,
        cpu_includes_brokers: true,
        latency_us: Summary { p50, ..latency },
        latency_until: LatencyUntil::Acknowledged,
        latency_curve: Vec::new(),
        phases_us: PhasesReport::default(),
        phases_estimated: false,
        error_us: None,
        acknowledge_us: None,
        exemplars: ["commit", "publish", "commit"].map(exemplar).into(),
        timelines: Vec::new(),
        requests_served: [].into(),
        brokers: Vec::new(),
        rounds: vec![RoundReport::default()],
        extra: [("moves".to_owned(), 100.0)].into(),
    };
    let published = PublishedFigure {
        arm: "hints".into(),
        source: "KIP-951, run 1".into(),
        latency_us: PublishedLatency { p999: Some(346_000.0), ..Default::default() },
        throughput_mbps: Some(95.37),
        note: String::new(),
    };
    let environment = Environment { cores: 2, shares_machine: true, ..Environment::default() };
    let integrity = |arm: &str| {
        let text = format!("{arm}: 0 lost, 0 duplicated, 0 reordered, no error (0, 0, 0, 0)");
        Condition { text, held: true }
    };
    let failed = Condition { text: "it works".into(), held: false };
    let report = Report {
        experiment: "leader-move".into(),
        source: "KIP-951".into(),
        cluster: "embedded".into(),
        scale: 1.0,
        seed: 1,
        command: String::new(),
        environment,
        models: Vec::new(),
        arms: vec![arm("hints", 1000.0), arm("refresh", 2500.0)],
        published: vec![published],
        conditions: ["hints", "refresh"].map(integrity).into_iter().chain([failed]).collect(),
    };
    let text = table(&report);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "1 of 3 conditions do not hold, first it works.");
    assert_eq!(lines[1], "leader-move on embedded, scale 1, seed 1 (KIP-951)");
    assert!(lines[2].contains("share one machine with 2 cores"), "{text}");
    assert!(lines[3].starts_with("Each arm ran once"), "{text}");
    assert!(lines[4].starts_with("ratios to hints of curtail; an arm ran only once"), "{text}");
    assert!(lines[6].starts_with("refresh  curtail  2.50x  1.00x"), "{text}");
    let row =
        "hints     300000   4.77    1.50    1.00    2.00    3.00      12.3    20.0           30.0";
    assert!(lines[8].starts_with(row), "{text}");
    assert_eq!(lines[10], "published:");
    assert!(lines[11].starts_with("hints") && lines[11].ends_with("KIP-951, run 1"), "{text}");
    assert!(lines[11].contains("346.0") && lines[11].contains("95.37"), "{text}");
    assert_eq!(lines[12], "hints: moves 100");
    let blamed = "hints: commit to blame for 2 of the 3 slowest records (replication to the in-sync replicas)";
    assert_eq!(lines[13], blamed);
    let intact = "held: no record lost, duplicated or reordered, and no error (2 arms)";
    assert_eq!(lines[16..], [intact, "NOT HELD: it works"]);

    let mut report = report;
    let other = ArmReport { client: "java".into(), ..report.arms[0].clone() };
    report.arms.push(other);
    let text = table(&report);
    for name in ["hints (curtail)", "refresh (curtail)", "hints (java)"] {
        let row = |line: &str| line.starts_with(name) && line.contains(" 300000 ");
        assert!(text.lines().any(row), "{name}: {text}");
    }
    assert!(text.contains("\nhints (java): moves 100\n"), "{text}");
}
