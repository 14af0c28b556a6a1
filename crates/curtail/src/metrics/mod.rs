//! Metrics of the clients, always collected: counters, and distributions of times and sizes, per broker.
//!
//! Recording costs a few relaxed additions per batch or request, none per record. Only a poll that waits for records
//! takes a lock, innermost. The clock is read once per request, response and poll, not per record. A snapshot
//! ([`crate::Producer::metrics`]) is a copy; [`ProducerMetrics::since`] returns the difference of two.
//! [`ProducerMetrics::named`] lists the metrics under Kafka's names. [`PrometheusScrape`] responds to a scrape of
//! Prometheus, and [`OtlpExporter`] makes payloads for an OpenTelemetry collector.

mod consumer;
mod exponential;
mod families;
mod group;
mod histogram;
mod named;
mod otlp;
mod prometheus;
mod stats;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

pub(crate) use self::{
    consumer::{Arrival, ConsumerStats, FetchStats},
    group::GroupStats,
    histogram::Histogram,
    named::Sink,
    stats::{BrokerStats, ProducerStats},
};
pub use self::{
    consumer::{ConsumerMetrics, FetchMetrics, PartitionLag},
    group::GroupMetrics,
    histogram::Distribution,
    named::NamedMetric,
    otlp::{OtlpExporter, OtlpMetrics},
    prometheus::{PrometheusProtobuf, PrometheusScrape, PrometheusText},
};

/// A snapshot of a producer's metrics; see [`crate::Producer::metrics`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProducerMetrics {
    /// `client.id`.
    pub client_id: String,
    /// Time of the snapshot.
    pub taken: Instant,
    /// The period covered: since the producer was created, or since the earlier snapshot ([`Self::since`]).
    pub period: Duration,
    /// `buffer.memory`.
    pub buffer_total_bytes: usize,
    /// Bytes of it that are free.
    pub buffer_available_bytes: usize,
    /// Waits of sends for memory, one value per send that had to wait. Nanoseconds.
    pub buffer_wait: Distribution,
    /// Waits of sends for room in a broker's window (`curtail.latency.target.ms`), one value per wait.
    /// Nanoseconds.
    pub window_wait: Distribution,
    /// Sends that timed out waiting for memory, or found none in a call that does not wait.
    pub buffer_exhausted_total: u64,
    /// Waits of sends for a topic's metadata, one value per send that had to wait. Nanoseconds.
    pub metadata_wait: Distribution,
    /// Durations of flushes. Nanoseconds.
    pub flush_time: Distribution,
    /// Records that were refused or not acknowledged, for all brokers, including failed sends.
    pub record_error_total: u64,
    /// Bytes of batches whose partition has no leader. No broker's metrics count them.
    pub leaderless_bytes: usize,
    /// Whether previously read certificates are in use because their files have changed and cannot be used
    /// ([`crate::security::SecurityConfig::certificates_outdated`]).
    pub certificates_outdated: bool,
    /// By broker id. A broker is present once it has led a partition.
    pub brokers: BTreeMap<i32, BrokerMetrics>,
}

/// Metrics of one broker, or of all of them together ([`ProducerMetrics::all_brokers`]).
///
/// The phases of a batch ([`Self::phases`]): `queue_time` until its request is built, `write_time` until the socket
/// has accepted the request, `request_latency` until the response arrives. `delivery_time` covers all phases and
/// every retry. With `curtail.phase.stamps=false` (feature `arms`) these four stay empty.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BrokerMetrics {
    /// From a batch's first record to its first request. Nanoseconds, one value per batch.
    pub queue_time: Distribution,
    /// From a built request until the socket has accepted all pending bytes. Nanoseconds.
    pub write_time: Distribution,
    /// From a built request to its response. Nanoseconds, one value per request.
    pub request_latency: Distribution,
    /// From a batch's first record to its acknowledgement. Nanoseconds, one value per record of the batch.
    pub delivery_time: Distribution,
    /// Throttle time requested by the broker (KIP-219). Nanoseconds, one value per throttled response.
    pub throttle_time: Distribution,
    /// Encoded bytes of a batch, compressed.
    pub batch_size: Distribution,
    /// Records of a batch.
    pub records_per_batch: Distribution,
    /// Bytes of a request.
    pub request_size: Distribution,
    /// Records acknowledged.
    pub record_send_total: u64,
    /// Records whose batch returned to its queue to be retried.
    pub record_retry_total: u64,
    /// Records that failed permanently after they were sent in a request.
    pub record_error_total: u64,
    /// Batches refused in a response, temporarily or permanently.
    pub batch_refused_total: u64,
    /// Batches too large for their topic, whose records were sent in smaller ones.
    pub batch_split_total: u64,
    /// Requests built.
    pub request_total: u64,
    /// Responses read.
    pub response_total: u64,
    /// Bytes of requests.
    pub outgoing_byte_total: u64,
    /// Bytes of responses.
    pub incoming_byte_total: u64,
    /// Connections opened, including the handshake.
    pub connection_creation_total: u64,
    /// Connections that ended.
    pub connection_close_total: u64,
    /// Connections open at the snapshot.
    pub connection_count: u64,
    /// In-flight requests at the snapshot.
    pub requests_in_flight: usize,
    /// Bytes of batches that wait to be sent, at the snapshot.
    pub queue_bytes: usize,
}

