//! `curtail cluster`.

mod parent;
#[cfg(test)]
mod tests;
mod users;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;
use curtail_cluster::{
    ClientAuth, ClientFile, Cluster, ClusterConfig, Observer, Ports, Resize, Security,
    SecurityProtocol, Storage,
};
use curtail_net::Env;
use serde::Serialize;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use crate::{
    control::{self, Endpoint, Requests},
    failure::Failure,
    output,
    settings::{Property, property},
};
use users::{Secret, secret};

/// Arguments of `curtail cluster`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Number of brokers [default: the number stored in --data, or 3].
    #[arg(long, value_name = "N")]
    brokers: Option<u32>,
    /// Port of the first broker; the others take the next ones. 0 lets the system choose all ports [default: 9092, or 0
    /// with --ephemeral].
    #[arg(long)]
    port: Option<u16>,
    /// IP address to listen on [default: loopback, so that only this machine can connect].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// IP address advertised to clients (advertised.listeners) [default: the address to listen on].
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<IpAddr>,
    /// Security protocol of clients: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL [default: PLAINTEXT].
    #[arg(long, value_name = "PROTOCOL")]
    security_protocol: Option<String>,
    /// Allow connections from other machines without authentication or without encryption.
    #[arg(long)]
    insecure: bool,
    /// A file with one SASL user per line: NAME:PASSWORD for every mechanism, or NAME:PASSWORD:MECHANISM for one of PLAIN,
    /// SCRAM-SHA-256 and SCRAM-SHA-512. Empty lines and lines that begin with # are ignored. The environment variable
    /// CURTAIL_USERS has the same format.
    #[arg(long, value_name = "FILE")]
    user_file: Option<PathBuf>,
    /// A SASL user, as in a line of --user-file. May be given several times. Visible to every process of this machine.
    #[arg(long = "user", value_name = "NAME:PASSWORD", value_parser = secret)]
    users: Vec<Secret>,
    /// Directory of the logs, kept for the next run [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Use --data with another number of --brokers than before. New brokers begin empty; every partition must keep an
    /// in-sync replica on a remaining broker.
    #[arg(long, requires_all = ["data", "brokers"])]
    resize: bool,
    /// Partitions of a topic created without a number (num.partitions) [default: 1].
    #[arg(long, value_name = "N")]
    partitions: Option<i32>,
    /// Replicas of a topic created without a number (default.replication.factor) [default: 3, or the number of brokers if
    /// that is less].
    #[arg(long, value_name = "N")]
    replication_factor: Option<i16>,
    /// A broker property by Kafka's name, for example min.insync.replicas=2. May be given several times.
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<Property>,
    /// Serve faults, health and metrics over HTTP on this PORT, or on ADDRESS:PORT [default: none, or a free port with
    /// --ephemeral]. An address beyond loopback needs --insecure: anyone who reaches it can kill brokers.
    #[arg(long, value_name = "PORT", value_parser = control::address)]
    control: Option<SocketAddr>,
    /// For programs that start the cluster: temporary data, free ports, a control endpoint. The cluster ends with the
    /// process that started it, and when its standard input, if that is a pipe, is closed.
    #[arg(long, conflicts_with = "data")]
    ephemeral: bool,
    /// Print one line of JSON instead of the addresses: bootstrap_servers, control, pid.
    #[arg(long)]
    json: bool,
    /// Print a line for each request to standard error.
    #[arg(long)]
    trace: bool,
}

/// Port of the first broker.
const DEFAULT_PORT: u16 = 9092;

/// The line of `--json`.
#[derive(Serialize)]
struct Started {
    bootstrap_servers: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<String>,
    pid: u32,
}

/// Number of brokers of a new cluster.
const DEFAULT_BROKERS: u32 = 3;

/// Three replicas, or the number of brokers if that is less.
pub(crate) fn default_replicas(brokers: u32) -> i16 {
    brokers.min(3) as i16
}

