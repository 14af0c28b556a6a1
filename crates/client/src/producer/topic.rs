//! A topic as the producer sees it: its partitions and the choice among them.

use std::sync::{Arc, atomic::AtomicU64};

use arc_swap::ArcSwap;
use curtail_proto::partitioner::{Sticky, partition_for_key};
use curtail_wire::Uuid;

use super::{partition::Partition, partitioner::TopicPartitions, routing::Routes};
use crate::{Error, ProducerConfig, Record, Result};

/// One topic. Immutable but for the choice: when partitions are added or the topic is made anew, it is replaced, and
/// the partitions that stay are shared with the former one.
pub(super) struct TopicState {
    pub(super) name: Arc<str>,
    pub(super) id: Uuid,
    pub(super) partitions: Box<[Arc<Partition>]>,
    pub(super) sticky: Sticky,
    pub(super) routes: ArcSwap<Routes>,
    /// What the best broker's records had to expect at the last choice, in nanoseconds.
    pub(super) best_ns: AtomicU64,
}

/// How a record came to its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The caller, the key or the application's partitioner said so: it is written there or nowhere.
    Fixed,
    /// The sticky partitioner did, and wants to know what was sent. Another partition is as good.
    Sticky,
}

impl TopicState {
    pub(super) fn new(
        name: Arc<str>,
        id: Uuid,
        partitions: Box<[Arc<Partition>]>,
        stickiness: usize,
        draw: u64,
    ) -> Self {
        let first = draw.checked_rem(partitions.len() as u64).unwrap_or(0) as u32;
        let stickiness = u32::try_from(stickiness).unwrap_or(u32::MAX);
        Self {
            name,
            id,
            partitions,
            sticky: Sticky::new(first, stickiness),
            routes: ArcSwap::default(),
            best_ns: AtomicU64::new(0),
        }
    }

    /// The record's partition.
    pub(super) fn pick(
        &self,
        record: &Record<'_>,
        config: &ProducerConfig,
    ) -> Result<(&Arc<Partition>, Choice)> {
        let count = self.partitions.len();
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
        let partition = usize::try_from(index).ok().and_then(|i| self.partitions.get(i));
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
