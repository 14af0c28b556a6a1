//! Leaving, expiry, and their consequences.

use std::sync::Arc;

use curtail_wire::ErrorCode;
use tokio::time::Instant;

use super::{
    ConsumerGroup, Draft, Refused, Step, Topics,
    change::Change,
    heartbeat::{Beat, Heartbeat},
    member::{LEFT_FOR_NOW, Member, MemberState},
};

impl ConsumerGroup {
    /// Handles a heartbeat with which a member leaves; a static member may leave temporarily.
    pub(super) fn leave_by_heartbeat(
        &self,
        topics: &Topics<'_>,
        request: &Heartbeat,
    ) -> Result<Step<Beat>, Refused> {
        let id = request.member_id.as_str();
        match &request.instance_id {
            Some(instance_id) => {
                self.static_member(instance_id, id)?;
            }
            None => {
                self.members.get(id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            }
        }
        let mut draft = self.draft();
        if request.instance_id.is_some() && request.epoch == LEFT_FOR_NOW {
            if let Some(member) = self.members.get(id) {
                draft.change(Change::Current(id.to_owned(), Some(member.current.left_for_now())));
            }
        } else {
            draft.remove(topics, &[id.to_owned()]);
        }
        let answer = Beat {
            member_id: id.to_owned(),
            epoch: request.epoch,
            heartbeat_interval: None,
            assignment: None,
            resolve: None,
        };
        Ok(draft.done(answer))
    }

    /// Handles LeaveGroup: removes members, each identified by its member id or, if static, by its
    /// instance id. Returns one result per member.
    pub(crate) fn leave(
        &self,
        topics: &Topics<'_>,
        leaving: &[(String, Option<String>)],
    ) -> Step<Vec<Result<(), ErrorCode>>> {
        let mut gone = Vec::new();
        let mut leave = |id: &String, instance_id: Option<&String>| {
            let id = match instance_id {
                None => self.members.get_key_value(id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?.0,
                Some(instance_id) => {
                    let known =
                        self.statics.get(instance_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
                    // Tools that remove a static member do not know its member id.
                    if !id.is_empty() && id != known {
                        return Err(ErrorCode::FENCED_INSTANCE_ID);
                    }
                    known
                }
            };
            gone.push(id.clone());
            Ok(())
        };
        let results = leaving.iter().map(|(id, instance)| leave(id, instance.as_ref())).collect();
        let mut draft = self.draft();
        draft.remove(topics, &gone);
        draft.done(results)
    }

    /// Removes members whose session has expired, or that have not revoked their partitions in
    /// time.
    pub(crate) fn expire(&self, now: Instant, topics: &Topics<'_>) -> Step<()> {
        let mut draft = self.draft();
        let epoch_of = |id: &str| self.members.get(id).map(|member| member.current.epoch);
        let gone = draft.group.deadlines.expire(now, epoch_of);
        draft.remove(topics, &gone);
        draft.done(())
    }

    /// Postpones everything due to this time, after storing it has failed.
    pub(crate) fn postpone(&mut self, now: Instant, until: Instant) {
        self.deadlines.postpone(now, until);
    }

    /// Sets the deadline for a member to revoke its partitions.
    pub(super) fn watch_rebalance(&mut self, now: Instant, id: &str, member: &Arc<Member>) {
        let (profile, current) = (&member.profile, &member.current);
        let must_revoke = current.state == MemberState::UnrevokedPartitions;
        let from = must_revoke.then_some(current.epoch);
        self.deadlines.set_rebalance(now, id, profile.rebalance_timeout_ms, from);
    }
}

impl Draft {
    /// Removes members and their otherwise unused regular expressions, and begins a new epoch.
    fn remove(&mut self, topics: &Topics<'_>, ids: &[String]) {
        if ids.is_empty() {
            return;
        }
        for id in ids {
            self.tombstones(id);
        }
        self.forget_unused_regexes();
        self.refresh(topics, true);
    }

    pub(super) fn tombstones(&mut self, id: &str) {
        self.change(Change::Current(id.to_owned(), None));
        self.change(Change::Target(id.to_owned(), None));
        self.change(Change::Member(id.to_owned(), None));
    }

    /// Deletes resolved regular expressions without a subscriber.
    pub(super) fn forget_unused_regexes(&mut self) {
        let wanted = self.group.expressions();
        let unused = self.group.regexes.keys().filter(|regex| !wanted.contains(*regex)).cloned();
        for regex in unused.collect::<Vec<_>>() {
            self.change(Change::Regex(regex, None));
        }
    }
}
