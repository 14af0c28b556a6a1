//! The group's epoch and its target assignment.

use std::collections::BTreeMap;

use super::{
    Draft, Moment, Topics,
    assignor::{MemberSpec, Spec},
    change::Change,
};

impl Draft {
    /// Begins a new epoch if members or their subscriptions have changed, or if the subscribed
    /// topics have.
    pub(super) fn refresh(&mut self, topics: &Topics<'_>, members_changed: bool) {
        let version = Some(topics.image.version);
        if !members_changed && self.group.checked == version {
            return;
        }
        self.group.checked = version;
        let hash = topics.hash(self.group.subscribed().into_iter());
        if members_changed || hash != self.group.metadata_hash {
            self.change(Change::Group(Some((self.group.epoch + 1, hash))));
        }
    }

    /// Computes a target for the group's epoch if there is none, at most once per assignment
    /// interval (KIP-1263).
    pub(super) fn assign(&mut self, at: Moment, topics: &Topics<'_>) {
        let group = &self.group;
        if group.assignment_epoch >= group.epoch {
            return;
        }
        let interval = group.settings.assignment_interval.as_millis();
        let interval = i64::try_from(interval).unwrap_or(i64::MAX);
        let due = group.assignment_timestamp.saturating_add(interval);
        // Without an interval, a clock that was set back must not delay the target.
        if group.assignment_timestamp != 0 && interval != 0 && at.now_ms < due {
            return;
        }
        let members = group.members.iter().map(|(id, member)| {
            let spec = MemberSpec {
                instance_id: member.profile.instance_id.clone(),
                topics: topics.ids(group.wanted(&member.profile)),
                target: group.target(id),
            };
            (id.clone(), spec)
        });
        let members: BTreeMap<_, _> = members.collect();
        let partitions = |topic: &_| topics.partitions(topic);
        let assigned = group.assignor().assign(&Spec { members, partitions: &partitions });
        for (id, target) in assigned {
            if self.group.targets.get(&id).is_none_or(|known| **known != target) {
                self.change(Change::Target(id, Some(target)));
            }
        }
        self.change(Change::TargetEpoch(Some((self.group.epoch, at.now_ms))));
    }
}
