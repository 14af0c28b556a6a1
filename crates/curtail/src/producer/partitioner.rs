//! Custom partitioners.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::RwLock;

use super::topic::TopicState;
use crate::Record;

/// A custom partitioner of the application ([`crate::ProducerConfig::partitioner`]).
///
/// Called once for every record without an explicit partition, on the sending task. It must not block.
///
/// ```
/// use curtail::producer::{Partitioner, TopicPartitions};
/// use curtail::{ProducerConfig, Record};
///
/// /// Partitions by the first byte of the key.
/// #[derive(Debug)]
/// struct FirstByte;
///
/// impl Partitioner for FirstByte {
///     fn partition(&self, record: &Record<'_>, partitions: &TopicPartitions<'_>) -> Option<i32> {
///         let first = *record.key_bytes()?.first()?;
///         Some(i32::from(first) % partitions.count() as i32)
///     }
/// }
///
/// let config = ProducerConfig::new("localhost:9092").partitioner(FirstByte);
/// ```
pub trait Partitioner: fmt::Debug + Send + Sync {
    /// Returns the record's partition; the record is never written to another one. `None` leaves the choice to the
    /// producer, which treats the record as keyless. An invalid partition fails the send with
    /// [`crate::Error::UnknownPartition`].
    fn partition(&self, record: &Record<'_>, partitions: &TopicPartitions<'_>) -> Option<i32>;

    /// Name of the type, shown as `partitioner.class` by [`crate::ProducerConfig::properties`].
    fn class(&self) -> &'static str {
        std::any::type_name::<Self>()
    }
}

/// The partitions of a record's topic.
pub struct TopicPartitions<'a> {
    topic: &'a TopicState,
}

impl<'a> TopicPartitions<'a> {
    pub(super) fn of(topic: &'a TopicState) -> Self {
        Self { topic }
    }

    /// Number of partitions; their indexes start at 0.
    pub fn count(&self) -> usize {
        self.topic.current().len()
    }

    /// Whether a partition exists and has a leader. Briefly takes that partition's lock.
    pub fn has_leader(&self, partition: i32) -> bool {
        let found = usize::try_from(partition).ok().and_then(|i| self.topic.current().get(i));
        found.is_some_and(|partition| partition.state.lock().lane.is_some())
    }
}

impl fmt::Debug for TopicPartitions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TopicPartitions");
        shown.field("topic", &self.topic.name).field("count", &self.count()).finish()
    }
}

/// Uses all partitions in turn, with or without keys, like Java's class of this name
/// (`partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner`). Skips partitions without a leader,
/// unless none has one.
#[derive(Debug, Default)]
pub struct RoundRobinPartitioner {
    turns: RwLock<BTreeMap<Arc<str>, AtomicU32>>,
}

/// The accepted values of `partitioner.class`.
pub(crate) const CLASSES: &str = "nothing, for the built-in partitioner, which replaces the DefaultPartitioner and, with \
    partitioner.ignore.keys=true, the UniformStickyPartitioner of older versions; or \
    org.apache.kafka.clients.producer.RoundRobinPartitioner; for one of your own, implement curtail::producer::Partitioner";

/// Returns the partitioner for a Java class name: `Some(None)` for the built-in one, `None` for an unknown name.
pub(crate) fn of_class(class: &str) -> Option<Option<Arc<dyn Partitioner>>> {
    match class {
        "" => Some(None),
        RoundRobinPartitioner::CLASS => Some(Some(Arc::new(RoundRobinPartitioner::default()))),
        _ => None,
    }
}

impl RoundRobinPartitioner {
    /// Java's class name.
    const CLASS: &'static str = "org.apache.kafka.clients.producer.RoundRobinPartitioner";

    fn turn(&self, topic: &Arc<str>) -> u32 {
        if let Some(turn) = self.turns.read().get(topic) {
            return turn.fetch_add(1, Ordering::Relaxed);
        }
        let mut turns = self.turns.write();
        turns.entry(topic.clone()).or_default().fetch_add(1, Ordering::Relaxed)
    }
}

impl Partitioner for RoundRobinPartitioner {
    fn partition(&self, _: &Record<'_>, partitions: &TopicPartitions<'_>) -> Option<i32> {
        let count = u32::try_from(partitions.count()).ok().filter(|&count| count > 0)?;
        let turn = self.turn(&partitions.topic.name);
        let in_turn = (0..count).map(|n| (turn.wrapping_add(n) % count) as i32);
        let with_leader = in_turn.clone().find(|&partition| partitions.has_leader(partition));
        with_leader.or_else(|| in_turn.clone().next())
    }

    fn class(&self) -> &'static str {
        Self::CLASS
    }
}
