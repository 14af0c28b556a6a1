//! StreamsGroupDescribe.

use super::{
    Endpoint, Fields, KeyValue, TaskIds, TaskOffset, TopicInfo, read_list, read_names,
    read_nullable, read_nullable_list, read_nullable_text, read_text, write_list, write_names,
    write_nullable, write_nullable_list,
};
use crate::{DecodeError, ErrorCode, Reader, Writer};

/// A request to describe streams groups, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamsGroupDescribeRequest {
    /// Group ids.
    pub group_ids: Vec<String>,
    /// Whether the response names the operations that the client may perform.
    pub include_authorized_operations: bool,
}

/// The described groups, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamsGroupDescribeResponse {
    /// Quota throttle, in milliseconds.
    pub throttle_time_ms: i32,
    /// The groups.
    pub groups: Vec<DescribedStreamsGroup>,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedStreamsGroup {
    /// Why the group is not described.
    pub error: ErrorCode,
    /// The same in words.
    pub error_message: Option<String>,
    /// Group id.
    pub group_id: String,
    /// Name of the group's state.
    pub group_state: String,
    /// The group's epoch.
    pub group_epoch: i32,
    /// Epoch of the target assignment.
    pub assignment_epoch: i32,
    /// The topology; `None` in an error.
    pub topology: Option<DescribedTopology>,
    /// The members.
    pub members: Vec<DescribedStreamsMember>,
    /// Bits of the operations; `i32::MIN` if they were not requested.
    pub authorized_operations: i32,
}

/// The topology of a [`DescribedStreamsGroup`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedTopology {
    /// Epoch of the topology.
    pub epoch: i32,
    /// The parts of the topology.
    pub subtopologies: Option<Vec<DescribedSubtopology>>,
}

/// A part of a [`DescribedTopology`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedSubtopology {
    /// Id within the topology.
    pub subtopology_id: String,
    /// Source topics of the application.
    pub source_topics: Vec<String>,
    /// Repartition topics that it writes to.
    pub repartition_sink_topics: Vec<String>,
    /// Changelog topics of the state stores.
    pub state_changelog_topics: Vec<TopicInfo>,
    /// Repartition topics that it reads from.
    pub repartition_source_topics: Vec<TopicInfo>,
}

/// A member of a [`DescribedStreamsGroup`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedStreamsMember {
    /// Member id.
    pub member_id: String,
    /// The member's epoch.
    pub member_epoch: i32,
    /// Instance id of a static member.
    pub instance_id: Option<String>,
    /// The member's rack.
    pub rack_id: Option<String>,
    /// Client id.
    pub client_id: String,
    /// The client's address.
    pub client_host: String,
    /// Epoch of the member's topology.
    pub topology_epoch: i32,
    /// Id of the process.
    pub process_id: String,
    /// The member's address for interactive queries.
    pub user_endpoint: Option<Endpoint>,
    /// Tags of the client.
    pub client_tags: Vec<KeyValue>,
    /// Offsets of the tasks' changelogs.
    pub task_offsets: Vec<TaskOffset>,
    /// End offsets of the tasks' changelogs.
    pub task_end_offsets: Vec<TaskOffset>,
    /// The member's tasks.
    pub assignment: TasksByRole,
    /// The member's tasks in the target assignment.
    pub target_assignment: TasksByRole,
    /// Whether the member uses the classic protocol.
    pub is_classic: bool,
}

/// Tasks of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TasksByRole {
    /// Active tasks.
    pub active_tasks: Vec<TaskIds>,
    /// Standby tasks.
    pub standby_tasks: Vec<TaskIds>,
    /// Warmup tasks.
    pub warmup_tasks: Vec<TaskIds>,
}

impl Default for DescribedStreamsGroup {
    fn default() -> Self {
        Self {
            error: ErrorCode::NONE,
            error_message: None,
            group_id: String::new(),
            group_state: String::new(),
            group_epoch: 0,
            assignment_epoch: 0,
            topology: None,
            members: Vec::new(),
            authorized_operations: i32::MIN,
        }
    }
}

impl Fields for StreamsGroupDescribeRequest {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let group_ids = read_names("group_ids", r)?;
        let include_authorized_operations = r.bool("include_authorized_operations")?;
        r.skip_tagged("StreamsGroupDescribe request")?;
        Ok(Self { group_ids, include_authorized_operations })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        write_names(&self.group_ids, w);
        w.bool(self.include_authorized_operations);
        w.no_tags();
    }
}

