//! Fetched records as Python objects, created on access.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use curtail::ConsumerRecord;
use parking_lot::Mutex;
use pyo3::{
    exceptions::PyIndexError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyList, PySlice, PyString},
};

use crate::{progress::Progress, runtime::Owned};

/// How long an iteration may keep the event loop from running.
const TURN: Duration = Duration::from_millis(1);

/// A fetched record.
#[pyclass(frozen, module = "curtail_kafka")]
pub(crate) struct Record {
    records: Arc<Vec<ConsumerRecord>>,
    index: usize,
}

impl Record {
    pub(crate) fn new(records: Arc<Vec<ConsumerRecord>>, index: usize) -> Self {
        Self { records, index }
    }

    fn get(&self) -> &ConsumerRecord {
        &self.records[self.index]
    }
}

#[pymethods]
impl Record {
    #[getter]
    fn topic(&self) -> &str {
        self.get().topic()
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.get().partition()
    }

    #[getter]
    fn offset(&self) -> i64 {
        self.get().offset()
    }

    /// Milliseconds since 1970-01-01 UTC.
    #[getter]
    fn timestamp(&self) -> i64 {
        self.get().timestamp()
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.get().key().map(|key| PyBytes::new(py, key))
    }

    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.get().value().map(|value| PyBytes::new(py, value))
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let class = CLASS.import(py, "curtail_kafka._records", "Headers")?;
        let pairs = self.get().headers();
        let pairs = pairs.map(|(name, value)| (name, value.map(|value| PyBytes::new(py, value))));
        class.call1((PyList::new(py, pairs.collect::<Vec<_>>())?,))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let record = self.get();
        let show = |bytes: Option<&[u8]>| match bytes {
            Some(bytes) => PyBytes::new(py, bytes).repr().map(|text| text.to_string()),
            None => Ok("None".into()),
        };
        let topic = PyString::new(py, record.topic()).repr()?;
        let (key, value) = (show(record.key())?, show(record.value())?);
        let (partition, offset) = (record.partition(), record.offset());
        Ok(format!(
            "Record(topic={topic}, partition={partition}, offset={offset}, key={key}, value={value})"
        ))
    }
}

/// The records of a poll.
#[pyclass(frozen, sequence, module = "curtail_kafka")]
pub(crate) struct Records {
    records: Arc<Vec<ConsumerRecord>>,
    range: Range<usize>,
}

impl Records {
    pub(crate) fn new(records: Arc<Vec<ConsumerRecord>>, range: Range<usize>) -> Self {
        Self { records, range }
    }

    pub(crate) fn empty() -> Self {
        Self::new(Arc::default(), 0..0)
    }

    fn at(&self, index: usize) -> Record {
        Record::new(self.records.clone(), self.range.start + index)
    }
}

#[pymethods]
impl Records {
    fn __len__(&self) -> usize {
        self.range.len()
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        if let Ok(slice) = key.cast::<PySlice>() {
            let indices = slice.indices(self.range.len() as isize)?;
            let records = (0..indices.slicelength).map(|n| {
                // Within the range, as `indices` has made sure.
                self.at((indices.start + n as isize * indices.step) as usize)
            });
            return Ok(PyList::new(py, records.collect::<Vec<_>>())?.into_any());
        }
        let index: isize = key.call_method0(intern!(py, "__index__"))?.extract()?;
        let length = self.range.len() as isize;
        let index = if index < 0 { index + length } else { index };
        if !(0..length).contains(&index) {
            return Err(PyIndexError::new_err("index out of range"));
        }
        Ok(Bound::new(py, self.at(index as usize))?.into_any())
    }

    fn __iter__(&self) -> RecordsIterator {
        RecordsIterator { records: self.records.clone(), range: Mutex::new(self.range.clone()) }
    }

    fn __repr__(&self) -> String {
        format!("<Records: {}>", self.range.len())
    }
}

/// Iterates over the records of a poll.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct RecordsIterator {
    records: Arc<Vec<ConsumerRecord>>,
    range: Mutex<Range<usize>>,
}

#[pymethods]
impl RecordsIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self) -> Option<Record> {
        let index = self.range.lock().next()?;
        Some(Record::new(self.records.clone(), index))
    }
}

/// Iterates over the records that wait for the program, until the event loop must run.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct Turn {
    progress: Owned<Arc<Mutex<Progress>>>,
    ends: Instant,
}

impl Turn {
    pub(crate) fn new(progress: Arc<Mutex<Progress>>) -> Self {
        Self { progress: Owned::new(progress), ends: Instant::now() + TURN }
    }
}

#[pymethods]
impl Turn {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        let progress = self.progress.get(py)?;
        Ok(if Instant::now() < self.ends { progress.lock().next() } else { None })
    }
}
