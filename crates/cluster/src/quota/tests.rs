use super::*;

fn entity(user: Option<&str>, client_id: Option<&str>) -> Entity {
    let name = |name: &str| match name {
        "default" => Name::Default,
        name => Name::Exactly(name.to_owned()),
    };
    Entity { user: user.map(name), client_id: client_id.map(name) }
}

#[test]
fn the_most_specific_quota_applies() {
    let limit = Limit::ProducerByteRate;
    let order = [
        (Some("alice"), Some("c")),
        (Some("alice"), Some("default")),
        (Some("alice"), None),
        (Some("default"), Some("c")),
        (Some("default"), Some("default")),
        (Some("default"), None),
        (None, Some("c")),
        (None, Some("default")),
    ];
    for (at, (user, client_id)) in order.into_iter().enumerate() {
        let mut quotas = Quotas::new();
        for (rate, (user, client_id)) in order.into_iter().enumerate().skip(at) {
            quotas.insert(entity(user, client_id), BTreeMap::from([(limit, rate as f64)]));
        }
        let (sharers, rate) = of_client(&quotas, limit, "alice", "c").unwrap();
        assert_eq!(rate, at as f64);
        assert_eq!(sharers, (user.map(|_| "alice".into()), client_id.map(|_| "c".into())));
        assert_eq!(of_client(&quotas, Limit::ConsumerByteRate, "alice", "c"), None);
    }
    assert_eq!(of_client(&Quotas::new(), limit, "alice", "c"), None);
}

#[test]
fn a_client_beyond_its_quota_is_throttled_until_it_is_within() {
    let limit = Limit::ProducerByteRate;
    let quotas = Quotas::from_iter([(entity(None, Some("c")), BTreeMap::from([(limit, 1000.0)]))]);
    let meters = Meters::default();
    let start = Instant::now();
    let count = |bytes, after| {
        meters.count(&quotas, limit, ("alice", "c"), bytes, start + Duration::from_millis(after))
    };
    // A previously inactive client may use ten seconds' worth at once.
    assert_eq!(count(10_000, 0), Duration::ZERO);
    // One more second's worth takes one second.
    assert_eq!(count(1000, 500), Duration::from_secs(1));
    // Another user's client with the same client id shares the quota.
    let other = meters.count(&quotas, limit, ("bob", "c"), 1000, start);
    assert_eq!(other, Duration::from_secs(2));
    // Bytes from eleven seconds ago do not count.
    assert_eq!(count(10_000, 11_000), Duration::ZERO);
    let unlimited = meters.count(&quotas, limit, ("alice", "d"), 1 << 30, start);
    assert_eq!(unlimited, Duration::ZERO);
}

#[test]
fn meters_of_inactive_clients_are_removed() {
    let limit = Limit::ConsumerByteRate;
    let quotas =
        Quotas::from_iter([(entity(None, Some("default")), BTreeMap::from([(limit, 1.0)]))]);
    let meters = Meters::default();
    let start = Instant::now();
    for client in 0..MANY {
        meters.count(&quotas, limit, ("alice", &client.to_string()), 1, start);
    }
    meters.count(&quotas, limit, ("alice", "last"), 1, start + Duration::from_secs(60));
    assert_eq!(meters.0.lock().len(), 1);
}
