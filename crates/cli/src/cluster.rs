//! `curtail cluster`.

mod sources;
#[cfg(test)]
mod tests;
mod users;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use clap::{Args, Subcommand};
use curtail_cluster::{
    ClientAuth, ClientFile, Cluster, ClusterConfig, Host, Listener, ListenerAddress, Listeners,
    Resize, Security, SecurityProtocol, Storage,
};
use curtail_net::Env;
use serde::Serialize;
use tokio::runtime::Builder;

use crate::{
    admin::brokers,
    control::{self, Control, Target},
    ending::Ending,
    failure::Failure,
    output,
    settings::{Property, property},
};
use sources::{Given, Origin};
use users::{Secret, secret};

/// Arguments of `curtail cluster`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Number of brokers [default: the number stored in --data, 1 with --env, or 3].
    #[arg(long, value_name = "N")]
    brokers: Option<u32>,
    /// Port of the first broker; the others take the next ones. 0 lets the system choose all ports [default: 9092, or 0
    /// with --ephemeral].
    #[arg(long)]
    port: Option<u16>,
    /// Address or host name to listen on [default: loopback, so that only this machine can connect].
    #[arg(long, value_name = "HOST", value_parser = host)]
    listen: Option<Host>,
    /// Address or host name advertised to clients (advertised.listeners) [default: the one to listen on].
    #[arg(long, value_name = "HOST", value_parser = host)]
    advertise: Option<Host>,
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
    /// A server.properties of Apache Kafka. Settings that have no effect here, such as num.io.threads, are accepted and
    /// listed. Each further broker listens on the next port; a semicolon in listeners and advertised.listeners begins
    /// the listeners of the next broker instead.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read server properties from environment variables, as Kafka's images do: KAFKA_NUM_PARTITIONS is num.partitions.
    /// They override --config. CLUSTER_ID is the id of a new cluster.
    #[arg(long)]
    env: bool,
    /// For images of containers: unless listeners are given, listen on every address and advertise localhost, whose ports
    /// the container publishes.
    #[arg(long)]
    container: bool,
    /// A broker property by Kafka's name, for example min.insync.replicas=2. May be given several times. It overrides
    /// --config and --env.
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
    /// Print one line of JSON instead of the addresses: bootstrap_servers, listeners if there are several, control, pid.
    #[arg(long)]
    json: bool,
    /// Print a line for each request to standard error.
    #[arg(long)]
    trace: bool,
}

/// Subcommands of `curtail cluster`.
#[derive(Debug, Subcommand)]
enum Command {
    /// Prints the id, the controller and the live brokers of a running cluster.
    Describe(brokers::Show),
}

/// Port of the first broker.
const DEFAULT_PORT: u16 = 9092;

/// The line of `--json`.
#[derive(Serialize)]
struct Started {
    /// Of the first listener.
    bootstrap_servers: String,
    /// The bootstrap servers of each listener, if there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    listeners: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<String>,
    pid: u32,
}

/// Number of brokers of a new cluster, unless the environment describes the one node of an image.
const DEFAULT_BROKERS: u32 = 3;

/// Three replicas, or the number of brokers if that is less.
pub(crate) fn default_replicas(brokers: u32) -> i16 {
    brokers.min(3) as i16
}

/// An address or a host name for `--listen` and `--advertise`.
fn host(text: &str) -> Result<Host, String> {
    match text.parse() {
        Ok(Host::Every) => Err("expected a host name or an IP address".to_owned()),
        Ok(host) => Ok(host),
        Err(error) => Err(error.to_string()),
    }
}

/// The settings of a cluster.
#[derive(Debug)]
struct Prepared {
    config: ClusterConfig,
    /// Properties of the file and of the environment without effect, with what to use instead.
    without_effect: Vec<String>,
}

impl Arguments {
    /// The number of brokers: as requested, as stored in `--data`, as many as `listeners` has lists
    /// for, or the default.
    fn brokers(&self, given: &[Given]) -> u32 {
        let before = || self.data.as_deref().and_then(curtail_cluster::brokers_of);
        let lists = || {
            let listeners = given.iter().rfind(|given| given.name == LISTENERS)?;
            let brokers = listeners.value.parse::<Listeners>().ok()?.brokers()?;
            u32::try_from(brokers).ok()
        };
        let default = if self.env { 1 } else { DEFAULT_BROKERS };
        self.brokers.or_else(before).or_else(lists).unwrap_or(default)
    }

    /// All properties in force. Flags override the environment, which overrides the file.
    fn given(&self) -> Result<Vec<Given>, Failure> {
        let mut given = match &self.config {
            Some(path) => sources::file(path)?,
            None => Vec::new(),
        };
        if self.env {
            given.extend(sources::environment(std::env::vars_os())?);
        }
        let flag = |name: &str, value| Given { name: name.to_owned(), value, origin: Origin::Flag };
        given.extend(self.partitions.map(|n| flag("num.partitions", n.to_string())));
        given.extend(
            self.replication_factor.map(|n| flag("default.replication.factor", n.to_string())),
        );
        let flags = self.properties.iter();
        given.extend(flags.map(|Property { name, value }| flag(name, value.clone())));
        let mut given = sources::in_force(given);
        if self.env {
            given.extend(sources::opened_as_advertised(&given));
        }
        Ok(given)
    }

