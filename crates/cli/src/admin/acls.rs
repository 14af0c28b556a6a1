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
    Add(Add),
    /// Removes ACLs: those with the given operations, or all of a principal or about a resource.
    Remove(Remove),
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
pub(crate) struct Add {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    rules: Rules,
    /// Principal, such as User:alice, or User:* for every user. May be given several times.
    #[arg(
        long = "principal",
        alias = "allow-principal",
        required = true,
        value_name = "PRINCIPAL",
        value_parser = principal
    )]
    principals: Vec<String>,
    /// Operation, such as read or describe-configs. May be given several times.
    #[arg(
        long = "operation",
        required_unless_present_any = ["producer", "consumer"],
        value_name = "OPERATION",
        value_parser = operation
    )]
    operations: Vec<AclOperation>,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    rules: Rules,
    /// Principal, such as User:alice [default: every principal]. May be given several times.
    #[arg(
        long = "principal",
        alias = "allow-principal",
        value_name = "PRINCIPAL",
        value_parser = principal
    )]
    principals: Vec<String>,
    /// Operation, such as read or describe-configs. May be given several times. Without it (and without --producer and
    /// --consumer) ACLs of every operation are removed, also those that deny, and of every host unless --host names one.
    #[arg(long = "operation", value_name = "OPERATION", value_parser = operation)]
    operations: Vec<AclOperation>,
}

/// The parts of ACLs that `add` and `remove` have in common.
#[derive(Debug, Args)]
struct Rules {
    #[command(flatten)]
    things: Things,
    /// Whether names are complete (literal) or prefixes of names (prefixed).
    #[arg(long, alias = "resource-pattern-type", value_enum, default_value_t = Pattern::Literal)]
    pattern: Pattern,
    /// Client address that the ACL applies to [default: *, for every address].
    #[arg(long, alias = "allow-host")]
    host: Option<String>,
    /// Deny the operation instead of allowing it.
    #[arg(long)]
    deny: bool,
    /// The operations of a producer: write, describe and create for --topic, write and describe for --transactional-id.
    #[arg(long, conflicts_with_all = ["operations", "deny", "cluster"])]
    producer: bool,
    /// The operations of a consumer: read and describe for --topic, read for --group.
    #[arg(long, conflicts_with_all = ["operations", "deny", "cluster"])]
    consumer: bool,
    /// With --producer, also idempotent-write for the cluster, for brokers before Apache Kafka 2.8.
    #[arg(long)]
    idempotent: bool,
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

const EVERY_HOST: &str = "*";

/// A resource, its name, and the operations on it.
type Allowed<'a> = (AclResource, &'a str, Vec<AclOperation>);

impl Rules {
    /// Each resource with its operations: the given ones, or those of `--producer` and `--consumer`.
    fn operations<'a>(&'a self, given: &'a [AclOperation]) -> Result<Vec<Allowed<'a>>, Failure> {
        use AclOperation::{Create, Describe, IdempotentWrite, Read, Write};
        let things = self.things.all();
        if self.idempotent && !self.producer {
            return Err(Failure::new("--idempotent needs --producer"));
        }
        if !self.producer && !self.consumer {
            let all = things.into_iter().map(|(resource, name)| (resource, name, given.to_vec()));
            return Ok(all.collect());
        }
        self.check_convenience()?;
        let mut all = Vec::new();
        for (resource, name) in things {
            let operations: &[(bool, AclOperation)] = match resource {
                AclResource::Topic => &[
                    (self.consumer, Read),
                    (self.producer, Write),
                    (true, Describe),
                    (self.producer, Create),
                ],
                AclResource::TransactionalId => &[(true, Write), (true, Describe)],
                _ => &[(true, Read)],
            };
            let operations = operations.iter().filter(|(is_needed, _)| *is_needed);
            all.push((resource, name, operations.map(|(_, operation)| *operation).collect()));
        }
        if self.idempotent {
            all.push((AclResource::Cluster, CLUSTER, vec![IdempotentWrite]));
        }
        Ok(all)
    }