impl Fields for StreamsGroupDescribeResponse {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let throttle_time_ms = r.i32("throttle_time_ms")?;
        let groups = read_list(version, "groups", r)?;
        r.skip_tagged("StreamsGroupDescribe response")?;
        Ok(Self { throttle_time_ms, groups })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.i32(self.throttle_time_ms);
        write_list(version, &self.groups, w);
        w.no_tags();
    }
}

impl Fields for DescribedStreamsGroup {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let group = Self {
            error: ErrorCode(r.i16("error_code")?),
            error_message: read_nullable_text("error_message", r)?,
            group_id: read_text("group_id", r)?,
            group_state: read_text("group_state", r)?,
            group_epoch: r.i32("group_epoch")?,
            assignment_epoch: r.i32("assignment_epoch")?,
            topology: read_nullable(version, "topology", r)?,
            members: read_list(version, "members", r)?,
            authorized_operations: r.i32("authorized_operations")?,
        };
        r.skip_tagged("groups")?;
        Ok(group)
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.i16(self.error.0);
        w.nullable_string(self.error_message.as_deref());
        w.string(&self.group_id);
        w.string(&self.group_state);
        w.i32(self.group_epoch);
        w.i32(self.assignment_epoch);
        write_nullable(version, self.topology.as_ref(), w);
        write_list(version, &self.members, w);
        w.i32(self.authorized_operations);
        w.no_tags();
    }
}

impl Fields for DescribedTopology {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let epoch = r.i32("epoch")?;
        let subtopologies = read_nullable_list(version, "subtopologies", r)?;
        r.skip_tagged("topology")?;
        Ok(Self { epoch, subtopologies })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.i32(self.epoch);
        write_nullable_list(version, self.subtopologies.as_deref(), w);
        w.no_tags();
    }
}

impl Fields for DescribedSubtopology {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let subtopology = Self {
            subtopology_id: read_text("subtopology_id", r)?,
            source_topics: read_names("source_topics", r)?,
            repartition_sink_topics: read_names("repartition_sink_topics", r)?,
            state_changelog_topics: read_list(version, "state_changelog_topics", r)?,
            repartition_source_topics: read_list(version, "repartition_source_topics", r)?,
        };
        r.skip_tagged("subtopologies")?;
        Ok(subtopology)
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.string(&self.subtopology_id);
        write_names(&self.source_topics, w);
        write_names(&self.repartition_sink_topics, w);
        write_list(version, &self.state_changelog_topics, w);
        write_list(version, &self.repartition_source_topics, w);
        w.no_tags();
    }
}

impl Fields for DescribedStreamsMember {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let member = Self {
            member_id: read_text("member_id", r)?,
            member_epoch: r.i32("member_epoch")?,
            instance_id: read_nullable_text("instance_id", r)?,
            rack_id: read_nullable_text("rack_id", r)?,
            client_id: read_text("client_id", r)?,
            client_host: read_text("client_host", r)?,
            topology_epoch: r.i32("topology_epoch")?,
            process_id: read_text("process_id", r)?,
            user_endpoint: read_nullable(version, "user_endpoint", r)?,
            client_tags: read_list(version, "client_tags", r)?,
            task_offsets: read_list(version, "task_offsets", r)?,
            task_end_offsets: read_list(version, "task_end_offsets", r)?,
            assignment: TasksByRole::read(version, r)?,
            target_assignment: TasksByRole::read(version, r)?,
            is_classic: r.bool("is_classic")?,
        };
        r.skip_tagged("members")?;
        Ok(member)
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.string(&self.member_id);
        w.i32(self.member_epoch);
        w.nullable_string(self.instance_id.as_deref());
        w.nullable_string(self.rack_id.as_deref());
        w.string(&self.client_id);
        w.string(&self.client_host);
        w.i32(self.topology_epoch);
        w.string(&self.process_id);
        write_nullable(version, self.user_endpoint.as_ref(), w);
        write_list(version, &self.client_tags, w);
        write_list(version, &self.task_offsets, w);
        write_list(version, &self.task_end_offsets, w);
        self.assignment.write(version, w);
        self.target_assignment.write(version, w);
        w.bool(self.is_classic);
        w.no_tags();
    }
}

impl Fields for TasksByRole {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let active_tasks = read_list(version, "active_tasks", r)?;
        let standby_tasks = read_list(version, "standby_tasks", r)?;
        let warmup_tasks = read_list(version, "warmup_tasks", r)?;
        r.skip_tagged("assignment")?;
        Ok(Self { active_tasks, standby_tasks, warmup_tasks })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        write_list(version, &self.active_tasks, w);
        write_list(version, &self.standby_tasks, w);
        write_list(version, &self.warmup_tasks, w);
        w.no_tags();
    }
}