    fn prepare(&self) -> Result<Prepared, Failure> {
        let given = self.given()?;
        let brokers = self.brokers(&given);
        let mut config = ClusterConfig {
            brokers,
            default_replication_factor: default_replicas(brokers),
            resize: if self.resize { Resize::Allow } else { Resize::Refuse },
            ..ClusterConfig::default()
        };
        self.place(&mut config, &given)?;
        if self.env {
            config.cluster_id = sources::cluster_id(std::env::var_os)?;
        }
        if let Some(directory) = &self.data {
            config.storage = Storage::Dir(directory.clone());
        }
        let without_effect = sources::apply(&mut config, &given, self.data.is_some())?;
        config.security.users = users::all(&self.users, self.user_file.as_deref())?;
        self.check_reach(&config, &given)?;
        control::check_reach(self.control(), self.insecure, "kill brokers")?;
        Ok(Prepared { config, without_effect })
    }

    /// Refuses to open an insecure cluster to a network without `--insecure`.
    fn check_reach(&self, config: &ClusterConfig, given: &[Given]) -> Result<(), Failure> {
        for Listener { name, protocol, host, .. } in open_listeners(config)? {
            let Some(risk) = risk(&config.security, protocol).filter(|_| !self.insecure) else {
                continue;
            };
            // A flag would contradict the properties.
            let advice = match given.iter().any(is_placing) {
                true => format!(
                    "set {name}:SASL_SSL in listener.security.protocol.map with --user-file, listen on localhost,"
                ),
                false => "use --security-protocol SASL_SSL with --user-file,".to_owned(),
            };
            return Err(Failure::new(format!(
                "listening on {} with {}: {risk}; {advice} or add --insecure",
                shown(&host),
                protocol.name()
            )));
        }
        Ok(())
    }

    /// The address of the control endpoint, if there is one.
    fn control(&self) -> Option<SocketAddr> {
        let free = || SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        self.control.or_else(|| self.ephemeral.then(free))
    }

    /// Sets the listener of the flags, which is there unless a property has others.
    fn place(&self, config: &mut ClusterConfig, given: &[Given]) -> Result<(), Failure> {
        let flags = [
            ("--listen", self.listen.is_some()),
            ("--advertise", self.advertise.is_some()),
            ("--port", self.port.is_some()),
            ("--security-protocol", self.security_protocol.is_some()),
        ];
        let flag = flags.iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag);
        let placing = given.iter().find(|given| is_placing(given));
        if let (Some(flag), Some(given)) = (flag, placing) {
            return Err(Failure::new(format!(
                "{flag} and {} both say where clients connect; use one of them",
                given.shown()
            )));
        }
        if let Some(host) = self.advertise.as_ref().filter(|host| host.is_unspecified()) {
            return Err(Failure::new(format!(
                "--advertise {host}: clients cannot connect to this address; set the one that they connect to"
            )));
        }
        if let (Some(host), None) = (&self.listen, &self.advertise)
            && host.is_unspecified()
        {
            return Err(Failure::new(format!(
                "--listen {host} means every address of this machine; set the one that clients connect to with \
                 --advertise"
            )));
        }
        let protocol = match &self.security_protocol {
            Some(name) => SecurityProtocol::by_name(name).ok_or_else(|| {
                Failure::new(format!(
                    "--security-protocol {name}: expected PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"
                ))
            })?,
            None => SecurityProtocol::Plaintext,
        };
        let port = self.port.unwrap_or(if self.ephemeral { 0 } else { DEFAULT_PORT });
        let listener = |host, port| {
            Listeners::From(vec![ListenerAddress { name: protocol.into(), host, port }])
        };
        let (host, advertised) = match (&self.listen, &self.advertise) {
            (None, advertised) if self.container && placing.is_none() => {
                let localhost = || Host::Name("localhost".into());
                (Host::Every, Some(advertised.clone().unwrap_or_else(localhost)))
            }
            (None, None) => (Host::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)), None),
            (None, Some(advertised)) => (advertised.clone(), Some(advertised.clone())),
            (Some(host), advertised) => (host.clone(), advertised.clone()),
        };
        config.listeners = listener(host, port);
        // Port 0 is the one that the broker listens on.
        config.advertised_listeners = advertised.map(|host| listener(host, 0));
        Ok(())
    }
}

/// Names of the properties that place listeners.
const LISTENERS: &str = "listeners";
const ADVERTISED: &str = "advertised.listeners";

fn is_placing(given: &Given) -> bool {
    [LISTENERS, ADVERTISED].contains(&given.name.trim())
}

/// The text for a host in a sentence.
fn shown(host: &Host) -> String {
    match host {
        Host::Every => "every address".to_owned(),
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.to_string(),
    }
}

