//! Scans: fixed ranges of partitions as a stream of Arrow columns.
//!
//! A scan looks up its ranges when it is created. Each reading has a separate consumer and task, which start with the first
//! request. Readers of the C stream interface wait on their own thread, which need not be attached to the
//! interpreter. Ctrl-C ends the wait of the main thread, which alone handles signals.
//!
//! # Invariants
//! - Memory is bounded: [`AHEAD`] chunks wait for the reader, and the consumer buffers what its settings allow.
//! - A reading ends only when each partition's position has reached its end. Markers of transactions and records that
//!   compaction has removed count: an end may have no record before it.

use std::{
    collections::BTreeMap,
    io, mem,
    sync::Arc,
    thread::{self, ThreadId},
    time::Duration,
};

use arrow_array::{RecordBatchReader, ffi_stream::FFI_ArrowArrayStream};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use bytes::Bytes;
use curtail::{
    ConsumerConfig, ConsumerRecord, Error, Result, TopicPartition, consumer::CloseOptions,
};
use parking_lot::Mutex;
use pyo3::{
    intern,
    prelude::*,
    types::{PyCapsule, PyModule},
};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::{Instant, timeout},
};

use crate::{
    arrow::{Columns, Layout, RecordBatch, Wanted, capsule},
    config::{self, Properties},
    consumer::{TOO_LARGE, rows},
    error,
    pending::raise_soon,
    records::Rows,
    runtime::{Owned, Process},
    token::{Function, Kept},
    wait::wait,
};

/// Records of a chunk, at most, and rows of a record batch.
const RECORDS: usize = 65_536;
/// Bytes of batches after which a chunk ends.
const BYTES: usize = 32 << 20;
/// Chunks that wait for the reader.
const AHEAD: usize = 2;
/// Time without a batch after which positions are compared with the ends: the last offsets may have no records.
const STEP: Duration = Duration::from_millis(20);

/// Offsets of a partition: from the first to before the second.
type Ranges = BTreeMap<TopicPartition, (i64, i64)>;
type Chunk = (Rows, Columns);
/// Why the last reading that failed did.
type Failure = Arc<Mutex<Option<Failed>>>;

enum Failed {
    Client(Error),
    /// A signal's handler raised an exception while a reader of the C stream interface waited.
    Raised(PyErr),
}

impl Failed {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Client(error) => Self::Client(error.clone()),
            Self::Raised(raised) => Self::Raised(raised.clone_ref(py)),
        }
    }
}

/// A place in a partition, from Python: `("time", 1_700_000_000_000)`, `("end", 0)`.
type Named = (String, i64);

#[derive(Clone, Copy)]
enum Place {
    Offset(i64),
    /// The first record with this timestamp or a later one.
    Time(i64),
    Beginning,
    End,
}

impl Place {
    fn new((kind, number): &Named) -> Option<Self> {
        match &**kind {
            "offset" => Some(Self::Offset(*number)),
            "time" => Some(Self::Time(*number)),
            "beginning" => Some(Self::Beginning),
            "end" => Some(Self::End),
            _ => None,
        }
    }
}

/// Looks up the ranges. Places outside the log count as its beginning or its end.
async fn ranges(
    config: ConsumerConfig,
    env: curtail::Env,
    topics: Vec<String>,
    start: Place,
    end: Place,
) -> Result<Ranges> {
    let consumer = curtail::Consumer::with_env(config, &env)?;
    // Fails early: a lookup would try for `default.api.timeout.ms`.
    consumer.connect().await?;
    let mut all = Vec::new();
    for topic in &topics {
        let known = consumer.partitions_for(topic).await?;
        all.extend(known.iter().map(|one| TopicPartition::new(topic.as_str(), one.partition)));
    }
    let first = consumer.beginning_offsets(&all).await?;
    let last = consumer.end_offsets(&all).await?;
    let mut ranges = Ranges::new();
    let starts = places(&consumer, start, &all, &first, &last).await?;
    let ends = places(&consumer, end, &all, &first, &last).await?;
    for (at, start) in starts {
        let end = ends.get(&at).copied().unwrap_or(start).max(start);
        ranges.insert(at, (start, end));
    }
    consumer.close_with(CloseOptions::new()).await;
    Ok(ranges)
}

