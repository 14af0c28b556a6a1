//! Waits of a thread for the runtime, without the GIL.

use std::{
    sync::mpsc::{RecvTimeoutError, channel},
    time::Duration,
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};

use crate::runtime::Process;

/// Longest time after which Ctrl-C ends a wait.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the work on the runtime, and waits for its result. A signal whose handler raises ends both.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let process = Process::get(py)?;
    let (done, mut results) = channel();
    let task = process.spawn(async move {
        // The thread has stopped waiting.
        let _ = done.send(work.await);
    });
    loop {
        // A receiver is used by one thread at a time, so it moves to the detached part and back.
        let (result, back) = py.detach(move || (results.recv_timeout(LOOK), results));
        results = back;
        match result {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the call's task has ended"));
            }
        }
        if let Err(raised) = py.check_signals() {
            task.abort();
            return Err(raised);
        }
    }
}
