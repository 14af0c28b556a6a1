//! What a control endpoint controls: an embedded cluster or a proxy.

use std::sync::Arc;

use curtail_cluster::{ActiveFault, Cluster, FaultError, Injection, proxy::Proxy};
use hyper::StatusCode;

use super::routes::{Answer, BrokerState};

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Cluster(Arc<Cluster>),
    Proxy(Arc<Proxy>),
}

impl Target {
    /// Returns the cluster, for actions that change its brokers.
    pub(super) fn cluster(&self) -> Result<&Cluster, Answer> {
        match self {
            Self::Cluster(cluster) => Ok(cluster),
            Self::Proxy(_) => Err(Answer::refuse(
                StatusCode::NOT_IMPLEMENTED,
                "a proxy cannot do this to a broker; it has the faults of clients' connections, such as delay, error \
                 and cut-clients",
            )),
        }
    }

    pub(super) fn inject(&self, injection: Injection) -> Result<String, FaultError> {
        match self {
            Self::Cluster(cluster) => cluster.inject(injection),
            Self::Proxy(proxy) => proxy.inject(injection),
        }
    }

    pub(super) fn lift(&self, name: &str) -> bool {
        match self {
            Self::Cluster(cluster) => cluster.lift(name),
            Self::Proxy(proxy) => proxy.lift(name),
        }
    }

    pub(super) fn lift_all(&self) -> usize {
        match self {
            Self::Cluster(cluster) => cluster.lift_all(),
            Self::Proxy(proxy) => proxy.lift_all(),
        }
    }

    pub(super) fn faults(&self) -> Vec<ActiveFault> {
        match self {
            Self::Cluster(cluster) => cluster.faults(),
            Self::Proxy(proxy) => proxy.faults(),
        }
    }

    /// Lets a proxy connect to brokers that it could not reach.
    pub(super) async fn probe(&self) {
        match self {
            Self::Cluster(_) => {}
            Self::Proxy(proxy) => proxy.probe().await,
        }
    }

    /// Returns the state of each broker. A proxy knows whether it could connect.
    pub(super) fn brokers(&self) -> Vec<BrokerState> {
        match self {
            Self::Cluster(cluster) => of_cluster(cluster),
            Self::Proxy(proxy) => {
                let brokers = proxy.brokers().into_iter().map(|broker| BrokerState {
                    id: broker.id,
                    address: broker.address,
                    running: broker.reachable,
                    live: broker.reachable,
                });
                brokers.collect()
            }
        }
    }
}

fn of_cluster(cluster: &Cluster) -> Vec<BrokerState> {
    let live = cluster.live_brokers();
    let brokers = cluster.broker_ids().into_iter().filter_map(|id| {
        let broker = cluster.broker(id)?;
        Some(BrokerState {
            id,
            address: broker.endpoint().to_string(),
            running: broker.is_up(),
            live: live.contains(&id),
        })
    });
    brokers.collect()
}