async fn places(
    consumer: &curtail::Consumer,
    place: Place,
    all: &[TopicPartition],
    first: &BTreeMap<TopicPartition, i64>,
    last: &BTreeMap<TopicPartition, i64>,
) -> Result<BTreeMap<TopicPartition, i64>> {
    let found = match place {
        Place::Time(time) => {
            consumer.offsets_for_times(all.iter().map(|at| (at.clone(), time))).await?
        }
        _ => BTreeMap::new(),
    };
    let place = |at: &TopicPartition| {
        let first = first.get(at).copied().unwrap_or(0);
        let last = last.get(at).copied().unwrap_or(first).max(first);
        let offset = match place {
            Place::Offset(offset) => offset.clamp(first, last),
            // Without such a record, the end.
            Place::Time(_) => match found.get(at).cloned().flatten() {
                Some(record) => record.offset.clamp(first, last),
                None => last,
            },
            Place::Beginning => first,
            Place::End => last,
        };
        (at.clone(), offset)
    };
    Ok(all.iter().map(place).collect())
}

/// The task that reads the ranges once.
struct Reading {
    consumer: curtail::Consumer,
    /// Where each partition ends that is not complete.
    ends: BTreeMap<TopicPartition, i64>,
    wanted: Wanted,
    /// The positions at the last look.
    seen: BTreeMap<TopicPartition, i64>,
    /// Longest time without progress.
    limit: Duration,
}

impl Reading {
    fn begin(scan: &Scan, env: &curtail::Env, wanted: Wanted) -> Result<Self> {
        let mut consumer = curtail::Consumer::with_env(scan.config.clone(), env)?;
        let open = || scan.ranges.iter().filter(|(_, (start, end))| start < end);
        consumer.assign(open().map(|(at, _)| at.clone()));
        for (at, (start, _)) in open() {
            consumer.seek(at, *start)?;
        }
        let ends = open().map(|(at, (_, end))| (at.clone(), *end)).collect();
        let limit = scan.config.get_default_api_timeout();
        Ok(Self { consumer, ends, wanted, seen: BTreeMap::new(), limit })
    }

    /// Reads until the ends, an error, or the reader's end.
    async fn run(mut self, chunks: Sender<Result<Chunk>>) {
        while !self.ends.is_empty() {
            let mut chunk = Collected::default();
            let filled = tokio::select! {
                biased;
                () = chunks.closed() => break,
                filled = self.fill(&mut chunk) => filled,
            };
            if !chunk.records.is_empty() && chunks.send(chunk.build(&self.wanted)).await.is_err() {
                break;
            }
            if let Err(error) = filled {
                let _ = chunks.send(Err(error)).await;
                break;
            }
        }
        self.consumer.close_with(CloseOptions::new()).await;
    }

    /// Collects records until the chunk is full, or every partition is complete.
    async fn fill(&mut self, chunk: &mut Collected) -> Result<()> {
        let mut last = Instant::now();
        while !chunk.is_full() && !self.ends.is_empty() {
            let rows = rows(&mut self.consumer, STEP, true).await?;
            let read = match rows.as_ref().and_then(|rows| rows.first()) {
                Some(record) => vec![record.topic_partition()],
                None => self.ends.keys().cloned().collect(),
            };
            if let (Some(rows), [at]) = (rows, &read[..]) {
                chunk.add(rows, self.ends.get(at).copied().unwrap_or(0));
            }
            if self.look(&read).await {
                last = Instant::now();
            }
            if last.elapsed() >= self.limit {
                let what = "progress of a scan (default.api.timeout.ms)";
                return Err(Error::Timeout { what, limit: self.limit, last: None });
            }
        }
        Ok(())
    }

    /// Ends the partitions whose positions have reached their ends. Returns whether a position has changed.
    async fn look(&mut self, read: &[TopicPartition]) -> bool {
        let before = self.ends.len();
        let mut has_changed = false;
        for at in read {
            // A position that is being looked up is known later.
            let Ok(Ok(position)) = timeout(Duration::ZERO, self.consumer.position(at)).await else {
                continue;
            };
            has_changed |= self.seen.insert(at.clone(), position) != Some(position);
            if self.ends.get(at).is_some_and(|end| position >= *end) {
                self.ends.remove(at);
            }
        }
        if self.ends.len() < before {
            // Partitions that stay assigned keep their positions.
            self.consumer.assign(self.ends.keys().cloned());
        }
        has_changed
    }
}

/// Records of a chunk with the batches that contain them.
#[derive(Default)]
struct Collected {
    records: Vec<ConsumerRecord>,
    batches: Vec<Bytes>,
    bytes: usize,
}

impl Collected {
    fn is_full(&self) -> bool {
        self.records.len() >= RECORDS || self.bytes >= BYTES
    }

    /// Adds a batch's records before the end.
    fn add(&mut self, rows: Rows, end: i64) {
        let (records, batches) = rows.into_parts();
        self.bytes += batches.iter().map(Bytes::len).sum::<usize>();
        self.records.extend(records.into_iter().filter(|record| record.offset() < end));
        self.batches.extend(batches);
    }

