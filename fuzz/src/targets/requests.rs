//! Requests to the embedded cluster: any bytes of any API and version, on connections of one broker in memory.
//!
//! The broker responds to each request with a frame that our client decodes, or closes the connection. It does not
//! panic, does not use more memory than the requests justify, and serves the next connection.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use curtail_cluster::{
    Cluster, ClusterConfig, Listeners, Mechanism, SecurityProtocol, Storage, User,
    disk::{Disk, MemDisk},
};
use curtail_net::{Entropy, Env, Net, Socket, SocketExt, SocketOptions};
use curtail_wire::{
    ApiKey, ApiVersions, Writer,
    cold::{self, Encodable, Message, Request, StrBytes, messages::*, newer},
    compression::Compression,
    fetch::{FetchPartition, FetchRequest, FetchTopic},
    frame::FrameSplitter,
    header::{self, RequestHeader},
    metadata::{MetadataRequest, MetadataRequestTopic},
    produce::{ProducePartition, ProduceRequest, ProduceTopic},
    records::{BatchBuilder, RecordData},
};
use tokio::{runtime::Builder, time::timeout};

use super::responses;
use crate::{
    Input, Target, memory,
    network::{Network, Still},
};

pub(super) const TARGET: Target = Target { name: "requests", run, seeds, cases: 1_200 };

/// Virtual time for one response. Joins and fetches wait that long by contract, if the request asks for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that serving a few small requests may take: a log's cache and the memory disk keep copies, and `kafka-protocol`
/// makes room for 4,096 elements ahead.
const CAP: usize = 48 * 1024 * 1024;

const TOPIC: &str = "t";

/// Requests on one connection.
const MAX_REQUESTS: usize = 12;

/// The first byte chooses the listener: an eighth of the values choose SASL. Requests follow: API key, version, body
/// length, body. A length beyond the input means the rest of it.
fn run(input: &[u8]) {
    memory::within("the cluster", CAP + 64 * input.len(), || {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(serve(input));
    });
}

async fn serve(input: &[u8]) {
    let network = Network::default();
    let mut input = Input::new(input);
    let is_secured = input.below(8) == 7;
    let cluster = start(&network, is_secured).await;
    let mut client = Client::connect(&network).await;
    if !is_secured {
        client.open_coordinators().await;
    }
    for _ in 0..MAX_REQUESTS {
        if input.is_empty() {
            break;
        }
        let (api, version) = (ApiKey(i16::from(input.byte()) % 96), i16::from(input.byte()) % 20);
        let body = input.section();
        if is_expensive(api, version, body) {
            continue;
        }
        if !client.ask(api, version, body).await {
            client = Client::connect(&network).await;
        }
    }
    // The cluster still serves others.
    let mut other = Client::connect(&network).await;
    assert!(other.ask(ApiKey::API_VERSIONS, 0, &[]).await, "serves others");
    let metadata = other.ask(ApiKey::METADATA, 1, &[0, 0, 0, 0]).await;
    assert_eq!(metadata, !is_secured, "serves others, if they need no authentication");
    drop(cluster);
}

/// Whether a request asks for more than 1,000 partitions, whose creation would take most of the run. The controller
/// accepts up to 100,000.
fn is_expensive(api: ApiKey, version: i16, body: &[u8]) -> bool {
    const MANY: i32 = 1_000;
    let body = Bytes::copy_from_slice(body);
    match api {
        ApiKey::CREATE_TOPICS => cold::decode_request::<CreateTopicsRequest>(version, body)
            .is_ok_and(|request| request.topics.iter().any(|topic| topic.num_partitions > MANY)),
        ApiKey::CREATE_PARTITIONS => cold::decode_request::<CreatePartitionsRequest>(version, body)
            .is_ok_and(|request| request.topics.iter().any(|topic| topic.count > MANY)),
        _ => false,
    }
}

fn addr() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 9092))
}

async fn start(network: &Network, is_secured: bool) -> Cluster {
    let env = Env {
        net: Arc::new(network.clone()),
        wall: Arc::new(Still),
        entropy: Entropy::from_seed(1),
    };
    let mut config = ClusterConfig {
        brokers: 1,
        listeners: Listeners::new(SecurityProtocol::Plaintext, addr()),
        storage: Storage::Disks(vec![Arc::new(MemDisk::new()) as Arc<dyn Disk>]),
        offsets_topic_partitions: 1,
        transaction_log_partitions: 1,
        default_replication_factor: 1,
        ..ClusterConfig::default()
    };
    if is_secured {
        config.listeners = Listeners::new(SecurityProtocol::SaslPlaintext, addr());
        config.security.users = vec![User::new("u", "p")];
        config.security.mechanisms =
            vec![Mechanism::Plain, Mechanism::ScramSha256, Mechanism::OAuthBearer];
    }
    let cluster = Cluster::start(config, env).await.expect("a cluster in memory");
    cluster.create_topic(TOPIC, 2, 1, &[]).expect("a topic");
    cluster.settled().await;
    cluster
}

