//! Tests of every property: accepted values, refused values, defaults; and combinations.

mod assertion;
mod file;
mod java;

use std::{collections::BTreeMap, time::Duration};

use curtail_wire::compression::{Codec, Compression};

use super::{
    Acks, AdminConfig, ConsumerConfig, Grant, IGNORED_PROPERTIES, Login, Origin, ProducerConfig,
    common::COMMON as COMMON_TABLE, host_and_port, load_properties, parse_properties,
    table::Settings as _,
};
use crate::{error::ConfigError, security::JwtRetriever};

/// Name, default, values accepted (shown as given unless another text follows `=>`), values refused.
type Row = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const LONG_MS: (&[&str], &[&str]) = (&["0", "1", " 250 "], &["-1", "1.5", "", "x", "5ms"]);
const INT_MS: (&[&str], &[&str]) = (&["0", "2147483647"], &["-1", "2147483648", "1.5", ""]);
const IDLE_MS: (&[&str], &[&str]) =
    (&["0", "-1", "-9 => -1", "9223372036854775807"], &["9223372036854775808", "1.5", ""]);
const FLAG: (&[&str], &[&str]) = (&["true", "false", "TRUE => true"], &["", "yes", "1"]);
const INT_BYTES: (&[&str], &[&str]) = (&["0", "2147483647"], &["-1", "2147483648", "1k", ""]);

const SECRET: &[&str] = &["x => [hidden]", ""];
const STORE_TYPE: (&[&str], &[&str]) = (&["PEM", "pkcs12 => PKCS12", "JKS => "], &["", "BKS"]);

