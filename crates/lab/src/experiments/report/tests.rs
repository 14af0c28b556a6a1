use std::time::{Duration, Instant};

use super::*;
use crate::{experiments::Figure, peers::Client};

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
