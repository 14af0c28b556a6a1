//! Every setting of Java's clients with its default, from Apache Kafka 4.3.0.

use std::collections::BTreeMap;

use crate::{AdminConfig, ConfigError, ConsumerConfig, ProducerConfig};

/// Settings that the test needs: Java has no default for them, or refuses its own default.
const REQUIRED: &[(&str, &str)] = &[
    ("bootstrap.servers", "localhost:9092"),
    // enable.auto.commit=true needs one in Java, too.
    ("group.id", "g"),
    ("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer"),
    ("value.serializer", "org.apache.kafka.common.serialization.StringSerializer"),
    ("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer"),
    ("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"),
];

/// Clients, name and default of every setting.
fn table() -> impl Iterator<Item = (Vec<&'static str>, &'static str, &'static str)> {
    let lines = include_str!("java-4.3-defaults.txt").lines().filter(|l| !l.starts_with('#'));
    lines.map(|line| {
        let [clients, name, default] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        (clients.split(',').collect(), name, default)
    })
}

/// The settings of a client with their defaults, as a file lists them.
fn written_out(client: &str) -> Vec<(&'static str, &'static str)> {
    let of_client = table().filter(|(clients, ..)| clients.contains(&client));
    let settings = of_client.filter_map(|(_, name, default)| {
        match REQUIRED.iter().find(|(required, _)| *required == name) {
            Some((_, value)) => Some((name, *value)),
            None => Some((name, default)).filter(|_| default != "null"),
        }
    });
    settings.collect()
}

#[test]
fn every_default_of_java_written_out_is_accepted() {
    let (producer, consumer, admin) =
        (written_out("producer"), written_out("consumer"), written_out("admin"));
    // Settings of 4.3.0 that are not null, counted in the table.
    assert_eq!([producer.len(), consumer.len(), admin.len()], [79, 81, 59]);
    for setting in &producer {
        ProducerConfig::default().set(setting.0, setting.1).unwrap();
    }
    ProducerConfig::from_properties(producer).unwrap();
    for setting in &consumer {
        ConsumerConfig::default().set(setting.0, setting.1).unwrap();
    }
    ConsumerConfig::from_properties(consumer).unwrap();
    for setting in &admin {
        AdminConfig::default().set(setting.0, setting.1).unwrap();
    }
    AdminConfig::from_properties(admin).unwrap();
}

#[test]
fn every_name_of_java_is_known_to_its_clients() {
    for (clients, name, _) in table() {
        for client in clients {
            let set = match client {
                "producer" => ProducerConfig::default().set(name, ""),
                "consumer" => ConsumerConfig::default().set(name, ""),
                _ => AdminConfig::default().set(name, ""),
            };
            let unknown = matches!(
                set,
                Err(ConfigError::Unknown { .. } | ConfigError::OfOtherClients { .. })
            );
            assert!(!unknown, "{client} {name}: {set:?}");
        }
    }
}

/// docs/settings.md lists the defaults that differ from Java's, and settings of Java's that do nothing.
#[test]
fn defaults_other_than_those_of_java_are_documented() {
    let mut differ = BTreeMap::new();
    let mut compare = |client: &str, ours: Vec<(&'static str, String)>| {
        let ours: BTreeMap<_, _> = ours.into_iter().collect();
        for (name, java) in written_out(client) {
            let Some(ours) = ours.get(name) else { continue };
            let java = java.replace("org.apache.kafka.clients.consumer.", "");
            let java =
                java.replace("RangeAssignor,CooperativeStickyAssignor", "range,cooperative-sticky");
            if *ours != java && !REQUIRED.iter().any(|(required, _)| *required == name) {
                differ.insert(name, ours.clone());
            }
        }
    };
    compare("producer", ProducerConfig::default().properties());
    compare("consumer", ConsumerConfig::default().properties());
    compare("admin", AdminConfig::default().properties());
    let text = include_str!("../../../../../docs/settings.md");
    let section = text.split("## ").find(|s| s.starts_with("Defaults that differ")).unwrap();
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let rows = section.lines().filter(|line| line.starts_with("| `")).map(|line| {
        let cells: Vec<_> = line.split('|').skip(1).map(cell).collect();
        (cells[0].clone(), cells[1].clone())
    });
    let expected = differ.into_iter().map(|(name, value)| (name.to_owned(), value));
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), expected.collect());
}

#[test]
fn other_values_of_settings_without_effect_are_refused_in_one_line_with_the_remedy() {
    let cases = [
        (
            "socket.connection.setup.timeout.max.ms",
            "5",
            "socket.connection.setup.timeout.max.ms=5 is not supported: every attempt has \
             socket.connection.setup.timeout.ms; leave it out or set it to 30000",
        ),
        (
            "sasl.kerberos.service.name",
            "kafka",
            "sasl.kerberos.service.name=kafka is not supported: it is for GSSAPI (Kerberos), which is not supported; \
             leave it out",
        ),
        (
            "sasl.oauthbearer.jwks.endpoint.url",
            "https://user:hunter2-hunter2@idp",
            "sasl.oauthbearer.jwks.endpoint.url is not supported: brokers check tokens, clients do not; leave it out",
        ),
        (
            "share.acquire.mode",
            "record_limit",
            "share.acquire.mode=record_limit is not supported: share groups are not supported yet; leave it out or set \
             it to batch_optimized",
        ),
    ];
    for (name, value, expected) in cases {
        let error = ConsumerConfig::default().set(name, value).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = AdminConfig::default().set("retries", "3").unwrap_err().to_string();
    assert!(error.starts_with("retries=3 is not supported: calls of Admin are retried"), "{error}");
}

/// Java's default mechanism matters only with SASL.
#[test]
fn gssapi_is_refused_only_with_sasl() {
    let with = |protocol| {
        ProducerConfig::from_properties([
            ("bootstrap.servers", "a:1"),
            ("sasl.mechanism", "GSSAPI"),
            ("security.protocol", protocol),
        ])
    };
    with("SSL").unwrap();
    let error = with("SASL_SSL").unwrap_err().to_string();
    assert!(error.contains("GSSAPI") && error.contains("SCRAM-SHA-512"), "{error}");
}
