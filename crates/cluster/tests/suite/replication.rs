//! Three brokers: replication, in-sync replicas, elections, truncation, faults.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{Client, batch, config, fetch_partition, fetch_request, soon, start};
use curtail_cluster::{Cluster, ClusterConfig, Observer, SessionMetrics, Storage};
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::{
        StrBytes,
        messages::{
            AlterPartitionReassignmentsRequest, BrokerId, OffsetForLeaderEpochRequest, TopicName,
            alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic},
            offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
        },
    },
    produce::LeaderIdAndEpoch,
};
use tokio::{sync::watch, time::Instant};

async fn with_topic(config: ClusterConfig, min_isr: &str) -> Cluster {
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 3, &[("min.insync.replicas", min_isr)]).expect("a topic");
    cluster.settled().await;
    cluster
}

/// Returns the leader of the only partition, and the two other brokers.
fn roles(cluster: &Cluster) -> (i32, [i32; 2]) {
    let (leader, _) = cluster.leader("t", 0).expect("a leader");
    let others: Vec<i32> = (1..=3).filter(|id| *id != leader).collect();
    (leader, [others[0], others[1]])
}

/// Starts a cluster with a replicated record and three more that only the leader has. Returns it with the leader and
/// the followers, which are frozen. The first of the three may be in their socket buffers.
async fn with_tail() -> (Cluster, i32, [i32; 2]) {
    let cluster = with_topic(config(3), "1").await;
    let (leader, followers) = roles(&cluster);
    let mut client = Client::connect(&cluster, leader).await;
    assert_eq!(client.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    followers.iter().for_each(|id| cluster.freeze(*id));
    for value in ["lost-1", "lost-2", "lost-3"] {
        assert_eq!(client.produce("t", 0, 1, batch(&[value], None)).await.error, ErrorCode::NONE);
    }
    (cluster, leader, followers)
}

/// At each moment at most one broker is missing, so a partition with three replicas keeps two in sync.
#[tokio::test]
async fn brokers_restart_in_turn() {
    // Only a restart makes a broker leave, however busy the machine is.
    let patient = Duration::from_secs(600);
    let config = ClusterConfig {
        broker_session_timeout: patient,
        replica_lag_time_max: patient,
        ..config(3)
    };
    let cluster = with_topic(config, "2").await;
    let mut missing = BTreeSet::new();
    let watch = cluster.wait_until(|cluster| {
        let in_sync = cluster.isr("t", 0).expect("the topic exists");
        missing.insert((1..=3).filter(|id| !in_sync.contains(id)).collect::<Vec<i32>>());
        false
    });
    soon(async {
        tokio::select! {
            rolled = cluster.roll() => rolled.expect("every broker starts again"),
            () = watch => {}
        }
    })
    .await;
    assert_eq!(missing, [vec![], vec![1], vec![2], vec![3]].into());
    assert_eq!((cluster.live_brokers(), cluster.isr("t", 0).unwrap().len()), (vec![1, 2, 3], 3));
}

#[tokio::test]
async fn acks_all_waits_for_every_in_sync_replica() {
    let cluster = with_topic(config(3), "2").await;
    let (leader, [slow, _]) = roles(&cluster);
    let mut client = Client::connect(&cluster, leader).await;
    for i in 0..20_i64 {
        let answer = client.produce("t", 0, -1, batch(&["x"], None)).await;
        assert_eq!((answer.error, answer.base_offset), (ErrorCode::NONE, i));
    }
    assert_eq!(client.list_offset("t", 0, -1).await.1, 20);

    // A frozen follower delays the acknowledgement until it leaves the in-sync replicas.
    cluster.freeze(slow);
    let answer = client.produce("t", 0, -1, batch(&["y"], None)).await;
    assert_eq!(answer.error, ErrorCode::NONE);
    assert!(!cluster.isr("t", 0).unwrap().contains(&slow));

    // The follower catches up and rejoins.
    cluster.thaw(slow);
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 3)).await;
    let answer = client.produce("t", 0, -1, batch(&["z"], None)).await;
    assert_eq!((answer.error, answer.base_offset), (ErrorCode::NONE, 21));
}