struct Client {
    socket: Box<dyn Socket>,
    frames: FrameSplitter,
    correlation_id: i32,
}

impl Client {
    async fn connect(network: &Network) -> Self {
        let socket = network.connect(addr(), SocketOptions::default()).await.expect("it listens");
        Self { socket, frames: FrameSplitter::default(), correlation_id: 0 }
    }

    /// Creates and loads the coordinators' topics, so that later requests reach their coordinator.
    async fn open_coordinators(&mut self) {
        for (kind, version, key) in
            [("group", 0, &b"\0\x01g"[..]), ("transaction", 1, b"\0\x01x\x01")]
        {
            let served = self.ask(ApiKey::FIND_COORDINATOR, version, key).await;
            assert!(served, "finds the coordinator of a {kind}");
        }
        // In this virtual time the broker applies the new metadata.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// Sends a request, and returns whether the connection remains usable.
    async fn ask(&mut self, api: ApiKey, version: i16, body: &[u8]) -> bool {
        self.correlation_id += 1;
        let frame = frame(api, version, self.correlation_id, body);
        if self.socket.write_all(&frame).await.is_err() {
            return false;
        }
        let Ok(answer) = timeout(PATIENCE, self.read()).await else {
            // Without acknowledgements there is no response, and some requests wait for long.
            return false;
        };
        let Some(answer) = answer else { return false };
        assert_eq!(header::correlation_id(&answer), Ok(self.correlation_id), "answers in order");
        self.check(api, version, &answer);
        true
    }

    async fn read(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.frames.next_frame().expect("the broker sends frames") {
                return Some(frame);
            }
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.frames.spare(count).extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Checks that our client decodes the cluster's response.
    fn check(&self, api: ApiKey, version: i16, answer: &Bytes) {
        let body = header::response_body(answer, api, version).expect("a response header");
        if api == ApiKey::API_VERSIONS {
            ApiVersions::decode(version, &body).expect("a response to ApiVersions");
            return;
        }
        if let Some(check) = responses::strict_check_of(api) {
            check(version, &body);
        }
    }
}

fn frame(api: ApiKey, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    w.i32(0);
    RequestHeader { api, version, correlation_id, client_id: Some("fuzz") }.encode(&mut w);
    w.raw(body);
    let mut frame = w.into_vec();
    let length = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// Valid requests, one of each API in each version, and some after each other.
fn seeds() -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SEEDS.get_or_init(make_seeds).clone()
}

fn make_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for requests in [data(), groups(), transactions(), administration(), access()] {
        seeds.extend(requests.chunks(6).chain(requests.chunks(1)).map(|some| seed(0, some)));
    }
    let messages: [(&str, &[u8]); 3] = [
        ("PLAIN", b"\0u\0p"),
        ("SCRAM-SHA-256", b"n,,n=u,r=nonce"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1IiwiZXhwIjoxODAwMDAwMDAwfQ.\x01\x01"),
    ];
    for (mechanism, message) in messages {
        let handshake = SaslHandshakeRequest::default().with_mechanism(text(mechanism));
        let bytes = Bytes::copy_from_slice(message);
        let authenticate = SaslAuthenticateRequest::default().with_auth_bytes(bytes);
        let mut requests = vec![versions(&handshake).pop().unwrap_or_default()];
        requests.extend(versions(&authenticate));
        requests.extend(versions(&ListGroupsRequest::default()));
        seeds.push(seed(7, &requests));
    }
    seeds
}

fn seed(listener: u8, requests: &[Vec<u8>]) -> Vec<u8> {
    [vec![listener], requests.concat()].concat()
}

fn request(api: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    [&[api.0 as u8, version as u8][..], &length, body].concat()
}

/// A request in the lowest, the highest and a middle version that can express it.
fn versions<Q: Request + Encodable + Message>(request_of: &Q) -> Vec<Vec<u8>> {
    let api = ApiKey(Q::KEY);
    let all: Vec<i16> = cold::versions(api).into_iter().flatten().collect();
    let chosen = [all.first(), all.get(all.len() / 2), all.last()].into_iter().flatten();
    let mut chosen: Vec<i16> = chosen.copied().collect();
    chosen.dedup();
    let encoded = chosen.into_iter().filter_map(|version| {
        Some(request(api, version, &cold::encode(version, request_of).ok()?))
    });
    encoded.collect()
}

fn topic_name() -> TopicName {
    TopicName(text(TOPIC))
}

fn group() -> GroupId {
    GroupId(text("g"))
}

fn transaction() -> TransactionalId {
    TransactionalId(text("x"))
}

fn hot(api: ApiKey, version: i16, encode: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::default();
    w.set_encoding(api.encoding(version));
    encode(&mut w);
    request(api, version, w.as_slice())
}

fn batch() -> Bytes {
    let mut builder = BatchBuilder::new(Vec::new());
    builder.append(&RecordData { key: None, value: Some(b"v"), headers: &[], timestamp: 5 });
    builder.seal(&Compression::NONE, &mut Vec::new()).expect("a small batch").into()
}

fn data() -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    for version in [3, 9, 12] {
        let partitions = vec![ProducePartition { index: 0, records: Some(batch()) }];
        let topic = ProduceTopic { name: TOPIC.into(), partitions, ..ProduceTopic::default() };
        let produce = ProduceRequest {
            acks: -1,
            timeout_ms: 100,
            topics: vec![topic],
            ..ProduceRequest::default()
        };
        requests.push(hot(ApiKey::PRODUCE, version, |w| produce.encode(version, w)));
    }
    for version in [4, 7, 12] {
        let partitions = vec![FetchPartition::default()];
        let topic = FetchTopic { name: TOPIC.into(), partitions, ..FetchTopic::default() };
        let fetch =
            FetchRequest { session_epoch: 0, topics: vec![topic], ..FetchRequest::default() };
        requests.push(hot(ApiKey::FETCH, version, |w| fetch.encode(version, w)));
    }
    for version in [1, 9, 13] {
        let topics = Some(vec![MetadataRequestTopic {
            name: Some(TOPIC.into()),
            ..MetadataRequestTopic::default()
        }]);
        let metadata = MetadataRequest {
            topics,
            allow_auto_topic_creation: true,
            ..MetadataRequest::default()
        };
        requests.push(hot(ApiKey::METADATA, version, |w| metadata.encode(version, w)));
    }
    let partition = list_offsets_request::ListOffsetsPartition::default().with_timestamp(-1);
    let topic = list_offsets_request::ListOffsetsTopic::default()
        .with_name(topic_name())
        .with_partitions(vec![partition]);
    requests.extend(versions(&ListOffsetsRequest::default().with_topics(vec![topic])));
    let partition = offset_for_leader_epoch_request::OffsetForLeaderPartition::default();
    let topic = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
        .with_topic(topic_name())
        .with_partitions(vec![partition]);
    requests.extend(versions(&OffsetForLeaderEpochRequest::default().with_topics(vec![topic])));
    let partition = delete_records_request::DeleteRecordsPartition::default();
    let topic = delete_records_request::DeleteRecordsTopic::default()
        .with_name(topic_name())
        .with_partitions(vec![partition]);
    requests.extend(versions(&DeleteRecordsRequest::default().with_topics(vec![topic])));
    let topic = describe_producers_request::TopicRequest::default()
        .with_name(topic_name())
        .with_partition_indexes(vec![0]);
    requests.extend(versions(&DescribeProducersRequest::default().with_topics(vec![topic])));
    requests.extend(versions(&ApiVersionsRequest::default()));
    requests.extend(versions(&SaslHandshakeRequest::default().with_mechanism(text("PLAIN"))));
    requests.extend(versions(
        &SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from_static(b"\0u\0p")),
    ));
    requests
}

