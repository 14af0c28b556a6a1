use std::time::Duration;

use curtail::{ConsumerConfig, ProducerConfig, config::Acks};

use super::{Base, Change, MOST, candidates, probe};
use crate::doctor::sample::Phase;

fn texts(base: &Base, blamed: Phase) -> Vec<String> {
    candidates(base, blamed).iter().map(Change::text).collect()
}

fn defaults() -> Base {
    Base::of(&ProducerConfig::default(), &ConsumerConfig::default(), 6, 6e6)
}

#[test]
fn the_blamed_phase_decides_the_first_candidates() {
    for (blamed, first) in [
        (Phase::Produce, "linger.ms=0"),
        (Phase::Publish, "batch.size=131072"),
        (Phase::Commit, "batch.size=131072"),
        (Phase::CatchUp, "2 consumers"),
        (Phase::Fetch, "2 consumers"),
    ] {
        let tried = texts(&defaults(), blamed);
        assert_eq!(tried[0], first, "{blamed:?} {tried:?}");
        assert!(tried.len() <= MOST && tried.contains(&"12 partitions".to_owned()), "{tried:?}");
    }
}

#[test]
fn only_settings_that_differ_from_the_current_ones_are_candidates() {
    let base = Base {
        linger: Duration::ZERO,
        batch_size: 1_048_576,
        compressed: true,
        max_in_flight: 1,
        fetch_min_bytes: 1_000_000,
        fetch_max_wait: Duration::from_millis(500),
        partitions: 1,
        partition_rate: 1_000_000,
    };
    let tried = texts(&base, Phase::Fetch);
    let all = [
        "fetch.min.bytes=1",
        "fetch.max.wait.ms=100",
        "2 partitions",
        "linger.ms=5",
        "max.in.flight.requests.per.connection=5",
    ];
    assert_eq!(tried, all);
    let tried = texts(&defaults(), Phase::Fetch);
    assert!(
        !tried.iter().any(|text| text.starts_with("fetch.")),
        "nothing is held back: {tried:?}"
    );
}

#[test]
fn weaker_durability_is_probed_and_never_a_candidate() {
    assert_eq!(probe(Acks::All).text(), "acks=1");
    assert!(probe(Acks::All).caution().unwrap().contains("not recommended"));
    assert_eq!(probe(Acks::Leader).text(), "acks=all");
    assert_eq!(probe(Acks::Leader).caution(), None);
    for blamed in Phase::ALL {
        let tried = texts(&defaults(), blamed);
        assert!(!tried.iter().any(|text| text.starts_with("acks")), "{tried:?}");
    }
}
