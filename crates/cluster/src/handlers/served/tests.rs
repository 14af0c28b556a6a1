use super::{ApiKey, KafkaRelease, SERVED};

#[test]
fn every_served_api_has_its_versions_by_release() {
    let newest_release = KafkaRelease::all().last();
    for served in SERVED {
        assert_eq!(served.newest(newest_release), served.newest(None), "{}", served.api);
    }
    let oldest = KafkaRelease::all().next();
    let offered: Vec<_> =
        SERVED.iter().filter_map(|served| Some((served.api, served.newest(oldest)?))).collect();
    assert!(offered.contains(&(ApiKey::PRODUCE, 3)) && offered.contains(&(ApiKey::FETCH, 5)));
    // The cluster serves version 2 and later of it, 0.11 had version 0.
    assert!(offered.iter().all(|(api, _)| *api != ApiKey::OFFSET_FOR_LEADER_EPOCH));
    assert!(offered.iter().all(|(api, _)| *api != ApiKey::DESCRIBE_CLUSTER));
}

/// ApiVersions of a broker of Apache Kafka 4.3.0 with default settings, without the APIs of share
/// groups. Clients infer the release from it.
const KAFKA_4_3: &[(ApiKey, i16, i16)] = &[
    (ApiKey::PRODUCE, 0, 13),
    (ApiKey::FETCH, 4, 18),
    (ApiKey::LIST_OFFSETS, 1, 11),
    (ApiKey::METADATA, 0, 13),
    (ApiKey::OFFSET_COMMIT, 2, 10),
    (ApiKey::OFFSET_FETCH, 1, 10),
    (ApiKey::FIND_COORDINATOR, 0, 6),
    (ApiKey::JOIN_GROUP, 0, 9),
    (ApiKey::HEARTBEAT, 0, 4),
    (ApiKey::LEAVE_GROUP, 0, 5),
    (ApiKey::SYNC_GROUP, 0, 5),
    (ApiKey::DESCRIBE_GROUPS, 0, 6),
    (ApiKey::LIST_GROUPS, 0, 5),
    (ApiKey::SASL_HANDSHAKE, 0, 1),
    (ApiKey::API_VERSIONS, 0, 4),
    (ApiKey::CREATE_TOPICS, 2, 7),
    (ApiKey::DELETE_TOPICS, 1, 6),
    (ApiKey::DELETE_RECORDS, 0, 2),
    (ApiKey::INIT_PRODUCER_ID, 0, 5),
    (ApiKey::OFFSET_FOR_LEADER_EPOCH, 2, 4),
    (ApiKey::ADD_PARTITIONS_TO_TXN, 0, 5),
    (ApiKey::ADD_OFFSETS_TO_TXN, 0, 4),
    (ApiKey::END_TXN, 0, 5),
    (ApiKey::WRITE_TXN_MARKERS, 1, 2),
    (ApiKey::TXN_OFFSET_COMMIT, 0, 5),
    (ApiKey::DESCRIBE_ACLS, 1, 3),
    (ApiKey::CREATE_ACLS, 1, 3),
    (ApiKey::DELETE_ACLS, 1, 3),
    (ApiKey::DESCRIBE_CONFIGS, 1, 4),
    (ApiKey::ALTER_CONFIGS, 0, 2),
    (ApiKey::ALTER_REPLICA_LOG_DIRS, 1, 2),
    (ApiKey::DESCRIBE_LOG_DIRS, 1, 5),
    (ApiKey::SASL_AUTHENTICATE, 0, 2),
    (ApiKey::CREATE_PARTITIONS, 0, 3),
    (ApiKey::CREATE_DELEGATION_TOKEN, 1, 3),
    (ApiKey::RENEW_DELEGATION_TOKEN, 1, 2),
    (ApiKey::EXPIRE_DELEGATION_TOKEN, 1, 2),
    (ApiKey::DESCRIBE_DELEGATION_TOKEN, 1, 3),
    (ApiKey::DELETE_GROUPS, 0, 2),
    (ApiKey::ELECT_LEADERS, 0, 2),
    (ApiKey::INCREMENTAL_ALTER_CONFIGS, 0, 1),
    (ApiKey::ALTER_PARTITION_REASSIGNMENTS, 0, 1),
    (ApiKey::LIST_PARTITION_REASSIGNMENTS, 0, 0),
    (ApiKey::OFFSET_DELETE, 0, 0),
    (ApiKey::DESCRIBE_CLIENT_QUOTAS, 0, 1),
    (ApiKey::ALTER_CLIENT_QUOTAS, 0, 1),
    (ApiKey::DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0),
    (ApiKey::ALTER_USER_SCRAM_CREDENTIALS, 0, 0),
    (ApiKey::DESCRIBE_QUORUM, 0, 2),
    (ApiKey::UPDATE_FEATURES, 0, 2),
    (ApiKey::DESCRIBE_CLUSTER, 0, 2),
    (ApiKey::DESCRIBE_PRODUCERS, 0, 0),
    (ApiKey::UNREGISTER_BROKER, 0, 0),
    (ApiKey::DESCRIBE_TRANSACTIONS, 0, 0),
    (ApiKey::LIST_TRANSACTIONS, 0, 2),
    (ApiKey::CONSUMER_GROUP_HEARTBEAT, 0, 1),
    (ApiKey::CONSUMER_GROUP_DESCRIBE, 0, 1),
    (ApiKey::LIST_CONFIG_RESOURCES, 0, 1),
    (ApiKey::DESCRIBE_TOPIC_PARTITIONS, 0, 0),
    (ApiKey::ADD_RAFT_VOTER, 0, 1),
    (ApiKey::REMOVE_RAFT_VOTER, 0, 0),
    (ApiKey::STREAMS_GROUP_HEARTBEAT, 0, 0),
    (ApiKey::STREAMS_GROUP_DESCRIBE, 0, 0),
];

#[test]
fn versions_are_those_of_kafka_4_3() {
    // Without a receiver of clients' metrics, which no broker has by default.
    let receivers = [ApiKey::GET_TELEMETRY_SUBSCRIPTIONS, ApiKey::PUSH_TELEMETRY];
    let offered = SERVED.iter().filter(|served| !receivers.contains(&served.api));
    let mut served: Vec<_> =
        offered.map(|served| (served.api, served.lowest, *served.versions.end())).collect();
    served.sort_unstable_by_key(|(api, ..)| api.0);
    assert_eq!(served, KAFKA_4_3);
}
