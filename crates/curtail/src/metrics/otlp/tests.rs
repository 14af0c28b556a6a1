use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use super::*;
use crate::{
    metrics::{
        self, PrometheusText,
        prometheus::tests::{Series, consumer, full, samples},
    },
    telemetry::tests::decoded::{self, Data, ExponentialHistogramDataPoint, Metric, Value, pairs},
};

const START: Duration = Duration::from_secs(1_000);
const MINUTE: Duration = Duration::from_secs(60);

/// The name that Prometheus makes of a metric, by the rules of its OTLP receiver.
fn prometheus_name(metric: &Metric) -> String {
    let mut name = metric.name.replace('.', "_");
    let unit = BTreeMap::from([("s", "seconds"), ("By", "bytes"), ("", "")])[&*metric.unit];
    if !unit.is_empty() && !name.split('_').any(|word| word == unit) {
        name = format!("{name}_{unit}");
    }
    match &metric.data {
        Some(Data::Sum(sum)) if sum.is_monotonic => name + "_total",
        _ => name,
    }
}

/// The series of a metric, by Prometheus' names, and its value.
fn read(metric: &Metric) -> Vec<(Series, f64)> {
    let name = prometheus_name(metric);
    let numbers = metric.points().iter().map(|point| {
        let Some(Value::AsDouble(value)) = point.value else { panic!("{point:?}") };
        ((name.clone(), pairs(&point.attributes)), value)
    });
    let of_times = |point: &ExponentialHistogramDataPoint| {
        let of =
            |suffix: &str, value| ((format!("{name}{suffix}"), pairs(&point.attributes)), value);
        [of("_sum", point.sum.expect("a sum")), of("_count", point.count as f64)]
    };
    match &metric.data {
        Some(Data::ExponentialHistogram(times)) => {
            times.data_points.iter().flat_map(of_times).collect()
        }
        _ => numbers.collect(),
    }
}

fn decoded(metrics: &OtlpMetrics) -> decoded::MetricsData {
    decoded::MetricsData::decode(&*metrics.to_bytes()).expect("a payload")
}

fn histogram(values: &[(u64, u64)]) -> Distribution {
    let times = metrics::Histogram::default();
    values.iter().for_each(|(value, count)| times.record(*value, *count));
    times.snapshot()
}

#[test]
fn another_decoder_reads_metrics_that_prometheus_names_as_the_families_of_the_text() {
    let (sending, receiving) = full();
    let exporter = OtlpExporter::new(&[("service.name", "orders")], UNIX_EPOCH + START);
    let mut otlp = exporter.metrics(UNIX_EPOCH + START);
    otlp.producer(&sending).consumer(&receiving).consumer(&consumer("d"));
    let data = decoded(&otlp);
    let [of_resource] = &data.resource_metrics[..] else { panic!("{data:?}") };
    let resource = of_resource.resource.as_ref().expect("a resource");
    assert_eq!(pairs(&resource.attributes), [("service.name".to_owned(), "orders".to_owned())]);
    let scope = of_resource.scope_metrics[0].scope.as_ref().expect("a scope");
    assert_eq!((&*scope.name, &*scope.version), ("curtail", env!("CARGO_PKG_VERSION")));
    let mut names = BTreeSet::new();
    let mut found = BTreeMap::new();
    for metric in data.metrics() {
        assert!(names.insert(metric.name.clone()), "{} twice", metric.name);
        assert!(metric.description.ends_with('.'), "{}", metric.name);
        found.extend(read(metric));
    }
    let mut text = PrometheusText::default();
    text.producer(&sending).consumer(&receiving).consumer(&consumer("d"));
    let mut expected = samples(&text.to_string());
    expected.retain(|(_, labels), _| labels.iter().all(|(label, _)| label != "quantile"));
    assert_eq!(found, expected);
    assert!(names.contains("curtail.producer.phase") && names.contains("curtail.consumer.bytes"));
}

#[tokio::test(start_paused = true)]
async fn counters_and_histograms_start_with_their_client_in_every_payload() {
    let (mut sending, _) = full();
    let created = Instant::now();
    tokio::time::advance(MINUTE).await;
    let exporter = OtlpExporter::new(&[], UNIX_EPOCH + START);
    // The wall clock is set by ten minutes in between, and then back to a time before the client's creation.
    for (now, time) in [
        (START, START),
        (START + 11 * MINUTE, START + 11 * MINUTE),
        (START - 5 * MINUTE, START - MINUTE),
    ] {
        (sending.taken, sending.period) = (Instant::now(), created.elapsed());
        let mut otlp = exporter.metrics(UNIX_EPOCH + now);
        let mut times = BTreeSet::new();
        for metric in decoded(otlp.producer(&sending)).metrics() {
            match metric.data.as_ref().expect("data") {
                Data::ExponentialHistogram(histogram) => {
                    assert_eq!(histogram.aggregation_temporality, 2);
                    let points = histogram.data_points.iter();
                    times.extend(points.map(|p| (p.start_time_unix_nano, p.time_unix_nano)));
                }
                Data::Sum(sum) => {
                    assert_eq!((sum.aggregation_temporality, sum.is_monotonic), (2, true));
                    let points = sum.data_points.iter();
                    times.extend(points.map(|p| (p.start_time_unix_nano, p.time_unix_nano)));
                }
                Data::Gauge(gauge) => {
                    assert!(gauge.data_points.iter().all(|point| point.start_time_unix_nano == 0));
                }
            }
        }
        let expected = ((START - MINUTE).as_nanos() as u64, time.as_nanos() as u64);
        assert_eq!(times, BTreeSet::from([expected]));
        tokio::time::advance(MINUTE).await;
    }
}

/// Bytes that were worked out by hand from `metrics.proto` and the encoding.
#[test]
fn histogram_has_the_bytes_of_a_worked_example() {
    // 0 s is in the zero count, 1 s and 1.1 s in the buckets with the upper bounds 2^(1/16) and 2^(3/16).
    let times = histogram(&[(0, 1), (1_000_000_000, 3), (1_100_000_000, 300)]);
    let mut point = Message::default();
    put_histogram(&mut point, &times);
    let sum = 333.0_f64.to_le_bytes();
    let max = 1.1_f64.to_le_bytes();
    let expected: &[&[u8]] = &[
        // count 304
        &[0x21, 0x30, 1, 0, 0, 0, 0, 0, 0],
        &[0x29],
        &sum,
        // scale 4, zero_count 1
        &[0x30, 8],
        &[0x39, 1, 0, 0, 0, 0, 0, 0, 0],
        // positive: offset 0, bucket_counts 3, 0, 300
        &[0x42, 8, 0x08, 0, 0x12, 4, 3, 0, 0xac, 0x02],
        &[0x69],
        &max,
    ];
    assert_eq!(point.as_bytes(), expected.concat());
}

#[test]
fn histogram_without_values_has_neither_buckets_nor_a_maximum() {
    let mut point = Message::default();
    put_histogram(&mut point, &Distribution::default());
    let read = ExponentialHistogramDataPoint::decode(point.as_bytes()).expect("a point");
    assert_eq!((read.count, read.sum, read.zero_count), (0, Some(0.0), 0));
    assert_eq!((read.scale, read.positive, read.max), (4, None, None));
}
