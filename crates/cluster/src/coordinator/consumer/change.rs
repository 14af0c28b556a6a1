//! Changes of a group, one variant per kind of record. Loading a group and changing it apply the
//! same changes.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    ConsumerGroup,
    member::{Current, LEFT, Member, Partitions, Profile},
};
use crate::coordinator::step::Machine;

/// The topics that match a regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) topics: BTreeSet<String>,
    /// The version of the metadata used.
    pub(crate) version: i64,
    /// The time of the resolution, in ms since the Unix epoch.
    pub(crate) timestamp: i64,
}

/// The change that one record makes. Without a value it deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The group's epoch, and the hash of the metadata of its subscribed topics.
    Group(Option<(i32, i64)>),
    Member(String, Option<Profile>),
    /// The epoch of the target assignment, and its time in ms since the Unix epoch.
    TargetEpoch(Option<(i32, i64)>),
    Target(String, Option<Partitions>),
    Current(String, Option<Current>),
    Regex(String, Option<Resolved>),
}

impl Change {
    pub(crate) fn is_deletion(&self) -> bool {
        match self {
            Self::Group(value) | Self::TargetEpoch(value) => value.is_none(),
            Self::Member(_, value) => value.is_none(),
            Self::Target(_, value) => value.is_none(),
            Self::Current(_, value) => value.is_none(),
            Self::Regex(_, value) => value.is_none(),
        }
    }
}

impl Machine for ConsumerGroup {
    type Change = Change;

    fn apply(&mut self, change: Change) {
        match change {
            Change::Group(Some((epoch, hash))) => {
                self.epoch = epoch;
                self.metadata_hash = hash;
            }
            // The owner of the group drops it as a whole.
            Change::Group(None) => {}
            Change::Member(id, Some(profile)) => {
                if let Some(instance_id) = &profile.instance_id {
                    self.statics.insert(instance_id.clone(), id.clone());
                }
                self.member_mut(id).profile = profile;
            }
            Change::Member(id, None) => self.forget(&id),
            Change::TargetEpoch(value) => {
                (self.assignment_epoch, self.assignment_timestamp) = value.unwrap_or((-1, 0));
            }
            Change::Target(id, Some(target)) => {
                self.targets.insert(id, Arc::new(target));
            }
            Change::Target(id, None) => {
                self.targets.remove(&id);
            }
            Change::Current(id, Some(current)) => self.set_current(id, current),
            Change::Current(id, None) if self.members.contains_key(&id) => {
                let current = Current { epoch: LEFT, previous_epoch: LEFT, ..Current::default() };
                self.set_current(id, current);
            }
            Change::Current(_, None) => {}
            Change::Regex(regex, Some(resolved)) => {
                self.regexes.insert(regex, Arc::new(resolved));
            }
            Change::Regex(regex, None) => {
                self.regexes.remove(&regex);
            }
        }
    }
}

impl ConsumerGroup {
    fn member_mut(&mut self, id: String) -> &mut Member {
        Arc::make_mut(self.members.entry(id).or_default())
    }

    fn set_current(&mut self, id: String, current: Current) {
        let before = self.members.get(&id).cloned();
        for at in before.iter().flat_map(|member| member.current.held()) {
            if self.owners.get(&at).is_some_and(|owner| **owner == *id) {
                self.owners.remove(&at);
            }
        }
        let owner: Arc<str> = id.as_str().into();
        for at in current.held() {
            self.owners.insert(at, Arc::clone(&owner));
        }
        self.member_mut(id).current = current;
    }

    fn forget(&mut self, id: &str) {
        let Some(member) = self.members.remove(id) else { return };
        for at in member.current.held() {
            if self.owners.get(&at).is_some_and(|owner| **owner == *id) {
                self.owners.remove(&at);
            }
        }
        if let Some(instance_id) = &member.profile.instance_id
            && self.statics.get(instance_id).is_some_and(|known| known == id)
        {
            self.statics.remove(instance_id);
        }
        self.deadlines.forget(id);
    }
}
