//! Bodies of Fetch requests and responses, and responses as frames that share the records.

use bytes::Bytes;

use super::{
    AbortedTransaction, EpochEndOffset, FetchPartition, FetchPartitionResponse, FetchRequest,
    FetchResponse, FetchTopic, FetchTopicResponse, ForgottenTopic, IsolationLevel,
    LeaderIdAndEpoch, NodeEndpoint, VERSIONS,
};
use crate::header::encode_response_header;
use crate::primitives::check_version;
use crate::{ApiKey, DecodeError, ErrorCode, Reader, Uuid, Writer};

const REQUEST: &str = "Fetch request";
const RESPONSE: &str = "Fetch response";

/// The first version that names topics by id (KIP-516).
const TOPIC_IDS: i16 = 13;
/// The first version with the replica in a tagged field (KIP-903).
const REPLICA_STATE: i16 = 15;
/// The first version with fetch sessions (KIP-227).
const SESSIONS: i16 = 7;
/// The first version with leaders' endpoints (KIP-951).
const ENDPOINTS: i16 = 16;

impl IsolationLevel {
    fn from_wire(value: i8) -> Result<Self, DecodeError> {
        match value {
            0 => Ok(Self::ReadUncommitted),
            1 => Ok(Self::ReadCommitted),
            value => {
                Err(DecodeError::InvalidValue { what: "isolation_level", value: value.into() })
            }
        }
    }

    fn to_wire(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

impl FetchRequest {
    /// Decodes the body of a request.
    pub fn decode(version: i16, body: &Bytes) -> Result<Self, DecodeError> {
        check_version(REQUEST, version, &VERSIONS)?;
        let mut r = Reader::new(body, ApiKey::FETCH.encoding(version));
        let mut request = Self {
            replica_id: if version < REPLICA_STATE { r.i32("replica_id")? } else { -1 },
            replica_epoch: -1,
            max_wait_ms: r.i32("max_wait_ms")?,
            min_bytes: r.i32("min_bytes")?,
            max_bytes: r.i32("max_bytes")?,
            isolation_level: IsolationLevel::from_wire(r.i8("isolation_level")?)?,
            session_id: if version >= SESSIONS { r.i32("session_id")? } else { 0 },
            session_epoch: if version >= SESSIONS { r.i32("session_epoch")? } else { -1 },
            topics: r.array_of(3, "topics", |r| FetchTopic::decode(version, r))?,
            forgotten: Vec::new(),
            rack_id: String::new(),
        };
        if version >= SESSIONS {
            request.forgotten =
                r.array_of(3, "forgotten_topics_data", |r| ForgottenTopic::decode(version, r))?;
        }
        if version >= 11 {
            r.string("rack_id")?.clone_into(&mut request.rack_id);
        }
        r.tagged(REQUEST, |tag, r| {
            if tag == 1 && version >= REPLICA_STATE {
                request.replica_id = r.i32("replica_state.replica_id")?;
                request.replica_epoch = r.i64("replica_state.replica_epoch")?;
                r.skip_tagged("replica_state")?;
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Appends the body of a request of `version`, one of [`VERSIONS`].
    pub fn encode(&self, version: i16, w: &mut Writer) {
        debug_assert!(VERSIONS.contains(&version));
        w.set_encoding(ApiKey::FETCH.encoding(version));
        if version < REPLICA_STATE {
            w.i32(self.replica_id);
        }
        w.i32(self.max_wait_ms);
        w.i32(self.min_bytes);
        w.i32(self.max_bytes);
        w.i8(self.isolation_level.to_wire());
        if version >= SESSIONS {
            w.i32(self.session_id);
            w.i32(self.session_epoch);
        }
        w.array(self.topics.len());
        for topic in &self.topics {
            encode_topic_key(version, &topic.name, topic.topic_id, w);
            w.array(topic.partitions.len());
            for partition in &topic.partitions {
                partition.encode(version, w);
            }
            w.no_tags();
        }
        if version >= SESSIONS {
            w.array(self.forgotten.len());
            for topic in &self.forgotten {
                topic.encode(version, w);
            }
        }
        if version >= 11 {
            w.string(&self.rack_id);
        }
        if version >= REPLICA_STATE && (self.replica_id, self.replica_epoch) != (-1, -1) {
            w.tag_count(1);
            w.tag(1, |w| {
                w.i32(self.replica_id);
                w.i64(self.replica_epoch);
                w.no_tags();
            });
        } else {
            w.no_tags();
        }
    }
}

impl FetchTopic {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, topic_id) = decode_topic_key(version, r)?;
        let partitions = r.array_of(16, "partitions", |r| FetchPartition::decode(version, r))?;
        r.skip_tagged("topics")?;
        Ok(Self { name, topic_id, partitions })
    }
}

impl FetchPartition {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let partition = Self {
            index: r.i32("partition")?,
            current_leader_epoch: if version >= 9 { r.i32("current_leader_epoch")? } else { -1 },
            fetch_offset: r.i64("fetch_offset")?,
            last_fetched_epoch: if version >= 12 { r.i32("last_fetched_epoch")? } else { -1 },
            log_start_offset: if version >= 5 { r.i64("log_start_offset")? } else { -1 },
            max_bytes: r.i32("partition_max_bytes")?,
        };
        // Version 17's tagged directory id concerns KRaft voters only and is skipped.
        r.skip_tagged("partitions")?;
        Ok(partition)
    }

    fn encode(&self, version: i16, w: &mut Writer) {
        w.i32(self.index);
        if version >= 9 {
            w.i32(self.current_leader_epoch);
        }
        w.i64(self.fetch_offset);
        if version >= 12 {
            w.i32(self.last_fetched_epoch);
        }
        if version >= 5 {
            w.i64(self.log_start_offset);
        }
        w.i32(self.max_bytes);
        w.no_tags();
    }
}

impl ForgottenTopic {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, topic_id) = decode_topic_key(version, r)?;
        let partitions = r.array_of(4, "forgotten partitions", |r| r.i32("partition"))?;
        r.skip_tagged("forgotten_topics_data")?;
        Ok(Self { name, topic_id, partitions })
    }

    fn encode(&self, version: i16, w: &mut Writer) {
        encode_topic_key(version, &self.name, self.topic_id, w);
        w.array(self.partitions.len());
        for index in &self.partitions {
            w.i32(*index);
        }
        w.no_tags();
    }
}

impl FetchResponse {
    /// Decodes the body of a response. Records are slices of `body`.
    pub fn decode(version: i16, body: &Bytes) -> Result<Self, DecodeError> {
        check_version(RESPONSE, version, &VERSIONS)?;
        let mut r = Reader::new(body, ApiKey::FETCH.encoding(version));
        let mut response = Self { throttle_time_ms: r.i32("throttle_time_ms")?, ..Self::default() };
        if version >= SESSIONS {
            response.error = ErrorCode(r.i16("error_code")?);
            response.session_id = r.i32("session_id")?;
        }
        response.topics = r.array_of(3, "responses", |r| FetchTopicResponse::decode(version, r))?;
        r.tagged(RESPONSE, |tag, r| {
            if tag == 0 && version >= ENDPOINTS {
                response.node_endpoints = NodeEndpoint::decode_all(r)?;
            }
            Ok(())
        })?;
        Ok(response)
    }

