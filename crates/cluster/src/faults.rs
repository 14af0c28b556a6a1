//! Answers that are held back on purpose.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

/// Delays of one broker's answers, by API. It outlives the broker's incarnations.
#[derive(Default)]
pub(crate) struct Delays {
    any: AtomicBool,
    by_api: Mutex<BTreeMap<Option<i16>, Duration>>,
}

impl Delays {
    /// Holds back answers of one API, or of those without a delay of their own.
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

    /// How long to hold back an answer of this API.
    pub(crate) fn of(&self, api: i16) -> Option<Duration> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let by_api = self.by_api.lock();
        by_api.get(&Some(api)).or_else(|| by_api.get(&None)).copied()
    }
}
