use bytes::BytesMut;
use curtail_wire::{
    ErrorCode, Uuid,
    cold::{
        self, Encodable, Message, StrBytes,
        messages::{
            BrokerId, DescribeClusterResponse, DescribeQuorumResponse, FindCoordinatorResponse,
            ShareAcknowledgeResponse, ShareFetchResponse,
            describe_cluster_response::DescribeClusterBroker,
            describe_quorum_response::{
                Listener, Node as QuorumNode, PartitionData, ReplicaState, TopicData,
            },
            find_coordinator_response::Coordinator,
            share_acknowledge_response, share_fetch_response,
        },
    },
    fetch::{AbortedTransaction, FetchPartitionResponse, FetchResponse, FetchTopicResponse},
    frame::FrameSplitter,
    header::encode_response_header,
    metadata::{MetadataBroker, MetadataResponse, MetadataTopic},
    produce::{
        BatchIndexError, LeaderIdAndEpoch, NodeEndpoint, ProducePartitionResponse, ProduceResponse,
        ProduceTopicResponse,
    },
};

use super::*;

/// The addresses before and after: hosts of other lengths, so that all positions move.
const BEFORE: [(&str, u16); 2] = [("kafka-1.example.com", 9092), ("k", 19_093)];
const AFTER: [(&str, u16); 2] = [("127.0.0.1", 40_001), ("127.0.0.1", 40_002)];

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn own(api: ApiKey, version: i16, encode: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::with_capacity(256);
    encode_response_header(api, version, 7, &mut w);
    encode(&mut w);
    w.into_bytes()
}

fn cold<T: Encodable + Message>(api: ApiKey, version: i16, response: &T) -> Bytes {
    Bytes::from(cold::encode_response(api, version, 7, response).unwrap()).slice(4..)
}

/// Node endpoints with ids from 1.
fn endpoints(at: &[(&str, u16)]) -> Vec<NodeEndpoint> {
    let endpoint = |((host, port), id): (&(&str, u16), i32)| NodeEndpoint {
        node_id: id,
        host: (*host).to_owned(),
        port: i32::from(*port),
        rack: Some("r".to_owned()),
    };
    at.iter().zip(1..).map(endpoint).collect()
}

fn metadata(version: i16, at: &[(&str, u16)]) -> Bytes {
    let rack = (version >= 1).then(|| "r".to_owned());
    let brokers = endpoints(at).into_iter().map(|endpoint| MetadataBroker {
        node_id: endpoint.node_id,
        host: endpoint.host,
        port: endpoint.port,
        rack: rack.clone(),
    });
    let topic =
        MetadataTopic { name: Some("t".into()), topic_id: Uuid([3; 16]), ..Default::default() };
    let response = MetadataResponse {
        brokers: brokers.collect(),
        cluster_id: Some("c".into()),
        topics: vec![topic],
        ..MetadataResponse::default()
    };
    own(ApiKey::METADATA, version, |w| response.encode(version, w))
}

fn produce(version: i16, at: &[(&str, u16)]) -> Bytes {
    let partition = ProducePartitionResponse {
        index: 3,
        error: ErrorCode::NOT_LEADER_OR_FOLLOWER,
        record_errors: vec![BatchIndexError { batch_index: 1, message: Some("m".into()) }],
        error_message: Some("e".into()),
        current_leader: Some(LeaderIdAndEpoch { leader_id: 1, leader_epoch: 2 }),
        ..ProducePartitionResponse::default()
    };
    let topic = ProduceTopicResponse {
        name: "topic".into(),
        topic_id: Uuid([9; 16]),
        partitions: vec![partition.clone(), partition],
    };
    let node_endpoints = endpoints(at);
    let response = ProduceResponse { topics: vec![topic], throttle_time_ms: 5, node_endpoints };
    own(ApiKey::PRODUCE, version, |w| response.encode(version, w))
}

