//! The assignors that run on the coordinator: [`uniform`] and [`range`], as Kafka's do.
//!
//! Members are in the order of their ids, where Kafka has the order of a hash map.

mod range;
#[cfg(test)]
mod tests;
mod uniform;

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::Uuid;

use super::member::Partitions;

/// An assignor by its name in the setting `group.consumer.assignors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// As evenly as possible, and with as few moves as possible.
    Uniform,
    /// Ranges of each topic's partitions, the same ones of topics of the same size.
    Range,
}

impl Assignor {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// The assignor of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::Uniform, Self::Range].into_iter().find(|assignor| assignor.name() == name)
    }

    /// Who is to read what.
    pub(super) fn assign(self, spec: &Spec<'_>) -> BTreeMap<String, Partitions> {
        match self {
            Self::Uniform => uniform::assign(spec),
            Self::Range => range::assign(spec),
        }
    }
}

/// A member as an assignor sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberSpec {
    pub(super) instance_id: Option<String>,
    /// Topics that exist.
    pub(super) topics: BTreeSet<Uuid>,
    /// What the last target gave it.
    pub(super) target: Partitions,
}

/// A group as an assignor sees it.
pub(super) struct Spec<'a> {
    pub(super) members: BTreeMap<String, MemberSpec>,
    /// How many partitions a topic has.
    pub(super) partitions: &'a dyn Fn(&Uuid) -> i32,
}

impl Spec<'_> {
    /// The topics, if all members want the same ones.
    fn common_topics(&self) -> Option<&BTreeSet<Uuid>> {
        let mut members = self.members.values();
        let first = &members.next()?.topics;
        members.all(|member| member.topics == *first).then_some(first)
    }

    /// The members that want each topic.
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
