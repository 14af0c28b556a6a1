//! The response to a scrape, in the format that its `Accept` header prefers.

#[cfg(test)]
mod tests;

use super::{PrometheusProtobuf, PrometheusText};
use crate::metrics::{ConsumerMetrics, ProducerMetrics, families};

/// The metrics of clients as the response to a scrape of Prometheus.
///
/// A scraper that prefers Prometheus' protobuf format gets [`PrometheusProtobuf`], with native histograms. Every other one gets
/// [`PrometheusText`], with summaries. Prometheus prefers protobuf with `scrape_native_histograms: true`.
///
/// ```
/// # fn example(producer: &curtail::Producer, consumer: &curtail::Consumer, accept: Option<&str>) {
/// let mut scrape = curtail::metrics::PrometheusScrape::new(accept);
/// scrape.producer(&producer.metrics()).consumer(&consumer.metrics());
/// let (content_type, body): (&str, Vec<u8>) = scrape.response();
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PrometheusScrape(Format);

#[derive(Clone, Debug)]
enum Format {
    Text(PrometheusText),
    Protobuf(PrometheusProtobuf),
}

impl PrometheusScrape {
    /// Chooses the format by the value of the request's header `Accept`; join the values of several ones with commas.
    #[must_use]
    pub fn new(accept: Option<&str>) -> Self {
        Self(match accept.is_some_and(prefers_protobuf) {
            true => Format::Protobuf(PrometheusProtobuf::default()),
            false => Format::Text(PrometheusText::default()),
        })
    }

    /// Adds a producer's metrics.
    pub fn producer(&mut self, metrics: &ProducerMetrics) -> &mut Self {
        match &mut self.0 {
            Format::Text(text) => families::producer(text, metrics),
            Format::Protobuf(protobuf) => families::producer(protobuf, metrics),
        }
        self
    }

    /// Adds a consumer's metrics.
    pub fn consumer(&mut self, metrics: &ConsumerMetrics) -> &mut Self {
        match &mut self.0 {
            Format::Text(text) => families::consumer(text, metrics),
            Format::Protobuf(protobuf) => families::consumer(protobuf, metrics),
        }
        self
    }

    /// Returns the value of the header `Content-Type`, and the body.
    #[must_use]
    pub fn response(&self) -> (&'static str, Vec<u8>) {
        match &self.0 {
            Format::Text(text) => (PrometheusText::CONTENT_TYPE, text.to_string().into_bytes()),
            Format::Protobuf(protobuf) => (PrometheusProtobuf::CONTENT_TYPE, protobuf.to_bytes()),
        }
    }
}

/// Whether a value of `Accept` prefers protobuf to the text. Of two with the same weight, the first one is preferred.
fn prefers_protobuf(accept: &str) -> bool {
    let mut best = (0.0, false);
    for range in accept.split(',').filter_map(Range::new) {
        if range.weight > best.0 {
            best = (range.weight, range.is_protobuf);
        }
    }
    best.1
}

/// An accepted media range that one of the two formats fits.
struct Range {
    is_protobuf: bool,
    /// From 0 to 1.
    weight: f32,
}

impl Range {
    fn new(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next()?.to_ascii_lowercase();
        let (mut weight, mut proto, mut encoding, mut version) = (1.0, None, None, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                // A weight that cannot be read counts as not accepted.
                "q" => weight = value.parse::<f32>().unwrap_or(0.0),
                "proto" => proto = Some(value),
                "encoding" => encoding = Some(value),
                "version" => version = Some(value),
                _ => {}
            }
        }
        let is_protobuf = match media_type.as_str() {
            "application/vnd.google.protobuf" => {
                let is_ours = proto == Some("io.prometheus.client.MetricFamily");
                (is_ours && encoding == Some("delimited")).then_some(true)?
            }
            "text/plain" if version.is_none_or(|version| version == "0.0.4") => false,
            "text/*" | "*/*" => false,
            _ => return None,
        };
        Some(Self { is_protobuf, weight })
    }
}
