//! The transactional producer of an event loop's programs, and its transactions.
//!
//! One task owns the client and serves commands in order ([`owner`]). Records are staged as those of a producer; the
//! task appends them between commands ([`feed`]), so none can join a later transaction.

mod feed;
mod owner;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use curtail::{Error, Result, metrics::ProducerMetrics};
use parking_lot::Mutex;
use pyo3::{PyTraverseError, PyVisit, prelude::*, types::PyString};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::owner::{Command, End, Owner};
use crate::{
    bulk::Bulk,
    closing::Closing,
    config::{self, Properties},
    consumer::Consumer,
    error,
    group::{self, Offset},
    hold::Outcome,
    metrics,
    port::{Call, Home, Port, Waiting},
    runtime::{Owned, Process},
    sent::Sent,
    stage::{Refused, Stage},
    timing,
    token::{Function, Tokens},
};

/// The native part of `curtail_kafka.TransactionalProducer`.
#[pyclass(frozen, subclass, module = "curtail_kafka._native")]
pub(crate) struct TransactionalProducer(Owned<Arc<Inner>>);

struct Inner {
    home: Home,
    commands: UnboundedSender<Command>,
    /// The stage of the latest transaction. It is closed once the transaction ends.
    latest: Mutex<Option<Arc<Stage>>>,
    closing: Arc<Closing>,
    tokens: Option<Arc<Tokens>>,
    /// `None` once the client is closed.
    metrics: Box<dyn Fn() -> Option<ProducerMetrics> + Send + Sync>,
}

impl Inner {
    fn send(&self, py: Python<'_>, command: impl FnOnce(Waiting) -> Command) -> PyResult<Call> {
        if self.closing.is_requested() {
            return Err(error::raise(py, &Error::Closed));
        }
        if let Some(tokens) = &self.tokens {
            tokens.enter(py, self.home)?;
        }
        let (waiting, call) = Port::call(py, self.home)?;
        // Without the task, the command's drop fails the future.
        let _ = self.commands.send(command(waiting));
        Ok(call)
    }

    fn metrics(&self, py: Python<'_>) -> PyResult<ProducerMetrics> {
        let open = if self.closing.is_requested() { None } else { (self.metrics)() };
        open.ok_or_else(|| error::raise(py, &Error::Closed))
    }

    /// Ends the latest transaction, and refuses calls.
    fn end(&self, command: Command) {
        if let Some(stage) = self.latest.lock().take() {
            stage.close();
        }
        // The task lasts until this command.
        let _ = self.commands.send(command);
    }
}

#[pymethods]
impl TransactionalProducer {
    #[new]
    #[pyo3(signature = (properties, is_threaded=false, token=None))]
    fn new(
        py: Python<'_>,
        properties: Properties,
        is_threaded: bool,
        token: Option<Function>,
    ) -> PyResult<Self> {
        let home = Home::new(is_threaded);
        let (config, tokens) = config::producer(py, properties, token)?;
        let process = Process::get(py)?;
        let _entered = process.enter();
        let producer = curtail::TransactionalProducer::with_env(config, &process.env())
            .map_err(|error| error::raise(py, &error))?;
        let (commands, received) = unbounded_channel();
        let closing = Arc::<Closing>::default();
        let metrics = Box::new(producer.metrics_reader());
        process.spawn(Owner::new(producer, received, closing.clone(), home).run());
        let inner = Inner { home, commands, latest: Mutex::default(), closing, tokens, metrics };
        Ok(Self(Owned::new(Arc::new(inner))))
    }

    /// Takes over the `transactional.id`.
    fn _start_init(&self, py: Python<'_>) -> PyResult<Call> {
        self.0.get(py)?.send(py, Command::Init)
    }

    fn _start_warm_up(&self, py: Python<'_>, topics: Vec<String>) -> PyResult<Call> {
        self.0.get(py)?.send(py, |waiting| Command::WarmUp(waiting, topics))
    }

