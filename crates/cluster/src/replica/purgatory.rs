//! Requests that wait for a partition. The change itself wakes them; they never poll.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

/// A waiting request. It may wait for several partitions.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// Number of partitions with an unmet condition, for requests that need all of them.
    missing: AtomicUsize,
    wake: Notify,
}

impl Wait {
    /// Creates a wait for `partitions` conditions.
    pub(crate) fn for_all(partitions: usize) -> Arc<Self> {
        Arc::new(Self { missing: AtomicUsize::new(partitions), wake: Notify::new() })
    }

    /// Creates a wait for any change.
    pub(crate) fn for_any() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Records that one of the conditions holds.
    pub(crate) fn one_came_true(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake.notify_one();
        }
    }

    fn news(&self) {
        self.wake.notify_one();
    }

    /// Waits until the condition has become true, including before the call.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn done(&self) {
        self.wake.notified().await;
    }
}

/// Source of ids for registrations, so that they can be removed. Unique within a broker.
#[derive(Debug, Default)]
pub(crate) struct WaitIds(AtomicU64);

impl WaitIds {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Requests that wait until the high watermark has reached an offset.
#[derive(Default)]
pub(super) struct AckWaits(BTreeMap<(i64, u64), Arc<Wait>>);

impl AckWaits {
    pub(super) fn add(&mut self, required: i64, id: u64, wait: &Arc<Wait>) {
        self.0.insert((required, id), Arc::clone(wait));
    }

    pub(super) fn remove(&mut self, required: i64, id: u64) {
        self.0.remove(&(required, id));
    }

    /// Completes the requests whose offset the high watermark has reached.
    pub(super) fn reached(&mut self, high_watermark: i64) {
        while let Some(entry) = self.0.first_entry() {
            if entry.key().0 > high_watermark {
                return;
            }
            entry.remove().one_came_true();
        }
    }

    /// Completes all requests, for example when the replica is no longer the leader.
    pub(super) fn all(&mut self) {
        for wait in std::mem::take(&mut self.0).into_values() {
            wait.one_came_true();
        }
    }
}

/// The kind of reader that waits for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Sees committed records.
    Consumer,
    /// Sees all records.
    Follower,
}

/// Fetch requests that wait for data.
#[derive(Default)]
pub(super) struct FetchWaits(BTreeMap<u64, (Reader, Arc<Wait>)>);

impl FetchWaits {
    pub(super) fn add(&mut self, reader: Reader, id: u64, wait: &Arc<Wait>) {
        self.0.insert(id, (reader, Arc::clone(wait)));
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.0.remove(&id);
    }

    /// Wakes all readers of one kind.
    pub(super) fn news_for(&self, kind: Reader) {
        for (reader, wait) in self.0.values() {
            if *reader == kind {
                wait.news();
            }
        }
    }

    pub(super) fn news(&self) {
        for (_, wait) in self.0.values() {
            wait.news();
        }
    }
}