const COMMON: &[Row] = &[
    (
        "bootstrap.servers",
        "",
        &[
            "a:1,b:65535",
            " a:1 , ,b:2 => a:1,b:2",
            "PLAINTEXT://a:1 => a:1",
            "SASL_SSL://a:1 => a:1",
            "[::1]:9092",
        ],
        &["", "a", "a:", ":1", "a:0", "a:65536", "a b:1", "[::1:2", "http://a:1"],
    ),
    (
        "client.dns.lookup",
        "use_all_dns_ips",
        &["resolve_canonical_bootstrap_servers_only", "USE_ALL_DNS_IPS => use_all_dns_ips"],
        &["", "default", "use_all"],
    ),
    ("client.id", "curtail", &["x", ""], &[]),
    ("connections.max.idle.ms", "540000", IDLE_MS.0, IDLE_MS.1),
    ("curtail.io.thread", "false", FLAG.0, FLAG.1),
    ("enable.metrics.push", "true", FLAG.0, FLAG.1),
    ("curtail.socks5.password", "", SECRET, &[]),
    (
        "curtail.socks5.proxy",
        "",
        &["proxy:1080", "[::1]:1080", ""],
        &["proxy", "proxy:0", "socks5://proxy:1"],
    ),
    ("curtail.socks5.username", "", &["x", ""], &[]),
    ("curtail.tcp.keepalive.idle.seconds", "10", &["0", "32767"], &["-1", "32768", "1.5", ""]),
    ("curtail.tcp.keepalive.interval.seconds", "5", &["1", "32767"], &["0", "32768", ""]),
    ("curtail.tcp.user.timeout.ms", "2000", INT_MS.0, INT_MS.1),
    ("metadata.max.age.ms", "300000", LONG_MS.0, LONG_MS.1),
    ("metadata.recovery.rebootstrap.trigger.ms", "300000", LONG_MS.0, LONG_MS.1),
    (
        "metadata.recovery.strategy",
        "rebootstrap",
        &["none", "REBOOTSTRAP => rebootstrap"],
        &["", "x"],
    ),
    ("receive.buffer.bytes", "-1", &["-1", "0", "65536"], &["-2", "2147483648", ""]),
    ("reconnect.backoff.max.ms", "1000", LONG_MS.0, LONG_MS.1),
    ("reconnect.backoff.ms", "50", LONG_MS.0, LONG_MS.1),
    ("request.timeout.ms", "30000", INT_MS.0, INT_MS.1),
    ("retry.backoff.max.ms", "1000", LONG_MS.0, LONG_MS.1),
    ("retry.backoff.ms", "100", LONG_MS.0, LONG_MS.1),
    ("sasl.jaas.config", "", SECRET, &[]),
    (
        "sasl.login.callback.handler.class",
        "",
        &[
            "",
            "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler => ",
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler => ",
        ],
        &["x"],
    ),
    ("sasl.login.connect.timeout.ms", "", INT_MS.0, INT_MS.1),
    ("sasl.login.read.timeout.ms", "", INT_MS.0, INT_MS.1),
    ("sasl.login.refresh.buffer.seconds", "300", &["0", "3600"], &["-1", "3601", "", "1.5"]),
    ("sasl.login.refresh.min.period.seconds", "60", &["0", "900"], &["-1", "901", "x"]),
    ("sasl.login.refresh.window.factor", "0.8", &["0.5", "1"], &["0.49", "1.01", "NaN", ""]),
    ("sasl.login.refresh.window.jitter", "0.05", &["0", "0.25"], &["-0.1", "0.26", "NaN"]),
    ("sasl.login.retry.backoff.max.ms", "10000", LONG_MS.0, LONG_MS.1),
    ("sasl.login.retry.backoff.ms", "100", LONG_MS.0, LONG_MS.1),
    (
        "sasl.mechanism",
        "",
        &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI => "],
        &["", "SCRAM"],
    ),
    (
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        &["ES256", "rs256 => RS256"],
        &["", "HS256", "none"],
    ),
    ("sasl.oauthbearer.assertion.claim.aud", "", &["x", ""], &[]),
    (
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "300",
        &["0", "86400"],
        &["-1", "86401", "", "1.5"],
    ),
    ("sasl.oauthbearer.assertion.claim.iss", "", &["x", ""], &[]),
    ("sasl.oauthbearer.assertion.claim.jti.include", "false", FLAG.0, FLAG.1),
    (
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "60",
        &["0", "3600"],
        &["-1", "3601", "", "1.5"],
    ),
    ("sasl.oauthbearer.assertion.claim.sub", "", &["x", ""], &[]),
    ("sasl.oauthbearer.assertion.file", "", &["x", ""], &[]),
    ("sasl.oauthbearer.assertion.private.key.file", "", &["x", ""], &[]),
    ("sasl.oauthbearer.assertion.private.key.passphrase", "", SECRET, &[]),
    ("sasl.oauthbearer.assertion.template.file", "", &["x", ""], &[]),
    ("sasl.oauthbearer.client.credentials.client.id", "", &["x", ""], &[]),
    ("sasl.oauthbearer.client.credentials.client.secret", "", SECRET, &[]),
    ("sasl.oauthbearer.header.urlencode", "false", FLAG.0, FLAG.1),
    (
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        &[
            " => org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
            "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
            "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever",
            "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
        ],
        &["x"],
    ),
    ("sasl.oauthbearer.scope", "", &["a b", ""], &[]),
    ("sasl.oauthbearer.token.endpoint.url", "", &["https://x/y", ""], &[]),
    (
        "security.protocol",
        "PLAINTEXT",
        &["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "sasl_ssl => SASL_SSL"],
        &["", "TLS"],
    ),
    ("send.buffer.bytes", "-1", &["-1", "0", "65536"], &["-2", "2147483648", ""]),
    (
        "ssl.cipher.suites",
        "",
        &[
            "TLS_AES_128_GCM_SHA256",
            "TLS_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => TLS_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "",
        ],
        &["TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_AES_128_GCM_SHA256,", "x"],
    ),
    (
        "ssl.enabled.protocols",
        "TLSv1.2,TLSv1.3",
        &["TLSv1.3", "TLSv1.3, TLSv1.2 => TLSv1.2,TLSv1.3"],
        &["", "SSLv3", "TLSv1.2,"],
    ),
    ("ssl.endpoint.identification.algorithm", "https", &["HTTPS => https", ""], &["ldaps"]),
    ("ssl.key.password", "", SECRET, &[]),
    ("ssl.keystore.certificate.chain", "", &["x", ""], &[]),
    ("ssl.keystore.key", "", SECRET, &[]),
    ("ssl.keystore.location", "", &["x", ""], &[]),
    ("ssl.keystore.password", "", SECRET, &[]),
    ("ssl.keystore.type", "", STORE_TYPE.0, STORE_TYPE.1),
    ("ssl.protocol", "TLSv1.3", &["TLSv1.2", "TLS => TLSv1.3"], &["SSLv3", ""]),
    ("ssl.truststore.certificates", "", &["x", ""], &[]),
    ("ssl.truststore.location", "", &["x", ""], &[]),
    ("ssl.truststore.password", "", SECRET, &[]),
    ("ssl.truststore.type", "", STORE_TYPE.0, STORE_TYPE.1),
    ("socket.connection.setup.timeout.ms", "10000", LONG_MS.0, LONG_MS.1),
];

const PRODUCER: &[Row] = &[
    ("client.rack", "", &["x", ""], &[]),
    ("acks", "all", &["all", "-1 => all", "1", "0"], &["ALL", "2", ""]),
    ("batch.max.size", "65536", INT_BYTES.0, INT_BYTES.1),
    ("batch.size", "16384", INT_BYTES.0, INT_BYTES.1),
    ("buffer.memory", "33554432", &["0", "9223372036854775807"], &["-1", "9223372036854775808"]),
    ("compression.gzip.level", "-1", &["-1", "1", "9"], &["0", "10", "x"]),
    ("compression.lz4.level", "9", &["1", "17"], &["0", "18", "-1"]),
    ("compression.type", "none", &["none", "gzip", "snappy", "lz4", "zstd"], &["ZSTD", "", "xz"]),
    ("compression.zstd.level", "3", &["-131072", "22"], &["-131073", "23"]),
    ("curtail.phase.stamps", "true", FLAG.0, FLAG.1),
    (
        "curtail.leader.discovery",
        "hint",
        &["hint", "refresh", "refresh-and-back-off"],
        &["", "hints", "Hint"],
    ),
    ("curtail.partitioner.load", "wait", &["wait", "queued-batches"], &["", "queue", "Wait"]),
    ("curtail.suspicion.enable", "true", FLAG.0, FLAG.1),
    ("curtail.suspicion.max.ms", "2000", INT_MS.0, INT_MS.1),
    ("curtail.suspicion.min.ms", "200", INT_MS.0, INT_MS.1),
    ("curtail.suspicion.multiple", "4", &["1", "4294967295"], &["0", "-1", "1.5"]),
    ("curtail.broker.memory.percent", "100", &["0", "50", "1000000"], &["-1", "1000001", "x"]),
    ("curtail.latency.target.ms", "10", INT_MS.0, INT_MS.1),
    ("curtail.route.around.trouble", "true", FLAG.0, FLAG.1),
    ("curtail.move.refused.batches", "true", FLAG.0, FLAG.1),
    ("curtail.prefer.proven.partitions", "true", FLAG.0, FLAG.1),
    ("curtail.separate.unproven.partitions", "true", FLAG.0, FLAG.1),
    ("delivery.timeout.ms", "120000", INT_MS.0, INT_MS.1),
    ("enable.idempotence", "true", FLAG.0, FLAG.1),
    ("linger.ms", "5", LONG_MS.0, LONG_MS.1),
    ("max.block.ms", "60000", LONG_MS.0, LONG_MS.1),
    ("max.in.flight.requests.per.connection", "5", &["1", "2147483647"], &["0", "-1", ""]),
    ("max.request.size", "1048576", INT_BYTES.0, INT_BYTES.1),
    ("partitioner.adaptive.partitioning.enable", "true", FLAG.0, FLAG.1),
    ("partitioner.availability.timeout.ms", "0", LONG_MS.0, LONG_MS.1),
    (
        "partitioner.class",
        "",
        &["", "org.apache.kafka.clients.producer.RoundRobinPartitioner"],
        &["org.apache.kafka.clients.producer.internals.DefaultPartitioner", "com.example.Mine"],
    ),
    ("metadata.max.idle.ms", "300000", &["5000"], &["4999", "-1", ""]),
    ("partitioner.ignore.keys", "false", FLAG.0, FLAG.1),
    ("partitioner.rack.aware", "false", FLAG.0, FLAG.1),
    ("retries", "2147483647", &["0", "2147483647"], &["-1", "2147483648"]),
    ("transaction.timeout.ms", "60000", INT_MS.0, INT_MS.1),
    ("transactional.id", "", &["x"], &["", " "]),
];

const CONSUMER: &[Row] = &[
    ("allow.auto.create.topics", "true", FLAG.0, FLAG.1),
    (
        "auto.offset.reset",
        "latest",
        &[
            "earliest",
            "latest",
            "none",
            "by_duration:PT1H => by_duration:PT3600S",
            "by_duration:P1DT1H1M1.25S => by_duration:PT90061.25S",
            "by_duration:p2d => by_duration:PT172800S",
            "by_duration:PT0S",
        ],
        &[
            "",
            "Earliest",
            "by_duration",
            "by_duration:",
            "by_duration:P",
            "by_duration:PT",
            "by_duration:-PT1H",
            "by_duration:PT-1H",
            "by_duration:PT1.5H",
            "by_duration:PT1S1H",
            "by_duration:1H",
            "by_duration:PT.S",
        ],
    ),
    ("auto.commit.interval.ms", "5000", INT_MS.0, INT_MS.1),
    ("enable.auto.commit", "true", FLAG.0, FLAG.1),
    ("exclude.internal.topics", "true", FLAG.0, FLAG.1),
    ("group.id", "", &["g"], &["", " "]),
    ("group.instance.id", "", &["i"], &["", " "]),
    ("group.protocol", "classic", &["classic", "CONSUMER => consumer"], &["", "share"]),
    ("group.remote.assignor", "", &["uniform"], &["", " "]),
    ("heartbeat.interval.ms", "3000", INT_MS.0, INT_MS.1),
    ("max.poll.interval.ms", "300000", &["1", "2147483647"], &["0", "-1", "2147483648"]),
    (
        "partition.assignment.strategy",
        "range,cooperative-sticky",
        &[
            "sticky",
            "roundrobin, range => roundrobin,range",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor => cooperative-sticky",
            "org.apache.kafka.clients.consumer.RoundRobinAssignor,\
             org.apache.kafka.clients.consumer.StickyAssignor,\
             org.apache.kafka.clients.consumer.RangeAssignor => roundrobin,sticky,range",
        ],
        &["", ",", "uniform", "range,range", "com.example.Mine"],
    ),
    ("session.timeout.ms", "45000", INT_MS.0, INT_MS.1),
    ("check.crcs", "true", FLAG.0, FLAG.1),
    ("client.rack", "", &["x", ""], &[]),
    (
        "curtail.buffered.partitions",
        "credit",
        &["credit", "omit", "skip-broker", "skip-all"],
        &["", "skip", "Omit"],
    ),
    ("curtail.decompressed.batch.max.bytes", "134217728", &["1"], &["0", "-1"]),
    ("curtail.phase.stamps", "true", FLAG.0, FLAG.1),
    ("curtail.prefetch.bytes", "67108864", &["1"], &["0", "-1"]),
    ("default.api.timeout.ms", "60000", INT_MS.0, INT_MS.1),
    ("fetch.max.bytes", "52428800", INT_BYTES.0, INT_BYTES.1),
    ("fetch.max.wait.ms", "500", INT_MS.0, INT_MS.1),
    ("fetch.min.bytes", "1", INT_BYTES.0, INT_BYTES.1),
    (
        "isolation.level",
        "read_uncommitted",
        &["read_uncommitted", "read_committed"],
        &["", "READ_COMMITTED"],
    ),
    ("max.partition.fetch.bytes", "1048576", INT_BYTES.0, INT_BYTES.1),
    ("max.poll.records", "500", &["1", "2147483647"], &["0", "-1"]),
];

const ADMIN: &[Row] = &[
    ("connections.max.idle.ms", "300000", IDLE_MS.0, IDLE_MS.1),
    ("default.api.timeout.ms", "60000", INT_MS.0, INT_MS.1),
    ("enable.metrics.push", "false", FLAG.0, FLAG.1),
];

macro_rules! check_table {
    ($type:ident, $own:expr) => {
        let rows: BTreeMap<_, _> = COMMON.iter().chain($own).map(|row| (row.0, row)).collect();
        let defaults = $type::default().properties();
        let names: Vec<_> = defaults.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, rows.keys().copied().collect::<Vec<_>>(), "a row for each property");
        for ((name, shown), row) in defaults.iter().zip(rows.values()) {
            assert_eq!(shown, row.1, "default of {name}");
            for text in row.2 {
                let (given, expected) = text.split_once(" => ").unwrap_or((text, text.trim()));
                let mut config = $type::default();
                config.set(name, given).unwrap();
                let shown = config.properties().into_iter().find(|p| p.0 == *name).unwrap().1;
                assert_eq!(shown, expected, "{name}={given}");
            }
            for text in row.3 {
                match $type::default().set(name, text) {
                    Err(ConfigError::Invalid { name: refused, value, .. }) => {
                        assert_eq!((refused, value.as_str()), (*name, text.trim()));
                    }
                    other => panic!("{name}={text}: {other:?}"),
                }
            }
        }
    };
}

