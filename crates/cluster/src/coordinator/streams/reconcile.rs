//! One step of a member towards its part of the target assignment.
//!
//! A member keeps its epoch until it has revoked the tasks it must lose. Then it receives the target's epoch and
//! the tasks that are free. An active task is free once no member runs it. A task is also not free while another
//! member of the same process has it in any role, because both would use one directory of state.

use std::collections::BTreeMap;

use curtail_wire::ErrorCode;

use super::{
    Refused,
    member::{Current, Held, MemberState, Roles, Tasks, tasks},
};

/// The inputs of a step.
pub(super) struct Towards<'a> {
    /// The target assignment's epoch.
    pub(super) epoch: i32,
    /// The member's tasks in the target.
    pub(super) target: &'a Roles,
    /// The tasks the member reports as its own, if it reports them.
    pub(super) owned: Option<&'a Roles>,
    /// Whether any member runs a task.
    pub(super) is_active: &'a dyn Fn(&str, i32) -> bool,
    /// Whether the member's process has a task, as a standby or warmup task only or in any role.
    pub(super) is_copied: &'a dyn Fn(&str, i32) -> bool,
    pub(super) is_in_process: &'a dyn Fn(&str, i32) -> bool,
}

impl Towards<'_> {
    /// Returns the member's assignment after the step, unchanged if there is nothing to do yet.
    ///
    /// # Errors
    /// FENCED_MEMBER_EPOCH for a member in an unknown state, which must rejoin.
    pub(super) fn step(&self, member: &Current) -> Result<Current, Refused> {
        match member.state {
            MemberState::Stable if member.epoch == self.epoch => Ok(member.clone()),
            MemberState::UnrevokedTasks if self.may_own(&member.revoking) => Ok(member.clone()),
            // The next revocation is part of the next epoch.
            MemberState::UnrevokedTasks => Ok(self.next(member, member.epoch + 1)),
            MemberState::Stable | MemberState::UnreleasedTasks => {
                Ok(self.next(member, member.epoch))
            }
            MemberState::Unknown if self.owned.is_none_or(|owned| !owned.is_empty()) => {
                let reason = "the member is in a state that is not known, and must join again";
                Err(Refused::new(ErrorCode::FENCED_MEMBER_EPOCH, reason))
            }
            MemberState::Unknown => Ok(self.next(member, self.epoch)),
        }
    }

    /// Returns whether the member may still have one of these tasks. If it does not report its tasks, it may.
    fn may_own(&self, held: &Held) -> bool {
        self.owned.is_none_or(|owned| owned.intersects(held))
    }

    fn next(&self, member: &Current, epoch: i32) -> Current {
        let mut moved = Moved::default();
        let has = &member.assigned;
        for (subtopology, partition) in has.active() {
            let since = has.active[subtopology][&partition];
            let into = match contains(&self.target.active, subtopology, partition) {
                true => &mut moved.kept,
                false => &mut moved.revoking,
            };
            into.active.entry(subtopology.to_owned()).or_default().insert(partition, since);
        }
        for (subtopology, partition) in tasks(&self.target.active) {
            let known = has.active.get(subtopology);
            if known.is_some_and(|known| known.contains_key(&partition)) {
                continue;
            }
            if (self.is_active)(subtopology, partition) || (self.is_copied)(subtopology, partition)
            {
                moved.waits = true;
                continue;
            }
            let given = moved.given.active.entry(subtopology.to_owned()).or_default();
            given.insert(partition, self.epoch);
        }
        let copies = [
            (&has.standby, &self.target.standby, (|held| &mut held.standby) as Role),
            (&has.warmup, &self.target.warmup, |held| &mut held.warmup),
        ];
        for (has, target, role) in copies {
            self.compare(has, target, role, &mut moved);
        }
        self.moved(member, epoch, moved)
    }

    fn compare(&self, has: &Tasks, target: &Tasks, role: Role, moved: &mut Moved) {
        for (subtopology, partition) in tasks(has) {
            let into = match contains(target, subtopology, partition) {
                true => &mut moved.kept,
                false => &mut moved.revoking,
            };
            role(into).entry(subtopology.to_owned()).or_default().insert(partition);
        }
        for (subtopology, partition) in tasks(target) {
            if contains(has, subtopology, partition) {
                continue;
            }
            if (self.is_in_process)(subtopology, partition) {
                moved.waits = true;
                continue;
            }
            role(&mut moved.given).entry(subtopology.to_owned()).or_default().insert(partition);
        }
    }

    fn moved(&self, member: &Current, epoch: i32, moved: Moved) -> Current {
        let Moved { kept, revoking, given, waits } = moved;
        let updated = |epoch, state, assigned, revoking| Current {
            epoch,
            previous_epoch: member.epoch,
            state,
            assigned,
            revoking,
        };
        if !revoking.is_empty() && self.may_own(&revoking) {
            return updated(epoch, MemberState::UnrevokedTasks, kept, revoking);
        }
        let state = if waits { MemberState::UnreleasedTasks } else { MemberState::Stable };
        updated(self.epoch, state, merged(kept, given), Held::default())
    }
}

/// The tasks of one role.
type Role = fn(&mut Held) -> &mut Tasks;

/// The difference between what a member has and its part of the target.
#[derive(Default)]
struct Moved {
    kept: Held,
    revoking: Held,
    given: Held,
    /// Whether a task of the target is not free.
    waits: bool,
}

fn contains(of: &Tasks, subtopology: &str, partition: i32) -> bool {
    of.get(subtopology).is_some_and(|known| known.contains(&partition))
}

fn merged(mut kept: Held, given: Held) -> Held {
    fn extend<T: Extend<I> + Default + IntoIterator<Item = I>, I>(
        into: &mut BTreeMap<String, T>,
        more: BTreeMap<String, T>,
    ) {
        for (subtopology, tasks) in more {
            into.entry(subtopology).or_default().extend(tasks);
        }
    }
    extend(&mut kept.active, given.active);
    extend(&mut kept.standby, given.standby);
    extend(&mut kept.warmup, given.warmup);
    kept
}
