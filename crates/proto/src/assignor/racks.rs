//! Racks of members and of partitions (KIP-881). A partition is in the rack of each of its replicas.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Key, Member, Topics, wanted_topics};

/// Number of a rack.
pub(super) type Rack = usize;

/// Racks to match; empty if no member has one. Racks and sets of racks are numbered, because a group may have hundreds
/// of thousands of partitions.
#[derive(Default)]
pub(super) struct Racks<'a> {
    members: BTreeMap<&'a str, Rack>,
    /// For each topic that a member subscribes to, the positions of its partitions' racks in `sets`.
    topics: BTreeMap<&'a str, Vec<usize>>,
    sets: Vec<Set>,
}

/// Racks of some partitions.
struct Set {
    racks: Vec<Rack>,
    /// The number of members in them.
    readers: usize,
}

impl<'a> Racks<'a> {
    pub(super) fn of(topics: &'a Topics, members: &'a [Member]) -> Self {
        let mut numbers = BTreeMap::new();
        let mut number = |rack: &'a str| {
            let next = numbers.len();
            *numbers.entry(rack).or_insert(next)
        };
        let racked = members.iter().filter_map(|member| Some((&*member.id, member.rack()?)));
        let racked: BTreeMap<&str, Rack> = racked.map(|(id, rack)| (id, number(rack))).collect();
        if racked.is_empty() {
            return Self::default();
        }
        let mut sizes: BTreeMap<Rack, usize> = BTreeMap::new();
        for rack in racked.values() {
            *sizes.entry(*rack).or_default() += 1;
        }
        let wanted = wanted_topics(members);
        let mut racks = Self { members: racked, ..Self::default() };
        // Layouts share equal sets, so that their addresses suffice. A set stored twice does no harm.
        let mut known = BTreeMap::new();
        for (topic, layout) in topics.iter().filter(|(topic, _)| wanted.contains(*topic)) {
            let sets = layout.racks.iter().map(|set| {
                *known.entry(Arc::as_ptr(set)).or_insert_with(|| {
                    let set: Vec<Rack> = set.iter().map(|rack| number(rack)).collect();
                    let readers = set.iter().filter_map(|rack| sizes.get(rack)).sum();
                    racks.sets.push(Set { racks: set, readers });
                    racks.sets.len() - 1
                })
            });
            racks.topics.insert(topic, sets.collect());
        }
        racks
    }

    /// The racks, unless matching them makes no difference for the group as a whole.
    pub(super) fn if_they_differ(self) -> Self {
        let members = self.members.values().copied().collect();
        if self.differ(&members, 0..self.sets.len()) { self } else { Self::default() }
    }

    /// Whether matching racks of members with these sets makes a difference: a member's rack has a partition, and not every
    /// partition is in the same racks.
    pub(super) fn differ(
        &self,
        members: &BTreeSet<Rack>,
        sets: impl IntoIterator<Item = usize>,
    ) -> bool {
        let sets: BTreeSet<usize> = sets.into_iter().collect();
        let all: BTreeSet<Rack> = sets.iter().flat_map(|set| self.set(*set)).copied().collect();
        !all.is_disjoint(members) && sets.iter().any(|set| self.set(*set).len() < all.len())
    }

    pub(super) fn matter(&self) -> bool {
        !self.members.is_empty()
    }

    /// A member's rack.
    pub(super) fn of_member(&self, member: &str) -> Option<Rack> {
        self.members.get(member).copied()
    }

    /// The sets of a topic's partitions.
    pub(super) fn of_topic(&self, topic: &str) -> &[usize] {
        self.topics.get(topic).map_or(&[], Vec::as_slice)
    }

    /// The racks of a set.
    pub(super) fn set(&self, set: usize) -> &[Rack] {
        self.sets.get(set).map_or(&[], |set| &set.racks)
    }

    /// The racks of a partition.
    pub(super) fn of_partition(&self, key: &Key) -> &[Rack] {
        self.set_of(key).map_or(&[], |set| &set.racks)
    }

    /// The number of members in the partition's racks.
    pub(super) fn readers(&self, key: &Key) -> usize {
        self.set_of(key).map_or(0, |set| set.readers)
    }

    /// Whether the partition is in the member's rack.
    pub(super) fn has(&self, member: &str, key: &Key) -> bool {
        self.of_member(member).is_some_and(|rack| self.of_partition(key).contains(&rack))
    }

    /// Whether the partition is outside the member's rack. A member without a rack is at home in all.
    pub(super) fn lacks(&self, member: &str, key: &Key) -> bool {
        self.of_member(member).is_some_and(|rack| !self.of_partition(key).contains(&rack))
    }

    fn set_of(&self, (topic, index): &Key) -> Option<&Set> {
        let set = self.of_topic(topic).get(usize::try_from(*index).ok()?)?;
        self.sets.get(*set)
    }
}
