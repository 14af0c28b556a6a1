use std::time::{Duration, Instant};

use super::*;
use crate::{
    experiments::{
        Figure,
        compare::tests::{arm as compared, report},
    },
    peers::Client,
};

/// A turn of a hundred records whose slowest took `slowest`.
fn turn(slowest: Duration) -> Sample {
    let mut sample = Sample { records: 100, elapsed: Duration::from_secs(1), ..Sample::default() };
    for index in 0..100 {
        let latency = if index == 99 { slowest } else { Duration::from_millis(1) };
        sample.latency.record(latency);
        sample.over_time.record(index * 10_000_000, latency.as_nanos() as u64);
    }
    let start = Instant::now();
    sample.mark(
        start,
        start + Duration::from_millis(500),
        start + Duration::from_secs(1),
        "frozen",
    );
    sample.brokers = [(1, (60, 6000)), (2, (40, 4000))].into();
    sample.note("never_seen_ms", Figure::Worst(f64::NAN));
    sample
}

/// Two turns of one arm.
fn arm() -> ArmReport {
    let arm = Arm { name: "one", about: "", properties: &[] };
    let mut all = turn(Duration::from_millis(5));
    let mut second = turn(Duration::from_millis(50));
    let rounds = vec![RoundReport::new(1, &mut all), RoundReport::new(2, &mut second)];
    all.join(second);
    ArmReport::new(&arm, Client::Curtail, &all, rounds)
}

#[test]
fn an_arm_reports_its_turns_and_their_sum() {
    let arm = arm();
    assert_eq!((arm.records, arm.rounds.len()), (200, 2));
    let slowest: Vec<f64> =
        arm.rounds.iter().map(|round| (round.latency_us.max / 1000.0).round()).collect();
    assert_eq!(slowest, [5.0, 50.0]);
    assert_eq!(arm.latency_curve.last().unwrap().us, arm.latency_us.max);
    let share = |broker, records, bytes| BrokerShare { broker, records, bytes };
    assert_eq!(arm.brokers, [share(1, 120, 12_000), share(2, 80, 8_000)]);
    for round in &arm.rounds {
        let over_time = round.over_time.as_ref().unwrap();
        assert_eq!(over_time.slots.iter().map(|slot| slot.records).sum::<u64>(), 100);
        let fault = &round.faults[0];
        assert_eq!((fault.from_ms, fault.until_ms, &*fault.what), (500.0, 1000.0, "frozen"));
    }
}

#[test]
fn a_written_arm_is_read_back_unchanged() {
    let text = serde_json::to_string(&arm()).unwrap();
    let read: ArmReport = serde_json::from_str(&text).unwrap();
    assert!(text.contains(r#""never_seen_ms":null"#) && read.extra["never_seen_ms"].is_nan());
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

#[test]
fn reports_without_rounds_are_read() {
    let text = r#"{"experiment":"e2e","source":"s","cluster":"embedded","scale":1.0,"seed":1,"arms":[{"name":"a",
        "client":"curtail","records":1,"errors":0,"lost":0,"duplicated":0,"reordered":0,"throughput_rps":1.0,
        "throughput_mbps":1.0,"cpu_us_per_record":1.0,"latency_us":{"avg":1.0,"p50":1.0,"p95":1.0,"p99":1.0,
        "p999":1.0,"max":1.0},"phases_us":{"produce":null,"publish":null,"commit":null,"catch_up":null,
        "fetch":null},"extra":{}}],"published":[],"conditions":[]}"#;
    let report: Report = serde_json::from_str(text).unwrap();
    assert!(report.arms[0].rounds.is_empty() && report.command.is_empty());
}

/// A report with these conditions: whether each held.
fn with_conditions(held: &[bool]) -> Report {
    let condition = |(at, held): (usize, &bool)| Condition { text: format!("c{at}"), held: *held };
    let conditions = held.iter().enumerate().map(condition).collect();
    Report { conditions, ..report("x", Vec::new()) }
}

#[test]
fn a_conclusion_is_one_sentence_with_the_number_of_conditions() {
    for (held, said) in [
        (&[][..], "No condition was set."),
        (&[true], "The condition holds."),
        (&[false], "The condition does not hold: c0."),
        (&[true, true], "All 2 conditions hold."),
        (&[true, false, false], "2 of 3 conditions do not hold, first c1."),
    ] {
        assert_eq!(with_conditions(held).conclusion(), said);
    }
}

#[test]
fn conditions_of_integrity_that_held_are_one() {
    let mut report = with_conditions(&[true]);
    let integrity = |arm: &str, held| Condition {
        text: format!("{arm}: {} (0, 0, 0, 0)", Condition::INTEGRITY),
        held,
    };
    report.conditions.extend([integrity("a", true), integrity("b", false), integrity("c", true)]);
    let texts: Vec<String> =
        report.folded_conditions().into_iter().map(|condition| condition.text).collect();
    assert_eq!(texts[0], "no record lost, duplicated or reordered, and no error (2 arms)");
    assert_eq!(texts[1..], ["c0".to_owned(), integrity("b", false).text]);
}

#[test]
fn arms_with_few_records_behind_p999_are_among_the_limits() {
    let with = |name: &str, records| ArmReport { records, ..compared(name, &[1.0, 2.0]) };
    let limits = report("x", vec![with("few", 6_300), with("many", 10_000)]).limits();
    let few: Vec<&String> = limits.iter().filter(|limit| limit.contains("p99.9")).collect();
    assert_eq!(few, ["p99.9 of few rests on the slowest 6 of 6300 records: it may be noise."]);
}

#[test]
fn figures_without_a_document_are_not_published() {
    let figure = |source: &str| PublishedFigure {
        arm: "java".into(),
        source: source.into(),
        latency_us: PublishedLatency::default(),
        throughput_mbps: None,
        note: String::new(),
    };
    let mut report = report("x", Vec::new());
    report.source = "KAFKA-13115; peers measured on Apache Kafka 4.3".into();
    report.published =
        ["best peer, measured on Apache Kafka 4.3", "KIP-951", "measured on Apache Kafka 4.3"]
            .map(figure)
            .into();
    let sources: Vec<&str> = report.published().map(|figure| &*figure.source).collect();
    assert_eq!((sources, report.source()), (vec!["KIP-951"], "KAFKA-13115"));
}
