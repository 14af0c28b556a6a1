//! The port of an event loop: brings results from the runtime to `asyncio` futures.
//!
//! A waker of the runtime writes an eventfd, which `loop.add_reader` watches. The loop then calls
//! [`Port::drain`], which resolves futures by their tags. The runtime sees only [`Core`], which has
//! no Python objects.
//!
//! # Invariants
//! - One wake-up per drain: while `armed` is set, a wake-up writes nothing, because a drain is due or running.
//! - A turn ends after [`TURN_RESULTS`] results or [`TURN_TIME`], so that neither a burst nor a large result holds the
//!   event loop.
//! - A result that was queued before a call's reply is resolved before it: `flush` returns after its records.
//!
//! # Locks
//! `Port::state` is never held while Python code runs: a callback may send.

use std::{
    collections::VecDeque,
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use curtail::{
    Error,
    producer::{CompletionRun, CompletionSink, Completions},
};
use futures_core::Stream;
use parking_lot::Mutex;
use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::PyRuntimeError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyModule, PyString},
};
use tokio::{sync::oneshot, task::AbortHandle};

use crate::{
    error,
    runtime::{Owned, Process},
    signal::Signal,
    stage::{Outlet, Refusals},
    timing::Timing,
    tree::{Build, Tree},
};

/// Results that a turn resolves at most.
const TURN_RESULTS: usize = 256;
/// Time after which a turn ends.
const TURN_TIME: Duration = Duration::from_micros(300);
/// Results between looks at the clock.
const LOOK_EVERY: usize = 64;

type Convert = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The tag of a reply that resolves no future.
pub(crate) const NO_FUTURE: u64 = u64::MAX;

/// Converts a result of the runtime on the event loop's thread.
pub(crate) enum Reply {
    Short(Convert),
    /// May take more than a turn.
    Long(Build),
}

/// Thread that resolves the futures of a client's calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// The running event loop of the caller.
    Loop,
    /// A thread of the package. The futures are those of `concurrent.futures`.
    Threads,
}

impl Home {
    pub(crate) fn new(is_threaded: bool) -> Self {
        if is_threaded { Self::Threads } else { Self::Loop }
    }
}

/// The port of threads. Locked as `runtime::CURRENT`.
static THREADS: Mutex<Option<Py<Port>>> = Mutex::new(None);

/// The ports of the event loops that have used a client. Locked as `runtime::CURRENT`.
static PORTS: Mutex<Vec<(Py<PyAny>, Py<Port>)>> = Mutex::new(Vec::new());

/// The runtime's side of a port.
pub(crate) struct Core {
    signal: Signal,
    /// Whether a drain is due or running.
    armed: AtomicBool,
    /// `None` once the port was dropped.
    replies: Mutex<Option<VecDeque<(u64, Reply)>>>,
}

impl Core {
    /// Resolves the future with this tag. Drops the reply if the port was dropped: a thread may wait for its end.
    pub(crate) fn reply(self: &Arc<Self>, tag: u64, reply: Reply) {
        let refused = match &mut *self.replies.lock() {
            Some(replies) => {
                replies.push_back((tag, reply));
                None
            }
            None => Some(reply),
        };
        // A refused reply is dropped outside the lock: its drop may queue another reply.
        if refused.is_none() {
            self.wake_by_ref();
        }
    }

    /// Whether nothing takes replies: the event loop has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.replies.lock().is_none()
    }

    /// Fails the future with this tag.
    pub(crate) fn fail(self: &Arc<Self>, tag: u64, error: Error) {
        self.reply(tag, Reply::Short(Box::new(move |py| Err(error::raise(py, &error)))));
    }
}

impl Wake for Core {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.signal.raise();
        }
    }
}

/// Futures by tag.
#[derive(Default)]
struct Slab {
    entries: Vec<Option<Entry>>,
    free: Vec<u64>,
}

struct Entry {
    future: Py<PyAny>,
    /// Timestamp of the record; unused for other calls.
    timestamp: i64,
    /// Whether `asyncio` must not report an exception that the program does not retrieve.
    is_quiet: bool,
}

