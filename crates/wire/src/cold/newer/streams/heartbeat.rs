//! StreamsGroupHeartbeat.

use super::{
    Endpoint, Fields, KeyValue, TaskIds, TaskOffset, TopicInfo, read_list, read_names,
    read_nullable, read_nullable_list, read_nullable_text, read_text, write_list, write_names,
    write_nullable, write_nullable_list,
};
use crate::cold::newer::{read_indexes, write_indexes};
use crate::{DecodeError, ErrorCode, Reader, Writer};

/// A heartbeat of a member of a streams group, version 0. A field that is `None` has not changed since the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsGroupHeartbeatRequest {
    /// Group id.
    pub group_id: String,
    /// Member id, chosen by the member.
    pub member_id: String,
    /// The member's epoch; 0 joins, -1 leaves, -2 leaves temporarily.
    pub member_epoch: i32,
    /// The epoch of the endpoints that the member knows.
    pub endpoint_information_epoch: i32,
    /// Instance id of a static member.
    pub instance_id: Option<String>,
    /// The member's rack.
    pub rack_id: Option<String>,
    /// Time that the member has to revoke tasks, in milliseconds; -1 if it has not changed.
    pub rebalance_timeout_ms: i32,
    /// The topology of the application, in a request that joins.
    pub topology: Option<Topology>,
    /// Active tasks that the member owns.
    pub active_tasks: Option<Vec<TaskIds>>,
    /// Standby tasks that the member owns.
    pub standby_tasks: Option<Vec<TaskIds>>,
    /// Warmup tasks that the member owns.
    pub warmup_tasks: Option<Vec<TaskIds>>,
    /// Id of the process, which may have many members.
    pub process_id: Option<String>,
    /// The member's address for interactive queries.
    pub user_endpoint: Option<Endpoint>,
    /// Tags for the placement of standby tasks.
    pub client_tags: Option<Vec<KeyValue>>,
    /// Offsets of the tasks' changelogs.
    pub task_offsets: Option<Vec<TaskOffset>>,
    /// End offsets of the tasks' changelogs.
    pub task_end_offsets: Option<Vec<TaskOffset>>,
    /// Whether all members must shut down.
    pub shutdown_application: bool,
}

impl Default for StreamsGroupHeartbeatRequest {
    fn default() -> Self {
        Self {
            group_id: String::new(),
            member_id: String::new(),
            member_epoch: 0,
            endpoint_information_epoch: 0,
            instance_id: None,
            rack_id: None,
            rebalance_timeout_ms: -1,
            topology: None,
            active_tasks: None,
            standby_tasks: None,
            warmup_tasks: None,
            process_id: None,
            user_endpoint: None,
            client_tags: None,
            task_offsets: None,
            task_end_offsets: None,
            shutdown_application: false,
        }
    }
}

/// The topology of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Epoch of the topology.
    pub epoch: i32,
    /// Independent parts of the topology.
    pub subtopologies: Vec<Subtopology>,
}

impl Topology {
    /// Reads a topology in the flexible encoding. The records of streams groups have it in the same layout.
    ///
    /// # Errors
    /// The bytes are not a topology.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::read(0, r)
    }

    /// Writes the topology in the flexible encoding.
    pub fn encode(&self, w: &mut Writer) {
        self.write(0, w);
    }
}

/// A part of a [`Topology`]; it has a task for each partition of its source topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subtopology {
    /// Id within the topology.
    pub subtopology_id: String,
    /// Source topics of the application.
    pub source_topics: Vec<String>,
    /// Regular expressions for source topics.
    pub source_topic_regex: Vec<String>,
    /// Changelog topics of the state stores.
    pub state_changelog_topics: Vec<TopicInfo>,
    /// Repartition topics that it writes to.
    pub repartition_sink_topics: Vec<String>,
    /// Repartition topics that it reads from.
    pub repartition_source_topics: Vec<TopicInfo>,
    /// Source topics that must have the same number of partitions.
    pub copartition_groups: Vec<CopartitionGroup>,
}

/// Source topics with the same number of partitions, as indexes into the lists of a [`Subtopology`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopartitionGroup {
    /// Indexes of source topics.
    pub source_topics: Vec<i16>,
    /// Indexes of regular expressions.
    pub source_topic_regex: Vec<i16>,
    /// Indexes of repartition source topics.
    pub repartition_source_topics: Vec<i16>,
}

