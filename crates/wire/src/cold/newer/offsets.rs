//! Requests of OffsetCommit and OffsetFetch. From version 10 on they name topics by id (KIP-848).

use super::{Fields, read_indexes, write_indexes, write_list, write_nullable_list};
use crate::{DecodeError, Reader, Uuid, Writer};

/// First version of both requests that names topics by id.
const TOPIC_IDS: i16 = 10;

/// A request to commit offsets, versions 2 to 10. The retention time of versions 2 to 4 is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCommitRequest {
    /// Group id.
    pub group_id: String,
    /// Generation of the classic protocol or member epoch of the consumer protocol; -1 without a member.
    pub generation_id_or_member_epoch: i32,
    /// Member id; empty without a member.
    pub member_id: String,
    /// Id of a static member (version 7 and later).
    pub group_instance_id: Option<String>,
    /// Offsets by topic.
    pub topics: Vec<OffsetCommitTopic>,
}

/// The offsets of one topic in an [`OffsetCommitRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCommitTopic {
    /// Topic name; empty from version 10 on.
    pub name: String,
    /// Topic id; zero before version 10.
    pub topic_id: Uuid,
    /// Offsets by partition.
    pub partitions: Vec<OffsetCommitPartition>,
}

/// The offset of one partition in an [`OffsetCommitRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCommitPartition {
    /// Partition index.
    pub index: i32,
    /// Offset to commit.
    pub committed_offset: i64,
    /// Leader epoch of the last record read (version 6 and later), -1 if unknown.
    pub committed_leader_epoch: i32,
    /// The client's own text.
    pub committed_metadata: Option<String>,
}

/// A request for committed offsets, versions 1 to 10. Before version 8 it has exactly one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetFetchRequest {
    /// Groups in the order of the request.
    pub groups: Vec<OffsetFetchGroup>,
    /// Whether offsets with a pending replacement in an open transaction are refused (version 7 and later).
    pub require_stable: bool,
}

/// One group of an [`OffsetFetchRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetchGroup {
    /// Group id.
    pub group_id: String,
    /// Id of a member of the consumer protocol (version 9 and later).
    pub member_id: Option<String>,
    /// Epoch of that member (version 9 and later); -1 without one.
    pub member_epoch: i32,
    /// The requested topics; `None` for all (version 2 and later).
    pub topics: Option<Vec<OffsetFetchTopic>>,
}

/// One topic of an [`OffsetFetchRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetFetchTopic {
    /// Topic name; empty from version 10 on.
    pub name: String,
    /// Topic id; zero before version 10.
    pub topic_id: Uuid,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

impl Default for OffsetFetchGroup {
    fn default() -> Self {
        Self { group_id: String::new(), member_id: None, member_epoch: -1, topics: None }
    }
}

/// Reads a topic's name or its id.
fn read_topic(version: i16, r: &mut Reader<'_>) -> Result<(String, Uuid), DecodeError> {
    if version >= TOPIC_IDS {
        return Ok((String::new(), r.uuid("topic_id")?));
    }
    Ok((r.string("name")?.to_owned(), Uuid::ZERO))
}

fn write_topic(version: i16, name: &str, id: Uuid, w: &mut Writer) {
    if version >= TOPIC_IDS {
        w.uuid(id);
    } else {
        w.string(name);
    }
}

fn read_nullable(r: &mut Reader<'_>, what: &'static str) -> Result<Option<String>, DecodeError> {
    Ok(r.nullable_string(what)?.map(str::to_owned))
}

impl Fields for OffsetCommitRequest {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let group_id = r.string("group_id")?.to_owned();
        let generation_id_or_member_epoch = r.i32("generation_id_or_member_epoch")?;
        let member_id = r.string("member_id")?.to_owned();
        let group_instance_id =
            if version >= 7 { read_nullable(r, "group_instance_id")? } else { None };
        if version <= 4 {
            r.i64("retention_time_ms")?;
        }
        let topics = r.array_of(3, "topics", |r| OffsetCommitTopic::read(version, r))?;
        r.skip_tagged("OffsetCommit request")?;
        Ok(Self { group_id, generation_id_or_member_epoch, member_id, group_instance_id, topics })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.string(&self.group_id);
        w.i32(self.generation_id_or_member_epoch);
        w.string(&self.member_id);
        if version >= 7 {
            w.nullable_string(self.group_instance_id.as_deref());
        }
        if version <= 4 {
            w.i64(-1);
        }
        write_list(version, &self.topics, w);
        w.no_tags();
    }
}

