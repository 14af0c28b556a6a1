//! Read-process-write with groups and transactions, while applications crash and coordinators move.

use curtail_sim::{Plan, Plant, Scenario, plan::CopyEnd, seeds};

/// Seeds that each test run plays.
const SEEDS: u64 = 12;

#[test]
fn each_input_record_is_copied_exactly_once() {
    let reports = seeds::intact((0..SEEDS).map(|seed| Plan::of(Scenario::Copies, seed)))
        .unwrap_or_else(|broken| panic!("{broken}"));
    // A run without copies would prove nothing.
    let copies: usize =
        reports.iter().filter_map(|report| report.history.copies.as_ref()).map(Vec::len).sum();
    assert!(copies > 100 * SEEDS as usize, "{copies} copies");
}

#[test]
fn seeds_have_every_end_of_an_application_and_both_transaction_versions() {
    let plans: Vec<Plan> = (0..SEEDS).map(|seed| Plan::of(Scenario::Copies, seed)).collect();
    let ends: Vec<CopyEnd> = plans
        .iter()
        .filter_map(|plan| plan.copies.as_ref())
        .flat_map(|copies| copies.slots.iter().flatten().map(|life| life.end))
        .collect();
    assert!(ends.contains(&CopyEnd::Close) && ends.contains(&CopyEnd::Zombie));
    assert!(ends.iter().any(|end| matches!(end, CopyEnd::Crash { polls } if *polls > 0)));
    for version in [1, 2] {
        assert!(plans.iter().any(|plan| plan.transaction_version == version), "{version}");
    }
}

#[test]
fn offsets_that_any_generation_may_commit_are_caught_as_double_copies() {
    crate::must_be_caught(Plant::TakeAnyCommit, Scenario::Copies, 119, &["copied-twice"]);
}
