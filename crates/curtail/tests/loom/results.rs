//! Outcomes of deliveries: every waiter receives a value that is set once.

use std::{sync::Arc, task::Context};

use loom::thread;

use crate::{
    awaited::{Awaited, Slot},
    check, flag, is_woken,
};

#[test]
fn a_poll_that_finds_no_value_is_woken() {
    check(|| {
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
    check(|| {
        let awaited = Arc::new(Awaited::new());
        let ((_, leaves), (stays, staying)) = (flag(), flag());
        let mut slot = Slot::NONE;
        assert!(awaited.poll(&Context::from_waker(&leaves), &mut slot).is_pending());
        let leaving = awaited.clone();
        let leaver = thread::spawn(move || leaving.leave(&mut slot));
        let setting = awaited.clone();
        let setter = thread::spawn(move || setting.set(()));
        // It may get the slot that is being freed.
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
