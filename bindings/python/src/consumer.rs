//! The consumer of an event loop's programs.
//!
//! One task owns the client and serves commands in order. A command interrupts a poll, which is cancel safe. The task
//! polls only while a call of Python waits for records: an application that hangs loses its membership.
//!
//! # Invariants
//! - Records lie in [`Progress`] until the program takes them, so a cancelled poll loses none.
//! - The task does not poll while records lie there, so no rebalance comes between them and their partition's offsets. Only
//!   a batch of columns is filled by further polls: the listener drops the records of revoked partitions. With auto-commit
//!   it is not, because those polls would commit the records.
//! - `Progress::received` has offsets of assigned partitions only: the listener removes the others.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use curtail::{
    ConsumerConfig, ConsumerRecord, Error, Result, TopicPartition,
    config::IsolationLevel,
    consumer::{CloseOptions, ConsumerHandle, OffsetAndTimestamp, Rebalance, RebalanceListener},
    metrics::ConsumerMetrics,
    transaction::OffsetAndMetadata,
};
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::Instant,
};

use crate::{
    arrow::{Columns, RecordBatch, Wanted},
    closing::Closing,
    config::{self, Properties},
    error,
    group::{self, Offset},
    hold::Hold,
    metrics,
    port::{Call, Home, Pending, Port, none},
    progress::{Offsets, Progress, Span},
    rebalance::Stagehand,
    records::{Records, Rows, Turn},
    runtime::{Owned, Process},
    timing,
    token::{Function, Tokens},
    tree,
};

pub(crate) const TOO_LARGE: &str =
    "the binary layout has at most 2 GiB in a column: set a lower max_records";

/// A partition as Python passes it.
type At = (String, i32);
/// Work on the consumer, which its task does in order.
pub(crate) type Job = Box<
    dyn for<'a> FnOnce(&'a mut curtail::Consumer) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>
        + Send,
>;

/// The native part of `curtail_kafka.Consumer`.
#[pyclass(frozen, subclass, module = "curtail_kafka._native")]
pub(crate) struct Consumer(Owned<Inner>);

struct Inner {
    home: Home,
    commands: UnboundedSender<Command>,
    progress: Arc<Mutex<Progress>>,
    closing: Arc<Closing>,
    handle: ConsumerHandle,
    stagehand: Option<Arc<Stagehand>>,
    tokens: Option<Arc<Tokens>>,
    /// Why a transaction cannot include its offsets.
    unfit: Option<&'static str>,
}

pub(crate) enum Command {
    Poll(Poll),
    Job(Job),
    /// Ends the oldest poll, which then finds no records.
    Wake,
    Close {
        again: Option<Span>,
    },
}

pub(crate) struct Poll {
    pending: Pending,
    deadline: Instant,
    cancelled: oneshot::Receiver<()>,
    /// Records as columns, and how many at most.
    columns: Option<(Wanted, usize)>,
}

/// Forgets the offsets of partitions that the consumer no longer has.
struct Listener {
    progress: Arc<Mutex<Progress>>,
    /// The way to the program's listener.
    stagehand: Option<Arc<Stagehand>>,
}

impl Listener {
    fn tell(&self, kind: &'static str, rebalance: &mut Rebalance<'_>, all: &[TopicPartition]) {
        if let Some(stagehand) = &self.stagehand {
            stagehand.tell(kind, rebalance, all, &self.progress);
        }
    }

    fn forget(&self, partitions: &[TopicPartition]) {
        let mut progress = self.progress.lock();
        progress.revoke(|at| partitions.contains(at));
        progress.last = None;
    }
}

impl RebalanceListener for Listener {
    fn on_partitions_assigned(&mut self, rebalance: &mut Rebalance<'_>, all: &[TopicPartition]) {
        self.tell("on_assigned", rebalance, all);
    }

    fn on_partitions_revoked(&mut self, rebalance: &mut Rebalance<'_>, all: &[TopicPartition]) {
        self.tell("on_revoked", rebalance, all);
        self.forget(all);
    }

    fn on_partitions_lost(&mut self, rebalance: &mut Rebalance<'_>, all: &[TopicPartition]) {
        self.tell("on_lost", rebalance, all);
        self.forget(all);
    }
}

