//! The receiver of tagged outcomes for plain threads.

use std::time::Duration;

use tokio::time::timeout;

use super::{Runtime, refuse_in_async_context};
use crate::{
    Result,
    producer::{CompletionRun, CompletionSink},
};

/// [`crate::producer::Completions`] for plain threads, made by
/// [`Producer::completions`](super::Producer::completions) or
/// [`TransactionalProducer::completions`](super::TransactionalProducer::completions). As an iterator it returns runs
/// until the last sink and its last record have ended, as [`Completions::recv`] does.
///
/// It may move to another thread, and may outlive the producer. Dropping it discards the outcomes, and cancels no
/// record.
#[derive(Debug)]
pub struct Completions {
    inner: crate::producer::Completions,
    runtime: Runtime,
}

impl Completions {
    /// Adds a runtime to the receiver of a pair.
    pub(super) fn with(
        runtime: &Runtime,
        (sink, inner): (CompletionSink, crate::producer::Completions),
    ) -> (CompletionSink, Self) {
        (sink, Self { inner, runtime: runtime.clone() })
    }

    /// Waits for the next run. `None` once all sinks are dropped and no record of theirs is open.
    ///
    /// # Errors
    /// Inside an async context. Then no run is taken.
    pub fn recv(&mut self) -> Result<Option<CompletionRun>> {
        self.runtime.block_on(self.inner.next())
    }

    /// Waits for the next run for up to `limit`. `None` if none has arrived, or none will: see
    /// [`Completions::is_ended`].
    ///
    /// # Errors
    /// Inside an async context. Then no run is taken.
    pub fn recv_timeout(&mut self, limit: Duration) -> Result<Option<CompletionRun>> {
        refuse_in_async_context()?;
        // For a run that has arrived no timer is needed.
        if let Some(run) = self.try_recv() {
            return Ok(Some(run));
        }
        // The timer must be created inside the runtime.
        let received = self.runtime.block_on(async { timeout(limit, self.inner.next()).await })?;
        Ok(received.unwrap_or(None))
    }

    /// Returns the next run, if there is one. Never blocks, and so may be called anywhere. See
    /// [`Completions::is_ended`].
    pub fn try_recv(&mut self) -> Option<CompletionRun> {
        self.inner.try_next()
    }

    /// Whether no run is left and none will come: all sinks are dropped, and no record of theirs is open.
    pub fn is_ended(&self) -> bool {
        self.inner.is_ended()
    }
}

impl Iterator for Completions {
    type Item = Result<CompletionRun>;

    fn next(&mut self) -> Option<Self::Item> {
        self.recv().transpose()
    }
}
