use bytes::Bytes;
use kafka_protocol::messages as other;
use kafka_protocol::messages::metadata_request as other_request;
use kafka_protocol::messages::metadata_response as other_response;
use proptest::prelude::*;

use super::*;
use crate::DecodeError;
use crate::test_support::*;

fn requests() -> impl Strategy<Value = MetadataRequest> {
    let topic = (uuid(), nullable_name())
        .prop_map(|(topic_id, name)| MetadataRequestTopic { topic_id, name });
    (prop::option::of(some(topic)), any::<(bool, bool, bool)>()).prop_map(|(topics, flags)| {
        MetadataRequest {
            topics,
            allow_auto_topic_creation: flags.0,
            include_cluster_authorized_operations: flags.1,
            include_topic_authorized_operations: flags.2,
        }
    })
}

fn topics() -> impl Strategy<Value = MetadataTopic> {
    let ids = || some(any::<i32>());
    let partition = (error_code(), any::<(i32, i32, i32)>(), ids(), ids(), ids()).prop_map(
        |(error, fixed, replicas, isr, offline_replicas)| MetadataPartition {
            error,
            index: fixed.0,
            leader_id: fixed.1,
            leader_epoch: fixed.2,
            replicas,
            isr,
            offline_replicas,
        },
    );
    (error_code(), nullable_name(), uuid(), any::<bool>(), some(partition), any::<i32>()).prop_map(
        |(error, name, topic_id, is_internal, partitions, authorized_operations)| MetadataTopic {
            error,
            name,
            topic_id,
            is_internal,
            partitions,
            authorized_operations,
        },
    )
}

fn responses() -> impl Strategy<Value = MetadataResponse> {
    let broker = (any::<i32>(), name(), any::<i32>(), nullable_name())
        .prop_map(|(node_id, host, port, rack)| MetadataBroker { node_id, host, port, rack });
    (any::<(i32, i32, i32)>(), some(broker), nullable_name(), some(topics()), error_code())
        .prop_map(|(fixed, brokers, cluster_id, topics, error)| MetadataResponse {
            throttle_time_ms: fixed.0,
            brokers,
            cluster_id,
            controller_id: fixed.1,
            topics,
            cluster_authorized_operations: fixed.2,
            error,
        })
}

/// The same request of the other implementation, without fields that `version` lacks.
fn other_request(version: i16, ours: &MetadataRequest) -> other::MetadataRequest {
    let topic = |topic: &MetadataRequestTopic| {
        let theirs = other_request::MetadataRequestTopic::default();
        match version {
            10.. => theirs
                .with_topic_id(hex(topic.topic_id).parse().unwrap())
                .with_name(topic.name.as_deref().map(topic_name)),
            _ => theirs.with_name(Some(topic_name(topic.name.as_deref().unwrap_or_default()))),
        }
    };
    let topics: Option<Vec<_>> =
        ours.topics.as_ref().map(|topics| topics.iter().map(topic).collect());
    let topics = if version == 0 { Some(topics.unwrap_or_default()) } else { topics };
    let mut theirs = other::MetadataRequest::default().with_topics(topics);
    if version >= 4 {
        theirs = theirs.with_allow_auto_topic_creation(ours.allow_auto_topic_creation);
    }
    if version >= 8 {
        theirs = theirs
            .with_include_topic_authorized_operations(ours.include_topic_authorized_operations);
    }
    if (8..=10).contains(&version) {
        theirs = theirs
            .with_include_cluster_authorized_operations(ours.include_cluster_authorized_operations);
    }
    theirs
}

fn other_partition(
    version: i16,
    ours: &MetadataPartition,
) -> other_response::MetadataResponsePartition {
    let ids = |ids: &[i32]| ids.iter().map(|id| other::BrokerId(*id)).collect();
    let mut theirs = other_response::MetadataResponsePartition::default()
        .with_error_code(ours.error.0)
        .with_partition_index(ours.index)
        .with_leader_id(ours.leader_id.into())
        .with_replica_nodes(ids(&ours.replicas))
        .with_isr_nodes(ids(&ours.isr));
    if version >= 5 {
        theirs = theirs.with_offline_replicas(ids(&ours.offline_replicas));
    }
    if version >= 7 {
        theirs = theirs.with_leader_epoch(ours.leader_epoch);
    }
    theirs
}

