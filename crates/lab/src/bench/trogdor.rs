//! Trogdor's task specifications in JSON. Fields for its agents (`startMs`, the nodes) are accepted and
//! ignored: a run begins at once, on this machine.

use std::{collections::BTreeMap, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use serde_json::Value;

use super::{
    names::{self, expand},
    payload::Generator,
    refuse,
};
use crate::perf::Result;

/// Properties by Kafka's names.
pub(super) type Properties = BTreeMap<String, String>;

/// Reads properties whose values may also be numbers and booleans.
fn properties<'de, D: Deserializer<'de>>(from: D) -> Result<Properties, D::Error> {
    let values = Option::<BTreeMap<String, Value>>::deserialize(from)?.unwrap_or_default();
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
        _ => Err(D::Error::custom(format!("{name}: expected a text"))),
    };
    values.into_iter().map(text).collect()
}

/// A topic to create where it does not exist.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct PartitionsSpec {
    num_partitions: i32,
    replication_factor: i16,
    partition_assignments: BTreeMap<i32, Vec<i32>>,
    #[serde(deserialize_with = "properties")]
    pub(super) configs: Properties,
}

impl PartitionsSpec {
    /// A topic with this number of partitions, with one replica each.
    pub(super) fn sized(partitions: i32) -> Self {
        Self { num_partitions: partitions, replication_factor: 1, ..Self::default() }
    }

    /// Trogdor's default is one.
    pub(super) fn partitions(&self) -> i32 {
        if self.num_partitions > 0 { self.num_partitions } else { 1 }
    }

    /// Trogdor's default is three.
    pub(super) fn replicas(&self) -> i16 {
        if self.replication_factor > 0 { self.replication_factor } else { 3 }
    }
}

/// Topic specifications by names with ranges.
pub(super) type TopicsSpec = BTreeMap<String, PartitionsSpec>;

/// Expands the names to single topics.
///
/// # Errors
/// Names that cannot be expanded, unsupported topic options.
pub(super) fn topics(spec: &TopicsSpec) -> Result<TopicsSpec> {
    let mut all = TopicsSpec::new();
    for (name, partitions) in spec {
        if !partitions.partition_assignments.is_empty() {
            return refuse(format!(
                "'{name}': partitionAssignments is not supported; give numPartitions and replicationFactor"
            ));
        }
        all.extend(expand(name)?.into_iter().map(|name| (name, partitions.clone())));
    }
    Ok(all)
}

/// End of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(super) enum Transactions {
    /// After this number of messages.
    Uniform { messages_per_transaction: u64 },
    /// After this time.
    Interval { transaction_interval_ms: u64 },
}

impl Transactions {
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Uniform { messages_per_transaction: 0 } => {
                refuse("messagesPerTransaction must be above 0")
            }
            Self::Interval { transaction_interval_ms: 0 } => {
                refuse("transactionIntervalMs must be above 0")
            }
            _ => Ok(()),
        }
    }
}

/// `ProduceBenchSpec`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProduceBench {
    #[serde(rename = "class")]
    _class: IgnoredAny,
    #[serde(default, rename = "startMs")]
    _start_ms: IgnoredAny,
    #[serde(default, rename = "producerNode")]
    _node: IgnoredAny,
    pub(super) duration_ms: u64,
    pub(super) bootstrap_servers: Option<String>,
    #[serde(default)]
    pub(super) target_messages_per_sec: i64,
    pub(super) max_messages: u64,
    pub(super) key_generator: Option<Generator>,
    pub(super) value_generator: Option<Generator>,
    pub(super) transaction_generator: Option<Transactions>,
    #[serde(default, deserialize_with = "properties")]
    pub(super) producer_conf: Properties,
    #[serde(default, deserialize_with = "properties")]
    pub(super) common_client_conf: Properties,
    #[serde(default, deserialize_with = "properties")]
    pub(super) admin_client_conf: Properties,
    #[serde(default)]
    pub(super) active_topics: TopicsSpec,
    #[serde(default)]
    pub(super) inactive_topics: TopicsSpec,
    #[serde(default)]
    pub(super) use_configured_partitioner: bool,
    #[serde(default)]
    pub(super) skip_flush: bool,
}

/// `ConsumeBenchSpec`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ConsumeBench {
    #[serde(rename = "class")]
    _class: IgnoredAny,
    #[serde(default, rename = "startMs")]
    _start_ms: IgnoredAny,
    #[serde(default, rename = "consumerNode")]
    _node: IgnoredAny,
    pub(super) duration_ms: u64,
    pub(super) bootstrap_servers: Option<String>,
    #[serde(default)]
    pub(super) target_messages_per_sec: i64,
    pub(super) max_messages: u64,
    #[serde(default)]
    pub(super) consumer_group: String,
    #[serde(default, deserialize_with = "properties")]
    pub(super) consumer_conf: Properties,
    #[serde(default, deserialize_with = "properties")]
    pub(super) common_client_conf: Properties,
    /// Accepted and ignored: no topics are created with it.
    #[serde(default, rename = "adminClientConf")]
    _admin: IgnoredAny,
    #[serde(default = "one")]
    pub(super) threads_per_worker: usize,
    pub(super) record_processor: Option<Processor>,
    #[serde(default)]
    active_topics: Vec<String>,
}