    fn _start_partitions_for(&self, py: Python<'_>, topic: String) -> PyResult<Call> {
        self.0.get(py)?.send(py, |waiting| Command::PartitionsFor(waiting, topic))
    }

    fn _start_client_instance_id(&self, py: Python<'_>, timeout: f64) -> PyResult<Call> {
        let limit = timing::limit(timeout)?;
        self.0.get(py)?.send(py, |waiting| Command::ClientInstanceId(waiting, limit))
    }

    fn _metrics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        metrics::object(py, metrics::producer(&self.0.get(py)?.metrics(py)?))
    }

    /// The metrics in Prometheus' text format.
    fn prometheus(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.get(py)?.metrics(py)?.prometheus_text())
    }

    /// Aborts an open transaction, and closes the client. Continues after a cancellation.
    fn _start_close(&self, py: Python<'_>) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let (pending, future) = Port::current(py, inner.home)?.get().pending(py)?;
        if inner.closing.request(Some(pending)) {
            inner.end(Command::Close);
        }
        Ok(Call::without_cancel(future.unbind()))
    }

    /// Closes the client without waiting. An open transaction ends with its timeout.
    fn _abandon(&self) {
        if let Some(inner) = self.0.local()
            && inner.closing.request(None)
        {
            inner.end(Command::Abandon);
        }
    }

    /// Whether the producer belongs to this process and was not closed.
    #[getter]
    fn _is_open(&self) -> bool {
        self.0.local().is_some_and(|inner| !inner.closing.is_requested())
    }
}

/// The native part of `curtail_kafka.Transaction`.
#[pyclass(frozen, subclass, module = "curtail_kafka._native")]
pub(crate) struct Transaction {
    producer: Owned<Arc<Inner>>,
    consumer: Option<Py<Consumer>>,
    stage: Owned<Arc<Stage>>,
    begun: AtomicBool,
}

