//! A queue for each assigned partition, so that tasks process partitions in parallel.

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
};

use curtail_proto::position::{Position, Spot};
use tokio::time::timeout;

use super::{
    CloseOptions, Consumer, ConsumerHandle,
    claims::{Claim, Earlier},
    group::PendingCommit,
    reading::{Reading, Source},
    records::Records,
    shared::Shared,
};
use crate::{
    Error, Result, TopicPartition, metrics::ConsumerMetrics, runtime::within,
    transaction::OffsetAndMetadata,
};

/// A consumer whose partitions are read by separate tasks, made by [`Consumer::into_queues`].
///
/// [`PartitionQueues::next`] returns a [`PartitionQueue`] for each assigned partition, and serves the group while it
/// waits. Call it all the time: a member that does not for `max.poll.interval.ms` loses its partitions.
///
/// - **Back-pressure.** A queue whose task is slow holds at most its share of `curtail.prefetch.bytes`. The other
///   partitions continue.
/// - **Progress.** Records count as processed when their task calls [`PartitionQueue::next`] again. Auto-commit commits
///   processed records only.
/// - **Revocation.** A queue whose partition is revoked ends: [`PartitionQueue::next`] returns `None`. The partition goes
///   to another member once the task has finished the records that it has, and they are committed. A task that takes
///   longer than the coordinator waits (`max.poll.interval.ms`) ends the membership.
/// - **Failure.** If a task drops its queue early, for example in a panic, [`PartitionQueues::next`] returns a new queue
///   for the partition. It begins with the first record that was not processed.
///
/// ```no_run
/// # async fn store(_: &curtail::ConsumerRecord) {}
/// # async fn example(consumer: curtail::Consumer) -> curtail::Result<()> {
/// let mut queues = consumer.into_queues();
/// loop {
///     tokio::select! {
///         queue = queues.next() => {
///             let mut queue = queue?;
///             tokio::spawn(async move {
///                 while let Some(records) = queue.next().await {
///                     for record in &records? {
///                         store(record).await;
///                     }
///                 }
///                 Ok::<(), curtail::Error>(())
///             });
///         }
///         _ = tokio::signal::ctrl_c() => break,
///     }
/// }
/// queues.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PartitionQueues {
    consumer: Consumer,
}

/// The records of one assigned partition, returned by [`PartitionQueues::next`].
pub struct PartitionQueue {
    shared: Arc<Shared>,
    claim: Claim,
    reading: Reading,
}

impl Consumer {
    /// Turns the consumer into a queue for each partition. Assignment, subscription and positions stay.
    pub fn into_queues(mut self) -> PartitionQueues {
        self.save_position();
        let mut state = self.shared.state.lock();
        // Records that polls were reading are fetched again.
        if let Some(at) = self.reading.partition() {
            // The partition may have been revoked.
            let _ = state.jump(&at, Position::rewind);
        }
        state.split();
        drop(state);
        self.drop_stale_cursor();
        PartitionQueues { consumer: self }
    }
}

impl PartitionQueues {
    /// Waits for an assigned partition without a queue. Assigns and revokes partitions, as [`Consumer::poll`].
    ///
    /// # Errors
    /// As [`Consumer::poll`], for errors of the whole consumer. The errors of a partition are those of its queue.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<PartitionQueue> {
        let consumer = &mut self.consumer;
        let claim = poll_fn(|cx| {
            let proceed = ready!(tokio::task::coop::poll_proceed(cx));
            let polled = consumer.attending(|me| me.shared.poll_claim(cx));
            if polled.is_ready() {
                proceed.made_progress();
            }
            polled
        })
        .await?;
        let decoding = consumer.reading.decoding();
        let reading = Reading::new(Source::Claimed(claim.clone()), decoding);
        Ok(PartitionQueue { shared: consumer.shared.clone(), claim, reading })
    }

    /// Returns a handle with which other tasks control the consumer.
    pub fn handle(&self) -> ConsumerHandle {
        self.consumer.handle()
    }

    /// As [`Consumer::metrics`].
    pub fn metrics(&self) -> ConsumerMetrics {
        self.consumer.metrics()
    }

    /// Ends all queues, waits until their tasks have finished the records that they have, and closes the consumer. Waits
    /// up to `default.api.timeout.ms` for each of the two.
    ///
    /// # Cancel safety
    /// Cancel safe: the background tasks still shut down.
    pub async fn close(self) {
        self.close_with(CloseOptions::new()).await;
    }

    /// As [`PartitionQueues::close`], with another limit or another end of the membership.
    ///
    /// # Cancel safety
    /// Cancel safe: the background tasks still shut down.
    pub async fn close_with(self, options: CloseOptions) {
        let shared = &self.consumer.shared;
        let limit = options.timeout.unwrap_or(shared.config.common.default_api_timeout);
        let finished = poll_fn(|cx| shared.poll_finished(cx));
        let finished = async { timeout(limit, finished).await };
        let _ = within(&shared.runtime, finished).await;
        self.consumer.close_with(options).await;
    }
}