fn other_topic(version: i16, ours: &MetadataTopic) -> other_response::MetadataResponseTopic {
    let partitions = ours.partitions.iter().map(|p| other_partition(version, p));
    let mut theirs = other_response::MetadataResponseTopic::default()
        .with_error_code(ours.error.0)
        .with_partitions(partitions.collect());
    theirs = match version {
        12.. => theirs.with_name(ours.name.as_deref().map(topic_name)),
        _ => theirs.with_name(Some(topic_name(ours.name.as_deref().unwrap_or_default()))),
    };
    if version >= 1 {
        theirs = theirs.with_is_internal(ours.is_internal);
    }
    if version >= 8 {
        theirs = theirs.with_topic_authorized_operations(ours.authorized_operations);
    }
    if version >= 10 {
        theirs = theirs.with_topic_id(hex(ours.topic_id).parse().unwrap());
    }
    theirs
}

fn other_response(version: i16, ours: &MetadataResponse) -> other::MetadataResponse {
    let broker = |broker: &MetadataBroker| {
        let theirs = other_response::MetadataResponseBroker::default()
            .with_node_id(broker.node_id.into())
            .with_host(text(&broker.host))
            .with_port(broker.port);
        match version {
            1.. => theirs.with_rack(nullable_text(broker.rack.as_ref())),
            _ => theirs,
        }
    };
    let mut theirs = other::MetadataResponse::default()
        .with_brokers(ours.brokers.iter().map(broker).collect())
        .with_topics(ours.topics.iter().map(|topic| other_topic(version, topic)).collect());
    if version >= 1 {
        theirs = theirs.with_controller_id(ours.controller_id.into());
    }
    if version >= 2 {
        theirs = theirs.with_cluster_id(nullable_text(ours.cluster_id.as_ref()));
    }
    if version >= 3 {
        theirs = theirs.with_throttle_time_ms(ours.throttle_time_ms);
    }
    if (8..=10).contains(&version) {
        theirs = theirs.with_cluster_authorized_operations(ours.cluster_authorized_operations);
    }
    if version >= 13 {
        theirs = theirs.with_error_code(ours.error.0);
    }
    theirs
}

fn request_bytes(version: i16, request: &MetadataRequest) -> Bytes {
    written(|w| request.encode(version, w))
}

fn response_bytes(version: i16, response: &MetadataResponse) -> Bytes {
    written(|w| response.encode(version, w))
}

fn sample_request() -> MetadataRequest {
    let topic =
        |name: &str| MetadataRequestTopic { topic_id: Uuid([4; 16]), name: Some(name.to_owned()) };
    MetadataRequest {
        topics: Some(vec![topic("first"), topic("second")]),
        allow_auto_topic_creation: true,
        include_cluster_authorized_operations: true,
        include_topic_authorized_operations: true,
    }
}

fn sample_response() -> MetadataResponse {
    let partition = MetadataPartition {
        error: ErrorCode::NONE,
        index: 1,
        leader_id: 2,
        leader_epoch: 3,
        replicas: vec![2, 3, 4],
        isr: vec![2, 3],
        offline_replicas: vec![4],
    };
    MetadataResponse {
        throttle_time_ms: 1,
        brokers: vec![MetadataBroker {
            node_id: 2,
            host: "broker".to_owned(),
            port: 9092,
            rack: Some("rack".to_owned()),
        }],
        cluster_id: Some("cluster".to_owned()),
        controller_id: 2,
        topics: vec![MetadataTopic {
            error: ErrorCode::NONE,
            name: Some("topic".to_owned()),
            topic_id: Uuid([5; 16]),
            is_internal: true,
            partitions: vec![partition.clone(), partition],
            authorized_operations: 7,
        }],
        cluster_authorized_operations: 8,
        error: ErrorCode::REBOOTSTRAP_REQUIRED,
    }
}

