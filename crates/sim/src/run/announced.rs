//! Values that tasks wait for.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Wakes its waiters in the order in which they began to wait. A watch channel of tokio wakes them in a random order, which
/// differs between two runs of one seed.
pub(crate) struct Announced<T> {
    value: Mutex<Option<T>>,
    announced: Notify,
}

impl<T> Default for Announced<T> {
    fn default() -> Self {
        Self { value: Mutex::new(None), announced: Notify::new() }
    }
}

impl<T: Clone> Announced<T> {
    pub(crate) fn announce(&self, value: T) {
        *self.value.lock() = Some(value);
        self.announced.notify_waiters();
    }

    /// The value, once it is announced.
    pub(crate) fn get(&self) -> Option<T> {
        self.value.lock().clone()
    }

    /// Waits until the value is announced.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn wait(&self) -> T {
        loop {
            // Created before the look: it receives an announcement from then on.
            let announced = self.announced.notified();
            if let Some(value) = self.get() {
                return value;
            }
            announced.await;
        }
    }
}

/// A value whose waiters wake when it changes, in the order in which they began to wait, as with [`Announced`].
#[derive(Default)]
pub(crate) struct Observed<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Observed<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn set(&self, value: T) {
        *self.value.lock() = value;
        self.changed.notify_waiters();
    }

    /// Changes the value; `change` returns whether waiters are to look at it.
    pub(crate) fn update(&self, change: impl FnOnce(&mut T) -> bool) {
        if change(&mut self.value.lock()) {
            self.changed.notify_waiters();
        }
    }

    /// Looks at the value.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.value.lock())
    }

    /// Waits until the value is as wanted.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn wait_for(&self, is_wanted: impl Fn(&T) -> bool) {
        loop {
            // Created before the look: it receives a change from then on.
            let changed = self.changed.notified();
            if self.look(&is_wanted) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::{JoinSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn waiters_wake_in_the_order_in_which_they_began_to_wait() {
        let announced = Arc::new(Announced::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = JoinSet::new();
        for number in 0..20 {
            let (announced, order) = (announced.clone(), order.clone());
            waiters.spawn(async move {
                announced.wait().await;
                order.lock().push(number);
            });
        }
        yield_now().await;
        announced.announce(());
        waiters.join_all().await;
        assert!(order.lock().iter().copied().eq(0..20), "{order:?}");
    }
}
