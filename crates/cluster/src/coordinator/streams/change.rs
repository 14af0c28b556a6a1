//! Changes of a group, one variant per kind of record.

use std::{collections::BTreeMap, sync::Arc};

use curtail_wire::cold::newer::streams::Topology;

use super::{
    StreamsGroup,
    member::{Current, Member, Profile, Roles},
};
use crate::coordinator::{consumer::LEFT, step::Machine};

/// The group's own values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupValue {
    pub(crate) epoch: i32,
    /// The hash of the metadata of the topology's topics.
    pub(crate) metadata_hash: i64,
    /// The epoch of the topology whose topics were found valid; -1 without one.
    pub(crate) validated_epoch: i32,
    /// The settings of the last target assignment.
    pub(crate) configs: BTreeMap<String, String>,
}

/// The change that one record makes. Without a value it deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Group(Option<GroupValue>),
    Topology(Option<Arc<Topology>>),
    Member(String, Option<Profile>),
    /// The epoch of the target assignment, and its time in ms since the Unix epoch.
    TargetEpoch(Option<(i32, i64)>),
    Target(String, Option<Roles>),
    Current(String, Option<Current>),
}

impl Change {
    pub(crate) fn is_deletion(&self) -> bool {
        match self {
            Self::Group(value) => value.is_none(),
            Self::Topology(value) => value.is_none(),
            Self::Member(_, value) => value.is_none(),
            Self::TargetEpoch(value) => value.is_none(),
            Self::Target(_, value) => value.is_none(),
            Self::Current(_, value) => value.is_none(),
        }
    }
}

impl Machine for StreamsGroup {
    type Change = Change;

    fn apply(&mut self, change: Change) {
        match change {
            Change::Group(Some(value)) => self.value = value,
            // The owner of the group drops it as a whole.
            Change::Group(None) => {}
            Change::Topology(topology) => {
                self.topology = topology;
                self.configured = None;
            }
            Change::Member(id, Some(profile)) => {
                let current = self.members.get(&id).map(|member| member.current.clone());
                self.replace(id, Member { profile, current: current.unwrap_or_default() });
            }
            Change::Member(id, None) => {
                let Some(member) = self.members.remove(&id) else { return };
                self.release(&member);
                self.deadlines.forget(&id);
                if self.members.is_empty() {
                    self.shutdown_by = None;
                }
            }
            Change::TargetEpoch(value) => {
                (self.assignment_epoch, self.assignment_timestamp) = value.unwrap_or((-1, 0));
            }
            Change::Target(id, Some(target)) => {
                self.targets.insert(id, Arc::new(target));
            }
            Change::Target(id, None) => {
                self.targets.remove(&id);
            }
            Change::Current(id, Some(current)) => {
                let profile = self.members.get(&id).map(|member| member.profile.clone());
                self.replace(id, Member { profile: profile.unwrap_or_default(), current });
            }
            Change::Current(id, None) => {
                let Some(member) = self.members.get(&id) else { return };
                let current = Current { epoch: LEFT, previous_epoch: LEFT, ..Current::default() };
                let profile = member.profile.clone();
                self.replace(id, Member { profile, current });
            }
        }
    }
}

impl StreamsGroup {
    /// Replaces a member, whose tasks then belong to its process.
    fn replace(&mut self, id: String, member: Member) {
        if let Some(before) = self.members.get(&id).cloned() {
            self.release(&before);
        }
        let process: Arc<str> = member.profile.process_id.as_str().into();
        for held in [&member.current.assigned, &member.current.revoking] {
            for task in held.active() {
                self.owners.insert((task.0.into(), task.1), Arc::clone(&process));
            }
            for task in held.copies() {
                self.copies.insert((task.0.into(), task.1, Arc::clone(&process)));
            }
        }
        self.members.insert(id, Arc::new(member));
    }

    fn release(&mut self, member: &Member) {
        let process: Arc<str> = member.profile.process_id.as_str().into();
        for held in [&member.current.assigned, &member.current.revoking] {
            for task in held.active() {
                let task = (Arc::from(task.0), task.1);
                if self.owners.get(&task) == Some(&process) {
                    self.owners.remove(&task);
                }
            }
            for task in held.copies() {
                self.copies.remove(&(task.0.into(), task.1, Arc::clone(&process)));
            }
        }
    }
}
