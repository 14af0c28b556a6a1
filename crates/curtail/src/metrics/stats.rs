//! The recording side of the metrics, in relaxed atomics only. The values of a snapshot may be a few events apart,
//! and no event waits for another.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{BrokerMetrics, histogram::Histogram};

/// Time in nanoseconds, for histograms.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The recording side of a producer's metrics.
#[derive(Debug)]
pub(crate) struct ProducerStats {
    pub(crate) started: Instant,
    pub(crate) buffer_wait: Histogram,
    pub(crate) window_wait: Histogram,
    pub(crate) buffer_exhausted: Counter,
    pub(crate) metadata_wait: Histogram,
    pub(crate) flush_time: Histogram,
    pub(crate) record_errors: Counter,
    /// `curtail.phase.stamps`.
    stamps: bool,
    /// Locked only to find a broker's entry, once per lane.
    brokers: Mutex<BTreeMap<i32, Arc<BrokerStats>>>,
}

impl ProducerStats {
    pub(crate) fn new(stamps: bool) -> Self {
        Self {
            started: Instant::now(),
            stamps,
            buffer_wait: Histogram::default(),
            window_wait: Histogram::default(),
            buffer_exhausted: Counter::default(),
            metadata_wait: Histogram::default(),
            flush_time: Histogram::default(),
            record_errors: Counter::default(),
            brokers: Mutex::default(),
        }
    }

    /// Returns a broker's entry; the same one for the same id.
    pub(crate) fn broker(&self, id: i32) -> Arc<BrokerStats> {
        let new = || Arc::new(BrokerStats::new(self.stamps));
        self.brokers.lock().entry(id).or_insert_with(new).clone()
    }

    /// Every broker's counters and distributions.
    pub(crate) fn snapshot(&self) -> BTreeMap<i32, BrokerMetrics> {
        self.brokers.lock().iter().map(|(id, stats)| (*id, stats.snapshot())).collect()
    }

    /// Records a wait since `from`.
    pub(crate) fn waited(histogram: &Histogram, from: Instant) {
        histogram.record(nanos(from.elapsed()), 1);
    }
}

/// The recording side of a lane's metrics.
#[derive(Debug, Default)]
pub(crate) struct BrokerStats {
    stamps: bool,
    queue_time: Histogram,
    write_time: Histogram,
    request_latency: Histogram,
    delivery_time: Histogram,
    throttle_time: Histogram,
    batch_size: Histogram,
    records_per_batch: Histogram,
    request_size: Histogram,
    records_sent: Counter,
    records_retried: Counter,
    records_failed: Counter,
    batches_refused: Counter,
    batches_split: Counter,
    requests: Counter,
    responses: Counter,
    bytes_out: Counter,
    bytes_in: Counter,
    connections_opened: Counter,
    connections_closed: Counter,
}

impl BrokerStats {
    pub(crate) fn new(stamps: bool) -> Self {
        Self { stamps, ..Self::default() }
    }

    /// Whether phases are recorded.
    pub(crate) fn stamps(&self) -> bool {
        self.stamps
    }

    /// Records a phase of `count` records, batches or requests.
    fn stamp(&self, phase: &Histogram, took: Duration, count: u64) {
        if self.stamps {
            phase.record(nanos(took), count);
        }
    }

    /// Records that a batch enters a request for the first time.
    pub(crate) fn batch_taken(&self, queued: Duration, bytes: usize, records: u32) {
        self.stamp(&self.queue_time, queued, 1);
        self.batch_size.record(bytes as u64, 1);
        self.records_per_batch.record(u64::from(records), 1);
    }

    /// Records a built request.
    pub(crate) fn request_built(&self, bytes: usize) {
        self.request_size.record(bytes as u64, 1);
        self.requests.add(1);
        self.bytes_out.add(bytes as u64);
    }

    /// Records that the socket has accepted all pending bytes.
    pub(crate) fn drained(&self, took: Duration) {
        self.stamp(&self.write_time, took, 1);
    }

    /// Records a response.
    pub(crate) fn answered(&self, latency: Duration, bytes: usize) {
        self.stamp(&self.request_latency, latency, 1);
        self.responses.add(1);
        self.bytes_in.add(bytes as u64);
    }

    /// Records a throttle time (KIP-219).
    pub(crate) fn throttled(&self, pause: Duration) {
        if !pause.is_zero() {
            self.throttle_time.record(nanos(pause), 1);
        }
    }

    /// Records a refused batch.
    pub(crate) fn batch_refused(&self) {
        self.batches_refused.add(1);
    }

    /// Records that a batch was too large and is split.
    pub(crate) fn batch_split(&self) {
        self.batches_split.add(1);
    }

    /// Records an acknowledged batch.
    pub(crate) fn batch_acknowledged(&self, took: Duration, records: u32) {
        self.stamp(&self.delivery_time, took, u64::from(records));
        self.records_sent.add(u64::from(records));
    }

    /// Records that a batch returns to its queue.
    pub(crate) fn batch_retried(&self, records: u32) {
        self.records_retried.add(u64::from(records));
    }

    /// Records a permanent failure of a batch.
    pub(crate) fn batch_failed(&self, records: u32) {
        self.records_failed.add(u64::from(records));
    }

    /// Records an opened connection.
    pub(crate) fn connected(&self) {
        self.connections_opened.add(1);
    }

    /// Records a closed connection.
    pub(crate) fn disconnected(&self) {
        self.connections_closed.add(1);
    }

    pub(super) fn snapshot(&self) -> BrokerMetrics {
        // Closed before opened: a connection opened in between must not make the difference negative.
        let closed = self.connections_closed.get();
        let opened = self.connections_opened.get();
        BrokerMetrics {
            queue_time: self.queue_time.snapshot(),
            write_time: self.write_time.snapshot(),
            request_latency: self.request_latency.snapshot(),
            delivery_time: self.delivery_time.snapshot(),
            throttle_time: self.throttle_time.snapshot(),
            batch_size: self.batch_size.snapshot(),
            records_per_batch: self.records_per_batch.snapshot(),
            request_size: self.request_size.snapshot(),
            record_send_total: self.records_sent.get(),
            record_retry_total: self.records_retried.get(),
            record_error_total: self.records_failed.get(),
            batch_refused_total: self.batches_refused.get(),
            batch_split_total: self.batches_split.get(),
            request_total: self.requests.get(),
            response_total: self.responses.get(),
            outgoing_byte_total: self.bytes_out.get(),
            incoming_byte_total: self.bytes_in.get(),
            connection_creation_total: opened,
            connection_close_total: closed,
            connection_count: opened.saturating_sub(closed),
            requests_in_flight: 0,
            queue_bytes: 0,
        }
    }
}
