use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, BrokerId, FindCoordinatorResponse, JoinGroupRequest,
    ListOffsetsResponse, SaslHandshakeRequest, SaslHandshakeResponse, TopicName,
};
use proptest::prelude::*;

use super::*;
use crate::header::{response_body, split_request};
use crate::test_support::{survive_extreme_lengths, text};

fn coordinators(version: i16) -> FindCoordinatorResponse {
    let response = FindCoordinatorResponse::default().with_throttle_time_ms(1_000_000);
    match version {
        4.. => response.with_coordinators(vec![
            Coordinator::default()
                .with_key(text("group"))
                .with_node_id(BrokerId(1_000_000_007))
                .with_host(text("broker"))
                .with_port(29_092),
        ]),
        _ => response
            .with_node_id(BrokerId(1_000_000_007))
            .with_host(text("broker"))
            .with_port(29_092),
    }
}

fn offsets(version: i16) -> ListOffsetsResponse {
    let mut partition = ListOffsetsPartitionResponse::default()
        .with_partition_index(2_000_000_000)
        .with_offset(7)
        .with_timestamp(8);
    if version >= 4 {
        partition = partition.with_leader_epoch(1_234_567);
    }
    let topic = ListOffsetsTopicResponse::default()
        .with_name(TopicName(text("topic")))
        .with_partitions(vec![partition.clone(), partition]);
    ListOffsetsResponse::default().with_topics(vec![topic])
}

fn join(version: i16) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(b"metadata"));
    let request = JoinGroupRequest::default()
        .with_group_id(text("group").into())
        .with_session_timeout_ms(45_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    match version {
        1.. => request.with_rebalance_timeout_ms(300_000),
        _ => request,
    }
}

#[test]
fn requests_are_decoded_by_the_other_side() {
    for version in 0..=9 {
        let frame = encode_request(version, 9, Some("client"), &join(version)).unwrap();
        let length = i32::from_be_bytes(frame[..4].try_into().unwrap());
        assert_eq!(usize::try_from(length), Ok(frame.len() - 4));
        let frame = Bytes::from(frame).slice(4..);
        let (header, body) = split_request(&frame).unwrap();
        let expected = RequestHeader {
            api: ApiKey::JOIN_GROUP,
            version,
            correlation_id: 9,
            client_id: Some("client"),
        };
        assert_eq!(header, expected);
        assert_eq!(decode_request::<JoinGroupRequest>(version, body).unwrap(), join(version));
    }
}

#[test]
fn responses_are_decoded_by_the_other_side() {
    for version in 0..=6 {
        let api = ApiKey::FIND_COORDINATOR;
        let mut response = coordinators(version);
        if version == 0 {
            response = response.with_throttle_time_ms(0);
        }
        let frame = encode_response(api, version, 9, &response).unwrap();
        let body = response_body(&Bytes::from(frame).slice(4..), api, version).unwrap();
        assert_eq!(decode_response::<FindCoordinatorResponse>(version, body).unwrap(), response);
    }
}

#[test]
fn responses_to_api_versions_have_the_bare_header() {
    let response = ApiVersionsResponse::default();
    let frame = encode_response(ApiKey::API_VERSIONS, 3, 9, &response).unwrap();
    assert_eq!(frame[4..8], 9_i32.to_be_bytes());
    assert_eq!(frame[8..10], [0, 0], "the error code follows the correlation id at once");
    let request = encode_request(3, 9, None, &ApiVersionsRequest::default()).unwrap();
    assert!(request.len() > 10);
}

#[test]
fn versions_without_codec_are_refused() {
    assert_eq!(versions(ApiKey::FIND_COORDINATOR), Some(0..=6));
    assert_eq!(versions(ApiKey(999)), None);
    let request = SaslHandshakeRequest::default();
    assert!(matches!(
        encode_request(2, 0, None, &request),
        Err(ColdError::UnsupportedVersion { message: "SaslHandshakeRequest", version: 2 })
    ));
    assert!(matches!(
        decode_request::<SaslHandshakeRequest>(-1, Bytes::new()),
        Err(ColdError::UnsupportedVersion { .. })
    ));
}

#[test]
fn fields_a_version_lacks_are_an_error() {
    let request = join(1).with_group_instance_id(Some(text("static")));
    let error = encode_request(1, 0, None, &request).unwrap_err();
    assert!(matches!(error, ColdError::Encode { message: "JoinGroupRequest", version: 1, .. }));
}

#[test]
fn truncated_messages_are_refused_and_trailing_bytes_ignored() {
    for version in 1..=10 {
        let bytes = encode(version, &offsets(version)).unwrap();
        for end in 0..bytes.len() {
            let cut = decode::<ListOffsetsResponse>(version, bytes.slice(..end));
            assert!(matches!(cut, Err(ColdError::Decode { .. })), "version {version}, {end}");
        }
        let longer = Bytes::from([&bytes[..], &[1, 0, 0]].concat());
        assert_eq!(decode::<ListOffsetsResponse>(version, longer).unwrap(), offsets(version));
        assert_eq!(decode::<ListOffsetsResponse>(version, bytes).unwrap(), offsets(version));
    }
}

