//! The cluster's metadata at one version: immutable, with unchanged parts shared between versions.

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc};

use curtail_wire::Uuid;
use imbl::{OrdMap, OrdSet, Vector};

use crate::{
    acl::Acl,
    config::{Endpoint, ListenerName},
    quota::Quotas,
    sasl::Credentials,
    settings,
    topic_config::TopicConfig,
};

/// The leader of a partition without one.
pub(crate) const NO_LEADER: i32 = -1;

/// A broker's view of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// Increases with every change.
    pub(crate) version: u64,
    /// The version of the most recent creation of a topic.
    pub(crate) topics_created: u64,
    pub(crate) cluster_id: Arc<str>,
    pub(crate) brokers: Arc<BTreeMap<i32, BrokerImage>>,
    pub(crate) topics: OrdMap<Arc<str>, Arc<TopicImage>>,
    pub(crate) names: OrdMap<Uuid, Arc<str>>,
    pub(crate) acls: OrdSet<Acl>,
    pub(crate) quotas: Quotas,
    pub(crate) credentials: Credentials,
    /// Overrides of the settings of brokers, groups and client metrics.
    pub(crate) settings: settings::Changed,
}

/// The advertised endpoints of a broker, by listener.
pub(crate) type Endpoints = BTreeMap<ListenerName, Endpoint>;

/// One registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerImage {
    pub(crate) id: i32,
    pub(crate) endpoints: Arc<Endpoints>,
    /// Its address for other brokers.
    pub(crate) inner: SocketAddr,
    /// Identifies the incarnation; a restarted broker has a larger one.
    pub(crate) epoch: i64,
    /// Whether it is fenced: it leads no partition and is hidden from clients.
    pub(crate) fenced: bool,
}

impl BrokerImage {
    /// Returns the endpoint for clients of a listener. `None` for a listener that the broker has not
    /// registered: those clients do not see the broker.
    pub(crate) fn endpoint(&self, listener: &ListenerName) -> Option<&Endpoint> {
        self.endpoints.get(listener)
    }
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicImage {
    pub(crate) name: Arc<str>,
    pub(crate) id: Uuid,
    pub(crate) config: Arc<TopicConfig>,
    pub(crate) partitions: Vector<PartitionImage>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionImage {
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
    /// Increases with every change of this partition. It orders changes that reach a broker by two
    /// paths.
    pub(crate) partition_epoch: i32,
    pub(crate) isr: Arc<[i32]>,
    /// The preferred leader first; during a reassignment the new replicas, then those to remove.
    pub(crate) replicas: Arc<[i32]>,
    /// Replicas that a reassignment adds; empty without one.
    pub(crate) adding: Arc<[i32]>,
    /// Replicas that a reassignment removes; empty without one.
    pub(crate) removing: Arc<[i32]>,
}

impl PartitionImage {
    /// Returns whether a reassignment is in progress.
    pub(crate) fn is_reassigned(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }
}

impl Image {
    pub(crate) fn empty(cluster_id: &str) -> Self {
        Self {
            version: 0,
            topics_created: 0,
            cluster_id: cluster_id.into(),
            brokers: Arc::default(),
            topics: OrdMap::new(),
            names: OrdMap::new(),
            acls: OrdSet::new(),
            quotas: Quotas::new(),
            credentials: Credentials::new(),
            settings: settings::Changed::new(),
        }
    }

    pub(crate) fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(name)
    }

    /// Returns whether the topic exists and has this partition.
    pub(crate) fn has_partition(&self, topic: &str, index: i32) -> bool {
        let index = usize::try_from(index).ok();
        self.topic(topic).is_some_and(|topic| index.is_some_and(|at| at < topic.partitions.len()))
    }

    pub(crate) fn topic_by_id(&self, id: &Uuid) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.names.get(id)?)
    }

    /// Returns a broker that is registered and not fenced.
    pub(crate) fn live_broker(&self, id: i32) -> Option<&BrokerImage> {
        self.brokers.get(&id).filter(|b| !b.fenced)
    }
}

/// The identity of a partition: a topic that was deleted and recreated has another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PartitionKey {
    pub(crate) topic: Uuid,
    pub(crate) index: i32,
}

impl fmt::Display for PartitionImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leader {} epoch {} isr {:?}", self.leader, self.leader_epoch, self.isr)
    }
}
