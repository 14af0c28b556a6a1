//! Stops an examination from another thread.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{pin, select, sync::Notify};

use crate::error::{Error, Result};

/// Stops a run.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_set: AtomicBool,
    changed: Notify,
}

impl Stop {
    /// Makes the run end as soon as it has cleaned up.
    pub fn set(&self) {
        self.0.is_set.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.0.is_set.load(Ordering::SeqCst) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Does the work, or drops it at a stop: a broker that does not respond would hold it until a timeout.
    pub(super) async fn unless_set<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T>
    where
        Error: From<E>,
    {
        let stopped = self.0.changed.notified();
        pin!(stopped);
        // From here on a stop is noticed.
        stopped.as_mut().enable();
        self.check()?;
        select! {
            biased;
            () = stopped => Err(Error::Interrupted),
            done = work => Ok(done?),
        }
    }
}
