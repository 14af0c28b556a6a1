//! API keys, version ranges, and the negotiation of a version with a broker.

use std::fmt;
use std::ops::RangeInclusive;

use bytes::Bytes;
use thiserror::Error;

use crate::{DecodeError, Encoding, ErrorCode, Reader};

#[cfg(test)]
mod tests;

/// The number of a request type. Unknown numbers are representable: brokers advertise them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKey(pub i16);

/// An API's name and first flexible version, `i16::MAX` for never.
struct Fact {
    key: i16,
    name: &'static str,
    flexible: i16,
}

macro_rules! api_keys {
    ($($konst:ident $key:literal $name:literal $flexible:expr;)*) => {
        impl ApiKey {
            $(#[doc = concat!($name, ", key ", $key, ".")]
            pub const $konst: Self = Self($key);)*
        }

        /// In the order of the keys, without gaps.
        const FACTS: &[Fact] = &[$(Fact { key: $key, name: $name, flexible: $flexible },)*];
    };
}

const NEVER: i16 = i16::MAX;

api_keys! {
    PRODUCE 0 "Produce" 9;
    FETCH 1 "Fetch" 12;
    LIST_OFFSETS 2 "ListOffsets" 6;
    METADATA 3 "Metadata" 9;
    LEADER_AND_ISR 4 "LeaderAndIsr" 4;
    STOP_REPLICA 5 "StopReplica" 2;
    UPDATE_METADATA 6 "UpdateMetadata" 6;
    CONTROLLED_SHUTDOWN 7 "ControlledShutdown" 3;
    OFFSET_COMMIT 8 "OffsetCommit" 8;
    OFFSET_FETCH 9 "OffsetFetch" 6;
    FIND_COORDINATOR 10 "FindCoordinator" 3;
    JOIN_GROUP 11 "JoinGroup" 6;
    HEARTBEAT 12 "Heartbeat" 4;
    LEAVE_GROUP 13 "LeaveGroup" 4;
    SYNC_GROUP 14 "SyncGroup" 4;
    DESCRIBE_GROUPS 15 "DescribeGroups" 5;
    LIST_GROUPS 16 "ListGroups" 3;
    SASL_HANDSHAKE 17 "SaslHandshake" NEVER;
    API_VERSIONS 18 "ApiVersions" 3;
    CREATE_TOPICS 19 "CreateTopics" 5;
    DELETE_TOPICS 20 "DeleteTopics" 4;
    DELETE_RECORDS 21 "DeleteRecords" 2;
    INIT_PRODUCER_ID 22 "InitProducerId" 2;
    OFFSET_FOR_LEADER_EPOCH 23 "OffsetForLeaderEpoch" 4;
    ADD_PARTITIONS_TO_TXN 24 "AddPartitionsToTxn" 3;
    ADD_OFFSETS_TO_TXN 25 "AddOffsetsToTxn" 3;
    END_TXN 26 "EndTxn" 3;
    WRITE_TXN_MARKERS 27 "WriteTxnMarkers" 1;
    TXN_OFFSET_COMMIT 28 "TxnOffsetCommit" 3;
    DESCRIBE_ACLS 29 "DescribeAcls" 2;
    CREATE_ACLS 30 "CreateAcls" 2;
    DELETE_ACLS 31 "DeleteAcls" 2;
    DESCRIBE_CONFIGS 32 "DescribeConfigs" 4;
    ALTER_CONFIGS 33 "AlterConfigs" 2;
    ALTER_REPLICA_LOG_DIRS 34 "AlterReplicaLogDirs" 2;
    DESCRIBE_LOG_DIRS 35 "DescribeLogDirs" 2;
    SASL_AUTHENTICATE 36 "SaslAuthenticate" 2;
    CREATE_PARTITIONS 37 "CreatePartitions" 2;
    CREATE_DELEGATION_TOKEN 38 "CreateDelegationToken" 2;
    RENEW_DELEGATION_TOKEN 39 "RenewDelegationToken" 2;
    EXPIRE_DELEGATION_TOKEN 40 "ExpireDelegationToken" 2;
    DESCRIBE_DELEGATION_TOKEN 41 "DescribeDelegationToken" 2;
    DELETE_GROUPS 42 "DeleteGroups" 2;
    ELECT_LEADERS 43 "ElectLeaders" 2;
    INCREMENTAL_ALTER_CONFIGS 44 "IncrementalAlterConfigs" 1;
    ALTER_PARTITION_REASSIGNMENTS 45 "AlterPartitionReassignments" 0;
    LIST_PARTITION_REASSIGNMENTS 46 "ListPartitionReassignments" 0;
    OFFSET_DELETE 47 "OffsetDelete" NEVER;
    DESCRIBE_CLIENT_QUOTAS 48 "DescribeClientQuotas" 1;
    ALTER_CLIENT_QUOTAS 49 "AlterClientQuotas" 1;
    DESCRIBE_USER_SCRAM_CREDENTIALS 50 "DescribeUserScramCredentials" 0;
    ALTER_USER_SCRAM_CREDENTIALS 51 "AlterUserScramCredentials" 0;
    VOTE 52 "Vote" 0;
    BEGIN_QUORUM_EPOCH 53 "BeginQuorumEpoch" 1;
    END_QUORUM_EPOCH 54 "EndQuorumEpoch" 1;
    DESCRIBE_QUORUM 55 "DescribeQuorum" 0;
    ALTER_PARTITION 56 "AlterPartition" 2;
    UPDATE_FEATURES 57 "UpdateFeatures" 0;
    ENVELOPE 58 "Envelope" 0;
    FETCH_SNAPSHOT 59 "FetchSnapshot" 0;
    DESCRIBE_CLUSTER 60 "DescribeCluster" 0;
    DESCRIBE_PRODUCERS 61 "DescribeProducers" 0;
    BROKER_REGISTRATION 62 "BrokerRegistration" 0;
    BROKER_HEARTBEAT 63 "BrokerHeartbeat" 0;
    UNREGISTER_BROKER 64 "UnregisterBroker" 0;
    DESCRIBE_TRANSACTIONS 65 "DescribeTransactions" 0;
    LIST_TRANSACTIONS 66 "ListTransactions" 0;
    ALLOCATE_PRODUCER_IDS 67 "AllocateProducerIds" 0;
    CONSUMER_GROUP_HEARTBEAT 68 "ConsumerGroupHeartbeat" 0;
    CONSUMER_GROUP_DESCRIBE 69 "ConsumerGroupDescribe" 0;
    CONTROLLER_REGISTRATION 70 "ControllerRegistration" 0;
    GET_TELEMETRY_SUBSCRIPTIONS 71 "GetTelemetrySubscriptions" 0;
    PUSH_TELEMETRY 72 "PushTelemetry" 0;
    ASSIGN_REPLICAS_TO_DIRS 73 "AssignReplicasToDirs" 0;
    LIST_CONFIG_RESOURCES 74 "ListConfigResources" 0;
    DESCRIBE_TOPIC_PARTITIONS 75 "DescribeTopicPartitions" 0;
    SHARE_GROUP_HEARTBEAT 76 "ShareGroupHeartbeat" 1;
    SHARE_GROUP_DESCRIBE 77 "ShareGroupDescribe" 1;
    SHARE_FETCH 78 "ShareFetch" 1;
    SHARE_ACKNOWLEDGE 79 "ShareAcknowledge" 1;
    ADD_RAFT_VOTER 80 "AddRaftVoter" 0;
    REMOVE_RAFT_VOTER 81 "RemoveRaftVoter" 0;
    UPDATE_RAFT_VOTER 82 "UpdateRaftVoter" 0;
    INITIALIZE_SHARE_GROUP_STATE 83 "InitializeShareGroupState" 0;
    READ_SHARE_GROUP_STATE 84 "ReadShareGroupState" 0;
    WRITE_SHARE_GROUP_STATE 85 "WriteShareGroupState" 0;
    DELETE_SHARE_GROUP_STATE 86 "DeleteShareGroupState" 0;
    READ_SHARE_GROUP_STATE_SUMMARY 87 "ReadShareGroupStateSummary" 0;
    STREAMS_GROUP_HEARTBEAT 88 "StreamsGroupHeartbeat" 0;
    STREAMS_GROUP_DESCRIBE 89 "StreamsGroupDescribe" 0;
    DESCRIBE_SHARE_GROUP_OFFSETS 90 "DescribeShareGroupOffsets" 0;
    ALTER_SHARE_GROUP_OFFSETS 91 "AlterShareGroupOffsets" 0;
    DELETE_SHARE_GROUP_OFFSETS 92 "DeleteShareGroupOffsets" 0;
}

