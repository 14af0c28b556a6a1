//! Loom's counterparts of the client's types from parking_lot, tokio and the standard library.

use std::{
    future::{Future, poll_fn},
    task::{Poll, Waker},
};

pub(crate) use loom::sync::{
    MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
};

#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no thread panics")
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

pub(crate) type LinkLock<T> = Mutex<T>;
pub(crate) type LinkGuard<'a, T> = MutexGuard<'a, T>;
pub(crate) type InboxLock<T> = Mutex<T>;

/// Leaks its value.
#[derive(Debug)]
pub(crate) struct OnceLock<T: 'static>(loom::sync::Mutex<Option<&'static T>>);

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self(loom::sync::Mutex::new(None))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        *self.0.lock().expect("no thread panics")
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let mut known = self.0.lock().expect("no thread panics");
        if known.is_some() {
            return Err(value);
        }
        *known = Some(Box::leak(Box::new(value)));
        Ok(())
    }
}

/// As tokio's, for one waiting task.
#[derive(Debug)]
pub(crate) struct Notify(Mutex<Told>);

#[derive(Debug)]
struct Told {
    permit: bool,
    waiter: Option<Waker>,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Told { permit: false, waiter: None }))
    }

    pub(crate) fn notify_one(&self) {
        let mut told = self.0.lock();
        told.permit = true;
        let waiter = told.waiter.take();
        drop(told);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    pub(crate) fn notified(&self) -> impl Future<Output = ()> {
        poll_fn(|cx| {
            let mut told = self.0.lock();
            if std::mem::take(&mut told.permit) {
                return Poll::Ready(());
            }
            told.waiter = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Takes the permit, if there is one.
    pub(crate) fn was_notified(&self) -> bool {
        std::mem::take(&mut self.0.lock().permit)
    }
}