    /// Appends the body of a response of `version`, one of [`VERSIONS`], copying the records.
    pub fn encode(&self, version: i16, w: &mut Writer) {
        self.encode_with(version, w, |w, records| w.raw(records));
    }

    /// Appends to `out` the parts of a whole response frame, its length first, in order: the records themselves and
    /// the encoded fields between them. Returns the number of bytes in all parts.
    ///
    /// `version` is one of [`VERSIONS`]; the frame stays below 2³¹ bytes.
    pub fn encode_frame(&self, version: i16, correlation_id: i32, out: &mut Vec<Bytes>) -> usize {
        let partitions: usize = self.topics.iter().map(|topic| topic.partitions.len()).sum();
        let mut w = Writer::with_capacity(64 + 64 * self.topics.len() + 64 * partitions);
        w.i32(0);
        encode_response_header(ApiKey::FETCH, version, correlation_id, &mut w);
        // Positions of the records in the encoded fields.
        let mut cuts = Vec::with_capacity(partitions);
        self.encode_with(version, &mut w, |w, records| cuts.push((w.len(), records.clone())));
        let shared: usize = cuts.iter().map(|(_, records)| records.len()).sum();
        let length = w.len() + shared;
        w.patch_i32(0, (length - 4) as i32);
        let glue = w.into_bytes();
        let mut start = 0;
        for (end, records) in cuts {
            out.push(glue.slice(start..end));
            out.push(records);
            start = end;
        }
        if start < glue.len() {
            out.push(glue.slice(start..));
        }
        length
    }