    /// As kafka-acls, which names each missing or superfluous resource.
    fn check_convenience(&self) -> Result<(), Failure> {
        let Things { topics, groups, transactional_ids, .. } = &self.things;
        let flag = if self.producer { "--producer" } else { "--consumer" };
        let problem = if topics.is_empty() {
            format!("{flag} needs --topic")
        } else if self.consumer && groups.is_empty() {
            "--consumer needs --group".into()
        } else if !self.consumer && !groups.is_empty() {
            "--producer uses no group; leave out --group or add --consumer".into()
        } else if !self.producer && !transactional_ids.is_empty() {
            "--consumer uses no transactional id; leave out --transactional-id or add --producer"
                .into()
        } else {
            return Ok(());
        };
        Err(Failure::new(problem))
    }

    fn acls(&self, principals: &[String], given: &[AclOperation]) -> Result<Vec<Acl>, Failure> {
        let mut acls = Vec::new();
        for (resource, name, operations) in self.operations(given)? {
            // The cluster's name is never a prefix.
            let pattern = match resource {
                AclResource::Cluster => AclPattern::Literal,
                _ => self.pattern.acl(),
            };
            for principal in principals {
                acls.extend(operations.iter().map(|operation| Acl {
                    resource,
                    name: name.to_owned(),
                    pattern,
                    principal: principal.clone(),
                    host: self.host.clone().unwrap_or_else(|| EVERY_HOST.into()),
                    operation: *operation,
                    permission: match self.deny {
                        true => AclPermission::Deny,
                        false => AclPermission::Allow,
                    },
                }));
            }
        }
        Ok(acls)
    }
}

fn no_resource() -> Failure {
    Failure::new("no resource given; use --topic, --group, --transactional-id or --cluster")
}

async fn add(arguments: &Add) -> Result<(), Failure> {
    let acls = arguments.rules.acls(&arguments.principals, &arguments.operations)?;
    if acls.is_empty() {
        return Err(no_resource());
    }
    let admin = admin(&arguments.client)?;
    report(admin.create_acls(&acls).await?, |acl, ()| output::line(format_args!("Added: {acl}.")))
}

impl Remove {
    /// The rules to remove. Without operations, all of the principals about the resources.
    fn filters(&self) -> Result<Vec<AclFilter>, Failure> {
        let Self { rules, principals, operations, .. } = self;
        let every_operation = operations.is_empty() && !rules.producer && !rules.consumer;
        if !every_operation && !principals.is_empty() {
            let acls = rules.acls(principals, operations)?;
            if acls.is_empty() {
                return Err(no_resource());
            }
            return Ok(acls.iter().map(AclFilter::from).collect());
        }
        if !every_operation {
            return Err(Failure::new("no principal given; use for example --principal User:alice"));
        }
        let things = rules.things.all();
        if things.is_empty() && principals.is_empty() {
            return Err(Failure::new(
                "nothing to remove given; use --principal, --topic, --group, --transactional-id or --cluster",
            ));
        }
        let about = AclFilter {
            host: rules.host.clone(),
            permission: rules.deny.then_some(AclPermission::Deny),
            ..AclFilter::default()
        };
        let of_things: Vec<AclFilter> = match things.is_empty() {
            true => vec![about],
            false => things
                .into_iter()
                .map(|(resource, name)| AclFilter {
                    resource: Some(resource),
                    name: Some(name.to_owned()),
                    pattern: match resource {
                        AclResource::Cluster => AclPatternFilter::Any,
                        _ => AclPatternFilter::Only(rules.pattern.acl()),
                    },
                    ..about.clone()
                })
                .collect(),
        };
        if principals.is_empty() {
            return Ok(of_things);
        }
        let of = |principal: &String| {
            let principal = Some(principal.clone());
            let filter = move |about: &AclFilter| AclFilter {
                principal: principal.clone(),
                ..about.clone()
            };
            of_things.iter().map(filter).collect::<Vec<_>>()
        };
        Ok(principals.iter().flat_map(of).collect())
    }
}

