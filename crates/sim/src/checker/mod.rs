//! Checks a history against Curtail's promises about acknowledged, failed and duplicated records, and nothing else.
//!
//! Pure: it knows neither the network nor the client, so that hand-made histories test it.

mod compaction;
mod copies;
mod disks;
mod groups;
mod liveness;
#[cfg(test)]
mod tests;
mod transactions;
mod unclean;
mod violation;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub use violation::Violation;

use compaction::Survivors;

use crate::history::{History, Outcome, PLACES, ReadBack, RecordId, ReplicaLog, Sent};

/// Every broken promise in a history, in a fixed order.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found: BTreeMap<RecordId, Vec<(i32, i64)>> = BTreeMap::new();
    let known: BTreeSet<RecordId> = history.sent.iter().map(|sent| sent.id).collect();
    let survivors = Survivors::of(history);
    let mut violations = Vec::new();
    for ReadBack { partition, offset, id } in &history.read {
        match id.filter(|id| known.contains(id)) {
            Some(id) => found.entry(id).or_default().push((*partition, *offset)),
            None => violations.push(Violation::Unknown { found: (*partition, *offset) }),
        }
    }
    let twice =
        |(id, copies): &(&RecordId, &Vec<_>)| copies.len() > 1 && history.promise(**id).once;
    for (id, copies) in found.iter().filter(twice) {
        violations.push(Violation::Duplicated { id: *id, copies: copies.clone() });
    }
    violations.extend(
        history
            .sent
            .iter()
            .filter_map(|sent| check_outcome(sent, found.get(&sent.id).map_or(&[], Vec::as_slice)))
            .filter(|violation| is_promised(history, &survivors, violation)),
    );
    violations.extend(check_read_order(&history.read));
    violations.extend(check_producer_order(&found, history));
    violations.extend(check_offsets_advance(history));
    violations.extend(check_consumed(history));
    violations.extend(check_replicas(history));
    violations.extend(survivors.check(history));
    violations.extend(transactions::check(history, &survivors));
    violations.extend(groups::check(history));
    violations.extend(copies::check(history));
    violations.extend(liveness::check(history));
    violations.extend(disks::check(history));
    violations.extend(unclean::check(history));
    violations.extend(history.stale.iter().cloned().map(Violation::StaleLeader));
    violations.extend(check_refusals(history));
    violations.extend(check_retries(history));
    violations.extend(history.strays.iter().map(|stray| Violation::Strayed {
        partition: stray.partition,
        expected: stray.expected,
        given: stray.given,
        at: stray.at,
    }));
    violations.extend(history.needless_resets.iter().map(|reset| Violation::OutOfRangeInLog {
        partition: reset.partition,
        offset: reset.offset,
        at: reset.at,
    }));
    violations.extend(history.read_afar.iter().copied().map(Violation::ReadAfar));
    violations.extend(history.unflushed.iter().map(|id| Violation::FlushedEarly { id: *id }));
    violations.extend(history.twice.iter().map(|id| Violation::ReportedTwice { id: *id }));
    let elsewhere = history.committed_elsewhere.iter().copied();
    violations.extend(elsewhere.map(Violation::CommittedElsewhere));
    violations.extend(history.dropped_commits.iter().copied().map(Violation::CommitDropped));
    violations.extend(history.undecided.iter().map(|(producer, error)| {
        Violation::CommitUndecided { producer: *producer, error: error.clone() }
    }));
    violations
}

/// Whether the producer's settings promise that this does not happen.
fn is_promised(history: &History, survivors: &Survivors<'_>, violation: &Violation) -> bool {
    match violation {
        Violation::Lost { id, acknowledged } => {
            is_durable(history, *id)
                && !survivors.may_be_gone(*id)
                && !is_deleted(history, *acknowledged)
                && unclean::keeps(history, *id, acknowledged.0)
        }
        Violation::Misplaced { id, acknowledged, .. } => {
            is_durable(history, *id) && unclean::keeps(history, *id, acknowledged.0)
        }
        _ => true,
    }
}

fn is_durable(history: &History, id: RecordId) -> bool {
    history.promise(id).durable && !history.buried.contains(&id)
}

