mod dashboard;
mod promql;

use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::{
    TopicPartition,
    metrics::{ConsumerStats, FetchMetrics, GroupMetrics, Histogram, PartitionLag, ProducerStats},
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

pub(in crate::metrics) fn consumer(client_id: &str) -> ConsumerMetrics {
    let stats = ConsumerStats::new(true);
    let at = TopicPartition::new("t\"\\\n", 3);
    ConsumerMetrics {
        client_id: client_id.into(),
        taken: stats.started,
        period: Duration::ZERO,
        records_consumed_total: 7,
        bytes_consumed_total: 70,
        connection_creation_total: 2,
        poll_idle_time: Duration::from_millis(500),
        certificates_outdated: false,
        brokers: [(2, FetchMetrics::default())].into(),
        group: None,
        partitions: [(at, PartitionLag { lag: Some(5), buffered_bytes: 0 })].into(),
    }
}

/// A producer and a consumer. None of their samples is 0.
pub(in crate::metrics) fn full() -> (ProducerMetrics, ConsumerMetrics) {
    let time = Duration::from_millis(3);
    let times = Histogram::default();
    times.record(3_000_000, 2);
    let stats = ProducerStats::new(true);
    let broker = stats.broker(1);
    broker.batch_taken(time, 500, 10);
    broker.request_built(600);
    broker.drained(time);
    broker.answered(time, 50);
    broker.batch_refused();
    broker.batch_retried(10);
    broker.batch_acknowledged(time, 10);
    broker.connected();
    let mut brokers = stats.snapshot();
    for broker in brokers.values_mut() {
        (broker.requests_in_flight, broker.queue_bytes) = (1, 500);
    }
    let sending = ProducerMetrics {
        buffer_wait: times.snapshot(),
        window_wait: times.snapshot(),
        metadata_wait: times.snapshot(),
        record_error_total: 1,
        certificates_outdated: true,
        brokers,
        ..producer("p", &[])
    };
    let fetches = FetchMetrics {
        fetch_latency: times.snapshot(),
        buffer_time: times.snapshot(),
        fetch_total: 2,
        session_open_total: 1,
        ..FetchMetrics::default()
    };
    let lag = PartitionLag { lag: Some(5), buffered_bytes: 50 };
    let group = GroupMetrics {
        commit_latency: times.snapshot(),
        heartbeat_latency: times.snapshot(),
        join_time: times.snapshot(),
        sync_time: times.snapshot(),
        rebalance_latency: times.snapshot(),
        failed_rebalance_total: 1,
        partition_revoked_latency: times.snapshot(),
        partition_assigned_latency: times.snapshot(),
        partition_lost_latency: times.snapshot(),
        since_rebalance: Some(time),
        since_heartbeat: Some(time),
    };
    let receiving = ConsumerMetrics {
        certificates_outdated: true,
        group: Some(group),
        brokers: [(2, fetches)].into(),
        partitions: [(TopicPartition::new("t", 3), lag)].into(),
        ..consumer("c")
    };
    (sending, receiving)
}

/// A sample's name and labels.
pub(in crate::metrics) type Series = (String, Vec<(String, String)>);

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
pub(in crate::metrics) fn samples(text: &str) -> BTreeMap<Series, f64> {
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

pub(in crate::metrics) fn series(name: &str, labels: &[(&str, &str)]) -> Series {
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

#[test]
fn consumer_of_a_group_has_its_families_and_one_without_a_group_has_none() {
    let (_, mut receiving) = full();
    let of_group = |metrics: &ConsumerMetrics| {
        let text = PrometheusText::default().consumer(metrics).to_string();
        let samples = samples(&text).into_iter();
        let names = samples.map(|((name, labels), value)| {
            let events = labels.into_iter().filter(|(label, _)| label == "event");
            (name + &events.map(|(_, event)| "/".to_owned() + &event).collect::<String>(), value)
        });
        names.collect::<BTreeMap<String, f64>>()
    };
    let with = of_group(&receiving);
    for name in ["rebalance", "join", "sync", "heartbeat", "commit"] {
        assert_eq!(with[&format!("curtail_consumer_{name}_seconds_count")], 2.0, "{name}");
        assert_eq!(with[&format!("curtail_consumer_{name}_seconds_sum")], 0.006, "{name}");
    }
    for event in ["revoked", "assigned", "lost"] {
        assert_eq!(with[&format!("curtail_consumer_listener_seconds_count/{event}")], 2.0);
    }
    assert_eq!(with["curtail_consumer_failed_rebalances_total"], 1.0);
    assert_eq!(with["curtail_consumer_assigned_partitions"], 1.0);
    assert_eq!(with["curtail_consumer_since_rebalance_seconds"], 0.003);
    assert_eq!(with["curtail_consumer_since_heartbeat_seconds"], 0.003);
    let group = receiving.group.as_mut().expect("a group");
    (group.since_rebalance, group.since_heartbeat) = (None, None);
    let before = of_group(&receiving);
    assert!(before.keys().all(|name| !name.contains("_since_")), "{before:?}");
    receiving.group = None;
    let without = of_group(&receiving);
    assert_eq!(with.len() - without.len(), 5 * 3 + 3 * 3 + 4, "{without:?}");
}
