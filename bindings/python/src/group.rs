//! The identity of a group's member, as a tuple of Python.

use curtail::transaction::ConsumerGroupMetadata;

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
