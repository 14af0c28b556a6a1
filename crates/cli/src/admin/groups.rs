//! `curtail groups`.

pub(super) mod reset;

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, Subcommand};
use curtail::{
    Admin, ErrorCode, TopicPartition,
    admin::{GroupDescription, GroupKind, GroupOffsets, MemberDescription, OffsetSpec},
    config::IsolationLevel,
};

use super::{
    Cell, Format, TopicSelection, admin, block_on, partitions_of, report, report_named,
    topic_selection,
};
use crate::{failure::Failure, names, output, settings::ClientArguments};

/// Subcommands of `curtail groups`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists all groups.
    List(List),
    /// Prints committed offsets and lag of groups, or their members.
    Describe(Describe),
    /// Deletes groups without members, and their committed offsets.
    Delete(Delete),
    /// Changes the committed offsets of a group without members.
    #[command(subcommand)]
    Offsets(Offsets),
}

/// Subcommands of `curtail groups offsets`.
#[derive(Debug, Subcommand)]
pub(crate) enum Offsets {
    /// Prints the offsets that the group would resume from; commits them with --execute.
    Reset(reset::Arguments),
    /// Deletes committed offsets of a group.
    Delete(DeleteOffsets),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    /// List all groups, which is the default.
    #[arg(long, hide = true)]
    all_groups: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    groups: Names,
    /// Describe all groups of consumers.
    #[arg(long, conflicts_with_all = ["bare", "flagged"])]
    all_groups: bool,
    #[command(flatten)]
    format: Format,
    /// Print the members and their partitions.
    #[arg(long, conflicts_with = "state")]
    members: bool,
    /// Print the state and the coordinator.
    #[arg(long)]
    state: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    groups: Names,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteOffsets {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    group: One,
    /// A topic, or some of its partitions. May be given several times.
    #[arg(short, long = "topic", value_name = "TOPIC[:0,1]", required = true, value_parser = topic_selection)]
    topics: Vec<TopicSelection>,
}

/// Groups, as bare arguments or with the flags of Kafka's tools.
#[derive(Debug, Args)]
struct Names {
    /// Names of groups.
    #[arg(value_name = "GROUP")]
    bare: Vec<String>,
    /// Name of a group. May be given several times.
    #[arg(short = 'g', long = "group", value_name = "GROUP")]
    flagged: Vec<String>,
}

impl Names {
    /// The names; without any, the failure offers the `alternative`.
    fn at_least_one(self, alternative: &str) -> Result<Vec<String>, Failure> {
        let names: Vec<String> = self.bare.into_iter().chain(self.flagged).collect();
        if names.is_empty() {
            return Err(Failure::new(format!("{NO_GROUP}{alternative}")));
        }
        Ok(names)
    }
}

/// A group, as a bare argument or by flag.
#[derive(Debug, Args)]
struct One {
    /// The group.
    #[arg(value_name = "GROUP", conflicts_with = "flagged")]
    bare: Option<String>,
    /// The group.
    #[arg(short = 'g', long = "group", value_name = "GROUP")]
    flagged: Option<String>,
}

impl One {
    fn name(&self) -> Result<&str, Failure> {
        let name = self.bare.as_deref().or(self.flagged.as_deref());
        name.ok_or_else(|| Failure::new(NO_GROUP))
    }
}

const NO_GROUP: &str = "no group given; use for example --group billing";

/// Runs `curtail groups`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::List(arguments) => list(&arguments).await,
            Command::Describe(arguments) => describe(arguments).await,
            Command::Delete(arguments) => delete(arguments).await,
            Command::Offsets(Offsets::Reset(arguments)) => reset::run(&arguments).await,
            Command::Offsets(Offsets::Delete(arguments)) => delete_offsets(&arguments).await,
        }
    })
}

async fn list(arguments: &List) -> Result<(), Failure> {
    let mut rows = BTreeMap::new();
    let all_known = report(admin(&arguments.client)?.list_groups().await?, |broker, groups| {
        rows.extend(groups.into_iter().map(|group| {
            let row = vec![
                Cell::from(group.group_id.as_str()),
                group.kind.name().into(),
                group.protocol_type.into(),
                group.state.name().into(),
                (*broker).into(),
            ];
            (group.group_id, row)
        }));
        Ok(())
    });
    let columns = ["GROUP", "KIND", "PROTOCOL", "STATE", "COORDINATOR"];
    arguments.format.rows(&columns, rows.into_values().collect(), "no groups")?;
    all_known
}

async fn describe(arguments: Describe) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let (names, all_listed) = match arguments.all_groups {
        true => consumer_groups(&admin).await?,
        false => (arguments.groups.at_least_one(" or --all-groups")?, Ok(())),
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut groups = Vec::new();
    if names.is_empty() {
        all_listed?;
        return arguments.format.rows(&STATE, Vec::new(), "no groups");
    }
    let all_known = report_named(&admin, admin.describe_groups(&names).await?, |_, group| {
        groups.push(group);
        Ok(())
    })
    .await;
    let (columns, rows, none): (&[&str], _, _) = if arguments.members {
        (&MEMBERS, groups.iter().flat_map(members).collect(), "no members")
    } else if arguments.state {
        (&STATE, groups.iter().map(state).collect(), "no groups")
    } else {
        (
            &PROGRESS,
            progress(&admin, &groups).await?,
            "no committed offsets and no assigned partitions",
        )
    };
    // For a missing group no empty table is printed.
    if !groups.is_empty() {
        arguments.format.rows(columns, rows, none)?;
    }
    all_listed?;
    all_known
}

