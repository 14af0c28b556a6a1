//! A broker's host: the process that the faults kill and start again.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Poll, Waker},
};

use curtail_cluster::{ClusterError, disk::MemDisk};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Duration, sleep},
};

use super::{Failure, Shared};
use crate::plan::Crash;

/// Whether a broker's process should run. The faults set it; the host follows it.
pub(crate) struct Switch {
    on: watch::Sender<Power>,
}

/// State of a [`Switch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// Runs.
    On,
    /// Is dead, after a crash that did this to its disk.
    Off(Crash),
}

impl Default for Switch {
    fn default() -> Self {
        Self { on: watch::Sender::new(Power::On) }
    }
}

impl Switch {
    pub(crate) fn set(&self, power: Power) {
        self.on.send_replace(power);
    }
}

/// Suspends the controller.
#[derive(Default)]
pub(crate) struct Standstill {
    on: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Standstill {
    pub(crate) fn begin(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.on.store(false, Ordering::Relaxed);
        if let Some(waker) = self.waiting.lock().take() {
            waker.wake();
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Polls `future` only while the controller is not suspended. Supports one future at a time.
    pub(super) async fn guard<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if self.is_on() {
                *self.waiting.lock() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            future.as_mut().poll(cx)
        })
        .await
    }
}

/// Runs incarnations of a broker while its switch is on.
pub(super) async fn run(shared: Shared, broker: i32, disk: MemDisk) -> Result<(), Failure> {
    let mut power = shared.switch(broker).on.subscribe();
    let handle = shared.cluster.broker(broker).ok_or("no such broker")?;
    loop {
        power.wait_for(|power| *power == Power::On).await?;
        // What the channel returns is locked, and must not be held while the task waits.
        let switched_off =
            async { power.wait_for(|power| *power != Power::On).await.map(|off| *off) };
        let crash = tokio::select! {
            biased;
            off = switched_off => off?,
            ended = handle.run() => match ended {
                // Its disk failed: an operator starts it again on one that works.
                Err(ClusterError::Storage { .. }) => {
                    shared.machine(broker).ended().await;
                    continue;
                }
                Err(error) => return Err(error.into()),
                Ok(()) => return Err("a broker ended".into()),
            }
        };
        // The incarnation's tasks are aborted, and end with their next turn.
        sleep(Duration::from_millis(1)).await;
        if crash == Power::Off(Crash::LosesUnsynced) {
            let entropy = shared.entropy.fork();
            // Some files lose everything unsynced, some a part, some nothing.
            disk.crash_with(|_, unsynced| match entropy.below(3) {
                0 => 0,
                1 => entropy.below(unsynced + 1),
                _ => unsynced,
            });
        }
        if crash == Power::Off(Crash::Torn) {
            let entropy = shared.entropy.fork();
            disk.crash_torn(|n| entropy.below(n));
        }
    }
}
