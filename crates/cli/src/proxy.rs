//! `curtail proxy`.

#[cfg(test)]
mod tests;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;
use curtail::{AdminConfig, error::Report, security::connect_tls};
use curtail_cluster::proxy::{Proxy, ProxyConfig, ProxyError, Secure};
use curtail_net::{BoxFuture, Env, Socket};
use serde::Serialize;
use tokio::runtime::Builder;

use crate::{
    control::{self, Control, Target},
    ending::Ending,
    failure::Failure,
    output,
    settings::{ClientArguments, Property, property},
};

/// Arguments of `curtail proxy`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Bootstrap servers of the cluster: HOST:PORT, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    to: String,
    /// Address of the bootstrap port: PORT or ADDRESS:PORT. Broker 0 has the next port, broker 1 the one after it, as far as
    /// they are free. Port 0 lets the system choose all ports [default: 127.0.0.1:19092, or port 0 with --ephemeral].
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = control::address)]
    listen: Option<SocketAddr>,
    /// Host name or IP address that clients connect to [default: the address to listen on].
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// A file of client properties with security.protocol and ssl.*, for TLS to the cluster. Clients connect to the proxy
    /// without TLS. Logins (SASL) pass through it, and sasl.* has no effect here.
    #[arg(short = 'F', long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// A client property, as in --command-config. May be given several times.
    #[arg(short = 'X', long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<Property>,
    /// Serve faults, health and metrics over HTTP on this PORT, or on ADDRESS:PORT [default: none, or a free port with
    /// --ephemeral]. An address beyond loopback needs --insecure.
    #[arg(long, value_name = "PORT", value_parser = control::address)]
    control: Option<SocketAddr>,
    /// Allow connections from other machines, which are not encrypted.
    #[arg(long)]
    insecure: bool,
    /// For programs that start the proxy: free ports, a control endpoint. The proxy ends with the process that started it,
    /// and when its standard input, if that is a pipe, is closed.
    #[arg(long)]
    ephemeral: bool,
    /// Print one line of JSON instead of the address: bootstrap_servers, control, pid.
    #[arg(long)]
    json: bool,
    /// Print a line for each response, and for each connection that the proxy closes, to standard error.
    #[arg(long)]
    trace: bool,
}

const EXAMPLES: &str = "\
Examples:
  curtail proxy --to kafka:9092 --control 8642
  curtail consume -b 127.0.0.1:19092 -t orders
  curtail fault add delay --api Fetch --time 'exponential(20ms)' --control 8642
  curtail fault add error --api Produce --topic orders --code NOT_LEADER_OR_FOLLOWER --times 3 --control 8642
  curtail proxy --to kafka:9093 --command-config ssl.properties
  curtail proxy --to kafka:9092 --ephemeral --json";

/// The bootstrap port.
const DEFAULT_PORT: u16 = 19_092;

/// The line of `--json`.
#[derive(Serialize)]
struct Started {
    bootstrap_servers: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<String>,
    pid: u32,
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Arguments {
    fn listen(&self) -> SocketAddr {
        let port = if self.ephemeral { 0 } else { DEFAULT_PORT };
        self.listen.unwrap_or_else(|| loopback(port))
    }

    fn control(&self) -> Option<SocketAddr> {
        self.control.or_else(|| self.ephemeral.then(|| loopback(0)))
    }

    fn config(&self) -> Result<ProxyConfig, Failure> {
        let to_cluster = |error| Failure::new(format!("--to: {error}"));
        let mut config = ProxyConfig::to(&self.to).map_err(to_cluster)?;
        config.listen = self.listen();
        config.advertise = self.advertised()?;
        config.secure = self.secure()?;
        self.check_reach(config.listen)?;
        control::check_reach(self.control(), self.insecure, "inject faults")?;
        Ok(config)
    }

    /// The advertised host, if it is not the address to listen on.
    fn advertised(&self) -> Result<Option<String>, Failure> {
        let listen = self.listen().ip();
        match &self.advertise {
            Some(host) if host.is_empty() || host.contains(['/', ' ']) => {
                Err(Failure::new(format!(
                    "--advertise '{host}' is no host; use a name or an IP address, without a port"
                )))
            }
            Some(host) if host.parse::<IpAddr>().is_err() && host.contains(':') => {
                Err(Failure::new(format!(
                    "--advertise {host}: use a name or an IP address, without a port"
                )))
            }
            None if listen.is_unspecified() => Err(Failure::new(format!(
                "--listen {listen} means every address of this machine; set the one that clients connect to with --advertise"
            ))),
            host => Ok(host.clone()),
        }
    }

    fn check_reach(&self, listen: SocketAddr) -> Result<(), Failure> {
        match listen.ip().is_loopback() || self.insecure {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "--listen {listen}: other machines could connect, and their records and passwords travel unencrypted; use a \
                 loopback address, or add --insecure"
            ))),
        }
    }

    /// TLS, if the properties ask for it.
    fn secure(&self) -> Result<Option<Arc<dyn Secure>>, Failure> {
        if self.command_config.is_none() && self.properties.is_empty() {
            return Ok(None);
        }
        let client = ClientArguments {
            bootstrap_server: Some(self.to.clone()),
            properties: self.properties.clone(),
            command_config: self.command_config.clone(),
            profile: None,
        };
        // The cluster is that of --to, not of CURTAIL_PROFILE.
        let config: AdminConfig = client.config_with(None, &[], &[])?;
        let secured = config.get_security().protocol.has_tls();
        Ok(secured.then(|| Arc::new(Tls(config)) as Arc<dyn Secure>))
    }
}

