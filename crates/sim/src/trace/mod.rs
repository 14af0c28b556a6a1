//! The events of a run, hashed to one number: runs with the same seed must agree on it.

mod log;

pub(crate) use log::LogToTrace;

use std::{
    cell::Cell,
    collections::VecDeque,
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hasher},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lines kept when a run is not traced in full: enough to see the state of a hanging run.
const TAIL: usize = 200;

/// The events of one run in the order they happened, hashed as they come.
///
/// The hash covers virtual time, host, event and the content of every write, so that two runs with the same hash
/// have sent the same bytes at the same times. It is not stable between versions of Rust.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    hasher: DefaultHasher,
    events: u64,
    lines: VecDeque<String>,
    keep: Keep,
    scratch: String,
}

impl Inner {
    /// Keeps a line. Returns the line that is dropped for it, or an empty one, so that its memory is used again.
    fn keep_line(&mut self, line: String) -> String {
        self.lines.push_back(line);
        let is_full = self.keep == Keep::Tail && self.lines.len() > TAIL;
        let oldest = if is_full { self.lines.pop_front() } else { None };
        oldest.unwrap_or_default()
    }
}

/// How much of a trace is kept as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The last lines.
    #[default]
    Tail,
    /// Everything.
    All,
}

impl Trace {
    /// An empty trace.
    pub fn new(keep: Keep) -> Self {
        let inner = Inner { keep, ..Inner::default() };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Records an event at the current virtual time of the host it happens on.
    pub fn event(&self, host: impl fmt::Display, what: fmt::Arguments<'_>) {
        self.write(host, what, &[]);
    }

    /// Records an event with the bytes that belong to it.
    pub(crate) fn write(&self, host: impl fmt::Display, what: fmt::Arguments<'_>, bytes: &[u8]) {
        let at = now();
        let mut inner = self.0.lock();
        let mut line = std::mem::take(&mut inner.scratch);
        line.clear();
        // Writing to a string does not fail.
        let _ = write!(line, "{:>10.3}ms {host}: {what}", at.as_secs_f64() * 1000.0);
        inner.hasher.write(line.as_bytes());
        inner.hasher.write(bytes);
        inner.events += 1;
        inner.scratch = inner.keep_line(line);
    }

    /// Adds a line that is no event: it does not count for the hash.
    pub(crate) fn note(&self, line: &str) {
        let line = format!("{:>10.3}ms {line}", now().as_secs_f64() * 1000.0);
        self.0.lock().keep_line(line);
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.0.lock().hasher.finish()
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.0.lock().events
    }

    /// The lines kept, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().lines.iter().cloned().collect()
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("events", &self.events()).finish_non_exhaustive()
    }
}

thread_local! {
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets [`now`] count on this thread, from the current virtual time, until the result is dropped.
pub(crate) fn begin() -> Running {
    BEGAN.set(Some(Instant::now()));
    Running(())
}

/// A simulation that runs on this thread.
pub(crate) struct Running(());

impl Drop for Running {
    fn drop(&mut self) {
        BEGAN.set(None);
    }
}

/// Virtual time since the simulation of this thread began; zero outside of one.
pub(crate) fn now() -> Duration {
    BEGAN.get().map(|began| began.elapsed()).unwrap_or_default()
}
