//! A member: what it has told of itself, and what it has.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::Uuid;

/// Partitions by topic.
pub(crate) type Partitions = BTreeMap<Uuid, BTreeSet<i32>>;

/// Partitions by topic, each with the epoch in which its member was given it (KIP-1251).
pub(crate) type Epochs = BTreeMap<Uuid, BTreeMap<i32, i32>>;

/// The epoch of a member that has left.
pub(crate) const LEFT: i32 = -1;
/// The epoch of a static member that has left and will come back.
pub(crate) const LEFT_FOR_NOW: i32 = -2;

/// Where a member stands on the way to its part of the target assignment. The numbers are those of Kafka's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It has what the target gives it.
    #[default]
    Stable = 0,
    /// It has to let go of partitions before it may have the next epoch.
    UnrevokedPartitions = 1,
    /// It has the epoch of the target, and waits for partitions that others have not let go of.
    UnreleasedPartitions = 2,
    /// A state of a later version.
    Unknown = 127,
}

impl MemberState {
    pub(crate) fn from_number(number: i8) -> Self {
        match number {
            0 => Self::Stable,
            1 => Self::UnrevokedPartitions,
            2 => Self::UnreleasedPartitions,
            _ => Self::Unknown,
        }
    }
}

/// What a member tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) instance_id: Option<String>,
    pub(crate) rack_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) topics: BTreeSet<String>,
    /// Empty when it has none.
    pub(crate) regex: String,
    /// -1 when it is not known.
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) assignor: Option<String>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            instance_id: None,
            rack_id: None,
            client_id: String::new(),
            client_host: String::new(),
            topics: BTreeSet::new(),
            regex: String::new(),
            rebalance_timeout_ms: -1,
            assignor: None,
        }
    }
}

/// What a member has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) epoch: i32,
    /// The epoch before, which a member still has that has not seen the last answer.
    pub(crate) previous_epoch: i32,
    pub(crate) state: MemberState,
    /// What it may read.
    pub(crate) assigned: Epochs,
    /// What it has to let go of, and still has.
    pub(crate) revoking: Epochs,
}

impl Default for Current {
    fn default() -> Self {
        Self {
            epoch: 0,
            previous_epoch: -1,
            state: MemberState::Stable,
            assigned: Epochs::new(),
            revoking: Epochs::new(),
        }
    }
}

impl Current {
    /// Whether it has arrived at this epoch of the target.
    pub(crate) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// Everything nobody else may have.
    pub(crate) fn held(&self) -> impl Iterator<Item = (Uuid, i32)> + '_ {
        self.assigned.iter().chain(&self.revoking).flat_map(|(topic, partitions)| {
            partitions.keys().map(move |partition| (*topic, *partition))
        })
    }

    /// The epoch in which it was given a partition it holds.
    pub(crate) fn epoch_of(&self, topic: Uuid, partition: i32) -> Option<i32> {
        let of = |epochs: &Epochs| epochs.get(&topic)?.get(&partition).copied();
        of(&self.assigned).or_else(|| of(&self.revoking))
    }

    /// The member has left and comes back under another id: what it has counts from epoch 0 on for that one.
    pub(crate) fn left_for_now(&self) -> Self {
        let mut left = Self { epoch: LEFT_FOR_NOW, revoking: Epochs::new(), ..self.clone() };
        left.assigned.values_mut().flat_map(BTreeMap::values_mut).for_each(|epoch| *epoch = 0);
        left
    }
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) profile: Profile,
    pub(crate) current: Current,
}

/// Without the epochs.
pub(crate) fn partitions(epochs: &Epochs) -> Partitions {
    epochs.iter().map(|(topic, of)| (*topic, of.keys().copied().collect())).collect()
}

/// Whether every partition of the one is among the other's.
pub(super) fn is_subset(some: &Partitions, of: &Epochs) -> bool {
    some.iter().all(|(topic, partitions)| {
        partitions.is_empty()
            || of
                .get(topic)
                .is_some_and(|known| partitions.iter().all(|index| known.contains_key(index)))
    })
}
