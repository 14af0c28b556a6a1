//! Wrong content of responses.

use curtail_cluster::{Fault, Requests};
use curtail_wire::{ErrorCode, api::ApiKey, records::batches};

use super::hits;
use crate::support::{Client, batch, fetch_partition, fetch_request, one_partition};

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
