//! Partitioners of the application's own.

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

/// Chooses partitions in the application's own way ([`crate::ProducerConfig::partitioner`]).
///
/// It is asked once for every record that names no partition itself, on the task that sends it: it must not block.
///
/// ```
/// use curtail::{Partitioner, ProducerConfig, Record, TopicPartitions};
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
    /// The record's partition: the record is written there or nowhere. `None` leaves it to the producer, which then
    /// treats the record as one without a key. A partition that the topic does not have fails the send with
    /// [`crate::Error::UnknownPartition`].
    fn partition(&self, record: &Record<'_>, partitions: &TopicPartitions<'_>) -> Option<i32>;

    /// What [`crate::ProducerConfig::properties`] shows as `partitioner.class`: the type's name.
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

    /// How many there are; they are numbered from 0.
    pub fn count(&self) -> usize {
        self.topic.current().len()
    }

    /// Whether a partition exists and has a leader. Takes that partition's lock for a moment.
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

/// One partition after the other, keys or not, as Java's class of this name
/// (`partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner`): partitions without a leader are
/// left out unless none has one.
#[derive(Debug, Default)]
pub struct RoundRobinPartitioner {
    turns: RwLock<BTreeMap<Arc<str>, AtomicU32>>,
}

/// What `partitioner.class` may name.
pub(crate) const CLASSES: &str = "nothing, for the built-in partitioner, which replaces the DefaultPartitioner and, with \
    partitioner.ignore.keys=true, the UniformStickyPartitioner of older versions; or \
    org.apache.kafka.clients.producer.RoundRobinPartitioner; for one of your own, implement curtail::Partitioner";

/// The partitioner that a class name of Java's stands for: `Some(None)` for the built-in one, `None` for an unknown name.
pub(crate) fn of_class(class: &str) -> Option<Option<Arc<dyn Partitioner>>> {
    match class {
        "" => Some(None),
        RoundRobinPartitioner::CLASS => Some(Some(Arc::new(RoundRobinPartitioner::default()))),
        _ => None,
    }
}

impl RoundRobinPartitioner {
    /// Java's name of it.
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
