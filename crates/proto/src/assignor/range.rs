//! `range`: the partitions of each topic in equal ranges; the first members get the remainder, one partition each.
//!
//! With racks, members first get partitions in their rack, within the same shares (KIP-881). Topics with the same
//! members and the same number of partitions stay co-partitioned: a member gets the same partitions of each of them, in
//! its rack if all of those are. The rest is assigned as without racks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Assignments, Layout, Member, Topics, in_order, nothing_for, racks, wants};

pub(super) fn assign(topics: &Topics, members: &[Member]) -> Assignments {
    let ordered = in_order(members);
    let mut shares: Vec<Shares<'_>> =
        topics.iter().filter_map(|(topic, layout)| Shares::of(topic, layout, &ordered)).collect();
    if shares.iter().any(|topic| topic.racks_differ) {
        match_racks(&mut shares);
    }
    let mut assignments = nothing_for(members);
    for mut topic in shares {
        topic.assign_ranges(|_, _, _| true);
        for (member, partitions) in topic.assigned {
            if let Some(assigned) = assignments.get_mut(member) {
                assigned.extend(partitions.into_iter().map(|index| (topic.name.clone(), index)));
            }
        }
    }
    assignments
}

/// Topics with the same members and the same number of partitions, by their position in a list.
type CoPartitioned<'a> = BTreeMap<(Vec<&'a str>, i32), Vec<usize>>;

fn match_racks(shares: &mut [Shares<'_>]) {
    let mut groups = CoPartitioned::new();
    for (position, topic) in shares.iter().enumerate().filter(|(_, topic)| !topic.racks.is_empty())
    {
        let readers = topic.readers.iter().map(|member| &*member.id).collect();
        groups.entry((readers, topic.layout.count)).or_default().push(position);
    }
    for ((_, count), positions) in groups {
        match positions[..] {
            [one] if shares[one].racks_differ => shares[one].assign_ranges(Shares::fits),
            [_] => {}
            _ => match_co_partitioned(shares, &positions, count),
        }
    }
}

fn match_co_partitioned(shares: &mut [Shares<'_>], positions: &[usize], count: i32) {
    let mut readers = shares[positions[0]].readers.clone();
    for index in 0..count {
        let takes = |member: &&Member| {
            let of = |&position: &usize| {
                let topic = &shares[position];
                topic.fits(member, index) && topic.room(member) > 0
            };
            positions.iter().all(of)
        };
        let Some(member) = readers.iter().copied().find(takes) else { continue };
        for &position in positions {
            shares[position].give(member, index);
        }
        if positions.iter().all(|&position| shares[position].room(member) == 0) {
            readers.retain(|other| other.id != member.id);
        }
    }
}

/// The partitions of one topic, and the members that share them.
struct Shares<'a> {
    name: &'a Arc<str>,
    layout: &'a Layout,
    readers: Vec<&'a Member>,
    /// Racks of the readers that have one.
    racks: BTreeMap<&'a str, &'a str>,
    racks_differ: bool,
    free: BTreeSet<i32>,
    assigned: BTreeMap<&'a str, Vec<i32>>,
    /// Partitions for each member.
    least: usize,
    /// Members that may get one more.
    with_more: usize,
}

impl<'a> Shares<'a> {
    /// `None` if no member subscribes to the topic.
    fn of(name: &'a Arc<str>, layout: &'a Layout, ordered: &[&'a Member]) -> Option<Self> {
        let readers: Vec<&Member> =
            ordered.iter().copied().filter(|member| wants(member, name)).collect();
        let racks = racks::by_member(readers.iter().copied());
        let free: BTreeSet<i32> = (0..layout.count).collect();
        Some(Self {
            name,
            layout,
            racks_differ: racks::differ(&racks, &[layout]),
            racks,
            assigned: BTreeMap::new(),
            least: free.len().checked_div(readers.len())?,
            with_more: free.len().checked_rem(readers.len())?,
            free,
            readers,
        })
    }

    /// Whether the partition is in the member's rack. A member without a rack is at home in all.
    fn fits(&self, member: &Member, index: i32) -> bool {
        let rack = self.racks.get(&*member.id);
        rack.is_none_or(|rack| self.layout.at(index).is_some_and(|racks| racks.contains(*rack)))
    }

    /// How many more partitions the member may get.
    fn room(&self, member: &Member) -> usize {
        let most = self.least.saturating_add(usize::from(self.with_more > 0));
        most.saturating_sub(self.assigned.get(&*member.id).map_or(0, Vec::len))
    }

    fn give(&mut self, member: &'a Member, index: i32) {
        self.free.remove(&index);
        let assigned = self.assigned.entry(&member.id).or_default();
        assigned.push(index);
        if assigned.len() > self.least {
            self.with_more = self.with_more.saturating_sub(1);
        }
    }

    /// Fills each member's share with the first partitions that it may have.
    fn assign_ranges(&mut self, may: fn(&Self, &Member, i32) -> bool) {
        for member in self.readers.clone() {
            let fitting = self.free.iter().copied().filter(|index| may(self, member, *index));
            let range: Vec<i32> = fitting.take(self.room(member)).collect();
            for index in range {
                self.give(member, index);
            }
        }
    }
}
