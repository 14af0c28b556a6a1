//! Mutexes with a place in the order in which a task may take them (`docs/DESIGN.md`, "Locks").
//!
//! With debug assertions, a task that waits for a lock out of order panics, whether or not another task would have made
//! it a deadlock. So every test and every simulation checks the order. Without them nothing is checked or stored.

use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

/// Of `Shared::lanes`.
pub(super) const LANES: u8 = 0;
/// Of a lane's link.
pub(super) const LINK: u8 = 1;
/// Of a partition's state.
pub(super) const STATE: u8 = 2;
/// Of a lane's inbox.
pub(super) const INBOX: u8 = 3;

/// A mutex that a task waits for only while it holds none of this or a later rank.
#[derive(Debug, Default)]
pub(super) struct Ranked<T, const RANK: u8>(Mutex<T>);

/// Holds a [`Ranked`] lock.
#[derive(Debug)]
pub(super) struct RankedGuard<'a, T, const RANK: u8> {
    guard: MutexGuard<'a, T>,
    #[cfg(debug_assertions)]
    _held: held::Held,
}

impl<T, const RANK: u8> Ranked<T, RANK> {
    pub(super) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(super) fn lock(&self) -> RankedGuard<'_, T, RANK> {
        #[cfg(debug_assertions)]
        held::check(RANK);
        Self::guard(self.0.lock())
    }

    /// Does not wait, so any order is safe.
    pub(super) fn try_lock(&self) -> Option<RankedGuard<'_, T, RANK>> {
        self.0.try_lock().map(Self::guard)
    }

    fn guard(guard: MutexGuard<'_, T>) -> RankedGuard<'_, T, RANK> {
        RankedGuard {
            guard,
            #[cfg(debug_assertions)]
            _held: held::Held::add(RANK),
        }
    }
}

impl<T, const RANK: u8> Deref for RankedGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for RankedGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    const NAMES: [&str; 4] = ["the lanes", "a link", "a partition's state", "a lane's inbox"];

    thread_local! {
        /// Ranks of the locks that the thread holds.
        static HELD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// Panics if a thread must not wait for a lock of this rank now.
    pub(super) fn check(rank: u8) {
        let later = HELD.with_borrow(|held| held.iter().copied().find(|held| *held >= rank));
        if let Some(later) = later {
            let name = |rank: u8| NAMES.get(usize::from(rank)).unwrap_or(&"a lock");
            panic!("locks out of order: {} while {} is held", name(rank), name(later));
        }
    }

    /// Counts a lock as held.
    #[derive(Debug)]
    pub(super) struct Held(u8);

    impl Held {
        pub(super) fn add(rank: u8) -> Self {
            HELD.with_borrow_mut(|held| held.push(rank));
            Self(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                if let Some(at) = held.iter().rposition(|rank| *rank == self.0) {
                    held.swap_remove(at);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Link = Ranked<i32, LINK>;
    type State = Ranked<i32, STATE>;

    #[test]
    fn locks_are_taken_in_order_and_released_in_any() {
        let (link, state) = (Link::new(1), State::new(2));
        for _ in 0..2 {
            let first = link.lock();
            let mut second = state.lock();
            *second += *first;
            drop(first);
            assert!(state.try_lock().is_none());
            drop(second);
        }
        assert_eq!(*state.lock(), 4);
    }

    #[test]
    #[should_panic(expected = "locks out of order: a link while a partition's state is held")]
    fn a_lock_out_of_order_is_refused() {
        let (link, state) = (Link::new(1), State::new(2));
        let _state = state.lock();
        let _ = link.lock();
    }

    #[test]
    #[should_panic(expected = "locks out of order: a link while a link is held")]
    fn a_second_lock_of_a_rank_is_refused() {
        let (one, other) = (Link::new(1), Link::new(2));
        let _one = one.lock();
        let _ = other.lock();
    }

    #[test]
    fn a_lock_without_a_wait_may_be_out_of_order_and_counts_as_held() {
        let (one, other, state) = (Link::new(1), Link::new(2), State::new(3));
        let _one = one.lock();
        let other = other.try_lock().expect("it is free");
        drop(other);
        assert_eq!(*state.lock(), 3);
    }
}
