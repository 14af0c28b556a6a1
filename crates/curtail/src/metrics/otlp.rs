//! Metrics as `MetricsData` of OpenTelemetry's protocol (OTLP 1), for applications that export them themselves.
//!
//! The push to brokers is separate (`telemetry`): its metrics have Kafka's names, and no histograms. The constants are the field
//! numbers of opentelemetry-proto's `metrics.proto`.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use curtail_wire::{
    otlp::{attributes, number_point},
    protobuf::Message,
};
use tokio::time::Instant;

use super::{
    ConsumerMetrics, Distribution, ProducerMetrics,
    exponential::{Exponential, SCHEMA},
    families::{self, Families, Family, Kind, Labels, NANOS_IN_S},
};

/// Makes payloads of OpenTelemetry's protocol from the metrics of clients.
///
/// Keep one for the life of the program: the start times that it assigns to clients then stay the same. A changed start time reads
/// as a reset of the counters.
///
/// ```
/// # fn post(url: &str, content_type: &str, body: Vec<u8>) {}
/// # fn example(producer: &curtail::Producer, consumer: &curtail::Consumer) {
/// use std::time::SystemTime;
///
/// use curtail::metrics::{OtlpExporter, OtlpMetrics};
///
/// let exporter = OtlpExporter::new(&[("service.name", "orders")], SystemTime::now());
/// // For example once a minute:
/// let mut metrics = exporter.metrics(SystemTime::now());
/// metrics.producer(&producer.metrics()).consumer(&consumer.metrics());
/// post("http://localhost:4318/v1/metrics", OtlpMetrics::CONTENT_TYPE, metrics.to_bytes());
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OtlpExporter {
    /// The fields of the message `Resource`.
    resource: Message,
    /// A time of both clocks.
    created: (Instant, Duration),
}

impl OtlpExporter {
    /// Creates an exporter for the resource with these attributes. `now` is the time of the wall clock.
    #[must_use]
    pub fn new(resource: &[(&str, &str)], now: SystemTime) -> Self {
        let mut message = Message::default();
        attributes(&mut message, 1, resource.iter().copied());
        Self { resource: message, created: (Instant::now(), since_1970(now)) }
    }

    /// Begins a payload. `now` is the time of the wall clock.
    #[must_use]
    pub fn metrics(&self, now: SystemTime) -> OtlpMetrics {
        let exporter = self.clone();
        let now_ns = nanos(since_1970(now));
        OtlpMetrics { exporter, now_ns, start_ns: now_ns, families: BTreeMap::new() }
    }

    /// Returns the start of a snapshot's period, in nanoseconds since 1970.
    fn start_ns(&self, taken: Instant, period: Duration) -> u64 {
        let (instant, wall) = self.created;
        let later = taken.saturating_duration_since(instant);
        let earlier = instant.saturating_duration_since(taken);
        nanos(wall.saturating_add(later).saturating_sub(earlier).saturating_sub(period))
    }
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A payload of OpenTelemetry's protocol in protobuf: `MetricsData`, which has the bytes of an `ExportMetricsServiceRequest`.
///
/// The metrics are the families of [`super::PrometheusText`]: `curtail_producer_phase_seconds` is `curtail.producer.phase` with the
/// unit `s`. Times are exponential histograms of scale 4 with the maximum. A value counts in the bucket that contains it, or lies
/// below the bucket in which it counts by at most 1/32 of the value. Times of 73 minutes and more count in one bucket. The
/// temporality is cumulative, so pass snapshots since the client's creation. The attribute `client_id` distinguishes clients.
///
/// [`OtlpExporter`] has an example.
#[derive(Clone, Debug)]
pub struct OtlpMetrics {
    exporter: OtlpExporter,
    now_ns: u64,
    /// The start of the client whose metrics are being added.
    start_ns: u64,
    /// By name, with the fields of the metric's data that hold its points.
    families: BTreeMap<&'static str, (Family, Message)>,
}

/// Cumulative `AggregationTemporality`.
const CUMULATIVE: u64 = 2;

impl OtlpMetrics {
    /// The value of the header `Content-Type`.
    pub const CONTENT_TYPE: &'static str = "application/x-protobuf";

    /// Adds a producer's metrics.
    pub fn producer(&mut self, metrics: &ProducerMetrics) -> &mut Self {
        self.start_ns = self.exporter.start_ns(metrics.taken, metrics.period);
        families::producer(self, metrics);
        self
    }

    /// Adds a consumer's metrics.
    pub fn consumer(&mut self, metrics: &ConsumerMetrics) -> &mut Self {
        self.start_ns = self.exporter.start_ns(metrics.taken, metrics.period);
        families::consumer(self, metrics);
        self
    }

