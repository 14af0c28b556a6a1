//! The metrics under Kafka's names.
//!
//! Names, groups and units follow the Java producer's sensors where it has a counterpart (`SenderMetricsRegistry`,
//! `BufferPool`, `KafkaProducerMetrics`, `Selector`). `producer-metrics` covers the whole producer;
//! `producer-node-metrics`, with a tag `node-id`, covers each broker. Times are in milliseconds unless the name says
//! `ns`. Rates are per second over the snapshot's period. Java's averages use a sliding window of at least 30 s; here
//! the period lies between two snapshots. Metrics that Java lacks follow the same pattern: `request-latency-p99`,
//! `record-queue-time-p999`.

use std::time::Duration;

use super::{BrokerMetrics, Distribution, ProducerMetrics};

/// A value under its Kafka name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NamedMetric {
    /// For example `producer-metrics`, or `producer-node-metrics` for a broker.
    pub group: &'static str,
    /// For example `request-latency-avg`.
    pub name: String,
    /// `client-id`, and for a broker `node-id` (`node-1`); for a partition `topic` and `partition`.
    pub tags: Vec<(&'static str, String)>,
    /// The value; never NaN.
    pub value: f64,
}

const WHOLE: &str = "producer-metrics";
const NODE: &str = "producer-node-metrics";
pub(super) const NANOS_IN_MS: f64 = 1e6;

impl ProducerMetrics {
    /// Returns every metric under its Kafka name, for the whole producer and for each broker.
    #[must_use]
    pub fn named(&self) -> Vec<NamedMetric> {
        let mut named = Vec::new();
        self.list_whole(&mut named);
        self.list_nodes(&mut named);
        named
    }

    /// Lists the metrics of the whole producer.
    pub(crate) fn list_whole(&self, out: &mut dyn Sink) {
        let mut whole = self.group(WHOLE, Vec::new(), out);
        whole.broker(&self.all_brokers());
        whole.producer(self);
    }

    /// Lists the metrics of each broker.
    pub(crate) fn list_nodes(&self, out: &mut dyn Sink) {
        for (id, broker) in &self.brokers {
            self.group(NODE, vec![("node-id", format!("node-{id}"))], out).broker(broker);
        }
    }

    fn group<'a>(
        &self,
        group: &'static str,
        tags: Vec<(&'static str, String)>,
        out: &'a mut dyn Sink,
    ) -> Group<'a> {
        Group::new(group, &self.client_id, tags, self.period, out)
    }
}

/// A list of metrics.
pub(crate) trait Sink {
    /// Whether the list has room for a metric and wants it.
    fn wants(&mut self, group: &'static str, name: &str) -> bool;

    /// Adds a metric that it wants.
    fn add(&mut self, metric: NamedMetric);

    /// Whether it has no room for further metrics.
    fn is_full(&self) -> bool;
}

impl Sink for Vec<NamedMetric> {
    fn wants(&mut self, _: &'static str, _: &str) -> bool {
        true
    }

    fn add(&mut self, metric: NamedMetric) {
        self.push(metric);
    }

