//! The case of equal subscriptions. Every member gets its share, the first members one partition more. Each keeps as
//! many of its partitions as its share allows.
//!
//! With racks, a member keeps only partitions in its rack. The others go first to members in their racks, the partitions
//! with the fewest such members first, and then to any member with room (KIP-881).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::assignor::{Assignments, Key, racks::Racks};

/// Shares of the members: `least` each, and one more for some of them.
struct Shares {
    least: usize,
    /// Members that may still get one more.
    with_more: usize,
    most: usize,
}

impl Shares {
    fn of(partitions: usize, members: usize) -> Self {
        let (least, with_more) = (partitions / members, partitions % members);
        Self { least, with_more, most: least + usize::from(with_more > 0) }
    }
}

/// Members and their partitions while they are assigned.
struct Filling<'a> {
    racks: &'a Racks<'a>,
    shares: Shares,
    assigned: Assignments,
    /// Members with less than the least share.
    hungry: Vec<Arc<str>>,
    /// Members with the least share that may get one more.
    fed: Vec<Arc<str>>,
    /// Position in `hungry` of the member whose turn it is.
    turn: usize,
}

/// `owned` has an entry for each member and names no partition twice.
pub(super) fn assign<'a>(
    topics: impl Iterator<Item = (&'a Arc<str>, i32)>,
    owned: BTreeMap<Arc<str>, Vec<Key>>,
    racks: &Racks<'_>,
) -> Assignments {
    let mut free: BTreeSet<Key> =
        topics.flat_map(|(topic, count)| (0..count).map(|index| (topic.clone(), index))).collect();
    let shares = Shares::of(free.len(), owned.len());
    let (hungry, fed) = (Vec::new(), Vec::new());
    let mut filling = Filling { racks, shares, assigned: Assignments::new(), hungry, fed, turn: 0 };
    for (member, kept) in owned {
        for key in filling.keep(member, kept) {
            free.remove(key);
        }
    }
    let mut free: Vec<Key> = free.into_iter().collect();
    if racks.matter() {
        free.sort_by_cached_key(|key| racks.readers(key));
        free.retain(|key| !filling.give_in_rack(key));
    }
    filling.turn = 0;
    free.into_iter().for_each(|key| filling.give(key));
    filling.assigned
}

impl Filling<'_> {
    /// Returns the partitions that the member keeps.
    fn keep(&mut self, member: Arc<str>, mut kept: Vec<Key>) -> &[Key] {
        kept.retain(|key| !self.racks.lacks(&member, key));
        // Partition by partition, so that a member loses some of each topic.
        kept.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        if kept.len() < self.shares.least {
            self.hungry.push(member.clone());
        } else if kept.len() >= self.shares.most && self.shares.with_more > 0 {
            kept.truncate(self.shares.most);
            self.one_has_more();
        } else {
            kept.truncate(self.shares.least);
            self.feed(member.clone());
        }
        self.assigned.entry(member).or_insert(kept)
    }

    fn one_has_more(&mut self) {
        self.shares.with_more = self.shares.with_more.saturating_sub(1);
        if self.shares.with_more == 0 {
            self.fed.clear();
        }
    }

    /// Records that the member has the least share.
    fn feed(&mut self, member: Arc<str>) {
        if self.shares.with_more > 0 {
            self.fed.push(member);
        }
    }

    /// Gives the partition to a member in its racks; false if none of them has room.
    fn give_in_rack(&mut self, key: &Key) -> bool {
        let fits = |member: &Arc<str>| self.racks.has(member, key);
        let (before, from_turn) = self.hungry.split_at(self.turn.min(self.hungry.len()));
        let next = from_turn.iter().chain(before).position(fits);
        if let Some(ahead) = next {
            self.put_hungry((self.turn + ahead) % self.hungry.len(), key.clone());
        } else if let Some(position) = self.fed.iter().position(fits) {
            self.put_fed(position, key.clone());
        } else {
            return false;
        }
        true
    }

    /// Gives the partition to the next member with room: the hungry in turn, then the others.
    fn give(&mut self, key: Key) {
        if self.hungry.is_empty() {
            self.put_fed(0, key);
        } else {
            self.put_hungry(self.turn, key);
        }
    }

    fn put_hungry(&mut self, position: usize, key: Key) {
        let Some(assigned) = self.assigned.get_mut(&self.hungry[position]) else { return };
        assigned.push(key);
        self.turn = position;
        if assigned.len() < self.shares.least {
            self.turn += 1;
        } else {
            let member = self.hungry.remove(position);
            self.feed(member);
        }
        if self.turn >= self.hungry.len() {
            self.turn = 0;
        }
    }

    fn put_fed(&mut self, position: usize, key: Key) {
        let Some(member) = self.fed.get(position).cloned() else { return };
        if let Some(assigned) = self.assigned.get_mut(&member) {
            assigned.push(key);
        }
        self.fed.remove(position);
        self.one_has_more();
    }
}
