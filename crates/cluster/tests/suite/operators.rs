//! Requests of operators' tools: topics page by page, resources with settings, quorum, features, voters
//! and log directories.

use std::collections::BTreeSet;

use curtail_wire::{
    ErrorCode,
    cold::{
        messages::{
            AlterReplicaLogDirsRequest, DescribeQuorumRequest, DescribeTopicPartitionsRequest,
            DescribeTopicPartitionsResponse, IncrementalAlterConfigsRequest,
            ListConfigResourcesRequest, RemoveRaftVoterRequest, UnregisterBrokerRequest,
            UpdateFeaturesRequest,
            alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic},
            describe_quorum_request::{PartitionData, TopicData},
            describe_topic_partitions_request::{Cursor, TopicRequest},
            incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
            update_features_request::FeatureUpdateKey,
        },
        newer::{AddRaftVoterRequest, DescribeLogDirsRequest, VoterListener},
    },
};

use crate::support::{Client, config, group::topic, one_partition, soon, start, text};

const NONE: i16 = 0;

fn new_voter() -> AddRaftVoterRequest {
    let listener = VoterListener { name: "CONTROLLER".into(), host: "c".into(), port: 9093 };
    AddRaftVoterRequest { voter_id: 2, listeners: vec![listener], ..Default::default() }
}

fn asked(
    names: &[&str],
    cursor: Option<(&str, i32)>,
    limit: i32,
) -> DescribeTopicPartitionsRequest {
    let topics = names.iter().map(|name| TopicRequest::default().with_name(topic(name)));
    let cursor = cursor.map(|(name, index)| {
        Cursor::default().with_topic_name(topic(name)).with_partition_index(index)
    });
    DescribeTopicPartitionsRequest::default()
        .with_topics(topics.collect())
        .with_response_partition_limit(limit)
        .with_cursor(cursor)
}

/// Returns each topic's error and partitions, and where the next page begins.
#[expect(clippy::type_complexity, reason = "a row of a table")]
fn page(
    response: &DescribeTopicPartitionsResponse,
) -> (Vec<(String, i16, Vec<i32>)>, Option<(String, i32)>) {
    let topics = response.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| partition.partition_index);
        let name = topic.name.as_ref().expect("a name").to_string();
        (name, topic.error_code, partitions.collect())
    });
    let next = response.next_cursor.as_ref();
    let next = next.map(|cursor| (cursor.topic_name.to_string(), cursor.partition_index));
    (topics.collect(), next)
}

