//! Settings of Apache Kafka's brokers that this cluster does not have.
//!
//! A `server.properties` and the environment of Kafka's images contain settings about processes, disks
//! and threads that the embedded cluster does not have. [`ClusterConfig::set_server_property`] accepts
//! those without effect, and refuses those that would change what clients see.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::{ClusterConfig, ConfigError, INERT, Inert, properties::nearest};
use crate::topic_config::DefaultSetting;

/// The effect of a server property on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The property is set, or the cluster behaves like that anyway.
    Set,
    /// None, because the cluster has nothing that the property could apply to.
    None {
        /// The setting of this cluster to use instead, if there is one.
        instead: Option<&'static str>,
        /// What clients see that Apache Kafka would do otherwise with this value, if anything.
        difference: Option<&'static str>,
    },
}

impl Effect {
    const NOTHING: Self = Self::None { instead: None, difference: None };
}

/// Settings without effect, in addition to those that can change at run time ([`INERT`]). A name that ends with a dot stands
/// for all names that begin with it.
const WITHOUT_EFFECT: &[&str] = &[
    "auto.include.jmx.reporter",
    "auto.leader.rebalance.enable",
    "broker.id",
    "broker.id.generation.enable",
    "confluent.",
    "controlled.shutdown.enable",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "controller.quorum.",
    "controller.socket.timeout.ms",
    "delete.records.purgatory.purge.interval.requests",
    "early.start.listeners",
    "fetch.purgatory.purge.interval.requests",
    "group.coordinator.append.linger.ms",
    "group.coordinator.threads",
    "initial.broker.registration.timeout.ms",
    "inter.broker.protocol.version",
    "kafka.metrics.",
    "leader.imbalance.check.interval.seconds",
    "leader.imbalance.per.broker.percentage",
    "log.dir",
    "log.dirs",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "metadata.log.",
    "metadata.max.",
    "metrics.",
    "node.id",
    "num.replica.alter.log.dirs.threads",
    "offsets.load.buffer.size",
    "process.roles",
    "producer.purgatory.purge.interval.requests",
    "queued.max.request.bytes",
    "queued.max.requests",
    "replica.high.watermark.checkpoint.interval.ms",
    "replica.socket.receive.buffer.bytes",
    "replica.socket.timeout.ms",
    "reserved.broker.max.id",
    "sasl.mechanism.controller.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "security.inter.broker.protocol",
    "server.max.startup.time.ms",
    "share.coordinator.",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "transaction.state.log.load.buffer.size",
    "zookeeper.",
];

/// Settings that have one value here: the name, the value, and why others are refused. Of those that are
/// also among the ones without effect, other values are accepted.
const FIXED: &[(&str, &str, &str)] = &[
    ("auto.leader.rebalance.enable", "false", PREFERRED),
    ("delete.topic.enable", "true", "topics of the embedded cluster can be deleted"),
    ("group.coordinator.rebalance.protocols", "classic,consumer,streams", PROTOCOLS),
    // The default of Kafka 4.0 and 4.1.
    ("group.coordinator.rebalance.protocols", "classic,consumer", PROTOCOLS),
    ("log.cleaner.enable", "true", "the log cleaner is always on"),
    ("max.connections.per.ip", "2147483647", OTHER),
    ("ssl.endpoint.identification.algorithm", "", OTHER),
    ("ssl.keystore.type", "PEM", STORES),
    ("ssl.truststore.type", "PEM", STORES),
    ("transaction.partition.verification.enable", "true", "partitions are always verified"),
];

const PREFERRED: &str = "preferred leaders are elected on request only";
const PROTOCOLS: &str =
    "the group coordinator of the embedded cluster has the protocols classic, consumer and streams";
const STORES: &str = "key and trust stores are PEM files: ssl.keystore.location, ssl.key.password, ssl.truststore.location";
const USERS: &str =
    "SASL users are given with --user-file or CURTAIL_USERS, in a test with `security.users`";
const SHARE_GROUPS: &str = "the embedded cluster has no share groups";
const OTHER: &str = "Apache Kafka has this property, the embedded cluster does not support it";

/// Settings that are refused, with the reason. The first match counts.
const REFUSED: &[(&str, &str)] = &[
    (
        "listener.name.",
        "listeners share their settings of TLS and SASL; SASL users are given with --user-file or CURTAIL_USERS",
    ),
    ("sasl.jaas.config", USERS),
    ("sasl.kerberos.", "Kerberos is not supported"),
    ("sasl.server.callback.handler.class", USERS),
    ("ssl.key.credentials", STORES),
    ("ssl.keystore.", STORES),
    ("ssl.truststore.", STORES),
    ("remote.log.", "the embedded cluster has no tiered storage"),
    ("group.share.", SHARE_GROUPS),
    ("share.", SHARE_GROUPS),
    ("group.streams.assignor.offload.enable", OTHER),
    ("delegation.token.", "the embedded cluster has no delegation tokens"),
    (
        "config.providers",
        "variables of config providers are not replaced here; give the values themselves",
    ),
    ("alter.config.policy.class.name", OTHER),
    ("alter.log.dirs.replication.quota.", OTHER),
    ("client.quota.callback.class", OTHER),
    ("control.plane.listener.name", OTHER),
    ("controller.quota.", OTHER),
    ("create.topic.policy.class.name", OTHER),
    ("eligible.leader.replicas.enable", OTHER),
    ("group.consumer.migration.policy", OTHER),
    ("group.max.size", OTHER),
    ("log.cleaner.", OTHER),
    ("log.deletion.delay.ms", OTHER),
    ("log.dir.failure.timeout.ms", OTHER),
    ("log.initial.task.delay.ms", OTHER),
    ("log.message.", OTHER),
    ("max.connection.creation.rate", OTHER),
    ("max.connections.per.ip.overrides", OTHER),
    ("max.request.partition.size.limit", OTHER),
    ("offsets.topic.compression.codec", OTHER),
    ("offsets.topic.segment.bytes", OTHER),
    ("principal.builder.class", OTHER),
    ("producer.id.expiration.check.interval.ms", OTHER),
    ("quota.window.", OTHER),
    ("replica.fetch.min.bytes", OTHER),
    ("replication.quota.window.", OTHER),
    ("sasl.login.", OTHER),
    ("sasl.oauthbearer.", OTHER),
    ("sasl.server.max.receive.size", OTHER),
    ("security.providers", OTHER),
    ("ssl.", OTHER),
    ("transaction.state.log.segment.bytes", OTHER),
    ("unclean.leader.election.interval.ms", OTHER),
    ("unstable.", OTHER),
];

