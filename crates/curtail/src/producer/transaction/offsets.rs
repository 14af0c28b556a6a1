//! Offsets of a consumer group in a transaction.

use std::{collections::BTreeMap, sync::Arc};

use curtail_proto::{
    position::Spot,
    transaction::{CommittedOffset, GroupOffsets},
};

use crate::{Error, Result, TopicPartition};

/// An offset to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch of the record before it, if known.
    pub leader_epoch: Option<i32>,
    /// The application's text, kept with the offset.
    pub metadata: String,
}

impl OffsetAndMetadata {
    /// An offset without metadata.
    #[must_use]
    pub fn new(offset: i64) -> Self {
        Self { offset, leader_epoch: None, metadata: String::new() }
    }

    /// A position to commit.
    pub(crate) fn at(spot: Spot) -> Self {
        let leader_epoch = (spot.epoch >= 0).then_some(spot.epoch);
        Self { leader_epoch, ..Self::new(spot.offset) }
    }

    /// The position of the offset.
    pub(crate) fn spot(&self) -> Spot {
        Spot { offset: self.offset, epoch: self.leader_epoch.unwrap_or(-1) }
    }
}

/// The group of the committed offsets, and the member that commits (KIP-447).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupMetadata {
    /// `group.id`.
    pub group_id: String,
    /// Generation of the group, or epoch of the member; -1 for partitions assigned by the application.
    pub generation_id: i32,
    /// Id of the member; empty for partitions assigned by the application.
    pub member_id: String,
    /// `group.instance.id`.
    pub group_instance_id: Option<String>,
}

impl ConsumerGroupMetadata {
    /// A group without members: for offsets of partitions assigned by the application.
    #[must_use]
    pub fn new(group_id: impl Into<String>) -> Self {
        Self {
            group_id: group_id.into(),
            generation_id: -1,
            member_id: String::new(),
            group_instance_id: None,
        }
    }
}

/// Returns the offsets of a group, sorted by partition; the last one given for a partition counts.
pub(super) fn of_group(
    offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    group: &ConsumerGroupMetadata,
) -> Result<GroupOffsets> {
    if group.group_id.is_empty() {
        return Err(Error::IllegalState("offsets of a transaction need a group.id"));
    }
    if group.generation_id > 0 && group.member_id.is_empty() {
        return Err(Error::IllegalState("a group generation needs a member id"));
    }
    let offsets: BTreeMap<TopicPartition, OffsetAndMetadata> = offsets.into_iter().collect();
    if offsets.values().any(|offset| offset.offset < 0) {
        return Err(Error::IllegalState("the offset is negative"));
    }
    let committed = |(at, offset): (TopicPartition, OffsetAndMetadata)| {
        let committed = CommittedOffset {
            offset: offset.offset,
            leader_epoch: offset.leader_epoch.unwrap_or(-1),
            metadata: offset.metadata.into(),
        };
        ((at.topic, at.partition), committed)
    };
    Ok(GroupOffsets {
        group: group.group_id.as_str().into(),
        generation: group.generation_id,
        member: group.member_id.as_str().into(),
        instance: group.group_instance_id.as_deref().map(Arc::from),
        offsets: offsets.into_iter().map(committed).collect(),
    })
}
