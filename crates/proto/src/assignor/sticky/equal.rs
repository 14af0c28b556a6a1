//! The case of equal subscriptions. Every member gets its share, the first members one partition more. Each keeps as
//! many of its partitions as its share allows.
//!
//! With racks, a member keeps only partitions in its rack. The others go first to members in their racks, the partitions
//! with the fewest such members first, and then to any member with room (KIP-881).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::assignor::{
    Assignments, Key,
    racks::{Rack, Racks},
};

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

/// A member and its partitions.
struct Taker {
    id: Arc<str>,
    rack: Option<Rack>,
    keys: Vec<Key>,
}

/// Position of a member in a line, and its position among all members.
type Place = (usize, usize);

/// Members in order, also by rack, so that no search visits members that do not fit.
#[derive(Default)]
struct Line {
    all: BTreeSet<Place>,
    by_rack: BTreeMap<Rack, BTreeSet<Place>>,
}

impl Line {
    fn insert(&mut self, place: Place, rack: Option<Rack>) {
        self.all.insert(place);
        if let Some(rack) = rack {
            self.by_rack.entry(rack).or_default().insert(place);
        }
    }

    fn remove(&mut self, place: Place, rack: Option<Rack>) {
        self.all.remove(&place);
        if let Some(of_rack) = rack.and_then(|rack| self.by_rack.get_mut(&rack)) {
            of_rack.remove(&place);
        }
    }

    /// The first member at this position or after it, else the first of all.
    fn next(&self, from: usize) -> Option<Place> {
        first_from(&self.all, from).or_else(|| self.all.first().copied())
    }

    /// As [`Self::next`], among the members in these racks.
    fn next_in(&self, racks: &[Rack], from: usize) -> Option<Place> {
        let lines = || racks.iter().filter_map(|rack| self.by_rack.get(rack));
        let after = lines().filter_map(|line| first_from(line, from)).min();
        after.or_else(|| lines().filter_map(|line| line.first().copied()).min())
    }
}

fn first_from(line: &BTreeSet<Place>, from: usize) -> Option<Place> {
    line.range((from, 0)..).next().copied()
}

/// Members and their partitions while they are assigned.
struct Filling<'a> {
    racks: &'a Racks<'a>,
    shares: Shares,
    /// In order of their ids.
    members: Vec<Taker>,
    /// Members with less than the least share, in order of their ids.
    hungry: Line,
    /// Members with the least share that may get one more, in the order in which they reached it.
    fed: Line,
    /// The number of members that were ever in `fed`.
    fed_so_far: usize,
    /// Position in `hungry` from which the next member is sought.
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
    let mut filling = Filling {
        racks,
        shares: Shares::of(free.len(), owned.len()),
        members: Vec::with_capacity(owned.len()),
        hungry: Line::default(),
        fed: Line::default(),
        fed_so_far: 0,
        turn: 0,
    };
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
    filling.members.into_iter().map(|member| (member.id, member.keys)).collect()
}

impl Filling<'_> {
    /// Returns the partitions that the member keeps.
    fn keep(&mut self, id: Arc<str>, mut kept: Vec<Key>) -> &[Key] {
        let (position, rack) = (self.members.len(), self.racks.of_member(&id));
        if let Some(rack) = rack {
            kept.retain(|key| self.racks.of_partition(key).contains(&rack));
        }
        // Partition by partition, so that a member loses some of each topic.
        kept.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        let count = kept.len();
        let limit = match self.shares.with_more {
            0 => self.shares.least,
            _ => self.shares.most,
        };
        kept.truncate(limit);
        self.members.push(Taker { id, rack, keys: kept });
        if count < self.shares.least {
            self.hungry.insert((position, position), rack);
        } else if count >= self.shares.most && self.shares.with_more > 0 {
            self.one_has_more();
        } else {
            self.feed(position);
        }
        &self.members[position].keys
    }

    fn one_has_more(&mut self) {
        self.shares.with_more = self.shares.with_more.saturating_sub(1);
        if self.shares.with_more == 0 {
            self.fed = Line::default();
        }
    }

    /// Records that the member has the least share.
    fn feed(&mut self, member: usize) {
        if self.shares.with_more > 0 {
            self.fed.insert((self.fed_so_far, member), self.members[member].rack);
            self.fed_so_far += 1;
        }
    }

    /// Gives the partition to a member in its racks; false if none of them has room.
    fn give_in_rack(&mut self, key: &Key) -> bool {
        let racks = self.racks.of_partition(key);
        if let Some(place) = self.hungry.next_in(racks, self.turn) {
            self.put_hungry(place, key.clone());
        } else if let Some(place) = self.fed.next_in(racks, 0) {
            self.put_fed(place, key.clone());
        } else {
            return false;
        }
        true
    }

    /// Gives the partition to the next member with room: the hungry in turn, then the others.
    fn give(&mut self, key: Key) {
        if let Some(place) = self.hungry.next(self.turn) {
            self.put_hungry(place, key);
        } else if let Some(place) = self.fed.next(0) {
            self.put_fed(place, key);
        }
    }

    fn put_hungry(&mut self, place: Place, key: Key) {
        let (position, member) = place;
        let taker = &mut self.members[member];
        taker.keys.push(key);
        self.turn = position + 1;
        if taker.keys.len() >= self.shares.least {
            self.hungry.remove(place, taker.rack);
            self.feed(member);
        }
    }

    fn put_fed(&mut self, place: Place, key: Key) {
        let taker = &mut self.members[place.1];
        taker.keys.push(key);
        self.fed.remove(place, taker.rack);
        self.one_has_more();
    }
}
