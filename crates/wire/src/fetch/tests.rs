use bytes::Bytes;
use kafka_protocol::messages as other;
use kafka_protocol::messages::fetch_request as other_request;
use kafka_protocol::messages::fetch_response as other_response;
use kafka_protocol::protocol::Encodable;
use proptest::prelude::*;

use super::*;
use crate::header::encode_response_header;
use crate::produce::tests::{endpoints, leaders};
use crate::test_support::*;
use crate::{ApiKey, DecodeError, Writer};

fn requests() -> impl Strategy<Value = FetchRequest> {
    let partition =
        (any::<i32>(), any::<i32>(), any::<i64>(), any::<i32>(), any::<i64>(), any::<i32>())
            .prop_map(|(index, current_leader_epoch, fetch_offset, epoch, start, max_bytes)| {
                FetchPartition {
                    index,
                    current_leader_epoch,
                    fetch_offset,
                    last_fetched_epoch: epoch,
                    log_start_offset: start,
                    max_bytes,
                }
            });
    let topic = (name(), uuid(), some(partition))
        .prop_map(|(name, topic_id, partitions)| FetchTopic { name, topic_id, partitions });
    let forgotten = (name(), uuid(), some(any::<i32>()))
        .prop_map(|(name, topic_id, partitions)| ForgottenTopic { name, topic_id, partitions });
    (
        any::<(i32, i64, i32, i32, i32, bool, i32, i32)>(),
        some(topic),
        some(forgotten),
        prop_oneof![Just(String::new()), name()],
    )
        .prop_map(|(fixed, topics, forgotten, rack_id)| FetchRequest {
            replica_id: fixed.0,
            replica_epoch: fixed.1,
            max_wait_ms: fixed.2,
            min_bytes: fixed.3,
            max_bytes: fixed.4,
            isolation_level: match fixed.5 {
                true => IsolationLevel::ReadCommitted,
                false => IsolationLevel::ReadUncommitted,
            },
            session_id: fixed.6,
            session_epoch: fixed.7,
            topics,
            forgotten,
            rack_id,
        })
}

fn partition_responses() -> impl Strategy<Value = FetchPartitionResponse> {
    let diverging = (0..i32::MAX, any::<i64>())
        .prop_map(|(epoch, end_offset)| EpochEndOffset { epoch, end_offset });
    let aborted = any::<(i64, i64)>()
        .prop_map(|(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset });
    (
        any::<(i32, i64, i64, i64, i32)>(),
        error_code(),
        prop::option::of(diverging),
        leaders(),
        prop::option::of(some(aborted)),
        payload(),
    )
        .prop_map(|(fixed, error, diverging_epoch, current_leader, aborted, records)| {
            FetchPartitionResponse {
                index: fixed.0,
                error,
                high_watermark: fixed.1,
                last_stable_offset: fixed.2,
                log_start_offset: fixed.3,
                diverging_epoch,
                current_leader,
                aborted_transactions: aborted,
                preferred_read_replica: fixed.4,
                records,
            }
        })
}

fn responses() -> impl Strategy<Value = FetchResponse> {
    let topic = (name(), uuid(), some(partition_responses()))
        .prop_map(|(name, topic_id, partitions)| FetchTopicResponse { name, topic_id, partitions });
    (any::<(i32, i32)>(), error_code(), some(topic), endpoints()).prop_map(
        |((throttle_time_ms, session_id), error, topics, node_endpoints)| FetchResponse {
            throttle_time_ms,
            error,
            session_id,
            topics,
            node_endpoints,
        },
    )
}

fn other_fetch_partition(version: i16, ours: &FetchPartition) -> other_request::FetchPartition {
    let mut theirs = other_request::FetchPartition::default()
        .with_partition(ours.index)
        .with_fetch_offset(ours.fetch_offset)
        .with_partition_max_bytes(ours.max_bytes);
    if version >= 5 {
        theirs = theirs.with_log_start_offset(ours.log_start_offset);
    }
    if version >= 9 {
        theirs = theirs.with_current_leader_epoch(ours.current_leader_epoch);
    }
    if version >= 12 {
        theirs = theirs.with_last_fetched_epoch(ours.last_fetched_epoch);
    }
    theirs
}

