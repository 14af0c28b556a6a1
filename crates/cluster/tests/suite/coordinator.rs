//! Finding coordinators.

use crate::support::{Client, batch, config, soon, start};
use curtail_wire::{
    ErrorCode,
    cold::{
        StrBytes,
        messages::{FindCoordinatorRequest, find_coordinator_response::Coordinator},
    },
};

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

async fn find(client: &mut Client, key_type: i8, keys: &[&str]) -> Vec<Coordinator> {
    let request = FindCoordinatorRequest::default()
        .with_key_type(key_type)
        .with_coordinator_keys(keys.iter().map(|key| text(key)).collect());
    client.cold(4, &request).await.coordinators
}

#[tokio::test]
async fn every_broker_names_the_leader_of_the_keys_partition() {
    let cluster = start(config(3)).await;
    for (key_type, topic) in [(0, "__consumer_offsets"), (1, "__transaction_state")] {
        let mut client = Client::connect(&cluster, 1).await;
        let first = find(&mut client, key_type, &["hello"]).await;
        assert_eq!(first[0].error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE.0);
        soon(cluster.wait_until(|c| c.leader(topic, 3).is_some())).await;
        cluster.settled().await;
        for broker in 1..=3 {
            let mut client = Client::connect(&cluster, broker).await;
            let found = find(&mut client, key_type, &["hello", "polygenelubricants"]).await;
            // The partitions of four: 99162322 % 4 and 0.
            for (coordinator, partition) in found.iter().zip([2, 0]) {
                let (leader, _) = cluster.leader(topic, partition).expect("a leader");
                assert_eq!((coordinator.error_code, coordinator.node_id.0), (0, leader));
                let addr = cluster.broker(leader).expect("a broker").addr();
                assert_eq!(coordinator.port, i32::from(addr.port()));
            }
            let old = FindCoordinatorRequest::default().with_key(text("hello"));
            let old = client.cold(1, &old.with_key_type(key_type)).await;
            assert_eq!((old.error_code, old.node_id), (0, found[0].node_id));
        }
        assert_eq!(cluster.isr(topic, 0).map(|isr| isr.len()), Some(3));
        let (_, described) = client.metadata(topic).await;
        assert!(described.is_internal);
        let (leader, _) = cluster.leader(topic, 0).expect("a leader");
        let mut client = Client::connect(&cluster, leader).await;
        let written = client.produce(topic, 0, -1, batch(&["x"], None)).await;
        assert_eq!(written.error, ErrorCode::INVALID_TOPIC_EXCEPTION, "only coordinators write");
    }
    let mut client = Client::connect(&cluster, 1).await;
    let refused = find(&mut client, 2, &["share"]).await;
    assert_eq!(refused[0].error_code, ErrorCode::INVALID_REQUEST.0);
    cluster.shutdown().await;
}
