//! One broker: produce, fetch, list offsets, topics, versions, bad input.

use crate::support::{self, Client, batch, config, fetch_request, soon, start};
use curtail_cluster::{ClusterConfig, Listeners, SecurityProtocol, Storage};
use curtail_wire::{
    ErrorCode, Uuid,
    api::{ApiKey, ApiVersions},
    cold::{
        StrBytes,
        messages::{
            CreateTopicsRequest, DeleteTopicsRequest, DescribeClusterRequest,
            DescribeConfigsRequest, TopicName, create_topics_request::CreatableTopic,
            delete_topics_request::DeleteTopicState,
            describe_configs_request::DescribeConfigsResource,
        },
    },
};

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

#[tokio::test]
async fn produced_records_can_be_fetched() {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 2, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;

    let first = client.produce("t", 1, -1, batch(&["a", "b"], None)).await;
    assert_eq!((first.error, first.base_offset), (ErrorCode::NONE, 0));
    let second = client.produce("t", 1, 1, batch(&["c"], None)).await;
    assert_eq!((second.error, second.base_offset), (ErrorCode::NONE, 2));

    let (error, high_watermark, values) = client.fetch("t", 1, 0).await;
    assert_eq!((error, high_watermark), (ErrorCode::NONE, 3));
    assert_eq!(values, [(0, "a".into()), (1, "b".into()), (2, "c".into())]);

    assert_eq!(client.list_offset("t", 1, -2).await, (ErrorCode::NONE, 0, -1));
    assert_eq!(client.list_offset("t", 1, -1).await, (ErrorCode::NONE, 3, -1));
    assert_eq!(client.list_offset("t", 1, 5).await, (ErrorCode::NONE, 0, 1_700_000_000_000));
    assert_eq!(client.list_offset("t", 1, i64::MAX).await, (ErrorCode::NONE, -1, -1));
    assert_eq!(client.fetch("t", 1, 4).await.0, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(client.fetch("t", 7, 0).await.0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_long_poll_ends_with_the_append() {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut consumer = Client::connect(&cluster, 1).await;
    let mut producer = Client::connect(&cluster, 1).await;
    let mut request = fetch_request("t", 0, 0);
    // Longer than the test's timeout: only the append can end the poll.
    request.max_wait_ms = 600_000;
    consumer.send_with(ApiKey::FETCH, 12, |w| request.encode(12, w)).await;
    producer.produce("t", 0, 1, batch(&["now"], None)).await;
    let body = consumer.body(ApiKey::FETCH, 12).await;
    let response = curtail_wire::fetch::FetchResponse::decode(12, &body).unwrap();
    let records = &response.topics[0].partitions[0].records;
    assert_eq!(support::values(records), [(0, "now".into())]);
}

#[tokio::test]
async fn a_metadata_request_creates_a_missing_topic() {
    let cluster = start(ClusterConfig { num_partitions: 3, ..config(1) }).await;
    let mut client = Client::connect(&cluster, 1).await;
    let (_, topic) = client.metadata("new").await;
    assert_eq!(topic.error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    cluster.settled().await;
    let (response, topic) = client.metadata("new").await;
    assert_eq!((topic.error, topic.partitions.len()), (ErrorCode::NONE, 3));
    assert_eq!(topic.partitions[0].leader_id, 1);
    assert!(!topic.topic_id.is_zero());
    assert_eq!(response.brokers.len(), 1);
    // By id, with the empty name that Java's clients send.
    for name in [None, Some("")] {
        let (_, by_id) = client.metadata_of(topic.topic_id, name).await;
        assert_eq!(by_id, topic);
        let (_, gone) = client.metadata_of(Uuid([1; 16]), name).await;
        assert_eq!((gone.error, gone.name), (ErrorCode::UNKNOWN_TOPIC_ID, None));
    }
    let (_, topic) = client.metadata("no/such name").await;
    assert_eq!(topic.error, ErrorCode::INVALID_TOPIC_EXCEPTION);
}

#[tokio::test]
async fn topics_are_created_described_and_deleted() {
    let cluster = start(config(1)).await;
    let mut client = Client::connect(&cluster, 1).await;
    let topic = |name: &str, partitions, factor| {
        CreatableTopic::default()
            .with_name(TopicName(text(name)))
            .with_num_partitions(partitions)
            .with_replication_factor(factor)
    };
    let request = CreateTopicsRequest::default().with_timeout_ms(1000).with_topics(vec![
        topic("good", 2, 1),
        topic("none", 0, 1),
        topic("wide", 1, 2),
        topic("bad name", 1, 1),
        topic("zero", 1, 0),
    ]);
    let response = client.cold(7, &request).await;
    let codes: Vec<i16> = response.topics.iter().map(|t| t.error_code).collect();
    let expected = [
        ErrorCode::NONE,
        ErrorCode::INVALID_PARTITIONS,
        ErrorCode::INVALID_REPLICATION_FACTOR,
        ErrorCode::INVALID_TOPIC_EXCEPTION,
        ErrorCode::INVALID_REPLICATION_FACTOR,
    ];
    assert_eq!(codes, expected.map(|code| code.0));
    assert_eq!(response.topics[0].num_partitions, 2);
    let again = client.cold(5, &request).await;
    assert_eq!(again.topics[0].error_code, ErrorCode::TOPIC_ALREADY_EXISTS.0);

    cluster.settled().await;
    let resource = |kind, name: &str| {
        DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configuration_keys(Some(vec![text("min.insync.replicas")]))
    };
    let request = DescribeConfigsRequest::default().with_resources(vec![
        resource(2, "good"),
        resource(4, "1"),
        resource(2, "none"),
    ]);
    let response = client.cold(4, &request).await;
    for result in &response.results[..2] {
        assert_eq!(result.configs.len(), 1);
        assert_eq!(result.configs[0].value, Some(text("1")));
    }
    assert_eq!(response.results[2].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0);

    let request = DescribeClusterRequest::default().with_endpoint_type(1);
    assert_eq!(client.cold(1, &request).await.brokers.len(), 1);

    let state = DeleteTopicState::default().with_name(Some(TopicName(text("good"))));
    let request = DeleteTopicsRequest::default().with_topics(vec![state]);
    assert_eq!(client.cold(6, &request).await.responses[0].error_code, 0);
    cluster.settled().await;
    let refused = client.produce("good", 0, 1, batch(&["x"], None)).await;
    assert_eq!(refused.error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[tokio::test]
async fn a_sequence_is_appended_once_and_in_order() {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let id = client.producer_id().await;
    assert_ne!(id, client.producer_id().await);
    let first = batch(&["a", "b"], Some((id, 0, 0)));
    assert_eq!(client.produce("t", 0, -1, first.clone()).await.base_offset, 0);
    let again = client.produce("t", 0, -1, first).await;
    assert_eq!((again.error, again.base_offset), (ErrorCode::NONE, 0));
    let gap = client.produce("t", 0, -1, batch(&["d"], Some((id, 0, 3)))).await;
    assert_eq!(gap.error, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    let next = client.produce("t", 0, -1, batch(&["c"], Some((id, 0, 2)))).await;
    assert_eq!((next.error, next.base_offset), (ErrorCode::NONE, 2));
    assert_eq!(client.fetch_all("t", 0, 3).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn bad_batches_are_refused() {
    let cluster = start(ClusterConfig { message_max_bytes: 200, ..config(1) }).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let mut damaged = batch(&["value"], None).to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let refused = client.produce("t", 0, 1, damaged.into()).await;
    assert_eq!(refused.error, ErrorCode::CORRUPT_MESSAGE);
    let refused = client.produce("t", 0, 1, batch(&["x".repeat(300).as_str()], None)).await;
    assert_eq!(refused.error, ErrorCode::MESSAGE_TOO_LARGE);
    let refused = client.produce("t", 0, 2, batch(&["x"], None)).await;
    assert_eq!(refused.error, ErrorCode::INVALID_REQUIRED_ACKS);
    assert_eq!(client.list_offset("t", 0, -1).await.1, 0);
}

#[tokio::test]
async fn versions_are_negotiated() {
    let cluster = start(config(1)).await;
    let mut client = Client::connect(&cluster, 1).await;
    client.send_with(ApiKey::API_VERSIONS, 99, |_| {}).await;
    let body = client.body(ApiKey::API_VERSIONS, 0).await;
    let answer = ApiVersions::decode(99, &body).unwrap();
    assert_eq!(answer.error, ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(answer.range(ApiKey::API_VERSIONS), Some(0..=4));

    let request = curtail_wire::cold::messages::ApiVersionsRequest::default()
        .with_client_software_name(text("test"))
        .with_client_software_version(text("1.0"));
    let answer = client.cold(3, &request).await;
    assert_eq!(answer.error_code, 0);
    let produce = answer.api_keys.iter().find(|api| api.api_key == 0).unwrap();
    assert_eq!((produce.min_version, produce.max_version), (0, 13));

    // This version is advertised only for librdkafka.
    client.send_with(ApiKey::PRODUCE, 2, |_| {}).await;
    assert_eq!(client.receive().await, None);
}

#[tokio::test]
async fn a_connection_with_malformed_requests_is_closed() {
    let cluster = start(config(1)).await;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x80\0\0\0", b"\0\0\0\x02ab"] {
        let mut client = Client::connect(&cluster, 1).await;
        client.send(bytes).await;
        assert_eq!(client.receive().await, None);
    }
    // A produce request that ends within its first field.
    let mut client = Client::connect(&cluster, 1).await;
    client.send_with(ApiKey::PRODUCE, 12, |w| w.i8(5)).await;
    assert_eq!(client.receive().await, None);
}

#[tokio::test]
async fn data_and_topics_survive_a_restart_of_the_whole_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let config = || ClusterConfig { storage: Storage::Dir(dir.path().into()), ..config(2) };
    let cluster = start(config()).await;
    cluster.create_topic("t", 2, 2, &[("min.insync.replicas", "2")]).unwrap();
    cluster.settled().await;
    let (leader, epoch) = cluster.leader("t", 0).unwrap();
    let mut client = Client::connect(&cluster, leader).await;
    let id = client.metadata("t").await.1.topic_id;
    assert_eq!(client.produce("t", 0, -1, batch(&["kept"], None)).await.error, ErrorCode::NONE);
    let producer = client.producer_id().await;
    soon(cluster.shutdown()).await;

    let cluster = start(config()).await;
    let (leader, later) = cluster.leader("t", 0).unwrap();
    assert!(later > epoch);
    let mut client = Client::connect(&cluster, leader).await;
    assert_eq!(client.metadata("t").await.1.topic_id, id);
    assert_eq!(client.fetch_all("t", 0, 1).await, ["kept"]);
    assert!(client.producer_id().await > producer);
    let after = client.produce("t", 0, -1, batch(&["more"], None)).await;
    assert_eq!((after.error, after.base_offset), (ErrorCode::NONE, 1));
}

#[tokio::test]
async fn an_error_names_the_port_that_is_in_use() {
    let cluster = start(config(1)).await;
    let addr = cluster.broker(1).unwrap().addr();
    let listeners = Listeners::new(SecurityProtocol::Plaintext, addr);
    let config = ClusterConfig { listeners, ..config(1) };
    let error = curtail_cluster::Cluster::start(config, curtail_net::Env::real()).await;
    let error = error.expect_err("the port is taken").to_string();
    assert!(error.contains(&addr.to_string()), "{error}");
}

#[tokio::test]
async fn acks_0_has_no_response_and_an_error_closes_the_connection() {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    client.send_produce("t", 0, 0, batch(&["a"], None)).await;
    // The next response on the connection belongs to the next request.
    assert_eq!(client.fetch_all("t", 0, 1).await, ["a"]);
    client.send_produce("t", 5, 0, batch(&["b"], None)).await;
    assert_eq!(client.receive().await, None);
}
