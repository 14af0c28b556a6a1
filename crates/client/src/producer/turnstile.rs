//! Turnstile of a lane: its work lists, the link that sends from them, and the waker of the lane's driver.
//!
//! A task that queues work sends it itself if the link is free. Otherwise it wakes the driver, which looks at the lists
//! again.
//!
//! # Invariants
//! - Work enters its list before the link is tried, and the driver registers before it looks at the lists. The holder
//!   of the link therefore sees queued work, or the driver is woken.
//! - A task that leaves work behind returns [`Left::ToDriver`], unless an event that the driver awaits makes it look
//!   again.
//! - The driver's timer never fires after the next deadline ([`Armed::covers`]), or the driver is woken.
//!
//! # Locks
//! `link`, then `work`. The waker's lock is innermost, and no waker runs under it.

use std::{
    collections::{BTreeMap, VecDeque},
    task::Waker,
    time::Instant,
};

use super::sync::{LinkGuard, LinkLock, Mutex, WorkGuard, WorkLock};

/// Work lists of `W`, sent over a link of type `L`.
pub(super) struct Turnstile<W, L> {
    work: WorkLock<Work<W>>,
    link: LinkLock<L>,
    driver: Mutex<Option<Waker>>,
}

/// Work to send now or later.
pub(super) struct Work<W> {
    pub(super) ready: VecDeque<W>,
    /// By due time. The number orders entries with the same time.
    pub(super) timed: BTreeMap<(Instant, u64), W>,
    entries: u64,
}

/// The remainder after a turn at the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing, or an event that the driver awaits makes it look again.
    Nothing,
    /// Work for which the driver must be woken.
    ToDriver,
}

impl<W, L> Turnstile<W, L> {
    pub(super) fn new(link: L) -> Self {
        let (work, link) = (WorkLock::new(Work::default()), LinkLock::new(link));
        Self { work, link, driver: Mutex::new(None) }
    }

    /// Queues work to be sent now. Runs `send` if no other task holds the link, and wakes the driver otherwise.
    pub(super) fn push(&self, work: W, send: impl FnOnce(&mut L) -> Left) {
        self.work.lock().ready.push_back(work);
        let Some(mut link) = self.link.try_lock() else { return self.wake() };
        let left = send(&mut link);
        drop(link);
        if left == Left::ToDriver {
            self.wake();
        }
    }

    /// Queues work that is due at `at`. Wakes the driver if nothing is due earlier: its timer may be set for later.
    pub(super) fn push_timed(&self, at: Instant, work: W) {
        let is_earliest = self.work.lock().add_timed(at, work);
        if is_earliest {
            self.wake();
        }
    }

    /// The work lists.
    pub(super) fn work(&self) -> WorkGuard<'_, Work<W>> {
        self.work.lock()
    }

    /// The link. Only the driver and tasks off the append path wait for it.
    pub(super) fn link(&self) -> LinkGuard<'_, L> {
        self.link.lock()
    }

    /// Keeps the driver's waker. The driver calls this before it looks at anything.
    pub(super) fn register(&self, waker: &Waker) {
        let mut driver = self.driver.lock();
        if !driver.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *driver = Some(waker.clone());
        }
    }

    /// Wakes the driver. Without a waker it has been woken already, and looks after it has registered.
    pub(super) fn wake(&self) {
        let driver = self.driver.lock().take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl<W> Default for Work<W> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), timed: BTreeMap::new(), entries: 0 }
    }
}

impl<W> Work<W> {
    /// Adds an entry. Returns whether it is the earliest.
    pub(super) fn add_timed(&mut self, at: Instant, work: W) -> bool {
        let is_earliest = self.timed.first_key_value().is_none_or(|((first, _), _)| at < *first);
        self.timed.insert((at, self.entries), work);
        self.entries += 1;
        is_earliest
    }
}

/// When the driver's timer fires. Part of the link, because senders compare it with their deadlines.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Armed(Option<Instant>);

impl Armed {
    /// Whether the timer fires no later than `deadline`.
    pub(super) fn covers(self, deadline: Option<Instant>) -> bool {
        deadline.is_none_or(|deadline| self.0.is_some_and(|armed| armed <= deadline))
    }

    /// Arms the timer for `deadline`. Returns whether the driver must reset its timer. A timer that fires too early
    /// costs less than a reset for every request.
    pub(super) fn arm(&mut self, deadline: Instant) -> bool {
        let is_late = !self.covers(Some(deadline));
        if is_late {
            self.0 = Some(deadline);
        }
        is_late
    }

    /// The timer has fired and counts as not set.
    pub(super) fn fired(&mut self) {
        self.0 = None;
    }
}
