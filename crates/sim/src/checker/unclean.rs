//! Unclean elections: only they lose acknowledged records, and a consumer reports the loss.

use std::time::Duration;

use super::{Difference, Violation, differences};
use crate::history::{History, PLACES, ReadBack, RecordId, Sent, Truncation};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let baseless = history.truncations.iter().filter(|report| !is_founded(history, report));
    let mut violations: Vec<Violation> = baseless
        .map(|report| Violation::TruncatedForNoReason {
            partition: report.partition,
            offset: report.offset,
            expected: report.expected,
            at: report.at,
        })
        .collect();
    if let Some(view) = &history.view {
        let others = |record: &&ReadBack| record.partition >= PLACES;
        let silent = differences(history.read.iter().filter(others), view.iter());
        violations.extend(silent.into_iter().map(|Difference { partition, given, next }| {
            Violation::TruncatedSilently { partition, given, next }
        }));
    }
    violations
}

/// Unclean elections of a partition that may have them.
fn elections(history: &History, partition: i32) -> Option<&Vec<Duration>> {
    // The first topic forbids them.
    history.unclean.get(&partition).filter(|_| partition >= PLACES)
}

fn is_founded(history: &History, report: &Truncation) -> bool {
    let elections = elections(history, report.partition);
    let before = elections.is_some_and(|times| times.iter().any(|time| *time <= report.at));
    before && report.offset == report.expected
}

/// Whether a record is newer than the last unclean election of its partition.
pub(super) fn is_newer(history: &History, sent: &Sent, partition: i32) -> bool {
    let last = elections(history, partition).and_then(|times| times.last());
    last.is_none_or(|last| *last < sent.at)
}

/// Whether the partition must still have the record once it was acknowledged.
pub(super) fn keeps(history: &History, id: RecordId, partition: i32) -> bool {
    let sent = history.sent.iter().find(|sent| sent.id == id);
    sent.is_none_or(|sent| is_newer(history, sent, partition))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{checker::check as check_all, history::Outcome};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn kinds(history: &History) -> Vec<&'static str> {
        check_all(history).iter().map(Violation::kind).collect()
    }

    fn read(number: u32, offset: i64) -> ReadBack {
        ReadBack { partition: PLACES, offset, id: Some(RecordId { producer: 1, number }) }
    }

    /// A record that was sent at 10 ms, acknowledged, and is not in the log.
    fn lost(partition: i32, elections: &[(i32, u64)]) -> Vec<&'static str> {
        let outcome = Outcome::Acknowledged { at: ms(20), partition, offset: Some(0) };
        let id = RecordId { producer: 1, number: 0 };
        let sent = Sent { id, at: ms(10), due: ms(50), settled: Some(ms(20)), outcome };
        let mut unclean = BTreeMap::<i32, Vec<Duration>>::new();
        for &(partition, at) in elections {
            unclean.entry(partition).or_default().push(ms(at));
        }
        kinds(&History { sent: vec![sent], unclean, ..History::default() })
    }

    #[test]
    fn only_an_unclean_election_of_its_partition_loses_an_acknowledged_record() {
        assert_eq!(lost(PLACES, &[]), ["lost"]);
        assert_eq!(lost(PLACES, &[(PLACES, 30)]), [""; 0]);
        assert_eq!(lost(PLACES, &[(PLACES, 9)]), ["lost"]);
        assert_eq!(lost(PLACES, &[(PLACES, 9), (PLACES, 30)]), [""; 0]);
        assert_eq!(lost(PLACES, &[(PLACES + 1, 30)]), ["lost"]);
        assert_eq!(lost(0, &[(0, 30)]), ["lost"], "the first topic forbids it");
    }

    fn reported(at: u64, offset: i64) -> Vec<&'static str> {
        let report = Truncation { at: ms(at), partition: PLACES, offset, expected: 7 };
        let unclean = BTreeMap::from([(PLACES, vec![ms(10)])]);
        kinds(&History { truncations: vec![report], unclean, ..History::default() })
    }

    #[test]
    fn a_report_needs_an_unclean_election_before_it_and_the_position() {
        assert_eq!(reported(10, 7), [""; 0]);
        assert_eq!(reported(9, 7), ["truncated-for-no-reason"]);
        assert_eq!(reported(10, 6), ["truncated-for-no-reason"]);
    }

    #[test]
    fn a_consumer_has_what_the_log_has_once_it_took_back_the_truncated_records() {
        let viewed = |view: Vec<ReadBack>| {
            let history = History {
                sent: Vec::new(),
                read: vec![read(0, 0), read(2, 1)],
                view: Some(view),
                ..History::default()
            };
            check(&history).iter().map(Violation::kind).collect::<Vec<_>>()
        };
        assert_eq!(viewed(vec![read(0, 0), read(2, 1)]), [""; 0]);
        for stale in [vec![read(0, 0), read(1, 1)], vec![read(0, 0)], vec![read(2, 1)]] {
            assert_eq!(viewed(stale), ["truncated-silently"]);
        }
        assert_eq!(viewed(vec![read(0, 0), read(2, 1), read(3, 2)]), ["truncated-silently"]);
    }
}