/// Seeks back to the first record that the program has not received, in the partitions selected.
fn rewind(
    consumer: &mut curtail::Consumer,
    progress: &Mutex<Progress>,
    is_of: impl Fn(&TopicPartition) -> bool,
) {
    let mut progress = progress.lock();
    let first = progress.first_unreceived();
    for (at, offset) in first.iter().filter(|(at, _)| is_of(at)) {
        // The partition may no longer be assigned.
        let _ = consumer.seek(at, *offset);
    }
    progress.forget(is_of);
}

/// Seeks to the first of the records in each partition.
fn seek_to_first(consumer: &mut curtail::Consumer, records: &[ConsumerRecord]) {
    let mut seen = BTreeSet::new();
    for record in records {
        if seen.insert(record.topic_partition()) {
            // The partition may no longer be assigned.
            let _ = consumer.seek(&record.topic_partition(), record.offset());
        }
    }
}

/// The task that owns a consumer.
struct Owner {
    consumer: curtail::Consumer,
    commands: UnboundedReceiver<Command>,
    progress: Arc<Mutex<Progress>>,
    closing: Arc<Closing>,
    auto_commits: bool,
    polls: VecDeque<Poll>,
}

enum Event {
    Command(Option<Command>),
    Cancelled,
    Polled(Result<Option<Rows>>),
}

impl Owner {
    async fn run(mut self) {
        loop {
            match self.next_event().await {
                Event::Command(None) => return,
                Event::Command(Some(Command::Poll(poll))) => self.polls.push_back(poll),
                Event::Command(Some(Command::Job(job))) => job(&mut self.consumer).await,
                Event::Command(Some(Command::Close { again })) => {
                    self.polls.clear();
                    rewind(&mut self.consumer, &self.progress, |_| true);
                    if let Some((records, range)) = again {
                        seek_to_first(&mut self.consumer, &records[range]);
                    }
                    self.consumer.close_with(CloseOptions::new()).await;
                    return self.closing.end(Ok(()));
                }
                Event::Command(Some(Command::Wake)) | Event::Cancelled => {
                    if let Some(poll) = self.polls.pop_front() {
                        poll.pending.settle(Ok(()), none);
                    }
                }
                Event::Polled(polled) => self.reply(polled).await,
            }
        }
    }

    async fn next_event(&mut self) -> Event {
        let Some(poll) = self.polls.front_mut() else {
            return Event::Command(self.commands.recv().await);
        };
        if let Some(error) = self.progress.lock().failed.clone() {
            return Event::Polled(Err(error));
        }
        // Earlier records, of a poll that was cancelled or that another task has waited for.
        if self.progress.lock().has_records() {
            return Event::Polled(Ok(None));
        }
        let limit = poll.deadline.saturating_duration_since(Instant::now());
        let cancelled = &mut poll.cancelled;
        tokio::select! {
            biased;
            command = self.commands.recv() => Event::Command(command),
            // Also without a signal, if the call was dropped: its task was destroyed.
            _ = cancelled => Event::Cancelled,
            polled = rows(&mut self.consumer, limit, poll.columns.is_some()) => Event::Polled(polled),
        }
    }

    /// Fetches more records that have arrived for a poll of columns, and builds the columns.
    async fn columns(&mut self, wanted: &Wanted, most: usize) -> Result<()> {
        // The listener drops the records of partitions that are revoked in one of these polls. Auto-commit would commit
        // records that the program has not received: it counts those of an earlier poll.
        while !self.auto_commits && self.progress.lock().waiting() < most {
            // A later poll returns an error again.
            let Ok(Some(rows)) = rows(&mut self.consumer, Duration::ZERO, true).await else {
                break;
            };
            self.progress.lock().push(rows);
        }
        let Some(span) = self.progress.lock().join(most) else { return Ok(()) };
        let (rows, range) = &span;
        let columns = Columns::build(&rows[range.clone()], rows.batches(), wanted);
        let columns = columns.map_err(|_| Error::IllegalState(TOO_LARGE))?;
        self.progress.lock().keep_columns(span, columns, wanted.layout);
        Ok(())
    }

    async fn reply(&mut self, polled: Result<Option<Rows>>) {
        let polled = polled.map(|rows| {
            if let Some(rows) = rows {
                self.progress.lock().push(rows);
            }
        });
        let poll = self.polls.pop_front();
        let columns = poll.as_ref().and_then(|poll| poll.columns.as_ref());
        let polled = match columns {
            Some((wanted, most)) if polled.is_ok() => self.columns(wanted, *most).await,
            _ => polled,
        };
        self.progress.lock().group = self.consumer.group_metadata();
        if let Some(poll) = poll {
            poll.pending.settle(polled, none);
        }
    }
}

