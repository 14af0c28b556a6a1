//! The application's side of the group: assigns and revokes partitions, and queues positions to commit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use curtail_proto::{
    assignor::Key,
    membership::{Departure, Handover, Membership},
    plant::{Plant, planted},
    position::{Spot, Version},
};
use curtail_wire::ErrorCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Group, PendingCommit, Rebalance, RebalanceListener,
    commits::{Authority, Offsets},
    committed, partition,
};
use crate::{
    Error, Result, TopicPartition,
    config::GroupProtocol,
    consumer::{Choice, Consumer, shared::Shared},
    metrics::GroupStats,
    runtime::within,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};

/// How partitions are released.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    Revoked,
    Lost,
}

/// A [`RebalanceListener`] that does nothing.
struct Deaf;

impl RebalanceListener for Deaf {}

impl Shared {
    pub(in crate::consumer) fn choice(&self) -> Choice {
        self.state.lock().choice
    }

    fn choose(&self, choice: Choice) {
        self.state.lock().choice = choice;
    }

    fn authority(&self) -> Authority {
        match self.choice() {
            Choice::Assigned => Authority::Application,
            Choice::Subscribed => Authority::Owner,
        }
    }

    /// Queues offsets to commit.
    pub(in crate::consumer) fn commit(&self, offsets: Offsets) -> Result<PendingCommit> {
        let Some(group) = &self.group else {
            return Err(Error::IllegalState("committing needs a group.id"));
        };
        if offsets.values().any(|offset| offset.offset < 0) {
            return Err(Error::IllegalState("the offset is negative"));
        }
        Ok(group.commits.push(self, offsets, self.authority()))
    }

