//! Bodies of Produce requests and responses.

use bytes::Bytes;

use super::{
    BatchIndexError, LeaderIdAndEpoch, NodeEndpoint, ProducePartition, ProducePartitionResponse,
    ProduceRequest, ProduceResponse, ProduceTopic, ProduceTopicResponse, VERSIONS,
};
use crate::primitives::check_version;
use crate::{ApiKey, DecodeError, ErrorCode, Reader, Uuid, Writer};

const REQUEST: &str = "Produce request";
const RESPONSE: &str = "Produce response";

/// The first version that names topics by id (KIP-516).
pub(super) const TOPIC_IDS: i16 = 13;

impl ProduceRequest {
    /// Decodes the body of a request. Records are slices of `body`.
    pub fn decode(version: i16, body: &Bytes) -> Result<Self, DecodeError> {
        check_version(REQUEST, version, &VERSIONS)?;
        let mut r = Reader::new(body, ApiKey::PRODUCE.encoding(version));
        let transactional_id = r.nullable_string("transactional_id")?.map(str::to_owned);
        let acks = r.i16("acks")?;
        let timeout_ms = r.i32("timeout_ms")?;
        let topics = r.array_of(3, "topic_data", |r| ProduceTopic::decode(version, r))?;
        r.skip_tagged(REQUEST)?;
        Ok(Self { transactional_id, acks, timeout_ms, topics })
    }

    /// Appends the body of a request of `version`, one of [`VERSIONS`], copying the records.
    pub fn encode(&self, version: i16, w: &mut Writer) {
        debug_assert!(VERSIONS.contains(&version));
        w.set_encoding(ApiKey::PRODUCE.encoding(version));
        w.nullable_string(self.transactional_id.as_deref());
        w.i16(self.acks);
        w.i32(self.timeout_ms);
        w.array(self.topics.len());
        for topic in &self.topics {
            encode_topic_key(version, &topic.name, topic.topic_id, w);
            w.array(topic.partitions.len());
            for partition in &topic.partitions {
                w.i32(partition.index);
                w.nullable_bytes(partition.records.as_deref());
                w.no_tags();
            }
            w.no_tags();
        }
        w.no_tags();
    }
}

impl ProduceTopic {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, topic_id) = decode_topic_key(version, r)?;
        let partitions = r.array_of(6, "partition_data", |r| {
            let index = r.i32("index")?;
            let records = r.nullable_bytes("records")?;
            r.skip_tagged("partition_data")?;
            Ok(ProducePartition { index, records })
        })?;
        r.skip_tagged("topic_data")?;
        Ok(Self { name, topic_id, partitions })
    }
}

impl ProduceResponse {
    /// Decodes the body of a response.
    pub fn decode(version: i16, body: &Bytes) -> Result<Self, DecodeError> {
        check_version(RESPONSE, version, &VERSIONS)?;
        let mut r = Reader::new(body, ApiKey::PRODUCE.encoding(version));
        let topics = r.array_of(3, "responses", |r| ProduceTopicResponse::decode(version, r))?;
        let throttle_time_ms = r.i32("throttle_time_ms")?;
        let mut node_endpoints = Vec::new();
        r.tagged(RESPONSE, |tag, r| {
            if tag == 0 && version >= 10 {
                node_endpoints = NodeEndpoint::decode_all(r)?;
            }
            Ok(())
        })?;
        Ok(Self { topics, throttle_time_ms, node_endpoints })
    }

    /// Appends the body of a response of `version`, one of [`VERSIONS`].
    pub fn encode(&self, version: i16, w: &mut Writer) {
        debug_assert!(VERSIONS.contains(&version));
        w.set_encoding(ApiKey::PRODUCE.encoding(version));
        w.array(self.topics.len());
        for topic in &self.topics {
            encode_topic_key(version, &topic.name, topic.topic_id, w);
            w.array(topic.partitions.len());
            for partition in &topic.partitions {
                partition.encode(version, w);
            }
            w.no_tags();
        }
        w.i32(self.throttle_time_ms);
        if version >= 10 && !self.node_endpoints.is_empty() {
            w.tag_count(1);
            w.tag(0, |w| NodeEndpoint::encode_all(&self.node_endpoints, w));
        } else {
            w.no_tags();
        }
    }
}

