//! Slow and full disks.

use std::time::Duration;

use curtail_cluster::{ClusterHandle, Fault, OnBroker, SlowDisk, Time};
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        OffsetCommitRequest,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
    },
};
use tokio::time::Instant;

use super::hits;
use crate::support::{
    Client, batch, config,
    group::{group, ready, topic},
    one_partition, soon, start,
};

#[tokio::test]
async fn appends_wait_for_a_slow_disk_and_reads_do_not() {
    let (cluster, mut client) = one_partition().await;
    ready(&cluster).await;
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic("t"))
        .with_partitions(vec![OffsetCommitRequestPartition::default()]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let slow = Duration::from_millis(200);
    let disk = |time| Fault::SlowDisk(SlowDisk { broker: 1, time: Time::Fixed(time) });
    let name = cluster.inject(disk(slow)).unwrap();
    let mut other = Client::connect(&cluster, 1).await;
    let begun = Instant::now();
    // One after the other, as on one device.
    tokio::join!(
        client.produce("t", 0, -1, batch(&["a"], None)),
        other.produce("t", 0, -1, batch(&["b"], None)),
    );
    assert!(begun.elapsed() >= 2 * slow, "{:?}", begun.elapsed());
    assert_eq!(hits(&cluster, &name), 2);
    let begun = Instant::now();
    let committed = client.cold(8, &commit).await;
    assert_eq!(committed.topics[0].partitions[0].error_code, 0);
    assert!(begun.elapsed() >= slow, "a commit is an append: {:?}", begun.elapsed());
    cluster.lift(&name);
    let name = cluster.inject(disk(Duration::from_secs(3600))).unwrap();
    soon(client.fetch_all("t", 0, 2)).await;
    cluster.lift(&name);
    soon(client.produce("t", 0, -1, batch(&["c"], None))).await;
}

/// As in Kafka, where a broker halts if its only log directory fails.
#[tokio::test]
async fn a_broker_with_a_full_disk_ends_with_its_next_append_and_keeps_its_records() {
    let cluster = start(config(3)).await;
    cluster.create_topic("t", 1, 3, &[]).unwrap();
    cluster.settled().await;
    let leader = cluster.leader("t", 0).unwrap().0;
    let mut client = Client::connect(&cluster, leader).await;
    let name = cluster.inject(Fault::FullDisk(OnBroker { broker: leader })).unwrap();
    cluster.lift(&name);
    assert_eq!(client.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    let name = cluster.inject(Fault::FullDisk(OnBroker { broker: leader })).unwrap();
    assert_eq!(client.fetch_all("t", 0, 1).await, ["a"], "it still reads");
    client.send_produce("t", 0, -1, batch(&["b"], None)).await;
    let moved =
        |cluster: &ClusterHandle| cluster.leader("t", 0).is_some_and(|(id, _)| id != leader);
    soon(cluster.wait_until(moved)).await;
    assert!(client.receive().await.is_none() || client.receive().await.is_none(), "it ended");
    // Before there is room a restart fails with its first write, or the broker ends again with it.
    let broker = cluster.broker(leader).unwrap();
    if let Err(error) = soon(cluster.restart(leader)).await {
        assert!(error.to_string().ends_with("(make room on the disk)"), "{error}");
    }
    let next = cluster.leader("t", 0).unwrap().0;
    let mut client = Client::connect(&cluster, next).await;
    assert_eq!(client.produce("t", 0, 1, batch(&["c"], None)).await.error, ErrorCode::NONE);
    // Metadata changes when the controller fences it.
    soon(cluster.wait_until(|_| !broker.is_up())).await;
    cluster.lift(&name);
    soon(cluster.restart(leader)).await.unwrap();
    soon(cluster.wait_until(|cluster| cluster.isr("t", 0).unwrap().len() == 3)).await;
    cluster.move_leader("t", 0, leader).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, leader).await;
    assert_eq!(soon(client.fetch_all("t", 0, 2)).await, ["a", "c"]);
}
