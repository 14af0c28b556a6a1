//! Judges many runs at once, for tests.

use std::collections::BTreeSet;

use crate::{Plan, Report, Scenario, checker::Violation, run, trace::Keep};

/// Runs all plans and returns their reports.
///
/// # Errors
/// The runs that broke a promise, described with how to replay them.
pub fn intact(plans: impl IntoIterator<Item = Plan>) -> Result<Vec<Report>, String> {
    let reports: Vec<Report> = plans.into_iter().map(|plan| run(&plan, Keep::Tail)).collect();
    let broken = reports.iter().filter(|report| !report.violations.is_empty());
    let broken: Vec<String> = broken.map(Report::describe).collect();
    if broken.is_empty() { Ok(reports) } else { Err(broken.join("\n")) }
}

/// Runs the first seeds of a scenario. Most of their records must be acknowledged: a run that achieves nothing proves nothing.
///
/// # Errors
/// As [`intact`]; and if at most half of the records were acknowledged.
pub fn intact_scenario(scenario: Scenario, seeds: u64) -> Result<Vec<Report>, String> {
    let reports = intact((0..seeds).map(|seed| Plan::of(scenario, seed)))?;
    let sent: usize = reports.iter().map(|report| report.counts.sent).sum();
    let acknowledged: usize = reports.iter().map(|report| report.counts.acknowledged).sum();
    if acknowledged * 2 > sent {
        Ok(reports)
    } else {
        Err(format!("{scenario}: {acknowledged} of {sent} records were acknowledged"))
    }
}

/// The seeds below `count`, first one that has found the bug before.
pub fn beginning_with(likely: u64, count: u64) -> impl Iterator<Item = u64> {
    std::iter::once(likely).chain((0..count).filter(move |seed| *seed != likely))
}

/// Runs plans with a planted bug until one has shown a violation of one of the `expected` kinds, and returns its seed.
///
/// # Errors
/// The kinds of violation seen, if none of the plans shows an expected one.
pub fn caught(plans: impl IntoIterator<Item = Plan>, expected: &[&str]) -> Result<u64, String> {
    let (mut seen, mut runs) = (BTreeSet::new(), 0);
    for plan in plans {
        let report = run(&plan, Keep::Tail);
        seen.extend(report.violations.iter().map(Violation::kind));
        runs += 1;
        if expected.iter().any(|kind| seen.contains(kind)) {
            return Ok(report.seed);
        }
    }
    Err(format!("not caught as {expected:?} in {runs} seeds; seen: {seen:?}"))
}
