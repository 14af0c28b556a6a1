//! The partition assignors of a consumer group, with the results of the Java client's.
//!
//! The group's leader runs an assignor. Its input is each member's subscription and current partitions, and the
//! partition counts of the topics. It assigns every partition of a subscribed topic to one member subscribed to it.
//! The results are those of Kafka 4.3. Where the Java client follows the order of a hash map, this code follows the
//! order of member ids. All but [`Assignor::RoundRobin`] prefer partitions with a replica in the member's rack
//! (KIP-881).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use curtail_wire::consumer_protocol::{self, Partitions, StickyData, Subscription};

mod racks;
mod range;
mod round_robin;
mod sticky;
#[cfg(test)]
mod tests;

/// A partition: topic and index.
pub type Key = (Arc<str>, i32);

/// The partitions of each topic. Topics that do not exist are left out.
pub type Topics = BTreeMap<Arc<str>, Layout>;

/// A topic's partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Their number.
    pub count: i32,
    /// Racks with a replica, by partition index. Empty if racks are not to be matched.
    pub racks: Vec<RackSet>,
}

/// The racks of a partition. Partitions with the same racks share it.
pub type RackSet = Arc<BTreeSet<Arc<str>>>;

impl From<i32> for Layout {
    /// That many partitions, without racks.
    fn from(count: i32) -> Self {
        Self { count, racks: Vec::new() }
    }
}

/// Partitions by member id; every member has an entry.
pub type Assignments = BTreeMap<Arc<str>, Vec<Key>>;

/// How a group moves partitions between members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebalance {
    /// Every member revokes all its partitions before it joins again.
    Eager,
    /// Members keep their partitions. In one rebalance they revoke those that must move, and the next rebalance
    /// assigns those (KIP-429).
    Cooperative,
}

/// An entry of `partition.assignment.strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Topic by topic, adjacent partitions together.
    Range,
    /// One partition after the other, to the members in turn.
    RoundRobin,
    /// Balanced, and close to the previous assignment.
    Sticky,
    /// As [`Self::Sticky`], with the cooperative protocol.
    CooperativeSticky,
}

/// A member, as its group's leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Member id.
    pub id: Arc<str>,
    /// `group.instance.id`.
    pub instance: Option<Arc<str>>,
    /// Subscription and owned partitions.
    pub subscription: Subscription,
}

impl Member {
    /// `client.rack`.
    fn rack(&self) -> Option<&str> {
        self.subscription.rack.as_deref().filter(|rack| !rack.is_empty())
    }
}

impl Assignor {
    /// All assignors.
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

    /// The rebalance protocol of members with these assignors: cooperative only if every assignor supports it.
    pub fn rebalance(assignors: &[Self]) -> Rebalance {
        if !assignors.is_empty() && assignors.iter().all(|a| *a == Self::CooperativeSticky) {
            Rebalance::Cooperative
        } else {
            Rebalance::Eager
        }
    }

    /// User data of a member for this assignor. `last` is the member's last assignment, and its generation.
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

    /// Assigns every partition to a member. `members` have different ids.
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

/// Whether a member has a rack, so that [`Layout::racks`] make a difference.
pub fn any_rack(members: &[Member]) -> bool {
    members.iter().any(|member| member.rack().is_some())
}

/// Every topic that a member subscribes to.
pub fn wanted_topics(members: &[Member]) -> BTreeSet<Arc<str>> {
    // Usually all members have one subscription.
    let distinct: BTreeSet<&[Arc<str>]> =
        members.iter().map(|member| &*member.subscription.topics).collect();
    distinct.into_iter().flatten().cloned().collect()
}

/// Partitions in the form of the protocol: by topic, both in order.
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

/// The reverse of [`by_topic`].
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
