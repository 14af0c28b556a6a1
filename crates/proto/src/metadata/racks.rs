//! Racks of a topic's replicas.

use std::{collections::BTreeMap, sync::Arc};

use super::Node;

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

    pub(super) fn of_node(&self, id: i32) -> Option<&Arc<str>> {
        self.by_node.get(&id)
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
        racks.of_node(id).map(|rack| &**rack)
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