/// Names of all groups of consumers, as kafka-consumer-groups selects them, and the errors of brokers that list none.
async fn consumer_groups(admin: &Admin) -> Result<(Vec<String>, Result<(), Failure>), Failure> {
    let mut names = BTreeSet::new();
    let all_listed = report(admin.list_groups().await?, |_, groups| {
        let of_consumers = groups.into_iter().filter(|group| {
            !matches!(&group.kind, GroupKind::Other(kind) if !kind.is_empty())
                && ["", "consumer"].contains(&group.protocol_type.as_str())
        });
        names.extend(of_consumers.map(|group| group.group_id));
        Ok(())
    });
    Ok((names.into_iter().collect(), all_listed))
}

const STATE: [&str; 5] = ["GROUP", "COORDINATOR", "ASSIGNOR", "STATE", "MEMBERS"];

fn state(group: &GroupDescription) -> Vec<Cell> {
    vec![
        group.group_id.as_str().into(),
        group.coordinator.id.into(),
        Some(group.assignor.as_str()).filter(|name| !name.is_empty()).into(),
        group.state.name().into(),
        (group.members.len() as i64).into(),
    ]
}

const MEMBERS: [&str; 6] =
    ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "PARTITIONS", "ASSIGNMENT"];

fn members(group: &GroupDescription) -> Vec<Vec<Cell>> {
    let row = |member: &MemberDescription| {
        let partitions: Vec<String> = member.assignment.iter().map(ToString::to_string).collect();
        vec![
            group.group_id.as_str().into(),
            member.member_id.as_str().into(),
            member.host.as_str().into(),
            member.client_id.as_str().into(),
            (partitions.len() as i64).into(),
            Some(partitions.join(",")).filter(|text| !text.is_empty()).into(),
        ]
    };
    group.members.iter().map(row).collect()
}

const PROGRESS: [&str; 9] = [
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
];

async fn progress(admin: &Admin, groups: &[GroupDescription]) -> Result<Vec<Vec<Cell>>, Failure> {
    let names: Vec<&str> = groups.iter().map(|group| group.group_id.as_str()).collect();
    let mut committed = BTreeMap::new();
    for (group, offsets) in admin.list_group_offsets(&names).await? {
        committed.insert(group, offsets?);
    }
    let none = GroupOffsets::new();
    let mut rows = Vec::new();
    for group in groups {
        let offsets = committed.get(&group.group_id).unwrap_or(&none);
        let owners: BTreeMap<&TopicPartition, &MemberDescription> =
            group.members.iter().flat_map(|m| m.assignment.iter().map(move |at| (at, m))).collect();
        let partitions: BTreeSet<&TopicPartition> =
            owners.keys().copied().chain(offsets.keys()).collect();
        let ends = ends_of(admin, partitions.iter().copied()).await?;
        rows.extend(partitions.into_iter().map(|at| {
            let current = offsets.get(at).map(|committed| committed.offset);
            let end = ends.get(at).copied();
            let owner = owners.get(at);
            vec![
                Cell::from(group.group_id.as_str()),
                Cell::from(&*at.topic),
                at.partition.into(),
                current.into(),
                end.into(),
                end.zip(current).map(|(end, current)| (end - current).max(0)).into(),
                owner.map(|member| member.member_id.as_str()).into(),
                owner.map(|member| member.host.as_str()).into(),
                owner.map(|member| member.client_id.as_str()).into(),
            ]
        }));
    }
    Ok(rows)
}

/// Log end offsets of partitions, as far as they are known: a topic that a group has read may be deleted.
async fn ends_of(
    admin: &Admin,
    partitions: impl Iterator<Item = &TopicPartition>,
) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let wanted: Vec<_> = partitions.map(|at| (at.clone(), OffsetSpec::Latest)).collect();
    let listed = admin.list_offsets(&wanted, IsolationLevel::ReadUncommitted).await?;
    Ok(listed.into_iter().filter_map(|(at, found)| Some((at, found.ok()?.offset?))).collect())
}

async fn delete(arguments: Delete) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let names = arguments.groups.at_least_one("")?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    report_named(&admin, admin.delete_groups(&names).await?, |name, ()| {
        output::line(format_args!("Deleted group {name}."))
    })
    .await
}

async fn delete_offsets(arguments: &DeleteOffsets) -> Result<(), Failure> {
    let group = arguments.group.name()?;
    let admin = admin(&arguments.client)?;
    let partitions = partitions_of(&admin, &arguments.topics).await?;
    // A coordinator also reports success for a partition without an offset.
    let before = committed(&admin, group).await?;
    let deleted = match admin.delete_group_offsets(group, &partitions).await {
        Ok(deleted) => deleted,
        Err(error) => return Err(names::failure(&admin, group, error).await),
    };
    report(deleted, |at, ()| match before.get(at) {
        Some(committed) => {
            let offset = committed.offset;
            output::line(format_args!("Deleted offset {offset} of {at} in group {group}."))
        }
        None => {
            output::note(format_args!("group '{group}' has no offset for {at}; nothing deleted"));
            Ok(())
        }
    })
}

/// Committed offsets of a group; none if it does not exist.
async fn committed(admin: &Admin, group: &str) -> Result<GroupOffsets, Failure> {
    let mut all = GroupOffsets::new();
    for (_, offsets) in admin.list_group_offsets(&[group]).await? {
        match offsets {
            Ok(offsets) => all.extend(offsets),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Whether the broker reports that the group does not exist.
fn is_missing(error: &curtail::Error) -> bool {
    matches!(error, curtail::Error::Broker { code, .. } if *code == ErrorCode::GROUP_ID_NOT_FOUND)
}
