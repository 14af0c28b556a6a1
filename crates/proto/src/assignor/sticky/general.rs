//! The case of different subscriptions. Members keep their partitions, and each free one goes to the member with the
//! least. Then partitions move from members with more to members with less, until no single move improves the
//! balance.
//!
//! With racks, a member keeps only partitions in its rack if that is better for balance, or else for racks. The others go
//! first to members in their racks, or without one, and then to any (KIP-881). A partition that moves to improve the
//! balance goes to a member in its racks if that suffices.

use std::{collections::BTreeMap, sync::Arc};

use super::{Before, Member, wants};
use crate::assignor::{Assignments, Key, Topics, racks::Racks};

struct Balance<'a> {
    racks: &'a Racks<'a>,
    /// Members subscribed to each topic, in order.
    readers: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    assigned: Assignments,
    owner: BTreeMap<Key, Arc<str>>,
    /// Owner of each partition before the assignment.
    origin: BTreeMap<Key, Arc<str>>,
}

pub(super) fn assign(
    topics: &Topics,
    members: &[Member],
    before: Before,
    racks: &Racks<'_>,
) -> Assignments {
    let Before { owned, previous } = before;
    if !racks.matter() {
        return balanced(topics, members, owned, &previous, racks);
    }
    let mut in_rack = owned.clone();
    for (member, keys) in &mut in_rack {
        keys.retain(|key| !racks.lacks(member, key));
    }
    let moved = balanced(topics, members, in_rack, &previous, racks);
    let stayed = balanced(topics, members, owned, &previous, racks);
    // Otherwise partitions that fit no rack would move in every rebalance, and a cooperative group would never settle.
    if misfit(&moved, racks) < misfit(&stayed, racks) { moved } else { stayed }
}

/// How bad an assignment is: the sum of the squares of the loads, then the partitions outside their member's rack.
fn misfit(assigned: &Assignments, racks: &Racks<'_>) -> (usize, usize) {
    let loads = assigned.values().map(|keys| keys.len().saturating_mul(keys.len()));
    let outside = assigned
        .iter()
        .map(|(member, keys)| keys.iter().filter(|key| racks.lacks(member, key)).count());
    (loads.sum(), outside.sum())
}

/// Assigns the partitions that no member has, and evens out the loads.
fn balanced(
    topics: &Topics,
    members: &[Member],
    owned: Assignments,
    previous: &BTreeMap<Key, Arc<str>>,
    racks: &Racks<'_>,
) -> Assignments {
    let mut balance = Balance::new(topics, members, owned, racks);
    let order = balance.in_order(topics);
    let free: Vec<Key> =
        order.iter().filter(|key| !balance.owner.contains_key(*key)).cloned().collect();
    let mut others = free.clone();
    if racks.matter() {
        others.retain(|key| !balance.give(key, |member| !racks.lacks(member, key)));
    }
    for key in &others {
        balance.give(key, |_| true);
    }
    // New partitions move first: if that suffices, no member loses any.
    let movable = |keys: &[Key], balance: &Balance| -> Vec<Key> {
        keys.iter().filter(|key| balance.readers_of(key).len() > 1).cloned().collect()
    };
    balance.even_out(&movable(&free, &balance), previous);
    balance.even_out(&movable(&order, &balance), previous);
    balance.assigned
}

impl<'a> Balance<'a> {
    fn new(topics: &Topics, members: &[Member], owned: Assignments, racks: &'a Racks<'a>) -> Self {
        let mut ids: Vec<&Member> = members.iter().collect();
        ids.sort_by(|a, b| a.id.cmp(&b.id));
        let readers = topics.keys().map(|topic| {
            let readers = ids.iter().filter(|member| wants(member, topic));
            (topic.clone(), readers.map(|member| member.id.clone()).collect())
        });
        let owner: BTreeMap<Key, Arc<str>> = owned
            .iter()
            .flat_map(|(member, keys)| keys.iter().map(|key| (key.clone(), member.clone())))
            .collect();
        let (readers, origin) = (readers.collect(), owner.clone());
        Self { racks, readers, origin, owner, assigned: owned }
    }

    /// Every partition, those with the fewest possible readers first.
    fn in_order(&self, topics: &Topics) -> Vec<Key> {
        let mut by_readers: Vec<(usize, &Arc<str>, i32)> = topics
            .iter()
            .map(|(topic, layout)| (self.readers[topic].len(), topic, layout.count))
            .collect();
        by_readers.sort();
        let keys = by_readers
            .into_iter()
            .flat_map(|(_, topic, count)| (0..count).map(|index| (topic.clone(), index)));
        keys.collect()
    }

    fn readers_of(&self, key: &Key) -> &[Arc<str>] {
        self.readers.get(&key.0).map_or(&[], Vec::as_slice)
    }

    fn load(&self, member: &Arc<str>) -> usize {
        self.assigned.get(member).map_or(0, Vec::len)
    }

    /// The member with the least among those subscribed to the partition's topic that `may` have it.
    fn neediest(&self, key: &Key, may: impl Fn(&Arc<str>) -> bool) -> Option<Arc<str>> {
        let readers = self.readers_of(key).iter().filter(|member| may(member));
        let least = readers.map(|member| (self.load(member), member)).min();
        least.map(|(_, member)| member.clone())
    }

    /// Gives the partition to the member with the least; false if no member `may` have it.
    fn give(&mut self, key: &Key, may: impl Fn(&Arc<str>) -> bool) -> bool {
        let member = self.neediest(key, may);
        if let Some(member) = &member {
            self.put(key, member);
        }
        member.is_some()
    }

    fn put(&mut self, key: &Key, member: &Arc<str>) {
        self.owner.insert(key.clone(), member.clone());
        if let Some(keys) = self.assigned.get_mut(member) {
            keys.push(key.clone());
        }
    }

    fn even_out(&mut self, keys: &[Key], previous: &BTreeMap<Key, Arc<str>>) {
        loop {
            let mut moved = false;
            for key in keys {
                moved |= self.improve(key, previous.get(key));
            }
            // Every move makes the sum of the squares of the loads smaller, so this ends.
            if !moved {
                return;
            }
        }
    }

    /// Moves a partition if that makes the loads more even: to its previous owner, else to the member with the least, in
    /// the partition's racks if possible.
    fn improve(&mut self, key: &Key, previous: Option<&Arc<str>>) -> bool {
        let Some(from) = self.owner.get(key).cloned() else { return false };
        let load = self.load(&from);
        let better = |member: &Arc<str>, me: &Self| me.load(member) + 1 < load;
        let readers = self.readers_of(key);
        let back = previous.filter(|member| readers.contains(member) && better(member, self));
        let to = match back {
            Some(member) => Some(member.clone()),
            None => {
                let near = self.neediest(key, |member| self.racks.has(member, key));
                let near = near.filter(|member| better(member, self));
                near.or_else(|| self.neediest(key, |member| better(member, self)))
            }
        };
        let Some(to) = to else { return false };
        let key = self.home_again(key, &from, &to);
        if let Some(keys) = self.assigned.get_mut(&from) {
            keys.retain(|other| *other != key);
        }
        self.put(&key, &to);
        true
    }

    /// Returns the partition to move instead of `key`: a partition of the same topic that `from` has and that
    /// belonged to `to`.
    fn home_again(&self, key: &Key, from: &Arc<str>, to: &Arc<str>) -> Key {
        let came_from = |other: &&Key| other.0 == key.0 && self.origin.get(*other) == Some(to);
        let candidate = self.assigned.get(from).and_then(|keys| keys.iter().find(came_from));
        candidate.unwrap_or(key).clone()
    }
}
