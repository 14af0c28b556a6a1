//! Settings that depend on each other.

use std::time::Duration;

use curtail_wire::compression::{Codec, Compression};

use super::{contradiction, producer};
use crate::{
    config::{Acks, AdminConfig, ConsumerConfig, ProducerConfig, host_and_port},
    error::ConfigError,
    security::{Mechanism, SecurityConfig},
};

#[test]
fn the_longest_duration_does_not_overflow_a_clock() {
    let config = producer(&[("max.block.ms", "9223372036854775807")]).unwrap();
    assert!(config.max_block > Duration::from_secs(3_000_000_000));
    assert!(std::time::Instant::now().checked_add(config.max_block).is_some());
}

#[test]
fn acks_and_retries_disable_idempotence_unless_it_was_enabled_explicitly() {
    assert!(producer(&[]).unwrap().idempotence);
    assert!(!producer(&[("acks", "1")]).unwrap().idempotence);
    assert!(!producer(&[("retries", "0")]).unwrap().idempotence);
    assert!(producer(&[("acks", "1"), ("acks", "all")]).unwrap().idempotence);
    assert!(!producer(&[("enable.idempotence", "false"), ("acks", "all")]).unwrap().idempotence);
    for (name, value) in [("acks", "1"), ("acks", "0"), ("retries", "0")] {
        let asked = ("enable.idempotence", "true");
        assert!(contradiction(&[asked, (name, value)]).contains(name));
        assert!(contradiction(&[(name, value), asked]).contains(name));
    }
}

#[test]
fn transactions_need_idempotence_and_so_acks_and_retries() {
    let id = ("transactional.id", "x");
    assert!(producer(&[id]).unwrap().idempotence);
    for (name, value) in [("enable.idempotence", "false"), ("acks", "1"), ("retries", "0")] {
        assert!(contradiction(&[id, (name, value)]).contains("transactional.id"));
        assert!(contradiction(&[(name, value), id]).contains("transactional.id"));
    }
    let empty = ProducerConfig::new("a:1").transactional_id("").validate();
    assert!(matches!(empty, Err(ConfigError::Invalid { name: "transactional.id", .. })));
}

#[test]
fn too_many_in_flight_contradict_idempotence_even_by_default() {
    let six = ("max.in.flight.requests.per.connection", "6");
    assert!(contradiction(&[six]).contains("at") && contradiction(&[six]).contains(six.0));
    assert!(contradiction(&[six, ("acks", "1")]).contains(six.0));
    assert_eq!(producer(&[six, ("enable.idempotence", "false")]).unwrap().max_in_flight, 6);
}

#[test]
fn delivery_timeout_follows_linger_unless_given() {
    let long = ("linger.ms", "200000");
    assert_eq!(producer(&[long]).unwrap().delivery_timeout, Duration::from_secs(230));
    let text = contradiction(&[long, ("delivery.timeout.ms", "120000")]);
    assert!(text.contains("delivery.timeout.ms=120000") && text.contains("230000"), "{text}");
    contradiction(&[("delivery.timeout.ms", "1000")]);
    producer(&[("delivery.timeout.ms", "1000"), ("request.timeout.ms", "995")]).unwrap();
}

#[test]
fn a_batch_must_fit_into_the_buffer() {
    assert!(contradiction(&[("buffer.memory", "16383")]).contains("batch.size=16384"));
    producer(&[("buffer.memory", "16384")]).unwrap();
}

#[test]
fn levels_go_with_their_codec_in_any_order() {
    let level = ("compression.gzip.level", "4");
    for list in [[level, ("compression.type", "gzip")], [("compression.type", "gzip"), level]] {
        let config = producer(&list).unwrap();
        assert_eq!(config.compression, Compression { codec: Codec::Gzip, level: Some(4) });
    }
    let config = producer(&[level, ("compression.type", "zstd")]).unwrap();
    assert_eq!(config.compression, Compression { codec: Codec::Zstd, level: None });
}

#[test]
fn servers_are_required() {
    assert_eq!(
        ProducerConfig::from_properties([("acks", "1")]).unwrap_err(),
        ConfigError::Missing("bootstrap.servers")
    );
    assert!(matches!(
        ConsumerConfig::new("nowhere").validate(),
        Err(ConfigError::Invalid { name: "bootstrap.servers", .. })
    ));
    assert_eq!(host_and_port("[fe80::1%eth0]:9092"), Some(("fe80::1%eth0", 9092)));
    assert_eq!(host_and_port("a.example:1"), Some(("a.example", 1)));
}

