#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
};

use super::*;

#[test]
fn a_lane_is_woken_when_enough_was_drained() {
    let (signal, held) = (Arc::<LaneSignal>::default(), Arc::<Held>::default());
    let mut leases: Vec<Lease> = (0..3).map(|_| Lease::take(&signal, &held, 50)).collect();
    assert_eq!((signal.used(), held.bytes()), (150, 150));
    let since = signal.drained();
    signal.wake_after(since, 60);
    let mut woken = pin!(signal.wake.notified());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(woken.as_mut().poll(&mut cx).is_pending());
    leases.pop();
    assert!(woken.as_mut().poll(&mut cx).is_pending(), "50 are fewer than 60");
    // A share that is freed early counts once.
    leases[0].give_share_back();
    assert!(woken.as_mut().poll(&mut cx).is_ready());
    assert_eq!((signal.used(), held.bytes()), (50, 100));
    // Bytes drained since the snapshot count, too.
    signal.wake_after(since, 60);
    assert!(pin!(signal.wake.notified()).poll(&mut cx).is_ready());
    drop(leases);
    assert_eq!((signal.used(), held.bytes()), (0, 0));
}
