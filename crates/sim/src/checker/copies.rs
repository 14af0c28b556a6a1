//! Read-process-write: the committed output has each record of the input exactly once, in its order.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::history::{History, PLACES, RecordId};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let Some(copies) = &history.copies else { return Vec::new() };
    let mut violations = Vec::new();
    let mut found: BTreeMap<RecordId, Vec<(i32, i64)>> = BTreeMap::new();
    for copy in copies {
        match copy.id {
            Some(id) => found.entry(id).or_default().push((copy.partition, copy.offset)),
            None => violations.push(Violation::Unknown { found: (copy.partition, copy.offset) }),
        }
    }
    let originals = || history.read.iter().filter(|read| read.partition < PLACES);
    let mut last: BTreeMap<i32, (RecordId, i64)> = BTreeMap::new();
    for (partition, id) in originals().filter_map(|read| Some((read.partition, read.id?))) {
        let copies = found.get(&id).map_or(&[][..], Vec::as_slice);
        match copies {
            [] => violations.push(Violation::NotCopied { id, partition }),
            [(_, offset)] => {
                let (first, before) = last.insert(partition, (id, *offset)).unwrap_or((id, -1));
                if before > *offset {
                    violations.push(Violation::CopiedOutOfOrder { partition, first, later: id });
                }
            }
            _ => violations.push(Violation::CopiedTwice { id, copies: copies.to_vec() }),
        }
    }
    let known: BTreeSet<RecordId> = originals().filter_map(|read| read.id).collect();
    for (_, copies) in found.iter().filter(|(id, _)| !known.contains(id)) {
        violations.extend(copies.iter().map(|&found| Violation::Unknown { found }));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ReadBack;

    fn record(number: u32, offset: i64) -> ReadBack {
        ReadBack { partition: 0, offset, id: Some(RecordId { producer: 1, number }) }
    }

    fn kinds(copies: Vec<ReadBack>) -> Vec<&'static str> {
        let read = vec![record(0, 0), record(1, 1), record(2, 2)];
        let history = History { read, copies: Some(copies), ..History::default() };
        check(&history).iter().map(Violation::kind).collect()
    }

    #[test]
    fn each_input_record_is_copied_once_and_in_order() {
        assert_eq!(kinds(vec![record(0, 4), record(1, 5), record(2, 9)]), [""; 0]);
        assert_eq!(kinds(vec![record(0, 4), record(2, 9)]), ["not-copied"]);
        let twice = vec![record(0, 4), record(1, 5), record(1, 6), record(2, 9)];
        assert_eq!(kinds(twice), ["copied-twice"]);
        let reordered = vec![record(1, 4), record(0, 5), record(2, 9)];
        assert_eq!(kinds(reordered), ["copied-out-of-order"]);
        let made_up = vec![record(0, 4), record(1, 5), record(2, 9), record(3, 10)];
        assert_eq!(kinds(made_up), ["unknown-record"]);
    }
}