const NO_EFFECT: &str =
    "Apache Kafka has this property, in the embedded cluster it would have no effect";
const NOT_A_BROKER: &str =
    "these settings are those of a controller; the embedded cluster starts brokers";
const SEVERAL_NODES: &str = "all brokers of an embedded cluster run in one process; start one with --brokers N instead of several nodes";

fn matches(name: &str, pattern: &str) -> bool {
    match pattern.ends_with('.') {
        true => name.starts_with(pattern),
        false => name == pattern,
    }
}

fn has_no_effect(name: &str) -> bool {
    Inert::named(name).is_some() || WITHOUT_EFFECT.iter().any(|pattern| matches(name, pattern))
}

/// Returns whether two values of a setting mean the same: booleans in upper or lower case, numbers with
/// other digits, lists in another order.
fn is_same(value: &str, only: &str) -> bool {
    let (value, number) = (value.trim(), |text: &str| text.parse::<i64>().ok());
    let items =
        |text: &str| text.split(',').map(|item| item.trim().to_owned()).collect::<BTreeSet<_>>();
    match only {
        "true" | "false" => value.eq_ignore_ascii_case(only),
        only if number(only).is_some() => number(value) == number(only),
        only => items(value) == items(only),
    }
}

/// Returns why a name that is no property of the cluster is refused.
pub(super) fn refusal(name: &str, known: impl Iterator<Item = &'static str>) -> ConfigError {
    let trimmed = name.trim();
    let fixed = FIXED.iter().find(|(fixed, ..)| *fixed == trimmed).map(|(_, _, reason)| *reason);
    let refused = || REFUSED.iter().find(|(pattern, _)| matches(trimmed, pattern));
    let reason = fixed
        .or_else(|| has_no_effect(trimmed).then_some(NO_EFFECT))
        .or_else(|| refused().map(|(_, reason)| *reason));
    if let Some(reason) = reason {
        return ConfigError::Unsupported { name: trimmed.into(), reason };
    }
    let foreign = WITHOUT_EFFECT.iter().filter(|name| !name.ends_with('.'));
    let foreign = foreign.chain(FIXED.iter().map(|(name, ..)| name)).copied();
    let foreign = foreign.chain(INERT.iter().map(|setting| setting.name));
    let near = nearest(trimmed, known).or_else(|| nearest(trimmed, foreign));
    ConfigError::Unknown { name: name.into(), nearest: near }
}

/// Returns why a setting without effect describes nodes that the cluster cannot replace.
fn other_cluster(name: &str, value: &str) -> Option<&'static str> {
    let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.collect();
    match name {
        "process.roles" if !parts.is_empty() && !parts.contains(&"broker") => Some(NOT_A_BROKER),
        "controller.quorum.voters" | "controller.quorum.bootstrap.servers" if parts.len() > 1 => {
            Some(SEVERAL_NODES)
        }
        _ => None,
    }
}

impl ClusterConfig {
    /// Sets one value as it is in a `server.properties` of Apache Kafka. Unlike
    /// [`ClusterConfig::set`], it accepts settings of a server that would have no effect here, such
    /// as numbers of threads.
    ///
    /// # Errors
    /// As [`ClusterConfig::set`], except for settings without effect; a `process.roles` without
    /// brokers; a quorum of several controllers.
    pub fn set_server_property(&mut self, name: &str, value: &str) -> Result<Effect, ConfigError> {
        let name = name.trim();
        if FIXED.iter().any(|(fixed, only, _)| *fixed == name && is_same(value, only)) {
            return Ok(Effect::Set);
        }
        if !has_no_effect(name) {
            self.set(name, value)?;
            let has_effect = DefaultSetting::named(name).is_none_or(|setting| setting.has_effect);
            return Ok(if has_effect { Effect::Set } else { Effect::NOTHING });
        }
        if let Some(reason) = other_cluster(name, value) {
            return Err(ConfigError::Unsupported { name: name.into(), reason });
        }
        Inert::named(name).map_or(Ok(()), |setting| setting.check(value))?;
        let instead = matches!(name, "log.dir" | "log.dirs").then_some("--data DIR");
        let difference = FIXED.iter().find(|(fixed, ..)| *fixed == name).map(|(.., why)| *why);
        Ok(Effect::None { instead, difference })
    }
}