    /// Looks committed offsets up.
    pub(in crate::consumer) async fn committed_offsets(
        self: &Arc<Self>,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndMetadata>>> {
        let Some(group) = &self.group else {
            return Err(Error::IllegalState("committed offsets need a group.id"));
        };
        // The deepest future of the consumer; without a box its callers' futures exceed the compiler's default limit of 128.
        within(&self.runtime, Box::pin(committed::look_up(self, group, partitions))).await?
    }
}

impl Consumer {
    /// Subscribes to these topics with the other members of the group (`group.id`). Replaces the previous
    /// subscription or assignment. The following polls assign and revoke partitions. Without topics it is
    /// [`Consumer::unsubscribe`].
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`.
    pub fn subscribe<T: AsRef<str>>(&mut self, topics: impl IntoIterator<Item = T>) -> Result<()> {
        let topics: BTreeSet<Arc<str>> =
            topics.into_iter().map(|topic| topic.as_ref().into()).collect();
        let group = self.begin_subscription()?;
        *group.pattern.lock() = None;
        if topics.is_empty() {
            self.unsubscribe();
        } else {
            group.change(|machine, now| machine.subscribe(topics, now));
        }
        Ok(())
    }

    /// As [`Consumer::subscribe`], for every topic whose name `matches`, for example a regular expression. The topics
    /// are listed every `metadata.max.age.ms`.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`.
    ///
    /// ```
    /// # fn example(consumer: &mut curtail::Consumer) -> curtail::Result<()> {
    /// consumer.subscribe_matching(|topic| topic.starts_with("orders-"))
    /// # }
    /// ```
    pub fn subscribe_matching(
        &mut self,
        matches: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<()> {
        let group = self.begin_subscription()?;
        *group.pattern.lock() = Some(Arc::new(matches));
        group.change(|_, _| {});
        Ok(())
    }

    /// As [`Consumer::subscribe`], for every topic whose whole name matches a regular expression. The brokers
    /// evaluate it, in RE2/J's syntax, as with Java's `SubscriptionPattern`. [`Consumer::subscription`] stays empty.
    /// An invalid pattern is an error of a later poll.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`, without `group.protocol=consumer`, or with an empty pattern.
    ///
    /// ```
    /// # fn example(consumer: &mut curtail::Consumer) -> curtail::Result<()> {
    /// consumer.subscribe_pattern("orders-(eu|us)-[0-9]+")
    /// # }
    /// ```
    pub fn subscribe_pattern(&mut self, pattern: &str) -> Result<()> {
        if self.shared.config.group_protocol != GroupProtocol::Consumer {
            return Err(Error::IllegalState(
                "the brokers resolve patterns only with group.protocol=consumer; otherwise use subscribe_matching with a function",
            ));
        }
        if pattern.is_empty() {
            return Err(Error::IllegalState("the pattern is empty"));
        }
        let group = self.begin_subscription()?;
        *group.pattern.lock() = None;
        group.change(|machine, now| machine.subscribe_pattern(pattern.into(), now));
        Ok(())
    }

    fn begin_subscription(&mut self) -> Result<Arc<Group>> {
        let Some(group) = self.shared.group.clone() else {
            return Err(Error::IllegalState("subscribing needs a group.id"));
        };
        if self.shared.choice() == Choice::Assigned {
            self.commit_positions();
            self.shared.assign(BTreeSet::new());
            self.drop_stale_cursor();
            self.shared.choose(Choice::Subscribed);
        }
        Ok(group)
    }

    /// Ends the subscription and revokes its partitions. A dynamic member leaves the group; a static member keeps its
    /// place until `session.timeout.ms`. Does nothing for partitions from [`Consumer::assign`].
    pub fn unsubscribe(&mut self) {
        self.unsubscribe_with(Departure::ByKind);
    }

    /// Ends the subscription, and leaves the group or not.
    pub(in crate::consumer) fn unsubscribe_with(&mut self, departure: Departure) {
        let Some(group) = self.shared.group.clone() else { return };
        if self.shared.choice() == Choice::Assigned {
            return;
        }
        self.held = None;
        *group.pattern.lock() = None;
        let going = match group.identity() {
            Some(_) => Going::Revoked,
            None => Going::Lost,
        };
        let owned = group.look(|machine| machine.owned().iter().cloned().collect());
        self.let_go(&group, owned, going);
        group.change(|machine, _| machine.leave(departure));
        self.shared.choose(Choice::Assigned);
    }

    /// The subscribed topics. For a subscription by pattern, the topics that matched.
    pub fn subscription(&self) -> BTreeSet<String> {
        let topics = self.shared.group.as_ref().map(|group| group.topics()).unwrap_or_default();
        topics.iter().map(ToString::to_string).collect()
    }

    /// Makes the group assign its partitions again, at the next poll. Does nothing without a subscription, during a
    /// rebalance, and with `group.protocol=consumer`, where the coordinator decides when to assign.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`.
    pub fn enforce_rebalance(&mut self) -> Result<()> {
        let Some(group) = &self.shared.group else {
            return Err(Error::IllegalState("a rebalance needs a group.id"));
        };
        group.change(Membership::enforce_rebalance);
        Ok(())
    }

    /// Sets the listener for assigned and revoked partitions, in place of the previous one.
    pub fn set_rebalance_listener(&mut self, listener: impl RebalanceListener) {
        self.listener = Some(Mutex::new(Box::new(listener)));
    }

    /// This consumer's identity in its group, for
    /// [`crate::transaction::Transaction::send_offsets_to_transaction`]; `None` without a `group.id`.
    pub fn group_metadata(&self) -> Option<ConsumerGroupMetadata> {
        self.shared.group.as_ref().map(|group| group.metadata())
    }

    /// As [`Self::group_metadata`], for records that the last poll returned. A subscribed consumer must be a member:
    /// in a transaction, brokers accept offsets without a member even while other members own the partitions.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`. [`Error::CommitFailed`] if the membership has ended since the
    /// poll.
    pub(crate) fn owner_metadata(&self) -> Result<ConsumerGroupMetadata> {
        let Some(group) = &self.shared.group else {
            return Err(Error::IllegalState("committing needs a group.id"));
        };
        let metadata = group.metadata();
        if self.shared.choice() == Choice::Subscribed && metadata.member_id.is_empty() {
            let reason = "the consumer is no longer a member of the group".into();
            let code = ErrorCode::UNKNOWN_MEMBER_ID;
            return Err(Error::CommitFailed { group: group.id.clone(), code, reason });
        }
        Ok(metadata)
    }

    /// Commits the positions of all assigned partitions: for each, the offset after the last record returned, with
    /// that record's leader epoch. Waits up to `default.api.timeout.ms`. Earlier commits go first.
    ///
    /// # Errors
    /// [`Error::CommitFailed`] if the partitions may belong to another member by now; [`Error::IllegalState`] without
    /// a `group.id`; the coordinator's error; [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// Cancel safe: a commit that was begun is still carried out.
    #[doc(alias = "commit_sync")]
    #[doc(alias = "commitSync")]
    pub async fn commit(&mut self) -> Result<()> {
        self.commit_nowait()?.await
    }

    /// As [`Consumer::commit`], with the application's offsets: for each partition the next offset to read.
    ///
    /// # Errors
    /// As [`Consumer::commit`]; and [`Error::IllegalState`] if an offset is negative.
    ///
    /// # Cancel safety
    /// Cancel safe: a commit that was begun is still carried out.
    #[doc(alias = "commit_sync")]
    #[doc(alias = "commitSync")]
    pub async fn commit_offsets(
        &mut self,
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    ) -> Result<()> {
        self.commit_offsets_nowait(offsets)?.await
    }

    /// As [`Consumer::commit`], without waiting for the outcome. Commits are sent one after the other. A later
    /// commit of the same partitions replaces a waiting one, which shares its outcome.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`. The outcome has all other errors.
    #[doc(alias = "commit_async")]
    #[doc(alias = "commitAsync")]
    pub fn commit_nowait(&mut self) -> Result<PendingCommit> {
        self.save_position();
        let positions = self.positions(|_, _| true);
        self.commit_offsets_nowait(positions)
    }

    /// As [`Consumer::commit_offsets`], without waiting for the outcome.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id` or with a negative offset. The outcome has all other errors.
    #[doc(alias = "commit_async")]
    #[doc(alias = "commitAsync")]
    pub fn commit_offsets_nowait(
        &mut self,
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    ) -> Result<PendingCommit> {
        self.shared.commit(offsets.into_iter().collect())
    }

    /// The committed offsets of partitions; `None` without one. Waits for offsets that an open transaction may
    /// replace.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`; the coordinator's error; [`Error::Timeout`] after
    /// `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndMetadata>>> {
        self.shared.committed_offsets(partitions).await
    }

