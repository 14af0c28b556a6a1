//! Arguments of the admin client, from tuples that `curtail_kafka._admin` makes.

use std::time::Duration;

use curtail::{
    TopicPartition, Uuid,
    admin::{
        AbortTransaction, Acl, AclFilter, AclOperation, AclPattern, AclPatternFilter,
        AclPermission, AclResource, ConfigChange, ConfigResource, ConfigResourceKind, Election,
        FeatureUpdate, GroupMember, Mode, NewPartitions, NewTopic, OffsetSpec, QuotaChange,
        QuotaFilter, QuotaMatch, ScramChange, ScramMechanism, TransactionFilter,
    },
    config::IsolationLevel,
};
use pyo3::prelude::*;

use crate::error;

pub(super) type At = (String, i32);
pub(super) type Pairs = Vec<(String, String)>;
pub(super) type Topic = (String, i32, i16, Pairs);
pub(super) type Partitions = (String, i32, Option<Vec<Vec<i32>>>);
pub(super) type Resource = (String, String);
pub(super) type Change = (String, String, Option<String>);
pub(super) type AclFields = (String, String, String, String, String, String, String);
pub(super) type AclFilterFields = (
    Option<String>,
    Option<String>,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
);
/// Type of the entity, kind of the match, and name.
pub(super) type Component = (String, String, String);
pub(super) type Scram = (String, String, Option<Vec<u8>>, Option<u32>, Option<Vec<u8>>);

pub(super) fn partition((topic, index): At) -> TopicPartition {
    TopicPartition::new(topic, index)
}

pub(super) fn partitions(all: Vec<At>) -> Vec<TopicPartition> {
    all.into_iter().map(partition).collect()
}

/// Borrows texts as requests take them.
pub(super) fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

pub(super) fn ids(all: Vec<[u8; 16]>) -> Vec<Uuid> {
    all.into_iter().map(Uuid).collect()
}

pub(super) fn mode(validate_only: bool) -> Mode {
    if validate_only { Mode::Validate } else { Mode::Apply }
}

