//! One step of a member towards its part of the target assignment.
//!
//! A member keeps its epoch until it has revoked the partitions it must lose. Then it receives the
//! target's epoch and all its partitions that no other member holds. The others follow as their
//! holders revoke them.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::{ErrorCode, Uuid};

use super::{
    Refused,
    member::{Current, Epochs, MemberState, Partitions},
};

/// The inputs of a step.
pub(super) struct Towards<'a> {
    /// The target assignment's epoch.
    pub(super) epoch: i32,
    /// The member's partitions in the target.
    pub(super) target: &'a Partitions,
    /// The existing topics to which the member subscribes now.
    pub(super) subscribed: &'a BTreeSet<Uuid>,
    /// Whether the subscription differs from that of its last heartbeat.
    pub(super) subscription_changed: bool,
    /// The partitions the member reports as its own, if it reports them.
    pub(super) owned: Option<&'a Partitions>,
    /// Whether another member holds a partition.
    pub(super) held_by_another: &'a dyn Fn(Uuid, i32) -> bool,
}

impl Towards<'_> {
    /// Returns the member's assignment after the step, unchanged if there is nothing to do yet.
    ///
    /// # Errors
    /// FENCED_MEMBER_EPOCH for a member in an unknown state, which must rejoin.
    pub(super) fn step(&self, member: &Current) -> Result<Current, Refused> {
        match member.state {
            MemberState::Stable if member.epoch != self.epoch => Ok(self.next(member)),
            MemberState::Stable if self.subscription_changed => Ok(self.narrowed(member)),
            MemberState::Stable => Ok(member.clone()),
            MemberState::UnrevokedPartitions if !self.owns_any_of(&member.revoking) => {
                Ok(self.next(member))
            }
            MemberState::UnrevokedPartitions if self.subscription_changed => {
                Ok(self.narrowed(member))
            }
            MemberState::UnrevokedPartitions => Ok(member.clone()),
            MemberState::UnreleasedPartitions => Ok(self.next(member)),
            MemberState::Unknown if self.owned.is_none_or(|owned| !owned.is_empty()) => {
                let reason = "the member is in a state that is not known, and must join again";
                Err(Refused::new(ErrorCode::FENCED_MEMBER_EPOCH, reason))
            }
            MemberState::Unknown => Ok(self.next(&Current { epoch: self.epoch, ..member.clone() })),
        }
    }

    /// Returns whether the member may still have one of these partitions. If it does not report its
    /// partitions, it may.
    fn owns_any_of(&self, epochs: &Epochs) -> bool {
        let Some(owned) = self.owned else { return true };
        owned.iter().any(|(topic, partitions)| {
            epochs
                .get(topic)
                .is_some_and(|of| partitions.iter().any(|index| of.contains_key(index)))
        })
    }

    /// Returns the assignment in the same epoch, without topics that the member no longer
    /// subscribes to.
    fn narrowed(&self, member: &Current) -> Current {
        let unwanted = |topic: &Uuid| !self.subscribed.contains(topic);
        if !member.assigned.keys().any(unwanted) {
            return member.clone();
        }
        let mut assigned = Epochs::new();
        let mut revoking = member.revoking.clone();
        for (topic, partitions) in &member.assigned {
            let into = if unwanted(topic) { &mut revoking } else { &mut assigned };
            into.entry(*topic).or_default().extend(partitions);
        }
        if self.owns_any_of(&revoking) {
            let state = MemberState::UnrevokedPartitions;
            return updated(member, member.epoch, state, assigned, revoking);
        }
        let Current { epoch, state, revoking, .. } = member.clone();
        updated(member, epoch, state, assigned, revoking)
    }

    fn next(&self, member: &Current) -> Current {
        let nothing = (BTreeSet::new(), BTreeMap::new());
        let topics: BTreeSet<&Uuid> = self.target.keys().chain(member.assigned.keys()).collect();
        let (mut assigned, mut revoking, mut given) =
            (Epochs::new(), Epochs::new(), Partitions::new());
        let mut waits = false;
        for topic in topics {
            let target = self.target.get(topic).filter(|_| self.subscribed.contains(topic));
            let target = target.unwrap_or(&nothing.0);
            let has = member.assigned.get(topic).unwrap_or(&nothing.1);
            for (partition, epoch) in has {
                let into = if target.contains(partition) { &mut assigned } else { &mut revoking };
                into.entry(*topic).or_default().insert(*partition, *epoch);
            }
            for partition in target.iter().filter(|partition| !has.contains_key(partition)) {
                if (self.held_by_another)(*topic, *partition) {
                    waits = true;
                } else {
                    given.entry(*topic).or_default().insert(*partition);
                }
            }
        }
        if self.owns_any_of(&revoking) && !revoking.is_empty() {
            let state = MemberState::UnrevokedPartitions;
            return updated(member, member.epoch, state, assigned, revoking);
        }
        for (topic, partitions) in given {
            let epochs = partitions.into_iter().map(|partition| (partition, self.epoch));
            assigned.entry(topic).or_default().extend(epochs);
        }
        let state = if waits { MemberState::UnreleasedPartitions } else { MemberState::Stable };
        updated(member, self.epoch, state, assigned, Epochs::new())
    }
}

fn updated(
    member: &Current,
    epoch: i32,
    state: MemberState,
    assigned: Epochs,
    revoking: Epochs,
) -> Current {
    Current { epoch, previous_epoch: member.epoch, state, assigned, revoking }
}