fn groups() -> Vec<Vec<u8>> {
    let mut requests = versions(&FindCoordinatorRequest::default().with_key(text("g")));
    let keys = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g")]);
    requests.extend(versions(&keys));
    let partition = newer::OffsetCommitPartition { committed_offset: 3, ..Default::default() };
    let topic = newer::OffsetCommitTopic {
        name: TOPIC.into(),
        partitions: vec![partition],
        ..Default::default()
    };
    requests.extend(versions(&newer::OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }));
    let asked = newer::OffsetFetchGroup { group_id: "g".into(), ..Default::default() };
    requests.extend(versions(&newer::OffsetFetchRequest {
        groups: vec![asked],
        require_stable: false,
    }));
    let protocol = join_group_request::JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(b"\0\0\0\0\0\0\xff\xff\xff\xff"));
    let join = JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    requests.extend(versions(&join));
    requests.extend(versions(&SyncGroupRequest::default().with_group_id(group())));
    requests.extend(versions(&HeartbeatRequest::default().with_group_id(group())));
    requests.extend(versions(&LeaveGroupRequest::default().with_group_id(group())));
    requests.extend(versions(&DescribeGroupsRequest::default().with_groups(vec![group()])));
    requests.extend(versions(&ListGroupsRequest::default()));
    let beat = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("c")))
        .with_member_id(text("m"))
        .with_rebalance_timeout_ms(10_000)
        .with_subscribed_topic_names(Some(vec![topic_name()]))
        .with_topic_partitions(Some(Vec::new()));
    requests.extend(versions(&beat));
    let pattern = beat.with_subscribed_topic_regex(Some(text("t.*")));
    requests.extend(versions(&pattern));
    requests.extend(versions(
        &ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text("c"))]),
    ));
    requests.extend(versions(&streams_join()));
    requests.extend(versions(&newer::streams::StreamsGroupDescribeRequest {
        group_ids: vec!["s".to_owned()],
        include_authorized_operations: true,
    }));
    requests.extend(versions(&DeleteGroupsRequest::default().with_groups_names(vec![group()])));
    let partition = offset_delete_request::OffsetDeleteRequestPartition::default();
    let topic = offset_delete_request::OffsetDeleteRequestTopic::default()
        .with_name(topic_name())
        .with_partitions(vec![partition]);
    requests.extend(versions(
        &OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![topic]),
    ));
    requests
}

