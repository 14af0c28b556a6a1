//! What the proxy has learned from responses: the cluster's nodes with their ports here, and its topics.
//!
//! # Invariants
//! - A node keeps its port while the proxy runs, also if its address changes.
//! - Responses cannot claim memory without limit: at most [`MAX_NODES`], [`MAX_TOPICS`] with names of at most
//!   [`MAX_NAME`] bytes, and the leaders of [`MAX_LEADERS`] partitions. A topic stays known when the cluster
//!   has deleted it.
//!
//! # Locks
//! `Directory::opening`, then `Directory::state`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use curtail_wire::{
    Uuid,
    metadata::MetadataResponse,
    produce::{LeaderIdAndEpoch, NodeEndpoint},
};
use parking_lot::Mutex;

use super::addresses::Node;
use crate::config::Endpoint;

/// Most nodes that get a port. Kafka's largest clusters are smaller.
const MAX_NODES: usize = 1000;
/// Most topics that are remembered. Faults of further ones cannot be selected by topic if requests have ids.
const MAX_TOPICS: usize = 100_000;
/// Longest name of a topic in Kafka, in bytes.
const MAX_NAME: usize = 249;
/// Most partitions whose leaders are remembered. `wrong-leader` does not concern injected errors of further
/// ones, which come without a leader.
const MAX_LEADERS: usize = 1_000_000;
/// Brokers with ids below this have fixed ports after that of the bootstrap listener.
const FIXED_PORTS: i32 = 1000;

/// A node of the cluster.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Its address, as responses of the cluster name it.
    pub(super) target: Endpoint,
    /// The port here.
    pub(super) port: u16,
    /// Whether the latest attempt to connect succeeded.
    pub(super) reachable: bool,
    /// Whether the latest response with all brokers named it. It keeps its port otherwise, too.
    named: bool,
}

struct Topic {
    id: Uuid,
    leaders: BTreeMap<i32, LeaderIdAndEpoch>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<Node, Known>,
    topics: BTreeMap<String, Topic>,
    names: BTreeMap<Uuid, Arc<str>>,
    /// Leaders in `topics`.
    leaders: usize,
}

pub(super) struct Directory {
    state: Mutex<State>,
    /// Held while a port is opened, so that a node gets one.
    pub(super) opening: tokio::sync::Mutex<()>,
    /// The host that clients connect to.
    host: String,
    /// The port of the bootstrap listener if it was chosen; the fixed ports of brokers follow.
    base: Option<u16>,
}

