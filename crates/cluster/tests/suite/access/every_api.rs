//! Every API that the cluster advertises, requested by a client without permissions and by one with
//! all.

use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::messages::{
        AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, AddRaftVoterRequest,
        AlterConfigsRequest, AlterPartitionReassignmentsRequest, AlterReplicaLogDirsRequest,
        AlterUserScramCredentialsRequest, ApiVersionsRequest, ConsumerGroupDescribeRequest,
        ConsumerGroupHeartbeatRequest, CreateAclsRequest, CreatePartitionsRequest,
        CreateTopicsRequest, DeleteAclsRequest, DeleteGroupsRequest, DeleteRecordsRequest,
        DeleteTopicsRequest, DescribeClientQuotasRequest, DescribeConfigsRequest,
        DescribeGroupsRequest, DescribeLogDirsRequest, DescribeProducersRequest,
        DescribeQuorumRequest, DescribeTopicPartitionsRequest, DescribeTransactionsRequest,
        DescribeUserScramCredentialsRequest, ElectLeadersRequest, EndTxnRequest,
        FindCoordinatorRequest, GroupId, HeartbeatRequest, IncrementalAlterConfigsRequest,
        InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest, ListConfigResourcesRequest,
        ListGroupsRequest, ListPartitionReassignmentsRequest, ListTransactionsRequest,
        OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
        RemoveRaftVoterRequest, SyncGroupRequest, TopicName, TransactionalId,
        TxnOffsetCommitRequest, UnregisterBrokerRequest, UpdateFeaturesRequest,
        WriteTxnMarkersRequest,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        alter_configs_request,
        alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic},
        alter_user_scram_credentials_request::ScramCredentialDeletion,
        create_partitions_request::CreatePartitionsTopic,
        create_topics_request::CreatableTopic,
        delete_acls_request::DeleteAclsFilter,
        delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
        describe_configs_request::DescribeConfigsResource,
        describe_producers_request::TopicRequest,
        incremental_alter_configs_request::AlterConfigsResource,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        offset_fetch_request::OffsetFetchRequestGroup,
        offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
        txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
        write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
    },
    cold::newer::streams::{StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest},
};

use super::{
    ALLOW, BROKER, Client, Cluster, GROUP, LITERAL, READ, TOPIC, acl, batch, describe, enter,
    guarded, listed, quota, soon, start, text,
};

/// The type of a group as a resource of settings.
const GROUP_SETTINGS: i8 = 32;

/// The content of a response.
#[derive(Debug)]
enum Told {
    /// An error code for each requested resource.
    Codes(Vec<i16>),
    /// Number of resources in the response.
    Found(usize),
    /// The same response for every client.
    Open,
}

impl Told {
    /// Returns whether nothing was refused.
    fn is_served(&self) -> bool {
        match self {
            Codes(codes) => !codes.iter().any(|code| is_refusal(*code)),
            Found(count) => *count > 0,
            Open => true,
        }
    }
}

use Told::{Codes, Found, Open};

fn orders() -> TopicName {
    TopicName(text("orders"))
}

fn group() -> GroupId {
    GroupId(text("g"))
}

fn transaction() -> TransactionalId {
    TransactionalId(text("tx"))
}

async fn commit(client: &mut Client) -> Vec<i16> {
    let partition = OffsetCommitRequestPartition::default().with_committed_leader_epoch(-1);
    let topic =
        OffsetCommitRequestTopic::default().with_name(orders()).with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let topics = client.cold(8, &request).await.topics;
    topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code).collect()
}

async fn init(client: &mut Client, id: Option<TransactionalId>) -> i16 {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(id)
        .with_transaction_timeout_ms(1000);
    client.cold(4, &request).await.error_code
}

/// Requests everything that the API serves, if this test knows the API.
async fn ask(client: &mut Client, api: ApiKey) -> Told {
    if let Some(told) = of_data(client, api).await {
        return told;
    }
    if let Some(told) = of_groups(client, api).await {
        return told;
    }
    if let Some(told) = of_transactions(client, api).await {
        return told;
    }
    of_administration(client, api).await
}

