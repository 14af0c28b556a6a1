//! Wrong content of responses.

use curtail_cluster::{Fault, Requests, WrongLeader};
use curtail_wire::{ErrorCode, api::ApiKey, produce::NodeEndpoint, records::batches};

use super::hits;
use crate::support::{Client, batch, config, fetch_partition, fetch_request, one_partition, start};

/// Fetches the partition. Returns whether each batch is as its CRC says.
async fn intact(client: &mut Client) -> Vec<bool> {
    let response = client.fetch_raw(12, &fetch_request("t", 0, 0)).await;
    assert_eq!(response.topics[0].partitions[0].error, ErrorCode::NONE);
    let records = response.topics[0].partitions[0].records.clone();
    batches(records).map(|batch| batch.unwrap().verify_crc().is_ok()).collect()
}

#[tokio::test]
async fn a_batch_arrives_damaged_and_its_log_is_intact() {
    let (cluster, mut client) = one_partition().await;
    for value in ["a", "b"] {
        client.produce("t", 0, -1, batch(&[value], None)).await;
    }
    let fault = Fault::corrupt(Requests::all().on_partition("t", 0).times(2));
    let other = Fault::corrupt(Requests::of(ApiKey::FETCH).on_partition("t", 1));
    let name = cluster.inject(fault).unwrap();
    let other = cluster.inject(other).unwrap();
    assert_eq!(intact(&mut client).await, [false, true]);
    // By topic id.
    let topic_id = client.metadata("t").await.1.topic_id;
    let mut request = fetch_request("t", 0, 1);
    request.topics[0].topic_id = topic_id;
    let response = client.fetch_raw(17, &request).await;
    let records = response.topics[0].partitions[0].records.clone();
    let crcs: Vec<_> = batches(records).map(|batch| batch.unwrap().verify_crc().is_ok()).collect();
    assert_eq!(crcs, [false]);
    assert_eq!((hits(&cluster, &name), hits(&cluster, &other)), (2, 0));
    assert_eq!(intact(&mut client).await, [true, true]);
    assert_eq!(client.fetch_all("t", 0, 2).await, ["a", "b"]);
    // A response without records has nothing to damage.
    cluster.inject(Fault::corrupt(Requests::all()).named("empty")).unwrap();
    let mut request = fetch_request("t", 0, 2);
    (request.max_wait_ms, request.topics[0].partitions) = (1, vec![fetch_partition(0, 2)]);
    client.fetch_raw(12, &request).await;
    assert_eq!(hits(&cluster, "empty"), 0);
}

/// The leader, the epoch and the endpoints in a response.
type Hint = (Option<(i32, i32)>, Vec<(i32, u16)>);

fn endpoints(named: &[NodeEndpoint]) -> Vec<(i32, u16)> {
    named.iter().map(|endpoint| (endpoint.node_id, endpoint.port as u16)).collect()
}

