//! Racks of members and of partitions (KIP-881). A partition is in the rack of each of its replicas.

use std::collections::{BTreeMap, BTreeSet};

use super::{Key, Layout, Member, RackSet, Topics, wanted_topics};

/// Racks to match; empty if that makes no difference.
pub(super) struct Racks<'a> {
    members: BTreeMap<&'a str, &'a str>,
    topics: &'a Topics,
}

impl<'a> Racks<'a> {
    /// The racks of a whole group. They count if a member's rack has a partition, and not every partition is in the same
    /// racks.
    pub(super) fn of(topics: &'a Topics, members: &'a [Member]) -> Self {
        let wanted = wanted_topics(members);
        let wanted = topics.iter().filter(|(topic, _)| wanted.contains(*topic));
        let layouts: Vec<&Layout> = wanted.map(|(_, layout)| layout).collect();
        let mut racks = by_member(members.iter());
        if !differ(&racks, &layouts) {
            racks.clear();
        }
        Self { members: racks, topics }
    }

    pub(super) fn matter(&self) -> bool {
        !self.members.is_empty()
    }

    /// Whether the partition is in the member's rack.
    pub(super) fn has(&self, member: &str, key: &Key) -> bool {
        self.members.get(member).is_some_and(|rack| self.of_partition(key).any(|r| r == *rack))
    }

    /// Whether the partition is outside the member's rack. A member without a rack is at home in all.
    pub(super) fn lacks(&self, member: &str, key: &Key) -> bool {
        self.members.contains_key(member) && !self.has(member, key)
    }

    /// The number of members in the partition's racks.
    pub(super) fn readers(&self, key: &Key) -> usize {
        let of_rack = |rack| self.members.values().filter(|other| **other == rack).count();
        self.of_partition(key).map(of_rack).sum()
    }

    fn of_partition(&self, (topic, index): &Key) -> impl Iterator<Item = &'a str> {
        let racks = self.topics.get(topic).and_then(|layout| layout.at(*index));
        racks.into_iter().flat_map(|racks| racks.iter()).map(|rack| &**rack)
    }
}

impl Layout {
    /// The racks of a partition.
    pub(super) fn at(&self, index: i32) -> Option<&RackSet> {
        self.racks.get(usize::try_from(index).ok()?)
    }
}

/// The racks of the members that have one.
pub(super) fn by_member<'a>(
    members: impl IntoIterator<Item = &'a Member>,
) -> BTreeMap<&'a str, &'a str> {
    members.into_iter().filter_map(|member| Some((&*member.id, member.rack()?))).collect()
}

/// Whether matching these members and partitions by rack makes a difference.
pub(super) fn differ(members: &BTreeMap<&str, &str>, layouts: &[&Layout]) -> bool {
    let partitions = || layouts.iter().flat_map(|layout| &layout.racks);
    let all: BTreeSet<&str> = partitions().flat_map(|set| set.iter()).map(|rack| &**rack).collect();
    members.values().any(|rack| all.contains(rack)) && partitions().any(|p| p.len() < all.len())
}