async fn remove(arguments: &Remove) -> Result<(), Failure> {
    let filters = arguments.filters()?;
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Adding {
        #[command(flatten)]
        add: Add,
    }

    #[derive(Parser)]
    struct Removing {
        #[command(flatten)]
        remove: Remove,
    }

    fn words(line: &str) -> impl Iterator<Item = &str> {
        std::iter::once("acls").chain(line.split(' '))
    }

    fn said<T>(result: Result<T, Failure>) -> Result<T, String> {
        result.map_err(|failure| match failure {
            Failure::Message(text) => text,
            _ => panic!("another failure"),
        })
    }

    fn added(line: &str) -> Result<Vec<String>, String> {
        let Adding { add } = Adding::try_parse_from(words(line)).map_err(|e| e.to_string())?;
        let acls = said(add.rules.acls(&add.principals, &add.operations))?;
        Ok(acls.iter().map(ToString::to_string).collect())
    }

    fn filters(line: &str) -> Result<Vec<AclFilter>, String> {
        said(Removing::try_parse_from(words(line)).unwrap().remove.filters())
    }

    #[test]
    fn producers_and_consumers_get_the_rules_of_kafka_acls() {
        let expected = |operations: &[&str]| {
            let rule = |text: &&str| format!("allow User:a from * to {text} (literal)");
            Ok::<_, String>(operations.iter().map(rule).collect::<Vec<_>>())
        };
        assert_eq!(
            added("--principal User:a --producer --topic t --transactional-id x --idempotent"),
            expected(&[
                "write topic 't'",
                "describe topic 't'",
                "create topic 't'",
                "write transactional-id 'x'",
                "describe transactional-id 'x'",
                "idempotent-write cluster 'kafka-cluster'",
            ])
        );
        assert_eq!(
            added("--principal User:a --consumer --topic t --group g"),
            expected(&["read topic 't'", "describe topic 't'", "read group 'g'"])
        );
        assert_eq!(
            added("--principal User:a --producer --consumer --topic t --group g"),
            expected(&[
                "read topic 't'",
                "write topic 't'",
                "describe topic 't'",
                "create topic 't'",
                "read group 'g'",
            ])
        );
        for (line, problem) in [
            ("--producer --group g", "--producer needs --topic"),
            ("--consumer --topic t", "--consumer needs --group"),
            ("--producer --topic t --group g", "--producer uses no group; "),
            ("--consumer --topic t --group g --transactional-id x", "--consumer uses no trans"),
            ("--producer --topic t --operation read", "cannot be used with"),
            ("--topic t --idempotent --operation read", "--idempotent needs --producer"),
        ] {
            let error = added(&format!("--principal User:a {line}")).unwrap_err();
            assert!(error.contains(problem), "{line}: {error}");
        }
    }

    #[test]
    fn rules_are_removed_by_principal_resource_or_operation() {
        let any = AclFilter::default();
        let of = |name: &str| AclFilter { principal: Some(name.into()), ..any.clone() };
        let all = filters("--principal User:a --principal User:b").unwrap();
        assert_eq!(all, [of("User:a"), of("User:b")]);
        let denied = AclFilter { permission: Some(AclPermission::Deny), ..of("User:a") };
        assert_eq!(filters("--principal User:a --deny").unwrap(), [denied]);
        let about = AclFilter {
            resource: Some(AclResource::Topic),
            name: Some("t".into()),
            pattern: AclPatternFilter::Only(AclPattern::Prefixed),
            ..any
        };
        assert_eq!(filters("--topic t --pattern prefixed").unwrap(), [about]);
        let one = Acl::allow("User:a", AclOperation::Read, AclResource::Topic, "t");
        let exact = filters("--principal User:a --topic t --operation read").unwrap();
        assert_eq!(exact, [AclFilter::from(&one)]);
        for (line, problem) in [
            ("--host *", "nothing to remove given; "),
            ("--topic t --operation read", "no principal given; "),
            ("--principal User:a --operation read", "no resource given; "),
        ] {
            let error = filters(line).unwrap_err();
            assert!(error.starts_with(problem), "{line}: {error}");
        }
    }
}