/// The same request of the other implementation, without fields that `version` lacks.
fn other_request(version: i16, ours: &FetchRequest) -> other::FetchRequest {
    let topic = |topic: &FetchTopic| {
        let partitions = topic.partitions.iter().map(|p| other_fetch_partition(version, p));
        let theirs = other_request::FetchTopic::default().with_partitions(partitions.collect());
        match version {
            13.. => theirs.with_topic_id(hex(topic.topic_id).parse().unwrap()),
            _ => theirs.with_topic(topic_name(&topic.name)),
        }
    };
    let forgotten = |topic: &ForgottenTopic| {
        let theirs =
            other_request::ForgottenTopic::default().with_partitions(topic.partitions.clone());
        match version {
            13.. => theirs.with_topic_id(hex(topic.topic_id).parse().unwrap()),
            _ => theirs.with_topic(topic_name(&topic.name)),
        }
    };
    let mut theirs = other::FetchRequest::default()
        .with_max_wait_ms(ours.max_wait_ms)
        .with_min_bytes(ours.min_bytes)
        .with_max_bytes(ours.max_bytes)
        .with_isolation_level(i8::from(ours.isolation_level == IsolationLevel::ReadCommitted))
        .with_topics(ours.topics.iter().map(topic).collect());
    if version >= 7 {
        theirs = theirs
            .with_session_id(ours.session_id)
            .with_session_epoch(ours.session_epoch)
            .with_forgotten_topics_data(ours.forgotten.iter().map(forgotten).collect());
    }
    if version >= 11 {
        theirs = theirs.with_rack_id(text(&ours.rack_id));
    }
    match version {
        15.. => theirs.with_replica_state(
            other_request::ReplicaState::default()
                .with_replica_id(ours.replica_id.into())
                .with_replica_epoch(ours.replica_epoch),
        ),
        _ => theirs.with_replica_id(ours.replica_id.into()),
    }
}

fn other_partition(version: i16, ours: &FetchPartitionResponse) -> other_response::PartitionData {
    let aborted = |aborted: &AbortedTransaction| {
        other_response::AbortedTransaction::default()
            .with_producer_id(aborted.producer_id.into())
            .with_first_offset(aborted.first_offset)
    };
    let mut theirs = other_response::PartitionData::default()
        .with_partition_index(ours.index)
        .with_error_code(ours.error.0)
        .with_high_watermark(ours.high_watermark)
        .with_last_stable_offset(ours.last_stable_offset)
        .with_aborted_transactions(
            ours.aborted_transactions.as_ref().map(|all| all.iter().map(aborted).collect()),
        )
        .with_records(Some(ours.records.clone()));
    if version >= 5 {
        theirs = theirs.with_log_start_offset(ours.log_start_offset);
    }
    if version >= 11 {
        theirs = theirs.with_preferred_read_replica(ours.preferred_read_replica.into());
    }
    if version < 12 {
        return theirs;
    }
    if let Some(diverging) = ours.diverging_epoch {
        theirs = theirs.with_diverging_epoch(
            other_response::EpochEndOffset::default()
                .with_epoch(diverging.epoch)
                .with_end_offset(diverging.end_offset),
        );
    }
    if let Some(leader) = ours.current_leader {
        theirs = theirs.with_current_leader(
            other_response::LeaderIdAndEpoch::default()
                .with_leader_id(leader.leader_id.into())
                .with_leader_epoch(leader.leader_epoch),
        );
    }
    theirs
}

fn other_response(version: i16, ours: &FetchResponse) -> other::FetchResponse {
    let topic = |topic: &FetchTopicResponse| {
        let partitions = topic.partitions.iter().map(|p| other_partition(version, p));
        let theirs =
            other_response::FetchableTopicResponse::default().with_partitions(partitions.collect());
        match version {
            13.. => theirs.with_topic_id(hex(topic.topic_id).parse().unwrap()),
            _ => theirs.with_topic(topic_name(&topic.name)),
        }
    };
    let endpoint = |endpoint: &NodeEndpoint| {
        other_response::NodeEndpoint::default()
            .with_node_id(endpoint.node_id.into())
            .with_host(text(&endpoint.host))
            .with_port(endpoint.port)
            .with_rack(nullable_text(endpoint.rack.as_ref()))
    };
    let mut theirs = other::FetchResponse::default()
        .with_throttle_time_ms(ours.throttle_time_ms)
        .with_responses(ours.topics.iter().map(topic).collect());
    if version >= 7 {
        theirs = theirs.with_error_code(ours.error.0).with_session_id(ours.session_id);
    }
    if version >= 16 {
        theirs = theirs.with_node_endpoints(ours.node_endpoints.iter().map(endpoint).collect());
    }
    theirs
}

fn request_bytes(version: i16, request: &FetchRequest) -> Bytes {
    written(|w| request.encode(version, w))
}

fn response_bytes(version: i16, response: &FetchResponse) -> Bytes {
    written(|w| response.encode(version, w))
}

