mod dashboard;
mod promql;

use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::{
    TopicPartition,
    metrics::{ConsumerStats, FetchMetrics, PartitionLag, ProducerStats},
};

fn producer(client_id: &str, latencies: &[u64]) -> ProducerMetrics {
    let stats = ProducerStats::new(true);
    for latency in latencies {
        stats.broker(1).answered(Duration::from_millis(*latency), 50);
    }
    ProducerMetrics {
        client_id: client_id.into(),
        taken: stats.started,
        period: Duration::ZERO,
        buffer_total_bytes: 100,
        buffer_available_bytes: 40,
        buffer_wait: Distribution::default(),
        window_wait: Distribution::default(),
        buffer_exhausted_total: 0,
        metadata_wait: Distribution::default(),
        flush_time: Distribution::default(),
        record_error_total: 0,
        leaderless_bytes: 0,
        certificates_outdated: false,
        brokers: stats.snapshot(),
    }
}

fn consumer(client_id: &str) -> ConsumerMetrics {
    let stats = ConsumerStats::new(true);
    let at = TopicPartition::new("t\"\\\n", 3);
    ConsumerMetrics {
        client_id: client_id.into(),
        taken: stats.started,
        period: Duration::ZERO,
        records_consumed_total: 7,
        bytes_consumed_total: 70,
        certificates_outdated: false,
        brokers: [(2, FetchMetrics::default())].into(),
        group: None,
        partitions: [(at, PartitionLag { lag: Some(5), buffered_bytes: 0 })].into(),
    }
}

/// A sample's name and labels.
type Series = (String, Vec<(String, String)>);

/// Parses a sample by the format's rules: name, labels with escapes, value.
fn sample(line: &str) -> (Series, f64) {
    let is_name = |text: &str| {
        let mut letters = text.chars();
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        letters.next().is_some_and(first) && letters.all(|c| first(c) || c.is_ascii_digit())
    };
    let (name, mut rest) = line.split_once('{').expect("labels");
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    loop {
        let (label, behind) = rest.split_once("=\"").expect("a label");
        assert!(is_name(label), "{line}");
        let mut value = String::new();
        let mut letters = behind.char_indices();
        let end = loop {
            match letters.next().expect("an end") {
                (at, '"') => break at,
                (_, '\\') => value.push(match letters.next().expect("an escape").1 {
                    'n' => '\n',
                    escaped @ ('"' | '\\') => escaped,
                    other => panic!("{other}: {line}"),
                }),
                (_, letter) => value.push(letter),
            }
        };
        labels.push((label.to_owned(), value));
        rest = &behind[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let value = rest.strip_prefix("} ").expect("a value").parse().expect("a number");
    ((name.to_owned(), labels), value)
}

/// Checks the format's rules and returns the samples. HELP and TYPE appear once, before all samples of a family, and
/// no series appears twice.
fn samples(text: &str) -> BTreeMap<Series, f64> {
    assert!(text.ends_with('\n'));
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let (family, _) = help.strip_prefix("# HELP ").expect(help).split_once(' ').expect("help");
        assert!(families.insert(family.to_owned()), "{family} twice");
        let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).expect("a type");
        let (name, kind) = kind.split_once(' ').expect("a type");
        assert_eq!(name, family);
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (series, value) = sample(line);
            let allowed: &[&str] = match kind {
                "summary" => &["", "_sum", "_count"],
                "counter" | "gauge" => &[""],
                other => panic!("{other}"),
            };
            let ending = series.0.strip_prefix(family).expect("its family's name");
            assert!(allowed.contains(&ending), "{line} of {kind}");
            let quantile = series.1.iter().any(|(label, _)| label == "quantile");
            assert_eq!(quantile, kind == "summary" && ending.is_empty(), "{line}");
            assert!(kind != "counter" || family.ends_with("_total"), "{line}");
            assert!(samples.insert(series, value).is_none(), "{line} twice");
        }
    }
    samples
}

fn series(name: &str, labels: &[(&str, &str)]) -> Series {
    let owned = |(label, value): &(&str, &str)| ((*label).to_owned(), (*value).to_owned());
    (name.to_owned(), labels.iter().map(owned).collect())
}

#[test]
fn clients_share_families_and_follow_the_rules_of_the_format() {
    let odd = "a \"quoted\\\" name\nover two lines";
    let mut text = PrometheusText::default();
    text.producer(&producer(odd, &[8, 8, 8, 16])).producer(&producer("b", &[]));
    text.consumer(&consumer("c"));
    let samples = samples(&text.to_string());
    let value = |name: &str, labels: &[(&str, &str)]| samples[&series(name, labels)];
    let request = [("client_id", odd), ("broker", "1"), ("phase", "request")];
    let phases = "curtail_producer_phase_seconds";
    assert_eq!(value(&format!("{phases}_count"), &request), 4.0);
    assert_eq!(value(&format!("{phases}_sum"), &request), 0.04);
    let quantile = |word| [request[0], request[1], request[2], ("quantile", word)];
    assert_eq!(value(phases, &quantile("1")), 0.016);
    let median = value(phases, &quantile("0.5"));
    assert!((0.008..0.00826).contains(&median), "{median}");
    let empty = [("client_id", odd), ("broker", "1"), ("phase", "queue")];
    assert_eq!(value(&format!("{phases}_count"), &empty), 0.0);
    assert_eq!(value("curtail_producer_buffer_bytes", &[("client_id", "b")]), 100.0);
    let partition = [("client_id", "c"), ("topic", "t\"\\\n"), ("partition", "3")];
    assert_eq!(value("curtail_consumer_lag_records", &partition), 5.0);
    assert_eq!(value("curtail_consumer_records_total", &[("client_id", "c")]), 7.0);
}
