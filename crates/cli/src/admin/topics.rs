//! `curtail topics`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use curtail::{
    TopicPartition,
    admin::{Mode, NewPartitions, NewTopic, TopicDescription},
};
use serde::Deserialize;
use serde_json::json;

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
    /// Lists all topics.
    List(List),
    /// Prints partitions, leaders and replicas of topics, by default of all topics.
    Describe(Describe),
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
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    topics: Names,
    #[command(flatten)]
    format: Format,
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
    #[arg(short, long, value_name = "TOPIC", requires = "before")]
    topic: Option<String>,
    /// A partition and the first offset to keep; -1 keeps none. May be given several times.
    #[arg(
        long,
        value_name = "PARTITION:OFFSET",
        value_parser = partition_and_offset,
        allow_hyphen_values = true,
        requires = "topic"
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
}

/// Topics, as bare arguments or with the flags of Kafka's tools.
#[derive(Debug, Args)]
struct Names {
    /// Names of topics.
    #[arg(value_name = "TOPIC")]
    bare: Vec<String>,
    /// Name of a topic. May be given several times.
    #[arg(short = 't', long = "topic", value_name = "TOPIC")]
    flagged: Vec<String>,
}

impl Names {
    fn all(self) -> Vec<String> {
        self.bare.into_iter().chain(self.flagged).collect()
    }

    fn at_least_one(self) -> Result<Vec<String>, Failure> {
        let names = self.all();
        if names.is_empty() {
            return Err(Failure::new("no topic given; use for example --topic payments"));
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
            Command::Describe(arguments) => describe(arguments).await,
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
    report(admin.create_topics(&topics).await?, |name, ()| {
        output::line(format_args!("Created topic {name}."))
    })
}

async fn list(arguments: List) -> Result<(), Failure> {
    let topics = admin(&arguments.client)?.list_topics().await?;
    let mut names: Vec<_> = topics.iter().map(|topic| topic.name.as_str()).collect();
    names.sort_unstable();
    if arguments.format.json {
        return output::line(json!(names));
    }
    if names.is_empty() {
        output::note("no topics");
    }
    for name in names {
        output::line(name)?;
    }
    Ok(())
}

const PARTITION: [&str; 6] = ["TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "ISR"];

async fn describe(arguments: Describe) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let mut names = arguments.topics.all();
    if names.is_empty() {
        names = admin.list_topics().await?.into_iter().map(|topic| topic.name).collect();
        names.sort_unstable();
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    if names.is_empty() {
        return arguments.format.rows(&PARTITION, Vec::new(), "no topics");
    }
    let described = admin.describe_topics(&names).await?;
    if !arguments.format.json {
        return report_named(&admin, described, |_, topic| output::print(&lines(&topic))).await;
    }
    let mut rows = Vec::new();
    let all_known = report_named(&admin, described, |_, topic| {
        rows.extend(topic.partitions.iter().map(|partition| {
            vec![
                Cell::from(topic.name.as_str()),
                partition.partition.into(),
                partition.leader.into(),
                partition.leader_epoch.into(),
                Cell::Numbers(partition.replicas.clone()),
                Cell::Numbers(partition.isr.clone()),
            ]
        }));
        Ok(())
    })
    .await;
    arguments.format.rows(&PARTITION, rows, "no topics")?;
    all_known
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
    report_named(&admin, admin.create_partitions(&more, mode).await?, |name, ()| {
        output::line(format_args!("Topic {name} {done} {total} partitions."))
    })
    .await
}

async fn delete_records(arguments: DeleteRecords) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let before: Vec<(TopicPartition, i64)> = match (&arguments.offset_json_file, &arguments.topic) {
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

/// Formats a topic as kafka-topics does.
fn lines(topic: &TopicDescription) -> String {
    let numbers = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let replicas = topic.partitions.first().map_or(0, |first| first.replicas.len());
    let count = topic.partitions.len();
    let name = &topic.name;
    let mut text =
        format!("Topic: {name}\tPartitionCount: {count}\tReplicationFactor: {replicas}\n");
    for partition in &topic.partitions {
        let leader = partition.leader.map_or_else(|| "none".to_owned(), |id| id.to_string());
        text += &format!(
            "\tTopic: {name}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}\n",
            partition.partition,
            numbers(&partition.replicas),
            numbers(&partition.isr)
        );
    }
    text
}

async fn delete(arguments: Delete) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let names = arguments.topics.at_least_one()?;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    report_named(&admin, admin.delete_topics(&names).await?, |name, ()| {
        output::line(format_args!("Deleted topic {name}."))
    })
    .await
}
