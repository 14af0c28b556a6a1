//! The content of a push.

use curtail_proto::telemetry::Subscription;
use curtail_wire::otlp::{Kind, Number, metrics_data};

use super::names::{full_name, is_counter};
use crate::metrics::{ConsumerMetrics, NamedMetric, ProducerMetrics};

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

    fn named(&self) -> Vec<NamedMetric> {
        match self {
            Self::Producer(metrics) => metrics.named(),
            Self::Consumer(metrics) => metrics.named(),
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
        let recent = match &self.last {
            Some((last, _)) => snapshot.since(last).named(),
            None => snapshot.named(),
        };
        // In the same order: the difference has all that the snapshot has.
        let totals = if subscription.delta { Vec::new() } else { snapshot.named() };
        let since_ms = match &self.last {
            Some((_, at_ms)) if subscription.delta => *at_ms,
            _ => at_ms.saturating_sub(snapshot.period_ms()),
        };
        let mut numbers = Vec::new();
        for (index, metric) in recent.iter().enumerate() {
            let name = full_name(metric.group, &metric.name);
            if !subscription.metrics.has(&name) {
                continue;
            }
            let (kind, value) = match (is_counter(&metric.name), totals.get(index)) {
                (false, _) => (Kind::Gauge, metric.value),
                (true, Some(total)) => (Kind::Cumulative, total.value),
                (true, None) => (Kind::Delta, metric.value),
            };
            // Brokers know the client id from the request, as Java's reporter says.
            let tags = metric.tags.iter().filter(|(tag, _)| *tag != "client-id");
            let attributes = tags.map(|(tag, value)| (tag.replace('-', "_"), value.clone()));
            let attributes = attributes.collect();
            numbers.push(Number { name, attributes, value, kind, start_ns: nanos(since_ms) });
        }
        // By the number of tags: none, `node_id`, `topic` and `partition`.
        numbers.sort_by_key(|number| number.attributes.len());
        let shared: Vec<_> = attributes.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let (payload, count) =
            metrics_data(&shared, &numbers, nanos(at_ms), subscription.max_bytes);
        if count < numbers.len() {
            let (all, limit) = (numbers.len(), subscription.max_bytes);
            tracing::debug!(
                sent = count,
                all,
                limit,
                "client metrics are more than the broker takes"
            );
        }
        Collected { payload, snapshot, at_ms }
    }

    /// Remembers what was pushed: the next push begins there.
    pub(super) fn sent(&mut self, collected: Collected) {
        self.last = Some((collected.snapshot, collected.at_ms));
    }
}

fn nanos(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}
