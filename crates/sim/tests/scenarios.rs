//! Seeds for one kind of trouble at a time, and for each kind a planted bug that its seeds must find.

use std::collections::{BTreeMap, BTreeSet};

use curtail_sim::{
    Plan, Plant, Report, Scenario, checker::Violation, history::End, run, trace::Keep,
};

/// Seeds of each kind.
const SEEDS: u64 = 20;
/// Seeds of the scenarios that share a test run with many others.
const FEW: u64 = 8;
/// Seeds within which a planted bug must show.
const PLANT_SEEDS: u64 = 40;

fn nothing_is_broken(scenario: Scenario) {
    nothing_is_broken_in(scenario, SEEDS);
}

fn nothing_is_broken_in(scenario: Scenario, seeds: u64) {
    let reports: Vec<Report> =
        (0..seeds).map(|seed| run(&Plan::of(scenario, seed), Keep::Tail)).collect();
    let broken = reports.iter().filter(|report| !report.violations.is_empty());
    let broken: Vec<String> = broken.map(Report::describe).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    // Worth something: most records get through, whatever happens.
    let sent: usize = reports.iter().map(|report| report.counts.sent).sum();
    let acknowledged: usize = reports.iter().map(|report| report.counts.acknowledged).sum();
    assert!(acknowledged * 2 > sent, "{scenario}: {acknowledged} of {sent}");
}

fn must_be_caught(scenario: Scenario, plant: Plant, expected: &[&str]) {
    let mut seen = BTreeSet::new();
    for seed in 0..PLANT_SEEDS {
        let report = run(&Plan::of(scenario, seed).with_plant(plant), Keep::Tail);
        seen.extend(report.violations.iter().map(Violation::kind));
        if expected.iter().any(|kind| seen.contains(kind)) {
            return;
        }
    }
    panic!("{plant:?} was not caught as {expected:?} in {PLANT_SEEDS} seeds; seen: {seen:?}");
}

#[test]
fn overlapping_moves_break_nothing() {
    nothing_is_broken(Scenario::OverlappingMoves);
}

#[test]
fn frozen_brokers_break_nothing() {
    nothing_is_broken(Scenario::FrozenBrokers);
}

#[test]
fn restarts_break_nothing() {
    nothing_is_broken(Scenario::Restarts);
}

#[test]
fn stale_metadata_breaks_nothing() {
    nothing_is_broken(Scenario::StaleMetadata);
}

#[test]
fn keyless_records_are_neither_lost_nor_doubled() {
    nothing_is_broken(Scenario::Keyless);
}

#[test]
fn a_slow_broker_breaks_nothing() {
    nothing_is_broken(Scenario::SlowBroker);
}

#[test]
fn sparse_records_are_sent_at_once() {
    nothing_is_broken(Scenario::Sparse);
}

#[test]
fn transactions_are_whole_or_nothing() {
    nothing_is_broken(Scenario::Transactions);
}

#[test]
fn topics_that_grow_and_come_back_lose_nothing() {
    nothing_is_broken_in(Scenario::Topics, FEW);
}

#[test]
fn weaker_settings_keep_the_promises_that_they_make() {
    nothing_is_broken_in(Scenario::Settings, 2 * FEW);
}

#[test]
fn a_consumer_that_seeks_and_pauses_is_given_what_comes_next() {
    nothing_is_broken_in(Scenario::Seeks, FEW);
}

#[test]
fn connections_reset_at_any_byte_break_nothing() {
    nothing_is_broken_in(Scenario::Resets, FEW);
}

#[test]
fn cuts_between_brokers_break_nothing() {
    nothing_is_broken_in(Scenario::Cuts, FEW);
}

#[test]
fn clocks_that_jump_and_drift_break_nothing() {
    nothing_is_broken_in(Scenario::Clocks, FEW);
}

#[test]
fn full_disks_break_nothing() {
    nothing_is_broken_in(Scenario::Disks, FEW);
}

/// The seeds are worth something: with each version of transactions there are commits and aborts, and coordinators move.
#[test]
fn transactions_of_both_versions_see_their_coordinators_move() {
    let mut reached: BTreeMap<i16, [u64; 3]> = BTreeMap::new();
    for seed in 0..SEEDS {
        let plan = Plan::of(Scenario::Transactions, seed);
        let history = run(&plan, Keep::Tail).history;
        let ended = |end| history.transactions.iter().filter(|t| t.end == end).count() as u64;
        let counts = [ended(End::Committed), ended(End::Aborted), history.moved_coordinators];
        let sum = reached.entry(plan.transaction_version).or_default();
        for (sum, count) in sum.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    assert!(reached.keys().eq(&[1, 2]), "{reached:?}");
    assert!(reached.values().flatten().all(|count| *count >= 20), "{reached:?}");
}

#[test]
fn transactions_find_a_broker_that_hides_aborts() {
    must_be_caught(Scenario::Transactions, Plant::HideAborted, &["torn-transaction"]);
}

#[test]
fn moves_find_a_leader_that_acknowledges_what_it_has_to_give_up() {
    must_be_caught(Scenario::OverlappingMoves, Plant::AckOnMove, &["lost", "misplaced"]);
}

#[test]
fn freezes_find_a_leader_that_does_not_know_the_producers() {
    must_be_caught(
        Scenario::FrozenBrokers,
        Plant::ForgetProducersWhenElected,
        &["duplicated", "reordered"],
    );
}

#[test]
fn restarts_find_a_leader_that_acknowledges_before_replication() {
    must_be_caught(Scenario::Restarts, Plant::AckBeforeReplication, &["lost", "misplaced"]);
}

#[test]
fn stale_metadata_finds_a_commit_that_not_all_have() {
    must_be_caught(Scenario::StaleMetadata, Plant::CommitByMajority, &["lost", "misplaced"]);
}

#[test]
fn keyless_records_find_a_broker_that_checks_no_sequences() {
    must_be_caught(Scenario::Keyless, Plant::NoSequenceCheck, &["duplicated"]);
}

#[test]
fn a_slow_broker_finds_answers_that_are_mixed_up() {
    must_be_caught(Scenario::SlowBroker, Plant::MixUpAnswers, &["misplaced"]);
}

#[test]
fn the_same_seed_gives_the_same_trace_in_every_scenario() {
    for scenario in Scenario::ALL {
        let plan = Plan::of(scenario, 1);
        let (first, second) = (run(&plan, Keep::All), run(&plan, Keep::All));
        let parting = first.events().zip(second.events()).find(|(a, b)| a != b);
        assert_eq!(parting, None, "{scenario}");
        assert_eq!((first.hash, first.counts), (second.hash, second.counts), "{scenario}");
    }
}
