//! Distributes partitions as evenly as possible, then with as few moves as possible.
//!
//! If all members subscribe to the same topics, each keeps its partitions up to its share, and the
//! rest fills the other members. Otherwise each unassigned partition goes to the subscriber with
//! the fewest partitions. Then partitions move from the subscribers with the most, until no topic's
//! subscribers differ by more than one.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::Uuid;

use super::{Partitions, Spec};

/// Balancing rounds for overlapping subscriptions.
const ROUNDS: usize = 16;

pub(super) fn assign(spec: &Spec<'_>) -> BTreeMap<String, Partitions> {
    match spec.common_topics() {
        Some(topics) => same_topics(spec, topics),
        None => different_topics(spec),
    }
}

fn same_topics(spec: &Spec<'_>, topics: &BTreeSet<Uuid>) -> BTreeMap<String, Partitions> {
    let mut free: BTreeSet<(Uuid, i32)> = topics
        .iter()
        .flat_map(|topic| (0..(spec.partitions)(topic)).map(|index| (*topic, index)))
        .collect();
    let count = spec.members.len().max(1);
    let (share, mut extra) = (free.len() / count, free.len() % count);
    let mut assigned = BTreeMap::new();
    let mut unfilled = Vec::new();
    let mut released = Vec::new();
    for member in spec.members.values() {
        for (topic, partitions) in &member.target {
            partitions.iter().for_each(|index| {
                free.remove(&(*topic, *index));
            });
        }
    }
    for (position, (id, member)) in spec.members.iter().enumerate() {
        let mut quota = share + usize::from(extra > 0);
        let mut has_extra = extra > 0;
        let mut target = Partitions::new();
        for (topic, partitions) in &member.target {
            if !topics.contains(topic) {
                continue;
            }
            for index in partitions {
                if quota > 0 {
                    quota -= 1;
                    target.entry(*topic).or_default().insert(*index);
                } else {
                    released.push((*topic, *index));
                }
            }
        }
        // A member without use for the extra partition leaves it to a later member, unless every
        // remaining member must take one.
        if quota > 0 && has_extra && count - position > extra {
            quota -= 1;
            has_extra = false;
        }
        extra -= usize::from(has_extra);
        if quota > 0 {
            unfilled.push((id.clone(), quota));
        }
        assigned.insert(id.clone(), target);
    }
    let mut rest = free.into_iter().chain(released);
    for (id, quota) in unfilled {
        let target: &mut Partitions = assigned.entry(id).or_default();
        for (topic, index) in rest.by_ref().take(quota) {
            target.entry(topic).or_default().insert(index);
        }
    }
    assigned
}

/// The state of [`different_topics`]. A member is identified by its position in the order of ids.
struct Balance {
    sizes: Vec<usize>,
    /// The owner of each partition of a topic.
    owners: BTreeMap<Uuid, Vec<Option<usize>>>,
    subscribers: BTreeMap<Uuid, Vec<usize>>,
}

fn different_topics(spec: &Spec<'_>) -> BTreeMap<String, Partitions> {
    let ids: Vec<&String> = spec.members.keys().collect();
    let mut balance = Balance::new(spec);
    let order = balance.order();
    for topic in &order {
        balance.fill(topic);
    }
    balance.even_out(&order);
    let mut assigned: BTreeMap<String, Partitions> =
        ids.iter().map(|id| ((*id).clone(), Partitions::new())).collect();
    for (topic, owners) in &balance.owners {
        for (owner, index) in owners.iter().zip(0..) {
            let id = owner.and_then(|owner| ids.get(owner));
            if let Some(target) = id.and_then(|id| assigned.get_mut(*id)) {
                target.entry(*topic).or_default().insert(index);
            }
        }
    }
    assigned
}

impl Balance {
    /// Starts with the partitions that members already have and still subscribe to.
    fn new(spec: &Spec<'_>) -> Self {
        let mut sizes = vec![0; spec.members.len()];
        let mut owners: BTreeMap<Uuid, Vec<Option<usize>>> = BTreeMap::new();
        let mut subscribers: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
        for (position, member) in spec.members.values().enumerate() {
            for topic in &member.topics {
                let count = usize::try_from((spec.partitions)(topic)).unwrap_or(0);
                let of = owners.entry(*topic).or_insert_with(|| vec![None; count]);
                subscribers.entry(*topic).or_default().push(position);
                for index in member.target.get(topic).into_iter().flatten() {
                    let place = usize::try_from(*index).ok().and_then(|index| of.get_mut(index));
                    if let Some(place) = place
                        && place.is_none()
                    {
                        *place = Some(position);
                        sizes[position] += 1;
                    }
                }
            }
        }
        Self { sizes, owners, subscribers }
    }

