//! Phase timestamps of acknowledged batches, as times of Python's `time.monotonic()`, and time limits.

use std::time::{Duration, Instant};

use pyo3::{exceptions::PyValueError, prelude::*, sync::PyOnceLock, types::PyModule};

/// The same moment on both clocks, read once: times of one record then keep their order and distances.
static ANCHOR: PyOnceLock<(Instant, f64)> = PyOnceLock::new();

/// Phase timestamps of a record's batch, in seconds of `time.monotonic()`.
#[pyclass(frozen, get_all, module = "curtail_kafka")]
pub(crate) struct Timing {
    /// Append of the batch's first record.
    created: f64,
    /// Transfer of the first attempt to the socket.
    first_written: f64,
    /// Transfer of the last attempt to the socket.
    written: f64,
    /// Read of the response.
    acknowledged: f64,
}

impl Timing {
    pub(crate) fn new(py: Python<'_>, of: curtail::producer::Timing) -> PyResult<Self> {
        let (at, seconds) = *ANCHOR.get_or_try_init(py, || anchor(py))?;
        let time = |of: tokio::time::Instant| {
            let of = of.into_std();
            let before = at.saturating_duration_since(of).as_secs_f64();
            seconds + of.saturating_duration_since(at).as_secs_f64() - before
        };
        Ok(Self {
            created: time(of.created),
            first_written: time(of.first_written),
            written: time(of.written),
            acknowledged: time(of.acknowledged),
        })
    }
}

#[pymethods]
impl Timing {
    fn __repr__(&self) -> String {
        let Self { created, first_written, written, acknowledged } = self;
        format!(
            "Timing(created={created:.6}, first_written={first_written:.6}, written={written:.6}, \
             acknowledged={acknowledged:.6})"
        )
    }
}

/// Returns the limit for an argument `timeout`.
pub(crate) fn limit(seconds: f64) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(limit) => Ok(limit),
        Err(_) if seconds.is_infinite() && seconds > 0.0 => {
            Ok(Duration::from_secs(u32::MAX.into()))
        }
        Err(_) => Err(PyValueError::new_err("timeout must be seconds, from 0 on")),
    }
}

/// Attempts to read both clocks without an interruption in between.
const READINGS: usize = 5;

fn anchor(py: Python<'_>) -> PyResult<(Instant, f64)> {
    let monotonic = PyModule::import(py, "time")?.getattr("monotonic")?;
    let mut best = (Duration::MAX, Instant::now(), 0.0);
    for _ in 0..READINGS {
        let before = Instant::now();
        let seconds = monotonic.call0()?.extract()?;
        let took = before.elapsed();
        if took < best.0 {
            best = (took, before + took / 2, seconds);
        }
    }
    Ok((best.1, best.2))
}