/// Returns records that are buffered or arrive within the time: a poll's, or those of one batch.
pub(crate) async fn rows(
    consumer: &mut curtail::Consumer,
    limit: Duration,
    is_batch: bool,
) -> Result<Option<Rows>> {
    if !is_batch {
        let records = consumer.poll(limit).await?.into_vec();
        return Ok((!records.is_empty()).then(|| Rows::new(records, Vec::new())));
    }
    let Some(mut batch) = consumer.poll_batch(limit).await? else { return Ok(None) };
    let data = batch.data().clone();
    let mut records = Vec::new();
    loop {
        match batch.next_shared() {
            Some(Ok(record)) => records.push(record),
            None => break,
            Some(Err(error)) => {
                // The records before the damage are returned first, and the next poll finds the damage again.
                let from = match (records.last(), &error) {
                    (Some(last), _) => Some(last.offset().saturating_add(1)),
                    (None, Error::Corrupt { offset, .. }) => Some(*offset),
                    (None, _) => None,
                };
                let at =
                    TopicPartition { topic: batch.topic().clone(), partition: batch.partition() };
                if let Some(from) = from {
                    let _ = consumer.seek(&at, from);
                }
                if records.is_empty() {
                    return Err(error);
                }
                break;
            }
        }
    }
    Ok((!records.is_empty()).then(|| Rows::new(records, vec![data])))
}

/// Why a transaction cannot include the offsets of a consumer with these settings.
fn unfit(config: &ConsumerConfig) -> Option<&'static str> {
    if config.get_group_id().is_none() {
        return Some("a transaction commits offsets for a group: the consumer needs a group_id");
    }
    if config.get_enable_auto_commit() {
        return Some("the transaction commits the offsets: set enable_auto_commit=False");
    }
    (config.get_isolation_level() != IsolationLevel::ReadCommitted).then_some(
        "exactly once must not read aborted records: set isolation_level='read_committed'",
    )
}

/// The target of a seek.
#[derive(FromPyObject)]
enum To {
    #[pyo3(transparent)]
    Offset(i64),
    #[pyo3(transparent)]
    Name(String),
}

fn partition((topic, index): At) -> TopicPartition {
    TopicPartition::new(topic, index)
}

fn partitions(all: Vec<At>) -> Vec<TopicPartition> {
    all.into_iter().map(partition).collect()
}

fn pair(at: &TopicPartition) -> At {
    (at.topic.to_string(), at.partition)
}

