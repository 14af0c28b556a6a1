use std::collections::BTreeMap;

use super::{
    decoded::{Histogram, Metric, families},
    *,
};
use crate::metrics::{
    self, PrometheusText,
    exponential::tests::counts,
    prometheus::tests::{Series, consumer, full, samples, series},
};

/// The series of a metric, by Prometheus' names, and its value.
fn read(name: &str, metric: &Metric) -> Vec<(Series, f64)> {
    let pairs = metric.label.iter().map(|pair| (pair.name.clone(), pair.value.clone()));
    let labels: Vec<_> =
        pairs.map(|(name, value)| (name.expect("a name"), value.expect("a value"))).collect();
    let of = |suffix: &str, value| ((format!("{name}{suffix}"), labels.clone()), value);
    match (&metric.gauge, &metric.counter, &metric.histogram) {
        (Some(number), None, None) | (None, Some(number), None) => {
            vec![of("", number.value.expect("a value"))]
        }
        (None, None, Some(times)) => vec![
            of("_sum", times.sample_sum.expect("a sum")),
            of("_count", times.sample_count.expect("a count") as f64),
        ],
        other => panic!("{other:?}"),
    }
}

/// The buckets of a histogram, after a check of the rules that Prometheus has for a native one.
fn buckets(times: &Histogram) -> Vec<(i32, u64)> {
    assert_eq!((times.schema, times.zero_threshold), (Some(4), Some(0.0)));
    assert!(!times.positive_span.is_empty(), "not marked as native");
    let spans = times.positive_span.iter();
    let spans: Vec<_> =
        spans.map(|span| (span.offset.expect("offset"), span.length.expect("length"))).collect();
    let counts = counts(&spans, times.positive_delta.iter().copied());
    let total: u64 = counts.iter().map(|(_, count)| count).sum();
    assert_eq!(times.sample_count, Some(total + times.zero_count.expect("a count of zeros")));
    counts
}

#[test]
fn another_decoder_reads_the_families_of_the_text_with_histograms_for_summaries() {
    let (sending, receiving) = full();
    let mut binary = PrometheusProtobuf::default();
    binary.producer(&sending).consumer(&receiving).consumer(&consumer("d"));
    let families = families(&binary.to_bytes());
    let mut text = PrometheusText::default();
    text.producer(&sending).consumer(&receiving).consumer(&consumer("d"));
    let text = text.to_string();
    let mut found = BTreeMap::new();
    let mut heads = String::new();
    for family in &families {
        let (name, help) = (family.name.clone().expect("a name"), family.help.clone());
        let kind = ["counter", "gauge", "", "", "summary"][family.kind.expect("a type") as usize];
        let help = help.expect("help");
        heads += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for metric in &family.metric {
            assert_eq!(kind == "summary", metric.histogram.is_some(), "{name}");
            assert_eq!(kind == "counter", metric.counter.is_some(), "{name}");
            metric.histogram.iter().for_each(|times| drop(buckets(times)));
            found.extend(read(&name, metric));
        }
    }
    let mut expected = samples(&text);
    expected.retain(|(_, labels), _| labels.iter().all(|(label, _)| label != "quantile"));
    assert_eq!(found, expected);
    let of_text = text.lines().filter(|line| line.starts_with('#'));
    assert_eq!(heads, of_text.map(|line| format!("{line}\n")).collect::<String>());
    assert!(found.contains_key(&series("curtail_consumer_bytes_total", &[("client_id", "d")])));
}

/// Bytes that were worked out by hand from `metrics.proto` and the encoding.
#[test]
fn histogram_has_the_bytes_of_a_worked_example() {
    let times = metrics::Histogram::default();
    // 0 s is in the zero bucket, 1 s and 2 s in those with the bounds 2^(1/16) and 2^(17/16).
    for (value, count) in [(0, 1), (1_000_000_000, 3), (2_000_000_000, 1)] {
        times.record(value, count);
    }
    let mut histogram = Message::default();
    put_histogram(&mut histogram, &times.snapshot());
    let expected: &[&[u8]] = &[
        // sample_count 5, sample_sum 5.0
        &[0x08, 5],
        &[0x11, 0, 0, 0, 0, 0, 0, 0x14, 0x40],
        // schema 4, zero_threshold 0.0, zero_count 1
        &[0x28, 8],
        &[0x31, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x38, 1],
        // Spans: one bucket at 1, and after 15 empty ones another at 17.
        &[0x62, 4, 0x08, 2, 0x10, 1],
        &[0x62, 4, 0x08, 30, 0x10, 1],
        // Deltas: 3, -2.
        &[0x6a, 2, 6, 3],
    ];
    assert_eq!(histogram.as_bytes(), expected.concat());
}

#[test]
fn histogram_without_values_has_a_span_without_buckets() {
    let mut empty = Message::default();
    put_histogram(&mut empty, &Distribution::default());
    let read = <Histogram as prost::Message>::decode(empty.as_bytes()).expect("a histogram");
    assert!(buckets(&read).is_empty());
    assert_eq!((read.sample_count, read.sample_sum), (Some(0), Some(0.0)));
    assert_eq!(read.positive_span.len(), 1);
}
