//! The assignors that run on the coordinator, as in Kafka: [`uniform`] and [`range`].
//!
//! Members are ordered by their ids; Kafka uses the order of a hash map.

mod range;
#[cfg(test)]
mod tests;
mod uniform;

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::Uuid;

use super::member::Partitions;

/// An assignor, named as in the setting `group.consumer.assignors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Distributes partitions as evenly as possible, with as few moves as possible.
    Uniform,
    /// Assigns ranges of each topic's partitions. Topics of the same size have the same ranges.
    Range,
}

impl Assignor {
    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// Returns the assignor with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::Uniform, Self::Range].into_iter().find(|assignor| assignor.name() == name)
    }

    /// Computes each member's partitions.
    pub(super) fn assign(self, spec: &Spec<'_>) -> BTreeMap<String, Partitions> {
        match self {
            Self::Uniform => uniform::assign(spec),
            Self::Range => range::assign(spec),
        }
    }
}

/// An assignor's view of a member.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberSpec {
    pub(super) instance_id: Option<String>,
    /// The subscribed topics that exist.
    pub(super) topics: BTreeSet<Uuid>,
    /// Its partitions in the last target.
    pub(super) target: Partitions,
}

/// An assignor's view of a group.
pub(super) struct Spec<'a> {
    pub(super) members: BTreeMap<String, MemberSpec>,
    /// Returns a topic's number of partitions.
    pub(super) partitions: &'a dyn Fn(&Uuid) -> i32,
}

impl Spec<'_> {
    /// Returns the subscribed topics, if all members subscribe to the same ones.
    fn common_topics(&self) -> Option<&BTreeSet<Uuid>> {
        let mut members = self.members.values();
        let first = &members.next()?.topics;
        members.all(|member| member.topics == *first).then_some(first)
    }

    /// Returns the subscribers of each topic.
    fn subscribers(&self) -> BTreeMap<Uuid, Vec<&str>> {
        let mut subscribers: BTreeMap<Uuid, Vec<&str>> = BTreeMap::new();
        for (id, member) in &self.members {
            for topic in &member.topics {
                subscribers.entry(*topic).or_default().push(id);
            }
        }
        subscribers
    }
}
