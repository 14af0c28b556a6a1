//! Promises that hold when disks fail and the controller crashes.

use std::time::Duration;

use super::Violation;
use crate::history::History;

/// How long a broker may run after its disk has failed.
const TOLERANCE: Duration = Duration::from_secs(1);

pub(super) fn check(history: &History) -> Vec<Violation> {
    let serving = history.disk_failures.iter().filter_map(|failure| {
        let in_time = failure.ended.is_some_and(|ended| ended <= failure.failed + TOLERANCE);
        // A failure just before the disk was mended may not have been noticed.
        (!in_time).then_some(Violation::ServedOnFailedDisk {
            broker: failure.broker,
            failed: failure.failed,
            ended: failure.ended,
        })
    });
    let lost = history.controller_restarts.iter().filter_map(|restart| {
        let what = restart.error.clone().or_else(|| restart.lost.clone())?;
        Some(Violation::MetadataLost { at: restart.at, what })
    });
    let reused = history.controller_restarts.iter().filter_map(|restart| {
        let (before, after) = restart.producer_ids.filter(|(before, after)| after <= before)?;
        Some(Violation::ProducerIdReused { before, after })
    });
    let fenced = history.fenced_for_nothing.iter();
    let fenced = fenced.map(|&(broker, at)| Violation::FencedForNothing { broker, at });
    serving.chain(lost).chain(reused).chain(fenced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checker::check as check_all,
        history::{ControllerRestart, DiskFailure},
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn kinds(history: &History) -> Vec<&'static str> {
        check_all(history).iter().map(Violation::kind).collect()
    }

    #[test]
    fn a_broker_ends_within_a_second_of_its_disk() {
        let ended = |ended: Option<u64>| {
            let failure = DiskFailure { broker: 1, failed: ms(500), ended: ended.map(ms) };
            kinds(&History { disk_failures: vec![failure], ..History::default() })
        };
        assert_eq!(ended(Some(1500)), [""; 0]);
        assert_eq!(ended(Some(1501)), ["served-on-failed-disk"]);
        assert_eq!(ended(None), ["served-on-failed-disk"]);
    }

    #[test]
    fn a_controller_that_was_stuck_fences_no_live_broker() {
        let fenced = vec![(2, ms(5))];
        let history = History { fenced_for_nothing: fenced, ..History::default() };
        assert_eq!(kinds(&history), ["fenced-for-nothing"]);
    }

    #[test]
    fn a_restarted_controller_has_all_it_had_and_newer_producer_ids() {
        let restarted = |lost: Option<&str>, producer_ids| {
            let lost = lost.map(ToOwned::to_owned);
            let restart = ControllerRestart { at: ms(5), error: None, lost, producer_ids };
            kinds(&History { controller_restarts: vec![restart], ..History::default() })
        };
        assert_eq!(restarted(None, Some((4, 1000))), [""; 0]);
        assert_eq!(restarted(Some("a topic"), None), ["metadata-lost"]);
        assert_eq!(restarted(None, Some((4, 4))), ["producer-id-reused"]);
    }
}
