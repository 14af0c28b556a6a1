//! Planted bugs: the checker must see each one, by its kind, within a bounded number of seeds.

use curtail_sim::{Plan, Plant, seeds};

/// Number of seeds within which a planted bug must be found.
const SEEDS: u64 = 60;

/// Runs seeds until one shows a violation of one of the `expected` kinds.
fn must_be_caught(plant: Plant, expected: &[&str]) {
    let plans = (0..SEEDS).map(|seed| Plan::from_seed(seed).with_plant(plant));
    seeds::caught(plans, expected).unwrap_or_else(|not| panic!("{plant:?} was {not}"));
}

#[test]
fn acknowledging_before_replication_loses_records() {
    must_be_caught(Plant::AckBeforeReplication, &["lost"]);
}

#[test]
fn forgetting_sequences_duplicates_records() {
    must_be_caught(Plant::NoSequenceCheck, &["duplicated"]);
}

#[test]
fn keeping_a_diverged_tail_makes_replicas_differ() {
    must_be_caught(Plant::NoTruncation, &["replicas-differ", "lost", "misplaced"]);
}
