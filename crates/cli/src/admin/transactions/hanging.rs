//! `curtail transactions find-hanging`: open transactions of partitions that no coordinator knows (KIP-664).

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use curtail::{
    Admin, ErrorCode, TopicPartition,
    admin::{ProducerState, TransactionFilter},
};
use jiff::Timestamp;

use super::complete;
use crate::{
    admin::{Cell, Format, Selections, TopicSelection, admin, partitions_of, report},
    failure::Failure,
    settings::ClientArguments,
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    topics: Selections,
    /// Partition of the topics that name none. May be given several times.
    #[arg(long = "partition", value_name = "N")]
    partitions: Vec<i32>,
    /// Search partitions with a replica on this broker, of all topics unless some are named.
    #[arg(long, value_name = "ID")]
    broker_id: Option<i32>,
    /// Minutes without a write after which an open transaction is suspected: the brokers' transaction.max.timeout.ms.
    #[arg(long, value_name = "MINUTES", default_value_t = 15)]
    max_transaction_timeout: u32,
}

/// An open transaction in a partition.
type Open = (TopicPartition, ProducerState);

pub(super) async fn find(arguments: &Arguments) -> Result<(), Failure> {
    let mut topics = arguments.topics.all();
    if topics.is_empty() && arguments.broker_id.is_none() {
        let text = "nothing to search; use for example --topic payments or --broker-id 1";
        return Err(Failure::new(text));
    }
    if topics.is_empty() && !arguments.partitions.is_empty() {
        return Err(Failure::new("--partition needs a topic, for example --topic payments"));
    }
    complete(&mut topics, &arguments.partitions);
    let admin = admin(&arguments.client)?;
    let partitions = match arguments.broker_id {
        None => partitions_of(&admin, &topics).await?,
        Some(broker) => on_broker(&admin, broker, &topics).await?,
    };
    let now = Timestamp::now().as_millisecond();
    let quiet = i64::from(arguments.max_transaction_timeout) * 60_000;
    let mut open = Vec::new();
    let all_known = report(admin.describe_producers(&partitions).await?, |at, producers| {
        let suspected = producers.into_iter().filter(|producer| is_suspected(producer, now, quiet));
        open.extend(suspected.map(|producer| (at.clone(), producer)));
        Ok(())
    });
    let known = match open.is_empty() {
        true => BTreeMap::new(),
        false => coordinated(&admin, &open).await?,
    };
    open.retain(|(at, producer)| is_hanging(at, producer.producer_id, &known));
    let rows = open.into_iter().map(|(at, producer)| {
        let minutes = producer.last_timestamp.map(|last| (now - last).max(0) / 60_000);
        vec![
            Cell::from(&*at.topic),
            at.partition.into(),
            producer.producer_id.into(),
            i32::from(producer.producer_epoch).into(),
            producer.coordinator_epoch.into(),
            producer.transaction_start.into(),
            producer.last_timestamp.into(),
            minutes.into(),
        ]
    });
    let columns = [
        "TOPIC",
        "PARTITION",
        "PRODUCER-ID",
        "PRODUCER-EPOCH",
        "COORDINATOR-EPOCH",
        "START-OFFSET",
        "LAST-TIMESTAMP",
        "DURATION-MIN",
    ];
    arguments.format.rows(&columns, rows.collect(), "no hanging transactions")?;
    all_known
}

fn is_suspected(producer: &ProducerState, now: i64, quiet: i64) -> bool {
    let last = producer.last_timestamp.unwrap_or(0);
    producer.transaction_start.is_some() && now - last > quiet
}

/// Whether no coordinator has the partition in a transaction of the producer.
fn is_hanging(
    at: &TopicPartition,
    producer_id: i64,
    known: &BTreeMap<i64, Vec<TopicPartition>>,
) -> bool {
    !known.get(&producer_id).is_some_and(|partitions| partitions.contains(at))
}

/// Partitions with a replica on a broker, of all topics if none are named.
async fn on_broker(
    admin: &Admin,
    broker: i32,
    topics: &[TopicSelection],
) -> Result<Vec<TopicPartition>, Failure> {
    let cluster = admin.describe_cluster().await?;
    let ids: Vec<String> = cluster.brokers.iter().map(|broker| broker.id.to_string()).collect();
    if cluster.brokers.iter().all(|found| found.id != broker) {
        let live = ids.join(", ");
        return Err(Failure::new(format!(
            "broker {broker} is not live; the live brokers are {live}"
        )));
    }
    let all = match topics {
        [] => {
            let listed = admin.list_topics().await?.into_iter();
            listed.map(|topic| TopicSelection { topic: topic.name, partitions: None }).collect()
        }
        topics => topics.to_vec(),
    };
    let names: Vec<&str> = all.iter().map(|selection| selection.topic.as_str()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut here = BTreeSet::new();
    for (name, topic) in crate::admin::described(admin, &names).await? {
        let held = topic.partitions.iter().filter(|held| held.replicas.contains(&broker));
        here.extend(held.map(|held| TopicPartition::new(name.as_str(), held.partition)));
    }
    let mut selected = partitions_of(admin, &all).await?;
    selected.retain(|at| here.contains(at));
    Ok(selected)
}

/// Partitions of the coordinators' transactions, by producer id.
async fn coordinated(
    admin: &Admin,
    open: &[Open],
) -> Result<BTreeMap<i64, Vec<TopicPartition>>, Failure> {
    let producers: BTreeSet<i64> = open.iter().map(|(_, producer)| producer.producer_id).collect();
    let filter =
        TransactionFilter { producer_ids: producers.into_iter().collect(), ..Default::default() };
    let mut ids = BTreeSet::new();
    report(admin.list_transactions(&filter).await?, |_, listed| {
        ids.extend(listed.into_iter().map(|transaction| transaction.transactional_id));
        Ok(())
    })?;
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut known = BTreeMap::new();
    if ids.is_empty() {
        return Ok(known);
    }
    for (_, described) in admin.describe_transactions(&ids).await? {
        match described {
            Ok(found) => {
                known.insert(found.producer_id, found.partitions);
            }
            // It has expired since the list.
            Err(error) if error.code() == Some(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_hanging_if_no_coordinator_has_its_partition() {
        let at = |partition| TopicPartition::new("t", partition);
        let known = BTreeMap::from([(5, vec![at(0)])]);
        assert!(!is_hanging(&at(0), 5, &known));
        assert!(
            is_hanging(&at(1), 5, &known),
            "the coordinator's transaction has other partitions"
        );
        assert!(is_hanging(&at(0), 6, &known), "no coordinator knows the producer");
    }
}