#[tokio::test]
async fn too_few_in_sync_replicas_refuse_acks_all() {
    let cluster = with_topic(config(3), "3").await;
    let (leader, [gone, _]) = roles(&cluster);
    let mut client = Client::connect(&cluster, leader).await;
    assert_eq!(client.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    cluster.kill(gone);
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 2)).await;
    cluster.settled().await;
    let refused = client.produce("t", 0, -1, batch(&["b"], None)).await;
    assert_eq!(refused.error, ErrorCode::NOT_ENOUGH_REPLICAS);
    // A batch with acks=1 is appended but not committed.
    assert_eq!(client.produce("t", 0, 1, batch(&["c"], None)).await.error, ErrorCode::NONE);
    assert_eq!(client.list_offset("t", 0, -1).await.1, 1);
    soon(cluster.restart(gone)).await.unwrap();
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 3)).await;
    assert_eq!(client.fetch_all("t", 0, 2).await, ["a", "c"]);
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_with_its_leader() {
    let cluster = with_topic(config(3), "2").await;
    let mut expected = Vec::new();
    for round in 0..3 {
        let (leader, _) = roles(&cluster);
        let mut client = Client::connect(&cluster, leader).await;
        for i in 0..10 {
            let value = format!("{round}-{i}");
            let answer = client.produce("t", 0, -1, batch(&[&value], None)).await;
            assert_eq!(answer.error, ErrorCode::NONE);
            expected.push(value);
        }
        cluster.kill(leader);
        assert_eq!(client.receive().await, None, "its connections drop");
        soon(cluster.wait_until(|c| c.leader("t", 0).is_some_and(|(id, _)| id != leader))).await;
        cluster.settled().await;
        soon(cluster.restart(leader)).await.unwrap();
        soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 3)).await;
    }
    let (leader, _) = roles(&cluster);
    let mut client = Client::connect(&cluster, leader).await;
    assert_eq!(client.fetch_all("t", 0, expected.len()).await, expected);
}

#[tokio::test]
async fn a_moved_leader_is_named_and_the_old_one_fenced() {
    let cluster = with_topic(config(3), "1").await;
    let (old, [new, _]) = roles(&cluster);
    let mut client = Client::connect(&cluster, old).await;
    client.produce("t", 0, -1, batch(&["a"], None)).await;
    cluster.move_leader("t", 0, new).unwrap();
    cluster.settled().await;
    let (_, epoch) = cluster.leader("t", 0).unwrap();

    client.send_produce("t", 0, -1, batch(&["b"], None)).await;
    let (response, refused) = client.produce_answer().await;
    assert_eq!(refused.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(refused.base_offset, -1, "it appended nothing");
    let hint = LeaderIdAndEpoch { leader_id: new, leader_epoch: epoch };
    assert_eq!(refused.current_leader, Some(hint));
    assert_eq!(response.node_endpoints[0].node_id, new);
    let addr = cluster.broker(new).unwrap().addr();
    assert_eq!(response.node_endpoints[0].port, i32::from(addr.port()));

    let mut client = Client::connect(&cluster, new).await;
    let mut request = fetch_request("t", 0, 0);
    request.topics[0].partitions[0].current_leader_epoch = epoch - 1;
    let fenced = client.fetch_raw(12, &request).await;
    assert_eq!(fenced.topics[0].partitions[0].error, ErrorCode::FENCED_LEADER_EPOCH);
    request.topics[0].partitions[0].current_leader_epoch = epoch + 1;
    let early = client.fetch_raw(12, &request).await;
    assert_eq!(early.topics[0].partitions[0].error, ErrorCode::UNKNOWN_LEADER_EPOCH);
    assert_eq!(client.produce("t", 0, -1, batch(&["b"], None)).await.error, ErrorCode::NONE);
    assert_eq!(client.fetch_all("t", 0, 2).await, ["a", "b"]);

    // The previous epoch ended with its only record.
    let partition = OffsetForLeaderPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(-1)
        .with_leader_epoch(epoch - 1);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(TopicName(StrBytes::from_static_str("t")))
        .with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![topic]);
    let answer = client.cold(4, &request).await;
    let end = &answer.topics[0].partitions[0];
    assert_eq!((end.error_code, end.leader_epoch, end.end_offset), (0, epoch - 1, 1));
}

