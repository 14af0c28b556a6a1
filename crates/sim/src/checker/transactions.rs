//! Checks the records of each transaction that a read_committed consumer returned.

use std::collections::BTreeMap;

use super::{Violation, compaction::Survivors};
use crate::history::{End, History, RecordId};

/// A committed transaction must be visible in full and an aborted one not at all. A transaction of unknown outcome
/// must be visible in full or not at all. Records that compaction may have removed do not count.
pub(super) fn check(history: &History, survivors: &Survivors<'_>) -> Vec<Violation> {
    let mut seen: BTreeMap<RecordId, usize> = BTreeMap::new();
    for record in history.committed.iter().filter_map(|read| read.id) {
        *seen.entry(record).or_default() += 1;
    }
    let mut violations = Vec::new();
    for transaction in &history.transactions {
        let of = transaction.records.len();
        let visible = transaction.records.iter().filter(|id| seen.contains_key(id)).count();
        let is_gone = |id: &&RecordId| !seen.contains_key(id) && survivors.may_be_gone(**id);
        let gone = transaction.records.iter().filter(is_gone).count();
        let fits = match transaction.end {
            End::Committed => visible + gone == of,
            End::Aborted => visible == 0,
            End::Unknown => visible == 0 || visible + gone == of,
        };
        if let (false, Some(&first)) = (fits, transaction.records.first()) {
            violations.push(Violation::Torn { first, end: transaction.end, visible, of });
        }
    }
    for (id, _) in seen.iter().filter(|(_, copies)| **copies > 1) {
        violations.push(Violation::CommittedTwice { id: *id });
    }
    violations
}
