//! Metrics of a consumer, always collected: per broker, and current values per partition.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Distribution, GroupMetrics, NamedMetric, PrometheusText,
    histogram::Histogram,
    named::{Group, NANOS_IN_MS, Sink},
    stats::{Counter, nanos},
};
use crate::TopicPartition;

/// A snapshot of a consumer's metrics; see [`crate::Consumer::metrics`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerMetrics {
    /// `client.id`.
    pub client_id: String,
    /// Time of the snapshot.
    pub taken: Instant,
    /// The period covered: since the consumer was created, or since the earlier snapshot ([`Self::since`]).
    pub period: Duration,
    /// Records returned.
    pub records_consumed_total: u64,
    /// Compressed bytes of partitions' records in responses that were returned completely.
    pub bytes_consumed_total: u64,
    /// Connections to read from brokers whose handshake succeeded. Those for metadata and for the group do not count.
    pub connection_creation_total: u64,
    /// Time that polls and streams waited for records. A stream waits from the poll that finds no record until its next
    /// record, also while it is not polled. Zero for partition queues, which do not poll.
    pub poll_idle_time: Duration,
    /// Whether previously read certificates are in use because their files have changed and cannot be used
    /// ([`crate::security::SecurityConfig::certificates_outdated`]).
    pub certificates_outdated: bool,
    /// By broker id. A broker is present after its first response.
    pub brokers: BTreeMap<i32, FetchMetrics>,
    /// Metrics of the group; `None` without a `group.id`.
    pub group: Option<GroupMetrics>,
    /// The assigned partitions, with current values.
    pub partitions: BTreeMap<TopicPartition, PartitionLag>,
}

/// Metrics of fetches from one broker, or from all of them ([`ConsumerMetrics::all_brokers`]).
///
/// With `curtail.phase.stamps=false` (feature `arms`), `fetch_latency` and `buffer_time` stay empty.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FetchMetrics {
    /// From a request to its response, including the broker's wait for records. Nanoseconds, one value per response.
    pub fetch_latency: Distribution,
    /// From a response until a poll returned its records, one value per record. Nanoseconds. In a stream
    /// ([`crate::Consumer::stream`]) all records of a partition in a response have the time of the first one, and are
    /// counted with the last one.
    pub buffer_time: Distribution,
    /// Bytes of a response.
    pub fetch_size: Distribution,
    /// Throttle time requested by the broker (KIP-219). Nanoseconds, one value per throttled response.
    pub throttle_time: Distribution,
    /// Responses received.
    pub fetch_total: u64,
    /// Sessionless fetches among them, sent because a partition of the session must not be fetched.
    pub fetch_beside_session_total: u64,
    /// Requests for a new session, including those refused for lack of a slot.
    pub session_open_total: u64,
}

/// Current values of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionLag {
    /// Records that polls have not returned yet, as [`crate::Consumer::current_lag`].
    pub lag: Option<i64>,
    /// Bytes fetched and not returned yet.
    pub buffered_bytes: usize,
}

impl ConsumerMetrics {
    /// Returns the sums and the merged distributions of all brokers.
    #[must_use]
    pub fn all_brokers(&self) -> FetchMetrics {
        self.brokers.values().fold(FetchMetrics::default(), |mut sum, broker| {
            sum.fetch_latency.merge(&broker.fetch_latency);
            sum.buffer_time.merge(&broker.buffer_time);
            sum.fetch_size.merge(&broker.fetch_size);
            sum.throttle_time.merge(&broker.throttle_time);
            sum.fetch_total += broker.fetch_total;
            sum.fetch_beside_session_total += broker.fetch_beside_session_total;
            sum.session_open_total += broker.session_open_total;
            sum
        })
    }