fn sample_request() -> FetchRequest {
    let partition = FetchPartition {
        index: 1,
        current_leader_epoch: 2,
        fetch_offset: 3,
        last_fetched_epoch: 4,
        log_start_offset: 5,
        max_bytes: 6,
    };
    FetchRequest {
        replica_id: 7,
        replica_epoch: 8,
        max_wait_ms: 9,
        min_bytes: 10,
        max_bytes: 11,
        isolation_level: IsolationLevel::ReadCommitted,
        session_id: 12,
        session_epoch: 13,
        topics: vec![FetchTopic {
            name: "topic".to_owned(),
            topic_id: Uuid([1; 16]),
            partitions: vec![partition, partition],
        }],
        forgotten: vec![ForgottenTopic {
            name: "gone".to_owned(),
            topic_id: Uuid([2; 16]),
            partitions: vec![1, 2, 3],
        }],
        rack_id: "rack".to_owned(),
    }
}

fn sample_response() -> FetchResponse {
    let partition = FetchPartitionResponse {
        index: 1,
        error: ErrorCode::NONE,
        high_watermark: 100,
        last_stable_offset: 90,
        log_start_offset: 10,
        diverging_epoch: Some(EpochEndOffset { epoch: 3, end_offset: 50 }),
        current_leader: Some(LeaderIdAndEpoch { leader_id: 1, leader_epoch: 4 }),
        aborted_transactions: Some(vec![AbortedTransaction { producer_id: 5, first_offset: 60 }]),
        preferred_read_replica: 2,
        records: Bytes::from_static(b"records"),
    };
    let empty = FetchPartitionResponse { records: Bytes::new(), ..partition.clone() };
    FetchResponse {
        throttle_time_ms: 1,
        error: ErrorCode::NONE,
        session_id: 2,
        topics: vec![FetchTopicResponse {
            name: "topic".to_owned(),
            topic_id: Uuid([3; 16]),
            partitions: vec![partition.clone(), empty, partition],
        }],
        node_endpoints: vec![NodeEndpoint {
            node_id: 1,
            host: "broker".to_owned(),
            port: 9092,
            rack: None,
        }],
    }
}

proptest! {
    #[test]
    fn requests_agree_with_the_other_implementation(request in requests()) {
        for version in VERSIONS {
            let bytes = request_bytes(version, &request);
            assert_same_as_other(version, &bytes, &other_request(version, &request));
            let decoded = FetchRequest::decode(version, &bytes).unwrap();
            prop_assert_eq!(request_bytes(version, &decoded), bytes);
            if version >= 17 {
                let mut expected = request.clone();
                expected.topics.iter_mut().for_each(|topic| topic.name.clear());
                expected.forgotten.iter_mut().for_each(|topic| topic.name.clear());
                prop_assert_eq!(decoded, expected);
            }
        }
    }

    #[test]
    fn responses_agree_with_the_other_implementation(response in responses()) {
        for version in VERSIONS {
            let bytes = response_bytes(version, &response);
            assert_same_as_other(version, &bytes, &other_response(version, &response));
            let decoded = FetchResponse::decode(version, &bytes).unwrap();
            prop_assert_eq!(response_bytes(version, &decoded), bytes);
            if version >= 17 {
                let mut expected = response.clone();
                expected.topics.iter_mut().for_each(|topic| topic.name.clear());
                prop_assert_eq!(decoded, expected);
            }
        }
    }

    #[test]
    fn frames_are_the_response_and_share_its_records(
        version in VERSIONS, response in responses(), correlation_id: i32,
    ) {
        let mut expected = Writer::default();
        expected.i32(0);
        encode_response_header(ApiKey::FETCH, version, correlation_id, &mut expected);
        response.encode(version, &mut expected);
        expected.patch_i32(0, i32::try_from(expected.len() - 4).unwrap());
        let mut out = vec![Bytes::from_static(b"an earlier frame")];
        let length = response.encode_frame(version, correlation_id, &mut out);
        prop_assert_eq!(out[1..].concat(), expected.as_slice());
        prop_assert_eq!(length, expected.len());
        let sections = response.topics.iter().flat_map(|topic| &topic.partitions);
        let sections = sections.map(|partition| &partition.records).filter(|r| !r.is_empty());
        for (records, part) in sections.zip(out[1..].iter().skip(1).step_by(2)) {
            prop_assert_eq!(part.as_ptr(), records.as_ptr(), "copied");
        }
    }

    #[test]
    fn damage_does_no_harm(at: prop::sample::Index, byte: u8, version in VERSIONS) {
        for bytes in [request_bytes(version, &sample_request()),
                      response_bytes(version, &sample_response())] {
            let mut damaged = bytes.to_vec();
            damaged[at.index(bytes.len())] = byte;
            let damaged = damaged.into();
            let _ = FetchRequest::decode(version, &damaged);
            let _ = FetchResponse::decode(version, &damaged);
        }
    }
}

