//! Events of the Rust code for Python's `logging`.
//!
//! Threads of the runtime format an event and queue it. A daemon thread of Python (`curtail_kafka._logging`) takes
//! events and passes them to the logger, so that neither the runtime nor the event loop waits for a handler.

use std::{
    collections::VecDeque,
    fmt::{Debug, Write},
    mem,
    sync::{
        OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use tracing_core::{
    Dispatch, Event, Field, Interest, Level, LevelFilter, Metadata, Subscriber, callsite,
    dispatcher,
    field::Visit,
    span::{Attributes, Id, Record},
};

use crate::runtime;

/// Events that wait at most. Later ones are counted and dropped.
const CAPACITY: usize = 1_000;
/// The client's crates. The embedded cluster is no part of the program.
const CLIENT: &str = "curtail";
const CLUSTER: &str = "curtail_cluster";
/// Forks, one in another, after which events are dropped.
const GENERATIONS: usize = 16;

/// Level, target, text, and fields by name.
type Entry = (u8, &'static str, String, Vec<(&'static str, String)>);

/// The levels of `logging`, with that of its users for events below `DEBUG`.
const LEVELS: [(u8, Level); 5] = [
    (5, Level::TRACE),
    (10, Level::DEBUG),
    (20, Level::INFO),
    (30, Level::WARN),
    (40, Level::ERROR),
];

/// The lowest level that is queued. Before the first look at the logger it is that of warnings.
static LOWEST: AtomicU8 = AtomicU8::new(30);
/// The queue of each generation of forked processes: a thread that no longer exists may hold the lock of an earlier one.
static QUEUES: [OnceLock<Queue>; GENERATIONS] = [const { OnceLock::new() }; GENERATIONS];

#[derive(Default)]
struct Open {
    entries: VecDeque<Entry>,
    dropped: usize,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    open: Mutex<Open>,
    changed: Condvar,
}

fn queue() -> Option<&'static Queue> {
    let generation = usize::try_from(runtime::generation()).ok()?;
    Some(QUEUES.get(generation)?.get_or_init(Queue::default))
}

fn filter() -> LevelFilter {
    let lowest = LOWEST.load(Ordering::Relaxed);
    let first = LEVELS.into_iter().find(|(level, _)| *level >= lowest);
    first.map_or(LevelFilter::OFF, |(_, level)| LevelFilter::from_level(level))
}

fn is_wanted(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    metadata.is_event()
        && *metadata.level() <= filter()
        && target.starts_with(CLIENT)
        && !target.starts_with(CLUSTER)
}

struct Bridge;

impl Subscriber for Bridge {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_wanted(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_wanted(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(filter())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(queue) = queue() else { return };
        let metadata = event.metadata();
        let known = LEVELS.into_iter().find(|(_, level)| level == metadata.level());
        let mut text = Text::default();
        event.record(&mut text);
        let level = known.map_or(0, |(level, _)| level);
        let entry = (level, metadata.target(), text.message, text.fields);
        let mut open = queue.open.lock();
        if open.entries.len() < CAPACITY {
            open.entries.push_back(entry);
        } else {
            open.dropped += 1;
        }
        queue.changed.notify_one();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.fields.push((field.name(), format!("{value:?}")));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.fields.push((field.name(), value.to_string()));
        }
    }
}

/// Begins to queue events. Another subscriber of the process, if there is one, stays.
pub(crate) fn install() {
    let _ = dispatcher::set_global_default(Dispatch::new(Bridge));
}

/// Sets the lowest level of `logging` that is queued.
#[pyfunction]
pub(crate) fn set_log_level(level: u64) {
    let level = u8::try_from(level).unwrap_or(u8::MAX);
    if LOWEST.swap(level, Ordering::Relaxed) != level {
        callsite::rebuild_interest_cache();
    }
}

/// Waits for events, and takes them with the number of dropped ones. `None` after [`close_log`].
#[pyfunction]
pub(crate) fn take_log(py: Python<'_>, seconds: f64) -> Option<(Vec<Entry>, usize)> {
    let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    py.detach(|| {
        let queue = queue()?;
        let mut open = queue.open.lock();
        if open.entries.is_empty() && !open.closed {
            queue.changed.wait_for(&mut open, limit);
        }
        if open.entries.is_empty() && open.closed {
            return None;
        }
        let dropped = mem::take(&mut open.dropped);
        Some((open.entries.drain(..).collect(), dropped))
    })
}

/// Ends [`take_log`], once the events are taken.
#[pyfunction]
pub(crate) fn close_log() {
    if let Some(queue) = queue() {
        queue.open.lock().closed = true;
        queue.changed.notify_all();
    }
}
