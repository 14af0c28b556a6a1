use super::*;

fn of(times: [Option<u64>; 6]) -> Times {
    PerPhase(times)
}

#[test]
fn phases_follow_each_other_and_make_up_the_whole() {
    let stations = Stations {
        due: 100,
        handed: 110,
        appended: Some(150),
        committed: Some(190),
        acknowledged: Some((200, true)),
        read: Some((0, 230)),
    };
    let times = stations.times();
    assert_eq!(times, of([Some(10), Some(40), Some(40), Some(0), Some(40), Some(10)]));
    assert_eq!(stations.whole(), 130);
    let behind = Stations { read: Some((200, 230)), ..stations }.times();
    assert_eq!(behind, of([Some(10), Some(40), Some(40), Some(10), Some(30), Some(10)]));
    let leader_only = Stations { acknowledged: Some((160, false)), ..stations }.times();
    assert_eq!(*leader_only.get(PhaseName::Acknowledge), Some(10), "from the append");
}

#[test]
fn an_unobserved_phase_has_no_time() {
    let stations =
        Stations { due: 100, handed: 110, acknowledged: Some((150, true)), ..Stations::default() };
    assert_eq!(stations.times(), of([Some(10), None, None, None, None, Some(40)]));
    assert_eq!(stations.whole(), 50);
    let not_committed = Stations { appended: Some(120), read: Some((0, 160)), ..stations };
    let expected = [Some(10), Some(10), None, None, None, Some(30)];
    assert_eq!(not_committed.times(), of(expected));
}

#[test]
fn the_twenty_slowest_are_kept_over_all_turns() {
    let exemplar = |latency: u64| Exemplar {
        round: 0,
        latency,
        at: 0,
        partition: 0,
        offset: Some(latency as i64),
        leader: Some(1),
        phases: Times::default(),
    };
    let (mut one, mut other) = (Exemplars::default(), Exemplars::default());
    for latency in 0..1000 {
        let half = if latency % 2 == 0 { &mut one } else { &mut other };
        assert!(half.takes(latency));
        half.offer(exemplar(latency));
    }
    assert!(!one.takes(3));
    other.set_round(1);
    one.add(other);
    let kept: Vec<u64> = one.slowest_first().iter().map(|exemplar| exemplar.latency).collect();
    assert_eq!(kept, (980..1000).rev().collect::<Vec<_>>());
    let slowest = one.slowest_first()[0];
    assert_eq!((slowest.latency, slowest.round), (999, 1));
}

#[test]
fn the_phase_furthest_beyond_its_own_median_is_to_blame() {
    let mut usual = Phases::default();
    for _ in 0..9 {
        usual.record(&of([Some(5_000_000), Some(1000), Some(2000), None, None, Some(10)]));
    }
    let slow = |phases| Exemplar {
        round: 0,
        latency: 0,
        at: 0,
        partition: 0,
        offset: None,
        leader: None,
        phases: of(phases),
    };
    // The longest phase is as long as usual.
    let commit = slow([Some(5_000_000), Some(1500), Some(900_000), None, None, Some(10)]);
    assert_eq!(commit.blame(&usual), Some(PhaseName::Commit));
    let alike = slow([None, Some(2000), Some(3000), None, None, None]);
    assert_eq!(alike.blame(&usual), Some(PhaseName::Publish), "the earlier one");
    assert_eq!(slow([None; 6]).blame(&usual), None);
}
