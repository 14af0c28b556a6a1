//! One `send_arrow`: rows of columns as records, without a Python object for each.
//!
//! A thread of the program, detached from the interpreter, copies rows into the stage while there is room. The feeder
//! appends them, as those of `send`. A task of the runtime counts the outcomes, by batch.
//!
//! # Invariants
//! - The runtime receives bytes, never arrays: the release of an array may attach to the interpreter.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use curtail::{
    Error, TopicPartition,
    producer::{CompletionRun, CompletionSink, Completions},
};
use parking_lot::Mutex;
use pyo3::{
    exceptions::{PyOSError, PyValueError},
    prelude::*,
};

use crate::{
    arrow::{ArrowRows, Source},
    counted::{Count, Counted, Failures},
    error,
    port::{Call, Home, Port, none},
    runtime::{Owned, Process},
    sent::now,
    stage::{NewRecord, Outlet, Stage},
    tree::Tree,
};

/// Longest time without a look at signals, if the other library returns its rows.
const TURN: Duration = Duration::from_millis(50);
/// Rows between looks at the clock.
const LOOK_EVERY: u64 = 64;

/// Offsets of a partition's records.
#[derive(Default)]
struct Span {
    first: Option<i64>,
    last: Option<i64>,
    count: u64,
}

/// Outcomes of one call's records, whose tags are the indexes of their rows.
#[derive(Default)]
struct Tally {
    partitions: Mutex<BTreeMap<i32, Span>>,
    failures: Failures,
}

impl Count for Tally {
    fn add(&self, run: &CompletionRun) {
        let batch = match run.outcome() {
            Ok(batch) => batch,
            Err(error) => return self.failures.add_run(run, error),
        };
        let mut partitions = self.partitions.lock();
        let span = partitions.entry(batch.partition).or_default();
        span.count += run.tags().len() as u64;
        for (_, offset) in run.records() {
            span.first = [span.first, offset].into_iter().flatten().min();
            span.last = span.last.max(offset);
        }
    }

    fn refuse(&self, tag: u64, error: Error) {
        self.failures.add(tag, 1, error);
    }
}

impl Tally {
    /// The partitions with their offsets, the number of failed records, and errors.
    fn tree(&self, topic: &str) -> Tree {
        let partitions = std::mem::take(&mut *self.partitions.lock());
        let offset = |offset: Option<i64>| offset.map_or(Tree::None, Tree::Int);
        let partition = |(partition, span): (i32, Span)| {
            let at = Tree::from(&TopicPartition::new(topic, partition));
            let count = Tree::Unsigned(span.count);
            [at, Tree::Tuple(vec![offset(span.first), offset(span.last), count])]
        };
        let [failed, failures] = self.failures.take();
        let partitions = Tree::Dict(partitions.into_iter().flat_map(partition).collect());
        Tree::Tuple(vec![partitions, failed, failures])
    }
}

/// Sends rows of columns to a topic, and counts their outcomes.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct Bulk {
    home: Home,
    topic: String,
    /// The error of a closed stage.
    closed: Error,
    tally: Arc<Tally>,
    counted: Owned<Counted>,
    accepted: AtomicU64,
    is_stopped: AtomicBool,
}

/// Why rows are not accepted.
enum Halt {
    Stopped,
    Closed,
    /// A row has a value that no record can have.
    Row(u64, String),
    /// The other library has failed.
    Read(String),
}

impl Bulk {
    pub(crate) fn object(
        py: Python<'_>,
        home: Home,
        topic: String,
        closed: Error,
        stage: Arc<Stage>,
        pair: (CompletionSink, Completions),
    ) -> PyResult<Py<PyAny>> {
        let tally = Arc::<Tally>::default();
        let counted = Counted::start(Process::get(py)?, stage, pair, tally.clone());
        let (accepted, is_stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        let counted = Owned::new(counted);
        let bulk = Self { home, topic, closed, tally, counted, accepted, is_stopped };
        Ok(Py::new(py, bulk)?.into_any())
    }

    /// Copies rows into the stage. Returns the size of one that has no room, 0 after a turn, `None` after the last row.
    fn fill(
        &self,
        stage: &Stage,
        outlet: &Arc<Outlet>,
        rows: &Mutex<Source>,
    ) -> Result<Option<usize>, Halt> {
        let (ends, now) = (Instant::now() + TURN, now());
        let mut source = rows.lock();
        while let Some(chunk) = source.chunk().map_err(Halt::Read)? {
            let mut headers = Vec::new();
            while chunk.next < chunk.rows {
                let (row, tag) = (chunk.next, chunk.first + chunk.next as u64);
                if self.is_stopped.load(Ordering::Relaxed) {
                    return Err(Halt::Stopped);
                }
                if tag % LOOK_EVERY == LOOK_EVERY - 1 && Instant::now() >= ends {
                    return Ok(Some(0));
                }
                let wrong = |text| Halt::Row(tag, text);
                chunk.columns.headers(row, &mut headers).map_err(wrong)?;
                let record = NewRecord {
                    topic: &self.topic,
                    partition: chunk.columns.partition(row).map_err(wrong)?,
                    key: chunk.columns.key(row),
                    value: chunk.columns.value(row),
                    headers: &headers,
                    timestamp: chunk.columns.timestamp(row).unwrap_or(now),
                    tag,
                };
                let room = stage.push_bulk(&record, outlet).map_err(|_closed| Halt::Closed)?;
                if room.is_some() {
                    return Ok(room);
                }
                chunk.next += 1;
                self.accepted.store(tag + 1, Ordering::Relaxed);
            }
        }
        Ok(None)
    }
}

#[pymethods]
impl Bulk {
    /// Accepts rows without the GIL while there is room, or for a turn of 50 ms. Returns `None` once each row is
    /// accepted, and otherwise the argument for [`Self::start_room`]; 0 if there is no need to wait.
    fn stage(&self, py: Python<'_>, rows: &ArrowRows) -> PyResult<Option<usize>> {
        let counted = self.counted.get(py)?;
        let Some(outlet) = counted.outlet() else { return Err(error::raise(py, &self.closed)) };
        let rows = rows.0.get(py)?;
        py.detach(|| self.fill(&counted.stage, &outlet, rows)).map_err(|halt| match halt {
            Halt::Stopped | Halt::Closed => error::raise(py, &self.closed),
            Halt::Row(row, text) => PyValueError::new_err(format!("row {row}: {text}")),
            Halt::Read(text) => PyOSError::new_err(text),
        })
    }

    /// Waits until there is room for a row of this size and later ones.
    fn start_room(&self, py: Python<'_>, size: usize) -> PyResult<Call> {
        let stage = self.counted.get(py)?.stage.clone();
        let room = async move {
            stage.room(size).await;
            Ok(())
        };
        Port::spawn(py, self.home, room, none)
    }

    /// Accepts no more rows. Also ends a call of [`Self::stage`] on another thread.
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Number of rows that were accepted.
    #[getter]
    fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Waits until each accepted row is acknowledged or failed. No more rows follow.
    fn start_outcomes(&self, py: Python<'_>) -> PyResult<Call> {
        let ended = self.counted.get(py)?.end();
        let (topic, tally) = (self.topic.clone(), self.tally.clone());
        let outcomes = async move {
            ended.await;
            Ok(tally.tree(&topic))
        };
        Port::spawn_long(py, self.home, outcomes)
    }
}
