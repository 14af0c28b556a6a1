//! Who reads what in a consumer group: the assignors of the Java client, as its leader runs them.
//!
//! An assignor sees what every member wants and has, and the partitions of the topics they want; it gives every
//! partition of a wanted topic to one member that wants it. The results are those of Kafka 4.3 without racks: rack-aware
//! assignment (KIP-881) is not done here. Where the Java client follows the order of a hash map, the order here is that
//! of member ids.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use curtail_wire::consumer_protocol::{self, Partitions, StickyData, Subscription};

mod range;
mod round_robin;
mod sticky;
#[cfg(test)]
mod tests;

/// A partition: topic and index.
pub type Key = (Arc<str>, i32);

/// How many partitions each topic has. Topics that do not exist are left out.
pub type Topics = BTreeMap<Arc<str>, i32>;

/// Partitions by member id; every member has an entry.
pub type Assignments = BTreeMap<Arc<str>, Vec<Key>>;

/// How a group hands partitions over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebalance {
    /// Every member gives up all its partitions before it joins again.
    Eager,
    /// Members keep what they have, and give up only what is to move, in one rebalance, for the next one to hand it out
    /// (KIP-429).
    Cooperative,
}

/// An entry of `partition.assignment.strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Topic by topic, neighbouring partitions together.
    Range,
    /// One partition after the other, to the members in turn.
    RoundRobin,
    /// Balanced, and close to what was before.
    Sticky,
    /// As [`Self::Sticky`], handing over cooperatively.
    CooperativeSticky,
}

/// A member, as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: Arc<str>,
    /// `group.instance.id`.
    pub instance: Option<Arc<str>>,
    /// What it wants and has.
    pub subscription: Subscription,
}

impl Assignor {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Range, Self::RoundRobin, Self::Sticky, Self::CooperativeSticky];

    /// The protocol's name in the group.
    pub fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
            Self::Sticky => "sticky",
            Self::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// The assignor of a protocol's name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }

    /// How members with these assignors hand partitions over: cooperatively only if every one of them can.
    pub fn rebalance(assignors: &[Self]) -> Rebalance {
        if !assignors.is_empty() && assignors.iter().all(|a| *a == Self::CooperativeSticky) {
            Rebalance::Cooperative
        } else {
            Rebalance::Eager
        }
    }

    /// What a member tells this assignor beside its subscription. `last` is what it was given last, and when.
    pub fn user_data(self, last: Option<(&Partitions, i32)>) -> Option<Bytes> {
        match self {
            Self::Range | Self::RoundRobin => None,
            Self::Sticky => last.map(|(partitions, generation)| {
                let partitions = partitions.clone();
                StickyData { partitions, generation: Some(generation) }.encode()
            }),
            Self::CooperativeSticky => {
                let generation = last.map_or(-1, |(_, generation)| generation);
                Some(consumer_protocol::encode_generation(generation))
            }
        }
    }

    /// Gives every partition to a member. `members` have different ids.
    pub fn assign(self, topics: &Topics, members: &[Member]) -> Assignments {
        match self {
            Self::Range => range::assign(topics, members),
            Self::RoundRobin => round_robin::assign(topics, members),
            Self::Sticky => sticky::assign(topics, members, sticky::claim_of_user_data),
            Self::CooperativeSticky => {
                let mut assignments = sticky::assign(topics, members, sticky::claim_of_owned);
                sticky::withhold(&mut assignments, members);
                assignments
            }
        }
    }
}

/// Every topic that one of the members wants.
pub fn wanted_topics(members: &[Member]) -> BTreeSet<Arc<str>> {
    members.iter().flat_map(|member| member.subscription.topics.iter().cloned()).collect()
}

/// Partitions in the form that members exchange: by topic, both in order.
pub fn by_topic<'a>(partitions: impl IntoIterator<Item = &'a Key>) -> Partitions {
    let mut topics: BTreeMap<Arc<str>, Vec<i32>> = BTreeMap::new();
    for (topic, index) in partitions {
        topics.entry(topic.clone()).or_default().push(*index);
    }
    for indexes in topics.values_mut() {
        indexes.sort_unstable();
    }
    topics.into_iter().collect()
}

/// Partitions out of the form that members exchange.
pub fn flat(partitions: &Partitions) -> Vec<Key> {
    let keys = partitions
        .iter()
        .flat_map(|(topic, indexes)| indexes.iter().map(|index| (topic.clone(), *index)));
    keys.collect()
}

/// The order of members in range and round robin: static members by their instance id, so that it survives restarts,
/// then the others by their member id.
fn in_order(members: &[Member]) -> Vec<&Member> {
    let mut ordered: Vec<&Member> = members.iter().collect();
    ordered.sort_by_key(|member| (member.instance.is_none(), &member.instance, &member.id));
    ordered
}

fn wants(member: &Member, topic: &str) -> bool {
    member.subscription.topics.iter().any(|wanted| **wanted == *topic)
}

fn nothing_for(members: &[Member]) -> Assignments {
    members.iter().map(|member| (member.id.clone(), Vec::new())).collect()
}
