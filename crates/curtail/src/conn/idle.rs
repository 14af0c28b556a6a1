//! Connections without a request in flight, and their end after `connections.max.idle.ms`.
//!
//! [`Connection::closes_at`] is the one place that knows when a connection was last used. Owners of single connections
//! compare it; owners that keep connections between requests keep them in [`Idle`].
//!
//! # Invariants
//! - A task closes kept connections at their time, without another request. It ends with its owner, and when none is
//!   left.
//! - A connection that the broker has closed is not returned: brokers close idle ones (their `connections.max.idle.ms`),
//!   and the next request must neither fail nor wait because of that.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use super::Connection;
use crate::runtime::Runtime;

/// Connections of one owner, by key.
pub(crate) struct Idle<K> {
    kept: Arc<Mutex<Kept<K>>>,
    runtime: Runtime,
}

struct Kept<K> {
    open: BTreeMap<K, Connection>,
    /// The task that closes them; `None` while there is none to close.
    watch: Option<AbortHandle>,
}

impl<K: Ord + Send + 'static> Idle<K> {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let kept = Kept { open: BTreeMap::new(), watch: None };
        Self { kept: Arc::new(Mutex::new(kept)), runtime: runtime.clone() }
    }

    /// Takes the connection kept under a key, if it can still be used.
    pub(crate) fn take(&self, key: &K) -> Option<Connection> {
        let connection = self.kept.lock().open.remove(key)?;
        connection.is_usable().then_some(connection)
    }

    /// Keeps a connection whose last request was answered, in place of an earlier one.
    pub(crate) fn put(&self, key: K, connection: Connection) {
        self.insert(self.kept.lock(), key, connection);
    }

    /// As [`Self::put`], unless there is one that can still be used.
    pub(crate) fn put_spare(&self, key: K, connection: Connection) {
        let kept = self.kept.lock();
        if !kept.open.get(&key).is_some_and(Connection::is_usable) {
            self.insert(kept, key, connection);
        }
    }

    fn insert(&self, mut kept: MutexGuard<'_, Kept<K>>, key: K, connection: Connection) {
        if connection.closes_at().is_some() && kept.watch.is_none() {
            let watch = watch(Arc::downgrade(&self.kept));
            kept.watch = Some(self.runtime.spawn(watch).abort_handle());
        }
        let replaced = kept.open.insert(key, connection);
        drop(kept);
        drop(replaced);
    }

    /// As [`Self::put`], in place of all earlier ones.
    pub(crate) fn put_alone(&self, key: K, connection: Connection) {
        self.clear();
        self.put(key, connection);
    }

    /// Closes all connections.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut self.kept.lock().open);
        drop(all);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.kept.lock().open.len()
    }
}

impl<K> Drop for Idle<K> {
    fn drop(&mut self) {
        if let Some(watch) = self.kept.lock().watch.take() {
            watch.abort();
        }
    }
}

/// Closes connections at their time, until none is left.
async fn watch<K: Ord>(kept: Weak<Mutex<Kept<K>>>) {
    loop {
        let Some(next) = kept.upgrade().and_then(|kept| close_due(&kept, Instant::now())) else {
            return;
        };
        sleep_until(next).await;
    }
}

/// Closes the connections whose time has come. Returns the time of the next.
fn close_due<K: Ord>(kept: &Mutex<Kept<K>>, now: Instant) -> Option<Instant> {
    let mut kept = kept.lock();
    let is_due = |connection: &Connection| connection.closes_at().is_some_and(|at| at <= now);
    let before = kept.open.len();
    kept.open.retain(|_, connection| !is_due(connection));
    let closed = before - kept.open.len();
    let next = kept.open.values().filter_map(Connection::closes_at).min();
    if next.is_none() {
        kept.watch = None;
    }
    drop(kept);
    if closed > 0 {
        tracing::debug!(connections = closed, "closed as idle (connections.max.idle.ms)");
    }
    next
}
