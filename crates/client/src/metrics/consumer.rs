//! What a consumer measures of itself, always: per broker and, for what is the case now, per partition.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Distribution, GroupMetrics, NamedMetric, PrometheusText,
    histogram::Histogram,
    named::{Group, NANOS_IN_MS},
    stats::{Counter, nanos},
};
use crate::TopicPartition;

/// A snapshot of a consumer's metrics; see [`crate::Consumer::metrics`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerMetrics {
    /// `client.id`.
    pub client_id: String,
    /// When it was taken.
    pub taken: Instant,
    /// The time it covers: since the consumer was made, or since the earlier snapshot ([`Self::since`]).
    pub period: Duration,
    /// Records given out.
    pub records_consumed_total: u64,
    /// Bytes of the answers' records that were given out to their end, compressed.
    pub bytes_consumed_total: u64,
    /// Whether certificates read before are in use because their files have changed and cannot be used
    /// ([`crate::SecurityConfig::certificates_outdated`]).
    pub certificates_outdated: bool,
    /// By broker id. A broker is here from its first answer on.
    pub brokers: BTreeMap<i32, FetchMetrics>,
    /// What concerns the group; `None` without a `group.id`.
    pub group: Option<GroupMetrics>,
    /// What is assigned, as it is now.
    pub partitions: BTreeMap<TopicPartition, PartitionLag>,
}

/// What concerns the fetches from one broker, or from all of them ([`ConsumerMetrics::all_brokers`]).
///
/// With `curtail.phase.stamps=false` nothing is recorded in `fetch_latency` and `buffer_time`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FetchMetrics {
    /// From a request to its answer, what the broker waits for records included. Nanoseconds, one value an answer.
    pub fetch_latency: Distribution,
    /// From an answer until a poll gave its records out, one value for each of them. In a stream
    /// ([`crate::Consumer::stream`]) they count as given out when the first one of their part of the answer was, and are
    /// counted with the last one. Nanoseconds.
    pub buffer_time: Distribution,
    /// Bytes of an answer.
    pub fetch_size: Distribution,
    /// How long the broker asked not to be sent requests (KIP-219). Nanoseconds, one value for each answer that asked.
    pub throttle_time: Distribution,
    /// Fetches answered.
    pub fetch_total: u64,
    /// Those of them that went beside the fetch session, because a partition of it was not to be read on.
    pub fetch_beside_session_total: u64,
    /// Sessions that were opened, or could not be, for want of a slot.
    pub session_open_total: u64,
}

/// A partition as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionLag {
    /// Records left to be given out, as [`crate::Consumer::current_lag`].
    pub lag: Option<i64>,
    /// Bytes fetched and not given out.
    pub buffered_bytes: usize,
}

impl ConsumerMetrics {
    /// The sums and the merged distributions of all brokers.
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

    /// What happened after `earlier`, a snapshot of the same consumer: counters and distributions are those of the
    /// time between, what is the case now stays as it is.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference.period = self.taken.saturating_duration_since(earlier.taken);
        let less = |now: &mut u64, then: u64| *now = now.saturating_sub(then);
        less(&mut difference.records_consumed_total, earlier.records_consumed_total);
        less(&mut difference.bytes_consumed_total, earlier.bytes_consumed_total);
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

    /// The metrics in Prometheus' text format; see [`PrometheusText`] for those of several clients.
    #[must_use]
    pub fn prometheus_text(&self) -> String {
        PrometheusText::default().consumer(self).to_string()
    }

    /// The largest lag of a partition whose lag is known.
    #[must_use]
    pub fn records_lag_max(&self) -> Option<i64> {
        self.partitions.values().filter_map(|partition| partition.lag).max()
    }