impl Arguments {
    /// The number of brokers: as requested, as stored in `--data`, or the default.
    fn brokers(&self) -> u32 {
        let before = || self.data.as_deref().and_then(curtail_cluster::brokers_of);
        self.brokers.or_else(before).unwrap_or(DEFAULT_BROKERS)
    }

    fn config(&self) -> Result<ClusterConfig, Failure> {
        let brokers = self.brokers();
        let mut config = ClusterConfig {
            brokers,
            default_replication_factor: default_replicas(brokers),
            resize: if self.resize { Resize::Allow } else { Resize::Refuse },
            ..ClusterConfig::default()
        };
        let default_port = if self.ephemeral { 0 } else { DEFAULT_PORT };
        match self.port.unwrap_or(default_port) {
            0 => {}
            port => config.ports = Ports::From(port),
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
        config.security.users = users::all(&self.users, self.user_file.as_deref())?;
        self.place(&mut config)?;
        for Property { name, value } in &self.properties {
            config.set(name, value)?;
        }
        self.check_reach(&config)?;
        self.check_control()?;
        Ok(config)
    }

    /// Refuses to open an insecure cluster to a network without `--insecure`.
    fn check_reach(&self, config: &ClusterConfig) -> Result<(), Failure> {
        match (config.beyond_loopback(), risk(&config.security)) {
            (Some(address), Some(risk)) if !self.insecure => Err(Failure::new(format!(
                "listening on {address} with {}: {risk}; use --security-protocol SASL_SSL with --user-file, or add --insecure",
                config.security.protocol.name()
            ))),
            _ => Ok(()),
        }
    }

    /// The address of the control endpoint, if there is one.
    fn control(&self) -> Option<SocketAddr> {
        let free = || SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        self.control.or_else(|| self.ephemeral.then(free))
    }

    /// Refuses to open the control endpoint to a network without `--insecure`.
    fn check_control(&self) -> Result<(), Failure> {
        match self.control() {
            Some(addr) if !addr.ip().is_loopback() && !self.insecure => Err(Failure::new(format!(
                "--control {addr}: anyone who reaches it can kill brokers; use a loopback address, or add --insecure"
            ))),
            _ => Ok(()),
        }
    }

    /// Sets the listening address and the advertised one.
    fn place(&self, config: &mut ClusterConfig) -> Result<(), Failure> {
        config.bind = self.listen;
        match (self.listen, self.advertise) {
            (_, Some(address)) if !address.is_unspecified() => config.host = address,
            (Some(address), None) if !address.is_unspecified() => config.host = address,
            (None, None) => {}
            (_, Some(address)) => {
                return Err(Failure::new(format!(
                    "--advertise {address}: clients cannot connect to this address; set the one that they connect to"
                )));
            }
            (Some(address), None) => {
                return Err(Failure::new(format!(
                    "--listen {address} means every address of this machine; set the one that clients connect to \
                     with --advertise"
                )));
            }
        }
        Ok(())
    }
}

impl Arguments {
    /// Prints the settings that clients need, and who can connect.
    fn explain(&self, cluster: &Cluster, security: &Security, beyond_loopback: Option<IpAddr>) {
        if !self.users.is_empty() {
            output::note(
                "every process of this machine can read the passwords of --user; use --user-file FILE or CURTAIL_USERS",
            );
        }
        let files = cluster.write_client_files().unwrap_or_else(|error| {
            output::note(format_args!("cannot write files of client properties: {error}"));
            Vec::new()
        });
        if files.is_empty() {
            explain_properties(cluster, security.protocol);
        }
        for ClientFile { user, path, .. } in files {
            let of = user.map(|user| format!(" as user '{user}'")).unwrap_or_default();
            let path = path.display();
            output::note(format_args!("clients connect{of} with --command-config {path}"));
        }
        if let Some(address) = beyond_loopback {
            let who = risk(security).unwrap_or("users can connect from other machines");
            output::note(format_args!("listening on {address}, not only for this machine: {who}"));
        }
    }
}

/// Prints the properties that clients need where no file has them.
fn explain_properties(cluster: &Cluster, protocol: SecurityProtocol) {
    if protocol != SecurityProtocol::Plaintext {
        output::note(format_args!("clients need security.protocol={}", protocol.name()));
    }
    if let Some(file) = cluster.ca_file() {
        let file = file.display();
        output::note(format_args!(
            "clients need ssl.truststore.type=PEM and ssl.truststore.location={file}"
        ));
    }
}

/// The risk of a listener that offers less than an encrypted login.
fn risk(security: &Security) -> Option<&'static str> {
    match security.protocol {
        SecurityProtocol::Plaintext => Some("anyone who reaches it can read and write all records"),
        SecurityProtocol::SaslPlaintext => Some("passwords and records travel unencrypted"),
        SecurityProtocol::Ssl if security.client_auth != ClientAuth::Required => {
            Some("anyone who reaches it can connect without proving an identity")
        }
        SecurityProtocol::Ssl | SecurityProtocol::SaslSsl => None,
    }
}