impl Entry {
    fn resolve(&self, py: Python<'_>, result: PyResult<Py<PyAny>>) {
        let future = self.future.bind(py);
        let resolved = match result {
            Ok(value) => future.call_method1(intern!(py, "set_result"), (value,)),
            Err(error) => self.fail(py, error),
        };
        let Err(error) = resolved else { return };
        // A cancelled future has no use for a result.
        let is_done = future.call_method0(intern!(py, "done")).and_then(|done| done.is_truthy());
        if !matches!(is_done, Ok(true)) {
            error.write_unraisable(py, Some(future));
        }
    }

    fn fail<'py>(&self, py: Python<'py>, error: PyErr) -> PyResult<Bound<'py, PyAny>> {
        let future = self.future.bind(py);
        let failed = future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?;
        if self.is_quiet {
            // Counts as retrieved.
            future.call_method0(intern!(py, "exception"))?;
        }
        Ok(failed)
    }
}

impl Slab {
    fn insert(&mut self, entry: Entry) -> u64 {
        if let Some(tag) = self.free.pop()
            && let Some(place) = self.entries.get_mut(tag as usize)
        {
            *place = Some(entry);
            return tag;
        }
        self.entries.push(Some(entry));
        self.entries.len() as u64 - 1
    }

    fn remove(&mut self, tag: u64) -> Option<Entry> {
        let entry = self.entries.get_mut(tag as usize)?.take();
        if entry.is_some() {
            self.free.push(tag);
        }
        entry
    }

    fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[derive(Default)]
struct State {
    slab: Slab,
    /// Outcomes of records, from the first send on.
    outcomes: Option<(Arc<Outlet>, Completions)>,
    /// A run of which this many records are resolved.
    run: Option<(CompletionRun, usize)>,
    replies: VecDeque<(u64, Reply)>,
}

/// The results of an event loop's calls.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct Port {
    core: Owned<Arc<Core>>,
    waker: Owned<Waker>,
    state: Owned<Mutex<State>>,
    create_future: Py<PyAny>,
    /// Whether the thread that serves the port must end.
    has_ended: AtomicBool,
}

/// A call's future, and the way to cancel the call.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct Call {
    #[pyo3(get)]
    future: Py<PyAny>,
    stop: Owned<Mutex<Stop>>,
}

/// How a call is cancelled.
enum Stop {
    Task(AbortHandle),
    Signal(oneshot::Sender<()>),
    /// The call continues.
    Never,
}

/// A call of the program: the obligation to resolve its future, and the signal that it stops waiting.
pub(crate) struct Waiting {
    pub(crate) pending: Pending,
    pub(crate) cancelled: oneshot::Receiver<()>,
}

impl Waiting {
    /// Runs the work, until the program stops waiting.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl Future<Output = curtail::Result<T>>,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) {
        let Self { pending, cancelled } = self;
        tokio::select! {
            biased;
            () = signalled(cancelled) => {}
            result = work => pending.settle(result, convert),
        }
    }
}

/// Waits for a call's cancellation. A call that is dropped can no longer be cancelled.
pub(crate) async fn signalled(cancelled: oneshot::Receiver<()>) {
    if cancelled.await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Call {
    /// A call that the receiver of the signal ends.
    pub(crate) fn with_signal(future: Py<PyAny>, signal: oneshot::Sender<()>) -> Self {
        Self { future, stop: Owned::new(Mutex::new(Stop::Signal(signal))) }
    }

    /// A call that continues when its future is cancelled.
    pub(crate) fn without_cancel(future: Py<PyAny>) -> Self {
        Self { future, stop: Owned::new(Mutex::new(Stop::Never)) }
    }
}

#[pymethods]
impl Call {
    /// The coroutine that waits has the call, and the future's callbacks have its task: a cycle.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.future)
    }

    /// Ends the call, if it can be ended.
    fn cancel(&self) {
        let Some(stop) = self.stop.local() else { return };
        match mem::replace(&mut *stop.lock(), Stop::Never) {
            Stop::Task(task) => task.abort(),
            Stop::Signal(signal) => drop(signal.send(())),
            Stop::Never => {}
        }
    }
}

/// The obligation to resolve a future: a task that ends without a result fails it.
pub(crate) struct Pending {
    core: Arc<Core>,
    tag: u64,
    replied: bool,
}

impl Pending {
    pub(crate) fn reply(mut self, reply: Reply) {
        self.replied = true;
        self.core.reply(self.tag, reply);
    }

