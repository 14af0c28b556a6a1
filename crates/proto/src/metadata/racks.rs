//! Racks of a topic's replicas.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Node, Topic};
use crate::assignor::{Layout, RackSet};

/// Brokers that are not in the cluster now and whose racks are kept. A cluster may replace its brokers by new ids
/// indefinitely.
const MAX_DEPARTED: usize = 1000;

/// The last known rack of each broker. A broker that stops is missing from the next response but stays a replica. Its
/// rack is then unknown, not changed: without this, one restart would move partitions of its rack to other members, and
/// move them back (KAFKA-20778).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Racks {
    by_node: BTreeMap<i32, Arc<str>>,
}

impl Racks {
    /// The racks after a response with these brokers.
    pub(super) fn after(&self, nodes: &BTreeMap<i32, Node>) -> Self {
        let mut by_node = self.by_node.clone();
        for (&id, node) in nodes {
            match node.rack.as_deref() {
                Some(rack) if by_node.get(&id).is_some_and(|known| **known == *rack) => {}
                Some(rack) => drop(by_node.insert(id, rack.into())),
                None => drop(by_node.remove(&id)),
            }
        }
        let departed: Vec<i32> =
            by_node.keys().copied().filter(|id| !nodes.contains_key(id)).collect();
        // New brokers usually have larger ids than those that they replace.
        for id in &departed[..departed.len().saturating_sub(MAX_DEPARTED)] {
            by_node.remove(id);
        }
        Self { by_node }
    }

    /// Begins to look up the racks of partitions.
    pub(super) fn sets(&self) -> Sets<'_> {
        let (by_replicas, distinct, replicas) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        Sets { racks: self, by_replicas, distinct, replicas }
    }
}

/// Sets of racks, each stored once: a cluster has few, and a group may have hundreds of thousands of partitions.
pub(super) struct Sets<'a> {
    racks: &'a Racks,
    /// By replicas in order of their ids.
    by_replicas: BTreeMap<Vec<i32>, RackSet>,
    distinct: BTreeSet<RackSet>,
    /// Replicas of the partition looked up, kept for its memory.
    replicas: Vec<i32>,
}

impl Sets<'_> {
    /// A topic's partitions with the racks of their replicas.
    pub(super) fn layout(&mut self, topic: &Topic) -> Layout {
        let racks = (0..topic.leaders.len()).map(|index| {
            let in_sync = topic.in_sync.of_partition(index);
            self.of_replicas(in_sync.iter().chain(topic.lagging.of_partition(index)))
        });
        Layout { racks: racks.collect(), ..topic.layout() }
    }

    fn of_replicas<'a>(&mut self, replicas: impl Iterator<Item = &'a i32>) -> RackSet {
        self.replicas.clear();
        self.replicas.extend(replicas);
        self.replicas.sort_unstable();
        if let Some(known) = self.by_replicas.get(&*self.replicas) {
            return known.clone();
        }
        let racks = self.replicas.iter().filter_map(|id| self.racks.by_node.get(id).cloned());
        let set = RackSet::new(racks.collect());
        let set = self.distinct.get(&set).cloned().unwrap_or(set);
        self.distinct.insert(set.clone());
        self.by_replicas.insert(self.replicas.clone(), set.clone());
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(racks: impl IntoIterator<Item = (i32, Option<&'static str>)>) -> BTreeMap<i32, Node> {
        let node = |(id, rack): (i32, Option<&str>)| {
            let rack = rack.map(str::to_owned);
            (id, Node { id, host: "localhost".into(), port: 9092, rack })
        };
        racks.into_iter().map(node).collect()
    }

    fn rack(racks: &Racks, id: i32) -> Option<&str> {
        racks.by_node.get(&id).map(|rack| &**rack)
    }

    #[test]
    fn only_a_broker_in_the_cluster_changes_its_rack() {
        let racks = Racks::default().after(&nodes([(1, Some("x")), (2, Some("y"))]));
        let stopped = racks.after(&nodes([(1, Some("x"))]));
        assert_eq!(stopped, racks);
        let moved = stopped.after(&nodes([(1, None), (2, Some("z"))]));
        assert_eq!([rack(&moved, 1), rack(&moved, 2)], [None, Some("z")]);
    }

    #[test]
    fn the_racks_kept_of_departed_brokers_are_limited() {
        let most = i32::try_from(MAX_DEPARTED).unwrap();
        let racks = Racks::default().after(&nodes((0..most + 2).map(|id| (id, Some("x")))));
        let racks = racks.after(&nodes([(0, Some("x")), (9999, Some("y"))]));
        assert_eq!(
            [rack(&racks, 0), rack(&racks, 1), rack(&racks, 2)],
            [Some("x"), None, Some("x")]
        );
        assert_eq!(rack(&racks, 9999), Some("y"));
    }
}
