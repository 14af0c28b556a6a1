//! The served APIs: their versions and the permissions that they need.
//!
//! Every served API has an entry in the table. A handler can ask the authorizer only for the
//! permissions in its entry, and its response is sent only if it has asked (`Call::may_answer`). A
//! forgotten check therefore refuses the request.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use curtail_wire::api::ApiKey;

use crate::{
    acl::{Operation, ResourceType},
    faults::KafkaRelease,
};

/// One API.
pub(super) struct Served {
    pub(super) api: ApiKey,
    pub(super) versions: RangeInclusive<i16>,
    /// The lowest version advertised.
    pub(super) lowest: i16,
    pub(super) rights: Rights,
}

impl Served {
    /// Returns the newest version of the API that clients are offered, `None` if they are not offered
    /// the API. A release limits the versions.
    pub(super) fn newest(&self, release: Option<KafkaRelease>) -> Option<i16> {
        let newest = *self.versions.end();
        let Some(release) = release else { return Some(newest) };
        let newest = newest.min(release.newest(self.api)?);
        self.versions.contains(&newest).then_some(newest)
    }
}

/// A permission: an operation on resources of a type.
type Right = (Operation, ResourceType);

/// The permissions an API needs.
pub(super) enum Rights {
    /// The handler asks for these, for resources that the request names or the response shows.
    Asked(&'static [Right]),
    /// No permission is needed, for the reason given in the table.
    Everyone,
}

impl Rights {
    /// Returns whether a handler may ask for this permission.
    pub(super) fn has(&self, operation: Operation, of: ResourceType) -> bool {
        match self {
            Self::Asked(rights) => rights.contains(&(operation, of)),
            Self::Everyone => false,
        }
    }
}

const READ_TOPIC: Right = (Operation::Read, ResourceType::Topic);
const READ_GROUP: Right = (Operation::Read, ResourceType::Group);
const WRITE_TOPIC: Right = (Operation::Write, ResourceType::Topic);
const WRITE_TXN: Right = (Operation::Write, ResourceType::TransactionalId);
const CREATE_ANY: Right = (Operation::Create, ResourceType::Cluster);
const CREATE_TOPIC: Right = (Operation::Create, ResourceType::Topic);
const DELETE_TOPIC: Right = (Operation::Delete, ResourceType::Topic);
const DELETE_GROUP: Right = (Operation::Delete, ResourceType::Group);
const ALTER_TOPIC: Right = (Operation::Alter, ResourceType::Topic);
const ALTER_CLUSTER: Right = (Operation::Alter, ResourceType::Cluster);
const DESCRIBE_TOPIC: Right = (Operation::Describe, ResourceType::Topic);
const DESCRIBE_GROUP: Right = (Operation::Describe, ResourceType::Group);
const DESCRIBE_CLUSTER: Right = (Operation::Describe, ResourceType::Cluster);
const DESCRIBE_TXN: Right = (Operation::Describe, ResourceType::TransactionalId);
const TOPIC_CONFIGS: Right = (Operation::DescribeConfigs, ResourceType::Topic);
const CLUSTER_CONFIGS: Right = (Operation::DescribeConfigs, ResourceType::Cluster);
const GROUP_CONFIGS: Right = (Operation::DescribeConfigs, ResourceType::Group);
const ALTER_TOPIC_CONFIGS: Right = (Operation::AlterConfigs, ResourceType::Topic);
const ALTER_CLUSTER_CONFIGS: Right = (Operation::AlterConfigs, ResourceType::Cluster);
const ALTER_GROUP_CONFIGS: Right = (Operation::AlterConfigs, ResourceType::Group);
const ALTER_CONFIGS: &[Right] = &[ALTER_TOPIC_CONFIGS, ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS];
const CLUSTER_ACTION: Right = (Operation::ClusterAction, ResourceType::Cluster);
const IDEMPOTENT_WRITE: Right = (Operation::IdempotentWrite, ResourceType::Cluster);

const fn served(api: ApiKey, versions: RangeInclusive<i16>, lowest: i16, rights: Rights) -> Served {
    Served { api, versions, lowest, rights }
}

pub(super) static SERVED: &[Served] = &[
    // librdkafka assumes that it cannot compress for a broker without Produce 0 (KAFKA-18659).
    served(ApiKey::PRODUCE, 3..=13, 0, Rights::Asked(&[WRITE_TOPIC, WRITE_TXN])),
    served(ApiKey::FETCH, 4..=18, 4, Rights::Asked(&[READ_TOPIC, CLUSTER_ACTION])),
    served(ApiKey::LIST_OFFSETS, 1..=11, 1, Rights::Asked(&[DESCRIBE_TOPIC])),
    served(ApiKey::METADATA, 0..=13, 0, Rights::Asked(&[DESCRIBE_TOPIC, CREATE_ANY, CREATE_TOPIC])),
    served(ApiKey::OFFSET_COMMIT, 2..=10, 2, Rights::Asked(&[READ_GROUP, READ_TOPIC])),
    served(ApiKey::OFFSET_FETCH, 1..=10, 1, Rights::Asked(&[DESCRIBE_GROUP, DESCRIBE_TOPIC])),
    served(ApiKey::FIND_COORDINATOR, 0..=6, 0, Rights::Asked(&[DESCRIBE_GROUP, DESCRIBE_TXN])),
    served(ApiKey::JOIN_GROUP, 0..=9, 0, Rights::Asked(&[READ_GROUP])),
    served(ApiKey::HEARTBEAT, 0..=4, 0, Rights::Asked(&[READ_GROUP])),
    served(ApiKey::LEAVE_GROUP, 0..=5, 0, Rights::Asked(&[READ_GROUP])),
    served(ApiKey::SYNC_GROUP, 0..=5, 0, Rights::Asked(&[READ_GROUP])),
    served(ApiKey::DESCRIBE_GROUPS, 0..=6, 0, Rights::Asked(&[DESCRIBE_GROUP])),
    served(ApiKey::LIST_GROUPS, 0..=5, 0, Rights::Asked(&[DESCRIBE_CLUSTER, DESCRIBE_GROUP])),
    // librdkafka assumes that a broker without SaslHandshake 0 supports no handshake at all. No
    // permission: clients use it before they are authenticated.
    served(ApiKey::SASL_HANDSHAKE, 1..=1, 0, Rights::Everyone),
    // No permission: clients request versions before they are authenticated.
    served(ApiKey::API_VERSIONS, 0..=4, 0, Rights::Everyone),
    served(ApiKey::CREATE_TOPICS, 2..=7, 2, Rights::Asked(&[CREATE_ANY, CREATE_TOPIC])),
    served(ApiKey::DELETE_TOPICS, 1..=6, 1, Rights::Asked(&[DELETE_TOPIC, DESCRIBE_TOPIC])),
    served(ApiKey::DELETE_RECORDS, 0..=2, 0, Rights::Asked(&[DELETE_TOPIC])),
    served(
        ApiKey::INIT_PRODUCER_ID,
        0..=5,
        0,
        Rights::Asked(&[WRITE_TOPIC, IDEMPOTENT_WRITE, WRITE_TXN]),
    ),
    served(ApiKey::OFFSET_FOR_LEADER_EPOCH, 2..=4, 2, Rights::Asked(&[DESCRIBE_TOPIC])),
    served(
        ApiKey::ADD_PARTITIONS_TO_TXN,
        0..=5,
        0,
        Rights::Asked(&[WRITE_TXN, WRITE_TOPIC, CLUSTER_ACTION]),
    ),
    served(ApiKey::ADD_OFFSETS_TO_TXN, 0..=4, 0, Rights::Asked(&[WRITE_TXN, READ_GROUP])),
    served(ApiKey::END_TXN, 0..=5, 0, Rights::Asked(&[WRITE_TXN])),
    served(ApiKey::WRITE_TXN_MARKERS, 1..=2, 1, Rights::Asked(&[ALTER_CLUSTER, CLUSTER_ACTION])),
    served(
        ApiKey::TXN_OFFSET_COMMIT,
        0..=5,
        0,
        Rights::Asked(&[WRITE_TXN, READ_GROUP, READ_TOPIC]),
    ),
    served(ApiKey::DESCRIBE_ACLS, 1..=3, 1, Rights::Asked(&[DESCRIBE_CLUSTER])),
    served(ApiKey::CREATE_ACLS, 1..=3, 1, Rights::Asked(&[ALTER_CLUSTER])),
    served(ApiKey::DELETE_ACLS, 1..=3, 1, Rights::Asked(&[ALTER_CLUSTER])),
    served(
        ApiKey::DESCRIBE_CONFIGS,
        1..=4,
        1,
        Rights::Asked(&[TOPIC_CONFIGS, CLUSTER_CONFIGS, GROUP_CONFIGS]),
    ),
    served(ApiKey::ALTER_CONFIGS, 0..=2, 0, Rights::Asked(ALTER_CONFIGS)),
    served(ApiKey::DESCRIBE_LOG_DIRS, 1..=5, 1, Rights::Asked(&[DESCRIBE_CLUSTER])),
    served(ApiKey::CREATE_PARTITIONS, 0..=3, 0, Rights::Asked(&[ALTER_TOPIC])),
    // No permission: clients use it before they are authenticated.
    served(ApiKey::SASL_AUTHENTICATE, 0..=2, 0, Rights::Everyone),
    served(ApiKey::DELETE_GROUPS, 0..=2, 0, Rights::Asked(&[DELETE_GROUP])),
    served(ApiKey::ELECT_LEADERS, 0..=2, 0, Rights::Asked(&[ALTER_CLUSTER])),
    served(ApiKey::INCREMENTAL_ALTER_CONFIGS, 0..=1, 0, Rights::Asked(ALTER_CONFIGS)),
    served(ApiKey::ALTER_PARTITION_REASSIGNMENTS, 0..=1, 0, Rights::Asked(&[ALTER_CLUSTER])),
    served(ApiKey::LIST_PARTITION_REASSIGNMENTS, 0..=0, 0, Rights::Asked(&[DESCRIBE_CLUSTER])),
    served(ApiKey::OFFSET_DELETE, 0..=0, 0, Rights::Asked(&[DELETE_GROUP, READ_TOPIC])),
    served(ApiKey::DESCRIBE_CLIENT_QUOTAS, 0..=1, 0, Rights::Asked(&[CLUSTER_CONFIGS])),
    served(ApiKey::ALTER_CLIENT_QUOTAS, 0..=1, 0, Rights::Asked(&[ALTER_CLUSTER_CONFIGS])),
    served(ApiKey::DESCRIBE_USER_SCRAM_CREDENTIALS, 0..=0, 0, Rights::Asked(&[DESCRIBE_CLUSTER])),
    served(ApiKey::ALTER_USER_SCRAM_CREDENTIALS, 0..=0, 0, Rights::Asked(&[ALTER_CLUSTER])),
    // No permission: every admitted client may know the brokers. The response contains its allowed
    // operations.
    served(ApiKey::DESCRIBE_CLUSTER, 0..=2, 0, Rights::Everyone),
    served(ApiKey::DESCRIBE_PRODUCERS, 0..=0, 0, Rights::Asked(&[READ_TOPIC])),
    served(ApiKey::DESCRIBE_TRANSACTIONS, 0..=0, 0, Rights::Asked(&[DESCRIBE_TXN])),
    served(ApiKey::LIST_TRANSACTIONS, 0..=2, 0, Rights::Asked(&[DESCRIBE_TXN])),
    served(
        ApiKey::CONSUMER_GROUP_HEARTBEAT,
        0..=1,
        0,
        Rights::Asked(&[READ_GROUP, DESCRIBE_TOPIC]),
    ),
    served(ApiKey::CONSUMER_GROUP_DESCRIBE, 0..=1, 0, Rights::Asked(&[DESCRIBE_GROUP])),
    // No permission: all are refused.
    served(ApiKey::CREATE_DELEGATION_TOKEN, 1..=3, 1, Rights::Everyone),
    served(ApiKey::RENEW_DELEGATION_TOKEN, 1..=2, 1, Rights::Everyone),
    served(ApiKey::EXPIRE_DELEGATION_TOKEN, 1..=2, 1, Rights::Everyone),
    served(ApiKey::DESCRIBE_DELEGATION_TOKEN, 1..=3, 1, Rights::Everyone),
    served(ApiKey::ALTER_REPLICA_LOG_DIRS, 1..=2, 1, Rights::Asked(&[ALTER_CLUSTER])),
    served(ApiKey::DESCRIBE_QUORUM, 0..=2, 0, Rights::Asked(&[DESCRIBE_CLUSTER])),
    served(ApiKey::UPDATE_FEATURES, 0..=2, 0, Rights::Asked(&[ALTER_CLUSTER])),
    served(ApiKey::UNREGISTER_BROKER, 0..=0, 0, Rights::Asked(&[ALTER_CLUSTER])),
    // No permission, as in Kafka: a client learns only which of its metrics are requested. Offered while the cluster has a
    // receiver of metrics.
    served(ApiKey::GET_TELEMETRY_SUBSCRIPTIONS, 0..=0, 0, Rights::Everyone),
    served(ApiKey::PUSH_TELEMETRY, 0..=0, 0, Rights::Everyone),
    served(ApiKey::LIST_CONFIG_RESOURCES, 0..=1, 0, Rights::Asked(&[CLUSTER_CONFIGS])),
    served(ApiKey::DESCRIBE_TOPIC_PARTITIONS, 0..=0, 0, Rights::Asked(&[DESCRIBE_TOPIC])),
    served(ApiKey::ADD_RAFT_VOTER, 0..=1, 0, Rights::Asked(&[ALTER_CLUSTER])),
    served(ApiKey::REMOVE_RAFT_VOTER, 0..=0, 0, Rights::Asked(&[ALTER_CLUSTER])),
    served(
        ApiKey::STREAMS_GROUP_HEARTBEAT,
        0..=0,
        0,
        Rights::Asked(&[READ_GROUP, DESCRIBE_TOPIC, CREATE_ANY, CREATE_TOPIC]),
    ),
    served(
        ApiKey::STREAMS_GROUP_DESCRIBE,
        0..=0,
        0,
        Rights::Asked(&[DESCRIBE_GROUP, DESCRIBE_TOPIC]),
    ),
];

/// Returns the entry of an API.
pub(super) fn of(api: ApiKey) -> Option<&'static Served> {
    SERVED.iter().find(|served| served.api == api)
}

/// Returns the newest version of an API that the embedded cluster serves.
pub(crate) fn newest_served(api: ApiKey) -> Option<i16> {
    of(api).map(|served| *served.versions.end())
}
