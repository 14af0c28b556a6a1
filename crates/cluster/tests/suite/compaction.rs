//! Topics with `cleanup.policy=compact`: accepted records, removed records, and changes of the policy.

use std::time::Duration;

use bytes::Bytes;
use curtail_cluster::{Cluster, ClusterConfig};
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        DeleteRecordsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
        delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
        describe_configs_request::DescribeConfigsResource,
        incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
    },
    records::{BatchBuilder, Codec, Compression, ProducerStamp, RecordData, stamp},
};

use crate::support::{Client, config, group::topic, soon, start, text};

const TOPIC: i8 = 2;
const SET: i8 = 0;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Returns a batch of records with these keys.
fn keyed(keys: &[Option<&str>], codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new(Vec::new());
    for key in keys {
        let key = key.map(str::as_bytes);
        builder.append(&RecordData { key, value: Some(b"v"), headers: &[], timestamp: 1 });
    }
    let compression = Compression { codec, ..Compression::default() };
    let mut bytes = builder.seal(&compression, &mut Vec::new()).expect("it fits");
    stamp(&mut bytes, ProducerStamp::NONE);
    bytes.into()
}

/// Returns a batch of one record.
fn keyed_at(key: &str, value: &str, timestamp: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Vec::new());
    let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
    builder.append(&RecordData { key, value, headers: &[], timestamp });
    let mut bytes = builder.seal(&Compression::NONE, &mut Vec::new()).expect("it fits");
    stamp(&mut bytes, ProducerStamp::NONE);
    bytes.into()
}

async fn cluster_with(policy: &str) -> (Cluster, Client) {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 1, 1, &[("cleanup.policy", policy)]).unwrap();
    cluster.settled().await;
    let client = Client::connect(&cluster, 1).await;
    (cluster, client)
}

#[tokio::test]
async fn compacted_topic_refuses_records_without_key_and_names_them() {
    for policy in ["compact", "compact,delete"] {
        let (cluster, mut client) = cluster_with(policy).await;
        for codec in Codec::ALL {
            let batch = keyed(&[Some("k"), None, Some("l"), None], codec);
            let refused = client.produce("t", 0, -1, batch).await;
            assert_eq!(refused.error, ErrorCode::INVALID_RECORD, "{policy}, {codec}");
            let message =
                "Compacted topic cannot accept message without key in topic partition t-0";
            let records: Vec<_> = refused
                .record_errors
                .iter()
                .map(|e| (e.batch_index, e.message.as_deref()))
                .collect();
            assert_eq!(records, [(1, Some(message)), (3, Some(message))]);
            let expected = format!(
                "One or more records have been rejected due to 2 record errors in total, and only showing the first \
                 three errors at most: [RecordError(batchIndex=1, message='{message}'), RecordError(batchIndex=3, \
                 message='{message}')]"
            );
            assert_eq!(refused.error_message, Some(expected));
        }
        for codec in Codec::ALL {
            let taken = client.produce("t", 0, -1, keyed(&[Some("k"), Some("l")], codec)).await;
            assert_eq!(taken.error, ErrorCode::NONE, "{policy}, {codec}");
        }
        soon(cluster.shutdown()).await;
    }
}

