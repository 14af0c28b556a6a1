//! Control of a consumer from other tasks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use curtail_proto::position::{Position, Reset};

use super::{Consumer, group::PendingCommit, shared::Shared, valid_spot};
use crate::{
    Error, Result, TopicPartition,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};

/// Controls a [`Consumer`] from other tasks and threads, while one task polls. Clones are cheap.
///
/// A poll that begins after a call here has returned obeys it. A handle does not keep the consumer alive: once the
/// consumer is closed or dropped, calls have no effect, and those with a result fail with [`Error::Closed`].
///
/// ```
/// # fn example(consumer: &curtail::Consumer, partition: curtail::TopicPartition) {
/// let handle = consumer.handle();
/// tokio::spawn(async move {
///     handle.pause([&partition]);
///     // The database is back.
///     handle.resume([&partition]);
/// });
/// # }
/// ```
#[derive(Clone)]
pub struct ConsumerHandle {
    shared: Weak<Shared>,
}

impl ConsumerHandle {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::downgrade(shared) }
    }

    pub(super) fn shared(&self) -> Result<Arc<Shared>> {
        let open = |shared: &Arc<Shared>| !shared.state.lock().closed;
        self.shared.upgrade().filter(open).ok_or(Error::Closed)
    }

    /// As [`Consumer::assignment`].
    pub fn assignment(&self) -> BTreeSet<TopicPartition> {
        self.shared().map(|shared| shared.assignment()).unwrap_or_default()
    }

    /// As [`Consumer::paused`].
    pub fn paused(&self) -> BTreeSet<TopicPartition> {
        self.shared().map(|shared| shared.paused()).unwrap_or_default()
    }

    /// As [`Consumer::pause`].
    pub fn pause<'a>(&self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        let Ok(shared) = self.shared() else { return };
        let mut state = shared.state.lock();
        for at in partitions {
            state.pause(at, None, shared.config.prefetch_bytes);
        }
        drop(state);
        shared.change_from_outside();
    }

    /// As [`Consumer::resume`].
    pub fn resume<'a>(&self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        if let Ok(shared) = self.shared() {
            shared.resume(partitions);
        }
    }

    /// As [`Consumer::seek`].
    ///
    /// # Errors
    /// As [`Consumer::seek`]; and [`Error::Closed`].
    pub fn seek(&self, partition: &TopicPartition, offset: i64) -> Result<()> {
        self.seek_to(partition, &OffsetAndMetadata::new(offset))
    }

    /// As [`Consumer::seek_to`].
    ///
    /// # Errors
    /// As [`Consumer::seek_to`]; and [`Error::Closed`].
    pub fn seek_to(&self, partition: &TopicPartition, to: &OffsetAndMetadata) -> Result<()> {
        let spot = valid_spot(to)?;
        let shared = self.shared()?;
        let jumped = shared.jump(partition, |position, versions| position.seek_to(spot, versions));
        shared.change_from_outside();
        jumped
    }

    /// As [`Consumer::seek_to_beginning`].
    ///
    /// # Errors
    /// As [`Consumer::seek_to_beginning`]; and [`Error::Closed`].
    pub fn seek_to_beginning<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<()> {
        self.reset(partitions, Reset::Earliest)
    }

    /// As [`Consumer::seek_to_end`].
    ///
    /// # Errors
    /// As [`Consumer::seek_to_end`]; and [`Error::Closed`].
    pub fn seek_to_end<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<()> {
        self.reset(partitions, Reset::Latest)
    }

    /// As [`Consumer::seek_to_timestamp`].
    ///
    /// # Errors
    /// As [`Consumer::seek_to_timestamp`]; and [`Error::Closed`].
    pub fn seek_to_timestamp(&self, partition: &TopicPartition, timestamp: i64) -> Result<()> {
        self.reset([partition], Reset::Timestamp(timestamp))
    }

    fn reset<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
        to: Reset,
    ) -> Result<()> {
        let shared = self.shared()?;
        let all = shared.reset(partitions, to);
        shared.change_from_outside();
        all
    }

    /// The offset after the records of a partition that polls have returned; `None` while it is unknown, and for a
    /// partition that is not assigned. Records that a stream returns one by one count once their batch is finished.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        let shared = self.shared().ok()?;
        let state = shared.state.lock();
        let position = state.partitions.get(partition).map(|assigned| &assigned.position);
        position.and_then(Position::consumed).map(|at| at.offset)
    }

    /// As [`Consumer::commit_offsets`]. A handle commits offsets that the application names: it does not know which of
    /// the returned records are processed.
    ///
    /// # Errors
    /// As [`Consumer::commit_offsets`]; and [`Error::Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: a commit that was begun is still carried out.
    pub async fn commit_offsets(
        &self,
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    ) -> Result<()> {
        self.commit_offsets_nowait(offsets)?.await
    }

    /// As [`Consumer::commit_offsets_nowait`].
    ///
    /// # Errors
    /// As [`Consumer::commit_offsets_nowait`]; and [`Error::Closed`].
    pub fn commit_offsets_nowait(
        &self,
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    ) -> Result<PendingCommit> {
        self.shared()?.commit(offsets.into_iter().collect())
    }

    /// As [`Consumer::committed`].
    ///
    /// # Errors
    /// As [`Consumer::committed`]; and [`Error::Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndMetadata>>> {
        self.shared()?.committed_offsets(partitions).await
    }

    /// As [`Consumer::group_metadata`].
    pub fn group_metadata(&self) -> Option<ConsumerGroupMetadata> {
        let shared = self.shared().ok()?;
        shared.group.as_ref().map(|group| group.metadata())
    }
}

impl std::fmt::Debug for ConsumerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerHandle").finish_non_exhaustive()
    }
}

impl Consumer {
    /// Returns a handle with which other tasks control this consumer.
    pub fn handle(&self) -> ConsumerHandle {
        ConsumerHandle::new(&self.shared)
    }
}