impl Directory {
    pub(super) fn new(host: String, base: Option<u16>) -> Self {
        Self { state: Mutex::default(), opening: tokio::sync::Mutex::new(()), host, base }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port of a node, and remembers its address.
    pub(super) fn update(&self, node: Node, target: &Endpoint) -> Option<u16> {
        let mut state = self.state.lock();
        let known = state.nodes.get_mut(&node)?;
        if known.target != *target {
            tracing::info!(?node, host = target.host(), port = target.port(), "the node has moved");
            known.target = target.clone();
        }
        Some(known.port)
    }

    /// Returns the port that a new node should have: 0 for any. Fails if there are too many nodes.
    pub(super) fn next_port(&self, node: Node) -> Result<u16, String> {
        if self.state.lock().nodes.len() >= MAX_NODES {
            return Err(format!("the cluster names more than {MAX_NODES} nodes"));
        }
        let fixed = match node {
            Node::Broker(id @ 0..FIXED_PORTS) => self.base.and_then(|base| {
                // The id is below 1,000.
                base.checked_add(1)?.checked_add(id as u16)
            }),
            _ => None,
        };
        Ok(fixed.unwrap_or(0))
    }

    pub(super) fn add(&self, node: Node, target: Endpoint, port: u16) {
        self.state.lock().nodes.insert(node, Known { target, port, reachable: true, named: true });
    }

    pub(super) fn target(&self, node: Node) -> Option<Endpoint> {
        self.state.lock().nodes.get(&node).map(|known| known.target.clone())
    }

    pub(super) fn set_reachable(&self, node: Node, reachable: bool) {
        if let Some(known) = self.state.lock().nodes.get_mut(&node) {
            known.reachable = reachable;
        }
    }

    /// Returns the broker with this address, by its text or by the address that it has resolved to.
    pub(super) fn broker_at(&self, target: &Endpoint, peer: Option<SocketAddr>) -> Option<i32> {
        let state = self.state.lock();
        let is_at = |known: &Known| {
            let ip = known.target.host().parse::<IpAddr>().ok();
            let resolved = ip.map(|ip| SocketAddr::new(ip, known.target.port()));
            known.target == *target || (peer.is_some() && resolved == peer)
        };
        state.nodes.iter().find_map(|(node, known)| match node {
            Node::Broker(id) if is_at(known) => Some(*id),
            _ => None,
        })
    }

    /// Forgets that the cluster has other brokers than these. Without any, the response has not named them.
    pub(super) fn has_only(&self, named: &BTreeSet<Node>) {
        if !named.iter().any(|node| matches!(node, Node::Broker(_))) {
            return;
        }
        for (node, known) in &mut self.state.lock().nodes {
            known.named = named.contains(node);
        }
    }

    /// Returns the ids of all brokers that responses have named.
    pub(super) fn known_brokers(&self) -> Vec<i32> {
        let state = self.state.lock();
        let ids = state.nodes.keys().filter_map(|node| match node {
            Node::Broker(id) => Some(*id),
            Node::Controller(_) => None,
        });
        ids.collect()
    }

    /// Returns the brokers that the cluster has now, by id.
    pub(super) fn brokers(&self) -> Vec<(i32, Known)> {
        let state = self.state.lock();
        let brokers = state.nodes.iter().filter_map(|(node, known)| match node {
            Node::Broker(id) if known.named => Some((*id, known.clone())),
            _ => None,
        });
        brokers.collect()
    }

    /// Returns the endpoint here of a broker.
    pub(super) fn endpoint(&self, broker: i32) -> Option<NodeEndpoint> {
        let state = self.state.lock();
        let known = state.nodes.get(&Node::Broker(broker))?;
        Some(NodeEndpoint {
            node_id: broker,
            host: self.host.clone(),
            port: i32::from(known.port),
            rack: None,
        })
    }

    /// Remembers the ids and leaders of topics.
    pub(super) fn learn(&self, metadata: &MetadataResponse) {
        let mut state = self.state.lock();
        for topic in &metadata.topics {
            let is_topic = |name: &&str| topic.error.is_none() && name.len() <= MAX_NAME;
            let Some(name) = topic.name.as_deref().filter(is_topic) else { continue };
            let room = state.room(name);
            let leaders = topic.partitions.iter().map(|partition| {
                let (leader_id, leader_epoch) = (partition.leader_id, partition.leader_epoch);
                (partition.index, LeaderIdAndEpoch { leader_id, leader_epoch })
            });
            let new = Topic { id: topic.topic_id, leaders: leaders.take(room).collect() };
            state.remember(name, new);
        }
    }

    pub(super) fn topic_name(&self, id: Uuid) -> Option<Arc<str>> {
        self.state.lock().names.get(&id).cloned()
    }

    pub(super) fn leader(&self, topic: &str, partition: i32) -> Option<LeaderIdAndEpoch> {
        self.state.lock().topics.get(topic)?.leaders.get(&partition).copied()
    }
}

impl State {
    /// Returns how many leaders of a topic may be remembered.
    fn room(&self, name: &str) -> usize {
        let own = self.topics.get(name).map_or(0, |topic| topic.leaders.len());
        MAX_LEADERS.saturating_sub(self.leaders - own)
    }