/// Offsets by partition, as a dictionary of tuples.
fn offset_dict<T>(py: Python<'_>, offsets: BTreeMap<TopicPartition, T>) -> PyResult<Py<PyAny>>
where
    T: for<'py> IntoPyObject<'py>,
{
    let dict = pyo3::types::PyDict::new(py);
    for (at, offset) in offsets {
        dict.set_item(pair(&at), offset)?;
    }
    Ok(dict.into_any().unbind())
}

impl Consumer {
    /// Fails unless a transaction can include the consumer's offsets.
    pub(crate) fn check_fit(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.0.get(py)?;
        match inner.unfit {
            _ if inner.is_closed() => Err(error::raise(py, &Error::Closed)),
            Some(text) => Err(error::config(py, text)),
            None => Ok(()),
        }
    }

    /// Keeps the consumer from returning records until the transaction has ended.
    pub(crate) fn hold(&self, py: Python<'_>) -> PyResult<Hold> {
        let inner = self.0.get(py)?;
        inner.enter(py)?;
        Ok(Hold::new(&inner.commands, &inner.progress, &inner.closing))
    }
}

impl Inner {
    fn is_closed(&self) -> bool {
        self.closing.is_requested()
    }

    /// Queues work on the consumer for its task. `begin` makes the future, which may borrow the consumer.
    fn job<T: Send + 'static>(
        &self,
        py: Python<'_>,
        begin: impl for<'a> FnOnce(
            &'a mut curtail::Consumer,
        ) -> Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>
        + Send
        + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Call> {
        self.check(py)?;
        let (waiting, call) = Port::call(py, self.home)?;
        let job: Job = Box::new(move |consumer| {
            let work = begin(consumer);
            Box::pin(waiting.run(work, convert))
        });
        self.send(py, Command::Job(job))?;
        Ok(call)
    }

    /// Queues work that does not wait.
    fn at_once<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut curtail::Consumer) -> Result<T> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Call> {
        self.job(py, move |consumer| Box::pin(std::future::ready(work(consumer))), convert)
    }

    fn poll(
        &self,
        py: Python<'_>,
        seconds: f64,
        columns: Option<(Wanted, usize)>,
    ) -> PyResult<Call> {
        self.check(py)?;
        let deadline = Instant::now().checked_add(timing::limit(seconds)?);
        let deadline = deadline.ok_or_else(|| PyValueError::new_err("timeout is too long"))?;
        let port = Port::current(py, self.home)?;
        let (pending, future) = port.get().pending(py)?;
        let (cancel, cancelled) = oneshot::channel();
        self.send(py, Command::Poll(Poll { pending, deadline, cancelled, columns }))?;
        Ok(Call::with_signal(future.unbind(), cancel))
    }

    fn metrics(&self, py: Python<'_>) -> PyResult<ConsumerMetrics> {
        self.handle.metrics().ok_or_else(|| error::raise(py, &Error::Closed))
    }

    /// Fails in a method of the consumer's listener.
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(tokens) = &self.tokens {
            tokens.enter(py, self.home)?;
        }
        let Some(stagehand) = &self.stagehand else { return Ok(()) };
        stagehand.enter(py, Port::current(py, self.home)?.get().core(py)?)
    }

    /// Fails if the consumer serves no calls.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_closed() {
            true => Err(error::raise(py, &Error::Closed)),
            false => self.enter(py),
        }
    }

    fn send(&self, py: Python<'_>, command: Command) -> PyResult<()> {
        self.commands.send(command).map_err(|_| error::raise(py, &Error::Closed))
    }
}

#[pymethods]
impl Consumer {
    #[new]
    #[pyo3(signature = (properties, has_listener=false, is_threaded=false, token=None))]
    fn new(
        py: Python<'_>,
        properties: Properties,
        has_listener: bool,
        is_threaded: bool,
        token: Option<Function>,
    ) -> PyResult<Self> {
        let home = Home::new(is_threaded);
        let (config, tokens) = config::consumer(py, properties, token)?;
        let unfit = unfit(&config);
        let auto_commits = config.get_enable_auto_commit() && config.get_group_id().is_some();
        let process = Process::get(py)?;
        let _entered = process.enter();
        let made = curtail::Consumer::with_env(config, &process.env());
        let mut consumer = made.map_err(|error| error::raise(py, &error))?;
        let progress = Arc::<Mutex<Progress>>::default();
        let stagehand = has_listener.then(|| Arc::new(Stagehand::new()));
        let listener = Listener { progress: progress.clone(), stagehand: stagehand.clone() };
        consumer.set_rebalance_listener(listener);
        let handle = consumer.handle();
        let (commands, received) = unbounded_channel();
        let closing = Arc::<Closing>::default();
        let owner = Owner {
            consumer,
            commands: received,
            progress: progress.clone(),
            closing: closing.clone(),
            auto_commits,
            polls: VecDeque::new(),
        };
        process.spawn(owner.run());
        Ok(Self(Owned::new(Inner {
            home,
            commands,
            progress,
            closing,
            handle,
            stagehand,
            tokens,
            unfit,
        })))
    }