proptest! {
    #[test]
    fn requests_agree_with_the_other_implementation(request in requests()) {
        for version in VERSIONS {
            let bytes = request_bytes(version, &request);
            assert_same_as_other(version, &bytes, &other_request(version, &request));
            let decoded = MetadataRequest::decode(version, &bytes).unwrap();
            prop_assert_eq!(request_bytes(version, &decoded), bytes);
            if version == 10 {
                prop_assert_eq!(&decoded, &request);
            }
        }
    }

    #[test]
    fn responses_agree_with_the_other_implementation(response in responses()) {
        for version in VERSIONS {
            let bytes = response_bytes(version, &response);
            assert_same_as_other(version, &bytes, &other_response(version, &response));
            let decoded = MetadataResponse::decode(version, &bytes).unwrap();
            prop_assert_eq!(response_bytes(version, &decoded), bytes);
            if version == 13 {
                let expected = MetadataResponse {
                    cluster_authorized_operations: i32::MIN,
                    ..response.clone()
                };
                prop_assert_eq!(decoded, expected);
            }
        }
    }

    #[test]
    fn damage_does_no_harm(at: prop::sample::Index, byte: u8, version in VERSIONS) {
        for bytes in [request_bytes(version, &sample_request()),
                      response_bytes(version, &sample_response())] {
            let mut damaged = bytes.to_vec();
            damaged[at.index(bytes.len())] = byte;
            let damaged = damaged.into();
            let _ = MetadataRequest::decode(version, &damaged);
            let _ = MetadataResponse::decode(version, &damaged);
        }
    }
}

#[test]
fn every_topic_and_no_topic_are_distinct() {
    for version in VERSIONS {
        for (topics, expected) in [
            (None, None),
            // Version 0 has no way to ask for none.
            (Some(Vec::new()), if version == 0 { None } else { Some(Vec::new()) }),
        ] {
            let request = MetadataRequest { topics, ..sample_request() };
            let decoded =
                MetadataRequest::decode(version, &request_bytes(version, &request)).unwrap();
            assert_eq!(decoded.topics, expected, "version {version}");
        }
    }
}

#[test]
fn fields_a_version_lacks_get_their_defaults() {
    let without = MetadataRequest { allow_auto_topic_creation: false, ..sample_request() };
    let request = MetadataRequest::decode(3, &request_bytes(3, &without)).unwrap();
    assert!(request.allow_auto_topic_creation);
    assert!(!request.include_topic_authorized_operations);

    let response = MetadataResponse::decode(0, &response_bytes(0, &sample_response())).unwrap();
    let mut expected = MetadataResponse {
        throttle_time_ms: 0,
        cluster_id: None,
        controller_id: -1,
        cluster_authorized_operations: i32::MIN,
        error: ErrorCode::NONE,
        ..sample_response()
    };
    expected.brokers[0].rack = None;
    let topic = &mut expected.topics[0];
    topic.topic_id = Uuid::ZERO;
    topic.is_internal = false;
    topic.authorized_operations = i32::MIN;
    for partition in &mut topic.partitions {
        partition.leader_epoch = -1;
        partition.offline_replicas.clear();
    }
    assert_eq!(response, expected);
}

#[test]
fn truncated_and_extreme_messages_are_refused() {
    for version in VERSIONS {
        let request = request_bytes(version, &sample_request());
        let response = response_bytes(version, &sample_response());
        let decode_request = |bytes: &Bytes| MetadataRequest::decode(version, bytes);
        let decode_response = |bytes: &Bytes| MetadataResponse::decode(version, bytes);
        assert_truncated_fails_and_longer_decodes(&request, decode_request);
        assert_truncated_fails_and_longer_decodes(&response, decode_response);
        survive_extreme_lengths(&request, |bytes| drop(decode_request(bytes)));
        survive_extreme_lengths(&response, |bytes| drop(decode_response(bytes)));
    }
}

#[test]
fn hostile_counts_are_named() {
    let decode = |version, bytes: &'static [u8]| {
        MetadataResponse::decode(version, &Bytes::from_static(bytes)).unwrap_err()
    };
    let what = "brokers";
    let length = i32::MAX as u64;
    assert_eq!(
        decode(0, &[0x7f, 0xff, 0xff, 0xff]),
        DecodeError::LengthTooLarge { what, length, limit: 0 }
    );
    assert_eq!(decode(0, &[0xff, 0xff, 0xff, 0xff]), DecodeError::UnexpectedNull { what });
    assert_eq!(decode(9, &[0, 0, 0, 0, 0]), DecodeError::UnexpectedNull { what });
    assert_eq!(
        MetadataRequest::decode(0, &Bytes::from_static(&[0xff, 0xff, 0xff, 0xff])),
        Err(DecodeError::UnexpectedNull { what: "topics" })
    );
    for version in [-1, 14] {
        let what = "Metadata response";
        assert_eq!(decode(version, &[]), DecodeError::UnsupportedVersion { what, version });
    }
}
