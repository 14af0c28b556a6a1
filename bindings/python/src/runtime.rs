//! The process's runtime, and the guard for clients that a fork has inherited.

use std::{
    env,
    ops::Deref,
    sync::atomic::{AtomicU64, Ordering},
};

use curtail::{Env, env::Entropy};
use parking_lot::Mutex;
use pyo3::{exceptions::PyRuntimeError, prelude::*};
use tokio::runtime::{Builder, Runtime};

use crate::error;

/// Number of forks between the interpreter's start and this process.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Locked only by threads that are attached to the interpreter, and never across a detachment: a forked child finds it
/// unlocked.
static CURRENT: Mutex<Option<&'static Process>> = Mutex::new(None);

const DEFAULT_THREADS: usize = 2;

/// The runtime of the clients. It lasts as long as the process.
pub(crate) struct Process {
    pub(crate) runtime: Runtime,
    env: Env,
}

impl Process {
    /// Returns the process's runtime, and starts it if there is none.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Self> {
        let mut current = CURRENT.lock();
        if let Some(process) = *current {
            return Ok(process);
        }
        let runtime = start("curtail", threads(py)?)?;
        // Drawn on a new thread: after a fork, the random numbers of an inherited thread repeat those of the parent.
        let env = runtime.spawn(async { Env::real() });
        let env =
            runtime.block_on(env).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let process: &'static Self = Box::leak(Box::new(Self { runtime, env }));
        *current = Some(process);
        drop(current);
        PyModule::import(py, "curtail_kafka._logging")?.call_method0("start")?;
        Ok(process)
    }

    /// Returns the environment for one client, with separate randomness.
    pub(crate) fn env(&self) -> Env {
        let entropy: Entropy = self.env.entropy.fork();
        Env { entropy, ..self.env.clone() }
    }
}

/// Starts a runtime with its own threads.
pub(crate) fn start(name: &str, threads: usize) -> PyResult<Runtime> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads).thread_name(name).enable_all().build();
    runtime.map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))
}

fn threads(py: Python<'_>) -> PyResult<usize> {
    let Ok(text) = env::var("CURTAIL_THREADS") else { return Ok(DEFAULT_THREADS) };
    match text.trim().parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err(error::config(
            py,
            &format!("CURTAIL_THREADS={text}: must be a number from 1 to 1024"),
        )),
    }
}

/// Number of the runtime's worker threads; `None` before the first client.
#[pyfunction]
pub(crate) fn runtime_threads() -> Option<usize> {
    CURRENT.lock().map(|process| process.runtime.metrics().num_workers())
}

/// Abandons the inherited runtime, whose threads do not exist in the child.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    *CURRENT.lock() = None;
    crate::port::abandon_all();
}

pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// A value of the process that created it. A forked child can neither use nor free it: threads that no longer exist may
/// hold its locks.
pub(crate) struct Owned<T> {
    generation: u64,
    /// `None` only while it is dropped.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { generation: generation(), value: Some(value) }
    }

    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        if self.generation != generation() {
            return Err(error::forked(py));
        }
        self.value.as_ref().ok_or_else(|| error::forked(py))
    }

    /// The value, if this process may use it.
    pub(crate) fn local(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.generation == generation())
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.generation != generation() {
            std::mem::forget(self.value.take());
        }
    }
}

impl Deref for Process {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}
