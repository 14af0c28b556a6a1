//! Concurrent processing that keeps the order of each key.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap, VecDeque},
    future::Future,
    panic::resume_unwind,
    pin::pin,
    sync::Arc,
};

use bytes::Bytes;
use curtail_proto::position::Spot;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
};

use super::{Consumer, Records, queues::PartitionQueue};
use crate::{ConsumerRecord, Error, Result};

/// Processes records concurrently. Records of a partition with the same key are processed one after the other, in order.
///
/// - **Bounded.** At most `concurrency` handlers run at a time, and at most `max_records` records of each partition are
///   in memory and not processed, besides `curtail.prefetch.bytes`.
/// - **At least once.** Auto-commit (`enable.auto.commit`, on by default) commits, for each partition, the offset before
///   which all records are processed. After a crash, later records may be processed again.
/// - **Revocation.** A revoked partition starts no further handler, and goes to another member when the running ones have
///   ended and their records are committed.
///
/// ```no_run
/// # async fn charge(_: &curtail::ConsumerRecord) -> curtail::Result<()> { Ok(()) }
/// # async fn example(consumer: curtail::Consumer) -> curtail::Result<()> {
/// use curtail::consumer::InKeyOrder;
///
/// let stop = async { drop(tokio::signal::ctrl_c().await) };
/// InKeyOrder::new(64)
///     .run(consumer, stop, async |record| charge(&record).await)
///     .await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is processed before run"]
pub struct InKeyOrder {
    concurrency: usize,
    max_records: usize,
}

impl InKeyOrder {
    /// Allows this number of handlers at a time, at least one, and 1,000 records of each partition.
    pub fn new(concurrency: usize) -> Self {
        Self { concurrency: concurrency.clamp(1, Semaphore::MAX_PERMITS), max_records: 1_000 }
    }

    /// Sets the number of records of each partition that may be in memory and not processed, at least one.
    pub fn max_records(mut self, max_records: usize) -> Self {
        self.max_records = max_records.max(1);
        self
    }

    /// Processes records until `stop` resolves or a handler fails, and closes the consumer. Handlers run as tasks of the
    /// current tokio runtime. Running ones end first, and their records are committed.
    ///
    /// # Errors
    /// The first error of a handler; the record, and later ones of its partition that were not processed, are not
    /// committed. An error of [`Consumer::poll`]. [`Error::IllegalState`] for a member of a group without
    /// `enable.auto.commit`.
    ///
    /// # Panics
    /// If a handler panics, after the other handlers of its partition have ended.
    ///
    /// # Cancel safety
    /// A dropped future aborts the running handlers, and their records are not committed.
    pub async fn run<H, F, E>(
        self,
        consumer: Consumer,
        stop: impl Future<Output = ()>,
        handler: H,
    ) -> Result<(), E>
    where
        H: Fn(ConsumerRecord) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let config = &consumer.shared.config;
        if config.group_id.is_some() && !config.enable_auto_commit {
            let reason = "processing in key order commits with enable.auto.commit, which is off";
            return Err(Error::IllegalState(reason).into());
        }
        let handler = Arc::new(handler);
        let permits = Arc::new(Semaphore::new(self.concurrency));
        let mut queues = consumer.into_queues();
        let mut workers: JoinSet<Result<(), E>> = JoinSet::new();
        let mut stop = pin!(stop);
        let outcome = loop {
            tokio::select! {
                () = &mut stop => break Ok(()),
                Some(ended) = workers.join_next() => match joined(ended) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => break Err(error),
                    None => break Err(Error::Closed.into()),
                },
                queue = queues.next() => match queue {
                    Ok(queue) => {
                        let worker = Worker::new(queue, self.max_records, permits.clone());
                        drop(workers.spawn(worker.run(handler.clone())));
                    }
                    Err(error) => break Err(error.into()),
                },
            }
        };
        // The workers see the end of their queues.
        let ends = async {
            let mut outcome = Ok(());
            while let Some(ended) = workers.join_next().await {
                outcome = outcome.and(joined(ended).unwrap_or(Ok(())));
            }
            outcome
        };
        let (ended, ()) = tokio::join!(ends, queues.close());
        outcome.and(ended)
    }
}

/// Returns the task's result; `None` if its runtime has ended. Panics if the task panicked.
fn joined<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(returned) => Some(returned),
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => None,
    }
}

/// Processes one partition.
struct Worker<E> {
    queue: PartitionQueue,
    max_records: usize,
    permits: Arc<Semaphore>,
    progress: Progress,
    /// Records whose handlers may start.
    ready: VecDeque<ConsumerRecord>,
    /// Records that wait for the earlier one of their key, which is ready or running.
    waiting: HashMap<Bytes, VecDeque<ConsumerRecord>>,
    running: JoinSet<Done<E>>,
    /// The first panic of a handler.
    panic: Option<Box<dyn Any + Send>>,
}