/// Whether the record may have been deleted on request.
fn is_deleted(history: &History, (partition, offset): (i32, Option<i64>)) -> bool {
    let start = history.starts.get(&partition);
    start.is_some_and(|start| offset.is_none_or(|offset| offset < *start))
}

/// Checks an outcome against the record's place in the log.
fn check_outcome(sent: &Sent, copies: &[(i32, i64)]) -> Option<Violation> {
    let id = sent.id;
    match &sent.outcome {
        Outcome::Acknowledged { partition, offset, .. } => {
            let acknowledged = (*partition, *offset);
            let fits = |(at, of): &(i32, i64)| at == partition && offset.is_none_or(|o| o == *of);
            match copies.first() {
                None => Some(Violation::Lost { id, acknowledged }),
                Some(_) if copies.iter().any(fits) => None,
                Some(&found) => Some(Violation::Misplaced { id, acknowledged, found }),
            }
        }
        Outcome::NotWritten { error } => copies.first().map(|&found| Violation::WrittenAfterAll {
            id,
            error: error.clone(),
            found,
        }),
        Outcome::MaybeWritten { .. } => None,
        Outcome::Pending => Some(Violation::NoOutcome { id }),
    }
}

fn check_read_order(read: &[ReadBack]) -> Vec<Violation> {
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    let mut violations = Vec::new();
    for &ReadBack { partition, offset, .. } in read {
        if let Some(before) = last.insert(partition, offset)
            && before >= offset
        {
            violations.push(Violation::ReadOutOfOrder { partition, before, after: offset });
        }
    }
    violations
}

/// Checks that brokers that have lost nothing refuse no sequence number for good, unless the topic was replaced.
fn check_refusals(history: &History) -> impl Iterator<Item = Violation> {
    const REFUSALS: [&str; 3] =
        ["OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH"];
    history.sent.iter().filter(|sent| !history.buried.contains(&sent.id)).filter_map(|sent| {
        // A batch that may have been written may follow a lost one; it then fails with the refusal that ended its wait.
        let Outcome::NotWritten { error } = &sent.outcome else { return None };
        // A rival or an abort explains a transactional producer's error. A batch that waits for an earlier one may be
        // refused until it expires.
        let refused = history.transactions.is_empty()
            && !error.contains("delivery.timeout.ms")
            && REFUSALS.iter().any(|refusal| error.contains(refusal));
        refused.then(|| Violation::SequenceRefused { id: sent.id, error: error.clone() })
    })
}

/// Average retries per record.
const RETRIES: u64 = 12;
/// Additional retries per producer.
const RETRIES_MORE: u64 = 300;

/// Checks the bound on retries that follows from backoff and from waiting for another leader.
fn check_retries(history: &History) -> impl Iterator<Item = Violation> {
    history.retries.iter().filter_map(|(&producer, &retries)| {
        let records = history.sent.iter().filter(|sent| sent.id.producer == producer).count();
        let storm = retries > RETRIES * records as u64 + RETRIES_MORE;
        storm.then_some(Violation::RetryStorm { producer, retries, records })
    })
}

/// Checks that a producer's records are in each partition in the order of their sends, except for records that may
/// change their partition. A record with several copies counts at the first one; the others are reported separately.
fn check_producer_order(
    found: &BTreeMap<RecordId, Vec<(i32, i64)>>,
    history: &History,
) -> Vec<Violation> {
    let is_bound = |id: &RecordId| !history.free.contains(id) && history.promise(*id).ordered;
    let mut last: BTreeMap<(u32, i32), (RecordId, i64)> = BTreeMap::new();
    let mut violations = Vec::new();
    for (id, copies) in found.iter().filter(|(id, _)| is_bound(id)) {
        let Some(&(partition, offset)) = copies.iter().min_by_key(|(_, offset)| *offset) else {
            continue;
        };
        let last = last.entry((id.producer, partition)).or_insert((*id, offset));
        if last.1 > offset {
            violations.push(Violation::Reordered { partition, first: *last, later: (*id, offset) });
        } else {
            *last = (*id, offset);
        }
    }
    violations
}

