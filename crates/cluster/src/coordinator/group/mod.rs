//! One group of the classic protocol, with the behaviour of Kafka's coordinator.
//!
//! Pure: the caller passes the time in and identifies waiting requests by numbers. Records to store
//! and responses to send are returned as [`Output`]s.
//!
//! Methods: `join`, `sync`, `heartbeat`, `leave` for requests ([`join`]), `stored` for the outcome
//! of an [`Output::Store`], `expire` and `deadline` for time ([`members`]), `may_commit`,
//! `describe` and `value` for readers.
//!
//! A group lives from its first join or commit until it is deleted or expires. States and
//! transitions:
//!
//! - Empty: no members; there may be offsets. A join leads to PreparingRebalance.
//! - PreparingRebalance: waits until all members have rejoined or the rebalance timeout has
//!   expired. Then the generation is incremented, and the group becomes CompletingRebalance, or
//!   Empty if no member has joined.
//! - CompletingRebalance: waits for the leader's assignment. Once that is stored the group is
//!   Stable.
//! - Stable: members send heartbeats. A member that joins, leaves or changes leads to
//!   PreparingRebalance.
//!
//! A group in Kafka's state Dead does not exist here.

mod join;
mod members;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::{Buf, Bytes};
use curtail_wire::{
    ErrorCode,
    cold::{self, messages::ConsumerProtocolSubscription},
};
use tokio::time::Instant;

use super::records::{GroupValue, MemberValue};

pub(crate) use join::{Join, SyncRequest};

/// The number of a request that waits for the group's response.
pub(crate) type Waiter = u64;

/// Settings of the state machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupConfig {
    /// `group.initial.rebalance.delay.ms`.
    pub(crate) initial_rebalance_delay: Duration,
}

/// The state of a group; the names are those that Kafka's tools show.
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

/// A member's view of its generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) leader: String,
    pub(crate) member_id: String,
    /// Whether a static leader that rejoined keeps the current assignment (KIP-814).
    pub(crate) skip_assignment: bool,
    /// Id, instance id and metadata of all members; only for the leader.
    pub(crate) members: Vec<(String, Option<String>, Bytes)>,
}

/// The response to a JoinGroup request. An error comes with the member id it concerns.
pub(crate) type JoinAnswer = Result<Joined, (ErrorCode, String)>;

/// A member's assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) assignment: Bytes,
}

pub(crate) type SyncAnswer = Result<Synced, ErrorCode>;

/// Why a group must be stored, and what happens afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The last member has left.
    Empty,
    /// The leader's assignment of a generation.
    Assignment { generation: i32 },
    /// A static member rejoined under another id and waits for this response.
    Replaced { waiter: Waiter, answer: Joined },
}

/// Actions for the caller, in this order.
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
    /// Append this value, then call [`Group::stored`] once it is committed or has failed.
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
    /// Its protocols in order of preference, with its metadata for each.
    protocols: Vec<(String, Bytes)>,
    assignment: Bytes,
    /// Whether it has been in no generation yet. It does not know its id, so it cannot send
    /// heartbeats.
    is_new: bool,
    /// Whether it is in a new generation and has not requested its assignment yet.
    must_sync: bool,
    joining: Option<Waiter>,
    syncing: Option<Waiter>,
    /// When its session expires, unless it sends a request before.
    expires: Option<Instant>,
}

impl Member {
    fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }

    /// Votes for the first candidate in the member's order.
    fn vote<'a>(&'a self, candidates: &[&str]) -> Option<&'a str> {
        self.protocols.iter().map(|(name, _)| name.as_str()).find(|name| candidates.contains(name))
    }
}

/// When a rebalance ends even if some members have not joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinDeadline {
    /// A group's first rebalance waits briefly for more members, and again when some have joined.
    Initial {
        at: Instant,
        remaining: Duration,
    },
    At(Instant),
}