#[pymethods]
impl Transaction {
    /// The consumer's listener may have the transaction.
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        visit.call(&self.consumer)
    }

    #[new]
    #[pyo3(signature = (producer, consumer=None))]
    fn new(
        py: Python<'_>,
        producer: &TransactionalProducer,
        consumer: Option<Py<Consumer>>,
    ) -> PyResult<Self> {
        if let Some(consumer) = &consumer {
            consumer.get().check_fit(py)?;
        }
        let producer = Owned::new(producer.0.get(py)?.clone());
        let stage = Owned::new(Arc::default());
        Ok(Self { producer, consumer, stage, begun: AtomicBool::new(false) })
    }

    /// Takes over the `transactional.id` if that was not done, ends an earlier transaction, and begins this one.
    fn _start_begin(&self, py: Python<'_>) -> PyResult<Call> {
        let producer = self.producer.get(py)?;
        let wrong = |text| Err(error::raise(py, &Error::IllegalState(text)));
        if self.begun.load(Ordering::Relaxed) {
            return wrong("a transaction is used once; call transaction() again");
        }
        let is_open = producer.latest.lock().as_ref().is_some_and(|latest| !latest.is_closed());
        if is_open {
            return wrong("the producer's other transaction is open");
        }
        let stage = self.stage.get(py)?;
        let begun = producer.send(py, |waiting| Command::Begin(waiting, stage.clone()));
        if begun.is_err() {
            self._abandon(py)?;
        }
        let call = begun?;
        self.begun.store(true, Ordering::Relaxed);
        *producer.latest.lock() = Some(stage.clone());
        Ok(call)
    }

    /// Ends a transaction that did not begin, or whose producer is closed: its records do not count as processed.
    fn _abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.stage.get(py)?.close();
        if let Some(consumer) = &self.consumer {
            consumer.get().hold(py)?.release(Outcome::Aborted);
        }
        Ok(())
    }

    /// Accepts a record, and returns a future of its metadata. The commit reports a failure, so asyncio need not.
    #[pyo3(signature = (topic, value=None, *, key=None, partition=None, headers=None, timestamp=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of the Python method")]
    fn send<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        value: Option<&Bound<'py, PyAny>>,
        key: Option<&Bound<'py, PyAny>>,
        partition: Option<i32>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let port = Port::current(py, self.check_begun(py)?.home)?;
        let Some(outlet) = port.get().known_outlet(py)? else {
            let text = "a transaction belongs to the event loop that began it";
            return Err(error::raise(py, &Error::IllegalState(text)));
        };
        let record = Sent { topic, value, key, partition, headers, timestamp };
        let sent = record.stage(port.get(), self.stage.get(py)?, &outlet, true)?;
        sent.map_err(|refused| error::raise(py, &refusal(&refused)))
    }

    /// Begins a `send_arrow`. The call's result is a [`Bulk`].
    fn _start_bulk(&self, py: Python<'_>, topic: String) -> PyResult<Call> {
        let producer = self.check_open(py)?;
        let (home, stage) = (producer.home, self.stage.get(py)?.clone());
        let make = move |py: Python<'_>, pair| {
            Bulk::object(py, home, topic, refusal(&Refused::Closed), stage, pair)
        };
        producer.send(py, |waiting| Command::Bulk(waiting, Box::new(make)))
    }

    /// Waits until the earlier records are acknowledged.
    fn _start_flush(&self, py: Python<'_>) -> PyResult<Call> {
        let producer = self.check_open(py)?;
        let appended = self.stage.get(py)?.barrier();
        producer.send(py, |waiting| Command::Flush(waiting, appended))
    }

    /// Adds offsets of a group, which the commit commits.
    fn _start_send_offsets(
        &self,
        py: Python<'_>,
        offsets: Vec<Offset>,
        group: group::Fields,
    ) -> PyResult<Call> {
        let offsets = offsets.into_iter().map(group::offset).collect();
        let group = group::metadata(group);
        self.check_open(py)?.send(py, |waiting| Command::Offsets(waiting, offsets, group))
    }

    /// Ends the transaction, and settles the consumer. Continues after a cancellation.
    fn _start_end(&self, py: Python<'_>, commit: bool) -> PyResult<Call> {
        let open = self.check_open(py);
        if open.is_err() {
            self._abandon(py)?;
        }
        let producer = open?;
        let (pending, future) = Port::current(py, producer.home)?.get().pending(py)?;
        let hold = self.consumer.as_ref().map(|consumer| consumer.get().hold(py)).transpose()?;
        self.stage.get(py)?.close();
        let _ = producer.commands.send(Command::End(End { pending, hold, commit }));
        Ok(Call::without_cancel(future.unbind()))
    }
}

impl Transaction {
    fn check_begun(&self, py: Python<'_>) -> PyResult<&Arc<Inner>> {
        let producer = self.producer.get(py)?;
        match self.begun.load(Ordering::Relaxed) {
            true => Ok(producer),
            false => {
                let text = "the transaction has not begun: use it in 'async with'";
                Err(error::raise(py, &Error::IllegalState(text)))
            }
        }
    }

    fn check_open(&self, py: Python<'_>) -> PyResult<&Arc<Inner>> {
        let producer = self.check_begun(py)?;
        if producer.closing.is_requested() {
            return Err(error::raise(py, &Error::Closed));
        }
        match self.stage.get(py)?.is_closed() {
            true => Err(error::raise(py, &refusal(&Refused::Closed))),
            false => Ok(producer),
        }
    }
}

fn refusal(refused: &Refused) -> Error {
    match refused {
        Refused::Closed => Error::IllegalState("the transaction has ended"),
        Refused::Full => Error::BufferFull { waited: std::time::Duration::ZERO },
    }
}

/// Whether a call may be repeated: its outcome is open.
fn is_open_ended<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Timeout { .. }))
}