impl ProduceTopicResponse {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, topic_id) = decode_topic_key(version, r)?;
        let partitions = r.array_of(22, "partition_responses", |r| {
            ProducePartitionResponse::decode(version, r)
        })?;
        r.skip_tagged("responses")?;
        Ok(Self { name, topic_id, partitions })
    }
}

impl ProducePartitionResponse {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let index = r.i32("index")?;
        let error = ErrorCode(r.i16("error_code")?);
        let base_offset = r.i64("base_offset")?;
        let log_append_time_ms = r.i64("log_append_time_ms")?;
        let log_start_offset = if version >= 5 { r.i64("log_start_offset")? } else { -1 };
        let mut record_errors = Vec::new();
        let mut error_message = None;
        if version >= 8 {
            record_errors = r.array_of(6, "record_errors", BatchIndexError::decode)?;
            error_message = r.nullable_string("error_message")?.map(str::to_owned);
        }
        let mut current_leader = None;
        r.tagged("partition_responses", |tag, r| {
            if tag == 0 && version >= 10 {
                current_leader = Some(LeaderIdAndEpoch::decode(r)?);
            }
            Ok(())
        })?;
        Ok(Self {
            index,
            error,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            record_errors,
            error_message,
            current_leader,
        })
    }

    fn encode(&self, version: i16, w: &mut Writer) {
        w.i32(self.index);
        w.i16(self.error.0);
        w.i64(self.base_offset);
        w.i64(self.log_append_time_ms);
        if version >= 5 {
            w.i64(self.log_start_offset);
        }
        if version >= 8 {
            w.array(self.record_errors.len());
            for error in &self.record_errors {
                w.i32(error.batch_index);
                w.nullable_string(error.message.as_deref());
                w.no_tags();
            }
            w.nullable_string(self.error_message.as_deref());
        }
        match self.current_leader {
            Some(leader) if version >= 10 => {
                w.tag_count(1);
                w.tag(0, |w| leader.encode(w));
            }
            _ => w.no_tags(),
        }
    }
}

impl BatchIndexError {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let batch_index = r.i32("batch_index")?;
        let message = r.nullable_string("batch_index_error_message")?.map(str::to_owned);
        r.skip_tagged("record_errors")?;
        Ok(Self { batch_index, message })
    }
}

impl LeaderIdAndEpoch {
    /// Produce and Fetch have this structure in common; only flexible versions have it.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let leader_id = r.i32("current_leader.leader_id")?;
        let leader_epoch = r.i32("current_leader.leader_epoch")?;
        r.skip_tagged("current_leader")?;
        Ok(Self { leader_id, leader_epoch })
    }

    pub(crate) fn encode(self, w: &mut Writer) {
        w.i32(self.leader_id);
        w.i32(self.leader_epoch);
        w.no_tags();
    }
}

impl NodeEndpoint {
    /// Produce and Fetch have this structure in common; only flexible versions have it.
    pub(crate) fn decode_all(r: &mut Reader<'_>) -> Result<Vec<Self>, DecodeError> {
        r.array_of(11, "node_endpoints", |r| {
            let node_id = r.i32("node_endpoints.node_id")?;
            let host = r.string("node_endpoints.host")?.to_owned();
            let port = r.i32("node_endpoints.port")?;
            let rack = r.nullable_string("node_endpoints.rack")?.map(str::to_owned);
            r.skip_tagged("node_endpoints")?;
            Ok(Self { node_id, host, port, rack })
        })
    }

    pub(crate) fn encode_all(endpoints: &[Self], w: &mut Writer) {
        w.array(endpoints.len());
        for endpoint in endpoints {
            w.i32(endpoint.node_id);
            w.string(&endpoint.host);
            w.i32(endpoint.port);
            w.nullable_string(endpoint.rack.as_deref());
            w.no_tags();
        }
    }
}

fn decode_topic_key(version: i16, r: &mut Reader<'_>) -> Result<(String, Uuid), DecodeError> {
    if version >= TOPIC_IDS {
        Ok((String::new(), r.uuid("topic_id")?))
    } else {
        Ok((r.string("name")?.to_owned(), Uuid::ZERO))
    }
}

fn encode_topic_key(version: i16, name: &str, topic_id: Uuid, w: &mut Writer) {
    if version >= TOPIC_IDS {
        w.uuid(topic_id);
    } else {
        w.string(name);
    }
}
