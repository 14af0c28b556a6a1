//! ACLs and quotas.

mod every_api;

use std::time::{Duration, Instant};

use crate::support::{Client, batch, config, enter, fetch_request, soon, start, text, values};
use curtail_cluster::{Cluster, ClusterConfig, Listeners, SecurityProtocol, Storage, User};
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::messages::{
        AlterClientQuotasRequest, CreateAclsRequest, CreatePartitionsRequest, CreateTopicsRequest,
        DeleteAclsRequest, DeleteRecordsRequest, DeleteTopicsRequest, DescribeAclsRequest,
        DescribeAclsResponse, DescribeClientQuotasRequest, DescribeLogDirsRequest,
        ElectLeadersRequest, FindCoordinatorRequest, HeartbeatRequest,
        IncrementalAlterConfigsRequest, InitProducerIdRequest,
        alter_client_quotas_request::{EntityData, EntryData, OpData},
        create_acls_request::AclCreation,
        create_partitions_request::CreatePartitionsTopic,
        create_topics_request::CreatableTopic,
        delete_acls_request::DeleteAclsFilter,
        delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
        describe_client_quotas_request::ComponentData,
        incremental_alter_configs_request::AlterConfigsResource,
    },
    cold::newer::streams::{
        StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest, Subtopology, TopicInfo, Topology,
    },
    metadata::{MetadataRequest, MetadataResponse},
    produce::ProduceResponse,
};

const TOPIC: i8 = 2;
const GROUP: i8 = 3;
const CLUSTER: i8 = 4;
/// The type of a broker as a resource of settings.
const BROKER: i8 = 4;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const READ: i8 = 3;
const WRITE: i8 = 4;
const CREATE: i8 = 5;
const DESCRIBE: i8 = 8;
const ALLOW: i8 = 3;
const DENY: i8 = 2;
const ANY: i8 = 1;

fn guarded() -> ClusterConfig {
    let mut config = config(1);
    config.listeners = Listeners::local(SecurityProtocol::SaslPlaintext);
    config.security.users = vec![User::new("admin", "secret"), User::new("alice", "secret")];
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    config.set("authorizer.class.name", authorizer).unwrap();
    config.set("super.users", "User:admin").unwrap();
    config
}

/// Returns an ACL of alice.
fn acl(of: i8, name: &str, pattern: i8, operation: i8, permission: i8) -> AclCreation {
    AclCreation::default()
        .with_resource_type(of)
        .with_resource_name(text(name))
        .with_resource_pattern_type(pattern)
        .with_principal(text("User:alice"))
        .with_host(text("*"))
        .with_operation(operation)
        .with_permission_type(permission)
}

async fn create(cluster: &Cluster, admin: &mut Client, acls: Vec<AclCreation>) {
    let request = CreateAclsRequest::default().with_creations(acls);
    let response = admin.cold(3, &request).await;
    assert!(response.results.iter().all(|result| result.error_code == 0), "{response:?}");
    soon(cluster.settled()).await;
}

async fn describe(client: &mut Client) -> DescribeAclsResponse {
    let everything = DescribeAclsRequest::default()
        .with_resource_type_filter(ANY)
        .with_resource_name_filter(None)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_pattern_type_filter(ANY)
        .with_operation(ANY)
        .with_permission_type(ANY);
    client.cold(3, &everything).await
}

async fn listed(client: &mut Client) -> Vec<String> {
    let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
    client.send_with(ApiKey::METADATA, 12, |w| request.encode(12, w)).await;
    let body = client.body(ApiKey::METADATA, 12).await;
    let response = MetadataResponse::decode(12, &body).unwrap();
    response.topics.into_iter().filter_map(|topic| topic.name).collect()
}

