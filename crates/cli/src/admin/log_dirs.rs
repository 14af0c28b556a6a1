//! `curtail log-dirs`: kafka-log-dirs.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use curtail::{Admin, admin::LogDir};

use super::{Cell, Format, admin, block_on, described, report, topics::Names};
use crate::{failure::Failure, settings::ClientArguments};

/// Subcommands of `curtail log-dirs`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints the replicas in the log directories of brokers, with their sizes.
    Describe(Describe),
}

/// Here --broker-list are the brokers to describe, as in kafka-log-dirs, and not those to connect to.
#[derive(Debug, Args)]
#[command(mut_arg("bootstrap_server", |argument| argument.alias(None::<&'static str>)))]
pub(crate) struct Describe {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    topics: Names,
    /// Topics, separated by commas [default: all].
    #[arg(long, value_name = "TOPIC,...", value_delimiter = ',')]
    topic_list: Vec<String>,
    /// Ids of brokers, separated by commas [default: all].
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    broker_list: Vec<i32>,
    /// Print a row for each directory: replicas, their size, and the bytes of its disk.
    #[arg(long)]
    summary: bool,
}

/// Runs `curtail log-dirs`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let Command::Describe(arguments) = command;
    block_on(describe(arguments))
}

async fn describe(arguments: Describe) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let mut topics: BTreeSet<String> = arguments.topic_list.into_iter().collect();
    topics.extend(arguments.topics.all());
    if !topics.is_empty() {
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        // A directory without a mistyped topic looks like one without its replicas.
        described(&admin, &names).await?;
    }
    let brokers = brokers(&admin, arguments.broker_list).await?;
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    let all_known = report(admin.describe_log_dirs(&brokers).await?, |broker, directories| {
        for mut directory in directories {
            if !topics.is_empty() {
                directory.replicas.retain(|at, _| topics.contains(&*at.topic));
            }
            match arguments.summary {
                true => rows.push(summary(*broker, &directory)),
                false => rows.extend(replicas(*broker, &directory)),
            }
            if let Err(error) = directory.state {
                let error = error.report();
                failed.push(Failure::new(format!("log directory of broker {broker}: {error}")));
            }
        }
        Ok(())
    });
    failed.extend(all_known.err());
    let columns: &[&str] = if arguments.summary { &SUMMARY } else { &REPLICAS };
    if arguments.format.json || !rows.is_empty() || failed.is_empty() {
        arguments.format.rows(columns, rows, "no replicas")?;
    }
    Failure::all(failed)
}

/// The given brokers, which must be live, or all.
async fn brokers(admin: &Admin, given: Vec<i32>) -> Result<Vec<i32>, Failure> {
    let live: Vec<i32> =
        admin.describe_cluster().await?.brokers.iter().map(|broker| broker.id).collect();
    let missing: Vec<String> =
        given.iter().filter(|id| !live.contains(id)).map(ToString::to_string).collect();
    if !missing.is_empty() {
        let (missing, live) = (missing.join(", "), Cell::Numbers(live));
        return Err(Failure::new(format!("no live broker {missing}; the live brokers are {live}")));
    }
    Ok(if given.is_empty() { live } else { given })
}

const REPLICAS: [&str; 7] =
    ["BROKER", "LOG-DIR", "TOPIC", "PARTITION", "SIZE", "OFFSET-LAG", "FUTURE"];

fn replicas(broker: i32, directory: &LogDir) -> Vec<Vec<Cell>> {
    let row = |(at, replica): (&curtail::TopicPartition, &curtail::admin::LogDirReplica)| {
        vec![
            broker.into(),
            directory.path.as_str().into(),
            Cell::from(&*at.topic),
            at.partition.into(),
            i64::try_from(replica.size).ok().into(),
            replica.offset_lag.into(),
            replica.is_future.into(),
        ]
    };
    directory.replicas.iter().map(row).collect()
}

const SUMMARY: [&str; 6] = ["BROKER", "LOG-DIR", "REPLICAS", "SIZE", "TOTAL-BYTES", "USABLE-BYTES"];

fn summary(broker: i32, directory: &LogDir) -> Vec<Cell> {
    let bytes = |bytes: u64| i64::try_from(bytes).ok();
    let size: u64 = directory.replicas.values().map(|replica| replica.size).sum();
    vec![
        broker.into(),
        directory.path.as_str().into(),
        i64::try_from(directory.replicas.len()).ok().into(),
        bytes(size).into(),
        directory.total_bytes.and_then(bytes).into(),
        directory.usable_bytes.and_then(bytes).into(),
    ]
}
