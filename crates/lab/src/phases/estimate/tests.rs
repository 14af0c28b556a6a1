use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::phases::PhaseName;

fn probes(leader: impl Iterator<Item = u64>, all: impl Iterator<Item = u64>) -> Probes {
    Probes { leader: leader.collect(), all: all.collect(), ..Probes::default() }
}

#[test]
fn the_difference_is_the_commit_within_its_error() {
    let mut misses = 0;
    for seed in 0..200 {
        let mut random = SmallRng::seed_from_u64(seed);
        // Uniform between 1000 and 2000, plus 5000 for the commit.
        let mut round_trips = |more: u64| {
            (0..1000).map(|_| more + random.random_range(1000..=2000)).collect::<Vec<_>>()
        };
        let (leader, all) = (round_trips(0), round_trips(5000));
        let estimates = probes(leader.into_iter(), all.into_iter()).estimates();
        for (at, median) in [(0, 1500.0), (1, 1990.0)] {
            let commit = estimates.get(PhaseName::Commit).unwrap()[at];
            assert!(commit.error > 0.0 && commit.error < 250.0, "{commit:?}");
            misses += u32::from((commit.value - 5000.0).abs() > commit.error);
            let publish = estimates.get(PhaseName::Publish).unwrap()[at];
            misses += u32::from((publish.value - median).abs() > publish.error);
        }
    }
    // Fixed seeds make the number of misses constant. The error must cover at least 95% of the estimates.
    assert!(misses <= 40, "{misses} of 800 beyond the error");
}

#[test]
fn too_few_probes_give_no_far_quantile() {
    let estimates = probes(1..=100, 101..=200).estimates();
    let commit = estimates.get(PhaseName::Commit).unwrap();
    assert_eq!(commit[0].value, 100.0);
    assert!(commit[1..].iter().all(|far| far.value.is_nan() && far.error.is_nan()));
    let none = Probes::default().estimates();
    assert!(PhaseName::ALL.iter().all(|phase| none.get(*phase).is_none()));
}

#[test]
fn an_estimated_commit_is_never_negative() {
    let estimates = probes(1001..=1100, 1..=100).estimates();
    assert_eq!(estimates.get(PhaseName::Commit).unwrap()[0].value, 0.0);
}