fn one() -> usize {
    1
}

impl ConsumeBench {
    pub(super) fn partitions(&self) -> Result<names::Partitions> {
        names::partitions(&self.active_topics)
    }
}

/// Additional processing of records by a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(super) enum Processor {
    /// Reads the send time from the values.
    Timestamp { histogram_max_ms: i64, histogram_min_ms: i64, histogram_step_ms: i64 },
}

/// `RoundTripWorkloadSpec`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RoundTrip {
    #[serde(rename = "class")]
    _class: IgnoredAny,
    #[serde(default, rename = "startMs")]
    _start_ms: IgnoredAny,
    #[serde(default, rename = "clientNode")]
    _node: IgnoredAny,
    pub(super) duration_ms: u64,
    pub(super) bootstrap_servers: Option<String>,
    pub(super) target_messages_per_sec: i64,
    pub(super) max_messages: u64,
    pub(super) value_generator: Option<Generator>,
    #[serde(default, deserialize_with = "properties")]
    pub(super) producer_conf: Properties,
    #[serde(default, deserialize_with = "properties")]
    pub(super) consumer_conf: Properties,
    #[serde(default, deserialize_with = "properties")]
    pub(super) common_client_conf: Properties,
    #[serde(default, deserialize_with = "properties")]
    pub(super) admin_client_conf: Properties,
    #[serde(default)]
    pub(super) active_topics: TopicsSpec,
}

/// A specification of one of the classes.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Produce(ProduceBench),
    Consume(ConsumeBench),
    RoundTrip(RoundTrip),
}

/// The field that names the class.
#[derive(Deserialize)]
struct Classed {
    class: String,
}

impl Task {
    /// Parses a specification. As in Trogdor, lines that begin with `//` are comments.
    ///
    /// # Errors
    /// Invalid input, by name and line.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let line = |line: &str| if is_comment(line) { "\n".into() } else { format!("{line}\n") };
        let json: String = text.lines().map(line).collect();
        let failed = |error: serde_json::Error| crate::perf::Error::Options(error.to_string());
        let Classed { class } = serde_json::from_str(&json).map_err(failed)?;
        match class.rsplit('.').next().unwrap_or_default() {
            "ProduceBenchSpec" => Ok(Self::Produce(serde_json::from_str(&json).map_err(failed)?)),
            "ConsumeBenchSpec" => Ok(Self::Consume(serde_json::from_str(&json).map_err(failed)?)),
            "RoundTripWorkloadSpec" => {
                Ok(Self::RoundTrip(serde_json::from_str(&json).map_err(failed)?))
            }
            _ => refuse(format!(
                "class '{class}' is not supported; there are ProduceBenchSpec, ConsumeBenchSpec and \
                 RoundTripWorkloadSpec"
            )),
        }
    }

    /// Checks the fields common to every class.
    pub(super) fn check(&self) -> Result<()> {
        let (duration, messages) = match self {
            Self::Produce(spec) => (spec.duration_ms, spec.max_messages),
            Self::Consume(spec) => (spec.duration_ms, spec.max_messages),
            Self::RoundTrip(spec) => (spec.duration_ms, spec.max_messages),
        };
        match (duration, messages) {
            (0, _) => refuse("durationMs must be above 0"),
            (_, 0) => refuse("maxMessages must be above 0"),
            _ => Ok(()),
        }
    }
}

/// A line that is only a comment.
pub(super) fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Trogdor's throttle: a burst of messages every 100 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Throttle {
    per_period: u64,
}

/// The length of a period.
const PERIOD: Duration = Duration::from_millis(100);

impl Throttle {
    /// For a rate per second: its share of a period, rounded down, but at least one.
    pub(super) fn new(per_second: i64) -> Self {
        let per_period = u64::try_from(per_second).unwrap_or(0) / 10;
        Self { per_period: per_period.max(1) }
    }

    /// Due time of a message by its number, relative to the first one.
    pub(super) fn due(self, index: u64) -> Duration {
        let periods = u32::try_from(index / self.per_period).unwrap_or(u32::MAX);
        PERIOD.saturating_mul(periods)
    }

    /// Whether it is the first message of a period.
    pub(super) fn begins_period(self, index: u64) -> bool {
        index.is_multiple_of(self.per_period)
    }
}
