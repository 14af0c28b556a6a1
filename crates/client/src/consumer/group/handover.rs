//! The application's side of the group: partitions come and go here, and positions are handed over to be committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use curtail_proto::{
    assignor::Key,
    membership::{Handover, Membership},
    plant::{Plant, planted},
    position::{Spot, Version},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Group, PendingCommit, Rebalance, RebalanceListener,
    commits::{Authority, Offsets},
    committed, partition,
};
use crate::{
    ConsumerGroupMetadata, Error, GroupProtocol, OffsetAndMetadata, Result, TopicPartition,
    consumer::{Choice, Consumer},
    metrics::GroupStats,
    runtime::within,
};

/// How partitions go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    Revoked,
    Lost,
}

/// A [`RebalanceListener`] that does nothing.
struct Deaf;

impl RebalanceListener for Deaf {}

impl Consumer {
    /// Reads these topics together with the other members of the group (`group.id`), in place of what was subscribed to
    /// or assigned before. Partitions come and go in the following polls; without topics it is
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

    /// As [`Consumer::subscribe`], for every topic whose name `matches`, such as by a regular expression. Which topics
    /// there are is looked at every `metadata.max.age.ms`.
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

    /// As [`Consumer::subscribe`], for every topic whose whole name matches a regular expression as the brokers read it: of
    /// RE2/J, as Java's `SubscriptionPattern`. The brokers look which topics there are; [`Consumer::subscription`] stays
    /// empty. A pattern that they do not understand is an error of a later poll.
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
                "the brokers resolve patterns only with group.protocol=consumer; subscribe_matching takes a function",
            ));
        }
        if pattern.is_empty() {
            return Err(Error::IllegalState("a pattern to subscribe to is never empty"));
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
        if self.choice == Choice::Assigned {
            self.commit_positions();
            self.shared.assign(BTreeSet::new());
            self.drop_stale_cursor();
            self.choice = Choice::Subscribed;
        }
        Ok(group)
    }

    /// Gives up the subscription and everything that came with it. A dynamic member leaves the group; a static one keeps
    /// its place until `session.timeout.ms` have passed. Without effect on partitions assigned by hand.
    pub fn unsubscribe(&mut self) {
        let Some(group) = self.shared.group.clone() else { return };
        if self.choice == Choice::Assigned {
            return;
        }
        *group.pattern.lock() = None;
        let going = match group.identity() {
            Some(_) => Going::Revoked,
            None => Going::Lost,
        };
        let owned = group.look(|machine| machine.owned().iter().cloned().collect());
        self.let_go(&group, owned, going);
        group.change(|machine, _| machine.leave());
        self.choice = Choice::Assigned;
    }

    /// The topics subscribed to; those that were found to match, for a subscription by pattern.
    pub fn subscription(&self) -> BTreeSet<String> {
        let topics = self.shared.group.as_ref().map(|group| group.topics()).unwrap_or_default();
        topics.iter().map(ToString::to_string).collect()
    }

    /// Has `listener` told of partitions that come and go, in place of the one before.
    pub fn set_rebalance_listener(&mut self, listener: impl RebalanceListener) {
        self.listener = Some(Mutex::new(Box::new(listener)));
    }

    /// Who this consumer is to its group, for [`crate::Transaction::send_offsets_to_transaction`]; `None` without a
    /// `group.id`.
    pub fn group_metadata(&self) -> Option<ConsumerGroupMetadata> {
        self.shared.group.as_ref().map(|group| group.metadata())
    }

    /// Commits the positions of all assigned partitions: the offset after the last record returned of each, with that
    /// record's leader epoch. Waits at most `default.api.timeout.ms`; commits handed over before go first.
    ///
    /// # Errors
    /// [`Error::CommitFailed`] if the partitions may belong to another member by now; [`Error::IllegalState`] without a
    /// `group.id`; what the coordinator says; [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// Cancel safe: what was begun is carried out all the same.
    pub async fn commit_sync(&mut self) -> Result<()> {
        self.commit_async()?.await
    }

    /// As [`Consumer::commit_sync`], with offsets of the application's choice: for each partition the next one to read.
    ///
    /// # Errors
    /// As [`Consumer::commit_sync`]; and [`Error::IllegalState`] if an offset is negative.
    ///
    /// # Cancel safety
    /// Cancel safe: what was begun is carried out all the same.
    pub async fn commit_sync_offsets(
        &mut self,
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    ) -> Result<()> {
        self.commit_async_offsets(offsets)?.await
    }

    /// As [`Consumer::commit_sync`], without waiting for the outcome. Commits are sent one after the other; one that still
    /// waits gives way to a later one of the same partitions, and has its outcome.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`; the rest is in the outcome.
    pub fn commit_async(&mut self) -> Result<PendingCommit> {
        self.save_position();
        let positions = self.positions(|_, _| true);
        self.commit_async_offsets(positions)
    }

    /// As [`Consumer::commit_sync_offsets`], without waiting for the outcome.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id` or with a negative offset; the rest is in the outcome.
    pub fn commit_async_offsets(
        &mut self,
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    ) -> Result<PendingCommit> {
        let Some(group) = &self.shared.group else {
            return Err(Error::IllegalState("committing needs a group.id"));
        };
        let offsets: Offsets = offsets.into_iter().collect();
        if offsets.values().any(|offset| offset.offset < 0) {
            return Err(Error::IllegalState("an offset is never negative"));
        }
        Ok(group.commits.push(&self.shared, offsets, self.authority()))
    }

    fn authority(&self) -> Authority {
        match self.choice {
            Choice::Assigned => Authority::Nobody,
            Choice::Subscribed => Authority::Owner,
        }
    }

    /// The committed offsets of partitions, `None` where there is none. Offsets that an open transaction may be about to
    /// replace are waited for.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`; what the coordinator says; [`Error::Timeout`] after
    /// `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndMetadata>>> {
        let Some(group) = &self.shared.group else {
            return Err(Error::IllegalState("committed offsets need a group.id"));
        };
        within(&self.shared.runtime, committed::look_up(&self.shared, group, partitions)).await
    }

    /// Where the application stands in the partitions that `wanted` says, given also what is known to be committed.
    fn positions(&self, wanted: impl Fn(&TopicPartition, (i64, Option<i64>)) -> bool) -> Offsets {
        let state = self.shared.state.lock();
        let known = state.partitions.iter().filter_map(|(at, assigned)| {
            let position = assigned.position.consumed()?;
            let wanted = wanted(at, (position.offset, assigned.committed));
            let ahead = i64::from(planted(Plant::CommitAhead));
            let position = Spot { offset: position.offset + ahead, ..position };
            wanted.then(|| (at.clone(), OffsetAndMetadata::at(position)))
        });
        known.collect()
    }

    /// Hands positions over that have changed, if that is to happen by itself.
    pub(in crate::consumer) fn commit_positions(&mut self) {
        let Some(group) = self.shared.group.clone() else { return };
        if !self.shared.config.enable_auto_commit {
            return;
        }
        self.save_position();
        let changed = self.positions(|_, (position, committed)| Some(position) != committed);
        drop(group.commits.push(&self.shared, changed, self.authority()));
    }

    /// Whether the group has something for the application's side to do. Also notes that the application polls.
    #[inline]
    pub(in crate::consumer) fn is_called(&self) -> bool {
        let Some(group) = &self.shared.group else { return false };
        group.attention.poll()
    }

    /// Does what the group has for the application's side to do. Called when no records are being given out: what was
    /// given out before counts as done with.
    #[cold]
    pub(in crate::consumer) fn attend(&mut self) {
        let Some(group) = self.shared.group.clone() else { return };
        group.attention.begin();
        self.save_position();
        while let Some(handover) = group.handover() {
            match handover {
                Handover::Revoke(keys) => self.let_go(&group, keys, Going::Revoked),
                Handover::Lose(keys) => self.let_go(&group, keys, Going::Lost),
                Handover::Adopt { revoked, added } => {
                    self.let_go(&group, revoked, Going::Revoked);
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
        let identity = group.identity();
        if let (Going::Revoked, Some(identity)) = (going, identity) {
            chosen.retain(|at, offset| going_now.contains(at) && offset.offset >= 0);
            if self.shared.config.enable_auto_commit {
                let mut positions = self.positions(|at, (position, committed)| {
                    going_now.contains(at) && Some(position) != committed
                });
                positions.append(&mut chosen);
                chosen = positions;
            }
            let owned = group.look(|machine| machine.owned().clone());
            group.commits.entrust(&owned, &identity);
            drop(group.commits.push(&self.shared, chosen, Authority::Former(identity)));
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
        // Those to which the listener has jumped are no longer awaited.
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
