//! The application's callbacks for assigned and revoked partitions.

use std::collections::BTreeMap;

use crate::{
    Error, Result, TopicPartition,
    consumer::{shared::Shared, valid_spot},
    transaction::OffsetAndMetadata,
};

/// Callbacks for partitions of a subscribed consumer that are assigned, revoked or lost (KIP-429).
///
/// They run in [`crate::Consumer::poll`] and its variants, in [`crate::Consumer::unsubscribe`] and in
/// [`crate::Consumer::close`]. They run on the caller's task, and never while records are being returned. Keep them
/// short: the whole group waits.
pub trait RebalanceListener: Send + 'static {
    /// Called after every rebalance with the newly assigned partitions; the list may be empty. The consumer keeps its
    /// other partitions. [`Rebalance::seek`] overrides the committed offset.
    fn on_partitions_assigned(
        &mut self,
        rebalance: &mut Rebalance<'_>,
        partitions: &[TopicPartition],
    ) {
        let _ = (rebalance, partitions);
    }

    /// Called before these partitions go to other members. Offsets passed to [`Rebalance::commit`] are committed
    /// first. With `enable.auto.commit` the positions are committed, too.
    fn on_partitions_revoked(
        &mut self,
        rebalance: &mut Rebalance<'_>,
        partitions: &[TopicPartition],
    ) {
        let _ = (rebalance, partitions);
    }

    /// Called after these partitions were lost without notice, for example because the application has not polled for
    /// `max.poll.interval.ms`. No offset can be committed for them. By default calls [`Self::on_partitions_revoked`].
    fn on_partitions_lost(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        self.on_partitions_revoked(rebalance, partitions);
    }
}

/// Operations available to a [`RebalanceListener`] during a callback.
pub struct Rebalance<'a> {
    pub(super) shared: &'a Shared,
    pub(super) commits: BTreeMap<TopicPartition, OffsetAndMetadata>,
}

impl Rebalance<'_> {
    /// The offset of the next record that a poll would return; `None` while unknown.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.shared.state.lock().partitions.get(partition)?.position.consumed().map(|at| at.offset)
    }

    /// Starts a partition at `offset`.
    ///
    /// # Errors
    /// [`Error::IllegalState`] if the partition is not assigned or the offset is negative.
    pub fn seek(&mut self, partition: &TopicPartition, offset: i64) -> Result<()> {
        if offset < 0 {
            return Err(Error::IllegalState("the offset is negative"));
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

    /// Commits an offset of a partition that is being revoked, before it goes to another member. Ignores other
    /// partitions.
    pub fn commit(&mut self, partition: &TopicPartition, offset: OffsetAndMetadata) {
        self.commits.insert(partition.clone(), offset);
    }
}

impl std::fmt::Debug for Rebalance<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rebalance").field("commits", &self.commits).finish_non_exhaustive()
    }
}