impl ApiKey {
    fn fact(self) -> Option<&'static Fact> {
        FACTS.get(usize::try_from(self.0).ok()?)
    }

    /// Kafka's name of the API, such as `Produce`; `Unknown` past the last known key.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.fact().map_or("Unknown", |fact| fact.name)
    }

    /// First version in the flexible encoding; `None` if there is none or the key is unknown.
    #[must_use]
    pub fn first_flexible(self) -> Option<i16> {
        self.fact().map(|fact| fact.flexible).filter(|first| *first != NEVER)
    }

    /// How the body of `version` is encoded, for requests and responses alike.
    #[must_use]
    pub fn encoding(self, version: i16) -> Encoding {
        Encoding::flexible_from(self.first_flexible().unwrap_or(NEVER), version)
    }

    /// Every known API, by key.
    pub fn all() -> impl Iterator<Item = Self> {
        FACTS.iter().map(|fact| Self(fact.key))
    }

    /// Returns the versions this crate can encode and decode on both sides: with its own codecs for Produce, Fetch
    /// and Metadata, with `kafka-protocol`'s for the rest. `None` without a codec.
    ///
    /// This is the widest range a client or a broker may offer; either may offer less.
    #[must_use]
    pub fn coded_versions(self) -> Option<RangeInclusive<i16>> {
        match self {
            Self::PRODUCE => Some(crate::produce::VERSIONS),
            Self::FETCH => Some(crate::fetch::VERSIONS),
            Self::METADATA => Some(crate::metadata::VERSIONS),
            other => crate::cold::versions(other),
        }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fact() {
            Some(fact) => f.write_str(fact.name),
            None => write!(f, "API {}", self.0),
        }
    }
}