#[tokio::test]
async fn a_diverging_tail_is_truncated() {
    let (cluster, old, others) = with_tail().await;
    cluster.freeze(old);
    others.iter().for_each(|id| cluster.thaw(*id));
    soon(cluster.wait_until(|c| c.leader("t", 0).is_some_and(|(id, _)| id != old))).await;
    let (new, _) = cluster.leader("t", 0).unwrap();
    let mut client = Client::connect(&cluster, new).await;
    let produced = loop {
        let answer = client.produce("t", 0, -1, batch(&["b"], None)).await;
        if answer.error != ErrorCode::NOT_LEADER_OR_FOLLOWER {
            break answer;
        }
    };
    assert_eq!(produced.error, ErrorCode::NONE);
    assert!(produced.base_offset <= 2);
    let count = produced.base_offset as usize + 1;
    let mut expected = client.fetch_all("t", 0, count).await;
    cluster.thaw(old);
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 3)).await;
    cluster.move_leader("t", 0, old).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, old).await;
    assert_eq!(client.produce("t", 0, -1, batch(&["c"], None)).await.error, ErrorCode::NONE);
    expected.push("c".into());
    assert_eq!(client.fetch_all("t", 0, count + 1).await, expected);
}

#[tokio::test]
async fn a_follower_serves_committed_records_after_its_truncation() {
    let (cluster, old, others) = with_tail().await;
    cluster.kill(old);
    others.iter().for_each(|id| cluster.thaw(*id));
    soon(cluster.wait_until(|c| c.leader("t", 0).is_some_and(|(id, _)| id != old))).await;
    cluster.settled().await;
    // After the restart the broker has no high watermark. No record comes that would bring one.
    soon(cluster.restart(old)).await.unwrap();
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 3)).await;
    let mut client = Client::connect(&cluster, old).await;
    assert_eq!(soon(client.fetch_all("t", 0, 1)).await[0], "a");
}

#[tokio::test]
async fn frozen_metadata_stays_at_its_version_until_it_is_thawed() {
    let cluster = with_topic(config(3), "1").await;
    let (old, [new, other]) = roles(&cluster);
    cluster.freeze_metadata(other, true);
    cluster.move_leader("t", 0, new).unwrap();
    let mut fresh = Client::connect(&cluster, new).await;
    let mut stale = Client::connect(&cluster, other).await;
    while fresh.metadata("t").await.1.partitions[0].leader_id != new {}
    assert_eq!(stale.metadata("t").await.1.partitions[0].leader_id, old);
    cluster.freeze_metadata(other, false);
    cluster.settled().await;
    assert_eq!(stale.metadata("t").await.1.partitions[0].leader_id, new);
}

#[tokio::test]
async fn a_delayed_response_arrives_after_the_delay() {
    let cluster = with_topic(config(3), "1").await;
    let (leader, _) = roles(&cluster);
    let mut client = Client::connect(&cluster, leader).await;
    let delay = Duration::from_millis(150);
    cluster.delay(Some(leader), Some(ApiKey::PRODUCE.0), delay);
    let begin = Instant::now();
    client.send_produce("t", 0, 1, batch(&["a"], None)).await;
    let (_, answer) = client.produce_answer().await;
    assert_eq!(answer.error, ErrorCode::NONE);
    assert!(begin.elapsed() >= delay);
    cluster.clear_delays();
}