impl PartitionQueue {
    /// The partition.
    pub fn partition(&self) -> &TopicPartition {
        &self.claim.at
    }

    /// Waits for the next records, at most `max.poll.records`. The records of the previous call now count as processed.
    /// `None`: the partition is revoked or lost, or the consumer was closed or dropped.
    ///
    /// # Errors
    /// As [`Consumer::poll`], for errors of this partition.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has taken no records. The records of the previous call count as processed.
    pub async fn next(&mut self) -> Option<Result<Records>> {
        poll_fn(|cx| {
            let proceed = ready!(tokio::task::coop::poll_proceed(cx));
            let polled = self.poll_more(cx, usize::MAX, Earlier::Finished);
            if polled.is_ready() {
                proceed.made_progress();
            }
            polled
        })
        .await
    }

    fn poll_more(
        &mut self,
        cx: &Context<'_>,
        max: usize,
        earlier: Earlier,
    ) -> Poll<Option<Result<Records>>> {
        if !self.shared.begin(&self.claim, self.reading.has_records(), earlier) {
            return Poll::Ready(None);
        }
        let max = max.min(self.shared.config.max_poll_records);
        let polled = self.reading.take_records(&self.shared, cx, max);
        if earlier == Earlier::Finished && !matches!(polled, Poll::Ready(Ok(_))) {
            self.shared.finish(&self.claim);
        }
        polled.map(|taken| Some(taken.map(Records)))
    }

    /// Commits the offset after the records returned, which now count as processed. For consumers without
    /// `enable.auto.commit`.
    ///
    /// # Errors
    /// As [`Consumer::commit`]; and [`Error::Closed`] once the queue has ended and its task had no unprocessed records.
    ///
    /// # Cancel safety
    /// Cancel safe: a commit that was begun is still carried out.
    pub async fn commit(&mut self) -> Result<()> {
        self.commit_nowait()?.await
    }

    /// As [`PartitionQueue::commit`], without waiting for the outcome.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`; and [`Error::Closed`] as with [`PartitionQueue::commit`]. The
    /// outcome has all other errors.
    pub fn commit_nowait(&mut self) -> Result<PendingCommit> {
        let next = self.shared.returned(&self.claim).ok_or(Error::Closed)?;
        let offsets = [(self.claim.at.clone(), OffsetAndMetadata::at(next))];
        // Queued before the consumer learns that the records are finished, so that it precedes the revocation.
        let pending = self.shared.commit(offsets.into())?;
        self.shared.finish(&self.claim);
        Ok(pending)
    }

    /// Whether the partition is revoked: the next call of [`PartitionQueue::next`] returns `None`. A task with much work
    /// left may check this and stop early.
    pub fn is_revoked(&self) -> bool {
        self.shared.has_ended(&self.claim)
    }

    /// As [`PartitionQueue::next`], for at most `max` records; with 0 it waits for the end. If `idle` is false, the records
    /// of earlier calls do not count as processed.
    pub(super) async fn more(&mut self, max: usize, idle: bool) -> Option<Result<Records>> {
        if max == 0 {
            poll_fn(|cx| self.shared.poll_ended(&self.claim, cx)).await;
            return None;
        }
        let earlier = if idle { Earlier::Finished } else { Earlier::Open };
        poll_fn(|cx| self.poll_more(cx, max, earlier)).await
    }

    /// Counts the returned records before this position as processed.
    pub(super) fn finish_to(&self, spot: Spot) {
        self.shared.finish_to(&self.claim, spot);
    }

    /// Counts the returned records as processed.
    pub(super) fn finish(&self) {
        self.shared.finish(&self.claim);
    }
}

impl Drop for PartitionQueue {
    fn drop(&mut self) {
        self.shared.give_back(&self.claim);
    }
}

impl fmt::Debug for PartitionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionQueue").field("partition", &self.claim.at).finish_non_exhaustive()
    }
}
