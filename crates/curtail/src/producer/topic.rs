//! The producer's view of a topic: its partitions and the choice among them.

#[cfg(test)]
mod tests;

use std::sync::{Arc, atomic::AtomicU64};

use arc_swap::ArcSwap;
use curtail_proto::{
    accumulator::{CompressionRatio, Incarnation},
    metadata::Topic,
    partitioner::{Sticky, partition_for_key},
};
use curtail_wire::Uuid;

use super::{
    door::{Door, Kept},
    partition::Partition,
    partitioner::TopicPartitions,
    routing::Routes,
};
use crate::{Error, ProducerConfig, Record, Result};

/// The topic that currently has a name, and its number of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Zero if the brokers keep no ids.
    pub(super) id: Uuid,
    /// Changes when the topic is deleted and recreated.
    pub(super) incarnation: Incarnation,
    /// Number of partitions.
    pub(super) count: usize,
}

impl Form {
    /// Returns the form of `topic`, given its previous form `known`.
    ///
    /// The partitions of one topic id never decrease. Without ids, a smaller topic is a different one with the same
    /// name.
    pub(super) fn of(topic: &Topic, known: Option<Self>) -> Self {
        let (id, count) = (topic.id, topic.leaders.len());
        let Some(known) = known else { return Self { id, incarnation: Incarnation::FIRST, count } };
        let is_smaller = id == Uuid::ZERO && count < known.count;
        if known.id != id || is_smaller {
            return Self { id, incarnation: known.incarnation.next(), count };
        }
        Self { count: count.max(known.count), ..known }
    }
}

/// A topic. Immutable except for the choice: when partitions are added or the topic is recreated, a new state
/// replaces it and shares its partitions.
pub(super) struct TopicState {
    pub(super) name: Arc<str>,
    pub(super) form: Form,
    /// Every partition that a topic of this name has had during the producer's life, because they hold records and
    /// sequence numbers. Those beyond the count have no leader.
    pub(super) partitions: Box<[Arc<Partition>]>,
    pub(super) sticky: Sticky,
    pub(super) routes: ArcSwap<Routes>,
    /// Expected compression of the next batch; `None` without compression.
    pub(super) ratio: Option<Arc<CompressionRatio>>,
    /// Expected delay at the best broker at the last choice, in nanoseconds.
    pub(super) best_ns: AtomicU64,
    pub(super) door: Door,
    pub(super) kept: Kept,
}

/// The origin of a record's partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The caller, the key or a custom partitioner: the record is never written elsewhere.
    Fixed,
    /// The sticky partitioner, which must learn what was sent. Another partition is as good.
    Sticky,
}

impl TopicState {
    /// Whether the partition's leader has acknowledged a batch.
    pub(super) fn is_proven(&self, partition: u32) -> bool {
        let partition = self.partitions.get(partition as usize);
        partition.is_some_and(|partition| partition.standing.is_proven())
    }

    pub(super) fn new(
        name: Arc<str>,
        form: Form,
        partitions: Box<[Arc<Partition>]>,
        stickiness: usize,
        ratio: Option<Arc<CompressionRatio>>,
        draw: u64,
    ) -> Self {
        let first = draw.checked_rem(form.count as u64).unwrap_or(0) as u32;
        let stickiness = u32::try_from(stickiness).unwrap_or(u32::MAX);
        Self {
            name,
            form,
            partitions,
            sticky: Sticky::new(first, stickiness),
            routes: ArcSwap::default(),
            ratio,
            best_ns: AtomicU64::new(0),
            door: Door::new(),
            kept: Kept::new(),
        }
    }

    /// The expected size of `bytes` after compression.
    pub(super) fn compressed(&self, bytes: u32) -> u32 {
        self.ratio.as_ref().map_or(bytes, |ratio| ratio.compressed(bytes))
    }

    /// The partitions that the topic has now.
    pub(super) fn current(&self) -> &[Arc<Partition>] {
        self.partitions.get(..self.form.count).unwrap_or(&self.partitions)
    }

    /// Partitions of a previous topic with this name.
    pub(super) fn vanished(&self) -> &[Arc<Partition>] {
        self.partitions.get(self.form.count..).unwrap_or_default()
    }

    /// Returns the record's partition.
    pub(super) fn pick(
        &self,
        record: &Record<'_>,
        config: &ProducerConfig,
    ) -> Result<(&Arc<Partition>, Choice)> {
        let count = self.form.count;
        let (index, choice) = match (record.partition, &config.partitioner, record.key) {
            (Some(index), ..) => (index, Choice::Fixed),
            (None, Some(custom), _) => match custom.partition(record, &TopicPartitions::of(self)) {
                Some(index) => (index, Choice::Fixed),
                None => (self.sticky.current() as i32, Choice::Sticky),
            },
            (None, None, Some(key)) if !config.partitioner_ignore_keys => {
                (partition_for_key(key, count as u32), Choice::Fixed)
            }
            _ => (self.sticky.current() as i32, Choice::Sticky),
        };
        let partition = usize::try_from(index).ok().and_then(|i| self.current().get(i));
        match partition {
            Some(partition) => Ok((partition, choice)),
            None => Err(Error::UnknownPartition {
                topic: self.name.clone(),
                partition: index,
                partitions: count,
            }),
        }
    }
}