#[test]
fn every_producer_property_follows_its_row() {
    check_table!(ProducerConfig, PRODUCER);
}

#[test]
fn every_consumer_property_follows_its_row() {
    check_table!(ConsumerConfig, CONSUMER);
}

#[test]
fn every_admin_property_follows_its_row() {
    check_table!(AdminConfig, ADMIN);
}

#[test]
fn page_of_settings_lists_all_properties_with_their_defaults() {
    let is_own = |name: &str| name.starts_with("curtail.") || name == "batch.max.size";
    let [own, javas] = [true, false].map(|own| table_of_settings(|name| is_own(name) == own));
    crate::documents::check("settings.md", &[("settings", javas), ("own settings", own)]);
}

/// Every setting has a meaning, except those of TLS and SASL, which docs/security.md describes.
#[test]
fn settings_are_documented() {
    let undocumented = |name: &&str| !name.starts_with("ssl.") && !name.starts_with("sasl.");
    let names = [PRODUCER, CONSUMER, COMMON].into_iter().flatten().map(|row| row.0);
    for name in names.filter(undocumented).filter(|name| *name != "security.protocol") {
        assert!(meaning(name).len() > 10, "{name}: '{}'", meaning(name));
    }
}

fn table_of_settings(is_listed: impl Fn(&str) -> bool) -> String {
    let clients = [
        ProducerConfig::default().properties(),
        ConsumerConfig::default().properties(),
        AdminConfig::default().properties(),
    ];
    let clients = clients.map(BTreeMap::from_iter);
    let names: std::collections::BTreeSet<&str> =
        clients.iter().flat_map(|settings| settings.keys().copied()).collect();
    let mut table =
        "| property | producer | consumer | admin | meaning |\n|---|---|---|---|---|\n".to_owned();
    for name in names.into_iter().filter(|name| is_listed(name)) {
        let cell = |settings: &BTreeMap<&str, String>| match settings.get(name).map(String::as_str)
        {
            None => "-".to_owned(),
            Some("") => String::new(),
            Some(value) => format!("`{value}`"),
        };
        let [producer, consumer, admin] = clients.each_ref().map(cell);
        let meaning = meaning(name);
        table += &format!("| `{name}` | {producer} | {consumer} | {admin} | {meaning} |\n");
    }
    table
}

