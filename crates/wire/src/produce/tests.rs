use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as other;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response as other_response;
use kafka_protocol::protocol::Encodable;
use proptest::prelude::*;

use super::*;
use crate::header::{RequestHeader, split_request};
use crate::test_support::*;
use crate::{ApiKey, DecodeError, Writer};

fn requests() -> impl Strategy<Value = ProduceRequest> {
    let partition = (any::<i32>(), prop::option::of(payload()))
        .prop_map(|(index, records)| ProducePartition { index, records });
    let topic = (name(), uuid(), some(partition))
        .prop_map(|(name, topic_id, partitions)| ProduceTopic { name, topic_id, partitions });
    (nullable_name(), any::<i16>(), any::<i32>(), some(topic)).prop_map(
        |(transactional_id, acks, timeout_ms, topics)| ProduceRequest {
            transactional_id,
            acks,
            timeout_ms,
            topics,
        },
    )
}

pub(crate) fn leaders() -> impl Strategy<Value = Option<LeaderIdAndEpoch>> {
    // Both -1 is the same as absent to the other implementation.
    prop::option::of(
        (0..i32::MAX, any::<i32>())
            .prop_map(|(leader_id, leader_epoch)| LeaderIdAndEpoch { leader_id, leader_epoch }),
    )
}

pub(crate) fn endpoints() -> impl Strategy<Value = Vec<NodeEndpoint>> {
    some(
        (any::<i32>(), name(), any::<i32>(), nullable_name())
            .prop_map(|(node_id, host, port, rack)| NodeEndpoint { node_id, host, port, rack }),
    )
}

fn partition_responses() -> impl Strategy<Value = ProducePartitionResponse> {
    let error = (any::<i32>(), nullable_name())
        .prop_map(|(batch_index, message)| BatchIndexError { batch_index, message });
    (
        (any::<i32>(), error_code(), any::<i64>(), any::<i64>(), any::<i64>()),
        some(error),
        nullable_name(),
        leaders(),
    )
        .prop_map(|(fixed, record_errors, error_message, current_leader)| {
            let (index, error, base_offset, log_append_time_ms, log_start_offset) = fixed;
            ProducePartitionResponse {
                index,
                error,
                base_offset,
                log_append_time_ms,
                log_start_offset,
                record_errors,
                error_message,
                current_leader,
            }
        })
}

fn responses() -> impl Strategy<Value = ProduceResponse> {
    let topic =
        (name(), uuid(), some(partition_responses())).prop_map(|(name, topic_id, partitions)| {
            ProduceTopicResponse { name, topic_id, partitions }
        });
    (some(topic), any::<i32>(), endpoints()).prop_map(
        |(topics, throttle_time_ms, node_endpoints)| ProduceResponse {
            topics,
            throttle_time_ms,
            node_endpoints,
        },
    )
}

/// The request as the other implementation's, without what `version` lacks.
fn other_request(version: i16, request: &ProduceRequest) -> other::ProduceRequest {
    let topic = |topic: &ProduceTopic| {
        let data = TopicProduceData::default().with_partition_data(
            topic
                .partitions
                .iter()
                .map(|partition| {
                    PartitionProduceData::default()
                        .with_index(partition.index)
                        .with_records(partition.records.clone())
                })
                .collect(),
        );
        match version {
            13.. => data.with_topic_id(hex(topic.topic_id).parse().unwrap()),
            _ => data.with_name(topic_name(&topic.name)),
        }
    };
    other::ProduceRequest::default()
        .with_transactional_id(
            nullable_text(request.transactional_id.as_ref()).map(other::TransactionalId),
        )
        .with_acks(request.acks)
        .with_timeout_ms(request.timeout_ms)
        .with_topic_data(request.topics.iter().map(topic).collect())
}

