use super::*;

/// Every arm at a small size: every send is acknowledged, and metadata changes in the arms where it must.
#[test]
fn every_arm_sends_while_its_metadata_changes() {
    let length = Duration::from_millis(1200);
    let size = Size { topics: 100, partitions: 10, length };
    for arm in [SNAPSHOTS, LOCKED, QUIET] {
        let sample = run(&arm, size, 1).unwrap();
        assert_eq!((sample.records, sample.errors), (4800, 0), "{}", arm.name);
        assert_eq!(sample.latency.count(), 4800);
        let refreshed = sample.figure(REFRESHED);
        if arm.name == QUIET.name {
            assert_eq!(refreshed, 0.0);
        } else {
            assert!(refreshed >= 100.0, "{}: {refreshed}", arm.name);
        }
    }
}

#[test]
fn the_locked_cache_keeps_the_newer_epoch() {
    let cluster = ScriptedCluster::start(4).unwrap();
    let names = [Arc::from("a"), Arc::from("b")];
    let mut fetcher = Fetcher::new(&cluster, &names).unwrap();
    let cache = LockedCache::default();
    let older = fetcher.fetch().unwrap();
    let newer = fetcher.fetch().unwrap();
    cache.update(newer);
    let leaders: Vec<_> = (0..4).map(|index| cache.look_up("a", index)).collect();
    cache.update(older);
    let after: Vec<_> = (0..4).map(|index| cache.look_up("a", index)).collect();
    assert_eq!(leaders, after);
    assert!(leaders.iter().all(|found| matches!(found, Some((4, 1..=3)))));
    assert_eq!(cache.look_up("a", 4), None);
    assert_eq!(cache.look_up("c", 0), None);
}

fn sample(p99: Duration, refreshed: f64, errors: u64) -> Sample {
    let mut sample = Sample { errors, elapsed: Duration::from_secs(1), ..Sample::default() };
    sample.latency.record_many(p99.as_nanos() as u64, 100);
    sample.note(REFRESHED, Figure::Total(refreshed));
    sample
}

#[test]
fn conditions_hold_only_with_the_figures_they_ask_for() {
    let setting = Setting::new(ClusterKind::Embedded);
    let held = |ours: Sample, locked: Sample| -> Vec<bool> {
        let arms = [(SNAPSHOTS, ours), (LOCKED, locked)];
        let conditions = MetadataChurn.conditions(&setting, &Arms(&arms));
        conditions.iter().map(|condition| condition.held).collect()
    };
    let micros = Duration::from_micros;
    let good = || sample(micros(20), 1000.0, 0);
    assert_eq!(held(good(), sample(micros(900), 1000.0, 0)), [true; 5]);
    let limits = held(sample(micros(60), 800.0, 1), sample(micros(2000), 1000.0, 0));
    assert_eq!(limits, [false, true, false, false, false]);
}

#[test]
fn another_cluster_is_of_no_use() {
    let cluster = ClusterKind::Bootstrap("127.0.0.1:1".into());
    assert!(matches!(MetadataChurn.start(&Setting::new(cluster)), Err(Error::Options(_))));
}