    /// Orders topics: many partitions per subscriber first, then few subscribers first.
    fn order(&self) -> Vec<Uuid> {
        let mut topics: Vec<Uuid> = self.owners.keys().copied().collect();
        let size = |topic: &Uuid| {
            let partitions = self.owners.get(topic).map_or(0, Vec::len);
            (partitions, self.subscribers.get(topic).map_or(0, Vec::len).max(1))
        };
        topics.sort_by(|one, other| {
            let ((p1, s1), (p2, s2)) = (size(one), size(other));
            (p2 * s1).cmp(&(p1 * s2)).then(s1.cmp(&s2)).then(one.cmp(other))
        });
        topics
    }

    /// Orders a topic's subscribers by their number of partitions, fewest first. On a tie the order
    /// of ids applies.
    fn ranked(&self, topic: &Uuid) -> Vec<usize> {
        let mut members = self.subscribers.get(topic).cloned().unwrap_or_default();
        members.sort_by_key(|member| (self.sizes[*member], *member));
        members
    }

    /// Assigns a topic's unowned partitions to the subscribers with the fewest partitions.
    fn fill(&mut self, topic: &Uuid) {
        let ranked = self.ranked(topic);
        let mut least: BTreeSet<(usize, usize)> =
            ranked.iter().enumerate().map(|(rank, member)| (self.sizes[*member], rank)).collect();
        let Some(owners) = self.owners.get_mut(topic) else { return };
        for owner in owners.iter_mut().filter(|owner| owner.is_none()) {
            let Some((size, rank)) = least.pop_first() else { return };
            least.insert((size + 1, rank));
            *owner = Some(ranked[rank]);
            self.sizes[ranked[rank]] += 1;
        }
    }

    /// Moves partitions until a whole round moves none.
    fn even_out(&mut self, order: &[Uuid]) {
        for _ in 0..ROUNDS {
            let moved: usize = order.iter().map(|topic| self.even_out_topic(topic)).sum();
            if moved == 0 {
                return;
            }
        }
    }

    /// Moves partitions of a topic from the subscribers with the most to those with the fewest.
    fn even_out_topic(&mut self, topic: &Uuid) -> usize {
        let ranked = self.ranked(topic);
        let Some(owners) = self.owners.get_mut(topic) else { return 0 };
        let ranks: BTreeMap<usize, usize> =
            ranked.iter().enumerate().map(|(rank, member)| (*member, rank)).collect();
        let mut of: Vec<Vec<usize>> = vec![Vec::new(); ranked.len()];
        for (index, owner) in owners.iter().enumerate() {
            if let Some(rank) = owner.and_then(|owner| ranks.get(&owner)) {
                of[*rank].push(index);
            }
        }
        let sized = ranked.iter().enumerate();
        let mut least: BTreeSet<(usize, usize)> =
            sized.map(|(rank, member)| (self.sizes[*member], rank)).collect();
        // Of the subscribers with the most, only owners of a partition of this topic can lose one.
        let mut most: BTreeSet<(usize, usize)> =
            least.iter().filter(|(_, rank)| !of[*rank].is_empty()).copied().collect();
        let mut moved = 0;
        while let (Some((few, to)), Some((many, from))) =
            (least.first().copied(), most.last().copied())
        {
            if many <= few + 1 {
                break;
            }
            let Some(index) = of[from].pop() else { break };
            owners[index] = Some(ranked[to]);
            of[to].push(index);
            self.sizes[ranked[from]] -= 1;
            self.sizes[ranked[to]] += 1;
            for (size, rank, now) in [(few, to, few + 1), (many, from, many - 1)] {
                least.remove(&(size, rank));
                most.remove(&(size, rank));
                least.insert((now, rank));
                if !of[rank].is_empty() {
                    most.insert((now, rank));
                }
            }
            moved += 1;
        }
        moved
    }
}
