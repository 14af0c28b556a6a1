//! What an application hears of its partitions coming and going.

use std::collections::BTreeMap;

use crate::{
    Error, OffsetAndMetadata, Result, TopicPartition,
    consumer::{shared::Shared, valid_spot},
};

/// Told when partitions of a subscribed consumer come and go (KIP-429).
///
/// The calls are made in [`crate::Consumer::poll`] and its like, in [`crate::Consumer::unsubscribe`] and in
/// [`crate::Consumer::close`], on the caller's task and never while records are being given out. They should not take
/// long: the whole group waits.
pub trait RebalanceListener: Send + 'static {
    /// These partitions are the consumer's from now on, in addition to those it has. Called after every rebalance, with
    /// an empty list where there is nothing new. [`Rebalance::seek`] begins elsewhere than at the committed offset.
    fn on_partitions_assigned(
        &mut self,
        rebalance: &mut Rebalance<'_>,
        partitions: &[TopicPartition],
    ) {
        let _ = (rebalance, partitions);
    }

    /// These partitions are about to go to others. What is given to [`Rebalance::commit`] is committed first; with
    /// `enable.auto.commit` the positions are, too.
    fn on_partitions_revoked(
        &mut self,
        rebalance: &mut Rebalance<'_>,
        partitions: &[TopicPartition],
    ) {
        let _ = (rebalance, partitions);
    }

    /// These partitions went to others without notice, such as because the application has not polled for
    /// `max.poll.interval.ms`; nothing can be committed for them. By default as [`Self::on_partitions_revoked`].
    fn on_partitions_lost(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        self.on_partitions_revoked(rebalance, partitions);
    }
}

/// What a [`RebalanceListener`] may do while it is told.
pub struct Rebalance<'a> {
    pub(super) shared: &'a Shared,
    pub(super) commits: BTreeMap<TopicPartition, OffsetAndMetadata>,
}

impl Rebalance<'_> {
    /// The offset of the next record that the application would be given; `None` while it is not known.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.shared.state.lock().partitions.get(partition)?.position.consumed().map(|at| at.offset)
    }

    /// Begins at `offset` of a partition.
    ///
    /// # Errors
    /// [`Error::IllegalState`] if the partition is not assigned or the offset is negative.
    pub fn seek(&mut self, partition: &TopicPartition, offset: i64) -> Result<()> {
        if offset < 0 {
            return Err(Error::IllegalState("an offset is never negative"));
        }
        self.shared.state.lock().jump(partition, |p, versions| p.seek(offset, versions))
    }

    /// As [`Self::seek`], with the leader epoch of the record before the offset: see [`crate::Consumer::seek_to`].
    ///
    /// # Errors
    /// As [`Self::seek`].
    pub fn seek_to(&mut self, partition: &TopicPartition, to: &OffsetAndMetadata) -> Result<()> {
        let spot = valid_spot(to)?;
        self.shared.state.lock().jump(partition, |p, versions| p.seek_to(spot, versions))
    }

    /// Commits an offset of a partition that is being revoked, before it goes to another member. Without effect for
    /// other partitions.
    pub fn commit(&mut self, partition: &TopicPartition, offset: OffsetAndMetadata) {
        self.commits.insert(partition.clone(), offset);
    }
}

impl std::fmt::Debug for Rebalance<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rebalance").field("commits", &self.commits).finish_non_exhaustive()
    }
}
