//! `range`: the partitions of each topic in equal ranges; the first members get the remainder, one partition each.
//!
//! With racks, members first get partitions in their rack, within the same shares (KIP-881). Topics with the same
//! members and the same number of partitions stay co-partitioned: a member gets the same partitions of each of them, in
//! its rack if all of those are. The rest is assigned as without racks.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use super::{
    Assignments, Layout, Member, Topics, in_order, nothing_for,
    racks::{Rack, Racks},
};

pub(super) fn assign(topics: &Topics, members: &[Member]) -> Assignments {
    let group = Group::of(topics, members);
    let readers = group.readers();
    let shares = topics.iter().filter_map(|(topic, layout)| {
        Some(Shares::of(&group, topic, layout, readers.get(&**topic)?))
    });
    let mut assignments = nothing_for(members);
    if !group.racks.matter() {
        shares.for_each(|topic| topic.finish(&mut assignments));
        return assignments;
    }
    // Co-partitioned topics are assigned together.
    let mut shares: Vec<Shares<'_>> = shares.collect();
    if shares.iter().any(|topic| topic.racks_differ) {
        match_racks(&mut shares);
    }
    shares.into_iter().for_each(|topic| topic.finish(&mut assignments));
    assignments
}

/// Topics with the same members and the same number of partitions, by their position in a list.
type CoPartitioned = BTreeMap<(usize, i32), Vec<usize>>;

fn match_racks(shares: &mut [Shares<'_>]) {
    let mut groups = CoPartitioned::new();
    let racked = |topic: &Shares<'_>| !topic.readers.racks.is_empty();
    for (position, topic) in shares.iter().enumerate().filter(|(_, topic)| racked(topic)) {
        groups.entry((topic.readers.number, topic.count)).or_default().push(position);
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
    let mut readers = shares[positions[0]].readers.members.clone();
    for index in 0..count {
        let takes = |&member: &usize| {
            let of = |&position: &usize| {
                let topic = &shares[position];
                topic.room(member) > 0 && topic.fits(member, index)
            };
            positions.iter().all(of)
        };
        let Some(at) = readers.iter().position(takes) else { continue };
        let member = readers[at];
        for &position in positions {
            shares[position].give(member, index);
        }
        if positions.iter().all(|&position| shares[position].room(member) == 0) {
            readers.remove(at);
        }
    }
}

/// All members, in order, and all racks.
struct Group<'a> {
    members: Vec<(&'a Member, Option<Rack>)>,
    racks: Racks<'a>,
}

/// The members subscribed to a topic, by their position in [`Group::members`]. Topics with the same ones share it.
struct Readers {
    /// Different for different members.
    number: usize,
    members: Vec<usize>,
    racks: BTreeSet<Rack>,
}

impl<'a> Group<'a> {
    fn of(topics: &'a Topics, members: &'a [Member]) -> Self {
        let racks = Racks::of(topics, members);
        let ordered = in_order(members).into_iter();
        let members = ordered.map(|member| (member, racks.of_member(&member.id))).collect();
        Self { members, racks }
    }

    /// The members subscribed to each topic.
    fn readers(&self) -> BTreeMap<&'a str, Rc<Readers>> {
        // Usually all members have one subscription.
        let mut by_subscription: BTreeMap<&[Arc<str>], Vec<usize>> = BTreeMap::new();
        for (position, (member, _)) in self.members.iter().enumerate() {
            by_subscription.entry(&member.subscription.topics).or_default().push(position);
        }
        let (subscriptions, subscribers): (Vec<_>, Vec<_>) = by_subscription.into_iter().unzip();
        let mut by_topic: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (subscription, topics) in subscriptions.into_iter().enumerate() {
            for topic in topics {
                let of_topic = by_topic.entry(topic).or_default();
                // A subscription may name a topic twice.
                if of_topic.last() != Some(&subscription) {
                    of_topic.push(subscription);
                }
            }
        }
        let mut distinct = BTreeMap::new();
        let shared = by_topic.into_iter().map(|(topic, subscriptions)| {
            let number = distinct.len();
            let readers = distinct.entry(subscriptions).or_insert_with_key(|subscriptions| {
                let members = subscriptions.iter().flat_map(|at| &subscribers[*at]).copied();
                let mut members: Vec<usize> = members.collect();
                members.sort_unstable();
                let racks = members.iter().filter_map(|member| self.members[*member].1).collect();
                Rc::new(Readers { number, members, racks })
            });
            (topic, readers.clone())
        });
        shared.collect()
    }
}

/// The partitions of one topic, and the members that share them.
struct Shares<'a> {
    group: &'a Group<'a>,
    name: &'a Arc<str>,
    count: i32,
    readers: Rc<Readers>,
    /// The racks of each partition, as their position in the group's sets.
    sets: &'a [usize],
    racks_differ: bool,
    free: BTreeSet<i32>,
    assigned: BTreeMap<usize, Vec<i32>>,
    /// Partitions for each member.
    least: usize,
    /// Members that may get one more.
    with_more: usize,
}

impl<'a> Shares<'a> {
    fn of(
        group: &'a Group<'a>,
        name: &'a Arc<str>,
        layout: &Layout,
        readers: &Rc<Readers>,
    ) -> Self {
        let free: BTreeSet<i32> = (0..layout.count).collect();
        let sets = group.racks.of_topic(name);
        Self {
            group,
            name,
            count: layout.count,
            racks_differ: group.racks.differ(&readers.racks, sets.iter().copied()),
            sets,
            assigned: BTreeMap::new(),
            least: free.len() / readers.members.len().max(1),
            with_more: free.len() % readers.members.len().max(1),
            free,
            readers: readers.clone(),
        }
    }

    /// Whether the partition is in the member's rack. A member without a rack is at home in all.
    fn fits(&self, member: usize, index: i32) -> bool {
        let set = || self.sets.get(usize::try_from(index).ok()?);
        let is_in = |rack| set().is_some_and(|set| self.group.racks.set(*set).contains(&rack));
        self.group.members[member].1.is_none_or(is_in)
    }

    /// How many more partitions the member may get.
    fn room(&self, member: usize) -> usize {
        let most = self.least.saturating_add(usize::from(self.with_more > 0));
        most.saturating_sub(self.assigned.get(&member).map_or(0, Vec::len))
    }

    fn give(&mut self, member: usize, index: i32) {
        self.free.remove(&index);
        let assigned = self.assigned.entry(member).or_default();
        assigned.push(index);
        if assigned.len() > self.least {
            self.with_more = self.with_more.saturating_sub(1);
        }
    }

    /// Fills each member's share with the first partitions that it may have.
    fn assign_ranges(&mut self, may: fn(&Self, usize, i32) -> bool) {
        let readers = self.readers.clone();
        for &member in &readers.members {
            if self.free.is_empty() {
                return;
            }
            let fitting = self.free.iter().copied().filter(|index| may(self, member, *index));
            let range: Vec<i32> = fitting.take(self.room(member)).collect();
            for index in range {
                self.give(member, index);
            }
        }
    }

    /// Assigns the rest, and reports the partitions of each member.
    fn finish(mut self, assignments: &mut Assignments) {
        self.assign_ranges(|_, _, _| true);
        for (member, partitions) in self.assigned {
            if let Some(assigned) = assignments.get_mut(&self.group.members[member].0.id) {
                assigned.extend(partitions.into_iter().map(|index| (self.name.clone(), index)));
            }
        }
    }
}