/// The response to a heartbeat, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamsGroupHeartbeatResponse {
    /// Quota throttle, in milliseconds.
    pub throttle_time_ms: i32,
    /// Why the heartbeat was refused.
    pub error: ErrorCode,
    /// The same in words.
    pub error_message: Option<String>,
    /// Member id.
    pub member_id: String,
    /// The member's epoch.
    pub member_epoch: i32,
    /// Interval until the next heartbeat, in milliseconds.
    pub heartbeat_interval_ms: i32,
    /// Largest lag of a warmup task that has caught up.
    pub acceptable_recovery_lag: i32,
    /// Interval between reports of the tasks' offsets, in milliseconds.
    pub task_offset_interval_ms: i32,
    /// Conditions that keep the group from its work; `None` in refusals.
    pub status: Option<Vec<GroupStatus>>,
    /// The member's active tasks; `None` if they have not changed.
    pub active_tasks: Option<Vec<TaskIds>>,
    /// The member's standby tasks; `None` if they have not changed.
    pub standby_tasks: Option<Vec<TaskIds>>,
    /// The member's warmup tasks; `None` if they have not changed.
    pub warmup_tasks: Option<Vec<TaskIds>>,
    /// Epoch of the endpoints.
    pub endpoint_information_epoch: i32,
    /// Partitions behind the members' endpoints; `None` if they have not changed.
    pub partitions_by_user_endpoint: Option<Vec<EndpointPartitions>>,
}

/// A condition of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// Code of the condition.
    pub code: i8,
    /// The same in words.
    pub detail: String,
}

/// Partitions behind a member's endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointPartitions {
    /// The endpoint.
    pub user_endpoint: Endpoint,
    /// Partitions of its active tasks.
    pub active_partitions: Vec<SourcePartitions>,
    /// Partitions of its standby tasks.
    pub standby_partitions: Vec<SourcePartitions>,
}

/// Partitions of a source topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePartitions {
    /// Topic name.
    pub topic: String,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

impl Fields for StreamsGroupHeartbeatRequest {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let request = Self {
            group_id: read_text("group_id", r)?,
            member_id: read_text("member_id", r)?,
            member_epoch: r.i32("member_epoch")?,
            endpoint_information_epoch: r.i32("endpoint_information_epoch")?,
            instance_id: read_nullable_text("instance_id", r)?,
            rack_id: read_nullable_text("rack_id", r)?,
            rebalance_timeout_ms: r.i32("rebalance_timeout_ms")?,
            topology: read_nullable(version, "topology", r)?,
            active_tasks: read_nullable_list(version, "active_tasks", r)?,
            standby_tasks: read_nullable_list(version, "standby_tasks", r)?,
            warmup_tasks: read_nullable_list(version, "warmup_tasks", r)?,
            process_id: read_nullable_text("process_id", r)?,
            user_endpoint: read_nullable(version, "user_endpoint", r)?,
            client_tags: read_nullable_list(version, "client_tags", r)?,
            task_offsets: read_nullable_list(version, "task_offsets", r)?,
            task_end_offsets: read_nullable_list(version, "task_end_offsets", r)?,
            shutdown_application: r.bool("shutdown_application")?,
        };
        r.skip_tagged("StreamsGroupHeartbeat request")?;
        Ok(request)
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.string(&self.group_id);
        w.string(&self.member_id);
        w.i32(self.member_epoch);
        w.i32(self.endpoint_information_epoch);
        w.nullable_string(self.instance_id.as_deref());
        w.nullable_string(self.rack_id.as_deref());
        w.i32(self.rebalance_timeout_ms);
        write_nullable(version, self.topology.as_ref(), w);
        write_nullable_list(version, self.active_tasks.as_deref(), w);
        write_nullable_list(version, self.standby_tasks.as_deref(), w);
        write_nullable_list(version, self.warmup_tasks.as_deref(), w);
        w.nullable_string(self.process_id.as_deref());
        write_nullable(version, self.user_endpoint.as_ref(), w);
        write_nullable_list(version, self.client_tags.as_deref(), w);
        write_nullable_list(version, self.task_offsets.as_deref(), w);
        write_nullable_list(version, self.task_end_offsets.as_deref(), w);
        w.bool(self.shutdown_application);
        w.no_tags();
    }
}

impl Fields for Topology {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let epoch = r.i32("epoch")?;
        let subtopologies = read_list(version, "subtopologies", r)?;
        r.skip_tagged("topology")?;
        Ok(Self { epoch, subtopologies })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.i32(self.epoch);
        write_list(version, &self.subtopologies, w);
        w.no_tags();
    }
}