    /// Encodes the body and calls `records` at the place of each records section that is not empty.
    fn encode_with(
        &self,
        version: i16,
        w: &mut Writer,
        mut records: impl FnMut(&mut Writer, &Bytes),
    ) {
        debug_assert!(VERSIONS.contains(&version));
        w.set_encoding(ApiKey::FETCH.encoding(version));
        w.i32(self.throttle_time_ms);
        if version >= SESSIONS {
            w.i16(self.error.0);
            w.i32(self.session_id);
        }
        w.array(self.topics.len());
        for topic in &self.topics {
            encode_topic_key(version, &topic.name, topic.topic_id, w);
            w.array(topic.partitions.len());
            for partition in &topic.partitions {
                partition.encode_fields(version, w);
                w.array(partition.records.len());
                if !partition.records.is_empty() {
                    records(w, &partition.records);
                }
                partition.encode_tags(version, w);
            }
            w.no_tags();
        }
        if version >= ENDPOINTS && !self.node_endpoints.is_empty() {
            w.tag_count(1);
            w.tag(0, |w| NodeEndpoint::encode_all(&self.node_endpoints, w));
        } else {
            w.no_tags();
        }
    }
}

impl FetchTopicResponse {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, topic_id) = decode_topic_key(version, r)?;
        let partitions =
            r.array_of(24, "partitions", |r| FetchPartitionResponse::decode(version, r))?;
        r.skip_tagged("responses")?;
        Ok(Self { name, topic_id, partitions })
    }
}

impl FetchPartitionResponse {
    fn decode(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut partition = Self {
            index: r.i32("partition_index")?,
            error: ErrorCode(r.i16("error_code")?),
            high_watermark: r.i64("high_watermark")?,
            last_stable_offset: r.i64("last_stable_offset")?,
            log_start_offset: if version >= 5 { r.i64("log_start_offset")? } else { -1 },
            diverging_epoch: None,
            current_leader: None,
            aborted_transactions: r.nullable_array_of(
                16,
                "aborted_transactions",
                AbortedTransaction::decode,
            )?,
            preferred_read_replica: match version {
                11.. => r.i32("preferred_read_replica")?,
                _ => -1,
            },
            records: r.nullable_bytes("records")?.unwrap_or_default(),
        };
        r.tagged("partitions", |tag, r| {
            match tag {
                0 => partition.diverging_epoch = Some(EpochEndOffset::decode(r)?),
                1 => partition.current_leader = Some(LeaderIdAndEpoch::decode(r)?),
                // 2 is the snapshot id of KRaft's metadata log.
                _ => {}
            }
            Ok(())
        })?;
        Ok(partition)
    }

    fn encode_fields(&self, version: i16, w: &mut Writer) {
        w.i32(self.index);
        w.i16(self.error.0);
        w.i64(self.high_watermark);
        w.i64(self.last_stable_offset);
        if version >= 5 {
            w.i64(self.log_start_offset);
        }
        w.nullable_array(self.aborted_transactions.as_ref().map(Vec::len));
        for aborted in self.aborted_transactions.iter().flatten() {
            w.i64(aborted.producer_id);
            w.i64(aborted.first_offset);
            w.no_tags();
        }
        if version >= 11 {
            w.i32(self.preferred_read_replica);
        }
    }

    fn encode_tags(&self, version: i16, w: &mut Writer) {
        let count =
            u32::from(self.diverging_epoch.is_some()) + u32::from(self.current_leader.is_some());
        if version < 12 || count == 0 {
            return w.no_tags();
        }
        w.tag_count(count);
        if let Some(diverging) = self.diverging_epoch {
            w.tag(0, |w| {
                w.i32(diverging.epoch);
                w.i64(diverging.end_offset);
                w.no_tags();
            });
        }
        if let Some(leader) = self.current_leader {
            w.tag(1, |w| leader.encode(w));
        }
    }
}

impl EpochEndOffset {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let epoch = r.i32("diverging_epoch.epoch")?;
        let end_offset = r.i64("diverging_epoch.end_offset")?;
        r.skip_tagged("diverging_epoch")?;
        Ok(Self { epoch, end_offset })
    }
}

impl AbortedTransaction {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let producer_id = r.i64("producer_id")?;
        let first_offset = r.i64("first_offset")?;
        r.skip_tagged("aborted_transactions")?;
        Ok(Self { producer_id, first_offset })
    }
}

fn decode_topic_key(version: i16, r: &mut Reader<'_>) -> Result<(String, Uuid), DecodeError> {
    if version >= TOPIC_IDS {
        Ok((String::new(), r.uuid("topic_id")?))
    } else {
        Ok((r.string("topic")?.to_owned(), Uuid::ZERO))
    }
}

fn encode_topic_key(version: i16, name: &str, topic_id: Uuid, w: &mut Writer) {
    if version >= TOPIC_IDS {
        w.uuid(topic_id);
    } else {
        w.string(name);
    }
}