fn fetch(version: i16, at: &[(&str, u16)]) -> Bytes {
    let refused = FetchPartitionResponse {
        index: 1,
        error: ErrorCode::FENCED_LEADER_EPOCH,
        current_leader: Some(LeaderIdAndEpoch { leader_id: 1, leader_epoch: 2 }),
        ..FetchPartitionResponse::default()
    };
    let read = FetchPartitionResponse {
        index: 2,
        aborted_transactions: Some(vec![AbortedTransaction { producer_id: 1, first_offset: 2 }]),
        records: Bytes::from(vec![0x5a; 300]),
        ..FetchPartitionResponse::default()
    };
    let topic = FetchTopicResponse {
        name: "topic".into(),
        topic_id: Uuid([9; 16]),
        partitions: vec![refused, read],
    };
    let response = FetchResponse {
        session_id: 9,
        topics: vec![topic],
        node_endpoints: endpoints(at),
        ..FetchResponse::default()
    };
    own(ApiKey::FETCH, version, |w| response.encode(version, w))
}

fn find_coordinator(version: i16, at: &[(&str, u16)]) -> Bytes {
    let response = FindCoordinatorResponse::default();
    let response = match version {
        ..4 => response
            .with_node_id(BrokerId(1))
            .with_host(text(at[0].0))
            .with_port(i32::from(at[0].1))
            .with_error_message((version >= 1).then(|| text("m"))),
        _ => {
            let coordinators = at.iter().zip(1..).map(|((host, port), id)| {
                Coordinator::default()
                    .with_key(text("group"))
                    .with_node_id(BrokerId(id))
                    .with_host(text(host))
                    .with_port(i32::from(*port))
                    .with_error_message(Some(text("m")))
            });
            response.with_coordinators(coordinators.collect())
        }
    };
    cold(ApiKey::FIND_COORDINATOR, version, &response)
}

fn describe_cluster(version: i16, at: &[(&str, u16)], endpoint_type: i8) -> Bytes {
    let brokers = at.iter().zip(1..).map(|((host, port), id)| {
        DescribeClusterBroker::default()
            .with_broker_id(BrokerId(id))
            .with_host(text(host))
            .with_port(i32::from(*port))
            .with_rack(Some(text("r")))
            .with_is_fenced(version >= 2)
    });
    let response = DescribeClusterResponse::default()
        .with_cluster_id(text("c"))
        .with_endpoint_type(endpoint_type)
        .with_brokers(brokers.collect());
    cold(ApiKey::DESCRIBE_CLUSTER, version, &response)
}

fn describe_quorum(version: i16, at: &[(&str, u16)]) -> Bytes {
    let replica = ReplicaState::default().with_replica_id(BrokerId(1)).with_log_end_offset(3);
    let partition = PartitionData::default()
        .with_current_voters(vec![replica.clone(), replica.clone()])
        .with_observers(vec![replica]);
    let topic = TopicData::default().with_partitions(vec![partition]);
    let response = DescribeQuorumResponse::default().with_topics(vec![topic]);
    let nodes = at.iter().zip(1..).map(|((host, port), id)| {
        let listener = Listener::default()
            .with_name(text("CONTROLLER"))
            .with_host(text(host))
            .with_port(*port);
        QuorumNode::default().with_node_id(BrokerId(id)).with_listeners(vec![listener])
    });
    let response = match version {
        ..2 => response,
        _ => response.with_nodes(nodes.collect()),
    };
    cold(ApiKey::DESCRIBE_QUORUM, version, &response)
}

fn share_fetch(version: i16, at: &[(&str, u16)]) -> Bytes {
    use share_fetch_response::{
        AcquiredRecords, NodeEndpoint, PartitionData, ShareFetchableTopicResponse,
    };
    let partition = PartitionData::default()
        .with_error_message(Some(text("m")))
        .with_records(Some(Bytes::from_static(b"records")))
        .with_acquired_records(vec![AcquiredRecords::default(), AcquiredRecords::default()]);
    let topic = ShareFetchableTopicResponse::default().with_partitions(vec![partition]);
    let nodes = at.iter().zip(1..).map(|((host, port), id)| {
        NodeEndpoint::default()
            .with_node_id(BrokerId(id))
            .with_host(text(host))
            .with_port(i32::from(*port))
    });
    let response = ShareFetchResponse::default()
        .with_responses(vec![topic])
        .with_node_endpoints(nodes.collect());
    cold(ApiKey::SHARE_FETCH, version, &response)
}