fn other_partition(
    version: i16,
    partition: &ProducePartitionResponse,
) -> other_response::PartitionProduceResponse {
    let mut theirs = other_response::PartitionProduceResponse::default()
        .with_index(partition.index)
        .with_error_code(partition.error.0)
        .with_base_offset(partition.base_offset)
        .with_log_append_time_ms(partition.log_append_time_ms);
    if version >= 5 {
        theirs = theirs.with_log_start_offset(partition.log_start_offset);
    }
    if version >= 8 {
        let errors = partition.record_errors.iter().map(|error| {
            other_response::BatchIndexAndErrorMessage::default()
                .with_batch_index(error.batch_index)
                .with_batch_index_error_message(nullable_text(error.message.as_ref()))
        });
        theirs = theirs
            .with_record_errors(errors.collect())
            .with_error_message(nullable_text(partition.error_message.as_ref()));
    }
    match partition.current_leader {
        Some(leader) if version >= 10 => theirs.with_current_leader(
            other_response::LeaderIdAndEpoch::default()
                .with_leader_id(leader.leader_id.into())
                .with_leader_epoch(leader.leader_epoch),
        ),
        _ => theirs,
    }
}

fn other_response(version: i16, response: &ProduceResponse) -> other::ProduceResponse {
    let topic = |topic: &ProduceTopicResponse| {
        let theirs = other_response::TopicProduceResponse::default().with_partition_responses(
            topic.partitions.iter().map(|p| other_partition(version, p)).collect(),
        );
        match version {
            13.. => theirs.with_topic_id(hex(topic.topic_id).parse().unwrap()),
            _ => theirs.with_name(topic_name(&topic.name)),
        }
    };
    let theirs = other::ProduceResponse::default()
        .with_responses(response.topics.iter().map(topic).collect())
        .with_throttle_time_ms(response.throttle_time_ms);
    if version < 10 {
        return theirs;
    }
    let endpoint = |endpoint: &NodeEndpoint| {
        other_response::NodeEndpoint::default()
            .with_node_id(endpoint.node_id.into())
            .with_host(text(&endpoint.host))
            .with_port(endpoint.port)
            .with_rack(nullable_text(endpoint.rack.as_ref()))
    };
    theirs.with_node_endpoints(response.node_endpoints.iter().map(endpoint).collect())
}

fn request_bytes(version: i16, request: &ProduceRequest) -> Bytes {
    written(|w| request.encode(version, w))
}

fn response_bytes(version: i16, response: &ProduceResponse) -> Bytes {
    written(|w| response.encode(version, w))
}

fn sample_request() -> ProduceRequest {
    let partition =
        |index| ProducePartition { index, records: Some(Bytes::from_static(b"records")) };
    let topic = |name: &str| ProduceTopic {
        name: name.to_owned(),
        topic_id: Uuid([7; 16]),
        partitions: vec![partition(0), partition(5)],
    };
    ProduceRequest {
        transactional_id: Some("tx".to_owned()),
        acks: -1,
        timeout_ms: 30_000,
        topics: vec![topic("first"), topic("second")],
    }
}

fn sample_response() -> ProduceResponse {
    let partition = ProducePartitionResponse {
        index: 3,
        error: ErrorCode::NOT_LEADER_OR_FOLLOWER,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: 4,
        record_errors: vec![BatchIndexError { batch_index: 1, message: Some("bad".to_owned()) }],
        error_message: Some("no".to_owned()),
        current_leader: Some(LeaderIdAndEpoch { leader_id: 2, leader_epoch: 9 }),
    };
    ProduceResponse {
        topics: vec![ProduceTopicResponse {
            name: "topic".to_owned(),
            topic_id: Uuid([8; 16]),
            partitions: vec![partition.clone(), partition],
        }],
        throttle_time_ms: 10,
        node_endpoints: vec![NodeEndpoint {
            node_id: 2,
            host: "broker".to_owned(),
            port: 9092,
            rack: Some("r".to_owned()),
        }],
    }
}