    /// The application's positions in the partitions that `wanted` selects. `wanted` also receives the last known
    /// committed offset.
    fn positions(&self, wanted: impl Fn(&TopicPartition, (i64, Option<i64>)) -> bool) -> Offsets {
        let state = self.shared.state.lock();
        let known = state.partitions.iter().filter_map(|(at, assigned)| {
            let position = assigned.to_commit()?;
            let wanted = wanted(at, (position.offset, assigned.committed));
            let ahead = i64::from(planted(Plant::CommitAhead));
            let position = Spot { offset: position.offset + ahead, ..position };
            wanted.then(|| (at.clone(), OffsetAndMetadata::at(position)))
        });
        known.collect()
    }

    /// Queues changed positions, with `enable.auto.commit`.
    pub(in crate::consumer) fn commit_positions(&mut self) {
        let Some(group) = self.shared.group.clone() else { return };
        if !self.shared.config.enable_auto_commit {
            return;
        }
        self.save_position();
        let changed = self.positions(|_, (position, committed)| Some(position) != committed);
        drop(group.commits.push(&self.shared, changed, self.shared.authority()));
    }

    /// Whether the group has work for the application's side. Also records that the application polls.
    #[inline]
    pub(in crate::consumer) fn is_called(&self) -> bool {
        let Some(group) = &self.shared.group else { return false };
        group.attention.poll()
    }

