//! Bodies of Metadata requests and responses.

use bytes::Bytes;

use super::{
    MetadataBroker, MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponse,
    MetadataTopic, NO_OPERATIONS, VERSIONS,
};
use crate::primitives::check_version;
use crate::{ApiKey, DecodeError, ErrorCode, Reader, Uuid, Writer};

const REQUEST: &str = "Metadata request";
const RESPONSE: &str = "Metadata response";

impl MetadataRequest {
    /// Decodes the body of a request.
    pub fn decode(version: i16, body: &Bytes) -> Result<Self, DecodeError> {
        check_version(REQUEST, version, &VERSIONS)?;
        let mut r = Reader::new(body, ApiKey::METADATA.encoding(version));
        let topics = if version == 0 {
            // Version 0 has no null; an empty list requests every topic.
            let topics = r.array_of(2, "topics", |r| MetadataRequestTopic::decode(0, r))?;
            (!topics.is_empty()).then_some(topics)
        } else {
            r.nullable_array_of(2, "topics", |r| MetadataRequestTopic::decode(version, r))?
        };
        let mut request = Self { topics, allow_auto_topic_creation: true, ..Self::default() };
        if version >= 4 {
            request.allow_auto_topic_creation = r.bool("allow_auto_topic_creation")?;
        }
        if (8..=10).contains(&version) {
            request.include_cluster_authorized_operations =
                r.bool("include_cluster_authorized_operations")?;
        }
        if version >= 8 {
            request.include_topic_authorized_operations =
                r.bool("include_topic_authorized_operations")?;
        }
        r.skip_tagged(REQUEST)?;
        Ok(request)
    }

    /// Appends the body of a request of `version`, one of [`VERSIONS`].
    ///
    /// Version 0 cannot request zero topics: an empty list requests all. Before version 10 topics cannot be requested
    /// by id: a topic without a name is sent with an empty one, and brokers respond with
    /// [`ErrorCode::INVALID_TOPIC_EXCEPTION`].
    pub fn encode(&self, version: i16, w: &mut Writer) {
        debug_assert!(VERSIONS.contains(&version));
        w.set_encoding(ApiKey::METADATA.encoding(version));
        match &self.topics {
            None if version == 0 => w.array(0),
            topics => w.nullable_array(topics.as_ref().map(Vec::len)),
        }
        for topic in self.topics.iter().flatten() {
            if version >= 10 {
                w.uuid(topic.topic_id);
                w.nullable_string(topic.name.as_deref());
            } else {
                w.string(topic.name.as_deref().unwrap_or_default());
            }
            w.no_tags();
        }
        if version >= 4 {
            w.bool(self.allow_auto_topic_creation);
        }
        if (8..=10).contains(&version) {
            w.bool(self.include_cluster_authorized_operations);
        }
        if version >= 8 {
            w.bool(self.include_topic_authorized_operations);
        }
        w.no_tags();
    }
}

impl MetadataRequestTopic {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let topic_id = if version >= 10 { r.uuid("topic_id")? } else { Uuid::ZERO };
        let name = if version >= 10 {
            r.nullable_string("name")?.map(str::to_owned)
        } else {
            Some(r.string("name")?.to_owned())
        };
        r.skip_tagged("topics")?;
        Ok(Self { topic_id, name })
    }
}

impl MetadataResponse {
    /// Decodes the body of a response.
    pub fn decode(version: i16, body: &Bytes) -> Result<Self, DecodeError> {
        check_version(RESPONSE, version, &VERSIONS)?;
        let mut r = Reader::new(body, ApiKey::METADATA.encoding(version));
        let mut response = Self::default();
        if version >= 3 {
            response.throttle_time_ms = r.i32("throttle_time_ms")?;
        }
        response.brokers = r.array_of(10, "brokers", |r| MetadataBroker::decode(version, r))?;
        if version >= 2 {
            response.cluster_id = r.nullable_string("cluster_id")?.map(str::to_owned);
        }
        if version >= 1 {
            response.controller_id = r.i32("controller_id")?;
        }
        response.topics = r.array_of(8, "topics", |r| MetadataTopic::decode(version, r))?;
        if (8..=10).contains(&version) {
            response.cluster_authorized_operations = r.i32("cluster_authorized_operations")?;
        }
        if version >= 13 {
            response.error = ErrorCode(r.i16("error_code")?);
        }
        r.skip_tagged(RESPONSE)?;
        Ok(response)
    }