/// The documentation of a setting's field, for a page outside rustdoc: without its name and its links.
fn meaning(name: &str) -> String {
    let of_producer = ProducerConfig::table().map(|p| (p.name, p.about));
    let of_consumer = ConsumerConfig::table().map(|p| (p.name, p.about));
    let of_common = COMMON_TABLE.iter().map(|p| (p.name, p.about));
    let mut all = of_producer.chain(of_consumer).chain(of_common);
    let about = all.find(|(known, _)| *known == name).map_or("", |(_, about)| about);
    let about = about.trim().trim_start_matches(&format!("`{name}`: ")).trim_end_matches('.');
    about
        .replace("[`crate::", "`")
        .replace("`](crate::Error::ResponseTooLarge)", "`")
        .replace("`]", "`")
        .replace("[`", "`")
        .replace("  ", " ")
}

fn producer(properties: &[(&str, &str)]) -> Result<ProducerConfig, ConfigError> {
    let servers = ("bootstrap.servers", "localhost:9092");
    ProducerConfig::from_properties([servers].iter().chain(properties).copied())
}

fn contradiction(properties: &[(&str, &str)]) -> String {
    match producer(properties) {
        Err(ConfigError::Contradiction(text)) => text,
        other => panic!("{properties:?}: {other:?}"),
    }
}

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
fn fields_assigned_directly_stay_as_assigned() {
    let mut config = ProducerConfig::new("a:1");
    config.idempotence = false;
    assert!(!config.clone().linger(Duration::ZERO).idempotence);
    config.compression = Compression { codec: Codec::Gzip, level: Some(2) };
    assert_eq!(config.acks(Acks::All).compression.level, Some(2));
}