#[derive(Default)]
struct Counting {
    appended: AtomicUsize,
    committed: AtomicUsize,
    replicated: AtomicUsize,
    leads: AtomicUsize,
}

impl Observer for Counting {
    fn appended(&self, _: i32, _: &str, _: i32, _: i64, _: i64, _: Instant) {
        self.appended.fetch_add(1, Ordering::SeqCst);
    }

    fn committed(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {
        self.committed.fetch_add(1, Ordering::SeqCst);
    }

    fn replicated(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {
        self.replicated.fetch_add(1, Ordering::SeqCst);
    }

    fn leads(&self, broker: i32, _: &str, _: i32, _: i32, _: Instant) {
        self.leads.store(broker as usize, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_observer_sees_append_replication_and_commit() {
    let cluster = with_topic(config(3), "3").await;
    let seen = Arc::new(Counting::default());
    cluster.observe(Arc::<Counting>::clone(&seen));
    let (leader, _) = roles(&cluster);
    let mut client = Client::connect(&cluster, leader).await;
    client.produce("t", 0, -1, batch(&["a"], None)).await;
    assert_eq!(seen.appended.load(Ordering::SeqCst), 1);
    assert_eq!(seen.replicated.load(Ordering::SeqCst), 2);
    assert_eq!(seen.committed.load(Ordering::SeqCst), 1);
    let (_, [next, _]) = roles(&cluster);
    cluster.move_leader("t", 0, next).unwrap();
    cluster.settled().await;
    assert_eq!(seen.leads.load(Ordering::SeqCst) as i32, next);
    cluster.stop_observing();
    let mut client = Client::connect(&cluster, next).await;
    client.produce("t", 0, -1, batch(&["b"], None)).await;
    assert_eq!(seen.appended.load(Ordering::SeqCst), 1, "a removed observer receives no calls");
}

#[tokio::test]
async fn an_incremental_fetch_returns_only_changes_and_sessions_are_evicted() {
    let slots = ClusterConfig { fetch_session_cache_slots: 8, ..config(1) };
    let cluster = start(slots).await;
    cluster.create_topic("t", 2, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let mut request = fetch_request("t", 0, 0);
    request.max_wait_ms = 0;
    request.session_epoch = 0;
    request.topics[0].partitions.push(fetch_partition(1, 0));
    let full = client.fetch_raw(12, &request).await;
    assert_eq!(full.topics[0].partitions.len(), 2);
    assert_ne!(full.session_id, 0);

    let mut next = request.clone();
    (next.session_id, next.session_epoch) = (full.session_id, 1);
    next.topics.clear();
    let quiet = client.fetch_raw(12, &next).await;
    assert_eq!((quiet.error, quiet.topics.len()), (ErrorCode::NONE, 0));
    client.produce("t", 1, 1, batch(&["a"], None)).await;
    next.session_epoch = 2;
    let news = client.fetch_raw(12, &next).await;
    assert_eq!(news.topics[0].partitions.len(), 1);
    assert_eq!(news.topics[0].partitions[0].index, 1);
    // Repeating an epoch is an error of the session.
    let again = client.fetch_raw(12, &next).await;
    assert_eq!(again.error, ErrorCode::INVALID_FETCH_SESSION_EPOCH);

    // The shards have a slot each, eight in all. The ninth consumer finds none, and followers take
    // slots from consumers.
    let mut other = Client::connect(&cluster, 1).await;
    for _ in 1..8 {
        assert_ne!(other.fetch_raw(12, &request).await.session_id, 0);
    }
    assert_eq!(other.fetch_raw(12, &request).await.session_id, 0);
    let mut follower = request.clone();
    follower.replica_id = 1;
    for _ in 0..8 {
        assert_ne!(other.fetch_raw(12, &follower).await.session_id, 0);
    }
    next.session_epoch = 3;
    let evicted = client.fetch_raw(12, &next).await;
    assert_eq!(evicted.error, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    let metrics = SessionMetrics { sessions: 8, partitions: 16, evictions: 8, forgotten: 0 };
    assert_eq!(cluster.fetch_sessions(1), Some(metrics));
}

#[tokio::test]
async fn a_clean_stop_moves_leaderships_first() {
    let cluster = with_topic(config(3), "2").await;
    let (leader, _) = roles(&cluster);
    soon(cluster.stop(leader)).await;
    let (next, _) = cluster.leader("t", 0).expect("moved before the stop");
    assert_ne!(next, leader);
    let mut client = Client::connect(&cluster, next).await;
    cluster.settled().await;
    assert_eq!(client.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    soon(cluster.restart(leader)).await.unwrap();
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 3)).await;
}

/// Reports the broker of the latest append.
struct Taken(watch::Sender<i32>);

impl Observer for Taken {
    fn appended(&self, broker: i32, _: &str, _: i32, _: i64, _: i64, _: Instant) {
        self.0.send_replace(broker);
    }

    fn committed(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {}
}

#[tokio::test]
async fn a_leader_cut_off_from_the_controller_acknowledges_nothing() {
    let cluster = with_topic(config(3), "1").await;
    let (old, _) = roles(&cluster);
    cluster.cut_off(old, true);
    soon(cluster.wait_until(|c| c.leader("t", 0).is_some_and(|(id, _)| id != old))).await;
    let (new, epoch) = cluster.leader("t", 0).unwrap();
    let mut client = Client::connect(&cluster, new).await;
    let produced = loop {
        let answer = client.produce("t", 0, -1, batch(&["b"], None)).await;
        if answer.error != ErrorCode::NOT_LEADER_OR_FOLLOWER {
            break answer;
        }
    };
    assert_eq!((produced.error, produced.base_offset), (ErrorCode::NONE, 0));

    // The old leader still considers itself the leader and appends the batch, but no follower
    // fetches it.
    let taken = Arc::new(Taken(watch::Sender::new(0)));
    cluster.observe(Arc::<Taken>::clone(&taken));
    let mut client = Client::connect(&cluster, old).await;
    client.send_produce("t", 0, -1, batch(&["lost"], None)).await;
    soon(taken.0.subscribe().wait_for(|broker| *broker == old)).await.unwrap();
    cluster.cut_off(old, false);
    let (_, refused) = client.produce_answer().await;
    assert_eq!(refused.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(refused.base_offset, 0, "it had appended the batch");
    let hint = LeaderIdAndEpoch { leader_id: new, leader_epoch: epoch };
    assert_eq!(refused.current_leader, Some(hint));
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 3)).await;
    let mut client = Client::connect(&cluster, new).await;
    assert_eq!(client.list_offset("t", 0, -1).await.1, 1);
}

#[tokio::test]
async fn a_new_topic_waits_until_the_followers_outstanding_fetches_return() {
    let wait = Duration::from_millis(400);
    let cluster = start(ClusterConfig { replica_fetch_wait_max: wait, ..config(3) }).await;
    cluster.create_topic("first", 1, 3, &[]).unwrap();
    cluster.settled().await;
    let (leader, _) = cluster.leader("first", 0).unwrap();
    let mut client = Client::connect(&cluster, leader).await;
    // The followers send their waiting fetch only after this time.
    let before = Instant::now();
    let answer = client.produce("first", 0, -1, batch(&["a"], None)).await;
    assert_eq!(answer.error, ErrorCode::NONE);
    cluster.create_topic("second", 3, 3, &[]).unwrap();
    cluster.settled().await;
    let same = |partition: &i32| cluster.leader("second", *partition).unwrap().0 == leader;
    let partition = (0..3).find(same).unwrap();
    let answer = soon(client.produce("second", partition, -1, batch(&["a"], None))).await;
    assert_eq!(answer.error, ErrorCode::NONE);
    assert!(before.elapsed() >= wait, "{:?}", before.elapsed());
}

/// Reassigns the only partition to other brokers.
async fn reassign(client: &mut Client, to: &[i32]) {
    let replicas = to.iter().copied().map(BrokerId).collect();
    let partition = ReassignablePartition::default().with_replicas(Some(replicas));
    let topic = ReassignableTopic::default()
        .with_name(TopicName(StrBytes::from_static_str("t")))
        .with_partitions(vec![partition]);
    let request = AlterPartitionReassignmentsRequest::default()
        .with_allow_replication_factor_change(true)
        .with_topics(vec![topic]);
    let response = client.cold(1, &request).await;
    assert_eq!(response.responses[0].partitions[0].error_code, 0, "{response:?}");
}

#[tokio::test]
async fn a_partition_moves_with_its_records_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let config = ClusterConfig { storage: Storage::Dir(dir.path().to_owned()), ..config(3) };
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let log = |broker: i32| dir.path().join(format!("broker-{broker}/t-0"));
    let (from, [first, second]) = roles(&cluster);
    let mut old = Client::connect(&cluster, from).await;
    assert_eq!(old.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);

    // While one of the added replicas is unresponsive, the old one leads and keeps its records.
    cluster.freeze(second);
    reassign(&mut old, &[first, second]).await;
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().contains(&first))).await;
    assert_eq!(old.produce("t", 0, -1, batch(&["b"], None)).await.error, ErrorCode::NONE);
    let (_, topic) = old.metadata("t").await;
    assert_eq!(topic.partitions[0].replicas, [first, second, from]);
    assert_eq!(cluster.leader("t", 0).unwrap().0, from);
    assert!(log(from).exists());

    cluster.thaw(second);
    soon(cluster.wait_until(|c| c.leader("t", 0).unwrap().0 == first)).await;
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 2)).await;
    soon(cluster.settled()).await;
    old.send_produce("t", 0, -1, batch(&["lost"], None)).await;
    let (_, refused) = old.produce_answer().await;
    assert_eq!(refused.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(refused.base_offset, -1, "it appended nothing");
    assert_eq!(refused.current_leader.unwrap().leader_id, first);
    assert!(!log(from).exists() && log(second).exists());
    let mut new = Client::connect(&cluster, first).await;
    assert_eq!(new.produce("t", 0, -1, batch(&["c"], None)).await.error, ErrorCode::NONE);
    assert_eq!(new.fetch_all("t", 0, 3).await, ["a", "b", "c"]);

    // A broker that is down when its replica is removed deletes it after its restart.
    cluster.kill(second);
    soon(cluster.wait_until(|c| c.isr("t", 0).unwrap().len() == 1)).await;
    reassign(&mut new, &[first]).await;
    assert!(log(second).exists());
    soon(cluster.restart(second)).await.unwrap();
    soon(cluster.settled()).await;
    assert!(!log(second).exists() && log(first).exists());
    assert_eq!(new.fetch_all("t", 0, 3).await, ["a", "b", "c"]);
    soon(cluster.shutdown()).await;
}

/// A broker that never receives the metadata keeps running with its current one.
#[tokio::test]
async fn a_metadata_delay_of_any_length_leaves_the_broker_running() {
    let cluster = start(config(2)).await;
    cluster.set_metadata_delay(1, Duration::MAX);
    cluster.create_topic("late", 1, 1, &[]).expect("a topic");
    // Broker 1 runs if it still has a session when that of the frozen broker 2 has expired.
    cluster.freeze(2);
    soon(cluster.wait_until(|cluster| !cluster.live_brokers().contains(&2))).await;
    assert_eq!(cluster.live_brokers(), [1]);
    cluster.set_metadata_delay(1, Duration::ZERO);
    let mut client = soon(Client::connect(&cluster, 1)).await;
    assert_eq!(soon(client.metadata("late")).await.0.brokers.len(), 2);
}
