//! Every interleaving of the threads that share a delivery's outcome, checked with loom.

#[path = "../src/producer/awaited.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod awaited;

/// What the client takes from parking_lot and the standard library.
mod sync {
    use loom::sync::MutexGuard;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no thread panics")
        }
    }

    /// Leaks its value.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T: 'static>(loom::sync::Mutex<Option<&'static T>>);

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Mutex::new(None))
        }

        pub(crate) fn get(&self) -> Option<&T> {
            *self.0.lock().expect("no thread panics")
        }

        pub(crate) fn set(&self, value: T) -> Result<(), T> {
            let mut known = self.0.lock().expect("no thread panics");
            if known.is_some() {
                return Err(value);
            }
            *known = Some(Box::leak(Box::new(value)));
            Ok(())
        }
    }
}

use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
};

use awaited::{Awaited, Slot};
use loom::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

fn flag() -> (Arc<Flag>, Waker) {
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    (flag.clone(), Waker::from(flag))
}

fn is_woken(flag: &Flag) -> bool {
    flag.0.load(Ordering::Acquire)
}

#[test]
fn a_poll_that_finds_no_value_is_woken() {
    loom::model(|| {
        let awaited = Arc::new(Awaited::new());
        let setting = awaited.clone();
        let setter = thread::spawn(move || setting.set(7));
        let (flag, waker) = flag();
        let mut slot = Slot::NONE;
        let pending = awaited.poll(&Context::from_waker(&waker), &mut slot).is_pending();
        setter.join().expect("no thread panics");
        assert!(!pending || is_woken(&flag));
        assert_eq!(awaited.get(), Some(&7));
    });
}

#[test]
fn a_waiter_that_leaves_or_changes_its_waker_takes_no_wake_up_from_another() {
    loom::model(|| {
        let awaited = Arc::new(Awaited::new());
        let ((_, leaves), (stays, staying)) = (flag(), flag());
        let mut slot = Slot::NONE;
        assert!(awaited.poll(&Context::from_waker(&leaves), &mut slot).is_pending());
        let leaving = awaited.clone();
        let leaver = thread::spawn(move || leaving.leave(&mut slot));
        let setting = awaited.clone();
        let setter = thread::spawn(move || setting.set(()));
        // It may get the slot that is being left.
        let (before, first) = flag();
        let mut slot = Slot::NONE;
        let mut pending = awaited.poll(&Context::from_waker(&first), &mut slot).is_pending();
        if pending {
            pending = awaited.poll(&Context::from_waker(&staying), &mut slot).is_pending();
        }
        leaver.join().expect("no thread panics");
        setter.join().expect("no thread panics");
        assert!(!pending || is_woken(&stays) || is_woken(&before));
    });
}
