//! Every API whose errors can be injected, in every version that it is offered in.

use curtail_cluster::{Fault, Requests};
use curtail_wire::{
    ErrorCode, Uuid,
    api::ApiKey,
    cold::{
        messages::{
            AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ApiVersionsRequest,
            ConsumerGroupHeartbeatRequest, CreatePartitionsRequest, CreateTopicsRequest,
            DeleteRecordsRequest, DeleteTopicsRequest, EndTxnRequest, FindCoordinatorRequest,
            GroupId, HeartbeatRequest, InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest,
            ListOffsetsRequest, OffsetForLeaderEpochRequest, SyncGroupRequest, TopicName,
            TransactionalId, TxnOffsetCommitRequest,
            add_partitions_to_txn_request::AddPartitionsToTxnTopic,
            create_partitions_request::CreatePartitionsTopic,
            create_topics_request::CreatableTopic,
            delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
            delete_topics_request::DeleteTopicState,
            leave_group_request::MemberIdentity,
            list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
            offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
            txn_offset_commit_request::{
                TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
            },
        },
        newer::{
            OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, OffsetFetchGroup,
            OffsetFetchRequest, OffsetFetchTopic, streams::StreamsGroupHeartbeatRequest,
        },
    },
    fetch::FetchTopic,
    metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse},
    produce::{ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic},
};

use crate::support::{Client, batch, fetch_partition, fetch_request, one_partition, text};

/// A code that none of the requests below would get by itself.
const CODE: ErrorCode = ErrorCode::INVALID_REPLICATION_FACTOR;

#[tokio::test]
async fn an_injected_error_is_in_the_response_of_every_version() {
    let (cluster, mut client) = one_partition().await;
    let topic_id = client.metadata("t").await.1.topic_id;
    let offered = client.cold(0, &ApiVersionsRequest::default()).await.api_keys;
    let mut asked = 0;
    for api in ApiKey::all() {
        let Ok(name) = cluster.inject(Fault::error(Requests::of(api), CODE)) else { continue };
        let offered =
            offered.iter().find(|offered| offered.api_key == api.0).expect("it is served");
        let versions = match api {
            // Versions 0 to 2 are offered and refused.
            ApiKey::PRODUCE => 3..=offered.max_version,
            // Later versions are for brokers.
            ApiKey::ADD_PARTITIONS_TO_TXN => 0..=3,
            _ => offered.min_version..=offered.max_version,
        };
        for version in versions {
            let codes = of_data(&mut client, topic_id, api, version).await;
            let codes = match codes {
                Some(codes) => codes,
                None => of_groups_and_transactions(&mut client, api, version).await,
            };
            assert_eq!(codes, [CODE.0], "{api} {version}");
            asked += 1;
        }
        assert!(cluster.faults()[0].hits > 0, "{api}");
        assert!(cluster.lift(&name));
    }
    assert!(asked > 100, "{asked} versions");
    // Nothing was applied.
    assert_eq!(client.list_offset("t", 0, -1).await, (ErrorCode::NONE, 0, -1));
    assert_eq!(cluster.partitions("new"), None);
    assert_eq!(cluster.partitions("t"), Some(1));
}

fn topic() -> TopicName {
    TopicName(text("t"))
}

fn group() -> GroupId {
    GroupId(text("g"))
}

fn transaction() -> TransactionalId {
    TransactionalId(text("tx"))
}