/// Checks that an acknowledged offset is above every offset of the partition acknowledged before the send.
fn check_offsets_advance(history: &History) -> Vec<Violation> {
    let sent = &history.sent;
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum Event {
        // At the same time, the send counts as earlier than the acknowledgement: that proves less.
        Begin(usize),
        Acknowledged(usize),
    }
    let mut events: Vec<(Duration, Event)> = Vec::new();
    for (index, record) in sent.iter().enumerate() {
        if !is_durable(history, record.id) {
            continue;
        }
        if let Outcome::Acknowledged { at, offset: Some(_), partition } = record.outcome
            && unclean::is_newer(history, record, partition)
        {
            events.push((record.at, Event::Begin(index)));
            events.push((at, Event::Acknowledged(index)));
        }
    }
    events.sort();
    let mut highest: BTreeMap<i32, i64> = BTreeMap::new();
    let mut violations = Vec::new();
    for (_, event) in events {
        let (Event::Begin(index) | Event::Acknowledged(index)) = event;
        let Outcome::Acknowledged { partition, offset: Some(offset), .. } = sent[index].outcome
        else {
            continue;
        };
        let highest = highest.entry(partition).or_insert(-1);
        match event {
            Event::Begin(_) if offset <= *highest => violations.push(Violation::OffsetRegression {
                id: sent[index].id,
                partition,
                offset,
                before: *highest,
            }),
            Event::Begin(_) => {}
            Event::Acknowledged(_) => *highest = offset.max(*highest),
        }
    }
    violations
}

/// Checks that committed records do not change: a consumer that starts at the beginning returns each partition's log,
/// record for record, under any fault.
fn check_consumed(history: &History) -> Vec<Violation> {
    // The consumers read the first topic only.
    let first = |record: &&ReadBack| record.partition < PLACES;
    let log = || history.read.iter().filter(first);
    let consumed = std::iter::once(&history.consumed).chain(&history.also_consumed);
    consumed
        .flat_map(|consumed| differences(log(), consumed.iter().filter(first)))
        .map(|Difference { partition, given, next }| Violation::ConsumedDiffers {
            partition,
            given,
            next,
        })
        .collect()
}

type Entry = (i64, Option<RecordId>);

/// The first difference between a partition's log and a consumer's records of it.
struct Difference {
    partition: i32,
    given: Option<Entry>,
    next: Option<Entry>,
}

fn differences<'a>(
    log: impl Iterator<Item = &'a ReadBack>,
    given: impl Iterator<Item = &'a ReadBack>,
) -> Vec<Difference> {
    type Log = BTreeMap<i32, Vec<Entry>>;
    fn by_partition<'a>(records: impl Iterator<Item = &'a ReadBack>) -> Log {
        let mut logs = Log::new();
        for record in records {
            logs.entry(record.partition).or_default().push((record.offset, record.id));
        }
        logs
    }
    let (log, given) = (by_partition(log), by_partition(given));
    let partitions: BTreeSet<i32> = log.keys().chain(given.keys()).copied().collect();
    let empty = Vec::new();
    let differs = |partition| {
        let log = log.get(&partition).unwrap_or(&empty);
        let given = given.get(&partition).unwrap_or(&empty);
        let at = (0..log.len().max(given.len())).find(|&at| log.get(at) != given.get(at))?;
        let (given, next) = (given.get(at).copied(), log.get(at).copied());
        Some(Difference { partition, given, next })
    };
    partitions.into_iter().filter_map(differs).collect()
}

/// Checks that, at rest, every replica of a partition has the same batches.
fn check_replicas<'a>(history: &'a History) -> Vec<Violation> {
    let mut first: BTreeMap<i32, &'a ReplicaLog> = BTreeMap::new();
    let mut violations = Vec::new();
    for log in &history.replicas {
        let reference = *first.entry(log.partition).or_insert(log);
        // Followers delete old segments later than their leader, so only batches that both logs may have are compared.
        let start = reference.start_offset.max(log.start_offset);
        let from = |log: &'a ReplicaLog| log.batches.iter().filter(move |batch| batch.0 >= start);
        let differs = from(reference)
            .zip(from(log))
            .find(|(a, b)| a != b)
            .map(|(a, b)| a.0.min(b.0))
            .or_else(|| {
                (reference.end_offset != log.end_offset)
                    .then(|| reference.end_offset.min(log.end_offset))
            });
        if let Some(offset) = differs {
            violations.push(Violation::ReplicasDiffer {
                partition: log.partition,
                brokers: (reference.broker, log.broker),
                offset,
            });
        }
    }
    violations
}