/// A handler that has ended.
struct Done<E> {
    offset: i64,
    key: Option<Bytes>,
    outcome: Result<(), E>,
}

impl<E: From<Error> + Send + 'static> Worker<E> {
    fn new(queue: PartitionQueue, max_records: usize, permits: Arc<Semaphore>) -> Self {
        Self {
            queue,
            max_records,
            permits,
            progress: Progress::default(),
            ready: VecDeque::new(),
            waiting: HashMap::new(),
            running: JoinSet::new(),
            panic: None,
        }
    }

    async fn run<H, F>(mut self, handler: Arc<H>) -> Result<(), E>
    where
        H: Fn(ConsumerRecord) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let mut outcome = loop {
            let room = self.max_records.saturating_sub(self.progress.open());
            let may_start = !self.ready.is_empty();
            tokio::select! {
                biased;
                Some(ended) = self.running.join_next() => match self.ended(ended) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                permit = self.permits.clone().acquire_owned(), if may_start => {
                    // The semaphore is never closed.
                    if let Ok(permit) = permit {
                        self.start(&handler, permit);
                    }
                }
                more = self.queue.more(room, self.progress.open() == 0) => match more {
                    Some(Ok(records)) => self.sort(records),
                    Some(Err(error)) => break Err(error.into()),
                    None => break Ok(()),
                },
            }
        };
        // Handlers that run are not interrupted, and no other starts.
        while let Some(ended) = self.running.join_next().await {
            outcome = outcome.and(self.ended(ended));
        }
        match self.panic.take() {
            Some(panic) => resume_unwind(panic),
            None => outcome,
        }
    }

    /// Sorts records into those that may start and those that wait for their key.
    fn sort(&mut self, records: Records) {
        for record in records {
            self.progress.begin(&record);
            match record.key_bytes().and_then(|key| self.waiting.get_mut(key)) {
                Some(behind) => behind.push_back(record),
                None => {
                    if let Some(key) = record.key_bytes() {
                        self.waiting.insert(key.clone(), VecDeque::new());
                    }
                    self.ready.push_back(record);
                }
            }
        }
    }

    fn start<H, F>(&mut self, handler: &Arc<H>, permit: OwnedSemaphorePermit)
    where
        H: Fn(ConsumerRecord) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let Some(record) = self.ready.pop_front() else { return };
        let handler = handler.clone();
        let (offset, key) = (record.offset(), record.key_bytes().cloned());
        drop(self.running.spawn(async move {
            let outcome = handler(record).await;
            drop(permit);
            Done { offset, key, outcome }
        }));
    }

    /// Returns the outcome of a handler. Keeps a panic until the other handlers have ended.
    fn ended(&mut self, ended: Result<Done<E>, JoinError>) -> Result<(), E> {
        match ended.map_err(JoinError::try_into_panic) {
            Ok(done) => self.finished(done),
            Err(ended) => {
                self.panic = self.panic.take().or(ended.ok());
                Err(Error::Closed.into())
            }
        }
    }

    fn finished(&mut self, done: Done<E>) -> Result<(), E> {
        if let Some(key) = done.key {
            match self.waiting.get_mut(&key).and_then(VecDeque::pop_front) {
                Some(next) => self.ready.push_back(next),
                None => drop(self.waiting.remove(&key)),
            }
        }
        done.outcome?;
        match self.progress.end(done.offset) {
            Some(first) => self.queue.finish_to(first),
            None => self.queue.finish(),
        }
        Ok(())
    }
}

/// Records of a partition that are not processed, each with the position before it.
#[derive(Debug, Default)]
struct Progress {
    open: BTreeMap<i64, Spot>,
    /// Leader epoch of the last record; `None` before the first.
    epoch: Option<i32>,
}

impl Progress {
    /// Number of records that are not processed.
    fn open(&self) -> usize {
        self.open.len()
    }

    /// Adds the partition's next record.
    fn begin(&mut self, record: &ConsumerRecord) {
        let epoch = self.epoch.replace(record.leader_epoch().unwrap_or(-1)).unwrap_or(-1);
        self.open.insert(record.offset(), Spot { offset: record.offset(), epoch });
    }

    /// Removes a processed record. Returns the position before the first that is not processed.
    fn end(&mut self, offset: i64) -> Option<Spot> {
        self.open.remove(&offset);
        self.open.values().next().copied()
    }
}
