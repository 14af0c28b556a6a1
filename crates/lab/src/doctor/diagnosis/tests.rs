use std::{collections::BTreeMap, time::Duration};

use curtail::config::Acks;

use super::{Limit, Load, Probes, Verdict, blame, clocks, compare, phases, slow_brokers};
use crate::{
    doctor::sample::{ClockOffset, Parts, Phase, Sample},
    latency::Latencies,
};

#[test]
fn only_a_difference_beyond_the_noise_counts() {
    use Verdict::{Better, NoDifference, Worse};
    for (base, other, verdict, why) in [
        (&[10.0, 11.0, 10.5][..], &[5.0, 5.5, 5.2][..], Better, "clear"),
        (&[5.0, 5.5, 5.2], &[10.0, 11.0, 10.5], Worse, "clear, the other way"),
        (&[10.0, 20.0, 15.0], &[9.0, 12.0, 11.0], NoDifference, "the base's rounds differ by more"),
        (&[10.0, 11.0, 10.5], &[2.0, 9.0, 4.0], NoDifference, "the other's rounds differ by more"),
        (&[10.0, 10.0, 10.0], &[10.0, 10.0, 10.0], NoDifference, "the same"),
        (&[10.0, 10.0], &[9.0, 9.0], Better, "no noise at all"),
        (&[10.0], &[1.0], NoDifference, "noise is unknown after one round"),
        (&[], &[], NoDifference, "nothing"),
    ] {
        assert_eq!(compare(base, other).verdict, verdict, "{why}");
    }
    let comparison = compare(&[10.0, 10.0], &[5.0, 5.0]);
    assert!((comparison.gain - 0.5).abs() < 1e-9 && comparison.noise == 0.0, "{comparison:?}");
}

/// Rounds whose slowest records spent these milliseconds in each part.
fn sample(rounds: &[[u64; 4]]) -> Sample {
    let ms = 1_000_000;
    let parts = |[produce, request, catch_up, fetch]: &[u64; 4]| Parts {
        produce: produce * ms,
        request: request * ms,
        catch_up: catch_up * ms,
        fetch: fetch * ms,
    };
    Sample { slowest: rounds.iter().map(parts).collect(), ..Sample::default() }
}

#[test]
fn the_phase_that_takes_most_is_blamed() {
    let quick = Probes { leader: &[1000.0, 1000.0], all: &[4000.0, 4000.0] };
    let even = Probes { leader: &[4000.0, 4000.0], all: &[4000.0, 4000.0] };
    for (rounds, acks, probes, blamed) in [
        (&[[20, 5, 1, 1], [22, 5, 1, 1]], Acks::All, quick, Phase::Produce),
        (&[[2, 40, 1, 1], [2, 44, 1, 1]], Acks::All, quick, Phase::Commit),
        (&[[2, 40, 1, 1], [2, 44, 1, 1]], Acks::All, even, Phase::Publish),
        (&[[2, 4, 30, 1], [2, 4, 20, 1]], Acks::All, quick, Phase::CatchUp),
        (&[[2, 4, 1, 30], [2, 4, 1, 20]], Acks::All, quick, Phase::Fetch),
        (&[[2, 9, 1, 3], [2, 9, 1, 3]], Acks::Leader, quick, Phase::Publish),
        (&[[0, 1, 0, 3], [0, 1, 0, 3]], Acks::Leader, quick, Phase::Commit),
    ] {
        let phases = phases(&sample(rounds), acks, probes);
        assert_eq!(blame(&phases), blamed, "{rounds:?} {phases:?}");
        let whole: u64 = rounds.iter().flatten().sum();
        let sum: f64 = phases.iter().map(|phase| phase.us).sum();
        assert!((sum - whole as f64 * 500.0).abs() < 1.0, "they make up the whole: {phases:?}");
    }
}

#[test]
fn an_estimate_has_error_bounds() {
    let probes = Probes { leader: &[1000.0, 3000.0], all: &[4000.0, 4000.0] };
    let [produce, publish, commit, ..] =
        phases(&sample(&[[10, 8, 0, 0], [14, 8, 0, 0]]), Acks::All, probes);
    assert!(!produce.estimate && publish.estimate && commit.estimate);
    assert_eq!((produce.us, produce.error_us), (12_000.0, 2000.0));
    assert_eq!((publish.us, commit.us), (4000.0, 4000.0), "half of the request each");
    assert_eq!(
        publish.error_us, 2000.0,
        "a quarter of the request: the rounds differ by half of it"
    );
}

#[test]
fn the_limit_of_a_load_is_named() {
    let fine = Load {
        reached: 1.0,
        late: 0.0,
        memory_waits: 0,
        write_share: 0.1,
        busy: 0.5,
        missed: false,
    };
    for (what, load, limit) in [
        ("all is well", fine, None),
        ("busy, but it holds", Load { busy: 0.99, ..fine }, None),
        ("slow, and nothing is exhausted", Load { missed: true, ..fine }, None),
        ("busy and slow", Load { busy: 0.95, missed: true, ..fine }, Some(Limit::Machine)),
        ("late sends", Load { late: 0.5, missed: true, ..fine }, Some(Limit::Machine)),
        ("late sends, too few", Load { reached: 0.6, late: 9.0, ..fine }, Some(Limit::Machine)),
        (
            "memory is full, sockets take nothing",
            Load { reached: 0.6, late: 9.0, memory_waits: 7, write_share: 0.8, ..fine },
            Some(Limit::Link),
        ),
        (
            "memory is full, responses do not arrive",
            Load { reached: 0.6, late: 9.0, memory_waits: 7, ..fine },
            Some(Limit::Brokers),
        ),
    ] {
        assert_eq!(load.limit(), limit, "{what}");
    }
}

#[test]
fn a_slow_broker_stands_out() {
    let brokers = |medians: &[u64]| -> BTreeMap<i32, Latencies> {
        let latencies = |ms: &u64| {
            let mut latencies = Latencies::default();
            latencies.record_many(ms * 1_000_000, 100);
            latencies
        };
        (1..).zip(medians.iter().map(latencies)).collect()
    };
    for (medians, slow) in [
        (&[2, 2, 22][..], &["broker 3"][..]),
        (&[2, 3, 2], &[]),
        (&[22, 2], &["broker 1"]),
        (&[22], &[]),
        (&[], &[]),
    ] {
        let findings = slow_brokers(&brokers(medians));
        assert_eq!(findings.len(), slow.len(), "{medians:?} {findings:?}");
        for (finding, name) in findings.iter().zip(slow) {
            assert!(finding.text.starts_with(name), "{finding:?}");
        }
    }
    let mut few = brokers(&[2, 2]);
    few.entry(9).or_default().record(Duration::from_secs(1));
    assert_eq!(slow_brokers(&few), [], "one request says nothing");
}

#[test]
fn a_clock_offset_is_reported_with_its_bounds() {
    let offset = |at_least_ms, at_most_ms| ClockOffset { at_least_ms, at_most_ms };
    for (offset, text) in [
        (offset(120.2, 123.0), Some("120 to 123 ms ahead of")),
        (offset(-123.0, -120.2), Some("120 to 123 ms behind")),
        (offset(-5.0, 200.0), None),
        (offset(3.0, 4.0), None),
    ] {
        let findings = clocks(&BTreeMap::from([(2, offset)]));
        match text {
            Some(text) => assert!(findings[0].text.contains(text), "{findings:?}"),
            None => assert_eq!(findings, []),
        }
    }
}