/// Prints the addresses to standard output.
fn announce(
    arguments: &Arguments,
    cluster: &Cluster,
    control: Option<String>,
) -> Result<(), Failure> {
    let bootstrap_servers = cluster.bootstrap();
    if arguments.json {
        let started = Started { bootstrap_servers, control, pid: std::process::id() };
        return output::line(serde_json::to_string(&started).map_err(Failure::new)?);
    }
    output::line(bootstrap_servers)?;
    if let Some(control) = control {
        output::note(format_args!("`curtail fault --control {control} list` prints the faults"));
    }
    Ok(())
}

/// Runs the cluster until Ctrl-C or SIGTERM, and with `--ephemeral` until its parent ends.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = arguments.config()?;
    let threads = |error| Failure::new(format!("cannot start the cluster's threads: {error}"));
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(threads)?;
    runtime.block_on(async {
        // Installed before the address is printed: a script may stop the cluster as soon as it has the
        // address.
        let mut interrupt = signal(SignalKind::interrupt()).map_err(threads)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(threads)?;
        let security = config.security.clone();
        let (brokers, beyond_loopback) = (config.brokers, config.beyond_loopback());
        // Before the start, so that the end of the parent during the start is noticed.
        let orphaned = parent::gone(arguments.ephemeral);
        let endpoint = match arguments.control() {
            Some(addr) => Some(Endpoint::listen(addr).await?),
            None => None,
        };
        let cluster = Arc::new(Cluster::start(config, Env::real()).await?);
        let requests =
            Arc::new(if arguments.trace { Requests::traced() } else { Requests::default() });
        if arguments.trace || endpoint.is_some() {
            cluster.observe(Arc::clone(&requests) as Arc<dyn Observer>);
        }
        let control = endpoint.as_ref().map(|endpoint| format!("http://{}", endpoint.addr));
        let (served, stop) = oneshot::channel();
        let serving = endpoint
            .map(|endpoint| tokio::spawn(endpoint.serve(Arc::clone(&cluster), requests, stop)));
        announce(arguments, &cluster, control)?;
        output::note(match brokers {
            1 => "1 broker is running; Ctrl-C stops it".to_owned(),
            count => format!("{count} brokers are running; Ctrl-C stops them"),
        });
        arguments.explain(&cluster, &security, beyond_loopback);
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = orphaned => {}
        }
        drop(served);
        if let Some(serving) = serving {
            // A panic of the endpoint was printed; the cluster stops nevertheless.
            let _ = serving.await;
        }
        if let Some(cluster) = Arc::into_inner(cluster) {
            cluster.shutdown().await;
        }
        output::note("stopped");
        Ok(())
    })
}
