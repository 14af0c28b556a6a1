//! `curtail acls`.

use clap::{Args, Subcommand, ValueEnum};
use curtail::admin::{
    Acl, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource,
};

use super::{Cell, Format, admin, block_on, report};
use crate::{failure::Failure, output, settings::ClientArguments};

/// Subcommands of `curtail acls`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists ACLs.
    List(List),
    /// Adds ACLs: one for each combination of resource, principal and operation.
    Add(Change),
    /// Removes ACLs.
    Remove(Change),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    things: Things,
    /// ACLs to list for a name: all that apply to it (match), all with exactly this name (any), or only one kind of
    /// the latter (literal, prefixed).
    #[arg(long, alias = "resource-pattern-type", value_enum, default_value_t = Listed::Match)]
    pattern: Listed,
    /// Only ACLs of this principal, such as User:alice.
    #[arg(long, value_parser = principal)]
    principal: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    things: Things,
    /// Whether names are complete (literal) or prefixes of names (prefixed).
    #[arg(long, alias = "resource-pattern-type", value_enum, default_value_t = Pattern::Literal)]
    pattern: Pattern,
    /// Principal, such as User:alice, or User:* for every user. May be given several times.
    #[arg(
        long = "principal",
        alias = "allow-principal",
        required = true,
        value_name = "PRINCIPAL",
        value_parser = principal
    )]
    principals: Vec<String>,
    /// Client address that the ACL applies to; * for every address.
    #[arg(long, alias = "allow-host", default_value = "*")]
    host: String,
    /// Operation, such as read or describe-configs. May be given several times.
    #[arg(long = "operation", required = true, value_name = "OPERATION", value_parser = operation)]
    operations: Vec<AclOperation>,
    /// Deny the operation instead of allowing it.
    #[arg(long)]
    deny: bool,
}

/// Resources of ACLs.
#[derive(Debug, Args)]
struct Things {
    /// A topic. May be given several times.
    #[arg(short, long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    /// A group. May be given several times.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// A transactional id. May be given several times.
    #[arg(long = "transactional-id", value_name = "ID")]
    transactional_ids: Vec<String>,
    /// The cluster itself.
    #[arg(long)]
    cluster: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    Literal,
    Prefixed,
}

impl Pattern {
    fn acl(self) -> AclPattern {
        match self {
            Self::Literal => AclPattern::Literal,
            Self::Prefixed => AclPattern::Prefixed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Listed {
    Match,
    Any,
    Literal,
    Prefixed,
}

impl Listed {
    fn filter(self) -> AclPatternFilter {
        match self {
            Self::Match => AclPatternFilter::Match,
            Self::Any => AclPatternFilter::Any,
            Self::Literal => AclPatternFilter::Only(AclPattern::Literal),
            Self::Prefixed => AclPatternFilter::Only(AclPattern::Prefixed),
        }
    }
}

/// Resource name of the cluster in ACLs.
const CLUSTER: &str = "kafka-cluster";

impl Things {
    fn all(&self) -> Vec<(AclResource, &str)> {
        let topics = self.topics.iter().map(|name| (AclResource::Topic, name.as_str()));
        let groups = self.groups.iter().map(|name| (AclResource::Group, name.as_str()));
        let ids = self.transactional_ids.iter();
        let ids = ids.map(|name| (AclResource::TransactionalId, name.as_str()));
        let cluster = self.cluster.then_some((AclResource::Cluster, CLUSTER));
        topics.chain(groups).chain(ids).chain(cluster).collect()
    }
}

fn principal(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok(text.to_owned()),
        _ => {
            Err(format!("expected a type and a name, for example User:{}", text.trim_matches(':')))
        }
    }
}

fn operation(text: &str) -> Result<AclOperation, String> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_'], "");
    let known = AclOperation::ALL.iter().copied();
    let found = known.clone().find(|operation| plain(operation.name()) == plain(text));
    found.ok_or_else(|| {
        let names: Vec<&str> = known.map(AclOperation::name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Runs `curtail acls`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::List(arguments) => list(&arguments).await,
            Command::Add(arguments) => add(&arguments).await,
            Command::Remove(arguments) => remove(&arguments).await,
        }
    })
}

async fn list(arguments: &List) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let about = AclFilter {
        pattern: arguments.pattern.filter(),
        principal: arguments.principal.clone(),
        ..AclFilter::default()
    };
    let things = arguments.things.all();
    let mut filters: Vec<AclFilter> = things
        .into_iter()
        .map(|(resource, name)| AclFilter {
            resource: Some(resource),
            name: Some(name.to_owned()),
            ..about.clone()
        })
        .collect();
    if filters.is_empty() {
        filters.push(about);
    }
    let mut acls = Vec::new();
    for filter in &filters {
        acls.extend(admin.describe_acls(filter).await?);
    }
    acls.sort();
    acls.dedup();
    let rows = acls.into_iter().map(|acl| {
        vec![
            Cell::from(acl.resource.name()),
            acl.name.into(),
            acl.pattern.name().into(),
            acl.principal.into(),
            acl.host.into(),
            acl.operation.name().into(),
            acl.permission.name().into(),
        ]
    });
    let columns = ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"];
    arguments.format.rows(&columns, rows.collect(), "no ACL matches")
}

fn acls(arguments: &Change) -> Result<Vec<Acl>, Failure> {
    let things = arguments.things.all();
    if things.is_empty() {
        let text = "no resource given; use --topic, --group, --transactional-id or --cluster";
        return Err(Failure::new(text));
    }
    let mut acls = Vec::new();
    for (resource, name) in things {
        for principal in &arguments.principals {
            for operation in &arguments.operations {
                acls.push(Acl {
                    resource,
                    name: name.to_owned(),
                    pattern: arguments.pattern.acl(),
                    principal: principal.clone(),
                    host: arguments.host.clone(),
                    operation: *operation,
                    permission: match arguments.deny {
                        true => AclPermission::Deny,
                        false => AclPermission::Allow,
                    },
                });
            }
        }
    }
    Ok(acls)
}

async fn add(arguments: &Change) -> Result<(), Failure> {
    let acls = acls(arguments)?;
    let admin = admin(&arguments.client)?;
    report(admin.create_acls(&acls).await?, |acl, ()| output::line(format_args!("Added: {acl}.")))
}

async fn remove(arguments: &Change) -> Result<(), Failure> {
    let filters: Vec<AclFilter> = acls(arguments)?.iter().map(AclFilter::from).collect();
    let admin = admin(&arguments.client)?;
    let mut removed = Vec::new();
    report(admin.delete_acls(&filters).await?, |_, acls| {
        removed.extend(acls);
        Ok(())
    })?;
    if removed.is_empty() {
        return Err(Failure::new("no such ACL; `curtail acls list` prints the existing ones"));
    }
    report(removed, |acl, ()| output::line(format_args!("Removed: {acl}.")))
}
