//! The content of a push.

use curtail_proto::telemetry::{Selector, Subscription};
use curtail_wire::otlp::{Kind, MetricsData, Number};

use super::names::{is_counter, push_full_name};
use crate::metrics::{ConsumerMetrics, NamedMetric, ProducerMetrics, Sink};

/// The metrics of a client.
#[derive(Clone, Debug)]
pub(crate) enum Snapshot {
    Producer(Box<ProducerMetrics>),
    Consumer(Box<ConsumerMetrics>),
}

impl Snapshot {
    fn since(&self, earlier: &Self) -> Self {
        match (self, earlier) {
            (Self::Producer(now), Self::Producer(then)) => Self::Producer(now.since(then).into()),
            (Self::Consumer(now), Self::Consumer(then)) => Self::Consumer(now.since(then).into()),
            _ => self.clone(),
        }
    }

    /// Milliseconds since the client's creation.
    fn period_ms(&self) -> i64 {
        let period = match self {
            Self::Producer(metrics) => metrics.period,
            Self::Consumer(metrics) => metrics.period,
        };
        i64::try_from(period.as_millis()).unwrap_or(i64::MAX)
    }

    /// Lists the metrics of the whole client, then those of brokers, then those of partitions.
    fn list(&self, out: &mut dyn Sink) {
        match self {
            Self::Producer(metrics) => {
                metrics.list_whole(out);
                metrics.list_nodes(out);
            }
            Self::Consumer(metrics) => {
                metrics.list_whole(out);
                metrics.list_nodes(out);
                metrics.list_partitions(out);
            }
        }
    }
}

/// A payload, and the state that it was made from.
pub(super) struct Collected {
    /// `MetricsData`, not compressed.
    pub(super) payload: Vec<u8>,
    snapshot: Snapshot,
    at_ms: i64,
}

/// The client's metrics at the last push, and its time.
#[derive(Default)]
pub(super) struct Ledger {
    last: Option<(Snapshot, i64)>,
}

impl Ledger {
    /// Makes the payload of the requested metrics. Rates, means and maxima cover the time since the last push. The largest
    /// payload has the metrics of the whole client first, then those of brokers, then those of partitions.
    pub(super) fn collect(
        &self,
        snapshot: Snapshot,
        attributes: &[(&'static str, String)],
        subscription: &Subscription,
        at_ms: i64,
    ) -> Collected {
        let difference = self.last.as_ref().map(|(last, _)| snapshot.since(last));
        let recent = difference.as_ref().unwrap_or(&snapshot);
        let since_ms = match &self.last {
            Some((_, at_ms)) if subscription.delta => *at_ms,
            _ => at_ms.saturating_sub(snapshot.period_ms()),
        };
        let totals = (!subscription.delta).then(|| {
            let mut totals = Totals { wanted: Wanted::new(subscription), values: Vec::new() };
            snapshot.list(&mut totals);
            totals.values.into_iter()
        });
        let shared: Vec<_> = attributes.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let data = MetricsData::new(&shared, nanos(at_ms), subscription.max_bytes);
        let start_ns = nanos(since_ms);
        let mut payload = Payload { wanted: Wanted::new(subscription), totals, start_ns, data };
        recent.list(&mut payload);
        let (is_full, limit) = (payload.data.is_full(), subscription.max_bytes);
        let (payload, sent) = payload.data.finish();
        if is_full {
            tracing::debug!(sent, limit, "client metrics are more than the broker takes");
        }
        Collected { payload, snapshot, at_ms }
    }

    /// Remembers what was pushed: the next push begins there.
    pub(super) fn sent(&mut self, collected: Collected) {
        self.last = Some((collected.snapshot, collected.at_ms));
    }
}

/// The requested metrics.
struct Wanted<'a> {
    selector: &'a Selector,
    /// The name of the last metric, for its memory.
    name: String,
}

impl<'a> Wanted<'a> {
    fn new(subscription: &'a Subscription) -> Self {
        Self { selector: &subscription.metrics, name: String::new() }
    }

    fn has(&mut self, group: &str, name: &str) -> bool {
        self.name.clear();
        push_full_name(&mut self.name, group, name);
        self.selector.has(&self.name)
    }
}

/// The values of the requested counters.
struct Totals<'a> {
    wanted: Wanted<'a>,
    values: Vec<f64>,
}

impl Sink for Totals<'_> {
    fn wants(&mut self, group: &'static str, name: &str) -> bool {
        is_counter(name) && self.wanted.has(group, name)
    }

    fn add(&mut self, metric: NamedMetric) {
        self.values.push(metric.value);
    }

    fn is_full(&self) -> bool {
        false
    }
}

/// The requested metrics, encoded up to the limit.
struct Payload<'a> {
    wanted: Wanted<'a>,
    /// Without delta temporality, the values of the counters, in the order of the list: the difference has all that the
    /// snapshot has.
    totals: Option<std::vec::IntoIter<f64>>,
    start_ns: u64,
    data: MetricsData,
}

impl Sink for Payload<'_> {
    fn wants(&mut self, group: &'static str, name: &str) -> bool {
        !self.data.is_full() && self.wanted.has(group, name)
    }

    fn add(&mut self, metric: NamedMetric) {
        let (kind, value) = match (is_counter(&metric.name), &mut self.totals) {
            (false, _) => (Kind::Gauge, metric.value),
            (true, None) => (Kind::Delta, metric.value),
            (true, Some(totals)) => (Kind::Cumulative, totals.next().unwrap_or(metric.value)),
        };
        let mut name = String::new();
        push_full_name(&mut name, metric.group, &metric.name);
        // Brokers know the client id from the request, as Java's reporter says.
        let tags = metric.tags.into_iter().filter(|(tag, _)| *tag != "client-id");
        let attributes = tags.map(|(tag, value)| (tag.replace('-', "_"), value)).collect();
        self.data.push(&Number { name, attributes, value, kind, start_ns: self.start_ns });
    }

    fn is_full(&self) -> bool {
        self.data.is_full()
    }
}

fn nanos(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}
