//! Leaving, expiry, and their consequences.

use std::sync::Arc;

use curtail_wire::ErrorCode;
use tokio::time::Instant;

use super::{
    Draft, Moment, Refused, Step, StreamsGroup,
    change::{Change, GroupValue},
    heartbeat::{Beat, Heartbeat},
    member::{Member, MemberState},
};

impl StreamsGroup {
    /// Handles a heartbeat with which a member leaves.
    pub(super) fn leave_by_heartbeat(&self, request: &Heartbeat) -> Result<Step<Beat>, Refused> {
        let id = request.member_id.as_str();
        self.members.get(id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let mut draft = Draft::of(self);
        if request.shutdown && draft.group.shutdown_by.is_none() {
            draft.group.shutdown_by = Some(id.into());
        }
        draft.remove(id);
        Ok(draft.done(Beat { epoch: request.epoch, ..Beat::default() }))
    }

    /// Removes members whose session has expired, or that have not revoked their tasks in time. Computes the first
    /// target of a group that has waited for more members.
    pub(crate) fn expire(&self, at: Moment) -> Step<()> {
        let mut draft = Draft::of(self);
        let epoch_of = |id: &str| self.members.get(id).map(|member| member.current.epoch);
        for id in draft.group.deadlines.expire(at.now, epoch_of) {
            draft.remove(&id);
        }
        if draft.group.delayed_until.is_some_and(|until| until <= at.now) {
            draft.group.delayed_until = None;
            if !draft.group.is_empty() && draft.group.configured.is_some() {
                draft.assign(at);
            }
        }
        draft.done(())
    }

    /// Postpones everything due to this time, after storing it has failed. A delayed target is left to the next
    /// heartbeat, which can report why it fails: tried here again, it would keep expired members, too.
    pub(crate) fn postpone(&mut self, now: Instant, until: Instant) {
        self.deadlines.postpone(now, until);
        self.delayed_until = self.delayed_until.filter(|due| *due > now);
    }

    /// Sets the deadline for a member to revoke its tasks.
    pub(super) fn watch_rebalance(&mut self, now: Instant, id: &str, member: &Arc<Member>) {
        let (profile, current) = (&member.profile, &member.current);
        let must_revoke = current.state == MemberState::UnrevokedTasks;
        let from = must_revoke.then_some(current.epoch);
        self.deadlines.set_rebalance(now, id, profile.rebalance_timeout_ms, from);
    }
}

impl Draft {
    /// Removes a member and begins a new epoch.
    fn remove(&mut self, id: &str) {
        self.change(Change::Current(id.to_owned(), None));
        self.change(Change::Target(id.to_owned(), None));
        self.change(Change::Member(id.to_owned(), None));
        let value = &self.group.value;
        let value = GroupValue { epoch: value.epoch + 1, ..value.clone() };
        self.change(Change::Group(Some(value)));
    }
}