#[test]
fn contradictions_of_consumer_and_admin_settings_are_refused() {
    let servers = ("bootstrap.servers", "a:1");
    let long = ConsumerConfig::from_properties([servers, ("fetch.max.wait.ms", "30000")]);
    assert!(matches!(long, Err(ConfigError::Contradiction(_))));
    let group = |properties: &[(&str, &str)]| {
        ConsumerConfig::from_properties([servers].iter().chain(properties).copied())
    };
    assert!(matches!(group(&[("enable.auto.commit", "true")]), Err(ConfigError::Contradiction(_))));
    group(&[("enable.auto.commit", "true"), ("group.id", "g")]).unwrap();
    group(&[("enable.auto.commit", "false")]).unwrap();
    let late = group(&[("heartbeat.interval.ms", "45000")]);
    assert!(matches!(late, Err(ConfigError::Contradiction(_))));
    let foreign = [
        ("consumer", "partition.assignment.strategy", "range"),
        ("consumer", "session.timeout.ms", "45000"),
        ("consumer", "heartbeat.interval.ms", "3000"),
        ("classic", "group.remote.assignor", "uniform"),
    ];
    for (protocol, name, value) in foreign {
        let refused = group(&[("group.protocol", protocol), (name, value)]).unwrap_err();
        let expected = format!("{name} cannot be set with group.protocol={protocol}: ");
        assert!(refused.to_string().starts_with(&expected), "{refused}");
        let other = if protocol == "classic" { "consumer" } else { "classic" };
        group(&[("group.protocol", other), (name, value)]).unwrap();
    }
    let slow = ("request.timeout.ms", "90000");
    let admin = AdminConfig::from_properties([servers, slow]).unwrap();
    assert_eq!(admin.common.default_api_timeout, Duration::from_secs(90));
    let short = AdminConfig::from_properties([servers, ("default.api.timeout.ms", "1"), slow]);
    assert!(matches!(short, Err(ConfigError::Contradiction(_))));
}

#[test]
fn builder_methods_do_what_properties_do() {
    let built = ProducerConfig::new("a:1, b:2")
        .client_id("me")
        .acks(Acks::Leader)
        .linger(Duration::from_secs(200))
        .batch_size(1)
        .buffer_memory(2)
        .compression(Compression { codec: Codec::Zstd, level: Some(5) })
        .max_in_flight(3)
        .retries(9)
        .max_request_size(77)
        .max_block(Duration::from_millis(1))
        .partitioner_ignore_keys(true);
    built.validate().unwrap();
    let named = ProducerConfig::from_properties([
        ("bootstrap.servers", "a:1,b:2"),
        ("client.id", "me"),
        ("acks", "1"),
        ("linger.ms", "200000"),
        ("batch.size", "1"),
        ("buffer.memory", "2"),
        ("compression.type", "zstd"),
        ("compression.zstd.level", "5"),
        ("max.in.flight.requests.per.connection", "3"),
        ("retries", "9"),
        ("max.request.size", "77"),
        ("max.block.ms", "1"),
        ("partitioner.ignore.keys", "true"),
    ])
    .unwrap();
    assert_eq!(built.properties(), named.properties());
    assert!(!built.idempotence);
    assert!(!ProducerConfig::new("a:1").idempotence(false).linger(Duration::ZERO).idempotence);
}

#[test]
fn defaults_follow_other_settings_until_they_are_made_explicitly() {
    let config = ProducerConfig::new("a:1").linger(Duration::from_secs(200));
    assert_eq!(config.get_delivery_timeout(), Duration::from_secs(230));
    assert!(!config.is_given("delivery.timeout.ms"));
    let config = config.linger(Duration::ZERO);
    assert_eq!(config.get_delivery_timeout(), Duration::from_secs(120));
    let config = config.delivery_timeout(Duration::from_secs(60)).linger(Duration::from_secs(40));
    assert_eq!(config.get_delivery_timeout(), Duration::from_secs(60));
    contradiction_of(&config);
    let config = ProducerConfig::new("a:1").acks(Acks::Leader);
    assert!(!config.get_idempotence() && config.acks(Acks::All).get_idempotence());
    contradiction_of(&ProducerConfig::new("a:1").idempotence(true).acks(Acks::Leader));
    let admin = AdminConfig::new("a:1").request_timeout(Duration::MAX);
    assert!(matches!(
        admin.validate(),
        Err(ConfigError::Invalid { name: "request.timeout.ms", .. })
    ));
}

