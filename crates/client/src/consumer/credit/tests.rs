#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
};

use super::*;

#[test]
fn one_partition_holds_at_most_half_of_a_share() {
    let share = |used| Share { total: 1_000, used };
    assert!(share(500).is_ample() && !share(501).is_ample());
    assert_eq!((share(501).above_half(), share(900).above_half()), (1, 400));
    assert!(share(500).grants(500), "alone it may be read on up to half");
    assert!(!share(501).grants(501));
    assert!(share(501).grants(0), "one with nothing may be read");
    // Each of two partitions holds a third.
    assert!(share(666).grants(333) && !share(668).grants(334));
    assert!(share(999).grants(0) && !share(1_000).grants(0) && !share(2_000).grants(0));
    // A granted request asks for at least one byte and never for more than are free.
    let mut used = 0;
    while share(used).grants(0) {
        let asked = share(used).request();
        assert!(used + asked <= 1_000 && asked > 0);
        used += asked;
        if asked == 1 {
            break;
        }
    }
}

#[test]
fn bytes_to_drain_are_never_overestimated() {
    for used in 500..1_200 {
        for held in [0, used / 3, used / 2, used] {
            let share = Share { total: 1_000, used };
            if share.grants(held) {
                continue;
            }
            let drained = share.lacking(held) - 1;
            let own = drained.min(held);
            let then = Share { total: 1_000, used: used - drained };
            assert!(!then.grants(held - own), "{used} {held}");
        }
    }
}

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
