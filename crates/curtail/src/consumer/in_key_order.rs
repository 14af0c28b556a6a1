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

use super::{Consumer, Records, claims::Jump, queues::PartitionQueue};
use crate::{ConsumerRecord, Error, Result};

#[cfg(test)]
mod tests;

/// Processes records concurrently. Records of a partition with the same key are processed one after the other, in order.
///
/// - **Bounded.** At most `concurrency` handlers run at a time, and at most `max_records` records of each partition are
///   in memory and not processed, besides `curtail.prefetch.bytes`.
/// - **At least once.** Auto-commit (`enable.auto.commit`, on by default) commits, for each partition, the offset before
///   which all records are processed. After a crash, later records may be processed again.
/// - **Revocation.** A revoked partition starts no further handler, and goes to another member when the running ones have
///   ended and their records are committed, as with [`PartitionQueues`](super::PartitionQueues).
/// - **Seeks.** A [`ConsumerHandle`](super::ConsumerHandle) may seek. Records from before whose handlers have not begun
///   are dropped. Handlers that run end, and precede later records of their key, but move no position.
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
    /// current tokio runtime. Running ones end first, however long they take, and their records are committed; the
    /// consumer stays in its group until then.
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
        let mut workers: JoinSet<Ended<E>> = JoinSet::new();
        let mut stop = pin!(stop);
        let outcome = loop {
            tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                Some(ended) = workers.join_next() => {
                    if let Err(failure) = outcome_of(ended) {
                        break Err(failure);
                    }
                }
                queue = queues.next() => match queue {
                    Ok(queue) => {
                        let worker = Worker::new(queue, self.max_records, permits.clone());
                        drop(workers.spawn(worker.run(handler.clone())));
                    }
                    Err(error) => break Err(Failure::Error(error.into())),
                },
            }
        };
        // The workers see the end of their queues.
        let ends = async {
            let mut outcome = Ok(());
            while let Some(ended) = workers.join_next().await {
                outcome = outcome.and(outcome_of(ended));
            }
            outcome
        };
        let (ended, ()) = tokio::join!(ends, queues.finish());
        queues.close().await;
        match outcome.and(ended) {
            Ok(()) => Ok(()),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::Panic(panic)) => resume_unwind(panic),
        }
    }
}

/// The end of a worker. It keeps the queue: a partition whose queue is dropped is offered again, and a failed one must
/// not be before the failure is seen.
struct Ended<E> {
    outcome: Result<(), Failure<E>>,
    _queue: PartitionQueue,
}

/// Why a worker ended early.
enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

impl<E: From<Error>> Failure<E> {
    fn of(ended: JoinError) -> Self {
        match ended.try_into_panic() {
            Ok(panic) => Self::Panic(panic),
            // The task's runtime has ended.
            Err(_) => Self::Error(Error::Closed.into()),
        }
    }
}

/// Returns a worker's outcome. Gives its partition back.
fn outcome_of<E: From<Error>>(ended: Result<Ended<E>, JoinError>) -> Result<(), Failure<E>> {
    ended.map_err(Failure::of)?.outcome
}

/// Processes one partition.
struct Worker<E> {
    queue: PartitionQueue,
    max_records: usize,
    permits: Arc<Semaphore>,
    progress: Progress,
    /// Records whose handlers may start.
    ready: VecDeque<Work>,
    /// Records that wait for the earlier one of their key, which is ready or running.
    waiting: HashMap<Bytes, VecDeque<Work>>,
    running: JoinSet<Done<E>>,
}

/// A record that is not processed.
struct Work {
    ticket: Ticket,
    record: ConsumerRecord,
}

