//! Metrics in Prometheus' text exposition format, version 0.0.4.
//!
//! Families begin with `curtail_producer_` and `curtail_consumer_`. Times are in seconds, Prometheus' unit. The
//! phases are summaries: their quantiles have a relative error of at most 1/32, and `1` is the maximum. Quantiles of
//! several clients cannot be combined; [`Distribution::merge`] can.

mod accept;
mod protobuf;
#[cfg(test)]
pub(super) mod tests;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

pub use self::{accept::PrometheusScrape, protobuf::PrometheusProtobuf};
use super::{
    ConsumerMetrics, Distribution, ProducerMetrics,
    families::{self, Families, Family, Kind, Labels, NANOS_IN_S},
};

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
    families: BTreeMap<&'static str, (Family, String)>,
}

impl PrometheusText {
    /// The value of the header `Content-Type`.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

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

    /// The lines of a family.
    fn samples(&mut self, family: Family) -> &mut String {
        &mut self.families.entry(family.name).or_insert_with(|| (family, String::new())).1
    }
}

impl Families for PrometheusText {
    fn number(&mut self, family: Family, labels: &Labels<'_>, value: f64) {
        put(self.samples(family), family.name, labels, value);
    }

    fn times(&mut self, family: Family, labels: &Labels<'_>, times: &Distribution) {
        let (name, samples) = (family.name, self.samples(family));
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
        for (name, (Family { kind, help, .. }, samples)) in &self.families {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Times => "summary",
            };
            write!(f, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")?;
        }
        Ok(())
    }
}
