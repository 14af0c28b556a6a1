//! The doctor: examines a cluster on a blocking thread of the runtime.

use std::time::Duration;

use curtail_lab::{
    doctor::{
        self, Asked, Options, Stop,
        settings::Clients,
        units::{Throughput, Time},
    },
    error::Error,
};
use pyo3::{IntoPyObjectExt, prelude::*};
use tokio::sync::watch;

use crate::{
    config::{self, Properties},
    error,
    port::{Call, Home, Port, Reply, none},
    runtime::{Owned, Process},
    token::Function,
};

/// An examination in progress. It stops if it is dropped.
#[pyclass(frozen, weakref, module = "curtail_kafka._native")]
pub(crate) struct Examination(Owned<Inner>);

struct Inner {
    home: Home,
    stop: Stop,
    /// Closed once the examination has deleted its topics.
    ended: watch::Receiver<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// Starts an examination. Its call returns the figures as JSON, and the report as text.
#[pyfunction]
#[pyo3(signature = (properties, target_p99, throughput, record_size, duration, is_threaded, token))]
#[expect(clippy::too_many_arguments, reason = "the arguments of the Python function")]
pub(crate) fn start_doctor(
    py: Python<'_>,
    properties: Properties,
    target_p99: f64,
    throughput: f64,
    record_size: i64,
    duration: f64,
    is_threaded: bool,
    token: Option<Function>,
) -> PyResult<(Call, Examination)> {
    let (Clients { producer, consumer, admin }, tokens) = config::all(py, properties, token)?;
    // Numbers that are no times or sizes become 0, which the doctor refuses.
    let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let options = Options {
        producer,
        consumer,
        admin,
        target: time(target_p99),
        throughput,
        record_size: usize::try_from(record_size).unwrap_or(0),
        partitions: None,
        replication_factor: None,
        duration: time(duration),
    };
    let home = Home::new(is_threaded);
    if let Some(tokens) = tokens {
        tokens.enter(py, home)?;
    }
    let process = Process::get(py)?;
    let (pending, future) = Port::current(py, home)?.get().pending(py)?;
    let stop = Stop::default();
    let (ending, ended) = watch::channel(());
    let stopped = stop.clone();
    process.spawn_blocking(move || {
        let examined = examine(&options, &stopped);
        // The waits for the end return after the result, also if the examination has panicked.
        let _ending = ending;
        pending.reply(Reply::Short(Box::new(move |py| match examined {
            Ok(found) => found.into_py_any(py),
            Err(error) => Err(raise(py, error)),
        })));
    });
    let examination = Examination(Owned::new(Inner { home, stop, ended }));
    Ok((Call::without_cancel(future.unbind()), examination))
}

#[pymethods]
impl Examination {
    /// Stops the examination. The call returns once its topics are deleted.
    fn _start_end(&self, py: Python<'_>) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        inner.stop.set();
        let ended = end(inner.ended.clone());
        let ended = async move {
            ended.await;
            Ok(())
        };
        Port::spawn(py, inner.home, ended, none)
    }

    /// As [`Self::_start_end`], at the interpreter's exit. Returns whether it has ended within these seconds.
    fn _end_at_exit(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let Some(inner) = self.0.local() else { return Ok(true) };
        inner.stop.set();
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let ended = end(inner.ended.clone());
        let process = Process::get(py)?;
        let ended = async move { tokio::time::timeout(limit, ended).await };
        Ok(py.detach(|| process.block_on(ended)).is_ok())
    }
}

/// Waits until the sender is dropped.
async fn end(mut ended: watch::Receiver<()>) {
    while ended.changed().await.is_ok() {}
}

fn examine(options: &Options, stop: &Stop) -> Result<(String, String), Error> {
    let report = doctor::run(options, stop, &mut |_| {})?;
    let figures = serde_json::to_string(&report);
    let figures = figures.map_err(|error| Error::Unexpected(error.to_string()))?;
    let asked =
        Asked { target: Time::from(options.target), rate: Throughput::bytes(options.throughput) };
    Ok((figures, doctor::text(&report, &options.producer, asked)))
}

fn raise(py: Python<'_>, failure: Error) -> PyErr {
    match failure {
        Error::Client(failure) => error::raise(py, &failure),
        Error::Config(failure) => error::raise(py, &failure.into()),
        Error::Options(text) => error::config(py, &text),
        Error::Interrupted => error::named(py, "ClosedError", "the examination was stopped"),
        Error::Threads(why) => {
            error::named(py, "ThreadError", &format!("cannot start the client's threads: {why}"))
        }
        other => error::named(py, "DoctorError", &other.to_string()),
    }
}
