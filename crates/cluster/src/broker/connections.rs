//! A broker's open connections, and the limits that close them.
//!
//! A connection is pending until its client has authenticated. Pending connections have a separate
//! deadline, and the oldest of them makes room when `max.connections` is reached: only the right
//! credentials keep a connection open. As in Kafka, a broker's connection replaces the least
//! recently used client connection, and connections that are idle for `connections.max.idle.ms` are
//! closed.
//!
//! # Locks
//! `Registry::open`, innermost. Requests do not take it: they mark their connection with a relaxed
//! store.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{task::AbortHandle, time::Instant};

use crate::admission::ForWhom;

/// The mark of a connection with a request in progress, which is not idle.
const BUSY: u64 = u64::MAX;

/// Time limits of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Until the end of the authentication (`connection.authentication.timeout.ms`).
    pub(super) authentication: Duration,
    /// Without a request (`connections.max.idle.ms`).
    pub(super) idle: Duration,
}

/// The open connections of one incarnation of a broker.
pub(super) struct Registry {
    limits: Limits,
    /// The origin of idle times.
    begun: Instant,
    open: Mutex<Open>,
}

struct Open {
    /// Ids increase with the time of arrival.
    next_id: u64,
    pending: BTreeMap<u64, Entry>,
    admitted: BTreeMap<u64, Entry>,
    next_idle_check: Instant,
}

struct Entry {
    for_whom: ForWhom,
    opened: Instant,
    used: Arc<AtomicU64>,
    task: Option<AbortHandle>,
}

impl Entry {
    fn close(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// A connection's entry among the open ones, removed when the ticket is dropped.
pub(super) struct Ticket {
    id: u64,
    used: Arc<AtomicU64>,
    registry: Arc<Registry>,
}

impl Registry {
    pub(super) fn new(limits: Limits, now: Instant) -> Arc<Self> {
        let open = Open {
            next_id: 0,
            pending: BTreeMap::new(),
            admitted: BTreeMap::new(),
            next_idle_check: now + limits.idle,
        };
        Arc::new(Self { limits, begun: now, open: Mutex::new(open) })
    }

    /// Admits a connection, replacing another one if necessary; `None` if there is no room.
    pub(super) fn enter(
        self: &Arc<Self>,
        for_whom: ForWhom,
        most: usize,
        now: Instant,
    ) -> Option<Ticket> {
        let mut open = self.open.lock();
        while open.pending.len() + open.admitted.len() >= most {
            open.make_room(for_whom)?.close();
        }
        let id = open.next_id;
        open.next_id += 1;
        let used = Arc::new(AtomicU64::new(BUSY));
        let entry = Entry { for_whom, opened: now, used: Arc::clone(&used), task: None };
        open.pending.insert(id, entry);
        Some(Ticket { id, used, registry: Arc::clone(self) })
    }

    /// Sets the task that serves a connection.
    pub(super) fn attach(&self, id: u64, task: AbortHandle) {
        let mut open = self.open.lock();
        let Open { pending, admitted, .. } = &mut *open;
        // The connection may have ended already.
        if let Some(entry) = pending.get_mut(&id).or_else(|| admitted.get_mut(&id)) {
            entry.task = Some(task);
        }
    }

    /// Closes connections whose deadline has passed. Returns how many did not authenticate in time,
    /// and the next deadline.
    pub(super) fn expire(&self, now: Instant) -> (usize, Instant) {
        let mut open = self.open.lock();
        let mut late = 0;
        while let Some(first) = open.pending.first_entry()
            && first.get().opened + self.limits.authentication <= now
        {
            first.remove().close();
            late += 1;
        }
        if open.next_idle_check <= now {
            self.close_idle(&mut open, now);
        }
        let first = open.pending.values().next();
        let next = first.map(|entry| entry.opened + self.limits.authentication);
        (late, next.map_or(open.next_idle_check, |next| next.min(open.next_idle_check)))
    }

    fn close_idle(&self, open: &mut Open, now: Instant) {
        let limit = self.limits.idle;
        let mut oldest = now;
        open.admitted.retain(|_, entry| {
            let used = entry.used.load(Ordering::Relaxed);
            if used == BUSY {
                return true;
            }
            let since = self.begun + Duration::from_millis(used);
            if since + limit <= now {
                entry.close();
                return false;
            }
            oldest = oldest.min(since);
            true
        });
        open.next_idle_check = oldest + limit;
    }

    fn millis(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_millis() as u64
    }
}

impl Open {
    /// Removes and returns the connection that a new one replaces.
    fn make_room(&mut self, for_whom: ForWhom) -> Option<Entry> {
        let may_go =
            |entry: &Entry| for_whom == ForWhom::Brokers || entry.for_whom == ForWhom::Clients;
        let oldest = self.pending.iter().find(|(_, entry)| may_go(entry)).map(|(id, _)| *id);
        if let Some(id) = oldest {
            return self.pending.remove(&id);
        }
        if for_whom == ForWhom::Clients {
            return None;
        }
        let clients = self.admitted.iter().filter(|(_, entry)| entry.for_whom == ForWhom::Clients);
        let least = clients.min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed));
        let id = *least?.0;
        self.admitted.remove(&id)
    }
}

impl Ticket {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Marks the connection as authenticated.
    pub(super) fn authenticated(&self) {
        let mut open = self.registry.open.lock();
        if let Some(entry) = open.pending.remove(&self.id) {
            open.admitted.insert(self.id, entry);
        }
    }

    /// Marks the connection as one with a request in progress.
    pub(super) fn busy(&self) {
        self.used.store(BUSY, Ordering::Relaxed);
    }

    /// Marks the connection as one that waits for a request.
    pub(super) fn idle(&self, now: Instant) {
        self.used.store(self.registry.millis(now), Ordering::Relaxed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut open = self.registry.open.lock();
        if open.pending.remove(&self.id).is_none() {
            open.admitted.remove(&self.id);
        }
    }
}