/// A member of a streams group joins with a topology.
fn streams_join() -> newer::streams::StreamsGroupHeartbeatRequest {
    use newer::streams::{StreamsGroupHeartbeatRequest, Subtopology, TopicInfo, Topology};

    let changelog = TopicInfo { name: "changelog".to_owned(), ..TopicInfo::default() };
    let subtopology = Subtopology {
        subtopology_id: "0".to_owned(),
        source_topics: vec![topic_name().to_string()],
        state_changelog_topics: vec![changelog],
        ..Subtopology::default()
    };
    StreamsGroupHeartbeatRequest {
        group_id: "s".to_owned(),
        member_id: "m".to_owned(),
        rebalance_timeout_ms: 10_000,
        topology: Some(Topology { epoch: 0, subtopologies: vec![subtopology] }),
        active_tasks: Some(Vec::new()),
        standby_tasks: Some(Vec::new()),
        warmup_tasks: Some(Vec::new()),
        process_id: Some("p".to_owned()),
        ..StreamsGroupHeartbeatRequest::default()
    }
}

fn transactions() -> Vec<Vec<u8>> {
    let init = InitProducerIdRequest::default()
        .with_transactional_id(Some(transaction()))
        .with_transaction_timeout_ms(10_000);
    let mut requests = versions(&init);
    requests.extend(versions(&InitProducerIdRequest::default()));
    let topic = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(topic_name())
        .with_partitions(vec![0]);
    let add = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transaction())
        .with_v3_and_below_topics(vec![topic.clone()]);
    requests.extend(versions(&add));
    let verify = add_partitions_to_txn_request::AddPartitionsToTxnTransaction::default()
        .with_transactional_id(transaction())
        .with_topics(vec![topic]);
    requests
        .extend(versions(&AddPartitionsToTxnRequest::default().with_transactions(vec![verify])));
    requests.extend(versions(
        &AddOffsetsToTxnRequest::default()
            .with_transactional_id(transaction())
            .with_group_id(group()),
    ));
    let partition = txn_offset_commit_request::TxnOffsetCommitRequestPartition::default();
    let topic = txn_offset_commit_request::TxnOffsetCommitRequestTopic::default()
        .with_name(topic_name())
        .with_partitions(vec![partition]);
    let commit = TxnOffsetCommitRequest::default()
        .with_transactional_id(transaction())
        .with_group_id(group())
        .with_topics(vec![topic]);
    requests.extend(versions(&commit));
    requests.extend(versions(&EndTxnRequest::default().with_transactional_id(transaction())));
    requests.extend(versions(
        &DescribeTransactionsRequest::default().with_transactional_ids(vec![transaction()]),
    ));
    requests.extend(versions(&ListTransactionsRequest::default()));
    let topic = newer::WritableTxnMarkerTopic { name: TOPIC.into(), partitions: vec![0] };
    let marker = newer::WritableTxnMarker { topics: vec![topic], ..Default::default() };
    requests.extend(versions(&newer::WriteTxnMarkersRequest { markers: vec![marker] }));
    requests
}

