//! Slow and cut connections.

use std::time::Duration;

use curtail_cluster::{CutClients, Direction, Fault, Sender, Throttle};
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::{
        self,
        messages::{
            ListOffsetsRequest, ListOffsetsResponse,
            list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
        },
    },
    header::response_body,
};
use tokio::time::Instant;

use crate::support::{Client, batch, group::topic, one_partition, soon};

#[tokio::test]
async fn a_throttled_client_is_slow_and_the_others_are_not() {
    let (cluster, mut client) = one_partition().await;
    let value = "v".repeat(20_000);
    client.produce("t", 0, -1, batch(&[&value], None)).await;
    let throttle = Throttle {
        broker: Some(1),
        client_id: Some("te*".into()),
        from: Sender::Clients,
        direction: Direction::Out,
        bytes_per_second: 40_000,
    };
    let name = cluster.inject(Fault::Throttle(throttle.clone())).unwrap();
    let elapsed = async |client: &mut Client| {
        let begun = Instant::now();
        assert_eq!(client.fetch_all("t", 0, 1).await[0], value);
        begun.elapsed()
    };
    let slow = elapsed(&mut client).await;
    assert!(slow >= Duration::from_millis(480), "{slow:?}");
    cluster.lift(&name);
    // The request would take 200 s, and its short response takes less than 1 s.
    let throttle = Throttle { bytes_per_second: 100, ..throttle };
    let name = cluster.inject(Fault::Throttle(throttle.clone())).unwrap();
    soon(client.produce("t", 0, -1, batch(&[&value], None))).await;
    cluster.lift(&name);
    let throttle = Throttle { client_id: Some("other".into()), bytes_per_second: 1, ..throttle };
    cluster.inject(Fault::Throttle(throttle)).unwrap();
    soon(elapsed(&mut client)).await;
}

/// Asks for the end of the log with a client id that is not cut.
async fn end_of_log(client: &mut Client) -> i64 {
    let asked = ListOffsetsPartition::default().with_timestamp(-1);
    let topic = ListOffsetsTopic::default().with_name(topic("t")).with_partitions(vec![asked]);
    let request =
        ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    client.send(&cold::encode_request(7, 1, Some("other"), &request).unwrap()).await;
    let frame = soon(client.receive()).await.expect("it is not cut");
    let body = response_body(&frame, ApiKey::LIST_OFFSETS, 7).unwrap();
    let response: ListOffsetsResponse = cold::decode_response(7, body).unwrap();
    response.topics[0].partitions[0].offset
}

fn cut(direction: Direction) -> Fault {
    let client_id = Some("te*".into());
    Fault::CutClients(CutClients { broker: Some(1), client_id, direction })
}

#[tokio::test]
async fn a_cut_of_requests_holds_them_until_it_is_lifted() {
    let (cluster, mut client) = one_partition().await;
    let mut other = Client::connect(&cluster, 1).await;
    client.produce("t", 0, -1, batch(&["a"], None)).await;
    let name = cluster.inject(cut(Direction::In)).unwrap();
    client.send_produce("t", 0, -1, batch(&["b"], None)).await;
    let mut new = Client::connect(&cluster, 1).await;
    new.send_produce("t", 0, -1, batch(&["c"], None)).await;
    tokio::select! {
        biased;
        _ = client.receive() => panic!("an open connection is cut"),
        _ = new.receive() => panic!("a new connection is cut"),
        end = end_of_log(&mut other) => assert_eq!(end, 1),
    }
    cluster.lift(&name);
    assert_eq!(client.produce_answer().await.1.error, ErrorCode::NONE);
    assert_eq!(new.produce_answer().await.1.error, ErrorCode::NONE);
    assert_eq!(end_of_log(&mut other).await, 3);
}

/// As with lost packets, a broker does not notice that its responses do not arrive.
#[tokio::test]
async fn a_cut_of_responses_holds_them_until_it_is_lifted() {
    let (cluster, mut client) = one_partition().await;
    let mut other = Client::connect(&cluster, 1).await;
    // The broker knows the client before the cut.
    client.produce("t", 0, -1, batch(&["a"], None)).await;
    let name = cluster.inject(cut(Direction::Out)).unwrap();
    for value in ["b", "c"] {
        client.send_produce("t", 0, -1, batch(&[value], None)).await;
    }
    soon(async { while end_of_log(&mut other).await < 3 {} }).await;
    tokio::select! {
        biased;
        _ = client.receive() => panic!("no response arrives"),
        _ = end_of_log(&mut other) => {}
    }
    cluster.lift(&name);
    for _ in 0..2 {
        assert!(client.receive().await.is_some());
    }
    client.produce("t", 0, -1, batch(&["d"], None)).await;
    assert_eq!(end_of_log(&mut other).await, 4);
}