    /// The key of a consumer with a listener in `curtail_kafka._rebalance`.
    #[getter]
    fn _token(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.get(py)?.stagehand.as_ref().map_or(0, |stagehand| stagehand.token))
    }

    /// Ends a poll that waits.
    fn _wake(&self, py: Python<'_>) -> PyResult<()> {
        // A closed consumer has no polls.
        let _ = self.0.get(py)?.commands.send(Command::Wake);
        Ok(())
    }

    /// Whether polled records wait for the program.
    #[getter]
    fn _has_records(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.get(py)?.progress.lock().has_records())
    }

    /// Whether the consumer belongs to this process and was not closed.
    #[getter]
    fn _is_open(&self) -> bool {
        self.0.local().is_some_and(|inner| !inner.is_closed())
    }

    /// Returns the polled records that wait for the program.
    fn _take(&self, py: Python<'_>) -> PyResult<Records> {
        let inner = self.0.get(py)?;
        let taken = inner.progress.lock().take();
        Ok(taken.unwrap_or_else(Records::empty))
    }

    /// Returns the records of [`Self::_start_poll_batch`], unless other calls have changed them.
    fn _take_batch(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        Ok(self.0.get(py)?.progress.lock().take_batch())
    }

    /// Iterates over waiting records until they end, or the event loop must run.
    fn _turn(&self, py: Python<'_>) -> PyResult<Turn> {
        Ok(Turn::new(self.0.get(py)?.progress.clone()))
    }

    /// Waits until records can be taken, or for the time.
    fn _start_poll(&self, py: Python<'_>, seconds: f64) -> PyResult<Call> {
        self.0.get(py)?.poll(py, seconds, None)
    }

    /// As [`Self::_start_poll`], and builds columns of the records.
    fn _start_poll_batch(
        &self,
        py: Python<'_>,
        seconds: f64,
        max_records: usize,
        columns: Option<Vec<String>>,
        layout: &str,
    ) -> PyResult<Call> {
        if max_records == 0 {
            return Err(PyValueError::new_err("max_records must be at least 1"));
        }
        let wanted = Wanted::new(columns, layout).map_err(|text| error::config(py, &text))?;
        self.0.get(py)?.poll(py, seconds, Some((wanted, max_records)))
    }

    fn _start_connect(&self, py: Python<'_>) -> PyResult<Call> {
        self.0.get(py)?.job(py, |consumer| Box::pin(consumer.connect()), none)
    }

    /// Assigns every partition of the topics.
    fn _start_assign_all(&self, py: Python<'_>, topics: Vec<String>) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        inner.job(
            py,
            move |consumer| {
                Box::pin(async move {
                    let mut all = Vec::new();
                    for topic in &topics {
                        let known = consumer.partitions_for(topic).await?;
                        all.extend(
                            known
                                .iter()
                                .map(|one| TopicPartition::new(topic.as_str(), one.partition)),
                        );
                    }
                    consumer.assign(all);
                    Ok(())
                })
            },
            none,
        )
    }

    fn _start_assign(&self, py: Python<'_>, all: Vec<At>) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let progress = inner.progress.clone();
        let all = partitions(all);
        let assign = move |consumer: &mut curtail::Consumer| {
            rewind(consumer, &progress, |_| true);
            let mut progress = progress.lock();
            progress.revoke(|at| !all.contains(at));
            progress.is_subscribed = false;
            drop(progress);
            consumer.assign(all);
            Ok(())
        };
        inner.at_once(py, assign, none)
    }

    fn _start_subscribe(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        pattern: Option<String>,
    ) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let progress = inner.progress.clone();
        let subscribe = move |consumer: &mut curtail::Consumer| {
            rewind(consumer, &progress, |_| true);
            match pattern {
                Some(pattern) => consumer.subscribe_pattern(&pattern)?,
                None => consumer.subscribe(&topics)?,
            }
            progress.lock().is_subscribed = true;
            Ok(())
        };
        inner.at_once(py, subscribe, none)
    }

    fn _start_unsubscribe(&self, py: Python<'_>) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let progress = inner.progress.clone();
        let unsubscribe = move |consumer: &mut curtail::Consumer| {
            rewind(consumer, &progress, |_| true);
            consumer.unsubscribe();
            let mut progress = progress.lock();
            progress.revoke(|_| true);
            progress.is_subscribed = false;
            Ok(())
        };
        inner.at_once(py, unsubscribe, none)
    }

    fn _start_seek(&self, py: Python<'_>, at: At, to: To) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let progress = inner.progress.clone();
        let at = partition(at);
        inner.job(py, move |consumer| {
            Box::pin(async move {
                let mut offset = None;
                match to {
                    To::Offset(to) => {
                        consumer.seek(&at, to)?;
                        offset = Some(OffsetAndMetadata::new(to));
                    }
                    To::Name(name) if name == "beginning" => consumer.seek_to_beginning([&at])?,
                    To::Name(name) if name == "end" => consumer.seek_to_end([&at])?,
                    To::Name(name) if name == "committed" => {
                        let committed = consumer.committed(std::slice::from_ref(&at)).await?;
                        let to = committed.into_values().flatten().next();
                        let to = to.ok_or(Error::IllegalState("the group has no committed offset"))?;
                        consumer.seek_to(&at, &to)?;
                        offset = Some(to);
                    }
                    To::Name(_) => return Err(Error::IllegalState(
                        "a seek goes to an offset, a datetime, 'beginning', 'end' or 'committed'",
                    )),
                }
                sought(&progress, &at, offset);
                Ok(())
            })
        }, none)
    }

    fn _start_seek_to_timestamp(&self, py: Python<'_>, at: At, timestamp: i64) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let progress = inner.progress.clone();
        let at = partition(at);
        let seek = move |consumer: &mut curtail::Consumer| {
            consumer.seek_to_timestamp(&at, timestamp)?;
            sought(&progress, &at, None);
            Ok(())
        };
        inner.at_once(py, seek, none)
    }

    fn _start_pause(&self, py: Python<'_>, all: Vec<At>) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let progress = inner.progress.clone();
        let all = partitions(all);
        let pause = move |consumer: &mut curtail::Consumer| {
            rewind(consumer, &progress, |at| all.contains(at));
            consumer.pause(&all);
            Ok(())
        };
        inner.at_once(py, pause, none)
    }

    fn _start_resume(&self, py: Python<'_>, all: Vec<At>) -> PyResult<Call> {
        let all = partitions(all);
        let resume = move |consumer: &mut curtail::Consumer| {
            consumer.resume(&all);
            Ok(())
        };
        self.0.get(py)?.at_once(py, resume, none)
    }

    /// Commits these offsets, or those after the records that the program has received.
    fn _start_commit(&self, py: Python<'_>, offsets: Option<Vec<Offset>>) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        inner.check(py)?;
        let is_progress = offsets.is_none();
        let offsets: Offsets = match offsets {
            Some(offsets) => offsets.into_iter().map(group::offset).collect(),
            None => {
                let mut progress = inner.progress.lock();
                progress.last = None;
                progress.offsets()
            }
        };
        let (pending, future) = Port::current(py, inner.home)?.get().pending(py)?;
        let progress = inner.progress.clone();
        let job: Job = Box::new(move |consumer| {
            let mut offsets = offsets;
            if is_progress {
                let assigned = consumer.assignment();
                offsets.retain(|at, _| assigned.contains(at));
            }
            match consumer.commit_offsets_nowait(offsets.clone()) {
                // A poll need not wait for the coordinator.
                Ok(committed) => drop(tokio::spawn(async move {
                    let committed = committed.await;
                    if committed.is_ok() {
                        progress.lock().commit_before(&offsets);
                    }
                    pending.settle(committed, none);
                })),
                Err(error) => pending.settle(Err(error), none),
            }
            Box::pin(std::future::ready(()))
        });
        inner.send(py, Command::Job(job))?;
        Ok(Call::without_cancel(future.unbind()))
    }

    fn _start_position(&self, py: Python<'_>, at: At) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let progress = inner.progress.clone();
        let at = partition(at);
        inner.job(
            py,
            move |consumer| {
                Box::pin(async move {
                    let unreceived = progress.lock().first_unreceived().get(&at).copied();
                    match unreceived {
                        Some(offset) => Ok(offset),
                        None => consumer.position(&at).await,
                    }
                })
            },
            |py, offset: i64| Ok(offset.into_pyobject(py)?.into_any().unbind()),
        )
    }

    fn _start_committed(&self, py: Python<'_>, all: Vec<At>) -> PyResult<Call> {
        let all = partitions(all);
        self.0.get(py)?.job(
            py,
            move |consumer| {
                Box::pin(async move {
                    let committed = consumer.committed(&all).await?;
                    let offset = |(at, offset): (_, Option<OffsetAndMetadata>)| {
                        (at, offset.map(|offset| offset.offset))
                    };
                    Ok(committed.into_iter().map(offset).collect())
                })
            },
            offset_dict::<Option<i64>>,
        )
    }

    fn _start_offsets(&self, py: Python<'_>, all: Vec<At>, is_end: bool) -> PyResult<Call> {
        let all = partitions(all);
        self.0.get(py)?.job(
            py,
            move |consumer| {
                Box::pin(async move {
                    match is_end {
                        true => consumer.end_offsets(&all).await,
                        false => consumer.beginning_offsets(&all).await,
                    }
                })
            },
            offset_dict::<i64>,
        )
    }

    /// For each partition and time: the first record from then on, as its offset and timestamp.
    fn _start_offsets_for_times(&self, py: Python<'_>, times: Vec<(At, i64)>) -> PyResult<Call> {
        let times: Vec<_> = times.into_iter().map(|(at, time)| (partition(at), time)).collect();
        self.0.get(py)?.job(
            py,
            move |consumer| {
                Box::pin(async move {
                    let found = consumer.offsets_for_times(times).await?;
                    let pair = |found: OffsetAndTimestamp| (found.offset, found.timestamp);
                    Ok(found.into_iter().map(|(at, found)| (at, found.map(pair))).collect())
                })
            },
            offset_dict::<Option<(i64, i64)>>,
        )
    }

    /// Records after those that the program has received, up to the end at the last fetch.
    fn _start_lag(&self, py: Python<'_>, at: At) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let (handle, progress) = (inner.handle.clone(), inner.progress.clone());
        let at = partition(at);
        let lag = move |consumer: &mut curtail::Consumer| {
            if !consumer.assignment().contains(&at) {
                return Err(Error::IllegalState("the partition is not assigned"));
            }
            let Some(lag) = consumer.current_lag(&at) else { return Ok(None) };
            let unreceived = progress.lock().first_unreceived().get(&at).copied();
            let polled = match (unreceived, handle.position(&at)) {
                (Some(first), Some(next)) => next.saturating_sub(first).max(0),
                _ => 0,
            };
            Ok(Some(lag.saturating_add(polled)))
        };
        inner
            .at_once(py, lag, |py, lag: Option<i64>| Ok(lag.into_pyobject(py)?.into_any().unbind()))
    }

    fn _start_partitions_for(&self, py: Python<'_>, topic: String) -> PyResult<Call> {
        self.0.get(py)?.job(
            py,
            move |consumer| {
                Box::pin(async move { Ok(consumer.partitions_for(&topic).await?.len()) })
            },
            |py, count: usize| Ok(count.into_pyobject(py)?.into_any().unbind()),
        )
    }

    fn _start_client_instance_id(&self, py: Python<'_>, timeout: f64) -> PyResult<Call> {
        let limit = timing::limit(timeout)?;
        self.0.get(py)?.job(
            py,
            move |consumer| Box::pin(consumer.client_instance_id(limit)),
            tree::uuid,
        )
    }

    /// Rewinds over records that the program has not received, and over the last ones if `failed`, and closes.
    fn _start_close(&self, py: Python<'_>, failed: bool) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        inner.enter(py)?;
        let (pending, future) = Port::current(py, inner.home)?.get().pending(py)?;
        if inner.closing.request(Some(pending)) {
            let again = inner.progress.lock().last.take().filter(|_| failed);
            // The task lasts until this command.
            let _ = inner.commands.send(Command::Close { again });
        }
        Ok(Call::without_cancel(future.unbind()))
    }

    fn _metrics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        metrics::object(py, metrics::consumer(&self.0.get(py)?.metrics(py)?))
    }

    /// The metrics in Prometheus' text format.
    fn prometheus(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.get(py)?.metrics(py)?.prometheus_text())
    }

    fn _group(&self, py: Python<'_>) -> PyResult<Option<group::Fields>> {
        Ok(self.0.get(py)?.handle.group_metadata().map(group::fields))
    }

    fn _assigned(&self, py: Python<'_>) -> PyResult<Vec<At>> {
        Ok(self.0.get(py)?.handle.assignment().iter().map(pair).collect())
    }

    fn _paused_now(&self, py: Python<'_>) -> PyResult<Vec<At>> {
        Ok(self.0.get(py)?.handle.paused().iter().map(pair).collect())
    }
}

/// Records the outcome of a seek: records polled before it are not returned.
pub(crate) fn sought(
    progress: &Mutex<Progress>,
    at: &TopicPartition,
    offset: Option<OffsetAndMetadata>,
) {
    let mut progress = progress.lock();
    progress.forget(|other| other == at);
    progress.last = None;
    // An offset that is not known yet cannot be committed: that after the received records stays.
    if let Some(offset) = offset {
        progress.received.insert(at.clone(), offset);
    }
}
