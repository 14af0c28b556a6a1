//! Stopping all tasks of a broker at once, as SIGSTOP stops a process.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Whether the tasks of one broker may run. It outlives the broker's incarnations.
#[derive(Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Waker>>,
}

impl Gate {
    /// Stops all tasks. A poll that is running on another thread ends first.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Resumes all tasks.
    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for waker in waiting.into_values() {
            waker.wake();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Wraps a future so that it is polled only while the gate is open. `alive` is dropped with it.
    pub(crate) fn guard<F>(self: &Arc<Self>, alive: &Alive, future: F) -> Gated<F> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        Gated { gate: Arc::clone(self), id, future: Box::pin(future), _alive: alive.clone() }
    }
}

/// Held by every task of an incarnation, which has ended when the last one is dropped.
pub(crate) type Alive = mpsc::Sender<std::convert::Infallible>;

/// See [`Gate::guard`].
pub(crate) struct Gated<F> {
    gate: Arc<Gate>,
    id: u64,
    future: Pin<Box<F>>,
    _alive: Alive,
}

impl<F: Future> Future for Gated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.gate.is_closed() {
            self.gate.waiting.lock().insert(self.id, cx.waker().clone());
            // The gate may have opened before the waker was registered.
            if self.gate.is_closed() {
                return Poll::Pending;
            }
        }
        self.future.as_mut().poll(cx)
    }
}

impl<F> Drop for Gated<F> {
    fn drop(&mut self) {
        self.gate.waiting.lock().remove(&self.id);
    }
}
