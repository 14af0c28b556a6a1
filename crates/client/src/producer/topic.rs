//! A topic as the producer sees it: its partitions and the sticky choice among them.

use std::sync::Arc;

use curtail_proto::partitioner::{Sticky, partition_for_key};
use curtail_wire::Uuid;

use super::partition::Partition;
use crate::{Error, Record, Result};

/// One topic. Immutable: when partitions are added or the topic is made anew, it is replaced, and the partitions
/// that stay are shared with the former one.
pub(super) struct TopicState {
    pub(super) name: Arc<str>,
    pub(super) id: Uuid,
    pub(super) partitions: Box<[Arc<Partition>]>,
    pub(super) sticky: Sticky,
}

/// How a record came to its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The caller or the key said so.
    Fixed,
    /// The sticky partitioner did, and wants to know what was sent.
    Sticky,
}

impl TopicState {
    /// The record's partition.
    pub(super) fn pick(
        &self,
        record: &Record<'_>,
        ignore_keys: bool,
    ) -> Result<(&Arc<Partition>, Choice)> {
        let count = self.partitions.len();
        let (index, choice) = match (record.partition, record.key) {
            (Some(index), _) => (index, Choice::Fixed),
            (None, Some(key)) if !ignore_keys => {
                (partition_for_key(key, count as u32), Choice::Fixed)
            }
            _ => (self.sticky.current(), Choice::Sticky),
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
