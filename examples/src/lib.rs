//! The cluster of the examples: that of the first argument, or an embedded one.

use std::error::Error;

use curtail::Env;
use curtail_cluster::{Cluster, ClusterConfig};

/// A cluster's address. An embedded cluster ends when this is dropped.
pub struct Brokers {
    bootstrap: String,
    _embedded: Option<Cluster>,
}

impl Brokers {
    /// Takes the address from the program's first argument, or starts a broker.
    ///
    /// # Errors
    /// The broker cannot listen.
    pub async fn of_this_program() -> Result<Self, Box<dyn Error>> {
        match std::env::args().nth(1) {
            Some(bootstrap) => Ok(Self { bootstrap, _embedded: None }),
            None => Self::embedded().await,
        }
    }

    /// Starts a broker.
    ///
    /// # Errors
    /// The broker cannot listen.
    pub async fn embedded() -> Result<Self, Box<dyn Error>> {
        let cluster = Cluster::start(ClusterConfig::default(), Env::real()).await?;
        Ok(Self { bootstrap: cluster.bootstrap(), _embedded: Some(cluster) })
    }

    /// `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }
}
