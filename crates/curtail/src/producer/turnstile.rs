//! Turnstile of a lane: the inbox of new work, the link that sends it, and the waker of the lane's driver.
//!
//! A task that queues work puts it into the inbox. It sends the work itself if the link is free. Otherwise it wakes the
//! driver, which looks into the inbox again. The holder of the link moves the work from the inbox to the link's lists
//! ([`Turnstile::receive`]).
//!
//! # Invariants
//! - Work enters the inbox before the link is tried, and the driver registers before it looks into the inbox. The
//!   holder of the link therefore sees queued work, or the driver is woken.
//! - A task that leaves work behind returns [`Left::ToDriver`], unless an event that the driver awaits makes it look
//!   again.
//! - The driver's timer never fires after the next deadline ([`Armed::covers`]), or the driver is woken. Timed work
//!   that is not the earliest wakes no one: a turn that may have removed earlier work ends with [`Turnstile::receive`].
//!
//! # Locks
//! `link`, then `inbox`. The waker's lock is innermost, and no waker runs under it.

use std::{task::Waker, time::Instant};

use super::sync::{InboxLock, LinkGuard, LinkLock, Mutex};

/// Work of type `W`, sent over a link of type `L`.
pub(super) struct Turnstile<W, L> {
    inbox: InboxLock<Inbox<W>>,
    link: LinkLock<L>,
    driver: Mutex<Option<Waker>>,
}

/// Work that no turn at the link has seen.
struct Inbox<W> {
    ready: Vec<W>,
    timed: Vec<(Instant, W)>,
    /// When the earliest timed work is due, here or at the link.
    earliest: Option<Instant>,
}

/// A link's lists of work.
pub(super) trait Lists<W> {
    /// Adds work to be sent now.
    fn add_ready(&mut self, work: W);

    /// Adds work that is due at `at`.
    fn add_timed(&mut self, at: Instant, work: W);

    /// When the earliest timed work is due.
    fn next_timed(&self) -> Option<Instant>;
}

/// The remainder after a turn at the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing, or an event that the driver awaits makes it look again.
    Nothing,
    /// Work for which the driver must be woken.
    ToDriver,
}

impl<W, L: Lists<W>> Turnstile<W, L> {
    pub(super) fn new(link: L) -> Self {
        let inbox = Inbox { ready: Vec::new(), timed: Vec::new(), earliest: None };
        Self { inbox: InboxLock::new(inbox), link: LinkLock::new(link), driver: Mutex::new(None) }
    }

    /// Queues work to be sent now. Runs `send` if no other task holds the link, and wakes the driver otherwise.
    pub(super) fn push(&self, work: W, send: impl FnOnce(&mut L) -> Left) {
        self.inbox.lock().ready.push(work);
        let Some(mut link) = self.link.try_lock() else { return self.wake() };
        let left = send(&mut link);
        drop(link);
        if left == Left::ToDriver {
            self.wake();
        }
    }

    /// Queues work that is due at `at`. Wakes the driver if nothing is due earlier: its timer may be set for later.
    pub(super) fn push_timed(&self, at: Instant, work: W) {
        if self.add_timed(at, work) {
            self.wake();
        }
    }

    /// Queues work that is due at `at`, and wakes no one. Returns whether it is the earliest.
    pub(super) fn add_timed(&self, at: Instant, work: W) -> bool {
        let mut inbox = self.inbox.lock();
        let is_earliest = inbox.earliest.is_none_or(|earliest| at < earliest);
        if is_earliest {
            inbox.earliest = Some(at);
        }
        inbox.timed.push((at, work));
        is_earliest
    }

    /// Moves the work from the inbox to the lists of the link, which the caller holds.
    pub(super) fn receive(&self, link: &mut L) {
        let mut inbox = self.inbox.lock();
        for work in inbox.ready.drain(..) {
            link.add_ready(work);
        }
        for (at, work) in inbox.timed.drain(..) {
            link.add_timed(at, work);
        }
        inbox.earliest = link.next_timed();
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