impl Fields for Subtopology {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let subtopology = Self {
            subtopology_id: read_text("subtopology_id", r)?,
            source_topics: read_names("source_topics", r)?,
            source_topic_regex: read_names("source_topic_regex", r)?,
            state_changelog_topics: read_list(version, "state_changelog_topics", r)?,
            repartition_sink_topics: read_names("repartition_sink_topics", r)?,
            repartition_source_topics: read_list(version, "repartition_source_topics", r)?,
            copartition_groups: read_list(version, "copartition_groups", r)?,
        };
        r.skip_tagged("subtopology")?;
        Ok(subtopology)
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.string(&self.subtopology_id);
        write_names(&self.source_topics, w);
        write_names(&self.source_topic_regex, w);
        write_list(version, &self.state_changelog_topics, w);
        write_names(&self.repartition_sink_topics, w);
        write_list(version, &self.repartition_source_topics, w);
        write_list(version, &self.copartition_groups, w);
        w.no_tags();
    }
}

impl Fields for CopartitionGroup {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut indexes = |what| r.array_of(2, what, |r| r.i16(what));
        let source_topics = indexes("source_topics")?;
        let source_topic_regex = indexes("source_topic_regex")?;
        let repartition_source_topics = indexes("repartition_source_topics")?;
        r.skip_tagged("copartition group")?;
        Ok(Self { source_topics, source_topic_regex, repartition_source_topics })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        for indexes in
            [&self.source_topics, &self.source_topic_regex, &self.repartition_source_topics]
        {
            w.array(indexes.len());
            indexes.iter().for_each(|index| w.i16(*index));
        }
        w.no_tags();
    }
}

impl Fields for StreamsGroupHeartbeatResponse {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let response = Self {
            throttle_time_ms: r.i32("throttle_time_ms")?,
            error: ErrorCode(r.i16("error_code")?),
            error_message: read_nullable_text("error_message", r)?,
            member_id: read_text("member_id", r)?,
            member_epoch: r.i32("member_epoch")?,
            heartbeat_interval_ms: r.i32("heartbeat_interval_ms")?,
            acceptable_recovery_lag: r.i32("acceptable_recovery_lag")?,
            task_offset_interval_ms: r.i32("task_offset_interval_ms")?,
            status: read_nullable_list(version, "status", r)?,
            active_tasks: read_nullable_list(version, "active_tasks", r)?,
            standby_tasks: read_nullable_list(version, "standby_tasks", r)?,
            warmup_tasks: read_nullable_list(version, "warmup_tasks", r)?,
            endpoint_information_epoch: r.i32("endpoint_information_epoch")?,
            partitions_by_user_endpoint: read_nullable_list(
                version,
                "partitions_by_user_endpoint",
                r,
            )?,
        };
        r.skip_tagged("StreamsGroupHeartbeat response")?;
        Ok(response)
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.i32(self.throttle_time_ms);
        w.i16(self.error.0);
        w.nullable_string(self.error_message.as_deref());
        w.string(&self.member_id);
        w.i32(self.member_epoch);
        w.i32(self.heartbeat_interval_ms);
        w.i32(self.acceptable_recovery_lag);
        w.i32(self.task_offset_interval_ms);
        write_nullable_list(version, self.status.as_deref(), w);
        write_nullable_list(version, self.active_tasks.as_deref(), w);
        write_nullable_list(version, self.standby_tasks.as_deref(), w);
        write_nullable_list(version, self.warmup_tasks.as_deref(), w);
        w.i32(self.endpoint_information_epoch);
        write_nullable_list(version, self.partitions_by_user_endpoint.as_deref(), w);
        w.no_tags();
    }
}

impl Fields for GroupStatus {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (code, detail) = (r.i8("status_code")?, read_text("status_detail", r)?);
        r.skip_tagged("status")?;
        Ok(Self { code, detail })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.i8(self.code);
        w.string(&self.detail);
        w.no_tags();
    }
}

impl Fields for EndpointPartitions {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let user_endpoint = Endpoint::read(version, r)?;
        let active_partitions = read_list(version, "active_partitions", r)?;
        let standby_partitions = read_list(version, "standby_partitions", r)?;
        r.skip_tagged("partitions_by_user_endpoint")?;
        Ok(Self { user_endpoint, active_partitions, standby_partitions })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        self.user_endpoint.write(version, w);
        write_list(version, &self.active_partitions, w);
        write_list(version, &self.standby_partitions, w);
        w.no_tags();
    }
}

impl Fields for SourcePartitions {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let topic = read_text("topic", r)?;
        let partitions = read_indexes("partitions", r)?;
        r.skip_tagged("partitions of a topic")?;
        Ok(Self { topic, partitions })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.string(&self.topic);
        write_indexes(&self.partitions, w);
        w.no_tags();
    }
}