async fn hint_of_produce(client: &mut Client) -> Hint {
    client.send_produce("t", 0, -1, batch(&["a"], None)).await;
    let (response, partition) = client.produce_answer().await;
    assert_eq!(partition.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let leader = partition.current_leader.map(|leader| (leader.leader_id, leader.leader_epoch));
    (leader, endpoints(&response.node_endpoints))
}

async fn hint_of_fetch(client: &mut Client, version: i16) -> Hint {
    let mut request = fetch_request("t", 0, 0);
    request.topics[0].topic_id = client.metadata("t").await.1.topic_id;
    // The error ends the wait.
    request.max_wait_ms = 600_000;
    let response = client.fetch_raw(version, &request).await;
    let partition = &response.topics[0].partitions[0];
    assert_eq!(partition.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let leader = partition.current_leader.map(|leader| (leader.leader_id, leader.leader_epoch));
    (leader, endpoints(&response.node_endpoints))
}

#[tokio::test]
async fn refused_partitions_name_the_leader_that_a_fault_says() {
    let cluster = start(config(2)).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let (leader, epoch) = cluster.leader("t", 0).unwrap();
    let other = 3 - leader;
    let port = |id| cluster.broker(id).unwrap().addr().port();
    let mut client = Client::connect(&cluster, other).await;
    let right: Hint = (Some((leader, epoch)), vec![(leader, port(leader))]);
    let wrong = |wrong: WrongLeader| Fault::WrongLeader(wrong).named("wrong");
    for (fault, hint) in [
        (None, right.clone()),
        (
            Some(WrongLeader { leader: Some(other), ..WrongLeader::default() }),
            (Some((other, epoch)), vec![(other, port(other))]),
        ),
        (
            Some(WrongLeader { leader: Some(9), epoch_shift: 5, ..WrongLeader::default() }),
            (Some((9, epoch + 5)), vec![]),
        ),
        (
            Some(WrongLeader { epoch_shift: -1, ..WrongLeader::default() }),
            (Some((leader, epoch - 1)), vec![(leader, port(leader))]),
        ),
        (
            Some(WrongLeader {
                requests: Requests::all().on_topic("t"),
                address: Some(([127, 0, 0, 1], 9).into()),
                ..WrongLeader::default()
            }),
            (Some((leader, epoch)), vec![(leader, 9)]),
        ),
        (
            Some(WrongLeader {
                requests: Requests::all().on_topic("u"),
                leader: Some(other),
                ..WrongLeader::default()
            }),
            right,
        ),
    ] {
        let text = format!("{fault:?}");
        fault.map(|fault| cluster.inject(wrong(fault)).unwrap());
        assert_eq!(hint_of_produce(&mut client).await, hint, "{text}");
        for version in [16, 17] {
            assert_eq!(hint_of_fetch(&mut client, version).await, hint, "{text}");
        }
        cluster.lift("wrong");
    }
    // Earlier versions name no leader, and the fault waits for a response that does.
    let once = WrongLeader {
        requests: Requests::of(ApiKey::FETCH).times(1),
        leader: Some(other),
        ..WrongLeader::default()
    };
    cluster.inject(wrong(once)).unwrap();
    assert_eq!(hint_of_fetch(&mut client, 15).await, (None, vec![]));
    assert_eq!(hits(&cluster, "wrong"), 0);
    // An injected error of the leader itself has no hint but a wrong one.
    let mut client = Client::connect(&cluster, leader).await;
    let refuse = Requests::of(ApiKey::FETCH).times(2);
    cluster.inject(Fault::error(refuse, ErrorCode::NOT_LEADER_OR_FOLLOWER)).unwrap();
    let hint = (Some((other, epoch)), vec![(other, port(other))]);
    assert_eq!(hint_of_fetch(&mut client, 17).await, hint);
    assert_eq!(hint_of_fetch(&mut client, 17).await, (None, vec![]));
}

/// Brokers refuse a duplicate only while they know its producer.
#[tokio::test]
async fn forgotten_producers_begin_anew_on_every_replica() {
    let cluster = start(config(2)).await;
    cluster.create_topic("t", 1, 2, &[]).unwrap();
    cluster.settled().await;
    let leader = cluster.leader("t", 0).unwrap().0;
    let mut client = Client::connect(&cluster, leader).await;
    let id = client.producer_id().await;
    let produce = async |client: &mut Client, sequence| {
        let produced = client.produce("t", 0, -1, batch(&["a"], Some((id, 0, sequence)))).await;
        (produced.error, produced.base_offset)
    };
    assert_eq!(produce(&mut client, 0).await, (ErrorCode::NONE, 0));
    assert_eq!(produce(&mut client, 0).await, (ErrorCode::NONE, 0), "a duplicate");
    let (gap, _) = produce(&mut client, 5).await;
    assert_eq!(gap, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(cluster.expire_producer_ids("t", 0), Some(1));
    assert_eq!(produce(&mut client, 0).await, (ErrorCode::NONE, 1), "appended again");
    assert_eq!(cluster.expire_producer_ids("t", 0), Some(1));
    // The follower has forgotten it, too.
    cluster.move_leader("t", 0, 3 - leader).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 3 - leader).await;
    assert_eq!(produce(&mut client, 5).await, (ErrorCode::NONE, 2));
    assert_eq!(cluster.expire_producer_ids("t", 1), None);
    assert_eq!(cluster.expire_producer_ids("u", 0), None);
}