    /// Returns the metrics of the time after `earlier`, a snapshot of the same consumer. Counters and distributions
    /// cover that time; current values stay.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference.period = self.taken.saturating_duration_since(earlier.taken);
        let less = |now: &mut u64, then: u64| *now = now.saturating_sub(then);
        less(&mut difference.records_consumed_total, earlier.records_consumed_total);
        less(&mut difference.bytes_consumed_total, earlier.bytes_consumed_total);
        less(&mut difference.connection_creation_total, earlier.connection_creation_total);
        difference.poll_idle_time = self.poll_idle_time.saturating_sub(earlier.poll_idle_time);
        for (id, broker) in &mut difference.brokers {
            let Some(before) = earlier.brokers.get(id) else { continue };
            broker.fetch_latency = broker.fetch_latency.since(&before.fetch_latency);
            broker.buffer_time = broker.buffer_time.since(&before.buffer_time);
            broker.fetch_size = broker.fetch_size.since(&before.fetch_size);
            broker.throttle_time = broker.throttle_time.since(&before.throttle_time);
            less(&mut broker.fetch_total, before.fetch_total);
            less(&mut broker.fetch_beside_session_total, before.fetch_beside_session_total);
            less(&mut broker.session_open_total, before.session_open_total);
        }
        if let (Some(group), Some(before)) = (&mut difference.group, &earlier.group) {
            group.subtract(before);
        }
        difference
    }

    /// Returns the metrics in Prometheus' text format; see [`PrometheusText`] for several clients.
    #[must_use]
    pub fn prometheus_text(&self) -> String {
        PrometheusText::default().consumer(self).to_string()
    }

    /// Returns the largest known lag of a partition.
    #[must_use]
    pub fn records_lag_max(&self) -> Option<i64> {
        self.partitions.values().filter_map(|partition| partition.lag).max()
    }

    /// Returns every metric under its Kafka name. `consumer-metrics` covers the whole consumer,
    /// `consumer-fetch-manager-metrics` its fetches and, with tags `topic` and `partition`, each partition.
    /// `consumer-coordinator-metrics` covers its group. `consumer-node-metrics`, with a tag `node-id`, covers each broker.
    #[must_use]
    pub fn named(&self) -> Vec<NamedMetric> {
        let mut named = Vec::new();
        self.list_whole(&mut named);
        self.list_partitions(&mut named);
        self.list_nodes(&mut named);
        named
    }

    /// Lists the metrics of the whole consumer and of its group.
    pub(crate) fn list_whole(&self, out: &mut dyn Sink) {
        let mut client = self.group(CLIENT, Vec::new(), out);
        client.rate("connection-creation", self.connection_creation_total);
        client.put("poll-idle-ratio-avg", client.per_second(self.poll_idle_time.as_secs_f64()));
        let mut whole = self.group(WHOLE, Vec::new(), out);
        let all = self.all_brokers();
        all.list("fetch-latency", &mut whole);
        whole.rate("records-consumed", self.records_consumed_total);
        whole.rate("bytes-consumed", self.bytes_consumed_total);
        whole.put("certificates-outdated", f64::from(u8::from(self.certificates_outdated)));
        let per_request = self.records_consumed_total as f64 / all.fetch_total.max(1) as f64;
        whole.put("records-per-request-avg", per_request);
        if let Some(lag) = self.records_lag_max() {
            whole.put("records-lag-max", lag as f64);
        }
        let buffered: usize = self.partitions.values().map(|p| p.buffered_bytes).sum();
        whole.put("buffered-bytes", buffered as f64);
        if let Some(metrics) = &self.group {
            let mut coordinator = self.group(COORDINATOR, Vec::new(), out);
            metrics.list(&mut coordinator, self.partitions.len());
        }
    }

    /// Lists the metrics of each partition.
    pub(crate) fn list_partitions(&self, out: &mut dyn Sink) {
        const LAG: &str = "records-lag";
        const BUFFERED: &str = "buffered-bytes";
        // A consumer may have hundreds of thousands of partitions.
        if !out.wants(WHOLE, LAG) && !out.wants(WHOLE, BUFFERED) {
            return;
        }
        for (at, partition) in &self.partitions {
            if out.is_full() {
                return;
            }
            let topic = ("topic", at.topic.to_string());
            let tags = vec![topic, ("partition", at.partition.to_string())];
            let mut of_one = self.group(WHOLE, tags, out);
            if let Some(lag) = partition.lag {
                of_one.put(LAG, lag as f64);
            }
            of_one.put(BUFFERED, partition.buffered_bytes as f64);
        }
    }

    /// Lists the metrics of each broker.
    pub(crate) fn list_nodes(&self, out: &mut dyn Sink) {
        for (id, broker) in &self.brokers {
            // Java's name. Other requests have other connections.
            broker.list(
                "request-latency",
                &mut self.group(NODE, vec![("node-id", format!("node-{id}"))], out),
            );
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

const CLIENT: &str = "consumer-metrics";
const WHOLE: &str = "consumer-fetch-manager-metrics";
const COORDINATOR: &str = "consumer-coordinator-metrics";
const NODE: &str = "consumer-node-metrics";

impl FetchMetrics {
    /// Returns the phases by name: `fetch`, including the broker's wait for records, and `buffer`. Nanoseconds.
    #[must_use]
    pub fn phases(&self) -> [(&'static str, &Distribution); 2] {
        [("fetch", &self.fetch_latency), ("buffer", &self.buffer_time)]
    }

    fn list(&self, latency: &str, group: &mut Group<'_>) {
        group.figures(latency, &self.fetch_latency, NANOS_IN_MS);
        group.figures("record-buffer-time", &self.buffer_time, NANOS_IN_MS);
        group.figures("fetch-size", &self.fetch_size, 1.0);
        group.figures("fetch-throttle-time", &self.throttle_time, NANOS_IN_MS);
        // Java's name for the rate does not extend the name of the total.
        group.rate("fetch", self.fetch_total);
        group.rate("fetch-beside-session", self.fetch_beside_session_total);
        group.rate("fetch-session-open", self.session_open_total);
    }
}

/// The recording side of a consumer's metrics.
#[derive(Debug)]
pub(crate) struct ConsumerStats {
    pub(crate) started: Instant,
    pub(crate) records: Counter,
    pub(crate) bytes: Counter,
    pub(crate) connections: Counter,
    pub(crate) idle: IdleTime,
    /// `curtail.phase.stamps`.
    stamps: bool,
    /// Locked only to find a broker's entry, once per lane.
    brokers: Mutex<BTreeMap<i32, Arc<FetchStats>>>,
}

impl ConsumerStats {
    pub(crate) fn new(stamps: bool) -> Self {
        Self {
            started: Instant::now(),
            stamps,
            records: Counter::default(),
            bytes: Counter::default(),
            connections: Counter::default(),
            idle: IdleTime::default(),
            brokers: Mutex::default(),
        }
    }

    /// Returns a broker's entry; the same one for the same id.
    pub(crate) fn broker(&self, id: i32) -> Arc<FetchStats> {
        let new = || Arc::new(FetchStats { stamps: self.stamps, ..FetchStats::default() });
        self.brokers.lock().entry(id).or_insert_with(new).clone()
    }

    /// Every broker that has responded.
    pub(crate) fn snapshot(&self) -> BTreeMap<i32, FetchMetrics> {
        let brokers = self.brokers.lock();
        let answered = brokers.iter().filter(|(_, stats)| stats.fetches.get() > 0);
        answered.map(|(id, stats)| (*id, stats.snapshot())).collect()
    }
}

/// Time that polls wait for records.
#[derive(Debug, Default)]
pub(crate) struct IdleTime(Mutex<Waits>);

#[derive(Debug, Default)]
struct Waits {
    /// Of the waits that have ended.
    ended: Duration,
    /// Begin of the present one. A consumer has one poll at a time.
    since: Option<Instant>,
}

impl IdleTime {
    /// Records that a poll begins to wait.
    pub(crate) fn begin(&self) {
        self.0.lock().since = Some(Instant::now());
    }

    /// Records that the poll waits no longer.
    pub(crate) fn end(&self) {
        let mut waits = self.0.lock();
        if let Some(since) = waits.since.take() {
            waits.ended = waits.ended.saturating_add(since.elapsed());
        }
    }

    /// The time until `now`, with the present wait.
    pub(crate) fn so_far(&self, now: Instant) -> Duration {
        let waits = self.0.lock();
        let present = waits.since.map(|since| now.saturating_duration_since(since));
        waits.ended.saturating_add(present.unwrap_or_default())
    }
}

/// The recording side of a lane's metrics.
#[derive(Debug, Default)]
pub(crate) struct FetchStats {
    stamps: bool,
    latency: Histogram,
    buffer_time: Histogram,
    size: Histogram,
    throttle: Histogram,
    fetches: Counter,
    beside: Counter,
    opened: Counter,
}

impl FetchStats {
    /// Records a response to a request sent at `sent`. Returns its arrival.
    pub(crate) fn answered(self: &Arc<Self>, sent: Instant, bytes: usize) -> Option<Arrival> {
        self.size.record(bytes as u64, 1);
        self.fetches.add(1);
        if !self.stamps {
            return None;
        }
        let now = Instant::now();
        self.latency.record(nanos(now.saturating_duration_since(sent)), 1);
        Some(Arrival { stats: self.clone(), at: now, given_from: None, noted: 0 })
    }

    /// Records that the response was to a sessionless fetch.
    pub(crate) fn beside(&self) {
        self.beside.add(1);
    }

    /// Counts a request for a new session.
    pub(crate) fn opening(&self) {
        self.opened.add(1);
    }

    /// Records a throttle time (KIP-219).
    pub(crate) fn throttled(&self, pause: Duration) {
        self.throttle.record(nanos(pause), 1);
    }

    fn snapshot(&self) -> FetchMetrics {
        FetchMetrics {
            fetch_latency: self.latency.snapshot(),
            buffer_time: self.buffer_time.snapshot(),
            fetch_size: self.size.snapshot(),
            throttle_time: self.throttle.snapshot(),
            fetch_total: self.fetches.get(),
            fetch_beside_session_total: self.beside.get(),
            session_open_total: self.opened.get(),
        }
    }
}

/// Arrival of a response, to measure how long its records wait.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    stats: Arc<FetchStats>,
    at: Instant,
    /// Time of the first record returned one by one whose wait is not recorded yet.
    given_from: Option<Instant>,
    /// Number of records whose wait is recorded, among those returned since they were last counted.
    pub(crate) noted: u64,
}

impl Arrival {
    /// Marks that records are being returned one by one; their wait is recorded later.
    pub(crate) fn begin(&mut self) {
        self.given_from.get_or_insert_with(Instant::now);
    }

    /// Records the wait of the returned `records` that are not recorded yet.
    pub(crate) fn gave(&mut self, records: u64) {
        let new = records.saturating_sub(self.noted);
        if new > 0 {
            let given = self.given_from.take().unwrap_or_else(Instant::now);
            let waited = given.saturating_duration_since(self.at);
            self.stats.buffer_time.record(nanos(waited), new);
            self.noted = records;
        }
    }
}
