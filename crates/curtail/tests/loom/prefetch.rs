//! A lane that waits for room is woken once the application has drained enough.

use std::sync::Arc;

use loom::thread;

use crate::{check, signal::LaneSignal};

#[test]
fn bytes_drained_around_the_look_wake_the_lane() {
    check(|| {
        let signal = Arc::new(LaneSignal::default());
        signal.take(100);
        let drainers = [50, 50].map(|bytes| {
            let signal = signal.clone();
            thread::spawn(move || signal.give_back(bytes))
        });
        let since = signal.drained();
        let lacks = signal.used().saturating_sub(20);
        if lacks > 0 {
            signal.wake_after(since, lacks);
        }
        for drainer in drainers {
            drainer.join().expect("no thread panics");
        }
        assert!(lacks == 0 || signal.wake.was_notified());
    });
}
