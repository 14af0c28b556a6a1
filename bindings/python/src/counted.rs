//! Records whose outcomes are counted by batch, without a Python object for each.
//!
//! # Invariants
//! - The count ends with the last outlet and the last batch of its records.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use curtail::{
    Error,
    producer::{CompletionRun, CompletionSink, Completions},
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{
    runtime::Process,
    stage::{Outlet, Refusals, Stage},
    tree::Tree,
};

/// Errors that are kept; the others are counted.
const KEPT: usize = 100;

/// Counts of outcomes.
pub(crate) trait Count: Send + Sync + 'static {
    /// Counts a batch that was acknowledged or failed.
    fn add(&self, run: &CompletionRun);

    /// Counts a record that was not appended.
    fn refuse(&self, tag: u64, error: Error);
}

/// The sending side of a count.
pub(crate) struct Counted {
    pub(crate) stage: Arc<Stage>,
    /// `None` once no more records follow.
    outlet: Mutex<Option<Arc<Outlet>>>,
    counting: Mutex<Option<JoinHandle<()>>>,
}

impl Counted {
    /// Starts to count.
    pub(crate) fn start<C: Count>(
        process: &Process,
        stage: Arc<Stage>,
        (sink, runs): (CompletionSink, Completions),
        counts: Arc<C>,
    ) -> Self {
        let counting = process.spawn(count(runs, counts.clone()));
        let outlet = Arc::new(Outlet { refusals: Refusals::Counts(counts), sink });
        Self { stage, outlet: Mutex::new(Some(outlet)), counting: Mutex::new(Some(counting)) }
    }

    /// Where the next record's outcome goes. `None` once no more records follow.
    pub(crate) fn outlet(&self) -> Option<Arc<Outlet>> {
        self.outlet.lock().clone()
    }

    /// Ends the records, and returns a future of the end of their outcomes.
    pub(crate) fn end(&self) -> impl Future<Output = ()> + Send + use<> {
        drop(self.outlet.lock().take());
        let counting = self.counting.lock().take();
        async move {
            if let Some(counting) = counting {
                // Fails only with the runtime.
                let _ = counting.await;
            }
        }
    }
}

/// Counts outcomes. Returns each batch's part of `buffer.memory`.
async fn count<C: Count>(mut runs: Completions, counts: Arc<C>) {
    while let Some(run) = runs.next().await {
        counts.add(&run);
    }
}

/// An error, and the records that it applies to.
struct Failure {
    error: Error,
    count: u64,
    first: u64,
}

/// Errors of records.
#[derive(Default)]
pub(crate) struct Failures {
    count: AtomicU64,
    kept: Mutex<Vec<Failure>>,
}

impl Failures {
    /// Adds the error of this many records, the first of which has this tag.
    pub(crate) fn add(&self, first: u64, count: u64, error: Error) {
        self.count.fetch_add(count, Ordering::Relaxed);
        let mut kept = self.kept.lock();
        if kept.len() < KEPT {
            kept.push(Failure { error, count, first });
        }
    }

    /// Adds the error of a batch.
    pub(crate) fn add_run(&self, run: &CompletionRun, error: &Error) {
        let first = run.tags().iter().min().copied().unwrap_or(0);
        self.add(first, run.tags().len() as u64, error.clone());
    }

    /// Number of failed records.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The number of failed records, and the errors that were kept, each with its records and the tag of the first.
    pub(crate) fn take(&self) -> [Tree; 2] {
        let failure = |Failure { error, count, first }| {
            let error = Tree::Error(Box::new(error));
            Tree::Tuple(vec![error, Tree::Unsigned(count), Tree::Unsigned(first)])
        };
        let kept = std::mem::take(&mut *self.kept.lock());
        [Tree::Unsigned(self.count()), Tree::List(kept.into_iter().map(failure).collect())]
    }
}
