//! Delivery of metadata from the controller to one broker.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::image::Image;

/// Maximum queued versions. When the queue is full, a new version replaces the previous one.
const CAPACITY: usize = 1024;

/// Metadata in flight to a broker. It outlives the broker's incarnations.
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    changed: Notify,
}

struct Inner {
    queue: VecDeque<Arc<Image>>,
    delay: Duration,
    frozen: bool,
    cut_off: bool,
    /// The newest version that has left the queue, and the newest one that the broker may apply.
    arrived: u64,
    taken: u64,
}

impl Inner {
    fn is_held(&self) -> bool {
        self.frozen || self.cut_off
    }
}

/// Metadata for a broker to apply.
pub(crate) struct Delivery {
    /// Versions that arrived since the last call, oldest first.
    pub(crate) arrived: Vec<Arc<Image>>,
    /// Propagation delay of each version.
    pub(crate) delay: Duration,
    /// Whether the broker must not apply anything for now.
    pub(crate) frozen: bool,
}

impl Mailbox {
    pub(super) fn new(delay: Duration) -> Self {
        let inner = Inner {
            queue: VecDeque::new(),
            delay,
            frozen: false,
            cut_off: false,
            arrived: 0,
            taken: 0,
        };
        Self { inner: Mutex::new(inner), changed: Notify::new() }
    }

    pub(super) fn put(&self, image: &Arc<Image>) {
        let mut inner = self.inner.lock();
        if inner.queue.len() == CAPACITY {
            inner.queue.pop_back();
        }
        inner.queue.push_back(Arc::clone(image));
        drop(inner);
        self.changed.notify_one();
    }

    /// Sets the propagation delay of later versions.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.inner.lock().delay = delay;
        self.changed.notify_one();
    }

    /// Stops or resumes the delivery.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.inner.lock().frozen = frozen;
        self.changed.notify_one();
    }

    /// Cuts or restores the whole connection between the broker and the controller, in both directions.
    pub(crate) fn cut_off(&self, cut_off: bool) {
        self.inner.lock().cut_off = cut_off;
        self.changed.notify_one();
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.inner.lock().cut_off
    }

    /// Returns whether the broker must not apply anything for now.
    pub(crate) fn is_held(&self) -> bool {
        self.inner.lock().is_held()
    }

    pub(crate) fn take(&self) -> Delivery {
        let mut inner = self.inner.lock();
        let arrived: Vec<_> = inner.queue.drain(..).collect();
        if let Some(newest) = arrived.last() {
            inner.arrived = newest.version;
        }
        if !inner.is_held() {
            inner.taken = inner.arrived;
        }
        Delivery { arrived, delay: inner.delay, frozen: inner.is_held() }
    }

    /// Returns the newest version that the broker has taken and may apply.
    pub(crate) fn taken(&self) -> u64 {
        self.inner.lock().taken
    }

    /// Waits for a change. One waiter at a time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