/// TLS as a client of the cluster has it.
struct Tls(AdminConfig);

impl Secure for Tls {
    fn secure<'a>(
        &'a self,
        socket: Box<dyn Socket>,
        host: &'a str,
    ) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let secured = connect_tls(self.0.get_common(), socket, host).await;
            secured.map_err(|error| io::Error::other(error.report().to_string()))
        })
    }
}

/// The failure, with advice if the cluster may need TLS.
fn failure(error: &ProxyError) -> Failure {
    let text = Report::new(error).to_string();
    match error {
        ProxyError::NotKafka { source, .. } if source.is_tls() => {
            Failure::new(format!("{text}; set security.protocol=SSL in --command-config FILE"))
        }
        ProxyError::Unreachable { .. } => {
            Failure::new(format!("{text}; start the cluster first, or correct --to"))
        }
        ProxyError::Listen { .. } => {
            Failure::new(format!("{text}; choose another port with --listen"))
        }
        _ => Failure::new(text),
    }
}

/// Runs the proxy until Ctrl-C or SIGTERM, and with `--ephemeral` until its parent ends.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = arguments.config()?;
    let threads = |error| Failure::new(format!("cannot start the proxy: {error}"));
    // One thread: a request passes without a switch of threads.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(threads)?;
    runtime.block_on(async {
        let ending = Ending::watch(arguments.ephemeral).map_err(threads)?;
        let control = Control::open(arguments.control(), arguments.trace).await?;
        let proxy = Proxy::start(config, Env::real()).await.map_err(|error| failure(&error))?;
        let proxy = Arc::new(proxy);
        if let Some(observer) = control.observer() {
            proxy.observe(observer);
        }
        let url = control.url();
        let service = control.serve(Target::Proxy(Arc::clone(&proxy)));
        announce(arguments, &proxy, url)?;
        ending.come().await;
        service.stop().await.written().await;
        output::note("stopped");
        Ok(())
    })
}

/// Prints the address to standard output.
fn announce(arguments: &Arguments, proxy: &Proxy, control: Option<String>) -> Result<(), Failure> {
    let bootstrap_servers = proxy.bootstrap();
    match arguments.json {
        true => {
            let started =
                Started { bootstrap_servers, control: control.clone(), pid: std::process::id() };
            output::line(serde_json::to_string(&started).map_err(Failure::new)?)?;
        }
        false => output::line(bootstrap_servers)?,
    }
    if let Some(control) = control.filter(|_| !arguments.json) {
        output::note(format_args!("`curtail fault --control {control} list` prints the faults"));
    }
    output::note(match proxy.brokers().len() {
        0 => "the cluster has named no broker yet; its brokers become known with the first client that logs in"
            .to_owned(),
        count => format!(
            "a proxy for {} of {} is running; Ctrl-C stops it",
            output::count(count, "broker"),
            arguments.to
        ),
    });
    Ok(())
}