proptest! {
    #[test]
    fn requests_agree_with_the_other_implementation(request in requests()) {
        for version in VERSIONS {
            let bytes = request_bytes(version, &request);
            assert_same_as_other(version, &bytes, &other_request(version, &request));
            let mut expected = request.clone();
            for topic in &mut expected.topics {
                match version {
                    13.. => topic.name.clear(),
                    _ => topic.topic_id = Uuid::ZERO,
                }
            }
            prop_assert_eq!(ProduceRequest::decode(version, &bytes).unwrap(), expected);
        }
    }

    #[test]
    fn responses_agree_with_the_other_implementation(response in responses()) {
        for version in VERSIONS {
            let bytes = response_bytes(version, &response);
            assert_same_as_other(version, &bytes, &other_response(version, &response));
            let decoded = ProduceResponse::decode(version, &bytes).unwrap();
            prop_assert_eq!(response_bytes(version, &decoded), bytes);
            if version == 12 {
                let mut expected = response.clone();
                expected.topics.iter_mut().for_each(|topic| topic.topic_id = Uuid::ZERO);
                prop_assert_eq!(decoded, expected);
            }
        }
    }

    #[test]
    fn frames_are_the_request_and_share_its_batches(
        version in VERSIONS, request in requests(), correlation_id: i32, client in nullable_name(),
    ) {
        let mut expected = Writer::default();
        expected.i32(0);
        let header = RequestHeader {
            api: ApiKey::PRODUCE,
            version,
            correlation_id,
            client_id: client.as_deref(),
        };
        header.encode(&mut expected);
        // The client never sends a topic without partitions, or the same topic twice in a row.
        let mut request = request;
        request.topics.retain(|topic| !topic.partitions.is_empty());
        request.topics.dedup_by(|a, b| a.name == b.name || a.topic_id == b.topic_id);
        for partition in request.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            partition.records.get_or_insert_default();
        }
        request.encode(version, &mut expected);
        expected.patch_i32(0, i32::try_from(expected.len() - 4).unwrap());

        let batches: Vec<_> = request
            .topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(move |partition| OutBatch {
                topic: &topic.name,
                topic_id: topic.topic_id,
                partition: partition.index,
                payload: partition.records.as_ref().unwrap(),
            }))
            .collect();
        let head = RequestHead {
            version,
            correlation_id,
            client_id: client.as_deref(),
            transactional_id: request.transactional_id.as_deref(),
            acks: request.acks,
            timeout_ms: request.timeout_ms,
        };
        let mut glue = BytesMut::from("left from before");
        let mut out = vec![Bytes::from_static(b"an earlier frame")];
        let length = head.encode_frame(&batches, &mut glue, &mut out);
        prop_assert_eq!(out[1..].concat(), expected.as_slice());
        prop_assert_eq!(length, expected.len());
        prop_assert!(glue.is_empty());
        prop_assert!(out[1..].len() <= 2 * batches.len() + 1);
        for (batch, part) in batches.iter().zip(out[1..].iter().skip(1).step_by(2)) {
            prop_assert_eq!(part.as_ptr(), batch.payload.as_ptr(), "copied");
        }
    }

    #[test]
    fn damage_does_no_harm(at: prop::sample::Index, byte: u8, version in VERSIONS) {
        for bytes in [request_bytes(version, &sample_request()),
                      response_bytes(version, &sample_response())] {
            let mut damaged = bytes.to_vec();
            damaged[at.index(bytes.len())] = byte;
            let damaged = damaged.into();
            let _ = ProduceRequest::decode(version, &damaged);
            let _ = ProduceResponse::decode(version, &damaged);
        }
    }
}