    fn is_full(&self) -> bool {
        false
    }
}

/// A group under construction.
pub(super) struct Group<'a> {
    pub(super) group: &'static str,
    pub(super) tags: Vec<(&'static str, String)>,
    pub(super) seconds: f64,
    pub(super) out: &'a mut dyn Sink,
}

impl<'a> Group<'a> {
    pub(super) fn new(
        group: &'static str,
        client_id: &str,
        tags: Vec<(&'static str, String)>,
        period: Duration,
        out: &'a mut dyn Sink,
    ) -> Self {
        let client = ("client-id", client_id.to_owned());
        let tags = std::iter::once(client).chain(tags).collect();
        Self { group, tags, seconds: period.as_secs_f64(), out }
    }

    pub(super) fn put(&mut self, name: impl Into<String>, value: f64) {
        let name = name.into();
        if self.out.wants(self.group, &name) {
            let (group, tags) = (self.group, self.tags.clone());
            self.out.add(NamedMetric { group, name, tags, value });
        }
    }

    /// A total per second of the period; 0 in an empty period.
    pub(super) fn per_second(&self, total: f64) -> f64 {
        if self.seconds > 0.0 { total / self.seconds } else { 0.0 }
    }

    pub(super) fn rate(&mut self, name: &str, total: u64) {
        self.put(format!("{name}-rate"), self.per_second(total as f64));
        self.put(format!("{name}-total"), total as f64);
    }

    /// As [`Self::rate`], for events too rare to be counted per second.
    pub(super) fn rate_per_hour(&mut self, name: &str, total: u64) {
        self.put(format!("{name}-rate-per-hour"), 3600.0 * self.per_second(total as f64));
        self.put(format!("{name}-total"), total as f64);
    }

    pub(super) fn figures(&mut self, name: &str, of: &Distribution, unit: f64) {
        self.put(format!("{name}-avg"), of.mean() / unit);
        self.put(format!("{name}-max"), of.max() as f64 / unit);
        self.put(format!("{name}-p50"), of.p50() as f64 / unit);
        self.put(format!("{name}-p99"), of.p99() as f64 / unit);
        self.put(format!("{name}-p999"), of.p999() as f64 / unit);
        self.put(format!("{name}-p9999"), of.p9999() as f64 / unit);
    }

    fn broker(&mut self, broker: &BrokerMetrics) {
        self.figures("record-queue-time", &broker.queue_time, NANOS_IN_MS);
        self.figures("request-write-time", &broker.write_time, NANOS_IN_MS);
        self.figures("request-latency", &broker.request_latency, NANOS_IN_MS);
        self.figures("record-delivery-time", &broker.delivery_time, NANOS_IN_MS);
        self.figures("produce-throttle-time", &broker.throttle_time, NANOS_IN_MS);
        self.figures("batch-size", &broker.batch_size, 1.0);
        self.figures("records-per-batch", &broker.records_per_batch, 1.0);
        self.figures("request-size", &broker.request_size, 1.0);
        let per_request = match broker.request_total {
            0 => 0.0,
            // Retried records are sent again.
            requests => {
                (broker.record_send_total + broker.record_retry_total + broker.record_error_total)
                    as f64
                    / requests as f64
            }
        };
        self.put("records-per-request-avg", per_request);
        self.rate("record-send", broker.record_send_total);
        self.rate("record-retry", broker.record_retry_total);
        self.rate("batch-refused", broker.batch_refused_total);
        self.rate("batch-split", broker.batch_split_total);
        self.rate("request", broker.request_total);
        self.rate("response", broker.response_total);
        self.rate("outgoing-byte", broker.outgoing_byte_total);
        self.rate("incoming-byte", broker.incoming_byte_total);
        self.rate("connection-creation", broker.connection_creation_total);
        self.rate("connection-close", broker.connection_close_total);
        self.put("connection-count", broker.connection_count as f64);
        self.put("requests-in-flight", broker.requests_in_flight as f64);
        self.put("queue-bytes", broker.queue_bytes as f64);
        if self.group == NODE {
            self.rate("record-error", broker.record_error_total);
        }
    }

    fn producer(&mut self, metrics: &ProducerMetrics) {
        // Includes failures before any broker had the record.
        self.rate("record-error", metrics.record_error_total);
        self.rate("buffer-exhausted", metrics.buffer_exhausted_total);
        self.put("buffer-total-bytes", metrics.buffer_total_bytes as f64);
        self.put("buffer-available-bytes", metrics.buffer_available_bytes as f64);
        self.put("leaderless-bytes", metrics.leaderless_bytes as f64);
        self.put("certificates-outdated", f64::from(u8::from(metrics.certificates_outdated)));
        self.total_time("bufferpool-wait-time-ns", &metrics.buffer_wait);
        self.total_time("window-wait-time-ns", &metrics.window_wait);
        self.total_time("metadata-wait-time-ns", &metrics.metadata_wait);
        self.total_time("flush-time-ns", &metrics.flush_time);
    }

    fn total_time(&mut self, name: &str, of: &Distribution) {
        self.put(format!("{name}-total"), of.sum() as f64);
    }
}
