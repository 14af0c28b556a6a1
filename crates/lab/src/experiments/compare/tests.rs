use super::*;
use crate::{
    experiments::{Environment, LatencyUntil, PhasesReport},
    latency::Summary,
};

/// An arm whose turns had these 99th percentiles.
pub(crate) fn arm(name: &str, p99: &[f64]) -> ArmReport {
    let latency = |p99| Summary { avg: 10.0, p50: 10.0, p95: 20.0, p99, p999: 200.0, max: 300.0 };
    let round = |&p99: &f64| RoundReport {
        latency_us: latency(p99),
        throughput_rps: 50.0,
        ..RoundReport::default()
    };
    ArmReport {
        name: name.into(),
        client: "curtail".into(),
        records: 100,
        errors: 0,
        lost: 0,
        duplicated: 0,
        reordered: 0,
        throughput_rps: 50.0,
        throughput_mbps: 1.0,
        cpu_us_per_record: 4.0,
        cpu_includes_brokers: false,
        latency_us: latency(p99.iter().sum::<f64>() / p99.len() as f64),
        latency_until: LatencyUntil::Acknowledged,
        latency_curve: Vec::new(),
        phases_us: PhasesReport::default(),
        phases_estimated: false,
        error_us: None,
        acknowledge_us: None,
        exemplars: Vec::new(),
        timelines: Vec::new(),
        requests_served: [].into(),
        brokers: Vec::new(),
        rounds: p99.iter().map(round).collect(),
        extra: [].into(),
    }
}

pub(crate) fn report(experiment: &str, arms: Vec<ArmReport>) -> Report {
    Report {
        experiment: experiment.into(),
        source: "s".into(),
        cluster: "embedded".into(),
        scale: 1.0,
        seed: 1,
        command: String::new(),
        environment: Environment::default(),
        models: Vec::new(),
        arms,
        published: Vec::new(),
        conditions: Vec::new(),
    }
}

fn p99(row: &Row) -> (Option<f64>, Verdict) {
    let ratio = row.ratios.iter().find(|ratio| ratio.metric == Metric::P99).unwrap();
    (ratio.ratio, ratio.verdict)
}

#[test]
fn turns_separate_a_difference_from_noise() {
    let first = [report("x", vec![arm("a", &[100.0, 110.0, 90.0])])];
    let with = |turns: &[f64]| {
        let rows = between(&first, &[report("x", vec![arm("a", turns)])]).unwrap();
        p99(&rows[0].rows[0])
    };
    assert_eq!(with(&[200.0, 190.0, 210.0]), (Some(2.0), Verdict::Apart(0.1)));
    assert_eq!(with(&[50.0, 40.0, 60.0]), (Some(0.5), Verdict::Apart(0.1)));
    assert_eq!(with(&[105.0, 300.0, 195.0]), (Some(2.0), Verdict::Noise));
    assert_eq!(with(&[200.0]), (Some(2.0), Verdict::Single));
}

#[test]
fn a_comparison_names_what_cannot_be_compared() {
    let mut other = report("x", vec![arm("a", &[1.0]), arm("b", &[1.0])]);
    other.scale = 0.5;
    other.arms[0].cpu_includes_brokers = true;
    let found =
        between(&[report("x", vec![arm("a", &[1.0]), arm("c", &[1.0])])], &[other]).unwrap();
    let notes = found[0].notes.join("; ");
    assert!(notes.contains("the scale differs: 1 and 0.5"), "{notes}");
    assert!(notes.contains("b of curtail is only in the second run"), "{notes}");
    assert!(notes.contains("c of curtail is only in the first run"), "{notes}");
    let cpu = found[0].rows[0].ratios.last().unwrap();
    assert_eq!((cpu.metric, cpu.ratio), (Metric::Cpu, None));
    let error = between(&[report("x", vec![])], &[report("y", vec![])]).unwrap_err();
    assert!(error.ends_with("the first has x, the second y"), "{error}");
    assert!(between(&[report("x", vec![])], &[report("x", vec![])]).is_err());
}

#[test]
fn large_ratios_are_times_and_marks_are_hidden_when_all_ran_once() {
    let cells = |turns: &[f64]| {
        let first = [report("x", vec![arm("a", &vec![100.0; turns.len()])])];
        let found = between(&first, &[report("x", vec![arm("a", turns)])]).unwrap();
        let rows = &found[0].rows;
        (rows[0].cells(rows)[1].clone(), legend(rows).contains('~'))
    };
    assert_eq!(cells(&[200.0]), ("2.00x".into(), false));
    assert_eq!(cells(&[1.0, 1.0]), ("100 times less".into(), true));
    assert_eq!(cells(&[5000.0, 5000.0]), ("50 times more".into(), true));
    assert_eq!(cells(&[50.0, 250.0]), ("1.50x ~".into(), true));
}

#[test]
fn arms_of_one_run_are_compared_with_the_first() {
    let rows = within(&report("x", vec![arm("a", &[10.0]), arm("b", &[30.0])]));
    assert_eq!((rows.len(), &*rows[0].arm, p99(&rows[0]).0), (1, "b", Some(3.0)));
}