async fn of_data(
    client: &mut Client,
    topic_id: Uuid,
    api: ApiKey,
    version: i16,
) -> Option<Vec<i16>> {
    Some(match api {
        ApiKey::PRODUCE => {
            let partition = ProducePartition { index: 0, records: Some(batch(&["a"], None)) };
            let topic = ProduceTopic { name: "t".into(), topic_id, partitions: vec![partition] };
            let request = ProduceRequest {
                transactional_id: None,
                acks: -1,
                timeout_ms: 1000,
                topics: vec![topic],
            };
            client.send_with(api, version, |w| request.encode(version, w)).await;
            let body = client.body(api, version).await;
            let response = ProduceResponse::decode(version, &body).unwrap();
            vec![response.topics[0].partitions[0].error.0]
        }
        ApiKey::FETCH => {
            let mut request = fetch_request("t", 0, 0);
            let partitions = vec![fetch_partition(0, 0)];
            request.topics = vec![FetchTopic { name: "t".into(), topic_id, partitions }];
            // The wait is longer than a test's patience: the error ends it.
            request.max_wait_ms = 600_000;
            let response = client.fetch_raw(version, &request).await;
            vec![response.topics[0].partitions[0].error.0]
        }
        ApiKey::METADATA => {
            let name = Some("t".to_owned());
            let asked = MetadataRequestTopic { topic_id: Uuid::ZERO, name };
            let mut codes = Vec::new();
            for topics in [Some(vec![asked]), None] {
                let request = MetadataRequest { topics, ..MetadataRequest::default() };
                client.send_with(api, version, |w| request.encode(version, w)).await;
                let body = client.body(api, version).await;
                let response = MetadataResponse::decode(version, &body).unwrap();
                codes.extend(response.topics.iter().map(|topic| topic.error.0));
            }
            codes.dedup();
            codes
        }
        ApiKey::LIST_OFFSETS => {
            let asked = ListOffsetsPartition::default().with_timestamp(-1);
            let topic = ListOffsetsTopic::default().with_name(topic()).with_partitions(vec![asked]);
            let request =
                ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
            vec![client.cold(version, &request).await.topics[0].partitions[0].error_code]
        }
        ApiKey::OFFSET_FOR_LEADER_EPOCH => {
            let topic = OffsetForLeaderTopic::default()
                .with_topic(topic())
                .with_partitions(vec![OffsetForLeaderPartition::default()]);
            let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
            vec![client.cold(version, &request).await.topics[0].partitions[0].error_code]
        }
        ApiKey::DELETE_RECORDS => {
            let topic = DeleteRecordsTopic::default()
                .with_name(topic())
                .with_partitions(vec![DeleteRecordsPartition::default()]);
            let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
            vec![client.cold(version, &request).await.topics[0].partitions[0].error_code]
        }
        ApiKey::CREATE_TOPICS => {
            let topic = CreatableTopic::default()
                .with_name(TopicName(text("new")))
                .with_num_partitions(1)
                .with_replication_factor(1);
            let request = CreateTopicsRequest::default().with_topics(vec![topic]);
            vec![client.cold(version, &request).await.topics[0].error_code]
        }
        ApiKey::DELETE_TOPICS => {
            let request = match version {
                ..6 => DeleteTopicsRequest::default().with_topic_names(vec![topic()]),
                _ => DeleteTopicsRequest::default()
                    .with_topics(vec![DeleteTopicState::default().with_name(Some(topic()))]),
            };
            vec![client.cold(version, &request).await.responses[0].error_code]
        }
        ApiKey::CREATE_PARTITIONS => {
            let topic = CreatePartitionsTopic::default()
                .with_name(topic())
                .with_count(2)
                .with_assignments(None);
            let request = CreatePartitionsRequest::default().with_topics(vec![topic]);
            vec![client.cold(version, &request).await.results[0].error_code]
        }
        ApiKey::OFFSET_COMMIT => {
            let partitions = vec![OffsetCommitPartition::default()];
            let request = OffsetCommitRequest {
                group_id: "g".into(),
                generation_id_or_member_epoch: -1,
                topics: vec![OffsetCommitTopic { name: "t".into(), topic_id, partitions }],
                ..Default::default()
            };
            vec![client.cold(version, &request).await.topics[0].partitions[0].error_code]
        }
        ApiKey::OFFSET_FETCH => {
            let topic = OffsetFetchTopic { name: "t".into(), topic_id, partitions: vec![0] };
            let group = OffsetFetchGroup {
                group_id: "g".into(),
                topics: Some(vec![topic]),
                ..Default::default()
            };
            let request = OffsetFetchRequest { groups: vec![group], require_stable: false };
            let response = client.cold(version, &request).await;
            if version >= 8 {
                vec![response.groups[0].error_code]
            } else {
                let of_partition = response.topics[0].partitions[0].error_code;
                // Version 1 has no error of the group.
                assert!(version < 2 || response.error_code == of_partition);
                vec![of_partition]
            }
        }
        _ => return None,
    })
}