#[test]
fn properties_files_are_read_as_java_does() {
    let text = "# comment\n! another\n\n  a=1\nb : 2\nc 3\nd\ne=\nf = x \\\n   y\\\\\n\
                g\\ h\\==\\u0041\\t\\q\r\ni==:\nj=\\ud83d\\ude00\nk=a\\\n#b\na=3\n";
    let expected = [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("d", ""),
        ("e", ""),
        ("f", "x y\\"),
        ("g h=", "A\tq"),
        ("i", "=:"),
        ("j", "\u{1f600}"),
        ("k", "a#b"),
        ("a", "3"),
    ];
    let read = parse_properties(text).unwrap();
    let read: Vec<_> = read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(read, expected);
    assert!(parse_properties("a=1\nb=\\u12g4").unwrap_err().starts_with("line 2"));
    let dangling = parse_properties("a=1\\").unwrap();
    assert_eq!(dangling, [("a".to_owned(), "1".to_owned())]);
}

#[test]
fn a_missing_file_is_named() {
    let error = load_properties("no/such/file.properties").unwrap_err().to_string();
    assert!(error.starts_with("cannot read properties from no/such/file.properties: "), "{error}");
}

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
const BEARER: &str = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
const HANDLER: &str =
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler";

const CLIENT_HANDLER: &str = "software.amazon.msk.auth.iam.IAMClientCallbackHandler";

