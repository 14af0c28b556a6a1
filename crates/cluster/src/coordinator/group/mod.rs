//! One group of the classic protocol, as Kafka's coordinator treats it. Pure: the time is passed in, requests that wait
//! are numbers, and what must be stored or answered comes back as [`Output`]s.
//!
//! Methods: `join`, `sync`, `heartbeat`, `leave` for requests ([`join`]), `stored` for what became of an
//! [`Output::Store`], `expire` and `deadline` for time ([`members`]), `may_commit`, `describe` and `value` for readers.
//!
//! A group lives from its first join or commit until it is deleted or expires. States and transitions:
//!
//! - Empty: no members; there may be offsets. A join leads to PreparingRebalance.
//! - PreparingRebalance: members are asked to join again. When all have, or the rebalance timeout is over, the
//!   generation grows and the group is CompletingRebalance, or Empty if nobody came.
//! - CompletingRebalance: waits for the leader's assignment. Once that is stored the group is Stable.
//! - Stable: members heartbeat. A member that comes, goes or changes leads to PreparingRebalance.
//!
//! Kafka's Dead is a group that is not there any more.

mod join;
mod members;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use curtail_wire::ErrorCode;
use tokio::time::Instant;

use super::records::{GroupValue, MemberValue};

pub(crate) use join::{Join, SyncRequest};

/// A request that waits for an answer of the group.
pub(crate) type Waiter = u64;

/// How the machine is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupConfig {
    /// `group.initial.rebalance.delay.ms`.
    pub(crate) initial_rebalance_delay: Duration,
}

/// Where a group stands; the names are those that Kafka's tools show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl GroupState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// What a member learns of the generation it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) leader: String,
    pub(crate) member_id: String,
    /// A static leader that came back takes the assignment as it is (KIP-814).
    pub(crate) skip_assignment: bool,
    /// For the leader: id, instance id and metadata of everybody.
    pub(crate) members: Vec<(String, Option<String>, Bytes)>,
}

/// The answer to a JoinGroup request: an error goes with the member id it is about.
pub(crate) type JoinAnswer = Result<Joined, (ErrorCode, String)>;

/// What a member gets to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) assignment: Bytes,
}

pub(crate) type SyncAnswer = Result<Synced, ErrorCode>;

/// Why a group is to be stored, and what to do then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The last member has left.
    Empty,
    /// The leader's assignment of a generation.
    Assignment { generation: i32 },
    /// A static member came back under another id and waits for this answer.
    Replaced { waiter: Waiter, answer: Joined },
}

/// What the machine wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Joined {
        waiter: Waiter,
        answer: JoinAnswer,
    },
    Synced {
        waiter: Waiter,
        answer: SyncAnswer,
    },
    /// Append this value and tell [`Group::stored`] when it is committed, or that it will not be.
    Store {
        value: GroupValue,
        then: Stored,
    },
}

type Outputs = Vec<Output>;

/// A member of the group.
#[derive(Clone, Debug)]
struct Member {
    instance_id: Option<String>,
    client_id: String,
    client_host: String,
    rebalance_timeout: Duration,
    session_timeout: Duration,
    /// Its protocols in the order it prefers them, with its metadata for each.
    protocols: Vec<(String, Bytes)>,
    assignment: Bytes,
    /// Not yet in any generation. It does not know its id, so it cannot send heartbeats.
    is_new: bool,
    /// In a new generation, and has not asked for its assignment yet.
    must_sync: bool,
    joining: Option<Waiter>,
    syncing: Option<Waiter>,
    /// When its session ends unless it is heard of.
    expires: Option<Instant>,
}

impl Member {
    fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }

    /// The first of the candidates in the member's order.
    fn vote<'a>(&'a self, candidates: &[&str]) -> Option<&'a str> {
        self.protocols.iter().map(|(name, _)| name.as_str()).find(|name| candidates.contains(name))
    }
}