#[test]
fn fields_a_version_lacks_get_their_defaults() {
    let request = FetchRequest::decode(4, &request_bytes(4, &sample_request())).unwrap();
    let expected = FetchRequest {
        replica_epoch: -1,
        session_id: 0,
        session_epoch: -1,
        forgotten: Vec::new(),
        rack_id: String::new(),
        ..sample_request()
    };
    assert_eq!(FetchRequest { topics: sample_request().topics, ..request.clone() }, expected);
    let FetchPartition { current_leader_epoch, last_fetched_epoch, log_start_offset, .. } =
        request.topics[0].partitions[0];
    assert_eq!((current_leader_epoch, last_fetched_epoch, log_start_offset), (-1, -1, -1));
    assert_eq!(request.topics[0].topic_id, Uuid::ZERO);

    let response = FetchResponse::decode(4, &response_bytes(4, &sample_response())).unwrap();
    assert_eq!((response.session_id, response.error), (0, ErrorCode::NONE));
    let partition = FetchPartitionResponse {
        log_start_offset: -1,
        diverging_epoch: None,
        current_leader: None,
        preferred_read_replica: -1,
        ..sample_response().topics[0].partitions[0].clone()
    };
    assert_eq!(response.topics[0].partitions[0], partition);
}

#[test]
fn a_consumer_sends_no_replica_state() {
    let request = FetchRequest { replica_id: -1, replica_epoch: -1, ..sample_request() };
    let bytes = request_bytes(17, &request);
    assert_eq!(bytes.last(), Some(&0));
    let decoded = FetchRequest::decode(17, &bytes).unwrap();
    assert_eq!((decoded.replica_id, decoded.replica_epoch), (-1, -1));
}

#[test]
fn tags_of_no_use_here_are_skipped() {
    let mut theirs = other_request(17, &sample_request()).with_cluster_id(Some(text("cluster")));
    let partition = &mut theirs.topics[0].partitions[0];
    *partition = partition.clone().with_replica_directory_id(hex(Uuid([9; 16])).parse().unwrap());
    let mut bytes = Vec::new();
    theirs.encode(&mut bytes, 17).unwrap();
    let decoded = FetchRequest::decode(17, &bytes.into()).unwrap();
    assert_eq!(decoded.replica_id, 7);
    assert_eq!(decoded.topics[0].partitions, sample_request().topics[0].partitions);

    let mut theirs = other_response(17, &sample_response());
    let partition = &mut theirs.responses[0].partitions[0];
    *partition = partition
        .clone()
        .with_records(None)
        .with_snapshot_id(other_response::SnapshotId::default().with_epoch(1).with_end_offset(2))
        .with_unknown_tagged_fields([(9, Bytes::from_static(b"future"))].into());
    let mut bytes = Vec::new();
    theirs.encode(&mut bytes, 17).unwrap();
    let decoded = FetchResponse::decode(17, &bytes.into()).unwrap();
    let mut expected = sample_response().topics[0].partitions[0].clone();
    expected.records = Bytes::new();
    assert_eq!(decoded.topics[0].partitions[0], expected);
}

#[test]
fn truncated_and_extreme_messages_are_refused() {
    for version in VERSIONS {
        let request = request_bytes(version, &sample_request());
        let response = response_bytes(version, &sample_response());
        let decode_request = |bytes: &Bytes| FetchRequest::decode(version, bytes);
        let decode_response = |bytes: &Bytes| FetchResponse::decode(version, bytes);
        assert_truncated_fails_and_longer_decodes(&request, decode_request);
        assert_truncated_fails_and_longer_decodes(&response, decode_response);
        survive_extreme_lengths(&request, |bytes| drop(decode_request(bytes)));
        survive_extreme_lengths(&response, |bytes| drop(decode_response(bytes)));
    }
}

#[test]
fn hostile_values_are_named() {
    let mut bytes = request_bytes(4, &sample_request()).to_vec();
    bytes[16] = 2;
    assert_eq!(
        FetchRequest::decode(4, &bytes.into()),
        Err(DecodeError::InvalidValue { what: "isolation_level", value: 2 })
    );
    let what = "responses";
    let decode = |version, bytes: &'static [u8]| {
        FetchResponse::decode(version, &Bytes::from_static(bytes)).unwrap_err()
    };
    assert_eq!(
        decode(4, &[0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]),
        DecodeError::LengthTooLarge { what, length: i32::MAX as u64, limit: 0 }
    );
    assert_eq!(
        decode(12, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        DecodeError::UnexpectedNull { what }
    );
    for version in [3, 19] {
        let what = "Fetch response";
        assert_eq!(decode(version, &[]), DecodeError::UnsupportedVersion { what, version });
    }
}
