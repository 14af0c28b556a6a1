//! Compaction removes a record only if a newer one of its key has taken its place, or its transaction was not committed.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::history::{Compacted, End, History, ReadBack, RecordId};

/// The records of compacted topics that must stay.
pub(super) struct Survivors<'a> {
    compacted: Option<&'a Compacted>,
    /// By key, the newest record that readers may see.
    newest: BTreeMap<u64, ReadBack>,
    /// Records of transactions that were perhaps not committed.
    uncommitted: BTreeSet<RecordId>,
}

impl<'a> Survivors<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut survivors =
            Self { compacted: None, newest: BTreeMap::new(), uncommitted: BTreeSet::new() };
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
        survivors
    }

    /// Whether compaction may have removed the record. The records of a key have one producer, in the order of their
    /// numbers.
    pub(super) fn may_be_gone(&self, id: RecordId) -> bool {
        let Some(key) = self.compacted.and_then(|compacted| compacted.keys.get(&id)) else {
            return false;
        };
        let is_replaced = self.newest.get(key).is_some_and(|newest| newest.id > Some(id));
        is_replaced || self.uncommitted.contains(&id)
    }

    /// Checks the replicas, the consumer that has read everything, and what it skipped before.
    pub(super) fn check(&self) -> Vec<Violation> {
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
