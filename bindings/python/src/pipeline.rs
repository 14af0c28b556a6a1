//! A pipeline: a bounded number of records, whose outcomes are counted by batch.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use curtail::{
    Error,
    producer::{CompletionRun, CompletionSink, Completions},
};
use parking_lot::Mutex;
use pyo3::{prelude::*, types::PyString};
use tokio::{sync::Notify, time::timeout};

use crate::{
    counted::{Count, Counted, Failures},
    error,
    port::{Call, Home, Port, none},
    runtime::{Owned, Process},
    sent::Sent,
    stage::{NewRecord, Refused, Stage},
    tree::Tree,
};

/// How long a call that could continue waits for more room: a wake-up of the event loop then serves many records.
const GATHERING: Duration = Duration::from_millis(1);

/// Outcomes of a pipeline's records.
#[derive(Default)]
struct Counts {
    delivered: AtomicU64,
    failures: Failures,
    changed: Notify,
}

impl Counts {
    fn settled(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed) + self.failures.count()
    }

    /// Waits until this many records have an outcome.
    async fn reach(&self, settled: u64) {
        loop {
            // From here on a change is noticed.
            let changed = self.changed.notified();
            if self.settled() >= settled {
                return;
            }
            changed.await;
        }
    }
}

impl Count for Counts {
    fn add(&self, run: &CompletionRun) {
        match run.outcome() {
            Ok(_) => {
                self.delivered.fetch_add(run.tags().len() as u64, Ordering::Relaxed);
            }
            Err(error) => self.failures.add_run(run, error),
        }
        self.changed.notify_waiters();
    }

    fn refuse(&self, tag: u64, error: Error) {
        self.failures.add(tag, 1, error);
        self.changed.notify_waiters();
    }
}

/// The native part of `curtail_kafka.Pipeline`, for one of its blocks.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct Pipeline {
    home: Home,
    /// Largest number of records without an outcome.
    limit: u64,
    /// Records so far. Locked before the stage.
    accepted: Mutex<u64>,
    counts: Arc<Counts>,
    counted: Owned<Counted>,
}

impl Pipeline {
    pub(crate) fn new(
        process: &Process,
        home: Home,
        limit: u64,
        stage: Arc<Stage>,
        pair: (CompletionSink, Completions),
    ) -> Self {
        let counts = Arc::<Counts>::default();
        let counted = Owned::new(Counted::start(process, stage, pair, counts.clone()));
        Self { home, limit, accepted: Mutex::default(), counts, counted }
    }

    /// Copies a record into the stage. Returns the size of one that has no room there, 0 at the limit.
    fn accept(&self, counted: &Counted, record: &NewRecord<'_>) -> Result<Option<usize>, Refused> {
        let mut accepted = self.accepted.lock();
        if accepted.saturating_sub(self.counts.settled()) >= self.limit {
            return Ok(Some(0));
        }
        let outlet = counted.outlet().ok_or(Refused::Closed)?;
        let room = counted.stage.push_bulk(&NewRecord { tag: *accepted, ..*record }, &outlet)?;
        if room.is_none() {
            *accepted += 1;
        }
        Ok(room)
    }
}

#[pymethods]
impl Pipeline {
    /// Accepts a record, and returns `None`. Otherwise returns the argument for [`Self::start_room`].
    #[expect(clippy::too_many_arguments, reason = "the arguments of the Python method")]
    fn offer(
        &self,
        py: Python<'_>,
        topic: &Bound<'_, PyString>,
        value: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        partition: Option<i32>,
        headers: Option<&Bound<'_, PyAny>>,
        timestamp: Option<i64>,
    ) -> PyResult<Option<usize>> {
        let counted = self.counted.get(py)?;
        Sent { topic, value, key, partition, headers, timestamp }
            .record(|record| self.accept(counted, &record))?
            .map_err(|refused| error::raise(py, &refused.into()))
    }

    /// Waits for room that [`Self::offer`] did not find. Others may take it.
    fn start_room(&self, py: Python<'_>, size: usize) -> PyResult<Call> {
        let stage = self.counted.get(py)?.stage.clone();
        let counts = self.counts.clone();
        let accepted = *self.accepted.lock();
        let free = |places| accepted.saturating_sub(self.limit - places);
        let (one, many) = (free(1), free((self.limit / 4).max(1)));
        let room = async move {
            if size > 0 {
                stage.room(size).await;
            } else {
                counts.reach(one).await;
                // The others may belong to a broker that does not respond.
                let _ = timeout(GATHERING, counts.reach(many)).await;
            }
            Ok(())
        };
        Port::spawn(py, self.home, room, none)
    }

    /// Records that were acknowledged.
    #[getter]
    fn delivered(&self) -> u64 {
        self.counts.delivered.load(Ordering::Relaxed)
    }

    /// Records that failed.
    #[getter]
    fn failed(&self) -> u64 {
        self.counts.failures.count()
    }

    /// Waits until each record is acknowledged or failed. No more records follow.
    fn start_outcomes(&self, py: Python<'_>) -> PyResult<Call> {
        let (ended, counts) = (self.counted.get(py)?.end(), self.counts.clone());
        let outcomes = async move {
            ended.await;
            Ok(Tree::Tuple(counts.failures.take().into()))
        };
        Port::spawn_long(py, self.home, outcomes)
    }
}