/// When a rebalance ends even if not everybody has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinDeadline {
    /// The first rebalance of a group waits a little for more members to come, and again when some have.
    Initial {
        at: Instant,
        remaining: Duration,
    },
    At(Instant),
}

/// See the head of this module.
#[derive(Debug)]
pub(crate) struct Group {
    config: GroupConfig,
    state: GroupState,
    /// Since when, in ms since the Unix epoch; -1 when not known.
    state_timestamp: i64,
    protocol_type: Option<String>,
    generation: i32,
    protocol: Option<String>,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Member ids of static members by instance id.
    statics: BTreeMap<String, String>,
    /// Ids given out (MEMBER_ID_REQUIRED) and not used yet, with their end.
    pending: BTreeMap<String, Instant>,
    join_deadline: Option<JoinDeadline>,
    /// Somebody came during the initial rebalance.
    new_member_added: bool,
    /// When those members of a new generation are dropped that have not asked for their assignment.
    sync_deadline: Option<Instant>,
    /// The leader's assignment while it is being stored.
    storing: Option<BTreeMap<String, Bytes>>,
}

impl Group {
    /// A group without members.
    pub(crate) fn new(config: GroupConfig, now_ms: i64) -> Self {
        Self {
            config,
            state: GroupState::Empty,
            state_timestamp: now_ms,
            protocol_type: None,
            generation: 0,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            statics: BTreeMap::new(),
            pending: BTreeMap::new(),
            join_deadline: None,
            new_member_added: false,
            sync_deadline: None,
            storing: None,
        }
    }

    /// The group as it was stored. Its members' sessions begin with [`Group::resume`].
    pub(crate) fn load(config: GroupConfig, value: GroupValue) -> Self {
        let mut group = Self::new(config, value.state_timestamp);
        group.protocol_type = Some(value.protocol_type).filter(|kind| !kind.is_empty());
        group.generation = value.generation;
        group.protocol = value.protocol.clone();
        group.leader = value.leader;
        let protocol = value.protocol.unwrap_or_default();
        for stored in value.members {
            if let Some(instance_id) = &stored.instance_id {
                group.statics.insert(instance_id.clone(), stored.id.clone());
            }
            group.members.insert(stored.id.clone(), Member::load(stored, &protocol));
        }
        if !group.members.is_empty() {
            group.state = GroupState::Stable;
        }
        group
    }

    /// Begins the sessions of the members of a loaded group.
    pub(crate) fn resume(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            member.expires = Some(now + member.session_timeout);
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        self.state
    }

    /// Since when the group is in its state, in ms since the Unix epoch; -1 when not known.
    pub(crate) fn state_timestamp(&self) -> i64 {
        self.state_timestamp
    }

    /// What the members call what they do, "consumer" for consumers; empty for groups that only keep offsets.
    pub(crate) fn protocol_type(&self) -> &str {
        self.protocol_type.as_deref().unwrap_or_default()
    }

    /// The protocol of the current generation, empty before there is one.
    pub(crate) fn protocol(&self) -> &str {
        self.protocol.as_deref().unwrap_or_default()
    }

    /// Nobody is in it, and nobody is about to be.
    pub(crate) fn is_unused(&self) -> bool {
        self.state == GroupState::Empty && self.pending.is_empty()
    }

    /// The members; what they do is known in a stable group only.
    pub(crate) fn describe(&self) -> Vec<MemberValue> {
        let stable = self.state == GroupState::Stable;
        let members = self.members.iter().map(|(id, member)| {
            let mut value = member.value(id, self.protocol());
            if !stable {
                value.subscription = Bytes::new();
                value.assignment = Bytes::new();
            }
            value
        });
        members.collect()
    }

