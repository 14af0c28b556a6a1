use super::*;

fn set(name: &str, value: &str) -> (String, ConfigEdit) {
    (name.to_owned(), ConfigEdit::Set(value.to_owned()))
}

#[test]
fn only_dynamic_settings_can_change_at_run_time() {
    let config = ClusterConfig::default();
    let given = Given::from([("max.connections".to_owned(), "7".to_owned())]);
    let group = Whose::Group("g".to_owned());
    for (whose, edit, refused) in [
        (&Whose::Brokers, set("message.max.bytes", "1000"), None),
        (
            &Whose::Broker(1),
            set("num.partitions", "3"),
            Some("these configs dynamically: num.part"),
        ),
        (&Whose::Broker(1), set("message.max.bytes", "many"), Some("bytes, 0 or more")),
        (&Whose::Broker(1), set("message.max.byte", "1"), Some("did you mean")),
        (
            &Whose::Broker(1),
            ("max.connections".into(), ConfigEdit::Append("8".into())),
            Some("LIST"),
        ),
        // Java's reassignment tool removes throttles even if they are not set.
        (&Whose::Broker(1), ("leader.replication.throttled.rate".into(), ConfigEdit::Delete), None),
    ] {
        let done = edited(whose, &given, &[edit].into(), &config);
        let told = done.as_ref().err().map(|(_, reason)| reason.as_str());
        match refused {
            None => assert_eq!(told, None),
            Some(part) => assert!(told.is_some_and(|told| told.contains(part)), "{told:?}"),
        }
    }
    let none = Given::new();
    for (edit, refused) in [
        (set(SESSION_TIMEOUT, "50000"), None),
        (
            set(SESSION_TIMEOUT, "44999"),
            Some("greater than or equal to group.consumer.min.session"),
        ),
        (set(SESSION_TIMEOUT, "60001"), Some("less than or equal to group.consumer.max.session")),
        (set(HEARTBEAT_INTERVAL, "0"), Some("positive")),
        (set("consumer.size", "1"), Some("Unknown group config name: consumer.size")),
    ] {
        let done = edited(&group, &none, &[edit].into(), &config);
        let told = done.as_ref().err().map(|(code, reason)| {
            assert_eq!(*code, ErrorCode::INVALID_CONFIG);
            reason.as_str()
        });
        match refused {
            None => assert_eq!(told, None),
            Some(part) => assert!(told.is_some_and(|told| told.contains(part)), "{told:?}"),
        }
    }
}

#[test]
fn a_brokers_own_setting_overrides_the_cluster_default() {
    let mut config = ClusterConfig::default();
    config.set("num.partitions", "5").unwrap();
    let given = |name: &str, value: &str| Arc::new(Given::from([(name.into(), value.into())]));
    let mut changed = Changed::new();
    changed.insert(Whose::Brokers, given("max.connections", "10"));
    changed.insert(Whose::Broker(1), given("max.connections", "20"));
    let of = |broker: i32, name: &str| BrokerSettings::new(&config, broker, &changed).get(name);
    assert_eq!(of(1, "max.connections"), Some(("20".into(), SOURCE_BROKER)));
    assert_eq!(of(2, "max.connections"), Some(("10".into(), SOURCE_BROKERS)));
    assert_eq!(of(2, "num.partitions"), Some(("5".into(), SOURCE_STATIC)));
    assert_eq!(of(2, "min.insync.replicas"), Some(("1".into(), SOURCE_DEFAULT)));
    assert_eq!(of(2, "nothing"), None);
}
