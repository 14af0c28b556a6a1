use std::collections::BTreeSet;

use curtail_wire::{
    cold::messages::{
        AddOffsetsToTxnRequest, ConsumerGroupHeartbeatRequest, EndTxnRequest, HeartbeatRequest,
        InitProducerIdRequest, LeaveGroupRequest, SyncGroupRequest, TransactionalId,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        create_partitions_request::CreatePartitionsTopic,
        create_topics_request::CreatableTopic,
        delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
        delete_topics_request::DeleteTopicState,
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
        offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
        txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
    },
    cold::newer::{
        OffsetCommitPartition, OffsetCommitTopic, OffsetFetchGroup,
        streams::StreamsGroupHeartbeatRequest,
    },
    header::split_request,
    metadata::{MetadataResponse, MetadataTopic},
    produce::{ProducePartition, ProduceTopic},
};

use super::*;
use crate::{faults, handlers::newest_served};

const CODE: ErrorCode = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS;
const TOPIC_ID: Uuid = Uuid([5; 16]);

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

fn frame<Q: Request>(version: i16, request: &Q) -> Bytes {
    Bytes::from(cold::encode_request(version, 7, Some("c"), request).unwrap()).slice(4..)
}

/// The topic `t` in a request whose version names topics by id from `first` on.
fn named_or_id(version: i16, first: i16) -> (String, Uuid) {
    match version >= first {
        true => (String::new(), TOPIC_ID),
        false => ("t".to_owned(), Uuid::ZERO),
    }
}

