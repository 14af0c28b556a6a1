//! A mailbox: values from many senders to one receiver, in order, without a limit.
//!
//! Its values report outcomes when they are dropped, so none may stay once the receiver is gone. In tokio's channel a
//! value whose send coincides with the receiver's end stays until the last sender is dropped.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use tokio::task::coop;

use super::sync::Mutex;

/// Values for which an empty mailbox keeps memory.
const ROOM_KEPT: usize = 256;

/// The sending side of a mailbox. Clones share it.
pub(super) struct Sender<T>(Arc<Mailbox<T>>);

/// The receiving side of a mailbox. Dropping it drops the values that are left, and each that is sent from then on.
pub(super) struct Receiver<T>(Arc<Mailbox<T>>);

struct Mailbox<T>(Mutex<State<T>>);

struct State<T> {
    /// `None` once the receiver is gone.
    values: Option<VecDeque<T>>,
    /// That of the receiver, if it waits for a value or the end of the last sender.
    waker: Option<Waker>,
    senders: usize,
}

/// Creates an empty mailbox.
pub(super) fn mailbox<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { values: Some(VecDeque::new()), waker: None, senders: 1 };
    let mailbox = Arc::new(Mailbox(Mutex::new(state)));
    (Sender(mailbox.clone()), Receiver(mailbox))
}

// Each change under the lock is whole, so a panic elsewhere leaves no half of one.
impl<T> UnwindSafe for Mailbox<T> {}
impl<T> RefUnwindSafe for Mailbox<T> {}

impl<T> State<T> {
    /// Takes the next value. After a backlog its memory is returned.
    fn pop(&mut self) -> Option<T> {
        let values = self.values.as_mut()?;
        let value = values.pop_front();
        if values.is_empty() && values.capacity() > ROOM_KEPT {
            *values = VecDeque::new();
        }
        value
    }
}

impl<T> Sender<T> {
    /// Sends a value. Drops it if the receiver is gone.
    pub(super) fn send(&self, value: T) {
        let mut state = self.0.0.lock();
        let Some(values) = &mut state.values else {
            // A value may send another one when it is dropped.
            drop(state);
            return drop(value);
        };
        values.push_back(value);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether both senders send to the same receiver.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.0.lock().senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.senders -= 1;
        let waker = if state.senders == 0 { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// Waits for the next value. `None` once all senders are dropped and no value is left.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call takes no value.
    pub(super) async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    pub(super) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        // As with tokio's channels: a task that always finds a value must let others run.
        let turn = ready!(coop::poll_proceed(cx));
        let mut state = self.0.0.lock();
        let value = state.pop();
        if value.is_some() || state.senders == 0 {
            turn.made_progress();
            return Poll::Ready(value);
        }
        let replaced = state.waker.replace(cx.waker().clone());
        // A dropped waker may drop a task, and with it a sender: not under the lock.
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Returns the next value, if there is one.
    pub(super) fn try_recv(&mut self) -> Option<T> {
        self.0.0.lock().pop()
    }

    /// Whether no value is left and none will come.
    pub(super) fn is_ended(&self) -> bool {
        let state = self.0.0.lock();
        state.senders == 0 && state.values.as_ref().is_none_or(VecDeque::is_empty)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        let (values, waker) = (state.values.take(), state.waker.take());
        // Their ends may send others.
        drop(state);
        drop((values, waker));
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