/// The broker and this side have no version of an API in common.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no common version of {api}: this side speaks {ours:?}, the broker {}", Theirs(.theirs.as_ref()))]
pub struct UnsupportedVersion {
    /// The API.
    pub api: ApiKey,
    /// Versions that this side supports.
    pub ours: RangeInclusive<i16>,
    /// Versions that the broker offers, `None` if it does not offer the API at all.
    pub theirs: Option<RangeInclusive<i16>>,
}

struct Theirs<'a>(Option<&'a RangeInclusive<i16>>);

impl fmt::Display for Theirs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(range) => write!(f, "{range:?}"),
            None => f.write_str("none"),
        }
    }
}

/// The versions of one API that a broker offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiRange {
    /// The API.
    pub api: ApiKey,
    /// Lowest version.
    pub min: i16,
    /// Highest version.
    pub max: i16,
}

/// A feature of the cluster with its levels (KIP-584), such as `transaction.version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureRange {
    /// Name.
    pub name: String,
    /// Lowest level.
    pub min: i16,
    /// Highest level; for finalized features the level in force.
    pub max: i16,
}

/// The response to ApiVersions: the APIs and features that a broker supports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiVersions {
    /// [`ErrorCode::UNSUPPORTED_VERSION`] if the request was too new. Then `apis` has the range to retry ApiVersions
    /// with, or is empty on brokers before 2.4.
    pub error: ErrorCode,
    /// Quota throttle, in milliseconds.
    pub throttle_time_ms: i32,
    /// Ranges, ordered by key.
    pub apis: Vec<ApiRange>,
    /// Features that the broker supports.
    pub supported_features: Vec<FeatureRange>,
    /// Epoch of the finalized features, -1 if unknown.
    pub finalized_epoch: i64,
    /// Features in force in the cluster.
    pub finalized_features: Vec<FeatureRange>,
}

