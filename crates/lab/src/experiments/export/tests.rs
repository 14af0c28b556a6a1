use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::serialization::{
    Deserializer,
    interval_log::{IntervalLogIterator, LogEntry},
};

use super::*;
use crate::{
    experiments::{RoundReport, compare::tests as reports},
    over_time::OverTime,
};

/// A report of one arm with two turns: a record of 1, 2, ... 100 ms every 10 ms.
fn report() -> Report {
    let mut arm = reports::arm("an arm, with a comma", &[1.0]);
    let mut distributions = OverTime::default();
    for n in 0..100 {
        distributions.record(n * 10_000_000, (n + 1) * 1_000_000);
    }
    let round = |started_ms| RoundReport {
        started_ms,
        distributions: distributions.clone(),
        ..RoundReport::default()
    };
    arm.rounds = vec![round(5_000), round(1_000)];
    reports::report("x", vec![arm])
}

#[test]
fn the_benchmarks_fields_have_the_figures_in_milliseconds() {
    let report = report();
    let result = serde_json::to_value(omb(&report, &report.arms[0])).unwrap();
    assert_eq!(result["driver"], "curtail on embedded");
    assert_eq!(result["aggregatedPublishLatencyMax"], 100.0);
    let median = result["aggregatedPublishLatency50pct"].as_f64().unwrap();
    assert!((median - 50.0).abs() < 0.5, "{median}");
    let series = result["publishLatency99pct"].as_array().unwrap();
    assert_eq!(series.len(), result["publishRate"].as_array().unwrap().len());
    assert_eq!(series.len(), 2 * 40, "two turns of a second in slots of 25 ms");
    assert_eq!(result["aggregatedPublishLatencyQuantiles"]["100"], 100.0);
    assert_eq!(result["consumeRate"].as_array().unwrap().len(), 0);
    let mut of_sends = report.arms[0].clone();
    of_sends.latency_until = LatencyUntil::Returned;
    assert_eq!(omb(&report, &of_sends), None);
}

#[test]
fn the_log_is_read_by_others_in_the_order_of_time() {
    let mut log = Vec::new();
    hdr(&[report()], &mut log).unwrap();
    let mut deserializer = Deserializer::new();
    let (mut records, mut last, mut started) = (0, Duration::ZERO, None);
    for entry in IntervalLogIterator::new(&log) {
        match entry.unwrap() {
            LogEntry::StartTime(at) => started = Some(at),
            LogEntry::Interval(interval) => {
                assert_eq!(interval.tag().unwrap().as_str(), "x.an_arm__with_a_comma.curtail");
                assert!(interval.start_timestamp() >= last);
                last = interval.start_timestamp();
                let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
                let histogram = deserializer.deserialize::<u64, _>(&mut &*bytes).unwrap();
                records += histogram.len();
                assert!(histogram.max() > 900_000, "nanoseconds");
            }
            LogEntry::BaseTime(_) => {}
        }
    }
    assert_eq!((records, started), (200, Some(Duration::from_secs(1))));
    assert_eq!(last, Duration::from_millis(4975));
}