/// Builds a request with the topic `t`, partitions 0 and 1 of it, or two groups or keys, as far as the API has
/// them.
fn request(api: ApiKey, version: i16) -> Bytes {
    let indices = [0, 1];
    match api {
        ApiKey::PRODUCE => {
            let partitions = indices.map(|index| ProducePartition {
                index,
                records: Some(Bytes::from_static(b"records")),
            });
            let (name, topic_id) = named_or_id(version, 13);
            let produced = ProduceTopic { name, topic_id, partitions: partitions.into() };
            let request = ProduceRequest {
                transactional_id: None,
                acks: -1,
                timeout_ms: 1,
                topics: vec![produced],
            };
            let mut w = Writer::with_capacity(64);
            RequestHeader { api, version, correlation_id: 7, client_id: Some("c") }.encode(&mut w);
            request.encode(version, &mut w);
            w.into_bytes()
        }
        ApiKey::LIST_OFFSETS => {
            let partitions =
                indices.map(|index| ListOffsetsPartition::default().with_partition_index(index));
            let listed = ListOffsetsTopic::default()
                .with_name(topic("t"))
                .with_partitions(partitions.into());
            frame(version, &ListOffsetsRequest::default().with_topics(vec![listed]))
        }
        ApiKey::OFFSET_COMMIT => {
            let partitions =
                indices.map(|index| OffsetCommitPartition { index, ..Default::default() });
            let (name, topic_id) = named_or_id(version, 10);
            let committed = OffsetCommitTopic { name, topic_id, partitions: partitions.into() };
            let topics = vec![committed];
            frame(version, &OffsetCommitRequest { topics, ..Default::default() })
        }
        ApiKey::TXN_OFFSET_COMMIT => {
            let partitions = indices.map(|index| {
                TxnOffsetCommitRequestPartition::default().with_partition_index(index)
            });
            let committed = TxnOffsetCommitRequestTopic::default()
                .with_name(topic("t"))
                .with_partitions(partitions.into());
            frame(version, &TxnOffsetCommitRequest::default().with_topics(vec![committed]))
        }
        ApiKey::DELETE_RECORDS => {
            let partitions =
                indices.map(|index| DeleteRecordsPartition::default().with_partition_index(index));
            let deleted = DeleteRecordsTopic::default()
                .with_name(topic("t"))
                .with_partitions(partitions.into());
            frame(version, &DeleteRecordsRequest::default().with_topics(vec![deleted]))
        }
        ApiKey::OFFSET_FOR_LEADER_EPOCH => {
            let partitions =
                indices.map(|index| OffsetForLeaderPartition::default().with_partition(index));
            let asked = OffsetForLeaderTopic::default()
                .with_topic(topic("t"))
                .with_partitions(partitions.into());
            let request = OffsetForLeaderEpochRequest::default().with_topics(vec![asked]);
            let replica = BrokerId(if version >= 3 { -1 } else { -2 });
            frame(version, &request.with_replica_id(replica))
        }
        ApiKey::ADD_PARTITIONS_TO_TXN => {
            let added = AddPartitionsToTxnTopic::default()
                .with_name(topic("t"))
                .with_partitions(indices.into());
            let request = AddPartitionsToTxnRequest::default();
            match version {
                ..4 => frame(version, &request.with_v3_and_below_topics(vec![added])),
                _ => frame(version, &request),
            }
        }
        ApiKey::CREATE_TOPICS => {
            let topics = ["t", "u"].map(|name| CreatableTopic::default().with_name(topic(name)));
            frame(version, &CreateTopicsRequest::default().with_topics(topics.into()))
        }
        ApiKey::DELETE_TOPICS => {
            let request = DeleteTopicsRequest::default();
            match version {
                ..6 => frame(version, &request.with_topic_names(vec![topic("t"), topic("u")])),
                _ => {
                    let named = ["t", "u"]
                        .map(|name| DeleteTopicState::default().with_name(Some(topic(name))));
                    frame(version, &request.with_topics(named.into()))
                }
            }
        }
        ApiKey::CREATE_PARTITIONS => {
            let topics =
                ["t", "u"].map(|name| CreatePartitionsTopic::default().with_name(topic(name)));
            frame(version, &CreatePartitionsRequest::default().with_topics(topics.into()))
        }
        ApiKey::FIND_COORDINATOR => {
            let request = FindCoordinatorRequest::default();
            match version {
                ..4 => frame(version, &request.with_key(text("g"))),
                _ => frame(version, &request.with_coordinator_keys(vec![text("g"), text("h")])),
            }
        }
        ApiKey::OFFSET_FETCH => {
            let groups = if version < 8 { vec!["g"] } else { vec!["g", "h"] };
            let groups = groups.into_iter().map(|id| {
                let (name, topic_id) = named_or_id(version, 10);
                let asked = OffsetFetchTopic { name, topic_id, partitions: indices.into() };
                let topics = Some(vec![asked]);
                OffsetFetchGroup { group_id: id.to_owned(), topics, ..Default::default() }
            });
            let groups = groups.collect();
            frame(version, &OffsetFetchRequest { groups, require_stable: false })
        }
        ApiKey::JOIN_GROUP => {
            frame(version, &JoinGroupRequest::default().with_member_id(text("member")))
        }
        ApiKey::HEARTBEAT => frame(version, &HeartbeatRequest::default()),
        ApiKey::LEAVE_GROUP => frame(version, &LeaveGroupRequest::default()),
        ApiKey::SYNC_GROUP => frame(version, &SyncGroupRequest::default()),
        ApiKey::INIT_PRODUCER_ID => {
            let id = Some(TransactionalId(text("x")));
            frame(version, &InitProducerIdRequest::default().with_transactional_id(id))
        }
        ApiKey::ADD_OFFSETS_TO_TXN => frame(version, &AddOffsetsToTxnRequest::default()),
        ApiKey::END_TXN => frame(version, &EndTxnRequest::default()),
        ApiKey::CONSUMER_GROUP_HEARTBEAT => {
            frame(version, &ConsumerGroupHeartbeatRequest::default())
        }
        ApiKey::STREAMS_GROUP_HEARTBEAT => frame(version, &StreamsGroupHeartbeatRequest::default()),
        api => panic!("{api}"),
    }
}

