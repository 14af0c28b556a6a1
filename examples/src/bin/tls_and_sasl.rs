//! An encrypted connection with a password (SASL_SSL, SCRAM-SHA-512), and what a wrong password reports.
#![allow(clippy::print_stdout)]

use std::error::Error;

use curtail::{
    Env, Producer, ProducerConfig, Record,
    security::{Mechanism, SecurityConfig},
};
use curtail_cluster::{
    Cluster, ClusterConfig,
    config::{Listeners, SecurityProtocol, User},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The cluster creates its certificates.
    let mut config = ClusterConfig {
        listeners: Listeners::local(SecurityProtocol::SaslSsl),
        ..ClusterConfig::default()
    };
    config.security.users = vec![User::new("alice", "correct horse")];
    let cluster = Cluster::start(config, Env::real()).await?;
    let authority = cluster.ca_file().ok_or("the cluster has no certificates")?;

    let producer = |password: &str| {
        let security = SecurityConfig::sasl_ssl(Mechanism::ScramSha512, "alice", password)
            .truststore(authority, None);
        Producer::new(ProducerConfig::new(cluster.bootstrap()).security(security))
    };
    let right = producer("correct horse")?;
    let written = right.send(Record::to("payments").value("42.00")).await?.await?;
    println!("written at offset {:?} over TLS", written.offset);
    right.close().await?;

    match producer("wrong")?.connect().await {
        Ok(()) => return Err("a wrong password was accepted".into()),
        Err(error) => println!("refused: {}", error.report()),
    }
    Ok(())
}