    /// Resolves the future with the converted value, or fails it.
    pub(crate) fn settle<T: Send + 'static>(
        self,
        result: curtail::Result<T>,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) {
        self.reply(Reply::Short(Box::new(move |py| match result {
            Ok(value) => convert(py, value),
            Err(error) => Err(error::raise(py, &error)),
        })));
    }

    /// Resolves the future with a value of any size, or fails it.
    pub(crate) fn settle_long(self, result: curtail::Result<Tree>) {
        match result {
            Ok(tree) => self.reply(Reply::Long(Build::new(tree))),
            Err(error) => self.settle::<()>(Err(error), none),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.replied {
            self.core.fail(self.tag, Error::Closed);
        }
    }
}

pub(crate) fn none(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

/// Forgets the ports that a fork has inherited.
pub(crate) fn abandon_all() {
    mem::forget(mem::take(&mut *PORTS.lock()));
    mem::forget(mem::take(&mut *THREADS.lock()));
}

/// Returns the running event loop of asyncio.
#[pyfunction]
pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GET.import(py, "asyncio", "get_running_loop")?.call0().map_err(|_| {
        // Another library, such as trio, may run.
        let text = "no running event loop of asyncio; curtail_kafka.sync has clients for threads";
        error::named(py, "IllegalStateError", text)
    })
}

impl Port {
    /// Returns the port of the running event loop, or that of threads.
    pub(crate) fn current(py: Python<'_>, home: Home) -> PyResult<Py<Self>> {
        match home {
            Home::Loop => Self::of_loop(py),
            Home::Threads => Self::of_threads(py),
        }
    }

    fn of_loop(py: Python<'_>) -> PyResult<Py<Self>> {
        let running = running_loop(py)?;
        let known =
            PORTS.lock().iter().find(|(at, _)| at.is(&running)).map(|(_, port)| port.clone_ref(py));
        match known {
            Some(port) => Ok(port),
            None => Self::open(&running),
        }
    }

    #[cold]
    fn open(running: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        let py = running.py();
        let port = Py::new(py, Self::new(running.getattr("create_future")?.unbind())?)?;
        let descriptor = port.get().core(py)?.signal.descriptor();
        let reader = Reader(Owned::new(port.clone_ref(py)));
        let watched = running.call_method1("add_reader", (descriptor, reader));
        watched.map_err(|error| {
            let text =
                format!("the event loop cannot watch file descriptors (add_reader): {error}");
            PyRuntimeError::new_err(text)
        })?;
        PORTS.lock().push((running.clone().unbind(), port.clone_ref(py)));
        Ok(port)
    }

    /// Returns the port whose futures a thread of the package resolves, and starts the thread.
    fn of_threads(py: Python<'_>) -> PyResult<Py<Self>> {
        let known = THREADS.lock().as_ref().map(|port| port.clone_ref(py));
        if let Some(port) = known {
            return Ok(port);
        }
        let class = PyModule::import(py, "concurrent.futures")?.getattr("Future")?.unbind();
        let port = Py::new(py, Self::new(class)?)?;
        // Another thread may have been first, if an import has let it run.
        let mut threads = THREADS.lock();
        if let Some(first) = &*threads {
            return Ok(first.clone_ref(py));
        }
        *threads = Some(port.clone_ref(py));
        drop(threads);
        let started = PyModule::import(py, "curtail_kafka._threads")
            .and_then(|module| module.call_method1("start", (&port,)));
        match started {
            Ok(_) => Ok(port),
            Err(error) => {
                let unserved = THREADS.lock().take();
                drop(unserved);
                Err(error)
            }
        }
    }

