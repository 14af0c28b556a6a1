//! The client's tokio runtime, for callers outside it.
//!
//! A call may be polled on a plain thread's executor or on another tokio runtime, which may have neither timers nor
//! sockets. Timers and sockets of a call must belong to the client's runtime.
//!
//! # Invariants
//! - A timer of a runtime that has ended panics when it is polled. A call polls the timers and sockets of the client's
//!   runtime only inside [`within`], under a shared lock. [`Lifeguard`] is dropped with the runtime's tasks, before
//!   its timers end, and takes the lock exclusively. From then on [`within`] fails with [`Error::Closed`].
//! - No code of the application runs inside [`within`]: it may end the runtime, which waits for the lock.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, mpsc},
    task::{Context, Poll},
    thread,
};

use parking_lot::{Mutex, RwLock};
use tokio::{
    runtime::{Builder, EnterGuard, Handle},
    sync::Notify,
    task::JoinHandle,
};

use crate::{Error, Result, config::CommonConfig};

/// The runtime on which a client was made. Clones share it.
#[derive(Clone)]
pub(crate) struct Runtime {
    handle: Handle,
    life: Arc<Life>,
}

struct Life {
    has_ended: RwLock<bool>,
    /// Notified when the runtime has ended.
    end: Notify,
}

/// Returns the runtime of the process's I/O thread, which starts with the first call. The thread lasts as long as the
/// process, so that clients may come and go.
fn io_thread() -> Result<Handle> {
    static RUNNING: Mutex<Option<Handle>> = Mutex::new(None);
    let mut running = RUNNING.lock();
    if let Some(handle) = &*running {
        return Ok(handle.clone());
    }
    let handle = start_thread("curtail-io", std::future::pending())?;
    *running = Some(handle.clone());
    Ok(handle)
}

/// Starts a thread with a runtime, which ends with the future.
///
/// # Errors
/// [`Error::Thread`] if the thread or its runtime cannot be started.
pub(crate) fn start_thread(
    name: &'static str,
    until: impl Future<Output = ()> + Send + 'static,
) -> Result<Handle> {
    let failed = |error: std::io::Error| Error::Thread { source: Arc::new(error) };
    let (started, handle) = mpsc::channel();
    // Built in the thread: a runtime must not be dropped in an async context, where this may be called.
    let run = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = started.send(Ok(runtime.handle().clone()));
            runtime.block_on(until);
        }
        Err(error) => drop(started.send(Err(error))),
    };
    thread::Builder::new().name(name.into()).spawn(run).map_err(failed)?;
    let ended = || failed(std::io::Error::other("the thread ended"));
    handle.recv().map_err(|_| ended())?.map_err(failed)
}

/// Belongs to a task of the runtime, and ends the client's calls when that task is dropped.
pub(crate) struct Lifeguard(Runtime);

impl Drop for Lifeguard {
    fn drop(&mut self) {
        *self.0.life.has_ended.write() = true;
        self.0.life.end.notify_waiters();
    }
}

impl Runtime {
    /// The runtime for a client with these settings: the process's I/O thread or the current one. Also the guard for one
    /// of its tasks.
    ///
    /// # Errors
    /// [`Error::Thread`] if there is no I/O thread and none can be started.
    ///
    /// # Panics
    /// Outside a tokio runtime, without an I/O thread.
    pub(crate) fn of(common: &CommonConfig) -> Result<(Self, Lifeguard)> {
        let handle = if common.io_thread { io_thread()? } else { Handle::current() };
        Ok(Self::new(handle))
    }

    fn new(handle: Handle) -> (Self, Lifeguard) {
        let life = Arc::new(Life { has_ended: RwLock::new(false), end: Notify::new() });
        let runtime = Self { handle, life };
        (runtime.clone(), Lifeguard(runtime))
    }

    /// The runtime for code of the application that a task calls: the current one. Without one, this.
    pub(crate) fn of_application(&self) -> Handle {
        Handle::try_current().unwrap_or_else(|_| self.handle.clone())
    }

    /// Enters the runtime on a thread that is in none, for code of the application that may start tasks.
    pub(crate) fn enter_from_outside(&self) -> Option<EnterGuard<'_>> {
        Handle::try_current().is_err().then(|| self.enter())
    }

    /// Spawns a task. On a runtime that has ended, drops the future.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.handle.spawn(future)
    }

    fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Fails with [`Error::Closed`] once the runtime has ended.
    pub(crate) fn check(&self) -> Result<()> {
        if *self.life.has_ended.read_recursive() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Polls a future inside the runtime, unless it has ended.
    fn poll<F: Future>(
        &self,
        cx: &mut Context<'_>,
        future: Pin<&mut F>,
    ) -> Poll<Result<F::Output>> {
        // Recursive: a reader inside another one must not wait for the guard, which waits for the outer one.
        let has_ended = self.life.has_ended.read_recursive();
        if *has_ended {
            return Poll::Ready(Err(Error::Closed));
        }
        let _entered = self.enter();
        future.poll(cx).map(Ok)
    }
}

/// Polls a future within a runtime: its timers, sockets and tasks belong there. The future must not run code of the
/// application.
///
/// # Errors
/// [`Error::Closed`] once the runtime has ended. The future is dropped.
///
/// # Cancel safety
/// As the future.
pub(crate) async fn within<F: Future>(runtime: &Runtime, future: F) -> Result<F::Output> {
    let mut future = pin!(future);
    // Made before the first look, so that an end after it is not missed.
    let mut end = pin!(runtime.life.end.notified());
    poll_fn(|cx| {
        let polled = runtime.poll(cx, future.as_mut());
        if polled.is_pending() && end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(Error::Closed));
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::{
        task::{Wake, Waker},
        time::Duration,
    };

    use tokio::time::sleep;

    use super::*;

    /// Counts wake-ups.
    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn a_call_that_waits_for_a_timer_is_woken_and_fails_when_its_runtime_ends() {
        for workers in [0, 1, 2] {
            let built = match workers {
                0 => Builder::new_current_thread().enable_all().build(),
                n => Builder::new_multi_thread().worker_threads(n).enable_all().build(),
            };
            let tokio = built.expect("a runtime");
            let (runtime, guard) = Runtime::new(tokio.handle().clone());
            let held = async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            };
            runtime.spawn(held);
            let woken = Arc::new(Count::default());
            let waker = Waker::from(woken.clone());
            let mut cx = Context::from_waker(&waker);
            let hour = Duration::from_secs(3600);
            let mut waiting = pin!(within(&runtime, async { sleep(hour).await }));
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
            drop(tokio);
            assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed) > 0);
            let ended = waiting.as_mut().poll(&mut cx);
            assert!(matches!(ended, Poll::Ready(Err(Error::Closed))));
            assert!(matches!(runtime.check(), Err(Error::Closed)));
        }
    }
}
