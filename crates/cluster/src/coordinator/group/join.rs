//! Joins, rebalances and assignments.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use curtail_wire::ErrorCode;
use tokio::time::Instant;

use super::{
    Group, GroupState, JoinAnswer, JoinDeadline, Joined, Member, Output, Outputs, Stored, Synced,
    Waiter,
};

/// How long a member that does not know its id yet may wait in a rebalance, as in Kafka's
/// `group.new.member.join.timeout.ms`. It sends no heartbeats, so its session cannot detect a lost
/// member.
const NEW_MEMBER_TIMEOUT: Duration = Duration::from_secs(300);

/// Lower bound of the rebalance timeout, so that a rebalance that cannot complete does not spin.
const SHORTEST_REBALANCE: Duration = Duration::from_millis(10);

/// A JoinGroup request.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    /// Empty for a member without an id.
    pub(crate) member_id: String,
    /// The id assigned to a member without one.
    pub(crate) new_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    pub(crate) protocol_type: String,
    pub(crate) protocols: Vec<(String, Bytes)>,
    /// Whether a dynamic member must rejoin with its assigned id (KIP-394).
    pub(crate) needs_known_id: bool,
    /// Whether a static leader that rejoined may be told to skip the assignment (KIP-814).
    pub(crate) may_skip_assignment: bool,
}

/// A SyncGroup request.
#[derive(Clone, Debug)]
pub(crate) struct SyncRequest {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    /// Assignments, from the leader only.
    pub(crate) assignments: BTreeMap<String, Bytes>,
}