    /// Appends the body of a response of `version`, one of [`VERSIONS`].
    pub fn encode(&self, version: i16, w: &mut Writer) {
        debug_assert!(VERSIONS.contains(&version));
        w.set_encoding(ApiKey::METADATA.encoding(version));
        if version >= 3 {
            w.i32(self.throttle_time_ms);
        }
        w.array(self.brokers.len());
        for broker in &self.brokers {
            broker.encode(version, w);
        }
        if version >= 2 {
            w.nullable_string(self.cluster_id.as_deref());
        }
        if version >= 1 {
            w.i32(self.controller_id);
        }
        w.array(self.topics.len());
        for topic in &self.topics {
            topic.encode(version, w);
        }
        if (8..=10).contains(&version) {
            w.i32(self.cluster_authorized_operations);
        }
        if version >= 13 {
            w.i16(self.error.0);
        }
        w.no_tags();
    }
}

impl MetadataBroker {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let node_id = r.i32("brokers.node_id")?;
        let host = r.string("brokers.host")?.to_owned();
        let port = r.i32("brokers.port")?;
        let rack =
            if version >= 1 { r.nullable_string("brokers.rack")?.map(str::to_owned) } else { None };
        r.skip_tagged("brokers")?;
        Ok(Self { node_id, host, port, rack })
    }

    fn encode(&self, version: i16, w: &mut Writer) {
        w.i32(self.node_id);
        w.string(&self.host);
        w.i32(self.port);
        if version >= 1 {
            w.nullable_string(self.rack.as_deref());
        }
        w.no_tags();
    }
}

impl MetadataTopic {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let error = ErrorCode(r.i16("topics.error_code")?);
        let name = if version >= 12 {
            r.nullable_string("topics.name")?.map(str::to_owned)
        } else {
            Some(r.string("topics.name")?.to_owned())
        };
        let topic_id = if version >= 10 { r.uuid("topics.topic_id")? } else { Uuid::ZERO };
        let is_internal = if version >= 1 { r.bool("topics.is_internal")? } else { false };
        let partitions = r.array_of(14, "partitions", |r| MetadataPartition::decode(version, r))?;
        let authorized_operations =
            if version >= 8 { r.i32("topic_authorized_operations")? } else { NO_OPERATIONS };
        r.skip_tagged("topics")?;
        Ok(Self { error, name, topic_id, is_internal, partitions, authorized_operations })
    }

    fn encode(&self, version: i16, w: &mut Writer) {
        w.i16(self.error.0);
        if version >= 12 {
            w.nullable_string(self.name.as_deref());
        } else {
            w.string(self.name.as_deref().unwrap_or_default());
        }
        if version >= 10 {
            w.uuid(self.topic_id);
        }
        if version >= 1 {
            w.bool(self.is_internal);
        }
        w.array(self.partitions.len());
        for partition in &self.partitions {
            partition.encode(version, w);
        }
        if version >= 8 {
            w.i32(self.authorized_operations);
        }
        w.no_tags();
    }
}

impl MetadataPartition {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let partition = Self {
            error: ErrorCode(r.i16("partitions.error_code")?),
            index: r.i32("partition_index")?,
            leader_id: r.i32("leader_id")?,
            leader_epoch: if version >= 7 { r.i32("leader_epoch")? } else { -1 },
            replicas: decode_ids(r, "replica_nodes")?,
            isr: decode_ids(r, "isr_nodes")?,
            offline_replicas: match version {
                5.. => decode_ids(r, "offline_replicas")?,
                _ => Vec::new(),
            },
        };
        r.skip_tagged("partitions")?;
        Ok(partition)
    }

    fn encode(&self, version: i16, w: &mut Writer) {
        w.i16(self.error.0);
        w.i32(self.index);
        w.i32(self.leader_id);
        if version >= 7 {
            w.i32(self.leader_epoch);
        }
        encode_ids(&self.replicas, w);
        encode_ids(&self.isr, w);
        if version >= 5 {
            encode_ids(&self.offline_replicas, w);
        }
        w.no_tags();
    }
}

fn decode_ids(r: &mut Reader<'_>, what: &'static str) -> Result<Vec<i32>, DecodeError> {
    r.array_of(4, what, |r| r.i32(what))
}

fn encode_ids(ids: &[i32], w: &mut Writer) {
    w.array(ids.len());
    for id in ids {
        w.i32(*id);
    }
}
