use super::*;

/// The settings in `config/server.properties` of Apache Kafka 4.
const QUICK_START: &[(&str, &str)] = &[
    ("process.roles", "broker,controller"),
    ("node.id", "1"),
    ("controller.quorum.bootstrap.servers", "localhost:9093"),
    ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
    ("inter.broker.listener.name", "PLAINTEXT"),
    ("advertised.listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"),
    ("controller.listener.names", "CONTROLLER"),
    (
        "listener.security.protocol.map",
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    ),
    ("num.network.threads", "3"),
    ("num.io.threads", "8"),
    ("socket.send.buffer.bytes", "102400"),
    ("socket.receive.buffer.bytes", "102400"),
    ("socket.request.max.bytes", "104857600"),
    ("log.dirs", "/tmp/kraft-combined-logs"),
    ("num.partitions", "1"),
    ("num.recovery.threads.per.data.dir", "1"),
    ("offsets.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("log.retention.hours", "168"),
    ("log.segment.bytes", "1073741824"),
    ("log.retention.check.interval.ms", "300000"),
];

#[test]
fn the_quick_start_file_of_kafka_is_accepted() {
    let mut config = ClusterConfig::default();
    let mut without_effect = Vec::new();
    for (name, value) in QUICK_START {
        match config.set_server_property(name, value).unwrap() {
            Effect::Set => {}
            Effect::None { instead, .. } => without_effect.push((*name, instead)),
        }
    }
    config.validate().unwrap();
    config.validate_ports().unwrap();
    let advertised = config.listeners_of(3).unwrap().remove(0).advertised;
    assert_eq!(advertised.to_string(), "localhost:9094");
    let expected = [
        ("process.roles", None),
        ("node.id", None),
        ("controller.quorum.bootstrap.servers", None),
        ("num.network.threads", None),
        ("num.io.threads", None),
        ("socket.send.buffer.bytes", None),
        ("socket.receive.buffer.bytes", None),
        ("log.dirs", Some("--data DIR")),
        ("num.recovery.threads.per.data.dir", None),
        ("share.coordinator.state.topic.replication.factor", None),
        ("share.coordinator.state.topic.min.isr", None),
    ];
    assert_eq!(without_effect, expected);
}

#[test]
fn settings_that_would_change_what_clients_see_are_refused_with_the_reason() {
    let refused = |name: &str, value: &str| {
        ClusterConfig::default().set_server_property(name, value).unwrap_err().to_string()
    };
    for (name, value, said) in [
        ("delete.topic.enable", "false", "can be deleted"),
        ("num.io.threads", "many", "num.io.threads=many: expected a number, 1 or more"),
        ("process.roles", "controller", "of a controller"),
        (
            "controller.quorum.voters",
            "1@a:9093,2@b:9093",
            "one process; start one with --brokers N",
        ),
        ("ssl.keystore.type", "JKS", "PEM files"),
        ("ssl.keystore.password", "secret", "ssl.keystore.location"),
        ("ssl.cipher.suites", "x", "does not support it"),
        ("listener.name.sasl_ssl.plain.sasl.jaas.config", "secret", "--user-file"),
        ("remote.log.storage.system.enable", "true", "tiered storage"),
        ("group.share.enable", "true", "share groups"),
        ("log.deletion.delay.ms", "1", "does not support it"),
        ("max.connections.per.ip.overrides", "a:1", "does not support it"),
        ("max.connections.per.ip", "10", "does not support it"),
        ("group.coordinator.rebalance.protocols", "classic", "classic, consumer and streams"),
        ("ssl.endpoint.identification.algorithm", "https", "does not support it"),
    ] {
        let error = refused(name, value);
        assert!(error.contains(said) && !error.contains("secret"), "{error}");
    }
    assert_eq!(
        refused("num.network.thread", "3"),
        "the embedded cluster has no property 'num.network.thread'; did you mean 'num.network.threads'?"
    );
}

#[test]
fn values_that_the_cluster_has_anyway_are_accepted() {
    for (name, value) in [
        ("auto.leader.rebalance.enable", "false"),
        ("delete.topic.enable", "TRUE"),
        ("group.coordinator.rebalance.protocols", "classic,consumer,streams"),
        ("group.coordinator.rebalance.protocols", "classic,consumer"),
        ("group.coordinator.rebalance.protocols", "consumer, classic"),
        ("log.cleaner.enable", "True"),
        ("max.connections.per.ip", "02147483647"),
        ("ssl.endpoint.identification.algorithm", ""),
    ] {
        let effect = ClusterConfig::default().set_server_property(name, value);
        assert_eq!(effect, Ok(Effect::Set), "{name}={value}");
    }
}

#[test]
fn a_setting_whose_absence_clients_see_is_accepted_with_the_difference() {
    let effect =
        ClusterConfig::default().set_server_property("auto.leader.rebalance.enable", "true");
    assert_eq!(effect, Ok(Effect::None { instead: None, difference: Some(PREFERRED) }));
}

#[test]
fn defaults_of_topic_settings_are_set_and_told_if_they_have_no_effect() {
    let mut config = ClusterConfig::default();
    for (name, value, effect) in [
        ("log.roll.hours", "24", Effect::Set),
        ("log.preallocate", "true", Effect::NOTHING),
        ("log.roll.jitter.ms", "5", Effect::Set),
        ("log.roll.jitter.hours", "5", Effect::Set),
        ("log.index.size.max.bytes", "5000", Effect::Set),
        ("log.flush.interval.ms", "5", Effect::Set),
        ("log.segment.delete.delay.ms", "5", Effect::NOTHING),
        ("log.local.retention.ms", "5", Effect::NOTHING),
        ("message.max.bytes", "1000", Effect::Set),
    ] {
        assert_eq!(config.set_server_property(name, value), Ok(effect), "{name}");
        assert_eq!(config.property(name).as_deref(), Some(value));
    }
}

#[test]
fn a_setting_without_effect_is_refused_where_it_is_set_on_purpose() {
    let mut config = ClusterConfig::default();
    let error = config.set("num.io.threads", "8").unwrap_err().to_string();
    assert_eq!(error, format!("num.io.threads: {NO_EFFECT}"));
    let error = config.set("max.connections.per.ip", "2147483647").unwrap_err().to_string();
    assert_eq!(error, format!("max.connections.per.ip: {OTHER}"));
}

/// Otherwise the property could not be set.
#[test]
fn no_property_of_the_cluster_is_among_the_others() {
    for (name, value) in ClusterConfig::default().properties() {
        assert!(!has_no_effect(name), "{name}");
        assert!(!FIXED.iter().any(|(fixed, ..)| *fixed == name), "{name}");
        let effect = ClusterConfig::default().set_server_property(name, &value);
        let has_effect = DefaultSetting::named(name).is_none_or(|setting| setting.has_effect);
        let expected = if has_effect { Effect::Set } else { Effect::NOTHING };
        assert_eq!(effect, Ok(expected), "{name}");
    }
}
