//! Groups of the consumer protocol over the wire (KIP-848): refusals, commits with member epochs,
//! requests of tools, groups that change their protocol, and the coordinator's move and death.

use std::time::Duration;

use crate::support::{
    Client, config,
    group::{GROUP, OFFSETS, PARTITION, coordinator, group, ready, retried, text, topic},
    soon, start,
};
use bytes::Bytes;
use curtail_cluster::{Cluster, ClusterConfig, Storage};
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse, DeleteGroupsRequest, DescribeGroupsRequest, GroupId,
        HeartbeatRequest, IncrementalAlterConfigsRequest, JoinGroupRequest, LeaveGroupRequest,
        ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
        consumer_group_describe_response::DescribedGroup,
        consumer_group_heartbeat_request::TopicPartitions,
        incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
        join_group_request::JoinGroupRequestProtocol,
        leave_group_request::MemberIdentity,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic},
        offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics},
    },
};

/// Returns a configuration with short sessions, and a target assignment whenever one is needed.
fn quick(brokers: u32) -> ClusterConfig {
    ClusterConfig {
        group_consumer_min_session_timeout: Duration::from_millis(1),
        group_consumer_session_timeout: Duration::from_millis(700),
        group_consumer_min_heartbeat_interval: Duration::from_millis(1),
        group_consumer_heartbeat_interval: Duration::from_millis(50),
        group_consumer_assignment_interval: Duration::ZERO,
        ..config(brokers)
    }
}

/// Starts a cluster with a topic `t` of two partitions and the internal topic.
async fn with_topics(config: ClusterConfig) -> Cluster {
    let brokers = i16::try_from(config.brokers).expect("a few");
    let cluster = start(config).await;
    cluster.create_topic("t", 2, brokers, &[]).expect("a topic");
    ready(&cluster).await;
    cluster
}

/// A member that sends all its properties in every heartbeat.
struct Member {
    id: &'static str,
    epoch: i32,
    owned: Vec<TopicPartitions>,
}

impl Member {
    fn new(id: &'static str) -> Self {
        Self { id, epoch: 0, owned: Vec::new() }
    }

    fn request(&self) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group())
            .with_member_id(text(self.id))
            .with_member_epoch(self.epoch)
            .with_rebalance_timeout_ms(20_000)
            .with_subscribed_topic_names(Some(vec![topic("t")]))
            .with_topic_partitions(Some(self.owned.clone()))
    }

    /// Sends a heartbeat and follows the response.
    async fn beat(&mut self, client: &mut Client) -> ConsumerGroupHeartbeatResponse {
        let answer = beat(client, 1, &self.request()).await;
        assert_eq!(answer.error_code, 0, "{answer:?}");
        self.epoch = answer.member_epoch;
        let topics = answer.assignment.iter().flat_map(|assignment| &assignment.topic_partitions);
        let topics = topics.map(|topic| {
            TopicPartitions::default()
                .with_topic_id(topic.topic_id)
                .with_partitions(topic.partitions.clone())
        });
        self.owned = topics.collect();
        answer
    }

    fn count(&self) -> usize {
        self.owned.iter().map(|topic| topic.partitions.len()).sum()
    }
}

/// Sends a heartbeat until the coordinator is available.
async fn beat(
    client: &mut Client,
    version: i16,
    request: &ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    retried(async || {
        let answer = client.cold(version, request).await;
        (ErrorCode(answer.error_code), answer)
    })
    .await
}

/// Sends heartbeats of all members until they have these numbers of partitions.
async fn until(client: &mut Client, members: &mut [&mut Member], counts: &[usize]) {
    soon(async {
        loop {
            for member in members.iter_mut() {
                member.beat(client).await;
            }
            if members.iter().map(|member| member.count()).eq(counts.iter().copied()) {
                return;
            }
        }
    })
    .await;
}

