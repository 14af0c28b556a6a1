//! The error codes of the protocol, as of Kafka 4.3.

use std::fmt;

#[cfg(test)]
mod tests;

/// An error code in a response. Codes newer than this table are representable and not retriable.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

/// A client's options after an error, according to Kafka's exception classes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remedy {
    /// Repeating the request does not help.
    Final,
    /// A repeated request may succeed later.
    Retriable,
    /// A repeated request may succeed after a metadata refresh.
    Metadata,
}

struct Fact {
    name: &'static str,
    remedy: Remedy,
    message: &'static str,
}

macro_rules! error_codes {
    ($($name:ident $code:literal $remedy:ident $message:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $message]
            pub const $name: Self = Self($code);)*
        }

        /// From code -1, without gaps.
        const FACTS: &[Fact] = &[$(Fact {
            name: stringify!($name),
            remedy: Remedy::$remedy,
            message: $message,
        },)*];

        #[cfg(test)]
        const CODES: &[i16] = &[$($code,)*];
    };
}

error_codes! {
    UNKNOWN_SERVER_ERROR -1 Final "The broker failed with an unexpected error.";
    NONE 0 Final "No error.";
    OFFSET_OUT_OF_RANGE 1 Final "The offset is outside the partition's log.";
    CORRUPT_MESSAGE 2 Retriable "A batch is corrupt: bad checksum, bad size, or no key on a compacted topic.";
    UNKNOWN_TOPIC_OR_PARTITION 3 Metadata "The broker does not know the topic or partition.";
    INVALID_FETCH_SIZE 4 Final "The requested fetch size is not valid.";
    LEADER_NOT_AVAILABLE 5 Metadata "The partition has no leader at the moment.";
    NOT_LEADER_OR_FOLLOWER 6 Metadata "The broker is not the leader, or not a replica, of the partition.";
    REQUEST_TIMED_OUT 7 Retriable "The broker did not finish the request in time.";
    BROKER_NOT_AVAILABLE 8 Final "The broker is not available.";
    REPLICA_NOT_AVAILABLE 9 Metadata "The replica is not available on this broker.";
    MESSAGE_TOO_LARGE 10 Final "A batch is larger than the topic allows.";
    STALE_CONTROLLER_EPOCH 11 Final "The controller moved to another node.";
    OFFSET_METADATA_TOO_LARGE 12 Final "The metadata committed with an offset is too long.";
    NETWORK_EXCEPTION 13 Metadata "The connection was closed before the response.";
    COORDINATOR_LOAD_IN_PROGRESS 14 Retriable "The coordinator is still loading its state.";
    COORDINATOR_NOT_AVAILABLE 15 Retriable "The coordinator is not available at the moment.";
    NOT_COORDINATOR 16 Retriable "The broker is not the coordinator of this group or transaction.";
    INVALID_TOPIC_EXCEPTION 17 Final "The topic name is not valid for this operation.";
    RECORD_LIST_TOO_LARGE 18 Final "A batch is larger than a log segment may be.";
    NOT_ENOUGH_REPLICAS 19 Retriable "Too few replicas are in sync to accept the records.";
    NOT_ENOUGH_REPLICAS_AFTER_APPEND 20 Retriable "The records were appended but too few replicas were in sync.";
    INVALID_REQUIRED_ACKS 21 Final "The requested acks are not -1, 0 or 1.";
    ILLEGAL_GENERATION 22 Final "The group generation is not the current one.";
    INCONSISTENT_GROUP_PROTOCOL 23 Final "The member's protocols do not fit those of the group.";
    INVALID_GROUP_ID 24 Final "The group id is not valid.";
    UNKNOWN_MEMBER_ID 25 Final "The coordinator does not know the member.";
    INVALID_SESSION_TIMEOUT 26 Final "The session timeout is outside the broker's bounds.";
    REBALANCE_IN_PROGRESS 27 Final "The group is rebalancing and the member must join again.";
    INVALID_COMMIT_OFFSET_SIZE 28 Final "The offsets to commit take too much space.";
    TOPIC_AUTHORIZATION_FAILED 29 Final "The principal is not authorized for this operation on the topic.";
    GROUP_AUTHORIZATION_FAILED 30 Final "The principal is not authorized for this operation on the group.";
    CLUSTER_AUTHORIZATION_FAILED 31 Final "The principal is not authorized for this operation on the cluster.";
    INVALID_TIMESTAMP 32 Final "A record's timestamp is outside what the topic accepts.";
    UNSUPPORTED_SASL_MECHANISM 33 Final "The broker does not offer the SASL mechanism.";
    ILLEGAL_SASL_STATE 34 Final "The request does not fit the state of the SASL exchange.";
    UNSUPPORTED_VERSION 35 Final "The broker does not support this version of the API.";
    TOPIC_ALREADY_EXISTS 36 Final "A topic of this name exists already.";
    INVALID_PARTITIONS 37 Final "The number of partitions is not valid.";
    INVALID_REPLICATION_FACTOR 38 Final "The replication factor is not possible with the live brokers.";
    INVALID_REPLICA_ASSIGNMENT 39 Final "The replica assignment is not valid.";
    INVALID_CONFIG 40 Final "A configuration value is not valid.";
    NOT_CONTROLLER 41 Retriable "The node is not the active controller.";
    INVALID_REQUEST 42 Final "The broker rejected the request as invalid.";
    UNSUPPORTED_FOR_MESSAGE_FORMAT 43 Final "The message format on the broker cannot serve the request.";
    POLICY_VIOLATION 44 Final "A policy of the cluster refuses the request.";
    OUT_OF_ORDER_SEQUENCE_NUMBER 45 Final "A sequence number does not follow the last one of the producer.";
    DUPLICATE_SEQUENCE_NUMBER 46 Final "The sequence number was appended before.";
    INVALID_PRODUCER_EPOCH 47 Final "The producer's epoch is older than the current one.";
    INVALID_TXN_STATE 48 Final "The transaction is not in a state that allows this.";
    INVALID_PRODUCER_ID_MAPPING 49 Final "The producer id does not belong to this transactional id.";
    INVALID_TRANSACTION_TIMEOUT 50 Final "The transaction timeout is more than the broker allows.";
    CONCURRENT_TRANSACTIONS 51 Retriable "An earlier operation on the transaction has not finished.";
    TRANSACTION_COORDINATOR_FENCED 52 Final "The coordinator that sent the transaction marker has been replaced.";
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED 53 Final "The principal is not authorized to use this transactional id.";
    SECURITY_DISABLED 54 Final "Security is not enabled on the broker.";
    OPERATION_NOT_ATTEMPTED 55 Final "The broker did not attempt this part of the request.";
    KAFKA_STORAGE_ERROR 56 Metadata "The broker could not read or write its disk.";
    LOG_DIR_NOT_FOUND 57 Final "The broker has no such log directory.";
    SASL_AUTHENTICATION_FAILED 58 Final "The SASL credentials were refused.";
    UNKNOWN_PRODUCER_ID 59 Final "The broker no longer knows the producer id.";
    REASSIGNMENT_IN_PROGRESS 60 Final "The partition is being reassigned.";
    DELEGATION_TOKEN_AUTH_DISABLED 61 Final "Delegation tokens are not enabled.";
    DELEGATION_TOKEN_NOT_FOUND 62 Final "The delegation token does not exist.";
    DELEGATION_TOKEN_OWNER_MISMATCH 63 Final "The principal does not own the delegation token.";
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED 64 Final "Delegation tokens cannot be requested over this connection.";
    DELEGATION_TOKEN_AUTHORIZATION_FAILED 65 Final "The principal is not authorized for this operation on the delegation token.";
    DELEGATION_TOKEN_EXPIRED 66 Final "The delegation token has expired.";
    INVALID_PRINCIPAL_TYPE 67 Final "The type of principal is not supported.";
    NON_EMPTY_GROUP 68 Final "The group still has members.";
    GROUP_ID_NOT_FOUND 69 Final "The group does not exist.";
    FETCH_SESSION_ID_NOT_FOUND 70 Retriable "The broker does not know the fetch session.";
    INVALID_FETCH_SESSION_EPOCH 71 Retriable "The fetch session's epoch is not the expected one.";
    LISTENER_NOT_FOUND 72 Metadata "The leader has no listener with the name of the request's listener.";
    TOPIC_DELETION_DISABLED 73 Final "Topics cannot be deleted on this cluster.";
    FENCED_LEADER_EPOCH 74 Metadata "The leader epoch in the request is older than the broker's.";
    UNKNOWN_LEADER_EPOCH 75 Retriable "The leader epoch in the request is newer than the broker's.";
    UNSUPPORTED_COMPRESSION_TYPE 76 Final "The partition's compression is not supported by the request's version.";
    STALE_BROKER_EPOCH 77 Final "The broker's epoch has changed.";
    OFFSET_NOT_AVAILABLE 78 Retriable "The new leader cannot return offsets yet.";
    MEMBER_ID_REQUIRED 79 Final "The member must join again with the id from the response.";
    PREFERRED_LEADER_NOT_AVAILABLE 80 Metadata "The preferred leader is not available.";
    GROUP_MAX_SIZE_REACHED 81 Final "The group has reached its maximum size.";
    FENCED_INSTANCE_ID 82 Final "Another member uses the same group instance id.";
    ELIGIBLE_LEADERS_NOT_AVAILABLE 83 Metadata "No replica is eligible as leader.";
    ELECTION_NOT_NEEDED 84 Metadata "The partition already has the elected leader.";
    NO_REASSIGNMENT_IN_PROGRESS 85 Final "The partition is not being reassigned.";
    GROUP_SUBSCRIBED_TO_TOPIC 86 Final "The group is subscribed to the topic.";
    INVALID_RECORD 87 Final "The broker refused a record.";
    UNSTABLE_OFFSET_COMMIT 88 Retriable "The offsets include some of an open transaction.";
    THROTTLING_QUOTA_EXCEEDED 89 Retriable "A throttling quota was exceeded.";
    PRODUCER_FENCED 90 Final "A newer producer with the same transactional id has taken over.";
    RESOURCE_NOT_FOUND 91 Final "The request names something that does not exist.";
    DUPLICATE_RESOURCE 92 Final "The request names the same thing twice.";
    UNACCEPTABLE_CREDENTIAL 93 Final "The new credential does not meet the requirements.";
    INCONSISTENT_VOTER_SET 94 Final "The voters in the request are not those of the node.";
    INVALID_UPDATE_VERSION 95 Final "The feature update has a version that is not valid.";
    FEATURE_UPDATE_FAILED 96 Final "The features could not be updated.";
    PRINCIPAL_DESERIALIZATION_FAILURE 97 Final "The principal forwarded with the request could not be read.";
    SNAPSHOT_NOT_FOUND 98 Final "The snapshot does not exist.";
    POSITION_OUT_OF_RANGE 99 Final "The position is outside the snapshot.";
    UNKNOWN_TOPIC_ID 100 Metadata "The broker does not know the topic id.";
    DUPLICATE_BROKER_REGISTRATION 101 Final "The broker id is in use.";
    BROKER_ID_NOT_REGISTERED 102 Final "The broker id is not registered.";
    INCONSISTENT_TOPIC_ID 103 Metadata "The topic id in the request is not the one in the log.";
    INCONSISTENT_CLUSTER_ID 104 Final "The cluster id in the request is not this cluster's.";
    TRANSACTIONAL_ID_NOT_FOUND 105 Final "The transactional id does not exist.";
    FETCH_SESSION_TOPIC_ID_ERROR 106 Retriable "The fetch session mixes topics with and without ids.";
    INELIGIBLE_REPLICA 107 Final "A replica cannot join the in-sync set.";
    NEW_LEADER_ELECTED 108 Final "The partition changed and has a new leader.";
    OFFSET_MOVED_TO_TIERED_STORAGE 109 Final "The offset is in tiered storage now.";
    FENCED_MEMBER_EPOCH 110 Final "The member's epoch has been fenced and it must join again.";
    UNRELEASED_INSTANCE_ID 111 Final "The group instance id has not been released by its last member.";
    UNSUPPORTED_ASSIGNOR 112 Final "The group's coordinator has no such assignor.";
    STALE_MEMBER_EPOCH 113 Final "The member's epoch is not the current one.";
    MISMATCHED_ENDPOINT_TYPE 114 Final "The request went to the wrong kind of endpoint.";
    UNSUPPORTED_ENDPOINT_TYPE 115 Final "The kind of endpoint is not supported.";
    UNKNOWN_CONTROLLER_ID 116 Final "The controller id is not known.";
    UNKNOWN_SUBSCRIPTION_ID 117 Final "The telemetry subscription is not valid or not current.";
    TELEMETRY_TOO_LARGE 118 Final "The telemetry is more than the broker accepts.";
    INVALID_REGISTRATION 119 Final "The controller refuses the registration.";
    TRANSACTION_ABORTABLE 120 Final "The transaction must be aborted.";
    INVALID_RECORD_STATE 121 Final "The record is not in a state that allows this acknowledgement.";
    SHARE_SESSION_NOT_FOUND 122 Retriable "The broker does not know the share session.";
    INVALID_SHARE_SESSION_EPOCH 123 Retriable "The share session's epoch is not the expected one.";
    FENCED_STATE_EPOCH 124 Final "The share state's epoch does not match.";
    INVALID_VOTER_KEY 125 Final "The voter's key is not the one of the node.";
    DUPLICATE_VOTER 126 Final "The voter already exists.";
    VOTER_NOT_FOUND 127 Final "The voter is not one of the voters.";
    INVALID_REGULAR_EXPRESSION 128 Final "The regular expression is not valid.";
    REBOOTSTRAP_REQUIRED 129 Final "The client's metadata is too old; the client must start again from its bootstrap servers.";
    STREAMS_INVALID_TOPOLOGY 130 Final "The streams topology is not valid.";
    STREAMS_INVALID_TOPOLOGY_EPOCH 131 Final "The epoch of the streams topology is not valid.";
    STREAMS_TOPOLOGY_FENCED 132 Final "The epoch of the streams topology is not the current one.";
    SHARE_SESSION_LIMIT_REACHED 133 Retriable "The broker has reached its limit of share sessions.";
}

impl ErrorCode {
    fn fact(self) -> Option<&'static Fact> {
        FACTS.get(usize::try_from(i32::from(self.0) + 1).ok()?)
    }

    /// Whether this is an error.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 != 0
    }

    /// Whether this is [`ErrorCode::NONE`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// `Ok` for [`ErrorCode::NONE`], the code itself otherwise.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_none() { Ok(()) } else { Err(self) }
    }

    /// Kafka's name, such as `NOT_LEADER_OR_FOLLOWER`; `UNKNOWN_CODE` past the last known code.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.fact().map_or("UNKNOWN_CODE", |fact| fact.name)
    }

    /// Whether Kafka declares the error retriable.
    #[must_use]
    pub fn is_retriable(self) -> bool {
        self.fact().is_some_and(|fact| fact.remedy != Remedy::Final)
    }

    /// Whether Kafka declares that the error means outdated metadata.
    #[must_use]
    pub fn invalidates_metadata(self) -> bool {
        self.fact().is_some_and(|fact| fact.remedy == Remedy::Metadata)
    }

    /// One sentence for people.
    #[must_use]
    pub fn message(self) -> &'static str {
        self.fact()
            .map_or("The broker returned an error code that this version does not know.", |f| {
                f.message
            })
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
