//! Groups of the classic protocol over the wire: joins, commits, and the coordinator's death.

use crate::support::{
    Client, config, fetch_request,
    group::{GROUP, OFFSETS, PARTITION, coordinator, group, ready, retried, text, topic},
    one_partition, soon, start,
};
use bytes::Bytes;
use curtail_cluster::{Cluster, ClusterConfig};
use curtail_wire::{
    ErrorCode,
    cold::{
        StrBytes,
        messages::{
            DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest,
            JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest,
            OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest,
            join_group_request::JoinGroupRequestProtocol,
            leave_group_request::MemberIdentity,
            offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
            offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic},
            offset_fetch_request::{
                OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
            },
            sync_group_request::SyncGroupRequestAssignment,
        },
    },
};

/// Starts a cluster with a topic `t` of two partitions and the internal topic.
async fn with_topics() -> Cluster {
    with_topics_in(config(3)).await
}

async fn with_topics_in(config: ClusterConfig) -> Cluster {
    let cluster = start(config).await;
    cluster.create_topic("t", 2, 3, &[]).expect("a topic");
    ready(&cluster).await;
    cluster
}

fn join_request(member_id: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"));
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(20_000)
        .with_member_id(text(member_id))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

/// Joins as a new dynamic member, which takes two requests.
async fn join(client: &mut Client) -> JoinGroupResponse {
    let first = client.cold(9, &join_request("")).await;
    assert_eq!(first.error_code, ErrorCode::MEMBER_ID_REQUIRED.0);
    assert!(first.member_id.starts_with("test-"), "{}", first.member_id);
    client.cold(9, &join_request(&first.member_id)).await
}

fn sync_request(joined: &JoinGroupResponse, assignments: &[(&str, &str)]) -> SyncGroupRequest {
    let assignments = assignments.iter().map(|(id, what)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(id))
            .with_assignment(Bytes::from((*what).to_owned()))
    });
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_protocol_type(Some(text("consumer")))
        .with_protocol_name(Some(text("range")))
        .with_assignments(assignments.collect())
}

async fn heartbeat(client: &mut Client, joined: &JoinGroupResponse) -> ErrorCode {
    let request = HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone());
    ErrorCode(client.cold(4, &request).await.error_code)
}

/// Commits an offset of `t`-0 and returns the error. Without a member the commit is outside any
/// generation.
async fn commit(
    client: &mut Client,
    member: Option<&JoinGroupResponse>,
    name: &str,
    offset: i64,
) -> ErrorCode {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset)
        .with_committed_leader_epoch(0)
        .with_committed_metadata(Some(text("note")));
    let topic =
        OffsetCommitRequestTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(member.map_or(-1, |m| m.generation_id))
        .with_member_id(member.map_or_else(StrBytes::default, |m| m.member_id.clone()))
        .with_topics(vec![topic]);
    ErrorCode(client.cold(9, &request).await.topics[0].partitions[0].error_code)
}

/// Returns the group's error and its committed offsets: topic, partition, offset, metadata.
async fn fetch(
    client: &mut Client,
    asked: Option<&[(&str, i32)]>,
) -> (ErrorCode, Vec<(String, i32, i64, String)>) {
    let topics = asked.map(|asked| {
        let topics = asked.iter().map(|(name, index)| {
            OffsetFetchRequestTopics::default()
                .with_name(topic(name))
                .with_partition_indexes(vec![*index])
        });
        topics.collect()
    });
    let asked = OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(topics);
    let request = OffsetFetchRequest::default().with_groups(vec![asked]).with_require_stable(true);
    let mut response = client.cold(8, &request).await;
    let group = response.groups.remove(0);
    let mut found = Vec::new();
    for topic in group.topics {
        for p in topic.partitions {
            let metadata = p.metadata.unwrap_or_default().to_string();
            found.push((topic.name.0.to_string(), p.partition_index, p.committed_offset, metadata));
        }
    }
    (ErrorCode(group.error_code), found)
}

fn committed(offset: i64) -> Vec<(String, i32, i64, String)> {
    vec![("t".to_owned(), 0, offset, "note".to_owned())]
}

async fn describe(client: &mut Client) -> (ErrorCode, String, usize) {
    let request = DescribeGroupsRequest::default().with_groups(vec![group()]);
    let group = client.cold(6, &request).await.groups.remove(0);
    (ErrorCode(group.error_code), group.group_state.to_string(), group.members.len())
}