async fn of_data(client: &mut Client, api: ApiKey) -> Option<Told> {
    Some(match api {
        ApiKey::API_VERSIONS
        | ApiKey::SASL_HANDSHAKE
        | ApiKey::SASL_AUTHENTICATE
        | ApiKey::DESCRIBE_CLUSTER => Open,
        ApiKey::PRODUCE => {
            Codes(vec![client.produce("orders", 0, -1, batch(&["a"], None)).await.error.0])
        }
        ApiKey::FETCH => Codes(vec![client.fetch("orders", 0, 0).await.0.0]),
        ApiKey::LIST_OFFSETS => Codes(vec![client.list_offset("orders", 0, -1).await.0.0]),
        ApiKey::METADATA => Found(listed(client).await.len()),
        ApiKey::OFFSET_FOR_LEADER_EPOCH => {
            let partition = OffsetForLeaderPartition::default().with_current_leader_epoch(-1);
            let topic = OffsetForLeaderTopic::default()
                .with_topic(orders())
                .with_partitions(vec![partition]);
            let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
            Codes(vec![client.cold(4, &request).await.topics[0].partitions[0].error_code])
        }
        ApiKey::DESCRIBE_PRODUCERS => {
            let topic = TopicRequest::default().with_name(orders()).with_partition_indexes(vec![0]);
            let request = DescribeProducersRequest::default().with_topics(vec![topic]);
            Codes(vec![client.cold(0, &request).await.topics[0].partitions[0].error_code])
        }
        ApiKey::DELETE_RECORDS => {
            let topic = DeleteRecordsTopic::default()
                .with_name(orders())
                .with_partitions(vec![DeleteRecordsPartition::default()]);
            let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
            Codes(vec![client.cold(2, &request).await.topics[0].partitions[0].error_code])
        }
        _ => return None,
    })
}

async fn of_groups(client: &mut Client, api: ApiKey) -> Option<Told> {
    Some(match api {
        ApiKey::OFFSET_COMMIT => Codes(commit(client).await),
        ApiKey::OFFSET_FETCH => {
            let asked = OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(None);
            let request = OffsetFetchRequest::default().with_groups(vec![asked]);
            Codes(vec![client.cold(8, &request).await.groups[0].error_code])
        }
        ApiKey::FIND_COORDINATOR => {
            let of_group = FindCoordinatorRequest::default().with_key(text("g"));
            let of_transaction =
                FindCoordinatorRequest::default().with_key(text("tx")).with_key_type(1);
            Codes(vec![
                client.cold(2, &of_group).await.error_code,
                client.cold(2, &of_transaction).await.error_code,
            ])
        }
        ApiKey::JOIN_GROUP => {
            let request = JoinGroupRequest::default().with_group_id(group());
            Codes(vec![client.cold(4, &request).await.error_code])
        }
        ApiKey::HEARTBEAT => {
            let request = HeartbeatRequest::default().with_group_id(group());
            Codes(vec![client.cold(3, &request).await.error_code])
        }
        ApiKey::LEAVE_GROUP => {
            let request = LeaveGroupRequest::default().with_group_id(group());
            Codes(vec![client.cold(2, &request).await.error_code])
        }
        ApiKey::SYNC_GROUP => {
            let request = SyncGroupRequest::default().with_group_id(group());
            Codes(vec![client.cold(3, &request).await.error_code])
        }
        ApiKey::DESCRIBE_GROUPS => {
            let request = DescribeGroupsRequest::default().with_groups(vec![group()]);
            Codes(vec![client.cold(5, &request).await.groups[0].error_code])
        }
        ApiKey::LIST_GROUPS => {
            Found(client.cold(4, &ListGroupsRequest::default()).await.groups.len())
        }
        ApiKey::DELETE_GROUPS => {
            let gone = GroupId(text("gone"));
            let request = DeleteGroupsRequest::default().with_groups_names(vec![gone]);
            Codes(vec![client.cold(2, &request).await.results[0].error_code])
        }
        ApiKey::OFFSET_DELETE => {
            let request = OffsetDeleteRequest::default().with_group_id(group());
            Codes(vec![client.cold(0, &request).await.error_code])
        }
        ApiKey::CONSUMER_GROUP_HEARTBEAT => {
            let request = ConsumerGroupHeartbeatRequest::default().with_group_id(group());
            Codes(vec![client.cold(0, &request).await.error_code])
        }
        ApiKey::CONSUMER_GROUP_DESCRIBE => {
            let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]);
            Codes(vec![client.cold(0, &request).await.groups[0].error_code])
        }
        ApiKey::STREAMS_GROUP_HEARTBEAT => {
            let request = StreamsGroupHeartbeatRequest {
                group_id: "g".to_owned(),
                ..StreamsGroupHeartbeatRequest::default()
            };
            Codes(vec![client.cold(0, &request).await.error.0])
        }
        ApiKey::STREAMS_GROUP_DESCRIBE => {
            let request = StreamsGroupDescribeRequest {
                group_ids: vec!["g".to_owned()],
                include_authorized_operations: true,
            };
            Codes(vec![client.cold(0, &request).await.groups[0].error.0])
        }
        _ => return None,
    })
}