impl Group {
    /// Handles a JoinGroup request. The response follows immediately or at the end of the
    /// rebalance.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        now_ms: i64,
        join: Join,
        waiter: Waiter,
    ) -> Outputs {
        let mut out = Outputs::new();
        if let Err(code) = self.try_join(now, now_ms, join.clone(), waiter, &mut out) {
            let member_id = match code {
                ErrorCode::MEMBER_ID_REQUIRED => join.new_id,
                _ => join.member_id,
            };
            out.push(Output::Joined { waiter, answer: Err((code, member_id)) });
        }
        out
    }

    fn try_join(
        &mut self,
        now: Instant,
        now_ms: i64,
        join: Join,
        waiter: Waiter,
        out: &mut Outputs,
    ) -> Result<(), ErrorCode> {
        if !self.supports(&join) {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        if join.member_id.is_empty() {
            let known = join.instance_id.as_ref().and_then(|id| self.statics.get(id)).cloned();
            return match known {
                Some(old_id) => {
                    self.replace_static(now, now_ms, &old_id, join, waiter, out);
                    Ok(())
                }
                None if join.needs_known_id && join.instance_id.is_none() => {
                    self.pending.insert(join.new_id, now + join.session_timeout);
                    Err(ErrorCode::MEMBER_ID_REQUIRED)
                }
                None => {
                    let id = join.new_id.clone();
                    self.add_member(now, now_ms, id, join, waiter, out);
                    Ok(())
                }
            };
        }
        if join.instance_id.is_none() && self.pending.remove(&join.member_id).is_some() {
            let id = join.member_id.clone();
            self.add_member(now, now_ms, id, join, waiter, out);
            return Ok(());
        }
        self.check_member(&join.member_id, join.instance_id.as_deref())?;
        self.join_again(now, now_ms, join, waiter, out);
        Ok(())
    }

    /// Returns whether the group and the member have a protocol in common.
    fn supports(&self, join: &Join) -> bool {
        if self.members.is_empty() {
            return !join.protocol_type.is_empty() && !join.protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(join.protocol_type.as_str())
            && join.protocols.iter().any(|(name, _)| self.all_support(name))
    }

    fn all_support(&self, protocol: &str) -> bool {
        let supports = |member: &Member| member.protocols.iter().any(|(name, _)| name == protocol);
        self.members.values().all(supports)
    }

    /// A known member rejoins: its response was lost, its metadata changed, or a rebalance is in
    /// progress.
    fn join_again(
        &mut self,
        now: Instant,
        now_ms: i64,
        join: Join,
        waiter: Waiter,
        out: &mut Outputs,
    ) {
        let leads = self.leader.as_ref() == Some(&join.member_id);
        let same = self.members.get(&join.member_id).is_some_and(|m| m.protocols == join.protocols);
        let repeat = match self.state {
            GroupState::CompletingRebalance => same,
            // The leader rejoins to trigger a new assignment.
            GroupState::Stable => same && !leads,
            GroupState::Empty | GroupState::PreparingRebalance => false,
        };
        if repeat {
            let answer = self.generation_for(&join.member_id, leads);
            out.push(Output::Joined { waiter, answer: Ok(answer) });
            return;
        }
        let id = join.member_id.clone();
        self.update_member(now, &id, join, waiter, out);
        self.rebalance_or_complete(now, now_ms, out);
    }

    fn generation_for(&self, member_id: &str, with_members: bool) -> Joined {
        let of = |(id, member): (&String, &Member)| {
            (id.clone(), member.instance_id.clone(), member.metadata(self.protocol()))
        };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type().to_owned(),
            protocol: self.protocol().to_owned(),
            leader: self.leader.clone().unwrap_or_default(),
            member_id: member_id.to_owned(),
            skip_assignment: false,
            members: if with_members { self.members.iter().map(of).collect() } else { Vec::new() },
        }
    }

    fn add_member(
        &mut self,
        now: Instant,
        now_ms: i64,
        id: String,
        join: Join,
        waiter: Waiter,
        out: &mut Outputs,
    ) {
        if matches!(self.join_deadline, Some(JoinDeadline::Initial { .. })) {
            self.new_member_added = true;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        if let Some(instance_id) = &join.instance_id {
            self.statics.insert(instance_id.clone(), id.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        let member = Member {
            instance_id: join.instance_id,
            client_id: join.client_id,
            client_host: join.client_host,
            rebalance_timeout: join.rebalance_timeout,
            session_timeout: join.session_timeout,
            protocols: join.protocols,
            assignment: Bytes::new(),
            is_new: true,
            must_sync: false,
            joining: Some(waiter),
            syncing: None,
            expires: Some(now + NEW_MEMBER_TIMEOUT),
        };
        self.members.insert(id, member);
        self.rebalance_or_complete(now, now_ms, out);
    }

    fn update_member(
        &mut self,
        now: Instant,
        id: &str,
        join: Join,
        waiter: Waiter,
        out: &mut Outputs,
    ) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.protocols = join.protocols;
        member.rebalance_timeout = join.rebalance_timeout;
        member.session_timeout = join.session_timeout;
        if !member.is_new {
            member.expires = Some(now + member.session_timeout);
        }
        // Only a member's newest request receives the generation.
        if let Some(waiter) = member.joining.replace(waiter) {
            let answer = Err((ErrorCode::REBALANCE_IN_PROGRESS, id.to_owned()));
            out.push(Output::Joined { waiter, answer });
        }
    }

    /// A restarted static member replaces its previous id (KIP-345).
    fn replace_static(
        &mut self,
        now: Instant,
        now_ms: i64,
        old_id: &str,
        join: Join,
        waiter: Waiter,
        out: &mut Outputs,
    ) {
        let Some(mut member) = self.members.remove(old_id) else { return };
        let fenced = ErrorCode::FENCED_INSTANCE_ID;
        if let Some(waiter) = member.joining.take() {
            out.push(Output::Joined { waiter, answer: Err((fenced, old_id.to_owned())) });
        }
        if let Some(waiter) = member.syncing.take() {
            out.push(Output::Synced { waiter, answer: Err(fenced) });
        }
        let id = join.new_id.clone();
        let old_leader = self.leader.clone().unwrap_or_default();
        if old_leader == old_id {
            self.leader = Some(id.clone());
        }
        if let Some(instance_id) = &join.instance_id {
            self.statics.insert(instance_id.clone(), id.clone());
        }
        member.client_id = join.client_id.clone();
        member.client_host = join.client_host.clone();
        member.expires = Some(now + join.session_timeout);
        let may_skip_assignment = join.may_skip_assignment;
        self.members.insert(id.clone(), member);
        self.update_member(now, &id, join, waiter, out);
        if self.state != GroupState::Stable || self.select_protocol() != self.protocol {
            self.rebalance_or_complete(now, now_ms, out);
            return;
        }
        // The other members are not affected, so the generation continues.
        if let Some(member) = self.members.get_mut(&id) {
            member.joining = None;
        }
        let leads = self.leader.as_ref() == Some(&id);
        let mut answer = self.generation_for(&id, leads && may_skip_assignment);
        if may_skip_assignment {
            answer.skip_assignment = leads;
        } else {
            // An older client that learns that it leads would compute a new assignment.
            answer.leader = old_leader;
        }
        let value = self.value(None);
        out.push(Output::Store { value, then: Stored::Replaced { waiter, answer } });
    }

    /// Selects the protocol with the most votes among those that all members support.
    fn select_protocol(&self) -> Option<String> {
        let first = self.members.values().next()?;
        let candidates: Vec<&str> = first
            .protocols
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| self.all_support(name))
            .collect();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for vote in self.members.values().filter_map(|member| member.vote(&candidates)) {
            *votes.entry(vote).or_default() += 1;
        }
        // On a tie the first candidate wins.
        let most = votes.values().copied().max()?;
        candidates
            .iter()
            .find(|name| votes.get(*name) == Some(&most))
            .map(|name| (*name).to_owned())
    }

    /// Starts a rebalance, or completes the current one if all members have joined.
    pub(super) fn rebalance_or_complete(&mut self, now: Instant, now_ms: i64, out: &mut Outputs) {
        if self.state != GroupState::PreparingRebalance {
            self.prepare_rebalance(now, now_ms, out);
        }
        self.complete_if_all_joined(now, now_ms, out);
    }

    fn prepare_rebalance(&mut self, now: Instant, now_ms: i64, out: &mut Outputs) {
        if self.state == GroupState::CompletingRebalance {
            self.fail_sync(now, ErrorCode::REBALANCE_IN_PROGRESS, out);
        }
        self.sync_deadline = None;
        self.storing = None;
        let rebalance_timeout = self.rebalance_timeout();
        let delay = self.config.initial_rebalance_delay;
        self.new_member_added = false;
        self.join_deadline = Some(match self.state {
            GroupState::Empty if !delay.is_zero() => JoinDeadline::Initial {
                at: now + delay,
                remaining: rebalance_timeout.saturating_sub(delay),
            },
            _ => JoinDeadline::At(now + rebalance_timeout),
        });
        self.enter(GroupState::PreparingRebalance, now_ms);
    }

    /// The longest rebalance timeout of all members.
    pub(super) fn rebalance_timeout(&self) -> Duration {
        let longest = self.members.values().map(|member| member.rebalance_timeout).max();
        longest.unwrap_or_default().max(SHORTEST_REBALANCE)
    }

    pub(super) fn complete_if_all_joined(&mut self, now: Instant, now_ms: i64, out: &mut Outputs) {
        let preparing = self.state == GroupState::PreparingRebalance;
        let initial = matches!(self.join_deadline, Some(JoinDeadline::Initial { .. }));
        let all = self.members.values().all(|member| member.joining.is_some());
        if preparing && !initial && all && self.pending.is_empty() {
            self.complete_join(now, now_ms, out);
        }
    }

    /// Handles the end of the join timeout.
    pub(super) fn join_timed_out(&mut self, now: Instant, now_ms: i64, out: &mut Outputs) {
        if let Some(JoinDeadline::Initial { at, remaining }) = self.join_deadline
            && self.new_member_added
            && !remaining.is_zero()
        {
            let delay = self.config.initial_rebalance_delay.min(remaining);
            self.new_member_added = false;
            let remaining = remaining.saturating_sub(delay);
            self.join_deadline = Some(JoinDeadline::Initial { at: at + delay, remaining });
            return;
        }
        self.complete_join(now, now_ms, out);
    }

    /// Starts the next generation with the members that have joined. Static members stay in it even
    /// if they have not.
    fn complete_join(&mut self, now: Instant, now_ms: i64, out: &mut Outputs) {
        let gone: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| member.joining.is_none() && member.instance_id.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.remove_member(&id, out);
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            // Only static members remain, and none has rejoined: they get another full timeout.
            self.join_deadline = Some(JoinDeadline::At(now + self.rebalance_timeout()));
            return;
        }
        self.join_deadline = None;
        self.generation = self.generation.wrapping_add(1).max(0);
        if self.members.is_empty() {
            self.protocol = None;
            self.leader = None;
            self.enter(GroupState::Empty, now_ms);
            out.push(Output::Store { value: self.value(None), then: Stored::Empty });
            return;
        }
        self.protocol = self.select_protocol();
        self.enter(GroupState::CompletingRebalance, now_ms);
        self.sync_deadline = Some(now + self.rebalance_timeout());
        let joined: Vec<String> = self.members.keys().cloned().collect();
        for id in joined {
            let leads = self.leader.as_ref() == Some(&id);
            let answer = self.generation_for(&id, leads);
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.expires = Some(now + member.session_timeout);
            member.is_new = false;
            member.must_sync = true;
            if let Some(waiter) = member.joining.take() {
                out.push(Output::Joined { waiter, answer: Ok(answer) });
            }
        }
    }

    /// Ensures that the leader has joined; returns false if no member has.
    fn elect_joined_leader(&mut self) -> bool {
        let joined = |id: &String| self.members.get(id).is_some_and(|m| m.joining.is_some());
        if self.leader.as_ref().is_some_and(joined) {
            return true;
        }
        let next = self.members.iter().find(|(_, member)| member.joining.is_some());
        let Some((id, _)) = next else { return false };
        self.leader = Some(id.clone());
        true
    }

    /// Handles a SyncGroup request. The response follows once the leader's assignment is stored.
    pub(crate) fn sync(&mut self, now: Instant, request: SyncRequest, waiter: Waiter) -> Outputs {
        let mut out = Outputs::new();
        match self.try_sync(now, request, waiter, &mut out) {
            Ok(None) => {}
            Ok(Some(synced)) => out.push(Output::Synced { waiter, answer: Ok(synced) }),
            Err(code) => out.push(Output::Synced { waiter, answer: Err(code) }),
        }
        out
    }

    fn try_sync(
        &mut self,
        now: Instant,
        request: SyncRequest,
        waiter: Waiter,
        out: &mut Outputs,
    ) -> Result<Option<Synced>, ErrorCode> {
        let id = request.member_id;
        self.check_member(&id, request.instance_id.as_deref())?;
        self.check_generation(request.generation)?;
        let differs = |named: &Option<String>, own: &str| named.as_ref().is_some_and(|n| n != own);
        if differs(&request.protocol_type, self.protocol_type())
            || differs(&request.protocol, self.protocol())
        {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.must_sync = false;
        }
        if self.members.values().all(|member| !member.must_sync) {
            self.sync_deadline = None;
        }
        match self.state {
            GroupState::Empty => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            GroupState::PreparingRebalance => Err(ErrorCode::REBALANCE_IN_PROGRESS),
            GroupState::Stable => {
                self.heard_of(now, &id);
                Ok(Some(self.assignment_of(&id)))
            }
            GroupState::CompletingRebalance => {
                if let Some(member) = self.members.get_mut(&id)
                    && let Some(waiter) = member.syncing.replace(waiter)
                {
                    let answer = Err(ErrorCode::REBALANCE_IN_PROGRESS);
                    out.push(Output::Synced { waiter, answer });
                }
                if self.leader.as_ref() == Some(&id) && self.storing.is_none() {
                    let value = self.value(Some(&request.assignments));
                    self.storing = Some(request.assignments);
                    let then = Stored::Assignment { generation: self.generation };
                    out.push(Output::Store { value, then });
                }
                Ok(None)
            }
        }
    }

    fn assignment_of(&self, id: &str) -> Synced {
        let assignment = self.members.get(id).map(|member| member.assignment.clone());
        Synced {
            protocol_type: self.protocol_type().to_owned(),
            protocol: self.protocol().to_owned(),
            assignment: assignment.unwrap_or_default(),
        }
    }

    /// Handles the outcome of an [`Output::Store`].
    pub(crate) fn stored(
        &mut self,
        now: Instant,
        now_ms: i64,
        stored: Stored,
        result: Result<(), ErrorCode>,
    ) -> Outputs {
        let mut out = Outputs::new();
        match stored {
            Stored::Empty => {}
            Stored::Replaced { waiter, answer } => {
                let answer: JoinAnswer = match result {
                    Ok(()) => Ok(answer),
                    Err(code) => Err((code, String::new())),
                };
                out.push(Output::Joined { waiter, answer });
            }
            Stored::Assignment { generation } => {
                let current =
                    self.state == GroupState::CompletingRebalance && self.generation == generation;
                // A newer rebalance has already responded to the waiting requests.
                if !current {
                    return out;
                }
                let mut assignments = self.storing.take().unwrap_or_default();
                if let Err(code) = result {
                    self.fail_sync(now, code, &mut out);
                    self.rebalance_or_complete(now, now_ms, &mut out);
                    return out;
                }
                for (id, member) in &mut self.members {
                    member.assignment = assignments.remove(id).unwrap_or_default();
                }
                self.enter(GroupState::Stable, now_ms);
                self.give_out(now, &mut out);
            }
        }
        out
    }

    /// Sends the assignment to all members that wait for it.
    fn give_out(&mut self, now: Instant, out: &mut Outputs) {
        let waiting: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| member.syncing.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        for id in waiting {
            let synced = self.assignment_of(&id);
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.expires = Some(now + member.session_timeout);
            if let Some(waiter) = member.syncing.take() {
                out.push(Output::Synced { waiter, answer: Ok(synced) });
            }
        }
    }

    /// Fails all requests that wait for this generation's assignment.
    fn fail_sync(&mut self, now: Instant, code: ErrorCode, out: &mut Outputs) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
            if let Some(waiter) = member.syncing.take() {
                member.expires = Some(now + member.session_timeout);
                out.push(Output::Synced { waiter, answer: Err(code) });
            }
        }
    }
}