#[tokio::test]
async fn two_members_share_a_generation() {
    let cluster = with_topics().await;
    let mut one = retried_join(&cluster).await;
    let mut other = coordinator(&cluster).await;
    let (client, first) = (&mut one.0, one.1);
    assert_eq!((first.generation_id, &first.leader), (1, &first.member_id));
    let synced = client.cold(5, &sync_request(&first, &[(&first.member_id, "all")])).await;
    assert_eq!((synced.error_code, synced.assignment.as_ref()), (0, &b"all"[..]));

    // The response to the second join follows when the first member has rejoined.
    let (second, first) = tokio::join!(join(&mut other), async {
        while heartbeat(client, &first).await == ErrorCode::NONE {
            tokio::task::yield_now().await;
        }
        client.cold(9, &join_request(&first.member_id)).await
    });
    assert_eq!((first.generation_id, second.generation_id), (2, 2));
    assert_eq!((first.members.len(), second.members.len()), (2, 0));
    assert_eq!(second.leader, first.member_id);

    // The response to its sync follows when the leader has sent the assignment.
    let assignments = [(first.member_id.as_str(), "1"), (second.member_id.as_str(), "2")];
    let (of_second, of_first) = (sync_request(&second, &[]), sync_request(&first, &assignments));
    let (of_second, of_first) = tokio::join!(other.cold(5, &of_second), client.cold(5, &of_first));
    assert_eq!(
        (of_first.assignment.as_ref(), of_second.assignment.as_ref()),
        (&b"1"[..], &b"2"[..])
    );
    assert_eq!(describe(client).await, (ErrorCode::NONE, "Stable".to_owned(), 2));

    // Only members may commit now, and only to existing topics.
    assert_eq!(commit(client, Some(&second), "t", 5).await, ErrorCode::NONE);
    assert_eq!(commit(client, None, "t", 6).await, ErrorCode::UNKNOWN_MEMBER_ID);
    let nowhere = commit(client, Some(&second), "nowhere", 6).await;
    assert_eq!(nowhere, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(fetch(client, None).await, (ErrorCode::NONE, committed(5)));
    let (code, found) = fetch(client, Some(&[("t", 0), ("t", 1)])).await;
    assert_eq!((code, found[0].2, found[1].2), (ErrorCode::NONE, 5, -1));

    let listed = client.cold(5, &ListGroupsRequest::default()).await.groups;
    let listed: Vec<_> =
        listed.iter().map(|g| (&*g.group_id.0, &*g.group_state, &*g.group_type)).collect();
    assert_eq!(listed, [(GROUP, "Stable", "classic")]);
    let subscribed = delete_offset(client, "t", 0).await;
    assert_eq!(subscribed, ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC);
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(delete_offset(client, "t", 2).await, unknown);
    assert_eq!(delete(client).await, ErrorCode::NON_EMPTY_GROUP);

    let both =
        [&first, &second].map(|m| MemberIdentity::default().with_member_id(m.member_id.clone()));
    let request = LeaveGroupRequest::default().with_group_id(group()).with_members(both.to_vec());
    let left = client.cold(5, &request).await;
    assert_eq!(left.members.iter().map(|m| m.error_code).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(describe(client).await, (ErrorCode::NONE, "Empty".to_owned(), 0));
    assert_eq!(commit(client, None, "t", 7).await, ErrorCode::NONE, "as tools do");
    assert_eq!(fetch(client, None).await.1, committed(7));
    for (topic, index) in [("t", 2), ("t", -1), ("nowhere", 0)] {
        assert_eq!(delete_offset(client, topic, index).await, unknown, "{topic}-{index}");
    }
    assert_eq!(delete_offset(client, "t", 1).await, ErrorCode::NONE, "without an offset");
    assert_eq!(fetch(client, None).await.1, committed(7));
    assert_eq!(delete_offset(client, "t", 0).await, ErrorCode::NONE);
    assert_eq!(fetch(client, None).await.1, []);
    assert_eq!(delete(client).await, ErrorCode::NONE);
    assert_eq!(describe(client).await, (ErrorCode::GROUP_ID_NOT_FOUND, "Dead".to_owned(), 0));
    cluster.shutdown().await;
}

/// Returns a connection to the coordinator and the join of the group's first member.
async fn retried_join(cluster: &Cluster) -> (Client, JoinGroupResponse) {
    let mut client = coordinator(cluster).await;
    let mut member_id = String::new();
    let joined = retried(async || {
        let answer = client.cold(9, &join_request(&member_id)).await;
        if answer.error_code == ErrorCode::MEMBER_ID_REQUIRED.0 {
            member_id = answer.member_id.to_string();
            return (ErrorCode::NOT_COORDINATOR, answer);
        }
        (ErrorCode(answer.error_code), answer)
    })
    .await;
    assert_eq!(joined.error_code, 0);
    (client, joined)
}

async fn delete_offset(client: &mut Client, name: &'static str, index: i32) -> ErrorCode {
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(index);
    let topic =
        OffsetDeleteRequestTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
    let request = OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![topic]);
    ErrorCode(client.cold(0, &request).await.topics[0].partitions[0].error_code)
}

async fn delete(client: &mut Client) -> ErrorCode {
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
    ErrorCode(client.cold(2, &request).await.results[0].error_code)
}

#[tokio::test]
async fn offsets_and_members_survive_the_coordinators_death() {
    let cluster = with_topics().await;
    survive_coordinators(&cluster).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn offsets_and_members_survive_compaction_of_their_log() {
    let backoff = std::time::Duration::from_millis(20);
    let config =
        ClusterConfig { log_segment_bytes: 600, log_cleaner_backoff: backoff, ..config(3) };
    let cluster = with_topics_in(config).await;
    survive_coordinators(&cluster).await;
    // Most of the log has been removed.
    soon(async {
        loop {
            let (leader, _) = cluster.leader(OFFSETS, PARTITION).expect("a leader");
            let mut client = Client::connect(&cluster, leader).await;
            let response = client.fetch_raw(12, &fetch_request(OFFSETS, PARTITION, 0)).await;
            let found = &response.topics[0].partitions[0];
            let batches = curtail_wire::records::batches(found.records.clone());
            let records: i32 = batches.map_while(Result::ok).map(|b| b.header.record_count).sum();
            if !found.error.is_error() && i64::from(records) < found.high_watermark / 2 {
                break;
            }
        }
    })
    .await;
    cluster.shutdown().await;
}

async fn survive_coordinators(cluster: &Cluster) {
    let (mut client, joined) = retried_join(cluster).await;
    let synced = client.cold(5, &sync_request(&joined, &[(&joined.member_id, "all")])).await;
    assert_eq!(synced.error_code, 0);
    let mut expected = 0;
    for round in 0..3 {
        let (leader, _) = cluster.leader(OFFSETS, PARTITION).expect("a leader");
        for _ in 0..10 {
            expected += 1;
            assert_eq!(commit(&mut client, Some(&joined), "t", expected).await, ErrorCode::NONE);
        }
        if round == 1 {
            // A move instead of a kill: the old coordinator reports it.
            let to = (1..=3).find(|id| *id != leader).expect("another broker");
            soon(cluster.wait_until(|c| c.isr(OFFSETS, PARTITION).is_some_and(|i| i.len() == 3)))
                .await;
            cluster.move_leader(OFFSETS, PARTITION, to).expect("in sync");
            cluster.settled().await;
            let refused = commit(&mut client, Some(&joined), "t", 1000).await;
            assert_eq!(refused, ErrorCode::NOT_COORDINATOR);
            assert_eq!(heartbeat(&mut client, &joined).await, ErrorCode::NOT_COORDINATOR);
        } else {
            cluster.kill(leader);
            soon(
                cluster.wait_until(|c| {
                    c.leader(OFFSETS, PARTITION).is_some_and(|(id, _)| id != leader)
                }),
            )
            .await;
            cluster.settled().await;
            soon(cluster.restart(leader)).await.expect("it comes back");
        }
        client = coordinator(cluster).await;
        let found = retried(async || fetch(&mut client, None).await).await;
        assert_eq!(found, committed(expected), "round {round}");
        // The member is still in the same generation, with its assignment.
        assert_eq!(heartbeat(&mut client, &joined).await, ErrorCode::NONE);
        let synced = client.cold(5, &sync_request(&joined, &[])).await;
        assert_eq!((synced.error_code, synced.assignment.as_ref()), (0, &b"all"[..]));
    }
    // The member rejoins.
    let again = client.cold(9, &join_request(&joined.member_id)).await;
    assert_eq!((again.error_code, again.generation_id), (0, joined.generation_id + 1));
}

/// Sends the requests of a member's lifetime, each in its supported version nearest to `version`.
async fn life_in_version(client: &mut Client, version: i16) {
    let mut joined = client.cold(version, &join_request("")).await;
    if version >= 4 {
        assert_eq!(joined.error_code, ErrorCode::MEMBER_ID_REQUIRED.0, "{version}");
        joined = client.cold(version, &join_request(&joined.member_id)).await;
    }
    assert_eq!((joined.error_code, joined.members.len()), (0, 1), "{version}");
    let sync = sync_request(&joined, &[(&joined.member_id, "all")]);
    let synced = client.cold(version.min(5), &sync).await;
    assert_eq!(synced.assignment.as_ref(), b"all", "{version}");
    let beat = HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone());
    assert_eq!(client.cold(version.min(4), &beat).await.error_code, 0, "{version}");

    let partition =
        OffsetCommitRequestPartition::default().with_committed_offset(i64::from(version));
    let commit =
        OffsetCommitRequestTopic::default().with_name(topic("t")).with_partitions(vec![partition]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_topics(vec![commit]);
    let answer = client.cold(version.max(2), &commit).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 0, "{version}");
    let offset = match version {
        ..8 => {
            let asked = OffsetFetchRequestTopic::default()
                .with_name(topic("t"))
                .with_partition_indexes(vec![0]);
            let request =
                OffsetFetchRequest::default().with_group_id(group()).with_topics(Some(vec![asked]));
            client.cold(version.max(1), &request).await.topics[0].partitions[0].committed_offset
        }
        _ => {
            let asked = OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(None);
            let request = OffsetFetchRequest::default().with_groups(vec![asked]);
            let answer = client.cold(version, &request).await;
            answer.groups[0].topics[0].partitions[0].committed_offset
        }
    };
    assert_eq!(offset, i64::from(version));

    let describe = DescribeGroupsRequest::default().with_groups(vec![group()]);
    let described = client.cold(version.min(6), &describe).await;
    assert_eq!((&*described.groups[0].group_state, described.groups[0].error_code), ("Stable", 0));
    let listed = client.cold(version.min(5), &ListGroupsRequest::default()).await;
    assert_eq!(listed.groups.len(), 1, "{version}");
    let leave = LeaveGroupRequest::default().with_group_id(group());
    let leave = match version {
        ..3 => leave.with_member_id(joined.member_id.clone()),
        _ => leave
            .with_members(vec![MemberIdentity::default().with_member_id(joined.member_id.clone())]),
    };
    let left = client.cold(version.min(5), &leave).await;
    assert_eq!((left.error_code, left.members.len()), (0, usize::from(version >= 3)), "{version}");
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
    let deleted = client.cold(version.min(2), &request).await;
    assert_eq!(deleted.results[0].error_code, 0, "{version}");
    let described = client.cold(version.min(6), &describe).await;
    assert_eq!(&*described.groups[0].group_state, "Dead", "{version}");

    // Refusals use other fields.
    let refused = client.cold(version, &join_request("unknown")).await;
    assert_eq!(refused.error_code, ErrorCode::UNKNOWN_MEMBER_ID.0, "{version}");
    let refused = client.cold(version.min(5), &sync).await;
    assert_eq!(refused.error_code, ErrorCode::UNKNOWN_MEMBER_ID.0, "{version}");
    let answer = client.cold(version.max(2), &commit).await;
    let refused = ErrorCode(answer.topics[0].partitions[0].error_code);
    // Version 9 uses an error that exists in both protocols (KIP-848).
    let no_group = match version {
        9.. => ErrorCode::GROUP_ID_NOT_FOUND,
        _ => ErrorCode::ILLEGAL_GENERATION,
    };
    assert_eq!(refused, no_group, "{version}");
}

/// Apache Kafka checks the group id before the session timeout.
#[tokio::test]
async fn a_join_without_a_group_id_is_refused_for_that() {
    let (cluster, mut client) = one_partition().await;
    ready(&cluster).await;
    let request = JoinGroupRequest::default().with_session_timeout_ms(0);
    assert_eq!(client.cold(1, &request).await.error_code, ErrorCode::INVALID_GROUP_ID.0);
    let request = request.with_group_id(group());
    assert_eq!(client.cold(1, &request).await.error_code, ErrorCode::INVALID_SESSION_TIMEOUT.0);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn every_version_is_served() {
    let cluster = with_topics().await;
    let (mut client, first) = retried_join(&cluster).await;
    let leave = MemberIdentity::default().with_member_id(first.member_id);
    let leave = LeaveGroupRequest::default().with_group_id(group()).with_members(vec![leave]);
    assert_eq!(client.cold(5, &leave).await.error_code, 0);
    for version in 0..=9 {
        life_in_version(&mut client, version).await;
    }
    for version in 0..=6 {
        let request = FindCoordinatorRequest::default();
        let request = match version {
            ..4 => request.with_key(text(GROUP)),
            _ => request.with_coordinator_keys(vec![text(GROUP)]),
        };
        let found = client.cold(version, &request).await;
        let codes = found.coordinators.iter().map(|c| c.error_code).chain([found.error_code]);
        assert!(codes.into_iter().all(|code| code == 0), "{version}");
    }
    cluster.shutdown().await;
}
