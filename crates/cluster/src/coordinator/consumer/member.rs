//! A member: its profile and its partitions.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::Uuid;

/// Partitions by topic.
pub(crate) type Partitions = BTreeMap<Uuid, BTreeSet<i32>>;

/// Partitions by topic, each with the epoch of its assignment to the member (KIP-1251).
pub(crate) type Epochs = BTreeMap<Uuid, BTreeMap<i32, i32>>;

/// The epoch of a member that has left.
pub(crate) const LEFT: i32 = -1;
/// The epoch of a static member that has left temporarily.
pub(crate) const LEFT_FOR_NOW: i32 = -2;

/// A member's progress towards its part of the target assignment. The numbers are those of Kafka's
/// records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It has its part of the target.
    #[default]
    Stable = 0,
    /// It must revoke partitions before it may advance to the next epoch.
    UnrevokedPartitions = 1,
    /// It has the target's epoch, and waits for partitions that other members have not revoked yet.
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

/// The properties a member reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) instance_id: Option<String>,
    pub(crate) rack_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) topics: BTreeSet<String>,
    /// Empty if it has none.
    pub(crate) regex: String,
    /// -1 if unknown.
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

/// A member's current assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) epoch: i32,
    /// The previous epoch. A member that has not received the last response is still in it.
    pub(crate) previous_epoch: i32,
    pub(crate) state: MemberState,
    /// Partitions that it may read.
    pub(crate) assigned: Epochs,
    /// Partitions that it must revoke and still holds.
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
    /// Returns whether it has reached this epoch of the target.
    pub(crate) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// Returns all partitions that no other member may have.
    pub(crate) fn held(&self) -> impl Iterator<Item = (Uuid, i32)> + '_ {
        self.assigned.iter().chain(&self.revoking).flat_map(|(topic, partitions)| {
            partitions.keys().map(move |partition| (*topic, *partition))
        })
    }

    /// Returns the epoch in which a partition it holds was assigned.
    pub(crate) fn epoch_of(&self, topic: Uuid, partition: i32) -> Option<i32> {
        let of = |epochs: &Epochs| epochs.get(&topic)?.get(&partition).copied();
        of(&self.assigned).or_else(|| of(&self.revoking))
    }

    /// Returns the assignment after a temporary leave. The member rejoins under another id, for
    /// which its partitions count from epoch 0.
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

/// Returns the partitions without their epochs.
pub(crate) fn partitions(epochs: &Epochs) -> Partitions {
    epochs.iter().map(|(topic, of)| (*topic, of.keys().copied().collect())).collect()
}

/// Returns whether the second set contains every partition of the first.
pub(super) fn is_subset(some: &Partitions, of: &Epochs) -> bool {
    some.iter().all(|(topic, partitions)| {
        partitions.is_empty()
            || of
                .get(topic)
                .is_some_and(|known| partitions.iter().all(|index| known.contains_key(index)))
    })
}
