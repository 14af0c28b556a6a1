//! The close of a client, which several calls may request.

use std::mem;

use curtail::Result;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::port::{Pending, none};

/// Whether a client is closed, and the calls that wait for its end. A call that is cancelled ends nothing.
#[derive(Default)]
pub(crate) struct Closing {
    state: Mutex<State>,
    requested: Notify,
}

#[derive(Default)]
enum State {
    #[default]
    Open,
    Requested(Vec<Pending>),
    Ended(Result<()>),
}

impl Closing {
    pub(crate) fn is_requested(&self) -> bool {
        !matches!(*self.state.lock(), State::Open)
    }

    /// Resolves the call once the client is closed. Returns whether the call is the first: its caller closes the client.
    pub(crate) fn request(&self, pending: Option<Pending>) -> bool {
        let mut state = self.state.lock();
        match &mut *state {
            State::Open => {
                *state = State::Requested(pending.into_iter().collect());
                drop(state);
                self.requested.notify_waiters();
                return true;
            }
            State::Requested(waiting) => waiting.extend(pending),
            State::Ended(result) => {
                if let Some(pending) = pending {
                    pending.settle(result.clone(), none);
                }
            }
        }
        false
    }

    /// Waits for the first request.
    pub(crate) async fn requested(&self) {
        let requested = self.requested.notified();
        tokio::pin!(requested);
        // From here on a request is noticed.
        requested.as_mut().enable();
        if !self.is_requested() {
            requested.await;
        }
    }

    /// Resolves the calls: the client is closed.
    pub(crate) fn end(&self, result: Result<()>) {
        let before = mem::replace(&mut *self.state.lock(), State::Ended(result.clone()));
        if let State::Requested(waiting) = before {
            for pending in waiting {
                pending.settle(result.clone(), none);
            }
        }
    }
}
