//! What becomes of a record: one shared result per batch, one light handle per record.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::memory::Reservation;
use crate::{Error, RecordMetadata, Result};

/// When a batch passed its stations. Cheap: three clock reads a batch.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Its first record was appended.
    pub created: Instant,
    /// Its last attempt was handed to the socket.
    pub written: Instant,
    /// Its answer was read.
    pub acknowledged: Instant,
}

/// A batch that is in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    pub(super) base_offset: Option<i64>,
    pub(super) log_append_time: Option<i64>,
    pub(super) timing: Timing,
}

/// The outcome that every record of a batch shares.
#[derive(Debug)]
pub(super) struct BatchResult {
    topic: Arc<str>,
    partition: i32,
    outcome: OnceLock<Result<Acknowledged>>,
    waiters: Mutex<Vec<Waker>>,
}

impl BatchResult {
    pub(super) fn new(topic: Arc<str>, partition: i32) -> Arc<Self> {
        Arc::new(Self { topic, partition, outcome: OnceLock::new(), waiters: Mutex::default() })
    }

    pub(super) fn is_resolved(&self) -> bool {
        self.outcome.get().is_some()
    }

    fn resolve(&self, outcome: Result<Acknowledged>) {
        if self.outcome.set(outcome).is_err() {
            return;
        }
        for waiter in std::mem::take(&mut *self.waiters.lock()) {
            waiter.wake();
        }
    }

    fn poll_outcome(&self, cx: &mut Context<'_>) -> Poll<&Result<Acknowledged>> {
        if let Some(outcome) = self.outcome.get() {
            return Poll::Ready(outcome);
        }
        let mut waiters = self.waiters.lock();
        // Resolving sets the outcome before it takes the waiters: seen unset under the lock, this waker is woken.
        if let Some(outcome) = self.outcome.get() {
            return Poll::Ready(outcome);
        }
        if !waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Waits for the outcome, whatever it is.
    pub(super) async fn resolved(self: Arc<Self>) {
        std::future::poll_fn(|cx| self.poll_outcome(cx).map(drop)).await;
    }
}

/// The sending side of a [`BatchResult`], with the memory that the batch holds.
///
/// Dropped without an outcome, it resolves its waiters with [`Error::Closed`]: nobody waits for ever.
#[derive(Debug)]
pub(super) struct Completion {
    result: Arc<BatchResult>,
    _memory: Reservation,
}

impl Completion {
    pub(super) fn new(result: Arc<BatchResult>, memory: Reservation) -> Self {
        Self { result, _memory: memory }
    }

    pub(super) fn result(&self) -> &Arc<BatchResult> {
        &self.result
    }

    pub(super) fn acknowledge(self, acknowledged: Acknowledged) {
        self.result.resolve(Ok(acknowledged));
    }

    pub(super) fn fail(self, cause: Error, may_have_been_written: bool) {
        self.result.resolve(Err(Error::NotAcknowledged {
            topic: self.result.topic.clone(),
            partition: self.result.partition,
            may_have_been_written,
            cause: Arc::new(cause),
        }));
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.result.resolve(Err(Error::Closed));
    }
}

/// The acknowledgement of one record, to be awaited or asked.
///
/// Dropping it does not take the record back.
///
/// # Cancel safety
/// Cancel safe: awaiting it again after a dropped wait is not possible by value, but `&mut delivery` can be
/// awaited any number of times before it is ready.
#[derive(Debug)]
pub struct Delivery {
    result: Arc<BatchResult>,
    index: u32,
}

impl Delivery {
    pub(super) fn new(result: Arc<BatchResult>, index: u32) -> Self {
        Self { result, index }
    }

    /// The outcome, if it is there.
    pub fn outcome(&self) -> Option<Result<RecordMetadata>> {
        self.result.outcome.get().map(|outcome| self.describe(outcome))
    }

    /// When the record's batch passed its stations; `None` until it is acknowledged, and for a failed one.
    pub fn timing(&self) -> Option<Timing> {
        self.result.outcome.get()?.as_ref().ok().map(|acknowledged| acknowledged.timing)
    }

    /// Whether both records travel in the same batch, and so share outcome and timing.
    pub fn shares_batch_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.result, &other.result)
    }

    fn describe(&self, outcome: &Result<Acknowledged>) -> Result<RecordMetadata> {
        let acknowledged = outcome.as_ref().map_err(Clone::clone)?;
        Ok(RecordMetadata {
            topic: self.result.topic.clone(),
            partition: self.result.partition,
            // A base so large that there is no offset for the record cannot be meant.
            offset: acknowledged.base_offset.and_then(|b| b.checked_add(i64::from(self.index))),
            log_append_time: acknowledged.log_append_time,
        })
    }
}

impl Future for Delivery {
    type Output = Result<RecordMetadata>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.result.poll_outcome(cx) {
            Poll::Ready(outcome) => Poll::Ready(self.describe(outcome)),
            Poll::Pending => Poll::Pending,
        }
    }
}