async fn of_transactions(client: &mut Client, api: ApiKey) -> Option<Told> {
    Some(match api {
        ApiKey::INIT_PRODUCER_ID => {
            Codes(vec![init(client, None).await, init(client, Some(transaction())).await])
        }
        ApiKey::ADD_PARTITIONS_TO_TXN => {
            let topic =
                AddPartitionsToTxnTopic::default().with_name(orders()).with_partitions(vec![0]);
            let request = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(transaction())
                .with_v3_and_below_topics(vec![topic]);
            let old = client.cold(3, &request).await.results_by_topic_v3_and_below;
            let of_brokers = client.cold(5, &AddPartitionsToTxnRequest::default()).await;
            let old = old[0].results_by_partition[0].partition_error_code;
            Codes(vec![old, of_brokers.error_code])
        }
        ApiKey::ADD_OFFSETS_TO_TXN => {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(transaction())
                .with_group_id(group());
            Codes(vec![client.cold(3, &request).await.error_code])
        }
        ApiKey::END_TXN => {
            let request = EndTxnRequest::default().with_transactional_id(transaction());
            Codes(vec![client.cold(3, &request).await.error_code])
        }
        ApiKey::WRITE_TXN_MARKERS => {
            let topic = WritableTxnMarkerTopic::default()
                .with_name(orders())
                .with_partition_indexes(vec![9]);
            let marker = WritableTxnMarker::default().with_topics(vec![topic]);
            let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
            let markers = client.cold(1, &request).await.markers;
            Codes(vec![markers[0].topics[0].partitions[0].error_code])
        }
        ApiKey::TXN_OFFSET_COMMIT => {
            let topic = TxnOffsetCommitRequestTopic::default()
                .with_name(orders())
                .with_partitions(vec![TxnOffsetCommitRequestPartition::default()]);
            let request = TxnOffsetCommitRequest::default()
                .with_transactional_id(transaction())
                .with_group_id(group())
                .with_topics(vec![topic]);
            Codes(vec![client.cold(3, &request).await.topics[0].partitions[0].error_code])
        }
        ApiKey::DESCRIBE_TRANSACTIONS => {
            let request =
                DescribeTransactionsRequest::default().with_transactional_ids(vec![transaction()]);
            Codes(vec![client.cold(0, &request).await.transaction_states[0].error_code])
        }
        ApiKey::LIST_TRANSACTIONS => {
            let response = client.cold(0, &ListTransactionsRequest::default()).await;
            Found(response.transaction_states.len())
        }
        _ => return None,
    })
}