#[tokio::test]
async fn a_request_without_an_allow_acl_is_refused() {
    let cluster = start(guarded()).await;
    cluster.create_topic("orders", 1, 1, &[]).unwrap();
    cluster.create_topic("other", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut admin = enter(&cluster, 1, "admin\0secret").await;
    let mut alice = enter(&cluster, 1, "alice\0secret").await;
    let refused = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
    let unknown = alice.produce("nothing", 0, -1, batch(&["a"], None)).await;
    assert_eq!(unknown.error, refused);
    assert_eq!(alice.produce("orders", 0, -1, batch(&["a"], None)).await.error, refused);
    assert_eq!(alice.fetch("orders", 0, 0).await.0, refused);
    assert_eq!(alice.list_offset("orders", 0, -1).await.0, refused);
    assert_eq!(alice.metadata("orders").await.1.error, refused);
    assert_eq!(listed(&mut alice).await, [""; 0]);
    let init = InitProducerIdRequest::default().with_transactional_id(None);
    let cluster_refused = ErrorCode::CLUSTER_AUTHORIZATION_FAILED;
    assert_eq!(alice.cold(4, &init).await.error_code, cluster_refused.0);
    let init = init.with_transactional_id(Some(text("tx").into()));
    let code = alice.cold(4, &init).await.error_code;
    assert_eq!(code, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED.0);
    let find = FindCoordinatorRequest::default().with_key(text("g"));
    let group_refused = ErrorCode::GROUP_AUTHORIZATION_FAILED;
    assert_eq!(alice.cold(2, &find).await.error_code, group_refused.0);
    let heartbeat = HeartbeatRequest::default().with_group_id(text("g").into());
    assert_eq!(alice.cold(3, &heartbeat).await.error_code, group_refused.0);
    let topic = CreatableTopic::default()
        .with_name(text("new").into())
        .with_num_partitions(1)
        .with_replication_factor(1);
    let create_topic = CreateTopicsRequest::default().with_topics(vec![topic]);
    assert_eq!(alice.cold(5, &create_topic).await.topics[0].error_code, refused.0);
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![text("orders").into()]);
    assert_eq!(alice.cold(4, &delete).await.responses[0].error_code, refused.0);
    assert_eq!(describe(&mut alice).await.error_code, cluster_refused.0);

    let acls =
        vec![acl(TOPIC, "ord", PREFIXED, WRITE, ALLOW), acl(GROUP, "g", LITERAL, READ, ALLOW)];
    create(&cluster, &mut admin, acls).await;
    let written = alice.produce("orders", 0, -1, batch(&["a"], None)).await;
    assert_eq!(written.error, ErrorCode::NONE);
    assert_eq!(listed(&mut alice).await, ["orders"]);
    assert_eq!(alice.fetch("orders", 0, 0).await.0, refused);
    assert!(alice.producer_id().await >= 0);
    assert_ne!(alice.cold(2, &find).await.error_code, group_refused.0);
    assert_eq!(alice.produce("other", 0, -1, batch(&["a"], None)).await.error, refused);

    create(&cluster, &mut admin, vec![acl(TOPIC, "orders", LITERAL, WRITE, DENY)]).await;
    assert_eq!(alice.produce("orders", 0, -1, batch(&["a"], None)).await.error, refused);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn changing_a_topic_needs_permission() {
    let cluster = start(guarded()).await;
    cluster.create_topic("orders", 1, 1, &[]).unwrap();
    cluster.settled().await;
    for (user, allowed) in [("alice", false), ("admin", true)] {
        let mut client = enter(&cluster, 1, &format!("{user}\0secret")).await;
        let code = |refused: ErrorCode| if allowed { 0 } else { refused.0 };
        let (of_topic, of_cluster) = (
            code(ErrorCode::TOPIC_AUTHORIZATION_FAILED),
            code(ErrorCode::CLUSTER_AUTHORIZATION_FAILED),
        );
        let more = CreatePartitionsTopic::default()
            .with_name(text("orders").into())
            .with_count(2)
            .with_assignments(None);
        let more = CreatePartitionsRequest::default().with_topics(vec![more]);
        assert_eq!(client.cold(3, &more).await.results[0].error_code, of_topic);
        let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(0);
        let topic = DeleteRecordsTopic::default()
            .with_name(text("orders").into())
            .with_partitions(vec![partition]);
        let delete = DeleteRecordsRequest::default().with_topics(vec![topic]);
        assert_eq!(client.cold(2, &delete).await.topics[0].partitions[0].error_code, of_topic);
        let of = |kind: i8, name: &str| {
            let resource = AlterConfigsResource::default().with_resource_type(kind);
            let resource = resource.with_resource_name(text(name));
            IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
        };
        let alter = client.cold(1, &of(TOPIC, "orders")).await;
        assert_eq!(alter.responses[0].error_code, of_topic);
        let alter = client.cold(1, &of(BROKER, "1")).await;
        assert_eq!(alter.responses[0].error_code, of_cluster);
        let elect = ElectLeadersRequest::default().with_topic_partitions(None);
        assert_eq!(client.cold(2, &elect).await.error_code, of_cluster);
        let directories = DescribeLogDirsRequest::default().with_topics(None);
        let directories = client.cold(4, &directories).await;
        assert_eq!(directories.error_code, of_cluster);
        assert_eq!(directories.results.is_empty(), !allowed);
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn internal_topics_are_created_with_the_permissions_of_the_streams_member() {
    let cluster = start(guarded()).await;
    cluster.create_topic("lines", 1, 1, &[]).unwrap();
    crate::support::group::ready_for(&mut enter(&cluster, 1, "admin\0secret").await, &cluster)
        .await;
    let mut admin = enter(&cluster, 1, "admin\0secret").await;
    let mut alice = enter(&cluster, 1, "alice\0secret").await;
    let changelog = TopicInfo { name: "app-counts".into(), ..TopicInfo::default() };
    let subtopology = Subtopology {
        subtopology_id: "0".into(),
        source_topics: vec!["lines".into()],
        state_changelog_topics: vec![changelog],
        ..Subtopology::default()
    };
    let topology = Topology { epoch: 0, subtopologies: vec![subtopology] };
    let join = StreamsGroupHeartbeatRequest {
        group_id: crate::support::group::GROUP.into(),
        member_id: "a".into(),
        rebalance_timeout_ms: 1000,
        topology: Some(topology),
        process_id: Some("p".into()),
        ..StreamsGroupHeartbeatRequest::default()
    };
    let refused = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
    let group = acl(GROUP, &join.group_id, LITERAL, READ, ALLOW);
    create(&cluster, &mut admin, vec![group]).await;
    assert_eq!(alice.cold(0, &join).await.error, refused);
    let lines = acl(TOPIC, "lines", LITERAL, DESCRIBE, ALLOW);
    create(&cluster, &mut admin, vec![lines, acl(TOPIC, "app-", PREFIXED, DESCRIBE, ALLOW)]).await;
    let told = alice.cold(0, &join).await;
    let detail = |status: Option<Vec<_>>| -> String {
        let missing = |status: &curtail_wire::cold::newer::streams::GroupStatus| status.code == 3;
        status.into_iter().flatten().find(missing).map(|status| status.detail).unwrap_or_default()
    };
    let detail_now = detail(told.status);
    assert!(detail_now.contains("no permission to create app-counts"), "{detail_now}");
    assert!(cluster.leader("app-counts", 0).is_none());
    create(&cluster, &mut admin, vec![acl(TOPIC, "app-", PREFIXED, CREATE, ALLOW)]).await;
    let again = StreamsGroupHeartbeatRequest { member_epoch: 1, topology: None, ..join.clone() };
    let told = detail(alice.cold(0, &again).await.status);
    assert!(told.contains("app-counts") && !told.contains("permission"), "{told}");
    soon(cluster.wait_until(|c| c.leader("app-counts", 0).is_some())).await;

    // A client that may describe only some of the topics does not see the group.
    let describe = StreamsGroupDescribeRequest {
        group_ids: vec![join.group_id.clone()],
        include_authorized_operations: false,
    };
    assert_eq!(alice.cold(0, &describe).await.groups[0].error, ErrorCode::NONE);
    create(&cluster, &mut admin, vec![acl(TOPIC, "lines", LITERAL, DESCRIBE, DENY)]).await;
    let hidden = alice.cold(0, &describe).await.groups.remove(0);
    assert_eq!((hidden.error, hidden.topology), (refused, None));
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn acls_are_listed_and_deleted_and_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let stored = || ClusterConfig { storage: Storage::Dir(dir.path().to_owned()), ..guarded() };
    let cluster = start(stored()).await;
    let mut admin = enter(&cluster, 1, "admin\0secret").await;
    let acls = vec![
        acl(TOPIC, "t", LITERAL, READ, ALLOW),
        acl(TOPIC, "t", LITERAL, WRITE, ALLOW),
        acl(TOPIC, "t", PREFIXED, READ, ALLOW),
    ];
    create(&cluster, &mut admin, acls.clone()).await;
    create(&cluster, &mut admin, acls).await;
    let filter = DeleteAclsFilter::default()
        .with_resource_type_filter(TOPIC)
        .with_resource_name_filter(None)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_pattern_type_filter(ANY)
        .with_operation(READ)
        .with_permission_type(ANY);
    let bad = filter.clone().with_operation(99);
    let delete = DeleteAclsRequest::default().with_filters(vec![filter, bad]);
    let results = admin.cold(3, &delete).await.filter_results;
    assert_eq!((results[0].error_code, results[0].matching_acls.len()), (0, 2));
    assert_eq!(results[1].error_code, ErrorCode::INVALID_REQUEST.0);
    let wrong = vec![
        acl(CLUSTER, "cluster", LITERAL, READ, ALLOW),
        acl(TOPIC, "", LITERAL, READ, ALLOW),
        acl(TOPIC, "t", ANY, READ, ALLOW),
    ];
    let response = admin.cold(3, &CreateAclsRequest::default().with_creations(wrong)).await;
    let invalid = |code: i16| code == ErrorCode::INVALID_REQUEST.0;
    assert!(response.results.iter().all(|result| invalid(result.error_code)), "{response:?}");
    soon(cluster.shutdown()).await;

    let cluster = start(stored()).await;
    let mut admin = enter(&cluster, 1, "admin\0secret").await;
    let resources = describe(&mut admin).await.resources;
    assert_eq!(resources.len(), 1);
    assert_eq!(resources[0].acls.len(), 1);
    assert_eq!(resources[0].acls[0].operation, WRITE);
    soon(cluster.shutdown()).await;

    let cluster = start(config(1)).await;
    let mut client = Client::connect(&cluster, 1).await;
    let code = describe(&mut client).await.error_code;
    assert_eq!(code, ErrorCode::SECURITY_DISABLED.0);
    soon(cluster.shutdown()).await;
}

fn quota(of: &str, name: Option<&str>, key: &str, value: f64) -> AlterClientQuotasRequest {
    let part = EntityData::default().with_entity_type(text(of)).with_entity_name(name.map(text));
    let op = OpData::default().with_key(text(key)).with_value(value);
    let entry = EntryData::default().with_entity(vec![part]).with_ops(vec![op]);
    AlterClientQuotasRequest::default().with_entries(vec![entry])
}

#[tokio::test]
async fn a_producer_beyond_its_quota_is_throttled() {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    let mut client = Client::connect(&cluster, 1).await;
    for (key, name) in [("producer_byte_rate", Some("test")), ("consumer_byte_rate", None)] {
        let response = client.cold(1, &quota("client-id", name, key, 200.0)).await;
        assert_eq!(response.entries[0].error_code, 0, "{response:?}");
    }
    soon(cluster.settled()).await;
    // Exceeds the quota's ten-second allowance by about half a second.
    let value = "x".repeat(2000);
    let asked = Instant::now();
    client.send_produce("t", 0, -1, batch(&[&value], None)).await;
    let response: ProduceResponse = client.produce_answer().await.0;
    let told = silence(response.throttle_time_ms);
    assert!(told > Duration::from_millis(100), "{told:?}");
    let component = ComponentData::default()
        .with_entity_type(text("client-id"))
        .with_match_type(2)
        .with_match(None);
    let describe = DescribeClientQuotasRequest::default().with_components(vec![component]);
    let response = client.cold(1, &describe).await;
    assert!(asked.elapsed() >= told, "nothing is read during the throttle time");
    let entries = response.entries.unwrap();
    let names: Vec<Option<&str>> =
        entries.iter().map(|entry| entry.entity[0].entity_name.as_deref()).collect();
    assert_eq!(names, [None, Some("test")]);
    assert_eq!(entries[1].values[0].value, 200.0);
    soon(cluster.shutdown()).await;
}

fn silence(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap())
}

#[tokio::test]
async fn a_consumer_beyond_its_quota_gets_no_records_until_the_throttle_time_has_passed() {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    let mut client = Client::connect(&cluster, 1).await;
    // The first value is within ten seconds' worth, but both together are not.
    for value in ["x".repeat(90_000), "y".repeat(60_000)] {
        let answer = client.produce("t", 0, -1, batch(&[&value], None)).await;
        assert_eq!(answer.error, ErrorCode::NONE);
    }
    let altered = quota("client-id", Some("test"), "consumer_byte_rate", 10_000.0);
    assert_eq!(client.cold(1, &altered).await.entries[0].error_code, 0);
    soon(cluster.settled()).await;
    let mut request = fetch_request("t", 0, 0);
    request.topics[0].partitions[0].max_bytes = 1;
    request.session_epoch = 0;
    let first = client.fetch_raw(12, &request).await;
    assert_eq!(first.throttle_time_ms, 0);
    assert_eq!(values(&first.topics[0].partitions[0].records).len(), 1);

    // The session continues with the next request, whether or not the throttled one returned
    // records.
    request.session_id = first.session_id;
    request.session_epoch = 1;
    request.topics[0].partitions[0].fetch_offset = 1;
    let asked = Instant::now();
    let refused = client.fetch_raw(12, &request).await;
    let told = silence(refused.throttle_time_ms);
    assert!(told > Duration::from_millis(100) && refused.topics.is_empty(), "{refused:?}");
    assert_eq!((refused.error, refused.session_id), (ErrorCode::NONE, first.session_id));
    let altered = quota("client-id", Some("test"), "consumer_byte_rate", 20_000.0);
    assert_eq!(client.cold(1, &altered).await.entries[0].error_code, 0);
    assert!(asked.elapsed() >= told, "nothing is read during the throttle time");
    soon(cluster.settled()).await;
    request.session_epoch = 2;
    request.topics.clear();
    let second = client.fetch_raw(12, &request).await;
    // Counted twice, it would exceed the quota again.
    assert_eq!(second.throttle_time_ms, 0);
    assert_eq!(values(&second.topics[0].partitions[0].records)[0].0, 1);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn quotas_survive_a_restart_and_unsupported_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let stored = || ClusterConfig { storage: Storage::Dir(dir.path().to_owned()), ..config(1) };
    let cluster = start(stored()).await;
    let mut client = Client::connect(&cluster, 1).await;
    for (request, code) in [
        (quota("user", Some("alice"), "producer_byte_rate", 5.0), ErrorCode::NONE),
        (quota("user", None, "consumer_byte_rate", 5.0), ErrorCode::NONE),
        (quota("user", Some("bob"), "request_percentage", 5.0), ErrorCode::INVALID_REQUEST),
        (quota("user", Some("bob"), "producer_byte_rate", 0.5), ErrorCode::INVALID_REQUEST),
        (quota("user", Some(""), "producer_byte_rate", 5.0), ErrorCode::INVALID_REQUEST),
        (quota("ip", Some("::1"), "connection_creation_rate", 5.0), ErrorCode::UNSUPPORTED_VERSION),
        (
            quota("user", Some("bob"), "producer_byte_rate", 5.0).with_validate_only(true),
            ErrorCode::NONE,
        ),
    ] {
        assert_eq!(client.cold(1, &request).await.entries[0].error_code, code.0, "{request:?}");
    }
    let mut gone = quota("user", None, "consumer_byte_rate", 0.0);
    gone.entries[0].ops[0].remove = true;
    assert_eq!(client.cold(1, &gone).await.entries[0].error_code, 0);
    soon(cluster.shutdown()).await;

    let cluster = start(stored()).await;
    let mut client = Client::connect(&cluster, 1).await;
    let entries = client.cold(1, &DescribeClientQuotasRequest::default()).await.entries.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].entity[0].entity_name.as_deref(), Some("alice"));
    soon(cluster.shutdown()).await;
}
