//! Flags that the perf tools share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use curtail_cluster::ClusterConfig;
use curtail_lab::perf::{Target, Topic};

use crate::{
    cluster::default_replicas,
    failure::Failure,
    profile,
    settings::{BOOTSTRAP, Property, properties, property},
};

/// Format of a client's metrics.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum MetricsFormat {
    /// The table of Kafka's tools.
    Kafka,
    /// Prometheus' text format.
    Prometheus,
}

/// Cluster, topic, and the client's properties.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Brokers to measure: host:port, separated by commas [default: an embedded cluster in this process].
    #[arg(long, value_name = "SERVERS")]
    pub(super) bootstrap_server: Option<String>,
    /// Topic to use. It is not deleted after the run.
    #[arg(long, default_value = "curtail-perf")]
    pub(super) topic: String,
    /// Partitions of the topic, if it is created.
    #[arg(long, value_name = "N")]
    pub(super) partitions: Option<i32>,
    /// Replicas of the topic, if it is created.
    #[arg(long, value_name = "N")]
    pub(super) replication_factor: Option<i16>,
    /// Brokers of the embedded cluster.
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "bootstrap_server")]
    pub(super) brokers: u32,
    /// Properties of the embedded cluster's brokers.
    #[arg(long, value_name = "NAME=VALUE", value_parser = property, num_args = 1.., conflicts_with = "bootstrap_server")]
    pub(super) cluster_property: Vec<Property>,
    /// Client properties by their Java names.
    #[arg(long, visible_alias = "producer-props", value_name = "NAME=VALUE", value_parser = property, num_args = 1..)]
    pub(super) command_property: Vec<Property>,
    /// A file of client properties.
    #[arg(long, visible_aliases = ["producer.config", "consumer.config"], value_name = "FILE")]
    pub(super) command_config: Option<PathBuf>,
    /// A profile with the brokers to measure: the client properties of NAME.properties in ~/.config/curtail, or in curtail
    /// of XDG_CONFIG_HOME.
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<String>,
    /// Write the figures to this file, latencies in microseconds.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// Target of a run, and the client's properties.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) target: Target,
    pub(super) properties: Vec<(String, String)>,
}

impl Common {
    /// The address from the flag, the properties, the file or the profile, in this order; otherwise an embedded cluster.
    pub(super) fn setting(&self) -> Result<Setting, Failure> {
        let profile = profile::given(self.profile.as_deref())?;
        let file = self.command_config.as_deref();
        let mut properties = properties(profile.as_deref(), file, &self.command_property)?;
        let named = properties.iter().rfind(|(name, _)| name == BOOTSTRAP).map(|(_, v)| v.clone());
        properties.retain(|(name, _)| name != BOOTSTRAP);
        let target = match self.bootstrap_server.clone().or(named) {
            Some(servers) => Target::Bootstrap(servers),
            None => Target::Embedded(Box::new(self.cluster()?)),
        };
        Ok(Setting { target, properties })
    }

    fn cluster(&self) -> Result<ClusterConfig, Failure> {
        let mut config = ClusterConfig {
            brokers: self.brokers,
            default_replication_factor: default_replicas(self.brokers),
            ..ClusterConfig::default()
        };
        for Property { name, value } in &self.cluster_property {
            config.set(name, value)?;
        }
        Ok(config)
    }

    /// The topic. In an embedded cluster it is created, with `partitions` by default.
    pub(super) fn topic(&self, target: &Target, partitions: i32) -> Topic {
        let create = match target {
            Target::Embedded(_) => {
                let replicas = default_replicas(self.brokers);
                Some((
                    self.partitions.unwrap_or(partitions),
                    self.replication_factor.unwrap_or(replicas),
                ))
            }
            Target::Bootstrap(_) => {
                let asked = self.partitions.is_some() || self.replication_factor.is_some();
                // -1 leaves it to the brokers.
                asked
                    .then(|| (self.partitions.unwrap_or(-1), self.replication_factor.unwrap_or(-1)))
            }
        };
        Topic { name: self.topic.clone(), create }
    }
}
