//! Seeds with one kind of fault each, and for each kind a planted bug that its seeds must find.

use std::collections::BTreeMap;

use curtail_sim::{Plan, Plant, Scenario, history::End, run, seeds, trace::Keep};

use crate::{must_be_caught, nothing_is_broken_in};

/// Seeds of each kind.
const SEEDS: u64 = 20;
/// Seeds of the scenarios that share a test run with many others.
const FEW: u64 = 8;

fn nothing_is_broken(scenario: Scenario) {
    nothing_is_broken_in(scenario, SEEDS);
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
fn topics_that_grow_and_are_recreated_lose_no_record() {
    nothing_is_broken_in(Scenario::Topics, FEW);
}

#[test]
fn weaker_settings_keep_the_promises_that_they_make() {
    nothing_is_broken_in(Scenario::Settings, 2 * FEW);
}

#[test]
fn a_consumer_that_seeks_and_pauses_returns_the_next_record() {
    nothing_is_broken_in(Scenario::Seeks, FEW);
}

#[test]
fn a_consumer_skips_deleted_records_only() {
    nothing_is_broken_in(Scenario::Gaps, FEW);
}

#[test]
fn futures_dropped_at_any_await_point_break_nothing() {
    // Sends that are dropped append nothing.
    seeds::intact((0..FEW).map(|seed| Plan::of(Scenario::Dropped, seed)))
        .unwrap_or_else(|broken| panic!("{broken}"));
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

/// The seeds are worth something: with each version of transactions there are commits and aborts, and coordinators
/// move.
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
    must_be_caught(Plant::HideAborted, Scenario::Transactions, 1, &["torn-transaction"]);
}

#[test]
fn moves_find_a_leader_that_acknowledges_records_it_must_truncate() {
    must_be_caught(Plant::AckOnMove, Scenario::OverlappingMoves, 0, &["lost", "misplaced"]);
}

#[test]
fn freezes_find_a_leader_that_does_not_know_the_producers() {
    must_be_caught(
        Plant::ForgetProducersWhenElected,
        Scenario::FrozenBrokers,
        0,
        &["duplicated", "reordered"],
    );
}

#[test]
fn restarts_find_a_leader_that_acknowledges_before_replication() {
    must_be_caught(Plant::AckBeforeReplication, Scenario::Restarts, 2, &["lost", "misplaced"]);
}

#[test]
fn stale_metadata_finds_a_commit_that_not_all_have() {
    must_be_caught(Plant::CommitByMajority, Scenario::StaleMetadata, 0, &["lost", "misplaced"]);
}

#[test]
fn cuts_find_a_commit_that_not_all_have() {
    must_be_caught(Plant::CommitByMajority, Scenario::Cuts, 9, &["lost", "misplaced"]);
}

#[test]
fn clocks_find_a_broker_whose_timers_follow_the_wall_clock() {
    must_be_caught(Plant::TimersByWallClock, Scenario::Clocks, 0, &["hang"]);
}

#[test]
fn full_disks_find_appends_that_were_refused_and_acknowledged() {
    must_be_caught(Plant::AckRefused, Scenario::Disks, 0, &["lost", "misplaced"]);
}

#[test]
fn transactions_find_a_fencing_without_a_rival() {
    must_be_caught(Plant::FenceUnsettled, Scenario::Transactions, 0, &["fenced-without-rival"]);
}

#[test]
fn keyless_records_find_a_broker_that_checks_no_sequences() {
    must_be_caught(Plant::NoSequenceCheck, Scenario::Keyless, 0, &["duplicated"]);
}

#[test]
fn a_slow_broker_finds_responses_that_are_mixed_up() {
    must_be_caught(Plant::MixUpAnswers, Scenario::SlowBroker, 0, &["misplaced"]);
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