    fn new(create_future: Py<PyAny>) -> PyResult<Self> {
        let signal = Signal::new().map_err(PyErr::from)?;
        let replies = Mutex::new(Some(VecDeque::new()));
        let core = Arc::new(Core { signal, armed: AtomicBool::new(false), replies });
        Ok(Self {
            waker: Owned::new(Waker::from(core.clone())),
            core: Owned::new(core),
            state: Owned::new(Mutex::default()),
            create_future,
            has_ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn core(&self, py: Python<'_>) -> PyResult<&Arc<Core>> {
        self.core.get(py)
    }

    /// Creates a future; the tag resolves it. Without `is_quiet`, asyncio reports an exception that nothing retrieves.
    pub(crate) fn future<'py>(
        &self,
        py: Python<'py>,
        timestamp: i64,
        is_quiet: bool,
    ) -> PyResult<(u64, Bound<'py, PyAny>)> {
        let state = self.state.get(py)?;
        let future = self.create_future.bind(py).call0()?;
        let entry = Entry { future: future.clone().unbind(), timestamp, is_quiet };
        let tag = state.lock().slab.insert(entry);
        Ok((tag, future))
    }

    /// Takes back the future of a call that was not made.
    pub(crate) fn withdraw(&self, py: Python<'_>, tag: u64) -> PyResult<()> {
        let entry = self.state.get(py)?.lock().slab.remove(tag);
        drop(entry);
        Ok(())
    }

    /// Returns the outlet for outcomes of the event loop's records. `pair` makes the first one, from any producer.
    pub(crate) fn outlet(
        &self,
        py: Python<'_>,
        pair: impl FnOnce() -> (CompletionSink, Completions),
    ) -> PyResult<Arc<Outlet>> {
        let mut state = self.state.get(py)?.lock();
        if let Some((outlet, _)) = &state.outcomes {
            return Ok(outlet.clone());
        }
        let (sink, mut outcomes) = pair();
        // Registers the waker; there is no outcome yet.
        let mut cx = Context::from_waker(self.waker.get(py)?);
        let _ = Pin::new(&mut outcomes).poll_next(&mut cx);
        let refusals = Refusals::Port(self.core(py)?.clone());
        let outlet = Arc::new(Outlet { refusals, sink });
        state.outcomes = Some((outlet.clone(), outcomes));
        Ok(outlet)
    }

    /// Returns the outlet, if there is one.
    pub(crate) fn known_outlet(&self, py: Python<'_>) -> PyResult<Option<Arc<Outlet>>> {
        let state = self.state.get(py)?.lock();
        Ok(state.outcomes.as_ref().map(|(outlet, _)| outlet.clone()))
    }

    /// Creates a future and the obligation to resolve it.
    pub(crate) fn pending<'py>(&self, py: Python<'py>) -> PyResult<(Pending, Bound<'py, PyAny>)> {
        let (tag, future) = self.future(py, 0, false)?;
        Ok((Pending { core: self.core(py)?.clone(), tag, replied: false }, future))
    }

    /// Creates a call, which a task serves.
    pub(crate) fn call(py: Python<'_>, home: Home) -> PyResult<(Waiting, Call)> {
        let (pending, future) = Self::current(py, home)?.get().pending(py)?;
        let (cancel, cancelled) = oneshot::channel();
        Ok((Waiting { pending, cancelled }, Call::with_signal(future.unbind(), cancel)))
    }

    /// Runs a future of the client on the runtime.
    pub(crate) fn spawn<T: Send + 'static>(
        py: Python<'_>,
        home: Home,
        work: impl Future<Output = curtail::Result<T>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Call> {
        Self::task(py, home, |pending| async move { pending.settle(work.await, convert) })
    }

    /// Runs a future of the client on the runtime. Its value may be of any size.
    pub(crate) fn spawn_long(
        py: Python<'_>,
        home: Home,
        work: impl Future<Output = curtail::Result<Tree>> + Send + 'static,
    ) -> PyResult<Call> {
        Self::task(py, home, |pending| async move { pending.settle_long(work.await) })
    }

    fn task<F: Future<Output = ()> + Send + 'static>(
        py: Python<'_>,
        home: Home,
        work: impl FnOnce(Pending) -> F,
    ) -> PyResult<Call> {
        let process = Process::get(py)?;
        let (pending, future) = Self::current(py, home)?.get().pending(py)?;
        let task = process.spawn(work(pending));
        let stop = Owned::new(Mutex::new(Stop::Task(task.abort_handle())));
        Ok(Call { future: future.unbind(), stop })
    }

