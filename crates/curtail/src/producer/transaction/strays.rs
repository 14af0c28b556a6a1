//! In-flight requests whose batches of the transaction have expired: their leaders may still append those batches.
//!
//! With version 1 the marker of an abort has the same epoch as the batches. A batch that a leader appends after the
//! marker never ends: it blocks the last stable offset, or joins the next transaction. So EndTxn waits for these
//! requests.

use tokio::sync::watch;

/// Number of such requests.
pub(in crate::producer) struct Strays(watch::Sender<usize>);

impl Strays {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Counts a request until the returned value is dropped, with its response or its connection.
    pub(in crate::producer) fn count(&self) -> Stray {
        self.0.send_modify(|count| *count += 1);
        Stray(self.0.clone())
    }

    /// Waits until each of them has its response, or has lost its connection after `request.timeout.ms` at the
    /// latest.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn none_left(&self) {
        // `self` owns the sender, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// A counted request.
pub(in crate::producer) struct Stray(watch::Sender<usize>);

impl Drop for Stray {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
