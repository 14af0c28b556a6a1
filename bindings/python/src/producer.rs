//! The producer of an event loop's programs.

use std::{sync::Arc, time::Duration};

use curtail::Error;
use pyo3::{prelude::*, types::PyString};

use crate::{
    bulk::Bulk,
    closing::Closing,
    config::{self, Properties},
    error,
    feeder::Feeder,
    metrics,
    pipeline::Pipeline,
    port::{Call, Home, Port, none},
    runtime::{Owned, Process},
    sent::Sent,
    stage::{Refused, Stage},
    timing,
    token::{Function, Tokens},
    tree,
};

/// The native part of `curtail_kafka.Producer`.
#[pyclass(frozen, subclass, module = "curtail_kafka._native")]
pub(crate) struct Producer(Owned<Inner>);

struct Inner {
    home: Home,
    process: &'static Process,
    producer: curtail::Producer,
    stage: Arc<Stage>,
    closing: Arc<Closing>,
    tokens: Option<Arc<Tokens>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stage.close();
    }
}

#[pymethods]
impl Producer {
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
        let max_block = config.get_max_block();
        let producer = curtail::Producer::with_env(config, &process.env())
            .map_err(|error| error::raise(py, &error))?;
        let stage = Arc::<Stage>::default();
        process.spawn(Feeder::new(stage.clone(), producer.clone(), max_block).run());
        let closing = Arc::default();
        Ok(Self(Owned::new(Inner { home, process, producer, stage, closing, tokens })))
    }

    /// As [`Self::send`]. asyncio does not report a failure that nothing retrieves.
    #[pyo3(signature = (topic, value=None, *, key=None, partition=None, headers=None, timestamp=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of the Python method")]
    fn _send_quietly<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        value: Option<&Bound<'py, PyAny>>,
        key: Option<&Bound<'py, PyAny>>,
        partition: Option<i32>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.stage(py, Sent { topic, value, key, partition, headers, timestamp }, true)
    }

    /// Accepts a record, and returns a future of its metadata.
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
        self.stage(py, Sent { topic, value, key, partition, headers, timestamp }, false)
    }

    /// Begins a `send_arrow`. The call's result is a [`Bulk`].
    fn _start_bulk(&self, py: Python<'_>, topic: String) -> PyResult<Call> {
        let (home, producer) = self.open(py)?;
        let stage = self.0.get(py)?.stage.clone();
        let pair = async move { Ok(producer.completions()) };
        Port::spawn(py, home, pair, move |py, pair| {
            Bulk::object(py, home, topic, Error::Closed, stage, pair)
        })
    }

    /// Begins the block of a pipeline.
    fn _pipeline(&self, py: Python<'_>, limit: u64) -> PyResult<Pipeline> {
        let (home, producer) = self.open(py)?;
        let Inner { process, stage, .. } = self.0.get(py)?;
        Ok(Pipeline::new(process, home, limit, stage.clone(), producer.completions()))
    }

    /// Waits until the earlier records are acknowledged or failed.
    fn _start_flush(&self, py: Python<'_>) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        Port::spawn(py, inner.home, inner.flushed(), none)
    }

    /// Refuses later records, and waits as [`Self::_start_flush`]. Continues after a cancellation: the feeder ends, and
    /// only this barrier covers the records that wait in its lanes.
    fn _start_close(&self, py: Python<'_>) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let (pending, future) = Port::current(py, inner.home)?.get().pending(py)?;
        if inner.closing.request(Some(pending)) {
            let flushed = inner.flushed();
            inner.stage.close();
            let (producer, closing) = (inner.producer.clone(), inner.closing.clone());
            inner.process.spawn(async move {
                let flushed = flushed.await;
                closing.end(flushed.and(producer.close().await));
            });
        }
        Ok(Call::without_cancel(future.unbind()))
    }

    /// Refuses later records, without waiting for earlier ones.
    fn _abandon(&self) {
        if let Some(inner) = self.0.local() {
            inner.stage.close();
        }
    }

    fn _start_connect(&self, py: Python<'_>) -> PyResult<Call> {
        let (home, producer) = self.open(py)?;
        Port::spawn(py, home, async move { producer.connect().await }, none)
    }

    fn _start_warm_up(&self, py: Python<'_>, topics: Vec<String>) -> PyResult<Call> {
        let (home, producer) = self.open(py)?;
        let warmed_up = async move {
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            producer.warm_up(&topics).await
        };
        Port::spawn(py, home, warmed_up, none)
    }

    fn _start_partitions_for(&self, py: Python<'_>, topic: String) -> PyResult<Call> {
        let (home, producer) = self.open(py)?;
        let count = async move { producer.partitions_for(&topic).await };
        Port::spawn(py, home, count, |py, count| Ok(count.into_pyobject(py)?.into_any().unbind()))
    }

    fn _start_client_instance_id(&self, py: Python<'_>, timeout: f64) -> PyResult<Call> {
        let limit = timing::limit(timeout)?;
        let (home, producer) = self.open(py)?;
        Port::spawn(py, home, async move { producer.client_instance_id(limit).await }, tree::uuid)
    }

    fn _metrics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        metrics::object(py, metrics::producer(&self.0.get(py)?.producer.metrics()))
    }

    /// The metrics in Prometheus' text format.
    fn prometheus(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.get(py)?.producer.metrics().prometheus_text())
    }

    /// Whether the producer belongs to this process and was not closed.
    #[getter]
    fn _is_open(&self) -> bool {
        self.0.local().is_some_and(|inner| !inner.stage.is_closed())
    }

    /// Flushes at the interpreter's exit. Returns whether every record was settled in time.
    fn _flush_at_exit(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let Some(inner) = self.0.local() else { return Ok(true) };
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let flushed = inner.flushed();
        let process = inner.process;
        let flushed = async move { tokio::time::timeout(limit, flushed).await };
        Ok(py.detach(|| process.block_on(flushed)).is_ok())
    }
}

impl Producer {
    fn stage<'py>(
        &self,
        py: Python<'py>,
        record: Sent<'_, 'py>,
        is_quiet: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.0.get(py)?;
        inner.enter(py)?;
        let port = Port::current(py, inner.home)?;
        let outlet = port.get().outlet(py, || inner.producer.completions())?;
        let sent = record.stage(port.get(), &inner.stage, &outlet, is_quiet)?;
        sent.map_err(|refused| error::raise(py, &refused.into()))
    }

    fn open(&self, py: Python<'_>) -> PyResult<(Home, curtail::Producer)> {
        let inner = self.0.get(py)?;
        inner.enter(py)?;
        match inner.stage.is_closed() {
            true => Err(error::raise(py, &Error::Closed)),
            false => Ok((inner.home, inner.producer.clone())),
        }
    }
}

impl Inner {
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        self.tokens.as_ref().map_or(Ok(()), |tokens| tokens.enter(py, self.home))
    }

    fn flushed(&self) -> impl Future<Output = curtail::Result<()>> + Send + use<> {
        let appended = self.stage.barrier();
        let producer = self.producer.clone();
        async move {
            // Fails if the feeder has ended, and then no record is staged.
            let _ = appended.await;
            producer.flush().await
        }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Closed => Self::Closed,
            Refused::Full => Self::BufferFull { waited: Duration::ZERO },
        }
    }
}
