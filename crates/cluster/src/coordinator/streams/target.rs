//! The group's target assignment.

use std::collections::BTreeMap;

use super::{
    Draft, Moment,
    assignor::{self, MemberSpec, Spec, SubtopologySpec},
    change::Change,
};

impl Draft {
    /// Computes a target for the group's epoch if there is none, at most once per assignment interval (KIP-1263).
    /// Returns whether the group has one now. Without valid topics the target is empty.
    pub(super) fn assign(&mut self, at: Moment) -> bool {
        let group = &self.group;
        if group.assignment_epoch >= group.value.epoch {
            return true;
        }
        let interval = group.settings.assignment_interval.as_millis();
        let interval = i64::try_from(interval).unwrap_or(i64::MAX);
        let due = group.assignment_timestamp.saturating_add(interval);
        // Without an interval, a clock that was set back must not delay the target.
        if group.assignment_timestamp != 0 && interval != 0 && at.now_ms < due {
            return false;
        }
        let assigned = assignor::assign(&self.spec());
        for (id, target) in assigned {
            if self.group.targets.get(&id).is_none_or(|known| **known != target) {
                self.change(Change::Target(id, Some(target)));
            }
        }
        self.change(Change::TargetEpoch(Some((self.group.value.epoch, at.now_ms))));
        true
    }

    fn spec(&self) -> Spec {
        let group = &self.group;
        let members = group.members.iter().map(|(id, member)| {
            let process_id = member.profile.process_id.clone();
            (id.clone(), MemberSpec { process_id, target: group.target(id) })
        });
        let configured = group.configured().filter(|configured| configured.is_ready());
        let subtopologies = configured.into_iter().flat_map(|configured| &configured.subtopologies);
        let subtopologies = subtopologies.map(|(id, of)| {
            (id.clone(), SubtopologySpec { tasks: of.tasks, is_stateful: of.is_stateful() })
        });
        let subtopologies: BTreeMap<_, _> = subtopologies.collect();
        let standbys = usize::try_from(group.settings.standbys).unwrap_or(0);
        Spec { members: members.collect(), subtopologies, standbys }
    }
}
