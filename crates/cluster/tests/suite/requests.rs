//! Requests as bytes: what Apache Kafka reads, the cluster reads as well.

use bytes::Bytes;
use curtail_cluster::Cluster;
use curtail_wire::{ErrorCode, api::ApiKey, header::response_body, metadata::MetadataResponse};

use crate::support::{Client, config, soon, start};

async fn one_broker() -> Cluster {
    start(config(1)).await
}

/// Sends a request without its length, given in pieces; the response frame, `None` when the connection closes.
async fn exchange(client: &mut Client, pieces: &[&[u8]]) -> Option<Bytes> {
    let request = pieces.concat();
    client.send(&[&(request.len() as u32).to_be_bytes(), &request[..]].concat()).await;
    client.receive().await
}

/// librdkafka up to 2.12 ends its Metadata request for all topics with three bytes too many.
#[tokio::test]
async fn metadata_request_of_librdkafka_with_trailing_bytes_is_answered() {
    let cluster = one_broker().await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let header = [&[0, 3, 0, 13, 0, 0, 0, 3, 0, 7], &b"rdkafka"[..], &[0]].concat();
    for trailing in [&[][..], &[1, 0, 0]] {
        let answer = exchange(&mut client, &[&header, &[0, 0, 0, 0], trailing]).await;
        let frame = answer.expect("the connection stays open");
        let body = response_body(&frame, ApiKey::METADATA, 13).unwrap();
        let topics = MetadataResponse::decode(13, &body).unwrap().topics;
        assert_eq!(topics.len(), 1, "{trailing:?}");
        assert_eq!(topics[0].error, ErrorCode::NONE);
    }
    soon(cluster.shutdown()).await;
}
