use std::{
    future::Future as _,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use super::awaited::{Awaited, Slot};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn waker() -> (Arc<Count>, Waker) {
    let count = Arc::<Count>::default();
    (count.clone(), Waker::from(count))
}

fn woken(count: &Count) -> usize {
    count.0.load(Ordering::Relaxed)
}

#[test]
fn a_waiter_that_polls_again_keeps_one_slot_and_its_newest_waker() {
    let awaited = Awaited::new();
    let mut slot = Slot::NONE;
    let ((before, first), (after, second)) = (waker(), waker());
    for waker in [&first, &first, &second, &second] {
        assert!(awaited.poll(&Context::from_waker(waker), &mut slot).is_pending());
    }
    assert_eq!(awaited.slots(), 1);
    assert_eq!(Arc::strong_count(&before), 2, "the waker before is dropped");
    awaited.set(7);
    assert_eq!((woken(&before), woken(&after)), (0, 1));
    assert_eq!(awaited.poll(&Context::from_waker(&first), &mut slot), Poll::Ready(&7));
    assert_eq!(slot, Slot::NONE);
}

#[test]
fn a_free_slot_is_reused() {
    let awaited = Awaited::new();
    let mut slots = [Slot::NONE; 3];
    let wakers = [(); 4].map(|()| waker());
    for (slot, (_, waker)) in slots.iter_mut().zip(&wakers) {
        assert!(awaited.poll(&Context::from_waker(waker), slot).is_pending());
    }
    let mut left = slots[1];
    awaited.leave(&mut slots[1]);
    awaited.leave(&mut left);
    let mut late = [Slot::NONE; 2];
    for slot in &mut late {
        assert!(awaited.poll(&Context::from_waker(&wakers[3].1), slot).is_pending());
    }
    assert_eq!(awaited.slots(), 4);
    awaited.set(());
    assert_eq!(wakers.map(|(count, _)| woken(&count)), [1, 0, 1, 2]);
}

#[test]
fn a_dropped_wait_frees_its_slot() {
    let awaited = Awaited::<()>::new();
    let (count, waker) = waker();
    for _ in 0..100 {
        let mut wait = awaited.wait();
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(awaited.slots(), 1);
    assert_eq!(Arc::strong_count(&count), 2);
}

/// A waker may drop a task, and the task another wait for the same value.
#[test]
fn a_waker_that_drops_another_wait_does_not_block() {
    struct Holds(Arc<Awaited<u8>>, std::sync::Mutex<Slot>);
    impl Wake for Holds {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Holds {
        fn drop(&mut self) {
            self.0.leave(self.1.get_mut().expect("not poisoned"));
        }
    }
    let awaited = Arc::new(Awaited::new());
    let (_, other) = waker();
    let mut held = Slot::NONE;
    assert!(awaited.poll(&Context::from_waker(&other), &mut held).is_pending());
    let holds = Waker::from(Arc::new(Holds(awaited.clone(), std::sync::Mutex::new(held))));
    let mut slot = Slot::NONE;
    assert!(awaited.poll(&Context::from_waker(&holds), &mut slot).is_pending());
    drop(holds);
    assert!(awaited.poll(&Context::from_waker(&other), &mut slot).is_pending());
    awaited.leave(&mut slot);
    assert_eq!(awaited.slots(), 2);
}
