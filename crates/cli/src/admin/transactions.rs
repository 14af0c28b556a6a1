//! `curtail transactions`: kafka-transactions.

mod hanging;

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use curtail::{
    Admin, TopicPartition,
    admin::{AbortTransaction, TransactionFilter},
};
use jiff::Timestamp;

use super::{
    Cell, Format, Selections, TopicSelection, admin, block_on, partitions_of, report,
    topic_selection,
};
use crate::{failure::Failure, output, settings::ClientArguments};

/// Subcommands of `curtail transactions`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists transactional ids with the states of their transactions.
    List(List),
    /// Prints the transactions of transactional ids.
    Describe(Describe),
    /// Prints the producers that the leaders of partitions know, with their open transactions.
    DescribeProducers(DescribeProducers),
    /// Finds open transactions that no coordinator will end.
    FindHanging(hanging::Arguments),
    /// Aborts a hanging transaction in one partition.
    Abort(Abort),
    /// Fences the producers of transactional ids, which aborts their open transactions.
    #[command(alias = "forceTerminateTransaction")]
    ForceTerminate(ForceTerminate),
}

/// Kafka's names of the states of transactional ids.
const STATES: [&str; 8] = [
    "Ongoing",
    "Empty",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
];

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    /// Only transactions that have been open for longer than this.
    #[arg(long, value_name = "MS")]
    duration_filter: Option<u64>,
    /// Only transactions in this state, such as Ongoing. May be given several times.
    #[arg(long = "state", value_name = "STATE", value_parser = STATES)]
    states: Vec<String>,
    /// Only transactions of this producer id. May be given several times.
    #[arg(long = "producer-id", value_name = "ID")]
    producer_ids: Vec<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    ids: Ids,
}

#[derive(Debug, Args)]
pub(crate) struct ForceTerminate {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    ids: Ids,
}

/// Transactional ids, as bare arguments or by flag.
#[derive(Debug, Args)]
struct Ids {
    /// Transactional ids.
    #[arg(value_name = "ID")]
    bare: Vec<String>,
    /// A transactional id. May be given several times.
    #[arg(long = "transactional-id", value_name = "ID")]
    flagged: Vec<String>,
}

impl Ids {
    fn at_least_one(&self) -> Result<Vec<&str>, Failure> {
        let ids: Vec<&str> = self.bare.iter().chain(&self.flagged).map(String::as_str).collect();
        if ids.is_empty() {
            let text = "no transactional id given; use for example --transactional-id payments-1";
            return Err(Failure::new(text));
        }
        Ok(ids)
    }
}

#[derive(Debug, Args)]
pub(crate) struct DescribeProducers {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    topics: Selections,
    /// Partition of the topics that name none. May be given several times.
    #[arg(long = "partition", value_name = "N")]
    partitions: Vec<i32>,
}

/// A transaction by its first offset, or by its producer for brokers before Apache Kafka 3.0.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("transaction").required(true).args(["start_offset", "producer_id"])))]
pub(crate) struct Abort {
    #[command(flatten)]
    client: ClientArguments,
    /// Topic and partition, as TOPIC:0.
    #[arg(value_name = "TOPIC[:N]", value_parser = topic_selection, conflicts_with = "topic")]
    bare: Option<TopicSelection>,
    /// Topic.
    #[arg(short, long, value_name = "TOPIC[:N]", value_parser = topic_selection)]
    topic: Option<TopicSelection>,
    /// Partition, if the topic names none.
    #[arg(long, value_name = "N")]
    partition: Option<i32>,
    /// First offset of the transaction in the partition.
    #[arg(long, value_name = "OFFSET")]
    start_offset: Option<i64>,
    /// Producer id of the transaction, for brokers that cannot look it up.
    #[arg(long, value_name = "ID", requires_all = ["producer_epoch", "coordinator_epoch"])]
    producer_id: Option<i64>,
    /// Producer epoch of the transaction.
    #[arg(long, value_name = "EPOCH", requires = "producer_id")]
    producer_epoch: Option<i16>,
    /// Epoch of the transaction's coordinator; -1 if unknown.
    #[arg(long, value_name = "EPOCH", allow_hyphen_values = true, requires = "producer_id")]
    coordinator_epoch: Option<i32>,
}

/// Runs `curtail transactions`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::List(arguments) => list(arguments).await,
            Command::Describe(arguments) => describe(&arguments).await,
            Command::DescribeProducers(arguments) => describe_producers(&arguments).await,
            Command::FindHanging(arguments) => hanging::find(&arguments).await,
            Command::Abort(arguments) => abort(&arguments).await,
            Command::ForceTerminate(arguments) => force_terminate(&arguments).await,
        }
    })
}

async fn list(arguments: List) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let filter = TransactionFilter {
        states: arguments.states,
        producer_ids: arguments.producer_ids,
        open_for: arguments.duration_filter.map(Duration::from_millis),
    };
    let mut found = Vec::new();
    let all_known = report(admin.list_transactions(&filter).await?, |broker, listed| {
        found.extend(listed.into_iter().map(|transaction| (transaction, *broker)));
        Ok(())
    });
    found.sort_by(|(a, _), (b, _)| a.transactional_id.cmp(&b.transactional_id));
    let rows: Vec<_> = found
        .into_iter()
        .map(|(transaction, coordinator)| {
            vec![
                Cell::from(transaction.transactional_id),
                coordinator.into(),
                transaction.producer_id.into(),
                transaction.state.into(),
            ]
        })
        .collect();
    let columns = ["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"];
    // An error explains why there are no rows.
    if arguments.format.json || !rows.is_empty() || all_known.is_ok() {
        arguments.format.rows(&columns, rows, "no transactions")?;
    }
    all_known
}

