//! A member: its profile and its tasks.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::cold::newer::streams::Endpoint;

/// Tasks by subtopology. A task reads one partition of each of its subtopology's source topics.
pub(crate) type Tasks = BTreeMap<String, BTreeSet<i32>>;

/// Tasks by subtopology, each with the epoch of its assignment to the member.
pub(crate) type Epochs = BTreeMap<String, BTreeMap<i32, i32>>;

/// Tasks of a member, by role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) active: Tasks,
    pub(crate) standby: Tasks,
    pub(crate) warmup: Tasks,
}

impl Roles {
    pub(crate) fn is_empty(&self) -> bool {
        [&self.active, &self.standby, &self.warmup].iter().all(|tasks| tasks.is_empty())
    }

    /// Returns whether the member still has one of these tasks in the same role.
    pub(super) fn intersects(&self, held: &Held) -> bool {
        let active = tasks(&self.active)
            .any(|(of, at)| held.active.get(of).is_some_and(|epochs| epochs.contains_key(&at)));
        let common = |some: &Tasks, others: &Tasks| {
            tasks(some).any(|(of, at)| others.get(of).is_some_and(|known| known.contains(&at)))
        };
        active || common(&self.standby, &held.standby) || common(&self.warmup, &held.warmup)
    }

    /// Returns whether the member was assigned all of these tasks. As in Kafka, a subtopology must be assigned even
    /// if it is named without tasks.
    pub(super) fn is_within(&self, held: &Held) -> bool {
        let active = self.active.iter().all(|(of, own)| {
            let known = held.active.get(of);
            known.is_some_and(|known| own.iter().all(|at| known.contains_key(at)))
        });
        let within = |some: &Tasks, others: &Tasks| {
            some.iter().all(|(of, own)| others.get(of).is_some_and(|known| own.is_subset(known)))
        };
        active && within(&self.standby, &held.standby) && within(&self.warmup, &held.warmup)
    }
}

/// Tasks that a member holds, by role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) active: Epochs,
    pub(crate) standby: Tasks,
    pub(crate) warmup: Tasks,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.standby.is_empty() && self.warmup.is_empty()
    }

    /// Returns the tasks without their epochs.
    pub(crate) fn roles(&self) -> Roles {
        let active = self.active.iter();
        Roles {
            active: active.map(|(of, at)| (of.clone(), at.keys().copied().collect())).collect(),
            standby: self.standby.clone(),
            warmup: self.warmup.clone(),
        }
    }

    pub(super) fn active(&self) -> impl Iterator<Item = (&str, i32)> {
        self.active.iter().flat_map(|(of, at)| at.keys().map(move |at| (of.as_str(), *at)))
    }

    /// Returns the standby and warmup tasks.
    pub(super) fn copies(&self) -> impl Iterator<Item = (&str, i32)> {
        tasks(&self.standby).chain(tasks(&self.warmup))
    }
}

/// Returns each task.
pub(super) fn tasks(of: &Tasks) -> impl Iterator<Item = (&str, i32)> {
    of.iter().flat_map(|(of, partitions)| partitions.iter().map(move |at| (of.as_str(), *at)))
}

/// A member's progress towards its part of the target assignment. The numbers are those of Kafka's
/// records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It has its part of the target.
    #[default]
    Stable = 1,
    /// It must revoke tasks before it may advance to the next epoch.
    UnrevokedTasks = 2,
    /// It has the target's epoch, and waits for tasks that other members have not revoked yet.
    UnreleasedTasks = 3,
    /// A state of a later version.
    Unknown = 127,
}

impl MemberState {
    pub(crate) fn from_number(number: i8) -> Self {
        match number {
            1 => Self::Stable,
            2 => Self::UnrevokedTasks,
            3 => Self::UnreleasedTasks,
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
    /// -1 if unknown.
    pub(crate) rebalance_timeout_ms: i32,
    /// -1 if unknown.
    pub(crate) topology_epoch: i32,
    /// Members of one process share its state stores.
    pub(crate) process_id: String,
    pub(crate) user_endpoint: Option<Endpoint>,
    pub(crate) client_tags: BTreeMap<String, String>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            instance_id: None,
            rack_id: None,
            client_id: String::new(),
            client_host: String::new(),
            rebalance_timeout_ms: -1,
            topology_epoch: -1,
            process_id: String::new(),
            user_endpoint: None,
            client_tags: BTreeMap::new(),
        }
    }
}

/// A member's current assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) epoch: i32,
    /// The previous epoch. A member that has not received the last response is still in it.
    pub(crate) previous_epoch: i32,
    pub(crate) state: MemberState,
    /// Tasks that it may run.
    pub(crate) assigned: Held,
    /// Tasks that it must revoke and still holds.
    pub(crate) revoking: Held,
}

impl Current {
    /// Returns whether it has reached this epoch of the target.
    pub(crate) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// Returns the epoch in which an active task it holds was assigned.
    pub(super) fn epoch_of(&self, subtopology: &str, partition: i32) -> Option<i32> {
        let of = |held: &Held| held.active.get(subtopology)?.get(&partition).copied();
        of(&self.assigned).or_else(|| of(&self.revoking))
    }
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) profile: Profile,
    pub(crate) current: Current,
}