fn secured(properties: &[(&str, &str)]) -> Result<ProducerConfig, ConfigError> {
    let always = [("bootstrap.servers", "a:1")];
    ProducerConfig::from_properties(always.iter().chain(properties).copied())
}

#[test]
fn secrets_are_set_and_never_shown() {
    let jaas = format!("{PLAIN} required username=\"u\" password=\"hush\";");
    let config = secured(&[
        ("security.protocol", "sasl_ssl"),
        ("ssl.truststore.type", "PKCS12"),
        ("ssl.truststore.location", "/trusted.p12"),
        ("ssl.truststore.password", "hush"),
        ("ssl.keystore.certificate.chain", "chain"),
        ("ssl.keystore.key", "hush"),
        ("ssl.key.password", "hush"),
        ("ssl.endpoint.identification.algorithm", ""),
        ("ssl.enabled.protocols", "TLSv1.3, TLSv1.2"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.jaas.config", &jaas),
    ])
    .unwrap();
    assert!(!format!("{config:?}").contains("hush"));
    let shown = config.properties();
    let value = |name| shown.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str());
    assert_eq!(value("security.protocol"), Some("SASL_SSL"));
    assert_eq!(value("ssl.truststore.type"), Some("PKCS12"));
    assert_eq!(value("ssl.enabled.protocols"), Some("TLSv1.2,TLSv1.3"));
    assert_eq!(value("ssl.endpoint.identification.algorithm"), Some(""));
    for name in
        ["ssl.truststore.password", "ssl.keystore.key", "ssl.key.password", "sasl.jaas.config"]
    {
        assert_eq!(value(name), Some("[hidden]"), "{name}");
    }
    assert_eq!(value("ssl.keystore.password"), Some(""));
}