impl ApiVersions {
    /// Decodes the body of a response to a request of `version`, after the response header. For this API that header
    /// is the bare correlation id in every version.
    ///
    /// A broker that does not know the version responds in the format of version 0 with
    /// [`ErrorCode::UNSUPPORTED_VERSION`] (KIP-511). The error code, the first field in every version, shows which
    /// format it is.
    pub fn decode(version: i16, body: &Bytes) -> Result<Self, DecodeError> {
        const WHAT: &str = "ApiVersions response";
        let error = ErrorCode(Reader::new(body, Encoding::Classic).i16(WHAT)?);
        let version = if error == ErrorCode::UNSUPPORTED_VERSION { 0 } else { version };
        let mut r = Reader::new(body, ApiKey::API_VERSIONS.encoding(version));
        r.i16(WHAT)?;
        let mut answer = Self { error, finalized_epoch: -1, ..Self::default() };
        answer.apis = r.array_of(6, "api_keys", |r| {
            let api = ApiKey(r.i16("api_key")?);
            let range = ApiRange { api, min: r.i16("min_version")?, max: r.i16("max_version")? };
            r.skip_tagged("api_keys")?;
            Ok(range)
        })?;
        answer.apis.sort_by_key(|range| range.api);
        if version >= 1 {
            answer.throttle_time_ms = r.i32("throttle_time_ms")?;
        }
        r.tagged(WHAT, |tag, r| {
            match tag {
                0 => answer.supported_features = features(r, "supported_features", |a, b| (a, b))?,
                1 => answer.finalized_epoch = r.i64("finalized_features_epoch")?,
                // Here the highest level comes first, unlike in the supported features.
                2 => answer.finalized_features = features(r, "finalized_features", |a, b| (b, a))?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(answer)
    }

    /// The versions of `api` that the broker offers.
    #[must_use]
    pub fn range(&self, api: ApiKey) -> Option<RangeInclusive<i16>> {
        let at = self.apis.binary_search_by_key(&api, |range| range.api).ok()?;
        Some(self.apis[at].min..=self.apis[at].max)
    }

    /// The highest version that both sides support.
    pub fn negotiate(
        &self,
        api: ApiKey,
        ours: RangeInclusive<i16>,
    ) -> Result<i16, UnsupportedVersion> {
        let theirs = self.range(api);
        let common = theirs.as_ref().and_then(|theirs| {
            let min = *theirs.start().max(ours.start());
            let max = *theirs.end().min(ours.end());
            (min <= max).then_some(max)
        });
        common.ok_or(UnsupportedVersion { api, ours, theirs })
    }

    /// The level in force of a finalized feature, such as `transaction.version`.
    #[must_use]
    pub fn finalized_level(&self, name: &str) -> Option<i16> {
        self.finalized_features.iter().find(|feature| feature.name == name).map(|f| f.max)
    }
}

fn features(
    r: &mut Reader<'_>,
    what: &'static str,
    order: fn(i16, i16) -> (i16, i16),
) -> Result<Vec<FeatureRange>, DecodeError> {
    r.array_of(6, what, |r| {
        let name = r.string(what)?.to_owned();
        let (min, max) = order(r.i16(what)?, r.i16(what)?);
        r.skip_tagged(what)?;
        Ok(FeatureRange { name, min, max })
    })
}
