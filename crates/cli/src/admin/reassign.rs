//! `curtail reassign`, with Kafka's JSON files.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use curtail::{Admin, TopicPartition, admin::Reassignment};
use serde::{Deserialize, Serialize};

use super::{Cell, Format, admin, block_on, described, read_json, report};
use crate::{failure::Failure, output, settings::ClientArguments};

/// Subcommands of `curtail reassign`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the reassignments in progress.
    List(List),
    /// Starts reassignments, and first prints the current replicas as a file that reverts them.
    Execute(Change),
    /// Cancels reassignments in progress.
    Cancel(Change),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    client: ClientArguments,
    /// Kafka's file: {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}]}.
    #[arg(long, value_name = "FILE")]
    reassignment_json_file: PathBuf,
}

#[derive(Deserialize, Serialize)]
struct File {
    #[serde(default = "version")]
    version: i32,
    partitions: Vec<Line>,
}

#[derive(Deserialize, Serialize)]
struct Line {
    topic: String,
    partition: i32,
    replicas: Vec<i32>,
}

impl Line {
    fn at(&self) -> TopicPartition {
        TopicPartition::new(self.topic.as_str(), self.partition)
    }
}

/// The only version of the format, and the one of a file that names none.
fn version() -> i32 {
    1
}

const EXAMPLE: &str =
    r#"{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}]}"#;

/// Runs `curtail reassign`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::List(arguments) => list(&arguments).await,
            Command::Execute(arguments) => execute(&arguments).await,
            Command::Cancel(arguments) => cancel(&arguments).await,
        }
    })
}

async fn list(arguments: &List) -> Result<(), Failure> {
    let ongoing = admin(&arguments.client)?.list_partition_reassignments(None).await?;
    let rows = ongoing.into_iter().map(|(at, found)| {
        vec![
            Cell::from(&*at.topic),
            at.partition.into(),
            Cell::Numbers(found.replicas),
            Cell::Numbers(found.adding),
            Cell::Numbers(found.removing),
        ]
    });
    let columns = ["TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"];
    arguments.format.rows(&columns, rows.collect(), "no reassignment is in progress")
}

fn read(arguments: &Change) -> Result<Vec<Line>, Failure> {
    let file: File = read_json(&arguments.reassignment_json_file, EXAMPLE)?;
    let path = arguments.reassignment_json_file.display();
    if file.version != version() {
        return Err(Failure::new(format!(
            "{path} has version {}; the only supported version is {}",
            file.version,
            version()
        )));
    }
    if file.partitions.is_empty() {
        return Err(Failure::new(format!("{path} names no partition; expected {EXAMPLE}")));
    }
    Ok(file.partitions)
}

/// Refuses a partition with two lines: only one of them could apply.
fn check_once(path: &Path, lines: &[Line]) -> Result<(), Failure> {
    let (mut seen, mut again) = (BTreeSet::new(), BTreeSet::new());
    for line in lines {
        if !seen.insert(line.at()) {
            again.insert(line.at());
        }
    }
    if again.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = again.iter().map(ToString::to_string).collect();
    Err(Failure::new(format!("{} lists more than once: {}", path.display(), names.join(", "))))
}

async fn execute(arguments: &Change) -> Result<(), Failure> {
    let lines = read(arguments)?;
    check_once(&arguments.reassignment_json_file, &lines)?;
    let admin = admin(&arguments.client)?;
    let before = File { version: version(), partitions: now(&admin, &lines).await? };
    output::line(serde_json::json!(before))?;
    let to = |line: Line| (line.at(), Reassignment::To(line.replicas));
    let wanted: Vec<_> = lines.into_iter().map(to).collect();
    report(admin.alter_partition_reassignments(&wanted).await?, |at, ()| {
        output::line(format_args!("Started the reassignment of {at}."))
    })
}

/// Current replicas of partitions.
async fn now(admin: &Admin, lines: &[Line]) -> Result<Vec<Line>, Failure> {
    let mut names: Vec<&str> = lines.iter().map(|line| line.topic.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut there = Vec::new();
    for (topic, described) in described(admin, &names).await? {
        for partition in described.partitions {
            let meant = |l: &Line| l.topic == topic && l.partition == partition.partition;
            if lines.iter().any(meant) {
                there.push(Line {
                    topic: topic.clone(),
                    partition: partition.partition,
                    replicas: partition.replicas,
                });
            }
        }
    }
    Ok(there)
}

async fn cancel(arguments: &Change) -> Result<(), Failure> {
    let lines = read(arguments)?;
    let admin = admin(&arguments.client)?;
    let wanted: Vec<_> = lines.iter().map(|line| (line.at(), Reassignment::Cancel)).collect();
    report(admin.alter_partition_reassignments(&wanted).await?, |at, ()| {
        output::line(format_args!("Cancelled the reassignment of {at}."))
    })
}
