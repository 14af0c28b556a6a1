//! Candidate settings, as a pure function of the current settings and the slow phase.

#[cfg(test)]
mod tests;

use std::time::Duration;

use curtail::{
    ConsumerConfig, ProducerConfig,
    config::{Acks, Codec},
};
use serde::Serialize;

use super::sample::Phase;

/// A candidate setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A property of the producer.
    Producer(&'static str, String),
    /// A property of the consumer.
    Consumer(&'static str, String),
    /// Number of partitions.
    Partitions(i32),
    /// Number of consumers that share the partitions.
    Consumers(usize),
}

impl Change {
    /// The setting as a user writes it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Producer(name, value) | Self::Consumer(name, value) => format!("{name}={value}"),
            Self::Partitions(count) => format!("{count} partitions"),
            Self::Consumers(count) => format!("{count} consumers"),
        }
    }

    /// Caution to read before the setting is applied.
    pub(super) fn caution(&self) -> Option<&'static str> {
        match self {
            Self::Producer("acks", value) if value == "1" => Some(
                "weaker durability: records that only the leader has are lost with it; measured for comparison, not recommended",
            ),
            Self::Producer("compression.type", _) => {
                Some("measured with random letters; your data may compress better or worse")
            }
            Self::Producer("max.in.flight.requests.per.connection", _) => {
                Some("keeps the order of records only with enable.idempotence=true")
            }
            Self::Partitions(_) => Some("keyed records go to other partitions than before"),
            _ => None,
        }
    }
}

/// The current settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) linger: Duration,
    pub(super) batch_size: usize,
    pub(super) compressed: bool,
    pub(super) max_in_flight: usize,
    pub(super) fetch_min_bytes: i32,
    pub(super) fetch_max_wait: Duration,
    pub(super) partitions: i32,
    /// Bytes per second in each partition.
    pub(super) partition_rate: u64,
}

impl Base {
    pub(super) fn of(
        producer: &ProducerConfig,
        consumer: &ConsumerConfig,
        partitions: i32,
        rate: f64,
    ) -> Self {
        Self {
            linger: producer.get_linger(),
            batch_size: producer.get_batch_size(),
            compressed: producer.get_compression().codec != Codec::None,
            max_in_flight: producer.get_max_in_flight(),
            fetch_min_bytes: consumer.get_fetch_min_bytes(),
            fetch_max_wait: consumer.get_fetch_max_wait(),
            partitions,
            partition_rate: (rate / f64::from(partitions.max(1))) as u64,
        }
    }
}

/// Most candidates of one examination.
pub(super) const MOST: usize = 6;
/// Longest `fetch.max.wait.ms` that is not worth a change.
const LONG_WAIT: Duration = Duration::from_millis(100);

/// Candidates, starting with the most promising for the phase that takes most.
pub(super) fn candidates(base: &Base, blamed: Phase) -> Vec<Change> {
    let producer = |name, value: &str| Change::Producer(name, value.to_owned());
    let consumer = |name, value: &str| Change::Consumer(name, value.to_owned());
    let mut sending = Vec::new();
    if !base.linger.is_zero() {
        sending.push(producer("linger.ms", "0"));
    }
    // Fewer, larger requests help if the number of requests is the cost.
    let mut batching = Vec::new();
    let larger = (base.batch_size * 8).clamp(65_536, 1_048_576);
    if larger > base.batch_size {
        batching.push(producer("batch.size", &larger.to_string()));
    }
    let longer = (base.linger * 4).max(Duration::from_millis(5));
    // At this rate a batch fills before the linger time ends.
    if u128::from(base.partition_rate) * base.linger.as_millis() / 1000 < larger as u128 {
        batching.push(producer("linger.ms", &longer.as_millis().to_string()));
    }
    if !base.compressed {
        batching.push(producer("compression.type", "lz4"));
    }
    let mut flight = Vec::new();
    if base.max_in_flight < 5 {
        flight.push(producer("max.in.flight.requests.per.connection", "5"));
    }
    let mut fetching = Vec::new();
    if base.fetch_min_bytes > 1 {
        fetching.push(consumer("fetch.min.bytes", "1"));
        if base.fetch_max_wait > LONG_WAIT {
            let wait = LONG_WAIT.as_millis().to_string();
            fetching.push(consumer("fetch.max.wait.ms", &wait));
        }
    }
    let mut spreading = vec![Change::Partitions(base.partitions.saturating_mul(2))];
    if base.partitions > 1 {
        spreading.push(Change::Consumers(2));
    }
    let order: [Vec<Change>; 5] = match blamed {
        Phase::Produce => [sending, flight, batching, spreading, fetching],
        Phase::Publish | Phase::Commit => [batching, flight, spreading, sending, fetching],
        Phase::CatchUp => [reversed(spreading), fetching, batching, flight, sending],
        Phase::Fetch => [fetching, reversed(spreading), batching, sending, flight],
    };
    order.into_iter().flatten().take(MOST).collect()
}

fn reversed(mut changes: Vec<Change>) -> Vec<Change> {
    changes.reverse();
    changes
}

/// The other durability, to measure its cost. A lower durability is never recommended.
pub(super) fn probe(acks: Acks) -> Change {
    let other = if acks == Acks::All { "1" } else { "all" };
    Change::Producer("acks", other.to_owned())
}