    /// Takes the next records of a run, at most `most`.
    fn next_outcomes(&self, py: Python<'_>, most: usize) -> PyResult<Option<Outcomes>> {
        let mut cx = Context::from_waker(self.waker.get(py)?);
        let mut state = self.state.get(py)?.lock();
        let state = &mut *state;
        let (run, done) = match &mut state.run {
            Some((run, done)) => (run, done),
            none => {
                let Some((_, outcomes)) = &mut state.outcomes else { return Ok(None) };
                match Pin::new(outcomes).poll_next(&mut cx) {
                    Poll::Ready(Some(run)) => {
                        let (run, done) = none.insert((run, 0));
                        (run, done)
                    }
                    Poll::Ready(None) | Poll::Pending => return Ok(None),
                }
            }
        };
        let batch = match run.outcome() {
            Ok(batch) => Ok(batch.clone()),
            Err(error) => Err(error.clone()),
        };
        let mut records = Vec::with_capacity(most.min(run.tags().len() - *done));
        for (tag, offset) in run.records().skip(*done).take(most) {
            *done += 1;
            if let Some(entry) = state.slab.remove(tag) {
                records.push((entry, offset));
            }
        }
        if *done >= run.tags().len() {
            // Returns the batch's part of `buffer.memory`.
            state.run = None;
        }
        Ok(Some(Outcomes { batch, records }))
    }

    fn has_more(&self, py: Python<'_>) -> PyResult<bool> {
        let mut cx = Context::from_waker(self.waker.get(py)?);
        let core = self.core.get(py)?;
        let mut state = self.state.get(py)?.lock();
        let has_replies = core.replies.lock().as_ref().is_some_and(|replies| !replies.is_empty());
        if state.run.is_some() || !state.replies.is_empty() || has_replies {
            return Ok(true);
        }
        let Some((_, outcomes)) = &mut state.outcomes else { return Ok(false) };
        let Poll::Ready(Some(run)) = Pin::new(outcomes).poll_next(&mut cx) else {
            return Ok(false);
        };
        state.run = Some((run, 0));
        Ok(true)
    }

    /// Resolves results until there are none, or the turn ends. Returns whether there may be more. Fails in a forked child
    /// only: an error in another process would leave the port armed, and the results without a drain.
    fn turn(&self, py: Python<'_>) -> PyResult<bool> {
        let core = self.core.get(py)?;
        let mut turn = Turn { ends: Instant::now() + TURN_TIME, left: TURN_RESULTS };
        loop {
            // Before the outcomes: those of a flush are queued before its reply.
            {
                let mut state = self.state.get(py)?.lock();
                if state.replies.is_empty() {
                    state.replies = core.replies.lock().as_mut().map(mem::take).unwrap_or_default();
                }
            }
            while let Some(outcomes) = self.next_outcomes(py, turn.chunk())? {
                outcomes.resolve(py);
                if turn.is_over(outcomes.records.len()) {
                    return Ok(true);
                }
            }
            loop {
                let next = self.state.get(py)?.lock().replies.pop_front();
                let Some((tag, reply)) = next else { break };
                let result = match reply {
                    Reply::Short(convert) => convert(py),
                    Reply::Long(mut build) => match build.run(py, turn.ends) {
                        Ok(Some(value)) => Ok(value),
                        Ok(None) => {
                            let mut state = self.state.get(py)?.lock();
                            state.replies.push_front((tag, Reply::Long(build)));
                            return Ok(true);
                        }
                        Err(error) => Err(error),
                    },
                };
                let entry = self.state.get(py)?.lock().slab.remove(tag);
                match (entry, result) {
                    (Some(entry), result) => entry.resolve(py, result),
                    (None, Ok(_)) => {}
                    (None, Err(error)) => error.write_unraisable(py, None),
                }
                if turn.is_over(1) {
                    return Ok(true);
                }
            }
            core.armed.store(false, Ordering::SeqCst);
            // A waker that saw the port armed has written nothing.
            if !self.has_more(py)? {
                return Ok(false);
            }
            core.armed.store(true, Ordering::SeqCst);
        }
    }
}

impl Port {
    /// Drops results that nothing can receive. Threads of the runtime may wait for their end, and outcomes of records keep
    /// parts of `buffer.memory`.
    fn close(&self) {
        if let Some(core) = self.core.local() {
            let replies = core.replies.lock().take();
            drop(replies);
        }
        if let Some(state) = self.state.local() {
            let state = mem::take(&mut *state.lock());
            drop(state);
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.close();
    }
}

#[pymethods]
impl Port {
    /// Resolves the futures whose results have arrived. The event loop calls it.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core.get(py)?;
        core.signal.lower();
        if self.turn(py)? {
            core.signal.raise();
        }
        Ok(())
    }