#[tokio::test]
async fn topics_are_described_page_by_page() {
    let cluster = start(config(1)).await;
    for (name, partitions) in [("b", 3), ("a", 2), ("c", 1)] {
        cluster.create_topic(name, partitions, 1, &[]).unwrap();
    }
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let of = |name: &str, partitions: &[i32]| (name.to_owned(), NONE, partitions.to_vec());
    let at = |name: &str, index: i32| Some((name.to_owned(), index));

    let all = client.cold(0, &asked(&[], None, 2000)).await;
    assert_eq!(page(&all), (vec![of("a", &[0, 1]), of("b", &[0, 1, 2]), of("c", &[0])], None));
    let first = &all.topics[0];
    assert_eq!(first.partitions[0].leader_id.0, 1);
    assert_eq!(first.partitions[0].replica_nodes.len(), 1);
    assert!(!first.topic_id.is_nil() && first.topic_authorized_operations > 0);

    // A page may end within a topic, or between two.
    let (topics, next) = page(&client.cold(0, &asked(&[], None, 4)).await);
    assert_eq!((topics, next), (vec![of("a", &[0, 1]), of("b", &[0, 1])], at("b", 2)));
    let (topics, next) = page(&client.cold(0, &asked(&[], Some(("b", 2)), 1)).await);
    assert_eq!((topics, next), (vec![of("b", &[2])], at("c", 0)));
    let (topics, next) = page(&client.cold(0, &asked(&[], Some(("c", 0)), 1)).await);
    assert_eq!((topics, next), (vec![of("c", &[0])], None));
    // A limit below 1 counts as 1.
    let (topics, _) = page(&client.cold(0, &asked(&[], None, 0)).await);
    assert_eq!(topics, [of("a", &[0])]);

    // The order is that of the names, not of the request.
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
    let invalid = ErrorCode::INVALID_TOPIC_EXCEPTION.0;
    let (topics, next) = page(&client.cold(0, &asked(&["c", "no", "a", "?"], None, 9)).await);
    let failed = |name: &str, code| (name.to_owned(), code, vec![]);
    let expected = [failed("?", invalid), of("a", &[0, 1]), of("c", &[0]), failed("no", unknown)];
    assert_eq!((&topics[..], next), (&expected[..], None));

    // The cursor's topic was deleted since the page before, or has lost its partitions.
    let (topics, _) = page(&client.cold(0, &asked(&[], Some(("bb", 7)), 9)).await);
    assert_eq!(topics, [of("c", &[0])]);
    assert_eq!(page(&client.cold(0, &asked(&[], Some(("zzz", 0)), 9)).await), (vec![], None));
    let (topics, _) = page(&client.cold(0, &asked(&["c"], Some(("c", 7)), 9)).await);
    assert_eq!(topics, [of("c", &[])]);

    let refused = ErrorCode::INVALID_REQUEST.0;
    for cursor in [("b", 0), ("a", -1)] {
        let (topics, _) = page(&client.cold(0, &asked(&["a"], Some(cursor), 9)).await);
        assert_eq!(topics, [failed("a", refused)], "{cursor:?}");
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn resources_with_settings_are_listed() {
    let (cluster, mut client) = one_partition().await;
    const TOPIC: i8 = 2;
    const BROKER: i8 = 4;
    const BROKER_LOGGER: i8 = 8;
    const CLIENT_METRICS: i8 = 16;
    const GROUP: i8 = 32;
    let setting = AlterableConfig::default()
        .with_name(text("consumer.session.timeout.ms"))
        .with_value(Some(text("50000")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(GROUP)
        .with_resource_name(text("billing"))
        .with_configs(vec![setting]);
    let alter = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.cold(1, &alter).await.responses[0].error_code, NONE);

    let mut list = async |version: i16, types: &[i8]| {
        let request = ListConfigResourcesRequest::default().with_resource_types(types.to_vec());
        let response = client.cold(version, &request).await;
        let resources = response.config_resources.iter();
        let named = resources.map(|found| (found.resource_type, found.resource_name.to_string()));
        (response.error_code, named.collect::<Vec<_>>())
    };
    let owned = |resources: &[(i8, &str)]| {
        resources.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect::<Vec<_>>()
    };
    let all = [(GROUP, "billing"), (BROKER_LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")];
    assert_eq!(list(1, &[]).await, (NONE, owned(&all)));
    assert_eq!(list(1, &[TOPIC]).await, (NONE, owned(&[(TOPIC, "t")])));
    assert_eq!(list(1, &[CLIENT_METRICS]).await, (NONE, vec![]));
    assert_eq!(list(1, &[77]).await, (ErrorCode::UNSUPPORTED_VERSION.0, vec![]));
    assert_eq!(list(0, &[]).await, (NONE, vec![]));
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn the_controller_is_the_only_voter() {
    let cluster = start(config(3)).await;
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 2).await;
    let partition = |index: i32| PartitionData::default().with_partition_index(index);
    let of = |name: &str, index: i32| {
        TopicData::default().with_topic_name(topic(name)).with_partitions(vec![partition(index)])
    };
    let asked = |topics: Vec<TopicData>| DescribeQuorumRequest::default().with_topics(topics);
    let response = client.cold(2, &asked(vec![of("__cluster_metadata", 0)])).await;
    assert_eq!(response.nodes.len(), 1);
    let quorum = &response.topics[0].partitions[0];
    assert_eq!((quorum.error_code, quorum.leader_id.0), (NONE, 1));
    assert!(quorum.high_watermark > 0 && quorum.leader_epoch > 0);
    let voters: Vec<_> = quorum.current_voters.iter().map(|voter| voter.replica_id.0).collect();
    assert_eq!(voters, [1]);
    let observers: Vec<_> = quorum.observers.iter().map(|node| node.replica_id.0).collect();
    assert_eq!(observers, [2, 3]);
    for observer in &quorum.observers {
        assert!((1..=quorum.high_watermark).contains(&observer.log_end_offset));
    }
    // As in Kafka, a request for anything else is refused as a whole.
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
    for topics in [
        vec![of("__cluster_metadata", 1)],
        vec![of("t", 0)],
        vec![of("__cluster_metadata", 0), of("__cluster_metadata", 0)],
    ] {
        let refused = client.cold(2, &asked(topics)).await;
        let mut codes = refused.topics.iter().map(|topic| topic.partitions[0].error_code);
        assert!(codes.all(|code| code == unknown));
    }

    for code in [
        client.cold(0, &new_voter()).await.error_code,
        client.cold(1, &new_voter()).await.error_code,
        client.cold(0, &RemoveRaftVoterRequest::default().with_voter_id(1)).await.error_code,
    ] {
        assert_eq!(code, ErrorCode::UNSUPPORTED_VERSION.0);
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn features_stay_at_their_levels() {
    let (cluster, mut client) = one_partition().await;
    let mut update = async |version: i16, levels: &[(&str, i16)]| {
        let updates = levels.iter().map(|(name, level)| {
            FeatureUpdateKey::default().with_feature(text(name)).with_max_version_level(*level)
        });
        let request = UpdateFeaturesRequest::default().with_feature_updates(updates.collect());
        let response = client.cold(version, &request).await;
        let results = response.results.iter().map(|result| result.error_code);
        (response.error_code, results.collect::<Vec<_>>())
    };
    let refused = ErrorCode::INVALID_UPDATE_VERSION.0;
    let present = [("group.version", 1), ("streams.version", 1), ("transaction.version", 2)];
    assert_eq!(update(2, &present).await, (NONE, vec![]));
    assert_eq!(update(1, &present).await, (NONE, vec![NONE, NONE, NONE]));
    for other in
        [("group.version", 0), ("streams.version", 0), ("transaction.version", 3), ("a.version", 1)]
    {
        assert_eq!(update(2, &[other]).await, (refused, vec![]), "{other:?}");
        // All or none.
        assert_eq!(update(1, &[present[0], other]).await, (refused, vec![]), "{other:?}");
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn replicas_stay_in_the_only_directory() {
    let (cluster, mut client) = one_partition().await;
    // Version 5 adds whether the directory is cordoned (KIP-1066).
    for version in 1..=5 {
        let described = client.cold(version, &DescribeLogDirsRequest::default()).await.results;
        assert_eq!((described[0].is_cordoned, &*described[0].topics[0].name), (false, "t"));
    }
    let described = client.cold(5, &DescribeLogDirsRequest::default()).await;
    let own = described.results[0].log_dir.clone();
    let mut move_to = async |dir: &str, name: &str, index: i32| {
        let moved =
            AlterReplicaLogDirTopic::default().with_name(topic(name)).with_partitions(vec![index]);
        let dir = AlterReplicaLogDir::default().with_path(text(dir)).with_topics(vec![moved]);
        let request = AlterReplicaLogDirsRequest::default().with_dirs(vec![dir]);
        client.cold(2, &request).await.results[0].partitions[0].error_code
    };
    assert_eq!(move_to(&own, "t", 0).await, NONE);
    assert_eq!(move_to(&own, "t", 1).await, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0);
    assert_eq!(move_to("/elsewhere", "t", 0).await, ErrorCode::LOG_DIR_NOT_FOUND.0);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn an_unregistered_broker_is_gone_until_it_restarts() {
    let cluster = start(config(3)).await;
    cluster.create_topic("t", 3, 3, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let mut unregister = async |id: i32| {
        let request = UnregisterBrokerRequest::default().with_broker_id(id.into());
        client.cold(0, &request).await.error_code
    };
    assert_eq!(unregister(3).await, NONE);
    let absent = ErrorCode::BROKER_ID_NOT_REGISTERED.0;
    assert_eq!((unregister(3).await, unregister(9).await), (absent, absent));

    let ids = async |client: &mut Client| {
        let (metadata, topic) = client.metadata("t").await;
        let leaders: BTreeSet<_> = topic.partitions.iter().map(|p| p.leader_id).collect();
        let brokers: BTreeSet<_> = metadata.brokers.iter().map(|broker| broker.node_id).collect();
        (brokers, leaders)
    };
    // Broker 1 applies it with its next metadata.
    let remaining = BTreeSet::from([1, 2]);
    soon(async {
        while ids(&mut client).await.0 != remaining {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(ids(&mut client).await.1.is_subset(&remaining));
    cluster.kill(3);
    cluster.restart(3).await.unwrap();
    cluster.settled().await;
    soon(async {
        while !ids(&mut client).await.0.contains(&3) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon(cluster.shutdown()).await;
}
