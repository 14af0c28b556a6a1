//! Tests of every property: accepted values, refused values, defaults.

mod assertion;
mod combinations;
mod errors;
mod file;
mod java;
mod security;

use std::collections::BTreeMap;

use super::{
    AdminConfig, ConsumerConfig, ProducerConfig, common::COMMON as COMMON_TABLE,
    security::table as security_table, table::Settings as _,
};
use crate::error::ConfigError;

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
    let arms = ProducerConfig::table().filter(|p| p.is_arm).map(|p| p.name);
    let arms = arms.chain(ConsumerConfig::table().filter(|p| p.is_arm).map(|p| p.name));
    let arms = arms.chain(COMMON_TABLE.iter().filter(|p| p.is_arm).map(|p| p.name));
    let arms: std::collections::BTreeSet<_> = arms.collect();
    assert_eq!(arms, super::properties::ARMS.iter().copied().collect());
    let is_arm = |name: &str| arms.contains(name);
    let own = table_of_settings(|name| is_own(name) && !is_arm(name));
    let javas = table_of_settings(|name| !is_own(name));
    crate::documents::check("settings.md", &[("settings", javas), ("own settings", own)]);
    crate::documents::check("laboratory.md", &[("settings of arms", table_of_settings(is_arm))]);
}

#[test]
fn settings_are_documented() {
    for name in [PRODUCER, CONSUMER, COMMON].into_iter().flatten().map(|row| row.0) {
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

/// The documentation of a setting, for a page outside rustdoc: without its name and its links.
fn meaning(name: &str) -> String {
    let of_producer = ProducerConfig::table().map(|p| (p.name, p.about));
    let of_consumer = ConsumerConfig::table().map(|p| (p.name, p.about));
    let of_common = COMMON_TABLE.iter().chain(security_table()).map(|p| (p.name, p.about));
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
