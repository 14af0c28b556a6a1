//! Records that a cluster may lose or delete, and replicas that lag: consumers may report and skip only those
//! records. For each scenario there is a planted bug that its seeds must find.

use std::collections::BTreeSet;

use curtail_sim::{Plant, Report, Scenario};

use crate::{must_be_caught, nothing_is_broken_in};

/// Number of seeds per scenario.
const SEEDS: u64 = 8;

/// Sums a figure over all runs.
fn total(reports: &[Report], figure: impl Fn(&Report) -> usize) -> usize {
    reports.iter().map(figure).sum()
}

#[test]
fn unclean_elections_lose_records_in_their_partitions_only_and_consumers_report_it() {
    let reports = nothing_is_broken_in(Scenario::Unclean, SEEDS);
    let elections = total(&reports, |report| report.history.unclean.values().map(Vec::len).sum());
    let truncations = total(&reports, |report| report.history.truncations.len());
    assert!(elections >= 8 && truncations >= 4, "{elections} elections, {truncations} reports");
}

#[test]
fn unclean_elections_find_a_controller_that_elects_them_everywhere() {
    must_be_caught(Plant::ElectUncleanly, Scenario::Unclean, 0, &["lost", "misplaced"]);
}

#[test]
fn consumers_of_all_racks_read_the_log_from_followers() {
    let reports = nothing_is_broken_in(Scenario::Racks, SEEDS);
    let near = total(&reports, |report| report.history.read_near as usize);
    let all = total(&reports, |report| {
        let also = report.history.also_consumed.iter().map(Vec::len).sum::<usize>();
        report.history.consumed.len() + also
    });
    assert!(near * 4 > all, "{near} of {all} records came from followers");
}

#[test]
fn racks_find_a_follower_that_serves_uncommitted_records() {
    must_be_caught(
        Plant::ServeUncommitted,
        Scenario::Racks,
        0,
        &["consumed-differs", "truncated-for-no-reason"],
    );
}

#[test]
fn a_consumer_skips_only_what_retention_deletes() {
    let reports = nothing_is_broken_in(Scenario::Retention, SEEDS);
    let deleted = total(&reports, |report| report.history.starts.len());
    assert!(deleted >= 4, "{deleted} logs start after offset 0");
}

#[test]
fn retention_that_deletes_too_much_is_found() {
    must_be_caught(Plant::RetainTooLittle, Scenario::Retention, 7, &["strayed"]);
}

#[test]
fn compaction_keeps_the_newest_record_of_each_key() {
    let reports = nothing_is_broken_in(Scenario::Compaction, SEEDS);
    let removed = total(&reports, |report| {
        let compacted = report.history.compacted.as_ref();
        let sent = compacted.map_or(0, |compacted| compacted.keys.len());
        sent.saturating_sub(compacted.map_or(0, |compacted| compacted.viewed.len()))
    });
    assert!(removed >= 400, "{removed} records removed");
    let deleted = total(&reports, |report| {
        let Some(compacted) = &report.history.compacted else { return 0 };
        let viewed = compacted.viewed.iter().filter_map(|record| record.id);
        let keys: BTreeSet<u64> = viewed.map(|id| compacted.keys[&id]).collect();
        let sent: BTreeSet<u64> = compacted.keys.values().copied().collect();
        sent.difference(&keys).count()
    });
    assert!(deleted >= 4, "{deleted} keys deleted with their tombstones");
}

#[test]
fn compaction_finds_a_cleaner_that_passes_the_last_stable_offset() {
    must_be_caught(
        Plant::CompactUnstable,
        Scenario::Compaction,
        89,
        &["compacted-away", "lost", "torn-transaction"],
    );
}

#[test]
fn compaction_finds_a_cleaner_that_removes_tombstones_at_once() {
    must_be_caught(
        Plant::TombstonesAtOnce,
        Scenario::Compaction,
        29,
        &["compacted-away", "resurrected", "strayed"],
    );
}

#[test]
fn dropped_commits_find_a_coordinator_that_forgets() {
    must_be_caught(Plant::ForgetCommits, Scenario::Dropped, 0, &["committed-elsewhere"]);
}
