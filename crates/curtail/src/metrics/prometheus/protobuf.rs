//! Metrics in Prometheus' protobuf exposition format, the one that has native histograms.
//!
//! The messages are those of `io.prometheus.client` in client_model's `metrics.proto`; the constants are their field numbers.

#[cfg(test)]
pub(super) mod decoded;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use curtail_wire::protobuf::Message;

use crate::metrics::{
    ConsumerMetrics, Distribution, ProducerMetrics,
    exponential::{Exponential, SCHEMA, Spans},
    families::{self, Families, Family, Kind, Labels, NANOS_IN_S},
};

/// The metrics of clients in Prometheus' protobuf format, to be served as [`PrometheusProtobuf::CONTENT_TYPE`].
///
/// The families are those of [`crate::metrics::PrometheusText`]. Times are native histograms of schema 4, which Prometheus can
/// sum over clients and intervals before it computes a quantile. A value counts in the bucket that contains it, or lies below the
/// bucket in which it counts by at most 1/32 of the value. Times of 73 minutes and more count in one bucket.
///
/// Serve it only to a scraper that accepts the format: [`crate::metrics::PrometheusScrape`] chooses.
///
/// ```
/// # fn example(producer: &curtail::Producer, consumer: &curtail::Consumer) -> Vec<u8> {
/// let mut metrics = curtail::metrics::PrometheusProtobuf::default();
/// metrics.producer(&producer.metrics()).consumer(&consumer.metrics());
/// metrics.to_bytes()
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct PrometheusProtobuf {
    /// By name, with the fields of the message `MetricFamily` that hold its metrics.
    families: BTreeMap<&'static str, (Family, Message)>,
}

impl PrometheusProtobuf {
    /// The value of the header `Content-Type`.
    pub const CONTENT_TYPE: &'static str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

    /// Adds a producer's metrics.
    pub fn producer(&mut self, metrics: &ProducerMetrics) -> &mut Self {
        families::producer(self, metrics);
        self
    }

    /// Adds a consumer's metrics.
    pub fn consumer(&mut self, metrics: &ConsumerMetrics) -> &mut Self {
        families::consumer(self, metrics);
        self
    }

    /// Returns the body of the response: each family as a message after its length.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        const NAME: u32 = 1;
        const HELP: u32 = 2;
        const TYPE: u32 = 3;
        let mut body = Message::default();
        for (Family { kind, name, help }, metrics) in self.families.values() {
            let mut family = Message::default();
            family.text(NAME, name);
            family.text(HELP, help);
            let kind = match kind {
                Kind::Counter => 0,
                Kind::Gauge => 1,
                Kind::Times => 4,
            };
            family.uint(TYPE, kind);
            family.append(metrics);
            body.delimited(&family);
        }
        body.into_bytes()
    }

    /// Adds a `Metric` to its family.
    fn metric(&mut self, family: Family, labels: &Labels<'_>, value: impl FnOnce(&mut Message)) {
        const METRIC: u32 = 4;
        const LABEL: u32 = 1;
        let entry = self.families.entry(family.name);
        let (_, metrics) = entry.or_insert_with(|| (family, Message::default()));
        metrics.message(METRIC, |metric| {
            for (name, value) in labels {
                metric.message(LABEL, |pair| {
                    pair.text(1, name);
                    pair.text(2, value);
                });
            }
            value(metric);
        });
    }
}

impl Families for PrometheusProtobuf {
    fn number(&mut self, family: Family, labels: &Labels<'_>, value: f64) {
        const GAUGE: u32 = 2;
        const COUNTER: u32 = 3;
        let field = if family.kind == Kind::Counter { COUNTER } else { GAUGE };
        self.metric(family, labels, |metric| {
            metric.message(field, |number| number.double(1, value));
        });
    }

    fn times(&mut self, family: Family, labels: &Labels<'_>, times: &Distribution) {
        const HISTOGRAM: u32 = 7;
        self.metric(family, labels, |metric| {
            metric.message(HISTOGRAM, |histogram| put_histogram(histogram, times));
        });
    }
}

/// Writes the fields of a `Histogram`, those of a native one only.
fn put_histogram(histogram: &mut Message, times: &Distribution) {
    const COUNT: u32 = 1;
    const SUM: u32 = 2;
    const BUCKET_SCHEMA: u32 = 5;
    const ZERO_THRESHOLD: u32 = 6;
    const ZERO_COUNT: u32 = 7;
    const SPAN: u32 = 12;
    const DELTA: u32 = 13;
    let buckets = Exponential::of(times);
    let Spans { mut spans, deltas } = buckets.spans();
    // A span without buckets marks a native histogram that has none.
    if spans.is_empty() {
        spans.push((0, 0));
    }
    histogram.uint(COUNT, buckets.count());
    histogram.double(SUM, times.sum() as f64 / NANOS_IN_S);
    histogram.sint(BUCKET_SCHEMA, SCHEMA.into());
    histogram.double(ZERO_THRESHOLD, 0.0);
    histogram.uint(ZERO_COUNT, buckets.zeros);
    for (offset, length) in spans {
        histogram.message(SPAN, |span| {
            span.sint(1, offset.into());
            span.uint(2, length.into());
        });
    }
    if !deltas.is_empty() {
        histogram.sints(DELTA, deltas.into_iter());
    }
}
