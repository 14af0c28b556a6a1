//! Heartbeats, leaving and expiry of members.

use curtail_wire::ErrorCode;
use tokio::time::Instant;

use super::{Group, GroupState, JoinDeadline, Output, Outputs};

impl Group {
    /// Handles a member's heartbeat.
    ///
    /// # Errors
    /// REBALANCE_IN_PROGRESS tells the member to rejoin. Other errors mean that it is not a member
    /// of this generation.
    pub(crate) fn heartbeat(
        &mut self,
        now: Instant,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        self.check_member(member_id, instance_id)?;
        self.check_generation(generation)?;
        self.heard_of(now, member_id);
        match self.state {
            GroupState::Empty => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            GroupState::PreparingRebalance => Err(ErrorCode::REBALANCE_IN_PROGRESS),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
        }
    }

    /// Removes members, each identified by its member id or, if static, by its instance id. Returns
    /// one result per member.
    pub(crate) fn leave(
        &mut self,
        now: Instant,
        now_ms: i64,
        leaving: &[(String, Option<String>)],
    ) -> (Vec<Result<(), ErrorCode>>, Outputs) {
        let mut out = Outputs::new();
        let before = self.members.len();
        let results: Vec<_> = leaving
            .iter()
            .map(|(id, instance_id)| self.leave_one(id, instance_id.as_deref(), &mut out))
            .collect();
        let members_left = self.members.len() < before;
        self.after_removal(now, now_ms, members_left, &mut out);
        (results, out)
    }

    fn leave_one(
        &mut self,
        id: &str,
        instance_id: Option<&str>,
        out: &mut Outputs,
    ) -> Result<(), ErrorCode> {
        if instance_id.is_none() && self.pending.remove(id).is_some() {
            return Ok(());
        }
        let known = instance_id.and_then(|instance_id| self.statics.get(instance_id)).cloned();
        // Tools that remove a static member do not know its member id.
        let id = match (id, instance_id, known) {
            ("", Some(_), Some(known)) => known,
            _ => id.to_owned(),
        };
        self.check_member(&id, instance_id)?;
        self.remove_member(&id, out);
        Ok(())
    }

    /// Removes a member. Its waiting requests receive UNKNOWN_MEMBER_ID.
    pub(super) fn remove_member(&mut self, id: &str, out: &mut Outputs) {
        let Some(member) = self.members.remove(id) else { return };
        let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
        if let Some(waiter) = member.joining {
            out.push(Output::Joined { waiter, answer: Err((unknown, id.to_owned())) });
        }
        if let Some(waiter) = member.syncing {
            out.push(Output::Synced { waiter, answer: Err(unknown) });
        }
        if let Some(instance_id) = &member.instance_id {
            self.statics.remove(instance_id);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// Continues after the removal of members or of unused member ids.
    fn after_removal(&mut self, now: Instant, now_ms: i64, members_left: bool, out: &mut Outputs) {
        match self.state {
            GroupState::Stable | GroupState::CompletingRebalance if members_left => {
                self.rebalance_or_complete(now, now_ms, out);
            }
            GroupState::PreparingRebalance => self.complete_if_all_joined(now, now_ms, out),
            GroupState::Empty | GroupState::Stable | GroupState::CompletingRebalance => {}
        }
    }

    /// Returns when [`Group::expire`] is due next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let members = self.members.values().filter_map(|member| member.expires);
        let pending = self.pending.values().copied();
        members.chain(pending).chain(self.join_due()).chain(self.sync_deadline).min()
    }

    /// Removes members whose session has expired, and ends overdue rebalances.
    pub(crate) fn expire(&mut self, now: Instant, now_ms: i64) -> Outputs {
        let mut out = Outputs::new();
        self.pending.retain(|_, until| *until > now);
        let mut gone = Vec::new();
        for (id, member) in &mut self.members {
            if member.expires.is_none_or(|at| at > now) {
                continue;
            }
            // A member that waits for a response keeps its session. New members are an exception:
            // nothing else would end their wait.
            let waits = member.joining.is_some() || member.syncing.is_some();
            if waits && !member.is_new {
                member.expires = None;
            } else {
                gone.push(id.clone());
            }
        }
        if self.sync_deadline.is_some_and(|at| at <= now) {
            self.sync_deadline = None;
            let late = self.members.iter().filter(|(_, member)| member.must_sync);
            gone.extend(late.map(|(id, _)| id.clone()));
        }
        for id in &gone {
            self.remove_member(id, &mut out);
        }
        self.after_removal(now, now_ms, !gone.is_empty(), &mut out);
        if self.join_due().is_some_and(|at| at <= now) {
            self.join_timed_out(now, now_ms, &mut out);
        }
        out
    }

    fn join_due(&self) -> Option<Instant> {
        self.join_deadline.map(|deadline| match deadline {
            JoinDeadline::Initial { at, .. } | JoinDeadline::At(at) => at,
        })
    }
}