    fn build(self, wanted: &Wanted) -> Result<Chunk> {
        let columns = Columns::build(&self.records, &self.batches, wanted);
        let columns = columns.map_err(|_| Error::IllegalState(TOO_LARGE))?;
        Ok((Rows::new(self.records, self.batches), columns))
    }
}

/// What a scan reads.
struct Scan {
    process: &'static Process,
    config: ConsumerConfig,
    ranges: Ranges,
    /// Readers of the C interface may outlive the stream.
    _token: Option<Kept>,
}

/// The chunks of one reading.
struct Chunks {
    scan: Arc<Scan>,
    wanted: Wanted,
    failure: Failure,
    /// `None` before the first request.
    received: Option<Receiver<Result<Chunk>>>,
    has_ended: bool,
}

impl Chunks {
    /// Waits for the next chunk. `None` at the end, and after an error.
    async fn next(&mut self) -> Option<Result<Chunk>> {
        if self.has_ended {
            return None;
        }
        let received = match &mut self.received {
            Some(received) => received,
            none => {
                let (chunks, received) = channel(AHEAD);
                let env = self.scan.process.env();
                match Reading::begin(&self.scan, &env, self.wanted.clone()) {
                    Ok(reading) => drop(self.scan.process.spawn(reading.run(chunks))),
                    // Also ends the channel.
                    Err(error) => return self.ended(Some(error)),
                }
                none.insert(received)
            }
        };
        match received.recv().await {
            Some(Ok(chunk)) => Some(Ok(chunk)),
            Some(Err(error)) => self.ended(Some(error)),
            None => self.ended(None),
        }
    }

    fn ended(&mut self, error: Option<Error>) -> Option<Result<Chunk>> {
        self.has_ended = true;
        let before = mem::replace(&mut *self.failure.lock(), error.clone().map(Failed::Client));
        drop(before);
        error.map(Err)
    }
}

/// A reading for the C stream interface, on the reader's thread.
struct Reader {
    schema: SchemaRef,
    chunks: Owned<Arc<tokio::sync::Mutex<Chunks>>>,
    process: &'static Process,
    failure: Failure,
    /// The interpreter's main thread, if it created the reading.
    main: Option<ThreadId>,
}

impl Reader {
    /// Waits on the main thread, with looks for signals.
    #[expect(clippy::disallowed_methods, reason = "the main thread, which reads without the GIL")]
    fn wait_on_main(
        &self,
        next: impl Future<Output = Option<Result<Chunk>>> + Send + 'static,
    ) -> std::result::Result<Option<Result<Chunk>>, ArrowError> {
        Python::attach(|py| {
            // A chunk that has arrived is returned without a look.
            let waited = py.check_signals().and_then(|()| wait(py, next));
            waited.map_err(|raised| {
                let text = raised.to_string();
                let before = self.failure.lock().replace(Failed::Raised(raised.clone_ref(py)));
                drop(before);
                // The other library raises another exception. The interpreter raises this one right after it.
                raise_soon(py, raised);
                failed(text)
            })
        })
    }
}

