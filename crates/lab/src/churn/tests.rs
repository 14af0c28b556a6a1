use super::*;

/// Both arms at a small size: every send is acknowledged, and the metadata does change meanwhile.
#[test]
fn both_arms_run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let churn = Churn {
        topics: 300,
        partitions: 10,
        senders: 4,
        rate: 100,
        refresh: Duration::from_millis(50),
        duration: Duration::from_millis(500),
    };
    for arm in [Arm::Snapshots, Arm::Locked] {
        let report = runtime.block_on(run(arm, churn)).unwrap();
        assert!(report.sends > 0, "{report:?}");
        assert!(report.topics_per_second > 300.0, "{report:?}");
    }
}

#[test]
fn the_locked_map_keeps_the_newer_epoch() {
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
