//! One group of the consumer protocol (KIP-848), with the behaviour of Kafka's coordinator. Pure:
//! the caller passes in times and metadata, and stores the returned changes.
//!
//! The coordinator decides which member reads which partition. Three epochs follow each other:
//!
//! - The group's epoch grows when members, their subscriptions or the subscribed topics change.
//! - The target assignment is computed for an epoch of the group.
//! - A member's epoch follows the target's. With each heartbeat the member takes one [`reconcile`]
//!   step towards its part of the target, until it has the target's epoch.
//!
//! A partition has at most one owner at any time. The previous owner keeps it until a heartbeat
//! confirms its revocation; only then the next owner receives it.
//!
//! Every operation works on a copy that shares unchanged parts, and returns it as a [`Step`]: the
//! group after the operation, and the changes that lead to it, one per record. The caller replaces
//! the group with the copy once the records are in the log, and otherwise drops the copy. Loading
//! applies the same changes ([`change`]).

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

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use curtail_wire::{ErrorCode, Uuid};
use imbl::OrdMap;
use tokio::time::Instant;

use super::{deadlines::Deadlines, epochs, step};

pub(crate) use self::{
    change::{Change, Resolved},
    heartbeat::{Beat, Heartbeat},
    member::{Current, LEFT, LEFT_FOR_NOW, Member, MemberState, Partitions, Profile, partitions},
    regex::{compile as compile_regex, resolve},
};
pub(crate) use super::{
    step::{Moment, Refused},
    topics::Topics,
};
pub use assignor::Assignor;

/// Settings of groups.
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
    /// Returns the assignor for members that request none.
    pub(crate) fn default_assignor(&self) -> Assignor {
        self.assignors.first().copied().unwrap_or(Assignor::Uniform)
    }
}

/// The result of an operation on a group.
pub(crate) type Step<T> = step::Step<ConsumerGroup, T>;
type Draft = step::Draft<ConsumerGroup>;

/// The state of a group; the names are those that Kafka's tools show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsumerState {
    Empty,
    /// The target does not belong to the group's epoch yet.
    Assigning,
    /// Some members have not reached the target yet.
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

/// The state machine of one group; see the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerGroup {
    settings: Arc<Settings>,
    epoch: i32,
    metadata_hash: i64,
    assignment_epoch: i32,
    /// When the target was computed, in ms since the Unix epoch; 0 if unknown.
    assignment_timestamp: i64,
    members: OrdMap<String, Arc<Member>>,
    targets: OrdMap<String, Arc<Partitions>>,
    /// Member ids by instance id.
    statics: OrdMap<String, String>,
    /// The owners of partitions.
    owners: OrdMap<(Uuid, i32), Arc<str>>,
    regexes: OrdMap<String, Arc<Resolved>>,
    deadlines: Deadlines,
    /// The version of the metadata that this coordinator last compared with the hash.
    checked: Option<u64>,
    /// Like `checked`, for the regular expressions.
    resolved_at: Option<u64>,
    /// Whether a resolution of the regular expressions is in progress.
    resolving: bool,
}

impl ConsumerGroup {
    /// Creates a group without members. As in Kafka it begins in epoch 1, with a target of that
    /// epoch.
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
            deadlines: Deadlines::default(),
            checked: None,
            resolved_at: None,
            resolving: false,
        }
    }

    fn draft(&self) -> Draft {
        Draft::of(self)
    }

    /// Changes the settings; running sessions keep their deadlines.
    pub(crate) fn configure(&mut self, settings: &Arc<Settings>) {
        self.settings = Arc::clone(settings);
    }

    /// Starts the sessions of a loaded group's members.
    pub(crate) fn resume(&mut self, now: Instant) {
        let members: Vec<(String, Arc<Member>)> =
            self.members.iter().map(|(id, member)| (id.clone(), Arc::clone(member))).collect();
        for (id, member) in members {
            self.deadlines.extend(&id, now + self.settings.session_timeout);
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

    /// Returns the members, ordered by id.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.members.iter().map(|(id, member)| (id.as_str(), member.as_ref()))
    }

    /// Returns a member's partitions in the target.
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

    /// Returns the subscribed topics, by name or by regular expression.
    pub(crate) fn subscribed(&self) -> BTreeSet<&str> {
        let members = self.members.values().flat_map(|member| self.wanted(&member.profile));
        members.collect()
    }

    fn wanted<'a>(&'a self, profile: &'a Profile) -> impl Iterator<Item = &'a str> {
        let by_regex = self.regexes.get(&profile.regex).into_iter();
        let by_regex = by_regex.flat_map(|resolved| resolved.topics.iter());
        profile.topics.iter().chain(by_regex).map(String::as_str)
    }

    /// Returns the assignor that most members request.
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

    /// Checks the committer of offsets and its partitions. A member in an earlier epoch may commit
    /// the partitions it had then (KIP-1251).
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
        let current = &member.current;
        let had = |at: Option<(Uuid, i32)>| {
            at.and_then(|(topic, partition)| current.epoch_of(topic, partition))
                .is_some_and(|since| epoch >= since)
        };
        epochs::check_commit(epoch, current.epoch, || of.into_iter().all(had))
    }

    /// Checks the sender of an offset lookup. A request without a member is allowed.
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    pub(crate) fn may_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        let known = |id: &str| self.members.get(id).map(|member| member.current.epoch);
        epochs::check_fetch(member_id, epoch, known)
    }

    /// Returns the changes that delete the group, which has no members.
    pub(crate) fn tombstones(&self) -> Vec<Change> {
        let mut changes = vec![Change::TargetEpoch(None)];
        changes.extend(self.regexes.keys().map(|regex| Change::Regex(regex.clone(), None)));
        changes.push(Change::Group(None));
        changes
    }

    /// Returns when [`ConsumerGroup::expire`] is due next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }
}
