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
        (&Whose::Broker(1), set("log.cleaner.backoff.ms", "15001"), None),
        (&Whose::Broker(1), set("num.io.threads", "9"), None),
        (&Whose::Broker(1), set("num.io.threads", "0"), Some("expected a number, 1 or more")),
        (&Whose::Broker(1), set("log.cleanup.policy", "shrink"), Some("must be one of")),
        (&Whose::Broker(1), set("log.roll.hours", "24"), Some("dynamically: log.roll.hours")),
        (&Whose::Broker(1), set("log.roll.ms", ""), Some("Not a number of type LONG")),
        (&Whose::Broker(1), set("sasl.kerberos.kinit.cmd", "k"), None),
        (&Whose::Brokers, set("sasl.kerberos.kinit.cmd", "k"), Some("broker id must be specified")),
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
    let (session, heartbeat) = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms");
    let streams = |name: &str, value: &str| set(&format!("streams.{name}"), value);
    for (edit, refused) in [
        (set(session, "50000"), None),
        (set(session, "44999"), Some("greater than or equal to group.consumer.min.session")),
        (set(session, "60001"), Some("less than or equal to group.consumer.max.session")),
        (set(heartbeat, "0"), Some("positive")),
        (set("consumer.size", "1"), Some("Unknown group config name: consumer.size")),
        (streams("session.timeout.ms", "50000"), None),
        (
            streams("session.timeout.ms", "44999"),
            Some("greater than or equal to group.streams.min.session"),
        ),
        (streams("heartbeat.interval.ms", "16000"), Some("group.streams.max.heartbeat")),
        (streams("num.standby.replicas", "2"), None),
        (streams("num.standby.replicas", "3"), Some("group.streams.max.standby.replicas")),
        (streams("num.standby.replicas", "-1"), Some("0 or more")),
        (streams("initial.rebalance.delay.ms", "0"), None),
        (streams("assignment.interval.ms", "15001"), Some("group.streams.max.assignment")),
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
fn lists_of_brokers_grow_and_shrink() {
    let config = ClusterConfig::default();
    let policy = "log.cleanup.policy";
    let edit = |given: &Given, edit: ConfigEdit| {
        edited(&Whose::Broker(1), given, &[(policy.to_owned(), edit)].into(), &config).unwrap()
    };
    let both = edit(&Given::new(), ConfigEdit::Append("compact".into()));
    assert_eq!(both[policy], "delete,compact", "the default is the first");
    let again = edit(&both, ConfigEdit::Append("delete".into()));
    assert_eq!(again, both);
    assert_eq!(edit(&both, ConfigEdit::Subtract("delete".into()))[policy], "compact");
}

#[test]
fn settings_without_effect_are_described_with_their_sources() {
    let config = ClusterConfig::default();
    let given = Given::from([("num.io.threads".to_owned(), "9".to_owned())]);
    let changed = Changed::from_iter([(Whose::Broker(1), Arc::new(given))]);
    let shown = |broker, name| {
        let described = BrokerSettings::new(&config, broker, &changed).describe();
        let found = described.into_iter().find(|setting| setting.name == name).unwrap();
        (found.value, found.kind, found.source, found.synonyms.len())
    };
    assert_eq!(shown(1, "num.io.threads"), ("9".into(), Kind::Int, SOURCE_BROKER, 2));
    assert_eq!(shown(2, "num.io.threads"), ("8".into(), Kind::Int, SOURCE_DEFAULT, 1));
    let renewal = "sasl.kerberos.ticket.renew.jitter";
    assert_eq!(shown(1, renewal), ("0.05".into(), Kind::Double, SOURCE_DEFAULT, 1));
    assert_eq!(shown(1, "log.cleanup.policy").1, Kind::List);
}

#[test]
fn a_brokers_own_setting_overrides_the_cluster_default() {
    let mut config = ClusterConfig::default();
    config.set("num.partitions", "5").unwrap();
    config.set("broker.rack", "a,,c").unwrap();
    let given = |name: &str, value: &str| Arc::new(Given::from([(name.into(), value.into())]));
    let mut changed = Changed::new();
    changed.insert(Whose::Brokers, given("max.connections", "10"));
    changed.insert(Whose::Broker(1), given("max.connections", "20"));
    let of = |broker: i32, name: &str| {
        BrokerSettings::new(&config, broker, &changed).layers(name).into_iter().next()
    };
    assert_eq!(of(1, "max.connections"), Some(("20".into(), SOURCE_BROKER)));
    assert_eq!(of(2, "max.connections"), Some(("10".into(), SOURCE_BROKERS)));
    assert_eq!(of(2, "num.partitions"), Some(("5".into(), SOURCE_STATIC)));
    assert_eq!(of(2, "min.insync.replicas"), Some(("1".into(), SOURCE_DEFAULT)));
    assert_eq!(of(2, "nothing"), None);
    let racks = [1, 2, 3].map(|broker| of(broker, "broker.rack").map(|(rack, _)| rack));
    assert_eq!(racks, ["a", "", "c"].map(|rack| Some(rack.to_owned())));
}

#[test]
fn the_type_of_a_setting_does_not_depend_on_its_value() {
    let mut config = ClusterConfig::default();
    config.set("broker.rack", "1").unwrap();
    let described = BrokerSettings::new(&config, 1, &Changed::new()).describe();
    let kind = |name| described.iter().find(|setting| setting.name == name).unwrap().kind;
    assert_eq!(kind("broker.rack"), Kind::String);
    assert_eq!(kind("fetch.max.bytes"), Kind::Int);
    assert_eq!(kind("log.flush.interval.messages"), Kind::Long);
    assert_eq!(kind("offsets.retention.check.interval.ms"), Kind::Long);
    assert_eq!(kind("transactional.id.expiration.ms"), Kind::Int);
    assert_eq!(kind("offsets.topic.replication.factor"), Kind::Short);
    assert_eq!(kind("sasl.enabled.mechanisms"), Kind::List);
    assert_eq!(kind("auto.create.topics.enable"), Kind::Boolean);
}

#[test]
fn a_groups_own_settings_override_those_of_the_brokers() {
    let config = ClusterConfig::default();
    let own = [
        ("streams.num.standby.replicas", "1"),
        ("streams.initial.rebalance.delay.ms", "0"),
        ("consumer.session.timeout.ms", "50000"),
    ];
    let own: Given = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut changed = Changed::new();
    changed.insert(Whose::Group("g".into()), Arc::new(own));
    let streams = Arc::new(config.streams_groups());
    let of = |group| of_streams_group(&streams, &changed, group);
    assert_eq!((of("g").standbys, of("g").initial_delay.as_millis()), (1, 0));
    assert_eq!((of("h").standbys, of("h").initial_delay.as_millis()), (0, 3000));
    let consumers = Arc::new(config.consumer_groups());
    assert_eq!(of_group(&consumers, &changed, "g").session_timeout.as_secs(), 50);
    let described = describe_group(&BrokerSettings::new(&config, 1, &changed), &changed, "g");
    let found: Vec<_> =
        described.iter().map(|setting| (setting.name, &*setting.value, setting.source)).collect();
    assert_eq!(
        found,
        [
            ("consumer.heartbeat.interval.ms", "5000", SOURCE_DEFAULT),
            ("consumer.session.timeout.ms", "50000", SOURCE_GROUP),
            ("streams.assignment.interval.ms", "1000", SOURCE_DEFAULT),
            ("streams.heartbeat.interval.ms", "5000", SOURCE_DEFAULT),
            ("streams.initial.rebalance.delay.ms", "0", SOURCE_GROUP),
            ("streams.num.standby.replicas", "1", SOURCE_GROUP),
            ("streams.session.timeout.ms", "45000", SOURCE_DEFAULT),
        ]
    );
}