#[tokio::test]
async fn the_brokers_policy_applies_to_topics_without_their_own() {
    let mut config = config(1);
    config.set("log.cleanup.policy", "compact").unwrap();
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.create_topic("own", 1, 1, &[("cleanup.policy", "delete")]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    for (name, produced, deleted) in [
        ("t", ErrorCode::INVALID_RECORD, ErrorCode::POLICY_VIOLATION),
        ("own", ErrorCode::NONE, ErrorCode::NONE),
    ] {
        let keyless = keyed(&[None], Codec::None);
        assert_eq!(client.produce(name, 0, -1, keyless).await.error, produced, "{name}");
        let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(0);
        let records =
            DeleteRecordsTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
        let request =
            DeleteRecordsRequest::default().with_topics(vec![records]).with_timeout_ms(1000);
        let response = client.cold(2, &request).await;
        let code = response.topics[0].partitions[0].error_code;
        assert_eq!(ErrorCode(code), deleted, "{name}");
    }
    soon(cluster.shutdown()).await;
}

/// Changes the policy of the topic and returns the error.
async fn alter(client: &mut Client, operation: i8, value: &str) -> (ErrorCode, String) {
    let setting = AlterableConfig::default()
        .with_name(text("cleanup.policy"))
        .with_config_operation(operation)
        .with_value(Some(text(value)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("t"))
        .with_configs(vec![setting]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let response = &client.cold(1, &request).await.responses[0];
    let message = response.error_message.as_ref().map(ToString::to_string);
    (ErrorCode(response.error_code), message.unwrap_or_default())
}

async fn policy(client: &mut Client) -> String {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("t"))
        .with_configuration_keys(Some(vec![text("cleanup.policy")]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = client.cold(4, &request).await;
    response.results[0].configs[0].value.as_ref().unwrap().to_string()
}

#[tokio::test]
async fn cleanup_policy_is_a_list_that_grows_and_shrinks() {
    let (cluster, mut client) = cluster_with("delete").await;
    let done = (ErrorCode::NONE, String::new());
    let steps = [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (SET, "compact, delete", "compact, delete"),
    ];
    for (operation, value, expected) in steps {
        assert_eq!(alter(&mut client, operation, value).await, done, "{operation} {value}");
        assert_eq!(policy(&mut client).await, expected);
    }
    let (code, message) = alter(&mut client, APPEND, "squeeze").await;
    assert_eq!(code, ErrorCode::INVALID_CONFIG);
    let expected = "Invalid value squeeze for configuration cleanup.policy: String must be one of: compact, delete";
    assert_eq!(message, expected);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn policy_appended_to_a_topic_applies_to_the_next_batch() {
    let (cluster, mut client) = cluster_with("delete").await;
    let keyless = || keyed(&[None], Codec::None);
    assert_eq!(client.produce("t", 0, -1, keyless()).await.error, ErrorCode::NONE);
    alter(&mut client, APPEND, "compact").await;
    soon(async { while client.produce("t", 0, -1, keyless()).await.error.is_none() {} }).await;
    assert_eq!(client.produce("t", 0, -1, keyless()).await.error, ErrorCode::INVALID_RECORD);
    alter(&mut client, SUBTRACT, "compact").await;
    soon(async { while client.produce("t", 0, -1, keyless()).await.error.is_error() {} }).await;
    soon(cluster.shutdown()).await;
}

/// Reads the topic from an offset to the high watermark. Returns fewer records while the broker is not ready.
async fn read_from(client: &mut Client, mut from: i64) -> Vec<(i64, String)> {
    let mut all = Vec::new();
    loop {
        let (error, high_watermark, mut found) = client.fetch("t", 0, from).await;
        found.retain(|(offset, _)| *offset >= from);
        let Some((last, _)) = found.last().filter(|_| error.is_none()) else { return all };
        from = last + 1;
        all.extend(found);
        if from >= high_watermark {
            return all;
        }
    }
}

/// Waits until the broker serves these records of the topic, and nothing else, from every offset.
async fn must_serve(cluster: &Cluster, broker: i32, expected: &[(i64, String)]) {
    let mut client = Client::connect(cluster, broker).await;
    soon(async { while read_from(&mut client, 0).await != expected {} }).await;
    for from in 0..=expected.last().expect("a record").0 {
        let rest: Vec<_> = expected.iter().filter(|(offset, _)| *offset >= from).cloned().collect();
        assert_eq!(read_from(&mut client, from).await, rest, "from {from} on broker {broker}");
    }
}

#[tokio::test]
async fn cleaners_keep_the_newest_record_of_each_key_on_all_replicas() {
    let backoff = Duration::from_millis(50);
    let cluster = start(ClusterConfig { log_cleaner_backoff: backoff, ..config(3) }).await;
    let settings = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.ms", "100"),
    ];
    cluster.create_topic("t", 1, 3, &settings).unwrap();
    cluster.settled().await;
    let (leader, _) = cluster.leader("t", 0).unwrap();
    let mut client = Client::connect(&cluster, leader).await;
    for n in 0..30 {
        // Each record is late enough to begin a segment.
        let batch = keyed_at(&format!("k{}", n % 3), &format!("v{n}"), 1_000_000 + 200 * n);
        assert_eq!(client.produce("t", 0, -1, batch).await.error, ErrorCode::NONE);
    }
    // The newest records of the closed segments, and the active one.
    let expected: Vec<_> = (26..30).map(|n| (n, format!("v{n}"))).collect();
    must_serve(&cluster, leader, &expected).await;
    for broker in 1..=3 {
        soon(cluster.wait_until(|c| c.isr("t", 0).is_some_and(|isr| isr.len() == 3))).await;
        if cluster.leader("t", 0).unwrap().0 != broker {
            cluster.move_leader("t", 0, broker).unwrap();
            cluster.settled().await;
        }
        must_serve(&cluster, broker, &expected).await;
        cluster.kill(broker);
        soon(cluster.wait_until(|c| c.leader("t", 0).is_some_and(|(id, _)| id != broker))).await;
        soon(cluster.restart(broker)).await.unwrap();
    }
    soon(cluster.shutdown()).await;
}
