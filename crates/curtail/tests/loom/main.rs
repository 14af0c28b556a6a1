//! Interleavings of threads that share a structure without one lock, all checked with loom.
//!
//! The tests include the product's source files and replace `super::sync` with loom's types. At most [`PREEMPTIONS`]
//! preemptions per run limit the number of interleavings. Loom treats `SeqCst` accesses as acquire and release, so
//! the checked code must work with these.

#[path = "../../src/consumer/group/attention.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod attention;
#[path = "../../src/producer/awaited.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod awaited;
#[path = "../../src/producer/demand.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod demand;
#[path = "../../src/producer/door.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod door;
#[path = "../../src/producer/mailbox.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod mailbox;
#[path = "../../src/producer/schedule.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod schedule;
#[path = "../../src/consumer/signal.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod signal;
#[path = "../../../proto/src/partitioner/sticky.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod sticky;
#[path = "../../src/producer/turnstile.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client uses the rest of it")]
mod turnstile;

mod choices;
mod doors;
mod ids;
mod lanes;
mod looks;
mod mail;
mod polls;
mod prefetch;
mod results;
mod sync;

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use loom::{
    model::Builder,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

const PREEMPTIONS: usize = 3;

/// Runs `model` once per interleaving.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// Records whether its waker was woken.
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

/// Blocks a thread until its waker is woken.
struct Parked {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().expect("no thread panics") = true;
        self.changed.notify_one();
    }
}

/// Runs a future. If no thread wakes it, loom reports a deadlock.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let parked = Arc::new(Parked { woken: Mutex::new(false), changed: Condvar::new() });
    let waker = Waker::from(parked.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        let mut woken = parked.woken.lock().expect("no thread panics");
        while !*woken {
            woken = parked.changed.wait(woken).expect("no thread panics");
        }
        *woken = false;
    }
}
