//! Requests as raw bytes: the cluster accepts every request that Apache Kafka accepts.

use bytes::Bytes;
use curtail_cluster::Cluster;
use curtail_wire::{
    ErrorCode, Uuid,
    api::ApiKey,
    cold::messages::{
        CreateDelegationTokenRequest, CreateTopicsRequest, DeleteGroupsRequest,
        DeleteTopicsRequest, DescribeDelegationTokenRequest, ExpireDelegationTokenRequest, GroupId,
        ListOffsetsRequest, RenewDelegationTokenRequest, TopicName,
        create_topics_request::CreatableTopic,
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
    },
    header::response_body,
    metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse},
    produce::{ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic},
    records::{BatchBuilder, Codec, Compression, ProducerStamp, RecordData, stamp},
};

use crate::support::{Client, config, one_partition, soon, start, text};

async fn one_broker() -> Cluster {
    start(config(1)).await
}

/// Sends a request without its length prefix, given in pieces. Returns the response frame; `None`
/// if the connection closes.
async fn exchange(client: &mut Client, pieces: &[&[u8]]) -> Option<Bytes> {
    let request = pieces.concat();
    client.send(&[&(request.len() as u32).to_be_bytes(), &request[..]].concat()).await;
    client.receive().await
}

/// librdkafka up to 2.12 ends its Metadata request for all topics with three additional bytes.
#[tokio::test]
async fn metadata_request_of_librdkafka_with_trailing_bytes_gets_a_response() {
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

#[tokio::test]
async fn resources_named_twice_get_one_result() {
    let cluster = one_broker().await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;

    let topic = || MetadataRequestTopic { name: Some("t".to_owned()), ..Default::default() };
    let request =
        MetadataRequest { topics: Some(vec![topic(), topic()]), ..MetadataRequest::default() };
    client.send_with(ApiKey::METADATA, 12, |w| request.encode(12, w)).await;
    let body = client.body(ApiKey::METADATA, 12).await;
    assert_eq!(MetadataResponse::decode(12, &body).unwrap().topics.len(), 1);

    let twice = ErrorCode::INVALID_REQUEST.0;
    let new = || CreatableTopic::default().with_name(TopicName(text("new"))).with_num_partitions(1);
    let request = CreateTopicsRequest::default().with_topics(vec![new(), new()]);
    let created = client.cold(5, &request).await.topics;
    assert_eq!(created.iter().map(|topic| topic.error_code).collect::<Vec<_>>(), [twice]);

    let name = || TopicName(text("t"));
    let request = DeleteTopicsRequest::default().with_topic_names(vec![name(), name()]);
    let deleted = client.cold(5, &request).await.responses;
    assert_eq!(deleted.iter().map(|topic| topic.error_code).collect::<Vec<_>>(), [twice]);
    assert_eq!(client.metadata("t").await.1.error, ErrorCode::NONE, "it is still there");

    let group = || GroupId(text("g"));
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group(), group()]);
    assert_eq!(client.cold(2, &request).await.results.len(), 1);
    soon(cluster.shutdown()).await;
}

/// Apache Kafka accepts zstd in Produce from version 7 on (KIP-110).
#[tokio::test]
async fn zstd_batch_in_an_old_produce_request_is_refused() {
    let cluster = one_broker().await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let mut builder = BatchBuilder::new(Vec::new());
    builder.append(&RecordData { key: None, value: Some(b"v"), headers: &[], timestamp: 1 });
    let zstd = Compression { codec: Codec::Zstd, ..Compression::default() };
    let mut records = builder.seal(&zstd, &mut Vec::new()).unwrap();
    stamp(&mut records, ProducerStamp::NONE);
    let partition = ProducePartition { index: 0, records: Some(records.into()) };
    let topic =
        ProduceTopic { name: "t".to_owned(), topic_id: Uuid::ZERO, partitions: vec![partition] };
    let request =
        ProduceRequest { transactional_id: None, acks: -1, timeout_ms: 1000, topics: vec![topic] };
    for (version, code) in [(6, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode::NONE)] {
        client.send_with(ApiKey::PRODUCE, version, |w| request.encode(version, w)).await;
        let body = client.body(ApiKey::PRODUCE, version).await;
        let response = ProduceResponse::decode(version, &body).unwrap();
        assert_eq!(response.topics[0].partitions[0].error, code, "version {version}");
    }
    soon(cluster.shutdown()).await;
}

/// Version 11 of ListOffsets permits one more special timestamp (KIP-1023). Nothing is tiered here.
#[tokio::test]
async fn offsets_of_tiered_storage_do_not_exist() {
    let (cluster, mut client) = one_partition().await;
    let refused = ErrorCode::UNSUPPORTED_VERSION.0;
    for (version, timestamp, expected) in [
        (11, -2, (0, 0)),
        (11, -5, (0, -1)),
        (11, -6, (0, -1)),
        (10, -6, (refused, -1)),
        (11, -7, (refused, -1)),
    ] {
        let partition = ListOffsetsPartition::default().with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default()
            .with_name(TopicName(text("t")))
            .with_partitions(vec![partition]);
        let request =
            ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
        let found = client.cold(version, &request).await.topics.remove(0).partitions.remove(0);
        let found = (found.error_code, found.offset);
        assert_eq!(found, expected, "version {version}, timestamp {timestamp}");
    }
    soon(cluster.shutdown()).await;
}

/// As in Apache Kafka without `delegation.token.secret.key`.
#[tokio::test]
async fn delegation_tokens_are_refused() {
    let (cluster, mut client) = one_partition().await;
    let expected = ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.0;
    for version in 1..=3 {
        let create = CreateDelegationTokenRequest::default();
        assert_eq!(client.cold(version, &create).await.error_code, expected);
        let describe = DescribeDelegationTokenRequest::default();
        assert_eq!(client.cold(version, &describe).await.error_code, expected);
    }
    for version in 1..=2 {
        let renew = RenewDelegationTokenRequest::default();
        assert_eq!(client.cold(version, &renew).await.error_code, expected);
        let expire = ExpireDelegationTokenRequest::default();
        assert_eq!(client.cold(version, &expire).await.error_code, expected);
    }
    soon(cluster.shutdown()).await;
}