    /// The members' metadata for the current protocol.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.members.values().map(|member| member.metadata(self.protocol()))
    }

    /// The group as it is to be stored.
    fn value(&self, assignment: Option<&BTreeMap<String, Bytes>>) -> GroupValue {
        let members = self.members.iter().map(|(id, member)| {
            let mut value = member.value(id, self.protocol());
            if let Some(assignment) = assignment {
                value.assignment = assignment.get(id).cloned().unwrap_or_default();
            }
            value
        });
        GroupValue {
            protocol_type: self.protocol_type().to_owned(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_timestamp: self.state_timestamp,
            members: members.collect(),
        }
    }

    fn enter(&mut self, state: GroupState, now_ms: i64) {
        self.state = state;
        self.state_timestamp = now_ms;
    }

    /// Checks who commits offsets outside of a transaction; a member's commit is a sign of life.
    ///
    /// # Errors
    /// As Kafka: an unknown, fenced or late member, or one that commits while its assignment is being made.
    pub(crate) fn may_commit(
        &mut self,
        now: Instant,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        self.may_commit_in_transaction(member_id, instance_id, generation)?;
        let named = generation >= 0 || !member_id.is_empty() || instance_id.is_some();
        if !named && self.state != GroupState::Empty {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        match self.state {
            GroupState::CompletingRebalance => return Err(ErrorCode::REBALANCE_IN_PROGRESS),
            GroupState::Stable | GroupState::PreparingRebalance => self.heard_of(now, member_id),
            GroupState::Empty => {}
        }
        Ok(())
    }

    /// Checks who commits offsets in a transaction: a producer that names no member may, in any state (KIP-447).
    ///
    /// # Errors
    /// As Kafka: an unknown, fenced or late member.
    pub(crate) fn may_commit_in_transaction(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        if generation < 0 && self.state == GroupState::Empty {
            return Ok(());
        }
        if generation >= 0 || !member_id.is_empty() || instance_id.is_some() {
            self.check_member(member_id, instance_id)?;
            self.check_generation(generation)?;
        }
        Ok(())
    }

    /// Checks that offsets may be deleted. Those of topics that members read must stay.
    ///
    /// # Errors
    /// NON_EMPTY_GROUP when the members are not consumers, so that nobody can tell what they read.
    pub(crate) fn may_delete_offsets(&self) -> Result<(), ErrorCode> {
        match self.state {
            GroupState::Empty => Ok(()),
            _ if self.protocol_type() == CONSUMER => Ok(()),
            _ => Err(ErrorCode::NON_EMPTY_GROUP),
        }
    }

    /// Checks that a member is known, and under a static name that it is the one that has it.
    fn check_member(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.statics.get(instance_id) {
                None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
                Some(known) if known != member_id => return Err(ErrorCode::FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        if !self.members.contains_key(member_id) {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        Ok(())
    }

    fn check_generation(&self, generation: i32) -> Result<(), ErrorCode> {
        if generation == self.generation { Ok(()) } else { Err(ErrorCode::ILLEGAL_GENERATION) }
    }

    fn heard_of(&mut self, now: Instant, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.expires = Some(now + member.session_timeout);
        }
    }
}

/// The protocol type of consumers.
pub(crate) const CONSUMER: &str = "consumer";

impl Member {
    fn load(stored: MemberValue, protocol: &str) -> Self {
        let millis = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        Self {
            instance_id: stored.instance_id,
            client_id: stored.client_id,
            client_host: stored.client_host,
            rebalance_timeout: millis(stored.rebalance_timeout_ms),
            session_timeout: millis(stored.session_timeout_ms),
            protocols: vec![(protocol.to_owned(), stored.subscription)],
            assignment: stored.assignment,
            is_new: false,
            must_sync: false,
            joining: None,
            syncing: None,
            expires: None,
        }
    }

    fn value(&self, id: &str, protocol: &str) -> MemberValue {
        let millis = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        MemberValue {
            id: id.to_owned(),
            instance_id: self.instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: millis(self.rebalance_timeout),
            session_timeout_ms: millis(self.session_timeout),
            subscription: self.metadata(protocol),
            assignment: self.assignment.clone(),
        }
    }
}
