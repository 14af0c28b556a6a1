//! A queue for each assigned partition, so that tasks process partitions in parallel.

use std::{
    fmt,
    future::{pending, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use curtail_proto::{
    later::Later,
    position::{Position, Spot},
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    CloseOptions, Consumer, ConsumerHandle,
    claims::{Claim, Earlier, Jump},
    group::PendingCommit,
    reading::{Reading, Source},
    records::Records,
    shared::Shared,
};
use crate::{
    ConsumerRecord, Error, Result, TopicPartition, metrics::ConsumerMetrics, runtime::within,
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
///   to another member once the task has finished the records that it has, and they are committed. The coordinator
///   waits for that up to `max.poll.interval.ms`, and then ends the membership: all queues end. With
///   `partition.assignment.strategy=cooperative-sticky` no limit exists, because the coordinator does not know that the
///   partition will be revoked: a task that never finishes blocks the partition indefinitely.
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
    pub(super) consumer: Consumer,
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

    /// Ends all queues, and serves the group until their tasks have finished the records that they have.
    pub(super) async fn finish(&mut self) {
        let consumer = &mut self.consumer;
        let runtime = consumer.shared.runtime.clone();
        tokio::select! {
            biased;
            // Not polled under the runtime's lock: a step calls the application's listener.
            () = poll_fn(|cx| consumer.attending(|me| me.shared.poll_finished(cx))) => {}
            // The end of the runtime.
            _ = within(&runtime, pending::<()>()) => {}
        }
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
            polled.map(|more| more.map(|taken| taken.map(|records| self.returns(records))))
        })
        .await
    }

    /// What the interceptors leave of records that are about to be returned.
    fn returns(&self, records: Vec<ConsumerRecord>) -> Records {
        Records(self.shared.config.interceptors.on_consume(records))
    }

    fn poll_more(
        &mut self,
        cx: &Context<'_>,
        max: usize,
        earlier: Earlier,
    ) -> Poll<Option<Result<Vec<ConsumerRecord>>>> {
        if !self.shared.begin(&self.claim, self.reading.has_records(), earlier) {
            return Poll::Ready(None);
        }
        let max = max.min(self.shared.config.max_poll_records);
        let polled = self.reading.take_records(&self.shared, cx, max);
        if earlier == Earlier::Finished && !matches!(polled, Poll::Ready(Ok(_))) {
            self.shared.finish(&self.claim);
        }
        polled.map(Some)
    }

    /// Commits the offset after the records returned, which now count as processed. For consumers without
    /// `enable.auto.commit`. After a seek it commits the position sought; while that must be looked up, it waits up to
    /// `default.api.timeout.ms` for it.
    ///
    /// # Errors
    /// As [`Consumer::commit`]; [`Error::Timeout`] if the position stays unknown; and [`Error::Closed`] once the queue
    /// has ended and its task had no unprocessed records.
    ///
    /// # Cancel safety
    /// Cancel safe: a commit that was begun is still carried out.
    pub async fn commit(&mut self) -> Result<()> {
        let limit = self.shared.config.common.default_api_timeout;
        let deadline = Instant::now().later(limit);
        loop {
            let mut settled = pin!(self.shared.settled.notified());
            // Registered before the look, so that a response in between is not missed.
            settled.as_mut().enable();
            if self.shared.returned(&self.claim)?.is_some() {
                break;
            }
            let settled = async { timeout_at(deadline, settled).await };
            if within(&self.shared.runtime, settled).await?.is_err() {
                let what = "the position to commit (default.api.timeout.ms)";
                return Err(Error::Timeout { what, limit, last: None });
            }
        }
        self.commit_nowait()?.await
    }

    /// As [`PartitionQueue::commit`], without waiting for the outcome.
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a `group.id`, and while the position is unknown; [`Error::Closed`] as with
    /// [`PartitionQueue::commit`]. The outcome has all other errors.
    pub fn commit_nowait(&mut self) -> Result<PendingCommit> {
        let next = self.shared.returned(&self.claim)?.ok_or(Error::IllegalState(
            "the partition has no position to commit: it is being looked up, or no offset is committed",
        ))?;
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
    /// of earlier calls do not count as processed. Returns the records with the last jump of the position before them.
    pub(super) async fn more(&mut self, max: usize, idle: bool) -> Option<Result<(Jump, Records)>> {
        if max == 0 {
            poll_fn(|cx| self.shared.poll_ended(&self.claim, cx)).await;
            return None;
        }
        let earlier = if idle { Earlier::Finished } else { Earlier::Open };
        poll_fn(|cx| {
            loop {
                let records = match ready!(self.poll_more(cx, max, earlier)) {
                    Some(Ok(records)) => records,
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => return Poll::Ready(None),
                };
                let version = self.reading.returned();
                let jump =
                    version.and_then(|version| self.shared.jump_before(&self.claim, version));
                if let Some(jump) = jump {
                    return Poll::Ready(Some(Ok((jump, self.returns(records)))));
                }
                // The position has jumped since they were fetched.
            }
        })
        .await
    }

    /// The last jump of the position; `None` once the queue must end.
    pub(super) fn standing(&self) -> Option<Jump> {
        self.shared.standing(&self.claim)
    }

    /// Counts the records before this position, or with `None` all returned ones, as processed, unless the position has
    /// jumped since.
    pub(super) fn finish_to(&self, jump: Jump, first: Option<Spot>) {
        self.shared.finish_to(&self.claim, jump, first);
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