/// Decodes a response and returns its error codes, in their order.
fn codes(api: ApiKey, version: i16, frame: &Bytes) -> Vec<i16> {
    fn read<A: Decodable + Message + std::fmt::Debug>(
        api: ApiKey,
        version: i16,
        body: Bytes,
    ) -> String {
        let read: A = cold::decode_response(cold::layout::<A>(api, version), body).unwrap();
        format!("{read:?}")
    }
    let body = response_body(frame, api, version).unwrap();
    let read = match api {
        ApiKey::PRODUCE => {
            let response = ProduceResponse::decode(version, &body).unwrap();
            let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
            return partitions.map(|partition| partition.error.0).collect();
        }
        ApiKey::LIST_OFFSETS => read::<ListOffsetsResponse>(api, version, body),
        ApiKey::OFFSET_COMMIT => read::<OffsetCommitResponse>(api, version, body),
        ApiKey::TXN_OFFSET_COMMIT => read::<TxnOffsetCommitResponse>(api, version, body),
        ApiKey::DELETE_RECORDS => read::<DeleteRecordsResponse>(api, version, body),
        ApiKey::OFFSET_FOR_LEADER_EPOCH => read::<OffsetForLeaderEpochResponse>(api, version, body),
        ApiKey::ADD_PARTITIONS_TO_TXN => read::<AddPartitionsToTxnResponse>(api, version, body),
        ApiKey::CREATE_TOPICS => read::<CreateTopicsResponse>(api, version, body),
        ApiKey::DELETE_TOPICS => read::<DeleteTopicsResponse>(api, version, body),
        ApiKey::CREATE_PARTITIONS => read::<CreatePartitionsResponse>(api, version, body),
        ApiKey::FIND_COORDINATOR => read::<FindCoordinatorResponse>(api, version, body),
        ApiKey::OFFSET_FETCH => read::<OffsetFetchResponse>(api, version, body),
        ApiKey::JOIN_GROUP => read::<JoinGroupResponse>(api, version, body),
        ApiKey::HEARTBEAT => read::<HeartbeatResponse>(api, version, body),
        ApiKey::LEAVE_GROUP => read::<LeaveGroupResponse>(api, version, body),
        ApiKey::SYNC_GROUP => read::<SyncGroupResponse>(api, version, body),
        ApiKey::INIT_PRODUCER_ID => read::<InitProducerIdResponse>(api, version, body),
        ApiKey::ADD_OFFSETS_TO_TXN => read::<AddOffsetsToTxnResponse>(api, version, body),
        ApiKey::END_TXN => read::<EndTxnResponse>(api, version, body),
        ApiKey::CONSUMER_GROUP_HEARTBEAT => {
            read::<ConsumerGroupHeartbeatResponse>(api, version, body)
        }
        ApiKey::STREAMS_GROUP_HEARTBEAT => {
            let read: StreamsGroupHeartbeatResponse = cold::decode_response(version, body).unwrap();
            return vec![read.error.0];
        }
        api => panic!("{api}"),
    };
    let codes = read.split("error_code: ").skip(1).map(|rest| {
        let end = rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().unwrap()
    });
    codes.collect()
}

fn decided(frame: &Bytes, ask: Ask<'_>) -> Verdict {
    let directory = Directory::new("127.0.0.1".into(), None);
    let topic =
        MetadataTopic { name: Some("t".into()), topic_id: TOPIC_ID, ..MetadataTopic::default() };
    directory.learn(&MetadataResponse { topics: vec![topic], ..MetadataResponse::default() });
    let (header, body) = split_request(frame).unwrap();
    decide(&header, &body, &directory, ask).unwrap()
}

/// APIs that are refused in their responses.
const IN_RESPONSES: [ApiKey; 2] = [ApiKey::FETCH, ApiKey::METADATA];

/// All versions of the APIs whose errors can be injected.
fn all() -> impl Iterator<Item = (ApiKey, i16)> {
    let apis = ApiKey::all().filter(|api| faults::has_errors(*api) && !IN_RESPONSES.contains(api));
    apis.flat_map(|api| {
        let first = *api.coded_versions().unwrap().start();
        (first..=newest_served(api).unwrap()).map(move |version| (api, version))
    })
}

/// Older versions pass. docs/proxy.md lists them.
#[test]
fn these_versions_are_too_old_for_errors() {
    let apis = ApiKey::all().filter(|api| faults::has_errors(*api));
    let first = apis.map(|api| (api, *api.coded_versions().unwrap().start()));
    let late: BTreeSet<_> = first.filter(|(_, first)| *first > 0).collect();
    let expected = [
        (ApiKey::PRODUCE, 3),
        (ApiKey::FETCH, 4),
        (ApiKey::LIST_OFFSETS, 1),
        (ApiKey::OFFSET_COMMIT, 2),
        (ApiKey::OFFSET_FETCH, 1),
        (ApiKey::CREATE_TOPICS, 2),
        (ApiKey::DELETE_TOPICS, 1),
        (ApiKey::OFFSET_FOR_LEADER_EPOCH, 2),
    ];
    assert_eq!(late, expected.into());
}

/// Versions of AddPartitionsToTxn for brokers.
fn is_of_brokers((api, version): (ApiKey, i16)) -> bool {
    api == ApiKey::ADD_PARTITIONS_TO_TXN && version >= 4
}

#[test]
fn a_request_whose_parts_are_all_refused_is_answered_in_every_version() {
    for (api, version) in all().filter(|of| !is_of_brokers(*of)) {
        let verdict = decided(&request(api, version), &mut |_| Some(CODE));
        let Verdict::Refused(frame) = verdict else { panic!("{api} {version} passes") };
        let codes = codes(api, version, &frame);
        assert!(codes.contains(&CODE.0), "{api} {version}: {codes:?}");
        assert!(codes.iter().all(|code| [0, CODE.0].contains(code)), "{api} {version}: {codes:?}");
    }
}

