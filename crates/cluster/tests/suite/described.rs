//! Responses about topics, settings and groups have the fields of Apache Kafka 4.3.

use curtail_wire::ErrorCode;
use curtail_wire::cold::messages::{
    AlterConfigsRequest, CreateTopicsRequest, DescribeConfigsRequest, DescribeGroupsRequest,
    ElectLeadersRequest, IncrementalAlterConfigsRequest, OffsetCommitRequest,
    alter_configs_request::AlterConfigsResource,
    create_topics_request::{CreatableTopic, CreatableTopicConfig},
    describe_configs_request::DescribeConfigsResource,
    describe_configs_response::DescribeConfigsResourceResult,
    elect_leaders_request::TopicPartitions,
    incremental_alter_configs_request::{
        AlterConfigsResource as IncrementalResource, AlterableConfig,
    },
    offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
};

use crate::support::{
    Client, batch, config,
    group::{group, ready, topic},
    one_partition, soon, start, text,
};

const TOPIC: i8 = 2;
pub(crate) const BROKER: i8 = 4;
/// The value if operations were not requested, or the group does not exist.
const NO_OPERATIONS: i32 = i32::MIN;
/// Read, delete, describe, describe and alter settings (KIP-848).
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

fn set((kind, of): (i8, &str), name: &str, value: &str) -> IncrementalAlterConfigsRequest {
    let config = AlterableConfig::default().with_name(text(name)).with_value(Some(text(value)));
    let resource = IncrementalResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(of))
        .with_configs(vec![config]);
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

pub(crate) async fn describe(
    client: &mut Client,
    (kind, of): (i8, &str),
    synonyms: bool,
) -> Vec<DescribeConfigsResourceResult> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(of))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(synonyms);
    client.cold(4, &request).await.results.remove(0).configs
}

/// Returns the names, values and sources of a setting's synonyms.
fn synonyms(config: &DescribeConfigsResourceResult) -> Vec<(String, Option<String>, i8)> {
    let synonyms = config.synonyms.iter().map(|synonym| {
        let value = synonym.value.as_ref().map(ToString::to_string);
        (synonym.name.to_string(), value, synonym.source)
    });
    synonyms.collect()
}

/// A synonym: the setting, its value, and the source of the value.
fn level(name: &str, value: &str, source: i8) -> (String, Option<String>, i8) {
    (name.to_owned(), Some(value.to_owned()), source)
}

fn named<'a>(
    configs: &'a [DescribeConfigsResourceResult],
    name: &str,
) -> &'a DescribeConfigsResourceResult {
    configs.iter().find(|config| &*config.name == name).unwrap()
}

