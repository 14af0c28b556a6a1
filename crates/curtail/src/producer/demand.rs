//! Demand for producer ids: a partition that has exhausted the epochs of the newest id needs another one.
//!
//! # Invariants
//! - A report about an earlier id changes nothing, however late it comes: `is_spent` belongs to the newest id.

use super::sync::{Mutex, Notify};

/// Whether a new producer id is needed.
pub(super) struct Demand {
    newest: Mutex<Newest>,
    changed: Notify,
}

/// The newest id, and whether a partition has exhausted its epochs.
struct Newest {
    id: Option<i64>,
    is_spent: bool,
}

impl Demand {
    pub(super) fn new() -> Self {
        let newest = Newest { id: None, is_spent: false };
        Self { newest: Mutex::new(newest), changed: Notify::new() }
    }

    /// Records a new id.
    pub(super) fn arrived(&self, id: i64) {
        *self.newest.lock() = Newest { id: Some(id), is_spent: false };
    }

    /// Records that a partition has exhausted the epochs of an id.
    pub(super) fn spent(&self, id: i64) {
        let mut newest = self.newest.lock();
        if newest.id == Some(id) {
            newest.is_spent = true;
            drop(newest);
            self.changed.notify_one();
        }
    }

    /// Waits until a partition has exhausted the epochs of the newest id. For one task at a time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn until_spent(&self) {
        while !self.newest.lock().is_spent {
            self.changed.notified().await;
        }
    }
}