#[test]
fn claimed_lengths_are_not_allocated() {
    for version in 0..=9 {
        let bytes = encode(version, &join(version)).unwrap();
        survive_extreme_lengths(&bytes, |b| drop(decode::<JoinGroupRequest>(version, b.clone())));
    }
    for version in 1..=10 {
        let bytes = encode(version, &offsets(version)).unwrap();
        survive_extreme_lengths(&bytes, |b| {
            drop(decode::<ListOffsetsResponse>(version, b.clone()));
        });
    }
    for version in 1..=6 {
        let bytes = encode(version, &coordinators(version)).unwrap();
        survive_extreme_lengths(&bytes, |b| {
            drop(decode::<FindCoordinatorResponse>(version, b.clone()));
        });
    }
}

#[test]
fn hostile_array_lengths_are_refused() {
    // Error code, then the number of mechanisms.
    for length in [[0x7f, 0xff, 0xff, 0xff], [0x00, 0x10, 0x00, 0x01]] {
        let body = Bytes::from([&[0, 0][..], &length].concat());
        let error = decode::<SaslHandshakeResponse>(0, body).unwrap_err();
        assert!(matches!(error, ColdError::Decode { .. }), "{error}");
    }
    // Throttle time, then a compact array of 2³²-2 topics; the same after a boolean that is not one.
    let body = Bytes::from_static(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert!(decode::<ListOffsetsResponse>(6, body).is_err());
}

#[test]
fn large_messages_are_refused_unread() {
    let body = Bytes::from(vec![0; MAX_MESSAGE + 1]);
    let error = decode::<JoinGroupRequest>(9, body).unwrap_err();
    assert!(matches!(error, ColdError::TooLarge { .. }));
}

/// A FindCoordinator response of version 4 without coordinators, with these tagged fields.
fn with_tagged_fields(tags: impl Iterator<Item = u8>) -> Bytes {
    let mut fields = Vec::new();
    let mut count = 0_u32;
    for size in tags {
        count += 1;
        fields.extend([
            (count & 0x7f) as u8 | 0x80,
            (count >> 7 & 0x7f) as u8 | 0x80,
            (count >> 14) as u8,
        ]);
        fields.push(size);
        fields.extend(std::iter::repeat_n(7, size.into()));
    }
    let count =
        [(count & 0x7f) as u8 | 0x80, (count >> 7 & 0x7f) as u8 | 0x80, (count >> 14) as u8];
    Bytes::from([&[0, 0, 0, 0, 1][..], &count, &fields].concat())
}

#[test]
fn unknown_tagged_fields_are_limited_for_each_structure() {
    let limit = MAX_TAGS as usize;
    for size in [0, 1, 100] {
        let decoded = |count| {
            let body = with_tagged_fields(std::iter::repeat_n(size, count));
            decode::<messages::FindCoordinatorResponse>(4, body).is_ok()
        };
        assert!(decoded(0) && decoded(1) && decoded(limit), "of {size} bytes");
        assert!(!decoded(limit + 1) && !decoded(100_000), "of {size} bytes");
    }
}

#[test]
fn unknown_tagged_fields_of_many_structures_are_limited_by_the_message() {
    // Each topic: an empty name, no partitions, one unknown field.
    let body = |topics: u32| {
        let count = topics + 1;
        let count =
            [(count & 0x7f) as u8 | 0x80, (count >> 7 & 0x7f) as u8 | 0x80, (count >> 14) as u8];
        let topic = [1, 1, 1, 9, 0];
        Bytes::from([&[0, 0, 0, 0][..], &count, &topic.repeat(topics as usize), &[0]].concat())
    };
    let decoded = |topics| decode::<ListOffsetsResponse>(6, body(topics)).is_ok();
    assert!(decoded(1) && decoded(MAX_TAGS + 1) && decoded(MAX_UNKNOWN));
    assert!(!decoded(MAX_UNKNOWN + 1));
}

#[test]
fn strings_are_no_tagged_fields() {
    let names: Vec<_> =
        (0..5000).map(|n| StrBytes::from_string(format!("mechanism-{n}"))).collect();
    let key = |name: &StrBytes| {
        messages::find_coordinator_response::Coordinator::default().with_key(name.clone())
    };
    let answer = messages::FindCoordinatorResponse::default()
        .with_coordinators(names.iter().map(key).collect());
    let body = encode(4, &answer).unwrap();
    assert_eq!(decode::<messages::FindCoordinatorResponse>(4, body).unwrap(), answer);
}

/// Decodes arbitrary bytes as every response of an API a client is likely to read.
fn decode_as_anything(version: i16, body: &Bytes) {
    macro_rules! as_each {
        ($($message:ident)*) => {
            $(drop(decode::<messages::$message>(version, body.clone()));)*
        };
    }
    as_each!(
        ApiVersionsResponse CreateTopicsRequest CreateTopicsResponse DescribeConfigsResponse
        FetchResponse FindCoordinatorResponse InitProducerIdResponse JoinGroupResponse
        ListOffsetsRequest MetadataRequest MetadataResponse OffsetCommitRequest OffsetFetchResponse
        ProduceResponse SyncGroupRequest ConsumerGroupHeartbeatRequest
        ConsumerGroupHeartbeatResponse ConsumerGroupDescribeResponse DescribeGroupsResponse
        TxnOffsetCommitRequest AddPartitionsToTxnRequest DescribeTopicPartitionsResponse
    );
}

proptest! {
    #[test]
    fn no_bytes_do_harm(
        version in 0_i16..14,
        bytes in prop::collection::vec(
            prop_oneof![Just(0_u8), Just(1), Just(2), Just(0x7f), Just(0xff), any::<u8>()],
            0..60,
        ),
    ) {
        decode_as_anything(version, &bytes.into());
    }
}
