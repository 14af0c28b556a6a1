//! TLS and SASL against a real Apache Kafka: one start, many listeners.

mod certificates;
#[allow(dead_code, reason = "some of it is for other tests")]
mod endpoint;
mod rights;

use std::{fs, path::Path, time::Duration};

use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, Producer, ProducerConfig, Record,
    TopicPartition,
    security::{OAuthBearerToken, SecurityConfig, SecurityProtocol},
};
use curtail_apache::{ApacheCluster, ApacheClusterBuilder};
use tokio::time::{Instant, timeout};

use self::{
    certificates::{Authority, Signed},
    endpoint::{Endpoint, Say},
};

const LIMIT: Duration = Duration::from_secs(60);
const HOST: &str = "127.0.0.1";
const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule";
const BEARER: &str = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";

/// Session lifetime at the brokers. Sessions are renewed after 85 to 95 percent; the rest is what a busy machine may
/// take.
const SESSION: Duration = Duration::from_secs(10);

/// Files of the listeners and the clients.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self { directory: tempfile::tempdir().unwrap() };
        let authority = Authority::new("Curtail test authority");
        files.write("ca.pem", &authority.pem());
        files.write("stranger.pem", &Authority::new("A stranger").pem());
        files.write("broker.pem", &authority.sign(HOST, Signed::FRESH).in_one_file());
        files.write("elsewhere.pem", &authority.sign("elsewhere", Signed::FRESH).in_one_file());
        files.write("expired.pem", &authority.sign(HOST, Signed::EXPIRED).in_one_file());
        files.write("client.pem", &authority.sign("client", Signed::FRESH).in_one_file());
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

fn start(files: &Files) -> Option<ApacheCluster> {
    let toolchain = curtail_apache::require_or_skip("security")?;
    let mut builder = ApacheCluster::builder()
        .toolchain(toolchain)
        .short_lived()
        .property("ssl.truststore.type", "PEM")
        .property("ssl.truststore.location", files.path("ca.pem"))
        .property("ssl.keystore.type", "PEM")
        .property("ssl.keystore.location", files.path("broker.pem"))
        .property("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER")
        .property("connections.max.reauth.ms", SESSION.as_millis().to_string())
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        // All but dave; brokers and clients with plaintext or without a certificate are ANONYMOUS.
        .property("super.users", "User:ANONYMOUS;User:CN=client;User:alice;User:bob,=x;User:carol");
    for (name, protocol) in [
        ("TLS", "SSL"),
        ("MUTUAL", "SSL"),
        ("EXPIRED", "SSL"),
        ("ELSEWHERE", "SSL"),
        ("SECURE", "SASL_SSL"),
        ("CLEAR", "SASL_PLAINTEXT"),
    ] {
        builder = builder.listener(name, protocol);
    }
    builder = of_listener(builder, "mutual", "ssl.client.auth", "required");
    builder = of_listener(builder, "expired", "ssl.keystore.location", &files.path("expired.pem"));
    builder =
        of_listener(builder, "elsewhere", "ssl.keystore.location", &files.path("elsewhere.pem"));
    builder = of_listener(builder, "clear", "sasl.enabled.mechanisms", "PLAIN");
    let users = format!("{PLAIN} required user_alice=\"alice-secret\" user_dave=\"dave-secret\";");
    let issuer = format!("{BEARER} required unsecuredLoginStringClaim_sub=\"broker\";");
    for listener in ["secure", "clear"] {
        builder = of_listener(builder, listener, "plain.sasl.jaas.config", &users);
    }
    for hash in ["256", "512"] {
        let name = format!("scram-sha-{hash}.sasl.jaas.config");
        builder = of_listener(builder, "secure", &name, &format!("{SCRAM} required;"));
    }
    builder = of_listener(builder, "secure", "oauthbearer.sasl.jaas.config", &issuer);
    let cluster = builder.start().expect("Apache Kafka starts");
    add_scram_user(&cluster);
    Some(cluster)
}

fn of_listener(
    builder: ApacheClusterBuilder,
    listener: &str,
    name: &str,
    value: &str,
) -> ApacheClusterBuilder {
    builder.property(format!("listener.name.{listener}.{name}"), value)
}