/// The state machine of one group; see the module documentation.
#[derive(Debug)]
pub(crate) struct Group {
    config: GroupConfig,
    state: GroupState,
    /// When the group entered its state, in ms since the Unix epoch; -1 if unknown.
    state_timestamp: i64,
    protocol_type: Option<String>,
    generation: i32,
    protocol: Option<String>,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Member ids of static members by instance id.
    statics: BTreeMap<String, String>,
    /// Assigned member ids (MEMBER_ID_REQUIRED) that have not joined yet, with their expiry.
    pending: BTreeMap<String, Instant>,
    join_deadline: Option<JoinDeadline>,
    /// Whether a new member joined during the initial rebalance.
    new_member_added: bool,
    /// When members of a new generation that have not requested their assignment are removed.
    sync_deadline: Option<Instant>,
    /// The leader's assignment while it is being stored.
    storing: Option<BTreeMap<String, Bytes>>,
}

impl Group {
    /// Creates a group without members.
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

    /// Restores a stored group. Its members' sessions start with [`Group::resume`].
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

    /// Starts the sessions of a loaded group's members.
    pub(crate) fn resume(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            member.expires = Some(now + member.session_timeout);
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        self.state
    }

    /// When the group entered its state, in ms since the Unix epoch; -1 if unknown.
    pub(crate) fn state_timestamp(&self) -> i64 {
        self.state_timestamp
    }

    /// The members' protocol type, "consumer" for consumers; empty for groups that only store
    /// offsets.
    pub(crate) fn protocol_type(&self) -> &str {
        self.protocol_type.as_deref().unwrap_or_default()
    }

    /// The protocol of the current generation; empty before the first one.
    pub(crate) fn protocol(&self) -> &str {
        self.protocol.as_deref().unwrap_or_default()
    }

    /// Whether the group has no members and no assigned member ids.
    pub(crate) fn is_unused(&self) -> bool {
        self.state == GroupState::Empty && self.pending.is_empty()
    }

    /// Returns the members. Their assignments are known only in a stable group.
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

    /// Returns the members' metadata for the current protocol.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.members.values().map(|member| member.metadata(self.protocol()))
    }

    /// Returns the topics to which the members of a group of consumers subscribe; `None` if the metadata
    /// of one is unreadable.
    pub(crate) fn subscribed(&self) -> Option<BTreeSet<String>> {
        let newest = <ConsumerProtocolSubscription as cold::Message>::VERSIONS.max;
        let mut topics = BTreeSet::new();
        for mut metadata in self.subscriptions() {
            // Later versions only add fields at the end, which are not needed.
            let version = metadata.try_get_i16().ok()?.clamp(0, newest);
            let found: ConsumerProtocolSubscription = cold::decode(version, metadata).ok()?;
            topics.extend(found.topics.iter().map(ToString::to_string));
        }
        Some(topics)
    }

    /// Returns the group in its stored form.
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

    /// Checks the committer of offsets outside a transaction. A member's commit also extends its
    /// session.
    ///
    /// # Errors
    /// As in Kafka: the member is unknown, fenced or of an old generation, or commits while its
    /// assignment is being computed.
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

    /// Checks the committer of offsets in a transaction. A producer that names no member may commit
    /// in any state (KIP-447).
    ///
    /// # Errors
    /// As in Kafka: the member is unknown, fenced or of an old generation.
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

    /// Checks that offsets may be deleted. Offsets of topics that members read must stay.
    ///
    /// # Errors
    /// NON_EMPTY_GROUP if the members are not consumers, because their topics are unknown then.
    pub(crate) fn may_delete_offsets(&self) -> Result<(), ErrorCode> {
        match self.state {
            GroupState::Empty => Ok(()),
            _ if self.protocol_type() == CONSUMER => Ok(()),
            _ => Err(ErrorCode::NON_EMPTY_GROUP),
        }
    }

    /// Checks that a member is known, and that a static member's instance id belongs to it.
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

/// The protocol type of consumer groups.
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