#[test]
fn a_request_without_refused_parts_passes() {
    for (api, version) in all() {
        let mut asked = 0;
        let verdict = decided(&request(api, version), &mut |_| {
            asked += 1;
            None
        });
        assert!(matches!(verdict, Verdict::Forward), "{api} {version}");
        assert_eq!(asked > 0, !is_of_brokers((api, version)), "{api} {version}");
    }
}

/// Versions that name topics by id, too.
#[test]
fn partitions_are_asked_for_by_the_names_of_their_topics() {
    for (api, version) in all() {
        decided(&request(api, version), &mut |item| {
            if let Item::Partition(name, _) = item {
                assert_eq!(name, "t", "{api} {version}");
            }
            None
        });
    }
}

/// The first part is refused. The cluster gets the rest, whose response has no errors.
#[test]
fn refused_parts_are_taken_out_of_the_request_and_added_to_the_response() {
    let mut split = BTreeSet::new();
    for (api, version) in all() {
        let mut asked = 0;
        let mut first = |_: Item<'_>| {
            asked += 1;
            (asked == 1).then_some(CODE)
        };
        let frame = request(api, version);
        let Verdict::Part { request: rest, merge } = decided(&frame, &mut first) else { continue };
        split.insert(api);
        // The rest has one part, which is another one.
        let mut parts = Vec::new();
        let mut list = |item: Item<'_>| {
            parts.push(format!("{item:?}"));
            None
        };
        decided(&rest, &mut list);
        let mut before = Vec::new();
        let mut list = |item: Item<'_>| {
            before.push(format!("{item:?}"));
            None
        };
        decided(&frame, &mut list);
        assert_eq!(parts, before[1..], "{api} {version}");
        // As if the cluster had served it: no error.
        let Verdict::Refused(served) = decided(&rest, &mut |_| Some(ErrorCode::NONE)) else {
            panic!("{api} {version}");
        };
        let merged = merge(&served).unwrap();
        let mut codes = codes(api, version, &merged);
        codes.sort_unstable();
        let all = codes.len();
        assert_eq!(codes.last(), Some(&CODE.0), "{api} {version}: {codes:?}");
        assert!(all >= 2 && codes[0] == 0, "{api} {version}: {codes:?}");
    }
    let expected = [
        ApiKey::PRODUCE,
        ApiKey::LIST_OFFSETS,
        ApiKey::OFFSET_COMMIT,
        ApiKey::OFFSET_FETCH,
        ApiKey::FIND_COORDINATOR,
        ApiKey::CREATE_TOPICS,
        ApiKey::DELETE_TOPICS,
        ApiKey::DELETE_RECORDS,
        ApiKey::OFFSET_FOR_LEADER_EPOCH,
        ApiKey::TXN_OFFSET_COMMIT,
        ApiKey::CREATE_PARTITIONS,
    ];
    assert_eq!(split, expected.into());
}

#[test]
fn a_refused_partition_of_a_transaction_adds_none() {
    let mut second = |item: Item<'_>| matches!(item, Item::Partition(_, 1)).then_some(CODE);
    let verdict = decided(&request(ApiKey::ADD_PARTITIONS_TO_TXN, 3), &mut second);
    let Verdict::Refused(frame) = verdict else { panic!("it passes") };
    let codes = codes(ApiKey::ADD_PARTITIONS_TO_TXN, 3, &frame);
    // The first one is of the whole response, in later versions.
    assert_eq!(codes, [0, ErrorCode::OPERATION_NOT_ATTEMPTED.0, CODE.0]);
}

#[test]
fn a_refused_batch_without_acknowledgement_closes_the_connection() {
    let mut frame = request(ApiKey::PRODUCE, 9).to_vec();
    // After the header and the transactional id.
    let acks = frame.windows(2).position(|two| two == [0xff, 0xff]).unwrap();
    frame[acks..acks + 2].copy_from_slice(&[0, 0]);
    let frame = Bytes::from(frame);
    assert!(matches!(decided(&frame, &mut |_| Some(CODE)), Verdict::Close));
    assert!(matches!(decided(&frame, &mut |_| None), Verdict::Forward));
}

#[test]
fn malformed_requests_are_errors() {
    let directory = Directory::new("127.0.0.1".into(), None);
    for (api, version) in all() {
        let frame = request(api, version);
        let (header, body) = split_request(&frame).unwrap();
        for end in 0..body.len() {
            // Without a panic. Some APIs are refused without a look at the body.
            let _ = decide(&header, &body.slice(..end), &directory, &mut |_| Some(CODE));
        }
    }
}