impl Fields for OffsetCommitTopic {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, topic_id) = read_topic(version, r)?;
        let partitions =
            r.array_of(13, "partitions", |r| OffsetCommitPartition::read(version, r))?;
        r.skip_tagged("topics")?;
        Ok(Self { name, topic_id, partitions })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        write_topic(version, &self.name, self.topic_id, w);
        write_list(version, &self.partitions, w);
        w.no_tags();
    }
}

impl Fields for OffsetCommitPartition {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let index = r.i32("partition_index")?;
        let committed_offset = r.i64("committed_offset")?;
        let committed_leader_epoch =
            if version >= 6 { r.i32("committed_leader_epoch")? } else { -1 };
        let committed_metadata = read_nullable(r, "committed_metadata")?;
        r.skip_tagged("partitions")?;
        Ok(Self { index, committed_offset, committed_leader_epoch, committed_metadata })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.i32(self.index);
        w.i64(self.committed_offset);
        if version >= 6 {
            w.i32(self.committed_leader_epoch);
        }
        w.nullable_string(self.committed_metadata.as_deref());
        w.no_tags();
    }
}

/// First version of OffsetFetch with many groups.
const GROUPS: i16 = 8;

impl Fields for OffsetFetchRequest {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let groups = if version >= GROUPS {
            r.array_of(3, "groups", |r| OffsetFetchGroup::read(version, r))?
        } else {
            let group_id = r.string("group_id")?.to_owned();
            let topics = if version >= 2 {
                read_topics(version, r)?
            } else {
                Some(r.array_of(3, "topics", |r| OffsetFetchTopic::read(version, r))?)
            };
            vec![OffsetFetchGroup { group_id, topics, ..Default::default() }]
        };
        let require_stable = version >= 7 && r.bool("require_stable")?;
        r.skip_tagged("OffsetFetch request")?;
        Ok(Self { groups, require_stable })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        if version >= GROUPS {
            write_list(version, &self.groups, w);
        } else if let [group] = &self.groups[..] {
            w.string(&group.group_id);
            write_nullable_list(version, group.topics.as_deref(), w);
        }
        if version >= 7 {
            w.bool(self.require_stable);
        }
        w.no_tags();
    }

    fn fits(&self, version: i16) -> bool {
        version >= GROUPS
            || matches!(&self.groups[..], [group] if version >= 2 || group.topics.is_some())
    }
}

impl Fields for OffsetFetchGroup {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let group_id = r.string("group_id")?.to_owned();
        let (mut member_id, mut member_epoch) = (None, -1);
        if version >= 9 {
            member_id = read_nullable(r, "member_id")?;
            member_epoch = r.i32("member_epoch")?;
        }
        let topics = read_topics(version, r)?;
        r.skip_tagged("groups")?;
        Ok(Self { group_id, member_id, member_epoch, topics })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.string(&self.group_id);
        if version >= 9 {
            w.nullable_string(self.member_id.as_deref());
            w.i32(self.member_epoch);
        }
        write_nullable_list(version, self.topics.as_deref(), w);
        w.no_tags();
    }
}

fn read_topics(
    version: i16,
    r: &mut Reader<'_>,
) -> Result<Option<Vec<OffsetFetchTopic>>, DecodeError> {
    r.nullable_array_of(3, "topics", |r| OffsetFetchTopic::read(version, r))
}

impl Fields for OffsetFetchTopic {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, topic_id) = read_topic(version, r)?;
        let partitions = read_indexes("partition_indexes", r)?;
        r.skip_tagged("topics")?;
        Ok(Self { name, topic_id, partitions })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        write_topic(version, &self.name, self.topic_id, w);
        write_indexes(&self.partitions, w);
        w.no_tags();
    }
}
