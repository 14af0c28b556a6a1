//! Calls of a group for the application's side: a poll sees the call and its reason, or is woken.

use std::{sync::Arc, task::Waker};

use loom::thread;

use crate::{attention::Attention, check, flag, is_woken, sync::Mutex};

#[test]
fn a_poll_that_keeps_its_waker_sees_the_call_or_is_woken() {
    check(|| {
        let attention = Arc::new(Attention::new());
        let kept = Arc::new(Mutex::new(None::<Waker>));
        let (calling, taking) = (attention.clone(), kept.clone());
        let driver = thread::spawn(move || {
            calling.call();
            let waker = taking.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        let (woken, waker) = flag();
        *kept.lock() = Some(waker);
        let is_called = attention.poll();
        driver.join().expect("no thread panics");
        assert!(is_called || is_woken(&woken));
    });
}

#[test]
fn a_commit_that_becomes_due_during_a_poll_is_taken_by_it_or_called_for_again() {
    check(|| {
        let attention = Arc::new(Attention::new());
        attention.call();
        let calling = attention.clone();
        let driver = thread::spawn(move || calling.call_for_commit());
        attention.begin();
        let is_taken = attention.take_commit();
        driver.join().expect("no thread panics");
        assert!(is_taken || attention.is_called());
    });
}

#[test]
fn a_handover_that_needs_no_new_call_is_seen_by_the_poll_that_was_called() {
    check(|| {
        let attention = Arc::new(Attention::new());
        attention.call();
        let handover = Arc::new(Mutex::new(false));
        let (calling, changing) = (attention.clone(), handover.clone());
        // As `Driver::call_application`: a pending call is not repeated.
        let driver = thread::spawn(move || {
            *changing.lock() = true;
            if !calling.is_called() {
                calling.call();
            }
        });
        attention.begin();
        let is_seen = *handover.lock();
        driver.join().expect("no thread panics");
        assert!(is_seen || attention.is_called());
    });
}
