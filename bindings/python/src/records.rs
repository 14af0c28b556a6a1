//! Fetched records as Python objects, created on access.

use std::{
    mem,
    ops::{Deref, Range},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use curtail::ConsumerRecord;
use parking_lot::Mutex;
use pyo3::{
    exceptions::PyIndexError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyList, PyMemoryView, PySlice, PyString},
};
use tokio::runtime::Handle;

use crate::{buffer, progress::Progress, runtime::Owned};

/// How long an iteration may keep the event loop from running.
const TURN: Duration = Duration::from_millis(1);

/// More records are freed by the runtime: the event loop must not be held.
const MANY: usize = 2_000;

/// Fetched records, with the batches that contain their values.
pub(crate) struct Rows {
    records: Vec<ConsumerRecord>,
    batches: Vec<Bytes>,
    /// `None` for few records.
    runtime: Option<Owned<Handle>>,
}

impl Rows {
    /// Call it on the runtime if there may be many records. Without the batches, columns copy the values.
    pub(crate) fn new(records: Vec<ConsumerRecord>, batches: Vec<Bytes>) -> Self {
        let runtime = (records.len() > MANY).then(Handle::try_current).and_then(Result::ok);
        Self { records, batches, runtime: runtime.map(Owned::new) }
    }

    pub(crate) fn into_parts(mut self) -> (Vec<ConsumerRecord>, Vec<Bytes>) {
        (mem::take(&mut self.records), mem::take(&mut self.batches))
    }

    pub(crate) fn batches(&self) -> &[Bytes] {
        &self.batches
    }
}

impl Deref for Rows {
    type Target = [ConsumerRecord];

    fn deref(&self) -> &[ConsumerRecord] {
        &self.records
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        let Some(runtime) = &self.runtime else { return };
        if self.records.is_empty() {
            return;
        }
        let freed = (mem::take(&mut self.records), mem::take(&mut self.batches));
        match runtime.local() {
            Some(runtime) => drop(runtime.spawn(async move { drop(freed) })),
            // In a forked child.
            None => mem::forget(freed),
        }
    }
}

/// A fetched record.
#[pyclass(frozen, module = "curtail_kafka")]
pub(crate) struct Record {
    records: Arc<Rows>,
    index: usize,
}

impl Record {
    pub(crate) fn new(records: Arc<Rows>, index: usize) -> Self {
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

    /// The key without a copy. It keeps the fetched batch in memory.
    #[getter]
    fn key_view<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        self.get().key_bytes().map(|key| buffer::view(py, key)).transpose()
    }

    /// As [`Self::key_view`], for the value.
    #[getter]
    fn value_view<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        self.get().value_bytes().map(|value| buffer::view(py, value)).transpose()
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
    records: Arc<Rows>,
    range: Range<usize>,
}

impl Records {
    pub(crate) fn new(records: Arc<Rows>, range: Range<usize>) -> Self {
        Self { records, range }
    }

    pub(crate) fn empty() -> Self {
        Self::new(Arc::new(Rows::new(Vec::new(), Vec::new())), 0..0)
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
        RecordsIterator::new(self.records.clone(), self.range.clone())
    }

    fn __repr__(&self) -> String {
        format!("<Records: {}>", self.range.len())
    }
}

/// Iterates over the records of a poll.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct RecordsIterator {
    records: Arc<Rows>,
    range: Mutex<Range<usize>>,
}

impl RecordsIterator {
    pub(crate) fn new(records: Arc<Rows>, range: Range<usize>) -> Self {
        Self { records, range: Mutex::new(range) }
    }
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