async fn of_administration(client: &mut Client, api: ApiKey) -> Told {
    match api {
        ApiKey::CREATE_TOPICS | ApiKey::DELETE_TOPICS | ApiKey::CREATE_PARTITIONS => {
            of_topics(client, api).await
        }
        ApiKey::DESCRIBE_CONFIGS => {
            let resource = |(kind, name)| {
                DescribeConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
            };
            let request =
                DescribeConfigsRequest::default().with_resources(RESOURCES.map(resource).into());
            let results = client.cold(4, &request).await.results;
            Codes(results.iter().map(|result| result.error_code).collect())
        }
        ApiKey::ALTER_CONFIGS => {
            let resource = |(kind, name)| {
                alter_configs_request::AlterConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
            };
            let resources = RESOURCES.map(resource).into();
            let request = AlterConfigsRequest::default().with_resources(resources);
            let responses = client.cold(2, &request).await.responses;
            Codes(responses.iter().map(|response| response.error_code).collect())
        }
        ApiKey::INCREMENTAL_ALTER_CONFIGS => {
            let resource = |(kind, name)| {
                AlterConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
            };
            let resources = RESOURCES.map(resource).into();
            let request = IncrementalAlterConfigsRequest::default().with_resources(resources);
            let responses = client.cold(1, &request).await.responses;
            Codes(responses.iter().map(|response| response.error_code).collect())
        }
        ApiKey::DESCRIBE_LOG_DIRS => {
            let request = DescribeLogDirsRequest::default().with_topics(None);
            Codes(vec![client.cold(4, &request).await.error_code])
        }
        ApiKey::ELECT_LEADERS => {
            let request = ElectLeadersRequest::default().with_topic_partitions(None);
            Codes(vec![client.cold(2, &request).await.error_code])
        }
        ApiKey::ALTER_PARTITION_REASSIGNMENTS => {
            let request = AlterPartitionReassignmentsRequest::default();
            Codes(vec![client.cold(1, &request).await.error_code])
        }
        ApiKey::LIST_PARTITION_REASSIGNMENTS => {
            let request = ListPartitionReassignmentsRequest::default().with_topics(None);
            Codes(vec![client.cold(0, &request).await.error_code])
        }
        _ => of_access(client, api).await,
    }
}

const RESOURCES: [(i8, &str); 3] = [(TOPIC, "orders"), (BROKER, "1"), (GROUP_SETTINGS, "g")];

async fn of_topics(client: &mut Client, api: ApiKey) -> Told {
    let new = || TopicName(text("new"));
    Codes(vec![match api {
        ApiKey::CREATE_TOPICS => {
            let topic = CreatableTopic::default()
                .with_name(new())
                .with_num_partitions(1)
                .with_replication_factor(1);
            let request = CreateTopicsRequest::default().with_topics(vec![topic]);
            client.cold(5, &request).await.topics[0].error_code
        }
        ApiKey::DELETE_TOPICS => {
            let request = DeleteTopicsRequest::default().with_topic_names(vec![new()]);
            client.cold(4, &request).await.responses[0].error_code
        }
        _ => {
            let topic = CreatePartitionsTopic::default().with_name(orders()).with_count(1);
            let request =
                CreatePartitionsRequest::default().with_topics(vec![topic.with_assignments(None)]);
            client.cold(3, &request).await.results[0].error_code
        }
    }])
}

async fn of_access(client: &mut Client, api: ApiKey) -> Told {
    Codes(vec![match api {
        ApiKey::DESCRIBE_ACLS => describe(client).await.error_code,
        ApiKey::CREATE_ACLS => {
            let rules = vec![acl(GROUP, "unused", LITERAL, READ, ALLOW)];
            let request = CreateAclsRequest::default().with_creations(rules);
            client.cold(3, &request).await.results[0].error_code
        }
        ApiKey::DELETE_ACLS => {
            let filter = DeleteAclsFilter::default()
                .with_resource_type_filter(GROUP)
                .with_resource_name_filter(Some(text("unused")))
                .with_pattern_type_filter(LITERAL)
                .with_operation(READ)
                .with_permission_type(ALLOW);
            let request = DeleteAclsRequest::default().with_filters(vec![filter]);
            client.cold(3, &request).await.filter_results[0].error_code
        }
        ApiKey::DESCRIBE_CLIENT_QUOTAS => {
            client.cold(1, &DescribeClientQuotasRequest::default()).await.error_code
        }
        ApiKey::ALTER_CLIENT_QUOTAS => {
            let request = quota("user", Some("nobody"), "producer_byte_rate", 5.0);
            client.cold(1, &request).await.entries[0].error_code
        }
        ApiKey::DESCRIBE_USER_SCRAM_CREDENTIALS => {
            client.cold(0, &DescribeUserScramCredentialsRequest::default()).await.error_code
        }
        ApiKey::ALTER_USER_SCRAM_CREDENTIALS => {
            let deletion =
                ScramCredentialDeletion::default().with_name(text("nobody")).with_mechanism(1);
            let request =
                AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion]);
            client.cold(0, &request).await.results[0].error_code
        }
        other => return of_the_cluster(client, other).await,
    }])
}

