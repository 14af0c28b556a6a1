//! `curtail cluster`.

use std::path::PathBuf;

use clap::Args;
use curtail_cluster::{Cluster, ClusterConfig, Ports, Storage};
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
        for Property { name, value } in &self.properties {
            config.set(name, value)?;
        }
        Ok(config)
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
        let cluster = Cluster::start(config, Env::real()).await?;
        output::line(cluster.bootstrap())?;
        let brokers = arguments.brokers;
        output::note(format_args!("{brokers} brokers run; Ctrl-C stops them"));
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
