//! `curtail topics`.

mod describe;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use curtail::{
    Error, ErrorCode, TopicPartition,
    admin::{Each, Mode, NewPartitions, NewTopic},
};
use serde::Deserialize;
use serde_json::json;

use self::describe::Selection;
use super::{Cell, Format, admin, block_on, read_json, report, report_named};
use crate::{
    failure::Failure,
    output,
    settings::{ClientArguments, Property, config_of_topic},
};

/// Subcommands of `curtail topics`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Creates topics.
    Create(Create),
    /// Lists all topics, or those with under-replicated partitions.
    List(List),
    /// Prints partitions, leaders and replicas of topics, by default of all topics.
    Describe(describe::Describe),
    /// Adds partitions to topics.
    Alter(Alter),
    /// Deletes topics and all their records.
    Delete(Delete),
    /// Deletes the records of partitions before an offset.
    DeleteRecords(DeleteRecords),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    topics: Names,
    /// Number of partitions [default: the brokers' num.partitions].
    #[arg(long, value_name = "N")]
    partitions: Option<i32>,
    /// Replicas of each partition [default: the brokers' default.replication.factor].
    #[arg(long, value_name = "N")]
    replication_factor: Option<i16>,
    /// A setting of the topics, for example min.insync.replicas=2. May be given several times. A file of client
    /// properties is --command-config.
    #[arg(long = "config", alias = "topic-config", value_name = "NAME=VALUE", value_parser = config_of_topic)]
    settings: Vec<Property>,
    /// Leave a topic that exists as it is.
    #[arg(long)]
    if_not_exists: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    /// List only topics that have a partition with fewer in-sync replicas than replicas.
    #[arg(long)]
    under_replicated_partitions: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Alter {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    topics: Names,
    /// New total number of partitions of each topic.
    #[arg(long, value_name = "N")]
    partitions: i32,
    /// Leave out a topic that does not exist.
    #[arg(long)]
    if_exists: bool,
    /// Validate the change without applying it.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteRecords {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    /// The topic of the --before partitions.
    #[arg(value_name = "TOPIC", requires = "before", conflicts_with = "topic")]
    bare: Option<String>,
    /// The topic of the --before partitions.
    #[arg(short, long, value_name = "TOPIC", requires = "before")]
    topic: Option<String>,
    /// A partition and the first offset to keep; -1 keeps none. May be given several times.
    #[arg(
        long,
        value_name = "PARTITION:OFFSET",
        value_parser = partition_and_offset,
        allow_hyphen_values = true
    )]
    before: Vec<(i32, i64)>,
    /// Kafka's file: {"partitions": [{"topic": "t", "partition": 0, "offset": 42}], "version": 1}.
    #[arg(long, value_name = "FILE", conflicts_with = "before")]
    offset_json_file: Option<PathBuf>,
}

fn partition_and_offset(text: &str) -> Result<(i32, i64), String> {
    let parsed = text.split_once(':').and_then(|(partition, offset)| {
        Some((partition.trim().parse().ok()?, offset.trim().parse().ok()?))
    });
    parsed.ok_or_else(|| "expected PARTITION:OFFSET, for example 0:42".into())
}

/// Kafka's file of offsets.
#[derive(Deserialize)]
struct OffsetFile {
    partitions: Vec<OffsetLine>,
}

#[derive(Deserialize)]
struct OffsetLine {
    topic: String,
    partition: i32,
    offset: i64,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    topics: Names,
    /// Leave out a topic that does not exist.
    #[arg(long)]
    if_exists: bool,
}

/// Topics, as bare arguments or with the flags of Kafka's tools.
#[derive(Debug, Args)]
pub(super) struct Names {
    /// Names of topics.
    #[arg(value_name = "TOPIC")]
    bare: Vec<String>,
    /// Name of a topic. May be given several times.
    #[arg(short = 't', long = "topic", value_name = "TOPIC")]
    flagged: Vec<String>,
}

const NO_TOPIC: &str = "no topic given; use for example --topic payments";

impl Names {
    pub(super) fn all(self) -> Vec<String> {
        self.bare.into_iter().chain(self.flagged).collect()
    }

    fn at_least_one(self) -> Result<Vec<String>, Failure> {
        let names = self.all();
        if names.is_empty() {
            return Err(Failure::new(NO_TOPIC));
        }
        Ok(names)
    }
}

/// Runs `curtail topics`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::Create(arguments) => create(arguments).await,
            Command::List(arguments) => list(arguments).await,
            Command::Describe(arguments) => describe::describe(arguments).await,
            Command::Alter(arguments) => alter(arguments).await,
            Command::Delete(arguments) => delete(arguments).await,
            Command::DeleteRecords(arguments) => delete_records(arguments).await,
        }
    })
}

