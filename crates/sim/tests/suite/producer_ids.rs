//! Producers that brokers forget, and producer epochs that run out.

use curtail_sim::{Plan, Scenario, history::Outcome, seeds};

/// Seeds that a test run plays.
const SEEDS: u64 = 12;
/// Seeds in which brokers that had forgotten a producer took its second batch before the first.
const FORGOTTEN: [u64; 5] = [0, 61, 83, 97, 272];

#[test]
fn producers_continue_after_brokers_forget_them_and_epochs_run_out() {
    let seeds = (1..=SEEDS).chain(FORGOTTEN);
    let reports = seeds::intact(seeds.map(|seed| Plan::of(Scenario::ProducerIds, seed)))
        .unwrap_or_else(|broken| panic!("{broken}"));
    // Records of the last burst, long after brokers have forgotten the producers, are acknowledged.
    for report in &reports {
        let last = report.history.sent.last().map(|sent| sent.at).unwrap_or_default();
        let late = report.history.sent.iter().any(|sent| {
            sent.at + std::time::Duration::from_secs(2) > last
                && matches!(sent.outcome, Outcome::Acknowledged { .. })
        });
        assert!(late, "seed {}: nothing is acknowledged in the last burst", report.seed);
    }
}