fn contradiction_of(config: &ProducerConfig) {
    assert!(matches!(config.validate(), Err(ConfigError::Contradiction(_))), "{config:?}");
}

#[test]
fn setters_properties_and_getters_agree() {
    let mut config = ProducerConfig::new("a:1").linger(Duration::from_millis(7)).client_id("x");
    config.set(" batch.size ", "77").unwrap();
    assert_eq!(config.get("linger.ms").as_deref(), Some("7"));
    assert_eq!((config.get_batch_size(), config.get_client_id()), (77, "x"));
    assert_eq!(config.get_bootstrap_servers(), ["a:1"]);
    for name in ["bootstrap.servers", "linger.ms", "batch.size", "client.id"] {
        assert!(config.is_given(name), "{name}");
    }
    assert!(!config.is_given("acks"));
    assert_eq!(config.get("lingr.ms"), None);
    assert_eq!(config.get("default.api.timeout.ms"), None, "producers have none");
    let all = config.properties();
    assert!(all.iter().all(|(name, value)| config.get(name).as_ref() == Some(value)));
}

#[test]
fn unset_settings_have_their_defaults_and_are_not_given() {
    let zstd = Compression { codec: Codec::Zstd, level: Some(5) };
    let mut config = ProducerConfig::new("a:1")
        .transactional_id("x")
        .acks(Acks::Leader)
        .linger(Duration::from_secs(200))
        .compression(zstd)
        .security(SecurityConfig::sasl_ssl(Mechanism::Plain, "alice", "hush"));
    assert_eq!(config.get_security().sasl.mechanism, Some(Mechanism::Plain));
    assert!(config.is_given("compression.zstd.level") && config.is_given("sasl.mechanism"));
    assert!(!config.is_given("ssl.protocol"));
    let made: Vec<_> = config.properties().into_iter().map(|(name, _)| name).collect();
    for name in made {
        config.unset(name).unwrap();
        assert!(!config.is_given(name), "{name}");
    }
    assert_eq!(config.properties(), ProducerConfig::default().properties());
    let unknown = config.unset("lingr.ms").unwrap_err();
    assert!(matches!(unknown, ConfigError::Unknown { nearest: Some("linger.ms"), .. }));
}

#[test]
fn common_settings_made_explicitly_are_taken_over() {
    let security = SecurityConfig::sasl_ssl(Mechanism::Plain, "alice", "hush");
    let consumer = ConsumerConfig::new("a:1,b:2")
        .client_rack("r")
        .request_timeout(Duration::from_secs(70))
        .security(security)
        .group_id("g");
    let admin = AdminConfig::default().client_id("own").common(consumer.get_common());
    assert_eq!(admin.get_bootstrap_servers(), ["a:1", "b:2"]);
    assert_eq!(admin.get_client_id(), "own");
    assert_eq!(admin.get_default_api_timeout(), Duration::from_secs(70));
    assert_eq!(admin.get_connections_max_idle(), Some(Duration::from_secs(300)));
    assert!(admin.is_given("security.protocol") && !admin.is_given("client.rack"));
    assert!(admin.get_security().sasl.login.is_some());
    admin.validate().unwrap();
    let producer = ProducerConfig::default().common(consumer.get_common());
    assert_eq!(producer.get_client_rack(), "r");
}

#[test]
fn settings_of_a_proxy_that_do_not_fit_are_refused() {
    let proxy = ("curtail.socks5.proxy", "proxy:1080");
    let user = ("curtail.socks5.username", "alice");
    let password = ("curtail.socks5.password", "hunter22");
    assert!(contradiction(&[user, password]).contains("need curtail.socks5.proxy"));
    for half in [user, password] {
        assert!(contradiction(&[proxy, half]).contains("together"));
    }
    let canonical = ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only");
    assert!(contradiction(&[proxy, canonical]).contains(canonical.0));
    let long = "x".repeat(256);
    let config = ProducerConfig::new("h:1").socks5_proxy("proxy:1080").socks5_login("alice", long);
    assert!(config.validate().unwrap_err().to_string().contains("255 bytes"));
    let config = ProducerConfig::new("h:1").socks5_proxy("proxy");
    assert!(config.validate().unwrap_err().to_string().contains("host:port"));
    let config =
        ProducerConfig::new("h:1").socks5_proxy("proxy:1").socks5_login("alice", "hunter22");
    config.validate().unwrap();
    assert!(!format!("{config:?}").contains("hunter22"));
}
