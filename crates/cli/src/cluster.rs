//! `curtail cluster`.

#[cfg(test)]
mod tests;

use std::{convert::Infallible, fmt, net::IpAddr, path::PathBuf};

use clap::Args;
use curtail_cluster::{Cluster, ClusterConfig, Ports, Security, SecurityProtocol, Storage, User};
use curtail_net::Env;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use crate::{
    failure::Failure,
    output,
    settings::{Property, property},
};

/// Arguments of `curtail cluster`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Number of brokers.
    #[arg(long, default_value_t = 3)]
    brokers: u32,
    /// Port of the first broker; the others take the next ones. 0 lets the system choose all.
    #[arg(long, default_value_t = 9092)]
    port: u16,
    /// Address to listen on; without this only this machine can connect.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// Address that clients are told to connect to [default: the one listened on].
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<IpAddr>,
    /// What clients speak: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    #[arg(long, value_name = "PROTOCOL")]
    security_protocol: Option<String>,
    /// A user of SASL: NAME:PASSWORD for every mechanism, or NAME:PASSWORD:MECHANISM for PLAIN, SCRAM-SHA-256 or
    /// SCRAM-SHA-512 alone. May be given several times.
    #[arg(long = "user", value_name = "NAME:PASSWORD", value_parser = secret)]
    users: Vec<Secret>,
    /// Directory of the logs, kept for the next run; a temporary one without this.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Partitions of a topic created without a count.
    #[arg(long, value_name = "N")]
    partitions: Option<i32>,
    /// Replicas of a topic created without a count [default: 3, or the number of brokers if that is less].
    #[arg(long, value_name = "N")]
    replication_factor: Option<i16>,
    /// A broker property by Kafka's name, for example min.insync.replicas=2. May be given several times.
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<Property>,
}

/// What must not be printed, not even in a complaint about it.
#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("...")
    }
}

fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret(text.to_owned()))
}

/// Three replicas, or as many as there are brokers.
pub(crate) fn default_replicas(brokers: u32) -> i16 {
    brokers.min(3) as i16
}

impl Arguments {
    fn config(&self) -> Result<ClusterConfig, Failure> {
        let mut config = ClusterConfig {
            brokers: self.brokers,
            default_replication_factor: default_replicas(self.brokers),
            ..ClusterConfig::default()
        };
        if self.port != 0 {
            config.ports = Ports::From(self.port);
        }
        if let Some(directory) = &self.data {
            config.storage = Storage::Dir(directory.clone());
        }
        if let Some(partitions) = self.partitions {
            config.set("num.partitions", &partitions.to_string())?;
        }
        if let Some(replicas) = self.replication_factor {
            config.set("default.replication.factor", &replicas.to_string())?;
        }
        if let Some(protocol) = &self.security_protocol {
            config.set("listener.security.protocol", protocol)?;
        }
        for user in &self.users {
            let user = User::parse(&user.0);
            config
                .security
                .users
                .push(user.map_err(|error| Failure::new(format!("--user: {error}")))?);
        }
        self.place(&mut config)?;
        for Property { name, value } in &self.properties {
            config.set(name, value)?;
        }
        Ok(config)
    }

    /// Where to listen, and what clients are told of it.
    fn place(&self, config: &mut ClusterConfig) -> Result<(), Failure> {
        config.bind = self.listen;
        match (self.listen, self.advertise) {
            (_, Some(address)) if !address.is_unspecified() => config.host = address,
            (Some(address), None) if !address.is_unspecified() => config.host = address,
            (None, None) => {}
            (_, Some(address)) => {
                return Err(Failure::new(format!(
                    "--advertise {address}: no client can connect to that"
                )));
            }
            (Some(address), None) => {
                return Err(Failure::new(format!(
                    "--listen {address} is every address of this machine: say with --advertise which one clients \
                     shall connect to"
                )));
            }
        }
        Ok(())
    }
}

impl Arguments {
    /// Says what clients need, and who can connect.
    fn explain(&self, cluster: &Cluster, security: &Security) {
        let protocol = security.protocol;
        if protocol != SecurityProtocol::Plaintext {
            output::note(format_args!("clients need security.protocol={}", protocol.name()));
        }
        if let Some(file) = cluster.ca_file() {
            let file = file.display();
            output::note(format_args!(
                "clients need ssl.truststore.type=PEM and ssl.truststore.location={file}"
            ));
        }
        if let Some(address) = self.listen.filter(|address| !address.is_loopback()) {
            let who = match protocol {
                SecurityProtocol::Plaintext => "whoever reaches it can read and write everything",
                SecurityProtocol::Ssl => "whoever reaches it can connect",
                _ => "users can connect from other machines",
            };
            output::note(format_args!("listening on {address}, not only for this machine: {who}"));
        }
    }
}

/// Runs the cluster until Ctrl-C or SIGTERM.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = arguments.config()?;
    let threads = |error| Failure::new(format!("cannot start the cluster's threads: {error}"));
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(threads)?;
    runtime.block_on(async {
        // Before the address is printed: whoever reads it may stop the cluster at once.
        let mut interrupt = signal(SignalKind::interrupt()).map_err(threads)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(threads)?;
        let security = config.security.clone();
        let cluster = Cluster::start(config, Env::real()).await?;
        output::line(cluster.bootstrap())?;
        let brokers = arguments.brokers;
        output::note(format_args!("{brokers} brokers run; Ctrl-C stops them"));
        arguments.explain(&cluster, &security);
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        cluster.shutdown().await;
        output::note("stopped");
        Ok(())
    })
}