impl ProducerMetrics {
    /// Returns the sums and the merged distributions of all brokers.
    #[must_use]
    pub fn all_brokers(&self) -> BrokerMetrics {
        self.brokers.values().fold(BrokerMetrics::default(), |mut sum, broker| {
            sum.add(broker);
            sum
        })
    }

    /// Returns the metrics in Prometheus' text format; see [`PrometheusText`] for several clients.
    ///
    /// ```
    /// # fn example(producer: &curtail::Producer) -> String {
    /// producer.metrics().prometheus_text()
    /// # }
    /// ```
    #[must_use]
    pub fn prometheus_text(&self) -> String {
        PrometheusText::default().producer(self).to_string()
    }

    /// Returns the metrics of the time after `earlier`, a snapshot of the same producer. Counters and distributions
    /// cover that time; current values stay.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference.period = self.taken.saturating_duration_since(earlier.taken);
        difference.buffer_wait = self.buffer_wait.since(&earlier.buffer_wait);
        difference.window_wait = self.window_wait.since(&earlier.window_wait);
        difference.metadata_wait = self.metadata_wait.since(&earlier.metadata_wait);
        difference.flush_time = self.flush_time.since(&earlier.flush_time);
        difference.buffer_exhausted_total =
            self.buffer_exhausted_total.saturating_sub(earlier.buffer_exhausted_total);
        difference.record_error_total =
            self.record_error_total.saturating_sub(earlier.record_error_total);
        for (id, broker) in &mut difference.brokers {
            if let Some(before) = earlier.brokers.get(id) {
                broker.subtract(before);
            }
        }
        difference
    }
}

impl BrokerMetrics {
    /// Returns the phases by name: `queue`, `write`, `request`, and `delivery`, which covers all of them.
    /// Nanoseconds.
    #[must_use]
    pub fn phases(&self) -> [(&'static str, &Distribution); 4] {
        [
            ("queue", &self.queue_time),
            ("write", &self.write_time),
            ("request", &self.request_latency),
            ("delivery", &self.delivery_time),
        ]
    }

    fn distributions(&mut self) -> [&mut Distribution; 8] {
        [
            &mut self.queue_time,
            &mut self.write_time,
            &mut self.request_latency,
            &mut self.delivery_time,
            &mut self.throttle_time,
            &mut self.batch_size,
            &mut self.records_per_batch,
            &mut self.request_size,
        ]
    }

    fn totals(&mut self) -> [&mut u64; 11] {
        [
            &mut self.record_send_total,
            &mut self.record_retry_total,
            &mut self.record_error_total,
            &mut self.batch_refused_total,
            &mut self.batch_split_total,
            &mut self.request_total,
            &mut self.response_total,
            &mut self.outgoing_byte_total,
            &mut self.incoming_byte_total,
            &mut self.connection_creation_total,
            &mut self.connection_close_total,
        ]
    }

    fn add(&mut self, other: &Self) {
        let mut other = other.clone();
        for (sum, part) in self.distributions().into_iter().zip(other.distributions()) {
            sum.merge(part);
        }
        for (sum, part) in self.totals().into_iter().zip(other.totals()) {
            *sum += *part;
        }
        self.connection_count += other.connection_count;
        self.requests_in_flight += other.requests_in_flight;
        self.queue_bytes += other.queue_bytes;
    }

    fn subtract(&mut self, earlier: &Self) {
        let mut earlier = earlier.clone();
        for (now, then) in self.distributions().into_iter().zip(earlier.distributions()) {
            *now = now.since(then);
        }
        for (now, then) in self.totals().into_iter().zip(earlier.totals()) {
            *now = now.saturating_sub(*then);
        }
    }
}
