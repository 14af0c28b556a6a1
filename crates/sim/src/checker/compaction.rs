//! Compaction removes a record only if a newer one of its key has taken its place, its transaction was not committed, or
//! it is a tombstone at the end of its retention. Nothing that a tombstone deleted comes back.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::history::{Compacted, End, History, Outcome, ReadBack, RecordId};

/// The records of compacted topics that must stay.
#[derive(Default)]
pub(super) struct Survivors<'a> {
    compacted: Option<&'a Compacted>,
    /// By key, the newest record that readers may see.
    newest: BTreeMap<u64, ReadBack>,
    /// By key, the newest tombstone that may be gone with all records before it.
    last_deletion: BTreeMap<u64, RecordId>,
    /// Records of transactions that were perhaps not committed.
    uncommitted: BTreeSet<RecordId>,
}

impl<'a> Survivors<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut survivors = Self::default();
        let Some(compacted) = &history.compacted else { return survivors };
        survivors.compacted = Some(compacted);
        let visible = if compacted.transactional { &history.committed } else { &history.read };
        for record in visible {
            let key = record.id.and_then(|id| compacted.keys.get(&id));
            let Some(key) = key else { continue };
            let newest = survivors.newest.entry(*key).or_insert(*record);
            if newest.id < record.id {
                *newest = *record;
            }
        }
        let doubtful = history.transactions.iter().filter(|txn| txn.end != End::Committed);
        survivors.uncommitted = doubtful.flat_map(|txn| txn.records.iter().copied()).collect();
        if !compacted.keeps_tombstones {
            let aborted = history.transactions.iter().filter(|txn| txn.end == End::Aborted);
            let aborted: BTreeSet<RecordId> =
                aborted.flat_map(|txn| txn.records.iter().copied()).collect();
            survivors.last_deletion = last_by_key(compacted, |id| !aborted.contains(&id));
            survivors
                .newest
                .retain(|_, record| record.id.is_none_or(|id| !compacted.tombstones.contains(&id)));
        }
        survivors
    }

    /// Whether compaction may have removed the record. The records of a key have one producer, in the order of their
    /// numbers.
    pub(super) fn may_be_gone(&self, id: RecordId) -> bool {
        let Some(key) = self.compacted.and_then(|compacted| compacted.keys.get(&id)) else {
            return false;
        };
        let is_replaced = self.newest.get(key).is_some_and(|newest| newest.id > Some(id));
        let is_deleted = self.last_deletion.get(key).is_some_and(|tombstone| *tombstone >= id);
        is_replaced || is_deleted || self.uncommitted.contains(&id)
    }

    /// Checks the replicas, the consumer that has read everything, and what it skipped before.
    pub(super) fn check(&self, history: &History) -> Vec<Violation> {
        let Some(compacted) = self.compacted else { return Vec::new() };
        let mut violations = self.missing(None, &compacted.viewed);
        for (broker, records) in &compacted.replicas {
            violations.extend(self.missing(Some(*broker), records));
        }
        for skipped in &compacted.skipped {
            let passed = self.newest.values().find(|record| {
                record.partition == skipped.partition
                    && (skipped.from..skipped.to).contains(&record.offset)
            });
            violations.extend(passed.map(|record| Violation::Strayed {
                partition: skipped.partition,
                expected: Some(record.offset),
                given: skipped.to,
                at: skipped.at,
            }));
        }
        violations.extend(self.moved(compacted));
        violations.extend(self.resurrected(compacted, history));
        violations
    }

    /// Finds replicas that have a record of a key but not the tombstone that deleted it.
    fn resurrected(&self, compacted: &Compacted, history: &History) -> Vec<Violation> {
        let written = history.sent.iter().filter(|sent| {
            matches!(sent.outcome, Outcome::Acknowledged { .. })
                && !self.uncommitted.contains(&sent.id)
        });
        let written: BTreeSet<RecordId> = written.map(|sent| sent.id).collect();
        let deletions = last_by_key(compacted, |id| written.contains(&id));
        let mut violations = Vec::new();
        for (&broker, records) in &compacted.replicas {
            let mut last: BTreeMap<u64, RecordId> = BTreeMap::new();
            for id in records.iter().filter_map(|record| record.id) {
                let Some(key) = compacted.keys.get(&id) else { continue };
                let entry = last.entry(*key).or_insert(id);
                *entry = (*entry).max(id);
            }
            violations.extend(last.into_iter().filter_map(|(key, id)| {
                let tombstone = *deletions.get(&key)?;
                (id < tombstone).then_some(Violation::Resurrected { broker, id, tombstone })
            }));
        }
        violations
    }

    fn missing(&self, broker: Option<i32>, records: &[ReadBack]) -> Vec<Violation> {
        let places: BTreeSet<_> = records.iter().map(|r| (r.partition, r.offset, r.id)).collect();
        let is_missing =
            |record: &&ReadBack| !places.contains(&(record.partition, record.offset, record.id));
        let missing = self.newest.values().filter(is_missing);
        missing
            .filter_map(|record| {
                let found = (record.partition, record.offset);
                Some(Violation::CompactedAway { broker, id: record.id?, found })
            })
            .collect()
    }

    /// Finds an offset at which two replicas have different records.
    fn moved(&self, compacted: &Compacted) -> Option<Violation> {
        let mut first: BTreeMap<(i32, i64), (i32, Option<RecordId>)> = BTreeMap::new();
        for (broker, records) in &compacted.replicas {
            for ReadBack { partition, offset, id } in records {
                let (other, known) = *first.entry((*partition, *offset)).or_insert((*broker, *id));
                if known != *id {
                    let (partition, offset) = (*partition, *offset);
                    let brokers = (other, *broker);
                    return Some(Violation::ReplicasDiffer { partition, brokers, offset });
                }
            }
        }
        None
    }
}

/// The last of these tombstones of each key.
fn last_by_key(
    compacted: &Compacted,
    counts: impl Fn(RecordId) -> bool,
) -> BTreeMap<u64, RecordId> {
    let tombstones = compacted.tombstones.iter().filter(|id| counts(**id));
    // In the order of their numbers: the last one stays in the map.
    tombstones.filter_map(|id| Some((*compacted.keys.get(id)?, *id))).collect()
}