/// Returns the value of this name. The error lists all names.
fn choice<T>(
    py: Python<'_>,
    what: &str,
    name: &str,
    all: impl IntoIterator<Item = (&'static str, T)>,
) -> PyResult<T> {
    let mut names = Vec::new();
    for (known, value) in all {
        if known == name {
            return Ok(value);
        }
        names.push(known);
    }
    Err(error::config(py, &format!("{what} '{name}': must be one of {}", names.join(", "))))
}

pub(super) fn topic((name, partitions, replicas, configs): Topic) -> NewTopic {
    let topic = NewTopic::new(name).partitions(partitions).replication_factor(replicas);
    configs.into_iter().fold(topic, |topic, (name, value)| topic.config(name, value))
}

pub(super) fn new_partitions((topic, total, replicas): Partitions) -> NewPartitions {
    let mut partitions = NewPartitions::new(topic, total);
    partitions.replicas = replicas;
    partitions
}

pub(super) fn resource(py: Python<'_>, (kind, name): Resource) -> PyResult<ConfigResource> {
    let id = |name: &str| {
        let wrong = |_| error::config(py, &format!("broker '{name}': must be a number"));
        name.parse().map_err(wrong)
    };
    Ok(match kind.as_str() {
        "topic" => ConfigResource::Topic(name),
        "broker" if name.is_empty() => ConfigResource::AllBrokers,
        "broker" => ConfigResource::Broker(id(&name)?),
        "broker-logger" => ConfigResource::BrokerLogger(id(&name)?),
        "group" => ConfigResource::Group(name),
        "client-metrics" => ConfigResource::ClientMetrics(name),
        _ => {
            let all = ["topic", "broker", "broker-logger", "group", "client-metrics"];
            return choice(
                py,
                "resource",
                &kind,
                all.map(|name| (name, ConfigResource::AllBrokers)),
            );
        }
    })
}

/// Type and name of a resource.
pub(super) fn resource_names(resource: &ConfigResource) -> (&'static str, String) {
    match resource {
        ConfigResource::Topic(name) => ("topic", name.clone()),
        ConfigResource::Broker(id) => ("broker", id.to_string()),
        ConfigResource::BrokerLogger(id) => ("broker-logger", id.to_string()),
        ConfigResource::Group(name) => ("group", name.clone()),
        ConfigResource::ClientMetrics(name) => ("client-metrics", name.clone()),
        _ => ("broker", String::new()),
    }
}

pub(super) fn change(py: Python<'_>, (action, name, value): Change) -> PyResult<ConfigChange> {
    Ok(match (action.as_str(), value) {
        ("delete", _) => ConfigChange::Delete(name),
        ("set", Some(value)) => ConfigChange::Set(name, value),
        ("append", Some(value)) => ConfigChange::Append(name, value),
        ("subtract", Some(value)) => ConfigChange::Subtract(name, value),
        ("set" | "append" | "subtract", None) => {
            return Err(error::config(py, &format!("change of '{name}': {action} needs a value")));
        }
        _ => {
            let all = ["set", "delete", "append", "subtract"].map(|name| (name, ()));
            choice(py, "change", &action, all)?;
            ConfigChange::Delete(name)
        }
    })
}

pub(super) fn isolation(py: Python<'_>, name: &str) -> PyResult<IsolationLevel> {
    let all = [
        ("read_uncommitted", IsolationLevel::ReadUncommitted),
        ("read_committed", IsolationLevel::ReadCommitted),
    ];
    choice(py, "isolation_level", name, all)
}

pub(super) fn election(py: Python<'_>, name: &str) -> PyResult<Election> {
    let all = [("preferred", Election::Preferred), ("unclean", Election::Unclean)];
    choice(py, "election", name, all)
}

pub(super) fn feature_update(py: Python<'_>, level: i16, kind: &str) -> PyResult<FeatureUpdate> {
    let all = [
        ("upgrade", FeatureUpdate::Upgrade(level)),
        ("safe-downgrade", FeatureUpdate::SafeDowngrade(level)),
        ("unsafe-downgrade", FeatureUpdate::UnsafeDowngrade(level)),
    ];
    choice(py, "kind", kind, all)
}

pub(super) fn resource_kind(py: Python<'_>, name: &str) -> PyResult<ConfigResourceKind> {
    let all = [
        ("topic", ConfigResourceKind::Topic),
        ("broker", ConfigResourceKind::Broker),
        ("broker-logger", ConfigResourceKind::BrokerLogger),
        ("group", ConfigResourceKind::Group),
        ("client-metrics", ConfigResourceKind::ClientMetrics),
    ];
    choice(py, "kind", name, all)
}

/// Returns the id by which the member was named.
pub(super) fn member_name(member: GroupMember) -> String {
    match member {
        GroupMember::Static(id) | GroupMember::Id(id) => id,
        other => other.to_string(),
    }
}

/// A timestamp in milliseconds, or a name.
#[derive(FromPyObject)]
pub(super) enum Spec {
    #[pyo3(transparent)]
    Timestamp(i64),
    #[pyo3(transparent)]
    Name(String),
}

pub(super) fn offset_spec(py: Python<'_>, spec: Spec) -> PyResult<OffsetSpec> {
    let name = match spec {
        Spec::Timestamp(at) if at < 0 => {
            return Err(error::config(py, &format!("timestamp {at}: must not be negative")));
        }
        Spec::Timestamp(at) => return Ok(OffsetSpec::Timestamp(at)),
        Spec::Name(name) => name,
    };
    let all = [
        ("earliest", OffsetSpec::Earliest),
        ("latest", OffsetSpec::Latest),
        ("max_timestamp", OffsetSpec::MaxTimestamp),
        ("earliest_local", OffsetSpec::EarliestLocal),
        ("latest_tiered", OffsetSpec::LatestTiered),
    ];
    choice(py, "offset", &name, all)
}

pub(super) fn transaction_filter(
    py: Python<'_>,
    states: Vec<String>,
    producer_ids: Vec<i64>,
    open_for: Option<f64>,
) -> PyResult<TransactionFilter> {
    let wrong = |_| error::config(py, "open_for: must be seconds, from 0 on");
    let open_for = open_for.map(Duration::try_from_secs_f64).transpose().map_err(wrong)?;
    Ok(TransactionFilter { states, producer_ids, open_for })
}

pub(super) fn abort(
    (at, producer_id, producer_epoch, coordinator_epoch): (At, i64, i16, i32),
) -> AbortTransaction {
    AbortTransaction { partition: partition(at), producer_id, producer_epoch, coordinator_epoch }
}

macro_rules! by_name {
    ($($function:ident $type:ident $what:literal)*) => {$(
        fn $function(py: Python<'_>, name: &str) -> PyResult<$type> {
            choice(py, $what, name, $type::ALL.iter().map(|one| (one.name(), *one)))
        }
    )*};
}

by_name! {
    acl_resource AclResource "resource"
    acl_pattern AclPattern "pattern"
    acl_operation AclOperation "operation"
    acl_permission AclPermission "permission"
}

pub(super) fn acl(py: Python<'_>, fields: AclFields) -> PyResult<Acl> {
    let (resource, name, pattern, principal, host, operation, permission) = fields;
    Ok(Acl {
        resource: acl_resource(py, &resource)?,
        name,
        pattern: acl_pattern(py, &pattern)?,
        principal,
        host,
        operation: acl_operation(py, &operation)?,
        permission: acl_permission(py, &permission)?,
    })
}

pub(super) fn acl_filter(py: Python<'_>, fields: AclFilterFields) -> PyResult<AclFilter> {
    let (resource, name, pattern, principal, host, operation, permission) = fields;
    let patterns = [("any", AclPatternFilter::Any), ("match", AclPatternFilter::Match)];
    let only = AclPattern::ALL.iter().map(|one| (one.name(), AclPatternFilter::Only(*one)));
    Ok(AclFilter {
        resource: resource.map(|name| acl_resource(py, &name)).transpose()?,
        name,
        pattern: choice(py, "pattern", &pattern, patterns.into_iter().chain(only))?,
        principal,
        host,
        operation: operation.map(|name| acl_operation(py, &name)).transpose()?,
        permission: permission.map(|name| acl_permission(py, &name)).transpose()?,
    })
}

pub(super) fn quota_filter(components: Vec<Component>, strict: bool) -> QuotaFilter {
    let components: Vec<_> = components
        .into_iter()
        .map(|(kind, by, name)| {
            let matched = match by.as_str() {
                "default" => QuotaMatch::Default,
                "any" => QuotaMatch::Any,
                _ => QuotaMatch::Name(name),
            };
            (kind, matched)
        })
        .collect();
    match (components.is_empty(), strict) {
        (true, _) => QuotaFilter::all(),
        (false, true) => QuotaFilter::only(components),
        (false, false) => QuotaFilter::containing(components),
    }
}

pub(super) fn quota_change((name, value): (String, Option<f64>)) -> QuotaChange {
    match value {
        Some(value) => QuotaChange::Set(name, value),
        None => QuotaChange::Remove(name),
    }
}

pub(super) fn scram_change(py: Python<'_>, change: Scram) -> PyResult<ScramChange> {
    let (user, mechanism, password, iterations, salt) = change;
    let all = [ScramMechanism::Sha256, ScramMechanism::Sha512].map(|one| (one.name(), one));
    let mechanism = choice(py, "mechanism", &mechanism, all)?;
    let Some(password) = password else { return Ok(ScramChange::delete(user, mechanism)) };
    let mut change = ScramChange::upsert(user, mechanism, password);
    if let Some(iterations) = iterations {
        change = change.iterations(iterations);
    }
    Ok(match salt {
        Some(salt) => change.salt(salt),
        None => change,
    })
}