fn administration() -> Vec<Vec<u8>> {
    let config = create_topics_request::CreatableTopicConfig::default()
        .with_name(text("retention.ms"))
        .with_value(Some(text("5000")));
    let topic = create_topics_request::CreatableTopic::default()
        .with_name(TopicName(text("n")))
        .with_num_partitions(2)
        .with_replication_factor(1)
        .with_configs(vec![config]);
    let mut requests = versions(&CreateTopicsRequest::default().with_topics(vec![topic]));
    let topic = create_partitions_request::CreatePartitionsTopic::default()
        .with_name(topic_name())
        .with_count(3);
    requests.extend(versions(&CreatePartitionsRequest::default().with_topics(vec![topic])));
    requests.extend(versions(&DeleteTopicsRequest::default().with_topic_names(vec![topic_name()])));
    let state = delete_topics_request::DeleteTopicState::default().with_name(Some(topic_name()));
    requests.extend(versions(&DeleteTopicsRequest::default().with_topics(vec![state])));
    for (kind, name) in [(2, TOPIC), (4, "1"), (32, "g")] {
        let resource = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configuration_keys(None);
        requests
            .extend(versions(&DescribeConfigsRequest::default().with_resources(vec![resource])));
        let setting = alter_configs_request::AlterableConfig::default()
            .with_name(text("retention.ms"))
            .with_value(Some(text("1")));
        let resource = alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configs(vec![setting]);
        requests.extend(versions(&AlterConfigsRequest::default().with_resources(vec![resource])));
        let change = incremental_alter_configs_request::AlterableConfig::default()
            .with_name(text("retention.ms"))
            .with_value(Some(text("1")));
        let resource = incremental_alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configs(vec![change]);
        requests.extend(versions(
            &IncrementalAlterConfigsRequest::default().with_resources(vec![resource]),
        ));
    }
    requests.extend(versions(&newer::DescribeLogDirsRequest::default()));
    requests.extend(versions(&ElectLeadersRequest::default().with_topic_partitions(None)));
    requests.extend(versions(&DescribeClusterRequest::default()));
    requests.extend(versions(&newer::AddRaftVoterRequest::default()));
    let partition = alter_partition_reassignments_request::ReassignablePartition::default()
        .with_replicas(Some(vec![BrokerId(1)]));
    let topic = alter_partition_reassignments_request::ReassignableTopic::default()
        .with_name(topic_name())
        .with_partitions(vec![partition]);
    requests
        .extend(versions(&AlterPartitionReassignmentsRequest::default().with_topics(vec![topic])));
    requests.extend(versions(&ListPartitionReassignmentsRequest::default().with_topics(None)));
    requests
}

fn access() -> Vec<Vec<u8>> {
    let filter = DescribeAclsRequest::default()
        .with_resource_type_filter(1)
        .with_pattern_type_filter(1)
        .with_operation(1)
        .with_permission_type(1);
    let mut requests = versions(&filter);
    let acl = create_acls_request::AclCreation::default()
        .with_resource_type(2)
        .with_resource_name(text(TOPIC))
        .with_resource_pattern_type(3)
        .with_principal(text("User:a"))
        .with_host(text("*"))
        .with_operation(3)
        .with_permission_type(3);
    requests.extend(versions(&CreateAclsRequest::default().with_creations(vec![acl])));
    let filter = delete_acls_request::DeleteAclsFilter::default()
        .with_resource_type_filter(1)
        .with_pattern_type_filter(1)
        .with_operation(1)
        .with_permission_type(1);
    requests.extend(versions(&DeleteAclsRequest::default().with_filters(vec![filter])));
    requests.extend(versions(&DescribeClientQuotasRequest::default()));
    let entity = alter_client_quotas_request::EntityData::default()
        .with_entity_type(text("user"))
        .with_entity_name(Some(text("a")));
    let change = alter_client_quotas_request::OpData::default()
        .with_key(text("producer_byte_rate"))
        .with_value(5.0);
    let entry = alter_client_quotas_request::EntryData::default()
        .with_entity(vec![entity])
        .with_ops(vec![change]);
    requests.extend(versions(&AlterClientQuotasRequest::default().with_entries(vec![entry])));
    requests.extend(versions(&DescribeUserScramCredentialsRequest::default().with_users(None)));
    let upsertion = alter_user_scram_credentials_request::ScramCredentialUpsertion::default()
        .with_name(text("a"))
        .with_mechanism(1)
        .with_iterations(4096)
        .with_salt(Bytes::from_static(b"salt"))
        .with_salted_password(Bytes::from_static(&[7; 32]));
    requests.extend(versions(
        &AlterUserScramCredentialsRequest::default().with_upsertions(vec![upsertion]),
    ));
    requests
}