async fn described(client: &mut Client) -> DescribedGroup {
    let request = ConsumerGroupDescribeRequest::default()
        .with_group_ids(vec![group()])
        .with_include_authorized_operations(true);
    soon(async {
        loop {
            let mut answer = client.cold(1, &request).await;
            let group = answer.groups.remove(0);
            let loading = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0;
            if ![loading, ErrorCode::NOT_COORDINATOR.0].contains(&group.error_code) {
                return group;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Commits an offset of `t`-0 and returns the error.
async fn commit(client: &mut Client, version: i16, id: &str, epoch: i32, offset: i64) -> ErrorCode {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("")));
    let topic =
        OffsetCommitRequestTopic::default().with_name(topic("t")).with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_member_id(text(id))
        .with_generation_id_or_member_epoch(epoch)
        .with_topics(vec![topic]);
    let answer = client.cold(version, &request).await;
    ErrorCode(answer.topics[0].partitions[0].error_code)
}

/// Returns the error and the committed offset of `t`-0, for a member or without one.
async fn committed(client: &mut Client, member: Option<(&str, i32)>) -> (ErrorCode, i64) {
    let topics =
        OffsetFetchRequestTopics::default().with_name(topic("t")).with_partition_indexes(vec![0]);
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_member_id(member.map(|(id, _)| text(id)))
        .with_member_epoch(member.map_or(-1, |(_, epoch)| epoch))
        .with_topics(Some(vec![topics]));
    let answer = client.cold(9, &OffsetFetchRequest::default().with_groups(vec![asked])).await;
    let group = &answer.groups[0];
    (ErrorCode(group.error_code), group.topics[0].partitions[0].committed_offset)
}

#[tokio::test]
async fn invalid_heartbeats_are_refused() {
    let cluster = with_topics(quick(1)).await;
    let mut client = coordinator(&cluster).await;
    let fresh = || Member::new("a").request();
    let invalid = ErrorCode::INVALID_REQUEST;
    let one = TopicPartitions::default().with_partitions(vec![1]);
    let cases = [
        (1, fresh().with_member_id(text("")), invalid),
        (0, fresh().with_member_id(text("")).with_member_epoch(3), invalid),
        (0, fresh().with_member_id(text("")).with_member_epoch(-1), invalid),
        (1, fresh().with_group_id(GroupId(text(" "))), invalid),
        (1, fresh().with_instance_id(Some(text(""))), invalid),
        (1, fresh().with_rack_id(Some(text(""))), invalid),
        (1, fresh().with_rebalance_timeout_ms(-1), invalid),
        (1, fresh().with_topic_partitions(None), invalid),
        (1, fresh().with_topic_partitions(Some(vec![one])), invalid),
        (1, fresh().with_subscribed_topic_names(None), invalid),
        (1, fresh().with_member_epoch(-2), invalid),
        (1, fresh().with_member_epoch(-3), invalid),
        (1, fresh().with_server_assignor(Some(text("best"))), ErrorCode::UNSUPPORTED_ASSIGNOR),
        (
            1,
            fresh().with_subscribed_topic_regex(Some(text("("))),
            ErrorCode::INVALID_REGULAR_EXPRESSION,
        ),
        (1, fresh().with_member_epoch(7), ErrorCode::GROUP_ID_NOT_FOUND),
        (1, fresh().with_member_epoch(-1), ErrorCode::GROUP_ID_NOT_FOUND),
    ];
    for (version, request, expected) in cases {
        let answer = beat(&mut client, version, &request).await;
        assert_eq!(ErrorCode(answer.error_code), expected, "{request:?}");
        assert!(answer.error_message.is_some() && answer.assignment.is_none(), "{request:?}");
    }
    // With version 0 of the request, the coordinator creates the member id.
    let answer = beat(&mut client, 0, &fresh().with_member_id(text(""))).await;
    assert_eq!((answer.error_code, answer.member_epoch), (0, 2));
    assert_eq!(answer.member_id.expect("an id").len(), 22);
    assert_eq!(answer.heartbeat_interval_ms, 50);
    cluster.shutdown().await;
}

#[tokio::test]
async fn members_share_partitions_and_take_over_those_of_lost_members() {
    let cluster = with_topics(quick(3)).await;
    let mut client = coordinator(&cluster).await;
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    a.beat(&mut client).await;
    assert_eq!((a.epoch, a.count()), (2, 2));
    until(&mut client, &mut [&mut a, &mut b], &[1, 1]).await;
    let group = described(&mut client).await;
    assert_eq!(group.group_state.as_str(), "Stable");
    assert_eq!((group.group_epoch, group.assignment_epoch), (3, 3));
    assert_eq!((group.assignor_name.as_str(), group.authorized_operations), ("uniform", 3400));
    let members: Vec<_> = group.members.iter().map(|member| member.member_id.as_str()).collect();
    assert_eq!(members, ["a", "b"]);
    for member in &group.members {
        assert_eq!(member.assignment, member.target_assignment);
        assert_eq!(member.assignment.topic_partitions[0].topic_name.0.as_str(), "t");
        assert_eq!((member.member_epoch, member.member_type), (3, 1));
        assert_eq!(member.client_host.as_str(), "/127.0.0.1");
    }

    // Only members in their epochs may commit and fetch offsets.
    assert_eq!(commit(&mut client, 9, "a", 3, 10).await, ErrorCode::NONE);
    assert_eq!(commit(&mut client, 9, "a", 9, 11).await, ErrorCode::STALE_MEMBER_EPOCH);
    assert_eq!(commit(&mut client, 9, "x", 3, 11).await, ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(commit(&mut client, 9, "", -1, 11).await, ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(commit(&mut client, 8, "a", 3, 11).await, ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(committed(&mut client, None).await, (ErrorCode::NONE, 10));
    assert_eq!(committed(&mut client, Some(("a", 3))).await, (ErrorCode::NONE, 10));
    assert_eq!(committed(&mut client, Some(("a", 2))).await.0, ErrorCode::STALE_MEMBER_EPOCH);
    assert_eq!(committed(&mut client, Some(("x", 3))).await.0, ErrorCode::UNKNOWN_MEMBER_ID);

    // The other member sends no more heartbeats.
    until(&mut client, &mut [&mut a], &[2]).await;
    // A tool removes the last member.
    let leaving = MemberIdentity::default().with_member_id(text("a"));
    let request = LeaveGroupRequest::default().with_group_id(self::group());
    let answer = client.cold(5, &request.with_members(vec![leaving])).await;
    assert_eq!(answer.members[0].error_code, 0);
    assert_eq!(described(&mut client).await.group_state.as_str(), "Empty");
    let answer = beat(&mut client, 1, &a.request()).await;
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::UNKNOWN_MEMBER_ID);
    cluster.shutdown().await;
}

#[tokio::test]
async fn groups_survive_their_coordinator() {
    let long =
        ClusterConfig { group_consumer_session_timeout: Duration::from_secs(60), ..quick(3) };
    let cluster = with_topics(long).await;
    let mut client = coordinator(&cluster).await;
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    until(&mut client, &mut [&mut a, &mut b], &[1, 1]).await;
    // In the middle of a rebalance, with committed offsets.
    let mut c = Member::new("c");
    c.beat(&mut client).await;
    assert_eq!(commit(&mut client, 9, "a", a.epoch, 5).await, ErrorCode::NONE);
    let before = described(&mut client).await;

    let (leader, _) = cluster.leader(OFFSETS, PARTITION).expect("a leader");
    let next = cluster.broker_ids().into_iter().find(|id| *id != leader).expect("another");
    cluster.move_leader(OFFSETS, PARTITION, next).expect("in sync");
    cluster.settled().await;
    let answer = client.cold(1, &a.request()).await;
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::NOT_COORDINATOR, "the old one");
    let mut client = coordinator(&cluster).await;
    assert_eq!(described(&mut client).await, before);
    until(&mut client, &mut [&mut a, &mut b, &mut c], &[1, 1, 0]).await;
    assert_eq!(committed(&mut client, Some(("a", a.epoch))).await, (ErrorCode::NONE, 5));

    let (leader, _) = cluster.leader(OFFSETS, PARTITION).expect("a leader");
    cluster.kill(leader);
    let moved = |c: &curtail_cluster::ClusterHandle| {
        c.leader(OFFSETS, PARTITION).is_some_and(|(now, _)| now != leader)
    };
    soon(cluster.wait_until(moved)).await;
    cluster.settled().await;
    let mut client = coordinator(&cluster).await;
    until(&mut client, &mut [&mut a, &mut b, &mut c], &[1, 1, 0]).await;
    assert_eq!(described(&mut client).await.group_state.as_str(), "Stable");
    cluster.shutdown().await;
}

#[tokio::test]
async fn groups_survive_a_restart_of_the_cluster() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = || ClusterConfig {
        storage: Storage::Dir(directory.path().to_owned()),
        group_consumer_session_timeout: Duration::from_secs(60),
        ..quick(1)
    };
    let cluster = with_topics(config()).await;
    let mut client = coordinator(&cluster).await;
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    until(&mut client, &mut [&mut a, &mut b], &[1, 1]).await;
    let before = described(&mut client).await;
    cluster.shutdown().await;

    let cluster = start(config()).await;
    ready(&cluster).await;
    let mut client = coordinator(&cluster).await;
    assert_eq!(described(&mut client).await, before);
    until(&mut client, &mut [&mut a, &mut b], &[1, 1]).await;
    assert_eq!((a.epoch, b.epoch), (3, 3), "nothing has changed");
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_coordinator_resolves_regular_expressions() {
    let cluster = with_topics(quick(1)).await;
    cluster.create_topic("t2", 1, 1, &[]).expect("a topic");
    cluster.create_topic("other", 1, 1, &[]).expect("a topic");
    cluster.settled().await;
    let mut client = coordinator(&cluster).await;
    let request = |epoch| {
        Member::new("a")
            .request()
            .with_member_epoch(epoch)
            .with_subscribed_topic_names(None)
            .with_subscribed_topic_regex(Some(text("t.?")))
    };
    soon(async {
        let mut epoch = 0;
        loop {
            let answer = beat(&mut client, 1, &request(epoch)).await;
            assert_eq!(answer.error_code, 0, "{answer:?}");
            epoch = answer.member_epoch;
            let topics = answer.assignment.expect("all was said").topic_partitions;
            if topics.iter().map(|topic| topic.partitions.len()).sum::<usize>() == 3 {
                return;
            }
        }
    })
    .await;
    let group = described(&mut client).await;
    assert_eq!(group.members[0].subscribed_topic_regex.as_deref(), Some("t.?"));
    cluster.shutdown().await;
}

fn join_request() -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"));
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(20_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

async fn delete(client: &mut Client) -> ErrorCode {
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
    ErrorCode(client.cold(2, &request).await.results[0].error_code)
}

/// Type and state of the group, if it is of one of the types.
async fn listed(client: &mut Client, types: &[&str]) -> Option<(String, String)> {
    let types = types.iter().map(|name| text(name)).collect();
    let answer = client.cold(5, &ListGroupsRequest::default().with_types_filter(types)).await;
    let group = answer.groups.first()?;
    assert_eq!((&group.group_id.0, group.protocol_type.as_str()), (&text(GROUP), "consumer"));
    Some((group.group_type.to_string(), group.group_state.to_string()))
}

#[tokio::test]
async fn a_group_uses_one_protocol_at_a_time() {
    let cluster = with_topics(ClusterConfig {
        group_consumer_session_timeout: Duration::from_secs(60),
        ..quick(1)
    })
    .await;
    let mut client = coordinator(&cluster).await;
    let mut a = Member::new("a");
    // Offsets committed before the group existed stay.
    let committed_first = async |client: &mut Client| {
        soon(async {
            while commit(client, 9, "", -1, 4).await != ErrorCode::NONE {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    committed_first(&mut client).await;
    assert_eq!(commit(&mut client, 9, "nobody", 3, 4).await, ErrorCode::UNKNOWN_MEMBER_ID);
    until(&mut client, &mut [&mut a], &[2]).await;
    assert_eq!(committed(&mut client, None).await, (ErrorCode::NONE, 4));

    // Requests of the classic protocol.
    let consumer = ("consumer".to_owned(), "Stable".to_owned());
    assert_eq!(listed(&mut client, &[]).await, Some(consumer.clone()));
    assert_eq!(listed(&mut client, &["Consumer"]).await, Some(consumer));
    assert_eq!(listed(&mut client, &["classic"]).await, None);
    let inconsistent = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
    assert_eq!(ErrorCode(client.cold(9, &join_request()).await.error_code), inconsistent);
    let request = HeartbeatRequest::default().with_group_id(group()).with_member_id(text("a"));
    let answer = client.cold(4, &request.with_generation_id(a.epoch)).await;
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::UNKNOWN_MEMBER_ID);
    let request = DescribeGroupsRequest::default().with_groups(vec![group()]);
    let answer = client.cold(6, &request).await;
    assert_eq!(ErrorCode(answer.groups[0].error_code), ErrorCode::GROUP_ID_NOT_FOUND);
    assert_eq!(delete(&mut client).await, ErrorCode::NON_EMPTY_GROUP);
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let topics =
        OffsetDeleteRequestTopic::default().with_name(topic("t")).with_partitions(vec![partition]);
    let request = OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![topics]);
    let answer = client.cold(0, &request).await;
    let subscribed = ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC;
    assert_eq!(ErrorCode(answer.topics[0].partitions[0].error_code), subscribed);

    // An empty group becomes a classic one. It can change back only when it is empty again.
    let left = beat(&mut client, 1, &a.request().with_member_epoch(-1)).await;
    assert_eq!((left.error_code, left.member_epoch), (0, -1));
    let stranger = client.cold(9, &join_request().with_member_id(text("x"))).await;
    assert_eq!(ErrorCode(stranger.error_code), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(described(&mut client).await.group_state.as_str(), "Empty");
    let joined = client.cold(3, &join_request()).await;
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    let back = beat(&mut client, 1, &Member::new("b").request()).await;
    assert_eq!(ErrorCode(back.error_code), ErrorCode::GROUP_ID_NOT_FOUND);
    assert_eq!(ErrorCode(described(&mut client).await.error_code), ErrorCode::GROUP_ID_NOT_FOUND);
    let request = LeaveGroupRequest::default().with_group_id(group());
    let left = client.cold(2, &request.with_member_id(joined.member_id)).await;
    assert_eq!(left.error_code, 0);
    let mut b = Member::new("b");
    until(&mut client, &mut [&mut b], &[2]).await;
    assert_eq!(committed(&mut client, None).await, (ErrorCode::NONE, 4));

    // A loaded group is the same.
    let before = described(&mut client).await;
    cluster.stop(1).await;
    cluster.restart(1).await.expect("it starts");
    cluster.settled().await;
    let mut client = coordinator(&cluster).await;
    assert_eq!(described(&mut client).await, before);
    assert_eq!(committed(&mut client, None).await, (ErrorCode::NONE, 4));
    beat(&mut client, 1, &b.request().with_member_epoch(-1)).await;
    assert_eq!(delete(&mut client).await, ErrorCode::NONE);
    assert_eq!(listed(&mut client, &[]).await, None);
    assert_eq!(committed(&mut client, None).await, (ErrorCode::NONE, -1));
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_groups_own_settings_override_the_brokers() {
    let cluster = with_topics(quick(1)).await;
    let mut client = coordinator(&cluster).await;
    let mut member = Member::new("m");
    assert_eq!(member.beat(&mut client).await.heartbeat_interval_ms, 50);
    let setting = AlterableConfig::default()
        .with_name(text("consumer.heartbeat.interval.ms"))
        .with_value(Some(text("70")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text(GROUP))
        .with_configs(vec![setting]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.cold(1, &request).await.responses[0].error_code, 0);
    soon(cluster.settled()).await;
    // The existing member receives the new interval as well.
    assert_eq!(member.beat(&mut client).await.heartbeat_interval_ms, 70);
    soon(cluster.shutdown()).await;
}