#[test]
fn a_login_takes_settings_before_options() {
    let jaas = format!(
        "{BEARER} required clientId=\"id\" clientSecret='hush' scope=\"a b\" extension_logicalCluster=lkc \
         ssl.truststore.location=\"/idp.pem\";"
    );
    let always = [
        ("security.protocol", "SASL_SSL"),
        ("ssl.truststore.location", "/brokers.pem"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.login.callback.handler.class", HANDLER),
        ("sasl.oauthbearer.token.endpoint.url", "https://[::1]:8443/token?realm=x"),
        ("sasl.jaas.config", &jaas),
    ];
    let login = |more: &[(&str, &str)]| {
        let config = secured(&[&always, more].concat()).unwrap();
        assert!(!format!("{config:?}").contains("hush"));
        match config.common.security.sasl.login().unwrap() {
            Login::Oidc(credentials) => credentials,
            other => panic!("{other:?}"),
        }
    };
    let by_options = login(&[]);
    let secret =
        |id: &str, secret: &str| Grant::ClientSecret { id: id.into(), secret: secret.into() };
    let Origin::Endpoint(endpoint, grant) = &by_options.origin else { panic!("{by_options:?}") };
    assert_eq!(*grant, secret("id", "hush"));
    assert_eq!(by_options.scope.as_deref(), Some("a b"));
    assert_eq!(by_options.extensions, [("logicalCluster".to_owned(), "lkc".to_owned())]);
    assert_eq!(by_options.ssl.truststore.location, Some("/idp.pem".into()));
    assert_eq!((endpoint.host.as_str(), endpoint.port), ("::1", 8443));
    assert_eq!(endpoint.path_and_query, "/token?realm=x");
    let shown = endpoint.to_string();
    assert_eq!(shown, "sasl.oauthbearer.token.endpoint.url=https://[::1]:8443/token");
    let by_settings = login(&[
        ("sasl.oauthbearer.client.credentials.client.id", "other"),
        ("sasl.oauthbearer.client.credentials.client.secret", "hush2"),
        ("sasl.oauthbearer.scope", "c"),
    ]);
    assert!(
        matches!(&by_settings.origin, Origin::Endpoint(_, g) if *g == secret("other", "hush2"))
    );
    assert_eq!(by_settings.scope.as_deref(), Some("c"));
}

#[test]
fn security_settings_that_cannot_work_are_refused_by_name() {
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"u\" password=\"hush\";";
    let sasl = ("security.protocol", "SASL_SSL");
    let plain = ("sasl.mechanism", "PLAIN");
    let tls = ("security.protocol", "SSL");
    let bearer = ("sasl.mechanism", "OAUTHBEARER");
    let url = |url| ("sasl.oauthbearer.token.endpoint.url", url);
    let id = ("sasl.oauthbearer.client.credentials.client.id", "x");
    let retriever = |name| match name {
        "File" => ("sasl.oauthbearer.jwt.retriever.class", JwtRetriever::File.class()),
        _ => ("sasl.oauthbearer.jwt.retriever.class", JwtRetriever::JwtBearer.class()),
    };
    let odd_option =
        format!("{BEARER} required clientId=a clientSecret=hush ssl.truststore.type=hush;");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("security.protocol", "TLS")], "SASL_PLAINTEXT"),
        (&[("ssl.truststore.type", "BKS")], "keytool -importkeystore"),
        (&[("ssl.enabled.protocols", "TLSv1.1")], "TLSv1.2"),
        (&[("sasl.mechanism", "SCRAM")], "SCRAM-SHA-512"),
        (&[sasl], "sasl.mechanism is GSSAPI (Kerberos) by default"),
        (&[sasl, ("sasl.mechanism", "GSSAPI")], "SCRAM-SHA-512"),
        (&[sasl, plain], "sasl.jaas.config is required"),
        (&[sasl, plain, ("sasl.jaas.config", scram)], "does not fit sasl.mechanism=PLAIN"),
        (&[sasl, plain, ("sasl.jaas.config", "x.Krb5LoginModule required;")], "x.Krb5LoginModule"),
        (&[sasl, bearer], "needs sasl.oauthbearer.token.endpoint.url"),
        (&[sasl, bearer, url("https://x"), ("sasl.jaas.config", scram)], "does not fit"),
        (&[sasl, bearer, url("https://x")], "the option 'clientId' in sasl.jaas.config"),
        (&[sasl, bearer, url("https://x"), id], "the option 'clientSecret' in sasl.jaas.config"),
        (&[sasl, bearer, url("http://127.0.0.1/hush"), id], "must begin with https://"),
        (&[sasl, bearer, url("file://x/hush"), id], "has the form file:///path"),
        (
            &[sasl, bearer, url("file:///x"), retriever("JwtBearer")],
            "JwtBearerJwtRetriever needs an https address in sasl.oauthbearer.token.endpoint.url",
        ),
        (
            &[sasl, bearer, url("https://x"), retriever("File")],
            "FileJwtRetriever needs file:///path of a token in sasl.oauthbearer.token.endpoint.url",
        ),
        (
            &[sasl, bearer, url("https://x"), retriever("JwtBearer"), id],
            "JwtBearerJwtRetriever needs sasl.oauthbearer.assertion.private.key.file, or sasl.oauthbearer.assertion.file",
        ),
        (
            &[sasl, bearer, url("https://x"), id, ("sasl.oauthbearer.assertion.claim.iss", "x")],
            "sasl.oauthbearer.assertion.claim.iss needs sasl.oauthbearer.assertion.private.key.file",
        ),
        (
            &[
                sasl,
                bearer,
                url("https://x"),
                id,
                ("sasl.oauthbearer.assertion.private.key.file", "x"),
            ],
            "to log in with an assertion, set sasl.oauthbearer.assertion.claim.iss",
        ),
        (
            &[("sasl.login.callback.handler.class", "org.example.Hush")],
            "use SecurityConfig::oauth_bearer with a function",
        ),
        (
            &[sasl, ("sasl.mechanism", "AWS_MSK_IAM"), ("sasl.jaas.config", scram)],
            "does not fit sasl.mechanism=AWS_MSK_IAM; use software.amazon.msk.auth.iam.IAMLoginModule",
        ),
        (
            &[("sasl.oauthbearer.jwt.retriever.class", "org.example.Hush")],
            "use SecurityConfig::oauth_bearer with a function",
        ),
        (&[sasl, bearer, url("https://a:hush@x"), id], "must not contain a user name"),
        (
            &[sasl, bearer, url("https://"), id],
            "sasl.oauthbearer.token.endpoint.url: it is not a URL",
        ),
        (
            &[sasl, bearer, url("https://x"), ("sasl.jaas.config", &odd_option)],
            "the option 'ssl.truststore.type' in sasl.jaas.config: expected PEM",
        ),
        (&[("security.protocol", "SSL"), ("ssl.keystore.key", "hush")], "certificate.chain"),
        (&[("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256,x,TLS_Y")], "'x', 'TLS_Y' cannot be used"),
        (
            &[tls, ("ssl.protocol", "TLSv1.2"), ("ssl.enabled.protocols", "TLSv1.3")],
            "ssl.protocol=TLSv1.2",
        ),
        (
            &[tls, ("ssl.protocol", "TLSv1.2"), ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256")],
            "ssl.cipher.suites has no cipher suite",
        ),
    ];
    for (properties, part) in cases {
        let error = secured(properties).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("hush"), "{properties:?}: {error}");
    }
    // Java validates unused settings, too.
    secured(&[("sasl.jaas.config", "nonsense")]).unwrap();
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
