//! Compares the content of a topic with the acknowledgements.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use curtail::{Consumer, ConsumerConfig, TopicPartition, config::Acks};

use super::{
    Figure, Sample,
    load::{EARLIER, Fate, Sent, number},
};
use crate::perf::{Error, Result, client_runtime};

/// Longest wait for an acknowledged record to appear in the topic.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest wait without acks=all: a record that is not visible soon is lost.
const PATIENCE_UNCOMMITTED: Duration = Duration::from_secs(3);

/// Required order of the records of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order of the sends. Each record's partition was fixed when it was sent.
    Sent,
    /// The order of the sends, among the records of each of this many producers, which send in turn.
    SentInTurn(u64),
    /// No record is before one that had already been acknowledged when it was sent. A keyless record may
    /// change its partition before it is first written, so no stronger order is promised.
    Acknowledged,
}

/// Reads the topic back and counts what is lost, duplicated and out of order, into the sample.
///
/// # Errors
/// A topic that cannot be read.
pub(super) fn read_back(sent: &Sent, order: Order, sample: &mut Sample) -> Result<()> {
    let runtime = client_runtime()?;
    let _context = runtime.enter();
    let sender = sent.config();
    let config = ConsumerConfig::new(sender.get_bootstrap_servers().join(","))
        .security(sender.get_security().clone());
    let mut consumer = Consumer::new(config)?;
    let wanted = sent.fates.iter().filter(|fate| fate.acknowledged.is_some()).count();
    let patience = if sender.get_acks() == Acks::All { PATIENCE } else { PATIENCE_UNCOMMITTED };
    let found = runtime.block_on(read(&mut consumer, sent.topic(), wanted, patience, number));
    runtime.block_on(consumer.close());
    let findings = compare(&sent.fates, &found?, order);
    sample.lost += findings.lost;
    sample.duplicated += findings.duplicated;
    sample.reordered += findings.reordered;
    if order == Order::Acknowledged {
        sample.note("records_behind_later", Figure::Total(findings.behind_later as f64));
    }
    Ok(())
}

/// The numbers of a topic's records, by partition, with their offsets.
pub(crate) type Found = BTreeMap<i32, Vec<(i64, u64)>>;

/// Reads to the end. If fewer different records than wanted have arrived by then, it continues until none has
/// arrived for a while. `number` reads a record's number from its value.
pub(crate) async fn read(
    consumer: &mut Consumer,
    topic: &str,
    wanted: usize,
    patience: Duration,
    number: fn(&[u8]) -> Option<u64>,
) -> Result<Found> {
    let partitions: Vec<TopicPartition> = consumer
        .partitions_for(topic)
        .await?
        .iter()
        .map(|info| TopicPartition::new(topic, info.partition))
        .collect();
    consumer.assign(partitions.iter().cloned());
    consumer.seek_to_beginning(&partitions)?;
    let mut found = Found::new();
    let mut different = BTreeSet::new();
    let mut last = Instant::now();
    loop {
        let records = consumer.poll(Duration::from_millis(100)).await?;
        if records.is_empty() && at_end(consumer, &partitions).await? {
            if different.len() >= wanted || last.elapsed() > patience {
                return Ok(found);
            }
        } else if !records.is_empty() {
            last = Instant::now();
        } else if last.elapsed() > 3 * PATIENCE {
            let text = format!("{topic} cannot be read to its end: no more records arrive");
            return Err(Error::Unexpected(text));
        }
        for record in records {
            let number = record.value().and_then(number);
            let Some(number) = number else {
                let text = format!("{topic}: a record that this run has not sent");
                return Err(Error::Unexpected(text));
            };
            if number >= EARLIER {
                continue;
            }
            different.insert(number);
            found.entry(record.partition()).or_default().push((record.offset(), number));
        }
    }
}

/// Whether the consumer has returned all records that the partitions hold now.
pub(super) async fn at_end(consumer: &Consumer, partitions: &[TopicPartition]) -> Result<bool> {
    for (partition, end) in consumer.end_offsets(partitions).await? {
        if consumer.position(&partition).await? < end {
            return Ok(false);
        }
    }
    Ok(true)
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
    /// Records behind one that was sent after them.
    pub(crate) behind_later: u64,
}

/// Compares the records' outcomes with the records found.
pub(crate) fn compare(fates: &[Fate], found: &Found, order: Order) -> Findings {
    let mut findings = Findings::default();
    let mut places: BTreeMap<u64, Vec<(i32, i64)>> = BTreeMap::new();
    for (&partition, records) in found {
        for &(offset, number) in records {
            places.entry(number).or_default().push((partition, offset));
        }
        let behind_later = out_of_sending_order(records, 1);
        findings.behind_later += behind_later;
        findings.reordered += match order {
            Order::Sent => behind_later,
            Order::SentInTurn(producers) => out_of_sending_order(records, producers),
            Order::Acknowledged => before_the_acknowledged(fates, records),
        };
    }
    findings.duplicated = places.values().map(|places| places.len() as u64 - 1).sum();
    for (number, fate) in fates.iter().enumerate() {
        let Some(acknowledged) = fate.acknowledged else { continue };
        let there = places.get(&(number as u64)).is_some_and(|places| {
            places.iter().any(|&(partition, offset)| {
                partition == acknowledged.partition
                    && acknowledged.offset.is_none_or(|told| told == offset)
            })
        });
        findings.lost += u64::from(!there);
    }
    findings
}

/// Number of records after one that the same producer sent later. A second copy of a record counts as
/// duplicated, not here.
fn out_of_sending_order(records: &[(i64, u64)], producers: u64) -> u64 {
    let mut seen = BTreeSet::new();
    let mut highest = BTreeMap::new();
    let mut reordered = 0;
    for &(_, number) in records {
        if !seen.insert(number) {
            continue;
        }
        let highest = highest.entry(number % producers).or_insert(number);
        reordered += u64::from(number < *highest);
        *highest = number.max(*highest);
    }
    reordered
}

/// Number of records before one that was acknowledged when they were sent.
fn before_the_acknowledged(fates: &[Fate], records: &[(i64, u64)]) -> u64 {
    let mut earliest = u64::MAX;
    let mut reordered = 0;
    for &(offset, number) in records.iter().rev() {
        let Some(fate) = usize::try_from(number).ok().and_then(|number| fates.get(number)) else {
            continue;
        };
        reordered += u64::from(fate.sent > earliest);
        // A further copy does not change the position of the acknowledged one.
        if let Some(acknowledged) = fate.acknowledged
            && acknowledged.offset.is_none_or(|told| told == offset)
        {
            earliest = earliest.min(acknowledged.at);
        }
    }
    reordered
}