/// A handler that has ended.
struct Done<E> {
    ticket: Ticket,
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
        }
    }

    async fn run<H, F>(mut self, handler: Arc<H>) -> Ended<E>
    where
        H: Fn(ConsumerRecord) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let mut outcome = self.process(&handler).await;
        // Handlers that run are not interrupted, and no other starts.
        while let Some(ended) = self.running.join_next().await {
            outcome = match (outcome, self.ended(ended)) {
                // A panic is not hidden by an error.
                (Err(Failure::Error(_)), Err(Failure::Panic(panic))) => Err(Failure::Panic(panic)),
                (outcome, ended) => outcome.and(ended),
            };
        }
        Ended { outcome, _queue: self.queue }
    }

    /// Processes records until the queue ends or a handler fails.
    async fn process<H, F>(&mut self, handler: &Arc<H>) -> Result<(), Failure<E>>
    where
        H: Fn(ConsumerRecord) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        loop {
            let room = self.max_records.saturating_sub(self.progress.open());
            let may_start = !self.ready.is_empty();
            tokio::select! {
                biased;
                Some(ended) = self.running.join_next() => self.ended(ended)?,
                permit = self.permits.clone().acquire_owned(), if may_start => {
                    // A revoked partition starts no handler.
                    let Some(jump) = self.queue.standing() else { return Ok(()) };
                    self.follow(jump);
                    // The semaphore is never closed.
                    if let Ok(permit) = permit {
                        self.start(handler, permit);
                    }
                }
                more = self.queue.more(room, self.progress.open() == 0) => match more {
                    Some(Ok((jump, records))) => {
                        self.follow(jump);
                        self.sort(records);
                    }
                    Some(Err(error)) => return Err(Failure::Error(error.into())),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Drops the records whose handlers have not begun, if the position has jumped since they were read.
    fn follow(&mut self, jump: Jump) {
        if !self.progress.follow(jump) {
            return;
        }
        for work in self.ready.drain(..) {
            self.progress.end(work.ticket);
            if let Some(key) = work.record.key_bytes() {
                self.waiting.remove(key).into_iter().flatten().for_each(|behind| {
                    self.progress.end(behind.ticket);
                });
            }
        }
        // The first of these keys are running.
        for behind in self.waiting.values_mut() {
            behind.drain(..).for_each(|work| self.progress.end(work.ticket));
        }
    }

    /// Sorts records into those that may start and those that wait for their key.
    fn sort(&mut self, records: Records) {
        for record in records {
            let work = Work { ticket: self.progress.begin(&record), record };
            match work.record.key_bytes().and_then(|key| self.waiting.get_mut(key)) {
                Some(behind) => behind.push_back(work),
                None => {
                    if let Some(key) = work.record.key_bytes() {
                        self.waiting.insert(key.clone(), VecDeque::new());
                    }
                    self.ready.push_back(work);
                }
            }
        }
    }

    fn start<H, F>(&mut self, handler: &Arc<H>, permit: OwnedSemaphorePermit)
    where
        H: Fn(ConsumerRecord) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let Some(Work { ticket, record }) = self.ready.pop_front() else { return };
        let handler = handler.clone();
        let key = record.key_bytes().cloned();
        drop(self.running.spawn(async move {
            let outcome = handler(record).await;
            drop(permit);
            Done { ticket, key, outcome }
        }));
    }

    /// Records the end of a handler.
    fn ended(&mut self, ended: Result<Done<E>, JoinError>) -> Result<(), Failure<E>> {
        let done = ended.map_err(Failure::of)?;
        if let Some(key) = done.key {
            match self.waiting.get_mut(&key).and_then(VecDeque::pop_front) {
                Some(next) => self.ready.push_back(next),
                None => drop(self.waiting.remove(&key)),
            }
        }
        done.outcome.map_err(Failure::Error)?;
        self.progress.end(done.ticket);
        match self.progress.open() {
            0 => self.queue.finish(),
            _ => self.queue.finish_to(self.progress.jump, self.progress.first()),
        }
        Ok(())
    }
}

/// Records of a partition that are not processed.
#[derive(Debug, Default)]
struct Progress {
    /// The last jump of the position that the worker has seen.
    jump: Jump,
    /// Records after that jump, each with the position before it.
    open: BTreeMap<Ticket, Spot>,
    /// Running handlers of records from before that jump.
    obsolete: usize,
    /// Leader epoch of the last record; `None` before the first.
    epoch: Option<i32>,
    /// Number of records so far.
    count: u64,
}

/// A record in [`Progress`]: its offset, and a number, because a position that is moved back returns an offset again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket {
    offset: i64,
    number: u64,
}

impl Progress {
    /// Number of records that are not processed.
    fn open(&self) -> usize {
        self.open.len() + self.obsolete
    }

    /// Follows the position. Returns whether it has jumped.
    fn follow(&mut self, jump: Jump) -> bool {
        let has_jumped = self.jump != jump;
        if has_jumped {
            self.jump = jump;
            self.obsolete += self.open.len();
            self.open.clear();
            self.epoch = None;
        }
        has_jumped
    }

    /// Adds the partition's next record.
    fn begin(&mut self, record: &ConsumerRecord) -> Ticket {
        let epoch = self.epoch.replace(record.leader_epoch().unwrap_or(-1)).unwrap_or(-1);
        self.count += 1;
        let ticket = Ticket { offset: record.offset(), number: self.count };
        self.open.insert(ticket, Spot { offset: record.offset(), epoch });
        ticket
    }

    /// Removes a record that is processed, or is not going to be.
    fn end(&mut self, ticket: Ticket) {
        if self.open.remove(&ticket).is_none() {
            self.obsolete = self.obsolete.saturating_sub(1);
        }
    }

    /// The position before the first record after the last jump that is not processed.
    fn first(&self) -> Option<Spot> {
        self.open.values().next().copied()
    }
}
