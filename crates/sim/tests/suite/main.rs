//! Seeds of the simulation, and planted bugs that seeds must find. They are one program: while its longest tests run, the tests
//! of other files use the processors.

#![allow(clippy::print_stdout, reason = "libtest shows the output of a test on request")]

mod client_plants;
mod copies;
mod disks;
mod groups;
mod losses;
mod plants;
mod producer_ids;
mod routing;
mod scenarios;
mod seeds;

use curtail_sim::{Plan, Plant, Report, Scenario};

/// Number of seeds within which a bug planted in a scenario must be found.
const PLANT_SEEDS: u64 = 200;

/// Runs the first seeds of a scenario, and returns their reports.
fn nothing_is_broken_in(scenario: Scenario, seeds: u64) -> Vec<Report> {
    curtail_sim::seeds::intact_scenario(scenario, seeds).unwrap_or_else(|broken| panic!("{broken}"))
}

/// Runs seeds of a scenario until one shows a violation of one of the `expected` kinds: first one that has found the bug before,
/// then all of them.
fn must_be_caught(plant: Plant, scenario: Scenario, likely: u64, expected: &[&str]) {
    caught_in(&plant, scenario, likely, expected, |plan| plan.with_plant(plant));
}

/// As [`must_be_caught`], with any plant. Prints a seed other than the likely one, so that it can be written down.
fn caught_in(
    plant: &impl std::fmt::Debug,
    scenario: Scenario,
    likely: u64,
    expected: &[&str],
    planted: impl Fn(Plan) -> Plan,
) {
    let seeds = curtail_sim::seeds::beginning_with(likely, PLANT_SEEDS);
    let plans = seeds.map(|seed| planted(Plan::of(scenario, seed)));
    match curtail_sim::seeds::caught(plans, expected) {
        Ok(seed) if seed == likely => {}
        Ok(seed) => {
            println!("{plant:?} in {scenario} is found by seed {seed}, no longer by {likely}");
        }
        Err(not) => panic!("{plant:?} was {not}"),
    }
}
