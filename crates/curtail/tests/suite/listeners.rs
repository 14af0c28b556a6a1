//! Clients of an embedded cluster with several listeners, each with its own security.

use std::time::Duration;

use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, Producer, ProducerConfig, Record,
    config::OffsetReset,
    error::ConnectionProblem,
    security::{Mechanism, SecurityConfig, SecurityProtocol},
};
use curtail_cluster::{Cluster, User};

use crate::common::Backend;

const LIMIT: Duration = Duration::from_secs(60);

/// Returns the brokers' addresses as the cluster tells them to this client.
async fn told(admin: &Admin) -> Vec<String> {
    let cluster = admin.describe_cluster().await.unwrap();
    let mut brokers: Vec<String> =
        cluster.brokers.iter().map(|node| format!("{}:{}", node.host, node.port)).collect();
    brokers.sort();
    brokers
}

fn servers(cluster: &Cluster, listener: &str) -> Vec<String> {
    let servers = cluster.bootstrap_of(listener).unwrap();
    let mut servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
    servers.sort();
    servers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_goes_in_over_sasl_ssl_and_out_in_plaintext() {
    let backend = Backend::embedded_with(3, |config| {
        config.security.users = vec![User::new("alice", "secret")];
        for (name, value) in [
            ("listeners", "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0"),
            ("advertised.listeners", "INTERNAL://127.0.0.1:0,EXTERNAL://localhost:0"),
            ("listener.security.protocol.map", "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL"),
        ] {
            config.set(name, value).unwrap();
        }
    });
    let backend = backend.await;
    // Every broker leads partitions, so that clients go to all of them.
    backend.create_topic("t", 12, 3).await;
    let Backend::Embedded(cluster) = &backend else { panic!("it is the embedded cluster") };
    let authority = cluster.ca_file().unwrap();
    let security = SecurityConfig::sasl_ssl(Mechanism::ScramSha256, "alice", "secret")
        .truststore(authority, None);
    let external = cluster.bootstrap_of("EXTERNAL").unwrap();
    let run = async {
        let config = ProducerConfig::new(external.clone()).security(security.clone());
        let producer = Producer::new(config).unwrap();
        for partition in 0..12 {
            let record = Record::to("t").partition(partition).value("x");
            producer.send(record).await.unwrap().await.unwrap();
        }
        producer.close().await.unwrap();
        let config = ConsumerConfig::new(cluster.bootstrap())
            .group_id("g")
            .auto_offset_reset(OffsetReset::Earliest);
        let mut consumer = Consumer::new(config).unwrap();
        consumer.subscribe(["t"]).unwrap();
        let mut read = 0;
        while read < 12 {
            read += consumer.poll(Duration::from_secs(1)).await.unwrap().into_iter().count();
        }
        consumer.close().await;
        let inside = Admin::new(AdminConfig::new(cluster.bootstrap())).unwrap();
        assert_eq!(told(&inside).await, servers(cluster, "INTERNAL"));
        let outside = Admin::new(AdminConfig::new(external.clone()).security(security)).unwrap();
        let brokers = told(&outside).await;
        assert_eq!(brokers, servers(cluster, "EXTERNAL"));
        assert!(brokers.iter().all(|broker| broker.starts_with("localhost:")), "{brokers:?}");
    };
    tokio::time::timeout(LIMIT, run).await.expect("it ends in time");
}

#[tokio::test]
async fn missing_token_is_neither_blamed_on_the_broker_nor_waits_for_it() {
    for protocol in [SecurityProtocol::SaslPlaintext, SecurityProtocol::SaslSsl] {
        let backend = Backend::embedded_with(1, |config| {
            let listeners = format!("{}://127.0.0.1:0", protocol.name());
            for (name, value) in
                [("listeners", &*listeners), ("sasl.enabled.mechanisms", "OAUTHBEARER")]
            {
                config.set(name, value).unwrap();
            }
        });
        let backend = backend.await;
        let Backend::Embedded(cluster) = &backend else { panic!("it is the embedded cluster") };
        let no_token = || async { Err::<_, String>("the provider is down".into()) };
        let mut security = SecurityConfig::oauth_bearer(no_token);
        security.protocol = protocol;
        if let Some(authority) = cluster.ca_file() {
            security = security.truststore(authority, None);
        }
        let config = ProducerConfig::new(cluster.bootstrap())
            .security(security)
            .connection_setup_timeout(LIMIT);
        let producer = Producer::new(config).unwrap();
        // The broker sends nothing. A wait for it would end with `connection_setup_timeout`.
        let connected = tokio::time::timeout(LIMIT / 2, producer.connect()).await.unwrap();
        let Err(Error::Unreachable { last: Some(last), .. }) = connected else {
            panic!("{connected:?}")
        };
        let Error::Connection { reason, problem, .. } = &*last else { panic!("{last:?}") };
        assert_eq!(*problem, ConnectionProblem::NoToken);
        assert_eq!(&**reason, "no OAUTHBEARER token: the provider is down");
    }
}