impl Iterator for Reader {
    type Item = std::result::Result<arrow_array::RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(chunks) = self.chunks.local() else {
            return Some(Err(failed("the scan belongs to the parent process".into())));
        };
        let chunks = chunks.clone();
        let next = async move { chunks.lock().await.next().await };
        let next = if self.main == Some(thread::current().id()) {
            match self.wait_on_main(next) {
                Ok(next) => next,
                Err(raised) => return Some(Err(raised)),
            }
        } else {
            self.process.block_on(next)
        };
        Some(match next? {
            Ok((_, columns)) => Ok(columns.into_batch()),
            Err(error) => Err(failed(error.report().to_string())),
        })
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// This thread, if it is the interpreter's main thread.
fn main_thread(py: Python<'_>) -> PyResult<Option<ThreadId>> {
    let threading = PyModule::import(py, intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?;
    let is_main = threading.call_method0(intern!(py, "current_thread"))?.is(&main);
    Ok(is_main.then(|| thread::current().id()))
}

fn failed(text: String) -> ArrowError {
    ArrowError::IoError(text.clone(), io::Error::other(text))
}

/// Records of topics between fixed offsets, as a stream of Arrow columns. It can be read several times.
#[pyclass(frozen, subclass, module = "curtail_kafka._native")]
pub(crate) struct ArrowStream {
    scan: Owned<Arc<Scan>>,
    wanted: Wanted,
    failure: Owned<Failure>,
}

impl ArrowStream {
    fn chunks(&self, py: Python<'_>, layout: Layout) -> PyResult<Chunks> {
        let wanted = Wanted { layout, ..self.wanted.clone() };
        let (scan, failure) = (self.scan.get(py)?.clone(), self.failure.get(py)?.clone());
        Ok(Chunks { scan, wanted, failure, received: None, has_ended: false })
    }

    fn schema(&self, layout: Layout) -> PyResult<SchemaRef> {
        let wanted = Wanted { layout, ..self.wanted.clone() };
        let empty = Columns::build(&[], &[], &wanted).map_err(|error| capsule::raise(&error))?;
        Ok(Arc::new(Schema::new(empty.fields().clone())))
    }
}

#[pymethods]
impl ArrowStream {
    /// Looks up the offsets. Waits without the GIL.
    #[new]
    #[pyo3(signature = (properties, topics, start, end, columns, layout, token=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of the Python function")]
    fn new(
        py: Python<'_>,
        properties: Properties,
        topics: Vec<String>,
        start: Named,
        end: Named,
        columns: Option<Vec<String>>,
        layout: &str,
        token: Option<Function>,
    ) -> PyResult<Self> {
        let wanted = Wanted::new(columns, layout).map_err(|text| error::config(py, &text))?;
        let (config, _) = config::consumer(py, properties, token)?;
        let (Some(start), Some(end)) = (Place::new(&start), Place::new(&end)) else {
            return Err(error::config(py, "start and end: not a place"));
        };
        if config.get_group_id().is_some() {
            return Err(error::config(py, "group_id: a scan reads without a group"));
        }
        let process = Process::get(py)?;
        let kept = token.map(|token| Kept::new(py, token)).transpose()?;
        let looked_up = ranges(config.clone(), process.env(), topics, start, end);
        let ranges = wait(py, looked_up)?.map_err(|error| error::raise(py, &error))?;
        let scan = Owned::new(Arc::new(Scan { process, config, ranges, _token: kept }));
        Ok(Self { scan, wanted, failure: Owned::new(Failure::default()) })
    }

    /// The offsets that are read, by topic and partition.
    fn _ranges(&self, py: Python<'_>) -> PyResult<Vec<(String, i32, i64, i64)>> {
        let ranges = self.scan.get(py)?.ranges.iter();
        let flat = |(at, (start, end)): (&TopicPartition, &(i64, i64))| {
            (at.topic.to_string(), at.partition, *start, *end)
        };
        Ok(ranges.map(flat).collect())
    }

    /// The exception of the last reading, if it has failed. Readers of the C interface receive only its text.
    #[getter]
    fn error(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        // Converted without the lock: the conversion runs Python code.
        let failed = self.failure.get(py)?.lock().as_ref().map(|failed| failed.clone_ref(py));
        let value = |failed: Failed| match failed {
            Failed::Client(error) => error::value(py, &error).map(Bound::unbind),
            Failed::Raised(raised) => Ok(raised.into_value(py).into_any()),
        };
        failed.map(value).transpose()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::schema_of(py, self.schema(self.wanted.layout)?.fields())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let requested = requested_schema.map(capsule::requested_layout).transpose()?.flatten();
        let layout = requested.unwrap_or(self.wanted.layout);
        let chunks = self.chunks(py, layout)?;
        let reader = Reader {
            schema: self.schema(layout)?,
            process: chunks.scan.process,
            failure: chunks.failure.clone(),
            chunks: Owned::new(Arc::new(tokio::sync::Mutex::new(chunks))),
            main: main_thread(py)?,
        };
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Iterates over the columns.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Batches> {
        Ok(Batches(Owned::new(Arc::new(tokio::sync::Mutex::new(
            self.chunks(py, self.wanted.layout)?,
        )))))
    }

    /// Returns a `pyarrow.Table`.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        PyModule::import(py, intern!(py, "pyarrow"))?.call_method1(intern!(py, "table"), (slf,))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let ranges = &self.scan.get(py)?.ranges;
        let offsets: i64 = ranges.values().map(|(start, end)| end - start).sum();
        Ok(format!("<ArrowStream: {offsets} offsets of {} partitions>", ranges.len()))
    }
}

/// One reading of a scan, as record batches.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct Batches(Owned<Arc<tokio::sync::Mutex<Chunks>>>);

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let chunks = self.0.get(py)?.clone();
        let next = async move {
            let mut chunks = chunks.lock().await;
            (chunks.next().await, chunks.wanted.layout)
        };
        match wait(py, next)? {
            (None, _) => Ok(None),
            (Some(Err(error)), _) => Err(error::raise(py, &error)),
            (Some(Ok((rows, columns))), layout) => {
                let range = 0..rows.len();
                Ok(Some(RecordBatch::new(Arc::new(rows), range, columns, layout)))
            }
        }
    }
}
