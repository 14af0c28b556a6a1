//! Injected delays of responses.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

/// Delays of one broker's responses, by API. It outlives the broker's incarnations.
#[derive(Default)]
pub(crate) struct Delays {
    any: AtomicBool,
    by_api: Mutex<BTreeMap<Option<i16>, Duration>>,
}

impl Delays {
    /// Delays responses of one API, or of all APIs without a specific delay.
    pub(crate) fn set(&self, api: Option<i16>, delay: Duration) {
        let mut by_api = self.by_api.lock();
        if delay.is_zero() {
            by_api.remove(&api);
        } else {
            by_api.insert(api, delay);
        }
        self.any.store(!by_api.is_empty(), Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        let mut by_api = self.by_api.lock();
        by_api.clear();
        self.any.store(false, Ordering::Release);
    }

    /// Returns the delay of a response of this API.
    pub(crate) fn of(&self, api: i16) -> Option<Duration> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let by_api = self.by_api.lock();
        by_api.get(&Some(api)).or_else(|| by_api.get(&None)).copied()
    }
}