async fn of_groups_and_transactions(client: &mut Client, api: ApiKey, version: i16) -> Vec<i16> {
    vec![match api {
        ApiKey::FIND_COORDINATOR if version < 4 => {
            let request = FindCoordinatorRequest::default().with_key(text("g"));
            client.cold(version, &request).await.error_code
        }
        ApiKey::FIND_COORDINATOR => {
            let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g")]);
            client.cold(version, &request).await.coordinators[0].error_code
        }
        ApiKey::JOIN_GROUP => {
            let request =
                JoinGroupRequest::default().with_group_id(group()).with_session_timeout_ms(10_000);
            client.cold(version, &request).await.error_code
        }
        ApiKey::HEARTBEAT => {
            let request = HeartbeatRequest::default().with_group_id(group());
            client.cold(version, &request).await.error_code
        }
        ApiKey::LEAVE_GROUP => {
            let request = LeaveGroupRequest::default().with_group_id(group());
            let request = match version {
                ..3 => request.with_member_id(text("m")),
                _ => {
                    request.with_members(vec![MemberIdentity::default().with_member_id(text("m"))])
                }
            };
            client.cold(version, &request).await.error_code
        }
        ApiKey::SYNC_GROUP => {
            let request = SyncGroupRequest::default().with_group_id(group());
            client.cold(version, &request).await.error_code
        }
        ApiKey::CONSUMER_GROUP_HEARTBEAT => {
            let request = ConsumerGroupHeartbeatRequest::default().with_group_id(group());
            client.cold(version, &request).await.error_code
        }
        ApiKey::STREAMS_GROUP_HEARTBEAT => {
            let request = StreamsGroupHeartbeatRequest {
                group_id: group().0.to_string(),
                ..StreamsGroupHeartbeatRequest::default()
            };
            client.cold(version, &request).await.error.0
        }
        ApiKey::INIT_PRODUCER_ID => {
            let of = |id| {
                InitProducerIdRequest::default()
                    .with_transactional_id(id)
                    .with_transaction_timeout_ms(1000)
            };
            let idempotent = client.cold(version, &of(None)).await.error_code;
            assert_eq!(client.cold(version, &of(Some(transaction()))).await.error_code, idempotent);
            idempotent
        }
        ApiKey::ADD_PARTITIONS_TO_TXN => {
            let topic =
                AddPartitionsToTxnTopic::default().with_name(topic()).with_partitions(vec![0]);
            let request = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(transaction())
                .with_v3_and_below_topics(vec![topic]);
            let topics = client.cold(version, &request).await.results_by_topic_v3_and_below;
            topics[0].results_by_partition[0].partition_error_code
        }
        ApiKey::ADD_OFFSETS_TO_TXN => {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(transaction())
                .with_group_id(group());
            client.cold(version, &request).await.error_code
        }
        ApiKey::END_TXN => {
            let request = EndTxnRequest::default().with_transactional_id(transaction());
            client.cold(version, &request).await.error_code
        }
        ApiKey::TXN_OFFSET_COMMIT => {
            let topic = TxnOffsetCommitRequestTopic::default()
                .with_name(topic())
                .with_partitions(vec![TxnOffsetCommitRequestPartition::default()]);
            let request = TxnOffsetCommitRequest::default()
                .with_transactional_id(transaction())
                .with_group_id(group())
                .with_topics(vec![topic]);
            client.cold(version, &request).await.topics[0].partitions[0].error_code
        }
        other => panic!("say here how errors of {other} are received"),
    }]
}
