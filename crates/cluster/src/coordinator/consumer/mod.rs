//! One group of the consumer protocol (KIP-848), as Kafka's coordinator treats it. Pure: times and metadata are passed
//! in, and what must be stored comes back.
//!
//! The coordinator decides who is to read what. Three epochs follow each other: the group's grows with every change of
//! its members, of what they want, or of the topics they want; the target assignment is made for an epoch of the
//! group; and each member is led to its part of the target by its heartbeats, one [`reconcile`] step at a time, until
//! it has the target's epoch. A partition has one owner at any time: who is to lose it has it until a heartbeat says
//! that it has let go, and only then the next one gets it.
//!
//! Every operation works on a copy that shares what it does not change, and returns it as a [`Step`]: the group after
//! the operation, and the changes that lead there, one for each record. Whoever holds the group takes the copy once
//! the records are in the log, and drops it if they are not. Loading applies the same changes ([`change`]).

mod assignor;
mod change;
mod heartbeat;
mod leave;
mod member;
mod reconcile;
mod regex;
mod target;
#[cfg(test)]
mod tests;
mod topics;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use curtail_wire::{ErrorCode, Uuid};
use imbl::OrdMap;
use tokio::time::Instant;

pub(crate) use self::{
    change::{Change, Resolved},
    heartbeat::{Beat, Heartbeat},
    member::{
        Current, Epochs, LEFT, LEFT_FOR_NOW, Member, MemberState, Partitions, Profile, partitions,
    },
    regex::resolve,
    topics::Topics,
};
pub use assignor::Assignor;

/// How groups are set up.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `group.consumer.session.timeout.ms`.
    pub(crate) session_timeout: Duration,
    /// `group.consumer.heartbeat.interval.ms`.
    pub(crate) heartbeat_interval: Duration,
    /// `group.consumer.max.size`.
    pub(crate) max_size: usize,
    /// `group.consumer.assignors`; the first one is the default.
    pub(crate) assignors: Vec<Assignor>,
    /// `group.consumer.assignment.interval.ms`.
    pub(crate) assignment_interval: Duration,
    /// `group.consumer.regex.refresh.interval.ms`.
    pub(crate) regex_refresh_interval: Duration,
}

impl Settings {
    /// What serves those who ask for no assignor.
    pub(crate) fn default_assignor(&self) -> Assignor {
        self.assignors.first().copied().unwrap_or(Assignor::Uniform)
    }
}

/// When something happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    /// In ms since the Unix epoch.
    pub(crate) now_ms: i64,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: ErrorCode,
    pub(crate) reason: String,
}

impl Refused {
    pub(crate) fn new(code: ErrorCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Self {
        Self::new(code, code.message())
    }
}

/// An operation's outcome.
#[derive(Debug)]
pub(crate) struct Step<T> {
    /// The group, once the changes are stored.
    pub(crate) group: ConsumerGroup,
    pub(crate) changes: Vec<Change>,
    pub(crate) answer: T,
}

/// An operation under way: the group as it will be, and how it came there.
struct Draft {
    group: ConsumerGroup,
    changes: Vec<Change>,
}

impl Draft {
    fn change(&mut self, change: Change) {
        self.group.apply(change.clone());
        self.changes.push(change);
    }

    fn done<T>(self, answer: T) -> Step<T> {
        Step { group: self.group, changes: self.changes, answer }
    }
}

/// Where a group stands; the names are those that Kafka's tools show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsumerState {
    Empty,
    /// The target is not that of the group's epoch yet.
    Assigning,
    /// Some members are on the way to the target.
    Reconciling,
    Stable,
}

impl ConsumerState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        }
    }
}

/// See the head of this module.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerGroup {
    settings: Arc<Settings>,
    epoch: i32,
    metadata_hash: i64,
    assignment_epoch: i32,
    /// When the target was made, in ms since the Unix epoch; 0 when that is not known.
    assignment_timestamp: i64,
    members: OrdMap<String, Arc<Member>>,
    targets: OrdMap<String, Arc<Partitions>>,
    /// Member ids by instance id.
    statics: OrdMap<String, String>,
    /// Who holds a partition.
    owners: OrdMap<(Uuid, i32), Arc<str>>,
    regexes: OrdMap<String, Arc<Resolved>>,
    /// When members are forgotten unless they are heard of.
    sessions: OrdMap<String, Instant>,
    /// When members are forgotten unless they have let go of what they are to lose, if they are still in this epoch.
    rebalances: OrdMap<String, (Instant, i32)>,
    /// The version of the metadata that the hash was last compared with, by this coordinator.
    checked: Option<u64>,
    /// As `checked`, for the regular expressions.
    resolved_at: Option<u64>,
    /// They are being resolved.
    resolving: bool,
}

