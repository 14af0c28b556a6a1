//! The seeds that every test run goes through.

use curtail_sim::{Plan, Scenario, run, seeds, trace::Keep};

/// All seeds; each test takes a share, so that the shares run in parallel.
const SEEDS: u64 = 200;
/// The first seeds, which one test examines more closely.
const CLOSER: u64 = 40;
const SHARES: u64 = 4;

fn share(number: u64) {
    let share = (CLOSER + number..SEEDS).step_by(SHARES as usize);
    seeds::intact(share.map(Plan::from_seed)).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn no_record_is_lost_doubled_or_reordered_share_0() {
    share(0);
}

#[test]
fn no_record_is_lost_doubled_or_reordered_share_1() {
    share(1);
}

#[test]
fn no_record_is_lost_doubled_or_reordered_share_2() {
    share(2);
}

#[test]
fn no_record_is_lost_doubled_or_reordered_share_3() {
    share(3);
}

/// Seeds that once found a bug. Plans change with the code that makes them, so each bug has a test next to its cause;
/// these seeds stay because they cost nothing.
#[test]
fn seeds_that_found_bugs_stay_quiet() {
    let plans = [773, 2260].map(Plan::from_seed);
    seeds::intact(plans).unwrap_or_else(|broken| panic!("{broken}"));
}

/// As above, of scenarios: a commit of a membership that had ended, disk faults that waited for each other, retries
/// without growing backoff, a batch under the id of a deleted topic, damage reported by a broker, a log start within a
/// batch, and a follower without the high watermark after its truncation.
#[test]
fn seeds_of_scenarios_that_found_bugs_stay_quiet() {
    let found = [
        (Scenario::Groups, &[374][..]),
        (Scenario::Disks, &[309, 362, 507]),
        (Scenario::StaleMetadata, &[78, 476]),
        (Scenario::Topics, &[1]),
        (Scenario::Corruption, &[135, 273, 388]),
        (Scenario::Gaps, &[18, 27]),
        (Scenario::Racks, &[212]),
    ];
    let plans = found
        .into_iter()
        .flat_map(|(scenario, seeds)| seeds.iter().map(move |seed| Plan::of(scenario, *seed)));
    seeds::intact(plans).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 7, 9, 12, 24, 38, 108] {
        let plan = Plan::from_seed(seed);
        let (first, second) = (run(&plan, Keep::All), run(&plan, Keep::All));
        let parting = first.events().zip(second.events()).find(|(a, b)| a != b);
        assert_eq!(parting, None, "seed {seed}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.counts, second.counts, "seed {seed}");
    }
    let hash = |seed| run(&Plan::from_seed(seed), Keep::Tail).hash;
    assert_ne!(hash(1), hash(2));
}

#[test]
fn keeping_a_trace_does_not_change_a_run() {
    let plan = Plan::from_seed(3);
    assert_eq!(run(&plan, Keep::All).hash, run(&plan, Keep::Tail).hash);
}

/// No promise is broken, and the workload has value: over the seeds, records are acknowledged, refused and left open.
#[test]
fn the_seeds_reach_every_outcome() {
    let mut acknowledged = 0;
    let mut not_written = 0;
    let mut maybe_written = 0;
    let mut moved_batches = 0;
    for seed in 0..CLOSER {
        let report = run(&Plan::from_seed(seed), Keep::Tail);
        assert!(report.violations.is_empty(), "{}", report.describe());
        let counts = report.counts;
        moved_batches += report.history.moved_batches;
        acknowledged += counts.acknowledged;
        not_written += counts.not_written;
        maybe_written += counts.maybe_written;
    }
    assert!(acknowledged > 5000, "{acknowledged}");
    assert!(not_written > 100, "{not_written}");
    assert!(maybe_written > 100, "{maybe_written}");
    assert!(moved_batches > 20, "{moved_batches}");
}

/// Replays one seed: `CURTAIL_SIM_SEED=N cargo test -p curtail-sim replay -- --nocapture`.
#[test]
fn replay_of_one_seed_finds_no_violation() {
    let seed = std::env::var("CURTAIL_SIM_SEED").ok();
    let asked = seed.is_some();
    let seed = seed.map_or(0, |text| text.parse().expect("CURTAIL_SIM_SEED is a number"));
    let report = run(&Plan::from_seed(seed), if asked { Keep::All } else { Keep::Tail });
    if asked {
        report.trace.iter().for_each(|line| println!("{line}"));
        println!("{}", report.describe());
    }
    assert!(report.violations.is_empty(), "{}", report.describe());
}
