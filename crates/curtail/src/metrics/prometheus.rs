//! Metrics in Prometheus' text exposition format, version 0.0.4.
//!
//! Families begin with `curtail_producer_` and `curtail_consumer_`. Times are in seconds, Prometheus' unit. The
//! phases are summaries: their quantiles have a relative error of at most 1/32, and `1` is the maximum. Quantiles of
//! several clients cannot be combined; [`Distribution::merge`] can.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use super::{BrokerMetrics, ConsumerMetrics, Distribution, ProducerMetrics};

const NANOS_IN_S: f64 = 1e9;

/// Quantiles of a distribution in [`PrometheusText`], in addition to its sum and count.
const QUANTILES: [(&str, f64); 5] =
    [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999), ("0.9999", 0.9999), ("1", 1.0)];

/// The metrics of clients in Prometheus' text format, to be served as [`PrometheusText::CONTENT_TYPE`].
///
/// The label `client_id` distinguishes clients, so each needs a unique `client.id`. Pass snapshots since the client's
/// creation, because Prometheus computes the differences itself.
///
/// ```
/// # fn example(producer: &curtail::Producer, consumer: &curtail::Consumer) -> String {
/// let mut text = curtail::metrics::PrometheusText::default();
/// text.producer(&producer.metrics()).consumer(&consumer.metrics());
/// text.to_string()
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct PrometheusText {
    /// By name. The samples of a family must be adjacent.
    families: BTreeMap<&'static str, Family>,
}

#[derive(Clone, Debug)]
struct Family {
    kind: &'static str,
    help: &'static str,
    samples: String,
}

/// Names and values of a sample's labels.
type Labels<'a> = [(&'a str, &'a str)];

impl PrometheusText {
    /// The value of the header `Content-Type`.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Adds a producer's metrics.
    pub fn producer(&mut self, metrics: &ProducerMetrics) -> &mut Self {
        let client = ("client_id", metrics.client_id.as_str());
        for (name, help, times) in [
            (
                "curtail_producer_buffer_wait_seconds",
                "Time that sends waited for buffer.memory.",
                &metrics.buffer_wait,
            ),
            (
                "curtail_producer_window_wait_seconds",
                "Time that sends waited for room in a broker's window.",
                &metrics.window_wait,
            ),
            (
                "curtail_producer_metadata_wait_seconds",
                "Time that sends waited for the metadata of a topic.",
                &metrics.metadata_wait,
            ),
        ] {
            self.summary(name, help, &[client], times);
        }
        for (name, help, value) in [
            ("curtail_producer_buffer_bytes", "Size of buffer.memory.", metrics.buffer_total_bytes),
            (
                "curtail_producer_buffer_available_bytes",
                "Bytes of buffer.memory that no batch uses.",
                metrics.buffer_available_bytes,
            ),
        ] {
            self.sample("gauge", name, help, &[client], value as f64);
        }
        self.outdated(
            "curtail_producer_certificates_outdated",
            client,
            metrics.certificates_outdated,
        );
        let help = "Records refused or not acknowledged, including failed sends.";
        let failed = metrics.record_error_total as f64;
        self.sample("counter", "curtail_producer_record_errors_total", help, &[client], failed);
        for (id, broker) in &metrics.brokers {
            self.broker(&[client, ("broker", &id.to_string())], broker);
        }
        self
    }

    fn outdated(&mut self, name: &'static str, client: (&str, &str), outdated: bool) {
        let help = "1 while the previous certificates stay in use because changed files cannot be used, otherwise 0.";
        self.sample("gauge", name, help, &[client], f64::from(u8::from(outdated)));
    }

    fn broker(&mut self, labels: &[(&str, &str); 2], broker: &BrokerMetrics) {
        let help = "Time of batches by phase. queue: until the request is built; write: until the socket accepts it; request: \
                    until the response; delivery: all of them.";
        for (phase, times) in broker.phases() {
            let labels = [labels[0], labels[1], ("phase", phase)];
            self.summary("curtail_producer_phase_seconds", help, &labels, times);
        }
        for (name, help, total) in [
            ("curtail_producer_records_total", "Records acknowledged.", broker.record_send_total),
            (
                "curtail_producer_record_retries_total",
                "Records whose batches were queued for a retry.",
                broker.record_retry_total,
            ),
            (
                "curtail_producer_batches_refused_total",
                "Batches refused in a response, temporarily or permanently.",
                broker.batch_refused_total,
            ),
            ("curtail_producer_requests_total", "Requests built.", broker.request_total),
            (
                "curtail_producer_outgoing_bytes_total",
                "Bytes of requests.",
                broker.outgoing_byte_total,
            ),
            (
                "curtail_producer_connections_opened_total",
                "Connections opened.",
                broker.connection_creation_total,
            ),
        ] {
            self.sample("counter", name, help, labels, total as f64);
        }
        let (name, help) = ("curtail_producer_requests_in_flight", "Requests without a response.");
        self.sample("gauge", name, help, labels, broker.requests_in_flight as f64);
        let (name, help) = ("curtail_producer_queue_bytes", "Bytes of batches waiting to be sent.");
        self.sample("gauge", name, help, labels, broker.queue_bytes as f64);
    }

