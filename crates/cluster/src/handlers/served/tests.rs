use super::{ApiKey, KafkaRelease, SERVED};

#[test]
fn every_served_api_has_its_versions_by_release() {
    let newest_release = KafkaRelease::all().last();
    for served in SERVED {
        assert_eq!(served.newest(newest_release), served.newest(None), "{}", served.api);
    }
    let oldest = KafkaRelease::all().next();
    let offered: Vec<_> =
        SERVED.iter().filter_map(|served| Some((served.api, served.newest(oldest)?))).collect();
    assert!(offered.contains(&(ApiKey::PRODUCE, 3)) && offered.contains(&(ApiKey::FETCH, 5)));
    // The cluster serves version 2 and later of it, 0.11 had version 0.
    assert!(offered.iter().all(|(api, _)| *api != ApiKey::OFFSET_FOR_LEADER_EPOCH));
    assert!(offered.iter().all(|(api, _)| *api != ApiKey::DESCRIBE_CLUSTER));
}
