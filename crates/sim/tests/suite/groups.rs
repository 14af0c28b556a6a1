//! A consumer group whose members join, leave, die and stall during faults of the cluster, and planted bugs that the
//! checker must detect.

use std::collections::BTreeSet;

use curtail_sim::{Plan, Plant, Scenario, history::What, plan::MemberBug, run, seeds, trace::Keep};

/// All seeds; each test takes a share, so that the shares run in parallel.
const SEEDS: u64 = 120;
/// The first seeds, which one test examines more closely.
const CLOSER: u64 = 30;
const SHARES: u64 = 4;
/// Number of seeds within which a planted bug must be found.
const PLANT_SEEDS: u64 = 40;

fn of_seed(seed: u64) -> Plan {
    Plan::of(Scenario::Groups, seed)
}

fn share(number: u64) {
    let share = (CLOSER + number..SEEDS).step_by(SHARES as usize);
    seeds::intact(share.map(of_seed)).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn a_group_reads_every_record_and_commits_what_it_has_read_share_0() {
    share(0);
}

#[test]
fn a_group_reads_every_record_and_commits_what_it_has_read_share_1() {
    share(1);
}

#[test]
fn a_group_reads_every_record_and_commits_what_it_has_read_share_2() {
    share(2);
}

#[test]
fn a_group_reads_every_record_and_commits_what_it_has_read_share_3() {
    share(3);
}

/// No promise is broken, and the seeds have value: members are assigned, revoked, evicted and replaced, and records
/// are repeated.
#[test]
fn the_seeds_reach_every_way_in_which_partitions_go() {
    let (mut revoked, mut lost, mut committed, mut again) = (0, 0, 0, 0);
    for seed in 0..CLOSER {
        let report = run(&of_seed(seed), Keep::Tail);
        assert!(report.violations.is_empty(), "{}", report.describe());
        let group = report.history.group.expect("a group");
        let mut given = BTreeSet::new();
        for deed in group.deeds {
            match deed.what {
                What::Revoked(partitions) => revoked += partitions.len(),
                What::Lost(partitions) => lost += partitions.len(),
                What::Committed(_) => committed += 1,
                What::Given(partition, offset) => {
                    again += usize::from(!given.insert((partition, offset)));
                }
                _ => {}
            }
        }
    }
    let reached = format!("{revoked} revoked, {lost} lost, {committed} commits, {again} again");
    assert!(revoked > 100 && lost > 20 && committed > 100 && again > 100, "{reached}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [2, 3, 5, 11] {
        let plan = of_seed(seed);
        let (first, second) = (run(&plan, Keep::All), run(&plan, Keep::All));
        let parting = first.events().zip(second.events()).find(|(a, b)| a != b);
        assert_eq!(parting, None, "seed {seed}");
        assert_eq!((first.hash, first.counts), (second.hash, second.counts), "seed {seed}");
    }
}

fn must_be_caught(planted: impl Fn(Plan) -> Plan, expected: &[&str]) {
    let plans = (0..PLANT_SEEDS).map(|seed| planted(of_seed(seed)));
    seeds::caught(plans, expected).unwrap_or_else(|not| panic!("{not}"));
}

#[test]
fn commits_of_evicted_members_are_caught() {
    let planted = |plan: Plan| plan.with_plant(Plant::TakeAnyCommit);
    must_be_caught(planted, &["set-back", "committed-by-nobody"]);
}

#[test]
fn a_new_coordinator_without_the_committed_offsets_is_caught() {
    must_be_caught(|plan| plan.with_plant(Plant::ForgetCommits), &["began-elsewhere"]);
}

#[test]
fn a_rebalance_that_waits_for_no_member_is_caught() {
    let planted = |plan: Plan| plan.with_plant(Plant::RebalanceWithoutWaiting);
    must_be_caught(planted, &["lost-for-no-reason"]);
}

#[test]
fn commits_that_are_written_nowhere_are_caught() {
    must_be_caught(|plan| plan.with_plant(Plant::CommitInMemory), &["commit-gone"]);
}

#[test]
fn a_commit_of_records_that_were_not_returned_is_caught() {
    must_be_caught(|plan| plan.with_bug(MemberBug::CommitAhead), &["committed-ahead"]);
}

#[test]
fn work_on_a_revoked_partition_is_caught() {
    must_be_caught(|plan| plan.with_bug(MemberBug::ReadOn), &["given-after-all"]);
}

#[test]
fn a_record_that_is_skipped_is_caught() {
    must_be_caught(|plan| plan.with_bug(MemberBug::Skip), &["given-out-of-order"]);
}