async fn of_the_cluster(client: &mut Client, api: ApiKey) -> Told {
    Codes(vec![match api {
        ApiKey::ALTER_REPLICA_LOG_DIRS => {
            let topic =
                AlterReplicaLogDirTopic::default().with_name(orders()).with_partitions(vec![0]);
            let dir = AlterReplicaLogDir::default().with_topics(vec![topic]);
            let request = AlterReplicaLogDirsRequest::default().with_dirs(vec![dir]);
            client.cold(2, &request).await.results[0].partitions[0].error_code
        }
        ApiKey::DESCRIBE_QUORUM => {
            client.cold(0, &DescribeQuorumRequest::default()).await.error_code
        }
        ApiKey::UPDATE_FEATURES => {
            client.cold(1, &UpdateFeaturesRequest::default()).await.error_code
        }
        ApiKey::UNREGISTER_BROKER => {
            let request = UnregisterBrokerRequest::default().with_broker_id(77.into());
            client.cold(0, &request).await.error_code
        }
        ApiKey::LIST_CONFIG_RESOURCES => {
            client.cold(1, &ListConfigResourcesRequest::default()).await.error_code
        }
        ApiKey::DESCRIBE_TOPIC_PARTITIONS => {
            let all = DescribeTopicPartitionsRequest::default().with_response_partition_limit(9);
            return Found(client.cold(0, &all).await.topics.len());
        }
        ApiKey::ADD_RAFT_VOTER => client.cold(0, &AddRaftVoterRequest::default()).await.error_code,
        ApiKey::REMOVE_RAFT_VOTER => {
            client.cold(0, &RemoveRaftVoterRequest::default()).await.error_code
        }
        ApiKey::CREATE_DELEGATION_TOKEN
        | ApiKey::RENEW_DELEGATION_TOKEN
        | ApiKey::EXPIRE_DELEGATION_TOKEN
        | ApiKey::DESCRIBE_DELEGATION_TOKEN => return Open,
        other => panic!("say here what {other} tells to whom"),
    }])
}

fn is_refusal(code: i16) -> bool {
    let refusals = [
        ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        ErrorCode::GROUP_AUTHORIZATION_FAILED,
        ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ];
    refusals.contains(&ErrorCode(code))
}

/// Creates the topic, the group and the transactional id that [`ask`] requests. Returns the
/// cluster's APIs.
async fn prepare(cluster: &Cluster, admin: &mut Client) -> Vec<ApiKey> {
    cluster.create_topic("orders", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let software = ApiVersionsRequest::default()
        .with_client_software_name(text("test"))
        .with_client_software_version(text("1"));
    let advertised = admin.cold(3, &software).await.api_keys;
    ask(admin, ApiKey::FIND_COORDINATOR).await;
    soon(async { while commit(admin).await != [0] {} }).await;
    soon(async { while init(admin, Some(transaction())).await != 0 {} }).await;
    advertised.into_iter().map(|api| ApiKey(api.api_key)).collect()
}

/// Apache Kafka ignores bytes after a request in its frame.
#[tokio::test]
async fn every_api_ignores_bytes_after_the_request() {
    let cluster = start(guarded()).await;
    let mut admin = enter(&cluster, 1, "admin\0secret").await;
    let advertised = prepare(&cluster, &mut admin).await;
    admin.append_to_requests(&[1, 0, 0]);
    for api in advertised {
        let told = ask(&mut admin, api).await;
        assert!(told.is_served(), "{api}: {told:?}");
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn every_api_asks_the_authorizer() {
    let cluster = start(guarded()).await;
    let mut admin = enter(&cluster, 1, "admin\0secret").await;
    let advertised = prepare(&cluster, &mut admin).await;
    let mut alice = enter(&cluster, 1, "alice\0secret").await;
    for api in advertised.iter().copied() {
        let told = ask(&mut alice, api).await;
        let refused = match &told {
            Codes(codes) => !codes.is_empty() && codes.iter().all(|code| is_refusal(*code)),
            Found(count) => *count == 0,
            Open => true,
        };
        assert!(refused, "{api} responds without permission: {told:?}");
    }
    for api in advertised {
        let told = ask(&mut admin, api).await;
        assert!(told.is_served(), "{api} refuses a super user: {told:?}");
    }
    let open = [17, 18, 36, 60].map(ApiKey);
    for api in open {
        assert!(matches!(ask(&mut alice, api).await, Open), "{api} needs no permission");
    }
    soon(cluster.shutdown()).await;
}
