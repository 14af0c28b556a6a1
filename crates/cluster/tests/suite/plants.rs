//! The planted bugs have the effect that their names state: they prove the simulation's checker.

use crate::support::{Client, batch, config, soon, start};
use curtail_cluster::{Cluster, ClusterConfig, Plant};
use curtail_wire::ErrorCode;

async fn planted(plant: Plant) -> (Cluster, i32, Vec<i32>) {
    let cluster = start(ClusterConfig { plant: Some(plant), ..config(3) }).await;
    cluster.create_topic("t", 1, 3, &[]).expect("a topic");
    cluster.settled().await;
    let (leader, _) = cluster.leader("t", 0).expect("a leader");
    (cluster, leader, (1..=3).filter(|id| *id != leader).collect())
}

#[tokio::test]
async fn plant_ack_before_replication_acknowledges_uncommitted_records() {
    let (cluster, leader, followers) = planted(Plant::AckBeforeReplication).await;
    followers.iter().for_each(|id| cluster.freeze(*id));
    let mut client = Client::connect(&cluster, leader).await;
    let answer = client.produce("t", 0, -1, batch(&["a"], None)).await;
    assert_eq!(answer.error, ErrorCode::NONE);
    assert_eq!(client.list_offset("t", 0, -1).await.1, 0, "acknowledged and not committed");
}

#[tokio::test]
async fn plant_no_sequence_check_appends_a_duplicate_batch() {
    let (cluster, leader, _) = planted(Plant::NoSequenceCheck).await;
    let mut client = Client::connect(&cluster, leader).await;
    let id = client.producer_id().await;
    for base_offset in 0..2 {
        let answer = client.produce("t", 0, -1, batch(&["a"], Some((id, 0, 0)))).await;
        assert_eq!((answer.error, answer.base_offset), (ErrorCode::NONE, base_offset));
    }
}

#[tokio::test]
async fn plant_no_truncation_keeps_records_that_no_other_replica_has() {
    let (cluster, old, followers) = planted(Plant::NoTruncation).await;
    let mut client = Client::connect(&cluster, old).await;
    followers.iter().for_each(|id| cluster.freeze(*id));
    for value in ["tail-1", "tail-2", "tail-3"] {
        assert_eq!(client.produce("t", 0, 1, batch(&[value], None)).await.error, ErrorCode::NONE);
    }
    cluster.freeze(old);
    followers.iter().for_each(|id| cluster.thaw(*id));
    soon(cluster.wait_until(|c| c.leader("t", 0).is_some_and(|(id, _)| id != old))).await;
    let (new, _) = cluster.leader("t", 0).expect("a leader");
    let mut client = Client::connect(&cluster, new).await;
    let mut end = 0;
    while end < 4 {
        let answer = client.produce("t", 0, -1, batch(&["b"], None)).await;
        end = answer.base_offset.max(end);
    }
    cluster.thaw(old);
    soon(cluster.wait_until(|c| c.isr("t", 0).is_some_and(|isr| isr.len() == 3))).await;
    cluster.move_leader("t", 0, old).expect("it is in sync");
    cluster.settled().await;
    let mut client = Client::connect(&cluster, old).await;
    let kept = client.fetch_all("t", 0, 4).await;
    assert_eq!(kept[2], "tail-3", "a record that no other replica has is served");
}