/// A request of Kafka's may alter only one credential of a user.
fn add_scram_user(cluster: &ApacheCluster) {
    let bootstrap = cluster.bootstrap();
    for credential in [
        "SCRAM-SHA-256=[iterations=8192,password=bob-secret]",
        "SCRAM-SHA-512=[password=bob-secret]",
    ] {
        let mut args = vec!["--bootstrap-server", &bootstrap, "--alter", "--entity-type", "users"];
        args.extend(["--entity-name", "bob,=x", "--add-config", credential]);
        let output = cluster.run_tool("kafka.admin.ConfigCommand", &args, b"").unwrap();
        assert!(output.success(), "{}{}", output.stdout, output.stderr);
    }
}

type Properties = Vec<(&'static str, String)>;

fn ssl(files: &Files, protocol: &str) -> Properties {
    vec![
        ("security.protocol", protocol.to_owned()),
        ("ssl.truststore.location", files.path("ca.pem")),
    ]
}

fn sasl(mut properties: Properties, mechanism: &str, jaas: String) -> Properties {
    properties.push(("sasl.mechanism", mechanism.to_owned()));
    properties.push(("sasl.jaas.config", jaas));
    properties
}

fn login(module: &str, username: &str, password: &str) -> String {
    format!("{module} required username=\"{username}\" password=\"{password}\";")
}

fn producer(bootstrap: &str, properties: &Properties) -> Producer {
    let mut config = ProducerConfig::new(bootstrap);
    for (name, value) in properties {
        config.set(name, value).unwrap();
    }
    let shown = format!("{:?} {:?}", config, config.properties());
    assert!(!shown.contains("-secret"), "{shown}");
    Producer::new(config).unwrap()
}

fn consumer(bootstrap: &str, properties: &Properties, group: Option<&str>) -> Consumer {
    let mut config = ConsumerConfig::new(bootstrap);
    config.set("auto.offset.reset", "earliest").unwrap();
    if let Some(group) = group {
        config.set("group.id", group).unwrap();
    }
    for (name, value) in properties {
        config.set(name, value).unwrap();
    }
    Consumer::new(config).unwrap()
}

fn admin(bootstrap: &str, properties: &Properties) -> Admin {
    let mut config = AdminConfig::new(bootstrap);
    for (name, value) in properties {
        config.set(name, value).unwrap();
    }
    Admin::new(config).unwrap()
}

/// Uses every kind of connection: control, produce, fetch, admin.
async fn works(bootstrap: &str, properties: &Properties, topic: &str) {
    let round = async {
        let producer = producer(bootstrap, properties);
        let written = producer.send(Record::to(topic).value("text")).await.unwrap().await.unwrap();
        let mut consumer = consumer(bootstrap, properties, None);
        let at = TopicPartition::new(topic, written.partition);
        consumer.assign([at.clone()]);
        let records = loop {
            let records = consumer.poll(Duration::from_secs(5)).await.unwrap();
            if records.into_iter().any(|record| record.offset() == written.offset.unwrap()) {
                break true;
            }
        };
        assert!(records);
        let brokers = admin(bootstrap, properties).describe_cluster().await.unwrap().brokers;
        assert_eq!(brokers.len(), 1);
        consumer.close().await;
        producer.close().await.unwrap();
    };
    timeout(LIMIT, round).await.unwrap_or_else(|_| panic!("{topic} takes too long"));
}

/// Checks that sends, polls and admin calls fail at once, with an error that has `parts` and no secret.
async fn refused(bootstrap: &str, properties: &Properties, parts: &[&str]) {
    let check = |error: &Error| {
        let line = error.report().to_string();
        assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
        assert!(parts.iter().all(|part| line.contains(part)), "{line} lacks {parts:?}");
        assert!(!line.contains("secret") && !line.contains('\n'), "{line}");
    };
    let round = async {
        let producer = producer(bootstrap, properties);
        check(&producer.send(Record::to("refused").value("text")).await.unwrap_err());
        let mut consumer = consumer(bootstrap, properties, None);
        consumer.assign([TopicPartition::new("refused", 0)]);
        check(&consumer.poll(LIMIT).await.unwrap_err());
        check(&admin(bootstrap, properties).describe_cluster().await.unwrap_err());
    };
    timeout(LIMIT, round).await.unwrap_or_else(|_| panic!("{parts:?} takes too long"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apache_kafka_is_reached_over_tls_and_sasl() {
    let files = Files::new();
    let Some(cluster) = start(&files) else { return };
    tls(&cluster, &files).await;
    passwords(&cluster, &files).await;
    tokens(&cluster, Path::new(&files.path("ca.pem"))).await;
    provided_tokens(&cluster, &files).await;
    mismatches(&cluster, &files).await;
    rights::missing_rights(&cluster).await;
    renewal_under_load(&cluster, &files).await;
}

async fn tls(cluster: &ApacheCluster, files: &Files) {
    let trusting = ssl(files, "SSL");
    works(&cluster.listener("TLS"), &trusting, "tls").await;

    let mut with_identity = trusting.clone();
    with_identity.push(("ssl.keystore.location", files.path("client.pem")));
    works(&cluster.listener("MUTUAL"), &with_identity, "mutual").await;
    refused(&cluster.listener("MUTUAL"), &trusting, &["ssl.keystore.location"]).await;
    let mut old = with_identity;
    old.push(("ssl.enabled.protocols", "TLSv1.2".into()));
    works(&cluster.listener("MUTUAL"), &old, "mutual-1-2").await;

    refused(&cluster.listener("EXPIRED"), &trusting, &["expired"]).await;
    let names = ["elsewhere", HOST, "ssl.endpoint.identification.algorithm"];
    refused(&cluster.listener("ELSEWHERE"), &trusting, &names).await;
    let mut any_name = trusting;
    any_name.push(("ssl.endpoint.identification.algorithm", String::new()));
    works(&cluster.listener("ELSEWHERE"), &any_name, "elsewhere").await;
    let stranger = vec![
        ("security.protocol", "SSL".to_owned()),
        ("ssl.truststore.location", files.path("stranger.pem")),
    ];
    refused(&cluster.listener("TLS"), &stranger, &["stranger.pem", "trusted"]).await;
}

async fn passwords(cluster: &ApacheCluster, files: &Files) {
    let secure = cluster.listener("SECURE");
    let over_tls = || ssl(files, "SASL_SSL");
    for (mechanism, module, user, password) in [
        ("PLAIN", PLAIN, "alice", "alice-secret"),
        ("SCRAM-SHA-256", SCRAM, "bob,=x", "bob-secret"),
        ("SCRAM-SHA-512", SCRAM, "bob,=x", "bob-secret"),
    ] {
        let good = sasl(over_tls(), mechanism, login(module, user, password));
        works(&secure, &good, &mechanism.to_lowercase()).await;
        let bad = sasl(over_tls(), mechanism, login(module, user, "no-secret"));
        refused(&secure, &bad, &[user, mechanism, "sasl.jaas.config"]).await;
    }
    let clear = vec![("security.protocol", "SASL_PLAINTEXT".to_owned())];
    let plain = sasl(clear.clone(), "PLAIN", login(PLAIN, "alice", "alice-secret"));
    works(&cluster.listener("CLEAR"), &plain, "clear").await;
    let scram = sasl(clear, "SCRAM-SHA-256", login(SCRAM, "bob,=x", "bob-secret"));
    let names = ["sasl.mechanism=SCRAM-SHA-256", "enabled are: PLAIN"];
    refused(&cluster.listener("CLEAR"), &scram, &names).await;
}

/// Without a key server Kafka accepts unsigned tokens.
async fn tokens(cluster: &ApacheCluster, ca: &Path) {
    let with = |token: fn() -> String| {
        let token = move || async move { Ok(OAuthBearerToken::new(token())) };
        let security = SecurityConfig::oauth_bearer(token).truststore(ca, None);
        ProducerConfig::new(cluster.listener("SECURE")).security(security)
    };
    let producer = Producer::new(with(certificates::unsecured_token)).unwrap();
    let sent = producer.send(Record::to("bearer").value("text"));
    timeout(LIMIT, sent).await.unwrap().unwrap().await.unwrap();
    producer.close().await.unwrap();

    let producer = Producer::new(with(|| "no.token.".into())).unwrap();
    let sent = producer.send(Record::to("bearer").value("text"));
    let error = timeout(LIMIT, sent).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
}

/// The flow of KIP-768, configured like in Java's property files.
async fn provided_tokens(cluster: &ApacheCluster, files: &Files) {
    let authority = Authority::new("An identity provider");
    files.write("provider.pem", &authority.pem());
    let certificate = authority.sign(HOST, Signed::FRESH);
    let say = || Say::token(&certificates::unsecured_token());
    let endpoint = Endpoint::start(&certificate, say).await;
    let trust = files.path("provider.pem");
    let jaas = format!(
        "{BEARER} required clientId=\"teller\" clientSecret=\"teller-secret\" ssl.truststore.location=\"{trust}\" ;"
    );
    let mut properties = sasl(ssl(files, "SASL_SSL"), "OAUTHBEARER", jaas);
    properties.push(("sasl.oauthbearer.token.endpoint.url", endpoint.url()));
    let handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler";
    properties.push(("sasl.login.callback.handler.class", handler.into()));
    works(&cluster.listener("SECURE"), &properties, "provided").await;
    // One each for the producer, the consumer and the admin client.
    assert_eq!(endpoint.requests().len(), 3);
}

async fn mismatches(cluster: &ApacheCluster, files: &Files) {
    let plaintext = cluster.bootstrap();
    refused(&plaintext, &ssl(files, "SSL"), &["security.protocol=SSL", "does not speak TLS"]).await;
    let clear = vec![("security.protocol", SecurityProtocol::Plaintext.name().to_owned())];
    refused(&cluster.listener("TLS"), &clear, &["TLS", "security.protocol=PLAINTEXT"]).await;
    let plain = |protocol: &str| {
        let properties = ssl(files, protocol);
        sasl(properties, "PLAIN", login(PLAIN, "alice", "alice-secret"))
    };
    let no_sasl = ["security.protocol=SASL_SSL", "does not support SASL"];
    refused(&cluster.listener("TLS"), &plain("SASL_SSL"), &no_sasl).await;
    let no_sasl = ["security.protocol=SASL_PLAINTEXT", "does not support SASL"];
    refused(&plaintext, &plain("SASL_PLAINTEXT"), &no_sasl).await;
    let sasl_only = ["security.protocol=PLAINTEXT lacks", "SASL_PLAINTEXT", "PLAIN"];
    refused(&cluster.listener("CLEAR"), &clear, &sasl_only).await;
    let sasl_only = ["security.protocol=SSL lacks", "SASL_SSL", "SCRAM-SHA-512"];
    refused(&cluster.listener("SECURE"), &ssl(files, "SSL"), &sasl_only).await;
}

/// Sessions end several times while records are sent and received, without an effect on them.
async fn renewal_under_load(cluster: &ApacheCluster, files: &Files) {
    let bootstrap = cluster.listener("SECURE");
    let properties =
        sasl(ssl(files, "SASL_SSL"), "SCRAM-SHA-512", login(SCRAM, "bob,=x", "bob-secret"));
    let producer = producer(&bootstrap, &properties);
    let mut consumer = consumer(&bootstrap, &properties, Some("renewal"));
    consumer.subscribe(["renewal"]).unwrap();
    // A broker that has not applied the new topic yet refuses the first record. Such retries do not count.
    let first = producer.send(Record::to("renewal").value("text")).await.unwrap();
    timeout(LIMIT, first).await.unwrap().unwrap();
    let retries = || producer.metrics().all_brokers().record_retry_total;
    let retries_before = retries();
    let until = Instant::now() + SESSION * 3 / 2;
    let sending = async {
        let mut sent = 0u64;
        while Instant::now() < until {
            let batch: Vec<_> = {
                let mut batch = Vec::new();
                for _ in 0..20 {
                    let record = Record::to("renewal").value("text");
                    batch.push(producer.send(record).await.unwrap());
                }
                batch
            };
            for delivery in batch {
                delivery.await.unwrap();
                sent += 1;
            }
        }
        sent
    };
    let receiving = async {
        let mut received = 0u64;
        // The end of the load is known only when the other side has ended.
        while Instant::now() < until {
            received +=
                consumer.poll(Duration::from_millis(200)).await.unwrap().into_iter().count() as u64;
        }
        received
    };
    let (sent, mut received) =
        timeout(LIMIT, async { tokio::join!(sending, receiving) }).await.unwrap();
    // With the first record.
    while received < sent + 1 {
        let records = timeout(LIMIT, consumer.poll(LIMIT)).await.unwrap().unwrap();
        received += records.into_iter().count() as u64;
    }
    assert_eq!(received, sent + 1);
    let connections = producer.metrics().all_brokers().connection_creation_total;
    let retries = retries() - retries_before;
    assert_eq!((connections, retries), (1, 0), "the connection outlives its sessions");
    consumer.close().await;
    producer.close().await.unwrap();
}