    /// Performs the group's work on the application's side. Called while no records are being returned: records
    /// returned earlier count as processed.
    #[cold]
    pub(in crate::consumer) fn attend(&mut self) {
        let Some(group) = self.shared.group.clone() else { return };
        group.attention.begin();
        self.save_position();
        while let Some(handover) = self.held.take().or_else(|| group.handover()) {
            // The group does not wait for a member that it has removed.
            let going = match group.look(|machine| machine.has_ended_in_handover()) {
                true => Going::Lost,
                false if self.are_finished(&handover) => Going::Revoked,
                false => {
                    self.held = Some(handover);
                    break;
                }
            };
            match handover {
                Handover::Revoke(keys) => self.let_go(&group, keys, going),
                Handover::Lose(keys) => self.let_go(&group, keys, Going::Lost),
                Handover::Adopt { revoked, added } => {
                    self.let_go(&group, revoked, going);
                    self.take_over(&group, added);
                }
            }
            group.change(Membership::handed_over);
        }
        if group.attention.take_commit() {
            self.commit_positions();
        }
        if let Some(error) = group.complaint() {
            self.shared.state.lock().report(error);
            group.attention.call();
        }
    }

    /// Tells the queues of partitions to revoke to end. Returns whether their records are finished. A coordinator that
    /// waits too long ends the membership.
    fn are_finished(&self, handover: &Handover) -> bool {
        let (Handover::Revoke(keys) | Handover::Adopt { revoked: keys, .. }) = handover else {
            return true;
        };
        let mut state = self.shared.state.lock();
        if state.split.is_none() {
            return true;
        }
        let going: Vec<TopicPartition> = keys.iter().cloned().map(partition).collect();
        state.release(&going)
    }

    fn let_go(&mut self, group: &Arc<Group>, keys: Vec<Key>, going: Going) {
        let partitions: Vec<TopicPartition> = keys.into_iter().map(partition).collect();
        if partitions.is_empty() {
            return;
        }
        self.save_position();
        let begun = Instant::now();
        let mut chosen = self.tell(|listener, rebalance| match going {
            Going::Revoked => listener.on_partitions_revoked(rebalance, &partitions),
            Going::Lost => listener.on_partitions_lost(rebalance, &partitions),
        });
        let heard = match going {
            Going::Revoked => &group.stats.revoked,
            Going::Lost => &group.stats.lost,
        };
        GroupStats::took(heard, begun);
        let going_now: BTreeSet<TopicPartition> = partitions.into_iter().collect();
        let identity = group.identity().filter(|_| matches!(going, Going::Revoked));
        if let Some(identity) = identity {
            chosen.retain(|at, offset| going_now.contains(at) && offset.offset >= 0);
            if self.shared.config.enable_auto_commit {
                let mut positions = self.positions(|at, (position, committed)| {
                    going_now.contains(at) && Some(position) != committed
                });
                positions.append(&mut chosen);
                chosen = positions;
            }
            let owned = group.look(|machine| machine.owned().clone());
            group.commits.entrust(&going_now, &owned, &identity);
            drop(group.commits.push(&self.shared, chosen, Authority::Former(identity)));
        } else {
            group.commits.disown(&going_now);
        }
        self.shared.drop_partitions(&going_now);
        self.drop_stale_cursor();
    }

    fn take_over(&mut self, group: &Arc<Group>, keys: Vec<Key>) {
        let partitions: Vec<TopicPartition> = keys.into_iter().map(partition).collect();
        let awaited: Vec<(TopicPartition, Version)> = self.shared.add_partitions(&partitions);
        let begun = Instant::now();
        drop(self.tell(|listener, rebalance| {
            listener.on_partitions_assigned(rebalance, &partitions);
        }));
        GroupStats::took(&group.stats.assigned, begun);
        // Partitions that the listener has sought no longer await their offsets.
        committed::place(&self.shared, group, awaited);
    }

    fn tell(
        &mut self,
        tell: impl FnOnce(&mut dyn RebalanceListener, &mut Rebalance<'_>),
    ) -> Offsets {
        let mut rebalance = Rebalance { shared: &self.shared, commits: Offsets::new() };
        match &mut self.listener {
            Some(listener) => tell(&mut **listener.get_mut(), &mut rebalance),
            None => tell(&mut Deaf, &mut rebalance),
        }
        rebalance.commits
    }
}
