//! The newest version of each served API in Kafka's releases.
//!
//! From the `validVersions` of Kafka's message definitions, without unstable versions; before 2.2
//! from the schemas in its Java code.

use std::{fmt, str::FromStr};

use curtail_wire::ApiKey;
use serde::{Deserialize, Serialize};

use super::ParseFaultError;

/// A release of Apache Kafka from 0.11 to 4.3, such as `2.8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KafkaRelease {
    major: u8,
    minor: u8,
}

/// The first releases with 4.0's features.
const FEATURES: KafkaRelease = KafkaRelease { major: 4, minor: 0 };
/// The first release that names the versions of ApiVersions when it refuses one (KIP-511).
const NAMES_VERSIONS: KafkaRelease = KafkaRelease { major: 2, minor: 4 };

impl KafkaRelease {
    /// Every known release, oldest first.
    pub fn all() -> impl Iterator<Item = Self> {
        RELEASES.iter().map(|&(major, minor)| Self { major, minor })
    }

    /// Returns the newest version of a served API, `None` if the release does not have the API.
    pub(crate) fn newest(self, api: ApiKey) -> Option<i16> {
        let (_, versions) = NEWEST.iter().find(|(known, _)| *known == api)?;
        let until = |&&(major, minor, _): &&Newest| Self { major, minor } <= self;
        versions.iter().take_while(until).last().map(|(_, _, newest)| *newest)
    }

    /// Returns whether brokers of the release have `group.version` and `transaction.version`.
    pub(crate) fn has_features(self) -> bool {
        self >= FEATURES
    }

    /// Returns whether the response to an unknown version of ApiVersions names the known ones.
    pub(crate) fn names_versions(self) -> bool {
        self >= NAMES_VERSIONS
    }
}

impl fmt::Display for KafkaRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for KafkaRelease {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, ParseFaultError> {
        let known = Self::all().find(|release| release.to_string() == text);
        known.ok_or_else(|| {
            ParseFaultError(format!(
                "'{text}' is no known Kafka release; 0.11 to 4.3 are known, as in 2.8"
            ))
        })
    }
}

impl TryFrom<String> for KafkaRelease {
    type Error = ParseFaultError;

    fn try_from(text: String) -> Result<Self, ParseFaultError> {
        text.parse()
    }
}

impl From<KafkaRelease> for String {
    fn from(release: KafkaRelease) -> Self {
        release.to_string()
    }
}

const RELEASES: &[(u8, u8)] = &[
    (0, 11),
    (1, 0),
    (1, 1),
    (2, 0),
    (2, 1),
    (2, 2),
    (2, 3),
    (2, 4),
    (2, 5),
    (2, 6),
    (2, 7),
    (2, 8),
    (3, 0),
    (3, 1),
    (3, 2),
    (3, 3),
    (3, 4),
    (3, 5),
    (3, 6),
    (3, 7),
    (3, 8),
    (3, 9),
    (4, 0),
    (4, 1),
    (4, 2),
    (4, 3),
];

/// A release, and the newest version of an API in it.
type Newest = (u8, u8, i16);