    fn remember(&mut self, name: &str, new: Topic) {
        let has_room = self.topics.len() < MAX_TOPICS;
        match self.topics.get_mut(name) {
            Some(known) => {
                self.leaders = self.leaders - known.leaders.len() + new.leaders.len();
                known.leaders = new.leaders;
                // Versions before 10 have no ids.
                if new.id.is_zero() || new.id == known.id {
                    return;
                }
                self.names.remove(&known.id);
                known.id = new.id;
                self.names.insert(new.id, name.into());
            }
            None if has_room => {
                if !new.id.is_zero() {
                    self.names.insert(new.id, name.into());
                }
                self.leaders += new.leaders.len();
                self.topics.insert(name.to_owned(), new);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_wire::{
        ErrorCode,
        metadata::{MetadataPartition, MetadataTopic},
    };

    use super::*;

    fn target(port: u16) -> Endpoint {
        Endpoint::stored("10.0.0.1", port)
    }

    #[test]
    fn brokers_have_the_ports_after_the_bootstrap_port() {
        let directory = Directory::new("127.0.0.1".into(), Some(9000));
        assert_eq!(directory.next_port(Node::Broker(0)), Ok(9001));
        assert_eq!(directory.next_port(Node::Broker(999)), Ok(10_000));
        assert_eq!(directory.next_port(Node::Broker(1000)), Ok(0));
        assert_eq!(directory.next_port(Node::Controller(1)), Ok(0));
        let any = Directory::new("127.0.0.1".into(), None);
        assert_eq!(any.next_port(Node::Broker(0)), Ok(0));
        let last = Directory::new("127.0.0.1".into(), Some(65_535));
        assert_eq!(last.next_port(Node::Broker(0)), Ok(0));
    }

    #[test]
    fn a_moved_broker_keeps_its_port() {
        let directory = Directory::new("127.0.0.1".into(), None);
        directory.add(Node::Broker(1), target(1), 4000);
        assert_eq!(directory.update(Node::Broker(1), &target(2)), Some(4000));
        assert_eq!(directory.target(Node::Broker(1)), Some(target(2)));
        assert_eq!(directory.update(Node::Controller(1), &target(2)), None);
        assert_eq!(directory.broker_at(&target(2), None), Some(1));
        let resolved = Some("10.0.0.1:2".parse().unwrap());
        let named = Endpoint::stored("broker", 2);
        assert_eq!(directory.broker_at(&named, resolved), Some(1));
        assert_eq!(directory.broker_at(&named, None), None);
    }

    fn metadata(topic: &str, partitions: usize) -> MetadataResponse {
        let partitions = (0..partitions as i32).map(|index| MetadataPartition {
            error: ErrorCode::NONE,
            index,
            leader_id: 1,
            leader_epoch: 0,
            replicas: Vec::new(),
            isr: Vec::new(),
            offline_replicas: Vec::new(),
        });
        let topic = MetadataTopic {
            name: Some(topic.to_owned()),
            partitions: partitions.collect(),
            ..MetadataTopic::default()
        };
        MetadataResponse { topics: vec![topic], ..MetadataResponse::default() }
    }

    #[test]
    fn brokers_that_the_newest_response_lacks_are_not_listed() {
        let directory = Directory::new("127.0.0.1".into(), None);
        directory.add(Node::Broker(1), target(1), 4001);
        directory.add(Node::Broker(2), target(2), 4002);
        let listed = |nodes: &[Node]| {
            directory.has_only(&nodes.iter().copied().collect());
            directory.brokers().into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert_eq!(listed(&[Node::Broker(1)]), [1]);
        assert_eq!(directory.known_brokers(), [1, 2]);
        assert_eq!(listed(&[Node::Controller(2)]), [1]);
        assert_eq!(listed(&[Node::Broker(1), Node::Broker(2)]), [1, 2]);
        assert_eq!(directory.update(Node::Broker(2), &target(2)), Some(4002));
    }

    #[test]
    fn leaders_of_at_most_a_million_partitions_are_remembered() {
        let directory = Directory::new("127.0.0.1".into(), None);
        let half = MAX_LEADERS / 2;
        for _ in 0..3 {
            directory.learn(&metadata("a", half));
        }
        directory.learn(&metadata("b", half + 1));
        assert!(directory.leader("b", half as i32 - 1).is_some());
        assert!(directory.leader("b", half as i32).is_none());
        // Fewer partitions make room.
        directory.learn(&metadata("a", 1));
        directory.learn(&metadata("b", half + 1));
        assert!(directory.leader("b", half as i32).is_some());
        let long = "x".repeat(MAX_NAME + 1);
        directory.learn(&metadata(&long, 1));
        assert!(directory.leader(&long, 0).is_none());
    }

    #[test]
    fn more_than_a_thousand_nodes_are_refused() {
        let directory = Directory::new("127.0.0.1".into(), None);
        for id in 0..MAX_NODES as i32 {
            directory.next_port(Node::Broker(id)).unwrap();
            directory.add(Node::Broker(id), target(1), 1);
        }
        assert!(directory.next_port(Node::Broker(-5)).is_err());
    }
}