/// Returns the listeners that other machines can reach, those of equal hosts and protocols once.
fn open_listeners(config: &ClusterConfig) -> Result<Vec<Listener>, Failure> {
    let mut open: Vec<Listener> = Vec::new();
    for id in config.broker_ids() {
        for listener in config.listeners_of(id)? {
            let is_new = !open
                .iter()
                .any(|known| (&known.host, known.protocol) == (&listener.host, listener.protocol));
            if is_new && listener.is_beyond_loopback() {
                open.push(listener);
            }
        }
    }
    Ok(open)
}

impl Arguments {
    /// Prints the settings that clients need, and who can connect.
    fn explain(
        &self,
        cluster: &Cluster,
        files: io::Result<Vec<ClientFile>>,
        security: &Security,
        open: &[Listener],
    ) {
        if !self.users.is_empty() {
            output::note(
                "every process of this machine can read the passwords of --user; use --user-file FILE or CURTAIL_USERS",
            );
        }
        let files = files.unwrap_or_else(|error| {
            output::note(format_args!("cannot write files of client properties: {error}"));
            Vec::new()
        });
        if files.is_empty() {
            explain_properties(cluster);
        }
        let mut secured: Vec<&String> = files.iter().map(|file| &file.listener).collect();
        secured.dedup();
        let several = secured.len() > 1;
        for ClientFile { listener, user, path, .. } in &files {
            let of = user.as_ref().map(|user| format!(" as user '{user}'")).unwrap_or_default();
            let through = if several { format!(" through {listener}") } else { String::new() };
            let path = path.display();
            output::note(format_args!("clients connect{of}{through} with --command-config {path}"));
        }
        for listener in open {
            let risk = risk(security, listener.protocol);
            let who = risk.unwrap_or("users can connect from other machines");
            let host = shown(&listener.host);
            output::note(format_args!("listening on {host}, not only for this machine: {who}"));
        }
    }
}

/// Prints the properties that clients need where no file has them.
fn explain_properties(cluster: &Cluster) {
    for Listener { name, protocol, .. } in cluster.listeners() {
        if protocol != SecurityProtocol::Plaintext {
            let protocol = protocol.name();
            output::note(format_args!("clients of {name} need security.protocol={protocol}"));
        }
    }
    if let Some(file) = cluster.ca_file() {
        let file = file.display();
        output::note(format_args!(
            "clients need ssl.truststore.type=PEM and ssl.truststore.location={file}"
        ));
    }
}

/// The risk of a listener that offers less than an encrypted login.
fn risk(security: &Security, protocol: SecurityProtocol) -> Option<&'static str> {
    match protocol {
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
    let mut listeners = BTreeMap::new();
    for Listener { name, .. } in cluster.listeners() {
        if let Some(servers) = cluster.bootstrap_of(name.as_str()) {
            listeners.insert(name.to_string(), servers);
        }
    }
    if listeners.len() == 1 {
        listeners.clear();
    }
    if arguments.json {
        let started = Started { bootstrap_servers, listeners, control, pid: std::process::id() };
        return output::line(serde_json::to_string(&started).map_err(Failure::new)?);
    }
    output::line(bootstrap_servers)?;
    for (name, servers) in listeners {
        output::note(format_args!("{name}: {servers}"));
    }
    if let Some(control) = control {
        output::note(format_args!("`curtail fault --control {control} list` prints the faults"));
    }
    Ok(())
}

/// Runs the cluster until Ctrl-C or SIGTERM, and with `--ephemeral` until its parent ends.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Command::Describe(show)) = &arguments.command {
        return brokers::describe(show);
    }
    let Prepared { config, without_effect } = arguments.prepare()?;
    let threads = |error| Failure::new(format!("cannot start the cluster's threads: {error}"));
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(threads)?;
    runtime.block_on(async {
        // Installed before the address is printed: a script may stop the cluster as soon as it has the
        // address.
        let ending = Ending::watch(arguments.ephemeral).map_err(threads)?;
        let security = config.security.clone();
        let (brokers, open) = (config.brokers, open_listeners(&config)?);
        let control = Control::open(arguments.control(), arguments.trace).await?;
        let cluster = Arc::new(Cluster::start(config, Env::real()).await?);
        if let Some(observer) = control.observer() {
            cluster.observe(observer);
        }
        let url = control.url();
        let service = control.serve(Target::Cluster(Arc::clone(&cluster)));
        // A program that has read the addresses may open them at once.
        let files = cluster.write_client_files();
        announce(arguments, &cluster, url)?;
        output::note(match brokers {
            1 => "1 broker is running; Ctrl-C stops it".to_owned(),
            count => format!("{count} brokers are running; Ctrl-C stops them"),
        });
        if !without_effect.is_empty() {
            output::note(format_args!("without effect here: {}", without_effect.join(", ")));
        }
        if !arguments.env && !arguments.ephemeral {
            sources::remind_of_environment(std::env::vars_os());
        }
        arguments.explain(&cluster, files, &security, &open);
        ending.come().await;
        let requests = service.stop().await;
        if let Some(cluster) = Arc::into_inner(cluster) {
            cluster.shutdown().await;
        }
        requests.written().await;
        output::note("stopped");
        Ok(())
    })
}