async fn create(arguments: Create) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let names = arguments.topics.at_least_one()?;
    let topic = |name: &String| {
        let mut topic = NewTopic::new(name);
        if let Some(partitions) = arguments.partitions {
            topic = topic.partitions(partitions);
        }
        if let Some(replicas) = arguments.replication_factor {
            topic = topic.replication_factor(replicas);
        }
        for Property { name, value } in &arguments.settings {
            topic = topic.config(name, value);
        }
        topic
    };
    let topics: Vec<_> = names.iter().map(topic).collect();
    let mut created = admin.create_topics(&topics).await?;
    if arguments.if_not_exists {
        created.retain(|(name, result)| {
            let code = result.as_ref().err().and_then(Error::code);
            let exists = code == Some(ErrorCode::TOPIC_ALREADY_EXISTS);
            if exists {
                output::note(format_args!("topic '{name}' exists; nothing changed"));
            }
            !exists
        });
    }
    report(created, |name, ()| output::line(format_args!("Created topic {name}.")))
}

/// Removes the topics that do not exist from results, and says so.
fn if_exists<T>(mut results: Each<String, T>, then: &str) -> Each<String, T> {
    results.retain(|(name, result)| {
        let missing = matches!(
            result,
            Err(Error::UnknownTopic(_) | Error::Broker { code: ErrorCode::UNKNOWN_TOPIC_ID, .. })
        );
        if missing {
            output::note(format_args!("topic '{name}' does not exist; {then}"));
        }
        !missing
    });
    results
}

async fn list(arguments: List) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let topics = admin.list_topics().await?;
    let mut names: Vec<_> = topics.into_iter().map(|topic| topic.name).collect();
    let selection =
        Selection { under_replicated: arguments.under_replicated_partitions, unavailable: false };
    if arguments.under_replicated_partitions && !names.is_empty() {
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut described = admin.describe_topics(&all).await?;
        selection.apply(&admin, &mut described).await?;
        // A topic that was deleted since the list is not described.
        let selected = described
            .into_iter()
            .filter(|(_, topic)| topic.as_ref().is_ok_and(|topic| !topic.partitions.is_empty()));
        names = selected.map(|(name, _)| name).collect();
    }
    names.sort_unstable();
    if arguments.format.json {
        return output::line(json!(names));
    }
    if names.is_empty() {
        output::note(selection.none());
    }
    for name in names {
        output::line(name)?;
    }
    Ok(())
}

async fn alter(arguments: Alter) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let names = arguments.topics.at_least_one()?;
    let total = arguments.partitions;
    let more: Vec<_> = names.iter().map(|name| NewPartitions::new(name, total)).collect();
    let (mode, done) = match arguments.dry_run {
        true => (Mode::Validate, "would have"),
        false => (Mode::Apply, "has"),
    };
    let mut altered = admin.create_partitions(&more, mode).await?;
    if arguments.if_exists {
        altered = if_exists(altered, "nothing to alter");
    }
    report_named(&admin, altered, |name, ()| {
        output::line(format_args!("Topic {name} {done} {total} partitions."))
    })
    .await
}

async fn delete_records(arguments: DeleteRecords) -> Result<(), Failure> {
    let topic = arguments.bare.or(arguments.topic);
    if topic.is_none() && !arguments.before.is_empty() {
        return Err(Failure::new(NO_TOPIC));
    }
    let admin = admin(&arguments.client)?;
    let before: Vec<(TopicPartition, i64)> = match (&arguments.offset_json_file, &topic) {
        (Some(path), _) => {
            let example = r#"{"partitions": [{"topic": "t", "partition": 0, "offset": 42}]}"#;
            let file: OffsetFile = read_json(path, example)?;
            let lines = file.partitions.into_iter();
            lines
                .map(|line| (TopicPartition::new(line.topic, line.partition), line.offset))
                .collect()
        }
        (None, Some(topic)) => {
            let at = |(partition, offset): &(i32, i64)| {
                (TopicPartition::new(topic.as_str(), *partition), *offset)
            };
            arguments.before.iter().map(at).collect()
        }
        (None, None) => Vec::new(),
    };
    if before.is_empty() {
        let text = "no records given; use for example --topic payments --before 0:42";
        return Err(Failure::new(text));
    }
    let mut rows = Vec::new();
    let all_done = report(admin.delete_records(&before).await?, |at, low_watermark| {
        rows.push(vec![Cell::from(&*at.topic), at.partition.into(), low_watermark.into()]);
        Ok(())
    });
    if !rows.is_empty() {
        arguments.format.rows(
            &["TOPIC", "PARTITION", "LOG-START-OFFSET"],
            rows,
            "no partitions",
        )?;
    }
    all_done
}

async fn delete(arguments: Delete) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let names = arguments.topics.at_least_one()?;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut deleted = admin.delete_topics(&names).await?;
    if arguments.if_exists {
        deleted = if_exists(deleted, "nothing to delete");
    }
    report_named(&admin, deleted, |name, ()| output::line(format_args!("Deleted topic {name}.")))
        .await
}