impl ConsumerGroup {
    /// A group without members. Kafka's begin in epoch 1, with a target of that epoch.
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            epoch: 1,
            metadata_hash: 0,
            assignment_epoch: 1,
            assignment_timestamp: 0,
            members: OrdMap::new(),
            targets: OrdMap::new(),
            statics: OrdMap::new(),
            owners: OrdMap::new(),
            regexes: OrdMap::new(),
            sessions: OrdMap::new(),
            rebalances: OrdMap::new(),
            checked: None,
            resolved_at: None,
            resolving: false,
        }
    }

    fn draft(&self) -> Draft {
        Draft { group: self.clone(), changes: Vec::new() }
    }

    /// What the group goes by from now on; sessions that have begun end when they would have.
    pub(crate) fn configure(&mut self, settings: &Arc<Settings>) {
        self.settings = Arc::clone(settings);
    }

    /// Begins the sessions of the members of a loaded group.
    pub(crate) fn resume(&mut self, now: Instant) {
        let members: Vec<(String, Arc<Member>)> =
            self.members.iter().map(|(id, member)| (id.clone(), Arc::clone(member))).collect();
        for (id, member) in members {
            self.sessions.insert(id.clone(), now + self.settings.session_timeout);
            self.watch_rebalance(now, &id, &member);
        }
    }

    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(crate) fn assignment_epoch(&self) -> i32 {
        self.assignment_epoch
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// By their ids.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.members.iter().map(|(id, member)| (id.as_str(), member.as_ref()))
    }

    /// What the target gives a member.
    pub(crate) fn target(&self, member_id: &str) -> Partitions {
        self.targets.get(member_id).map(|target| Partitions::clone(target)).unwrap_or_default()
    }

    pub(crate) fn state(&self) -> ConsumerState {
        let reconciled =
            |member: &Arc<Member>| member.current.is_reconciled_to(self.assignment_epoch);
        if self.members.is_empty() {
            ConsumerState::Empty
        } else if self.epoch > self.assignment_epoch {
            ConsumerState::Assigning
        } else if self.members.values().all(reconciled) {
            ConsumerState::Stable
        } else {
            ConsumerState::Reconciling
        }
    }

    /// The topics that members want, by name or by an expression.
    pub(crate) fn subscribed(&self) -> BTreeSet<&str> {
        let members = self.members.values().flat_map(|member| self.wanted(&member.profile));
        members.collect()
    }

    fn wanted<'a>(&'a self, profile: &'a Profile) -> impl Iterator<Item = &'a str> {
        let by_regex = self.regexes.get(&profile.regex).into_iter();
        let by_regex = by_regex.flat_map(|resolved| resolved.topics.iter());
        profile.topics.iter().chain(by_regex).map(String::as_str)
    }

    /// The assignor that most members ask for.
    pub(crate) fn assignor(&self) -> Assignor {
        let votes = |assignor: Assignor| {
            let asks =
                |member: &&Arc<Member>| member.profile.assignor.as_deref() == Some(assignor.name());
            self.members.values().filter(asks).count()
        };
        let mut chosen = (0, self.settings.default_assignor());
        for assignor in &self.settings.assignors {
            let votes = votes(*assignor);
            if votes > chosen.0 {
                chosen = (votes, *assignor);
            }
        }
        chosen.1
    }

    /// Checks who commits offsets, and of what. A member in an earlier epoch may commit what it had then (KIP-1251).
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    pub(crate) fn may_commit(
        &self,
        member_id: &str,
        epoch: i32,
        of: impl IntoIterator<Item = Option<(Uuid, i32)>>,
    ) -> Result<(), ErrorCode> {
        if epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if epoch == member.current.epoch {
            return Ok(());
        }
        if epoch > member.current.epoch {
            return Err(ErrorCode::STALE_MEMBER_EPOCH);
        }
        let had = |at: Option<(Uuid, i32)>| {
            at.and_then(|(topic, partition)| member.current.epoch_of(topic, partition))
                .is_some_and(|since| epoch >= since)
        };
        if of.into_iter().all(had) { Ok(()) } else { Err(ErrorCode::STALE_MEMBER_EPOCH) }
    }

    /// Checks who looks up offsets; who names no member may.
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    pub(crate) fn may_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        if member_id.is_none() && epoch < 0 {
            return Ok(());
        }
        let member = member_id.and_then(|id| self.members.get(id));
        match member {
            None => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            Some(member) if member.current.epoch == epoch => Ok(()),
            Some(_) => Err(ErrorCode::STALE_MEMBER_EPOCH),
        }
    }

    /// What deletes the group, which has no members.
    pub(crate) fn tombstones(&self) -> Vec<Change> {
        let mut changes = vec![Change::TargetEpoch(None)];
        changes.extend(self.regexes.keys().map(|regex| Change::Regex(regex.clone(), None)));
        changes.push(Change::Group(None));
        changes
    }

    /// When [`ConsumerGroup::expire`] is due next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let rebalances = self.rebalances.values().map(|(at, _)| at);
        self.sessions.values().chain(rebalances).min().copied()
    }
}