    /// Waits without the GIL for results, and resolves their futures. Returns whether to continue. The thread of
    /// `curtail_kafka._threads` calls it.
    fn serve(&self, py: Python<'_>) -> PyResult<bool> {
        let core = self.core.get(py)?;
        py.detach(|| core.signal.wait());
        if self.has_ended.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.drain(py)?;
        Ok(true)
    }

    /// Ends [`Self::serve`].
    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        if let Some(core) = self.core.local() {
            core.signal.raise();
        }
    }
}

/// The limits of one turn.
struct Turn {
    ends: Instant,
    left: usize,
}

impl Turn {
    fn chunk(&self) -> usize {
        self.left.min(LOOK_EVERY)
    }

    fn is_over(&mut self, results: usize) -> bool {
        self.left = self.left.saturating_sub(results);
        self.left == 0 || Instant::now() >= self.ends
    }
}

/// Records of a batch and their futures.
struct Outcomes {
    batch: curtail::Result<curtail::consumer::BatchMetadata>,
    records: Vec<(Entry, Option<i64>)>,
}

impl Outcomes {
    /// Resolves every future. One whose metadata finds no memory fails with that error.
    fn resolve(&self, py: Python<'_>) {
        let batch = match &self.batch {
            Ok(batch) => batch,
            Err(error) => {
                for (entry, _) in &self.records {
                    entry.resolve(py, Err(error::raise(py, error)));
                }
                return;
            }
        };
        let topic = PyString::new(py, &batch.topic).unbind();
        for (entry, offset) in &self.records {
            let metadata = RecordMetadata {
                topic: topic.clone_ref(py),
                partition: batch.partition,
                offset: *offset,
                timestamp: batch.log_append_time.unwrap_or(entry.timestamp),
                log_append_time: batch.log_append_time,
                batch: batch.timing,
            };
            entry.resolve(py, Py::new(py, metadata).map(Py::into_any));
        }
    }
}

/// Number of calls and records of the running event loop that have no result. A cancelled call counts until its task has
/// ended.
#[pyfunction]
pub(crate) fn pending_results(py: Python<'_>) -> PyResult<usize> {
    let port = Port::of_loop(py)?;
    Ok(port.get().state.get(py)?.lock().slab.len())
}

/// What an event loop calls when results have arrived. The loop drops it when it closes, and with it the port.
#[pyclass(frozen, module = "curtail_kafka._native")]
struct Reader(Owned<Py<Port>>);

#[pymethods]
impl Reader {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get(py)?.get().drain(py)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // A forked child has forgotten its ports.
        let Some(port) = self.0.local() else { return };
        let known = {
            let mut ports = PORTS.lock();
            let index = ports.iter().position(|(_, other)| other.is(port));
            index.map(|index| ports.swap_remove(index))
        };
        port.get().close();
        // Outside the lock: it may run Python code.
        drop(known);
    }
}

/// Position of an acknowledged record in the log.
#[pyclass(frozen, eq, module = "curtail_kafka")]
pub(crate) struct RecordMetadata {
    #[pyo3(get)]
    topic: Py<PyString>,
    #[pyo3(get)]
    partition: i32,
    #[pyo3(get)]
    offset: Option<i64>,
    #[pyo3(get)]
    timestamp: i64,
    #[pyo3(get)]
    log_append_time: Option<i64>,
    batch: curtail::producer::Timing,
}

impl PartialEq for RecordMetadata {
    fn eq(&self, other: &Self) -> bool {
        self.partition == other.partition
            && self.offset == other.offset
            && self.timestamp == other.timestamp
            && self.log_append_time == other.log_append_time
            && self.topic.is(&other.topic)
    }
}

#[pymethods]
impl RecordMetadata {
    /// Phase timestamps of the record's batch.
    #[getter]
    fn timing(&self, py: Python<'_>) -> PyResult<Timing> {
        Timing::new(py, self.batch)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let topic = self.topic.bind(py).repr()?;
        let (partition, timestamp) = (self.partition, self.timestamp);
        let offset = self.offset.map_or("None".into(), |offset| offset.to_string());
        Ok(format!(
            "RecordMetadata(topic={topic}, partition={partition}, offset={offset}, timestamp={timestamp})"
        ))
    }
}