#[test]
fn glue_is_used_again() {
    let payload = Bytes::from_static(b"payload");
    let batch = OutBatch { topic: "topic", topic_id: Uuid::ZERO, partition: 1, payload: &payload };
    let head = RequestHead {
        version: 11,
        correlation_id: 1,
        client_id: Some("client"),
        transactional_id: None,
        acks: 1,
        timeout_ms: 5,
    };
    let mut glue = BytesMut::with_capacity(4096);
    let start = glue.as_ptr() as usize;
    for _ in 0..1000 {
        let mut out = Vec::new();
        head.encode_frame(&[batch], &mut glue, &mut out);
        assert!((start..start + 4096).contains(&(out[0].as_ptr() as usize)));
        let frame = Bytes::from(out.concat()).slice(4..);
        let (_, body) = split_request(&frame).unwrap();
        let request = ProduceRequest::decode(11, &body).unwrap();
        assert_eq!(request.topics[0].partitions[0].records.as_ref(), Some(&payload));
    }
}

#[test]
fn records_are_slices_of_the_frame() {
    for version in VERSIONS {
        let bytes = request_bytes(version, &sample_request());
        let request = ProduceRequest::decode(version, &bytes).unwrap();
        let records = request.topics[1].partitions[1].records.clone().unwrap();
        let range = bytes.as_ptr() as usize..bytes.as_ptr() as usize + bytes.len();
        assert!(range.contains(&(records.as_ptr() as usize)));
    }
}

#[test]
fn fields_a_version_lacks_get_their_defaults() {
    let bytes = response_bytes(3, &sample_response());
    let partition =
        ProduceResponse::decode(3, &bytes).unwrap().topics.remove(0).partitions.remove(0);
    let expected = ProducePartitionResponse {
        log_start_offset: -1,
        record_errors: Vec::new(),
        error_message: None,
        current_leader: None,
        ..sample_response().topics[0].partitions[0].clone()
    };
    assert_eq!(partition, expected);
}

#[test]
fn unknown_tags_are_skipped() {
    let unknown = |tag| (tag, Bytes::from_static(b"future"));
    let theirs = other_response(12, &sample_response())
        .with_unknown_tagged_fields([unknown(7), unknown(300)].into());
    let mut bytes = Vec::new();
    theirs.encode(&mut bytes, 12).unwrap();
    let decoded = ProduceResponse::decode(12, &bytes.into()).unwrap();
    assert_eq!(decoded.node_endpoints, sample_response().node_endpoints);
}

#[test]
fn truncated_and_extreme_messages_are_refused() {
    for version in VERSIONS {
        let request = request_bytes(version, &sample_request());
        let response = response_bytes(version, &sample_response());
        let decode_request = |bytes: &Bytes| ProduceRequest::decode(version, bytes);
        let decode_response = |bytes: &Bytes| ProduceResponse::decode(version, bytes);
        assert_truncated_fails_and_longer_decodes(&request, decode_request);
        assert_truncated_fails_and_longer_decodes(&response, decode_response);
        survive_extreme_lengths(&request, |bytes| drop(decode_request(bytes)));
        survive_extreme_lengths(&response, |bytes| drop(decode_response(bytes)));
    }
}

#[test]
fn hostile_counts_are_named() {
    let decode = |version, bytes: &'static [u8]| {
        ProduceRequest::decode(version, &Bytes::from_static(bytes)).unwrap_err()
    };
    let what = "topic_data";
    let length = i32::MAX as u64;
    // Null transactional id, acks, timeout, then the number of topics.
    assert_eq!(
        decode(3, &[0xff, 0xff, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff]),
        DecodeError::LengthTooLarge { what, length, limit: 0 }
    );
    assert_eq!(
        decode(3, &[0xff, 0xff, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
        DecodeError::UnexpectedNull { what }
    );
    assert_eq!(
        decode(3, &[0xff, 0xff, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe]),
        DecodeError::NegativeLength { what, length: -2 }
    );
    assert_eq!(decode(9, &[0, 0, 1, 0, 0, 0, 1, 0]), DecodeError::UnexpectedNull { what });
    assert_eq!(
        decode(9, &[0, 0, 1, 0, 0, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        DecodeError::TooManyTags { what: "Produce request", count: u32::MAX }
    );
    for version in [2, 14, -1, i16::MAX] {
        assert_eq!(
            decode(version, &[]),
            DecodeError::UnsupportedVersion { what: "Produce request", version }
        );
    }
}
