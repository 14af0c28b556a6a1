//! Streams groups over the wire (KIP-1071): refusals, internal topics, tasks and their commits, other protocols, and
//! the coordinator's move and restart.

#[cfg(unix)]
mod java;

use std::time::Duration;

use crate::support::{
    Client, config,
    group::{GROUP, OFFSETS, PARTITION, coordinator, group, ready, retried, text, topic},
    soon, start,
};
use curtail_cluster::{Cluster, ClusterConfig, Storage};
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest,
        DescribeGroupsRequest, JoinGroupRequest, ListGroupsRequest, OffsetCommitRequest,
        OffsetDeleteRequest,
        join_group_request::JoinGroupRequestProtocol,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic},
    },
    cold::newer::streams::{
        DescribedStreamsGroup, StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest,
        StreamsGroupHeartbeatResponse, Subtopology, TaskIds, TaskOffset, TopicInfo, Topology,
    },
};

/// The status of missing internal topics.
const MISSING_INTERNAL_TOPICS: i8 = 3;

/// Returns a configuration with short sessions, and a target assignment whenever one is needed.
fn quick(brokers: u32) -> ClusterConfig {
    ClusterConfig {
        group_streams_min_session_timeout: Duration::from_millis(1),
        group_streams_session_timeout: Duration::from_millis(700),
        group_streams_min_heartbeat_interval: Duration::from_millis(1),
        group_streams_heartbeat_interval: Duration::from_millis(50),
        group_streams_initial_rebalance_delay: Duration::ZERO,
        group_streams_assignment_interval: Duration::ZERO,
        ..config(brokers)
    }
}

/// Sessions that no test outlives.
fn patient(brokers: u32) -> ClusterConfig {
    ClusterConfig { group_streams_session_timeout: Duration::from_secs(60), ..quick(brokers) }
}

/// Starts a cluster with a topic `lines` of two partitions and the internal topic.
async fn with_lines(config: ClusterConfig) -> Cluster {
    let brokers = i16::try_from(config.brokers).expect("a few");
    let cluster = start(config).await;
    cluster.create_topic("lines", 2, brokers, &[]).expect("a topic");
    ready(&cluster).await;
    cluster
}

fn internal(name: &str) -> TopicInfo {
    TopicInfo { name: name.to_owned(), ..TopicInfo::default() }
}

/// A word count, with a repartition topic and a changelog.
fn word_count() -> Topology {
    let split = Subtopology {
        subtopology_id: "0".into(),
        source_topics: vec!["lines".into()],
        repartition_sink_topics: vec!["words".into()],
        ..Subtopology::default()
    };
    let count = Subtopology {
        subtopology_id: "1".into(),
        repartition_source_topics: vec![internal("words")],
        state_changelog_topics: vec![internal("counts")],
        ..Subtopology::default()
    };
    Topology { epoch: 0, subtopologies: vec![split, count] }
}

/// A member that reports its tasks in every heartbeat.
#[derive(Default)]
struct Member {
    id: &'static str,
    epoch: i32,
    active: Vec<TaskIds>,
    standby: Vec<TaskIds>,
}

impl Member {
    fn new(id: &'static str) -> Self {
        Self { id, ..Self::default() }
    }

    fn request(&self) -> StreamsGroupHeartbeatRequest {
        let joins = self.epoch == 0;
        StreamsGroupHeartbeatRequest {
            group_id: GROUP.to_owned(),
            member_id: self.id.to_owned(),
            member_epoch: self.epoch,
            rebalance_timeout_ms: 20_000,
            topology: joins.then(word_count),
            active_tasks: Some(self.active.clone()),
            standby_tasks: Some(self.standby.clone()),
            warmup_tasks: Some(Vec::new()),
            process_id: Some(self.id.to_owned()),
            ..StreamsGroupHeartbeatRequest::default()
        }
    }

    /// Sends a heartbeat and follows the response.
    async fn beat(&mut self, client: &mut Client) -> StreamsGroupHeartbeatResponse {
        let answer = beat(client, &self.request()).await;
        assert_eq!(answer.error, ErrorCode::NONE, "{answer:?}");
        self.epoch = answer.member_epoch;
        if let Some(active) = &answer.active_tasks {
            self.active.clone_from(active);
            self.standby = answer.standby_tasks.clone().unwrap_or_default();
        }
        answer
    }
}

fn count(tasks: &[TaskIds]) -> usize {
    tasks.iter().map(|of| of.partitions.len()).sum()
}

/// Sends a heartbeat until the coordinator is available.
async fn beat(
    client: &mut Client,
    request: &StreamsGroupHeartbeatRequest,
) -> StreamsGroupHeartbeatResponse {
    retried(async || {
        let answer = client.cold(0, request).await;
        (answer.error, answer)
    })
    .await
}

