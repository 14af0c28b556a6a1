//! Errors of single settings: their texts, and the secrets that they do not quote.

use super::{COMMON, CONSUMER, PRODUCER, producer, security::CLIENT_HANDLER};
use crate::{
    config::{AdminConfig, ConsumerConfig, IGNORED_PROPERTIES, ProducerConfig},
    error::ConfigError,
};

#[test]
fn unknown_names_name_the_nearest() {
    let nearest = |name: &str| match ProducerConfig::default().set(name, "1") {
        Err(ConfigError::Unknown { nearest, .. }) => nearest,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(nearest("linger"), Some("linger.ms"));
    assert_eq!(nearest("linger_ms"), Some("linger.ms"));
    assert_eq!(nearest("bootstrap.server"), Some("bootstrap.servers"));
    assert_eq!(nearest("max.in.flight.requests"), None);
    assert_eq!(nearest("queue.buffering.max.things"), None);
    assert_eq!(nearest(&"x".repeat(100_000)), None);
    let error = ProducerConfig::default().set("batchsize", "1").unwrap_err();
    assert_eq!(error.to_string(), "unknown property 'batchsize'; did you mean 'batch.size'?");
}

#[test]
fn a_value_outside_the_range_names_the_bound_that_it_violates() {
    for (name, value, expected) in [
        ("linger.ms", "-5", "milliseconds, at least 0"),
        ("linger.ms", "soon", "milliseconds, at least 0"),
        ("linger.ms", "9223372036854775808", "milliseconds, at most 9223372036854775807"),
        ("request.timeout.ms", "3000000000", "milliseconds, at most 2147483647"),
        ("metadata.max.idle.ms", "4999", "milliseconds, at least 5000"),
        ("retries", "", "a count, at least 0"),
        ("max.in.flight.requests.per.connection", "0", "a count, at least 1"),
        ("acks", "2", "all, -1, 0 or 1"),
    ] {
        let error = ProducerConfig::default().set(name, value).unwrap_err();
        assert_eq!(error.to_string(), format!("{name}={value}: expected {expected}"));
    }
}

/// Texts that users put into settings, each with the part that no error may show.
const SECRETS: [&str; 5] = [
    "hunter2-hunter2",
    "HUNTER2HUNTER2",
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"hunter2-hunter2\";",
    "-----BEGIN PRIVATE KEY-----hunter2-----END PRIVATE KEY-----",
    "SASL_SSL://user:hunter2@broker:9092",
];

fn hides_secrets(error: &ConfigError) -> bool {
    let shown = format!("{error} {error:?}").to_ascii_lowercase();
    !shown.contains("hunter2")
}

#[test]
fn errors_of_misspelled_names_do_not_quote_secrets() {
    let names = COMMON.iter().chain(PRODUCER).chain(CONSUMER).map(|row| row.0);
    let others =
        ["sasl.login.class", "sasl.kerberos.service.name", "ssl.provider", "key.serializer"];
    for name in names.chain(others) {
        for at in [1, name.len() / 2, name.len() - 1] {
            let (left, right) = name.split_at(at);
            let changed = [format!("{left}q{}", &right[1..]), format!("{left}{}", &right[1..])];
            for wrong in changed.iter().filter(|wrong| *wrong != name) {
                for error in [
                    ProducerConfig::default().set(wrong, SECRETS[2]).unwrap_err(),
                    ConsumerConfig::default().set(wrong, SECRETS[2]).unwrap_err(),
                ] {
                    assert!(hides_secrets(&error), "{wrong}: {error}");
                }
            }
        }
    }
}

#[test]
fn errors_of_wrong_values_do_not_quote_secrets() {
    for row in COMMON.iter().chain(PRODUCER) {
        for secret in SECRETS {
            // An error quotes a value that is a single word, except in security settings.
            let is_security = ["ssl.", "sasl.", "security."].iter().any(|f| row.0.starts_with(f));
            let is_word = secret.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            let refused = ProducerConfig::default().set(row.0, secret);
            if let (Err(error), true) = (refused, is_security || !is_word) {
                assert!(hides_secrets(&error), "{}: {error}", row.0);
            }
        }
    }
    for secret in SECRETS {
        let swapped = ProducerConfig::default().set(&format!("{secret} "), "sasl.jaas.config");
        let error = swapped.unwrap_err();
        let is_word = secret.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        assert!(hides_secrets(&error) || is_word, "{error}");
        let option = format!("x.OAuthBearerLoginModule required ssl.keystore.type=\"{secret}\";");
        let option = option.replace("x.", "org.apache.kafka.common.security.oauthbearer.");
        let unreadable = producer(&[
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.oauthbearer.token.endpoint.url", "https://x/y"),
            ("sasl.oauthbearer.client.credentials.client.id", "id"),
            ("sasl.oauthbearer.client.credentials.client.secret", secret),
            ("sasl.jaas.config", &option),
        ]);
        assert!(hides_secrets(&unreadable.unwrap_err()), "{secret}");
        let mut config = ProducerConfig::new("SASL_SSL://user:hunter2@broker:9092");
        config.common.security.sasl.jaas = Some(secret.into());
        assert!(hides_secrets(&config.validate().unwrap_err()));
        assert!(!format!("{config:?}").contains("hunter2-hunter2"), "Debug shows a secret");
    }
}

#[test]
fn java_only_names_are_ignored_or_refused_by_name() {
    for name in IGNORED_PROPERTIES {
        ProducerConfig::default().set(name, "whatever").unwrap();
        AdminConfig::default().set(name, "whatever").unwrap();
    }
    let class = |name| format!("org.apache.kafka.common.serialization.{name}");
    let mut config = ConsumerConfig::default();
    config.set("key.deserializer", &class("StringDeserializer")).unwrap();
    config.set("value.deserializer", &class("ByteArrayDeserializer")).unwrap();
    let fixed = [
        ("ssl.provider", "", "SunJSSE"),
        ("ssl.trustmanager.algorithm", "PKIX", "SunX509"),
        ("sasl.client.callback.handler.class", CLIENT_HANDLER, "org.example.Handler"),
    ];
    for (name, accepted, refused) in fixed {
        config.set(name, accepted).unwrap();
        assert!(matches!(config.set(name, refused), Err(ConfigError::NotSupported { .. })));
    }
    let refused = [
        ("value.deserializer", class("LongDeserializer")),
        ("sasl.login.class", "hush-hush".into()),
        ("sasl.kerberos.service.name", "hush-hush".into()),
        ("sasl.oauthbearer.jwks.endpoint.url", "hush-hush".into()),
        ("sasl.oauthbearer.expected.issuer", "hush-hush".into()),
    ];
    for (name, value) in refused {
        let error = config.set(name, &value).unwrap_err();
        assert!(matches!(error, ConfigError::NotSupported { .. }), "{name}: {error:?}");
        assert!(!error.to_string().contains("hush"), "values may be secrets");
    }
    let why = ProducerConfig::default().set("fetch.min.bytes", "1").unwrap_err();
    assert_eq!(why.to_string(), "fetch.min.bytes is not supported: it is a setting of consumers");
    for (name, value, kind) in
        [("linger.ms", "5", "producers"), ("fetch.min.bytes", "1", "consumers")]
    {
        let error = AdminConfig::default().set(name, value).unwrap_err();
        let expected = ConfigError::OfOtherClients { name: name.to_owned(), clients: kind };
        assert_eq!(error, expected);
    }
}
