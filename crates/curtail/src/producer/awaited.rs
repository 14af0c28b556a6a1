//! A value that is set once, and the tasks that wait for it.
//!
//! A waiter remembers its slot, so that repeated polls and leaving cost the same for any number of waiters.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use curtail_proto::plant::{Plant, planted};

use super::sync::{Mutex, OnceLock};

/// A waiter's place in one [`Awaited`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

impl Slot {
    /// Of a task that does not wait.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// A value that is set once.
#[derive(Debug)]
pub(super) struct Awaited<T: 'static> {
    value: OnceLock<T>,
    waiters: Mutex<Waiters>,
}

/// Wakers by slot. Free slots form a list.
#[derive(Debug)]
struct Waiters {
    slots: Vec<Entry>,
    free: Slot,
}

#[derive(Debug)]
enum Entry {
    Waits(Waker),
    Free { next: Slot },
}

impl Waiters {
    const NONE: Self = Self { slots: Vec::new(), free: Slot::NONE };

    fn entry(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.slots.get_mut(slot.0 as usize)
    }

    /// Keeps the waker in the slot, or in a new one. Returns a waker that is no longer needed.
    fn keep(&mut self, slot: &mut Slot, waker: &Waker) -> Option<Waker> {
        if let Some(Entry::Waits(known)) = self.entry(*slot) {
            let changed = !known.will_wake(waker);
            return changed.then(|| std::mem::replace(known, waker.clone()));
        }
        let waits = Entry::Waits(waker.clone());
        let free = self.free;
        *slot = match self.entry(free) {
            Some(entry) => {
                if let Entry::Free { next } = std::mem::replace(entry, waits) {
                    self.free = next;
                }
                free
            }
            None => {
                self.slots.push(waits);
                Slot((self.slots.len() - 1) as u32)
            }
        };
        None
    }

    /// Frees the slot. Returns its waker.
    fn leave(&mut self, slot: Slot) -> Option<Waker> {
        let next = self.free;
        let entry = self.entry(slot)?;
        if matches!(entry, Entry::Free { .. }) {
            return None;
        }
        let left = std::mem::replace(entry, Entry::Free { next });
        self.free = slot;
        match left {
            Entry::Waits(waker) => Some(waker),
            Entry::Free { .. } => None,
        }
    }
}

impl<T: 'static> Awaited<T> {
    pub(super) fn new() -> Self {
        Self { value: OnceLock::new(), waiters: Mutex::new(Waiters::NONE) }
    }

    pub(super) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Sets the value and wakes all waiters. The first value stays.
    pub(super) fn set(&self, value: T) {
        if self.value.set(value).is_err() {
            return;
        }
        let waiters = std::mem::replace(&mut *self.waiters.lock(), Waiters::NONE);
        let dropped = usize::from(planted(Plant::WakeUpDropped));
        for entry in waiters.slots.into_iter().skip(dropped) {
            if let Entry::Waits(waker) = entry {
                waker.wake();
            }
        }
    }

    /// Polls for the value. Until it is set, `slot` belongs to the waiter.
    pub(super) fn poll(&self, cx: &Context<'_>, slot: &mut Slot) -> Poll<&T> {
        if let Some(value) = self.value.get() {
            *slot = Slot::NONE;
            return Poll::Ready(value);
        }
        let mut waiters = self.waiters.lock();
        // The value is set before the waiters are taken, so a waker that is kept without a value is woken.
        if let Some(value) = self.value.get() {
            *slot = Slot::NONE;
            return Poll::Ready(value);
        }
        // A dropped waker may drop a task, and with it another waiter: not under the lock.
        let replaced = waiters.keep(slot, cx.waker());
        drop(waiters);
        drop(replaced);
        Poll::Pending
    }

    /// Removes the waiter of this slot.
    pub(super) fn leave(&self, slot: &mut Slot) {
        if *slot == Slot::NONE || self.value.get().is_some() {
            return;
        }
        let left = self.waiters.lock().leave(std::mem::replace(slot, Slot::NONE));
        drop(left);
    }

    /// Waits for the value.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped wait frees its slot.
    pub(super) fn wait(&self) -> Wait<'_, T> {
        Wait { awaited: self, slot: Slot::NONE }
    }

    /// Number of slots, in use or free.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.waiters.lock().slots.len()
    }
}

/// Waits for an [`Awaited`].
pub(super) struct Wait<'a, T: 'static> {
    awaited: &'a Awaited<T>,
    slot: Slot,
}

impl<'a, T> Future for Wait<'a, T> {
    type Output = &'a T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let awaited = self.awaited;
        awaited.poll(cx, &mut self.slot)
    }
}

impl<T> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        self.awaited.leave(&mut self.slot);
    }
}
