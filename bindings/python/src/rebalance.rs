//! Listeners of rebalances that are written in Python.
//!
//! The client calls its listener in a poll, on a thread of the runtime. This one posts the rebalance to the event loop of
//! the consumer's last call and blocks its thread, in `block_in_place`, until the program's method has ended. Meanwhile
//! it serves the calls of the method.
//!
//! # Invariants
//! - The thread waits for a sender that the Python object owns. Whatever drops the object, an exception, a cancelled task or
//!   a closed event loop, ends the wait.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
    mpsc::{Receiver, Sender, channel},
};

use curtail::{Error, Result, TopicPartition, consumer, transaction::OffsetAndMetadata};
use parking_lot::Mutex;
use pyo3::{prelude::*, types::PyModule};

use crate::{
    consumer::sought,
    error,
    group::{self, Offset},
    port::{Core, NO_FUTURE, Reply},
    progress::{Offsets, Progress},
    runtime::Owned,
};

type At = (String, i32);

const MODULE: &str = "curtail_kafka._rebalance";

/// The event loop that serves the listener of a consumer.
pub(crate) struct Stagehand {
    /// The key of the consumer in `curtail_kafka._rebalance`.
    pub(crate) token: u64,
    /// The event loop of the consumer's last call.
    core: Mutex<Option<Arc<Core>>>,
    /// Whether the consumer's task waits for the listener.
    is_waiting: AtomicBool,
}

impl Stagehand {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let token = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { token, core: Mutex::default(), is_waiting: AtomicBool::new(false) }
    }

    /// Records the event loop of a call. Fails in a method of the listener: the consumer's task waits for its end.
    pub(crate) fn enter(&self, py: Python<'_>, core: &Arc<Core>) -> PyResult<()> {
        if self.is_waiting.load(Ordering::Acquire)
            && PyModule::import(py, MODULE)?
                .call_method1("is_inside", (self.token,))?
                .is_truthy()?
        {
            let text = "a listener must not call its consumer: use the methods of the rebalance";
            return Err(error::raise(py, &Error::IllegalState(text)));
        }
        *self.core.lock() = Some(core.clone());
        Ok(())
    }

    /// Calls the program's method, and waits for its end.
    pub(crate) fn tell(
        &self,
        kind: &'static str,
        rebalance: &mut consumer::Rebalance<'_>,
        partitions: &[TopicPartition],
        progress: &Mutex<Progress>,
    ) {
        let Some(core) = self.core.lock().clone() else { return };
        let (sender, calls) = channel();
        let all: Vec<At> =
            partitions.iter().map(|at| (at.topic.to_string(), at.partition)).collect();
        let token = self.token;
        self.is_waiting.store(true, Ordering::Release);
        let begin = move |py: Python<'_>| {
            let rebalance = Rebalance { kind, calls: Owned::new(Mutex::new(Some(sender))) };
            let module = PyModule::import(py, MODULE)?;
            module.call_method1("begin", (token, kind, all, rebalance)).map(Bound::unbind)
        };
        core.reply(NO_FUTURE, Reply::Short(Box::new(begin)));
        tokio::task::block_in_place(|| serve(&calls, rebalance, partitions, progress));
        self.is_waiting.store(false, Ordering::Release);
    }
}

/// A call of a [`Rebalance`].
enum Asked {
    Position(TopicPartition, Sender<Option<i64>>),
    Seek(TopicPartition, i64, Sender<Result<()>>),
    /// Without offsets: those after the records received.
    Commit(Option<Offsets>, Sender<Result<()>>),
}

fn serve(
    calls: &Receiver<Asked>,
    rebalance: &mut consumer::Rebalance<'_>,
    partitions: &[TopicPartition],
    progress: &Mutex<Progress>,
) {
    for call in calls {
        // The caller waits, unless its thread has ended.
        match call {
            Asked::Position(at, reply) => {
                let unreceived = progress.lock().first_unreceived().get(&at).copied();
                let _ = reply.send(unreceived.or_else(|| rebalance.position(&at)));
            }
            Asked::Seek(at, offset, reply) => {
                let done = rebalance.seek(&at, offset);
                if done.is_ok() {
                    sought(progress, &at, Some(OffsetAndMetadata::new(offset)));
                }
                let _ = reply.send(done);
            }
            Asked::Commit(offsets, reply) => {
                let mut offsets = offsets.unwrap_or_else(|| {
                    let mut received = progress.lock().offsets();
                    received.retain(|at, _| partitions.contains(at));
                    received
                });
                let done = match offsets.keys().all(|at| partitions.contains(at)) {
                    true => Ok(()),
                    false => Err(Error::IllegalState("the partition is not revoked")),
                };
                if done.is_ok() {
                    while let Some((at, offset)) = offsets.pop_first() {
                        rebalance.commit(&at, offset);
                    }
                }
                let _ = reply.send(done);
            }
        }
    }
}

/// The calls that a listener may make.
#[pyclass(frozen, module = "curtail_kafka")]
pub(crate) struct Rebalance {
    kind: &'static str,
    calls: Owned<Mutex<Option<Sender<Asked>>>>,
}

impl Rebalance {
    fn call<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(Sender<T>) -> Asked) -> PyResult<T> {
        let (reply, replied) = channel();
        let asked = match &*self.calls.get(py)?.lock() {
            Some(calls) => calls.send(ask(reply)).is_ok(),
            None => false,
        };
        let replied = if asked { py.detach(move || replied.recv()).ok() } else { None };
        replied.ok_or_else(|| error::raise(py, &Error::IllegalState("the rebalance has ended")))
    }
}

#[pymethods]
impl Rebalance {
    /// The offset of the next record of the partition; `None` while it is unknown.
    fn position(&self, py: Python<'_>, partition: At) -> PyResult<Option<i64>> {
        let at = TopicPartition::new(partition.0, partition.1);
        self.call(py, |reply| Asked::Position(at, reply))
    }

    /// Continues a partition at an offset.
    fn seek(&self, py: Python<'_>, partition: At, offset: i64) -> PyResult<()> {
        let at = TopicPartition::new(partition.0, partition.1);
        let done = self.call(py, |reply| Asked::Seek(at, offset, reply))?;
        done.map_err(|error| error::raise(py, &error))
    }

    fn _commit(&self, py: Python<'_>, offsets: Option<Vec<Offset>>) -> PyResult<()> {
        if self.kind != "on_revoked" {
            let text = "only on_revoked can commit: these partitions are new, or lost";
            return Err(error::raise(py, &Error::IllegalState(text)));
        }
        let offsets = offsets.map(|offsets| offsets.into_iter().map(group::offset).collect());
        let done = self.call(py, |reply| Asked::Commit(offsets, reply))?;
        done.map_err(|error| error::raise(py, &error))
    }

    /// Ends the listener's method: the consumer continues.
    fn _end(&self) {
        if let Some(calls) = self.calls.local() {
            drop(calls.lock().take());
        }
    }

    #[getter]
    fn _is_open(&self) -> bool {
        self.calls.local().is_some_and(|calls| calls.lock().is_some())
    }
}