    /// Returns the payload, to be sent by POST to a collector's `/v1/metrics`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        const RESOURCE_METRICS: u32 = 1;
        const RESOURCE: u32 = 1;
        const SCOPE_METRICS: u32 = 2;
        const SCOPE: u32 = 1;
        const METRICS: u32 = 2;
        let mut data = Message::default();
        data.message(RESOURCE_METRICS, |all| {
            all.bytes(RESOURCE, self.exporter.resource.as_bytes());
            all.message(SCOPE_METRICS, |of_scope| {
                of_scope.message(SCOPE, |scope| {
                    scope.text(1, env!("CARGO_PKG_NAME"));
                    scope.text(2, env!("CARGO_PKG_VERSION"));
                });
                for (family, points) in self.families.values() {
                    of_scope.message(METRICS, |metric| put_metric(metric, *family, points));
                }
            });
        });
        data.into_bytes()
    }

    /// The time of the points. The wall clock may have been set back since the client's creation.
    fn time_ns(&self) -> u64 {
        self.now_ns.max(self.start_ns)
    }

    /// Adds a point to its family.
    fn point(&mut self, family: Family, point: &Message) {
        let entry = self.families.entry(family.name);
        let (_, points) = entry.or_insert_with(|| (family, Message::default()));
        points.bytes(1, point.as_bytes());
    }
}

/// Writes the fields of a `Metric`.
fn put_metric(metric: &mut Message, family: Family, points: &Message) {
    const NAME: u32 = 1;
    const DESCRIPTION: u32 = 2;
    const UNIT: u32 = 3;
    const GAUGE: u32 = 5;
    const SUM: u32 = 7;
    const EXPONENTIAL_HISTOGRAM: u32 = 10;
    let (name, unit) = name_and_unit(family.name);
    metric.text(NAME, &name);
    metric.text(DESCRIPTION, family.help);
    metric.text(UNIT, unit);
    let field = match family.kind {
        Kind::Gauge => GAUGE,
        Kind::Counter => SUM,
        Kind::Times => EXPONENTIAL_HISTOGRAM,
    };
    metric.message(field, |data| {
        data.append(points);
        if family.kind != Kind::Gauge {
            data.uint(2, CUMULATIVE);
        }
        if family.kind == Kind::Counter {
            // Monotonic: the counter never decreases.
            data.uint(3, 1);
        }
    });
}

/// Returns a name in OpenTelemetry's style, and the unit by UCUM. Prometheus makes the family's name of them.
fn name_and_unit(family: &str) -> (String, &'static str) {
    let name = family.strip_suffix("_total").unwrap_or(family);
    let stem =
        |suffix: &str| name.strip_suffix(suffix).filter(|stem| stem.matches('_').count() > 1);
    let (name, unit) = match (stem("_seconds"), stem("_bytes")) {
        (Some(stem), _) => (stem, "s"),
        (None, Some(stem)) => (stem, "By"),
        (None, None) if name.ends_with("_bytes") => (name, "By"),
        (None, None) => (name, ""),
    };
    // `curtail` and the kind of client are namespaces.
    (name.replacen('_', ".", 2), unit)
}

impl Families for OtlpMetrics {
    fn number(&mut self, family: Family, labels: &Labels<'_>, value: f64) {
        let start_ns = (family.kind == Kind::Counter).then_some(self.start_ns);
        let mut point = Message::default();
        number_point(&mut point, labels.iter().copied(), start_ns, self.time_ns(), value);
        self.point(family, &point);
    }

    fn times(&mut self, family: Family, labels: &Labels<'_>, times: &Distribution) {
        let mut point = Message::default();
        attributes(&mut point, 1, labels.iter().copied());
        point.fixed64(2, self.start_ns);
        point.fixed64(3, self.time_ns());
        put_histogram(&mut point, times);
        self.point(family, &point);
    }
}

/// Writes the values of an `ExponentialHistogramDataPoint`.
fn put_histogram(point: &mut Message, times: &Distribution) {
    const COUNT: u32 = 4;
    const SUM: u32 = 5;
    const SCALE: u32 = 6;
    const ZERO_COUNT: u32 = 7;
    const POSITIVE: u32 = 8;
    const MAX: u32 = 13;
    let buckets = Exponential::of(times);
    point.fixed64(COUNT, buckets.count());
    point.double(SUM, times.sum() as f64 / NANOS_IN_S);
    point.sint(SCALE, SCHEMA.into());
    point.fixed64(ZERO_COUNT, buckets.zeros);
    if !buckets.counts.is_empty() {
        point.message(POSITIVE, |positive| {
            // OpenTelemetry numbers a bucket by its lower bound, Prometheus by its upper one.
            positive.sint(1, i64::from(buckets.first) - 1);
            positive.uints(2, buckets.counts.iter().copied());
        });
    }
    if buckets.count() > 0 {
        point.double(MAX, times.max() as f64 / NANOS_IN_S);
    }
}
