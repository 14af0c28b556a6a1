//! Messages of streams groups (KIP-1071): StreamsGroupHeartbeat and StreamsGroupDescribe, version 0.

mod describe;
mod heartbeat;
#[cfg(test)]
mod tests;

use super::{Fields, read_indexes, write_indexes, write_list, write_nullable_list};
use crate::{DecodeError, Reader, Writer};

pub use describe::{
    DescribedStreamsGroup, DescribedStreamsMember, DescribedSubtopology, DescribedTopology,
    StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, TasksByRole,
};
pub use heartbeat::{
    CopartitionGroup, EndpointPartitions, GroupStatus, SourcePartitions,
    StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse, Subtopology, Topology,
};

/// Tasks of one subtopology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskIds {
    /// Id of the subtopology.
    pub subtopology_id: String,
    /// Partitions of the input topics, one per task.
    pub partitions: Vec<i32>,
}

/// A setting or a client tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
}

/// An address for interactive queries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Host.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// An internal topic of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicInfo {
    /// Topic name.
    pub name: String,
    /// Number of partitions; 0 if the topology does not fix it.
    pub partitions: i32,
    /// Replication factor; 0 for the cluster's default.
    pub replication_factor: i16,
    /// Settings of the topic.
    pub topic_configs: Vec<KeyValue>,
}

/// The sum of the changelog offsets of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskOffset {
    /// Id of the subtopology.
    pub subtopology_id: String,
    /// Partition of the input topics.
    pub partition: i32,
    /// Sum of the offsets.
    pub offset: i64,
}

fn read_names(what: &'static str, r: &mut Reader<'_>) -> Result<Vec<String>, DecodeError> {
    r.array_of(1, what, |r| r.string(what).map(str::to_owned))
}

fn write_names(names: &[String], w: &mut Writer) {
    w.array(names.len());
    names.iter().for_each(|name| w.string(name));
}

/// Reads a list of structures of at least two bytes.
fn read_list<T: Fields>(
    version: i16,
    what: &'static str,
    r: &mut Reader<'_>,
) -> Result<Vec<T>, DecodeError> {
    r.array_of(2, what, |r| T::read(version, r))
}

fn read_nullable_list<T: Fields>(
    version: i16,
    what: &'static str,
    r: &mut Reader<'_>,
) -> Result<Option<Vec<T>>, DecodeError> {
    r.nullable_array_of(2, what, |r| T::read(version, r))
}

/// A nullable structure follows the byte 1; the byte -1 stands for null.
fn read_nullable<T: Fields>(
    version: i16,
    what: &'static str,
    r: &mut Reader<'_>,
) -> Result<Option<T>, DecodeError> {
    match r.i8(what)? {
        ..0 => Ok(None),
        _ => T::read(version, r).map(Some),
    }
}

fn write_nullable<T: Fields>(version: i16, value: Option<&T>, w: &mut Writer) {
    w.i8(if value.is_some() { 1 } else { -1 });
    if let Some(value) = value {
        value.write(version, w);
    }
}

fn read_text(what: &'static str, r: &mut Reader<'_>) -> Result<String, DecodeError> {
    r.string(what).map(str::to_owned)
}

fn read_nullable_text(
    what: &'static str,
    r: &mut Reader<'_>,
) -> Result<Option<String>, DecodeError> {
    Ok(r.nullable_string(what)?.map(str::to_owned))
}

impl Fields for TaskIds {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let subtopology_id = read_text("subtopology_id", r)?;
        let partitions = read_indexes("partitions", r)?;
        r.skip_tagged("tasks")?;
        Ok(Self { subtopology_id, partitions })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.string(&self.subtopology_id);
        write_indexes(&self.partitions, w);
        w.no_tags();
    }
}

impl Fields for KeyValue {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (key, value) = (read_text("key", r)?, read_text("value", r)?);
        r.skip_tagged("key and value")?;
        Ok(Self { key, value })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.string(&self.key);
        w.string(&self.value);
        w.no_tags();
    }
}

impl Fields for Endpoint {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (host, port) = (read_text("host", r)?, r.u16("port")?);
        r.skip_tagged("endpoint")?;
        Ok(Self { host, port })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.string(&self.host);
        w.u16(self.port);
        w.no_tags();
    }
}

impl Fields for TopicInfo {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = read_text("name", r)?;
        let partitions = r.i32("partitions")?;
        let replication_factor = r.i16("replication_factor")?;
        let topic_configs = read_list(version, "topic_configs", r)?;
        r.skip_tagged("topic")?;
        Ok(Self { name, partitions, replication_factor, topic_configs })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.string(&self.name);
        w.i32(self.partitions);
        w.i16(self.replication_factor);
        write_list(version, &self.topic_configs, w);
        w.no_tags();
    }
}

impl Fields for TaskOffset {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let subtopology_id = read_text("subtopology_id", r)?;
        let (partition, offset) = (r.i32("partition")?, r.i64("offset")?);
        r.skip_tagged("task offset")?;
        Ok(Self { subtopology_id, partition, offset })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.string(&self.subtopology_id);
        w.i32(self.partition);
        w.i64(self.offset);
        w.no_tags();
    }
}
