//! Support for tests of both group protocols: one group and its coordinator.

use curtail_cluster::Cluster;
use curtail_wire::{
    ErrorCode,
    cold::{
        StrBytes,
        messages::{FindCoordinatorRequest, GroupId, TopicName},
    },
};

use super::{Client, soon};

pub const GROUP: &str = "hello";
/// The group's partition, of four: Java's hash of its name is 99162322.
pub const PARTITION: i32 = 2;
pub const OFFSETS: &str = "__consumer_offsets";

pub fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub fn group() -> GroupId {
    GroupId(text(GROUP))
}

pub fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

/// Waits until the group has a coordinator.
pub async fn ready(cluster: &Cluster) {
    ready_for(&mut Client::connect(cluster, 1).await, cluster).await;
}

/// Like [`ready`], with a client that may describe the group.
pub async fn ready_for(client: &mut Client, cluster: &Cluster) {
    let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(GROUP)]);
    client.cold(4, &request).await;
    soon(cluster.wait_until(|c| c.leader(OFFSETS, PARTITION).is_some())).await;
    cluster.settled().await;
}

/// Connects to the group's coordinator.
pub async fn coordinator(cluster: &Cluster) -> Client {
    let (leader, _) = cluster.leader(OFFSETS, PARTITION).expect("a leader");
    Client::connect(cluster, leader).await
}

/// Repeats a request while the response is an error of a starting coordinator. Each response
/// follows progress of the broker, so the loop is short.
pub async fn retried<T>(mut ask: impl AsyncFnMut() -> (ErrorCode, T)) -> T {
    let passing = [
        ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::NOT_COORDINATOR,
    ];
    soon(async {
        loop {
            let (code, answer) = ask().await;
            if !passing.contains(&code) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}