#[tokio::test]
async fn successful_responses_have_null_messages() {
    let (cluster, mut client) = one_partition().await;

    let new = CreatableTopic::default()
        .with_name(topic("new"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![new]);
    for version in [4, 7] {
        let request = request.clone().with_validate_only(version < 7);
        let created = client.cold(version, &request).await.topics.remove(0);
        assert_eq!((created.error_code, created.error_message), (0, None), "version {version}");
    }

    let altered =
        client.cold(1, &set((TOPIC, "t"), "retention.ms", "77777")).await.responses.remove(0);
    assert_eq!((altered.error_code, altered.error_message), (0, None));
    let resource =
        AlterConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text("t"));
    let request = AlterConfigsRequest::default().with_resources(vec![resource]);
    let altered = client.cold(2, &request).await.responses.remove(0);
    assert_eq!((altered.error_code, altered.error_message), (0, None));

    for config in describe(&mut client, (TOPIC, "t"), false).await {
        assert_eq!(config.documentation, None, "{}", config.name);
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn an_election_that_is_not_needed_is_refused_in_kafkas_words() {
    let (cluster, mut client) = one_partition().await;
    let partitions = TopicPartitions::default().with_topic(topic("t")).with_partitions(vec![0]);
    let request = ElectLeadersRequest::default().with_topic_partitions(Some(vec![partitions]));
    let elected = client.cold(2, &request).await.replica_election_results.remove(0);
    let result = &elected.partition_result[0];
    let message = result.error_message.as_deref();
    assert_eq!(result.error_code, 84);
    assert_eq!(message, Some("Leader election not needed for topic partition."));
    soon(cluster.shutdown()).await;
}

/// Name, type, and the brokers' setting that applies to a topic without a value.
const SETTINGS: [(&str, i8, Option<&str>); 33] = [
    ("cleanup.policy", 7, Some("log.cleanup.policy")),
    ("compression.gzip.level", 3, Some("compression.gzip.level")),
    ("compression.lz4.level", 3, Some("compression.lz4.level")),
    ("compression.type", 2, Some("compression.type")),
    ("compression.zstd.level", 3, Some("compression.zstd.level")),
    ("delete.retention.ms", 5, Some("log.cleaner.delete.retention.ms")),
    ("file.delete.delay.ms", 5, Some("log.segment.delete.delay.ms")),
    ("flush.messages", 5, Some("log.flush.interval.messages")),
    ("flush.ms", 5, None),
    ("follower.replication.throttled.replicas", 7, None),
    ("index.interval.bytes", 3, Some("log.index.interval.bytes")),
    ("leader.replication.throttled.replicas", 7, None),
    ("local.retention.bytes", 5, Some("log.local.retention.bytes")),
    ("local.retention.ms", 5, Some("log.local.retention.ms")),
    ("max.compaction.lag.ms", 5, Some("log.cleaner.max.compaction.lag.ms")),
    ("max.message.bytes", 3, Some("message.max.bytes")),
    ("message.timestamp.after.max.ms", 5, Some("log.message.timestamp.after.max.ms")),
    ("message.timestamp.before.max.ms", 5, Some("log.message.timestamp.before.max.ms")),
    ("message.timestamp.type", 2, Some("log.message.timestamp.type")),
    ("min.cleanable.dirty.ratio", 6, Some("log.cleaner.min.cleanable.ratio")),
    ("min.compaction.lag.ms", 5, Some("log.cleaner.min.compaction.lag.ms")),
    ("min.insync.replicas", 3, Some("min.insync.replicas")),
    ("preallocate", 1, Some("log.preallocate")),
    ("remote.log.copy.disable", 1, None),
    ("remote.log.delete.on.disable", 1, None),
    ("remote.storage.enable", 1, None),
    ("retention.bytes", 5, Some("log.retention.bytes")),
    ("retention.ms", 5, None),
    ("segment.bytes", 3, Some("log.segment.bytes")),
    ("segment.index.bytes", 3, Some("log.index.size.max.bytes")),
    ("segment.jitter.ms", 5, None),
    ("segment.ms", 5, None),
    ("unclean.leader.election.enable", 1, Some("unclean.leader.election.enable")),
];

#[tokio::test]
async fn topic_settings_have_kafkas_types_and_synonyms() {
    let (cluster, mut client) = one_partition().await;
    assert_eq!(
        client.cold(1, &set((TOPIC, "t"), "retention.ms", "77777")).await.responses[0].error_code,
        0
    );
    let configs = describe(&mut client, (TOPIC, "t"), true).await;
    for ((name, kind, broker), config) in SETTINGS.iter().zip(&configs) {
        let value = config.value.as_ref().map(ToString::to_string);
        let own = (*name == "retention.ms").then(|| ((*name).to_owned(), value.clone(), 1));
        let default = broker.map(|broker| (broker.to_owned(), value.clone(), 5));
        let expected: Vec<_> = own.into_iter().chain(default).collect();
        assert_eq!((config.name.as_str(), config.config_type), (*name, *kind));
        assert_eq!(synonyms(config), expected);
    }
    assert_eq!(configs.len(), SETTINGS.len());
    assert!(
        describe(&mut client, (TOPIC, "t"), false)
            .await
            .iter()
            .all(|config| config.synonyms.is_empty())
    );
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn retention_of_the_brokers_applies_to_topics_without_their_own() {
    let mut config = config(1);
    config.set("log.retention.hours", "2").unwrap();
    config.set("log.retention.bytes", "1000").unwrap();
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    let mut client = Client::connect(&cluster, 1).await;
    let shown = |configs: &[DescribeConfigsResourceResult], name: &str| {
        let found = named(configs, name);
        (found.value.as_ref().unwrap().to_string(), found.config_source, synonyms(found))
    };
    let configs = describe(&mut client, (TOPIC, "t"), true).await;
    assert_eq!(shown(&configs, "retention.ms"), ("7200000".to_owned(), 5, Vec::new()));
    let bytes =
        vec![level("log.retention.bytes", "1000", 4), level("log.retention.bytes", "-1", 5)];
    assert_eq!(shown(&configs, "retention.bytes"), ("1000".to_owned(), 4, bytes));
    let altered = client.cold(1, &set((BROKER, ""), "log.retention.ms", "5000")).await;
    assert_eq!(altered.responses[0].error_code, 0);
    let levels = vec![
        level("log.retention.ms", "5000", 3),
        level("log.retention.hours", "2", 4),
        level("log.retention.hours", "168", 5),
    ];
    soon(async {
        loop {
            let configs = describe(&mut client, (TOPIC, "t"), true).await;
            let shown = shown(&configs, "retention.ms");
            if shown.1 != 5 {
                break assert_eq!(shown, ("5000".to_owned(), 3, levels.clone()));
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let configs = describe(&mut client, (BROKER, "1"), true).await;
    assert_eq!(shown(&configs, "log.retention.ms").2, levels);
    assert_eq!(shown(&configs, "log.retention.hours").2, levels[1..]);
    let minutes = named(&configs, "log.retention.minutes");
    // INT.
    assert_eq!((minutes.config_type, synonyms(minutes)), (3, Vec::new()));
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn settings_of_the_brokers_apply_to_topics_without_their_own() {
    let mut config = config(1);
    config.set("log.cleanup.policy", "compact").unwrap();
    config.set("log.roll.hours", "24").unwrap();
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    let mut client = Client::connect(&cluster, 1).await;
    let shown = async |client: &mut Client, name: &str| {
        let configs = describe(client, (TOPIC, "t"), true).await;
        let found = named(&configs, name);
        (found.value.as_ref().unwrap().to_string(), synonyms(found))
    };
    let policy = "log.cleanup.policy";
    let levels = vec![level(policy, "compact", 4), level(policy, "delete", 5)];
    assert_eq!(shown(&mut client, "cleanup.policy").await, ("compact".to_owned(), levels));
    assert_eq!(shown(&mut client, "segment.ms").await, ("86400000".to_owned(), Vec::new()));
    let altered = client.cold(1, &set((BROKER, ""), "log.roll.ms", "5000")).await;
    assert_eq!(altered.responses[0].error_code, 0);
    let levels = vec![
        level("log.roll.ms", "5000", 3),
        level("log.roll.hours", "24", 4),
        level("log.roll.hours", "168", 5),
    ];
    soon(async {
        while shown(&mut client, "segment.ms").await != ("5000".to_owned(), levels.clone()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn settings_of_topics_have_kafkas_bounds() {
    let (cluster, mut client) = one_partition().await;
    // Setting, value, and whether the brokers accept it.
    for (name, value, is_valid) in [
        ("compression.gzip.level", "-1", true),
        ("compression.gzip.level", "9", true),
        ("compression.gzip.level", "0", false),
        ("compression.lz4.level", "18", false),
        ("compression.type", "lz4", true),
        ("compression.type", "uncompressed", true),
        ("compression.type", "none", false),
        ("compression.zstd.level", "-131072", true),
        ("compression.zstd.level", "23", false),
        ("file.delete.delay.ms", "-1", false),
        ("flush.ms", "1000", true),
        ("leader.replication.throttled.replicas", "*", true),
        ("leader.replication.throttled.replicas", "0:1,1:2", true),
        ("follower.replication.throttled.replicas", "", true),
        ("follower.replication.throttled.replicas", "*,0:1", false),
        ("follower.replication.throttled.replicas", "0", false),
        ("local.retention.ms", "-2", true),
        ("local.retention.ms", "-3", false),
        ("preallocate", "yes", false),
        ("preallocate", "TRUE", true),
        ("remote.storage.enable", "True", false),
        ("leader.replication.throttled.replicas", "+1:2", false),
        ("leader.replication.throttled.replicas", "99999999999:1", true),
        ("remote.storage.enable", "false", true),
        // As by brokers without `remote.log.storage.system.enable`.
        ("remote.storage.enable", "true", false),
        ("segment.index.bytes", "3", false),
        ("segment.jitter.ms", "10", true),
        ("no.such.setting", "1", false),
    ] {
        let altered = client.cold(1, &set((TOPIC, "t"), name, value)).await.responses.remove(0);
        let expected = if is_valid { 0 } else { ErrorCode::INVALID_CONFIG.0 };
        assert_eq!(altered.error_code, expected, "{name}={value}: {:?}", altered.error_message);
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn records_older_than_the_topic_takes_are_refused() {
    let (cluster, mut client) = one_partition().await;
    let before = "message.timestamp.before.max.ms";
    let produced = async |client: &mut Client| {
        // Its timestamp is from 2023.
        client.produce("t", 0, -1, batch(&["old"], None)).await.error
    };
    assert_eq!(produced(&mut client).await, ErrorCode::NONE);
    assert_eq!(
        client.cold(1, &set((TOPIC, "t"), before, "60000")).await.responses[0].error_code,
        0
    );
    soon(async {
        while produced(&mut client).await != ErrorCode::INVALID_TIMESTAMP {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn synonyms_name_every_level_that_sets_a_value() {
    let mut config = config(1);
    config.set("message.max.bytes", "1000").unwrap();
    config.set("log.flush.interval.messages", "1").unwrap();
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let name = "message.max.bytes";
    let levels = [
        (TOPIC, "t", "max.message.bytes", "4000"),
        (BROKER, "1", name, "3000"),
        (BROKER, "", name, "2000"),
    ];
    for (kind, of, name, value) in levels {
        let altered = client.cold(1, &set((kind, of), name, value)).await;
        assert_eq!(altered.responses[0].error_code, 0, "{of}");
    }
    let expected = [
        level("max.message.bytes", "4000", 1),
        level(name, "3000", 2),
        level(name, "2000", 3),
        level(name, "1000", 4),
        level(name, "1048588", 5),
    ];
    for (of, described, levels) in [
        ((TOPIC, "t"), "max.message.bytes", &expected[..]),
        ((BROKER, "1"), name, &expected[1..]),
        ((BROKER, ""), name, &expected[2..3]),
    ] {
        let configs = describe(&mut client, of, true).await;
        let config = named(&configs, described);
        assert_eq!(config.value.as_deref(), levels[0].1.as_deref(), "{of:?}");
        assert_eq!(synonyms(config), levels, "{of:?}");
    }
    let configs = describe(&mut client, (TOPIC, "t"), true).await;
    let flush = named(&configs, "flush.messages");
    assert_eq!(flush.value.as_deref(), Some("1"));
    assert_eq!(flush.config_source, 4);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn groups_have_kafkas_operations_and_unknown_ones_have_none() {
    let (cluster, mut client) = one_partition().await;
    ready(&cluster).await;
    let request = DescribeGroupsRequest::default()
        .with_groups(vec![group()])
        .with_include_authorized_operations(true);
    // An unknown group is an error from version 6 on (KIP-1043).
    for (version, operations) in [(5, GROUP_OPERATIONS), (6, NO_OPERATIONS)] {
        let described = client.cold(version, &request).await.groups.remove(0);
        assert_eq!(&*described.group_state, "Dead");
        assert_eq!(described.authorized_operations, operations, "version {version}");
    }
    let offset = OffsetCommitRequestPartition::default().with_committed_offset(1);
    let offsets =
        OffsetCommitRequestTopic::default().with_name(topic("t")).with_partitions(vec![offset]);
    let commit = OffsetCommitRequest::default().with_group_id(group()).with_topics(vec![offsets]);
    let committed = client.cold(9, &commit).await.topics.remove(0);
    assert_eq!(committed.partitions[0].error_code, 0);
    let described = client.cold(6, &request).await.groups.remove(0);
    assert_eq!(&*described.group_state, "Empty");
    assert_eq!(described.authorized_operations, GROUP_OPERATIONS);
    soon(cluster.shutdown()).await;
}

/// Settings that Kafka refuses, in its words, and one that only this cluster refuses.
const REFUSED: [(&str, &str, &str); 11] = [
    ("nonsense", "1", "Unknown topic config name: nonsense"),
    (
        "remote.storage.enable",
        "true",
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
    (
        "segment.bytes",
        "5",
        "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576",
    ),
    (
        "max.message.bytes",
        "x",
        "Invalid value x for configuration max.message.bytes: Not a number of type INT",
    ),
    (
        "retention.ms",
        "x",
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    ),
    (
        "retention.ms",
        "-5",
        "Invalid value -5 for configuration retention.ms: Value must be at least -1",
    ),
    (
        "min.cleanable.dirty.ratio",
        "1.5",
        "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "min.cleanable.dirty.ratio",
        "x",
        "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
    ),
    (
        "message.timestamp.type",
        "x",
        "Invalid value x for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime",
    ),
    (
        "cleanup.policy",
        "delete,x",
        "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    (
        "unclean.leader.election.enable",
        "x",
        "Invalid value x for configuration unclean.leader.election.enable: Expected value to be either true or false",
    ),
];

#[tokio::test]
async fn topic_settings_are_refused_in_kafkas_words() {
    let (cluster, mut client) = one_partition().await;
    for (name, value, message) in REFUSED {
        let setting =
            CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)));
        let new = CreatableTopic::default()
            .with_name(topic("new"))
            .with_num_partitions(1)
            .with_replication_factor(1)
            .with_configs(vec![setting]);
        let request =
            CreateTopicsRequest::default().with_topics(vec![new]).with_validate_only(true);
        let refused = client.cold(7, &request).await.topics.remove(0);
        assert_eq!(refused.error_code, 40, "{name}={value}");
        let told = refused.error_message.as_deref();
        assert_eq!(told, Some(message));
    }
    soon(cluster.shutdown()).await;
}
