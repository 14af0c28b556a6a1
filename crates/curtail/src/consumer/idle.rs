//! Time that polls wait for records, for the metric `poll-idle-ratio-avg`.

use std::{sync::Arc, task::Poll};

use super::shared::Shared;

/// The wait of a poll or a stream, if one is in progress. A drop ends it.
#[derive(Default)]
pub(super) struct Idle(Option<Arc<Shared>>);

impl Idle {
    /// Passes on the result of a step, and records where a wait begins or ends.
    pub(super) fn after<T>(&mut self, shared: &Arc<Shared>, step: Poll<T>) -> Poll<T> {
        if step.is_ready() {
            self.end();
        } else if self.0.is_none() {
            shared.stats.idle.begin();
            self.0 = Some(shared.clone());
        }
        step
    }

    fn end(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.stats.idle.end();
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Idle").field(&self.0.is_some()).finish()
    }
}