/// By API: the releases that changed its newest version.
const NEWEST: &[(ApiKey, &[Newest])] = &[
    (
        ApiKey::PRODUCE,
        &[
            (0, 11, 3),
            (1, 0, 5),
            (2, 0, 6),
            (2, 1, 7),
            (2, 4, 8),
            (2, 8, 9),
            (3, 7, 10),
            (3, 8, 11),
            (4, 0, 12),
            (4, 1, 13),
        ],
    ),
    (
        ApiKey::FETCH,
        &[
            (0, 11, 5),
            (1, 0, 6),
            (1, 1, 7),
            (2, 0, 8),
            (2, 1, 10),
            (2, 3, 11),
            (2, 7, 12),
            (3, 1, 13),
            (3, 5, 15),
            (3, 7, 16),
            (3, 9, 17),
            (4, 1, 18),
        ],
    ),
    (
        ApiKey::LIST_OFFSETS,
        &[
            (0, 11, 2),
            (2, 0, 3),
            (2, 1, 4),
            (2, 2, 5),
            (2, 8, 6),
            (3, 0, 7),
            (3, 5, 8),
            (3, 9, 9),
            (4, 0, 10),
            (4, 2, 11),
        ],
    ),
    (
        ApiKey::METADATA,
        &[
            (0, 11, 4),
            (1, 0, 5),
            (2, 0, 6),
            (2, 1, 7),
            (2, 3, 8),
            (2, 4, 9),
            (2, 8, 11),
            (3, 1, 12),
            (4, 0, 13),
        ],
    ),
    (
        ApiKey::OFFSET_COMMIT,
        &[(0, 11, 3), (2, 0, 4), (2, 1, 6), (2, 3, 7), (2, 4, 8), (3, 7, 9), (4, 2, 10)],
    ),
    (
        ApiKey::OFFSET_FETCH,
        &[(0, 11, 3), (2, 0, 4), (2, 1, 5), (2, 4, 6), (2, 5, 7), (3, 0, 8), (3, 7, 9), (4, 2, 10)],
    ),
    (
        ApiKey::FIND_COORDINATOR,
        &[(0, 11, 1), (2, 0, 2), (2, 4, 3), (3, 0, 4), (3, 8, 5), (3, 9, 6)],
    ),
    (
        ApiKey::JOIN_GROUP,
        &[(0, 11, 2), (2, 0, 3), (2, 2, 4), (2, 3, 5), (2, 4, 6), (2, 5, 7), (3, 2, 9)],
    ),
    (ApiKey::HEARTBEAT, &[(0, 11, 1), (2, 0, 2), (2, 3, 3), (2, 4, 4)]),
    (ApiKey::LEAVE_GROUP, &[(0, 11, 1), (2, 0, 2), (2, 4, 4), (3, 2, 5)]),
    (ApiKey::SYNC_GROUP, &[(0, 11, 1), (2, 0, 2), (2, 3, 3), (2, 4, 4), (2, 5, 5)]),
    (ApiKey::DESCRIBE_GROUPS, &[(0, 11, 1), (2, 0, 2), (2, 3, 3), (2, 4, 5), (4, 0, 6)]),
    (ApiKey::LIST_GROUPS, &[(0, 11, 1), (2, 0, 2), (2, 4, 3), (2, 6, 4), (3, 8, 5)]),
    (ApiKey::SASL_HANDSHAKE, &[(0, 11, 0), (1, 0, 1)]),
    (ApiKey::API_VERSIONS, &[(0, 11, 1), (2, 0, 2), (2, 4, 3), (3, 9, 4)]),
    (ApiKey::CREATE_TOPICS, &[(0, 11, 2), (2, 0, 3), (2, 4, 5), (2, 7, 6), (2, 8, 7)]),
    (ApiKey::DELETE_TOPICS, &[(0, 11, 1), (2, 0, 2), (2, 1, 3), (2, 4, 4), (2, 7, 5), (2, 8, 6)]),
    (ApiKey::DELETE_RECORDS, &[(0, 11, 0), (2, 0, 1), (2, 6, 2)]),
    (
        ApiKey::INIT_PRODUCER_ID,
        &[(0, 11, 0), (2, 0, 1), (2, 4, 2), (2, 5, 3), (2, 7, 4), (3, 8, 5)],
    ),
    (ApiKey::OFFSET_FOR_LEADER_EPOCH, &[(0, 11, 0), (2, 0, 1), (2, 1, 2), (2, 3, 3), (2, 8, 4)]),
    (
        ApiKey::ADD_PARTITIONS_TO_TXN,
        &[(0, 11, 0), (2, 0, 1), (2, 7, 2), (2, 8, 3), (3, 6, 4), (3, 8, 5)],
    ),
    (ApiKey::ADD_OFFSETS_TO_TXN, &[(0, 11, 0), (2, 0, 1), (2, 7, 2), (2, 8, 3), (3, 8, 4)]),
    (ApiKey::END_TXN, &[(0, 11, 0), (2, 0, 1), (2, 7, 2), (2, 8, 3), (3, 8, 4), (4, 0, 5)]),
    (ApiKey::WRITE_TXN_MARKERS, &[(0, 11, 0), (2, 8, 1), (4, 2, 2)]),
    (
        ApiKey::TXN_OFFSET_COMMIT,
        &[(0, 11, 0), (2, 0, 1), (2, 1, 2), (2, 5, 3), (3, 8, 4), (4, 0, 5)],
    ),
    (ApiKey::DESCRIBE_ACLS, &[(0, 11, 0), (2, 0, 1), (2, 5, 2), (3, 3, 3)]),
    (ApiKey::CREATE_ACLS, &[(0, 11, 0), (2, 0, 1), (2, 5, 2), (3, 3, 3)]),
    (ApiKey::DELETE_ACLS, &[(0, 11, 0), (2, 0, 1), (2, 5, 2), (3, 3, 3)]),
    (ApiKey::DESCRIBE_CONFIGS, &[(0, 11, 0), (1, 1, 1), (2, 0, 2), (2, 6, 3), (2, 8, 4)]),
    (ApiKey::ALTER_CONFIGS, &[(0, 11, 0), (2, 0, 1), (2, 8, 2)]),
    (
        ApiKey::DESCRIBE_LOG_DIRS,
        &[(1, 0, 0), (2, 0, 1), (2, 6, 2), (3, 2, 3), (3, 3, 4), (4, 3, 5)],
    ),
    (ApiKey::CREATE_PARTITIONS, &[(1, 0, 0), (2, 0, 1), (2, 5, 2), (2, 7, 3)]),
    (ApiKey::SASL_AUTHENTICATE, &[(1, 0, 0), (2, 2, 1), (2, 5, 2)]),
    (ApiKey::DELETE_GROUPS, &[(1, 1, 0), (2, 0, 1), (2, 4, 2)]),
    (ApiKey::ELECT_LEADERS, &[(2, 2, 0), (2, 4, 2)]),
    (ApiKey::INCREMENTAL_ALTER_CONFIGS, &[(2, 3, 0), (2, 4, 1)]),
    (ApiKey::ALTER_PARTITION_REASSIGNMENTS, &[(2, 4, 0), (4, 1, 1)]),
    (ApiKey::LIST_PARTITION_REASSIGNMENTS, &[(2, 4, 0)]),
    (ApiKey::OFFSET_DELETE, &[(2, 4, 0)]),
    (ApiKey::DESCRIBE_CLIENT_QUOTAS, &[(2, 6, 0), (2, 8, 1)]),
    (ApiKey::ALTER_CLIENT_QUOTAS, &[(2, 6, 0), (2, 8, 1)]),
    (ApiKey::DESCRIBE_USER_SCRAM_CREDENTIALS, &[(2, 7, 0)]),
    (ApiKey::ALTER_USER_SCRAM_CREDENTIALS, &[(2, 7, 0)]),
    (ApiKey::DESCRIBE_CLUSTER, &[(2, 8, 0), (3, 7, 1), (4, 0, 2)]),
    (ApiKey::DESCRIBE_PRODUCERS, &[(2, 8, 0)]),
    (ApiKey::DESCRIBE_TRANSACTIONS, &[(3, 0, 0)]),
    (ApiKey::LIST_TRANSACTIONS, &[(3, 0, 0), (3, 8, 1), (4, 1, 2)]),
    (ApiKey::CONSUMER_GROUP_HEARTBEAT, &[(3, 7, 0), (4, 0, 1)]),
    (ApiKey::CONSUMER_GROUP_DESCRIBE, &[(3, 8, 0), (4, 0, 1)]),
    (ApiKey::CREATE_DELEGATION_TOKEN, &[(1, 1, 0), (2, 0, 1), (2, 4, 2), (3, 3, 3)]),
    (ApiKey::RENEW_DELEGATION_TOKEN, &[(1, 1, 0), (2, 0, 1), (2, 5, 2)]),
    (ApiKey::EXPIRE_DELEGATION_TOKEN, &[(1, 1, 0), (2, 0, 1), (2, 5, 2)]),
    (ApiKey::DESCRIBE_DELEGATION_TOKEN, &[(1, 1, 0), (2, 0, 1), (2, 5, 2), (3, 3, 3)]),
    (ApiKey::ALTER_REPLICA_LOG_DIRS, &[(1, 0, 0), (2, 0, 1), (2, 8, 2)]),
    (ApiKey::DESCRIBE_QUORUM, &[(2, 7, 0), (3, 3, 1), (3, 9, 2)]),
    (ApiKey::UPDATE_FEATURES, &[(2, 7, 0), (3, 3, 1), (4, 0, 2)]),
    (ApiKey::UNREGISTER_BROKER, &[(2, 8, 0)]),
    (ApiKey::GET_TELEMETRY_SUBSCRIPTIONS, &[(3, 7, 0)]),
    (ApiKey::PUSH_TELEMETRY, &[(3, 7, 0)]),
    (ApiKey::LIST_CONFIG_RESOURCES, &[(3, 7, 0), (4, 1, 1)]),
    (ApiKey::DESCRIBE_TOPIC_PARTITIONS, &[(3, 8, 0)]),
    (ApiKey::ADD_RAFT_VOTER, &[(3, 9, 0), (4, 2, 1)]),
    (ApiKey::REMOVE_RAFT_VOTER, &[(3, 9, 0)]),
    // Apache Kafka 4.1 has them as an early access, which is off by default.
    (ApiKey::STREAMS_GROUP_HEARTBEAT, &[(4, 2, 0)]),
    (ApiKey::STREAMS_GROUP_DESCRIBE, &[(4, 2, 0)]),
];