fn share_acknowledge(version: i16, at: &[(&str, u16)]) -> Bytes {
    use share_acknowledge_response::{NodeEndpoint, PartitionData, ShareAcknowledgeTopicResponse};
    let partition = PartitionData::default().with_error_message(Some(text("m")));
    let topic = ShareAcknowledgeTopicResponse::default().with_partitions(vec![partition]);
    let nodes = at.iter().zip(1..).map(|((host, port), id)| {
        NodeEndpoint::default()
            .with_node_id(BrokerId(id))
            .with_host(text(host))
            .with_port(i32::from(*port))
    });
    let response = ShareAcknowledgeResponse::default()
        .with_responses(vec![topic])
        .with_node_endpoints(nodes.collect());
    cold(ApiKey::SHARE_ACKNOWLEDGE, version, &response)
}

type Build = fn(i16, &[(&str, u16)]) -> Bytes;

/// Every API with addresses, the versions of Kafka 4.3 and earlier that have a codec here, and the first
/// version that names addresses.
const ALL: &[(ApiKey, std::ops::RangeInclusive<i16>, i16, Build)] = &[
    (ApiKey::PRODUCE, 3..=13, 10, produce),
    (ApiKey::FETCH, 4..=18, 16, fetch),
    (ApiKey::METADATA, 0..=13, 0, metadata),
    (ApiKey::FIND_COORDINATOR, 0..=6, 0, find_coordinator),
    (ApiKey::DESCRIBE_QUORUM, 0..=2, 2, describe_quorum),
    (ApiKey::DESCRIBE_CLUSTER, 0..=2, 0, |version, at| describe_cluster(version, at, 1)),
    (ApiKey::SHARE_FETCH, 1..=1, 0, share_fetch),
    (ApiKey::SHARE_ACKNOWLEDGE, 1..=1, 0, share_acknowledge),
];

fn replaced(api: ApiKey, version: i16, frame: &Bytes, places: &[(&str, u16)]) -> Bytes {
    let found = find(api, version, frame).unwrap();
    let mut out = Vec::new();
    replace(frame, api.encoding(version), &found, places, &mut out);
    let mut frames = FrameSplitter::default();
    frames.spare(1024).extend_from_slice(&out.concat());
    let frame = frames.next_frame().unwrap().expect("the length is that of the parts");
    assert!(frames.is_between_frames());
    frame
}

#[test]
fn addresses_of_every_api_and_version_are_found_and_replaced() {
    let all: Vec<_> = ApiKey::all().filter(|api| are_in(*api)).collect();
    let mut tested: Vec<_> = ALL.iter().map(|(api, ..)| *api).collect();
    tested.sort_unstable();
    assert_eq!(tested, all);
    for (api, versions, first, build) in ALL {
        for version in versions.clone() {
            let frame = build(version, &BEFORE);
            let found =
                find(*api, version, &frame).unwrap_or_else(|e| panic!("{api} {version}: {e}"));
            let expected = match () {
                () if version < *first => 0,
                () if *api == ApiKey::FIND_COORDINATOR && version < 4 => 1,
                () => 2,
            };
            let found: Vec<_> =
                found.found.iter().map(|a| (a.node.id(), a.host.as_str(), a.port)).collect();
            let all = [(1, BEFORE[0].0, BEFORE[0].1), (2, BEFORE[1].0, BEFORE[1].1)];
            assert_eq!(found, all[..expected], "{api} {version}");
            if expected == 0 {
                continue;
            }
            // The result is what the codec writes for the other addresses.
            assert_eq!(
                replaced(*api, version, &frame, &AFTER),
                build(version, &AFTER),
                "{api} {version}"
            );
            assert_eq!(replaced(*api, version, &frame, &BEFORE), frame, "{api} {version}");
        }
    }
}

