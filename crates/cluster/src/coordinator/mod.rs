//! Coordinators: groups and transactions, whose state is stored in the log of an internal topic.
//!
//! A key (a group id or a transactional id) belongs to one partition of the topic, and that
//! partition's leader is the key's coordinator. [`runtime`] implements the common part. It loads a
//! partition's state when this broker becomes the leader, drops it when the leadership ends, and
//! appends changes in the leader's epoch only. A broker has one [`runtime::Coordinator`] of each
//! kind. `Broker::apply` passes it new metadata after the replicas have assumed their roles, and a
//! task of the incarnation runs its timers.
//!
//! The topics have `cleanup.policy=compact`: retention deletes nothing from them, and the log cleaner
//! removes replaced values. Loading must not depend on removed records or on the offsets between.

#[cfg(test)]
pub(crate) mod bench;
pub(crate) mod consumer;
mod deadlines;
mod epochs;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod offsets;
pub(crate) mod records;
pub(crate) mod runtime;
pub(crate) mod step;
pub(crate) mod streams;
#[cfg(test)]
mod tests;
pub(crate) mod topics;

use curtail_wire::ErrorCode;

use crate::{
    broker::Broker,
    config::ClusterConfig,
    controller::TopicSpec,
    image::{BrokerImage, Image},
};

/// The kind of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Group,
    Transaction,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Group, Self::Transaction];

    /// Returns the topic whose log stores the state.
    pub(crate) fn topic(self) -> &'static str {
        match self {
            Self::Group => "__consumer_offsets",
            Self::Transaction => "__transaction_state",
        }
    }

    /// Returns the kind for a key type of FindCoordinator.
    pub(crate) fn of_key_type(key_type: i8) -> Option<Self> {
        match key_type {
            0 => Some(Self::Group),
            1 => Some(Self::Transaction),
            _ => None,
        }
    }

    /// Returns the kind whose state a topic stores.
    pub(crate) fn of_topic(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.topic() == name)
    }

    /// Returns the specification for creating the topic. Replication factor and
    /// `min.insync.replicas` are limited to the number of brokers, because embedded clusters may
    /// have fewer than Kafka's defaults require.
    pub(crate) fn topic_spec(self, config: &ClusterConfig) -> TopicSpec {
        let (partitions, factor, min_isr) = match self {
            Self::Group => {
                (config.offsets_topic_partitions, config.offsets_topic_replication_factor, None)
            }
            Self::Transaction => (
                config.transaction_log_partitions,
                config.transaction_log_replication_factor,
                Some(config.transaction_log_min_isr),
            ),
        };
        let brokers = i16::try_from(config.brokers).unwrap_or(i16::MAX);
        let factor = factor.min(brokers);
        // As in Kafka, the brokers' defaults do not apply to what would lose state or change its records.
        let fixed: &[_] = match self {
            Self::Group => &[("cleanup.policy", "compact"), ("compression.type", "producer")],
            Self::Transaction => &[
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("unclean.leader.election.enable", "false"),
            ],
        };
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut configs: Vec<_> = fixed.iter().map(own).collect();
        if let Some(min_isr) = min_isr {
            configs.push(("min.insync.replicas".to_owned(), min_isr.min(factor).to_string()));
        }
        TopicSpec {
            name: self.topic().to_owned(),
            partitions,
            replication_factor: factor,
            assignment: Vec::new(),
            configs,
        }
    }
}

/// Returns the partition of a key: Java's `String.hashCode` made positive, modulo the number of
/// partitions.
pub(crate) fn partition_for(key: &str, partitions: usize) -> i32 {
    let hash = key
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    let positive = if hash == i32::MIN { 0 } else { hash.unsigned_abs() as usize };
    i32::try_from(positive % partitions.max(1)).unwrap_or(0)
}

/// Returns the partition of a key's state; `None` before the topic exists.
pub(crate) fn partition_of(image: &Image, kind: Kind, key: &str) -> Option<i32> {
    Some(partition_for(key, image.topic(kind.topic())?.partitions.len()))
}

/// Returns the coordinator of a key. Creates the topic if it does not exist.
///
/// # Errors
/// COORDINATOR_NOT_AVAILABLE while the topic or its partition's leader is missing.
pub(crate) fn find(broker: &Broker, kind: Kind, key: &str) -> Result<BrokerImage, ErrorCode> {
    let image = broker.image();
    let Some(topic) = image.topic(kind.topic()) else {
        create(broker, kind);
        return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
    };
    let index = partition_for(key, topic.partitions.len());
    let leader = topic.partitions.get(index as usize).map(|partition| partition.leader);
    leader
        .and_then(|leader| image.live_broker(leader))
        .cloned()
        .ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)
}

fn create(broker: &Broker, kind: Kind) {
    match broker.controller.create_topic(&kind.topic_spec(&broker.config)) {
        Ok(_) | Err((ErrorCode::TOPIC_ALREADY_EXISTS, _)) => {}
        Err((code, reason)) => {
            tracing::warn!(
                topic = kind.topic(),
                code = code.name(),
                reason,
                "internal topic was not created"
            );
        }
    }
}