    /// Every metric under its Kafka name: `consumer-fetch-manager-metrics`, for the consumer as a whole and, with tags
    /// `topic` and `partition`, for each partition; `consumer-coordinator-metrics` for its group; `consumer-node-metrics`,
    /// with a tag `node-id`, for each broker.
    #[must_use]
    pub fn named(&self) -> Vec<NamedMetric> {
        let client = ("client-id", self.client_id.clone());
        let seconds = self.period.as_secs_f64();
        let group = |group, tags| Group { group, tags, seconds, out: Vec::new() };
        let mut whole = group(WHOLE, vec![client.clone()]);
        let all = self.all_brokers();
        all.list(&mut whole);
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
        let mut named = whole.out;
        if let Some(metrics) = &self.group {
            let mut coordinator = group(COORDINATOR, vec![client.clone()]);
            metrics.list(&mut coordinator, self.partitions.len());
            named.append(&mut coordinator.out);
        }
        for (at, partition) in &self.partitions {
            let topic = ("topic", at.topic.to_string());
            let tags = vec![client.clone(), topic, ("partition", at.partition.to_string())];
            let mut of_one = group(WHOLE, tags);
            if let Some(lag) = partition.lag {
                of_one.put("records-lag", lag as f64);
            }
            of_one.put("buffered-bytes", partition.buffered_bytes as f64);
            named.append(&mut of_one.out);
        }
        for (id, broker) in &self.brokers {
            let mut node = group(NODE, vec![client.clone(), ("node-id", format!("node-{id}"))]);
            broker.list(&mut node);
            named.append(&mut node.out);
        }
        named
    }
}

const WHOLE: &str = "consumer-fetch-manager-metrics";
const COORDINATOR: &str = "consumer-coordinator-metrics";
const NODE: &str = "consumer-node-metrics";

impl FetchMetrics {
    /// The phases by name: `fetch`, what the broker waits for records included, and `buffer`. Nanoseconds.
    #[must_use]
    pub fn phases(&self) -> [(&'static str, &Distribution); 2] {
        [("fetch", &self.fetch_latency), ("buffer", &self.buffer_time)]
    }

    fn list(&self, group: &mut Group) {
        group.figures("fetch-latency", &self.fetch_latency, NANOS_IN_MS);
        group.figures("record-buffer-time", &self.buffer_time, NANOS_IN_MS);
        group.figures("fetch-size", &self.fetch_size, 1.0);
        group.figures("fetch-throttle-time", &self.throttle_time, NANOS_IN_MS);
        // Java's name of the rate has no part in common with that of its total.
        group.rate("fetch", self.fetch_total);
        group.rate("fetch-beside-session", self.fetch_beside_session_total);
        group.rate("fetch-session-open", self.session_open_total);
    }
}

/// What a consumer records of itself.
#[derive(Debug)]
pub(crate) struct ConsumerStats {
    pub(crate) started: Instant,
    pub(crate) records: Counter,
    pub(crate) bytes: Counter,
    /// `curtail.phase.stamps`.
    stamps: bool,
    /// Only for finding a broker's, once for each lane.
    brokers: Mutex<BTreeMap<i32, Arc<FetchStats>>>,
}

impl ConsumerStats {
    pub(crate) fn new(stamps: bool) -> Self {
        Self {
            started: Instant::now(),
            stamps,
            records: Counter::default(),
            bytes: Counter::default(),
            brokers: Mutex::default(),
        }
    }

    /// A broker's; the same for the same id.
    pub(crate) fn broker(&self, id: i32) -> Arc<FetchStats> {
        let new = || Arc::new(FetchStats { stamps: self.stamps, ..FetchStats::default() });
        self.brokers.lock().entry(id).or_insert_with(new).clone()
    }

    /// Every broker's that has answered.
    pub(crate) fn snapshot(&self) -> BTreeMap<i32, FetchMetrics> {
        let brokers = self.brokers.lock();
        let answered = brokers.iter().filter(|(_, stats)| stats.fetches.get() > 0);
        answered.map(|(id, stats)| (*id, stats.snapshot())).collect()
    }
}

/// What a lane records of its broker.
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
    /// An answer to a request sent at `sent` is here; gives when it came.
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

    /// It was one beside the session.
    pub(crate) fn beside(&self) {
        self.beside.add(1);
    }

    /// A request asked for a session.
    pub(crate) fn opening(&self) {
        self.opened.add(1);
    }

    /// An answer asks for a pause (KIP-219).
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

/// When an answer came, for the time that its records wait.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    stats: Arc<FetchStats>,
    at: Instant,
    /// Since when records are given out that are not noted yet, where they are given out one by one.
    given_from: Option<Instant>,
    /// Of those given out since they were last counted, how many are noted.
    pub(crate) noted: u64,
}

impl Arrival {
    /// Records are given out from now on, and noted later.
    pub(crate) fn begin(&mut self) {
        self.given_from.get_or_insert_with(Instant::now);
    }

    /// Notes the time of those that are not noted yet of so many that were given out.
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