/// Sends heartbeats of all members until they have these numbers of active and standby tasks.
async fn until(client: &mut Client, members: &mut [&mut Member], counts: &[(usize, usize)]) {
    soon(async {
        loop {
            for member in members.iter_mut() {
                member.beat(client).await;
            }
            let now = members.iter().map(|member| (count(&member.active), count(&member.standby)));
            if now.eq(counts.iter().copied()) {
                return;
            }
        }
    })
    .await;
}

async fn described(client: &mut Client) -> DescribedStreamsGroup {
    let request = StreamsGroupDescribeRequest {
        group_ids: vec![GROUP.to_owned()],
        include_authorized_operations: true,
    };
    soon(async {
        loop {
            let group = client.cold(0, &request).await.groups.remove(0);
            let passing = [ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, ErrorCode::NOT_COORDINATOR];
            if !passing.contains(&group.error) {
                return group;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Commits an offset of `lines`-0 and returns the error.
async fn commit(client: &mut Client, version: i16, id: &str, epoch: i32) -> ErrorCode {
    let partition = OffsetCommitRequestPartition::default()
        .with_committed_offset(5)
        .with_committed_metadata(Some(text("")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic("lines"))
        .with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_member_id(text(id))
        .with_generation_id_or_member_epoch(epoch)
        .with_topics(vec![topic]);
    let answer = client.cold(version, &request).await;
    ErrorCode(answer.topics[0].partitions[0].error_code)
}

async fn delete_offset(client: &mut Client) -> ErrorCode {
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(topic("lines"))
        .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
    let request = OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![topic]);
    let answer = client.cold(0, &request).await;
    ErrorCode(answer.topics[0].partitions[0].error_code)
}

async fn delete(client: &mut Client) -> ErrorCode {
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
    ErrorCode(client.cold(2, &request).await.results[0].error_code)
}

#[tokio::test]
async fn invalid_heartbeats_are_refused() {
    let cluster = with_lines(quick(1)).await;
    let mut client = coordinator(&cluster).await;
    let fresh = || Member::new("a").request();
    let with = |change: fn(&mut Topology)| {
        let mut topology = word_count();
        change(&mut topology);
        StreamsGroupHeartbeatRequest { topology: Some(topology), ..fresh() }
    };
    let later = || StreamsGroupHeartbeatRequest { member_epoch: 7, topology: None, ..fresh() };
    let one = || Some(vec![TaskIds { subtopology_id: "0".into(), partitions: vec![0] }]);
    let (invalid, topology) = (ErrorCode::INVALID_REQUEST, ErrorCode::STREAMS_INVALID_TOPOLOGY);
    let not_found = ErrorCode::GROUP_ID_NOT_FOUND;
    type Request = StreamsGroupHeartbeatRequest;
    let cases = [
        (Request { member_id: String::new(), ..fresh() }, invalid),
        (Request { group_id: " ".into(), ..fresh() }, invalid),
        (Request { rack_id: Some(String::new()), ..fresh() }, invalid),
        (Request { instance_id: Some("i".into()), ..fresh() }, invalid),
        (Request { instance_id: Some("i".into()), member_epoch: -2, ..later() }, invalid),
        (Request { rebalance_timeout_ms: -1, ..fresh() }, invalid),
        (Request { topology: None, ..fresh() }, invalid),
        (Request { active_tasks: one(), ..fresh() }, invalid),
        (Request { active_tasks: None, ..fresh() }, invalid),
        (Request { warmup_tasks: one(), ..fresh() }, invalid),
        (Request { task_offsets: Some(vec![TaskOffset::default()]), ..fresh() }, invalid),
        (Request { topology: Some(word_count()), ..later() }, invalid),
        (Request { member_epoch: -3, ..later() }, invalid),
        (with(|of| of.subtopologies[0].source_topic_regex = vec!["l.*".into()]), invalid),
        (with(|of| of.subtopologies[0].source_topics = vec![OFFSETS.into()]), topology),
        (with(|of| of.subtopologies[0].source_topics = vec!["a b".into()]), topology),
        (with(|of| of.subtopologies[1].state_changelog_topics[0].partitions = 1), topology),
        (with(|of| of.subtopologies[0].repartition_sink_topics.clear()), topology),
        (with(|of| of.epoch = -1), ErrorCode::UNKNOWN_SERVER_ERROR),
        (
            with(|of| {
                of.subtopologies[1].subtopology_id = of.subtopologies[0].subtopology_id.clone();
            }),
            ErrorCode::UNKNOWN_SERVER_ERROR,
        ),
        (
            with(|of| {
                let topics = (0..4_000).map(|number| format!("lines-{number}"));
                of.subtopologies[0].source_topics.extend(topics);
            }),
            topology,
        ),
        (later(), not_found),
        (Request { member_epoch: -1, ..later() }, not_found),
    ];
    for (request, expected) in cases {
        let answer = beat(&mut client, &request).await;
        assert_eq!(answer.error, expected, "{request:?}");
        assert!(answer.error_message.is_some() && answer.active_tasks.is_none(), "{request:?}");
    }
    assert_eq!(described(&mut client).await.error, not_found);
    cluster.shutdown().await;
}

#[tokio::test]
async fn internal_topics_are_created_and_members_share_the_tasks() {
    let cluster = with_lines(quick(3)).await;
    let mut client = coordinator(&cluster).await;
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    let first = a.beat(&mut client).await;
    let status: Vec<i8> = first.status.iter().flatten().map(|status| status.code).collect();
    assert_eq!((status, count(&a.active)), (vec![MISSING_INTERNAL_TOPICS], 0));
    assert_eq!(described(&mut client).await.group_state, "NotReady");
    until(&mut client, &mut [&mut a], &[(4, 0)]).await;
    for topic in ["words", "counts"] {
        assert!((0..2).all(|index| cluster.leader(topic, index).is_some()), "{topic}");
        assert!(cluster.leader(topic, 2).is_none(), "{topic}");
    }
    until(&mut client, &mut [&mut a, &mut b], &[(2, 0), (2, 0)]).await;

    let group = described(&mut client).await;
    assert_eq!((group.group_state.as_str(), group.authorized_operations), ("Stable", 3400));
    let topology = group.topology.expect("a topology");
    let subtopologies = topology.subtopologies.expect("its parts");
    assert_eq!(subtopologies[0].source_topics, ["lines"]);
    assert_eq!(subtopologies[1].state_changelog_topics[0].partitions, 2);
    let ids: Vec<&str> = group.members.iter().map(|member| member.member_id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    for (member, own) in group.members.iter().zip([&a, &b]) {
        assert_eq!(member.assignment, member.target_assignment);
        assert_eq!(member.assignment.active_tasks, own.active);
        assert_eq!((member.member_epoch, member.process_id.as_str()), (own.epoch, own.id));
        assert_eq!((member.client_host.as_str(), member.is_classic), ("/127.0.0.1", false));
    }

    // Only members in their epochs may commit. Offsets of the topology's topics cannot be deleted.
    assert_eq!(commit(&mut client, 9, "a", a.epoch).await, ErrorCode::NONE);
    assert_eq!(commit(&mut client, 9, "a", a.epoch + 1).await, ErrorCode::STALE_MEMBER_EPOCH);
    assert_eq!(commit(&mut client, 9, "x", a.epoch).await, ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(commit(&mut client, 8, "a", a.epoch).await, ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(delete_offset(&mut client).await, ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC);

    // The other member sends no more heartbeats.
    until(&mut client, &mut [&mut a], &[(4, 0)]).await;
    assert_eq!(delete(&mut client).await, ErrorCode::NON_EMPTY_GROUP);
    let leaving = StreamsGroupHeartbeatRequest { member_epoch: -1, ..a.request() };
    let left = beat(&mut client, &StreamsGroupHeartbeatRequest { topology: None, ..leaving }).await;
    assert_eq!((left.error, left.member_epoch, left.status), (ErrorCode::NONE, -1, Some(vec![])));
    assert_eq!(described(&mut client).await.group_state, "Empty");
    assert_eq!(delete_offset(&mut client).await, ErrorCode::NONE);
    assert_eq!(delete(&mut client).await, ErrorCode::NONE);
    assert_eq!(described(&mut client).await.error, ErrorCode::GROUP_ID_NOT_FOUND);
    cluster.shutdown().await;
}

#[tokio::test]
async fn groups_survive_their_coordinator() {
    let config = ClusterConfig { group_streams_num_standby_replicas: 1, ..patient(3) };
    let cluster = with_lines(config).await;
    let mut client = coordinator(&cluster).await;
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    until(&mut client, &mut [&mut a, &mut b], &[(2, 1), (2, 1)]).await;
    // In the middle of a rebalance, with a committed offset.
    let mut c = Member::new("c");
    c.beat(&mut client).await;
    assert_eq!(commit(&mut client, 9, "a", a.epoch).await, ErrorCode::NONE);
    let before = described(&mut client).await;

    let (leader, _) = cluster.leader(OFFSETS, PARTITION).expect("a leader");
    let next = cluster.broker_ids().into_iter().find(|id| *id != leader).expect("another");
    cluster.move_leader(OFFSETS, PARTITION, next).expect("in sync");
    cluster.settled().await;
    assert_eq!(client.cold(0, &a.request()).await.error, ErrorCode::NOT_COORDINATOR, "the old one");
    let mut client = coordinator(&cluster).await;
    let after = described(&mut client).await;
    assert_eq!((after.members, after.group_epoch), (before.members, before.group_epoch));
    soon(async {
        loop {
            for member in [&mut a, &mut b, &mut c] {
                member.beat(&mut client).await;
            }
            if described(&mut client).await.group_state == "Stable" {
                return;
            }
        }
    })
    .await;
    let active = [&a, &b, &c].map(|member| count(&member.active));
    assert_eq!(active.iter().sum::<usize>(), 4);
    assert!(active.iter().all(|count| (1..=2).contains(count)), "{active:?}");
    let standby = [&a, &b, &c].map(|member| count(&member.standby));
    assert_eq!(standby.iter().sum::<usize>(), 2, "{standby:?}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn groups_survive_a_restart_of_the_cluster() {
    let directory = tempfile::tempdir().expect("a directory");
    let config =
        || ClusterConfig { storage: Storage::Dir(directory.path().to_owned()), ..patient(1) };
    let cluster = with_lines(config()).await;
    let mut client = coordinator(&cluster).await;
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    until(&mut client, &mut [&mut a, &mut b], &[(2, 0), (2, 0)]).await;
    let before = described(&mut client).await;
    cluster.shutdown().await;

    let cluster = start(config()).await;
    ready(&cluster).await;
    let mut client = coordinator(&cluster).await;
    a.beat(&mut client).await;
    b.beat(&mut client).await;
    assert_eq!(described(&mut client).await, before, "nothing has changed");
    cluster.shutdown().await;
}

/// Type and state of the group, if it is of one of the types.
async fn listed(client: &mut Client, types: &[&str]) -> Option<(String, String, String)> {
    let types = types.iter().map(|name| text(name)).collect();
    let answer = client.cold(5, &ListGroupsRequest::default().with_types_filter(types)).await;
    let group = answer.groups.first()?;
    let [protocol, of, state] = [&group.protocol_type, &group.group_type, &group.group_state];
    Some((protocol.to_string(), of.to_string(), state.to_string()))
}

fn join_request() -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(20_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

fn consumer_heartbeat() -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(text("k"))
        .with_rebalance_timeout_ms(20_000)
        .with_subscribed_topic_names(Some(vec![topic("lines")]))
        .with_topic_partitions(Some(Vec::new()))
}

#[tokio::test]
async fn a_group_uses_one_protocol_at_a_time() {
    let cluster = with_lines(patient(1)).await;
    let mut client = coordinator(&cluster).await;
    let mut a = Member::new("a");
    until(&mut client, &mut [&mut a], &[(4, 0)]).await;
    let streams = ("streams".to_owned(), "streams".to_owned(), "Stable".to_owned());
    assert_eq!(listed(&mut client, &[]).await, Some(streams.clone()));
    assert_eq!(listed(&mut client, &["Streams"]).await, Some(streams));
    assert_eq!(listed(&mut client, &["consumer", "classic"]).await, None);

    let not_found = ErrorCode::GROUP_ID_NOT_FOUND;
    let describe = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]);
    assert_eq!(client.cold(1, &describe).await.groups[0].error_code, not_found.0);
    let describe = DescribeGroupsRequest::default().with_groups(vec![group()]);
    let told = client.cold(6, &describe).await.groups.remove(0);
    assert_eq!((told.error_code, told.group_state.as_str()), (not_found.0, "Dead"));
    let inconsistent = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
    assert_eq!(client.cold(9, &join_request()).await.error_code, inconsistent.0);
    assert_eq!(client.cold(1, &consumer_heartbeat()).await.error_code, not_found.0);

    // A group without members can change to the classic protocol only, as in Kafka.
    let leaving = StreamsGroupHeartbeatRequest { member_epoch: -1, ..a.request() };
    let left = beat(&mut client, &StreamsGroupHeartbeatRequest { topology: None, ..leaving }).await;
    assert_eq!(left.error, ErrorCode::NONE);
    assert_eq!(client.cold(1, &consumer_heartbeat()).await.error_code, not_found.0);
    let joined = client.cold(9, &join_request()).await;
    assert_eq!(ErrorCode(joined.error_code), ErrorCode::MEMBER_ID_REQUIRED);
    assert_eq!(described(&mut client).await.error, not_found);
    cluster.shutdown().await;
}
