//! The consumer of an event loop's programs.
//!
//! One task owns the client and serves commands in order. A command interrupts a poll, which is cancel safe. The task
//! polls only while a call of Python waits for records: an application that hangs loses its membership.
//!
//! # Invariants
//! - Records lie in [`Progress`] until the program takes them, so a cancelled poll loses none.
//! - The task does not poll while records lie there, so no rebalance comes between them and their partition's offsets.
//! - `Progress::received` has offsets of assigned partitions only: the listener removes the others.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use curtail::{
    ConsumerConfig, ConsumerRecord, Error, Result, TopicPartition,
    config::IsolationLevel,
    consumer::{CloseOptions, ConsumerHandle, Rebalance, RebalanceListener},
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
    closing::Closing,
    config::{self, Properties},
    error,
    group::{self, Offset},
    hold::Hold,
    port::{Call, Pending, Port, none},
    progress::{Offsets, Progress, Span},
    records::{Records, Turn},
    runtime::{Owned, Process},
};

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
    commands: UnboundedSender<Command>,
    progress: Arc<Mutex<Progress>>,
    closing: Arc<Closing>,
    handle: ConsumerHandle,
    /// Why a transaction cannot include its offsets.
    unfit: Option<&'static str>,
}

pub(crate) enum Command {
    Poll(Poll),
    Job(Job),
    Close { again: Option<Span> },
}

pub(crate) struct Poll {
    pending: Pending,
    deadline: Instant,
    cancelled: oneshot::Receiver<()>,
}

/// Forgets the offsets of partitions that the consumer no longer has.
struct Listener(Arc<Mutex<Progress>>);

impl RebalanceListener for Listener {
    fn on_partitions_revoked(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        let mut progress = self.0.lock();
        progress.revoke(|at| partitions.contains(at));
        progress.last = None;
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
    polls: VecDeque<Poll>,
}

enum Event {
    Command(Option<Command>),
    Cancelled,
    Polled(Result<Vec<ConsumerRecord>>),
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
                // Its future is resolved already.
                Event::Cancelled => drop(self.polls.pop_front()),
                Event::Polled(polled) => self.reply(polled),
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
            return Event::Polled(Ok(Vec::new()));
        }
        let limit = poll.deadline.saturating_duration_since(Instant::now());
        let cancelled = &mut poll.cancelled;
        tokio::select! {
            biased;
            command = self.commands.recv() => Event::Command(command),
            // Dropped without a signal: the call can no longer be cancelled.
            () = async { if cancelled.await.is_err() { pending().await } } => Event::Cancelled,
            polled = self.consumer.poll(limit) => Event::Polled(polled.map(curtail::consumer::Records::into_vec)),
        }
    }

    fn reply(&mut self, polled: Result<Vec<ConsumerRecord>>) {
        self.progress.lock().group = self.consumer.group_metadata();
        let polled = polled.map(|records| {
            if !records.is_empty() {
                self.progress.lock().push(records);
            }
        });
        if let Some(poll) = self.polls.pop_front() {
            poll.pending.settle(polled, none);
        }
    }
}

/// Why a transaction cannot include the offsets of a consumer with these settings.
fn unfit(config: &ConsumerConfig) -> Option<&'static str> {
    if config.group_id.is_none() {
        return Some("a transaction commits offsets for a group: the consumer needs a group_id");
    }
    if config.enable_auto_commit {
        return Some("the transaction commits the offsets: set enable_auto_commit=False");
    }
    (config.isolation_level != IsolationLevel::ReadCommitted).then_some(
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
        let (waiting, call) = Port::call(py)?;
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

    fn send(&self, py: Python<'_>, command: Command) -> PyResult<()> {
        let closed = |_| error::raise(py, &Error::Closed);
        match self.is_closed() {
            true => Err(closed(())),
            false => self.commands.send(command).map_err(|_| closed(())),
        }
    }
}

#[pymethods]
impl Consumer {
    #[new]
    fn new(py: Python<'_>, properties: Properties) -> PyResult<Self> {
        let config = config::consumer(py, properties)?;
        let unfit = unfit(&config);
        let process = Process::get(py)?;
        let _entered = process.enter();
        let made = curtail::Consumer::with_env(config, &process.env());
        let mut consumer = made.map_err(|error| error::raise(py, &error))?;
        let progress = Arc::<Mutex<Progress>>::default();
        consumer.set_rebalance_listener(Listener(progress.clone()));
        let handle = consumer.handle();
        let (commands, received) = unbounded_channel();
        let closing = Arc::<Closing>::default();
        let owner = Owner {
            consumer,
            commands: received,
            progress: progress.clone(),
            closing: closing.clone(),
            polls: VecDeque::new(),
        };
        process.spawn(owner.run());
        Ok(Self(Owned::new(Inner { commands, progress, closing, handle, unfit })))
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

    /// Iterates over waiting records until they end, or the event loop must run.
    fn _turn(&self, py: Python<'_>) -> PyResult<Turn> {
        Ok(Turn::new(self.0.get(py)?.progress.clone()))
    }

    /// Waits until records can be taken, or for the time.
    fn _start_poll(&self, py: Python<'_>, seconds: f64) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let limit = match Duration::try_from_secs_f64(seconds) {
            Ok(limit) => limit,
            Err(_) if seconds.is_infinite() && seconds > 0.0 => {
                Duration::from_secs(u32::MAX.into())
            }
            Err(_) => return Err(PyValueError::new_err("timeout must be seconds, from 0 on")),
        };
        let deadline = Instant::now().checked_add(limit);
        let deadline = deadline.ok_or_else(|| PyValueError::new_err("timeout is too long"))?;
        let port = Port::current(py)?;
        let (pending, future) = port.get().pending(py)?;
        let (cancel, cancelled) = oneshot::channel();
        inner.send(py, Command::Poll(Poll { pending, deadline, cancelled }))?;
        Ok(Call::with_signal(future.unbind(), cancel))
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
        let is_progress = offsets.is_none();
        let offsets: Offsets = match offsets {
            Some(offsets) => offsets.into_iter().map(group::offset).collect(),
            None => {
                let mut progress = inner.progress.lock();
                progress.last = None;
                progress.offsets()
            }
        };
        let (pending, future) = Port::current(py)?.get().pending(py)?;
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

    fn _start_partitions_for(&self, py: Python<'_>, topic: String) -> PyResult<Call> {
        self.0.get(py)?.job(
            py,
            move |consumer| {
                Box::pin(async move { Ok(consumer.partitions_for(&topic).await?.len()) })
            },
            |py, count: usize| Ok(count.into_pyobject(py)?.into_any().unbind()),
        )
    }

    /// Rewinds over records that the program has not received, and over the last ones if `failed`, and closes.
    fn _start_close(&self, py: Python<'_>, failed: bool) -> PyResult<Call> {
        let inner = self.0.get(py)?;
        let (pending, future) = Port::current(py)?.get().pending(py)?;
        if inner.closing.request(Some(pending)) {
            let again = inner.progress.lock().last.take().filter(|_| failed);
            // The task lasts until this command.
            let _ = inner.commands.send(Command::Close { again });
        }
        Ok(Call::without_cancel(future.unbind()))
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
fn sought(progress: &Mutex<Progress>, at: &TopicPartition, offset: Option<OffsetAndMetadata>) {
    let mut progress = progress.lock();
    progress.forget(|other| other == at);
    progress.last = None;
    // An offset that is not known yet cannot be committed: that after the received records stays.
    if let Some(offset) = offset {
        progress.received.insert(at.clone(), offset);
    }
}