#[test]
fn a_long_host_extends_the_size_of_the_tagged_field() {
    let long = "h".repeat(20_000);
    let places = [(long.as_str(), 1), (long.as_str(), 2)];
    for (api, version, build) in
        [(ApiKey::PRODUCE, 13, produce as Build), (ApiKey::FETCH, 18, fetch)]
    {
        let frame = build(version, &BEFORE);
        let there = replaced(api, version, &frame, &places);
        assert_eq!(there, build(version, &places));
        assert_eq!(replaced(api, version, &there, &BEFORE), frame);
    }
}

#[test]
fn unknown_tagged_fields_keep_their_bytes() {
    let mut frame = BytesMut::from(&produce(13, &BEFORE)[..]);
    // The count of the response's tagged fields is before the one with the endpoints.
    let endpoints = 1 + 2 * (4 + 1 + 4 + 2 + 1) + BEFORE[0].0.len() + BEFORE[1].0.len();
    let count = frame.len() - endpoints - 3;
    assert_eq!(frame[count..count + 3], [1, 0, endpoints as u8]);
    frame[count] = 2;
    frame.extend_from_slice(&[9, 2, 0xab, 0xcd]);
    let there = replaced(ApiKey::PRODUCE, 13, &frame.clone().freeze(), &AFTER);
    assert_eq!(there[there.len() - 4..], [9, 2, 0xab, 0xcd]);
    assert_eq!(replaced(ApiKey::PRODUCE, 13, &there, &BEFORE), frame);
}

#[test]
fn responses_without_a_node_have_no_address() {
    for version in 0..=6 {
        let none = BrokerId(-1);
        let response = FindCoordinatorResponse::default();
        let response = match version {
            ..4 => response.with_node_id(none).with_port(-1),
            _ => {
                let coordinator = Coordinator::default().with_node_id(none).with_port(-1);
                response.with_coordinators(vec![coordinator])
            }
        };
        let frame = cold(ApiKey::FIND_COORDINATOR, version, &response);
        assert!(find(ApiKey::FIND_COORDINATOR, version, &frame).unwrap().found.is_empty());
    }
}

#[test]
fn controllers_are_other_nodes_than_brokers_with_the_same_id() {
    let nodes = |endpoint_type| {
        let frame = describe_cluster(2, &BEFORE, endpoint_type);
        let found = find(ApiKey::DESCRIBE_CLUSTER, 2, &frame).unwrap().found;
        found.into_iter().map(|address| address.node).collect::<Vec<_>>()
    };
    assert_eq!(nodes(1), [Node::Broker(1), Node::Broker(2)]);
    assert_eq!(nodes(CONTROLLERS), [Node::Controller(1), Node::Controller(2)]);
}

#[test]
fn truncated_and_damaged_responses_are_errors_or_have_fewer_addresses() {
    for (api, versions, _, build) in ALL {
        for version in versions.clone() {
            let frame = build(version, &BEFORE);
            for end in 0..frame.len() {
                // Without a panic.
                let _ = find(*api, version, &frame.slice(..end));
            }
            for at in 4..frame.len() {
                let mut damaged = BytesMut::from(&frame[..]);
                damaged[at] = 0xff;
                let damaged = damaged.freeze();
                let Ok(found) = find(*api, version, &damaged) else { continue };
                let places = vec![("127.0.0.1", 1); found.found.len()];
                replace(&damaged, api.encoding(version), &found, &places, &mut Vec::new());
            }
        }
    }
}

/// kafka-protocol knows version 1 only.
#[test]
fn share_responses_of_version_2_have_their_addresses() {
    let frame = share_fetch(1, &BEFORE);
    assert_eq!(replaced(ApiKey::SHARE_FETCH, 2, &frame, &AFTER), share_fetch(1, &AFTER));
    // The acquisition lock timeout is after the throttle time, the error and its message.
    let with_timeout = |frame: Bytes| [&frame[..12], &[0; 4], &frame[12..]].concat();
    let frame = with_timeout(share_acknowledge(1, &BEFORE)).into();
    let there = replaced(ApiKey::SHARE_ACKNOWLEDGE, 2, &frame, &AFTER);
    assert_eq!(there, with_timeout(share_acknowledge(1, &AFTER)));
}
