//! The identity of a group's member and the offsets of a group, as tuples of Python.

use curtail::{
    TopicPartition,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};

/// Partition, offset, leader epoch and metadata.
pub(crate) type Offset = ((String, i32), i64, Option<i32>, String);

/// `group_id`, `generation_id`, `member_id` and `group_instance_id`.
pub(crate) type Fields = (String, i32, String, Option<String>);

pub(crate) fn fields(group: ConsumerGroupMetadata) -> Fields {
    let ConsumerGroupMetadata { group_id, generation_id, member_id, group_instance_id } = group;
    (group_id, generation_id, member_id, group_instance_id)
}

pub(crate) fn metadata(fields: Fields) -> ConsumerGroupMetadata {
    let (group_id, generation_id, member_id, group_instance_id) = fields;
    ConsumerGroupMetadata { group_id, generation_id, member_id, group_instance_id }
}

pub(crate) fn offset(
    ((topic, index), offset, leader_epoch, metadata): Offset,
) -> (TopicPartition, OffsetAndMetadata) {
    (TopicPartition::new(topic, index), OffsetAndMetadata { offset, leader_epoch, metadata })
}
