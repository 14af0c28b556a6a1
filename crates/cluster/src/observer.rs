//! Looking into the cluster from outside.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::RwLock;
use tokio::time::Instant;

/// Is told what happens inside the brokers, for measurement.
///
/// Calls come from the brokers' tasks while a partition is locked: an observer must be quick, must not block
/// and must not call the cluster. Times are those of the broker's runtime.
pub trait Observer: Send + Sync {
    /// A leader has appended a producer's batch.
    fn appended(
        &self,
        broker: i32,
        topic: &str,
        partition: i32,
        base_offset: i64,
        last_offset: i64,
        at: Instant,
    );

    /// A leader's high watermark has advanced: everything below it is committed.
    fn committed(&self, broker: i32, topic: &str, partition: i32, high_watermark: i64, at: Instant);

    /// A broker has learned that it leads a partition in this epoch. Whatever one of an earlier epoch still appends, because
    /// it has yet to learn that it leads no more, will be cut off.
    fn leads(&self, _broker: i32, _topic: &str, _partition: i32, _leader_epoch: i32, _at: Instant) {
    }

    /// A follower has appended what it fetched; its log ends at `end_offset`.
    fn replicated(
        &self,
        _broker: i32,
        _topic: &str,
        _partition: i32,
        _end_offset: i64,
        _at: Instant,
    ) {
    }
}

/// The place for an observer; free of cost while empty.
#[derive(Default)]
pub(crate) struct Observers {
    present: AtomicBool,
    observer: RwLock<Option<Arc<dyn Observer>>>,
}

impl Observers {
    pub(crate) fn set(&self, observer: Arc<dyn Observer>) {
        *self.observer.write() = Some(observer);
        self.present.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        self.present.store(false, Ordering::Release);
        *self.observer.write() = None;
    }

    pub(crate) fn tell(&self, call: impl FnOnce(&dyn Observer, Instant)) {
        if !self.present.load(Ordering::Acquire) {
            return;
        }
        if let Some(observer) = self.observer.read().as_deref() {
            call(observer, Instant::now());
        }
    }
}
