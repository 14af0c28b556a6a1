//! What the clients measure of themselves, always: counters, and distributions of times and sizes, per broker.
//!
//! Recording is a handful of relaxed additions a batch or request, none a record, and takes no lock. The clock is read
//! once for each request, each answer and each poll, not for records. A snapshot
//! ([`crate::Producer::metrics`]) is a copy; [`ProducerMetrics::since`] gives what happened between two of them.
//! [`ProducerMetrics::named`] lists the same under Kafka's own names, [`PrometheusText`] in Prometheus' format.

mod consumer;
mod group;
mod histogram;
mod named;
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
    stats::{BrokerStats, ProducerStats},
};
pub use self::{
    consumer::{ConsumerMetrics, FetchMetrics, PartitionLag},
    group::GroupMetrics,
    histogram::Distribution,
    named::NamedMetric,
    prometheus::PrometheusText,
};

/// A snapshot of a producer's metrics; see [`crate::Producer::metrics`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProducerMetrics {
    /// `client.id`.
    pub client_id: String,
    /// When it was taken.
    pub taken: Instant,
    /// The time it covers: since the producer was made, or since the earlier snapshot ([`Self::since`]).
    pub period: Duration,
    /// `buffer.memory`.
    pub buffer_total_bytes: usize,
    /// Bytes of it that no batch holds.
    pub buffer_available_bytes: usize,
    /// How long sends waited for memory: one value for each that had to. Nanoseconds.
    pub buffer_wait: Distribution,
    /// Sends that gave up waiting for memory, or found none and did not want to wait.
    pub buffer_exhausted_total: u64,
    /// How long sends waited for a topic's metadata: one value for each that had to. Nanoseconds.
    pub metadata_wait: Distribution,
    /// How long flushes took. Nanoseconds.
    pub flush_time: Distribution,
    /// Records that were refused or not acknowledged, in whatever broker's partition; with the sends that failed.
    pub record_error_total: u64,
    /// Bytes of batches that wait for a leader: no broker has them.
    pub leaderless_bytes: usize,
    /// Whether certificates read before are in use because their files have changed and cannot be used
    /// ([`crate::SecurityConfig::certificates_outdated`]).
    pub certificates_outdated: bool,
    /// By broker id. A broker is here from the first partition on that it has led.
    pub brokers: BTreeMap<i32, BrokerMetrics>,
}

/// What concerns one broker, or all of them together ([`ProducerMetrics::all_brokers`]).
///
/// The phases of a batch ([`Self::phases`]): `queue_time` until a request with it is built, `write_time` until the socket
/// has taken the request, `request_latency` until its answer is here; `delivery_time` is all of it, with every retry. With
/// `curtail.phase.stamps=false` nothing is recorded in these four.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BrokerMetrics {
    /// From a batch's first record to its first request. Nanoseconds, one value a batch.
    pub queue_time: Distribution,
    /// From a built request until the socket has taken all that is to be written. Nanoseconds.
    pub write_time: Distribution,
    /// From a built request to its answer. Nanoseconds, one value a request.
    pub request_latency: Distribution,
    /// From a batch's first record to its acknowledgement. Nanoseconds, one value for each record of the batch.
    pub delivery_time: Distribution,
    /// How long the broker asked not to be sent requests (KIP-219). Nanoseconds, one value for each answer that asked.
    pub throttle_time: Distribution,
    /// Encoded bytes of a batch, compressed.
    pub batch_size: Distribution,
    /// Records of a batch.
    pub records_per_batch: Distribution,
    /// Bytes of a request.
    pub request_size: Distribution,
    /// Records acknowledged.
    pub record_send_total: u64,
    /// Records whose batch was given back to its queue to be sent again.
    pub record_retry_total: u64,
    /// Records not acknowledged for good, after a request with them.
    pub record_error_total: u64,
    /// Batches that an answer refused, for now or for good.
    pub batch_refused_total: u64,
    /// Batches too large for their topic, whose records went on in smaller ones.
    pub batch_split_total: u64,
    /// Requests built.
    pub request_total: u64,
    /// Answers read.
    pub response_total: u64,
    /// Bytes of requests.
    pub outgoing_byte_total: u64,
    /// Bytes of answers.
    pub incoming_byte_total: u64,
    /// Connections opened, handshake included.
    pub connection_creation_total: u64,
    /// Connections that ended.
    pub connection_close_total: u64,
    /// Connections open now.
    pub connection_count: u64,
    /// Requests without an answer, now.
    pub requests_in_flight: usize,
    /// Bytes of batches that wait to be sent, now.
    pub queue_bytes: usize,
}

impl ProducerMetrics {
    /// The sums and the merged distributions of all brokers.
    #[must_use]
    pub fn all_brokers(&self) -> BrokerMetrics {
        self.brokers.values().fold(BrokerMetrics::default(), |mut sum, broker| {
            sum.add(broker);
            sum
        })
    }

    /// The metrics in Prometheus' text format; see [`PrometheusText`] for those of several clients.
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

    /// What happened after `earlier`, a snapshot of the same producer: counters and distributions are those of the
    /// time between, what is counted "now" stays as it is.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference.period = self.taken.saturating_duration_since(earlier.taken);
        difference.buffer_wait = self.buffer_wait.since(&earlier.buffer_wait);
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
    /// The phases by name: `queue`, `write`, `request`, and `delivery`, which is all of them. Nanoseconds.
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
