//! Disks that tear, fail and decay, and a controller that crashes; for each a planted bug that its seeds must find.

use curtail_sim::{Plant, Scenario};

use crate::{must_be_caught, nothing_is_broken_in};

/// Number of seeds per scenario.
const SEEDS: u64 = 8;

#[test]
fn torn_disks_lose_no_acknowledged_record() {
    nothing_is_broken_in(Scenario::TornDisks, SEEDS);
}

#[test]
fn brokers_end_with_their_disks_and_lose_no_acknowledged_record() {
    let reports = nothing_is_broken_in(Scenario::FailingDisks, SEEDS);
    let failed: usize = reports.iter().map(|report| report.history.disk_failures.len()).sum();
    assert!(failed >= 5, "{failed} disks failed");
}

#[test]
fn decayed_batches_are_not_delivered_or_replicated() {
    nothing_is_broken_in(Scenario::Corruption, SEEDS);
}

#[test]
fn a_restarted_controller_has_every_acknowledged_change() {
    let reports = nothing_is_broken_in(Scenario::Controller, SEEDS);
    let restarts: usize =
        reports.iter().map(|report| report.history.controller_restarts.len()).sum();
    assert!(restarts >= 5, "{restarts} restarts");
}

#[test]
fn stuck_syncs_lose_nothing_and_fence_no_broker() {
    let reports = nothing_is_broken_in(Scenario::StuckSyncs, SEEDS);
    let stuck: usize = reports.iter().map(|report| report.history.stuck_syncs).sum();
    let restarts: usize =
        reports.iter().map(|report| report.history.controller_restarts.len()).sum();
    assert!(restarts >= 2 && stuck >= restarts + 2, "{stuck} stuck syncs, {restarts} restarts");
}

#[test]
fn torn_disks_find_a_recovery_without_checksums() {
    must_be_caught(
        Plant::RecoverWithoutChecksum,
        Scenario::TornDisks,
        3,
        &["replicas-differ", "unknown-record"],
    );
}

#[test]
fn torn_disks_find_a_log_that_begins_with_a_gap() {
    must_be_caught(Plant::BeginWithGap, Scenario::TornDisks, 7, &["replicas-differ", "lost"]);
}

#[test]
fn a_controller_crash_finds_changes_that_are_not_synced() {
    must_be_caught(Plant::JournalUnsynced, Scenario::Controller, 1, &["metadata-lost"]);
}

#[test]
fn a_controller_crash_finds_producer_ids_that_come_twice() {
    must_be_caught(Plant::ReuseProducerIds, Scenario::Controller, 0, &["producer-id-reused"]);
}

#[test]
fn stuck_syncs_find_a_change_that_was_acknowledged_unsynced() {
    must_be_caught(Plant::JournalUnsynced, Scenario::StuckSyncs, 1, &["metadata-lost"]);
}

#[test]
fn stuck_syncs_find_a_controller_that_fences_for_its_own_standstill() {
    must_be_caught(Plant::CountStandstill, Scenario::StuckSyncs, 2, &["fenced-for-nothing"]);
}

#[test]
fn stuck_syncs_find_a_broker_that_acknowledges_unsynced_records() {
    must_be_caught(Plant::SkipFlush, Scenario::StuckSyncs, 1, &["lost", "misplaced"]);
}

#[test]
fn failing_disks_find_a_broker_that_serves_on() {
    must_be_caught(Plant::ServeOnFailedDisk, Scenario::FailingDisks, 0, &["served-on-failed-disk"]);
}

#[test]
fn corruption_finds_a_follower_that_verifies_no_checksum() {
    must_be_caught(
        Plant::ReplicateCorruptBatches,
        Scenario::Corruption,
        1,
        &["replicas-differ", "unknown-record"],
    );
}