const DESCRIPTION: [&str; 9] = [
    "TRANSACTIONAL-ID",
    "COORDINATOR",
    "PRODUCER-ID",
    "PRODUCER-EPOCH",
    "STATE",
    "TIMEOUT-MS",
    "START-TIME-MS",
    "DURATION-MS",
    "PARTITIONS",
];

async fn describe(arguments: &Describe) -> Result<(), Failure> {
    let ids = arguments.ids.at_least_one()?;
    let admin = admin(&arguments.client)?;
    let now = Timestamp::now().as_millisecond();
    let mut rows = Vec::new();
    let all_known = report(admin.describe_transactions(&ids).await?, |id, found| {
        let partitions = found.partitions.iter().map(ToString::to_string).collect();
        rows.push(vec![
            Cell::from(id.as_str()),
            found.coordinator.into(),
            found.producer_id.into(),
            i32::from(found.producer_epoch).into(),
            found.state.into(),
            i64::try_from(found.timeout.as_millis()).ok().into(),
            found.started.into(),
            found.started.map(|started| (now - started).max(0)).into(),
            Cell::Names(partitions),
        ]);
        Ok(())
    });
    // An error explains why there are no rows.
    if !rows.is_empty() {
        arguments.format.rows(&DESCRIPTION, rows, "no transactions")?;
    }
    all_known
}

const NO_PARTITIONS: &str = "no partitions given; use for example --topic payments:0";

async fn describe_producers(arguments: &DescribeProducers) -> Result<(), Failure> {
    let mut topics = arguments.topics.all();
    if topics.is_empty() {
        return Err(Failure::new(NO_PARTITIONS));
    }
    complete(&mut topics, &arguments.partitions);
    let admin = admin(&arguments.client)?;
    let partitions = partitions_of(&admin, &topics).await?;
    let mut rows = Vec::new();
    let all_known = report(admin.describe_producers(&partitions).await?, |at, producers| {
        rows.extend(producers.into_iter().map(|producer| {
            vec![
                Cell::from(&*at.topic),
                at.partition.into(),
                producer.producer_id.into(),
                i32::from(producer.producer_epoch).into(),
                producer.coordinator_epoch.into(),
                producer.last_sequence.into(),
                producer.last_timestamp.into(),
                producer.transaction_start.into(),
            ]
        }));
        Ok(())
    });
    let columns = [
        "TOPIC",
        "PARTITION",
        "PRODUCER-ID",
        "PRODUCER-EPOCH",
        "COORDINATOR-EPOCH",
        "LAST-SEQUENCE",
        "LAST-TIMESTAMP",
        "TRANSACTION-START",
    ];
    if arguments.format.json || !rows.is_empty() || all_known.is_ok() {
        arguments.format.rows(&columns, rows, "no producers")?;
    }
    all_known
}

/// Sets the partitions of topics that name none.
fn complete(topics: &mut [TopicSelection], partitions: &[i32]) {
    if !partitions.is_empty() {
        for topic in topics.iter_mut().filter(|topic| topic.partitions.is_none()) {
            topic.partitions = Some(partitions.to_vec());
        }
    }
}

async fn abort(arguments: &Abort) -> Result<(), Failure> {
    let mut topics: Vec<TopicSelection> =
        arguments.bare.iter().chain(&arguments.topic).cloned().collect();
    if arguments.partition.is_some() && topics.iter().any(|topic| topic.partitions.is_some()) {
        return Err(Failure::new("--partition cannot be combined with a partition of the topic"));
    }
    complete(&mut topics, arguments.partition.as_slice());
    let at = match &topics[..] {
        [TopicSelection { topic, partitions: Some(partitions) }] if partitions.len() == 1 => {
            TopicPartition::new(topic.as_str(), partitions[0])
        }
        _ => return Err(Failure::new("expected one partition, for example --topic payments:0")),
    };
    let admin = admin(&arguments.client)?;
    let transaction = match (arguments.start_offset, arguments.producer_id) {
        (Some(offset), _) => starting_at(&admin, &at, offset).await?,
        (None, producer_id) => AbortTransaction {
            partition: at.clone(),
            // clap requires these three together.
            producer_id: producer_id.unwrap_or_default(),
            producer_epoch: arguments.producer_epoch.unwrap_or_default(),
            coordinator_epoch: arguments.coordinator_epoch.unwrap_or_default().max(0),
        },
    };
    admin.abort_transaction(&transaction).await?;
    let producer = transaction.producer_id;
    output::line(format_args!("Aborted the transaction of producer {producer} in {at}."))
}

/// The open transaction with this first offset.
async fn starting_at(
    admin: &Admin,
    at: &TopicPartition,
    offset: i64,
) -> Result<AbortTransaction, Failure> {
    let mut found = None;
    report(admin.describe_producers(std::slice::from_ref(at)).await?, |at, producers| {
        let producer = producers.iter().find(|producer| producer.transaction_start == Some(offset));
        found = producer.map(|producer| AbortTransaction::of(at.clone(), producer));
        Ok(())
    })?;
    found.ok_or_else(|| {
        Failure::new(format!(
            "no open transaction of {at} begins at offset {offset}; `curtail transactions describe-producers` prints \
             them (TRANSACTION-START)"
        ))
    })
}

async fn force_terminate(arguments: &ForceTerminate) -> Result<(), Failure> {
    let ids = arguments.ids.at_least_one()?;
    let admin = admin(&arguments.client)?;
    // The request would create a mistyped id.
    report(admin.describe_transactions(&ids).await?, |_, _| Ok(()))?;
    report(admin.fence_producers(&ids).await?, |id, fenced| {
        let epoch = fenced.producer_epoch;
        output::line(format_args!("Fenced the producers of {id} before epoch {epoch}."))
    })
}