    /// Adds a consumer's metrics.
    pub fn consumer(&mut self, metrics: &ConsumerMetrics) -> &mut Self {
        let client = ("client_id", metrics.client_id.as_str());
        for (name, help, total) in [
            (
                "curtail_consumer_records_total",
                "Records returned by polls.",
                metrics.records_consumed_total,
            ),
            (
                "curtail_consumer_bytes_total",
                "Bytes of fetched records returned by polls, compressed.",
                metrics.bytes_consumed_total,
            ),
        ] {
            self.sample("counter", name, help, &[client], total as f64);
        }
        self.outdated(
            "curtail_consumer_certificates_outdated",
            client,
            metrics.certificates_outdated,
        );
        for (id, broker) in &metrics.brokers {
            let id = id.to_string();
            let labels = [client, ("broker", id.as_str())];
            let help = "Time of fetches by phase. fetch: from a request to its response, including the broker's wait for records; \
                        buffer: from a response until a poll returns its records.";
            for (phase, times) in broker.phases() {
                let labels = [labels[0], labels[1], ("phase", phase)];
                self.summary("curtail_consumer_phase_seconds", help, &labels, times);
            }
            for (name, help, total) in [
                ("curtail_consumer_fetches_total", "Fetch responses.", broker.fetch_total),
                (
                    "curtail_consumer_sessions_opened_total",
                    "Fetch sessions requested.",
                    broker.session_open_total,
                ),
            ] {
                self.sample("counter", name, help, &labels, total as f64);
            }
        }
        for (at, partition) in &metrics.partitions {
            let index = at.partition.to_string();
            let labels = [client, ("topic", &*at.topic), ("partition", index.as_str())];
            let (name, help) =
                ("curtail_consumer_lag_records", "Records not yet returned by a poll.");
            if let Some(lag) = partition.lag {
                self.sample("gauge", name, help, &labels, lag as f64);
            }
            let (name, help) =
                ("curtail_consumer_buffer_bytes", "Bytes fetched and not yet returned by a poll.");
            self.sample("gauge", name, help, &labels, partition.buffered_bytes as f64);
        }
        self
    }

    fn family(
        &mut self,
        kind: &'static str,
        name: &'static str,
        help: &'static str,
    ) -> &mut String {
        let new = || Family { kind, help, samples: String::new() };
        &mut self.families.entry(name).or_insert_with(new).samples
    }

    fn sample(
        &mut self,
        kind: &'static str,
        name: &'static str,
        help: &'static str,
        labels: &Labels<'_>,
        value: f64,
    ) {
        put(self.family(kind, name, help), name, labels, value);
    }

    /// Converts nanoseconds to seconds.
    fn summary(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &Labels<'_>,
        times: &Distribution,
    ) {
        let samples = self.family("summary", name, help);
        for (word, quantile) in QUANTILES.iter().filter(|_| times.count() > 0) {
            let labels = [labels, &[("quantile", *word)]].concat();
            put(samples, name, &labels, times.quantile(*quantile) as f64 / NANOS_IN_S);
        }
        put(samples, &format!("{name}_sum"), labels, times.sum() as f64 / NANOS_IN_S);
        put(samples, &format!("{name}_count"), labels, times.count() as f64);
    }
}

/// One line: name, labels, value.
fn put(samples: &mut String, name: &str, labels: &Labels<'_>, value: f64) {
    samples.push_str(name);
    for (index, (label, value)) in labels.iter().enumerate() {
        samples.push(if index == 0 { '{' } else { ',' });
        samples.push_str(label);
        samples.push_str("=\"");
        for letter in value.chars() {
            match letter {
                '\\' => samples.push_str("\\\\"),
                '"' => samples.push_str("\\\""),
                '\n' => samples.push_str("\\n"),
                other => samples.push(other),
            }
        }
        samples.push('"');
    }
    // A write to memory does not fail.
    let _ = writeln!(samples, "}} {value}");
}

impl fmt::Display for PrometheusText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Family { kind, help, samples }) in &self.families {
            write!(f, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")?;
        }
        Ok(())
    }
}
